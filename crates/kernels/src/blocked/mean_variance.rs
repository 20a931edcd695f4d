//! Normalisation of the mean and the variance of each channel of blocked tensors, of groups of channels, or of the channels
//! of each position: a vector is sixteen channels of one position.
//!
//! Positions are cut into chunks, whose means and variances are joined: sums of many small numbers keep their digits, chunks
//! stay in the first cache for both, and one block of channels has work for several threads.

use super::{BLOCK, blocked_len, lanes_from};
use crate::chain::{ChainInput, ChainOutput, Target};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_chunks_mut, parallel_for};
use crate::quantized::{Decoder, dequantize_line, quantize_line};
use crate::simd::{Kernel, Simd, dispatch};
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Positions of a chunk.
const CHUNK: usize = 256;

/// Positions that are summed side by side.
const SIDE_BY_SIDE: usize = 4;

/// Positions whose channels are normalised together.
const ROWS: usize = 8;

/// Positions whose channels are normalised in one task.
const RUN: usize = 64;

/// As many ones as any vector has lanes.
static ONES: [f32; BLOCK] = [1.0; BLOCK];

/// What is done to every channel after its mean is subtracted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanVariance {
    /// Divide by the square root of the variance.
    pub divide: bool,
    /// Added to the variance, or to its root.
    pub epsilon: f32,
    /// Whether epsilon is added under the root.
    pub epsilon_inside: bool,
}

/// Elements of scratch that [`blocked_mean_variance`] needs: the mean and the sum of squares of each chunk.
#[must_use]
pub fn blocked_mean_variance_scratch_len(batch: usize, channels: usize, positions: usize) -> usize {
    blocked_len(batch, channels, positions.div_ceil(CHUNK)).saturating_mul(2)
}

/// The normalisation of groups of channels: `after((x - mean) / sqrt(variance + epsilon) * scale + bias)`.
#[derive(Debug, Clone, Copy)]
pub struct GroupMeanVariance<'a> {
    /// The groups, of as many channels each.
    pub groups: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// One value a channel.
    pub scale: &'a [f32],
    /// One value a channel.
    pub bias: &'a [f32],
    /// What is done to the results, if anything.
    pub after: Option<UnaryOp>,
}

/// Normalises every channel of every image of blocked `[batch, channels, positions]`.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn blocked_mean_variance(
    isa: Isa,
    sizes: [usize; 3],
    normalization: &MeanVariance,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let [_, _, positions] = sizes;
    let MeanVariance { divide, epsilon, epsilon_inside } = *normalization;
    let blocks = Blocks::new(sizes)?;
    let join = |image: &mut [f32]| {
        for block in image.chunks_exact_mut(blocks.chunks * 2 * BLOCK) {
            for (lane, [mean, squares]) in joined(positions, block).into_iter().enumerate() {
                let variance = squares / positions as f64;
                let root = match epsilon_inside {
                    true => (variance + f64::from(epsilon)).sqrt(),
                    false => variance.sqrt() + f64::from(epsilon),
                };
                block[lane] = mean as f32;
                block[BLOCK + lane] = if divide { (1.0 / root) as f32 } else { 1.0 };
            }
        }
    };
    let (input, output) = (ChainInput::Values(input), ChainOutput::Values(output));
    blocks.normalize(isa, input, None, output, scratch, join, |_| [0.0; BLOCK])
}

/// Normalises every group of channels of every image of blocked `[batch, channels, positions]`. Values may be given by their
/// codes, and codes of the results be stored, as by [`run_chain`](crate::chain::run_chain).
///
/// # Errors
/// A slice does not fit the sizes, or groups are not of as many channels each.
pub fn blocked_group_normalization(
    isa: Isa,
    sizes: [usize; 3],
    normalization: &GroupMeanVariance<'_>,
    input: ChainInput<'_>,
    output: ChainOutput<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let [_, channels, positions] = sizes;
    let GroupMeanVariance { groups, epsilon, scale, bias, after } = *normalization;
    check_len("scale", scale.len(), channels)?;
    check_len("bias", bias.len(), channels)?;
    if groups == 0 || !channels.is_multiple_of(groups) {
        return Err(KernelError::invalid("groups", "are not of as many channels each"));
    }
    let blocks = Blocks::new(sizes)?;
    let of_group = channels / groups;
    let join = |image: &mut [f32]| {
        let apart = blocks.chunks * 2 * BLOCK;
        for block in image.chunks_exact_mut(apart) {
            for (lane, [mean, squares]) in joined(positions, block).into_iter().enumerate() {
                (block[lane], block[BLOCK + lane]) = (mean as f32, squares as f32);
            }
        }
        let place = |channel: usize| channel / BLOCK * apart + channel % BLOCK;
        for group in 0..groups {
            let own = group * of_group..(group + 1) * of_group;
            let value = |channel: usize, of: usize| f64::from(image[place(channel) + of * BLOCK]);
            let mean = own.clone().map(|channel| value(channel, 0)).sum::<f64>() / of_group as f64;
            let apart = |channel: usize| positions as f64 * (value(channel, 0) - mean).powi(2);
            let squares: f64 = own.clone().map(|channel| value(channel, 1) + apart(channel)).sum();
            let root = (squares / (of_group * positions) as f64 + f64::from(epsilon)).sqrt();
            for channel in own {
                image[place(channel)] = mean as f32;
                image[place(channel) + BLOCK] = (f64::from(scale[channel]) / root) as f32;
            }
        }
    };
    blocks.normalize(isa, input, after, output, scratch, join, |channel| lanes_from(bias, channel))
}

/// Normalises the channels of every position of blocked `[batch, channels, positions]`, multiplies them by `scale` and adds
/// `bias`, which have one value a channel.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn blocked_channel_normalization(
    isa: Isa,
    sizes: [usize; 3],
    normalization: &MeanVariance,
    [scale, bias]: [Option<&[f32]>; 2],
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let [batch, channels, positions] = sizes;
    let blocks = Blocks::new(sizes)?;
    check_exact("input", input.len(), blocks.len)?;
    check_exact("output", output.len(), blocks.len)?;
    for (argument, values) in [("scale", scale), ("bias", bias)] {
        values.map_or(Ok(()), |values| check_exact(argument, values.len(), channels))?;
    }
    if blocks.len == 0 {
        return Ok(());
    }
    let runs = positions.div_ceil(RUN);
    let image_len = blocks.count * blocks.volume;
    let shared = SharedMut::new(output);
    parallel_for(batch * runs, 1, nanoseconds_for_bytes(blocks.len.saturating_mul(12)), |range| {
        for index in range {
            let (image, first) = (index / runs, index % runs * RUN);
            let rows = Rows {
                normalization,
                channels,
                volume: blocks.volume,
                range: first..positions.min(first + RUN),
                scale,
                bias,
                input: &input[image * image_len..][..image_len],
                output: shared.pointer().wrapping_add(image * image_len),
            };
            // SAFETY: the output is as long as the input, and runs of positions are disjoint.
            dispatch(isa, rows);
        }
    });
    Ok(())
}

/// The blocks of a blocked tensor, cut into chunks.
struct Blocks {
    batch: usize,
    /// Blocks of an image, and chunks of a block.
    count: usize,
    chunks: usize,
    /// Elements of a block, and of all.
    volume: usize,
    len: usize,
}

impl Blocks {
    fn new([batch, channels, positions]: [usize; 3]) -> Result<Self, KernelError> {
        let len = product("input", &[batch, channels.div_ceil(BLOCK), BLOCK, positions])?;
        let (count, chunks) = (channels.div_ceil(BLOCK), positions.div_ceil(CHUNK));
        Ok(Self { batch, count, chunks, volume: positions * BLOCK, len })
    }

    /// Subtracts means and multiplies by factors, both of which `join` puts where the first chunk of each block of an image
    /// has its statistics, adds the `bias` of the channels from one on, and applies a function.
    #[expect(clippy::too_many_arguments, reason = "each is a part of one computation")]
    fn normalize(
        &self,
        isa: Isa,
        input: ChainInput<'_>,
        after: Option<UnaryOp>,
        output: ChainOutput<'_>,
        scratch: &mut [f32],
        join: impl Fn(&mut [f32]),
        bias: impl Fn(usize) -> [f32; BLOCK] + Sync,
    ) -> Result<(), KernelError> {
        let Self { batch, count, chunks, volume, len } = *self;
        check_exact("input", input.len(), len)?;
        let output = Target::new(output);
        check_exact("output", output.len(), len)?;
        let needed = blocked_mean_variance_scratch_len(batch, count * BLOCK, volume / BLOCK);
        check_len("scratch", scratch.len(), needed)?;
        if len == 0 {
            return Ok(());
        }
        let work = nanoseconds_for_bytes(len.saturating_mul(4));
        let range_of = |index: usize| {
            let (start, first) = (index / chunks * volume, index % chunks * CHUNK * BLOCK);
            start + first..start + volume.min(first + CHUNK * BLOCK)
        };
        let scratch = &mut scratch[..needed];
        parallel_chunks_mut(scratch, 2 * BLOCK, work, |index, statistics| {
            let mut tile = Tile(MaybeUninit::uninit());
            let place = range_of(index);
            let count = place.len();
            // SAFETY: the tile has the elements of a chunk, all of which lie in the input.
            let values =
                unsafe { std::slice::from_raw_parts(values_of(isa, &input, place, tile.0.as_mut_ptr().cast()), count) };
            dispatch(isa, Statistics { input: values, statistics });
        });
        scratch.chunks_exact_mut(count * chunks * 2 * BLOCK).for_each(join);
        let scratch = &*scratch;
        parallel_for(len / volume * chunks, 1, work.saturating_mul(2), |range| {
            let mut tile = Tile(MaybeUninit::uninit());
            let tile = tile.0.as_mut_ptr().cast::<f32>();
            for index in range {
                let (place, block) = (range_of(index), index / chunks);
                let joined = &scratch[block * chunks * 2 * BLOCK..][..2 * BLOCK];
                let bias = bias(block % count * BLOCK);
                let (first, count) = (place.start, place.len());
                // SAFETY: chunks are disjoint and lie in the output, which is as long as the input; a tile has the elements
                // of a chunk, whose values are read before their places are written.
                unsafe {
                    let values = values_of(isa, &input, place, tile);
                    let target = match &output {
                        Target::Values(values) => values.pointer().add(first),
                        Target::Codes(..) => tile,
                    };
                    dispatch(
                        isa,
                        Apply { input: values, joined, bias: &bias, output: target, positions: count / BLOCK },
                    );
                    if let Some(after) = after {
                        unary::apply(isa, after, target, target, count);
                    }
                    if let Target::Codes(codes, encoding) = &output {
                        quantize_line(isa, *encoding, target, codes.pointer().add(first), count);
                    }
                }
            }
        });
        Ok(())
    }
}

/// The values of a chunk, on lines of the cache.
#[repr(align(64))]
struct Tile(MaybeUninit<[f32; CHUNK * BLOCK]>);

/// The values of a chunk, which are brought into the tile if they are given by codes.
///
/// # Safety
/// The tile has room for so many values.
unsafe fn values_of(isa: Isa, input: &ChainInput<'_>, place: Range<usize>, tile: *mut f32) -> *const f32 {
    match input {
        ChainInput::Values(values) => values[place].as_ptr(),
        ChainInput::Codes(codes, dequantizer) => {
            let codes = &codes[place];
            // SAFETY: the caller's promise.
            unsafe { dequantize_line(isa, Decoder::new(dequantizer), codes.as_ptr(), tile, codes.len()) };
            tile
        }
    }
}

/// The mean of all positions of each lane of a block, and the sum of the squares of the distances from it.
fn joined(positions: usize, chunks: &[f32]) -> [[f64; 2]; BLOCK] {
    let count = chunks.len() / (2 * BLOCK);
    let weight = |chunk: usize| (positions - chunk * CHUNK).min(CHUNK) as f64;
    std::array::from_fn(|lane| {
        let value = |chunk: usize, of: usize| f64::from(chunks[(chunk * 2 + of) * BLOCK + lane]);
        let mean = (0..count).map(|chunk| weight(chunk) * value(chunk, 0)).sum::<f64>() / positions as f64;
        let squares = (0..count).map(|chunk| value(chunk, 1) + weight(chunk) * (value(chunk, 0) - mean).powi(2)).sum();
        [mean, squares]
    })
}

/// The means of the positions of a chunk, and the sums of the squares of the distances from them.
struct Statistics<'a> {
    input: &'a [f32],
    statistics: &'a mut [f32],
}

impl Kernel for Statistics<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let positions = self.input.len() / BLOCK;
        if self.statistics.len() < 2 * BLOCK {
            return;
        }
        for part in (0..BLOCK).step_by(S::LANES) {
            let sum = total(s, self.input, part, s.splat(0.0), false);
            let mean = s.div(sum, s.splat(positions as f32));
            let squares = total(s, self.input, part, mean, true);
            // SAFETY: the statistics hold two blocks, and the part lies in a block.
            unsafe {
                s.store(self.statistics.as_mut_ptr().add(part), mean);
                s.store(self.statistics.as_mut_ptr().add(BLOCK + part), squares);
            }
        }
    }
}

/// The sums over all positions of a part of a block, or those of the squares of the distances from `center`.
#[inline(always)]
fn total<S: Simd>(s: S, input: &[f32], part: usize, center: S::F, squares: bool) -> S::F {
    let positions = input.len() / BLOCK;
    let mut sums = [s.splat(0.0); SIDE_BY_SIDE];
    let mut position = 0;
    while position + SIDE_BY_SIDE <= positions {
        for (index, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the position lies in the input.
            *sum = unsafe { added(s, input.as_ptr().add((position + index) * BLOCK + part), center, squares, *sum) };
        }
        position += SIDE_BY_SIDE;
    }
    while position < positions {
        // SAFETY: the position lies in the input.
        sums[0] = unsafe { added(s, input.as_ptr().add(position * BLOCK + part), center, squares, sums[0]) };
        position += 1;
    }
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}

/// A sum with one more distance from the center, or its square.
///
/// # Safety
/// There is a vector at the address.
#[inline(always)]
unsafe fn added<S: Simd>(s: S, from: *const f32, center: S::F, squares: bool, sum: S::F) -> S::F {
    // SAFETY: the caller's promise.
    let value = s.sub(unsafe { s.load(from) }, center);
    if squares { s.fma(value, value, sum) } else { s.add(sum, value) }
}

/// Subtracts means, multiplies by factors and adds a bias.
struct Apply<'a> {
    /// As many blocks as there are positions.
    input: *const f32,
    /// Sixteen means and sixteen factors.
    joined: &'a [f32],
    bias: &'a [f32; BLOCK],
    /// As many blocks too; the same memory as the input, or other memory.
    output: *mut f32,
    positions: usize,
}

impl Kernel for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.joined.len() < 2 * BLOCK {
            return;
        }
        for part in (0..BLOCK).step_by(S::LANES) {
            // SAFETY: the part lies in a block, of which there are two for each position.
            unsafe {
                let mean = s.load(self.joined.as_ptr().add(part));
                let factor = s.load(self.joined.as_ptr().add(BLOCK + part));
                let bias = s.load(self.bias.as_ptr().add(part));
                for position in 0..self.positions {
                    let place = position * BLOCK + part;
                    let value = s.sub(s.load(self.input.add(place)), mean);
                    s.store(self.output.add(place), s.fma(value, factor, bias));
                }
            }
        }
    }
}

/// Some positions of an image, each of whose channels are a row.
struct Rows<'a> {
    normalization: &'a MeanVariance,
    channels: usize,
    /// Elements from one block to the next.
    volume: usize,
    range: Range<usize>,
    scale: Option<&'a [f32]>,
    bias: Option<&'a [f32]>,
    input: &'a [f32],
    /// As long as the input; nobody else writes the positions.
    output: *mut f32,
}

impl Kernel for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for first in self.range.clone().step_by(ROWS) {
            match self.range.end - first {
                ROWS.. => self.rows::<S, ROWS>(s, first),
                count => {
                    for position in first..first + count {
                        self.rows::<S, 1>(s, position);
                    }
                }
            }
        }
    }
}

impl Rows<'_> {
    /// Normalises so many neighbouring positions.
    #[inline(always)]
    fn rows<S: Simd, const COUNT: usize>(&self, s: S, first: usize) {
        // Plain loops: what a closure does is compiled without the instructions of the tier.
        let input = self.input.as_ptr();
        let mut sums = [s.splat(0.0); COUNT];
        for channel in (0..self.channels).step_by(S::LANES) {
            let (lanes, place) = self.vector::<S>(channel, first);
            for (row, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the vector lies in the block of the position, of which so many lanes are channels.
                *sum = s.add(*sum, unsafe { s.load_first(input.add(place + row * BLOCK), lanes) });
            }
        }
        let mut means = [0.0f32; COUNT];
        for (mean, sum) in means.iter_mut().zip(sums) {
            *mean = s.reduce_add(sum) / self.channels as f32;
        }
        let mut squares = [s.splat(0.0); COUNT];
        for channel in (0..self.channels).step_by(S::LANES) {
            let (lanes, place) = self.vector::<S>(channel, first);
            // SAFETY: a vector has at most as many lanes as there are ones.
            let are_channels = unsafe { s.load_first(ONES.as_ptr(), lanes) };
            for (row, square) in squares.iter_mut().enumerate() {
                // SAFETY: as above.
                let value = unsafe { s.load_first(input.add(place + row * BLOCK), lanes) };
                let distance = s.mul(s.sub(value, s.splat(means[row])), are_channels);
                *square = s.fma(distance, distance, *square);
            }
        }
        let MeanVariance { divide, epsilon, epsilon_inside } = *self.normalization;
        let mut factors = [1.0f32; COUNT];
        for (factor, square) in factors.iter_mut().zip(squares) {
            let variance = s.reduce_add(square) / self.channels as f32;
            let root = if epsilon_inside { (variance + epsilon).sqrt() } else { variance.sqrt() + epsilon };
            *factor = if divide { 1.0 / root } else { 1.0 };
        }
        for channel in (0..self.channels).step_by(S::LANES) {
            let (lanes, place) = self.vector::<S>(channel, first);
            let (mut scale, mut bias) = (s.splat(1.0), s.splat(0.0));
            if let Some(values) = self.scale {
                // SAFETY: there is a value for each channel.
                scale = unsafe { s.load_first(values.as_ptr().add(channel), lanes) };
            }
            if let Some(values) = self.bias {
                // SAFETY: as above.
                bias = unsafe { s.load_first(values.as_ptr().add(channel), lanes) };
            }
            for row in 0..COUNT {
                let place = place + row * BLOCK;
                // SAFETY: as above, and the output is as long as the input. Lanes without a channel may hold anything.
                unsafe {
                    let value = s.load_first(input.add(place), lanes);
                    let value = s.mul(s.sub(value, s.splat(means[row])), s.splat(factors[row]));
                    s.store(self.output.add(place), s.fma(value, scale, bias));
                }
            }
        }
    }

    /// The lanes of the vector from a channel on that are channels, and where it lies at a position.
    #[inline(always)]
    fn vector<S: Simd>(&self, channel: usize, position: usize) -> (usize, usize) {
        let place = channel / BLOCK * self.volume + position * BLOCK + channel % BLOCK;
        (S::LANES.min(self.channels - channel), place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{from_plain, to_plain};
    use crate::quantized::{Dequantizer, Quantizer, dequantize, quantize};
    use crate::testing::{Random, assert_close, in_pool};
    use crate::unary::unary_f32_in_place;
    use pretty_assertions::assert_eq;

    #[test]
    fn groups_are_normalised() {
        let mut random = Random::new(9);
        for (batch, groups, of_group, positions) in
            [(1, 1, 1, 1), (2, 1, 19, 7), (1, 32, 10, CHUNK), (2, 3, 16, 2 * CHUNK + 3), (1, 1, 64, 700), (0, 1, 3, 4)]
        {
            let channels = groups * of_group;
            let values: Vec<f32> = random.values(batch * channels * positions).iter().map(|x| x + 3.0).collect();
            let (scale, bias) = (random.values(channels), random.values(channels));
            let mut blocked = vec![f32::NAN; blocked_len(batch, channels, positions)];
            from_plain(batch, channels, positions, &values, &mut blocked).unwrap();
            let mut expected = Vec::new();
            for (index, group) in values.chunks(of_group * positions).enumerate() {
                let mean = group.iter().map(|x| f64::from(*x)).sum::<f64>() / group.len() as f64;
                let square = group.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / group.len() as f64;
                for (place, x) in group.iter().enumerate() {
                    let channel = index % groups * of_group + place / positions;
                    let value = (f64::from(*x) - mean) / (square + 0.01).sqrt();
                    expected.push(value * f64::from(scale[channel]) + f64::from(bias[channel]));
                }
            }
            let normalization = GroupMeanVariance { groups, epsilon: 0.01, scale: &scale, bias: &bias, after: None };
            let sizes = [batch, channels, positions];
            for isa in Isa::available() {
                let run = || {
                    let len = blocked_mean_variance_scratch_len(batch, channels, positions);
                    let (mut output, mut scratch) = (vec![f32::NAN; blocked.len()], vec![f32::NAN; len]);
                    let (input, target) = (ChainInput::Values(&blocked), ChainOutput::Values(&mut output));
                    blocked_group_normalization(isa, sizes, &normalization, input, target, &mut scratch).unwrap();
                    let mut plain = vec![f32::NAN; values.len()];
                    to_plain(batch, channels, positions, &output, &mut plain).unwrap();
                    plain
                };
                let result = run();
                assert_close(&result, &expected, 100, &format!("{isa} {batch} {groups} {of_group} {positions}"));
                assert_eq!(result, in_pool(3, run));
            }
            let uneven = GroupMeanVariance { groups: channels + 1, ..normalization };
            let (input, target) = (ChainInput::Values(&blocked), ChainOutput::Values(&mut []));
            assert!(blocked_group_normalization(Isa::portable(), sizes, &uneven, input, target, &mut []).is_err());
        }
    }

    /// Values that are given by codes, a function behind them and codes of the results are what the steps give one by one.
    #[test]
    fn groups_of_codes_are_normalised() {
        let mut random = Random::new(19);
        for (batch, groups, of_group, positions) in [(1, 1, 5, 3), (2, 3, 16, 2 * CHUNK + 3), (1, 32, 10, CHUNK)] {
            let channels = groups * of_group;
            let (scale, bias) = (random.values(channels), random.values(channels));
            let len = blocked_len(batch, channels, positions);
            let codes: Vec<u8> = random.values(len).iter().map(|x| (x.abs() * 300.0) as u8).collect();
            let dequantizer = Dequantizer { low: -1.5, high: 2.0, steps: 255.0 };
            let quantizer = Quantizer { low: -0.5, high: 1.0, steps: 255.0 };
            let sizes = [batch, channels, positions];
            let plain = GroupMeanVariance { groups, epsilon: 0.01, scale: &scale, bias: &bias, after: None };
            let activated = GroupMeanVariance { after: Some(UnaryOp::Swish { beta: 1.0 }), ..plain };
            for isa in Isa::available() {
                let run = |normalization: &GroupMeanVariance<'_>, input: ChainInput<'_>, output: ChainOutput<'_>| {
                    let mut scratch = vec![f32::NAN; blocked_mean_variance_scratch_len(batch, channels, positions)];
                    blocked_group_normalization(isa, sizes, normalization, input, output, &mut scratch).unwrap();
                };
                let (mut values, mut expected) = (vec![0.0; len], vec![0.0; len]);
                dequantize(isa, &dequantizer, &codes, &mut values).unwrap();
                run(&plain, ChainInput::Values(&values), ChainOutput::Values(&mut expected));
                unary_f32_in_place(isa, UnaryOp::Swish { beta: 1.0 }, &mut expected);
                let mut expected_codes = vec![0; len];
                quantize(isa, &quantizer, &expected, &mut expected_codes).unwrap();
                for input in [ChainInput::Values(&values), ChainInput::Codes(&codes, dequantizer)] {
                    let (mut result, mut result_codes) = (vec![f32::NAN; len], vec![7; len]);
                    run(&activated, input, ChainOutput::Values(&mut result));
                    run(&activated, input, ChainOutput::Codes(&mut result_codes, quantizer));
                    assert_eq!(result, expected, "{isa} {sizes:?}");
                    assert_eq!(result_codes, expected_codes, "{isa} {sizes:?}");
                }
            }
        }
    }

    #[test]
    fn channels_are_normalised() {
        let mut random = Random::new(4);
        for (batch, channels, positions) in
            [(1, 1, 1), (2, 19, 7), (1, 16, CHUNK), (1, 33, 2 * CHUNK + 3), (2, 5, 20_000), (0, 3, 4), (1, 3, 0)]
        {
            // Far from zero, where sums lose digits.
            let values: Vec<f32> = random.values(batch * channels * positions).iter().map(|x| x + 3.0).collect();
            let mut blocked = vec![f32::NAN; blocked_len(batch, channels, positions)];
            from_plain(batch, channels, positions, &values, &mut blocked).unwrap();
            for (divide, epsilon_inside) in [(true, true), (true, false), (false, true)] {
                let normalization = MeanVariance { divide, epsilon: 0.01, epsilon_inside };
                let mut expected = Vec::new();
                for line in values.chunks(positions.max(1)) {
                    let mean = line.iter().map(|x| f64::from(*x)).sum::<f64>() / line.len() as f64;
                    let square = line.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / line.len() as f64;
                    let root = if epsilon_inside { (square + 0.01).sqrt() } else { square.sqrt() + 0.01 };
                    let root = if divide { root } else { 1.0 };
                    expected.extend(line.iter().map(|x| (f64::from(*x) - mean) / root));
                }
                for isa in Isa::available() {
                    let run = || {
                        let len = blocked_mean_variance_scratch_len(batch, channels, positions);
                        let (mut output, mut scratch) = (vec![f32::NAN; blocked.len()], vec![f32::NAN; len]);
                        let sizes = [batch, channels, positions];
                        blocked_mean_variance(isa, sizes, &normalization, &blocked, &mut output, &mut scratch).unwrap();
                        let mut plain = vec![f32::NAN; values.len()];
                        to_plain(batch, channels, positions, &output, &mut plain).unwrap();
                        plain
                    };
                    let result = run();
                    assert_close(&result, &expected, 100, &format!("{isa} {batch} {channels} {positions}"));
                    assert_eq!(result, in_pool(3, run));
                }
            }
        }
    }

    #[test]
    fn misfitting_slices_are_errors() {
        let normalization = MeanVariance { divide: true, epsilon: 0.1, epsilon_inside: true };
        let run = |sizes: [usize; 3], input: usize, output: usize, scratch: usize| {
            let (input, mut output, mut scratch) = (vec![0.0; input], vec![0.0; output], vec![0.0; scratch]);
            blocked_mean_variance(crate::isa::detect(), sizes, &normalization, &input, &mut output, &mut scratch)
        };
        assert!(run([1, 3, 4], 64, 64, 32).is_ok());
        assert!(run([1, 3, 4], 63, 64, 32).is_err());
        assert!(run([1, 3, 4], 64, 80, 32).is_err());
        assert!(run([1, 3, 4], 64, 64, 31).is_err());
        assert!(run([usize::MAX, 3, 4], 64, 64, 32).is_err());
    }

    #[test]
    fn channels_of_each_position_are_normalised() {
        let mut random = Random::new(12);
        for (batch, channels, positions) in [(1, 1, 1), (2, 19, 7), (1, 32, 64), (2, 5, 150), (1, 96, 33), (0, 3, 4)] {
            let values: Vec<f32> = random.values(batch * channels * positions).iter().map(|x| x + 3.0).collect();
            let (scale, bias) = (random.values(channels), random.values(channels));
            let mut blocked = vec![f32::NAN; blocked_len(batch, channels, positions)];
            from_plain(batch, channels, positions, &values, &mut blocked).unwrap();
            // Lanes beyond the last channel hold anything.
            if channels % BLOCK != 0 && positions > 0 {
                let block = channels / BLOCK * positions * BLOCK;
                (0..batch).for_each(|image| {
                    let image = &mut blocked[image * blocked_len(1, channels, positions)..];
                    (0..positions).for_each(|place| image[block + place * BLOCK + BLOCK - 1] = f32::NAN);
                });
            }
            for (divide, epsilon_inside, has_affine) in [(true, true, true), (true, false, false), (false, true, true)]
            {
                let mut expected = vec![0.0; values.len()];
                for (image, place) in (0..batch).flat_map(|image| (0..positions).map(move |place| (image, place))) {
                    let at = |channel: usize| (image * channels + channel) * positions + place;
                    let value = |channel: usize| f64::from(values[at(channel)]);
                    let mean = (0..channels).map(value).sum::<f64>() / channels as f64;
                    let square = (0..channels).map(|c| (value(c) - mean).powi(2)).sum::<f64>() / channels as f64;
                    let root = if epsilon_inside { (square + 0.01).sqrt() } else { square.sqrt() + 0.01 };
                    for channel in 0..channels {
                        let value = (value(channel) - mean) / if divide { root } else { 1.0 };
                        expected[at(channel)] = match has_affine {
                            true => value * f64::from(scale[channel]) + f64::from(bias[channel]),
                            false => value,
                        };
                    }
                }
                let normalization = MeanVariance { divide, epsilon: 0.01, epsilon_inside };
                let affine = if has_affine { [Some(&scale[..]), Some(&bias[..])] } else { [None; 2] };
                let sizes = [batch, channels, positions];
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![f32::NAN; blocked.len()];
                        blocked_channel_normalization(isa, sizes, &normalization, affine, &blocked, &mut output)
                            .unwrap();
                        let mut plain = vec![f32::NAN; values.len()];
                        to_plain(batch, channels, positions, &output, &mut plain).unwrap();
                        plain
                    };
                    assert_close(&run(), &expected, 200, &format!("{isa} {sizes:?}"));
                    assert_eq!(run(), in_pool(2, run));
                }
            }
        }
        let plain = MeanVariance { divide: true, epsilon: 0.0, epsilon_inside: true };
        let (short, input) = ([0.0; 3], [0.0; BLOCK]);
        let mut output = input;
        let affine = [Some(&short[..]), None];
        for isa in Isa::available() {
            assert!(blocked_channel_normalization(isa, [1, 4, 1], &plain, affine, &input, &mut output).is_err());
        }
    }
}
