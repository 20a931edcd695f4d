//! Sorting and maximisation.

use crate::OpDef;

pub mod experimental_detectron_top_k_rois;
pub mod matrix_nms;
pub mod multiclass_nms;
pub mod nms_rotated;
pub mod non_max_suppression;
pub mod search_sorted;
pub mod top_k;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &experimental_detectron_top_k_rois::EXPERIMENTAL_DETECTRON_TOP_K_ROIS,
    &matrix_nms::MATRIX_NMS,
    &multiclass_nms::MULTICLASS_NMS,
    &nms_rotated::NMS_ROTATED,
    &non_max_suppression::NON_MAX_SUPPRESSION,
    &search_sorted::SEARCH_SORTED,
    &top_k::TOP_K,
];
