//! # Multiply
//! The product of two tensors, element by element, with broadcasting.
//!
//! Specification: `arithmetic/multiply-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type, boolean | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Integers wrap. Beyond the specification: booleans are multiplied as AND.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary, propagate_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Multiply.
pub static MULTIPLY: OpDef = OpDef {
    type_name: "Multiply",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Multiply layer.
#[derive(Debug)]
pub struct Multiply {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Multiply {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Native, None)?;
        propagate_binary(context, &self.attributes, |a, b| a * b);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Binary {
            float: Some(&|a, b| a * b),
            integer: Some(&|a, b| Some(a.wrapping_mul(b))),
            boolean: Some(&|a, b| a & b),
        };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Multiply { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn floats_multiply() {
        let output =
            Case::new("Multiply", "opset1").run(&[tensor(&[1.0f32, 2.5], [2]), tensor(&[3.0f32, 0.5], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[3.0f32, 1.25], [2]));
    }

    #[test]
    fn integers_wrap() {
        let output = Case::new("Multiply", "opset1")
            .run(&[tensor(&[18446744073709551615u64, 3], [2]), tensor(&[18446744073709551615u64, 5], [2])])
            .unwrap();
        assert_eq!(output[0], tensor(&[1u64, 15], [2]));
    }

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Multiply", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        assert!(same.infer_error(&["f32[256,56]", "f32[56]"]).contains("auto_broadcast is none"));
        let numpy = Case::new("Multiply", "opset1");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
        assert_eq!(numpy.infer(&["f32[?,3]", "f32[...]"]), ["f32[...]"]);
    }

    #[test]
    fn bounds_follow() {
        let case = Case::new("Multiply", "opset1");
        assert_eq!(case.infer(&["i64[2]=5..9,3", "i64[]=2"]), ["i64[2]=10..18,6"]);
    }
}
