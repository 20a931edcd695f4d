//! # Sign
//! -1, 0 or 1 after the sign of `x`, element by element. NaN stays NaN.
//!
//! Specification: `arithmetic/sign-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Sign.
pub static SIGN: OpDef = OpDef {
    type_name: "Sign",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A Sign layer.
#[derive(Debug)]
pub struct Sign;

impl Operation for Sign {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let float = |x: f64| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        };
        evaluate_unary(context, Unary { float: &float, integer: Some(&|x| x.signum()) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Sign)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Sign", "opset1").run(&[tensor(&[-1.5f32, 1.5, 0.0, 7.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[-1.0f32, 1.0, 0.0, 1.0], [4]));
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Sign", "opset1").run(&[tensor(&[-9i32, 0, 7], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-1i32, 0, 1], [3]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Sign", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
