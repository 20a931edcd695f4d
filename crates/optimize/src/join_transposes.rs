//! Joins a Transpose with the one behind it that alone reads it: exporters turn keys for the product with the queries, and
//! converters turn them back for ScaledDotProductAttention.

use ovir_graph::{Model, NodeId, Source, Validated};
use ovir_tensor::SmallVec;

use crate::chain::{Added, Uses, transpose, transpose_order};
use crate::finder::without;
use crate::trace::{Trace, all_named};

/// Joins all such Transposes; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let order_of = |id: NodeId| transpose_order(validated, model.node(id));
    let follows = |id: NodeId| model.node(id).inputs.first().is_some_and(|data| order_of(data.node).is_some());
    if !model.iter().any(|(id, _)| order_of(id).is_some() && follows(id)) {
        return None;
    }
    let uses = Uses::new(model);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter() {
        // The last one of a row takes all others.
        let is_last = uses.only_reader(id).and_then(order_of).is_none();
        let Some(mut order) = order_of(id).filter(|_| is_last) else { continue };
        let (mut row, mut source) = (Vec::new(), Source { node: id, port: 0 });
        while let Some(data) = model.node(source.node).inputs.first().copied() {
            let before = order_of(data.node).filter(|_| uses.only_reader(data.node) == Some(source.node));
            let Some(together) = before.and_then(|before| composed(&before, &order)) else { break };
            order = together;
            row.push(data.node);
            source = data;
        }
        let data = model.node(source.node).inputs.first().copied();
        let Some(data) = data.filter(|_| !row.is_empty()) else { continue };
        let mut added = Added::new(&changed);
        let name = &node.friendly_name;
        let Some(order) = added.integers(format!("{name}/order"), &order) else { continue };
        trace.applied(node, || format!("takes {}", all_named(row.iter().map(|taken| model.node(*taken)))));
        added.put(&mut changed, id, transpose(name.clone(), data, order));
        replaced.extend(row);
    }
    without(changed, replaced)
}

/// The order of two Transposes as one.
fn composed(before: &[i64], after: &[i64]) -> Option<SmallVec<[i64; 8]>> {
    after.iter().map(|axis| before.get(usize::try_from(*axis).ok()?).copied()).collect()
}
