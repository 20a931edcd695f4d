//! Products with compressed constants whose left operand is quantised as it comes, where a compiled model asks for it.

use std::sync::Arc;

use ovir_kernels::epilogue::Epilogue;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::quantized::{DynamicRows, DynamicWeights, dynamic_product};
use ovir_ops::OpResult;
use ovir_tensor::Shape;

use super::matmul::{as_epilogue, packed_matrix, same_residual};
use super::parts::{EpilogueParts, kernel_error, scratch_f32};
use super::{ClaimContext, Kernel, StepIo, StepShapes};

/// A product with a constant right operand of four or eight bits.
struct DynamicProduct {
    isa: Isa,
    weights: Arc<DynamicWeights>,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// The right operand of `k` rows and `n` columns, whose values lie so far apart along both; `None` where it is not stored in
/// integers of four or eight bits, or not in groups that fit.
pub(super) fn weights(
    context: &mut ClaimContext<'_>,
    port: usize,
    size: [usize; 2],
    strides: [usize; 2],
) -> Option<Arc<DynamicWeights>> {
    let wanted = context.dynamic_group;
    let stored = (context.stored)(port).filter(|stored| wanted > 0 && stored.is_large())?;
    let [k, n] = size;
    DynamicWeights::group(k, wanted, stored.matrix(k, n, strides[0] == 1)?.group)?;
    packed_matrix(context, &stored, size, strides, &format!("dynamic matmul {wanted}"), |matrix| {
        DynamicWeights::pack(matrix, wanted).ok()
    })
}

/// A product with such a right operand.
pub(super) fn product(weights: Arc<DynamicWeights>, data_port: usize, epilogue: EpilogueParts) -> Box<dyn Kernel> {
    Box::new(DynamicProduct { isa: isa::detect(), weights, epilogue, data_port })
}

impl DynamicProduct {
    fn rows(&self, data: &Shape) -> usize {
        data.elements() / self.weights.k().max(1)
    }
}

impl Kernel for DynamicProduct {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let (Some(data), [output]) = (shapes.inputs.get(self.data_port), shapes.outputs) else { return false };
        let fits =
            data.rank() >= 2 && data.last() == Some(&self.weights.k()) && output.last() == Some(&self.weights.n());
        fits && output.elements() == self.rows(data) * self.weights.n() && same_residual(&self.epilogue, shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let rows = shapes.inputs.get(self.data_port).map_or(0, |data| self.rows(data));
        let (codes, parameters) = self.weights.rows_len(rows);
        parameters.saturating_mul(4).saturating_add(codes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.weights.nanoseconds(shapes.inputs.get(self.data_port).map_or(0, |data| self.rows(data)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let data = &io.inputs[self.data_port];
        let rows = self.rows(data.shape());
        let (codes, parameters) = self.weights.rows_len(rows);
        let (parameters, rest) = io.scratch.split_at_mut((parameters * 4).min(io.scratch.len()));
        let (parameters, codes) = (scratch_f32(parameters), rest.get_mut(..codes).unwrap_or_default());
        self.weights.quantize(self.isa, data.slice::<f32>()?, codes, parameters).map_err(kernel_error)?;
        let residual = self.epilogue.residual.map(|port| io.inputs[port].slice::<f32>()).transpose()?;
        let epilogue: Epilogue<'_> = as_epilogue(&self.epilogue, residual, self.weights.n());
        let a = DynamicRows { codes, parameters };
        let [output] = io.outputs else { return Ok(()) };
        dynamic_product(self.isa, rows, &a, &self.weights, output.slice_mut::<f32>()?, &epilogue).map_err(kernel_error)
    }
}
