//! Conditions.

use crate::OpDef;

pub mod bucketize;
pub mod non_zero;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&non_zero::NON_ZERO];
pub mod r#if;
pub mod select;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &bucketize::BUCKETIZE,
    &r#if::IF,
    &select::SELECT,
];
