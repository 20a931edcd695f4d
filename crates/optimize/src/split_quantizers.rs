//! Brings FakeQuantize next to each convolution and product that can be computed in bytes.
//!
//! A layer that reads a quantised value gets a FakeQuantize of its own, which `fuse_epilogue` takes into it: the kernel
//! then makes codes of the data and multiplies them with the stored codes of its constant. What stands between the two
//! and commutes with a FakeQuantize of whole tensors, such as a MaxPool or a Reshape, is moved before it; so is a Concat of
//! values that are quantised alike.

use std::collections::{HashMap, HashSet};

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::convolution::convolution::Convolution;
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_tensor::{ElementType, PartialShape, Shape};

use crate::chain::{Uses, remove};
use crate::trace::{Trace, all_named, named};

/// Constants of fewer elements are not read as they are stored.
pub const FEWEST_STORED_ELEMENTS: usize = 1 << 12;

/// Constants of fewer codes are not read as bytes by products of bytes.
pub const FEWEST_BYTE_ELEMENTS: usize = 1 << 7;

/// Stored constants whose scales change after fewer elements are not worth reading as they are stored.
pub const FEWEST_SCALED_ELEMENTS: usize = 8;

/// Sums of more products of bytes could exceed i32.
pub const MOST_BYTE_TERMS: usize = (i32::MAX as usize) / (255 * 128) - 1;

/// The most layers between stored codes and a value.
const MOST_LAYERS: usize = 6;

/// Layers that commute with a FakeQuantize of whole tensors at their first input.
const MOVERS: &[&str] = &["MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"];

/// A Concat whose inputs are quantised alike, and the FakeQuantizes.
type Joined = HashMap<NodeId, Vec<NodeId>>;

/// A value that a layer reads, and the FakeQuantize that the layer gets for it.
type Split = (Source, NodeId);

/// Splits all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut splits: HashMap<NodeId, Vec<Split>> = HashMap::new();
    let mut moved: HashMap<NodeId, NodeId> = HashMap::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("FakeQuantize")) {
        let Some(zero) = zero_code(model, node) else {
            let reason = "its limits are no single constants of at most 256 levels with an integer code of zero";
            trace.declined(node, || reason.to_owned());
            continue;
        };
        let is_wanted = |reader: NodeId, value: Source| {
            let (reader, shape) = (model.node(reader), &validated.inference().get(value).shape);
            reads_once(reader, value) && is_byte_product(validated, reader, shape, zero)
        };
        let value = Source { node: id, port: 0 };
        for mover in uses.of(id).iter().copied().filter(|reader| is_mover(model.node(*reader), value)) {
            let value = Source { node: mover, port: 0 };
            let readers: HashSet<NodeId> = uses.of(mover).iter().copied().collect();
            if readers.iter().any(|reader| is_wanted(*reader, value)) {
                trace.applied(node, || format!("moves behind {}", named(model.node(mover))));
                moved.insert(mover, id);
                readers.into_iter().for_each(|reader| splits.entry(reader).or_default().push((value, id)));
            }
        }
        if uses.of(id).len() > 1 {
            let wanting: Vec<NodeId> = uses.of(id).iter().copied().filter(|reader| is_wanted(*reader, value)).collect();
            for reader in &wanting {
                splits.entry(*reader).or_default().push((value, id));
            }
            if !wanting.is_empty() {
                let readers = || all_named(wanting.iter().map(|reader| model.node(*reader)));
                trace.applied(node, || format!("gets a copy each for {}", readers()));
            }
        }
    }
    let mut joined = Joined::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Concat")) {
        let Some((quantizers, zero)) = quantizers_of(model, node) else { continue };
        let value = Source { node: id, port: 0 };
        let shape = &validated.inference().get(value).shape;
        let is_wanted = |id: &NodeId| {
            reads_once(model.node(*id), value) && is_byte_product(validated, model.node(*id), shape, zero)
        };
        let readers: HashSet<NodeId> = uses.of(id).iter().copied().collect();
        if readers.iter().any(is_wanted) {
            trace.applied(node, || "its quantised inputs are quantised behind it".to_owned());
            readers.into_iter().for_each(|reader| splits.entry(reader).or_default().push((value, quantizers[0])));
            joined.insert(id, quantizers);
        }
    }
    (!splits.is_empty()).then(|| split(model, &splits, &moved, &joined))
}

/// The FakeQuantizes whose values a Concat joins, if they have the same levels, and the code of zero.
fn quantizers_of(model: &Model, node: &Node) -> Option<(Vec<NodeId>, i64)> {
    let mut found = Vec::with_capacity(node.inputs.len());
    let mut same = None;
    for source in &node.inputs {
        let quantizer = model.node(source.node);
        let operation = quantizer.operation.downcast_ref::<FakeQuantize>()?;
        // What such a layer gives may be quantised behind it too.
        let data = model.node(quantizer.inputs.first()?.node);
        (!data.is("Concat") && !MOVERS.iter().any(|kind| data.is(kind))).then_some(())?;
        let limits = limits_of_tensor(model, |port| quantizer.inputs.get(port).copied())?;
        let levels = (operation.levels, limits, zero_code(model, quantizer)?);
        (*same.get_or_insert(levels) == levels).then_some(())?;
        found.push(source.node);
    }
    Some((found, same?.2))
}

fn is_mover(node: &Node, value: Source) -> bool {
    MOVERS.iter().any(|kind| node.is(kind)) && node.outputs.len() == 1 && reads_once(node, value)
}

/// Whether the convolution or product `reader` of the FakeQuantize `quantizer` can be computed in bytes.
pub(crate) fn qualifies(validated: &Validated, quantizer: NodeId, reader: NodeId) -> bool {
    let model = validated.model();
    let Some(zero) = zero_code(model, model.node(quantizer)) else { return false };
    let input = Source { node: quantizer, port: 0 };
    let data = validated.inference().get(input);
    reads_once(model.node(reader), input)
        && data.element_type == ElementType::F32
        && is_byte_product(validated, model.node(reader), &data.shape, zero)
}

fn reads_once(node: &Node, data: Source) -> bool {
    node.inputs.first() == Some(&data) && !node.inputs[1..].contains(&data)
}

/// The limits of a FakeQuantize, if they are constants of one element each; `input` gives its inputs by port.
pub(crate) fn limits_of_tensor(model: &Model, input: impl Fn(usize) -> Option<Source>) -> Option<[f32; 4]> {
    let limit = |port: usize| {
        let tensor = model.node(input(port)?.node).tensor()?.aligned().ok()?;
        match tensor.slice::<f32>() {
            Ok([value]) if value.is_finite() => Some(*value),
            _ => None,
        }
    };
    Some([limit(1)?, limit(2)?, limit(3)?, limit(4)?])
}

/// Whether codes between these limits can be computed by one multiplication.
pub(crate) fn are_usual(low: f32, high: f32) -> bool {
    low < high && (high - low).is_finite() && (255.0 / (high - low)).is_finite()
}

/// The code of zero of a FakeQuantize of whole tensors, if it is an integer.
fn zero_code(model: &Model, node: &Node) -> Option<i64> {
    let operation = node.operation.downcast_ref::<FakeQuantize>()?;
    let limits = limits_of_tensor(model, |port| node.inputs.get(port).copied())?;
    let [input_low, input_high, low, high] = limits.map(f64::from);
    let has_codes = (2..=256).contains(&operation.levels)
        && operation.broadcast.auto_broadcast == AutoBroadcast::Numpy
        && input_low < input_high
        && low < high;
    has_codes.then_some(())?;
    let zero = -low / ((high - low) / (operation.levels - 1) as f64);
    ((zero - zero.round()).abs() < 1e-3 && zero.abs() < 1e6).then_some(zero.round() as i64)
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
        return shape.rank() == 4
            && data.rank() == Some(4)
            && channels == Some(shape[1])
            && sums.contains(&shape[1..].iter().product::<usize>())
            && (0..=255).contains(&zero)
            && (scales.elements() == 1 || scales[..] == [shape[0], 1, 1, 1]);
    }
    let Some(product) = node.operation.downcast_ref::<MatMul>() else { return false };
    if product.attributes.transpose_a || shape.rank() != 2 || data.rank().is_none_or(|rank| rank < 2) {
        return false;
    }
    let (k, n) = if product.attributes.transpose_b { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
    let columns: [usize; 2] = if product.attributes.transpose_b { [n, 1] } else { [1, n] };
    sums.contains(&k) && (scales.elements() == 1 || scales[..] == columns)
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

/// Puts a copy of the FakeQuantize in front of each reader, lets those that were moved read what it read, and removes
/// those that nobody reads any more.
fn split(
    model: &Model,
    splits: &HashMap<NodeId, Vec<Split>>,
    moved: &HashMap<NodeId, NodeId>,
    joined: &Joined,
) -> Model {
    let mut changed = Model { nodes: Vec::with_capacity(model.nodes.len() + splits.len()), ..model.clone() };
    let mut places: Vec<NodeId> = Vec::with_capacity(model.nodes.len());
    let placed = |source: Source, places: &[NodeId]| Source { node: places[source.node.index()], port: source.port };
    for (id, node) in model.iter() {
        let mut node = node.clone();
        for source in &mut node.inputs {
            let quantizer = splits.get(&id).and_then(|splits| splits.iter().find(|(value, _)| value == source));
            let Some((value, quantizer)) = quantizer.copied() else {
                *source = placed(*source, &places);
                continue;
            };
            let mut copy = model.node(quantizer).clone();
            // A value that was moved is quantised itself, another one is what the FakeQuantize makes of its data.
            if value.node != quantizer {
                copy.inputs[0] = value;
            }
            copy.inputs.iter_mut().for_each(|source| *source = placed(*source, &places));
            *source = Source { node: NodeId(changed.nodes.len() as u32), port: 0 };
            copy.outputs.clone_from(&model.node(value.node).outputs);
            changed.nodes.push(copy);
        }
        if let Some(quantizer) = moved.get(&id) {
            node.inputs[0] = placed(model.node(*quantizer).inputs[0], &places);
        }
        for (source, quantizer) in node.inputs.iter_mut().zip(joined.get(&id).into_iter().flatten()) {
            *source = placed(model.node(*quantizer).inputs[0], &places);
        }
        places.push(NodeId(changed.nodes.len() as u32));
        changed.nodes.push(node);
    }
    for id in changed.parameters.iter_mut().chain(&mut changed.results) {
        *id = places[id.index()];
    }
    let uses = Uses::new(&changed);
    let quantizers = splits.values().flatten().map(|(_, quantizer)| quantizer).chain(joined.values().flatten());
    let quantizers = quantizers.map(|quantizer| places[quantizer.index()]);
    let unread = quantizers.filter(|id| uses.of(*id).is_empty()).collect();
    remove(&mut changed, &unread);
    changed
}
