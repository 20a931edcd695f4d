//! # Encode and Decode
//! The two halves of a FakeQuantize whose limits are known, for the whole tensor or for each channel: from f32 to the numbers
//! of levels, which have one byte, and back. Optimisation makes them; they are never in a file.
//!
//! | layer | in 0 | out 0 | shape |
//! |---|---|---|---|
//! | Encode | f32 | u8 | any |
//! | Decode | u8 | f32 | any |
//!
//! Channels lie along axis 1. Both compute what the expression of FakeQuantize does, step by step in f32. The level of NaN is 0.

use std::sync::Arc;

use ovir_tensor::{ElementType, Shape};

use crate::{EvaluateContext, InferContext, OpResult, Operation};

/// Levels at equal distances.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    /// The value of level 0: one for all channels, or one for each.
    pub low: Arc<[f32]>,
    /// The value of the last level, of as many channels.
    pub high: Arc<[f32]>,
    /// The number of the last level, at most 255.
    pub last: u8,
}

impl Levels {
    /// The limits of a whole tensor, if they are such.
    #[must_use]
    pub fn whole(&self) -> Option<[f32; 2]> {
        match (&*self.low, &*self.high) {
            ([low], [high]) => Some([*low, *high]),
            _ => None,
        }
    }

    /// The distance between levels of a whole tensor, and the level of zero, which need not be one of them nor an integer.
    #[must_use]
    pub fn step_and_zero(&self) -> Option<[f64; 2]> {
        let [low, high] = self.whole()?.map(f64::from);
        let step = (high - low) / f64::from(self.last);
        Some([step, -low / step])
    }

    /// The limits of a channel.
    fn limits(&self, channel: usize) -> [f32; 2] {
        [&self.low, &self.high].map(|limits| limits.get(channel).or(limits.first()).copied().unwrap_or_default())
    }
}

/// The number of the channel of an element of a tensor.
fn channels(shape: &Shape) -> impl Fn(usize) -> usize {
    let inner = shape.get(2..).map_or(1, |sizes| sizes.iter().product::<usize>()).max(1);
    let count = shape.get(1).copied().unwrap_or(1).max(1);
    move |element| element / inner % count
}

/// From values to the nearest levels; what lies beyond the limits becomes the first and the last.
#[derive(Debug)]
pub struct Encode {
    /// The levels.
    pub levels: Levels,
}

/// From levels to values.
#[derive(Debug)]
pub struct Decode {
    /// The levels.
    pub levels: Levels,
}

fn infer_as(context: &mut InferContext<'_>, element_type: ElementType) -> OpResult {
    let shape = context.shape(0).clone();
    context.set_output(0, element_type, shape);
    Ok(())
}

impl Operation for Encode {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_as(context, ElementType::U8)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (last, data) = (self.levels.last, context.input(0)?);
        let (mut output, channel) = (context.output(0, data.shape())?, channels(data.shape()));
        for (place, (code, value)) in output.slice_mut::<u8>()?.iter_mut().zip(data.slice::<f32>()?).enumerate() {
            let [low, high] = self.levels.limits(channel(place));
            *code = match value {
                value if *value > high => last,
                value if *value > low => ((value - low) / (high - low) * f32::from(last)).round_ties_even() as u8,
                _ => 0,
            };
        }
        Ok(())
    }
}

impl Operation for Decode {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_as(context, ElementType::F32)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (last, codes) = (self.levels.last, context.input(0)?);
        let (mut output, channel) = (context.output(0, codes.shape())?, channels(codes.shape()));
        for (place, (value, code)) in output.slice_mut::<f32>()?.iter_mut().zip(codes.slice::<u8>()?).enumerate() {
            let [low, high] = self.levels.limits(channel(place));
            *value = f32::from(*code) / f32::from(last) * (high - low) + low;
        }
        Ok(())
    }
}
