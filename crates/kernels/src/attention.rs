//! Scaled dot-product attention in tiles: `softmax(Q K^T * scale + mask) V` without the whole score matrix.
//!
//! Each task owns a tile of queries and walks the keys in tiles, keeping for every query the greatest score so far, the
//! sum of exponentials and the weighted sum of values, which it rescales when the greatest score grows.

use crate::epilogue::Epilogue;
use crate::error::{KernelError, check_len, span};
use crate::gemm::{Block, Left, MOST_ROWS, Small, Unpacked};
use crate::isa::Isa;
use crate::math::exp;
use crate::parallel::{SharedMut, nanoseconds_for_flops, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;

/// Queries in one tile.
const QUERIES: usize = 64;

/// Keys in one tile.
const KEYS: usize = 128;

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

    fn check(&self, q: usize, k: usize, v: usize, mask: &AttentionMask<'_>, output: usize) -> Result<(), KernelError> {
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

/// Attention of all heads. A query that sees no key gives NaN, as the softmax of nothing does. No scratch is needed.
///
/// # Errors
/// A slice is shorter than the geometry needs, or rows of the result overlap.
pub fn attention(
    isa: Isa,
    geometry: &AttentionGeometry,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    mask: AttentionMask<'_>,
    output: &mut [f32],
) -> Result<(), KernelError> {
    attention_with_sink(isa, geometry, q, k, v, mask, None, output)
}

/// As [`attention`], with a score of each query for a key without a value, which takes its share of the weights: the sink, and
/// its strides `[batch, head, row]`. A query that sees no key gives zeros.
///
/// # Errors
/// A slice is shorter than the geometry needs, or rows of the result overlap.
#[expect(clippy::too_many_arguments, reason = "the operands of one operation")]
pub fn attention_with_sink(
    isa: Isa,
    geometry: &AttentionGeometry,
    q: &[f32],
    k: &[f32],
    v: &[f32],
    mask: AttentionMask<'_>,
    sink: Option<(&[f32], [usize; 3])>,
    output: &mut [f32],
) -> Result<(), KernelError> {
    geometry.check(q.len(), k.len(), v.len(), &mask, output.len())?;
    if let Some((values, strides)) = sink {
        let sizes = [geometry.batch, geometry.heads, geometry.queries];
        check_len("sink", values.len(), span("sink", &[0, 1, 2].map(|axis| (sizes[axis], strides[axis])))?)?;
    }
    let AttentionGeometry { batch, heads, queries, keys, depth, value_depth, .. } = *geometry;
    if batch == 0 || heads == 0 || queries == 0 || value_depth == 0 {
        return Ok(());
    }
    let tiles = queries.div_ceil(QUERIES);
    let flops = crate::gemm::flops(batch * heads, queries, depth + value_depth, keys);
    let shared = SharedMut::new(output);
    parallel_for(batch * heads * tiles, 1, nanoseconds_for_flops(flops), |range| {
        for task in range {
            let (rest, tile) = (task / tiles, task % tiles);
            let (image, head) = (rest / heads, rest % heads);
            let task = Task { isa, geometry, q, k, v, mask, sink, output: &shared, image, head };
            let first = tile * QUERIES;
            // SAFETY: lengths were checked, and tasks own disjoint rows of the result.
            unsafe { task.run(first, QUERIES.min(queries - first)) };
        }
    });
    Ok(())
}

struct Task<'a> {
    isa: Isa,
    geometry: &'a AttentionGeometry,
    q: &'a [f32],
    k: &'a [f32],
    v: &'a [f32],
    mask: AttentionMask<'a>,
    sink: Option<(&'a [f32], [usize; 3])>,
    output: &'a SharedMut<'a, f32>,
    image: usize,
    head: usize,
}

impl Task<'_> {
    /// Computes a tile of queries.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches these rows of the result.
    unsafe fn run(&self, first: usize, count: usize) {
        let g = self.geometry;
        let key_head = self.head / g.heads_per_key_head;
        let at = |strides: [usize; 3], head: usize| self.image * strides[0] + head * strides[1];
        let query = at(g.query_strides, self.head) + first * g.query_strides[2];
        let target = at(g.output_strides, self.head) + first * g.output_strides[2];
        // SAFETY: the rows lie in the result.
        let target = unsafe { self.output.pointer().add(target) };
        for row in 0..count {
            // SAFETY: the row's columns lie in the result.
            unsafe { target.add(row * g.output_strides[2]).write_bytes(0, g.value_depth) };
        }
        let mut scores = MaybeUninit::<[f32; QUERIES * KEYS]>::uninit();
        // SAFETY: the part that becomes a slice is written first.
        let scores = unsafe {
            let pointer = scores.as_mut_ptr().cast::<f32>();
            pointer.write_bytes(0, count * KEYS);
            std::slice::from_raw_parts_mut(pointer, count * KEYS)
        };
        let (mut tops, mut sums) = ([f32::NEG_INFINITY; QUERIES], [0.0f32; QUERIES]);
        if let Some((values, strides)) = self.sink {
            let start = self.image * strides[0] + self.head * strides[1];
            for row in 0..count {
                tops[row] = values[start + (first + row) * strides[2]];
                sums[row] = if tops[row] == f32::NEG_INFINITY { 0.0 } else { 1.0 };
            }
        }
        let visible = g.causal.map_or(g.keys, |offset| {
            usize::try_from(((first + count) as isize).saturating_add(offset)).unwrap_or(0).min(g.keys)
        });
        for start in (0..visible).step_by(KEYS) {
            let keys = KEYS.min(visible - start);
            let key = at(g.key_strides, key_head) + start * g.key_strides[2];
            let value = at(g.value_strides, key_head) + start * g.value_strides[2];
            // SAFETY: the tile of scores holds the product, and the operands were checked.
            unsafe { self.score(query, key, count, keys, scores) };
            for row in 0..count {
                let line = &mut scores[row * KEYS..][..keys];
                let scale = self.mask_line(first + row, start, line);
                let call = Line { line, top: tops[row], scale };
                let (top, sum, shrink) = dispatch(self.isa, call);
                (tops[row], sums[row]) = (top, sums[row] * shrink + sum);
                if shrink != 1.0 {
                    // SAFETY: the row's columns lie in the result, and no other reference to them exists.
                    unsafe { scale_row(target.add(row * g.output_strides[2]), g.value_depth, shrink) };
                }
            }
            // SAFETY: the rows of the result hold the product, and the operands were checked.
            unsafe { self.add_values(value, count, keys, scores, target) };
        }
        for row in 0..count {
            // SAFETY: as above.
            unsafe { scale_row(target.add(row * g.output_strides[2]), g.value_depth, 1.0 / sums[row]) };
        }
    }

    /// Writes the products of queries and keys that begin at these places, unscaled.
    ///
    /// # Safety
    /// The lengths were checked.
    unsafe fn score(&self, query: usize, key: usize, count: usize, keys: usize, scores: &mut [f32]) {
        let g = self.geometry;
        let (q, k) = (from(self.q, query), from(self.k, key));
        let c = scores.as_mut_ptr();
        if count <= MOST_ROWS {
            scores.fill(0.0);
            let product = Small {
                m: count,
                k: g.depth,
                n: keys,
                a: q.as_ptr(),
                a_row: g.query_strides[2],
                b: k.as_ptr(),
                b_row: 1,
                b_column: g.key_strides[2],
                c,
                c_row: KEYS,
            };
            // SAFETY: the caller's promise, and columns of K are contiguous along the shared axis.
            unsafe { product.run(self.isa) };
            return;
        }
        let right = Unpacked { values: k, columns: keys, row_stride: 1, column_stride: g.key_strides[2] };
        let left = Left::in_place(self.isa, q, count, g.query_strides[2]);
        let (isa, epilogue) = (self.isa, &Epilogue::default());
        let product = Block { isa, k: g.depth, left, right: &right, c, c_row: KEYS, accumulate: false, epilogue };
        // SAFETY: the caller's promise.
        unsafe { product.run(0..count, 0..keys) };
    }

    /// Adds the values that begin at this place, weighted by the scores, to rows of the result.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches the rows.
    unsafe fn add_values(&self, value: usize, count: usize, keys: usize, scores: &[f32], c: *mut f32) {
        let g = self.geometry;
        let v = from(self.v, value);
        let (isa, c_row) = (self.isa, g.output_strides[2]);
        if count <= MOST_ROWS {
            let product = Small {
                m: count,
                k: keys,
                n: g.value_depth,
                a: scores.as_ptr(),
                a_row: KEYS,
                b: v.as_ptr(),
                b_row: g.value_strides[2],
                b_column: 1,
                c,
                c_row,
            };
            // SAFETY: the caller's promise, and rows of V are contiguous.
            unsafe { product.run(isa) };
            return;
        }
        let right = Unpacked { values: v, columns: g.value_depth, row_stride: g.value_strides[2], column_stride: 1 };
        let left = Left::in_place(isa, scores, count, KEYS);
        let epilogue = &Epilogue::default();
        let product = Block { isa, k: keys, left, right: &right, c, c_row, accumulate: true, epilogue };
        // SAFETY: the caller's promise.
        unsafe { product.run(0..count, 0..g.value_depth) };
    }

    /// Scales a line of scores and adds the mask. Where nothing is added, the line stays as it is and the factor that it
    /// lacks is returned.
    fn mask_line(&self, query: usize, start: usize, line: &mut [f32]) -> f32 {
        let g = self.geometry;
        let seen = g.causal.map_or(line.len(), |causal| {
            usize::try_from((query as isize + 1 - start as isize).saturating_add(causal)).unwrap_or(0)
        });
        if self.mask == AttentionMask::None && seen >= line.len() && g.scale > 0.0 {
            return g.scale;
        }
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
                for (index, score) in line.iter_mut().enumerate() {
                    if values[index * strides[3]] == 0 {
                        *score = f32::NEG_INFINITY;
                    }
                }
            }
        }
        line.iter_mut().skip(seen).for_each(|score| *score = f32::NEG_INFINITY);
        1.0
    }
}

/// Replaces a line of scores, which lack a positive factor, by exponentials relative to the greatest so far. Returns that,
/// the sum of the line, and the factor by which what was summed before shrinks.
struct Line<'a> {
    line: &'a mut [f32],
    top: f32,
    scale: f32,
}

impl Kernel for Line<'_> {
    type Output = (f32, f32, f32);
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> (f32, f32, f32) {
        let len = self.line.len();
        let pointer = self.line.as_mut_ptr();
        let whole = len - len % S::LANES;
        let mut greatest = s.splat(f32::NEG_INFINITY);
        let mut index = 0;
        // SAFETY: every access stays within the line.
        unsafe {
            while index < whole {
                greatest = s.max(greatest, s.load(pointer.add(index)));
                index += S::LANES;
            }
            let mut top = s.reduce_max(greatest);
            for index in whole..len {
                top = top.max(*pointer.add(index));
            }
            let top = self.top.max(top * self.scale);
            let shift = if top == f32::NEG_INFINITY { 0.0 } else { top };
            let (factor, offset) = (s.splat(self.scale), s.splat(-shift));
            let mut sums = s.splat(0.0);
            let mut index = 0;
            while index < whole {
                let power = exp(s, s.fma(s.load(pointer.add(index)), factor, offset));
                s.store(pointer.add(index), power);
                sums = s.add(sums, power);
                index += S::LANES;
            }
            let mut sum = s.reduce_add(sums);
            if whole < len {
                let power = exp(s, s.fma(s.load_partial(pointer.add(whole), len - whole), factor, offset));
                s.store_partial(pointer.add(whole), power, len - whole);
                for value in &self.line[whole..] {
                    sum += value;
                }
            }
            let mut lanes = [0.0f32; 16];
            s.store(lanes.as_mut_ptr(), exp(s, s.splat(self.top - shift)));
            let shrink = if self.top == top && top != f32::NEG_INFINITY { 1.0 } else { lanes[0] };
            (top, sum, shrink)
        }
    }
}

/// # Safety
/// The values are writable and nobody else uses them.
unsafe fn scale_row(pointer: *mut f32, len: usize, factor: f32) {
    // SAFETY: the caller's promise.
    for value in unsafe { std::slice::from_raw_parts_mut(pointer, len) } {
        *value *= factor;
    }
}

/// The slice from an offset on; empty where an operand without elements has strides nevertheless.
fn from(values: &[f32], offset: usize) -> &[f32] {
    values.get(offset..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn reference(g: &AttentionGeometry, q: &[f32], k: &[f32], v: &[f32], mask: &AttentionMask<'_>) -> Vec<f64> {
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
            let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = scores.iter().map(|score| (score - top).exp()).sum();
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
            let sizes = [random.between(1, 80), random.between(1, 300), random.between(1, 40), random.between(1, 40)];
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
            ];
            for mask in masks {
                let expected = reference(&g, &q, &k, &v, &mask);
                for isa in Isa::available() {
                    let mut output = vec![f32::NAN; expected.len()];
                    attention(isa, &g, &q, &k, &v, mask, &mut output).unwrap();
                    assert_close(&output, &expected, 40, &format!("{isa} {g:?}"));
                }
            }
        }
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
            attention(isa, &g, &q, &k, &v, AttentionMask::None, &mut output).unwrap();
            output
        };
        assert_eq!(run(), in_pool(3, run));
        let g = AttentionGeometry::dense([1, 1, 1], [2, 2, 1, 1], 1.0, Some(-1));
        let mut output = [0.0; 2];
        attention(isa, &g, &[1.0; 2], &[1.0; 2], &[3.0, 4.0], AttentionMask::None, &mut output).unwrap();
        assert!(output[0].is_nan() && output[1] == 3.0);
        assert!(attention(isa, &g, &[1.0], &[1.0; 2], &[3.0; 2], AttentionMask::None, &mut output).is_err());
    }
}
