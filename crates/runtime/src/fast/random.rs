//! RandomUniform of Philox.

use std::sync::Arc;

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::random::{Philox, Uniform, fill_uniform};
use ovir_ops::generation::random_uniform::{RandomAlignment, RandomUniform};
use ovir_ops::{OpResult, Operation};
use ovir_tensor::{ElementType, NativeElement, SmallVec};

use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct RandomKernel {
    isa: Isa,
    /// The layer, which says what is wrong with limits.
    operation: Arc<dyn Operation>,
    element_type: ElementType,
}

/// Claims RandomUniform of f32, i32 and i64 whose numbers are those of Philox.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    let attributes = &operation.downcast_ref::<RandomUniform>()?.attributes;
    let element_type = attributes.output_type;
    let is_taken = attributes.alignment == RandomAlignment::TensorFlow
        && matches!(element_type, ElementType::F32 | ElementType::I32 | ElementType::I64)
        && (1..3).all(|port| context.inputs.get(port).is_some_and(|facts| facts.element_type == element_type));
    is_taken.then_some(())?;
    let kernel = RandomKernel { isa: isa::detect(), operation: Arc::clone(operation), element_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl RandomKernel {
    fn fill<T: Uniform + NativeElement + PartialOrd>(&self, io: StepIo<'_, '_>) -> OpResult {
        let limits = match io.inputs {
            [_, low, high] => match (low.slice::<T>()?, high.slice::<T>()?) {
                ([low], [high]) if low < high => Some([*low, *high]),
                _ => None,
            },
            _ => None,
        };
        let operation = self.operation.downcast_ref::<RandomUniform>();
        let (Some(operation), Some(limits), [output]) = (operation, limits, &mut *io.outputs) else {
            return io.evaluate(&*self.operation);
        };
        let [key, counter, position] = operation.place(io.random);
        fill_uniform(self.isa, Philox { key, counter, position }, limits, output.slice_mut::<T>()?);
        operation.advance(io.random, output.shape());
        Ok(())
    }
}

impl Kernel for RandomKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.element_type {
            ElementType::I32 => self.fill::<i32>(io),
            ElementType::I64 => self.fill::<i64>(io),
            _ => self.fill::<f32>(io),
        }
    }
}
