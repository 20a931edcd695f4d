//! From a graph back to a document.

use std::borrow::Cow;
use std::io::{self, Write};

use ovir_ir::{
    Attribute, BackEdge, Body, ControlFlow, DeclaredDim, Document, Edge, Layer, Located, Port, PortMap, PortMapEntry,
    Text, WeightsWriter,
};
use ovir_ops::{BodyPorts, Slicing, SymbolSource, ValueFacts};

use crate::inference::infer_model;
use crate::{Inference, Model, Node, NodeId, Source, Validated};

/// The document of a model, as IR version 11. Constants go to `weights`.
///
/// # Errors
/// What the system says when weights cannot be written.
pub fn to_document<W: Write>(validated: &Validated, weights: &mut WeightsWriter<W>) -> io::Result<Document<'static>> {
    let model = validated.model();
    let body = body(model, validated.inference(), weights)?;
    Ok(Document { name: Text::of(model.name.clone()), version: Located::from(11), body, ..Document::default() })
}

fn body<W: Write>(model: &Model, inference: &Inference, weights: &mut WeightsWriter<W>) -> io::Result<Body<'static>> {
    let mut body = Body { rt_info: model.rt_info.clone(), ..Body::default() };
    for id in layer_order(model) {
        body.layers.push(layer(model, inference, id, weights)?);
        let node = model.node(id);
        for (port, source) in node.inputs.iter().enumerate() {
            let producer = model.node(source.node);
            body.edges.push(Edge {
                from_layer: Located::from(number(source.node.index())),
                from_port: Located::from(number(producer.inputs.len() + source.port as usize)),
                to_layer: Located::from(number(id.index())),
                to_port: Located::from(number(port)),
                ..Edge::default()
            });
        }
    }
    Ok(body)
}

/// Parameters first and Results last, because the order of the file is the order of inputs and outputs.
fn layer_order(model: &Model) -> Vec<NodeId> {
    let is_interface = |id: &NodeId| model.parameters.contains(id) || model.results.contains(id);
    let inner = model.iter().map(|(id, _)| id).filter(|id| !is_interface(id));
    model.parameters.iter().copied().chain(inner).chain(model.results.iter().copied()).collect()
}

fn layer<W: Write>(
    model: &Model,
    inference: &Inference,
    id: NodeId,
    weights: &mut WeightsWriter<W>,
) -> io::Result<Layer<'static>> {
    let node = model.node(id);
    let is_result = node.is("Result");
    let mut layer = Layer {
        id: Located::from(number(id.index())),
        id_text: Cow::Owned(id.index().to_string()),
        name: Text::of(node.friendly_name.clone()),
        type_name: Text::of(node.type_name.to_string()),
        version: Text::of(node.opset.to_string()),
        attributes: attributes(node, weights)?,
        rt_info: node.rt_info.clone(),
        ..Layer::default()
    };
    for (port, source) in node.inputs.iter().enumerate() {
        layer.inputs.push(declare(port, inference.get(*source)));
    }
    if is_result {
        let names = node.outputs.iter().flat_map(|o| o.tensor_names.iter());
        layer.output_names = names.map(|name| Text::of(name.clone())).collect();
    } else {
        for (port, output) in node.outputs.iter().enumerate() {
            let facts = inference.get(Source { node: id, port: port as u32 });
            let mut declared = declare(node.inputs.len() + port, facts);
            declared.names = output.tensor_names.iter().map(|name| Text::of(name.clone())).collect();
            declared.rt_info = output.rt_info.clone();
            layer.outputs.push(declared);
        }
    }
    if !node.bodies.is_empty() {
        layer.control_flow = Some(Box::new(control_flow(node, weights)?));
    }
    Ok(layer)
}

fn attributes<W: Write>(node: &Node, weights: &mut WeightsWriter<W>) -> io::Result<Vec<Attribute<'static>>> {
    let mut written: Vec<Attribute<'static>> =
        node.operation.attributes().into_iter().map(|(name, text)| Attribute::of(name, text)).collect();
    if let Some(tensor) = node.tensor() {
        let place = weights.add(tensor)?;
        for attribute in &mut written {
            match &*attribute.name.value {
                "offset" => attribute.value = Text::of(place.offset.to_string()),
                "size" => attribute.value = Text::of(place.size.to_string()),
                _ => {}
            }
        }
    }
    Ok(written)
}

fn declare(id: usize, facts: &ValueFacts) -> Port<'static> {
    // A scalar and a tensor of unknown rank are written alike: without dimensions.
    let dims = facts.shape.dims().filter(|dims| !dims.is_empty()).map(|dims| {
        let value = |size: Option<usize>| size.and_then(|s| i64::try_from(s).ok()).unwrap_or(-1);
        dims.iter().map(|dim| DeclaredDim { value: value(dim.get()), ..DeclaredDim::default() }).collect()
    });
    let precision = facts.element_type.is_known().then(|| Located::from(facts.element_type));
    Port { id: Located::from(number(id)), precision, dims, ..Port::default() }
}

fn control_flow<W: Write>(node: &Node, weights: &mut WeightsWriter<W>) -> io::Result<ControlFlow<'static>> {
    let mut control_flow = ControlFlow::default();
    let is_if = node.bodies.len() == 2;
    for (index, (model, ports)) in node.bodies.iter().zip(node.operation.bodies()).enumerate() {
        let inference = infer_model(model, &[], &mut SymbolSource::default(), &mut Vec::new());
        let inner = Some(body(model, &inference, weights)?);
        let map = Some(port_map(node, model, ports));
        match (is_if, index) {
            (true, 0) => (control_flow.then_body, control_flow.then_port_map) = (inner, map),
            (true, _) => (control_flow.else_body, control_flow.else_port_map) = (inner, map),
            (false, _) => (control_flow.body, control_flow.port_map) = (inner, map),
        }
        control_flow.back_edges = ports
            .back_edges
            .iter()
            .map(|edge| BackEdge {
                from_layer: layer_id(&model.results, edge.result),
                to_layer: layer_id(&model.parameters, edge.parameter),
                ..BackEdge::default()
            })
            .collect();
    }
    Ok(control_flow)
}

fn port_map(node: &Node, model: &Model, ports: &BodyPorts) -> PortMap<'static> {
    let mut map = PortMap::default();
    for input in &ports.inputs {
        let external = i64::try_from(input.external).unwrap_or(-1);
        map.inputs.push(entry(external, layer_id(&model.parameters, input.parameter), input.slicing, None));
    }
    if let Some(parameter) = ports.special.current_iteration {
        map.inputs.push(entry(-1, layer_id(&model.parameters, parameter), None, Some("current_iteration")));
    }
    let mut condition = ports.special.execution_condition;
    for output in &ports.outputs {
        let external = i64::try_from(node.inputs.len() + output.external).unwrap_or(-1);
        let purpose = condition.take_if(|result| *result == output.result).map(|_| "execution_condition");
        map.outputs.push(entry(external, layer_id(&model.results, output.result), output.slicing, purpose));
    }
    if let Some(result) = condition {
        map.outputs.push(entry(-1, layer_id(&model.results, result), None, Some("execution_condition")));
    }
    map
}

fn entry(
    external: i64,
    internal: Located<u64>,
    slicing: Option<Slicing>,
    purpose: Option<&'static str>,
) -> PortMapEntry<'static> {
    PortMapEntry {
        external_port_id: Located::from(external),
        internal_layer_id: internal,
        axis: slicing.map(|s| Located::from(s.axis)),
        start: slicing.map(|s| Located::from(s.start)),
        end: slicing.map(|s| Located::from(s.end)),
        stride: slicing.map(|s| Located::from(s.stride)),
        part_size: slicing.map(|s| Located::from(s.part_size)),
        purpose: purpose.map(Text::of),
        ..PortMapEntry::default()
    }
}

fn layer_id(ids: &[NodeId], index: usize) -> Located<u64> {
    Located::from(number(ids.get(index).map_or(0, |id| id.index())))
}

fn number(value: usize) -> u64 {
    value as u64
}
