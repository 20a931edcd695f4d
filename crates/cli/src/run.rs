//! `ovir run`: consecutive inferences on one request.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ovir::graph::Node;
use ovir::tensor::TensorView;
use ovir::{CompileOptions, Core, InferRequest, Model, Profile, Tensor};
use serde_json::{Value, json};

use crate::classes::{self, best_classes};
use crate::failure::Failure;
use crate::inputs::{InputArguments, Inputs, say_random};
use crate::load::{self, ModelArguments, shown};
use crate::outputs::{Staged, describe_json, digest, number};
use crate::precision::PrecisionArguments;
use crate::summary::{describe, short};
use crate::terminal::{Format, Terminal};

const EXAMPLES: &str = "\
Examples:
  ovir run model.xml --inputs in.npz --outputs out.npz
  ovir run classifier.xml -i photo.jpg --top 5 --labels labels.txt
  ovir run decoder.xml --inputs step1.npz --inputs step2.npz --outputs out1.npz --outputs out2.npz
  ovir run model.xml -i tokens=ids.npy -i mask=mask.npy -o results
  ovir run model.xml --shape 'x[1,3,64,64]' --seed 7 --digest";

/// Run a model: one or more consecutive inferences on one request; the model's state is kept between them.
///
/// Without --outputs, -o, --top and --digest a readable summary of the outputs is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct RunArguments {
    #[command(flatten)]
    model: ModelArguments,
    #[command(flatten)]
    inputs: InputArguments,
    /// Where the outputs of an inference go, keyed by name; `-` is standard output. Repeated: the k-th file takes the
    /// k-th inference.
    #[arg(long, value_name = "F.npz")]
    outputs: Vec<PathBuf>,
    /// A folder for one .npy a output; with several inferences, numbered folders within.
    #[arg(short = 'o', long = "output-dir", value_name = "DIR", alias = "output_dir")]
    output_folder: Option<PathBuf>,
    /// Prints the K best classes.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..))]
    top: Option<u32>,
    /// The names of the classes, one a line [default: from the model].
    #[arg(long, value_name = "FILE", requires = "top")]
    labels: Option<PathBuf>,
    /// Other input shapes: NAME[1,3,224,224],NAME2[..], or [..] for a single input.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// The number of threads [default: all].
    #[arg(long = "nthreads", value_name = "N", visible_alias = "threads")]
    threads: Option<usize>,
    #[command(flatten)]
    precision: PrecisionArguments,
    /// Sets the state back before every N-th inference.
    #[arg(long = "reset-state-every", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    reset_state_every: Option<u32>,
    /// Writes every intermediate tensor as .npy into a folder; with several inferences, into numbered folders within.
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// Writes every intermediate tensor into one file; with several inferences, keys begin with `k/`.
    #[arg(long = "dump-npz", value_name = "F.npz")]
    dump_npz: Option<PathBuf>,
    /// Prints the time of every layer.
    #[arg(long)]
    profile: bool,
    /// Prints the digest of each output: algorithm and digest, element type and shape, name.
    #[arg(long, value_name = "ALGORITHM", num_args = 0..=1, require_equals = true, default_missing_value = "sha256",
        value_parser = ["sha256"])]
    digest: Option<String>,
    /// Limits the time of one inference.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Limits the memory for values, such as 512M or 2G: constant expressions, random inputs, intermediate values,
    /// outputs, states. The weights are not counted.
    #[arg(long = "memory-limit", value_name = "BYTES", value_parser = bytes)]
    memory_limit: Option<usize>,
    /// Runs every layer by its plain reference evaluation.
    #[arg(long = "reference")]
    is_reference: bool,
    /// How results are printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// The outputs of one inference, keyed as they are written.
type Outputs = Vec<(String, Tensor)>;

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn run(arguments: &RunArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let mut model = arguments.model.load(&core, terminal)?;
    if let Some(text) = &arguments.shape {
        model = load::reshape(&model, text, "--shape", terminal)?;
    }
    let inputs = Inputs::new(&arguments.inputs, &model, terminal)?;
    check_counts(arguments, inputs.count(), terminal)?;
    let labels = match &arguments.labels {
        Some(path) => classes::read_labels(path)?,
        None => model.preprocessing().labels,
    };
    say_random(&arguments.inputs, terminal);
    let is_dumping = arguments.dump.is_some() || arguments.dump_npz.is_some();
    let options = CompileOptions {
        threads: arguments.threads.unwrap_or(0),
        reference_only: arguments.is_reference,
        keep_layers: is_dumping,
        memory_limit: arguments.memory_limit.unwrap_or(0),
        ..arguments.precision.options()
    };
    check_random_inputs(arguments, &model)?;
    // The first inputs are read before compiling, which may take long: what is wrong with them is said at once.
    let first = inputs.read(0)?;
    let compiled = core.compile_model(&model, &options)?;
    let mut request = compiled.create_infer_request();
    request.set_memory_limit(arguments.memory_limit.unwrap_or(0))?;
    request.set_time_limit(arguments.timeout)?;
    request.set_profiling(arguments.profile)?;
    request.set_seed(arguments.inputs.seed.unwrap_or(0))?;
    let mut dump = Dump::new(arguments, inputs.count());
    let results = infer_all(arguments, &model, &inputs, first, &mut request, &mut dump, terminal)?;
    let profile = request.profile()?;
    write(arguments, &results, dump, terminal)?;
    match arguments.format {
        Format::Human => print_human(arguments, &results, &labels, profile.as_ref(), terminal),
        Format::Json => print_json(arguments, &results, &labels, profile.as_ref(), terminal),
    }
}

/// A few digits in a file may ask for gigabytes of random values.
fn check_random_inputs(arguments: &RunArguments, model: &Model) -> Result<(), Failure> {
    let Some(limit) = arguments.memory_limit.filter(|limit| *limit > 0 && arguments.inputs.seed.is_some()) else {
        return Ok(());
    };
    for port in model.inputs() {
        let elements = port.shape.to_shape().map(|shape| shape.checked_elements());
        let bytes = elements.map(|elements| elements.and_then(|count| port.element_type.storage_bytes(count)));
        if bytes.is_some_and(|bytes| bytes.is_none_or(|bytes| bytes > limit)) {
            let what = format!("input \"{}\" of {}{}", port.name, port.element_type, port.shape);
            return Err(Failure::usage(format!("{what} takes more than the memory limit of {limit} bytes")));
        }
    }
    Ok(())
}

/// The flags that go with the number of inferences.
fn check_counts(arguments: &RunArguments, count: usize, terminal: &Terminal) -> Result<(), Failure> {
    let files = arguments.outputs.len();
    if files > count {
        let plural = if count == 1 { "" } else { "s" };
        return Err(Failure::usage(format!("{files} --outputs are given for {count} inference{plural}")));
    }
    if files > 0 && files < count {
        terminal
            .complain("warning", &format!("the outputs of {} of {count} inferences are not written", count - files));
    }
    // A missing folder is told before the work is done.
    for path in arguments.outputs.iter().chain(&arguments.dump_npz) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty() && !folder.is_dir());
        if let Some(folder) = folder {
            return Err(Failure::usage(format!("{}: there is no folder {}", path.display(), folder.display())));
        }
    }
    let stdout = Path::new("-");
    let takes_stdout = arguments.outputs.iter().any(|path| path == stdout);
    if takes_stdout && (arguments.digest.is_some() || arguments.top.is_some() || arguments.format == Format::Json) {
        return Err(Failure::usage("standard output cannot take both --outputs and a report"));
    }
    Ok(())
}

fn infer_all(
    arguments: &RunArguments,
    model: &Model,
    inputs: &Inputs<'_>,
    first: Vec<Tensor>,
    request: &mut InferRequest,
    dump: &mut Dump,
    terminal: &Terminal,
) -> Result<Vec<Outputs>, Failure> {
    let count = inputs.count();
    let keys = model.output_keys();
    let bar = terminal.progress(count as u64, "inference");
    let mut first = Some(first);
    let mut results = Vec::with_capacity(count);
    for position in 0..count {
        let tensors = match first.take() {
            Some(tensors) => tensors,
            None => inputs.read(position)?,
        };
        if position > 0 && arguments.reset_state_every.is_some_and(|every| position % every as usize == 0) {
            request.reset_state()?;
        }
        let outputs = infer(request, tensors, &keys, dump, position);
        let within = |failure: Failure| match count {
            1 => failure,
            _ => failure.within(format!("inference {}", position + 1)),
        };
        results.push(outputs.map_err(within)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(results)
}

fn infer(
    request: &mut InferRequest,
    inputs: Vec<Tensor>,
    keys: &[String],
    dump: &mut Dump,
    position: usize,
) -> Result<Outputs, Failure> {
    for (index, tensor) in inputs.into_iter().enumerate() {
        request.set_input_tensor(index, tensor)?;
    }
    match dump.is_wanted() {
        true => dump.infer(request, position)?,
        false => request.infer()?,
    }
    let output = |(index, key): (usize, &String)| Ok((key.clone(), request.output_tensor(index)?));
    keys.iter().enumerate().map(output).collect()
}

/// Intermediate tensors on their way to files.
struct Dump {
    folder: Option<PathBuf>,
    file: Option<PathBuf>,
    is_numbered: bool,
    tensors: Vec<(usize, String, Tensor)>,
}

impl Dump {
    fn new(arguments: &RunArguments, count: usize) -> Dump {
        Dump {
            folder: arguments.dump.clone(),
            file: arguments.dump_npz.clone(),
            is_numbered: count > 1,
            tensors: Vec::new(),
        }
    }

    fn is_wanted(&self) -> bool {
        self.folder.is_some() || self.file.is_some()
    }

    /// Runs an inference and keeps what it computes. Without it the tensors that a failing inference has computed
    /// would be lost, and these are what one looks for.
    fn infer(&mut self, request: &mut InferRequest, position: usize) -> Result<(), Failure> {
        let mut failure = None;
        let result = request.infer_observed(&mut |node, port, value| match value.to_tensor() {
            Ok(tensor) => self.tensors.push((position, node.value_name(port), tensor)),
            Err(error) => failure = Some(Failure::from(error)),
        });
        if let Err(error) = result {
            let mut staged = Staged::default();
            self.stage(&mut staged)?;
            staged.commit(&Terminal::new(crate::terminal::ColorWhen::Never))?;
            return Err(error.into());
        }
        failure.map_or(Ok(()), Err)
    }

    fn stage(&mut self, staged: &mut Staged) -> Result<(), Failure> {
        let mut tensors: Vec<(usize, String, Tensor)> = std::mem::take(&mut self.tensors);
        number_repetitions(&mut tensors);
        if let Some(path) = &self.file {
            let key = |(position, name, tensor): &(usize, String, Tensor)| match self.is_numbered {
                true => (format!("{}/{name}", position + 1), tensor.clone()),
                false => (name.clone(), tensor.clone()),
            };
            staged.add_npz(path, &tensors.iter().map(key).collect::<Vec<_>>())?;
        }
        let Some(folder) = &self.folder else { return Ok(()) };
        while !tensors.is_empty() {
            let position = tensors[0].0;
            let (same, rest): (Vec<_>, Vec<_>) = tensors.into_iter().partition(|(other, ..)| *other == position);
            tensors = rest;
            let same: Vec<(String, Tensor)> = same.into_iter().map(|(_, name, tensor)| (name, tensor)).collect();
            staged.add_folder(&numbered(folder, self.is_numbered, position), &same)?;
        }
        Ok(())
    }
}

/// The value that an observer is shown, by name.
pub fn observed(node: &Node, port: usize, value: &TensorView<'_>) -> Result<(String, Tensor), Failure> {
    Ok((node.value_name(port), value.to_tensor()?))
}

/// Values with the same name in one inference, as bodies of loops have them, get `#k` after the first.
fn number_repetitions(tensors: &mut [(usize, String, Tensor)]) {
    let mut seen = std::collections::HashMap::new();
    for (position, name, _) in tensors {
        let count = seen.entry((*position, name.clone())).or_insert(0usize);
        if *count > 0 {
            name.push_str(&format!("#{count}"));
        }
        *count += 1;
    }
}

fn numbered(folder: &Path, is_numbered: bool, position: usize) -> PathBuf {
    if is_numbered { folder.join((position + 1).to_string()) } else { folder.to_owned() }
}

fn write(arguments: &RunArguments, results: &[Outputs], mut dump: Dump, terminal: &Terminal) -> Result<(), Failure> {
    let mut staged = Staged::default();
    for (path, outputs) in arguments.outputs.iter().zip(results) {
        staged.add_npz(path, outputs)?;
    }
    if let Some(folder) = &arguments.output_folder {
        for (position, outputs) in results.iter().enumerate() {
            staged.add_folder(&numbered(folder, results.len() > 1, position), outputs)?;
        }
    }
    if dump.is_wanted() {
        dump.stage(&mut staged)?;
    }
    staged.commit(terminal)
}

fn print_human(
    arguments: &RunArguments,
    results: &[Outputs],
    labels: &[String],
    profile: Option<&Profile>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let is_written = !arguments.outputs.is_empty() || arguments.output_folder.is_some();
    let mut text = String::new();
    for (position, outputs) in results.iter().enumerate() {
        if let Some(algorithm) = &arguments.digest {
            for (name, tensor) in outputs {
                let number = if results.len() > 1 { format!("{} ", position + 1) } else { String::new() };
                let (kind, shape) = (tensor.element_type(), tensor.shape());
                let _ = writeln!(text, "{number}{algorithm}:{}  {kind}{shape}  {name}", digest(tensor));
            }
        }
        let is_summarised = !is_written && arguments.digest.is_none() && arguments.top.is_none();
        if results.len() > 1 && (is_summarised || arguments.top.is_some()) {
            let _ = writeln!(text, "{}", terminal.bold(&format!("inference {}", position + 1)));
        }
        if let Some(count) = arguments.top {
            top_human(outputs, count as usize, labels, terminal, &mut text);
        }
        if is_summarised {
            for (name, tensor) in outputs {
                text.push_str(&describe(name, tensor));
            }
        }
    }
    if let Some(profile) = profile {
        text.push_str(&profile_table(profile));
    }
    terminal.print(&text)
}

fn top_human(outputs: &Outputs, count: usize, labels: &[String], terminal: &Terminal, text: &mut String) {
    for (name, tensor) in outputs {
        let Some(rows) = best_classes(tensor, count) else { continue };
        let _ = writeln!(text, "{}  {}{}", terminal.bold(name), tensor.element_type(), tensor.shape());
        for (index, row) in rows.iter().enumerate() {
            if rows.len() > 1 {
                let _ = writeln!(text, "  row {index}");
            }
            for class in row {
                let label = labels.get(class.index).map_or(String::new(), |label| format!("  {label}"));
                let _ = writeln!(text, "  {:>6}  {:<12}{label}", class.index, short(class.score));
            }
        }
    }
}

fn print_json(
    arguments: &RunArguments,
    results: &[Outputs],
    labels: &[String],
    profile: Option<&Profile>,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let inferences: Vec<Value> = results
        .iter()
        .map(|outputs| {
            let output = |(name, tensor): &(String, Tensor)| {
                let digest = arguments.digest.as_ref().map(|_| digest(tensor));
                let mut object = describe_json(name, tensor, digest);
                if let Some(rows) = arguments.top.and_then(|count| best_classes(tensor, count as usize)) {
                    object["top"] = json!(rows.iter().map(|row| top_json(row, labels)).collect::<Vec<_>>());
                }
                object
            };
            json!({ "outputs": outputs.iter().map(output).collect::<Vec<_>>() })
        })
        .collect();
    let mut object = json!({
        "schema": 1,
        "model": shown(arguments.model.path()),
        "inferences": inferences,
    });
    if let Some(profile) = profile {
        object["profile"] = profile_json(profile);
    }
    terminal.print(&format!("{object:#}\n"))
}

fn top_json(row: &[classes::Class], labels: &[String]) -> Vec<Value> {
    row.iter()
        .map(|class| {
            json!({
                "class": class.index,
                "score": number(Some(class.score)),
                "label": labels.get(class.index),
            })
        })
        .collect()
}

/// The time of every layer, and of every type.
pub fn profile_table(profile: &Profile) -> String {
    let total: Duration = profile.entries.iter().map(|entry| entry.time).sum();
    let share = |time: Duration| 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE);
    let runs = |count: u64| count.max(1) as f64;
    let mut text = format!("{:>10} {:>6}  {:<24} {:<9}  layer\n", "ms", "%", "type", "by");
    let mut by_type: std::collections::BTreeMap<&str, (Duration, f64, usize)> = std::collections::BTreeMap::new();
    for entry in &profile.entries {
        let milliseconds = entry.time.as_secs_f64() * 1e3 / runs(entry.runs);
        let by = if entry.is_kernel { "kernel" } else { "reference" };
        let _ = writeln!(
            text,
            "{milliseconds:>10.4} {:>6.2}  {:<24} {by:<9}  {}",
            share(entry.time),
            entry.type_name,
            entry.friendly_name
        );
        let sum = by_type.entry(&entry.type_name).or_default();
        *sum = (sum.0 + entry.time, sum.1 + milliseconds, sum.2 + 1);
    }
    let mut types: Vec<_> = by_type.into_iter().collect();
    types.sort_by(|a, b| b.1.0.cmp(&a.1.0).then(a.0.cmp(b.0)));
    let _ = writeln!(text, "\n{:>10} {:>6}  {:<24} layers", "ms", "%", "type");
    for (name, (time, milliseconds, layers)) in types {
        let _ = writeln!(text, "{milliseconds:>10.4} {:>6.2}  {name:<24} {layers}", share(time));
    }
    text
}

/// The same for programs.
pub fn profile_json(profile: &Profile) -> Value {
    let entry = |entry: &ovir::ProfileEntry| {
        json!({
            "layer": entry.friendly_name,
            "type": entry.type_name,
            "by": if entry.is_kernel { "kernel" } else { "reference" },
            "ms": entry.time.as_secs_f64() * 1e3 / entry.runs.max(1) as f64,
            "runs": entry.runs,
        })
    };
    profile.entries.iter().map(entry).collect()
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds, such as 2.5".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

/// A number of bytes with an optional unit: K, M, G, T, powers of 1024.
fn bytes(text: &str) -> Result<usize, String> {
    let wrong = || "write a number of bytes, such as 1000000, 512M or 2G".to_owned();
    let text = text.trim().to_ascii_uppercase();
    let text = text.strip_suffix("IB").or_else(|| text.strip_suffix('B')).unwrap_or(&text);
    let (digits, power) = match text.char_indices().next_back() {
        Some((last, 'K')) => (&text[..last], 1),
        Some((last, 'M')) => (&text[..last], 2),
        Some((last, 'G')) => (&text[..last], 3),
        Some((last, 'T')) => (&text[..last], 4),
        _ => (text, 0),
    };
    let number: usize = digits.trim().parse().map_err(|_| wrong())?;
    let bytes = number.checked_mul(1usize << (10 * power)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn units_of_memory() {
        assert_eq!(bytes("1000"), Ok(1000));
        assert_eq!(bytes("512M"), Ok(512 << 20));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(bytes("64 kb"), Ok(64 << 10));
        for text in ["", "0", "M", "-1", "1.5G", "99999999999999T"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn repeated_values_are_numbered() {
        let tensor = Tensor::scalar(1f32).unwrap();
        let mut tensors: Vec<_> =
            [(0, "a"), (0, "a"), (0, "b"), (1, "a")].map(|(p, n)| (p, n.to_owned(), tensor.clone())).into();
        number_repetitions(&mut tensors);
        let names: Vec<&str> = tensors.iter().map(|(_, name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "a#1", "b", "a"]);
    }
}
