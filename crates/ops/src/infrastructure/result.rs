//! # Result
//! An output of the model, or of a body.
//!
//! Specification: `infrastructure/result-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | | any | any |

use std::sync::Arc;

use crate::{BuildContext, Category, Effects, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Result.
pub static RESULT: OpDef = OpDef {
    type_name: "Result",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (0, 1))],
    attributes: &[],
    build,
};

/// A Result layer.
#[derive(Debug)]
pub struct ResultLayer;

impl Operation for ResultLayer {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let facts = context.input(0)?.clone();
        context.set_facts(0, facts);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let tensor = context.input(0)?.to_tensor()?;
        context.set_output(0, tensor)
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn effects(&self) -> Effects {
        Effects::Interface
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ResultLayer)
}
