//! FakeQuantize of blocked tensors whose channels have limits of their own.

use super::{BLOCK, blocked_len};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::math::Levels;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// Positions that a parallel chunk covers at least.
const CHUNK: usize = 1 << 10;

/// The limits of a FakeQuantize of each channel.
#[derive(Debug, Clone)]
pub struct ChannelLevels {
    /// The lower and the upper limit of the input and of the output, filled up to whole blocks.
    limits: [Vec<f32>; 4],
    /// The number of levels, less one.
    steps: f32,
    channels: usize,
}

impl ChannelLevels {
    /// Levels with limits of so many channels: input low, input high, output low, output high.
    ///
    /// # Errors
    /// The limits differ in number.
    pub fn new(limits: [Vec<f32>; 4], steps: f32) -> Result<Self, KernelError> {
        let channels = limits[0].len();
        let mut limits = limits;
        for (values, filling) in limits.iter_mut().zip([0.0, 1.0, 0.0, 1.0]) {
            check_exact("limits", values.len(), channels)?;
            values.resize(channels.next_multiple_of(BLOCK), filling);
        }
        Ok(Self { limits, steps, channels })
    }
}

/// Replaces the values of a blocked tensor `[batch, channels, positions]` by their levels.
///
/// # Errors
/// The data has the wrong length.
pub fn blocked_fake_quantize(
    isa: Isa,
    levels: &ChannelLevels,
    batch: usize,
    positions: usize,
    data: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("data", data.len(), blocked_len(batch, levels.channels, positions))?;
    let blocks = levels.channels.div_ceil(BLOCK);
    let work = nanoseconds_for_bytes(data.len().saturating_mul(8));
    let shared = SharedMut::new(data);
    let parts = positions.div_ceil(CHUNK);
    parallel_for(batch * blocks * parts, 1, work, |range| {
        for task in range {
            let (plane, part) = (task / parts, task % parts);
            let places = part * CHUNK..positions.min((part + 1) * CHUNK);
            let start = (plane * positions + places.start) * BLOCK;
            // SAFETY: tasks cover disjoint parts of the data.
            let data = unsafe { shared.slice(start..start + places.len() * BLOCK) };
            dispatch(isa, Line { levels, channel: plane % blocks * BLOCK, data });
        }
    });
    Ok(())
}

/// Positions of one block.
struct Line<'a> {
    levels: &'a ChannelLevels,
    channel: usize,
    data: &'a mut [f32],
}

impl Kernel for Line<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let positions = self.data.len() / BLOCK;
        for lane in (0..BLOCK).step_by(S::LANES) {
            let limit = |index: usize| {
                let values = &self.levels.limits[index][self.channel + lane..][..S::LANES];
                // SAFETY: the slice has a vector.
                unsafe { s.load(values.as_ptr()) }
            };
            let levels = Levels::new(s, [limit(0), limit(1), limit(2), limit(3)], s.splat(self.levels.steps));
            let mut value = self.data.as_mut_ptr().wrapping_add(lane);
            for _ in 0..positions {
                // SAFETY: each position has a block.
                unsafe { s.store(value, levels.nearest(s, s.load(value))) };
                value = value.wrapping_add(BLOCK);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use crate::unary::{UnaryOp, unary_f32_in_place};
    use pretty_assertions::assert_eq;

    #[test]
    fn each_channel_has_its_levels() {
        let mut random = Random::new(5);
        let (batch, channels, positions) = (2, 19, 1500);
        let limits = [0.0, 0.5, -1.0, 2.0].map(|from| (0..channels).map(|i| from + i as f32 / 40.0).collect());
        let levels = ChannelLevels::new(limits, 255.0).unwrap();
        let mut values = random.values(batch * 32 * positions);
        values[5] = f32::NAN;
        let mut expected = values.clone();
        for (place, value) in expected.iter_mut().enumerate() {
            let channel = place / BLOCK / positions % 2 * BLOCK + place % BLOCK;
            let limit = |index: usize| levels.limits[index][channel];
            let op = UnaryOp::FakeQuantize {
                input_low: limit(0),
                input_high: limit(1),
                output_low: limit(2),
                output_high: limit(3),
                steps: 255.0,
            };
            unary_f32_in_place(Isa::portable(), op, std::slice::from_mut(value));
        }
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        for isa in Isa::available() {
            let run = || {
                let mut given = values.clone();
                blocked_fake_quantize(isa, &levels, batch, positions, &mut given).unwrap();
                bits(&given)
            };
            assert_eq!(run(), in_pool(2, run));
            assert!(run() == bits(&expected), "{isa}");
        }
        assert!(blocked_fake_quantize(Isa::portable(), &levels, 3, positions, &mut values).is_err());
        assert!(ChannelLevels::new([vec![0.0], vec![1.0, 2.0], vec![0.0], vec![1.0]], 3.0).is_err());
    }
}
