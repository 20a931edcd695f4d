//! The layer graph: building it from a document, ordering, validation, and reshaping.
