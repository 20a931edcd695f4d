//! Pooling of f32, and of codes, over plain `[N, C, D, H, W]` data. For blocked data see [`crate::blocked`].

pub use crate::blocked::PoolingKind;
use crate::blocked::window;
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::reduce::{ReduceOp, reduce};
use crate::simd::{APART, Kernel, MOST_LANES, Simd, dispatch};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Output elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 12;

/// Of windows with more positions, a chunk covers fewer output elements.
const CHUNK_TAPS: u64 = 16;

/// A pooling over up to three spatial axes `[depth, height, width]`; leading axes that the data lack have size 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolingGeometry {
    /// Planes: images times channels.
    pub planes: usize,
    /// The size of the input.
    pub input: [usize; 3],
    /// The size of the output, whichever way it was rounded.
    pub output: [usize; 3],
    /// The window.
    pub kernel: [usize; 3],
    /// Steps between windows.
    pub stride: [usize; 3],
    /// Steps inside a window.
    pub dilation: [usize; 3],
    /// Padding before each axis.
    pub pad_begin: [usize; 3],
    /// Padding after each axis.
    pub pad_end: [usize; 3],
}

impl PoolingGeometry {
    /// One window over each of so many planes of a size.
    #[must_use]
    pub fn of_planes(planes: usize, size: [usize; 3]) -> Self {
        Self {
            planes,
            input: size,
            output: [1; 3],
            kernel: size,
            stride: [1; 3],
            dilation: [1; 3],
            pad_begin: [0; 3],
            pad_end: [0; 3],
        }
    }

    /// The positions of a plane of the input and of the output.
    ///
    /// # Errors
    /// A kernel, stride or dilation is zero, or sizes overflow.
    pub(crate) fn positions(&self) -> Result<[usize; 2], KernelError> {
        let Self { kernel, stride, dilation, pad_begin, pad_end, .. } = *self;
        for axis in 0..3 {
            if kernel[axis] == 0 || stride[axis] == 0 || dilation[axis] == 0 {
                return Err(KernelError::invalid("kernel", "kernel, stride or dilation is zero"));
            }
            let sizes = [kernel, stride, dilation, pad_begin, pad_end, self.input, self.output];
            if sizes.iter().any(|sizes| sizes[axis] >= 1 << 30) {
                return Err(KernelError::invalid("kernel", "sizes overflow"));
            }
        }
        Ok([product("input", &self.input)?, product("output", &self.output)?])
    }

    /// The taps of an output position along an axis that lie inside the input, from the first to the one past the last, and the
    /// number that lie inside the padded input.
    #[inline(always)]
    pub(crate) fn window(&self, axis: usize, output: usize) -> (usize, usize, usize) {
        window(
            output * self.stride[axis],
            self.kernel[axis],
            self.dilation[axis],
            self.pad_begin[axis],
            self.input[axis],
            self.pad_end[axis],
        )
    }

    /// The output positions along an axis whose windows lie inside the input.
    pub(crate) fn inside(&self, axis: usize) -> Range<usize> {
        let (stride, pad) = (self.stride[axis], self.pad_begin[axis]);
        let reach = (self.kernel[axis] - 1).saturating_mul(self.dilation[axis]);
        let first = pad.div_ceil(stride).min(self.output[axis]);
        let end = (self.input[axis] + pad).checked_sub(reach).map_or(0, |starts| starts.div_ceil(stride));
        first..end.clamp(first, self.output[axis])
    }

    /// Whether every window has a value: none lies in the padding or behind it.
    #[must_use]
    pub fn has_values(&self) -> bool {
        (0..3).all(|axis| {
            let inside = self.inside(axis);
            let mut others = (0..inside.start).chain(inside.end..self.output[axis]);
            others.all(|at| {
                let (first, end, _) = self.window(axis, at);
                first < end
            })
        })
    }

    /// Where a tap of an output position lies along an axis, if it lies inside the input.
    #[inline(always)]
    pub(crate) fn place(&self, axis: usize, output: usize, tap: usize) -> usize {
        output * self.stride[axis] + tap * self.dilation[axis] - self.pad_begin[axis]
    }

    /// Of so many columns of the padded input from one on: how many lie before the input, and where the others begin in it and
    /// end, if there are any.
    #[inline(always)]
    pub(crate) fn columns(&self, first: usize, count: usize) -> (usize, Range<usize>) {
        let pad = self.pad_begin[2];
        let before = pad.saturating_sub(first).min(count);
        let inside = (first + before).saturating_sub(pad);
        (before, inside..self.input[2].min(inside + count - before).max(inside))
    }

    /// The columns of the output whose windows together reach over at most [`WIDE`] values; 0 where one may reach farther.
    fn tile(&self) -> usize {
        let (reach, stride) = ((self.kernel[2] - 1).saturating_mul(self.dilation[2]), self.stride[2]);
        if reach >= WIDE / 2 || stride >= WIDE / 2 { 0 } else { (WIDE - reach - 1) / stride + 1 }
    }

    /// The elements of a window.
    #[must_use]
    pub fn taps(&self) -> u64 {
        self.kernel.iter().fold(1u64, |total, &size| total.saturating_mul(size as u64))
    }

    /// The estimated time on one thread for plain values of f32, in nanoseconds: of the taps, and of beginning each line.
    #[must_use]
    pub fn nanoseconds(&self) -> u64 {
        let lines = [self.planes, self.output[0], self.output[1]]
            .iter()
            .fold(1u64, |total, &size| total.saturating_mul(size as u64));
        let taps = (self.output[2] as u64).saturating_mul(self.taps());
        lines.saturating_mul(taps / 4 + 40)
    }
}

/// Pools every plane.
///
/// # Errors
/// A slice has the wrong length, a kernel, stride or dilation is zero, or sizes overflow.
pub fn pooling(
    isa: Isa,
    kind: PoolingKind,
    geometry: &PoolingGeometry,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    geometry.positions()?;
    // Found once, since these take divisions.
    let (inside, tile) = (geometry.inside(2), geometry.tile());
    let is_small = geometry.stride[2] <= 2 && geometry.taps() <= FEW_TAPS;
    // The sum of no values is their mean too; the greatest of none is given afterwards.
    let has_values = kind != PoolingKind::Max || geometry.has_values();
    for_each_chunk([geometry.planes, 1], geometry, input, output, geometry.nanoseconds(), |first, output| {
        dispatch(isa, Lines { kind, geometry, inside: &inside, tile, is_small, has_values, first, input, output });
    })
}

/// Has each line of an output of so many planes, with so many lanes side by side, written: `write` gets the plane of the
/// input, the depth and the height of the line, and the line.
///
/// # Errors
/// A slice has the wrong length, a kernel, stride or dilation is zero, or sizes overflow.
pub(crate) fn for_each_line<T: Sync, U: Send>(
    [planes, lanes]: [usize; 2],
    geometry: &PoolingGeometry,
    input: &[T],
    output: &mut [U],
    work: u64,
    write: impl Fn(&[T], [usize; 2], &mut [U]) + Sync,
) -> Result<(), KernelError> {
    let line = geometry.output[2] * lanes;
    let plane = product("input", &geometry.input)?;
    for_each_chunk([planes, lanes], geometry, input, output, work, |first, output| {
        let mut place = Place::of(geometry, first);
        for output in output.chunks_exact_mut(line) {
            write(&input[place.plane * plane * lanes..][..plane * lanes], [place.z, place.y], output);
            place.go_on(geometry);
        }
    })
}

/// As [`for_each_line`], for some lines at a time: `write` gets the number of the first line, and all of them.
///
/// # Errors
/// As of [`for_each_line`].
fn for_each_chunk<T: Sync, U: Send>(
    [planes, lanes]: [usize; 2],
    geometry: &PoolingGeometry,
    input: &[T],
    output: &mut [U],
    work: u64,
    write: impl Fn(usize, &mut [U]) + Sync,
) -> Result<(), KernelError> {
    let [plane, positions] = geometry.positions()?;
    check_exact("input", input.len(), product("input", &[planes, plane, lanes])?)?;
    check_exact("output", output.len(), product("output", &[planes, positions, lanes])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let shared = SharedMut::new(output);
    let (lines, line) = (geometry.output[0] * geometry.output[1], geometry.output[2] * lanes);
    let of_line = geometry.taps().max(CHUNK_TAPS).saturating_mul(line as u64);
    let grain = (CHUNK as u64 * CHUNK_TAPS).div_ceil(of_line) as usize;
    parallel_for(planes * lines, grain, work, |range| {
        // SAFETY: lines are disjoint and within the output.
        write(range.start, unsafe { shared.slice(range.start * line..range.end * line) });
    });
    Ok(())
}

/// Where a line of the output is. It is counted on, since short lines take no longer than divisions do.
struct Place {
    plane: usize,
    z: usize,
    y: usize,
}

impl Place {
    #[inline(always)]
    fn of(geometry: &PoolingGeometry, line: usize) -> Self {
        let [deep, high, _] = geometry.output;
        Self { plane: line / (deep * high), z: line / high % deep, y: line % high }
    }

    /// To the next line.
    #[inline(always)]
    fn go_on(&mut self, geometry: &PoolingGeometry) {
        self.y += 1;
        if self.y == geometry.output[1] {
            (self.y, self.z) = (0, self.z + 1);
        }
        if self.z == geometry.output[0] {
            (self.z, self.plane) = (0, self.plane + 1);
        }
    }
}

/// Codes of a row of the input that are looked at together.
const SPAN: usize = 512;

/// The greatest code of each window of every plane; 0 where a window has none.
///
/// # Errors
/// As for [`pooling`].
pub fn max_codes(isa: Isa, geometry: &PoolingGeometry, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
    geometry.positions()?;
    let reach = (geometry.kernel[2] - 1).saturating_mul(geometry.dilation[2]);
    if reach >= SPAN / 2 || geometry.stride[2] >= SPAN / 2 {
        return max_lanes::<1>(geometry.planes, geometry, input, output);
    }
    let work = (output.len() as u64).saturating_mul(geometry.taps()) / 16;
    for_each_line([geometry.planes, 1], geometry, input, output, work, |input, [z, y], output| {
        dispatch(isa, Codes { geometry, z, y, input, output });
    })
}

/// A line of the greatest codes: those of the rows of its windows first, then those of their columns.
struct Codes<'a> {
    geometry: &'a PoolingGeometry,
    z: usize,
    y: usize,
    input: &'a [u8],
    output: &'a mut [u8],
}

impl Kernel for Codes<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Codes { geometry: g, z, y, input, output } = self;
        let (depths, rows) = (g.window(0, z), g.window(1, y));
        let (stride, reach) = (g.stride[2], (g.kernel[2] - 1) * g.dilation[2]);
        let tile = (SPAN - reach - 1) / stride + 1;
        // Twice as long as what windows reach, so that taps of whole tiles lie inside of it.
        let mut greatest = [0u8; 2 * SPAN];
        for (number, output) in output.chunks_mut(tile).enumerate() {
            let first = number * tile * stride;
            let span = (output.len() - 1) * stride + reach + 1;
            // The padding counts as 0, than which no code is less.
            let (from, inside) = g.columns(first, span);
            greatest[..span].fill(0);
            for kz in depths.0..depths.1 {
                for ky in rows.0..rows.1 {
                    let row = (g.place(0, z, kz) * g.input[1] + g.place(1, y, ky)) * g.input[2];
                    let row = &input[row..][..g.input[2]];
                    let Some(row) = row.get(inside.clone()) else { continue };
                    for (greatest, code) in greatest[from..].iter_mut().zip(row) {
                        *greatest = (*greatest).max(*code);
                    }
                }
            }
            output.fill(0);
            for kx in 0..g.kernel[2] {
                let taps = &greatest[kx * g.dilation[2]..];
                match stride {
                    1 => raise_each::<1>(output, taps),
                    2 => raise_each::<2>(output, taps),
                    _ => {
                        for (target, code) in output.iter_mut().zip(taps.iter().step_by(stride)) {
                            *target = (*target).max(*code);
                        }
                    }
                }
            }
        }
    }
}

/// Keeps the greater of each place and of the code that lies `STRIDE` places behind the one before.
#[inline(always)]
fn raise_each<const STRIDE: usize>(greatest: &mut [u8], codes: &[u8]) {
    for (greatest, codes) in greatest.iter_mut().zip(codes.as_chunks::<STRIDE>().0) {
        *greatest = (*greatest).max(codes[0]);
    }
}

/// The greatest codes of each window, lane by lane.
///
/// # Errors
/// As for [`pooling`].
pub(crate) fn max_lanes<const LANES: usize>(
    planes: usize,
    geometry: &PoolingGeometry,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    let work = (output.len() as u64).saturating_mul(geometry.taps()) / (4 * LANES as u64);
    for_each_line([planes, LANES], geometry, input, output, work, |input, [z, y], output| {
        let (depths, rows, inside) = (geometry.window(0, z), geometry.window(1, y), geometry.inside(2));
        output.fill(0);
        for (kz, ky) in (depths.0..depths.1).flat_map(|kz| (rows.0..rows.1).map(move |ky| (kz, ky))) {
            let row = (geometry.place(0, z, kz) * geometry.input[1] + geometry.place(1, y, ky)) * geometry.input[2];
            let row = &input.as_chunks::<LANES>().0[row..][..geometry.input[2]];
            let output = output.as_chunks_mut::<LANES>().0;
            for x in (0..inside.start).chain(inside.end..output.len()) {
                let columns = geometry.window(2, x);
                for kx in columns.0..columns.1 {
                    raise(&mut output[x], &row[geometry.place(2, x, kx)]);
                }
            }
            for x in inside.clone() {
                let (mut lanes, taps) = (output[x], &row[geometry.place(2, x, 0)..]);
                for codes in taps.iter().step_by(geometry.dilation[2]).take(geometry.kernel[2]) {
                    raise(&mut lanes, codes);
                }
                output[x] = lanes;
            }
        }
    })
}

/// Keeps the greater code in each lane.
#[inline(always)]
fn raise<const LANES: usize>(greatest: &mut [u8; LANES], codes: &[u8; LANES]) {
    for lane in 0..LANES {
        greatest[lane] = greatest[lane].max(codes[lane]);
    }
}

/// The mean (or the greatest value) of each of `planes` planes of `positions` elements.
///
/// # Errors
/// A slice has the wrong length.
pub fn global_pooling(
    isa: Isa,
    kind: PoolingKind,
    planes: usize,
    positions: usize,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let op = if kind == PoolingKind::Max { ReduceOp::Max } else { ReduceOp::Mean };
    reduce(isa, op, [planes, positions, 1], input, output)
}

/// Values of a row of the input that are looked at together.
const WIDE: usize = 1 << 10;

/// The most taps of windows whose rows are not joined first.
const FEW_TAPS: u64 = 4;

/// Values behind these that the last vectors read.
const SLACK: usize = 4 * MOST_LANES;

/// Lines of the output that follow each other.
struct Lines<'a> {
    kind: PoolingKind,
    geometry: &'a PoolingGeometry,
    /// The columns whose windows lie inside of the width.
    inside: &'a Range<usize>,
    /// See [`PoolingGeometry::tile`].
    tile: usize,
    /// Whether windows have few taps and strides of up to two.
    is_small: bool,
    /// Whether every window whose greatest value is asked for has one.
    has_values: bool,
    /// The number of the first line.
    first: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let stride = self.geometry.stride[2];
        match (self.is_small, self.kind == PoolingKind::Max, stride) {
            (true, true, 1) => self.each::<S, true, true, 1>(s),
            (true, true, _) => self.each::<S, true, true, 2>(s),
            (true, false, 1) => self.each::<S, true, false, 1>(s),
            (true, false, _) => self.each::<S, true, false, 2>(s),
            (false, true, 1) => self.each::<S, false, true, 1>(s),
            (false, true, 2) => self.each::<S, false, true, 2>(s),
            (false, true, _) => self.each::<S, false, true, 0>(s),
            (false, false, 1) => self.each::<S, false, false, 1>(s),
            (false, false, 2) => self.each::<S, false, false, 2>(s),
            (false, false, _) => self.each::<S, false, false, 0>(s),
        }
    }
}

impl Lines<'_> {
    /// Writes all lines, of `SMALL` windows directly.
    #[inline(always)]
    fn each<S: Simd, const SMALL: bool, const MAX: bool, const STRIDE: usize>(self, s: S) {
        let Lines { kind, tile, has_values, first, input, output, .. } = self;
        // Copies that nobody else knows stay in registers while lines are stored.
        let (geometry, inside) = (&self.geometry.clone(), &self.inside.clone());
        let mut joined = MaybeUninit::<[f32; WIDE + SLACK]>::uninit();
        let joined = joined.as_mut_ptr().cast::<f32>();
        let plane = geometry.input.iter().product::<usize>();
        let mut place = Place::of(geometry, first);
        for output in output.chunks_exact_mut(geometry.output[2]) {
            let input = &input[place.plane * plane..][..plane];
            let line = Line { kind, geometry, inside, tile, z: place.z, y: place.y, input, output: &mut *output };
            let windows = [geometry.window(0, place.z), geometry.window(1, place.y)];
            match SMALL {
                true => line.direct::<S, MAX, STRIDE>(s, windows),
                false => line.line::<S, MAX, STRIDE>(s, joined, windows),
            }
            if MAX && !has_values {
                fill_empty(geometry, windows, output);
            }
            place.go_on(geometry);
        }
    }
}

/// A line of the output.
struct Line<'a> {
    kind: PoolingKind,
    geometry: &'a PoolingGeometry,
    inside: &'a Range<usize>,
    tile: usize,
    z: usize,
    y: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

/// The taps of the depth and of the height of a line that lie inside the input, from the first to the one past the last, and
/// the numbers that lie inside the padded input.
type Windows = [(usize, usize, usize); 2];

impl Line<'_> {
    /// The line of greatest values or of means. `STRIDE` is the step between windows where it is known, else 0.
    #[inline(always)]
    fn line<S: Simd, const MAX: bool, const STRIDE: usize>(self, s: S, joined: *mut f32, windows: Windows) {
        let geometry = self.geometry;
        let (wide, stride) = (geometry.output[2], if STRIDE == 0 { geometry.stride[2] } else { STRIDE });
        let reach = (geometry.kernel[2] - 1).saturating_mul(geometry.dilation[2]);
        let target = self.output.as_ptr().cast_mut();
        if self.tile == 0 {
            for x in 0..wide {
                // SAFETY: the column lies in the line.
                unsafe { *target.add(x) = self.column::<MAX>(x, windows) };
            }
            return;
        }
        let tile = self.tile;
        for first in (0..wide).step_by(tile) {
            let count = tile.min(wide - first);
            // SAFETY: what the windows of a tile and a vector of columns more reach has room, and the columns lie in the line.
            unsafe {
                let span = match STRIDE {
                    0 => (count - 1) * stride + S::LANES + reach,
                    _ => (count + S::LANES - 1) * stride + reach + 1,
                };
                self.join_rows::<S, MAX>(s, first * stride, span, joined, windows);
                self.join_columns::<S, MAX, STRIDE>(s, count, joined, target.add(first), windows);
                self.mend_borders::<MAX, STRIDE>(first..first + count, joined, target, windows);
            }
        }
    }

    /// The line where windows have few taps.
    #[inline(always)]
    fn direct<S: Simd, const MAX: bool, const STRIDE: usize>(self, s: S, windows: Windows) {
        let inside = self.inside.clone();
        let target = self.output.as_ptr().cast_mut();
        for x in (0..inside.start).chain(inside.end..self.geometry.output[2]) {
            // SAFETY: the column lies in the line.
            unsafe { *target.add(x) = self.column::<MAX>(x, windows) };
        }
        let ([depths, rows], taps, dilation) = (windows, self.geometry.kernel[2], self.geometry.dilation[2]);
        let divisor = s.splat(self.counted(windows, taps, taps));
        let mut next = inside.start;
        while next < inside.end {
            // The last vector begins early enough to be a whole one, where that is possible.
            let last = inside.end.saturating_sub(S::LANES).max(inside.start);
            let x = next.min(last);
            next = x + S::LANES;
            let (start, count) = (self.geometry.place(2, x, 0), inside.end - x);
            // What the last tap of a vector reads ends here.
            let end = start + (taps - 1) * dilation + if STRIDE == 2 { 2 * S::LANES - 1 } else { S::LANES.min(count) };
            if depths.0 < depths.1 && rows.0 < rows.1 && self.row(depths.1 - 1, rows.1 - 1) + end > self.input.len() {
                for x in x..inside.end {
                    // SAFETY: the column lies in the line.
                    unsafe { *target.add(x) = self.column::<MAX>(x, windows) };
                }
                return;
            }
            let mut result = s.splat(if MAX { f32::NEG_INFINITY } else { 0.0 });
            for kz in depths.0..depths.1 {
                for ky in rows.0..rows.1 {
                    let values = self.input.as_ptr().wrapping_add(self.row(kz, ky) + start);
                    for kx in 0..taps {
                        let values = values.wrapping_add(kx * dilation);
                        // SAFETY: no tap of the windows reads beyond the end of the input.
                        let values =
                            unsafe { if STRIDE == 2 { s.load_even(values) } else { s.load_first(values, count) } };
                        result = with::<S, MAX>(s, result, values);
                    }
                }
            }
            let result = if MAX { result } else { s.div(result, divisor) };
            // SAFETY: the columns lie in the line.
            unsafe { s.store_first(target.add(x), result, count) };
        }
    }

    /// Joins the rows of the windows: `span` columns of the padded input from one on. The padding counts for nothing.
    ///
    /// # Safety
    /// So many values have room.
    #[inline(always)]
    unsafe fn join_rows<S: Simd, const MAX: bool>(
        &self,
        s: S,
        first: usize,
        span: usize,
        joined: *mut f32,
        [depths, rows]: Windows,
    ) {
        let (before, inside) = self.geometry.columns(first, span);
        let neutral = s.splat(if MAX { f32::NEG_INFINITY } else { 0.0 });
        let len = inside.len();
        for padding in [0..before, before + len..span] {
            for place in padding.clone().step_by(S::LANES) {
                // SAFETY: the caller's promise.
                unsafe { s.store_first(joined.add(place), neutral, padding.end - place) };
            }
        }
        let [_, _, wide] = self.geometry.input;
        for place in (0..len).step_by(S::LANES) {
            let count = len - place;
            let mut value = neutral;
            // Where no row lies inside, there is no place of the first one either.
            let deep = if rows.0 < rows.1 { depths.0..depths.1 } else { 0..0 };
            for kz in deep {
                let mut row = self.row(kz, rows.0) + inside.start + place;
                for _ in rows.0..rows.1 {
                    // SAFETY: the columns lie in the row, which is one of the plane.
                    unsafe {
                        value = with::<S, MAX>(s, value, s.load_first(self.input.as_ptr().wrapping_add(row), count));
                    }
                    // Behind the last row there may be nothing that could be counted.
                    row = row.wrapping_add(self.geometry.dilation[1].wrapping_mul(wide));
                }
            }
            // SAFETY: the values lie behind so many of the padding, and both in the span.
            unsafe { s.store_first(joined.add(before + place), value, count) };
        }
    }

    /// Joins the columns of windows: the first `count` of the joined rows. Where the stride is not known, those of windows that lie
    /// side by side, in place.
    ///
    /// # Safety
    /// The windows of so many columns and of a vector more lie in the joined rows, and so many results have room.
    #[inline(always)]
    unsafe fn join_columns<S: Simd, const MAX: bool, const STRIDE: usize>(
        &self,
        s: S,
        count: usize,
        joined: *mut f32,
        target: *mut f32,
        windows: Windows,
    ) {
        let (stride, taps) = (self.geometry.stride[2], self.geometry.kernel[2]);
        let windows_of_row = if STRIDE == 0 { (count - 1) * stride + 1 } else { count };
        let divisor = s.splat(self.counted(windows, taps, taps));
        for x in (0..windows_of_row).step_by(S::LANES) {
            let mut result = s.splat(if MAX { f32::NEG_INFINITY } else { 0.0 });
            for kx in 0..taps {
                // SAFETY: the caller's promise.
                unsafe {
                    let values = joined.add(x * STRIDE.max(1) + kx * self.geometry.dilation[2]);
                    let values = if STRIDE == 2 { s.load_even(values) } else { s.load(values) };
                    result = with::<S, MAX>(s, result, values);
                }
            }
            // SAFETY: as above; what is replaced was read, also by the windows to come.
            unsafe {
                match STRIDE {
                    0 => s.store(joined.add(x), result),
                    _ => s.store_first(target.add(x), if MAX { result } else { s.div(result, divisor) }, count - x),
                }
            }
        }
        if STRIDE == 0 {
            let (written, mut first) = (windows_of_row.next_multiple_of(S::LANES), 0);
            // SAFETY: as above; vectors were written up to there.
            unsafe {
                while APART.contains(&stride) && first < count && first * stride + s.span_apart(stride) <= written {
                    s.store_first(target.add(first), s.load_apart(joined.add(first * stride), stride), count - first);
                    first += S::LANES;
                }
                for x in first..count {
                    *target.add(x) = *joined.add(x * stride);
                }
            }
        }
        for x in (0..count).step_by(S::LANES).filter(|_| STRIDE == 0 && !MAX) {
            // SAFETY: as above.
            unsafe {
                let sums = s.load_first(target.add(x), count - x);
                s.store_first(target.add(x), s.div(sums, divisor), count - x);
            }
        }
    }

    /// Divides the sums of windows that reach into the padding by the numbers of their values.
    ///
    /// # Safety
    /// The joined rows hold what the windows of the columns read, and the columns lie in the line.
    #[inline(always)]
    unsafe fn mend_borders<const MAX: bool, const STRIDE: usize>(
        &self,
        columns: Range<usize>,
        joined: *const f32,
        target: *mut f32,
        windows: Windows,
    ) {
        let (geometry, inside) = (self.geometry, self.inside);
        let (first, end) = (columns.start, columns.end);
        let borders = (first..inside.start.min(end)).chain(inside.end.max(first)..end);
        for x in borders.filter(|_| !MAX) {
            let (from, to, padded) = geometry.window(2, x);
            // Where the stride is not known, the columns are joined too.
            let taps = if STRIDE == 0 { 1 } else { geometry.kernel[2] };
            let mut sum = 0.0;
            for kx in 0..taps {
                // SAFETY: the caller's promise.
                sum += unsafe { *joined.add((x - first) * geometry.stride[2] + kx * geometry.dilation[2]) };
            }
            // SAFETY: the caller's promise.
            unsafe { *target.add(x) = sum / self.counted(windows, to - from, padded) };
        }
    }

    /// The divisor of a mean over so many columns inside of the input, and of the padded input.
    #[inline(always)]
    fn counted(&self, [depths, rows]: Windows, inside: usize, padded: usize) -> f32 {
        let counted = match self.kind {
            PoolingKind::AverageWithPadding => depths.2 * rows.2 * padded,
            _ => (depths.1 - depths.0) * (rows.1 - rows.0) * inside,
        };
        // The sum of no values is their mean too.
        counted.max(1) as f32
    }

    /// Where a row of taps begins in the plane.
    #[inline(always)]
    fn row(&self, kz: usize, ky: usize) -> usize {
        let geometry = self.geometry;
        (geometry.place(0, self.z, kz) * geometry.input[1] + geometry.place(1, self.y, ky)) * geometry.input[2]
    }

    /// The result of one column.
    #[inline(always)]
    fn column<const MAX: bool>(&self, x: usize, windows: Windows) -> f32 {
        let (first, end, padded) = self.geometry.window(2, x);
        let mut sum = if MAX { f32::NEG_INFINITY } else { 0.0 };
        let [depths, rows] = windows;
        for kz in depths.0..depths.1 {
            for ky in rows.0..rows.1 {
                let line = self.row(kz, ky);
                for kx in first..end {
                    let value = self.input[line + self.geometry.place(2, x, kx)];
                    sum = match MAX {
                        true if value > sum || value.is_nan() => value,
                        true => sum,
                        false => sum + value,
                    };
                }
            }
        }
        if MAX { sum } else { sum / self.counted(windows, end - first, padded) }
    }
}

/// Gives the windows of a line that have no value the lowest number.
fn fill_empty(geometry: &PoolingGeometry, windows: Windows, output: &mut [f32]) {
    if windows.iter().any(|(first, end, _)| first == end) {
        return output.fill(f32::MIN);
    }
    let inside = geometry.inside(2);
    for x in (0..inside.start).chain(inside.end..output.len()) {
        let (first, end, _) = geometry.window(2, x);
        if first == end {
            output[x] = f32::MIN;
        }
    }
}

/// The greater of both in each lane, NaN where a value is one, or the sum.
#[inline(always)]
fn with<S: Simd, const MAX: bool>(s: S, joined: S::F, values: S::F) -> S::F {
    if MAX { s.select(s.is_nan(values), values, s.max(values, joined)) } else { s.add(joined, values) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_geometry(seed: u64) {
            let mut random = Random::new(seed);
            let mut triple = |low: usize, high: usize| [random.between(low, high.min(3)), random.between(low, high), random.between(low, high * 3)];
            let (input, kernel, stride, dilation) = (triple(1, 9), triple(1, 3), triple(1, 2), triple(1, 2));
            let (pad_begin, pad_end, output) = (triple(0, 1), triple(0, 1), triple(1, 8));
            let g = PoolingGeometry { planes: 2, input, output, kernel, stride, dilation, pad_begin, pad_end };
            let volume = |sizes: [usize; 3]| sizes.iter().product::<usize>();
            let unfold = |i: usize, s: [usize; 3]| [i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]];
            let values = random.values(2 * volume(input));
            for kind in [PoolingKind::Max, PoolingKind::Average, PoolingKind::AverageWithPadding] {
                let expected: Vec<f64> = (0..2 * volume(output)).map(|index| {
                    let at = unfold(index % volume(output), output);
                    let (mut max, mut sum, mut inside, mut padded) = (f64::NEG_INFINITY, 0.0, 0, 0);
                    for tap in 0..volume(kernel) {
                        let taps = unfold(tap, kernel);
                        let from = [0, 1, 2].map(|a| at[a] * stride[a] + taps[a] * dilation[a]);
                        let place = [0, 1, 2].map(|a| from[a].checked_sub(pad_begin[a]).filter(|&x| x < input[a]));
                        padded += usize::from((0..3).all(|a| from[a] < pad_begin[a] + input[a] + pad_end[a]));
                        if let [Some(z), Some(y), Some(x)] = place {
                            let plane = index / volume(output) * volume(input);
                            let value = f64::from(values[plane + (z * input[1] + y) * input[2] + x]);
                            (max, sum, inside) = (max.max(value), sum + value, inside + 1);
                        }
                    }
                    match kind {
                        PoolingKind::Max if inside == 0 => f64::from(f32::MIN),
                        PoolingKind::Max => max,
                        _ if inside == 0 => 0.0,
                        PoolingKind::Average => sum / f64::from(inside),
                        PoolingKind::AverageWithPadding => sum / padded as f64,
                    }
                }).collect();
                for isa in Isa::available() {
                    let mut result = vec![0.0; expected.len()];
                    pooling(isa, kind, &g, &values, &mut result).unwrap();
                    assert_close(&result, &expected, 27, &format!("{isa} {kind:?} {g:?}"));
                }
            }
        }
    }

    #[test]
    fn codes_and_nan() {
        let mut random = Random::new(8);
        for round in 0..60 {
            let mut triple = |low: usize, high: usize, wide: usize| {
                [random.between(low, high), random.between(low, high), random.between(low, wide)]
            };
            let mut g = PoolingGeometry {
                planes: 2,
                input: triple(1, 4, 700),
                output: triple(1, 4, 600),
                kernel: triple(1, 3, 4),
                stride: triple(1, 2, 4),
                dilation: triple(1, 2, 2),
                pad_begin: triple(0, 1, 3),
                pad_end: triple(0, 1, 3),
            };
            if round == 0 {
                (g.kernel[2], g.dilation[2]) = (3, 200);
            }
            let (from, to): (usize, usize) = (g.input.iter().product(), g.output.iter().product());
            let codes: Vec<u8> = (0..2 * from).map(|_| random.next() as u8).collect();
            let mut expected = vec![7; 2 * to];
            max_lanes::<1>(2, &g, &codes, &mut expected).unwrap();
            let values: Vec<f32> =
                codes.iter().map(|code| if *code > 250 { f32::NAN } else { f32::from(*code) }).collect();
            // Windows without a code have 0, and the lowest number of values.
            let floats: Vec<f32> =
                expected.iter().map(|code| if *code > 250 { f32::NAN } else { f32::from(*code) }).collect();
            for isa in Isa::available() {
                let run = || {
                    let mut result = vec![7; expected.len()];
                    max_codes(isa, &g, &codes, &mut result).unwrap();
                    result
                };
                assert_eq!(run(), expected, "{g:?}");
                assert_eq!(in_pool(2, run), expected);
                let mut result = vec![0.0; expected.len()];
                pooling(isa, PoolingKind::Max, &g, &values, &mut result).unwrap();
                let found = |value: f32| if value == f32::MIN { 0.0 } else { value };
                let is_same = |(a, b): (&f32, &f32)| found(*a) == *b || a.is_nan() && b.is_nan();
                assert!(result.iter().zip(&floats).all(is_same), "{isa} {g:?}");
            }
        }
    }

    #[test]
    fn whole_planes() {
        let values = Random::new(1).values(6 * 49);
        let mut output = [0.0; 6];
        global_pooling(crate::isa::detect(), PoolingKind::Average, 6, 49, &values, &mut output).unwrap();
        let expected: Vec<f64> =
            values.chunks(49).map(|plane| plane.iter().map(|&x| f64::from(x)).sum::<f64>() / 49.0).collect();
        assert_close(&output, &expected, 49, "mean");
    }
}
