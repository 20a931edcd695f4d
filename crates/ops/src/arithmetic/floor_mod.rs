//! # FloorMod
//! The remainder of division rounded down, with the sign of `b`, element by element, with broadcasting.
//!
//! Specification: `arithmetic/floormod-1`.
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
use crate::common::value::value_floor_modulo;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of FloorMod.
pub static FLOOR_MOD: OpDef = OpDef {
    type_name: "FloorMod",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A FloorMod layer.
#[derive(Debug)]
pub struct FloorMod {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for FloorMod {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Numeric, None)?;
        propagate_binary(context, &self.attributes, value_floor_modulo);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let integer = |a: i128, b: i128| if b == 0 { None } else { Some((a % b + b) % b) };
        let function = Binary { float: Some(&floor_modulo), integer: Some(&integer), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(FloorMod { attributes: BroadcastAttributes::read(context.attributes) })
}

fn floor_modulo(a: f64, b: f64) -> f64 {
    let remainder = a % b;
    if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) {
        return remainder + b;
    }
    if remainder == 0.0 { remainder.abs().copysign(b) } else { remainder }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_sign_is_that_of_the_divisor() {
        let output = Case::new("FloorMod", "opset1")
            .run(&[tensor(&[7.5f32, -7.5, 7.5, -7.5, -6.0], [5]), tensor(&[3.0f32, 3.0, -3.0, -3.0, 3.0], [5])])
            .unwrap();
        assert_eq!(output[0], tensor(&[1.5f32, 1.5, -1.5, -1.5, 0.0], [5]));
    }

    #[test]
    fn integers_round_down() {
        let output = Case::new("FloorMod", "opset1")
            .run(&[tensor(&[7i32, -7, 7, -7], [4]), tensor(&[3i32, 3, -3, -3], [4])])
            .unwrap();
        assert_eq!(output[0], tensor(&[1i32, 2, -2, -1], [4]));
    }

    #[test]
    fn division_by_zero_names_the_position() {
        let inputs = [tensor(&[2i32, 5], [2]), tensor(&[1i32, 0], [2])];
        let error = Case::new("FloorMod", "opset1").run(&inputs).unwrap_err();
        assert_eq!(error.to_string(), "input 1: element 1 is 0: division by zero has no integer result");
    }

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("FloorMod", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        assert!(same.infer_error(&["f32[256,56]", "f32[56]"]).contains("auto_broadcast is none"));
        let numpy = Case::new("FloorMod", "opset1");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
        assert_eq!(numpy.infer(&["f32[?,3]", "f32[...]"]), ["f32[...]"]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("FloorMod", "opset1").assert_monotone(&["i64[3]=7,-7,9", "i64[1]=5"]);
    }
}
