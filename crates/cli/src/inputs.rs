//! The inputs of consecutive inferences: files, images, random values.

use std::path::{Path, PathBuf};

use ovir::{Model, Tensor, random};

use crate::failure::Failure;
use crate::image_input::{ImageOptions, ImageSettings};
use crate::load::read_file;
use crate::named_lists;
use crate::tensors::{Kind, convert, kind, list, read_all, read_one};
use crate::terminal::Terminal;

/// Where inputs come from.
#[derive(Debug, Clone, clap::Args)]
pub struct InputArguments {
    /// All inputs of one inference, keyed by tensor name, friendly name or index. Repeated: the next inference each
    /// time.
    #[arg(long, value_name = "F.npz")]
    pub inputs: Vec<PathBuf>,
    /// One input of every inference, from .npy, .npz, raw .bin, or an image (.png, .jpg, .bmp); the name may be left
    /// out where there is one input.
    #[arg(short, long = "input", value_name = "NAME=FILE")]
    pub input: Vec<String>,
    #[command(flatten)]
    pub image: ImageOptions,
    /// Fills inputs that are not given with random values from this seed, which also seeds random layers without a seed
    /// of their own.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
}

/// The inputs of consecutive inferences, ready to be read.
pub struct Inputs<'m> {
    model: &'m Model,
    files: Vec<PathBuf>,
    /// What applies to every inference, by input.
    fixed: Vec<Option<Tensor>>,
    seed: Option<u64>,
}

impl<'m> Inputs<'m> {
    /// Reads what applies to every inference, and finds out what the others are.
    ///
    /// # Errors
    /// Unknown inputs, and files that cannot be read or do not fit.
    pub fn new(arguments: &InputArguments, model: &'m Model, terminal: &Terminal) -> Result<Inputs<'m>, Failure> {
        let settings = arguments.image.settings(model)?;
        let mut fixed = vec![None; model.inputs().len()];
        for text in &arguments.input {
            let (index, path) = resolve(model, text)?;
            let tensor = read_input(model, index, &path, &settings, terminal)?;
            if fixed[index].replace(tensor).is_some() {
                return Err(Failure::usage(format!("input \"{}\" is given twice by -i", model.inputs()[index].name)));
            }
        }
        Ok(Inputs { model, files: arguments.inputs.clone(), fixed, seed: arguments.seed })
    }

    /// How many inferences the inputs are for: at least one.
    pub fn count(&self) -> usize {
        self.files.len().max(1)
    }

    /// The inputs of inference `position`, in the order of the model. Random values differ from inference to inference.
    ///
    /// # Errors
    /// Files that cannot be read or do not fit, and inputs that are not given.
    pub fn read(&self, position: usize) -> Result<Vec<Tensor>, Failure> {
        let mut given = self.fixed.clone();
        if let Some(path) = self.files.get(position) {
            self.read_archive(path, &mut given)?;
        }
        let ports = self.model.inputs();
        let missing: Vec<String> =
            (0..ports.len()).filter(|i| given[*i].is_none()).map(|i| ports[i].name.clone()).collect();
        if let (None, false) = (self.seed, missing.is_empty()) {
            let plural = if missing.len() == 1 { "" } else { "s" };
            return Err(Failure::usage(format!(
                "no value is given for input{plural} {}; give --inputs F.npz or -i NAME=FILE, or --seed N for random values",
                list(&missing)
            )));
        }
        let seed = self.seed.unwrap_or(0);
        let fill = |(index, tensor): (usize, Option<Tensor>)| match tensor {
            Some(tensor) => Ok(tensor),
            None => Ok(random::fill(&ports[index], random::mix(seed, position as u64, index as u64))?),
        };
        given.into_iter().enumerate().map(fill).collect()
    }

    fn read_archive(&self, path: &Path, given: &mut [Option<Tensor>]) -> Result<(), Failure> {
        let ports = self.model.inputs();
        let expected = |name: &str| self.model.input_index(name).ok().map(|index| ports[index].element_type);
        let mut by: Vec<Option<String>> = vec![None; ports.len()];
        for (key, tensor) in read_all(path, expected)? {
            let index = self.model.input_index(&key).map_err(|error| Failure::from(error).within(path.display()))?;
            let name = &ports[index].name;
            if let Some(other) = by[index].replace(key.clone()) {
                return Err(Failure::usage(format!(
                    "{}: input \"{name}\" is given twice, as \"{other}\" and as \"{key}\"",
                    path.display()
                )));
            }
            if self.fixed[index].is_some() {
                return Err(Failure::usage(format!("input \"{name}\" is given by -i and by {}", path.display())));
            }
            given[index] = Some(convert(tensor, ports[index].element_type)?);
        }
        Ok(())
    }
}

/// Whether random values stand in for inputs, said aloud.
pub fn say_random(arguments: &InputArguments, terminal: &Terminal) {
    if let Some(seed) = arguments.seed {
        terminal.say(&format!("inputs that are not given have random values (seed {seed})"));
    }
}

/// The input and the file that `NAME=FILE` or `FILE` mean. Names and files may hold `=`.
fn resolve(model: &Model, text: &str) -> Result<(usize, PathBuf), Failure> {
    for (position, _) in text.match_indices('=') {
        if let Ok(index) = model.input_index(&text[..position]) {
            return Ok((index, PathBuf::from(&text[position + 1..])));
        }
    }
    let is_file = text == "-" || Path::new(text).exists();
    match text.split_once('=') {
        Some((name, _)) if !is_file => {
            Err(model.input_index(name).map_or_else(Failure::from, |_| Failure::usage(text)))
        }
        _ => Ok((named_lists::input_of(model, "", &format!("-i {text}"))?, PathBuf::from(text))),
    }
}

fn read_input(
    model: &Model,
    index: usize,
    path: &Path,
    settings: &[ImageSettings],
    terminal: &Terminal,
) -> Result<Tensor, Failure> {
    let ports = model.inputs();
    let port = &ports[index];
    let bytes = read_file(path)?;
    match kind(path, &bytes)? {
        Kind::Image => {
            let (tensor, steps) = settings[index].apply(&bytes, port).map_err(|f| f.within(path.display()))?;
            terminal.say(&format!("{}: {steps}", path.display()));
            Ok(tensor)
        }
        kind => read_one(path, &bytes, kind, &port.names, port.element_type, &port.shape),
    }
}
