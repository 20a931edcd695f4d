//! Makes constants of the integers that inference knows, mostly sizes: a ShapeOf reads its data only to tell what inference has
//! told already, and keeps them from lying as the kernels around it want them. What is computed from such integers alone, such
//! as positions and tables that are resized to fit the data, is then computed once.

use ovir_graph::{Model, Node, Source, Validated, known_tensor};
use ovir_ops::Effects;

use crate::trace::Trace;

/// Replaces all such layers; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let (model, inference) = (validated.model(), validated.inference());
    // Layers that depend on constants only are computed once as they are.
    let is_constant = model.constant_layers();
    let mut changed: Option<Model> = None;
    for (id, node) in model.iter().filter(|(id, node)| !is_constant[id.index()] && can_go(node)) {
        let facts = inference.get(Source { node: id, port: 0 });
        let Some(tensor) = known_tensor(facts).filter(|_| facts.element_type.is_integer()) else {
            if node.is("ShapeOf") {
                trace.declined(node, || "reads a value whose shape is not known".to_owned());
            }
            continue;
        };
        trace.applied(node, || "is a constant, since the sizes are known".to_owned());
        let constant = Node::constant(node.friendly_name.clone(), tensor);
        let changed = changed.get_or_insert_with(|| model.clone());
        changed.nodes[id.index()] = Node { outputs: node.outputs.clone(), ..constant };
    }
    changed
}

/// Whether a layer does nothing but compute one value.
fn can_go(node: &Node) -> bool {
    node.outputs.len() == 1
        && !node.inputs.is_empty()
        && node.bodies.is_empty()
        && node.operation.effects() == Effects::None
        && !node.is("Result")
}
