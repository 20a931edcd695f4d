//! # Identity
//! The tensor itself.
//!
//! Specification: `activation/identity-16`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | input | any type | any |
//! | out 0 | | that of `input` | that of `input` |

use std::sync::Arc;

use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Identity.
pub static IDENTITY: OpDef = OpDef {
    type_name: "Identity",
    category: Category::Activation,
    versions: &[OpVersion::new(16, (16, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// An Identity layer.
#[derive(Debug)]
pub struct Identity;

impl Operation for Identity {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let facts = context.input(0)?.clone();
        context.set_facts(0, facts);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let mut output = context.output(0, input.shape())?;
        if let (Some(target), Some(source)) = (output.strings_mut(), input.strings()) {
            target.clone_from_slice(source);
            return Ok(());
        }
        output.bytes_mut().copy_from_slice(input.bytes());
        Ok(())
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn is_reshape(&self) -> bool {
        true
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Identity)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    #[test]
    fn numbers_and_strings() {
        let case = Case::new("Identity", "opset16");
        let numbers = tensor(&[1f32, -0.0], [2]);
        assert_eq!(case.run(std::slice::from_ref(&numbers)).unwrap()[0], numbers);
        let strings = Tensor::from_strings(vec!["a".into(), "b".into()], [1, 2]).unwrap();
        assert_eq!(case.run(std::slice::from_ref(&strings)).unwrap()[0], strings);
        assert_eq!(case.infer(&["i64[2]=1..2,3"]), ["i64[2]=1..2,3"]);
    }
}
