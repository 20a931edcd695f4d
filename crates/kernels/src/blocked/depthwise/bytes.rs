//! Depthwise convolution of codes with weights that are codes, by sums of four products of bytes.
//!
//! Four neighbouring positions of a block are a vector of bytes. Turned so that each lane has the four codes of one channel,
//! it is multiplied with four taps of a line of the kernel at once. Two neighbouring positions read the same quads: the
//! second one has its taps one place further on. What lies around the input has the code of zero.

use super::super::BLOCK;
use super::super::direct::PlaneView;
use crate::isa::Isa;
use crate::packed::Packed;

/// Codes that one instruction multiplies and sums.
const QUAD: usize = 4;

/// Positions that read the same quads.
const PAIR: usize = 2;

/// The most taps across, which three quads have, whichever position of a pair they are for.
const MOST_WIDE: usize = 11;

/// Lines of the input that are kept where a tile reaches beyond it.
const KEPT_LINES: usize = 16;

/// Weights of a depthwise convolution that are codes.
#[derive(Debug)]
pub(super) struct ByteTaps {
    /// Lines of the kernel.
    high: usize,
    /// Quads that have the taps of a line.
    quads: usize,
    /// `[block, line of the kernel, position of a pair, quad, 16 channels, 4 taps]`.
    values: Packed<i8>,
    /// The sums of the codes of each line of the kernel: `[block, line, 16 channels]`.
    sums: Vec<[i32; BLOCK]>,
    /// What sums are multiplied with besides what the data are: `[block, 16 channels]`.
    scales: Vec<[f32; BLOCK]>,
}

impl ByteTaps {
    /// Packs codes of `[channels, height, width]`, which stand for their product with the channel's scale. `None` if a line of
    /// the kernel is too long, or there are too many lines.
    pub fn pack([high, wide]: [usize; 2], codes: &[i8], scales: &[f32]) -> Option<Self> {
        if !(1..=MOST_WIDE).contains(&wide) || !(1..KEPT_LINES).contains(&high) {
            return None;
        }
        let (blocks, quads) = (scales.len().div_ceil(BLOCK), (wide + PAIR - 1).div_ceil(QUAD));
        let line_bytes = PAIR * quads * BLOCK * QUAD;
        let mut values = Packed::zeroed(blocks * high * line_bytes);
        let mut sums = vec![[0; BLOCK]; blocks * high];
        let mut lanes = vec![[0.0; BLOCK]; blocks];
        for (channel, (kernel, scale)) in codes.chunks_exact(high * wide).zip(scales).enumerate() {
            let (block, lane) = (channel / BLOCK, channel % BLOCK);
            lanes[block][lane] = *scale;
            for (line, taps) in kernel.chunks_exact(wide).enumerate() {
                let place = block * high + line;
                sums[place][lane] = taps.iter().map(|tap| i32::from(*tap)).sum();
                let target = &mut values[place * line_bytes..][..line_bytes];
                for (position, quad_bytes) in target.chunks_exact_mut(quads * BLOCK * QUAD).enumerate() {
                    for (tap, code) in taps.iter().enumerate() {
                        let at = position + tap;
                        quad_bytes[(at / QUAD * BLOCK + lane) * QUAD + at % QUAD] = *code;
                    }
                }
            }
        }
        Some(Self { high, quads, values, sums, scales: lanes })
    }

    /// Whether the machine and the geometry are those that this is for.
    pub fn fits(&self, isa: Isa, view: &PlaneView) -> bool {
        let lines =
            (self.high - 1).checked_mul(view.dilation[0]).and_then(|lines| lines.checked_add(1 + view.stride[0]));
        has_instructions(isa)
            && view.dilation[1] == 1
            && matches!(view.stride[1], 1 | PAIR)
            && lines.is_some_and(|lines| lines <= KEPT_LINES)
    }

    /// What the sums of a block are multiplied with besides what the data are.
    pub fn scales(&self, block: usize) -> [f32; BLOCK] {
        self.scales[block]
    }
}

/// The codes of zero as bytes, if they are such.
pub(super) fn codes_of_zero(zero: &[f32; BLOCK]) -> Option<[u8; BLOCK]> {
    // The conversion keeps to the bytes, whatever the number is.
    let codes = zero.map(|zero| (zero + 0.5) as u8);
    zero.iter().zip(codes).all(|(zero, code)| (zero - f32::from(code)).abs() < 1e-3).then_some(codes)
}

#[cfg(not(target_arch = "x86_64"))]
fn has_instructions(_isa: Isa) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
fn has_instructions(isa: Isa) -> bool {
    isa.tier() == crate::isa::Tier::Avx512 && isa.has_vnni() && is_x86_feature_detected!("avx512vbmi")
}

/// One block of channels.
#[derive(Clone, Copy)]
pub(super) struct ByteBlock<'a> {
    pub taps: &'a ByteTaps,
    pub block: usize,
    /// The codes of the input: a plane of this block.
    pub codes: &'a [u8],
    /// The codes of zero.
    pub zero: [u8; BLOCK],
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::{Element, Lines, Stored, best_tile};
    use super::{BLOCK, ByteBlock, KEPT_LINES, PAIR, QUAD};
    use crate::simd::{Avx512, Simd};
    use crate::stream::prefetch_span;
    use std::arch::x86_64::*;
    use std::mem::MaybeUninit;

    /// The most columns of the input that a tile reads.
    const MOST_COLUMNS: usize = 36;

    /// Lines from a tile to the one below that it asks for.
    const LINES_AHEAD: usize = 8;

    /// Lines of the input around a tile that reaches beyond it.
    struct Kept(MaybeUninit<[[[u8; BLOCK]; MOST_COLUMNS]; KEPT_LINES]>);

    /// The values of the sums of a tile.
    #[repr(align(64))]
    struct Values(MaybeUninit<[[f32; BLOCK]; PAIR * MOST_PAIRS]>);

    /// The most pairs of a tile.
    const MOST_PAIRS: usize = 14;

    /// What the bytes of four positions are in their order by channels.
    static BY_CHANNEL: [u8; QUAD * BLOCK] = {
        let mut order = [0; QUAD * BLOCK];
        let mut at = 0;
        while at < order.len() {
            order[at] = (at % QUAD * BLOCK + at / QUAD) as u8;
            at += 1;
        }
        order
    };

    impl ByteBlock<'_> {
        /// Computes the lines of a block.
        ///
        /// # Safety
        /// The taps fit the machine and the geometry, the lines lie in the output, and the codes are those of the input.
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512vbmi,avx2,fma,f16c")]
        pub unsafe fn run<I: Element>(&self, lines: &Lines<'_, I>) {
            macro_rules! strips {
                ($stride:literal $quads:literal: $($pairs:literal)*) => {
                    match best_tile(lines.part.columns.len(), &[$($pairs * PAIR / $stride),*]) {
                        // SAFETY: the caller's promise.
                        $(tile if tile == $pairs * PAIR / $stride => unsafe {
                            self.strips::<I, $stride, $quads, $pairs>(lines);
                        },)*
                        _ => debug_assert!(false, "no such tile"),
                    }
                };
            }
            match (lines.shared.view.stride[1], self.taps.quads) {
                (1, 1) => strips!(1 1: 2 4 5 7 8),
                (1, 2) => strips!(1 2: 2 4 5 7),
                (1, 3) => strips!(1 3: 2 4 5 7),
                (PAIR, 1) => strips!(2 1: 4 7 8 14),
                (PAIR, 2) => strips!(2 2: 4 7 14),
                (PAIR, 3) => strips!(2 3: 4 7),
                _ => debug_assert!(false, "no such geometry"),
            }
        }

        /// Computes all lines in strips of `PAIRS` pairs of columns.
        ///
        /// # Safety
        /// As of [`Self::run`].
        #[inline(always)]
        unsafe fn strips<I: Element, const STRIDE: usize, const QUADS: usize, const PAIRS: usize>(
            &self,
            lines: &Lines<'_, I>,
        ) {
            const { assert!(PAIR * (PAIRS - 1) + QUAD * QUADS <= MOST_COLUMNS && PAIRS <= MOST_PAIRS, "a tile has room") };
            let (tile, columns) = (PAIRS * PAIR / STRIDE, PAIR * (PAIRS - 1) + QUAD * QUADS);
            let (view, part) = (&lines.shared.view, &lines.part);
            let (height, width) = (view.input[0], view.input[1]);
            let mut kept = Kept(MaybeUninit::uninit());
            let kept = kept.0.as_mut_ptr().cast::<[[u8; BLOCK]; MOST_COLUMNS]>();
            for x in part.columns.clone().step_by(tile) {
                let count = tile.min(part.columns.end - x);
                // Columns before the first one wrap around, and are then beyond the width.
                let first = (x * STRIDE).wrapping_sub(view.pad[1]);
                let is_inside = first < width && columns <= width - first;
                // The line behind the last one that an output line reads.
                let end = |y: usize| {
                    let last = y * view.stride[0] + (self.taps.high - 1) * view.dilation[0] + 1;
                    last.saturating_sub(view.pad[0]).min(height)
                };
                let mut next = (part.lines.start * view.stride[0]).saturating_sub(view.pad[0]);
                for y in part.lines.clone() {
                    if !is_inside {
                        // The lines of the next output line are kept as well, so that none is read as soon as it is written.
                        while next < end((y + 1).min(part.lines.end - 1)) {
                            // SAFETY: the line lies in the input, and its place is one of those that are kept.
                            unsafe { self.keep([next, first], width, columns, kept.add(next % KEPT_LINES)) };
                            next += 1;
                        }
                    }
                    self.ask::<I, STRIDE>(lines, [y, x], [tile, columns]);
                    // SAFETY: the caller's promise.
                    let mut sums = [[unsafe { self.start(lines, y) }; PAIR]; PAIRS];
                    for line in 0..self.taps.high {
                        let Some(row) = view.at(0, y, line) else { continue };
                        let from = match is_inside {
                            true => self.codes.as_ptr().wrapping_add((row * width + first) * BLOCK),
                            false => kept.wrapping_add(row % KEPT_LINES).cast::<u8>(),
                        };
                        // SAFETY: so many columns lie in the line, or in that which is kept.
                        sums = unsafe { self.line::<STRIDE, QUADS, PAIRS>(from, line, sums) };
                    }
                    // SAFETY: the positions lie in the line, and the machine has the instructions.
                    unsafe { self.finish::<I, STRIDE, PAIRS>(lines, [y, x], &sums, count) };
                }
            }
        }

        /// Asks for what a tile some lines further down reads and writes: tiles follow each other down the plane, so that what
        /// one reads lies far from what the next one does.
        #[inline(always)]
        fn ask<I: Element, const STRIDE: usize>(
            &self,
            lines: &Lines<'_, I>,
            [y, x]: [usize; 2],
            [tile, columns]: [usize; 2],
        ) {
            let (view, part) = (&lines.shared.view, &lines.part);
            // Behind the last line of a strip come the first ones of the next; behind the last strip the next plane's first one.
            let (mut y, mut x) = (y + LINES_AHEAD, x);
            if y >= part.lines.end {
                (y, x) = match x + tile < part.columns.end {
                    true => (y - part.lines.len().min(LINES_AHEAD), x + tile),
                    false => (y, part.columns.start),
                };
            }
            let last = (y * view.stride[0] + (self.taps.high - 1) * view.dilation[0]).wrapping_sub(view.pad[0]);
            for line in 0..view.stride[0] {
                let place = last.wrapping_sub(line).wrapping_mul(view.input[1]).wrapping_add(x * STRIDE);
                let from = self.codes.as_ptr().wrapping_add(place.wrapping_sub(view.pad[1]).wrapping_mul(BLOCK));
                prefetch_span(from, columns * BLOCK);
            }
            let place = ((y - part.first) * view.output[1] + x) * BLOCK;
            match &lines.stored {
                Stored::Values(values) => prefetch_span(values.wrapping_add(place), tile * BLOCK),
                Stored::Codes(codes, _) | Stored::Direct(codes, _) | Stored::Gated(codes, _) => {
                    prefetch_span(codes.wrapping_add(place), tile * BLOCK);
                }
            }
        }

        /// Stores what the sums of positions become, of which there are `count`.
        ///
        /// # Safety
        /// The positions lie in the line, and as of [`Self::run`].
        #[inline(always)]
        unsafe fn finish<I: Element, const STRIDE: usize, const PAIRS: usize>(
            &self,
            lines: &Lines<'_, I>,
            [y, x]: [usize; 2],
            sums: &[[__m512i; PAIR]; PAIRS],
            count: usize,
        ) {
            // Sums that a loop of unknown length reads would lie in memory from the beginning.
            let mut values = Values(MaybeUninit::uninit());
            let values = values.0.as_mut_ptr().cast::<[f32; BLOCK]>();
            // SAFETY: there is room for so many positions, and the rest is the caller's promise.
            unsafe {
                let s = Avx512::assume();
                for (pair, sums) in sums.iter().enumerate() {
                    for position in 0..PAIR / STRIDE {
                        s.store(values.add(pair * (PAIR / STRIDE) + position).cast(), s.from_i(sums[position]));
                    }
                }
                match &lines.stored {
                    Stored::Direct(codes, direct) => {
                        let place = ((y - lines.part.first) * lines.shared.view.output[1] + x) * BLOCK;
                        let (codes, direct) = (codes.wrapping_add(place), direct.at(s, 0));
                        for at in 0..count {
                            s.store_u8(codes.wrapping_add(at * BLOCK), direct.codes(s, s.load(values.add(at).cast())));
                        }
                    }
                    Stored::Gated(codes, gated) => {
                        let place = ((y - lines.part.first) * lines.shared.view.output[1] + x) * BLOCK;
                        let (codes, gated) = (codes.wrapping_add(place), gated.at(s, 0));
                        for at in 0..count {
                            s.store_u8(codes.wrapping_add(at * BLOCK), gated.codes(s, s.load(values.add(at).cast())));
                        }
                    }
                    Stored::Values(target) if lines.part.residual.is_null() && lines.shared.slopes.is_none() => {
                        let shared = lines.shared;
                        let place = ((y - lines.part.first) * shared.view.output[1] + x) * BLOCK;
                        let (scale, bias) = (s.load(shared.scale.as_ptr()), s.load(shared.bias.as_ptr()));
                        let (low, high) = (s.splat(shared.limits.0), s.splat(shared.limits.1));
                        for at in 0..count {
                            let value = s.fma(s.load(values.add(at).cast()), scale, bias);
                            s.store(target.wrapping_add(place + at * BLOCK), s.min(high, s.max(low, value)));
                        }
                    }
                    _ => {
                        for at in 0..count {
                            lines.finish(s, 0, [y, x + at], BLOCK, [s.load(values.add(at).cast())], 1);
                        }
                    }
                }
            }
        }

        /// Keeps columns of a line of the input; those beyond it have the code of zero.
        ///
        /// # Safety
        /// The line lies in the input.
        #[inline(always)]
        unsafe fn keep(
            &self,
            [line, first]: [usize; 2],
            width: usize,
            columns: usize,
            target: *mut [[u8; BLOCK]; MOST_COLUMNS],
        ) {
            let (from, target) = (self.codes.as_ptr().cast::<[u8; BLOCK]>(), target.cast::<[u8; BLOCK]>());
            // Columns that lie before the first one, and those up to the last one.
            let before = if first < width { 0 } else { columns.min(first.wrapping_neg()) };
            let end = columns.min(width.wrapping_sub(first)).max(before);
            // SAFETY: a column within the width lies in the line, and there is room for so many columns.
            unsafe {
                for column in 0..before {
                    target.add(column).write(self.zero);
                }
                for column in before..end {
                    target.add(column).write(from.add(line * width + first.wrapping_add(column)).read());
                }
                for column in end..columns {
                    target.add(column).write(self.zero);
                }
            }
        }

        /// What the sums of an output line begin with: what the codes of zero add to them is taken away.
        ///
        /// # Safety
        /// As of [`Self::run`].
        #[inline(always)]
        unsafe fn start<I: Element>(&self, lines: &Lines<'_, I>, y: usize) -> __m512i {
            // SAFETY: the arrays have sixteen elements, and the machine has the instructions.
            unsafe {
                let mut start = _mm512_setzero_si512();
                if self.zero == [0; BLOCK] {
                    return start;
                }
                let zero = _mm512_cvtepu8_epi32(_mm_loadu_si128(self.zero.as_ptr().cast()));
                let sums = &self.taps.sums[self.block * self.taps.high..][..self.taps.high];
                for (line, sum) in sums.iter().enumerate() {
                    if lines.shared.view.at(0, y, line).is_some() {
                        let sum = _mm512_loadu_si512(sum.as_ptr().cast());
                        start = _mm512_sub_epi32(start, _mm512_mullo_epi32(zero, sum));
                    }
                }
                start
            }
        }

        /// Adds the products of one line of the kernel.
        ///
        /// # Safety
        /// All columns that the tile reads lie at the address, and as of [`Self::run`].
        #[inline(always)]
        unsafe fn line<const STRIDE: usize, const QUADS: usize, const PAIRS: usize>(
            &self,
            from: *const u8,
            line: usize,
            mut sums: [[__m512i; PAIR]; PAIRS],
        ) -> [[__m512i; PAIR]; PAIRS] {
            let line_bytes = PAIR * QUADS * BLOCK * QUAD;
            let place = (self.block * self.taps.high + line) * line_bytes;
            let weights = self.taps.values[place..][..line_bytes].as_ptr();
            // SAFETY: there are so many weights and columns, and the machine has the instructions.
            unsafe {
                let order = _mm512_loadu_si512(BY_CHANNEL.as_ptr().cast());
                let mut taps = [[_mm512_setzero_si512(); QUADS]; PAIR];
                for position in 0..PAIR / STRIDE {
                    for quad in 0..QUADS {
                        let at = (position * QUADS + quad) * BLOCK * QUAD;
                        taps[position][quad] = _mm512_loadu_si512(weights.add(at).cast());
                    }
                }
                for column in 0..PAIRS + 2 * (QUADS - 1) {
                    let codes = _mm512_loadu_si512(from.add(column * PAIR * BLOCK).cast());
                    let codes = _mm512_permutexvar_epi8(order, codes);
                    for quad in 0..QUADS {
                        // Each quad is two pairs further on than the one before.
                        if column < 2 * quad || column - 2 * quad >= PAIRS {
                            continue;
                        }
                        let pair = &mut sums[column - 2 * quad];
                        for position in 0..PAIR / STRIDE {
                            pair[position] = _mm512_dpbusd_epi32(pair[position], codes, taps[position][quad]);
                        }
                    }
                }
            }
            sums
        }
    }
}
