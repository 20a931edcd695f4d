//! Conditions.

use crate::OpDef;

pub mod r#if;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&r#if::IF];
