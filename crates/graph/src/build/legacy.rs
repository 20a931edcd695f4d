//! What version 10 does in its own way: `<pre-process>` sections, names, and f16 at the interface.

use std::collections::HashMap;
use std::sync::Arc;

use ovir_diagnostics::{Code, Diagnostic};
use ovir_ir::{Document, PreProcess, Weights};
use ovir_ops::infrastructure::parameter::Parameter;
use ovir_ops::r#type::convert::{Convert, ConvertAttributes};
use ovir_ops::{AttributeReader, BuildContext, OpVersion, RawAttribute, Registry, Resolution, SymbolSource};
use ovir_tensor::{ElementType, Shape, Tensor};

use crate::{Model, Node, NodeId, Source};

/// Puts the subtraction of the mean that a `<pre-process>` section asks for behind its Parameter. Only the first section
/// counts, as in OpenVINO.
pub(super) fn apply_preprocessing(
    document: &Document<'_>,
    model: &mut Model,
    weights: Option<&Weights>,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let Some(section) = document.pre_process.first() else { return };
    let Some(parameter) = target(section, model) else {
        let name = section.reference_layer_name.as_ref().map_or("", |n| n.as_str());
        let message = format!("the pre-process section names the input \"{name}\", which does not exist");
        diagnostics.push(Diagnostic::new(Code::DanglingEdge, message).at(section.span, ""));
        return;
    };
    match mean(section, model, parameter, weights) {
        Ok(Some(mean)) => insert(model, parameter, mean),
        Ok(None) => {}
        Err(reason) => {
            let message = format!("the pre-process section cannot be applied: {reason}");
            diagnostics.push(Diagnostic::new(Code::InvalidConstant, message).at(section.span, ""));
        }
    }
}

/// In version 10 inputs and outputs have the names of their layers as tensor names too. Where another input or output has
/// the same tensor name, OpenVINO refuses the model.
pub(super) fn check_names(model: &Model, diagnostics: &mut Vec<Diagnostic>) {
    let results = model.results.iter().filter_map(|id| model.node(*id).inputs.first().copied());
    let ends: Vec<Source> = model.parameters.iter().map(|id| Source { node: *id, port: 0 }).chain(results).collect();
    let mut layer_of: HashMap<String, Source> = HashMap::new();
    for end in &ends {
        layer_of.entry(model.node(end.node).value_name(end.port as usize)).or_insert(*end);
    }
    for (index, end) in ends.iter().enumerate() {
        // Several Results may read one output.
        if ends[..index].contains(end) {
            continue;
        }
        let node = model.node(end.node);
        for name in node.outputs.get(end.port as usize).iter().flat_map(|output| &output.tensor_names) {
            if let Some(other) = layer_of.get(name).filter(|other| *other != end) {
                diagnostics.push(collision(name, node, *end, model.node(other.node)));
            }
        }
    }
}

fn collision(name: &str, node: &Node, end: Source, other: &Node) -> Diagnostic {
    let reference = node.reference();
    let message = format!("{reference}: the tensor name \"{name}\" is also the name of {}", other.reference());
    let mut diagnostic = Diagnostic::new(Code::DuplicateTensorName, message).in_layer(reference);
    if let Some(port) = node.location.as_ref().and_then(|location| location.outputs.get(end.port as usize)) {
        diagnostic = diagnostic.at(port.span, "this name");
    }
    if let Some(location) = &other.location {
        diagnostic = diagnostic.also(location.layer, "the layer of that name");
    }
    diagnostic
        .note("in IR version 10 inputs and outputs are known by the names of their layers too; OpenVINO refuses the model")
        .help("rename one of them, or convert the original model again to IR version 11")
}

/// Parameters and Results of f16 are f32 for the user of a version 10 model, as in OpenVINO: the data is rounded behind
/// the Parameter and widened before the Result.
pub(super) fn widen_interface(model: &mut Model) {
    let inference = crate::infer_model(model, &[], &mut SymbolSource::default(), &mut Vec::new());
    let is_half = |id: NodeId, port: u32| inference.get(Source { node: id, port }).element_type == ElementType::F16;
    let parameters: Vec<NodeId> = model.parameters.iter().copied().filter(|id| is_half(*id, 0)).collect();
    let results: Vec<NodeId> = model.results.iter().copied().filter(|id| is_half(*id, 0)).collect();
    for id in &parameters {
        let converted = add_convert(model, *id, ElementType::F16);
        for node in model.nodes.iter_mut().take(converted.index()) {
            for source in node.inputs.iter_mut().filter(|source| source.node == *id) {
                *source = Source { node: converted, port: 0 };
            }
        }
        let node = &mut model.nodes[id.index()];
        if let Some(parameter) = node.operation.downcast_ref::<Parameter>() {
            let shape = parameter.shape.clone();
            node.operation = Arc::new(Parameter { element_type: ElementType::F32, shape });
        }
        forget_precision(node);
    }
    for id in &results {
        let Some(source) = model.node(*id).inputs.first().copied() else { continue };
        let converted = add_convert(model, source.node, ElementType::F32);
        model.nodes[converted.index()].inputs = vec![source];
        model.nodes[converted.index()].outputs = model.node(source.node).outputs.clone();
        model.nodes[converted.index()].friendly_name = model.node(source.node).friendly_name.clone();
        model.nodes[id.index()].inputs = vec![Source { node: converted, port: 0 }];
        forget_precision(&mut model.nodes[id.index()]);
    }
    if !parameters.is_empty() || !results.is_empty() {
        model.sort();
    }
}

fn add_convert(model: &mut Model, from: NodeId, element_type: ElementType) -> NodeId {
    let version = OpVersion::new(1, (1, 16), (1, 1), (1, 1));
    let operation = Arc::new(Convert { attributes: ConvertAttributes { destination_type: element_type } });
    let name = format!("{}/{element_type}", model.node(from).friendly_name);
    let id = NodeId(model.nodes.len() as u32);
    model.nodes.push(Node::new(name, "Convert", version, operation, vec![Source { node: from, port: 0 }], 1));
    id
}

fn forget_precision(node: &mut Node) {
    if let Some(location) = &mut node.location {
        for port in location.outputs.iter_mut().chain(&mut location.inputs) {
            port.declared.element_type = None;
        }
    }
}

fn target(section: &PreProcess<'_>, model: &Model) -> Option<NodeId> {
    let name = section.reference_layer_name.as_ref().map(|n| n.as_str()).filter(|n| !n.is_empty());
    match name {
        Some(name) => model.parameters.iter().copied().find(|id| model.node(*id).friendly_name == name),
        None => {
            let rank = |id: &NodeId| {
                let index = model.parameters.iter().position(|p| p == id)?;
                model.input_facts(index)?.1.rank()
            };
            let of_rank_4 = model.parameters.iter().copied().find(|id| rank(id) == Some(4));
            of_rank_4.or_else(|| model.parameters.first().copied())
        }
    }
}

/// The tensor to subtract: [1, C, 1, 1] for numbers, [1, C, H, W] for images.
fn mean(
    section: &PreProcess<'_>,
    model: &Model,
    parameter: NodeId,
    weights: Option<&Weights>,
) -> Result<Option<Tensor>, String> {
    let index = model.parameters.iter().position(|p| *p == parameter).ok_or("the input does not exist")?;
    let (_, shape) = model.input_facts(index).ok_or("the input has no shape")?;
    let channels = section.channels.len();
    if channels == 0 {
        return Ok(None);
    }
    if shape.rank().is_some_and(|rank| rank < 2) || !shape.dim(1).contains(channels) {
        return Err(format!("{channels} channels do not fit the input shape {shape}"));
    }
    let rank = shape.rank().unwrap_or(4);
    if section.channels.iter().any(|c| c.mean_image.is_some()) {
        return mean_images(section, shape.dim(2).get(), shape.dim(3).get(), weights).map(Some);
    }
    let values: Vec<f32> = section.channels.iter().map(|c| c.mean.map_or(0.0, |m| m.value)).collect();
    if values.iter().all(|v| *v == 0.0) {
        return Ok(None);
    }
    let mut sizes = vec![1usize; rank];
    sizes[1] = channels;
    Tensor::from_slice(&values, &sizes[..]).map(Some).map_err(|e| e.to_string())
}

fn mean_images(
    section: &PreProcess<'_>,
    height: Option<usize>,
    width: Option<usize>,
    weights: Option<&Weights>,
) -> Result<Tensor, String> {
    let (Some(height), Some(width)) = (height, width) else {
        return Err("mean images need a static height and width".to_owned());
    };
    let weights = weights.ok_or("mean images need the weights file")?;
    let mut values: Vec<f32> = Vec::new();
    for channel in &section.channels {
        let image = channel.mean_image.ok_or("every channel needs a mean image")?;
        let shape = Shape::from_slice(&[height, width]);
        let tensor = weights
            .constant(ElementType::F32, &shape, image.offset.value, image.size.value)
            .map_err(|e| e.to_string())?;
        let tensor = tensor.aligned().map_err(|e| e.to_string())?;
        values.extend_from_slice(tensor.slice::<f32>().map_err(|e| e.to_string())?);
    }
    Tensor::from_slice(&values, &[1, section.channels.len(), height, width][..]).map_err(|e| e.to_string())
}

fn insert(model: &mut Model, parameter: NodeId, mean: Tensor) {
    let raw: [RawAttribute<'_>; 0] = [];
    let Resolution::BuiltIn(definition, version) = Registry::default().resolve("Subtract", "opset1") else { return };
    let mut reader = AttributeReader::new(&raw, version.class_version);
    let operation = (definition.build)(&mut BuildContext {
        attributes: &mut reader,
        class_version: version.class_version,
        input_count: 2,
        output_count: 1,
        bodies: Vec::new(),
    });
    let name = model.node(parameter).friendly_name.clone();
    let constant = NodeId(model.nodes.len() as u32);
    model.nodes.push(Node::constant(format!("{name}/mean"), mean));
    let subtract = NodeId(model.nodes.len() as u32);
    for node in &mut model.nodes {
        for source in &mut node.inputs {
            if source.node == parameter {
                *source = Source { node: subtract, port: 0 };
            }
        }
    }
    let inputs = vec![Source { node: parameter, port: 0 }, Source { node: constant, port: 0 }];
    let subtract = Node::new(format!("{name}/subtract_mean"), "Subtract", version, Arc::clone(&operation), inputs, 1);
    model.nodes.push(subtract);
    model.sort();
}
