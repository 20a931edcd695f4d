//! Activation functions.

use crate::OpDef;

pub mod relu;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&relu::RELU];
