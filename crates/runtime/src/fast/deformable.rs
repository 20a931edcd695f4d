//! DeformableConvolution of f32.

use std::sync::Arc;

use ovir_kernels::deformable::{DeformableGeometry, deformable_convolution, deformable_scratch_len};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_ops::convolution::deformable_convolution::DeformableConvolution;
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct DeformableKernel {
    isa: Isa,
    operation: Arc<dyn Operation>,
}

/// Claims DeformableConvolution.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    context.node.operation.downcast_ref::<DeformableConvolution>()?;
    let is_f32 = context.inputs.iter().all(|facts| facts.element_type == ElementType::F32);
    is_f32.then_some(())?;
    let kernel = DeformableKernel { isa: isa::detect(), operation: Arc::clone(&context.node.operation) };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl DeformableKernel {
    fn geometry(&self, inputs: &[&Shape]) -> Option<DeformableGeometry> {
        let operation = self.operation.downcast_ref::<DeformableConvolution>()?;
        let (&[data, offsets, filter], mask) = (inputs.first_chunk::<3>()?, inputs.get(3).copied());
        let sizes = operation.sizes([data, offsets, filter], mask).ok()?;
        let [y, x] = sizes.axes[..] else { return None };
        Some(DeformableGeometry {
            batch: sizes.batch,
            channels: sizes.channels,
            outputs: sizes.outputs,
            groups: usize::try_from(operation.attributes.group).ok()?,
            bent: usize::try_from(operation.attributes.deformable_group).ok()?,
            input: [y.input, x.input],
            output: [y.output, x.output],
            kernel: [y.kernel, x.kernel],
            stride: [y.stride, x.stride],
            dilation: [y.dilation, x.dilation],
            pad_begin: [y.pad_begin, x.pad_begin],
            fades: operation.attributes.bilinear_interpolation_pad,
        })
    }
}

impl Kernel for DeformableKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let fits = |g: DeformableGeometry| {
            let [output] = shapes.outputs else { return false };
            output[..] == [g.batch, g.outputs, g.output[0], g.output[1]]
        };
        self.geometry(shapes.inputs).is_some_and(fits)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let Some(geometry) = self.geometry(shapes.inputs) else { return 0 };
        let (places, scratch) = deformable_scratch_len(self.isa, &geometry);
        places.saturating_add(scratch).saturating_mul(4)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let taps = shapes.inputs.get(2).map_or(0, |filter| filter.elements()) as u64;
        let windows = shapes.outputs.first().map_or(0, |s| s[0] * s[2] * s[3]) as u64;
        nanoseconds_for_flops(taps.saturating_mul(windows).saturating_mul(2))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let shapes: SmallVec<[&Shape; 4]> = io.inputs.iter().map(|input| input.shape()).collect();
        let geometry = self.geometry(&shapes).ok_or_else(misfit)?;
        let [output] = io.outputs else { return Err(misfit()) };
        let (data, offsets) = (io.inputs[0].slice::<f32>()?, io.inputs[1].slice::<f32>()?);
        let filter = io.inputs[2].slice::<f32>()?;
        let mask = io.inputs.get(3).map(|mask| mask.slice::<f32>()).transpose()?;
        let (count, _) = deformable_scratch_len(self.isa, &geometry);
        let (places, scratch) = io.scratch.split_at_mut(count.saturating_mul(4).min(io.scratch.len()));
        let (places, scratch) = (ovir_tensor::cast_mut(places), ovir_tensor::cast_mut(scratch));
        let target = output.slice_mut::<f32>()?;
        deformable_convolution(self.isa, &geometry, [data, offsets, filter], mask, target, places, scratch)
            .map_err(kernel_error)
    }
}
