//! # HardSigmoid
//! `max(0, min(1, alpha * x + beta))`, element by element.
//!
//! Specification: `activation/hard-sigmoid-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | alpha | that of `data` | scalar |
//! | in 2 | beta | that of `data` | scalar |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Beyond the specification: the parameters may be tensors of one element.

use std::sync::Arc;

use crate::common::unary::{clamp, evaluate_float, infer_with_parameters, parameter};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of HardSigmoid.
pub static HARD_SIGMOID: OpDef = OpDef {
    type_name: "HardSigmoid",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 16), (3, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A HardSigmoid layer.
#[derive(Debug)]
pub struct HardSigmoid;

impl Operation for HardSigmoid {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_with_parameters(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (alpha, beta) = (parameter(context, 1)?, parameter(context, 2)?);
        evaluate_float(context, &|x| clamp(alpha * x + beta, 0.0, 1.0))
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(HardSigmoid)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        assert_eq!(Case::new("HardSigmoid", "opset1").infer(&["f32[256,56]", "f32[]", "f32[]"]), ["f32[256,56]"]);
    }

    #[test]
    fn values_lie_between_0_and_1() {
        let inputs = [tensor(&[-4f32, -1.0, 1.0, 4.0], [4]), tensor(&[0.25f32], []), tensor(&[0.5f32], [])];
        let output = Case::new("HardSigmoid", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 0.25, 0.75, 1.0], [4]));
    }
}
