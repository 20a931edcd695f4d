//! `ovir reshape`: what new input shapes become, layer by layer.

use std::fmt::Write as _;
use std::path::PathBuf;

use ovir::graph::{Blocker, Effect, HardCoded, NodeId, Validation};
use ovir::{Core, Model};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::load::{self, ModelArguments, shown};
use crate::named_lists;
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  ovir reshape model.xml --shape '[8,3,320,320]'
  ovir reshape model.xml --shape 'ids[?,1..512],mask[?,1..512]' --all
  ovir reshape model.xml --shape '[?,3,?,?]' -o dynamic.xml

Layers that block the new shapes are listed with the constants in which sizes are hard-coded.";

/// Show what new input shapes become layer by layer.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ReshapeArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The new shapes: NAME[1,3,224,224],NAME2[1..10,?,-1], or [..] for a single input.
    #[arg(long, value_name = "SHAPES")]
    shape: String,
    /// Shows layers whose shapes stay the same as well.
    #[arg(long)]
    all: bool,
    /// Writes the reshaped model; its weights stand beside it.
    #[arg(short, long, value_name = "OUT.xml")]
    output: Option<PathBuf>,
    /// How the table is printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// A value before and after.
struct Row {
    layer: String,
    type_name: String,
    before: String,
    after: String,
}

/// What becomes of a model.
struct Outcome<'m> {
    model: &'m Model,
    /// The model with the new shapes, and what is wrong with it then.
    after: Validation,
    rows: Vec<Row>,
    blockers: Vec<Blocker>,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command; shapes that the model does not take are rendered on standard error.
pub fn reshape(arguments: &ReshapeArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let model = arguments.model.load(&core, terminal)?;
    let shapes = named_lists::shapes(&model, &arguments.shape, "--shape")?;
    let graph = ovir::graph::reshape(model.graph(), &shapes).map_err(|error| Failure::usage(error.to_string()))?;
    let after = ovir::graph::validate(graph, Vec::new());
    let rows = rows(&model, &after);
    let blockers = ovir::graph::blockers(model.validated(), &after);
    let outcome = Outcome { model: &model, after, rows, blockers };
    match arguments.format {
        Format::Human => terminal.print(&table(arguments, &outcome, terminal))?,
        Format::Json => terminal.print(&format!("{:#}\n", json(arguments, &outcome)))?,
    }
    // This says what is wrong, if anything is.
    let reshaped = load::reshape(&model, &arguments.shape, "--shape", terminal)?;
    match &arguments.output {
        Some(output) => crate::save::write(&reshaped, output, terminal),
        None => Ok(()),
    }
}

fn json(arguments: &ReshapeArguments, outcome: &Outcome<'_>) -> Value {
    let row =
        |row: &Row| json!({ "layer": row.layer, "type": row.type_name, "before": row.before, "after": row.after });
    let constant = |constant: &HardCoded| {
        let (name, line) = place(outcome, constant.node);
        json!({
            "layer": name, "line": line, "values": constant.values, "shape": constant.shape.to_string(),
            "advice": constant.advice,
        })
    };
    let blocker = |blocker: &Blocker| {
        let (name, line) = place(outcome, blocker.node);
        let (effect, message) = match &blocker.effect {
            Effect::Fails(diagnostic) => ("fails", Some(diagnostic.message.as_str())),
            Effect::FailsLater => ("fails at run time", None),
            Effect::Stops => ("stops the change", None),
        };
        json!({
            "layer": name, "line": line, "type": outcome.after.model.node(blocker.node).type_name, "effect": effect,
            "message": message, "constants": blocker.constants.iter().map(constant).collect::<Vec<_>>(),
            "rewritten_by_openvino": blocker.is_rewritten_by_openvino,
        })
    };
    json!({
        "schema": 1,
        "model": shown(arguments.model.path()),
        "inputs": ports(&interface(outcome, true)),
        "outputs": ports(&interface(outcome, false)),
        "layers": outcome.rows.iter().map(row).collect::<Vec<_>>(),
        "blockers": outcome.blockers.iter().map(blocker).collect::<Vec<_>>(),
    })
}

/// The inputs or outputs with their new shapes.
fn interface(outcome: &Outcome<'_>, is_input: bool) -> Vec<ovir::Port> {
    let graph = &outcome.after.model;
    let (mut ports, ids) = match is_input {
        true => (outcome.model.inputs(), &graph.parameters),
        false => (outcome.model.outputs(), &graph.results),
    };
    for (port, id) in ports.iter_mut().zip(ids) {
        if let Some(facts) = outcome.after.inference.outputs(*id).first() {
            port.shape = facts.shape.clone();
        }
    }
    ports
}

/// The name of a layer, and the line where it stands.
fn place(outcome: &Outcome<'_>, id: NodeId) -> (String, Option<usize>) {
    let node = outcome.after.model.node(id);
    let start = node.location.as_ref().map(|l| l.layer.range().start);
    let before = start.and_then(|start| outcome.model.xml().as_bytes().get(..start));
    (node.friendly_name.clone(), before.map(|text| 1 + text.iter().filter(|byte| **byte == b'\n').count()))
}

fn ports(ports: &[ovir::Port]) -> Vec<Value> {
    let port = |port: &ovir::Port| json!({ "name": port.name, "element_type": port.element_type.name(), "shape": port.shape.to_string() });
    ports.iter().map(port).collect()
}

/// The outputs of all layers but constants, parameters and results.
fn rows(before: &Model, after: &Validation) -> Vec<Row> {
    let mut rows = Vec::new();
    for (id, node) in after.model.iter() {
        if node.is("Const") || node.is("Parameter") || node.is("Result") {
            continue;
        }
        for (port, facts) in after.inference.outputs(id).iter().enumerate() {
            // New shapes leave the layers in their order.
            let earlier = before.validated().inference().outputs(id).get(port);
            rows.push(Row {
                layer: node.value_name(port),
                type_name: node.type_name.to_string(),
                before: earlier.map_or_else(|| "-".to_owned(), |facts| facts.shape.to_string()),
                after: facts.shape.to_string(),
            });
        }
    }
    rows
}

fn table(arguments: &ReshapeArguments, outcome: &Outcome<'_>, terminal: &Terminal) -> String {
    let mut text = String::new();
    for (title, old, is_input) in
        [("inputs", outcome.model.inputs(), true), ("outputs", outcome.model.outputs(), false)]
    {
        let _ = writeln!(text, "{}", terminal.bold(title));
        for (old, new) in old.iter().zip(&interface(outcome, is_input)) {
            let change = arrow(&old.shape.to_string(), &new.shape.to_string());
            let _ = writeln!(text, "  {}  {}{change}", new.name, new.element_type);
        }
    }
    let rows = &outcome.rows;
    let changed = rows.iter().filter(|row| row.before != row.after).count();
    let _ = writeln!(text, "{}", terminal.bold(&format!("layers ({changed} of {} outputs change)", rows.len())));
    for row in rows.iter().filter(|row| arguments.all || row.before != row.after) {
        let _ = writeln!(text, "  {}  {}  {}", row.layer, row.type_name, arrow(&row.before, &row.after));
    }
    if !outcome.blockers.is_empty() {
        let _ = writeln!(text, "{}", terminal.bold(&format!("blocked by ({})", outcome.blockers.len())));
        for blocker in &outcome.blockers {
            text.push_str(&blocked(outcome, blocker));
        }
    }
    text
}

fn blocked(outcome: &Outcome<'_>, blocker: &Blocker) -> String {
    let at = |line: Option<usize>| line.map_or(String::new(), |line| format!(", line {line}"));
    let (name, line) = place(outcome, blocker.node);
    let node = outcome.after.model.node(blocker.node);
    let effect = match &blocker.effect {
        Effect::Fails(_) => "fails",
        Effect::FailsLater => "is accepted, but fails at run time for other sizes than the hard-coded ones",
        Effect::Stops => "yields its old shape whatever it gets",
    };
    let mut text = format!("  {name}  {}{}: {effect}\n", node.type_name, at(line));
    if let Effect::Fails(diagnostic) = &blocker.effect {
        let _ = writeln!(text, "    {}", diagnostic.message);
    }
    for constant in &blocker.constants {
        let (name, line) = place(outcome, constant.node);
        let value = match &constant.values {
            Some(values) => format!("{values:?}"),
            None => format!("of shape {}", constant.shape),
        };
        let advice = constant.advice.as_ref().map_or(String::new(), |advice| format!("; {advice}"));
        let _ = writeln!(text, "    hard-coded in {name}{}: {value}{advice}", at(line));
    }
    if blocker.is_rewritten_by_openvino {
        text.push_str(
            "    OpenVINO's reshape may replace this shape, since a MatMul follows; ovir changes no constants\n",
        );
    }
    text
}

fn arrow(before: &str, after: &str) -> String {
    if before == after { after.to_owned() } else { format!("{before} -> {after}") }
}
