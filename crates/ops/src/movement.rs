//! Data movement.

use crate::OpDef;

pub mod concat;
pub mod gather;
pub mod scatter_elements_update;
pub mod scatter_nd_update;
pub mod scatter_update;
pub mod slice;
pub mod split;
pub mod strided_slice;
pub mod transpose;
pub mod variadic_split;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &concat::CONCAT,
    &gather::GATHER,
    &scatter_elements_update::SCATTER_ELEMENTS_UPDATE,
    &scatter_nd_update::SCATTER_ND_UPDATE,
    &scatter_update::SCATTER_UPDATE,
    &slice::SLICE,
    &split::SPLIT,
    &strided_slice::STRIDED_SLICE,
    &transpose::TRANSPOSE,
    &variadic_split::VARIADIC_SPLIT,
];
