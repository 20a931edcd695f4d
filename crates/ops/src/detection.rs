//! Object detection.

use crate::OpDef;

pub mod deformable_psroi_pooling;
pub mod detection_output;
pub mod experimental_detectron_detection_output;
pub mod experimental_detectron_generate_proposals_single_image;
pub mod experimental_detectron_prior_grid_generator;
pub mod experimental_detectron_roi_feature_extractor;
pub mod generate_proposals;
pub mod prior_box;
pub mod prior_box_clustered;
pub mod proposal;
pub mod psroi_pooling;
pub mod region_yolo;
pub mod reorg_yolo;
pub mod roi_align;
pub mod roi_align_rotated;
pub mod roi_pooling;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &deformable_psroi_pooling::DEFORMABLE_PSROI_POOLING,
    &detection_output::DETECTION_OUTPUT,
    &experimental_detectron_detection_output::EXPERIMENTAL_DETECTRON_DETECTION_OUTPUT,
    &experimental_detectron_generate_proposals_single_image::EXPERIMENTAL_DETECTRON_GENERATE_PROPOSALS_SINGLE_IMAGE,
    &experimental_detectron_prior_grid_generator::EXPERIMENTAL_DETECTRON_PRIOR_GRID_GENERATOR,
    &experimental_detectron_roi_feature_extractor::EXPERIMENTAL_DETECTRON_ROI_FEATURE_EXTRACTOR,
    &generate_proposals::GENERATE_PROPOSALS,
    &prior_box::PRIOR_BOX,
    &prior_box_clustered::PRIOR_BOX_CLUSTERED,
    &proposal::PROPOSAL,
    &psroi_pooling::PSROI_POOLING,
    &region_yolo::REGION_YOLO,
    &reorg_yolo::REORG_YOLO,
    &roi_align::ROI_ALIGN,
    &roi_align_rotated::ROI_ALIGN_ROTATED,
    &roi_pooling::ROI_POOLING,
];
