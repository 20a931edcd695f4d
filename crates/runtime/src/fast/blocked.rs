//! Layers on values whose channels lie in blocks of sixteen: convolutions, and everything between them that can carry
//! the layout along.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::blocked::{
    BLOCK, BlockedConvolution, BlockedDepthwise, BlockedInput, ChannelRange, DepthwiseInput, DepthwiseWeights,
    MOST_DIRECT_TAPS, MOST_NARROW, NarrowConvolution, blocked_channels, blocked_convolution,
    blocked_convolution_nanoseconds, blocked_convolution_scratch_len, blocked_depthwise, blocked_pad, blocked_pooling,
    narrow_convolution,
};
use ovir_kernels::chain::MOST_INPUTS;
use ovir_kernels::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::movement::concat_part;
use ovir_kernels::parallel::{nanoseconds_for_bytes, nanoseconds_for_flops};
use ovir_kernels::pooling::PoolingKind;
use ovir_kernels::quantized::{Decodings, Encodings, QuantizedOutput, blocked_max_codes};
use ovir_kernels::reduce::{ReduceOp, reduce};
use ovir_ops::movement::{
    concat::Concat,
    pad::{Pad, PadMode},
    slice::Slice,
    split::Split,
    variadic_split::VariadicSplit,
};
use ovir_ops::{Blame, OpError, OpResult, ValueFacts};
use ovir_tensor::{ElementType, NativeElement, PartialShape, Shape, SmallVec, Tensor, TensorView, TensorViewMut};

use crate::layout::{Layout, Reorder, nominal_elements, physical_shape, sizes, write_blocked, write_plain};

use super::convolution::{Form, kernel_geometry, smallest_data};
use super::layout::{around, axis_of};
use super::parts::{EpilogueParts, Parts, QuantizedData, QuantizedParts, floats, kernel_error, scratch_f32};
use super::quantized::{decodings_of, encodings_of};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes, Stored};

/// Convolutions from so few channels read plain values.
const FEW_CHANNELS: usize = ovir_optimize::FEW_CHANNELS;

/// The most taps of a depthwise kernel.
const MOST_TAPS: usize = ovir_optimize::MOST_CODE_TAPS;

/// Nanoseconds an operation takes in a plain and in a blocked convolution of many channels.
const PLAIN_FLOP: f64 = 1.0 / 65.0;
const BLOCKED_FLOP: f64 = 1.0 / 110.0;

/// Nanoseconds an operation takes in a plain convolution that sums `taps` products for each of `channels`: products of
/// matrices with few rows or short sums do not fill their tiles.
pub(super) fn plain_flop(taps: f64, channels: f64) -> f64 {
    PLAIN_FLOP * (1.0 + 24.0 / taps) * (1.0 + 8.0 / channels)
}

/// Nanoseconds an operation takes in a plain convolution of few channels whose lanes are columns of the output.
const LINE_FLOP: f64 = 1.0 / 80.0;

/// The same with so many output channels, whose sums share what is read, and so many columns.
fn line_flop(channels: usize, columns: usize) -> f64 {
    LINE_FLOP * (1.0 + 0.5 / channels as f64) / use_of_lanes(columns)
}

/// How many times as many positions a plain convolution of windows computes as there are: as many as a vector has at least.
fn empty_columns(output: &PartialShape, filter: &Shape) -> f64 {
    let Some(shape) = output.to_shape() else { return 1.0 };
    let [_, _, plane @ ..] = &shape[..] else { return 1.0 };
    let is_pointwise = filter.iter().rev().take(plane.len()).all(|size| *size == 1);
    match plane.iter().product::<usize>() {
        positions @ 1..BLOCK if !is_pointwise => BLOCK as f64 / positions as f64,
        _ => 1.0,
    }
}

/// Nanoseconds that a plain convolution of windows takes to lay out what a tap reads for a line of the output, and for each vector
/// of it.
const PATCH_LINE: f64 = 2.5;
const PATCH_VECTOR: f64 = 1.0;

/// Nanoseconds that laying out its patches takes, with so many taps over all channels.
fn patches_nanoseconds(output: &PartialShape, filter: &Shape, taps: f64) -> f64 {
    let Some(shape) = output.to_shape() else { return 0.0 };
    let [batch, _, lines @ .., wide] = &shape[..] else { return 0.0 };
    if filter.iter().rev().take(lines.len() + 1).all(|size| *size == 1) {
        return 0.0;
    }
    let lines = (batch * lines.iter().product::<usize>()) as f64;
    lines * taps * (PATCH_LINE + PATCH_VECTOR * wide.div_ceil(BLOCK) as f64)
}

/// Nanoseconds that an operation takes in a blocked convolution, whose tiles have sixteen channels.
pub(super) fn blocked_flop(taps: f64, channels: usize) -> f64 {
    BLOCKED_FLOP * (1.0 + 8.0 / taps) / use_of_lanes(channels)
}

/// Nanoseconds of a tap, and of the sum over the lanes, of a convolution into few plain channels.
pub(super) const NARROW_TAP: f64 = 1.0 / 40.0;
pub(super) const NARROW_SUM: f64 = 3.0;

/// How many times as long an operation takes where the channels of a block belong to several groups.
const SHARED_BLOCKS: f64 = 2.0;

/// How many times as long a product takes in blocks of straddling groups, which are computed one by one.
const STRADDLED_BLOCKS: f64 = 1.25;

/// The most products that blocks of straddling groups may take for each that is needed.
const MOST_WASTE: f64 = 2.25;

/// Nanoseconds that a tap of a pooling or a depthwise convolution of unknown sizes takes less on blocks, where a vector is sixteen
/// channels, by its strides: plain values that lie apart along lines are gathered one by one.
fn tap_gain(strides: &[i64]) -> f64 {
    if strides.last().is_none_or(|stride| *stride == 1) { 0.15 } else { 0.33 }
}

/// Nanoseconds that a depthwise convolution of plain lines takes for a row of the output, more of it where columns have strides,
/// for a vector of its columns and for each tap of one.
const ROW: f64 = 20.0;
const ROW_OF_STRIDES: f64 = 45.0;
const ROW_VECTOR: f64 = 3.0;
const ROW_TAP: f64 = 0.23;

/// Nanoseconds that one on blocks takes for a position of sixteen channels and for each tap of one.
const POSITION: f64 = 3.0;
const POSITION_TAP: f64 = 0.3;

/// Nanoseconds that a depthwise convolution takes longer on plain lines than on blocks.
fn depthwise_gain(output: &Shape, taps: f64, stride: i64, dilation: usize) -> Option<f64> {
    let [batch, channels, planes @ .., high, wide] = &output[..] else { return None };
    let row = if stride > 1 { ROW_OF_STRIDES } else { ROW };
    let row = row + (ROW_VECTOR + ROW_TAP * taps) * wide.div_ceil(BLOCK) as f64;
    // Four rows at a time share lines, as far apart as taps are; more than there are is as much as all of them.
    let together = dilation.clamp(1, (*high).max(1)).saturating_mul(4);
    let rows = high.checked_next_multiple_of(together).unwrap_or(*high) as f64;
    let blocked = (high * wide) as f64 * (POSITION + POSITION_TAP * taps);
    let planes = (batch * planes.iter().product::<usize>()) as f64;
    Some(planes * (*channels as f64 * rows * row - channels.div_ceil(BLOCK) as f64 * blocked))
}

/// Nanoseconds that a pooling of plain lines takes for a line of the output, for a vector of its columns and for each tap of one, and
/// for a column that is picked by itself; and on blocks, for a position of sixteen channels and for each of its taps.
const POOLED_LINE: f64 = 30.0;
const POOLED_VECTOR: f64 = 4.0;
const POOLED_TAP: f64 = 1.3;
const POOLED_COLUMN: f64 = 1.0;
const POOLED_POSITION: f64 = 2.0;

/// The same of windows of many taps, whose rows are joined before their columns: for each row and each column of them, as often as
/// windows are columns apart.
const JOINED_ROW: f64 = 1.4;
const JOINED_BLOCK_ROW: f64 = 0.7;

/// Nanoseconds that a pooling takes longer on plain lines than on blocks.
fn pooling_gain(output: &Shape, kernel: &[i64], stride: i64) -> Option<f64> {
    let [batch, channels, lines @ .., wide] = &output[..] else { return None };
    let (columns, rows) = kernel.split_last()?;
    let rows: f64 = rows.iter().map(|size| *size as f64).product();
    let (columns, stride) = (*columns as f64, stride as f64);
    let lines = (batch * lines.iter().product::<usize>()) as f64;
    let vectors = wide.div_ceil(BLOCK) as f64;
    let (plain, blocked) = if rows * columns <= MOST_DIRECT_TAPS as f64 {
        let taps = rows * columns;
        let picked = if stride > 2.0 { POOLED_COLUMN * *wide as f64 } else { 0.0 };
        (POOLED_LINE + (POOLED_VECTOR + POOLED_TAP * taps) * vectors + picked, POSITION_TAP * taps)
    } else {
        (POOLED_LINE + JOINED_ROW * (rows + columns) * stride * vectors, JOINED_BLOCK_ROW * (rows * stride + columns))
    };
    let blocked = *wide as f64 * (POOLED_POSITION + blocked);
    Some(lines * (*channels as f64 * plain - channels.div_ceil(BLOCK) as f64 * blocked))
}

/// A layer that can run on blocks.
pub(crate) struct Candidate {
    /// The layouts that it wants of its inputs.
    pub inputs: SmallVec<[Layout; 4]>,
    /// The layout of its outputs.
    pub output: Layout,
    /// Nanoseconds that it gains by it; 0 for layers that only carry the layout along.
    pub gain: f64,
    /// The channels that its blocked inputs have, where it knows more of them than shapes tell.
    pub channels: Option<usize>,
    /// Whether it is on blocks for the sake of its readers alone.
    pub is_for_readers: bool,
}

impl Candidate {
    pub fn carrier(inputs: SmallVec<[Layout; 4]>) -> Candidate {
        Candidate { inputs, output: Layout::Blocked, gain: 0.0, channels: None, is_for_readers: false }
    }

    /// A carrier whose first input is the value and whose other inputs are constants.
    pub fn of_first(count: usize) -> Candidate {
        let mut inputs = SmallVec::from_elem(Layout::Plain, count);
        if let Some(first) = inputs.first_mut() {
            *first = Layout::Blocked;
        }
        Candidate::carrier(inputs)
    }

    /// The same, but plain where no reader wants blocks.
    pub fn for_readers(self) -> Candidate {
        Candidate { is_for_readers: true, ..self }
    }
}

/// Whether a layer can run on blocks, for all shapes that its values may have; `is_blocked` tells that its first input
/// is on blocks.
pub(crate) fn candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
    is_blocked: bool,
) -> Option<Candidate> {
    if let Some(found) = super::rows::candidate(node, inputs, outputs, is_blocked) {
        return Some(found);
    }
    if let Some(found) = super::quantized::candidate(node, inputs, outputs, is_constant) {
        return Some(found);
    }
    if let Some(found) = super::averages::candidate(node, inputs, outputs) {
        return Some(found);
    }
    // Values, or codes of values.
    let output = outputs.first()?;
    matches!(output.element_type, ElementType::F32 | ElementType::U8).then(|| channels_of(&output.shape))??;
    convolution_candidate(node, inputs, outputs, is_constant)
        .or_else(|| super::transposed::candidate(node, inputs, outputs, is_constant))
        .or_else(|| elementwise_candidate(node, inputs, outputs, is_constant))
        .or_else(|| plane_candidate(node, inputs, outputs, is_constant))
        .or_else(|| channel_candidate(node, inputs, outputs, is_constant))
        .or_else(|| super::regions::candidate(node, inputs, outputs))
}

/// Claims a layer that the plan has put on blocks.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    super::quantized::claim_blocked(context)
        .or_else(|| super::quantized::claim_encode(context))
        .or_else(|| super::quantized::claim_decode(context))
        .or_else(|| claim_convolution(context))
        .or_else(|| super::transposed::claim_blocked(context))
        .or_else(|| super::chain::claim(context))
        .or_else(|| super::unary::claim(context))
        .or_else(|| super::fake_quantize::claim_blocked(context))
        .or_else(|| super::averages::claim(context))
        .or_else(|| claim_pooling(context))
        .or_else(|| claim_reduction(context))
        .or_else(|| super::normalization::claim_blocked(context))
        .or_else(|| claim_pad(context))
        .or_else(|| super::regions::claim(context))
        .or_else(|| super::interpolate::claim_blocked(context))
        .or_else(|| super::rows::claim(context))
        .or_else(|| claim_channels(context))
}

/// Claims a reorder.
pub(crate) fn claim_reorder(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let to = context.node.operation.downcast_ref::<Reorder>()?.to;
    Some(Claim { kernel: Box::new(ReorderKernel { to }), packed_inputs: SmallVec::new() })
}

/// The channels of an f32 value of lines, images or volumes.
pub(crate) fn channels(facts: &ValueFacts) -> Option<usize> {
    (facts.element_type == ElementType::F32).then(|| channels_of(&facts.shape))?
}

/// The channels of lines, images or volumes.
pub(super) fn channels_of(shape: &PartialShape) -> Option<usize> {
    let dims = shape.dims().filter(|dims| matches!(dims.len(), 3..=5))?;
    dims[1].get().filter(|channels| *channels > 0)
}

fn is_blockable(facts: &ValueFacts) -> bool {
    channels(facts).is_some()
}

/// Whether values or codes can lie in blocks.
pub(super) fn is_movable(facts: &ValueFacts) -> bool {
    matches!(facts.element_type, ElementType::F32 | ElementType::U8) && channels_of(&facts.shape).is_some()
}

/// The share of lanes that are in use.
fn use_of_lanes(channels: usize) -> f64 {
    channels as f64 / channels.next_multiple_of(BLOCK) as f64
}

// Convolutions.

/// How a convolution runs on blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Dense(BlockedInput),
    Depthwise,
    /// Into few plain channels.
    Narrow,
}

/// How a convolution of any size runs; `geometry` is the one of the smallest data.
fn way(
    form: &Form,
    filter: &[usize],
    data_channels: usize,
    has_residual: bool,
    geometry: &ConvolutionGeometry,
) -> Option<Way> {
    let is_plane = !geometry.has_depth();
    match form {
        Form::Plain(_) if *filter.first()? <= MOST_NARROW && data_channels > FEW_CHANNELS && !has_residual => {
            Some(Way::Narrow)
        }
        Form::Plain(_)
            if data_channels <= FEW_CHANNELS && BlockedConvolution::can_be(geometry, BlockedInput::Plain) =>
        {
            Some(Way::Dense(BlockedInput::Plain))
        }
        Form::Plain(_) => Some(Way::Dense(BlockedInput::Blocked)),
        Form::Grouped(_) => match filter {
            [1, _, _, ..] if data_channels > FEW_CHANNELS => Some(Way::Dense(BlockedInput::Blocked)),
            [_, 1, 1, ..] if !is_plane => None,
            [_, 1, 1, taps @ ..] if taps.iter().product::<usize>() <= MOST_TAPS => Some(Way::Depthwise),
            // Blocks would read a channel for each of the few that belong to it, and as many others for nothing.
            [_, 2..BLOCK, 1, ..] => None,
            [_, outputs, inputs, ..] if outputs.is_multiple_of(BLOCK) && inputs.is_multiple_of(BLOCK) => {
                Some(Way::Dense(BlockedInput::Blocked))
            }
            [_, outputs, inputs, ..] if BlockedConvolution::shares_blocks(*outputs, *inputs) => {
                Some(Way::Dense(BlockedInput::Blocked))
            }
            [groups, outputs, ..] if BlockedConvolution::waste(*groups, *outputs) <= MOST_WASTE => {
                Some(Way::Dense(BlockedInput::Blocked))
            }
            _ => None,
        },
    }
}

/// The port of the data and the shape of the filter, if the filter is a constant of f32 and the data are not one.
pub(super) fn constant_filter(
    parts: &Parts<'_>,
    inputs: &[&ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<(usize, Shape)> {
    let (data, filter) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    let facts = inputs.get(filter)?;
    let is_fixed = is_constant(filter) && facts.element_type == ElementType::F32 && !is_constant(data);
    Some((data, facts.shape.to_shape().filter(|_| is_fixed)?))
}

/// The same for a filter of a depthwise convolution that is known only when the layer runs, such as the one that a tracker
/// computes from its template.
fn computed_filter(
    parts: &Parts<'_>,
    form: &Form,
    inputs: &[&ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<(usize, Shape)> {
    let (data, filter) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    let is_computed = !is_constant(filter) && !is_constant(data) && data != filter;
    let shape = depthwise_filter(form, inputs.get(filter)?)?;
    is_computed.then_some((data, shape))
}

/// The shape of a computed filter, if it is one of a depthwise convolution.
fn depthwise_filter(form: &Form, facts: &ValueFacts) -> Option<Shape> {
    let shape = facts.shape.to_shape().filter(|_| facts.element_type == ElementType::F32)?;
    let is_depthwise = matches!(form, Form::Grouped(_)) && matches!(shape[..], [_, 1, 1, ..]);
    is_depthwise.then_some(shape)
}

fn convolution_candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<Candidate> {
    let (parts, coded) = convolution_parts(node)?;
    let form = Form::of(parts.root)?;
    let computed = computed_filter(&parts, &form, inputs, is_constant).filter(|_| coded.is_none());
    let is_computed = computed.is_some();
    let (data, filter_shape) = computed.or_else(|| constant_filter(&parts, inputs, is_constant))?;
    let data_channels = data_channels(&form, inputs.get(data)?, &filter_shape)?;
    let has_residual = parts.residual.is_some() || parts.bias.is_some_and(|port| !is_constant(port));
    let geometry = smallest_geometry(&form, &filter_shape)?;
    let way = way(&form, &filter_shape, data_channels, has_residual, &geometry)?;
    (way == Way::Depthwise || coded.is_none() && !is_computed).then_some(())?;
    let mut layouts: SmallVec<[Layout; 4]> = SmallVec::from_elem(Layout::Plain, inputs.len());
    if way != Way::Dense(BlockedInput::Plain) {
        layouts[data] = Layout::Blocked;
    }
    if let Some(port) = parts.residual.or(parts.bias.filter(|port| !is_constant(*port))) {
        let is_value = !is_constant(port) && is_blockable(inputs.get(port)?);
        // A layer that adds its own data has one port for both.
        let is_consistent = port != data || layouts[data] == Layout::Blocked;
        (is_value && is_consistent).then_some(())?;
        layouts[port] = Layout::Blocked;
    }
    let output = outputs.first()?;
    let output_channels = channels_of(&output.shape)?;
    let taps: usize = filter_shape.iter().product::<usize>() / output_channels.max(1);
    let flops = 2.0 * nominal_elements(&output.shape) * taps as f64;
    // Whether a plain one computes neighbouring columns side by side, where shapes tell.
    let plain_lines = inputs.get(data).and_then(|facts| facts.shape.to_shape()).and_then(|shape| {
        let geometry = kernel_geometry(&form.geometry(&shape, &filter_shape).ok()?).ok()?;
        let has_lines = if way == Way::Depthwise { geometry.has_lines() } else { geometry.has_few_channels() };
        has_lines.then_some(geometry)
    });
    let gain = match way {
        Way::Dense(_) => {
            let taps = taps.max(1) as f64;
            let (of_group, factor) = match (&form, &filter_shape[..]) {
                (Form::Grouped(_), [groups, outputs, inputs, ..]) => {
                    (*outputs, group_factor(*groups, *outputs, *inputs))
                }
                _ => (output_channels, 1.0),
            };
            let plain = match plain_lines {
                Some(geometry) => line_flop(of_group, geometry.output()[2]),
                None => plain_flop(taps, of_group as f64) * empty_columns(&output.shape, &filter_shape),
            };
            // With more channels, products take most of the time.
            let patches = match form {
                Form::Plain(_) if output_channels <= BLOCK && plain_lines.is_none() => {
                    patches_nanoseconds(&output.shape, &filter_shape, taps)
                }
                _ => 0.0,
            };
            patches + flops * (plain - blocked_flop(taps, output_channels) * factor)
        }
        // There is no other kernel.
        Way::Depthwise if coded.is_some() => super::quantized::GAIN,
        Way::Depthwise => {
            let shapes = plain_lines.zip(output.shape.to_shape());
            let stride = form.strides().last().copied().unwrap_or(1);
            let gain = shapes.and_then(|(geometry, output)| {
                depthwise_gain(&output, taps as f64, stride, geometry.dilation()[1].max(1))
            });
            gain.unwrap_or_else(|| {
                let tap = tap_gain(form.strides()) * use_of_lanes(output_channels);
                nominal_elements(&output.shape) * taps as f64 * tap
            })
        }
        Way::Narrow => {
            let taps = taps.max(1) as f64;
            let plain = 2.0 * taps * plain_flop(taps, output_channels as f64);
            nominal_elements(&output.shape) * (plain - taps * NARROW_TAP - NARROW_SUM)
                + patches_nanoseconds(&output.shape, &filter_shape, taps)
        }
    };
    let output = if way == Way::Narrow { Layout::Plain } else { Layout::Blocked };
    Some(Candidate { output, gain, channels: Some(data_channels), ..Candidate::carrier(layouts) })
}

/// The levels of the codes that a depthwise convolution reads and writes.
#[derive(Default)]
struct Coded {
    data: Option<Decodings>,
    output: Option<Encodings>,
}

/// The parts of a convolution, and the codes of a depthwise one.
fn convolution_parts(node: &Node) -> Option<(Parts<'_>, Option<Coded>)> {
    let Some(QuantizedParts { parts, data, output, .. }) = QuantizedParts::of(node) else {
        return Some((Parts::of(node)?, None));
    };
    let mut coded = Coded::default();
    match data {
        QuantizedData::Values => {}
        QuantizedData::Codes(levels) => coded.data = Some(decodings_of(levels)?),
        QuantizedData::Encoded(_) => return None,
    }
    if let Some(levels) = output {
        coded.output = Some(encodings_of(levels)?);
    }
    Some((parts, Some(coded)))
}

/// How many times as long the products of groups take as those of whole blocks.
fn group_factor(groups: usize, outputs: usize, inputs: usize) -> f64 {
    match (BlockedConvolution::shares_blocks(outputs, inputs), outputs.is_multiple_of(BLOCK)) {
        (true, _) => SHARED_BLOCKS,
        (false, true) if inputs.is_multiple_of(BLOCK) => 1.0,
        _ => BlockedConvolution::waste(groups, outputs) * STRADDLED_BLOCKS,
    }
}

/// The channels of the data of a convolution, which the filter knows where the shape does not.
fn data_channels(form: &Form, data: &ValueFacts, filter: &Shape) -> Option<usize> {
    let of_filter = match (form, &filter[..]) {
        (Form::Plain(_), [_, inputs, ..]) => *inputs,
        (Form::Grouped(_), [groups, _, inputs, ..]) => groups.checked_mul(*inputs)?,
        _ => return None,
    };
    let dims = data.shape.dims()?;
    let is_image = matches!(data.element_type, ElementType::F32 | ElementType::U8) && matches!(dims.len(), 3..=5);
    is_image.then(|| dims[1].get().or(Some(of_filter)))?.filter(|channels| *channels > 0)
}

/// A convolution into blocks.
struct ConvolutionKernel {
    isa: Isa,
    form: Form,
    filter: Shape,
    weights: Weights,
    epilogue: EpilogueParts,
    coded: Coded,
    data_port: usize,
}

enum Weights {
    Narrow(Arc<NarrowConvolution>),
    Dense(Arc<BlockedConvolution>),
    Depthwise(Arc<BlockedDepthwise>),
    /// Those of a depthwise convolution at this port, which are packed when the layer runs.
    Computed(usize),
}

fn claim_convolution(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (parts, coded) = convolution_parts(context.node)?;
    let form = Form::of(parts.root)?;
    let (data_port, filter_port) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    let filter = (context.constant)(filter_port);
    let filter_shape = match &filter {
        Some(filter) => filter.shape().clone(),
        None => depthwise_filter(&form, context.inputs.get(filter_port)?)?,
    };
    let data_channels = data_channels(&form, context.inputs.get(data_port)?, &filter_shape)?;
    let epilogue = parts.epilogue(context, channels_of(&context.outputs.first()?.shape)?)?;
    let geometry = smallest_geometry(&form, &filter_shape)?;
    let way = way(&form, &filter_shape, data_channels, epilogue.residual.is_some(), &geometry)?;
    (way == Way::Depthwise || coded.is_none()).then_some(())?;
    let Some(filter) = filter else {
        (way == Way::Depthwise && coded.is_none()).then_some(())?;
        let packed_inputs = parts.packed_ports(&epilogue).into_iter().collect();
        let (isa, weights, coded) = (isa::detect(), Weights::Computed(filter_port), Coded::default());
        let kernel = ConvolutionKernel { isa, form, filter: filter_shape, weights, epilogue, coded, data_port };
        return Some(Claim { kernel: Box::new(kernel), packed_inputs });
    };
    let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[filter_port]);
    packed_inputs.extend(parts.packed_ports(&epilogue));
    if way == Way::Dense(BlockedInput::Blocked)
        && has_whole_groups(&filter_shape, &form)
        && super::bf16::is_wanted(context)
    {
        let ports = (data_port, filter_port);
        let kernel = super::bf16::convolution(context, form, ports, &filter, &geometry, epilogue)?;
        return Some(Claim { kernel, packed_inputs });
    }
    let key = context.key(filter_port, &filter);
    let values = filter.aligned().ok()?;
    // The filter as it is stored, for data that are codes.
    let stored = if way == Way::Depthwise && coded.as_ref().is_some_and(|coded| coded.data.is_some()) {
        (context.stored)(filter_port).and_then(|stored| signed_codes(&stored, &filter_shape))
    } else {
        None
    };
    let weights = match way {
        Way::Depthwise if stored.is_some() => {
            let (codes, scales) = stored?;
            Weights::Depthwise(context.packed.get(key, format!("blocked depthwise codes {filter_shape}"), || {
                BlockedDepthwise::of_codes(&geometry, codes.slice::<i8>().ok()?, &scales).ok()
            })?)
        }
        Way::Depthwise => {
            Weights::Depthwise(context.packed.get(key, format!("blocked depthwise {filter_shape}"), || {
                BlockedDepthwise::pack(&geometry, values.slice::<f32>().ok()?).ok()
            })?)
        }
        Way::Narrow => {
            Weights::Narrow(context.packed.get(key, format!("narrow convolution {filter_shape}"), || {
                NarrowConvolution::pack(&geometry, values.slice::<f32>().ok()?).ok()
            })?)
        }
        Way::Dense(input) => {
            Weights::Dense(context.packed.get(key, format!("blocked convolution {filter_shape} {input:?}"), || {
                BlockedConvolution::pack(&geometry, input, values.slice::<f32>().ok()?).ok()
            })?)
        }
    };
    let (isa, coded) = (isa::detect(), coded.unwrap_or_default());
    let kernel = ConvolutionKernel { isa, form, filter: filter_shape, weights, epilogue, coded, data_port };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// The signed codes of a depthwise filter and the scale of each channel, if it is stored so.
fn signed_codes(stored: &Stored, filter: &Shape) -> Option<(Tensor, Vec<f32>)> {
    let channels = *filter.first()?;
    let taps = filter.elements() / channels.max(1);
    if stored.zero.is_some() || stored.codes.element_type() != ElementType::I8 {
        return None;
    }
    let matrix = stored.matrix(taps, channels, true).filter(|matrix| matrix.group == taps)?;
    let scales = matrix.scales.unwrap_or_else(|| vec![1.0; channels]);
    Some((stored.codes.aligned().ok()?, scales))
}

/// Whether the groups of a convolution, if it has any, are whole blocks of both channels.
fn has_whole_groups(filter: &[usize], form: &Form) -> bool {
    match (form, filter) {
        (Form::Grouped(_), [1, ..]) | (Form::Plain(_), _) => true,
        (Form::Grouped(_), [_, outputs, inputs, ..]) => outputs.is_multiple_of(BLOCK) && inputs.is_multiple_of(BLOCK),
        _ => false,
    }
}

/// The geometry of a convolution for the smallest data, which is what packing needs to know.
fn smallest_geometry(form: &Form, filter: &Shape) -> Option<ConvolutionGeometry> {
    Some(kernel_geometry(&form.geometry(&smallest_data(form, filter)?, filter).ok()?).ok()?.flattened())
}

impl ConvolutionKernel {
    fn geometry(&self, data: &Shape) -> Option<ConvolutionGeometry> {
        Some(kernel_geometry(&self.form.geometry(data, &self.filter).ok()?).ok()?.flattened())
    }

    /// Whether the kernel has what a geometry asks for.
    fn can_be(&self, geometry: &ConvolutionGeometry) -> bool {
        match &self.weights {
            Weights::Dense(weights) => BlockedConvolution::can_be(geometry, weights.input()),
            Weights::Narrow(_) => true,
            Weights::Depthwise(_) | Weights::Computed(_) => !geometry.has_depth(),
        }
    }
}

impl Kernel for ConvolutionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let geometry = shapes.inputs.get(self.data_port).and_then(|data| self.geometry(data));
        let is_output = |port: usize| shapes.inputs.get(port) == shapes.outputs.first();
        if let Weights::Computed(port) = self.weights {
            let is_filter = shapes.inputs.get(port).is_some_and(|shape| **shape == self.filter);
            if !is_filter {
                return false;
            }
        }
        let fits = |g: &ConvolutionGeometry| {
            shapes.outputs.first().is_some_and(|output| g.output_len() == output.elements()) && self.can_be(g)
        };
        geometry.as_ref().is_some_and(fits) && self.epilogue.residual.is_none_or(is_output)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let geometry = shapes.inputs.get(self.data_port).and_then(|data| self.geometry(data));
        match (geometry, &self.weights) {
            (Some(geometry), Weights::Dense(weights)) => {
                blocked_convolution_scratch_len(&geometry, weights.input()).saturating_mul(size_of::<f32>())
            }
            (Some(geometry), Weights::Computed(_)) => DepthwiseWeights::len(&geometry).saturating_mul(size_of::<f32>()),
            _ => 0,
        }
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        match self.weights {
            Weights::Dense(_) | Weights::Depthwise(_) | Weights::Computed(_) if self.coded.output.is_none() => {
                // What a convolution adds may be its own data, which it reads to the end.
                self.epilogue.residual.into_iter().filter(|port| *port != self.data_port).collect()
            }
            _ => SmallVec::new(),
        }
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let geometry = shapes.inputs.get(self.data_port).and_then(|data| self.geometry(data));
        geometry.map_or(0, |g| match self.weights {
            Weights::Dense(_) => blocked_convolution_nanoseconds(&g),
            _ => nanoseconds_for_flops(g.flops()),
        })
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[self.data_port];
        let geometry = self.geometry(data.shape()).ok_or_else(misfit)?;
        let residual = match self.epilogue.residual.filter(|port| io.in_place != Some(*port)) {
            Some(port) => Some(io.inputs[port].slice::<f32>()?),
            None => None,
        };
        let epilogue = ConvolutionEpilogue {
            bias: self.epilogue.bias.as_deref(),
            residual,
            accumulates: io.in_place.is_some(),
            activation: self.epilogue.activation.view(true),
        };
        match &self.weights {
            Weights::Dense(weights) => {
                let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
                let scratch = scratch_f32(io.scratch);
                blocked_convolution(self.isa, &geometry, weights, values, target, &epilogue, scratch)
            }
            Weights::Narrow(weights) => {
                let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
                narrow_convolution(self.isa, &geometry, weights, values, target, &epilogue)
            }
            Weights::Depthwise(weights) => {
                let input = match &self.coded.data {
                    Some(decodings) => DepthwiseInput::Codes(data.slice::<u8>()?, decodings),
                    None => DepthwiseInput::Values(data.slice::<f32>()?),
                };
                let target = match &self.coded.output {
                    Some(encodings) => QuantizedOutput::Codes(output.slice_mut::<u8>()?, encodings),
                    None => QuantizedOutput::Values(output.slice_mut::<f32>()?),
                };
                blocked_depthwise(self.isa, &geometry, weights.weights(), input, target, &epilogue)
            }
            Weights::Computed(port) => {
                let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
                let scratch = scratch_f32(io.scratch);
                DepthwiseWeights::pack(&geometry, io.inputs[*port].slice::<f32>()?, scratch).and_then(|weights| {
                    let (input, target) = (DepthwiseInput::Values(values), QuantizedOutput::Values(target));
                    blocked_depthwise(self.isa, &geometry, weights, input, target, &epilogue)
                })
            }
        }
        .map_err(kernel_error)
    }
}

pub(crate) fn misfit() -> OpError {
    OpError::shape(Blame::Input(0), "the kernel does not fit the data")
}

// Elementwise layers.

fn elementwise_candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<Candidate> {
    let count = channels_of(&outputs.first()?.shape)?;
    if let [data, rest @ ..] = inputs
        && (1..inputs.len()).all(is_constant)
        && rest.iter().all(|facts| facts.shape.to_shape().is_some_and(|shape| shape.elements() == 1))
        && is_blockable(data)
        && super::parts::unary_op(&*node.operation, &vec![1.0; rest.len()]).is_some()
    {
        return Some(Candidate::of_first(inputs.len()));
    }
    if super::fake_quantize::runs_on_blocks(node, inputs) && (1..inputs.len()).all(is_constant) {
        return Some(Candidate::of_first(inputs.len()));
    }
    let has_codes = inputs.iter().chain([&outputs.first()?]).any(|facts| facts.element_type == ElementType::U8);
    if has_codes && !super::chain::is_chain(node) {
        return None;
    }
    if outputs.first()?.element_type == ElementType::Boolean {
        return None;
    }
    let is_prelu = super::chain::is_prelu(node);
    if super::binary::numpy_function(&*node.operation).is_none() && !super::chain::is_chain(node) && !is_prelu {
        return None;
    }
    // Groups over few elements may have more constants than a chain on blocks can be run with.
    let is_single = |facts: &&&ValueFacts| facts.shape.to_shape().is_some_and(|shape| shape.elements() == 1);
    if inputs.len() - inputs.iter().filter(is_single).count() > MOST_INPUTS {
        return None;
    }
    let rank = outputs.first()?.shape.rank()?;
    let mut sides: SmallVec<[Side; 4]> = SmallVec::new();
    for (port, facts) in inputs.iter().enumerate() {
        sides.push(match is_prelu && port == 1 {
            true => Side::of_slope(facts, is_constant(port), rank, count)?,
            false => Side::of(facts, is_constant(port), rank, count)?,
        });
    }
    let is_carried = sides.contains(&Side::Blocked);
    let layouts = sides.iter().map(|side| if *side == Side::Blocked { Layout::Blocked } else { Layout::Plain });
    is_carried.then(|| Candidate::carrier(layouts.collect()))
}

/// How an operand of an elementwise layer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Plain, in a layer of plain values.
    Plain,
    /// A blocked value.
    Blocked,
    /// A plain value with one channel for all.
    OneChannel,
    /// A constant with one element.
    Scalar,
    /// A constant with one element a channel.
    Channels,
    /// The same in a layer of plain values.
    PlainChannels,
}

impl Side {
    /// How an operand lies in a layer on blocks whose output has `rank` axes and `count` channels.
    pub fn of(facts: &ValueFacts, is_constant: bool, rank: usize, count: usize) -> Option<Side> {
        let is_code = facts.element_type == ElementType::U8 && !is_constant;
        (facts.element_type == ElementType::F32 || is_code).then_some(())?;
        if is_constant {
            let shape = facts.shape.to_shape()?;
            let axis = (shape.rank() + 1).checked_sub(rank);
            return match shape.elements() {
                1 if shape.rank() <= rank => Some(Side::Scalar),
                n if n == count && shape.get(axis?) == Some(&count) => Some(Side::Channels),
                _ => None,
            };
        }
        let has_rank = facts.shape.rank() == Some(rank);
        match channels_of(&facts.shape).filter(|_| has_rank)? {
            n if n == count => Some(Side::Blocked),
            1 => Some(Side::OneChannel),
            _ => None,
        }
    }

    /// How the slope of a PReLU lies: one of as many elements as there are channels is one a channel.
    pub fn of_slope(facts: &ValueFacts, is_constant: bool, rank: usize, count: usize) -> Option<Side> {
        let shape = facts.shape.to_shape().filter(|_| is_constant)?;
        let is_line = shape.rank() == 1 && shape.elements() == count && facts.element_type == ElementType::F32;
        if is_line && count > 1 { Some(Side::Channels) } else { Side::of(facts, is_constant, rank, count) }
    }

    /// The values of a constant operand, filled up to whole blocks. Lanes beyond the last channel are computed too; 1
    /// is harmless in all functions.
    pub fn padded(self, mut values: Vec<f32>, count: usize) -> Vec<f32> {
        if self == Side::Channels {
            values.resize(count.next_multiple_of(BLOCK), 1.0);
        }
        values
    }

    /// The shape of an operand as its memory has it, so that it broadcasts over the result. A constant has so many
    /// `values`.
    pub fn shape(self, shape: &Shape, rank: usize, values: usize) -> Shape {
        match self {
            Side::Plain => shape.clone(),
            Side::Blocked => physical_shape(Layout::Blocked, shape),
            Side::OneChannel => {
                let mut shape = shape.clone();
                shape.push(1);
                shape
            }
            Side::Scalar => Shape::from_slice(&[1]),
            Side::PlainChannels => {
                let mut sizes: SmallVec<[usize; 8]> = SmallVec::from_elem(1, rank);
                sizes[1] = values;
                Shape::from_slice(&sizes)
            }
            Side::Channels => {
                let mut sizes: SmallVec<[usize; 8]> = SmallVec::from_elem(1, rank + 1);
                sizes[1] = values / BLOCK;
                sizes[rank] = BLOCK;
                Shape::from_slice(&sizes)
            }
        }
    }
}

// Layers over planes: poolings, reductions and normalisations over all positions, interpolations.

fn plane_candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<Candidate> {
    let data = inputs.first()?;
    // Codes are moved, or compared, as they are.
    let moves_codes = super::pooling::kind(node) == Some(PoolingKind::Max) || super::interpolate::takes_nearest(node);
    let is_of_groups = super::normalization::is_of_groups(node);
    let are_codes = data.element_type == ElementType::U8 && (moves_codes || is_of_groups);
    let count = if are_codes { channels_of(&data.shape)? } else { channels(data)? };
    if pads(node, inputs, is_constant).is_some() {
        return Some(Candidate::of_first(inputs.len()).for_readers());
    }
    let is_pooling = outputs.len() == 1 && super::pooling::kind(node).is_some();
    let is_plane = is_pooling
        || is_reduction(node, inputs, &data.shape, outputs)
        || super::normalization::is_of_channels(node, inputs)
        || super::normalization::is_of_positions(node, inputs)
        || is_of_groups
        || super::interpolate::keeps_channels(node, inputs, outputs.first()?, is_constant);
    let mut candidate = is_plane.then(|| Candidate::of_first(inputs.len()))?;
    if let (true, Some((kernel, strides))) = (is_pooling, super::pooling::kernel_and_strides(node)) {
        let output = &outputs.first()?.shape;
        let stride = strides.last().copied().unwrap_or(1);
        let gain = output.to_shape().and_then(|output| pooling_gain(&output, kernel, stride));
        candidate.gain = gain.unwrap_or_else(|| {
            let taps: f64 = kernel.iter().map(|size| *size as f64).product();
            nominal_elements(output) * taps * tap_gain(strides) * use_of_lanes(count)
        });
    }
    Some(candidate)
}

/// Whether a layer reduces all positions, and nothing else, to one.
fn is_reduction(node: &Node, inputs: &[&ValueFacts], data: &PartialShape, outputs: &[ValueFacts]) -> bool {
    let axes = inputs.get(1).and_then(|facts| facts.integers());
    let (Some(_), Some(axes), Some(rank)) = (super::reduce::reduce_op(&*node.operation), axes, data.rank()) else {
        return false;
    };
    let reduced = |axis: usize| axes.iter().any(|given| axis_of(*given, rank) == Some(axis));
    let keeps_rank = outputs.first().and_then(|facts| facts.shape.rank()) == Some(rank);
    keeps_rank && !reduced(0) && !reduced(1) && (2..rank).all(reduced)
}

/// The pads before and after the axes of a layer that adds constants behind the channels and around the planes.
fn pads(node: &Node, inputs: &[&ValueFacts], is_constant: &dyn Fn(usize) -> bool) -> Option<[SmallVec<[i64; 8]>; 2]> {
    let pad = node.operation.downcast_ref::<Pad>()?;
    let rank = inputs.first()?.shape.rank()?;
    let (begin, end) = (inputs.get(1)?.integers()?, inputs.get(2)?.integers()?);
    let fits = pad.attributes.pad_mode == PadMode::Constant
        && (1..inputs.len()).all(is_constant)
        && rank <= 4
        && begin.len() == rank
        && end.len() == rank
        && begin.iter().chain(&end).all(|pad| (0..1 << 30).contains(pad))
        && begin[..2] == [0, 0]
        && end[0] == 0;
    fits.then_some([begin, end])
}

/// Pad of blocks.
struct PadKernel {
    value: f32,
    begin: [usize; 2],
}

fn claim_pad(context: &mut ClaimContext<'_>) -> Option<Claim> {
    // The plan made sure of constants when it chose the layout.
    let [begin, _] = pads(context.node, context.inputs, &|_| true)?;
    let value = match context.inputs.len() {
        3 => 0.0,
        _ => *floats(&(context.constant)(3)?)?.first()?,
    };
    let size = |axis: usize| begin.get(axis).map_or(Some(0), |pad| usize::try_from(*pad).ok());
    // Lines have no height.
    let begin = if begin.len() == 3 { [0, size(2)?] } else { [size(2)?, size(3)?] };
    Some(Claim { kernel: Box::new(PadKernel { value, begin }), packed_inputs: SmallVec::new() })
}

impl Kernel for PadKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, ..], [output])
            if data.elements() > 0 && matches!(data.rank(), 3 | 4) && output.rank() == data.rank())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        moved_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let image = |shape: &Shape| match shape[..] {
            [batch, channels, wide] => Ok([batch, channels, 1, wide]),
            [batch, channels, high, wide] => Ok([batch, channels, high, wide]),
            _ => Err(misfit()),
        };
        let (from, to) = (image(data.shape())?, image(output.shape())?);
        blocked_pad(self.value, from, to, self.begin, data.slice::<f32>()?, output.slice_mut::<f32>()?)
            .map_err(kernel_error)
    }
}

/// A pooling on blocks.
struct PoolingKernel {
    isa: Isa,
    plain: super::pooling::PoolingKernel,
}

fn claim_pooling(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let plain = super::pooling::PoolingKernel::of(context.node)?;
    Some(Claim { kernel: Box::new(PoolingKernel { isa: isa::detect(), plain }), packed_inputs: SmallVec::new() })
}

impl Kernel for PoolingKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.plain.accepts(shapes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let geometry = shapes.inputs.first().and_then(|data| self.plain.geometry(data));
        let elements = shapes.outputs.first().map_or(0, |s| s.elements()) as u64;
        geometry.map_or(0, |geometry| elements.saturating_mul(geometry.taps()) / 8)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let geometry = self.plain.geometry(data.shape()).ok_or_else(misfit)?;
        let [_, channels, _] = sizes(data.shape()).ok_or_else(misfit)?;
        if data.element_type() == ElementType::U8 {
            let (codes, target) = (data.slice::<u8>()?, output.slice_mut::<u8>()?);
            return blocked_max_codes(self.isa, channels, &geometry, codes, target).map_err(kernel_error);
        }
        let (kind, values, target) = (self.plain.kind, data.slice::<f32>()?, output.slice_mut::<f32>()?);
        blocked_pooling(self.isa, kind, channels, &geometry, values, target).map_err(kernel_error)
    }
}

/// A reduction of all positions to one.
struct ReductionKernel {
    isa: Isa,
    op: ReduceOp,
}

fn claim_reduction(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let op = super::reduce::reduce_op(&*context.node.operation)?;
    Some(Claim { kernel: Box::new(ReductionKernel { isa: isa::detect(), op }), packed_inputs: SmallVec::new() })
}

impl Kernel for ReductionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        // What a reduction of nothing gives is the reference's matter.
        shapes.inputs.first().and_then(|data| sizes(data)).is_some_and(|[_, _, positions]| positions > 0)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.inputs.first().map_or(0, |s| nanoseconds_for_bytes(s.elements().saturating_mul(4)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let [batch, channels, positions] = sizes(data.shape()).ok_or_else(misfit)?;
        let planes = batch * channels.div_ceil(BLOCK);
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        reduce(self.isa, self.op, [planes, positions, BLOCK], values, target).map_err(kernel_error)
    }
}

// Layers along channels.

/// Concatenations, splits and slices. Along channels they may straddle blocks.
fn channel_candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<Candidate> {
    let rank = outputs.first()?.shape.rank()?;
    if let Some(concat) = node.operation.downcast_ref::<Concat>() {
        axis_of(concat.attributes.axis, rank)?;
        let are_values = inputs.iter().all(|facts| is_movable(facts)) && !(0..inputs.len()).any(is_constant);
        return are_values.then(|| Candidate::carrier(SmallVec::from_elem(Layout::Blocked, inputs.len())));
    }
    first_channel(node, inputs)?;
    let are_values = is_movable(inputs.first()?) && outputs.iter().all(is_movable);
    (are_values && (1..inputs.len()).all(is_constant)).then(|| Candidate::of_first(inputs.len()))
}

/// The first channel of the data that the outputs of a Split or a Slice have, if they take channels apart and nothing else.
fn first_channel(node: &Node, inputs: &[&ValueFacts]) -> Option<usize> {
    let integers = |port: usize| inputs.get(port).and_then(|facts| facts.integers());
    let shape = &inputs.first()?.shape;
    let rank = shape.rank()?;
    if node.operation.downcast_ref::<Split>().is_some() || node.operation.downcast_ref::<VariadicSplit>().is_some() {
        return (axis_of(*integers(1)?.first()?, rank)? == 1).then_some(0);
    }
    node.operation.downcast_ref::<Slice>()?;
    let (starts, stops, steps) = (integers(1)?, integers(2)?, integers(3)?);
    let axes = if inputs.len() > 4 { integers(4)? } else { (0..starts.len() as i64).collect() };
    let mut first = 0;
    for (((start, stop), step), axis) in starts.iter().zip(&stops).zip(&steps).zip(&axes) {
        (*step == 1).then_some(())?;
        let axis = axis_of(*axis, rank)?;
        if axis == 1 {
            let channels = i64::try_from(channels_of(shape)?).ok()?;
            let from_front = if *start < 0 { start.checked_add(channels)? } else { *start };
            first = usize::try_from(from_front.clamp(0, channels)).ok()?;
        } else {
            let end = shape.dims()?.get(axis)?.get().and_then(|size| i64::try_from(size).ok()).unwrap_or(i64::MAX);
            (*start == 0 && *stop >= end).then_some(())?;
        }
    }
    Some(first)
}

fn claim_channels(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let rank = context.outputs.first()?.shape.rank()?;
    let kernel: Box<dyn Kernel> = match context.node.operation.downcast_ref::<Concat>() {
        Some(concat) => Box::new(ConcatKernel { axis: axis_of(concat.attributes.axis, rank)? }),
        None => Box::new(SplitKernel { first: first_channel(context.node, context.inputs)? }),
    };
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

/// Concat of blocks.
struct ConcatKernel {
    axis: usize,
}

/// Parts of channels, one after the other.
struct SplitKernel {
    /// The first channel that is taken.
    first: usize,
}

/// The estimated nanoseconds that one core takes to write the outputs of a layer that only moves values.
pub(super) fn moved_nanoseconds(shapes: &StepShapes<'_>) -> u64 {
    let elements: usize = shapes.outputs.iter().map(|s| s.elements()).sum();
    nanoseconds_for_bytes(elements.saturating_mul(8))
}

impl ConcatKernel {
    fn channels<T: NativeElement + Copy + Send + Sync>(
        inputs: &[TensorView<'_>],
        output: &mut TensorViewMut<'_>,
    ) -> OpResult {
        let [batch, _, positions] = sizes(output.shape()).ok_or_else(misfit)?;
        let mut parts: SmallVec<[ChannelRange<'_, T>; 8]> = SmallVec::new();
        for input in inputs {
            let [_, channels, _] = sizes(input.shape()).ok_or_else(misfit)?;
            parts.push(ChannelRange { values: input.slice()?, channels, range: 0..channels });
        }
        blocked_channels(batch, positions, &parts, output.slice_mut()?).map_err(kernel_error)
    }

    /// Along an axis that is not that of the channels.
    fn others(&self, inputs: &[TensorView<'_>], output: &mut TensorViewMut<'_>) -> OpResult {
        let element_type = output.element_type();
        let around_axis = |shape: &Shape| around(&physical_shape(Layout::Blocked, shape), self.axis).ok_or_else(misfit);
        let [outer, whole, inner] = around_axis(output.shape())?;
        let bytes = element_type.storage_bytes(inner).ok_or_else(misfit)?;
        let mut start = 0;
        for input in inputs {
            let [_, part, _] = around_axis(input.shape())?;
            let target = output.bytes_mut();
            concat_part(outer, bytes, part, whole, start, input.bytes(), target).map_err(kernel_error)?;
            start += part;
        }
        Ok(())
    }
}

impl Kernel for ConcatKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        moved_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        match (self.axis, output.element_type()) {
            (1, ElementType::U8) => Self::channels::<u8>(io.inputs, output),
            (1, _) => Self::channels::<f32>(io.inputs, output),
            _ => self.others(io.inputs, output),
        }
    }
}

impl SplitKernel {
    fn split<T: NativeElement + Copy + Send + Sync>(&self, io: StepIo<'_, '_>) -> OpResult {
        let data = io.inputs.first().ok_or_else(misfit)?;
        let [batch, channels, positions] = sizes(data.shape()).ok_or_else(misfit)?;
        let mut first = self.first;
        for output in io.outputs {
            let [_, count, _] = sizes(output.shape()).ok_or_else(misfit)?;
            let part = ChannelRange::<T> { values: data.slice()?, channels, range: first..first + count };
            blocked_channels(batch, positions, &[part], output.slice_mut()?).map_err(kernel_error)?;
            first += count;
        }
        Ok(())
    }
}

impl Kernel for SplitKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        moved_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match io.inputs.first().map(|data| data.element_type()) {
            Some(ElementType::U8) => self.split::<u8>(io),
            _ => self.split::<f32>(io),
        }
    }
}

/// From one layout to the other.
struct ReorderKernel {
    to: Layout,
}

impl Kernel for ReorderKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        moved_nanoseconds(shapes)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let [batch, channels, positions] = sizes(data.shape()).ok_or_else(misfit)?;
        match self.to {
            Layout::Blocked => write_blocked([batch, channels, positions], data, output),
            Layout::Plain => write_plain([batch, channels, positions], data, output),
        }
    }
}
