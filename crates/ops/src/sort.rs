//! Sorting and maximisation.

use crate::OpDef;

pub mod matrix_nms;
pub mod multiclass_nms;
pub mod nms_rotated;
pub mod non_max_suppression;
pub mod search_sorted;
pub mod top_k;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &matrix_nms::MATRIX_NMS,
    &multiclass_nms::MULTICLASS_NMS,
    &nms_rotated::NMS_ROTATED,
    &non_max_suppression::NON_MAX_SUPPRESSION,
    &search_sorted::SEARCH_SORTED,
    &top_k::TOP_K,
];
