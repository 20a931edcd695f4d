//! PSROIPooling of means, f32.

use std::ops::Range;
use std::sync::Arc;

use ovir_kernels::position_sensitive::position_sensitive_means;
use ovir_ops::common::regions::image_of;
use ovir_ops::detection::psroi_pooling::{PSROIPooling, PSROIPoolingMode};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, SmallVec};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct PositionSensitiveKernel {
    operation: Arc<dyn Operation>,
}

/// Claims PSROIPooling of means.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let found = context.node.operation.downcast_ref::<PSROIPooling>()?;
    let is_f32 = context.inputs.iter().all(|facts| facts.element_type == ElementType::F32);
    (is_f32 && found.attributes.mode == PSROIPoolingMode::Average).then_some(())?;
    let kernel = PositionSensitiveKernel { operation: Arc::clone(&context.node.operation) };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl Kernel for PositionSensitiveKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, regions], [output])
            if data.rank() == 4 && output.rank() == 4 && regions[..] == [output[0], 5] && output[2] == output[3]
                && output[1].checked_mul(output[2] * output[3]) == Some(data[1]))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 * 20).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let operation = self.operation.downcast_ref::<PSROIPooling>().ok_or_else(misfit)?;
        let ([data, regions], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let (&[batch, _, height, width], &[_, outputs, groups, _]) = (&data.shape()[..], &output.shape()[..]) else {
            return Err(misfit());
        };
        let boxes = regions.slice::<f32>()?.as_chunks::<5>().0;
        let image = |(region, corners): (usize, &[f32; 5])| image_of(corners[0] as i64, region, batch, 1);
        let images = boxes.iter().enumerate().map(image).collect::<OpResult<Vec<usize>>>()?;
        let parts = |first: usize, size: usize| -> Vec<Range<usize>> {
            let ends = boxes.iter().map(|corners| (f64::from(corners[first]), f64::from(corners[first + 2])));
            ends.flat_map(|ends| (0..groups).map(move |i| operation.part(ends, i, size))).collect()
        };
        let (rows, columns) = (parts(2, height), parts(1, width));
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        let sizes = [batch, height, width];
        position_sensitive_means(sizes, [outputs, groups], &images, (&rows, &columns), values, target)
            .map_err(kernel_error)
    }
}
