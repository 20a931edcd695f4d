//! # BitwiseRightShift
//! The elements of `a` shifted to the right by `b` bits, with broadcasting.
//!
//! Specification: `bitwise/bitwise-right-shift-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any integer type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! The specification leaves shifts by a negative number or by at least the width undefined. Here every bit is shifted
//! out, as in NumPy: the result is 0, or -1 for negative elements.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of BitwiseRightShift.
pub static BITWISE_RIGHT_SHIFT: OpDef = OpDef {
    type_name: "BitwiseRightShift",
    category: Category::Bitwise,
    versions: &[OpVersion::new(15, (15, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A BitwiseRightShift layer.
#[derive(Debug)]
pub struct BitwiseRightShift {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for BitwiseRightShift {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Integer, None)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Binary { float: None, integer: Some(&shift), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(15)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(BitwiseRightShift { attributes: BroadcastAttributes::read(context.attributes) })
}

/// The widest element has 64 bits, so 127 shifts everything out but the sign.
fn shift(value: i128, bits: i128) -> Option<i128> {
    Some(value >> if (0..64).contains(&bits) { bits } else { 127 })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn integers() {
        let output = Case::new("BitwiseRightShift", "opset15")
            .run(&[tensor(&[1i32, -1, 8, 1, -8], [5]), tensor(&[31i32, 2, 1, 32, 40], [5])])
            .unwrap();
        assert_eq!(output[0], tensor(&[0i32, -1, 4, 0, -1], [5]));
    }

    #[test]
    fn unsigned_integers() {
        let output = Case::new("BitwiseRightShift", "opset15")
            .run(&[tensor(&[200u8, 1, 255], [3]), tensor(&[1u8, 7, 9], [3])])
            .unwrap();
        assert_eq!(output[0], tensor(&[100u8, 0, 0], [3]));
    }

    #[test]
    fn floats_are_refused() {
        let case = Case::new("BitwiseRightShift", "opset15");
        assert!(case.infer_error(&["f32[2]", "f32[2]"]).contains("element type f32 must be an integer type"));
        assert_eq!(case.infer(&["i8[8,1,6,1]", "i8[7,1,5]"]), ["i8[8,7,6,5]"]);
    }
}
