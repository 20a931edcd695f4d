//! # Xor
//! `a XOR b`, element by element, with broadcasting.
//!
//! Specification: `logical/logical-xor-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | boolean | any |
//! | in 1 | b | boolean | broadcastable with `a` |
//! | out 0 | | boolean | broadcast of `a` and `b` |
//!
//! The name that LogicalXor also has in opset1, and nowhere else.

use std::sync::Arc;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::logical::{evaluate_logical, infer_logical};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Xor.
pub static XOR: OpDef = OpDef {
    type_name: "Xor",
    category: Category::Logical,
    versions: &[OpVersion::new(1, (1, 1), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Xor layer.
#[derive(Debug)]
pub struct Xor {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Xor {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_logical(context, &self.attributes)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_logical(context, &self.attributes, |a, b| a ^ b)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Xor { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans};
    use pretty_assertions::assert_eq;

    #[test]
    fn truth_table() {
        let inputs = [booleans(&[false, true], [2, 1]), booleans(&[false, true], [2])];
        let output = Case::new("Xor", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], booleans(&[false, true, true, false], [2, 2]));
    }

    #[test]
    fn only_booleans() {
        let case = Case::new("Xor", "opset1");
        assert_eq!(case.infer_error(&["i32[2]", "boolean[2]"]), "input 0: element type i32 must be boolean");
        assert_eq!(case.infer(&["boolean[8,1,6,1]", "boolean[7,1,5]"]), ["boolean[8,7,6,5]"]);
    }
}
