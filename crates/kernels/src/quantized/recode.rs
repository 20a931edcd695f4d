//! Codes that become codes of other levels: their values are scaled and shifted channel by channel on the way, and those of
//! other codes may be added.

use super::codes::{Dequantizer, store_codes};
use super::finish::{AddingLanes, AddingVector, Decoding, DirectLanes, DirectVector, Encodings};
use crate::blocked::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Positions that a parallel chunk covers at most.
const CHUNK: usize = 1 << 10;

/// What is done to the values of codes: `min(max(value * scale + shift + added, low), high)`.
#[derive(Debug, Clone, Copy)]
pub struct Recoding<'a> {
    /// What the codes stand for.
    pub from: Dequantizer,
    /// What values are multiplied with: one for each channel, filled up to blocks, of one image or of each.
    pub scales: &'a [f32],
    /// What is added then, as many.
    pub shifts: &'a [f32],
    /// Other codes, as many, and what they stand for: their values are added.
    pub added: Option<(&'a [u8], Dequantizer)>,
    /// The limits of the result.
    pub limits: (f32, f32),
    /// How the result becomes codes. A code may be the one beside where a value lies within a few units in the last place of
    /// the border of two.
    pub to: &'a Encodings,
}

/// Makes codes of blocked codes of `[images, channels, positions]`.
///
/// # Errors
/// A slice has the wrong length, or the levels are not those of so many channels.
pub fn recode(
    isa: Isa,
    [batch, channels, positions]: [usize; 3],
    recoding: &Recoding<'_>,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), blocked_len(batch, channels, positions))?;
    check_exact("output", output.len(), input.len())?;
    let lanes = channels.next_multiple_of(BLOCK);
    let images = if recoding.scales.len() == lanes { 1 } else { batch };
    check_exact("scales", recoding.scales.len(), lanes.saturating_mul(images))?;
    check_exact("shifts", recoding.shifts.len(), recoding.scales.len())?;
    if let Some((codes, _)) = recoding.added {
        check_exact("added", codes.len(), input.len())?;
    }
    recoding.to.check(channels)?;
    let (blocks, parts) = (lanes / BLOCK, positions.div_ceil(CHUNK));
    let shared = SharedMut::new(output);
    parallel_for(batch * blocks * parts, 1, nanoseconds_for_bytes(input.len().saturating_mul(2)), |range| {
        for task in range {
            let (plane, part) = (task / parts, task % parts);
            let places = part * CHUNK..positions.min((part + 1) * CHUNK);
            let range = (plane * positions + places.start) * BLOCK..(plane * positions + places.end) * BLOCK;
            let channel = plane % (blocks * images) * BLOCK;
            let of_block = |values: &[f32]| std::array::from_fn(|lane| values[channel + lane]);
            let lanes = recoding.to.lanes(plane % blocks * BLOCK);
            let (scales, shifts) = (of_block(recoding.scales), of_block(recoding.shifts));
            // SAFETY: tasks cover disjoint parts.
            let output = unsafe { shared.slice(range.clone()) };
            let (from, input) = (Decoding::new(&recoding.from), &input[range.clone()]);
            match recoding.added {
                None => {
                    let direct = lanes.direct(&scales, &shifts, recoding.limits);
                    dispatch(isa, Positions { from, ending: &direct, input, output });
                }
                Some((codes, of_added)) => {
                    let of_added = Decoding::new(&of_added);
                    let adding = lanes.adding(&scales, &shifts, None, &of_added, recoding.limits);
                    dispatch(isa, Positions { from, ending: &(&codes[range], adding), input, output });
                }
            }
        }
    });
    Ok(())
}

/// What becomes of the values of a vector of channels at each position.
trait Ending {
    /// What the lanes have in common at all positions.
    type Parameters<S: Simd>;

    /// Those of the lanes from one on.
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> Self::Parameters<S>;

    /// The codes of values, whose first is an element of the block.
    ///
    /// # Safety
    /// A vector from that element on lies in the block.
    unsafe fn codes<S: Simd>(&self, s: S, parameters: &Self::Parameters<S>, value: S::F, at: usize) -> S::I;
}

impl Ending for DirectLanes<BLOCK> {
    type Parameters<S: Simd> = DirectVector<S>;

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> DirectVector<S> {
        self.at(s, lane)
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(&self, s: S, parameters: &DirectVector<S>, value: S::F, _at: usize) -> S::I {
        parameters.codes(s, value)
    }
}

/// The codes of a block that are added, which has as many as there are others.
impl Ending for (&[u8], AddingLanes<BLOCK>) {
    type Parameters<S: Simd> = AddingVector<S>;

    #[inline(always)]
    fn parameters<S: Simd>(&self, s: S, lane: usize) -> AddingVector<S> {
        self.1.at(s, lane)
    }

    #[inline(always)]
    unsafe fn codes<S: Simd>(&self, s: S, parameters: &AddingVector<S>, value: S::F, at: usize) -> S::I {
        // SAFETY: the caller's promise.
        let added = s.from_i(unsafe { s.load_u8(self.0.as_ptr().add(at)) });
        parameters.codes(s, value, added)
    }
}

/// Positions of one block.
struct Positions<'a, E> {
    from: Decoding,
    ending: &'a E,
    input: &'a [u8],
    output: &'a mut [u8],
}

impl<E: Ending> Kernel for Positions<'_, E> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let len = self.input.len().min(self.output.len()) / BLOCK * BLOCK;
        let (from, to) = (self.input.as_ptr(), self.output.as_mut_ptr());
        for part in (0..BLOCK).step_by(S::LANES) {
            let parameters = self.ending.parameters(s, part);
            let mut at = part;
            while at < len {
                // SAFETY: the part lies in a block of all slices.
                unsafe {
                    let value = self.from.values(s, s.from_i(s.load_u8(from.add(at))));
                    let codes = self.ending.codes(s, &parameters, value, at);
                    store_codes(s, to.add(at), codes, S::LANES);
                }
                at += BLOCK;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    /// Every tier gives the codes of the values, those of channels of each image and of all.
    #[test]
    fn codes_are_those_of_scaled_values() {
        let mut random = Random::new(7);
        let from = Dequantizer { low: -0.5, high: 2.0, steps: 255.0 };
        for [batch, channels, positions] in [[1, 16, 1], [2, 20, 9], [3, 40, 1500]] {
            let input: Vec<u8> =
                (0..blocked_len(batch, channels, positions)).map(|_| random.between(0, 255) as u8).collect();
            let lanes = channels.next_multiple_of(BLOCK);
            for (images, of_channels) in [(1, false), (batch, false), (batch, true)] {
                let (scales, shifts) = (random.values(lanes * images), random.values(lanes * images));
                let low: Vec<f32> =
                    (0..if of_channels { channels } else { 1 }).map(|c| -1.0 - c as f32 / 9.0).collect();
                let high: Vec<f32> = low.iter().map(|low| 1.5 - low).collect();
                let to = Encodings::new(&low, &high, 255.0).unwrap();
                let limits = (-0.25, f32::INFINITY);
                let others: Vec<u8> = input.iter().rev().copied().collect();
                let of_others = Dequantizer { low: -0.75, high: 0.5, steps: 127.0 };
                let added = (images == 1).then_some((&others[..], of_others));
                let recoding = Recoding { from, scales: &scales, shifts: &shifts, added, limits, to: &to };
                let mut first: Option<Vec<u8>> = None;
                for (isa, threads) in Isa::available().flat_map(|isa| [(isa, 1), (isa, 2)]) {
                    let mut output = vec![0; input.len()];
                    in_pool(threads, || recode(isa, [batch, channels, positions], &recoding, &input, &mut output))
                        .unwrap();
                    for (index, (code, given)) in output.iter().zip(&input).enumerate() {
                        let plane = index / BLOCK / positions;
                        let (image, lane) = (plane / (lanes / BLOCK), plane % (lanes / BLOCK) * BLOCK + index % BLOCK);
                        if lane >= channels {
                            continue;
                        }
                        let place = if images == 1 { lane } else { image * lanes + lane };
                        let value = f64::from(*given) / 255.0 * 2.5 - 0.5;
                        let mut value = value * f64::from(scales[place]) + f64::from(shifts[place]);
                        if added.is_some() {
                            value += f64::from(others[index]) / 127.0 * 1.25 - 0.75;
                        }
                        let level = if of_channels { lane } else { 0 };
                        let [low, high] = [low[level], high[level]].map(f64::from);
                        let expected = (value.max(-0.25).clamp(low, high) - low) / (high - low) * 255.0;
                        let error = (expected - f64::from(*code)).abs();
                        assert!(error < 0.5001, "{isa}: element {index} is {code} and should be {expected}");
                    }
                    let first = first.get_or_insert_with(|| output.clone());
                    let differing = first.iter().zip(&output).filter(|(a, b)| a != b).count();
                    assert_eq!(differing * 1000 / output.len().max(1), 0, "{isa}");
                }
            }
        }
        let to = Encodings::new(&[0.0], &[1.0], 255.0).unwrap();
        let limits = (0.0, 1.0);
        let recoding = Recoding { from, scales: &[1.0; 16], shifts: &[0.0; 15], added: None, limits, to: &to };
        let added = Some((&[0; 15][..], from));
        let fewer = Recoding { from, scales: &[1.0; 16], shifts: &[0.0; 16], added, limits, to: &to };
        for isa in Isa::available() {
            assert!(recode(isa, [1, 16, 1], &recoding, &[0; 16], &mut [0; 16]).is_err());
            assert!(recode(isa, [1, 16, 1], &fewer, &[0; 16], &mut [0; 16]).is_err());
            assert!(recode(isa, [1, 17, 1], &recoding, &[0; 32], &mut [0; 32]).is_err());
            assert!(recode(isa, [1, 16, 1], &recoding, &[0; 16], &mut [0; 15]).is_err());
        }
    }
}
