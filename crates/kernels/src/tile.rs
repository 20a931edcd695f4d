//! Transposition of small square tiles of values of four bytes and of one.

use crate::gemm::Value;
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

/// The side of a tile of bytes.
pub(crate) const BYTE_SIDE: usize = 16;

/// A function that gives the columns of as many rows as a vector of 16 bytes has values; `$rounds` is the logarithm of that.
macro_rules! columns_of_vectors {
    ($(#[$about:meta])* $name:ident: $type:ty, $side:expr, $rounds:literal, $low:ident, $high:ident) => {
        $(#[$about])*
        #[cfg(target_arch = "x86_64")]
        #[inline]
        pub(crate) fn $name(rows: &[[$type; $side]; $side]) -> [[$type; $side]; $side] {
            use std::arch::x86_64::*;
            // SAFETY: every x86_64 has SSE2, and each row has the bytes of a vector.
            unsafe {
                let mut vectors = rows.each_ref().map(|row| _mm_loadu_si128(row.as_ptr().cast()));
                // Each round moves one bit of a value's row to its column.
                for _ in 0..$rounds {
                    let before = vectors;
                    for index in 0..$side / 2 {
                        let pair = (before[index], before[index + $side / 2]);
                        vectors[2 * index] = $low(pair.0, pair.1);
                        vectors[2 * index + 1] = $high(pair.0, pair.1);
                    }
                }
                let mut columns = [[0; $side]; $side];
                for (column, vector) in columns.iter_mut().zip(vectors) {
                    _mm_storeu_si128(column.as_mut_ptr().cast(), vector);
                }
                columns
            }
        }

        $(#[$about])*
        #[cfg(not(target_arch = "x86_64"))]
        #[inline]
        pub(crate) fn $name(rows: &[[$type; $side]; $side]) -> [[$type; $side]; $side] {
            std::array::from_fn(|column| std::array::from_fn(|row| rows[row][column]))
        }
    };
}

columns_of_vectors!(
    /// Sixteen rows of sixteen bytes as their columns.
    columns: u8, BYTE_SIDE, 4, _mm_unpacklo_epi8, _mm_unpackhi_epi8
);
columns_of_vectors!(
    /// Eight rows of eight values of two bytes as their columns.
    columns_of_pairs: u16, SIDE, 3, _mm_unpacklo_epi16, _mm_unpackhi_epi16
);

/// Indices of rows that are turned into lines together.
const TOGETHER: usize = 2 * SIDE;

/// Turns rows into lines: calls `line` for each index below `count` with the values that the rows have there, zeros beyond the
/// rows. Row `r` begins at `r * stride`.
pub(crate) fn for_each_line<T: Value, const WIDTH: usize>(
    isa: Isa,
    values: &[T],
    stride: usize,
    rows: usize,
    count: usize,
    mut line: impl FnMut(usize, &[f32; WIDTH]),
) {
    let rows = rows.min(WIDTH);
    let mut lines = [[0.0; WIDTH]; TOGETHER];
    for start in (0..count).step_by(TOGETHER) {
        let together = TOGETHER.min(count - start);
        let mut first = 0;
        if let (Some(values), TOGETHER) = (T::as_f32(values), together) {
            while first + SIDE <= rows {
                for half in [0, SIDE] {
                    let from = &values[first * stride + start + half..][..(SIDE - 1) * stride + SIDE];
                    let to = lines[half..][..SIDE].as_flattened_mut()[first..].as_mut_ptr();
                    // SAFETY: eight rows of eight values lie in the slice, and eight columns of eight lines from this one on
                    // in the lines.
                    unsafe { transpose(isa, from.as_ptr(), stride, to, WIDTH) };
                }
                first += SIDE;
            }
        }
        for row in first..rows {
            let from = &values[row * stride + start..][..together];
            for (line, value) in lines.iter_mut().zip(from) {
                line[row] = value.widen();
            }
        }
        for (index, values) in lines[..together].iter().enumerate() {
            line(start + index, values);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::f16;
    use pretty_assertions::assert_eq;

    #[test]
    fn lines_have_the_values_of_all_rows() {
        for isa in Isa::available() {
            for (rows, count, stride) in [(16, 48, 50), (16, 16, 16), (11, 37, 40), (8, 5, 7), (3, 33, 33), (0, 4, 4)] {
                let values: Vec<f32> = (1..=rows * stride).map(|value| value as f32).collect();
                let halves: Vec<f16> = values.iter().map(|value| f16::from_f32(*value)).collect();
                let expected: Vec<[f32; 16]> = (0..count)
                    .map(|index| std::array::from_fn(|row| if row < rows { values[row * stride + index] } else { 0.0 }))
                    .collect();
                let mut lines = Vec::new();
                for_each_line(isa, &values, stride, rows, count, |index, line: &[f32; 16]| {
                    assert_eq!(index, lines.len());
                    lines.push(*line);
                });
                assert_eq!(lines, expected, "{isa}: {rows} rows of {count}");
                lines.clear();
                for_each_line(isa, &halves, stride, rows, count, |_, line: &[f32; 16]| lines.push(*line));
                assert_eq!(lines, expected, "{isa}: {rows} rows of {count} halves");
            }
        }
    }

    #[test]
    fn rows_of_bytes_become_columns() {
        let rows: [[u8; 16]; 16] = std::array::from_fn(|row| std::array::from_fn(|column| (16 * row + column) as u8));
        let columns = columns(&rows);
        for (row, column) in (0..16).flat_map(|row| (0..16).map(move |column| (row, column))) {
            assert_eq!(columns[column][row], rows[row][column]);
        }
    }

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
