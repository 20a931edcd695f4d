//! Depthwise convolution and pooling in the blocked layout: a vector is sixteen channels of one position.

use super::direct::PlaneView;
use super::{BLOCK, blocked_len};
use crate::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use crate::epilogue::{Activation, Channelwise};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::unary;

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

/// Depthwise convolution of blocked tensors. The weights `[channels, 1, height, width]` are taken as they are, since
/// gathering them costs little.
///
/// # Errors
/// The geometry is not depthwise (groups equal to both channels), has a depth or more than 225 taps, or a slice has the
/// wrong length.
pub fn blocked_depthwise(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &[f32],
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let [groups, outputs, inputs, high, wide] = geometry.channels_and_kernel();
    if groups != outputs || groups != inputs || geometry.has_depth() {
        return Err(KernelError::invalid("geometry", "is not a depthwise convolution of planes"));
    }
    if high * wide > MOST_TAPS {
        return Err(KernelError::invalid("kernel", "has too many taps"));
    }
    let view = geometry.plane();
    let (plane, positions) = (view.input[0] * view.input[1], view.output[0] * view.output[1]);
    check_exact("weights", weights.len(), geometry.weights_len())?;
    check_exact("input", input.len(), blocked_len(view.batch, groups, plane))?;
    check_exact("output", output.len(), blocked_len(view.batch, groups, positions))?;
    epilogue.check(groups, output.len())?;
    if output.is_empty() {
        return Ok(());
    }
    let blocks = groups.div_ceil(BLOCK);
    let taps = high * wide;
    let shared = SharedMut::new(output);
    let work = (shared.len() as u64).saturating_mul(taps as u64) / 16;
    let lines = view.output[0];
    let line = view.output[1] * BLOCK;
    // Lines are the units, so that one block of channels can spread over threads; each chunk gathers its weights.
    let grain = CHUNK.div_ceil(line).max(lines.min(8));
    parallel_for(view.batch * blocks * lines, grain, work, |range| {
        let mut packed = [0.0f32; MOST_TAPS * BLOCK];
        let mut gathered = usize::MAX;
        for index in range {
            let (plane_index, y) = (index / lines, index % lines);
            let block = plane_index % blocks;
            let count = BLOCK.min(groups - block * BLOCK);
            if gathered != block {
                gathered = block;
                packed[..taps * BLOCK].fill(0.0);
                for lane in 0..count {
                    for tap in 0..taps {
                        packed[tap * BLOCK + lane] = weights[(block * BLOCK + lane) * taps + tap];
                    }
                }
            }
            let vector = |values: &[f32]| {
                let mut lanes = [0.0f32; BLOCK];
                lanes[..count].copy_from_slice(&values[block * BLOCK..][..count]);
                lanes
            };
            let part = epilogue.part(0, 0, 0, 0);
            let start = index * line;
            // SAFETY: lines are disjoint and within the output.
            let output = unsafe { shared.slice(start..start + line) };
            let call = Line {
                view,
                taps: [high, wide],
                y,
                weights: &packed,
                input: &input[plane_index * plane * BLOCK..][..plane * BLOCK],
                residual: epilogue.residual.map(|values| &values[start..start + line]),
                bias: epilogue.bias.map_or([0.0; BLOCK], vector),
                slopes: match epilogue.activation {
                    Activation::PRelu(Channelwise::PerRow(slopes)) => Some(vector(slopes)),
                    _ => None,
                },
                limits: part.limits(),
                output: &mut *output,
            };
            dispatch(isa, call);
            if let (Activation::Unary(op), true) = (epilogue.activation, part.needs_pass()) {
                let pointer = output.as_mut_ptr();
                // SAFETY: the line lies in the output.
                unsafe { unary::apply(isa, op, pointer, pointer, line) };
            }
        }
    });
    Ok(())
}

/// The most taps of a depthwise kernel.
const MOST_TAPS: usize = 225;

struct Line<'a> {
    view: PlaneView,
    taps: [usize; 2],
    y: usize,
    weights: &'a [f32],
    input: &'a [f32],
    residual: Option<&'a [f32]>,
    bias: [f32; BLOCK],
    slopes: Option<[f32; BLOCK]>,
    limits: (f32, f32),
    output: &'a mut [f32],
}

/// Positions whose sums one pass holds in registers.
const TILE: usize = 6;

impl Kernel for Line<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let wide = self.view.output[1];
        let (low, end) = interior(&self.view, self.taps[1]);
        for part in (0..BLOCK).step_by(S::LANES) {
            let mut x = 0;
            while x < wide {
                let inside = x >= low && x < end;
                // SAFETY: the positions lie in the line, and where `inside`, all their taps in the input's width.
                unsafe {
                    if inside && x + TILE <= end {
                        self.tile::<S, TILE>(s, part, x);
                        x += TILE;
                    } else {
                        self.tile::<S, 1>(s, part, x);
                        x += 1;
                    }
                }
            }
        }
    }
}

impl Line<'_> {
    /// Computes neighbouring positions of one line; several only where all their taps lie inside the width.
    ///
    /// # Safety
    /// The positions lie in the line.
    #[inline(always)]
    unsafe fn tile<S: Simd, const COUNT: usize>(&self, s: S, part: usize, x: usize) {
        // SAFETY: the part lies in a block, the taps that `at` yields inside the input.
        unsafe {
            let mut sums = [s.splat(0.0); COUNT];
            for ky in 0..self.taps[0] {
                let Some(y) = self.view.at(0, self.y, ky) else { continue };
                for kx in 0..self.taps[1] {
                    let Some(column) = self.view.at(1, x, kx) else { continue };
                    let weight = s.load(self.weights.as_ptr().add((ky * self.taps[1] + kx) * BLOCK + part));
                    let from = self.input.as_ptr().add((y * self.view.input[1] + column) * BLOCK + part);
                    for (index, sum) in sums.iter_mut().enumerate() {
                        *sum = s.fma(s.load(from.add(index * self.view.stride[1] * BLOCK)), weight, *sum);
                    }
                }
            }
            let (low, high) = (s.splat(self.limits.0), s.splat(self.limits.1));
            let bias = s.load(self.bias.as_ptr().add(part));
            for (index, sum) in sums.iter().enumerate() {
                let (mut sum, place) = (s.add(*sum, bias), (x + index) * BLOCK + part);
                if let Some(residual) = self.residual {
                    sum = s.add(sum, s.load(residual.as_ptr().add(place)));
                }
                if let Some(slopes) = &self.slopes {
                    let scaled = s.mul(sum, s.load(slopes.as_ptr().add(part)));
                    sum = s.select(s.lt(sum, s.splat(0.0)), scaled, sum);
                }
                s.store(self.output.as_ptr().cast_mut().add(place), s.min(high, s.max(low, sum)));
            }
        }
    }
}

/// Output columns whose taps all lie inside the width.
fn interior(view: &PlaneView, taps: usize) -> (usize, usize) {
    let wide = view.output[1];
    let inside = |x: usize| view.at(1, x, 0).is_some() && view.at(1, x, taps - 1).is_some();
    let low = (0..wide).find(|&x| inside(x)).unwrap_or(wide);
    let end = (low..wide).find(|&x| !inside(x)).unwrap_or(wide);
    (low, end)
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
