//! # StringTensorUnpack
//! Strings as UTF-8 bytes, one after the other, and where each begins and ends.
//!
//! Specification: `type/string-tensor-unpack-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | string | any |
//! | out 0 | begins | i32 | that of `data` |
//! | out 1 | ends | i32 | that of `data` |
//! | out 2 | symbols | u8 | 1D |

use std::sync::Arc;

use ovir_diagnostics::Code;
use ovir_tensor::{Dim, ElementType, PartialShape, Shape};

use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of StringTensorUnpack.
pub static STRING_TENSOR_UNPACK: OpDef = OpDef {
    type_name: "StringTensorUnpack",
    category: Category::Type,
    versions: &[OpVersion::new(15, (15, 16), (1, 1), (3, 3))],
    attributes: &[],
    build,
};

/// A StringTensorUnpack layer.
#[derive(Debug)]
pub struct StringTensorUnpack;

impl Operation for StringTensorUnpack {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        if context.element_type(0).merge(ElementType::String).is_none() {
            let message = format!("element type {} must be string", context.element_type(0));
            return Err(OpError::element_type(Blame::Input(0), message));
        }
        let shape = context.shape(0).clone();
        let bytes = match context.constant(0).and_then(|tensor| tensor.strings()) {
            Some(strings) => Dim::fixed(strings.iter().map(String::len).sum()),
            None => context.new_dim(0, i64::from(i32::MAX)),
        };
        context.set_output(0, ElementType::I32, shape.clone());
        context.set_output(1, ElementType::I32, shape);
        context.set_output(2, ElementType::U8, PartialShape::from_dims([bytes]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let strings = data.strings().unwrap_or_default();
        let bytes = strings.iter().fold(0usize, |sum, string| sum.saturating_add(string.len()));
        if i32::try_from(bytes).is_err() {
            let message = format!("the strings take {bytes} bytes, which positions of type i32 cannot count");
            return Err(OpError::new(Code::LimitExceeded, Blame::Input(0), message));
        }
        let mut outputs = context.all_outputs(&[data.shape().clone(), data.shape().clone(), Shape::from([bytes])])?;
        let [begins, ends, symbols] = outputs.as_mut_slice() else { return Ok(()) };
        let (begins, ends) = (begins.slice_mut::<i32>()?, ends.slice_mut::<i32>()?);
        let symbols = symbols.slice_mut::<u8>()?;
        let mut start = 0;
        for ((string, begin), end) in strings.iter().zip(begins).zip(ends) {
            let stop = start + string.len();
            symbols[start..stop].copy_from_slice(string.as_bytes());
            (*begin, *end) = (start as i32, stop as i32);
            start = stop;
        }
        Ok(())
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(StringTensorUnpack)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::{Shape, Tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("StringTensorUnpack", "opset15").outputs(3)
    }

    fn unpack(values: &[&str], shape: impl Into<Shape>) -> Vec<Tensor> {
        let strings = values.iter().map(|v| (*v).to_owned()).collect();
        case().run(&[Tensor::from_strings(strings, shape).unwrap()]).unwrap()
    }

    #[test]
    fn examples_of_the_specification() {
        let outputs = unpack(&["Intel", "OpenVINO"], [2]);
        assert_eq!(outputs[0], tensor(&[0i32, 5], [2]));
        assert_eq!(outputs[1], tensor(&[5i32, 13], [2]));
        assert_eq!(outputs[2], tensor(b"IntelOpenVINO", [13]));
        let outputs = unpack(&["OMZ", "", "GenAI", " ", "2024"], [5]);
        assert_eq!(outputs[0], tensor(&[0i32, 3, 3, 8, 9], [5]));
        assert_eq!(outputs[1], tensor(&[3i32, 3, 8, 9, 13], [5]));
        let outputs = unpack(&["Intel", "OpenVINO", "OMZ", "GenAI"], [2, 2]);
        assert_eq!(outputs[0], tensor(&[0i32, 5, 13, 16], [2, 2]));
        assert_eq!(outputs[2], tensor(b"IntelOpenVINOOMZGenAI", [21]));
    }

    #[test]
    fn bytes_are_counted_and_none_is_needed() {
        assert_eq!(unpack(&["äö"], [])[1], tensor(&[4i32], []));
        assert_eq!(unpack(&[], [0, 2])[2], tensor::<u8>(&[], [0]));
    }

    #[test]
    fn types_and_shapes() {
        assert_eq!(case().infer(&["string[2,?]"]), ["i32[2,?]", "i32[2,?]", "u8[..2147483647]"]);
        assert!(case().infer_error(&["u8[2]"]).contains("must be string"));
        case().assert_monotone(&["string[2,3]"]);
    }
}
