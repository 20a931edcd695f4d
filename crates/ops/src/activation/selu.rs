//! # Selu
//! `lambda * x` for positive `x`, `lambda * alpha * (exp(x) - 1)` otherwise, element by element.
//!
//! Specification: `activation/selu-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | alpha | that of `data` | one element |
//! | in 2 | lambda | that of `data` | one element |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use crate::common::unary::{evaluate_float, infer_with_parameters, parameter};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Selu.
pub static SELU: OpDef = OpDef {
    type_name: "Selu",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 16), (3, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A Selu layer.
#[derive(Debug)]
pub struct Selu;

impl Operation for Selu {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_with_parameters(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (alpha, lambda) = (parameter(context, 1)?, parameter(context, 2)?);
        evaluate_float(context, &|x| lambda * if x > 0.0 { x } else { alpha * x.exp_m1() })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Selu)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        assert_eq!(Case::new("Selu", "opset1").infer(&["f32[256,56]", "f32[1]", "f32[1]"]), ["f32[256,56]"]);
    }

    #[test]
    fn both_sides() {
        let inputs = [tensor(&[-1f32, 0.0, 3.0], [3]), tensor(&[1.5f32], [1]), tensor(&[2f32], [1])];
        let output = Case::new("Selu", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[-1.8963617f32, 0.0, 6.0], [3]));
    }
}
