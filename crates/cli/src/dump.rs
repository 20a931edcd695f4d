//! `ovir dump`: the plan by which a model runs, and what the passes made of the model before.

use std::fmt::Write as _;

use ovir::{
    CompileOptions, Core, Helpers, Model, Note, PartialShape, PassReport, Plan, PlanAction, PlanPlace, PlanStep,
    PlanValue, pass_names,
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::load::{self, ModelArguments, shown};
use crate::precision::PrecisionArguments;
use crate::terminal::{Format, Terminal};

/// The widest that a column of the table of steps gets before the rest of its cell is cut.
const WIDEST: usize = 44;

const EXAMPLES: &str = "\
Examples:
  ovir dump model.xml
  ovir dump model.xml --pass fuse_epilogue
  ovir dump model.xml -data_shape '[1,3,640,640]' --format json

A step is done by a kernel, or by the reference evaluation where there is no kernel, or none for these shapes. `view` is a
Reshape that moves nothing. Values lie in the arena, in inputs, outputs and variables, or in tensors of their own where
shapes depend on data.";

/// Show the plan by which a model runs: passes, steps, kernels, memory.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// Shows what one pass did, and what it looked at and declined, and why.
    #[arg(long, value_name = "NAME")]
    pass: Option<String>,
    /// New shapes of the inputs, with which the model is compiled.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// The shapes that inputs with dynamic dimensions have when the plan is made.
    #[arg(long = "data_shape", value_name = "SHAPES")]
    data_shape: Option<String>,
    /// The number of threads [default: all].
    #[arg(long, value_name = "N", visible_alias = "threads")]
    nthreads: Option<usize>,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// How the plan is printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn dump(arguments: &DumpArguments, terminal: &Terminal) -> Result<(), Failure> {
    if let Some(name) = &arguments.pass {
        check_pass(name)?;
    }
    let core = Core::new();
    let mut model = arguments.model.load(&core, terminal)?;
    if let Some(text) = &arguments.shape {
        model = load::reshape(&model, text, "--shape", terminal)?;
    }
    let options = CompileOptions { threads: arguments.nthreads.unwrap_or(0), ..arguments.precision.options() };
    let (compiled, reports) = core.compile_model_traced(&model, &options)?;
    if let Some(name) = &arguments.pass {
        return print_pass(arguments, &reports, name, terminal);
    }
    let plan = compiled.plan(&shapes(arguments, &model, terminal)?)?;
    match arguments.format {
        Format::Json => terminal.print(&format!("{:#}\n", json_of(&plan, &reports))),
        Format::Human => {
            let name = shown(arguments.model.path());
            terminal.print(&human(&name, &model, &plan, &reports))
        }
    }
}

fn check_pass(name: &str) -> Result<(), Failure> {
    if pass_names().any(|known| known == name) {
        return Ok(());
    }
    let names: Vec<&str> = pass_names().collect();
    Err(Failure::usage(format!("--pass {name}: there is no such pass; the passes are {}", names.join(", "))))
}

/// The shapes that the inputs have when the plan is made.
fn shapes(arguments: &DumpArguments, model: &Model, terminal: &Terminal) -> Result<Vec<PartialShape>, Failure> {
    let shaped = match &arguments.data_shape {
        Some(text) => load::reshape(model, text, "-data_shape", terminal)?,
        None => model.clone(),
    };
    Ok(shaped.inputs().into_iter().map(|port| port.shape).collect())
}

fn print_pass(
    arguments: &DumpArguments,
    reports: &[PassReport],
    name: &str,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let Some(report) = reports.iter().find(|report| report.name == name) else { return Ok(()) };
    if arguments.format == Format::Json {
        return terminal.print(&format!("{:#}\n", json!({ "schema": 1, "pass": json_of_report(report) })));
    }
    let mut text = format!("{}\n", counts(report));
    for (title, is_applied) in [("applied", true), ("declined", false)] {
        let notes: Vec<&Note> = report.notes.iter().filter(|note| note.is_applied == is_applied).collect();
        if !notes.is_empty() {
            let _ = writeln!(text, "\n{title}");
        }
        for note in notes {
            let _ = writeln!(text, "  {} \"{}\": {}", note.type_name, note.friendly_name, note.text);
        }
    }
    terminal.print(&text)
}

fn counts(report: &PassReport) -> String {
    let applied = report.notes.iter().filter(|note| note.is_applied).count();
    let layers = match (report.layers_before, report.layers_after) {
        (before, after) if before == after => format!("{before} layers"),
        (before, after) => format!("{before} \u{2192} {after} layers"),
    };
    let declined = report.notes.len() - applied;
    format!("{:<18} {layers:<20} {applied:>6} applied {declined:>6} declined", report.name)
}

fn human(name: &str, model: &Model, plan: &Plan, reports: &[PassReport]) -> String {
    let mut text = format!("{name}: {} layers, {} steps\n\npasses\n", model.graph().nodes.len(), plan.steps.len());
    for report in reports {
        let _ = writeln!(text, "  {}", counts(report).trim_end());
    }
    let _ = writeln!(text, "\nsteps");
    table(&mut text, plan, "  ");
    let (peak, at) = peak(plan);
    let _ = writeln!(text, "\nmemory");
    let _ = writeln!(text, "  arena    {}, of which {} are in use at step {at}", bytes(plan.arena_bytes), bytes(peak));
    let _ = writeln!(text, "  outputs  {} with the next values of variables", bytes(plan.tensor_bytes));
    let pool = match plan.helpers {
        Helpers::Always => "helpers stand by during an inference",
        Helpers::WhenRepeated => "helpers stand by where inferences follow each other at once",
        Helpers::Never => "the caller's thread does it all",
    };
    let _ = writeln!(text, "  threads  {}; {pool}", plan.threads);
    text
}

/// The steps, and under each the steps of its bodies.
fn table(text: &mut String, plan: &Plan, indent: &str) {
    let rows: Vec<[String; 5]> = plan.steps.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0).min(WIDEST);
    let widths = [width(0), width(1), width(2), width(3)];
    for (number, (step, row)) in plan.steps.iter().zip(&rows).enumerate() {
        let _ = write!(text, "{indent}{number:>4}  ");
        for (cell, width) in row.iter().zip(widths) {
            let _ = write!(text, "{:<width$}  ", cut(cell));
        }
        let _ = writeln!(text, "{}", row[4]);
        for (body, plan) in step.bodies.iter().enumerate() {
            let _ = writeln!(text, "{indent}      body {body} of step {number}");
            table(text, plan, &format!("{indent}      "));
        }
    }
}

/// Type, doer, outputs, places, name of a step.
fn row(step: &PlanStep) -> [String; 5] {
    let type_name = if step.stages.is_empty() { step.type_name.clone() } else { step.stages.join("+") };
    let outputs: Vec<String> = step.outputs.iter().map(value).collect();
    let places: Vec<String> = step.outputs.iter().map(place).collect();
    let mut places = places.join(", ");
    if let Some(port) = step.in_place {
        let _ = write!(places, " of input {port}");
    }
    [type_name, doer(step), outputs.join(", "), places, step.friendly_name.clone()]
}

/// What does a step.
pub fn doer(step: &PlanStep) -> String {
    match &step.action {
        PlanAction::Kernel(name) => name.clone(),
        PlanAction::Reference => "reference".to_owned(),
        PlanAction::Unfit(name) => format!("reference, not {name}"),
        PlanAction::View => "view".to_owned(),
        PlanAction::Read(variable) => format!("read {variable}"),
        PlanAction::Assign(variable) => format!("assign {variable}"),
        PlanAction::Append(variable) => format!("append to {variable}"),
    }
}

fn value(value: &PlanValue) -> String {
    let layout = if value.is_blocked { " blocked" } else { "" };
    format!("{}{}{layout}", value.element_type, value.shape)
}

fn place(value: &PlanValue) -> String {
    match &value.place {
        PlanPlace::Constant => "constant".to_owned(),
        PlanPlace::Packed => "packed".to_owned(),
        PlanPlace::Input(index) => format!("input {index}"),
        PlanPlace::Arena(range) => format!("arena {}..{}", range.start, range.end),
        PlanPlace::Output(index) => format!("output {index}"),
        PlanPlace::Variable(name) => format!("variable {name}"),
        PlanPlace::Next(name) => format!("next {name}"),
        PlanPlace::Own => "own tensor".to_owned(),
        PlanPlace::Nowhere => "nowhere".to_owned(),
    }
}

fn cut(cell: &str) -> String {
    if cell.chars().count() <= WIDEST {
        return cell.to_owned();
    }
    cell.chars().take(WIDEST - 1).chain(['\u{2026}']).collect()
}

fn bytes(count: usize) -> String {
    match count {
        0..1024 => format!("{count} B"),
        1024..0x10_0000 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

/// The bytes of the arena that hold a value that is still needed, or scratch, at each step.
pub fn in_use(plan: &Plan) -> Vec<usize> {
    let mut changes = vec![0i64; plan.steps.len() + 2];
    let mut hold = |first: usize, last: usize, bytes: usize| {
        if first <= last && last < plan.steps.len() {
            changes[first] += bytes as i64;
            changes[last + 1] -= bytes as i64;
        }
    };
    for (position, step) in plan.steps.iter().enumerate() {
        hold(position, position, step.scratch.len());
        // A view has the memory of its input, which lives as long as the view does.
        if step.action == PlanAction::View {
            continue;
        }
        for (port, output) in step.outputs.iter().enumerate() {
            let takes_over = port == 0 && step.in_place.is_some();
            if let (PlanPlace::Arena(range), Some(last)) = (&output.place, output.last_read) {
                hold(position + usize::from(takes_over), last.max(position), range.len());
            }
        }
    }
    let mut held = 0;
    let sums = changes.iter().take(plan.steps.len()).map(|change| {
        held += change;
        held.max(0) as usize
    });
    sums.collect()
}

/// The most bytes in use, and at which step.
fn peak(plan: &Plan) -> (usize, usize) {
    let in_use = in_use(plan);
    let most = in_use.iter().copied().max().unwrap_or(0);
    (most, in_use.iter().position(|bytes| *bytes == most).unwrap_or(0))
}

fn json_of(plan: &Plan, reports: &[PassReport]) -> Value {
    json!({
        "schema": 1,
        "passes": reports.iter().map(json_of_report).collect::<Vec<_>>(),
        "plan": json_of_plan(plan),
    })
}

fn json_of_report(report: &PassReport) -> Value {
    let note = |note: &Note| {
        json!({
            "layer": note.friendly_name,
            "type": note.type_name,
            "applied": note.is_applied,
            "text": note.text,
        })
    };
    json!({
        "name": report.name,
        "layers_before": report.layers_before,
        "layers_after": report.layers_after,
        "notes": report.notes.iter().map(note).collect::<Vec<_>>(),
    })
}

fn json_of_plan(plan: &Plan) -> Value {
    json!({
        "arena_bytes": plan.arena_bytes,
        "tensor_bytes": plan.tensor_bytes,
        "helpers": match plan.helpers {
            Helpers::Always => "always",
            Helpers::WhenRepeated => "when repeated",
            Helpers::Never => "never",
        },
        "uses_pool": plan.helpers != Helpers::Never,
        "threads": plan.threads,
        "arena_in_use": in_use(plan),
        "steps": plan.steps.iter().map(json_of_step).collect::<Vec<_>>(),
    })
}

fn json_of_step(step: &PlanStep) -> Value {
    json!({
        "layer": step.friendly_name,
        "type": step.type_name,
        "stages": step.stages,
        "layers": step.members,
        "by": doer(step),
        "static": step.is_static,
        "in_place": step.in_place,
        "scratch": [step.scratch.start, step.scratch.end],
        "estimated_ns": step.work_nanoseconds,
        "inputs": step.inputs.iter().map(json_of_value).collect::<Vec<_>>(),
        "outputs": step.outputs.iter().map(json_of_value).collect::<Vec<_>>(),
        "bodies": step.bodies.iter().map(json_of_plan).collect::<Vec<_>>(),
    })
}

fn json_of_value(value: &PlanValue) -> Value {
    json!({
        "name": value.name,
        "element_type": value.element_type.to_string(),
        "shape": value.shape.to_string(),
        "blocked": value.is_blocked,
        "place": place(value),
        "last_read": value.last_read,
    })
}
