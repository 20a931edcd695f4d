//! `ovir diff`: how two models differ: structure, attributes, shapes, constants.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use ovir::Core;
use ovir::graph::{Inference, Model as Graph, Node, NodeId};
use serde_json::json;

use crate::difference::Difference;
use crate::failure::{FAULT, Failure};
use crate::load::{check, shown};
use crate::summary::short;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  ovir diff old.xml new.xml
  ovir diff old.xml new.xml --format json

Exit codes: 0 the models are the same, 1 they differ, 2 usage or files.";

/// Show how two models differ: structure, attributes, shapes, constants. Layers are matched by friendly name.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffArguments {
    /// The first model.
    #[arg(value_name = "A.xml")]
    first: PathBuf,
    /// The second model.
    #[arg(value_name = "B.xml")]
    second: PathBuf,
    /// The weights of the first model [default: the .bin beside it].
    #[arg(short, long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// The weights of the second model [default: the .bin beside it].
    #[arg(long = "other-weights", value_name = "FILE")]
    other_weights: Option<PathBuf>,
    /// How differences are printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// One difference.
struct Change {
    /// The layer, bodies before it separated by `/`; empty for the model itself.
    layer: String,
    /// What differs: `layer`, `type`, `attribute strides`, `input 0`...
    what: String,
    first: Option<String>,
    second: Option<String>,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn diff(arguments: &DiffArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let read = |path: &PathBuf, weights: Option<&PathBuf>| {
        let validation = check(&core, path, weights.map(PathBuf::as_path), false)?;
        if !validation.is_valid() {
            terminal.complain("warning", &format!("{} has errors; `ovir validate` shows them", shown(path)));
        }
        let message = || Failure::fault(format!("{} cannot be read; `ovir validate` tells why", shown(path)));
        validation.result.ok_or_else(message)
    };
    let first = read(&arguments.first, arguments.weights.as_ref())?;
    let second = read(&arguments.second, arguments.other_weights.as_ref())?;
    let mut changes = Vec::new();
    compare_graphs("", (&first.model, &first.inference), (&second.model, &second.inference), &mut changes);
    match arguments.format {
        Format::Human => terminal.print(&human(&changes, terminal))?,
        Format::Json => {
            let change = |c: &Change| json!({ "layer": c.layer, "what": c.what, "first": c.first, "second": c.second });
            let changes: Vec<_> = changes.iter().map(change).collect();
            terminal.print(&format!("{:#}\n", json!({ "schema": 1, "changes": changes })))?;
        }
    }
    if changes.is_empty() { Ok(()) } else { Err(Failure::said(FAULT)) }
}

type Known<'g> = (&'g Graph, &'g Inference);

fn compare_graphs(prefix: &str, a: Known<'_>, b: Known<'_>, changes: &mut Vec<Change>) {
    let place = prefix.trim_end_matches('/');
    let ports = |graph: &Graph, ids: &[NodeId]| {
        ids.iter().map(|id| graph.node(*id).friendly_name.clone()).collect::<Vec<_>>().join(", ")
    };
    note(changes, place, "order of inputs", &ports(a.0, &a.0.parameters), &ports(b.0, &b.0.parameters));
    note(changes, place, "order of outputs", &ports(a.0, &a.0.results), &ports(b.0, &b.0.results));
    let mut others: HashMap<&str, Vec<NodeId>> = HashMap::new();
    for (id, node) in b.0.iter().collect::<Vec<_>>().into_iter().rev() {
        others.entry(&node.friendly_name).or_default().push(id);
    }
    for (id, node) in a.0.iter() {
        match others.get_mut(node.friendly_name.as_str()).and_then(Vec::pop) {
            Some(other) => compare_nodes(prefix, (a.0, a.1, id), (b.0, b.1, other), changes),
            None => changes.push(lonely(prefix, node, true)),
        }
    }
    let mut added: Vec<NodeId> = others.into_values().flatten().collect();
    added.sort();
    changes.extend(added.into_iter().map(|id| lonely(prefix, b.0.node(id), false)));
}

fn lonely(prefix: &str, node: &Node, is_first: bool) -> Change {
    let shown = Some(format!("{} ({})", node.type_name, node.opset));
    let (first, second) = if is_first { (shown, None) } else { (None, shown) };
    Change { layer: format!("{prefix}{}", node.friendly_name), what: "layer".to_owned(), first, second }
}

fn note(changes: &mut Vec<Change>, layer: &str, what: &str, first: &str, second: &str) {
    if first != second {
        let (first, second) = (Some(first.to_owned()), Some(second.to_owned()));
        changes.push(Change { layer: layer.to_owned(), what: what.to_owned(), first, second });
    }
}

fn compare_nodes(
    prefix: &str,
    (graph_a, inference_a, id_a): (&Graph, &Inference, NodeId),
    (graph_b, inference_b, id_b): (&Graph, &Inference, NodeId),
    changes: &mut Vec<Change>,
) {
    let (a, b) = (graph_a.node(id_a), graph_b.node(id_b));
    let layer = format!("{prefix}{}", a.friendly_name);
    let kind = |node: &Node| format!("{}-{}", node.type_name, node.version.class_version);
    note(changes, &layer, "type", &kind(a), &kind(b));
    compare_attributes(&layer, a, b, changes);
    compare_constants(&layer, a, b, changes);
    let source = |graph: &Graph, node: &Node, port: usize| {
        let source = node.inputs.get(port)?;
        Some(graph.node(source.node).value_name(source.port as usize))
    };
    for port in 0..a.inputs.len().max(b.inputs.len()) {
        let (first, second) = (source(graph_a, a, port), source(graph_b, b, port));
        if first != second {
            changes.push(Change { layer: layer.clone(), what: format!("input {port}"), first, second });
        }
    }
    let value = |inference: &Inference, id: NodeId, port: usize| {
        inference.outputs(id).get(port).map(|facts| format!("{}{}", facts.element_type, facts.shape))
    };
    for port in 0..a.outputs.len().max(b.outputs.len()) {
        let (first, second) = (value(inference_a, id_a, port), value(inference_b, id_b, port));
        if first != second {
            changes.push(Change { layer: layer.clone(), what: format!("output {port}"), first, second });
        }
        let names = |node: &Node| node.outputs.get(port).map_or(String::new(), |o| o.tensor_names.join(", "));
        note(changes, &layer, &format!("tensor names of output {port}"), &names(a), &names(b));
    }
    for (index, (body_a, body_b)) in a.bodies.iter().zip(&b.bodies).enumerate() {
        compare_bodies(&format!("{layer}/{index}/"), body_a, body_b, changes);
    }
}

fn compare_bodies(prefix: &str, a: &Graph, b: &Graph, changes: &mut Vec<Change>) {
    let infer =
        |graph: &Graph| ovir::graph::infer_model(graph, &[], &mut ovir::ops::SymbolSource::default(), &mut Vec::new());
    compare_graphs(prefix, (a, &infer(a)), (b, &infer(b)), changes);
}

fn compare_attributes(layer: &str, a: &Node, b: &Node, changes: &mut Vec<Change>) {
    let attributes = |node: &Node| -> BTreeMap<&'static str, String> {
        let all = node.operation.attributes().into_iter();
        // Where a constant lies is no property of the model.
        all.filter(|(name, _)| !node.is("Const") || !matches!(*name, "offset" | "size")).collect()
    };
    let (first, mut second) = (attributes(a), attributes(b));
    for (name, value) in first {
        let other = second.remove(name);
        if other.as_ref() != Some(&value) {
            let what = format!("attribute {name}");
            changes.push(Change { layer: layer.to_owned(), what, first: Some(value), second: other });
        }
    }
    for (name, value) in second {
        let what = format!("attribute {name}");
        changes.push(Change { layer: layer.to_owned(), what, first: None, second: Some(value) });
    }
}

fn compare_constants(layer: &str, a: &Node, b: &Node, changes: &mut Vec<Change>) {
    let (Some(first), Some(second)) = (a.tensor(), b.tensor()) else { return };
    if first == second || first.shape() != second.shape() || first.element_type() != second.element_type() {
        return;
    }
    let difference = Difference::of(first, second, 0.0, 0.0);
    let what = format!(
        "values: {} of {} differ, at most by {}",
        difference.beyond,
        difference.elements,
        short(difference.max_absolute)
    );
    let (first, second) = match difference.worst {
        Some((index, x, y)) => (Some(format!("{} at {index}", short(x))), Some(format!("{} at {index}", short(y)))),
        None => (None, None),
    };
    changes.push(Change { layer: layer.to_owned(), what, first, second });
}

fn human(changes: &[Change], terminal: &Terminal) -> String {
    if changes.is_empty() {
        return "the models are the same\n".to_owned();
    }
    let mut text = String::new();
    for Change { layer, what, first, second } in changes {
        let layer = if layer.is_empty() { "the model" } else { layer };
        let values = match (first, second) {
            (Some(first), Some(second)) => format!("{first} -> {second}"),
            (Some(first), None) => format!("{first} -> nothing"),
            (None, Some(second)) => format!("nothing -> {second}"),
            (None, None) => String::new(),
        };
        text.push_str(&format!("{}  {what}: {values}\n", terminal.bold(layer)));
    }
    let plural = if changes.len() == 1 { "" } else { "s" };
    text.push_str(&format!("{} difference{plural}\n", changes.len()));
    text
}
