//! Pooling in the blocked layout: a vector is sixteen channels of one position.

use super::BLOCK;
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::pooling::{PoolingGeometry, for_each_line};
use crate::simd::{Kernel, Simd, dispatch};
use std::ops::Range;

/// What a pooling computes of its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolingKind {
    /// The greatest value inside the input, NaN if any is; minus infinity of a window in the padding.
    Max,
    /// The mean of the values inside the input; NaN of a window in the padding.
    Average,
    /// The sum over the number of positions inside the padded input.
    AverageWithPadding,
}

/// Pools blocked tensors of so many channels an image; the planes of the geometry are those of all images.
///
/// # Errors
/// A slice has the wrong length, the channels do not divide the planes, a kernel, stride or dilation is zero, or sizes
/// overflow.
pub fn blocked_pooling(
    isa: Isa,
    kind: PoolingKind,
    channels: usize,
    geometry: &PoolingGeometry,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let work = (output.len() as u64).saturating_mul(geometry.taps()) / 16;
    for_each_line([volumes(channels, geometry)?, BLOCK], geometry, input, output, work, |input, at, output| {
        dispatch(isa, Pool { kind, geometry, at, input, output });
    })
}

/// The planes of blocks that images of so many channels have.
pub(crate) fn volumes(channels: usize, geometry: &PoolingGeometry) -> Result<usize, KernelError> {
    let batch = geometry.planes.checked_div(channels).unwrap_or(0);
    check_exact("channels", batch * channels, geometry.planes)?;
    Ok(batch * channels.div_ceil(BLOCK))
}

/// One line of the output.
struct Pool<'a> {
    kind: PoolingKind,
    geometry: &'a PoolingGeometry,
    /// The plane and the line in it.
    at: [usize; 2],
    input: &'a [f32],
    output: &'a mut [f32],
}

/// Neighbouring positions that are computed together, and those on planes that are too narrow for them.
const TILE: usize = 8;
const NARROW_TILE: usize = 4;

impl Kernel for Pool<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        // What the compiler knows of the steps between positions, it need not compute for each.
        match (self.kind == PoolingKind::Max, self.geometry.stride[2]) {
            (true, 1) => self.line::<S, true, 1>(s),
            (true, 2) => self.line::<S, true, 2>(s),
            (true, _) => self.line::<S, true, 0>(s),
            (false, 1) => self.line::<S, false, 1>(s),
            (false, _) => self.line::<S, false, 0>(s),
        }
    }
}

impl Pool<'_> {
    #[inline(always)]
    fn line<S: Simd, const MAX: bool, const STRIDE: usize>(&mut self, s: S) {
        let (wide, inside) = (self.geometry.output[2], self.geometry.inside(2));
        let [planes, rows] = [0, 1].map(|axis| self.geometry.window(axis, self.at[axis]));
        for x in (0..inside.start).chain(inside.end..wide) {
            let columns = self.geometry.window(2, x);
            self.tile::<S, MAX, STRIDE, 1>(s, x, [planes, rows, columns]);
        }
        let kernel = self.geometry.kernel[2];
        let windows = [planes, rows, (0, kernel, kernel)];
        if inside.len() >= TILE {
            self.tiles::<S, MAX, STRIDE, TILE>(s, inside, windows);
        } else if inside.len() >= NARROW_TILE {
            self.tiles::<S, MAX, STRIDE, NARROW_TILE>(s, inside, windows);
        } else {
            self.tiles::<S, MAX, STRIDE, 1>(s, inside, windows);
        }
    }

    /// Positions whose windows lie inside the input, at least as many as a tile has.
    #[inline(always)]
    fn tiles<S: Simd, const MAX: bool, const STRIDE: usize, const POSITIONS: usize>(
        &mut self,
        s: S,
        inside: Range<usize>,
        windows: [(usize, usize, usize); 3],
    ) {
        let mut x = inside.start;
        while x + POSITIONS <= inside.end {
            self.tile::<S, MAX, STRIDE, POSITIONS>(s, x, windows);
            x += POSITIONS;
        }
        if x < inside.end {
            // The last tile computes some positions a second time.
            self.tile::<S, MAX, STRIDE, POSITIONS>(s, inside.end - POSITIONS, windows);
        }
    }

    /// Neighbouring positions from one on whose windows lie inside the input, or one position. Given are the windows of the
    /// first. `STRIDE` is the step between windows where it is known, else 0.
    #[inline(always)]
    fn tile<S: Simd, const MAX: bool, const STRIDE: usize, const POSITIONS: usize>(
        &mut self,
        s: S,
        x: usize,
        [planes, rows, columns]: [(usize, usize, usize); 3],
    ) {
        let geometry = self.geometry;
        let divisor = match self.kind {
            PoolingKind::AverageWithPadding => planes.2 * rows.2 * columns.2,
            _ => (planes.1 - planes.0) * (rows.1 - rows.0) * (columns.1 - columns.0),
        };
        let step = BLOCK * if STRIDE == 0 { geometry.stride[2] } else { STRIDE };
        // A window in the padding has no place in the input.
        let rows = if columns.0 < columns.1 { rows.0..rows.1 } else { 0..0 };
        for part in (0..BLOCK).step_by(S::LANES) {
            let mut sums = [s.splat(if MAX { f32::NEG_INFINITY } else { 0.0 }); POSITIONS];
            for kz in planes.0..planes.1 {
                let z = geometry.place(0, self.at[0], kz);
                for ky in rows.clone() {
                    let line = z * geometry.input[1] + geometry.place(1, self.at[1], ky);
                    let first = line * geometry.input[2] + geometry.place(2, x, columns.0);
                    let first = self.input.as_ptr().wrapping_add(first * BLOCK + part);
                    for tap in 0..columns.1 - columns.0 {
                        let from = first.wrapping_add(tap * geometry.dilation[2] * BLOCK);
                        for (position, sum) in sums.iter_mut().enumerate() {
                            // SAFETY: `window` keeps the taps of the first position inside the input, and if there are more,
                            // all of them lie inside.
                            let value = unsafe { s.load(from.wrapping_add(position * step)) };
                            *sum = match MAX {
                                true => s.select(s.is_nan(value), value, s.max(value, *sum)),
                                false => s.add(*sum, value),
                            };
                        }
                    }
                }
            }
            let output = self.output[x * BLOCK..][..POSITIONS * BLOCK].as_mut_ptr();
            for (position, mut sum) in sums.into_iter().enumerate() {
                if !MAX {
                    sum = s.div(sum, s.splat(divisor as f32));
                }
                // SAFETY: the slice has these positions.
                unsafe { s.store(output.add(position * BLOCK + part), sum) };
            }
        }
    }
}

/// For a window that begins at `start` of a padded axis: its first tap inside the input, the one past the last, and the
/// number of taps inside the padded axis.
#[inline(always)]
pub(crate) fn window(
    start: usize,
    kernel: usize,
    dilation: usize,
    pad_begin: usize,
    input: usize,
    pad_end: usize,
) -> (usize, usize, usize) {
    let until = |limit: usize| {
        let distance = limit.saturating_sub(start);
        // A division takes longer than all the rest.
        if dilation == 1 { distance.min(kernel) } else { distance.div_ceil(dilation).min(kernel) }
    };
    let first = until(pad_begin);
    let end = until(pad_begin + input).max(first);
    (first, end, until(pad_begin + input + pad_end))
}
