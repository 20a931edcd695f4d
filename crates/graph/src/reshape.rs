//! New input shapes for a model.

use std::sync::Arc;

use ovir_ops::infrastructure::parameter::Parameter;
use ovir_tensor::PartialShape;

use crate::Model;

/// Why a model cannot take new input shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReshapeError {
    /// The model has no such input.
    NoInput {
        /// The index asked for.
        index: usize,
    },
}

impl std::fmt::Display for ReshapeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReshapeError::NoInput { index } => write!(f, "the model has no input {index}"),
        }
    }
}

impl std::error::Error for ReshapeError {}

/// The model with other shapes of its inputs; validate it to learn what becomes of the other shapes.
///
/// # Errors
/// [`ReshapeError::NoInput`].
pub fn reshape(model: &Model, shapes: &[(usize, PartialShape)]) -> Result<Model, ReshapeError> {
    let mut model = model.clone();
    for (index, shape) in shapes {
        let id = *model.parameters.get(*index).ok_or(ReshapeError::NoInput { index: *index })?;
        let node = &mut model.nodes[id.index()];
        let Some(parameter) = node.operation.downcast_ref::<Parameter>() else {
            return Err(ReshapeError::NoInput { index: *index });
        };
        node.operation = Arc::new(Parameter { element_type: parameter.element_type, shape: shape.clone() });
    }
    forget_declared(&mut model);
    Ok(model)
}

/// What the file declares of layers other than constants was true for the old shapes only.
fn forget_declared(model: &mut Model) {
    for node in &mut model.nodes {
        node.bodies.iter_mut().for_each(forget_declared);
        let Some(location) = &mut node.location else { continue };
        for port in &mut location.inputs {
            port.declared.dims = None;
        }
        for port in location.outputs.iter_mut().filter(|_| node.type_name != "Const") {
            port.declared.dims = None;
        }
    }
}
