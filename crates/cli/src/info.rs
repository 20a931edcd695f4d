//! `ovir info`: what a model is.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ovir::diagnostics::Summary;
use ovir::graph::{Inference, Model as Graph, NodeId};
use ovir::{Core, ElementType, PartialShape};
use serde_json::{Value, json};

use crate::failure::{FAULT, Failure};
use crate::load::{self, ModelArguments, check, shown};
use crate::ops::{count_operations, is_implemented};
use crate::releases::oldest_release;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  ovir info model.xml
  ovir info model.xml --show layers,attrs
  ovir info model.xml --shape '[1,3,224,224]'
  ovir info model.xml --format json";

/// Show what a model is: inputs, outputs, states, operations, parameters, work and memory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct InfoArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Other input shapes: NAME[1,3,224,224],NAME2[..], or [..] for a single input.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// More about the layers.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    show: Vec<Show>,
    /// How it is printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Show {
    /// All layers in topological order, with types and shapes.
    Layers,
    /// Their attributes.
    Attrs,
    /// The constants.
    Weights,
}

/// An input or output.
struct PortFacts {
    name: String,
    names: Vec<String>,
    element_type: ElementType,
    shape: PartialShape,
    layout: Option<String>,
}

/// What constants take.
#[derive(Default)]
struct Constants {
    count: usize,
    elements: u64,
    bytes: u64,
}

/// Multiply-accumulates of convolutions and matrix products.
#[derive(Default)]
struct Work {
    multiply_accumulates: u64,
    /// Layers whose shapes are not known.
    unknown: usize,
}

/// All facts that are printed.
struct Facts<'a> {
    file: String,
    graph: &'a Graph,
    inference: &'a Inference,
    inputs: Vec<PortFacts>,
    outputs: Vec<PortFacts>,
    states: Vec<(String, ElementType, PartialShape)>,
    opsets: BTreeSet<String>,
    operations: Vec<(String, String, usize, bool)>,
    constants: Constants,
    work: Work,
    /// The bytes of all values that are not constants, together.
    values: Option<u64>,
    summary: Summary,
}

/// Runs the verb.
///
/// # Errors
/// Files that cannot be read, and models of which nothing can be said.
pub fn info(arguments: &InfoArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let path = arguments.model.path();
    let validation = check(&core, path, arguments.model.weights.weights.as_deref(), false)?;
    let summary = Summary::of(&validation.diagnostics);
    if let Some(text) = &arguments.shape {
        let model = arguments.model.load(&core, terminal)?;
        let model = load::reshape(&model, text, "--shape", terminal)?;
        let facts = Facts::new(shown(path), model.graph(), model.validated().inference(), summary);
        return print(arguments, &facts, terminal);
    }
    let Some(result) = &validation.result else {
        return Err(Failure {
            code: FAULT,
            message: Some(format!("{} cannot be read; `ovir validate` tells why", shown(path))),
        });
    };
    // What a model needs and ovir lacks is no fault of the model, and the list of operations names it.
    let is_at_fault = validation.diagnostics.iter().any(|d| d.is_error() && !load::is_unsupported(d));
    if summary.errors > 0 {
        let text = format!("{}: {summary}; what is printed may be incomplete, `ovir validate` shows them", shown(path));
        terminal.complain("warning", &text);
    }
    let facts = Facts::new(shown(path), &result.model, &result.inference, summary);
    print(arguments, &facts, terminal)?;
    if is_at_fault { Err(Failure::said(FAULT)) } else { Ok(()) }
}

fn print(arguments: &InfoArguments, facts: &Facts<'_>, terminal: &Terminal) -> Result<(), Failure> {
    match arguments.format {
        Format::Human => terminal.print(&human(arguments, facts, terminal)),
        Format::Json => terminal.print(&format!("{:#}\n", json(arguments, facts))),
    }
}

impl<'a> Facts<'a> {
    fn new(file: String, graph: &'a Graph, inference: &'a Inference, summary: Summary) -> Facts<'a> {
        let input = |index: usize| {
            let (element_type, shape) =
                graph.input_facts(index).map_or((ElementType::Dynamic, PartialShape::DYNAMIC), |(t, s)| (t, s.clone()));
            PortFacts {
                name: graph.input_name(index),
                names: distinct(graph.input_names(index).into_iter().map(str::to_owned)),
                element_type,
                shape,
                layout: graph.layout(index),
            }
        };
        let output = |index: usize| {
            let facts = inference.outputs(graph.results[index]).first().cloned().unwrap_or_default();
            PortFacts {
                name: graph.output_name(index),
                names: distinct(graph.output_names(index)),
                element_type: facts.element_type,
                shape: facts.shape,
                layout: None,
            }
        };
        let counts = count_operations(graph);
        let mut constants = Constants::default();
        let mut work = Work::default();
        add_constants(graph, &mut constants);
        for (id, _) in graph.iter() {
            work.add(graph, inference, id);
        }
        Facts {
            file,
            graph,
            inference,
            inputs: (0..graph.parameters.len()).map(input).collect(),
            outputs: (0..graph.results.len()).map(output).collect(),
            states: states(graph, inference),
            opsets: counts.keys().map(|(_, opset)| opset.clone()).collect(),
            operations: counts
                .into_iter()
                .map(|((t, o), n)| {
                    let known = is_implemented(&t, &o);
                    (t, o, n, known)
                })
                .collect(),
            constants,
            work,
            values: value_bytes(graph, inference),
            summary,
        }
    }
}

/// The names, each once, in their order: a tensor is often called as the layer is.
fn distinct(names: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for name in names {
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

fn states(graph: &Graph, inference: &Inference) -> Vec<(String, ElementType, PartialShape)> {
    let readers = graph.iter().filter(|(_, node)| node.is("ReadValue"));
    readers
        .map(|(id, node)| {
            let facts = inference.outputs(id).first().cloned().unwrap_or_default();
            (node.operation.variable_id().unwrap_or_default().to_owned(), facts.element_type, facts.shape)
        })
        .collect()
}

fn add_constants(graph: &Graph, constants: &mut Constants) {
    for node in &graph.nodes {
        if let Some(tensor) = node.tensor() {
            constants.count += 1;
            constants.elements = constants.elements.saturating_add(tensor.elements() as u64);
            let bytes = match tensor.strings() {
                Some(strings) => strings.iter().map(String::len).sum(),
                None => tensor.bytes().len(),
            };
            constants.bytes = constants.bytes.saturating_add(bytes as u64);
        }
        for body in &node.bodies {
            add_constants(body, constants);
        }
    }
}

fn value_bytes(graph: &Graph, inference: &Inference) -> Option<u64> {
    let mut sum = 0u64;
    for (id, _) in graph.iter().filter(|(_, node)| !node.is("Const") && !node.is("Result")) {
        for facts in inference.outputs(id) {
            let elements = facts.shape.to_shape()?.checked_elements()?;
            sum = sum.saturating_add(facts.element_type.storage_bytes(elements)? as u64);
        }
    }
    Some(sum)
}

impl Work {
    fn add(&mut self, graph: &Graph, inference: &Inference, id: NodeId) {
        let node = graph.node(id);
        let input = |port: usize| node.inputs.get(port).map(|source| inference.get(*source).shape.clone());
        let output = inference.outputs(id).first().map(|facts| facts.shape.clone());
        let (Some(first), Some(second), Some(output)) = (input(0), input(1), output) else { return };
        // Each element of the larger side is the sum over what the filter spans.
        let (places, spans): (&PartialShape, Vec<usize>) = match &*node.type_name {
            "Convolution" => (&output, (1..second.rank().unwrap_or(0)).collect()),
            "GroupConvolution" => (&output, (2..second.rank().unwrap_or(0)).collect()),
            "ConvolutionBackpropData" => (&first, (1..second.rank().unwrap_or(0)).collect()),
            "GroupConvolutionBackpropData" => (&first, (2..second.rank().unwrap_or(0)).collect()),
            "MatMul" => {
                let is_transposed = node.operation.attributes().iter().any(|(n, v)| *n == "transpose_a" && v == "true");
                let rank = first.rank().unwrap_or(0);
                let depth = rank.checked_sub(if is_transposed && rank > 1 { 2 } else { 1 });
                let Some(depth) = depth.and_then(|index| first.dim(index).get()) else {
                    self.unknown += 1;
                    return;
                };
                return self.count(&output, Some(depth as u64));
            }
            _ => return,
        };
        let span = spans
            .iter()
            .try_fold(1u64, |product, index| second.dim(*index).get().map(|size| product.saturating_mul(size as u64)));
        self.count(places, span.filter(|_| second.rank().is_some()));
    }

    fn count(&mut self, places: &PartialShape, span: Option<u64>) {
        let places = places.to_shape().and_then(|shape| shape.checked_elements());
        match (places, span) {
            (Some(places), Some(span)) => {
                let product = (places as u64).saturating_mul(span);
                self.multiply_accumulates = self.multiply_accumulates.saturating_add(product);
            }
            _ => self.unknown += 1,
        }
    }
}

fn human(arguments: &InfoArguments, facts: &Facts<'_>, terminal: &Terminal) -> String {
    let mut text = String::new();
    let graph = facts.graph;
    let _ = writeln!(text, "{}  {} (IR version {})", terminal.bold(&facts.file), graph.name, graph.ir_version);
    for (title, ports) in [("inputs", &facts.inputs), ("outputs", &facts.outputs)] {
        let _ = writeln!(text, "{} ({})", terminal.bold(title), ports.len());
        for port in ports {
            let layout = port.layout.as_ref().map_or(String::new(), |layout| format!("  layout {layout}"));
            let others: Vec<&str> = port.names.iter().filter(|n| **n != port.name).map(String::as_str).collect();
            let others = if others.is_empty() { String::new() } else { format!("  also {}", others.join(", ")) };
            let _ = writeln!(text, "  {}  {}{}{layout}{others}", port.name, port.element_type, port.shape);
        }
    }
    if !facts.states.is_empty() {
        let _ = writeln!(text, "{} ({})", terminal.bold("states"), facts.states.len());
        for (name, element_type, shape) in &facts.states {
            let _ = writeln!(text, "  {name}  {element_type}{shape}");
        }
    }
    let layers: usize = facts.operations.iter().map(|(_, _, count, _)| count).sum();
    let _ = writeln!(text, "{} ({layers} layers, {})", terminal.bold("operations"), join(&facts.opsets));
    for (type_name, opset, count, is_known) in &facts.operations {
        let note = if *is_known { "" } else { "  not supported" };
        let _ = writeln!(text, "  {count:>6}  {type_name} ({opset}){note}");
    }
    if let Some(release) = release(facts) {
        let _ = writeln!(text, "{}  OpenVINO {release} or newer", terminal.bold("needs"));
    }
    let Constants { count, elements, bytes } = facts.constants;
    let _ = writeln!(text, "{}  {} in {count} constants, {}", terminal.bold("parameters"), elements, size(bytes));
    let macs = facts.work.multiply_accumulates;
    let unknown = match facts.work.unknown {
        0 => String::new(),
        count => format!("; {count} layers have shapes that are not known"),
    };
    let work = format!("{:.6} GFLOP in convolutions and matrix products{unknown}", 2.0 * macs as f64 / 1e9);
    let _ = writeln!(text, "{}  {work}", terminal.bold("work"));
    let values = facts.values.map_or_else(|| "not known, since shapes are dynamic".to_owned(), size);
    let _ = writeln!(text, "{}  weights {}, all values together {values}", terminal.bold("memory"), size(bytes));
    if facts.summary != Summary::default() {
        let _ = writeln!(text, "{}  {}", terminal.bold("findings"), facts.summary);
    }
    show(arguments, facts, &mut text);
    text
}

fn show(arguments: &InfoArguments, facts: &Facts<'_>, text: &mut String) {
    let wants = |what: Show| arguments.show.contains(&what);
    if wants(Show::Layers) || wants(Show::Attrs) {
        text.push_str("layers\n");
        for (id, node) in facts.graph.iter().filter(|(_, node)| !node.is("Const")) {
            let _ = writeln!(text, "  {} ({} {})", node.friendly_name, node.type_name, node.opset);
            for (port, source) in node.inputs.iter().enumerate() {
                let value = facts.inference.get(*source);
                let name = facts.graph.node(source.node).value_name(source.port as usize);
                let _ = writeln!(text, "    in {port}  {}{}  {name}", value.element_type, value.shape);
            }
            for (port, value) in facts.inference.outputs(id).iter().enumerate() {
                let _ = writeln!(text, "    out {port}  {}{}", value.element_type, value.shape);
            }
            if wants(Show::Attrs) {
                for (name, value) in node.operation.attributes() {
                    let _ = writeln!(text, "    {name} = {value}");
                }
            }
        }
    }
    if wants(Show::Weights) {
        text.push_str("weights\n");
        for (_, node) in facts.graph.iter() {
            if let Some(tensor) = node.tensor() {
                let shown = crate::summary::describe(&node.friendly_name, tensor);
                let _ = writeln!(text, "  {}", shown.trim_end().replace('\n', "\n  "));
            }
        }
    }
}

fn json(arguments: &InfoArguments, facts: &Facts<'_>) -> Value {
    let ports = |ports: &[PortFacts]| -> Vec<Value> {
        let port = |port: &PortFacts| {
            json!({
                "name": port.name,
                "names": port.names,
                "element_type": port.element_type.name(),
                "shape": port.shape.to_string(),
                "layout": port.layout,
            })
        };
        ports.iter().map(port).collect()
    };
    let mut object = json!({
        "schema": 1,
        "model": facts.file,
        "name": facts.graph.name,
        "ir_version": facts.graph.ir_version,
        "inputs": ports(&facts.inputs),
        "outputs": ports(&facts.outputs),
        "states": facts.states.iter().map(|(name, element_type, shape)| {
            json!({ "name": name, "element_type": element_type.name(), "shape": shape.to_string() })
        }).collect::<Vec<_>>(),
        "opsets": facts.opsets,
        "openvino_release": release(facts),
        "operations": facts.operations.iter().map(|(type_name, opset, count, is_known)| {
            json!({ "type": type_name, "opset": opset, "count": count, "supported": is_known })
        }).collect::<Vec<_>>(),
        "parameters": facts.constants.elements,
        "weights_bytes": facts.constants.bytes,
        "values_bytes": facts.values,
        "flops": facts.work.multiply_accumulates.saturating_mul(2),
        "layers_of_unknown_work": facts.work.unknown,
        "errors": facts.summary.errors,
        "warnings": facts.summary.warnings,
    });
    if !arguments.show.is_empty() {
        object["layers"] = layers_json(arguments, facts);
    }
    object
}

fn layers_json(arguments: &InfoArguments, facts: &Facts<'_>) -> Value {
    let has_constants = arguments.show.contains(&Show::Weights);
    let layer = |(id, node): (NodeId, &ovir::graph::Node)| {
        let attributes: serde_json::Map<String, Value> =
            node.operation.attributes().into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
        json!({
            "name": node.friendly_name,
            "type": node.type_name,
            "opset": node.opset,
            "inputs": node.inputs.iter().map(|source| {
                facts.graph.node(source.node).value_name(source.port as usize)
            }).collect::<Vec<_>>(),
            "outputs": facts.inference.outputs(id).iter().map(|value| {
                json!({ "element_type": value.element_type.name(), "shape": value.shape.to_string() })
            }).collect::<Vec<_>>(),
            "attributes": attributes,
        })
    };
    facts.graph.iter().filter(|(_, node)| has_constants || !node.is("Const")).map(layer).collect()
}

fn release(facts: &Facts<'_>) -> Option<&'static str> {
    oldest_release(facts.graph.ir_version, facts.opsets.iter().map(String::as_str))
}

fn join(names: &BTreeSet<String>) -> String {
    let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
    // opset10 comes after opset2.
    names.sort_by_key(|name| (name.len(), *name));
    names.join(", ")
}

/// Bytes with a unit.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 || unit == "GiB" {
            return if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{bytes} B")
}
