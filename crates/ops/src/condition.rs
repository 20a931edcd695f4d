//! Conditions.

use crate::OpDef;

pub mod bucketize;
pub mod r#if;
pub mod select;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &bucketize::BUCKETIZE,
    &r#if::IF,
    &select::SELECT,
];
