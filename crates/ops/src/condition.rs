//! Conditions.

use crate::OpDef;

pub mod bucketize;
pub mod r#if;
pub mod non_zero;
pub mod select;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&bucketize::BUCKETIZE, &non_zero::NON_ZERO, &r#if::IF, &select::SELECT];
