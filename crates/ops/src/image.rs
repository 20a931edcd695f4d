//! Image processing.

use crate::OpDef;

pub mod interpolate;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&interpolate::INTERPOLATE];
