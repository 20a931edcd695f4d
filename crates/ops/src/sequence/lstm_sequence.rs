//! # LSTMSequence
//! A sequence of steps of a long short-term memory.
//!
//! Specification: `sequence/lstm-sequence-5`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | X | f16 bf16 f32 f64 | `[batch, length, input]` |
//! | in 1 | initial_hidden_state | that of `X` | `[batch, directions, hidden]` |
//! | in 2 | initial_cell_state | that of `X` | `[batch, directions, hidden]` |
//! | in 3 | sequence_lengths | any integer type | `[batch]` |
//! | in 4 | W | that of `X` | `[directions, 4 * hidden, input]`, order fico |
//! | in 5 | R | that of `X` | `[directions, 4 * hidden, hidden]` |
//! | in 6 | B | that of `X` | `[directions, 4 * hidden]` |
//! | out 0 | Y | that of `X` | `[batch, directions, length, hidden]` |
//! | out 1 | Ho | that of `X` | `[batch, directions, hidden]` |
//! | out 2 | Co | that of `X` | `[batch, directions, hidden]` |
//!
//! Steps at or after an element's sequence length are zero in `Y` and leave its states alone; the reverse direction
//! starts at the last step before the length. (OpenVINO's CPU plugin ignores lengths when shapes are dynamic.)
//!
//! Sums and states are f64 between steps, and results are rounded once. Beyond the page the activation `hardsigmoid` is
//! known, with `activations_alpha` and `activations_beta`. A `clip` of 0 means none, as OpenVINO writes it.

use std::sync::Arc;

use crate::common::recurrent::{Cell, CellAttributes, CellKind, Direction};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of LSTMSequence.
pub static LSTM_SEQUENCE: OpDef = OpDef {
    type_name: "LSTMSequence",
    category: Category::Sequence,
    versions: &[OpVersion::new(5, (5, 16), (7, 7), (3, 3))],
    attributes: LstmSequenceAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of LSTMSequence.
    pub struct LstmSequenceAttributes {
        /// The order in which the sequence is walked.
        direction: Direction = "direction", required true;
        /// The size of the hidden state.
        hidden_size: i64 = "hidden_size", required true;
        /// The functions of the gates.
        activations: Vec<String> = "activations", default "sigmoid,tanh,tanh";
        /// The first parameters of the functions.
        activations_alpha: Vec<f32> = "activations_alpha", default "";
        /// The second parameters of the functions.
        activations_beta: Vec<f32> = "activations_beta", default "";
        /// The bound of what functions of gates take; 0 means none.
        clip: f32 = "clip", default "0";
    }
}

/// A LSTMSequence layer.
#[derive(Debug)]
pub struct LstmSequence {
    /// The attributes.
    pub attributes: LstmSequenceAttributes,
    /// The mathematics of a step.
    pub cell: Cell,
}

impl Operation for LstmSequence {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        self.cell.infer_sequence(context, self.attributes.direction)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        self.cell.evaluate_sequence(context, self.attributes.direction)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(5)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = LstmSequenceAttributes::read(context.attributes);
    let given = CellAttributes {
        hidden_size: attributes.hidden_size,
        activations: &attributes.activations,
        alpha: &attributes.activations_alpha,
        beta: &attributes.activations_beta,
        clip: attributes.clip,
    };
    let kind = CellKind::LSTM;
    let cell = Cell::new(kind, &given, context.attributes);
    Arc::new(LstmSequence { attributes, cell })
}

#[cfg(test)]
mod tests {
    use crate::testing::Case;
    use pretty_assertions::assert_eq;

    fn case(hidden_size: &str) -> Case {
        Case::new("LSTMSequence", "opset5")
            .attribute("hidden_size", hidden_size)
            .attribute("direction", "bidirectional")
            .outputs(3)
    }

    #[test]
    fn shapes_follow_the_states() {
        let case = case("128");
        assert_eq!(
            case.infer(&[
                "f32[?,7,16]",
                "f32[2..4,2,128]",
                "f32[2..4,2,128]",
                "i64[4]",
                "f32[2,512,16]",
                "f32[2,512,128]",
                "f32[2,512]"
            ]),
            ["f32[4,2,7,128]", "f32[4,2,128]", "f32[4,2,128]"]
        );
        assert_eq!(
            case.infer_error(&[
                "f32[?,7,16]",
                "f32[4,2,64]",
                "f32[2..4,2,128]",
                "i64[4]",
                "f32[2,512,16]",
                "f32[2,512,128]",
                "f32[2,512]"
            ]),
            "input 1: dimension 64 at axis 2 of shape [4,2,64] must be 128: `hidden_size`"
        );
    }

    #[test]
    fn attributes_are_checked() {
        assert!(case("0").attribute_errors(0)[0].contains("out of range"));
        assert!(case("4").attribute("activations", "relu, wave").attribute_errors(0)[0].contains("`wave`"));
        assert!(case("4").attribute("clip", "-1").attribute_errors(0)[0].contains("clip"));
    }
}
