//! The patches of an input as the right operand of a matrix product, laid out panel by panel.

use crate::gemm::PanelSource;
use crate::isa::Isa;
use crate::simd::{APART, Kernel, Simd, dispatch};
use std::ops::Range;

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
    pub(crate) fn at(&self, output: usize, tap: usize) -> Option<usize> {
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

/// Channels whose patches are laid out together, so that where a tap reads is computed once for all of them. Few enough that
/// planes whose size is a power of two do not push each other out of the cache.
const TOGETHER: usize = 8;

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
        let (mut channel, behind) = (self.first / taps, self.first + self.steps);
        while channel * taps < behind {
            for tap in 0..taps {
                let first = channel + usize::from(channel * taps + tap < self.first);
                let end = (channel + TOGETHER).min(behind.saturating_sub(tap).div_ceil(taps));
                if first >= end {
                    continue;
                }
                let (kz, ky, kx) = (tap / (high.taps * wide.taps), tap / wide.taps % high.taps, tap % wide.taps);
                for run in runs {
                    // What lies behind the run in its line is written later, but for the last run.
                    let is_last = run.start + run.len == columns;
                    let room = if is_last { run.len } else { width - run.start };
                    let mut line = Line { from: 0, step: wide.stride, low: 0, end: 0, len: run.len, room };
                    if let (Some(z), Some(y)) = (deep.at(run.z, kz), high.at(run.y, ky)) {
                        (line.low, line.end) = wide.inside(run.x, run.len, kx);
                        let x = wide.at(run.x + line.low, kx).unwrap_or(0);
                        line.from = (z * high.input + y) * wide.input + x;
                    }
                    // SAFETY: the run's columns lie in the lines of the steps, and `inside` bounds what is read of the planes.
                    unsafe {
                        let target = self.buffer.add((first * taps + tap - self.first) * width + run.start);
                        let planes = Planes { input: self.patches.input, plane, channels: first..end };
                        line.copy(s, planes, target, taps * width);
                    }
                }
            }
            channel += TOGETHER;
        }
    }
}

/// What a tap reads for a run of columns: zeros, then values that lie evenly apart, then zeros.
struct Line {
    /// The first value in its plane.
    from: usize,
    /// Places from a value to the next.
    step: usize,
    /// The columns that have a value.
    low: usize,
    end: usize,
    len: usize,
    /// Columns that may be written.
    room: usize,
}

/// Channels whose lines are copied.
struct Planes<'a> {
    input: &'a [f32],
    /// The values of one.
    plane: usize,
    channels: Range<usize>,
}

impl Line {
    /// Writes the run's columns of some channels, and up to its room anything. What the channels write lies `apart`.
    ///
    /// # Safety
    /// The columns' values lie in the planes, `room` places are writable for each of the channels, and
    /// `low <= end <= len <= room`.
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, s: S, planes: Planes<'_>, target: *mut f32, apart: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.step {
                1 => self.copy_by::<S, 1>(s, planes, target, apart),
                2 => self.copy_by::<S, 2>(s, planes, target, apart),
                step if APART.contains(&step) => self.copy_by::<S, 3>(s, planes, target, apart),
                _ => self.copy_by::<S, 0>(s, planes, target, apart),
            }
        }
    }

    /// The same where values lie `STEP` apart; with three, by as many as the line says, and with none one by one.
    ///
    /// # Safety
    /// As of [`Line::copy`].
    #[inline(always)]
    unsafe fn copy_by<S: Simd, const STEP: usize>(&self, s: S, planes: Planes<'_>, target: *mut f32, apart: usize) {
        let Self { from, step, low, end, len, room } = *self;
        let span = match STEP {
            1 => S::LANES,
            2 => 2 * S::LANES,
            3 => s.span_apart(step),
            _ => usize::MAX,
        };
        for (index, channel) in planes.channels.enumerate() {
            let target = target.wrapping_add(index * apart);
            let mut column = 0;
            // SAFETY: the caller's promise.
            unsafe {
                while (low > 0 || end < len) && column < len {
                    store(s, target, column, s.splat(0.0), room, len);
                    column += S::LANES;
                }
            }
            let mut place = channel * planes.plane + from;
            let mut column = low;
            // Zeros that follow must stay.
            let room = if end == len { room } else { 0 };
            // SAFETY: the caller promises the values of the columns, and the span was compared with what the plane and those
            // behind it hold.
            unsafe {
                while column < end && span <= planes.input.len() - place {
                    let values = planes.input.as_ptr().add(place);
                    let lanes = match STEP {
                        1 => s.load(values),
                        2 => s.load_even(values),
                        _ => s.load_apart(values, step),
                    };
                    store(s, target, column, lanes, room, end);
                    (column, place) = (column + S::LANES, place + step * S::LANES);
                }
                while column < end {
                    target.add(column).write(planes.input[place]);
                    (column, place) = (column + 1, place + step);
                }
            }
        }
    }
}

/// Writes the lanes of columns before `end`, or all of them where there is room.
///
/// # Safety
/// The first `room` columns and those before `end` are writable.
#[inline(always)]
unsafe fn store<S: Simd>(s: S, target: *mut f32, column: usize, lanes: S::F, room: usize, end: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        if column + S::LANES <= room.max(end) {
            s.store(target.add(column), lanes);
        } else {
            s.store_partial(target.add(column), lanes, end - column);
        }
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
