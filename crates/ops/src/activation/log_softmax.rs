//! # LogSoftmax
//! The logarithm of SoftMax along an axis.
//!
//! Specification: `activation/log-soft-max-5`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | a rank above the axis |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use super::softmax::{SoftmaxAttributes, infer_along_axis};
use crate::common::normalization::{map_slices, softmax_terms};
use crate::infer::normalize_axis;
use crate::{Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of LogSoftmax.
pub static LOG_SOFTMAX: OpDef = OpDef {
    type_name: "LogSoftmax",
    category: Category::Activation,
    versions: &[OpVersion::new(5, (5, 16), (1, 1), (1, 1))],
    attributes: SoftmaxAttributes::DEFINITIONS,
    build,
};

/// A LogSoftmax layer.
#[derive(Debug)]
pub struct LogSoftmax {
    /// The attributes.
    pub attributes: SoftmaxAttributes,
}

impl Operation for LogSoftmax {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_along_axis(context, &self.attributes)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let rank = context.input(0)?.shape().rank();
        let axis = normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
        map_slices(context, &[axis], |elements, _| {
            let (largest, sum) = softmax_terms(elements);
            let logarithm = sum.ln();
            move |x| x - largest - logarithm
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(5)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(LogSoftmax { attributes: SoftmaxAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_three() {
        let case = Case::new("LogSoftmax", "opset5").attribute("axis", "-1");
        let output = case.run(&[tensor(&[1f32, 2.0, 3.0, 0.0, 0.0, 1000.0], [2, 3])]).unwrap();
        assert_eq!(output[0], tensor(&[-2.407606f32, -1.407606, -0.40760598, -1000.0, -1000.0, 0.0], [2, 3]));
    }

    #[test]
    fn the_axis_is_checked() {
        assert!(Case::new("LogSoftmax", "opset5").infer_error(&["f32[3]"]).contains("axis 1 is out of range"));
        assert_eq!(Case::new("LogSoftmax", "opset5").infer(&["f16[...]"]), ["f16[...]"]);
    }
}
