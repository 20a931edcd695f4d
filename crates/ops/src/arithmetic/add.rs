//! # Add
//! The sum of two tensors, element by element, with broadcasting.
//!
//! Specification: `arithmetic/add-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Integers wrap. Beyond the specification, as in OpenVINO: booleans are added as OR.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary, propagate_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Add.
pub static ADD: OpDef = OpDef {
    type_name: "Add",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// An Add layer.
#[derive(Debug)]
pub struct Add {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Add {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Native, None)?;
        propagate_binary(context, &self.attributes, |a, b| a + b);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let function =
            Binary { float: Some(&|a, b| a + b), integer: Some(&|a, b| Some(a + b)), boolean: Some(&|a, b| a | b) };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Add { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn broadcasts_by_numpys_rule() {
        let case = Case::new("Add", "opset1");
        let sum = case.run(&[tensor(&[1f32, 2.0, 3.0], [3]), tensor(&[10f32, 20.0], [2, 1])]).unwrap();
        assert_eq!(sum[0], tensor(&[11f32, 12.0, 13.0, 21.0, 22.0, 23.0], [2, 3]));
    }

    #[test]
    fn integers_wrap() {
        let sum = Case::new("Add", "opset1").run(&[tensor(&[255u8], [1]), tensor(&[2u8], [1])]).unwrap();
        assert_eq!(sum[0], tensor(&[1u8], [1]));
    }

    #[test]
    fn shapes_and_types_must_fit() {
        let case = Case::new("Add", "opset1");
        assert_eq!(
            case.infer_error(&["f32[2,3]", "f32[4,3]"]),
            "input 1: shape [4,3] cannot be broadcast with shape [2,3] of input 0: dimension 4 at axis 0 meets 2 at axis 0"
        );
        assert_eq!(
            case.infer_error(&["f32[2]", "i64[2]"]),
            "input 1: element type i64 differs from f32 of input 0; they must be equal"
        );
        assert_eq!(case.infer(&["f32[?,3]", "f32[1..4,1]"]), ["f32[?,3]"]);
        assert_eq!(case.infer(&["f32[...]", "f32[1]"]), ["f32[...]"]);
    }
}
