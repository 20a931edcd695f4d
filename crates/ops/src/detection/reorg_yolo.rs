//! # ReorgYolo
//! Moves blocks of the spatial axes into channels, in the order of YOLO.
//!
//! Specification: `detection/reorg-yolo-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | every type of whole bytes | `[N, C, H, W]` |
//! | out 0 | | that of `data` | `[N, C * stride * stride, H / stride, W / stride]` |
//!
//! The data are read as `[N, C / stride^2, H * stride, W * stride]`; output channel `c` is its element at
//! `(c mod (C / stride^2), h * stride + k / stride, w * stride + k mod stride)` with `k = c / (C / stride^2)`.
//! Where `stride^2` does not divide `C`, the quotient is rounded down, as OpenVINO does; the specification is silent.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::movement::View;
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ReorgYolo.
pub static REORG_YOLO: OpDef = OpDef {
    type_name: "ReorgYolo",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (2, 16), (1, 1), (1, 1))],
    attributes: ReorgYoloAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ReorgYolo.
    pub struct ReorgYoloAttributes {
        /// The size of a block.
        stride: i64 = "stride", required true;
    }
}

/// A ReorgYolo layer.
#[derive(Debug)]
pub struct ReorgYolo {
    /// The attributes.
    pub attributes: ReorgYoloAttributes,
}

impl ReorgYolo {
    /// Where the elements come from, if the channels of the data `[N, C, H, W]` are whole windows: the data are read as
    /// `[N, C / stride^2, H * stride, W * stride]`, and each place of a window is a run of channels.
    #[must_use]
    pub fn view(&self, data: &Shape, output: Shape) -> Option<View> {
        let [batch, channels, height, width] = data[..] else { return None };
        let stride = usize::try_from(self.attributes.stride).ok()?;
        let square = stride.checked_mul(stride).filter(|square| *square > 0 && channels.is_multiple_of(*square))?;
        let split = [batch, channels / square, height, stride, width, stride];
        Some(View::permuted(output, &split, &[0, 3, 5, 1, 2, 4]))
    }
}

impl Operation for ReorgYolo {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Native)?;
        context.require_rank(0, 4..=4)?;
        let data = context.shape(0);
        let stride = self.attributes.stride.max(1);
        for axis in [2, 3] {
            if data.dim(axis).get().is_some_and(|size| size as i64 % stride != 0) {
                let message =
                    format!("dimension {} of shape {data} must be divisible by stride {stride}", data.dim(axis));
                return Err(OpError::shape(Blame::Input(0), message));
            }
        }
        let square = stride.saturating_mul(stride);
        if data.dim(1).max() < square {
            let message = format!("{} channels must be at least stride squared, {square}", data.dim(1));
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let channels = data.dim(1) * Dim::interval(square, square);
        // Only multiples of the stride are sizes, so the lower end of an interval is the next one.
        let part = |dim: Dim| Dim::interval(dim.div_ceil(stride).min(), dim.div_floor(stride).max());
        let dims = [data.dim(0), channels, part(data.dim(2)), part(data.dim(3))];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let stride = self.attributes.stride.max(1) as usize;
        let shape = Shape::from([batch, channels * stride * stride, height / stride, width / stride]);
        let size = data.element_type().byte_width().unwrap_or(1);
        let inner = channels / (stride * stride);
        let source = data.bytes();
        let mut output = context.output(0, &shape)?;
        let target = output.bytes_mut();
        let image = channels * height * width;
        if target.len() != source.len() || image == 0 {
            return Ok(());
        }
        // The position of every element is that of the data's own shape, walked in its order.
        for (i, element) in target.chunks_exact_mut(size).enumerate() {
            let (n, rest) = (i / image, i % image);
            let (c, y, x) = (rest / (height * width), rest / width % height, rest % width);
            let (k, channel) = (c / inner, c % inner);
            let row = channel * height * stride + y * stride + k / stride;
            let from = n * image + row * width * stride + x * stride + k % stride;
            let bytes = source.get(from * size..).and_then(|rest| rest.get(..size));
            element.copy_from_slice(bytes.ok_or_else(|| {
                OpError::shape(
                    Blame::Input(0),
                    format!("{channels} channels do not fit blocks of {stride} by {stride}"),
                )
            })?);
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ReorgYoloAttributes::read(context.attributes);
    if !(1..=MAX_WINDOW_NUMBER).contains(&attributes.stride) {
        let message = format!("`stride` {} is out of range [1, {MAX_WINDOW_NUMBER}]", attributes.stride);
        context.attributes.report(OpError::attribute("stride", message));
    }
    Arc::new(ReorgYolo { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_example_of_the_specification() {
        let case = Case::new("ReorgYolo", "opset2").attribute("stride", "2");
        assert_eq!(case.infer(&["f32[1,64,26,26]"]), ["f32[1,256,13,13]"]);
        assert_eq!(case.infer(&["f32[1,64,5..6,3..7]"]), ["f32[1,256,3,2..3]"]);
    }

    #[test]
    fn blocks_become_channels() {
        let case = Case::new("ReorgYolo", "opset2").attribute("stride", "2");
        let data: Vec<i32> = (0..16).collect();
        let expected = [0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15];
        assert_eq!(case.run(&[tensor(&data, [1, 4, 2, 2])]).unwrap()[0], tensor(&expected, [1, 16, 1, 1]));
    }

    /// As OpenVINO's plugin has it for channels that are no multiple of the block.
    #[test]
    fn channels_may_be_left_over() {
        let case = Case::new("ReorgYolo", "opset2").attribute("stride", "2");
        assert_eq!(case.infer(&["f32[1,5,2,2]"]), ["f32[1,20,1,1]"]);
        let data: Vec<i32> = (0..20).collect();
        let expected = [0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15, 8, 10, 16, 18];
        assert_eq!(case.run(&[tensor(&data, [1, 5, 2, 2])]).unwrap()[0], tensor(&expected, [1, 20, 1, 1]));
        assert!(case.infer_error(&["f32[1,3,2,2]"]).contains("stride squared"));
    }
}
