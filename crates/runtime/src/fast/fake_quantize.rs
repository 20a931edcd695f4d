//! FakeQuantize with constant limits, f32: of the whole tensor or of each channel.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::parallel_chunks_mut;
use ovir_kernels::unary::{UnaryOp, unary_f32, unary_f32_in_place};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_ops::{OpResult, Operation};
use ovir_tensor::{ElementType, SmallVec};

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
            if let Some(values) = source.get(index * row..).filter(|_| !is_in_place) {
                chunk.copy_from_slice(&values[..chunk.len()]);
            }
            unary_f32_in_place(self.isa, function, chunk);
        });
        Ok(())
    }
}
