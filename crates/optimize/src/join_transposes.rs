//! Joins a Transpose with the one behind it that alone reads it: exporters turn keys for the product with the queries, and
//! converters turn them back for ScaledDotProductAttention.

use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::movement::transpose::Transpose;
use ovir_tensor::SmallVec;

use crate::chain::{Added, Uses, remove_unread, transpose_order};
use crate::trace::{Trace, named};

const VERSION: OpVersion = OpVersion::new(1, (1, 16), (2, 2), (1, 1));

/// Joins all such Transposes; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Transpose")) {
        // Of three in a row, the last one reads what the first one does.
        let mut joined: Option<(Source, SmallVec<[i64; 8]>)> = None;
        let Some(mut order) = transpose_order(validated, node) else { continue };
        let mut reader = id;
        while let Some(data) = model.node(reader).inputs.first() {
            let first = model.node(data.node);
            let Some(before) =
                transpose_order(validated, first).filter(|_| uses.only_reader(data.node) == Some(reader))
            else {
                break;
            };
            let at = |axis: &i64| usize::try_from(*axis).ok().and_then(|axis| before.get(axis)).copied();
            let Some(together) = order.iter().map(at).collect::<Option<SmallVec<[i64; 8]>>>() else { break };
            let Some(source) = first.inputs.first() else { break };
            trace.applied(node, || format!("takes {}", named(first)));
            replaced.push(data.node);
            order = together;
            joined = Some((*source, order.clone()));
            reader = data.node;
        }
        let Some((source, order)) = joined.filter(|_| !replaced.contains(&id)) else { continue };
        let mut added = Added::new(&changed);
        let name = &node.friendly_name;
        let Some(order) = added.integers(format!("{name}/order"), &order) else { continue };
        added.put(&mut changed, id, transpose(name.clone(), source, order));
    }
    if replaced.is_empty() {
        return None;
    }
    remove_unread(&mut changed, replaced);
    changed.sort().then_some(changed)
}

/// A Transpose.
pub(crate) fn transpose(name: String, data: Source, order: Source) -> Node {
    Node::new(name, "Transpose", VERSION, Arc::new(Transpose), vec![data, order], 1)
}
