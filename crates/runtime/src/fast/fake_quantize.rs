//! FakeQuantize with constant limits, f32: of the whole tensor or of each channel, plain and on blocks.

use ovir_graph::Node;
use ovir_kernels::blocked::{ChannelLevels, blocked_fake_quantize};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::parallel_chunks_mut;
use ovir_kernels::unary::{UnaryOp, unary_f32, unary_f32_in_place};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, SmallVec};

use crate::layout::sizes;

use super::parts::{floats, kernel_error};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Limits that differ along one axis at most.
struct FakeQuantizeKernel {
    isa: Isa,
    /// The function of each channel.
    channels: Vec<UnaryOp>,
    /// The axis of the channels, counted from the last.
    axis_from_last: usize,
    /// The largest rank of a limit.
    rank: usize,
}

/// The function that a FakeQuantize with these limits is.
pub(crate) fn function(operation: &dyn Operation, limits: &[f32]) -> Option<UnaryOp> {
    let operation = operation.downcast_ref::<FakeQuantize>()?;
    let [input_low, input_high, output_low, output_high] = *limits else { return None };
    let steps = operation.levels.checked_sub(1)? as f32;
    let is_numpy = operation.broadcast.auto_broadcast == AutoBroadcast::Numpy;
    is_numpy.then_some(UnaryOp::FakeQuantize { input_low, input_high, output_low, output_high, steps })
}

/// The channels of limits that differ along axis 1 alone, for data of a rank.
fn channels_of_limits(inputs: &[&ValueFacts], rank: usize) -> Option<usize> {
    let mut channels = 1;
    for facts in inputs.iter().skip(1) {
        let shape = facts.shape.to_shape()?;
        let axis = (shape.rank() + 1).checked_sub(rank).filter(|_| shape.rank() <= rank);
        let count = axis.and_then(|axis| shape.get(axis).copied()).unwrap_or(1);
        (shape.elements() == count && (count == 1 || channels == 1 || count == channels)).then_some(())?;
        channels = channels.max(count);
    }
    Some(channels)
}

/// Whether a layer can run on blocks: limits of the whole tensor or of each channel.
pub(crate) fn runs_on_blocks(node: &Node, inputs: &[&ValueFacts]) -> bool {
    let Some(operation) = node.operation.downcast_ref::<FakeQuantize>() else { return false };
    let dims = inputs.first().and_then(|data| data.shape.dims());
    let size = dims.and_then(|dims| Some((dims.len(), dims.get(1)?.get()?)));
    operation.broadcast.auto_broadcast == AutoBroadcast::Numpy
        && size.is_some_and(|(rank, channels)| {
            channels_of_limits(inputs, rank).is_some_and(|count| count == 1 || count == channels)
        })
}

/// Limits of each channel, on blocks.
struct BlockedFakeQuantizeKernel {
    isa: Isa,
    levels: ChannelLevels,
}

/// Claims layers on blocks.
pub(crate) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    runs_on_blocks(context.node, context.inputs).then_some(())?;
    let rank = context.inputs.first()?.shape.rank()?;
    let count = channels_of_limits(context.inputs, rank)?;
    if count == 1 {
        return claim(context);
    }
    let mut limits: [Vec<f32>; 4] = Default::default();
    for (port, limit) in limits.iter_mut().enumerate() {
        let values = floats(&(context.constant)(port + 1)?)?;
        *limit = if values.len() == 1 { vec![values[0]; count] } else { values };
    }
    let steps = context.node.operation.downcast_ref::<FakeQuantize>()?.levels.checked_sub(1)? as f32;
    let levels = ChannelLevels::new(limits, steps).ok()?;
    let kernel = BlockedFakeQuantizeKernel { isa: isa::detect(), levels };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::from_slice(&[1, 2, 3, 4]) })
}

impl Kernel for BlockedFakeQuantizeKernel {
    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::from_slice(&[0])
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let misfit = || OpError::shape(Blame::Input(0), "the kernel does not fit the data");
        let [batch, _, positions] = sizes(output.shape()).ok_or_else(misfit)?;
        let target = output.slice_mut::<f32>()?;
        if io.in_place.is_none() {
            target.copy_from_slice(io.inputs[0].slice::<f32>()?);
        }
        blocked_fake_quantize(self.isa, &self.levels, batch, positions, target).map_err(kernel_error)
    }
}

/// Claims f32 layers whose limits are constants that differ along one axis at most.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    context.node.operation.downcast_ref::<FakeQuantize>()?;
    if context.inputs.len() != 5 || context.inputs[0].element_type != ElementType::F32 {
        return None;
    }
    let (mut limits, mut rank, mut axes) = (Vec::new(), 0, Vec::new());
    for port in 1..5 {
        let tensor = (context.constant)(port)?;
        let shape = tensor.shape();
        rank = rank.max(shape.rank());
        axes.extend(shape.iter().rev().enumerate().filter(|(_, size)| **size != 1).map(|(axis, size)| (axis, *size)));
        limits.push(floats(&tensor)?);
    }
    let (axis_from_last, count) = axes.first().copied().unwrap_or((0, 1));
    if count == 0 || axes.iter().any(|axis| *axis != (axis_from_last, count)) {
        return None;
    }
    let limit = |port: usize, channel: usize| limits[port].get(channel).or(limits[port].first()).copied();
    let of_channel = |channel: usize| {
        let limits: Option<SmallVec<[f32; 4]>> = (0..4).map(|port| limit(port, channel)).collect();
        function(&*context.node.operation, &limits?)
    };
    let channels = (0..count).map(of_channel).collect::<Option<Vec<_>>>()?;
    let kernel = FakeQuantizeKernel { isa: isa::detect(), channels, axis_from_last, rank };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::from_slice(&[1, 2, 3, 4]) })
}

impl Kernel for FakeQuantizeKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let data = shapes.inputs[0];
        let size = data.rank().checked_sub(self.axis_from_last + 1).and_then(|axis| data.get(axis));
        data.rank() >= self.rank && (self.channels.len() == 1 || size == Some(&self.channels.len()))
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::from_slice(&[0])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs[0].elements() as u64 * self.channels[0].picoseconds() / 1000
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let (shape, is_in_place) = (io.inputs[0].shape(), io.in_place.is_some());
        let row = match self.channels.len() {
            1 => shape.elements(),
            _ => shape[shape.rank() - self.axis_from_last..].iter().product(),
        };
        let source = if is_in_place { &[][..] } else { io.inputs[0].slice::<f32>()? };
        let target = output.slice_mut::<f32>()?;
        if let [function] = self.channels[..] {
            if is_in_place {
                unary_f32_in_place(self.isa, function, target);
                return Ok(());
            }
            return unary_f32(self.isa, function, source, target).map_err(kernel_error);
        }
        let work = target.len() as u64 * self.channels[0].picoseconds() / 1000;
        parallel_chunks_mut(target, row, work, |index, chunk| {
            let function = self.channels[index % self.channels.len()];
            match source.get(index * row..).and_then(|values| values.get(..chunk.len())) {
                Some(values) if !is_in_place => {
                    let result = unary_f32(self.isa, function, values, chunk);
                    debug_assert!(result.is_ok(), "slices of one length");
                }
                _ => unary_f32_in_place(self.isa, function, chunk),
            }
        });
        Ok(())
    }
}
