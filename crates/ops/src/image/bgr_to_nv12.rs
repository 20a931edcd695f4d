//! # BGRtoNV12
//! An image in blue, green, red as YUV with halved chroma (NV12).
//!
//! Specification: `image/bgr-to-nv12-17`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | image | u8, f16 bf16 f32 f64 | `[N, H, W, 3]`: blue, green, red; H and W even |
//! | out 0 | | that of `image` | `[N, H * 3 / 2, W, 1]` (luma, then pairs of U and V), or the luma `[N, H, W, 1]` |
//! | out 1 | UV | that of `image` | `[N, H / 2, W / 2, 2]`; without `single_plane` only |
//!
//! Values are clipped to 0 to 255; u8 is rounded to the nearest, halves to even. The specification does not say
//! how chroma is halved: as in OpenVINO's reference it is the mean of the clipped and rounded values of four pixels.

use std::sync::Arc;

use crate::common::color::{ChannelOrder, evaluate_to_nv12, infer_to_nv12};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of BGRtoNV12.
pub static BGR_TO_NV12: OpDef = OpDef {
    type_name: "BGRtoNV12",
    category: Category::Image,
    versions: &[OpVersion::new(17, (17, 17), (1, 1), (1, 2))],
    attributes: BgrToNv12Attributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of BGRtoNV12.
    pub struct BgrToNv12Attributes {
        /// Whether luma and chroma are one output.
        single_plane: bool = "single_plane", default "true";
    }
}

/// A BGRtoNV12 layer.
#[derive(Debug)]
pub struct BgrToNv12 {
    /// The attributes.
    pub attributes: BgrToNv12Attributes,
}

impl Operation for BgrToNv12 {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_to_nv12(context, self.attributes.single_plane)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_to_nv12(context, self.attributes.single_plane, ChannelOrder::Bgr)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(17)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(BgrToNv12 { attributes: BgrToNv12Attributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn one() -> Case {
        Case::new("BGRtoNV12", "opset17")
    }

    fn two() -> Case {
        one().attribute("single_plane", "false").outputs(2)
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(one().infer(&["u8[1,480,640,3]"]), ["u8[1,720,640,1]"]);
        assert_eq!(two().infer(&["u8[1,480,640,3]"]), ["u8[1,480,640,1]", "u8[1,240,320,2]"]);
    }

    #[test]
    fn luma_is_of_pixels_and_chroma_of_blocks() {
        let image = tensor(&[0u8, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 255], [1, 2, 2, 3]);
        let outputs = two().run(std::slice::from_ref(&image)).unwrap();
        assert_eq!(outputs[0], tensor(&[82u8, 145, 41, 235], [1, 2, 2, 1]));
        assert_eq!(outputs[1], tensor(&[128u8, 128], [1, 1, 1, 2]));
        assert_eq!(one().run(&[image]).unwrap()[0], tensor(&[82u8, 145, 41, 235, 128, 128], [1, 3, 2, 1]));
    }

    #[test]
    fn images_and_ports_are_checked() {
        assert!(one().infer_error(&["u8[1,481,640,3]"]).contains("both must be even"));
        assert!(one().infer_error(&["u8[1,480,640,1]"]).contains("it must have 3"));
        assert!(one().infer_error(&["i32[1,480,640,3]"]).contains("must be u8 or a floating-point type"));
        assert!(one().infer_error(&["u8[480,640,3]"]).contains("rank 3"));
        assert!(one().outputs(2).infer_error(&["u8[1,480,640,3]"]).contains("yields 1 outputs; the layer has 2"));
    }

    #[test]
    fn inference_is_monotone() {
        assert_eq!(one().infer(&["f32[?,3..9,4,3]"]), ["f32[?,6..12,4,1]"]);
        one().assert_monotone(&["f32[2,4,6,3]"]);
        two().assert_monotone(&["f32[2,4,6,3]"]);
    }
}
