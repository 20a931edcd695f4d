//! Brings FakeQuantize next to each convolution and product that can be computed in bytes.
//!
//! A layer that reads a quantised value gets a FakeQuantize of its own, which `fuse_epilogue` takes into it: the kernel
//! then makes codes of the data and multiplies them with the stored codes of its constant. A MaxPool commutes with
//! FakeQuantize and is moved before it.

use std::collections::{HashMap, HashSet};

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::convolution::convolution::Convolution;
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_tensor::{ElementType, PartialShape, Shape};

use crate::chain::{Uses, remove};

/// Smaller constants are not worth it; kernels do not read them as they are stored either.
const FEWEST_ELEMENTS: usize = 1 << 12;

/// Sums of more products of bytes could exceed i32.
const MOST_TERMS: usize = (i32::MAX as usize) / (255 * 128) - 1;

/// The most layers between stored codes and a value.
const MOST_LAYERS: usize = 6;

/// Splits all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated) -> Option<Model> {
    let pools = pools(validated);
    let mut model = validated.model().clone();
    for (quantizer, pool) in &pools {
        swap(&mut model, *quantizer, *pool);
    }
    // Where FakeQuantize and MaxPool changed places, the reader of the one reads the other now.
    let splits = splits(validated, &model, &pools);
    if pools.is_empty() && splits.is_empty() {
        return None;
    }
    Some(split(model, &splits))
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

/// The code of zero of a FakeQuantize of whole tensors, if it is an integer.
fn zero_code(model: &Model, node: &Node) -> Option<i64> {
    let operation = node.operation.downcast_ref::<FakeQuantize>()?;
    let limit = |port: usize| {
        let tensor = model.node(node.inputs.get(port)?.node).tensor()?.aligned().ok()?;
        match tensor.slice::<f32>() {
            Ok([value]) if value.is_finite() => Some(f64::from(*value)),
            _ => None,
        }
    };
    let (input_low, input_high, low, high) = (limit(1)?, limit(2)?, limit(3)?, limit(4)?);
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
    if node.operation.downcast_ref::<Convolution>().is_some() {
        let channels = data.dims().and_then(|dims| dims.get(1)?.get());
        // Taps in the padding read the code of zero.
        return shape.rank() == 4
            && data.rank() == Some(4)
            && channels == Some(shape[1])
            && shape[1..].iter().product::<usize>() <= MOST_TERMS
            && (0..=255).contains(&zero)
            && (scales.elements() == 1 || scales[..] == [shape[0], 1, 1, 1]);
    }
    let Some(product) = node.operation.downcast_ref::<MatMul>() else { return false };
    if product.attributes.transpose_a || shape.rank() != 2 || data.rank().is_none_or(|rank| rank < 2) {
        return false;
    }
    let (k, n) = if product.attributes.transpose_b { (shape[1], shape[0]) } else { (shape[0], shape[1]) };
    let columns: [usize; 2] = if product.attributes.transpose_b { [n, 1] } else { [1, n] };
    k <= MOST_TERMS && (scales.elements() == 1 || scales[..] == columns)
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
                    && codes.shape().elements() >= FEWEST_ELEMENTS
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

/// FakeQuantize layers that only one MaxPool reads, and that MaxPool, where what reads it can be computed in bytes.
fn pools(validated: &Validated) -> Vec<(NodeId, NodeId)> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut found = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("FakeQuantize")) {
        let Some(zero) = zero_code(model, node) else { continue };
        let Some(pool) = uses.only_reader(id).filter(|reader| model.node(*reader).is("MaxPool")) else { continue };
        let (value, pool_node) = (Source { node: pool, port: 0 }, model.node(pool));
        let is_wanted = uses.of(pool).iter().any(|reader| {
            let reader = model.node(*reader);
            reads_once(reader, value)
                && is_byte_product(validated, reader, &validated.inference().get(value).shape, zero)
        });
        if pool_node.outputs.len() == 1 && is_wanted {
            found.push((id, pool));
        }
    }
    found
}

/// `FakeQuantize → MaxPool` becomes `MaxPool → FakeQuantize`. Both keep their places, so that the order stays right.
fn swap(model: &mut Model, quantizer: NodeId, pool: NodeId) {
    let (mut first, mut second) = (model.node(pool).clone(), model.node(quantizer).clone());
    first.inputs[0] = second.inputs[0];
    second.inputs[0] = Source { node: quantizer, port: 0 };
    std::mem::swap(&mut first.outputs, &mut second.outputs);
    model.nodes[quantizer.index()] = first;
    model.nodes[pool.index()] = second;
}

/// The readers that get a FakeQuantize of their own, and the one they read now.
fn splits(validated: &Validated, model: &Model, pools: &[(NodeId, NodeId)]) -> HashMap<NodeId, NodeId> {
    let moved: HashSet<NodeId> = pools.iter().map(|(_, pool)| *pool).collect();
    let uses = Uses::new(model);
    let mut splits = HashMap::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("FakeQuantize")) {
        let Some(zero) = zero_code(model, node) else { continue };
        let value = Source { node: id, port: 0 };
        debug_assert!(!moved.contains(&id) || validated.model().node(id).is("MaxPool"));
        // The value at this place has the shape that it had: MaxPool and FakeQuantize changed places together.
        let shape = &validated.inference().get(value).shape;
        let readers = uses.of(id);
        for reader in readers {
            let reads = model.node(*reader);
            if readers.len() > 1 && reads_once(reads, value) && is_byte_product(validated, reads, shape, zero) {
                splits.insert(*reader, id);
            }
        }
    }
    splits
}

/// Puts a copy of the FakeQuantize in front of each reader, and removes those that nobody reads any more.
fn split(model: Model, splits: &HashMap<NodeId, NodeId>) -> Model {
    let mut changed = Model { nodes: Vec::with_capacity(model.nodes.len() + splits.len()), ..model.clone() };
    let mut places: Vec<NodeId> = Vec::with_capacity(model.nodes.len());
    let moved = |node: &Node, places: &[NodeId]| {
        let mut node = node.clone();
        for source in &mut node.inputs {
            source.node = places[source.node.index()];
        }
        node
    };
    for (id, node) in model.iter() {
        let mut node = moved(node, &places);
        if let Some(quantizer) = splits.get(&id) {
            node.inputs[0] = Source { node: NodeId(changed.nodes.len() as u32), port: 0 };
            changed.nodes.push(moved(model.node(*quantizer), &places));
        }
        places.push(NodeId(changed.nodes.len() as u32));
        changed.nodes.push(node);
    }
    for id in changed.parameters.iter_mut().chain(&mut changed.results) {
        *id = places[id.index()];
    }
    let uses = Uses::new(&changed);
    let unread = splits.values().map(|id| places[id.index()]).filter(|id| uses.of(*id).is_empty()).collect();
    remove(&mut changed, &unread);
    changed
}
