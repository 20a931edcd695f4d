//! Reductions of integers and truth values over one collapsed axis. Sums and products wrap, so any order gives the same;
//! means are those of sums that do not wrap.

use crate::error::{KernelError, check_exact, product};
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
    /// A sum and a number.
    fn plus_number(sum: Self::Sum, number: Self) -> Self::Sum;
    /// Two sums.
    fn plus_sum(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    /// A sum divided by the number of its numbers, at least one, and rounded towards zero.
    fn mean(sum: Self::Sum, count: usize) -> Self;
}

macro_rules! summed {
    ($($type:ty: $sum:ty),*) => {
        $(impl Summed for $type {
            type Sum = $sum;
            #[inline(always)]
            fn plus_number(sum: $sum, number: Self) -> $sum { sum.wrapping_add(<$sum>::from(number)) }
            #[inline(always)]
            fn plus_sum(a: $sum, b: $sum) -> $sum { a.wrapping_add(b) }
            #[inline(always)]
            fn mean(sum: $sum, count: usize) -> Self { (sum / count.max(1) as $sum) as $type }
        })*
    };
}
// A sum of 64 bits holds 2^32 of the greatest numbers of 32 bits: a row of 16 GiB.
summed!(u8: i64, i8: i64, i32: i64);

/// The sums of both halves: a row would need 2^31 numbers of 64 bits for one of them to wrap.
impl Summed for i64 {
    type Sum = [i64; 2];
    #[inline(always)]
    fn plus_number([high, low]: [i64; 2], number: Self) -> [i64; 2] {
        [high.wrapping_add(number >> 32), low.wrapping_add(number & 0xffff_ffff)]
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

/// The means of `input`, seen as `[outer, axis, inner]`, over its middle axis, rounded towards zero, into `output`
/// `[outer, inner]`. Means of nothing are zero.
///
/// # Errors
/// A slice does not have the length the sizes ask for.
pub fn reduce_mean_integers<T: Summed>(
    isa: Isa,
    [outer, axis, inner]: [usize; 3],
    input: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
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
                dispatch(isa, ColumnMeans { lines, axis, inner, first, target });
            }
            return;
        }
        // SAFETY: each row has a place of its own.
        let target = unsafe { shared.slice(range.clone()) };
        for (row, target) in range.zip(target) {
            let sum = |values: &[T]| dispatch(isa, RowSum(values));
            let values = &input[row * axis..][..axis];
            let total = if axis <= SWEEP {
                sum(values)
            } else {
                fold_halves(values, SWEEP, T::Sum::default(), work / outer as u64, sum, T::plus_sum)
            };
            *target = T::mean(total, axis);
        }
    });
    Ok(())
}

/// The sum of a row.
struct RowSum<'a, T>(&'a [T]);

impl<T: Summed> Kernel for RowSum<'_, T> {
    type Output = T::Sum;
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> T::Sum {
        let mut sum = T::Sum::default();
        for value in self.0 {
            sum = T::plus_number(sum, *value);
        }
        sum
    }
}

/// The means of some neighbouring columns.
struct ColumnMeans<'a, T> {
    lines: &'a [T],
    axis: usize,
    inner: usize,
    first: usize,
    target: &'a mut [T],
}

impl<T: Summed> Kernel for ColumnMeans<'_, T> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let ColumnMeans { lines, axis, inner, first, target } = self;
        let mut sums = [T::Sum::default(); BLOCK];
        let sums = &mut sums[..target.len()];
        for line in lines.chunks_exact(inner) {
            for (sum, value) in sums.iter_mut().zip(&line[first..]) {
                *sum = T::plus_number(*sum, *value);
            }
        }
        for (target, sum) in target.iter_mut().zip(sums) {
            *target = T::mean(*sum, axis);
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
                    reduce_mean_integers(isa, [outer, axis, inner], &input, &mut output).unwrap();
                    output
                };
                assert_eq!(run(), expected);
                assert_eq!(in_pool(2, run), expected);
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
        assert!(reduce_integers(Isa::portable(), IntegerReduceOp::Sum, [1, 2, 1], &[1], &mut [0]).is_err());
    }
}
