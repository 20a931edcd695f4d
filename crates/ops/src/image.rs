//! Image processing.

use crate::OpDef;

pub mod grid_sample;
pub mod interpolate;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&grid_sample::GRID_SAMPLE, &interpolate::INTERPOLATE];
