//! Matrix operations.

use crate::OpDef;

pub mod matmul;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&matmul::MATMUL];
