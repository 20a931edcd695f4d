//! Shape manipulation.

use crate::OpDef;

pub mod reshape;
pub mod shape_of;
pub mod squeeze;
pub mod unsqueeze;

/// The operations of this category.
pub static OPERATIONS: &[&OpDef] = &[&reshape::RESHAPE, &shape_of::SHAPE_OF, &squeeze::SQUEEZE, &unsqueeze::UNSQUEEZE];
