//! Quantisation.

use crate::OpDef;

pub mod fake_convert;
pub mod fake_quantize;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&fake_convert::FAKE_CONVERT, &fake_quantize::FAKE_QUANTIZE];
