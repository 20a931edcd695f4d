//! Convolutions and products of quantised values: bytes times signed bytes, summed in i32, scaled to f32 as they are
//! stored.
//!
//! The data are unsigned codes, as FakeQuantize makes them; the code of zero is taken into account by what the sums begin
//! with, so that results are those of the integers, exact up to the last conversion. Results are f32, or the codes that the
//! next layer reads.

mod amx;
mod bf16;
mod codes;
mod dots;
mod dynamic;
mod ending;
mod finish;
mod halves;
mod recode;
mod scores;
mod transposed;
mod windows;
mod winograd;

pub use codes::{
    CodeLayout, CodePlanes, Dequantizer, Quantizer, blocked_quantize, dequantize, pad_rows, quantize, quantize_rows,
};

use crate::blocked::{AxisView, BLOCK, PlaneView, blocked_len};
use crate::convolution::{ConvolutionGeometry, volume};
use crate::epilogue::Activation;
use crate::error::{KernelError, check_exact, check_len, product, span};
use crate::isa::Isa;
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, parallel_chunks_mut, parallel_for};
use crate::simd::Simd;
use crate::stream::prefetch_far;
pub use amx::tile_layout;
pub use bf16::{Bf16Epilogue, Bf16Weights, bf16_convolution, bf16_product, has_bf16, round_rows};
use codes::are_points;
pub(crate) use codes::{Decoder, dequantize_line, quantize_line, store_codes};
use dots::{
    DotKernel, Dots, bf16_tile_size, dispatch_bf16, dispatch_dots, dispatch_words, lowered_by, prefers_words,
    tile_size, words_tile_size,
};
pub use dynamic::{DynamicRows, DynamicWeights, dynamic_product};
use ending::{End, Ending, Ends, Sums};
pub use finish::{Decodings, Encodings};
pub(crate) use finish::{Encoding, EncodingLanes, Stored};
pub(crate) use halves::{HalfTile, pack_columns, pack_rows, pairs_of, round_row};
pub use recode::{Recoding, recode};
pub(crate) use scores::{CodedScores, ScoreRows};
use std::ops::Range;
pub use transposed::{QuantizedTransposed, quantized_transposed};
pub use windows::{MOST_AVERAGED, blocked_average_codes, blocked_max_codes};
pub use winograd::{WinogradWeights, takes_winograd, winograd_convolution, winograd_scratch_len};

/// Codes that one instruction multiplies and sums.
const QUAD: usize = 4;

/// Data of so many bytes stay near from one block of outputs to the next.
const NEAR_BYTES: usize = 256 << 10;

/// Tiles lie in rows where at least one of so many taps lies beyond the input.
const LEAST_LEFT_OUT: u64 = 25;

/// The products of a code from which on its widening is worth its time.
const LEAST_PRODUCTS: usize = 64;

/// The most products that i32 surely holds the sum of.
pub const MOST_TERMS: usize = (i32::MAX as usize) / (255 * 128) - 1;

/// What a channel is at a position of the data, and of the constant operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    /// A code.
    Byte,
    /// A code in two bytes.
    Word,
    /// A value.
    Bf16,
}

impl Element {
    const fn bytes(self) -> usize {
        match self {
            Element::Byte => 1,
            Element::Word | Element::Bf16 => 2,
        }
    }

    /// The sum of the signed codes in a quad of bytes.
    fn sum_of(self, quad: [i8; QUAD]) -> i32 {
        let [a, b, c, d] = quad.map(i8::cast_unsigned);
        match self {
            Element::Byte => quad.map(i32::from).iter().sum(),
            Element::Word => [[a, b], [c, d]].map(|word| i32::from(i16::from_le_bytes(word))).iter().sum(),
            Element::Bf16 => 0,
        }
    }
}

/// Signed codes of a convolution's or a product's constant operand, packed once for every tier.
#[derive(Debug, Clone)]
pub struct QuantizedWeights {
    /// Output channels, taps (deep, down and across), input channels of a group.
    shape: [usize; 5],
    /// How the data lie.
    layout: CodeLayout,
    /// Bytes that lie side by side in the data, and bytes from one position of it to the next.
    lanes: usize,
    apart: usize,
    order: Order,
    /// `[output block, row of taps, quad of bytes, 16 output channels, 4 bytes]`: four channels that are bytes, or two that are
    /// words. The quads of a row are in the order of the data.
    values: Packed<i8>,
    /// The sums of the codes of each output channel in each row of taps, up to each of its parts: `[output block, tap deep,
    /// tap down, part, 16 output channels]`.
    sums: Vec<i32>,
}

impl QuantizedWeights {
    /// Packs the codes `[output channels, input channels of a group, depth, height, width]` of a convolution.
    ///
    /// # Errors
    /// The number of codes is wrong, the layout does not hold the geometry's groups or channels, there are no channels, or sums
    /// could exceed i32.
    pub fn of_convolution(
        geometry: &ConvolutionGeometry,
        layout: CodeLayout,
        codes: &[i8],
    ) -> Result<Self, KernelError> {
        check_exact("codes", codes.len(), geometry.weights_len())?;
        let ([groups, outputs, inputs, high, wide], deep) = (geometry.channels_and_kernel(), geometry.depth().taps);
        let Some((reads, read)) = reads_of(geometry, layout) else {
            return Err(KernelError::invalid(
                "geometry",
                "has groups that the layout does not hold, or too many channels",
            ));
        };
        if layout == CodeLayout::Rows {
            // The taps of a row are its channels.
            let (rows, of_output) = (deep * high, inputs * deep * high * wide);
            let mut codes_of_rows = vec![0; codes.len()];
            for (index, code) in codes_of_rows.iter_mut().enumerate() {
                let (output, rest) = (index / of_output, index % of_output);
                let (row, x, channel) = (rest / read, rest % read / inputs, rest % inputs);
                *code = codes[((output * inputs + channel) * rows + row) * wide + x];
            }
            let shape = [outputs, deep, high, 1, read];
            let (run, strides) = (read.next_multiple_of(QUAD / layout.element().bytes()), [of_output, 1]);
            let places: Vec<usize> = (0..rows).map(|row| row * read).collect();
            let weights = Self::pack(shape, layout, [run, 1], &codes_of_rows, &places, strides)?;
            return Ok(Self { apart: inputs * layout.element().bytes(), ..weights });
        }
        let (taps, inputs) = (deep * high * wide, inputs / groups);
        let shape = [outputs, deep, high, wide, read];
        let across = geometry.dilation()[2];
        if read == inputs {
            let (order, strides) = (taps_in_order(taps), [inputs * taps, taps]);
            return Self::pack(shape, layout, [layout.lanes(read), across], codes, &order, strides);
        }
        // An output channel sees what else its block reads through zeros.
        let of_output = product("codes", &[read, taps])?;
        let mut spread = vec![0; product("codes", &[outputs, of_output])?];
        let own = inputs * taps;
        for (output, (target, codes)) in spread.chunks_exact_mut(of_output).zip(codes.chunks_exact(own)).enumerate() {
            let group = output / (outputs / groups);
            let first = (group * inputs - reads.first(output / BLOCK) * BLOCK) * taps;
            target[first..first + own].copy_from_slice(codes);
        }
        Self::pack(shape, layout, [layout.lanes(read), across], &spread, &taps_in_order(taps), [of_output, taps])
    }

    /// Packs the codes of a matrix of `k` rows and `n` columns, which lie so far apart along both.
    ///
    /// # Errors
    /// There are no rows, the codes do not lie in the slice, or sums could exceed i32.
    pub fn of_matrix(
        [k, n]: [usize; 2],
        codes: &[i8],
        [row_stride, column_stride]: [usize; 2],
    ) -> Result<Self, KernelError> {
        check_len("codes", codes.len(), span("codes", &[(k, row_stride), (n, column_stride)])?)?;
        let run = [k.next_multiple_of(QUAD), 1];
        Self::pack([n, 1, 1, 1, k], CodeLayout::Blocks, run, codes, &[0], [column_stride, row_stride])
    }

    /// Packs codes for data in which so many channels lie side by side, and taps across lie so far apart.
    fn pack(
        shape: [usize; 5],
        layout: CodeLayout,
        [channels, across]: [usize; 2],
        codes: &[i8],
        taps: &[usize],
        strides: [usize; 2],
    ) -> Result<Self, KernelError> {
        let [_, deep, high, wide, inputs] = shape;
        if inputs == 0 || (deep * high * wide).saturating_mul(inputs) > MOST_TERMS {
            return Err(KernelError::invalid("codes", "there is nothing to sum, or sums could exceed their integers"));
        }
        let element = layout.element();
        let order = Order::new(layout, [wide, across], inputs, channels)?;
        let values = match element {
            Element::Byte => pack_quads(shape, order, codes, taps, strides, |code| [code])?,
            Element::Word => {
                let word = |code: i8| i16::from(code).to_le_bytes().map(u8::cast_signed);
                pack_quads(shape, order, codes, taps, strides, word)?
            }
            Element::Bf16 => return Err(KernelError::invalid("layout", "is that of bf16")),
        };
        let parts = parts_of(layout, wide);
        let sums = vec![0; product("codes", &[shape[0].next_multiple_of(BLOCK), deep, high, parts])?];
        let lanes = channels * element.bytes();
        let mut weights = Self { shape, layout, lanes, apart: lanes, order, values, sums };
        let (rows, part_bytes) =
            (weights.row_bytes().max(1), if parts == 1 { order.row } else { order.tap } * QUAD * BLOCK);
        for (row, sums) in weights.values.chunks_exact(rows).zip(weights.sums.chunks_exact_mut((BLOCK * parts).max(1)))
        {
            let mut sum = [0; BLOCK];
            for (part, sums) in row.chunks_exact(part_bytes.max(1)).zip(sums.chunks_exact_mut(BLOCK)) {
                for line in part.as_chunks::<QUAD>().0.chunks_exact(BLOCK) {
                    sum.iter_mut().zip(line).for_each(|(sum, quad)| *sum += element.sum_of(*quad));
                }
                sums.copy_from_slice(&sum);
            }
        }
        Ok(weights)
    }

    /// Blocks of output channels.
    fn blocks(&self) -> usize {
        self.shape[0].div_ceil(BLOCK)
    }

    /// Bytes of one output block.
    fn block_bytes(&self) -> usize {
        let [_, deep, high, ..] = self.shape;
        deep * high * self.row_bytes()
    }

    /// Bytes of one row of taps of one output block.
    fn row_bytes(&self) -> usize {
        self.order.row * QUAD * BLOCK
    }

    /// The sums of the codes of two blocks' channels at these taps deep, down and across.
    fn sums(&self, block: usize, taps: &[Range<usize>; 3]) -> [i32; 2 * BLOCK] {
        let [_, deep, high, wide, _] = self.shape;
        let parts = parts_of(self.layout, wide);
        // Rows that are not taken apart are whole.
        let across = if taps[2] == (0..wide) { 0..parts } else { taps[2].clone() };
        let mut sums = [0i32; 2 * BLOCK];
        for (block, sums) in (block..self.blocks()).zip(sums.chunks_exact_mut(BLOCK)) {
            for row in taps[0].clone().flat_map(|tap| taps[1].clone().map(move |row| tap * high + row)) {
                let first = (block * deep * high + row) * parts;
                let up_to = |part: usize| &self.sums[(first + part - 1) * BLOCK..][..BLOCK];
                if across.end > 0 {
                    sums.iter_mut().zip(up_to(across.end)).for_each(|(sum, of_row)| *sum += of_row);
                }
                if across.start > 0 {
                    sums.iter_mut().zip(up_to(across.start)).for_each(|(sum, of_row)| *sum -= of_row);
                }
            }
        }
        sums
    }

    /// What a channel is.
    fn element(&self) -> Element {
        self.layout.element()
    }

    /// The quads that hold channels in the last of the runs of a tap.
    fn last_quads(&self) -> usize {
        let in_last = (self.shape[4] * self.element().bytes()) % self.lanes;
        if in_last == 0 { self.lanes / QUAD } else { in_last.div_ceil(QUAD) }
    }

    /// Bytes of so many channels at one position.
    fn bytes_of(&self, channels: usize) -> usize {
        channels.next_multiple_of(self.lanes / self.element().bytes()) * self.element().bytes()
    }
}

/// The input channels that a block of outputs reads: those of the groups that its channels belong to, in runs of sixteen. All
/// blocks read as many runs, and weights are zeros where a channel belongs to another group.
#[derive(Debug, Clone, Copy)]
struct Reads {
    /// Output and input channels of a group.
    of_group: [usize; 2],
    /// Runs that a block reads, and those that there are.
    runs: usize,
    all: usize,
}

impl Reads {
    /// Those of one group.
    const ALL: Self = Self { of_group: [usize::MAX, 0], runs: 0, all: 0 };

    /// Those of several groups of so many output and input channels.
    fn of_groups(groups: usize, [outputs, inputs]: [usize; 2]) -> Self {
        let all = (groups * inputs).div_ceil(BLOCK);
        let of_block = |first: usize| {
            let last = (first + BLOCK).min(groups * outputs) - 1;
            (last / outputs * inputs + inputs).div_ceil(BLOCK) - first / outputs * inputs / BLOCK
        };
        let runs = (0..groups * outputs).step_by(BLOCK).map(of_block).max().unwrap_or(all);
        Self { of_group: [outputs, inputs], runs, all }
    }

    /// The first run that a block reads.
    fn first(&self, block: usize) -> usize {
        let [outputs, inputs] = self.of_group;
        (block * BLOCK / outputs * inputs / BLOCK).min(self.all - self.runs)
    }

    /// Of the runs that some blocks read from the first one's on, those with channels of their groups, of so many outputs: the
    /// others have weights of zero. `None` for one group.
    fn used(&self, blocks: Range<usize>, outputs: usize) -> Option<Range<usize>> {
        let [of_outputs, of_inputs] = self.of_group;
        let group = |output: usize| output / of_outputs;
        let last = (blocks.end * BLOCK).min(outputs).checked_sub(1).filter(|_| self.runs > 0)?;
        let (begin, end) = (group(blocks.start * BLOCK) * of_inputs, (group(last) + 1) * of_inputs);
        let first = self.first(blocks.start);
        Some(begin / BLOCK - first..end.div_ceil(BLOCK) - first)
    }

    /// Whether so many blocks that are computed together read the same runs.
    fn are_shared(&self, blocks: usize, together: usize) -> bool {
        self.runs == self.all || (0..blocks).all(|block| self.first(block) == self.first(block / together * together))
    }
}

/// What blocks read, and the input channels that they sum, with the taps across where those are channels. `None` where a layout
/// has no place for the channels.
fn reads_of(geometry: &ConvolutionGeometry, layout: CodeLayout) -> Option<(Reads, usize)> {
    let [groups, outputs, inputs, _, wide] = geometry.channels_and_kernel();
    if groups == 1 {
        return match layout {
            CodeLayout::Rows => {
                let fits = inputs <= QUAD && (wide == 1 || geometry.plane().dilation[1] == 1);
                fits.then_some((Reads::ALL, inputs * wide))
            }
            _ => (layout != CodeLayout::Quads || inputs <= QUAD).then_some((Reads::ALL, inputs)),
        };
    }
    let of_group = [outputs / groups, inputs / groups];
    let are_blocks = of_group.iter().all(|channels| channels.is_multiple_of(BLOCK));
    let fits = match layout {
        CodeLayout::Blocks | CodeLayout::Words | CodeLayout::TileBlocks => true,
        CodeLayout::Halves => are_blocks,
        _ => false,
    };
    fits.then(|| Reads::of_groups(groups, of_group)).map(|reads| (reads, reads.runs * BLOCK))
}

/// Whether a convolution of codes runs faster from a layout of words, [`CodeLayout::Words`] or [`CodeLayout::Rows`], than from
/// [`CodeLayout::Blocks`] or [`CodeLayout::Quads`]: where the machine multiplies words faster, and each code is multiplied
/// often enough to be worth its widening.
#[must_use]
pub fn takes_words(isa: Isa, geometry: &ConvolutionGeometry, layout: CodeLayout) -> bool {
    let ([groups, outputs, _, high, wide], view, depth) =
        (geometry.channels_and_kernel(), geometry.plane(), geometry.depth());
    // Groups that are parts of a block are computed as one of whole blocks.
    let products = (outputs / groups).max(BLOCK.min(outputs)).saturating_mul(volume([depth.taps, high, wide]));
    // Points that are skipped are not widened.
    let steps = if are_points(geometry) { 1 } else { volume([depth.stride, view.stride[0], view.stride[1]]) };
    prefers_words(isa)
        && matches!(layout, CodeLayout::Words | CodeLayout::Rows)
        && reads_of(geometry, layout).is_some()
        && products / steps.max(1) >= LEAST_PRODUCTS
}

/// The parts of a row of so many taps: the taps, but where they do not follow each other.
fn parts_of(layout: CodeLayout, wide: usize) -> usize {
    if layout.is_for_tiles() { 1 } else { wide }
}

/// Where the taps of a window lie one after the other.
fn taps_in_order(count: usize) -> Vec<usize> {
    (0..count).collect()
}

/// Packs the constant operand of output channels, taps (deep, down and across) and input channels as `[output block, row of
/// taps, quad of bytes, 16 output channels, 4 bytes]`. Taps lie at these places, output and input channels `strides` apart.
/// `bytes` makes those of a value, a divisor of a quad.
fn pack_quads<T: Copy + Sync, const BYTES: usize>(
    [outputs, deep, high, wide, inputs]: [usize; 5],
    order: Order,
    values: &[T],
    places: &[usize],
    [of_outputs, of_inputs]: [usize; 2],
    bytes: impl Fn(T) -> [i8; BYTES] + Sync,
) -> Result<Packed<i8>, KernelError> {
    let (taps, each) = (deep * high * wide, QUAD / BYTES);
    check_exact("taps", places.len(), taps)?;
    let block_len = product("values", &[deep, high, order.row, BLOCK, QUAD])?;
    let mut packed = Packed::zeroed(product("values", &[outputs.div_ceil(BLOCK), block_len])?);
    let work = nanoseconds_for_bytes(packed.len().saturating_mul(8));
    parallel_chunks_mut(&mut packed, block_len.max(1), work, |block, target| {
        let lanes = BLOCK.min(outputs - block * BLOCK);
        for (quad, tap) in (0..inputs.div_ceil(each)).flat_map(|quad| (0..taps).map(move |tap| (quad, tap))) {
            let first = block * BLOCK * of_outputs + places[tap] + quad * each * of_inputs;
            let count = each.min(inputs - quad * each);
            let in_run = quad / order.run_quads * order.run + quad % order.run_quads;
            let place = tap / wide * order.row + tap % wide * order.tap + in_run;
            let (line, _) = target[place * BLOCK * QUAD..][..lanes * QUAD].as_chunks_mut::<QUAD>();
            for (lane, target) in line.iter_mut().enumerate() {
                let from = &values[first + lane * of_outputs..][..(count - 1) * of_inputs + 1];
                for channel in 0..count {
                    let value = bytes(from[channel * of_inputs]);
                    for byte in 0..BYTES {
                        target[channel * BYTES + byte] = value[byte];
                    }
                }
            }
        }
    });
    Ok(packed)
}

/// How the quads of a row of taps follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Order {
    /// Quads of a run of channels that lie side by side in the data.
    run_quads: usize,
    /// Quads from one run of channels to the next, from one tap across to the next, and from one row to the next.
    run: usize,
    tap: usize,
    row: usize,
}

impl Order {
    /// That of so many taps across, which lie so far apart, of input channels of which so many lie side by side. Runs of channels
    /// follow each other in each tap; where taps are read as channels, taps follow each other in each run.
    fn new(
        layout: CodeLayout,
        [wide, across]: [usize; 2],
        inputs: usize,
        channels: usize,
    ) -> Result<Self, KernelError> {
        let bytes = layout.element().bytes();
        let (run_quads, runs) = (channels * bytes / QUAD, inputs.div_ceil(channels));
        let position = product("weights", &[runs, run_quads])?;
        if layout.is_for_tiles() && across == 1 {
            let run = amx::filled(product("weights", &[wide, run_quads, QUAD])?) / QUAD;
            return Ok(Self { run_quads, run, tap: run_quads, row: product("weights", &[runs, run])? });
        }
        Ok(Self { run_quads, run: run_quads, tap: position, row: product("weights", &[wide, position])? })
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

/// What is done to the scaled sums: `activation(inner(sum + bias) + residual)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct QuantizedEpilogue<'a> {
    /// Added to every position of an output channel.
    pub bias: Option<&'a [f32]>,
    /// Made into codes and back before the residual is added.
    pub inner: Option<(Quantizer, Dequantizer)>,
    /// Added elementwise; laid out as the output.
    pub residual: QuantizedResidual<'a>,
    /// Applied last; the slopes of a PReLU are [`PerRow`](crate::epilogue::Channelwise::PerRow), one per output channel.
    pub activation: Activation<'a>,
}

/// What is added elementwise.
#[derive(Debug, Clone, Copy, Default)]
pub enum QuantizedResidual<'a> {
    /// Nothing.
    #[default]
    None,
    /// Values.
    Values(&'a [f32]),
    /// Values by their codes.
    Codes(&'a [u8], Dequantizer),
}

/// Where results go.
#[derive(Debug)]
pub enum QuantizedOutput<'a> {
    /// They are stored as they are.
    Values(&'a mut [f32]),
    /// Their codes are stored.
    Codes(&'a mut [u8], &'a Encodings),
}

impl QuantizedEpilogue<'_> {
    fn check(&self, channels: usize, output: usize) -> Result<(), KernelError> {
        if let Some(bias) = self.bias {
            check_len("bias", bias.len(), channels)?;
        }
        match self.residual {
            QuantizedResidual::None => {}
            QuantizedResidual::Values(values) => check_exact("residual", values.len(), output)?,
            QuantizedResidual::Codes(codes, _) => check_exact("residual", codes.len(), output)?,
        }
        self.activation.check_rows(channels)
    }
}

impl QuantizedOutput<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            QuantizedOutput::Values(values) => values.len(),
            QuantizedOutput::Codes(codes, _) => codes.len(),
        }
    }

    pub(crate) fn check(&self, channels: usize, len: usize) -> Result<(), KernelError> {
        check_exact("output", self.len(), len)?;
        match self {
            QuantizedOutput::Values(_) => Ok(()),
            QuantizedOutput::Codes(_, encodings) => encodings.check(channels),
        }
    }

    pub(crate) fn shared(&mut self) -> Target<'_> {
        match self {
            QuantizedOutput::Values(values) => Target::Values(SharedMut::new(values)),
            QuantizedOutput::Codes(codes, encodings) => Target::Codes(SharedMut::new(codes), encodings),
        }
    }
}

/// Checks that an output has so many elements, and that there is what so many channels of it need.
fn check_stored(
    output: &QuantizedOutput<'_>,
    scaling: &Scaling<'_>,
    epilogue: &QuantizedEpilogue<'_>,
    channels: usize,
    len: usize,
) -> Result<(), KernelError> {
    output.check(channels, len)?;
    epilogue.check(channels, len)?;
    check_len("scales", scaling.scales.len(), channels)
}

/// An output that tasks share.
pub(crate) enum Target<'a> {
    Values(SharedMut<'a, f32>),
    Codes(SharedMut<'a, u8>, &'a Encodings),
}

impl Target<'_> {
    /// What neighbouring channels from one on need.
    pub(crate) fn lanes<const LANES: usize>(&self, channel: usize) -> TargetLanes<LANES> {
        match self {
            Target::Values(values) => TargetLanes::Values(values.pointer()),
            Target::Codes(codes, encodings) => TargetLanes::Codes(codes.pointer(), encodings.lanes(channel)),
        }
    }
}

/// Where the output begins, and the encodings of neighbouring channels.
pub(crate) enum TargetLanes<const LANES: usize> {
    Values(*mut f32),
    Codes(*mut u8, EncodingLanes<LANES>),
}

/// Convolves the codes of [`CodePlanes`] into the blocked layout. A residual of the epilogue is blocked too; bias and slopes
/// are indexed by channel.
///
/// # Errors
/// A slice has the wrong length, the weights were packed for another shape, or the machine has no products of
/// words.
pub fn quantized_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &QuantizedWeights,
    scaling: &Scaling<'_>,
    input: &[u8],
    mut output: QuantizedOutput<'_>,
    epilogue: &QuantizedEpilogue<'_>,
) -> Result<(), KernelError> {
    let ([_, outputs, _, high, wide], layout) = (geometry.channels_and_kernel(), weights.layout);
    let (reached, taps) = layout.reached(geometry);
    let (mut view, depth) = (reached.plane(), reached.depth());
    if weights.element() == Element::Word && !prefers_words(isa) {
        return Err(KernelError::invalid("isa", "has no products of words"));
    }
    if layout.is_for_tiles() && !amx::has_amx(isa, weights.element()) {
        return Err(KernelError::invalid("isa", "has no tiles"));
    }
    let across = if layout == CodeLayout::Rows { 1 } else { wide };
    let fits = |(_, inputs): &(Reads, usize)| weights.shape == [outputs, depth.taps, high, across, *inputs];
    let Some((reads, inputs)) = reads_of(geometry, layout).filter(fits) else {
        return Err(KernelError::invalid("weights", "packed for another shape"));
    };
    // Tiles go through the taps of a row otherwise where these lie apart.
    let order = || Order::new(layout, [wide, geometry.dilation()[2]], inputs, layout.lanes(inputs));
    if layout.is_for_tiles() && weights.order != order()? {
        return Err(KernelError::invalid("weights", "packed for another dilation"));
    }
    let far = || KernelError::invalid("geometry", "has padding far larger than its input");
    let planes = CodePlanes::of_convolution(geometry, layout).ok_or_else(far)?;
    let [deep, high, wide] = planes.size();
    let down = view.axis(0, taps[0].len());
    let position_bytes = match layout {
        // Taps that are read as channels are those of other positions.
        CodeLayout::Rows => weights.apart,
        _ => weights.bytes_of(inputs.max(reads.all * BLOCK)),
    };
    (view.input, view.pad) = ([high, wide], [0, 0]);
    if planes.are_dense() {
        view.stride = [1, 1];
    }
    let (plane, positions) = (high * wide, view.output[0] * view.output[1]);
    let all = depth.output * positions;
    check_exact("input", input.len(), planes.len())?;
    check_stored(&output, scaling, epilogue, outputs, blocked_len(view.batch, outputs, all))?;
    let job = Job {
        isa,
        weights,
        scaling,
        epilogue,
        input,
        image_bytes: position_bytes * deep * plane,
        reads,
        part_bytes: [depth.stride * plane * weights.apart, 0],
        deeper: depth.dilation * plane * weights.apart,
        before: depth.pad * plane * weights.apart,
        windows: [Some(depth), Some(down)],
        taps,
        first_window: 0,
        volume: deep * plane,
        view,
        parts: [depth.output, 1],
        positions,
        position_stride: BLOCK,
        part_stride: [positions * BLOCK, 0],
        block_stride: all * BLOCK,
        image_stride: outputs.next_multiple_of(BLOCK) * all,
        first: 0,
        channels: outputs.next_multiple_of(BLOCK),
        output: output.shared(),
    };
    job.run(nanoseconds_for_flops(geometry.flops()) / 3);
    Ok(())
}

/// Multiplies codes `[rows, k]`, whose rows are filled up to whole quads, with a packed matrix into `[rows, n]`. A
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
    mut output: QuantizedOutput<'_>,
    epilogue: &QuantizedEpilogue<'_>,
) -> Result<(), KernelError> {
    let [n, deep, high, wide, k] = weights.shape;
    if deep * high * wide != 1 || weights.lanes != weights.bytes_of(k) || weights.element() == Element::Word {
        return Err(KernelError::invalid("weights", "packed for a convolution"));
    }
    check_exact("input", input.len(), product("input", &[rows, weights.lanes])?)?;
    check_stored(&output, scaling, epilogue, n, product("output", &[rows, n])?)?;
    let one = [1, 1];
    let view = PlaneView { batch: 1, input: [1, rows], output: [1, rows], stride: one, dilation: one, pad: [0, 0] };
    let job = Job {
        isa,
        weights,
        scaling,
        epilogue,
        input,
        image_bytes: rows * weights.lanes,
        reads: Reads::ALL,
        part_bytes: [0; 2],
        deeper: 0,
        before: 0,
        windows: [None; 2],
        taps: [0..1, 0..1],
        first_window: 0,
        volume: rows,
        view,
        parts: [1, 1],
        positions: rows,
        position_stride: n,
        part_stride: [0; 2],
        block_stride: BLOCK,
        image_stride: 0,
        first: 0,
        channels: n,
        output: output.shared(),
    };
    job.run(nanoseconds_for_flops(2 * (rows * n * k) as u64) / 3);
    Ok(())
}

/// A convolution of parts, which together make an image: the planes of a volume, or the rows of planes of a phase of a
/// transposed convolution.
struct Job<'a> {
    isa: Isa,
    weights: &'a QuantizedWeights,
    scaling: &'a Scaling<'a>,
    epilogue: &'a QuantizedEpilogue<'a>,
    input: &'a [u8],
    image_bytes: usize,
    reads: Reads,
    /// Bytes of the input from what the parts of one plane read to what those of the next do, and from one part to the next.
    part_bytes: [usize; 2],
    /// Bytes of the input from one tap to the next in depth.
    deeper: usize,
    /// Bytes by which the first tap of the first part lies before the input.
    before: usize,
    /// The windows in depth and down, where some may leave the input.
    windows: [Option<AxisView>; 2],
    /// The taps down and across that are computed, of those that the weights have.
    taps: [Range<usize>; 2],
    /// The window in depth that those of the first plane are.
    first_window: usize,
    /// Positions of the input from one run of lanes to the next.
    volume: usize,
    /// The planes of one part.
    view: PlaneView,
    /// Planes, and parts of a plane.
    parts: [usize; 2],
    /// The positions of one part.
    positions: usize,
    /// Elements of the output from one position to the next, from one plane and from one part of it to the next, from one
    /// block to the next, and from one image to the next.
    position_stride: usize,
    part_stride: [usize; 2],
    block_stride: usize,
    image_stride: usize,
    /// The element of the output that the first position is.
    first: usize,
    /// Channels that are stored: whole blocks where the output has them.
    channels: usize,
    output: Target<'a>,
}

/// What is computed in one call: tiles of a part with the same taps.
struct Call {
    part: usize,
    /// The first position.
    position: usize,
    tiles: usize,
    /// The taps in depth and down that some of the positions need.
    taps: [Range<usize>; 2],
}

/// The taps in depth and down of windows, and what follows from them.
struct Window {
    taps: [Range<usize>; 2],
    /// What the sums of two blocks begin with.
    start: [i32; 2 * BLOCK],
    walk: Walk,
}

impl Job<'_> {
    fn run(&self, work: u64) {
        let (blocks, of_image) = (self.weights.blocks(), self.parts[0] * self.parts[1]);
        if self.positions == 0 || of_image == 0 || self.view.batch == 0 || blocks == 0 {
            return;
        }
        if let Some(tiles) = amx::Tiles::of(self) {
            return tiles.run();
        }
        let (most, together) = match self.weights.element() {
            Element::Byte => tile_size(self.isa),
            Element::Word => words_tile_size(),
            Element::Bf16 => bf16_tile_size(),
        };
        let tile = self.tile(most);
        let together = if self.reads.are_shared(blocks, together) { together } else { 1 };
        let pairs = blocks.div_ceil(together);
        let tile_bytes = tile * together * self.weights.block_bytes();
        let tiles = self.positions.div_ceil(tile);
        let run = (4_000_000 / tile_bytes.max(1)).max(1);
        // Where one part is little work, some are a task.
        let parts = (run / tiles).clamp(1, of_image);
        let parts = of_image.div_ceil(of_image.div_ceil(parts));
        let run = tiles.div_ceil(tiles.div_ceil(run.min(tiles)));
        let (runs, rows) = (tiles.div_ceil(run), of_image.div_ceil(parts));
        // Tasks that follow each other take the positions of one block, or the blocks of one run of positions, whichever reads
        // less from far away: the data once for each block, or the weights once for each run.
        let (data, values) = (self.image_bytes, self.weights.values.len());
        let of_blocks = pairs.saturating_mul(data).saturating_add(values);
        let of_runs = (rows * runs).saturating_mul(values).saturating_add(data);
        let are_blocks_inner = data > NEAR_BYTES && of_runs < of_blocks;
        parallel_for(self.view.batch * pairs * rows * runs, 1, work, |range| {
            for task in range {
                let (image, rest) = (task / (pairs * rows * runs), task % (pairs * rows * runs));
                let (pair, rest) = match are_blocks_inner {
                    true => (rest % pairs, rest / pairs),
                    false => (rest / (rows * runs), rest % (rows * runs)),
                };
                let (row, part) = (rest / runs, rest % runs);
                let first = pair * together;
                let parts = row * parts..of_image.min((row + 1) * parts);
                let span = part * run * tile..self.positions.min((part + 1) * run * tile);
                // SAFETY: lengths were checked, and tasks write disjoint parts of the output.
                unsafe { self.span(image, first, together.min(blocks - first), parts, span, tile) };
            }
        });
    }

    /// Bytes of an image in front of what a block of outputs reads.
    fn read_from(&self, block: usize) -> usize {
        self.reads.first(block) * self.volume * self.weights.apart
    }

    /// The positions of a tile, of which there are not more than `most`.
    fn tile(&self, most: usize) -> usize {
        let even = |positions: usize| positions.div_ceil(positions.div_ceil(most));
        let [rows, width] = self.view.output;
        let in_row = even(width);
        let Some(down) = self.windows[1].filter(|_| width.is_multiple_of(in_row) && in_row > most / 2) else {
            return even(self.positions);
        };
        // Where many taps lie beyond the input, tiles that lie in one row leave out more than their sizes lose.
        let whole = down.whole();
        let padded = (0..rows).filter(|row| !whole.contains(row));
        let left_out: usize = padded.map(|row| down.taps - down.inside(row).len()).sum();
        if left_out as u64 * LEAST_LEFT_OUT >= (down.taps * rows) as u64 { in_row } else { even(self.positions) }
    }

    /// The calls, each of at most so many tiles, that compute a span of positions of some parts.
    fn calls(
        &self,
        parts: Range<usize>,
        span: Range<usize>,
        [tile, most]: [usize; 2],
    ) -> impl Iterator<Item = Call> + use<'_> {
        let (deep, high) = (self.weights.shape[1], self.taps[0].len());
        let (width, [_, rows]) = (self.view.output[1], self.parts);
        // The positions whose windows have all taps down inside the input.
        let whole = self.windows[1].map_or(0..span.end, |down| {
            let rows = down.whole();
            rows.start.saturating_mul(width)..rows.end.saturating_mul(width)
        });
        parts.flat_map(move |part| {
            let (whole, mut position, end) = (whole.clone(), span.start, span.end);
            let in_depth = self.windows[0].map_or(0..deep, |view| view.inside(self.first_window + part / rows));
            std::iter::from_fn(move || {
                let last = (position + tile).min(end).checked_sub(1).filter(|_| position < end)?;
                let is_whole = whole.start <= position && last < whole.end;
                let tiles = if is_whole { (end.min(whole.end) - position) / tile } else { 1 };
                let down = match &self.windows[1] {
                    Some(down) if !is_whole => down.inside_any(position / width, last / width),
                    _ => 0..high,
                };
                let tiles = tiles.clamp(1, most);
                let call = Call { part, position, tiles, taps: [in_depth.clone(), down] };
                position += tiles * tile;
                Some(call)
            })
        })
    }

    /// Computes a span of positions of some parts for one or two output blocks.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches this part of the output.
    unsafe fn span(
        &self,
        image: usize,
        block: usize,
        blocks: usize,
        parts: Range<usize>,
        span: Range<usize>,
        tile: usize,
    ) {
        let [_, deep, high, wide, inputs] = self.weights.shape;
        let channel = block * BLOCK;
        let zero = self.scaling.zero.wrapping_sub(lowered_by(self.isa));
        let strides = [self.position_stride, self.block_stride];
        let parts_of_end = (self.scaling, self.epilogue, &self.output);
        let mut ending = Ending::new(self.isa, parts_of_end, channel, [blocks, self.channels - channel], strides);
        let (block_bytes, row_bytes) = (self.weights.block_bytes(), self.weights.row_bytes());
        // The tiles of all positions together ask for the weights of the next blocks.
        let tiles = self.positions.div_ceil(tile);
        let [planes, rows] = self.parts;
        let next_step = (blocks * BLOCK * QUAD).div_ceil(planes * rows * tiles);
        let next_bytes = volume([deep, high, wide]) * self.weights.bytes_of(inputs) / QUAD * next_step;
        let runs = self.weights.bytes_of(inputs) / self.weights.lanes;
        let used = self.reads.used(block..block + blocks, self.weights.shape[0]).unwrap_or(0..runs);
        // What fills the last run up has weights of zero.
        let last = if used.end == runs { self.weights.last_quads() } else { self.weights.lanes / QUAD };
        let mut window: Option<Window> = None;
        for Call { part, position, tiles: together, taps } in
            self.calls(parts, span.clone(), [tile, ending.most_tiles()])
        {
            let window = match &mut window {
                Some(window) if window.taps == taps => window,
                window => {
                    let [in_depth, down] = taps.clone();
                    let down = self.taps[0].start + down.start..self.taps[0].start + down.end;
                    let sums = self.weights.sums(block, &[in_depth, down, self.taps[1].clone()]);
                    let start = sums.map(|sum| zero.wrapping_mul(sum).wrapping_neg());
                    window.insert(Window { start, walk: Walk::new(self, &taps, [runs, used.len()], last), taps })
                }
            };
            let [in_depth, down] = &window.taps;
            let part_of = |[plane, row]: [usize; 2]| part / rows * plane + part % rows * row;
            let count = tile.min(span.end - position);
            let next = (block + blocks) * block_bytes + (part * tiles + position / tile) * next_bytes;
            let (next, next_step) = match self.weights.values.get(next..next + next_bytes * together) {
                Some(next) => (next.as_ptr(), next_step),
                None => (self.weights.values[block * block_bytes..].as_ptr(), 0),
            };
            let place = self.first + part_of(self.part_stride) + position * self.position_stride;
            let offset = image * self.image_stride + block * self.block_stride + place;
            let taps = volume([in_depth.len(), down.len(), self.taps[1].len()]);
            let quads =
                taps * (used.len() * (self.weights.lanes / QUAD) + last).saturating_sub(self.weights.lanes / QUAD);
            // Where no tap lies inside the input, nothing is read.
            let (first, first_row) = if quads == 0 {
                (0, 0)
            } else {
                let place = part_of(self.part_bytes) + in_depth.start * self.deeper - self.before;
                let row = self.view.dilation[0] * self.view.input[1] * self.weights.apart;
                let left_out = used.start * self.volume * self.weights.apart;
                let first = image * self.image_bytes + self.read_from(block) + left_out + place + down.start * row;
                let Order { run, tap, .. } = self.weights.order;
                let rows = in_depth.start * high + self.taps[0].start + down.start;
                (first, rows * row_bytes + (self.taps[1].start * tap + used.start * run) * QUAD * BLOCK)
            };
            let tile = Tile {
                input: self.input[first..].as_ptr(),
                view: self.view,
                walk: window.walk,
                quads,
                apart: self.weights.apart,
                weights: self.weights.values[block * block_bytes + first_row..].as_ptr(),
                block_bytes,
                start: &window.start,
                end: ending.at(offset),
                position,
                count: together,
                next,
                next_step,
                next_bytes: if next_step > 0 { next_bytes } else { 0 },
            };
            // SAFETY: the tile lies inside the output or the buffer, and everything it reads inside the slices that were
            // checked.
            unsafe {
                match self.weights.element() {
                    Element::Byte => dispatch_dots(self.isa, count, blocks, &tile),
                    Element::Word => dispatch_words(count, &tile),
                    Element::Bf16 => dispatch_bf16(count, blocks, &tile),
                }
            }
            // SAFETY: the positions lie in the output.
            unsafe { ending.apply(count * together, offset) };
        }
    }
}

/// Everything that tiles one after the other need.
struct Tile<'a> {
    input: *const u8,
    view: PlaneView,
    walk: Walk,
    /// Quads of a window.
    quads: usize,
    /// Bytes of the input from one position to the next.
    apart: usize,
    weights: *const i8,
    block_bytes: usize,
    /// What the sums begin with.
    start: &'a [i32; 2 * BLOCK],
    /// What is done to the sums.
    end: End<'a>,
    /// The first position of the first tile.
    position: usize,
    /// The number of tiles.
    count: usize,
    /// Weights of the next blocks, of which each step asks for some: where they begin for the first tile.
    next: *const i8,
    /// Bytes from one step's to the next step's, and from one tile's to the next tile's.
    next_step: usize,
    next_bytes: usize,
}

/// The way through the quads of a window: those of one run of lanes, of all runs, of all taps across, of all taps down, of all
/// taps in depth.
#[derive(Clone, Copy)]
struct Walk {
    /// How many there are of each, and how many are left.
    counts: [usize; 4],
    left: [usize; 4],
    /// Those of the last run of lanes.
    last: usize,
    /// Bytes from one to the next of each, and from the last of the level inside.
    jumps: [usize; 5],
    /// Bytes of the weights of what is left out: of the rows between those of two depths, of the taps between those of two rows,
    /// and of the quads and runs between those of two taps.
    skipped: [usize; 3],
}

impl Walk {
    /// That of some taps in depth and down, and of so many of all runs, of which the last has so many quads.
    fn new(job: &Job<'_>, [_, down]: &[Range<usize>; 2], [runs, used]: [usize; 2], last: usize) -> Self {
        let QuantizedWeights { lanes, apart, shape: [_, _, high, wide, _], .. } = *job.weights;
        let (view, across) = (&job.view, job.taps[1].len());
        let counts = [lanes / QUAD, used, across, down.len()];
        let steps =
            [QUAD, job.volume * apart, view.dilation[1] * apart, view.dilation[0] * view.input[1] * apart, job.deeper];
        let mut jumps = steps;
        for level in 1..5 {
            // From the last place of the levels inside back to their first, which may lie behind.
            let back: usize = (0..level).fold(0usize, |sum, inner| {
                let count = if inner == 0 && level > 1 { last } else { counts[inner] };
                sum.wrapping_add(count.wrapping_sub(1).wrapping_mul(steps[inner]))
            });
            jumps[level] = steps[level].wrapping_sub(back);
        }
        let of_rows = (high - down.len()) * job.weights.row_bytes();
        let of_taps = (wide - across) * job.weights.order.tap * QUAD * BLOCK;
        let of_runs = ((runs - used) * job.weights.order.run + counts[0] - last) * QUAD * BLOCK;
        let mut left = counts;
        if used == 1 {
            left[0] = last;
        }
        Self { counts, left, last, jumps, skipped: [of_rows, of_taps, of_runs] }
    }

    /// The place after `offset`, and the weights that follow on these.
    #[inline(always)]
    fn next(&mut self, offset: usize, weights: &mut *const i8) -> usize {
        self.left[0] -= 1;
        if self.left[0] > 0 {
            return offset + QUAD;
        }
        self.left[1] -= 1;
        if self.left[1] > 0 {
            self.left[0] = if self.left[1] == 1 { self.last } else { self.counts[0] };
            return offset.wrapping_add(self.jumps[1]);
        }
        self.left[1] = self.counts[1];
        self.left[0] = if self.left[1] == 1 { self.last } else { self.counts[0] };
        *weights = weights.wrapping_add(self.skipped[2]);
        self.left[2] -= 1;
        if self.left[2] > 0 {
            return offset.wrapping_add(self.jumps[2]);
        }
        self.left[2] = self.counts[2];
        *weights = weights.wrapping_add(self.skipped[1]);
        self.left[3] -= 1;
        if self.left[3] > 0 {
            return offset.wrapping_add(self.jumps[3]);
        }
        self.left[3] = self.counts[3];
        *weights = weights.wrapping_add(self.skipped[0]);
        offset.wrapping_add(self.jumps[4])
    }
}

/// A tile with its number of positions and of vectors known to the compiler.
struct Fixed<'t, 'a, const POSITIONS: usize, const VECTORS: usize>(&'t Tile<'a>);

impl<const POSITIONS: usize, const VECTORS: usize> DotKernel for Fixed<'_, '_, POSITIONS, VECTORS> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        let tile = self.0;
        let ends = Ends::<POSITIONS, VECTORS>(&tile.end);
        let mut place = [tile.position / tile.view.output[1], tile.position % tile.view.output[1]];
        for index in 0..tile.count {
            let ended = ends.begin::<D>(index * POSITIONS);
            // SAFETY: the caller's promise.
            unsafe {
                let sums = self.accumulate(d, &mut place, tile.next.wrapping_add(index * tile.next_bytes));
                ends.store(d, ended, &sums);
            }
        }
    }
}

impl<const POSITIONS: usize, const VECTORS: usize> Fixed<'_, '_, POSITIONS, VECTORS> {
    /// The sums of all products of the tile from the position at a row and a column on, which asks for the weights from `next`
    /// on. The row and the column become those of the position after it.
    ///
    /// # Safety
    /// The tile's pointers cover what its geometry asks for.
    #[inline(always)]
    unsafe fn accumulate<D: Dots>(
        &self,
        d: D,
        [y, x]: &mut [usize; 2],
        mut next: *const i8,
    ) -> Sums<D, POSITIONS, VECTORS> {
        let (tile, s) = (self.0, d.simd());
        let view = &tile.view;
        let mut start = [s.splat_i(0); VECTORS];
        for (vector, start) in start.iter_mut().enumerate() {
            // SAFETY: there is a beginning for each lane of two blocks.
            *start = s.bits(unsafe { s.load(tile.start.as_ptr().add(vector * <D::S as Simd>::LANES).cast()) });
        }
        let mut sums = [start; POSITIONS];
        let mut pointers = [tile.input; POSITIONS];
        let (step, width) = (view.stride[1] * tile.apart, view.output[1]);
        // From the last position of a row to the first one of the next row.
        let row = view.stride[0] * view.input[1] * tile.apart;
        let next_row = row.wrapping_add(step).wrapping_sub(width * step);
        let mut pointer = tile.input.wrapping_add(*y * row + *x * step);
        for place in &mut pointers {
            *place = pointer;
            *x += 1;
            let is_last = *x == width;
            pointer = pointer.wrapping_add(if is_last { next_row } else { step });
            (*y, *x) = (*y + usize::from(is_last), if is_last { 0 } else { *x });
        }
        let mut weights = tile.weights;
        let mut walk = tile.walk;
        let mut offset = 0;
        // One loop over everything keeps the sums in registers throughout.
        for _ in 0..tile.quads {
            prefetch_far(next);
            next = next.wrapping_add(tile.next_step);
            // SAFETY: windows lie inside the planes, so each pointer leads to the codes of a position.
            unsafe {
                sums = self.step(d, weights, &pointers, offset, sums);
                weights = weights.add(BLOCK * QUAD);
            }
            offset = walk.next(offset, &mut weights);
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
}

#[cfg(test)]
mod tests;
