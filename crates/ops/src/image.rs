//! Image processing.

use crate::OpDef;

pub mod bgr_to_nv12;
pub mod grid_sample;
pub mod i420_to_bgr;
pub mod i420_to_rgb;
pub mod interpolate;
pub mod nv12_to_bgr;
pub mod nv12_to_rgb;
pub mod rgb_to_nv12;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &bgr_to_nv12::BGR_TO_NV12,
    &grid_sample::GRID_SAMPLE,
    &i420_to_bgr::I420_TO_BGR,
    &i420_to_rgb::I420_TO_RGB,
    &interpolate::INTERPOLATE,
    &nv12_to_bgr::NV12_TO_BGR,
    &nv12_to_rgb::NV12_TO_RGB,
    &rgb_to_nv12::RGB_TO_NV12,
];
