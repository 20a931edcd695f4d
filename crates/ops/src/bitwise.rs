//! Bitwise operations.

use crate::OpDef;

pub mod bitwise_and;
pub mod bitwise_left_shift;
pub mod bitwise_not;
pub mod bitwise_or;
pub mod bitwise_right_shift;
pub mod bitwise_xor;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &bitwise_and::BITWISE_AND,
    &bitwise_left_shift::BITWISE_LEFT_SHIFT,
    &bitwise_not::BITWISE_NOT,
    &bitwise_or::BITWISE_OR,
    &bitwise_right_shift::BITWISE_RIGHT_SHIFT,
    &bitwise_xor::BITWISE_XOR,
];
