//! Normalisation of the mean and the variance of each channel of blocked tensors: a vector is sixteen channels of one
//! position.
//!
//! Positions are cut into chunks, whose means and variances are joined: sums of many small numbers keep their digits, chunks
//! stay in the first cache for both, and one block of channels has work for several threads.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_chunks_mut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Positions of a chunk.
const CHUNK: usize = 256;

/// Positions that are summed side by side.
const SIDE_BY_SIDE: usize = 4;

/// What is done to every channel after its mean is subtracted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanVariance {
    /// Divide by the square root of the variance.
    pub divide: bool,
    /// Added to the variance, or to its root.
    pub epsilon: f32,
    /// Whether epsilon is added under the root.
    pub epsilon_inside: bool,
}

/// Elements of scratch that [`blocked_mean_variance`] needs: the mean and the sum of squares of each chunk.
#[must_use]
pub fn blocked_mean_variance_scratch_len(batch: usize, channels: usize, positions: usize) -> usize {
    blocked_len(batch, channels, positions.div_ceil(CHUNK)).saturating_mul(2)
}

/// Normalises every channel of every image of blocked `[batch, channels, positions]`.
///
/// # Errors
/// A slice does not fit the sizes.
pub fn blocked_mean_variance(
    isa: Isa,
    [batch, channels, positions]: [usize; 3],
    normalization: &MeanVariance,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let len = product("input", &[batch, channels.div_ceil(BLOCK), BLOCK, positions])?;
    check_exact("input", input.len(), len)?;
    check_exact("output", output.len(), len)?;
    let needed = blocked_mean_variance_scratch_len(batch, channels, positions);
    check_len("scratch", scratch.len(), needed)?;
    if len == 0 {
        return Ok(());
    }
    let (volume, chunks) = (positions * BLOCK, positions.div_ceil(CHUNK));
    let work = nanoseconds_for_bytes(len.saturating_mul(4));
    let range_of = |index: usize| {
        let (start, first) = (index / chunks * volume, index % chunks * CHUNK * BLOCK);
        start + first..start + volume.min(first + CHUNK * BLOCK)
    };
    let scratch = &mut scratch[..needed];
    parallel_chunks_mut(scratch, 2 * BLOCK, work, |index, statistics| {
        dispatch(isa, Statistics { input: &input[range_of(index)], statistics });
    });
    scratch.chunks_exact_mut(chunks * 2 * BLOCK).for_each(|chunks| join(positions, normalization, chunks));
    let (scratch, shared) = (&*scratch, SharedMut::new(output));
    parallel_for(len / volume * chunks, 1, work.saturating_mul(2), |range| {
        for index in range {
            let place = range_of(index);
            let joined = &scratch[index / chunks * chunks * 2 * BLOCK..][..2 * BLOCK];
            // SAFETY: chunks are disjoint and lie in the output, which is as long as the input.
            let output = unsafe { shared.slice(place.clone()) };
            dispatch(isa, Apply { input: &input[place], joined, output });
        }
    });
    Ok(())
}

/// Puts the means of all positions and the factors of a block, sixteen of each, where its first chunk has its own.
fn join(positions: usize, normalization: &MeanVariance, chunks: &mut [f32]) {
    let MeanVariance { divide, epsilon, epsilon_inside } = *normalization;
    let count = chunks.len() / (2 * BLOCK);
    let weight = |chunk: usize| (positions - chunk * CHUNK).min(CHUNK) as f64;
    for lane in 0..BLOCK {
        let value = |chunk: usize, of: usize| f64::from(chunks[(chunk * 2 + of) * BLOCK + lane]);
        let mean = (0..count).map(|chunk| weight(chunk) * value(chunk, 0)).sum::<f64>() / positions as f64;
        let squares: f64 =
            (0..count).map(|chunk| value(chunk, 1) + weight(chunk) * (value(chunk, 0) - mean).powi(2)).sum();
        let variance = squares / positions as f64;
        let root = match epsilon_inside {
            true => (variance + f64::from(epsilon)).sqrt(),
            false => variance.sqrt() + f64::from(epsilon),
        };
        chunks[lane] = mean as f32;
        chunks[BLOCK + lane] = if divide { (1.0 / root) as f32 } else { 1.0 };
    }
}

/// The means of the positions of a chunk, and the sums of the squares of the distances from them.
struct Statistics<'a> {
    input: &'a [f32],
    statistics: &'a mut [f32],
}

impl Kernel for Statistics<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let positions = self.input.len() / BLOCK;
        if self.statistics.len() < 2 * BLOCK {
            return;
        }
        for part in (0..BLOCK).step_by(S::LANES) {
            let sum = total(s, self.input, part, s.splat(0.0), false);
            let mean = s.div(sum, s.splat(positions as f32));
            let squares = total(s, self.input, part, mean, true);
            // SAFETY: the statistics hold two blocks, and the part lies in a block.
            unsafe {
                s.store(self.statistics.as_mut_ptr().add(part), mean);
                s.store(self.statistics.as_mut_ptr().add(BLOCK + part), squares);
            }
        }
    }
}

/// The sums over all positions of a part of a block, or those of the squares of the distances from `center`.
#[inline(always)]
fn total<S: Simd>(s: S, input: &[f32], part: usize, center: S::F, squares: bool) -> S::F {
    let positions = input.len() / BLOCK;
    let mut sums = [s.splat(0.0); SIDE_BY_SIDE];
    let mut position = 0;
    while position + SIDE_BY_SIDE <= positions {
        for (index, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the position lies in the input.
            *sum = unsafe { added(s, input.as_ptr().add((position + index) * BLOCK + part), center, squares, *sum) };
        }
        position += SIDE_BY_SIDE;
    }
    while position < positions {
        // SAFETY: the position lies in the input.
        sums[0] = unsafe { added(s, input.as_ptr().add(position * BLOCK + part), center, squares, sums[0]) };
        position += 1;
    }
    s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]))
}

/// A sum with one more distance from the center, or its square.
///
/// # Safety
/// There is a vector at the address.
#[inline(always)]
unsafe fn added<S: Simd>(s: S, from: *const f32, center: S::F, squares: bool, sum: S::F) -> S::F {
    // SAFETY: the caller's promise.
    let value = s.sub(unsafe { s.load(from) }, center);
    if squares { s.fma(value, value, sum) } else { s.add(sum, value) }
}

/// Subtracts means and multiplies by factors.
struct Apply<'a> {
    input: &'a [f32],
    /// Sixteen means and sixteen factors.
    joined: &'a [f32],
    output: &'a mut [f32],
}

impl Kernel for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let positions = self.input.len().min(self.output.len()) / BLOCK;
        if self.joined.len() < 2 * BLOCK {
            return;
        }
        for part in (0..BLOCK).step_by(S::LANES) {
            // SAFETY: the part lies in a block, of which there are two for each position.
            unsafe {
                let mean = s.load(self.joined.as_ptr().add(part));
                let factor = s.load(self.joined.as_ptr().add(BLOCK + part));
                for position in 0..positions {
                    let place = position * BLOCK + part;
                    let value = s.sub(s.load(self.input.as_ptr().add(place)), mean);
                    s.store(self.output.as_mut_ptr().add(place), s.mul(value, factor));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{from_plain, to_plain};
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    #[test]
    fn channels_are_normalised() {
        let mut random = Random::new(4);
        for (batch, channels, positions) in
            [(1, 1, 1), (2, 19, 7), (1, 16, CHUNK), (1, 33, 2 * CHUNK + 3), (2, 5, 20_000), (0, 3, 4), (1, 3, 0)]
        {
            // Far from zero, where sums lose digits.
            let values: Vec<f32> = random.values(batch * channels * positions).iter().map(|x| x + 3.0).collect();
            let mut blocked = vec![f32::NAN; blocked_len(batch, channels, positions)];
            from_plain(batch, channels, positions, &values, &mut blocked).unwrap();
            for (divide, epsilon_inside) in [(true, true), (true, false), (false, true)] {
                let normalization = MeanVariance { divide, epsilon: 0.01, epsilon_inside };
                let mut expected = Vec::new();
                for line in values.chunks(positions.max(1)) {
                    let mean = line.iter().map(|x| f64::from(*x)).sum::<f64>() / line.len() as f64;
                    let square = line.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / line.len() as f64;
                    let root = if epsilon_inside { (square + 0.01).sqrt() } else { square.sqrt() + 0.01 };
                    let root = if divide { root } else { 1.0 };
                    expected.extend(line.iter().map(|x| (f64::from(*x) - mean) / root));
                }
                for isa in Isa::available() {
                    let run = || {
                        let len = blocked_mean_variance_scratch_len(batch, channels, positions);
                        let (mut output, mut scratch) = (vec![f32::NAN; blocked.len()], vec![f32::NAN; len]);
                        let sizes = [batch, channels, positions];
                        blocked_mean_variance(isa, sizes, &normalization, &blocked, &mut output, &mut scratch).unwrap();
                        let mut plain = vec![f32::NAN; values.len()];
                        to_plain(batch, channels, positions, &output, &mut plain).unwrap();
                        plain
                    };
                    let result = run();
                    assert_close(&result, &expected, 100, &format!("{isa} {batch} {channels} {positions}"));
                    assert_eq!(result, in_pool(3, run));
                }
            }
        }
    }

    #[test]
    fn misfitting_slices_are_errors() {
        let normalization = MeanVariance { divide: true, epsilon: 0.1, epsilon_inside: true };
        let run = |sizes: [usize; 3], input: usize, output: usize, scratch: usize| {
            let (input, mut output, mut scratch) = (vec![0.0; input], vec![0.0; output], vec![0.0; scratch]);
            blocked_mean_variance(crate::isa::detect(), sizes, &normalization, &input, &mut output, &mut scratch)
        };
        assert!(run([1, 3, 4], 64, 64, 32).is_ok());
        assert!(run([1, 3, 4], 63, 64, 32).is_err());
        assert!(run([1, 3, 4], 64, 80, 32).is_err());
        assert!(run([1, 3, 4], 64, 64, 31).is_err());
        assert!(run([usize::MAX, 3, 4], 64, 64, 32).is_err());
    }
}
