//! # ExperimentalDetectronGenerateProposalsSingleImage
//! Refines anchors in every cell of a feature map and chooses the best boxes of one image.
//!
//! Specification: `detection/experimental-detectron-generate-proposals-single-image-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | im_info | f16 bf16 f32 f64 | `[3]`: height, width, scale |
//! | in 1 | anchors | that of `im_info` | `[H * W * anchors, 4]`: x1, y1, x2, y2 |
//! | in 2 | deltas | that of `im_info` | `[anchors * 4, H, W]` |
//! | in 3 | scores | that of `im_info` | `[anchors, H, W]` |
//! | out 0 | rois | that of `im_info` | `[post_nms_count, 4]` |
//! | out 1 | scores | that of `im_info` | `[post_nms_count]` |
//!
//! Fewer boxes are followed by zeros. Of equal scores the first cell and anchor wins. As in OpenVINO, coordinates count
//! pixels, so widths count both ends, but in overlaps they are differences. Everything is computed in f32.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::boxes::{Suppression, common_dim, require_last};
use crate::common::memory::{widened_view, write_padded};
use crate::common::proposals::{Anchors, Choice, SmallBoxes};
use crate::common::ranges::{check_integer, check_number};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ExperimentalDetectronGenerateProposalsSingleImage.
pub static EXPERIMENTAL_DETECTRON_GENERATE_PROPOSALS_SINGLE_IMAGE: OpDef = OpDef {
    type_name: "ExperimentalDetectronGenerateProposalsSingleImage",
    category: Category::Detection,
    versions: &[OpVersion::new(6, (6, 16), (4, 4), (2, 2))],
    attributes: ExperimentalDetectronGenerateProposalsSingleImageAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ExperimentalDetectronGenerateProposalsSingleImage.
    pub struct ExperimentalDetectronGenerateProposalsSingleImageAttributes {
        /// The smallest width and height of a box.
        min_size: f32 = "min_size", required true;
        /// The overlap above which a box is suppressed.
        nms_threshold: f32 = "nms_threshold", required true;
        /// The boxes after suppression.
        post_nms_count: i64 = "post_nms_count", required true;
        /// The most boxes before suppression.
        pre_nms_count: i64 = "pre_nms_count", required true;
    }
}

/// An ExperimentalDetectronGenerateProposalsSingleImage layer.
#[derive(Debug)]
pub struct ExperimentalDetectronGenerateProposalsSingleImage {
    /// The attributes.
    pub attributes: ExperimentalDetectronGenerateProposalsSingleImageAttributes,
}

impl ExperimentalDetectronGenerateProposalsSingleImage {
    fn choice(&self, height: f32, width: f32) -> Choice {
        let a = &self.attributes;
        Choice {
            image: (height, width),
            least: (a.min_size, a.min_size),
            extra: 1.0,
            overlap_extra: 0.0,
            ranked: a.pre_nms_count as usize,
            small_boxes: SmallBoxes::BeforeRanking,
            suppression: Suppression { most: a.post_nms_count as usize, threshold: a.nms_threshold, eta: 1.0 },
        }
    }
}

impl Operation for ExperimentalDetectronGenerateProposalsSingleImage {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1, 2, 3])?;
        require_last(context, 0, 0, 3)?;
        require_last(context, 1, 1, 4)?;
        context.require_rank(2, 3..=3)?;
        context.require_rank(3, 3..=3)?;
        let rows = common_dim(context, &[(2, 1), (3, 1)], "rows of cells")?;
        let columns = common_dim(context, &[(2, 2), (3, 2)], "columns of cells")?;
        let (deltas, anchors) = (context.shape(2), context.shape(3).dim(0));
        if !deltas.dim(0).compatible(anchors * Dim::fixed(4)) {
            let message = format!("shape {deltas} must have 4 channels for each of {anchors} anchors");
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let (given, needed) = (context.shape(1), rows * columns * anchors);
        if !given.dim(0).compatible(needed) {
            let message = format!("shape {given} has {} anchors for {needed} scores", given.dim(0));
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let count = Dim::fixed(self.attributes.post_nms_count.max(0) as usize);
        context.set_output(0, element_type, PartialShape::from_dims([count, Dim::fixed(4)]));
        context.set_output(1, element_type, PartialShape::from_dims([count]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let count = self.attributes.post_nms_count as usize;
        let info = widened_view(context.input(0)?)?;
        let (anchors, deltas) = (widened_view(context.input(1)?)?, widened_view(context.input(2)?)?);
        let shape = context.input(3)?.shape();
        let (scores, cells) = (widened_view(context.input(3)?)?, shape[1] * shape[2]);
        let offered = Anchors { anchors: &anchors, deltas: &deltas, scores: &scores, cells };
        let chosen = offered.choose(&self.choice(info[0] as f32, info[1] as f32));
        let rois: Vec<f64> = chosen.iter().flat_map(|c| c.corners).map(f64::from).collect();
        let scores: Vec<f64> = chosen.iter().map(|c| f64::from(c.score)).collect();
        write_padded(context.output(0, &Shape::from([count, 4]))?, &rois)?;
        if context.output_count() > 1 {
            write_padded(context.output(1, &Shape::from([count]))?, &scores)?;
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(6)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ExperimentalDetectronGenerateProposalsSingleImageAttributes::read(context.attributes);
    let reader = &mut *context.attributes;
    check_number(reader, "min_size", attributes.min_size, 0.0..=f32::INFINITY);
    check_number(reader, "nms_threshold", attributes.nms_threshold, 0.0..=f32::INFINITY);
    check_integer(reader, "post_nms_count", attributes.post_nms_count, 0..=MAX_WINDOW_NUMBER);
    check_integer(reader, "pre_nms_count", attributes.pre_nms_count, 0..=MAX_WINDOW_NUMBER);
    Arc::new(ExperimentalDetectronGenerateProposalsSingleImage { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case(min_size: &str, pre_nms_count: &str) -> Case {
        Case::new("ExperimentalDetectronGenerateProposalsSingleImage", "opset6")
            .attribute("min_size", min_size)
            .attribute("nms_threshold", "0.5")
            .attribute("post_nms_count", "3")
            .attribute("pre_nms_count", pre_nms_count)
            .outputs(2)
    }

    fn inputs() -> Vec<Tensor> {
        let anchors = [0f32, 0.0, 4.0, 4.0, 1.0, 0.0, 5.0, 4.0, 6.0, 6.0, 12.0, 12.0];
        vec![
            tensor(&[8f32, 8.0, 1.0], [3]),
            tensor(&anchors, [3, 4]),
            tensor(&[0f32; 12], [4, 1, 3]),
            tensor(&[0.25f32, 0.5, 0.75], [1, 1, 3]),
        ]
    }

    #[test]
    fn zeros_follow_the_best_boxes() {
        let outputs = case("1", "10").run(&inputs()).unwrap();
        assert_eq!(outputs[0], tensor(&[6f32, 6.0, 7.0, 7.0, 1.0, 0.0, 5.0, 4.0, 0.0, 0.0, 0.0, 0.0], [3, 4]));
        assert_eq!(outputs[1], tensor(&[0.75f32, 0.5, 0.0], [3]));
    }

    #[test]
    fn small_boxes_take_no_place() {
        assert_eq!(case("3", "1").run(&inputs()).unwrap()[1], tensor(&[0.5f32, 0.0, 0.0], [3]));
    }

    #[test]
    fn the_example_of_the_specification() {
        let case = Case::new("ExperimentalDetectronGenerateProposalsSingleImage", "opset6")
            .attribute("min_size", "0.0")
            .attribute("nms_threshold", "0.699999988079071")
            .attribute("post_nms_count", "1000")
            .attribute("pre_nms_count", "1000")
            .outputs(2);
        let inputs = ["f32[3]", "f32[12600,4]", "f32[12,50,84]", "f32[3,50,84]"];
        assert_eq!(case.infer(&inputs), ["f32[1000,4]", "f32[1000]"]);
        case.assert_monotone(&inputs);
    }

    #[test]
    fn violations_are_named() {
        let error = |inputs: [&str; 4]| case("1", "10").infer_error(&inputs);
        assert_eq!(
            error(["f32[3]", "f32[7,4]", "f32[4,1,3]", "f32[1,1,3]"]),
            "input 1: shape [7,4] has 7 anchors for 3 scores"
        );
        assert_eq!(
            error(["f32[4]", "f32[3,4]", "f32[4,1,3]", "f32[1,1,3]"]),
            "input 0: the last dimension of shape [4] must be 3"
        );
        assert_eq!(
            error(["f32[3]", "f32[3,4]", "f32[5,1,3]", "f32[1,1,3]"]),
            "input 2: shape [5,1,3] must have 4 channels for each of 1 anchors"
        );
    }
}
