//! Depthwise convolution: every output channel has a kernel of its own, and reads one channel, which several may share.

use super::patches::Axis;
use super::{ConvolutionEpilogue, ConvolutionGeometry, volume};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use std::mem::MaybeUninit;

/// Channels a parallel chunk covers at least this many output elements.
const CHUNK: usize = 1 << 13;

/// Values that the ring of padded lines holds.
const RING: usize = 1 << 14;

/// Convolves every plane with its kernel; lengths were checked.
pub(super) fn run(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &[f32],
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) {
    let (channels, taps) = (geometry.output_channels, volume(geometry.kernel));
    let share = channels / geometry.groups.max(1);
    let (from, to) = (volume(geometry.input), volume(geometry.output));
    let axes = geometry.axes();
    let shared = SharedMut::new(output);
    let nanoseconds = (shared.len() as u64).saturating_mul(taps as u64) / 16;
    parallel_for(geometry.batch * channels, CHUNK.div_ceil(to), nanoseconds, |range| {
        for plane in range {
            let channel = plane % channels;
            let epilogue = epilogue.part(channel, 1, plane * to, to);
            let call = Plane {
                axes,
                weights: &weights[channel * taps..][..taps],
                // As every image has whole groups, so many planes before this one have read so many times fewer.
                input: &input[plane / share * from..][..from],
                // SAFETY: planes are disjoint and within the output.
                output: unsafe { shared.slice(plane * to..(plane + 1) * to) },
                bias: match epilogue.bias {
                    crate::epilogue::Channelwise::PerRow(bias) => bias[0],
                    _ => 0.0,
                },
                residual: epilogue.residual.map(|residual| &residual.values[..to]),
                limits: epilogue.limits(),
            };
            let pointer = dispatch(isa, call);
            if epilogue.needs_pass() {
                // SAFETY: the plane lies in the output.
                unsafe { epilogue.pass(isa, pointer, to, 0, 0, 1, to) };
            }
        }
    });
}

struct Plane<'a> {
    axes: [Axis; 3],
    weights: &'a [f32],
    input: &'a [f32],
    output: &'a mut [f32],
    bias: f32,
    residual: Option<&'a [f32]>,
    limits: (f32, f32),
}

impl Kernel for Plane<'_> {
    type Output = *mut f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> *mut f32 {
        if self.lines(s) {
            return self.output.as_mut_ptr();
        }
        let [deep, high, wide] = self.axes;
        // Output columns that read inside the input at every tap.
        let (mut low, mut end) = (0, wide.output);
        for tap in 0..wide.taps {
            let (first, last) = wide.inside(0, wide.output, tap);
            (low, end) = (low.max(first), end.min(last));
        }
        let (low, end) = if low < end { (low, end) } else { (0, 0) };
        for z in 0..deep.output {
            for y in 0..high.output {
                let line = (z * high.output + y) * wide.output;
                for x in (0..low).chain(end..wide.output) {
                    self.point(z, y, x, line + x);
                }
                let mut x = low;
                while x < end {
                    let count = (end - x).min(S::LANES);
                    // SAFETY: columns `x..x + count` of the line lie in the output, and read inside the input.
                    unsafe {
                        let mut sum = self.columns(s, z, y, x, count);
                        if let Some(residual) = self.residual {
                            sum = s.add(sum, s.load_partial(residual.as_ptr().add(line + x), count));
                        }
                        sum = s.min(s.splat(self.limits.1), s.max(s.splat(self.limits.0), sum));
                        s.store_partial(self.output.as_ptr().cast_mut().add(line + x), sum, count);
                    }
                    x += count;
                }
            }
        }
        self.output.as_mut_ptr()
    }
}

impl Plane<'_> {
    /// Computes a plane without depth through a ring of padded input lines, in which every tap of every column is
    /// inside; lines are split by the stride's phases, so that neighbouring columns read neighbouring values. Returns
    /// false where the ring would not fit.
    #[inline(always)]
    fn lines<S: Simd>(&self, s: S) -> bool {
        let [deep, high, wide] = self.axes;
        if deep.output != 1 || deep.taps != 1 || deep.input != 1 || wide.output == 0 || high.increment < 1 {
            return false;
        }
        let (step, stride) = (wide.increment as usize, wide.stride);
        let span = (high.taps - 1).saturating_mul(high.increment as usize).saturating_add(1);
        let reach = (wide.taps - 1).saturating_mul(step).saturating_add((wide.output - 1) * stride + 1);
        let phase = reach.div_ceil(stride) + 4 * S::LANES;
        let line = phase.saturating_mul(stride);
        if inside(&deep, 0, 0) != Some(0) {
            return false;
        }
        // Sums of several vectors hide the time that each addition takes: those of neighbouring columns, or where there are
        // few of these, those of several rows.
        let fits = |rows: usize| {
            let lines = (rows - 1).saturating_mul(high.stride).saturating_add(span);
            high.output >= rows && lines.saturating_mul(line) <= RING
        };
        match wide.output.div_ceil(S::LANES) {
            1 if fits(4) => self.rows::<S, 4, 1>(s, span, reach, phase),
            1 | 2 if fits(2) => self.rows::<S, 2, 2>(s, span, reach, phase),
            _ if fits(1) => self.rows::<S, 1, 4>(s, span, reach, phase),
            _ => return false,
        }
        true
    }

    /// Computes all rows, so many at a time and of so many vectors.
    #[inline(always)]
    fn rows<S: Simd, const ROWS: usize, const VECTORS: usize>(&self, s: S, span: usize, reach: usize, phase: usize) {
        let [_, high, wide] = self.axes;
        let (line, lines) = (phase * wide.stride, (ROWS - 1) * high.stride + span);
        let mut ring = MaybeUninit::<[f32; RING]>::uninit();
        let ring = Ring { values: ring.as_mut_ptr().cast::<f32>(), lines, line, phase };
        let mut filled = isize::MIN;
        for y in (0..high.output).step_by(ROWS) {
            // The last rows are computed again where they are no whole number of these.
            let y = y.min(high.output - ROWS);
            let top = (y * high.stride) as isize + high.base;
            for row in filled.max(top)..top + lines as isize {
                // SAFETY: the ring has room for the lines, each of which is filled before it is read.
                unsafe {
                    let pointer = ring.values.add(ring.place(row) * line);
                    pointer.write_bytes(0, line);
                    self.fill_line(row, reach, phase, std::slice::from_raw_parts_mut(pointer, line));
                }
            }
            filled = top + lines as isize;
            let places = std::array::from_fn(|row| ring.place(top + (row * high.stride) as isize));
            let mut x = 0;
            while x < wide.output {
                // SAFETY: lines reach four vectors beyond the last column.
                unsafe {
                    if x + VECTORS / 2 * S::LANES < wide.output {
                        self.ring_columns::<S, ROWS, VECTORS>(s, [y, x], &places, &ring);
                        x += VECTORS * S::LANES;
                    } else {
                        self.ring_columns::<S, ROWS, 1>(s, [y, x], &places, &ring);
                        x += S::LANES;
                    }
                }
            }
        }
    }

    /// Writes an input line into a line of the ring, which is zero.
    #[inline(always)]
    fn fill_line(&self, row: isize, reach: usize, phase: usize, line: &mut [f32]) {
        let [_, high, wide] = self.axes;
        let Some(row) = usize::try_from(row).ok().filter(|&row| row < high.input) else {
            return;
        };
        let source = &self.input[row * wide.input..][..wide.input];
        let skip = wide.base.unsigned_abs();
        let count = wide.input.min(reach.saturating_sub(skip));
        if wide.stride == 1 {
            if let Some(target) = line.get_mut(skip..skip + count) {
                target.copy_from_slice(&source[..count]);
            }
            return;
        }
        for part in 0..wide.stride.min(count) {
            let position = skip + part;
            let target = &mut line[position % wide.stride * phase + position / wide.stride..];
            for (place, value) in target.iter_mut().zip(source[part..count].iter().step_by(wide.stride)) {
                *place = *value;
            }
        }
    }

    /// Computes neighbouring columns of some rows from the ring, in which these begin at the places.
    ///
    /// # Safety
    /// The ring holds the lines that the rows read, each reaching `VECTORS` vectors beyond the last column.
    #[inline(always)]
    unsafe fn ring_columns<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        s: S,
        [y, x]: [usize; 2],
        places: &[usize; ROWS],
        ring: &Ring,
    ) {
        let [_, high, wide] = self.axes;
        let step = [wide.increment as usize % wide.stride, wide.increment as usize / wide.stride];
        let mut sums = [[s.splat(self.bias); VECTORS]; ROWS];
        for ky in 0..high.taps {
            let mut lines = [ring.values.cast_const(); ROWS];
            for (line, place) in lines.iter_mut().zip(places) {
                let place = place + ky * high.increment as usize;
                let place = if place >= ring.lines { place - ring.lines } else { place };
                *line = line.wrapping_add(place * ring.line + x);
            }
            // The phase of the stride that a tap is in, and its place there.
            let (mut phase, mut place) = (0, 0);
            for &weight in &self.weights[ky * wide.taps..][..wide.taps] {
                let (weight, offset) = (s.splat(weight), phase * ring.phase + place);
                (phase, place) = (phase + step[0], place + step[1]);
                if phase >= wide.stride {
                    (phase, place) = (phase - wide.stride, place + 1);
                }
                for (sums, line) in sums.iter_mut().zip(&lines) {
                    for (index, sum) in sums.iter_mut().enumerate() {
                        // SAFETY: the caller's promise.
                        *sum = s.fma(unsafe { s.load(line.wrapping_add(offset + index * S::LANES)) }, weight, *sum);
                    }
                }
            }
        }
        let (low, limit) = (s.splat(self.limits.0), s.splat(self.limits.1));
        for (row, sums) in sums.iter().enumerate() {
            for (index, sum) in sums.iter().enumerate() {
                let column = x + index * S::LANES;
                if column >= wide.output {
                    break;
                }
                let (count, offset) = ((wide.output - column).min(S::LANES), (y + row) * wide.output + column);
                // SAFETY: `count` columns from this one on lie in the line of the output and of the residual.
                unsafe {
                    let mut sum = *sum;
                    if let Some(residual) = self.residual {
                        sum = s.add(sum, s.load_partial(residual.as_ptr().add(offset), count));
                    }
                    let sum = s.min(limit, s.max(low, sum));
                    s.store_partial(self.output.as_ptr().cast_mut().add(offset), sum, count);
                }
            }
        }
    }

    /// The sums of `count` neighbouring columns.
    ///
    /// # Safety
    /// The columns read inside the input at every tap of the width.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, z: usize, y: usize, x: usize, count: usize) -> S::F {
        let [deep, high, wide] = self.axes;
        let mut sum = s.splat(self.bias);
        for kz in 0..deep.taps {
            let Some(iz) = inside(&deep, z, kz) else { continue };
            for ky in 0..high.taps {
                let Some(iy) = inside(&high, y, ky) else { continue };
                let line = (iz * high.input + iy) * wide.input;
                let weights = &self.weights[(kz * high.taps + ky) * wide.taps..][..wide.taps];
                for (kx, &weight) in weights.iter().enumerate() {
                    let start = (x * wide.stride) as isize + wide.base + kx as isize * wide.increment;
                    let from = self.input.as_ptr().wrapping_add(line).wrapping_offset(start);
                    // SAFETY: the caller's promise.
                    let values = unsafe { strided(s, from, wide.stride, count) };
                    sum = s.fma(values, s.splat(weight), sum);
                }
            }
        }
        sum
    }

    /// One output element near the border.
    fn point(&self, z: usize, y: usize, x: usize, index: usize) {
        let [deep, high, wide] = self.axes;
        let mut sum = self.bias;
        for kz in 0..deep.taps {
            let Some(iz) = inside(&deep, z, kz) else { continue };
            for ky in 0..high.taps {
                let Some(iy) = inside(&high, y, ky) else { continue };
                for kx in 0..wide.taps {
                    let Some(ix) = inside(&wide, x, kx) else { continue };
                    let weight = self.weights[(kz * high.taps + ky) * wide.taps + kx];
                    sum += self.input[(iz * high.input + iy) * wide.input + ix] * weight;
                }
            }
        }
        if let Some(residual) = self.residual {
            sum += residual[index];
        }
        let (low, high) = self.limits;
        let sum = if low > sum { low } else { sum };
        let sum = if high < sum { high } else { sum };
        // SAFETY: the index lies in the output, which this plane alone writes.
        unsafe { self.output.as_ptr().cast_mut().add(index).write(sum) };
    }
}

/// Padded lines of the input, each in the place of the one that was so many lines before.
struct Ring {
    values: *mut f32,
    lines: usize,
    /// Values of a line, and of each phase of the stride in it.
    line: usize,
    phase: usize,
}

impl Ring {
    /// The place of a line of the input.
    #[inline(always)]
    fn place(&self, row: isize) -> usize {
        row.rem_euclid(self.lines as isize) as usize
    }
}

fn inside(axis: &Axis, output: usize, tap: usize) -> Option<usize> {
    let (low, high) = axis.inside(output, 1, tap);
    (low < high).then(|| ((output * axis.stride) as isize + axis.base + tap as isize * axis.increment) as usize)
}

/// `count` values that lie `stride` apart.
///
/// # Safety
/// They are readable.
#[inline(always)]
unsafe fn strided<S: Simd>(s: S, from: *const f32, stride: usize, count: usize) -> S::F {
    if stride == 1 {
        // SAFETY: the caller's promise.
        return unsafe { s.load_first(from, count) };
    }
    let mut values = [0.0f32; 16];
    for (index, value) in values.iter_mut().enumerate().take(count) {
        // SAFETY: the caller's promise.
        *value = unsafe { *from.add(index * stride) };
    }
    // SAFETY: the array holds as many values as the widest vector.
    unsafe { s.load(values.as_ptr()) }
}
