//! What is done to the scaled sums of a tile beside bias and limits: codes of values, and values of codes.
//!
//! Sums are rounded before, so that a code may be the one beside where a value lies within a few units in the last place of
//! the border of two. The codes of values that are given are exact; see `codes.rs`.

use super::codes::{Dequantizer, Quantizer, store_codes};
use super::dots::MOST_POSITIONS;
use crate::blocked::{BLOCK, lanes_from};
use crate::error::{KernelError, check_exact};
use crate::simd::{Kernel, Simd};

/// From values to codes by one multiplication, with levels of all channels or of each.
#[derive(Debug, Clone)]
pub struct Encodings {
    /// The channels that have one each, or one.
    count: usize,
    /// What each channel has, filled up to whole blocks if there are several.
    low: Vec<f32>,
    high: Vec<f32>,
    scale: Vec<f32>,
    shift: Vec<f32>,
    /// The last code.
    pub(super) steps: f32,
}

impl Encodings {
    /// The nearest of `steps + 1` levels between the limits, which are those of all channels or of each.
    ///
    /// # Errors
    /// The limits differ in number, there is none, or codes between them are not computed by one multiplication in f32.
    pub fn new(low: &[f32], high: &[f32], steps: f32) -> Result<Self, KernelError> {
        check_exact("high", high.len(), low.len())?;
        let all: Vec<Encoding> = low
            .iter()
            .zip(high)
            .map(|(low, high)| Encoding::new(&Quantizer { low: *low, high: *high, steps }))
            .collect();
        let fits =
            |e: &Encoding| e.low < e.high && [e.low, e.high, e.scale, e.shift].iter().all(|value| value.is_finite());
        if all.is_empty() || !all.iter().all(fits) || !(1.0..=255.0).contains(&steps) {
            return Err(KernelError::invalid("limits", "are none of codes of one byte"));
        }
        let count = all.len();
        // Levels lie apart beyond the last channel too.
        let beyond = Encoding { low: 0.0, high: 1.0, scale: 0.0, shift: 0.0 };
        let filled = if count == 1 { 1 } else { count.next_multiple_of(BLOCK) };
        let whole = || all.iter().chain(std::iter::repeat(&beyond)).take(filled);
        let vector = |parameter: fn(&Encoding) -> f32| whole().map(parameter).collect();
        Ok(Self {
            count,
            low: vector(|e| e.low),
            high: vector(|e| e.high),
            scale: vector(|e| e.scale),
            shift: vector(|e| e.shift),
            steps,
        })
    }

    /// Checks that there is one for all channels or one for each.
    pub(crate) fn check(&self, channels: usize) -> Result<(), KernelError> {
        check_count("encodings", self.count, channels)
    }

    /// Those of the channels from one on.
    pub(crate) fn lanes<const LANES: usize>(&self, channel: usize) -> EncodingLanes<LANES> {
        let lanes = |values: &[f32]| repeated_from(values, channel);
        EncodingLanes {
            low: lanes(&self.low),
            high: lanes(&self.high),
            scale: lanes(&self.scale),
            shift: lanes(&self.shift),
        }
    }
}

/// The parameters of neighbouring channels.
#[derive(Debug, Clone)]
pub(crate) struct EncodingLanes<const LANES: usize> {
    low: [f32; LANES],
    high: [f32; LANES],
    scale: [f32; LANES],
    shift: [f32; LANES],
}

impl<const LANES: usize> EncodingLanes<LANES> {
    /// The encodings of a vector of channels from a lane on.
    #[inline(always)]
    pub(crate) fn at<S: Simd>(&self, s: S, lane: usize) -> EncodingVector<S> {
        let load = |values: &[f32; LANES]| load_lanes(s, values, lane);
        EncodingVector {
            low: load(&self.low),
            high: load(&self.high),
            scale: load(&self.scale),
            shift: load(&self.shift),
        }
    }
}

/// From sums to codes by one multiplication, for neighbouring channels.
pub(crate) struct DirectLanes<const LANES: usize> {
    scale: [f32; LANES],
    shift: [f32; LANES],
    /// The least and the greatest code.
    least: [f32; LANES],
    most: [f32; LANES],
}

/// From sums to codes by one multiplication, for a vector of channels.
#[derive(Clone, Copy)]
pub(crate) struct DirectVector<S: Simd> {
    scale: S::F,
    shift: S::F,
    least: S::F,
    most: S::F,
}

impl<const LANES: usize> DirectLanes<LANES> {
    /// Those of a vector of channels from a lane on.
    #[inline(always)]
    pub(crate) fn at<S: Simd>(&self, s: S, lane: usize) -> DirectVector<S> {
        let load = |values: &[f32; LANES]| load_lanes(s, values, lane);
        let (least, most) = (load(&self.least), load(&self.most));
        DirectVector { scale: load(&self.scale), shift: load(&self.shift), least, most }
    }
}

impl<S: Simd> DirectVector<S> {
    /// The codes of sums.
    #[inline(always)]
    pub(crate) fn codes(&self, s: S, sum: S::F) -> S::I {
        s.to_i(self.place(s, sum))
    }

    /// The codes of sums as numbers.
    #[inline(always)]
    pub(super) fn numbers(&self, s: S, sum: S::F) -> S::F {
        s.round(self.place(s, sum))
    }

    /// Where sums lie among the codes.
    #[inline(always)]
    fn place(&self, s: S, sum: S::F) -> S::F {
        // The order makes the least code of NaN.
        s.min(self.most, s.max(s.fma(sum, self.scale, self.shift), self.least))
    }
}

/// From sums to codes of `value * min(max(value + 3, 0), 6) / 6`, for neighbouring channels.
pub(crate) struct GatedLanes<const LANES: usize> {
    scale: [f32; LANES],
    bias: [f32; LANES],
    /// What becomes of the products of values and gates.
    outer: DirectLanes<LANES>,
}

/// The same for a vector of channels.
#[derive(Clone, Copy)]
pub(crate) struct GatedVector<S: Simd> {
    scale: S::F,
    bias: S::F,
    outer: DirectVector<S>,
}

impl<const LANES: usize> GatedLanes<LANES> {
    /// Those of a vector of channels from a lane on.
    #[inline(always)]
    pub(crate) fn at<S: Simd>(&self, s: S, lane: usize) -> GatedVector<S> {
        let (scale, bias) = (load_lanes(s, &self.scale, lane), load_lanes(s, &self.bias, lane));
        GatedVector { scale, bias, outer: self.outer.at(s, lane) }
    }
}

impl<S: Simd> GatedVector<S> {
    /// The codes of sums.
    #[inline(always)]
    pub(crate) fn codes(&self, s: S, sum: S::F) -> S::I {
        let value = s.fma(sum, self.scale, self.bias);
        let gate = s.min(s.splat(6.0), s.max(s.splat(0.0), s.add(value, s.splat(3.0))));
        self.outer.codes(s, s.mul(value, gate))
    }
}

/// A vector of the values of lanes from one on.
#[inline(always)]
pub(super) fn load_lanes<S: Simd, const LANES: usize>(s: S, values: &[f32; LANES], lane: usize) -> S::F {
    let lanes = &values[lane..][..S::LANES];
    // SAFETY: the slice has a vector.
    unsafe { s.load(lanes.as_ptr()) }
}

impl<const LANES: usize> EncodingLanes<LANES> {
    /// The codes of what sums become by a scale and a bias, within limits of values.
    pub(crate) fn direct(&self, scales: &[f32; LANES], bias: &[f32; LANES], limits: (f32, f32)) -> DirectLanes<LANES> {
        let mut lanes =
            DirectLanes { scale: [0.0; LANES], shift: [0.0; LANES], least: [0.0; LANES], most: [0.0; LANES] };
        for lane in 0..LANES {
            let (scale, shift) = (f64::from(self.scale[lane]), f64::from(self.shift[lane]));
            let inside = |limit: f32| limit.max(self.low[lane]).min(self.high[lane]);
            let code = |value: f32| (f64::from(inside(value)) * scale + shift) as f32;
            lanes.scale[lane] = (f64::from(scales[lane]) * scale) as f32;
            lanes.shift[lane] = (f64::from(bias[lane]) * scale + shift) as f32;
            (lanes.least[lane], lanes.most[lane]) = (code(limits.0), code(limits.1));
        }
        lanes
    }
}

impl<const LANES: usize> EncodingLanes<LANES> {
    /// The codes of what an HSwish makes of scaled sums with a bias.
    pub(crate) fn gated(&self, scales: &[f32; LANES], bias: &[f32; LANES]) -> GatedLanes<LANES> {
        let outer = self.direct(&[1.0 / 6.0; LANES], &[0.0; LANES], (f32::NEG_INFINITY, f32::INFINITY));
        GatedLanes { scale: *scales, bias: *bias, outer }
    }
}

/// From sums to codes, for neighbouring channels: perhaps by codes in between, and with the codes of what is added.
pub(super) struct AddingLanes<const LANES: usize> {
    inner: Option<DirectLanes<LANES>>,
    outer: DirectLanes<LANES>,
    /// What the codes that are added are multiplied with.
    added: [f32; LANES],
}

/// The same for a vector of channels.
#[derive(Clone, Copy)]
pub(super) struct AddingVector<S: Simd> {
    outer: DirectVector<S>,
    added: S::F,
}

impl<const LANES: usize> AddingLanes<LANES> {
    /// Those of a vector of channels from a lane on.
    #[inline(always)]
    pub(super) fn at<S: Simd>(&self, s: S, lane: usize) -> AddingVector<S> {
        AddingVector { outer: self.outer.at(s, lane), added: load_lanes(s, &self.added, lane) }
    }

    /// The codes in between.
    #[inline(always)]
    pub(super) fn inner(&self) -> Option<&DirectLanes<LANES>> {
        self.inner.as_ref()
    }
}

impl<S: Simd> AddingVector<S> {
    /// The codes of sums, or of the codes in between as numbers, to which those of `added` are added.
    #[inline(always)]
    pub(super) fn codes(&self, s: S, sum: S::F, added: S::F) -> S::I {
        let DirectVector { scale, shift, least, most } = self.outer;
        let place = s.fma(sum, scale, s.fma(added, self.added, shift));
        // The order makes the least code of NaN.
        s.to_i(s.min(most, s.max(place, least)))
    }
}

impl<const LANES: usize> EncodingLanes<LANES> {
    /// The codes of what sums become by a scale and a bias, by codes and their values in between, and by the values of codes
    /// that are added, within limits of values.
    pub(super) fn adding(
        &self,
        scales: &[f32; LANES],
        bias: &[f32; LANES],
        inner: Option<&(Encoding, Decoding)>,
        added: &Decoding,
        limits: (f32, f32),
    ) -> AddingLanes<LANES> {
        let plus_added = |value: f32| (f64::from(value) + f64::from(added.low)) as f32;
        let (inner, outer) = match inner {
            Some((from, to)) => {
                let own = EncodingLanes {
                    low: [from.low; LANES],
                    high: [from.high; LANES],
                    scale: [from.scale; LANES],
                    shift: [from.shift; LANES],
                };
                let codes = own.direct(scales, bias, (f32::NEG_INFINITY, f32::INFINITY));
                (Some(codes), self.direct(&[to.scale; LANES], &[plus_added(to.low); LANES], limits))
            }
            None => (None, self.direct(scales, &bias.map(plus_added), limits)),
        };
        let added = self.scale.map(|scale| (f64::from(added.scale) * f64::from(scale)) as f32);
        AddingLanes { inner, outer, added }
    }
}

/// The encodings of a vector of channels.
#[derive(Clone, Copy)]
pub(crate) struct EncodingVector<S: Simd> {
    pub low: S::F,
    pub high: S::F,
    scale: S::F,
    shift: S::F,
}

impl<S: Simd> EncodingVector<S> {
    /// The codes of values between the limits.
    #[inline(always)]
    pub(crate) fn codes(&self, s: S, value: S::F) -> S::I {
        s.to_i(s.fma(value, self.scale, self.shift))
    }

    /// Values within the limits. NaN becomes the lower one.
    #[inline(always)]
    pub(crate) fn limit(&self, s: S, value: S::F) -> S::F {
        s.min(self.high, s.max(value, self.low))
    }
}

/// From codes to values, with levels of all channels or of each: less the code of zero, times the distance of two levels.
#[derive(Debug, Clone)]
pub struct Decodings {
    scale: Vec<f32>,
    zero: Vec<f32>,
}

impl Decodings {
    /// Codes from 0, which is `low`, to `steps`, which is `high`: one limit each for all channels or for each.
    ///
    /// # Errors
    /// The limits differ in number, there is none, or levels do not lie apart in f32.
    pub fn new(low: &[f32], high: &[f32], steps: f32) -> Result<Self, KernelError> {
        check_exact("high", high.len(), low.len())?;
        let scale = |(low, high): (&f32, &f32)| (f64::from(*high) - f64::from(*low)) / f64::from(steps);
        let all: Vec<f64> = low.iter().zip(high).map(scale).collect();
        let zero: Vec<f32> = low.iter().zip(&all).map(|(low, scale)| (-f64::from(*low) / scale) as f32).collect();
        let scale: Vec<f32> = all.into_iter().map(|scale| scale as f32).collect();
        if scale.is_empty() || scale.iter().chain(&zero).any(|value| !value.is_finite()) {
            return Err(KernelError::invalid("limits", "are none of codes of one byte"));
        }
        Ok(Self { scale, zero })
    }

    /// Checks that there is one for all channels or one for each.
    pub(crate) fn check(&self, channels: usize) -> Result<(), KernelError> {
        check_count("decodings", self.scale.len(), channels)
    }

    /// The distances of levels and the codes of zero of the channels from one on.
    pub(crate) fn lanes<const LANES: usize>(&self, channel: usize) -> ([f32; LANES], [f32; LANES]) {
        (repeated_from(&self.scale, channel), repeated_from(&self.zero, channel))
    }
}

/// Checks that there is one for all channels or one for each.
fn check_count(argument: &'static str, count: usize, channels: usize) -> Result<(), KernelError> {
    if count == 1 { Ok(()) } else { check_exact(argument, count, channels) }
}

/// The values of channels from one on, of one for all or one for each.
fn repeated_from<const LANES: usize>(values: &[f32], channel: usize) -> [f32; LANES] {
    match values {
        [value] => [*value; LANES],
        values => lanes_from(values, channel),
    }
}

/// A [`Quantizer`] as one multiplication: a code may be the one beside where a value lies within a few units in the last
/// place of the border of two.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Encoding {
    low: f32,
    high: f32,
    scale: f32,
    shift: f32,
}

impl Encoding {
    pub(crate) fn new(quantizer: &Quantizer) -> Self {
        let [low, high, steps] = [quantizer.low, quantizer.high, quantizer.steps].map(f64::from);
        let scale = steps / (high - low);
        Self { low: quantizer.low, high: quantizer.high, scale: scale as f32, shift: (-low * scale) as f32 }
    }

    /// The codes of values, as numbers. That of NaN is 0.
    #[inline(always)]
    pub(super) fn codes<S: Simd>(&self, s: S, value: S::F) -> S::F {
        let value = s.min(s.splat(self.high), s.max(value, s.splat(self.low)));
        s.round(s.fma(value, s.splat(self.scale), s.splat(self.shift)))
    }
}

/// A [`Dequantizer`] as one multiplication.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Decoding {
    scale: f32,
    low: f32,
}

impl Decoding {
    pub(super) fn new(dequantizer: &Dequantizer) -> Self {
        let [low, high, steps] = [dequantizer.low, dequantizer.high, dequantizer.steps].map(f64::from);
        Self { scale: ((high - low) / steps) as f32, low: dequantizer.low }
    }

    /// The same for the sum of so many codes, which becomes the sum of their values over a divisor.
    pub(super) fn of_sums(&self, terms: usize, divisor: usize) -> Self {
        let divisor = divisor.max(1) as f64;
        let low = f64::from(self.low) * terms as f64 / divisor;
        Self { scale: (f64::from(self.scale) / divisor) as f32, low: low as f32 }
    }

    /// The values of codes.
    #[inline(always)]
    pub(super) fn values<S: Simd>(&self, s: S, codes: S::F) -> S::F {
        s.fma(codes, s.splat(self.scale), s.splat(self.low))
    }
}

/// What is added to the values of a tile: where its first value is.
#[derive(Clone, Copy)]
pub(super) enum Added {
    Nothing,
    Values(*const f32),
    Codes(*const u8, Decoding),
}

impl Added {
    /// The same so many elements further on.
    #[inline(always)]
    pub(super) fn moved(self, elements: usize) -> Self {
        match self {
            Added::Nothing => Added::Nothing,
            Added::Values(values) => Added::Values(values.wrapping_add(elements)),
            Added::Codes(codes, decoding) => Added::Codes(codes.wrapping_add(elements), decoding),
        }
    }
}

/// Where the values of a tile go.
#[derive(Clone, Copy)]
pub(crate) enum Stored<'a, const LANES: usize> {
    Values(*mut f32),
    Codes(*mut u8, &'a EncodingLanes<LANES>),
    /// Codes of sums to which nothing is added.
    Direct(*mut u8, &'a DirectLanes<LANES>),
    /// Codes of what an HSwish makes of them.
    Gated(*mut u8, &'a GatedLanes<LANES>),
}

impl<const LANES: usize> Stored<'_, LANES> {
    /// The same so many elements further on.
    #[inline(always)]
    pub(super) fn moved(self, elements: usize) -> Self {
        match self {
            Stored::Values(values) => Stored::Values(values.wrapping_add(elements)),
            Stored::Codes(codes, encoding) => Stored::Codes(codes.wrapping_add(elements), encoding),
            Stored::Direct(codes, lanes) => Stored::Direct(codes.wrapping_add(elements), lanes),
            Stored::Gated(codes, lanes) => Stored::Gated(codes.wrapping_add(elements), lanes),
        }
    }
}

/// Reads the bytes of the first `count` lanes.
///
/// # Safety
/// That many bytes are readable.
#[inline(always)]
pub(super) unsafe fn load_codes<S: Simd>(s: S, from: *const u8, count: usize) -> S::I {
    // SAFETY: the caller's promise, and a block has the bytes of any tier's vector.
    unsafe {
        if count >= S::LANES {
            return s.load_u8(from);
        }
        let mut bytes = [0u8; BLOCK];
        std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count);
        s.load_u8(bytes.as_ptr())
    }
}

/// The most values of a tile.
pub(super) const MOST_VALUES: usize = 2 * BLOCK * MOST_POSITIONS;

/// Tiles that a function is applied to together.
pub(super) const BUFFERED_TILES: usize = 4;

/// The values of some tiles that a function is applied to before they become codes, position by position, with places for
/// the channels of whole blocks.
#[repr(align(64))]
pub(super) struct Buffer(pub(super) [f32; BUFFERED_TILES * MOST_VALUES]);

/// Stores the codes of the values in a buffer.
pub(super) struct StoreBuffer<'a> {
    pub buffer: &'a Buffer,
    pub positions: usize,
    /// Values from one position to the next.
    pub row: usize,
    /// Channels that are stored, from the tile's first on.
    pub channels: usize,
    pub encoding: &'a EncodingLanes<{ 2 * BLOCK }>,
    /// Where the first code goes.
    pub output: *mut u8,
    /// Codes from one position to the next and from one block to the next.
    pub strides: [usize; 2],
}

impl Kernel for StoreBuffer<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let [position_stride, block_stride] = self.strides;
        for channel in (0..self.channels).step_by(S::LANES) {
            let count = (self.channels - channel).min(S::LANES);
            let encoding = self.encoding.at(s, channel);
            for position in 0..self.positions {
                let place = channel / BLOCK * block_stride + position * position_stride + channel % BLOCK;
                let values = &self.buffer.0[position * self.row + channel..][..S::LANES];
                // SAFETY: the slice has a vector, and who makes this has checked that the tile lies in the output.
                unsafe {
                    let value = encoding.limit(s, s.load(values.as_ptr()));
                    store_codes(s, self.output.add(place), encoding.codes(s, value), count);
                }
            }
        }
    }
}
