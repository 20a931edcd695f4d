//! Data movement.

use crate::OpDef;

pub mod batch_to_space;
pub mod broadcast;
pub mod col2im;
pub mod concat;
pub mod depth_to_space;
pub mod extract_image_patches;
pub mod gather;
pub mod gather_elements;
pub mod gather_nd;
pub mod gather_tree;
pub mod pad;
pub mod reverse;
pub mod reverse_sequence;
pub mod roll;
pub mod scatter_elements_update;
pub mod scatter_nd_update;
pub mod scatter_update;
pub mod shuffle_channels;
pub mod slice;
pub mod slice_scatter;
pub mod space_to_batch;
pub mod space_to_depth;
pub mod split;
pub mod strided_slice;
pub mod tile;
pub mod transpose;
pub mod unique;
pub mod variadic_split;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &batch_to_space::BATCH_TO_SPACE,
    &broadcast::BROADCAST,
    &col2im::COL2IM,
    &concat::CONCAT,
    &depth_to_space::DEPTH_TO_SPACE,
    &extract_image_patches::EXTRACT_IMAGE_PATCHES,
    &gather::GATHER,
    &gather_elements::GATHER_ELEMENTS,
    &gather_nd::GATHER_ND,
    &gather_tree::GATHER_TREE,
    &pad::PAD,
    &reverse::REVERSE,
    &reverse_sequence::REVERSE_SEQUENCE,
    &roll::ROLL,
    &scatter_elements_update::SCATTER_ELEMENTS_UPDATE,
    &scatter_nd_update::SCATTER_ND_UPDATE,
    &scatter_update::SCATTER_UPDATE,
    &shuffle_channels::SHUFFLE_CHANNELS,
    &slice::SLICE,
    &slice_scatter::SLICE_SCATTER,
    &space_to_batch::SPACE_TO_BATCH,
    &space_to_depth::SPACE_TO_DEPTH,
    &split::SPLIT,
    &strided_slice::STRIDED_SLICE,
    &tile::TILE,
    &transpose::TRANSPOSE,
    &unique::UNIQUE,
    &variadic_split::VARIADIC_SPLIT,
];
