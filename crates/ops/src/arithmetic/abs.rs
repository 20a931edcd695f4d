//! # Abs
//! `|x|`, element by element; the smallest signed integer stays itself.
//!
//! Specification: `arithmetic/abs-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Abs.
pub static ABS: OpDef = OpDef {
    type_name: "Abs",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An Abs layer.
#[derive(Debug)]
pub struct Abs;

impl Operation for Abs {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_unary(context, Unary { float: &|x| x.abs(), integer: Some(&|x| x.abs()) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Abs)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Abs", "opset1").run(&[tensor(&[-1.5f32, 1.5, -2.0, 0.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[1.5f32, 1.5, 2.0, 0.0], [4]));
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Abs", "opset1").run(&[tensor(&[-2147483648i32, -7], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[-2147483648i32, 7], [2]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Abs", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
