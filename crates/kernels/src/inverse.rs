//! Inverse elementary functions on vectors, within two units in the last place (the inverse hyperbolic sine and
//! tangent and the inverse error function: three). The polynomials are minimax fits of the relative error.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

use crate::math::{log, polynomial};
use crate::simd::Simd;

/// What is missing in the f32 next to pi / 2.
const FRAC_PI_2_REST: f32 = -4.371_139e-8;

/// `asin(x) / x - 1` by `z = x * x`, for `x` up to a half, times `1 / z`.
#[inline(always)]
fn arcsine_rest<S: Simd>(s: S, z: S::F) -> S::F {
    polynomial(s, z, [4.216_630_8e-2, 2.417_951_6e-2, 4.547_037_6e-2, 7.495_297_5e-2, 1.666_675_2e-1])
}

/// For magnitudes above a half `[2 r, 2 (asin(r) - r)]` with `r = sqrt((1 - |x|) / 2)`, which sum up to `acos(|x|)`. NaN
/// beyond 1.
#[inline(always)]
fn arccosine_parts<S: Simd>(s: S, magnitude: S::F) -> [S::F; 2] {
    let z = s.mul(s.sub(s.splat(1.0), magnitude), s.splat(0.5));
    let root = s.sqrt(z);
    let twice = s.add(root, root);
    [twice, s.mul(s.mul(twice, z), arcsine_rest(s, z))]
}

/// The inverse sine; NaN outside of [-1, 1].
#[inline(always)]
pub(crate) fn asin<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let z = s.mul(x, x);
    let small = s.fma(s.mul(x, z), arcsine_rest(s, z), x);
    let [twice, rest] = arccosine_parts(s, magnitude);
    let rest = s.sub(rest, s.splat(FRAC_PI_2_REST));
    let large = s.copysign(s.sub(s.sub(s.splat(FRAC_PI_2), twice), rest), x);
    // Comparisons with NaN are false, and the other way keeps it.
    let result = s.select(s.le(magnitude, s.splat(0.5)), small, large);
    s.select(s.le(magnitude, s.splat(1.0)), result, s.splat(f32::NAN))
}

/// The inverse cosine; NaN outside of [-1, 1].
#[inline(always)]
pub(crate) fn acos<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let z = s.mul(x, x);
    let odd = s.sub(s.mul(s.mul(x, z), arcsine_rest(s, z)), s.splat(FRAC_PI_2_REST));
    let small = s.sub(s.splat(FRAC_PI_2), s.add(x, odd));
    let [twice, rest] = arccosine_parts(s, magnitude);
    let right = s.add(twice, rest);
    let left = s.sub(s.sub(s.splat(PI), twice), s.sub(rest, s.splat(2.0 * FRAC_PI_2_REST)));
    let large = s.select(s.lt(x, s.splat(0.0)), left, right);
    s.select(s.le(magnitude, s.splat(0.5)), small, large)
}

/// The inverse tangent.
#[inline(always)]
pub(crate) fn atan<S: Simd>(s: S, x: S::F) -> S::F {
    let (magnitude, one) = (s.abs(x), s.splat(1.0));
    // Turned by a half or a quarter of a right angle, what remains lies below the tangent of the latter half.
    let is_middle = s.lt(s.splat(0.414_213_57), magnitude);
    let is_large = s.lt(s.splat(2.414_213_7), magnitude);
    let numerator = s.select(is_middle, s.sub(magnitude, one), magnitude);
    let numerator = s.select(is_large, s.splat(-1.0), numerator);
    let denominator = s.select(is_middle, s.add(magnitude, one), one);
    let denominator = s.select(is_large, magnitude, denominator);
    let rest = s.div(numerator, denominator);
    let z = s.mul(rest, rest);
    let odd = polynomial(s, z, [-6.078_221e-2, 1.059_381_4e-1, -1.424_353_3e-1, 1.999_847_1e-1, -3.333_331_6e-1]);
    let angle = s.fma(s.mul(rest, z), odd, rest);
    let turn = |quarter: f32, half: f32| s.select(is_large, s.splat(half), s.splat(quarter));
    let turned = s.add(turn(FRAC_PI_4, FRAC_PI_2), s.add(angle, turn(FRAC_PI_2_REST / 2.0, FRAC_PI_2_REST)));
    s.copysign(s.select(is_middle, turned, angle), x)
}

/// `[1 + e, c]` for `e` from zero on, so that `log(1 + e)` is the logarithm of the rounded sum, and `c` what rounding takes
/// from it.
#[inline(always)]
fn one_and<S: Simd>(s: S, e: S::F) -> [S::F; 2] {
    let one = s.splat(1.0);
    let sum = s.add(e, one);
    let (small, large) = (s.min(one, e), s.max(one, e));
    let lost = s.sub(small, s.sub(sum, large));
    [sum, s.div(lost, sum)]
}

/// `log(1 + e)`, or `log(2 x)` where `x` is so large that no more of it remains.
#[inline(always)]
fn log_of_one_and<S: Simd>(s: S, e: S::F, x: S::F) -> S::F {
    let is_large = s.lt(s.splat(1e7), x);
    let [sum, correction] = one_and(s, e);
    let correction = s.select(is_large, s.splat(LN_2), correction);
    s.add(log(s, s.select(is_large, x, sum)), correction)
}

/// The inverse hyperbolic sine.
#[inline(always)]
pub(crate) fn asinh<S: Simd>(s: S, x: S::F) -> S::F {
    let (magnitude, one) = (s.abs(x), s.splat(1.0));
    // `1 + e = x + sqrt(x * x + 1)`.
    let square = s.mul(x, x);
    let e = s.add(magnitude, s.div(square, s.add(one, s.sqrt(s.add(one, square)))));
    let result = log_of_one_and(s, e, magnitude);
    s.copysign(s.select(s.is_nan(x), x, result), x)
}

/// The inverse hyperbolic tangent: infinite at 1 and -1, NaN beyond.
#[inline(always)]
pub(crate) fn atanh<S: Simd>(s: S, x: S::F) -> S::F {
    let (magnitude, one) = (s.abs(x), s.splat(1.0));
    let is_inside = s.lt(magnitude, one);
    let near = s.select(is_inside, magnitude, s.splat(0.0));
    let e = s.div(s.add(near, near), s.sub(one, near));
    let [sum, correction] = one_and(s, e);
    let inside = s.mul(s.splat(0.5), s.add(log(s, sum), correction));
    let edge = s.select(s.eq(magnitude, one), s.splat(f32::INFINITY), s.splat(f32::NAN));
    s.copysign(s.select(is_inside, inside, edge), x)
}

/// The inverse hyperbolic cosine; NaN below 1.
#[inline(always)]
pub(crate) fn acosh<S: Simd>(s: S, x: S::F) -> S::F {
    // `1 + e = x + sqrt(x * x - 1)`.
    let above = s.sub(x, s.splat(1.0));
    let e = s.add(above, s.sqrt(s.mul(above, s.add(above, s.splat(2.0)))));
    let result = log_of_one_and(s, e, x);
    s.select(s.le(s.splat(1.0), x), result, s.splat(f32::NAN))
}

/// The inverse of the error function: infinite at 1 and -1, NaN beyond.
#[inline(always)]
pub(crate) fn erf_inv<S: Simd>(s: S, x: S::F) -> S::F {
    let magnitude = s.abs(x);
    let one = s.splat(1.0);
    // Close to 1 differences are exact; the function is smooth in the logarithm, and in its root far out (M. Giles,
    // *Approximating the erfinv function*, GPU Computing Gems, 2011).
    let w = s.neg(log(s, s.mul(s.sub(one, magnitude), s.add(one, magnitude))));
    let factor = polynomial(
        s,
        s.sub(w, s.splat(2.5)),
        [
            -1.171_277_9e-8,
            5.171_45e-8,
            3.782_795e-7,
            -4.398_416_4e-6,
            5.836_656_3e-6,
            2.037_139e-4,
            -1.761_681_2e-3,
            2.268_644_6e-4,
            2.460_729_6e-1,
        ],
    );
    let inner = s.fma(s.mul(w, magnitude), factor, s.mul(magnitude, s.splat(0.886_226_95)));
    let is_inner = s.lt(w, s.splat(5.0));
    let is_one = s.eq(magnitude, one);
    let mut result = inner;
    if s.any(s.le(s.splat(5.0), w)) {
        let root = s.sqrt(w);
        let rest = polynomial(
            s,
            s.sub(root, s.splat(3.0)),
            [
                1.100_993_1e-4,
                -3.043_629_6e-4,
                -4.867_579e-5,
                1.478_651_1e-3,
                -3.601_640_5e-3,
                5.689_406e-3,
                -7.636_391e-3,
                9.445_008e-3,
                1.674_911_9e-3,
                -1.670_232e-1,
            ],
        );
        result = s.select(is_inner, inner, s.mul(s.add(root, rest), magnitude));
        result = s.select(is_one, s.splat(f32::INFINITY), result);
    }
    s.copysign(result, x)
}
