//! Depthwise convolution in the blocked layout: a vector is sixteen channels of one position.
//!
//! A tile is some neighbouring positions of one line, whose sums stay in registers. For each line of the kernel the
//! columns that the tile reads are loaded once, and each is multiplied by all taps that meet it.

use super::direct::PlaneView;
use super::{BLOCK, blocked_len};
use crate::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use crate::epilogue::{Activation, Channelwise};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::packed::Packed;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::unary;
use std::ops::Range;

/// Output elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// The most columns that a tile reads of one line.
const MOST_COLUMNS: usize = 18;

/// The weights of a depthwise convolution, tap by tap in blocks of sixteen channels.
#[derive(Debug)]
pub struct BlockedDepthwise {
    channels: usize,
    taps: [usize; 2],
    values: Packed<f32>,
}

impl BlockedDepthwise {
    /// Packs the weights `[channels, 1, height, width]` of a depthwise convolution.
    ///
    /// # Errors
    /// The geometry is not depthwise (groups equal to both channels) or has a depth, or the weights do not fit it.
    pub fn pack(geometry: &ConvolutionGeometry, weights: &[f32]) -> Result<Self, KernelError> {
        let [groups, outputs, inputs, high, wide] = geometry.channels_and_kernel();
        if groups != outputs || groups != inputs || geometry.has_depth() {
            return Err(KernelError::invalid("geometry", "is not a depthwise convolution of planes"));
        }
        check_exact("weights", weights.len(), geometry.weights_len())?;
        let taps = high * wide;
        let mut values = Packed::zeroed(groups.div_ceil(BLOCK) * taps * BLOCK);
        for (channel, kernel) in weights.chunks_exact(taps.max(1)).enumerate() {
            let block = &mut values[channel / BLOCK * taps * BLOCK..][..taps * BLOCK];
            for (lanes, weight) in block.as_chunks_mut::<BLOCK>().0.iter_mut().zip(kernel) {
                lanes[channel % BLOCK] = *weight;
            }
        }
        Ok(Self { channels: groups, taps: [high, wide], values })
    }
}

/// Depthwise convolution of blocked tensors.
///
/// # Errors
/// The weights were packed for another shape, or a slice has the wrong length.
pub fn blocked_depthwise(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &BlockedDepthwise,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let [channels, outputs, inputs, high, wide] = geometry.channels_and_kernel();
    let taps = [high, wide];
    let is_depthwise = channels == outputs && channels == inputs && !geometry.has_depth();
    if !is_depthwise || channels != weights.channels || taps != weights.taps {
        return Err(KernelError::invalid("weights", "packed for another shape"));
    }
    let view = geometry.plane();
    let (plane, positions) = (view.input[0] * view.input[1], view.output[0] * view.output[1]);
    check_exact("input", input.len(), blocked_len(view.batch, channels, plane))?;
    check_exact("output", output.len(), blocked_len(view.batch, channels, positions))?;
    epilogue.check_accumulating(channels, output.len())?;
    if output.is_empty() {
        return Ok(());
    }
    let (blocks, count) = (channels.div_ceil(BLOCK), high * wide);
    let shared = SharedMut::new(output);
    let work = (shared.len() as u64).saturating_mul(count as u64) / 16;
    let (lines, line) = (view.output[0], view.output[1] * BLOCK);
    // Lines are the units, so that one block of channels can spread over threads.
    let grain = CHUNK.div_ceil(line).max(lines.min(8));
    parallel_for(view.batch * blocks * lines, grain, work, |range| {
        let mut first = range.start;
        while first < range.end {
            let (plane_index, y) = (first / lines, first % lines);
            let block = plane_index % blocks;
            let end = range.end.min((plane_index + 1) * lines);
            let lanes = BLOCK.min(channels - block * BLOCK);
            let vector = |values: &[f32]| {
                let mut vector = [0.0f32; BLOCK];
                vector[..lanes].copy_from_slice(&values[block * BLOCK..][..lanes]);
                vector
            };
            let part = epilogue.part(0, 0, 0, 0);
            // SAFETY: lines are disjoint and within the output.
            let output = unsafe { shared.slice(first * line..end * line) };
            let pointer = output.as_mut_ptr();
            let residual = match epilogue.residual {
                Some(values) => values[first * line..end * line].as_ptr(),
                None if epilogue.accumulates => pointer.cast_const(),
                None => std::ptr::null(),
            };
            let call = Lines {
                view,
                taps,
                lines: y..y + end - first,
                weights: &weights.values[block * count * BLOCK..][..count * BLOCK],
                input: &input[plane_index * plane * BLOCK..][..plane * BLOCK],
                residual,
                bias: epilogue.bias.map_or([0.0; BLOCK], vector),
                slopes: match epilogue.activation {
                    Activation::PRelu(Channelwise::PerRow(slopes)) => Some(vector(slopes)),
                    _ => None,
                },
                limits: part.limits(),
                output: pointer,
            };
            dispatch(isa, call);
            if let (Activation::Unary(op), true) = (epilogue.activation, part.needs_pass()) {
                // SAFETY: the lines lie in the output.
                unsafe { unary::apply(isa, op, pointer, pointer, (end - first) * line) };
            }
            first = end;
        }
    });
    Ok(())
}

/// Lines of one block of channels.
struct Lines<'a> {
    view: PlaneView,
    taps: [usize; 2],
    lines: Range<usize>,
    weights: &'a [f32],
    input: &'a [f32],
    /// As many values as the output, perhaps the output itself, or null.
    residual: *const f32,
    bias: [f32; BLOCK],
    slopes: Option<[f32; BLOCK]>,
    limits: (f32, f32),
    output: *mut f32,
}

impl Kernel for Lines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // A tile of N positions, with stride T and kernels K wide, reads (N - 1) T + K columns, at most as many as
        // registers hold beside the sums.
        macro_rules! tiles {
            ($stride:literal $wide:literal: $($count:literal)*) => {
                match best_tile(self.view.output[1], &[$($count),*]) {
                    $($count => self.tiles::<S, $stride, $wide, $count>(s),)*
                    _ => self.positions(s),
                }
            };
        }
        match (self.view.dilation[1], self.view.stride[1], self.taps[1], S::LANES == BLOCK) {
            (1, 1, 1, true) => tiles!(1 1: 4 7 8),
            (1, 1, 2, true) => tiles!(1 2: 4 7 8),
            (1, 1, 3, true) => tiles!(1 3: 4 6 7 8 10 12),
            (1, 1, 5, true) => tiles!(1 5: 4 6 7 8 10),
            (1, 1, 7, true) => tiles!(1 7: 4 6 7 8),
            (1, 2, 3, true) => tiles!(2 3: 4 6 7 8),
            (1, 2, 5, true) => tiles!(2 5: 4 6 7),
            (1, 1, 3, false) => tiles!(1 3: 4 6),
            (1, 1, 5, false) => tiles!(1 5: 4),
            (1, 2, 3, false) => tiles!(2 3: 4),
            _ => self.positions(s),
        }
    }
}

/// Of some lengths of tiles, in order, the one that covers a line with the least work.
fn best_tile(line: usize, lengths: &[usize]) -> usize {
    // What comes before and after the sums of a tile takes as long as two positions.
    lengths.iter().copied().rev().min_by_key(|length| line.div_ceil(*length) * (length + 2)).unwrap_or(0)
}

impl Lines<'_> {
    /// Computes all lines in tiles of `N` positions.
    #[inline(always)]
    fn tiles<S: Simd, const T: usize, const K: usize, const N: usize>(&self, s: S) {
        let wide = self.view.output[1];
        let (pad, width) = (self.view.pad[1], self.view.input[1]);
        for y in self.lines.clone() {
            for x in (0..wide).step_by(N) {
                let count = N.min(wide - x);
                let is_inside = count == N && x * T >= pad && (x + N - 1) * T + K <= width + pad;
                for part in (0..BLOCK).step_by(S::LANES) {
                    // SAFETY: the positions lie in the line and, where `is_inside`, what they read in the width.
                    unsafe {
                        if is_inside {
                            self.tile::<S, T, K, N, false>(s, part, [y, x], count);
                        } else {
                            self.tile::<S, T, K, N, true>(s, part, [y, x], count);
                        }
                    }
                }
            }
        }
    }

    /// Computes `count` positions from `x` on; columns outside of the input are zeros at an `EDGE`.
    ///
    /// # Safety
    /// The positions lie in the line. Without `EDGE` there are `N`, and all columns that they read lie in the input.
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize, const K: usize, const N: usize, const EDGE: bool>(
        &self,
        s: S,
        part: usize,
        [y, x]: [usize; 2],
        count: usize,
    ) {
        const { assert!((N - 1) * T + K <= MOST_COLUMNS, "a tile reads more columns than there is room for") };
        let width = self.view.input[1];
        let mut sums = [s.splat(0.0); N];
        // Columns before the first one wrap around, and are then beyond the width.
        let first = (x * T).wrapping_sub(self.view.pad[1]);
        for ky in 0..self.taps[0] {
            let Some(row) = self.view.at(0, y, ky) else { continue };
            let mut columns = [s.splat(0.0); MOST_COLUMNS];
            for (offset, column) in columns.iter_mut().enumerate().take((N - 1) * T + K) {
                let at = first.wrapping_add(offset);
                if !EDGE || at < width {
                    // SAFETY: the column lies in the row, which `at` has found inside the input.
                    *column = unsafe { s.load(self.input.as_ptr().add((row * width + at) * BLOCK + part)) };
                }
            }
            for kx in 0..K {
                // SAFETY: there are as many blocks of weights as taps.
                let weight = unsafe { s.load(self.weights.as_ptr().add((ky * K + kx) * BLOCK + part)) };
                for (index, sum) in sums.iter_mut().enumerate() {
                    *sum = s.fma(columns[index * T + kx], weight, *sum);
                }
            }
        }
        for (index, sum) in sums.into_iter().enumerate() {
            if !EDGE || index < count {
                // SAFETY: the position lies in the line.
                unsafe { self.finish(s, part, [y, x + index], sum) };
            }
        }
    }

    /// Computes all positions of all lines, whatever the kernel: eight at a time where all their taps lie inside the
    /// width, one at a time elsewhere.
    #[inline(always)]
    fn positions<S: Simd>(&self, s: S) {
        let (low, end) = interior(&self.view, self.taps[1]);
        for y in self.lines.clone() {
            let mut x = 0;
            while x < self.view.output[1] {
                let count = if x >= low && x + 8 <= end { 8 } else { 1 };
                for part in (0..BLOCK).step_by(S::LANES) {
                    // SAFETY: the positions lie in the line, and the taps of eight of them in the width.
                    unsafe {
                        match count {
                            8 => self.eight(s, part, [y, x]),
                            _ => self.position(s, part, [y, x]),
                        }
                    }
                }
                x += count;
            }
        }
    }

    /// Computes eight neighbouring positions.
    ///
    /// # Safety
    /// The positions lie in the line, and all their taps in the width of the input.
    #[inline(always)]
    unsafe fn eight<S: Simd>(&self, s: S, part: usize, [y, x]: [usize; 2]) {
        let (view, mut sums) = (&self.view, [s.splat(0.0); 8]);
        let first = x * view.stride[1] - view.pad[1];
        for ky in 0..self.taps[0] {
            let Some(row) = view.at(0, y, ky) else { continue };
            for kx in 0..self.taps[1] {
                let place = row * view.input[1] + first + kx * view.dilation[1];
                // SAFETY: the taps lie in the input, and there are as many blocks of weights as taps.
                unsafe {
                    let weight = s.load(self.weights.as_ptr().add((ky * self.taps[1] + kx) * BLOCK + part));
                    let from = self.input.as_ptr().add(place * BLOCK + part);
                    for (index, sum) in sums.iter_mut().enumerate() {
                        *sum = s.fma(s.load(from.add(index * view.stride[1] * BLOCK)), weight, *sum);
                    }
                }
            }
        }
        for (index, sum) in sums.into_iter().enumerate() {
            // SAFETY: the position lies in the line.
            unsafe { self.finish(s, part, [y, x + index], sum) };
        }
    }

    /// Computes one position, every other tap into a sum of its own.
    ///
    /// # Safety
    /// The position lies in the line.
    #[inline(always)]
    unsafe fn position<S: Simd>(&self, s: S, part: usize, [y, x]: [usize; 2]) {
        let mut sums = [s.splat(0.0); 2];
        for ky in 0..self.taps[0] {
            let Some(row) = self.view.at(0, y, ky) else { continue };
            for kx in 0..self.taps[1] {
                let Some(column) = self.view.at(1, x, kx) else { continue };
                // SAFETY: the tap lies in the input, and there are as many blocks of weights as taps.
                unsafe {
                    let weight = s.load(self.weights.as_ptr().add((ky * self.taps[1] + kx) * BLOCK + part));
                    let from = self.input.as_ptr().add((row * self.view.input[1] + column) * BLOCK + part);
                    sums[kx % 2] = s.fma(s.load(from), weight, sums[kx % 2]);
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.finish(s, part, [y, x], s.add(sums[0], sums[1])) };
    }

    /// Adds bias and residual to a sum, applies slopes and limits, and stores it.
    ///
    /// # Safety
    /// The position lies in the lines.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: S, part: usize, [y, x]: [usize; 2], sum: S::F) {
        let place = ((y - self.lines.start) * self.view.output[1] + x) * BLOCK + part;
        // SAFETY: the part lies in a block, and the place in the output and the residual.
        unsafe {
            let mut sum = s.add(sum, s.load(self.bias.as_ptr().add(part)));
            if !self.residual.is_null() {
                sum = s.add(sum, s.load(self.residual.add(place)));
            }
            if let Some(slopes) = &self.slopes {
                let scaled = s.mul(sum, s.load(slopes.as_ptr().add(part)));
                sum = s.select(s.lt(sum, s.splat(0.0)), scaled, sum);
            }
            let (low, high) = (s.splat(self.limits.0), s.splat(self.limits.1));
            s.store(self.output.add(place), s.min(high, s.max(low, sum)));
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
