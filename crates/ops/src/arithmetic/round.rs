//! # Round
//! The nearest integer, element by element.
//!
//! Specification: `arithmetic/round-5`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Round.
pub static ROUND: OpDef = OpDef {
    type_name: "Round",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(5, (5, 16), (1, 1), (1, 1))],
    attributes: RoundAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// Where halves go.
    pub enum RoundMode {
        /// To the even neighbour.
        #[default]
        HalfToEven = "half_to_even",
        /// To the neighbour farther from zero.
        HalfAwayFromZero = "half_away_from_zero",
    }
}

crate::attributes! {
    /// Attributes of Round.
    pub struct RoundAttributes {
        /// Where halves go.
        mode: RoundMode = "mode", default "half_to_even";
    }
}

/// A Round layer.
#[derive(Debug)]
pub struct Round {
    /// The attributes.
    pub attributes: RoundAttributes,
}

impl Operation for Round {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let float = match self.attributes.mode {
            RoundMode::HalfToEven => half_to_even,
            RoundMode::HalfAwayFromZero => f64::round,
        };
        evaluate_unary(context, Unary { float: &float, integer: Some(&|x| x) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(5)
    }
}

/// The nearest integer, of two the even one. From 2^52 on f64 holds integers only, so that the sum rounds, without a call of a
/// function for processors that have no instruction for it.
fn half_to_even(value: f64) -> f64 {
    const INTEGERS: f64 = (1u64 << 52) as f64;
    let magnitude = value.abs();
    if magnitude < INTEGERS { ((magnitude + INTEGERS) - INTEGERS).copysign(value) } else { value }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Round { attributes: RoundAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn halves_and_large_values() {
        let values =
            [0.0, -0.0, 0.3, -0.5, 0.5, 1.5, -2.5, 4503599627370495.5, 4503599627370496.0, 1e300, f64::INFINITY];
        for value in values.into_iter().flat_map(|value| [value, -value, value * 3.7]) {
            assert_eq!(super::half_to_even(value).to_bits(), value.round_ties_even().to_bits(), "{value}");
        }
        assert!(super::half_to_even(f64::NAN).is_nan());
    }

    #[test]
    fn examples_of_the_specification() {
        let data = tensor(&[-4.5f32, -1.9, -1.5, 0.5, 0.9, 1.5, 2.3, 2.5, 0.49999997], [9]);
        let even =
            Case::new("Round", "opset5").attribute("mode", "half_to_even").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(even[0], tensor(&[-4f32, -2.0, -2.0, 0.0, 1.0, 2.0, 2.0, 2.0, 0.0], [9]));
        let away = Case::new("Round", "opset5").attribute("mode", "half_away_from_zero").run(&[data]).unwrap();
        assert_eq!(away[0], tensor(&[-5f32, -2.0, -2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 0.0], [9]));
    }

    #[test]
    fn integers_stay_as_they_are() {
        let data = tensor(&[i64::MAX, -3], [2]);
        assert_eq!(Case::new("Round", "opset5").run(std::slice::from_ref(&data)).unwrap()[0], data);
    }
}
