//! Errors of the library.

use std::io;
use std::path::PathBuf;

use ovir_diagnostics::Diagnostic;
#[cfg(feature = "run")]
use ovir_runtime::RunError;
use ovir_tensor::TensorError;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The model has defects; the first error stands in the message, all are in the list.
    #[error("{}", first_error(diagnostics, file))]
    InvalidModel {
        /// The XML file.
        file: Option<PathBuf>,
        /// Everything that was found.
        diagnostics: Vec<Diagnostic>,
    },
    /// Compilation or an inference failed.
    #[cfg(feature = "run")]
    #[error("{}", at_line(error, *line))]
    Run {
        /// What happened, and in which layer.
        error: Box<RunError>,
        /// The line of the layer in the XML file.
        line: Option<usize>,
    },
    /// A name that nothing has.
    #[error("there is no {kind} \"{name}\"; there is {}", known.join(", "))]
    UnknownName {
        /// What was looked for: `input`, `output`, `variable`.
        kind: &'static str,
        /// The name.
        name: String,
        /// What there is.
        known: Vec<String>,
    },
    /// A tensor cannot be made or read.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A request is busy, or an option has a value that is not allowed.
    #[error("{0}")]
    Usage(String),
}

#[cfg(feature = "run")]
impl From<RunError> for Error {
    fn from(error: RunError) -> Error {
        Error::Run { error: Box::new(error), line: None }
    }
}

fn first_error(diagnostics: &[Diagnostic], file: &Option<PathBuf>) -> String {
    let errors = diagnostics.iter().filter(|d| d.is_error()).count();
    let first = diagnostics.iter().find(|d| d.is_error()).map_or("the model is invalid", |d| d.message.as_str());
    let place = file.as_ref().map_or(String::new(), |f| format!("{}: ", f.display()));
    match errors {
        0 | 1 => format!("{place}{first}"),
        _ => format!("{place}{first} (and {} more errors)", errors - 1),
    }
}

#[cfg(feature = "run")]
fn at_line(error: &RunError, line: Option<usize>) -> String {
    match line {
        Some(line) => format!("{error} (line {line})"),
        None => error.to_string(),
    }
}
