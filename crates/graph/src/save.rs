//! From a graph back to a document.
