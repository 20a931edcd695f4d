//! # StringTensorPack
//! Strings cut out of UTF-8 bytes.
//!
//! Specification: `type/string-tensor-pack-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | begins | i32, i64 | any |
//! | in 1 | ends | that of `begins` | that of `begins` |
//! | in 2 | symbols | u8 | 1D |
//! | out 0 | | string | that of `begins` |
//!
//! A string is the bytes `[begin, end)` of `symbols`; strings may overlap and leave bytes out.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType};

use crate::common::index::{Indices, coordinates};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of StringTensorPack.
pub static STRING_TENSOR_PACK: OpDef = OpDef {
    type_name: "StringTensorPack",
    category: Category::Type,
    versions: &[OpVersion::new(15, (15, 16), (3, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A StringTensorPack layer.
#[derive(Debug)]
pub struct StringTensorPack;

impl Operation for StringTensorPack {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Index)?;
        context.require_same_type(&[0, 1])?;
        context.require_rank(2, 1..=1)?;
        if context.element_type(2).merge(ElementType::U8).is_none() {
            let message = format!("element type {} must be u8", context.element_type(2));
            return Err(OpError::element_type(Blame::Input(2), message));
        }
        let (begins, ends) = (context.shape(0), context.shape(1));
        let shape = begins.merge(ends).ok_or_else(|| {
            OpError::shape(Blame::Input(1), format!("shape {ends} must be that of input 0, {begins}"))
        })?;
        context.set_output(0, ElementType::String, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (begins, ends) = (Indices::new(context.input(0)?, 0)?, Indices::new(context.input(1)?, 1)?);
        let symbols = context.slice::<u8>(2)?;
        let shape = begins.shape();
        if ends.shape() != shape {
            let message = format!("shape {} must be that of input 0, {shape}", ends.shape());
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let text = |position: usize| text_of(&begins, &ends, symbols, position);
        let mut bytes = 0usize;
        for position in 0..begins.len() {
            bytes = bytes.saturating_add(text(position)?.len());
        }
        if let Some(limits) = context.environment().limits() {
            limits.claim(bytes)?;
        }
        let mut output = context.output(0, shape)?;
        for (position, string) in output.strings_mut().unwrap_or_default().iter_mut().enumerate() {
            text(position)?.clone_into(string);
        }
        Ok(())
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(StringTensorPack)
}

/// The string at a row-major position.
fn text_of<'s>(begins: &Indices<'_>, ends: &Indices<'_>, symbols: &'s [u8], position: usize) -> OpResult<&'s str> {
    let (begin, end) = (begins.get(position), ends.get(position));
    let range = usize::try_from(begin).ok().zip(usize::try_from(end).ok());
    let bytes = range.and_then(|(begin, end)| symbols.get(begin..end)).ok_or_else(|| {
        let place = coordinates(position, begins.shape());
        let message =
            format!("the string at position {place} is [{begin}, {end}) of {} bytes of symbols", symbols.len());
        let port = if begin < 0 { 0 } else { 1 };
        OpError::index(Blame::Input(port), message)
    })?;
    std::str::from_utf8(bytes).map_err(|error| {
        let place = coordinates(position, begins.shape());
        let message = format!("the bytes [{begin}, {end}) of the string at position {place} are no UTF-8: {error}");
        OpError::value(Blame::Input(2), message)
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::{Shape, Tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("StringTensorPack", "opset15")
    }

    fn strings(values: &[&str], shape: impl Into<Shape>) -> Tensor {
        Tensor::from_strings(values.iter().map(|v| (*v).to_owned()).collect(), shape).unwrap()
    }

    fn pack(begins: &[i64], ends: &[i64], symbols: &str, shape: impl Into<Shape>) -> crate::OpResult<Tensor> {
        let shape: Shape = shape.into();
        let bytes = symbols.as_bytes();
        let inputs = [tensor(begins, shape.clone()), tensor(ends, shape), tensor(bytes, [bytes.len()])];
        Ok(case().run(&inputs)?.remove(0))
    }

    #[test]
    fn examples_of_the_specification() {
        let packed = pack(&[0, 5], &[5, 13], "IntelOpenVINO", [2]).unwrap();
        assert_eq!(packed, strings(&["Intel", "OpenVINO"], [2]));
        let packed = pack(&[0, 3, 3, 8, 9], &[3, 3, 8, 9, 13], "OMZGenAI 2024", [5]).unwrap();
        assert_eq!(packed, strings(&["OMZ", "", "GenAI", " ", "2024"], [5]));
        assert_eq!(pack(&[0, 8], &[1, 9], "123456789", [2]).unwrap(), strings(&["1", "9"], [2]));
        let packed = pack(&[0, 5, 13, 16], &[5, 13, 16, 21], "IntelOpenVINOOMZGenAI", [2, 2]).unwrap();
        assert_eq!(packed, strings(&["Intel", "OpenVINO", "OMZ", "GenAI"], [2, 2]));
    }

    #[test]
    fn strings_may_overlap_and_none_is_needed() {
        assert_eq!(pack(&[2, 0], &[5, 3], "abcde", [2]).unwrap(), strings(&["cde", "abc"], [2]));
        assert_eq!(pack(&[], &[], "abc", [0]).unwrap(), strings(&[], [0]));
    }

    #[test]
    fn ranges_and_bytes_are_checked() {
        let error = |begin: i64, end: i64, text: &str| pack(&[begin], &[end], text, [1]).unwrap_err().to_string();
        assert_eq!(error(0, 9, "abc"), "input 1: the string at position [0] is [0, 9) of 3 bytes of symbols");
        assert_eq!(error(-1, 2, "abc"), "input 0: the string at position [0] is [-1, 2) of 3 bytes of symbols");
        assert!(error(2, 1, "abc").contains("[2, 1)"));
        assert!(error(0, 1, "ä").contains("are no UTF-8"));
    }

    #[test]
    fn types_and_shapes_are_checked() {
        assert_eq!(case().infer(&["i32[2,?]", "i32[?,3]", "u8[?]"]), ["string[2,3]"]);
        assert!(case().infer_error(&["i32[2]", "i64[2]", "u8[?]"]).contains("differs"));
        assert!(case().infer_error(&["i32[2]", "i32[3]", "u8[?]"]).contains("must be that of input 0"));
        assert!(case().infer_error(&["i32[2]", "i32[2]", "i8[?]"]).contains("must be u8"));
        assert!(case().infer_error(&["i32[2]", "i32[2]", "u8[1,?]"]).contains("rank 2"));
        assert!(case().infer_error(&["u8[2]", "u8[2]", "u8[?]"]).contains("i32 or i64"));
        case().assert_monotone(&["i64[2]", "i64[2]", "u8[5]"]);
    }
}
