//! Logical operations.

use crate::OpDef;

pub mod logical_and;
pub mod logical_not;
pub mod logical_or;
pub mod logical_xor;
pub mod xor;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &logical_and::LOGICAL_AND,
    &logical_not::LOGICAL_NOT,
    &logical_or::LOGICAL_OR,
    &logical_xor::LOGICAL_XOR,
    &xor::XOR,
];
