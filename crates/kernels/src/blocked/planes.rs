//! Pooling in the blocked layout: a vector is sixteen channels of one position.

use super::BLOCK;
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::pooling::{PoolingGeometry, for_each_line, max_lanes};
use crate::simd::{Kernel, Simd, dispatch};

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
    max_lanes::<BLOCK>(volumes(channels, geometry)?, geometry, input, output)
}

/// The planes of blocks that images of so many channels have.
fn volumes(channels: usize, geometry: &PoolingGeometry) -> Result<usize, KernelError> {
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

impl Kernel for Pool<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let geometry = self.geometry;
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
                    let z = geometry.place(0, self.at[0], kz);
                    for ky in rows.0..rows.1 {
                        let y = geometry.place(1, self.at[1], ky);
                        for kx in columns.0..columns.1 {
                            let column = geometry.place(2, x, kx);
                            let place = ((z * geometry.input[1] + y) * geometry.input[2] + column) * BLOCK + part;
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
