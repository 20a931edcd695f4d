//! Normalisation.

use crate::OpDef;

pub mod batch_norm_inference;
pub mod grn;
pub mod group_normalization;
pub mod lrn;
pub mod mvn;
pub mod normalize_l2;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &batch_norm_inference::BATCH_NORM_INFERENCE,
    &grn::GRN,
    &group_normalization::GROUP_NORMALIZATION,
    &lrn::LRN,
    &mvn::MVN,
    &normalize_l2::NORMALIZE_L2,
];
