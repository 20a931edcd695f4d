//! `ovir ops`: the operations that are known, or those of a model.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ovir::Core;
use ovir::graph::Model as Graph;
use ovir::ops::{Registry, Resolution, SPECIFIED, Specified};
use serde_json::json;

use crate::failure::{FAULT, Failure};
use crate::load::{WeightsArguments, check, shown};
use crate::terminal::{Format, Terminal};

/// The last opset of which the table of the specification tells what was taken out.
const LAST_OPSET: u8 = 16;

const EXAMPLES: &str = "\
Examples:
  ovir ops
  ovir ops --missing
  ovir ops --model model.xml";

/// List every operation and version, implemented or not; or those of a model.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct OpsArguments {
    /// Lists the operations of a model with their numbers.
    #[arg(short, long, value_name = "MODEL.xml")]
    model: Option<PathBuf>,
    #[command(flatten)]
    weights: WeightsArguments,
    /// Lists what is not implemented only.
    #[arg(long)]
    missing: bool,
    /// How the list is printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// One line of the list.
struct Row {
    name: String,
    opsets: String,
    category: String,
    is_implemented: bool,
    count: Option<usize>,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn ops(arguments: &OpsArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let mut rows = match &arguments.model {
        Some(path) => {
            let validation = check(&core, path, arguments.weights.weights.as_deref(), true)?;
            let Some(result) = validation.result else {
                return Err(Failure {
                    code: FAULT,
                    message: Some(format!("{} cannot be read; `ovir validate` tells why", shown(path))),
                });
            };
            rows_of_model(&result.model)
        }
        None => rows_of_specification(core.registry()),
    };
    if arguments.missing {
        rows.retain(|row| !row.is_implemented);
    }
    match arguments.format {
        Format::Human => terminal.print(&table(&rows)),
        Format::Json => {
            let operations: Vec<_> = rows
                .iter()
                .map(|row| {
                    json!({
                        "operation": row.name,
                        "opsets": row.opsets,
                        "category": row.category,
                        "implemented": row.is_implemented,
                        "count": row.count,
                    })
                })
                .collect();
            terminal.print(&format!("{:#}\n", json!({ "schema": 1, "operations": operations })))
        }
    }
}

/// The operations of a graph by type and `version` attribute, bodies included: how often each is there, and whether it
/// is known.
pub fn count_operations(graph: &Graph) -> BTreeMap<(String, String), usize> {
    let mut counts = BTreeMap::new();
    count(graph, &mut counts);
    counts
}

/// Whether an operation can be run in the version that a layer asks for.
pub fn is_implemented(type_name: &str, opset: &str) -> bool {
    matches!(Registry::default().resolve(type_name, opset), Resolution::BuiltIn(..) | Resolution::User(..))
}

fn count(graph: &Graph, counts: &mut BTreeMap<(String, String), usize>) {
    for node in &graph.nodes {
        *counts.entry((node.type_name.to_string(), node.opset.to_string())).or_default() += 1;
        for body in &node.bodies {
            count(body, counts);
        }
    }
}

fn rows_of_model(graph: &Graph) -> Vec<Row> {
    let registry = Registry::default();
    let row = |((type_name, opset), count): ((String, String), usize)| {
        let (name, category, is_implemented) = match registry.resolve(&type_name, &opset) {
            Resolution::BuiltIn(definition, version) => {
                (format!("{}-{}", definition.type_name, version.class_version), definition.category.to_string(), true)
            }
            Resolution::User(definition, version) => {
                (format!("{}-{}", definition.type_name, version.class_version), "user".to_owned(), true)
            }
            _ => (type_name, "unknown".to_owned(), false),
        };
        Row { name, opsets: opset, category, is_implemented, count: Some(count) }
    };
    count_operations(graph).into_iter().map(row).collect()
}

fn rows_of_specification(registry: &Registry) -> Vec<Row> {
    let built_in = registry.built_in();
    SPECIFIED
        .iter()
        .map(|specified| {
            let definition = built_in.iter().find(|d| d.type_name == specified.type_name);
            let is_implemented =
                definition.is_some_and(|d| d.versions.iter().any(|v| v.class_version == specified.class_version));
            Row {
                name: format!("{}-{}", specified.type_name, specified.class_version),
                opsets: opsets(specified),
                category: definition.map_or_else(|| "-".to_owned(), |d| d.category.to_string()),
                is_implemented,
                count: None,
            }
        })
        .collect()
}

/// The opsets that have an operation. Those that were never taken out are in all opsets to come.
fn opsets(specified: &Specified) -> String {
    match specified.last_opset {
        LAST_OPSET.. => format!("opset{}..", specified.first_opset),
        last => format!("opset{}..opset{last}", specified.first_opset),
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::new();
    let is_counted = rows.iter().any(|row| row.count.is_some());
    for row in rows {
        let state = if row.is_implemented { "implemented" } else { "missing" };
        let count = row.count.map_or(String::new(), |count| format!("{count:>6}  "));
        let _ = writeln!(text, "{count}{:<38} {:<18} {:<16} {state}", row.name, row.opsets, row.category);
    }
    let implemented = rows.iter().filter(|row| row.is_implemented).count();
    let what = if is_counted { "of the model's operations" } else { "of the listed operations and versions" };
    let _ = writeln!(text, "{implemented} of {} {what} are implemented", rows.len());
    text
}
