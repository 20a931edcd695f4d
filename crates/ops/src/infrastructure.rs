//! Infrastructure: parameters, results, constants, states and control flow.

use crate::OpDef;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[];
