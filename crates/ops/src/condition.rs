//! Conditions.

use crate::OpDef;

pub mod non_zero;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&non_zero::NON_ZERO];
pub mod r#if;
pub mod select;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &r#if::IF,
    &select::SELECT,
];
