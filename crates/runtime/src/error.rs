//! What can go wrong when a model is compiled or run.

use std::fmt;

use ovir_diagnostics::{Code, Diagnostic, LayerReference, Span};
use ovir_graph::{Model, Node, diagnose};
use ovir_ops::OpError;

/// An error at compile or run time, with the layer it happened in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunError {
    /// The code of the violated rule.
    pub code: Code,
    /// One sentence, the layer included.
    pub message: String,
    /// The layer, if it happened in one.
    pub layer: Option<Box<LayerReference>>,
    /// The place of the layer in the XML.
    pub span: Option<Span>,
}

impl RunError {
    /// An error that is not of a layer.
    pub fn new(code: Code, message: impl Into<String>) -> RunError {
        RunError { code, message: message.into(), layer: None, span: None }
    }

    /// An error of a layer.
    pub(crate) fn in_node(model: &Model, node: &Node, error: &OpError) -> RunError {
        RunError::from(diagnose(model, node, error))
    }
}

impl From<Diagnostic> for RunError {
    fn from(diagnostic: Diagnostic) -> RunError {
        RunError {
            code: diagnostic.code,
            message: diagnostic.message,
            layer: diagnostic.layer.map(Box::new),
            span: diagnostic.primary.map(|label| label.span),
        }
    }
}

impl From<OpError> for RunError {
    fn from(error: OpError) -> RunError {
        RunError::new(error.code(), error.to_string())
    }
}

impl From<ovir_tensor::TensorError> for RunError {
    fn from(error: ovir_tensor::TensorError) -> RunError {
        RunError::from(OpError::from(error))
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RunError {}
