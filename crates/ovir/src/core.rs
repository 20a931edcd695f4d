//! Reading and validating models.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ovir_diagnostics::Diagnostic;
use ovir_graph::{BuildOptions, build, validate_within};
use ovir_ir::{Document, Limits, Weights, read_document_within, read_text_within};
use ovir_ops::{OpDef, Registry};

use crate::model::Source;
use crate::{Error, Model};

/// Reads, validates and compiles models. It holds the operations that are known.
#[derive(Debug, Clone, Default)]
pub struct Core {
    registry: Registry,
}

/// How a model is read.
#[derive(Debug, Clone, Default)]
pub struct ReadOptions {
    /// The weights file; otherwise the file of the same name with the ending `.bin`.
    pub weights: Option<PathBuf>,
    /// Reads the structure only: constants have no values, and the model cannot be compiled.
    pub without_weights: bool,
    /// Reads the weights file into memory instead of mapping it.
    pub no_mmap: bool,
    /// How large the parts of a file may be.
    pub limits: Limits,
}

/// What validation of a file found.
#[derive(Debug)]
pub struct Validation {
    /// The XML text, to show places.
    pub xml: String,
    /// All defects, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
    /// The model and what is known of its values, as far as it could be read.
    pub result: Option<ovir_graph::Validation>,
}

impl Validation {
    /// Whether there is no error.
    pub fn is_valid(&self) -> bool {
        !self.diagnostics.iter().any(Diagnostic::is_error)
    }

    /// The model, if there is no error. `path` is the file that it was read from.
    ///
    /// # Errors
    /// [`Error::InvalidModel`] with all diagnostics.
    pub fn into_model(self, path: Option<PathBuf>) -> Result<Model, Error> {
        finish(self, path)
    }
}

impl Core {
    /// A core with all operations that come with ovir.
    pub fn new() -> Core {
        Core::default()
    }

    /// The operations that are known.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Adds an operation of your own. Layers with its type and `version="opset"` mean it, in validation as in inference;
    /// it goes before an operation of ovir of the same type and opset. A panic in it is an error of its layer. The example
    /// `own_operation` is a whole program.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use ovir::ops::{EvaluateContext, InferContext, OpDef, OpResult, Operation, attributes};
    ///
    /// attributes! {
    ///     /// Attributes of Scale.
    ///     pub struct ScaleAttributes {
    ///         /// What elements are multiplied by.
    ///         factor: f32 = "factor", default "2";
    ///     }
    /// }
    ///
    /// #[derive(Debug)]
    /// struct Scale(ScaleAttributes);
    ///
    /// impl Operation for Scale {
    ///     fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
    ///         context.set_output(0, context.element_type(0), context.shape(0).clone());
    ///         Ok(())
    ///     }
    ///
    ///     fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
    ///         let input = context.input(0)?;
    ///         let output = context.output_slice::<f32>(0, input.shape())?;
    ///         output.iter_mut().zip(input.slice::<f32>()?).for_each(|(y, x)| *y = x * self.0.factor);
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let mut core = ovir::Core::new();
    /// core.register("my_operations", OpDef::of_user("Scale", ScaleAttributes::DEFINITIONS, |context| {
    ///     Arc::new(Scale(ScaleAttributes::read(context.attributes)))
    /// }));
    /// ```
    pub fn register(&mut self, opset: &str, definition: OpDef) {
        self.registry.register(opset, definition);
    }

    /// Reads a model from `path` (the XML file); the weights stand beside it with the ending `.bin`.
    ///
    /// # Errors
    /// Files that cannot be read, and models with defects.
    pub fn read_model(&self, path: impl AsRef<Path>) -> Result<Model, Error> {
        self.read_model_with(path, &ReadOptions::default())
    }

    /// Reads a model from `path` with options.
    ///
    /// # Errors
    /// Files that cannot be read, and models with defects.
    pub fn read_model_with(&self, path: impl AsRef<Path>, options: &ReadOptions) -> Result<Model, Error> {
        let path = path.as_ref();
        let validation = self.validate_file(path, options)?;
        finish(validation, Some(path.to_owned()))
    }

    /// Reads a model from memory: the XML text and the bytes of the weights.
    ///
    /// # Errors
    /// Models with defects.
    pub fn read_model_from_memory(&self, xml: &[u8], weights: Vec<u8>) -> Result<Model, Error> {
        finish(self.validate_memory(xml, Some(&Weights::from_bytes(weights)), false), None)
    }

    /// Finds every defect of the model at `path`.
    ///
    /// # Errors
    /// Files that cannot be opened; a missing weights file is a defect of the model, not an error.
    pub fn validate_file(&self, path: impl AsRef<Path>, options: &ReadOptions) -> Result<Validation, Error> {
        let path = path.as_ref();
        let xml = ovir_tensor::read_file(path).map_err(|source| Error::Io { path: path.to_owned(), source })?;
        let weights = match options.without_weights {
            true => None,
            false => open_weights(path, options)?,
        };
        match String::from_utf8(xml) {
            Ok(xml) => {
                let read = read_text_within(&xml, &options.limits);
                let (diagnostics, result) = self.examine(read, weights.as_ref(), options);
                Ok(Validation { xml, diagnostics, result })
            }
            Err(error) => Ok(self.validate_memory_with(error.as_bytes(), weights.as_ref(), options)),
        }
    }

    /// Finds every defect of a model in memory.
    pub fn validate_memory(&self, xml: &[u8], weights: Option<&Weights>, without_weights: bool) -> Validation {
        self.validate_memory_with(xml, weights, &ReadOptions { without_weights, ..ReadOptions::default() })
    }

    /// Finds every defect of a model in memory, with options.
    pub fn validate_memory_with(&self, xml: &[u8], weights: Option<&Weights>, options: &ReadOptions) -> Validation {
        let read = read_document_within(xml, &options.limits);
        let (diagnostics, result) = self.examine(read, weights, options);
        Validation { xml: String::from_utf8_lossy(xml).into_owned(), diagnostics, result }
    }

    /// All defects, and the model as far as it could be read.
    fn examine(
        &self,
        (document, diagnostics): (Option<Document<'_>>, Vec<Diagnostic>),
        weights: Option<&Weights>,
        options: &ReadOptions,
    ) -> (Vec<Diagnostic>, Option<ovir_graph::Validation>) {
        let Some(document) = document else { return (diagnostics, None) };
        let built = build(
            document,
            weights,
            &self.registry,
            BuildOptions { without_weights: options.without_weights, limits: options.limits },
        );
        let mut earlier = diagnostics;
        earlier.extend(built.diagnostics);
        let mut result = validate_within(built.model, earlier, &options.limits);
        let diagnostics = std::mem::take(&mut result.diagnostics);
        (diagnostics, Some(result))
    }
}

fn finish(validation: Validation, path: Option<PathBuf>) -> Result<Model, Error> {
    let Validation { xml, diagnostics, result } = validation;
    let Some(mut result) = result else { return Err(Error::InvalidModel { file: path, diagnostics }) };
    result.diagnostics = diagnostics;
    let warnings: Vec<Diagnostic> = result.diagnostics.iter().filter(|d| !d.is_error()).cloned().collect();
    match result.into_validated() {
        Ok(validated) => Ok(Model { validated: Arc::new(validated), source: Arc::new(Source { path, xml }), warnings }),
        Err(diagnostics) => Err(Error::InvalidModel { file: path, diagnostics }),
    }
}

/// The weights beside the XML file, or those that the options name. A missing file beside is no error here: a model
/// without constants needs none.
fn open_weights(path: &Path, options: &ReadOptions) -> Result<Option<Weights>, Error> {
    let (file, is_named) = match &options.weights {
        Some(file) => (file.clone(), true),
        None => (path.with_extension("bin"), false),
    };
    match read_weights(&file, options.no_mmap) {
        Ok(weights) => Ok(Some(weights)),
        Err(source) if source.kind() == std::io::ErrorKind::NotFound && !is_named => Ok(None),
        Err(source) => Err(Error::Io { path: file, source }),
    }
}

#[cfg(feature = "mmap")]
fn read_weights(file: &Path, no_mmap: bool) -> std::io::Result<Weights> {
    if no_mmap { Weights::read(file) } else { Weights::map(file) }
}

#[cfg(not(feature = "mmap"))]
fn read_weights(file: &Path, _no_mmap: bool) -> std::io::Result<Weights> {
    Weights::read(file)
}
