//! # SoftSign
//! `x / (1 + |x|)`, element by element; NaN for infinities, as the formula says.
//!
//! Specification: `activation/softsign-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of SoftSign.
pub static SOFTSIGN: OpDef = OpDef {
    type_name: "SoftSign",
    category: Category::Activation,
    versions: &[OpVersion::new(9, (9, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A SoftSign layer.
#[derive(Debug)]
pub struct SoftSign;

impl Operation for SoftSign {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_unary(context, Unary { float: &|x| x / (1.0 + x.abs()), integer: None })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SoftSign)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("SoftSign", "opset9").run(&[tensor(&[-2.0f32, 0.0, 1.0, 100.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[-0.6666667f32, 0.0, 0.5, 0.990099], [4]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("SoftSign", "opset9");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
