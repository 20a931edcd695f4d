//! AdaptiveAvgPool and AdaptiveMaxPool of f32.

use ovir_kernels::adaptive::{AdaptiveGeometry, Position, adaptive_max, adaptive_mean};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::reduce::{ReduceOp, reduce};
use ovir_ops::OpResult;
use ovir_ops::pooling::{adaptive_avg_pool::AdaptiveAvgPool, adaptive_max_pool::AdaptiveMaxPool};
use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct AdaptiveKernel {
    isa: Isa,
    is_max: bool,
    /// The element type of the positions.
    position_type: ElementType,
}

/// Claims adaptive poolings of f32.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    let position_type = match operation.downcast_ref::<AdaptiveMaxPool>() {
        Some(pool) => Some(pool.attributes.index_element_type),
        None => operation.downcast_ref::<AdaptiveAvgPool>().map(|_| ElementType::I64),
    }?;
    let is_max = operation.downcast_ref::<AdaptiveMaxPool>().is_some();
    (context.inputs.first()?.element_type == ElementType::F32).then_some(())?;
    let kernel = AdaptiveKernel { isa: isa::detect(), is_max, position_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The geometry that the shapes of data and output say; `None` where there are parts of nothing.
fn geometry(data: &Shape, output: &Shape) -> Option<AdaptiveGeometry> {
    let (from, to) = (data.get(2..)?, output.get(2..)?);
    let lead = 3usize.checked_sub(from.len())?;
    if from.len() != to.len() || from.is_empty() || data[..2] != output[..2] || data.elements() == 0 {
        return None;
    }
    let (mut input, mut parts) = ([1; 3], [1; 3]);
    input[lead..].copy_from_slice(from);
    parts[lead..].copy_from_slice(to);
    Some(AdaptiveGeometry { planes: data[0].checked_mul(data[1])?, input, output: parts })
}

impl AdaptiveKernel {
    fn max<P: Position + NativeElement>(&self, geometry: &AdaptiveGeometry, io: StepIo<'_, '_>) -> OpResult {
        let Some((values, positions)) = io.outputs.split_first_mut() else { return Ok(()) };
        let positions = match positions.first_mut() {
            Some(positions) => positions.slice_mut::<P>()?,
            None => &mut [],
        };
        adaptive_max(self.isa, geometry, io.inputs[0].slice::<f32>()?, values.slice_mut::<f32>()?, positions)
            .map_err(kernel_error)
    }
}

impl Kernel for AdaptiveKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data, ..], [output, ..]) = (shapes.inputs, shapes.outputs) else { return false };
        geometry(data, output).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.inputs.first().map_or(0, |data| data.elements() as u64 / 2)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output, ..]) = (io.inputs, &mut *io.outputs) else { return Ok(()) };
        let Some(geometry) = geometry(data.shape(), output.shape()) else { return Ok(()) };
        if !self.is_max {
            let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
            if geometry.output == [1; 3] {
                let sizes = [geometry.planes, values.len() / geometry.planes.max(1), 1];
                return reduce(self.isa, ReduceOp::Mean, sizes, values, target).map_err(kernel_error);
            }
            return adaptive_mean(self.isa, &geometry, values, target).map_err(kernel_error);
        }
        match self.position_type {
            ElementType::I32 => self.max::<i32>(&geometry, io),
            _ => self.max::<i64>(&geometry, io),
        }
    }
}
