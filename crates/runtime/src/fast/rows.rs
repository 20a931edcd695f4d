//! What stands between layers on blocks and layers on rows of channels (`[N, positions, C]`, `[N, H, W, C]`,
//! `[N, D, H, W, C]`): Transposes that write or read blocks, and reshapes that keep them.

use ovir_graph::Node;
use ovir_kernels::blocked::{from_rows, to_rows};
use ovir_ops::movement::transpose::Transpose;
use ovir_ops::{OpResult, ValueFacts};
use ovir_tensor::{ElementType, SmallVec};

use crate::layout::{Layout, nominal_elements, sizes};

use super::blocked::{Candidate, channels, misfit, moved_nanoseconds};
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Nanoseconds that an element gains where its row goes into a block without being a plane first. It has to be less
/// than a reorder takes, or Transposes would write blocks for nobody.
const GAIN: f64 = 0.05;

/// Whether a layer can read or write blocks; `is_blocked` tells that its first input is on blocks.
pub(crate) fn candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_blocked: bool,
) -> Option<Candidate> {
    let (data, output) = (*inputs.first()?, outputs.first()?);
    if node.operation.is_reshape() {
        let keeps_channels = channels(data)? == channels(output)?;
        let keeps_batch = data.shape.dim(0).is_same(output.shape.dim(0));
        return (keeps_channels && keeps_batch).then(|| Candidate::of_first(inputs.len()).for_readers());
    }
    node.operation.downcast_ref::<Transpose>()?;
    let order = inputs.get(1)?.integers()?;
    match is_blocked {
        true => {
            channels(data).filter(|_| is_to_rows(&order))?;
            Some(Candidate { output: Layout::Plain, ..Candidate::of_first(inputs.len()) })
        }
        false => {
            channels(output).filter(|_| is_from_rows(&order) && data.element_type == ElementType::F32)?;
            let gain = nominal_elements(&output.shape) * GAIN;
            let plain = SmallVec::from_elem(Layout::Plain, inputs.len());
            Some(Candidate { inputs: plain, gain, ..Candidate::of_first(inputs.len()) }.for_readers())
        }
    }
}

/// Whether an order of axes puts the channels, which are axis 1, last.
fn is_to_rows(order: &[i64]) -> bool {
    matches!(order, [0, 2, 1] | [0, 2, 3, 1] | [0, 2, 3, 4, 1])
}

/// Whether an order of axes puts the last axis where channels are.
fn is_from_rows(order: &[i64]) -> bool {
    matches!(order, [0, 2, 1] | [0, 3, 1, 2] | [0, 4, 1, 2, 3])
}

/// A Transpose of rows into blocks, or of blocks into rows.
struct RowsKernel {
    to: Layout,
}

/// Claims a Transpose that reads or writes blocks.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    context.node.operation.downcast_ref::<Transpose>()?;
    let kernel = Box::new(RowsKernel { to: context.output_layout });
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

impl Kernel for RowsKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        moved_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let blocked = if self.to == Layout::Blocked { output.shape() } else { data.shape() };
        let [batch, channels, positions] = sizes(blocked).ok_or_else(misfit)?;
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        match self.to {
            Layout::Blocked => from_rows(batch, channels, positions, values, target),
            Layout::Plain => to_rows(batch, channels, positions, values, target),
        }
        .map_err(kernel_error)
    }
}
