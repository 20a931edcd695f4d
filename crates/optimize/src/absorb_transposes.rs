//! Takes Transposes that undo each other from around an Interpolate.
//!
//! Models that came from channels-last frameworks resize between two Transposes. The axes to resize can as well be those of
//! the data before the first one; then values stay in the layout that convolutions want.

use std::collections::HashSet;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::image::interpolate::Interpolate;
use ovir_tensor::Tensor;

use crate::chain::{Uses, is_undone, remove, transpose_order};
use crate::trace::{Trace, named};

/// An Interpolate between two Transposes.
struct Between {
    first: NodeId,
    last: NodeId,
    data: Source,
    /// The axes to resize, of the data.
    axes: Tensor,
}

/// Takes away all such pairs; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut removed: HashSet<NodeId> = HashSet::new();
    // Transposes that an Interpolate has taken the place of.
    let mut taken: HashSet<NodeId> = HashSet::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Interpolate")) {
        let Some(first) = node.inputs.first().map(|source| source.node).filter(|id| model.node(*id).is("Transpose"))
        else {
            continue;
        };
        if taken.contains(&first) {
            trace.declined(node, || "reads a Transpose that another Interpolate stands for".to_owned());
            continue;
        }
        let between = match between(validated, &uses, id, first) {
            Ok(between) => between,
            Err(reason) => {
                trace.declined(node, || reason.to_owned());
                continue;
            }
        };
        let last = model.node(between.last);
        trace.applied(node, || {
            format!("resizes what {} reads and stands for {}", named(model.node(first)), named(last))
        });
        // The layer moves to the place of the last one, and the new axes to its own.
        let mut moved = Node {
            type_name: node.type_name.clone(),
            opset: node.opset.clone(),
            version: node.version,
            operation: node.operation.clone(),
            inputs: node.inputs.clone(),
            ..last.clone()
        };
        moved.inputs[0] = between.data;
        if let Some(axes) = moved.inputs.last_mut() {
            *axes = Source { node: id, port: 0 };
        }
        changed.nodes[between.last.index()] = moved;
        changed.nodes[id.index()] = Node::constant(format!("{}/axes", node.friendly_name), between.axes);
        if uses.only_reader(between.first) == Some(id) {
            removed.insert(between.first);
        }
        taken.insert(between.last);
    }
    remove(&mut changed, &removed);
    (!taken.is_empty()).then_some(changed)
}

/// What stands around the Interpolate `id`, which reads the Transpose `first`.
fn between(validated: &Validated, uses: &Uses, id: NodeId, first: NodeId) -> Result<Between, &'static str> {
    let (model, inference) = (validated.model(), validated.inference());
    let node = model.node(id);
    let found = node.operation.downcast_ref::<Interpolate>().ok_or("is no Interpolate")?;
    let axes_port = match found.class_version {
        4 => 3,
        11 => 2,
        _ => return Err("names its axes in an attribute"),
    };
    let axes = node.inputs.get(axes_port).and_then(|source| inference.get(*source).integers());
    let axes = axes.ok_or("does not name its axes by a constant")?;
    if found.attributes.pads_begin.iter().chain(&found.attributes.pads_end).any(|pad| *pad != 0) {
        return Err("pads its data");
    }
    let last = uses.only_reader(id).filter(|last| model.node(*last).is("Transpose"));
    let last = last.ok_or("is not read by a Transpose alone")?;
    let order = |transpose: NodeId| transpose_order(validated, model.node(transpose));
    let (before, after) = order(first).zip(order(last)).ok_or("stands between Transposes of computed orders")?;
    if !is_undone(&before, &after) {
        return Err("stands between Transposes that do not undo each other");
    }
    let at = |axis: &i64| usize::try_from(*axis).ok().and_then(|axis| before.get(axis).copied());
    let moved: Option<Vec<i64>> = axes.iter().map(at).collect();
    let moved = moved.ok_or("names an axis that its data lacks")?;
    let axes = Tensor::from_slice(&moved, [moved.len()]).map_err(|_| "has too many axes")?;
    let data = *model.node(first).inputs.first().ok_or("reads a Transpose of nothing")?;
    Ok(Between { first, last, data, axes })
}
