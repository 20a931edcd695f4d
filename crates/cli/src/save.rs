//! `ovir save`: write a model again.

use std::path::{Path, PathBuf};

use ovir::{Core, Model};

use crate::failure::Failure;
use crate::info::size;
use crate::load::{self, ModelArguments, shown};
use crate::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  ovir save old.xml -o new.xml
  ovir save model.xml -o fixed.xml --shape '[1,3,224,224]'
  ovir save model.xml -o small.xml --compress_to_fp16";

/// Save a model again, as IR version 11; says what changed.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct SaveArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The model to write; its weights stand beside it.
    #[arg(short, long, value_name = "OUT.xml")]
    output: PathBuf,
    /// New input shapes: NAME[1,3,224,224],NAME2[..], or [..] for a single input.
    #[arg(long, value_name = "SHAPES")]
    shape: Option<String>,
    /// Stores constants of f32 and f64 as f16, followed by a Convert.
    #[arg(long = "compress_to_fp16")]
    compress_to_f16: bool,
    /// Runs the passes that make the model simpler: not available in this version.
    #[arg(long)]
    simplify: bool,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn save(arguments: &SaveArguments, terminal: &Terminal) -> Result<(), Failure> {
    if arguments.simplify {
        return Err(Failure::usage(
            "--simplify is not available in this version; without it the model is saved as it is",
        ));
    }
    let core = Core::new();
    let mut model = arguments.model.load(&core, terminal)?;
    if let Some(text) = &arguments.shape {
        model = load::reshape(&model, text, "--shape", terminal)?;
    }
    if arguments.compress_to_f16 {
        let (compressed, compression) = model.compress_to_f16()?;
        model = compressed;
        terminal.say(&format!(
            "{} constants are stored as f16; {} of f32 and f64 stay, since f16 does not have their values",
            compression.compressed, compression.kept
        ));
    }
    write(&model, &arguments.output, terminal)
}

/// Writes a model and says what changed.
///
/// # Errors
/// When it cannot be written.
pub fn write(model: &Model, output: &Path, terminal: &Terminal) -> Result<(), Failure> {
    let is_xml = output.extension().is_some_and(|e| e.eq_ignore_ascii_case("xml"));
    if !is_xml {
        // The weights take the name with the ending .bin, which must not be the model itself.
        return Err(Failure::usage(format!("{}: the name of a model ends with .xml", output.display())));
    }
    let source = model.path().filter(|path| *path != Path::new("-"));
    let before = source.map(sizes);
    let version = model.graph().ir_version;
    model.save(output)?;
    let after = sizes(output);
    let shown_sizes = |(xml, bin): (u64, u64)| format!("{} and {} of weights", size(xml), size(bin));
    terminal.say(&format!("{}: {}", output.display(), shown_sizes(after)));
    if let (Some(path), Some(before)) = (source, before) {
        terminal.say(&format!("  was {}: {}", shown(path), shown_sizes(before)));
    }
    if version != 11 {
        terminal.say(&format!("  IR version {version} became 11"));
    }
    terminal.say(&format!("  {} layers", model.graph().nodes.len()));
    Ok(())
}

/// The bytes of a model and of the weights beside it.
fn sizes(path: &Path) -> (u64, u64) {
    let of = |path: &Path| std::fs::metadata(path).map_or(0, |data| data.len());
    (of(path), of(&path.with_extension("bin")))
}
