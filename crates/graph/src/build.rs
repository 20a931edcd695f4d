//! From a document to a graph.
//!
//! Building goes on past every defect: what cannot be resolved becomes an [`Unresolved`] layer that yields what the file
//! declares, so that one run reports every defect once.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ovir_diagnostics::{Code, Diagnostic, Span};
use ovir_ir::{
    Attribute, Body, ControlFlow, Document, Layer, Port, PortMap, PortMapEntry, RtAttribute, RtInfo, Text, Weights,
};
use ovir_ops::{
    AttributeReader, BackEdge, BodyPorts, BuildContext, InputMap, OpDef, OpVersion, Operation, OutputMap, RawAttribute,
    Registry, Resolution, Slicing, infrastructure::constant::Const,
};
use ovir_tensor::{ElementType, MAX_BOUNDS_ELEMENTS};

use crate::locate::diagnose;
use crate::order::topological;
use crate::{DeclaredPort, Location, Model, Node, NodeId, Output, PortLocation, Source, Unresolved};

/// What building may leave out.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildOptions {
    /// Constants stay without tensors, and missing weights are no defect.
    pub without_weights: bool,
}

/// A graph, as far as it could be built, and what is wrong with the file.
#[derive(Debug)]
pub struct Built {
    /// The graph.
    pub model: Model,
    /// The defects found so far.
    pub diagnostics: Vec<Diagnostic>,
}

/// Builds the graph of a document with the operations of `registry`.
pub fn build(document: &Document<'_>, weights: Option<&Weights>, registry: &Registry, options: BuildOptions) -> Built {
    let mut builder = Builder { weights, registry, options, diagnostics: Vec::new(), missing_weights: false };
    let mut model = builder.body(&document.body).model;
    model.name = document.name.value.to_string();
    model.ir_version = document.version.value;
    if document.version.value == 10 {
        legacy::widen_interface(&mut model);
    }
    legacy::apply_preprocessing(document, &mut model, weights, &mut builder.diagnostics);
    Built { model, diagnostics: builder.diagnostics }
}

mod legacy;

struct Builder<'b> {
    weights: Option<&'b Weights>,
    registry: &'b Registry,
    options: BuildOptions,
    diagnostics: Vec<Diagnostic>,
    missing_weights: bool,
}

/// A body and where its parameters and results stand, by layer id.
struct BuiltBody {
    model: Model,
    parameters: HashMap<u64, usize>,
    results: HashMap<u64, usize>,
}

/// The producer of an input: layer and port, as positions in the file.
type Link = Option<(usize, usize, Span)>;

impl Builder<'_> {
    fn body(&mut self, body: &Body<'_>) -> BuiltBody {
        let ids = self.layer_ids(body);
        self.check_names(body);
        let mut links = self.links(body, &ids);
        let order = self.order(body, &mut links);
        let mut model = Model { rt_info: body.rt_info.iter().map(own_rt_info).collect(), ..Model::default() };
        let mut node_of: Vec<Option<NodeId>> = vec![None; body.layers.len()];
        for index in order {
            let layer = &body.layers[index];
            let inputs = self.inputs(layer, &links[index], &node_of, &mut model, body.is_incomplete);
            let node = self.node(layer, inputs, &links[index], &mut model);
            node_of[index] = Some(NodeId(model.nodes.len() as u32));
            model.nodes.push(node);
        }
        self.interface(body, &node_of, model)
    }

    fn layer_ids(&mut self, body: &Body<'_>) -> HashMap<u64, usize> {
        let mut ids: HashMap<u64, usize> = HashMap::with_capacity(body.layers.len());
        for (index, layer) in body.layers.iter().enumerate() {
            if let Some(first) = ids.get(&layer.id.value) {
                let message = format!("two layers have the id {}", layer.id_text);
                let first = &body.layers[*first];
                self.diagnostics.push(
                    Diagnostic::new(Code::DuplicateLayerId, message)
                        .in_layer(layer.reference())
                        .at(layer.id.span, "second use")
                        .also(first.id.span, "first use")
                        .help("give every layer its own id, and let the edges follow"),
                );
                continue;
            }
            ids.insert(layer.id.value, index);
            self.check_port_ids(layer);
        }
        ids
    }

    fn check_port_ids(&mut self, layer: &Layer<'_>) {
        for ports in [&layer.inputs, &layer.outputs] {
            for (i, port) in ports.iter().enumerate() {
                if let Some(first) = ports[..i].iter().find(|p| p.id.value == port.id.value) {
                    let message = format!("{} has two ports with the id {}", layer.reference(), port.id.value);
                    self.diagnostics.push(
                        Diagnostic::new(Code::DuplicatePortId, message)
                            .in_layer(layer.reference())
                            .at(port.id.span, "second use")
                            .also(first.id.span, "first use"),
                    );
                }
            }
        }
    }

    fn check_names(&mut self, body: &Body<'_>) {
        let mut names: HashMap<&str, &Layer<'_>> = HashMap::with_capacity(body.layers.len());
        let mut tensors: HashMap<&str, Span> = HashMap::new();
        for layer in &body.layers {
            if let Some(first) = names.insert(layer.name.as_str(), layer) {
                let message = format!("two layers have the name \"{}\"", layer.name.as_str());
                self.diagnostics.push(
                    Diagnostic::new(Code::DuplicateFriendlyName, message)
                        .in_layer(layer.reference())
                        .at(layer.name.span, "second use")
                        .also(first.name.span, "first use"),
                );
            }
            for name in layer.outputs.iter().flat_map(|port| &port.names) {
                if let Some(first) = tensors.insert(name.as_str(), name.span) {
                    let message = format!("the tensor name \"{}\" is used twice", name.as_str());
                    self.diagnostics.push(
                        Diagnostic::new(Code::DuplicateTensorName, message)
                            .in_layer(layer.reference())
                            .at(name.span, "second use")
                            .also(first, "first use"),
                    );
                }
            }
        }
    }

    /// For each layer, for each input port, the producer that an edge names.
    fn links(&mut self, body: &Body<'_>, ids: &HashMap<u64, usize>) -> Vec<Vec<Link>> {
        let mut links: Vec<Vec<Link>> = body.layers.iter().map(|l| vec![None; l.inputs.len()]).collect();
        for edge in &body.edges {
            let from = ids.get(&edge.from_layer.value).copied();
            let to = ids.get(&edge.to_layer.value).copied();
            let (Some(from), Some(to)) = (from, to) else {
                if !body.is_incomplete {
                    let end = if from.is_none() { edge.from_layer } else { edge.to_layer };
                    self.dangling(format!("the edge names layer {}, which does not exist", end.value), end.span);
                }
                continue;
            };
            let output = body.layers[from].outputs.iter().position(|p| p.id.value == edge.from_port.value);
            let input = body.layers[to].inputs.iter().position(|p| p.id.value == edge.to_port.value);
            let Some(output) = output else {
                self.no_port(
                    &body.layers[from],
                    "output",
                    edge.from_port.value,
                    edge.from_port.span,
                    &body.layers[from].outputs,
                );
                continue;
            };
            let Some(input) = input else {
                self.no_port(&body.layers[to], "input", edge.to_port.value, edge.to_port.span, &body.layers[to].inputs);
                continue;
            };
            if let Some((_, _, first)) = links[to][input] {
                let reference = body.layers[to].reference();
                let message = format!("two edges end at input port {} of {reference}", edge.to_port.value);
                self.diagnostics.push(
                    Diagnostic::new(Code::DuplicateEdge, message)
                        .in_layer(reference)
                        .at(edge.span, "second edge")
                        .also(first, "first edge"),
                );
                continue;
            }
            links[to][input] = Some((from, output, edge.span));
        }
        links
    }

    fn dangling(&mut self, message: String, span: Span) {
        self.diagnostics.push(Diagnostic::new(Code::DanglingEdge, message).at(span, ""));
    }

    fn no_port(&mut self, layer: &Layer<'_>, kind: &str, id: u64, span: Span, ports: &[Port<'_>]) {
        let known: Vec<String> = ports.iter().map(|p| p.id.value.to_string()).collect();
        let message = format!("the edge names {kind} port {id} of {}, which does not exist", layer.reference());
        let mut diagnostic = Diagnostic::new(Code::DanglingEdge, message)
            .in_layer(layer.reference())
            .at(span, "")
            .also(layer.span, "the layer");
        diagnostic = match known.is_empty() {
            true => diagnostic.note(format!("the layer has no {kind} ports")),
            false => diagnostic.note(format!("the layer has the {kind} ports {}", known.join(", "))),
        };
        self.diagnostics.push(diagnostic);
    }

    /// The order in which layers are built. Edges that close a cycle are reported and taken out of `links`.
    fn order(&mut self, body: &Body<'_>, links: &mut [Vec<Link>]) -> Vec<usize> {
        let producers = |links: &[Vec<Link>]| -> Vec<Vec<usize>> {
            links.iter().map(|inputs| inputs.iter().flatten().map(|(from, ..)| *from).collect()).collect()
        };
        let stuck = match topological(&producers(links)) {
            Ok(order) => return order,
            Err(stuck) => stuck,
        };
        let stuck: HashSet<usize> = stuck.into_iter().collect();
        let members = cycle_members(&stuck, &producers(links));
        let Some(first) = members.first().map(|i| &body.layers[*i]) else { return Vec::new() };
        let names: Vec<String> =
            members.iter().take(8).map(|i| format!("\"{}\"", body.layers[*i].name.as_str())).collect();
        let message = format!("{} layers form a cycle: {}", members.len(), names.join(", "));
        let mut diagnostic = Diagnostic::new(Code::Cycle, message).in_layer(first.reference()).at(first.span, "");
        let in_cycle: HashSet<usize> = members.iter().copied().collect();
        for to in &members {
            for link in &mut links[*to] {
                if let Some((from, _, span)) = *link
                    && in_cycle.contains(&from)
                {
                    diagnostic = diagnostic.also(span, "");
                    *link = None;
                }
            }
        }
        self.diagnostics.push(diagnostic);
        match topological(&producers(links)) {
            Ok(order) => order,
            // Another cycle is left; each round removes one, so this ends.
            Err(_) => self.order(body, links),
        }
    }

    /// The sources of a layer's inputs; a missing one becomes a placeholder that yields what the port declares.
    fn inputs(
        &mut self,
        layer: &Layer<'_>,
        links: &[Link],
        node_of: &[Option<NodeId>],
        model: &mut Model,
        is_incomplete: bool,
    ) -> Vec<Source> {
        let was_cycle = self.diagnostics.iter().any(|d| d.code == Code::Cycle);
        let mut sources = Vec::with_capacity(links.len());
        for (port, link) in layer.inputs.iter().zip(links) {
            let node = link.and_then(|(from, output, _)| Some((node_of.get(from).copied().flatten()?, output)));
            if let Some((node, output)) = node {
                sources.push(Source { node, port: output as u32 });
                continue;
            }
            if !is_incomplete && !was_cycle {
                let message = format!("{}: input port {} has no producer", layer.reference(), port.id.value);
                self.diagnostics.push(
                    Diagnostic::new(Code::MissingEdge, message)
                        .in_layer(layer.reference())
                        .at(port.span, "no edge ends here")
                        .help("add an edge that ends at this port, or remove the port"),
                );
            }
            sources.push(placeholder(model, &declared(port)));
        }
        sources
    }

    fn node(&mut self, layer: &Layer<'_>, inputs: Vec<Source>, links: &[Link], model: &mut Model) -> Node {
        let location = Box::new(location(layer, links));
        let (bodies, ports) = match &layer.control_flow {
            Some(control_flow) => self.control_flow(layer, control_flow),
            None => (Vec::new(), Vec::new()),
        };
        let mut node = Node {
            friendly_name: layer.name.value.to_string(),
            type_name: Cow::Owned(layer.type_name.value.to_string()),
            opset: Cow::Owned(layer.version.value.to_string()),
            version: OpVersion::new(0, (0, 0), (0, usize::MAX), (0, usize::MAX)),
            operation: Arc::new(unresolved(layer)),
            inputs,
            outputs: layer.outputs.iter().map(output).collect(),
            bodies,
            rt_info: layer.rt_info.iter().map(own_rt_attribute).collect(),
            location: Some(location),
        };
        match self.registry.resolve(&layer.type_name.value, &layer.version.value) {
            Resolution::BuiltIn(definition, version) => {
                node.type_name = Cow::Borrowed(definition.type_name);
                self.resolve(layer, &mut node, definition, version, ports, model);
            }
            Resolution::User(definition, version) => self.resolve(layer, &mut node, &definition, version, ports, model),
            Resolution::WrongOpset { definition } => self.wrong_opset(layer, definition),
            Resolution::Unknown { nearest } => self.unknown_operation(layer, nearest),
        }
        node
    }

    fn resolve(
        &mut self,
        layer: &Layer<'_>,
        node: &mut Node,
        definition: &OpDef,
        version: OpVersion,
        ports: Vec<BodyPorts>,
        model: &mut Model,
    ) {
        node.version = version;
        let raw: Vec<RawAttribute<'_>> = layer
            .attributes
            .iter()
            .map(|a: &Attribute<'_>| RawAttribute { name: &a.name.value, value: &a.value.value })
            .collect();
        let mut reader = AttributeReader::new(&raw, version.class_version);
        node.operation = (definition.build)(&mut BuildContext {
            attributes: &mut reader,
            class_version: version.class_version,
            input_count: node.inputs.len(),
            output_count: node.outputs.len(),
            bodies: ports,
        });
        let mut is_sound = true;
        for problem in reader.finish() {
            let diagnostic = diagnose(model, node, &problem);
            is_sound &= !diagnostic.is_error();
            self.diagnostics.push(diagnostic);
        }
        is_sound &= self.check_port_counts(layer, node);
        if node.is("Result") {
            node.outputs = vec![Output {
                tensor_names: layer.output_names.iter().map(|n| n.value.to_string()).collect(),
                rt_info: Vec::new(),
            }];
        }
        if is_sound && node.is("Const") {
            is_sound = self.attach_weights(layer, node);
        }
        if !is_sound {
            node.operation = Arc::new(unresolved(layer));
        }
    }

    fn check_port_counts(&mut self, layer: &Layer<'_>, node: &Node) -> bool {
        let mut fits = true;
        for (kind, count, (low, high)) in
            [("input", layer.inputs.len(), node.version.inputs), ("output", layer.outputs.len(), node.version.outputs)]
        {
            if (low..=high).contains(&count) {
                continue;
            }
            fits = false;
            let expected = match (low, high) {
                (a, b) if a == b => format!("{a}"),
                (a, usize::MAX) => format!("at least {a}"),
                (a, b) => format!("{a} to {b}"),
            };
            let message = format!(
                "{} has {count} {kind} ports; {}-{} has {expected}",
                layer.reference(),
                node.type_name,
                node.version.class_version
            );
            let diagnostic = Diagnostic::new(Code::PortCount, message).in_layer(layer.reference()).at(layer.span, "");
            self.diagnostics.push(diagnostic);
        }
        fits
    }

    fn wrong_opset(&mut self, layer: &Layer<'_>, definition: &OpDef) {
        let known: Vec<String> =
            definition.versions.iter().map(|v| format!("opset{} to opset{}", v.first_opset, v.last_opset)).collect();
        let message =
            format!("{}: {} is not in \"{}\"", layer.reference(), definition.type_name, layer.version.as_str());
        self.diagnostics.push(
            Diagnostic::new(Code::UnknownOpset, message)
                .in_layer(layer.reference())
                .at(layer.version.span, "")
                .note(format!("{} is in {}", definition.type_name, known.join(", "))),
        );
    }

    fn unknown_operation(&mut self, layer: &Layer<'_>, nearest: Option<&'static str>) {
        let message = format!("{}: unknown operation \"{}\"", layer.reference(), layer.type_name.as_str());
        let mut diagnostic =
            Diagnostic::new(Code::UnknownOperation, message).in_layer(layer.reference()).at(layer.type_name.span, "");
        if let Some(nearest) = nearest {
            diagnostic = diagnostic.help(format!("did you mean {nearest}?"));
        }
        self.diagnostics.push(diagnostic);
    }

    /// Gives a Const its tensor. Returns whether the layer is sound.
    fn attach_weights(&mut self, layer: &Layer<'_>, node: &mut Node) -> bool {
        let Some(constant) = node.operation.downcast_ref::<Const>() else { return true };
        if self.options.without_weights {
            return true;
        }
        let attributes = constant.attributes.clone();
        let Some(weights) = self.weights.filter(|w| !w.is_absent()) else {
            if !self.missing_weights {
                self.missing_weights = true;
                let message = format!("{} needs the weights file, which is missing", layer.reference());
                self.diagnostics.push(
                    Diagnostic::new(Code::MissingWeights, message)
                        .in_layer(layer.reference())
                        .at(layer.data_span.unwrap_or(layer.span), "")
                        .help("put the .bin file beside the .xml file, or name it with --weights"),
                );
            }
            return true;
        };
        match weights.constant(attributes.element_type, &attributes.shape, attributes.offset, attributes.size) {
            Ok(tensor) => {
                // Shapes, axes and scalars are read directly during inference; large constants stay where they are.
                let tensor = match tensor.elements() <= MAX_BOUNDS_ELEMENTS {
                    true => tensor.aligned().unwrap_or(tensor),
                    false => tensor,
                };
                node.operation = Arc::new(Const { attributes, tensor: Some(tensor) });
                true
            }
            Err(error) => {
                let message = format!("{}: {error}", layer.reference());
                let span = layer.attribute("offset").map_or(layer.data_span.unwrap_or(layer.span), Attribute::span);
                self.diagnostics.push(Diagnostic::new(error.code(), message).in_layer(layer.reference()).at(span, ""));
                false
            }
        }
    }

    fn control_flow(&mut self, layer: &Layer<'_>, control_flow: &ControlFlow<'_>) -> (Vec<Model>, Vec<BodyPorts>) {
        let pairs = [
            (&control_flow.body, &control_flow.port_map),
            (&control_flow.then_body, &control_flow.then_port_map),
            (&control_flow.else_body, &control_flow.else_port_map),
        ];
        let (mut bodies, mut ports) = (Vec::new(), Vec::new());
        for (body, map) in pairs {
            let Some(body) = body else { continue };
            let built = self.body(body);
            ports.push(self.body_ports(layer, control_flow, map.as_ref(), &built));
            bodies.push(built.model);
        }
        (bodies, ports)
    }

    fn body_ports(
        &mut self,
        layer: &Layer<'_>,
        control_flow: &ControlFlow<'_>,
        map: Option<&PortMap<'_>>,
        body: &BuiltBody,
    ) -> BodyPorts {
        let mut ports = BodyPorts {
            parameter_count: body.model.parameters.len(),
            result_count: body.model.results.len(),
            ..BodyPorts::default()
        };
        for entry in map.iter().flat_map(|m| &m.inputs) {
            let Some(parameter) = self.inner(layer, &body.parameters, entry.internal_layer_id, "Parameter") else {
                continue;
            };
            if entry.purpose.as_ref().is_some_and(|p| p.as_str() == "current_iteration") {
                ports.special.current_iteration = Some(parameter);
                continue;
            }
            if let Some(external) = self.outer(layer, entry, &layer.inputs, "input") {
                ports.inputs.push(InputMap { external, parameter, slicing: slicing(entry) });
            }
        }
        for entry in map.iter().flat_map(|m| &m.outputs) {
            let Some(result) = self.inner(layer, &body.results, entry.internal_layer_id, "Result") else { continue };
            if entry.purpose.as_ref().is_some_and(|p| p.as_str() == "execution_condition") {
                ports.special.execution_condition = Some(result);
            }
            // -1 marks a port that has a purpose and no counterpart outside.
            if entry.external_port_id.value < 0 {
                continue;
            }
            if let Some(external) = self.outer(layer, entry, &layer.outputs, "output") {
                ports.outputs.push(OutputMap { external, result, slicing: slicing(entry) });
            }
        }
        for edge in &control_flow.back_edges {
            let result = self.inner(layer, &body.results, edge.from_layer, "Result");
            let parameter = self.inner(layer, &body.parameters, edge.to_layer, "Parameter");
            if let (Some(result), Some(parameter)) = (result, parameter) {
                ports.back_edges.push(BackEdge { result, parameter });
            }
        }
        ports
    }

    fn inner(
        &mut self,
        layer: &Layer<'_>,
        known: &HashMap<u64, usize>,
        id: ovir_ir::Located<u64>,
        kind: &str,
    ) -> Option<usize> {
        let found = known.get(&id.value).copied();
        if found.is_none() {
            let message = format!("{}: the body has no {kind} with the id {}", layer.reference(), id.value);
            self.diagnostics
                .push(Diagnostic::new(Code::InvalidBody, message).in_layer(layer.reference()).at(id.span, ""));
        }
        found
    }

    fn outer(&mut self, layer: &Layer<'_>, entry: &PortMapEntry<'_>, ports: &[Port<'_>], kind: &str) -> Option<usize> {
        let id = entry.external_port_id;
        let found = u64::try_from(id.value).ok().and_then(|id| ports.iter().position(|p| p.id.value == id));
        if found.is_none() {
            let message = format!("{} has no {kind} port {}, which its port map names", layer.reference(), id.value);
            self.diagnostics
                .push(Diagnostic::new(Code::InvalidBody, message).in_layer(layer.reference()).at(id.span, ""));
        }
        found
    }

    fn interface(&mut self, body: &Body<'_>, node_of: &[Option<NodeId>], mut model: Model) -> BuiltBody {
        let (mut parameters, mut results) = (HashMap::new(), HashMap::new());
        for (index, layer) in body.layers.iter().enumerate() {
            let Some(id) = node_of[index] else { continue };
            // A Parameter or Result that is itself defective keeps its place, so that port maps still find it.
            if layer.type_name.value.eq_ignore_ascii_case("Parameter") {
                parameters.insert(layer.id.value, model.parameters.len());
                model.parameters.push(id);
            } else if layer.type_name.value.eq_ignore_ascii_case("Result") {
                results.insert(layer.id.value, model.results.len());
                model.results.push(id);
            }
        }
        BuiltBody { model, parameters, results }
    }
}

/// The layers on one cycle among `stuck` ones: walking from consumer to producer must come back.
fn cycle_members(stuck: &HashSet<usize>, producers: &[Vec<usize>]) -> Vec<usize> {
    let Some(mut at) = stuck.iter().min().copied() else { return Vec::new() };
    let mut path: Vec<usize> = Vec::new();
    let mut position: HashMap<usize, usize> = HashMap::new();
    loop {
        if let Some(start) = position.get(&at) {
            let mut members = path[*start..].to_vec();
            members.reverse();
            return members;
        }
        position.insert(at, path.len());
        path.push(at);
        match producers[at].iter().filter(|p| stuck.contains(p)).min() {
            Some(next) => at = *next,
            None => return path,
        }
    }
}

fn slicing(entry: &PortMapEntry<'_>) -> Option<Slicing> {
    let axis = entry.axis?.value;
    Some(Slicing {
        axis,
        start: entry.start.map_or(0, |v| v.value),
        end: entry.end.map_or(-1, |v| v.value),
        stride: entry.stride.map_or(1, |v| v.value),
        part_size: entry.part_size.map_or(1, |v| v.value),
    })
}

fn placeholder(model: &mut Model, port: &DeclaredPort) -> Source {
    let operation: Arc<dyn Operation> =
        Arc::new(Unresolved { outputs: vec![(port.element_type(), port.shape())], attributes: Vec::new() });
    let version = OpVersion::new(0, (0, 0), (0, 0), (1, 1));
    let node = NodeId(model.nodes.len() as u32);
    model.nodes.push(Node::new("missing producer", "missing", version, operation, Vec::new(), 1));
    Source { node, port: 0 }
}

fn unresolved(layer: &Layer<'_>) -> Unresolved {
    Unresolved {
        outputs: layer
            .outputs
            .iter()
            .map(|port| {
                let port = declared(port);
                (port.element_type(), port.shape())
            })
            .collect(),
        attributes: layer.attributes.iter().map(|a| (a.name.value.to_string(), a.value.value.to_string())).collect(),
    }
}

fn output(port: &Port<'_>) -> Output {
    Output {
        tensor_names: port.names.iter().map(|n: &Text<'_>| n.value.to_string()).collect(),
        rt_info: port.rt_info.iter().map(own_rt_attribute).collect(),
    }
}

fn declared(port: &Port<'_>) -> DeclaredPort {
    DeclaredPort {
        element_type: port.precision.map(|p| (p.value, p.span)).filter(|(t, _)| *t != ElementType::Dynamic),
        dims: port.dims.as_ref().map(|dims| dims.iter().map(|d| (d.value, d.span)).collect()),
    }
}

fn location(layer: &Layer<'_>, links: &[Link]) -> Location {
    let port = |port: &Port<'_>, edge: Option<Span>| PortLocation {
        id: port.id.value,
        span: port.span,
        edge,
        declared: declared(port),
    };
    Location {
        id: layer.id_text.to_string(),
        layer: layer.span,
        attributes: layer.attributes.iter().map(|a| (a.name.value.to_string(), a.span())).collect(),
        inputs: layer.inputs.iter().zip(links).map(|(p, link)| port(p, link.map(|(_, _, span)| span))).collect(),
        outputs: layer.outputs.iter().map(|p| port(p, None)).collect(),
    }
}

fn own_text(text: &Text<'_>) -> Text<'static> {
    Text { value: Cow::Owned(text.value.to_string()), span: text.span }
}

fn own_rt_info(entry: &RtInfo<'_>) -> RtInfo<'static> {
    RtInfo {
        name: own_text(&entry.name),
        value: entry.value.as_ref().map(own_text),
        children: entry.children.iter().map(own_rt_info).collect(),
        span: entry.span,
    }
}

fn own_rt_attribute(attribute: &RtAttribute<'_>) -> RtAttribute<'static> {
    RtAttribute {
        element: own_text(&attribute.element),
        name: own_text(&attribute.name),
        version: own_text(&attribute.version),
        attributes: attribute
            .attributes
            .iter()
            .map(|a| Attribute { name: own_text(&a.name), value: own_text(&a.value) })
            .collect(),
        span: attribute.span,
    }
}
