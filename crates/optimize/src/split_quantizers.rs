//! Splits FakeQuantizes in two, so that what lies between their halves are codes of one byte.
//!
//! A FakeQuantize is an Encode, from values to codes, and a Decode, from codes to values. The layer that makes a value may
//! take the Encode, each of its readers a Decode of its own (`fuse_epilogue`, `fuse_elementwise`), and layers that only move
//! values, or choose among them, move codes as well: a Decode goes behind them, and an Encode before them. It is done
//! where some reader computes with codes: convolutions and products of bytes, depthwise convolutions, averages,
//! normalisations of groups of channels, and attentions, whose scores are products of the codes of queries and keys.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::common::convolution::TransposedAttributes;
use ovir_ops::common::interpolation::InterpolateMode;
use ovir_ops::convolution::convolution::Convolution;
use ovir_ops::convolution::convolution_backprop_data::ConvolutionBackpropData;
use ovir_ops::image::interpolate::Interpolate;
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::movement::concat::Concat;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_ops::{OpVersion, Operation};
use ovir_tensor::{ElementType, PartialShape, Shape};

use crate::chain::Uses;
use crate::fuse_averages::is_average;
use crate::fuse_elementwise::is_function;
use crate::fuse_epilogue::{ACTIVATIONS, is_root};
use crate::trace::{Trace, all_named};

/// Constants of fewer elements are not read as they are stored.
pub const FEWEST_STORED_ELEMENTS: usize = 1 << 12;

/// Constants of fewer codes are not read as bytes by products of bytes.
pub const FEWEST_BYTE_ELEMENTS: usize = 1 << 7;

/// Stored constants whose scales change after fewer elements are not worth reading as they are stored.
pub const FEWEST_SCALED_ELEMENTS: usize = 8;

/// Sums of more products of bytes could exceed i32.
pub const MOST_BYTE_TERMS: usize = (i32::MAX as usize) / (255 * 128) - 1;

/// The codes of a row of queries or keys are a multiple of so many.
const QUAD: usize = 4;

/// Sums of more products of unsigned bytes could exceed i32.
const MOST_CODE_DEPTH: usize = (i32::MAX as usize) / (255 * 255);

/// The most taps of a depthwise convolution of codes.
pub const MOST_CODE_TAPS: usize = 225;

/// Images of so few channels are read as they are given, whichever layer reads them.
pub const FEW_CHANNELS: usize = 4;

/// The longest stride and dilation of a transposed convolution of bytes.
pub const MOST_BYTE_STEP: i64 = 1 << 5;

/// The channels that groups of convolutions of bytes have a multiple of.
pub const BLOCK: usize = 16;

/// The most channels of a group of convolutions of bytes.
const MOST_GROUP: usize = 1 << 12;

/// The most channels that are read for each one of a group. Of more, bytes multiply more zeros than f32 takes steps.
const MOST_READ: usize = 4;

/// The most layers between stored codes and a value, and between a product and what it is added to.
const MOST_LAYERS: usize = 6;

/// Layers that move values of their first input, or choose among them.
const MOVERS: &[&str] = &["MaxPool", "Reshape", "Split", "Squeeze", "Transpose", "Unsqueeze", "VariadicSplit"];

/// The two halves of a FakeQuantize.
#[derive(Debug, Clone, PartialEq)]
struct Coding {
    from: Levels,
    to: Levels,
}

/// Splits all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let codings: HashMap<NodeId, Coding> =
        model.iter().filter_map(|(id, node)| Some((id, coding_of(validated, node)?))).collect();
    if codings.is_empty() {
        return None;
    }
    let uses = Uses::new(model);
    let levels = levels_of_values(validated, &codings);
    let analysis = Analysis { validated, uses: &uses, codings: &codings, levels: &levels };
    let wanted = analysis.wanted();
    for (id, node) in model.iter().filter(|(_, node)| node.is("FakeQuantize")) {
        let value = Source { node: id, port: 0 };
        if wanted.contains(&value) {
            let readers = || all_named(uses.of(id).iter().map(|reader| model.node(*reader)));
            trace.applied(node, || format!("gives codes to {}", readers()));
        } else if codings.contains_key(&id) {
            trace.declined(node, || "no layer that reads it computes with codes".to_owned());
        } else {
            let reason = "its limits are no constants of a whole tensor or of channels, or it has more than 256 levels";
            trace.declined(node, || reason.to_owned());
        }
    }
    let earlier = analysis.earlier(&wanted);
    (!wanted.is_empty()).then(|| Builder::new(model, &analysis, &wanted, &earlier).build())
}

/// The halves of a FakeQuantize of f32 with usual constant limits, of the whole tensor or of channels.
fn coding_of(validated: &Validated, node: &Node) -> Option<Coding> {
    let operation = node.operation.downcast_ref::<FakeQuantize>()?;
    let last = u8::try_from(operation.levels.checked_sub(1)?).ok().filter(|last| *last > 0)?;
    (operation.broadcast.auto_broadcast == AutoBroadcast::Numpy).then_some(())?;
    let data = validated.inference().get(*node.inputs.first()?);
    let limit = |port: usize| limits(validated, &data.shape, *node.inputs.get(port)?);
    let all = [limit(1)?, limit(2)?, limit(3)?, limit(4)?];
    let count = all.iter().map(Vec::len).max()?;
    let widened = |values: &[f32]| -> Arc<[f32]> {
        match values {
            [value] => vec![*value; count].into(),
            values => values.into(),
        }
    };
    let [from_low, from_high, low, high] = &all.map(|values| widened(&values));
    let are_usual = |low: &[f32], high: &[f32]| low.iter().zip(high).all(|(low, high)| is_usual(*low, *high));
    let is_f32 =
        data.element_type == ElementType::F32 && validated.model().node(node.inputs[0].node).tensor().is_none();
    (is_f32 && are_usual(from_low, from_high) && are_usual(low, high)).then_some(())?;
    let levels = |low: &Arc<[f32]>, high: &Arc<[f32]>| Levels { low: low.clone(), high: high.clone(), last };
    Some(Coding { from: levels(from_low, from_high), to: levels(low, high) })
}

/// The values of a constant limit: one, or one for each channel of data of this shape.
fn limits(validated: &Validated, data: &PartialShape, source: Source) -> Option<Vec<f32>> {
    let tensor = validated.model().node(source.node).tensor()?.aligned().ok()?;
    let values = tensor.slice::<f32>().ok()?.to_vec();
    let shape = tensor.shape();
    (shape.rank() <= data.rank()?).then_some(())?;
    if values.len() > 1 {
        let (dims, rank) = (data.dims()?, data.rank()?);
        let axis = (shape.rank() + 1).checked_sub(rank)?;
        (shape.get(axis) == Some(&values.len()) && dims.get(1)?.get() == Some(values.len())).then_some(())?;
    }
    (!values.is_empty() && values.iter().all(|value| value.is_finite())).then_some(values)
}

/// Whether codes between these limits can be computed by one multiplication.
pub(crate) fn is_usual(low: f32, high: f32) -> bool {
    low < high && (high - low).is_finite() && (255.0 / (high - low)).is_finite()
}

/// The values that are those of levels, and the levels.
fn levels_of_values(validated: &Validated, codings: &HashMap<NodeId, Coding>) -> HashMap<Source, Levels> {
    let mut levels: HashMap<Source, Levels> = HashMap::new();
    for (id, node) in validated.model().iter() {
        let known = |source: Source| levels.get(&source);
        if let Some(parts) = channel_parts(validated, id, node, known) {
            levels.extend(values_of(id, node).zip(parts));
            continue;
        }
        let found = match codings.get(&id) {
            Some(coding) => Some(coding.to.clone()),
            None => moved_levels(node, known).cloned().or_else(|| joined_levels(validated, node, known)),
        };
        if let Some(found) = found {
            levels.extend(values_of(id, node).map(|value| (value, found.clone())));
        }
    }
    levels
}

/// The levels of the channels that a Concat joins, if all its inputs are images of levels of whole tensors.
fn joined_levels<'l>(
    validated: &Validated,
    node: &Node,
    levels: impl Fn(Source) -> Option<&'l Levels>,
) -> Option<Levels> {
    let concat = node.operation.downcast_ref::<Concat>()?;
    let (mut low, mut high, mut last) = (Vec::new(), Vec::new(), None);
    for source in &node.inputs {
        let (found, shape) = (levels(*source)?, &validated.inference().get(*source).shape);
        let dims = shape.dims().filter(|dims| dims.len() == 4 && matches!(concat.attributes.axis, 1 | -3))?;
        let (channels, [from, to]) = (dims[1].get()?, found.whole()?);
        (*last.get_or_insert(found.last) == found.last).then_some(())?;
        low.resize(low.len() + channels, from);
        high.resize(high.len() + channels, to);
    }
    Some(Levels { low: low.into(), high: high.into(), last: last? })
}

/// The levels of the parts that a Split or VariadicSplit takes from data that have levels for each channel.
fn channel_parts<'l>(
    validated: &Validated,
    id: NodeId,
    node: &Node,
    levels: impl Fn(Source) -> Option<&'l Levels>,
) -> Option<Vec<Levels>> {
    (node.is("Split") || node.is("VariadicSplit")).then_some(())?;
    let (inference, [data, axis, ..]) = (validated.inference(), &node.inputs[..]) else { return None };
    let levels = levels(*data).filter(|levels| levels.whole().is_none())?;
    let rank = i64::try_from(inference.get(*data).shape.rank()?).ok()?;
    let [axis] = inference.get(*axis).integers()?[..] else { return None };
    (axis == 1 || axis == 1 - rank).then_some(())?;
    let mut first = 0;
    values_of(id, node)
        .map(|value| {
            let range = first..inference.get(value).shape.dims()?.get(1)?.get()?.checked_add(first)?;
            first = range.end;
            let part = |limits: &[f32]| Some(limits.get(range.clone()).filter(|part| !part.is_empty())?.into());
            Some(Levels { low: part(&levels.low)?, high: part(&levels.high)?, last: levels.last })
        })
        .collect()
}

/// The outputs of a layer.
fn values_of(id: NodeId, node: &Node) -> impl Iterator<Item = Source> + use<> {
    (0..node.outputs.len() as u32).map(move |port| Source { node: id, port })
}

/// The levels of what a layer moves, if they are the same for all and for whole tensors.
fn moved_levels<'l>(node: &Node, levels: impl Fn(Source) -> Option<&'l Levels>) -> Option<&'l Levels> {
    let mut sources = moved(node)?.iter();
    let first = levels(*sources.next()?)?;
    let is_same = sources.all(|source| levels(*source) == Some(first));
    (is_same && first.whole().is_some()).then_some(first)
}

/// The inputs that a layer moves.
fn moved(node: &Node) -> Option<&[Source]> {
    if node.is("Concat") {
        return Some(&node.inputs);
    }
    // Indices of a MaxPool are no codes.
    let is_mover = MOVERS.iter().any(|kind| node.is(kind)) && (!node.is("MaxPool") || node.outputs.len() == 1);
    node.inputs.get(..1).filter(|_| is_mover || takes_nearest(node))
}

/// Whether a layer is an Interpolate that gives elements of its data and nothing else.
fn takes_nearest(node: &Node) -> bool {
    let Some(found) = node.operation.downcast_ref::<Interpolate>() else { return false };
    let attributes = &found.attributes;
    let mut pads = attributes.pads_begin.iter().chain(&attributes.pads_end);
    found.class_version > 1 && attributes.mode == InterpolateMode::Nearest && pads.all(|pad| *pad == 0)
}

struct Analysis<'a> {
    validated: &'a Validated,
    uses: &'a Uses,
    codings: &'a HashMap<NodeId, Coding>,
    levels: &'a HashMap<Source, Levels>,
}

impl Analysis<'_> {
    /// The values whose codes some reader wants.
    fn wanted(&self) -> HashSet<Source> {
        let model = self.validated.model();
        let mut wanted = HashSet::new();
        for index in (0..model.nodes.len()).rev() {
            let id = NodeId(index as u32);
            for value in values_of(id, model.node(id)) {
                let Some(levels) = self.levels.get(&value) else { continue };
                let readers = self.uses.of_value(value);
                let takes = |reader: &NodeId| self.takes(*reader, value, levels, &wanted);
                // Codes of channels have no reader that takes values of them too.
                let is_wanted = match levels.whole() {
                    Some(_) => readers.iter().any(takes),
                    None => !readers.is_empty() && readers.iter().all(takes),
                };
                if is_wanted {
                    wanted.insert(value);
                }
            }
        }
        wanted
    }

    /// Whether a layer computes with codes of a value, or passes them on to one that does.
    fn takes(&self, reader: NodeId, value: Source, levels: &Levels, wanted: &HashSet<Source>) -> bool {
        let node = self.validated.model().node(reader);
        if takes_codes(self.validated, self.uses, reader, value, levels) || self.is_scored(reader, value) {
            return true;
        }
        if let Some(coding) = self.codings.get(&reader) {
            let is_same = coding.from == *levels && coding.to == *levels;
            return is_same && wanted.contains(&Source { node: reader, port: 0 });
        }
        if moved(node).is_some_and(|moved| moved.contains(&value)) {
            return values_of(reader, node).any(|value| wanted.contains(&value));
        }
        let are_whole = levels.whole().is_some();
        let is_computed =
            || self.is_residual(reader, value) || self.is_averaged(reader, value) || self.is_normalised(reader, value);
        are_whole && is_computed()
            || (are_whole || moved(self.validated.model().node(value.node)).is_some())
                && is_function(node)
                && self.is_cheaper_as_codes(value)
    }

    /// Whether a layer averages codes of a value: others that read values would have to make them of the codes.
    fn is_averaged(&self, reader: NodeId, value: Source) -> bool {
        let is_alone = self.uses.of_value(value).len() == 1;
        is_average(self.validated, reader) && (is_alone || self.is_cheaper_as_codes(value))
    }

    /// Whether a layer normalises groups of channels of a value that a convolution can write as codes.
    fn is_normalised(&self, reader: NodeId, value: Source) -> bool {
        let node = self.validated.model().node(reader);
        let reads_once = node.inputs.iter().filter(|source| **source == value).count() == 1;
        node.is("GroupNormalization") && node.inputs[0] == value && reads_once && self.is_cheaper_as_codes(value)
    }

    /// Whether a layer is an attention that multiplies codes of a value, which are those of its queries or keys.
    fn is_scored(&self, reader: NodeId, value: Source) -> bool {
        let node = self.validated.model().node(reader);
        let [q, k, rest @ ..] = &node.inputs[..] else { return false };
        let has_codes = |source: &Source| {
            let facts = self.validated.inference().get(*source);
            let depth = facts.shape.dims().filter(|dims| dims.len() == 4).and_then(|dims| dims[3].get());
            let zero = self.levels.get(source).and_then(zero_code);
            zero.is_some_and(|zero| (0..=255).contains(&zero))
                && depth.is_some_and(|depth| depth.is_multiple_of(QUAD) && (QUAD..=MOST_CODE_DEPTH).contains(&depth))
        };
        node.is("ScaledDotProductAttention")
            && (*q == value || *k == value)
            && q != k
            && !rest.contains(&value)
            && has_codes(q)
            && has_codes(k)
    }

    /// Whether a layer adds a value to what a product of bytes gives.
    fn is_residual(&self, reader: NodeId, value: Source) -> bool {
        let node = self.validated.model().node(reader);
        let other = match node.inputs[..] {
            [a, b] if node.is("Add") && a == value => b,
            [a, b] if node.is("Add") && b == value => a,
            _ => return false,
        };
        self.origin(other).is_some_and(|root| self.is_byte_root(root))
    }

    /// Whether a value that elementwise layers read is better moved as codes: if it is joined of several, or if the
    /// convolution or product that makes its data can write codes.
    fn is_cheaper_as_codes(&self, value: Source) -> bool {
        let node = self.validated.model().node(value.node);
        if !self.codings.contains_key(&value.node) {
            return node.is("Concat")
                || moved(node).is_some_and(|moved| moved.iter().all(|s| self.is_cheaper_as_codes(*s)));
        }
        let root = self.origin(node.inputs[0]);
        root.is_some_and(|root| self.is_byte_root(root) || is_depthwise(self.validated, self.uses, root))
            && self.uses.of_value(node.inputs[0]).iter().all(|reader| self.codings.contains_key(reader))
    }

    /// The convolution or product whose result, perhaps with sums and an activation, is a value.
    fn origin(&self, value: Source) -> Option<NodeId> {
        let mut at = value.node;
        for _ in 0..MOST_LAYERS {
            let node = self.validated.model().node(at);
            if is_root(node) {
                return Some(at);
            }
            let is_part =
                node.is("Add") || ACTIVATIONS.iter().any(|kind| node.is(kind)) || self.codings.contains_key(&at);
            is_part.then_some(())?;
            at = node.inputs.iter().map(|source| source.node).find(|id| !self.uses.is_constant(*id))?;
        }
        None
    }

    fn is_byte_root(&self, root: NodeId) -> bool {
        let Some(data) = self.validated.model().node(root).inputs.first() else { return false };
        self.levels.get(data).is_some_and(|levels| takes_codes(self.validated, self.uses, root, *data, levels))
    }

    /// The MaxPools, Concats and Interpolates before which their readers' Encodes go, with the levels.
    fn earlier(&self, wanted: &HashSet<Source>) -> HashMap<NodeId, Levels> {
        let model = self.validated.model();
        let mut earlier: HashMap<NodeId, Levels> = HashMap::new();
        for index in (0..model.nodes.len()).rev() {
            let id = NodeId(index as u32);
            let (node, value) = (model.node(id), Source { node: id, port: 0 });
            if !(node.is("Concat") || node.is("MaxPool") || takes_nearest(node))
                || moved(node).is_none()
                || wanted.contains(&value)
            {
                continue;
            }
            let of_reader = |reader: &NodeId| match self.codings.get(reader) {
                Some(coding) if wanted.contains(&Source { node: *reader, port: 0 }) => Some(&coding.from),
                _ => earlier.get(reader),
            };
            let mut found = self.uses.of_value(value).iter().map(of_reader);
            let Some(Some(first)) = found.next() else { continue };
            let is_same = found.all(|levels| levels == Some(first));
            let is_variable = moved(node).is_some_and(|m| !m.iter().any(|source| self.uses.is_constant(source.node)));
            if is_same && is_variable && first.whole().is_some() {
                let first = first.clone();
                earlier.insert(id, first);
            }
        }
        earlier
    }
}

/// Whether a convolution or a product computes with codes of its data.
pub(crate) fn takes_codes(validated: &Validated, uses: &Uses, reader: NodeId, data: Source, levels: &Levels) -> bool {
    let node = validated.model().node(reader);
    let facts = validated.inference().get(data);
    let reads_once = node.inputs.first() == Some(&data) && !node.inputs[1..].contains(&data);
    if is_depthwise(validated, uses, reader) {
        return reads_once;
    }
    reads_once && zero_code(levels).is_some_and(|zero| is_byte_product(validated, node, &facts.shape, zero))
}

/// Whether a layer is a depthwise convolution of images with a constant filter.
pub(crate) fn is_depthwise(validated: &Validated, uses: &Uses, id: NodeId) -> bool {
    let node = validated.model().node(id);
    let ([data, filter], true) = (&node.inputs[..], node.is("GroupConvolution")) else { return false };
    let filter_facts = validated.inference().get(*filter);
    let (Some(shape), Some(dims)) = (filter_facts.shape.to_shape(), validated.inference().get(*data).shape.dims())
    else {
        return false;
    };
    matches!(shape[..], [groups, 1, 1, high, wide]
        if dims.len() == 4
            && dims[1].get() == Some(groups)
            && groups > FEW_CHANNELS
            && (1..=MOST_CODE_TAPS).contains(&(high * wide)))
        && filter_facts.element_type == ElementType::F32
        && uses.is_constant(filter.node)
}

/// The code of zero of levels of whole tensors, if it is an integer.
fn zero_code(levels: &Levels) -> Option<i64> {
    let [_, zero] = levels.step_and_zero()?;
    ((zero - zero.round()).abs() < 1e-3 && zero.abs() < 1e6).then_some(zero.round() as i64)
}

/// The input channels that each block of outputs of groups of so many output and input channels reads, in whole blocks.
pub(crate) fn channels_read(outputs: usize, inputs: usize) -> usize {
    let runs = |first: usize| {
        let (low, last) = (first / outputs * inputs, (first + BLOCK - 1) / outputs * inputs + inputs);
        last.div_ceil(BLOCK) - low / BLOCK
    };
    // Blocks and groups begin together again after as many blocks as a group has channels.
    (0..outputs).map(|block| runs(block * BLOCK)).max().unwrap_or(0) * BLOCK
}

/// Whether groups of so many output and input channels are convolved in bytes: those of whole blocks, and those that share
/// blocks of outputs with few others, where zeros stand for the channels of the others.
#[must_use]
pub fn is_byte_group(outputs: usize, inputs: usize) -> bool {
    let are_few = (1..=MOST_GROUP).contains(&outputs) && (1..=MOST_GROUP).contains(&inputs);
    are_few && channels_read(outputs, inputs) <= MOST_READ * inputs
}

/// Whether a layer is a convolution or a product with codes of one byte that has kernels, for any size of its data.
fn is_byte_product(validated: &Validated, node: &Node, data: &PartialShape, zero: i64) -> bool {
    let Some(weights) = node.inputs.get(1) else { return false };
    let Some(shape) = validated.inference().get(*weights).shape.to_shape() else { return false };
    let Some(scales) = scale_shape(validated, *weights, &shape) else { return false };
    let sums = FEWEST_SCALED_ELEMENTS..=MOST_BYTE_TERMS;
    if node.operation.downcast_ref::<Convolution>().is_some() {
        let channels = data.dims().and_then(|dims| dims.get(1)?.get());
        // Taps in the padding read the code of zero.
        return matches!(shape.rank(), 3..=5)
            && data.rank() == Some(shape.rank())
            && channels == Some(shape[1])
            && sums.contains(&shape[1..].iter().product::<usize>())
            && (0..=255).contains(&zero)
            && is_of_axis(&scales, &shape, 0);
    }
    if let Some(transposed) = node.operation.downcast_ref::<ConvolutionBackpropData>() {
        let TransposedAttributes { strides, dilations, .. } = &transposed.attributes;
        let channels = data.dims().and_then(|dims| dims.get(1)?.get());
        let has_shape = node.inputs.get(2).is_none_or(|shape| validated.inference().get(*shape).integers().is_some());
        return matches!(shape.rank(), 3..=5)
            && data.rank() == Some(shape.rank())
            && channels == Some(shape[0])
            && shape[0] >= FEWEST_SCALED_ELEMENTS
            && shape[1] > 0
            && sums.contains(&(shape.elements() / shape[1]))
            && (0..=255).contains(&zero)
            && is_of_axis(&scales, &shape, 1)
            && has_shape
            && strides.iter().chain(dilations).all(|step| (1..=MOST_BYTE_STEP).contains(step));
    }
    if node.is("GroupConvolution") {
        let channels = data.dims().and_then(|dims| dims.get(1)?.get());
        return matches!(shape[..], [groups, outputs, inputs, ..] if shape.rank() == 5
                && data.rank() == Some(4)
                && is_byte_group(outputs, inputs)
                && channels == groups.checked_mul(inputs)
                && (scales.elements() == 1 || scales[..] == [groups, outputs, 1, 1, 1])
                && channels_read(outputs, inputs).saturating_mul(shape[3..].iter().product()) <= MOST_BYTE_TERMS)
            && sums.contains(&shape[2..].iter().product::<usize>())
            && (0..=255).contains(&zero);
    }
    let Some(product) = node.operation.downcast_ref::<MatMul>() else { return false };
    if product.attributes.transpose_a || shape.rank() != 2 || data.rank().is_none_or(|rank| rank < 2) {
        return false;
    }
    let (k, n) = if product.attributes.transpose_b { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
    let columns: [usize; 2] = if product.attributes.transpose_b { [n, 1] } else { [1, n] };
    sums.contains(&k) && (scales.elements() == 1 || scales[..] == columns)
}

/// Whether there is one scale, or one for each index of an axis.
fn is_of_axis(scales: &Shape, shape: &Shape, axis: usize) -> bool {
    let is_own = |(at, size): (usize, &usize)| *size == if at == axis { shape[axis] } else { 1 };
    scales.elements() == 1 || scales.rank() == shape.rank() && scales.iter().enumerate().all(is_own)
}

/// The shape of what signed codes of one byte are multiplied with to give a value of `shape`.
fn scale_shape(validated: &Validated, value: Source, shape: &Shape) -> Option<Shape> {
    let (model, inference) = (validated.model(), validated.inference());
    let mut scale: Option<Shape> = None;
    let mut at = value;
    for _ in 0..MOST_LAYERS {
        let node = model.node(at.node);
        let input = *node.inputs.first()?;
        if node.is("Convert") {
            if let Some(codes) = model.node(input.node).tensor() {
                let fits = codes.element_type() == ElementType::I8
                    && codes.shape() == shape
                    && codes.shape().elements() >= FEWEST_BYTE_ELEMENTS
                    && inference.get(at).element_type == ElementType::F32;
                return if fits { scale } else { None };
            }
            inference.get(input).element_type.is_float().then_some(())?;
        } else if node.is("Multiply") && scale.is_none() {
            let factor = node.inputs.get(1)?;
            model.node(factor.node).tensor()?;
            scale = Some(inference.get(*factor).shape.to_shape()?);
        } else {
            return None;
        }
        at = input;
    }
    None
}

/// Builds the changed model.
struct Builder<'a> {
    model: &'a Model,
    analysis: &'a Analysis<'a>,
    wanted: &'a HashSet<Source>,
    /// The layers that work on codes because their readers do.
    earlier: &'a HashMap<NodeId, Levels>,
    nodes: Vec<Node>,
    /// Where the layers are.
    places: Vec<NodeId>,
    /// The codes of values of levels.
    codes: HashMap<Source, Source>,
    /// The codes that values have been encoded to.
    encoded: HashMap<Source, Vec<(Levels, Source)>>,
}

impl<'a> Builder<'a> {
    fn new(
        model: &'a Model,
        analysis: &'a Analysis<'a>,
        wanted: &'a HashSet<Source>,
        earlier: &'a HashMap<NodeId, Levels>,
    ) -> Builder<'a> {
        let (nodes, places) = (Vec::with_capacity(model.nodes.len()), Vec::with_capacity(model.nodes.len()));
        Builder { model, analysis, wanted, earlier, nodes, places, codes: HashMap::new(), encoded: HashMap::new() }
    }

    fn build(mut self) -> Model {
        for (id, node) in self.model.iter() {
            let place = self.layer(id, node);
            self.places.push(place);
        }
        let mut changed = Model { nodes: self.nodes, ..self.model.clone() };
        for id in changed.parameters.iter_mut().chain(&mut changed.results) {
            *id = self.places[id.index()];
        }
        changed
    }

    /// Adds what a layer becomes, and returns where it is.
    fn layer(&mut self, id: NodeId, node: &Node) -> NodeId {
        let value = Source { node: id, port: 0 };
        if let Some(coding) = self.analysis.codings.get(&id).filter(|_| self.wanted.contains(&value)) {
            let data = node.inputs[0];
            let are_codes = self.analysis.levels.get(&data).is_some_and(|levels| *levels == coding.from)
                && coding.from == coding.to;
            let codes = match self.codes.get(&data).copied().filter(|_| are_codes) {
                Some(codes) => codes,
                None => self.encode(data, &coding.from),
            };
            self.codes.insert(value, codes);
            return codes.node;
        }
        let mut copy = node.clone();
        if let Some(levels) = self.earlier.get(&id) {
            let count = moved(node).map_or(0, <[Source]>::len);
            for source in copy.inputs.iter_mut().take(count) {
                *source = self.encode(*source, levels);
            }
            self.place_rest(&mut copy, count, node);
            let place = self.push(copy);
            self.encoded.entry(value).or_default().push((levels.clone(), Source { node: place, port: 0 }));
            return place;
        }
        let moves_codes = || values_of(id, node).any(|value| self.wanted.contains(&value));
        let moved = moved(node).filter(|moved| moved.iter().all(|source| self.codes.contains_key(source)));
        if let Some(moved) = moved.filter(|_| moves_codes()) {
            for (source, from) in copy.inputs.iter_mut().zip(moved) {
                *source = self.codes[from];
            }
            self.place_rest(&mut copy, moved.len(), node);
            let place = self.push(copy);
            self.codes.extend(values_of(id, node).map(|value| (value, Source { node: place, ..value })));
            return place;
        }
        self.place_rest(&mut copy, 0, node);
        self.push(copy)
    }

    /// Lets the inputs from one on read values.
    fn place_rest(&mut self, copy: &mut Node, first: usize, node: &Node) {
        for port in first..node.inputs.len() {
            let earlier = node.inputs[..port].iter().position(|source| *source == node.inputs[port]);
            copy.inputs[port] = match earlier.filter(|earlier| *earlier >= first) {
                Some(earlier) => copy.inputs[earlier],
                None => self.value(node.inputs[port]),
            };
        }
    }

    /// A value, which a new Decode gives if it is one of levels.
    fn value(&mut self, source: Source) -> Source {
        let (Some(codes), Some(levels)) = (self.codes.get(&source), self.analysis.levels.get(&source)) else {
            return Source { node: self.places[source.node.index()], port: source.port };
        };
        let maker = self.model.node(source.node);
        let mut decode = half("Decode", &maker.friendly_name, Arc::new(Decode { levels: levels.clone() }), *codes);
        decode.outputs = maker.outputs.get(source.port as usize).cloned().into_iter().collect();
        Source { node: self.push(decode), port: 0 }
    }

    /// The codes of a value.
    fn encode(&mut self, source: Source, levels: &Levels) -> Source {
        let known = self.encoded.get(&source).and_then(|all| all.iter().find(|(known, _)| known == levels));
        if let Some((_, codes)) = known {
            return *codes;
        }
        let value = self.value(source);
        let operation = Arc::new(Encode { levels: levels.clone() });
        let name = format!("{}/codes", self.model.node(source.node).friendly_name);
        let codes = Source { node: self.push(half("Encode", &name, operation, value)), port: 0 };
        self.encoded.entry(source).or_default().push((levels.clone(), codes));
        codes
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() as u32 - 1)
    }
}

/// One half of a FakeQuantize.
fn half(kind: &'static str, name: &str, operation: Arc<dyn Operation>, data: Source) -> Node {
    let version = OpVersion::new(1, (1, 1), (1, 1), (1, 1));
    let mut node = Node::new(name, kind, version, operation, vec![data], 1);
    node.opset = Cow::Borrowed("ovir");
    node
}
