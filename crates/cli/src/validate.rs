//! `ovir validate`: every defect of each model, with line and column.

use std::collections::{HashMap, HashSet};
use std::io::Read;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ovir::diagnostics::{
    Diagnostic, Report, SourceText, Summary, render_github, render_human, render_json, render_junit, render_sarif,
};
use ovir::ir::Limits;
use ovir::tensor::grow_heap;
use ovir::{Core, ReadOptions, Validation};

use crate::failure::{FAULT, Failure, USAGE};
use crate::load::{WeightsArguments, check_with, read_file, shown};
use crate::named_lists;
use crate::terminal::Terminal;

/// The bytes at the beginning of an XML file in a folder that tell whether it is an IR file.
const SNIFFED: u64 = 4096;

/// Bytes of stack of a thread that checks files, as the main thread usually has: bodies in bodies recurse.
const STACK_BYTES: usize = 8 << 20;

/// The most folders within each other.
const MAX_DEPTH: usize = 64;

const EXAMPLES: &str = "\
Examples:
  ovir validate model.xml
  ovir validate models/ 'more/*.xml' --strict
  ovir validate model.xml --shape 'x[8,3,224,224]'
  ovir validate models/ --format sarif > findings.sarif
  ovir validate models/ --format json > known.json; ovir validate models/ --baseline known.json

Exit codes: 0 no error (with --strict: no warning either), 1 at least one, 2 usage or a file that cannot be opened.";

/// Find every defect of models: all of them in one run, each with line and column.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ValidateArguments {
    /// Models, folders (searched for IR files) and globs; `-` is standard input.
    #[arg(value_name = "MODEL.xml", required_unless_present = "named_models")]
    models: Vec<PathBuf>,
    /// A model, as benchmark_app takes it.
    #[arg(short = 'm', long = "model", value_name = "MODEL.xml", id = "named_models")]
    named: Vec<PathBuf>,
    #[command(flatten)]
    weights: WeightsArguments,
    /// Checks the structure only: constants have no values, and the .bin is not read.
    #[arg(long = "no-weights", conflicts_with = "weights")]
    without_weights: bool,
    /// Checks the model for other input shapes: NAME[1,3,224,224],NAME2[..], or [..] for a single input.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// Looks into all constants for NaN, infinities and values beyond the range of f16.
    #[arg(long = "check-values", conflicts_with = "without_weights")]
    checks_values: bool,
    /// Sets a limit against hostile files: layers, edges, ports, rank, attributes (of an element), attribute-bytes,
    /// body-depth, rt-info-depth, element-depth, elements (of a value) or findings.
    #[arg(long = "limit", value_name = "NAME=NUMBER", value_parser = limit)]
    limits: Vec<(String, usize)>,
    /// Warnings are errors.
    #[arg(long)]
    strict: bool,
    /// How findings are printed.
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
    /// Leaves out the findings of an earlier run with --format json.
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Prints nothing for models without findings.
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    // Variants have no help of their own: their names say everything.
    Human,
    Json,
    Sarif,
    Github,
    Junit,
}

/// The findings of one file and the text that they are in.
struct Checked {
    file: String,
    xml: String,
    diagnostics: Vec<Diagnostic>,
}

/// A limit and its new value.
fn limit(text: &str) -> Result<(String, usize), String> {
    let wrong = || format!("write NAME=NUMBER with a name of {}", Limits::NAMES.join(", "));
    let (name, value) = text.split_once('=').ok_or_else(wrong)?;
    let value = value.parse().map_err(|_| wrong())?;
    Limits::default().set(name, value)?;
    Ok((name.to_owned(), value))
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn validate(arguments: &ValidateArguments, terminal: &Terminal) -> Result<(), Failure> {
    let core = Core::new();
    let mut baseline = arguments.baseline.as_deref().map(Baseline::read).transpose()?;
    let mut unreadable = Vec::new();
    let files = expand(arguments, &mut unreadable)?;
    if arguments.weights.weights.is_some() && files.len() != 1 {
        return Err(Failure::usage(format!("--weights goes with one model, not with {}", files.len())));
    }
    let bar = terminal.progress(files.len() as u64, "validating");
    let mut checked = Vec::with_capacity(files.len());
    for result in check_all(arguments, &core, &files, terminal, || bar.inc(1)) {
        match result {
            Ok(result) => checked.push(result),
            Err(failure) => unreadable.push(failure),
        }
    }
    bar.finish_and_clear();
    if let Some(baseline) = &mut baseline {
        for file in &mut checked {
            baseline.subtract(file);
        }
    }
    let reports: Vec<Report<'_>> = checked
        .iter()
        .map(|c| {
            // Lines are counted only where some are shown.
            let source = (!c.diagnostics.is_empty()).then(|| SourceText::new(&c.xml));
            Report::new(c.file.clone(), source, c.diagnostics.clone())
        })
        .collect();
    print(arguments, &reports, terminal)?;
    for failure in &unreadable {
        terminal.complain("error", failure.message.as_deref().unwrap_or_default());
    }
    exit_code(arguments.strict, Summary::total(&reports), !unreadable.is_empty())
}

fn exit_code(is_strict: bool, summary: Summary, is_unreadable: bool) -> Result<(), Failure> {
    if is_unreadable {
        return Err(Failure::said(USAGE));
    }
    if summary.errors > 0 || (is_strict && summary.warnings > 0) {
        return Err(Failure::said(FAULT));
    }
    Ok(())
}

/// Checks files side by side; the results are in the order of the files.
fn check_all(
    arguments: &ValidateArguments,
    core: &Core,
    files: &[PathBuf],
    terminal: &Terminal,
    advance: impl Fn() + Sync,
) -> Vec<Result<Checked, Failure>> {
    let workers = std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(files.len());
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Checked, Failure>>>> = files.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        while let Some((file, result)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            files.get(index).zip(results.get(index))
        } {
            let checked = check_one(arguments, core, file, terminal);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(checked);
            advance();
        }
    };
    if workers <= 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for _ in 0..workers {
                let worker = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
                // Without threads this one does it all.
                if worker.is_err() {
                    work();
                }
            }
        });
    }
    let done = |result: Mutex<Option<_>>| result.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(done).collect()
}

fn check_one(arguments: &ValidateArguments, core: &Core, path: &Path, terminal: &Terminal) -> Result<Checked, Failure> {
    let file = shown(path);
    let mut options = ReadOptions {
        weights: arguments.weights.weights.clone(),
        without_weights: arguments.without_weights,
        ..ReadOptions::default()
    };
    for (name, value) in &arguments.limits {
        // Names and values were checked when the arguments were read.
        let _ = options.limits.set(name, *value);
    }
    if is_only(arguments, path) {
        // The text, what it says, and the graph with what is known of it take four times as much memory as the text.
        let text = std::fs::metadata(path).map_or(0, |file| usize::try_from(file.len()).unwrap_or(0));
        grow_heap(text.saturating_mul(4));
    }
    let validation = check_with(core, path, &options)?;
    let is_valid = validation.is_valid();
    let Validation { xml, mut diagnostics, result } = validation;
    if let Some(result) = result.as_ref().filter(|_| arguments.checks_values) {
        diagnostics.extend(ovir::graph::check_values(&result.model));
    }
    if let Some(result) = result.as_ref().filter(|_| arguments.without_weights) {
        diagnostics.extend(ovir::graph::unknown_without_weights(&result.model, &result.inference));
    }
    let mut checked = Checked { file, xml, diagnostics };
    let Some(text) = &arguments.shape else {
        // The process ends soon; taking a large graph apart before would be a part of its time.
        std::mem::forget(result.filter(|_| is_only(arguments, path)));
        return Ok(checked);
    };
    if !is_valid {
        terminal.complain("warning", &format!("{}: not checked for other shapes, since it has errors", checked.file));
        return Ok(checked);
    }
    let (Some(result), xml) = (result, checked.xml.clone()) else { return Ok(checked) };
    let again = Validation { xml, diagnostics: Vec::new(), result: Some(result) };
    let model = again.into_model(Some(path.to_owned()))?;
    let shapes = named_lists::shapes(&model, text, "--shape").map_err(|f| f.within(&checked.file))?;
    let reshaped = ovir::graph::reshape(model.graph(), &shapes)
        .map_err(|error| Failure::usage(error.to_string()).within(&checked.file))?;
    for diagnostic in ovir::graph::validate(reshaped, Vec::new()).diagnostics {
        if !checked.diagnostics.contains(&diagnostic) {
            checked.diagnostics.push(diagnostic);
        }
    }
    Ok(checked)
}

/// Whether this file is all that the process is there for.
fn is_only(arguments: &ValidateArguments, path: &Path) -> bool {
    arguments.models.len() + arguments.named.len() == 1
        && arguments.models.iter().chain(&arguments.named).any(|model| model == path)
}

fn print(arguments: &ValidateArguments, reports: &[Report<'_>], terminal: &Terminal) -> Result<(), Failure> {
    match arguments.format {
        Format::Human => {
            let mut text = render_human(reports, terminal.is_output_coloured);
            for report in reports {
                let summary = report.summary();
                let is_silent = summary == Summary::default();
                if !is_silent {
                    text.push_str(&format!("{}: {summary}\n", report.file));
                } else if !arguments.quiet {
                    text.push_str(&format!("{}: valid\n", report.file));
                }
            }
            if reports.len() > 1 && !(arguments.quiet && Summary::total(reports) == Summary::default()) {
                text.push_str(&format!("{} models: {}\n", reports.len(), Summary::total(reports)));
            }
            terminal.print(&text)
        }
        Format::Json => terminal.print(&ended(render_json(reports))),
        Format::Sarif => terminal.print(&ended(render_sarif(reports))),
        Format::Github => terminal.print(&ended(render_github(reports))),
        Format::Junit => terminal.print(&ended(render_junit(reports))),
    }
}

/// The text with a newline at its end, if there is any text.
fn ended(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// The files that the arguments mean: each once, folders and globs in the order of names.
fn expand(arguments: &ValidateArguments, unreadable: &mut Vec<Failure>) -> Result<Vec<PathBuf>, Failure> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in arguments.models.iter().chain(&arguments.named) {
        let found = expand_one(path, unreadable)?;
        for file in found {
            if !files.contains(&file) {
                files.push(file);
            }
        }
    }
    Ok(files)
}

fn expand_one(path: &Path, unreadable: &mut Vec<Failure>) -> Result<Vec<PathBuf>, Failure> {
    if path == Path::new("-") {
        return Ok(vec![path.to_owned()]);
    }
    if path.is_dir() {
        return folder(path, unreadable);
    }
    let pattern = path.to_str().filter(|text| !path.exists() && text.contains(['*', '?', '[']));
    let Some(pattern) = pattern else { return Ok(vec![path.to_owned()]) };
    let paths = glob::glob(pattern).map_err(|error| Failure::usage(format!("{pattern}: {error}")))?;
    let mut files = Vec::new();
    for path in paths {
        match path {
            Ok(path) if path.is_dir() => files.extend(folder(&path, unreadable)?),
            Ok(path) => files.push(path),
            Err(error) => unreadable.push(Failure::file(error.path(), error.error())),
        }
    }
    if files.is_empty() && unreadable.is_empty() {
        return Err(Failure::usage(format!("{pattern}: no file has such a name")));
    }
    Ok(files)
}

fn folder(path: &Path, unreadable: &mut Vec<Failure>) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    walk(path, MAX_DEPTH, &mut HashSet::new(), &mut files, unreadable);
    if files.is_empty() && unreadable.is_empty() {
        return Err(Failure::usage(format!("{}: the folder holds no IR files", path.display())));
    }
    Ok(files)
}

/// The `.xml` files below a folder that look like IR; others are none of our business. `known` are the folders that were
/// searched: links can make circles, and lead to one folder by several ways.
fn walk(
    path: &Path,
    depth: usize,
    known: &mut HashSet<PathBuf>,
    files: &mut Vec<PathBuf>,
    unreadable: &mut Vec<Failure>,
) {
    let read = || Ok((std::fs::canonicalize(path)?, std::fs::read_dir(path)?));
    let entries = match read() {
        Ok((folder, entries)) => match known.insert(folder) {
            true => entries,
            false => return,
        },
        Err(error) => return unreadable.push(Failure::file(path, &error)),
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if depth > 0 {
                walk(&path, depth - 1, known, files, unreadable);
            }
            continue;
        }
        let is_xml = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("xml"));
        if !is_xml {
            continue;
        }
        match looks_like_ir(&path) {
            Ok(true) => files.push(path),
            Ok(false) => {}
            Err(error) => unreadable.push(Failure::file(&path, &error)),
        }
    }
}

/// An XML file beside weights is meant to be IR, whatever it holds; so is one that Git LFS has not fetched.
fn looks_like_ir(path: &Path) -> std::io::Result<bool> {
    let mut start = Vec::new();
    std::fs::File::open(path)?.take(SNIFFED).read_to_end(&mut start)?;
    let is_ir = start.windows(4).any(|bytes| bytes == b"<net") || start.starts_with(b"version https://git-lfs");
    Ok(is_ir || path.with_extension("bin").is_file())
}

/// The findings of an earlier run: how often each was there.
struct Baseline {
    known: HashMap<(String, String, String), usize>,
}

impl Baseline {
    fn read(path: &Path) -> Result<Baseline, Failure> {
        let wrong =
            |reason: &str| Failure::usage(format!("{}: {reason}; write a baseline with --format json", path.display()));
        let json: serde_json::Value =
            serde_json::from_slice(&read_file(path)?).map_err(|error| wrong(&format!("this is no JSON ({error})")))?;
        let files = json["reports"].as_array().ok_or_else(|| wrong("there is no list \"reports\""))?;
        let mut known = HashMap::new();
        for file in files {
            let name = file["file"].as_str().ok_or_else(|| wrong("an entry has no \"file\""))?;
            for finding in file["diagnostics"].as_array().into_iter().flatten() {
                let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
                *known.entry((name.to_owned(), text("code"), text("message"))).or_insert(0) += 1;
            }
        }
        Ok(Baseline { known })
    }

    /// Takes out the findings that were there. Lines may have moved, so that they are no part of the comparison.
    fn subtract(&mut self, checked: &mut Checked) {
        checked.diagnostics.retain(|diagnostic| {
            let key = (checked.file.clone(), diagnostic.code.name().to_owned(), diagnostic.message.clone());
            match self.known.get_mut(&key) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    false
                }
                _ => true,
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn folders_are_searched_once_for_what_is_meant_to_be_ir() {
        let root = std::env::temp_dir().join(format!("ovir-folder-{}", std::process::id()));
        let inner = root.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        let files = [
            ("inner/model.xml", "<net name=\"m\"/>"),
            ("fetched.xml", "version https://git-lfs.github.com/spec/v1\n"),
            ("other.xml", "<project/>"),
            ("damaged.xml", ""),
            ("damaged.bin", ""),
            ("notes.txt", "<net"),
        ];
        for (name, content) in files {
            std::fs::write(root.join(name), content).unwrap();
        }
        #[cfg(unix)]
        std::os::unix::fs::symlink(&root, inner.join("around")).unwrap();
        let mut unreadable = Vec::new();
        let found = folder(&root, &mut unreadable).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect();
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(names, ["damaged.xml", "fetched.xml", "inner/model.xml"].map(PathBuf::from));
        assert!(unreadable.is_empty());
    }
}
