//! Conditions and control flow.

use crate::OpDef;

pub mod non_zero;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&non_zero::NON_ZERO];
