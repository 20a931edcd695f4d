//! Matrix operations.

use crate::OpDef;

pub mod einsum;
pub mod grouped_matmul;
pub mod inverse;
pub mod matmul;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] =
    &[&einsum::EINSUM, &grouped_matmul::GROUPED_MATMUL, &inverse::INVERSE, &matmul::MATMUL];
