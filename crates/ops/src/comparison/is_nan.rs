//! # IsNaN
//! Whether an element is NaN.
//!
//! Specification: `comparison/isnan-10`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | boolean | that of `data` |

use std::sync::Arc;

use crate::common::comparison::{evaluate_classification, infer_classification};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of IsNaN.
pub static IS_NAN: OpDef = OpDef {
    type_name: "IsNaN",
    category: Category::Comparison,
    versions: &[OpVersion::new(10, (10, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An IsNaN layer.
#[derive(Debug)]
pub struct IsNaN;

impl Operation for IsNaN {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_classification(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_classification(context, &f64::is_nan)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(IsNaN)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        assert_eq!(Case::new("IsNaN", "opset10").infer(&["f32[256,128]"]), ["boolean[256,128]"]);
        assert!(Case::new("IsNaN", "opset10").infer_error(&["i32[2]"]).contains("floating-point type"));
    }

    #[test]
    fn elements_are_classified() {
        let data = tensor(&[f32::NAN, 2.1, f32::INFINITY, f32::NEG_INFINITY, 0.0], [5]);
        let output = Case::new("IsNaN", "opset10").run(&[data]).unwrap();
        assert_eq!(output[0], booleans(&[true, false, false, false, false], [5]));
    }
}
