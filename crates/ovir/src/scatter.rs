//! Scatter as OpenVINO, ONNX and PyTorch define it, without a model.
//!
//! Each module obeys the rules of its own system: [`torch`](mod@torch) refuses a negative index where [`openvino`] and
//! [`onnx`] count it from the end. All of them run the kernels that models run. Functions take [`Tensor`]s and ndarray
//! arrays or views of any memory layout alike; those of `openvino` and `onnx` give a new tensor, those of `torch` change
//! their first argument. A call uses several threads only where it runs inside a rayon pool.
//!
//! Where the systems leave something open, or disagree with themselves, these hold for all three:
//!
//! * Where several updates go to one place and nothing reduces them, the last one in row-major order of the updates stays.
//! * Integers wrap, and their mean is rounded down after the sum has wrapped. Halves are accumulated in f32 and rounded
//!   once. NaN propagates through minimum and maximum. On booleans sum and maximum are OR, product and minimum AND,
//!   subtraction XOR.
//! * A place without updates keeps its value, whether or not values take part in the reduction.
//! * An error changes nothing.

pub mod onnx;
pub mod openvino;
mod operand;
pub mod torch;

use std::sync::Arc;

use ovir_ops::{Blame, OpError, Operation};
use ovir_tensor::{ElementType, Shape, Tensor, TensorView, TensorViewMut};

pub use self::operand::{Held, Operand, OperandMut, Scalar};

/// An argument that violates a rule, by the name that the function gives it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{function}: {argument}: {message}")]
pub struct ScatterError {
    /// The function.
    pub function: &'static str,
    /// The argument.
    pub argument: &'static str,
    /// What is wrong with it: the offending value, its position and what is allowed.
    pub message: String,
}

/// A function and the names of its arguments, in the order of the operation's inputs.
struct Function {
    name: &'static str,
    arguments: &'static [&'static str],
}

impl Function {
    fn error(&self, argument: &'static str, message: impl Into<String>) -> ScatterError {
        ScatterError { function: self.name, argument, message: message.into() }
    }

    /// An operation's error in the names of the function.
    fn translate(&self, error: &OpError) -> ScatterError {
        let argument = match error.blame() {
            Blame::Input(port) => self.arguments.get(*port).copied(),
            Blame::Attribute(name) => self.arguments.iter().copied().find(|argument| *argument == &**name),
            _ => None,
        };
        self.error(argument.unwrap_or("arguments"), error.message())
    }

    /// The result in a new tensor.
    fn copied(&self, operation: &Arc<dyn Operation>, inputs: &[TensorView<'_>]) -> Result<Tensor, ScatterError> {
        let out_of_memory = |error: ovir_tensor::TensorError| self.error("arguments", error.to_string());
        let mut output = Tensor::zeros(inputs[0].element_type(), inputs[0].shape().clone()).map_err(out_of_memory)?;
        let mut view = output.view_mut().map_err(out_of_memory)?;
        ovir_runtime::run_scatter(operation, inputs, &mut view, None).map_err(|error| self.translate(&error))?;
        Ok(output)
    }

    /// The result in the place of the data, which are seen under `shape`.
    fn in_place(
        &self,
        operation: &Arc<dyn Operation>,
        target: TensorViewMut<'_>,
        shape: &Shape,
        inputs: &[TensorView<'_>],
        port: usize,
    ) -> Result<(), ScatterError> {
        let element_type = target.element_type();
        let mut output = TensorViewMut::of_bytes(element_type, shape, target.into_bytes());
        ovir_runtime::run_scatter(operation, inputs, &mut output, Some(port)).map_err(|error| self.translate(&error))
    }
}

/// An axis or another single integer as an input.
fn integer(value: i64) -> Result<Tensor, ScatterError> {
    integers(&[value], Shape::default())
}

/// Integers as an input.
fn integers(values: &[i64], shape: Shape) -> Result<Tensor, ScatterError> {
    Tensor::from_slice(values, shape).map_err(|error| ScatterError {
        function: "scatter",
        argument: "arguments",
        message: error.to_string(),
    })
}

/// Data of an element type and shape that lie in the output.
fn without_bytes(element_type: ElementType, shape: &Shape) -> TensorView<'_> {
    TensorView::of_bytes(element_type, shape, &[])
}
