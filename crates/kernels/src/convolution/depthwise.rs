//! Depthwise convolution: every channel has a kernel of its own.

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
    let (channels, taps) = (geometry.groups, volume(geometry.kernel));
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
                input: &input[plane * from..][..from],
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
        if inside(&deep, 0, 0) != Some(0) || span.saturating_mul(line) > RING {
            return false;
        }
        let mut ring = MaybeUninit::<[f32; RING]>::uninit();
        let ring = ring.as_mut_ptr().cast::<f32>();
        let place = |row: isize| ring.wrapping_add(row.rem_euclid(span as isize) as usize * line);
        let mut filled = isize::MIN;
        for y in 0..high.output {
            let top = (y * high.stride) as isize + high.base;
            for row in filled.max(top)..top + span as isize {
                // SAFETY: the ring has room for `span` lines, each of which is filled before it is read.
                unsafe {
                    let pointer = place(row);
                    pointer.write_bytes(0, line);
                    self.fill_line(row, reach, phase, std::slice::from_raw_parts_mut(pointer, line));
                }
            }
            filled = top + span as isize;
            let mut x = 0;
            while x < wide.output {
                // SAFETY: lines reach four vectors beyond the last column.
                unsafe {
                    if x + 2 * S::LANES < wide.output {
                        self.ring_columns::<S, 4>(s, y, x, top, phase, place);
                        x += 4 * S::LANES;
                    } else {
                        self.ring_columns::<S, 1>(s, y, x, top, phase, place);
                        x += S::LANES;
                    }
                }
            }
        }
        true
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

    /// Computes neighbouring columns of a line from the ring.
    ///
    /// # Safety
    /// The ring holds the lines from `top` on, each reaching `VECTORS` vectors beyond the last column.
    #[inline(always)]
    unsafe fn ring_columns<S: Simd, const VECTORS: usize>(
        &self,
        s: S,
        y: usize,
        x: usize,
        top: isize,
        phase: usize,
        place: impl Fn(isize) -> *mut f32,
    ) {
        let [_, high, wide] = self.axes;
        let mut sums = [s.splat(self.bias); VECTORS];
        for ky in 0..high.taps {
            let line = place(top + ky as isize * high.increment);
            for kx in 0..wide.taps {
                let position = kx * wide.increment as usize;
                let weight = s.splat(self.weights[ky * wide.taps + kx]);
                let from = line.wrapping_add(position % wide.stride * phase + position / wide.stride + x);
                for (index, sum) in sums.iter_mut().enumerate() {
                    // SAFETY: the caller's promise.
                    *sum = s.fma(unsafe { s.load(from.wrapping_add(index * S::LANES)) }, weight, *sum);
                }
            }
        }
        let (low, limit) = (s.splat(self.limits.0), s.splat(self.limits.1));
        for (index, sum) in sums.iter().enumerate() {
            let column = x + index * S::LANES;
            if column >= wide.output {
                return;
            }
            let (count, offset) = ((wide.output - column).min(S::LANES), y * wide.output + column);
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
