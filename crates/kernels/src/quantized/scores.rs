//! Scores of attention whose queries and keys are codes of one byte: sums of products of bytes.

use super::dots::{self, DotKernel, Dots, lowered_by};
use super::{BLOCK, QUAD};
use crate::isa::{Isa, Tier};
use crate::simd::Simd;

/// What is taken from the code of a key so that it becomes a signed byte.
const MIDDLE: i32 = 128;

/// What makes four codes signed bytes.
const SIGNS: u32 = 0x8080_8080;

/// Queries and keys as codes of one byte, and the scores that they give.
///
/// The code of a key is taken for a signed byte, which lacks `MIDDLE - zero` of what the code stands for; the sum of what
/// a query stands for makes up for it. What the code of zero of the queries adds is what the sums of a key begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CodedScores {
    /// Codes of a row, a multiple of four.
    depth: usize,
    /// The codes that stand for zero, of queries and keys.
    zeros: [i32; 2],
    /// What the tier takes from the codes of queries.
    lowered: i32,
}

/// Some rows of scores, and where they are written.
#[derive(Clone, Copy)]
pub(crate) struct ScoreRows {
    /// The codes of the first query.
    pub(crate) queries: *const u8,
    /// Bytes from one query to the next.
    pub(crate) query_row: usize,
    /// Packed keys, from the first one on.
    pub(crate) keys: *const f32,
    /// How many keys there are.
    pub(crate) count: usize,
    /// The first score.
    pub(crate) to: *mut f32,
    /// Elements from one row of scores to the next.
    pub(crate) row: usize,
}

impl CodedScores {
    /// The most codes of a row: i32 surely holds their sum of products.
    pub(crate) const MOST_DEPTH: usize = i32::MAX as usize / (255 * 255) / QUAD * QUAD;

    /// Scores of rows of so many codes.
    pub(crate) fn new(isa: Isa, depth: usize, zeros: [u8; 2]) -> Self {
        Self { depth, zeros: zeros.map(i32::from), lowered: lowered_by(isa) }
    }

    /// Whether rows of so many codes are computed.
    pub(crate) fn takes(depth: usize) -> bool {
        depth.is_multiple_of(QUAD) && depth <= Self::MOST_DEPTH
    }

    /// The elements of f32 that a block of packed keys fills: what its sums begin with, and the codes.
    const fn block_len(depth: usize) -> usize {
        BLOCK * (1 + depth / QUAD)
    }

    /// The elements of f32 that so many packed keys fill.
    pub(crate) const fn packed_len(keys: usize, depth: usize) -> usize {
        keys.div_ceil(BLOCK).saturating_mul(Self::block_len(depth))
    }

    /// How many elements lie between the first packed key and the one with an index that is a multiple of [`BLOCK`].
    pub(crate) const fn place(&self, key: usize) -> usize {
        key / BLOCK * Self::block_len(self.depth)
    }

    /// Packs keys: for each block of sixteen what the sums begin with, and four codes of each key after the other.
    ///
    /// # Safety
    /// There are so many rows of codes, so many bytes apart, and `target` has room for [`CodedScores::packed_len`] elements.
    pub(crate) unsafe fn pack(&self, keys: *const u8, row: usize, count: usize, target: *mut f32) {
        // What a query stands for is its code, as the tier takes it, less this.
        let zero = self.zeros[0] - self.lowered;
        for first in (0..count).step_by(BLOCK) {
            let block = target.wrapping_add(self.place(first));
            let (starts, codes) = (block.cast::<i32>(), block.wrapping_add(BLOCK).cast::<u32>());
            if count - first < BLOCK {
                // SAFETY: the block lies in the target.
                unsafe { block.write_bytes(0, Self::block_len(self.depth)) };
            }
            for lane in 0..BLOCK.min(count - first) {
                let key = keys.wrapping_add((first + lane) * row);
                // SAFETY: the key is readable.
                let sum = unsafe { sum_of_codes(key, self.depth) } - MIDDLE * self.depth as i32;
                for quad in 0..self.depth / QUAD {
                    // SAFETY: the codes of the key are readable, and the block has a place for each four of them.
                    unsafe {
                        let codes_of_key = key.add(quad * QUAD).cast::<u32>().read_unaligned();
                        codes.add(quad * BLOCK + lane).write(codes_of_key ^ SIGNS);
                    }
                }
                // SAFETY: the block has a place for each of its keys.
                unsafe { starts.add(lane).write(-zero * sum) };
            }
        }
    }

    /// Writes the scores of some queries, up to the next multiple of [`BLOCK`] keys.
    ///
    /// # Safety
    /// The queries and the packed keys are readable, and there is room for the scores.
    pub(crate) unsafe fn write(&self, isa: Isa, queries: usize, rows: ScoreRows) {
        let (most, together) = tile_size(isa);
        for first in (0..queries).step_by(most) {
            let count = most.min(queries - first);
            let mut tile = Tile {
                depth: self.depth,
                rows: ScoreRows {
                    queries: rows.queries.wrapping_add(first * rows.query_row),
                    to: rows.to.wrapping_add(first * rows.row),
                    ..rows
                },
                starts: [0; MOST_QUERIES],
            };
            let lacking = MIDDLE - self.zeros[1];
            if lacking != 0 {
                for (index, start) in tile.starts.iter_mut().enumerate().take(count) {
                    // SAFETY: the query is readable.
                    let sum = unsafe { sum_of_codes(tile.rows.queries.add(index * rows.query_row), self.depth) };
                    *start = lacking * (sum - self.depth as i32 * self.zeros[0]);
                }
            }
            for key in (0..rows.count).step_by(together * BLOCK) {
                let blocks = together.min((rows.count - key).div_ceil(BLOCK));
                tile.rows.keys = rows.keys.wrapping_add(self.place(key));
                tile.rows.to = rows.to.wrapping_add(first * rows.row + key);
                // SAFETY: the queries and the blocks of keys are those of the caller.
                unsafe { dispatch_tile(isa, count, blocks, &tile) };
            }
        }
    }
}

/// # Safety
/// There are so many codes.
unsafe fn sum_of_codes(codes: *const u8, count: usize) -> i32 {
    // SAFETY: the caller's promise.
    let codes = unsafe { std::slice::from_raw_parts(codes, count) };
    codes.iter().map(|code| i32::from(*code)).sum()
}

/// The most queries of a tile on any tier.
const MOST_QUERIES: usize = 7;

/// Queries of a tile, and the blocks of keys that it computes together.
fn tile_size(isa: Isa) -> (usize, usize) {
    match isa.tier() {
        Tier::Avx512 if isa.has_vnni() => (MOST_QUERIES, 2),
        Tier::Avx2 if isa.has_vnni() => (6, 1),
        _ => (2, 1),
    }
}

/// Runs a tile of so many queries and blocks of keys.
///
/// # Safety
/// The tile's queries and keys are readable, and there is room for its scores.
unsafe fn dispatch_tile(isa: Isa, queries: usize, blocks: usize, tile: &Tile) {
    macro_rules! call {
        ($run:path, $vectors:literal: $($queries:literal)*) => {
            match queries {
                // SAFETY: the caller's promise, and the tier's instructions were checked.
                $($queries => unsafe { $run(Fixed::<$queries, $vectors>(tile)) },)*
                _ => debug_assert!(false, "no tile of {queries} queries"),
            }
        };
    }
    match (isa.tier(), blocks) {
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, 2) if isa.has_vnni() => call!(dots::x86::run_vnni, 2: 1 2 3 4 5 6 7),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512, _) if isa.has_vnni() => call!(dots::x86::run_vnni, 1: 1 2 3 4 5 6 7),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx2, _) if isa.has_vnni() => call!(dots::x86::run_avx_vnni, 2: 1 2 3 4 5 6),
        #[cfg(target_arch = "x86_64")]
        (Tier::Avx512 | Tier::Avx2, _) => call!(dots::x86::run_avx2, 2: 1 2),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) if dots::has_mixed_dot_products() => call!(dots::neon::run_mixed, 4: 1 2),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) if dots::has_dot_products() => call!(dots::neon::run_signed, 4: 1 2),
        #[cfg(target_arch = "aarch64")]
        (Tier::Neon, _) => call!(dots::neon::run_widened, 4: 1 2),
        _ => call!(dots::portable::run, 4: 1 2),
    }
}

/// Some queries and one or two blocks of keys.
struct Tile {
    depth: usize,
    rows: ScoreRows,
    /// What the sums of each query begin with besides those of the keys.
    starts: [i32; MOST_QUERIES],
}

/// A tile with its number of queries and of vectors known to the compiler.
struct Fixed<'t, const QUERIES: usize, const VECTORS: usize>(&'t Tile);

impl<const QUERIES: usize, const VECTORS: usize> DotKernel for Fixed<'_, QUERIES, VECTORS> {
    #[inline(always)]
    unsafe fn run<D: Dots>(self, d: D) {
        let (tile, s) = (self.0, d.simd());
        let ScoreRows { queries, query_row, keys, to, row, .. } = tile.rows;
        let lanes = <D::S as Simd>::LANES;
        let per_block = BLOCK / lanes;
        let block = CodedScores::block_len(tile.depth);
        let place = |vector: usize| vector / per_block * block + vector % per_block * lanes;
        let mut sums = [[s.splat_i(0); VECTORS]; QUERIES];
        // SAFETY: the caller's promise: the places lie in the blocks, and the scores in their rows.
        unsafe {
            for vector in 0..VECTORS {
                let start = s.bits(s.load(keys.add(place(vector))));
                for query in 0..QUERIES {
                    sums[query][vector] = s.add_i(start, s.splat_i(tile.starts[query]));
                }
            }
            let mut codes = keys.add(BLOCK).cast::<i8>();
            for step in (0..tile.depth).step_by(QUAD) {
                let mut right = [d.right(codes); VECTORS];
                for vector in 1..VECTORS {
                    right[vector] = d.right(codes.add(place(vector) * size_of::<f32>()));
                }
                for query in 0..QUERIES {
                    let left = d.left(queries.add(query * query_row + step));
                    for vector in 0..VECTORS {
                        sums[query][vector] = d.dot(sums[query][vector], left, right[vector]);
                    }
                }
                codes = codes.add(BLOCK * QUAD);
            }
            for query in 0..QUERIES {
                for vector in 0..VECTORS {
                    s.store(to.add(query * row + vector * lanes), d.value(sums[query][vector]));
                }
            }
        }
    }
}
