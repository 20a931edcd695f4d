//! # RNNCell
//! One step of a plain recurrent cell.
//!
//! Specification: `sequence/rnn-cell-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | X | f16 bf16 f32 f64 | `[batch, input]` |
//! | in 1 | initial_hidden_state | that of `X` | `[batch, hidden]` |
//! | in 2 | W | that of `X` | `[1 * hidden, input]`, order one gate |
//! | in 3 | R | that of `X` | `[1 * hidden, hidden]` |
//! | in 4 | B | that of `X` | `[1 * hidden]` |
//! | out 0 | Ho | that of `X` | `[batch, hidden]` |
//!
//! Sums and states are f64 between steps, and results are rounded once. Beyond the page the activation `hardsigmoid` is
//! known, with `activations_alpha` and `activations_beta`. A `clip` of 0 means none, as OpenVINO writes it.

use std::sync::Arc;

use crate::common::recurrent::{Cell, CellAttributes, CellKind};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of RNNCell.
pub static RNN_CELL: OpDef = OpDef {
    type_name: "RNNCell",
    category: Category::Sequence,
    versions: &[OpVersion::new(1, (1, 16), (5, 5), (1, 1))],
    attributes: RnnCellAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of RNNCell.
    pub struct RnnCellAttributes {
        /// The size of the hidden state.
        hidden_size: i64 = "hidden_size", required true;
        /// The functions of the gates.
        activations: Vec<String> = "activations", default "tanh";
        /// The first parameters of the functions.
        activations_alpha: Vec<f32> = "activations_alpha", default "";
        /// The second parameters of the functions.
        activations_beta: Vec<f32> = "activations_beta", default "";
        /// The bound of what functions of gates take; 0 means none.
        clip: f32 = "clip", default "0";
    }
}

/// A RNNCell layer.
#[derive(Debug)]
pub struct RnnCell {
    /// The attributes.
    pub attributes: RnnCellAttributes,
    /// The mathematics of a step.
    pub cell: Cell,
}

impl Operation for RnnCell {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        self.cell.infer_cell(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        self.cell.evaluate_cell(context)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = RnnCellAttributes::read(context.attributes);
    let given = CellAttributes {
        hidden_size: attributes.hidden_size,
        activations: &attributes.activations,
        alpha: &attributes.activations_alpha,
        beta: &attributes.activations_beta,
        clip: attributes.clip,
    };
    let kind = CellKind::Rnn;
    let cell = Cell::new(kind, &given, context.attributes);
    Arc::new(RnnCell { attributes, cell })
}

#[cfg(test)]
mod tests {
    use crate::testing::Case;
    use pretty_assertions::assert_eq;

    fn case(hidden_size: &str) -> Case {
        Case::new("RNNCell", "opset1").attribute("hidden_size", hidden_size).outputs(1)
    }

    #[test]
    fn shapes_follow_the_states() {
        let case = case("128");
        assert_eq!(
            case.infer(&["f32[?,16]", "f32[2..4,128]", "f32[128,16]", "f32[128,128]", "f32[128]"]),
            ["f32[2..4,128]"]
        );
        assert_eq!(
            case.infer_error(&["f32[?,16]", "f32[4,64]", "f32[128,16]", "f32[128,128]", "f32[128]"]),
            "input 1: dimension 64 at axis 1 of shape [4,64] must be 128: `hidden_size`"
        );
    }

    #[test]
    fn attributes_are_checked() {
        assert!(case("0").attribute_errors(0)[0].contains("out of range"));
        assert!(case("4").attribute("activations", "relu, wave").attribute_errors(0)[0].contains("`wave`"));
        assert!(case("4").attribute("clip", "-1").attribute_errors(0)[0].contains("clip"));
    }
}
