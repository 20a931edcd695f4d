//! # NonMaxSuppression
//! Chooses boxes by score, leaving out those that overlap a better one too much.
//!
//! Specification: `sort/non-max-suppression-1`, `-3`, `-4`, `-5`, `-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | boxes | f16 bf16 f32 f64 | `[batches, boxes, 4]` |
//! | in 1 | scores | that of `boxes` | `[batches, classes, boxes]` |
//! | in 2 | max_output_boxes_per_class (optional, 0) | any integer type | one element |
//! | in 3 | iou_threshold (optional, 0) | floating-point | one element |
//! | in 4 | score_threshold (optional, 0) | floating-point | one element |
//! | in 5 | soft_nms_sigma (since 5, optional, 0) | floating-point | one element |
//! | out 0 | selected_indices | i64 (1), `output_type` | `[selected, 3]`: batch, class, box |
//! | out 1 | selected_scores (since 5) | that of `iou_threshold`, or f32 | `[selected, 3]`: batch, class, score |
//! | out 2 | valid_outputs (since 5) | `output_type` | `[1]` |
//!
//! Version 3 adds `output_type`, version 4 corrects the size of the output, version 5 adds Soft-NMS and two outputs.
//! Before version 5 the output has a fixed size: `min(boxes, max_output * classes)` in versions 1 and 3, and
//! `min(boxes, max_output) * batches * classes` in version 4; missing rows are -1 and surplus ones are cut off. Since
//! version 5 it has as many rows as boxes are selected. A box is taken when its score is above the threshold (the page
//! says not below), as in OpenVINO. Boxes and scores are computed in f32; of equal scores the first box wins.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape};

use crate::common::suppression::{
    Rule, box_count, check, most_of_class, most_rows, select, set_outputs, smaller, sort_by_score, write,
};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of NonMaxSuppression.
pub static NON_MAX_SUPPRESSION: OpDef = OpDef {
    type_name: "NonMaxSuppression",
    category: Category::Sort,
    versions: &[
        OpVersion::new(1, (1, 2), (2, 5), (1, 1)),
        OpVersion::new(3, (3, 3), (2, 5), (1, 1)),
        OpVersion::new(4, (4, 4), (2, 5), (1, 1)),
        OpVersion::new(5, (5, 8), (2, 6), (1, 3)),
        OpVersion::new(9, (9, 16), (2, 6), (1, 3)),
    ],
    attributes: NonMaxSuppressionAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How boxes are written.
    pub enum BoxEncoding {
        /// `[y1, x1, y2, x2]`: any two opposite corners.
        #[default]
        Corner = "corner",
        /// `[x_center, y_center, width, height]`.
        Center = "center",
    }
}

crate::attributes! {
    /// Attributes of NonMaxSuppression.
    pub struct NonMaxSuppressionAttributes {
        /// How boxes are written.
        box_encoding: BoxEncoding = "box_encoding", default "corner";
        /// Whether boxes are sorted by score across batches and classes.
        sort_result_descending: bool = "sort_result_descending", default "true";
        /// The element type of the indices: i32 or i64.
        output_type: ElementType = "output_type", default "i64", since 3;
    }
}

/// A NonMaxSuppression layer.
#[derive(Debug)]
pub struct NonMaxSuppression {
    /// The attributes.
    pub attributes: NonMaxSuppressionAttributes,
    /// The class version.
    pub class_version: u8,
}

/// A box by its corners.
#[derive(Debug, Clone, Copy)]
struct Rectangle {
    top: f32,
    left: f32,
    bottom: f32,
    right: f32,
}

impl NonMaxSuppression {
    /// The number of rows of the output, or its bound since version 5.
    fn rows(&self, context: &InferContext<'_>) -> Dim {
        match self.class_version {
            1 | 3 => smaller(box_count(context), most_of_class(context) * context.shape(1).dim(1)),
            _ => most_rows(context),
        }
    }

    fn rectangle(&self, v: &[f32]) -> Rectangle {
        match self.attributes.box_encoding {
            BoxEncoding::Corner => {
                Rectangle { top: v[0].min(v[2]), left: v[1].min(v[3]), bottom: v[0].max(v[2]), right: v[1].max(v[3]) }
            }
            BoxEncoding::Center => Rectangle {
                top: v[1] - v[3] / 2.0,
                left: v[0] - v[2] / 2.0,
                bottom: v[1] + v[3] / 2.0,
                right: v[0] + v[2] / 2.0,
            },
        }
    }

    /// The rows of the output for known shapes before version 5.
    fn fixed_rows(&self, context: &EvaluateContext<'_>) -> OpResult<usize> {
        let (boxes, scores) = (context.input(0)?.shape(), context.input(1)?.shape());
        let most = Rule::new(context)?.most;
        Ok(match self.class_version {
            1 | 3 => boxes[1].min(most.saturating_mul(scores[1])),
            _ => boxes[1].min(most).saturating_mul(boxes[0]).saturating_mul(scores[1]),
        })
    }
}

impl Operation for NonMaxSuppression {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        check(context, 4)?;
        let output_type = self.attributes.output_type;
        if self.class_version >= 5 {
            set_outputs(context, output_type);
            return Ok(());
        }
        let rows = self.rows(context);
        let rows = if rows.is_static() { rows } else { context.new_dim(rows.min(), rows.max()) };
        context.set_output(0, output_type, PartialShape::from_dims([rows, Dim::fixed(3)]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let corners = |r: &Rectangle| [r.left, r.top, r.right, r.bottom];
        let rectangle = |values: &[f32]| self.rectangle(values);
        let mut selected = select(context, (4, true), rectangle, corners, intersection_over_union)?;
        if self.attributes.sort_result_descending {
            sort_by_score(&mut selected);
        }
        let rows = if self.class_version < 5 { self.fixed_rows(context)? } else { selected.len() };
        write(context, &selected, rows)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

#[inline]
fn intersection_over_union(a: &Rectangle, b: &Rectangle) -> f32 {
    let height = a.bottom.min(b.bottom) - a.top.max(b.top);
    let width = a.right.min(b.right) - a.left.max(b.left);
    // Most boxes are far from each other.
    if height <= 0.0 || width <= 0.0 {
        return 0.0;
    }
    let area = |r: &Rectangle| (r.bottom - r.top) * (r.right - r.left);
    let (first, second) = (area(a), area(b));
    if first <= 0.0 || second <= 0.0 {
        return 0.0;
    }
    let common = height * width;
    common / (first + second - common)
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = NonMaxSuppressionAttributes::read(context.attributes);
    if !attributes.output_type.is(ElementClass::Index) {
        let message = format!("`output_type` is {}; it must be i32 or i64", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(NonMaxSuppression { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use super::{Rectangle, intersection_over_union};
    use crate::common::boxes::Crowd;
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn inputs(most: i64) -> Vec<Tensor> {
        let boxes = [0f32, 0.0, 1.0, 1.0, 0.0, 0.1, 1.0, 1.1, 0.0, -0.1, 1.0, 0.9, 0.0, 10.0, 1.0, 11.0];
        vec![
            tensor(&boxes, [1, 4, 4]),
            tensor(&[0.9f32, 0.75, 0.6, 0.95], [1, 1, 4]),
            tensor(&[most], []),
            tensor(&[0.5f32], []),
            tensor(&[0f32], []),
        ]
    }

    #[test]
    fn boxes_that_overlap_are_left_out() {
        let outputs = Case::new("NonMaxSuppression", "opset9").outputs(3).run(&inputs(3)).unwrap();
        assert_eq!(outputs[0], tensor(&[0i64, 0, 3, 0, 0, 0], [2, 3]));
        assert_eq!(outputs[1], tensor(&[0f32, 0.0, 0.95, 0.0, 0.0, 0.9], [2, 3]));
        assert_eq!(outputs[2], tensor(&[2i64], [1]));
        // A sigma that is no number softens nothing, and below zero all others are left out.
        let with = |inputs: Vec<Tensor>| Case::new("NonMaxSuppression", "opset9").outputs(3).run(&inputs).unwrap();
        let rigid = with([inputs(3), vec![tensor(&[f32::NAN], [])]].concat());
        assert_eq!(rigid[0], outputs[0]);
        let mut lonely = inputs(3);
        lonely[3] = tensor(&[-0.5f32], []);
        assert_eq!(with(lonely)[0], tensor(&[0i64, 0, 3], [1, 3]));
        let none = Case::new("NonMaxSuppression", "opset9").outputs(3).run(&inputs(0)).unwrap();
        assert_eq!(none[0], tensor::<i64>(&[], [0, 3]));
    }

    #[test]
    fn overlaps_of_many_boxes_are_those_of_two() {
        let mut random = 3u32;
        let mut number = || {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 20) as f32 / 400.0
        };
        let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0];
        let mut rectangles: Vec<Rectangle> = (0..120)
            .map(|_| {
                let (top, left) = (number(), number());
                Rectangle { top, left, bottom: top + number() - 1.0, right: left + number() - 1.0 }
            })
            .collect();
        for (at, value) in odd.into_iter().cycle().take(12).enumerate() {
            let rectangle = &mut rectangles[at * 5];
            *[&mut rectangle.top, &mut rectangle.right, &mut rectangle.bottom][at % 3] = value;
        }
        let corners = |r: &Rectangle| [r.left, r.top, r.right, r.bottom];
        for threshold in [0.0, 0.1, 0.5, 1.0] {
            for a in &rectangles {
                for others in rectangles.chunks(21) {
                    let mut crowd = Crowd::default();
                    others.iter().for_each(|b| crowd.push(corners(b)));
                    let expected = others.iter().any(|b| intersection_over_union(a, b) > threshold);
                    assert_eq!(crowd.any_over(&corners(a), threshold), expected, "{a:?} {others:?}");
                }
            }
        }
    }

    #[test]
    fn old_versions_have_a_fixed_size() {
        let case = Case::new("NonMaxSuppression", "opset4").attribute("output_type", "i32");
        let output = case.run(&inputs(3)).unwrap();
        assert_eq!(output[0], tensor(&[0i32, 0, 3, 0, 0, 0, -1, -1, -1], [3, 3]));
        assert_eq!(case.infer(&["f32[3,100,4]", "f32[3,5,100]", "i64[]=10", "f32[]", "f32[]"]), ["i32[150,3]"]);
    }

    #[test]
    fn nothing_is_selected_without_a_limit() {
        for (opset, rows) in [("opset1", 0), ("opset4", 0), ("opset9", 0)] {
            let output = Case::new("NonMaxSuppression", opset).run(&inputs(3)[..2]).unwrap();
            assert_eq!(output[0], tensor::<i64>(&[], [rows, 3]), "{opset}");
        }
        let case = Case::new("NonMaxSuppression", "opset3");
        assert_eq!(case.infer(&["f32[1,100,4]", "f32[1,5,100]", "i64[]=10"]), ["i64[50,3]"]);
        case.assert_monotone(&["f32[1,100,4]", "f32[1,5,100]", "i64[]=10"]);
    }

    #[test]
    fn the_example_of_the_specification() {
        let case = Case::new("NonMaxSuppression", "opset9").outputs(3);
        let shapes = case.infer(&["f32[3,100,4]", "f32[3,5,100]", "i64[]=10", "f32[]", "f32[]", "f32[]"]);
        assert_eq!(shapes, ["i64[..150,3]", "f32[..150,3]", "i64[1]=0..150"]);
    }
}
