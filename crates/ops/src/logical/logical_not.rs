//! # LogicalNot
//! `NOT a`, element by element.
//!
//! Specification: `logical/logical-not-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | boolean | any |
//! | out 0 | | boolean | that of `a` |

use std::sync::Arc;

use ovir_tensor::{Bounds, ElementClass};

use crate::common::elementwise::infer_unary;
use crate::common::value::value_not;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of LogicalNot.
pub static LOGICAL_NOT: OpDef = OpDef {
    type_name: "LogicalNot",
    category: Category::Logical,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A LogicalNot layer.
#[derive(Debug)]
pub struct LogicalNot;

impl Operation for LogicalNot {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Boolean)?;
        if let Some(bounds) = context.bounds(0) {
            let values = bounds.values.iter().map(|v| value_not(*v)).collect();
            context.set_bounds(0, Bounds { shape: bounds.shape.clone(), values });
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let source = input.slice::<u8>()?;
        let target = context.output_slice::<u8>(0, input.shape())?;
        for (t, s) in target.iter_mut().zip(source) {
            *t = u8::from(*s == 0);
        }
        Ok(())
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(LogicalNot)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans};
    use pretty_assertions::assert_eq;

    #[test]
    fn truth_table() {
        let output = Case::new("LogicalNot", "opset1").run(&[booleans(&[false, true], [2])]).unwrap();
        assert_eq!(output[0], booleans(&[true, false], [2]));
    }

    #[test]
    fn only_booleans() {
        let case = Case::new("LogicalNot", "opset1");
        assert_eq!(case.infer_error(&["i32[2]"]), "input 0: element type i32 must be boolean");
        assert_eq!(case.infer(&["boolean[?,3]"]), ["boolean[?,3]"]);
    }
}
