//! # Acos
//! The inverse cosine in radians, element by element; NaN outside of [-1, 1].
//!
//! Specification: `arithmetic/acos-1`.
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

/// The definition of Acos.
pub static ACOS: OpDef = OpDef {
    type_name: "Acos",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An Acos layer.
#[derive(Debug)]
pub struct Acos;

impl Operation for Acos {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_rounded(context, &|x| x.acos(), Rounding::Nearest)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Acos)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Acos", "opset1").run(&[tensor(&[0.0f32, 1.0, -0.5], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[1.5707964f32, 0.0, 2.0943952], [3]));
    }

    #[test]
    fn outside_of_the_domain_is_nan() {
        let output = Case::new("Acos", "opset1").run(&[tensor(&[2.0f32], [1])]).unwrap();
        assert!(output[0].slice::<f32>().unwrap()[0].is_nan());
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Acos", "opset1").run(&[tensor(&[-1i32, 0, 1], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[3i32, 2, 0], [3]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Acos", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
