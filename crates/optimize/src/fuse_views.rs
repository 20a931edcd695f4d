//! Fuses Gathers of windows with each other and with the Transposes around them.
//!
//! `unfold` (im2col) is exported as a Gather of rows, one of columns, and a Transpose. Indices that advance evenly name elements
//! at even distances, which one strided copy can read as the last of these layers orders them.

use std::collections::HashSet;

use ovir_graph::{Model, Node, NodeId, Validated};
use ovir_ops::common::movement::EvenIndices;
use ovir_ops::integers_of_view;
use ovir_ops::movement::gather::Gather;

use crate::chain::{Uses, fuse, stored, transpose_order};
use crate::trace::{Trace, all_named};

/// Fuses all chains that have a Gather of windows in them; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut chains: Vec<Vec<NodeId>> = Vec::new();
    let mut taken: HashSet<NodeId> = HashSet::new();
    let is_part = |node: &Node| transpose_order(validated, node).is_some() || is_even(validated, node);
    for (id, node) in model.iter() {
        if taken.contains(&id) || uses.is_constant(id) || !is_part(node) {
            continue;
        }
        let mut chain = vec![id];
        while let Some(next) = chain.last().and_then(|last| uses.only_reader(*last)) {
            let reader = model.node(next);
            if reader.inputs.first().is_none_or(|data| Some(&data.node) != chain.last()) || !is_part(reader) {
                break;
            }
            chain.push(next);
        }
        taken.extend(&chain);
        if chain.iter().any(|id| is_of_windows(validated, model.node(*id))) {
            trace.applied(node, || match &chain[1..] {
                [] => "is one copy".to_owned(),
                others => format!("is one copy with {}", all_named(others.iter().map(|id| model.node(*id)))),
            });
            chains.push(chain);
        }
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}

/// Whether a layer is a Gather without batches by constant indices that advance evenly.
fn is_even(validated: &Validated, node: &Node) -> bool {
    let Some(gather) = node.operation.downcast_ref::<Gather>() else { return false };
    let facts = |port: usize| node.inputs.get(port).map(|source| validated.inference().get(*source));
    let has_axis = facts(2).is_some_and(|axis| axis.integers().is_some());
    let has_rank = facts(0).is_some_and(|data| data.shape.rank().is_some());
    if gather.attributes.batch_dims != 0 || !has_axis || !has_rank {
        return false;
    }
    let indices = node.inputs.get(1).and_then(|source| stored(validated, *source));
    indices.is_some_and(|indices| {
        let values = integers_of_view(indices.view());
        values.is_some_and(|values| EvenIndices::of(indices.shape(), &values).is_some())
    })
}

/// Whether a layer is a Gather whose indices have several axes.
fn is_of_windows(validated: &Validated, node: &Node) -> bool {
    let indices = node.inputs.get(1).filter(|_| node.is("Gather"));
    indices.is_some_and(|source| validated.inference().get(*source).shape.rank().is_some_and(|rank| rank > 1))
}
