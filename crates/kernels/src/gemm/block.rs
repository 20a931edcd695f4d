//! The loops around the micro-kernel.

use super::micro::{self, Tile, panel_width, tile_rows};
use super::{bias_pointers, packed};
use crate::epilogue::Epilogue;
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch};
use crate::tile::{SIDE, transpose};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Steps along the shared axis between two visits of the result. A panel is read in order, which the second cache can
/// follow, and so many steps leave room there for the rows that are multiplied with it.
const STEP: usize = 1024;

/// Bytes of an operand up to which short products read its panels where they lie even if those do not begin at lines of the
/// cache: such a panel has three lines for each step, and a tile asks for one of them ahead.
const STRADDLED_BYTES: usize = if cfg!(test) { 1 << 18 } else { 12 << 20 };

/// Lines that a set of the first cache of an x86 processor holds at least.
const WAYS: usize = 8;

/// From more tiles one below the other on, packing a panel takes less than reading it from lines that share sets of the first cache
/// or where vectors lie in two of them.
const MOST_TILES: usize = 16;

/// Panels of more steps do not stay in the first cache in packed form either.
const NEAR_STEPS: usize = 256;

/// Elements of a line of the cache.
const LINE: usize = 16;

/// Columns of the widest panel.
const WIDEST: usize = 32;

/// The right operand, handed out panel by panel.
pub(crate) trait PanelSource: Sync {
    /// The panel that begins at `column`, for the steps `first..first + steps`: `panel_width` values a step, zero (or
    /// anything finite) beyond the operand's last column. What a vector without a column holds is not read.
    ///
    /// # Safety
    /// `column` is a multiple of the panel width inside the operand, the steps lie in it and number at most [`STEP`],
    /// and the buffer has room for [`STEP`] lines and one more.
    unsafe fn panel(&self, isa: Isa, first: usize, steps: usize, column: usize, buffer: *mut f32) -> *const f32;

    /// Where the panel that begins at `column` and the step `first` lies in the operand as it is stored, if there is one, and
    /// the elements of four bytes from one of its steps to the next.
    fn place(&self, _first: usize, _column: usize) -> Option<(*const f32, usize)> {
        None
    }

    /// Where the panel that begins at `column` and the step `first`, of `k`, is best read as it lies by so many tiles one below
    /// the other, if it is: its place and the elements from one of its steps to the next.
    fn in_place(&self, _isa: Isa, _steps: [usize; 2], _column: usize, _tiles: usize) -> Option<(*const f32, usize)> {
        None
    }
}

/// The left operand: in place with contiguous columns, or in packed tiles.
#[derive(Clone, Copy)]
pub(crate) struct Left<'a> {
    values: &'a [f32],
    rows: usize,
    tile: usize,
    row_stride: Option<usize>,
}

impl<'a> Left<'a> {
    /// Whether the micro-kernel can read the operand where it lies: columns must be contiguous, and the rows of a
    /// tile must not be more than a set of the first cache holds and all fall into the same one.
    pub(crate) fn reads_in_place(isa: Isa, m: usize, k: usize, row_stride: usize, column_stride: usize) -> bool {
        let contiguous = column_stride == 1 || k <= 1;
        contiguous && (!row_stride.is_multiple_of(1024) || tile_rows(isa, m) < WAYS)
    }

    /// The operand in place or, where that is slow, packed into the scratch.
    pub(crate) fn prepare(
        isa: Isa,
        values: &'a [f32],
        m: usize,
        k: usize,
        row_stride: usize,
        column_stride: usize,
        scratch: &'a mut [f32],
    ) -> Self {
        if Self::reads_in_place(isa, m, k, row_stride, column_stride) {
            return Self::in_place(isa, values, m, row_stride);
        }
        packed::pack_left(isa, values, m, k, row_stride, column_stride, scratch);
        Self::packed(isa, scratch, m)
    }

    /// The operand where it lies.
    pub(crate) fn in_place(isa: Isa, values: &'a [f32], m: usize, row_stride: usize) -> Self {
        Self { values, rows: m, tile: tile_rows(isa, m), row_stride: Some(row_stride) }
    }

    /// Where a row begins, the elements from it to the next and from one of its columns to the next, and how many rows, itself
    /// included, lie so; `k` is the number of columns.
    pub(crate) fn row(&self, k: usize, row: usize) -> (*const f32, [usize; 2], usize) {
        let (offset, strides, left) = match self.row_stride {
            Some(stride) => (row * stride, [stride, 1], self.rows - row),
            None => {
                let (tile, within) = (row - row % self.tile, row % self.tile);
                (tile * k + within, [1, self.tile], self.tile.min(self.rows - tile) - within)
            }
        };
        (self.values.as_ptr().wrapping_add(offset), strides, left)
    }

    /// The operand in packed form.
    pub(crate) fn packed(isa: Isa, values: &'a [f32], m: usize) -> Self {
        Self { values, rows: m, tile: tile_rows(isa, m), row_stride: None }
    }
}

/// A right operand with arbitrary strides, packed while it is used.
pub(crate) struct Unpacked<'a> {
    /// The values; element `(row, column)` lies at `row * row_stride + column * column_stride`.
    pub(crate) values: &'a [f32],
    /// The number of columns.
    pub(crate) columns: usize,
    /// Stride between rows.
    pub(crate) row_stride: usize,
    /// Stride between columns.
    pub(crate) column_stride: usize,
}

/// One panel of an [`Unpacked`] operand, to be copied into the buffer.
struct Columns<'a> {
    isa: Isa,
    operand: &'a Unpacked<'a>,
    first: usize,
    steps: usize,
    column: usize,
    columns: usize,
    buffer: *mut f32,
}

impl Kernel for Columns<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let width = 2 * S::LANES;
        let Unpacked { values, row_stride, column_stride, .. } = *self.operand;
        let start = self.first * row_stride + self.column * column_stride;
        if column_stride == 1 {
            for step in 0..self.steps {
                // SAFETY: the row's columns lie in the operand and the step's line in the buffer.
                unsafe {
                    let from = values.as_ptr().add(start + step * row_stride);
                    let to = self.buffer.add(step * width);
                    if self.columns == width {
                        s.store(to, s.load(from));
                        s.store(to.add(S::LANES), s.load(from.add(S::LANES)));
                    } else {
                        s.store(to, s.load_partial(from, self.columns));
                        let rest = self.columns.saturating_sub(S::LANES);
                        let second = from.wrapping_add(S::LANES.min(self.columns));
                        s.store(to.add(S::LANES), s.load_partial(second, rest));
                    }
                }
            }
            return;
        }
        // Beyond the last column there are zeros, in as many vectors as tiles read.
        let lanes = if self.columns <= S::LANES { S::LANES } else { width };
        // Tiles of an operand that is contiguous along its rows are transposed in registers; the last columns are those of a tile
        // that shares some with the one before it.
        let whole_steps = if row_stride == 1 && self.columns >= SIDE { self.steps - self.steps % SIDE } else { 0 };
        if whole_steps > 0 {
            let last = self.columns - SIDE;
            for column in (0..last).step_by(SIDE).chain([last]) {
                for step in (0..whole_steps).step_by(SIDE) {
                    // SAFETY: the tile lies in the operand, and its lines in the buffer.
                    unsafe {
                        let from = values.as_ptr().add(start + step + column * column_stride);
                        transpose(self.isa, from, column_stride, self.buffer.add(step * width + column), width);
                    }
                }
            }
            for step in (0..whole_steps).filter(|_| self.columns < lanes) {
                // SAFETY: less than a vector is missing in the step's line.
                unsafe {
                    let place = self.buffer.add(step * width + self.columns);
                    s.store_partial(place, s.splat(0.0), lanes - self.columns);
                }
            }
        }
        for step in whole_steps..self.steps {
            let mut line = [0.0f32; WIDEST];
            for (column, value) in line.iter_mut().enumerate().take(self.columns) {
                *value = values[start + step * row_stride + column * column_stride];
            }
            // SAFETY: the step's line lies in the buffer, and no line is wider than the array.
            unsafe {
                let place = self.buffer.add(step * width);
                s.store(place, s.load(line.as_ptr()));
                s.store(place.add(S::LANES), s.load(line.as_ptr().add(S::LANES)));
            }
        }
    }
}

impl Unpacked<'_> {
    /// Writes the panel that begins at `column`, for the steps `first..first + steps`: `panel_width` values a step, zero
    /// beyond the last column. A vector without a column may stay as it is.
    ///
    /// # Safety
    /// `column` is a multiple of the panel width inside the operand, the steps lie in it, and `target` has room for the
    /// panel.
    pub(crate) unsafe fn pack(&self, isa: Isa, first: usize, steps: usize, column: usize, target: *mut f32) {
        let columns = (self.columns - column).min(panel_width(isa));
        dispatch(isa, Columns { isa, operand: self, first, steps, column, columns, buffer: target });
    }
}

impl PanelSource for Unpacked<'_> {
    unsafe fn panel(&self, isa: Isa, first: usize, steps: usize, column: usize, buffer: *mut f32) -> *const f32 {
        // SAFETY: the caller's promise.
        unsafe { self.pack(isa, first, steps, column, buffer) };
        buffer
    }

    fn in_place(&self, isa: Isa, [first, k]: [usize; 2], column: usize, tiles: usize) -> Option<(*const f32, usize)> {
        let is_whole = self.column_stride == 1 && k > 0 && column + panel_width(isa) <= self.columns;
        let straddles = !(self.row_stride.is_multiple_of(LINE) && self.values.as_ptr().addr().is_multiple_of(4 * LINE));
        let is_small = k.saturating_mul(4 * self.row_stride) <= STRADDLED_BYTES;
        let pays = match straddles {
            true => tiles <= MOST_TILES && (tiles > 2 || is_small),
            false => tiles <= MOST_TILES || k > NEAR_STEPS,
        };
        (is_whole && pays)
            .then(|| (self.values.as_ptr().wrapping_add(first * self.row_stride + column), self.row_stride))
    }
}

/// A product whose operands are ready; `run` computes a block of it.
pub(crate) struct Block<'a, P> {
    /// The tier.
    pub(crate) isa: Isa,
    /// The shared axis.
    pub(crate) k: usize,
    /// The left operand.
    pub(crate) left: Left<'a>,
    /// The right operand.
    pub(crate) right: &'a P,
    /// The result.
    pub(crate) c: *mut f32,
    /// Elements from one row of the result to the next.
    pub(crate) c_row: usize,
    /// Whether to add to what the result holds.
    pub(crate) accumulate: bool,
    /// What happens before the last store; its residual's row stride is its own.
    pub(crate) epilogue: &'a Epilogue<'a>,
}

/// What the tiles of a panel ask for while they are computed: a line for each step.
#[derive(Clone, Copy)]
struct Asked {
    place: *const f32,
    /// Elements from one step to the next.
    step: usize,
    /// Elements from one tile to the next.
    tile: usize,
    /// The tiles that ask.
    tiles: usize,
}

impl Asked {
    /// The panel that follows in packed form, whose lines the tiles share, if there is one.
    fn packed(panel: *const f32, next: Option<(*const f32, usize)>, steps: usize, tiles: usize) -> Self {
        let (place, step) = next.map_or((panel, 0), |(place, step)| (place, step.div_ceil(tiles)));
        Self { place, step, tile: steps * step, tiles: usize::MAX }
    }

    /// The panel that follows as it lies: each tile asks for a line of every step, until there are no more.
    fn in_place(panel: *const f32, next: Option<(*const f32, usize)>) -> Self {
        let Some((place, step)) = next else { return Self { place: panel, step: 0, tile: 0, tiles: 0 } };
        Self { place, step, tile: LINE, tiles: WIDEST / LINE + 1 }
    }
}

/// A buffer for one panel, aligned to a cache line.
#[repr(align(64))]
struct Panel(MaybeUninit<[f32; (STEP + 1) * WIDEST]>);

impl<P: PanelSource> Block<'_, P> {
    /// Computes the rows and columns given; both begin at multiples of the tile height and the panel width.
    ///
    /// # Safety
    /// The operands, the epilogue and the result cover the product, and nobody else touches this block of the result.
    pub(crate) unsafe fn run(&self, rows: Range<usize>, columns: Range<usize>) {
        let width = panel_width(self.isa);
        let mut buffer = Panel(MaybeUninit::uninit());
        let buffer = buffer.0.as_mut_ptr().cast::<f32>();
        let parts = self.k.div_ceil(STEP).max(1);
        let part = self.k.div_ceil(parts);
        let tiles = rows.len().div_ceil(self.left.tile);
        let mut column = columns.start;
        while column < columns.end {
            for index in 0..parts {
                let first = index * part;
                let steps = part.min(self.k - first);
                let (following, at) = if index + 1 < parts { (first + steps, column) } else { (0, column + width) };
                // SAFETY: the panel begins inside the operand and the buffer holds the largest panel.
                unsafe {
                    let (panel, asked) = match self.right.in_place(self.isa, [first, self.k], column, tiles) {
                        Some(panel) => {
                            let next = self.right.in_place(self.isa, [following, self.k], at, tiles);
                            (panel, Asked::in_place(panel.0, next))
                        }
                        None => {
                            let panel = match steps {
                                0 => buffer,
                                _ => self.right.panel(self.isa, first, steps, column, buffer).cast_mut(),
                            };
                            let next = self.right.place(following, at);
                            ((panel.cast_const(), width), Asked::packed(panel, next, steps, tiles))
                        }
                    };
                    self.column(&rows, column, (columns.end - column).min(width), first, steps, panel, asked);
                }
            }
            column += width;
        }
        if self.epilogue.needs_pass() {
            // SAFETY: the block lies in the result and the epilogue was checked for it.
            unsafe {
                self.epilogue.pass(
                    self.isa,
                    self.c.add(rows.start * self.c_row + columns.start),
                    self.c_row,
                    rows.start,
                    columns.start,
                    rows.len(),
                    columns.len(),
                );
            }
        }
    }

    /// Multiplies all tiles of the rows with one panel. Together they call the next one: constants of a whole model lie in
    /// no near cache.
    ///
    /// # Safety
    /// As of [`Block::run`], and the panel, of which the elements from one step to the next are told, has the steps.
    unsafe fn column(
        &self,
        rows: &Range<usize>,
        column: usize,
        columns: usize,
        first: usize,
        steps: usize,
        (panel, b_step): (*const f32, usize),
        mut asked: Asked,
    ) {
        let last = first + steps == self.k;
        let (row_bias, column_bias) = match last {
            true => bias_pointers(self.epilogue.bias),
            false => (std::ptr::null(), std::ptr::null()),
        };
        let limits = if last { self.epilogue.limits() } else { (f32::NEG_INFINITY, f32::INFINITY) };
        let mut row = rows.start;
        while row < rows.end {
            let height = self.left.tile.min(rows.end - row);
            let tiles = (rows.end - row) / height;
            let (residual, residual_row) = match self.epilogue.residual {
                Some(residual) if last => {
                    (residual.values.as_ptr().wrapping_add(row * residual.row_stride + column), residual.row_stride)
                }
                _ => (std::ptr::null(), 0),
            };
            let (offset, a_row, a_step, a_tile) = match self.left.row_stride {
                Some(stride) => (row * stride + first, stride, 1, height * stride),
                None => (row * self.k + first * self.left.tile, 1, self.left.tile, height * self.k),
            };
            debug_assert!(row + tiles * height <= self.left.rows);
            let tile = Tile {
                k: steps,
                a: self.left.values.as_ptr().wrapping_add(offset),
                a_row,
                a_step,
                tiles,
                a_tile,
                b: panel,
                b_step,
                b_panel: 0,
                c: self.c.wrapping_add(row * self.c_row + column),
                c_row: self.c_row,
                columns,
                accumulate: self.accumulate || first > 0,
                row_bias: micro::moved(row_bias, row),
                column_bias: micro::moved(column_bias, column),
                residual,
                residual_row,
                limits,
                next: asked.place,
                next_step: asked.step,
                next_tile: asked.tile,
                asking: asked.tiles,
            };
            asked.place = asked.place.wrapping_add(tiles * asked.tile);
            asked.tiles = asked.tiles.saturating_sub(tiles);
            // SAFETY: the tiles lie inside the operands and the result by the caller's promise.
            unsafe { micro::run(self.isa, height, tile) };
            row += tiles * height;
        }
    }
}

/// A product cut into blocks by its size alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tasks {
    m: usize,
    n: usize,
    rows: usize,
    columns: usize,
}

impl Tasks {
    /// The number of blocks.
    pub(crate) fn count(&self) -> usize {
        self.m.div_ceil(self.rows) * self.n.div_ceil(self.columns)
    }

    /// The rows and columns of a block.
    pub(crate) fn get(&self, index: usize) -> (Range<usize>, Range<usize>) {
        let across = self.n.div_ceil(self.columns).max(1);
        let (row, column) = (index / across * self.rows, index % across * self.columns);
        (row..self.m.min(row + self.rows), column..self.n.min(column + self.columns))
    }
}

/// Cuts a product into blocks of about 20 microseconds, tall enough that a panel packed on the way is used often. A value of the
/// result takes so many picoseconds besides the sum of its products.
pub(crate) fn plan_tasks(isa: Isa, m: usize, k: usize, n: usize, picoseconds: u64) -> Tasks {
    const FLOPS: usize = 2_500_000;
    const LEFT_BYTES: usize = 512 << 10;
    let (height, width) = (tile_rows(isa, m), panel_width(isa));
    // A multiplication and an addition take 20 picoseconds at the rate that estimates take for granted.
    let steps = k.max(1).saturating_add(picoseconds as usize / 20);
    let unit = (2 * height * width).saturating_mul(steps);
    let units = (FLOPS / unit).max(1);
    let by_cache = (LEFT_BYTES / (4 * height).saturating_mul(k.max(1))).max(4);
    let tiles = m.div_ceil(height).max(1);
    let most = tiles.min(by_cache).min(units.max(12));
    // Equal shares, so that the last block is not a sliver.
    let rows = tiles.div_ceil(tiles.div_ceil(most));
    let panels = n.div_ceil(width).max(1);
    let across = panels.min((units / rows).max(1));
    let across = panels.div_ceil(panels.div_ceil(across));
    Tasks { m, n, rows: rows * height, columns: across * width }
}
