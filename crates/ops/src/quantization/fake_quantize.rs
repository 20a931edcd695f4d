//! # FakeQuantize
//! Floating-point numbers quantised to a number of levels within an input range, and brought to an output range.
//!
//! Specification: `quantization/fake-quantize-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | X | any floating-point type | any |
//! | in 1 | input_low | that of `X` | broadcastable to `X` |
//! | in 2 | input_high | that of `X` | broadcastable to `X` |
//! | in 3 | output_low | that of `X` | broadcastable to `X` |
//! | in 4 | output_high | that of `X` | broadcastable to `X` |
//! | out 0 | | that of `X` | that of `X` |
//!
//! Levels are rounded to even halves. f16, bf16 and f32 are computed step by step in f32, as the formula says, so that
//! numbers near the border of two levels fall as they do elsewhere. NaN stays NaN.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, PartialShape, Shape, SmallVec, TensorView, dispatch};

use crate::common::broadcast::{
    AutoBroadcast, BroadcastAttributes, broadcast_shapes, broadcast_strides, for_each_offset,
};
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    AttributeDef, Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation,
};

/// The definition of FakeQuantize.
pub static FAKE_QUANTIZE: OpDef = OpDef {
    type_name: "FakeQuantize",
    category: Category::Quantization,
    versions: &[OpVersion::new(1, (1, 16), (5, 5), (1, 1))],
    attributes: ATTRIBUTES,
    build,
};

const ATTRIBUTES: &[AttributeDef] =
    &[FakeQuantizeAttributes::DEFINITIONS[0], BroadcastAttributes::DEFINITIONS[0], BroadcastAttributes::DEFINITIONS[1]];

crate::attributes! {
    /// The attribute of FakeQuantize beside those of broadcasting.
    pub struct FakeQuantizeAttributes {
        /// The number of levels.
        levels: u64 = "levels", required true;
    }
}

/// A FakeQuantize layer.
#[derive(Debug)]
pub struct FakeQuantize {
    /// The number of levels.
    pub levels: u64,
    /// How the limits are brought to the shape of the data.
    pub broadcast: BroadcastAttributes,
}

impl Operation for FakeQuantize {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1, 2, 3, 4])?;
        let data = context.shape(0);
        for port in 1..5 {
            let limit = context.shape(port);
            let fits = match self.broadcast.auto_broadcast {
                AutoBroadcast::Numpy => may_broadcast_to(limit, data),
                _ => self.broadcast.infer(context, (0, port)).map(|_| true)?,
            };
            if !fits {
                return Err(misfit(port, limit, data));
            }
        }
        context.set_output(0, element_type, data.clone());
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let shape = data.shape();
        let limits = [context.input(1)?, context.input(2)?, context.input(3)?, context.input(4)?];
        let mut strides: [SmallVec<[usize; 8]>; 4] = Default::default();
        for (port, (stride, limit)) in strides.iter_mut().zip(limits).enumerate() {
            *stride = self.strides(limit, shape, port + 1)?;
        }
        let element_type = data.element_type();
        let steps = (self.levels - 1) as f64;
        let mut output = context.output(0, shape)?;
        let strides = [&strides[0][..], &strides[1], &strides[2], &strides[3]];
        dispatch!(element_type, T in [float] => {
            let (x, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
            let [a, b, c, d] =
                [limits[0].slice::<T>()?, limits[1].slice::<T>()?, limits[2].slice::<T>()?, limits[3].slice::<T>()?];
            let mut position = 0;
            let wide = element_type == ElementType::F64;
            for_each_offset(shape, strides, |[i, j, k, l]| {
                let numbers = [x[position], a[i], b[j], c[k], d[l]].map(Number::to_f64);
                let value =
                    if wide { quantize_f64(numbers, steps) } else { f64::from(quantize_f32(numbers.map(|v| v as f32), steps as f32)) };
                target[position] = T::from_f64(value);
                position += 1;
            });
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        let mut written = FakeQuantizeAttributes { levels: self.levels }.print(1);
        written.extend(self.broadcast.printed(1));
        written
    }
}

impl FakeQuantize {
    fn strides(&self, limit: TensorView<'_>, shape: &Shape, port: usize) -> OpResult<SmallVec<[usize; 8]>> {
        let aligned = self.broadcast.aligned_second(shape, limit.shape());
        if broadcast_shapes(shape, &aligned).as_ref() != Some(shape) {
            return Err(misfit(port, limit.shape(), shape));
        }
        Ok(broadcast_strides(&aligned, shape))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let levels = FakeQuantizeAttributes::read(context.attributes).levels;
    if levels < 2 && context.attributes.text("levels").is_some() {
        let message = format!("`levels` is {levels}, which must be at least 2");
        context.attributes.report(OpError::attribute("levels", message));
    }
    Arc::new(FakeQuantize { levels: levels.max(2), broadcast: BroadcastAttributes::read(context.attributes) })
}

/// Whether some shape that `limit` describes is broadcast to some shape that `data` describes.
pub(crate) fn may_broadcast_to(limit: &PartialShape, data: &PartialShape) -> bool {
    let (Some(limit), Some(data)) = (limit.dims(), data.dims()) else {
        return true;
    };
    let leading = limit.len().saturating_sub(data.len());
    leading == 0 && data.iter().rev().zip(limit.iter().rev()).all(|(d, l)| l.contains(1) || l.compatible(*d))
}

/// The error of a limit or factor that does not fit the data.
pub(crate) fn misfit(port: usize, limit: impl std::fmt::Display, data: impl std::fmt::Display) -> OpError {
    OpError::shape(Blame::Input(port), format!("shape {limit} cannot be broadcast to shape {data} of input 0"))
}

macro_rules! quantize {
    ($(#[$doc:meta])* $visibility:vis $name:ident, $float:ty) => {
        $(#[$doc])*
        $visibility fn $name([x, input_low, input_high, output_low, output_high]: [$float; 5], steps: $float) -> $float {
            if x <= input_low.min(input_high) {
                return output_low;
            }
            if x > input_low.max(input_high) {
                return output_high;
            }
            let level = ((x - input_low) / (input_high - input_low) * steps).round_ties_even();
            level / steps * (output_high - output_low) + output_low
        }
    };
}
quantize! {
    /// The specification's expression for a number, the limits of input and output, and one less than the levels, in f32.
    #[must_use]
    pub quantize_f32, f32
}
quantize! {
    /// The same in f64.
    quantize_f64, f64
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(levels: &str) -> Case {
        Case::new("FakeQuantize", "opset1").attribute("levels", levels)
    }

    #[test]
    fn example_of_the_specification() {
        assert_eq!(
            case("2").infer(&["f32[1,64,56,56]", "f32[1,64,1,1]", "f32[1,64,1,1]", "f32[1,1,1,1]", "f32[1,1,1,1]"]),
            ["f32[1,64,56,56]"]
        );
    }

    #[test]
    fn numbers_fall_on_levels() {
        let [low, high, out_low, out_high] = [0f32, 4.0, 10.0, 50.0].map(|v| tensor(&[v], []));
        let data = tensor(&[-1f32, 0.5, 1.4, 1.5, 2.5, 9.0], [6]);
        let output = case("5").run(&[data, low, high, out_low, out_high]).unwrap();
        assert_eq!(output[0], tensor(&[10f32, 10.0, 20.0, 30.0, 30.0, 50.0], [6]));
    }

    #[test]
    fn limits_per_channel() {
        let data = tensor(&[0.6f32, 0.6, 0.6, 0.6], [1, 2, 2]);
        let low = tensor(&[0f32, 0.7], [2, 1]);
        let high = tensor(&[1f32, 0.7], [2, 1]);
        let output = case("2").run(&[data, low, high, tensor(&[-1f32], [1]), tensor(&[1f32], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 1.0, -1.0, -1.0], [1, 2, 2]));
    }

    #[test]
    fn limits_must_fit() {
        assert_eq!(
            case("256").infer_error(&["f32[1,64,56]", "f32[32,1]", "f32[]", "f32[]", "f32[]"]),
            "input 1: shape [32,1] cannot be broadcast to shape [1,64,56] of input 0"
        );
        assert_eq!(case("1").attribute_errors(5), ["attribute `levels`: `levels` is 1, which must be at least 2"]);
        assert_eq!(case("9").infer(&["f32[?]", "f32[1]", "f32[]", "f32[]", "f32[]"]), ["f32[?]"]);
    }

    #[test]
    fn inference_is_monotone() {
        case("9").assert_monotone(&["f32[1,64,5]", "f32[64,1]", "f32[1]", "f32[]", "f32[1,1,5]"]);
    }
}
