//! Pooling in the blocked layout: a vector is sixteen channels of one position.

use super::BLOCK;
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::pooling::{PoolingGeometry, for_each_line};
use crate::simd::{Kernel, Simd, dispatch};
use std::mem::MaybeUninit;
use std::ops::Range;

/// What a pooling computes of its window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolingKind {
    /// The greatest value inside the input, NaN if any is; the lowest finite number of a window without a value.
    Max,
    /// The mean of the values inside the input; 0 of a window without a value.
    Average,
    /// The sum over the number of positions inside the padded input; 0 of a window without a value.
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

/// Windows of more taps have their rows joined before their columns.
pub const MOST_DIRECT_TAPS: u64 = 9;

/// The columns of the input whose rows are joined at once.
const JOINED: usize = 64;

/// The taps of a window along an axis, and how far apart their values lie.
type Taps = (usize, usize);

/// Where windows read: the rows of each column from the column `origin` on.
#[derive(Clone, Copy)]
struct Source {
    from: *const f32,
    origin: usize,
    rows: [Taps; 2],
}

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
        let geometry = self.geometry;
        let windows = [0, 1].map(|axis| geometry.window(axis, self.at[axis]));
        let line = geometry.input[2] * BLOCK;
        let mut source = Source { from: self.input.as_ptr(), origin: 0, rows: [(0, 0); 2] };
        // A window in the padding has no place in the input.
        if windows.iter().all(|(first, end, _)| first < end) {
            let [z, y] = [0, 1].map(|axis| geometry.place(axis, self.at[axis], windows[axis].0));
            source.from = source.from.wrapping_add((z * geometry.input[1] + y) * line);
            let apart = [geometry.input[1] * line, line];
            let apart = [0, 1].map(|axis| geometry.dilation[axis].saturating_mul(apart[axis]));
            source.rows = [0, 1].map(|axis| (windows[axis].1 - windows[axis].0, apart[axis]));
        }
        let reach = (geometry.kernel[2] - 1).saturating_mul(geometry.dilation[2]);
        let stride = if STRIDE == 0 { geometry.stride[2] } else { STRIDE };
        if geometry.taps() <= MOST_DIRECT_TAPS || reach.saturating_add(stride) >= JOINED / 2 {
            self.positions::<S, MAX, STRIDE>(s, 0..geometry.output[2], windows, source);
            return;
        }
        let mut joined = MaybeUninit::<[[f32; BLOCK]; JOINED]>::uninit();
        let joined = joined.as_mut_ptr().cast::<f32>();
        let together = (JOINED - reach - 1) / stride + 1;
        for first in (0..geometry.output[2]).step_by(together) {
            let end = geometry.output[2].min(first + together);
            let (_, columns) = geometry.columns(first * stride, (end - first - 1) * stride + reach + 1);
            // SAFETY: there is room for so many columns, which lie in the input.
            unsafe { join_rows::<S, MAX>(s, source, columns.clone(), joined) };
            let source = Source { from: joined, origin: columns.start, rows: [(1, 0); 2] };
            self.positions::<S, MAX, STRIDE>(s, first..end, windows, source);
        }
    }

    /// Some positions of the line, whose windows have these planes and rows.
    #[inline(always)]
    fn positions<S: Simd, const MAX: bool, const STRIDE: usize>(
        &mut self,
        s: S,
        positions: Range<usize>,
        windows: [(usize, usize, usize); 2],
        source: Source,
    ) {
        let inside = self.geometry.inside(2);
        let start = inside.start.clamp(positions.start, positions.end);
        let inside = start..inside.end.clamp(start, positions.end);
        let [planes, rows] = windows;
        for x in (positions.start..inside.start).chain(inside.end..positions.end) {
            let columns = self.geometry.window(2, x);
            self.tile::<S, MAX, STRIDE, 1>(s, x, [planes, rows, columns], source);
        }
        let kernel = self.geometry.kernel[2];
        let windows = [planes, rows, (0, kernel, kernel)];
        if inside.len() >= TILE {
            self.tiles::<S, MAX, STRIDE, TILE>(s, inside, windows, source);
        } else if inside.len() >= NARROW_TILE {
            self.tiles::<S, MAX, STRIDE, NARROW_TILE>(s, inside, windows, source);
        } else {
            self.tiles::<S, MAX, STRIDE, 1>(s, inside, windows, source);
        }
    }

    /// Positions whose windows lie inside the input, at least as many as a tile has.
    #[inline(always)]
    fn tiles<S: Simd, const MAX: bool, const STRIDE: usize, const POSITIONS: usize>(
        &mut self,
        s: S,
        inside: Range<usize>,
        windows: [(usize, usize, usize); 3],
        source: Source,
    ) {
        let mut x = inside.start;
        while x + POSITIONS <= inside.end {
            self.tile::<S, MAX, STRIDE, POSITIONS>(s, x, windows, source);
            x += POSITIONS;
        }
        if x < inside.end {
            // The last tile computes some positions a second time.
            self.tile::<S, MAX, STRIDE, POSITIONS>(s, inside.end - POSITIONS, windows, source);
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
        source: Source,
    ) {
        let geometry = self.geometry;
        let values = (planes.1 - planes.0) * (rows.1 - rows.0) * (columns.1 - columns.0);
        let divisor = match self.kind {
            PoolingKind::AverageWithPadding => planes.2 * rows.2 * columns.2,
            _ => values,
        };
        // The sum of no values is their mean too.
        let divisor = s.splat(divisor.max(1) as f32);
        let step = BLOCK * if STRIDE == 0 { geometry.stride[2] } else { STRIDE };
        let mut first = source.from;
        if columns.0 < columns.1 {
            first = first.wrapping_add((geometry.place(2, x, columns.0) - source.origin) * BLOCK);
        }
        let taps =
            [source.rows[0], source.rows[1], (columns.1 - columns.0, geometry.dilation[2].saturating_mul(BLOCK))];
        let output = self.output[x * BLOCK..][..POSITIONS * BLOCK].as_mut_ptr();
        for part in (0..BLOCK).step_by(S::LANES) {
            // SAFETY: `window` keeps the taps of the first position inside the input, and if there are more, all of them lie
            // inside; the source has what they read.
            let joined = unsafe { join::<S, MAX, POSITIONS>(s, first.wrapping_add(part), step, taps) };
            for (position, mut value) in joined.into_iter().enumerate() {
                value = match MAX {
                    true if values == 0 => s.splat(f32::MIN),
                    true => value,
                    false => s.div(value, divisor),
                };
                // SAFETY: the slice has these positions.
                unsafe { s.store(output.add(position * BLOCK + part), value) };
            }
        }
    }
}

/// The rows of each of some columns as one, which come to lie side by side from `to` on.
///
/// # Safety
/// The columns lie in the source, and there is room for them.
#[inline(always)]
unsafe fn join_rows<S: Simd, const MAX: bool>(s: S, source: Source, columns: Range<usize>, to: *mut f32) {
    let taps = [source.rows[0], source.rows[1], (1, 0)];
    let mut x = columns.start;
    while x < columns.end {
        // The last columns are joined a second time where they are no whole number of these.
        let at = if columns.len() >= TILE { x.min(columns.end - TILE) } else { x };
        let (from, to) = (source.from.wrapping_add(at * BLOCK), to.wrapping_add((at - columns.start) * BLOCK));
        for part in (0..BLOCK).step_by(S::LANES) {
            let (from, to) = (from.wrapping_add(part), to.wrapping_add(part));
            // SAFETY: the caller's promise.
            unsafe {
                if columns.len() >= TILE {
                    for (column, value) in join::<S, MAX, TILE>(s, from, BLOCK, taps).into_iter().enumerate() {
                        s.store(to.add(column * BLOCK), value);
                    }
                } else {
                    s.store(to, join::<S, MAX, 1>(s, from, BLOCK, taps)[0]);
                }
            }
        }
        x += if columns.len() >= TILE { TILE } else { 1 };
    }
}

/// The greatest values, or the sums, of windows that begin so far behind one another, of part of a block.
///
/// # Safety
/// Their values are readable.
#[inline(always)]
unsafe fn join<S: Simd, const MAX: bool, const POSITIONS: usize>(
    s: S,
    first: *const f32,
    step: usize,
    [planes, rows, columns]: [Taps; 3],
) -> [S::F; POSITIONS] {
    let mut joined = [s.splat(if MAX { f32::NEG_INFINITY } else { 0.0 }); POSITIONS];
    for z in 0..planes.0 {
        for y in 0..rows.0 {
            let line = first.wrapping_add(z * planes.1 + y * rows.1);
            for x in 0..columns.0 {
                let from = line.wrapping_add(x * columns.1);
                for (position, joined) in joined.iter_mut().enumerate() {
                    // SAFETY: the caller's promise.
                    let value = unsafe { s.load(from.wrapping_add(position * step)) };
                    *joined = match MAX {
                        true => s.select(s.is_nan(value), value, s.max(value, *joined)),
                        false => s.add(*joined, value),
                    };
                }
            }
        }
    }
    joined
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
