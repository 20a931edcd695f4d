//! Generation of ranges and random numbers.

use crate::OpDef;

pub mod range;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&range::RANGE];
