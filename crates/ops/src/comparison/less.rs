//! # Less
//! Whether `a` is less than `b`, element by element, with broadcasting.
//!
//! Specification: `comparison/less-1`.
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

/// The definition of Less.
pub static LESS: OpDef = OpDef {
    type_name: "Less",
    category: Category::Comparison,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Less layer.
#[derive(Debug)]
pub struct Less {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Less {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_comparison(context, &self.attributes, value_less)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Comparison { float: |a, b| a < b, integer: |a, b| a < b };
        evaluate_comparison(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Less { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Less", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["boolean[256,56]"]);
        let numpy = Case::new("Less", "opset1");
        assert_eq!(numpy.infer(&["i32[8,1,6,1]", "i32[7,1,5]"]), ["boolean[8,7,6,5]"]);
    }

    #[test]
    fn elements_are_compared() {
        let case = Case::new("Less", "opset1");
        let floats = case.run(&[tensor(&[1f32, 2.0, 3.0], [3]), tensor(&[2f32], [])]).unwrap();
        assert_eq!(floats[0], booleans(&[true, false, false], [3]));
        let large = 9_007_199_254_740_993i64;
        let integers = case.run(&[tensor(&[large - 1, large, large + 1], [3]), tensor(&[large], [1])]).unwrap();
        assert_eq!(integers[0], booleans(&[true, false, false], [3]));
    }

    #[test]
    fn nan_is_not_ordered() {
        let inputs = [tensor(&[f32::NAN, 1.0, f32::NAN], [3]), tensor(&[1f32, f32::NAN, f32::NAN], [3])];
        let output = Case::new("Less", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], booleans(&[false, false, false], [3]));
    }

    #[test]
    fn strings_are_ordered_by_their_bytes() {
        let strings = |values: &[&str], shape: &[usize]| {
            Tensor::from_strings(values.iter().map(|v| (*v).to_owned()).collect(), shape).unwrap()
        };
        let (a, b) = (strings(&["", "ab", "b", "\u{e9}"], &[2, 2]), strings(&["b", "ab"], &[2]));
        let run = |name: &str| Case::new(name, "opset1").run(&[a.clone(), b.clone()]).unwrap().remove(0);
        assert_eq!(run("Less"), booleans(&[true, false, false, false], [2, 2]));
        assert_eq!(run("Equal"), booleans(&[false, true, true, false], [2, 2]));
        assert_eq!(run("GreaterEqual"), booleans(&[false, true, true, true], [2, 2]));
        let error = Case::new("Less", "opset1").infer_error(&["string[2]", "i32[2]"]);
        assert!(error.contains("string") && error.contains("i32"), "{error}");
    }

    #[test]
    fn bounds_decide_what_they_can() {
        let case = Case::new("Less", "opset1");
        assert_eq!(case.infer(&["i64[2]=5..9,3", "i64[]=4"]), ["boolean[2]=0,1"]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("Less", "opset1").assert_monotone(&["i64[3]=7,-7,9", "i64[1]=5"]);
        Case::new("Less", "opset1").assert_monotone(&["f32[8,1]", "f32[7]"]);
    }
}
