//! Operations: attributes, shape inference and reference evaluation, one file each, and their registry.
