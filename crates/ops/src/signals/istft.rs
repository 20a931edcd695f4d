//! # ISTFT
//! The signal whose windowed frames have the given Fourier transforms.
//!
//! Specification: `signals/istft-16`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[batch, frame / 2 + 1, frames, 2]`, or without the batch |
//! | in 1 | window | that of `data` | `[window length]`, at most the frame |
//! | in 2 | frame_size | i32, i64 | one element |
//! | in 3 | frame_step | i32, i64 | one element |
//! | in 4 | signal_length (optional) | i32, i64 | one element |
//! | out 0 | | that of `data` | `[batch, length]`, or without the batch |
//!
//! Frames are multiplied by the window, added where they overlap and divided by the sum of the squared windows there;
//! where that is zero, so is the signal. With `center` half a frame is cut off at both ends, and with `normalized` the
//! result is multiplied by the root of the frame. What lies beyond the frames is zero.
//!
//! Departure from the page, as in OpenVINO: with `center` and an odd frame the length is one larger, because half a frame
//! is rounded down.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use crate::common::fourier::{Complex, Fourier};
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::signals::stft::{padded_window, positive, size_of};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ISTFT.
pub static ISTFT: OpDef = OpDef {
    type_name: "ISTFT",
    category: Category::Signals,
    versions: &[OpVersion::new(16, (16, 16), (4, 5), (1, 1))],
    attributes: IstftAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ISTFT.
    pub struct IstftAttributes {
        /// Whether the signal was padded by half a frame at both ends.
        center: bool = "center", required true;
        /// Whether the transforms were divided by the root of the frame.
        normalized: bool = "normalized", required true;
    }
}

/// An ISTFT layer.
#[derive(Debug)]
pub struct Istft {
    /// The attributes.
    pub attributes: IstftAttributes,
}

impl Operation for Istft {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 3..=4)?;
        context.require_rank(1, 1..=1)?;
        let (size, step) = (positive(context, 2)?, positive(context, 3)?);
        let given = if context.input_count() > 4 { Some(positive(context, 4)?) } else { None };
        let data = context.shape(0);
        let Some(dims) = data.dims() else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let rank = dims.len();
        if !dims[rank - 1].contains(2) || !dims[rank - 3].compatible(size.div_floor(2).offset(1)) {
            let message = format!("shape {data} must end with [frame / 2 + 1, frames, 2] for a frame of size {size}");
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let frames = dims[rank - 2];
        // What the frame adds to the steps: with `center` both halves are cut off, and an odd one leaves an element.
        let rest = match (self.attributes.center, size.get()) {
            (true, Some(size)) => Dim::fixed(size % 2),
            (true, None) => Dim::interval(0, 1),
            (false, _) => size,
        };
        let steps = frames.offset(-1) * step;
        let own = steps + rest;
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(&dims[..rank - 3]);
        output.push(given.unwrap_or(own));
        context.set_output(0, element_type, PartialShape::from_dims(output));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let rank = data.shape().rank();
        let batch: usize = data.shape()[..rank - 3].iter().product();
        let (results, frames) = (data.shape()[rank - 3], data.shape()[rank - 2]);
        let (size, step) = (size_of(context, 2)?, size_of(context, 3)?);
        if results != size / 2 + 1 {
            let message = format!("shape {} has {results} results, a frame of size {size} has others", data.shape());
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let window = padded_window(context, size)?;
        let steps = frames.saturating_sub(1).saturating_mul(step);
        let full = if frames == 0 { 0 } else { steps.saturating_add(size) };
        let own = if self.attributes.center { steps.saturating_add(size % 2) } else { steps.saturating_add(size) };
        let length = if context.input_count() > 4 { size_of(context, 4)? } else { own };
        let mut shape: Shape = data.shape()[..rank - 3].iter().copied().collect();
        shape.push(length);
        context.output(0, &shape)?;
        let values = widened_view(data)?;
        let mut result = filled::<f64>(shape.elements())?;
        let (mut sums, mut weights) = (filled::<f64>(full)?, filled::<f64>(full)?);
        let (fourier, mut line) = (Fourier::new(size)?, filled::<Complex>(size)?);
        let scale = if self.attributes.normalized { (size as f64).sqrt() } else { 1.0 };
        let margin = if self.attributes.center { size / 2 } else { 0 };
        for n in 0..batch {
            sums.fill(0.0);
            weights.fill(0.0);
            for frame in 0..frames {
                let at = |k: usize| ((n * results + k) * frames + frame) * 2;
                for (k, value) in line.iter_mut().enumerate() {
                    let is_mirrored = k > size / 2;
                    let from = at(if is_mirrored { size - k } else { k });
                    *value = (values[from], if is_mirrored { -values[from + 1] } else { values[from + 1] });
                }
                fourier.run(&mut line, true)?;
                for (k, value) in line.iter().enumerate() {
                    sums[frame * step + k] += value.0 * window[k];
                    weights[frame * step + k] += window[k] * window[k];
                }
            }
            let pairs = sums.iter().zip(&weights).skip(margin);
            for (target, (sum, weight)) in result[n * length..][..length].iter_mut().zip(pairs) {
                *target = if *weight == 0.0 { 0.0 } else { sum * scale / weight };
            }
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(16)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = IstftAttributes::read(context.attributes);
    Arc::new(Istft { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(center: &str) -> Case {
        Case::new("ISTFT", "opset16").attribute("center", center).attribute("normalized", "false")
    }

    #[test]
    fn the_examples_of_the_specification() {
        let inputs = ["f32[6,16,2]", "f32[7]", "i64[]=11", "i64[]=3"];
        assert_eq!(case("false").infer(&inputs), ["f32[56]"]);
        assert_eq!(case("true").infer(&inputs), ["f32[46]"]);
        let batch = ["f32[4,6,16,2]", "f32[7]", "i64[]=11", "i64[]=3"];
        assert_eq!(case("false").infer(&batch), ["f32[4,56]"]);
        let given = ["f32[6,16,2]", "f32[7]", "i64[]=11", "i64[]=3", "i64[]=64"];
        assert_eq!(case("false").infer(&given), ["f32[64]"]);
    }

    #[test]
    fn undoes_stft() {
        let spectrum = tensor(&[3f32, 0.0, 7.0, 0.0, -1.0, 0.0, -1.0, 0.0], [2, 2, 2]);
        let inputs = [spectrum, tensor(&[1f32, 1.0], [2]), tensor(&[2i64], []), tensor(&[2i64], [])];
        assert_eq!(case("false").run(&inputs).unwrap()[0], tensor(&[1f32, 2.0, 3.0, 4.0], [4]));
    }
}
