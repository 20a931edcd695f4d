//! Functions of one f32 operand, applied to slices.

use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::math::{self, Levels, UnaryMath};
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a parallel chunk covers.
const CHUNK: usize = 1 << 14;

/// An elementwise function of one f32 operand. NaN stays NaN in all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum UnaryOp {
    /// The value itself.
    Identity,
    /// `exp(x)`, within 2 ulp.
    Exp,
    /// `ln(x)`: minus infinity at zero, NaN below.
    Log,
    /// `tanh(x)`, within 2 ulp.
    Tanh,
    /// `1 / (1 + exp(-x))`, within 2 ulp.
    Sigmoid,
    /// The error function, within 2 ulp.
    Erf,
    /// `0.5 * x * (1 + erf(x / sqrt(2)))`.
    GeluErf,
    /// `0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))`.
    GeluTanh,
    /// `x * sigmoid(beta * x)`; SiLU where beta is 1.
    Swish {
        /// The factor inside the logistic function.
        beta: f32,
    },
    /// `x * min(max(x + 3, 0), 6) / 6`.
    HSwish,
    /// `min(max(x + 3, 0), 6) / 6`.
    HSigmoid,
    /// `max(0, min(1, alpha * x + beta))`.
    HardSigmoid {
        /// The factor.
        alpha: f32,
        /// The summand.
        beta: f32,
    },
    /// `x > 0 ? x : alpha * (exp(x) - 1)`.
    Elu {
        /// The factor of the negative part.
        alpha: f32,
    },
    /// `lambda * (x > 0 ? x : alpha * (exp(x) - 1))`.
    Selu {
        /// The factor of the negative part.
        alpha: f32,
        /// The factor of everything.
        lambda: f32,
    },
    /// `ln(1 + exp(x))`.
    Softplus,
    /// `x * tanh(ln(1 + exp(x)))`.
    Mish,
    /// `x / (1 + |x|)`.
    SoftSign,
    /// `max(x, 0)`.
    Relu,
    /// `x < 0 ? slope * x : x`.
    LeakyRelu {
        /// The factor of negative values.
        slope: f32,
    },
    /// `min(max(x, min), max)`.
    Clamp {
        /// The lower limit.
        min: f32,
        /// The upper limit.
        max: f32,
    },
    /// `scale * x + shift`, rounded after each of the two steps.
    Affine {
        /// The factor.
        scale: f32,
        /// The summand.
        shift: f32,
    },
    /// The nearest of the levels between the input limits, laid between the output limits.
    FakeQuantize {
        /// What becomes `output_low`, and everything below it.
        input_low: f32,
        /// What becomes `output_high`, and everything above it.
        input_high: f32,
        /// The first level.
        output_low: f32,
        /// The last level.
        output_high: f32,
        /// The number of levels, less one.
        steps: f32,
    },
    /// `|x|`.
    Abs,
    /// `-x`.
    Neg,
    /// -1, 0 or 1.
    Sign,
    /// The square root; NaN below zero.
    Sqrt,
    /// `x * x`.
    Square,
    /// `1 / x`.
    Reciprocal,
    /// `1 / sqrt(x)`.
    ReciprocalSqrt,
    /// The greatest integer not above.
    Floor,
    /// The least integer not below.
    Ceil,
    /// The integer part.
    Trunc,
    /// The nearest integer, halves to even.
    RoundHalfEven,
    /// The nearest integer, halves away from zero.
    RoundHalfAway,
    /// `sin(x)`.
    Sin,
    /// `cos(x)`.
    Cos,
    /// `tan(x)`, within 2 ulp.
    Tan,
    /// The inverse sine, within 2 ulp; NaN outside of [-1, 1].
    Asin,
    /// The inverse cosine, within 2 ulp; NaN outside of [-1, 1].
    Acos,
    /// The inverse tangent, within 2 ulp.
    Atan,
    /// The hyperbolic sine, within 2 ulp.
    Sinh,
    /// The hyperbolic cosine, within 2 ulp.
    Cosh,
    /// The inverse hyperbolic sine, within 3 ulp.
    Asinh,
    /// The inverse hyperbolic cosine, within 2 ulp; NaN below 1.
    Acosh,
    /// The inverse hyperbolic tangent, within 3 ulp; infinite at 1 and -1, NaN beyond.
    Atanh,
    /// The inverse of the error function, within 3 ulp; infinite at 1 and -1, NaN beyond.
    ErfInv,
    /// `x ^ exponent`.
    Power {
        /// The exponent.
        exponent: f32,
    },
}

impl UnaryOp {
    /// Estimated picoseconds of one core per element, on data in cache.
    #[must_use]
    pub const fn picoseconds(self) -> u64 {
        match self {
            // The exponents that have vectors are as cheap as other simple functions.
            Self::Power { exponent: 0.5 | 1.0 | 2.0 | 3.0 | -1.0 } => 150,
            Self::Power { .. } => 8000,
            Self::GeluErf | Self::GeluTanh => 400,
            Self::Erf | Self::Tanh | Self::Softplus | Self::Mish => 700,
            Self::Exp | Self::Log | Self::Sigmoid | Self::Swish { .. } | Self::Elu { .. } | Self::Selu { .. } => 500,
            Self::Sin | Self::Cos | Self::Asin | Self::Acos | Self::Atan | Self::Sinh | Self::Cosh => 600,
            Self::Tan | Self::Asinh | Self::Acosh | Self::Atanh | Self::ErfInv => 900,
            Self::FakeQuantize { .. } => 300,
            _ => 150,
        }
    }
}

/// Writes `op(input[i])` to `output[i]`.
///
/// # Errors
/// The slices differ in length.
pub fn unary_f32(isa: Isa, op: UnaryOp, input: &[f32], output: &mut [f32]) -> Result<(), KernelError> {
    check_exact("output", output.len(), input.len())?;
    let shared = SharedMut::new(output);
    parallel_for(input.len(), CHUNK, work(op, input.len()), |range| {
        // SAFETY: chunks are disjoint and within both slices, whose lengths agree.
        unsafe {
            apply(isa, op, input.as_ptr().add(range.start), shared.pointer().add(range.start), range.len());
        }
    });
    Ok(())
}

/// Replaces every `data[i]` by `op(data[i])`.
pub fn unary_f32_in_place(isa: Isa, op: UnaryOp, data: &mut [f32]) {
    let nanoseconds = work(op, data.len());
    let shared = SharedMut::new(data);
    parallel_for(shared.len(), CHUNK, nanoseconds, |range| {
        // SAFETY: chunks are disjoint and within the slice.
        unsafe {
            let pointer = shared.pointer().add(range.start);
            apply(isa, op, pointer, pointer, range.len());
        }
    });
}

/// Applies the function on the caller's thread.
///
/// # Safety
/// `len` values are readable at `input` and writable at `output`; the two are equal or do not overlap.
pub(crate) unsafe fn apply(isa: Isa, op: UnaryOp, input: *const f32, output: *mut f32, len: usize) {
    macro_rules! map {
        ($function:expr) => {
            dispatch(isa, Map { function: $function, input, output, len })
        };
    }
    match op {
        UnaryOp::Identity => map!(math::Copy_ {}),
        UnaryOp::Exp => map!(math::Exp {}),
        UnaryOp::Log => map!(math::Log {}),
        UnaryOp::Tanh => map!(math::Tanh {}),
        UnaryOp::Sigmoid => map!(math::Sigmoid {}),
        UnaryOp::Erf => map!(math::Erf {}),
        UnaryOp::GeluErf => map!(math::GeluErf {}),
        UnaryOp::GeluTanh => map!(math::GeluTanh {}),
        UnaryOp::Swish { beta } => map!(math::Swish { beta }),
        UnaryOp::HSwish => map!(math::HSwish {}),
        UnaryOp::HSigmoid => map!(math::HSigmoid {}),
        UnaryOp::HardSigmoid { alpha, beta } => map!(math::HardSigmoid { alpha, beta }),
        UnaryOp::Elu { alpha } => map!(math::Elu { alpha }),
        UnaryOp::Selu { alpha, lambda } => map!(math::Selu { alpha, lambda }),
        UnaryOp::Softplus => map!(math::Softplus {}),
        UnaryOp::Mish => map!(math::Mish {}),
        UnaryOp::SoftSign => map!(math::SoftSign {}),
        UnaryOp::Relu => map!(math::Relu {}),
        UnaryOp::LeakyRelu { slope } => map!(math::LeakyRelu { slope }),
        UnaryOp::Clamp { min, max } => map!(math::Clamp { low: min, high: max }),
        UnaryOp::Affine { scale, shift } => map!(math::Affine { scale, shift }),
        UnaryOp::FakeQuantize { input_low, input_high, output_low, output_high, steps } => {
            let limits = [input_low, input_high, output_low, output_high];
            dispatch(isa, NearestLevels { limits, steps, input, output, len });
        }
        UnaryOp::Abs => map!(math::Abs {}),
        UnaryOp::Neg => map!(math::Neg {}),
        UnaryOp::Sign => map!(math::Sign {}),
        UnaryOp::Sqrt => map!(math::Sqrt {}),
        UnaryOp::Square => map!(math::Square {}),
        UnaryOp::Reciprocal => map!(math::Reciprocal {}),
        UnaryOp::ReciprocalSqrt => map!(math::ReciprocalSqrt {}),
        UnaryOp::Floor => map!(math::Floor {}),
        UnaryOp::Ceil => map!(math::Ceil {}),
        UnaryOp::Trunc => map!(math::Trunc {}),
        UnaryOp::RoundHalfEven => map!(math::RoundHalfEven {}),
        UnaryOp::RoundHalfAway => map!(math::RoundHalfAway {}),
        UnaryOp::Sin => map!(math::Sin {}),
        UnaryOp::Cos => map!(math::Cos {}),
        UnaryOp::Tan => map!(math::Tan {}),
        UnaryOp::Asin => map!(math::Asin {}),
        UnaryOp::Acos => map!(math::Acos {}),
        UnaryOp::Atan => map!(math::Atan {}),
        UnaryOp::Sinh => map!(math::Sinh {}),
        UnaryOp::Cosh => map!(math::Cosh {}),
        UnaryOp::Asinh => map!(math::Asinh {}),
        UnaryOp::Acosh => map!(math::Acosh {}),
        UnaryOp::Atanh => map!(math::Atanh {}),
        UnaryOp::ErfInv => map!(math::ErfInv {}),
        UnaryOp::Power { exponent: 1.0 } => map!(math::Copy_ {}),
        UnaryOp::Power { exponent: 2.0 } => map!(math::Square {}),
        UnaryOp::Power { exponent: 3.0 } => map!(math::Cube {}),
        UnaryOp::Power { exponent: -1.0 } => map!(math::Reciprocal {}),
        UnaryOp::Power { exponent: 0.5 } => map!(math::HalfPower {}),
        UnaryOp::Power { exponent } => {
            for index in 0..len {
                // SAFETY: the caller's promise.
                unsafe { output.add(index).write(input.add(index).read().powf(exponent)) };
            }
        }
    }
}

/// A slice mapped through a function.
struct Map<U> {
    function: U,
    input: *const f32,
    output: *mut f32,
    len: usize,
}

impl<U: UnaryMath> Kernel for Map<U> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let whole = self.len - self.len % S::LANES;
        let mut index = 0;
        while index < whole {
            // SAFETY: `apply` was promised `len` readable and writable places.
            unsafe {
                let value = self.function.apply(s, s.load(self.input.add(index)));
                s.store(self.output.add(index), value);
            }
            index += S::LANES;
        }
        if whole < self.len {
            let rest = self.len - whole;
            // SAFETY: as above; only the rest is accessed.
            unsafe {
                let value = self.function.apply(s, s.load_partial(self.input.add(whole), rest));
                s.store_partial(self.output.add(whole), value, rest);
            }
        }
    }
}

/// The nearest of `steps + 1` levels between the input limits, laid between the output limits; rounded as the expression of
/// the specification is.
struct NearestLevels {
    limits: [f32; 4],
    steps: f32,
    input: *const f32,
    output: *mut f32,
    len: usize,
}

/// Vectors of values whose levels are found together.
const TOGETHER: usize = 4;

impl NearestLevels {
    #[inline(always)]
    fn all<S: Simd, const QUICK: bool>(&self, s: S, levels: &Levels<S>) {
        let (lanes, mut index) = (S::LANES, 0);
        // SAFETY: `apply` was promised `len` readable and writable places.
        unsafe {
            while index + TOGETHER * lanes <= self.len {
                let mut values = [s.splat(0.0); TOGETHER];
                for (place, value) in values.iter_mut().enumerate() {
                    *value = s.load(self.input.add(index + place * lanes));
                }
                for (place, value) in levels.nearest_of::<TOGETHER, QUICK>(s, values).into_iter().enumerate() {
                    s.store(self.output.add(index + place * lanes), value);
                }
                index += TOGETHER * lanes;
            }
            while index < self.len {
                let count = lanes.min(self.len - index);
                let [value] = levels.nearest_of::<1, QUICK>(s, [s.load_first(self.input.add(index), count)]);
                s.store_first(self.output.add(index), value, count);
                index += lanes;
            }
        }
    }
}

impl Kernel for NearestLevels {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [input_low, input_high, output_low, output_high] = self.limits;
        let limits = [s.splat(input_low), s.splat(input_high), s.splat(output_low), s.splat(output_high)];
        let levels = Levels::new(s, limits, s.splat(self.steps));
        if levels.is_usual() { self.all::<S, true>(s, &levels) } else { self.all::<S, false>(s, &levels) }
    }
}

fn work(op: UnaryOp, len: usize) -> u64 {
    (len as u64).saturating_mul(op.picoseconds()) / 1000
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, erf_f64, ulp_distance};
    use pretty_assertions::assert_eq;

    fn run(isa: Isa, op: UnaryOp, input: &[f32]) -> Vec<f32> {
        let mut output = vec![0.0; input.len()];
        unary_f32(isa, op, input, &mut output).unwrap();
        let mut again = input.to_vec();
        unary_f32_in_place(isa, op, &mut again);
        assert!(output.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{op:?} in place differs");
        output
    }

    /// Values of every magnitude and sign, dense around where functions bend.
    fn probes() -> Vec<f32> {
        let mut values: Vec<f32> = (0..1 << 16).map(|i| f32::from_bits((i as u32) << 16 | 0x5a5a)).collect();
        values.retain(|value| !value.is_nan());
        values.extend((-40_000..40_000).map(|i| i as f32 * 0.0025 + 0.00013));
        values.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::MIN_POSITIVE, 1e-40, -1e-40]);
        values
    }

    fn check_ulp(op: UnaryOp, reference: impl Fn(f64) -> f64, limit: u64) {
        let input = probes();
        for isa in Isa::available() {
            let output = run(isa, op, &input);
            for (&x, &y) in input.iter().zip(&output) {
                let expected = reference(f64::from(x)) as f32;
                let distance = ulp_distance(y, expected);
                let is_flushed = matches!(op, UnaryOp::Sigmoid) && expected.is_subnormal() && y == 0.0;
                assert!(
                    is_flushed || distance <= limit,
                    "{op:?} {isa} at {x:e}: {y:e}, expected {expected:e}, {distance} ulp"
                );
            }
        }
    }

    fn check_close(op: UnaryOp, reference: impl Fn(f64) -> f64) {
        let input: Vec<f32> = probes().into_iter().filter(|x| x.is_finite()).collect();
        for isa in Isa::available() {
            for (&x, &y) in input.iter().zip(&run(isa, op, &input)) {
                let expected = reference(f64::from(x)) as f32;
                let close = y == expected
                    || (y.is_nan() && expected.is_nan())
                    || (f64::from(y) - f64::from(expected)).abs() <= 1e-6 + 1e-6 * f64::from(expected).abs();
                assert!(close, "{op:?} {isa} at {x:e}: {y:e}, expected {expected:e}");
            }
        }
    }

    /// Levels are those of the specification's expression, rounded step by step, also beside the middle of two.
    #[test]
    fn nearest_levels_are_exact() {
        let mut random = Random::new(11);
        let limits = [[-1.0, 1.0], [0.0, 6.0], [-0.37, 2.11], [3.0, -2.0], [-1e-3, 7e-3], [-1e30, 1e30], [0.5, 0.5]];
        let cases = limits.iter().flat_map(|l| [1.0, 3.0, 15.0, 254.0, 255.0, 65535.0, 16_777_215.0].map(|s| (l, s)));
        for ([low, high], steps) in cases {
            let [input_low, input_high] = [*low, *high];
            let (output_low, output_high): (f32, f32) = (input_low * 1.1 - 0.01, input_high * 0.9 + 0.02);
            let width = input_high - input_low;
            let mut values = vec![f32::INFINITY, f32::NEG_INFINITY, input_low, input_high, 0.0, -0.0, 1e-40, f32::MAX];
            for value in random.values(300) {
                let middle = ((value + 1.0) / 2.0 * steps).round() + 0.5;
                let middle = input_low + middle / steps * width;
                values.extend([input_low + (value + 1.0) / 1.9 * width, middle, middle.next_up(), middle.next_down()]);
            }
            let nearest = |x: f32| {
                if x <= input_low.min(input_high) {
                    output_low
                } else if x > input_low.max(input_high) {
                    output_high
                } else {
                    let level = ((x - input_low) / width * steps).round_ties_even();
                    level / steps * (output_high - output_low) + output_low
                }
            };
            let expected: Vec<u32> = values.iter().map(|value| nearest(*value).to_bits()).collect();
            for isa in Isa::available() {
                let mut given = values.clone();
                given.push(f32::NAN);
                let op = UnaryOp::FakeQuantize { input_low, input_high, output_low, output_high, steps };
                unary_f32_in_place(isa, op, &mut given);
                assert!(given.pop().is_some_and(f32::is_nan));
                let given: Vec<u32> = given.iter().map(|value| value.to_bits()).collect();
                assert_eq!(given, expected, "{low} to {high} in {steps} {isa}");
            }
        }
    }

    #[test]
    fn transcendental_functions_are_within_two_ulp() {
        check_ulp(UnaryOp::Exp, f64::exp, 2);
        check_ulp(UnaryOp::Tanh, f64::tanh, 2);
        check_ulp(UnaryOp::Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), 2);
        check_ulp(UnaryOp::Erf, erf_f64, 2);
        check_ulp(UnaryOp::Log, f64::ln, 2);
    }

    #[test]
    fn trigonometric_functions_are_close() {
        check_close(UnaryOp::Sin, f64::sin);
        check_close(UnaryOp::Cos, f64::cos);
    }

    #[test]
    fn inverse_functions_and_the_tangent() {
        check_ulp(UnaryOp::Tan, f64::tan, 2);
        check_ulp(UnaryOp::Asin, f64::asin, 2);
        check_ulp(UnaryOp::Acos, f64::acos, 2);
        check_ulp(UnaryOp::Atan, f64::atan, 2);
        check_ulp(UnaryOp::Sinh, f64::sinh, 2);
        check_ulp(UnaryOp::Cosh, f64::cosh, 2);
        check_ulp(UnaryOp::Asinh, f64::asinh, 3);
        check_ulp(UnaryOp::Acosh, f64::acosh, 2);
        check_ulp(UnaryOp::Atanh, f64::atanh, 3);
        // The probes have few values in the domain of these, and few close to its ends.
        let dense: Vec<f32> = (0..40_000)
            .map(|i| i as f32 / 40_000.0)
            .chain((0..20_000).map(|i| f32::from_bits(0x3f80_0000 - i)))
            .chain((0..120).map(|i| 0.7f32.powi(i)))
            .collect();
        let above: Vec<f32> = dense.iter().map(|x| x + 1.0).chain(dense.iter().map(|x| 2.0 / x)).collect();
        let turns: Vec<f32> = (0..5215).map(|n| (f64::from(n) * std::f64::consts::FRAC_PI_2) as f32).collect();
        type Check<'a> = (UnaryOp, fn(f64) -> f64, u64, &'a [f32]);
        let wide: Vec<f32> = (0..200_000).map(|i| f32::from_bits(0x2f00_0000 + i * 0x1973)).collect();
        let checks: [Check<'_>; 10] = [
            (UnaryOp::Atan, f64::atan, 2, &wide),
            (UnaryOp::Sinh, f64::sinh, 2, &wide),
            (UnaryOp::Cosh, f64::cosh, 2, &wide),
            (UnaryOp::Asinh, f64::asinh, 3, &wide),
            (UnaryOp::Atanh, f64::atanh, 3, &dense),
            (UnaryOp::Asin, f64::asin, 2, &dense),
            (UnaryOp::Acos, f64::acos, 2, &dense),
            (UnaryOp::ErfInv, erf_inv_f64, 3, &dense),
            (UnaryOp::Acosh, f64::acosh, 2, &above),
            (UnaryOp::Tan, f64::tan, 2, &turns),
        ];
        for (op, reference, limit, values) in checks {
            for sign in [1.0, -1.0] {
                let values: Vec<f32> = values.iter().map(|x| x * sign).collect();
                let expected: Vec<f32> = values.iter().map(|x| reference(f64::from(*x)) as f32).collect();
                for isa in Isa::available() {
                    for ((x, y), expected) in values.iter().zip(run(isa, op, &values)).zip(&expected) {
                        let expected = *expected;
                        let distance = ulp_distance(y, expected);
                        let is_same_sign = y.is_nan() || y.is_sign_negative() == expected.is_sign_negative();
                        assert!(distance <= limit && is_same_sign, "{op:?} {isa} at {x:e}: {y:e} for {expected:e}");
                    }
                }
            }
        }
        for isa in Isa::available() {
            let edges = run(isa, UnaryOp::ErfInv, &[0.0, -0.0, 1.0, -1.0, 1.5, f32::INFINITY]);
            assert_eq!(edges[..4], [0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY]);
            assert!(edges[1].is_sign_negative() && edges[4].is_nan() && edges[5].is_nan());
        }
    }

    /// The inverse error function by Newton's method, from a rough estimate.
    fn erf_inv_f64(x: f64) -> f64 {
        if x.abs() >= 1.0 {
            return if x.abs() == 1.0 { f64::INFINITY.copysign(x) } else { f64::NAN };
        }
        let w = -((1.0 - x.abs()) * (1.0 + x.abs())).ln();
        let mut y = if w < 5.0 { x.abs() * (0.886 + 0.23 * w) } else { w.sqrt() - 0.16 };
        for _ in 0..4 {
            let step = (erf_f64(y) - x.abs()) / (std::f64::consts::FRAC_2_SQRT_PI * (-y * y).exp());
            y -= step / (1.0 + y * step);
        }
        y.copysign(x)
    }

    #[test]
    fn exact_functions_are_exact() {
        check_ulp(UnaryOp::Abs, f64::abs, 0);
        check_ulp(UnaryOp::Neg, |x| -x, 0);
        check_ulp(UnaryOp::Floor, f64::floor, 0);
        check_ulp(UnaryOp::Ceil, f64::ceil, 0);
        check_ulp(UnaryOp::Trunc, f64::trunc, 0);
        check_ulp(UnaryOp::RoundHalfEven, f64::round_ties_even, 0);
        check_ulp(UnaryOp::RoundHalfAway, f64::round, 0);
        check_ulp(UnaryOp::Sqrt, f64::sqrt, 0);
        check_ulp(UnaryOp::Identity, |x| x, 0);
        check_ulp(UnaryOp::Relu, |x| x.max(0.0), 0);
        check_ulp(UnaryOp::Clamp { min: -1.0, max: 6.0 }, |x| x.clamp(-1.0, 6.0), 0);
        check_ulp(UnaryOp::Square, |x| x * x, 0);
        check_ulp(UnaryOp::Reciprocal, |x| 1.0 / x, 0);
        check_ulp(UnaryOp::Sign, |x| if x == 0.0 { 0.0 } else { x.signum() }, 0);
        check_ulp(UnaryOp::LeakyRelu { slope: 0.25 }, |x| if x < 0.0 { x * 0.25 } else { x }, 0);
    }

    #[test]
    fn composed_functions_are_close() {
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let softplus = |x: f64| x.max(0.0) + (-x.abs()).exp().ln_1p();
        check_close(UnaryOp::GeluErf, |x| 0.5 * x * (1.0 + erf_f64(x * std::f64::consts::FRAC_1_SQRT_2)));
        check_close(UnaryOp::GeluTanh, |x| {
            0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh())
        });
        check_close(UnaryOp::Swish { beta: 1.5 }, |x| x * sigmoid(1.5 * x));
        check_close(UnaryOp::HSwish, |x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0));
        check_close(UnaryOp::HSigmoid, |x| (x + 3.0).clamp(0.0, 6.0) / 6.0);
        check_close(UnaryOp::HardSigmoid { alpha: 0.2, beta: 0.5 }, |x| (0.2 * x + 0.5).clamp(0.0, 1.0));
        check_close(UnaryOp::Elu { alpha: 1.5 }, |x| if x > 0.0 { x } else { 1.5 * x.exp_m1() });
        check_close(UnaryOp::Softplus, softplus);
        check_close(UnaryOp::Mish, |x| x * softplus(x).tanh());
        check_close(UnaryOp::SoftSign, |x| x / (1.0 + x.abs()));
        check_close(UnaryOp::Power { exponent: 3.0 }, |x| x * x * x);
        check_ulp(UnaryOp::Power { exponent: 0.5 }, |x| x.powf(0.5), 0);
    }

    #[test]
    fn not_a_number_stays_and_short_slices_are_exact() {
        let ops = [
            UnaryOp::Exp,
            UnaryOp::Log,
            UnaryOp::Tanh,
            UnaryOp::Sigmoid,
            UnaryOp::Erf,
            UnaryOp::GeluErf,
            UnaryOp::GeluTanh,
            UnaryOp::Swish { beta: 1.0 },
            UnaryOp::HSwish,
            UnaryOp::HSigmoid,
            UnaryOp::HardSigmoid { alpha: 1.0, beta: 0.0 },
            UnaryOp::Elu { alpha: 1.0 },
            UnaryOp::Selu { alpha: 1.0, lambda: 2.0 },
            UnaryOp::Softplus,
            UnaryOp::Mish,
            UnaryOp::SoftSign,
            UnaryOp::Relu,
            UnaryOp::LeakyRelu { slope: 0.1 },
            UnaryOp::Clamp { min: 0.0, max: 1.0 },
            UnaryOp::Sign,
            UnaryOp::Sqrt,
            UnaryOp::Sin,
            UnaryOp::Cos,
            UnaryOp::Tan,
            UnaryOp::Asin,
            UnaryOp::Acos,
            UnaryOp::Atan,
            UnaryOp::Sinh,
            UnaryOp::Cosh,
            UnaryOp::Asinh,
            UnaryOp::Acosh,
            UnaryOp::Atanh,
            UnaryOp::ErfInv,
            UnaryOp::Floor,
            UnaryOp::RoundHalfAway,
            UnaryOp::Power { exponent: 2.5 },
            UnaryOp::Affine { scale: 2.0, shift: 1.0 },
            UnaryOp::ReciprocalSqrt,
        ];
        for isa in Isa::available() {
            for op in ops {
                assert!(run(isa, op, &[f32::NAN])[0].is_nan(), "{op:?} loses NaN");
                let long: Vec<f32> = (0..40).map(|i| i as f32 * 0.37 + 0.1).collect();
                let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
                let whole = bits(&run(isa, op, &long));
                for len in 0..40 {
                    assert_eq!(bits(&run(isa, op, &long[..len])), whole[..len]);
                }
            }
        }
        assert!(unary_f32(Isa::portable(), UnaryOp::Exp, &[0.0], &mut []).is_err());
    }
}
