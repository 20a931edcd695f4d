//! # Encode and Decode
//! The two halves of a FakeQuantize of a whole tensor whose limits are known: from f32 to the numbers of levels, which have
//! one byte, and back. Optimisation makes them; they are never in a file.
//!
//! | layer | in 0 | out 0 | shape |
//! |---|---|---|---|
//! | Encode | f32 | u8 | any |
//! | Decode | u8 | f32 | any |
//!
//! Both compute what the expression of FakeQuantize does, step by step in f32. The level of NaN is 0.

use ovir_tensor::ElementType;

use crate::{EvaluateContext, InferContext, OpResult, Operation};

/// Levels at equal distances.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Levels {
    /// The value of level 0.
    pub low: f32,
    /// The value of the last level.
    pub high: f32,
    /// The number of the last level, at most 255.
    pub last: u8,
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
        let (Levels { low, high, last }, data) = (self.levels, context.input(0)?);
        let mut output = context.output(0, data.shape())?;
        for (code, value) in output.slice_mut::<u8>()?.iter_mut().zip(data.slice::<f32>()?) {
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
        let (Levels { low, high, last }, codes) = (self.levels, context.input(0)?);
        let mut output = context.output(0, codes.shape())?;
        for (value, code) in output.slice_mut::<f32>()?.iter_mut().zip(codes.slice::<u8>()?) {
            *value = f32::from(*code) / f32::from(last) * (high - low) + low;
        }
        Ok(())
    }
}
