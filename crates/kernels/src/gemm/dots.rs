//! Products of few columns: sums of neighbouring products along the shared axis, which leave no vector mostly empty and need no
//! packed left operand. A right operand whose rows are contiguous is turned for it, which takes little of the time.

use super::turned::turn;
use super::{MatMulGeometry, from};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};

/// The most columns, and the shortest shared axis.
const COLUMNS: usize = 12;
const SHORTEST: usize = 48;

/// The most rows of a shared axis that is shorter than another; blocks take more rows as fast.
const ROWS: usize = 128;
const LONG: usize = 160;

/// The fewest rows for which a right operand is turned, and the most of them with more columns than so many, but for a long shared
/// axis.
const FEWEST_ROWS: usize = 8;
const FEW_ROWS: usize = 32;
const FEW_COLUMNS: usize = 8;

/// Whether a product is computed so.
pub(super) fn suits(geometry: &MatMulGeometry) -> bool {
    let MatMulGeometry { m, n, k, a_column, b_row, b_column, .. } = *geometry;
    let repays_turning = m >= FEWEST_ROWS && (n <= FEW_COLUMNS || m <= FEW_ROWS || k >= LONG);
    let is_readable = b_row == 1 && b_column > 1 || b_column == 1 && repays_turning;
    let fits = (2..=COLUMNS).contains(&n) && k >= SHORTEST && (m <= ROWS || k >= LONG);
    a_column == 1 && is_readable && fits
}

/// The sizes of the batch of different right operands.
fn different(geometry: &MatMulGeometry) -> [usize; 4] {
    [0, 1, 2, 3].map(|axis| if geometry.b_batch[axis] == 0 { 1 } else { geometry.batch[axis] })
}

/// Elements of scratch that [`turn_right`] needs.
pub(super) fn scratch_len(geometry: &MatMulGeometry) -> usize {
    let sizes = different(geometry);
    let operands = sizes.iter().fold(1usize, |total, &size| total.saturating_mul(size));
    if geometry.b_column == 1 { operands.saturating_mul(geometry.k).saturating_mul(geometry.n) } else { 0 }
}

/// The product whose right operands are contiguous along the shared axis, and these: in the scratch if they have to be turned.
pub(super) fn turn_right<'a>(
    isa: Isa,
    geometry: &MatMulGeometry,
    b: &'a [f32],
    scratch: &'a mut [f32],
) -> (MatMulGeometry, &'a [f32]) {
    let MatMulGeometry { n, k, b_row, b_column, .. } = *geometry;
    if b_column != 1 {
        return (*geometry, b);
    }
    let each = k * n;
    let mut turned = MatMulGeometry { batch: different(geometry), b_row: 1, b_column: k, ..*geometry };
    let mut stride = each;
    for axis in (0..4).rev() {
        turned.b_batch[axis] = if geometry.b_batch[axis] == 0 { 0 } else { stride };
        stride *= turned.batch[axis];
    }
    let scratch = &mut scratch[..scratch_len(geometry)];
    let work = nanoseconds_for_bytes(scratch.len() * 8);
    let shared = SharedMut::new(scratch);
    parallel_for(shared.len() / each, 1, work, |range| {
        for index in range {
            let operand = from(b, turned.offset(&geometry.b_batch, index));
            // SAFETY: each operand has a part of the scratch of its own, and lies in B, whose length was checked.
            unsafe { turn(isa, operand.as_ptr(), [k, n], [b_row, k], shared.pointer().add(index * each)) };
        }
    });
    turned.batch = geometry.batch;
    (turned, scratch)
}
