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

use ovir_tensor::{ElementClass, ElementType, Shape, SmallVec, dispatch};

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
        // Innermost axes along which the scale stays the same are a run.
        let repeated = strides.iter().rev().take_while(|stride| **stride == 0).count();
        let (outer, inner) = shape.split_at(shape.rank() - repeated);
        let run = inner.iter().product::<usize>();
        let (outer, strides) = (Shape::from(outer), &strides[..outer.len()]);
        let element_type = data.element_type();
        let format = Format::of(self.attributes.destination_type);
        let mut output = context.output(0, shape)?;
        dispatch!(element_type, T in [float] => {
            let (values, scales, target) = (data.slice::<T>()?, scale.slice::<T>()?, output.slice_mut::<T>()?);
            let shifts = shift.map(|s| s.slice::<T>()).transpose()?;
            let narrow = |value: T| Number::to_f64(value) as f32;
            let mut runs = values.chunks_exact(run.max(1)).zip(target.chunks_exact_mut(run.max(1)));
            for_each_offset(&outer, [strides], |[i]| {
                let Some((values, target)) = runs.next() else { return };
                let (scale, shift) = (narrow(scales[i]), shifts.map_or(0.0, |shifts| narrow(shifts[i])));
                for (target, value) in target.iter_mut().zip(values) {
                    let rounded = (format.nearest(narrow(*value) * scale - shift) + shift) / scale;
                    *target = T::from_f64(f64::from(rounded));
                }
            });
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(13)
    }
}

/// What rounding to a floating-point type needs to know of it.
#[derive(Clone, Copy)]
struct Format {
    /// The bits of an f32's fraction that the type does not have.
    dropped: u32,
    /// The smallest number with all bits of its fraction.
    least_normal: f32,
    /// The number whose last place, as an f32, is the smallest number of the type.
    anchor: f32,
    /// The largest number.
    largest: f32,
}

impl Format {
    // The smallest numbers are 2^-24, 2^-9 and 2^-16.
    const F16: Format = Format { dropped: 13, least_normal: 6.103_515_6e-5, anchor: 0.5, largest: 65504.0 };
    const F8E4M3: Format = Format { dropped: 20, least_normal: 0.015_625, anchor: 16_384.0, largest: 448.0 };
    const F8E5M2: Format = Format { dropped: 21, least_normal: 6.103_515_6e-5, anchor: 128.0, largest: 57344.0 };

    fn of(destination: FakeConvertType) -> Format {
        match destination {
            FakeConvertType::F8e4m3 => Format::F8E4M3,
            FakeConvertType::F8e5m2 => Format::F8E5M2,
        }
    }

    /// The nearest number to a positive one that is not larger than all, halves to even.
    #[inline]
    fn rounded(self, magnitude: f32) -> f32 {
        let bits = magnitude.to_bits();
        let is_odd = (bits >> self.dropped) & 1;
        let carried = bits + ((1 << (self.dropped - 1)) - 1) + is_odd;
        let normal = f32::from_bits(carried >> self.dropped << self.dropped);
        // The sum has no place for less than the smallest number.
        let subnormal = (magnitude + self.anchor) - self.anchor;
        if magnitude < self.least_normal { subnormal } else { normal }
    }

    /// The number that a value becomes, which is rounded to f16 before, as conversions to these types are.
    #[inline]
    fn nearest(self, value: f32) -> f32 {
        let magnitude = value.abs();
        let within = if magnitude < self.largest { magnitude } else { self.largest };
        let rounded = self.rounded(Format::F16.rounded(within));
        let kept = if value.is_nan() { value } else { rounded };
        kept.copysign(value)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(FakeConvert { attributes: FakeConvertAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use super::{FakeConvertType, Format};
    use crate::testing::{Case, tensor};
    use ovir_tensor::{ElementType, f16, packed};
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
    fn rounding_is_that_of_the_types() {
        for (destination, element_type, largest) in [
            (FakeConvertType::F8e4m3, ElementType::F8e4m3, 448.0),
            (FakeConvertType::F8e5m2, ElementType::F8e5m2, 57344.0),
        ] {
            let format = Format::of(destination);
            for value in (0..1u32 << 20).map(|bits| f32::from_bits(bits << 12 | bits & 1)) {
                let clamped = value.clamp(-largest, largest);
                let expected = packed::decode(element_type, packed::encode(element_type, clamped));
                let found = format.nearest(value);
                let is_same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
                assert!(is_same, "{value:e} becomes {found:e}, not {expected:e}");
            }
        }
    }

    #[test]
    fn runs_have_one_scale() {
        let data: Vec<f32> = (0..24).map(|i| i as f32 * 0.37 - 3.0).collect();
        for shape in [[2usize, 3, 4], [2, 1, 1], [1, 3, 1], [1, 1, 4], [2, 3, 1], [1, 1, 1]] {
            let count = shape.iter().product();
            let scales: Vec<f32> = (0..count).map(|i| 1.0 + i as f32).collect();
            let shifts: Vec<f32> = (0..count).map(|i| i as f32 * 0.5).collect();
            let inputs = [tensor(&data, [2, 3, 4]), tensor(&scales, shape), tensor(&shifts, shape)];
            let output = case("f8e4m3").run(&inputs).unwrap();
            let format = Format::of(FakeConvertType::F8e4m3);
            for (index, value) in output[0].slice::<f32>().unwrap().iter().enumerate() {
                let place = [index / 12, index / 4 % 3, index % 4];
                let at = (0..3).fold(0, |at, axis| at * shape[axis] + place[axis] % shape[axis]);
                assert_eq!(*value, (format.nearest(data[index] * scales[at] - shifts[at]) + shifts[at]) / scales[at]);
            }
        }
        let empty = [tensor::<f32>(&[], [2, 0]), tensor(&[1f32], [1])];
        assert_eq!(case("f8e4m3").run(&empty).unwrap()[0], empty[0]);
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
