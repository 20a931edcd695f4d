//! `ovir reshape`: what new input shapes become, layer by layer.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ovir::{Core, Model};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::load::{self, ModelArguments, shown};
use crate::run::Format;
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  ovir reshape model.xml --shape '[8,3,320,320]'
  ovir reshape model.xml --shape 'ids[?,1..512],mask[?,1..512]' --all";

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

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command; shapes that the model does not take are rendered on standard error.
pub fn reshape(arguments: &ReshapeArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let model = arguments.model.load(&core, terminal)?;
    let reshaped = load::reshape(&model, &arguments.shape, "--shape", terminal)?;
    if let Some(output) = &arguments.output {
        crate::save::write(&reshaped, output, terminal)?;
    }
    let rows = rows(&model, &reshaped);
    match arguments.format {
        Format::Human => terminal.print(&table(arguments, &model, &reshaped, &rows, terminal)),
        Format::Json => {
            let row = |row: &Row| json!({ "layer": row.layer, "type": row.type_name, "before": row.before, "after": row.after });
            let object = json!({
                "schema": 1,
                "model": shown(arguments.model.path()),
                "inputs": ports(&reshaped.inputs()),
                "outputs": ports(&reshaped.outputs()),
                "layers": rows.iter().map(row).collect::<Vec<_>>(),
            });
            terminal.print(&format!("{object:#}\n"))
        }
    }
}

fn ports(ports: &[ovir::Port]) -> Vec<Value> {
    let port = |port: &ovir::Port| json!({ "name": port.name, "element_type": port.element_type.name(), "shape": port.shape.to_string() });
    ports.iter().map(port).collect()
}

/// The outputs of all layers but constants, parameters and results.
fn rows(before: &Model, after: &Model) -> Vec<Row> {
    let old: HashMap<&str, usize> =
        before.graph().nodes.iter().enumerate().map(|(index, node)| (node.friendly_name.as_str(), index)).collect();
    let mut rows = Vec::new();
    for (id, node) in after.graph().iter() {
        if node.is("Const") || node.is("Parameter") || node.is("Result") {
            continue;
        }
        let old = old.get(node.friendly_name.as_str()).map(|index| ovir::graph::NodeId(*index as u32));
        for (port, facts) in after.validated().inference().outputs(id).iter().enumerate() {
            let earlier = old.and_then(|id| before.validated().inference().outputs(id).get(port));
            rows.push(Row {
                layer: crate::run::value_name(node, port),
                type_name: node.type_name.to_string(),
                before: earlier.map_or_else(|| "-".to_owned(), |facts| facts.shape.to_string()),
                after: facts.shape.to_string(),
            });
        }
    }
    rows
}

fn table(arguments: &ReshapeArguments, before: &Model, after: &Model, rows: &[Row], terminal: &Terminal) -> String {
    let mut text = String::new();
    for (title, old, new) in
        [("inputs", before.inputs(), after.inputs()), ("outputs", before.outputs(), after.outputs())]
    {
        let _ = writeln!(text, "{}", terminal.bold(title));
        for (old, new) in old.iter().zip(&new) {
            let _ = writeln!(
                text,
                "  {}  {}{}",
                new.name,
                new.element_type,
                arrow(&old.shape.to_string(), &new.shape.to_string())
            );
        }
    }
    let changed = rows.iter().filter(|row| row.before != row.after).count();
    let _ = writeln!(text, "{}", terminal.bold(&format!("layers ({changed} of {} outputs change)", rows.len())));
    for row in rows.iter().filter(|row| arguments.all || row.before != row.after) {
        let _ = writeln!(text, "  {}  {}  {}", row.layer, row.type_name, arrow(&row.before, &row.after));
    }
    text
}

fn arrow(before: &str, after: &str) -> String {
    if before == after { after.to_owned() } else { format!("{before} -> {after}") }
}
