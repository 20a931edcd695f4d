//! Comparisons.

use crate::OpDef;

pub mod equal;
pub mod greater;
pub mod greater_equal;
pub mod is_finite;
pub mod is_inf;
pub mod is_nan;
pub mod less;
pub mod less_equal;
pub mod not_equal;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &equal::EQUAL,
    &greater::GREATER,
    &greater_equal::GREATER_EQUAL,
    &is_finite::IS_FINITE,
    &is_inf::IS_INF,
    &is_nan::IS_NAN,
    &less::LESS,
    &less_equal::LESS_EQUAL,
    &not_equal::NOT_EQUAL,
];
