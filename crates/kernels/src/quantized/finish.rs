//! What is done to the scaled sums of a tile beside bias and limits: codes of values, and values of codes.
//!
//! Sums are rounded before, so that a code may be the one beside where a value lies within a few units in the last place of
//! the border of two. The codes of values that are given are exact; see `codes.rs`.

use super::codes::{Dequantizer, Quantizer, store_codes};
use super::dots::MOST_POSITIONS;
use crate::blocked::BLOCK;
use crate::simd::{Kernel, Simd};

/// A [`Quantizer`] as one multiplication.
#[derive(Debug, Clone, Copy)]
pub(super) struct Encoding {
    pub low: f32,
    pub high: f32,
    scale: f32,
    shift: f32,
}

impl Encoding {
    pub(super) fn new(quantizer: &Quantizer) -> Self {
        let [low, high, steps] = [quantizer.low, quantizer.high, quantizer.steps].map(f64::from);
        let scale = steps / (high - low);
        Self { low: quantizer.low, high: quantizer.high, scale: scale as f32, shift: (-low * scale) as f32 }
    }

    /// The codes of values between the limits, before they are rounded.
    #[inline(always)]
    pub(super) fn places<S: Simd>(&self, s: S, value: S::F) -> S::F {
        s.fma(value, s.splat(self.scale), s.splat(self.shift))
    }

    /// Values within the limits. NaN becomes the lower one.
    #[inline(always)]
    pub(super) fn limit<S: Simd>(&self, s: S, value: S::F) -> S::F {
        s.min(s.splat(self.high), s.max(value, s.splat(self.low)))
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

/// Where the values of a tile go.
#[derive(Clone, Copy)]
pub(super) enum Stored {
    Values(*mut f32),
    Codes(*mut u8, Encoding),
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

/// The values of a tile that a function is applied to before they become codes, position by position, with `2 * BLOCK`
/// places for the channels of each.
#[repr(align(64))]
pub(super) struct Buffer(pub(super) [f32; MOST_VALUES]);

/// Stores the codes of the values in a buffer.
pub(super) struct StoreBuffer<'a> {
    pub buffer: &'a Buffer,
    pub positions: usize,
    /// Channels that are stored, from the tile's first on.
    pub channels: usize,
    pub encoding: Encoding,
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
        for position in 0..self.positions {
            let mut channel = 0;
            while channel < self.channels {
                let count = (self.channels - channel).min(S::LANES);
                let place = channel / BLOCK * block_stride + position * position_stride + channel % BLOCK;
                let values = &self.buffer.0[position * 2 * BLOCK + channel..][..S::LANES];
                // SAFETY: the slice has a vector, and who makes this has checked that the tile lies in the output.
                unsafe {
                    let value = self.encoding.limit(s, s.load(values.as_ptr()));
                    store_codes(s, self.output.add(place), s.to_i(self.encoding.places(s, value)), count);
                }
                channel += S::LANES;
            }
        }
    }
}
