//! The register-blocked micro-kernel.

use crate::isa::{Isa, Tier};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::{prefetch_far, prefetch_tile};

/// Columns of one packed panel of the right operand: two vectors.
#[must_use]
pub const fn panel_width(isa: Isa) -> usize {
    2 * isa.lanes()
}

/// The most rows that a tile of any tier has.
pub(crate) const MOST_TILE_ROWS: usize = 14;

/// Rows of A that one pointer reaches.
const LINE_ROWS: usize = 3;

/// Steps that pointers to rows of A stay where they are.
const STEPS: usize = 4;

/// The most rows a tile has.
pub(crate) const fn most_tile_rows(isa: Isa) -> usize {
    match isa.tier() {
        Tier::Portable => 4,
        Tier::Neon => 12,
        Tier::Avx2 => 6,
        Tier::Avx512 => MOST_TILE_ROWS,
    }
}

/// Rows of the tiles that `m` rows are cut into: as few tiles as registers allow, all of them about equally high.
pub(crate) const fn tile_rows(isa: Isa, m: usize) -> usize {
    if m == 0 {
        return 1;
    }
    m.div_ceil(m.div_ceil(most_tile_rows(isa)))
}

/// One call of the micro-kernel: tiles of `rows` (chosen by the caller) by `columns`, one below the other.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    /// Steps along the shared axis.
    pub(crate) k: usize,
    /// Values of A: the first row's first value.
    pub(crate) a: *const f32,
    /// Elements from one row of A to the next; 1 in packed form.
    pub(crate) a_row: usize,
    /// Elements from one step of A to the next; 1 in place.
    pub(crate) a_step: usize,
    /// How many tiles there are.
    pub(crate) tiles: usize,
    /// Elements from A of one tile to A of the next.
    pub(crate) a_tile: usize,
    /// A panel of B: `panel_width` values for each step, also beyond `columns`.
    pub(crate) b: *const f32,
    /// Elements from one step of B to the next; `panel_width` in packed form.
    pub(crate) b_step: usize,
    /// Elements from one panel of B to the next.
    pub(crate) b_panel: usize,
    /// The tile of C.
    pub(crate) c: *mut f32,
    /// Elements from one row of C to the next.
    pub(crate) c_row: usize,
    /// Columns to store, at least one: those of as many panels as they fill.
    pub(crate) columns: usize,
    /// Whether to start from what C holds instead of zero.
    pub(crate) accumulate: bool,
    /// A bias for each row, or null.
    pub(crate) row_bias: *const f32,
    /// A bias for each column, or null.
    pub(crate) column_bias: *const f32,
    /// Values added at the end, or null.
    pub(crate) residual: *const f32,
    /// Elements from one row of the residual to the next.
    pub(crate) residual_row: usize,
    /// The limits of what is stored.
    pub(crate) limits: (f32, f32),
    /// What is wanted after the tile: each step asks for a line of it. It need not be valid.
    pub(crate) next: *const f32,
    /// Elements from what one step asks for to what the next one does.
    pub(crate) next_step: usize,
    /// Elements from what one tile asks for to what the next one does.
    pub(crate) next_tile: usize,
    /// The tiles that ask; those behind them have nothing more to ask for.
    pub(crate) asking: usize,
}

/// A tile with its number of rows and vectors known to the compiler, whether A is packed, and whether B is not: a distance between
/// its steps that is no constant takes a register and instructions.
struct Fixed<const ROWS: usize, const VECTORS: usize, const PACKED: bool, const STRIDED: bool>(Tile);

/// Computes tiles of `rows` rows.
///
/// # Safety
/// All pointers cover what the fields say, and `rows` is at most [`most_tile_rows`].
pub(crate) unsafe fn run(isa: Isa, rows: usize, tile: Tile) {
    let (width, rest) = (panel_width(isa), tile.columns % panel_width(isa));
    if tile.columns > width && (1..=isa.lanes()).contains(&rest) {
        // The last panel is half empty, and so are tiles of it.
        let whole = tile.columns - rest;
        let last = Tile {
            b: tile.b.wrapping_add(whole / width * tile.b_panel),
            c: tile.c.wrapping_add(whole),
            columns: rest,
            column_bias: moved(tile.column_bias, whole),
            residual: moved(tile.residual, whole),
            ..tile
        };
        // SAFETY: the caller's promise; the two parts share no columns.
        unsafe {
            run(isa, rows, Tile { columns: whole, ..tile });
            run(isa, rows, last);
        }
        return;
    }
    let packed = tile.a_row == 1 && tile.a_step != 1;
    let narrow = tile.columns <= isa.lanes();
    let strided = tile.b_step != width;
    macro_rules! call {
        ($($rows:literal)*) => {
            match (rows, narrow, packed, strided) {
                $(($rows, true, true, false) => dispatch(isa, Fixed::<$rows, 1, true, false>(tile)),
                ($rows, true, false, false) => dispatch(isa, Fixed::<$rows, 1, false, false>(tile)),
                ($rows, false, true, false) => dispatch(isa, Fixed::<$rows, 2, true, false>(tile)),
                ($rows, false, false, false) => dispatch(isa, Fixed::<$rows, 2, false, false>(tile)),
                ($rows, _, true, true) => dispatch(isa, Fixed::<$rows, 2, true, true>(tile)),
                ($rows, _, false, true) => dispatch(isa, Fixed::<$rows, 2, false, true>(tile)),)*
                _ => debug_assert!(false, "no tile of {rows} rows"),
            }
        };
    }
    match isa.tier() {
        #[cfg(target_arch = "x86_64")]
        Tier::Avx512 => call!(1 2 3 4 5 6 7 8 9 10 11 12 13 14),
        #[cfg(target_arch = "x86_64")]
        Tier::Avx2 => call!(1 2 3 4 5 6),
        #[cfg(target_arch = "aarch64")]
        Tier::Neon => call!(1 2 3 4 5 6 7 8 9 10 11 12),
        _ => call!(1 2 3 4),
    }
}

impl<const ROWS: usize, const VECTORS: usize, const PACKED: bool, const STRIDED: bool> Kernel
    for Fixed<ROWS, VECTORS, PACKED, STRIDED>
{
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if ROWS > S::TILE_ROWS {
            return;
        }
        let width = 2 * S::LANES;
        let mut row = self.0;
        for index in 0..row.tiles {
            if index == row.asking {
                (row.next, row.next_step) = (row.a, 0);
            }
            let (mut tile, mut left) = (row, row.columns);
            while left > 0 {
                tile.columns = left.min(width);
                // SAFETY: `run` was promised that every pointer covers what the fields say.
                unsafe {
                    // A vector may begin in the middle of a line, so that the last one ends in another.
                    let line = |vector: usize| (vector * S::LANES).min(tile.columns - 1);
                    prefetch_tile::<_, ROWS>(tile.c, tile.c_row, VECTORS + 1, line);
                    prefetch_tile::<_, ROWS>(tile.residual, tile.residual_row, VECTORS + 1, line);
                    let sums = start::<S, ROWS, VECTORS>(s, &tile);
                    let sums = multiply::<S, ROWS, VECTORS, PACKED, STRIDED>(s, &tile, sums);
                    finish::<S, ROWS, VECTORS>(s, &tile, sums);
                }
                left -= tile.columns;
                tile.b = tile.b.wrapping_add(tile.b_panel);
                tile.c = tile.c.wrapping_add(width);
                tile.column_bias = moved(tile.column_bias, width);
                tile.residual = moved(tile.residual, width);
            }
            row.a = row.a.wrapping_add(row.a_tile);
            row.c = row.c.wrapping_add(ROWS * row.c_row);
            row.row_bias = moved(row.row_bias, ROWS);
            row.residual = moved(row.residual, ROWS * row.residual_row);
            row.next = row.next.wrapping_add(row.next_tile);
        }
    }
}

/// A pointer moved on, unless there is none.
#[inline(always)]
pub(super) fn moved(pointer: *const f32, by: usize) -> *const f32 {
    if pointer.is_null() { pointer } else { pointer.wrapping_add(by) }
}

/// The sums before the first step.
///
/// # Safety
/// As of [`run`].
#[inline(always)]
unsafe fn start<S: Simd, const ROWS: usize, const VECTORS: usize>(s: S, tile: &Tile) -> [[S::F; VECTORS]; ROWS] {
    let mut sums = [[s.splat(0.0); VECTORS]; ROWS];
    if !tile.accumulate {
        return sums;
    }
    for vector in 0..VECTORS {
        let offset = vector * S::LANES;
        let count = tile.columns.saturating_sub(offset);
        for row in 0..ROWS {
            // SAFETY: the tile of C has the rows and columns stored.
            sums[row][vector] = unsafe { s.load_partial(tile.c.add(row * tile.c_row + offset), count) };
        }
    }
    sums
}

/// Adds all products.
///
/// # Safety
/// As of [`run`].
#[inline(always)]
unsafe fn multiply<S: Simd, const ROWS: usize, const VECTORS: usize, const PACKED: bool, const STRIDED: bool>(
    s: S,
    tile: &Tile,
    mut sums: [[S::F; VECTORS]; ROWS],
) -> [[S::F; VECTORS]; ROWS] {
    let b_step = if STRIDED { tile.b_step } else { 2 * S::LANES };
    let (mut b, mut next) = (tile.b, tile.next);
    if PACKED {
        let mut a = tile.a;
        for _ in 0..tile.k {
            prefetch_far(next);
            next = next.wrapping_add(tile.next_step);
            // SAFETY: the panel has `width` values and packed A `a_step >= ROWS` values for each step.
            unsafe {
                let mut right = [s.splat(0.0); VECTORS];
                for vector in 0..VECTORS {
                    right[vector] = s.load(b.add(vector * S::LANES));
                }
                for row in 0..ROWS {
                    let left = s.splat(*a.add(row));
                    for vector in 0..VECTORS {
                        sums[row][vector] = s.fma(left, right[vector], sums[row][vector]);
                    }
                }
                a = a.add(tile.a_step);
                b = b.wrapping_add(b_step);
            }
        }
        return sums;
    }
    // Every third row has a pointer of its own; the two after it are reached by scaled strides, so that all addresses stay in
    // registers and cost no instruction. The compiler would compute each one anew if it knew how they hang together.
    let line = |index: usize| opaque(tile.a.wrapping_add(LINE_ROWS * index * tile.a_row));
    let (mut line0, mut line1, mut line2, mut line3, mut line4) = (line(0), line(1), line(2), line(3), line(4));
    macro_rules! rows {
        ($from:expr, $to:expr, $right:ident, $offset:expr) => {
            for row in $from..$to {
                let line = match row / LINE_ROWS {
                    0 => line0,
                    1 => line1,
                    2 => line2,
                    3 => line3,
                    _ => line4,
                };
                let left = s.splat(*line.wrapping_add(row % LINE_ROWS * tile.a_row + $offset));
                for vector in 0..VECTORS {
                    sums[row][vector] = s.fma(left, $right[vector], sums[row][vector]);
                }
            }
        };
    }
    macro_rules! step {
        ($offset:expr) => {
            prefetch_far(next);
            next = next.wrapping_add(tile.next_step);
            // SAFETY: the panel has `width` values and each row of A one value for each step.
            unsafe {
                let mut right = [s.splat(0.0); VECTORS];
                let line = if STRIDED { b } else { b.add($offset * b_step) };
                for vector in 0..VECTORS {
                    right[vector] = s.load(line.add(vector * S::LANES));
                }
                if STRIDED {
                    b = b.wrapping_add(b_step);
                }
                // In two parts, each of which the compiler unrolls.
                rows!(0, ROWS.min(MOST_TILE_ROWS / 2), right, $offset);
                rows!(ROWS.min(MOST_TILE_ROWS / 2), ROWS, right, $offset);
            }
        };
    }
    for _ in 0..tile.k / STEPS {
        step!(0);
        step!(1);
        step!(2);
        step!(3);
        if !STRIDED {
            b = b.wrapping_add(STEPS * b_step);
        }
        (line0, line1) = (opaque(line0.wrapping_add(STEPS)), opaque(line1.wrapping_add(STEPS)));
        (line2, line3) = (opaque(line2.wrapping_add(STEPS)), opaque(line3.wrapping_add(STEPS)));
        line4 = opaque(line4.wrapping_add(STEPS));
    }
    for offset in 0..tile.k % STEPS {
        step!(offset);
    }
    sums
}

/// The same address, of which the compiler knows no more than that it is in a register.
#[inline(always)]
fn opaque(address: *const f32) -> *const f32 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    {
        let mut address = address;
        // SAFETY: there is no instruction, so that nothing is read and the address stays what it is.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) address, options(pure, readonly, nostack, preserves_flags)) };
        address
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    address
}

/// Adds the bias, which may be far larger than the products and therefore comes last, and the residual, clamps and
/// stores.
///
/// # Safety
/// As of [`run`].
#[inline(always)]
unsafe fn finish<S: Simd, const ROWS: usize, const VECTORS: usize>(s: S, tile: &Tile, sums: [[S::F; VECTORS]; ROWS]) {
    let (low, high) = (s.splat(tile.limits.0), s.splat(tile.limits.1));
    for vector in 0..VECTORS {
        let offset = vector * S::LANES;
        let count = tile.columns.saturating_sub(offset);
        for row in 0..ROWS {
            let mut sum = sums[row][vector];
            // SAFETY: the bias, the residual and the tile of C have the rows and columns stored.
            unsafe {
                if !tile.row_bias.is_null() {
                    sum = s.add(sum, s.splat(*tile.row_bias.add(row)));
                } else if !tile.column_bias.is_null() {
                    sum = s.add(sum, s.load_partial(tile.column_bias.add(offset), count));
                }
                if !tile.residual.is_null() {
                    sum = s.add(sum, s.load_partial(tile.residual.add(row * tile.residual_row + offset), count));
                }
                sum = s.min(high, s.max(low, sum));
                s.store_first(tile.c.add(row * tile.c_row + offset), sum, count);
            }
        }
    }
}
