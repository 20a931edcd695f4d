//! The AVX-512 tier: sixteen lanes.

use super::{Kernel, Simd};
use std::arch::x86_64::*;

/// Proof of AVX-512 F, BW, DQ and VL.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

/// Runs a body with the tier's features enabled.
///
/// # Safety
/// The machine supports them.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
pub(super) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    super::align_frame();
    kernel.run(Avx512(()))
}

impl Avx512 {
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

impl Simd for Avx512 {
    const LANES: usize = 16;
    const FUSED: bool = true;
    const TILE_ROWS: usize = 14;
    type F = __m512;
    type I = __m512i;
    type M = __mmask16;
    type D = [__m512d; 2];

    #[inline(always)]
    fn div_by_one_to_two(self, a: __m512, b: __m512) -> __m512 {
        // One step of Newton's method after an estimate of 14 bits.
        // SAFETY: a value of this type exists only where the machine supports the instructions.
        unsafe {
            let estimate = _mm512_rcp14_ps(b);
            let rest = _mm512_fnmadd_ps(b, estimate, _mm512_set1_ps(1.0));
            _mm512_mul_ps(a, _mm512_fmadd_ps(rest, estimate, estimate))
        }
    }
    #[inline(always)]
    unsafe fn load(self, pointer: *const f32) -> __m512 {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm512_loadu_ps(pointer) }
    }
    #[inline(always)]
    unsafe fn store(self, pointer: *mut f32, value: __m512) {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm512_storeu_ps(pointer, value) }
    }
    #[inline(always)]
    unsafe fn load_partial(self, pointer: *const f32, count: usize) -> __m512 {
        // SAFETY: masked lanes are not accessed; the caller promises the others.
        unsafe { _mm512_maskz_loadu_ps(mask(count), pointer) }
    }
    #[inline(always)]
    unsafe fn store_partial(self, pointer: *mut f32, value: __m512, count: usize) {
        // SAFETY: masked lanes are not accessed; the caller promises the others.
        unsafe { _mm512_mask_storeu_ps(pointer, mask(count), value) }
    }
    #[inline(always)]
    unsafe fn load_even(self, pointer: *const f32) -> __m512 {
        // The second vector begins at an odd place, so that it ends with the last value that is asked for.
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe {
            let places = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
            _mm512_permutex2var_ps(_mm512_loadu_ps(pointer), places, _mm512_loadu_ps(pointer.add(15)))
        }
    }
    #[inline(always)]
    unsafe fn load_u8(self, pointer: *const u8) -> __m512i {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(pointer.cast())) }
    }
    #[inline(always)]
    unsafe fn load_u16(self, pointer: *const u8) -> __m512i {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm512_cvtepu16_epi32(_mm256_loadu_si256(pointer.cast())) }
    }
    #[inline(always)]
    unsafe fn load_f16(self, pointer: *const u8) -> __m512 {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(pointer.cast())) }
    }
    #[inline(always)]
    unsafe fn store_u8(self, pointer: *mut u8, value: __m512i) {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm_storeu_si128(pointer.cast(), _mm512_cvtepi32_epi8(value)) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, pointer: *mut u8, value: __m512) {
        // SAFETY: the caller's promise, and the proof of the instructions.
        unsafe { _mm256_storeu_si256(pointer.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value)) }
    }
    #[inline(always)]
    fn lookup(self, table: &[f32; 16], index: __m512i) -> __m512 {
        // SAFETY: the table has sixteen entries, and a value of this type is the proof of the instructions.
        unsafe { _mm512_permutexvar_ps(index, _mm512_loadu_ps(table.as_ptr())) }
    }
    #[inline(always)]
    fn shl<const BITS: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: a value of this type exists only where the machine supports the instructions.
        unsafe { _mm512_slli_epi32::<BITS>(a) }
    }
    #[inline(always)]
    fn shr<const BITS: u32>(self, a: __m512i) -> __m512i {
        // SAFETY: a value of this type exists only where the machine supports the instructions.
        unsafe { _mm512_srai_epi32::<BITS>(a) }
    }

    #[inline(always)]
    fn reduce_add_four(self, [a, b, c, d]: [__m512; 4]) -> [f32; 4] {
        let mut sums = [0.0; 4];
        // SAFETY: the proof of the tier covers the instructions, and the array has the four sums.
        unsafe {
            // Two vectors become one with half the partial sums of each, twice; what is left are those of 128 bits.
            let ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            let cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
            let all = _mm512_add_ps(_mm512_shuffle_ps::<0x44>(ab, cd), _mm512_shuffle_ps::<0xee>(ab, cd));
            let half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps::<1>(all));
            let quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps::<1>(half));
            _mm_storeu_ps(sums.as_mut_ptr(), quarter);
        }
        sums
    }

    operations! {
        splat(value: f32) -> __m512 { _mm512_set1_ps(value) }
        splat_i(value: i32) -> __m512i { _mm512_set1_epi32(value) }
        add(a: __m512, b: __m512) -> __m512 { _mm512_add_ps(a, b) }
        sub(a: __m512, b: __m512) -> __m512 { _mm512_sub_ps(a, b) }
        mul(a: __m512, b: __m512) -> __m512 { _mm512_mul_ps(a, b) }
        div(a: __m512, b: __m512) -> __m512 { _mm512_div_ps(a, b) }
        fma(a: __m512, b: __m512, c: __m512) -> __m512 { _mm512_fmadd_ps(a, b, c) }
        max(a: __m512, b: __m512) -> __m512 { _mm512_max_ps(a, b) }
        min(a: __m512, b: __m512) -> __m512 { _mm512_min_ps(a, b) }
        inverse_estimate(a: __m512) -> __m512 { _mm512_rcp14_ps(a) }
        sqrt(a: __m512) -> __m512 { _mm512_sqrt_ps(a) }
        round(a: __m512) -> __m512 { _mm512_roundscale_ps::<8>(a) }
        floor(a: __m512) -> __m512 { _mm512_roundscale_ps::<9>(a) }
        ceil(a: __m512) -> __m512 { _mm512_roundscale_ps::<10>(a) }
        trunc(a: __m512) -> __m512 { _mm512_roundscale_ps::<11>(a) }
        scale(a: __m512, n: __m512) -> __m512 { _mm512_scalef_ps(a, n) }
        lt(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b) }
        le(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_LE_OQ>(a, b) }
        eq(a: __m512, b: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_EQ_OQ>(a, b) }
        is_nan(a: __m512) -> __mmask16 { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a, a) }
        select(mask: __mmask16, a: __m512, b: __m512) -> __m512 { _mm512_mask_blend_ps(mask, b, a) }
        to_i(a: __m512) -> __m512i { _mm512_cvtps_epi32(a) }
        from_i(a: __m512i) -> __m512 { _mm512_cvtepi32_ps(a) }
        bits(a: __m512) -> __m512i { _mm512_castps_si512(a) }
        from_bits(a: __m512i) -> __m512 { _mm512_castsi512_ps(a) }
        add_i(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        sub_i(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        mul_i(a: __m512i, b: __m512i) -> __m512i { _mm512_mullo_epi32(a, b) }
        and_i(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        or_i(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        xor_i(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        eq_i(a: __m512i, b: __m512i) -> __mmask16 { _mm512_cmpeq_epi32_mask(a, b) }
        splat_d(value: f64) -> [__m512d; 2] { [_mm512_set1_pd(value); 2] }
        widen(a: __m512) -> [__m512d; 2] {
            [_mm512_cvtps_pd(_mm512_castps512_ps256(a)), _mm512_cvtps_pd(_mm512_extractf32x8_ps::<1>(a))]
        }
        narrow(a: [__m512d; 2]) -> __m512 {
            _mm512_insertf32x8::<1>(_mm512_castps256_ps512(_mm512_cvtpd_ps(a[0])), _mm512_cvtpd_ps(a[1]))
        }
        add_d(a: [__m512d; 2], b: [__m512d; 2]) -> [__m512d; 2] { [_mm512_add_pd(a[0], b[0]), _mm512_add_pd(a[1], b[1])] }
        mul_d(a: [__m512d; 2], b: [__m512d; 2]) -> [__m512d; 2] { [_mm512_mul_pd(a[0], b[0]), _mm512_mul_pd(a[1], b[1])] }
        div_d(a: [__m512d; 2], b: [__m512d; 2]) -> [__m512d; 2] { [_mm512_div_pd(a[0], b[0]), _mm512_div_pd(a[1], b[1])] }
        reduce_add(a: __m512) -> f32 { _mm512_reduce_add_ps(a) }
        reduce_max(a: __m512) -> f32 { _mm512_reduce_max_ps(a) }
    }

    #[inline(always)]
    fn any(self, mask: __mmask16) -> bool {
        mask != 0
    }
}

/// A mask of the first `count` lanes.
#[inline(always)]
fn mask(count: usize) -> __mmask16 {
    if count >= 16 { u16::MAX } else { (1u16 << count) - 1 }
}
