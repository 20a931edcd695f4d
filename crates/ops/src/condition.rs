//! Conditions.

use crate::OpDef;

pub mod r#if;
pub mod select;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&r#if::IF, &select::SELECT];
