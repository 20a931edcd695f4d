//! From a document to a graph.
//!
//! Building goes on past every defect: what cannot be resolved becomes an [`Unresolved`] layer that yields what the file
//! declares, so that one run reports every defect once.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;
use ovir_diagnostics::{Code, Diagnostic, Severity, Span, nearest};
use ovir_ir::{
    Attribute, Body, ControlFlow, Document, Layer, Limits, Port, PortMap, PortMapEntry, RtAttribute, RtInfo, Text,
    Weights,
};
use ovir_ops::{
    AttributeDef, AttributeReader, BackEdge, Blame, BodyPorts, BuildContext, Category, Guarded, InputMap, OpDef,
    OpError, OpVersion, Operation, OutputMap, RawAttribute, Registry, Resolution, SPECIFIED, Slicing,
    infrastructure::constant::Const,
};
use ovir_tensor::{ElementType, SmallVec, with_room};
use smallvec::smallvec;

use crate::build::edges::Link;
use crate::locate::diagnose;
use crate::{DeclaredPort, Location, Model, Node, NodeId, Output, PortLocation, Source, Unresolved};

/// What building may leave out.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildOptions {
    /// Constants stay without tensors, and missing weights are no defect.
    pub without_weights: bool,
    /// Beyond as many findings as these say, some kinds are no longer looked for.
    pub limits: Limits,
}

/// A graph, as far as it could be built, and what is wrong with the file.
#[derive(Debug)]
pub struct Built {
    /// The graph.
    pub model: Model,
    /// The defects found so far.
    pub diagnostics: Vec<Diagnostic>,
}

/// Builds the graph of a document with the operations of `registry`. The document is taken apart on the way, so that its
/// memory serves the graph.
pub fn build(
    mut document: Document<'_>,
    weights: Option<&Weights>,
    registry: &Registry,
    options: BuildOptions,
) -> Built {
    let mut builder = Builder {
        weights: constants::Constants::new(weights, options.without_weights),
        registry,
        diagnostics: Vec::new(),
        nothing: Arc::new(Unresolved { outputs: Vec::new(), attributes: Vec::new() }),
        findings: options.limits.findings,
        unknown: Vec::new(),
        surplus: HashSet::new(),
    };
    let mut model = builder.body(&mut document.body).model;
    model.name = document.name.value.to_string();
    model.ir_version = document.version.value;
    if document.version.value == 10 {
        legacy::check_names(&model, &mut builder.diagnostics);
        legacy::widen_interface(&mut model);
    }
    let surplus = &builder.surplus;
    let is_surplus = |d: &Diagnostic| d.primary.as_ref().is_some_and(|label| surplus.contains(&label.span));
    builder.diagnostics.retain(|diagnostic| diagnostic.code != Code::MissingEdge || !is_surplus(diagnostic));
    builder.weights.finish(&mut builder.diagnostics);
    unknown::report(builder.unknown, registry, &mut builder.diagnostics);
    legacy::apply_preprocessing(&document, &mut model, weights, &mut builder.diagnostics);
    Built { model, diagnostics: builder.diagnostics }
}

mod constants;
mod edges;
mod legacy;
mod unknown;

struct Builder<'b> {
    weights: constants::Constants<'b>,
    registry: &'b Registry,
    diagnostics: Vec<Diagnostic>,
    /// What a layer is until its operation is known.
    nothing: Arc<dyn Operation>,
    /// The most findings that are of use.
    findings: usize,
    /// Layers of types that nobody knows.
    unknown: Vec<unknown::Unknown>,
    /// Ports that layers have beyond those of their operation.
    surplus: HashSet<Span>,
}

/// What is known by name. Files have a hundred thousand names, of which nobody can foresee the hashes.
type Names<'n, T> = HashMap<&'n str, T, RandomState>;

/// A body and where its parameters and results stand, by layer id.
struct BuiltBody {
    model: Model,
    parameters: HashMap<u64, usize>,
    results: HashMap<u64, usize>,
}

impl Builder<'_> {
    fn body(&mut self, body: &mut Body<'_>) -> BuiltBody {
        self.check_names(body);
        let edges = edges::connect(body, self.findings, &mut self.diagnostics);
        let rt_info = body.rt_info.iter().map(own_rt_info).collect();
        let mut model = Model { rt_info, nodes: with_room(body.layers.len()), ..Model::default() };
        let mut node_of: Vec<Option<NodeId>> = vec![None; body.layers.len()];
        for index in edges.order {
            let layer = &mut body.layers[index];
            let inputs = sources(layer, edges.links.get(index), &node_of, &mut model);
            let node = self.node(layer, inputs, edges.links.get(index), &mut model);
            node_of[index] = Some(NodeId(model.nodes.len() as u32));
            model.nodes.push(node);
            give_back(layer);
        }
        self.interface(body, &node_of, model)
    }

    fn check_names(&mut self, body: &Body<'_>) {
        let mut names: Names<'_, &Layer<'_>> =
            Names::with_capacity_and_hasher(body.layers.len(), RandomState::default());
        for layer in &body.layers {
            if let Some(first) = names.insert(layer.name.as_str(), layer)
                && self.diagnostics.len() <= self.findings
            {
                let message = format!("two layers have the name \"{}\"", layer.name.as_str());
                self.diagnostics.push(
                    Diagnostic::new(Code::DuplicateFriendlyName, message)
                        .in_layer(layer.reference())
                        .at(layer.name.span, "second use")
                        .also(first.name.span, "first use")
                        .help("rename one of them"),
                );
            }
        }
        self.check_tensor_names(body);
    }

    /// Of two inputs, or two outputs, with the same name only one can be addressed by it. Elsewhere the name addresses
    /// nothing, and converters do leave names behind.
    fn check_tensor_names(&mut self, body: &Body<'_>) {
        let mut tensors: Names<'_, (&Layer<'_>, u64, Span)> =
            Names::with_capacity_and_hasher(body.layers.len(), RandomState::default());
        let mut interface: Option<InterfacePorts> = None;
        for layer in &body.layers {
            for (port, name) in layer.outputs.iter().flat_map(|port| port.names.iter().map(move |name| (port, name))) {
                let Some((other, other_port, first)) = tensors.insert(name.as_str(), (layer, port.id.value, name.span))
                else {
                    continue;
                };
                if self.diagnostics.len() > self.findings {
                    return;
                }
                let interface = interface.get_or_insert_with(|| InterfacePorts::of(body));
                let both =
                    |is: &dyn Fn(u64, u64) -> bool| is(layer.id.value, port.id.value) && is(other.id.value, other_port);
                let is_ambiguous = (layer.id.value, port.id.value) == (other.id.value, other_port)
                    || both(&|layer, _| interface.inputs.contains(&layer))
                    || both(&|layer, port| interface.outputs.contains(&(layer, port)));
                let message = format!("the tensor name \"{}\" is used twice", name.as_str());
                let mut diagnostic = Diagnostic::new(Code::DuplicateTensorName, message)
                    .in_layer(layer.reference())
                    .at(name.span, "second use")
                    .also(first, "first use");
                if !is_ambiguous {
                    diagnostic.severity = Severity::Note;
                }
                self.diagnostics.push(diagnostic);
            }
        }
    }

    fn node(&mut self, layer: &mut Layer<'_>, inputs: Vec<Source>, links: &[Option<Link>], model: &mut Model) -> Node {
        let resolution = self.registry.resolve(&layer.type_name.value, &layer.version.value);
        let known = match &resolution {
            Resolution::BuiltIn(definition, _) => definition.attributes,
            _ => &[],
        };
        let location = Box::new(location(layer, links, known));
        let (bodies, ports) = match layer.control_flow.take() {
            Some(control_flow) => self.control_flow(layer, *control_flow),
            None => (Vec::new(), Vec::new()),
        };
        let mut node = Node {
            friendly_name: layer.name.value.to_string(),
            type_name: Cow::Borrowed(""),
            opset: opset_name(&layer.version.value),
            version: OpVersion::new(0, (0, 0), (0, usize::MAX), (0, usize::MAX)),
            operation: self.nothing.clone(),
            inputs,
            outputs: layer.outputs.iter().map(output).collect(),
            bodies,
            rt_info: layer.rt_info.iter().map(own_rt_attribute).collect(),
            location: Some(location),
        };
        if layer.is_incomplete {
            leave_unresolved(layer, &mut node);
            return node;
        }
        match resolution {
            Resolution::BuiltIn(definition, version) => {
                node.type_name = Cow::Borrowed(definition.type_name);
                self.resolve(layer, &mut node, definition, version, ports, model);
            }
            Resolution::User(definition, version) => {
                node.type_name = Cow::Owned(layer.type_name.value.to_string());
                self.resolve(layer, &mut node, &definition, version, ports, model);
            }
            Resolution::WrongOpset { .. } | Resolution::Unknown { .. } => {
                leave_unresolved(layer, &mut node);
                self.unresolved(layer);
            }
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
        let raw: SmallVec<[RawAttribute<'_>; 8]> = layer
            .attributes
            .iter()
            .map(|a: &Attribute<'_>| RawAttribute { name: &a.name.value, value: &a.value.value })
            .collect();
        let mut reader = AttributeReader::new(&raw, version.class_version);
        let mut context = BuildContext {
            attributes: &mut reader,
            class_version: version.class_version,
            input_count: node.inputs.len(),
            output_count: node.outputs.len(),
            bodies: ports,
        };
        node.operation = match definition.category {
            Category::User => Guarded::build(definition, &mut context).unwrap_or_else(|| Arc::clone(&self.nothing)),
            _ => (definition.build)(&mut context),
        };
        let mut is_sound = true;
        for problem in reader.finish() {
            let diagnostic = diagnose(model, node, &problem);
            if let Some(location) = &mut node.location {
                location.is_misspelt |= is_slip(&problem, definition);
            }
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
                "{} has {count} {kind} port{}; {}-{} has {expected}",
                layer.reference(),
                if count == 1 { "" } else { "s" },
                node.type_name,
                node.version.class_version
            );
            let ports = if kind == "input" { &layer.inputs } else { &layer.outputs };
            // That nothing arrives at ports that should not be there is no defect of its own.
            self.surplus.extend(ports.iter().skip(high).map(|port| port.span));
            let surplus = ports.get(high);
            let (span, label) = match surplus {
                Some(port) => (port.span, "one too many"),
                None => (layer.span, "ports are missing"),
            };
            self.diagnostics
                .push(Diagnostic::new(Code::PortCount, message).in_layer(layer.reference()).at(span, label));
        }
        fits
    }

    /// Reports why a type and a version mean nothing; types that nobody knows are reported at the end.
    fn unresolved(&mut self, layer: &Layer<'_>) {
        // A missing attribute was reported when it was read.
        if layer.type_name.value.is_empty() || layer.version.value.is_empty() {
            return;
        }
        let type_name = &layer.type_name.value;
        let specified: Vec<_> = SPECIFIED.iter().filter(|s| s.type_name.eq_ignore_ascii_case(type_name)).collect();
        let known = match self.registry.resolve(&layer.type_name.value, &layer.version.value) {
            Resolution::WrongOpset { definition } => Some(definition.type_name),
            _ => specified.first().map(|row| row.type_name),
        };
        let Some(type_name) = known.filter(|_| !unknown::is_of_tokenizers(layer)) else {
            self.unknown.push(unknown::Unknown::new(layer));
            return;
        };
        let reference = layer.reference();
        let message = format!("{reference}: {type_name} is not in \"{}\"", layer.version.as_str());
        let opsets: Vec<String> =
            specified.iter().map(|s| format!("opset{} to opset{}", s.first_opset, s.last_opset)).collect();
        let label = if is_opset(&layer.version.value) { "an opset without it" } else { "no opset" };
        let help = specified.last().map_or(String::new(), |s| format!("write version=\"opset{}\"", s.first_opset));
        self.diagnostics.push(
            Diagnostic::new(Code::UnknownOpset, message)
                .in_layer(reference)
                .at(layer.version.span, label)
                .note(format!("{type_name} is in {}", opsets.join(", ")))
                .help(help),
        );
    }

    /// Gives a Const its tensor. Returns whether the layer is sound.
    fn attach_weights(&mut self, layer: &Layer<'_>, node: &mut Node) -> bool {
        let Some(constant) = node.operation.downcast_ref::<Const>() else { return true };
        let attributes = constant.attributes.clone();
        let read = self.weights.read(layer, &attributes, &mut self.diagnostics);
        let Ok(tensor) = read else { return false };
        if let Some(tensor) = tensor {
            node.operation = Arc::new(Const { attributes, tensor: Some(tensor) });
        }
        true
    }

    fn control_flow(&mut self, layer: &Layer<'_>, control_flow: ControlFlow<'_>) -> (Vec<Model>, Vec<BodyPorts>) {
        let is_if = control_flow.then_body.is_some() || control_flow.else_body.is_some();
        let pairs: SmallVec<[_; 2]> = match is_if {
            true => smallvec![
                ("then_body", control_flow.then_body, control_flow.then_port_map),
                ("else_body", control_flow.else_body, control_flow.else_port_map),
            ],
            false => smallvec![("body", control_flow.body, control_flow.port_map)],
        };
        let (mut bodies, mut ports) = (Vec::new(), Vec::new());
        for (name, body, map) in pairs {
            let Some(mut body) = body else {
                let message = format!("{} has no <{name}>", layer.reference());
                let diagnostic = Diagnostic::new(Code::MissingElement, message).in_layer(layer.reference());
                self.diagnostics.push(diagnostic.at(layer.span, "both branches are required"));
                // With a branch missing, the other one must not take its place.
                return (Vec::new(), Vec::new());
            };
            let built = self.body(&mut body);
            let before = self.diagnostics.len();
            let connected = self.body_ports(layer, &control_flow.back_edges, map.as_ref(), &built);
            if self.diagnostics.len() == before && !body.is_incomplete {
                let place = map.as_ref().map_or(body.span, |map| map.span);
                self.check_connected(layer, &body, place, &connected);
            }
            ports.push(connected);
            bodies.push(built.model);
        }
        (bodies, ports)
    }

    /// Every Parameter of a body needs a value, and every output of the layer a Result.
    fn check_connected(&mut self, layer: &Layer<'_>, body: &Body<'_>, place: Span, ports: &BodyPorts) {
        let is_parameter = |l: &&Layer<'_>| l.type_name.value.eq_ignore_ascii_case("Parameter");
        let reference = layer.reference();
        let given: HashSet<usize> = ports.inputs.iter().map(|input| input.parameter).collect();
        for (index, parameter) in body.layers.iter().filter(is_parameter).enumerate() {
            if given.contains(&index) || ports.special.current_iteration == Some(index) {
                continue;
            }
            let message = format!(
                "{reference}: no <input> of the port map gives Parameter \"{}\" (id {}) of the body a value",
                parameter.name.as_str(),
                parameter.id_text
            );
            let mut diagnostic = Diagnostic::new(Code::MissingMapping, message).in_layer(reference.clone());
            if ports.back_edges.iter().any(|edge| edge.parameter == index) {
                diagnostic = diagnostic.note("its back edge gives it a value from the second iteration on");
            }
            diagnostic = diagnostic.at(place, "the port map").also(parameter.span, "the Parameter");
            self.diagnostics.push(diagnostic.help("add an <input> with its internal_layer_id"));
        }
        if layer.type_name.value.eq_ignore_ascii_case("Loop") && ports.special.execution_condition.is_none() {
            let message = format!("{reference}: no <output> of the port map has the purpose \"execution_condition\"");
            let diagnostic = Diagnostic::new(Code::MissingMapping, message).in_layer(reference.clone());
            let help =
                "add an <output> with that purpose and the internal_layer_id of the Result that says whether to go on";
            self.diagnostics.push(diagnostic.at(place, "the port map").help(help));
        }
        let taken: HashSet<usize> = ports.outputs.iter().map(|output| output.external).collect();
        for (index, port) in layer.outputs.iter().enumerate().filter(|(index, _)| !taken.contains(index)) {
            let message = format!(
                "{reference}, output {index}: no <output> of the port map says what port {} yields",
                port.id.value
            );
            let diagnostic = Diagnostic::new(Code::MissingMapping, message).in_layer(reference.clone());
            let diagnostic = diagnostic.at(place, "the port map").also(port.span, "the port");
            self.diagnostics
                .push(diagnostic.help(format!("add an <output> with external_port_id=\"{}\"", port.id.value)));
        }
    }

    fn body_ports(
        &mut self,
        layer: &Layer<'_>,
        back_edges: &[ovir_ir::BackEdge],
        map: Option<&PortMap<'_>>,
        body: &BuiltBody,
    ) -> BodyPorts {
        let mut ports = BodyPorts {
            parameter_count: body.model.parameters.len(),
            result_count: body.model.results.len(),
            ..BodyPorts::default()
        };
        for entry in map.iter().flat_map(|m| m.inputs.iter().chain(&m.outputs)) {
            self.check_slicing(layer, entry);
        }
        if let Some(map) = map {
            self.map_inputs(layer, map, body, &mut ports);
            self.map_outputs(layer, map, body, &mut ports);
        }
        for edge in back_edges {
            if self.is_backwards(layer, edge, body) {
                continue;
            }
            let result = self.inner(layer, &body.results, edge.from_layer, "Result");
            let parameter = self.inner(layer, &body.parameters, edge.to_layer, "Parameter");
            if let (Some(result), Some(parameter)) = (result, parameter) {
                ports.back_edges.push(BackEdge { result, parameter });
            }
        }
        ports
    }

    fn map_inputs(&mut self, layer: &Layer<'_>, map: &PortMap<'_>, body: &BuiltBody, ports: &mut BodyPorts) {
        let mut given: HashMap<usize, Span> = HashMap::new();
        for entry in &map.inputs {
            let id = entry.internal_layer_id;
            let Some(parameter) = self.inner(layer, &body.parameters, id, "Parameter") else { continue };
            if let Some(first) = given.insert(parameter, entry.span) {
                let what = format!("two <input> of the port map give Parameter {} a value", id.value);
                self.mapped_twice(layer, &what, id.span, first);
                continue;
            }
            if entry.purpose.as_ref().is_some_and(|p| p.as_str() == "current_iteration") {
                ports.special.current_iteration = Some(parameter);
                continue;
            }
            if let Some(external) = self.outer(layer, entry, &layer.inputs, "input") {
                ports.inputs.push(InputMap { external, parameter, slicing: slicing(entry) });
            }
        }
    }

    fn map_outputs(&mut self, layer: &Layer<'_>, map: &PortMap<'_>, body: &BuiltBody, ports: &mut BodyPorts) {
        let mut taken: HashMap<usize, Span> = HashMap::new();
        for entry in &map.outputs {
            let id = entry.external_port_id;
            let Some(result) = self.inner(layer, &body.results, entry.internal_layer_id, "Result") else { continue };
            if entry.purpose.as_ref().is_some_and(|p| p.as_str() == "execution_condition") {
                ports.special.execution_condition = Some(result);
            }
            // -1 marks a port that has a purpose and no counterpart outside.
            if id.value < 0 {
                continue;
            }
            let Some(external) = self.outer(layer, entry, &layer.outputs, "output") else { continue };
            match taken.insert(external, entry.span) {
                None => ports.outputs.push(OutputMap { external, result, slicing: slicing(entry) }),
                Some(first) => {
                    let what = format!("two <output> of the port map say what port {} yields", id.value);
                    self.mapped_twice(layer, &what, id.span, first);
                }
            }
        }
    }

    fn mapped_twice(&mut self, layer: &Layer<'_>, what: &str, second: Span, first: Span) {
        let reference = layer.reference();
        let diagnostic = Diagnostic::new(Code::InvalidBody, format!("{reference}: {what}")).in_layer(reference);
        self.diagnostics.push(diagnostic.at(second, "the second").also(first, "the first"));
    }

    /// Reports a back edge whose ends are exchanged.
    fn is_backwards(&mut self, layer: &Layer<'_>, edge: &ovir_ir::BackEdge, body: &BuiltBody) -> bool {
        let (from, to) = (edge.from_layer.value, edge.to_layer.value);
        let is_sound = body.results.contains_key(&from) || body.parameters.contains_key(&to);
        if is_sound || !body.parameters.contains_key(&from) || !body.results.contains_key(&to) {
            return false;
        }
        let reference = layer.reference();
        let message = format!("{reference}: the back edge goes from Parameter {from} to Result {to}");
        let diagnostic = Diagnostic::new(Code::InvalidBody, message).in_layer(reference).at(edge.span, "");
        self.diagnostics.push(diagnostic.help("back edges go from a Result to a Parameter; exchange the ends"));
        true
    }

    /// Steps of nothing and slices of nothing never end, whatever the size of the axis.
    fn check_slicing(&mut self, layer: &Layer<'_>, entry: &PortMapEntry<'_>) {
        let stride = entry
            .stride
            .filter(|stride| stride.value == 0)
            .map(|stride| ("stride", stride, "so that no slice follows the first one"));
        let part_size = entry.part_size.filter(|size| size.value < 1);
        let wrong = stride.or(part_size.map(|size| ("part_size", size, "which must be at least 1")));
        let Some((name, number, rule)) = wrong.filter(|_| entry.axis.is_some()) else { return };
        let reference = layer.reference();
        let message = format!("{reference}: `{name}` of the port map is {}, {rule}", number.value);
        self.diagnostics.push(Diagnostic::new(Code::InvalidBody, message).in_layer(reference).at(number.span, ""));
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

/// The sources of a layer's inputs; a missing one becomes a placeholder that yields what the port declares.
fn sources(layer: &Layer<'_>, links: &[Option<Link>], node_of: &[Option<NodeId>], model: &mut Model) -> Vec<Source> {
    let mut sources = Vec::with_capacity(links.len());
    for (port, link) in layer.inputs.iter().zip(links) {
        let producer = link.and_then(|link| Some((node_of.get(link.layer).copied().flatten()?, link.port)));
        sources.push(match producer {
            Some((node, port)) => Source { node, port: port as u32 },
            None => placeholder(model, &declared(port)),
        });
    }
    sources
}

/// The ports at which names address inputs and outputs of a body.
struct InterfacePorts {
    /// The ids of Parameters.
    inputs: HashSet<u64>,
    /// Layer and output port that Results read.
    outputs: HashSet<(u64, u64)>,
}

impl InterfacePorts {
    fn of(body: &Body<'_>) -> InterfacePorts {
        let of_type = |type_name: &'static str| {
            let is_it = move |l: &&Layer<'_>| l.type_name.value.eq_ignore_ascii_case(type_name);
            body.layers.iter().filter(is_it).map(|l| l.id.value).collect::<HashSet<u64>>()
        };
        let results = of_type("Result");
        let read = body.edges.iter().filter(|edge| results.contains(&edge.to_layer.value));
        let outputs = read.map(|edge| (edge.from_layer.value, edge.from_port.value)).collect();
        InterfacePorts { inputs: of_type("Parameter"), outputs }
    }
}

fn is_opset(version: &str) -> bool {
    version.strip_prefix("opset").is_some_and(|number| number.parse::<u8>().is_ok())
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

/// Frees what a layer holds beyond what the body still needs of it: ids, names and places.
fn give_back(layer: &mut Layer<'_>) {
    layer.attributes = Vec::new();
    layer.inputs = Vec::new();
    layer.outputs = Vec::new();
}

/// The layer yields what the file declares.
fn leave_unresolved(layer: &Layer<'_>, node: &mut Node) {
    node.type_name = Cow::Owned(layer.type_name.value.to_string());
    node.operation = Arc::new(unresolved(layer));
}

/// The name of an opset, without memory of its own for those that there are.
fn opset_name(version: &str) -> Cow<'static, str> {
    const NAMES: [&str; 17] = [
        "opset1", "opset2", "opset3", "opset4", "opset5", "opset6", "opset7", "opset8", "opset9", "opset10", "opset11",
        "opset12", "opset13", "opset14", "opset15", "opset16", "opset17",
    ];
    match NAMES.iter().find(|name| **name == version) {
        Some(name) => Cow::Borrowed(name),
        None => Cow::Owned(version.to_owned()),
    }
}

fn declared(port: &Port<'_>) -> DeclaredPort {
    DeclaredPort {
        element_type: port.precision.map(|p| (p.value, p.span)).filter(|(t, _)| *t != ElementType::Dynamic),
        dims: port.dims.clone(),
    }
}

/// Whether an unknown attribute seems to be a misspelt one.
fn is_slip(problem: &OpError, definition: &OpDef) -> bool {
    let Blame::Attribute(name) = problem.blame() else { return false };
    problem.code() == Code::UnknownAttribute && nearest(name, definition.attributes.iter().map(|a| a.name)).is_some()
}

/// `known` are the attributes whose names need no memory of their own.
fn location(layer: &Layer<'_>, links: &[Option<Link>], known: &'static [AttributeDef]) -> Location {
    let name = |name: &str| match known.iter().find(|definition| definition.name == name) {
        Some(definition) => Cow::Borrowed(definition.name),
        None => Cow::Owned(name.to_owned()),
    };
    let port = |port: &Port<'_>, edge: Option<Span>| PortLocation {
        id: port.id.value,
        span: port.span,
        edge,
        declared: declared(port),
    };
    Location {
        id: layer.id_text.to_string(),
        layer: layer.span,
        attributes: layer.attributes.iter().map(|a| (name(&a.name.value), a.span())).collect(),
        inputs: layer.inputs.iter().zip(links).map(|(p, link)| port(p, link.map(|link| link.span))).collect(),
        outputs: layer.outputs.iter().map(|p| port(p, None)).collect(),
        is_misspelt: false,
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
