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

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, ElementClass, ElementType, PartialShape, Shape, SmallVec, Value};

use crate::common::memory::{widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

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

/// A box that may be selected.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    rectangle: Rectangle,
    score: f32,
    index: usize,
    /// The number of selected boxes that it was compared with.
    compared: usize,
}

/// A selected box.
#[derive(Debug, Clone, Copy)]
struct Selected {
    batch: usize,
    class: usize,
    index: usize,
    score: f32,
}

/// The numbers that decide.
struct Rule {
    most: usize,
    overlap: f32,
    score: f32,
    sigma: f32,
}

impl NonMaxSuppression {
    /// The number of rows of the output, or its bound since version 5.
    fn rows(&self, context: &InferContext<'_>) -> Dim {
        let (boxes, scores) = (context.shape(0), context.shape(1));
        let count = boxes.dim(1).merge(scores.dim(2)).unwrap_or(boxes.dim(1));
        let batches = boxes.dim(0).merge(scores.dim(0)).unwrap_or(boxes.dim(0));
        let classes = scores.dim(1);
        let given = context.bounds(2).and_then(|b| b.values.first().copied());
        let most = match (context.input_count() > 2, given) {
            (false, _) => Dim::fixed(0),
            (true, Some(value)) => value.to_dim(),
            (true, None) => Dim::DYNAMIC,
        };
        let smaller = |a: Dim, b: Dim| Dim::interval(a.min().min(b.min()), a.max().min(b.max()));
        match self.class_version {
            1 | 3 => smaller(count, most * classes),
            _ => smaller(count, most) * batches * classes,
        }
    }

    fn check(&self, context: &InferContext<'_>) -> OpResult {
        for (port, class) in [(0, ElementClass::Float), (1, ElementClass::Float), (2, ElementClass::Integer)] {
            context.require_class(port, class)?;
        }
        context.require_same_type(&[0, 1])?;
        context.require_rank(0, 3..=3)?;
        context.require_rank(1, 3..=3)?;
        for port in 2..context.input_count() {
            context.require_one_element(port)?;
            if port > 2 {
                context.require_class(port, ElementClass::Float)?;
            }
        }
        let (boxes, scores) = (context.shape(0), context.shape(1));
        if !boxes.dim(2).contains(4) {
            return Err(OpError::shape(Blame::Input(0), format!("the last dimension of shape {boxes} must be 4")));
        }
        for (of_boxes, of_scores, what) in [(0, 0, "batches"), (1, 2, "boxes")] {
            if !boxes.dim(of_boxes).compatible(scores.dim(of_scores)) {
                let (a, b) = (scores.dim(of_scores), boxes.dim(of_boxes));
                let message = format!("shape {scores} has {a} {what}, but shape {boxes} of input 0 has {b}");
                return Err(OpError::shape(Blame::Input(1), message));
            }
        }
        Ok(())
    }

    fn number(&self, context: &EvaluateContext<'_>, port: usize) -> OpResult<f32> {
        if port >= context.input_count() {
            return Ok(0.0);
        }
        Ok(widened_view(context.input(port)?)?.first().map_or(0.0, |v| *v as f32))
    }

    fn rectangle(&self, values: &[f64]) -> Rectangle {
        let v = [values[0] as f32, values[1] as f32, values[2] as f32, values[3] as f32];
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

    fn select(&self, context: &EvaluateContext<'_>) -> OpResult<Vec<Selected>> {
        let (boxes_shape, scores_shape) = (context.input(0)?.shape(), context.input(1)?.shape());
        let (batches, count, classes) = (boxes_shape[0], boxes_shape[1], scores_shape[1]);
        let (boxes, scores) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let rule = Rule {
            most: self.most(context)?,
            overlap: self.number(context, 3)?,
            score: self.number(context, 4)?,
            sigma: self.number(context, 5)?,
        };
        let mut selected = Vec::new();
        for batch in 0..batches {
            let rectangles: Vec<Rectangle> =
                boxes[batch * count * 4..][..count * 4].chunks_exact(4).map(|b| self.rectangle(b)).collect();
            for class in 0..classes {
                let scores = &scores[(batch * classes + class) * count..][..count];
                let of_class = select_of_class(&rectangles, scores, &rule);
                selected.extend(of_class.iter().map(|c| Selected { batch, class, index: c.index, score: c.score }));
            }
        }
        if self.attributes.sort_result_descending {
            // The sort is stable: of equal scores the lower batch, class and choice stay in front.
            selected.sort_by(|a, b| b.score.total_cmp(&a.score).then(key(a).cmp(&key(b))));
        }
        Ok(selected)
    }

    /// How many boxes of a class are selected at most; none where the input is absent.
    fn most(&self, context: &EvaluateContext<'_>) -> OpResult<usize> {
        if context.input_count() < 3 {
            return Ok(0);
        }
        Ok(usize::try_from(context.integer(2)?).unwrap_or(0))
    }

    /// The rows of the output for known shapes before version 5.
    fn fixed_rows(&self, context: &EvaluateContext<'_>) -> OpResult<usize> {
        let (boxes, scores) = (context.input(0)?.shape(), context.input(1)?.shape());
        let most = self.most(context)?;
        Ok(match self.class_version {
            1 | 3 => boxes[1].min(most.saturating_mul(scores[1])),
            _ => boxes[1].min(most).saturating_mul(boxes[0]).saturating_mul(scores[1]),
        })
    }
}

impl Operation for NonMaxSuppression {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        self.check(context)?;
        let rows = self.rows(context);
        let output_type = self.attributes.output_type;
        if self.class_version < 5 {
            let rows = if rows.is_static() { rows } else { context.new_dim(rows.min(), rows.max()) };
            context.set_output(0, output_type, PartialShape::from_dims([rows, Dim::fixed(3)]));
            return Ok(());
        }
        let rows = context.new_dim(0, rows.max());
        let score_type = if context.input_count() > 3 { context.element_type(3) } else { ElementType::F32 };
        let shape = PartialShape::from_dims([rows, Dim::fixed(3)]);
        context.set_output(0, output_type, shape.clone());
        context.set_output(1, score_type, shape);
        context.set_output(2, output_type, PartialShape::from([1]));
        let count = Value { min: rows.min(), max: rows.max(), symbol: rows.symbol() };
        context.set_bounds(2, Bounds::vector([count]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let selected = self.select(context)?;
        let rows = if self.class_version < 5 { self.fixed_rows(context)? } else { selected.len() };
        let taken = &selected[..rows.min(selected.len())];
        let shape = Shape::from([rows, 3]);
        let mut indices: SmallVec<[f64; 8]> = SmallVec::new();
        indices.extend(taken.iter().flat_map(|s| [s.batch as f64, s.class as f64, s.index as f64]));
        let target = context.output(0, &shape)?;
        indices.resize(target.elements(), -1.0);
        write_rounded(target, &indices)?;
        if context.output_count() > 1 {
            let scores: Vec<f64> =
                taken.iter().flat_map(|s| [s.batch as f64, s.class as f64, f64::from(s.score)]).collect();
            write_rounded(context.output(1, &shape)?, &scores)?;
        }
        if context.output_count() > 2 {
            write_rounded(context.output(2, &Shape::from([1]))?, &[taken.len() as f64])?;
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn key(selected: &Selected) -> (usize, usize, usize) {
    (selected.batch, selected.class, selected.index)
}

/// The chosen boxes of one class of one batch, best first.
fn select_of_class(rectangles: &[Rectangle], scores: &[f64], rule: &Rule) -> Vec<Candidate> {
    let mut queue: BinaryHeap<Candidate> = rectangles
        .iter()
        .zip(scores)
        .enumerate()
        .filter(|(_, (_, score))| **score as f32 > rule.score)
        .map(|(index, (rectangle, score))| Candidate {
            rectangle: *rectangle,
            score: *score as f32,
            index,
            compared: 0,
        })
        .collect();
    let mut selected: Vec<Candidate> = Vec::new();
    while selected.len() < rule.most {
        let Some(mut next) = queue.pop() else { break };
        let before = next.score;
        let mut is_out = false;
        for other in selected[next.compared..].iter().rev() {
            let overlap = intersection_over_union(&next.rectangle, &other.rectangle);
            if rule.sigma > 0.0 {
                next.score *= (-0.5 / rule.sigma * overlap * overlap).exp();
            } else if overlap > rule.overlap {
                is_out = true;
            }
            if is_out || next.score <= rule.score {
                break;
            }
        }
        next.compared = selected.len();
        if is_out || next.score <= rule.score {
            continue;
        }
        match next.score == before {
            true => selected.push(next),
            false => queue.push(next),
        }
    }
    selected
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    /// By score; of equal scores the lower index is the greater.
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then(other.index.cmp(&self.index))
    }
}

fn intersection_over_union(a: &Rectangle, b: &Rectangle) -> f32 {
    let area = |r: &Rectangle| (r.bottom - r.top) * (r.right - r.left);
    let (first, second) = (area(a), area(b));
    if first <= 0.0 || second <= 0.0 {
        return 0.0;
    }
    let height = (a.bottom.min(b.bottom) - a.top.max(b.top)).max(0.0);
    let width = (a.right.min(b.right) - a.left.max(b.left)).max(0.0);
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
        let none = Case::new("NonMaxSuppression", "opset9").outputs(3).run(&inputs(0)).unwrap();
        assert_eq!(none[0], tensor::<i64>(&[], [0, 3]));
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
