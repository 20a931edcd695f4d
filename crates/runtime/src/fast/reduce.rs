//! Reductions of f32, integers and truth values over constant axes. Axes that do not lie side by side are reduced one after
//! the other, the innermost or the outermost first.

use ovir_kernels::KernelError;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_kernels::reduce::{ReduceOp, reduce};
use ovir_kernels::reduce_integers::{
    IntegerReduceOp, Summed, left_between, mean_scratch_len, reduce_integers, reduce_mean_integers,
};
use ovir_ops::reduction::{
    reduce_l1::ReduceL1, reduce_l2::ReduceL2, reduce_logical_and::ReduceLogicalAnd, reduce_logical_or::ReduceLogicalOr,
    reduce_max::ReduceMax, reduce_mean::ReduceMean, reduce_min::ReduceMin, reduce_prod::ReduceProd,
    reduce_sum::ReduceSum,
};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec, cast_mut};

use super::layout::around_each;
use super::parts::kernel_error;
use super::settled::Settled;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct ReduceKernel {
    isa: Isa,
    op: ReduceOp,
    axes: SmallVec<[i64; 8]>,
    settled: Settled<Steps>,
}

/// Sizes of the steps of a reduction.
type Steps = SmallVec<[[usize; 3]; 4]>;

/// A reduction of integers or truth values.
struct IntegerKernel {
    isa: Isa,
    /// `None` for the mean.
    op: Option<IntegerReduceOp>,
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
        F32 => {
            let settled = Settled::new(context, 1, |shapes| steps_of(&axes, shapes));
            Box::new(ReduceKernel { isa, op: reduce_op(operation)?, axes, settled })
        }
        Boolean | I8 | U8 | I32 | I64 => {
            let op = integer_op(operation);
            if op.is_none() && operation.downcast_ref::<ReduceMean>().is_none() {
                return None;
            }
            Box::new(IntegerKernel { isa, op, axes, element_type })
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

/// The steps of a reduction, if they lead to the output and none reduces nothing: what that gives is the reference's matter.
fn steps(axes: &[i64], data: &Shape, output: &Shape) -> Option<Steps> {
    let steps = around_each(data, axes)?;
    let [outer, _, inner] = *steps.last()?;
    let fits = steps.iter().all(|[_, axis, _]| *axis > 0) && outer.checked_mul(inner)? == output.elements();
    fits.then_some(())?;
    if steps.len() < 2 || data.elements() == 0 {
        return Some(steps);
    }
    let turned = outermost_first(&steps, data.elements());
    // What is read in its order is left so unless much is gained.
    Some(if nanoseconds(&turned) * 1.5 < nanoseconds(&steps) { turned } else { steps })
}

/// The steps of a reduction of so many elements, given those from the innermost axes outward, in the other order.
fn outermost_first(steps: &Steps, elements: usize) -> Steps {
    let mut reduced = 1;
    let turn = |[outer, axis, _]: &[usize; 3]| {
        let turned = [outer / reduced, *axis, elements / (outer * axis)];
        reduced *= axis;
        turned
    };
    steps.iter().rev().map(turn).collect()
}

/// An estimate of the time that steps take on one thread.
fn nanoseconds(steps: &[[usize; 3]]) -> f64 {
    let of_step = |[outer, axis, inner]: &[usize; 3]| {
        let (rows, axis, inner) = (*outer as f64, *axis as f64, *inner as f64);
        match inner {
            1.0 if axis <= 64.0 => rows * (2.0 + axis / 8.0),
            1.0 => rows * axis / 12.0,
            _ => rows * (axis * (inner / 16.0).ceil() * 0.8 + (inner / 256.0).ceil() * 15.0),
        }
    };
    steps.iter().map(of_step).sum()
}

/// The steps of a reduction of the shapes.
fn steps_of(axes: &[i64], shapes: &StepShapes<'_>) -> Option<Steps> {
    let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return None };
    steps(axes, data, output)
}

/// Reduces step by step, through `scratch`.
fn in_steps<T>(
    steps: &[[usize; 3]],
    data: &[T],
    target: &mut [T],
    scratch: &mut [T],
    reduce: &impl Fn([usize; 3], &[T], &mut [T]) -> Result<(), KernelError>,
) -> OpResult {
    match steps {
        [] => Ok(()),
        [only] => reduce(*only, data, target).map_err(kernel_error),
        [first, rest @ ..] => {
            let left = first[0].saturating_mul(first[2]);
            let missing = || OpError::shape(Blame::Node, "the scratch is too short");
            let (kept, scratch) = scratch.split_at_mut_checked(left).ok_or_else(missing)?;
            reduce(*first, data, kept).map_err(kernel_error)?;
            in_steps(rest, kept, target, scratch, reduce)
        }
    }
}

fn misfit() -> OpError {
    OpError::shape(Blame::Input(1), "the axes do not fit the data")
}

impl IntegerKernel {
    fn apply<T: Summed + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        let steps = steps(&self.axes, data.shape(), output.shape()).ok_or_else(misfit)?;
        let (data, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
        let Some(op) = self.op else {
            let scratch = cast_mut(io.scratch);
            return reduce_mean_integers(self.isa, &steps, data, target, scratch).map_err(kernel_error);
        };
        let reduce =
            |sizes: [usize; 3], data: &[T], target: &mut [T]| reduce_integers(self.isa, op, sizes, data, target);
        in_steps(&steps, data, target, cast_mut(io.scratch), &reduce)
    }

    fn width(&self) -> usize {
        self.element_type.byte_width().unwrap_or(8)
    }
}

impl Kernel for IntegerKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        steps_of(&self.axes, shapes).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let left = steps_of(&self.axes, shapes).map_or(0, |steps| left_between(&steps));
        let words = match self.element_type {
            ElementType::I64 => mean_scratch_len::<i64>(left),
            _ => mean_scratch_len::<i32>(left),
        };
        if self.op.is_some() { left.saturating_mul(self.width()) } else { words.saturating_mul(size_of::<i64>()) }
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.inputs.first().map_or(0, |s| nanoseconds_for_bytes(s.elements().saturating_mul(self.width())))
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
        steps_of(&self.axes, shapes).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        steps_of(&self.axes, shapes).map_or(0, |steps| left_between(&steps).saturating_mul(size_of::<f32>()))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.inputs.first().map_or(0, |s| nanoseconds_for_bytes(s.elements().saturating_mul(4)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        let steps = match self.settled.get(io.inputs) {
            Some(steps) => steps,
            None => &steps(&self.axes, data.shape(), output.shape()).ok_or_else(misfit)?,
        };
        let (data, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        let reduce =
            |sizes: [usize; 3], data: &[f32], target: &mut [f32]| reduce(self.isa, self.op, sizes, data, target);
        in_steps(steps, data, target, cast_mut(io.scratch), &reduce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn both_orders_reduce_to_the_same() {
        for (shape, axes) in [
            (&[3, 4, 5][..], &[0, 2][..]),
            (&[3, 1, 4, 5, 2, 6], &[0, 3, 5]),
            (&[2, 3, 1, 4, 5, 2, 3], &[1, 4, 6]),
            (&[6, 5, 4, 3], &[0, 1, 3]),
        ] {
            let shape: Shape = shape.iter().copied().collect();
            let data: Vec<f32> = (0..shape.elements()).map(|place| (place * 7 % 31) as f32).collect();
            let inward = around_each(&shape, axes).unwrap();
            let outward = outermost_first(&inward, shape.elements());
            assert_ne!(inward, outward);
            let sums = |steps: &Steps| {
                let [outer, _, inner] = steps[steps.len() - 1];
                let (mut target, mut scratch) = (vec![0.0; outer * inner], vec![0.0; left_between(steps)]);
                let reduce = |sizes: [usize; 3], data: &[f32], target: &mut [f32]| {
                    reduce(isa::detect(), ReduceOp::Sum, sizes, data, target)
                };
                in_steps(steps, &data, &mut target, &mut scratch, &reduce).unwrap();
                target
            };
            assert_eq!(sums(&inward), sums(&outward));
        }
    }

    /// Many short rows are reduced where they lie side by side, long ones as they follow each other.
    #[test]
    fn the_order_is_that_of_less_work() {
        let first = |shape: &[usize], axes: &[i64], kept: &[usize]| {
            let [data, output] = [shape, kept].map(|sizes| sizes.iter().copied().collect::<Shape>());
            steps(axes, &data, &output).unwrap()[0]
        };
        assert_eq!(first(&[512, 130, 6], &[0, 2], &[130]), [1, 512, 780]);
        assert_eq!(first(&[2, 64, 3136], &[0, 2], &[64]), [128, 3136, 1]);
    }
}
