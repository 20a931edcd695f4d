//! # Power
//! `a` to the power of `b`, element by element, with broadcasting.
//!
//! Specification: `arithmetic/power-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Integers wrap. A negative exponent of an integer gives the fraction rounded towards zero: 1 and -1 have one, 0 has
//! none (an error), all others give 0.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Power.
pub static POWER: OpDef = OpDef {
    type_name: "Power",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Power layer.
#[derive(Debug)]
pub struct Power {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Power {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Numeric, None)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Binary { float: Some(&f64::powf), integer: Some(&integer_power), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Power { attributes: BroadcastAttributes::read(context.attributes) })
}

/// The power modulo 2^128, which holds every narrower width.
fn integer_power(base: i128, exponent: i128) -> Option<i128> {
    if exponent < 0 {
        return match base {
            0 => None,
            1 => Some(1),
            -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut result, mut square, mut rest) = (1i128, base, exponent);
    while rest > 0 {
        if rest & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        rest >>= 1;
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn floats_follow_ieee() {
        let output = Case::new("Power", "opset1")
            .run(&[
                tensor(&[2.0f32, 0.0, -8.0, 4.0, f32::NAN, 1.0], [6]),
                tensor(&[3.0f32, -1.0, 3.0, 0.5, 0.0, f32::NAN], [6]),
            ])
            .unwrap();
        assert_eq!(output[0], tensor(&[8.0f32, f32::INFINITY, -512.0, 2.0, 1.0, 1.0], [6]));
    }

    #[test]
    fn integers_are_exact_and_wrap() {
        let output = Case::new("Power", "opset1")
            .run(&[tensor(&[2i32, -2, 3, 0, 2, 7, -1], [7]), tensor(&[3i32, 3, 40, 0, 31, -1, -3], [7])])
            .unwrap();
        assert_eq!(output[0], tensor(&[8i32, -8, 689956897, 1, -2147483648, 0, -1], [7]));
    }

    #[test]
    fn zero_has_no_negative_power() {
        let inputs = [tensor(&[2i32, 0], [2]), tensor(&[1i32, -1], [2])];
        let error = Case::new("Power", "opset1").run(&inputs).unwrap_err();
        assert_eq!(error.to_string(), "input 1: element 1 is -1: division by zero has no integer result");
    }

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Power", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        assert!(same.infer_error(&["f32[256,56]", "f32[56]"]).contains("auto_broadcast is none"));
        let numpy = Case::new("Power", "opset1");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
        assert_eq!(numpy.infer(&["f32[?,3]", "f32[...]"]), ["f32[...]"]);
    }
}
