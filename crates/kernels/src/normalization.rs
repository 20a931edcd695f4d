//! Normalisation of f32 rows (layer, root-mean-square, mean-variance, group) and local response normalisation.

use crate::band;
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::math::{exp, log};
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch};

/// Elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Lines whose values are summed before they are added to the sum of all, which keeps long sums accurate.
const SUMMED: usize = 128;

/// Where a scale or bias varies.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Affine<'a> {
    /// There is none.
    #[default]
    None,
    /// One value for each position of a row (layer and RMS normalisation).
    PerElement(&'a [f32]),
    /// One value for each channel: a row is `channels / groups` channels of equal length, and row `r` holds those of
    /// group `r % groups` (group and instance normalisation).
    PerChannel {
        /// The values, one for each channel of all groups.
        values: &'a [f32],
        /// The number of groups.
        groups: usize,
    },
}

/// What is done to every row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Normalization<'a> {
    /// Subtract the mean first. Root-mean-square normalisation does not.
    pub subtract_mean: bool,
    /// Divide by the square root of the mean square (of what the first step left).
    pub divide: bool,
    /// Divide by the square root of the sum of the squares instead.
    pub of_sum: bool,
    /// Added to the mean square or the sum, or to its root.
    pub epsilon: f32,
    /// Whether epsilon is added under the root.
    pub epsilon_inside: bool,
    /// Multiplied afterwards.
    pub scale: Affine<'a>,
    /// Added last.
    pub bias: Affine<'a>,
}

impl Normalization<'_> {
    /// What is multiplied with so many values whose squares have this sum.
    #[inline(always)]
    fn factor(&self, sum: f32, count: usize) -> f32 {
        let square = if self.of_sum { sum } else { sum / count as f32 };
        match self.epsilon_inside {
            true => 1.0 / (square + self.epsilon).sqrt(),
            false => 1.0 / (square.sqrt() + self.epsilon),
        }
    }

    /// The same for the sums of several positions.
    #[inline(always)]
    fn factors<S: Simd>(&self, s: S, sums: S::F, count: usize) -> S::F {
        let squares = if self.of_sum { sums } else { s.div(sums, s.splat(count as f32)) };
        let (one, epsilon) = (s.splat(1.0), s.splat(self.epsilon));
        match self.epsilon_inside {
            true => s.div(one, s.sqrt(s.add(squares, epsilon))),
            false => s.div(one, s.add(s.sqrt(squares), epsilon)),
        }
    }
}

impl Affine<'_> {
    fn check(&self, argument: &'static str, rows: usize, columns: usize) -> Result<(), KernelError> {
        match *self {
            Affine::None => Ok(()),
            Affine::PerElement(values) => check_exact(argument, values.len(), columns),
            Affine::PerChannel { values, groups } => {
                let per_row = values.len().checked_div(groups).filter(|&count| count > 0).unwrap_or(0);
                let fits = per_row > 0
                    && per_row * groups == values.len()
                    && columns.is_multiple_of(per_row)
                    && rows.is_multiple_of(groups);
                if fits || rows == 0 || columns == 0 {
                    return Ok(());
                }
                Err(KernelError::invalid(argument, "channels do not divide the rows"))
            }
        }
    }

    /// The values of a row's channels, if they vary by channel.
    fn channels(&self, row: usize) -> Option<&[f32]> {
        match *self {
            Affine::PerChannel { values, groups } => {
                let per_row = values.len() / groups;
                Some(&values[row % groups * per_row..][..per_row])
            }
            _ => None,
        }
    }

    fn elements(&self) -> Option<&[f32]> {
        match *self {
            Affine::PerElement(values) => Some(values),
            _ => None,
        }
    }
}

/// Normalises `input`, seen as `[rows, columns, inner]`, over its middle axis into `output`. Where `inner` is not 1, a "row" of
/// [`Affine`] is one of the middle axis: its positions are those of that axis.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn normalize(
    isa: Isa,
    [rows, columns, inner]: [usize; 3],
    normalization: &Normalization<'_>,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let len = product("input", &[rows, columns, inner])?;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    normalization.scale.check("scale", rows, columns)?;
    normalization.bias.check("bias", rows, columns)?;
    if len == 0 {
        return Ok(());
    }
    let mut affines = [normalization.scale, normalization.bias].into_iter();
    // Rows of one element that are all treated alike are the positions of one row.
    let (rows, inner) = match columns {
        1 if inner == 1 && affines.all(|affine| affine.channels(0).is_none()) => (1, rows),
        _ => (rows, inner),
    };
    let work = normalization_nanoseconds([rows, columns, inner]);
    let shared = SharedMut::new(output);
    if inner > 1 {
        let most = band::positions(columns);
        let bands = inner.div_ceil(most);
        parallel_for(rows * bands, CHUNK.div_ceil(columns * inner.min(most)), work, |range| {
            for index in range {
                let (row, first) = (index / bands, index % bands * most);
                let (start, width) = (row * columns * inner + first, most.min(inner - first));
                let lines = &input[start..(row + 1) * columns * inner];
                // SAFETY: bands are disjoint parts of the lines of their row.
                let target = |line| unsafe { shared.slice(start + line * inner..start + line * inner + width) };
                let targets = (0..columns).map(target);
                if width <= band::NARROW {
                    dispatch(isa, Band::<_, { band::NARROW }> { normalization, row, lines, inner, width, targets });
                } else {
                    dispatch(isa, Band::<_, { band::MOST }> { normalization, row, lines, inner, width, targets });
                }
            }
        });
        return Ok(());
    }
    parallel_for(rows, CHUNK.div_ceil(columns), work, |range| {
        let elements = range.start * columns..range.end * columns;
        // SAFETY: rows are disjoint.
        let output = unsafe { shared.slice(elements.clone()) };
        dispatch(isa, Rows { normalization, first: range.start, columns, input: &input[elements], output });
    });
    Ok(())
}

/// The estimated time on one thread of [`normalize`] with these sizes, in nanoseconds: of the elements, and of beginning
/// each row that lies contiguously.
#[must_use]
pub fn normalization_nanoseconds([rows, columns, inner]: [usize; 3]) -> u64 {
    let elements = [rows, columns, inner].iter().fold(1u64, |total, &size| total.saturating_mul(size as u64));
    elements / 3 + if inner == 1 && columns > 1 { 12 * rows as u64 } else { 0 }
}

/// Some rows that follow each other.
struct Rows<'a> {
    normalization: &'a Normalization<'a>,
    /// The number of the first one.
    first: usize,
    columns: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Rows<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Rows { normalization, first, columns, input, output } = self;
        let mut affines = [normalization.scale, normalization.bias].into_iter();
        if columns <= S::LANES && affines.all(|affine| affine.channels(first).is_none()) {
            let lines = input.chunks(TOGETHER * columns).zip(output.chunks_mut(TOGETHER * columns));
            lines.for_each(|(input, output)| short_rows(s, normalization, columns, input, output));
            return;
        }
        for (index, (input, output)) in input.chunks_exact(columns).zip(output.chunks_exact_mut(columns)).enumerate() {
            Row { normalization, row: first + index, input, output }.run(s);
        }
    }
}

/// Rows of at most a vector that are normalised together, so that one does not wait for the sums of the other.
const TOGETHER: usize = 4;

/// At most [`TOGETHER`] rows of at most a vector each, whose scale and bias do not vary by channel.
#[inline(always)]
fn short_rows<S: Simd>(s: S, normalization: &Normalization<'_>, columns: usize, input: &[f32], output: &mut [f32]) {
    let Normalization { subtract_mean, divide, scale, bias, .. } = *normalization;
    let rows = input.len() / columns;
    debug_assert!((1..=TOGETHER).contains(&rows) && columns <= S::LANES && output.len() == input.len());
    let ones = [1.0; MOST_LANES];
    // Rows that are missing repeat the last one.
    let start = |row: usize| row.min(rows - 1) * columns;
    let mut values = [s.splat(0.0); TOGETHER];
    let mut factors = [1.0; TOGETHER];
    // SAFETY: so many values lie in each row, in what varies by element, and in a vector of ones.
    unsafe {
        for row in 0..TOGETHER {
            values[row] = s.load_partial(input.as_ptr().add(start(row)), columns);
        }
        if subtract_mean {
            // Lanes beyond the row stay zero.
            let (sums, inside) = (s.reduce_add_four(values), s.load_partial(ones.as_ptr(), columns));
            for row in 0..TOGETHER {
                values[row] = s.mul(s.sub(values[row], s.splat(sums[row] / columns as f32)), inside);
            }
        }
        if divide {
            let squares = s.reduce_add_four([0, 1, 2, 3].map(|row: usize| s.mul(values[row], values[row])));
            for row in 0..TOGETHER {
                factors[row] = normalization.factor(squares[row], columns);
            }
        }
        let of = |affine: &Affine<'_>, neutral: f32| match affine.elements() {
            Some(values) => s.load_partial(values.as_ptr(), columns),
            None => s.splat(neutral),
        };
        let (scale, bias) = (of(&scale, 1.0), of(&bias, 0.0));
        // A loop of unknown length would have the vectors in memory.
        for row in 0..TOGETHER {
            if row < rows {
                let value = s.mul(values[row], s.splat(factors[row]));
                s.store_partial(output.as_mut_ptr().add(row * columns), s.fma(value, scale, bias), columns);
            }
        }
    }
}

struct Row<'a> {
    normalization: &'a Normalization<'a>,
    row: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Row<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Normalization { subtract_mean, divide, scale, bias, .. } = *self.normalization;
        let columns = self.input.len();
        let mean = if subtract_mean { sum(s, self.input, 0.0, false) / columns as f32 } else { 0.0 };
        let factor = match divide {
            true => self.normalization.factor(sum(s, self.input, mean, true), columns),
            false => 1.0,
        };
        let (scales, biases) = (scale.channels(self.row), bias.channels(self.row));
        let parts = scales.map_or(1, <[f32]>::len).max(biases.map_or(1, <[f32]>::len));
        let part = columns / parts;
        let has_all = |values: Option<&[f32]>| values.is_none_or(|values| values.len() == columns);
        if part == 1 && has_all(scales) && has_all(biases) {
            // Channels of one position are elements.
            let (scales, biases) = (scales.or(scale.elements()), biases.or(bias.elements()));
            Line { input: self.input, mean, factor, scale: 1.0, bias: 0.0, scales, biases }.run(s, self.output);
            return;
        }
        for index in 0..parts {
            // Where only one of the two varies by channel, or their numbers differ, each is looked up by position.
            let channel = |values: Option<&[f32]>, neutral: f32| {
                values.map_or(neutral, |values| values[index * values.len() / parts])
            };
            let range = index * part..(index + 1) * part;
            let line = Line {
                input: &self.input[range.clone()],
                mean,
                factor,
                scale: channel(scales, 1.0),
                bias: channel(biases, 0.0),
                scales: scale.elements().map(|values| &values[range.clone()]),
                biases: bias.elements().map(|values| &values[range.clone()]),
            };
            line.run(s, &mut self.output[range]);
        }
    }
}

/// Up to `MOST` positions of the innermost axis, normalised over the lines of a row that hold them.
struct Band<'a, T, const MOST: usize> {
    normalization: &'a Normalization<'a>,
    row: usize,
    /// The lines of the row, from the first position of the band in the first one on.
    lines: &'a [f32],
    /// Positions from one line to the next.
    inner: usize,
    /// Positions of the band.
    width: usize,
    /// The band in each line of the output.
    targets: T,
}

impl<'a, T: ExactSizeIterator<Item = &'a mut [f32]>, const MOST: usize> Kernel for Band<'a, T, MOST> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Band { normalization, row, lines, inner, width, targets } = self;
        let Normalization { subtract_mean, divide, scale, bias, .. } = *normalization;
        let columns = targets.len();
        let (mut means, mut factors) = ([0.0; MOST], [1.0; MOST]);
        let (means, factors) = (&mut means[..width], &mut factors[..width]);
        if subtract_mean {
            sum_lines::<S, false, MOST>(s, lines, inner, columns, &[], means);
            means.iter_mut().for_each(|value| *value /= columns as f32);
        }
        if divide {
            sum_lines::<S, true, MOST>(s, lines, inner, columns, means, factors);
            for at in (0..width).step_by(S::LANES) {
                // SAFETY: the slice has `width - at` values from there on.
                unsafe {
                    let sums = s.load_first(factors.as_ptr().add(at), width - at);
                    s.store_first(factors.as_mut_ptr().add(at), normalization.factors(s, sums, columns), width - at);
                }
            }
        }
        for (index, target) in targets.enumerate() {
            let value = |affine: &Affine<'_>, neutral: f32| match affine.channels(row) {
                Some(values) => values[index * values.len() / columns],
                None => affine.elements().map_or(neutral, |values| values[index]),
            };
            let (scale, bias) = (s.splat(value(&scale, 1.0)), s.splat(value(&bias, 0.0)));
            let line = &lines[index * inner..][..width];
            let target = &mut target[..width];
            for at in (0..width).step_by(S::LANES) {
                let count = width - at;
                // SAFETY: each slice has `count` values from there on.
                unsafe {
                    let value =
                        s.sub(s.load_first(line.as_ptr().add(at), count), s.load_first(means.as_ptr().add(at), count));
                    let value = s.mul(value, s.load_first(factors.as_ptr().add(at), count));
                    s.store_first(target.as_mut_ptr().add(at), s.fma(value, scale, bias), count);
                }
            }
        }
    }
}

/// The sum over lines of each of up to `MOST` positions, or of the squares of what lies between it and its mean.
#[inline(always)]
fn sum_lines<S: Simd, const SQUARES: bool, const MOST: usize>(
    s: S,
    lines: &[f32],
    inner: usize,
    columns: usize,
    means: &[f32],
    sums: &mut [f32],
) {
    let mut part = [0.0; MOST];
    let part = &mut part[..sums.len()];
    sums.fill(0.0);
    for first in (0..columns).step_by(SUMMED) {
        let end = columns.min(first + SUMMED);
        part.fill(0.0);
        let mut index = first;
        while index < end {
            let rest = &lines[index * inner..];
            if index + 4 <= end {
                add_lines::<S, SQUARES, 4>(s, rest, inner, means, part);
                index += 4;
            } else {
                add_lines::<S, SQUARES, 1>(s, rest, inner, means, part);
                index += 1;
            }
        }
        sums.iter_mut().zip(&*part).for_each(|(sum, part)| *sum += part);
    }
}

/// Adds the first `N` lines to the sums.
#[inline(always)]
fn add_lines<S: Simd, const SQUARES: bool, const N: usize>(
    s: S,
    lines: &[f32],
    inner: usize,
    means: &[f32],
    sums: &mut [f32],
) {
    let width = sums.len();
    let lines: [&[f32]; N] = std::array::from_fn(|index| &lines[index * inner..][..width]);
    for at in (0..width).step_by(S::LANES) {
        let count = width - at;
        let mut values = [s.splat(0.0); N];
        for (value, line) in values.iter_mut().zip(lines) {
            // SAFETY: the line has `count` values from there on.
            *value = unsafe { s.load_first(line.as_ptr().add(at), count) };
            if SQUARES {
                let mean = &means[at..width];
                // SAFETY: as above.
                let off = s.sub(*value, unsafe { s.load_first(mean.as_ptr(), count) });
                *value = s.mul(off, off);
            }
        }
        let mut len = N;
        while len > 1 {
            len /= 2;
            for index in 0..len {
                values[index] = s.add(values[index], values[index + len]);
            }
        }
        // SAFETY: as above, for the sums.
        unsafe {
            let sum = s.add(s.load_first(sums.as_ptr().add(at), count), values[0]);
            s.store_first(sums.as_mut_ptr().add(at), sum, count);
        }
    }
}

/// A part of a row whose channel values are constant.
struct Line<'a> {
    input: &'a [f32],
    mean: f32,
    factor: f32,
    scale: f32,
    bias: f32,
    scales: Option<&'a [f32]>,
    biases: Option<&'a [f32]>,
}

impl Line<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, output: &mut [f32]) {
        let len = self.input.len();
        let (mean, factor) = (s.splat(self.mean), s.splat(self.factor));
        let mut index = 0;
        while index < len {
            let count = (len - index).min(S::LANES);
            // SAFETY: `count` values from the index on lie in every slice, all of which are as long as the input.
            unsafe {
                let value = s.mul(s.sub(s.load_partial(self.input.as_ptr().add(index), count), mean), factor);
                let scale = match self.scales {
                    Some(scales) => s.load_partial(scales.as_ptr().add(index), count),
                    None => s.splat(self.scale),
                };
                let bias = match self.biases {
                    Some(biases) => s.load_partial(biases.as_ptr().add(index), count),
                    None => s.splat(self.bias),
                };
                s.store_partial(output.as_mut_ptr().add(index), s.fma(value, scale, bias), count);
            }
            index += count;
        }
    }
}

/// The sum of the values less `mean`, or of their squares, in four interleaved partial sums.
#[inline(always)]
fn sum<S: Simd>(s: S, values: &[f32], mean: f32, squares: bool) -> f32 {
    let mut sums = [s.splat(0.0); 4];
    let center = s.splat(mean);
    let (pointer, len) = (values.as_ptr(), values.len());
    let mut index = 0;
    while index + 4 * S::LANES <= len {
        for part in 0..4 {
            // SAFETY: four vectors lie in the values.
            let value = s.sub(unsafe { s.load(pointer.add(index + part * S::LANES)) }, center);
            sums[part] = if squares { s.fma(value, value, sums[part]) } else { s.add(sums[part], value) };
        }
        index += 4 * S::LANES;
    }
    let means = [mean; MOST_LANES];
    for part in 0..4 {
        let count = (len - index).min(S::LANES);
        // SAFETY: so many values are left, and a vector has no more lanes than there are means. Lanes beyond the last value
        // are zero in both.
        let value = unsafe { s.sub(s.load_partial(pointer.add(index), count), s.load_partial(means.as_ptr(), count)) };
        sums[part] = if squares { s.fma(value, value, sums[part]) } else { s.add(sums[part], value) };
        index += count;
    }
    s.reduce_add(s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3])))
}

/// Local response normalisation across channels of `input` `[batch, channels, positions]`:
/// `x / (bias + alpha / size * sum of squares over the size channels around)^beta`.
///
/// # Errors
/// A slice does not fit the sizes, or `size` is zero.
pub fn local_response_normalization(
    isa: Isa,
    [batch, channels, positions]: [usize; 3],
    size: usize,
    alpha: f32,
    beta: f32,
    bias: f32,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let len = product("input", &[batch, channels, positions])?;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    if size == 0 {
        return Err(KernelError::invalid("size", "must not be zero"));
    }
    if len == 0 {
        return Ok(());
    }
    let shared = SharedMut::new(output);
    let work = (len as u64).saturating_mul(2 + size.min(channels) as u64 / 4);
    parallel_for(batch * channels, CHUNK.div_ceil(positions), work, |range| {
        for plane in range {
            let (image, channel) = (plane / channels, plane % channels);
            let first = channel.saturating_sub((size - 1) / 2);
            let last = channels.min(channel + size / 2 + 1);
            let around = &input[(image * channels + first) * positions..(image * channels + last) * positions];
            let center = &input[plane * positions..][..positions];
            // SAFETY: planes are disjoint.
            let output = unsafe { shared.slice(plane * positions..(plane + 1) * positions) };
            let power = ResponsePower { factor: alpha / size as f32, beta, bias };
            dispatch(isa, Response { around, center, output, power });
        }
    });
    Ok(())
}

struct Response<'a> {
    around: &'a [f32],
    center: &'a [f32],
    output: &'a mut [f32],
    power: ResponsePower,
}

impl Kernel for Response<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let len = self.center.len();
        let whole = len - len % S::LANES;
        let (center, output) = (self.center.as_ptr(), self.output.as_mut_ptr());
        for index in (0..whole).step_by(S::LANES) {
            let mut squares = s.splat(0.0);
            for plane in self.around.chunks_exact(len) {
                // SAFETY: a vector from the index on lies in the plane.
                let value = unsafe { s.load(plane.as_ptr().add(index)) };
                squares = s.fma(value, value, squares);
            }
            let power = self.power.of(s, squares);
            // SAFETY: as above, for the center and the output.
            unsafe { s.store(output.add(index), s.mul(s.load(center.add(index)), power)) };
        }
        if whole < len {
            let count = len - whole;
            let mut squares = s.splat(0.0);
            for plane in self.around.chunks_exact(len) {
                // SAFETY: so many values lie in the plane behind the whole vectors.
                let value = unsafe { s.load_partial(plane.as_ptr().add(whole), count) };
                squares = s.fma(value, value, squares);
            }
            let power = self.power.of(s, squares);
            // SAFETY: as above, for the center and the output.
            unsafe {
                let value = s.load_partial(center.add(whole), count);
                s.store_partial(output.add(whole), s.mul(value, power), count);
            }
        }
    }
}

/// The power of sums of squares that values are divided by: `(bias + factor * sum)^beta`.
#[derive(Clone, Copy)]
pub(crate) struct ResponsePower {
    /// The scale of the sum.
    pub factor: f32,
    /// The exponent.
    pub beta: f32,
    /// What is added to the scaled sum.
    pub bias: f32,
}

impl ResponsePower {
    /// What values with such sums of squares around them are multiplied by.
    #[inline(always)]
    pub fn of<S: Simd>(&self, s: S, squares: S::F) -> S::F {
        let base = s.fma(squares, s.splat(self.factor), s.splat(self.bias));
        if self.beta == 0.75 {
            // The exponent that networks have is a product of roots.
            let root = s.sqrt(base);
            return s.div(s.splat(1.0), s.mul(root, s.sqrt(root)));
        }
        exp(s, s.mul(log(s, base), s.splat(-self.beta)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn rows_agree_with_the_definition() {
        let mut random = Random::new(9);
        for (rows, groups, channels, positions) in [
            (1, 1, 1, 1),
            (4, 2, 3, 7),
            (3, 3, 1, 100),
            (2, 1, 6, 16),
            (2, 1, 5, 64),
            (0, 1, 1, 3),
            (11, 1, 1, 4),
            (9, 1, 2, 8),
            (50, 1, 1, 1),
        ] {
            let columns = channels * positions;
            let input: Vec<f32> = random.values(rows * columns).iter().map(|x| x * 3.0 + 1.0).collect();
            let (element, channel) = (random.values(columns), random.values(channels * groups));
            let affine = |kind: usize| match kind {
                0 => Affine::None,
                1 => Affine::PerElement(&element),
                _ => Affine::PerChannel { values: &channel, groups },
            };
            let value = |kind: usize, row: usize, column: usize, neutral: f64| match kind {
                0 => neutral,
                1 => f64::from(element[column]),
                _ => f64::from(channel[row % groups * channels + column / positions]),
            };
            for (isa, case) in Isa::available().flat_map(|isa| (0..144).map(move |case| (isa, case))) {
                let (scale, bias) = (case % 3, case / 3 % 3);
                let (subtract_mean, divide, epsilon_inside) =
                    (case / 9 % 2 == 0, case / 18 % 2 == 0, case / 36 % 2 == 0);
                let of_sum = case / 72 == 1;
                let normalization = Normalization {
                    subtract_mean,
                    divide,
                    of_sum,
                    epsilon: 1e-3,
                    epsilon_inside,
                    scale: affine(scale),
                    bias: affine(bias),
                };
                let mut output = vec![f32::NAN; input.len()];
                normalize(isa, [rows, columns, 1], &normalization, &input, &mut output).unwrap();
                let mut expected = Vec::new();
                for (row, line) in input.chunks(columns).enumerate() {
                    let mean = if subtract_mean {
                        line.iter().map(|&x| f64::from(x)).sum::<f64>() / columns as f64
                    } else {
                        0.0
                    };
                    let sum = line.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>();
                    let square = if of_sum { sum } else { sum / columns as f64 };
                    let root = if epsilon_inside { (square + 1e-3).sqrt() } else { square.sqrt() + 1e-3 };
                    let root = if divide { root } else { 1.0 };
                    for (column, &x) in line.iter().enumerate() {
                        expected.push(
                            (f64::from(x) - mean) / root * value(scale, row, column, 1.0)
                                + value(bias, row, column, 0.0),
                        );
                    }
                }
                assert_close(&output, &expected, columns, &format!("{isa} {normalization:?}"));
            }
        }
        let bad = Normalization {
            subtract_mean: true,
            divide: true,
            of_sum: false,
            epsilon: 0.0,
            epsilon_inside: true,
            scale: Affine::PerChannel { values: &[1.0; 3], groups: 2 },
            bias: Affine::None,
        };
        assert!(normalize(Isa::portable(), [2, 4, 1], &bad, &[0.0; 8], &mut [0.0; 8]).is_err());
    }

    #[test]
    fn a_middle_axis_is_like_rows() {
        let mut random = Random::new(10);
        for [rows, columns, inner] in [[1, 1, 2], [2, 3, 5], [3, 6, 70], [1, 130, 1100], [2, 64, 17], [1, 70_001, 2]] {
            let input: Vec<f32> = random.values(rows * columns * inner).iter().map(|x| x * 3.0 + 1.0).collect();
            let turned = |values: &[f32], [outer, lines, width]: [usize; 3]| -> Vec<f32> {
                let at = |o: usize, w: usize, l: usize| values[(o * lines + l) * width + w];
                let places = (0..outer).flat_map(|o| (0..width).flat_map(move |w| (0..lines).map(move |l| (o, w, l))));
                places.map(|(o, w, l)| at(o, w, l)).collect()
            };
            let rows_of_input = turned(&input, [rows, columns, inner]);
            let (element, whole) = (random.values(columns), random.values(1));
            let affine = |kind: usize| match kind {
                0 => Affine::None,
                1 => Affine::PerElement(&element),
                _ => Affine::PerChannel { values: &whole, groups: 1 },
            };
            for (isa, case) in Isa::available().flat_map(|isa| (0..144).map(move |case| (isa, case))) {
                let normalization = Normalization {
                    subtract_mean: case / 9 % 2 == 0,
                    divide: case / 18 % 2 == 0,
                    of_sum: case / 72 == 1,
                    epsilon: 1e-3,
                    epsilon_inside: case / 36 % 2 == 0,
                    scale: affine(case % 3),
                    bias: affine(case / 3 % 3),
                };
                let mut output = vec![f32::NAN; input.len()];
                normalize(isa, [rows, columns, inner], &normalization, &input, &mut output).unwrap();
                let mut expected = vec![f32::NAN; input.len()];
                normalize(isa, [rows * inner, columns, 1], &normalization, &rows_of_input, &mut expected).unwrap();
                let expected: Vec<f64> = turned(&expected, [rows, inner, columns]).into_iter().map(f64::from).collect();
                assert_close(&output, &expected, columns, &format!("{isa} {normalization:?}"));
                let mut threaded = vec![f32::NAN; input.len()];
                in_pool(3, || normalize(isa, [rows, columns, inner], &normalization, &input, &mut threaded)).unwrap();
                assert_eq!(output, threaded);
            }
        }
    }

    #[test]
    fn local_response() {
        let input = Random::new(3).values(2 * 7 * 21);
        let cases = Isa::available().flat_map(|isa| [5, 1, 4, 30].map(|size| (isa, size)));
        for ((isa, size), beta) in cases.flat_map(|case| [0.75f32, 0.6].map(|beta| (case, beta))) {
            let mut output = vec![f32::NAN; input.len()];
            local_response_normalization(isa, [2, 7, 21], size, 0.5, beta, 1.5, &input, &mut output).unwrap();
            let expected: Vec<f64> = (0..input.len())
                .map(|index| {
                    let (n, c, p) = (index / 147, index / 21 % 7, index % 21);
                    let sum: f64 = (0..7)
                        .filter(|&k| k + (size - 1) / 2 >= c && k <= c + size / 2)
                        .map(|k| f64::from(input[n * 147 + k * 21 + p]).powi(2))
                        .sum();
                    f64::from(input[index]) / (1.5 + 0.5 / size as f64 * sum).powf(f64::from(beta))
                })
                .collect();
            assert_close(&output, &expected, 4, "response");
        }
    }
}
