//! Matrix operations.

use crate::OpDef;

pub mod einsum;
pub mod matmul;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&einsum::EINSUM, &matmul::MATMUL];
