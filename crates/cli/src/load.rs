//! Reading a model as the command line names it.

use std::io::Read;
use std::path::{Path, PathBuf};

use ovir::diagnostics::{Code, Diagnostic, Report, SourceText, Summary, render_human};
use ovir::ir::Weights;
use ovir::{Core, Error, Model, ReadOptions, Validation};

use crate::failure::{FAULT, Failure, USAGE};
use crate::named_lists;
use crate::terminal::Terminal;

/// A model: positional or by `-m`.
#[derive(Debug, clap::Args)]
pub struct ModelArguments {
    /// The model; `-` is standard input.
    #[arg(value_name = "MODEL.xml", required_unless_present = "named_model", conflicts_with = "named_model")]
    model: Option<PathBuf>,
    /// The model, as benchmark_app takes it.
    #[arg(short = 'm', long = "model", value_name = "MODEL.xml", id = "named_model")]
    named: Option<PathBuf>,
    #[command(flatten)]
    pub weights: WeightsArguments,
}

/// Where the weights are.
#[derive(Debug, Clone, clap::Args)]
pub struct WeightsArguments {
    /// The weights [default: the .bin beside the model].
    #[arg(short, long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
}

impl ModelArguments {
    /// The path of the model.
    pub fn path(&self) -> &Path {
        // clap has made sure that one is there.
        self.model.as_deref().or(self.named.as_deref()).unwrap_or(Path::new("-"))
    }

    /// Reads the model; its defects are rendered on standard error.
    ///
    /// # Errors
    /// Files that cannot be read, and models with errors.
    pub fn load(&self, core: &Core, terminal: &Terminal) -> Result<Model, Failure> {
        load(core, self.path(), self.weights.weights.as_deref(), terminal)
    }
}

/// The path as it is shown.
pub fn shown(path: &Path) -> String {
    if path == Path::new("-") { "<stdin>".to_owned() } else { path.display().to_string() }
}

/// Finds the defects of the model at `path`, `-` being standard input.
///
/// # Errors
/// Files that cannot be opened.
pub fn check(core: &Core, path: &Path, weights: Option<&Path>, without_weights: bool) -> Result<Validation, Failure> {
    let options = ReadOptions { weights: weights.map(Path::to_owned), without_weights, ..ReadOptions::default() };
    check_with(core, path, &options)
}

/// As [`check`], with options.
///
/// # Errors
/// Files that cannot be opened.
pub fn check_with(core: &Core, path: &Path, options: &ReadOptions) -> Result<Validation, Failure> {
    if path != Path::new("-") {
        return Ok(core.validate_file(path, options)?);
    }
    let mut xml = Vec::new();
    std::io::stdin()
        .lock()
        .read_to_end(&mut xml)
        .map_err(|error| Failure::file(Path::new("standard input"), &error))?;
    let weights = match &options.weights {
        Some(file) => Some(read_weights(file).map_err(|error| Failure::file(file, &error))?),
        None => None,
    };
    let mut validation = core.validate_memory_with(&xml, weights.as_ref(), options);
    // Nothing stands beside a model that comes through a pipe.
    for missing in validation.diagnostics.iter_mut().filter(|found| found.code == Code::MissingWeights) {
        missing.help = Some("name the .bin file with --weights".to_owned());
    }
    Ok(validation)
}

#[cfg(feature = "mmap")]
fn read_weights(file: &Path) -> std::io::Result<Weights> {
    Weights::map(file)
}

#[cfg(not(feature = "mmap"))]
fn read_weights(file: &Path) -> std::io::Result<Weights> {
    Weights::read(file)
}

/// Reads the model at `path`; its defects are rendered on standard error.
///
/// # Errors
/// Files that cannot be read, and models with errors.
pub fn load(core: &Core, path: &Path, weights: Option<&Path>, terminal: &Terminal) -> Result<Model, Failure> {
    let validation = check(core, path, weights, false)?;
    if !validation.is_valid() {
        return Err(refuse(&shown(path), &validation.xml, &validation.diagnostics, terminal));
    }
    let model = validation.into_model(Some(path.to_owned()))?;
    let warnings = Summary::of(model.warnings());
    if warnings.warnings > 0 {
        let plural = if warnings.warnings == 1 { "" } else { "s" };
        let text = format!("{}: {} warning{plural}; `ovir validate` shows them", shown(path), warnings.warnings);
        terminal.complain("warning", &text);
    }
    Ok(model)
}

/// The bytes of a file, `-` being standard input.
///
/// # Errors
/// When it cannot be read.
pub fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        let result = std::io::stdin().lock().read_to_end(&mut bytes);
        return result.map(|_| bytes).map_err(|error| Failure::file(Path::new("standard input"), &error));
    }
    std::fs::read(path).map_err(|error| Failure::file(path, &error))
}

/// Gives a model other input shapes, as `flag` says it.
///
/// # Errors
/// Unknown inputs, and shapes that violate a rule of some layer: these are rendered on standard error.
pub fn reshape(model: &Model, text: &str, flag: &str, terminal: &Terminal) -> Result<Model, Failure> {
    let shapes = named_lists::shapes(model, text, flag)?;
    let names: Vec<String> = (0..model.inputs().len()).map(|index| unambiguous(model, index)).collect();
    let by_name: Vec<_> = shapes.iter().map(|(index, shape)| (names[*index].as_str(), shape.clone())).collect();
    match model.reshape(&by_name) {
        Ok(model) => Ok(model),
        Err(Error::InvalidModel { diagnostics, .. }) => {
            let file = model.path().map_or("<memory>".to_owned(), shown);
            let failure = refuse(&file, model.xml(), &diagnostics, terminal);
            terminal.say(&format!("The model does not take the shapes that {flag} gives."));
            // The file is sound; what was asked of it is not.
            Err(Failure { code: USAGE, ..failure })
        }
        Err(error) => Err(error.into()),
    }
}

/// A text that means input `index` and no other.
fn unambiguous(model: &Model, index: usize) -> String {
    let names = model.graph().input_names(index);
    let own = names.into_iter().find(|name| model.input_index(name).is_ok_and(|found| found == index));
    own.map_or_else(|| index.to_string(), str::to_owned)
}

/// Renders the findings of a model that cannot be used.
fn refuse(file: &str, xml: &str, diagnostics: &[Diagnostic], terminal: &Terminal) -> Failure {
    let errors: Vec<Diagnostic> = diagnostics.iter().filter(|d| d.is_error()).cloned().collect();
    // A model that only asks for what is not there yet is not at fault.
    let is_unsupported = errors.iter().all(is_unsupported);
    let summary = Summary::of(diagnostics);
    let report = Report::new(file, Some(SourceText::new(xml)), diagnostics.to_vec());
    terminal.say(render_human(&[report], terminal.is_error_coloured).trim_end());
    terminal.say(&format!("\n{file}: {summary}"));
    Failure::said(if is_unsupported { USAGE } else { FAULT })
}

/// Whether a finding is about an operation that is not here: one of the specification, of an extension, or misspelt.
pub fn is_unsupported(diagnostic: &Diagnostic) -> bool {
    matches!(diagnostic.code, Code::NotImplemented | Code::UnknownOperation)
}
