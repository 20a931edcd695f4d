//! The limits against damaged and hostile files. Each is far above what any converter writes, and low enough that a file
//! costs bounded time and memory.

/// How large the parts of a file may be. Each limit can be raised, up to what the program itself can bear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Layers in a file, bodies included. Large language models have about ten thousand.
    pub layers: usize,
    /// Edges in a file, bodies included.
    pub edges: usize,
    /// Ports on one side of a layer, entries of a port map, back edges. The widest operation is Concat, with some
    /// thousands of inputs at most.
    pub ports: usize,
    /// Dimensions of a port.
    pub rank: usize,
    /// XML attributes of one element.
    pub attributes: usize,
    /// Bytes of one XML attribute. Lists of class labels in rt_info reach some hundred kilobytes.
    pub attribute_bytes: usize,
    /// Bodies inside bodies. Reading, validating and running recurse once a level.
    pub body_depth: usize,
    /// Groups inside groups in rt_info. Dropping and writing them recurses.
    pub rt_info_depth: usize,
    /// Elements inside elements that are unknown. They are skipped without recursion, but nothing sound nests so deep.
    pub element_depth: usize,
    /// Elements of one value whose shape is known. No processor of today addresses more bytes than the default.
    pub elements: usize,
    /// Findings of one reading. A file with more is not an IR file that somebody mends finding by finding.
    pub findings: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            layers: 1 << 20,
            edges: 1 << 23,
            ports: 1 << 16,
            rank: ovir_tensor::MAX_RANK,
            attributes: 4096,
            attribute_bytes: 1 << 24,
            body_depth: 24,
            rt_info_depth: 64,
            element_depth: 1024,
            elements: usize::try_from(1u64 << 47).unwrap_or(usize::MAX),
            findings: 10_000,
        }
    }
}

impl Limits {
    /// The names by which [`Limits::set`] knows them, in the order of the fields.
    pub const NAMES: [&'static str; 11] = [
        "layers",
        "edges",
        "ports",
        "rank",
        "attributes",
        "attribute-bytes",
        "body-depth",
        "rt-info-depth",
        "element-depth",
        "elements",
        "findings",
    ];

    /// Sets the limit with this name.
    ///
    /// # Errors
    /// What is wrong: there is no such limit, or the program cannot bear the value.
    pub fn set(&mut self, name: &str, value: usize) -> Result<(), String> {
        // Ids count in 32 bits; what recurses fits into the stack of a thread up to these depths.
        let (limit, most) = match name {
            "layers" => (&mut self.layers, 1 << 30),
            "edges" => (&mut self.edges, 1 << 30),
            "ports" => (&mut self.ports, 1 << 30),
            "rank" => (&mut self.rank, ovir_tensor::MAX_RANK),
            "attributes" => (&mut self.attributes, usize::MAX),
            "attribute-bytes" => (&mut self.attribute_bytes, usize::MAX),
            "body-depth" => (&mut self.body_depth, 64),
            "rt-info-depth" => (&mut self.rt_info_depth, 1024),
            "element-depth" => (&mut self.element_depth, usize::MAX),
            "elements" => (&mut self.elements, usize::MAX),
            "findings" => (&mut self.findings, 1 << 30),
            _ => return Err(format!("there is no limit \"{name}\"; there is {}", Limits::NAMES.join(", "))),
        };
        if value > most {
            return Err(format!("the limit {name} can be raised to {most} at most"));
        }
        *limit = value;
        Ok(())
    }
}

/// What is said of a limit that is exceeded.
pub fn beyond(what: &str, limit: usize, unit: &str, name: &str) -> String {
    format!("{what} more than {limit} {unit}; `--limit {name}=NUMBER` raises the limit")
}

/// Bytes of XML. Spans count in 32 bits; the largest known IR files have some tens of megabytes.
pub(crate) const MAX_TEXT_BYTES: usize = 0xffff_fffe;

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn every_name_is_a_limit() {
        let mut limits = Limits::default();
        for name in Limits::NAMES {
            limits.set(name, 3).unwrap();
        }
        assert_eq!(format!("{limits:?}").matches(": 3").count(), Limits::NAMES.len());
        assert_eq!(format!("{limits:?}").matches(':').count(), Limits::NAMES.len());
        assert!(limits.set("rooms", 3).unwrap_err().contains("layers"));
        assert!(limits.set("rank", 33).unwrap_err().contains("32"));
        assert!(limits.set("body-depth", 65).is_err());
    }
}
