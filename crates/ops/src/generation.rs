//! Generation of ranges and random numbers.

use crate::OpDef;

pub mod eye;
pub mod random_uniform;
pub mod range;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&eye::EYE, &random_uniform::RANDOM_UNIFORM, &range::RANGE];
