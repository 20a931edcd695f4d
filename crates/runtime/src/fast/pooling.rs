//! Poolings over windows, f32, and MaxPool of codes.

use ovir_graph::Node;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::pooling::{PoolingGeometry, PoolingKind, max_codes, pooling};
use ovir_ops::common::window::WindowAxis;
use ovir_ops::pooling::{avg_pool::AvgPool, max_pool::MaxPool};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, Shape, SmallVec};
use std::sync::Arc;

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

pub(crate) struct PoolingKernel {
    isa: Isa,
    /// What is computed of a window.
    pub kind: PoolingKind,
    operation: Arc<dyn Operation>,
}

/// Claims poolings of f32, and of u8 by the greatest, whose indices nobody asks for.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let element_type = context.inputs.first()?.element_type;
    let fits = |kernel: &PoolingKernel| match element_type {
        ElementType::F32 => true,
        ElementType::U8 => kernel.kind == PoolingKind::Max,
        _ => false,
    };
    let kernel = PoolingKernel::of(context.node).filter(fits)?;
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// What a pooling whose indices nobody asks for computes of its windows.
pub(crate) fn kind(node: &Node) -> Option<PoolingKind> {
    let is_greatest = node.operation.downcast_ref::<MaxPool>().is_some() && node.outputs.len() == 1;
    if is_greatest { Some(PoolingKind::Max) } else { average_kind(&*node.operation) }
}

/// What an AvgPool counts.
pub(super) fn average_kind(operation: &dyn Operation) -> Option<PoolingKind> {
    let pool = operation.downcast_ref::<AvgPool>()?;
    Some(if pool.attributes.exclude_pad { PoolingKind::Average } else { PoolingKind::AverageWithPadding })
}

/// The sizes of a window, and the steps from one window to the next.
pub(crate) fn kernel_and_strides(node: &Node) -> Option<(&[i64], &[i64])> {
    match (node.operation.downcast_ref::<MaxPool>(), node.operation.downcast_ref::<AvgPool>()) {
        (Some(pool), _) => Some((&pool.attributes.kernel, &pool.attributes.strides)),
        (_, Some(pool)) => Some((&pool.attributes.kernel, &pool.attributes.strides)),
        _ => None,
    }
}

impl PoolingKernel {
    /// The kernel of a pooling layer.
    pub fn of(node: &Node) -> Option<PoolingKernel> {
        Some(PoolingKernel { isa: isa::detect(), kind: kind(node)?, operation: Arc::clone(&node.operation) })
    }

    /// The geometry for data of a shape; `None` if the kernel does not do it.
    pub fn geometry(&self, data: &Shape) -> Option<PoolingGeometry> {
        geometry(&*self.operation, data)
    }
}

/// The geometry of a MaxPool or an AvgPool of data of a shape; `None` if kernels do not do it.
pub(super) fn geometry(operation: &dyn Operation, data: &Shape) -> Option<PoolingGeometry> {
    let (axes, _) = match operation.downcast_ref::<MaxPool>() {
        Some(pool) => pool.geometry(data).ok()?,
        None => operation.downcast_ref::<AvgPool>()?.geometry(data).ok()?,
    };
    let lead = 3usize.checked_sub(axes.len())?;
    let planes = data.first()?.checked_mul(*data.get(1)?)?;
    let mut geometry = PoolingGeometry::of_planes(planes, [1; 3]);
    for (i, axis) in axes.iter().enumerate() {
        fill_axis(&mut geometry, lead + i, axis)?;
    }
    Some(geometry)
}

/// Takes over one axis.
fn fill_axis(geometry: &mut PoolingGeometry, at: usize, axis: &WindowAxis) -> Option<()> {
    let (begin, end) = (usize::try_from(axis.pad_begin).ok()?, usize::try_from(axis.pad_end).ok()?);
    geometry.input[at] = axis.input;
    geometry.output[at] = axis.output;
    geometry.kernel[at] = axis.kernel;
    geometry.stride[at] = axis.stride;
    geometry.dilation[at] = axis.dilation;
    geometry.pad_begin[at] = begin;
    geometry.pad_end[at] = end;
    (axis.input > 0).then_some(())
}

impl Kernel for PoolingKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let geometry = shapes.inputs.first().and_then(|data| self.geometry(data));
        let elements = |g: PoolingGeometry| g.output.iter().product::<usize>().checked_mul(g.planes);
        geometry.and_then(elements) == shapes.outputs.first().map(|s| s.elements())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let geometry = shapes.inputs.first().and_then(|data| self.geometry(data));
        geometry.map_or(0, |geometry| geometry.nanoseconds())
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let geometry = self.geometry(data.shape());
        let geometry = geometry.ok_or_else(|| OpError::shape(Blame::Input(0), "the kernel does not fit the data"))?;
        if data.element_type() == ElementType::U8 {
            return max_codes(self.isa, &geometry, data.slice::<u8>()?, output.slice_mut::<u8>()?)
                .map_err(kernel_error);
        }
        pooling(self.isa, self.kind, &geometry, data.slice::<f32>()?, output.slice_mut::<f32>()?).map_err(kernel_error)
    }
}
