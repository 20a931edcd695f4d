//! ScaledDotProductAttention, f32.

use ovir_kernels::attention::{AttentionGeometry, AttentionMask, attention, attention_scratch_len};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_ops::sequence::scaled_dot_product_attention::ScaledDotProductAttention;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::parts::{kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct AttentionKernel {
    isa: Isa,
    causal: bool,
    mask_type: Option<ElementType>,
}

/// Claims f32 attention.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.downcast_ref::<ScaledDotProductAttention>()?;
    let is_f32 = |port: usize| context.inputs.get(port).is_none_or(|facts| facts.element_type == ElementType::F32);
    if ![0, 1, 2, 4, 5].into_iter().all(is_f32) {
        return None;
    }
    let causal = operation.attributes.causal;
    let mask_type = context.inputs.get(3).filter(|_| !causal).map(|facts| facts.element_type);
    if !matches!(mask_type, None | Some(ElementType::F32 | ElementType::Boolean)) {
        return None;
    }
    let kernel = AttentionKernel { isa: isa::detect(), causal, mask_type };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// A shape as `[batch, heads, rows, columns]`. The axes before the heads are one batch: an operand has those of the output, or
/// repeats along all of them.
fn four(shape: &Shape, output: &Shape) -> Option<[usize; 4]> {
    let rank = output.rank().max(4);
    let padded = |shape: &Shape| -> Option<SmallVec<[usize; 8]>> {
        let mut sizes = SmallVec::from_elem(1, rank.checked_sub(shape.rank())?);
        sizes.extend_from_slice(shape);
        Some(sizes)
    };
    let (sizes, output) = (padded(shape)?, padded(output)?);
    let (lead, last) = sizes.split_at(rank - 3);
    let is_repeated = lead.iter().all(|size| *size == 1);
    if !is_repeated && lead != &output[..rank - 3] {
        return None;
    }
    let batch = lead.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
    Some([batch, last[0], last[1], last[2]])
}

/// The strides of all axes; an axis of size 1 repeats.
fn strides_of(sizes: [usize; 4]) -> [usize; 4] {
    let mut strides = [0; 4];
    let mut step = 1usize;
    for axis in (0..4).rev() {
        strides[axis] = if sizes[axis] == 1 { 0 } else { step };
        step = step.saturating_mul(sizes[axis]);
    }
    strides
}

fn misfit() -> OpError {
    OpError::shape(Blame::Node, "the kernel does not fit the shapes")
}

impl AttentionKernel {
    fn geometry(&self, inputs: &[&Shape], output: &Shape) -> Option<(AttentionGeometry, [usize; 4])> {
        let [q, k, v, ..] = inputs else { return None };
        let (q, k, v, o) = (four(q, output)?, four(k, output)?, four(v, output)?, four(output, output)?);
        let batches = |sizes: [usize; 4]| (0..2).all(|axis| sizes[axis] == 1 || sizes[axis] == o[axis]);
        let fits = q[3] == k[3] && k[2] == v[2] && o[2] == q[2] && o[3] == v[3];
        let is_empty = [q, k, v, o].iter().any(|sizes| sizes.contains(&0));
        if is_empty || !fits || !(batches(q) && batches(k) && batches(v)) {
            return None;
        }
        let operand = |sizes: [usize; 4]| {
            let strides = strides_of(sizes);
            [strides[0], strides[1], sizes[3]]
        };
        let weights = [o[0], o[1], q[2], k[2]];
        let mask = match inputs.get(3).filter(|_| self.mask_type.is_some()) {
            Some(shape) => {
                let sizes = four(shape, output)?;
                (0..4).all(|axis| sizes[axis] == 1 || sizes[axis] == weights[axis]).then(|| strides_of(sizes))?
            }
            None => [0; 4],
        };
        if let Some(shape) = inputs.get(5) {
            let (sizes, rows) = (four(shape, output)?, [o[0], o[1], q[2], 1]);
            (0..4).all(|axis| sizes[axis] == 1 || sizes[axis] == rows[axis]).then_some(())?;
        }
        let dense = AttentionGeometry::dense(
            [o[0], o[1], 1],
            [q[2], k[2], q[3], v[3]],
            1.0 / (q[3] as f32).sqrt(),
            self.causal.then_some(0),
        );
        let geometry = AttentionGeometry {
            query_strides: operand(q),
            key_strides: operand(k),
            value_strides: operand(v),
            ..dense
        };
        Some((geometry, mask))
    }
}

impl Kernel for AttentionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.outputs.first().is_some_and(|output| self.geometry(shapes.inputs, output).is_some())
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let geometry = shapes.outputs.first().and_then(|output| self.geometry(shapes.inputs, output));
        geometry.map_or(0, |(g, _)| attention_scratch_len(self.isa, &g).saturating_mul(size_of::<f32>()))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let ([_, k, ..], [output]) = (shapes.inputs, shapes.outputs) else { return 0 };
        let keys = k.get(k.rank().saturating_sub(2)).copied().unwrap_or(0);
        nanoseconds_for_flops((output.elements() as u64).saturating_mul(4 * keys as u64))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let shapes: SmallVec<[&Shape; 5]> = io.inputs.iter().map(|input| input.shape()).collect();
        let geometry = self.geometry(&shapes, output.shape());
        let (mut geometry, strides) = geometry.ok_or_else(misfit)?;
        if let Some(scale) = io.inputs.get(4) {
            geometry.scale = scale.slice::<f32>()?.first().copied().unwrap_or(geometry.scale);
        }
        let mask = match (io.inputs.get(3), self.mask_type) {
            (Some(mask), Some(ElementType::Boolean)) => AttentionMask::Boolean(mask.slice::<u8>()?, strides),
            (Some(mask), Some(_)) => AttentionMask::Additive(mask.slice::<f32>()?, strides),
            _ => AttentionMask::None,
        };
        let (q, k, v) = (io.inputs[0].slice::<f32>()?, io.inputs[1].slice::<f32>()?, io.inputs[2].slice::<f32>()?);
        let sink = match io.inputs.get(5) {
            Some(sink) => {
                let sizes = four(sink.shape(), output.shape()).ok_or_else(misfit)?;
                let [batch, head, row, _] = strides_of(sizes);
                Some((sink.slice::<f32>()?, [batch, head, row]))
            }
            None => None,
        };
        let (target, scratch) = (output.slice_mut::<f32>()?, scratch_f32(io.scratch));
        attention(self.isa, &geometry, q, k, v, mask, sink, target, scratch).map_err(kernel_error)
    }
}
