//! Direct convolution into the blocked layout.
//!
//! A tile holds the sums of neighbouring output positions (flattened, so that it may span lines) for one to three blocks
//! of output channels in registers. For each tap every position has a pointer into the input, or to zeros where the tap
//! lies in the padding; the tile then walks the input channels.
//!
//! A kernel with a depth is a sum of kernels of planes. A tile takes all taps along the depth, if their weights stay in the
//! second cache; else each of them adds the products of one input plane to what the output holds, and the last one that lies
//! inside the input applies bias and activation. A plain input is copied with
//! its channels inside of its depth, so that the taps along the depth are channels; or window by window, where windows do not
//! overlap.

use super::{BLOCK, blocked_len, window};
use crate::convolution::ConvolutionEpilogue;
use crate::convolution::ConvolutionGeometry;
use crate::epilogue::{Activation, Channelwise};
use crate::error::{KernelError, check_exact, check_len};
use crate::gemm::Value;
use crate::isa::{self, Isa, Tier};
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, parallel_chunks_mut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch, unrolled};
use crate::stream::{prefetch_far, prefetch_near, prefetch_tile};
use crate::tile::for_each_line;
use crate::unary;
use std::ops::Range;

/// The most positions of a tile of any number of blocks; tiles of one block that hold more hold an even number.
pub(super) const ANY_POSITIONS: usize = 14;

/// The most output blocks of a tile.
pub(super) const MOST_BLOCKS: usize = 3;

/// The most sums of a tile, in vectors.
pub(super) const MOST_SUMS: usize = 28;

/// The most positions of a tile of half a block: the first channels of one whose other half has none.
const HALF_POSITIONS: usize = 12;

/// How far apart neighbouring positions of a tile read, where that is a matter of the geometry.
pub(super) const APART: usize = 0;

/// The same, where the channels of a block belong to several groups, whole.
const SHARED: usize = usize::MAX;

/// The same, where groups begin and end inside of blocks.
const STRADDLING: usize = usize::MAX - 1;

/// The same, where the positions of a blocked input lie side by side and every tap lies inside.
pub(super) const SIDE_BY_SIDE: usize = usize::MAX - 2;

/// The same, where the positions of a blocked input lie side by side and some taps in the padding.
pub(super) const IN_LINE: usize = usize::MAX - 3;

/// The same, where every second position lies in the line.
const IN_LINE_BY_TWO: usize = usize::MAX - 5;

/// Both [`STRADDLING`] and [`SIDE_BY_SIDE`].
const STRADDLING_BESIDE: usize = usize::MAX - 4;

/// As [`IN_LINE`], of two groups that have half of a block each.
const PAIR_IN_LINE: usize = usize::MAX - 6;

/// As [`IN_LINE_BY_TWO`], of two groups that have half of a block each.
const PAIR_BY_TWO: usize = usize::MAX - 7;

/// Both [`SHARED`] and [`IN_LINE`].
const SHARED_IN_LINE: usize = usize::MAX - 8;

/// Both [`SHARED`] and [`IN_LINE_BY_TWO`].
const SHARED_BY_TWO: usize = usize::MAX - 9;

/// Whether tiles that read in this way belong to blocks of several groups, whole.
const fn shares(step: usize) -> bool {
    matches!(step, SHARED | SHARED_IN_LINE | SHARED_BY_TWO)
}

/// Whether tiles that read in this way belong to groups that begin and end inside of blocks.
const fn straddles(step: usize) -> bool {
    matches!(step, STRADDLING | STRADDLING_BESIDE | PAIR_IN_LINE | PAIR_BY_TWO)
}

/// The narrowest lines of a blocked input with which tiles end: where vectors are short, tiles of a whole line have too few sums
/// to hide how long one takes.
pub(super) fn narrowest(tier: Tier) -> usize {
    if tier == Tier::Avx512 { 4 } else { 12 }
}

/// The channels of half a block.
const HALF_BLOCK: usize = BLOCK / 2;

/// How many input channels before their turn weights are asked for: those of a layer seldom lie in the first cache.
const AHEAD: usize = 12;

/// How many blocks of input channels before their turn positions are asked for: the first channel of a block waits for all
/// positions of a tile, and planes that are large lie far away.
const BLOCKS_AHEAD: usize = 2;

/// How many positions behind those of a tile are asked for with them.
const FARTHEST_AHEAD: usize = 6;

/// How many tasks a layer is cut into, if each has at least [`SHORTEST_TASK`] floating-point operations.
pub(super) const TASKS: u64 = 32;

/// The floating-point operations of a task of a small layer: some microseconds.
pub(super) const SHORTEST_TASK: u64 = 400_000;

/// The floating-point operations of a task of a large layer.
pub(super) const LONGEST_TASK: u64 = 2_500_000;

/// The smallest second cache that is usual.
const SECOND_CACHE_BYTES: usize = 512 << 10;

/// The most bytes of the weights of a tile that reads all of them at once: they stay in the second cache beside what it reads.
const WEIGHTS_BYTES: usize = 384 << 10;

/// The bytes of the input that a band of positions reads: with the weights of a part and the lines that are stored, they stay in
/// the second cache.
const BAND_BYTES: usize = 160 << 10;

/// Up to how many products of vectors a step has that is repeated without counting.
const SHORT_STEP: usize = 12;

/// The most positions of tiles that are computed by one call, so that a function finds their values in the first cache.
const LONGEST_RUN: usize = 96;

/// Shorter windows are read where they lie.
const SHORTEST_PATCH: usize = 32;

/// The layout of a convolution's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedInput {
    /// `[N, C, D, H, W]`; meant for first layers with few channels.
    Plain,
    /// `[N, ceil(C / 16), D, H, W, 16]`.
    Blocked,
}

/// Weights of a convolution into the blocked layout, packed once. They serve every tier, image size, stride, dilation
/// and padding that [`BlockedConvolution::can_be`] allows.
#[derive(Debug, Clone)]
pub struct BlockedConvolution {
    input: BlockedInput,
    shape: [usize; 6],
    /// `[output block, tap, input channel, 16 output channels]`, input channels those of one group; of straddling groups
    /// `[output block, group in it, tap, input channel, 16 output channels]`. Taps along the depth are the outermost ones; of
    /// a plain input they are part of the channels, as the outer ones.
    values: Packed<f32>,
    /// For each output block of straddling groups, what it is made of.
    straddling: Vec<Mixture>,
}

/// The groups that an output block of straddling groups has channels of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mixture {
    /// The first of them.
    first_group: usize,
    /// How many there are.
    groups: usize,
    /// Where the weights begin.
    weights: usize,
    /// Whether there are two, each with half of the block: they have the same weights, those of the lanes of either.
    is_pair: bool,
    /// For each lane, how many groups after the first one it belongs to.
    lanes: [u32; BLOCK],
}

impl BlockedConvolution {
    /// Packs the weights `[output channels, input channels per group, depth, height, width]` for this layout of the input.
    ///
    /// # Errors
    /// The number of weights is wrong, or [`BlockedConvolution::can_be`] does not allow the geometry.
    pub fn pack<T: Value>(
        geometry: &ConvolutionGeometry,
        input: BlockedInput,
        weights: &[T],
    ) -> Result<Self, KernelError> {
        check_exact("weights", weights.len(), geometry.weights_len())?;
        let shape = shape(geometry);
        let [groups, outputs, inputs, deep, high, wide] = shape;
        check_geometry(geometry, input)?;
        let whole = outputs.is_multiple_of(groups * BLOCK) && inputs.is_multiple_of(groups * BLOCK);
        if groups > 1 && !whole && !Self::shares_blocks(outputs / groups, inputs / groups) {
            return Ok(Self::pack_straddling(input, shape, weights));
        }
        let (inputs, plane, taps) = (inputs / groups, high * wide, deep * high * wide);
        let blocks = outputs.div_ceil(BLOCK);
        let steps = taps * inputs;
        let mut values = Packed::zeroed(blocks * steps * BLOCK);
        let work = nanoseconds_for_bytes(8 * blocks * steps * BLOCK);
        parallel_chunks_mut(&mut values, (steps * BLOCK).max(1), work, |block, target| {
            let rows = BLOCK.min(outputs - block * BLOCK);
            let of_block = &weights[block * BLOCK * steps..][..rows * steps];
            let (mut channel, mut tap) = (0, 0);
            for_each_line(isa::detect(), of_block, steps, rows, steps, |_, line: &[f32; BLOCK]| {
                let step = match input {
                    BlockedInput::Plain => (tap % plane * deep + tap / plane) * inputs + channel,
                    BlockedInput::Blocked => tap * inputs + channel,
                };
                target[step * BLOCK..][..BLOCK].copy_from_slice(line);
                tap += 1;
                if tap == taps {
                    (channel, tap) = (channel + 1, 0);
                }
            });
        });
        Ok(Self { input, shape, values, straddling: Vec::new() })
    }

    /// Whether convolutions of a geometry can be computed from this layout of the input: a plain input cannot have groups,
    /// a dilation along the depth, or a depth with padding that is far more than the input.
    #[must_use]
    pub fn can_be(geometry: &ConvolutionGeometry, input: BlockedInput) -> bool {
        check_geometry(geometry, input).is_ok()
    }

    fn pack_straddling<T: Value>(input: BlockedInput, shape: [usize; 6], weights: &[T]) -> Self {
        let [groups, outputs, inputs, deep, high, wide] = shape;
        let (of_group, inputs, taps) = (outputs / groups, inputs / groups, deep * high * wide);
        let mut values = Vec::new();
        let mut straddling = Vec::with_capacity(outputs.div_ceil(BLOCK));
        for first in (0..outputs).step_by(BLOCK) {
            let last = (first + BLOCK).min(outputs) - 1;
            let (first_group, last_group) = (first / of_group, last / of_group);
            let lanes = std::array::from_fn(|lane| ((first + lane).min(last) / of_group - first_group) as u32);
            let count = last_group + 1 - first_group;
            let start = values.len();
            let is_pair = count == 2 && lanes.iter().filter(|group| **group == 0).count() == HALF_BLOCK;
            straddling.push(Mixture { first_group, groups: count, weights: start, is_pair, lanes });
            let matrices = if is_pair { 1 } else { count };
            values.resize(start + matrices * taps * inputs * BLOCK, 0.0);
            for output in first..=last {
                let group = if is_pair { 0 } else { output / of_group - first_group };
                for (channel, tap) in (0..inputs).flat_map(|channel| (0..taps).map(move |tap| (channel, tap))) {
                    let place = ((group * taps + tap) * inputs + channel) * BLOCK + output % BLOCK;
                    values[start + place] = weights[(output * inputs + channel) * taps + tap].widen();
                }
            }
        }
        Self { input, shape, values: values.into(), straddling }
    }

    /// Whether groups of so many output and input channels lie in one block with others, whole.
    #[must_use]
    pub const fn shares_blocks(outputs: usize, inputs: usize) -> bool {
        matches!(outputs, 2 | 4 | 8 | 16) && matches!(inputs, 1 | 2 | 4 | 8) && inputs <= outputs
    }

    /// How many times as many products as needed are computed for groups of so many output channels: blocks with channels
    /// of several groups take the products of all of these, but where two have half of a block each. (Tiles that do not read in
    /// lines, as of pointwise kernels, take those of both all the same.)
    #[must_use]
    pub fn waste(groups: usize, outputs: usize) -> f64 {
        let total = groups.saturating_mul(outputs).max(1);
        let blocks = total.div_ceil(BLOCK);
        let touched = (0..blocks).map(|block| {
            let last = (block * BLOCK + BLOCK).min(total) - 1;
            match last / outputs.max(1) + 1 - block * BLOCK / outputs.max(1) {
                2 if (block * BLOCK + HALF_BLOCK).is_multiple_of(outputs.max(1)) => 1,
                touched => touched,
            }
        });
        touched.sum::<usize>() as f64 * BLOCK as f64 / total as f64
    }

    /// The layout of the input that they are for.
    #[must_use]
    pub fn input(&self) -> BlockedInput {
        self.input
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.values)
    }
}

/// The estimated time of [`blocked_convolution`] on one thread, in nanoseconds. The last block of output channels takes as long as
/// a whole one.
#[must_use]
pub fn blocked_convolution_nanoseconds(geometry: &ConvolutionGeometry) -> u64 {
    nanoseconds_for_flops(geometry.flops_of_blocks(BLOCK))
}

/// Elements of scratch that [`blocked_convolution`] needs: a copy of a plain input, padded or patch by patch. Checking
/// every tap of so few channels would take longer than multiplying.
#[must_use]
pub fn blocked_convolution_scratch_len(geometry: &ConvolutionGeometry, input: BlockedInput) -> usize {
    if input == BlockedInput::Plain && has_patches(geometry) {
        let (view, depth) = (geometry.plane(), geometry.depth());
        let positions = depth.output.saturating_mul(view.output[0]).saturating_mul(view.output[1]);
        return blocked_len(view.batch, patch_len(geometry), positions);
    }
    match (input, padded(geometry)) {
        (BlockedInput::Plain, Some(covered)) => {
            let [_, _, inputs, ..] = geometry.channels_and_kernel();
            covered
                .iter()
                .fold(geometry.plane().batch.saturating_mul(inputs), |total, size| total.saturating_mul(*size))
        }
        _ => 0,
    }
}

/// An error if a convolution cannot be computed from this layout of the input.
fn check_geometry(geometry: &ConvolutionGeometry, input: BlockedInput) -> Result<(), KernelError> {
    let [groups, ..] = geometry.channels_and_kernel();
    let depth = geometry.depth();
    match input {
        BlockedInput::Plain if groups > 1 => {
            Err(KernelError::invalid("groups", "are more than one, and the input is plain"))
        }
        BlockedInput::Plain if geometry.has_depth() && depth.taps > 1 && depth.dilation > 1 => {
            Err(KernelError::invalid("geometry", "has a dilation along the depth, and the input is plain"))
        }
        BlockedInput::Plain if geometry.has_depth() && geometry.covered().is_none() => {
            Err(KernelError::invalid("geometry", "has a depth and far more padding than the plain input"))
        }
        _ => Ok(()),
    }
}

/// Whether all windows lie inside the input, as far as planes go.
fn is_inside(geometry: &ConvolutionGeometry) -> bool {
    let view = geometry.plane();
    let fits = |[_, high, wide]: [usize; 3]| view.pad == [0, 0] && high <= view.input[0] && wide <= view.input[1];
    geometry.covered().is_some_and(fits)
}

/// The size `[depth, height, width]` of the copy of a plain input that all windows lie in, if there has to be one and it is
/// not far larger. With a depth there always has to be, since channels come inside of it.
fn padded(geometry: &ConvolutionGeometry) -> Option<[usize; 3]> {
    geometry.covered().filter(|_| geometry.has_depth() || !is_inside(geometry))
}

/// Values of one window.
fn patch_len(geometry: &ConvolutionGeometry) -> usize {
    let [_, _, inputs, high, wide] = geometry.channels_and_kernel();
    inputs * geometry.depth().taps * high * wide
}

/// Whether windows do not overlap, so that a copy window by window is no larger than the input, and are worth it.
fn has_patches(geometry: &ConvolutionGeometry) -> bool {
    let [groups, _, _, high, wide] = geometry.channels_and_kernel();
    let (view, depth) = (geometry.plane(), geometry.depth());
    let axes = [depth, view.axis(0, high), view.axis(1, wide)];
    let is_apart = axes.iter().all(|axis| axis.stride >= axis.taps && (axis.dilation == 1 || axis.taps == 1));
    groups == 1 && is_apart && patch_len(geometry) >= SHORTEST_PATCH
}

/// Copies the windows of a plain input into blocks, each value of a window as a channel of its own: taps of planes first, then
/// those along the depth, then channels, as weights have them.
fn copy_patches(geometry: &ConvolutionGeometry, input: &[f32], output: &mut [f32]) {
    let (view, depth) = (geometry.plane(), geometry.depth());
    let [_, _, inputs, _, wide] = geometry.channels_and_kernel();
    let ([lines, columns], len) = (view.input, patch_len(geometry));
    let positions = depth.output * view.output[0] * view.output[1];
    let is_whole = depth.whole();
    let is_inside = is_inside(geometry) && is_whole.start == 0 && is_whole.end >= depth.output;
    let blocks = len.div_ceil(BLOCK);
    let work = nanoseconds_for_bytes(output.len().saturating_mul(8));
    parallel_chunks_mut(output, positions * BLOCK, work, |first, chunks| {
        for (offset, chunk) in chunks.chunks_exact_mut(positions * BLOCK).enumerate() {
            let (image, block) = ((first + offset) / blocks, (first + offset) % blocks);
            // Lanes beyond the window repeat its last value, which nobody reads.
            let elements: [usize; BLOCK] = std::array::from_fn(|lane| (block * BLOCK + lane).min(len - 1));
            let (channels, places) =
                (elements.map(|element| element % inputs), elements.map(|element| element / inputs));
            let deep = places.map(|place| place % depth.taps);
            let taps = places.map(|place| [place / depth.taps / wide, place / depth.taps % wide]);
            let planes = channels.map(|channel| (image * inputs + channel) * depth.input * lines * columns);
            let steps: [usize; BLOCK] = std::array::from_fn(|lane| {
                planes[lane] + (deep[lane] * lines + taps[lane][0]) * columns + taps[lane][1]
            });
            for (position, lanes) in chunk.chunks_exact_mut(BLOCK).enumerate() {
                let [line, x] = [position / view.output[1], position % view.output[1]];
                let [z, y] = [line / view.output[0], line % view.output[0]];
                if is_inside {
                    let first = (z * depth.stride * lines + y * view.stride[0]) * columns + x * view.stride[1];
                    let window = &input[first..];
                    lanes.iter_mut().zip(&steps).for_each(|(target, step)| *target = window[*step]);
                    continue;
                }
                let inside = depth.inside(z);
                for (lane, target) in lanes.iter_mut().enumerate() {
                    let [down, right] = taps[lane];
                    let plane = inside.contains(&deep[lane]).then(|| depth.place(z, deep[lane]));
                    let place = plane.zip(view.at(0, y, down).zip(view.at(1, x, right)));
                    *target = place.map_or(0.0, |(z, (y, x))| input[planes[lane] + (z * lines + y) * columns + x]);
                }
            }
        }
    });
}

/// Copies each plane into zeros of the size `[high, wide]`, behind the padding before its axes, and puts the channels inside
/// of a depth of the size `deep`.
fn pad_planes(
    view: &PlaneView,
    depth: &AxisView,
    channels: usize,
    [deep, high, wide]: [usize; 3],
    input: &[f32],
    output: &mut [f32],
) {
    let ([lines, columns], [top, left]) = (view.input, view.pad);
    let (first, last) = (left.min(wide), (left + columns).min(wide));
    let work = nanoseconds_for_bytes(output.len().saturating_mul(8));
    parallel_chunks_mut(output, high * wide, work, |first_plane, planes| {
        for (offset, plane) in planes.chunks_exact_mut(high * wide).enumerate() {
            let (rest, channel) = ((first_plane + offset) / channels, (first_plane + offset) % channels);
            let (image, z) = (rest / deep, rest % deep);
            let Some(z) = z.checked_sub(depth.pad).filter(|z| *z < depth.input) else {
                plane.fill(0.0);
                continue;
            };
            let index = (image * channels + channel) * depth.input + z;
            let source = &input[index * lines * columns..][..lines * columns];
            for (y, line) in plane.chunks_exact_mut(wide).enumerate() {
                let Some(row) = y.checked_sub(top).filter(|row| *row < lines) else {
                    line.fill(0.0);
                    continue;
                };
                line[..first].fill(0.0);
                line[first..last].copy_from_slice(&source[row * columns..][..last - first]);
                line[last..].fill(0.0);
            }
        }
    });
}

/// Convolves into the blocked layout. `input` has the layout the weights were packed for; `output` and a residual of
/// the epilogue are blocked. Bias and slopes are indexed by channel. `scratch` has
/// [`blocked_convolution_scratch_len`] elements.
///
/// # Errors
/// A slice has the wrong length, the weights were packed for another shape, or [`BlockedConvolution::can_be`] does not allow
/// the geometry.
pub fn blocked_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &BlockedConvolution,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let (mut view, mut depth) = (geometry.plane(), geometry.depth());
    let [groups, outputs, inputs, _, high, wide] = weights.shape;
    if weights.shape != shape(geometry) {
        return Err(KernelError::invalid("weights", "packed for another shape"));
    }
    check_geometry(geometry, weights.input)?;
    let (plane, mut positions) = (view.input[0] * view.input[1], view.output[0] * view.output[1]);
    let input_len = match weights.input {
        BlockedInput::Plain => geometry.input_len(),
        BlockedInput::Blocked => blocked_len(view.batch, inputs, depth.input.saturating_mul(plane)),
    };
    check_exact("input", input.len(), input_len)?;
    check_exact("output", output.len(), blocked_len(view.batch, outputs, depth.output.saturating_mul(positions)))?;
    epilogue.check_accumulating(outputs, output.len())?;
    check_len("scratch", scratch.len(), blocked_convolution_scratch_len(geometry, weights.input))?;
    if output.is_empty() {
        return Ok(());
    }
    let (mut input, mut layout, mut taps) = (input, weights.input, [high, wide]);
    let (mut inputs, mut plane_step) = (inputs, 0);
    let mut is_dense = layout == BlockedInput::Plain && is_inside(geometry);
    if layout == BlockedInput::Plain && has_patches(geometry) {
        // A convolution of windows is a product of each position with channels that are the values of its window.
        let copy = &mut scratch[..blocked_convolution_scratch_len(geometry, layout)];
        copy_patches(geometry, input, copy);
        (input, layout, taps, inputs) = (copy, BlockedInput::Blocked, [1, 1], patch_len(geometry));
        // The planes of a depth follow each other, line by line.
        let output = [depth.output * view.output[0], view.output[1]];
        view = PlaneView { input: output, output, stride: [1, 1], dilation: [1, 1], pad: [0, 0], ..view };
        depth = AxisView { input: 1, output: 1, taps: 1, stride: 1, dilation: 1, pad: 0 };
        positions = output[0] * output[1];
        is_dense = false;
    } else if let (BlockedInput::Plain, Some(covered)) = (layout, padded(geometry)) {
        let copy = &mut scratch[..blocked_convolution_scratch_len(geometry, layout)];
        pad_planes(&view, &depth, inputs, covered, input, copy);
        (input, view.input, view.pad) = (copy, [covered[1], covered[2]], [0, 0]);
        is_dense = true;
        // Taps along the depth are channels now, since the channels of a plane lie beside those of the next one.
        plane_step = inputs * covered[1] * covered[2];
        inputs *= depth.taps;
        depth = AxisView { input: covered[0], taps: 1, pad: 0, ..depth };
    }
    let (lanes, plane) = (if layout == BlockedInput::Plain { 1 } else { BLOCK }, view.input[0] * view.input[1]);
    let channel_step = if plane_step == 0 { depth.input * plane * lanes } else { plane };
    let plane_step = if plane_step == 0 { plane * lanes } else { plane_step };
    let shares_blocks = groups > 1 && BlockedConvolution::shares_blocks(outputs / groups, inputs / groups);
    let is_straddling = !weights.straddling.is_empty();
    let (inputs, group_outputs) = (inputs / groups, outputs / groups);
    // Groups that lie in one block, and those that straddle blocks, are one task a block.
    let groups = if shares_blocks || is_straddling { outputs.div_ceil(BLOCK) } else { groups };
    // Other tiers take several instructions for the channels of several groups, beside which finding them takes little.
    let has_lines = !shares_blocks || isa.tier() == Tier::Avx512;
    let ends_with_lines = layout == BlockedInput::Plain
        || (taps != [1, 1] && view.stride[1] <= 2 && view.output[1] >= narrowest(isa.tier()) && has_lines);
    // Where a vector is half a block, channels that would fill the other half alone are not computed.
    let is_halved = isa.tier() == Tier::Avx2
        && groups == 1
        && !shares_blocks
        && !is_straddling
        && matches!(outputs % BLOCK, 1..=HALF_BLOCK);
    let job = Job {
        isa,
        weights,
        layout,
        is_halved,
        epilogue,
        input,
        image_step: input.len() / view.batch.max(1),
        channel_step,
        plane_step,
        view,
        depth,
        is_dense,
        ends_with_lines,
        shares_blocks,
        groups,
        group_outputs,
        inputs,
        taps,
        blocks: outputs.div_ceil(BLOCK),
        per_group: (outputs / groups).div_ceil(BLOCK),
        positions,
        output: SharedMut::new(output),
    };
    let span = if ends_with_lines { view.output[1] } else { positions };
    let parts = Parts::of_span(isa, job.per_group, span);
    let (tile, channels) =
        (job.tile(&parts, 0, span), if job.is_half(0) { HALF_BLOCK } else { parts.of(0).len() * BLOCK });
    let tile_flops = 2 * tile * channels * inputs * depth.taps * taps[0] * taps[1];
    let tiles = positions.div_ceil(tile);
    // Enough tasks to share evenly, each far longer than what it takes to hand it out.
    // With a depth they are longer, so that the weights of one tap along it serve several tiles.
    let longest = LONGEST_TASK.saturating_mul(depth.taps as u64);
    let task_flops = (geometry.flops() / TASKS).clamp(SHORTEST_TASK, longest) as usize;
    let run = (task_flops / tile_flops.max(1)).clamp(1, tiles);
    let run = tiles.div_ceil(tiles.div_ceil(run));
    // What all parts read of a band of positions stays in the cache from one part to the next. With a depth a band has those of
    // all planes.
    let band = job.band(tiles, parts.count);
    let run = if depth.output > 1 { run.min(band) } else { run };
    let band = band.next_multiple_of(run);
    // Small planes, and small parts of planes, are computed several at a time.
    let planes = (task_flops / tile_flops.saturating_mul(run).max(1)).clamp(1, depth.output);
    let planes = depth.output.div_ceil(depth.output.div_ceil(planes));
    let layers = depth.output.div_ceil(planes);
    let (bands, runs) = (tiles.div_ceil(band), band / run);
    let count = view.batch * groups * bands * parts.count * layers * runs;
    parallel_for(count, 1, blocked_convolution_nanoseconds(geometry), |range| {
        for task in range {
            let (rest, run_index) = (task / runs, task % runs);
            let (rest, layer) = (rest / layers, rest % layers);
            let (rest, part) = (rest / parts.count, rest % parts.count);
            let (rest, band_index) = (rest / bands, rest % bands);
            let (image, group) = (rest / groups, rest % groups);
            let blocks = parts.of(part);
            let first_tile = band_index * band + run_index * run;
            if first_tile >= tiles.min((band_index + 1) * band) {
                continue;
            }
            let span_of_task = first_tile * tile..positions.min((first_tile + run) * tile);
            let planes_of_task = layer * planes..depth.output.min((layer + 1) * planes);
            let tile = job.tile(&parts, part, span);
            let first = group * job.per_group + blocks.start;
            // SAFETY: lengths were checked, and tasks write disjoint parts of the output.
            unsafe { job.run(image, group, first, blocks.len(), planes_of_task, span_of_task, tile) };
        }
    });
    Ok(())
}

/// How the output blocks of a group are cut into those that tiles hold together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parts {
    tier: Tier,
    blocks: usize,
    pub(super) count: usize,
}

impl Parts {
    pub(super) fn new(isa: Isa, blocks: usize) -> Self {
        let tier = isa.tier();
        // Pairs, of which the last one takes in a block that is left over.
        let count = if tier == Tier::Avx512 { (blocks / 2).max(1) } else { blocks };
        Self { tier, blocks, count }
    }

    /// The same for tiles that share a span of positions evenly: where these leave registers unused, parts are larger.
    fn of_span(isa: Isa, blocks: usize, span: usize) -> Self {
        let pairs = Self::new(isa, blocks);
        let is_short = blocks >= MOST_BLOCKS && pairs.tile(span, MOST_BLOCKS) == pairs.tile(span, MOST_BLOCKS - 1);
        match pairs.tier {
            Tier::Avx512 if is_short => Self { count: blocks.div_ceil(MOST_BLOCKS), ..pairs },
            _ => pairs,
        }
    }

    /// The blocks of a part.
    pub(super) fn of(&self, part: usize) -> Range<usize> {
        let first = |part: usize| part * self.blocks / self.count;
        first(part)..first(part + 1)
    }

    /// The positions of a tile with so many blocks: as many as registers hold, evenly over a span.
    pub(super) fn tile(&self, span: usize, blocks: usize) -> usize {
        let most = match self.tier {
            Tier::Portable => 2,
            // A block has two vectors of AVX2, which has sixteen registers, and four of NEON, which has twice as many.
            Tier::Neon | Tier::Avx2 => 6,
            Tier::Avx512 => MOST_SUMS / blocks,
        };
        let even = span.div_ceil(span.div_ceil(most));
        if even > ANY_POSITIONS { even.next_multiple_of(2) } else { even }
    }
}

/// The bias and the slopes of the blocks of a tile that begin at a channel, zero beyond the last one.
pub(super) fn lanes_of(
    epilogue: &ConvolutionEpilogue<'_>,
    channel: usize,
) -> ([f32; MOST_BLOCKS * BLOCK], Option<[f32; MOST_BLOCKS * BLOCK]>) {
    let bias = epilogue.bias.map_or([0.0; MOST_BLOCKS * BLOCK], |bias| lanes_from(bias, channel));
    (bias, slopes_from(epilogue.activation, channel))
}

/// The values of channels from one on, zero beyond the last one.
pub(crate) fn lanes_from<const LANES: usize>(values: &[f32], channel: usize) -> [f32; LANES] {
    let mut lanes = [0.0; LANES];
    lanes.iter_mut().zip(&values[channel..]).for_each(|(lane, value)| *lane = *value);
    lanes
}

/// The slopes of channels from one on, if the activation has any.
pub(crate) fn slopes_from<const LANES: usize>(activation: Activation<'_>, channel: usize) -> Option<[f32; LANES]> {
    match activation {
        Activation::PRelu(Channelwise::PerRow(slopes)) => Some(lanes_from(slopes, channel)),
        _ => None,
    }
}

/// The two spatial axes of a geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlaneView {
    pub(crate) batch: usize,
    pub(crate) input: [usize; 2],
    pub(crate) output: [usize; 2],
    pub(crate) stride: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) pad: [usize; 2],
}

impl PlaneView {
    /// One axis alone, of whose kernel there are so many taps.
    pub(crate) fn axis(&self, axis: usize, taps: usize) -> AxisView {
        let (input, output, stride) = (self.input[axis], self.output[axis], self.stride[axis]);
        AxisView { input, output, taps, stride, dilation: self.dilation[axis], pad: self.pad[axis] }
    }

    /// The input position of a tap, if inside.
    #[inline(always)]
    pub(crate) fn at(&self, axis: usize, output: usize, tap: usize) -> Option<usize> {
        (output * self.stride[axis] + tap * self.dilation[axis])
            .checked_sub(self.pad[axis])
            .filter(|&position| position < self.input[axis])
    }
}

/// One axis of a geometry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AxisView {
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) taps: usize,
    pub(crate) stride: usize,
    pub(crate) dilation: usize,
    pub(crate) pad: usize,
}

impl AxisView {
    /// The taps of an output position that lie inside the input.
    pub(crate) fn inside(&self, output: usize) -> Range<usize> {
        let (first, end, _) = window(output * self.stride, self.taps, self.dilation, self.pad, self.input, 0);
        first..end
    }

    /// The taps from the first to the last that lie inside the input for one of the output positions from one to another.
    pub(crate) fn inside_any(&self, first: usize, last: usize) -> Range<usize> {
        let begin = self.inside(last).start;
        begin..self.inside(first).end.max(begin)
    }

    /// The output positions all of whose taps lie inside the input; the end may lie beyond the output.
    pub(crate) fn whole(&self) -> Range<usize> {
        let end = (self.input + self.pad).saturating_sub((self.taps - 1) * self.dilation);
        self.pad.div_ceil(self.stride)..end.div_ceil(self.stride)
    }

    /// The position of the input that a tap of an output position reads, which lies inside.
    pub(crate) fn place(&self, output: usize, tap: usize) -> usize {
        output * self.stride + tap * self.dilation - self.pad
    }
}

struct Job<'a> {
    isa: Isa,
    weights: &'a BlockedConvolution,
    /// The layout that the input has now.
    layout: BlockedInput,
    epilogue: &'a ConvolutionEpilogue<'a>,
    input: &'a [f32],
    /// Elements from one image to the next.
    image_step: usize,
    /// Elements from one run of channels that lie next to each other at one position to the next run.
    channel_step: usize,
    /// Elements from one plane to the next along the depth.
    plane_step: usize,
    view: PlaneView,
    depth: AxisView,
    /// Whether every tap lies inside a plain input.
    is_dense: bool,
    /// Whether tiles end with lines, so that neighbouring positions read at one distance.
    ends_with_lines: bool,
    /// Whether only half of the last block is computed.
    is_halved: bool,
    /// Whether several groups lie in one block.
    shares_blocks: bool,
    /// Groups, or blocks of groups, that tasks have one of.
    groups: usize,
    /// Output channels of one group.
    group_outputs: usize,
    /// Input channels of one group.
    inputs: usize,
    taps: [usize; 2],
    /// Output blocks of one image.
    blocks: usize,
    /// Output blocks of one group.
    per_group: usize,
    /// Positions of one output plane.
    positions: usize,
    output: SharedMut<'a, f32>,
}

/// Zeros that taps in the padding read.
static ZEROS: [f32; BLOCK] = [0.0; BLOCK];

/// The bias of sums that are not complete.
static NO_BIAS: [f32; MOST_BLOCKS * BLOCK] = [0.0; MOST_BLOCKS * BLOCK];

impl Job<'_> {
    /// Computes a span of positions of some output planes for one to three output blocks.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches this part of the output.
    unsafe fn run(
        &self,
        image: usize,
        group: usize,
        block: usize,
        blocks: usize,
        planes: Range<usize>,
        span: Range<usize>,
        tile: usize,
    ) {
        let channel = block * BLOCK;
        let mixture = self.weights.straddling.get(block);
        // A block of one group differs from those of groups that begin with a block by where its channels begin.
        let single = mixture.filter(|found| found.groups == 1).map_or(0, |found| found.first_group * self.inputs);
        // For each lane of a block, the first input lane of its group.
        let first_channel = channel / self.group_outputs * self.inputs;
        let mut group_lanes = [0u32; BLOCK];
        let (lanes, input_block) = match self.layout {
            BlockedInput::Plain => (1, 0),
            BlockedInput::Blocked if self.shares_blocks => {
                group_lanes = std::array::from_fn(|lane| {
                    (first_channel % BLOCK + lane / self.group_outputs * self.inputs) as u32
                });
                (BLOCK, first_channel / BLOCK)
            }
            BlockedInput::Blocked if mixture.is_some() => (BLOCK, single / BLOCK),
            BlockedInput::Blocked => (BLOCK, group * self.inputs.div_ceil(BLOCK)),
        };
        // The weights of one tap along the depth, and those of all of them.
        let plane_weights = self.taps[0] * self.taps[1] * self.inputs * BLOCK;
        let block_weights = self.depth.taps * plane_weights;
        let (bias, slopes) = lanes_of(self.epilogue, channel);
        let part = Part {
            blocks,
            is_half: self.is_half(block),
            tile,
            lanes,
            source: image * self.image_step + input_block * self.channel_step,
            weights: mixture.map_or(block * block_weights, |found| found.weights),
            plane_weights,
            block_weights,
            target: (image * self.blocks + block) * self.depth.output * self.positions * BLOCK,
            bias: bias.as_ptr(),
            slopes: slopes.as_ref().map_or(std::ptr::null(), |slopes| slopes.as_ptr()),
            group_lanes: group_lanes.as_ptr(),
            first_lane: single % BLOCK,
            is_pair: mixture.is_some_and(|found| found.is_pair),
            mixture: mixture.filter(|found| found.groups > 1).map_or(std::ptr::null(), std::ptr::from_ref),
        };
        let is_whole = mixture.is_none() && size_of::<f32>() * blocks * block_weights <= WEIGHTS_BYTES;
        let together = if is_whole { self.depth.taps } else { 1 };
        // Where weights are many, those of a tap serve all planes before those of the next one are read.
        for first in (0..self.depth.taps).step_by(together) {
            for z in planes.clone() {
                let inside = self.depth.inside(z);
                let taps = inside.start.max(first)..inside.end.min(first + together);
                let pass = match inside.is_empty() {
                    // Such a plane has no products at all.
                    true if first == 0 => Pass { z, taps: 0..1, starts: true, ends: true, channels: 0, plane: 0 },
                    false if !taps.is_empty() => Pass {
                        z,
                        starts: taps.start == inside.start,
                        ends: taps.end == inside.end,
                        channels: self.inputs,
                        plane: self.depth.place(z, taps.start),
                        taps,
                    },
                    _ => continue,
                };
                // SAFETY: the caller's promise; the plane lies in the input, or nothing is read of it.
                unsafe { self.run_plane(&part, pass, span.clone()) };
            }
        }
    }

    /// Adds the products of some taps along the depth to a span of positions of one output plane.
    ///
    /// # Safety
    /// As of [`Job::run`]; the part's pointers lead to what they are for.
    unsafe fn run_plane(&self, part: &Part, pass: Pass, span: Range<usize>) {
        let &Part { blocks, tile, .. } = part;
        let finish = self.epilogue.part(0, 0, 0, 0);
        let limits = if pass.ends { finish.limits() } else { (f32::NEG_INFINITY, f32::INFINITY) };
        let block_stride = self.depth.output * self.positions * BLOCK;
        let source = part.source + pass.plane * self.plane_step;
        let weights = part.weights + pass.taps.start * part.plane_weights;
        let steps = part.plane_weights / BLOCK;
        let tiles = self.positions.div_ceil(tile);
        // The tiles of a task together ask for all weights of the next one.
        let next_step = (blocks * BLOCK).div_ceil(self.depth.output * tiles);
        let first_next = part.weights + blocks * part.block_weights;
        let first_tile = (pass.taps.start * self.depth.output + pass.z * pass.taps.len()) * tiles;
        let steps_of_tile = pass.taps.len() * steps;
        let mut position = span.start;
        while position < span.end {
            let left = match self.ends_with_lines {
                true => (span.end - position).min(self.view.output[1] - position % self.view.output[1]),
                false => span.end - position,
            };
            let mut count = tile.min(left);
            if count > ANY_POSITIONS && count % 2 == 1 {
                count = count.div_ceil(2);
            }
            // Tiles that follow each other and read in the same way are computed by one call.
            let step = self.step(part, position, count);
            let most = (left / count).min((LONGEST_RUN / count).max(1));
            let of_run = (1..most).take_while(|tile| match step {
                SIDE_BY_SIDE => self.lies_side_by_side(position, (tile + 1) * count),
                _ => self.step(part, position + tile * count, count) == step,
            });
            let of_run = 1 + of_run.count();
            let offset = part.target + (pass.z * self.positions + position) * BLOCK;
            let next = first_next + (first_tile + position / tile * pass.taps.len()) * steps * next_step;
            let (next, next_step) = match next + of_run * steps_of_tile * next_step <= self.weights.values.len() {
                true => (self.weights.values[next..].as_ptr(), next_step),
                false => (self.weights.values[weights..].as_ptr(), 0),
            };
            let target = self.output.pointer().wrapping_add(offset);
            let residual = match self.epilogue.residual {
                // The products of the taps before are in the output.
                _ if !pass.starts => target.cast_const(),
                Some(values) => values[offset..].as_ptr(),
                None if self.epilogue.accumulates => target.cast_const(),
                None => std::ptr::null(),
            };
            let call = Call {
                input: self.input[source..].as_ptr(),
                view: self.view,
                taps: self.taps,
                lanes: part.lanes,
                channels: pass.channels,
                first_lane: part.first_lane,
                second: 0,
                second_lane: 0,
                channel_step: self.channel_step,
                planes: pass.taps.len(),
                plane_step: self.depth.dilation * self.plane_step,
                weights: self.weights.values[weights..].as_ptr(),
                weights_block: part.block_weights,
                is_half: part.is_half,
                bias: if pass.ends { part.bias } else { NO_BIAS.as_ptr() },
                slopes: if pass.ends { part.slopes } else { std::ptr::null() },
                residual,
                output: target,
                block_stride,
                group_lanes: part.group_lanes,
                group_outputs: self.group_outputs,
                mixture: part.mixture,
                position,
                tiles: of_run,
                limits,
                next,
                next_step,
                next_tile: steps_of_tile * next_step,
            };
            // SAFETY: the tiles lie inside the output, and everything they read inside the slices that were checked.
            unsafe {
                match step {
                    STRADDLING_BESIDE => run_tiles::<STRADDLING_BESIDE>(self.isa, count, blocks, call),
                    PAIR_IN_LINE => run_tiles::<PAIR_IN_LINE>(self.isa, count, blocks, call),
                    PAIR_BY_TWO => run_tiles::<PAIR_BY_TWO>(self.isa, count, blocks, call),
                    STRADDLING => run_tiles::<STRADDLING>(self.isa, count, blocks, call),
                    SHARED => run_tiles::<SHARED>(self.isa, count, blocks, call),
                    SHARED_IN_LINE => run_tiles::<SHARED_IN_LINE>(self.isa, count, blocks, call),
                    SHARED_BY_TWO => run_tiles::<SHARED_BY_TWO>(self.isa, count, blocks, call),
                    SIDE_BY_SIDE => run_tiles::<SIDE_BY_SIDE>(self.isa, count, blocks, call),
                    IN_LINE => run_tiles::<IN_LINE>(self.isa, count, blocks, call),
                    IN_LINE_BY_TWO => run_tiles::<IN_LINE_BY_TWO>(self.isa, count, blocks, call),
                    1 => run_tiles::<1>(self.isa, count, blocks, call),
                    2 => run_tiles::<2>(self.isa, count, blocks, call),
                    4 => run_tiles::<4>(self.isa, count, blocks, call),
                    _ => run_tiles::<APART>(self.isa, count, blocks, call),
                }
            }
            let count = of_run * count;
            if let Some(op) = self.epilogue.activation.function().filter(|_| pass.ends) {
                for block in 0..blocks {
                    let line = call.output.wrapping_add(block * block_stride);
                    // SAFETY: the lines of the tiles lie in the output.
                    unsafe { unary::apply(self.isa, op, line, line, count * BLOCK) };
                }
            }
            position += count;
        }
    }

    /// Whether only half of a block is computed.
    fn is_half(&self, block: usize) -> bool {
        self.is_halved && block + 1 == self.blocks
    }

    /// The positions of a tile of a part, of which a span has some.
    fn tile(&self, parts: &Parts, part: usize, span: usize) -> usize {
        let blocks = parts.of(part);
        let (tile, most) = match (self.is_half(blocks.start), self.weights.straddling.is_empty()) {
            (true, _) => (HALF_POSITIONS, HALF_POSITIONS),
            (false, true) => return parts.tile(span, blocks.len()),
            (false, false) => (parts.tile(span, blocks.len()), ANY_POSITIONS),
        };
        span.div_ceil(span.div_ceil(tile.min(most)))
    }

    /// How a tile at a position reads: one of the constants, or how far apart in a line of a plain input.
    fn step(&self, part: &Part, position: usize, count: usize) -> usize {
        let is_in_line = self.layout == BlockedInput::Blocked && self.ends_with_lines;
        match (part.mixture.is_null(), self.lies_side_by_side(position, count)) {
            (false, _) if part.is_pair && is_in_line => match self.view.stride[1] {
                1 => PAIR_IN_LINE,
                _ => PAIR_BY_TWO,
            },
            (false, true) => STRADDLING_BESIDE,
            (false, false) => STRADDLING,
            _ if self.shares_blocks && is_in_line => match self.view.stride[1] {
                1 => SHARED_IN_LINE,
                _ => SHARED_BY_TWO,
            },
            _ if self.shares_blocks => SHARED,
            (true, true) => SIDE_BY_SIDE,
            _ if is_in_line => match self.view.stride[1] {
                1 => IN_LINE,
                _ => IN_LINE_BY_TWO,
            },
            _ if self.is_dense && matches!(self.view.stride[1], 1 | 2 | 4) => self.view.stride[1],
            _ => APART,
        }
    }

    /// The tiles of a band, of which a plane has so many. Where a group's input is too large for the cache, and it costs less to
    /// read the weights once for each band (or once, where they stay beside it) than the input once for each part, what a band
    /// reads is small enough.
    fn band(&self, tiles: usize, parts: usize) -> usize {
        let input = self.depth.input * self.view.input[0] * self.view.input[1] * self.inputs * size_of::<f32>();
        let bands = input.div_ceil(BAND_BYTES).clamp(1, tiles);
        let weights = self.weights.bytes() / self.groups.max(1);
        // Weights that fit beside a band are read from afar once.
        let readings = if weights.saturating_add(BAND_BYTES) <= SECOND_CACHE_BYTES { 1 } else { bands };
        // Planes are too far apart to stay in the cache from one tap along the depth to the next.
        let by_part = parts.saturating_mul(input).saturating_mul(self.depth.taps);
        let by_band = readings.saturating_mul(weights);
        let pays = by_band.saturating_add(input) < by_part;
        if pays { tiles.div_ceil(bands) } else { tiles }
    }

    /// Whether the positions of a tile lie side by side in a blocked input, with every tap inside.
    fn lies_side_by_side(&self, position: usize, count: usize) -> bool {
        let view = &self.view;
        if self.layout == BlockedInput::Plain || view.stride != [1, 1] {
            return false;
        }
        if self.taps == [1, 1] && view.pad == [0, 0] && view.input == view.output {
            // One line is as good as another, if they follow each other.
            return true;
        }
        let at = [position / view.output[1], position % view.output[1]];
        let is_inside = |axis: usize, count: usize| {
            let reach = (self.taps[axis] - 1) * view.dilation[axis];
            at[axis] >= view.pad[axis] && at[axis] - view.pad[axis] + count + reach <= view.input[axis]
        };
        self.is_in_line(position, count) && is_inside(0, 1) && is_inside(1, count)
    }

    fn is_in_line(&self, position: usize, count: usize) -> bool {
        position % self.view.output[1] + count <= self.view.output[1]
    }
}

/// What all tiles of a task have in common.
struct Part {
    /// Output blocks.
    blocks: usize,
    /// Whether only half of the block is computed.
    is_half: bool,
    /// Positions of a tile.
    tile: usize,
    lanes: usize,
    /// Where the input of the group begins.
    source: usize,
    /// Where the weights begin.
    weights: usize,
    /// The weights of an output block for one tap along the depth.
    plane_weights: usize,
    /// The weights of an output block, or of each of its groups if they straddle blocks.
    block_weights: usize,
    /// Where the output blocks begin.
    target: usize,
    bias: *const f32,
    slopes: *const f32,
    group_lanes: *const u32,
    /// Where the channels begin in the first block of the input.
    first_lane: usize,
    /// Whether the mixture is of two groups with half of the block each.
    is_pair: bool,
    /// The groups of the block, if there are several.
    mixture: *const Mixture,
}

/// Some taps along the depth of an output plane, one at least.
struct Pass {
    /// The output plane.
    z: usize,
    taps: Range<usize>,
    /// Whether they have the first one inside the input, and so do not add to the output.
    starts: bool,
    /// Whether they have the last one, which completes the sums.
    ends: bool,
    /// The channels that there are products of.
    channels: usize,
    /// The input plane of the first of them.
    plane: usize,
}

/// Everything one tile needs.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) input: *const f32,
    pub(super) view: PlaneView,
    pub(super) taps: [usize; 2],
    /// Channels that lie next to each other at one position.
    pub(super) lanes: usize,
    pub(super) channels: usize,
    /// Where the channels begin in the first run of `lanes`.
    pub(super) first_lane: usize,
    /// Elements from the first run of `lanes` of the first of a pair of groups to that of the second one, and where its
    /// channels begin there.
    pub(super) second: usize,
    pub(super) second_lane: usize,
    /// Elements from one run of `lanes` channels to the next.
    pub(super) channel_step: usize,
    /// Planes whose products are summed, each with the weights that follow those of the plane before.
    pub(super) planes: usize,
    /// Elements from one of them to the next.
    pub(super) plane_step: usize,
    pub(super) weights: *const f32,
    /// Elements from the weights of one output block, or of one straddling group, to those of the next.
    pub(super) weights_block: usize,
    /// Whether only half of the block is computed; the other half becomes zero.
    pub(super) is_half: bool,
    pub(super) bias: *const f32,
    pub(super) slopes: *const f32,
    pub(super) residual: *const f32,
    pub(super) output: *mut f32,
    pub(super) block_stride: usize,
    /// For each lane of a block, the first input lane of its group.
    pub(super) group_lanes: *const u32,
    /// Output channels of one group.
    pub(super) group_outputs: usize,
    /// The groups of the block, if they straddle blocks.
    pub(super) mixture: *const Mixture,
    pub(super) position: usize,
    /// How many tiles are computed, one behind the other.
    pub(super) tiles: usize,
    pub(super) limits: (f32, f32),
    /// Weights of the next task, of which each step asks for some: where they begin for this tile.
    pub(super) next: *const f32,
    /// Elements from one step's to the next step's.
    pub(super) next_step: usize,
    /// Elements from one tile's to the next tile's.
    pub(super) next_tile: usize,
}

/// A tile with its number of positions and output blocks known to the compiler; `VECTORS` is the number of vectors
/// that hold those blocks.
struct Fixed<const POSITIONS: usize, const VECTORS: usize, const STEP: usize>(Call);

/// Computes tiles one behind the other. Where `STEP` is none of the constants, each lies in one line of a plain input,
/// neighbouring positions read that far apart, and every tap lies inside. Where it is [`SIDE_BY_SIDE`], all tiles do, in
/// one line or in lines that follow each other without a gap.
///
/// # Safety
/// The call's pointers cover what the geometry asks for.
pub(super) unsafe fn run_tiles<const STEP: usize>(isa: Isa, positions: usize, blocks: usize, call: Call) {
    macro_rules! call {
        ($vectors:literal: $($positions:literal)*) => {
            match positions {
                $($positions => dispatch(isa, Fixed::<$positions, $vectors, STEP>(call)),)*
                _ => debug_assert!(false, "no tile of {positions} positions"),
            }
        };
    }
    match (isa.tier(), blocks) {
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) => call!(4: 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx2, _) if call.is_half => call!(1: 1 2 3 4 5 6 7 8 9 10 11 12),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx2, _) => call!(2: 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, 1) => call!(1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 16 18 20 22 24 26 28),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, 2) => call!(2: 1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, _) => call!(3: 1 2 3 4 5 6 7 8 9),
        _ => call!(4: 1 2),
    }
}

impl<const POSITIONS: usize, const VECTORS: usize, const STEP: usize> Kernel for Fixed<POSITIONS, VECTORS, STEP> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut call = self.0;
        let per_block = BLOCK / S::LANES;
        // Tiles that `run_tiles` never asks for are not compiled: those that no registers of a tier hold, those of several blocks
        // that groups share, and where a block is several vectors, all but those of one block and, of two vectors, of half of one.
        let (is_held, is_asked_for) = const {
            let per_block = BLOCK / S::LANES;
            let is_block = VECTORS == per_block || VECTORS == 1 && per_block == 2;
            let are_blocks = per_block == 1 && VECTORS <= MOST_BLOCKS && !shares(STEP);
            (POSITIONS * VECTORS <= 2 * S::TILE_ROWS, is_block || are_blocks)
        };
        if !is_held || !is_asked_for {
            debug_assert!(false, "no such tile");
            return;
        }
        // Blocks of several groups are computed one by one.
        if const { straddles(STEP) && (POSITIONS > ANY_POSITIONS || VECTORS > BLOCK / S::LANES) } {
            debug_assert!(false, "so large a tile of straddling groups");
            return;
        }
        // Where tiles lie side by side, so does what they read.
        let mut first = match STEP {
            SIDE_BY_SIDE => call.first_place(),
            _ => call.input,
        };
        for _ in 0..call.tiles {
            let line = |block: usize| block * call.block_stride;
            let blocks = VECTORS.div_ceil(per_block);
            prefetch_tile::<_, POSITIONS>(call.output, BLOCK, blocks, line);
            prefetch_tile::<_, POSITIONS>(call.residual, BLOCK, blocks, line);
            // SAFETY: `run_tiles` was promised that the pointers cover what the geometry asks for.
            unsafe {
                let sums = match STEP {
                    APART | SHARED => accumulate::<S, POSITIONS, VECTORS, STEP>(s, &call),
                    SHARED_IN_LINE => shared_in_line::<S, POSITIONS, VECTORS, 1>(s, &call),
                    SHARED_BY_TWO => shared_in_line::<S, POSITIONS, VECTORS, 2>(s, &call),
                    STRADDLING | STRADDLING_BESIDE => mixed::<S, POSITIONS, VECTORS, STEP>(s, &call),
                    PAIR_IN_LINE => in_line::<S, POSITIONS, VECTORS, 1, true>(s, &call.for_both()),
                    PAIR_BY_TWO => in_line::<S, POSITIONS, VECTORS, 2, true>(s, &call.for_both()),
                    IN_LINE => in_line::<S, POSITIONS, VECTORS, 1, false>(s, &call),
                    IN_LINE_BY_TWO => in_line::<S, POSITIONS, VECTORS, 2, false>(s, &call),
                    SIDE_BY_SIDE => side_by_side::<S, POSITIONS, VECTORS>(s, &call, first),
                    _ => along_line::<S, POSITIONS, VECTORS, STEP>(s, &call),
                };
                finish(s, &call, sums);
            }
            first = first.wrapping_add(POSITIONS * BLOCK);
            call.position += POSITIONS;
            call.output = call.output.wrapping_add(POSITIONS * BLOCK);
            call.next = call.next.wrapping_add(call.next_tile);
            if !call.residual.is_null() {
                call.residual = call.residual.wrapping_add(POSITIONS * BLOCK);
            }
        }
    }
}

impl Call {
    /// The taps down all planes that read a line of the input for the output line `y`: their numbers, the planes, and the lines.
    #[inline(always)]
    fn lines(&self, y: usize) -> impl Iterator<Item = (usize, *const f32, usize)> {
        let high = self.taps[0];
        (0..self.planes * high).filter_map(move |ky| {
            // One plane is the rule, which needs no division.
            let (plane, tap) = if self.planes == 1 { (0, ky) } else { (ky / high, ky % high) };
            Some((ky, self.input.wrapping_add(plane * self.plane_step), self.view.at(0, y, tap)?))
        })
    }

    /// The weights of a tap, by its number among all of the call, and those of the next task that are called while it is computed.
    #[inline(always)]
    fn tap(&self, number: usize) -> (*const f32, *const f32) {
        let steps = number * self.channels;
        (self.weights.wrapping_add(steps * BLOCK), self.next.wrapping_add(steps * self.next_step))
    }

    /// Where one of the groups of a block begins: elements behind the input, and the first lane there.
    ///
    /// # Safety
    /// The call has a mixture.
    #[inline(always)]
    unsafe fn group(&self, group: usize) -> (usize, usize) {
        // SAFETY: the caller's promise.
        let channel = unsafe { (*self.mixture).first_group + group } * self.channels;
        (channel / BLOCK * self.channel_step, channel % BLOCK)
    }

    /// The tile for a pair of groups.
    ///
    /// # Safety
    /// The call has a mixture of two groups.
    #[inline(always)]
    unsafe fn for_both(&self) -> Self {
        // SAFETY: the caller's promise.
        let ((first, first_lane), (second, second_lane)) = unsafe { (self.group(0), self.group(1)) };
        Self { input: self.input.wrapping_add(first), first_lane, second: second - first, second_lane, ..*self }
    }

    /// The tile for one of a pair of groups.
    #[inline(always)]
    fn for_one(&self, group: usize) -> Self {
        match group {
            0 => *self,
            _ => Self { input: self.input.wrapping_add(self.second), first_lane: self.second_lane, ..*self },
        }
    }

    /// Where the first position reads by the first tap, which lies inside of a blocked input.
    #[inline(always)]
    fn first_place(&self) -> *const f32 {
        let view = &self.view;
        let (y, x) = (self.position / view.output[1], self.position % view.output[1]);
        self.input.wrapping_add(((y - view.pad[0]) * view.input[1] + x - view.pad[1]) * BLOCK)
    }
}

/// The sums of a tile in one line of a plain input, whose positions read `STEP` elements apart.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn along_line<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STEP: usize>(
    s: S,
    call: &Call,
) -> [[S::F; VECTORS]; POSITIONS] {
    let view = &call.view;
    let (y, x) = (call.position / view.output[1], call.position % view.output[1]);
    // SAFETY: the caller's promise.
    unsafe {
        let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
        let first = call.input.add(y * view.stride[0] * view.input[1] + x * view.stride[1]);
        let (mut weights, mut next) = (call.weights, call.next);
        for ky in 0..call.taps[0] {
            for kx in 0..call.taps[1] {
                let tap = first.add(ky * view.dilation[0] * view.input[1] + kx * view.dilation[1]);
                for channel in 0..call.channels {
                    let from = tap.add(channel * call.channel_step);
                    let right = load_weights::<S, VECTORS>(s, call, weights);
                    prefetch_far(next);
                    next = next.wrapping_add(call.next_step);
                    unrolled!(position < POSITIONS => {
                        let left = s.splat(*from.add(position * STEP));
                        for vector in 0..VECTORS {
                            sums[position][vector] = s.fma(left, right[vector], sums[position][vector]);
                        }
                    });
                    weights = weights.add(BLOCK);
                }
            }
        }
        sums
    }
}

/// The sums of a tile of a blocked input whose positions lie side by side, with every tap inside; the first one reads `line`
/// by the first tap.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn side_by_side<S: Simd, const POSITIONS: usize, const VECTORS: usize>(
    s: S,
    call: &Call,
    mut line: *const f32,
) -> [[S::F; VECTORS]; POSITIONS] {
    let view = &call.view;
    let mut own = (call.weights, call.next);
    let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
    let down = view.dilation[0] * view.input[1] * BLOCK;
    let mut left = call.taps[0];
    let next_tile = line.wrapping_add(POSITIONS * BLOCK);
    let lines = call.planes * call.taps[0];
    for index in 1..=lines {
        let mut place = line;
        line = line.wrapping_add(down);
        left -= 1;
        if left == 0 {
            // The first tap of the next plane.
            line = line.wrapping_add(call.plane_step).wrapping_sub(call.taps[0] * down);
            left = call.taps[0];
        }
        // The taps of a line read what the first one has asked for.
        let mut following = Some(if index == lines { next_tile } else { line });
        for _ in 0..call.taps[1] {
            // SAFETY: the weights are those of the tap, and the positions that are read lie in the input.
            sums =
                unsafe { beside::<S, POSITIONS, VECTORS, 1, 0, 0, false>(s, call, own, place, following.take(), sums) };
            own = next_tap(call, own);
            place = place.wrapping_add(view.dilation[1] * BLOCK);
        }
    }
    sums
}

/// The sums of a tile in one line of a blocked input whose positions lie `STRIDE` apart. Taps that lie in the padding for all
/// of them are left out, and those that do for the first or the last one take the others.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn in_line<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STRIDE: usize, const PAIR: bool>(
    s: S,
    call: &Call,
) -> [[S::F; VECTORS]; POSITIONS] {
    let view = &call.view;
    let (wide, stride, to_last) = (view.input[1] as isize, STRIDE as isize, ((POSITIONS - 1) * STRIDE) as isize);
    let (y, x) = (call.position / view.output[1], call.position % view.output[1]);
    let (first, across) = ((x * STRIDE) as isize - view.pad[1] as isize, view.dilation[1] as isize);
    // The taps whose first one or two positions lie before the line, and those whose last ones lie behind it, are at the ends.
    let (mut before, mut after) = ([0; 2], [0; 2]);
    for kx in 0..call.taps[1] {
        let column = first + kx as isize * across;
        let beyond = column + to_last - wide;
        before[0] += usize::from(column < -stride);
        before[1] += usize::from((-stride..0).contains(&column));
        after[0] += usize::from((0..stride).contains(&beyond));
        after[1] += usize::from(beyond >= stride);
    }
    let last = first + (call.taps[1] as isize - 1) * across;
    let misses_more = first < -2 * stride || last + to_last >= wide + 2 * stride;
    let inside = call.taps[1].checked_sub(before[0] + before[1] + after[0] + after[1]);
    // A tap of a line that is padded at both ends may miss positions at both.
    let (Some(inside), true) = (inside, !misses_more && POSITIONS > 2) else {
        let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
        for group in 0..1 + usize::from(PAIR) {
            // SAFETY: the caller's promise; the call of a pair has a mixture.
            unsafe {
                let own = in_line_at_edges::<S, POSITIONS, VECTORS, STRIDE>(s, &call.for_one(group), y, first);
                if !PAIR {
                    return own;
                }
                take_lanes(s, call, group, &own, &mut sums);
            }
        }
        return sums;
    };
    let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
    for (ky, input, row) in call.lines(y) {
        let mut own = call.tap(ky * call.taps[1]);
        let mut place = input.wrapping_offset((row as isize * wide + first) * BLOCK as isize);
        let mut following = Some(place.wrapping_add(view.dilation[0] * view.input[1] * BLOCK));
        macro_rules! taps {
            ($count:expr, $before:literal, $after:literal) => {
                for _ in 0..$count {
                    let after = following.take();
                    // SAFETY: the taps lie in the kernel, and the positions that are read lie in the line.
                    sums = unsafe {
                        beside::<S, POSITIONS, VECTORS, STRIDE, $before, $after, PAIR>(s, call, own, place, after, sums)
                    };
                    own = next_tap(call, own);
                    place = place.wrapping_offset(across * BLOCK as isize);
                }
            };
        }
        taps!(before[0], 2, 0);
        taps!(before[1], 1, 0);
        taps!(inside, 0, 0);
        taps!(after[0], 0, 1);
        taps!(after[1], 0, 2);
    }
    sums
}

/// Of positions `STRIDE` apart, those that read an element of a line of `wide` by a tap with which the first one reads `column`:
/// those before them read the padding in front of it, those behind them the one behind it.
#[inline(always)]
fn reached<const POSITIONS: usize, const STRIDE: usize>(column: isize, wide: isize) -> Range<usize> {
    let (before, end) = ((-column).max(0) as usize, (wide - column).max(0) as usize);
    before.div_ceil(STRIDE)..end.div_ceil(STRIDE).min(POSITIONS)
}

/// The weights of the next tap, and those of the next task that are called while it is computed.
#[inline(always)]
fn next_tap(call: &Call, (weights, next): (*const f32, *const f32)) -> (*const f32, *const f32) {
    (weights.wrapping_add(call.channels * BLOCK), next.wrapping_add(call.channels * call.next_step))
}

/// The same where more than two positions lie outside of the line for some tap, or some at both ends. The tile lies in the
/// output line `y`, and its first position reads the column `start` by the first tap.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn in_line_at_edges<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STRIDE: usize>(
    s: S,
    call: &Call,
    y: usize,
    start: isize,
) -> [[S::F; VECTORS]; POSITIONS] {
    let view = &call.view;
    let wide = view.input[1] as isize;
    let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
    for (ky, input, row) in call.lines(y) {
        for kx in 0..call.taps[1] {
            let column = start + (kx * view.dilation[1]) as isize;
            let inside = reached::<POSITIONS, STRIDE>(column, wide);
            if inside.is_empty() {
                continue;
            }
            let own = call.tap(ky * call.taps[1] + kx);
            let first = input.wrapping_offset((row as isize * wide + column) * BLOCK as isize);
            // SAFETY: the tap lies in the kernel, and the positions that are read lie in the line.
            unsafe {
                sums = match inside.len() == POSITIONS {
                    true => beside::<S, POSITIONS, VECTORS, STRIDE, 0, 0, false>(s, call, own, first, None, sums),
                    false => {
                        let mut pointers = [ZEROS.as_ptr(); POSITIONS];
                        let mut strides = [0usize; POSITIONS];
                        for position in inside {
                            pointers[position] = first.wrapping_add(position * STRIDE * BLOCK);
                            strides[position] = call.channel_step;
                        }
                        channels::<S, POSITIONS, VECTORS, APART>(s, call, own, pointers, &strides, sums)
                    }
                };
            }
        }
    }
    sums
}

/// The sums of a tile in one line of a blocked input, whose positions lie `STRIDE` apart and whose block belongs to several
/// groups.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn shared_in_line<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STRIDE: usize>(
    s: S,
    call: &Call,
) -> [[S::F; VECTORS]; POSITIONS] {
    let view = &call.view;
    let wide = view.input[1] as isize;
    let (y, x) = (call.position / view.output[1], call.position % view.output[1]);
    let first = (x * STRIDE) as isize - view.pad[1] as isize;
    let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
    for (ky, input, row) in call.lines(y) {
        for kx in 0..call.taps[1] {
            let column = first + (kx * view.dilation[1]) as isize;
            let inside = reached::<POSITIONS, STRIDE>(column, wide);
            if inside.is_empty() {
                continue;
            }
            let own = call.tap(ky * call.taps[1] + kx);
            let place = input.wrapping_offset((row as isize * wide + column) * BLOCK as isize);
            // SAFETY: the tap lies in the kernel, and the positions that are read lie in the line.
            sums = unsafe {
                match inside.len() == POSITIONS {
                    true => shared::<S, POSITIONS, VECTORS, STRIDE, false>(s, call, own, place, inside, sums),
                    false => shared::<S, POSITIONS, VECTORS, STRIDE, true>(s, call, own, place, inside, sums),
                }
            };
        }
    }
    sums
}

/// Adds the products of one tap and all channels of each group in a block to the sums of positions that lie `STRIDE` apart: of
/// those `inside` at an `EDGE`.
///
/// # Safety
/// The weights are those of the tap, and the positions, or those inside, lie in the input.
#[inline(always)]
unsafe fn shared<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STRIDE: usize, const EDGE: bool>(
    s: S,
    call: &Call,
    (mut weights, mut next): (*const f32, *const f32),
    place: *const f32,
    inside: Range<usize>,
    mut sums: [[S::F; VECTORS]; POSITIONS],
) -> [[S::F; VECTORS]; POSITIONS] {
    for channel in call.first_lane..call.first_lane + call.channels {
        prefetch_far(next);
        next = next.wrapping_add(call.next_step);
        for vector in 0..VECTORS {
            let first = vector * S::LANES;
            // SAFETY: the caller's promise; the lanes have sixteen entries.
            unsafe {
                let right = s.load(weights.add(first));
                let lanes = s.bits(s.load(call.group_lanes.add(first).cast()));
                let index = s.add_i(lanes, s.splat_i(channel as i32));
                unrolled!(position < POSITIONS => {
                    if !EDGE || inside.contains(&position) {
                        let block = place.wrapping_add(position * STRIDE * BLOCK);
                        let left = s.lookup(&*block.cast::<[f32; BLOCK]>(), index);
                        sums[position][vector] = s.fma(left, right, sums[position][vector]);
                    }
                });
            }
        }
        weights = weights.wrapping_add(BLOCK);
    }
    sums
}

/// Adds the products of one tap to the sums of positions that lie `STRIDE` apart, less so many of the first and the last. The
/// first tap of a line asks for what its taps read, as far as it comes soon: later blocks, and the first ones of the line that
/// is `following`. The first half of the lanes of a `PAIR` of groups takes the channels of one, the second half those of the
/// other.
///
/// # Safety
/// The weights are those of the tap, and the positions but those lie in the input.
#[inline(always)]
unsafe fn beside<
    S: Simd,
    const POSITIONS: usize,
    const VECTORS: usize,
    const STRIDE: usize,
    const BEFORE: usize,
    const AFTER: usize,
    const PAIR: bool,
>(
    s: S,
    call: &Call,
    (mut weights, mut next): (*const f32, *const f32),
    mut first: *const f32,
    following: Option<*const f32>,
    mut sums: [[S::F; VECTORS]; POSITIONS],
) -> [[S::F; VECTORS]; POSITIONS] {
    let (mut channel, mut lane) = (0, call.first_lane);
    // Where the second group's channels are, and its lanes: if these were known to the compiler, it would shuffle vectors instead
    // of reading a value into some lanes.
    let (mut second, mut second_lane) = (first.wrapping_add(call.second), call.second_lane);
    let groups = match PAIR {
        // SAFETY: a pair has a mixture, which has a number for each lane.
        true => unsafe { s.bits(s.load((*call.mixture).lanes.as_ptr().cast())) },
        false => s.splat_i(0),
    };
    let is_second = s.eq_i(groups, s.splat_i(1));
    let blocks = call.channels.div_ceil(BLOCK);
    let distance = BLOCKS_AHEAD.min(blocks);
    let mut until_next = blocks - distance;
    let mut ahead = first.wrapping_add(distance * call.channel_step);
    while channel < call.channels {
        let mut lanes = (call.lanes - lane).min(call.channels - channel);
        if PAIR {
            lanes = lanes.min(call.lanes - second_lane);
        }
        // A pair goes on in the same block where the second group's one ends.
        if let Some(line) = following.filter(|_| !PAIR || channel == 0 || lane == 0) {
            if until_next == 0 {
                ahead = line;
            }
            until_next = until_next.wrapping_sub(1);
            for position in 0..POSITIONS * STRIDE {
                prefetch_near(ahead.wrapping_add(position * BLOCK));
            }
            let reach = (call.taps[1] - 1) * call.view.dilation[1];
            for position in 0..reach.min(FARTHEST_AHEAD) {
                prefetch_near(ahead.wrapping_add((POSITIONS * STRIDE + position) * BLOCK));
            }
            ahead = ahead.wrapping_add(call.channel_step);
        }
        // One pointer that moves on: the others are at constant distances from it.
        let (mut place, mut other) = (first.wrapping_add(lane), second.wrapping_add(second_lane));
        let mut left = lanes;
        macro_rules! step {
            ($ahead:literal) => {
                prefetch_far(next);
                next = next.wrapping_add(call.next_step);
                // SAFETY: the caller's promise.
                unsafe {
                    let right = load_weights::<S, VECTORS>(s, call, weights.add($ahead * BLOCK));
                    unrolled!(position < POSITIONS => {
                        if position >= BEFORE && position + AFTER < POSITIONS {
                            let at = position * STRIDE * BLOCK + $ahead;
                            let mut lefts = [s.splat(*place.wrapping_add(at)); 2];
                            if PAIR {
                                lefts[1] = s.splat(*other.wrapping_add(at));
                                if S::LANES == BLOCK {
                                    lefts[0] = s.select(is_second, lefts[1], lefts[0]);
                                }
                            }
                            for vector in 0..VECTORS {
                                let left = lefts[usize::from(PAIR && vector * S::LANES >= HALF_BLOCK)];
                                sums[position][vector] = s.fma(left, right[vector], sums[position][vector]);
                            }
                        }
                    });
                }
            };
        }
        // Where a step has few products, counting steps would take a good part of the time.
        if POSITIONS * VECTORS <= SHORT_STEP {
            while left >= 4 {
                step!(0);
                step!(1);
                step!(2);
                step!(3);
                weights = weights.wrapping_add(4 * BLOCK);
                place = place.wrapping_add(4);
                other = other.wrapping_add(4);
                left -= 4;
            }
        }
        for _ in 0..left {
            step!(0);
            weights = weights.wrapping_add(BLOCK);
            place = place.wrapping_add(1);
            other = other.wrapping_add(1);
        }
        channel += lanes;
        if !PAIR {
            (lane, first) = (0, first.wrapping_add(call.channel_step));
            continue;
        }
        (lane, second_lane) = (lane + lanes, second_lane + lanes);
        if lane == call.lanes {
            (lane, first) = (0, first.wrapping_add(call.channel_step));
        }
        if second_lane == call.lanes {
            (second_lane, second) = (0, second.wrapping_add(call.channel_step));
        }
    }
    sums
}

/// The weights of one input channel and tap, and a hint that later ones are wanted soon.
///
/// # Safety
/// The weights are there for each block of the call.
#[inline(always)]
unsafe fn load_weights<S: Simd, const VECTORS: usize>(s: S, call: &Call, weights: *const f32) -> [S::F; VECTORS] {
    let per_block = BLOCK / S::LANES;
    let mut right = [s.splat(0.0); VECTORS];
    for vector in 0..VECTORS {
        // SAFETY: the caller's promise.
        unsafe {
            let place = weights.add(vector / per_block * call.weights_block + vector % per_block * S::LANES);
            right[vector] = s.load(place);
            // A line holds a block.
            if vector.is_multiple_of(per_block) {
                prefetch_near(place.wrapping_add(AHEAD * BLOCK));
            }
        }
    }
    right
}

/// The sums of all products of a block whose channels belong to several groups, one group after the other: the products of
/// channels that a lane has nothing to do with stay out of it, even where they are no numbers.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn mixed<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STEP: usize>(
    s: S,
    call: &Call,
) -> [[S::F; VECTORS]; POSITIONS] {
    let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
    // SAFETY: the call has a mixture, whose groups have their channels and weights.
    unsafe {
        let mixture = &*call.mixture;
        for group in 0..mixture.groups {
            let (input, first_lane) = call.group(group);
            // A pair has the weights of both in one matrix.
            let matrix = if mixture.is_pair { 0 } else { group };
            let part = Call {
                input: call.input.add(input),
                first_lane,
                weights: call.weights.add(matrix * call.weights_block),
                ..*call
            };
            let own = match STEP {
                STRADDLING_BESIDE => side_by_side::<S, POSITIONS, VECTORS>(s, &part, part.first_place()),
                _ => accumulate::<S, POSITIONS, VECTORS, STEP>(s, &part),
            };
            take_lanes(s, call, group, &own, &mut sums);
        }
    }
    sums
}

/// Takes the lanes of one of the groups of a block from its sums.
///
/// # Safety
/// The call has a mixture.
#[inline(always)]
unsafe fn take_lanes<S: Simd, const POSITIONS: usize, const VECTORS: usize>(
    s: S,
    call: &Call,
    group: usize,
    own: &[[S::F; VECTORS]; POSITIONS],
    sums: &mut [[S::F; VECTORS]; POSITIONS],
) {
    for vector in 0..VECTORS {
        // SAFETY: the mixture has a number for each lane of a block.
        let lanes = unsafe { s.load((*call.mixture).lanes.as_ptr().add(vector * S::LANES).cast()) };
        let mask = s.eq_i(s.bits(lanes), s.splat_i(group as i32));
        unrolled!(position < POSITIONS => {
            sums[position][vector] = s.select(mask, own[position][vector], sums[position][vector]);
        });
    }
}

/// The sums of all products.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn accumulate<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STEP: usize>(
    s: S,
    call: &Call,
) -> [[S::F; VECTORS]; POSITIONS] {
    let places = Places::<POSITIONS>::new(call);
    let mut sums = [[s.splat(0.0); VECTORS]; POSITIONS];
    if places.interior {
        // SAFETY: every tap of every position lies inside the input.
        return unsafe { interior::<S, POSITIONS, VECTORS, STEP>(s, call, &places.pointers, sums) };
    }
    let taps = call.taps[0] * call.taps[1];
    for tap in 0..call.planes * taps {
        let (plane, place) = if call.planes == 1 { (0, tap) } else { (tap / taps, tap % taps) };
        let down = (place / call.taps[1] * call.view.dilation[0]) as isize;
        let right = (place % call.taps[1] * call.view.dilation[1]) as isize;
        let in_plane = (down * call.view.input[1] as isize + right) * call.lanes as isize;
        let offset = in_plane + (plane * call.plane_step) as isize;
        // SAFETY: the tap lies in the kernel, and each pointer leads to the channels of a position or to zeros.
        unsafe {
            let weights = call.weights.add(tap * call.channels * BLOCK);
            let mut pointers = [ZEROS.as_ptr(); POSITIONS];
            let mut steps = [0usize; POSITIONS];
            let mut inside = false;
            for position in 0..POSITIONS {
                let y = places.rows[position].wrapping_add(down) as usize;
                let x = places.columns[position].wrapping_add(right) as usize;
                if (y < call.view.input[0]) & (x < call.view.input[1]) {
                    pointers[position] = places.pointers[position].wrapping_offset(offset);
                    steps[position] = call.channel_step;
                    inside = true;
                }
            }
            if inside {
                let next = call.next.wrapping_add(tap * call.channels * call.next_step);
                sums = channels::<S, POSITIONS, VECTORS, STEP>(s, call, (weights, next), pointers, &steps, sums);
            }
        }
    }
    sums
}

/// Where the positions of a tile read at their first tap.
struct Places<const POSITIONS: usize> {
    /// The line, which may lie in the padding.
    rows: [isize; POSITIONS],
    /// The column, which may lie in the padding.
    columns: [isize; POSITIONS],
    /// The address, meaningful where the line and column are inside.
    pointers: [*const f32; POSITIONS],
    /// Whether every tap of every position lies inside.
    interior: bool,
}

impl<const POSITIONS: usize> Places<POSITIONS> {
    #[inline(always)]
    fn new(call: &Call) -> Self {
        let view = &call.view;
        let (high, wide) = (view.input[0] as isize, view.input[1] as isize);
        let reach = [0, 1].map(|axis| ((call.taps[axis] - 1) * view.dilation[axis]) as isize);
        let (mut y, mut x) = (call.position / view.output[1], call.position % view.output[1]);
        let mut places =
            Self { rows: [0; POSITIONS], columns: [0; POSITIONS], pointers: [call.input; POSITIONS], interior: true };
        for position in 0..POSITIONS {
            let row = (y * view.stride[0]) as isize - view.pad[0] as isize;
            let column = (x * view.stride[1]) as isize - view.pad[1] as isize;
            places.rows[position] = row;
            places.columns[position] = column;
            places.pointers[position] = call.input.wrapping_offset((row * wide + column) * call.lanes as isize);
            places.interior &= (row >= 0) & (row + reach[0] < high) & (column >= 0) & (column + reach[1] < wide);
            x += 1;
            if x == view.output[1] {
                (y, x) = (y + 1, 0);
            }
        }
        places
    }
}

/// Adds the products of all taps of a tile that lies inside the input; sums stay in registers throughout.
///
/// # Safety
/// Every tap of every position lies inside the input.
#[inline(always)]
unsafe fn interior<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STEP: usize>(
    s: S,
    call: &Call,
    pointers: &[*const f32; POSITIONS],
    mut sums: [[S::F; VECTORS]; POSITIONS],
) -> [[S::F; VECTORS]; POSITIONS] {
    let (mut weights, mut next) = (call.weights, call.next);
    let down = call.view.dilation[0] * call.view.input[1] * call.lanes;
    let right = call.view.dilation[1] * call.lanes;
    // The taps across of a single plain channel lie side by side, as the channels of a block do.
    let is_line = matches!(STEP, APART | 1 | 2) && call.lanes == 1 && call.channels == 1 && call.view.dilation[1] == 1;
    let (across, channels, run) =
        if is_line { (1, call.taps[1], call.taps[1]) } else { (call.taps[1], call.channels, call.lanes) };
    for ky in 0..call.planes * call.taps[0] {
        let line = match call.planes {
            1 => ky * down,
            _ => ky / call.taps[0] * call.plane_step + ky % call.taps[0] * down,
        };
        for kx in 0..across {
            let mut offset = line + kx * right;
            let (mut channel, mut first) = (0, call.first_lane);
            // The taps of a line read what the first ones have asked for.
            let asks = STEP == APART && kx < call.view.stride[1];
            while channel < channels {
                let lanes = (run - first).min(channels - channel);
                if asks && channel + BLOCKS_AHEAD * BLOCK < channels {
                    let ahead = offset + BLOCKS_AHEAD * call.channel_step;
                    pointers.iter().for_each(|pointer| prefetch_near(pointer.wrapping_add(ahead)));
                }
                for lane in first..first + lanes {
                    prefetch_far(next);
                    next = next.wrapping_add(call.next_step);
                    // SAFETY: the caller's promise.
                    unsafe {
                        sums = match STEP {
                            SHARED => step_shared(s, call, weights, pointers, offset, lane, sums),
                            _ => step(s, call, weights, pointers, offset + lane, sums),
                        };
                        weights = weights.add(BLOCK);
                    }
                }
                offset += call.channel_step;
                channel += lanes;
                first = 0;
            }
        }
    }
    sums
}

/// Adds the products of one tap, whose sums stay in registers throughout.
///
/// # Safety
/// The weights are those of the tap, and each pointer leads to the channels of a position, or to zeros and has no step.
#[inline(always)]
unsafe fn channels<S: Simd, const POSITIONS: usize, const VECTORS: usize, const STEP: usize>(
    s: S,
    call: &Call,
    (mut weights, mut next): (*const f32, *const f32),
    mut pointers: [*const f32; POSITIONS],
    steps: &[usize; POSITIONS],
    mut sums: [[S::F; VECTORS]; POSITIONS],
) -> [[S::F; VECTORS]; POSITIONS] {
    let (mut channel, mut first) = (0, call.first_lane);
    while channel < call.channels {
        let lanes = (call.lanes - first).min(call.channels - channel);
        if STEP == APART && channel + BLOCKS_AHEAD * BLOCK < call.channels {
            for (pointer, step) in pointers.iter().zip(steps) {
                prefetch_near(pointer.wrapping_add(BLOCKS_AHEAD * step));
            }
        }
        for lane in first..first + lanes {
            prefetch_far(next);
            next = next.wrapping_add(call.next_step);
            // SAFETY: the caller's promise.
            unsafe {
                sums = match STEP {
                    SHARED => step_shared(s, call, weights, &pointers, 0, lane, sums),
                    _ => step(s, call, weights, &pointers, lane, sums),
                };
                weights = weights.add(BLOCK);
            }
        }
        for (pointer, step) in pointers.iter_mut().zip(steps) {
            *pointer = pointer.wrapping_add(*step);
        }
        channel += lanes;
        first = 0;
    }
    sums
}

/// Adds the products of one input channel and tap.
///
/// # Safety
/// The weights are those of the channel and tap, and each pointer leads to a value at the offset.
#[inline(always)]
unsafe fn step<S: Simd, const POSITIONS: usize, const VECTORS: usize>(
    s: S,
    call: &Call,
    weights: *const f32,
    pointers: &[*const f32; POSITIONS],
    offset: usize,
    mut sums: [[S::F; VECTORS]; POSITIONS],
) -> [[S::F; VECTORS]; POSITIONS] {
    // SAFETY: the caller's promise.
    unsafe {
        let right = load_weights::<S, VECTORS>(s, call, weights);
        unrolled!(position < POSITIONS => {
            let left = s.splat(*pointers[position].wrapping_add(offset));
            for vector in 0..VECTORS {
                sums[position][vector] = s.fma(left, right[vector], sums[position][vector]);
            }
        });
    }
    sums
}

/// Adds the products of one input channel of each group in a block, and one tap.
///
/// # Safety
/// The weights are those of the channel and tap, and each pointer leads to a block at the offset.
#[inline(always)]
unsafe fn step_shared<S: Simd, const POSITIONS: usize, const VECTORS: usize>(
    s: S,
    call: &Call,
    weights: *const f32,
    pointers: &[*const f32; POSITIONS],
    offset: usize,
    channel: usize,
    mut sums: [[S::F; VECTORS]; POSITIONS],
) -> [[S::F; VECTORS]; POSITIONS] {
    for vector in 0..VECTORS {
        let first = vector * S::LANES;
        // SAFETY: the caller's promise; the lanes have sixteen entries.
        unsafe {
            let right = s.load(weights.add(first));
            let start = call.group_lanes.add(first);
            let index = s.add_i(s.bits(s.load(start.cast())), s.splat_i(channel as i32));
            unrolled!(position < POSITIONS => {
                let block = pointers[position].wrapping_add(offset);
                // A vector of one group needs one value of it only.
                let left = match S::LANES <= call.group_outputs {
                    true => s.splat(*block.wrapping_add(*start as usize + channel)),
                    false => s.lookup(&*block.cast::<[f32; BLOCK]>(), index),
                };
                sums[position][vector] = s.fma(left, right, sums[position][vector]);
            });
        }
    }
    sums
}

/// Adds the bias, which may be far larger than the products and therefore comes last, and the residual, applies slopes or
/// limits and stores.
///
/// # Safety
/// As of [`run_tiles`].
#[inline(always)]
unsafe fn finish<S: Simd, const POSITIONS: usize, const VECTORS: usize>(
    s: S,
    call: &Call,
    mut sums: [[S::F; VECTORS]; POSITIONS],
) {
    let per_block = BLOCK / S::LANES;
    let (low, high) = (s.splat(call.limits.0), s.splat(call.limits.1));
    let place = |position: usize, vector: usize| {
        vector / per_block * call.block_stride + position * BLOCK + vector % per_block * S::LANES
    };
    // SAFETY: the caller's promise.
    unsafe {
        for vector in 0..VECTORS {
            let bias = s.load(call.bias.add(vector * S::LANES));
            unrolled!(position < POSITIONS => {
                sums[position][vector] = s.add(sums[position][vector], bias);
            });
        }
        if !call.residual.is_null() {
            for vector in 0..VECTORS {
                unrolled!(position < POSITIONS => {
                    let residual = s.load(call.residual.add(place(position, vector)));
                    sums[position][vector] = s.add(sums[position][vector], residual);
                });
            }
        }
        if !call.slopes.is_null() {
            for vector in 0..VECTORS {
                let slopes = s.load(call.slopes.add(vector * S::LANES));
                unrolled!(position < POSITIONS => {
                    let sum = sums[position][vector];
                    sums[position][vector] = s.select(s.lt(sum, s.splat(0.0)), s.mul(sum, slopes), sum);
                });
            }
        }
        for vector in 0..VECTORS {
            unrolled!(position < POSITIONS => {
                let sum = s.min(high, s.max(low, sums[position][vector]));
                s.store(call.output.add(place(position, vector)), sum);
            });
        }
        // The other half of a block of which only half is computed.
        for vector in VECTORS..per_block {
            for position in 0..POSITIONS {
                s.store(call.output.add(position * BLOCK + vector * S::LANES), s.splat(0.0));
            }
        }
    }
}

/// `[groups, output channels, input channels, kernel depth, kernel height, kernel width]`.
pub(super) fn shape(geometry: &ConvolutionGeometry) -> [usize; 6] {
    let [groups, outputs, inputs, high, wide] = geometry.channels_and_kernel();
    [groups, outputs, inputs, geometry.depth().taps, high, wide]
}
