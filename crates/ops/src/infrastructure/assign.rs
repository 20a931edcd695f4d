//! # Assign
//! Writes a variable, which lives from inference to inference.
//!
//! Specification: `infrastructure/assign-3`, `infrastructure/assign-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | new value | any | any |
//! | out 0 | | that of the input | that of the input |
//!
//! The new value is seen by the next inference; a ReadValue of the same inference sees the old one.

use std::sync::Arc;

use crate::{
    BuildContext, Category, Effects, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// Attributes of Assign.
    pub struct AssignAttributes {
        /// The name of the variable.
        variable_id: String = "variable_id", required true;
    }
}

/// The definition of Assign.
pub static ASSIGN: OpDef = OpDef {
    type_name: "Assign",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(3, (3, 5), (1, 1), (0, 1)), OpVersion::new(6, (6, 16), (1, 1), (0, 1))],
    attributes: AssignAttributes::DEFINITIONS,
    build,
};

/// An Assign layer.
#[derive(Debug)]
pub struct Assign {
    /// The variable.
    pub attributes: AssignAttributes,
}

impl Operation for Assign {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (element_type, shape) = (context.element_type(0), context.shape(0).clone());
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, _context: &mut EvaluateContext<'_>) -> OpResult {
        Err(OpError::unsupported("a variable lives in an inference request"))
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }

    fn effects(&self) -> Effects {
        Effects::State
    }

    fn variable_id(&self) -> Option<&str> {
        Some(&self.attributes.variable_id)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Assign { attributes: AssignAttributes::read(context.attributes) })
}
