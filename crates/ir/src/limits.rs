//! The limits of the reader. Each is far above what any converter writes, and low enough that a damaged or hostile file
//! costs bounded time and memory. Those of [`Limits`] can be raised.

/// The limits that a reader of an extraordinary file may raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Layers in a file, bodies included. Large language models have about ten thousand.
    pub layers: usize,
    /// Edges in a file, bodies included.
    pub edges: usize,
    /// Ports on one side of a layer, entries of a port map, back edges. The widest operation is Concat, with some
    /// thousands of inputs at most.
    pub ports: usize,
    /// XML attributes of one element.
    pub attributes: usize,
    /// Bytes of one XML attribute. Lists of class labels in rt_info reach some hundred kilobytes.
    pub attribute_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { layers: 1 << 20, edges: 1 << 23, ports: 1 << 16, attributes: 4096, attribute_bytes: 1 << 24 }
    }
}

impl Limits {
    /// The names by which [`Limits::raise`] knows them.
    pub const NAMES: [&'static str; 5] = ["layers", "edges", "ports", "attributes", "attribute-bytes"];

    /// Sets the limit with this name. Returns whether there is one.
    pub fn raise(&mut self, name: &str, value: usize) -> bool {
        let limit = match name {
            "layers" => &mut self.layers,
            "edges" => &mut self.edges,
            "ports" => &mut self.ports,
            "attributes" => &mut self.attributes,
            "attribute-bytes" => &mut self.attribute_bytes,
            _ => return false,
        };
        *limit = value;
        true
    }
}

/// Bytes of XML. Spans count in 32 bits; the largest known IR files have some tens of megabytes.
pub(crate) const MAX_TEXT_BYTES: usize = 0xffff_fffe;

/// Bodies inside bodies. Reading, validating and running recurse once a level.
pub(crate) const MAX_BODY_DEPTH: usize = 24;

/// Groups inside groups in rt_info. Dropping and writing them recurses.
pub(crate) const MAX_RT_INFO_DEPTH: usize = 64;

/// Elements inside elements. Unknown elements are skipped without recursion, but nothing sound nests so deep.
pub(crate) const MAX_ELEMENT_DEPTH: usize = 1024;

/// Findings of one reading. A file with more is not an IR file that somebody mends finding by finding.
pub(crate) const MAX_DIAGNOSTICS: usize = 10_000;
