//! Finds Gelu where it is written with the error function.
//!
//! TensorFlow computes `0.5 * x * erfc(-x / sqrt(2))`, which converters write with Erf. As Gelu it is an activation that the
//! layer in front of it takes, and which keeps the digits of large negative numbers; of minus infinity it makes zero, as the
//! operation does, where the layers make NaN.

use std::f32::consts::FRAC_1_SQRT_2;
use std::sync::Arc;

use ovir_graph::{Model, Node, NodeId, Source, Validated};
use ovir_ops::OpVersion;
use ovir_ops::activation::gelu::Gelu;
use ovir_tensor::ElementType;

use crate::chain::{Added, have_same_shape};
use crate::finder::{Finder, first, without};
use crate::trace::{Trace, all_named};

const VERSION: OpVersion = OpVersion::new(7, (7, 16), (1, 1), (1, 1));

/// How far a constant may be from the root of one half.
const TOLERANCE: f32 = 1e-6;

/// Writes all such layers as Gelu; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let is_candidate = |node: &Node| node.is("Erf");
    if !model.nodes.iter().any(is_candidate) {
        return None;
    }
    let finder = Finder::new(validated);
    let mut changed = model.clone();
    let mut replaced: Vec<NodeId> = Vec::new();
    for (id, node) in model.iter().filter(|(_, node)| is_candidate(node)) {
        let Some(found) = finder.gelu(id) else {
            trace.declined(node, || "is not part of a Gelu of f32".to_owned());
            continue;
        };
        trace.applied(model.node(found.last), || {
            format!("is Gelu, instead of {}", all_named(found.layers.iter().map(|layer| model.node(*layer))))
        });
        let (name, gelu) = (&model.node(found.last).friendly_name, Arc::new(Gelu::by_erf()));
        let new = Node::new(name.as_str(), "Gelu", VERSION, gelu, vec![found.data], 1);
        Added::new(&changed).put(&mut changed, found.last, new);
        replaced.extend(found.layers);
    }
    without(changed, replaced)
}

/// A Gelu.
struct Found {
    data: Source,
    last: NodeId,
    /// All layers but the last one.
    layers: Vec<NodeId>,
}

impl Finder<'_> {
    /// The Gelu that an Erf is part of.
    fn gelu(&self, erf: NodeId) -> Option<Found> {
        let scaled = *self.node(erf).inputs.first()?;
        let (data, factor) = self.scaled(scaled.node)?;
        ((factor.abs() - FRAC_1_SQRT_2).abs() <= TOLERANCE).then_some(())?;
        // 1 + erf(x / sqrt(2)), or 1 - erf(-x / sqrt(2)).
        let sum = self.uses.only_reader(erf)?;
        let is_sum = match factor > 0.0 {
            true => self.with_number(sum, "Add") == Some((first(erf), 1.0)),
            false => self.pair(sum, "Subtract").is_some_and(|[one, _]| self.number(one) == Some(1.0)),
        };
        is_sum.then_some(())?;
        let mut layers = vec![scaled.node, erf, sum];
        // Times x and 0.5, in any order.
        let (product, other) = self.operand(sum, "Multiply")?;
        let half_of = |source: Source| self.scaled(source.node).filter(|(_, factor)| *factor == 0.5).map(|(of, _)| of);
        let last = if half_of(other) == Some(data) {
            layers.push(other.node);
            product
        } else {
            let (last, rest) = self.operand(product, "Multiply")?;
            layers.push(product);
            let is_half = |source: Source| self.number(source) == Some(0.5);
            ((other == data && is_half(rest)) || (is_half(other) && rest == data)).then_some(last)?
        };
        let keeps_shape = have_same_shape(self.validated, first(last), data);
        let is_f32 = self.validated.inference().get(data).element_type == ElementType::F32;
        (keeps_shape && is_f32).then_some(Found { data, last, layers })
    }

    /// The value that a layer multiplies by a number or divides by one, and the factor.
    fn scaled(&self, id: NodeId) -> Option<(Source, f32)> {
        let quotient = || {
            let [a, b] = self.pair(id, "Divide")?;
            Some((a, 1.0 / self.number(b)?))
        };
        self.with_number(id, "Multiply").or_else(quotient)
    }
}
