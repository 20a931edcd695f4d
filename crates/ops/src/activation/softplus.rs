//! # SoftPlus
//! `ln(1 + exp(x))`, element by element.
//!
//! Specification: `activation/softplus-4`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::common::unary::softplus;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of SoftPlus.
pub static SOFTPLUS: OpDef = OpDef {
    type_name: "SoftPlus",
    category: Category::Activation,
    versions: &[OpVersion::new(4, (4, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A SoftPlus layer.
#[derive(Debug)]
pub struct SoftPlus;

impl Operation for SoftPlus {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_unary(context, Unary { float: &|x| softplus(x), integer: None })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SoftPlus)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("SoftPlus", "opset4").run(&[tensor(&[-2.0f32, 0.5, 1.0, 100.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[0.12692802f32, 0.974077, 1.3132616, 100.0], [4]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("SoftPlus", "opset4");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
