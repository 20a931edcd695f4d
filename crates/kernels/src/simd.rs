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

/// A kernel body, compiled for each tier.
pub(crate) trait Kernel {
    /// What the body returns.
    type Output;
    /// The body. Implementations are `#[inline(always)]`, so that they take on the features of the caller.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
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
