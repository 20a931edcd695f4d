//! What the comparisons share.

use ovir_tensor::{ElementClass, ElementType, Value};

use super::broadcast::BroadcastAttributes;
use super::elementwise::{infer_binary, propagate_binary};
use crate::{InferContext, OpResult};

/// Two inputs of one type, broadcast; the output is boolean. `decide` compares bounds.
pub(crate) fn infer_comparison(
    context: &mut InferContext<'_>,
    attributes: &BroadcastAttributes,
    decide: impl Fn(Value, Value) -> Value,
) -> OpResult {
    infer_binary(context, attributes, ElementClass::Native, Some(ElementType::Boolean))?;
    propagate_binary(context, attributes, decide);
    Ok(())
}
