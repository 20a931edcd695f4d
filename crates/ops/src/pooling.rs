//! Poolings.

use crate::OpDef;

pub mod avg_pool;
pub mod max_pool;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&avg_pool::AVG_POOL, &max_pool::MAX_POOL];
