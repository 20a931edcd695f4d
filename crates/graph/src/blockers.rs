//! What keeps a model from taking other input shapes.

use ovir_diagnostics::Diagnostic;
use ovir_tensor::PartialShape;

use crate::{Inference, Model, Node, NodeId, Validated, Validation};

/// The most constants that one blocker names.
const MAX_CONSTANTS: usize = 4;

/// The most layers that are searched for the constants behind a value.
const MAX_SEARCHED: usize = 64;

/// What a blocker does to the new shapes.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// The layer violates a rule with the new shapes.
    Fails(Box<Diagnostic>),
    /// The layer is accepted, and fails at run time for sizes other than those that are hard-coded.
    FailsLater,
    /// The layer yields its old shape whatever it gets, which may be meant so.
    Stops,
}

/// A layer that blocks new shapes.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocker {
    /// The layer.
    pub node: NodeId,
    /// What it does.
    pub effect: Effect,
    /// The constants in which sizes are hard-coded.
    pub constants: Vec<HardCoded>,
    /// Whether OpenVINO's `reshape` would replace the hard-coded shape: it does so for a Reshape before a MatMul. ovir
    /// changes no constants.
    pub is_rewritten_by_openvino: bool,
}

/// A constant that fixes a size.
#[derive(Debug, Clone, PartialEq)]
pub struct HardCoded {
    /// The Const layer.
    pub node: NodeId,
    /// Its elements, if it is a small tensor of integers.
    pub values: Option<Vec<i64>>,
    /// Its shape.
    pub shape: PartialShape,
    /// What to write instead, if that is plain.
    pub advice: Option<String>,
}

/// The layers that block the new shapes: `before` is the model as it was, `after` what validation says of the same model
/// with new input shapes. In the order of the layers.
pub fn blockers(before: &Validated, after: &Validation) -> Vec<Blocker> {
    let (old, new) = (before.inference(), &after.inference);
    let model = &after.model;
    let consumers = model.consumers();
    let mut blockers = Vec::new();
    for (id, node) in model.iter() {
        let reference = node.reference();
        let failure = after.diagnostics.iter().find(|d| d.is_error() && d.layer.as_ref() == Some(&reference));
        let effect = match failure {
            Some(diagnostic) => Effect::Fails(Box::new(diagnostic.clone())),
            None => match silent_effect(id, node, old, new) {
                Some(effect) => effect,
                None => continue,
            },
        };
        let feeds_product = consumers.get(id.index()).is_some_and(|c| c.iter().any(|c| model.node(*c).is("MatMul")));
        blockers.push(Blocker {
            node: id,
            effect,
            constants: hard_coded(model, id, node, old, new),
            is_rewritten_by_openvino: node.is("Reshape") && feeds_product,
        });
    }
    blockers
}

/// The input that holds the shape which a layer produces.
fn target_port(node: &Node) -> Option<usize> {
    ["Reshape", "Broadcast", "Tile", "Interpolate"].iter().any(|t| node.is(t)).then_some(1)
}

/// What a layer with a hard-coded target does, if its input changed and its output did not.
fn silent_effect(id: NodeId, node: &Node, old: &Inference, new: &Inference) -> Option<Effect> {
    target_port(node)?;
    let data = *node.inputs.first()?;
    let (before, after) = (&old.get(data).shape, &new.get(data).shape);
    let output = |inference: &Inference| inference.outputs(id).first().map(|facts| facts.shape.to_string());
    if before.to_string() == after.to_string() || output(old) != output(new) {
        return None;
    }
    let is_open = !new.get(data).shape.is_static();
    let is_fixed = new.outputs(id).first().is_some_and(|facts| facts.shape.is_static());
    let is_strict = node.is("Reshape") || node.is("Broadcast");
    Some(if is_strict && is_open && is_fixed { Effect::FailsLater } else { Effect::Stops })
}

fn hard_coded(model: &Model, id: NodeId, node: &Node, old: &Inference, new: &Inference) -> Vec<HardCoded> {
    let ports: Vec<usize> = match target_port(node) {
        Some(port) => vec![port],
        None => (0..node.inputs.len()).collect(),
    };
    let mut constants = Vec::new();
    for port in ports {
        let Some(source) = node.inputs.get(port) else { continue };
        for found in constants_behind(model, source.node) {
            if constants.len() == MAX_CONSTANTS {
                return constants;
            }
            let facts = new.outputs(found).first().cloned().unwrap_or_default();
            let values = facts.integers().map(|values| values.to_vec());
            let advice = values.as_ref().and_then(|values| advice(id, node, values, found == source.node, old, new));
            constants.push(HardCoded { node: found, values, shape: facts.shape, advice });
        }
    }
    constants
}

/// The Const layers from which a value is made without any input of the model: the value itself, or what stands before
/// Convert, Concat and the like. Nothing if the value depends on an input.
fn constants_behind(model: &Model, start: NodeId) -> Vec<NodeId> {
    let (mut waiting, mut found, mut searched) = (vec![start], Vec::new(), 0);
    while let Some(id) = waiting.pop() {
        let node = model.node(id);
        searched += 1;
        if searched > MAX_SEARCHED || node.is("Parameter") || node.is("ReadValue") {
            return if searched > MAX_SEARCHED { found } else { Vec::new() };
        }
        if node.is("Const") {
            found.push(id);
        } else if !node.is("ShapeOf") {
            waiting.extend(node.inputs.iter().rev().map(|source| source.node));
        }
    }
    found
}

/// Which element of a target is the hard-coded size, and what to write there.
fn advice(
    id: NodeId,
    node: &Node,
    values: &[i64],
    is_direct: bool,
    old: &Inference,
    new: &Inference,
) -> Option<String> {
    if !is_direct || !node.is("Reshape") {
        return None;
    }
    let data = *node.inputs.first()?;
    let (before, after) = (old.get(data).shape.dims()?, new.get(data).shape.dims()?);
    let output = old.outputs(id).first()?.shape.dims()?;
    // The first dimension of the input that has changed, and the element of the target that has its old size.
    let changed = before.iter().zip(after).position(|(b, a)| (b.min(), b.max()) != (a.min(), a.max()))?;
    let size = i64::try_from(before.get(changed)?.get()?).ok()?;
    let element = match values.get(changed) {
        Some(value) if *value == size => changed,
        _ => values.iter().position(|value| *value == size)?,
    };
    let has_inferred = values.contains(&-1);
    let keeps_place = element == changed && output.len() > changed;
    if !has_inferred {
        return Some(format!("write -1 for element {element}, which is {size}"));
    }
    keeps_place.then(|| format!("write 0 for element {element}, which is {size}, with special_zero=\"true\""))
}
