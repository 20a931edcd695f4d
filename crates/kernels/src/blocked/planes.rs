//! Pooling in the blocked layout: a vector is sixteen channels of one position.

use super::direct::PlaneView;
use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

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

/// A pooling over planes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedPooling {
    /// Images.
    pub batch: usize,
    /// Channels; the tensors hold whole blocks.
    pub channels: usize,
    /// Height and width of the input.
    pub input: [usize; 2],
    /// Height and width of the output, whichever way they were rounded.
    pub output: [usize; 2],
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Steps between windows.
    pub stride: [usize; 2],
    /// Steps inside a window.
    pub dilation: [usize; 2],
    /// Padding before each axis.
    pub pad_begin: [usize; 2],
    /// Padding after each axis.
    pub pad_end: [usize; 2],
}

/// Pools blocked tensors.
///
/// # Errors
/// A slice has the wrong length, a kernel, stride or dilation is zero, or sizes overflow.
pub fn blocked_pooling(
    isa: Isa,
    kind: PoolingKind,
    pooling: &BlockedPooling,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let BlockedPooling { batch, channels, kernel, stride, dilation, pad_begin, pad_end, .. } = *pooling;
    let view = PlaneView { batch, input: pooling.input, output: pooling.output, stride, dilation, pad: pad_begin };
    for axis in 0..2 {
        if kernel[axis] == 0 || stride[axis] == 0 || dilation[axis] == 0 {
            return Err(KernelError::invalid("kernel", "kernel, stride or dilation is zero"));
        }
        let small = |value: usize| value < 1 << 30;
        let fits = [kernel, stride, dilation, pad_begin, pad_end, pooling.input, pooling.output]
            .iter()
            .all(|sizes| small(sizes[axis]));
        // The number does not fit where a usize has 32 bits.
        if !fits || kernel[axis] as u64 * dilation[axis] as u64 > 1 << 40 {
            return Err(KernelError::invalid("kernel", "sizes overflow"));
        }
    }
    let (plane, positions) = (view.input[0] * view.input[1], view.output[0] * view.output[1]);
    check_exact("input", input.len(), blocked_len(batch, channels, plane))?;
    check_exact("output", output.len(), blocked_len(batch, channels, positions))?;
    if output.is_empty() {
        return Ok(());
    }
    let shared = SharedMut::new(output);
    let taps = kernel[0].saturating_mul(kernel[1]) as u64;
    let work = (shared.len() as u64).saturating_mul(taps) / 16;
    let (lines, line) = (view.output[0], view.output[1] * BLOCK);
    let planes = batch * channels.div_ceil(BLOCK);
    parallel_for(planes * lines, CHUNK.div_ceil(line), work, |range| {
        for index in range {
            let (plane_index, y) = (index / lines, index % lines);
            let call = Pool {
                kind,
                view,
                kernel,
                pad_end,
                y,
                input: &input[plane_index * plane * BLOCK..][..plane * BLOCK],
                // SAFETY: lines are disjoint and within the output.
                output: unsafe { shared.slice(index * line..(index + 1) * line) },
            };
            dispatch(isa, call);
        }
    });
    Ok(())
}

struct Pool<'a> {
    kind: PoolingKind,
    view: PlaneView,
    kernel: [usize; 2],
    pad_end: [usize; 2],
    y: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Pool<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let rows = self.window(0, self.y);
        let max = self.kind == PoolingKind::Max;
        for x in 0..self.view.output[1] {
            let columns = self.window(1, x);
            let divisor = match self.kind {
                PoolingKind::AverageWithPadding => rows.2 * columns.2,
                _ => (rows.1 - rows.0) * (columns.1 - columns.0),
            };
            for part in (0..BLOCK).step_by(S::LANES) {
                let mut sum = s.splat(if max { f32::NEG_INFINITY } else { 0.0 });
                for ky in rows.0..rows.1 {
                    let y = self.y * self.view.stride[0] + ky * self.view.dilation[0] - self.view.pad[0];
                    for kx in columns.0..columns.1 {
                        let column = x * self.view.stride[1] + kx * self.view.dilation[1] - self.view.pad[1];
                        let place = (y * self.view.input[1] + column) * BLOCK + part;
                        // SAFETY: `window` keeps the taps inside the input.
                        let value = unsafe { s.load(self.input.as_ptr().add(place)) };
                        sum = if max { s.select(s.is_nan(value), value, s.max(value, sum)) } else { s.add(sum, value) };
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

impl Pool<'_> {
    /// The taps of an output position that lie inside the input, and the number that lie inside the padded input.
    #[inline(always)]
    fn window(&self, axis: usize, output: usize) -> (usize, usize, usize) {
        window(
            output * self.view.stride[axis],
            self.kernel[axis],
            self.view.dilation[axis],
            self.view.pad[axis],
            self.view.input[axis],
            self.pad_end[axis],
        )
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
