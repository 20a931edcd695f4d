//! Finds attention that is written as two contractions around a SoftMax, and writes it as ScaledDotProductAttention.
//!
//! The scores of all queries and keys then need not be in memory at once. Keras writes attention with Einsum, older converters
//! with MatMul; newer ones give ScaledDotProductAttention themselves.

use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::activation::softmax::Softmax;
use ovir_ops::matrix::einsum::Einsum;
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::sequence::scaled_dot_product_attention::{
    ScaledDotProductAttention, ScaledDotProductAttentionAttributes,
};
use ovir_tensor::{Dim, ElementType, SmallVec, Tensor};

use crate::chain::{Added, have_same_shape, is_repeated, transpose};
use crate::finder::{Finder, first, without};
use crate::lower_einsum::letters;
use crate::trace::{Trace, all_named};

const VERSION: OpVersion = OpVersion::new(13, (13, 16), (3, 6), (1, 1));

/// Writes all such layers as attention; `None` if there are none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    // Scores have queries and keys, of each head.
    let rank = |id: NodeId| validated.inference().get(first(id)).shape.rank();
    let is_candidate = |(id, node): &(NodeId, &Node)| node.is("SoftMax") && matches!(rank(*id), Some(3 | 4));
    if !model.iter().any(|layer| is_candidate(&layer)) {
        return None;
    }
    let finder = Finder::new(validated);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter().filter(is_candidate) {
        let Some(softmax) = node.operation.downcast_ref::<Softmax>() else { continue };
        let Some(found) = finder.attention(id, softmax) else {
            trace.declined(node, || "does not stand between products of queries, keys and values".to_owned());
            continue;
        };
        let last = model.node(found.last);
        if put(&mut changed, &found, &last.friendly_name).is_some() {
            let others = || all_named(found.layers.iter().map(|layer| model.node(*layer)));
            trace.applied(last, || format!("is ScaledDotProductAttention, instead of {}", others()));
            replaced.extend(found.layers);
        }
    }
    without(changed, replaced)
}

/// The order of the axes of a value, unless they stay where they are.
type Order = Option<SmallVec<[i64; 8]>>;

/// What scores are multiplied by.
#[derive(Clone, Copy)]
enum Scale {
    Number(f32),
    /// A constant of one element.
    Value(Source),
}

/// An attention.
struct Attention {
    /// Queries, keys and values, and how their axes are to be ordered.
    operands: [(Source, Order); 3],
    scale: Scale,
    mask: Option<Source>,
    /// The order of the axes of the result.
    order: Order,
    last: NodeId,
    /// All layers but the last one.
    layers: Vec<NodeId>,
}

/// The product of queries and keys.
struct Scores {
    queries: (Source, Order),
    keys: (Source, Order),
    scale: Scale,
    layers: Vec<NodeId>,
}

impl Finder<'_> {
    fn dims(&self, source: Source) -> Option<&[Dim]> {
        self.validated.inference().get(source).shape.dims()
    }

    /// The attention whose weights a SoftMax gives.
    fn attention(&self, id: NodeId, softmax: &Softmax) -> Option<Attention> {
        let scores = *self.node(id).inputs.first()?;
        let rank = self.dims(scores)?.len();
        let is_last =
            softmax.attributes.axis == -1 || usize::try_from(softmax.attributes.axis) == Ok(rank.checked_sub(1)?);
        let is_f32 = self.validated.inference().get(scores).element_type == ElementType::F32;
        (is_last && is_f32).then_some(())?;
        let (found, mask) = self.masked(scores, id)?;
        let last = self.uses.only_reader(id)?;
        let (values, order) = self.weighted(last, id)?;
        let [queries, keys, of_values] = [&found.queries, &found.keys, &values].map(|operand| self.ordered(operand));
        let (queries, keys, of_values) = (queries?, keys?, of_values?);
        // The products may repeat what attention does not: widths of 1, and a single key.
        let are_wide = queries[rank - 1].is_same(keys[rank - 1]);
        let of_scores = *self.dims(scores)?.last()?;
        let are_long = keys[rank - 2].is_same(of_values[rank - 2]) && keys[rank - 2].is_same(of_scores);
        (are_wide && are_long).then_some(())?;
        let mut layers = found.layers;
        layers.push(id);
        let operands = [found.queries, found.keys, values];
        Some(Attention { operands, scale: found.scale, mask, order, last, layers })
    }

    /// The dimensions of an operand in their order.
    fn ordered(&self, (source, order): &(Source, Order)) -> Option<SmallVec<[Dim; 8]>> {
        let dims = self.dims(*source)?;
        match order {
            Some(order) => order.iter().map(|axis| dims.get(usize::try_from(*axis).ok()?).copied()).collect(),
            None => Some(dims.iter().copied().collect()),
        }
    }

    /// The scores that `reader` alone reads, and the mask that was added to them.
    fn masked(&self, source: Source, reader: NodeId) -> Option<(Scores, Option<Source>)> {
        if let Some(scores) = self.scaled_scores(source, reader) {
            return Some((scores, None));
        }
        let [a, b] = self.pair(source.node, "Add").filter(|_| self.is_only(source.node, reader))?;
        let (mut scores, of_scores, mask) = [(a, b), (b, a)]
            .into_iter()
            .find_map(|(scores, mask)| self.scaled_scores(scores, source.node).map(|found| (found, scores, mask)))?;
        // A mask that repeats the scores is none.
        let is_mask = is_repeated(self.validated, mask, of_scores);
        scores.layers.push(source.node);
        is_mask.then_some((scores, Some(mask)))
    }

    /// The products that `reader` alone reads, which may be scaled by a number.
    fn scaled_scores(&self, source: Source, reader: NodeId) -> Option<Scores> {
        self.is_only(source.node, reader).then_some(())?;
        let node = self.node(source.node);
        if let Some(scores) = self.product(source.node) {
            return Some(scores);
        }
        let [a, b] = node.inputs[..] else { return None };
        let factor = |source| self.factor(source);
        let (inner, scale) = match &*node.type_name {
            "Multiply" => factor(b).map(|scale| (a, scale)).or_else(|| factor(a).map(|scale| (b, scale)))?,
            "Divide" => (a, Scale::Number(1.0 / self.number(b)?)),
            _ => return None,
        };
        (self.is_only(inner.node, source.node) && have_same_shape(self.validated, inner, source)).then_some(())?;
        let mut scores = self.product(inner.node)?;
        scores.layers.push(source.node);
        scores.scale = scale;
        Some(scores)
    }

    /// What a constant of one element multiplies by.
    fn factor(&self, source: Source) -> Option<Scale> {
        let number = self.number(source).map(Scale::Number);
        let is_scalar = || {
            let facts = self.validated.inference().get(source);
            facts.element_type == ElementType::F32 && facts.shape.rank().is_some_and(|rank| rank <= 1)
        };
        // One that is computed is read where it is.
        number.or_else(|| (self.uses.is_single(self.validated, source) && is_scalar()).then_some(Scale::Value(source)))
    }

    /// Queries and keys that a layer multiplies. Neither is a constant, whose product is packed.
    fn product(&self, id: NodeId) -> Option<Scores> {
        let node = self.node(id);
        let [a, b] = node.inputs[..] else { return None };
        if [a, b].iter().any(|source| self.uses.is_constant(source.node)) {
            return None;
        }
        let layers = vec![id];
        if let Some(product) = node.operation.downcast_ref::<MatMul>() {
            let rank = self.dims(first(id))?.len();
            let [queries, keys] = [a, b].map(|source| self.dims(source).map(<[Dim]>::len));
            (queries == Some(rank) && keys == Some(rank)).then_some(())?;
            let (is_turned, is_plain) = (product.attributes.transpose_a, !product.attributes.transpose_b);
            let queries = (a, is_turned.then(|| last_swapped(rank)));
            return Some(Scores {
                queries,
                keys: (b, is_plain.then(|| last_swapped(rank))),
                scale: Scale::Number(1.0),
                layers,
            });
        }
        let einsum = node.operation.downcast_ref::<Einsum>()?;
        let [of_first, of_second] = &einsum.inputs[..] else { return None };
        let (of_first, of_second, output) = (letters(of_first)?, letters(of_second)?, letters(&einsum.output)?);
        let [batch @ .., query, key] = &output[..] else { return None };
        let ((queries, of_queries), (keys, of_keys)) = match of_first.contains(query) {
            true => ((a, of_first), (b, of_second)),
            false => ((b, of_second), (a, of_first)),
        };
        let mut summed = of_queries.iter().filter(|letter| !output.contains(letter));
        let (Some(width), None) = (summed.next(), summed.next()) else { return None };
        let wanted = |last: &u8| -> Vec<u8> { batch.iter().chain([last, width]).copied().collect() };
        let queries = (queries, order_of(&of_queries, &wanted(query))?);
        Some(Scores { queries, keys: (keys, order_of(&of_keys, &wanted(key))?), scale: Scale::Number(1.0), layers })
    }

    /// The values that a layer multiplies with the weights of a SoftMax, and the order of the result.
    fn weighted(&self, id: NodeId, softmax: NodeId) -> Option<((Source, Order), Order)> {
        let node = self.node(id);
        let [a, b] = node.inputs[..] else { return None };
        let weights = first(softmax);
        if let Some(product) = node.operation.downcast_ref::<MatMul>() {
            let rank = self.dims(weights)?.len();
            let fits = a == weights && !product.attributes.transpose_a && self.dims(b)?.len() == rank;
            let order = product.attributes.transpose_b.then(|| last_swapped(rank));
            return (fits && !self.uses.is_constant(b.node)).then_some(((b, order), None));
        }
        let einsum = node.operation.downcast_ref::<Einsum>()?;
        let [of_first, of_second] = &einsum.inputs[..] else { return None };
        let (values, of_weights, of_values) = match a == weights {
            true => (b, letters(of_first)?, letters(of_second)?),
            false => (a, letters(of_second)?, letters(of_first)?),
        };
        (!self.uses.is_constant(values.node)).then_some(())?;
        let output = letters(&einsum.output)?;
        let [batch @ .., query, key] = &of_weights[..] else { return None };
        let mut added = of_values.iter().filter(|letter| !of_weights.contains(letter));
        let (Some(width), None) = (added.next(), added.next()) else { return None };
        let wanted = |last: &u8| -> Vec<u8> { batch.iter().chain([last, width]).copied().collect() };
        let operand = (values, order_of(&of_values, &wanted(key))?);
        Some((operand, order_of(&wanted(query), &output)?))
    }
}

/// The order that brings letters into another order; `None` if they are not the same ones.
fn order_of(letters: &[u8], wanted: &[u8]) -> Option<Order> {
    (letters.len() == wanted.len()).then_some(())?;
    let place = |letter: &u8| letters.iter().position(|other| other == letter).map(|place| place as i64);
    let order = wanted.iter().map(place).collect::<Option<SmallVec<[i64; 8]>>>()?;
    Some((!order.is_sorted()).then_some(order))
}

/// The order that swaps the last two axes.
fn last_swapped(rank: usize) -> SmallVec<[i64; 8]> {
    let mut order: SmallVec<[i64; 8]> = (0..rank as i64).collect();
    order.swap(rank - 2, rank - 1);
    order
}

/// Puts an attention in the place of the last of its layers; `None` if it cannot be written.
fn put(changed: &mut Model, found: &Attention, name: &str) -> Option<()> {
    let mut added = Added::new(changed);
    let mut inputs: Vec<Source> = Vec::with_capacity(5);
    for (what, (source, order)) in ["queries", "keys", "values"].into_iter().zip(&found.operands) {
        inputs.push(match order {
            Some(order) => {
                let order = added.integers(format!("{name}/{what}/order"), order)?;
                added.add(transpose(format!("{name}/{what}"), *source, order))
            }
            None => *source,
        });
    }
    let mut number = |what: &str, value: f32| {
        Some(added.add(Node::constant(format!("{name}/{what}"), Tensor::from_slice(&[value], []).ok()?)))
    };
    inputs.push(match found.mask {
        Some(mask) => mask,
        None => number("mask", 0.0)?,
    });
    inputs.push(match found.scale {
        Scale::Number(scale) => number("scale", scale)?,
        Scale::Value(scale) => scale,
    });
    let attributes = ScaledDotProductAttentionAttributes { causal: false };
    let operation = Arc::new(ScaledDotProductAttention { attributes });
    let mut last = Node::new(name, "ScaledDotProductAttention", VERSION, operation, inputs, 1);
    if let Some(order) = &found.order {
        last.friendly_name = format!("{name}/attention");
        let value = added.add(last);
        let order = added.integers(format!("{name}/order"), order)?;
        last = transpose(name.to_owned(), value, order);
    }
    added.put(changed, found.last, last);
    Some(())
}
