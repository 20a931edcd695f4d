//! Convolutions and products of quantised values: bytes times signed bytes, summed in i32, scaled to f32 as they are
//! stored.
//!
//! The data are unsigned codes, as FakeQuantize makes them; the code of zero is taken into account by what the sums begin
//! with, so that results are those of the integers, exact up to the last conversion.

mod dots;

use crate::blocked::{BLOCK, PlaneView, blocked_len};
use crate::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use crate::epilogue::{Activation, Channelwise};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::math::Divisor;
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::{prefetch_far, prefetch_tile};
use crate::unary;
use dots::{DotKernel, Dots, dispatch_dots, tile_size};
use std::ops::Range;

/// Codes that one instruction multiplies and sums.
const QUAD: usize = 4;

/// Elements that a parallel chunk of a quantisation covers at least.
const CHUNK: usize = 1 << 14;

/// The most products that i32 surely holds the sum of.
pub const MOST_TERMS: usize = (i32::MAX as usize) / (255 * 128) - 1;

/// From f32 to codes: the nearest of `steps + 1` levels between the limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantizer {
    /// What becomes code 0, and everything below it.
    pub low: f32,
    /// What becomes the last code, and everything above it.
    pub high: f32,
    /// The last code, at most 255.
    pub steps: f32,
}

/// The layout of the codes of a convolution's input. Height and width are those of [`code_plane`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeLayout {
    /// `[N, H, W, 4]`: up to four channels side by side, the others anything.
    Quads,
    /// `[N, ceil(C / 16), H, W, 16]`.
    Blocks,
}

impl CodeLayout {
    fn lanes(self) -> usize {
        match self {
            CodeLayout::Quads => QUAD,
            CodeLayout::Blocks => BLOCK,
        }
    }
}

/// Signed codes of a convolution's or a product's constant operand, packed once for every tier.
#[derive(Debug, Clone)]
pub struct QuantizedWeights {
    /// Output channels, taps down and across, input channels.
    shape: [usize; 4],
    /// Channels that lie side by side in the data.
    lanes: usize,
    /// `[output block, tap, quad of channels, 16 output channels, 4 channels]`.
    values: Packed<i8>,
    /// The sum of all codes of each output channel, filled up to blocks.
    sums: Vec<i32>,
}

impl QuantizedWeights {
    /// Packs the codes `[output channels, input channels, height, width]` of a convolution.
    ///
    /// # Errors
    /// The number of codes is wrong, the geometry has groups or a depth, the layout does not hold its channels, there are no
    /// channels, or sums could exceed i32.
    pub fn of_convolution(
        geometry: &ConvolutionGeometry,
        layout: CodeLayout,
        codes: &[i8],
    ) -> Result<Self, KernelError> {
        check_exact("codes", codes.len(), geometry.weights_len())?;
        let [groups, outputs, inputs, high, wide] = geometry.channels_and_kernel();
        if groups != 1 || geometry.has_depth() || (layout == CodeLayout::Quads && inputs > QUAD) {
            return Err(KernelError::invalid("geometry", "has groups, a depth, or too many channels"));
        }
        let taps = high * wide;
        let code = |output: usize, tap: usize, channel: usize| codes[(output * inputs + channel) * taps + tap];
        Self::pack([outputs, high, wide, inputs], layout.lanes(), code)
    }

    /// Packs the codes of a matrix of `k` rows and `n` columns, which `code` gives by row and column.
    ///
    /// # Errors
    /// There are no rows, or sums could exceed i32.
    pub fn of_matrix(k: usize, n: usize, code: impl Fn(usize, usize) -> i8) -> Result<Self, KernelError> {
        Self::pack([n, 1, 1, k], k.next_multiple_of(QUAD), |column, _, row| code(row, column))
    }

    fn pack(shape: [usize; 4], lanes: usize, code: impl Fn(usize, usize, usize) -> i8) -> Result<Self, KernelError> {
        let [outputs, high, wide, inputs] = shape;
        let taps = high * wide;
        if inputs == 0 || taps.saturating_mul(inputs) > MOST_TERMS {
            return Err(KernelError::invalid("codes", "there is nothing to sum, or sums could exceed their integers"));
        }
        let quads = inputs.next_multiple_of(lanes) / QUAD;
        let blocks = outputs.div_ceil(BLOCK);
        let mut values = Packed::zeroed(product("codes", &[blocks, taps, quads, BLOCK, QUAD])?);
        let mut sums = vec![0; blocks * BLOCK];
        for output in 0..outputs {
            let (block, lane) = (output / BLOCK, output % BLOCK);
            for tap in 0..taps {
                for channel in 0..inputs {
                    let value = code(output, tap, channel);
                    let place = ((block * taps + tap) * quads + channel / QUAD) * BLOCK + lane;
                    values[place * QUAD + channel % QUAD] = value;
                    sums[output] += i32::from(value);
                }
            }
        }
        Ok(Self { shape, lanes, values, sums })
    }

    /// Bytes of one output block.
    fn block_bytes(&self) -> usize {
        let [_, high, wide, inputs] = self.shape;
        high * wide * inputs.next_multiple_of(self.lanes) * BLOCK
    }
}

/// How sums of integers become f32.
#[derive(Debug, Clone, Copy)]
pub struct Scaling<'a> {
    /// The code of the data that stands for zero.
    pub zero: i32,
    /// What a sum is multiplied with, one value an output channel.
    pub scales: &'a [f32],
}

/// Writes the codes of values in the same order.
///
/// # Errors
/// The slices differ in length.
pub fn quantize(isa: Isa, quantizer: &Quantizer, input: &[f32], output: &mut [u8]) -> Result<(), KernelError> {
    check_exact("output", output.len(), input.len())?;
    let shared = SharedMut::new(output);
    parallel_for(input.len(), CHUNK, nanoseconds_for_bytes(input.len().saturating_mul(6)), |range| {
        // SAFETY: chunks are disjoint.
        let output = unsafe { shared.slice(range.clone()) };
        dispatch(isa, Line { quantizer: *quantizer, input: &input[range], output });
    });
    Ok(())
}

/// The height and width of the planes of codes that a convolution reads: what its windows cover, so that none leaves them.
/// `None` where that is far larger than the input.
#[must_use]
pub fn code_plane(geometry: &ConvolutionGeometry) -> Option<[usize; 2]> {
    geometry.covered().map(|[_, high, wide]| [high, wide])
}

/// Bytes of the codes that a convolution reads; `None` where [`code_plane`] is.
#[must_use]
pub fn codes_len(geometry: &ConvolutionGeometry, layout: CodeLayout) -> Option<usize> {
    let [_, _, inputs, ..] = geometry.channels_and_kernel();
    let [high, wide] = code_plane(geometry)?;
    let channels = inputs.next_multiple_of(layout.lanes());
    [geometry.plane().batch, channels, high, wide].iter().try_fold(1usize, |total, size| total.checked_mul(*size))
}

/// Writes the codes that a convolution reads, with the code of zero in the padding. `input` is plain for
/// [`CodeLayout::Quads`] and blocked for [`CodeLayout::Blocks`].
///
/// # Errors
/// A slice has the wrong length, or the padding is far larger than the input.
pub fn quantize_planes(
    isa: Isa,
    quantizer: &Quantizer,
    geometry: &ConvolutionGeometry,
    layout: CodeLayout,
    zero: u8,
    input: &[f32],
    output: &mut [u8],
) -> Result<(), KernelError> {
    let (view, [_, _, inputs, ..]) = (geometry.plane(), geometry.channels_and_kernel());
    let invalid = || KernelError::invalid("geometry", "has padding far larger than its input");
    let ([high, wide], lanes) = (code_plane(geometry).ok_or_else(invalid)?, layout.lanes());
    if layout == CodeLayout::Quads && inputs > QUAD {
        return Err(KernelError::invalid("channels", "are more than four"));
    }
    let positions = view.input[0] * view.input[1];
    let input_len = match layout {
        CodeLayout::Quads => product("input", &[view.batch, inputs, positions])?,
        CodeLayout::Blocks => blocked_len(view.batch, inputs, positions),
    };
    check_exact("input", input.len(), input_len)?;
    check_exact("output", output.len(), codes_len(geometry, layout).ok_or_else(invalid)?)?;
    let planes = view.batch * inputs.div_ceil(lanes);
    let line = wide * lanes;
    let inside = view.pad[1].min(wide)..(view.pad[1] + view.input[1]).min(wide);
    let shared = SharedMut::new(output);
    let work = nanoseconds_for_bytes(input.len().saturating_mul(6));
    parallel_for(planes * high, CHUNK.div_ceil(line.max(1)), work, |range| {
        for index in range {
            let (plane, y) = (index / high, index % high);
            // SAFETY: lines are disjoint.
            let codes = unsafe { shared.slice(index * line..(index + 1) * line) };
            let Some(row) = y.checked_sub(view.pad[0]).filter(|row| *row < view.input[0]) else {
                codes.fill(zero);
                continue;
            };
            codes[..inside.start * lanes].fill(zero);
            codes[inside.end * lanes..].fill(zero);
            let codes = &mut codes[inside.start * lanes..inside.end * lanes];
            match layout {
                CodeLayout::Blocks => {
                    let source = &input[(plane * positions + row * view.input[1]) * lanes..][..codes.len()];
                    dispatch(isa, Line { quantizer: *quantizer, input: source, output: codes });
                }
                CodeLayout::Quads => {
                    for channel in 0..inputs {
                        let source = &input[(plane * inputs + channel) * positions + row * view.input[1]..];
                        quantize_channel(isa, quantizer, &source[..inside.len()], &mut codes[channel..]);
                    }
                }
            }
        }
    });
    Ok(())
}

/// Writes the codes of one channel of quads, whose other channels stay as they are.
fn quantize_channel(isa: Isa, quantizer: &Quantizer, input: &[f32], output: &mut [u8]) {
    let mut codes = [0u8; 256];
    for (part, values) in input.chunks(codes.len()).enumerate() {
        let codes = &mut codes[..values.len()];
        dispatch(isa, Line { quantizer: *quantizer, input: values, output: codes });
        for (place, code) in output[part * 256 * QUAD..].iter_mut().step_by(QUAD).zip(codes) {
            *place = *code;
        }
    }
}

/// Writes the codes of a matrix whose rows are filled up to whole quads with zeros.
///
/// # Errors
/// A slice has the wrong length.
pub fn quantize_rows(
    isa: Isa,
    quantizer: &Quantizer,
    columns: usize,
    input: &[f32],
    output: &mut [u8],
) -> Result<(), KernelError> {
    let wide = columns.next_multiple_of(QUAD);
    if wide == columns {
        return quantize(isa, quantizer, input, output);
    }
    let rows = input.len() / columns.max(1);
    check_exact("output", output.len(), product("output", &[rows, wide])?)?;
    for (line, source) in output.chunks_exact_mut(wide).zip(input.chunks_exact(columns)) {
        let (codes, rest) = line.split_at_mut(columns);
        dispatch(isa, Line { quantizer: *quantizer, input: source, output: codes });
        rest.fill(0);
    }
    Ok(())
}

struct Line<'a> {
    quantizer: Quantizer,
    input: &'a [f32],
    output: &'a mut [u8],
}

impl Kernel for Line<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Quantizer { low, high, steps } = self.quantizer;
        let (offset, top, last) = (s.splat(low), s.splat(high), s.splat(steps));
        let width = Divisor::new(s, s.sub(top, offset));
        let len = self.output.len().min(self.input.len());
        let (from, to) = (self.input.as_ptr(), self.output.as_mut_ptr());
        let mut at = 0;
        while at < len {
            let count = S::LANES.min(len - at);
            // SAFETY: so many values lie in both slices.
            unsafe {
                let whole = count == S::LANES;
                let value = if whole { s.load(from.add(at)) } else { s.load_partial(from.add(at), count) };
                // The order makes zero of NaN.
                let value = s.min(s.max(value, offset), top);
                let level = s.to_i(s.round(s.mul(width.divide(s, s.sub(value, offset)), last)));
                if whole {
                    s.store_u8(to.add(at), level);
                } else {
                    let mut codes = [0u8; BLOCK];
                    s.store_u8(codes.as_mut_ptr(), level);
                    std::ptr::copy_nonoverlapping(codes.as_ptr(), to.add(at), count);
                }
            }
            at += count;
        }
    }
}

/// Convolves the codes that [`quantize_planes`] wrote into the blocked layout of f32. A residual of the epilogue is blocked
/// too; bias and slopes are indexed by channel.
///
/// # Errors
/// A slice has the wrong length, or the weights were packed for another shape.
pub fn quantized_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &QuantizedWeights,
    scaling: &Scaling<'_>,
    input: &[u8],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let mut view = geometry.plane();
    let [groups, outputs, inputs, high, wide] = geometry.channels_and_kernel();
    if weights.shape != [outputs, high, wide, inputs] || groups != 1 || geometry.has_depth() {
        return Err(KernelError::invalid("weights", "packed for another shape"));
    }
    let far = || KernelError::invalid("geometry", "has padding far larger than its input");
    (view.input, view.pad) = (code_plane(geometry).ok_or_else(far)?, [0, 0]);
    let (plane, positions) = (view.input[0] * view.input[1], view.output[0] * view.output[1]);
    let channels = inputs.next_multiple_of(weights.lanes);
    check_exact("input", input.len(), product("input", &[view.batch, channels, plane])?)?;
    check_exact("output", output.len(), blocked_len(view.batch, outputs, positions))?;
    epilogue.check(outputs, output.len())?;
    check_len("scales", scaling.scales.len(), outputs)?;
    let job = Job {
        isa,
        weights,
        scaling,
        epilogue,
        input,
        image_bytes: channels * plane,
        view,
        positions,
        position_stride: BLOCK,
        block_stride: positions * BLOCK,
        image_stride: outputs.next_multiple_of(BLOCK) * positions,
        channels: outputs.next_multiple_of(BLOCK),
        output: SharedMut::new(output),
    };
    job.run(nanoseconds_for_flops(geometry.flops()) / 3);
    Ok(())
}

/// Multiplies codes `[rows, k]`, whose rows are filled up to whole quads, with a packed matrix into f32 `[rows, n]`. A
/// residual of the epilogue is `[rows, n]` too; bias and slopes are indexed by column.
///
/// # Errors
/// A slice has the wrong length, or the weights are those of a convolution.
pub fn quantized_product(
    isa: Isa,
    rows: usize,
    weights: &QuantizedWeights,
    scaling: &Scaling<'_>,
    input: &[u8],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let [n, high, wide, k] = weights.shape;
    if high * wide != 1 || weights.lanes != k.next_multiple_of(QUAD) {
        return Err(KernelError::invalid("weights", "packed for a convolution"));
    }
    check_exact("input", input.len(), product("input", &[rows, weights.lanes])?)?;
    check_exact("output", output.len(), product("output", &[rows, n])?)?;
    epilogue.check(n, output.len())?;
    check_len("scales", scaling.scales.len(), n)?;
    let one = [1, 1];
    let view = PlaneView { batch: 1, input: [1, rows], output: [1, rows], stride: one, dilation: one, pad: [0, 0] };
    let job = Job {
        isa,
        weights,
        scaling,
        epilogue,
        input,
        image_bytes: rows * weights.lanes,
        view,
        positions: rows,
        position_stride: n,
        block_stride: BLOCK,
        image_stride: 0,
        channels: n,
        output: SharedMut::new(output),
    };
    job.run(nanoseconds_for_flops(2 * (rows * n * k) as u64) / 3);
    Ok(())
}

struct Job<'a> {
    isa: Isa,
    weights: &'a QuantizedWeights,
    scaling: &'a Scaling<'a>,
    epilogue: &'a ConvolutionEpilogue<'a>,
    input: &'a [u8],
    image_bytes: usize,
    view: PlaneView,
    positions: usize,
    /// Elements of the output from one position to the next, from one block to the next, and from one image to the next.
    position_stride: usize,
    block_stride: usize,
    image_stride: usize,
    /// Channels that are stored: whole blocks where the output has them.
    channels: usize,
    output: SharedMut<'a, f32>,
}

impl Job<'_> {
    fn run(&self, work: u64) {
        if self.positions == 0 || self.view.batch == 0 || self.weights.sums.is_empty() {
            return;
        }
        let (most, together) = tile_size(self.isa);
        let tile = self.positions.div_ceil(self.positions.div_ceil(most));
        let blocks = self.weights.sums.len() / BLOCK;
        let pairs = blocks.div_ceil(together);
        let tile_bytes = tile * together * self.weights.block_bytes();
        let tiles = self.positions.div_ceil(tile);
        let run = (4_000_000 / tile_bytes.max(1)).clamp(1, tiles);
        let run = tiles.div_ceil(tiles.div_ceil(run));
        let runs = tiles.div_ceil(run);
        parallel_for(self.view.batch * pairs * runs, 1, work, |range| {
            for task in range {
                let (rest, part) = (task / runs, task % runs);
                let (image, pair) = (rest / pairs, rest % pairs);
                let first = pair * together;
                let span = part * run * tile..self.positions.min((part + 1) * run * tile);
                // SAFETY: lengths were checked, and tasks write disjoint parts of the output.
                unsafe { self.span(image, first, together.min(blocks - first), span, tile) };
            }
        });
    }

    /// Computes a span of positions for one or two output blocks.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches this part of the output.
    unsafe fn span(&self, image: usize, block: usize, blocks: usize, span: Range<usize>, tile: usize) {
        let [outputs, high, wide, inputs] = self.weights.shape;
        let channel = block * BLOCK;
        let count = (outputs - channel).min(2 * BLOCK);
        let vector = |values: &[f32]| {
            let mut lanes = [0.0f32; 2 * BLOCK];
            lanes[..count].copy_from_slice(&values[channel..channel + count]);
            lanes
        };
        let mut start = [0i32; 2 * BLOCK];
        for (value, sum) in start.iter_mut().zip(&self.weights.sums[channel..]) {
            *value = self.scaling.zero.wrapping_mul(*sum).wrapping_neg();
        }
        let (scales, bias) = (vector(self.scaling.scales), self.epilogue.bias.map_or([0.0; 2 * BLOCK], vector));
        let slopes = match self.epilogue.activation {
            Activation::PRelu(Channelwise::PerRow(slopes)) => Some(vector(slopes)),
            _ => None,
        };
        let part = self.epilogue.part(0, 0, 0, 0);
        let block_bytes = self.weights.block_bytes();
        // The tiles of all positions together ask for the weights of the next blocks.
        let next_step = (blocks * BLOCK * QUAD).div_ceil(self.positions.div_ceil(tile));
        let next_bytes = high * wide * inputs.next_multiple_of(self.weights.lanes) / QUAD * next_step;
        let mut position = span.start;
        while position < span.end {
            let count = tile.min(span.end - position);
            let next = (block + blocks) * block_bytes + position / tile * next_bytes;
            let (next, next_step) = match self.weights.values.get(next..next + next_bytes) {
                Some(next) => (next.as_ptr(), next_step),
                None => (self.weights.values[block * block_bytes..].as_ptr(), 0),
            };
            let offset = image * self.image_stride + block * self.block_stride + position * self.position_stride;
            let tile = Tile {
                input: self.input[image * self.image_bytes..].as_ptr(),
                view: self.view,
                walk: Walk::new(&self.view, [high, wide], self.weights.lanes, inputs.div_ceil(self.weights.lanes)),
                taps: [high, wide],
                lanes: self.weights.lanes,
                groups: inputs.div_ceil(self.weights.lanes),
                weights: self.weights.values[block * block_bytes..].as_ptr(),
                block_bytes,
                start: &start,
                scales: &scales,
                bias: &bias,
                slopes: slopes.as_ref(),
                residual: self.epilogue.residual.map(|values| values[offset..].as_ptr()),
                output: self.output.pointer().wrapping_add(offset),
                position_stride: self.position_stride,
                block_stride: self.block_stride,
                position,
                stored: self.channels - channel,
                limits: part.limits(),
                next,
                next_step,
            };
            // SAFETY: the tile lies inside the output, and everything it reads inside the slices that were checked.
            unsafe { dispatch_dots(self.isa, count, blocks, &tile) };
            if let (Activation::Unary(op), true) = (self.epilogue.activation, part.needs_pass()) {
                for (block, place) in (0..blocks).flat_map(|block| (0..count).map(move |place| (block, place))) {
                    let line = tile.output.wrapping_add(block * self.block_stride + place * self.position_stride);
                    let stored = BLOCK.min(self.channels - channel - block * BLOCK);
                    // SAFETY: the tile's lines lie in the output.
                    unsafe { unary::apply(self.isa, op, line, line, stored) };
                }
            }
            position += count;
        }
    }
}

/// Everything one tile needs.
struct Tile<'a> {
    input: *const u8,
    view: PlaneView,
    walk: Walk,
    taps: [usize; 2],
    /// Channels that lie side by side, and how many such runs there are.
    lanes: usize,
    groups: usize,
    weights: *const i8,
    block_bytes: usize,
    /// What the sums begin with.
    start: &'a [i32; 2 * BLOCK],
    scales: &'a [f32; 2 * BLOCK],
    bias: &'a [f32; 2 * BLOCK],
    slopes: Option<&'a [f32; 2 * BLOCK]>,
    residual: Option<*const f32>,
    output: *mut f32,
    position_stride: usize,
    block_stride: usize,
    position: usize,
    /// Channels that are stored, from the tile's first on.
    stored: usize,
    limits: (f32, f32),
    /// Weights of the next blocks, of which each step asks for some: where they begin for this tile.
    next: *const i8,
    /// Bytes from one step's to the next step's.
    next_step: usize,
}

/// The way through the quads of a window: those of one run of lanes, of all runs, of all taps across, of all taps down.
#[derive(Clone, Copy)]
struct Walk {
    /// How many there are of each, and how many are left.
    counts: [usize; 4],
    left: [usize; 4],
    /// Bytes from one to the next of each, and from the last of the level inside.
    jumps: [usize; 4],
}

impl Walk {
    fn new(view: &PlaneView, taps: [usize; 2], lanes: usize, groups: usize) -> Self {
        let counts = [lanes / QUAD, groups, taps[1], taps[0]];
        let steps = [
            QUAD,
            view.input[0] * view.input[1] * lanes,
            view.dilation[1] * lanes,
            view.dilation[0] * view.input[1] * lanes,
        ];
        let mut jumps = steps;
        for level in 1..4 {
            // From the last place of the levels inside back to their first, which may lie behind.
            let back: usize = (0..level).fold(0usize, |sum, inner| {
                sum.wrapping_add((counts[inner].wrapping_sub(1)).wrapping_mul(steps[inner]))
            });
            jumps[level] = steps[level].wrapping_sub(back);
        }
        Self { counts, left: counts, jumps }
    }

    /// The place after `offset`.
    #[inline(always)]
    fn next(&mut self, offset: usize) -> usize {
        self.left[0] -= 1;
        if self.left[0] > 0 {
            return offset + QUAD;
        }
        self.left[0] = self.counts[0];
        self.left[1] -= 1;
        if self.left[1] > 0 {
            return offset.wrapping_add(self.jumps[1]);
        }
        self.left[1] = self.counts[1];
        self.left[2] -= 1;
        if self.left[2] > 0 {
            return offset.wrapping_add(self.jumps[2]);
        }
        self.left[2] = self.counts[2];
        offset.wrapping_add(self.jumps[3])
    }
}

/// A tile with its number of positions and of vectors known to the compiler.
struct Fixed<'t, 'a, const POSITIONS: usize, const VECTORS: usize>(&'t Tile<'a>);

impl<const POSITIONS: usize, const VECTORS: usize> DotKernel for Fixed<'_, '_, POSITIONS, VECTORS> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        let tile = self.0;
        let blocks = (VECTORS * <D::S as Simd>::LANES).div_ceil(BLOCK);
        // The row of a product may begin in the middle of a line, so that its last channels lie in another.
        let line = |index: usize| {
            if index < blocks { index * tile.block_stride } else { (blocks - 1) * tile.block_stride + BLOCK - 1 }
        };
        prefetch_tile::<_, POSITIONS>(tile.output, tile.position_stride, blocks + 1, line);
        let residual = tile.residual.unwrap_or(std::ptr::null());
        prefetch_tile::<_, POSITIONS>(residual, tile.position_stride, blocks + 1, line);
        // SAFETY: the caller's promise.
        unsafe {
            let sums = self.accumulate(d);
            self.finish(d, sums);
        }
    }
}

/// The vector of integers of a tier.
type Sums<D, const POSITIONS: usize, const VECTORS: usize> = [[<<D as Dots>::S as Simd>::I; VECTORS]; POSITIONS];

impl<const POSITIONS: usize, const VECTORS: usize> Fixed<'_, '_, POSITIONS, VECTORS> {
    /// The sums of all products.
    ///
    /// # Safety
    /// The tile's pointers cover what its geometry asks for.
    #[inline(always)]
    unsafe fn accumulate<D: Dots>(&self, d: D) -> Sums<D, POSITIONS, VECTORS> {
        let (tile, s) = (self.0, d.simd());
        let view = &tile.view;
        let mut sums = [[s.splat_i(0); VECTORS]; POSITIONS];
        let mut pointers = [tile.input; POSITIONS];
        let (mut y, mut x) = (tile.position / view.output[1], tile.position % view.output[1]);
        for position in 0..POSITIONS {
            for vector in 0..VECTORS {
                // SAFETY: there is a beginning for each lane of two blocks.
                let start = unsafe { s.load(tile.start.as_ptr().add(vector * <D::S as Simd>::LANES).cast()) };
                sums[position][vector] = s.bits(start);
            }
            let place = y * view.stride[0] * view.input[1] + x * view.stride[1];
            pointers[position] = tile.input.wrapping_add(place * tile.lanes);
            x += 1;
            if x == view.output[1] {
                (y, x) = (y + 1, 0);
            }
        }
        let (mut weights, mut next) = (tile.weights, tile.next);
        let mut walk = tile.walk;
        let mut offset = 0;
        // One loop over everything keeps the sums in registers throughout.
        for _ in 0..tile.taps[0] * tile.taps[1] * tile.groups * (tile.lanes / QUAD) {
            prefetch_far(next);
            next = next.wrapping_add(tile.next_step);
            // SAFETY: windows lie inside the planes, so each pointer leads to the codes of a position.
            unsafe {
                sums = self.step(d, weights, &pointers, offset, sums);
                weights = weights.add(BLOCK * QUAD);
            }
            offset = walk.next(offset);
        }
        sums
    }

    /// Adds the products of four channels of one tap.
    ///
    /// # Safety
    /// Each pointer leads to four codes at the offset, and the weights to those of the quad.
    #[inline(always)]
    unsafe fn step<D: Dots>(
        &self,
        d: D,
        weights: *const i8,
        pointers: &[*const u8; POSITIONS],
        offset: usize,
        mut sums: Sums<D, POSITIONS, VECTORS>,
    ) -> Sums<D, POSITIONS, VECTORS> {
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        // SAFETY: the caller's promise.
        unsafe {
            let mut right = [d.right(weights); VECTORS];
            for vector in 1..VECTORS {
                let place = vector / per_block * self.0.block_bytes + vector % per_block * lanes * QUAD;
                right[vector] = d.right(weights.add(place));
            }
            for position in 0..POSITIONS {
                let left = d.left(pointers[position].wrapping_add(offset));
                for vector in 0..VECTORS {
                    sums[position][vector] = d.dot(sums[position][vector], left, right[vector]);
                }
            }
        }
        sums
    }

    /// Scales the sums, adds bias and residual, applies slopes or limits and stores.
    ///
    /// # Safety
    /// The tile's pointers cover what its geometry asks for.
    #[inline(always)]
    unsafe fn finish<D: Dots>(&self, d: D, sums: Sums<D, POSITIONS, VECTORS>) {
        let (tile, s) = (self.0, d.simd());
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        let (low, high) = (s.splat(tile.limits.0), s.splat(tile.limits.1));
        for vector in 0..VECTORS {
            // SAFETY: the parameters have a value for each lane of two blocks, and the rest is the caller's promise.
            unsafe {
                let scale = s.load(tile.scales.as_ptr().add(vector * lanes));
                let bias = s.load(tile.bias.as_ptr().add(vector * lanes));
                let stored = tile.stored.saturating_sub(vector * lanes).min(lanes);
                for position in 0..POSITIONS {
                    let place = vector / per_block * tile.block_stride + position * tile.position_stride;
                    let place = place + vector % per_block * lanes;
                    let mut sum = s.fma(s.from_i(sums[position][vector]), scale, bias);
                    if let Some(residual) = tile.residual {
                        let whole = stored == lanes;
                        let added = if whole {
                            s.load(residual.add(place))
                        } else {
                            s.load_partial(residual.add(place), stored)
                        };
                        sum = s.add(sum, added);
                    }
                    if let Some(slopes) = tile.slopes {
                        let scaled = s.mul(sum, s.load(slopes.as_ptr().add(vector * lanes)));
                        sum = s.select(s.lt(sum, s.splat(0.0)), scaled, sum);
                    }
                    let value = s.min(high, s.max(low, sum));
                    if stored == lanes {
                        s.store(tile.output.add(place), value);
                    } else {
                        s.store_partial(tile.output.add(place), value, stored);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
