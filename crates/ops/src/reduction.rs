//! Reductions.

use crate::OpDef;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[];
