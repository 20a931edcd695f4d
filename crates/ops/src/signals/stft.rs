//! # STFT
//! Fourier transforms of windowed frames of a real signal.
//!
//! Specification: `signals/stft-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | signal | f16 bf16 f32 f64 | `[batch, length]` or `[length]` |
//! | in 1 | window | that of `signal` | `[window length]`, at most the frame |
//! | in 2 | frame_size | i32, i64 | one element |
//! | in 3 | frame_step | i32, i64 | one element |
//! | out 0 | | that of `signal` | `[batch, frames, frame / 2 + 1, 2]`; frames and results swapped with `transpose_frames` |
//!
//! A window shorter than the frame is padded with zeros on both sides, the smaller half first.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, Shape, SmallVec, Value};

use crate::common::fourier::{Complex, Fourier};
use crate::common::memory::{filled, widened_view};
use crate::signals::dft::write_complex;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of STFT.
pub static STFT: OpDef = OpDef {
    type_name: "STFT",
    category: Category::Signals,
    versions: &[OpVersion::new(15, (15, 16), (4, 4), (1, 1))],
    attributes: StftAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of STFT.
    pub struct StftAttributes {
        /// Whether the frames come after the results.
        transpose_frames: bool = "transpose_frames", required true;
    }
}

/// A STFT layer.
#[derive(Debug)]
pub struct Stft {
    /// The attributes.
    pub attributes: StftAttributes,
}

impl Operation for Stft {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 1..=2)?;
        context.require_rank(1, 1..=1)?;
        let (size, step) = (positive(context, 2)?, positive(context, 3)?);
        let Some(dims) = context.shape(0).dims() else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let length = dims[dims.len() - 1];
        if length.max() < size.min() {
            let message = format!("a frame of size {size} does not fit into a signal of length {length}");
            return Err(OpError::value(Blame::Input(2), message));
        }
        if context.shape(1).dim(0).min() > size.max() {
            let message = format!("a window of shape {} is longer than a frame of size {size}", context.shape(1));
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let most = match length.max() {
            INFINITE => INFINITE,
            max => (max - size.min()) / step.min().max(1) + 1,
        };
        let room = if size.max() == INFINITE { 0 } else { (length.min() - size.max()).max(0) };
        let least = if step.max() == INFINITE { 1 } else { room / step.max().max(1) + 1 };
        let frames = Dim::interval(least.min(most), most);
        let results = size.div_floor(2).offset(1);
        let (a, b) = if self.attributes.transpose_frames { (results, frames) } else { (frames, results) };
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(&dims[..dims.len() - 1]);
        output.extend([a, b, Dim::fixed(2)]);
        context.set_output(0, element_type, PartialShape::from_dims(output));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let signal = context.input(0)?;
        let length = signal.shape().last().copied().unwrap_or(0);
        let batch: usize = signal.shape()[..signal.shape().rank() - 1].iter().product();
        let (size, step) = (size_of(context, 2)?, size_of(context, 3)?);
        let window = padded_window(context, size)?;
        if size > length {
            let message = format!("a frame of size {size} does not fit into a signal of length {length}");
            return Err(OpError::value(Blame::Input(2), message));
        }
        let (frames, results) = ((length - size) / step + 1, size / 2 + 1);
        let (a, b) = if self.attributes.transpose_frames { (results, frames) } else { (frames, results) };
        let mut shape: Shape = signal.shape()[..signal.shape().rank() - 1].iter().copied().collect();
        [a, b, 2].into_iter().for_each(|d| shape.push(d));
        context.output(0, &shape)?;
        let values = widened_view(signal)?;
        let mut result = filled::<Complex>(shape.elements() / 2)?;
        let (fourier, mut line) = (Fourier::new(size)?, filled::<Complex>(size)?);
        for n in 0..batch {
            for frame in 0..frames {
                let part = &values[n * length + frame * step..][..size];
                for ((target, value), weight) in line.iter_mut().zip(part).zip(&window) {
                    *target = (value * weight, 0.0);
                }
                fourier.run(&mut line, false)?;
                for (k, value) in line[..results].iter().enumerate() {
                    let at = if self.attributes.transpose_frames { k * frames + frame } else { frame * results + k };
                    result[n * frames * results + at] = *value;
                }
            }
        }
        write_complex(context, &shape, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(15)
    }
}

/// The positive number that an input may hold.
///
/// # Errors
/// When it is certainly below 1, or no single integer.
pub(crate) fn positive(context: &InferContext<'_>, port: usize) -> OpResult<Dim> {
    context.require_class(port, ElementClass::Index)?;
    context.require_one_element(port)?;
    let value = context.bounds(port).and_then(|b| b.values.first().copied()).unwrap_or(Value::UNKNOWN);
    if value.max < 1 {
        return Err(OpError::value(Blame::Input(port), format!("{} must be at least 1", value.max)));
    }
    Ok(Dim::interval(value.min.max(1), value.max))
}

/// The positive number that an input holds.
///
/// # Errors
/// When it is below 1, or no single integer.
pub(crate) fn size_of(context: &EvaluateContext<'_>, port: usize) -> OpResult<usize> {
    let value = context.integer(port)?;
    usize::try_from(value)
        .ok()
        .filter(|v| *v > 0)
        .ok_or_else(|| OpError::value(Blame::Input(port), format!("{value} must be at least 1")))
}

/// The window of input 1, padded to the frame with zeros on both sides.
///
/// # Errors
/// When it is longer than the frame, or memory cannot be had.
pub(crate) fn padded_window(context: &EvaluateContext<'_>, size: usize) -> OpResult<Vec<f64>> {
    let window = widened_view(context.input(1)?)?;
    if window.len() > size {
        let message = format!("a window of length {} is longer than a frame of size {size}", window.len());
        return Err(OpError::shape(Blame::Input(1), message));
    }
    let mut padded = filled::<f64>(size)?;
    let start = (size - window.len()) / 2;
    padded[start..start + window.len()].copy_from_slice(&window);
    Ok(padded)
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = StftAttributes::read(context.attributes);
    Arc::new(Stft { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_examples_of_the_specification() {
        let plain = Case::new("STFT", "opset15").attribute("transpose_frames", "false");
        let swapped = Case::new("STFT", "opset15").attribute("transpose_frames", "true");
        assert_eq!(plain.infer(&["f32[56]", "f32[7]", "i64[]=11", "i64[]=3"]), ["f32[16,6,2]"]);
        assert_eq!(swapped.infer(&["f32[56]", "f32[7]", "i64[]=11", "i64[]=3"]), ["f32[6,16,2]"]);
        assert_eq!(plain.infer(&["f32[3,56]", "f32[7]", "i64[]=11", "i64[]=3"]), ["f32[3,16,6,2]"]);
        assert_eq!(plain.infer(&["f32[3,?]", "f32[7]", "i64[]=11", "i64[]"]), ["f32[3,1..,6,2]"]);
    }

    #[test]
    fn frames_are_transformed() {
        let case = Case::new("STFT", "opset15").attribute("transpose_frames", "false");
        let inputs =
            [tensor(&[1f32, 2.0, 3.0, 4.0], [4]), tensor(&[1f32, 1.0], [2]), tensor(&[2i64], []), tensor(&[2i64], [])];
        let output = case.run(&inputs).unwrap();
        assert_eq!(output[0].slice::<f32>().unwrap(), [3f32, 0.0, -1.0, 0.0, 7.0, 0.0, -1.0, 0.0]);
    }
}
