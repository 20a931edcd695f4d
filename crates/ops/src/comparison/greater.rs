//! # Greater
//! Whether `a` is greater than `b`, element by element, with broadcasting.
//!
//! Specification: `comparison/greater-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type, boolean, string | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | boolean | broadcast of `a` and `b` |
//!
//! A comparison with NaN is false. i64 and u64 are compared in their own width.

use std::sync::Arc;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::comparison::infer_comparison;
use crate::common::elementwise::{Comparison, evaluate_comparison};
use crate::common::value::value_less;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Greater.
pub static GREATER: OpDef = OpDef {
    type_name: "Greater",
    category: Category::Comparison,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Greater layer.
#[derive(Debug)]
pub struct Greater {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Greater {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_comparison(context, &self.attributes, |a, b| value_less(b, a))
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Comparison { float: |a, b| a > b, integer: |a, b| a > b };
        evaluate_comparison(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Greater { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Greater", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["boolean[256,56]"]);
        let numpy = Case::new("Greater", "opset1");
        assert_eq!(numpy.infer(&["i32[8,1,6,1]", "i32[7,1,5]"]), ["boolean[8,7,6,5]"]);
    }

    #[test]
    fn elements_are_compared() {
        let case = Case::new("Greater", "opset1");
        let floats = case.run(&[tensor(&[1f32, 2.0, 3.0], [3]), tensor(&[2f32], [])]).unwrap();
        assert_eq!(floats[0], booleans(&[false, false, true], [3]));
        let large = 9_007_199_254_740_993i64;
        let integers = case.run(&[tensor(&[large - 1, large, large + 1], [3]), tensor(&[large], [1])]).unwrap();
        assert_eq!(integers[0], booleans(&[false, false, true], [3]));
    }

    #[test]
    fn nan_is_not_ordered() {
        let inputs = [tensor(&[f32::NAN, 1.0, f32::NAN], [3]), tensor(&[1f32, f32::NAN, f32::NAN], [3])];
        let output = Case::new("Greater", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], booleans(&[false, false, false], [3]));
    }

    #[test]
    fn bounds_decide_what_they_can() {
        let case = Case::new("Greater", "opset1");
        assert_eq!(case.infer(&["i64[2]=5..9,3", "i64[]=4"]), ["boolean[2]=1,0"]);
    }
}
