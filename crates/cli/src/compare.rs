//! `ovir compare`: the same inputs through two models, or a model against saved tensors.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use ovir::{CompileOptions, Core, InferRequest, Model, Tensor};
use serde_json::{Value, json};

use crate::difference::Difference;
use crate::failure::{FAULT, Failure};
use crate::inputs::{InputArguments, Inputs, say_random};
use crate::load::{self, ModelArguments, shown};
use crate::outputs::number;
use crate::precision::PrecisionArguments;
use crate::run::observed;
use crate::summary::short;
use crate::tensors::{list, read_all};
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  ovir compare a.xml b.xml --inputs in.npz
  ovir compare model.xml expected.npz --inputs in.npz --rtol 1e-3
  ovir compare decoder.xml expected-1.npz expected-2.npz --inputs in-1.npz --inputs in-2.npz
  ovir compare model.xml --seed 1            (kernels against reference evaluation)
  ovir compare a.xml b.xml --seed 1 --layers

Exit codes: 0 everything agrees, 1 something differs or a model is at fault, 2 usage, files, run-time violations.";

/// Compare two models on the same inputs, or a model with saved tensors, or with its own reference evaluation.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The other model, or one .npz with expected tensors for each inference; without, the reference evaluation.
    #[arg(value_name = "B.xml|REF.npz")]
    others: Vec<PathBuf>,
    /// The weights of the other model [default: the .bin beside it].
    #[arg(long = "other-weights", value_name = "FILE")]
    other_weights: Option<PathBuf>,
    #[command(flatten)]
    inputs: InputArguments,
    /// The relative tolerance.
    #[arg(long, value_name = "X", default_value = "1e-4", value_parser = tolerance)]
    rtol: f64,
    /// The absolute tolerance.
    #[arg(long, value_name = "X", default_value = "1e-5", value_parser = tolerance)]
    atol: f64,
    /// Compares every layer, by friendly name, and tells the first divergence.
    #[arg(long)]
    layers: bool,
    /// Other input shapes, for both models.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// The number of threads [default: all].
    #[arg(long = "nthreads", value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// How the result is printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// One compared value.
struct Row {
    inference: usize,
    name: String,
    difference: Difference,
}

/// What the model is compared with.
enum Other {
    Model(Box<Model>, CompileOptions),
    Tensors(Vec<PathBuf>),
}

type Named = Vec<(String, Tensor)>;

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn compare(arguments: &CompareArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let mut model = arguments.model.load(&core, terminal)?;
    if let Some(text) = &arguments.shape {
        model = load::reshape(&model, text, "--shape", terminal)?;
    }
    let inputs = Inputs::new(&arguments.inputs, &model, terminal)?;
    say_random(&arguments.inputs, terminal);
    let other = other(arguments, &core, &model, inputs.count(), terminal)?;
    let options = options(arguments, false);
    let mut left = core.compile_model(&model, &options)?.create_infer_request();
    let mut right = match &other {
        Other::Model(model, options) => Some(core.compile_model(model, options)?.create_infer_request()),
        Other::Tensors(_) => None,
    };
    let mut rows = Vec::new();
    for position in 0..inputs.count() {
        let tensors = inputs.read(position)?;
        let found = infer(&mut left, &model, &model, &tensors, arguments.layers)?;
        let expected = match (&other, &mut right) {
            (Other::Model(other, _), Some(request)) => infer(request, other, &model, &tensors, arguments.layers)?,
            (Other::Tensors(files), _) => expected(arguments, &model, files, position)?,
            _ => Vec::new(),
        };
        compare_named(arguments, &model, position, &found, &expected, &mut rows)?;
    }
    print(arguments, inputs.count(), &rows, terminal)?;
    let is_equal = rows.iter().all(|row| row.difference.is_within());
    if is_equal { Ok(()) } else { Err(Failure::said(FAULT)) }
}

fn options(arguments: &CompareArguments, is_reference: bool) -> CompileOptions {
    CompileOptions {
        threads: arguments.threads.unwrap_or(0),
        reference_only: is_reference,
        keep_layers: arguments.layers,
        ..if is_reference { CompileOptions::default() } else { arguments.precision.options() }
    }
}

fn other(
    arguments: &CompareArguments,
    core: &Core,
    model: &Model,
    inferences: usize,
    terminal: &Terminal,
) -> Result<Other, Failure> {
    let is_npz = |path: &PathBuf| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npz"));
    match arguments.others.as_slice() {
        [] => Ok(Other::Model(Box::new(model.clone()), options(arguments, true))),
        files if files.iter().all(is_npz) => {
            if files.len() == inferences {
                return Ok(Other::Tensors(files.to_vec()));
            }
            Err(Failure::usage(format!("{} files of expected tensors for {inferences} inferences", files.len())))
        }
        [path] => {
            let mut other = load::load(core, path, arguments.other_weights.as_deref(), terminal)?;
            if let Some(text) = &arguments.shape {
                other = load::reshape(&other, text, "--shape", terminal)?;
            }
            Ok(Other::Model(Box::new(other), options(arguments, false)))
        }
        _ => Err(Failure::usage("compare takes one other model, or one .npz for each inference")),
    }
}

/// Runs one inference. Inputs are in the order of `origin`; another model gets them by name, or by position where
/// names differ.
fn infer(
    request: &mut InferRequest,
    model: &Model,
    origin: &Model,
    inputs: &[Tensor],
    has_layers: bool,
) -> Result<Named, Failure> {
    let place = |failure: Failure| failure.within(model.path().map_or_else(String::new, shown));
    let ports = origin.inputs();
    if model.inputs().len() != ports.len() {
        let message = format!("the models have {} and {} inputs", ports.len(), model.inputs().len());
        return Err(Failure::usage(message));
    }
    for (index, tensor) in inputs.iter().enumerate() {
        let by_name =
            ports[index].names.iter().find_map(|name| model.inputs().iter().position(|p| p.names.contains(name)));
        request.set_input_tensor(by_name.unwrap_or(index), tensor.clone()).map_err(|e| place(e.into()))?;
    }
    let mut named = Named::new();
    if has_layers {
        let mut failure = None;
        let result = request.infer_observed(&mut |node, port, value| match observed(node, port, value) {
            Ok(value) => named.push(value),
            Err(error) => failure = Some(error),
        });
        result.map_err(|e| place(e.into()))?;
        if let Some(failure) = failure {
            return Err(failure);
        }
    } else {
        request.infer().map_err(|e| place(e.into()))?;
    }
    for (index, key) in model.output_keys().into_iter().enumerate() {
        named.push((key, request.output_tensor(index)?));
    }
    Ok(named)
}

/// The expected tensors of an inference, under the names that the model gives its outputs.
fn expected(arguments: &CompareArguments, model: &Model, files: &[PathBuf], position: usize) -> Result<Named, Failure> {
    let Some(path) = files.get(position) else { return Ok(Named::new()) };
    let outputs = model.outputs();
    let keys = model.output_keys();
    let index = |name: &str| keys.iter().position(|key| key == name).or_else(|| model.output_index(name).ok());
    let arrays = read_all(path, |name| index(name).map(|i| outputs[i].element_type).filter(|t| t.is_known()))?;
    let mut named = Named::new();
    for (name, tensor) in arrays {
        match index(&name) {
            Some(index) => named.push((keys[index].clone(), tensor)),
            None if arguments.layers => named.push((name, tensor)),
            None => {
                let message = format!("there is no output \"{name}\"; there is {}", list(&keys));
                return Err(Failure::usage(message).within(path.display()));
            }
        }
    }
    Ok(named)
}

fn compare_named(
    arguments: &CompareArguments,
    model: &Model,
    inference: usize,
    found: &Named,
    expected: &Named,
    rows: &mut Vec<Row>,
) -> Result<(), Failure> {
    let mut by_name: HashMap<&str, Vec<&Tensor>> = HashMap::new();
    for (name, tensor) in expected.iter().rev() {
        by_name.entry(name).or_default().push(tensor);
    }
    let keys = model.output_keys();
    let before = rows.len();
    for (name, tensor) in found {
        // A name that comes again is a later iteration of a body.
        let Some(other) = by_name.get_mut(name.as_str()).and_then(Vec::pop) else { continue };
        let difference = Difference::of(tensor, other, arguments.rtol, arguments.atol);
        rows.push(Row { inference, name: name.clone(), difference });
    }
    let compared: Vec<&str> = rows[before..].iter().map(|row| row.name.as_str()).collect();
    if !keys.iter().any(|key| compared.contains(&key.as_str())) && !arguments.layers {
        let other: Vec<String> = expected.iter().map(|(name, _)| name.clone()).collect();
        return Err(Failure::usage(format!(
            "no output has the same name on both sides: {} and {}",
            list(&keys),
            list(&other)
        )));
    }
    Ok(())
}

fn print(arguments: &CompareArguments, inferences: usize, rows: &[Row], terminal: &Terminal) -> Result<(), Failure> {
    let first = rows.iter().find(|row| !row.difference.is_within());
    if arguments.format == Format::Json {
        let object = json!({
            "schema": 1,
            "rtol": arguments.rtol,
            "atol": arguments.atol,
            "equal": first.is_none(),
            "first_divergence": first.map(|row| row.name.as_str()),
            "values": rows.iter().map(row_json).collect::<Vec<_>>(),
        });
        return terminal.print(&format!("{object:#}\n"));
    }
    let mut text = String::new();
    for row in rows {
        let number = if inferences > 1 { format!("{} ", row.inference + 1) } else { String::new() };
        let _ = writeln!(text, "{number}{}  {}", row.name, row_text(&row.difference));
    }
    match first {
        Some(row) => {
            let _ = writeln!(text, "first divergence: {}", row.name);
        }
        None => {
            let (rtol, atol) = (arguments.rtol, arguments.atol);
            let _ = writeln!(text, "equal within rtol {rtol:e}, atol {atol:e}");
        }
    }
    terminal.print(&text)
}

fn row_text(difference: &Difference) -> String {
    if let Some(reason) = &difference.reason {
        return format!("DIFFERS: {reason}");
    }
    let verdict = match difference.beyond {
        0 => "equal".to_owned(),
        count => format!("DIFFERS in {count} of {} elements", difference.elements),
    };
    let (absolute, relative) = (short(difference.max_absolute), short(difference.max_relative));
    let worst = match difference.worst {
        Some((index, a, b)) if difference.beyond > 0 => {
            format!(", worst at {index}: {} against {}", short(a), short(b))
        }
        _ => String::new(),
    };
    format!("{verdict}, max absolute {absolute}, max relative {relative}{worst}")
}

fn row_json(row: &Row) -> Value {
    let Difference { reason, max_absolute, max_relative, beyond, elements, worst } = &row.difference;
    json!({
        "inference": row.inference + 1,
        "name": row.name,
        "within": row.difference.is_within(),
        "reason": reason,
        "max_absolute": number(Some(*max_absolute)),
        "max_relative": number(Some(*max_relative)),
        "beyond": beyond,
        "elements": elements,
        "worst": worst.map(|(index, a, b)| json!({
            "index": index, "found": number(Some(a)), "expected": number(Some(b)),
        })),
    })
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value >= 0.0 && value.is_finite() => Ok(value),
        _ => Err("write a number such as 1e-4".to_owned()),
    }
}
