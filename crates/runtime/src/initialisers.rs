//! What initialisers of variables compute, as a plan of its own.
//!
//! After a reset, decoders compute the keys and values of their cross attention, which is as much work as a model.
//! Initialisers with such work are compiled as a model whose results are the values of the variables; the others, which
//! are fills and shapes, are evaluated layer by layer.

use std::collections::{HashMap, HashSet};

use ovir_graph::{Model, Node, NodeId, Source, topological};

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
    /// The variables that other initialisers read: the model computes what they start with, whatever their value is.
    pub read: Vec<usize>,
}

/// A variable with an initialiser.
struct Wanted<'a> {
    variable: usize,
    name: &'a str,
    /// What it starts with.
    source: Source,
}

/// The initialisers as a model; `None` if they have no work that is worth it, or need each other in a circle.
pub(crate) fn initialisers(model: &Model) -> Option<Initialisers> {
    let result = model.node(*model.results.first()?);
    let wanted = wanted(model);
    let origins = origins(model, &wanted)?;
    let origin = |source: &Source| origins.get(source).map_or(*source, |(_, origin)| *origin);
    let mut needed = vec![false; model.nodes.len()];
    let mut read = Vec::new();
    let mut pending: Vec<Source> = wanted.iter().map(|wanted| wanted.source).collect();
    while let Some(source) = pending.pop() {
        read.extend(origins.get(&source).map(|(variable, _)| *variable));
        let node = origin(&source).node;
        if !std::mem::replace(&mut needed[node.index()], true) {
            pending.extend(&model.node(node).inputs);
        }
    }
    let is_needed = |kinds: &[&str]| model.iter().any(|(id, node)| needed[id.index()] && is_one_of(node, kinds));
    if !is_needed(HEAVY) || is_needed(&["ReadValue", "Assign"]) {
        return None;
    }
    model.parameters.iter().for_each(|id| needed[id.index()] = true);
    let mut places = vec![NodeId(0); model.nodes.len()];
    let mut nodes: Vec<Node> = Vec::new();
    let moved = |source: &Source, places: &[NodeId]| {
        let source = origin(source);
        Source { node: places[source.node.index()], port: source.port }
    };
    for (id, node) in model.iter().filter(|(id, _)| needed[id.index()]) {
        places[id.index()] = NodeId(nodes.len() as u32);
        let mut node = node.clone();
        node.inputs = node.inputs.iter().map(|source| moved(source, &places)).collect();
        nodes.push(node);
    }
    let mut results = Vec::with_capacity(wanted.len());
    for Wanted { source, .. } in &wanted {
        let mut node = result.clone();
        node.friendly_name = model.node(source.node).friendly_name.clone();
        node.inputs = vec![moved(source, &places)];
        results.push(NodeId(nodes.len() as u32));
        nodes.push(node);
    }
    let parameters = model.parameters.iter().map(|id| places[id.index()]).collect();
    let name = model.name.clone();
    let model = Model { name, ir_version: model.ir_version, nodes, parameters, results, rt_info: Vec::new() };
    Some(Initialisers { model, variables: wanted.into_iter().map(|wanted| wanted.variable).collect(), read })
}

/// The variables in an order in which each stands behind those that its initialiser reads, and those without an initialiser.
/// Those that need each other in a circle stand in any order.
pub(crate) fn initial_order(model: &Model, variables: usize) -> Vec<usize> {
    let wanted = wanted(model);
    let places: HashMap<&str, usize> = wanted.iter().enumerate().map(|(place, w)| (w.name, place)).collect();
    let reads = |wanted: &Wanted<'_>| {
        let (mut seen, mut pending, mut found) = (HashSet::new(), vec![wanted.source.node], Vec::new());
        while let Some(id) = pending.pop() {
            let node = model.node(id);
            match node.operation.variable_id().filter(|_| node.is("ReadValue")) {
                Some(name) => found.extend(places.get(name)),
                None if seen.insert(id) => pending.extend(node.inputs.iter().map(|source| source.node)),
                None => {}
            }
        }
        found
    };
    let producers: Vec<Vec<usize>> = wanted.iter().map(reads).collect();
    let sorted = topological(&producers).unwrap_or_else(|_| (0..wanted.len()).collect());
    let is_wanted = |variable: &usize| wanted.iter().any(|wanted| wanted.variable == *variable);
    let others = (0..variables).filter(|variable| !is_wanted(variable));
    others.chain(sorted.into_iter().map(|place| wanted[place].variable)).collect()
}

/// What the readers of variables give after a reset, with the variable, followed back to values that no variable holds.
fn origins(model: &Model, wanted: &[Wanted<'_>]) -> Option<HashMap<Source, (usize, Source)>> {
    let by_name: HashMap<&str, &Wanted<'_>> = wanted.iter().map(|wanted| (wanted.name, wanted)).collect();
    let start = |source: Source| {
        let node = model.node(source.node);
        let name = node.operation.variable_id().filter(|_| node.is("ReadValue"))?;
        by_name.get(name).map(|wanted| (wanted.variable, wanted.source))
    };
    let mut origins = HashMap::new();
    for (id, _) in model.iter().filter(|(_, node)| node.is("ReadValue")) {
        let own = Source { node: id, port: 0 };
        let Some((variable, mut source)) = start(own) else { continue };
        // Each variable is on the way once, unless they go round in a circle.
        for turn in 0..=wanted.len() {
            let Some((_, next)) = start(source) else { break };
            (turn < wanted.len()).then_some(())?;
            source = next;
        }
        origins.insert(own, (variable, source));
    }
    Some(origins)
}

/// The variables that have an initialiser, numbered in the order in which the model names them first.
fn wanted(model: &Model) -> Vec<Wanted<'_>> {
    let (mut names, mut wanted): (Vec<&str>, Vec<Wanted<'_>>) = (Vec::new(), Vec::new());
    for node in &model.nodes {
        let Some(name) = node.operation.variable_id() else { continue };
        let variable = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        let is_first = wanted.iter().all(|known| known.variable != variable);
        if let Some(source) = node.inputs.first().filter(|_| node.is("ReadValue") && is_first) {
            wanted.push(Wanted { variable, name, source: *source });
        }
    }
    wanted
}

fn is_one_of(node: &Node, kinds: &[&str]) -> bool {
    kinds.iter().any(|kind| node.is(kind))
}
