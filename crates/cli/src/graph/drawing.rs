//! What a picture shows: layers with their places, edges, findings; one graph for the model and one for each body.

use std::collections::HashMap;

use ovir::Validation;
use ovir::diagnostics::{Diagnostic, LayerReference, Severity, SourceText};
use ovir::graph::{Inference, Model, Node, NodeId, Source};

use super::layout::{Layout, Size, lay_out};
use super::times::{LayerTime, Times};

/// The height of a line of text.
pub const LINE: f32 = 14.0;

/// The space between text and border.
pub const PADDING: f32 = 7.0;

/// The width of a letter, about. Pictures are made without a font at hand.
const LETTER: f32 = 6.7;

/// The most letters of a line in a box.
const MAX_LETTERS: usize = 34;

/// The most lines about constants in a box.
const MAX_CONSTANT_LINES: usize = 4;

/// The most values of a constant that are shown.
const MAX_VALUES: usize = 8;

/// A whole picture.
pub struct Drawing {
    /// The name of the file.
    pub file: String,
    /// The model first, then every body after the graph that holds it.
    pub graphs: Vec<Graph>,
    /// Findings that belong to no layer that is drawn.
    pub findings: Vec<Finding>,
    /// What a run of the model has shown.
    pub times: Option<Times>,
}

/// The model or a body.
pub struct Graph {
    /// The name of the model, or the layer and which body.
    pub name: String,
    /// For a body: the graph and the layer that hold it.
    pub parent: Option<(usize, usize)>,
    pub layers: Vec<Layer>,
    pub edges: Vec<Edge>,
    /// Where the layers are.
    pub layout: Layout,
    /// The sizes of their boxes.
    pub sizes: Vec<Size>,
}

/// A layer that is drawn.
pub struct Layer {
    /// The `id` in the file.
    pub id: String,
    pub name: String,
    pub type_name: String,
    pub opset: String,
    pub attributes: Vec<(String, String)>,
    pub inputs: Vec<Port>,
    pub outputs: Vec<Port>,
    /// The lines in the box after the type.
    pub lines: Vec<String>,
    pub findings: Vec<Finding>,
    pub time: Option<LayerTime>,
    /// The graphs that are its bodies.
    pub bodies: Vec<usize>,
}

/// An input or output.
pub struct Port {
    /// The name of the producer of an input, the tensor names of an output.
    pub name: String,
    /// Element type and shape.
    pub value: String,
    /// The drawn layer that produces it.
    pub layer: Option<usize>,
    /// What a constant holds.
    pub constant: Option<String>,
}

/// An edge between drawn layers.
pub struct Edge {
    pub from: usize,
    pub to: usize,
    /// Element type and shape.
    pub value: String,
}

/// A finding, with the place that it has.
#[derive(Clone)]
pub struct Finding {
    pub is_error: bool,
    pub severity: String,
    pub code: String,
    pub message: String,
    pub help: Option<String>,
    /// The line in the file, from 1.
    pub line: Option<usize>,
}

/// What is shown of a graph.
#[derive(Clone, Copy)]
struct Shown<'a> {
    has_constants: bool,
    times: Option<&'a Times>,
}

/// Findings by the layer that they name, each taken once.
struct Findings {
    by_layer: HashMap<LayerReference, Vec<Finding>>,
    rest: Vec<Finding>,
}

impl Drawing {
    /// What is to be drawn; `None` if nothing of the model could be read.
    pub fn new(file: &str, validation: &Validation, has_constants: bool, times: Option<Times>) -> Option<Drawing> {
        let result = validation.result.as_ref()?;
        let mut findings = Findings::new(&validation.diagnostics, &validation.xml);
        let shown = Shown { has_constants, times: times.as_ref() };
        let mut graphs = Vec::new();
        let name = if result.model.name.is_empty() { file.to_owned() } else { result.model.name.clone() };
        add(&mut graphs, (name, None), (&result.model, Some(&result.inference)), &shown, &mut findings);
        let mut rest = findings.rest;
        rest.extend(findings.by_layer.into_values().flatten());
        rest.sort_by(|a, b| (a.line, &a.code, &a.message).cmp(&(b.line, &b.code, &b.message)));
        Some(Drawing { file: file.to_owned(), graphs, findings: rest, times })
    }
}

impl Findings {
    fn new(diagnostics: &[Diagnostic], xml: &str) -> Findings {
        let source = SourceText::new(xml);
        let mut findings = Findings { by_layer: HashMap::new(), rest: Vec::new() };
        for diagnostic in diagnostics {
            let finding = Finding {
                is_error: diagnostic.severity == Severity::Error,
                severity: diagnostic.severity.to_string(),
                code: diagnostic.code.name().to_owned(),
                message: diagnostic.message.clone(),
                help: diagnostic.help.clone(),
                line: diagnostic.primary.as_ref().map(|label| source.position(label.span.range().start).line),
            };
            match &diagnostic.layer {
                Some(layer) => findings.by_layer.entry(layer.clone()).or_default().push(finding),
                None => findings.rest.push(finding),
            }
        }
        findings
    }
}

/// Adds a graph and its bodies.
fn add(
    graphs: &mut Vec<Graph>,
    (name, parent): (String, Option<(usize, usize)>),
    (model, inference): (&Model, Option<&Inference>),
    shown: &Shown<'_>,
    findings: &mut Findings,
) {
    let own = graphs.len();
    let values = Values { model, inference };
    let consumed = consumed(model);
    // A constant is named in the layers that read it; one that nobody reads, or that is blamed, is drawn.
    let is_folded = |id: NodeId, node: &Node| {
        !shown.has_constants
            && node.tensor().is_some()
            && consumed[id.index()]
            && !findings.by_layer.contains_key(&node.reference())
    };
    let drawn: Vec<NodeId> = model.iter().filter(|(id, node)| !is_folded(*id, node)).map(|(id, _)| id).collect();
    let mut position = vec![None; model.nodes.len()];
    for (index, id) in drawn.iter().enumerate() {
        position[id.index()] = Some(index);
    }
    let mut edges = Vec::new();
    let mut layers = Vec::with_capacity(drawn.len());
    for (index, id) in drawn.iter().enumerate() {
        let node = model.node(*id);
        for source in &node.inputs {
            if let Some(from) = position[source.node.index()] {
                edges.push(Edge { from, to: index, value: values.of(*source) });
            }
        }
        layers.push(values.layer(*id, &position, shown, findings));
    }
    let sizes: Vec<Size> = layers.iter().map(size).collect();
    let pairs: Vec<(usize, usize)> = edges.iter().map(|edge| (edge.from, edge.to)).collect();
    let layout = lay_out(&sizes, &pairs);
    graphs.push(Graph { name, parent, layers, edges, layout, sizes });
    for (index, id) in drawn.iter().enumerate() {
        let node = model.node(*id);
        for (number, body) in node.bodies.iter().enumerate() {
            let body_index = graphs.len();
            graphs[own].layers[index].bodies.push(body_index);
            let name = match (&*node.type_name, number) {
                ("If", 0) => format!("{}: then", node.friendly_name),
                ("If", _) => format!("{}: else", node.friendly_name),
                _ => format!("{}: body", node.friendly_name),
            };
            add(graphs, (name, Some((own, index))), (body, None), &Shown { times: None, ..*shown }, findings);
        }
    }
}

/// Whether anything reads each layer.
fn consumed(model: &Model) -> Vec<bool> {
    let mut consumed = vec![false; model.nodes.len()];
    for source in model.nodes.iter().flat_map(|node| &node.inputs) {
        consumed[source.node.index()] = true;
    }
    consumed
}

/// What is known of values: inferred in the model itself, declared in bodies.
struct Values<'a> {
    model: &'a Model,
    inference: Option<&'a Inference>,
}

impl Values<'_> {
    fn of(&self, source: Source) -> String {
        if let Some(inference) = self.inference {
            let facts = inference.get(source);
            return format!("{}{}", facts.element_type, facts.shape);
        }
        let location = self.model.node(source.node).location.as_ref();
        let port = location.and_then(|location| location.outputs.get(source.port as usize));
        port.map_or_else(String::new, |port| format!("{}{}", port.declared.element_type(), port.declared.shape()))
    }

    fn layer(&self, id: NodeId, position: &[Option<usize>], shown: &Shown<'_>, findings: &mut Findings) -> Layer {
        let node = self.model.node(id);
        let time = shown.times.and_then(|times| times.by_layer.get(&node.friendly_name)).cloned();
        let mut lines = vec![node.friendly_name.clone()];
        let mut constants = Vec::new();
        let mut inputs = Vec::with_capacity(node.inputs.len());
        for (number, source) in node.inputs.iter().enumerate() {
            let producer = self.model.node(source.node);
            let value = self.of(*source);
            let constant = producer.tensor().and_then(content);
            if position[source.node.index()].is_none() {
                constants.push(match &constant {
                    Some(content) => format!("{number}: {content}"),
                    None => format!("{number}: {value}"),
                });
            }
            let name = producer.value_name(source.port as usize);
            inputs.push(Port { name, value, layer: position[source.node.index()], constant });
        }
        if constants.len() > MAX_CONSTANT_LINES {
            let more = constants.len() - MAX_CONSTANT_LINES + 1;
            constants.truncate(MAX_CONSTANT_LINES - 1);
            constants.push(format!("{more} more constants"));
        }
        lines.extend(constants);
        let outputs: Vec<Port> = node
            .outputs
            .iter()
            .enumerate()
            .map(|(port, output)| Port {
                name: output.tensor_names.join(", "),
                value: self.of(Source { node: id, port: port as u32 }),
                layer: None,
                constant: node.tensor().and_then(content),
            })
            .collect();
        if let Some(first) = outputs.first().filter(|_| !node.is("Result")) {
            let more = if outputs.len() > 1 { format!(" and {} more", outputs.len() - 1) } else { String::new() };
            lines.push(format!("\u{2192} {}{more}", first.value));
        }
        lines.extend(time.as_ref().map(LayerTime::line));
        let reference = node.reference();
        Layer {
            id: reference.id.clone(),
            name: node.friendly_name.clone(),
            type_name: node.type_name.to_string(),
            opset: node.opset.to_string(),
            attributes: node.operation.attributes().into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            inputs,
            outputs,
            lines: lines.iter().map(|line| shortened(line)).collect(),
            findings: findings.by_layer.remove(&reference).unwrap_or_default(),
            time,
            bodies: Vec::new(),
        }
    }
}

/// The values of a small constant; `None` for others, whose type and shape say more.
fn content(tensor: &ovir::Tensor) -> Option<String> {
    if tensor.elements() > MAX_VALUES {
        return None;
    }
    let text = match (tensor.strings(), tensor.numbers()) {
        (Some(strings), _) => strings.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(", "),
        (None, numbers) => numbers?.iter().map(|value| crate::summary::short(*value)).collect::<Vec<_>>().join(", "),
    };
    Some(if tensor.shape().rank() == 0 { text } else { format!("[{text}]") })
}

/// A line that fits a box: the end of a name tells more than its beginning.
fn shortened(line: &str) -> String {
    let count = line.chars().count();
    if count <= MAX_LETTERS {
        return line.to_owned();
    }
    let start: String = line.chars().take(MAX_LETTERS / 3).collect();
    let end: String = line.chars().skip(count - (MAX_LETTERS - MAX_LETTERS / 3 - 1)).collect();
    format!("{start}\u{2026}{end}")
}

/// The size of a layer's box.
fn size(layer: &Layer) -> Size {
    let letters =
        layer.lines.iter().map(|line| line.chars().count()).chain([layer.type_name.chars().count() + 2]).max();
    let width = letters.unwrap_or(0).min(MAX_LETTERS + 2) as f32 * LETTER + 2.0 * PADDING;
    Size { width, height: (layer.lines.len() + 1) as f32 * LINE + 2.0 * PADDING }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn long_names_keep_their_ends() {
        let line = "/model/very/long/prefix/that/nobody/reads/conv2/Conv";
        let text = shortened(line);
        assert_eq!(text.chars().count(), MAX_LETTERS);
        assert!(text.starts_with("/model") && text.ends_with("conv2/Conv"), "{text}");
        assert_eq!(shortened("relu"), "relu");
    }
}
