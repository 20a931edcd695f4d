//! Gather of rows of a compressed constant: only the rows that are picked are widened.

use ovir_kernels::widen::widen;
use ovir_ops::OpResult;
use ovir_ops::movement::gather::{Gather, out_of_range};
use ovir_tensor::{ElementType, SmallVec};

use crate::decompression::{Stored, StoredCodes};

use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct StoredGather {
    stored: Stored,
    codes: StoredCodes,
    class_version: u8,
    index_type: ElementType,
    /// Elements of a row.
    inner: usize,
}

/// Claims Gather along the first axis of a compressed constant.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let gather = context.node.operation.downcast_ref::<Gather>()?;
    let (class_version, batch_dims) = (gather.class_version, gather.attributes.batch_dims);
    let index_type = context.inputs.get(1)?.element_type;
    let axis = *context.inputs.get(2)?.integers()?.first()?;
    let is_rows = axis == 0 && batch_dims == 0 && matches!(index_type, ElementType::I32 | ElementType::I64);
    is_rows.then_some(())?;
    let stored = (context.stored)(0).filter(Stored::is_large)?;
    let inner = stored.shape.get(1..)?.iter().product();
    let codes = stored.codes()?;
    let kernel = StoredGather { stored, codes, class_version, index_type, inner };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::from_slice(&[0]) })
}

impl StoredGather {
    fn row(&self, row: usize, target: &mut [f32]) -> OpResult {
        let (codes, run) = (self.codes.view(), self.stored.run());
        let mut element = row * self.inner;
        let mut rest = target;
        while !rest.is_empty() {
            // Up to where the next parameters begin.
            let count = (run - element % run).min(rest.len());
            let (part, behind) = rest.split_at_mut(count);
            let (scale, zero) = self.stored.parameters(element);
            widen(codes, element, zero, scale, part).map_err(kernel_error)?;
            element += count;
            rest = behind;
        }
        Ok(())
    }

    fn gather(&self, indices: impl Iterator<Item = i64>, output: &mut [f32]) -> OpResult {
        if self.inner == 0 {
            return Ok(());
        }
        let size = self.stored.shape.first().copied().unwrap_or(0) as i64;
        for (position, (index, target)) in indices.zip(output.chunks_mut(self.inner)).enumerate() {
            let at = if index < 0 { index + size } else { index };
            if (0..size).contains(&at) {
                self.row(at as usize, target)?;
            } else if self.class_version >= 8 {
                // From version 8 on an index out of range picks zeros.
                target.fill(0.0);
            } else {
                return Err(out_of_range(index, position, size));
            }
        }
        Ok(())
    }
}

impl Kernel for StoredGather {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([_, indices, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        output.elements() == indices.elements().saturating_mul(self.inner)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let target = output.slice_mut::<f32>()?;
        match self.index_type {
            ElementType::I32 => self.gather(io.inputs[1].slice::<i32>()?.iter().map(|index| i64::from(*index)), target),
            _ => self.gather(io.inputs[1].slice::<i64>()?.iter().copied(), target),
        }
    }
}
