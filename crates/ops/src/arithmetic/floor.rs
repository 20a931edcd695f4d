//! # Floor
//! The largest integer that is not above `x`, element by element.
//!
//! Specification: `arithmetic/floor-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Floor.
pub static FLOOR: OpDef = OpDef {
    type_name: "Floor",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A Floor layer.
#[derive(Debug)]
pub struct Floor;

impl Operation for Floor {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_unary(context, Unary { float: &|x| x.floor(), integer: Some(&|x| x) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Floor)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Floor", "opset1").run(&[tensor(&[-1.5f32, 1.5, 2.0, -0.2], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[-2.0f32, 1.0, 2.0, -1.0], [4]));
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Floor", "opset1").run(&[tensor(&[-3i32, 7], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[-3i32, 7], [2]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Floor", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
