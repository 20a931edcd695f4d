//! What ends a command: an exit code and one clear message.

use std::fmt;
use std::io;
use std::path::Path;

use ovir::Error;

/// The model is at fault, or a comparison differs.
pub const FAULT: u8 = 1;
/// Usage, files, input tensors, unsupported operations, violations at run time.
pub const USAGE: u8 = 2;

/// Why a command ends without success.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What is said on standard error after `error: `; nothing if all was said already.
    pub message: Option<String>,
}

impl Failure {
    /// Wrong usage, a file that cannot be read or written, or tensors that do not fit.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure { code: USAGE, message: Some(message.into()) }
    }

    /// The model is at fault.
    pub fn fault(message: impl Into<String>) -> Failure {
        Failure { code: FAULT, message: Some(message.into()) }
    }

    /// Everything was said already.
    pub fn said(code: u8) -> Failure {
        Failure { code, message: None }
    }

    /// A file cannot be read or written.
    pub fn file(path: &Path, error: &io::Error) -> Failure {
        Failure::usage(format!("{}: {}", path.display(), describe(error)))
    }

    /// The same failure with words before its message.
    pub fn within(self, place: impl fmt::Display) -> Failure {
        Failure { message: self.message.map(|message| format!("{place}: {message}")), ..self }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match &error {
            Error::Io { path, source } => Failure::file(path, source),
            Error::InvalidModel { .. } => Failure::fault(error.to_string()),
            _ => Failure::usage(error.to_string()),
        }
    }
}

impl From<ovir::TensorError> for Failure {
    fn from(error: ovir::TensorError) -> Failure {
        Failure::usage(error.to_string())
    }
}

/// The words of an error of the operating system, without its number.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "is a directory".to_owned(),
        io::ErrorKind::NotADirectory => "not a directory".to_owned(),
        _ => error.to_string(),
    }
}
