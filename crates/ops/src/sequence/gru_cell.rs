//! # GRUCell
//! One step of a gated recurrent unit.
//!
//! Specification: `sequence/gru-cell-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | X | f16 bf16 f32 f64 | `[batch, input]` |
//! | in 1 | initial_hidden_state | that of `X` | `[batch, hidden]` |
//! | in 2 | W | that of `X` | `[3 * hidden, input]`, order zrh |
//! | in 3 | R | that of `X` | `[3 * hidden, hidden]` |
//! | in 4 | B | that of `X` | `[3 or 4 * hidden]` |
//! | out 0 | Ho | that of `X` | `[batch, hidden]` |
//!
//! With `linear_before_reset` the reset gate is applied after the recurrence weights, and the biases have a fourth part:
//! those of the recurrence of the gate h.
//!
//! Sums and states are f64 between steps, and results are rounded once. Beyond the page the activation `hardsigmoid` is
//! known, with `activations_alpha` and `activations_beta`. A `clip` of 0 means none, as OpenVINO writes it.

use std::sync::Arc;

use crate::common::recurrent::{Cell, CellAttributes, CellKind};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of GRUCell.
pub static GRU_CELL: OpDef = OpDef {
    type_name: "GRUCell",
    category: Category::Sequence,
    versions: &[OpVersion::new(3, (3, 16), (5, 5), (1, 1))],
    attributes: GruCellAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of GRUCell.
    pub struct GruCellAttributes {
        /// The size of the hidden state.
        hidden_size: i64 = "hidden_size", required true;
        /// The functions of the gates.
        activations: Vec<String> = "activations", default "sigmoid,tanh";
        /// The first parameters of the functions.
        activations_alpha: Vec<f32> = "activations_alpha", default "";
        /// The second parameters of the functions.
        activations_beta: Vec<f32> = "activations_beta", default "";
        /// The bound of what functions of gates take; 0 means none.
        clip: f32 = "clip", default "0";
        /// Whether the reset gate is applied after the recurrence weights.
        linear_before_reset: bool = "linear_before_reset", default "false";
    }
}

/// A GRUCell layer.
#[derive(Debug)]
pub struct GruCell {
    /// The attributes.
    pub attributes: GruCellAttributes,
    /// The mathematics of a step.
    pub cell: Cell,
}

impl Operation for GruCell {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        self.cell.infer_cell(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        self.cell.evaluate_cell(context)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GruCellAttributes::read(context.attributes);
    let given = CellAttributes {
        hidden_size: attributes.hidden_size,
        activations: &attributes.activations,
        alpha: &attributes.activations_alpha,
        beta: &attributes.activations_beta,
        clip: attributes.clip,
    };
    let kind = CellKind::Gru { linear_before_reset: attributes.linear_before_reset };
    let cell = Cell::new(kind, &given, context.attributes);
    Arc::new(GruCell { attributes, cell })
}

#[cfg(test)]
mod tests {
    use crate::testing::Case;
    use pretty_assertions::assert_eq;

    fn case(hidden_size: &str) -> Case {
        Case::new("GRUCell", "opset3").attribute("hidden_size", hidden_size).outputs(1)
    }

    #[test]
    fn shapes_follow_the_states() {
        let case = case("128");
        assert_eq!(
            case.infer(&["f32[?,16]", "f32[2..4,128]", "f32[384,16]", "f32[384,128]", "f32[384]"]),
            ["f32[2..4,128]"]
        );
        assert_eq!(
            case.infer_error(&["f32[?,16]", "f32[4,64]", "f32[384,16]", "f32[384,128]", "f32[384]"]),
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
