//! Reductions of f32 over constant axes that lie side by side.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::reduce::{ReduceOp, reduce};
use ovir_ops::reduction::{
    reduce_l1::ReduceL1, reduce_l2::ReduceL2, reduce_max::ReduceMax, reduce_mean::ReduceMean, reduce_min::ReduceMin,
    reduce_prod::ReduceProd, reduce_sum::ReduceSum,
};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, SmallVec};

use super::layout::around_all;
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct ReduceKernel {
    isa: Isa,
    op: ReduceOp,
    axes: SmallVec<[i64; 8]>,
}

/// Claims f32 reductions.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let op = reduce_op(&*context.node.operation)?;
    if context.inputs.first()?.element_type != ElementType::F32 {
        return None;
    }
    let axes = context.inputs.get(1)?.integers()?;
    let kernel = ReduceKernel { isa: isa::detect(), op, axes };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The reduction that an operation is.
pub(crate) fn reduce_op(operation: &dyn Operation) -> Option<ReduceOp> {
    let table = [
        (operation.downcast_ref::<ReduceSum>().is_some(), ReduceOp::Sum),
        (operation.downcast_ref::<ReduceMean>().is_some(), ReduceOp::Mean),
        (operation.downcast_ref::<ReduceMax>().is_some(), ReduceOp::Max),
        (operation.downcast_ref::<ReduceMin>().is_some(), ReduceOp::Min),
        (operation.downcast_ref::<ReduceProd>().is_some(), ReduceOp::Product),
        (operation.downcast_ref::<ReduceL1>().is_some(), ReduceOp::L1),
        (operation.downcast_ref::<ReduceL2>().is_some(), ReduceOp::L2),
    ];
    table.into_iter().find(|(found, _)| *found).map(|(_, op)| op)
}

impl Kernel for ReduceKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        // What a reduction of nothing gives is the reference's matter.
        let fits = |[outer, axis, inner]: [usize; 3]| axis > 0 && outer.saturating_mul(inner) == output.elements();
        around_all(data, &self.axes).is_some_and(fits)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.inputs.first().map_or(0, |s| nanoseconds_for_bytes(s.elements().saturating_mul(4)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let sizes = around_all(data.shape(), &self.axes);
        let sizes = sizes.ok_or_else(|| OpError::shape(Blame::Input(1), "the axes do not lie side by side"))?;
        reduce(self.isa, self.op, sizes, data.slice::<f32>()?, output.slice_mut::<f32>()?).map_err(kernel_error)
    }
}
