//! Data movement.

use crate::OpDef;

pub mod concat;
pub mod gather;
pub mod slice;
pub mod split;
pub mod strided_slice;
pub mod transpose;
pub mod variadic_split;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &concat::CONCAT,
    &gather::GATHER,
    &slice::SLICE,
    &split::SPLIT,
    &strided_slice::STRIDED_SLICE,
    &transpose::TRANSPOSE,
    &variadic_split::VARIADIC_SPLIT,
];
