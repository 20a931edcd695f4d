//! Softmax and its logarithm, f32.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::softmax::{softmax, softmax_in_place};
use ovir_ops::activation::{log_softmax::LogSoftmax, softmax::Softmax};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::layout::{around, axis_of};
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct SoftmaxKernel {
    isa: Isa,
    axis: i64,
    logarithm: bool,
}

/// Claims f32 softmax and log-softmax.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &*context.node.operation;
    let (axis, logarithm) = match (operation.downcast_ref::<Softmax>(), operation.downcast_ref::<LogSoftmax>()) {
        (Some(softmax), _) => (softmax.attributes.axis, false),
        (_, Some(softmax)) => (softmax.attributes.axis, true),
        _ => return None,
    };
    if context.inputs.first()?.element_type != ElementType::F32 {
        return None;
    }
    let kernel = SoftmaxKernel { isa: isa::detect(), axis, logarithm };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl SoftmaxKernel {
    fn sizes(&self, shape: &Shape) -> Option<[usize; 3]> {
        around(shape, axis_of(self.axis, shape.rank())?)
    }
}

impl Kernel for SoftmaxKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first().is_some_and(|shape| self.sizes(shape).is_some())
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::from_slice(&[0])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let sizes = self.sizes(output.shape());
        let sizes = sizes.ok_or_else(|| OpError::shape(Blame::attribute("axis"), "the axis is out of range"))?;
        let target = output.slice_mut::<f32>()?;
        match io.in_place {
            Some(_) => softmax_in_place(self.isa, self.logarithm, sizes, target),
            None => softmax(self.isa, self.logarithm, sizes, io.inputs[0].slice::<f32>()?, target),
        }
        .map_err(kernel_error)
    }
}
