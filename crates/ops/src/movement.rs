//! Data movement.

use crate::OpDef;

pub mod gather_tree;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&gather_tree::GATHER_TREE];
