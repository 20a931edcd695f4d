//! GatherElements, GatherND and SliceScatter.

use std::sync::Arc;

use ovir_kernels::movement::{StridedCopy, copy};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::scatter::{Gather, IndexType};
use ovir_ops::movement::{gather_elements::GatherElements, gather_nd::GatherNd, slice_scatter::SliceScatter};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::layout::axis_of;
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

enum Form {
    /// GatherElements along this axis.
    Elements(i64),
    /// GatherND with so many batch axes.
    Tuples(usize),
}

struct IndexedKernel {
    form: Form,
    /// The gather, which says what is wrong with indices.
    operation: Arc<dyn Operation>,
    width: usize,
    index_type: IndexType,
}

/// SliceScatter.
struct SliceKernel {
    width: usize,
}

/// Claims gathers of elements and blocks with indices of type i32 or i64, and SliceScatter.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    if operation.downcast_ref::<SliceScatter>().is_some() {
        let width = context.inputs.first()?.element_type.byte_width()?;
        return Some(Claim { kernel: Box::new(SliceKernel { width }), packed_inputs: SmallVec::new() });
    }
    let form = if let Some(gather) = operation.downcast_ref::<GatherElements>() {
        Form::Elements(gather.attributes.axis)
    } else {
        let gather = operation.downcast_ref::<GatherNd>()?;
        Form::Tuples(usize::try_from(gather.attributes.batch_dims).ok()?)
    };
    let index_type = match context.inputs.get(1)?.element_type {
        ElementType::I32 => IndexType::I32,
        ElementType::I64 => IndexType::I64,
        _ => return None,
    };
    let width = context.inputs.first()?.element_type.byte_width()?;
    let kernel = Box::new(IndexedKernel { form, operation: operation.clone(), width, index_type });
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

impl IndexedKernel {
    fn gather(&self, data: &Shape, indices: &Shape) -> Option<Gather> {
        match self.form {
            Form::Elements(axis) => {
                let axis = axis_of(axis, data.rank())?;
                Gather::elements(data, indices, axis, self.width, self.index_type).ok()
            }
            Form::Tuples(batch) => {
                let (depth, rows) = indices.split_last()?;
                let (sizes, inner) = (data.get(batch..batch + depth)?, data.get(batch + depth..)?);
                let (batches, inner) = (data.get(..batch)?.iter().product(), inner.iter().product());
                let count = rows.get(batch..)?.iter().product();
                Gather::tuples(batches, sizes, inner, count, self.width, self.index_type).ok()
            }
        }
    }
}

impl Kernel for IndexedKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!(shapes.inputs, [data, indices, ..] if self.gather(data, indices).is_some())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let [data, indices, ..] = shapes.inputs else { return 0 };
        self.gather(data, indices).map_or(0, |gather| gather.work_nanoseconds())
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, indices, ..], [output]) = (io.inputs, &mut *io.outputs) else { return Ok(()) };
        let gather = self.gather(data.shape(), indices.shape());
        let run = |gather: Gather| gather.run(data.bytes(), indices.bytes(), output.bytes_mut());
        match gather.map(run) {
            Some(Ok(())) => Ok(()),
            found => {
                // The operation finds the index that addresses nothing, and has the words for it.
                io.evaluate(&*self.operation)?;
                found.map_or(Ok(()), |found| found.map_err(kernel_error))
            }
        }
    }
}

impl Kernel for SliceKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first() == shapes.outputs.first()
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::from_slice(&[0])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let elements: usize = shapes.inputs.iter().take(2).map(|shape| shape.elements()).sum();
        nanoseconds_for_bytes(elements.saturating_mul(2 * self.width))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, updates, ..], [output]) = (io.inputs, &mut *io.outputs) else { return Ok(()) };
        let misfit = || OpError::shape(Blame::Node, "the inputs are not those of a SliceScatter");
        let places = SliceScatter.places(io.inputs)?.ok_or_else(misfit)?;
        let (from, to) = (updates.shape().elements(), data.shape().elements());
        let moves = StridedCopy::new(&places.axes, 0, places.offset, from, to).map_err(kernel_error)?;
        if io.in_place != Some(0) {
            copy(data.bytes(), output.bytes_mut()).map_err(kernel_error)?;
        }
        moves.run(self.width, updates.bytes(), output.bytes_mut()).map_err(kernel_error)
    }
}
