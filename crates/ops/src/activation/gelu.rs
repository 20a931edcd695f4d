//! # Gelu
//! The Gaussian error linear unit: `x * P(X <= x)` of the standard normal distribution, element by element.
//!
//! Specification: `activation/gelu-2`, `activation/gelu-7`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Version 7 adds `approximation_mode`; version 2 is its mode ERF.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use std::sync::Arc;

use crate::common::unary::{evaluate_float, infer_with_parameters};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Gelu.
pub static GELU: OpDef = OpDef {
    type_name: "Gelu",
    category: Category::Activation,
    versions: &[OpVersion::new(2, (2, 6), (1, 1), (1, 1)), OpVersion::new(7, (7, 16), (1, 1), (1, 1))],
    attributes: GeluAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How Gelu is computed.
    pub enum GeluApproximation {
        /// By the error function.
        #[default]
        Erf = "ERF",
        /// By an approximation with the hyperbolic tangent.
        Tanh = "TANH",
    }
}

crate::attributes! {
    /// Attributes of Gelu.
    pub struct GeluAttributes {
        /// How it is computed.
        approximation_mode: GeluApproximation = "approximation_mode", default "ERF", since 7;
    }
}

/// A Gelu layer.
#[derive(Debug)]
pub struct Gelu {
    /// The attributes.
    pub attributes: GeluAttributes,
    class_version: u8,
}

impl Operation for Gelu {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_with_parameters(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        match self.attributes.approximation_mode {
            GeluApproximation::Erf => evaluate_float(context, &by_erf),
            GeluApproximation::Tanh => evaluate_float(context, &by_tanh),
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl Gelu {
    /// A layer of version 7 by the error function.
    #[must_use]
    pub fn by_erf() -> Gelu {
        Gelu { attributes: GeluAttributes::default(), class_version: 7 }
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let class_version = context.class_version;
    Arc::new(Gelu { attributes: GeluAttributes::read(context.attributes), class_version })
}

/// `x / 2 * (1 + erf(x / sqrt(2)))`, through the complement so that large negative numbers keep their digits.
fn by_erf(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return 0.0;
    }
    0.5 * x * libm::erfc(-x * FRAC_1_SQRT_2)
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
fn by_tanh(x: f64) -> f64 {
    if x == f64::NEG_INFINITY {
        return 0.0;
    }
    let scale = FRAC_2_SQRT_PI * FRAC_1_SQRT_2;
    0.5 * x * (1.0 + (scale * (x + 0.044_715 * x * x * x)).tanh())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn both_modes() {
        let data = [tensor(&[-1f32, 0.0, 2.0], [3])];
        for opset in ["opset2", "opset7"] {
            let output = Case::new("Gelu", opset).run(&data).unwrap();
            assert_eq!(output[0], tensor(&[-0.15865525f32, 0.0, 1.9544997], [3]));
        }
        let output = Case::new("Gelu", "opset7").attribute("approximation_mode", "tanh").run(&data).unwrap();
        assert_eq!(output[0], tensor(&[-0.15880801f32, 0.0, 1.9545977], [3]));
    }

    #[test]
    fn the_mode_is_of_version_7() {
        let case = Case::new("Gelu", "opset2").attribute("approximation_mode", "TANH");
        assert_eq!(case.attribute_errors(1).len(), 1);
        let case = Case::new("Gelu", "opset7").attribute("approximation_mode", "fast");
        assert_eq!(
            case.attribute_errors(1),
            [
                "attribute `approximation_mode`: `approximation_mode=\"fast\"` is not allowed: it must be one of ERF, TANH"
            ]
        );
    }

    #[test]
    fn infinities_have_limits() {
        for mode in ["ERF", "TANH"] {
            let case = Case::new("Gelu", "opset7").attribute("approximation_mode", mode);
            let output = case.run(&[tensor(&[f32::NEG_INFINITY, f32::INFINITY], [2])]).unwrap();
            assert_eq!(output[0], tensor(&[0f32, f32::INFINITY], [2]));
        }
    }
}
