//! Sums of all elements up to each one along an axis.

use std::ops::Range;

use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::tile::{SIDE, transpose};

/// Columns whose sums run side by side.
const BLOCK: usize = 256;

/// Rows whose sums run side by side: the side of a tile that is turned.
const ROWS: usize = SIDE;

/// Elements a parallel chunk covers.
const CHUNK: usize = 1 << 13;

/// Which elements belong to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CumulativeRule {
    /// Leave out the element itself.
    pub exclusive: bool,
    /// Begin at the end of the axis.
    pub reverse: bool,
}

/// An element with the type of its sums: floats are summed in f64 and rounded once, integers wrap.
pub trait Cumulative: Copy + Default + Send + Sync + 'static {
    /// The type of sums.
    type Sum: Copy + Default + Send + Sync;
    /// A sum and an element.
    fn plus(sum: Self::Sum, element: Self) -> Self::Sum;
    /// A sum as an element.
    fn of(sum: Self::Sum) -> Self;
}

impl Cumulative for f32 {
    type Sum = f64;
    #[inline(always)]
    fn plus(sum: f64, element: f32) -> f64 {
        sum + f64::from(element)
    }
    #[inline(always)]
    fn of(sum: f64) -> f32 {
        sum as f32
    }
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Cumulative for $type {
            type Sum = $type;
            #[inline(always)]
            fn plus(sum: $type, element: $type) -> $type { sum.wrapping_add(element) }
            #[inline(always)]
            fn of(sum: $type) -> $type { sum }
        })*
    };
}
integers!(u8, i8, i32, i64);

/// The sums along the middle axis of `[outer, axis, inner]`.
///
/// # Errors
/// A slice does not have the length the sizes ask for.
pub fn cumulative_sum<T: Cumulative>(
    isa: Isa,
    [outer, axis, inner]: [usize; 3],
    rule: CumulativeRule,
    input: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    let len = product("input", &[outer, axis, inner])?;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    if len == 0 {
        return Ok(());
    }
    let work = nanoseconds_for_bytes(len.saturating_mul(2 * size_of::<T>()));
    let shared = SharedMut::new(output);
    if inner == 1 {
        let groups = outer.div_ceil(ROWS);
        parallel_for(groups, CHUNK.div_ceil(axis * ROWS), work, |range| {
            for group in range {
                let rows = group * ROWS * axis..outer.min((group + 1) * ROWS) * axis;
                // SAFETY: groups of rows are disjoint.
                let target = unsafe { shared.slice(rows.clone()) };
                dispatch(isa, Rows { isa, axis, rule, input: &input[rows], target });
            }
        });
        return Ok(());
    }
    let blocks = inner.div_ceil(BLOCK);
    parallel_for(outer * blocks, CHUNK.div_ceil(axis * inner.min(BLOCK)), work, |range| {
        for index in range {
            let (row, first) = (index / blocks, index % blocks * BLOCK);
            let start = row * axis * inner + first;
            let width = BLOCK.min(inner - first);
            let lines = &input[start..(row + 1) * axis * inner];
            // SAFETY: blocks are disjoint parts of the lines of their row.
            let target = |line: usize| unsafe { shared.slice(start + line * inner..start + line * inner + width) };
            dispatch(isa, Columns { axis, inner, rule, lines, target });
        }
    });
    Ok(())
}

/// At most [`ROWS`] rows.
struct Rows<'a, T> {
    isa: Isa,
    axis: usize,
    rule: CumulativeRule,
    input: &'a [T],
    target: &'a mut [T],
}

impl<T: Cumulative> Kernel for Rows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Rows { isa, axis, rule, input, target } = self;
        if input.len() == ROWS * axis {
            let mut sums = [T::Sum::default(); ROWS];
            let in_tiles = if size_of::<T>() == size_of::<f32>() { axis / SIDE * SIDE } else { 0 };
            if rule.reverse {
                sum_steps(axis, in_tiles..axis, rule, input, target, &mut sums);
                sum_tiles(isa, axis, in_tiles, rule, input, target, &mut sums);
            } else {
                sum_tiles(isa, axis, in_tiles, rule, input, target, &mut sums);
                sum_steps(axis, in_tiles..axis, rule, input, target, &mut sums);
            }
            return;
        }
        for (input, target) in input.chunks_exact(axis).zip(target.chunks_exact_mut(axis)) {
            sum_steps(axis, 0..axis, rule, input, target, &mut [T::Sum::default(); 1]);
        }
    }
}

/// Adds an element to a sum, and gives the sum with it, or without it.
#[inline(always)]
fn next<T: Cumulative>(sum: &mut T::Sum, element: T, exclusive: bool) -> T {
    let (before, after) = (*sum, T::plus(*sum, element));
    *sum = after;
    T::of(if exclusive { before } else { after })
}

/// The sums at some steps of rows, those of what came before included: those of one row wait for each other, those of several do not.
#[inline(always)]
fn sum_steps<T: Cumulative, const COUNT: usize>(
    axis: usize,
    steps: Range<usize>,
    rule: CumulativeRule,
    input: &[T],
    target: &mut [T],
    sums: &mut [T::Sum; COUNT],
) {
    for step in 0..steps.len() {
        let at = if rule.reverse { steps.end - 1 - step } else { steps.start + step };
        for (row, sum) in sums.iter_mut().enumerate() {
            target[row * axis + at] = next(sum, input[row * axis + at], rule.exclusive);
        }
    }
}

/// The sums at the first steps of rows of elements of four bytes, a whole number of tiles: what the rows have at a step lies side by
/// side in a tile that is turned.
#[inline(always)]
fn sum_tiles<T: Cumulative>(
    isa: Isa,
    axis: usize,
    steps: usize,
    rule: CumulativeRule,
    input: &[T],
    target: &mut [T],
    sums: &mut [T::Sum; ROWS],
) {
    let count = steps / SIDE;
    let end = (ROWS - 1) * axis + count * SIDE;
    let (input, target) = (&input[..end], &mut target[..end]);
    for index in 0..count {
        let first = if rule.reverse { count - 1 - index } else { index } * SIDE;
        let mut tile = [[T::default(); ROWS]; SIDE];
        // SAFETY: eight elements of four bytes lie behind the first step in each of the eight rows, and as many in each of eight
        // lines of the tile.
        unsafe { transpose(isa, input[first..].as_ptr().cast(), axis, tile.as_mut_ptr().cast(), ROWS) };
        let mut at_step = |values: &mut [T; ROWS]| {
            for (value, sum) in values.iter_mut().zip(&mut *sums) {
                *value = next(sum, *value, rule.exclusive);
            }
        };
        if rule.reverse {
            tile.iter_mut().rev().for_each(&mut at_step);
        } else {
            tile.iter_mut().for_each(&mut at_step);
        }
        // SAFETY: as above; the target is as long as the input.
        unsafe { transpose(isa, tile.as_ptr().cast(), ROWS, target[first..].as_mut_ptr().cast(), axis) };
    }
}

/// Some neighbouring columns.
struct Columns<'a, T, F> {
    axis: usize,
    inner: usize,
    rule: CumulativeRule,
    /// The lines, from the first column on.
    lines: &'a [T],
    /// The columns of a line of the output.
    target: F,
}

impl<'a, T: Cumulative, F: Fn(usize) -> &'a mut [T]> Kernel for Columns<'a, T, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Columns { axis, inner, rule: CumulativeRule { exclusive, reverse }, lines, target } = self;
        let mut sums = [T::Sum::default(); BLOCK];
        for step in 0..axis {
            let at = if reverse { axis - 1 - step } else { step };
            let target = target(at);
            let line = &lines[at * inner..][..target.len()];
            for ((target, value), sum) in target.iter_mut().zip(line).zip(&mut sums) {
                *target = next(sum, *value, exclusive);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    fn check<T: Cumulative + PartialEq + std::fmt::Debug>(random: &mut Random, make: fn(u64) -> T) {
        for [outer, axis, inner] in [[1, 7, 1], [8, 5, 1], [21, 33, 1], [2, 5, 300], [3, 1, 4], [1, 900, 3], [2, 0, 5]]
        {
            let input: Vec<T> = (0..outer * axis * inner).map(|_| make(random.next())).collect();
            for (exclusive, reverse) in [(false, false), (true, false), (false, true), (true, true)] {
                let mut expected = vec![T::default(); input.len()];
                for line in 0..outer * inner {
                    let place = |step: usize| {
                        (line / inner * axis + if reverse { axis - 1 - step } else { step }) * inner + line % inner
                    };
                    for step in 0..axis {
                        let end = if exclusive { step } else { step + 1 };
                        let sum = (0..end).fold(T::Sum::default(), |sum, step| T::plus(sum, input[place(step)]));
                        expected[place(step)] = T::of(sum);
                    }
                }
                for isa in Isa::available() {
                    let run = || {
                        let mut output = vec![T::default(); input.len()];
                        let rule = CumulativeRule { exclusive, reverse };
                        cumulative_sum(isa, [outer, axis, inner], rule, &input, &mut output).unwrap();
                        output
                    };
                    assert_eq!(run(), expected);
                    assert_eq!(in_pool(2, run), expected);
                }
            }
        }
    }

    #[test]
    fn sums_of_all_types() {
        let mut random = Random::new(71);
        check(&mut random, |x| (x & 0xffff) as f32 / 777.0 - 40.0);
        check(&mut random, |x| x as i32);
        check(&mut random, |x| x.wrapping_mul(0x1_0000_0001) as i64);
        check(&mut random, |x| x as u8);
        check(&mut random, |x| x as i8);
        let rule = CumulativeRule { exclusive: false, reverse: false };
        assert!(cumulative_sum(Isa::portable(), [1, 2, 1], rule, &[1], &mut [0, 0]).is_err());
    }
}
