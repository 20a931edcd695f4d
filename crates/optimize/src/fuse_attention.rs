//! Brings what only orders or repeats the operands of an attention into it.
//!
//! Where several heads of queries share one of keys and values, exporters repeat these by Unsqueeze, Broadcast and Reshape, which
//! writes them several times over at every inference. They also turn `[batch, rows, heads, columns]` into what
//! ScaledDotProductAttention takes, and its result back. The kernel reads and writes all of these where they lie. Of queries
//! and keys that are codes of quantised values it takes the Decodes as well.

use ovir_graph::{Model, NodeId, Source, Validated};
use ovir_ops::codes::Decode;
use ovir_ops::movement::broadcast::Broadcast;
use ovir_tensor::ElementType;

use crate::chain::{Uses, fuse};
use crate::trace::{Trace, all_named};

/// Rows and heads change places.
pub const ROWS_AND_HEADS: [i64; 4] = [0, 2, 1, 3];

/// The same without a batch.
const ROWS_AND_HEADS_ALONE: [i64; 3] = [1, 0, 2];

/// Whether rows and heads change places, with or without a batch before them.
#[must_use]
pub fn swaps_rows_and_heads(order: &[i64]) -> bool {
    order == ROWS_AND_HEADS || order == ROWS_AND_HEADS_ALONE
}

/// Fuses all attentions with something to take; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut chains = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| node.is("ScaledDotProductAttention")) {
        let are_images = node.inputs.iter().take(3).chain(&[Source { node: id, port: 0 }]).all(|source| {
            let facts = validated.inference().get(*source);
            facts.element_type == ElementType::F32 && matches!(facts.shape.rank(), Some(3 | 4))
        });
        if !are_images || node.inputs.len() < 3 {
            trace.declined(node, || "has operands that are not f32 of rank 3 or 4".to_owned());
            continue;
        }
        let attention = Attention { validated, uses: &uses, id };
        let chain = attention.chain();
        if chain.len() > 1 {
            let others = || all_named(chain.iter().filter(|member| **member != id).map(|member| model.node(*member)));
            trace.applied(node, || format!("takes {}", others()));
            chains.push(chain);
        } else {
            trace.declined(node, || "reads what it needs as it is".to_owned());
        }
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}

struct Attention<'a> {
    validated: &'a Validated,
    uses: &'a Uses,
    id: NodeId,
}

impl Attention<'_> {
    /// The attention with the layers that it takes, in their order.
    fn chain(&self) -> Vec<NodeId> {
        let inputs = &self.validated.model().node(self.id).inputs;
        let decodes = [0, 1].map(|port| self.decode(inputs[port]));
        let decodes = match decodes {
            [Some(q), Some(k)] => [Some(q), Some(k), None],
            _ => [None; 3],
        };
        let mut chain = self.ordered(inputs[0], self.id, decodes[0]);
        // Keys and values are repeated alike, or not at all.
        let repeats = [self.repetition(inputs[1]), self.repetition(inputs[2])];
        let is_shared = matches!(&repeats, [Some((_, of_keys)), Some((_, of_values))] if of_keys == of_values);
        for ((source, repeat), decode) in inputs[1..3].iter().zip(repeats).zip(&decodes[1..]) {
            match repeat.filter(|_| is_shared) {
                Some((repeat, _)) => {
                    chain.extend(self.first_input(repeat[0]).and_then(|source| self.transpose(source, repeat[0])));
                    chain.extend(repeat);
                }
                None => chain.extend(self.ordered(*source, self.id, *decode)),
            }
        }
        chain.push(self.id);
        let reader = self.uses.only_reader(self.id).filter(|reader| self.swaps(*reader));
        chain.extend(reader);
        chain
    }

    fn first_input(&self, node: NodeId) -> Option<Source> {
        self.validated.model().node(node).inputs.first().copied()
    }

    /// The Transpose of rows and heads, if there is one, and the Decode that give a value to `reader` alone.
    fn ordered(&self, source: Source, reader: NodeId, decode: Option<NodeId>) -> Vec<NodeId> {
        let transpose = match decode {
            Some(decode) => self.first_input(decode).and_then(|codes| self.transpose(codes, decode)),
            None => self.transpose(source, reader),
        };
        transpose.into_iter().chain(decode).collect()
    }

    /// The Decode that gives a value to the attention alone.
    fn decode(&self, source: Source) -> Option<NodeId> {
        let is_decode = self.validated.model().node(source.node).operation.downcast_ref::<Decode>().is_some();
        (is_decode && self.uses.only_reader(source.node) == Some(self.id)).then_some(source.node)
    }

    /// The Transpose of rows and heads that gives a value to `reader` alone.
    fn transpose(&self, source: Source, reader: NodeId) -> Option<NodeId> {
        (self.swaps(source.node) && self.uses.only_reader(source.node) == Some(reader)).then_some(source.node)
    }

    /// Whether a layer is a Transpose of rows and heads.
    fn swaps(&self, id: NodeId) -> bool {
        let node = self.validated.model().node(id);
        let order = node.inputs.get(1).and_then(|source| self.validated.inference().get(*source).integers());
        node.is("Transpose") && order.is_some_and(|order| swaps_rows_and_heads(&order))
    }

    /// The Unsqueeze, Broadcast and Reshape that repeat each head for its neighbours, and how often, if nobody else reads
    /// what they make.
    fn repetition(&self, source: Source) -> Option<([NodeId; 3], usize)> {
        let (model, inference) = (self.validated.model(), self.validated.inference());
        let reshape = source.node;
        let broadcast = self.first_input(reshape)?.node;
        let unsqueeze = self.first_input(broadcast)?.node;
        let is_only = |id: NodeId, reader: NodeId| self.uses.only_reader(id) == Some(reader);
        let are_alone = is_only(reshape, self.id) && is_only(broadcast, reshape) && is_only(unsqueeze, broadcast);
        let is_known = model.node(reshape).is("Reshape") && model.node(unsqueeze).is("Unsqueeze");
        let operation = model.node(broadcast).operation.downcast_ref::<Broadcast>()?;
        (are_alone && is_known && !operation.is_explicit()).then_some(())?;
        let axes = inference.get(*model.node(unsqueeze).inputs.get(1)?).integers()?;
        matches!(axes[..], [2 | -3]).then_some(())?;
        let dims = |source: Source| inference.get(source).shape.dims();
        let of = |node: NodeId| dims(Source { node, port: 0 });
        let (data, repeated, joined) = (dims(self.first_input(unsqueeze)?)?, of(broadcast)?, of(reshape)?);
        let (heads, repeats) = (data.get(1)?.get()?, repeated.get(2)?.get()?);
        let fits = data.len() == 4
            && repeated.len() == 5
            && repeated[1].get() == Some(heads)
            && joined.get(1)?.get() == heads.checked_mul(repeats)
            && data[3].get().is_some()
            && data[3] == repeated[4]
            && data[3] == *joined.get(3)?;
        (fits && repeats > 0).then_some(([unsqueeze, broadcast, reshape], repeats))
    }
}
