//! # ExperimentalDetectronDetectionOutput
//! Refines regions by class and chooses the best detections of an image.
//!
//! Specification: `detection/experimental-detectron-detection-output-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | rois | f16 bf16 f32 f64 | `[regions, 4]`: x1, y1, x2, y2 |
//! | in 1 | deltas | that of `rois` | `[regions, num_classes * 4]` |
//! | in 2 | scores | that of `rois` | `[regions, num_classes]` |
//! | in 3 | im_info | that of `rois` | `[1, 3]` |
//! | out 0 | boxes | that of `rois` | `[max_detections_per_image, 4]` |
//! | out 1 | classes | i32 | `[max_detections_per_image]` |
//! | out 2 | scores | that of `rois` | `[max_detections_per_image]` |
//!
//! The detections stand by class and score if all are returned, else by score; of equal scores the first region comes
//! first. Zeros follow; the specification leaves open what stands there. As in OpenVINO, class 0 is the background
//! whatever `class_agnostic_box_regression` says, boxes are cut to the image at its left and top only (the
//! specification does not say where it ends), and regions without an area are left out. Everything is computed in f32.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape};

use crate::common::boxes::{Corners, Suppression, common_dim, descending, overlap, refine, require_last, suppress};
use crate::common::memory::{widened_view, write_padded};
use crate::common::proposals::clip_below;
use crate::common::ranges::{check_integer, check_number};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of ExperimentalDetectronDetectionOutput.
pub static EXPERIMENTAL_DETECTRON_DETECTION_OUTPUT: OpDef = OpDef {
    type_name: "ExperimentalDetectronDetectionOutput",
    category: Category::Detection,
    versions: &[OpVersion::new(6, (6, 16), (4, 4), (3, 3))],
    attributes: ExperimentalDetectronDetectionOutputAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ExperimentalDetectronDetectionOutput.
    pub struct ExperimentalDetectronDetectionOutputAttributes {
        /// The score above which a detection counts.
        score_threshold: f32 = "score_threshold", required true;
        /// The overlap above which a box is suppressed.
        nms_threshold: f32 = "nms_threshold", required true;
        /// The largest logarithm of the growth of a region.
        max_delta_log_wh: f32 = "max_delta_log_wh", required true;
        /// The number of classes, the background among them.
        num_classes: i64 = "num_classes", required true;
        /// The most detections of a class.
        post_nms_count: i64 = "post_nms_count", required true;
        /// The detections of the image.
        max_detections_per_image: i64 = "max_detections_per_image", required true;
        /// Whether predictions of the background are removed, which they always are.
        class_agnostic_box_regression: bool = "class_agnostic_box_regression", default "false";
        /// The divisors of the deltas: x, y, width, height.
        deltas_weights: Vec<f32> = "deltas_weights", required true;
    }
}

/// An ExperimentalDetectronDetectionOutput layer.
#[derive(Debug)]
pub struct ExperimentalDetectronDetectionOutput {
    /// The attributes.
    pub attributes: ExperimentalDetectronDetectionOutputAttributes,
}

/// A detection.
#[derive(Debug, Clone, Copy)]
struct Detection {
    corners: Corners,
    class: usize,
    region: usize,
    score: f32,
}

impl ExperimentalDetectronDetectionOutput {
    fn classes(&self) -> usize {
        self.attributes.num_classes.max(0) as usize
    }

    /// A region refined for a class; the corners are not negative.
    fn refined(&self, region: &[f64], deltas: &[f64]) -> Corners {
        let weights = &self.attributes.deltas_weights;
        let deltas = [0, 1, 2, 3].map(|i: usize| deltas[i] as f32 / weights[i]);
        let anchor = [0, 1, 2, 3].map(|i: usize| region[i] as f32);
        refine(anchor, deltas, 1.0, self.attributes.max_delta_log_wh).map(clip_below)
    }

    /// The detections of one class, best first.
    fn of_class(&self, class: usize, rois: &[f64], deltas: &[f64], scores: &[f64]) -> Vec<Detection> {
        let classes = self.classes();
        let score = |region: usize| scores[region * classes + class] as f32;
        let has_area = |region: usize| {
            let side = |i: usize| rois[region * 4 + i + 2] as f32 - rois[region * 4 + i] as f32;
            side(0) > 0.0 && side(1) > 0.0
        };
        let mut found: Vec<Detection> = (0..rois.len() / 4)
            .filter(|region| score(*region) > self.attributes.score_threshold && has_area(*region))
            .map(|region| {
                let deltas = &deltas[(region * classes + class) * 4..][..4];
                let corners = self.refined(&rois[region * 4..][..4], deltas);
                Detection { corners, class, region, score: score(region) }
            })
            .collect();
        found.sort_by(|a, b| descending(a.score, b.score));
        let order: Vec<usize> = (0..found.len()).collect();
        let most = self.attributes.post_nms_count as usize;
        let rule = Suppression { most, threshold: self.attributes.nms_threshold, eta: 1.0 };
        let chosen =
            suppress(&order, rule, |i| found[i].corners, |a, b| overlap(&found[a].corners, &found[b].corners, 1.0));
        chosen.iter().map(|i| found[*i]).collect()
    }
}

impl Operation for ExperimentalDetectronDetectionOutput {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1, 2, 3])?;
        require_last(context, 0, 1, 4)?;
        require_last(context, 1, 1, self.classes().saturating_mul(4))?;
        require_last(context, 2, 1, self.classes())?;
        require_last(context, 3, 1, 3)?;
        common_dim(context, &[(0, 0), (1, 0), (2, 0)], "regions")?;
        let info = context.shape(3);
        if !info.dim(0).contains(1) {
            let message = format!("the first dimension of shape {info} must be 1");
            return Err(OpError::shape(crate::Blame::Input(3), message));
        }
        let rows = Dim::fixed(self.attributes.max_detections_per_image.max(0) as usize);
        context.set_output(0, element_type, PartialShape::from_dims([rows, Dim::fixed(4)]));
        context.set_output(1, ElementType::I32, PartialShape::from_dims([rows]));
        context.set_output(2, element_type, PartialShape::from_dims([rows]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (rois, deltas) = (widened_view(context.input(0)?)?, widened_view(context.input(1)?)?);
        let scores = widened_view(context.input(2)?)?;
        let most = self.attributes.max_detections_per_image as usize;
        let mut found: Vec<Detection> = Vec::new();
        for class in 1..self.classes() {
            found.extend(self.of_class(class, &rois, &deltas, &scores));
            context.environment().poll()?;
        }
        if found.len() > most {
            found.sort_by(|a, b| descending(a.score, b.score).then(a.region.cmp(&b.region)));
            found.truncate(most);
        }
        let boxes: Vec<f64> = found.iter().flat_map(|d| d.corners).map(f64::from).collect();
        write_padded(context.output(0, &Shape::from([most, 4]))?, &boxes)?;
        let classes: Vec<f64> = found.iter().map(|d| d.class as f64).collect();
        let scores: Vec<f64> = found.iter().map(|d| f64::from(d.score)).collect();
        for (port, values) in [(1, &classes), (2, &scores)] {
            if context.output_count() > port {
                write_padded(context.output(port, &Shape::from([most]))?, values)?;
            }
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(6)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = ExperimentalDetectronDetectionOutputAttributes::read(context.attributes);
    let reader = &mut *context.attributes;
    check_number(reader, "score_threshold", attributes.score_threshold, 0.0..=f32::INFINITY);
    check_number(reader, "nms_threshold", attributes.nms_threshold, 0.0..=f32::INFINITY);
    check_number(reader, "max_delta_log_wh", attributes.max_delta_log_wh, f32::NEG_INFINITY..=f32::INFINITY);
    for (name, value) in [
        ("num_classes", attributes.num_classes),
        ("post_nms_count", attributes.post_nms_count),
        ("max_detections_per_image", attributes.max_detections_per_image),
    ] {
        check_integer(reader, name, value, 0..=MAX_WINDOW_NUMBER);
    }
    if attributes.deltas_weights.len() != 4 && reader.text("deltas_weights").is_some() {
        let message = format!("`deltas_weights` has {} numbers; it must have 4", attributes.deltas_weights.len());
        reader.report(OpError::attribute("deltas_weights", message));
    }
    attributes.deltas_weights.resize(4, 1.0);
    Arc::new(ExperimentalDetectronDetectionOutput { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case(rows: &str, weights: &str) -> Case {
        Case::new("ExperimentalDetectronDetectionOutput", "opset6")
            .attribute("score_threshold", "0.05")
            .attribute("nms_threshold", "0.5")
            .attribute("max_delta_log_wh", "4.135")
            .attribute("num_classes", "3")
            .attribute("post_nms_count", "5")
            .attribute("max_detections_per_image", rows)
            .attribute("deltas_weights", weights)
            .outputs(3)
    }

    /// Two equal regions, one apart, and one without an area.
    fn inputs() -> Vec<Tensor> {
        let rois = [0f32, 0.0, 3.0, 3.0, 0.0, 0.0, 3.0, 3.0, 8.0, 8.0, 11.0, 11.0, 5.0, 5.0, 5.0, 9.0];
        let scores = [0.9f32, 0.25, 0.0, 0.9, 0.5, 0.0, 0.9, 0.01, 0.75, 0.9, 0.9, 0.9];
        let mut deltas = [0f32; 48];
        // Region 2 moves up by three quarters of its height of 4 for class 2.
        deltas[2 * 12 + 2 * 4 + 1] = -7.5;
        vec![
            tensor(&rois, [4, 4]),
            tensor(&deltas, [4, 12]),
            tensor(&scores, [4, 3]),
            tensor(&[12f32, 12.0, 1.0], [1, 3]),
        ]
    }

    #[test]
    fn detections_stand_by_class_unless_some_are_left_out() {
        let outputs = case("3", "10,10,5,5").run(&inputs()).unwrap();
        let boxes = [0f32, 0.0, 3.0, 3.0, 8.0, 5.0, 11.0, 8.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(outputs[0], tensor(&boxes, [3, 4]));
        assert_eq!(outputs[1], tensor(&[1i32, 2, 0], [3]));
        assert_eq!(outputs[2], tensor(&[0.5f32, 0.75, 0.0], [3]));
        assert_eq!(case("1", "10,10,5,5").run(&inputs()).unwrap()[1], tensor(&[2i32], [1]));
        assert_eq!(case("0", "10,10,5,5").run(&inputs()).unwrap()[1], tensor::<i32>(&[], [0]));
    }

    #[test]
    fn the_example_of_the_specification() {
        let case = Case::new("ExperimentalDetectronDetectionOutput", "opset6")
            .attribute("class_agnostic_box_regression", "false")
            .attribute("deltas_weights", "10.0,10.0,5.0,5.0")
            .attribute("max_delta_log_wh", "4.135166645050049")
            .attribute("max_detections_per_image", "100")
            .attribute("nms_threshold", "0.5")
            .attribute("num_classes", "81")
            .attribute("post_nms_count", "2000")
            .attribute("score_threshold", "0.05000000074505806")
            .outputs(3);
        let inputs = ["f32[1000,4]", "f32[1000,324]", "f32[1000,81]", "f32[1,3]"];
        assert_eq!(case.infer(&inputs), ["f32[100,4]", "i32[100]", "f32[100]"]);
        case.assert_monotone(&inputs);
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case("3", "1,1,1,1").infer_error(&["f32[4,4]", "f32[4,8]", "f32[4,3]", "f32[1,3]"]),
            "input 1: the last dimension of shape [4,8] must be 12"
        );
        assert_eq!(
            case("3", "1,1,1,1").infer_error(&["f32[4,4]", "f32[5,12]", "f32[4,3]", "f32[1,3]"]),
            "input 1: shape [5,12] has 5 regions, but shape [4,4] of input 0 has 4"
        );
        assert_eq!(
            case("-1", "1,1").attribute_errors(4),
            [
                "attribute `max_detections_per_image`: `max_detections_per_image` -1 is out of range [0, 2147483647]",
                "attribute `deltas_weights`: `deltas_weights` has 2 numbers; it must have 4"
            ]
        );
    }
}
