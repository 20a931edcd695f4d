//! Functions of one element that several operations share.

use ovir_tensor::{ElementClass, SmallVec, dispatch};

use super::elementwise::{Unary, evaluate_unary, unsupported};
use super::number::Number;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// How the result of a real function becomes an integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// To the nearest integer, halves away from zero.
    Nearest,
    /// Towards zero.
    TowardsZero,
}

impl Rounding {
    fn apply(self, value: f64) -> f64 {
        match self {
            Rounding::Nearest => value.round(),
            Rounding::TowardsZero => value.trunc(),
        }
    }
}

/// Applies a real function to every element. Integers are computed in f64, rounded and saturated; NaN becomes 0.
pub(crate) fn evaluate_rounded(
    context: &mut EvaluateContext<'_>,
    function: &dyn Fn(f64) -> f64,
    rounding: Rounding,
) -> OpResult {
    let input = context.input(0)?;
    let element_type = input.element_type();
    let mut output = context.output(0, input.shape())?;
    dispatch!(element_type, T in [numeric] => {
        let (source, target) = (input.slice::<T>()?, output.slice_mut::<T>()?);
        for (t, s) in target.iter_mut().zip(source) {
            let value = function(Number::to_f64(*s));
            *t = T::from_f64(if <T as Number>::IS_FLOAT { value } else { rounding.apply(value) });
        }
        Ok(())
    } else { Err(unsupported(element_type)) })
}

/// `1 / (1 + exp(-x))` without overflow.
pub(crate) fn sigmoid(x: f64) -> f64 {
    if x >= 0.0 {
        return 1.0 / (1.0 + (-x).exp());
    }
    let e = x.exp();
    e / (1.0 + e)
}

/// `ln(1 + exp(x))` without overflow.
pub(crate) fn softplus(x: f64) -> f64 {
    if x.is_nan() { x } else { x.max(0.0) + (-x.abs()).exp().ln_1p() }
}

/// `min(max(x, low), high)`; NaN stays NaN.
pub(crate) fn clamp(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

/// The value of a parameter input of one element (a slope, a limit), as f64.
///
/// # Errors
/// When the input has another number of elements, or is of no numeric type.
pub(crate) fn parameter(context: &EvaluateContext<'_>, port: usize) -> OpResult<f64> {
    let view = context.input(port)?;
    dispatch!(view.element_type(), T in [numeric] => {
        match view.slice::<T>()? {
            [value] => Ok(Number::to_f64(*value)),
            values => {
                let message = format!("one element is expected, not {}", values.len());
                Err(OpError::shape(Blame::Input(port), message))
            }
        }
    } else { Err(unsupported(view.element_type())) })
}

/// A floating-point input followed by parameters of one element each and of its type; the output is as the input.
pub(crate) fn infer_with_parameters(context: &mut InferContext<'_>) -> OpResult {
    context.require_class(0, ElementClass::Float)?;
    let ports: SmallVec<[usize; 8]> = (0..context.input_count()).collect();
    let element_type = context.require_same_type(&ports)?;
    for &port in &ports[1..] {
        context.require_one_element(port)?;
    }
    let shape = context.shape(0).clone();
    context.set_output(0, element_type, shape);
    Ok(())
}

/// Applies a real function to every floating-point element.
pub(crate) fn evaluate_float(context: &mut EvaluateContext<'_>, function: &dyn Fn(f64) -> f64) -> OpResult {
    evaluate_unary(context, Unary { float: function, integer: None })
}
