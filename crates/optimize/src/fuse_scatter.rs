//! Fuses the Broadcast of an index into the ScatterElementsUpdate that alone reads it.
//!
//! Exporters write an update of whole rows (`index_add`, `index_copy`...) as `Broadcast → ScatterElementsUpdate`. The kernel
//! of the pair moves rows and never writes the broadcast indices; shapes that it does not do run as the two layers.

use ovir_graph::{Model, Validated};

use crate::chain::{Uses, fuse};
use crate::trace::{Trace, named};

/// Fuses all pairs; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut chains = Vec::new();
    for (id, node) in model.iter() {
        if !node.is("Broadcast") {
            continue;
        }
        let Some(reader) = uses.only_reader(id) else { continue };
        let scatter = model.node(reader);
        let is_index = scatter.inputs.get(1).is_some_and(|source| source.node == id);
        // A Broadcast of constants is a constant, which indices are checked against when the model is compiled.
        let is_constant = node.inputs.iter().all(|source| model.node(source.node).is("Const"));
        if scatter.is("ScatterElementsUpdate") && is_index && !is_constant {
            trace.applied(node, || format!("goes into {}", named(scatter)));
            chains.push(vec![id, reader]);
        }
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}
