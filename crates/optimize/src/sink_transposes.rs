//! Moves the Transpose in front of the Split of queries, keys and values behind it.
//!
//! Vision transformers compute all three by one product, bring `[batch, rows, 3, heads, columns]` into the order
//! `[3, batch, heads, rows, columns]`, and split that. Split as it lies, each part has its rows and heads to exchange only,
//! which the attention does where it reads them.

use std::collections::HashSet;

use ovir_graph::{Model, Node, NodeId, Output, Source, Validated};
use ovir_tensor::{SmallVec, Tensor};

use crate::chain::{Uses, remove};
use crate::fuse_attention::ROWS_AND_HEADS;
use crate::trace::{Trace, named};

/// The most layers between a Split and an attention.
const MOST_LAYERS: usize = 4;

/// Layers that compute value by value with a constant of one element.
const SCALES: &[&str] = &["Divide", "Multiply"];

/// Moves all such Transposes; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut removed = HashSet::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Split")) {
        let split = match of_heads(validated, &uses, id) {
            Ok(Some(split)) => split,
            Ok(None) => continue,
            Err(reason) => {
                trace.declined(node, || reason.to_owned());
                continue;
            }
        };
        let transpose = model.node(split.transpose);
        trace.applied(node, || format!("reads what {} reads", named(transpose)));
        sink(&mut changed, transpose, id, &split)?;
        removed.insert(split.transpose);
    }
    remove(&mut changed, &removed);
    // Layers that were added stand behind those that read them.
    (!removed.is_empty() && changed.sort()).then_some(changed)
}

/// A Split behind a Transpose, whose parts become operands of attentions.
struct Heads {
    transpose: NodeId,
    /// The axis of the data that is split.
    axis: i64,
    ways: Vec<Way>,
}

/// The layers from a Split to an operand of an attention.
struct Way {
    layers: SmallVec<[NodeId; MOST_LAYERS]>,
    squeeze: NodeId,
    attention: NodeId,
    port: usize,
}

/// What stands around a Split; nothing if no Transpose stands in front of it, or no attention behind it.
fn of_heads(validated: &Validated, uses: &Uses, id: NodeId) -> Result<Option<Heads>, &'static str> {
    let model = validated.model();
    let node = model.node(id);
    let [data, axis] = node.inputs[..] else { return Ok(None) };
    let transpose = model.node(data.node);
    if !transpose.is("Transpose") {
        return Ok(None);
    }
    let integers = |source: Source| validated.inference().get(source).integers();
    let ports = 0..node.outputs.len() as u32;
    let ways: Vec<Option<Way>> = ports.map(|port| way(validated, uses, Source { node: id, port })).collect();
    if ways.iter().all(Option::is_none) {
        return Ok(None);
    }
    let ways: Option<Vec<Way>> = ways.into_iter().collect();
    let ways = ways.ok_or("has a part that is no operand of an attention")?;
    if uses.only_reader(data.node) != Some(id) {
        return Err("reads a Transpose that others read too");
    }
    let (order, axis) = transpose
        .inputs
        .get(1)
        .and_then(|source| integers(*source))
        .zip(integers(axis))
        .ok_or("stands behind a Transpose of a computed order, or splits a computed axis")?;
    let rank = order.len() as i64;
    let wrapped = |axis: i64| if axis < 0 { axis + rank } else { axis };
    let [axis] = axis[..] else { return Err("has no axis") };
    let at = wrapped(axis);
    let source = usize::try_from(at).ok().and_then(|at| order.get(at)).copied().ok_or("has no such axis")?;
    let source = wrapped(source);
    let rest = order.iter().map(|axis| wrapped(*axis)).filter(|axis| *axis != source);
    let rest: SmallVec<[i64; 8]> = rest.map(|axis| axis - i64::from(axis > source)).collect();
    if rest[..] != ROWS_AND_HEADS {
        return Err("stands behind a Transpose that does more than exchange rows and heads");
    }
    let squeezes = |way: &Way| {
        let axes = model.node(way.squeeze).inputs.get(1).and_then(|source| integers(*source));
        matches!(axes.as_deref(), Some([axis]) if wrapped(*axis) == at)
    };
    if !ways.iter().all(squeezes) {
        return Err("has a part of which another axis is taken away");
    }
    Ok(Some(Heads { transpose: data.node, axis: source, ways }))
}

/// The way of a value to an attention, over layers that take its axis away or compute value by value.
fn way(validated: &Validated, uses: &Uses, value: Source) -> Option<Way> {
    let model = validated.model();
    let (mut at, mut squeeze, mut layers) = (value, None, SmallVec::new());
    for _ in 0..=MOST_LAYERS {
        let [reader] = uses.of_value(at) else { return None };
        let node = model.node(*reader);
        if node.is("ScaledDotProductAttention") {
            let port = node.inputs.iter().position(|source| *source == at).filter(|port| *port < 3)?;
            return Some(Way { layers, squeeze: squeeze?, attention: *reader, port });
        }
        if node.is("Squeeze") && squeeze.is_none() {
            squeeze = Some(*reader);
        } else {
            let is_known = node.is("FakeQuantize") || SCALES.iter().any(|kind| node.is(kind));
            let is_single = |source: &Source| *source == at || uses.is_single(validated, *source);
            (is_known && node.inputs.iter().all(is_single)).then_some(())?;
        }
        layers.push(*reader);
        at = Source { node: *reader, port: 0 };
    }
    None
}

/// Splits what the Transpose reads, and exchanges rows and heads in front of the attentions.
fn sink(changed: &mut Model, transpose: &Node, id: NodeId, split: &Heads) -> Option<()> {
    let add = |nodes: &mut Vec<Node>, node: Node| {
        nodes.push(node);
        Source { node: NodeId(nodes.len() as u32 - 1), port: 0 }
    };
    let name = &transpose.friendly_name;
    let nodes = &mut changed.nodes;
    let axis = add(nodes, Node::constant(format!("{name}/axis"), Tensor::from_slice(&[split.axis], []).ok()?));
    let axes = add(nodes, Node::constant(format!("{name}/axes"), Tensor::from_slice(&[split.axis], [1]).ok()?));
    let order = add(nodes, Node::constant(format!("{name}/order"), Tensor::from_slice(&ROWS_AND_HEADS, [4]).ok()?));
    nodes[id.index()].inputs = vec![*transpose.inputs.first()?, axis];
    for way in &split.ways {
        nodes[way.squeeze.index()].inputs[1] = axes;
        for layer in way.layers.iter().chain([&id]) {
            if let Some(location) = &mut nodes[layer.index()].location {
                // Its ports declare the shapes that it had behind the Transpose.
                (location.inputs, location.outputs) = Default::default();
            }
        }
        let part = nodes[way.attention.index()].inputs[way.port];
        let turned = Node {
            friendly_name: format!("{name}/{}", way.port),
            inputs: vec![part, order],
            outputs: vec![Output::default()],
            location: None,
            ..transpose.clone()
        };
        let turned = add(nodes, turned);
        nodes[way.attention.index()].inputs[way.port] = turned;
    }
    Some(())
}
