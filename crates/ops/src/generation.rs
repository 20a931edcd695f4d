//! Generation of ranges and random numbers.

use crate::OpDef;

pub mod eye;
pub mod multinomial;
pub mod random_uniform;
pub mod range;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] =
    &[&eye::EYE, &multinomial::MULTINOMIAL, &random_uniform::RANDOM_UNIFORM, &range::RANGE];
