//! Resizing along one axis at a time by any taps, in f32, or for integers in f64.

use std::ops::{AddAssign, Mul};

use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Products that a parallel chunk computes at least.
const CHUNK: usize = 1 << 14;

/// Elements of a line that are summed before the next ones.
const PIECE: usize = 1 << 10;

/// The type that sums are computed in.
pub trait Float: Copy + Default + Mul<Output = Self> + AddAssign + Send + Sync + 'static {
    /// A weight.
    fn of(weight: f64) -> Self;
}

impl Float for f32 {
    fn of(weight: f64) -> f32 {
        weight as f32
    }
}

impl Float for f64 {
    fn of(weight: f64) -> f64 {
        weight
    }
}

/// For each output position of one axis, the input positions that it takes and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ResampleTaps<F> {
    input: usize,
    ends: Vec<usize>,
    taps: Vec<(u32, F)>,
}

impl<F: Float> ResampleTaps<F> {
    /// Taps on an axis of `input` positions.
    ///
    /// # Errors
    /// The axis is longer than u32 holds.
    pub fn new(input: usize) -> Result<Self, KernelError> {
        u32::try_from(input).map_err(|_| KernelError::invalid("input", "the axis is too long"))?;
        Ok(Self { input, ends: Vec::new(), taps: Vec::new() })
    }

    /// Adds an output position.
    ///
    /// # Errors
    /// A position lies outside of the axis.
    pub fn push(&mut self, positions: &[usize], weights: &[f64]) -> Result<(), KernelError> {
        if positions.len() != weights.len() || positions.iter().any(|position| *position >= self.input) {
            return Err(KernelError::invalid("positions", "lie outside of the axis, or are not as many as weights"));
        }
        let pairs = positions.iter().zip(weights);
        self.taps.extend(pairs.map(|(position, weight)| (*position as u32, F::of(*weight))));
        self.ends.push(self.taps.len());
        Ok(())
    }

    /// Output positions.
    #[must_use]
    pub fn output(&self) -> usize {
        self.ends.len()
    }

    fn of(&self, x: usize) -> &[(u32, F)] {
        let start = if x == 0 { 0 } else { self.ends[x - 1] };
        &self.taps[start..self.ends[x]]
    }
}

/// Resizes `input` `[outer, taps.input, inner]` along its middle axis to `output` `[outer, taps.output, inner]`.
///
/// # Errors
/// A slice has the wrong length.
pub fn resample<F: Float>(
    isa: Isa,
    [outer, inner]: [usize; 2],
    taps: &ResampleTaps<F>,
    input: &[F],
    output: &mut [F],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[outer, taps.input, inner])?)?;
    check_exact("output", output.len(), product("output", &[outer, taps.output(), inner])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let mean = taps.taps.len().div_ceil(taps.output()).max(1);
    let work = (output.len() as u64).saturating_mul(mean as u64) / if inner == 1 { 1 } else { 4 };
    let shared = SharedMut::new(output);
    if inner == 1 {
        let line = taps.output();
        parallel_for(outer, CHUNK.div_ceil(line * mean), work, |range| {
            for row in range {
                // SAFETY: lines are disjoint.
                let output = unsafe { shared.slice(row * line..(row + 1) * line) };
                dispatch(isa, Columns { taps, input: &input[row * taps.input..][..taps.input], output });
            }
        });
        return Ok(());
    }
    let pieces = inner.div_ceil(PIECE);
    parallel_for(outer * taps.output() * pieces, CHUNK.div_ceil(PIECE.min(inner) * mean), work, |range| {
        for index in range {
            let (line, start) = (index / pieces, index % pieces * PIECE);
            let len = PIECE.min(inner - start);
            let (outer, x) = (line / taps.output(), line % taps.output());
            // SAFETY: pieces of lines are disjoint.
            let output = unsafe { shared.slice(line * inner + start..line * inner + start + len) };
            let input = &input[outer * taps.input * inner + start..];
            dispatch(isa, Line { taps: taps.of(x), inner, input, output });
        }
    });
    Ok(())
}

/// Rounds to the nearest integers that a byte holds, halves away from zero, and leaves them in place.
pub fn round_to_range(isa: Isa, low: f64, high: f64, values: &mut [f64]) {
    let work = values.len() as u64;
    let shared = SharedMut::new(values);
    parallel_for(shared.len(), CHUNK, work, |range| {
        // SAFETY: the ranges are disjoint.
        dispatch(isa, Round { low, high, values: unsafe { shared.slice(range) } });
    });
}

/// A line of the output as a sum of lines of the input.
struct Line<'a, F> {
    taps: &'a [(u32, F)],
    inner: usize,
    input: &'a [F],
    output: &'a mut [F],
}

impl<F: Float> Kernel for Line<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Line { taps, inner, input, output } = self;
        output.fill(F::default());
        for (position, weight) in taps {
            let source = &input[*position as usize * inner..][..output.len()];
            for (target, source) in output.iter_mut().zip(source) {
                *target += *source * *weight;
            }
        }
    }
}

/// All positions of a line.
struct Columns<'a, F> {
    taps: &'a ResampleTaps<F>,
    input: &'a [F],
    output: &'a mut [F],
}

impl<F: Float> Kernel for Columns<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Columns { taps, input, output } = self;
        let mut start = 0;
        for (target, end) in output.iter_mut().zip(&taps.ends) {
            let mut sum = F::default();
            for (position, weight) in &taps.taps[start..*end] {
                sum += input[*position as usize] * *weight;
            }
            (*target, start) = (sum, *end);
        }
    }
}

struct Round<'a> {
    low: f64,
    high: f64,
    values: &'a mut [f64],
}

impl Kernel for Round<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        // The greatest number below a half: with a half itself, sums round up to the next integer.
        const HALF: f64 = 0.499_999_999_999_999_94;
        for value in self.values {
            *value = (*value + HALF.copysign(*value)).trunc().max(self.low).min(self.high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    fn check<F: Float + std::fmt::Debug + PartialEq>(random: &mut Random, of: impl Fn(f32) -> F, inner: usize) {
        let (outer, size, output) = (random.between(1, 3), random.between(1, 40), random.between(1, 50));
        let mut taps = ResampleTaps::new(size).unwrap();
        let mut lists = Vec::new();
        for _ in 0..output {
            let count = random.between(0, 5);
            let positions: Vec<usize> = (0..count).map(|_| random.between(0, size - 1)).collect();
            let weights: Vec<f64> = (0..count).map(|_| f64::from(random.value())).collect();
            taps.push(&positions, &weights).unwrap();
            lists.push((positions, weights));
        }
        let input: Vec<F> = (0..outer * size * inner).map(|_| of(random.value())).collect();
        let mut expected = vec![F::default(); outer * output * inner];
        for (place, target) in expected.iter_mut().enumerate() {
            let (row, x, lane) = (place / (output * inner), place / inner % output, place % inner);
            for (position, weight) in lists[x].0.iter().zip(&lists[x].1) {
                *target += input[(row * size + position) * inner + lane] * F::of(*weight);
            }
        }
        for isa in Isa::available() {
            let run = || {
                let mut result = input[..1].repeat(expected.len());
                resample(isa, [outer, inner], &taps, &input, &mut result).unwrap();
                result
            };
            assert_eq!(run(), expected);
            assert_eq!(in_pool(2, run), expected);
        }
    }

    #[test]
    fn any_taps() {
        let mut random = Random::new(21);
        for round in 0..40 {
            let inner = [1, 3, 20, PIECE + 9][round % 4];
            check(&mut random, |x| x, inner);
            check(&mut random, f64::from, inner);
        }
        let mut taps = ResampleTaps::<f32>::new(3).unwrap();
        assert!(taps.push(&[3], &[1.0]).is_err());
        assert!(taps.push(&[1], &[]).is_err());
        assert!(resample(Isa::portable(), [1, 1], &taps, &[0.0; 2], &mut []).is_err());
    }

    #[test]
    fn rounding() {
        for isa in Isa::available() {
            let mut values = [0.5, -0.5, 1.499_999_999, 254.5, 300.0, -7.0, 0.499_999_999_999_999_94];
            round_to_range(isa, 0.0, 255.0, &mut values);
            assert_eq!(values, [1.0, 0.0, 1.0, 255.0, 255.0, 0.0, 0.0]);
        }
    }
}
