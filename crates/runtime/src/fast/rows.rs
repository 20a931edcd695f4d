//! What stands between layers on blocks and layers on rows of channels (`[N, positions, C]`, `[N, H, W, C]`,
//! `[N, D, H, W, C]`): Transposes that write or read blocks, and reshapes that keep them.

use ovir_graph::Node;
use ovir_kernels::blocked::{from_rows, to_rows};
use ovir_ops::movement::transpose::Transpose;
use ovir_ops::{OpResult, ValueFacts};
use ovir_tensor::{ElementType, SmallVec};

use crate::layout::{Layout, nominal_elements, sizes};

use super::blocked::{Candidate, channels, is_movable, misfit, moved_nanoseconds};
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
            (is_movable(data) && is_to_rows(&order)).then_some(())?;
            Some(Candidate { output: Layout::Plain, ..Candidate::of_first(inputs.len()) })
        }
        false => {
            (is_movable(output) && is_from_rows(&order)).then_some(())?;
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

impl RowsKernel {
    fn copy<T: Copy + Default + Send + Sync>(
        &self,
        [batch, channels, positions]: [usize; 3],
        values: &[T],
        target: &mut [T],
    ) -> OpResult {
        match self.to {
            Layout::Blocked => from_rows(batch, channels, positions, values, target),
            Layout::Plain => to_rows(batch, channels, positions, values, target),
        }
        .map_err(kernel_error)
    }
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
        match data.element_type() {
            ElementType::U8 => self.copy::<u8>([batch, channels, positions], data.slice()?, output.slice_mut()?),
            _ => self.copy::<f32>([batch, channels, positions], data.slice()?, output.slice_mut()?),
        }
    }
}
