//! Reductions of f32 over one collapsed axis.

use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, fold_halves, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch};
use crate::tile::{SIDE, transpose};
use std::ops::RangeInclusive;

/// Values one serial sweep covers; longer contiguous axes are halved, which also keeps sums accurate.
const SWEEP: usize = 1 << 13;

/// Contiguous axes up to here are reduced for several rows at a time.
const SHORT: usize = 64;

/// Contiguous axes that are read a place of several rows at a time.
const VERY_SHORT: RangeInclusive<usize> = 2..=4;

/// Rows that are reduced together.
const ROWS: usize = 16;

/// What a reduction computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReduceOp {
    /// The sum; 0 of nothing.
    Sum,
    /// The arithmetic mean; NaN of nothing.
    Mean,
    /// The greatest, NaN if any is; minus infinity of nothing.
    Max,
    /// The least, NaN if any is; infinity of nothing.
    Min,
    /// The product; 1 of nothing.
    Product,
    /// The sum of absolute values.
    L1,
    /// The square root of the sum of squares.
    L2,
    /// The sum of squares.
    SumOfSquares,
}

/// Reduces `input`, seen as `[outer, axis, inner]`, over its middle axis into `output` `[outer, inner]`.
///
/// # Errors
/// A slice does not have the length the sizes ask for.
pub fn reduce(
    isa: Isa,
    op: ReduceOp,
    [outer, axis, inner]: [usize; 3],
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[outer, axis, inner])?)?;
    check_exact("output", output.len(), product("output", &[outer, inner])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let work = nanoseconds_for_bytes(input.len().saturating_mul(4));
    let kind = Kind::of(op);
    if axis == 1 {
        crate::parallel::parallel_chunks_mut(output, SWEEP, work, |chunk, output| {
            let values = input[chunk * SWEEP..][..output.len()].iter();
            match op {
                ReduceOp::L1 | ReduceOp::L2 => values.zip(output).for_each(|(value, output)| *output = value.abs()),
                ReduceOp::SumOfSquares => values.zip(output).for_each(|(value, output)| *output = value * value),
                _ => output.copy_from_slice(values.as_slice()),
            }
        });
        return Ok(());
    }
    let shared = SharedMut::new(output);
    if inner == 1 && VERY_SHORT.contains(&axis) {
        let span = ROWS * axis;
        parallel_for(outer.div_ceil(ROWS), (SWEEP / span).max(1), work, |range| {
            let rows = range.start * ROWS..outer.min(range.end * ROWS);
            // SAFETY: each row has a place of its own.
            let target = unsafe { shared.slice(rows.clone()) };
            dispatch(isa, Apart { kind, axis, rows: &input[rows.start * axis..], target: &mut *target });
            finish(op, target, axis);
        });
        return Ok(());
    }
    if inner == 1 && (1..=SWEEP).contains(&axis) {
        parallel_for(outer.div_ceil(ROWS), (SWEEP / (ROWS * axis)).max(1), work, |range| {
            // Most axes are short, and so are the vectors of partial results: clearing the whole would take as long as they do.
            let (mut few, mut many);
            let turned: &mut [f32] = if axis <= MOST_LANES || axis > SHORT {
                few = [0.0; MOST_LANES * ROWS];
                &mut few
            } else {
                many = [0.0; SHORT * ROWS];
                &mut many
            };
            for group in range {
                let (first, count) = (group * ROWS, ROWS.min(outer - group * ROWS));
                let rows = &input[first * axis..][..count * axis];
                // SAFETY: each row has a place of its own.
                let target = unsafe { shared.slice(first..first + count) };
                let columns = if axis <= SHORT {
                    turn(isa, &input[first * axis..], count, axis, turned);
                    Columns { kind, turned, axis, target: &mut *target }
                } else {
                    let mut partial = [0.0; ROWS * MOST_LANES];
                    let lanes = dispatch(isa, Partial { kind, rows, axis, partial: &mut partial });
                    turn(isa, &partial, count, lanes, turned);
                    Columns { kind: kind.of_partial(), turned, axis: lanes, target: &mut *target }
                };
                dispatch(isa, columns);
                finish(op, target, axis);
            }
        });
        return Ok(());
    }
    if inner == 1 {
        parallel_for(outer, (SWEEP / axis.max(1)).max(1), work, |range| {
            for row in range {
                // SAFETY: each row has a place of its own.
                let target = unsafe { shared.slice(row..row + 1) };
                target[0] = halve(isa, kind, &input[row * axis..][..axis], work / outer as u64);
                finish(op, target, axis);
            }
        });
        return Ok(());
    }
    let blocks = inner.div_ceil(256);
    parallel_for(outer * blocks, (SWEEP / (axis.max(1) * inner.min(256))).max(1), work, |range| {
        for index in range {
            let (row, first) = (index / blocks, index % blocks * 256);
            let end = inner.min(first + 256);
            // SAFETY: blocks are disjoint.
            let target = unsafe { shared.slice(row * inner + first..row * inner + end) };
            let lines = &input[row * axis * inner..][..axis * inner];
            dispatch(isa, Lines { kind, lines, inner, first, target: &mut *target });
            finish(op, target, axis);
        }
    });
    Ok(())
}

/// The sum of a slice, halved until a sweep is short; the same bits for any number of threads.
#[must_use]
pub fn sum(isa: Isa, values: &[f32]) -> f32 {
    halve(isa, Kind::Sum, values, nanoseconds_for_bytes(values.len().saturating_mul(4)))
}

/// How values combine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Max,
    Min,
    Product,
    Absolute,
    Squares,
}

impl Kind {
    fn of(op: ReduceOp) -> Self {
        match op {
            ReduceOp::Sum | ReduceOp::Mean => Self::Sum,
            ReduceOp::Max => Self::Max,
            ReduceOp::Min => Self::Min,
            ReduceOp::Product => Self::Product,
            ReduceOp::L1 => Self::Absolute,
            ReduceOp::L2 | ReduceOp::SumOfSquares => Self::Squares,
        }
    }

    fn neutral(self) -> f32 {
        match self {
            Self::Max => f32::NEG_INFINITY,
            Self::Min => f32::INFINITY,
            Self::Product => 1.0,
            _ => 0.0,
        }
    }

    /// What combines partial results.
    fn of_partial(self) -> Self {
        match self {
            Self::Absolute | Self::Squares => Self::Sum,
            _ => self,
        }
    }

    /// Combines two partial results.
    fn join(self, a: f32, b: f32) -> f32 {
        match self {
            Self::Max => {
                if a >= b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            Self::Min => {
                if a <= b || a.is_nan() {
                    a
                } else {
                    b
                }
            }
            Self::Product => a * b,
            _ => a + b,
        }
    }

    /// Joins two vectors of partial results.
    #[inline(always)]
    fn both<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F {
        self.of_partial().take(s, a, b)
    }

    /// Takes a value into a partial result.
    #[inline(always)]
    fn take<S: Simd>(self, s: S, sum: S::F, value: S::F) -> S::F {
        match self {
            Self::Sum => s.add(sum, value),
            Self::Absolute => s.add(sum, s.abs(value)),
            Self::Squares => s.fma(value, value, sum),
            Self::Product => s.mul(sum, value),
            // The partial result comes second, so that a NaN in it is kept; one in the value is chosen explicitly.
            Self::Max => s.select(s.is_nan(value), value, s.max(value, sum)),
            Self::Min => s.select(s.is_nan(value), value, s.min(value, sum)),
        }
    }
}

/// Makes results of what the values of so many places are combined to.
#[inline(always)]
fn finish(op: ReduceOp, values: &mut [f32], axis: usize) {
    match op {
        ReduceOp::Mean => values.iter_mut().for_each(|value| *value /= axis as f32),
        ReduceOp::L2 => values.iter_mut().for_each(|value| *value = value.sqrt()),
        _ => {}
    }
}

fn halve(isa: Isa, kind: Kind, values: &[f32], work: u64) -> f32 {
    let sweep = |values: &[f32]| dispatch(isa, Sweep { kind, values });
    fold_halves(values, SWEEP, kind.neutral(), work, sweep, |left, right| kind.join(left, right))
}

/// Calls a function with its kind known, so that the loops in it are made for each.
macro_rules! with_kind {
    ($given:expr, |$kind:ident| $body:expr) => {
        with_kind!($given, |$kind| $body, Sum Max Min Product Absolute Squares)
    };
    ($given:expr, |$kind:ident| $body:expr, $($name:ident)*) => {
        match $given {
            $(Kind::$name => {
                let $kind = Kind::$name;
                $body
            })*
        }
    };
}

struct Sweep<'a> {
    kind: Kind,
    values: &'a [f32],
}

impl Kernel for Sweep<'_> {
    type Output = f32;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f32 {
        let mut lanes = [0.0; MOST_LANES];
        with_kind!(self.kind, |kind| partial(s, kind, self.values, &mut lanes));
        let mut len = S::LANES;
        while len > 1 {
            len /= 2;
            for lane in 0..len {
                lanes[lane] = self.kind.join(lanes[lane], lanes[lane + len]);
            }
        }
        lanes[0]
    }
}

/// Reduces rows that follow each other to a vector of partial results each. Returns its lanes.
struct Partial<'a> {
    kind: Kind,
    rows: &'a [f32],
    axis: usize,
    partial: &'a mut [f32; ROWS * MOST_LANES],
}

impl Kernel for Partial<'_> {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        let targets = self.partial.chunks_exact_mut(S::LANES);
        with_kind!(self.kind, |kind| {
            for (row, target) in self.rows.chunks_exact(self.axis).zip(targets) {
                partial(s, kind, row, target);
            }
        });
        S::LANES
    }
}

/// Reduces values to one vector of partial results, the first of `target`, which holds one at least.
#[inline(always)]
fn partial<S: Simd>(s: S, kind: Kind, values: &[f32], target: &mut [f32]) {
    let target = &mut target[..S::LANES];
    let mut sums = [s.splat(kind.neutral()); 4];
    let blocks = values.chunks_exact(4 * S::LANES);
    let vectors = blocks.remainder().chunks_exact(S::LANES);
    for block in blocks {
        for (part, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the block holds four vectors.
            *sum = kind.take(s, *sum, unsafe { s.load(block.as_ptr().add(part * S::LANES)) });
        }
    }
    let rest = vectors.remainder();
    let [mut a, b, c, d] = sums;
    for vector in vectors {
        // SAFETY: the slice is a vector.
        a = kind.take(s, a, unsafe { s.load(vector.as_ptr()) });
    }
    let sum = kind.both(s, kind.both(s, a, b), kind.both(s, c, d));
    // SAFETY: the target holds a vector. Only lanes for which there is a value left take it.
    unsafe {
        s.store(target.as_mut_ptr(), sum);
        let last = kind.take(s, sum, s.load_partial(rest.as_ptr(), rest.len()));
        s.store_partial(target.as_mut_ptr(), last, rest.len());
    }
}

/// Turns the first `count` rows of a short axis into columns of [`ROWS`] places; those of missing rows hold anything. There is
/// room for [`SIDE`] columns at least.
fn turn(isa: Isa, rows: &[f32], count: usize, axis: usize, turned: &mut [f32]) {
    let turned = &mut turned[..axis.max(SIDE) * ROWS];
    // Of an axis that is shorter than a tile, tiles have what follows too, which the last rows lack.
    let last = (SIDE - 1) * axis + SIDE;
    let mut row = 0;
    while row + SIDE <= count && row * axis + last <= rows.len() {
        // The last places of an axis are those of a tile that has some in common with the one before.
        let last = axis.saturating_sub(SIDE);
        for step in (0..last).step_by(SIDE).chain([last]) {
            // SAFETY: the tile lies in the rows, and turned in the columns.
            unsafe {
                let from = rows.as_ptr().add(row * axis + step);
                transpose(isa, from, axis, turned.as_mut_ptr().add(step * ROWS + row), ROWS);
            }
        }
        row += SIDE;
    }
    for (row, values) in rows.chunks_exact(axis).enumerate().take(count).skip(row) {
        for (step, value) in values.iter().enumerate() {
            turned[step * ROWS + row] = *value;
        }
    }
}

/// Reduces rows of a very short axis, a vector of rows at a time.
struct Apart<'a> {
    kind: Kind,
    axis: usize,
    /// The rows, one for each place of the target, and what follows them.
    rows: &'a [f32],
    target: &'a mut [f32],
}

impl Kernel for Apart<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Apart { kind, axis, rows, target } = self;
        // What the values of the last place span begins behind those of the others.
        let span = axis - 1 + if axis == 2 { 2 * S::LANES - 1 } else { s.span_apart(axis) };
        let mut longer = [0.0; (*VERY_SHORT.end() + 1) * MOST_LANES];
        with_kind!(kind, |kind| {
            for (number, target) in target.chunks_mut(S::LANES).enumerate() {
                let rows = &rows[number * S::LANES * axis..];
                let rows = if rows.len() < span {
                    longer[..rows.len()].copy_from_slice(rows);
                    &longer
                } else {
                    rows
                };
                let mut sum = s.splat(kind.neutral());
                for place in 0..axis {
                    // SAFETY: the span of the last place ends in the rows.
                    let values = unsafe {
                        let from = rows.as_ptr().add(place);
                        if axis == 2 { s.load_even(from) } else { s.load_apart(from, axis) }
                    };
                    sum = kind.take(s, sum, values);
                }
                // SAFETY: the target has so many places.
                unsafe { s.store_partial(target.as_mut_ptr(), sum, target.len()) };
            }
        });
    }
}

/// Reduces the columns of turned rows.
struct Columns<'a> {
    kind: Kind,
    turned: &'a [f32],
    axis: usize,
    target: &'a mut [f32],
}

impl Kernel for Columns<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        with_kind!(self.kind, |kind| {
            for first in (0..self.target.len()).step_by(S::LANES) {
                let mut sum = s.splat(kind.neutral());
                for column in self.turned.as_chunks::<ROWS>().0.iter().take(self.axis) {
                    // SAFETY: a vector of places from the first on lies in the column.
                    sum = kind.take(s, sum, unsafe { s.load(column.as_ptr().add(first)) });
                }
                let count = S::LANES.min(self.target.len() - first);
                // SAFETY: `count` values from the first on lie in the target.
                unsafe { s.store_partial(self.target.as_mut_ptr().add(first), sum, count) };
            }
        });
    }
}

/// Reduces some columns of lines that follow each other.
struct Lines<'a> {
    kind: Kind,
    lines: &'a [f32],
    inner: usize,
    first: usize,
    target: &'a mut [f32],
}

impl Kernel for Lines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        with_kind!(self.kind, |kind| self.columns(s, kind));
    }
}

impl Lines<'_> {
    #[inline(always)]
    fn columns<S: Simd>(&mut self, s: S, kind: Kind) {
        let (mut at, len) = (0, self.target.len());
        while at + 8 * S::LANES <= len {
            self.side_by_side::<8, S>(s, kind, at);
            at += 8 * S::LANES;
        }
        while at + 2 * S::LANES <= len {
            self.side_by_side::<2, S>(s, kind, at);
            at += 2 * S::LANES;
        }
        while at < len {
            let count = S::LANES.min(len - at);
            self.four_lines(s, kind, at, count);
            at += count;
        }
    }

    /// Reduces whole vectors of columns that lie side by side, a partial result for each.
    #[inline(always)]
    fn side_by_side<const N: usize, S: Simd>(&mut self, s: S, kind: Kind, at: usize) {
        let mut sums = [s.splat(kind.neutral()); N];
        for line in self.lines.chunks_exact(self.inner) {
            let columns = &line[self.first + at..][..N * S::LANES];
            for (vector, sum) in sums.iter_mut().enumerate() {
                // SAFETY: the slice holds so many vectors.
                *sum = kind.take(s, *sum, unsafe { s.load(columns.as_ptr().add(vector * S::LANES)) });
            }
        }
        let target = &mut self.target[at..][..N * S::LANES];
        for (vector, sum) in sums.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { s.store(target.as_mut_ptr().add(vector * S::LANES), sum) };
        }
    }

    /// Reduces one vector of columns, every fourth line into a partial result, so that none waits for the one before.
    #[inline(always)]
    fn four_lines<S: Simd>(&mut self, s: S, kind: Kind, at: usize, count: usize) {
        let mut sums = [s.splat(kind.neutral()); 4];
        let lines = self.lines.len() / self.inner;
        for first in (0..lines).step_by(4) {
            for (line, sum) in sums.iter_mut().enumerate().take(lines - first) {
                let columns = &self.lines[(first + line) * self.inner + self.first + at..][..count];
                // SAFETY: the slice holds so many values.
                *sum = kind.take(s, *sum, unsafe { s.load_partial(columns.as_ptr(), count) });
            }
        }
        let [a, b, c, d] = sums;
        let sum = kind.both(s, kind.both(s, a, b), kind.both(s, c, d));
        let target = &mut self.target[at..][..count];
        // SAFETY: the target holds so many values.
        unsafe { s.store_partial(target.as_mut_ptr(), sum, count) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    const OPS: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Mean,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::Product,
        ReduceOp::L1,
        ReduceOp::L2,
        ReduceOp::SumOfSquares,
    ];

    fn reference(op: ReduceOp, values: impl Iterator<Item = f64> + Clone) -> f64 {
        let count = values.clone().count() as f64;
        match op {
            ReduceOp::Sum => values.sum(),
            ReduceOp::Mean => values.sum::<f64>() / count,
            ReduceOp::Max => values.fold(f64::NEG_INFINITY, f64::max),
            ReduceOp::Min => values.fold(f64::INFINITY, f64::min),
            ReduceOp::Product => values.product(),
            ReduceOp::L1 => values.map(f64::abs).sum(),
            ReduceOp::L2 => values.map(|x| x * x).sum::<f64>().sqrt(),
            ReduceOp::SumOfSquares => values.map(|x| x * x).sum(),
        }
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut random = Random::new(4);
        for sizes in [
            [1, 1, 1],
            [6, 1, 7],
            [50, 2, 1],
            [17, 3, 1],
            [32, 4, 1],
            [5000, 4, 1],
            [5, 7, 1],
            [19, 6, 1],
            [8, 6, 1],
            [40, 13, 1],
            [35, 50, 1],
            [37, 29, 1],
            [48, 64, 1],
            [2, 100, 1],
            [16, 65, 1],
            [19, 1003, 1],
            [33, 160, 1],
            [1, 8192, 1],
            [3, 4, 5],
            [1, 9, 300],
            [2, 3, 16],
            [1, 20_000, 1],
            [0, 4, 2],
        ] {
            let [outer, axis, inner] = sizes;
            let input = random.values(outer * axis * inner);
            for (isa, op) in Isa::available().flat_map(|isa| OPS.map(|op| (isa, op))) {
                let mut output = vec![f32::NAN; outer * inner];
                reduce(isa, op, sizes, &input, &mut output).unwrap();
                let expected: Vec<f64> = (0..outer * inner)
                    .map(|index| {
                        let (o, i) = (index / inner, index % inner);
                        reference(op, (0..axis).map(|a| f64::from(input[(o * axis + a) * inner + i])))
                    })
                    .collect();
                assert_close(&output, &expected, axis, &format!("{op:?} {isa} {sizes:?}"));
            }
        }
    }

    #[test]
    fn not_a_number_wins() {
        for isa in Isa::available() {
            for place in 0..170 {
                let mut input = [1.0f32; 170];
                input[place] = f32::NAN;
                for op in OPS {
                    let mut output = [0.0];
                    reduce(isa, op, [1, 170, 1], &input, &mut output).unwrap();
                    assert!(output[0].is_nan(), "{op:?} {place}");
                    let mut output = [0.0; 10];
                    reduce(isa, op, [1, 17, 10], &input, &mut output).unwrap();
                    assert!(output[place % 10].is_nan() && output.iter().filter(|value| value.is_nan()).count() == 1);
                }
            }
        }
    }

    #[test]
    fn empty_axes_and_threads() {
        let mut output = [0.0; 2];
        let isa = crate::isa::detect();
        for (op, expected) in [(ReduceOp::Sum, 0.0), (ReduceOp::Product, 1.0), (ReduceOp::Max, f32::NEG_INFINITY)] {
            reduce(isa, op, [2, 0, 1], &[], &mut output).unwrap();
            assert_eq!(output, [expected; 2]);
            reduce(isa, op, [1, 0, 2], &[], &mut output).unwrap();
            assert_eq!(output, [expected; 2]);
        }
        let input = Random::new(1).values(3_000_000);
        assert_eq!(sum(isa, &input).to_bits(), in_pool(3, || sum(isa, &input)).to_bits());
        assert!(reduce(isa, ReduceOp::Sum, [2, 2, 1], &[0.0; 3], &mut output).is_err());
    }
}
