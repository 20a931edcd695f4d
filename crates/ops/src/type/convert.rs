//! # Convert
//! Every element in another element type.
//!
//! Specification: `type/convert-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any type but string | any |
//! | out 0 | | `destination_type` | that of `data` |
//!
//! Integers wrap, floating-point types round to nearest, and floating-point numbers become integers by truncation. What
//! the specification leaves undefined (numbers that do not fit an integer type, NaN) follows OpenVINO on x86: targets of
//! up to 32 bits take the low bits of an i32, u32 those of an i64, and numbers beyond these become their smallest value.

use std::sync::Arc;

use ovir_tensor::{Bounds, ElementClass, ElementType};

use crate::common::conversion::convert;
use crate::common::value::truth;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Convert.
pub static CONVERT: OpDef = OpDef {
    type_name: "Convert",
    category: Category::Type,
    versions: &[OpVersion::new(1, (1, 17), (1, 1), (1, 1))],
    attributes: ConvertAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Convert.
    pub struct ConvertAttributes {
        /// The element type of the output.
        destination_type: ElementType = "destination_type", required true;
    }
}

/// A Convert layer.
#[derive(Debug)]
pub struct Convert {
    /// The attributes.
    pub attributes: ConvertAttributes,
}

impl Operation for Convert {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_conversion(context, 0, 0, self.attributes.destination_type)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let mut output = context.output(0, input.shape())?;
        convert(input, &mut output)
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ConvertAttributes::read(context.attributes);
    // A text that is no element type at all was reported when it was read.
    let is_written = |text: &str| text.parse::<ElementType>() == Ok(ElementType::Dynamic);
    if context.attributes.text("destination_type").is_some_and(is_written) {
        context.attributes.report(OpError::attribute("destination_type", "`destination_type` must be a known type"));
    }
    Arc::new(Convert { attributes })
}

/// Output `output` is input `input` in another element type; small integer values are followed.
///
/// # Errors
/// When a string is to become a number, or a number a string.
pub(crate) fn infer_conversion(
    context: &mut InferContext<'_>,
    input: usize,
    output: usize,
    destination: ElementType,
) -> OpResult {
    let source = context.element_type(input);
    let differs = source.is_known() && destination.is_known() && source != destination;
    if differs && (source == ElementType::String || destination == ElementType::String) {
        let message = format!("element type {source} cannot be converted to {destination}");
        return Err(OpError::element_type(Blame::Input(input), message));
    }
    let shape = context.shape(input).clone();
    context.set_output(output, destination, shape);
    let Some(bounds) = context.bounds(input) else { return Ok(()) };
    if destination == ElementType::Boolean {
        let values = bounds.values.iter().map(|v| truth(v.min > 0 || v.max < 0, v.get() == Some(0))).collect();
        context.set_bounds(output, Bounds { shape: bounds.shape.clone(), values });
    } else if destination.is(ElementClass::Integer) && destination.is_known() {
        context.set_bounds(output, bounds.clone());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use ovir_tensor::{ElementType, Tensor, bf16, f16};
    use pretty_assertions::assert_eq;

    fn case(destination: &str) -> Case {
        Case::new("Convert", "opset1").attribute("destination_type", destination)
    }

    fn run(destination: &str, source: Tensor) -> Tensor {
        case(destination).run(&[source]).unwrap().remove(0)
    }

    #[test]
    fn example_of_the_specification() {
        assert_eq!(case("f32").infer(&["i32[256,56]"]), ["f32[256,56]"]);
        assert_eq!(run("u32", tensor(&[-1i32], [1])), tensor(&[u32::MAX], [1]));
    }

    #[test]
    fn floats_truncate_as_openvino_does_where_they_do_not_fit() {
        let source =
            || tensor(&[-0.9f32, 1.5, -1.5, 255.5, 300.0, -129.0, 1e10, 1e20, f32::NAN, f32::NEG_INFINITY], [10]);
        assert_eq!(run("u8", source()), tensor(&[0u8, 1, 255, 255, 44, 127, 0, 0, 0, 0], [10]));
        assert_eq!(run("i8", source()), tensor(&[0i8, 1, -1, -1, 44, 127, 0, 0, 0, 0], [10]));
        let least = i32::MIN;
        assert_eq!(run("i32", source()), tensor(&[0, 1, -1, 255, 300, -129, least, least, least, least], [10]));
        let wide = [0, 1, -1, 255, 300, -129, 10_000_000_000, i64::MIN, i64::MIN, i64::MIN];
        assert_eq!(run("i64", source()), tensor(&wide, [10]));
        let narrow = [0u32, 1, u32::MAX, 255, 300, u32::MAX - 128, 1_410_065_408, 0, 0, 0];
        assert_eq!(run("u32", source()), tensor(&narrow, [10]));
        let top = 1u64 << 63;
        let unsigned = [0u64, 1, u64::MAX, 255, 300, u64::MAX - 128, 10_000_000_000, 0, top, top];
        assert_eq!(run("u64", source()), tensor(&unsigned, [10]));
    }

    #[test]
    fn integers_wrap_and_floats_round_once() {
        assert_eq!(run("i8", tensor(&[300i64, -129], [2])), tensor(&[44i8, 127], [2]));
        assert_eq!(run("f32", tensor(&[16_777_217i32], [1])), tensor(&[16_777_216f32], [1]));
        assert_eq!(
            run("f16", tensor(&[65519.99f64, 65520.0, 0.1], [3])),
            tensor(&[f16::from_f32(65504.0), f16::INFINITY, f16::from_f64(0.1)], [3])
        );
        assert_eq!(run("bf16", tensor(&[1.0f32, 0.1], [2])), tensor(&[bf16::ONE, bf16::from_f32(0.1)], [2]));
        assert_eq!(run("f64", tensor(&[u64::MAX], [1])), tensor(&[18_446_744_073_709_551_615f64], [1]));
    }

    #[test]
    fn every_number_but_zero_is_true() {
        let floats = tensor(&[0f32, -0.0, 0.1, f32::NAN], [4]);
        assert_eq!(run("boolean", floats), booleans(&[false, false, true, true], [4]));
        assert_eq!(run("boolean", tensor(&[0i64, 256], [2])), booleans(&[false, true], [2]));
        assert_eq!(run("f16", booleans(&[true, false], [2])), tensor(&[f16::ONE, f16::ZERO], [2]));
    }

    #[test]
    fn packed_types_are_decoded_and_encoded() {
        let values: Vec<i8> = (0..600).map(|i| (i % 16) as i8 - 8).collect();
        let packed = run("i4", tensor(&values, [600]));
        assert_eq!(packed.bytes().len(), 300);
        assert_eq!(run("i8", packed.clone()), tensor(&values, [600]));
        let floats: Vec<f32> = values.iter().map(|v| f32::from(*v)).collect();
        assert_eq!(run("f32", packed), tensor(&floats, [600]));
        let large = tensor(&[2_147_483_000f64, -1.0, 15.9], [3]);
        assert_eq!(run("u8", run("u4", large)), tensor(&[8u8, 15, 15], [3]));
        let eight = Tensor::from_bytes(ElementType::F8e4m3, [2], &[0x38, 0xc0]).unwrap();
        assert_eq!(run("f32", eight.clone()), tensor(&[1f32, -2.0], [2]));
        assert_eq!(run("f8e4m3", tensor(&[1f32, -2.0], [2])), eight);
        let three: Vec<u8> = (0..300).map(|i| (i % 8) as u8).collect();
        assert_eq!(run("u8", run("u3", tensor(&three, [300]))), tensor(&three, [300]));
    }

    #[test]
    fn values_follow_where_they_fit() {
        assert_eq!(case("i32").infer(&["i64[2]=1..5,7"]), ["i32[2]=1..5,7"]);
        assert_eq!(case("u8").infer(&["i64[2]=1..500,7"]), ["u8[2]=..,7"]);
        assert_eq!(case("boolean").infer(&["i64[3]=1..5,0,0..2"]), ["boolean[3]=1,0,0..1"]);
        assert_eq!(case("f32").infer(&["i64[2]=1..5,7"]), ["f32[2]"]);
        assert_eq!(case("f32").infer_error(&["string[2]"]), "input 0: element type string cannot be converted to f32");
    }

    #[test]
    fn inference_is_monotone() {
        case("i32").assert_monotone(&["i64[3]=1,2,-3"]);
        case("boolean").assert_monotone(&["i64[3]=0,2,-3"]);
    }
}
