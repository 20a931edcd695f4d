//! ScaledDotProductAttention, f32, alone or with layers that order and repeat its operands. Queries and keys may be codes of
//! quantised values.

use ovir_kernels::attention::{
    AttentionGeometry, AttentionMask, OperandForm, QueriesAndKeys, attention, attention_scratch_len,
};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_ops::codes::{Decode, Levels};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::rows::ROWS_FIRST;
use ovir_ops::sequence::scaled_dot_product_attention::ScaledDotProductAttention;
use ovir_ops::shape::reshape::Reshape;
use ovir_ops::{Blame, OpError, OpResult, Operation, integers_of_view};
use ovir_tensor::{ElementType, Shape, SmallVec, TensorView};

use super::parts::{kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes, bf16};

struct AttentionKernel {
    isa: Isa,
    /// What queries and keys are.
    form: OperandForm,
    causal: bool,
    mask_type: Option<ElementType>,
    /// Queries, keys and values.
    operands: [Operand; 3],
    /// The inputs of the mask, the scale and the sink, if they are there.
    others: [Option<usize>; 3],
    /// The order of the axes of the output.
    order: Order,
}

/// For each of the axes batch, heads, rows and columns, where it is in memory.
type Order = [usize; 4];

const PLAIN: Order = [0, 1, 2, 3];

/// Rows before heads.
const SWAPPED: Order = [0, 2, 1, 3];

/// One operand: an input of the layer, and how it is read.
#[derive(Debug, Clone)]
struct Operand {
    port: usize,
    order: Order,
    repetition: Option<Repetition>,
    codes: Option<Codes>,
}

/// What codes of one byte stand for: so many steps as they are above the code of zero.
#[derive(Debug, Clone, Copy)]
struct Codes {
    zero: u8,
    step: f32,
}

/// Heads that are repeated for their neighbours.
#[derive(Debug, Clone)]
struct Repetition {
    /// The inputs that the Broadcast and the Reshape read as their shapes.
    target: usize,
    pattern: usize,
    /// Whether 0 copies a dimension in the pattern.
    special_zero: bool,
}

/// Claims f32 attention.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (operation, mut kernel) = match context.node.operation.downcast_ref::<Fused>() {
        Some(fused) => of_stages(&fused.stages, context)?,
        None => (&*context.node.operation, of_ports()),
    };
    let operation = operation.downcast_ref::<ScaledDotProductAttention>()?;
    let type_of = |port: &usize| context.inputs.get(*port).map(|facts| facts.element_type);
    let [q, k, v] = &kernel.operands;
    let are_codes = q.codes.is_some();
    if k.codes.is_some() != are_codes || v.codes.is_some() {
        return None;
    }
    let of_scores = if are_codes { ElementType::U8 } else { ElementType::F32 };
    if [q, k].into_iter().any(|operand| type_of(&operand.port) != Some(of_scores)) {
        return None;
    }
    kernel.others.iter_mut().for_each(|port| *port = port.filter(|port| *port < context.inputs.len()));
    let [mask, scale, sink] = &kernel.others;
    let values = [&kernel.operands[2].port].into_iter().chain(scale).chain(sink);
    if !values.map(type_of).all(|element_type| element_type == Some(ElementType::F32)) {
        return None;
    }
    kernel.form = match (are_codes, bf16::is_wanted(context)) {
        (true, _) => OperandForm::Codes,
        (false, true) => OperandForm::Rounded,
        (false, false) => OperandForm::Values,
    };
    kernel.causal = operation.attributes.causal;
    kernel.mask_type = mask.as_ref().filter(|_| !kernel.causal).and_then(type_of);
    if !matches!(kernel.mask_type, None | Some(ElementType::F32 | ElementType::Boolean)) {
        return None;
    }
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The attention of a layer that is nothing else.
fn of_ports() -> AttentionKernel {
    AttentionKernel {
        isa: isa::detect(),
        form: OperandForm::Values,
        causal: false,
        mask_type: None,
        operands: [0, 1, 2].map(Operand::plain),
        others: [Some(3), Some(4), Some(5)],
        order: PLAIN,
    }
}

/// The attention among the stages of a fused layer.
fn of_stages<'a>(stages: &'a [Stage], context: &mut ClaimContext<'_>) -> Option<(&'a dyn Operation, AttentionKernel)> {
    let at = stages.iter().position(|stage| stage.operation.downcast_ref::<ScaledDotProductAttention>().is_some())?;
    let inputs = &stages[at].inputs;
    let mut operand = |place: usize| operand(stages, *inputs.get(place)?, context);
    let operands = [operand(0)?, operand(1)?, operand(2)?];
    let outside = |place: usize| match inputs.get(place) {
        Some(StageInput::Outside(port)) => Some(Some(*port)),
        Some(StageInput::Stage(_)) => None,
        None => Some(None),
    };
    let order = match &stages[at + 1..] {
        [] => PLAIN,
        [last] => swapped(last, context)?,
        _ => return None,
    };
    let kernel = AttentionKernel { operands, others: [outside(3)?, outside(4)?, outside(5)?], order, ..of_ports() };
    Some((&*stages[at].operation, kernel))
}

/// What an operand is made of.
fn operand(stages: &[Stage], input: StageInput, context: &mut ClaimContext<'_>) -> Option<Operand> {
    let index = match input {
        StageInput::Outside(port) => return Some(Operand::plain(port)),
        StageInput::Stage(index) => index,
    };
    let stage = stages.get(index)?;
    let first = *stage.inputs.first()?;
    let order = match &*stage.type_name {
        "FromRows" => ROWS_FIRST,
        "Transpose" => swapped(stage, context)?,
        "Decode" => {
            let codes = Codes::of(&stage.operation.downcast_ref::<Decode>()?.levels);
            return Some(Operand { codes: Some(codes?), ..operand(stages, first, context)? });
        }
        "Reshape" => {
            let StageInput::Stage(broadcast) = first else { return None };
            let broadcast = stages.get(broadcast).filter(|stage| stage.type_name == "Broadcast")?;
            let Some(StageInput::Stage(unsqueeze)) = broadcast.inputs.first() else { return None };
            let unsqueeze = stages.get(*unsqueeze).filter(|stage| stage.type_name == "Unsqueeze")?;
            let special_zero = stage.operation.downcast_ref::<Reshape>()?.attributes.special_zero;
            let repetition = Repetition { target: broadcast.outside(1)?, pattern: stage.outside(1)?, special_zero };
            let found = operand(stages, *unsqueeze.inputs.first()?, context)?;
            return found.repetition.is_none().then_some(Operand { repetition: Some(repetition), ..found });
        }
        _ => return None,
    };
    match first {
        StageInput::Outside(port) => Some(Operand { order, ..Operand::plain(port) }),
        StageInput::Stage(_) => None,
    }
}

/// The order of what a Transpose of rows and heads reads or gives.
fn swapped(stage: &Stage, context: &mut ClaimContext<'_>) -> Option<Order> {
    let order = (context.constant)(stage.outside(1).filter(|_| stage.type_name == "Transpose")?)?;
    let order = integers_of_view(order.view())?;
    ovir_optimize::swaps_rows_and_heads(&order).then_some(SWAPPED)
}

impl Operand {
    /// An input as it is.
    fn plain(port: usize) -> Operand {
        Operand { port, order: PLAIN, repetition: None, codes: None }
    }
}

impl Codes {
    /// The code of zero and the step of levels of whole tensors, if one is zero.
    fn of(levels: &Levels) -> Option<Codes> {
        let [step, zero] = levels.step_and_zero()?;
        let zero = zero.round();
        (0.0..=255.0).contains(&zero).then_some(Codes { zero: zero as u8, step: step as f32 })
    }
}

impl Repetition {
    /// Whether a Broadcast and a Reshape of so many images, heads, rows and columns repeat heads and nothing else.
    fn repeats(&self, [batch, heads, rows, columns]: [usize; 4], repeats: usize, io: &StepIo<'_, '_>) -> bool {
        let integers = |port: usize| io.inputs.get(port).copied().and_then(integers_of_view);
        let (Some(target), Some(pattern)) = (integers(self.target), integers(self.pattern)) else { return false };
        let is = |value: i64, size: usize| value == size as i64;
        let spread = [batch, heads, repeats, rows, columns];
        let is_target = target.len() == 5
            && target.iter().zip(spread).enumerate().all(|(axis, (value, size))| {
                // What is not 1 already is broadcast to itself.
                is(*value, size) || (axis != 2 && *value == 1)
            });
        let joined = [batch, heads * repeats, rows, columns];
        let is_pattern = pattern.len() == 4
            && pattern.iter().zip(joined).enumerate().all(|(axis, (value, size))| {
                is(*value, size) || *value == -1 || (*value == 0 && self.special_zero && spread[axis] == size)
            });
        is_target && is_pattern
    }
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

/// The strides of all axes of what lies in this order in memory; an axis of size 1 repeats.
fn ordered_strides(sizes: [usize; 4], order: Order) -> [usize; 4] {
    let mut strides = [0; 4];
    let mut step = 1usize;
    for place in (0..4).rev() {
        let axis = order.iter().position(|at| *at == place).unwrap_or(place);
        strides[axis] = if sizes[axis] == 1 { 0 } else { step };
        step = step.saturating_mul(sizes[axis]);
    }
    strides
}

/// The strides of all axes of a dense operand.
fn strides_of(sizes: [usize; 4]) -> [usize; 4] {
    ordered_strides(sizes, PLAIN)
}

fn misfit() -> OpError {
    OpError::shape(Blame::Node, "the kernel does not fit the shapes")
}

impl AttentionKernel {
    /// The sizes of batch, heads, rows and columns of a shape whose axes lie in this order.
    fn sizes(order: Order, shape: &Shape, output: &Shape) -> Option<[usize; 4]> {
        if order == PLAIN {
            return four(shape, output);
        }
        // Without a batch, there is one image.
        let missing = 4usize.checked_sub(shape.rank()).filter(|missing| *missing <= 1)?;
        Some(order.map(|axis| axis.checked_sub(missing).map_or(1, |axis| shape[axis])))
    }

    /// The shape of the result as the attention gives it, whatever the order of the output is.
    fn logical(&self, output: &Shape) -> Option<Shape> {
        match self.order {
            PLAIN => Some(output.clone()),
            order => Self::sizes(order, output, output).map(Shape::from),
        }
    }

    fn geometry(&self, inputs: &[&Shape], output: &Shape) -> Option<(AttentionGeometry, [usize; 4])> {
        let output = &self.logical(output)?;
        let o = four(output, output)?;
        let shape = |port: usize| inputs.get(port).copied();
        let [q, k, v] = &self.operands;
        let [q, k, v] = [q, k, v].map(|operand| Self::sizes(operand.order, shape(operand.port)?, output));
        let (q, k, v) = (q?, k?, v?);
        let are_repeated = self.operands[1].repetition.is_some() && self.operands[2].repetition.is_some();
        let repeats = if are_repeated { o[1].checked_div(k[1]).filter(|repeats| repeats * k[1] == o[1])? } else { 1 };
        let heads = |sizes: [usize; 4]| if are_repeated { sizes[1] * repeats } else { sizes[1] };
        let batches = |sizes: [usize; 4]| {
            (sizes[0] == 1 || sizes[0] == o[0]) && (heads(sizes) == o[1] || !are_repeated && sizes[1] == 1)
        };
        let fits = q[3] == k[3] && k[2] == v[2] && o[2] == q[2] && o[3] == v[3];
        let is_query = (0..2).all(|axis| q[axis] == 1 || q[axis] == o[axis]);
        let is_empty = [q, k, v, o].iter().any(|sizes| sizes.contains(&0));
        if is_empty || !fits || !(is_query && batches(k) && batches(v)) {
            return None;
        }
        let operand = |sizes: [usize; 4], order: Order| {
            let strides = ordered_strides(sizes, order);
            // The kernel wants a row apart from the next one even if there is none.
            [strides[0], strides[1], if sizes[2] == 1 { sizes[3] } else { strides[2] }]
        };
        let weights = [o[0], o[1], q[2], k[2]];
        let [mask, _, sink] = self.others;
        let mask = match mask.and_then(shape).filter(|_| self.mask_type.is_some()) {
            Some(shape) => {
                let sizes = four(shape, output)?;
                (0..4).all(|axis| sizes[axis] == 1 || sizes[axis] == weights[axis]).then(|| strides_of(sizes))?
            }
            None => [0; 4],
        };
        if let Some(shape) = sink.and_then(shape) {
            let (sizes, rows) = (four(shape, output)?, [o[0], o[1], q[2], 1]);
            (0..4).all(|axis| sizes[axis] == 1 || sizes[axis] == rows[axis]).then_some(())?;
        }
        let dense = AttentionGeometry::dense(
            [o[0], o[1], repeats],
            [q[2], k[2], q[3], v[3]],
            1.0 / (q[3] as f32).sqrt(),
            self.causal.then_some(0),
        );
        let geometry = AttentionGeometry {
            query_strides: operand(q, self.operands[0].order),
            key_strides: operand(k, self.operands[1].order),
            value_strides: operand(v, self.operands[2].order),
            output_strides: match self.order {
                PLAIN => dense.output_strides,
                order => operand(o, order),
            },
            ..dense
        };
        (self.form != OperandForm::Codes || geometry.takes_codes()).then_some((geometry, mask))
    }

    /// Queries and keys, and the factor that the steps of codes bring.
    fn queries_and_keys<'a>(&self, inputs: &'a [TensorView<'_>]) -> OpResult<(QueriesAndKeys<'a>, f32)> {
        let view = |operand: &Operand| inputs.get(operand.port).ok_or_else(misfit);
        let [q, k, _] = &self.operands;
        let (queries, keys) = (view(q)?, view(k)?);
        Ok(match (q.codes, k.codes) {
            (Some(q), Some(k)) => {
                (QueriesAndKeys::Codes(queries.slice()?, keys.slice()?, [q.zero, k.zero]), q.step * k.step)
            }
            _ if self.form == OperandForm::Rounded => (QueriesAndKeys::Rounded(queries.slice()?, keys.slice()?), 1.0),
            _ => (QueriesAndKeys::Values(queries.slice()?, keys.slice()?), 1.0),
        })
    }
}

impl Kernel for AttentionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.outputs.first().is_some_and(|output| self.geometry(shapes.inputs, output).is_some())
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let geometry = shapes.outputs.first().and_then(|output| self.geometry(shapes.inputs, output));
        geometry.map_or(0, |(g, _)| attention_scratch_len(self.isa, &g, self.form).saturating_mul(size_of::<f32>()))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let [_, Operand { port, order, .. }, _] = &self.operands;
        let (Some(k), [output]) = (shapes.inputs.get(*port), shapes.outputs) else { return 0 };
        let rows = if *order == PLAIN { k.rank().saturating_sub(2) } else { order[2] };
        let keys = k.get(rows).copied().unwrap_or(0);
        nanoseconds_for_flops((output.elements() as u64).saturating_mul(4 * keys as u64))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let shapes: SmallVec<[&Shape; 8]> = io.inputs.iter().map(TensorView::shape).collect();
        let [output] = &*io.outputs else { return Ok(()) };
        let geometry = self.geometry(&shapes, output.shape());
        let (mut geometry, strides) = geometry.ok_or_else(misfit)?;
        for operand in &self.operands {
            let (Some(repetition), Some(shape)) = (&operand.repetition, shapes.get(operand.port)) else { continue };
            let sizes = operand.order.map(|axis| shape[axis]);
            if !repetition.repeats(sizes, geometry.heads_per_key_head, &io) {
                let message = "keys or values are repeated along other axes than their heads";
                return Err(OpError::unsupported(message));
            }
        }
        let given = |port: Option<usize>| port.and_then(|port| io.inputs.get(port));
        let [mask, scale, sink] = self.others.map(given);
        if let Some(scale) = scale {
            geometry.scale = scale.slice::<f32>()?.first().copied().unwrap_or(geometry.scale);
        }
        let mask = match (mask, self.mask_type) {
            (Some(mask), Some(ElementType::Boolean)) => AttentionMask::Boolean(mask.slice::<u8>()?, strides),
            (Some(mask), Some(_)) => AttentionMask::Additive(mask.slice::<f32>()?, strides),
            _ => AttentionMask::None,
        };
        let v = io.inputs.get(self.operands[2].port).ok_or_else(misfit)?.slice::<f32>()?;
        let (queries_and_keys, step) = self.queries_and_keys(io.inputs)?;
        geometry.scale *= step;
        let sink = match sink {
            Some(sink) => {
                let logical = self.logical(output.shape()).ok_or_else(misfit)?;
                let sizes = four(sink.shape(), &logical).ok_or_else(misfit)?;
                let [batch, head, row, _] = strides_of(sizes);
                Some((sink.slice::<f32>()?, [batch, head, row]))
            }
            None => None,
        };
        let [output] = io.outputs else { return Ok(()) };
        let (target, scratch) = (output.slice_mut::<f32>()?, scratch_f32(io.scratch));
        attention(self.isa, &geometry, queries_and_keys, v, mask, sink, target, scratch).map_err(kernel_error)
    }
}
