//! What the comparisons share.

use ovir_tensor::{ElementClass, ElementType, Value, dispatch};

use super::broadcast::BroadcastAttributes;
use super::elementwise::{infer_binary, propagate_binary, unsupported};
use super::number::Number;
use crate::{EvaluateContext, InferContext, OpResult};

/// Two inputs of one type, numbers, booleans or strings, broadcast; the output is boolean. `decide` compares bounds.
pub(crate) fn infer_comparison(
    context: &mut InferContext<'_>,
    attributes: &BroadcastAttributes,
    decide: impl Fn(Value, Value) -> Value,
) -> OpResult {
    let are_strings = [0, 1].iter().any(|port| context.element_type(*port) == ElementType::String);
    let class = if are_strings { ElementClass::Any } else { ElementClass::Native };
    infer_binary(context, attributes, class, Some(ElementType::Boolean))?;
    propagate_binary(context, attributes, decide);
    Ok(())
}

/// A floating-point input; the output is boolean and of its shape.
pub(crate) fn infer_classification(context: &mut InferContext<'_>) -> OpResult {
    context.require_class(0, ElementClass::Float)?;
    let shape = context.shape(0).clone();
    context.set_output(0, ElementType::Boolean, shape);
    Ok(())
}

/// Asks something of every floating-point element.
pub(crate) fn evaluate_classification(context: &mut EvaluateContext<'_>, predicate: &dyn Fn(f64) -> bool) -> OpResult {
    let input = context.input(0)?;
    let element_type = input.element_type();
    let target = context.output_slice::<u8>(0, input.shape())?;
    dispatch!(element_type, T in [float] => {
        for (t, s) in target.iter_mut().zip(input.slice::<T>()?) {
            *t = u8::from(predicate(Number::to_f64(*s)));
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}
