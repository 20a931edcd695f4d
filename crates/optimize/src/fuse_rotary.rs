//! Fuses rotary position embeddings: `x * cosines + Concat(-second half, first half) * sines`, as exporters write it.
//!
//! A Transpose of rows and heads in front, which only the embedding reads, becomes part of it.

use ovir_graph::{Model, NodeId, Source, Validated};
use ovir_ops::movement::concat::Concat;
use ovir_tensor::ElementType;

use crate::chain::fuse;
use crate::finder::Finder;
use crate::fuse_attention::ROWS_AND_HEADS;
use crate::trace::{Trace, all_named};

/// Fuses all embeddings; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let finder = Finder::new(validated);
    let mut chains = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("Concat")) {
        if let Some(mut chain) = finder.rotation(id) {
            let others = chain.iter().filter(|member| **member != id).map(|member| model.node(*member));
            trace.applied(node, || format!("takes {}", all_named(others)));
            chain.sort_unstable();
            chains.push(chain);
        }
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}

impl Finder<'_> {
    /// The layers of the embedding that a Concat of halves is part of.
    fn rotation(&self, concat: NodeId) -> Option<Vec<NodeId>> {
        let node = self.node(concat);
        let [turned, first] = node.inputs[..] else { return None };
        let (second, negation) = self.negated(turned)?;
        let (data, is_second) = self.half(second)?;
        (is_second && self.half(first) == Some((data, false))).then_some(())?;
        let are_halves_alone = self.is_only(second.node, negation) && self.is_only(first.node, concat);
        (are_halves_alone && self.is_only(negation, concat)).then_some(())?;
        let dims = self.validated.inference().get(data).shape.dims()?;
        let axis = node.operation.downcast_ref::<Concat>()?.attributes.axis;
        (axis == -1 || usize::try_from(axis).is_ok_and(|axis| axis + 1 == dims.len())).then_some(())?;
        let (with_sines, sines) = self.operand(concat, "Multiply")?;
        let (sum, with_cosines) = self.operand(with_sines, "Add")?;
        let cosines = self.other(with_cosines.node, "Multiply", data)?;
        let are_rows = self.is_rotated_row(cosines, data) && self.is_rotated_row(sines, data);
        (are_rows && self.is_only(with_cosines.node, sum)).then_some(())?;
        let mut chain = vec![second.node, negation, first.node, concat, with_sines, with_cosines.node, sum];
        chain.extend(self.swap_of_heads(data.node, &chain));
        Some(chain)
    }

    /// What a layer negates, and the layer.
    fn negated(&self, value: Source) -> Option<(Source, NodeId)> {
        let node = self.node(value.node);
        let of = match node.inputs[..] {
            [of] if node.is("Negative") => of,
            _ => self.with_number(value.node, "Multiply").filter(|(_, factor)| *factor == -1.0)?.0,
        };
        Some((of, value.node))
    }

    /// What a Slice takes the first or the second half of along the last axis, and whether it is the second one.
    fn half(&self, value: Source) -> Option<(Source, bool)> {
        let node = self.node(value.node);
        let [data, start, stop, step, axes] = node.inputs[..] else { return None };
        let inference = self.validated.inference();
        let only = |source: Source| match inference.get(source).integers()?[..] {
            [value] => Some(value),
            _ => None,
        };
        let facts = inference.get(data);
        let dims = facts.shape.dims().filter(|_| node.is("Slice") && facts.element_type == ElementType::F32)?;
        let (rank, columns) = (dims.len() as i64, dims.last()?.get()? as i64);
        let (half, axis) = (columns / 2, only(axes)?);
        let is_last = axis == -1 || axis + 1 == rank;
        let is_whole = columns > 0 && columns % 2 == 0 && only(step)? == 1;
        (is_last && is_whole && matches!(rank, 3 | 4)).then_some(())?;
        let place = |value: i64| if value < 0 { (value + columns).max(0) } else { value.min(columns) };
        match (place(only(start)?), place(only(stop)?)) {
            (0, stop) if stop == half => Some((data, false)),
            (start, stop) if start == half && stop == columns => Some((data, true)),
            _ => None,
        }
    }

    /// Whether a value has rows as long as those of the data, and no more axes.
    fn is_rotated_row(&self, source: Source, data: Source) -> bool {
        let inference = self.validated.inference();
        let (facts, data) = (inference.get(source), inference.get(data));
        let (Some(dims), Some(of_data)) = (facts.shape.dims(), data.shape.dims()) else { return false };
        facts.element_type == ElementType::F32 && dims.len() <= of_data.len() && dims.last() == of_data.last()
    }

    /// A Transpose of rows and heads that only these layers read.
    fn swap_of_heads(&self, id: NodeId, readers: &[NodeId]) -> Option<NodeId> {
        let node = self.node(id);
        let order = node.inputs.get(1).and_then(|source| self.validated.inference().get(*source).integers());
        let swaps = node.is("Transpose") && order.is_some_and(|order| order[..] == ROWS_AND_HEADS);
        (swaps && self.uses.all_readers_in(id, readers)).then_some(id)
    }
}
