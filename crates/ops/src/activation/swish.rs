//! # Swish
//! `x / (1 + exp(-beta * x))`, element by element.
//!
//! Specification: `activation/swish-4`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | beta (optional, 1) | that of `data` | one element |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use crate::common::unary::{evaluate_float, infer_with_parameters, parameter, sigmoid};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Swish.
pub static SWISH: OpDef = OpDef {
    type_name: "Swish",
    category: Category::Activation,
    versions: &[OpVersion::new(4, (4, 16), (1, 2), (1, 1))],
    attributes: &[],
    build,
};

/// A Swish layer.
#[derive(Debug)]
pub struct Swish;

impl Operation for Swish {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_with_parameters(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let beta = if context.input_count() > 1 { parameter(context, 1)? } else { 1.0 };
        evaluate_float(context, &|x| if x == f64::NEG_INFINITY && beta > 0.0 { 0.0 } else { x * sigmoid(beta * x) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Swish)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn with_and_without_beta() {
        let case = Case::new("Swish", "opset4");
        let data = tensor(&[-1f32, 0.0, 2.0], [3]);
        let output = case.run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(output[0], tensor(&[-0.26894143f32, 0.0, 1.7615942], [3]));
        let output = case.run(&[data, tensor(&[2f32], [])]).unwrap();
        assert_eq!(output[0], tensor(&[-0.11920292f32, 0.0, 1.9640275], [3]));
    }

    #[test]
    fn beta_is_one_element_of_the_same_type() {
        let case = Case::new("Swish", "opset4");
        assert_eq!(case.infer(&["f16[256,56]", "f16[]"]), ["f16[256,56]"]);
        assert_eq!(
            case.infer_error(&["f16[256,56]", "f16[2]"]),
            "input 1: shape [2] must be a scalar or a tensor of one element"
        );
        assert!(case.infer_error(&["f16[256,56]", "f32[]"]).contains("differs from f16"));
    }
}
