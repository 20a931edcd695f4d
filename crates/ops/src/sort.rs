//! Sorting and maximisation.

use crate::OpDef;

pub mod non_max_suppression;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&non_max_suppression::NON_MAX_SUPPRESSION];
