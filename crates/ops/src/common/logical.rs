//! What the logical operations share.

use ovir_tensor::{ElementClass, ElementType};

use super::broadcast::BroadcastAttributes;
use super::elementwise::{Binary, evaluate_binary, infer_binary};
use crate::{EvaluateContext, InferContext, OpResult};

/// Two boolean inputs, broadcast.
pub(crate) fn infer_logical(context: &mut InferContext<'_>, attributes: &BroadcastAttributes) -> OpResult {
    infer_binary(context, attributes, ElementClass::Boolean, Some(ElementType::Boolean))
}

/// Applies a truth function to every pair of elements.
pub(crate) fn evaluate_logical(
    context: &mut EvaluateContext<'_>,
    attributes: &BroadcastAttributes,
    function: fn(bool, bool) -> bool,
) -> OpResult {
    evaluate_binary(context, attributes, Binary { float: None, integer: None, boolean: Some(&function) })
}
