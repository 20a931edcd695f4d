//! `ovir graph`: a picture of a model, as one HTML page, as SVG or as DOT.

mod dot;
mod drawing;
mod html;
mod layout;
mod svg;
mod times;

use std::path::{Path, PathBuf};

use ovir::diagnostics::Summary;
use ovir::{Core, Validation};

use crate::failure::{FAULT, Failure};
use crate::load::{ModelArguments, check, shown};
use crate::terminal::Terminal;

use drawing::Drawing;
use times::Times;

const EXAMPLES: &str = "\
Examples:
  ovir graph model.xml -o model.html
  ovir graph model.xml -o model.svg --constants
  ovir graph model.xml --format dot | dot -Tpdf > model.pdf
  ovir graph model.xml -o model.html --profile --inputs in.npz

The HTML page holds everything and loads nothing: drag to move, turn the wheel to zoom, `/` searches names, types and
ids, a click shows a layer, a double click enters a body.

Exit codes: 0 the picture is written, 1 it is and the model has errors, or nothing of the model can be drawn, 2 usage or files.";

/// Draw a model with shapes, attributes and findings: a page to explore, SVG or DOT.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct GraphArguments {
    #[command(flatten)]
    model: ModelArguments,
    /// The file to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What is written [default: by the ending of the file, else html].
    #[arg(long, value_enum)]
    format: Option<Picture>,
    /// Draws constants as layers of their own instead of naming them in the layers that read them.
    #[arg(long)]
    constants: bool,
    #[cfg(feature = "run")]
    #[command(flatten)]
    profile: times::ProfileArguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Picture {
    // Variants have no help of their own: their names say everything.
    Html,
    Svg,
    Dot,
}

/// Runs the verb.
///
/// # Errors
/// See the exit codes of the command.
pub fn graph(arguments: &GraphArguments, terminal: &Terminal) -> Result<(), Failure> {
    let path = arguments.model.path();
    let picture = picture(arguments)?;
    let validation = check(&Core::new(), path, arguments.model.weights.weights.as_deref(), false)?;
    let summary = Summary::of(&validation.diagnostics);
    let times = times(arguments, &validation, terminal)?;
    let Some(drawing) = Drawing::new(&shown(path), &validation, arguments.constants, times) else {
        return Err(Failure::fault(format!("{} cannot be read; `ovir validate` tells why", shown(path))));
    };
    let text = match picture {
        Picture::Html => html::render(&drawing),
        Picture::Svg => svg::render(&drawing),
        Picture::Dot => dot::render(&drawing),
    };
    match arguments.output.as_deref().filter(|path| *path != Path::new("-")) {
        None => terminal.print(&text)?,
        Some(path) => std::fs::write(path, text).map_err(|error| Failure::file(path, &error))?,
    }
    if summary.errors > 0 {
        terminal.complain("warning", &format!("{}: {summary}; `ovir validate` shows them", shown(path)));
        return Err(Failure::said(FAULT));
    }
    Ok(())
}

/// What a run of the model shows, where it is asked for.
#[cfg(feature = "run")]
fn times(arguments: &GraphArguments, validation: &Validation, terminal: &Terminal) -> Result<Option<Times>, Failure> {
    if !arguments.profile.profile {
        return Ok(None);
    }
    let path = arguments.model.path();
    if !validation.is_valid() {
        let message = format!("{} has errors, so that it cannot be run; `ovir validate` shows them", shown(path));
        return Err(Failure::fault(message));
    }
    let (core, weights) = (Core::new(), arguments.model.weights.weights.as_deref());
    if path == Path::new("-") {
        return Err(Failure::usage("--profile reads the model again: give it as a file".to_owned()));
    }
    let model = crate::load::load(&core, path, weights, terminal)?;
    times::measure(&arguments.profile, &core, &model, terminal).map(Some)
}

#[cfg(not(feature = "run"))]
fn times(_: &GraphArguments, _: &Validation, _: &Terminal) -> Result<Option<Times>, Failure> {
    Ok(None)
}

/// What is to be written.
fn picture(arguments: &GraphArguments) -> Result<Picture, Failure> {
    if let Some(format) = arguments.format {
        return Ok(format);
    }
    let Some(path) = arguments.output.as_deref().filter(|path| *path != Path::new("-")) else {
        return Ok(Picture::Html);
    };
    match path.extension().map(|ending| ending.to_ascii_lowercase()).as_deref().and_then(|ending| ending.to_str()) {
        Some("html" | "htm") => Ok(Picture::Html),
        Some("svg") => Ok(Picture::Svg),
        Some("dot" | "gv") => Ok(Picture::Dot),
        _ => Err(Failure::usage(format!("{}: write .html, .svg or .dot, or say --format", path.display()))),
    }
}
