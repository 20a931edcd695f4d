//! Codes of one byte: how f32 become codes and codes f32, and the layouts of codes that convolutions and products read.

use crate::blocked::{BLOCK, blocked_len};
use crate::convolution::ConvolutionGeometry;
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::math::Divisor;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream;

use super::QUAD;
use super::finish::{Encoding, EncodingLanes, Encodings, load_codes};

/// Elements that a parallel chunk of a quantisation covers at least.
const CHUNK: usize = 1 << 14;

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

/// The layout of the codes of a convolution's input. Height and width are those of [`code_plane`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeLayout {
    /// `[N, H, W, 4]`: up to four channels side by side, the others anything.
    Quads,
    /// `[N, ceil(C / 16), H, W, 16]`.
    Blocks,
}

impl CodeLayout {
    pub(super) fn lanes(self) -> usize {
        match self {
            CodeLayout::Quads => QUAD,
            CodeLayout::Blocks => BLOCK,
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

/// The height and width of the planes of codes that a convolution reads: those of the input if its windows do not leave it,
/// otherwise what its windows cover. `None` where that is far larger than the input.
#[must_use]
pub fn code_plane(geometry: &ConvolutionGeometry) -> Option<[usize; 2]> {
    let (view, [_, high, wide]) = (geometry.plane(), geometry.covered()?);
    let is_inside = view.pad == [0, 0] && high <= view.input[0] && wide <= view.input[1];
    Some(if is_inside { view.input } else { [high, wide] })
}

/// Whether a convolution cannot read codes of its input as they are, but a copy that [`pad_codes`] makes.
#[must_use]
pub fn needs_padding(geometry: &ConvolutionGeometry) -> bool {
    let view = geometry.plane();
    view.pad != [0, 0] || code_plane(geometry) != Some(view.input)
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
    let positions = view.input[0] * view.input[1];
    let input_len = match layout {
        CodeLayout::Quads => product("input", &[view.batch, inputs, positions])?,
        CodeLayout::Blocks => blocked_len(view.batch, inputs, positions),
    };
    check_exact("input", input.len(), input_len)?;
    let work = nanoseconds_for_bytes(input.len().saturating_mul(6));
    write_planes(geometry, layout, zero, work, output, |plane, place, codes| match layout {
        CodeLayout::Blocks => {
            let source = &input[(plane * positions + place) * BLOCK..][..codes.len()];
            dispatch(isa, Line { quantizer: *quantizer, input: source, output: codes });
        }
        CodeLayout::Quads => {
            for channel in 0..inputs {
                let source = &input[(plane * inputs + channel) * positions + place..][..codes.len() / QUAD];
                quantize_channel(isa, quantizer, source, &mut codes[channel..]);
            }
        }
    })
}

/// Writes what a convolution reads of blocked codes of its input, with the code of zero in the padding.
///
/// # Errors
/// As for [`quantize_planes`].
pub fn pad_codes(geometry: &ConvolutionGeometry, zero: u8, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
    let (view, [_, _, inputs, ..]) = (geometry.plane(), geometry.channels_and_kernel());
    let positions = view.input[0] * view.input[1];
    check_exact("input", input.len(), blocked_len(view.batch, inputs, positions))?;
    let work = stream::copy_nanoseconds(input.len());
    write_planes(geometry, CodeLayout::Blocks, zero, work, output, |plane, place, codes| {
        codes.copy_from_slice(&input[(plane * positions + place) * BLOCK..][..codes.len()]);
    })
}

/// Has the lines of the planes that a convolution reads written: `write` gets a plane, the place in it of the input that a
/// line begins with, and the line's bytes inside the input.
fn write_planes(
    geometry: &ConvolutionGeometry,
    layout: CodeLayout,
    zero: u8,
    work: u64,
    output: &mut [u8],
    write: impl Fn(usize, usize, &mut [u8]) + Sync,
) -> Result<(), KernelError> {
    let (view, [_, _, inputs, ..]) = (geometry.plane(), geometry.channels_and_kernel());
    let invalid = || KernelError::invalid("geometry", "has padding far larger than its input");
    let ([high, wide], lanes) = (code_plane(geometry).ok_or_else(invalid)?, layout.lanes());
    if layout == CodeLayout::Quads && inputs > QUAD {
        return Err(KernelError::invalid("channels", "are more than four"));
    }
    check_exact("output", output.len(), codes_len(geometry, layout).ok_or_else(invalid)?)?;
    let planes = view.batch * inputs.div_ceil(lanes);
    let line = wide * lanes;
    let inside = view.pad[1].min(wide)..(view.pad[1] + view.input[1]).min(wide);
    let shared = SharedMut::new(output);
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
            write(plane, row * view.input[1], &mut codes[inside.start * lanes..inside.end * lanes]);
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
