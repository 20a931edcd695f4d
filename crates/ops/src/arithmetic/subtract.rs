//! # Subtract
//! The difference of two tensors, element by element, with broadcasting.
//!
//! Specification: `arithmetic/subtract-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Integers wrap.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary, propagate_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Subtract.
pub static SUBTRACT: OpDef = OpDef {
    type_name: "Subtract",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Subtract layer.
#[derive(Debug)]
pub struct Subtract {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Subtract {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Numeric, None)?;
        propagate_binary(context, &self.attributes, |a, b| a - b);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Binary { float: Some(&|a, b| a - b), integer: Some(&|a, b| Some(a - b)), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Subtract { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn floats_subtract() {
        let output =
            Case::new("Subtract", "opset1").run(&[tensor(&[1.0f32, 2.5], [2]), tensor(&[3.0f32, 0.5], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[-2.0f32, 2.0], [2]));
    }

    #[test]
    fn integers_wrap() {
        let output = Case::new("Subtract", "opset1").run(&[tensor(&[1u8, 200], [2]), tensor(&[3u8, 10], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[254u8, 190], [2]));
    }

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Subtract", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        assert!(same.infer_error(&["f32[256,56]", "f32[56]"]).contains("auto_broadcast is none"));
        let numpy = Case::new("Subtract", "opset1");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
        assert_eq!(numpy.infer(&["f32[?,3]", "f32[...]"]), ["f32[...]"]);
    }

    #[test]
    fn bounds_follow() {
        let case = Case::new("Subtract", "opset1");
        assert_eq!(case.infer(&["i64[2]=5..9,3", "i64[]=2"]), ["i64[2]=3..7,1"]);
    }
}
