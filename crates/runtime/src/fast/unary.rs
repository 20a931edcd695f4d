//! Elementwise functions of one input, f32.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::unary::{UnaryOp, unary_f32, unary_f32_in_place};
use ovir_ops::OpResult;
use ovir_tensor::{ElementType, SmallVec};

use super::parts::{floats, kernel_error, unary_op};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct UnaryKernel {
    isa: Isa,
    op: UnaryOp,
}

/// Claims f32 functions whose parameters are constant.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    if context.inputs.first()?.element_type != ElementType::F32 {
        return None;
    }
    let mut parameters = Vec::new();
    for port in 1..context.inputs.len() {
        parameters.push(*floats(&(context.constant)(port)?)?.first()?);
    }
    let op = unary_op(&*context.node.operation, &parameters)?;
    let packed_inputs = (1..context.inputs.len()).collect();
    Some(Claim { kernel: Box::new(UnaryKernel { isa: isa::detect(), op }), packed_inputs })
}

impl Kernel for UnaryKernel {
    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        SmallVec::from_slice(&[0])
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64 * self.op.picoseconds()).sum::<u64>() / 1000
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let target = output.slice_mut::<f32>()?;
        if io.in_place.is_some() {
            unary_f32_in_place(self.isa, self.op, target);
            return Ok(());
        }
        unary_f32(self.isa, self.op, io.inputs[0].slice::<f32>()?, target).map_err(kernel_error)
    }
}
