//! # Parameter
//! An input of the model, or of a body.
//!
//! Specification: `infrastructure/parameter-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | out 0 | | `element_type` | `shape`, which may hold intervals |

use std::sync::Arc;

use ovir_tensor::{ElementType, PartialShape};

use crate::{
    AttributeValue, BuildContext, Category, Effects, EvaluateContext, InferContext, OpDef, OpError, OpResult,
    OpVersion, Operation, PartialShapeAttribute,
};

crate::attributes! {
    /// Attributes of Parameter.
    pub struct ParameterAttributes {
        /// The element type.
        element_type: ElementType = "element_type", required true;
        /// The shape.
        shape: PartialShapeAttribute = "shape", required true;
    }
}

/// The definition of Parameter.
pub static PARAMETER: OpDef = OpDef {
    type_name: "Parameter",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(1, (1, 17), (0, 0), (1, 1))],
    attributes: ParameterAttributes::DEFINITIONS,
    build,
};

/// A Parameter layer.
#[derive(Debug, Clone)]
pub struct Parameter {
    /// The element type.
    pub element_type: ElementType,
    /// The shape.
    pub shape: PartialShape,
}

impl Operation for Parameter {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.set_output(0, self.element_type, self.shape.clone());
        Ok(())
    }

    fn evaluate(&self, _context: &mut EvaluateContext<'_>) -> OpResult {
        Err(OpError::unsupported("the value of a Parameter is given from outside"))
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let shape = PartialShapeAttribute(self.shape.clone()).print().unwrap_or_default();
        vec![("shape", shape), ("element_type", self.element_type.name().to_owned())]
    }

    fn effects(&self) -> Effects {
        Effects::Interface
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ParameterAttributes::read(context.attributes);
    Arc::new(Parameter { element_type: attributes.element_type, shape: attributes.shape.0 })
}
