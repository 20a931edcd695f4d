//! Element type conversion.

use crate::OpDef;

pub mod convert;
pub mod convert_like;
pub mod convert_promote_types;
pub mod string_tensor_pack;
pub mod string_tensor_unpack;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[
    &convert::CONVERT,
    &convert_like::CONVERT_LIKE,
    &convert_promote_types::CONVERT_PROMOTE_TYPES,
    &string_tensor_pack::STRING_TENSOR_PACK,
    &string_tensor_unpack::STRING_TENSOR_UNPACK,
];
