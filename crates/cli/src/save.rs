//! `ovir save`: write a model again.

use std::path::PathBuf;

use crate::failure::Failure;
use crate::load::ModelArguments;
use crate::terminal::Terminal;

/// Save a model again: not available in this version.
#[derive(Debug, clap::Args)]
pub struct SaveArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The model to write; its weights stand beside it.
    #[arg(short, long, value_name = "OUT.xml")]
    output: PathBuf,
    /// Stores constants of f32 and f64 as f16.
    #[arg(long = "compress_to_fp16")]
    compress_to_f16: bool,
    /// Runs the passes that make the model simpler.
    #[arg(long)]
    simplify: bool,
}

/// Runs the verb.
///
/// # Errors
/// Always: a graph cannot be written yet.
pub fn save(arguments: &SaveArguments, _terminal: &Terminal) -> Result<(), Failure> {
    let SaveArguments { model, output, .. } = arguments;
    Err(Failure::usage(format!(
        "{} cannot be written as {}: this version of ovir does not write models",
        crate::load::shown(model.path()),
        output.display()
    )))
}
