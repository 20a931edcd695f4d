//! Transposition of small square tiles of four-byte values.

use crate::isa::Isa;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::isa::Tier;

/// The side of a tile.
pub(crate) const SIDE: usize = 8;

/// Transposes eight by eight values: `to[column * to_stride + row] = from[row * from_stride + column]`.
///
/// # Safety
/// Eight values are readable at each of eight rows of `from`, and writable at each of eight rows of `to`.
#[inline]
pub(crate) unsafe fn transpose(isa: Isa, from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    match isa.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: both tiers include AVX2; the rest is the caller's promise.
        Tier::Avx2 | Tier::Avx512 => unsafe { transpose_avx2(from, from_stride, to, to_stride) },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: every aarch64 has NEON; the rest is the caller's promise.
        Tier::Neon => unsafe { transpose_neon(from, from_stride, to, to_stride) },
        _ => {
            for row in 0..SIDE {
                for column in 0..SIDE {
                    // SAFETY: the caller's promise.
                    unsafe {
                        let value = from.add(row * from_stride + column).read_unaligned();
                        to.add(column * to_stride + row).write_unaligned(value);
                    }
                }
            }
        }
    }
}

/// # Safety
/// As of [`transpose`], and the machine supports AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn transpose_avx2(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::x86_64::*;
    let mut rows = [_mm256_setzero_ps(); SIDE];
    for (index, row) in rows.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *row = unsafe { _mm256_loadu_ps(from.add(index * from_stride)) };
    }
    // Pairs of rows, then pairs of pairs, then halves.
    let mut pairs = rows;
    for index in 0..4 {
        pairs[2 * index] = _mm256_unpacklo_ps(rows[2 * index], rows[2 * index + 1]);
        pairs[2 * index + 1] = _mm256_unpackhi_ps(rows[2 * index], rows[2 * index + 1]);
    }
    let mut quads = pairs;
    for half in 0..2 {
        let base = 4 * half;
        quads[base] = _mm256_shuffle_ps::<0x44>(pairs[base], pairs[base + 2]);
        quads[base + 1] = _mm256_shuffle_ps::<0xee>(pairs[base], pairs[base + 2]);
        quads[base + 2] = _mm256_shuffle_ps::<0x44>(pairs[base + 1], pairs[base + 3]);
        quads[base + 3] = _mm256_shuffle_ps::<0xee>(pairs[base + 1], pairs[base + 3]);
    }
    for index in 0..4 {
        let low = _mm256_permute2f128_ps::<0x20>(quads[index], quads[index + 4]);
        let high = _mm256_permute2f128_ps::<0x31>(quads[index], quads[index + 4]);
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(to.add(index * to_stride), low);
            _mm256_storeu_ps(to.add((index + 4) * to_stride), high);
        }
    }
}

/// # Safety
/// As of [`transpose`], and the machine supports NEON.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn transpose_neon(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
    use std::arch::aarch64::*;
    let pairs = |low, high| vreinterpretq_f32_f64(vtrn1q_f64(vreinterpretq_f64_f32(low), vreinterpretq_f64_f32(high)));
    let others = |low, high| vreinterpretq_f32_f64(vtrn2q_f64(vreinterpretq_f64_f32(low), vreinterpretq_f64_f32(high)));
    // Each quarter on its own: neighbouring rows, then pairs of them.
    for (row, column) in [(0, 0), (0, 4), (4, 0), (4, 4)] {
        // SAFETY: the caller's promise.
        let rows = [0, 1, 2, 3].map(|index| unsafe { vld1q_f32(from.add((row + index) * from_stride + column)) });
        let even = [vtrn1q_f32(rows[0], rows[1]), vtrn1q_f32(rows[2], rows[3])];
        let odd = [vtrn2q_f32(rows[0], rows[1]), vtrn2q_f32(rows[2], rows[3])];
        let columns =
            [pairs(even[0], even[1]), pairs(odd[0], odd[1]), others(even[0], even[1]), others(odd[0], odd[1])];
        for (index, values) in columns.into_iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { vst1q_f32(to.add((column + index) * to_stride + row), values) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn rows_become_columns() {
        let from: Vec<f32> = (0..7 * 10 + 8).map(|value| value as f32).collect();
        for isa in Isa::available() {
            let mut to = vec![0.0; 7 * 9 + 8];
            // SAFETY: eight rows of eight values at strides of ten and nine lie in the slices.
            unsafe { transpose(isa, from.as_ptr(), 10, to.as_mut_ptr(), 9) };
            for (row, column) in (0..8).flat_map(|row| (0..8).map(move |column| (row, column))) {
                assert_eq!(to[column * 9 + row], from[row * 10 + column]);
            }
        }
    }
}
