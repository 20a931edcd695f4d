//! # MatrixNms
//! Chooses boxes by scores that decay with the overlap of better ones.
//!
//! Specification: `sort/matrix-non-max-suppression-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | boxes | f16 bf16 f32 f64 | `[batches, boxes, 4]`: x1, y1, x2, y2 |
//! | in 1 | scores | that of `boxes` | `[batches, classes, boxes]` |
//! | out 0 | selected_outputs | that of `boxes` | `[selected, 6]`: class, score, x1, y1, x2, y2 |
//! | out 1 | selected_indices | `output_type` | `[selected, 1]`: boxes counted over all batches |
//! | out 2 | selected_num | `output_type` | `[batches]` |
//!
//! The specification calls `sort_result_type` `sort_result` and its `classid` `class`. `none` sorts by score, as OpenVINO
//! does. Of equal scores the lower class and box come first. Overlaps and scores are computed in f32.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType};

use crate::common::boxes::{Corners, common_dim, descending, overlap, require_last};
use crate::common::detections::{Detection, Order, SortResultType, check_attributes, limited, set_outputs};
use crate::common::memory::widened_view;
use crate::common::ranges::check_number;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// What keeps the divisor of the linear decay from being 0, as in OpenVINO.
const EPSILON: f64 = 1e-10;

/// The definition of MatrixNms.
pub static MATRIX_NMS: OpDef = OpDef {
    type_name: "MatrixNms",
    category: Category::Sort,
    versions: &[OpVersion::new(8, (8, 16), (2, 2), (3, 3))],
    attributes: MatrixNmsAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How scores decay.
    pub enum DecayFunction {
        /// By the exponential of squares.
        Gaussian = "gaussian",
        /// By a quotient.
        #[default]
        Linear = "linear",
    }
}

crate::attributes! {
    /// Attributes of MatrixNms.
    pub struct MatrixNmsAttributes {
        /// The order of the selected boxes.
        sort_result_type: SortResultType = "sort_result_type", default "none";
        /// The element type of indices and numbers: i32 or i64.
        output_type: ElementType = "output_type", default "i64";
        /// The most boxes of a class; -1 for all.
        nms_top_k: i64 = "nms_top_k", default "-1";
        /// The most boxes of a batch; -1 for all.
        keep_top_k: i64 = "keep_top_k", default "-1";
        /// Whether boxes of all batches are sorted together.
        sort_result_across_batch: bool = "sort_result_across_batch", default "false";
        /// The score above which a box is looked at.
        score_threshold: f32 = "score_threshold", default "0";
        /// The class that is no object; -1 if there is none.
        background_class: i64 = "background_class", default "-1";
        /// How scores decay.
        decay_function: DecayFunction = "decay_function", default "linear";
        /// The factor of the gaussian decay.
        gaussian_sigma: f32 = "gaussian_sigma", default "2";
        /// The decayed score above which a box is selected.
        post_threshold: f32 = "post_threshold", default "0";
        /// Whether coordinates are places; widths of pixels count both ends.
        normalized: bool = "normalized", default "true";
    }
}

/// A MatrixNms layer.
#[derive(Debug)]
pub struct MatrixNms {
    /// The attributes.
    pub attributes: MatrixNmsAttributes,
}

impl MatrixNms {
    /// What is left of a score beside a better box that overlaps it, which another one overlaps by at most `most`.
    fn decay(&self, overlap: f32, most: f32) -> f32 {
        match self.attributes.decay_function {
            DecayFunction::Gaussian => libm::expf((most * most - overlap * overlap) * self.attributes.gaussian_sigma),
            DecayFunction::Linear => ((1.0 - f64::from(overlap)) / (1.0 - f64::from(most) + EPSILON)) as f32,
        }
    }

    /// The selected boxes of a class with their decayed scores.
    fn of_class(&self, boxes: &[Corners], scores: &[f64]) -> Vec<(usize, f32)> {
        let a = &self.attributes;
        let score = |i: usize| scores[i] as f32;
        let mut order: Vec<usize> = (0..boxes.len()).filter(|i| score(*i) > a.score_threshold).collect();
        order.sort_by(|i, j| descending(score(*i), score(*j)));
        order.truncate(limited(order.len(), a.nms_top_k));
        let extra = if a.normalized { 0.0 } else { 1.0 };
        let mut largest: Vec<f32> = Vec::with_capacity(order.len());
        let mut selected = Vec::new();
        for (i, candidate) in order.iter().enumerate() {
            let (mut most, mut least_decay) = (0.0f32, 1.0f32);
            for (better, before) in order[..i].iter().zip(&largest) {
                let overlap = overlap(&boxes[*candidate], &boxes[*better], extra);
                most = most.max(overlap);
                least_decay = least_decay.min(self.decay(overlap, *before));
            }
            largest.push(most);
            let decayed = least_decay * score(*candidate);
            if decayed > a.post_threshold {
                selected.push((*candidate, decayed));
            }
        }
        selected
    }
}

impl Operation for MatrixNms {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_class(1, ElementClass::Float)?;
        context.require_same_type(&[0, 1])?;
        require_last(context, 0, 2, 4)?;
        context.require_rank(1, 3..=3)?;
        let images = common_dim(context, &[(0, 0), (1, 0)], "batches")?;
        let boxes = common_dim(context, &[(0, 1), (1, 2)], "boxes")?;
        let classes = context.shape(1).dim(1);
        let a = &self.attributes;
        set_outputs(context, a.output_type, [boxes, classes, images], (a.nms_top_k, a.keep_top_k));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(1)?.shape();
        let (images, classes, count) = (shape[0], shape[1], shape[2]);
        let (boxes, scores) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let a = &self.attributes;
        let order =
            Order { by: a.sort_result_type, across_batch: a.sort_result_across_batch, keep_top_k: a.keep_top_k };
        let mut detections = Vec::new();
        for batch in 0..images {
            let of_image = &boxes[batch * count * 4..][..count * 4];
            let corners: Vec<Corners> =
                of_image.chunks_exact(4).map(|b| [0, 1, 2, 3].map(|i: usize| b[i] as f32)).collect();
            let mut found = Vec::new();
            for class in (0..classes).filter(|class| *class as i64 != a.background_class) {
                let scores = &scores[(batch * classes + class) * count..][..count];
                found.extend(self.of_class(&corners, scores).into_iter().map(|(index, score)| Detection {
                    batch,
                    class,
                    index,
                    flat_index: batch * count + index,
                    score,
                    corners: [0, 1, 2, 3].map(|i: usize| of_image[index * 4 + i]),
                }));
                context.environment().poll()?;
            }
            detections.extend(order.of_image(found));
        }
        order.write(context, detections, images)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(8)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = MatrixNmsAttributes::read(context.attributes);
    let a = &attributes;
    let limits = [("nms_top_k", a.nms_top_k), ("keep_top_k", a.keep_top_k), ("background_class", a.background_class)];
    check_attributes(context.attributes, limits, a.output_type);
    for (name, value) in [
        ("score_threshold", a.score_threshold),
        ("gaussian_sigma", a.gaussian_sigma),
        ("post_threshold", a.post_threshold),
    ] {
        check_number(context.attributes, name, value, f32::NEG_INFINITY..=f32::INFINITY);
    }
    Arc::new(MatrixNms { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("MatrixNms", "opset8").outputs(3)
    }

    /// Two images of two boxes that overlap by a third, with two classes.
    fn inputs() -> Vec<Tensor> {
        let boxes = [0f32, 0.0, 2.0, 1.0, 1.0, 0.0, 3.0, 1.0].repeat(2);
        let scores = [0.5f32, 0.75, 0.25, 0.0, 0.0, 0.0, 1.0, 0.0];
        vec![tensor(&boxes, [2, 2, 4]), tensor(&scores, [2, 2, 2])]
    }

    fn classes_and_indices(outputs: &[Tensor]) -> Vec<(f32, i64)> {
        let rows = outputs[0].slice::<f32>().unwrap().chunks_exact(6);
        rows.map(|r| r[0]).zip(outputs[1].slice::<i64>().unwrap().iter().copied()).collect()
    }

    #[test]
    fn scores_decay_with_overlaps() {
        let outputs = case().run(&inputs()).unwrap();
        let rows = outputs[0].slice::<f32>().unwrap();
        assert_eq!(rows[..6], [0.0, 0.75, 1.0, 0.0, 3.0, 1.0]);
        assert!((rows[7] - 1.0 / 3.0).abs() < 1e-6);
        assert_eq!(outputs[2], tensor(&[3i64, 1], [2]));
        let gaussian = case().attribute("decay_function", "gaussian").run(&inputs()).unwrap();
        assert!((gaussian[0].slice::<f32>().unwrap()[7] - 0.5 * (-2.0f32 / 9.0).exp()).abs() < 1e-6);
        let high = case().attribute("post_threshold", "0.4").run(&inputs()).unwrap();
        assert_eq!(high[2], tensor(&[1i64, 1], [2]));
    }

    #[test]
    fn orders_of_the_result() {
        let order = |by: &str, across: &str| {
            let case = case().attribute("sort_result_type", by).attribute("sort_result_across_batch", across);
            classes_and_indices(&case.run(&inputs()).unwrap())
        };
        assert_eq!(order("score", "false"), [(0.0, 1), (0.0, 0), (1.0, 0), (1.0, 2)]);
        assert_eq!(order("score", "true"), [(1.0, 2), (0.0, 1), (0.0, 0), (1.0, 0)]);
        assert_eq!(order("classid", "false"), [(0.0, 1), (0.0, 0), (1.0, 0), (1.0, 2)]);
        assert_eq!(order("classid", "true"), [(0.0, 1), (0.0, 0), (1.0, 0), (1.0, 2)]);
        let background = case().attribute("background_class", "0").attribute("keep_top_k", "1");
        assert_eq!(classes_and_indices(&background.run(&inputs()).unwrap()), [(1.0, 0), (1.0, 2)]);
    }

    #[test]
    fn nothing_is_selected() {
        let outputs = case().attribute("score_threshold", "2").run(&inputs()).unwrap();
        assert_eq!(outputs[0], tensor::<f32>(&[], [0, 6]));
        assert_eq!(outputs[1], tensor::<i64>(&[], [0, 1]));
        assert_eq!(outputs[2], tensor(&[0i64, 0], [2]));
        let empty = [tensor::<f32>(&[], [2, 0, 4]), tensor::<f32>(&[], [2, 3, 0])];
        assert_eq!(case().run(&empty).unwrap()[2], tensor(&[0i64, 0], [2]));
    }

    #[test]
    fn the_example_of_the_specification() {
        let case = case().attribute("decay_function", "gaussian").attribute("sort_result_type", "score");
        let inputs = ["f32[3,100,4]", "f32[3,5,100]"];
        assert_eq!(case.infer(&inputs), ["f32[..1500,6]", "i64[..1500,1]", "i64[3]"]);
        case.assert_monotone(&inputs);
        let limited = case.attribute("nms_top_k", "10").attribute("keep_top_k", "20");
        assert_eq!(limited.infer(&inputs)[0], "f32[..60,6]");
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case().infer_error(&["f32[3,100,4]", "f32[2,5,100]"]),
            "input 1: shape [2,5,100] has 2 batches, but shape [3,100,4] of input 0 has 3"
        );
        assert_eq!(
            case().infer_error(&["f32[3,100,4]", "f32[3,5,99]"]),
            "input 1: shape [3,5,99] has 99 boxes, but shape [3,100,4] of input 0 has 100"
        );
        assert_eq!(
            case().attribute("nms_top_k", "-2").attribute("output_type", "f32").attribute_errors(2),
            [
                "attribute `nms_top_k`: `nms_top_k` -2 is out of range [-1, 2147483647]",
                "attribute `output_type`: `output_type` is f32; it must be i32 or i64"
            ]
        );
    }
}
