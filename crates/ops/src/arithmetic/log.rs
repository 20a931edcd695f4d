//! # Log
//! The natural logarithm, element by element; NaN for negative numbers.
//!
//! Specification: `arithmetic/log-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Results on integers are rounded towards zero, as OpenVINO's reference does; what does not fit saturates.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::infer_unary;
use crate::common::unary::{Rounding, evaluate_rounded};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Log.
pub static LOG: OpDef = OpDef {
    type_name: "Log",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A Log layer.
#[derive(Debug)]
pub struct Log;

impl Operation for Log {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_rounded(context, &|x| x.ln(), Rounding::TowardsZero)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Log)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn values_are_rounded_once() {
        let output = Case::new("Log", "opset1").run(&[tensor(&[1.0f32, 9.0, 0.25, 0.0], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[0.0f32, 2.1972246, -1.3862944, f32::NEG_INFINITY], [4]));
    }

    #[test]
    fn integers_stay_integers() {
        let output = Case::new("Log", "opset1").run(&[tensor(&[1i32, 2, 50], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[0i32, 0, 3], [3]));
    }

    #[test]
    fn shape_and_type_pass_through() {
        let case = Case::new("Log", "opset1");
        assert_eq!(case.infer(&["f16[?,2..5,3]"]), ["f16[?,2..5,3]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["f32[...]"]);
        assert!(case.infer_error(&["boolean[2]"]).contains("element type boolean must be"));
    }
}
