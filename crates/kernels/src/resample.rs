//! Resizing by any taps, in f32, or for integers in f64: along one axis at a time, or line by line along two.

use std::ops::{AddAssign, Mul};

use crate::error::{KernelError, check_exact, check_len, product};
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

/// An element of data that is resized in `F`.
pub trait Element<F>: Copy + Send + Sync + 'static {
    /// The value, which is exact.
    fn widen(self) -> F;
    /// The nearest element, halves away from zero where elements are integers.
    fn nearest(value: F) -> Self;
}

impl Element<f32> for f32 {
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
    #[inline(always)]
    fn nearest(value: f32) -> f32 {
        value
    }
}

impl Element<f64> for f64 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn nearest(value: f64) -> f64 {
        value
    }
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Element<f64> for $type {
            #[inline(always)]
            fn widen(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn nearest(value: f64) -> $type {
                // Sums with this have no digits behind the point, and end with those of the integer. Unlike a conversion,
                // which looks for what does not fit, this becomes a few vector instructions.
                const INTEGERS: f64 = 6_755_399_441_055_744.0;
                let rounded = round_between(value, f64::from(<$type>::MIN), f64::from(<$type>::MAX));
                (rounded + INTEGERS).to_bits() as $type
            }
        }
    )*};
}

integers!(u8 i8);

/// The nearest integer, halves away from zero, kept between two.
#[inline(always)]
fn round_between(value: f64, low: f64, high: f64) -> f64 {
    // The greatest number below a half: with a half itself, sums round up to the next integer.
    const HALF: f64 = 0.499_999_999_999_999_94;
    (value + HALF.copysign(value)).trunc().max(low).min(high)
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

/// The most lines that are kept with their columns resized.
const MOST_KEPT: usize = 8;

/// For each output position of one axis, the input positions that it takes and their weights.
#[derive(Debug, Clone, PartialEq)]
pub struct ResampleTaps<F> {
    input: usize,
    ends: Vec<usize>,
    taps: Vec<(u32, F)>,
    /// How many taps each position has, if that is the same for all.
    each: Option<usize>,
}

impl<F: Float> ResampleTaps<F> {
    /// Taps on an axis of `input` positions.
    ///
    /// # Errors
    /// The axis is longer than u32 holds.
    pub fn new(input: usize) -> Result<Self, KernelError> {
        u32::try_from(input).map_err(|_| KernelError::invalid("input", "the axis is too long"))?;
        Ok(Self { input, ends: Vec::new(), taps: Vec::new(), each: None })
    }

    /// Adds an output position.
    ///
    /// # Errors
    /// A position lies outside of the axis.
    pub fn push(&mut self, positions: &[usize], weights: &[f64]) -> Result<(), KernelError> {
        if positions.len() != weights.len() || positions.iter().any(|position| *position >= self.input) {
            return Err(KernelError::invalid("positions", "lie outside of the axis, or are not as many as weights"));
        }
        let is_first = self.ends.is_empty();
        self.each = Some(positions.len()).filter(|count| is_first || self.each == Some(*count));
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

    /// The most input positions from the first to the last one that an output position takes.
    fn reach(&self) -> usize {
        let reach = |x: usize| {
            let positions = || self.of(x).iter().map(|(position, _)| *position as usize);
            positions().max().unwrap_or(0) - positions().min().unwrap_or(0) + 1
        };
        (0..self.output()).map(reach).max().unwrap_or(1)
    }
}

/// Resizing of planes along two neighbouring axes.
#[derive(Debug, Clone, PartialEq)]
pub struct ResamplePlanes<F> {
    planes: usize,
    /// Elements that lie side by side at one position.
    lanes: usize,
    rows: ResampleTaps<F>,
    columns: ResampleTaps<F>,
    /// Lines of input that are kept with their columns resized if columns come first; zero if rows do.
    kept: usize,
}

impl<F: Float> ResamplePlanes<F> {
    /// Resizes `[planes, rows.input, columns.input, lanes]`; `None` where lines would have to wait for too many others.
    #[must_use]
    pub fn new(
        planes: usize,
        lanes: usize,
        rows: ResampleTaps<F>,
        columns: ResampleTaps<F>,
        columns_first: bool,
    ) -> Option<Self> {
        let kept = if columns_first { rows.reach() } else { 0 };
        (kept <= MOST_KEPT).then_some(Self { planes, lanes, rows, columns, kept })
    }

    /// Elements of scratch that [`ResamplePlanes::run`] needs.
    #[must_use]
    pub fn scratch_len(&self) -> usize {
        let lines = self.planes.saturating_mul(self.rows.output());
        lines.div_ceil(self.grain()).saturating_mul(self.scratch_of_chunk())
    }

    fn scratch_of_chunk(&self) -> usize {
        let line = self.columns.output().saturating_mul(self.lanes);
        let before = match self.kept {
            0 => self.columns.input.saturating_mul(self.lanes),
            kept => line.saturating_mul(kept),
        };
        line.saturating_add(before)
    }

    /// The estimated time on one thread, in nanoseconds: each line of the input that is read has its columns resized, and then lines are
    /// summed.
    #[must_use]
    pub fn nanoseconds(&self) -> u64 {
        let (lines, lanes) = (self.rows.taps.len(), self.planes.saturating_mul(self.lanes));
        let of_columns = lines.min(self.rows.input).saturating_mul(self.columns.taps.len());
        let products = of_columns.saturating_add(lines.saturating_mul(self.columns.output()));
        products.saturating_mul(lanes) as u64 / 2
    }

    /// The lines of a parallel chunk.
    fn grain(&self) -> usize {
        CHUNK.div_ceil(self.columns.output().saturating_mul(self.lanes).max(1))
    }

    /// Writes `[planes, rows.output, columns.output, lanes]`.
    ///
    /// # Errors
    /// A slice has the wrong length.
    pub fn run<T: Element<F>>(
        &self,
        isa: Isa,
        input: &[T],
        output: &mut [T],
        scratch: &mut [F],
    ) -> Result<(), KernelError>
    where
        F: Element<F>,
    {
        let Self { planes, lanes, rows, columns, .. } = self;
        let plane = product("input", &[rows.input, columns.input, *lanes])?;
        check_exact("input", input.len(), product("input", &[*planes, plane])?)?;
        check_exact("output", output.len(), product("output", &[*planes, rows.output(), columns.output(), *lanes])?)?;
        check_len("scratch", scratch.len(), self.scratch_len())?;
        if output.is_empty() {
            return Ok(());
        }
        let (lines, line, part, grain) =
            (rows.output(), columns.output() * lanes, self.scratch_of_chunk(), self.grain());
        let work = self.nanoseconds();
        let (shared, spare) = (SharedMut::new(output), SharedMut::new(scratch));
        parallel_for(planes * lines, grain, work, |range| {
            let chunk = range.start / grain;
            // SAFETY: chunks have parts of the scratch of their own.
            let scratch = unsafe { spare.slice(chunk * part..(chunk + 1) * part) };
            // SAFETY: lines are disjoint.
            let output = unsafe { shared.slice(range.start * line..range.end * line) };
            dispatch(isa, PlaneLines { sizes: self, input, plane, first: range.start, output, scratch });
        });
        Ok(())
    }
}

/// Lines of planes that follow each other.
struct PlaneLines<'a, T, F> {
    sizes: &'a ResamplePlanes<F>,
    input: &'a [T],
    /// Elements of a plane of the input.
    plane: usize,
    first: usize,
    output: &'a mut [T],
    scratch: &'a mut [F],
}

impl<T: Element<F>, F: Float + Element<F>> Kernel for PlaneLines<'_, T, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let ResamplePlanes { lanes, rows, columns, kept, .. } = self.sizes;
        let (lanes, kept) = (*lanes, *kept);
        let len = columns.output() * lanes;
        let wide = columns.input * lanes;
        let (sums, before) = self.scratch.split_at_mut(len);
        // Which line of the input, counted over all planes, each kept line is.
        let mut held = [usize::MAX; MOST_KEPT];
        for (number, output) in self.output.chunks_exact_mut(len).enumerate() {
            let (plane, y) = ((self.first + number) / rows.output(), (self.first + number) % rows.output());
            let input = &self.input[plane * self.plane..][..self.plane];
            let taps = rows.of(y);
            if kept == 0 {
                mix(taps, |row| &input[row * wide..][..wide], before);
                spread(columns, lanes, before, sums);
            } else {
                for (row, _) in taps {
                    let (row, place) = (*row as usize, *row as usize % kept);
                    let line = plane * rows.input + row;
                    if held[place] != line {
                        held[place] = line;
                        spread(columns, lanes, &input[row * wide..][..wide], &mut before[place * len..][..len]);
                    }
                }
                mix(taps, |row| &before[row % kept * len..][..len], sums);
            }
            for (target, sum) in output.iter_mut().zip(&*sums) {
                *target = T::nearest(*sum);
            }
        }
    }
}

/// The sum of lines, each by its weight.
#[inline(always)]
fn mix<'a, T: Element<F>, F: Float>(taps: &[(u32, F)], line: impl Fn(usize) -> &'a [T], target: &mut [F]) {
    match *taps {
        [(first, a), (second, b)] => {
            let (first, second) = (line(first as usize), line(second as usize));
            for ((target, first), second) in target.iter_mut().zip(first).zip(second) {
                let mut sum = F::default();
                sum += first.widen() * a;
                sum += second.widen() * b;
                *target = sum;
            }
        }
        [(first, a), (second, b), (third, c), (fourth, d)] => {
            let (first, second) = (line(first as usize), line(second as usize));
            let (third, fourth) = (line(third as usize), line(fourth as usize));
            for ((((target, first), second), third), fourth) in
                target.iter_mut().zip(first).zip(second).zip(third).zip(fourth)
            {
                let mut sum = F::default();
                sum += first.widen() * a;
                sum += second.widen() * b;
                sum += third.widen() * c;
                sum += fourth.widen() * d;
                *target = sum;
            }
        }
        _ => {
            target.fill(F::default());
            for (position, weight) in taps {
                for (target, source) in target.iter_mut().zip(line(*position as usize)) {
                    *target += source.widen() * *weight;
                }
            }
        }
    }
}

/// All positions of a line, each with some elements side by side.
#[inline(always)]
fn spread<T: Element<F>, F: Float>(taps: &ResampleTaps<F>, lanes: usize, source: &[T], target: &mut [F]) {
    match (lanes, taps.each) {
        (1, Some(2)) => spread_one::<T, F, 2>(&taps.taps, source, target),
        (1, Some(4)) => spread_one::<T, F, 4>(&taps.taps, source, target),
        (3, Some(2)) => spread_few::<T, F, 3, 2>(&taps.taps, source, target),
        (3, Some(4)) => spread_few::<T, F, 3, 4>(&taps.taps, source, target),
        (1, _) => {
            for (x, target) in target.iter_mut().enumerate() {
                let mut sum = F::default();
                for (position, weight) in taps.of(x) {
                    sum += source[*position as usize].widen() * *weight;
                }
                *target = sum;
            }
        }
        _ => {
            for (x, target) in target.chunks_exact_mut(lanes).enumerate() {
                target.fill(F::default());
                for (position, weight) in taps.of(x) {
                    let source = &source[*position as usize * lanes..][..lanes];
                    for (target, source) in target.iter_mut().zip(source) {
                        *target += source.widen() * *weight;
                    }
                }
            }
        }
    }
}

/// As [`spread`] of `TAPS` taps and single elements, for all instruction sets alike: those that can gather would, which
/// takes longer than reading values one by one.
#[inline(never)]
fn spread_one<T: Element<F>, F: Float, const TAPS: usize>(taps: &[(u32, F)], source: &[T], target: &mut [F]) {
    spread_few::<T, F, 1, TAPS>(taps, source, target);
}

/// As [`spread`] of `TAPS` taps and `LANES` elements.
#[inline(always)]
fn spread_few<T: Element<F>, F: Float, const LANES: usize, const TAPS: usize>(
    taps: &[(u32, F)],
    source: &[T],
    target: &mut [F],
) {
    let source = source.as_chunks::<LANES>().0;
    for (target, taps) in target.as_chunks_mut::<LANES>().0.iter_mut().zip(taps.as_chunks::<TAPS>().0) {
        let mut sums = [F::default(); LANES];
        for (position, weight) in taps {
            debug_assert!((*position as usize) < source.len());
            // SAFETY: `push` takes positions of the axis only, and the callers give lines of its length.
            let values = unsafe { source.get_unchecked(*position as usize) };
            for lane in 0..LANES {
                sums[lane] += values[lane].widen() * *weight;
            }
        }
        *target = sums;
    }
}

/// Resizes `input` `[outer, taps.input, inner]` along its middle axis to `output` `[outer, taps.output, inner]`.
///
/// # Errors
/// A slice has the wrong length.
pub fn resample<F: Float + Element<F>>(
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

impl<F: Float + Element<F>> Kernel for Line<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Line { taps, inner, input, output } = self;
        let len = output.len();
        mix(taps, |position| &input[position * inner..][..len], output);
    }
}

/// All positions of a line.
struct Columns<'a, F> {
    taps: &'a ResampleTaps<F>,
    input: &'a [F],
    output: &'a mut [F],
}

impl<F: Float + Element<F>> Kernel for Columns<'_, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        spread(self.taps, 1, self.input, self.output);
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
        for value in self.values {
            *value = round_between(*value, self.low, self.high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    fn check<F: Float + Element<F> + std::fmt::Debug + PartialEq>(
        random: &mut Random,
        of: impl Fn(f32) -> F,
        inner: usize,
    ) {
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

    /// Planes resized along both axes, compared with one axis after the other.
    fn check_planes<F, T>(random: &mut Random, taken: usize, columns_first: bool, of: impl Fn(f32) -> T)
    where
        F: Float + Element<F> + std::fmt::Debug + PartialEq,
        T: Element<F> + std::fmt::Debug + PartialEq,
    {
        let (planes, lanes) = (random.between(1, 3), [1, 3, 5][random.between(0, 2)]);
        let sizes = [0; 2].map(|_| random.between(4, 30));
        let made = sizes.map(|size| {
            let mut taps = ResampleTaps::<F>::new(size).unwrap();
            for _ in 0..random.between(1, 40) {
                let count = if taken == 0 { random.between(0, 4) } else { taken };
                let first = random.between(0, size - 4);
                let positions: Vec<usize> = (0..count).map(|tap| first + tap).collect();
                let weights: Vec<f64> = (0..count).map(|_| f64::from(random.value())).collect();
                taps.push(&positions, &weights).unwrap();
            }
            taps
        });
        let [rows, columns] = made;
        let (high, wide) = (rows.output(), columns.output());
        let input: Vec<T> = (0..planes * sizes[0] * sizes[1] * lanes).map(|_| of(random.value() * 100.0)).collect();
        let widened: Vec<F> = input.iter().map(|value| value.widen()).collect();
        let isa = Isa::portable();
        let mut expected = vec![F::default(); planes * high * wide * lanes];
        if columns_first {
            let mut between = vec![F::default(); planes * sizes[0] * wide * lanes];
            resample(isa, [planes * sizes[0], lanes], &columns, &widened, &mut between).unwrap();
            resample(isa, [planes, wide * lanes], &rows, &between, &mut expected).unwrap();
        } else {
            let mut between = vec![F::default(); planes * high * sizes[1] * lanes];
            resample(isa, [planes, sizes[1] * lanes], &rows, &widened, &mut between).unwrap();
            resample(isa, [planes * high, lanes], &columns, &between, &mut expected).unwrap();
        }
        let expected: Vec<T> = expected.iter().map(|value| T::nearest(*value)).collect();
        let both = ResamplePlanes::new(planes, lanes, rows, columns, columns_first).unwrap();
        for isa in Isa::available() {
            let run = || {
                let mut result = input[..1].repeat(expected.len());
                let mut scratch = widened[..1].repeat(both.scratch_len());
                both.run(isa, &input, &mut result, &mut scratch).unwrap();
                result
            };
            assert_eq!(run(), expected);
            assert_eq!(in_pool(2, run), expected);
        }
    }

    #[test]
    fn planes_at_once() {
        let mut random = Random::new(4);
        for round in 0..60 {
            let (taken, columns_first) = ([0, 2, 4][round % 3], round % 2 == 0);
            check_planes::<f32, f32>(&mut random, taken, columns_first, |x| x);
            check_planes::<f64, u8>(&mut random, taken, columns_first, |x| x as u8);
            check_planes::<f64, i8>(&mut random, taken, columns_first, |x| x as i8);
        }
        let taps = |positions: &[usize]| {
            let mut taps = ResampleTaps::<f32>::new(20).unwrap();
            taps.push(positions, &vec![0.5; positions.len()]).unwrap();
            taps
        };
        assert!(ResamplePlanes::new(1, 1, taps(&[0, 19]), taps(&[3]), true).is_none());
        let planes = ResamplePlanes::new(1, 1, taps(&[0, 19]), taps(&[3]), false).unwrap();
        let mut output = [0.0];
        assert!(planes.run(Isa::portable(), &[1.0; 400], &mut output, &mut []).is_err());
        let mut scratch = vec![0.0; planes.scratch_len()];
        assert!(planes.run(Isa::portable(), &[1.0; 399], &mut output, &mut scratch).is_err());
        planes.run(Isa::portable(), &[1.0; 400], &mut output, &mut scratch).unwrap();
        assert_eq!(output, [0.5]);
    }

    #[test]
    fn rounding() {
        for isa in Isa::available() {
            let mut values = [0.5, -0.5, 1.499_999_999, 254.5, 300.0, -7.0, 0.499_999_999_999_999_94];
            round_to_range(isa, 0.0, 255.0, &mut values);
            assert_eq!(values, [1.0, 0.0, 1.0, 255.0, 255.0, 0.0, 0.0]);
        }
        let values =
            [0.5, -0.5, 1.5, -1.5, 126.7, -127.5, -127.4, 254.5, 300.0, -300.0, 1e300, f64::INFINITY, 0.0, -0.0];
        for value in values.into_iter().chain((-600..600).map(|value| f64::from(value) * 0.5)) {
            assert_eq!(<u8 as Element<f64>>::nearest(value), value.round() as u8, "{value}");
            assert_eq!(<i8 as Element<f64>>::nearest(value), value.round() as i8, "{value}");
        }
    }
}
