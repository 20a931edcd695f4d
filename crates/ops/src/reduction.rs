//! Reductions.

use crate::OpDef;

pub mod reduce_l1;
pub mod reduce_l2;
pub mod reduce_logical_and;
pub mod reduce_logical_or;
pub mod reduce_max;
pub mod reduce_mean;
pub mod reduce_min;
pub mod reduce_prod;
pub mod reduce_sum;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &reduce_l1::REDUCE_L1,
    &reduce_l2::REDUCE_L2,
    &reduce_logical_and::REDUCE_LOGICAL_AND,
    &reduce_logical_or::REDUCE_LOGICAL_OR,
    &reduce_max::REDUCE_MAX,
    &reduce_mean::REDUCE_MEAN,
    &reduce_min::REDUCE_MIN,
    &reduce_prod::REDUCE_PROD,
    &reduce_sum::REDUCE_SUM,
];
