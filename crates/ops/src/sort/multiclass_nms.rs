//! # MulticlassNms
//! Chooses boxes of each class by score, leaving out those that overlap a better one too much.
//!
//! Specification: `sort/multiclass-non-max-suppression-8`, `sort/multiclass-non-max-suppression-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | boxes | f16 bf16 f32 f64 | `[batches, boxes, 4]`: x1, y1, x2, y2 |
//! | in 1 | scores | that of `boxes` | `[batches, classes, boxes]` |
//! | out 0 | selected_outputs | that of `boxes` | `[selected, 6]`: class, score, x1, y1, x2, y2 |
//! | out 1 | selected_indices | `output_type` | `[selected, 1]`: boxes counted over all batches |
//! | out 2 | selected_num | `output_type` | `[batches]` |
//!
//! Version 9 adds a form where each class has boxes of its own: `boxes` is `[classes, boxes, 4]`, `scores`
//! `[classes, boxes]`, and a third input of type i32 or i64 tells how many boxes belong to each batch. Their indices are
//! `box * classes + class`, as in OpenVINO.
//!
//! The specification calls `sort_result_type` `sort_result` and its `classid` `class`. `none` sorts by score, as OpenVINO
//! does. Of equal scores the lower class and box come first. A box is compared with all chosen ones by the threshold that
//! holds when its turn comes. It is left out when its overlap is above the threshold; OpenVINO leaves it out also when they
//! are equal. Overlaps and scores are computed in f32.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType};

use crate::common::boxes::{Corners, Suppression, common_dim, descending, require_last, suppress};
use crate::common::detections::{Detection, Order, SortResultType, check_attributes, limited, set_outputs};
use crate::common::memory::widened_view;
use crate::common::ranges::check_number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of MulticlassNms.
pub static MULTICLASS_NMS: OpDef = OpDef {
    type_name: "MulticlassNms",
    category: Category::Sort,
    versions: &[OpVersion::new(8, (8, 8), (2, 2), (3, 3)), OpVersion::new(9, (9, 16), (2, 3), (3, 3))],
    attributes: MulticlassNmsAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of MulticlassNms.
    pub struct MulticlassNmsAttributes {
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
        /// The overlap above which a box is left out.
        iou_threshold: f32 = "iou_threshold", default "0";
        /// The score that a box must have.
        score_threshold: f32 = "score_threshold", default "0";
        /// The class that is no object; -1 if there is none.
        background_class: i64 = "background_class", default "-1";
        /// What every selected box multiplies a threshold above 0.5 with.
        nms_eta: f32 = "nms_eta", default "1";
        /// Whether coordinates are places; widths of pixels count both ends.
        normalized: bool = "normalized", default "true";
    }
}

/// A MulticlassNms layer.
#[derive(Debug)]
pub struct MulticlassNms {
    /// The attributes.
    pub attributes: MulticlassNmsAttributes,
    /// The class version.
    pub class_version: u8,
}

/// The boxes of one class of one image.
struct Candidates<'a> {
    boxes: &'a [f64],
    scores: &'a [f64],
}

/// Where the boxes of an image stand.
#[derive(Debug, Clone, Copy)]
struct Image {
    batch: usize,
    first: usize,
    count: usize,
}

impl MulticlassNms {
    fn order(&self) -> Order {
        let a = &self.attributes;
        Order { by: a.sort_result_type, across_batch: a.sort_result_across_batch, keep_top_k: a.keep_top_k }
    }

    /// The selected boxes of a class.
    fn of_class(&self, candidates: &Candidates<'_>) -> Vec<usize> {
        let a = &self.attributes;
        let score = |i: usize| candidates.scores[i] as f32;
        let mut order: Vec<usize> = (0..candidates.scores.len()).filter(|i| score(*i) >= a.score_threshold).collect();
        order.sort_by(|i, j| descending(score(*i), score(*j)));
        order.truncate(limited(order.len(), a.nms_top_k));
        let extra = if a.normalized { 0.0 } else { 1.0 };
        let corners = |i: usize| -> Corners { [0, 1, 2, 3].map(|k| candidates.boxes[i * 4 + k] as f32) };
        let rule = Suppression { most: usize::MAX, threshold: a.iou_threshold, eta: a.nms_eta };
        // Boxes of pixels reach their neighbours; twice as far leaves room for rounding.
        let sides = |i: usize| {
            let [left, top, right, bottom] = corners(i);
            [left, top, right + 2.0 * extra, bottom + 2.0 * extra]
        };
        suppress(&order, rule, sides, |i, j| intersection_over_union(&corners(i), &corners(j), extra))
    }

    /// The images where each class has boxes of its own.
    fn images(&self, context: &EvaluateContext<'_>, boxes: usize) -> OpResult<Vec<Image>> {
        let mut first = 0usize;
        let numbers = context.integers(2)?;
        let image = |(batch, number): (usize, &i64)| {
            let count = usize::try_from(*number).ok().filter(|count| *count <= boxes - first).ok_or_else(|| {
                let message = format!("batch {batch} has {number} boxes, but only {} are left", boxes - first);
                OpError::value(Blame::Input(2), message)
            })?;
            first += count;
            Ok(Image { batch, first: first - count, count })
        };
        numbers.iter().enumerate().map(image).collect()
    }

    fn infer_shared(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_rank(1, 3..=3)?;
        let images = common_dim(context, &[(0, 0), (1, 0)], "batches")?;
        let boxes = common_dim(context, &[(0, 1), (1, 2)], "boxes")?;
        let (a, classes) = (&self.attributes, context.shape(1).dim(1));
        set_outputs(context, a.output_type, [boxes, classes, images], (a.nms_top_k, a.keep_top_k));
        Ok(())
    }

    fn infer_separate(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(2, ElementClass::Index)?;
        context.require_rank(1, 2..=2)?;
        context.require_rank(2, 1..=1)?;
        let classes = common_dim(context, &[(0, 0), (1, 0)], "classes")?;
        let boxes = common_dim(context, &[(0, 1), (1, 1)], "boxes")?;
        let (a, images) = (&self.attributes, context.shape(2).dim(0));
        set_outputs(context, a.output_type, [boxes, classes, images], (a.nms_top_k, a.keep_top_k));
        Ok(())
    }
}

impl Operation for MulticlassNms {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_class(1, ElementClass::Float)?;
        context.require_same_type(&[0, 1])?;
        require_last(context, 0, 2, 4)?;
        if context.input_count() > 2 { self.infer_separate(context) } else { self.infer_shared(context) }
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (boxes, scores) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let shape = context.input(1)?.shape();
        let is_shared = context.input_count() < 3;
        let (classes, count) = if is_shared { (shape[1], shape[2]) } else { (shape[0], shape[1]) };
        let images: Vec<Image> = match is_shared {
            true => (0..shape[0]).map(|batch| Image { batch, first: batch * count, count }).collect(),
            false => self.images(context, count)?,
        };
        let mut detections = Vec::new();
        for image in &images {
            let mut found = Vec::new();
            for class in (0..classes).filter(|class| *class as i64 != self.attributes.background_class) {
                let (first_box, first_score) = match is_shared {
                    true => (image.first, (image.batch * classes + class) * count),
                    false => (class * count + image.first, class * count + image.first),
                };
                let boxes = &boxes[first_box * 4..][..image.count * 4];
                let candidates = Candidates { boxes, scores: &scores[first_score..][..image.count] };
                found.extend(self.of_class(&candidates).into_iter().map(|index| Detection {
                    batch: image.batch,
                    class,
                    index,
                    flat_index: match is_shared {
                        true => image.first + index,
                        false => (image.first + index) * classes + class,
                    },
                    score: candidates.scores[index] as f32,
                    corners: [0, 1, 2, 3].map(|i: usize| boxes[index * 4 + i]),
                }));
                context.environment().poll()?;
            }
            detections.extend(self.order().of_image(found));
        }
        self.order().write(context, detections, images.len())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

/// Boxes without an area have none.
fn intersection_over_union(a: &Corners, b: &Corners, extra: f32) -> f32 {
    let area = |c: &Corners| (c[2] - c[0] + extra) * (c[3] - c[1] + extra);
    let (first, second) = (area(a), area(b));
    if first <= 0.0 || second <= 0.0 {
        return 0.0;
    }
    let width = (a[2].min(b[2]) - a[0].max(b[0]) + extra).max(0.0);
    let height = (a[3].min(b[3]) - a[1].max(b[1]) + extra).max(0.0);
    width * height / (first + second - width * height)
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = MulticlassNmsAttributes::read(context.attributes);
    let a = &attributes;
    let limits = [("nms_top_k", a.nms_top_k), ("keep_top_k", a.keep_top_k), ("background_class", a.background_class)];
    check_attributes(context.attributes, limits, a.output_type);
    check_number(context.attributes, "iou_threshold", a.iou_threshold, f32::NEG_INFINITY..=f32::INFINITY);
    check_number(context.attributes, "score_threshold", a.score_threshold, f32::NEG_INFINITY..=f32::INFINITY);
    check_number(context.attributes, "nms_eta", a.nms_eta, 0.0..=1.0);
    Arc::new(MulticlassNms { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case(threshold: &str) -> Case {
        Case::new("MulticlassNms", "opset9").attribute("iou_threshold", threshold).outputs(3)
    }

    /// Three boxes: the first two overlap by a third, the last one lies apart.
    const BOXES: [f32; 12] = [0.0, 0.0, 2.0, 1.0, 1.0, 0.0, 3.0, 1.0, 5.0, 0.0, 7.0, 1.0];

    fn inputs() -> Vec<Tensor> {
        let scores = [0.5f32, 0.75, 0.25, 0.0, 0.0, 1.0];
        vec![tensor(&BOXES, [1, 3, 4]), tensor(&scores, [1, 2, 3])]
    }

    fn indices(case: &Case, inputs: &[Tensor]) -> Vec<i64> {
        case.run(inputs).unwrap()[1].slice::<i64>().unwrap().to_vec()
    }

    #[test]
    fn boxes_that_overlap_are_left_out() {
        let case = |threshold: &str| case(threshold).attribute("score_threshold", "0.1");
        let outputs = case("0.3").run(&inputs()).unwrap();
        let rows = [1f32, 1.0, 5.0, 0.0, 7.0, 1.0, 0.0, 0.75, 1.0, 0.0, 3.0, 1.0, 0.0, 0.25, 5.0, 0.0, 7.0, 1.0];
        assert_eq!(outputs[0], tensor(&rows, [3, 6]));
        assert_eq!(outputs[1], tensor(&[2i64, 1, 2], [3, 1]));
        assert_eq!(outputs[2], tensor(&[3i64], [1]));
        assert_eq!(indices(&case("0.34"), &inputs()), [2, 1, 0, 2]);
        assert_eq!(indices(&case("0"), &inputs()), [2, 1, 2]);
        assert_eq!(indices(&case("0.3").attribute("normalized", "false"), &inputs()), [2, 1, 2]);
        assert_eq!(indices(&case("0.34").attribute("sort_result_type", "classid"), &inputs()), [1, 0, 2, 2]);
        assert_eq!(indices(&case("0.34").attribute("nms_top_k", "1"), &inputs()), [2, 1]);
        assert_eq!(indices(&case("0.34").attribute("keep_top_k", "2"), &inputs()), [2, 1]);
        assert_eq!(indices(&case("0.34").attribute("background_class", "1"), &inputs()), [1, 0, 2]);
    }

    #[test]
    fn thresholds_adapt() {
        let boxes = [0.0f32, 0.0, 4.0, 1.0, 1.0, 0.0, 5.0, 1.0, 8.0, 0.0, 9.0, 1.0];
        let inputs = [tensor(&boxes, [1, 3, 4]), tensor(&[0.5f32, 0.75, 1.0], [1, 1, 3])];
        // 0.9 is 0.72 after one choice and 0.576 after two, less than the overlap of 0.6.
        assert_eq!(indices(&case("0.9").attribute("nms_eta", "0.8"), &inputs), [2, 1]);
        assert_eq!(indices(&case("0.9"), &inputs), [2, 1, 0]);
    }

    #[test]
    fn classes_with_boxes_of_their_own() {
        let boxes: Vec<f32> = BOXES.iter().chain(&BOXES).copied().collect();
        let scores = [0.5f32, 0.75, 0.25, 0.125, 0.0, 1.0];
        let given = [tensor(&boxes, [2, 3, 4]), tensor(&scores, [2, 3]), tensor(&[2i32, 0, 1], [3])];
        let case = case("0.3").attribute("score_threshold", "0.1");
        let outputs = case.run(&given).unwrap();
        assert_eq!(outputs[1], tensor(&[2i64, 1, 5, 4], [4, 1]));
        assert_eq!(outputs[2], tensor(&[2i64, 0, 2], [3]));
        let error = |numbers: &[i64]| {
            let inputs = [given[0].clone(), given[1].clone(), tensor(numbers, [numbers.len()])];
            case.run(&inputs).unwrap_err().to_string()
        };
        assert_eq!(error(&[2, 2]), "input 2: batch 1 has 2 boxes, but only 1 are left");
        assert_eq!(error(&[-1]), "input 2: batch 0 has -1 boxes, but only 3 are left");
    }

    #[test]
    fn the_examples_of_the_specification() {
        let shared = ["f32[3,100,4]", "f32[3,5,100]"];
        assert_eq!(case("0.2").infer(&shared), ["f32[..1500,6]", "i64[..1500,1]", "i64[3]"]);
        case("0.2").assert_monotone(&shared);
        let separate = ["f32[3,100,4]", "f32[3,100]", "i64[10]"];
        assert_eq!(case("0.2").infer(&separate), ["f32[..3000,6]", "i64[..3000,1]", "i64[10]"]);
        case("0.2").assert_monotone(&separate);
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case("0.2").infer_error(&["f32[3,100,4]", "f32[2,100]", "i64[10]"]),
            "input 1: shape [2,100] has 2 classes, but shape [3,100,4] of input 0 has 3"
        );
        assert_eq!(
            case("0.2").infer_error(&["f32[3,100,4]", "f32[3,100]"]),
            "input 1: shape [3,100] has rank 2; it must be 3"
        );
        assert_eq!(
            case("0.2").infer_error(&["f32[3,100,4]", "f32[3,100]", "u8[10]"]),
            "input 2: element type u8 must be i32 or i64"
        );
        assert_eq!(
            case("0.2").attribute("nms_eta", "1.5").attribute_errors(2),
            ["attribute `nms_eta`: `nms_eta` 1.5 is out of range [0, 1]"]
        );
    }
}
