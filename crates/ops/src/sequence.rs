//! Sequence processing.

use crate::OpDef;

pub mod one_hot;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&one_hot::ONE_HOT];
