//! What initialisers of variables compute, as a plan of its own.
//!
//! After a reset, decoders compute the keys and values of their cross attention, which is as much work as a model.
//! Initialisers with such work are compiled as a model whose results are the values of the variables; the others, which
//! are fills and shapes, are evaluated layer by layer.

use ovir_graph::{Model, Node, NodeId, Source};

/// Layers whose constants are worth packing.
const HEAVY: &[&str] = &[
    "MatMul",
    "Convolution",
    "GroupConvolution",
    "ConvolutionBackpropData",
    "ScaledDotProductAttention",
    "LSTMSequence",
    "GRUSequence",
    "RNNSequence",
    "Fused",
    "If",
    "Loop",
    "TensorIterator",
];

/// The initialisers of some variables as a model.
#[derive(Debug)]
pub(crate) struct Initialisers {
    /// The model. It has all parameters of the whole model, and one result a variable.
    pub model: Model,
    /// The variables that the results are for.
    pub variables: Vec<usize>,
}

/// The initialisers as a model; `None` if they have no work that is worth it, or need the value of a variable.
pub(crate) fn initialisers(model: &Model) -> Option<Initialisers> {
    let result = model.node(*model.results.first()?);
    let wanted = wanted(model);
    let mut needed = vec![false; model.nodes.len()];
    let mut pending: Vec<NodeId> = wanted.iter().map(|(_, source)| source.node).collect();
    while let Some(id) = pending.pop() {
        if !std::mem::replace(&mut needed[id.index()], true) {
            pending.extend(model.node(id).inputs.iter().map(|source| source.node));
        }
    }
    let is_needed = |kinds: &[&str]| model.iter().any(|(id, node)| needed[id.index()] && is_one_of(node, kinds));
    if !is_needed(HEAVY) || is_needed(&["ReadValue", "Assign"]) {
        return None;
    }
    model.parameters.iter().for_each(|id| needed[id.index()] = true);
    let mut places = vec![NodeId(0); model.nodes.len()];
    let mut nodes: Vec<Node> = Vec::new();
    let moved = |source: &Source, places: &[NodeId]| Source { node: places[source.node.index()], port: source.port };
    for (id, node) in model.iter().filter(|(id, _)| needed[id.index()]) {
        places[id.index()] = NodeId(nodes.len() as u32);
        let mut node = node.clone();
        node.inputs = node.inputs.iter().map(|source| moved(source, &places)).collect();
        nodes.push(node);
    }
    let mut results = Vec::with_capacity(wanted.len());
    for (_, source) in &wanted {
        let mut node = result.clone();
        node.friendly_name = model.node(source.node).friendly_name.clone();
        node.inputs = vec![moved(source, &places)];
        results.push(NodeId(nodes.len() as u32));
        nodes.push(node);
    }
    let parameters = model.parameters.iter().map(|id| places[id.index()]).collect();
    let name = model.name.clone();
    let model = Model { name, ir_version: model.ir_version, nodes, parameters, results, rt_info: Vec::new() };
    Some(Initialisers { model, variables: wanted.into_iter().map(|(index, _)| index).collect() })
}

/// The variables that have an initialiser, numbered in the order in which the model names them first.
fn wanted(model: &Model) -> Vec<(usize, Source)> {
    let (mut names, mut wanted): (Vec<&str>, Vec<(usize, Source)>) = (Vec::new(), Vec::new());
    for node in &model.nodes {
        let Some(name) = node.operation.variable_id() else { continue };
        let index = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let is_first = wanted.iter().all(|(known, _)| *known != index);
        if let Some(source) = node.inputs.first().filter(|_| node.is("ReadValue") && is_first) {
            wanted.push((index, *source));
        }
    }
    wanted
}

fn is_one_of(node: &Node, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| node.is(kind))
}
