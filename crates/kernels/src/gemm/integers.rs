//! Products of i32, which wrap: the sums are those of 64 or any more bits, cut.

use super::{MatMulGeometry, flops};
use crate::error::KernelError;
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_flops, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch};

/// Steps along the shared axis that are packed at a time: 32 KiB with the widest vectors.
const STEPS: usize = 256;

/// Rows of a tile.
const ROWS: usize = 6;

/// Rows that share what is packed.
const BAND: usize = 16 * ROWS;

/// The vectors that a tile is wide.
const VECTORS: usize = 2;

/// A batch of products of i32, which wrap.
///
/// # Errors
/// A slice is shorter than the geometry needs, or parts of the result overlap.
pub fn matmul_i32(isa: Isa, geometry: &MatMulGeometry, a: &[i32], b: &[i32], c: &mut [i32]) -> Result<(), KernelError> {
    let batches = geometry.check(a.len(), b.len(), c.len())?;
    let MatMulGeometry { m, n, k, .. } = *geometry;
    if batches == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let width = VECTORS * isa.lanes();
    let (bands, panels) = (m.div_ceil(BAND), n.div_ceil(width));
    let shared = SharedMut::new(c);
    // A multiplication of integers takes twice the time of one of floats or more.
    let work = nanoseconds_for_flops(flops(batches, m, k, n).saturating_mul(2));
    parallel_for(batches * bands * panels, 1, work, |tasks| {
        for task in tasks {
            let (batch, band, panel) = (task / panels / bands, task / panels % bands, task % panels);
            let rows = band * BAND..m.min((band + 1) * BAND);
            let first = panel * width;
            let area = Area {
                geometry,
                a: &a[geometry.offset(&geometry.a_batch, batch)..],
                b: &b[geometry.offset(&geometry.b_batch, batch)..],
                c: &shared,
                c_start: geometry.offset(&geometry.c_batch, batch) + rows.start * geometry.c_row + first,
                rows,
                first,
                columns: width.min(n - first),
            };
            dispatch(isa, area);
        }
    });
    Ok(())
}

/// Some rows of a panel of columns.
struct Area<'a> {
    geometry: &'a MatMulGeometry,
    a: &'a [i32],
    b: &'a [i32],
    c: &'a SharedMut<'a, i32>,
    /// Where the first row of the area begins in `c`.
    c_start: usize,
    rows: std::ops::Range<usize>,
    first: usize,
    columns: usize,
}

impl Kernel for Area<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Area { geometry, a, b, c, c_start, rows, first, columns } = self;
        let MatMulGeometry { k, a_row, a_column, b_row, b_column, c_row, .. } = *geometry;
        let width = VECTORS * S::LANES;
        // Few rows do not repay a copy.
        let in_place = b_column == 1 && columns == width && rows.len() <= 2 * ROWS;
        let mut packed = (!in_place).then_some([0; STEPS * VECTORS * MOST_LANES]);
        // Without a step the result is zero.
        for start in (0..k.max(1)).step_by(STEPS) {
            let steps = STEPS.min(k - start);
            let (right, right_step) = if let Some(packed) = &mut packed {
                for (step, line) in packed.chunks_exact_mut(width).take(steps).enumerate() {
                    let from = &b[(start + step) * b_row + first * b_column..];
                    if b_column == 1 {
                        line[..columns].copy_from_slice(&from[..columns]);
                    } else {
                        line.iter_mut().zip(from.iter().step_by(b_column)).take(columns).for_each(|(t, v)| *t = *v);
                    }
                }
                (&packed[..], width)
            } else {
                (b.get(start * b_row + first..).unwrap_or_default(), b_row)
            };
            for row in (0..rows.len()).step_by(ROWS) {
                let left = a.get((rows.start + row) * a_row + start * a_column..).unwrap_or_default();
                let tile = Tile { left, a_row, a_column, right, right_step, steps };
                let target = c_start + row * c_row;
                macro_rules! call {
                    ($($rows:literal)*) => {
                        match rows.len() - row {
                            // SAFETY: the geometry was checked against all three slices, and areas share no element of C.
                            $($rows => unsafe { tile.run::<S, $rows>(s, c, target, c_row, columns, start > 0) },)*
                            // SAFETY: as above.
                            _ => unsafe { tile.run::<S, ROWS>(s, c, target, c_row, columns, start > 0) },
                        }
                    };
                }
                call!(1 2 3 4 5);
            }
        }
    }
}

/// Rows of A and columns of B.
#[derive(Clone, Copy)]
struct Tile<'a> {
    left: &'a [i32],
    a_row: usize,
    a_column: usize,
    /// Two vectors for each step.
    right: &'a [i32],
    right_step: usize,
    steps: usize,
}

impl Tile<'_> {
    /// Adds the products to what `c` holds, or puts them there.
    ///
    /// # Safety
    /// `left` has the rows and the steps, `right` two whole vectors for each step, and `c` from `target` on `columns` values
    /// in each row, which nobody else reads or writes.
    #[inline(always)]
    unsafe fn run<S: Simd, const COUNT: usize>(
        self,
        s: S,
        c: &SharedMut<'_, i32>,
        target: usize,
        c_row: usize,
        columns: usize,
        adds: bool,
    ) {
        let mut sums = [[s.splat_i(0); VECTORS]; COUNT];
        let (mut left, mut right) = (self.left.as_ptr(), self.right.as_ptr().cast::<f32>());
        for _ in 0..self.steps {
            let mut values = [s.splat_i(0); VECTORS];
            for vector in 0..VECTORS {
                // SAFETY: two whole vectors for each step, as promised.
                values[vector] = s.bits(unsafe { s.load(right.add(vector * S::LANES)) });
            }
            for row in 0..COUNT {
                // SAFETY: the left operand has the row and the step, as promised.
                let left = s.splat_i(unsafe { *left.add(row * self.a_row) });
                for vector in 0..VECTORS {
                    sums[row][vector] = s.add_i(sums[row][vector], s.mul_i(left, values[vector]));
                }
            }
            left = left.wrapping_add(self.a_column);
            right = right.wrapping_add(self.right_step);
        }
        for row in 0..COUNT {
            for vector in 0..VECTORS {
                let count = columns.saturating_sub(vector * S::LANES).min(S::LANES);
                if count == 0 {
                    continue;
                }
                // SAFETY: the row of C has the columns, and as many values of the vector are read and written.
                unsafe {
                    let place = c.pointer().add(target + row * c_row + vector * S::LANES).cast::<f32>();
                    let before = if adds { s.bits(s.load_first(place, count)) } else { s.splat_i(0) };
                    s.store_first(place, s.from_bits(s.add_i(sums[row][vector], before)), count);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn products_wrap() {
        let mut random = Random::new(7);
        for [batch, m, k, n] in [
            [1, 1, 1, 1],
            [2, 7, 5, 33],
            [1, 3, 600, 64],
            [1, 12, 20, 96],
            [3, 100, 17, 5],
            [1, 200, 257, 70],
            [2, 3, 0, 4],
        ] {
            let mut numbers = |count: usize| (0..count).map(|_| random.next() as i32).collect::<Vec<i32>>();
            let (a, b) = (numbers(batch * m * k), numbers(batch * k * n));
            for (transpose_a, transpose_b, b_repeats) in
                [(false, false, true), (true, false, true), (false, true, false), (true, true, true)]
            {
                let geometry = MatMulGeometry::dense(batch, m, k, n, transpose_a, transpose_b, true, b_repeats);
                let MatMulGeometry { a_row, a_column, b_row, b_column, a_batch, b_batch, .. } = geometry;
                let mut expected = vec![0i32; batch * m * n];
                for (index, expected) in expected.iter_mut().enumerate() {
                    let (matrix, row, column) = (index / (m * n), index / n % m, index % n);
                    for step in 0..k {
                        let x = a[matrix * a_batch[3] + row * a_row + step * a_column];
                        let y = b[matrix * b_batch[3] + step * b_row + column * b_column];
                        *expected = expected.wrapping_add(x.wrapping_mul(y));
                    }
                }
                for isa in Isa::available() {
                    let run = || {
                        let mut c = vec![1; batch * m * n];
                        matmul_i32(isa, &geometry, &a, &b, &mut c).unwrap();
                        c
                    };
                    assert_eq!(run(), expected, "{isa} {geometry:?}");
                    assert_eq!(in_pool(2, run), expected, "{isa} {geometry:?}");
                }
            }
        }
        let geometry = MatMulGeometry::dense(1, 2, 2, 2, false, false, true, true);
        assert!(matmul_i32(Isa::portable(), &geometry, &[1; 4], &[1; 3], &mut [0; 4]).is_err());
    }
}
