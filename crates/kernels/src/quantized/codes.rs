//! Codes of one byte: how f32 become codes and codes f32, and the layouts of codes that convolutions and products read.

use std::ops::Range;

use crate::blocked::{BLOCK, blocked_len};
use crate::convolution::{ConvolutionGeometry, MOST_PADDING, TransposedConvolutionGeometry, volume};
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::math::Divisor;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream;

use super::finish::{Encoding, EncodingLanes, Encodings, load_codes};
use super::{Element, QUAD, amx};

/// Elements that a parallel chunk of a quantisation covers at least.
const CHUNK: usize = 1 << 14;

/// Bytes of the rows of a plane that are written as one line.
const MOST_OF_LINE: usize = 4 * CHUNK;

/// Codes that are made before they are widened.
const WORDS_AT_ONCE: usize = 512;

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

/// From codes to f32: code 0 becomes `low`, and code `steps` becomes `high`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dequantizer {
    /// What code 0 stands for.
    pub low: f32,
    /// What the last code stands for.
    pub high: f32,
    /// The last code, at most 255.
    pub steps: f32,
}

impl Dequantizer {
    /// The distance of two levels.
    fn step(&self) -> f32 {
        ((f64::from(self.high) - f64::from(self.low)) / f64::from(self.steps)) as f32
    }
}

/// What [`dequantize`] computes of codes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoder {
    low: f32,
    step: f32,
}

impl Decoder {
    pub(crate) fn new(dequantizer: &Dequantizer) -> Self {
        Self { low: dequantizer.low, step: dequantizer.step() }
    }

    /// The value of a code.
    pub(crate) fn value(&self, code: u8) -> f32 {
        f32::from(code) * self.step + self.low
    }
}

/// Writes the bytes of the first `count` lanes.
///
/// # Safety
/// That many bytes are writable, and codes lie between 0 and 255.
#[inline(always)]
pub(crate) unsafe fn store_codes<S: Simd>(s: S, to: *mut u8, codes: S::I, count: usize) {
    // SAFETY: the caller's promise, and a block has the bytes of any tier's vector.
    unsafe {
        if count >= S::LANES {
            s.store_u8(to, codes);
        } else {
            let mut bytes = [0u8; BLOCK];
            s.store_u8(bytes.as_mut_ptr(), codes);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count);
        }
    }
}

/// The layout of the codes of a convolution's input, whose planes are [`CodePlanes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeLayout {
    /// `[N, D, H, W, 4]`: up to four channels side by side.
    Quads,
    /// `[N, ceil(C / 16), D, H, W, 16]`.
    Blocks,
    /// The same, each code in two bytes, the lower one first.
    Words,
    /// The same of bf16.
    Halves,
    /// `[N, ceil(C / L), D, H, W, L]`, L a number of blocks of up to 64 channels in all, what a row of a tile holds. The taps of
    /// a row of a window, which lie side by side unless the window is dilated, are read as if they were channels.
    Tiles,
    /// As [`CodeLayout::Blocks`], read in tiles: the taps of a row are read as if they were channels of each block. For groups
    /// that a block of outputs reads several blocks of.
    TileBlocks,
    /// As [`CodeLayout::Tiles`], of bf16, 32 channels in L. Lanes without a channel are zeros.
    TileHalves,
    /// `[N, D, H, W, C]`: up to four channels side by side, each code in two bytes. The taps of a row of a window, which lie
    /// side by side too, are read as if they were channels.
    Rows,
}

impl CodeLayout {
    /// Channels that lie side by side, of so many.
    pub(super) fn lanes(self, channels: usize) -> usize {
        match self {
            CodeLayout::Rows => channels.max(1),
            CodeLayout::Quads => QUAD,
            CodeLayout::Blocks | CodeLayout::Words | CodeLayout::Halves | CodeLayout::TileBlocks => BLOCK,
            CodeLayout::Tiles => {
                let rows = channels.div_ceil(amx::ROW_BYTES).max(1);
                channels.div_ceil(rows).max(1).next_multiple_of(BLOCK)
            }
            CodeLayout::TileHalves => amx::ROW_BYTES / 2,
        }
    }

    /// A convolution with the taps down and across that it is computed with, and which of those of the weights these are: where
    /// taps are read one by one, those alone that meet the input. All taps across are one where they are channels.
    pub(super) fn reached(self, geometry: &ConvolutionGeometry) -> (ConvolutionGeometry, [Range<usize>; 2]) {
        match self {
            CodeLayout::Blocks | CodeLayout::Words | CodeLayout::Halves => geometry.reached(),
            CodeLayout::Quads
            | CodeLayout::Rows
            | CodeLayout::Tiles
            | CodeLayout::TileBlocks
            | CodeLayout::TileHalves => {
                let [_, _, _, high, wide] = geometry.channels_and_kernel();
                (*geometry, [0..high, 0..if self == CodeLayout::Rows { 1 } else { wide }])
            }
        }
    }

    /// Whether the input is plain, of few channels.
    fn is_plain(self) -> bool {
        matches!(self, CodeLayout::Quads | CodeLayout::Rows)
    }

    /// Bytes that may be read beyond the last position: the last word of a row of taps has no other beside it where they are
    /// odd in number, and runs of channels are filled up.
    fn beyond(self) -> usize {
        match self {
            CodeLayout::Rows => 2,
            CodeLayout::Tiles | CodeLayout::TileBlocks => amx::ROW_BYTES,
            _ => 0,
        }
    }

    /// Whether only tiles read it.
    pub(super) fn is_for_tiles(self) -> bool {
        matches!(self, CodeLayout::Tiles | CodeLayout::TileBlocks | CodeLayout::TileHalves)
    }

    /// What a channel is.
    pub(super) fn element(self) -> Element {
        match self {
            CodeLayout::Quads | CodeLayout::Blocks | CodeLayout::Tiles | CodeLayout::TileBlocks => Element::Byte,
            CodeLayout::Words | CodeLayout::Rows => Element::Word,
            CodeLayout::Halves | CodeLayout::TileHalves => Element::Bf16,
        }
    }
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

/// Writes the values of codes in the same order.
///
/// # Errors
/// The slices differ in length.
pub fn dequantize(isa: Isa, dequantizer: &Dequantizer, input: &[u8], output: &mut [f32]) -> Result<(), KernelError> {
    check_exact("output", output.len(), input.len())?;
    let (shared, decoder) = (SharedMut::new(output), Decoder::new(dequantizer));
    parallel_for(input.len(), CHUNK, nanoseconds_for_bytes(input.len().saturating_mul(5)), |range| {
        // SAFETY: chunks are disjoint parts of slices of one length.
        unsafe {
            let (from, to) = (input.as_ptr().add(range.start), shared.pointer().add(range.start));
            dequantize_line(isa, decoder, from, to, range.len());
        }
    });
    Ok(())
}

/// Writes the codes of so many values.
///
/// # Safety
/// They are readable, and as many codes are writable, which nobody else touches.
pub(crate) unsafe fn quantize_line(isa: Isa, encoding: Encoding, input: *const f32, output: *mut u8, count: usize) {
    dispatch(isa, Codes { encoding, input, output, count });
}

/// Writes the values of so many codes.
///
/// # Safety
/// They are readable, and as many values are writable, which nobody else touches.
pub(crate) unsafe fn dequantize_line(isa: Isa, decoder: Decoder, input: *const u8, output: *mut f32, count: usize) {
    dispatch(isa, Values { decoder, input, output, count });
}

/// Writes the blocked codes of blocked values, with levels of all channels or of each.
///
/// # Errors
/// A slice has the wrong length, or the levels are not those of so many channels.
pub fn blocked_quantize(
    isa: Isa,
    encodings: &Encodings,
    [batch, channels, positions]: [usize; 3],
    input: &[f32],
    output: &mut [u8],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), blocked_len(batch, channels, positions))?;
    check_exact("output", output.len(), input.len())?;
    encodings.check(channels)?;
    let (blocks, parts) = (channels.div_ceil(BLOCK), positions.div_ceil(CHUNK / BLOCK));
    let shared = SharedMut::new(output);
    parallel_for(batch * blocks * parts, 1, nanoseconds_for_bytes(input.len().saturating_mul(6)), |range| {
        for task in range {
            let (plane, part) = (task / parts, task % parts);
            let places = part * (CHUNK / BLOCK)..positions.min((part + 1) * (CHUNK / BLOCK));
            let range = (plane * positions + places.start) * BLOCK..(plane * positions + places.end) * BLOCK;
            let encoding = encodings.lanes(plane % blocks * BLOCK);
            // SAFETY: tasks cover disjoint parts.
            let output = unsafe { shared.slice(range.clone()) };
            dispatch(isa, Blocks { encoding: &encoding, steps: encodings.steps, input: &input[range], output });
        }
    });
    Ok(())
}

/// Positions of one block, exact as [`Line`] is.
struct Blocks<'a> {
    encoding: &'a EncodingLanes<BLOCK>,
    steps: f32,
    input: &'a [f32],
    output: &'a mut [u8],
}

impl Kernel for Blocks<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let len = self.input.len().min(self.output.len()) / BLOCK * BLOCK;
        let (from, to) = (self.input.as_ptr(), self.output.as_mut_ptr());
        for part in (0..BLOCK).step_by(S::LANES) {
            let encoding = self.encoding.at(s, part);
            let exact = Exact::new(s, encoding.low, encoding.high, self.steps);
            let mut at = part;
            while at < len {
                // SAFETY: the part lies in a block of both slices.
                unsafe { store_codes(s, to.add(at), exact.codes(s, s.load(from.add(at))), S::LANES) };
                at += BLOCK;
            }
        }
    }
}

/// The codes of values, rounded as a division and a multiplication are.
struct Exact<S: Simd> {
    low: S::F,
    high: S::F,
    width: Divisor<S>,
    steps: S::F,
}

impl<S: Simd> Exact<S> {
    #[inline(always)]
    fn new(s: S, low: S::F, high: S::F, steps: f32) -> Self {
        Self { low, high, width: Divisor::new(s, s.sub(high, low)), steps: s.splat(steps) }
    }

    #[inline(always)]
    fn codes(&self, s: S, value: S::F) -> S::I {
        // The order makes the lower limit of NaN.
        let value = s.min(s.max(value, self.low), self.high);
        s.to_i(s.mul(self.width.divide(s, s.sub(value, self.low)), self.steps))
    }
}

/// The planes of codes that a convolution reads: those of its input, if its windows do not leave it, otherwise what its
/// windows cover, with the code of zero around the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodePlanes {
    layout: CodeLayout,
    batch: usize,
    channels: usize,
    /// Depth, height and width of the input.
    input: [usize; 3],
    /// What lies before it.
    before: [usize; 3],
    /// Depth, height and width of all.
    size: [usize; 3],
    /// Positions of the input from one to the next, down and across.
    step: [usize; 2],
}

impl CodePlanes {
    /// Those of a convolution; `None` where its windows cover far more than the input, or where there are more channels than
    /// the layout holds.
    #[must_use]
    pub fn of_convolution(geometry: &ConvolutionGeometry, layout: CodeLayout) -> Option<Self> {
        let geometry = &layout.reached(geometry).0;
        let (view, depth) = (geometry.plane(), geometry.depth());
        let [_, _, channels, ..] = geometry.channels_and_kernel();
        let input = [depth.input, view.input[0], view.input[1]];
        // Windows of planes leave out the planes beyond the input.
        let (before, [_, high, wide]) = ([0, view.pad[0], view.pad[1]], geometry.covered()?);
        let planes = Self::new(layout, [view.batch, channels], input, before, [depth.input, high, wide])?;
        if (layout == CodeLayout::Words || layout.is_for_tiles()) && are_points(geometry) {
            // The positions that are skipped need not be written.
            return Some(Self { size: [depth.input, view.output[0], view.output[1]], step: view.stride, ..planes });
        }
        Some(planes)
    }

    /// The blocked codes of a convolution's input alone, for a kernel that knows what lies around it.
    #[must_use]
    pub fn of_input(geometry: &ConvolutionGeometry) -> Option<Self> {
        let (view, [_, _, channels, ..]) = (geometry.plane(), geometry.channels_and_kernel());
        let input = [geometry.depth().input, view.input[0], view.input[1]];
        Self::new(CodeLayout::Blocks, [view.batch, channels], input, [0; 3], input)
    }

    /// Whether positions that windows skip were left out, so that windows lie side by side.
    pub(super) fn are_dense(&self) -> bool {
        self.step != [1, 1]
    }

    /// Those of a transposed convolution, whose phases are convolutions; `None` where their windows cover far more than the
    /// input.
    #[must_use]
    pub fn of_transposed(geometry: &TransposedConvolutionGeometry) -> Option<Self> {
        let ([_, _, channels], (batch, [[high, wide], _])) = (geometry.channels(), geometry.plane_sizes());
        let [deep, _] = geometry.depths();
        let (mut before, mut end) = ([0; 3], [0; 3]);
        let [_, strides, _] = geometry.plane_steps();
        for index in 0..strides[0].checked_mul(strides[1])? {
            let phase = geometry.plane_phase([index / strides[1], index % strides[1]]);
            if phase.taps.contains(&0) || phase.size.contains(&0) {
                continue;
            }
            for axis in 0..2 {
                before[axis + 1] = before[axis + 1].max(phase.view.pad[axis]);
                let last = phase.size[axis] - 1 + (phase.taps[axis] - 1) * phase.view.dilation[axis];
                let last = (phase.first[axis] + last).checked_sub(phase.view.pad[axis]);
                end[axis + 1] = end[axis + 1].max(last.map_or(0, |last| last + 1));
            }
        }
        let covered = [deep, before[1].checked_add(end[1])?, before[2].checked_add(end[2])?];
        let most = high.saturating_mul(wide).saturating_mul(4).saturating_add(MOST_PADDING);
        let is_near = covered[1].checked_mul(covered[2]).is_some_and(|positions| positions <= most);
        is_near.then(|| Self::new(CodeLayout::Blocks, [batch, channels], [deep, high, wide], before, covered))?
    }

    fn new(
        layout: CodeLayout,
        [batch, channels]: [usize; 2],
        input: [usize; 3],
        before: [usize; 3],
        covered: [usize; 3],
    ) -> Option<Self> {
        let is_inside = before == [0; 3] && (0..3).all(|axis| covered[axis] <= input[axis]);
        let size = if is_inside { input } else { covered };
        let planes = Self { layout, batch, channels, input, before, size, step: [1, 1] };
        let fits = !layout.is_plain() || channels <= QUAD;
        let lanes = channels.next_multiple_of(layout.lanes(channels));
        let sizes = [batch, lanes, layout.element().bytes(), planes.size[0], planes.size[1], planes.size[2]];
        let len = sizes.iter().try_fold(1usize, |total, size| total.checked_mul(*size));
        let len = len.and_then(|len| len.checked_add(layout.beyond()));
        (fits && len.is_some()).then_some(planes)
    }

    /// Bytes of the codes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batch
            * self.channels.next_multiple_of(self.layout.lanes(self.channels))
            * self.layout.element().bytes()
            * volume(self.size)
            + self.layout.beyond()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether codes of the input are read as they are.
    #[must_use]
    pub fn are_input(&self) -> bool {
        self.layout == CodeLayout::Blocks && self.before == [0; 3] && self.size == self.input
    }

    /// What lies before the input.
    pub(super) fn before(&self) -> [usize; 3] {
        self.before
    }

    /// Depth, height and width.
    pub(super) fn size(&self) -> [usize; 3] {
        self.size
    }

    /// Writes the codes of values. `input` is plain for [`CodeLayout::Quads`] and [`CodeLayout::Rows`], and blocked for
    /// the others.
    ///
    /// # Errors
    /// A slice has the wrong length.
    pub fn quantize(
        &self,
        isa: Isa,
        quantizer: &Quantizer,
        zero: u8,
        input: &[f32],
        output: &mut [u8],
    ) -> Result<(), KernelError> {
        let (channels, positions) = (self.channels, volume(self.input));
        self.check_input(input.len())?;
        let work = nanoseconds_for_bytes(input.len().saturating_mul(6));
        self.write(zero, work, output, |planes, place, codes| match self.layout {
            CodeLayout::Blocks | CodeLayout::Halves | CodeLayout::TileHalves => {
                let source = &input[(planes * positions + place) * BLOCK..][..codes.len()];
                dispatch(isa, Line { quantizer: *quantizer, input: source, output: codes });
            }
            CodeLayout::Words => {
                let mut bytes = [0; WORDS_AT_ONCE];
                for (source, codes) in self.runs(&input[(planes * positions + place) * BLOCK..], codes) {
                    for (source, codes) in source.chunks(WORDS_AT_ONCE).zip(codes.chunks_mut(2 * WORDS_AT_ONCE)) {
                        let bytes = &mut bytes[..source.len()];
                        dispatch(isa, Line { quantizer: *quantizer, input: source, output: bytes });
                        widen(bytes, codes);
                    }
                }
            }
            CodeLayout::Tiles | CodeLayout::TileBlocks => {
                // Positions that are left out are no part of a run.
                let (lanes, [_, step]) = (self.layout.lanes(channels), self.step);
                let run = if step == 1 { WORDS_AT_ONCE / BLOCK } else { 1 };
                let mut bytes = [[0; BLOCK]; WORDS_AT_ONCE / BLOCK];
                for (part, source) in self.blocks_of(planes) {
                    let source = &input[(source * positions + place) * BLOCK..];
                    for (index, codes) in codes.chunks_mut(run * lanes).enumerate() {
                        let bytes = bytes[..codes.len() / lanes].as_flattened_mut();
                        let source = &source[index * run * step * BLOCK..][..bytes.len()];
                        dispatch(isa, Line { quantizer: *quantizer, input: source, output: bytes });
                        spread::<BLOCK>(bytes, 1, codes, lanes, part);
                    }
                }
            }
            CodeLayout::Rows => {
                let count = codes.len() / 2 / channels.max(1);
                let mut bytes = [[0; WORDS_AT_ONCE]; QUAD];
                for first in (0..count).step_by(WORDS_AT_ONCE) {
                    let part = first..count.min(first + WORDS_AT_ONCE);
                    for (channel, bytes) in bytes.iter_mut().enumerate().take(channels) {
                        let source = &input[(planes * channels + channel) * positions + place..][part.clone()];
                        dispatch(isa, Line { quantizer: *quantizer, input: source, output: &mut bytes[..part.len()] });
                    }
                    weave(
                        &bytes.each_ref().map(|bytes| &bytes[..part.len()])[..channels.min(QUAD)],
                        &mut codes[2 * channels * first..],
                    );
                }
            }
            CodeLayout::Quads => {
                let mut sources = [&[][..]; QUAD];
                for (channel, source) in sources.iter_mut().enumerate().take(channels) {
                    *source = &input[(planes * channels + channel) * positions + place..][..codes.len() / QUAD];
                }
                dispatch(isa, Quads { quantizer: *quantizer, inputs: &sources[..channels.min(QUAD)], output: codes });
            }
        })
    }

    /// Writes what a convolution reads of codes of its input, which are plain for [`CodeLayout::Quads`] and
    /// [`CodeLayout::Rows`], and blocked for the others.
    ///
    /// # Errors
    /// A slice has the wrong length.
    pub fn pad(&self, zero: u8, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
        let (channels, positions) = (self.channels, volume(self.input));
        self.check_input(input.len())?;
        let work = stream::copy_nanoseconds(input.len());
        self.write(zero, work, output, |planes, place, codes| match self.layout {
            CodeLayout::Blocks | CodeLayout::Halves | CodeLayout::TileHalves => {
                codes.copy_from_slice(&input[(planes * positions + place) * BLOCK..][..codes.len()]);
            }
            CodeLayout::Words => {
                for (source, codes) in self.runs(&input[(planes * positions + place) * BLOCK..], codes) {
                    widen(source, codes);
                }
            }
            CodeLayout::Tiles | CodeLayout::TileBlocks => {
                let (lanes, step) = (self.layout.lanes(channels), self.step[1]);
                let mut sources = [&[][..]; amx::ROW_BYTES / BLOCK];
                let mut count = 0;
                for (source, (_, block)) in sources.iter_mut().zip(self.blocks_of(planes)) {
                    *source = &input[(block * positions + place) * BLOCK..];
                    count += 1;
                }
                match (lanes / BLOCK, &sources[..count]) {
                    (1, &[codes_of_block]) if step == 1 => codes.copy_from_slice(&codes_of_block[..codes.len()]),
                    (2, &[a, b]) => join([a, b], step, codes),
                    (3, &[a, b, c]) => join([a, b, c], step, codes),
                    (4, &[a, b, c, d]) => join([a, b, c, d], step, codes),
                    (_, sources) => {
                        for (part, source) in sources.iter().enumerate() {
                            spread::<BLOCK>(source, step, codes, lanes, part);
                        }
                    }
                }
            }
            CodeLayout::Rows => {
                let mut sources = [&[][..]; QUAD];
                for (channel, source) in sources.iter_mut().enumerate().take(channels) {
                    *source = &input[(planes * channels + channel) * positions + place..][..codes.len() / 2 / channels];
                }
                weave(&sources[..channels.min(QUAD)], codes);
            }
            CodeLayout::Quads => {
                let (quads, _) = codes.as_chunks_mut::<QUAD>();
                quads.fill([0; QUAD]);
                for channel in 0..channels.min(QUAD) {
                    let source = &input[(planes * channels + channel) * positions + place..][..quads.len()];
                    quads.iter_mut().zip(source).for_each(|(quad, code)| quad[channel] = *code);
                }
            }
        })
    }

    /// The blocks of the input that lie side by side in a plane: the place of each in the lanes, and its number.
    fn blocks_of(&self, plane: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (lanes, blocks) = (self.layout.lanes(self.channels), self.channels.div_ceil(BLOCK));
        let planes = self.channels.div_ceil(lanes);
        let (image, first) = (plane / planes, plane % planes * lanes / BLOCK);
        (first..blocks.min(first + lanes / BLOCK)).map(move |block| (block - first, image * blocks + block))
    }

    /// The parts of a line of words whose codes lie side by side in the input, which begins with the first: the line, or each
    /// of its positions where others are left out.
    fn runs<'i, 'w, T>(&self, input: &'i [T], words: &'w mut [u8]) -> impl Iterator<Item = (&'i [T], &'w mut [u8])> {
        let [_, step] = self.step;
        let run = if step == 1 { words.len() / 2 } else { BLOCK };
        let words = words.chunks_exact_mut((2 * run).max(1)).enumerate();
        words.map(move |(index, words)| (&input[index * step * BLOCK..][..run], words))
    }

    /// Checks the number of values or codes that are to become those of this layout.
    fn check_input(&self, len: usize) -> Result<(), KernelError> {
        let positions = volume(self.input);
        let wanted = match self.layout {
            CodeLayout::Halves | CodeLayout::TileHalves => {
                return Err(KernelError::invalid("layout", "is that of bf16"));
            }
            CodeLayout::Quads | CodeLayout::Rows => product("input", &[self.batch, self.channels, positions])?,
            CodeLayout::Blocks | CodeLayout::Words | CodeLayout::Tiles | CodeLayout::TileBlocks => {
                blocked_len(self.batch, self.channels, positions)
            }
        };
        check_exact("input", len, wanted)
    }

    /// Writes blocked values as `round` makes bf16 of them.
    ///
    /// # Errors
    /// A slice has the wrong length, or the layout is another one.
    pub(super) fn round(
        &self,
        input: &[f32],
        output: &mut [u8],
        round: impl Fn(&[f32], &mut [u8]) + Sync,
    ) -> Result<(), KernelError> {
        let positions = volume(self.input);
        check_exact("input", input.len(), blocked_len(self.batch, self.channels, positions))?;
        let (channels, work) = (self.channels, nanoseconds_for_bytes(input.len().saturating_mul(6)));
        // Lanes without a channel hold anything, which a weight of zero does not make zero.
        let clear = |halves: &mut [u8], lanes: usize, plane: usize| {
            let count = channels - plane % channels.div_ceil(lanes) * lanes;
            if count < lanes {
                halves.chunks_exact_mut(2 * lanes).for_each(|position| position[2 * count..].fill(0));
            }
        };
        match self.layout {
            CodeLayout::Halves => self.write(0, work, output, |planes, place, halves| {
                round(&input[(planes * positions + place) * BLOCK..][..halves.len() / 2], halves);
                clear(halves, BLOCK, planes);
            }),
            CodeLayout::TileHalves => self.write(0, work, output, |planes, place, halves| {
                let (lanes, [_, step]) = (self.layout.lanes(channels), self.step);
                let run = if step == 1 { WORDS_AT_ONCE / BLOCK } else { 1 };
                let mut buffer = [[0; 2 * BLOCK]; WORDS_AT_ONCE / BLOCK];
                for (part, source) in self.blocks_of(planes) {
                    let source = &input[(source * positions + place) * BLOCK..];
                    for (index, halves) in halves.chunks_mut(run * lanes * 2).enumerate() {
                        let buffer = buffer[..halves.len() / lanes / 2].as_flattened_mut();
                        round(&source[index * run * step * BLOCK..][..buffer.len() / 2], buffer);
                        spread::<{ 2 * BLOCK }>(buffer, 1, halves, lanes * 2, part);
                    }
                }
                clear(halves, lanes, planes);
            }),
            _ => Err(KernelError::invalid("layout", "is not that of bf16")),
        }
    }

    /// Has the lines of all planes written: `write` gets the number of a block of channels, the place in it of the input that
    /// a line begins with, and the line's bytes inside the input.
    fn write(
        &self,
        zero: u8,
        work: u64,
        output: &mut [u8],
        write: impl Fn(usize, usize, &mut [u8]) + Sync,
    ) -> Result<(), KernelError> {
        check_exact("output", output.len(), self.len())?;
        let (channels, element) = (self.layout.lanes(self.channels), self.layout.element());
        let lanes = channels * element.bytes();
        let fill = |codes: &mut [u8]| match element {
            Element::Word => codes.as_chunks_mut().0.fill([zero, 0]),
            Element::Byte | Element::Bf16 => codes.fill(zero),
        };
        let (mut size, mut input) = (self.size, self.input);
        // A small plane of the input alone is one line.
        if self.before == [0; 3] && size == input && !self.are_dense() && volume(size) * lanes <= MOST_OF_LINE {
            (size, input) = ([1, 1, volume(size)], [1, 1, volume(input)]);
        }
        let ([deep, high, wide], [_, rows, columns]) = (size, input);
        let blocks = self.batch * self.channels.div_ceil(channels);
        let line = wide * lanes;
        let inside = self.before[2].min(wide)..(self.before[2] + columns.div_ceil(self.step[1])).min(wide);
        let shared = SharedMut::new(output);
        parallel_for(blocks * deep * high, CHUNK.div_ceil(line.max(1)), work, |range| {
            for index in range {
                let place = [index / high % deep, index % high * self.step[0]];
                let at = |axis: usize| place[axis].checked_sub(self.before[axis]).filter(|at| *at < input[axis]);
                // SAFETY: lines are disjoint.
                let codes = unsafe { shared.slice(index * line..(index + 1) * line) };
                let (Some(plane), Some(row)) = (at(0), at(1)) else {
                    fill(codes);
                    continue;
                };
                fill(&mut codes[..inside.start * lanes]);
                fill(&mut codes[inside.end * lanes..]);
                let codes = &mut codes[inside.start * lanes..inside.end * lanes];
                write(index / high / deep, (plane * rows + row) * columns, codes);
            }
        });
        Ok(())
    }
}

/// Whether windows are single positions, inside of the input where they begin.
pub(super) fn are_points(geometry: &ConvolutionGeometry) -> bool {
    let ([.., high, wide], view) = (geometry.channels_and_kernel(), geometry.plane());
    !geometry.has_depth() && [high, wide] == [1, 1] && view.pad == [0, 0]
}

/// Writes a block of the channels of positions, of which every `step`-th is taken, into positions of so many bytes.
fn spread<const BYTES: usize>(codes: &[u8], step: usize, to: &mut [u8], position_bytes: usize, block: usize) {
    let (codes, _) = codes.as_chunks::<BYTES>();
    for (position, codes) in to.chunks_exact_mut(position_bytes).zip(codes.iter().step_by(step)) {
        position[block * BYTES..][..BYTES].copy_from_slice(codes);
    }
}

/// Writes all blocks of the channels of positions, of which every `step`-th is taken, side by side: a line of the cache is
/// written once, where [`spread`] would come back to it for each block.
fn join<const BLOCKS: usize>(blocks: [&[u8]; BLOCKS], step: usize, to: &mut [u8]) {
    let (to, _) = to.as_chunks_mut::<BLOCK>();
    let (to, _) = to.as_chunks_mut::<BLOCKS>();
    let blocks = blocks.map(|codes| codes.as_chunks::<BLOCK>().0);
    let count = blocks.iter().fold(to.len(), |count, codes| count.min(codes.len().div_ceil(step.max(1))));
    for (place, position) in to[..count].iter_mut().enumerate() {
        for (to, codes) in position.iter_mut().zip(&blocks) {
            *to = codes[place * step];
        }
    }
}

/// Writes each code as two bytes.
fn widen(codes: &[u8], words: &mut [u8]) {
    let (words, _) = words.as_chunks_mut();
    words.iter_mut().zip(codes).for_each(|(word, code)| *word = [*code, 0]);
}

/// Writes the codes of up to four channels side by side, each as two bytes.
fn weave(channels: &[&[u8]], words: &mut [u8]) {
    match *channels {
        [a] => widen(a, words),
        [a, b] => weave_channels([a, b], words),
        [a, b, c] => weave_channels([a, b, c], words),
        [a, b, c, d] => weave_channels([a, b, c, d], words),
        _ => {}
    }
}

/// The same of a number of channels that the compiler knows.
fn weave_channels<const CHANNELS: usize>(channels: [&[u8]; CHANNELS], words: &mut [u8]) {
    let (words, _) = words.as_chunks_mut::<2>();
    let (positions, _) = words.as_chunks_mut::<CHANNELS>();
    let count = channels.iter().fold(positions.len(), |count, codes| count.min(codes.len()));
    let channels = channels.map(|codes| &codes[..count]);
    for (place, position) in positions[..count].iter_mut().enumerate() {
        for (word, codes) in position.iter_mut().zip(&channels) {
            *word = [codes[place], 0];
        }
    }
}

/// Writes the codes of a matrix with its rows filled up to whole quads with zeros.
///
/// # Errors
/// A slice has the wrong length.
pub fn pad_rows(columns: usize, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
    write_rows(columns, input, output, |source, codes| codes.copy_from_slice(source))
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
    if columns.is_multiple_of(QUAD) {
        return quantize(isa, quantizer, input, output);
    }
    write_rows(columns, input, output, |input, output| dispatch(isa, Line { quantizer: *quantizer, input, output }))
}

/// Has the codes of each row of a matrix written, and fills them up to whole quads with zeros.
fn write_rows<T>(
    columns: usize,
    input: &[T],
    output: &mut [u8],
    write: impl Fn(&[T], &mut [u8]),
) -> Result<(), KernelError> {
    let (rows, wide) = (input.len() / columns.max(1), columns.next_multiple_of(QUAD));
    check_exact("input", input.len(), product("input", &[rows, columns])?)?;
    check_exact("output", output.len(), product("output", &[rows, wide])?)?;
    for (line, source) in output.chunks_exact_mut(wide.max(1)).zip(input.chunks_exact(columns.max(1))) {
        let (codes, rest) = line.split_at_mut(columns);
        write(source, codes);
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
        let exact = Exact::new(s, s.splat(low), s.splat(high), steps);
        let len = self.output.len().min(self.input.len());
        let (from, to) = (self.input.as_ptr(), self.output.as_mut_ptr());
        let mut at = 0;
        while at < len {
            let count = S::LANES.min(len - at);
            // SAFETY: so many values lie in both slices.
            unsafe { store_codes(s, to.add(at), exact.codes(s, s.load_first(from.add(at), count)), count) };
            at += count;
        }
    }
}

/// Codes of up to four channels side by side; those that are lacking are zero.
struct Quads<'a> {
    quantizer: Quantizer,
    inputs: &'a [&'a [f32]],
    output: &'a mut [u8],
}

impl Kernel for Quads<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Quantizer { low, high, steps } = self.quantizer;
        let exact = Exact::new(s, s.splat(low), s.splat(high), steps);
        let quads = self.output.len() / QUAD;
        let len = self.inputs.iter().fold(quads, |len, input| len.min(input.len()));
        let mut at = 0;
        while at < len {
            let count = S::LANES.min(len - at);
            let mut quad = s.splat_i(0);
            for input in self.inputs.iter().rev() {
                // SAFETY: so many values lie in the slice.
                let codes = exact.codes(s, unsafe { s.load_first(input.as_ptr().add(at), count) });
                quad = s.or_i(s.shl::<8>(quad), codes);
            }
            // SAFETY: so many quads lie in the slice.
            unsafe { s.store_first(self.output.as_mut_ptr().add(at * QUAD).cast(), s.from_bits(quad), count) };
            at += count;
        }
    }
}

struct Values {
    decoder: Decoder,
    input: *const u8,
    output: *mut f32,
    count: usize,
}

impl Kernel for Values {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let (low, step) = (s.splat(self.decoder.low), s.splat(self.decoder.step));
        let mut at = 0;
        while at < self.count {
            let count = S::LANES.min(self.count - at);
            // SAFETY: who makes this promises so many codes and places for values.
            unsafe {
                let codes = s.from_i(load_codes(s, self.input.add(at), count));
                s.store_first(self.output.add(at), s.add(s.mul(codes, step), low), count);
            }
            at += count;
        }
    }
}

struct Codes {
    encoding: Encoding,
    input: *const f32,
    output: *mut u8,
    count: usize,
}

impl Kernel for Codes {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut at = 0;
        while at < self.count {
            let count = S::LANES.min(self.count - at);
            // SAFETY: who makes this promises so many values and places for codes.
            unsafe {
                let value = s.load_first(self.input.add(at), count);
                store_codes(s, self.output.add(at), s.to_i(self.encoding.codes(s, value)), count);
            }
            at += count;
        }
    }
}
