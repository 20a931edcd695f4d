//! Sparse operations.

use crate::OpDef;

pub mod embedding_bag_offsets;
pub mod embedding_bag_offsets_sum;
pub mod embedding_bag_packed;
pub mod embedding_bag_packed_sum;
pub mod embedding_segments_sum;
pub mod sparse_fill_empty_rows;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &embedding_bag_offsets::EMBEDDING_BAG_OFFSETS,
    &embedding_bag_offsets_sum::EMBEDDING_BAG_OFFSETS_SUM,
    &embedding_bag_packed::EMBEDDING_BAG_PACKED,
    &embedding_bag_packed_sum::EMBEDDING_BAG_PACKED_SUM,
    &embedding_segments_sum::EMBEDDING_SEGMENTS_SUM,
    &sparse_fill_empty_rows::SPARSE_FILL_EMPTY_ROWS,
];
