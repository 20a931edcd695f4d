//! # Mod
//! The remainder of truncated division, with the sign of `a`, element by element, with broadcasting.
//!
//! Specification: `arithmetic/mod-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Integer division by zero is an error; with floating-point types it gives NaN.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary, propagate_binary};
use crate::common::value::value_modulo;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Mod.
pub static MOD: OpDef = OpDef {
    type_name: "Mod",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Mod layer.
#[derive(Debug)]
pub struct Mod {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Mod {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Numeric, None)?;
        propagate_binary(context, &self.attributes, value_modulo);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let integer = |a: i128, b: i128| if b == 0 { None } else { Some(a % b) };
        let function = Binary { float: Some(&|a, b| a % b), integer: Some(&integer), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Mod { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_sign_is_that_of_the_dividend() {
        let output = Case::new("Mod", "opset1")
            .run(&[tensor(&[7.5f32, -7.5, 7.5, -7.5], [4]), tensor(&[3.0f32, 3.0, -3.0, -3.0], [4])])
            .unwrap();
        assert_eq!(output[0], tensor(&[1.5f32, -1.5, 1.5, -1.5], [4]));
    }

    #[test]
    fn integers_truncate() {
        let output = Case::new("Mod", "opset1")
            .run(&[tensor(&[7i32, -7, 7, -7], [4]), tensor(&[3i32, 3, -3, -3], [4])])
            .unwrap();
        assert_eq!(output[0], tensor(&[1i32, -1, 1, -1], [4]));
    }

    #[test]
    fn division_by_zero_names_the_position() {
        let inputs = [tensor(&[2i32, 5], [2]), tensor(&[1i32, 0], [2])];
        let error = Case::new("Mod", "opset1").run(&inputs).unwrap_err();
        assert_eq!(error.to_string(), "input 1: element 1 is 0: division by zero has no integer result");
    }

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Mod", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        assert!(same.infer_error(&["f32[256,56]", "f32[56]"]).contains("auto_broadcast is none"));
        let numpy = Case::new("Mod", "opset1");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
        assert_eq!(numpy.infer(&["f32[?,3]", "f32[...]"]), ["f32[...]"]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("Mod", "opset1").assert_monotone(&["i64[3]=7,-7,9", "i64[1]=5"]);
    }
}
