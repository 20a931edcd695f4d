//! # BitwiseXor
//! The bitwise exclusive OR of two tensors, element by element, with broadcasting.
//!
//! Specification: `bitwise/bitwise-xor-13`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any integer type, boolean | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Floating-point types are refused.

use std::sync::Arc;

use crate::common::bitwise::infer_bitwise;
use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of BitwiseXor.
pub static BITWISE_XOR: OpDef = OpDef {
    type_name: "BitwiseXor",
    category: Category::Bitwise,
    versions: &[OpVersion::new(13, (13, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A BitwiseXor layer.
#[derive(Debug)]
pub struct BitwiseXor {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for BitwiseXor {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_bitwise(context, &self.attributes)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function = Binary { float: None, integer: Some(&|a, b| Some(a ^ b)), boolean: Some(&|a, b| a ^ b) };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(13)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(BitwiseXor { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn integers() {
        let output =
            Case::new("BitwiseXor", "opset13").run(&[tensor(&[12i32, -1], [2]), tensor(&[10i32, 7], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[6i32, -8], [2]));
    }

    #[test]
    fn booleans_are_one_bit() {
        let inputs = [booleans(&[false, false, true, true], [4]), booleans(&[false, true, false, true], [4])];
        let output = Case::new("BitwiseXor", "opset13").run(&inputs).unwrap();
        assert_eq!(output[0], booleans(&[false, true, true, false], [4]));
    }

    #[test]
    fn floats_are_refused() {
        let case = Case::new("BitwiseXor", "opset13");
        assert!(
            case.infer_error(&["f32[2]", "f32[2]"]).contains("element type f32 must be an integer type or boolean")
        );
        assert_eq!(case.infer(&["i8[8,1,6,1]", "i8[7,1,5]"]), ["i8[8,7,6,5]"]);
    }
}
