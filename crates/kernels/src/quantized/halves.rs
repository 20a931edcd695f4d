//! Products of rows that are rounded to bf16 with packed operands, in tiles: the scores of attention, and its weighted sums of
//! values. There are kernels only where [`has_bf16`](super::has_bf16) holds.

use super::BLOCK;
use super::bf16::{PAIR, round};
use super::dots::{self, DotKernel, Dots};
use crate::gemm::Unpacked;
use crate::isa::Isa;
use crate::simd::Simd;

/// Columns of a panel.
pub(crate) const WIDTH: usize = 2 * BLOCK;

/// Pairs of the columns of a panel that are turned at a time.
const TURNED: usize = 64;

/// The most rows of a tile.
const MOST_ROWS: usize = 7;

/// How many pairs so many values fill.
pub(crate) const fn pairs_of(values: usize) -> usize {
    values.div_ceil(PAIR)
}

/// Rounds a row of values, and fills its last pair up with zero.
///
/// # Safety
/// The machine has bf16, there are so many values, and the target has room for their pairs.
pub(crate) unsafe fn round_row(isa: Isa, values: *const f32, count: usize, to: *mut u32) {
    if count == 0 {
        return;
    }
    let pairs = pairs_of(count);
    // SAFETY: the caller's promise.
    unsafe {
        to.add(pairs - 1).write(0);
        let values = std::slice::from_raw_parts(values, count);
        round(isa, values, std::slice::from_raw_parts_mut(to.cast(), pairs * size_of::<u32>()));
    }
}

/// Packs a right operand whose columns are contiguous, `row` values apart: panels of [`WIDTH`] columns, in which the pairs of all
/// columns follow each other.
///
/// # Safety
/// The machine has bf16, there are so many columns of so many values, and the target has room for whole panels of the pairs.
pub(crate) unsafe fn pack_columns(
    isa: Isa,
    values: *const f32,
    row: usize,
    [length, columns]: [usize; 2],
    to: *mut f32,
) {
    let mut turned = [0.0f32; WIDTH * TURNED];
    for column in (0..columns).step_by(WIDTH) {
        let count = WIDTH.min(columns - column);
        for first in (0..length).step_by(TURNED * PAIR) {
            let piece = (TURNED * PAIR).min(length - first);
            for (index, line) in turned.chunks_exact_mut(TURNED).take(count).enumerate() {
                // SAFETY: the piece lies in the column, and a line has room for it.
                unsafe {
                    round_row(isa, values.add((column + index) * row + first), piece, line.as_mut_ptr().cast());
                }
            }
            let operand = Unpacked { values: &turned, columns: count, row_stride: 1, column_stride: TURNED };
            // SAFETY: the panel has a line of its width for each pair.
            unsafe {
                let to = to.add(column * pairs_of(length) + first / PAIR * WIDTH);
                operand.pack(isa, 0, pairs_of(piece), 0, to);
            }
        }
    }
}

/// Packs a right operand whose rows are contiguous, `row` values apart, in the same form; a missing last row is zeros.
///
/// # Safety
/// The machine has bf16, there are so many rows and columns, and the target has room for whole panels of the pairs.
pub(crate) unsafe fn pack_rows(values: *const f32, row: usize, [rows, columns]: [usize; 2], to: *mut f32) {
    for column in (0..columns).step_by(WIDTH) {
        let count = WIDTH.min(columns - column);
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's promise.
        unsafe {
            let to = to.add(column * pairs_of(rows)).cast();
            dots::x86::round_pairs::<WIDTH>(values.add(column), row, [rows, count], to);
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (values, row, count, to);
    }
}

/// Rows of pairs, and panels to multiply them with.
#[derive(Clone, Copy)]
pub(crate) struct HalfTile {
    /// The first row.
    pub(crate) a: *const u32,
    /// Pairs from one row to the next.
    pub(crate) a_row: usize,
    /// Pairs of a row that are multiplied.
    pub(crate) pairs: usize,
    /// The first pair of the first panel, and elements from one panel to the next.
    pub(crate) b: *const f32,
    pub(crate) b_panel: usize,
    /// The first result.
    pub(crate) c: *mut f32,
    /// Elements from one row of results to the next.
    pub(crate) c_row: usize,
    /// The columns of the result.
    pub(crate) columns: usize,
    /// Whether products are added to the results.
    pub(crate) accumulate: bool,
}

impl HalfTile {
    /// Computes so many rows.
    ///
    /// # Safety
    /// The machine has bf16, the rows and the panels are readable, and nobody else uses the results.
    pub(crate) unsafe fn run(self, rows: usize) {
        let high = rows.div_ceil(rows.div_ceil(MOST_ROWS).max(1)).max(1);
        for first in (0..rows).step_by(high) {
            let tile = HalfTile {
                a: self.a.wrapping_add(first * self.a_row),
                c: self.c.wrapping_add(first * self.c_row),
                ..self
            };
            macro_rules! call {
                ($($rows:literal)*) => {
                    match high.min(rows - first) {
                        // SAFETY: the caller's promise.
                        $($rows => unsafe { dots::dispatch_wide(true, Fixed::<$rows>(tile)) },)*
                        rows => debug_assert!(false, "no tile of {rows} rows"),
                    }
                };
            }
            call!(1 2 3 4 5 6 7);
        }
    }
}

/// A tile with its number of rows known to the compiler.
struct Fixed<const ROWS: usize>(HalfTile);

impl<const ROWS: usize> DotKernel for Fixed<ROWS> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        let (tile, s) = (self.0, d.simd());
        for column in (0..tile.columns).step_by(WIDTH) {
            let mut b = tile.b.wrapping_add(column / WIDTH * tile.b_panel).cast::<i8>();
            let mut a = tile.a.cast::<u8>();
            let mut sums = [[s.splat_i(0); 2]; ROWS];
            for _ in 0..tile.pairs {
                // SAFETY: the caller's promise: each panel has a line for each pair of the rows.
                unsafe {
                    let right = [d.right(b), d.right(b.add(BLOCK * size_of::<f32>()))];
                    for (row, sums) in sums.iter_mut().enumerate() {
                        let left = d.left(a.add(row * tile.a_row * size_of::<u32>()));
                        *sums = [d.dot(sums[0], left, right[0]), d.dot(sums[1], left, right[1])];
                    }
                    (a, b) = (a.add(size_of::<u32>()), b.add(WIDTH * size_of::<f32>()));
                }
            }
            for (row, sums) in sums.into_iter().enumerate() {
                for (vector, sum) in sums.into_iter().enumerate() {
                    let first = column + vector * BLOCK;
                    let count = BLOCK.min(tile.columns.saturating_sub(first));
                    let place = tile.c.wrapping_add(row * tile.c_row + first);
                    // SAFETY: so many columns of the row are left.
                    unsafe {
                        let before = if tile.accumulate { s.load_partial(place, count) } else { s.splat(0.0) };
                        s.store_partial(place, s.add(before, d.value(sum)), count);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantized::has_bf16;
    use crate::testing::Random;
    use half::bf16;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn products_are_those_of_rounded_values(seed: u64) {
            let Some(isa) = Isa::available().find(|isa| has_bf16(*isa)) else { return Ok(()) };
            let mut random = Random::new(seed);
            let (rows, length, columns) = (random.between(1, 14), random.between(1, 300), random.between(1, 100));
            let (a, b) = (random.values(rows * length), random.values(length * columns));
            let pairs = pairs_of(length);
            let mut halves = vec![u32::MAX; rows * pairs];
            for (values, to) in a.chunks(length).zip(halves.chunks_mut(pairs)) {
                // SAFETY: the machine has bf16, and a row has room.
                unsafe { round_row(isa, values.as_ptr(), length, to.as_mut_ptr()) };
            }
            let start = random.values(rows * columns);
            let rounded = |value: f32| f64::from(bf16::from_f32(value).to_f32());
            for by_columns in [false, true] {
                let mut panels = vec![f32::NAN; columns.next_multiple_of(WIDTH) * pairs];
                // SAFETY: the machine has bf16, and the panels have room.
                unsafe {
                    match by_columns {
                        true => pack_columns(isa, b.as_ptr(), length, [length, columns], panels.as_mut_ptr()),
                        false => pack_rows(b.as_ptr(), columns, [length, columns], panels.as_mut_ptr()),
                    }
                }
                for accumulate in [false, true] {
                    let mut output = start.clone();
                    let tile = HalfTile {
                        a: halves.as_ptr(),
                        a_row: pairs,
                        pairs,
                        b: panels.as_ptr(),
                        b_panel: WIDTH * pairs,
                        c: output.as_mut_ptr(),
                        c_row: columns,
                        columns,
                        accumulate,
                    };
                    // SAFETY: as above, and the output has the rows and columns.
                    unsafe { tile.run(rows) };
                    for (index, value) in output.iter().enumerate() {
                        let (row, column) = (index / columns, index % columns);
                        let of_b = |step: usize| b[if by_columns { column * length + step } else { step * columns + column }];
                        let sum: f64 = (0..length).map(|step| rounded(a[row * length + step]) * rounded(of_b(step))).sum();
                        let expected = sum + if accumulate { f64::from(start[index]) } else { 0.0 };
                        prop_assert!((f64::from(*value) - expected).abs() <= 1e-6 * (length as f64 + 1.0));
                    }
                }
            }
        }
    }
}
