//! Elementary functions on vectors. Exponential, hyperbolic tangent, logistic and error function stay within two units
//! in the last place; all of them propagate NaN.

use crate::gelu::{self, gelu};
use crate::inverse::{acos, acosh, asin, asinh, atan, atanh, erf_inv};
use crate::simd::Simd;

/// A function of one vector.
pub(crate) trait UnaryMath: Copy + Sync {
    /// The function. Implementations are `#[inline(always)]`.
    fn apply<S: Simd>(self, s: S, x: S::F) -> S::F;
}

/// A divisor of many values, whose reciprocal is known.
#[derive(Clone, Copy)]
pub(crate) struct Divisor<S: Simd> {
    value: S::F,
    reciprocal: S::F,
    /// Whether its lanes are so far from the limits of f32 that remainders are exact.
    is_usual: bool,
}

impl<S: Simd> Divisor<S> {
    #[inline(always)]
    pub(crate) fn new(s: S, value: S::F) -> Self {
        let magnitude = s.abs(value);
        let is_small = s.any(s.lt(magnitude, s.splat(f32::from_bits((127 - 64) << 23))));
        let is_large = s.any(s.lt(s.splat(f32::from_bits((127 + 64) << 23)), magnitude));
        let is_usual = S::FUSED && !is_small && !is_large && !s.any(s.is_nan(value));
        Self { value, reciprocal: s.div(s.splat(1.0), value), is_usual }
    }

    /// `a / divisor`, rounded as the division is if `a` is finite and at least 2^-100 or zero; a quotient of smaller values
    /// may differ in its last bits, one of infinities is NaN.
    #[inline(always)]
    pub(crate) fn divide(self, s: S, a: S::F) -> S::F {
        if !self.is_usual {
            return s.div(a, self.value);
        }
        // The first correction leaves less than a unit in the last place, so that the remainder of the second is exact, and
        // what it adds is rounded as the quotient is (P. Markstein's way to divide by fused operations).
        let mut quotient = s.mul(a, self.reciprocal);
        for _ in 0..2 {
            let remainder = s.fma(s.neg(quotient), self.value, a);
            quotient = s.fma(remainder, self.reciprocal, quotient);
        }
        quotient
    }
}

/// The levels of a FakeQuantize, for each lane.
#[derive(Clone, Copy)]
pub(crate) struct Levels<S: Simd> {
    /// The lower and the upper limit of the input and of the output.
    limits: [S::F; 4],
    steps: S::F,
    width: Divisor<S>,
    last: Divisor<S>,
    /// Levels in a unit of the input.
    per_unit: S::F,
    /// From this distance of a level on it may be another one that is nearest.
    near: S::F,
    /// The reciprocal of the steps, in two parts.
    parts: [S::F; 2],
    is_usual: bool,
}

impl<S: Simd> Levels<S> {
    /// The most steps for which `near` is above zero and quotients of two parts are exact.
    const MOST_STEPS: f32 = 65535.0;

    #[inline(always)]
    pub(crate) fn new(s: S, limits: [S::F; 4], steps: S::F) -> Self {
        let (width, last) = (Divisor::new(s, s.sub(limits[1], limits[0])), Divisor::new(s, steps));
        let per_unit = s.mul(steps, width.reciprocal);
        // Both ways to a level together are rounded five times.
        let near = s.fma(steps, s.splat(-8.0 * f32::EPSILON / 2.0), s.splat(0.5));
        let rest = s.fma(s.neg(last.reciprocal), steps, s.splat(1.0));
        let parts = [last.reciprocal, s.mul(rest, last.reciprocal)];
        let is_usual = width.is_usual && last.is_usual && !s.any(s.lt(s.splat(Self::MOST_STEPS), steps));
        Self { limits, steps, width, last, per_unit, near, parts, is_usual }
    }

    /// Whether [`Self::nearest_of`] may be asked for its quick way.
    #[inline(always)]
    pub(crate) fn is_usual(&self) -> bool {
        self.is_usual
    }

    /// The nearest level of a value.
    #[inline(always)]
    pub(crate) fn nearest(&self, s: S, x: S::F) -> S::F {
        let [level] =
            if self.is_usual { self.nearest_of::<1, true>(s, [x]) } else { self.nearest_of::<1, false>(s, [x]) };
        level
    }

    /// The nearest levels of values, the same bits by the quick way and by the other.
    #[inline(always)]
    pub(crate) fn nearest_of<const COUNT: usize, const QUICK: bool>(&self, s: S, x: [S::F; COUNT]) -> [S::F; COUNT] {
        let [input_low, input_high, output_low, output_high] = self.limits;
        let (mut distances, mut levels, mut parts) = (x, x, x);
        for distance in &mut distances {
            *distance = s.sub(*distance, input_low);
        }
        let mut is_far = s.splat(0.0);
        if QUICK {
            for (level, distance) in levels.iter_mut().zip(distances) {
                let scaled = s.mul(distance, self.per_unit);
                *level = s.round(scaled);
                is_far = s.select(s.lt(self.near, s.abs(s.sub(scaled, *level))), s.splat(1.0), is_far);
            }
        }
        if !QUICK || s.any(s.lt(s.splat(0.0), is_far)) {
            // What the divisions do with infinities and the smallest values makes no difference: these are at a limit.
            for (level, distance) in levels.iter_mut().zip(distances) {
                *level = s.round(s.mul(self.width.divide(s, distance), self.steps));
            }
        }
        for (part, level) in parts.iter_mut().zip(levels) {
            // A quotient of integers below 2^16 lies further from the middle of two f32 than what the parts leave out.
            *part = if QUICK {
                s.fma(level, self.parts[0], s.mul(level, self.parts[1]))
            } else {
                self.last.divide(s, level)
            };
        }
        let mut results = parts;
        for (result, x) in results.iter_mut().zip(x) {
            let inside = s.add(s.mul(*result, s.sub(output_high, output_low)), output_low);
            let below = s.select(s.le(x, s.min(input_low, input_high)), output_low, inside);
            *result = s.select(s.lt(s.max(input_low, input_high), x), output_high, below);
        }
        results
    }
}

/// Reads `[c0, c1, ...]` as the polynomial with the highest power first.
#[inline(always)]
pub(crate) fn polynomial<S: Simd, const N: usize>(s: S, x: S::F, coefficients: [f32; N]) -> S::F {
    let mut sum = s.splat(coefficients[0]);
    for coefficient in &coefficients[1..] {
        sum = s.fma(sum, x, s.splat(*coefficient));
    }
    sum
}

/// Two to an integer power within the normal range.
#[inline(always)]
fn power_of_two<S: Simd>(s: S, exponent: S::I) -> S::F {
    s.from_bits(s.shl::<23>(s.add_i(exponent, s.splat_i(127))))
}

/// Splits into an integer `n` and the exponential of the rest less one, so that `exp(x) = 2^n (1 + rest)`.
#[inline(always)]
fn exp_parts<S: Simd>(s: S, x: S::F) -> (S::F, S::F) {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-0.693_359_4), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    let p = polynomial(s, r, [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_6e-1, 5e-1]);
    (n, s.fma(s.mul(p, r), r, r))
}

/// The exponential.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::F) -> S::F {
    let x = s.min(s.splat(89.0), s.max(s.splat(-104.0), x));
    let (n, rest) = exp_parts(s, x);
    s.scale(s.add(rest, s.splat(1.0)), n)
}

/// Half of the exponential of a magnitude, and half of that of its negative, which add up to the hyperbolic cosine.
#[inline(always)]
fn half_exps<S: Simd>(s: S, magnitude: S::F) -> [S::F; 2] {
    let (n, rest) = exp_parts(s, s.min(s.splat(90.0), magnitude));
    let half = s.scale(s.add(rest, s.splat(1.0)), s.sub(n, s.splat(1.0)));
    [half, s.div(s.splat(0.25), half)]
}

/// The hyperbolic sine.
#[inline(always)]
fn sinh<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let z = s.mul(x, x);
    let small = s.fma(s.mul(x, z), polynomial(s, z, [2.816_951_3e-6, 1.983_616e-4, 8.333_35e-3, 1.666_666_7e-1]), x);
    let [rising, falling] = half_exps(s, magnitude);
    s.select(s.lt(magnitude, s.splat(1.0)), small, s.copysign(s.sub(rising, falling), x))
}

/// The hyperbolic cosine.
#[inline(always)]
fn cosh<S: Simd>(s: S, x: S::F) -> S::F {
    let [rising, falling] = half_exps(s, s.abs(x));
    s.add(rising, falling)
}

/// The exponential, for arguments up to zero; 0 where it is no normal number.
#[inline(always)]
pub(crate) fn exp_of_negative<S: Simd>(s: S, x: S::F) -> S::F {
    // From here on the power of two is zero.
    let (n, rest) = exp_parts(s, s.max(s.splat(-88.0), x));
    let scale = power_of_two(s, s.to_i(n));
    s.fma(scale, rest, scale)
}

/// The exponential less one, for arguments up to zero.
#[inline(always)]
fn exp_minus_one_of_negative<S: Simd>(s: S, x: S::F) -> S::F {
    let (n, rest) = exp_parts(s, s.max(s.splat(-30.0), x));
    let scale = power_of_two(s, s.to_i(n));
    s.fma(scale, rest, s.sub(scale, s.splat(1.0)))
}

/// The logarithm of `(1 + m) * 2^exponent`, for `m` between the root of one half less one and that of two less one.
#[inline(always)]
fn log_of_parts<S: Simd>(s: S, m: S::F, exponent: S::F) -> S::F {
    let z = s.mul(m, m);
    let y = polynomial(
        s,
        m,
        [
            7.037_683_6e-2,
            -1.151_461e-1,
            1.167_699_9e-1,
            -1.242_014_1e-1,
            1.424_932_3e-1,
            -1.666_805_8e-1,
            2.000_071_5e-1,
            -2.499_999_4e-1,
            3.333_333e-1,
        ],
    );
    let y = s.mul(s.mul(y, m), z);
    let y = s.fma(exponent, s.splat(-2.121_944_4e-4), y);
    let y = s.fma(s.splat(-0.5), z, y);
    s.fma(exponent, s.splat(0.693_359_4), s.add(m, y))
}

/// The natural logarithm.
#[inline(always)]
pub(crate) fn log<S: Simd>(s: S, x: S::F) -> S::F {
    let tiny = s.lt(x, s.splat(f32::MIN_POSITIVE));
    let normal = s.select(tiny, s.mul(x, s.splat(8_388_608.0)), x);
    let bits = s.bits(normal);
    let exponent = s.from_i(s.sub_i(s.shr::<23>(bits), s.splat_i(126)));
    let exponent = s.sub(exponent, s.select(tiny, s.splat(23.0), s.splat(0.0)));
    let mantissa = s.from_bits(s.or_i(s.and_i(bits, s.splat_i(0x007f_ffff)), s.splat_i(0x3f00_0000)));
    let low = s.lt(mantissa, s.splat(std::f32::consts::FRAC_1_SQRT_2));
    let exponent = s.sub(exponent, s.select(low, s.splat(1.0), s.splat(0.0)));
    let m = s.sub(s.add(mantissa, s.select(low, mantissa, s.splat(0.0))), s.splat(1.0));
    let y = log_of_parts(s, m, exponent);
    let y = s.select(s.eq(x, s.splat(f32::INFINITY)), x, y);
    let y = s.select(s.eq(x, s.splat(0.0)), s.splat(f32::NEG_INFINITY), y);
    let y = s.select(s.lt(x, s.splat(0.0)), s.splat(f32::NAN), y);
    s.select(s.is_nan(x), x, y)
}

/// The hyperbolic tangent.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let square = s.mul(x, x);
    let small = polynomial(s, square, [-5.704_988_7e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1]);
    let small = s.fma(s.mul(small, square), x, x);
    let e = exp_of_negative(s, s.mul(magnitude, s.splat(-2.0)));
    let large = s.sub(s.splat(1.0), s.div_by_one_to_two(s.add(e, e), s.add(e, s.splat(1.0))));
    let result = s.select(s.lt(magnitude, s.splat(0.625)), small, s.copysign(large, x));
    s.select(s.is_nan(x), x, result)
}

/// The logistic function `1 / (1 + exp(-x))`; 0 where it is no normal number.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::F) -> S::F {
    let e = exp_of_negative(s, s.neg(s.abs(x)));
    let numerator = s.select(s.lt(x, s.splat(0.0)), e, s.splat(1.0));
    s.div_by_one_to_two(numerator, s.add(e, s.splat(1.0)))
}

/// The error function.
#[inline(always)]
pub(crate) fn erf<S: Simd>(s: S, x: S::F) -> S::F {
    let t = s.abs(x);
    let square = s.mul(x, x);
    let outer = polynomial(
        s,
        t,
        [
            -1.728_534_7e-5,
            3.831_971_3e-4,
            -3.883_964_4e-3,
            2.425_462_2e-2,
            -1.067_778_8e-1,
            -6.348_467e-1,
            -1.287_175_1e-1,
        ],
    );
    let outer = s.fma(outer, t, s.neg(t));
    let outer = s.copysign(s.sub(s.splat(1.0), exp_of_negative(s, outer)), x);
    let outer = s.select(s.lt(s.splat(5.0), t), s.copysign(s.splat(1.0), x), outer);
    let inner = polynomial(
        s,
        square,
        [-5.967_617e-4, 4.991_194_2e-3, -2.676_813_5e-2, 1.128_199_3e-1, -3.761_253_4e-1, 1.283_791_7e-1],
    );
    let inner = s.fma(inner, x, x);
    let result = s.select(s.lt(s.splat(0.927_734_4), t), outer, inner);
    s.select(s.is_nan(x), x, result)
}

/// The sine, or the cosine where `quarter` is 1.
#[inline(always)]
fn sine<S: Simd>(s: S, x: S::F, quarter: i32) -> S::F {
    let n = s.round(s.mul(x, s.splat(std::f32::consts::FRAC_2_PI)));
    let r = s.fma(n, s.splat(-1.570_312_5), x);
    let r = s.fma(n, s.splat(-4.837_513e-4), r);
    let r = s.fma(n, s.splat(-7.549_79e-8), r);
    let z = s.mul(r, r);
    let sin = s.fma(s.mul(polynomial(s, z, [-1.951_529_6e-4, 8.332_161e-3, -1.666_665_5e-1]), z), r, r);
    let cos = polynomial(s, z, [2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2, -0.5, 1.0]);
    let in_range = s.lt(s.abs(x), s.splat(8192.0));
    let quadrant = s.add_i(s.to_i(s.select(in_range, n, s.splat(0.0))), s.splat_i(quarter));
    let odd = s.eq_i(s.and_i(quadrant, s.splat_i(1)), s.splat_i(1));
    let sign = s.shl::<30>(s.and_i(quadrant, s.splat_i(2)));
    let result = s.from_bits(s.xor_i(s.bits(s.select(odd, cos, sin)), sign));
    one_by_one(s, x, result, in_range, |value| if quarter == 0 { value.sin() } else { value.cos() })
}

/// The result, but the function of each value where the mask is not set.
#[inline(always)]
fn one_by_one<S: Simd>(s: S, x: S::F, result: S::F, mask: S::M, function: impl Fn(f32) -> f32) -> S::F {
    let outside = s.select(mask, s.splat(0.0), s.splat(1.0));
    if !s.any(s.lt(s.splat(0.0), outside)) {
        return result;
    }
    let (mut values, mut results, mut others) = ([0.0f32; 16], [0.0f32; 16], [0.0f32; 16]);
    // SAFETY: the arrays hold as many values as the widest vector.
    unsafe {
        s.store(values.as_mut_ptr(), x);
        s.store(results.as_mut_ptr(), result);
        s.store(others.as_mut_ptr(), outside);
    }
    for ((value, result), outside) in values.iter().zip(&mut results).zip(others).take(S::LANES) {
        if outside != 0.0 {
            *result = function(*value);
        }
    }
    // SAFETY: as above.
    unsafe { s.load(results.as_ptr()) }
}

/// The tangent.
#[inline(always)]
fn tan<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let n = s.round(s.mul(magnitude, s.splat(std::f32::consts::FRAC_2_PI)));
    // The first product is exact where the difference is rounded once, and so are the digits that cancellation leaves; three
    // parts of a quarter turn are more than the smallest rest needs.
    let r = s.fma(n, s.splat(-std::f32::consts::FRAC_PI_2), magnitude);
    let r = s.fma(n, s.splat(4.371_139e-8), r);
    let r = s.fma(n, s.splat(1.715_124_5e-15), r);
    let z = s.mul(r, r);
    let rest = polynomial(
        s,
        z,
        [4.387_079e-3, 6.819_878e-5, 1.085_218_3e-2, 2.127_605_7e-2, 5.406_106_6e-2, 1.333_265_3e-1, 3.333_335e-1],
    );
    let even = s.fma(s.mul(r, z), rest, r);
    let in_range = s.lt(magnitude, s.splat(if S::FUSED { 8192.0 } else { 0.5 }));
    let turns = s.to_i(s.select(in_range, n, s.splat(0.0)));
    let is_odd = s.eq_i(s.and_i(turns, s.splat_i(1)), s.splat_i(1));
    let tangent = s.select(is_odd, s.div(s.splat(-1.0), even), even);
    let sign = s.and_i(s.bits(x), s.splat_i(i32::MIN));
    let result = s.from_bits(s.xor_i(s.bits(tangent), sign));
    one_by_one(s, x, result, in_range, |value| f64::from(value).tan() as f32)
}

/// `log(1 + e)` for `e` in `[0, 1]`.
#[inline(always)]
fn log_one_plus<S: Simd>(s: S, e: S::F) -> S::F {
    // Beyond the root of two it is the logarithm of the half that is small.
    let is_large = s.lt(s.splat(std::f32::consts::SQRT_2 - 1.0), e);
    let m = s.select(is_large, s.mul(s.sub(e, s.splat(1.0)), s.splat(0.5)), e);
    log_of_parts(s, m, s.select(is_large, s.splat(1.0), s.splat(0.0)))
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident { $($field:ident),* } |$s:ident, $x:ident| $body:expr;)*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy)]
        pub(crate) struct $name { $(pub(crate) $field: f32),* }
        impl UnaryMath for $name {
            #[inline(always)]
            fn apply<S: Simd>(self, $s: S, $x: S::F) -> S::F {
                $(let $field = $s.splat(self.$field);)*
                $body
            }
        })*
    };
}

functions! {
    /// The identity.
    Copy_ {} |_s, x| x;
    /// The exponential.
    Exp {} |s, x| exp(s, x);
    /// The natural logarithm.
    Log {} |s, x| log(s, x);
    /// The hyperbolic tangent.
    Tanh {} |s, x| tanh(s, x);
    /// The logistic function.
    Sigmoid {} |s, x| sigmoid(s, x);
    /// The error function.
    Erf {} |s, x| erf(s, x);
    /// GELU through the error function.
    GeluErf {} |s, x| gelu(s, x, &gelu::ERF);
    /// GELU through the hyperbolic tangent.
    GeluTanh {} |s, x| gelu(s, x, &gelu::TANH);
    /// `x * sigmoid(beta * x)`.
    Swish { beta } |s, x| s.mul(x, sigmoid(s, s.mul(x, beta)));
    /// `x * min(max(x + 3, 0), 6) / 6`.
    HSwish {} |s, x| {
        let gate = s.min(s.splat(6.0), s.max(s.splat(0.0), s.add(x, s.splat(3.0))));
        s.mul(x, s.mul(gate, s.splat(1.0 / 6.0)))
    };
    /// `min(max(x + 3, 0), 6) / 6`.
    HSigmoid {} |s, x| {
        let gate = s.min(s.splat(6.0), s.max(s.splat(0.0), s.add(x, s.splat(3.0))));
        s.mul(gate, s.splat(1.0 / 6.0))
    };
    /// `max(0, min(1, alpha * x + beta))`.
    HardSigmoid { alpha, beta } |s, x| {
        s.min(s.splat(1.0), s.max(s.splat(0.0), s.add(s.mul(x, alpha), beta)))
    };
    /// `x > 0 ? x : alpha * (exp(x) - 1)`.
    Elu { alpha } |s, x| {
        let negative = s.mul(alpha, exp_minus_one_of_negative(s, s.min(s.splat(0.0), x)));
        s.select(s.lt(s.splat(0.0), x), x, negative)
    };
    /// `lambda * (x > 0 ? x : alpha * (exp(x) - 1))`.
    Selu { alpha, lambda } |s, x| {
        let negative = s.mul(alpha, exp_minus_one_of_negative(s, s.min(s.splat(0.0), x)));
        s.mul(lambda, s.select(s.lt(s.splat(0.0), x), x, negative))
    };
    /// `log(1 + exp(x))`.
    Softplus {} |s, x| {
        let rest = log_one_plus(s, exp_of_negative(s, s.neg(s.abs(x))));
        s.add(s.max(s.splat(0.0), x), rest)
    };
    /// `x * tanh(log(1 + exp(x)))`.
    Mish {} |s, x| {
        let e = exp(s, s.min(s.splat(20.0), x));
        let n = s.mul(e, s.add(e, s.splat(2.0)));
        s.mul(x, s.div(n, s.add(n, s.splat(2.0))))
    };
    /// `x / (1 + |x|)`.
    SoftSign {} |s, x| s.div(x, s.add(s.abs(x), s.splat(1.0)));
    /// `max(x, 0)`.
    Relu {} |s, x| s.max(s.splat(0.0), x);
    /// `x < 0 ? slope * x : x`.
    LeakyRelu { slope } |s, x| s.select(s.lt(x, s.splat(0.0)), s.mul(x, slope), x);
    /// `min(max(x, low), high)`.
    Clamp { low, high } |s, x| s.min(high, s.max(low, x));
    /// `scale * x + shift`, rounded after each step.
    Affine { scale, shift } |s, x| s.add(s.mul(x, scale), shift);
    /// The absolute value.
    Abs {} |s, x| s.abs(x);
    /// The negated value.
    Neg {} |s, x| s.neg(x);
    /// -1, 0 or 1.
    Sign {} |s, x| {
        let unit = s.copysign(s.splat(1.0), x);
        let zero = s.select(s.eq(x, s.splat(0.0)), s.splat(0.0), unit);
        s.select(s.is_nan(x), x, zero)
    };
    /// The square root.
    Sqrt {} |s, x| s.sqrt(x);
    /// The square.
    Square {} |s, x| s.mul(x, x);
    /// The cube.
    Cube {} |s, x| s.mul(s.mul(x, x), x);
    /// `1 / x`.
    Reciprocal {} |s, x| s.div(s.splat(1.0), x);
    /// `1 / sqrt(x)`.
    ReciprocalSqrt {} |s, x| s.div(s.splat(1.0), s.sqrt(x));
    /// Downwards to an integer.
    Floor {} |s, x| s.floor(x);
    /// Upwards to an integer.
    Ceil {} |s, x| s.ceil(x);
    /// Towards zero to an integer.
    Trunc {} |s, x| s.trunc(x);
    /// To the nearest integer, halves to even.
    RoundHalfEven {} |s, x| s.round(x);
    /// `x^0.5`: the square root, but infinity of minus infinity, and zero of minus zero.
    HalfPower {} |s, x| {
        let root = s.add(s.sqrt(x), s.splat(0.0));
        s.select(s.eq(x, s.splat(f32::NEG_INFINITY)), s.splat(f32::INFINITY), root)
    };
    /// To the nearest integer, halves away from zero.
    RoundHalfAway {} |s, x| s.trunc(s.add(x, s.copysign(s.splat(0.499_999_97), x)));
    /// The sine.
    Sin {} |s, x| sine(s, x, 0);
    /// The cosine.
    Cos {} |s, x| sine(s, x, 1);
    /// The tangent.
    Tan {} |s, x| tan(s, x);
    /// The inverse sine.
    Asin {} |s, x| asin(s, x);
    /// The inverse cosine.
    Acos {} |s, x| acos(s, x);
    /// The inverse tangent.
    Atan {} |s, x| atan(s, x);
    /// The hyperbolic sine.
    Sinh {} |s, x| sinh(s, x);
    /// The hyperbolic cosine.
    Cosh {} |s, x| cosh(s, x);
    /// The inverse hyperbolic sine.
    Asinh {} |s, x| asinh(s, x);
    /// The inverse hyperbolic cosine.
    Acosh {} |s, x| acosh(s, x);
    /// The inverse hyperbolic tangent.
    Atanh {} |s, x| atanh(s, x);
    /// The inverse of the error function.
    ErfInv {} |s, x| erf_inv(s, x);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::simd::{Kernel, dispatch};
    use crate::testing::Random;
    use pretty_assertions::assert_eq;

    struct Quotients<'a>(f32, &'a [f32], &'a mut [f32]);

    impl Kernel for Quotients<'_> {
        type Output = ();
        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let divisor = Divisor::new(s, s.splat(self.0));
            for (from, to) in self.1.chunks(S::LANES).zip(self.2.chunks_mut(S::LANES)) {
                // SAFETY: so many values lie in both.
                unsafe {
                    let value = s.load_partial(from.as_ptr(), from.len());
                    s.store_partial(to.as_mut_ptr(), divisor.divide(s, value), to.len());
                }
            }
        }
    }

    /// Quotients by a known divisor are those of the division, to the last bit.
    #[test]
    fn known_divisors_divide() {
        let mut random = Random::new(5);
        let divisors = [1.0, 3.0, 255.0, -0.1, 1e-15, 7e12, 1e-30, 3e35, f32::MIN_POSITIVE, f32::INFINITY, 1.999_999_9];
        let more: Vec<f32> = random.values(60).iter().map(|value| value * 10.0).collect();
        for divisor in divisors.into_iter().chain(more).filter(|divisor| *divisor != 0.0) {
            let mut values: Vec<f32> = (0..=255).map(|i| i as f32).collect();
            for scale in [1.0, 255.0, 1e-20, 1e18, divisor.clamp(-1e30, 1e30)] {
                values.extend(random.values(400).iter().map(|value| value * scale));
            }
            let expected: Vec<u32> = values.iter().map(|value| (value / divisor).to_bits()).collect();
            for isa in Isa::available() {
                let mut quotients = vec![0.0; values.len()];
                dispatch(isa, Quotients(divisor, &values, &mut quotients));
                let quotients: Vec<u32> = quotients.iter().map(|value| value.to_bits()).collect();
                assert_eq!(quotients, expected, "{divisor} {isa}");
            }
        }
    }
}
