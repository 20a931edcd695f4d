//! # RNNSequence
//! A sequence of steps of a plain recurrent cell.
//!
//! Specification: `sequence/rnn-sequence-5`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | X | f16 bf16 f32 f64 | `[batch, length, input]` |
//! | in 1 | initial_hidden_state | that of `X` | `[batch, directions, hidden]` |
//! | in 2 | sequence_lengths | any integer type | `[batch]` |
//! | in 3 | W | that of `X` | `[directions, 1 * hidden, input]`, order one gate |
//! | in 4 | R | that of `X` | `[directions, 1 * hidden, hidden]` |
//! | in 5 | B | that of `X` | `[directions, 1 * hidden]` |
//! | out 0 | Y | that of `X` | `[batch, directions, length, hidden]` |
//! | out 1 | Ho | that of `X` | `[batch, directions, hidden]` |
//!
//! Steps at or after an element's sequence length are zero in `Y` and leave its states alone; the reverse direction
//! starts at the last step before the length. (OpenVINO's CPU plugin ignores lengths when shapes are dynamic.)
//!
//! Sums and states are f64 between steps, and results are rounded once. Beyond the page the activation `hardsigmoid` is
//! known, with `activations_alpha` and `activations_beta`. A `clip` of 0 means none, as OpenVINO writes it.

use std::sync::Arc;

use crate::common::recurrent::{Cell, CellAttributes, CellKind, Direction};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of RNNSequence.
pub static RNN_SEQUENCE: OpDef = OpDef {
    type_name: "RNNSequence",
    category: Category::Sequence,
    versions: &[OpVersion::new(5, (5, 16), (6, 6), (2, 2))],
    attributes: RnnSequenceAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of RNNSequence.
    pub struct RnnSequenceAttributes {
        /// The order in which the sequence is walked.
        direction: Direction = "direction", required true;
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

/// A RNNSequence layer.
#[derive(Debug)]
pub struct RnnSequence {
    /// The attributes.
    pub attributes: RnnSequenceAttributes,
    /// The mathematics of a step.
    pub cell: Cell,
}

impl Operation for RnnSequence {
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
    let attributes = RnnSequenceAttributes::read(context.attributes);
    let given = CellAttributes {
        hidden_size: attributes.hidden_size,
        activations: &attributes.activations,
        alpha: &attributes.activations_alpha,
        beta: &attributes.activations_beta,
        clip: attributes.clip,
    };
    let kind = CellKind::Rnn;
    let cell = Cell::new(kind, &given, context.attributes);
    Arc::new(RnnSequence { attributes, cell })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(hidden_size: &str) -> Case {
        Case::new("RNNSequence", "opset5")
            .attribute("hidden_size", hidden_size)
            .attribute("direction", "bidirectional")
            .outputs(2)
    }

    #[test]
    fn shapes_follow_the_states() {
        let case = case("128");
        assert_eq!(
            case.infer(&["f32[?,7,16]", "f32[2..4,2,128]", "i64[4]", "f32[2,128,16]", "f32[2,128,128]", "f32[2,128]"]),
            ["f32[4,2,7,128]", "f32[4,2,128]"]
        );
        assert_eq!(
            case.infer_error(&[
                "f32[?,7,16]",
                "f32[4,2,64]",
                "i64[4]",
                "f32[2,128,16]",
                "f32[2,128,128]",
                "f32[2,128]"
            ]),
            "input 1: dimension 64 at axis 2 of shape [4,2,64] must be 128: `hidden_size`"
        );
    }

    #[test]
    fn attributes_are_checked() {
        assert!(case("0").attribute_errors(0)[0].contains("out of range"));
        assert!(case("4").attribute("activations", "relu, wave").attribute_errors(0)[0].contains("`wave`"));
        assert!(case("4").attribute("activations", "tanh, relu").attribute_errors(0)[0].contains("2 activations"));
        assert!(case("4").attribute("activations", "relu, relu").attribute_errors(0).is_empty(), "once a direction");
        assert!(case("4").attribute("clip", "-1").attribute_errors(0)[0].contains("clip"));
    }

    #[test]
    fn steps_beyond_the_length_are_zero() {
        let case = case("1").attribute("activations", "relu");
        let x = tensor(&[1f32, 2.0, 4.0, 1.0, 2.0, 4.0], [2, 3, 1]);
        let hidden = tensor(&[8f32, 16.0, 8.0, 16.0], [2, 2, 1]);
        let ones = tensor(&[1f32, 1.0], [2, 1, 1]);
        let lengths = tensor(&[3i32, 2], [2]);
        let inputs = [x, hidden, lengths, ones.clone(), ones, tensor(&[0f32, 0.0], [2, 1])];
        let outputs = case.run(&inputs).unwrap();
        let all = [9f32, 11.0, 15.0, 23.0, 22.0, 20.0, 9.0, 11.0, 0.0, 19.0, 18.0, 0.0];
        assert_eq!(outputs[0], tensor(&all, [2, 2, 3, 1]));
        assert_eq!(outputs[1], tensor(&[15f32, 23.0, 11.0, 19.0], [2, 2, 1]));
        let mut long = inputs;
        long[2] = tensor(&[3i32, 4], [2]);
        assert_eq!(
            case.run(&long).unwrap_err().to_string(),
            "input 2: sequence length 4 at position 1 is out of range [0, 3]"
        );
    }
}
