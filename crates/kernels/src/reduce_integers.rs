//! Reductions of integers and truth values over one collapsed axis. Sums and products wrap, so any order gives the same;
//! means are those of sums that do not wrap.

use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::map::Integer;
use crate::parallel::{SharedMut, fold_halves, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Values one serial sweep covers.
const SWEEP: usize = 1 << 13;

/// Columns that are reduced together.
const BLOCK: usize = 256;

/// What a reduction of integers computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntegerReduceOp {
    /// The sum, wrapping.
    Sum,
    /// The greatest.
    Max,
    /// The least.
    Min,
    /// The product, wrapping.
    Product,
    /// The sum of magnitudes, wrapping.
    L1,
    /// 1 if no value is zero, else 0.
    And,
    /// 1 if a value is not zero, else 0.
    Or,
}

/// How a value is taken into a partial result.
trait Fold<T>: Copy + Sync {
    /// What a partial result begins with.
    fn neutral(self) -> T;
    /// The value as it counts.
    fn counted(self, value: T) -> T;
    /// Two partial results as one.
    fn join(self, a: T, b: T) -> T;
}

macro_rules! folds {
    ($($name:ident: $neutral:expr, |$x:ident| $counted:expr, |$a:ident, $b:ident| $join:expr;)*) => {
        $(#[derive(Clone, Copy)]
        struct $name;
        impl<T: Integer> Fold<T> for $name {
            #[inline(always)]
            fn neutral(self) -> T { $neutral }
            #[inline(always)]
            fn counted(self, $x: T) -> T { $counted }
            #[inline(always)]
            fn join(self, $a: T, $b: T) -> T { $join }
        })*
    };
}

folds! {
    Sum: T::default(), |x| x, |a, b| a.plus(b);
    Max: T::LEAST, |x| x, |a, b| a.max(b);
    Min: T::GREATEST, |x| x, |a, b| a.min(b);
    Product: T::of_truth(true), |x| x, |a, b| a.times(b);
    L1: T::default(), |x| x.magnitude(), |a, b| a.plus(b);
    And: T::of_truth(true), |x| T::of_truth(x.truth()), |a, b| a.min(b);
    Or: T::default(), |x| T::of_truth(x.truth()), |a, b| a.max(b);
}

/// Reduces `input`, seen as `[outer, axis, inner]`, over its middle axis into `output` `[outer, inner]`.
///
/// # Errors
/// A slice does not have the length the sizes ask for.
pub fn reduce_integers<T: Integer>(
    isa: Isa,
    op: IntegerReduceOp,
    sizes: [usize; 3],
    input: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    let [outer, axis, inner] = sizes;
    check_exact("input", input.len(), product("input", &[outer, axis, inner])?)?;
    check_exact("output", output.len(), product("output", &[outer, inner])?)?;
    if output.is_empty() {
        return Ok(());
    }
    match op {
        IntegerReduceOp::Sum => fold(isa, Sum, sizes, input, output),
        IntegerReduceOp::Max => fold(isa, Max, sizes, input, output),
        IntegerReduceOp::Min => fold(isa, Min, sizes, input, output),
        IntegerReduceOp::Product => fold(isa, Product, sizes, input, output),
        IntegerReduceOp::L1 => fold(isa, L1, sizes, input, output),
        IntegerReduceOp::And => fold(isa, And, sizes, input, output),
        IntegerReduceOp::Or => fold(isa, Or, sizes, input, output),
    }
    Ok(())
}

fn fold<T: Integer, F: Fold<T>>(isa: Isa, fold: F, [outer, axis, inner]: [usize; 3], input: &[T], output: &mut [T]) {
    let work = nanoseconds_for_bytes(input.len().saturating_mul(size_of::<T>()));
    let shared = SharedMut::new(output);
    if inner == 1 {
        parallel_for(outer, (SWEEP / axis.max(1)).max(1), work, |range| {
            // SAFETY: each row has a place of its own.
            let target = unsafe { shared.slice(range.clone()) };
            if axis <= SWEEP {
                dispatch(isa, Rows { fold, axis, input: &input[range.start * axis..range.end * axis], target });
                return;
            }
            for (row, target) in range.zip(target) {
                *target = halve(isa, fold, &input[row * axis..][..axis], work / outer as u64);
            }
        });
        return;
    }
    let blocks = inner.div_ceil(BLOCK);
    parallel_for(outer * blocks, (SWEEP / (axis.max(1) * inner.min(BLOCK))).max(1), work, |range| {
        for index in range {
            let (row, first) = (index / blocks, index % blocks * BLOCK);
            let end = inner.min(first + BLOCK);
            // SAFETY: blocks are disjoint.
            let target = unsafe { shared.slice(row * inner + first..row * inner + end) };
            let lines = &input[row * axis * inner..][..axis * inner];
            dispatch(isa, Columns { fold, lines, inner, first, target });
        }
    });
}

/// An integer whose sums have a type in which they do not wrap.
pub trait Summed: Integer {
    /// The type of sums.
    type Sum: Copy + Default + Send + Sync;
    /// Words as sums.
    fn sums(words: &mut [i64]) -> &mut [Self::Sum];
    /// A number as a sum.
    fn widened(self) -> Self::Sum;
    /// Two sums.
    fn plus_sum(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// A sum divided by the number of its numbers, at least one, and rounded towards zero.
    fn mean(sum: Self::Sum, count: usize) -> Self;
}

macro_rules! summed {
    ($($type:ty),*) => {
        $(impl Summed for $type {
            type Sum = i64;
            fn sums(words: &mut [i64]) -> &mut [i64] { words }
            #[inline(always)]
            fn widened(self) -> i64 { i64::from(self) }
            #[inline(always)]
            fn plus_sum(a: i64, b: i64) -> i64 { a.wrapping_add(b) }
            #[inline(always)]
            fn mean(sum: i64, count: usize) -> Self { (sum / count.max(1) as i64) as $type }
        })*
    };
}
// A sum of 64 bits holds 2^32 of the greatest numbers of 32 bits: 16 GiB of them.
summed!(u8, i8, i32);

/// The sums of both halves: 2^31 numbers of 64 bits would be needed for one of them to wrap.
impl Summed for i64 {
    type Sum = [i64; 2];
    fn sums(words: &mut [i64]) -> &mut [[i64; 2]] {
        words.as_chunks_mut().0
    }
    #[inline(always)]
    fn widened(self) -> [i64; 2] {
        [self >> 32, self & 0xffff_ffff]
    }
    #[inline(always)]
    fn plus_sum(a: [i64; 2], b: [i64; 2]) -> [i64; 2] {
        [a[0].wrapping_add(b[0]), a[1].wrapping_add(b[1])]
    }
    #[inline(always)]
    fn mean([high, low]: [i64; 2], count: usize) -> Self {
        let sum = (i128::from(high) << 32) + i128::from(low);
        // Processors divide numbers of 64 bits; those of 128 are divided by a call.
        match (i64::try_from(sum), i64::try_from(count.max(1))) {
            (Ok(sum), Ok(count)) => sum / count,
            _ => (sum / count.max(1) as i128) as i64,
        }
    }
}

/// The words of scratch that [`reduce_mean_integers`] needs for so many sums between its steps.
#[must_use]
pub fn mean_scratch_len<T: Summed>(sums: usize) -> usize {
    sums.saturating_mul(size_of::<T::Sum>() / size_of::<i64>())
}

/// The means of `input` over one axis after the other, rounded towards zero: in each of the steps `[outer, axis, inner]` the
/// middle axis of what the step before left goes, and the last one leaves `output`. Means of nothing are zero.
///
/// # Errors
/// A slice does not have the length the sizes ask for, or there is no step.
pub fn reduce_mean_integers<T: Summed>(
    isa: Isa,
    steps: &[[usize; 3]],
    input: &[T],
    output: &mut [T],
    scratch: &mut [i64],
) -> Result<(), KernelError> {
    let scratch = T::sums(scratch);
    check_len("scratch", scratch.len(), left_between(steps))?;
    let count = steps.iter().fold(1, |count: usize, [_, axis, _]| count.saturating_mul(*axis));
    let (nothing, sum) = (T::Sum::default(), |a, b: T| T::plus_sum(a, b.widened()));
    let [first, rest @ ..] = steps else { return Err(KernelError::invalid("steps", "there is none")) };
    let Some((last, rest)) = rest.split_last() else {
        return Sums { nothing, add: sum, join: T::plus_sum, finish: |sum| T::mean(sum, count) }
            .run(isa, *first, input, output);
    };
    let (mut sums, mut scratch) = scratch.split_at_mut(first[0] * first[2]);
    Sums { nothing, add: sum, join: T::plus_sum, finish: |sum| sum }.run(isa, *first, input, sums)?;
    for step in rest {
        let (next, behind) = scratch.split_at_mut(step[0] * step[2]);
        Sums { nothing, add: T::plus_sum, join: T::plus_sum, finish: |sum| sum }.run(isa, *step, sums, next)?;
        (sums, scratch) = (next, behind);
    }
    Sums { nothing, add: T::plus_sum, join: T::plus_sum, finish: |sum| T::mean(sum, count) }
        .run(isa, *last, sums, output)
}

/// The elements that all steps but the last one of a reduction leave.
#[must_use]
pub fn left_between(steps: &[[usize; 3]]) -> usize {
    let [before @ .., _] = steps else { return 0 };
    before.iter().map(|[outer, _, inner]| outer.saturating_mul(*inner)).fold(0, usize::saturating_add)
}

/// How values are summed: the sum of none, a value onto a sum, two sums, and what is kept of a sum.
#[derive(Clone, Copy)]
struct Sums<S, A, J, F> {
    nothing: S,
    add: A,
    join: J,
    finish: F,
}

impl<S: Copy + Send + Sync, A, J, F> Sums<S, A, J, F> {
    /// Sums `input`, seen as `[outer, axis, inner]`, over its middle axis.
    fn run<V: Copy + Sync, R: Send>(
        self,
        isa: Isa,
        [outer, axis, inner]: [usize; 3],
        input: &[V],
        output: &mut [R],
    ) -> Result<(), KernelError>
    where
        A: Fn(S, V) -> S + Copy + Sync,
        J: Fn(S, S) -> S + Copy + Sync,
        F: Fn(S) -> R + Copy + Sync,
    {
        check_exact("input", input.len(), product("input", &[outer, axis, inner])?)?;
        check_exact("output", output.len(), product("output", &[outer, inner])?)?;
        if output.is_empty() {
            return Ok(());
        }
        let work = nanoseconds_for_bytes(input.len().saturating_mul(size_of::<i64>()));
        let shared = SharedMut::new(output);
        let blocks = inner.div_ceil(BLOCK);
        parallel_for(outer * blocks, (SWEEP / (axis.max(1) * inner.min(BLOCK))).max(1), work, |range| {
            if inner > 1 {
                for index in range {
                    let (row, first) = (index / blocks, index % blocks * BLOCK);
                    let end = inner.min(first + BLOCK);
                    // SAFETY: blocks are disjoint.
                    let target = unsafe { shared.slice(row * inner + first..row * inner + end) };
                    let lines = &input[row * axis * inner..][..axis * inner];
                    dispatch(isa, ColumnSums { rule: self, lines, inner, first, target });
                }
                return;
            }
            let rows = &input[range.start * axis..range.end * axis];
            // SAFETY: each row has a place of its own.
            let target = unsafe { shared.slice(range.clone()) };
            if axis <= SWEEP {
                dispatch(isa, RowSums { rule: self, axis, rows, target });
                return;
            }
            for (values, target) in rows.chunks_exact(axis).zip(target) {
                let sum = |values: &[V]| {
                    let mut sums = [self.nothing];
                    let rule = Sums { nothing: self.nothing, add: self.add, join: self.join, finish: |sum| sum };
                    dispatch(isa, RowSums { rule, axis: values.len(), rows: values, target: &mut sums });
                    sums[0]
                };
                *target = (self.finish)(fold_halves(values, SWEEP, self.nothing, work / outer as u64, sum, self.join));
            }
        });
        Ok(())
    }
}

/// The sums of rows that follow each other.
struct RowSums<'a, V, R, S, A, J, F> {
    rule: Sums<S, A, J, F>,
    axis: usize,
    rows: &'a [V],
    target: &'a mut [R],
}

impl<V: Copy, S: Copy, R, A: Fn(S, V) -> S, J: Fn(S, S) -> S, F: Fn(S) -> R> Kernel for RowSums<'_, V, R, S, A, J, F> {
    type Output = ();
    #[inline(always)]
    fn run<I: Simd>(self, _simd: I) {
        let RowSums { rule, axis, rows, target } = self;
        for (row, target) in target.iter_mut().enumerate() {
            let values = &rows[row * axis..][..axis];
            *target = (rule.finish)(values.iter().fold(rule.nothing, |sum, value| (rule.add)(sum, *value)));
        }
    }
}

/// The sums of some neighbouring columns.
struct ColumnSums<'a, V, R, S, A, J, F> {
    rule: Sums<S, A, J, F>,
    lines: &'a [V],
    inner: usize,
    first: usize,
    target: &'a mut [R],
}

impl<V: Copy, S: Copy, R, A: Fn(S, V) -> S, J: Fn(S, S) -> S, F: Fn(S) -> R> Kernel
    for ColumnSums<'_, V, R, S, A, J, F>
{
    type Output = ();
    #[inline(always)]
    fn run<I: Simd>(self, _simd: I) {
        let ColumnSums { rule, lines, inner, first, target } = self;
        let mut sums = [rule.nothing; BLOCK];
        let sums = &mut sums[..target.len()];
        for line in lines.chunks_exact(inner) {
            for (sum, value) in sums.iter_mut().zip(&line[first..]) {
                *sum = (rule.add)(*sum, *value);
            }
        }
        for (target, sum) in target.iter_mut().zip(sums) {
            *target = (rule.finish)(*sum);
        }
    }
}

/// Reduces a long row by halves, so that threads share it.
fn halve<T: Integer, F: Fold<T>>(isa: Isa, fold: F, values: &[T], work: u64) -> T {
    let sweep = |values: &[T]| {
        let mut result = [fold.neutral()];
        dispatch(isa, Rows { fold, axis: values.len(), input: values, target: &mut result });
        result[0]
    };
    fold_halves(values, SWEEP, fold.neutral(), work, sweep, |left, right| fold.join(left, right))
}

/// Rows that follow each other.
struct Rows<'a, T, F> {
    fold: F,
    axis: usize,
    input: &'a [T],
    target: &'a mut [T],
}

impl<T: Integer, F: Fold<T>> Kernel for Rows<'_, T, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Rows { fold, axis, input, target } = self;
        for (row, target) in target.iter_mut().enumerate() {
            let values = &input[row * axis..][..axis];
            *target = values.iter().fold(fold.neutral(), |sum, value| fold.join(sum, fold.counted(*value)));
        }
    }
}

/// Some neighbouring columns.
struct Columns<'a, T, F> {
    fold: F,
    lines: &'a [T],
    inner: usize,
    first: usize,
    target: &'a mut [T],
}

impl<T: Integer, F: Fold<T>> Kernel for Columns<'_, T, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Columns { fold, lines, inner, first, target } = self;
        target.fill(fold.neutral());
        for line in lines.chunks_exact(inner) {
            for (target, value) in target.iter_mut().zip(&line[first..]) {
                *target = fold.join(*target, fold.counted(*value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    const OPS: [IntegerReduceOp; 7] = [
        IntegerReduceOp::Sum,
        IntegerReduceOp::Max,
        IntegerReduceOp::Min,
        IntegerReduceOp::Product,
        IntegerReduceOp::L1,
        IntegerReduceOp::And,
        IntegerReduceOp::Or,
    ];

    fn expected(op: IntegerReduceOp, values: impl Iterator<Item = i128>) -> i128 {
        let values: Vec<i128> = values.collect();
        match op {
            IntegerReduceOp::Sum => values.iter().sum(),
            IntegerReduceOp::Max => *values.iter().max().unwrap(),
            IntegerReduceOp::Min => *values.iter().min().unwrap(),
            IntegerReduceOp::Product => values.iter().fold(1, |a, b| a.wrapping_mul(*b)),
            IntegerReduceOp::L1 => values.iter().map(|x| x.abs()).sum(),
            IntegerReduceOp::And => i128::from(values.iter().all(|x| *x != 0)),
            IntegerReduceOp::Or => i128::from(values.iter().any(|x| *x != 0)),
        }
    }

    fn check<T: Summed + std::fmt::Debug>(
        random: &mut Random,
        make: fn(u64) -> T,
        wide: fn(T) -> i128,
        cut: fn(i128) -> T,
    ) {
        for [outer, axis, inner] in [[3, 7, 1], [1, 40_000, 1], [2, 5, 300], [1, 1, 4], [4, 33, 2]] {
            let input: Vec<T> = (0..outer * axis * inner).map(|_| make(random.next())).collect();
            for op in OPS {
                let line = |place: usize| {
                    let (row, lane) = (place / inner, place % inner);
                    let (input, inner) = (&input, inner);
                    (0..axis).map(move |step| wide(input[(row * axis + step) * inner + lane]))
                };
                let expected: Vec<T> = (0..outer * inner).map(|place| cut(expected(op, line(place)))).collect();
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![T::default(); outer * inner];
                        reduce_integers(isa, op, [outer, axis, inner], &input, &mut output).unwrap();
                        output
                    };
                    assert_eq!(run(), expected, "{op:?}");
                    assert_eq!(in_pool(2, run), expected, "{op:?}");
                }
            }
            let line =
                |place: usize| (0..axis).map(move |step| ((place / inner) * axis + step) * inner + place % inner);
            let mean = |place: usize| cut(line(place).map(|index| wide(input[index])).sum::<i128>() / axis as i128);
            let expected: Vec<T> = (0..outer * inner).map(mean).collect();
            for isa in Isa::available() {
                let run = || {
                    let mut output = vec![T::default(); outer * inner];
                    reduce_mean_integers(isa, &[[outer, axis, inner]], &input, &mut output, &mut []).unwrap();
                    output
                };
                assert_eq!(run(), expected);
                assert_eq!(in_pool(2, run), expected);
            }
        }
    }

    /// Means of `[a, b, c, d, e]` over b and d, and over a, c and e.
    fn means_over_separate_axes<T: Summed + std::fmt::Debug>(
        random: &mut Random,
        make: fn(u64) -> T,
        wide: fn(T) -> i128,
        cut: fn(i128) -> T,
    ) {
        for [a, b, c, d, e] in [[2, 3, 5, 7, 1], [1, 4, 300, 2, 3], [3, 1, 2, 9000, 1]] {
            let input: Vec<T> = (0..a * b * c * d * e).map(|_| make(random.next())).collect();
            let inner: &[[usize; 3]] = &[[a * b * c, d, e], [a, b, c * e]];
            let outer: &[[usize; 3]] = &[[a * b * c * d, e, 1], [a * b, c, d], [1, a, b * d]];
            for (steps, kept) in [(inner, [true, false, true, false, true]), (outer, [false, true, false, true, false])]
            {
                let [last_outer, _, last_inner] = steps[steps.len() - 1];
                let mut sums = vec![0; last_outer * last_inner];
                for (index, value) in input.iter().enumerate() {
                    let (mut rest, mut place, mut stride) = (index, 0, 1);
                    for (size, kept) in [a, b, c, d, e].into_iter().zip(kept).rev() {
                        if kept {
                            place += rest % size * stride;
                            stride *= size;
                        }
                        rest /= size;
                    }
                    sums[place] += wide(*value);
                }
                let count = (input.len() / sums.len()) as i128;
                let expected: Vec<T> = sums.iter().map(|sum| cut(sum / count)).collect();
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![T::default(); sums.len()];
                        let mut scratch = vec![7; mean_scratch_len::<T>(left_between(steps))];
                        reduce_mean_integers(isa, steps, &input, &mut output, &mut scratch).unwrap();
                        output
                    };
                    assert_eq!(run(), expected);
                    assert_eq!(in_pool(2, run), expected);
                }
            }
        }
    }

    #[test]
    fn every_operation() {
        let mut random = Random::new(41);
        check(&mut random, |x| x as i32, i128::from, |x| x as i32);
        check(&mut random, |x| x.wrapping_mul(0x1_0000_0001) as i64, i128::from, |x| x as i64);
        check(&mut random, |x| x as i64 % 2001 - 1000, i128::from, |x| x as i64);
        check(&mut random, |x| x as u8 % 3, i128::from, |x| x as u8);
        check(&mut random, |x| x as i8, i128::from, |x| x as i8);
        means_over_separate_axes(&mut random, |x| x as i8, i128::from, |x| x as i8);
        means_over_separate_axes(&mut random, |x| x as i32, i128::from, |x| x as i32);
        means_over_separate_axes(&mut random, |x| x.wrapping_mul(0x1_0000_0001) as i64, i128::from, |x| x as i64);
        assert!(reduce_mean_integers(Isa::portable(), &[], &[1], &mut [0], &mut []).is_err());
        assert!(reduce_mean_integers(Isa::portable(), &[[2, 1, 1], [1, 2, 1]], &[1, 2], &mut [0], &mut [0]).is_err());
        assert!(reduce_integers(Isa::portable(), IntegerReduceOp::Sum, [1, 2, 1], &[1], &mut [0]).is_err());
    }
}
