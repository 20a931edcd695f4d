//! The vector vocabulary that generic kernel bodies are written in, and its tiers.
//!
//! A body is a [`Kernel`] whose `run` is `#[inline(always)]` and generic over [`Simd`]; [`dispatch`] compiles it once
//! per tier, inside a `#[target_feature]` function where the tier goes beyond the target's baseline. A value of such a tier's
//! type is the proof that the machine has its instructions: it is made in `dispatch` only, from an [`Isa`].

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use portable::{I, Portable};

use crate::isa::Isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::Tier;
use std::ops::Range;

/// The lanes of the widest vector of any tier.
pub(crate) const MOST_LANES: usize = 16;

/// The strides of values that [`Simd::load_apart`] reads: each costs a few instructions for each vector that it skips.
pub(crate) const APART: Range<usize> = 3..5;

/// The entries of the table of [`Simd::lookup`].
pub(crate) const TABLE: usize = 16;

/// Zeros, and minus infinities behind them.
const LOWEST_BEHIND: [f32; 2 * MOST_LANES] = {
    let mut values = [0.0; 2 * MOST_LANES];
    let mut index = MOST_LANES;
    while index < values.len() {
        values[index] = f32::NEG_INFINITY;
        index += 1;
    }
    values
};

/// Repeats a block for each index below a constant count, which is at most 28, with the index as a constant: a loop that the
/// compiler unrolls late keeps the sums of a tile in memory. Where assertions are compiled, speed is no matter, and a loop
/// takes far less time to compile.
#[cfg(not(debug_assertions))]
macro_rules! unrolled {
    ($index:ident < $count:expr => $body:block) => {
        const { assert!($count <= 28, "a loop that is unrolled has so many steps") };
        unrolled!(@ $index, $count, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27)
    };
    (@ $index:ident, $count:expr, $body:block, $($number:literal)*) => {
        $(if const { $number < $count } {
            let $index: usize = $number;
            $body
        })*
    };
}
#[cfg(debug_assertions)]
macro_rules! unrolled {
    ($index:ident < $count:expr => $body:block) => {
        for $index in 0..$count $body
    };
}
pub(crate) use unrolled;

/// A kernel body, compiled for each tier.
pub(crate) trait Kernel {
    /// What the body returns.
    type Output;
    /// The body. Implementations are `#[inline(always)]`, so that they take on the features of the caller.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

/// Makes the function that this is compiled into begin its frame at a multiple of the widest vector. The compiler decides
/// whether it aligns a frame before it knows that vectors spill; where it did not, spills straddle cache lines or do not, by
/// where the stack of the process begins, and a kernel of many sums takes 1.6 times as long. Where assertions
/// are compiled, speed is no matter.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn align_frame() {
    #[cfg(not(debug_assertions))]
    {
        #[repr(align(64))]
        struct Line(std::mem::MaybeUninit<u8>);
        let line = Line(std::mem::MaybeUninit::uninit());
        // SAFETY: the text is a comment. It stands for a use of the address, so that the local is not removed.
        unsafe {
            std::arch::asm!("/* {0} */", in(reg) (&raw const line.0).addr(), options(nomem, nostack, preserves_flags));
        }
    }
}

/// Vectors of f32 and i32 and the operations on them.
#[allow(clippy::wrong_self_convention, dead_code)]
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// The number of lanes.
    const LANES: usize;
    /// Whether [`Simd::fma`] rounds once.
    const FUSED: bool;
    /// The most rows of a matrix-multiplication tile whose accumulators, two vectors wide, stay in registers.
    const TILE_ROWS: usize;
    /// A vector of f32.
    type F: Copy;
    /// A vector of i32.
    type I: Copy;
    /// A truth value per lane.
    type M: Copy;
    /// A vector of as many f64.
    type D: Copy;

    /// All lanes equal to the value.
    fn splat(self, value: f32) -> Self::F;
    /// All lanes equal to the value.
    fn splat_i(self, value: i32) -> Self::I;
    /// Reads `LANES` values.
    ///
    /// # Safety
    /// The values are readable; no alignment is needed.
    unsafe fn load(self, pointer: *const f32) -> Self::F;
    /// Writes `LANES` values.
    ///
    /// # Safety
    /// The places are writable; no alignment is needed.
    unsafe fn store(self, pointer: *mut f32, value: Self::F);
    /// Reads `min(count, LANES)` values; the other lanes are zero.
    ///
    /// # Safety
    /// That many values are readable.
    unsafe fn load_partial(self, pointer: *const f32, count: usize) -> Self::F;
    /// Writes the first `min(count, LANES)` lanes.
    ///
    /// # Safety
    /// That many places are writable.
    unsafe fn store_partial(self, pointer: *mut f32, value: Self::F, count: usize);
    /// Zero in the first `count` lanes, minus infinity in the others: what leaves the first lanes as they are and the others
    /// without a say in a maximum.
    #[inline(always)]
    fn lowest_behind(self, count: usize) -> Self::F {
        let place = MOST_LANES - count.min(MOST_LANES);
        // SAFETY: the constant holds the widest vector from each of its first `MOST_LANES` places on.
        unsafe { self.load(LOWEST_BEHIND.as_ptr().add(place)) }
    }
    /// Reads the first `count` lanes, which are often all; the others are zero.
    ///
    /// # Safety
    /// `min(count, LANES)` values are readable.
    #[inline(always)]
    unsafe fn load_first(self, pointer: *const f32, count: usize) -> Self::F {
        // SAFETY: the caller's promise.
        unsafe { if count >= Self::LANES { self.load(pointer) } else { self.load_partial(pointer, count) } }
    }
    /// Writes the first `count` lanes, which are often all.
    ///
    /// # Safety
    /// `min(count, LANES)` places are writable.
    #[inline(always)]
    unsafe fn store_first(self, pointer: *mut f32, value: Self::F, count: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            if count >= Self::LANES {
                self.store(pointer, value);
            } else {
                self.store_partial(pointer, value, count);
            }
        }
    }
    /// Reads `LANES` values, each two places behind the one before it.
    ///
    /// # Safety
    /// `2 * LANES - 1` values are readable; no alignment is needed.
    unsafe fn load_even(self, pointer: *const f32) -> Self::F;
    /// Reads `LANES` values, each `stride` places behind the one before it.
    ///
    /// # Safety
    /// [`Simd::span_apart`] values are readable; no alignment is needed. The stride is not zero.
    #[inline(always)]
    unsafe fn load_apart(self, pointer: *const f32, stride: usize) -> Self::F {
        const COUNTED: [f32; MOST_LANES] = {
            let mut values = [0.0; MOST_LANES];
            let mut index = 0;
            while index < MOST_LANES {
                values[index] = index as f32;
                index += 1;
            }
            values
        };
        // SAFETY: the array holds the widest vector.
        let counted = self.to_i(unsafe { self.load(COUNTED.as_ptr()) });
        let place = self.mul_i(counted, self.splat_i(stride as i32));
        // SAFETY: the caller's promise.
        let tables = unsafe { std::slice::from_raw_parts(pointer.cast(), self.span_apart(stride) / TABLE) };
        self.lookup_in(tables, place)
    }
    /// The entries of tables that follow each other; zero for a place outside of them.
    #[inline(always)]
    fn lookup_in(self, tables: &[[f32; TABLE]], place: Self::I) -> Self::F {
        let table_of_place = self.shr::<4>(place);
        let mut values = self.splat(0.0);
        for (number, table) in tables.iter().enumerate() {
            let entries = self.lookup(table, place);
            values = self.select(self.eq_i(table_of_place, self.splat_i(number as i32)), entries, values);
        }
        values
    }
    /// The values that [`Simd::load_apart`] reads.
    #[inline(always)]
    fn span_apart(self, stride: usize) -> usize {
        (Self::LANES * stride).next_multiple_of(TABLE)
    }
    /// Reads `LANES` bytes, widened without sign.
    ///
    /// # Safety
    /// That many bytes are readable.
    unsafe fn load_u8(self, pointer: *const u8) -> Self::I;
    /// Reads `LANES` 16-bit numbers, widened without sign; no alignment is needed.
    ///
    /// # Safety
    /// Twice as many bytes are readable.
    unsafe fn load_u16(self, pointer: *const u8) -> Self::I;
    /// Reads `LANES` f16 values; no alignment is needed.
    ///
    /// # Safety
    /// Twice as many bytes are readable.
    unsafe fn load_f16(self, pointer: *const u8) -> Self::F;
    /// Writes `LANES` values as f16, each rounded to the nearest, halves to even; no alignment is needed.
    ///
    /// # Safety
    /// Twice as many bytes are writable.
    unsafe fn store_f16(self, pointer: *mut u8, value: Self::F);
    /// Writes `LANES` integers between 0 and 255 as bytes.
    ///
    /// # Safety
    /// That many bytes are writable.
    unsafe fn store_u8(self, pointer: *mut u8, value: Self::I);
    /// The entries of the table that the low four bits of each lane name.
    fn lookup(self, table: &[f32; 16], index: Self::I) -> Self::F;
    /// `a + b`
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a - b`
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a * b`
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b`
    fn div(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a / b` for `b` between 1 and 2, to an ulp.
    fn div_by_one_to_two(self, a: Self::F, b: Self::F) -> Self::F {
        self.div(a, b)
    }
    /// `a * 2^n` for an integer `n` between -252 and 254, rounded once or twice where it is no normal number.
    #[inline(always)]
    fn scale(self, a: Self::F, n: Self::F) -> Self::F {
        let n = self.to_i(n);
        let half = self.shr::<1>(n);
        let power = |n| self.from_bits(self.shl::<23>(self.add_i(n, self.splat_i(127))));
        self.mul(self.mul(a, power(half)), power(self.sub_i(n, half)))
    }
    /// `1 / a`, of which the relative error is at most `1.5 / 4096`; of zero it is infinite.
    #[inline(always)]
    fn inverse_estimate(self, a: Self::F) -> Self::F {
        self.div(self.splat(1.0), a)
    }
    /// `a * b + c`, rounded once if [`Simd::FUSED`].
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `a > b ? a : b`, thus `b` where either is NaN.
    fn max(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a < b ? a : b`, thus `b` where either is NaN.
    fn min(self, a: Self::F, b: Self::F) -> Self::F;
    /// The square root.
    fn sqrt(self, a: Self::F) -> Self::F;
    /// To the nearest integer, halves to even.
    fn round(self, a: Self::F) -> Self::F;
    /// Downwards to an integer.
    fn floor(self, a: Self::F) -> Self::F;
    /// Upwards to an integer.
    fn ceil(self, a: Self::F) -> Self::F;
    /// Towards zero to an integer.
    fn trunc(self, a: Self::F) -> Self::F;
    /// `a < b`, false on NaN.
    fn lt(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a <= b`, false on NaN.
    fn le(self, a: Self::F, b: Self::F) -> Self::M;
    /// `a == b`, false on NaN.
    fn eq(self, a: Self::F, b: Self::F) -> Self::M;
    /// Whether the lane is NaN.
    fn is_nan(self, a: Self::F) -> Self::M;
    /// `mask ? a : b`
    fn select(self, mask: Self::M, a: Self::F, b: Self::F) -> Self::F;
    /// Whether any lane of the mask is set.
    fn any(self, mask: Self::M) -> bool;
    /// The nearest i32; the value must be in range.
    fn to_i(self, a: Self::F) -> Self::I;
    /// The f32 of an i32.
    fn from_i(self, a: Self::I) -> Self::F;
    /// The bits as integers.
    fn bits(self, a: Self::F) -> Self::I;
    /// Integers as bits.
    fn from_bits(self, a: Self::I) -> Self::F;
    /// Wrapping sum.
    fn add_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Wrapping difference.
    fn sub_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// The low half of the product.
    fn mul_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise and.
    fn and_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise or.
    fn or_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bitwise exclusive or.
    fn xor_i(self, a: Self::I, b: Self::I) -> Self::I;
    /// Shift left by a constant.
    fn shl<const BITS: u32>(self, a: Self::I) -> Self::I;
    /// Arithmetic shift right by a constant.
    fn shr<const BITS: u32>(self, a: Self::I) -> Self::I;
    /// `a == b` per lane.
    fn eq_i(self, a: Self::I, b: Self::I) -> Self::M;
    /// The sum of all lanes, in a fixed order.
    fn reduce_add(self, a: Self::F) -> f32;
    /// The sums of the lanes of four vectors, each in an order of the tier's own.
    #[inline(always)]
    fn reduce_add_four(self, a: [Self::F; 4]) -> [f32; 4] {
        [self.reduce_add(a[0]), self.reduce_add(a[1]), self.reduce_add(a[2]), self.reduce_add(a[3])]
    }
    /// The largest lane; unspecified on NaN.
    fn reduce_max(self, a: Self::F) -> f32;

    /// All lanes equal to the value.
    fn splat_d(self, value: f64) -> Self::D;
    /// The f64 of each lane.
    fn widen(self, a: Self::F) -> Self::D;
    /// The nearest f32 of each lane, halves to even.
    fn narrow(self, a: Self::D) -> Self::F;
    /// `a + b`
    fn add_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// `a * b`
    fn mul_d(self, a: Self::D, b: Self::D) -> Self::D;
    /// `a / b`
    fn div_d(self, a: Self::D, b: Self::D) -> Self::D;

    /// The absolute value.
    #[inline(always)]
    fn abs(self, a: Self::F) -> Self::F {
        self.from_bits(self.and_i(self.bits(a), self.splat_i(i32::MAX)))
    }
    /// The negated value.
    #[inline(always)]
    fn neg(self, a: Self::F) -> Self::F {
        self.from_bits(self.xor_i(self.bits(a), self.splat_i(i32::MIN)))
    }
    /// The magnitude of `a` with the sign of `b`.
    #[inline(always)]
    fn copysign(self, a: Self::F, b: Self::F) -> Self::F {
        let sign = self.and_i(self.bits(b), self.splat_i(i32::MIN));
        self.from_bits(self.or_i(self.and_i(self.bits(a), self.splat_i(i32::MAX)), sign))
    }
}

/// Runs the body compiled for the tier.
#[inline]
pub(crate) fn dispatch<K: Kernel>(isa: Isa, kernel: K) -> K::Output {
    match isa.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an Isa of this tier exists only where the machine supports it.
        Tier::Avx512 => unsafe { avx512::run(kernel) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: an Isa of this tier exists only where the machine supports it.
        Tier::Avx2 => unsafe { avx2::run(kernel) },
        #[cfg(target_arch = "aarch64")]
        Tier::Neon => kernel.run(Neon),
        _ => kernel.run(Portable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use half::f16;
    use pretty_assertions::assert_eq;

    /// As many values as the widest tier has lanes.
    const MOST: usize = 16;

    type Values = [f32; MOST];
    type Numbers = [i32; MOST];

    /// Every operation on operands of each kind, by name.
    struct Operations {
        a: Values,
        b: Values,
        c: Values,
        i: Numbers,
        j: Numbers,
    }

    fn integers(values: Numbers) -> Values {
        values.map(|value| f32::from_bits(value as u32))
    }

    impl Kernel for Operations {
        type Output = Vec<(&'static str, Values)>;

        #[inline(always)]
        fn run<S: Simd>(self, s: S) -> Self::Output {
            let mut results = Vec::new();
            macro_rules! results {
                ($($name:literal: |$a:ident, $b:ident, $c:ident, $i:ident, $j:ident| $body:expr;)*) => {$({
                    let mut result = [0.0; MOST];
                    for first in (0..MOST).step_by(S::LANES) {
                        // SAFETY: the lanes from the first on lie in the arrays.
                        unsafe {
                            let load = |values: &Values| s.load(values.as_ptr().add(first));
                            let ($a, $b, $c) = (load(&self.a), load(&self.b), load(&self.c));
                            let ($i, $j) = (s.bits(load(&integers(self.i))), s.bits(load(&integers(self.j))));
                            let _ = ($a, $b, $c, $i, $j);
                            s.store(result.as_mut_ptr().add(first), $body);
                        }
                    }
                    results.push(($name, result));
                })*};
            }
            let truth = |mask| s.select(mask, s.splat(1.0), s.splat(0.0));
            results! {
                "add": |a, b, c, i, j| s.add(a, b);
                "sub": |a, b, c, i, j| s.sub(a, b);
                "mul": |a, b, c, i, j| s.mul(a, b);
                "div": |a, b, c, i, j| s.div(a, b);
                "fma": |a, b, c, i, j| s.fma(a, b, c);
                "max": |a, b, c, i, j| s.max(a, b);
                "min": |a, b, c, i, j| s.min(a, b);
                "sqrt": |a, b, c, i, j| s.sqrt(a);
                "round": |a, b, c, i, j| s.round(a);
                "floor": |a, b, c, i, j| s.floor(a);
                "ceil": |a, b, c, i, j| s.ceil(a);
                "trunc": |a, b, c, i, j| s.trunc(a);
                "lt": |a, b, c, i, j| truth(s.lt(a, b));
                "le": |a, b, c, i, j| truth(s.le(a, b));
                "eq": |a, b, c, i, j| truth(s.eq(a, b));
                "is_nan": |a, b, c, i, j| truth(s.is_nan(a));
                "select": |a, b, c, i, j| s.select(s.lt(a, b), b, c);
                "from_i": |a, b, c, i, j| s.from_i(i);
                "add_i": |a, b, c, i, j| s.from_bits(s.add_i(i, j));
                "sub_i": |a, b, c, i, j| s.from_bits(s.sub_i(i, j));
                "mul_i": |a, b, c, i, j| s.from_bits(s.mul_i(i, j));
                "and_i": |a, b, c, i, j| s.from_bits(s.and_i(i, j));
                "or_i": |a, b, c, i, j| s.from_bits(s.or_i(i, j));
                "xor_i": |a, b, c, i, j| s.from_bits(s.xor_i(i, j));
                "shl": |a, b, c, i, j| s.from_bits(s.shl::<23>(i));
                "shr": |a, b, c, i, j| s.from_bits(s.shr::<5>(i));
                "eq_i": |a, b, c, i, j| truth(s.eq_i(i, j));
                "splat_i": |a, b, c, i, j| s.from_bits(s.splat_i(self.i[3]));
                "abs": |a, b, c, i, j| s.abs(a);
                "neg": |a, b, c, i, j| s.neg(a);
                "copysign": |a, b, c, i, j| s.copysign(a, b);
                "splat_d": |a, b, c, i, j| s.narrow(s.splat_d(f64::from(self.a[3])));
                "add_d": |a, b, c, i, j| s.narrow(s.add_d(s.add_d(s.widen(a), s.widen(b)), s.widen(c)));
                "mul_d": |a, b, c, i, j| s.narrow(s.mul_d(s.mul_d(s.widen(a), s.widen(b)), s.widen(c)));
                "div_d": |a, b, c, i, j| s.narrow(s.div_d(s.div_d(s.widen(a), s.widen(b)), s.widen(c)));
            }
            results
        }
    }

    fn defined(o: &Operations, fused: bool, name: &str, lane: usize) -> f32 {
        let (a, b, c, i, j) = (o.a[lane], o.b[lane], o.c[lane], o.i[lane], o.j[lane]);
        let bits = |value: i32| f32::from_bits(value as u32);
        match name {
            "add" => a + b,
            "sub" => a - b,
            "mul" => a * b,
            "div" => a / b,
            "fma" => {
                if fused {
                    a.mul_add(b, c)
                } else {
                    a * b + c
                }
            }
            "max" => {
                if a > b {
                    a
                } else {
                    b
                }
            }
            "min" => {
                if a < b {
                    a
                } else {
                    b
                }
            }
            "sqrt" => a.sqrt(),
            "round" => a.round_ties_even(),
            "floor" => a.floor(),
            "ceil" => a.ceil(),
            "trunc" => a.trunc(),
            "lt" => f32::from(a < b),
            "le" => f32::from(a <= b),
            "eq" => f32::from(a == b),
            "is_nan" => f32::from(a.is_nan()),
            "select" => {
                if a < b {
                    b
                } else {
                    c
                }
            }
            "from_i" => i as f32,
            "add_i" => bits(i.wrapping_add(j)),
            "sub_i" => bits(i.wrapping_sub(j)),
            "mul_i" => bits(i.wrapping_mul(j)),
            "and_i" => bits(i & j),
            "or_i" => bits(i | j),
            "xor_i" => bits(i ^ j),
            "shl" => bits(i << 23),
            "shr" => bits(i >> 5),
            "eq_i" => f32::from(i == j),
            "splat_i" => bits(o.i[3]),
            "abs" => a.abs(),
            "neg" => -a,
            "copysign" => a.copysign(b),
            "splat_d" => o.a[3],
            "add_d" => (f64::from(a) + f64::from(b) + f64::from(c)) as f32,
            "mul_d" => (f64::from(a) * f64::from(b) * f64::from(c)) as f32,
            "div_d" => (f64::from(a) / f64::from(b) / f64::from(c)) as f32,
            _ => unreachable!("{name} has no definition"),
        }
    }

    struct Fused;

    impl Kernel for Fused {
        type Output = bool;
        #[inline(always)]
        fn run<S: Simd>(self, _: S) -> bool {
            S::FUSED
        }
    }

    #[test]
    fn every_tier_computes_what_the_definitions_say() {
        let special = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            -2.5,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::MAX,
            f32::MIN,
            f32::MIN_POSITIVE,
            1e-45,
            8_388_609.0,
            3.0,
        ];
        let arithmetic = [
            "add", "sub", "mul", "div", "fma", "sqrt", "round", "floor", "ceil", "trunc", "splat_d", "add_d", "mul_d",
            "div_d",
        ];
        let numbers = [0, 1, -1, 7, i32::MAX, i32::MIN, 0x0102_0304, 16_777_217];
        let mut random = Random::new(3);
        for isa in Isa::available() {
            let fused = dispatch(isa, Fused);
            for _ in 0..200 {
                let mut values = || {
                    std::array::from_fn(|_| match random.between(0, 2) {
                        0 => special[random.between(0, special.len() - 1)],
                        1 => random.value() * 1e10,
                        _ => random.value(),
                    })
                };
                let (a, b, c) = (values(), values(), values());
                let mut values = || {
                    std::array::from_fn(|_| match random.between(0, 1) {
                        0 => numbers[random.between(0, numbers.len() - 1)],
                        _ => random.next() as i32,
                    })
                };
                let (i, j) = (values(), values());
                let operands = Operations { a, b, c, i, j };
                for (name, result) in dispatch(isa, Operations { ..operands }) {
                    for lane in 0..MOST {
                        let expected = defined(&operands, fused, name, lane);
                        // Which NaN arithmetic makes is not said.
                        let is_same = result[lane].to_bits() == expected.to_bits()
                            || result[lane].is_nan() && expected.is_nan() && arithmetic.contains(&name);
                        assert!(is_same, "{isa} {name}: {} for {expected} of {a:?} {b:?} {c:?}", result[lane]);
                    }
                }
            }
        }
    }

    /// Loads and stores of parts and of other types, conversions, reductions and the table, checked in place.
    struct Memory;

    impl Kernel for Memory {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            let values: Values = std::array::from_fn(|lane| [0.5, 2.5, -3.0, 1.5][lane % 4] + lane as f32 * 10.0);
            let bytes: [u8; 2 * MOST] = std::array::from_fn(|index| (index * 37 + 200) as u8);
            let read = |value: S::F| {
                let mut lanes = [f32::NAN; MOST];
                // SAFETY: a vector has at most as many lanes.
                unsafe { s.store(lanes.as_mut_ptr(), value) };
                lanes
            };
            let integers = |value: S::I| read(s.from_i(value));
            for count in 0..=MOST {
                let some = count.min(S::LANES);
                let mut stored = [-7.0; MOST];
                // SAFETY: the arrays have values for all lanes.
                let lanes = unsafe {
                    s.store_partial(stored.as_mut_ptr(), s.load(values.as_ptr()), count);
                    read(s.load_partial(values[MOST - some..].as_ptr(), count))
                };
                for lane in 0..S::LANES {
                    assert_eq!(lanes[lane], if lane < some { values[MOST - some + lane] } else { 0.0 }, "{count}");
                }
                for lane in 0..MOST {
                    assert_eq!(stored[lane], if lane < some { values[lane] } else { -7.0 }, "{count}");
                }
            }
            let row: [f32; 2 * MOST] = std::array::from_fn(|index| index as f32);
            for first in 0..2 * MOST + 2 - 2 * S::LANES {
                // SAFETY: the values from the first on are as many as twice the lanes, less one.
                let lanes = read(unsafe { s.load_even(row[first..].as_ptr()) });
                assert!((0..S::LANES).all(|lane| lanes[lane] == row[first + 2 * lane]));
            }
            let far: [f32; 7 * MOST] = std::array::from_fn(|index| index as f32);
            for (first, stride) in (0..5).flat_map(|first| (1..=6).map(move |stride| (first, stride))) {
                assert!(first + s.span_apart(stride) <= far.len());
                // SAFETY: so many values lie behind the first one.
                let lanes = read(unsafe { s.load_apart(far[first..].as_ptr(), stride) });
                assert!((0..S::LANES).all(|lane| lanes[lane] == far[first + stride * lane]));
            }
            for offset in 0..MOST - S::LANES + 1 {
                let from = bytes[offset..].as_ptr();
                // SAFETY: the bytes from the offset on are as many as twice the lanes.
                let (eight, sixteen, codes) = unsafe {
                    let mut codes = [9u8; MOST];
                    s.store_u8(codes.as_mut_ptr(), s.load_u8(from));
                    (integers(s.load_u8(from)), integers(s.load_u16(from)), codes)
                };
                for lane in 0..S::LANES {
                    let pair = [bytes[offset + 2 * lane], bytes[offset + 2 * lane + 1]];
                    assert_eq!(eight[lane], f32::from(bytes[offset + lane]));
                    assert_eq!(sixteen[lane], f32::from(u16::from_le_bytes(pair)));
                }
                assert_eq!(codes[..S::LANES], bytes[offset..offset + S::LANES]);
                assert!(codes[S::LANES..].iter().all(|code| *code == 9));
            }
            let table: [f32; 16] = std::array::from_fn(|entry| entry as f32 * 1.25 - 4.0);
            for first in [0, 4, 11, -9, i32::MIN] {
                let index: Numbers = std::array::from_fn(|lane| first.wrapping_add(lane as i32 * 7));
                // SAFETY: the array has numbers for all lanes.
                let index_vector = s.bits(unsafe { s.load(index.as_ptr().cast()) });
                let found = read(s.lookup(&table, index_vector));
                for lane in 0..S::LANES {
                    assert_eq!(found[lane], table[(index[lane] & 15) as usize]);
                }
            }
            // SAFETY: the array has values for all lanes.
            let vector = unsafe { s.load(values.as_ptr()) };
            let nearest = integers(s.to_i(vector));
            assert!((0..S::LANES).all(|lane| nearest[lane] == values[lane].round_ties_even()));
            assert_eq!(s.reduce_add(vector), values[..S::LANES].iter().sum::<f32>());
            // The last value is the greatest, and the first one the least.
            assert_eq!(s.reduce_max(vector), values[S::LANES - 1]);
            assert_eq!(s.reduce_max(s.neg(vector)), -values[0]);
            for lane in 0..S::LANES {
                let mask = s.eq(vector, s.splat(values[lane]));
                assert!(s.any(mask));
            }
            assert!(!s.any(s.eq(vector, s.splat(0.25))));
        }
    }

    /// Quotients, of which the denominators lie between 1 and 2.
    struct Quotients<'a>(&'a [f32; MOST], &'a [f32; MOST], &'a mut [f32; MOST]);

    impl Kernel for Quotients<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for first in (0..MOST).step_by(S::LANES) {
                // SAFETY: the lanes from the first on lie in the arrays.
                unsafe {
                    let (a, b) = (s.load(self.0.as_ptr().add(first)), s.load(self.1.as_ptr().add(first)));
                    s.store(self.2.as_mut_ptr().add(first), s.div_by_one_to_two(a, b));
                }
            }
        }
    }

    #[test]
    fn quotients_are_close() {
        let mut random = Random::new(9);
        for isa in Isa::available() {
            for round in 0..2000 {
                let a: [f32; MOST] = std::array::from_fn(|lane| if lane == 0 { 0.0 } else { random.value() });
                let b: [f32; MOST] = std::array::from_fn(|lane| match round {
                    0 => 1.0 + lane as f32 / (MOST - 1) as f32,
                    _ => 1.0 + random.value().abs().min(1.0),
                });
                let mut result = [f32::NAN; MOST];
                dispatch(isa, Quotients(&a, &b, &mut result));
                for lane in 0..MOST {
                    let distance = result[lane].to_bits().abs_diff((a[lane] / b[lane]).to_bits());
                    assert!(distance <= 1, "{isa}: {} / {} is not {}", a[lane], b[lane], result[lane]);
                }
            }
            let mut result = [0.0; MOST];
            dispatch(isa, Quotients(&[1.0; MOST], &[f32::NAN; MOST], &mut result));
            assert!(result.iter().all(|value| value.is_nan()), "{isa}");
        }
    }

    #[test]
    fn memory_conversions_and_reductions() {
        for isa in Isa::available() {
            dispatch(isa, Memory);
        }
    }

    /// Half precision of values from one array to another, and back.
    struct Halves<'a>(&'a [f32], &'a mut [f16], &'a mut [f32]);

    impl Kernel for Halves<'_> {
        type Output = ();

        #[inline(always)]
        fn run<S: Simd>(self, s: S) {
            for first in (0..self.0.len()).step_by(S::LANES) {
                // SAFETY: the arrays are as long as each other, and whole numbers of vectors.
                unsafe {
                    let halves = self.1.as_mut_ptr().add(first).cast::<u8>();
                    s.store_f16(halves, s.load(self.0.as_ptr().add(first)));
                    s.store(self.2.as_mut_ptr().add(first), s.load_f16(halves));
                }
            }
        }
    }

    #[test]
    fn halves_round_to_the_nearest() {
        let mut values: Vec<f32> = (0..=u16::MAX).map(|bits| f16::from_bits(bits).to_f32()).collect();
        // Between neighbours, in the middle of them and beside it, and beyond all of them.
        let between: Vec<f32> = values.windows(2).map(|pair| (pair[0] + pair[1]) / 2.0).collect();
        values.extend(between.iter().flat_map(|value| [*value, value * 1.000_001, value * 0.999_999]));
        values.extend([65519.9, 65520.0, 1e9, f32::MAX, 1e-8, 2.0f32.powi(-25), 1e-45]);
        values.resize(values.len().next_multiple_of(MOST), 0.0);
        for isa in Isa::available() {
            let (mut halves, mut back) = (vec![f16::ZERO; values.len()], vec![0.0; values.len()]);
            dispatch(isa, Halves(&values, &mut halves, &mut back));
            for (index, value) in values.iter().enumerate() {
                let expected = f16::from_f32(*value);
                let is_same = |half: f16| half.to_bits() == expected.to_bits() || half.is_nan() && expected.is_nan();
                assert!(is_same(halves[index]), "{isa}: {value} became {} instead of {expected}", halves[index]);
                let (given, wanted) = (back[index], expected.to_f32());
                assert!(given.to_bits() == wanted.to_bits() || given.is_nan() && wanted.is_nan(), "{isa}: {given}");
            }
        }
    }
}
