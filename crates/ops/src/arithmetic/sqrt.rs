//! # Sqrt
//! The square root, element by element; NaN for negative numbers.
//!
//! Specification: `arithmetic/sqrt-1`.
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

/// The definition of Sqrt.
pub static SQRT: OpDef = OpDef {
    type_name: "Sqrt",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A Sqrt layer.
#[derive(Debug)]
pub struct Sqrt;

impl Operation for Sqrt {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_rounded(context, &|x| x.sqrt(), Rounding::Nearest)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Sqrt)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Sqrt", "opset1").run(&[tensor(&[4.0f32, 3.0, 0.25], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[2.0f32, 1.7320508, 0.5], [3]));
    }

    #[test]
    fn outside_of_the_domain_is_nan() {
        let output = Case::new("Sqrt", "opset1").run(&[tensor(&[-1.0f32], [1])]).unwrap();
        assert!(output[0].slice::<f32>().unwrap()[0].is_nan());
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Sqrt", "opset1").run(&[tensor(&[4i32, 3, 50], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[2i32, 2, 7], [3]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Sqrt", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
