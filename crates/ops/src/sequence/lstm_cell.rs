//! # LSTMCell
//! One step of a long short-term memory.
//!
//! Specification: `sequence/lstm-cell-1`, `sequence/lstm-cell-4`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | X | f16 bf16 f32 f64 | `[batch, input]` |
//! | in 1 | initial_hidden_state | that of `X` | `[batch, hidden]` |
//! | in 2 | initial_cell_state | that of `X` | `[batch, hidden]` |
//! | in 3 | W | that of `X` | `[4 * hidden, input]`, order fico |
//! | in 4 | R | that of `X` | `[4 * hidden, hidden]` |
//! | in 5 | B | that of `X` | `[4 * hidden]` |
//! | out 0 | Ho | that of `X` | `[batch, hidden]` |
//! | out 1 | Co | that of `X` | `[batch, hidden]` |
//!
//! Version 1 also has `weights_format` (the order of the gates, `fico` unless said) and `input_forget` (the input gate
//! is one minus the forget gate); version 4 drops them.
//!
//! Sums and states are f64 between steps, and results are rounded once. Beyond the page the activation `hardsigmoid` is
//! known, with `activations_alpha` and `activations_beta`. A `clip` of 0 means none, as OpenVINO writes it.

use std::sync::Arc;

use crate::common::recurrent::{Cell, CellAttributes, CellKind};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of LSTMCell.
pub static LSTM_CELL: OpDef = OpDef {
    type_name: "LSTMCell",
    category: Category::Sequence,
    versions: &[OpVersion::new(1, (1, 3), (6, 6), (2, 2)), OpVersion::new(4, (4, 16), (6, 6), (2, 2))],
    attributes: LstmCellAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// The order of the gates: forget, input, cell, output.
    pub enum WeightsFormat {
        /// Forget, input, cell, output.
        #[default]
        Fico = "fico",
        /// Input, cell, output, forget.
        Icof = "icof",
        /// Input, forget, cell, output.
        Ifco = "ifco",
        /// Input, forget, output, cell.
        Ifoc = "ifoc",
        /// Input, output, forget, cell.
        Iofc = "iofc",
    }
}

impl WeightsFormat {
    /// Where the gates f, i, c, o stand.
    pub fn order(self) -> [usize; 4] {
        match self {
            WeightsFormat::Fico => [0, 1, 2, 3],
            WeightsFormat::Icof => [3, 0, 1, 2],
            WeightsFormat::Ifco => [1, 0, 2, 3],
            WeightsFormat::Ifoc => [1, 0, 3, 2],
            WeightsFormat::Iofc => [2, 0, 3, 1],
        }
    }
}

crate::attributes! {
    /// Attributes of LSTMCell.
    pub struct LstmCellAttributes {
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
        /// Whether the input gate is one minus the forget gate.
        input_forget: bool = "input_forget", default "false", until 1;
        /// The order of the gates in weights and biases.
        weights_format: WeightsFormat = "weights_format", default "fico", until 1;
    }
}

/// A LSTMCell layer.
#[derive(Debug)]
pub struct LstmCell {
    /// The attributes.
    pub attributes: LstmCellAttributes,
    /// The mathematics of a step.
    pub cell: Cell,
    class_version: u8,
}

impl Operation for LstmCell {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        self.cell.infer_cell(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        self.cell.evaluate_cell(context)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = LstmCellAttributes::read(context.attributes);
    let given = CellAttributes {
        hidden_size: attributes.hidden_size,
        activations: &attributes.activations,
        alpha: &attributes.activations_alpha,
        beta: &attributes.activations_beta,
        clip: attributes.clip,
    };
    let kind = CellKind::Lstm { order: attributes.weights_format.order(), input_forget: attributes.input_forget };
    let cell = Cell::new(kind, &given, context.attributes);
    Arc::new(LstmCell { attributes, cell, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::Case;
    use pretty_assertions::assert_eq;

    fn case(hidden_size: &str) -> Case {
        Case::new("LSTMCell", "opset4").attribute("hidden_size", hidden_size).outputs(2)
    }

    #[test]
    fn shapes_follow_the_states() {
        let case = case("128");
        assert_eq!(
            case.infer(&["f32[?,16]", "f32[2..4,128]", "f32[2..4,128]", "f32[512,16]", "f32[512,128]", "f32[512]"]),
            ["f32[2..4,128]", "f32[2..4,128]"]
        );
        assert_eq!(
            case.infer_error(&["f32[?,16]", "f32[4,64]", "f32[2..4,128]", "f32[512,16]", "f32[512,128]", "f32[512]"]),
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
