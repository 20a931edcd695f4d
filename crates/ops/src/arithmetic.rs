//! Arithmetic.

use crate::OpDef;

pub mod add;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&add::ADD];
