//! Drops layers that give what they read, or what the layer before them read: exporters leave Slices of everything, Reshapes
//! to the same shape, Pads with nothing, and Transposes that undo each other, which stand between layers that belong together.

use std::collections::{HashMap, HashSet};

use ovir_graph::{Model, Node, NodeId, Source, Validated};

use crate::chain::{is_undone, remove_unread, transpose_order};
use crate::trace::{Trace, named};

/// Drops all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    // A Result has the names of what it reads.
    let of_results: HashSet<Source> =
        model.results.iter().filter_map(|id| model.node(*id).inputs.first().copied()).collect();
    let mut same: HashMap<Source, Source> = HashMap::new();
    // Transposes that others undo.
    let mut passed_over: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| node.outputs.len() == 1) {
        let value = Source { node: id, port: 0 };
        if of_results.contains(&value) {
            continue;
        }
        let Some(data) = node.inputs.first().copied() else { continue };
        let data = if is_identity(validated, id, node) {
            trace.applied(node, || format!("gives what it reads of {}", named(model.node(data.node))));
            data
        } else if let Some(first) = undone(validated, node) {
            trace.applied(node, || format!("gives what {} reads", named(model.node(data.node))));
            passed_over.push(data.node);
            first
        } else {
            continue;
        };
        same.insert(value, same.get(&data).copied().unwrap_or(data));
    }
    if same.is_empty() {
        return None;
    }
    let mut changed = model.clone();
    for source in changed.nodes.iter_mut().flat_map(|node| &mut node.inputs) {
        *source = same.get(source).copied().unwrap_or(*source);
    }
    passed_over.extend(same.keys().map(|value| value.node));
    remove_unread(&mut changed, passed_over);
    Some(changed)
}

/// What the Transpose reads that this one undoes.
fn undone(validated: &Validated, node: &Node) -> Option<Source> {
    let after = transpose_order(validated, node)?;
    let first = validated.model().node(node.inputs.first()?.node);
    let before = transpose_order(validated, first)?;
    is_undone(&before, &after).then(|| first.inputs.first().copied())?
}

/// Whether the only output of a layer is its first input, element by element.
fn is_identity(validated: &Validated, id: NodeId, node: &Node) -> bool {
    let inference = validated.inference();
    let Some(data) = node.inputs.first().map(|source| inference.get(*source)) else { return false };
    let output = inference.get(Source { node: id, port: 0 });
    let is_same = data.element_type == output.element_type
        && data.shape.to_shape().is_some_and(|shape| output.shape.to_shape().as_ref() == Some(&shape));
    if !is_same {
        return false;
    }
    let integers = |port: usize| node.inputs.get(port).and_then(|source| inference.get(*source).integers());
    let all = |port: usize, fits: fn(&i64) -> bool| integers(port).is_some_and(|values| values.iter().all(fits));
    match &*node.type_name {
        "Reshape" | "Squeeze" | "Unsqueeze" | "Broadcast" | "Tile" | "Split" | "VariadicSplit" => true,
        "Concat" => node.inputs.len() == 1,
        "Pad" => all(1, |pad| *pad == 0) && all(2, |pad| *pad == 0),
        "Transpose" => {
            transpose_order(validated, node).is_some_and(|order| order.iter().copied().eq(0..order.len() as i64))
        }
        // All elements in their order.
        "Slice" => all(3, |step| *step > 0),
        "StridedSlice" => node.inputs.len() < 4 || all(3, |step| *step > 0),
        _ => false,
    }
}
