//! Convolutions.

use crate::OpDef;

pub mod binary_convolution;
pub mod convolution;
pub mod convolution_backprop_data;
pub mod deformable_convolution;
pub mod group_convolution;
pub mod group_convolution_backprop_data;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &binary_convolution::BINARY_CONVOLUTION,
    &convolution::CONVOLUTION,
    &convolution_backprop_data::CONVOLUTION_BACKPROP_DATA,
    &deformable_convolution::DEFORMABLE_CONVOLUTION,
    &group_convolution::GROUP_CONVOLUTION,
    &group_convolution_backprop_data::GROUP_CONVOLUTION_BACKPROP_DATA,
];
