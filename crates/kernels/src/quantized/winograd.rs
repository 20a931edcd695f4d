//! Convolutions of codes with 3x3 taps by four ninths of their products.
//!
//! Two by two outputs are sums of sixteen products a channel instead of thirty-six: of four by four codes and of the taps,
//! both transformed (S. Winograd, "Arithmetic Complexity of Computations", 1980; F(2x2, 3x3) in A. Lavin and S. Gray, "Fast
//! Algorithms for Convolutional Neural Networks", 2016). With the transform of the taps doubled along both axes everything is
//! an integer, and sums are four times those of the convolution, exactly: integers of 32 bits that wrap around on the way are
//! right in the end. Transformed codes and taps are words, so that this is for machines that multiply those.

use super::dots::{DotKernel, Dots, dispatch_fourths, prefers_words};
use super::ending::{End, Ending, Ends};
use super::{QuantizedEpilogue, QuantizedOutput, Scaling, check_stored};
use crate::blocked::{BLOCK, PlaneView, blocked_len};
use crate::convolution::ConvolutionGeometry;
use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, parallel_chunks_mut, parallel_for};
use crate::simd::Simd;
use std::mem::MaybeUninit;

/// Taps down and across.
const TAPS: usize = 3;

/// Outputs of a tile down and across.
const OUTPUTS: usize = 2;

/// Codes of a tile down and across, and transformed values.
const SIDE: usize = 4;

/// The transformed values of a tile.
const PLACES: usize = SIDE * SIDE;

/// Bytes of a word.
const WORD: usize = 2;

/// Bytes of the words of two channels for a block of outputs.
const PAIR_BYTES: usize = 2 * WORD * BLOCK;

/// The most tiles whose sums are kept at a time.
const MOST_TILES: usize = 24;

/// The most tiles whose products are summed in registers.
const TOGETHER: usize = 6;

/// The most bytes of transformed codes, unless one row of tiles has more.
const BAND_BYTES: usize = 256 << 10;

/// Bytes between the transformed values of one place and the next, so that they do not lie in the same lines of a cache.
const GAP_BYTES: usize = 64;

/// Sums from one place to the next.
const PLACE_SUMS: usize = MOST_TILES * BLOCK;

/// The most input channels whose sums are surely a fourth of what an integer holds.
const MOST_INPUTS: usize = (i32::MAX as usize) / (4 * TAPS * TAPS * 255 * 128);

/// Fewer channels are not worth the transforms.
const LEAST_CHANNELS: usize = 16;

/// More weights are read from far away too often, and are that much more memory than bytes.
const MOST_WEIGHT_BYTES: usize = 5 << 19;

/// Signed codes of a convolution's constant operand, transformed.
#[derive(Debug, Clone)]
pub struct WinogradWeights {
    outputs: usize,
    inputs: usize,
    /// `[output block, place, two input channels, 16 output channels, 2 words]`.
    values: Packed<i8>,
}

impl WinogradWeights {
    /// Packs the codes `[output channels, input channels, 3, 3]` of a convolution.
    ///
    /// # Errors
    /// The number of codes is wrong, or the convolution is none that can be computed so.
    pub fn of_convolution(geometry: &ConvolutionGeometry, codes: &[i8]) -> Result<Self, KernelError> {
        check_exact("codes", codes.len(), geometry.weights_len())?;
        let [_, outputs, inputs, ..] = geometry.channels_and_kernel();
        check_geometry(geometry)?;
        let block_bytes = block_bytes(inputs);
        let mut values = Packed::zeroed(product("codes", &[outputs.div_ceil(BLOCK), block_bytes])?);
        let place_bytes = (block_bytes / PLACES).max(1);
        let (taps, _) = codes.as_chunks::<{ TAPS * TAPS }>();
        let work = nanoseconds_for_bytes(values.len().saturating_mul(4));
        parallel_chunks_mut(&mut values, block_bytes, work, |block, target| {
            let lanes = BLOCK.min(outputs - block * BLOCK);
            for pair in 0..inputs.div_ceil(2) {
                let (first, mut lines) = (2 * pair, [[[0; 2]; BLOCK]; PLACES]);
                let channels = 2.min(inputs - first);
                for (lane, index) in (0..lanes).flat_map(|lane| (0..channels).map(move |index| (lane, index))) {
                    let taps = &taps[(block * BLOCK + lane) * inputs + first + index];
                    for (line, value) in lines.iter_mut().zip(transform_taps(taps).as_flattened()) {
                        line[lane][index] = *value;
                    }
                }
                for (line, target) in lines.iter().zip(target.chunks_exact_mut(place_bytes)) {
                    let (words, _) = target[pair * PAIR_BYTES..][..PAIR_BYTES].as_chunks_mut::<WORD>();
                    for (word, value) in words.iter_mut().zip(line.as_flattened()) {
                        *word = value.to_le_bytes().map(u8::cast_signed);
                    }
                }
            }
        });
        Ok(Self { outputs, inputs, values })
    }
}

/// The transformed taps of one input and one output channel.
fn transform_taps(taps: &[i8; TAPS * TAPS]) -> [[i16; SIDE]; SIDE] {
    let tap = |index: usize| i16::from(taps[index]);
    let [a, b, c] = [0, 1, 2].map(|x| transform_line([tap(x), tap(TAPS + x), tap(2 * TAPS + x)]));
    [0, 1, 2, 3].map(|y| transform_line([a[y], b[y], c[y]]))
}

/// The transform of a column or a row of taps, doubled.
fn transform_line([a, b, c]: [i16; TAPS]) -> [i16; SIDE] {
    [2 * a, a + b + c, a - b + c, 2 * c]
}

/// Bytes of the weights of an output block.
fn block_bytes(inputs: usize) -> usize {
    PLACES * inputs.div_ceil(BLOCK) * (BLOCK / 2) * PAIR_BYTES
}

/// An error if a convolution cannot be computed so.
fn check_geometry(geometry: &ConvolutionGeometry) -> Result<(), KernelError> {
    let ([groups, _, inputs, high, wide], view) = (geometry.channels_and_kernel(), geometry.plane());
    let is_plane = !geometry.has_depth() && [high, wide] == [TAPS; 2];
    if groups != 1 || !is_plane || view.stride != [1, 1] || view.dilation != [1, 1] || inputs > MOST_INPUTS {
        return Err(KernelError::invalid(
            "geometry",
            "is not that of 3x3 taps side by side, one group and few channels",
        ));
    }
    Ok(())
}

/// Whether a convolution of codes is computed faster so than as it is written.
#[must_use]
pub fn takes_winograd(isa: Isa, geometry: &ConvolutionGeometry) -> bool {
    let [_, outputs, inputs, ..] = geometry.channels_and_kernel();
    let bytes = block_bytes(inputs).saturating_mul(outputs.div_ceil(BLOCK));
    prefers_words(isa)
        && check_geometry(geometry).is_ok()
        && inputs.min(outputs) >= LEAST_CHANNELS
        && bytes <= MOST_WEIGHT_BYTES
}

/// Bytes of scratch that [`winograd_convolution`] needs.
#[must_use]
pub fn winograd_scratch_len(geometry: &ConvolutionGeometry) -> usize {
    let [_, _, inputs, ..] = geometry.channels_and_kernel();
    Tiles::of(&geometry.plane()).scratch_len(inputs)
}

/// The tiles of a plane of outputs, row by row, and how many are transformed at a time.
#[derive(Clone, Copy)]
struct Tiles {
    across: usize,
    count: usize,
}

impl Tiles {
    fn of(view: &PlaneView) -> Self {
        let [down, across] = view.output.map(|size| size.div_ceil(OUTPUTS));
        Self { across, count: down * across }
    }

    /// The tiles of a band: as many as fit, in bands of about the same size.
    fn of_band(&self, inputs: usize) -> usize {
        let most = (BAND_BYTES / tile_bytes(inputs).max(1) / PLACES).max(MOST_TILES);
        even(self.count, most)
    }

    fn scratch_len(&self, inputs: usize) -> usize {
        PLACES * (self.of_band(inputs) * tile_bytes(inputs) + GAP_BYTES)
    }
}

/// Bytes of the transformed values of all channels at one place of a tile.
fn tile_bytes(inputs: usize) -> usize {
    inputs.next_multiple_of(BLOCK) * WORD
}

/// How many there are of so many things in parts of about the same size, none of which has more than `most`.
fn even(count: usize, most: usize) -> usize {
    count.div_ceil(count.div_ceil(most).max(1))
}

/// Convolves blocked codes into the blocked layout. A residual of the epilogue is blocked too; bias and slopes are indexed by
/// channel.
///
/// # Errors
/// A slice has the wrong length, the weights were packed for another shape, the convolution is none that can be computed so,
/// or the machine has no products of words.
#[expect(clippy::too_many_arguments, reason = "the operands of a convolution, and its scratch")]
pub fn winograd_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &WinogradWeights,
    scaling: &Scaling<'_>,
    input: &[u8],
    mut output: QuantizedOutput<'_>,
    epilogue: &QuantizedEpilogue<'_>,
    scratch: &mut [u8],
) -> Result<(), KernelError> {
    let (view, [_, outputs, inputs, ..]) = (geometry.plane(), geometry.channels_and_kernel());
    check_geometry(geometry)?;
    if !prefers_words(isa) {
        return Err(KernelError::invalid("isa", "has no products of words"));
    }
    if [weights.outputs, weights.inputs] != [outputs, inputs] {
        return Err(KernelError::invalid("weights", "packed for another shape"));
    }
    let zero = u8::try_from(scaling.zero).map_err(|_| KernelError::invalid("scaling", "has a zero that is no code"))?;
    let (plane, positions) = (view.input[0] * view.input[1], view.output[0] * view.output[1]);
    check_exact("input", input.len(), blocked_len(view.batch, inputs, plane))?;
    check_stored(&output, scaling, epilogue, outputs, blocked_len(view.batch, outputs, positions))?;
    check_len("scratch", scratch.len(), winograd_scratch_len(geometry))?;
    let tiles = Tiles::of(&view);
    let band = tiles.of_band(inputs);
    let place_bytes = band * tile_bytes(inputs) + GAP_BYTES;
    let (blocks, output) = (outputs.div_ceil(BLOCK), output.shared());
    let part = even(band, MOST_TILES);
    for (image, first) in
        (0..view.batch).flat_map(|image| (0..tiles.count).step_by(band.max(1)).map(move |t| (image, t)))
    {
        let count = band.min(tiles.count - first);
        let shared = SharedMut::new(scratch);
        let work = nanoseconds_for_bytes(count * PLACES * tile_bytes(inputs) * 2);
        let channel_blocks = inputs.div_ceil(BLOCK);
        parallel_for(count, MOST_TILES.div_ceil(channel_blocks), work, |range| {
            for (tile, block) in range.flat_map(|tile| (0..channel_blocks).map(move |block| (tile, block))) {
                let plane = &input[(image * channel_blocks + block) * plane * BLOCK..][..plane * BLOCK];
                let to = shared.pointer().wrapping_add(tile * tile_bytes(inputs) + block * BLOCK * WORD);
                let place = [(first + tile) / tiles.across, (first + tile) % tiles.across];
                // SAFETY: the scratch has room for each place of each tile, and nobody else writes to those of this one; the
                // machine has the instructions.
                unsafe { transform_tile(&view, plane, zero, place, to, place_bytes) };
            }
        });
        let transformed = &*scratch;
        let parts = count.div_ceil(part);
        // The flops of the convolution itself, of which four ninths are products here.
        let flops = (2 * TAPS * TAPS * OUTPUTS * OUTPUTS * count * inputs) as u64 * outputs as u64;
        parallel_for(blocks * parts, 1, nanoseconds_for_flops(flops) / 6, |range| {
            for (block, part_index) in range.map(|task| (task / parts, task % parts)) {
                let channel = block * BLOCK;
                let channels = outputs.next_multiple_of(BLOCK) - channel;
                let strides = [BLOCK, positions * BLOCK];
                let ending = Ending::new(isa, (scaling, epilogue, &output), channel, [1, channels], strides);
                let skipped = part_index * part;
                let job = Part {
                    view: &view,
                    across: tiles.across,
                    tiles: first + skipped..first + count.min(skipped + part),
                    transformed: transformed[skipped * tile_bytes(inputs)..].as_ptr(),
                    steps: [tile_bytes(inputs), place_bytes],
                    weights: weights.values[block * block_bytes(inputs)..].as_ptr(),
                    pairs: inputs.next_multiple_of(BLOCK) / 2,
                    plane: (image * blocks + block) * positions * BLOCK,
                };
                // SAFETY: lengths were checked, the machine has the instructions, and tasks write disjoint parts of the
                // output.
                unsafe { job.run(ending) };
            }
        });
    }
    Ok(())
}

/// Transforms the codes of one block of channels that a tile reads; what lies beyond the input has the code of zero.
///
/// # Safety
/// Sixteen words are writable from each of sixteen places on, so many bytes apart, and [`prefers_words`] holds.
unsafe fn transform_tile(view: &PlaneView, plane: &[u8], zero: u8, tile: [usize; 2], to: *mut u8, place_bytes: usize) {
    let [high, wide] = view.input;
    let corner = [0, 1].map(|axis| (tile[axis] * OUTPUTS).checked_sub(view.pad[axis]));
    if let [Some(y), Some(x)] = corner
        && y + SIDE <= high
        && x + SIDE <= wide
    {
        let from = plane[(y * wide + x) * BLOCK..].as_ptr();
        // SAFETY: the tile's rows lie in the plane, and the rest is the caller's promise.
        unsafe { transform(from, wide * BLOCK, zero, to, place_bytes) };
        return;
    }
    let mut codes = [zero; PLACES * BLOCK];
    for (place, codes) in codes.chunks_exact_mut(BLOCK).enumerate() {
        let at = |axis: usize, index: usize| {
            (tile[axis] * OUTPUTS + index).checked_sub(view.pad[axis]).filter(|at| *at < view.input[axis])
        };
        if let (Some(y), Some(x)) = (at(0, place / SIDE), at(1, place % SIDE)) {
            codes.copy_from_slice(&plane[(y * wide + x) * BLOCK..][..BLOCK]);
        }
    }
    // SAFETY: the rows of the copy lie one after the other, and the rest is the caller's promise.
    unsafe { transform(codes.as_ptr(), SIDE * BLOCK, zero, to, place_bytes) };
}

/// Transforms four by four positions of a block, whose rows lie so many bytes apart.
///
/// # Safety
/// The codes are readable, sixteen words are writable from each of sixteen places on, `place_bytes` apart, and
/// [`prefers_words`] holds.
unsafe fn transform(codes: *const u8, row_bytes: usize, zero: u8, to: *mut u8, place_bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise; the tiers that prefer words have the instructions of AVX2.
    unsafe {
        x86::transform(codes, row_bytes, zero, to, place_bytes);
    }
    #[cfg(not(target_arch = "x86_64"))]
    debug_assert!(false, "no instruction for {codes:?} {row_bytes} {zero} {to:?} {place_bytes}");
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BLOCK, SIDE};
    use std::arch::x86_64::*;

    /// A column or a row of four values, transformed.
    #[target_feature(enable = "avx2")]
    fn transformed([a, b, c, d]: [__m256i; SIDE]) -> [__m256i; SIDE] {
        [_mm256_sub_epi16(a, c), _mm256_add_epi16(b, c), _mm256_sub_epi16(c, b), _mm256_sub_epi16(b, d)]
    }

    /// See the function of this name outside.
    ///
    /// # Safety
    /// As of that function, and the machine has the instructions of AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn transform(codes: *const u8, row_bytes: usize, zero: u8, to: *mut u8, place_bytes: usize) {
        let mut values = [[_mm256_setzero_si256(); SIDE]; SIDE];
        for (x, column) in values.iter_mut().enumerate() {
            for (y, value) in column.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                *value = unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(codes.add(y * row_bytes + x * BLOCK).cast())) };
            }
            *column = transformed(*column);
        }
        // The code of zero is in one place only more often with one sign than with the other.
        let zeros = _mm256_set1_epi16(4 * i16::from(zero));
        for y in 0..SIDE {
            let mut row = transformed([values[0][y], values[1][y], values[2][y], values[3][y]]);
            if y == 1 {
                row[1] = _mm256_sub_epi16(row[1], zeros);
            }
            for (x, value) in row.into_iter().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { _mm256_storeu_si256(to.add((y * SIDE + x) * place_bytes).cast(), value) };
            }
        }
    }
}

/// Tiles one after the other of one output block.
struct Part<'a> {
    view: &'a PlaneView,
    /// Tiles of a row.
    across: usize,
    tiles: std::ops::Range<usize>,
    /// The transformed codes of the first tile at the first place.
    transformed: *const u8,
    /// Their bytes from one tile to the next and from one place to the next.
    steps: [usize; 2],
    weights: *const i8,
    /// Pairs of input channels.
    pairs: usize,
    /// The element of the output that the first position of the plane is.
    plane: usize,
}

/// Sums of products of every place of some tiles: `[place, tile, 16 output channels]`.
#[repr(align(64))]
struct PlaceSums(MaybeUninit<[i32; PLACES * PLACE_SUMS]>);

impl Part<'_> {
    /// Computes all outputs of the tiles.
    ///
    /// # Safety
    /// Pointers lead to what the geometry asks for, nobody else touches this part of the output, and [`prefers_words`] holds.
    unsafe fn run(&self, mut ending: Ending<'_>) {
        let mut sums = PlaceSums(MaybeUninit::uninit());
        let sums = sums.0.as_mut_ptr().cast::<i32>();
        let count = self.tiles.len();
        let together = even(count, TOGETHER);
        for first in (0..count).step_by(together.max(1)) {
            macro_rules! call {
                ($($tiles:literal)*) => {
                    match together.min(count - first) {
                        // SAFETY: the caller's promise, and there is room for the sums of so many tiles.
                        $($tiles => unsafe { dispatch_fourths(Products::<$tiles> { part: self, first, sums }) },)*
                        _ => debug_assert!(false, "no products of {together} tiles"),
                    }
                };
            }
            call!(1 2 3 4 5 6);
        }
        let ([high, wide], most) = (self.view.output, ending.most_tiles().min(MOST_TILES));
        let mut tile = self.tiles.start;
        while tile < self.tiles.end {
            let [row, column] = [tile / self.across, tile % self.across];
            let together = (self.tiles.end - tile).min(self.across - column).min(most);
            for y in 0..OUTPUTS.min(high - row * OUTPUTS) {
                let positions = (together * OUTPUTS).min(wide - column * OUTPUTS);
                let place = (row * OUTPUTS + y) * wide + column * OUTPUTS;
                let offset = self.plane + place * BLOCK;
                let first = sums.wrapping_add((tile - self.tiles.start) * BLOCK);
                // SAFETY: the sums of these tiles were computed, and their positions lie in the output.
                unsafe {
                    dispatch_fourths(Outputs { sums: first, y, positions, end: &ending.at(offset) });
                    ending.apply(positions, offset);
                }
            }
            tile += together;
        }
    }
}

/// The products of some tiles of a part, the first of which is `first`, at all places.
struct Products<'a, const TILES: usize> {
    part: &'a Part<'a>,
    first: usize,
    sums: *mut i32,
}

impl<const TILES: usize> DotKernel for Products<'_, TILES> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        const VECTORS: usize = 2;
        let (Self { part, first, sums }, s) = (self, d.simd());
        let lanes = <D::S as Simd>::LANES;
        debug_assert_eq!(VECTORS * lanes, BLOCK);
        let [tile_bytes, place_bytes] = part.steps;
        let mut weights = part.weights;
        for place in 0..PLACES {
            let left = part.transformed.wrapping_add(place * place_bytes + first * tile_bytes);
            let mut result = [[s.splat_i(0); VECTORS]; TILES];
            for pair in 0..part.pairs {
                // SAFETY: the caller's promise.
                unsafe {
                    let right = [d.right(weights), d.right(weights.add(PAIR_BYTES / VECTORS))];
                    for (tile, result) in result.iter_mut().enumerate() {
                        let left = d.left(left.wrapping_add(tile * tile_bytes + pair * 2 * WORD));
                        for vector in 0..VECTORS {
                            result[vector] = d.dot(result[vector], left, right[vector]);
                        }
                    }
                    weights = weights.add(PAIR_BYTES);
                }
            }
            for (tile, result) in result.iter().enumerate() {
                let to = sums.wrapping_add(place * PLACE_SUMS + (first + tile) * BLOCK);
                for (vector, result) in result.iter().enumerate() {
                    // SAFETY: there is room for the sums of all tiles of a part.
                    unsafe { s.store(to.wrapping_add(vector * lanes).cast(), s.from_bits(*result)) };
                }
            }
        }
    }
}

/// One row of outputs of some tiles side by side.
struct Outputs<'t, 'a> {
    /// The sums of the first tile at the first place.
    sums: *const i32,
    /// Which row of the tiles it is.
    y: usize,
    positions: usize,
    end: &'t End<'a>,
}

impl DotKernel for Outputs<'_, '_> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        let lanes = <D::S as Simd>::LANES;
        debug_assert_eq!(2 * lanes, BLOCK);
        let whole = self.positions / OUTPUTS;
        for tile in 0..whole {
            let (sums, ends) = (self.sums.wrapping_add(tile * BLOCK), Ends::<OUTPUTS, 2>(self.end));
            // SAFETY: the caller's promise.
            unsafe {
                let ended = ends.begin::<D>(tile * OUTPUTS);
                let (left, right) = (self.vector(d, sums), self.vector(d, sums.wrapping_add(lanes)));
                ends.store(d, ended, &[[left[0], right[0]], [left[1], right[1]]]);
            }
        }
        if whole * OUTPUTS < self.positions {
            let (sums, ends) = (self.sums.wrapping_add(whole * BLOCK), Ends::<1, 2>(self.end));
            // SAFETY: the caller's promise.
            unsafe {
                let ended = ends.begin::<D>(whole * OUTPUTS);
                let [left, right] = [self.vector(d, sums)[0], self.vector(d, sums.wrapping_add(lanes))[0]];
                ends.store(d, ended, &[[left, right]]);
            }
        }
    }
}

impl Outputs<'_, '_> {
    /// Two outputs side by side of a vector of channels, four times.
    ///
    /// # Safety
    /// The sums of a tile lie at all places from there on.
    #[inline(always)]
    unsafe fn vector<D: Dots>(&self, d: D, sums: *const i32) -> [<D::S as Simd>::I; OUTPUTS] {
        let s = d.simd();
        // SAFETY: the caller's promise.
        unsafe {
            let a = self.column(s, sums);
            let b = self.column(s, sums.wrapping_add(PLACE_SUMS));
            let c = self.column(s, sums.wrapping_add(2 * PLACE_SUMS));
            let e = self.column(s, sums.wrapping_add(3 * PLACE_SUMS));
            [s.add_i(s.add_i(a, b), c), s.sub_i(s.sub_i(b, c), e)]
        }
    }

    /// What a column of places adds to the row of outputs.
    ///
    /// # Safety
    /// The sums of a tile lie at the places of the column from there on.
    #[inline(always)]
    unsafe fn column<S: Simd>(&self, s: S, sums: *const i32) -> S::I {
        const ROW: usize = SIDE * PLACE_SUMS;
        // SAFETY: the caller's promise.
        unsafe {
            let b = s.bits(s.load(sums.wrapping_add(ROW).cast()));
            let c = s.bits(s.load(sums.wrapping_add(2 * ROW).cast()));
            match self.y {
                0 => s.add_i(s.add_i(b, c), s.bits(s.load(sums.cast()))),
                _ => s.sub_i(s.sub_i(b, c), s.bits(s.load(sums.wrapping_add(3 * ROW).cast()))),
            }
        }
    }
}
