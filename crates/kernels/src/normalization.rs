//! Normalisation of f32 rows (layer, root-mean-square, mean-variance, group) and local response normalisation.

use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::math::{exp, log};
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// The lanes of the widest vector.
const MOST_LANES: usize = 16;

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
    /// Added to the mean square, or to its root.
    pub epsilon: f32,
    /// Whether epsilon is added under the root.
    pub epsilon_inside: bool,
    /// Multiplied afterwards.
    pub scale: Affine<'a>,
    /// Added last.
    pub bias: Affine<'a>,
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

/// Normalises every row of `input` `[rows, columns]` into `output`.
///
/// # Errors
/// A slice does not fit `rows` and `columns`.
pub fn normalize(
    isa: Isa,
    rows: usize,
    columns: usize,
    normalization: &Normalization<'_>,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    let len = product("input", &[rows, columns])?;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    normalization.scale.check("scale", rows, columns)?;
    normalization.bias.check("bias", rows, columns)?;
    if len == 0 {
        return Ok(());
    }
    let shared = SharedMut::new(output);
    parallel_for(rows, CHUNK.div_ceil(columns), len as u64 / 2, |range| {
        for row in range {
            // SAFETY: rows are disjoint.
            let output = unsafe { shared.slice(row * columns..(row + 1) * columns) };
            let input = &input[row * columns..][..columns];
            dispatch(isa, Row { normalization, row, input, output });
        }
    });
    Ok(())
}

struct Row<'a> {
    normalization: &'a Normalization<'a>,
    row: usize,
    input: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Row<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Normalization { subtract_mean, divide, epsilon, epsilon_inside, scale, bias } = *self.normalization;
        let columns = self.input.len();
        let mean = if subtract_mean { sum(s, self.input, 0.0, false) / columns as f32 } else { 0.0 };
        let factor = if divide {
            let square = sum(s, self.input, mean, true) / columns as f32;
            if epsilon_inside { 1.0 / (square + epsilon).sqrt() } else { 1.0 / (square.sqrt() + epsilon) }
        } else {
            1.0
        };
        let (scales, biases) = (scale.channels(self.row), bias.channels(self.row));
        let parts = scales.map_or(1, <[f32]>::len).max(biases.map_or(1, <[f32]>::len));
        let part = columns / parts;
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
            dispatch(isa, Response { around, center, output, factor: alpha / size as f32, beta, bias });
        }
    });
    Ok(())
}

struct Response<'a> {
    around: &'a [f32],
    center: &'a [f32],
    output: &'a mut [f32],
    factor: f32,
    beta: f32,
    bias: f32,
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
            let power = self.power(s, squares);
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
            let power = self.power(s, squares);
            // SAFETY: as above, for the center and the output.
            unsafe {
                let value = s.load_partial(center.add(whole), count);
                s.store_partial(output.add(whole), s.mul(value, power), count);
            }
        }
    }
}

impl Response<'_> {
    /// What values with such sums of squares around them are multiplied by.
    #[inline(always)]
    fn power<S: Simd>(&self, s: S, squares: S::F) -> S::F {
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
    use crate::testing::{Random, assert_close};

    #[test]
    fn rows_agree_with_the_definition() {
        let mut random = Random::new(9);
        for (rows, groups, channels, positions) in
            [(1, 1, 1, 1), (4, 2, 3, 7), (3, 3, 1, 100), (2, 1, 6, 16), (2, 1, 5, 64), (0, 1, 1, 3)]
        {
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
            for (isa, case) in Isa::available().flat_map(|isa| (0..72).map(move |case| (isa, case))) {
                let (scale, bias) = (case % 3, case / 3 % 3);
                let (subtract_mean, divide, epsilon_inside) =
                    (case / 9 % 2 == 0, case / 18 % 2 == 0, case / 36 % 2 == 0);
                let normalization = Normalization {
                    subtract_mean,
                    divide,
                    epsilon: 1e-3,
                    epsilon_inside,
                    scale: affine(scale),
                    bias: affine(bias),
                };
                let mut output = vec![f32::NAN; input.len()];
                normalize(isa, rows, columns, &normalization, &input, &mut output).unwrap();
                let mut expected = Vec::new();
                for (row, line) in input.chunks(columns).enumerate() {
                    let mean = if subtract_mean {
                        line.iter().map(|&x| f64::from(x)).sum::<f64>() / columns as f64
                    } else {
                        0.0
                    };
                    let square = line.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / columns as f64;
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
            epsilon: 0.0,
            epsilon_inside: true,
            scale: Affine::PerChannel { values: &[1.0; 3], groups: 2 },
            bias: Affine::None,
        };
        assert!(normalize(Isa::portable(), 2, 4, &bad, &[0.0; 8], &mut [0.0; 8]).is_err());
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
