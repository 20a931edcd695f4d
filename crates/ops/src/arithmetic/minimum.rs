//! # Minimum
//! The smaller of two elements, with broadcasting.
//!
//! Specification: `arithmetic/minimum-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! NaN in either input gives NaN, as in NumPy; OpenVINO's reference gives the second input where the second is NaN.

use std::sync::Arc;

use ovir_tensor::{ElementClass, Value};

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary, propagate_binary};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of Minimum.
pub static MINIMUM: OpDef = OpDef {
    type_name: "Minimum",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Minimum layer.
#[derive(Debug)]
pub struct Minimum {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Minimum {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Numeric, None)?;
        propagate_binary(context, &self.attributes, Value::minimum);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let float = |a: f64, b: f64| if a <= b || a.is_nan() { a } else { b };
        let function = Binary { float: Some(&float), integer: Some(&|a, b| Some(a.min(b))), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Minimum { attributes: BroadcastAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_smaller_is_taken() {
        let output =
            Case::new("Minimum", "opset1").run(&[tensor(&[1.0f32, 2.5], [2]), tensor(&[3.0f32, 0.5], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[1.0f32, 0.5], [2]));
    }

    #[test]
    fn integers_compare_in_their_own_width() {
        let output = Case::new("Minimum", "opset1")
            .run(&[tensor(&[18446744073709551615u64, 3], [2]), tensor(&[18446744073709551614u64, 5], [2])])
            .unwrap();
        assert_eq!(output[0], tensor(&[18446744073709551614u64, 3], [2]));
    }

    #[test]
    fn nan_propagates_from_both_sides() {
        let (x, nan) = (tensor(&[1f32], [1]), tensor(&[f32::NAN], [1]));
        let case = Case::new("Minimum", "opset1");
        for inputs in [[x.clone(), nan.clone()], [nan, x]] {
            assert!(case.run(&inputs).unwrap()[0].slice::<f32>().unwrap()[0].is_nan());
        }
    }

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Minimum", "opset1").attribute("auto_broadcast", "none");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        assert!(same.infer_error(&["f32[256,56]", "f32[56]"]).contains("auto_broadcast is none"));
        let numpy = Case::new("Minimum", "opset1");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
        assert_eq!(numpy.infer(&["f32[?,3]", "f32[...]"]), ["f32[...]"]);
    }
}
