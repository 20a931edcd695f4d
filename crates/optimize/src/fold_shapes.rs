//! Makes constants of the shapes that are known: a ShapeOf reads its data only to tell what inference has told already,
//! and keeps them from lying as the kernels around it want them.

use ovir_graph::{Model, Node, Source, Validated};

use crate::trace::Trace;

/// Replaces all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let (model, inference) = (validated.model(), validated.inference());
    let mut changed: Option<Model> = None;
    for (id, node) in model.iter().filter(|(_, node)| node.is("ShapeOf")) {
        let Some(shape) = inference.get(Source { node: id, port: 0 }).constant.clone() else {
            trace.declined(node, || "reads a value whose shape is not known".to_owned());
            continue;
        };
        trace.applied(node, || "is a constant, since the shape is known".to_owned());
        let constant = Node::constant(node.friendly_name.clone(), (*shape).clone());
        let changed = changed.get_or_insert_with(|| model.clone());
        changed.nodes[id.index()] = Node { outputs: node.outputs.clone(), ..constant };
    }
    changed
}
