//! # Divide
//! The quotient of two tensors, element by element, with broadcasting.
//!
//! Specification: `arithmetic/divide-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | a | any numeric type | any |
//! | in 1 | b | that of `a` | broadcastable with `a` |
//! | out 0 | | that of `a` | broadcast of `a` and `b` |
//!
//! Integers are rounded down where `m_pythondiv` says so, which is the default, and towards zero otherwise. Integer
//! division by zero is an error; floating-point types follow IEEE.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::broadcast::BroadcastAttributes;
use crate::common::elementwise::{Binary, evaluate_binary, infer_binary, propagate_binary};
use crate::common::value::value_divide;
use crate::{
    AttributeDef, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation,
};

/// The definition of Divide.
pub static DIVIDE: OpDef = OpDef {
    type_name: "Divide",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ATTRIBUTES,
    build,
};

const ATTRIBUTES: &[AttributeDef] =
    &[DivideAttributes::DEFINITIONS[0], BroadcastAttributes::DEFINITIONS[0], BroadcastAttributes::DEFINITIONS[1]];

crate::attributes! {
    /// The attribute of Divide beside those of broadcasting.
    pub struct DivideAttributes {
        /// Whether quotients of integers are rounded down rather than towards zero.
        m_pythondiv: bool = "m_pythondiv", default "true";
    }
}

/// A Divide layer.
#[derive(Debug)]
pub struct Divide {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
    /// Whether quotients of integers are rounded down.
    pub floor: bool,
}

impl Operation for Divide {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_binary(context, &self.attributes, ElementClass::Numeric, None)?;
        propagate_binary(context, &self.attributes, |a, b| value_divide(a, b, self.floor));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let floor = self.floor;
        let integer = |a: i128, b: i128| match b {
            0 => None,
            _ if floor && a % b != 0 && (a < 0) != (b < 0) => Some(a / b - 1),
            _ => Some(a / b),
        };
        let function = Binary { float: Some(&|a, b| a / b), integer: Some(&integer), boolean: None };
        evaluate_binary(context, &self.attributes, function)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut written = DivideAttributes { m_pythondiv: self.floor }.print(1);
        written.extend(self.attributes.printed(1));
        written
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let floor = DivideAttributes::read(context.attributes).m_pythondiv;
    Arc::new(Divide { attributes: BroadcastAttributes::read(context.attributes), floor })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_1_and_2_of_the_specification() {
        let same = Case::new("Divide", "opset1").attribute("auto_broadcast", "none").attribute("m_pythondiv", "true");
        assert_eq!(same.infer(&["f32[256,56]", "f32[256,56]"]), ["f32[256,56]"]);
        let numpy = Case::new("Divide", "opset1").attribute("m_pythondiv", "false");
        assert_eq!(numpy.infer(&["f32[8,1,6,1]", "f32[7,1,5]"]), ["f32[8,7,6,5]"]);
    }

    #[test]
    fn integers_round_down_or_towards_zero() {
        let inputs = [tensor(&[7i32, -7, 7, -7, i32::MIN], [5]), tensor(&[3i32, 3, -3, -3, -1], [5])];
        let floor = Case::new("Divide", "opset1").run(&inputs).unwrap();
        assert_eq!(floor[0], tensor(&[2i32, -3, -3, 2, i32::MIN], [5]));
        let truncated = Case::new("Divide", "opset1").attribute("m_pythondiv", "false").run(&inputs).unwrap();
        assert_eq!(truncated[0], tensor(&[2i32, -2, -2, 2, i32::MIN], [5]));
    }

    #[test]
    fn integer_division_by_zero_names_the_position() {
        let error = Case::new("Divide", "opset1").run(&[tensor(&[1i64, 2], [2]), tensor(&[1i64, 0], [2])]).unwrap_err();
        assert_eq!(error.to_string(), "input 1: element 1 is 0: division by zero has no integer result");
    }

    #[test]
    fn floats_divide_by_zero_as_ieee_says() {
        let inputs = [tensor(&[1f32, -1.0, 3.0], [3]), tensor(&[0f32, 0.0, 2.0], [3])];
        let output = Case::new("Divide", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[f32::INFINITY, f32::NEG_INFINITY, 1.5], [3]));
    }

    #[test]
    fn bounds_follow() {
        let case = Case::new("Divide", "opset1");
        assert_eq!(case.infer(&["i64[3]=5..9,7,4..", "i64[]=2"]), ["i64[3]=2..4,3,2.."]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("Divide", "opset1").assert_monotone(&["i64[3]=7,-7,9", "i64[1]=2"]);
        Case::new("Divide", "opset1").assert_monotone(&["f32[8,1,6,1]", "f32[7,1,5]"]);
        Case::new("Divide", "opset1")
            .attribute("auto_broadcast", "pdpd")
            .attribute("auto_broadcast.auto_broadcast_axis", "1")
            .assert_monotone(&["f32[2,3,4,5]", "f32[3,4,1]"]);
    }
}
