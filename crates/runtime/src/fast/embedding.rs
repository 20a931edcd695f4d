//! Bags of rows of f32 tables.

use std::sync::Arc;

use ovir_kernels::embedding::{Bags, Embedding};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_ops::common::embedding::Reduction;
use ovir_ops::sparse::{
    embedding_bag_offsets::EmbeddingBagOffsets, embedding_bag_offsets_sum::EmbeddingBagOffsetsSum,
    embedding_bag_packed::EmbeddingBagPacked, embedding_bag_packed_sum::EmbeddingBagPackedSum,
    embedding_segments_sum::EmbeddingSegmentsSum,
};
use ovir_ops::{OpResult, Operation, integers_of_view};
use ovir_tensor::{ElementType, NativeElement, SmallVec, TensorView};

use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// How positions are given to bags.
#[derive(Clone, Copy)]
enum Form {
    Packed,
    Offsets,
    Segments,
}

struct EmbeddingKernel {
    isa: Isa,
    form: Form,
    reduction: Reduction,
    /// The layer, which says what is wrong with indices.
    operation: Arc<dyn Operation>,
    index_type: ElementType,
}

/// Claims bags of f32 rows with indices of type i32 or i64.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = &context.node.operation;
    let (form, reduction) = if let Some(bags) = operation.downcast_ref::<EmbeddingBagOffsets>() {
        (Form::Offsets, bags.attributes.reduction)
    } else if let Some(bags) = operation.downcast_ref::<EmbeddingBagPacked>() {
        (Form::Packed, bags.attributes.reduction)
    } else if operation.downcast_ref::<EmbeddingBagOffsetsSum>().is_some() {
        (Form::Offsets, Reduction::Sum)
    } else if operation.downcast_ref::<EmbeddingBagPackedSum>().is_some() {
        (Form::Packed, Reduction::Sum)
    } else {
        operation.downcast_ref::<EmbeddingSegmentsSum>()?;
        (Form::Segments, Reduction::Sum)
    };
    let element_type = |port: usize| context.inputs.get(port).map(|facts| facts.element_type);
    let index_type = element_type(1).filter(|found| matches!(found, ElementType::I32 | ElementType::I64))?;
    let has_bags = matches!(form, Form::Packed) || element_type(2) == Some(index_type);
    let is_f32 = element_type(0)? == ElementType::F32
        && form.weights_port().and_then(element_type).is_none_or(|found| found == ElementType::F32);
    (has_bags && is_f32).then_some(())?;
    let operation = Arc::clone(operation);
    let kernel = EmbeddingKernel { isa: isa::detect(), form, reduction, operation, index_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl Form {
    fn default_port(self) -> Option<usize> {
        match self {
            Form::Packed => None,
            Form::Offsets => Some(3),
            Form::Segments => Some(4),
        }
    }

    fn weights_port(self) -> Option<usize> {
        match self {
            Form::Packed => Some(2),
            Form::Offsets => Some(4),
            Form::Segments => Some(5),
        }
    }
}

impl EmbeddingKernel {
    /// Sums the bags; `None` where something is wrong with them.
    fn sum<I: NativeElement + Into<i64>>(&self, io: &mut StepIo<'_, '_>) -> OpResult<Option<()>> {
        let ([table, positions, ..], [output]) = (io.inputs, &mut *io.outputs) else { return Ok(None) };
        let given = |port: Option<usize>| port.and_then(|port| io.inputs.get(port));
        let (Some(rows), Some(count)) = (table.shape().first(), output.shape().first().copied()) else {
            return Ok(None);
        };
        let one = |view: &TensorView<'_>| match integers_of_view(*view).as_deref() {
            Some([value]) => Some(*value),
            _ => None,
        };
        let default_row = match given(self.form.default_port()).map(one) {
            None | Some(Some(-1)) => None,
            Some(Some(index)) if index >= 0 => usize::try_from(index).ok(),
            Some(_) => return Ok(None),
        };
        let bags = match (self.form, io.inputs.get(2)) {
            (Form::Packed, _) => Bags::Even(positions.shape().get(1).copied().unwrap_or(0)),
            (Form::Offsets, Some(offsets)) => Bags::Offsets(offsets.slice::<I>()?),
            (Form::Segments, Some(segments)) if io.inputs.get(3).and_then(one) == i64::try_from(count).ok() => {
                Bags::Segments(segments.slice::<I>()?)
            }
            _ => return Ok(None),
        };
        let embedding = Embedding {
            rows: *rows,
            columns: table.shape().iter().skip(1).product(),
            count,
            bags,
            indices: positions.slice::<I>()?,
            weights: given(self.form.weights_port()).map(|weights| weights.slice::<f32>()).transpose()?,
            mean: self.reduction == Reduction::Mean,
            default_row,
        };
        Ok(embedding.run(self.isa, table.slice::<f32>()?, output.slice_mut::<f32>()?).ok())
    }
}

impl Kernel for EmbeddingKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let ([_, indices, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let columns: usize = output.iter().skip(1).product();
        nanoseconds_for_bytes(indices.elements().saturating_mul(columns).saturating_mul(4))
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let done = match self.index_type {
            ElementType::I32 => self.sum::<i32>(&mut io)?,
            _ => self.sum::<i64>(&mut io)?,
        };
        // The operation finds what is wrong, and has the words for it.
        done.map_or_else(|| io.evaluate(&*self.operation), Ok)
    }
}
