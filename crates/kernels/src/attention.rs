//! Scaled dot-product attention in tiles: `softmax(Q K^T * scale + mask) V` without the whole score matrix.
//!
//! Each task owns some queries and walks the keys in tiles, keeping for every query the greatest score so far, the sum of
//! exponentials and the weighted sum of values, which it rescales when the greatest score grows. Keys and values are
//! brought into panels once for each head; few queries read them where they lie.

use crate::error::{KernelError, check_len, span};
use crate::gemm::{MOST_ROWS, MOST_TILE_ROWS, Small, Tile, Unpacked, panel_width, run_tile, tile_rows};
use crate::isa::Isa;
use crate::math::exp_of_negative;
use crate::parallel::{SharedMut, nanoseconds_for_flops, parallel_chunks_mut, parallel_for};
use crate::quantized::{CodedScores, HalfTile, ScoreRows, has_bf16, pack_columns, pack_rows, pairs_of, round_row};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::prefetch_far;
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Tiles of queries in one task.
const TASK_TILES: usize = 8;

/// Keys in one tile.
const KEYS: usize = 256;

/// Elements from one row of scores to the next: rows shall not all begin in the same cache sets.
const SCORES_ROW: usize = KEYS + 16;

/// Keys that a few queries read at a time if heads lie side by side and more than [`NEAR`] elements have to be read.
const FEW_KEYS: usize = 64;

/// Elements of keys that may well lie in a near cache.
const NEAR: usize = 1 << 18;

/// Elements of keys side by side that are worth a task of few queries.
const RUN: usize = 128;

/// Elements of a cache line.
const LINE: usize = 16;

/// The most elements of panels that a task keeps on its stack.
const LOCAL: usize = 12 << 10;

/// The most columns of queries and keys that are rounded.
const MOST_ROUNDED: usize = 256;

/// The scores of a tile.
#[repr(align(64))]
struct Scores(MaybeUninit<[f32; MOST_TILE_ROWS * SCORES_ROW]>);

/// What is added to the scores, with strides `[batch, head, query, key]` in elements (zero repeats).
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum AttentionMask<'a> {
    /// Nothing.
    #[default]
    None,
    /// Values that are added.
    Additive(&'a [f32], [usize; 4]),
    /// Nonzero where a key is visible; minus infinity is added elsewhere.
    Boolean(&'a [u8], [usize; 4]),
}

/// Queries and keys, whose rows lie as the geometry says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum QueriesAndKeys<'a> {
    /// Values.
    Values(&'a [f32], &'a [f32]),
    /// Values. Where [`AttentionGeometry::rounds`] holds, they are rounded to bf16, and so are weights and values before
    /// these are multiplied; sums are of f32.
    Rounded(&'a [f32], &'a [f32]),
    /// Codes of one byte, and those that stand for zero. A step of the codes is part of the factor of the scores.
    Codes(&'a [u8], &'a [u8], [u8; 2]),
}

/// What queries and keys are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperandForm {
    /// As of [`QueriesAndKeys::Values`].
    Values,
    /// As of [`QueriesAndKeys::Rounded`].
    Rounded,
    /// As of [`QueriesAndKeys::Codes`].
    Codes,
}

impl QueriesAndKeys<'_> {
    /// The numbers of elements.
    fn lens(&self) -> [usize; 2] {
        match self {
            Self::Values(q, k) | Self::Rounded(q, k) => [q.len(), k.len()],
            Self::Codes(q, k, _) => [q.len(), k.len()],
        }
    }

    fn form(&self) -> OperandForm {
        match self {
            Self::Values(..) => OperandForm::Values,
            Self::Rounded(..) => OperandForm::Rounded,
            Self::Codes(..) => OperandForm::Codes,
        }
    }
}

impl OperandForm {
    /// The form in which queries and keys are read: as values where they are not rounded.
    fn settled(self, isa: Isa, geometry: &AttentionGeometry) -> OperandForm {
        if self == OperandForm::Rounded && !geometry.rounds(isa) { OperandForm::Values } else { self }
    }
}

/// Sizes and strides of one attention. Strides are `[batch, head, row]` in elements; columns are contiguous.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionGeometry {
    /// Images of the batch.
    pub batch: usize,
    /// Heads of the queries and the result.
    pub heads: usize,
    /// How many neighbouring query heads share one head of keys and values; 1 in plain attention.
    pub heads_per_key_head: usize,
    /// Rows of Q.
    pub queries: usize,
    /// Rows of K and V.
    pub keys: usize,
    /// Columns of Q and K.
    pub depth: usize,
    /// Columns of V and of the result.
    pub value_depth: usize,
    /// Strides of Q.
    pub query_strides: [usize; 3],
    /// Strides of K; the head is that of the keys.
    pub key_strides: [usize; 3],
    /// Strides of V; the head is that of the values.
    pub value_strides: [usize; 3],
    /// Strides of the result, whose rows must not overlap.
    pub output_strides: [usize; 3],
    /// The factor of the scores.
    pub scale: f32,
    /// Where given, query `i` sees the keys `j <= i + offset` only.
    pub causal: Option<isize>,
}

impl AttentionGeometry {
    /// The geometry of dense operands: Q `[batch, heads, queries, depth]`, K `[batch, key heads, keys, depth]`, V
    /// `[batch, key heads, keys, value_depth]` and the result `[batch, heads, queries, value_depth]`.
    #[must_use]
    pub fn dense(
        [batch, heads, heads_per_key_head]: [usize; 3],
        [queries, keys, depth, value_depth]: [usize; 4],
        scale: f32,
        causal: Option<isize>,
    ) -> Self {
        let strides = |heads: usize, rows: usize, columns: usize| {
            let plane = rows.saturating_mul(columns);
            [plane.saturating_mul(heads), plane, columns]
        };
        let key_heads = heads / heads_per_key_head.max(1);
        Self {
            batch,
            heads,
            heads_per_key_head,
            queries,
            keys,
            depth,
            value_depth,
            query_strides: strides(heads, queries, depth),
            key_strides: strides(key_heads, keys, depth),
            value_strides: strides(key_heads, keys, value_depth),
            output_strides: strides(heads, queries, value_depth),
            scale,
            causal,
        }
    }

    /// Whether queries and keys may be codes: rows have a multiple of four columns, and not so many that sums of products
    /// could exceed their integers.
    #[must_use]
    pub fn takes_codes(&self) -> bool {
        CodedScores::takes(self.depth)
    }

    /// Whether what may be rounded is: the machine sums products of bf16, there are enough queries to pay for packed operands, and
    /// their rows have at most 256 columns.
    #[must_use]
    pub fn rounds(&self, isa: Isa) -> bool {
        has_bf16(isa) && self.queries > MOST_ROWS && self.depth <= MOST_ROUNDED
    }

    fn check(&self, [q, k]: [usize; 2], v: usize, mask: &AttentionMask<'_>, output: usize) -> Result<(), KernelError> {
        if self.heads_per_key_head == 0 || !self.heads.is_multiple_of(self.heads_per_key_head) {
            return Err(KernelError::invalid("heads_per_key_head", "does not divide the heads"));
        }
        let key_heads = self.heads / self.heads_per_key_head;
        let view = |argument, strides: [usize; 3], heads: usize, rows: usize, columns: usize| {
            span(argument, &[(self.batch, strides[0]), (heads, strides[1]), (rows, strides[2]), (columns, 1)])
        };
        check_len("q", q, view("q", self.query_strides, self.heads, self.queries, self.depth)?)?;
        check_len("k", k, view("k", self.key_strides, key_heads, self.keys, self.depth)?)?;
        check_len("v", v, view("v", self.value_strides, key_heads, self.keys, self.value_depth)?)?;
        let out = view("output", self.output_strides, self.heads, self.queries, self.value_depth)?;
        check_len("output", output, out)?;
        let (len, strides) = match *mask {
            AttentionMask::None => return self.check_disjoint(),
            AttentionMask::Additive(values, strides) => (values.len(), strides),
            AttentionMask::Boolean(values, strides) => (values.len(), strides),
        };
        let sizes = [self.batch, self.heads, self.queries, self.keys];
        check_len("mask", len, span("mask", &[0, 1, 2, 3].map(|axis| (sizes[axis], strides[axis])))?)?;
        self.check_disjoint()
    }

    fn check_disjoint(&self) -> Result<(), KernelError> {
        let [batch, head, row] = self.output_strides;
        let mut axes = [(batch, self.batch), (head, self.heads), (row, self.queries)];
        axes.sort_unstable();
        let mut end = self.value_depth;
        for (stride, count) in axes.into_iter().filter(|axis| axis.1 > 1) {
            if stride < end {
                return Err(KernelError::invalid("output_strides", "rows of the result overlap"));
            }
            end = stride.saturating_mul(count - 1).saturating_add(end);
        }
        Ok(())
    }
}

/// Elements of scratch that [`attention`] needs: keys and values in panels, where a task cannot keep those of its head
/// to itself.
#[must_use]
pub fn attention_scratch_len(isa: Isa, geometry: &AttentionGeometry, form: OperandForm) -> usize {
    let panels = Panels::of(isa, geometry, form);
    if are_few(geometry, form) || panels.are_local() {
        return 0;
    }
    let key_heads = geometry.heads / geometry.heads_per_key_head.max(1);
    geometry.batch.saturating_mul(key_heads).saturating_mul(panels.len())
}

/// Whether keys and values are read where they lie.
fn are_few(geometry: &AttentionGeometry, form: OperandForm) -> bool {
    geometry.queries <= MOST_ROWS && form != OperandForm::Codes
}

/// Attention of all heads. A query that sees no key gives NaN, as the softmax of nothing does.
///
/// The sink, if there is one, is a score of each query for a key without a value, which takes its share of the weights, and
/// its strides `[batch, head, row]`. With it, a query that sees no key gives zeros.
///
/// # Errors
/// A slice is shorter than the geometry needs, rows of the result overlap, or queries and keys are codes where
/// [`AttentionGeometry::takes_codes`] says no.
pub fn attention(
    isa: Isa,
    geometry: &AttentionGeometry,
    queries_and_keys: QueriesAndKeys<'_>,
    v: &[f32],
    mask: AttentionMask<'_>,
    sink: Option<(&[f32], [usize; 3])>,
    output: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    geometry.check(queries_and_keys.lens(), v.len(), &mask, output.len())?;
    let queries_and_keys = match queries_and_keys {
        QueriesAndKeys::Rounded(q, k) if !geometry.rounds(isa) => QueriesAndKeys::Values(q, k),
        others => others,
    };
    let form = queries_and_keys.form();
    if form == OperandForm::Codes && !geometry.takes_codes() {
        return Err(KernelError::invalid("depth", "is no multiple of four, or too large for codes"));
    }
    if let Some((values, strides)) = sink {
        let sizes = [geometry.batch, geometry.heads, geometry.queries];
        check_len("sink", values.len(), span("sink", &[0, 1, 2].map(|axis| (sizes[axis], strides[axis])))?)?;
    }
    let AttentionGeometry { batch, heads, queries, keys, depth, value_depth, .. } = *geometry;
    if batch == 0 || heads == 0 || queries == 0 || value_depth == 0 {
        return Ok(());
    }
    let needed = attention_scratch_len(isa, geometry, form);
    check_len("scratch", scratch.len(), needed)?;
    let mask = match mask {
        // Exporters give a zero for no mask.
        AttentionMask::Additive([zero, ..], [0, 0, 0, 0]) if *zero == 0.0 => AttentionMask::None,
        mask => mask,
    };
    let panels = Panels::of(isa, geometry, form);
    if needed > 0 {
        let work = panels.len() as u64 * (needed / panels.len()) as u64 / 2;
        let key_heads = heads / geometry.heads_per_key_head;
        parallel_chunks_mut(scratch.split_at_mut(needed).0, panels.len(), work, |index, target| {
            let key = (index / key_heads, index % key_heads);
            // SAFETY: lengths were checked, and the chunk has the length of the panels.
            unsafe { panels.pack(geometry, queries_and_keys, v, key, target.as_mut_ptr()) };
        });
    }
    let scratch = &*scratch;
    let height = tile_rows(isa, queries);
    let task_rows = height * TASK_TILES;
    let tasks = queries.div_ceil(task_rows);
    let flops = crate::gemm::flops(batch * heads, queries, depth + value_depth, keys);
    let shared = SharedMut::new(output);
    let task = |image, head| Task { isa, geometry, queries_and_keys, v, mask, sink, output: &shared, image, head };
    if let (true, QueriesAndKeys::Values(q, k)) = (are_few(geometry, form), queries_and_keys) {
        let together = heads_together(geometry);
        let groups = heads.div_ceil(together);
        parallel_for(batch * groups, 1, nanoseconds_for_flops(flops), |range| {
            for index in range {
                let (image, first) = (index / groups, index % groups * together);
                let all = FewQueries { first: task(image, first), q, k, heads: together.min(heads - first) };
                // SAFETY: lengths were checked, and tasks own disjoint rows of the result.
                unsafe { all.run() };
            }
        });
        return Ok(());
    }
    parallel_for(batch * heads * tasks, 1, nanoseconds_for_flops(flops), |range| {
        for index in range {
            let (rest, part) = (index / tasks, index % tasks);
            let rows = part * task_rows..queries.min((part + 1) * task_rows);
            // SAFETY: lengths were checked, and tasks own disjoint rows of the result.
            unsafe { task(rest / heads, rest % heads).run(rows, height, &panels, scratch) };
        }
    });
    Ok(())
}

/// How many neighbouring heads one task of few queries computes: so many that keys of theirs that lie side by side are
/// read in long runs, and no more than have room for their scores.
fn heads_together(g: &AttentionGeometry) -> usize {
    let most = (MOST_TILE_ROWS / g.queries.max(1)).max(1);
    let shared = g.heads_per_key_head;
    if shared > most {
        // A part of those that share keys, all parts alike.
        return shared.div_ceil(shared.div_ceil(most));
    }
    (RUN / g.depth.max(1)).clamp(1, most / shared) * shared
}

/// Keys and values of one head in the form that the micro-kernels read: keys turned, in panels of so many keys, or packed
/// codes of keys, and then panels of so many columns of the values.
#[derive(Debug, Clone, Copy)]
struct Panels {
    isa: Isa,
    width: usize,
    keys: usize,
    values: usize,
}

impl Panels {
    fn of(isa: Isa, geometry: &AttentionGeometry, form: OperandForm) -> Panels {
        let width = panel_width(isa);
        let of_keys = |elements: usize| geometry.keys.next_multiple_of(width).saturating_mul(elements);
        let of_values = |elements: usize| geometry.value_depth.next_multiple_of(width).saturating_mul(elements);
        let (keys, values) = match form.settled(isa, geometry) {
            OperandForm::Codes => (CodedScores::packed_len(geometry.keys, geometry.depth), of_values(geometry.keys)),
            OperandForm::Values => (of_keys(geometry.depth), of_values(geometry.keys)),
            // An element is a pair.
            OperandForm::Rounded => (of_keys(pairs_of(geometry.depth)), of_values(pairs_of(geometry.keys))),
        };
        Panels { isa, width, keys, values }
    }

    fn len(&self) -> usize {
        self.keys.saturating_add(self.values)
    }

    /// Whether a task packs the panels for itself.
    fn are_local(&self) -> bool {
        self.len() <= LOCAL
    }

    /// Writes the panels of the keys and values of an image and a head.
    ///
    /// # Safety
    /// The lengths were checked, and `target` has room for [`Panels::len`] elements.
    unsafe fn pack(
        &self,
        g: &AttentionGeometry,
        queries_and_keys: QueriesAndKeys<'_>,
        v: &[f32],
        at: (usize, usize),
        target: *mut f32,
    ) {
        let place = |strides: [usize; 3]| at.0 * strides[0] + at.1 * strides[1];
        let (key, v) = (place(g.key_strides), from(v, place(g.value_strides)));
        let values = Unpacked { values: v, columns: g.value_depth, row_stride: g.value_strides[2], column_stride: 1 };
        // SAFETY: the panels follow each other in the target, and the caller promised the rest.
        unsafe {
            match queries_and_keys {
                QueriesAndKeys::Rounded(_, k) => {
                    pack_columns(self.isa, from(k, key).as_ptr(), g.key_strides[2], [g.depth, g.keys], target);
                    pack_rows(v.as_ptr(), g.value_strides[2], [g.keys, g.value_depth], target.add(self.keys));
                    return;
                }
                QueriesAndKeys::Values(_, k) => {
                    let (values, column_stride) = (from(k, key), g.key_strides[2]);
                    let keys = Unpacked { values, columns: g.keys, row_stride: 1, column_stride };
                    for column in (0..g.keys).step_by(self.width) {
                        keys.pack(self.isa, 0, g.depth, column, target.add(column * g.depth));
                    }
                }
                QueriesAndKeys::Codes(_, k, zeros) => {
                    let scores = CodedScores::new(self.isa, g.depth, zeros);
                    scores.pack(from(k, key).as_ptr(), g.key_strides[2], g.keys, target);
                }
            }
            for column in (0..g.value_depth).step_by(self.width) {
                values.pack(self.isa, 0, g.keys, column, target.add(self.keys + column * g.keys));
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Task<'a> {
    isa: Isa,
    geometry: &'a AttentionGeometry,
    queries_and_keys: QueriesAndKeys<'a>,
    v: &'a [f32],
    mask: AttentionMask<'a>,
    sink: Option<(&'a [f32], [usize; 3])>,
    output: &'a SharedMut<'a, f32>,
    image: usize,
    head: usize,
}

/// What a tile of queries knows so far.
struct Progress {
    /// The greatest score of each query.
    tops: [f32; MOST_TILE_ROWS],
    /// The sum of its exponentials.
    sums: [f32; MOST_TILE_ROWS],
}

impl Progress {
    const fn new() -> Progress {
        Progress { tops: [f32::NEG_INFINITY; MOST_TILE_ROWS], sums: [0.0; MOST_TILE_ROWS] }
    }
}

impl Task<'_> {
    /// The head of keys and values.
    fn key_head(&self) -> usize {
        self.head / self.geometry.heads_per_key_head
    }

    /// Computes queries in tiles of `height`, with the panels of all heads or, where they are local, with its own.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches these rows of the result.
    unsafe fn run(&self, rows: Range<usize>, height: usize, panels: &Panels, scratch: &[f32]) {
        let g = self.geometry;
        let key_head = self.key_head();
        let mut own = MaybeUninit::<[f32; LOCAL]>::uninit();
        let packed = if panels.are_local() {
            let target = own.as_mut_ptr().cast::<f32>();
            // SAFETY: the array has room for the panels.
            unsafe { panels.pack(g, self.queries_and_keys, self.v, (self.image, key_head), target) };
            target.cast_const()
        } else {
            let index = self.image * (g.heads / g.heads_per_key_head) + key_head;
            scratch[index * panels.len()..][..panels.len()].as_ptr()
        };
        let mut scores = Scores(MaybeUninit::uninit());
        let scores = scores.0.as_mut_ptr().cast::<f32>();
        for first in rows.clone().step_by(height) {
            // SAFETY: the tile lies in the rows, the panels are those of the head and the scores have room for it.
            unsafe { self.run_tile(first, height.min(rows.end - first), panels, packed, scores) };
        }
    }

    /// Computes a tile of queries.
    ///
    /// # Safety
    /// As of [`Task::run`]; `packed` has the panels, and `scores` has room for a tile.
    unsafe fn run_tile(&self, first: usize, count: usize, panels: &Panels, packed: *const f32, scores: *mut f32) {
        let g = self.geometry;
        let target = self.clear(first, count);
        let mut progress = self.progress(first, count);
        let visible = self.visible(first + count);
        for start in (0..visible).step_by(KEYS) {
            let keys = KEYS.min(visible - start);
            self.ask_for_mask(first, count, start, keys);
            // SAFETY: the packed keys are those of the head, and the scores have room for the tile.
            unsafe { self.score((first, count), start..start + keys, panels, packed, scores) };
            // SAFETY: the scores have been written, and the rows of the result are the task's own.
            unsafe { self.soften(first, count, start, keys, scores, &mut progress, target) };
            if matches!(self.queries_and_keys, QueriesAndKeys::Rounded(..)) {
                // SAFETY: the weights have been written, and the rows of the result are the task's own.
                unsafe { self.weigh_rounded(count, start..start + keys, panels, packed, scores, target) };
                continue;
            }
            let product = self.product(keys, (scores, SCORES_ROW), (target, g.output_strides[2]));
            let product = Tile { accumulate: true, ..product };
            if g.value_depth > 0 {
                let b = packed.wrapping_add(panels.keys + start * panels.width);
                let product = Tile { b, b_panel: panels.width * g.keys, columns: g.value_depth, ..product };
                // SAFETY: the panels, the weights and the rows of the result have the rows and columns.
                unsafe { run_tile(self.isa, count, product) };
            }
        }
        // SAFETY: the rows are the task's own.
        unsafe { self.divide(count, &progress, target) };
    }

    /// Asks for the mask of some queries and keys, whose rows are too short for the processor to see them coming, while the
    /// scores are computed.
    fn ask_for_mask(&self, first: usize, count: usize, start: usize, keys: usize) {
        let AttentionMask::Additive(values, strides) = self.mask else { return };
        if strides[3] != 1 {
            return;
        }
        let place = self.image * strides[0] + self.head * strides[1] + first * strides[2] + start;
        for row in 0..if strides[2] == 0 { 1 } else { count } {
            let line = from(values, place + row * strides[2]).as_ptr();
            for column in (0..keys).step_by(LINE) {
                prefetch_far(line.wrapping_add(column));
            }
        }
    }

    /// Writes the scores of some queries and keys, which lack the factor and the mask.
    ///
    /// # Safety
    /// As of [`Task::run_tile`].
    unsafe fn score(
        &self,
        (first, count): (usize, usize),
        keys: Range<usize>,
        panels: &Panels,
        packed: *const f32,
        scores: *mut f32,
    ) {
        let g = self.geometry;
        let [image, head, row] = g.query_strides;
        let query = self.image * image + self.head * head + first * row;
        match self.queries_and_keys {
            QueriesAndKeys::Rounded(q, _) => {
                let mut halves = MaybeUninit::<[u32; MOST_TILE_ROWS * pairs_of(MOST_ROUNDED)]>::uninit();
                let (halves, pairs) = (halves.as_mut_ptr().cast::<u32>(), pairs_of(g.depth));
                for index in 0..count {
                    // SAFETY: the machine rounds, and the array has room for the rows of a tile.
                    unsafe {
                        round_row(self.isa, from(q, query + index * row).as_ptr(), g.depth, halves.add(index * pairs));
                    };
                }
                let product = HalfTile {
                    a: halves,
                    a_row: pairs,
                    pairs,
                    b: packed.wrapping_add(keys.start * pairs),
                    b_panel: panels.width * pairs,
                    c: scores,
                    c_row: SCORES_ROW,
                    columns: keys.len(),
                    accumulate: false,
                };
                // SAFETY: the panels, the queries and the scores have the rows and columns.
                unsafe { product.run(count) };
            }
            QueriesAndKeys::Values(q, _) => {
                let product = self.product(g.depth, (from(q, query).as_ptr(), row), (scores, SCORES_ROW));
                let b = packed.wrapping_add(keys.start * g.depth);
                let product = Tile { b, b_panel: panels.width * g.depth, columns: keys.len(), ..product };
                // SAFETY: the panels, the queries and the scores have the rows and columns.
                unsafe { run_tile(self.isa, count, product) };
            }
            QueriesAndKeys::Codes(q, _, zeros) => {
                let coded = CodedScores::new(self.isa, g.depth, zeros);
                let rows = ScoreRows {
                    queries: from(q, query).as_ptr(),
                    query_row: row,
                    keys: packed.wrapping_add(coded.place(keys.start)),
                    count: keys.len(),
                    to: scores,
                    row: SCORES_ROW,
                };
                // SAFETY: the queries are those of the geometry, and a row has room for whole blocks of a tile's keys.
                unsafe { coded.write(self.isa, count, rows) };
            }
        }
    }

    /// Adds values to the rows of the result, with weights that are rounded, as are the packed values.
    ///
    /// # Safety
    /// As of [`Task::run_tile`]; the weights have been written.
    unsafe fn weigh_rounded(
        &self,
        count: usize,
        keys: Range<usize>,
        panels: &Panels,
        packed: *const f32,
        weights: *const f32,
        target: *mut f32,
    ) {
        const ROW: usize = pairs_of(SCORES_ROW);
        let g = self.geometry;
        let mut halves = MaybeUninit::<[u32; MOST_TILE_ROWS * ROW]>::uninit();
        let halves = halves.as_mut_ptr().cast::<u32>();
        for row in 0..count {
            // SAFETY: the machine rounds, and the array has room for the rows of a tile.
            unsafe { round_row(self.isa, weights.add(row * SCORES_ROW), keys.len(), halves.add(row * ROW)) };
        }
        let product = HalfTile {
            a: halves,
            a_row: ROW,
            pairs: pairs_of(keys.len()),
            // Tiles of keys begin with whole pairs.
            b: packed.wrapping_add(panels.keys + pairs_of(keys.start) * panels.width),
            b_panel: panels.width * pairs_of(g.keys),
            c: target,
            c_row: g.output_strides[2],
            columns: g.value_depth,
            accumulate: true,
        };
        // SAFETY: the panels, the weights and the rows of the result have the rows and columns.
        unsafe { product.run(count) };
    }

    /// A product of so many steps, of rows that lie so far apart, without an epilogue.
    fn product(&self, k: usize, (a, a_row): (*const f32, usize), (c, c_row): (*mut f32, usize)) -> Tile {
        Tile {
            k,
            a,
            a_row,
            a_step: 1,
            tiles: 1,
            a_tile: 0,
            b: a,
            b_step: panel_width(self.isa),
            b_panel: 0,
            next: a,
            next_step: 0,
            next_tile: 0,
            asking: 0,
            c,
            c_row,
            columns: 0,
            accumulate: false,
            row_bias: std::ptr::null(),
            column_bias: std::ptr::null(),
            residual: std::ptr::null(),
            residual_row: 0,
            limits: (f32::NEG_INFINITY, f32::INFINITY),
        }
    }

    /// Where queries begin: with nothing, or with the sink, whose exponential is 1 while its score is the greatest.
    fn progress(&self, first: usize, count: usize) -> Progress {
        let mut progress = Progress::new();
        let Some((values, strides)) = self.sink else { return progress };
        let start = self.image * strides[0] + self.head * strides[1];
        for row in 0..count {
            let score = values[start + (first + row) * strides[2]];
            progress.tops[row] = score;
            progress.sums[row] = if score == f32::NEG_INFINITY { 0.0 } else { 1.0 };
        }
        progress
    }

    /// The keys that any query before `end` sees.
    fn visible(&self, end: usize) -> usize {
        let seen = |offset| usize::try_from((end as isize).saturating_add(offset)).unwrap_or(0);
        self.geometry.causal.map_or(self.geometry.keys, |offset| seen(offset).min(self.geometry.keys))
    }

    /// Zeroes rows of the result and gives their address.
    fn clear(&self, first: usize, count: usize) -> *mut f32 {
        let g = self.geometry;
        let place = self.image * g.output_strides[0] + self.head * g.output_strides[1] + first * g.output_strides[2];
        let target = self.output.pointer().wrapping_add(place);
        for row in 0..count {
            // SAFETY: the row's columns lie in the result, and the task owns them.
            unsafe { target.add(row * g.output_strides[2]).write_bytes(0, g.value_depth) };
        }
        target
    }

    /// Replaces scores by exponentials and shrinks the rows of the result where a greater score has come.
    ///
    /// # Safety
    /// The scores and the rows of the result have been written, and nobody else touches them.
    unsafe fn soften(
        &self,
        first: usize,
        count: usize,
        start: usize,
        keys: usize,
        scores: *mut f32,
        progress: &mut Progress,
        target: *mut f32,
    ) {
        let g = self.geometry;
        let mut lines = Lines {
            count,
            keys,
            scores,
            scale: g.scale,
            mask: std::ptr::null(),
            mask_row: 0,
            progress,
            output: target,
            output_row: g.output_strides[2],
            depth: g.value_depth,
        };
        let is_whole = g
            .causal
            .is_none_or(|offset| (first as isize).saturating_add(offset).saturating_add(1) >= (start + keys) as isize);
        match self.mask {
            AttentionMask::None if is_whole && g.scale > 0.0 => {}
            AttentionMask::Additive(values, strides) if is_whole && strides[3] == 1 => {
                let place = self.image * strides[0] + self.head * strides[1] + first * strides[2] + start;
                (lines.mask, lines.mask_row) = (from(values, place).as_ptr(), strides[2]);
            }
            _ => {
                lines.scale = 1.0;
                for row in 0..count {
                    // SAFETY: the row of scores has been written.
                    let line = unsafe { std::slice::from_raw_parts_mut(scores.add(row * SCORES_ROW), keys) };
                    self.mask_line(first + row, start, line);
                }
            }
        }
        dispatch(self.isa, lines);
    }

    /// Divides rows of the result by their sums.
    ///
    /// # Safety
    /// Nobody else touches the rows.
    unsafe fn divide(&self, count: usize, progress: &Progress, target: *mut f32) {
        let g = self.geometry;
        for (row, sum) in progress.sums.iter().enumerate().take(count) {
            let factor = 1.0 / sum;
            // SAFETY: the row's columns lie in the result.
            let line = unsafe { std::slice::from_raw_parts_mut(target.add(row * g.output_strides[2]), g.value_depth) };
            line.iter_mut().for_each(|value| *value *= factor);
        }
    }

    /// Scales a line of scores, adds the mask and hides what the query does not see.
    fn mask_line(&self, query: usize, start: usize, line: &mut [f32]) {
        let g = self.geometry;
        let seen = g.causal.map_or(line.len(), |causal| {
            usize::try_from((query as isize + 1 - start as isize).saturating_add(causal)).unwrap_or(0)
        });
        let offset = |strides: [usize; 4]| {
            self.image * strides[0] + self.head * strides[1] + query * strides[2] + start * strides[3]
        };
        unary::unary_f32_in_place(self.isa, UnaryOp::Affine { scale: g.scale, shift: 0.0 }, line);
        match self.mask {
            AttentionMask::None => {}
            AttentionMask::Additive(values, strides) => {
                let values = &values[offset(strides)..];
                for (index, score) in line.iter_mut().enumerate() {
                    *score += values[index * strides[3]];
                }
            }
            AttentionMask::Boolean(values, strides) => {
                let values = &values[offset(strides)..];
                let hide = |score: &mut f32, seen: u8| *score = if seen == 0 { f32::NEG_INFINITY } else { *score };
                if strides[3] == 1 {
                    line.iter_mut().zip(values).for_each(|(score, seen)| hide(score, *seen));
                } else {
                    line.iter_mut().enumerate().for_each(|(index, score)| hide(score, values[index * strides[3]]));
                }
            }
        }
        line.iter_mut().skip(seen).for_each(|score| *score = f32::NEG_INFINITY);
    }
}

/// A few queries of neighbouring heads, with keys and values where they lie.
struct FewQueries<'a> {
    /// The task of the first head.
    first: Task<'a>,
    q: &'a [f32],
    k: &'a [f32],
    heads: usize,
}

impl FewQueries<'_> {
    /// Computes all queries. Heads whose keys lie side by side read them together, some at a time, because memory is fast in
    /// its own order only.
    ///
    /// # Safety
    /// The lengths were checked, nobody else touches these rows of the result, there are at most [`MOST_ROWS`] queries, and
    /// scores for so many heads have room in a tile.
    unsafe fn run(&self) {
        let (g, count) = (self.first.geometry, self.first.geometry.queries);
        let head = |index: usize| Task { head: self.first.head + index, ..self.first };
        let mut targets = [std::ptr::null_mut(); MOST_TILE_ROWS];
        let mut progress = [const { Progress::new() }; MOST_TILE_ROWS];
        for index in 0..self.heads {
            targets[index] = head(index).clear(0, count);
            progress[index] = head(index).progress(0, count);
        }
        let mut scores = Scores(MaybeUninit::uninit());
        let scores = scores.0.as_mut_ptr().cast::<f32>();
        let visible = self.first.visible(count);
        let is_far = self.is_far(g.key_strides) || self.is_far(g.value_strides);
        let step = if is_far { FEW_KEYS } else { KEYS };
        self.ask(self.k, g.key_strides, 0..step.min(visible));
        for start in (0..visible).step_by(step) {
            let keys = step.min(visible - start);
            self.ask(self.first.v, g.value_strides, start..start + keys);
            for (index, rows) in self.products() {
                let task = head(index);
                let at = |strides: [usize; 3], head: usize| task.image * strides[0] + head * strides[1];
                let scores = scores.wrapping_add(index * count * SCORES_ROW);
                let product = Small {
                    m: rows,
                    k: g.depth,
                    n: keys,
                    a: from(self.q, at(g.query_strides, task.head)).as_ptr(),
                    a_row: g.query_strides[if count == 1 { 1 } else { 2 }],
                    a_column: 1,
                    b: from(self.k, at(g.key_strides, task.key_head()) + start * g.key_strides[2]).as_ptr(),
                    b_row: 1,
                    b_column: g.key_strides[2],
                    c: scores,
                    c_row: SCORES_ROW,
                };
                // SAFETY: the scores have room for the rows.
                unsafe {
                    for row in 0..rows {
                        scores.add(row * SCORES_ROW).write_bytes(0, keys);
                    }
                    product.run(task.isa);
                }
            }
            for (index, progress) in progress.iter_mut().enumerate().take(self.heads) {
                let scores = scores.wrapping_add(index * count * SCORES_ROW);
                // SAFETY: the scores were written, and the rows of the result are the task's.
                unsafe { head(index).soften(0, count, start, keys, scores, progress, targets[index]) };
            }
            self.ask(self.k, g.key_strides, start + keys..visible.min(start + keys + step));
            for (index, rows) in self.products() {
                let task = head(index);
                let at = task.image * g.value_strides[0] + task.key_head() * g.value_strides[1];
                let weighted = Small {
                    m: rows,
                    k: keys,
                    n: g.value_depth,
                    a: scores.wrapping_add(index * count * SCORES_ROW),
                    a_row: SCORES_ROW,
                    a_column: 1,
                    b: from(task.v, at + start * g.value_strides[2]).as_ptr(),
                    b_row: g.value_strides[2],
                    b_column: 1,
                    c: targets[index],
                    c_row: g.output_strides[if count == 1 { 1 } else { 2 }],
                };
                // SAFETY: the rows of the result are the task's.
                unsafe { weighted.run(task.isa) };
            }
        }
        for (index, progress) in progress.iter().enumerate().take(self.heads) {
            // SAFETY: the rows are the task's own.
            unsafe { head(index).divide(count, progress, targets[index]) };
        }
    }

    /// The first head and the rows of each product: the queries of one head, or one query of heads that share their keys.
    fn products(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (first, heads) = (self.first.head, self.heads);
        let (shared, count) = (self.first.geometry.heads_per_key_head, self.first.geometry.queries);
        let mut next = 0;
        std::iter::from_fn(move || {
            let index = Some(next).filter(|next| *next < heads)?;
            let rows = match count {
                1 => (shared - (first + index) % shared).min(heads - index).min(MOST_ROWS),
                _ => 1,
            };
            next += rows;
            Some((index, if count == 1 { rows } else { count }))
        })
    }

    /// Whether keys or values come from memory in short runs. Heads that do not lie side by side have long runs of their own,
    /// which the processor finds.
    fn is_far(&self, [_, head, row]: [usize; 3]) -> bool {
        head < row && self.first.geometry.keys.saturating_mul(row) > NEAR
    }

    /// Asks for some rows of the keys or values of all heads, in the order in which they lie.
    fn ask(&self, values: &[f32], strides: [usize; 3], rows: Range<usize>) {
        if !self.is_far(strides) {
            return;
        }
        let g = self.first.geometry;
        let first = self.first.key_head();
        let last = (self.first.head + self.heads - 1) / g.heads_per_key_head;
        let len = (last - first) * strides[1] + g.depth.max(g.value_depth);
        let start = self.first.image * strides[0] + first * strides[1];
        for row in rows {
            let line = from(values, start + row * strides[2]).as_ptr();
            for column in (0..len).step_by(LINE) {
                prefetch_far(line.wrapping_add(column));
            }
        }
    }
}

/// Replaces lines of scores, which lack a factor and the mask, by exponentials relative to the greatest so far, and
/// shrinks what was summed before where a greater one has come.
struct Lines<'a> {
    count: usize,
    keys: usize,
    scores: *mut f32,
    scale: f32,
    /// What is added to the first line, or null.
    mask: *const f32,
    /// Elements from one line of the mask to the next.
    mask_row: usize,
    progress: &'a mut Progress,
    output: *mut f32,
    output_row: usize,
    /// Columns of the output.
    depth: usize,
}

impl Kernel for Lines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for row in 0..self.count {
            let line = self.scores.wrapping_add(row * SCORES_ROW);
            let before = self.progress.tops[row];
            // SAFETY: the line has the keys, and so has that of the mask.
            let (top, sum) = unsafe {
                match self.mask.is_null() {
                    true => {
                        let top = before.max(greatest(s, line, self.keys) * self.scale);
                        (top, powers(s, line, self.keys, self.scale, top))
                    }
                    false => {
                        let mask = self.mask.wrapping_add(row * self.mask_row);
                        add_mask(s, line, self.keys, self.scale, mask);
                        let top = before.max(greatest(s, line, self.keys));
                        (top, powers(s, line, self.keys, 1.0, top))
                    }
                }
            };
            let mut shrink = 1.0;
            if before != top && before != f32::NEG_INFINITY {
                let mut lanes = [0.0f32; 16];
                // SAFETY: no tier has more lanes.
                unsafe { s.store(lanes.as_mut_ptr(), exp_of_negative(s, s.splat(before - top))) };
                shrink = lanes[0];
                let output = self.output.wrapping_add(row * self.output_row);
                // SAFETY: the row of the result has so many columns.
                unsafe { scale_row(s, output, self.depth, shrink) };
            }
            self.progress.tops[row] = top;
            self.progress.sums[row] = self.progress.sums[row] * shrink + sum;
        }
    }
}

/// The greatest score of a line.
///
/// # Safety
/// The line has so many scores.
#[inline(always)]
unsafe fn greatest<S: Simd>(s: S, line: *const f32, len: usize) -> f32 {
    let whole = len - len % S::LANES;
    let mut most = [s.splat(f32::NEG_INFINITY); 2];
    let mut index = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while index + 2 * S::LANES <= whole {
            most[0] = s.max(most[0], s.load(line.add(index)));
            most[1] = s.max(most[1], s.load(line.add(index + S::LANES)));
            index += 2 * S::LANES;
        }
        if index < whole {
            most[0] = s.max(most[0], s.load(line.add(index)));
        }
        let mut top = s.reduce_max(s.max(most[0], most[1]));
        for index in whole..len {
            top = top.max(*line.add(index));
        }
        top
    }
}

/// Scales a line and adds a mask.
///
/// # Safety
/// The line and the mask have so many elements.
#[inline(always)]
unsafe fn add_mask<S: Simd>(s: S, line: *mut f32, len: usize, scale: f32, mask: *const f32) {
    let factor = s.splat(scale);
    let mut index = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while index + S::LANES <= len {
            s.store(line.add(index), s.fma(s.load(line.add(index)), factor, s.load(mask.add(index))));
            index += S::LANES;
        }
        let (place, count) = (line.add(index), len - index);
        if count > 0 {
            let value = s.fma(s.load_partial(place, count), factor, s.load_partial(mask.add(index), count));
            s.store_partial(place, value, count);
        }
    }
}

/// Replaces a line by the exponentials of `line * scale - top`, and gives their sum.
///
/// # Safety
/// The line has so many scores.
#[inline(always)]
unsafe fn powers<S: Simd>(s: S, line: *mut f32, len: usize, scale: f32, top: f32) -> f32 {
    let shift = if top == f32::NEG_INFINITY { 0.0 } else { top };
    let (factor, offset) = (s.splat(scale), s.splat(-shift));
    let whole = len - len % S::LANES;
    let mut sums = [s.splat(0.0); 2];
    let mut index = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while index + 2 * S::LANES <= whole {
            let first = exp_of_negative(s, s.fma(s.load(line.add(index)), factor, offset));
            let second = exp_of_negative(s, s.fma(s.load(line.add(index + S::LANES)), factor, offset));
            s.store(line.add(index), first);
            s.store(line.add(index + S::LANES), second);
            sums = [s.add(sums[0], first), s.add(sums[1], second)];
            index += 2 * S::LANES;
        }
        if index < whole {
            let power = exp_of_negative(s, s.fma(s.load(line.add(index)), factor, offset));
            s.store(line.add(index), power);
            sums[0] = s.add(sums[0], power);
        }
        let mut sum = s.reduce_add(s.add(sums[0], sums[1]));
        if whole < len {
            let (place, count) = (line.add(whole), len - whole);
            s.store_partial(place, exp_of_negative(s, s.fma(s.load_partial(place, count), factor, offset)), count);
            for index in whole..len {
                sum += *line.add(index);
            }
        }
        sum
    }
}

/// # Safety
/// The values are writable and nobody else uses them.
#[inline(always)]
unsafe fn scale_row<S: Simd>(s: S, pointer: *mut f32, len: usize, factor: f32) {
    let factor = s.splat(factor);
    for index in (0..len).step_by(S::LANES) {
        let count = S::LANES.min(len - index);
        // SAFETY: the caller's promise.
        unsafe {
            let place = pointer.add(index);
            s.store_partial(place, s.mul(s.load_partial(place, count), factor), count);
        }
    }
}

/// The slice from an offset on; empty where an operand without elements has strides nevertheless.
fn from<T>(values: &[T], offset: usize) -> &[T] {
    values.get(offset..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    type Sink<'a> = Option<(&'a [f32], [usize; 3])>;

    fn reference(g: &AttentionGeometry, [q, k, v]: [&[f32]; 3], mask: &AttentionMask<'_>, sink: Sink<'_>) -> Vec<f64> {
        let mut output = Vec::new();
        for (b, h, i) in
            (0..g.batch).flat_map(|b| (0..g.heads).flat_map(move |h| (0..g.queries).map(move |i| (b, h, i))))
        {
            let kh = h / g.heads_per_key_head;
            let scores: Vec<f64> = (0..g.keys)
                .map(|j| {
                    let dot: f64 = (0..g.depth)
                        .map(|d| {
                            f64::from(q[b * g.query_strides[0] + h * g.query_strides[1] + i * g.query_strides[2] + d])
                                * f64::from(k[b * g.key_strides[0] + kh * g.key_strides[1] + j * g.key_strides[2] + d])
                        })
                        .sum();
                    let place = |s: [usize; 4]| b * s[0] + h * s[1] + i * s[2] + j * s[3];
                    let bias = match *mask {
                        AttentionMask::None => 0.0,
                        AttentionMask::Additive(values, s) => f64::from(values[place(s)]),
                        AttentionMask::Boolean(values, s) => {
                            if values[place(s)] == 0 {
                                f64::NEG_INFINITY
                            } else {
                                0.0
                            }
                        }
                    };
                    let hidden = g.causal.is_some_and(|offset| (j as isize - i as isize) > offset);
                    if hidden { f64::NEG_INFINITY } else { dot * f64::from(g.scale) + bias }
                })
                .collect();
            let sink = sink.map(|(values, s)| f64::from(values[b * s[0] + h * s[1] + i * s[2]]));
            let top = scores.iter().copied().chain(sink).fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().copied().chain(sink).map(|score| (score - top).exp()).sum();
            for d in 0..g.value_depth {
                output.push(
                    (0..g.keys)
                        .map(|j| {
                            (scores[j] - top).exp() / sum
                                * f64::from(
                                    v[b * g.value_strides[0] + kh * g.value_strides[1] + j * g.value_strides[2] + d],
                                )
                        })
                        .sum(),
                );
            }
        }
        output
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn any_geometry(seed: u64) {
            let mut random = Random::new(seed);
            let shared = random.between(1, 3);
            let heads = shared * random.between(1, 2);
            let sizes = [random.between(1, 80), random.between(1, 300), random.between(1, 70), random.between(1, 70)];
            let causal = [None, Some(0), Some(sizes[1] as isize - 1), Some(isize::MAX)][random.between(0, 3)];
            let g = AttentionGeometry::dense([random.between(1, 2), heads, shared], sizes, 0.3, causal);
            let q = random.values(g.batch * g.query_strides[0]);
            let k = random.values(g.batch * g.key_strides[0]);
            let v = random.values(g.batch * g.value_strides[0]);
            let additive = random.values(sizes[0] * sizes[1]);
            let visible: Vec<u8> = (0..sizes[1]).map(|key| u8::from(key % 3 == 0)).collect();
            let masks = [
                AttentionMask::None,
                AttentionMask::Additive(&additive, [0, 0, sizes[1], 1]),
                AttentionMask::Boolean(&visible, [0, 0, 0, 1]),
                AttentionMask::Boolean(&visible, [0, 0, 0, 0]),
                AttentionMask::Additive(&[0.0], [0; 4]),
                AttentionMask::Additive(&additive, [0, 0, 1, 0]),
            ];
            let scores = random.values(g.batch * heads * sizes[0]);
            let sinks: [Sink<'_>; 3] =
                [None, Some((&scores, [0, 1, 0])), Some((&scores, [heads * sizes[0], sizes[0], 1]))];
            for (index, mask) in masks.into_iter().enumerate() {
                let sink = sinks[index % sinks.len()];
                let expected = reference(&g, [&q, &k, &v], &mask, sink);
                for isa in Isa::available() {
                    let mut output = vec![f32::NAN; expected.len()];
                    let mut scratch = vec![f32::NAN; attention_scratch_len(isa, &g, OperandForm::Values)];
                    attention(isa, &g, QueriesAndKeys::Values(&q, &k), &v, mask, sink, &mut output, &mut scratch).unwrap();
                    assert_close(&output, &expected, 40, &format!("{isa} {g:?}"));
                }
            }
        }
    }

    /// Keys and values whose rows are outermost, as decoders keep them.
    #[test]
    fn heads_side_by_side() {
        let mut random = Random::new(7);
        for ([heads, shared], [queries, keys, depth]) in [
            ([4, 2], [1, 1100, 128]),
            ([6, 1], [3, 700, 64]),
            ([6, 1], [1, 40, 64]),
            ([30, 15], [1, 70, 20]),
            ([20, 20], [2, 33, 8]),
            ([8, 4], [9, 50, 16]),
        ] {
            let key_heads = heads / shared;
            let rows = [key_heads * depth, depth, 2 * key_heads * depth];
            let dense = AttentionGeometry::dense([2, heads, shared], [queries, keys, depth, depth], 0.3, None);
            let len = keys * rows[2];
            let (q, k, v) = (random.values(2 * heads * queries * depth), random.values(len), random.values(len));
            let additive = random.values(queries * keys);
            // Values lie as keys do, or each head by itself.
            for (value_strides, mask) in [
                (rows, AttentionMask::None),
                (dense.value_strides, AttentionMask::Additive(&additive, [0, 0, keys, 1])),
            ] {
                let g = AttentionGeometry { key_strides: rows, value_strides, ..dense };
                let expected = reference(&g, [&q, &k, &v], &mask, None);
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![f32::NAN; expected.len()];
                        let mut scratch = vec![f32::NAN; attention_scratch_len(isa, &g, OperandForm::Values)];
                        attention(isa, &g, QueriesAndKeys::Values(&q, &k), &v, mask, None, &mut output, &mut scratch)
                            .unwrap();
                        output
                    };
                    let output = run();
                    assert_close(&output, &expected, 40, &format!("{isa} {g:?}"));
                    assert_eq!(output, in_pool(3, run));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn codes(seed: u64) {
            let mut random = Random::new(seed);
            let shared = random.between(1, 2);
            let heads = shared * random.between(1, 3);
            let depth = 4 * random.between(1, 20);
            let sizes = [random.between(1, 60), random.between(1, 300), depth, random.between(1, 70)];
            let causal = [None, Some(0), Some(sizes[1] as isize - 1)][random.between(0, 2)];
            let images = random.between(1, 2);
            // Steps are such that scores are not too far from each other.
            let scale = 1.0 / (4000.0 * (depth as f32).sqrt());
            let dense = AttentionGeometry::dense([images, heads, shared], sizes, scale, causal);
            let rows = |heads: usize, count: usize| [count * heads * depth, depth, heads * depth];
            let swapped = AttentionGeometry {
                query_strides: rows(heads, sizes[0]),
                key_strides: rows(heads / shared, sizes[1]),
                ..dense
            };
            let mut bytes = |len: usize| (0..len).map(|_| random.between(0, 255) as u8).collect::<Vec<_>>();
            let (q, k) = (bytes(images * dense.query_strides[0]), bytes(images * dense.key_strides[0]));
            let v = random.values(images * dense.value_strides[0]);
            let additive = random.values(sizes[0] * sizes[1]);
            let masks = [AttentionMask::None, AttentionMask::Additive(&additive, [0, 0, sizes[1], 1])];
            let zeros = [[128, 128], [0, 0], [255, 255], [3, 200], [127, 128]][random.between(0, 4)];
            let values = |codes: &[u8], zero: u8| -> Vec<f32> {
                codes.iter().map(|code| f32::from(*code) - f32::from(zero)).collect()
            };
            let (q_values, k_values) = (values(&q, zeros[0]), values(&k, zeros[1]));
            for (g, mask) in [dense, swapped].into_iter().zip(masks) {
                let expected = reference(&g, [&q_values, &k_values, &v], &mask, None);
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![f32::NAN; expected.len()];
                        let mut scratch = vec![f32::NAN; attention_scratch_len(isa, &g, OperandForm::Codes)];
                        let codes = QueriesAndKeys::Codes(&q, &k, zeros);
                        attention(isa, &g, codes, &v, mask, None, &mut output, &mut scratch).unwrap();
                        output
                    };
                    let output = run();
                    assert_close(&output, &expected, 40, &format!("{isa} {g:?} {zeros:?}"));
                    assert_eq!(output, in_pool(3, run));
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn rounded(seed: u64) {
            let mut random = Random::new(seed);
            let shared = random.between(1, 3);
            let heads = shared * random.between(1, 2);
            let depth = if random.between(0, 9) == 0 { MOST_ROUNDED + random.between(0, 1) } else { random.between(1, 70) };
            let sizes = [random.between(1, 60), random.between(1, 600), depth, random.between(1, 70)];
            let causal = [None, Some(0), Some(sizes[1] as isize - 1)][random.between(0, 2)];
            let scale = 1.0 / (depth as f32).sqrt();
            let dense = AttentionGeometry::dense([random.between(1, 2), heads, shared], sizes, scale, causal);
            // Heads side by side, as projections give them.
            let rows = |heads: usize, count: usize, columns: usize| [count * heads * columns, columns, heads * columns];
            let swapped = AttentionGeometry {
                query_strides: rows(heads, sizes[0], depth),
                key_strides: rows(heads / shared, sizes[1], depth),
                value_strides: rows(heads / shared, sizes[1], sizes[3]),
                ..dense
            };
            let (q, k) = (random.values(dense.batch * dense.query_strides[0]), random.values(dense.batch * dense.key_strides[0]));
            let v = random.values(dense.batch * dense.value_strides[0]);
            let additive = random.values(sizes[0] * sizes[1]);
            let masks = [AttentionMask::None, AttentionMask::Additive(&additive, [0, 0, sizes[1], 1])];
            for (g, mask) in [dense, swapped].into_iter().zip(masks) {
                for isa in Isa::available() {
                    let of = |operands: QueriesAndKeys<'_>| {
                        let mut output = vec![f32::NAN; g.batch * g.output_strides[0]];
                        let mut scratch = vec![f32::NAN; attention_scratch_len(isa, &g, operands.form())];
                        attention(isa, &g, operands, &v, mask, None, &mut output, &mut scratch).unwrap();
                        output
                    };
                    let run = || of(QueriesAndKeys::Rounded(&q, &k));
                    let output = run();
                    prop_assert_eq!(&output, &in_pool(3, run));
                    if !g.rounds(isa) {
                        prop_assert_eq!(output, of(QueriesAndKeys::Values(&q, &k)));
                        continue;
                    }
                    let half = |values: &[f32]| -> Vec<f32> {
                        values.iter().map(|value| half::bf16::from_f32(*value).to_f32()).collect()
                    };
                    let expected = reference(&g, [&half(&q), &half(&k), &half(&v)], &mask, None);
                    // Weights, whose sum is one, are rounded by a part of 2^-9, and values are of -1 to 1.
                    for (value, expected) in output.iter().zip(expected) {
                        prop_assert!((f64::from(*value) - expected).abs() < 2.5e-3, "{value} {expected} {g:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn codes_that_do_not_fit() {
        let isa = crate::isa::detect();
        let run = |depth: usize, k: &[u8]| {
            let g = AttentionGeometry::dense([1, 1, 1], [1, 1, depth, 1], 1.0, None);
            let mut scratch = vec![0.0; attention_scratch_len(isa, &g, OperandForm::Codes)];
            let codes = QueriesAndKeys::Codes(&[1; 8], k, [0, 0]);
            attention(isa, &g, codes, &[2.0], AttentionMask::None, None, &mut [0.0], &mut scratch)
        };
        assert_eq!(run(8, &[1; 8]), Ok(()));
        assert_eq!(run(6, &[1; 8]).map_err(|error| error.argument), Err("depth"));
        assert_eq!(run(8, &[1; 7]).map_err(|error| error.argument), Err("k"));
    }

    #[test]
    fn threads_and_blind_queries() {
        let mut random = Random::new(2);
        let g = AttentionGeometry::dense([2, 6, 1], [130, 200, 32, 32], 0.2, None);
        let (q, k, v) =
            (random.values(2 * 6 * 130 * 32), random.values(2 * 6 * 200 * 32), random.values(2 * 6 * 200 * 32));
        let isa = crate::isa::detect();
        let run = || {
            let mut output = vec![0.0; q.len()];
            let mut scratch = vec![f32::NAN; attention_scratch_len(isa, &g, OperandForm::Values)];
            attention(
                isa,
                &g,
                QueriesAndKeys::Values(&q, &k),
                &v,
                AttentionMask::None,
                None,
                &mut output,
                &mut scratch,
            )
            .unwrap();
            output
        };
        assert_eq!(run(), in_pool(3, run));
        let g = AttentionGeometry::dense([1, 1, 1], [2, 2, 1, 1], 1.0, Some(-1));
        let ones = QueriesAndKeys::Values(&[1.0; 2], &[1.0; 2]);
        let mut output = [0.0; 2];
        attention(isa, &g, ones, &[3.0, 4.0], AttentionMask::None, None, &mut output, &mut []).unwrap();
        assert!(output[0].is_nan() && output[1] == 3.0);
        let short = QueriesAndKeys::Values(&[1.0], &[1.0; 2]);
        assert!(attention(isa, &g, short, &[3.0; 2], AttentionMask::None, None, &mut output, &mut []).is_err());
        let run = |sink, output: &mut [f32]| {
            let mask = AttentionMask::None;
            attention(
                isa,
                &g,
                QueriesAndKeys::Values(&[0.0; 2], &[1.0; 2]),
                &[3.0, 4.0],
                mask,
                Some(sink),
                output,
                &mut [],
            )
        };
        run((&[0.0, f32::NEG_INFINITY][..], [0, 0, 1]), &mut output).unwrap();
        assert_eq!(output, [0.0, 3.0]);
        assert!(run((&[0.0][..], [0, 0, 1]), &mut output).is_err());
    }
}
