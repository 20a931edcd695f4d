//! # GenerateProposals
//! Refines anchors in every cell of a feature map and chooses the best boxes of each image.
//!
//! Specification: `detection/generate-proposals-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | im_info | f16 bf16 f32 f64 | `[N, 3]`: height, width, scale; or `[N, 4]` with a scale of each |
//! | in 1 | anchors | that of `im_info` | `[H, W, anchors, 4]`: x1, y1, x2, y2 |
//! | in 2 | boxesdeltas | that of `im_info` | `[N, anchors * 4, H, W]` |
//! | in 3 | scores | that of `im_info` | `[N, anchors, H, W]` |
//! | out 0 | rpnrois | that of `im_info` | `[proposals, 4]`, image by image |
//! | out 1 | rpnscores | that of `im_info` | `[proposals]` |
//! | out 2 | rpnroisnum | `roi_num_type` | `[N]`: the proposals of each image |
//!
//! Of equal scores the first cell and anchor wins. A box is compared with all chosen ones by the threshold that holds when
//! its turn comes; OpenVINO's plugin ignores `nms_eta`. Everything is computed in f32.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape};

use crate::common::boxes::{Suppression, common_dim, require_last};
use crate::common::memory::{widened_view, write_rounded};
use crate::common::proposals::{Anchors, Choice, SmallBoxes};
use crate::common::ranges::{check_integer, check_number};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of GenerateProposals.
pub static GENERATE_PROPOSALS: OpDef = OpDef {
    type_name: "GenerateProposals",
    category: Category::Detection,
    versions: &[OpVersion::new(9, (9, 16), (4, 4), (3, 3))],
    attributes: GenerateProposalsAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of GenerateProposals.
    pub struct GenerateProposalsAttributes {
        /// The smallest width and height of a box, before the scale of the image.
        min_size: f32 = "min_size", required true;
        /// The overlap above which a box is suppressed.
        nms_threshold: f32 = "nms_threshold", required true;
        /// The most boxes of an image after suppression.
        post_nms_count: i64 = "post_nms_count", required true;
        /// The most boxes of an image before suppression.
        pre_nms_count: i64 = "pre_nms_count", required true;
        /// Whether coordinates are places; widths of pixels count both ends.
        normalized: bool = "normalized", default "true";
        /// What every chosen box multiplies a threshold above 0.5 with.
        nms_eta: f32 = "nms_eta", default "1";
        /// The element type of the numbers of proposals: i32 or i64.
        roi_num_type: ElementType = "roi_num_type", default "i64";
    }
}

/// A GenerateProposals layer.
#[derive(Debug)]
pub struct GenerateProposals {
    /// The attributes.
    pub attributes: GenerateProposalsAttributes,
}

impl GenerateProposals {
    fn choice(&self, image: &[f64]) -> Choice {
        let a = &self.attributes;
        let number = |i: usize| image.get(i).map(|v| *v as f32);
        let scale = number(2).unwrap_or(1.0);
        let extra = if a.normalized { 0.0 } else { 1.0 };
        let (height, width) = (number(0).unwrap_or(0.0), number(1).unwrap_or(0.0));
        Choice {
            image: (height, width),
            least: (a.min_size * scale, a.min_size * number(3).unwrap_or(scale)),
            extra,
            overlap_extra: extra,
            ranked: a.pre_nms_count as usize,
            small_boxes: SmallBoxes::AfterRanking,
            suppression: Suppression { most: a.post_nms_count as usize, threshold: a.nms_threshold, eta: a.nms_eta },
        }
    }
}

impl Operation for GenerateProposals {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1, 2, 3])?;
        context.require_rank(0, 2..=2)?;
        require_last(context, 1, 3, 4)?;
        context.require_rank(2, 4..=4)?;
        context.require_rank(3, 4..=4)?;
        let info = context.shape(0);
        if !info.dim(1).contains(3) && !info.dim(1).contains(4) {
            return Err(OpError::shape(Blame::Input(0), format!("the last dimension of shape {info} must be 3 or 4")));
        }
        let images = common_dim(context, &[(0, 0), (2, 0), (3, 0)], "images")?;
        common_dim(context, &[(1, 0), (2, 2), (3, 2)], "rows of cells")?;
        common_dim(context, &[(1, 1), (2, 3), (3, 3)], "columns of cells")?;
        let anchors = common_dim(context, &[(1, 2), (3, 1)], "anchors")?;
        let deltas = context.shape(2);
        if !deltas.dim(1).compatible(anchors * Dim::fixed(4)) {
            let message = format!("shape {deltas} must have 4 channels for each of {anchors} anchors");
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let most = images * Dim::fixed(self.attributes.post_nms_count.max(0) as usize);
        let rows = context.new_dim(0, most.max());
        context.set_output(0, element_type, PartialShape::from_dims([rows, Dim::fixed(4)]));
        context.set_output(1, element_type, PartialShape::from_dims([rows]));
        context.set_output(2, self.attributes.roi_num_type, PartialShape::from_dims([images]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let info = widened_view(context.input(0)?)?;
        let shape = context.input(3)?.shape();
        let (images, per_image, cells) = (shape[0], shape[1] * shape[2] * shape[3], shape[2] * shape[3]);
        let anchors = widened_view(context.input(1)?)?;
        let (deltas, scores) = (widened_view(context.input(2)?)?, widened_view(context.input(3)?)?);
        let (mut rois, mut probabilities, mut counts) = (Vec::new(), Vec::new(), Vec::new());
        let info_size = context.input(0)?.shape()[1];
        for n in 0..images {
            let deltas = &deltas[n * per_image * 4..][..per_image * 4];
            let scores = &scores[n * per_image..][..per_image];
            let offered = Anchors { anchors: &anchors, deltas, scores, cells };
            let chosen = offered.choose(&self.choice(&info[n * info_size..][..info_size]));
            counts.push(chosen.len() as f64);
            rois.extend(chosen.iter().flat_map(|c| c.corners).map(f64::from));
            probabilities.extend(chosen.iter().map(|c| f64::from(c.score)));
            context.environment().poll()?;
        }
        write_rounded(context.output(0, &Shape::from([probabilities.len(), 4]))?, &rois)?;
        if context.output_count() > 1 {
            write_rounded(context.output(1, &Shape::from([probabilities.len()]))?, &probabilities)?;
        }
        if context.output_count() > 2 {
            write_rounded(context.output(2, &Shape::from([images]))?, &counts)?;
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(9)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GenerateProposalsAttributes::read(context.attributes);
    let reader = &mut *context.attributes;
    check_number(reader, "min_size", attributes.min_size, 0.0..=f32::INFINITY);
    check_number(reader, "nms_threshold", attributes.nms_threshold, 0.0..=f32::INFINITY);
    check_integer(reader, "post_nms_count", attributes.post_nms_count, 0..=MAX_WINDOW_NUMBER);
    check_integer(reader, "pre_nms_count", attributes.pre_nms_count, 0..=MAX_WINDOW_NUMBER);
    check_number(reader, "nms_eta", attributes.nms_eta, 0.0..=1.0);
    if !attributes.roi_num_type.is(ElementClass::Index) {
        let message = format!("`roi_num_type` is {}; it must be i32 or i64", attributes.roi_num_type);
        reader.report(OpError::attribute("roi_num_type", message));
    }
    Arc::new(GenerateProposals { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case(threshold: &str) -> Case {
        Case::new("GenerateProposals", "opset9")
            .attribute("min_size", "1")
            .attribute("nms_threshold", threshold)
            .attribute("post_nms_count", "3")
            .attribute("pre_nms_count", "10")
            .outputs(3)
    }

    /// One row of three cells with an anchor each; the first two overlap by 0.6.
    fn inputs(images: usize) -> Vec<Tensor> {
        let anchors = [0f32, 0.0, 4.0, 4.0, 1.0, 0.0, 5.0, 4.0, 6.0, 6.0, 12.0, 12.0];
        vec![
            tensor(&[8f32, 8.0, 1.0].repeat(images), [images, 3]),
            tensor(&anchors, [1, 3, 1, 4]),
            tensor(&vec![0f32; images * 12], [images, 4, 1, 3]),
            tensor(&[0.25f32, 0.5, 0.75].repeat(images), [images, 1, 1, 3]),
        ]
    }

    #[test]
    fn the_best_boxes_of_each_image() {
        let outputs = case("0.5").run(&inputs(2)).unwrap();
        let rois = [6f32, 6.0, 8.0, 8.0, 1.0, 0.0, 5.0, 4.0].repeat(2);
        assert_eq!(outputs[0], tensor(&rois, [4, 4]));
        assert_eq!(outputs[1], tensor(&[0.75f32, 0.5, 0.75, 0.5], [4]));
        assert_eq!(outputs[2], tensor(&[2i64, 2], [2]));
        let adaptive = case("0.9").attribute("nms_eta", "0.8").attribute("roi_num_type", "i32");
        assert_eq!(case("0.9").run(&inputs(1)).unwrap()[2], tensor(&[3i64], [1]));
        // 0.9 is 0.72 after one choice and 0.576 after two, less than the overlap of 0.6.
        assert_eq!(adaptive.run(&inputs(1)).unwrap()[2], tensor(&[2i32], [1]));
    }

    #[test]
    fn small_boxes_are_left_out_after_ranking() {
        let case = Case::new("GenerateProposals", "opset9")
            .attribute("min_size", "1.5")
            .attribute("nms_threshold", "1")
            .attribute("post_nms_count", "3")
            .attribute("pre_nms_count", "2")
            .outputs(3);
        let mut inputs = inputs(1);
        inputs[0] = tensor(&[8f32, 8.0, 1.0, 2.0], [1, 4]);
        assert_eq!(case.run(&inputs).unwrap()[1], tensor(&[0.5f32], [1]));
    }

    #[test]
    fn nothing_to_propose() {
        let empty = [
            tensor::<f32>(&[], [0, 3]),
            tensor::<f32>(&[], [0, 3, 1, 4]),
            tensor::<f32>(&[], [0, 4, 0, 3]),
            tensor::<f32>(&[], [0, 1, 0, 3]),
        ];
        let outputs = case("0.5").run(&empty).unwrap();
        assert_eq!(outputs[0].shape().to_vec(), [0, 4]);
        assert_eq!(outputs[2].shape().to_vec(), [0]);
    }

    #[test]
    fn the_example_of_the_specification() {
        let case = Case::new("GenerateProposals", "opset9")
            .attribute("min_size", "0.0")
            .attribute("nms_threshold", "0.699999988079071")
            .attribute("post_nms_count", "1000")
            .attribute("pre_nms_count", "1000")
            .attribute("roi_num_type", "i32")
            .outputs(3);
        let inputs = ["f32[8,3]", "f32[50,84,3,4]", "f32[8,12,50,84]", "f32[8,3,50,84]"];
        assert_eq!(case.infer(&inputs), ["f32[..8000,4]", "f32[..8000]", "i32[8]"]);
        case.assert_monotone(&inputs);
    }

    #[test]
    fn violations_are_named() {
        let error = |inputs: [&str; 4]| case("0.5").infer_error(&inputs);
        assert_eq!(
            error(["f32[8,5]", "f32[50,84,3,4]", "f32[8,12,50,84]", "f32[8,3,50,84]"]),
            "input 0: the last dimension of shape [8,5] must be 3 or 4"
        );
        assert_eq!(
            error(["f32[8,3]", "f32[50,84,3,4]", "f32[8,9,50,84]", "f32[8,3,50,84]"]),
            "input 2: shape [8,9,50,84] must have 4 channels for each of 3 anchors"
        );
        assert_eq!(
            error(["f32[8,3]", "f32[50,84,3,4]", "f32[8,12,51,84]", "f32[8,3,50,84]"]),
            "input 2: shape [8,12,51,84] has 51 rows of cells, but shape [50,84,3,4] of input 1 has 50"
        );
        assert_eq!(
            case("nan").attribute("nms_eta", "2").attribute_errors(4),
            [
                "attribute `nms_threshold`: `nms_threshold` NaN must be a number of at least 0",
                "attribute `nms_eta`: `nms_eta` 2 is out of range [0, 1]"
            ]
        );
    }
}
