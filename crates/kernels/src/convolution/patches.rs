//! The patches of an input as the right operand of a matrix product, laid out panel by panel.

use crate::gemm::PanelSource;
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch};

/// One spatial axis: output position `o` and tap `t` read the input at `o * stride + base + t * increment`, which is
/// zero outside.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Axis {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) stride: usize,
    pub(crate) taps: usize,
    pub(crate) base: isize,
    pub(crate) increment: isize,
}

impl Axis {
    /// The input position of an output position and tap, if inside.
    fn at(&self, output: usize, tap: usize) -> Option<usize> {
        let position = (output * self.stride) as isize + self.base + tap as isize * self.increment;
        usize::try_from(position).ok().filter(|&position| position < self.input)
    }

    /// The range of `0..count` whose output positions from `first` on read inside the input at a tap.
    pub(crate) fn inside(&self, first: usize, count: usize, tap: usize) -> (usize, usize) {
        let start = (first * self.stride) as isize + self.base + tap as isize * self.increment;
        let stride = self.stride as isize;
        // The least i with start + i * stride >= 0, and the least with start + i * stride >= input.
        let low = if start >= 0 { 0 } else { ((-start + stride - 1) / stride) as usize };
        let room = self.input as isize - start;
        let high = if room <= 0 { 0 } else { ((room + stride - 1) / stride) as usize };
        let high = high.min(count);
        (low.min(high), high)
    }
}

/// The channels of one group of one image. Row `channel * taps + tap` and column `output position` hold a value of the
/// input or zero.
pub(crate) struct Patches<'a> {
    /// The channels, each a plane of the three axes.
    pub(crate) input: &'a [f32],
    /// Depth, height and width.
    pub(crate) axes: [Axis; 3],
}

/// Neighbouring columns of a panel in one output line.
#[derive(Clone, Copy, Default)]
struct Run {
    z: usize,
    y: usize,
    x: usize,
    start: usize,
    len: usize,
}

struct Fill<'a> {
    patches: &'a Patches<'a>,
    first: usize,
    steps: usize,
    column: usize,
    buffer: *mut f32,
}

impl PanelSource for Patches<'_> {
    unsafe fn panel(&self, isa: Isa, first: usize, steps: usize, column: usize, buffer: *mut f32) -> *const f32 {
        dispatch(isa, Fill { patches: self, first, steps, column, buffer });
        buffer
    }
}

impl Kernel for Fill<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = 2 * S::LANES;
        let [deep, high, wide] = self.patches.axes;
        let columns = (deep.output * high.output * wide.output - self.column).min(width);
        if columns < width {
            // Columns beyond the last must hold something finite.
            // SAFETY: the buffer has room for the steps.
            unsafe { self.buffer.write_bytes(0, self.steps * width) };
        }
        let mut runs = [Run::default(); 32];
        let runs = cut(self.column, columns, high.output, wide.output, &mut runs);
        let plane = deep.input * high.input * wide.input;
        let taps = deep.taps * high.taps * wide.taps;
        let (mut channel, mut tap) = (self.first / taps, self.first % taps);
        for step in 0..self.steps {
            let source = self.patches.input[channel * plane..][..plane].as_ptr();
            let (kz, ky, kx) = (tap / (high.taps * wide.taps), tap / wide.taps % high.taps, tap % wide.taps);
            for run in runs {
                // SAFETY: the run's columns lie in the step's line; a full vector written at its end reaches at most
                // one line further, which is written later or is the spare one.
                let target = unsafe { self.buffer.add(step * width + run.start) };
                let (Some(z), Some(y)) = (deep.at(run.z, kz), high.at(run.y, ky)) else {
                    // SAFETY: as above.
                    unsafe { fill_zero(s, target, run.len) };
                    continue;
                };
                let (low, end) = wide.inside(run.x, run.len, kx);
                let x = (run.x * wide.stride) as isize + wide.base + kx as isize * wide.increment;
                let line = source.wrapping_add((z * high.input + y) * wide.input).wrapping_offset(x);
                // SAFETY: as above, and `inside` bounds what is read of the line.
                unsafe {
                    if low > 0 || end < run.len {
                        fill_zero(s, target, run.len);
                    }
                    if wide.stride == 1 {
                        copy(s, line.wrapping_add(low), target.add(low), end - low);
                    } else {
                        for index in low..end {
                            target.add(index).write(*line.wrapping_add(index * wide.stride));
                        }
                    }
                }
            }
            tap += 1;
            if tap == taps {
                (channel, tap) = (channel + 1, 0);
            }
        }
    }
}

/// Writes at least `len` zeros, up to one vector more.
///
/// # Safety
/// The places up to the next multiple of the vector length are writable.
#[inline(always)]
unsafe fn fill_zero<S: Simd>(s: S, target: *mut f32, len: usize) {
    let mut index = 0;
    while index < len {
        // SAFETY: the caller's promise.
        unsafe { s.store(target.add(index), s.splat(0.0)) };
        index += S::LANES;
    }
}

/// Copies `len` values and writes zeros up to the next multiple of the vector length.
///
/// # Safety
/// The values are readable and the places up to that multiple writable.
#[inline(always)]
unsafe fn copy<S: Simd>(s: S, source: *const f32, target: *mut f32, len: usize) {
    let mut index = 0;
    while index + S::LANES <= len {
        // SAFETY: the caller's promise.
        unsafe { s.store(target.add(index), s.load(source.add(index))) };
        index += S::LANES;
    }
    if index < len {
        // SAFETY: the caller's promise.
        unsafe { s.store(target.add(index), s.load_partial(source.add(index), len - index)) };
    }
}

/// Cuts columns into runs that stay within one output line.
#[inline(always)]
fn cut(column: usize, columns: usize, high: usize, wide: usize, runs: &mut [Run; 32]) -> &[Run] {
    let (mut start, mut count) = (0, 0);
    while start < columns && count < 32 {
        let position = column + start;
        let (x, line) = (position % wide, position / wide);
        let len = (wide - x).min(columns - start);
        runs[count] = Run { z: line / high, y: line % high, x, start, len };
        start += len;
        count += 1;
    }
    &runs[..count]
}
