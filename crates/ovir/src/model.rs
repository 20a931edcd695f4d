//! A model that was read and validated.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ovir_diagnostics::Diagnostic;
use ovir_graph::{Preprocessing, Validated, reshape, to_document, validate};
use ovir_ir::{AtomicFile, WeightsWriter, write_document};
use ovir_tensor::{ElementType, PartialShape};

use crate::Error;

/// A validated model: every shape, type and edge was checked.
#[derive(Debug, Clone)]
pub struct Model {
    pub(crate) validated: Arc<Validated>,
    pub(crate) source: Arc<Source>,
    pub(crate) warnings: Vec<Diagnostic>,
}

/// Where a model came from.
#[derive(Debug, Default)]
pub(crate) struct Source {
    pub path: Option<PathBuf>,
    pub xml: String,
}

/// An input or output of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Port {
    /// The name under which it is shown: the lexicographically first tensor name, else a friendly name.
    pub name: String,
    /// Every name by which it can be addressed.
    pub names: Vec<String>,
    /// The element type.
    pub element_type: ElementType,
    /// The shape.
    pub shape: PartialShape,
    /// The layout, such as `[N,C,H,W]`, if the model says it.
    pub layout: Option<String>,
}

/// One operation of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationInfo {
    /// The friendly name.
    pub friendly_name: String,
    /// The type.
    pub type_name: String,
    /// The `version` attribute.
    pub opset: String,
    /// Element types and shapes of the outputs.
    pub outputs: Vec<(ElementType, PartialShape)>,
    /// The attributes as they would be written.
    pub attributes: Vec<(String, String)>,
}

impl Model {
    /// The name of the model.
    pub fn name(&self) -> &str {
        &self.graph().name
    }

    /// The file that the model was read from.
    pub fn path(&self) -> Option<&Path> {
        self.source.path.as_deref()
    }

    /// The XML text that the model was read from.
    pub fn xml(&self) -> &str {
        &self.source.xml
    }

    /// The graph.
    pub fn graph(&self) -> &ovir_graph::Model {
        self.validated.model()
    }

    /// The graph with the proof of its validity, and what is known of its values.
    pub fn validated(&self) -> &Validated {
        &self.validated
    }

    /// Warnings that validation found.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.warnings
    }

    /// The inputs, in order.
    pub fn inputs(&self) -> Vec<Port> {
        let graph = self.graph();
        (0..graph.parameters.len())
            .map(|index| {
                let (element_type, shape) = graph
                    .input_facts(index)
                    .map_or((ElementType::Dynamic, PartialShape::DYNAMIC), |(t, s)| (t, s.clone()));
                Port {
                    name: graph.input_name(index),
                    names: graph.input_names(index).into_iter().map(str::to_owned).collect(),
                    element_type,
                    shape,
                    layout: graph.layout(index),
                }
            })
            .collect()
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> Vec<Port> {
        let graph = self.graph();
        (0..graph.results.len())
            .map(|index| {
                let facts =
                    self.validated.inference().outputs(graph.results[index]).first().cloned().unwrap_or_default();
                Port {
                    name: graph.output_name(index),
                    names: graph.output_names(index),
                    element_type: facts.element_type,
                    shape: facts.shape,
                    layout: None,
                }
            })
            .collect()
    }

    /// The keys under which the outputs are written to files, in order: their names, with `#k` appended where `k`
    /// earlier outputs have the same name.
    pub fn output_keys(&self) -> Vec<String> {
        crate::keys::output_keys(self.graph())
    }

    /// The index of the input that `name` means: a tensor name, a friendly name, or an index.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with what there is.
    pub fn input_index(&self, name: &str) -> Result<usize, Error> {
        find("input", name, &self.inputs())
    }

    /// The index of the output that `name` means: a tensor name, a friendly name, or an index.
    ///
    /// # Errors
    /// [`Error::UnknownName`] with what there is.
    pub fn output_index(&self, name: &str) -> Result<usize, Error> {
        find("output", name, &self.outputs())
    }

    /// The operations in topological order.
    pub fn ordered_operations(&self) -> Vec<OperationInfo> {
        let inference = self.validated.inference();
        self.graph()
            .iter()
            .map(|(id, node)| OperationInfo {
                friendly_name: node.friendly_name.clone(),
                type_name: node.type_name.to_string(),
                opset: node.opset.to_string(),
                outputs: inference.outputs(id).iter().map(|f| (f.element_type, f.shape.clone())).collect(),
                attributes: node.operation.attributes().into_iter().map(|(n, v)| (n.to_owned(), v)).collect(),
            })
            .collect()
    }

    /// The model for other shapes of its inputs, addressed by name or index.
    ///
    /// # Errors
    /// Names that do not exist, and shapes that violate a rule of some layer.
    pub fn reshape(&self, shapes: &[(&str, PartialShape)]) -> Result<Model, Error> {
        let mut by_index = Vec::with_capacity(shapes.len());
        for (name, shape) in shapes {
            by_index.push((self.input_index(name)?, shape.clone()));
        }
        let model = reshape(self.graph(), &by_index).map_err(|e| Error::Usage(e.to_string()))?;
        let validation = validate(model, Vec::new());
        let warnings = validation.diagnostics.iter().filter(|d| !d.is_error()).cloned().collect();
        match validation.into_validated() {
            Ok(validated) => Ok(Model { validated: Arc::new(validated), source: self.source.clone(), warnings }),
            Err(diagnostics) => Err(Error::InvalidModel { file: self.source.path.clone(), diagnostics }),
        }
    }

    /// Writes the model as IR version 11: the XML file at `path`, the weights beside it with the ending `.bin`. Both files
    /// are written completely or not at all.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let (xml, bin) = (path.as_ref().to_owned(), path.as_ref().with_extension("bin"));
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { path, source }
        };
        let mut weights_file = AtomicFile::create(&bin).map_err(at(&bin))?;
        let mut weights = WeightsWriter::new(std::io::BufWriter::new(&mut weights_file));
        let document = to_document(&self.validated, &mut weights).map_err(at(&bin))?;
        weights.finish().and_then(|mut buffer| std::io::Write::flush(&mut buffer)).map_err(at(&bin))?;
        let mut xml_file = AtomicFile::create(&xml).map_err(at(&xml))?;
        std::io::Write::write_all(&mut xml_file, write_document(&document).as_bytes()).map_err(at(&xml))?;
        weights_file.commit().map_err(at(&bin))?;
        xml_file.commit().map_err(at(&xml))
    }

    /// The text of an entry of the model's `rt_info`, by path: `["model_info", "labels"]`.
    pub fn rt_info(&self, path: &[&str]) -> Option<&str> {
        self.graph().rt_info_text(path)
    }

    /// What `model_info` says about images and labels.
    pub fn preprocessing(&self) -> Preprocessing {
        self.graph().preprocessing()
    }
}

fn find(kind: &'static str, name: &str, ports: &[Port]) -> Result<usize, Error> {
    // Names come before indices: a tensor may well be called "1".
    if let Some(index) = ports.iter().position(|port| port.names.iter().any(|n| n == name)) {
        return Ok(index);
    }
    if let Some(index) = name.parse::<usize>().ok().filter(|index| *index < ports.len()) {
        return Ok(index);
    }
    let known = ports.iter().map(|port| format!("\"{}\"", port.name)).collect();
    Err(Error::UnknownName { kind, name: name.to_owned(), known })
}
