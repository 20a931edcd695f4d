//! Functions of one element of any native type: conversions, functions of integers and of f64, and what a float is.

use half::f16;

use crate::elementwise::Number;
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a parallel chunk covers.
const CHUNK: usize = 1 << 14;

/// Half-precision numbers that pass through f32 at a time.
const HALVES: usize = 256;

/// A function of one integer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerOp<T> {
    /// The magnitude; the smallest integer stays as it is.
    Abs,
    /// `-x`, wrapping.
    Negative,
    /// -1, 0 or 1.
    Sign,
    /// All bits turned over.
    Not,
    /// 1 where the integer is 0, else 0.
    IsZero,
    /// The integer itself.
    Same,
    /// `min(max(x, low), high)`.
    Clamp {
        /// The lower limit.
        low: T,
        /// The upper limit.
        high: T,
    },
}

impl<T> IntegerOp<T> {
    /// The function for integers of another type.
    pub fn map_limits<U>(self, convert: impl Fn(T) -> U) -> IntegerOp<U> {
        match self {
            IntegerOp::Abs => IntegerOp::Abs,
            IntegerOp::Negative => IntegerOp::Negative,
            IntegerOp::Sign => IntegerOp::Sign,
            IntegerOp::Not => IntegerOp::Not,
            IntegerOp::IsZero => IntegerOp::IsZero,
            IntegerOp::Same => IntegerOp::Same,
            IntegerOp::Clamp { low, high } => IntegerOp::Clamp { low: convert(low), high: convert(high) },
        }
    }
}

/// A function of one f64 whose result is exact or rounded once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DoubleOp {
    /// The magnitude.
    Abs,
    /// `-x`.
    Negative,
    /// -1 or 1, or the number itself where it is zero or NaN.
    Sign,
    /// The greatest integer that is not above the number.
    Floor,
    /// The least integer that is not below the number.
    Ceiling,
    /// The nearest integer, of two the even one.
    RoundHalfEven,
    /// The nearest integer, of two the one farther from zero.
    RoundHalfAway,
    /// The square root, NaN below zero.
    Sqrt,
    /// The number, 0 where it is below.
    Relu,
    /// The number within limits; NaN stays.
    Clamp {
        /// The lower limit.
        low: f64,
        /// The upper limit.
        high: f64,
    },
}

/// What a float is asked for; the answer is 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FloatTest {
    /// Neither infinite nor NaN.
    IsFinite,
    /// NaN.
    IsNaN,
    /// Infinite.
    IsInf {
        /// Whether minus infinity counts.
        negative: bool,
        /// Whether infinity counts.
        positive: bool,
    },
}

/// An integer of a native type.
pub trait Integer: Number + Ord {
    /// The greatest number.
    const GREATEST: Self;
    /// The least number.
    const LEAST: Self;
    /// See [`IntegerOp::Abs`].
    fn magnitude(self) -> Self;
    /// See [`IntegerOp::Negative`].
    fn negative(self) -> Self;
    /// See [`IntegerOp::Sign`].
    fn sign(self) -> Self;
    /// See [`IntegerOp::Not`].
    fn turned(self) -> Self;
    /// 0 or 1.
    fn of_truth(truth: bool) -> Self;
}

/// A type whose numbers become those of another one as on x86: integers lose their upper bits, floats are cut towards
/// zero, and what does not fit becomes the smallest i32 (for types up to 32 bits) or i64, whose bits are kept.
pub trait ConvertTo<T>: Copy + Send + Sync + 'static {
    /// The converted number.
    fn convert_to(self) -> T;
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Integer for $type {
            const GREATEST: Self = Self::MAX;
            const LEAST: Self = Self::MIN;
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn magnitude(self) -> Self { if self < 0 { self.wrapping_neg() } else { self } }
            #[inline(always)]
            fn negative(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn sign(self) -> Self { (self > 0) as Self - if self < 0 { 1 } else { 0 } }
            #[inline(always)]
            fn turned(self) -> Self { !self }
            #[inline(always)]
            fn of_truth(truth: bool) -> Self { Self::from(truth) }
        })*
    };
}

integers!(i8, u8, i32, i64);

macro_rules! casts {
    ($($from:ty),* => $to:tt) => { $(casts!(@ $from => $to);)* };
    (@ $from:ty => [$($to:ty),*]) => {
        $(impl ConvertTo<$to> for $from {
            #[inline(always)]
            fn convert_to(self) -> $to { self as $to }
        })*
    };
}

// Other types meet f32 only: each pair is compiled for each tier.
casts!(i8, u8, i32, i64 => [i8, u8, i32, i64, f32, f64]);
casts!(i16, u16, u32, u64 => [f32]);
casts!(f32, f64 => [f32, f64]);

macro_rules! truncations {
    ($($float:ty, $before:expr);*) => {
        $(
            impl ConvertTo<i32> for $float {
                #[inline(always)]
                fn convert_to(self) -> i32 {
                    const LIMIT: $float = 2_147_483_648.0;
                    let fits = self > $before && self < LIMIT;
                    let value = if fits { self } else { -LIMIT };
                    // SAFETY: the value lies in the range of i32, cut towards zero, and is no NaN.
                    unsafe { value.to_int_unchecked() }
                }
            }
            impl ConvertTo<i64> for $float {
                #[inline(always)]
                fn convert_to(self) -> i64 {
                    const LIMIT: $float = 9_223_372_036_854_775_808.0;
                    let fits = (-LIMIT..LIMIT).contains(&self);
                    let value = if fits { self } else { -LIMIT };
                    // SAFETY: the value lies in the range of i64 and is no NaN.
                    unsafe { value.to_int_unchecked() }
                }
            }
            impl ConvertTo<u32> for $float {
                #[inline(always)]
                fn convert_to(self) -> u32 { ConvertTo::<i64>::convert_to(self) as u32 }
            }
            impl ConvertTo<u64> for $float {
                #[inline(always)]
                fn convert_to(self) -> u64 {
                    const HALF: $float = 9_223_372_036_854_775_808.0;
                    let is_upper = self >= HALF;
                    let rest = ConvertTo::<i64>::convert_to(if is_upper { self - HALF } else { self }) as u64;
                    if is_upper { rest ^ (1 << 63) } else { rest }
                }
            }
            truncations!(@ $float: i8 u8 i16 u16);
        )*
    };
    (@ $float:ty: $($narrow:ty)*) => {
        $(impl ConvertTo<$narrow> for $float {
            #[inline(always)]
            fn convert_to(self) -> $narrow { ConvertTo::<i32>::convert_to(self) as $narrow }
        })*
    };
}

// The greatest number below the range of i32 that is not cut into it; f32 has none between it and the range.
truncations!(f32, -2_147_483_904.0; f64, -2_147_483_649.0);

/// Writes `op(source[i])` to `target[i]`.
///
/// # Errors
/// The slices differ in length.
pub fn integers<T: Integer>(isa: Isa, op: IntegerOp<T>, source: &[T], target: &mut [T]) -> Result<(), KernelError> {
    match op {
        IntegerOp::Abs => each(isa, |x: T| x.magnitude(), source, target),
        IntegerOp::Negative => each(isa, |x: T| x.negative(), source, target),
        IntegerOp::Sign => each(isa, |x: T| x.sign(), source, target),
        IntegerOp::Not => each(isa, |x: T| x.turned(), source, target),
        IntegerOp::IsZero => each(isa, |x: T| T::of_truth(x == T::default()), source, target),
        IntegerOp::Same => each(isa, |x: T| x, source, target),
        IntegerOp::Clamp { low, high } => each(isa, |x: T| x.max(low).min(high), source, target),
    }
}

/// Writes `op(source[i])` to `target[i]`.
///
/// # Errors
/// The slices differ in length.
pub fn doubles(isa: Isa, op: DoubleOp, source: &[f64], target: &mut [f64]) -> Result<(), KernelError> {
    let sign = |x: f64| if (x > 0.0) | (x < 0.0) { 1f64.copysign(x) } else { x };
    match op {
        DoubleOp::Abs => each(isa, |x: f64| x.abs(), source, target),
        DoubleOp::Negative => each(isa, |x: f64| -x, source, target),
        DoubleOp::Sign => each(isa, sign, source, target),
        DoubleOp::Floor => each(isa, |x: f64| x.floor(), source, target),
        DoubleOp::Ceiling => each(isa, |x: f64| x.ceil(), source, target),
        DoubleOp::RoundHalfEven => each(isa, |x: f64| x.round_ties_even(), source, target),
        DoubleOp::RoundHalfAway => each(isa, |x: f64| x.round(), source, target),
        DoubleOp::Sqrt => each(isa, |x: f64| x.sqrt(), source, target),
        DoubleOp::Relu => each(isa, |x: f64| if x < 0.0 { 0.0 } else { x }, source, target),
        DoubleOp::Clamp { low, high } => {
            let clamp = |x: f64| {
                let x = if x < low { low } else { x };
                if x > high { high } else { x }
            };
            each(isa, clamp, source, target)
        }
    }
}

/// Writes whether `source[i]` is what the test asks for.
///
/// # Errors
/// The slices differ in length.
pub fn test_floats(isa: Isa, test: FloatTest, source: &[f32], target: &mut [u8]) -> Result<(), KernelError> {
    match test {
        FloatTest::IsFinite => each(isa, |x: f32| u8::from(x.abs() < f32::INFINITY), source, target),
        FloatTest::IsNaN => each(isa, |x: f32| u8::from(x.is_nan()), source, target),
        FloatTest::IsInf { negative, positive } => {
            let found = |x: f32| u8::from((positive & (x == f32::INFINITY)) | (negative & (x == f32::NEG_INFINITY)));
            each(isa, found, source, target)
        }
    }
}

/// Writes the converted `source[i]` to `target[i]`.
///
/// # Errors
/// The slices differ in length.
pub fn convert<S: ConvertTo<T>, T: Copy + Send>(isa: Isa, source: &[S], target: &mut [T]) -> Result<(), KernelError> {
    each(isa, |x: S| x.convert_to(), source, target)
}

/// Writes 1 where `source[i]` is not zero, else 0.
///
/// # Errors
/// The slices differ in length.
pub fn truths<S: Copy + PartialEq + Default + Send + Sync>(
    isa: Isa,
    source: &[S],
    target: &mut [u8],
) -> Result<(), KernelError> {
    each(isa, |x: S| u8::from(x != S::default()), source, target)
}

/// Converts truth values, which are not zero where they hold.
///
/// # Errors
/// The slices differ in length.
pub fn convert_truths<T: From<bool> + Copy + Send>(
    isa: Isa,
    source: &[u8],
    target: &mut [T],
) -> Result<(), KernelError> {
    each(isa, |x: u8| T::from(x != 0), source, target)
}

/// As [`truths`], of f16.
///
/// # Errors
/// The slices differ in length.
pub fn truths_of_halves(isa: Isa, source: &[f16], target: &mut [u8]) -> Result<(), KernelError> {
    // All bits but the sign of both zeros are zero.
    each(isa, |x: f16| u8::from(x.to_bits() << 1 != 0), source, target)
}

/// As [`convert_truths`], to f16.
///
/// # Errors
/// The slices differ in length.
pub fn convert_truths_to_halves(isa: Isa, source: &[u8], target: &mut [f16]) -> Result<(), KernelError> {
    // Without a captured value, which would be read where it is needed and keep the loop from being vectorised.
    const ONE: u16 = f16::ONE.to_bits();
    each(isa, |x: u8| f16::from_bits(u16::from(x != 0) * ONE), source, target)
}

/// Converts f16 through f32, which is exact.
///
/// # Errors
/// The slices differ in length.
pub fn convert_from_halves<T: Copy + Send>(isa: Isa, source: &[f16], target: &mut [T]) -> Result<(), KernelError>
where
    f32: ConvertTo<T>,
{
    check_exact("target", target.len(), source.len())?;
    chunks(source, target, |source, target| dispatch(isa, FromHalves { source, target }));
    Ok(())
}

/// Converts to f16 through f32. That rounds once: an integer that f32 rounds is infinite in f16. Not for f64.
///
/// # Errors
/// The slices differ in length.
pub fn convert_to_halves<S: ConvertTo<f32>>(isa: Isa, source: &[S], target: &mut [f16]) -> Result<(), KernelError> {
    check_exact("target", target.len(), source.len())?;
    chunks(source, target, |source, target| dispatch(isa, ToHalves { source, target }));
    Ok(())
}

struct FromHalves<'a, T> {
    source: &'a [f16],
    target: &'a mut [T],
}

impl<T: Copy> Kernel for FromHalves<'_, T>
where
    f32: ConvertTo<T>,
{
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut wide = [0.0; HALVES];
        let (blocks, rest) = self.source.as_chunks::<HALVES>();
        let mut targets = self.target.chunks_mut(HALVES);
        let mut padded = [f16::ZERO; HALVES];
        padded[..rest.len()].copy_from_slice(rest);
        let last = (!rest.is_empty()).then_some(&padded);
        for (source, target) in blocks.iter().chain(last).zip(&mut targets) {
            for first in (0..HALVES).step_by(S::LANES) {
                // SAFETY: a block is a whole number of vectors of any tier.
                unsafe { s.store(wide.as_mut_ptr().add(first), s.load_f16(source.as_ptr().add(first).cast())) };
            }
            for (target, wide) in target.iter_mut().zip(wide) {
                *target = wide.convert_to();
            }
        }
    }
}

struct ToHalves<'a, T> {
    source: &'a [T],
    target: &'a mut [f16],
}

impl<T: ConvertTo<f32>> Kernel for ToHalves<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut wide = [0.0; HALVES];
        let mut narrow = [f16::ZERO; HALVES];
        for (source, target) in self.source.chunks(HALVES).zip(self.target.chunks_mut(HALVES)) {
            for (wide, value) in wide.iter_mut().zip(source) {
                *wide = value.convert_to();
            }
            let (is_whole, whole) = (target.len() == HALVES, target.as_mut_ptr());
            let to = if is_whole { whole } else { narrow.as_mut_ptr() };
            for first in (0..HALVES).step_by(S::LANES) {
                // SAFETY: a block is a whole number of vectors of any tier, and so long is what is written.
                unsafe { s.store_f16(to.add(first).cast(), s.load(wide.as_ptr().add(first))) };
            }
            if !is_whole {
                target.copy_from_slice(&narrow[..target.len()]);
            }
        }
    }
}

/// Writes `function(source[i])` to `target[i]`, compiled for the tier.
fn each<S: Copy + Sync, T: Copy + Send, F: Fn(S) -> T + Copy + Sync>(
    isa: Isa,
    function: F,
    source: &[S],
    target: &mut [T],
) -> Result<(), KernelError> {
    check_exact("target", target.len(), source.len())?;
    chunks(source, target, |source, target| dispatch(isa, Each { function, source, target }));
    Ok(())
}

/// Calls `body` with pieces of two slices of one length.
fn chunks<S: Sync, T: Send>(source: &[S], target: &mut [T], body: impl Fn(&[S], &mut [T]) + Sync) {
    let work = nanoseconds_for_bytes(source.len().saturating_mul(size_of::<S>() + size_of::<T>()));
    let shared = SharedMut::new(target);
    parallel_for(source.len(), CHUNK, work, |range| {
        // SAFETY: the ranges are disjoint and within the target, which is as long as the source.
        body(&source[range.clone()], unsafe { shared.slice(range) });
    });
}

struct Each<'a, S, T, F> {
    function: F,
    source: &'a [S],
    target: &'a mut [T],
}

impl<S: Copy, T, F: Fn(S) -> T> Kernel for Each<'_, S, T, F> {
    type Output = ();
    #[inline(always)]
    fn run<V: Simd>(self, _simd: V) {
        for (target, source) in self.target.iter_mut().zip(self.source) {
            *target = (self.function)(*source);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use pretty_assertions::assert_eq;

    #[test]
    fn functions_of_integers() {
        let mut random = Random::new(3);
        for len in [0, 1, 7, 64, 100, CHUNK + 3] {
            let wide: Vec<i32> = (0..len).map(|_| random.next() as i32).collect();
            let bytes: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
            let (mut a, mut b) = (vec![0; len], vec![0; len]);
            for isa in Isa::available() {
                integers(isa, IntegerOp::Abs, &wide, &mut a).unwrap();
                assert!(a.iter().zip(&wide).all(|(y, x)| *y == x.wrapping_abs()));
                integers(isa, IntegerOp::Sign, &wide, &mut a).unwrap();
                assert!(a.iter().zip(&wide).all(|(y, x)| *y == x.signum()));
                integers(isa, IntegerOp::Negative, &bytes, &mut b).unwrap();
                assert!(b.iter().zip(&bytes).all(|(y, x)| *y == x.wrapping_neg()));
                integers(isa, IntegerOp::Clamp { low: 9, high: 99 }, &bytes, &mut b).unwrap();
                assert!(b.iter().zip(&bytes).all(|(y, x)| *y == (*x).clamp(9, 99)));
                integers(isa, IntegerOp::Not, &wide, &mut a).unwrap();
                assert!(a.iter().zip(&wide).all(|(y, x)| *y == !*x));
                integers(isa, IntegerOp::IsZero, &bytes, &mut b).unwrap();
                assert!(b.iter().zip(&bytes).all(|(y, x)| *y == u8::from(*x == 0)));
            }
        }
        let isa = Isa::portable();
        let mut smallest = [0];
        integers(isa, IntegerOp::Abs, &[i64::MIN], &mut smallest).unwrap();
        assert_eq!(smallest, [i64::MIN]);
        assert!(integers(isa, IntegerOp::Abs, &[1i8], &mut []).is_err());
    }

    /// What a function gives, written otherwise.
    type Expected = fn(f64) -> f64;

    #[test]
    fn functions_of_doubles() {
        let mut values: Vec<f64> = (-90..90).map(|i| f64::from(i) / 4.0).collect();
        values.extend([0.0, -0.0, 1e300, -1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 4503599627370495.5]);
        let table: [(DoubleOp, Expected); 10] = [
            (DoubleOp::Abs, f64::abs),
            (DoubleOp::Negative, |x| -x),
            (DoubleOp::Sign, |x| if x == 0.0 || x.is_nan() { x } else { x.signum() }),
            (DoubleOp::Floor, f64::floor),
            (DoubleOp::Ceiling, f64::ceil),
            (DoubleOp::RoundHalfEven, |x| {
                let down = x.floor();
                match x - down {
                    0.5 if down % 2.0 == 0.0 => down.copysign(x),
                    0.5 => (down + 1.0).copysign(x),
                    _ => x.round(),
                }
            }),
            (DoubleOp::RoundHalfAway, f64::round),
            (DoubleOp::Sqrt, f64::sqrt),
            (DoubleOp::Relu, |x| if x.is_nan() || x == 0.0 { x } else { x.max(0.0) }),
            (DoubleOp::Clamp { low: -2.0, high: 3.5 }, |x| if x.is_nan() { x } else { x.clamp(-2.0, 3.5) }),
        ];
        for isa in Isa::available() {
            for (op, expected) in table {
                let mut result = vec![0.0; values.len()];
                doubles(isa, op, &values, &mut result).unwrap();
                for (value, result) in values.iter().zip(result) {
                    let expected = expected(*value);
                    let is_same = result.to_bits() == expected.to_bits() || (result.is_nan() && expected.is_nan());
                    assert!(is_same, "{isa} {op:?} of {value} is {result}, not {expected}");
                }
            }
        }
        assert!(doubles(Isa::portable(), DoubleOp::Abs, &[1.0], &mut []).is_err());
    }

    #[test]
    fn floats_are_cut_as_on_x86() {
        let values = [
            0.0f32,
            -0.9,
            1.9,
            -2.5,
            300.7,
            2_147_483_520.0,
            2_147_483_648.0,
            -2_147_483_648.0,
            -2_147_483_904.0,
            4e9,
            1e19,
            1.2e19,
            -1e30,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
        ];
        fn all<T: Copy + Default + Send>(isa: Isa, values: &[f32]) -> Vec<T>
        where
            f32: ConvertTo<T>,
        {
            let mut target = vec![T::default(); values.len()];
            convert(isa, values, &mut target).unwrap();
            target
        }
        const I: i32 = i32::MIN;
        const L: i64 = i64::MIN;
        for isa in Isa::available() {
            let expected = [0, 0, 1, -2, 300, 2_147_483_520, I, I, I, I, I, I, I, I, I, I];
            assert_eq!(all::<i32>(isa, &values), expected);
            assert_eq!(all::<u8>(isa, &values), expected.map(|x| x as u8));
            let wide =
                [0, 0, 1, -2, 300, 2_147_483_520, 1 << 31, -(1 << 31), -2_147_483_904, 4_000_000_000, L, L, L, L, L, L];
            assert_eq!(all::<i64>(isa, &values), wide);
            assert_eq!(all::<u32>(isa, &values), wide.map(|x| x as u32));
            assert_eq!(all::<u64>(isa, &values)[10..12], [1e19f32 as u64, 1.2e19f32 as u64]);
            let doubles: Vec<f64> = vec![-2_147_483_648.5, -2_147_483_649.0, 2_147_483_647.5];
            let mut cut = [0i32; 3];
            convert(isa, &doubles, &mut cut).unwrap();
            assert_eq!(cut, [I, I, i32::MAX]);
        }
    }

    #[test]
    fn integers_halves_and_truths() {
        for isa in Isa::available() {
            let bytes: Vec<u8> = (0..=255).chain(0..=200).collect();
            let mut halves = vec![f16::ZERO; bytes.len()];
            convert_to_halves(isa, &bytes, &mut halves).unwrap();
            assert!(halves.iter().zip(&bytes).all(|(h, b)| h.to_f32() == f32::from(*b)));
            let mut back = vec![0i32; bytes.len()];
            convert_from_halves(isa, &halves, &mut back).unwrap();
            assert!(back.iter().zip(&bytes).all(|(x, b)| *x == i32::from(*b)));
            let mut wide = vec![0i64; 3];
            convert(isa, &[-1i8, 0, 5], &mut wide).unwrap();
            assert_eq!(wide, [-1, 0, 5]);
            let mut is = vec![9; 4];
            truths(isa, &[0.0f32, -0.0, f32::NAN, 2.0], &mut is).unwrap();
            assert_eq!(is, [0, 0, 1, 1]);
            let halves = [f16::ZERO, f16::NEG_ZERO, f16::NAN, f16::MIN_POSITIVE_SUBNORMAL];
            truths_of_halves(isa, &halves, &mut is).unwrap();
            assert_eq!(is, [0, 0, 1, 1]);
            let mut back = [f16::NAN; 4];
            convert_truths_to_halves(isa, &[0, 1, 7, 0], &mut back).unwrap();
            assert_eq!(back, [f16::ZERO, f16::ONE, f16::ONE, f16::ZERO]);
        }
    }

    #[test]
    fn halves_of_any_length() {
        let mut random = Random::new(8);
        for len in [0, 1, 15, 17, 255, 256, 257, 1000, CHUNK + 300] {
            let values: Vec<f32> = (0..len).map(|_| random.value() * 1e3).collect();
            let narrow: Vec<i32> = values.iter().map(|value| *value as i32).collect();
            for isa in Isa::available() {
                let mut halves = vec![f16::NAN; len];
                convert_to_halves(isa, &values, &mut halves).unwrap();
                assert!(halves.iter().zip(&values).all(|(half, value)| *half == f16::from_f32(*value)));
                let mut back = vec![f32::NAN; len];
                convert_from_halves(isa, &halves, &mut back).unwrap();
                assert!(back.iter().zip(&halves).all(|(value, half)| *value == half.to_f32()));
                convert_to_halves(isa, &narrow, &mut halves).unwrap();
                assert!(halves.iter().zip(&narrow).all(|(half, value)| *half == f16::from_f32(*value as f32)));
                let mut cut = vec![9i32; len];
                convert_from_halves(isa, &halves, &mut cut).unwrap();
                assert!(cut.iter().zip(&halves).all(|(value, half)| *value == half.to_f32() as i32));
            }
        }
    }

    #[test]
    fn what_floats_are() {
        let values = [0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -3.0];
        for isa in Isa::available() {
            let run = |test| {
                let mut target = [9; 5];
                test_floats(isa, test, &values, &mut target).unwrap();
                target
            };
            assert_eq!(run(FloatTest::IsFinite), [1, 0, 0, 0, 1]);
            assert_eq!(run(FloatTest::IsNaN), [0, 1, 0, 0, 0]);
            assert_eq!(run(FloatTest::IsInf { negative: true, positive: true }), [0, 0, 1, 1, 0]);
            assert_eq!(run(FloatTest::IsInf { negative: false, positive: true }), [0, 0, 1, 0, 0]);
        }
    }
}
