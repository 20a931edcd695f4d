//! # Atan
//! The inverse tangent in radians, element by element.
//!
//! Specification: `arithmetic/atan-1`.
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

/// The definition of Atan.
pub static ATAN: OpDef = OpDef {
    type_name: "Atan",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An Atan layer.
#[derive(Debug)]
pub struct Atan;

impl Operation for Atan {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_rounded(context, &|x| x.atan(), Rounding::Nearest)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Atan)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Atan", "opset1").run(&[tensor(&[0.0f32, 2.0, -0.5, 200.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[0.0f32, 1.1071488, -0.4636476, 1.5657964], [4]));
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Atan", "opset1").run(&[tensor(&[-3i32, 0, 50], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-1i32, 0, 2], [3]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Atan", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
