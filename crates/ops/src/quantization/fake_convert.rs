//! # FakeConvert
//! Elements rounded to the values of an 8-bit floating-point type, scaled and shifted before and back after.
//!
//! Specification: `quantization/fake-convert-13`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 | any |
//! | in 1 | scale | that of `data` | broadcast to `data` |
//! | in 2 | shift | that of `data` | that of `scale`; zeros if absent |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Computed in f32. The specification does not say what becomes of values beyond the type: as OpenVINO does, they become its largest
//! ones, infinities too. NaN stays NaN (OpenVINO makes 448 or 57344 of it).

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, SmallVec, dispatch, packed};

use super::fake_quantize::{may_broadcast_to, misfit};
use crate::common::broadcast::{broadcast_shapes, broadcast_strides, for_each_offset};
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of FakeConvert.
pub static FAKE_CONVERT: OpDef = OpDef {
    type_name: "FakeConvert",
    category: Category::Quantization,
    versions: &[OpVersion::new(13, (13, 16), (2, 3), (1, 1))],
    attributes: FakeConvertAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// The type whose values are taken.
    pub enum FakeConvertType {
        /// Four bits of exponent, three of fraction; no infinities.
        #[default]
        F8e4m3 = "f8e4m3",
        /// Five bits of exponent, two of fraction.
        F8e5m2 = "f8e5m2",
    }
}

crate::attributes! {
    /// Attributes of FakeConvert.
    pub struct FakeConvertAttributes {
        /// The type whose values are taken.
        destination_type: FakeConvertType = "destination_type", required true;
    }
}

/// A FakeConvert layer.
#[derive(Debug)]
pub struct FakeConvert {
    /// The attributes.
    pub attributes: FakeConvertAttributes,
}

impl Operation for FakeConvert {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports: SmallVec<[usize; 8]> = (0..context.input_count()).collect();
        for &port in &ports {
            context.require_class(port, ElementClass::Float)?;
            if context.element_type(port) == ElementType::F64 {
                let message = "element type f64 must be one of f16, bf16, f32";
                return Err(OpError::element_type(Blame::Input(port), message));
            }
        }
        let element_type = context.require_same_type(&ports)?;
        let data = context.shape(0);
        for &port in &ports[1..] {
            if !may_broadcast_to(context.shape(port), data) {
                return Err(misfit(port, context.shape(port), data));
            }
        }
        let (scale, shift) = (context.shape(1), context.shape(2));
        if ports.len() > 2 && !scale.compatible(shift) {
            let message = format!("shape {shift} of the shift must be that of the scale, {scale}");
            return Err(OpError::shape(Blame::Input(2), message));
        }
        context.set_output(0, element_type, data.clone());
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, scale) = (context.input(0)?, context.input(1)?);
        let shift = if context.input_count() > 2 { Some(context.input(2)?) } else { None };
        let shape = data.shape();
        for (port, factor) in [Some(scale), shift].into_iter().flatten().enumerate() {
            if broadcast_shapes(shape, factor.shape()).as_ref() != Some(shape) || factor.shape() != scale.shape() {
                return Err(misfit(port + 1, factor.shape(), shape));
            }
        }
        let strides = broadcast_strides(scale.shape(), shape);
        let element_type = data.element_type();
        let mut output = context.output(0, shape)?;
        dispatch!(element_type, T in [float] => {
            let (values, scales, target) = (data.slice::<T>()?, scale.slice::<T>()?, output.slice_mut::<T>()?);
            let shifts = shift.map(|s| s.slice::<T>()).transpose()?;
            let mut position = 0;
            for_each_offset(shape, [&strides], |[i]| {
                let narrow = |value: T| Number::to_f64(value) as f32;
                let shift = shifts.map_or(0.0, |shifts| narrow(shifts[i]));
                let value = self.rounded(narrow(values[position]), narrow(scales[i]), shift);
                target[position] = T::from_f64(f64::from(value));
                position += 1;
            });
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(13)
    }
}

impl FakeConvert {
    fn rounded(&self, value: f32, scale: f32, shift: f32) -> f32 {
        let (element_type, largest) = match self.attributes.destination_type {
            FakeConvertType::F8e4m3 => (ElementType::F8e4m3, 448.0),
            FakeConvertType::F8e5m2 => (ElementType::F8e5m2, 57344.0),
        };
        let moved = (value * scale - shift).clamp(-largest, largest);
        (packed::decode(element_type, packed::encode(element_type, moved)) + shift) / scale
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(FakeConvert { attributes: FakeConvertAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::f16;
    use pretty_assertions::assert_eq;

    fn case(destination: &str) -> Case {
        Case::new("FakeConvert", "opset13").attribute("destination_type", destination)
    }

    #[test]
    fn values_are_rounded_and_saturate() {
        let values = [1.0625f32, 19.0, 465.0, -1e5, f32::INFINITY, 0.0015, -0.0];
        let output = case("f8e4m3").run(&[tensor(&values, [7]), tensor(&[1f32], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 20.0, 448.0, -448.0, 448.0, 0.001953125, 0.0], [7]));
        let output = case("f8e5m2").run(&[tensor(&values, [7]), tensor(&[1f32], [])]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 20.0, 448.0, -57344.0, 57344.0, 0.0014648438, 0.0], [7]));
        let output = case("f8e5m2").run(&[tensor(&[f32::NAN], [1]), tensor(&[1f32], [1])]).unwrap();
        assert!(output[0].slice::<f32>().unwrap()[0].is_nan());
    }

    #[test]
    fn scale_and_shift_are_undone() {
        let data = tensor(&[1f32, 2.0, 3.0, 4.0], [2, 2]);
        let inputs = [data, tensor(&[10f32, 20.0], [2]), tensor(&[0f32, 1.0], [2])];
        // 10, 39, 30 and 79 become 10, 40, 30 and 80.
        assert_eq!(case("f8e4m3").run(&inputs).unwrap()[0], tensor(&[1f32, 2.05, 3.0, 4.05], [2, 2]));
        let halves = [tensor(&[f16::from_f32(1.0625)], [1]), tensor(&[f16::ONE], [1])];
        assert_eq!(case("f8e4m3").run(&halves).unwrap()[0], tensor(&[f16::ONE], [1]));
    }

    #[test]
    fn types_and_shapes_are_checked() {
        let plain = || case("f8e4m3");
        assert_eq!(plain().infer(&["f32[1,64,?]", "f32[64,1]", "f32[64,1]"]), ["f32[1,64,?]"]);
        assert!(plain().infer_error(&["f64[2]", "f64[1]"]).contains("must be one of f16, bf16, f32"));
        assert!(plain().infer_error(&["f32[2]", "f16[1]"]).contains("differs"));
        assert!(plain().infer_error(&["f32[2]", "f32[3]"]).contains("cannot be broadcast to shape [2]"));
        assert!(plain().infer_error(&["f32[2]", "f32[1,2]"]).contains("cannot be broadcast"));
        assert!(plain().infer_error(&["f32[2]", "f32[2]", "f32[1]"]).contains("must be that of the scale"));
        assert_eq!(case("f16").attribute_errors(2).len(), 1);
        plain().assert_monotone(&["f32[2,3]", "f32[3]", "f32[3]"]);
    }
}
