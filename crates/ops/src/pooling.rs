//! Poolings.

use crate::OpDef;

pub mod adaptive_avg_pool;
pub mod adaptive_max_pool;
pub mod avg_pool;
pub mod max_pool;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &adaptive_avg_pool::ADAPTIVE_AVG_POOL,
    &adaptive_max_pool::ADAPTIVE_MAX_POOL,
    &avg_pool::AVG_POOL,
    &max_pool::MAX_POOL,
];
