//! # NV12toRGB
//! An image in YUV with halved chroma (NV12) in red, green, blue.
//!
//! Specification: `image/nv12-to-rgb-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | image | u8, f16 bf16 f32 f64 | `[N, H * 3 / 2, W, 1]` with all planes (pairs of U and V after the luma), or the luma `[N, H, W, 1]` |
//! | in 1 | UV | that of `image` | `[N, H / 2, W / 2, 2]`; absent where `image` holds all planes |
//! | out 0 | | that of `image` | `[N, H, W, 3]`: red, green, blue |
//!
//! H and W are even. Values are clipped to 0 to 255; u8 is rounded to the nearest, halves to even.

use std::sync::Arc;

use crate::common::color::{ChannelOrder, Chroma, evaluate_to_rgb, infer_to_rgb};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of NV12toRGB.
pub static NV12_TO_RGB: OpDef = OpDef {
    type_name: "NV12toRGB",
    category: Category::Image,
    versions: &[OpVersion::new(8, (8, 16), (1, 2), (1, 1))],
    attributes: &[],
    build,
};

/// A NV12toRGB layer.
#[derive(Debug)]
pub struct Nv12ToRgb;

impl Operation for Nv12ToRgb {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_to_rgb(context, Chroma::Interleaved)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_to_rgb(context, Chroma::Interleaved, ChannelOrder::Rgb)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Nv12ToRgb)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("NV12toRGB", "opset8")
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case().infer(&["u8[1,720,640,1]"]), ["u8[1,480,640,3]"]);
        assert_eq!(case().infer(&["u8[1,480,640,1]", "u8[1,240,320,2]"]), ["u8[1,480,640,3]"]);
    }

    #[test]
    fn pixels_are_converted_and_clipped() {
        let expected = tensor(&[16u8, 0, 0, 132, 108, 116, 249, 225, 233, 255, 255, 255], [1, 2, 2, 3]);
        let luma = tensor(&[16u8, 116, 216, 255], [1, 2, 2, 1]);
        assert_eq!(case().run(&[luma, tensor(&[128u8, 138], [1, 1, 1, 2])]).unwrap()[0], expected);
        let all = tensor(&[16u8, 116, 216, 255, 128, 138], [1, 3, 2, 1]);
        assert_eq!(case().run(&[all]).unwrap()[0], expected);
    }

    #[test]
    fn halves_are_decided_in_f32() {
        // 1.164 * 207 - 1.596 * 88 is 100.5, and 1.164 * 71 - 2.018 * 8 is 66.5; OpenVINO's plugin says 101 and 67.
        let run = |luma: u8, pair: [u8; 2]| {
            let inputs = [tensor(&[luma; 4], [1, 2, 2, 1]), tensor(&pair, [1, 1, 1, 2])];
            case().run(&inputs).unwrap()[0].slice::<u8>().unwrap()[..3].to_vec()
        };
        assert_eq!(run(223, [214, 40]), [101, 255, 255]);
        assert_eq!(run(87, [120, 133]), [91, 82, 67]);
        // 1.164 * 27 - 0.391 * 23 + 0.813 * 5 is 26.5, and 1.164 * 185 - 0.391 * 36 - 0.813 * 28 is 178.5; it says 27 and 178.
        assert_eq!(run(43, [151, 123])[1], 27);
        assert_eq!(run(201, [164, 156])[1], 178);
    }

    #[test]
    fn planes_must_fit_together() {
        assert!(case().infer_error(&["u8[1,721,640,1]"]).contains("must be divisible by 3"));
        assert!(case().infer_error(&["u8[1,720,641,1]"]).contains("width of shape [1,720,641,1] must be even"));
        assert!(case().infer_error(&["u8[1,720,640,3]"]).contains("has 3 channels; it must have 1"));
        assert!(case().infer_error(&["i8[1,720,640,1]"]).contains("must be u8 or a floating-point type"));
        let error = case().infer_error(&["u8[1,480,640,1]", "u8[1,240,322,2]"]);
        assert!(error.contains("makes the image's width 644, input 0 640"), "{error}");
        assert!(case().infer_error(&["u8[1,480,640,1]", "f32[1,240,320,2]"]).contains("differs from u8"));
        let error = case().infer_error(&["f32[1,4,4,1]", "f32[1,2,2,1]", "f32[1,2,2,1]"]);
        assert!(error.contains("in 3 inputs; it must be 1 or 2 (Y and UV)"), "{error}");
    }

    #[test]
    fn inference_is_monotone() {
        assert_eq!(case().infer(&["f16[?,4..9,..7,1]"]), ["f16[?,4..6,..6,3]"]);
        case().assert_monotone(&["f32[2,6,4,1]"]);
        case().assert_monotone(&["u8[1,480,640,1]", "u8[1,240,320,2]"]);
    }
}
