//! Object detection.

use crate::OpDef;

pub mod psroi_pooling;
pub mod region_yolo;
pub mod reorg_yolo;
pub mod roi_align;
pub mod roi_pooling;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &psroi_pooling::PSROI_POOLING,
    &region_yolo::REGION_YOLO,
    &reorg_yolo::REORG_YOLO,
    &roi_align::ROI_ALIGN,
    &roi_pooling::ROI_POOLING,
];
