//! # SoftMax
//! `exp(x) / sum(exp(x))` along an axis.
//!
//! Specification: `activation/softmax-1`, `activation/softmax-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | a rank above the axis |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Version 8 lets the axis be counted from the back.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::infer_unary;
use crate::common::normalization::{map_slices, softmax_terms};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of SoftMax.
pub static SOFTMAX: OpDef = OpDef {
    type_name: "SoftMax",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 7), (1, 1), (1, 1)), OpVersion::new(8, (8, 16), (1, 1), (1, 1))],
    attributes: SoftmaxAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of SoftMax and LogSoftmax.
    pub struct SoftmaxAttributes {
        /// The axis along which the results add up to 1.
        axis: i64 = "axis", default "1";
    }
}

/// A SoftMax layer.
#[derive(Debug)]
pub struct Softmax {
    /// The attributes.
    pub attributes: SoftmaxAttributes,
}

impl Operation for Softmax {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_along_axis(context, &self.attributes)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let rank = context.input(0)?.shape().rank();
        let axis = normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
        map_slices(context, &[axis], |elements, _| {
            let (largest, sum) = softmax_terms(elements);
            move |x| (x - largest).exp() / sum
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(8)
    }
}

/// A floating-point input with the axis that the attribute names.
pub(crate) fn infer_along_axis(context: &mut InferContext<'_>, attributes: &SoftmaxAttributes) -> OpResult {
    infer_unary(context, ElementClass::Float)?;
    if let Some(rank) = context.shape(0).rank() {
        normalize_axis(attributes.axis, rank, Blame::attribute("axis"))?;
    }
    Ok(())
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = SoftmaxAttributes::read(context.attributes);
    if context.class_version == 1 && attributes.axis < 0 {
        let message = format!("`axis` is {}; version 1 has no negative axes", attributes.axis);
        context.attributes.report(OpError::attribute("axis", message).help("opset8 and later have them"));
    }
    Arc::new(Softmax { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn results_add_up_to_one() {
        let data = tensor(&[1f32, 2.0, 3.0, 1000.0, 1000.0, 1000.0], [2, 3]);
        let output = Case::new("SoftMax", "opset8").attribute("axis", "-1").run(&[data]).unwrap();
        let third = 1f32 / 3.0;
        assert_eq!(output[0], tensor(&[0.09003057f32, 0.24472848, 0.66524094, third, third, third], [2, 3]));
    }

    #[test]
    fn the_axis_is_1_by_default() {
        let data = tensor(&[0f32, 5.0, 0.0, 5.0], [1, 2, 2]);
        let output = Case::new("SoftMax", "opset1").run(&[data]).unwrap();
        assert_eq!(output[0], tensor(&[0.5f32, 0.5, 0.5, 0.5], [1, 2, 2]));
    }

    #[test]
    fn the_axis_is_checked() {
        assert_eq!(
            Case::new("SoftMax", "opset1").attribute("axis", "-1").attribute_errors(1),
            ["attribute `axis`: `axis` is -1; version 1 has no negative axes"]
        );
        assert_eq!(
            Case::new("SoftMax", "opset8").infer_error(&["f32[3]"]),
            "attribute `axis`: axis 1 is out of range [-1, 0] for a tensor of rank 1"
        );
        assert_eq!(Case::new("SoftMax", "opset8").infer(&["f32[?,3]"]), ["f32[?,3]"]);
    }

    #[test]
    fn nan_and_emptiness() {
        let case = Case::new("SoftMax", "opset8");
        let output = case.run(&[tensor(&[f32::NAN, 1.0], [1, 2])]).unwrap();
        assert!(output[0].slice::<f32>().unwrap().iter().all(|x| x.is_nan()));
        assert_eq!(case.run(&[tensor::<f32>(&[], [2, 0])]).unwrap()[0], tensor::<f32>(&[], [2, 0]));
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("SoftMax", "opset8").assert_monotone(&["f32[2,3]"]);
    }
}
