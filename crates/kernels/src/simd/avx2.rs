//! The AVX2 and FMA tier: eight lanes.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// Proof of AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

/// Eight set lanes followed by eight clear ones; a window into it is a mask of the first lanes.
static WINDOW: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

/// Runs a body with the tier's features enabled.
///
/// # Safety
/// The machine supports them.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    super::align_frame();
    kernel.run(Avx2(()))
}

impl Avx2 {
    /// The proof, for bodies that need instructions beyond the tier's.
    ///
    /// # Safety
    /// The machine supports the tier's instructions.
    #[inline(always)]
    pub(crate) unsafe fn assume() -> Self {
        Self(())
    }
}

macro_rules! operations {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty { $body:expr })*) => {
        $(#[inline(always)]
        fn $name(self, $($argument: $type),*) -> $result {
            // SAFETY: a value of this type exists only where the machine supports the instructions.
            unsafe { $body }
        })*
    };
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const FUSED: bool = true;
    const TILE_ROWS: usize = 6;
    type F = __m256;
    type I = __m256i;
    type M = __m256;
    type D = [__m256d; 2];

    #[inline(always)]
    unsafe fn load(self, pointer: *const f32) -> __m256 {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm256_loadu_ps(pointer) }
    }
    #[inline(always)]
    unsafe fn store(self, pointer: *mut f32, value: __m256) {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm256_storeu_ps(pointer, value) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, pointer: *const f32, count: usize) -> __m256 {
        // SAFETY: masked lanes are not accessed; the caller promises the others.
        unsafe { _mm256_maskload_ps(pointer, self.mask(count)) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, pointer: *mut f32, value: __m256, count: usize) {
        // SAFETY: masked lanes are not accessed; the caller promises the others.
        unsafe { _mm256_maskstore_ps(pointer, self.mask(count), value) }
    }
    #[inline(always)]
    unsafe fn load_even(self, pointer: *const f32) -> __m256 {
        // The second vector begins at an odd place, so that it ends with the last value that is asked for.
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe {
            let pairs = _mm256_shuffle_ps::<0xd8>(_mm256_loadu_ps(pointer), _mm256_loadu_ps(pointer.add(7)));
            _mm256_castpd_ps(_mm256_permute4x64_pd::<0xd8>(_mm256_castps_pd(pairs)))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, pointer: *const u8) -> __m256i {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(pointer.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, pointer: *const u8) -> __m256i {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm256_cvtepu16_epi32(_mm_loadu_si128(pointer.cast())) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, pointer: *const u8) -> __m256 {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(pointer.cast())) }
    }
    #[inline(always)]
    unsafe fn store_u8(self, pointer: *mut u8, value: __m256i) {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe {
            let words = _mm256_packus_epi32(value, value);
            let bytes = _mm256_packus_epi16(words, words);
            let low = _mm_cvtsi128_si32(_mm256_castsi256_si128(bytes));
            let high = _mm_cvtsi128_si32(_mm256_extracti128_si256::<1>(bytes));
            pointer.cast::<[i32; 2]>().write_unaligned([low, high]);
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, pointer: *mut u8, value: __m256) {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm_storeu_si128(pointer.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    }
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: __m256i) -> __m256 {
        // SAFETY: the table has sixteen entries, and a value of this type is the proof of the instructions.
        unsafe {
            let low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr()), index);
            let high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table.as_ptr().add(8)), index);
            // The fourth bit of the index, moved to the sign, chooses the half.
            _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32::<28>(index)))
        }
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: a value of this type exists only where the machine supports the instructions.
        unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(BITS as i32)) }
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: __m256i) -> __m256i {
        // SAFETY: a value of this type exists only where the machine supports the instructions.
        unsafe { _mm256_sra_epi32(a, _mm_cvtsi32_si128(BITS as i32)) }
    }

    operations! {
        splat(value: f32) -> __m256 { _mm256_set1_ps(value) }
        splat_i(value: i32) -> __m256i { _mm256_set1_epi32(value) }
        add(a: __m256, b: __m256) -> __m256 { _mm256_add_ps(a, b) }
        sub(a: __m256, b: __m256) -> __m256 { _mm256_sub_ps(a, b) }
        mul(a: __m256, b: __m256) -> __m256 { _mm256_mul_ps(a, b) }
        div(a: __m256, b: __m256) -> __m256 { _mm256_div_ps(a, b) }
        fma(a: __m256, b: __m256, c: __m256) -> __m256 { _mm256_fmadd_ps(a, b, c) }
        max(a: __m256, b: __m256) -> __m256 { _mm256_max_ps(a, b) }
        min(a: __m256, b: __m256) -> __m256 { _mm256_min_ps(a, b) }
        inverse_estimate(a: __m256) -> __m256 { _mm256_rcp_ps(a) }
        sqrt(a: __m256) -> __m256 { _mm256_sqrt_ps(a) }
        round(a: __m256) -> __m256 { _mm256_round_ps::<8>(a) }
        floor(a: __m256) -> __m256 { _mm256_round_ps::<9>(a) }
        ceil(a: __m256) -> __m256 { _mm256_round_ps::<10>(a) }
        trunc(a: __m256) -> __m256 { _mm256_round_ps::<11>(a) }
        lt(a: __m256, b: __m256) -> __m256 { _mm256_cmp_ps::<_CMP_LT_OQ>(a, b) }
        le(a: __m256, b: __m256) -> __m256 { _mm256_cmp_ps::<_CMP_LE_OQ>(a, b) }
        eq(a: __m256, b: __m256) -> __m256 { _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b) }
        is_nan(a: __m256) -> __m256 { _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a) }
        select(mask: __m256, a: __m256, b: __m256) -> __m256 { _mm256_blendv_ps(b, a, mask) }
        any(mask: __m256) -> bool { _mm256_movemask_ps(mask) != 0 }
        to_i(a: __m256) -> __m256i { _mm256_cvtps_epi32(a) }
        from_i(a: __m256i) -> __m256 { _mm256_cvtepi32_ps(a) }
        bits(a: __m256) -> __m256i { _mm256_castps_si256(a) }
        from_bits(a: __m256i) -> __m256 { _mm256_castsi256_ps(a) }
        add_i(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        sub_i(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
        mul_i(a: __m256i, b: __m256i) -> __m256i { _mm256_mullo_epi32(a, b) }
        and_i(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        or_i(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
        xor_i(a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
        eq_i(a: __m256i, b: __m256i) -> __m256 { _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)) }
        splat_d(value: f64) -> [__m256d; 2] { [_mm256_set1_pd(value); 2] }
        widen(a: __m256) -> [__m256d; 2] {
            [_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps::<1>(a))]
        }
        narrow(a: [__m256d; 2]) -> __m256 {
            _mm256_set_m128(_mm256_cvtpd_ps(a[1]), _mm256_cvtpd_ps(a[0]))
        }
        add_d(a: [__m256d; 2], b: [__m256d; 2]) -> [__m256d; 2] { [_mm256_add_pd(a[0], b[0]), _mm256_add_pd(a[1], b[1])] }
        mul_d(a: [__m256d; 2], b: [__m256d; 2]) -> [__m256d; 2] { [_mm256_mul_pd(a[0], b[0]), _mm256_mul_pd(a[1], b[1])] }
        div_d(a: [__m256d; 2], b: [__m256d; 2]) -> [__m256d; 2] { [_mm256_div_pd(a[0], b[0]), _mm256_div_pd(a[1], b[1])] }
        reduce_add(a: __m256) -> f32 {{
            let half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
        }}
        reduce_max(a: __m256) -> f32 {{
            let half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
            let pair = _mm_max_ps(half, _mm_movehl_ps(half, half));
            _mm_cvtss_f32(_mm_max_ss(pair, _mm_shuffle_ps::<1>(pair, pair)))
        }}
    }
}

impl Avx2 {
    /// A mask of the first `count` lanes.
    #[inline(always)]
    fn mask(self, count: usize) -> __m256i {
        let start = 8 - count.min(8);
        // SAFETY: the start is at most 8 and the window 16 long; the instructions are proven.
        unsafe { _mm256_loadu_si256(WINDOW.as_ptr().add(start).cast()) }
    }
}
