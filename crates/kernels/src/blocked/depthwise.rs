//! Depthwise convolution in the blocked layout: a vector is sixteen channels of one position.
//!
//! A tile is some neighbouring positions of one line, whose sums stay in registers. For each line of the kernel the
//! columns that the tile reads are loaded once, and each is multiplied by all taps that meet it. Data may be codes of one
//! byte, which become numbers when they are loaded, and results may become codes when they are stored. Where weights are
//! codes as well and the machine sums products of bytes, they are those of bytes.

mod bytes;

use super::direct::{PlaneView, lanes_from, slopes_from};
use super::{BLOCK, blocked_len, from_plain};
use crate::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use crate::error::{KernelError, check_exact, check_len};
use crate::isa::Isa;
use crate::packed::Packed;
use crate::parallel::parallel_for;
use crate::quantized::{Decodings, EncodingLanes, QuantizedOutput, Stored, Target, TargetLanes, store_codes};
use crate::simd::{Kernel, Simd, dispatch, unrolled};
use crate::unary::{self, UnaryOp};
use bytes::{ByteBlock, ByteTaps};
use std::ops::Range;

/// Output elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Positions whose values are kept until a function has been applied to them and they can become codes.
const MOST_KEPT: usize = 256;

/// The weights of a depthwise convolution, tap by tap in blocks of sixteen channels.
#[derive(Debug)]
pub struct BlockedDepthwise {
    channels: usize,
    taps: [usize; 2],
    values: Packed<f32>,
    /// The codes that the weights are, for data that are codes.
    bytes: Option<ByteTaps>,
}

impl BlockedDepthwise {
    /// Packs the weights `[channels, 1, height, width]` of a depthwise convolution.
    ///
    /// # Errors
    /// The geometry is not depthwise (groups equal to both channels) or has a depth, or the weights do not fit it.
    pub fn pack(geometry: &ConvolutionGeometry, weights: &[f32]) -> Result<Self, KernelError> {
        let mut values = Packed::zeroed(DepthwiseWeights::len(geometry));
        let DepthwiseWeights { channels, taps, .. } = DepthwiseWeights::pack(geometry, weights, &mut values)?;
        Ok(Self { channels, taps, values, bytes: None })
    }

    /// The weights, to compute with.
    #[must_use]
    pub fn weights(&self) -> DepthwiseWeights<'_> {
        DepthwiseWeights { channels: self.channels, taps: self.taps, values: &self.values, bytes: self.bytes.as_ref() }
    }

    /// Packs codes `[channels, 1, height, width]` that stand for their product with one scale a channel.
    ///
    /// # Errors
    /// As [`BlockedDepthwise::pack`], or there are not so many scales.
    pub fn of_codes(geometry: &ConvolutionGeometry, codes: &[i8], scales: &[f32]) -> Result<Self, KernelError> {
        let [channels, _, _, high, wide] = geometry.channels_and_kernel();
        check_exact("scales", scales.len(), channels)?;
        check_exact("codes", codes.len(), geometry.weights_len())?;
        let taps = (high * wide).max(1);
        let values: Vec<f32> =
            codes.iter().enumerate().map(|(at, code)| f32::from(*code) * scales[at / taps]).collect();
        Ok(Self { bytes: ByteTaps::pack([high, wide], codes, scales), ..Self::pack(geometry, &values)? })
    }
}

/// Packed weights of a depthwise convolution: those of a [`BlockedDepthwise`], or those that are known only when the layer
/// runs.
#[derive(Debug, Clone, Copy)]
pub struct DepthwiseWeights<'a> {
    channels: usize,
    taps: [usize; 2],
    values: &'a [f32],
    bytes: Option<&'a ByteTaps>,
}

impl<'a> DepthwiseWeights<'a> {
    /// The elements of the packed weights.
    #[must_use]
    pub fn len(geometry: &ConvolutionGeometry) -> usize {
        let [channels, _, _, high, wide] = geometry.channels_and_kernel();
        blocked_len(1, channels, high.saturating_mul(wide))
    }

    /// Packs the weights `[channels, 1, height, width]` of a depthwise convolution into memory for as many elements as
    /// [`DepthwiseWeights::len`] tells, or more.
    ///
    /// # Errors
    /// The geometry is not depthwise (groups equal to both channels) or has a depth, or a slice does not fit it.
    pub fn pack(
        geometry: &ConvolutionGeometry,
        weights: &[f32],
        packed: &'a mut [f32],
    ) -> Result<DepthwiseWeights<'a>, KernelError> {
        let [groups, outputs, inputs, high, wide] = geometry.channels_and_kernel();
        if groups != outputs || groups != inputs || geometry.has_depth() {
            return Err(KernelError::invalid("geometry", "is not a depthwise convolution of planes"));
        }
        check_exact("weights", weights.len(), geometry.weights_len())?;
        check_len("packed", packed.len(), Self::len(geometry))?;
        let values = &mut packed[..Self::len(geometry)];
        from_plain(1, groups, high * wide, weights, values)?;
        Ok(Self { channels: groups, taps: [high, wide], values, bytes: None })
    }
}

/// The data of a depthwise convolution.
#[derive(Debug, Clone, Copy)]
pub enum DepthwiseInput<'a> {
    /// Values.
    Values(&'a [f32]),
    /// Values by their codes.
    Codes(&'a [u8], &'a Decodings),
}

impl DepthwiseInput<'_> {
    fn check(&self, channels: usize, len: usize) -> Result<(), KernelError> {
        match self {
            DepthwiseInput::Values(values) => check_exact("input", values.len(), len),
            DepthwiseInput::Codes(codes, decodings) => {
                check_exact("input", codes.len(), len)?;
                decodings.check(channels)
            }
        }
    }
}

/// Depthwise convolution of blocked tensors. What is added to the output, if the epilogue says so, must be values.
///
/// # Errors
/// The weights were packed for another shape, or a slice has the wrong length.
pub fn blocked_depthwise(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: DepthwiseWeights<'_>,
    input: DepthwiseInput<'_>,
    mut output: QuantizedOutput<'_>,
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
    input.check(channels, blocked_len(view.batch, channels, plane))?;
    output.check(channels, blocked_len(view.batch, channels, positions))?;
    epilogue.check_accumulating(channels, output.len())?;
    if epilogue.accumulates && matches!(output, QuantizedOutput::Codes(..)) {
        return Err(KernelError::invalid("residual", "cannot be in an output of codes"));
    }
    if output.len() == 0 {
        return Ok(());
    }
    let (blocks, count) = (channels.div_ceil(BLOCK), high * wide);
    let work = (output.len() as u64).saturating_mul(count as u64) / 16;
    let (lines, line) = (view.output[0], view.output[1] * BLOCK);
    // Lines are the units, so that one block of channels can spread over threads.
    let grain = CHUNK.div_ceil(line).max(lines.min(8));
    let target = output.shared();
    parallel_for(view.batch * blocks * lines, grain, work, |range| {
        let mut first = range.start;
        while first < range.end {
            let (plane_index, y) = (first / lines, first % lines);
            let channel = plane_index % blocks * BLOCK;
            let end = range.end.min((plane_index + 1) * lines);
            let (mut scale, zero) = match input {
                DepthwiseInput::Values(_) => ([1.0; BLOCK], [0.0; BLOCK]),
                DepthwiseInput::Codes(_, decodings) => decodings.lanes(channel),
            };
            let residual = match (epilogue.residual, &target) {
                (Some(values), _) => values[first * line..end * line].as_ptr(),
                (None, Target::Values(values)) if epilogue.accumulates => values.pointer().wrapping_add(first * line),
                (None, _) => std::ptr::null(),
            };
            let from = plane_index * plane * BLOCK..(plane_index + 1) * plane * BLOCK;
            let bytes = match (input, bytes::codes_of_zero(&zero), weights.bytes) {
                (DepthwiseInput::Codes(codes, _), Some(zero), Some(taps)) if taps.fits(isa, &view) => {
                    Some(ByteBlock { taps, block: channel / BLOCK, codes: &codes[from.clone()], zero })
                }
                _ => None,
            };
            if let Some(bytes) = &bytes {
                scale.iter_mut().zip(bytes.taps.scales(bytes.block)).for_each(|(scale, own)| *scale *= own);
            }
            let shared = Shared {
                isa,
                view,
                channels: channels - channel,
                taps,
                weights: &weights.values[channel * count..][..count * BLOCK],
                bytes,
                scale,
                zero,
                bias: epilogue.bias.map_or([0.0; BLOCK], |bias| lanes_from(bias, channel)),
                slopes: slopes_from(epilogue.activation, channel),
                limits: epilogue.activation.limits(),
                function: epilogue.activation.function(),
            };
            let part = Part { lines: y..y + end - first, columns: 0..view.output[1], first: y, residual };
            // SAFETY: the lines lie in the output and are nobody else's, and lengths were checked.
            unsafe {
                match input {
                    DepthwiseInput::Values(values) => {
                        shared.compute(&values[from], &target, first * line, channel, part);
                    }
                    DepthwiseInput::Codes(codes, _) if zero == [0.0; BLOCK] => {
                        let codes: *const [u8] = &raw const codes[from];
                        // SAFETY: the types have the same layout.
                        let codes = &*(codes as *const [FromZero]);
                        shared.compute(codes, &target, first * line, channel, part);
                    }
                    DepthwiseInput::Codes(codes, _) => {
                        shared.compute(&codes[from], &target, first * line, channel, part);
                    }
                }
            }
            first = end;
        }
    });
    Ok(())
}

/// An element of the data.
trait Element: Copy + Sync {
    /// Whether it is a number itself, and no code.
    const IS_NUMBER: bool;

    /// Reads a vector of them as numbers, from which `zero` is taken if they are codes.
    ///
    /// # Safety
    /// So many are readable.
    unsafe fn load<S: Simd>(s: S, from: *const Self, zero: S::F) -> S::F;
}

impl Element for f32 {
    const IS_NUMBER: bool = true;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const f32, _zero: S::F) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load(from) }
    }
}

impl Element for u8 {
    const IS_NUMBER: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const u8, zero: S::F) -> S::F {
        // SAFETY: the caller's promise.
        s.sub(s.from_i(unsafe { s.load_u8(from) }), zero)
    }
}

/// A code where that of zero is 0.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct FromZero(u8);

impl Element for FromZero {
    const IS_NUMBER: bool = false;

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, from: *const FromZero, _zero: S::F) -> S::F {
        // SAFETY: the caller's promise.
        s.from_i(unsafe { s.load_u8(&raw const (*from).0) })
    }
}

/// What is the same for all positions of one block of channels.
struct Shared<'a> {
    isa: Isa,
    view: PlaneView,
    /// Channels from the first of the block on: of this block and of those behind it.
    channels: usize,
    taps: [usize; 2],
    weights: &'a [f32],
    /// Data and weights that are codes, where sums are those of their products.
    bytes: Option<ByteBlock<'a>>,
    /// What sums are multiplied with.
    scale: [f32; BLOCK],
    /// The codes of zero, if the data are codes.
    zero: [f32; BLOCK],
    bias: [f32; BLOCK],
    slopes: Option<[f32; BLOCK]>,
    limits: (f32, f32),
    /// An activation that is applied to stored values.
    function: Option<UnaryOp>,
}

/// Some positions of a block.
#[derive(Clone)]
struct Part {
    lines: Range<usize>,
    columns: Range<usize>,
    /// The line that the output and what is added begin with.
    first: usize,
    /// As many values as the output, perhaps the output itself, or null.
    residual: *const f32,
}

impl Shared<'_> {
    /// Computes lines whose first element of the output is at `offset`.
    ///
    /// # Safety
    /// The lines lie in the output, nobody else touches them, and the input and the residual have what they read.
    unsafe fn compute<T: Element>(&self, input: &[T], target: &Target<'_>, offset: usize, channel: usize, part: Part) {
        let line = self.view.output[1] * BLOCK;
        match target.lanes(channel) {
            TargetLanes::Values(values) => {
                let output = values.wrapping_add(offset);
                let len = part.lines.len() * line;
                // SAFETY: the caller's promise.
                unsafe { self.lines(input, part, Stored::Values(output)) };
                if let Some(op) = self.function {
                    // SAFETY: the lines lie in the output.
                    unsafe { unary::apply(self.isa, op, output, output, len) };
                }
            }
            TargetLanes::Codes(codes, encoding) => {
                let output = codes.wrapping_add(offset);
                let is_linear = self.slopes.is_none() && part.residual.is_null();
                // Numbers seldom become codes: their tiles store numbers only.
                match self.function {
                    _ if T::IS_NUMBER => {}
                    Some(UnaryOp::HSwish) if is_linear => {
                        let gated = encoding.gated(&self.scale, &self.bias);
                        // SAFETY: the caller's promise.
                        return unsafe { self.lines(input, part, Stored::Gated(output, &gated)) };
                    }
                    Some(_) => {}
                    None => {
                        let direct = encoding.direct(&self.scale, &self.bias, self.limits);
                        let stored =
                            if is_linear { Stored::Direct(output, &direct) } else { Stored::Codes(output, &encoding) };
                        // SAFETY: the caller's promise.
                        return unsafe { self.lines(input, part, stored) };
                    }
                }
                let mut kept = [0.0f32; MOST_KEPT * BLOCK];
                // Whole lines where one has room, otherwise parts of each.
                let step = (MOST_KEPT / self.view.output[1].max(1)).max(1);
                for y in part.lines.clone().step_by(step) {
                    let lines = y..part.lines.end.min(y + step);
                    for x in part.columns.clone().step_by(MOST_KEPT) {
                        let columns = x..part.columns.end.min(x + MOST_KEPT);
                        let (count, values) = (lines.len() * columns.len(), kept.as_mut_ptr());
                        let place = (y - part.first) * line + x * BLOCK;
                        let residual = match part.residual.is_null() {
                            true => part.residual,
                            false => part.residual.wrapping_add((y - part.first) * line),
                        };
                        // What is stored is found by its line and column.
                        let stored = Stored::Values(values.wrapping_sub(x * BLOCK));
                        let part = Part { lines: lines.clone(), columns, first: y, residual };
                        // SAFETY: the lines are some of those that the caller promises, and their values are kept.
                        unsafe {
                            self.lines(input, part, stored);
                            if let Some(op) = self.function {
                                unary::apply(self.isa, op, values, values, count * BLOCK);
                            }
                        }
                        let output = output.wrapping_add(place);
                        dispatch(self.isa, Store { values: &kept[..count * BLOCK], encoding: &encoding, output });
                    }
                }
            }
        }
    }

    /// Computes lines.
    ///
    /// # Safety
    /// As of [`Self::compute`].
    unsafe fn lines<T: Element>(&self, input: &[T], part: Part, stored: Stored<'_, BLOCK>) {
        let lines = Lines { shared: self, input, part, stored };
        #[cfg(target_arch = "x86_64")]
        if let Some(bytes) = &self.bytes {
            // SAFETY: there are bytes only where they fit the machine and the geometry; the rest is the caller's promise.
            unsafe { bytes.run(&lines) };
            return;
        }
        dispatch(self.isa, lines);
    }
}

/// Stores the codes of values.
struct Store<'a> {
    values: &'a [f32],
    encoding: &'a EncodingLanes<BLOCK>,
    output: *mut u8,
}

impl Kernel for Store<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for part in (0..BLOCK).step_by(S::LANES) {
            let encoding = self.encoding.at(s, part);
            for place in (part..self.values.len()).step_by(BLOCK) {
                // SAFETY: the values are whole blocks, and who makes this has room for their codes.
                unsafe {
                    let value = encoding.limit(s, s.load(self.values.as_ptr().add(place)));
                    store_codes(s, self.output.add(place), encoding.codes(s, value), S::LANES);
                }
            }
        }
    }
}

/// Lines of one block of channels.
struct Lines<'a, T> {
    shared: &'a Shared<'a>,
    input: &'a [T],
    part: Part,
    stored: Stored<'a, BLOCK>,
}

impl<I: Element> Kernel for Lines<'_, I> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // Tiles of N positions, with stride T and kernels K wide. Registers hold the sums and one column at least;
        // weights that find no room beside them are read from the cache.
        macro_rules! tiles {
            ($stride:literal $wide:literal: $($count:literal)*) => {
                match best_tile(self.part.columns.len(), &[$($count),*]) {
                    $($count => {
                        self.tiles::<S, $stride, $wide, $count, false>(s);
                        true
                    })*
                    _ => false,
                }
            };
            (dilated $wide:literal: $($count:literal)*) => {
                match best_tile(self.part.columns.len().div_ceil(self.shared.view.dilation[1]), &[$($count),*]) {
                    $($count => {
                        self.tiles::<S, 1, $wide, $count, true>(s);
                        true
                    })*
                    _ => false,
                }
            };
        }
        // Codes have tiles of their own where the machine sums products of bytes; others, and tiers of short vectors, have few.
        let tier = match S::LANES {
            _ if !I::IS_NUMBER => 0,
            BLOCK => 2,
            8.. => 1,
            _ => 0,
        };
        let has_tiles = match (self.shared.view.dilation[1], self.shared.view.stride[1], self.shared.taps[1], tier) {
            (1, 1, 1, 2) => tiles!(1 1: 4 7 8),
            (1, 1, 2, 2) => tiles!(1 2: 4 7 8),
            (1, 1, 3, 2) => tiles!(1 3: 4 6 7 8 10 12),
            (1, 1, 5, 2) => tiles!(1 5: 4 6 7 8 10),
            (1, 1, 7, 2) => tiles!(1 7: 4 6 7 8),
            (1, 1, 9, 2) => tiles!(1 9: 4 6 7 8),
            (1, 1, 11, 2) => tiles!(1 11: 4 6 7 8),
            (1, 2, 3, 2) => tiles!(2 3: 4 6 7 8),
            (1, 2, 5, 2) => tiles!(2 5: 4 6 7),
            (1, 2, 7, 2) => tiles!(2 7: 4 7),
            (1, 2, 9, 2) => tiles!(2 9: 4 6),
            (1, 1, 3, 1) => tiles!(1 3: 4 7 8 10 12),
            (1, 1, 5, 1) => tiles!(1 5: 4 7 8 10),
            (1, 1, 7, 1) => tiles!(1 7: 4 7 8),
            (1, 2, 3, 1) => tiles!(2 3: 4 7 8),
            (1, 2, 5, 1) => tiles!(2 5: 4 7 8),
            (1, 2, 7, 1) => tiles!(2 7: 4 7),
            (1, 1, 3, 0) => tiles!(1 3: 4 7),
            (1, 1, 5, 0) => tiles!(1 5: 4 7),
            (1, 1, 7, 0) => tiles!(1 7: 4 7),
            (1, 2, 3, 0) => tiles!(2 3: 4 7),
            (1, 2, 5, 0) => tiles!(2 5: 4 7),
            (2.., 1, 3, 1..) => tiles!(dilated 3: 2 4 8),
            (2.., 1, 5, 1..) => tiles!(dilated 5: 2 4 8),
            (2.., 1, 7, 1..) => tiles!(dilated 7: 4 8),
            (2.., 1, 3, 0) => tiles!(dilated 3: 4),
            (2.., 1, 5, 0) => tiles!(dilated 5: 4),
            _ => false,
        };
        // All other geometries share one copy of this code.
        if !has_tiles {
            self.positions(s);
        }
    }
}

/// Of some lengths of tiles, in order, the one that covers a line with the least work.
fn best_tile(line: usize, lengths: &[usize]) -> usize {
    // What comes before and after the sums of a tile takes as long as two positions.
    lengths.iter().copied().rev().min_by_key(|length| line.div_ceil(*length) * (length + 2)).unwrap_or(0)
}

impl<I: Element> Lines<'_, I> {
    /// Computes all lines in tiles of `N` positions: neighbouring ones, or where taps are `DILATED`, those as far apart as taps,
    /// which read the same columns.
    #[inline(always)]
    fn tiles<S: Simd, const T: usize, const K: usize, const N: usize, const DILATED: bool>(&self, s: S) {
        let (pad, width) = (self.shared.view.pad[1], self.shared.view.input[1]);
        let step = self.step::<DILATED>();
        let columns = &self.part.columns;
        for y in self.part.lines.clone() {
            for start in columns.start..columns.end.min(columns.start + step) {
                for x in (start..columns.end).step_by(N * step) {
                    let count = N.min((columns.end - x).div_ceil(step));
                    let is_inside = count == N && x * T >= pad && x * T + ((N - 1) * T + K - 1) * step < width + pad;
                    for part in (0..BLOCK).step_by(S::LANES) {
                        // SAFETY: the positions lie in the line and, where `is_inside`, what they read in the width.
                        unsafe {
                            if is_inside {
                                self.tile::<S, T, K, N, false, DILATED>(s, part, [y, x], count);
                            } else {
                                self.tile::<S, T, K, N, true, DILATED>(s, part, [y, x], count);
                            }
                        }
                    }
                }
            }
        }
    }

    /// The positions from one of a tile to the next.
    #[inline(always)]
    fn step<const DILATED: bool>(&self) -> usize {
        if DILATED { self.shared.view.dilation[1] } else { 1 }
    }

    /// Computes `count` positions from `x` on; columns outside of the input are zeros at an `EDGE`.
    ///
    /// # Safety
    /// The positions lie in the line. Without `EDGE` there are `N`, and all columns that they read lie in the input.
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize, const K: usize, const N: usize, const EDGE: bool, const DILATED: bool>(
        &self,
        s: S,
        part: usize,
        [y, x]: [usize; 2],
        count: usize,
    ) {
        let (width, step) = (self.shared.view.input[1], self.step::<DILATED>());
        let high = if self.has_channels(part) { self.shared.taps[0] } else { 0 };
        let mut sums = [s.splat(0.0); N];
        let zero = self.zero(s, part);
        // Columns before the first one wrap around, and are then beyond the width.
        let first = (x * T).wrapping_sub(self.shared.view.pad[1]);
        for ky in 0..high {
            let Some(row) = self.shared.view.at(0, y, ky) else { continue };
            // The first column may lie before the input, but what is read does not.
            let line = self.input.as_ptr().wrapping_add((row * width).wrapping_add(first).wrapping_mul(BLOCK) + part);
            let weights = self.shared.weights.as_ptr().wrapping_add(ky * K * BLOCK + part);
            unrolled!(offset < ((N - 1) * T + K) => {
                if !EDGE || first.wrapping_add(offset * step) < width {
                    // SAFETY: the column lies in the row, which `at` has found inside the input.
                    let column = unsafe { I::load(s, line.wrapping_add(offset * step * BLOCK), zero) };
                    for (index, sum) in sums.iter_mut().enumerate() {
                        if index * T <= offset && offset < index * T + K {
                            // SAFETY: there are as many blocks of weights as taps.
                            let weight = unsafe { s.load(weights.add((offset - index * T) * BLOCK)) };
                            *sum = s.fma(column, weight, *sum);
                        }
                    }
                }
            });
        }
        // SAFETY: the positions lie in the line.
        unsafe { self.finish(s, part, [y, x], step * BLOCK, sums, if EDGE { count } else { N }) };
    }

    /// Computes all positions of all lines, whatever the kernel: up to eight at a time.
    #[inline(always)]
    fn positions<S: Simd>(&self, s: S) {
        let (low, end) = interior(&self.shared.view, self.shared.taps[1]);
        for y in self.part.lines.clone() {
            let mut x = self.part.columns.start;
            while x < self.part.columns.end {
                let is_inside = x >= low && x + 8 <= end.min(self.part.columns.end);
                let count = match self.part.columns.end - x {
                    1 | 2 => 1,
                    rest => rest.min(8),
                };
                for part in (0..BLOCK).step_by(S::LANES) {
                    // SAFETY: the positions lie in the line and, where they are inside, their taps in the width.
                    unsafe {
                        match count {
                            1 => self.position(s, part, [y, x]),
                            2..=4 => self.neighbours::<S, 4, true>(s, part, [y, x], count),
                            _ if is_inside => self.neighbours::<S, 8, false>(s, part, [y, x], count),
                            _ => self.neighbours::<S, 8, true>(s, part, [y, x], count),
                        }
                    }
                }
                x += count;
            }
        }
    }

    /// Computes `count` of up to `N` neighbouring positions; columns outside of the input are zeros at an `EDGE`.
    ///
    /// # Safety
    /// The positions lie in the line. Without `EDGE` there are `N`, and all columns that they read lie in the input.
    #[inline(always)]
    unsafe fn neighbours<S: Simd, const N: usize, const EDGE: bool>(
        &self,
        s: S,
        part: usize,
        [y, x]: [usize; 2],
        count: usize,
    ) {
        let (view, mut sums, zero) = (&self.shared.view, [s.splat(0.0); N], self.zero(s, part));
        let [high, wide] = self.shared.taps;
        // Columns before the first one wrap around, and are then beyond the width.
        let first = (x * view.stride[1]).wrapping_sub(view.pad[1]);
        for ky in 0..high {
            let Some(row) = view.at(0, y, ky) else { continue };
            let line = self.input.as_ptr().wrapping_add(row * view.input[1] * BLOCK + part);
            for kx in 0..wide {
                // SAFETY: the columns lie in the row, which `at` has found inside the input, and there are as many blocks of
                // weights as taps.
                unsafe {
                    let weight = s.load(self.shared.weights.as_ptr().add((ky * wide + kx) * BLOCK + part));
                    let column = first.wrapping_add(kx * view.dilation[1]);
                    for (index, sum) in sums.iter_mut().enumerate() {
                        let column = column.wrapping_add(index * view.stride[1]);
                        if !EDGE || column < view.input[1] {
                            *sum = s.fma(I::load(s, line.add(column * BLOCK), zero), weight, *sum);
                        }
                    }
                }
            }
        }
        // SAFETY: the positions lie in the line.
        unsafe { self.finish(s, part, [y, x], BLOCK, sums, if EDGE { count } else { N }) };
    }

    /// Computes one position, every other tap into a sum of its own.
    ///
    /// # Safety
    /// The position lies in the line.
    #[inline(always)]
    unsafe fn position<S: Simd>(&self, s: S, part: usize, [y, x]: [usize; 2]) {
        let (mut sums, zero) = ([s.splat(0.0); 2], self.zero(s, part));
        for ky in 0..self.shared.taps[0] {
            let Some(row) = self.shared.view.at(0, y, ky) else { continue };
            for kx in 0..self.shared.taps[1] {
                let Some(column) = self.shared.view.at(1, x, kx) else { continue };
                // SAFETY: the tap lies in the input, and there are as many blocks of weights as taps.
                unsafe {
                    let weight =
                        s.load(self.shared.weights.as_ptr().add((ky * self.shared.taps[1] + kx) * BLOCK + part));
                    let from = self.input.as_ptr().add((row * self.shared.view.input[1] + column) * BLOCK + part);
                    sums[kx % 2] = s.fma(I::load(s, from, zero), weight, sums[kx % 2]);
                }
            }
        }
        // SAFETY: as the caller promises.
        unsafe { self.finish(s, part, [y, x], BLOCK, [s.add(sums[0], sums[1])], 1) };
    }

    /// Whether there are channels from a lane of the block on. Beyond them weights are zeros, and so are sums.
    #[inline(always)]
    fn has_channels(&self, part: usize) -> bool {
        part < self.shared.channels
    }

    /// The codes of zero of a vector of channels.
    #[inline(always)]
    fn zero<S: Simd>(&self, s: S, part: usize) -> S::F {
        let lanes = &self.shared.zero[part..][..S::LANES];
        // SAFETY: the slice has a vector.
        unsafe { s.load(lanes.as_ptr()) }
    }

    /// Stores what the sums of the first `count` of some positions become, each `step` elements behind the one before.
    ///
    /// # Safety
    /// So many positions lie in the part.
    #[inline(always)]
    unsafe fn finish<S: Simd, const N: usize>(
        &self,
        s: S,
        part: usize,
        [y, x]: [usize; 2],
        step: usize,
        sums: [S::F; N],
        count: usize,
    ) {
        let place = ((y - self.part.first) * self.shared.view.output[1] + x) * BLOCK + part;
        // SAFETY: the part lies in a block, and the first `count` places in the output and the residual.
        unsafe {
            match &self.stored {
                Stored::Values(values) => {
                    let values = values.wrapping_add(place);
                    for (index, value) in self.values(s, part, place, step, sums, count).into_iter().enumerate() {
                        if index < count {
                            s.store(values.wrapping_add(index * step), value);
                        }
                    }
                }
                _ if I::IS_NUMBER => debug_assert!(false, "numbers become codes elsewhere"),
                Stored::Codes(codes, encoding) => {
                    let (codes, encoding) = (codes.wrapping_add(place), encoding.at(s, part));
                    for (index, value) in self.values(s, part, place, step, sums, count).into_iter().enumerate() {
                        if index < count {
                            let value = encoding.limit(s, value);
                            store_codes(s, codes.wrapping_add(index * step), encoding.codes(s, value), S::LANES);
                        }
                    }
                }
                Stored::Direct(codes, lanes) => {
                    let (codes, lanes) = (codes.wrapping_add(place), lanes.at(s, part));
                    for (index, sum) in sums.into_iter().enumerate() {
                        if index < count {
                            store_codes(s, codes.wrapping_add(index * step), lanes.codes(s, sum), S::LANES);
                        }
                    }
                }
                Stored::Gated(codes, lanes) => {
                    let (codes, lanes) = (codes.wrapping_add(place), lanes.at(s, part));
                    for (index, sum) in sums.into_iter().enumerate() {
                        if index < count {
                            store_codes(s, codes.wrapping_add(index * step), lanes.codes(s, sum), S::LANES);
                        }
                    }
                }
            }
        }
    }

    /// Scales sums, adds bias and residual, applies slopes and limits.
    ///
    /// # Safety
    /// The part lies in a block, and the first `count` places in the residual.
    #[inline(always)]
    unsafe fn values<S: Simd, const N: usize>(
        &self,
        s: S,
        part: usize,
        place: usize,
        step: usize,
        mut sums: [S::F; N],
        count: usize,
    ) -> [S::F; N] {
        let shared = self.shared;
        // SAFETY: the caller's promise.
        unsafe {
            let (scale, bias) = (s.load(shared.scale.as_ptr().add(part)), s.load(shared.bias.as_ptr().add(part)));
            sums.iter_mut().for_each(|sum| *sum = s.fma(*sum, scale, bias));
            if !self.part.residual.is_null() {
                let residual = self.part.residual.wrapping_add(place);
                for (index, sum) in sums.iter_mut().enumerate() {
                    if index < count {
                        *sum = s.add(*sum, s.load(residual.wrapping_add(index * step)));
                    }
                }
            }
            if let Some(slopes) = &shared.slopes {
                let slopes = s.load(slopes.as_ptr().add(part));
                for sum in &mut sums {
                    *sum = s.select(s.lt(*sum, s.splat(0.0)), s.mul(*sum, slopes), *sum);
                }
            }
            let (low, high) = (s.splat(shared.limits.0), s.splat(shared.limits.1));
            sums.iter_mut().for_each(|sum| *sum = s.min(high, s.max(low, *sum)));
        }
        sums
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
