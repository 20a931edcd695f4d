//! # ReLU
//! `max(0, x)`, element by element. NaN stays NaN.
//!
//! Specification: `activation/relu-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ReLU.
pub static RELU: OpDef = OpDef {
    type_name: "ReLU",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: &[],
    build,
};

/// A ReLU layer.
#[derive(Debug)]
pub struct Relu;

impl Operation for Relu {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let float = |x: f64| if x < 0.0 { 0.0 } else { x };
        evaluate_unary(context, Unary { float: &float, integer: Some(&|x| x.max(0)) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Relu)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn negative_numbers_become_zero() {
        let case = Case::new("ReLU", "opset1");
        let output = case.run(&[tensor(&[-1f32, 0.0, 2.0], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 0.0, 2.0], [3]));
        assert!(case.run(&[tensor(&[f32::NAN], [1])]).unwrap()[0].slice::<f32>().unwrap()[0].is_nan());
    }
}
