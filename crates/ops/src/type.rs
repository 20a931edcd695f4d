//! Element type conversion.

use crate::OpDef;

pub mod convert;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&convert::CONVERT];
