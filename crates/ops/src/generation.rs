//! Generation of ranges and random numbers.

use crate::OpDef;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[];
