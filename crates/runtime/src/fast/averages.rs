//! Averages of codes on blocks: the codes of windows, or of all positions, are summed.

use ovir_graph::Node;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::pooling::{PoolingGeometry, PoolingKind};
use ovir_kernels::quantized::{Dequantizer, Encodings, MOST_AVERAGED, QuantizedOutput, blocked_average_codes};
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::fused::Fused;
use ovir_ops::reduction::reduce_mean::ReduceMean;
use ovir_ops::{OpResult, Operation, ValueFacts};
use ovir_tensor::{Shape, SmallVec};
use std::sync::Arc;

use super::blocked::{Candidate, channels_of, misfit};
use super::parts::kernel_error;
use super::pooling::{average_kind, geometry};
use super::quantized::{GAIN, dequantizer_of, encodings_of};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};
use crate::layout::sizes;

// The pass that fuses these layers must not fuse more than the kernels sum.
const _: () = assert!(ovir_optimize::MOST_AVERAGED == MOST_AVERAGED);

/// A layer taken apart: what the codes of the data stand for, the average, and how it becomes codes, if it does.
fn parts(node: &Node) -> Option<(&Levels, &Arc<dyn Operation>, Option<&Levels>)> {
    let stages = &node.operation.downcast_ref::<Fused>()?.stages;
    let (decode, average, levels) = match &stages[..] {
        [decode, average] => (decode, average, None),
        [decode, average, encode] => (decode, average, Some(&encode.operation.downcast_ref::<Encode>()?.levels)),
        _ => return None,
    };
    let operation = &average.operation;
    let is_average = average_kind(&**operation).is_some() || operation.downcast_ref::<ReduceMean>().is_some();
    let from = decode.operation.downcast_ref::<Decode>().filter(|_| is_average)?;
    Some((&from.levels, operation, levels))
}

/// Whether a layer is one of those, which run on blocks alone.
pub(super) fn candidate(node: &Node, inputs: &[&ValueFacts], outputs: &[ValueFacts]) -> Option<Candidate> {
    parts(node)?;
    channels_of(&outputs.first()?.shape)?;
    Some(Candidate { gain: GAIN, ..Candidate::of_first(inputs.len()) })
}

/// Claims averages of codes.
pub(super) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (from, operation, to) = parts(context.node)?;
    let to = match to {
        Some(levels) => Some(encodings_of(levels)?),
        None => None,
    };
    let kernel =
        AverageKernel { isa: isa::detect(), from: dequantizer_of(from)?, operation: Arc::clone(operation), to };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

struct AverageKernel {
    isa: Isa,
    from: Dequantizer,
    /// An AvgPool, or a ReduceMean of all positions.
    operation: Arc<dyn Operation>,
    to: Option<Encodings>,
}

impl AverageKernel {
    /// What is counted, and the windows of data of a shape.
    fn windows(&self, data: &Shape) -> Option<(PoolingKind, PoolingGeometry)> {
        if let Some(kind) = average_kind(&*self.operation) {
            let geometry = geometry(&*self.operation, data)?;
            return geometry.has_values().then_some((kind, geometry));
        }
        let [batch, channels, positions] = sizes(data)?;
        let geometry = PoolingGeometry::of_planes(batch.checked_mul(channels)?, [1, 1, positions]);
        (positions > 0).then_some((PoolingKind::Average, geometry))
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<PoolingGeometry> {
        let (_, geometry) = self.windows(shapes.inputs.first()?)?;
        let elements = geometry.output.iter().product::<usize>().checked_mul(geometry.planes)?;
        (geometry.taps() <= MOST_AVERAGED && shapes.outputs.first()?.elements() == elements).then_some(geometry)
    }
}

impl Kernel for AverageKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.of_shapes(shapes).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let Some(geometry) = self.of_shapes(shapes) else { return 0 };
        let elements = shapes.outputs.first().map_or(0, |output| output.elements()) as u64;
        elements.saturating_mul(geometry.taps()) / 128
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = io.inputs.first().ok_or_else(misfit)?;
        let (kind, geometry) = self.windows(data.shape()).ok_or_else(misfit)?;
        let [_, channels, _] = sizes(data.shape()).ok_or_else(misfit)?;
        let target = match &self.to {
            Some(encodings) => QuantizedOutput::Codes(output.slice_mut::<u8>()?, encodings),
            None => QuantizedOutput::Values(output.slice_mut::<f32>()?),
        };
        blocked_average_codes(self.isa, kind, channels, &geometry, &self.from, data.slice::<u8>()?, target)
            .map_err(kernel_error)
    }
}
