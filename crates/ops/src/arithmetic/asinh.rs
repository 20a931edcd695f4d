//! # Asinh
//! The inverse hyperbolic sine, element by element.
//!
//! Specification: `arithmetic/asinh-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Results on integers are rounded to the nearest integer, as OpenVINO's reference does; what does not fit saturates.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::infer_unary;
use crate::common::unary::{Rounding, evaluate_rounded};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Asinh.
pub static ASINH: OpDef = OpDef {
    type_name: "Asinh",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(3, (4, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An Asinh layer.
#[derive(Debug)]
pub struct Asinh;

impl Operation for Asinh {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_rounded(context, &|x| libm::asinh(x), Rounding::Nearest)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Asinh)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Asinh", "opset4").run(&[tensor(&[0.0f32, 1.0, -0.5, 200.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[0.0f32, 0.8813736, -0.4812118, 5.991471], [4]));
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Asinh", "opset4").run(&[tensor(&[-3i32, 0, 50], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-2i32, 0, 5], [3]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Asinh", "opset4");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
