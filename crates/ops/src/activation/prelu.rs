//! # PReLU
//! `x` for non-negative `x`, `slope * x` otherwise, element by element.
//!
//! Specification: `activation/prelu-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | slope | that of `data` | broadcastable to `data` |
//! | out 0 | | that of `data` | that of `data` |
//!
//! A one-dimensional slope as long as the second dimension of `data` belongs to that dimension; any other slope is
//! broadcast by NumPy's rule. Beyond the specification: integers, whose products wrap, and a scalar slope.

use std::sync::Arc;

use ovir_tensor::{ElementClass, PartialShape, Shape, dispatch};

use crate::common::broadcast::{broadcast_shapes, broadcast_strides, for_each_offset};
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of PReLU.
pub static PRELU: OpDef = OpDef {
    type_name: "PReLU",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: &[],
    build,
};

/// A PReLU layer.
#[derive(Debug)]
pub struct Prelu;

impl Operation for Prelu {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        let element_type = context.require_same_type(&[0, 1])?;
        let (data, slope) = (context.shape(0), context.shape(1));
        if !may_fit(data, slope) {
            return Err(misfit(slope, data));
        }
        context.set_output(0, element_type, data.clone());
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, slope) = (context.input(0)?, context.input(1)?);
        let shape = data.shape();
        let aligned = aligned_slope(shape, slope.shape());
        if broadcast_shapes(shape, &aligned).as_ref() != Some(shape) {
            return Err(misfit(slope.shape(), shape));
        }
        let strides = (broadcast_strides(shape, shape), broadcast_strides(&aligned, shape));
        let element_type = data.element_type();
        let mut output = context.output(0, shape)?;
        dispatch!(element_type, T in [numeric] => {
            let (x, s, target) = (data.slice::<T>()?, slope.slice::<T>()?, output.slice_mut::<T>()?);
            for_each_offset(shape, [&strides.0, &strides.1], |[i, j]| {
                let negative = if <T as Number>::IS_FLOAT { Number::to_f64(x[i]) < 0.0 } else { x[i].to_i128() < 0 };
                target[i] = match (negative, <T as Number>::IS_FLOAT) {
                    (false, _) => x[i],
                    (true, true) => T::from_f64(Number::to_f64(x[i]) * Number::to_f64(s[j])),
                    (true, false) => T::from_i128(x[i].to_i128().wrapping_mul(s[j].to_i128())),
                };
            });
            Ok(())
        } else { Err(unsupported(element_type)) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Prelu)
}

/// The slope's shape as NumPy's rule needs it: along the second dimension where its length says so.
#[must_use]
pub fn aligned_slope(data: &[usize], slope: &Shape) -> Shape {
    match (&slope[..], data) {
        ([length], [_, channels, spatial @ ..]) if length == channels => {
            std::iter::once(*length).chain(spatial.iter().map(|_| 1)).collect()
        }
        _ => slope.clone(),
    }
}

/// Whether some pair of the shapes described fits.
fn may_fit(data: &PartialShape, slope: &PartialShape) -> bool {
    let (Some(x), Some(s)) = (data.dims(), slope.dims()) else {
        return true;
    };
    if s.len() == 1 && x.len() >= 2 && s[0].compatible(x[1]) {
        return true;
    }
    s.len() <= x.len() && x.iter().rev().zip(s.iter().rev()).all(|(x, s)| s.contains(1) || s.compatible(*x))
}

fn misfit(slope: impl std::fmt::Display, data: impl std::fmt::Display) -> OpError {
    let message = format!("shape {slope} cannot be broadcast to shape {data} of input 0");
    OpError::shape(Blame::Input(1), message)
        .note("a one-dimensional slope as long as the second dimension belongs to that dimension")
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let case = Case::new("PReLU", "opset1");
        assert_eq!(case.infer(&["f32[128]", "f32[1]"]), ["f32[128]"]);
        assert_eq!(case.infer(&["f32[20,128]", "f32[128]"]), ["f32[20,128]"]);
        assert_eq!(case.infer(&["f32[1,20,128,128]", "f32[20]"]), ["f32[1,20,128,128]"]);
    }

    #[test]
    fn a_slope_per_channel() {
        let inputs = [tensor(&[-1f32, 2.0, -3.0, -4.0], [1, 2, 2]), tensor(&[0.5f32, 2.0], [2])];
        let output = Case::new("PReLU", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[-0.5f32, 2.0, -6.0, -8.0], [1, 2, 2]));
    }

    #[test]
    fn other_slopes_broadcast_as_numpy_says() {
        let inputs = [tensor(&[-1f32, 2.0, -3.0, -4.0, -5.0, -6.0], [2, 3]), tensor(&[0.5f32, 2.0], [2, 1])];
        let output = Case::new("PReLU", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[-0.5f32, 2.0, -1.5, -8.0, -10.0, -12.0], [2, 3]));
    }

    #[test]
    fn the_slope_must_fit() {
        let case = Case::new("PReLU", "opset1");
        assert_eq!(
            case.infer_error(&["f32[2,3]", "f32[4]"]),
            "input 1: shape [4] cannot be broadcast to shape [2,3] of input 0"
        );
        assert!(case.infer_error(&["f32[2,3]", "f32[1,2,3]"]).contains("cannot be broadcast"));
        assert_eq!(case.infer(&["f32[2,?,3]", "f32[4]"]), ["f32[2,?,3]"]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("PReLU", "opset1").assert_monotone(&["f32[1,20,8]", "f32[20]"]);
        Case::new("PReLU", "opset1").assert_monotone(&["f32[3,20]", "f32[3,1]"]);
        Case::new("PReLU", "opset1").assert_monotone(&["f32[3,20,1]", "f32[20,1]"]);
    }
}
