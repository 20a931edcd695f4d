//! Reductions of f32, integers and truth values over constant axes that lie side by side.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::map::Integer;
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::reduce::{ReduceOp, reduce};
use ovir_kernels::reduce_integers::{IntegerReduceOp, reduce_integers};
use ovir_ops::reduction::{
    reduce_l1::ReduceL1, reduce_l2::ReduceL2, reduce_logical_and::ReduceLogicalAnd, reduce_logical_or::ReduceLogicalOr,
    reduce_max::ReduceMax, reduce_mean::ReduceMean, reduce_min::ReduceMin, reduce_prod::ReduceProd,
    reduce_sum::ReduceSum,
};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, NativeElement, SmallVec};

use super::layout::around_all;
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct ReduceKernel {
    isa: Isa,
    op: ReduceOp,
    axes: SmallVec<[i64; 8]>,
}

/// A reduction of integers or truth values.
struct IntegerKernel {
    isa: Isa,
    op: IntegerReduceOp,
    axes: SmallVec<[i64; 8]>,
    element_type: ElementType,
}

/// Claims reductions.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    use ElementType::{Boolean, F32, I8, I32, I64, U8};
    let operation = &*context.node.operation;
    let axes = context.inputs.get(1)?.integers()?;
    let isa = isa::detect();
    let element_type = context.inputs.first()?.element_type;
    let kernel: Box<dyn Kernel> = match element_type {
        F32 => Box::new(ReduceKernel { isa, op: reduce_op(operation)?, axes }),
        Boolean | I8 | U8 | I32 | I64 => {
            Box::new(IntegerKernel { isa, op: integer_op(operation)?, axes, element_type })
        }
        _ => return None,
    };
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

/// The reduction of integers that an operation is.
fn integer_op(operation: &dyn Operation) -> Option<IntegerReduceOp> {
    let table = [
        (operation.downcast_ref::<ReduceSum>().is_some(), IntegerReduceOp::Sum),
        (operation.downcast_ref::<ReduceMax>().is_some(), IntegerReduceOp::Max),
        (operation.downcast_ref::<ReduceMin>().is_some(), IntegerReduceOp::Min),
        (operation.downcast_ref::<ReduceProd>().is_some(), IntegerReduceOp::Product),
        (operation.downcast_ref::<ReduceL1>().is_some(), IntegerReduceOp::L1),
        (operation.downcast_ref::<ReduceLogicalAnd>().is_some(), IntegerReduceOp::And),
        (operation.downcast_ref::<ReduceLogicalOr>().is_some(), IntegerReduceOp::Or),
    ];
    table.into_iter().find(|(found, _)| *found).map(|(_, op)| op)
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

/// Whether axes of the data lie side by side and are reduced to the output.
fn fits(axes: &[i64], shapes: &StepShapes<'_>) -> bool {
    let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
    // What a reduction of nothing gives is the reference's matter.
    let fits = |[outer, axis, inner]: [usize; 3]| axis > 0 && outer.saturating_mul(inner) == output.elements();
    around_all(data, axes).is_some_and(fits)
}

impl IntegerKernel {
    fn apply<T: Integer + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        let sizes = around_all(data.shape(), &self.axes);
        let sizes = sizes.ok_or_else(|| OpError::shape(Blame::Input(1), "the axes do not lie side by side"))?;
        reduce_integers(self.isa, self.op, sizes, data.slice::<T>()?, output.slice_mut::<T>()?).map_err(kernel_error)
    }
}

impl Kernel for IntegerKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        fits(&self.axes, shapes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let width = self.element_type.byte_width().unwrap_or(8);
        shapes.inputs.first().map_or(0, |s| nanoseconds_for_bytes(s.elements().saturating_mul(width)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.element_type {
            ElementType::I8 => self.apply::<i8>(io),
            ElementType::I32 => self.apply::<i32>(io),
            ElementType::I64 => self.apply::<i64>(io),
            _ => self.apply::<u8>(io),
        }
    }
}

impl Kernel for ReduceKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        fits(&self.axes, shapes)
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
