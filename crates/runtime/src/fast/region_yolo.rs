//! RegionYolo of f32.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::softmax::softmax_in_place;
use ovir_kernels::unary::{UnaryOp, unary_f32_in_place};
use ovir_ops::detection::region_yolo::RegionYolo;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, SmallVec};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct RegionKernel {
    isa: Isa,
    /// Coordinates and entries of a region.
    coords: usize,
    entries: usize,
    /// Regions of an image.
    regions: usize,
    do_softmax: bool,
}

/// Claims RegionYolo of f32.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.downcast_ref::<RegionYolo>()?;
    (context.inputs.first()?.element_type == ElementType::F32).then_some(())?;
    let kernel = RegionKernel {
        isa: isa::detect(),
        coords: usize::try_from(operation.attributes.coords).ok()?,
        entries: operation.entries(),
        regions: operation.regions(),
        do_softmax: operation.attributes.do_softmax,
    };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl RegionKernel {
    /// Applies the sigmoid and the softmax to one region.
    fn activate(&self, plane: usize, values: &mut [f32]) -> OpResult {
        let (shown, rest) = values.split_at_mut(self.coords * plane);
        let centre = shown.len().min(2 * plane);
        unary_f32_in_place(self.isa, UnaryOp::Sigmoid, &mut shown[..centre]);
        if !self.do_softmax {
            unary_f32_in_place(self.isa, UnaryOp::Sigmoid, rest);
            return Ok(());
        }
        let (objectness, scores) = rest.split_at_mut(plane);
        unary_f32_in_place(self.isa, UnaryOp::Sigmoid, objectness);
        let classes = self.entries - self.coords - 1;
        softmax_in_place(self.isa, false, [1, classes, plane], scores).map_err(kernel_error)
    }
}

impl Kernel for RegionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        let [batch, channels, height, width] = data[..] else { return false };
        let wanted = self.entries.saturating_mul(self.regions);
        wanted <= channels && output.elements() == batch * wanted * height * width && output.elements() > 0
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|shape| shape.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let ([data], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let [_, channels, height, width] = data.shape()[..] else { return Err(misfit()) };
        let (region, image) = (self.entries * height * width, channels * height * width);
        let source = data.slice::<f32>()?;
        let target = output.slice_mut::<f32>()?;
        for (source, target) in
            source.chunks_exact(image.max(1)).zip(target.chunks_exact_mut((self.regions * region).max(1)))
        {
            target.copy_from_slice(&source[..target.len()]);
            for values in target.chunks_exact_mut(region.max(1)) {
                self.activate(height * width, values)?;
            }
        }
        Ok(())
    }
}
