//! CumSum of f32 and integers along a constant axis.

use ovir_kernels::cumulative::{Cumulative, CumulativeRule, cumulative_sum};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_ops::arithmetic::cum_sum::CumSum;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec};

use super::layout::{around, axis_of};
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct CumSumKernel {
    isa: Isa,
    axis: i64,
    rule: CumulativeRule,
    element_type: ElementType,
}

/// Claims CumSum.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    use ElementType::{F32, I8, I32, I64, U8};
    let attributes = &context.node.operation.downcast_ref::<CumSum>()?.attributes;
    let element_type = context.inputs.first()?.element_type;
    let axis = match context.inputs.get(1) {
        Some(facts) => *facts.integers()?.first()?,
        None => 0,
    };
    if !matches!(element_type, F32 | I8 | U8 | I32 | I64) {
        return None;
    }
    let rule = CumulativeRule { exclusive: attributes.exclusive, reverse: attributes.reverse };
    let kernel = CumSumKernel { isa: isa::detect(), axis, rule, element_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl CumSumKernel {
    fn sizes(&self, shape: &Shape) -> Option<[usize; 3]> {
        around(shape, axis_of(self.axis, shape.rank())?)
    }

    fn apply<T: Cumulative + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        let misfit = || OpError::shape(Blame::Input(1), "the axis does not fit the data");
        let sizes = self.sizes(data.shape()).ok_or_else(misfit)?;
        let (data, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
        cumulative_sum(self.isa, sizes, self.rule, data, target).map_err(kernel_error)
    }
}

impl Kernel for CumSumKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first().is_some_and(|data| self.sizes(data).is_some())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let width = self.element_type.byte_width().unwrap_or(8);
        shapes.inputs.first().map_or(0, |s| nanoseconds_for_bytes(s.elements().saturating_mul(2 * width)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.element_type {
            ElementType::I8 => self.apply::<i8>(io),
            ElementType::U8 => self.apply::<u8>(io),
            ElementType::I32 => self.apply::<i32>(io),
            ElementType::I64 => self.apply::<i64>(io),
            _ => self.apply::<f32>(io),
        }
    }
}
