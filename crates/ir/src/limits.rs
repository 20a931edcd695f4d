//! The limits of the reader. Each is far above what any converter writes, and low enough that a damaged or hostile file
//! costs bounded time and memory.

/// Bytes of XML. Spans count in 32 bits; the largest known IR files have some tens of megabytes.
pub(crate) const MAX_TEXT_BYTES: usize = 0xffff_fffe;

/// Layers in a file, bodies included. Large language models have about ten thousand.
pub(crate) const MAX_LAYERS: usize = 1 << 20;

/// Ports on one side of a layer. The widest operation is Concat, with some thousands of inputs at most.
pub(crate) const MAX_PORTS: usize = 1 << 16;

/// Edges in a file, bodies included.
pub(crate) const MAX_EDGES: usize = 1 << 23;

/// Bodies inside bodies. Reading, validating and running recurse once a level.
pub(crate) const MAX_BODY_DEPTH: usize = 24;

/// Groups inside groups in rt_info. Dropping and writing them recurses.
pub(crate) const MAX_RT_INFO_DEPTH: usize = 64;

/// Elements inside elements. Unknown elements are skipped without recursion, but nothing sound nests so deep.
pub(crate) const MAX_ELEMENT_DEPTH: usize = 1024;

/// XML attributes of one element.
pub(crate) const MAX_ATTRIBUTES: usize = 4096;

/// Bytes of one XML attribute. Lists of class labels in rt_info reach some hundred kilobytes.
pub(crate) const MAX_ATTRIBUTE_BYTES: usize = 1 << 24;

/// Findings of one reading. A file with more is not an IR file that somebody mends finding by finding.
pub(crate) const MAX_DIAGNOSTICS: usize = 10_000;
