//! Drops the indices of a MaxPool that nobody reads, so that no memory is kept and no time spent for them.

use std::collections::HashSet;

use ovir_graph::{Model, Source, Validated};

use crate::trace::Trace;

/// Drops all such outputs; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let read: HashSet<Source> = model.nodes.iter().flat_map(|node| node.inputs.iter().copied()).collect();
    let is_unread = |id, node: &ovir_graph::Node| {
        node.is("MaxPool") && node.outputs.len() == 2 && !read.contains(&Source { node: id, port: 1 })
    };
    let unread: Vec<_> = model.iter().filter(|(id, node)| is_unread(*id, node)).map(|(id, _)| id).collect();
    if unread.is_empty() {
        return None;
    }
    let mut changed = model.clone();
    for id in unread {
        trace.applied(model.node(id), || "drops its indices, which nobody reads".to_owned());
        changed.nodes[id.index()].outputs.truncate(1);
    }
    Some(changed)
}
