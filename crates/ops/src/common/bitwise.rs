//! Rules of the bitwise operations.

use ovir_tensor::{ElementClass, ElementType};

use super::broadcast::BroadcastAttributes;
use super::elementwise::infer_binary;
use crate::{Blame, InferContext, OpError, OpResult};

/// Checks that the element type of input `port` is an integer type or boolean.
///
/// # Errors
/// A type mismatch that names the type.
pub(crate) fn require_bits(context: &InferContext<'_>, port: usize) -> OpResult<ElementType> {
    let element_type = context.element_type(port);
    if element_type == ElementType::Boolean || element_type.is(ElementClass::Integer) {
        return Ok(element_type);
    }
    let message = format!("element type {element_type} must be an integer type or boolean");
    Err(OpError::element_type(Blame::Input(port), message))
}

/// Two inputs of bits, broadcast.
pub(crate) fn infer_bitwise(context: &mut InferContext<'_>, attributes: &BroadcastAttributes) -> OpResult {
    require_bits(context, 0)?;
    require_bits(context, 1)?;
    infer_binary(context, attributes, ElementClass::Native, None)
}
