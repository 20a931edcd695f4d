//! # GRN
//! Every element divided by the L2 norm of the channels at its position.
//!
//! Specification: `normalization/grn-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | rank 2 to 4; channels along axis 1 |
//! | out 0 | | that of `data` | that of `data` |
//!
//! `bias` is added to the sum of squares before the square root.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::infer_unary;
use crate::common::normalization::map_slices;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of GRN.
pub static GRN: OpDef = OpDef {
    type_name: "GRN",
    category: Category::Normalization,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: GrnAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of GRN.
    pub struct GrnAttributes {
        /// What is added to the sum of squares.
        bias: f64 = "bias", required true;
    }
}

/// A GRN layer.
#[derive(Debug)]
pub struct Grn {
    /// The attributes.
    pub attributes: GrnAttributes,
}

impl Operation for Grn {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_rank(0, 2..=4)?;
        infer_unary(context, ElementClass::Float)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let bias = self.attributes.bias;
        map_slices(context, &[1], |elements, _| {
            let mut squares = 0.0;
            elements(&mut |x| squares += x * x);
            let divisor = (squares + bias).sqrt();
            move |x| x / divisor
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GrnAttributes::read(context.attributes);
    if attributes.bias.is_nan() {
        context.attributes.report(OpError::attribute("bias", "`bias` must be a number"));
    }
    Arc::new(Grn { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("GRN", "opset1").attribute("bias", "11")
    }

    #[test]
    fn divides_by_the_norm_of_the_channels() {
        let output = case().run(&[tensor(&[3f32, 0.0, 4.0, 0.0], [1, 2, 2])]).unwrap();
        assert_eq!(output[0], tensor(&[0.5f32, 0.0, 0.6666667, 0.0], [1, 2, 2]));
    }

    #[test]
    fn ranks_and_types() {
        assert_eq!(case().infer(&["f16[1,?,8,..9]"]), ["f16[1,?,8,..9]"]);
        assert!(case().infer_error(&["f32[3]"]).contains("rank 1"));
        assert!(case().infer_error(&["i32[1,2]"]).contains("floating-point"));
    }
}
