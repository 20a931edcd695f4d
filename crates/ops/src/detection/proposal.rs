//! # Proposal
//! Decodes boxes against anchors in every cell of a feature map and chooses the best by non-maximum suppression.
//!
//! Specification: `detection/proposal-1`, `detection/proposal-4`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | class_probs | f16 bf16 f32 f64 | `[N, 2 * anchors, H, W]` |
//! | in 1 | bbox_deltas | that of `class_probs` | `[N, 4 * anchors, H, W]` |
//! | in 2 | image_shape | that of `class_probs` | `[3]`: height, width, scale; or `[4]` with a scale of each |
//! | out 0 | | that of `class_probs` | `[N * post_nms_topn, 5]`: image, x1, y1, x2, y2 |
//! | out 1 | probs (since 4) | that of `class_probs` | `[N * post_nms_topn]` |
//!
//! Version 4 adds the scores. Fewer boxes than `post_nms_topn` are followed by an image of -1 and zeros. Of equal scores the
//! first box wins. Everything is computed in f32.
//! Under `tensorflow` x runs along the height of the image and is limited by it, as in OpenVINO's CPU plugin.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::boxes::{Suppression, overlap, suppress};
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Proposal.
pub static PROPOSAL: OpDef = OpDef {
    type_name: "Proposal",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 3), (3, 3), (1, 1)), OpVersion::new(4, (4, 16), (3, 3), (2, 2))],
    attributes: ProposalAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// Whose conventions hold.
    pub enum Framework {
        /// Caffe: widths count both ends, sizes of anchors are rounded.
        #[default]
        Caffe = "",
        /// TensorFlow: widths are differences, anchors are cut to the image, axes are swapped.
        Tensorflow = "tensorflow",
    }
}

crate::attributes! {
    /// Attributes of Proposal.
    pub struct ProposalAttributes {
        /// The size of the base anchor, in pixels.
        base_size: i64 = "base_size", required true;
        /// The most boxes before suppression.
        pre_nms_topn: i64 = "pre_nms_topn", required true;
        /// The boxes of an image after suppression.
        post_nms_topn: i64 = "post_nms_topn", required true;
        /// The overlap above which a box is suppressed.
        nms_thresh: f32 = "nms_thresh", required true;
        /// The distance between cells, in pixels.
        feat_stride: i64 = "feat_stride", required true;
        /// The smallest size of a box, before the scale of the image.
        min_size: i64 = "min_size", required true;
        /// The ratios of anchors.
        ratio: Vec<f32> = "ratio", required true;
        /// The scales of anchors.
        scale: Vec<f32> = "scale", required true;
        /// Whether boxes are cut to the image before suppression.
        clip_before_nms: bool = "clip_before_nms", default "true";
        /// Whether chosen boxes are cut to the image.
        clip_after_nms: bool = "clip_after_nms", default "false";
        /// Whether chosen boxes are divided by the size of the image.
        normalize: bool = "normalize", default "false";
        /// The divisor of the deltas of sizes.
        box_size_scale: f32 = "box_size_scale", default "1";
        /// The divisor of the deltas of coordinates.
        box_coordinate_scale: f32 = "box_coordinate_scale", default "1";
        /// Whose conventions hold: `tensorflow`, or Caffe's when empty.
        framework: Framework = "framework", default "";
    }
}

/// A Proposal layer.
#[derive(Debug)]
pub struct Proposal {
    /// The attributes.
    pub attributes: ProposalAttributes,
    /// The class version.
    pub class_version: u8,
}

/// A box with its score.
#[derive(Debug, Clone, Copy)]
struct ScoredBox {
    corners: [f32; 4],
    score: f32,
}

/// The image: its size and the smallest size of a box.
#[derive(Debug, Clone, Copy)]
struct Image {
    height: f32,
    width: f32,
    least_height: f32,
    least_width: f32,
}

impl Proposal {
    fn is_tensorflow(&self) -> bool {
        self.attributes.framework == Framework::Tensorflow
    }

    /// What a width has beyond the difference of its coordinates.
    fn extra(&self) -> f32 {
        if self.is_tensorflow() { 0.0 } else { 1.0 }
    }

    fn anchors(&self) -> Vec<[f32; 4]> {
        let (a, extra) = (&self.attributes, self.extra());
        let base = a.base_size as f32;
        let center = 0.5 * (base - extra) - if self.is_tensorflow() { base * 0.5 } else { 0.0 };
        let mut anchors = Vec::with_capacity(a.ratio.len() * a.scale.len());
        for ratio in &a.ratio {
            let mut width = (base * base / ratio).sqrt();
            if !self.is_tensorflow() {
                width = width.round();
            }
            let mut height = width * ratio;
            if !self.is_tensorflow() {
                height = height.round();
            }
            for scale in &a.scale {
                let (x, y) = (0.5 * (width * scale - extra), 0.5 * (height * scale - extra));
                anchors.push([center - x, center - y, center + x, center + y]);
            }
        }
        anchors
    }

    /// The box that deltas mean beside an anchor.
    fn decode(&self, anchor: [f32; 4], deltas: [f32; 4], score: f32, image: &Image) -> ScoredBox {
        let extra = self.extra();
        let limits = [image.width, image.height, image.width, image.height];
        let cut = |corners: [f32; 4], less: f32| [0, 1, 2, 3].map(|i: usize| corners[i].min(limits[i] - less).max(0.0));
        let anchor = if self.is_tensorflow() { cut(anchor, 0.0) } else { anchor };
        let (width, height) = (anchor[2] - anchor[0] + extra, anchor[3] - anchor[1] + extra);
        let (coordinates, sizes) = (self.attributes.box_coordinate_scale, self.attributes.box_size_scale);
        let x = deltas[0] / coordinates * width + anchor[0] + 0.5 * width;
        let y = deltas[1] / coordinates * height + anchor[1] + 0.5 * height;
        let half_width = 0.5 * ((deltas[2] / sizes).exp() * width);
        let half_height = 0.5 * ((deltas[3] / sizes).exp() * height);
        let mut corners = [x - half_width, y - half_height, x + half_width, y + half_height];
        if self.attributes.clip_before_nms {
            corners = cut(corners, extra);
        }
        let is_large = image.least_width <= corners[2] - corners[0] + extra
            && image.least_height <= corners[3] - corners[1] + extra;
        ScoredBox { corners, score: if is_large { score } else { 0.0 * score } }
    }

    /// The indices of the chosen boxes, best first.
    fn suppress(&self, boxes: &[ScoredBox]) -> Vec<usize> {
        let (most, threshold) = (self.attributes.post_nms_topn as usize, self.attributes.nms_thresh);
        let order: Vec<usize> = (0..boxes.len()).collect();
        let rule = Suppression { most, threshold, eta: 1.0 };
        let corners = |i: usize| boxes[i].corners;
        suppress(&order, rule, corners, |a, b| overlap(&corners(a), &corners(b), self.extra()))
    }

    fn image(&self, values: &[f64]) -> OpResult<Image> {
        let number = |i: usize| values.get(i).map(|v| *v as f32);
        let (Some(height), Some(width), Some(scale)) = (number(0), number(1), number(2)) else {
            let message = format!("the image's shape has {} numbers; it must have 3 or 4", values.len());
            return Err(OpError::shape(Blame::Input(2), message));
        };
        let least = self.attributes.min_size as f32;
        // TensorFlow's axes are swapped, and so are the limits of its coordinates.
        let (height, width) = if self.is_tensorflow() { (width, height) } else { (height, width) };
        let across = number(3).unwrap_or(scale);
        Ok(Image { height, width, least_height: least * scale, least_width: least * across })
    }

    /// All boxes of one image, best first, at most `pre_nms_topn`.
    fn boxes(&self, scores: &[f64], deltas: &[f64], map: (usize, usize), image: &Image) -> Vec<ScoredBox> {
        let (height, width) = map;
        let (anchors, stride) = (self.anchors(), self.attributes.feat_stride as f32);
        let plane = height * width;
        let mut boxes = Vec::with_capacity(plane * anchors.len());
        for cell in 0..plane {
            let (row, column) = ((cell / width) as f32 * stride, (cell % width) as f32 * stride);
            let (x, y) = if self.is_tensorflow() { (row, column) } else { (column, row) };
            for (k, anchor) in anchors.iter().enumerate() {
                let placed = [anchor[0] + x, anchor[1] + y, anchor[2] + x, anchor[3] + y];
                let delta = [0, 1, 2, 3].map(|i| deltas[(k * 4 + i) * plane + cell] as f32);
                boxes.push(self.decode(placed, delta, scores[k * plane + cell] as f32, image));
            }
        }
        boxes.sort_by(|a, b| b.score.total_cmp(&a.score));
        boxes.truncate(self.attributes.pre_nms_topn as usize);
        boxes
    }

    fn finish(&self, corners: [f32; 4], image: &Image) -> [f64; 4] {
        [0, 1, 2, 3].map(|i: usize| {
            let limit = if i.is_multiple_of(2) { image.width } else { image.height };
            let cut = if self.attributes.clip_after_nms { corners[i].min(limit).max(0.0) } else { corners[i] };
            f64::from(if self.attributes.normalize { cut / limit } else { cut })
        })
    }
}

impl Operation for Proposal {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        for (port, rank) in [(0, 4), (1, 4), (2, 1)] {
            context.require_class(port, ElementClass::Float)?;
            context.require_rank(port, rank..=rank)?;
        }
        let element_type = context.require_same_type(&[0, 1, 2])?;
        let (scores, deltas) = (context.shape(0), context.shape(1));
        let anchors = self.attributes.ratio.len().saturating_mul(self.attributes.scale.len());
        for (port, shape, factor) in [(0, scores, 2), (1, deltas, 4)] {
            if !shape.dim(1).contains(anchors.saturating_mul(factor)) {
                let message = format!("shape {shape} must have {factor} channels for each of {anchors} anchors");
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        for axis in [0, 2, 3] {
            if !scores.dim(axis).compatible(deltas.dim(axis)) {
                let message = format!("shape {deltas} differs from {scores} of input 0 at axis {axis}");
                return Err(OpError::shape(Blame::Input(1), message));
            }
        }
        let image = context.shape(2);
        if !image.dim(0).contains(3) && !image.dim(0).contains(4) {
            return Err(OpError::shape(Blame::Input(2), format!("shape {image} must be [3] or [4]")));
        }
        let batch = scores.dim(0).merge(deltas.dim(0)).unwrap_or(scores.dim(0));
        let rows = batch * Dim::fixed(self.attributes.post_nms_topn.max(0) as usize);
        context.set_output(0, element_type, PartialShape::from_dims([rows, Dim::fixed(5)]));
        context.set_output(1, element_type, PartialShape::from_dims([rows]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        let [batch, channels, height, width] = [shape[0], shape[1], shape[2], shape[3]];
        let most = self.attributes.post_nms_topn as usize;
        let rows = batch.saturating_mul(most);
        context.output(0, &Shape::from([rows, 5]))?;
        let (scores, deltas) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let image = self.image(&widened_view(context.input(2)?)?)?;
        let (mut result, mut probabilities) = (filled::<f64>(rows.saturating_mul(5))?, filled::<f64>(rows)?);
        let plane = height * width;
        for n in 0..batch {
            // The first half of the channels are the scores of the background.
            let scores = &scores[(n * channels + channels / 2) * plane..][..channels / 2 * plane];
            let deltas = &deltas[n * channels * 2 * plane..][..channels * 2 * plane];
            let boxes = self.boxes(scores, deltas, (height, width), &image);
            let chosen = self.suppress(&boxes);
            for (i, index) in chosen.iter().enumerate() {
                let row = &mut result[(n * most + i) * 5..][..5];
                row[0] = n as f64;
                row[1..].copy_from_slice(&self.finish(boxes[*index].corners, &image));
                probabilities[n * most + i] = f64::from(boxes[*index].score);
            }
            if chosen.len() < most {
                result[(n * most + chosen.len()) * 5] = -1.0;
            }
        }
        write_rounded(context.output(0, &Shape::from([rows, 5]))?, &result)?;
        if context.output_count() > 1 {
            write_rounded(context.output(1, &Shape::from([rows]))?, &probabilities)?;
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ProposalAttributes::read(context.attributes);
    for (name, value) in [
        ("base_size", attributes.base_size),
        ("pre_nms_topn", attributes.pre_nms_topn),
        ("post_nms_topn", attributes.post_nms_topn),
        ("feat_stride", attributes.feat_stride),
        ("min_size", attributes.min_size),
    ] {
        if !(1..=MAX_WINDOW_NUMBER).contains(&value) {
            let message = format!("`{name}` {value} is out of range [1, {MAX_WINDOW_NUMBER}]");
            context.attributes.report(OpError::attribute(name, message));
        }
    }
    Arc::new(Proposal { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("Proposal", "opset4")
            .attribute("base_size", "4")
            .attribute("pre_nms_topn", "10")
            .attribute("post_nms_topn", "3")
            .attribute("nms_thresh", "0.5")
            .attribute("feat_stride", "4")
            .attribute("min_size", "1")
            .attribute("ratio", "1")
            .attribute("scale", "1")
            .outputs(2)
    }

    #[test]
    fn anchors_without_deltas() {
        let scores = tensor(&[0f32, 0.0, 0.25, 0.75], [1, 2, 1, 2]);
        let deltas = tensor(&[0f32; 8], [1, 4, 1, 2]);
        let outputs = case().run(&[scores, deltas, tensor(&[8f32, 8.0, 1.0], [3])]).unwrap();
        let rows = [0f32, 4.0, 0.0, 7.0, 3.0, 0.0, 0.0, 0.0, 4.0, 4.0, -1.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(outputs[1], tensor(&[0.75f32, 0.25, 0.0], [3]));
        assert_eq!(outputs[0].slice::<f32>().unwrap()[..1], rows[..1]);
        assert_eq!(outputs[0].slice::<f32>().unwrap()[10..], rows[10..]);
    }

    #[test]
    fn shapes_follow_the_batch() {
        let shapes = case().infer(&["f32[7,2,28,28]", "f32[7,4,28,28]", "f32[3]"]);
        assert_eq!(shapes, ["f32[21,5]", "f32[21]"]);
        assert_eq!(
            case().infer_error(&["f32[7,4,28,28]", "f32[7,4,28,28]", "f32[3]"]),
            "input 0: shape [7,4,28,28] must have 2 channels for each of 1 anchors"
        );
    }
}
