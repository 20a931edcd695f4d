//! Products whose left operand lies turned and whose right operand has few columns: computed as the product of both turned, whose
//! right operand is read where it lies, and turned back block by block.

use super::{Block, Lefts, MatMulGeometry, Unpacked, from};
use crate::epilogue::Epilogue;
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::tile::{SIDE, transpose};
use std::mem::MaybeUninit;

/// The most columns of the right operand. With more, packing the left one takes little of the time.
const MOST_COLUMNS: usize = 128;

/// The fewest rows of the left operand, for each column of the right one and at all.
const FEWEST_ROWS: usize = 32;
const ROWS_PER_COLUMN: usize = 2;

/// Values that are turned back at once: those of the right operand's columns for some rows of the left one, at most so many and whole
/// panels of them.
const TOGETHER: usize = 4096;
const MOST_TOGETHER: usize = 256;
const MULTIPLE: usize = 32;

/// Whether a product is computed so. Its scratch has room for the packed right operand.
pub(super) fn suits(geometry: &MatMulGeometry) -> bool {
    let MatMulGeometry { m, n, k, a_row, a_column, .. } = *geometry;
    let has_few_columns = (2..=MOST_COLUMNS).contains(&n) && k >= n;
    a_row == 1 && a_column >= m && has_few_columns && m >= FEWEST_ROWS.max(ROWS_PER_COLUMN * n)
}

/// The products of a batch. The arguments were checked, nothing is empty, and the scratch has what the left operand would need.
pub(super) fn run(
    isa: Isa,
    geometry: &MatMulGeometry,
    batches: usize,
    a: &[f32],
    b: &[f32],
    c: &mut [f32],
    scratch: &mut [f32],
    nanoseconds: u64,
) {
    let MatMulGeometry { m, n, k, .. } = *geometry;
    let turned = geometry.turned();
    let lefts = Lefts::prepare(isa, &turned, batches, b, scratch, nanoseconds);
    let shared = SharedMut::new(c);
    let height = MOST_TOGETHER.min(TOGETHER / n / MULTIPLE * MULTIPLE);
    let pieces = m.div_ceil(height);
    parallel_for(batches * pieces, 1, nanoseconds, |range| {
        let mut block = MaybeUninit::<[f32; TOGETHER]>::uninit();
        let block = block.as_mut_ptr().cast::<f32>();
        for task in range {
            let (batch, first) = (task / pieces, task % pieces * height);
            let count = height.min(m - first);
            let right = Unpacked {
                values: from(a, turned.offset(&turned.b_batch, batch) + first),
                columns: count,
                row_stride: turned.b_row,
                column_stride: turned.b_column,
            };
            let product = Block {
                isa,
                k,
                left: lefts.of(batch),
                right: &right,
                c: block,
                c_row: height,
                accumulate: false,
                epilogue: &Epilogue::default(),
            };
            let offset = geometry.offset(&geometry.c_batch, batch) + first * geometry.c_row;
            // SAFETY: lengths were checked, the block has room for the result, and each task has rows of C of its own.
            unsafe {
                product.run(0..n, 0..count);
                turn(isa, block, [n, count], [height, geometry.c_row], shared.pointer().add(offset));
            }
        }
    });
}

/// Writes `to[column * steps[1] + row] = from[row * steps[0] + column]`.
///
/// # Safety
/// The rows and columns lie at both places, which do not overlap.
pub(super) unsafe fn turn(isa: Isa, from: *const f32, [rows, columns]: [usize; 2], steps: [usize; 2], to: *mut f32) {
    for row in (0..rows).step_by(SIDE) {
        for column in (0..columns).step_by(SIDE) {
            // SAFETY: the caller's promise.
            unsafe {
                let (from, to) = (from.add(row * steps[0] + column), to.add(column * steps[1] + row));
                let (high, wide) = (SIDE.min(rows - row), SIDE.min(columns - column));
                if high == SIDE && wide == SIDE {
                    transpose(isa, from, steps[0], to, steps[1]);
                    continue;
                }
                for column in 0..wide {
                    for row in 0..high {
                        to.add(column * steps[1] + row).write(from.add(row * steps[0] + column).read());
                    }
                }
            }
        }
    }
}
