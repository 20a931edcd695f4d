//! Sums of four products of an unsigned and a signed byte in every lane, by tier.

use super::{Fixed, Tile};
use crate::isa::{Isa, Tier};
use crate::simd::Simd;

/// A kernel body over byte products, compiled for each tier.
pub(super) trait DotKernel {
    /// The body. Implementations are `#[inline(always)]`.
    ///
    /// # Safety
    /// As the implementation says.
    unsafe fn run<D: Dots>(self, d: D);
}

/// Byte products of a tier. A value is the proof that the machine has its instructions.
pub(super) trait Dots: Copy {
    /// The tier's vectors.
    type S: Simd;
    /// Four bytes for all lanes.
    type Left: Copy;
    /// Four signed bytes for each lane.
    type Right: Copy;

    /// The tier's operations.
    fn simd(self) -> Self::S;
    /// Reads four bytes.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn left(self, pointer: *const u8) -> Self::Left;
    /// Reads four bytes a lane.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn right(self, pointer: *const i8) -> Self::Right;
    /// Adds the four products of every lane; sums wrap around.
    fn dot(self, sum: <Self::S as Simd>::I, left: Self::Left, right: Self::Right) -> <Self::S as Simd>::I;
}

/// The most positions of a tile on any tier.
pub(super) const MOST_POSITIONS: usize = 10;

/// The most positions of a tile, and the blocks that it computes together.
pub(super) fn tile_size(isa: Isa) -> (usize, usize) {
    match isa.tier() {
        Tier::Avx512 if has_vnni() => (MOST_POSITIONS, 2),
        Tier::Portable => (2, 1),
        _ => (4, 1),
    }
}

/// Runs a tile.
///
/// # Safety
/// The tile's pointers cover what its geometry asks for.
pub(super) unsafe fn dispatch_dots(isa: Isa, positions: usize, blocks: usize, tile: &Tile<'_>) {
    macro_rules! call {
        ($run:path, $vectors:literal: $($positions:literal)*) => {
            match positions {
                // SAFETY: the caller's promise, and the tier's instructions were checked.
                $($positions => unsafe { $run(Fixed::<$positions, $vectors>(tile)) },)*
                _ => debug_assert!(false, "no tile of {positions} positions"),
            }
        };
    }
    match (isa.tier(), blocks) {
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, 2) if has_vnni() => call!(x86::run_vnni, 2: 1 2 3 4 5 6 7 8 9 10),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, _) if has_vnni() => call!(x86::run_vnni, 1: 1 2 3 4 5 6 7 8 9 10),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512 | Tier::Avx2, _) => call!(x86::run_avx2, 2: 1 2 3 4),
        _ => call!(portable::run, 4: 1 2),
    }
}

/// Whether the machine sums byte products in one instruction of sixteen lanes.
#[cfg(target_arch = "x86_64")]
fn has_vnni() -> bool {
    is_x86_feature_detected!("avx512vnni")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_vnni() -> bool {
    false
}

mod portable {
    use super::{DotKernel, Dots};
    use crate::simd::{I, Portable};

    #[derive(Clone, Copy)]
    struct Scalar;

    /// # Safety
    /// As of the kernel.
    pub(super) unsafe fn run<K: DotKernel>(kernel: K) {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Scalar) };
    }

    impl Dots for Scalar {
        type S = Portable;
        type Left = [i32; 4];
        type Right = [[i8; 4]; 4];

        #[inline(always)]
        fn simd(self) -> Portable {
            Portable
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> [i32; 4] {
            // SAFETY: the caller's promise.
            unsafe { pointer.cast::<[u8; 4]>().read() }.map(i32::from)
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> [[i8; 4]; 4] {
            // SAFETY: the caller's promise.
            unsafe { pointer.cast::<[[i8; 4]; 4]>().read() }
        }
        #[inline(always)]
        fn dot(self, mut sum: I, left: [i32; 4], right: [[i8; 4]; 4]) -> I {
            for (sum, right) in sum.0.iter_mut().zip(right) {
                for (a, b) in left.iter().zip(right) {
                    *sum = sum.wrapping_add(a * i32::from(b));
                }
            }
            sum
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{DotKernel, Dots};
    use crate::simd::{Avx2, Avx512};
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    struct Vnni(Avx512);

    /// Byte products as pairs of 16-bit products, which do not saturate.
    #[derive(Clone, Copy)]
    struct Pairs(Avx2);

    /// # Safety
    /// The machine has the instructions of the AVX-512 tier and VNNI, and as of the kernel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(super) unsafe fn run_vnni<K: DotKernel>(kernel: K) {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Vnni(Avx512::assume())) };
    }

    /// # Safety
    /// The machine has the instructions of the AVX2 tier, and as of the kernel.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn run_avx2<K: DotKernel>(kernel: K) {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Pairs(Avx2::assume())) };
    }

    impl Dots for Vnni {
        type S = Avx512;
        type Left = __m512i;
        type Right = __m512i;

        #[inline(always)]
        fn simd(self) -> Avx512 {
            self.0
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> __m512i {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { _mm512_set1_epi32(pointer.cast::<i32>().read_unaligned()) }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> __m512i {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { _mm512_loadu_si512(pointer.cast()) }
        }
        #[inline(always)]
        fn dot(self, sum: __m512i, left: __m512i, right: __m512i) -> __m512i {
            // SAFETY: a value of this type exists only where the machine supports the instruction.
            unsafe { _mm512_dpbusd_epi32(sum, left, right) }
        }
    }

    impl Dots for Pairs {
        type S = Avx2;
        /// The even and the odd bytes, widened.
        type Left = [__m256i; 2];
        type Right = [__m256i; 2];

        #[inline(always)]
        fn simd(self) -> Avx2 {
            self.0
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> [__m256i; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe {
                let bytes = pointer.cast::<u32>().read_unaligned();
                let even = (bytes & 0x00ff_00ff) as i32;
                let odd = (bytes >> 8 & 0x00ff_00ff) as i32;
                [_mm256_set1_epi32(even), _mm256_set1_epi32(odd)]
            }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> [__m256i; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe {
                let bytes = _mm256_loadu_si256(pointer.cast());
                [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)), _mm256_srai_epi16::<8>(bytes)]
            }
        }
        #[inline(always)]
        fn dot(self, sum: __m256i, left: [__m256i; 2], right: [__m256i; 2]) -> __m256i {
            // SAFETY: a value of this type exists only where the machine supports the instructions.
            unsafe {
                let even = _mm256_madd_epi16(left[0], right[0]);
                let odd = _mm256_madd_epi16(left[1], right[1]);
                _mm256_add_epi32(sum, _mm256_add_epi32(even, odd))
            }
        }
    }
}
