//! # RandomUniform
//! Random numbers, evenly distributed over `[minval, maxval)`.
//!
//! Specification: `generation/random-uniform-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | shape | i32, i64 | 1D |
//! | in 1 | minval | `output_type` | one element |
//! | in 2 | maxval | `output_type` | one element; above `minval` |
//! | out 0 | | `output_type` | as `shape` says |
//!
//! With `alignment` TENSORFLOW the generator is Philox. Its stream goes on from inference to inference: 256 positions an
//! element are skipped, as in OpenVINO's CPU plugin. With PYTORCH it is MT19937, which starts anew each time. Two seeds
//! of 0 ask for numbers that cannot be foretold; they get those of a seed that follows from the layer's friendly name and
//! from the seed of the request, which is 0 unless it is set, so that every run yields the same.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, MAX_RANK, NativeElement, PartialShape, Shape, Value, bf16, f16};

use crate::common::elementwise::unsupported;
use crate::common::random::{Generator, Mersenne, Philox};
use crate::{
    Blame, BuildContext, Category, Effects, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation, RandomStream,
};

/// How many positions of the Philox stream are skipped for each element.
const SKIPPED: u64 = 256;

/// Numbers that are drawn at once.
const NUMBERS: usize = 256;

/// The definition of RandomUniform.
pub static RANDOM_UNIFORM: OpDef = OpDef {
    type_name: "RandomUniform",
    category: Category::Generation,
    versions: &[OpVersion::new(8, (8, 16), (3, 3), (1, 1))],
    attributes: RandomUniformAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// The framework whose numbers are matched.
    pub enum RandomAlignment {
        /// Philox.
        #[default]
        TensorFlow = "tensorflow",
        /// MT19937.
        PyTorch = "pytorch",
    }
}

crate::attributes! {
    /// Attributes of RandomUniform.
    pub struct RandomUniformAttributes {
        /// The element type of the output: i32, i64, f16, bf16, f32 or f64.
        output_type: ElementType = "output_type", required true;
        /// The seed of all operations.
        global_seed: u64 = "global_seed", default "0";
        /// The seed of this operation.
        op_seed: u64 = "op_seed", default "0";
        /// The framework whose numbers are matched.
        alignment: RandomAlignment = "alignment", default "tensorflow";
    }
}

/// A RandomUniform layer.
#[derive(Debug)]
pub struct RandomUniform {
    /// The attributes.
    pub attributes: RandomUniformAttributes,
}

impl Operation for RandomUniform {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Index)?;
        context.require_rank(0, 1..=1)?;
        let output_type = self.attributes.output_type;
        for port in 1..3 {
            context.require_one_element(port)?;
            if context.element_type(port).merge(output_type).is_none() {
                let message = format!("element type {} must be output_type, {output_type}", context.element_type(port));
                return Err(OpError::element_type(Blame::Input(port), message));
            }
        }
        let shape = infer_shape(context)?;
        context.set_output(0, output_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let sizes = context.integers(0)?;
        let shape: Option<Shape> = sizes.iter().map(|s| usize::try_from(*s).ok()).collect();
        let shape = shape.ok_or_else(|| negative(&sizes))?;
        match self.attributes.alignment {
            RandomAlignment::PyTorch => self.fill(context, &shape, Mersenne::new(self.attributes.global_seed)),
            RandomAlignment::TensorFlow => {
                let [key, counter, position] = self.place(&context.environment().random);
                self.fill(context, &shape, Philox { key, counter, position })?;
                self.advance(&mut context.environment().random, &shape);
                Ok(())
            }
        }
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(8)
    }

    fn effects(&self) -> Effects {
        Effects::Random
    }
}

impl RandomUniform {
    /// The key of Philox, the high half of its counter, and the low half, where the numbers of an inference begin.
    pub fn place(&self, stream: &RandomStream) -> [u64; 3] {
        let RandomStream { seed, state: [position, carried] } = *stream;
        let RandomUniformAttributes { global_seed, op_seed, .. } = self.attributes;
        let key = if global_seed == 0 && op_seed == 0 { seed } else { global_seed };
        [key, if carried > 0 { carried } else { op_seed }, position]
    }

    /// Moves the stream of Philox to where the numbers of the inference after one of this shape begin.
    pub fn advance(&self, stream: &mut RandomStream, shape: &Shape) {
        let [position, carried] = stream.state;
        let skip = (shape.elements() as u64).wrapping_mul(SKIPPED);
        let (next, overflow) = position.overflowing_add(skip);
        stream.state = [next, carried + u64::from(overflow)];
    }

    fn fill(&self, context: &mut EvaluateContext<'_>, shape: &Shape, generator: impl Generator) -> OpResult {
        let is_mersenne = self.attributes.alignment == RandomAlignment::PyTorch;
        match self.attributes.output_type {
            ElementType::F32 if is_mersenne => fill::<f32>(context, shape, generator, mersenne_f32),
            ElementType::F32 => fill::<f32>(context, shape, generator, philox_f32),
            ElementType::F16 if is_mersenne => fill::<f16>(context, shape, generator, mersenne_f16),
            ElementType::F16 => fill::<f16>(context, shape, generator, philox_f16),
            ElementType::Bf16 if is_mersenne => fill::<bf16>(context, shape, generator, mersenne_bf16),
            ElementType::Bf16 => fill::<bf16>(context, shape, generator, philox_bf16),
            ElementType::I32 => {
                let [low, high] = limits::<i32>(context)?;
                let range = Divisor::<u32>::new(high.wrapping_sub(low) as u32);
                let convert = |x, low: i32, _| range.remainder(x).wrapping_add(low as u32) as i32;
                fill::<i32>(context, shape, generator, convert)
            }
            ElementType::F64 if is_mersenne => fill_pairs::<f64>(context, shape, generator, mersenne_f64),
            ElementType::F64 => fill_pairs::<f64>(context, shape, generator, philox_f64),
            ElementType::I64 => self.fill_i64(context, shape, generator),
            other => Err(unsupported(other)),
        }
    }

    /// 64-bit integers take two numbers, but one with PYTORCH where both limits fit 32 bits.
    fn fill_i64(&self, context: &mut EvaluateContext<'_>, shape: &Shape, generator: impl Generator) -> OpResult {
        let [low, high] = limits::<i64>(context)?;
        let range = Divisor::<u64>::new(high.wrapping_sub(low) as u64);
        let convert = |x: u64, low: i64| range.remainder(x).wrapping_add(low as u64) as i64;
        let limit = i64::from(u32::MAX);
        match self.attributes.alignment {
            RandomAlignment::TensorFlow => {
                fill_pairs::<i64>(context, shape, generator, |a, b, low, _| convert(joined(a, b), low))
            }
            RandomAlignment::PyTorch if low <= limit && high <= limit => {
                fill::<i64>(context, shape, generator, |x, low, _| convert(x.into(), low))
            }
            RandomAlignment::PyTorch => {
                fill_pairs::<i64>(context, shape, generator, |a, b, low, _| convert(joined(b, a), low))
            }
        }
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    use ElementType::{Bf16, F16, F32, F64, I32, I64};
    let attributes = RandomUniformAttributes::read(context.attributes);
    let given = context.attributes.text("output_type").is_some();
    if given && !matches!(attributes.output_type, I32 | I64 | F16 | Bf16 | F32 | F64) {
        let message =
            format!("`output_type` is {}, which must be one of i32, i64, f16, bf16, f32, f64", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(RandomUniform { attributes })
}

fn infer_shape(context: &InferContext<'_>) -> OpResult<PartialShape> {
    if let Some(bounds) = context.bounds(0) {
        if bounds.values.iter().any(|v: &Value| v.max < 0) {
            let sizes: Vec<i64> = bounds.values.iter().map(|v| v.max).collect();
            return Err(negative(&sizes));
        }
        return Ok(PartialShape::from_dims(bounds.values.iter().map(|v| v.to_dim())));
    }
    let rank = context.shape(0).elements().get().filter(|rank| *rank <= MAX_RANK);
    Ok(rank.map_or(PartialShape::DYNAMIC, |rank| PartialShape::from_dims(vec![Dim::DYNAMIC; rank])))
}

fn negative(sizes: &[i64]) -> OpError {
    OpError::value(Blame::Input(0), format!("the shape {sizes:?} has a negative dimension"))
}

/// The lower and the upper limit.
fn limits<T: NativeElement>(context: &EvaluateContext<'_>) -> OpResult<[T; 2]> {
    let one = |port: usize| match context.slice::<T>(port)? {
        [value] => Ok(*value),
        values => Err(OpError::shape(Blame::Input(port), format!("one element is expected, not {}", values.len()))),
    };
    let (low, high) = (one(1)?, one(2)?);
    if low < high {
        return Ok([low, high]);
    }
    Err(OpError::value(Blame::Input(2), format!("the upper limit {high:?} must be above the lower limit {low:?}")))
}

/// One number an element.
fn fill<T: NativeElement>(
    context: &mut EvaluateContext<'_>,
    shape: &Shape,
    mut generator: impl Generator,
    convert: impl Fn(u32, T, T) -> T,
) -> OpResult {
    let [low, high] = limits::<T>(context)?;
    let mut numbers = [0; NUMBERS];
    for chunk in context.output_slice::<T>(0, shape)?.chunks_mut(NUMBERS) {
        generator.fill(&mut numbers[..chunk.len().next_multiple_of(4)]);
        for (target, x) in chunk.iter_mut().zip(numbers) {
            *target = convert(x, low, high);
        }
    }
    Ok(())
}

/// Two numbers an element.
fn fill_pairs<T: NativeElement>(
    context: &mut EvaluateContext<'_>,
    shape: &Shape,
    mut generator: impl Generator,
    convert: impl Fn(u32, u32, T, T) -> T,
) -> OpResult {
    let [low, high] = limits::<T>(context)?;
    let mut numbers = [0; NUMBERS];
    for chunk in context.output_slice::<T>(0, shape)?.chunks_mut(NUMBERS / 2) {
        generator.fill(&mut numbers[..(2 * chunk.len()).next_multiple_of(4)]);
        for (target, pair) in chunk.iter_mut().zip(numbers.chunks_exact(2)) {
            *target = convert(pair[0], pair[1], low, high);
        }
    }
    Ok(())
}

#[inline]
fn philox_f32(x: u32, low: f32, high: f32) -> f32 {
    (f32::from_bits(127 << 23 | x & 0x7f_ffff) - 1.0) * (high - low) + low
}

/// Every step is rounded to f16.
fn philox_f16(x: u32, low: f16, high: f16) -> f16 {
    let unit = f16::from_bits(15 << 10 | (x & 0x3ff) as u16) - f16::ONE;
    unit * (high - low) + low
}

/// Every step is rounded to bf16.
fn philox_bf16(x: u32, low: bf16, high: bf16) -> bf16 {
    let unit = bf16::from_bits(127 << 7 | (x & 0x7f) as u16) - bf16::ONE;
    unit * (high - low) + low
}

#[inline]
fn philox_f64(a: u32, b: u32, low: f64, high: f64) -> f64 {
    let mantissa = (u64::from(a) & 0xf_ffff) << 32 | u64::from(b);
    (f64::from_bits(1023 << 52 | mantissa) - 1.0) * (high - low) + low
}

#[inline]
fn mersenne_f32(x: u32, low: f32, high: f32) -> f32 {
    mersenne_unit(x, 24) * (high - low) + low
}

fn mersenne_f16(x: u32, low: f16, high: f16) -> f16 {
    f16::from_f32(mersenne_unit(x, 11) * (high - low).to_f32() + low.to_f32())
}

fn mersenne_bf16(x: u32, low: bf16, high: bf16) -> bf16 {
    bf16::from_f32(mersenne_unit(x, 8) * (high - low).to_f32() + low.to_f32())
}

#[inline]
fn mersenne_f64(a: u32, b: u32, low: f64, high: f64) -> f64 {
    let bits = (u64::from(a) << 32 | u64::from(b)) & ((1 << 53) - 1);
    bits as f64 / (1u64 << 53) as f64 * (high - low) + low
}

/// The low `digits` bits as a fraction.
#[inline]
fn mersenne_unit(x: u32, digits: u32) -> f32 {
    (x & ((1 << digits) - 1)) as f32 / (1u32 << digits) as f32
}

/// A divisor whose remainders are found by a multiplication.
#[derive(Clone, Copy)]
struct Divisor<T> {
    value: T,
    inverse: T,
}

macro_rules! divisors {
    ($($narrow:ident: $wide:ident),*) => {
        $(impl Divisor<$narrow> {
            /// The distance between two limits, the upper of which is above the lower.
            fn new(value: $narrow) -> Self {
                let value = value.max(1);
                Self { value, inverse: $narrow::MAX / value }
            }

            /// `x` modulo the divisor.
            #[inline]
            fn remainder(self, x: $narrow) -> $narrow {
                // The inverse is too small by less than one and its last place, so that the quotient lacks two at most.
                let quotient = ((x as $wide * self.inverse as $wide) >> $narrow::BITS) as $narrow;
                let mut rest = x.wrapping_sub(quotient.wrapping_mul(self.value));
                for _ in 0..2 {
                    rest = if rest >= self.value { rest - self.value } else { rest };
                }
                rest
            }
        })*
    };
}
divisors!(u32: u64, u64: u128);

/// The number with `b` as its high half.
#[inline]
fn joined(a: u32, b: u32) -> u64 {
    u64::from(b) << 32 | u64::from(a)
}

#[cfg(test)]
mod tests {
    use super::Divisor;
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(output_type: &str, global: &str, op: &str) -> Case {
        Case::new("RandomUniform", "opset8")
            .attribute("output_type", output_type)
            .attribute("global_seed", global)
            .attribute("op_seed", op)
    }

    #[test]
    fn examples_1_to_3_of_the_specification() {
        let inputs = [tensor(&[3i64, 3], [2]), tensor(&[0f32], []), tensor(&[1f32], [])];
        let output = case("f32", "150", "10").run(&inputs).unwrap();
        let expected =
            [0.7011236f32, 0.30539632, 0.93931055, 0.9456035, 0.11694777, 0.50770056, 0.5197197, 0.22727466, 0.991374];
        assert_eq!(output[0], tensor(&expected, [3, 3]));
        let inputs = [tensor(&[2i64, 2], [2]), tensor(&[2f64], []), tensor(&[10f64], [])];
        let output = case("f64", "80", "100").run(&inputs).unwrap();
        let rounded: Vec<i64> = output[0].slice::<f64>().unwrap().iter().map(|x| (x * 1e8).round() as i64).collect();
        assert_eq!(rounded, [565927959, 423122376, 267008206, 236423758]);
        let inputs = [tensor(&[2i32, 3], [2]), tensor(&[50i32], []), tensor(&[100i32], [1])];
        let output = case("i32", "80", "100").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[65i32, 70, 56, 59, 82, 92], [2, 3]));
    }

    #[test]
    fn remainders_by_multiplication() {
        let numbers = |i: u64| {
            let scattered = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            [i, u64::MAX - i, 1 << (i % 64), (1 << (i % 64)) - 1, scattered, scattered >> (i % 64), u64::MAX / (i + 1)]
        };
        for (x, divisor) in (0..300).flat_map(numbers).flat_map(|x| (1..60).flat_map(numbers).map(move |d| (x, d))) {
            if divisor != 0 {
                assert_eq!(Divisor::<u64>::new(divisor).remainder(x), x % divisor);
            }
            let (x, divisor) = (x as u32, divisor as u32);
            if divisor != 0 {
                assert_eq!(Divisor::<u32>::new(divisor).remainder(x), x % divisor);
            }
        }
    }

    #[test]
    fn pytorch_takes_mt19937() {
        let inputs = [tensor(&[3i64], [1]), tensor(&[2f32], []), tensor(&[10f32], [])];
        let output = case("f32", "80", "100").attribute("alignment", "pytorch").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[6.883384f32, 2.768156, 2.3842344], [3]));
        let inputs = [tensor(&[3i64], [1]), tensor(&[50i64], []), tensor(&[100i64], [])];
        let output = case("i64", "80", "100").attribute("alignment", "pytorch").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[77i64, 58, 62], [3]));
    }

    #[test]
    fn shapes_and_limits_are_checked() {
        let case = || case("f32", "1", "1");
        assert_eq!(case().infer(&["i32[3]=2,3..4,10", "f32[]", "f32[1]"]), ["f32[2,3..4,10]"]);
        assert_eq!(case().infer(&["i64[2]", "f32[]", "f32[]"]), ["f32[?,?]"]);
        assert!(case().infer_error(&["i64[2]", "i32[]", "f32[]"]).contains("must be output_type, f32"));
        let inputs = [tensor(&[3i64], [1]), tensor(&[2f32], []), tensor(&[2f32], [])];
        assert_eq!(
            case().run(&inputs).unwrap_err().to_string(),
            "input 2: the upper limit 2.0 must be above the lower limit 2.0"
        );
    }

    #[test]
    fn inference_is_monotone() {
        case("f32", "1", "1").assert_monotone(&["i64[3]=2,3,4", "f32[]", "f32[1]"]);
    }
}
