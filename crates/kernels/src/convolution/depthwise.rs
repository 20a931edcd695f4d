//! Depthwise convolution of points and short lines, and of planes whose lines do not fit into the ring of `lines`: every output
//! channel has a kernel of its own, and reads one channel, which several may share.

use super::patches::Axis;
use super::{ConvolutionEpilogue, ConvolutionGeometry, volume};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use std::ops::Range;

/// Channels a parallel chunk covers at least this many output elements.
const CHUNK: usize = 1 << 13;

/// The fewest neighbouring columns that are computed together, tap by tap; fewer are sums of products each.
const FEWEST_COLUMNS: usize = 3;

/// Whether lines of the output are so short that their elements are sums of neighbouring products, one by one.
pub(super) fn suits(geometry: &ConvolutionGeometry) -> bool {
    geometry.output[2] < FEWEST_COLUMNS && geometry.dilation == [1; 3]
}

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
    parallel_for(geometry.batch * channels, CHUNK.div_ceil(to), geometry.plain_nanoseconds(), |range| {
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
        let [deep, high, wide] = self.axes;
        // Output columns that read inside the input at every tap.
        let (mut low, mut end) = (0, wide.output);
        for tap in 0..wide.taps {
            let (first, last) = wide.inside(0, wide.output, tap);
            (low, end) = (low.max(first), end.min(last));
        }
        let is_wide = low + FEWEST_COLUMNS <= end;
        let (low, end) = if is_wide { (low, end) } else { (0, 0) };
        for z in 0..deep.output {
            for y in 0..high.output {
                let line = (z * high.output + y) * wide.output;
                for x in (0..low).chain(end..wide.output) {
                    self.point(s, z, y, x, line + x);
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
    /// The sums of `count` neighbouring columns.
    ///
    /// # Safety
    /// The columns read inside the input at every tap of the width.
    #[inline(always)]
    unsafe fn columns<S: Simd>(&self, s: S, z: usize, y: usize, x: usize, count: usize) -> S::F {
        let [deep, high, wide] = self.axes;
        let mut sum = s.splat(self.bias);
        for kz in 0..deep.taps {
            let Some(iz) = deep.at(z, kz) else { continue };
            for ky in 0..high.taps {
                let Some(iy) = high.at(y, ky) else { continue };
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

    /// One output element near the border, or of few in a line.
    #[inline(always)]
    fn point<S: Simd>(&self, s: S, z: usize, y: usize, x: usize, index: usize) {
        let mut sum = match self.axes.iter().all(|axis| axis.increment == 1) {
            true => self.bias + self.neighbours(s, z, y, x),
            false => self.single_taps(z, y, x),
        };
        if let Some(residual) = self.residual {
            sum += residual[index];
        }
        let (low, high) = self.limits;
        let sum = if low > sum { low } else { sum };
        let sum = if high < sum { high } else { sum };
        // SAFETY: the index lies in the output, which this plane alone writes.
        unsafe { self.output.as_ptr().cast_mut().add(index).write(sum) };
    }

    /// The sum of the products of an output element whose taps read neighbouring positions.
    #[inline(always)]
    fn neighbours<S: Simd>(&self, s: S, z: usize, y: usize, x: usize) -> f32 {
        let [deep, high, wide] = self.axes;
        let ((along_z, iz), (along_y, iy), (along_x, ix)) =
            (taps_inside(&deep, z), taps_inside(&high, y), taps_inside(&wide, x));
        // Lines that are read whole follow each other in the input as their weights do.
        let is_whole = along_x.len() == wide.taps && wide.taps == wide.input;
        let (lines, length) = match is_whole {
            true => (1, along_y.len() * wide.taps),
            false => (along_y.len(), along_x.len()),
        };
        if length == 0 {
            return 0.0;
        }
        let mut sums = s.splat(0.0);
        for kz in 0..along_z.len() {
            for ky in 0..lines {
                let tap = ((along_z.start + kz) * high.taps + along_y.start + ky) * wide.taps + along_x.start;
                let place = ((iz + kz) * high.input + iy + ky) * wide.input + ix;
                let (weights, values) = (&self.weights[tap..][..length], &self.input[place..][..length]);
                for (weights, values) in weights.chunks(S::LANES).zip(values.chunks(S::LANES)) {
                    let count = weights.len();
                    // SAFETY: both have so many values.
                    let (weights, values) =
                        unsafe { (s.load_first(weights.as_ptr(), count), s.load_first(values.as_ptr(), count)) };
                    sums = s.fma(values, weights, sums);
                }
            }
        }
        s.reduce_add(sums)
    }

    /// The bias and the products of an output element, tap by tap.
    fn single_taps(&self, z: usize, y: usize, x: usize) -> f32 {
        let [deep, high, wide] = self.axes;
        let mut sum = self.bias;
        for kz in 0..deep.taps {
            let Some(iz) = deep.at(z, kz) else { continue };
            for ky in 0..high.taps {
                let Some(iy) = high.at(y, ky) else { continue };
                for kx in 0..wide.taps {
                    let Some(ix) = wide.at(x, kx) else { continue };
                    let weight = self.weights[(kz * high.taps + ky) * wide.taps + kx];
                    sum += self.input[(iz * high.input + iy) * wide.input + ix] * weight;
                }
            }
        }
        sum
    }
}

/// The taps of neighbouring positions that an output position reads inside the input, and the first of these positions.
#[inline(always)]
fn taps_inside(axis: &Axis, output: usize) -> (Range<usize>, usize) {
    let start = (output * axis.stride) as isize + axis.base;
    let low = start.min(0).unsigned_abs().min(axis.taps);
    let room = (axis.input as isize).saturating_sub(start).max(0) as usize;
    (low..room.min(axis.taps).max(low), start.max(0) as usize)
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
