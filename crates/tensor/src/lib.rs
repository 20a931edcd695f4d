//! Element types, dimensions, partial shapes and tensors.
