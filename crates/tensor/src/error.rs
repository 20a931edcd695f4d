//! Errors of tensors, shapes and element types.

use crate::{ElementType, Shape};

/// What can be wrong with a tensor, a shape or an element type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    /// A text that names no element type.
    #[error("`{text}` is not an element type")]
    UnknownElementType {
        /// The text.
        text: String,
    },
    /// A text that is not a shape.
    #[error("`{text}` is not a shape: {reason}")]
    InvalidShape {
        /// The text.
        text: String,
        /// Why it is refused.
        reason: String,
    },
    /// Bytes and shape disagree.
    #[error("a tensor {element_type}{shape} takes {expected} bytes, not {actual}")]
    SizeMismatch {
        /// The element type.
        element_type: ElementType,
        /// The shape.
        shape: Shape,
        /// Bytes that the shape needs.
        expected: usize,
        /// Bytes that were given.
        actual: usize,
    },
    /// The number of bytes cannot be represented.
    #[error("a tensor {element_type}{shape} is too large for this machine")]
    TooLarge {
        /// The element type.
        element_type: ElementType,
        /// The shape.
        shape: Shape,
    },
    /// Memory could not be had.
    #[error("{bytes} bytes of memory could not be allocated")]
    OutOfMemory {
        /// The bytes asked for.
        bytes: usize,
    },
    /// A tensor is read as another element type.
    #[error("a tensor of {actual} cannot be read as {expected}")]
    WrongElementType {
        /// The type asked for.
        expected: ElementType,
        /// The type that the tensor has.
        actual: ElementType,
    },
    /// The bytes of a shared constant are not aligned for direct access.
    #[error("the bytes of this {element_type} tensor are not aligned; copy it first")]
    Unaligned {
        /// The element type.
        element_type: ElementType,
    },
    /// A file could not be read, or does not hold what its format says.
    #[error("{0}")]
    Format(String),
}
