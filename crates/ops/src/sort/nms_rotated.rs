//! # NMSRotated
//! Chooses rotated boxes by score, leaving out those that overlap a better one too much.
//!
//! Specification: `sort/nms-rotated-13`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | boxes | f16 bf16 f32 f64 | `[batches, boxes, 5]`: centre x, centre y, width, height, angle in radians |
//! | in 1 | scores | that of `boxes` | `[batches, classes, boxes]` |
//! | in 2 | max_output_boxes_per_class | any integer type | one element |
//! | in 3 | iou_threshold | floating-point | one element |
//! | in 4 | score_threshold | floating-point | one element |
//! | out 0 | selected_indices | `output_type` | `[selected, 3]`: batch, class, box |
//! | out 1 | selected_scores | that of `iou_threshold` | `[selected, 3]`: batch, class, score |
//! | out 2 | valid_outputs | `output_type` | `[1]` |
//!
//! A box is taken when its score is above the threshold (the page says not below), as in NonMaxSuppression. Boxes and scores
//! are read as f32, intersections are computed in f64; of equal scores the first box wins.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, SmallVec};

use crate::common::boxes::EVERYWHERE;
use crate::common::suppression::{check, select, set_outputs, sort_by_score, write};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of NMSRotated.
pub static NMS_ROTATED: OpDef = OpDef {
    type_name: "NMSRotated",
    category: Category::Sort,
    versions: &[OpVersion::new(13, (13, 16), (5, 5), (3, 3))],
    attributes: NMSRotatedAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of NMSRotated.
    pub struct NMSRotatedAttributes {
        /// Whether boxes are sorted by score across batches and classes.
        sort_result_descending: bool = "sort_result_descending", default "true";
        /// The element type of the indices: i32 or i64.
        output_type: ElementType = "output_type", default "i64";
        /// Whether angles turn clockwise.
        clockwise: bool = "clockwise", default "true";
    }
}

/// A NMSRotated layer.
#[derive(Debug)]
pub struct NMSRotated {
    /// The attributes.
    pub attributes: NMSRotatedAttributes,
}

/// A place in the plane.
type Point = (f64, f64);

/// The corners of what is left of a box; eight at most when two boxes meet.
type Polygon = SmallVec<[Point; 8]>;

/// A rotated box.
#[derive(Debug, Clone, Copy)]
struct RotatedBox {
    corners: [Point; 4],
    area: f64,
}

impl NMSRotated {
    fn rotated_box(&self, values: &[f32]) -> RotatedBox {
        let number = |i: usize| f64::from(values[i]);
        let angle = if self.attributes.clockwise { number(4) } else { -number(4) };
        let (sine, cosine) = (libm::sin(angle), libm::cos(angle));
        let (x, y, width, height) = (number(0), number(1), number(2), number(3));
        let corner = |across: f64, down: f64| {
            let (dx, dy) = (across * width, down * height);
            (x + dx * cosine - dy * sine, y + dx * sine + dy * cosine)
        };
        let corners = [corner(-0.5, -0.5), corner(0.5, -0.5), corner(0.5, 0.5), corner(-0.5, 0.5)];
        RotatedBox { corners, area: width * height }
    }
}

impl Operation for NMSRotated {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        check(context, 5)?;
        set_outputs(context, self.attributes.output_type);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        // Rounding may let two boxes share a little where their sides would say that they do not touch.
        let corners = |_: &RotatedBox| EVERYWHERE;
        let turned = |values: &[f32]| self.rotated_box(values);
        let mut selected = select(context, (5, false), turned, corners, intersection_over_union)?;
        if self.attributes.sort_result_descending {
            sort_by_score(&mut selected);
        }
        write(context, &selected, selected.len())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(13)
    }
}

/// Boxes without an area have none.
fn intersection_over_union(a: &RotatedBox, b: &RotatedBox) -> f32 {
    // NaN is no area.
    if !(a.area > 0.0 && b.area > 0.0) {
        return 0.0;
    }
    let common = intersection(a, b);
    (common / (a.area + b.area - common)) as f32
}

/// The area that two boxes share: what each side of the second one leaves of the first.
fn intersection(a: &RotatedBox, b: &RotatedBox) -> f64 {
    let mut left: Polygon = a.corners.into_iter().collect();
    for side in 0..4 {
        left = cut(&left, b.corners[side], b.corners[(side + 1) % 4]);
    }
    let Some(&origin) = left.first() else { return 0.0 };
    // Triangles from one corner: their sum does not cancel far from the origin of the plane.
    let triangles = left.windows(2).map(|edge| cross(origin, edge[0], edge[1]));
    (triangles.sum::<f64>() / 2.0).max(0.0)
}

/// What lies on the inner side of the line from `from` to `to`, where the corners of a box turn to.
fn cut(polygon: &Polygon, from: Point, to: Point) -> Polygon {
    let mut left = Polygon::new();
    for (i, &corner) in polygon.iter().enumerate() {
        let next = polygon[(i + 1) % polygon.len()];
        let (here, there) = (cross(from, to, corner), cross(from, to, next));
        if here >= 0.0 {
            left.push(corner);
        }
        if (here > 0.0 && there < 0.0) || (here < 0.0 && there > 0.0) {
            let part = here / (here - there);
            left.push((corner.0 + (next.0 - corner.0) * part, corner.1 + (next.1 - corner.1) * part));
        }
    }
    left
}

/// Twice the signed area of a triangle.
fn cross(a: Point, b: Point, c: Point) -> f64 {
    (b.0 - a.0) * (c.1 - a.1) - (b.1 - a.1) * (c.0 - a.0)
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = NMSRotatedAttributes::read(context.attributes);
    if !attributes.output_type.is(ElementClass::Index) {
        let message = format!("`output_type` is {}; it must be i32 or i64", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(NMSRotated { attributes })
}

#[cfg(test)]
mod tests {
    use super::{NMSRotated, NMSRotatedAttributes, intersection_over_union};
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;
    use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, SQRT_2};

    fn case() -> Case {
        Case::new("NMSRotated", "opset13").outputs(3)
    }

    /// The last box covers the first one when it turns by a quarter.
    fn inputs(angle: f32, most: i64, overlap: f32) -> Vec<Tensor> {
        let boxes = [2f32, 2.0, 4.0, 2.0, 0.0, 9.0, 9.0, 1.0, 1.0, 0.0, 2.0, 2.0, 2.0, 4.0, angle];
        vec![
            tensor(&boxes, [1, 3, 5]),
            tensor(&[0.5f32, 0.25, 0.75], [1, 1, 3]),
            tensor(&[most], []),
            tensor(&[overlap], []),
            tensor(&[0f32], [1]),
        ]
    }

    #[test]
    fn boxes_that_overlap_are_left_out() {
        let quarter = FRAC_PI_2 as f32;
        let outputs = case().run(&inputs(quarter, 3, 0.9)).unwrap();
        assert_eq!(outputs[0], tensor(&[0i64, 0, 2, 0, 0, 1], [2, 3]));
        assert_eq!(outputs[1], tensor(&[0f32, 0.0, 0.75, 0.0, 0.0, 0.25], [2, 3]));
        assert_eq!(outputs[2], tensor(&[2i64], [1]));
        let three = case().attribute("output_type", "i32").run(&inputs(0.0, 3, 0.4)).unwrap();
        assert_eq!(three[0], tensor(&[0i32, 0, 2, 0, 0, 0, 0, 0, 1], [3, 3]));
        assert_eq!(case().run(&inputs(0.0, 1, 0.4)).unwrap()[2], tensor(&[1i64], [1]));
        assert_eq!(case().run(&inputs(0.0, 0, 0.4)).unwrap()[0], tensor::<i64>(&[], [0, 3]));
    }

    #[test]
    fn overlaps_of_rotated_boxes() {
        let overlap = |clockwise: bool, a: [f64; 5], b: [f64; 5]| {
            let attributes = NMSRotatedAttributes { clockwise, ..NMSRotatedAttributes::default() };
            let operation = NMSRotated { attributes };
            let turned = |values: [f64; 5]| operation.rotated_box(&values.map(|value| value as f32));
            intersection_over_union(&turned(a), &turned(b))
        };
        let unit = [0.0, 0.0, 1.0, 1.0, 0.0];
        assert_eq!(overlap(true, unit, unit), 1.0);
        // Two squares turned by an eighth against each other share an octagon.
        let octagon = 2.0 * (SQRT_2 - 1.0);
        let expected = (octagon / (2.0 - octagon)) as f32;
        assert!((overlap(true, unit, [0.0, 0.0, 1.0, 1.0, FRAC_PI_4]) - expected).abs() < 1e-6);
        assert_eq!(overlap(true, unit, [2.0, 0.0, 1.0, 1.0, 0.0]), 0.0);
        assert_eq!(overlap(true, unit, [0.0, 0.0, 0.0, 1.0, 0.0]), 0.0);
        assert_eq!(overlap(true, unit, [f64::NAN, 0.0, 1.0, 1.0, 0.0]), 0.0);
        // A thin box turned by an eighth lies on a square below and to the right of it, or above.
        let (thin, square) = ([0.0, 0.0, 10.0, 0.1, FRAC_PI_4], [3.0, 3.0, 1.0, 1.0, 0.0]);
        assert!(overlap(true, thin, square) > 0.0);
        assert_eq!(overlap(false, thin, square), 0.0);
    }

    #[test]
    fn the_example_of_the_specification() {
        let inputs = ["f32[3,100,5]", "f32[3,5,100]", "i64[]=10", "f16[]", "f32[]"];
        assert_eq!(case().infer(&inputs), ["i64[..150,3]", "f16[..150,3]", "i64[1]=0..150"]);
        case().assert_monotone(&inputs);
        assert_eq!(
            case().infer_error(&["f32[3,100,4]", "f32[3,5,100]", "i64[]", "f32[]", "f32[]"]),
            "input 0: the last dimension of shape [3,100,4] must be 5"
        );
    }
}
