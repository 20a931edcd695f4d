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
    /// Reads four bytes, of which those that have to be signed are lower by what [`lowered_by`] tells.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn left(self, pointer: *const u8) -> Self::Left;
    /// Reads four bytes a lane.
    ///
    /// # Safety
    /// They are readable.
    unsafe fn right(self, pointer: *const i8) -> Self::Right;
    /// Reads two times four unsigned nibbles a lane, those in the low bits first.
    ///
    /// # Safety
    /// The bytes are readable.
    unsafe fn nibbles(self, pointer: *const i8) -> [Self::Right; 2];
    /// Adds the four products of every lane; sums wrap around.
    fn dot(self, sum: <Self::S as Simd>::I, left: Self::Left, right: Self::Right) -> <Self::S as Simd>::I;
    /// What sums stand for.
    #[inline(always)]
    fn value(self, sum: <Self::S as Simd>::I) -> <Self::S as Simd>::F {
        self.simd().from_i(sum)
    }
}

/// The most positions of a tile on any tier.
pub(super) const MOST_POSITIONS: usize = 10;

/// The most positions of a tile, and the blocks that it computes together.
pub(super) fn tile_size(isa: Isa) -> (usize, usize) {
    match isa.tier() {
        Tier::Avx512 if isa.has_vnni() => (MOST_POSITIONS, 2),
        Tier::Avx2 if isa.has_vnni() => (6, 1),
        Tier::Portable => (2, 1),
        Tier::Neon if has_dot_products() => (6, 1),
        _ => (4, 1),
    }
}

/// What the tier takes from every left byte because its instruction wants it signed. With this much less taken for the code
/// of zero, sums are the same.
pub(super) fn lowered_by(isa: Isa) -> i32 {
    match isa.tier() {
        Tier::Neon if has_dot_products() && !has_mixed_dot_products() => 128,
        _ => 0,
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
        (Tier::Avx512, 2) if isa.has_vnni() => call!(x86::run_vnni, 2: 1 2 3 4 5 6 7 8 9 10),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, _) if isa.has_vnni() => call!(x86::run_vnni, 1: 1 2 3 4 5 6 7 8 9 10),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx2, _) if isa.has_vnni() => call!(x86::run_avx_vnni, 2: 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512 | Tier::Avx2, _) => call!(x86::run_avx2, 2: 1 2 3 4),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) if has_mixed_dot_products() => call!(neon::run_mixed, 4: 1 2 3 4 5 6),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) if has_dot_products() => call!(neon::run_signed, 4: 1 2 3 4 5 6),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) => call!(neon::run_widened, 4: 1 2 3 4),
        _ => call!(portable::run, 4: 1 2),
    }
}

/// Whether a machine multiplies codes that were widened to two bytes faster than those of one: it has no instruction that sums
/// products of bytes exactly, so that each tile would take the bytes of its data apart anew.
pub(super) fn prefers_words(isa: Isa) -> bool {
    match isa.tier() {
        Tier::Avx2 | Tier::Avx512 => !isa.has_vnni(),
        Tier::Portable | Tier::Neon => false,
    }
}

/// The most positions of a tile of pairs of words, and the blocks that it computes together.
pub(super) fn words_tile_size() -> (usize, usize) {
    (6, 1)
}

/// Runs a tile of pairs of words.
///
/// # Safety
/// The tile's pointers cover what its geometry asks for, and [`prefers_words`] holds.
pub(super) unsafe fn dispatch_words(positions: usize, tile: &Tile<'_>) {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! call {
            ($($positions:literal)*) => {
                match positions {
                    // SAFETY: the caller's promise; the tiers that prefer words have the instructions of AVX2.
                    $($positions => unsafe { x86::run_words(Fixed::<$positions, 2>(tile)) },)*
                    _ => debug_assert!(false, "no tile of {positions} positions"),
                }
            };
        }
        call!(1 2 3 4 5 6);
    }
    #[cfg(not(target_arch = "x86_64"))]
    debug_assert!(false, "no instruction for {positions} positions of {} quads of channels", tile.quads);
}

/// Runs a kernel on pairs of words whose sums are four times what they stand for.
///
/// # Safety
/// As of the kernel, and [`prefers_words`] holds.
pub(super) unsafe fn dispatch_fourths<K: DotKernel>(kernel: K) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the tiers that prefer words have the instructions of AVX2.
    unsafe {
        x86::run_fourths(kernel);
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = kernel;
        debug_assert!(false, "no products of words");
    }
}

/// Runs a kernel on the instructions of sixteen lanes, of bytes or of bf16.
///
/// # Safety
/// As of the kernel, and the machine has the tier of AVX-512 and VNNI, or [`has_bf16`] holds where it is of bf16.
pub(super) unsafe fn dispatch_wide<K: DotKernel>(is_bf16: bool, kernel: K) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        if is_bf16 { x86::run_bf16(kernel) } else { x86::run_vnni(kernel) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = (is_bf16, kernel);
        debug_assert!(false, "no products of sixteen lanes");
    }
}

/// The most positions of a tile of pairs of bf16, and the blocks that it computes together.
pub(super) fn bf16_tile_size() -> (usize, usize) {
    (MOST_POSITIONS, 2)
}

/// Runs a tile of pairs of bf16.
///
/// # Safety
/// The tile's pointers cover what its geometry asks for, and [`has_bf16`] holds.
pub(super) unsafe fn dispatch_bf16(positions: usize, blocks: usize, tile: &Tile<'_>) {
    #[cfg(target_arch = "x86_64")]
    {
        macro_rules! call {
            ($vectors:literal: $($positions:literal)*) => {
                match positions {
                    // SAFETY: the caller's promise.
                    $($positions => unsafe { x86::run_bf16(Fixed::<$positions, $vectors>(tile)) },)*
                    _ => debug_assert!(false, "no tile of {positions} positions"),
                }
            };
        }
        match blocks {
            2 => call!(2: 1 2 3 4 5 6 7 8 9 10),
            _ => call!(1: 1 2 3 4 5 6 7 8 9 10),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    debug_assert!(
        false,
        "no instruction for {positions} positions of {blocks} blocks of {} quads of channels",
        tile.quads
    );
}

/// Whether the machine sums products of bf16 in one instruction of sixteen lanes.
#[must_use]
pub fn has_bf16(isa: Isa) -> bool {
    #[cfg(target_arch = "x86_64")]
    return isa.tier() == Tier::Avx512 && is_x86_feature_detected!("avx512bf16");
    #[cfg(not(target_arch = "x86_64"))]
    return isa.tier() == Tier::Avx512;
}

/// Whether the machine sums products of signed bytes in one instruction of four lanes.
#[cfg(target_arch = "aarch64")]
pub(super) fn has_dot_products() -> bool {
    std::arch::is_aarch64_feature_detected!("dotprod")
}

#[cfg(not(target_arch = "aarch64"))]
pub(super) fn has_dot_products() -> bool {
    false
}

/// Whether the machine does so with products of unsigned and signed bytes. One that does has the products of signed bytes.
#[cfg(target_arch = "aarch64")]
pub(super) fn has_mixed_dot_products() -> bool {
    has_dot_products() && std::arch::is_aarch64_feature_detected!("i8mm")
}

#[cfg(not(target_arch = "aarch64"))]
pub(super) fn has_mixed_dot_products() -> bool {
    false
}

pub(super) mod portable {
    use super::{DotKernel, Dots};
    use crate::simd::{I, Portable};

    #[derive(Clone, Copy)]
    struct Scalar;

    /// # Safety
    /// As of the kernel.
    pub(in crate::quantized) unsafe fn run<K: DotKernel>(kernel: K) {
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
        unsafe fn nibbles(self, pointer: *const i8) -> [[[i8; 4]; 4]; 2] {
            // SAFETY: the caller's promise.
            let bytes = unsafe { pointer.cast::<[[u8; 4]; 4]>().read() };
            [
                bytes.map(|lane| lane.map(|byte| (byte & 15).cast_signed())),
                bytes.map(|lane| lane.map(|byte| (byte >> 4).cast_signed())),
            ]
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
pub(super) mod x86 {
    use super::{DotKernel, Dots};
    use crate::simd::{Avx2, Avx512, Simd, align_frame};
    use std::arch::x86_64::*;

    #[derive(Clone, Copy)]
    struct Vnni(Avx512);

    /// Products of bytes in the instruction of eight lanes.
    #[derive(Clone, Copy)]
    struct AvxVnni(Avx2);

    /// Byte products as pairs of 16-bit products, which do not saturate.
    #[derive(Clone, Copy)]
    struct Pairs(Avx2);

    /// Products of two words, which hold codes or weights each. Sums may be four times what they stand for.
    #[derive(Clone, Copy)]
    struct Words<const FOURTHS: bool>(Avx2);

    /// Products of two bf16. A value is the proof of the instruction.
    #[derive(Clone, Copy)]
    struct Bf16(Avx512);

    /// # Safety
    /// The machine has the instructions of the AVX-512 tier and VNNI, and as of the kernel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn run_vnni<K: DotKernel>(kernel: K) {
        align_frame();
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Vnni(Avx512::assume())) };
    }

    /// # Safety
    /// The machine has the instructions of the AVX2 tier and AVX-VNNI, and as of the kernel.
    #[target_feature(enable = "avxvnni,avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn run_avx_vnni<K: DotKernel>(kernel: K) {
        align_frame();
        // SAFETY: the caller's promise.
        unsafe { kernel.run(AvxVnni(Avx2::assume())) };
    }

    /// # Safety
    /// The machine has the instructions of the AVX-512 tier and of bf16, and as of the kernel.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn run_bf16<K: DotKernel>(kernel: K) {
        align_frame();
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Bf16(Avx512::assume())) };
    }

    /// Rounds values to bf16, as many as both slices have.
    ///
    /// # Safety
    /// The machine has the instructions of the AVX-512 tier and of bf16.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn round(from: &[f32], to: &mut [u8]) {
        let len = from.len().min(to.len() / 2);
        let mut at = 0;
        while at < len {
            let mask = if len - at < 16 { (1u16 << (len - at)) - 1 } else { u16::MAX };
            // SAFETY: the caller's promise; masked lanes are not accessed, and the others lie in the slices.
            unsafe {
                let values = _mm512_maskz_loadu_ps(mask, from.as_ptr().add(at));
                let halves = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(values));
                _mm256_mask_storeu_epi16(to.as_mut_ptr().add(2 * at).cast(), mask, halves);
            }
            at += 16;
        }
    }

    /// Rounds rows of at most `WIDTH` columns, so many values apart, to bf16, and writes pairs of those of two rows that follow
    /// each other, `WIDTH` for each two rows. What is missing is zeros.
    ///
    /// # Safety
    /// The machine has the instructions of the AVX-512 tier and of bf16, there are the rows and columns, and there is room for
    /// the pairs.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn round_pairs<const WIDTH: usize>(
        values: *const f32,
        row: usize,
        [rows, columns]: [usize; 2],
        to: *mut u32,
    ) {
        let halves = |first: usize, column: usize| {
            let count = if first < rows { columns.saturating_sub(column).min(16) } else { 0 };
            let mask = ((1u32 << count) - 1) as u16;
            // SAFETY: masked lanes are not accessed, and the others lie in the row.
            unsafe {
                let values = _mm512_maskz_loadu_ps(mask, values.wrapping_add(first * row + column));
                let halves = std::mem::transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(values));
                _mm512_cvtepu16_epi32(halves)
            }
        };
        for first in (0..rows).step_by(2) {
            for column in (0..WIDTH).step_by(16) {
                let pairs = _mm512_or_si512(halves(first, column), _mm512_slli_epi32::<16>(halves(first + 1, column)));
                // SAFETY: the caller's promise.
                unsafe { _mm512_storeu_si512(to.add(first / 2 * WIDTH + column).cast(), pairs) };
            }
        }
    }

    /// # Safety
    /// The machine has the instructions of the AVX2 tier, and as of the kernel.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn run_avx2<K: DotKernel>(kernel: K) {
        align_frame();
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Pairs(Avx2::assume())) };
    }

    /// # Safety
    /// The machine has the instructions of the AVX2 tier, and as of the kernel.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn run_words<K: DotKernel>(kernel: K) {
        align_frame();
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Words::<false>(Avx2::assume())) };
    }

    /// # Safety
    /// The machine has the instructions of the AVX2 tier, and as of the kernel.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(in crate::quantized) unsafe fn run_fourths<K: DotKernel>(kernel: K) {
        align_frame();
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Words::<true>(Avx2::assume())) };
    }

    /// The low and the high nibbles of all bytes.
    ///
    /// # Safety
    /// The machine has the instructions of the AVX-512 tier.
    #[inline(always)]
    unsafe fn nibbles_of(bytes: __m512i) -> [__m512i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm512_set1_epi8(15);
            [_mm512_and_si512(bytes, low), _mm512_and_si512(_mm512_srli_epi16::<4>(bytes), low)]
        }
    }

    /// The low and the high nibbles of all bytes.
    ///
    /// # Safety
    /// The machine has the instructions of the AVX2 tier.
    #[inline(always)]
    unsafe fn half_nibbles_of(bytes: __m256i) -> [__m256i; 2] {
        // SAFETY: the caller's promise.
        unsafe {
            let low = _mm256_set1_epi8(15);
            [_mm256_and_si256(bytes, low), _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), low)]
        }
    }

    /// The same four bytes in all lanes.
    ///
    /// # Safety
    /// The machine has the instructions of the AVX2 tier, and four bytes are readable.
    #[inline(always)]
    unsafe fn broadcast(pointer: *const u8) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_castps_si256(_mm256_broadcast_ss(&pointer.cast::<f32>().read_unaligned())) }
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
        unsafe fn nibbles(self, pointer: *const i8) -> [__m512i; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { nibbles_of(_mm512_loadu_si512(pointer.cast())) }
        }
        #[inline(always)]
        fn dot(self, sum: __m512i, left: __m512i, right: __m512i) -> __m512i {
            // SAFETY: a value of this type exists only where the machine supports the instruction.
            unsafe { _mm512_dpbusd_epi32(sum, left, right) }
        }
    }

    impl Dots for AvxVnni {
        type S = Avx2;
        type Left = __m256i;
        type Right = __m256i;

        #[inline(always)]
        fn simd(self) -> Avx2 {
            self.0
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> __m256i {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { broadcast(pointer) }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> __m256i {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { _mm256_loadu_si256(pointer.cast()) }
        }
        #[inline(always)]
        unsafe fn nibbles(self, pointer: *const i8) -> [__m256i; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { half_nibbles_of(_mm256_loadu_si256(pointer.cast())) }
        }
        #[inline(always)]
        fn dot(self, sum: __m256i, left: __m256i, right: __m256i) -> __m256i {
            // SAFETY: a value of this type exists only where the machine supports the instruction.
            unsafe { _mm256_dpbusd_avx_epi32(sum, left, right) }
        }
    }

    impl Dots for Bf16 {
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
        unsafe fn nibbles(self, pointer: *const i8) -> [__m512i; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { nibbles_of(_mm512_loadu_si512(pointer.cast())) }
        }
        #[inline(always)]
        fn dot(self, sum: __m512i, left: __m512i, right: __m512i) -> __m512i {
            // SAFETY: a value of this type exists only where the machine supports the instruction, and vectors of the same size
            // have any bits.
            unsafe {
                let pairs = |bits: __m512i| std::mem::transmute::<__m512i, __m512bh>(bits);
                _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sum), pairs(left), pairs(right)))
            }
        }
        #[inline(always)]
        fn value(self, sum: __m512i) -> __m512 {
            // SAFETY: a value of this type exists only where the machine supports the instruction.
            unsafe { _mm512_castsi512_ps(sum) }
        }
    }

    impl<const FOURTHS: bool> Dots for Words<FOURTHS> {
        type S = Avx2;
        type Left = __m256i;
        type Right = __m256i;

        #[inline(always)]
        fn simd(self) -> Avx2 {
            self.0
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> __m256i {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { broadcast(pointer) }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> __m256i {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { _mm256_loadu_si256(pointer.cast()) }
        }
        #[inline(always)]
        unsafe fn nibbles(self, pointer: *const i8) -> [__m256i; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe { half_nibbles_of(_mm256_loadu_si256(pointer.cast())) }
        }
        #[inline(always)]
        fn dot(self, sum: __m256i, left: __m256i, right: __m256i) -> __m256i {
            // SAFETY: a value of this type exists only where the machine supports the instructions.
            unsafe { _mm256_add_epi32(sum, _mm256_madd_epi16(left, right)) }
        }
        #[inline(always)]
        fn value(self, sum: __m256i) -> __m256 {
            let value = self.0.from_i(sum);
            if FOURTHS { self.0.mul(value, self.0.splat(0.25)) } else { value }
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
                // A load that spreads costs the units that multiply nothing, taking the bytes apart in one of them little.
                let bytes = _mm256_castps_si256(_mm256_broadcast_ss(&pointer.cast::<f32>().read_unaligned()));
                [_mm256_and_si256(bytes, _mm256_set1_epi16(0xff)), _mm256_srli_epi16::<8>(bytes)]
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
        unsafe fn nibbles(self, pointer: *const i8) -> [[__m256i; 2]; 2] {
            // SAFETY: the caller's promise, and the proof of the instructions.
            unsafe {
                let (bytes, low) = (_mm256_loadu_si256(pointer.cast()), _mm256_set1_epi16(15));
                [
                    [_mm256_and_si256(bytes, low), _mm256_and_si256(_mm256_srli_epi16::<8>(bytes), low)],
                    [_mm256_and_si256(_mm256_srli_epi16::<4>(bytes), low), _mm256_srli_epi16::<12>(bytes)],
                ]
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

#[cfg(target_arch = "aarch64")]
pub(super) mod neon {
    use super::{DotKernel, Dots};
    use crate::simd::Neon;
    use std::arch::aarch64::*;
    use std::arch::asm;

    /// Byte products as 16-bit products that are added as 32 bits.
    #[derive(Clone, Copy)]
    struct Widened;

    /// Products of signed bytes. A value is the proof of the instruction.
    #[derive(Clone, Copy)]
    struct Signed(());

    /// Products of unsigned and signed bytes. A value is the proof of the instruction.
    #[derive(Clone, Copy)]
    struct Mixed(());

    /// The bytes of four lanes by their place in the lane.
    static BY_PLACE: [u8; 16] = [0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15];

    /// # Safety
    /// As of the kernel.
    pub(in crate::quantized) unsafe fn run_widened<K: DotKernel>(kernel: K) {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Widened) };
    }

    /// # Safety
    /// The machine has dot products of bytes, and as of the kernel.
    #[target_feature(enable = "dotprod")]
    pub(in crate::quantized) unsafe fn run_signed<K: DotKernel>(kernel: K) {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Signed(())) };
    }

    /// # Safety
    /// The machine has dot products of unsigned and signed bytes, and as of the kernel.
    #[target_feature(enable = "dotprod,i8mm")]
    pub(in crate::quantized) unsafe fn run_mixed<K: DotKernel>(kernel: K) {
        // SAFETY: the caller's promise.
        unsafe { kernel.run(Mixed(())) };
    }

    /// The low and the high nibbles of sixteen bytes.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    unsafe fn nibbles_of(pointer: *const i8) -> [int8x16_t; 2] {
        // SAFETY: the caller's promise, and every aarch64 has the instructions.
        unsafe {
            let bytes = vld1q_u8(pointer.cast());
            [vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15))), vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes))]
        }
    }

    impl Dots for Widened {
        type S = Neon;
        type Left = int16x4_t;
        /// The first and second bytes of all lanes, and the third and fourth.
        type Right = [int16x8_t; 2];

        #[inline(always)]
        fn simd(self) -> Neon {
            Neon
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> int16x4_t {
            // SAFETY: the caller's promise, and every aarch64 has the instructions.
            unsafe {
                let bytes = vdup_n_u32(pointer.cast::<u32>().read_unaligned());
                vreinterpret_s16_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(bytes))))
            }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> [int16x8_t; 2] {
            // SAFETY: the caller's promise; there are sixteen places, and every aarch64 has the instructions.
            unsafe {
                let bytes = vqtbl1q_s8(vld1q_s8(pointer), vld1q_u8(BY_PLACE.as_ptr()));
                [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)]
            }
        }
        #[inline(always)]
        unsafe fn nibbles(self, pointer: *const i8) -> [[int16x8_t; 2]; 2] {
            // SAFETY: the caller's promise; there are sixteen places, and every aarch64 has the instructions.
            unsafe {
                let places = vld1q_u8(BY_PLACE.as_ptr());
                nibbles_of(pointer).map(|bytes| {
                    let bytes = vqtbl1q_s8(bytes, places);
                    [vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes)]
                })
            }
        }
        #[inline(always)]
        fn dot(self, sum: int32x4_t, left: int16x4_t, right: [int16x8_t; 2]) -> int32x4_t {
            // SAFETY: every aarch64 has the instructions.
            unsafe {
                let sum = vmlal_lane_s16::<0>(sum, vget_low_s16(right[0]), left);
                let sum = vmlal_high_lane_s16::<1>(sum, right[0], left);
                let sum = vmlal_lane_s16::<2>(sum, vget_low_s16(right[1]), left);
                vmlal_high_lane_s16::<3>(sum, right[1], left)
            }
        }
    }

    impl Dots for Signed {
        type S = Neon;
        type Left = int8x16_t;
        type Right = int8x16_t;

        #[inline(always)]
        fn simd(self) -> Neon {
            Neon
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> int8x16_t {
            // SAFETY: the caller's promise, and every aarch64 has the instructions.
            unsafe {
                let bytes = vdupq_n_u32(pointer.cast::<u32>().read_unaligned());
                // The other highest bit makes a signed byte that is lower by 128.
                vreinterpretq_s8_u32(veorq_u32(bytes, vdupq_n_u32(0x8080_8080)))
            }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> int8x16_t {
            // SAFETY: the caller's promise, and every aarch64 has the instructions.
            unsafe { vld1q_s8(pointer) }
        }
        #[inline(always)]
        unsafe fn nibbles(self, pointer: *const i8) -> [int8x16_t; 2] {
            // SAFETY: the caller's promise.
            unsafe { nibbles_of(pointer) }
        }
        #[inline(always)]
        fn dot(self, sum: int32x4_t, left: int8x16_t, right: int8x16_t) -> int32x4_t {
            let mut sum = sum;
            // SAFETY: a value of this type exists only where the machine has the instruction, which computes a register from
            // registers.
            unsafe {
                asm!(
                    "sdot {sum:v}.4s, {left:v}.16b, {right:v}.16b",
                    sum = inlateout(vreg) sum,
                    left = in(vreg) left,
                    right = in(vreg) right,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    }

    impl Dots for Mixed {
        type S = Neon;
        /// The bits of four bytes, loaded to where the instruction reads them.
        type Left = f32;
        type Right = int8x16_t;

        #[inline(always)]
        fn simd(self) -> Neon {
            Neon
        }
        #[inline(always)]
        unsafe fn left(self, pointer: *const u8) -> f32 {
            // SAFETY: the caller's promise.
            unsafe { pointer.cast::<f32>().read_unaligned() }
        }
        #[inline(always)]
        unsafe fn right(self, pointer: *const i8) -> int8x16_t {
            // SAFETY: the caller's promise, and every aarch64 has the instructions.
            unsafe { vld1q_s8(pointer) }
        }
        #[inline(always)]
        unsafe fn nibbles(self, pointer: *const i8) -> [int8x16_t; 2] {
            // SAFETY: the caller's promise.
            unsafe { nibbles_of(pointer) }
        }
        #[inline(always)]
        fn dot(self, sum: int32x4_t, left: f32, right: int8x16_t) -> int32x4_t {
            let mut sum = sum;
            // SAFETY: a value of this type exists only where the machine has the instruction, which computes a register from
            // registers.
            unsafe {
                asm!(
                    "sudot {sum:v}.4s, {right:v}.16b, {left:v}.4b[0]",
                    sum = inlateout(vreg) sum,
                    left = in(vreg) left,
                    right = in(vreg) right,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
            sum
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::BLOCK;
    use crate::quantized::QUAD;
    use crate::testing::Random;
    use pretty_assertions::assert_eq;

    /// Adds the products of four bytes and a block of weights to the sums of the block.
    #[derive(Clone, Copy)]
    struct Quads {
        left: *const u8,
        right: *const i8,
        sums: *mut i32,
    }

    impl DotKernel for Quads {
        #[inline(always)]
        unsafe fn run<D: Dots>(self, d: D) {
            let s = d.simd();
            for first in (0..BLOCK).step_by(<D::S as Simd>::LANES) {
                // SAFETY: the pointers lead to four bytes, and to weights and sums for each lane of a block.
                unsafe {
                    let (left, right) = (d.left(self.left), d.right(self.right.add(first * QUAD)));
                    let sums = self.sums.add(first).cast::<f32>();
                    s.store(sums, s.from_bits(d.dot(s.bits(s.load(sums)), left, right)));
                }
            }
        }
    }

    /// A name, what left bytes are lowered by, and the function.
    type Way = (&'static str, i32, unsafe fn(Quads));

    /// Every way that this machine has.
    fn ways() -> Vec<Way> {
        let mut ways: Vec<Way> = vec![("portable", 0, portable::run)];
        #[cfg(target_arch = "x86_64")]
        {
            ways.extend(Isa::new(Tier::Avx2).map(|_| ("pairs", 0, x86::run_avx2 as unsafe fn(Quads))));
            let vnni = |tier| Isa::new(tier).filter(|isa| isa.has_vnni());
            ways.extend(vnni(Tier::Avx2).map(|_| ("avx-vnni", 0, x86::run_avx_vnni as unsafe fn(Quads))));
            ways.extend(vnni(Tier::Avx512).map(|_| ("vnni", 0, x86::run_vnni as unsafe fn(Quads))));
        }
        #[cfg(target_arch = "aarch64")]
        {
            ways.push(("widened", 0, neon::run_widened));
            if has_dot_products() {
                ways.push(("signed", 128, neon::run_signed));
            }
            if has_mixed_dot_products() {
                ways.push(("mixed", 0, neon::run_mixed));
            }
        }
        ways
    }

    #[test]
    fn every_way_gives_the_sums_of_the_integers() {
        let mut random = Random::new(1);
        let extremes = [(0, 0), (255, -128), (255, 127), (0, -128), (128, -1), (127, 1)];
        for case in 0..200 {
            let pair = extremes.get(case);
            let left: [u8; QUAD] = std::array::from_fn(|_| pair.map_or_else(|| random.next() as u8, |pair| pair.0));
            let right: [i8; QUAD * BLOCK] =
                std::array::from_fn(|_| pair.map_or_else(|| random.next() as i8, |pair| pair.1));
            let start: [i32; BLOCK] = std::array::from_fn(|_| random.next() as i32);
            for (name, lowered, run) in ways() {
                let mut sums = start;
                // SAFETY: the machine has this way, and the arrays are as long as the kernel says.
                unsafe { run(Quads { left: left.as_ptr(), right: right.as_ptr(), sums: sums.as_mut_ptr() }) };
                let expected: [i32; BLOCK] = std::array::from_fn(|lane| {
                    let products = left.iter().zip(&right[lane * QUAD..]);
                    let sum: i32 = products.map(|(a, b)| (i32::from(*a) - lowered) * i32::from(*b)).sum();
                    start[lane].wrapping_add(sum)
                });
                assert_eq!(sums, expected, "{name}");
            }
        }
    }

    #[test]
    fn what_is_lowered_is_what_the_chosen_way_lowers() {
        for isa in Isa::available_without_vnni_too() {
            let lowered = if isa.tier() == Tier::Neon { ways().last().map_or(0, |way| way.1) } else { 0 };
            assert_eq!(lowered_by(isa), lowered, "{isa}");
        }
    }
}
