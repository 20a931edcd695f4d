//! # HSigmoid
//! `min(max(x + 3, 0), 6) / 6`, element by element.
//!
//! Specification: `activation/hsigmoid-5`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::common::unary::clamp;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of HSigmoid.
pub static HSIGMOID: OpDef = OpDef {
    type_name: "HSigmoid",
    category: Category::Activation,
    versions: &[OpVersion::new(5, (5, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A HSigmoid layer.
#[derive(Debug)]
pub struct HSigmoid;

impl Operation for HSigmoid {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_unary(context, Unary { float: &|x| clamp(x + 3.0, 0.0, 6.0) / 6.0, integer: None })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(HSigmoid)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("HSigmoid", "opset5").run(&[tensor(&[-4.0f32, -1.0, 0.5, 4.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[0.0f32, 0.33333334, 0.5833333, 1.0], [4]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("HSigmoid", "opset5");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
