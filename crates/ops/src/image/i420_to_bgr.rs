//! # I420toBGR
//! An image in YUV with halved chroma (I420) in blue, green, red.
//!
//! Specification: `image/i420-to-bgr-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | image | u8, f16 bf16 f32 f64 | `[N, H * 3 / 2, W, 1]` with all planes (U, then V after the luma), or the luma `[N, H, W, 1]` |
//! | in 1 | U | that of `image` | `[N, H / 2, W / 2, 1]`; absent where `image` holds all planes |
//! | in 2 | V | that of `image` | `[N, H / 2, W / 2, 1]`; absent where `image` holds all planes |
//! | out 0 | | that of `image` | `[N, H, W, 3]`: blue, green, red |
//!
//! H and W are even. Values are clipped to 0 to 255; u8 is rounded to the nearest, halves to even.

use std::sync::Arc;

use crate::common::color::{ChannelOrder, Chroma, evaluate_to_rgb, infer_to_rgb};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of I420toBGR.
pub static I420_TO_BGR: OpDef = OpDef {
    type_name: "I420toBGR",
    category: Category::Image,
    versions: &[OpVersion::new(8, (8, 16), (1, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A I420toBGR layer.
#[derive(Debug)]
pub struct I420ToBgr;

impl Operation for I420ToBgr {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_to_rgb(context, Chroma::Planar)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_to_rgb(context, Chroma::Planar, ChannelOrder::Bgr)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(I420ToBgr)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("I420toBGR", "opset8")
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case().infer(&["u8[1,720,640,1]"]), ["u8[1,480,640,3]"]);
        assert_eq!(case().infer(&["u8[1,480,640,1]", "u8[1,240,320,1]", "u8[1,240,320,1]"]), ["u8[1,480,640,3]"]);
    }

    #[test]
    fn pixels_are_converted_and_clipped() {
        let expected = tensor(&[0u8, 0, 16, 116, 108, 132, 233, 225, 249, 255, 255, 255], [1, 2, 2, 3]);
        let luma = tensor(&[16u8, 116, 216, 255], [1, 2, 2, 1]);
        assert_eq!(
            case().run(&[luma, tensor(&[128u8], [1, 1, 1, 1]), tensor(&[138u8], [1, 1, 1, 1])]).unwrap()[0],
            expected
        );
        let all = tensor(&[16u8, 116, 216, 255, 128, 138], [1, 3, 2, 1]);
        assert_eq!(case().run(&[all]).unwrap()[0], expected);
    }

    #[test]
    fn planes_must_fit_together() {
        assert!(case().infer_error(&["u8[1,721,640,1]"]).contains("must be divisible by 3"));
        assert!(case().infer_error(&["u8[1,720,641,1]"]).contains("width of shape [1,720,641,1] must be even"));
        assert!(case().infer_error(&["u8[1,720,640,3]"]).contains("has 3 channels; it must have 1"));
        assert!(case().infer_error(&["i8[1,720,640,1]"]).contains("must be u8 or a floating-point type"));
        let error = case().infer_error(&["u8[1,480,640,1]", "u8[1,240,322,1]", "u8[1,240,320,1]"]);
        assert!(error.contains("makes the image's width 644, input 0 640"), "{error}");
        assert!(
            case().infer_error(&["u8[1,480,640,1]", "f32[1,240,320,1]", "u8[1,240,320,1]"]).contains("differs from u8")
        );
        let error = case().infer_error(&["f32[1,4,4,1]", "f32[1,2,2,1]"]);
        assert!(error.contains("in 2 inputs; it must be 1 or 3 (Y, U and V)"), "{error}");
    }

    #[test]
    fn inference_is_monotone() {
        assert_eq!(case().infer(&["f16[?,4..9,..7,1]"]), ["f16[?,4..6,..6,3]"]);
        case().assert_monotone(&["f32[2,6,4,1]"]);
        case().assert_monotone(&["u8[1,480,640,1]", "u8[1,240,320,1]", "u8[1,240,320,1]"]);
    }
}
