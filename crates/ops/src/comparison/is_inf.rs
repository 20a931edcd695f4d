//! # IsInf
//! Whether an element is infinite.
//!
//! Specification: `comparison/isinf-10`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | boolean | that of `data` |

use std::sync::Arc;

use crate::common::comparison::{evaluate_classification, infer_classification};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of IsInf.
pub static IS_INF: OpDef = OpDef {
    type_name: "IsInf",
    category: Category::Comparison,
    versions: &[OpVersion::new(10, (10, 16), (1, 1), (1, 1))],
    attributes: IsInfAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of IsInf.
    pub struct IsInfAttributes {
        /// Whether negative infinity counts.
        detect_negative: bool = "detect_negative", default "true";
        /// Whether positive infinity counts.
        detect_positive: bool = "detect_positive", default "true";
    }
}

/// An IsInf layer.
#[derive(Debug)]
pub struct IsInf {
    /// The attributes.
    pub attributes: IsInfAttributes,
}

impl Operation for IsInf {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_classification(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let IsInfAttributes { detect_negative, detect_positive } = self.attributes;
        let is_detected = |x: f64| detect_negative && x == f64::NEG_INFINITY || detect_positive && x == f64::INFINITY;
        evaluate_classification(context, &is_detected)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(10)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(IsInf { attributes: IsInfAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        assert_eq!(Case::new("IsInf", "opset10").infer(&["f32[256,128]"]), ["boolean[256,128]"]);
    }

    #[test]
    fn both_signs_can_be_left_out() {
        let data = tensor(&[f32::NAN, 2.1, f32::INFINITY, f32::NEG_INFINITY], [4]);
        for (negative, positive) in [(false, false), (false, true), (true, false), (true, true)] {
            let case = Case::new("IsInf", "opset10")
                .attribute("detect_negative", &negative.to_string())
                .attribute("detect_positive", &positive.to_string());
            assert_eq!(
                case.run(std::slice::from_ref(&data)).unwrap()[0],
                booleans(&[false, false, positive, negative], [4])
            );
        }
    }
}
