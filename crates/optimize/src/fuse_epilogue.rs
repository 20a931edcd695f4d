//! Fuses what follows a convolution or a matrix product into it: bias, residual sum, activation; and the FakeQuantize
//! of its data, where it can be computed in bytes.
//!
//! `Convolution → Add(bias) → Add(residual) → activation`, each step optional, where every layer but the last has one
//! reader. The kernels apply the epilogue while they store their tiles, so that the result is written once.

use std::collections::HashSet;

use ovir_graph::{Model, Node, NodeId, Validated};
use ovir_ops::common::broadcast::AutoBroadcast;
use ovir_ops::quantization::fake_quantize::FakeQuantize;
use ovir_tensor::{ElementType, PartialShape};

use crate::chain::{Uses, fuse};
use crate::split_quantizers::{are_usual, limits_of_tensor, qualifies};
use crate::trace::{Trace, all_named, named};

/// Activations that kernels apply in place.
pub(crate) const ACTIVATIONS: &[&str] = &[
    "ReLU",
    "Clamp",
    "Sigmoid",
    "Tanh",
    "HSwish",
    "HSigmoid",
    "HardSigmoid",
    "Gelu",
    "Swish",
    "Elu",
    "PReLU",
    "Mish",
    "SoftPlus",
];

/// Fuses all chains; `None` if there is none.
pub(crate) fn run(validated: &Validated, trace: &mut Trace) -> Option<Model> {
    let model = validated.model();
    let uses = Uses::new(model);
    let mut taken: HashSet<NodeId> = HashSet::new();
    let mut chains = Vec::new();
    for (id, node) in model.iter() {
        if !is_root(node) || taken.contains(&id) || !is_f32(validated, id) {
            continue;
        }
        let quantizer =
            node.inputs.first().map(|source| source.node).filter(|from| uses.only_reader(*from) == Some(id));
        let quantizer = quantizer.filter(|from| !taken.contains(from) && qualifies(validated, *from, id));
        let (mut chain, end) = chain_from(validated, &uses, id, &taken, quantizer.is_some());
        if let Some(quantizer) = quantizer {
            chain.insert(0, quantizer);
        }
        if chain.len() > 1 {
            let others = || all_named(chain.iter().filter(|member| **member != id).map(|member| model.node(*member)));
            trace.applied(node, || format!("takes {}; {}", others(), end.text(model)));
            taken.extend(&chain);
            chains.push(chain);
        } else {
            trace.declined(node, || end.text(model));
        }
    }
    (!chains.is_empty()).then(|| fuse(model, &chains))
}

/// Whether a layer is one that takes an epilogue.
pub(crate) fn is_root(node: &Node) -> bool {
    matches!(&*node.type_name, "Convolution" | "GroupConvolution" | "ConvolutionBackpropData" | "MatMul")
}

/// Why a chain does not go on.
enum End {
    /// It has an activation, which is last.
    Activation,
    /// No layer or several layers read the value.
    Readers(usize),
    /// The next layer does not fit.
    Next(NodeId, &'static str),
}

impl End {
    fn text(&self, model: &Model) -> String {
        match self {
            End::Activation => "ends with the activation".to_owned(),
            End::Readers(count) => format!("{count} inputs read the value"),
            End::Next(next, why) => format!("{} {why}", named(model.node(*next))),
        }
    }
}

/// The root and what can be fused behind it, in order, and why not more. A layer of bytes takes a FakeQuantize in front of
/// a residual sum too.
fn chain_from(
    validated: &Validated,
    uses: &Uses,
    root: NodeId,
    taken: &HashSet<NodeId>,
    is_of_bytes: bool,
) -> (Vec<NodeId>, End) {
    let model = validated.model();
    let mut chain = vec![root];
    let (mut takes_bias, mut takes_residual) = (true, allows_residual(model.node(root)));
    let mut takes_quantizer = is_of_bytes;
    let mut at = root;
    let end = loop {
        let Some(next) = uses.only_reader(at) else { break End::Readers(uses.of(at).len()) };
        let node = model.node(next);
        if taken.contains(&next) {
            break End::Next(next, "belongs to another layer");
        }
        if !is_f32(validated, next) || shape(validated, next) != shape(validated, root) {
            break End::Next(next, "has another element type or shape");
        }
        if takes_quantizer && is_added(validated, uses, root, (next, at), taken) {
            // What is added behind a FakeQuantize is no bias any more.
            (takes_quantizer, takes_bias) = (false, false);
            chain.push(next);
            at = next;
            continue;
        }
        if ACTIVATIONS.contains(&&*node.type_name) {
            if !(parameters_are_constant(uses, node) && node.inputs.first().is_some_and(|s| s.node == at)) {
                break End::Next(next, "has parameters that are computed");
            }
            chain.push(next);
            break End::Activation;
        }
        let Some(other) = other_operand(model, next, at).filter(|_| node.is("Add")) else {
            break End::Next(next, "is no sum and no activation that kernels apply");
        };
        let is_constant = uses.is_constant(other);
        if is_constant && takes_bias && is_per_channel(validated, root, other) {
            takes_bias = false;
        } else if !is_constant && takes_residual && is_same_shape(validated, root, other) {
            // What is added behind a residual sum is no bias any more.
            (takes_bias, takes_residual, takes_quantizer) = (false, false, false);
        } else {
            break End::Next(next, "adds neither a bias nor, for the first time, a value of the same shape");
        }
        chain.push(next);
        at = next;
    };
    (chain, end)
}

/// Whether `next` is a FakeQuantize of the whole of what `at` gives, with constant limits, which is read by a sum with a
/// value of the same shape alone.
fn is_added(
    validated: &Validated,
    uses: &Uses,
    root: NodeId,
    (next, at): (NodeId, NodeId),
    taken: &HashSet<NodeId>,
) -> bool {
    let (model, node) = (validated.model(), validated.model().node(next));
    let Some(quantizer) = node.operation.downcast_ref::<FakeQuantize>() else { return false };
    let is_whole = quantizer.broadcast.auto_broadcast == AutoBroadcast::Numpy
        && node.inputs.first().is_some_and(|source| source.node == at)
        && limits_of_tensor(model, |port| node.inputs.get(port).copied())
            .is_some_and(|[low, high, ..]| are_usual(low, high));
    let Some(add) = uses.only_reader(next).filter(|add| is_whole && model.node(*add).is("Add")) else { return false };
    let Some(other) = other_operand(model, add, next) else { return false };
    !taken.contains(&add)
        && is_f32(validated, add)
        && shape(validated, add) == shape(validated, root)
        && !uses.is_constant(other)
        && is_same_shape(validated, root, other)
}

/// Kernels of transposed convolutions have no residual.
fn allows_residual(root: &Node) -> bool {
    !root.is("ConvolutionBackpropData")
}

fn other_operand(model: &Model, add: NodeId, at: NodeId) -> Option<NodeId> {
    match model.node(add).inputs.as_slice() {
        [a, b] if a.node == at && b.node != at => Some(b.node),
        [a, b] if b.node == at && a.node != at => Some(a.node),
        _ => None,
    }
}

fn parameters_are_constant(uses: &Uses, node: &Node) -> bool {
    node.inputs.iter().skip(1).all(|source| uses.is_constant(source.node))
}

/// Whether a constant holds one value for each channel: along axis 1 of a convolution, along the last axis of a product.
fn is_per_channel(validated: &Validated, root: NodeId, constant: NodeId) -> bool {
    let (Some(root_shape), Some(bias)) = (shape(validated, root), shape(validated, constant)) else { return false };
    let (Some(rank), Some(bias)) = (root_shape.rank(), bias.to_shape()) else { return false };
    let axis_from_end = if validated.model().node(root).is("MatMul") { 1 } else { rank.saturating_sub(1) };
    let channel = root_shape.dim(rank.saturating_sub(axis_from_end)).get();
    let length = bias.elements();
    bias.rank() <= rank
        && channel == Some(length)
        && (length == 1 || bias.rank().checked_sub(axis_from_end).and_then(|i| bias.get(i)) == Some(&length))
}

fn is_same_shape(validated: &Validated, root: NodeId, other: NodeId) -> bool {
    let (Some(a), Some(b)) = (shape(validated, root), shape(validated, other)) else { return false };
    match (a.dims(), b.dims()) {
        (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b).all(|(x, y)| x.is_same(*y)),
        _ => false,
    }
}

fn is_f32(validated: &Validated, id: NodeId) -> bool {
    validated.inference().outputs(id).first().is_some_and(|f| f.element_type == ElementType::F32)
}

fn shape(validated: &Validated, id: NodeId) -> Option<&PartialShape> {
    validated.inference().outputs(id).first().map(|f| &f.shape)
}
