//! Fuses what follows a convolution or a matrix product into it: bias, residual sum, activation; and the halves of
//! FakeQuantizes around it, where it computes with codes.
//!
//! `Convolution → Add(bias) → Add(residual) → activation`, each step optional, where every layer but the last has one
//! reader. The kernels apply the epilogue while they store their tiles, so that the result is written once. A layer of codes
//! is `Encode → Decode → Convolution → Add(bias) → Encode → Decode → Add(residual) → activation → Encode`, where the first
//! Encode is there if nobody else has made codes of the data, and the residual may have a Decode of its own.

use std::collections::HashSet;

use ovir_graph::{Model, Node, NodeId, Validated};
use ovir_ops::codes::{Decode, Encode};
use ovir_tensor::{ElementType, PartialShape};

use crate::chain::{Uses, fuse};
use crate::fuse_elementwise::is_function;
use crate::split_quantizers::{is_depthwise, takes_codes};
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
        let front = front_of(validated, &uses, id, &taken);
        let codes = match (front.is_empty(), is_depthwise(validated, &uses, id)) {
            (_, true) => Codes::Depthwise,
            (true, _) => Codes::None,
            (false, _) => Codes::Bytes,
        };
        let (mut chain, end) = chain_from(validated, &uses, id, &taken, codes);
        chain.splice(0..0, front);
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

/// How a root computes with codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codes {
    /// Not at all.
    None,
    /// It multiplies and sums them.
    Bytes,
    /// It reads and writes them, but computes with values.
    Depthwise,
}

/// The Decode of the data of a root that computes with codes, and the Encode before it that nobody else takes: not the
/// elementwise layers that make the data.
fn front_of(validated: &Validated, uses: &Uses, root: NodeId, taken: &HashSet<NodeId>) -> Vec<NodeId> {
    let model = validated.model();
    let Some(data) = model.node(root).inputs.first().copied() else { return Vec::new() };
    let Some(decode) = model.node(data.node).operation.downcast_ref::<Decode>() else { return Vec::new() };
    let is_own = uses.only_reader(data.node) == Some(root) && !taken.contains(&data.node);
    if !is_own || !takes_codes(validated, uses, root, data, &decode.levels) {
        return Vec::new();
    }
    let encode = model.node(data.node).inputs.first().map(|codes| codes.node).filter(|encode| {
        model.node(*encode).operation.downcast_ref::<Encode>().is_some()
            && !taken.contains(encode)
            && uses.only_reader(*encode) == Some(data.node)
            && !is_depthwise(validated, uses, root)
            && !model.node(*encode).inputs.first().is_some_and(|value| is_of_group(model, uses, value.node, taken))
    });
    encode.into_iter().chain([data.node]).collect()
}

/// Whether a layer is one of an elementwise group that may take an Encode.
fn is_of_group(model: &Model, uses: &Uses, id: NodeId, taken: &HashSet<NodeId>) -> bool {
    is_function(model.node(id)) && !taken.contains(&id) && uses.of(id).len() == 1
}

/// Why a chain does not go on.
enum End {
    /// It has an activation, which is last.
    Activation,
    /// It has an Encode, which is last.
    Codes,
    /// No layer or several layers read the value.
    Readers(usize),
    /// The next layer does not fit.
    Next(NodeId, &'static str),
}

impl End {
    fn text(&self, model: &Model) -> String {
        match self {
            End::Activation => "ends with the activation".to_owned(),
            End::Codes => "ends with codes".to_owned(),
            End::Readers(count) => format!("{count} inputs read the value"),
            End::Next(next, why) => format!("{} {why}", named(model.node(*next))),
        }
    }
}

/// The root and what can be fused behind it, in order, and why not more. A layer of bytes takes both halves of a
/// FakeQuantize in front of a residual sum too, and the Decode of what is added.
fn chain_from(
    validated: &Validated,
    uses: &Uses,
    root: NodeId,
    taken: &HashSet<NodeId>,
    codes: Codes,
) -> (Vec<NodeId>, End) {
    let model = validated.model();
    let mut chain = vec![root];
    let (mut takes_bias, mut takes_residual) = (true, allows_residual(model.node(root)));
    let (mut takes_inner, mut is_activated) = (codes == Codes::Bytes, false);
    let mut at = root;
    let end = loop {
        let next = match uses.only_reader(at) {
            Some(next) => next,
            None if is_activated => break End::Activation,
            None => break End::Readers(uses.of(at).len()),
        };
        let node = model.node(next);
        if taken.contains(&next) {
            break End::Next(next, "belongs to another layer");
        }
        if let Some(encode) = node.operation.downcast_ref::<Encode>() {
            if let Some(decode) = uses.only_reader(next).filter(|_| takes_inner)
                && is_added(validated, uses, root, decode, taken)
                && encode.levels.whole().is_some()
            {
                // What is added behind a FakeQuantize is no bias any more.
                (takes_inner, takes_bias) = (false, false);
                chain.extend([next, decode]);
                at = decode;
                continue;
            }
            // Channels of a product are not those of its codes.
            let fits = encode.levels.whole().is_some() || !model.node(root).is("MatMul");
            if codes == Codes::None || !fits {
                break End::Next(next, "makes codes, which the kernel does not");
            }
            chain.push(next);
            break End::Codes;
        }
        if is_activated {
            break End::Activation;
        }
        if !is_f32(validated, next) || shape(validated, next) != shape(validated, root) {
            break End::Next(next, "has another element type or shape");
        }
        if ACTIVATIONS.contains(&&*node.type_name) {
            if !(parameters_are_constant(uses, node) && node.inputs.first().is_some_and(|s| s.node == at)) {
                break End::Next(next, "has parameters that are computed");
            }
            chain.push(next);
            at = next;
            (is_activated, takes_inner) = (true, false);
            continue;
        }
        let Some(other) = other_operand(model, next, at).filter(|_| node.is("Add")) else {
            break End::Next(next, "is no sum and no activation that kernels apply");
        };
        let is_constant = uses.is_constant(other);
        if is_constant && takes_bias && is_per_channel(validated, root, other) {
            takes_bias = false;
        } else if !is_constant && takes_residual && is_same_shape(validated, root, other) {
            // What is added behind a residual sum is no bias any more.
            (takes_bias, takes_residual, takes_inner) = (false, false, false);
            let is_own = uses.only_reader(other) == Some(next) && !taken.contains(&other);
            if codes == Codes::Bytes && is_own && is_whole_decode(model.node(other)) {
                chain.push(other);
            }
        } else {
            break End::Next(next, "adds neither a bias nor, for the first time, a value of the same shape");
        }
        chain.push(next);
        at = next;
    };
    (chain, end)
}

/// Whether a layer is a Decode with levels of a whole tensor.
pub(crate) fn is_whole_decode(node: &Node) -> bool {
    node.operation.downcast_ref::<Decode>().is_some_and(|decode| decode.levels.whole().is_some())
}

/// Whether a Decode is read by a sum with a value of the root's shape alone.
fn is_added(validated: &Validated, uses: &Uses, root: NodeId, decode: NodeId, taken: &HashSet<NodeId>) -> bool {
    let model = validated.model();
    let is_sum = |add: &NodeId| is_whole_decode(model.node(decode)) && model.node(*add).is("Add");
    let Some(add) = uses.only_reader(decode).filter(is_sum) else { return false };
    let Some(other) = other_operand(model, add, decode) else { return false };
    !taken.contains(&decode)
        && !taken.contains(&add)
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
