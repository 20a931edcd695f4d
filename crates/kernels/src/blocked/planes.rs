//! Pooling in the blocked layout: a vector is sixteen channels of one position.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::pooling::PoolingGeometry;
use crate::simd::{Kernel, Simd, dispatch};
use std::ops::Range;

/// Output elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

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
    for_each_line(channels, geometry, input.len(), output, |block, at, output| {
        dispatch(isa, Pool { kind, geometry, at, input: &input[block], output });
    })
}

/// Writes the greatest code of each window, which lies in the input in part at least; otherwise as [`blocked_pooling`].
///
/// # Errors
/// As for [`blocked_pooling`].
pub fn blocked_max_codes(
    channels: usize,
    geometry: &PoolingGeometry,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    for_each_line(channels, geometry, input.len(), output, |block, at, output| {
        let input = input[block].as_chunks::<BLOCK>().0;
        let (planes, rows) = (geometry.window(0, at[0]), geometry.window(1, at[1]));
        let place = |axis: usize, at: usize, tap: usize| {
            at * geometry.stride[axis] + tap * geometry.dilation[axis] - geometry.pad_begin[axis]
        };
        for (x, greatest) in output.as_chunks_mut::<BLOCK>().0.iter_mut().enumerate() {
            let columns = geometry.window(2, x);
            let mut most = [0u8; BLOCK];
            for kz in planes.0..planes.1 {
                for ky in rows.0..rows.1 {
                    let line = (place(0, at[0], kz) * geometry.input[1] + place(1, at[1], ky)) * geometry.input[2];
                    for kx in columns.0..columns.1 {
                        let codes = &input[line + place(2, x, kx)];
                        for lane in 0..BLOCK {
                            most[lane] = most[lane].max(codes[lane]);
                        }
                    }
                }
            }
            *greatest = most;
        }
    })
}

/// Has each line of a blocked output written: `write` gets the range of the input that its block covers, and the plane and
/// the line in it.
fn for_each_line<T: Send>(
    channels: usize,
    geometry: &PoolingGeometry,
    input_len: usize,
    output: &mut [T],
    write: impl Fn(Range<usize>, [usize; 2], &mut [T]) + Sync,
) -> Result<(), KernelError> {
    let [volume, positions] = geometry.positions()?;
    let batch = geometry.planes.checked_div(channels).unwrap_or(0);
    check_exact("channels", batch * channels, geometry.planes)?;
    check_exact("input", input_len, blocked_len(batch, channels, volume))?;
    check_exact("output", output.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let shared = SharedMut::new(output);
    let work = (shared.len() as u64).saturating_mul(geometry.taps()) / 64 * size_of::<T>() as u64;
    let (lines, line) = (geometry.output[0] * geometry.output[1], geometry.output[2] * BLOCK);
    let volumes = batch * channels.div_ceil(BLOCK);
    parallel_for(volumes * lines, CHUNK.div_ceil(line), work, |range| {
        for index in range {
            let (block, y) = (index / lines, index % lines);
            // SAFETY: lines are disjoint and within the output.
            let output = unsafe { shared.slice(index * line..(index + 1) * line) };
            let input = block * volume * BLOCK..(block + 1) * volume * BLOCK;
            write(input, [y / geometry.output[1], y % geometry.output[1]], output);
        }
    });
    Ok(())
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

impl Kernel for Pool<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let PoolingGeometry { input, stride, dilation, pad_begin, .. } = *self.geometry;
        let planes = self.geometry.window(0, self.at[0]);
        let rows = self.geometry.window(1, self.at[1]);
        let max = self.kind == PoolingKind::Max;
        for x in 0..self.geometry.output[2] {
            let columns = self.geometry.window(2, x);
            let divisor = match self.kind {
                PoolingKind::AverageWithPadding => planes.2 * rows.2 * columns.2,
                _ => (planes.1 - planes.0) * (rows.1 - rows.0) * (columns.1 - columns.0),
            };
            for part in (0..BLOCK).step_by(S::LANES) {
                let mut sum = s.splat(if max { f32::NEG_INFINITY } else { 0.0 });
                for kz in planes.0..planes.1 {
                    let z = self.at[0] * stride[0] + kz * dilation[0] - pad_begin[0];
                    for ky in rows.0..rows.1 {
                        let y = self.at[1] * stride[1] + ky * dilation[1] - pad_begin[1];
                        for kx in columns.0..columns.1 {
                            let column = x * stride[2] + kx * dilation[2] - pad_begin[2];
                            let place = ((z * input[1] + y) * input[2] + column) * BLOCK + part;
                            // SAFETY: `window` keeps the taps inside the input.
                            let value = unsafe { s.load(self.input.as_ptr().add(place)) };
                            sum = match max {
                                true => s.select(s.is_nan(value), value, s.max(value, sum)),
                                false => s.add(sum, value),
                            };
                        }
                    }
                }
                if !max {
                    sum = s.div(sum, s.splat(divisor as f32));
                }
                // SAFETY: the position lies in the line.
                unsafe { s.store(self.output.as_ptr().cast_mut().add(x * BLOCK + part), sum) };
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
    let until = |limit: usize| limit.saturating_sub(start).div_ceil(dilation).min(kernel);
    let first = until(pad_begin);
    let end = until(pad_begin + input).max(first);
    (first, end, until(pad_begin + input + pad_end))
}
