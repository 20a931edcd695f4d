//! # BitwiseNot
//! Every bit of every element inverted; for booleans, NOT.
//!
//! Specification: `bitwise/bitwise-not-13`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any integer type, boolean | any |
//! | out 0 | | that of `a` | that of `a` |

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType};

use crate::common::bitwise::require_bits;
use crate::common::elementwise::infer_unary;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of BitwiseNot.
pub static BITWISE_NOT: OpDef = OpDef {
    type_name: "BitwiseNot",
    category: Category::Bitwise,
    versions: &[OpVersion::new(13, (13, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A BitwiseNot layer.
#[derive(Debug)]
pub struct BitwiseNot;

impl Operation for BitwiseNot {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        require_bits(context, 0)?;
        infer_unary(context, ElementClass::Native)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let boolean = input.element_type() == ElementType::Boolean;
        let mut output = context.output(0, input.shape())?;
        for (t, s) in output.bytes_mut().iter_mut().zip(input.bytes()) {
            *t = if boolean { u8::from(*s == 0) } else { !*s };
        }
        Ok(())
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(BitwiseNot)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn integers_and_booleans() {
        let case = Case::new("BitwiseNot", "opset13");
        assert_eq!(case.run(&[tensor(&[0u16, 5], [2])]).unwrap()[0], tensor(&[65535u16, 65530], [2]));
        assert_eq!(case.run(&[tensor(&[0i32, -3], [2])]).unwrap()[0], tensor(&[-1i32, 2], [2]));
        assert_eq!(case.run(&[booleans(&[true, false], [2])]).unwrap()[0], booleans(&[false, true], [2]));
    }

    #[test]
    fn floats_are_refused() {
        let case = Case::new("BitwiseNot", "opset13");
        assert_eq!(case.infer_error(&["f32[2]"]), "input 0: element type f32 must be an integer type or boolean");
        assert_eq!(case.infer(&["i8[?,2]"]), ["i8[?,2]"]);
    }
}
