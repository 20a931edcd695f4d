//! # Elu
//! `x` for positive `x`, `alpha * (exp(x) - 1)` otherwise, element by element.
//!
//! Specification: `activation/elu-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use crate::common::unary::{evaluate_float, infer_with_parameters};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Elu.
pub static ELU: OpDef = OpDef {
    type_name: "Elu",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: EluAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Elu.
    pub struct EluAttributes {
        /// The scale of the negative side.
        alpha: f64 = "alpha", required true;
    }
}

/// An Elu layer.
#[derive(Debug)]
pub struct Elu {
    /// The attributes.
    pub attributes: EluAttributes,
}

impl Operation for Elu {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_with_parameters(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let alpha = self.attributes.alpha;
        evaluate_float(context, &|x| if x > 0.0 { x } else { alpha * x.exp_m1() })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Elu { attributes: EluAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn both_sides() {
        let case = Case::new("Elu", "opset1").attribute("alpha", "2");
        let output = case.run(&[tensor(&[-1f32, 0.0, 3.0], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-1.2642411f32, 0.0, 3.0], [3]));
    }

    #[test]
    fn alpha_is_required() {
        assert_eq!(Case::new("Elu", "opset1").attribute_errors(1), ["required attribute `alpha` is missing"]);
    }
}
