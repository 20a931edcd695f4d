//! # Clamp
//! Every element brought into `[min, max]`. NaN stays NaN.
//!
//! Specification: `activation/clamp-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | out 0 | | that of `data` | that of `data` |
//!
//! For integers `min` is rounded up and `max` down.

use std::sync::Arc;

use ovir_tensor::{Bounds, ElementClass, ElementType, Value, dispatch};

use crate::common::elementwise::{Unary, evaluate_unary, infer_unary};
use crate::common::number::Number;
use crate::common::unary::clamp;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of Clamp.
pub static CLAMP: OpDef = OpDef {
    type_name: "Clamp",
    category: Category::Activation,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: ClampAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Clamp.
    pub struct ClampAttributes {
        /// The smallest value of the output.
        min: f64 = "min", required true;
        /// The largest value of the output.
        max: f64 = "max", required true;
    }
}

/// A Clamp layer.
#[derive(Debug)]
pub struct Clamp {
    /// The attributes.
    pub attributes: ClampAttributes,
}

impl Operation for Clamp {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Numeric)?;
        if let Some(bounds) = context.bounds(0) {
            let (low, high) = (self.attributes.min.ceil() as i64, self.attributes.max.floor() as i64);
            let values = bounds.values.iter().map(|v| v.maximum(Value::known(low)).minimum(Value::known(high)));
            let bounds = Bounds { shape: bounds.shape.clone(), values: values.collect() };
            context.set_bounds(0, bounds);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let ClampAttributes { min, max } = self.attributes;
        let (low, high) = integer_limits(context.input(0)?.element_type(), min.ceil(), max.floor());
        let integer = |x: i128| x.max(low).min(high);
        evaluate_unary(context, Unary { float: &|x| clamp(x, min, max), integer: Some(&integer) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ClampAttributes::read(context.attributes);
    if attributes.min > attributes.max || attributes.min.is_nan() || attributes.max.is_nan() {
        let message = format!("`min` is {}, which must not be above `max`, {}", attributes.min, attributes.max);
        context.attributes.report(OpError::attribute("min", message));
    }
    Arc::new(Clamp { attributes })
}

/// The limits brought into the range of an integer type.
fn integer_limits(element_type: ElementType, low: f64, high: f64) -> (i128, i128) {
    dispatch!(element_type, T in [integer] => {
        (<T as Number>::from_f64(low).to_i128(), <T as Number>::from_f64(high).to_i128())
    } else { (0, 0) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(min: &str, max: &str) -> Case {
        Case::new("Clamp", "opset1").attribute("min", min).attribute("max", max)
    }

    #[test]
    fn floats() {
        let output = case("-1.5", "2.5").run(&[tensor(&[-5f32, 0.5, f32::INFINITY], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-1.5f32, 0.5, 2.5], [3]));
        let nan = case("-1.5", "2.5").run(&[tensor(&[f32::NAN], [1])]).unwrap();
        assert!(nan[0].slice::<f32>().unwrap()[0].is_nan());
    }

    #[test]
    fn limits_of_integers_are_rounded_inwards() {
        let output = case("-1.5", "2.5").run(&[tensor(&[-5i32, 0, 5], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[-1i32, 0, 2], [3]));
        let output = case("-1.5", "1e9").run(&[tensor(&[0u8, 255], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[0u8, 255], [2]));
    }

    #[test]
    fn the_limits_are_ordered() {
        assert_eq!(
            case("3", "2").attribute_errors(1),
            ["attribute `min`: `min` is 3, which must not be above `max`, 2"]
        );
        assert_eq!(case("2", "7").infer(&["i64[2]=1..9,3"]), ["i64[2]=2..7,3"]);
    }
}
