//! # ConvertPromoteTypes
//! Two tensors converted to the element type that both promote to.
//!
//! Specification: `type/convert-promote-types-14`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | input_0 | any type but string | any |
//! | in 1 | input_1 | any type but string | any |
//! | out 0 | | the common type | that of `input_0` |
//! | out 1 | | the common type | that of `input_1` |
//!
//! Floating-point types win over integers and integers over boolean. Two types of one kind become the narrowest type
//! of the kind that holds both. u64 and a signed integer become `u64_integer_promotion_target`. Unless
//! `promote_unsafe`, promotions that widen, or that may lose precision or range, are errors.

use std::sync::Arc;

use ovir_tensor::ElementType;

use super::convert::infer_conversion;
use crate::common::conversion::convert;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ConvertPromoteTypes.
pub static CONVERT_PROMOTE_TYPES: OpDef = OpDef {
    type_name: "ConvertPromoteTypes",
    category: Category::Type,
    versions: &[OpVersion::new(14, (14, 16), (2, 2), (2, 2))],
    attributes: ConvertPromoteTypesAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ConvertPromoteTypes.
    pub struct ConvertPromoteTypesAttributes {
        /// Whether promotions that widen or lose are allowed.
        promote_unsafe: bool = "promote_unsafe", default "false";
        /// Whether a scalar takes the type of a tensor of the same kind.
        pytorch_scalar_promotion: bool = "pytorch_scalar_promotion", default "false";
        /// What u64 and a signed integer become.
        u64_integer_promotion_target: ElementType = "u64_integer_promotion_target", default "f32";
    }
}

/// A ConvertPromoteTypes layer.
#[derive(Debug)]
pub struct ConvertPromoteTypes {
    /// The attributes.
    pub attributes: ConvertPromoteTypesAttributes,
}

/// The kinds of element types, in the order of their priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Boolean,
    Integer,
    Float,
}

impl Operation for ConvertPromoteTypes {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let common = self.common_type(context)?;
        infer_conversion(context, 0, 0, common)?;
        infer_conversion(context, 1, 1, common)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        for port in 0..2 {
            let input = context.input(port)?;
            let mut output = context.output(port, input.shape())?;
            convert(input, &mut output)?;
        }
        Ok(())
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(14)
    }
}

impl ConvertPromoteTypes {
    fn common_type(&self, context: &InferContext<'_>) -> OpResult<ElementType> {
        let (a, b) = (context.element_type(0), context.element_type(1));
        if !a.is_known() || !b.is_known() {
            return Ok(ElementType::Dynamic);
        }
        let (Some(kind_a), Some(kind_b)) = (kind(a), kind(b)) else {
            let port = usize::from(kind(a).is_some());
            return Err(OpError::element_type(Blame::Input(port), "element type string cannot be promoted"));
        };
        if a == b {
            return Ok(a);
        }
        let (common, is_safe) = if kind_a != kind_b {
            let (high, low) = if kind_a > kind_b { (a, b) } else { (b, a) };
            (high, kind(low) == Some(Kind::Boolean) || high.bits() >= 2 * low.bits())
        } else {
            let scalar = self.scalar_promotion(context, a, b);
            match scalar {
                Scalar::Takes(target, scalar) => (target, self.promote(kind_a, target, scalar).0 == target),
                Scalar::No => self.promote(kind_a, a, b),
                Scalar::Unknown => return Ok(ElementType::Dynamic),
            }
        };
        if is_safe || self.attributes.promote_unsafe {
            return Ok(common);
        }
        let message = format!("element types {a} and {b} would become {common}, which widens or may lose values");
        Err(OpError::element_type(Blame::Node, message).help("set `promote_unsafe` to allow it"))
    }

    /// Whether one input is a scalar and the other is not, where that counts.
    fn scalar_promotion(&self, context: &InferContext<'_>, a: ElementType, b: ElementType) -> Scalar {
        if !self.attributes.pytorch_scalar_promotion {
            return Scalar::No;
        }
        match (context.shape(0).rank(), context.shape(1).rank()) {
            (Some(0), Some(1..)) => Scalar::Takes(b, a),
            (Some(1..), Some(0)) => Scalar::Takes(a, b),
            (Some(_), Some(_)) => Scalar::No,
            _ => Scalar::Unknown,
        }
    }

    /// The type that two types of one kind promote to, and whether it is one of them.
    fn promote(&self, kind: Kind, a: ElementType, b: ElementType) -> (ElementType, bool) {
        let common = match kind {
            Kind::Boolean => a,
            Kind::Float => promote_floats(a, b),
            Kind::Integer => promote_integers(a, b).unwrap_or(self.attributes.u64_integer_promotion_target),
        };
        (common, common == a || common == b)
    }
}

/// What scalar promotion says.
enum Scalar {
    /// The first type is taken by the scalar of the second.
    Takes(ElementType, ElementType),
    No,
    Unknown,
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ConvertPromoteTypes { attributes: ConvertPromoteTypesAttributes::read(context.attributes) })
}

fn kind(element_type: ElementType) -> Option<Kind> {
    Some(match element_type {
        ElementType::Boolean => Kind::Boolean,
        ElementType::String | ElementType::Dynamic => return None,
        ElementType::Nf4
        | ElementType::F4e2m1
        | ElementType::F8e4m3
        | ElementType::F8e5m2
        | ElementType::F8e8m0
        | ElementType::F16
        | ElementType::Bf16
        | ElementType::F32
        | ElementType::F64 => Kind::Float,
        _ => Kind::Integer,
    })
}

fn is_signed(element_type: ElementType) -> bool {
    matches!(element_type, ElementType::I4 | ElementType::I8 | ElementType::I16 | ElementType::I32 | ElementType::I64)
}

/// The narrowest integer type that holds both; none for u64 and a signed type.
fn promote_integers(a: ElementType, b: ElementType) -> Option<ElementType> {
    let wider = |a: ElementType, b: ElementType| if a.bits() >= b.bits() { a } else { b };
    match (is_signed(a), is_signed(b)) {
        (true, true) | (false, false) => Some(wider(a, b)),
        (true, false) => promote_signed(a, b),
        (false, true) => promote_signed(b, a),
    }
}

fn promote_signed(signed: ElementType, unsigned: ElementType) -> Option<ElementType> {
    const SIGNED: [ElementType; 5] =
        [ElementType::I4, ElementType::I8, ElementType::I16, ElementType::I32, ElementType::I64];
    let bits = signed.bits().max(unsigned.bits() * 2);
    SIGNED.into_iter().find(|t| t.bits() >= bits)
}

/// The narrowest floating-point type that holds the exponents and mantissas of both.
fn promote_floats(a: ElementType, b: ElementType) -> ElementType {
    const BY_WIDTH: [ElementType; 4] = [ElementType::F16, ElementType::Bf16, ElementType::F32, ElementType::F64];
    let ((exponent_a, mantissa_a), (exponent_b, mantissa_b)) = (float_bits(a), float_bits(b));
    let (exponent, mantissa) = (exponent_a.max(exponent_b), mantissa_a.max(mantissa_b));
    let holds = |t: &ElementType| float_bits(*t).0 >= exponent && float_bits(*t).1 >= mantissa;
    [a, b].into_iter().chain(BY_WIDTH).find(holds).unwrap_or(ElementType::F64)
}

/// The bits of exponent and mantissa.
fn float_bits(element_type: ElementType) -> (u32, u32) {
    match element_type {
        ElementType::F4e2m1 => (2, 1),
        ElementType::Nf4 => (2, 3),
        ElementType::F8e4m3 => (4, 3),
        ElementType::F8e5m2 => (5, 2),
        ElementType::F8e8m0 => (8, 0),
        ElementType::F16 => (5, 10),
        ElementType::Bf16 => (8, 7),
        ElementType::F32 => (8, 23),
        _ => (11, 52),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(promote_unsafe: &str) -> Case {
        Case::new("ConvertPromoteTypes", "opset14").attribute("promote_unsafe", promote_unsafe).outputs(2)
    }

    #[test]
    fn examples_1_to_3_of_the_specification() {
        assert_eq!(case("false").infer(&["f16[256,56]", "f32[3]"]), ["f32[256,56]", "f32[3]"]);
        assert_eq!(case("true").infer(&["i16[256,56]", "u32[3]"]), ["i64[256,56]", "i64[3]"]);
        assert_eq!(case("true").infer(&["i16[256,56]", "u64[3]"]), ["f32[256,56]", "f32[3]"]);
    }

    #[test]
    fn examples_of_the_text() {
        for (a, b, common, is_safe) in [
            ("i8", "f32", "f32", true),
            ("i32", "u8", "i32", true),
            ("f16", "i64", "f16", false),
            ("f64", "u64", "f64", false),
            ("i8", "u8", "i16", false),
            ("f16", "bf16", "f32", false),
            ("f8e4m3", "f8e5m2", "f16", false),
            ("u64", "i8", "f32", false),
            ("boolean", "u8", "u8", true),
        ] {
            for (x, y) in [(a, b), (b, a)] {
                let inputs = [format!("{x}[2]"), format!("{y}[2]")];
                let inputs = [inputs[0].as_str(), inputs[1].as_str()];
                assert_eq!(case("true").infer(&inputs)[0], format!("{common}[2]"), "{x} {y}");
                if is_safe {
                    assert_eq!(case("false").infer(&inputs)[1], format!("{common}[2]"), "{x} {y}");
                } else {
                    assert!(case("false").infer_error(&inputs).contains(&format!("would become {common}")));
                }
            }
        }
    }

    #[test]
    fn scalars_take_the_type_of_tensors() {
        let case = || case("true").attribute("pytorch_scalar_promotion", "true");
        assert_eq!(case().infer(&["i64[]", "u8[2]"]), ["u8[]", "u8[2]"]);
        assert_eq!(case().infer(&["f16[]", "i8[2]"]), ["f16[]", "f16[2]"]);
        let output = case().run(&[tensor(&[300i64], []), tensor(&[1u8], [1])]).unwrap();
        assert_eq!(output, [tensor(&[44u8], []), tensor(&[1u8], [1])]);
    }
}
