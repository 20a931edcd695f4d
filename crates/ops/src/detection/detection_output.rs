//! # DetectionOutput
//! Decodes boxes against prior boxes and chooses the best by non-maximum suppression.
//!
//! Specification: `detection/detection-output-1`, `detection/detection-output-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | box_logits | f16 bf16 f32 f64 | `[N, priors * location classes * 4]` |
//! | in 1 | class_preds | that of `box_logits` | `[N, priors * classes]` |
//! | in 2 | proposals | that of `box_logits` | `[1 or N, 1 or 2, priors * prior size]` |
//! | in 3 | aux_class_preds (optional) | that of `box_logits` | `[N, priors * 2]` |
//! | in 4 | aux_box_preds (optional) | that of `box_logits` | that of `box_logits` |
//! | out 0 | | that of `box_logits` | `[1, 1, rows, 7]`: image, label, score, x1, y1, x2, y2 |
//!
//! Version 1 says the classes by the attribute `num_classes`, version 8 by the shapes. A prior has 4 numbers when
//! `normalized`, else 5 of which the first is not used. The rows are `N * keep_top_k`, or without that limit
//! `N * top_k * classes`, or `N * classes * priors`. An image of -1 ends the list; what follows is zero. Everything is
//! computed in f32.

use std::collections::BTreeMap;
use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::boxes::{Crowd, EVERYWHERE};
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of DetectionOutput.
pub static DETECTION_OUTPUT: OpDef = OpDef {
    type_name: "DetectionOutput",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 7), (3, 5), (1, 1)), OpVersion::new(8, (8, 16), (3, 5), (1, 1))],
    attributes: DetectionOutputAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How logits encode boxes.
    pub enum CodeType {
        /// Shifts of the corners.
        #[default]
        Corner = "caffe.PriorBoxParameter.CORNER",
        /// Shifts of the centre and logarithms of the factors of the sizes.
        CenterSize = "caffe.PriorBoxParameter.CENTER_SIZE",
    }
}

crate::attributes! {
    /// Attributes of DetectionOutput.
    pub struct DetectionOutputAttributes {
        /// The number of classes.
        num_classes: i64 = "num_classes", required true, until 1;
        /// The class that is no object; -1 if there is none.
        background_label_id: i64 = "background_label_id", default "0";
        /// The most boxes of a class that suppression looks at; -1 means all.
        top_k: i64 = "top_k", default "-1";
        /// Whether the variances are part of the logits.
        variance_encoded_in_target: bool = "variance_encoded_in_target", default "false";
        /// The most boxes of an image; -1 means all.
        keep_top_k: Vec<i64> = "keep_top_k", required true;
        /// How logits encode boxes.
        code_type: CodeType = "code_type", default "caffe.PriorBoxParameter.CORNER";
        /// Whether all classes share their boxes.
        share_location: bool = "share_location", default "true";
        /// The overlap above which a box is suppressed.
        nms_threshold: f32 = "nms_threshold", required true;
        /// The score above which a box is looked at.
        confidence_threshold: f32 = "confidence_threshold", default "0";
        /// Whether chosen boxes are cut to the image.
        clip_after_nms: bool = "clip_after_nms", default "false";
        /// Whether boxes are cut to the image before suppression.
        clip_before_nms: bool = "clip_before_nms", default "false";
        /// Whether labels are counted without the background, in the manner of MXNet.
        decrease_label_id: bool = "decrease_label_id", default "false";
        /// Whether priors are fractions of the image.
        normalized: bool = "normalized", default "false";
        /// The height of the image, for priors in pixels.
        input_height: i64 = "input_height", default "1";
        /// The width of the image, for priors in pixels.
        input_width: i64 = "input_width", default "1";
        /// The auxiliary score below which a prior is background.
        objectness_score: f32 = "objectness_score", default "0";
    }
}

/// A DetectionOutput layer.
#[derive(Debug)]
pub struct DetectionOutput {
    /// The attributes.
    pub attributes: DetectionOutputAttributes,
    /// The class version.
    pub class_version: u8,
}

/// A box by its corners: x1, y1, x2, y2.
type Corners = [f32; 4];

/// The sizes of a layer of known shapes.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    images: usize,
    priors: usize,
    classes: usize,
    location_classes: usize,
    prior_batches: usize,
    rows: usize,
}

/// The inputs as f32.
struct Inputs {
    locations: Vec<f32>,
    scores: Vec<f32>,
    priors: Vec<f32>,
    auxiliary: Option<(Vec<f32>, Vec<f32>)>,
}

/// The chosen priors of each class.
type Chosen = BTreeMap<usize, Vec<usize>>;

impl DetectionOutput {
    fn prior_size(&self) -> usize {
        if self.attributes.normalized { 4 } else { 5 }
    }

    fn keep(&self) -> i64 {
        self.attributes.keep_top_k.first().copied().unwrap_or(-1)
    }

    fn rows(&self, images: Dim, classes: Dim, priors: Dim) -> Dim {
        let number = |n: i64| Dim::interval(n, n);
        match (self.keep(), self.attributes.top_k) {
            (keep, _) if keep > 0 => images * number(keep),
            (-1, top) if top > 0 => images * classes * number(top),
            _ => images * classes * priors,
        }
    }

    fn sizes(&self, shapes: [&Shape; 3]) -> OpResult<Sizes> {
        let [locations, scores, proposals] = shapes;
        let (images, priors) = (locations[0], proposals[2] / self.prior_size());
        let classes = match self.class_version {
            1 => usize::try_from(self.attributes.num_classes).unwrap_or(0),
            _ => scores[1].checked_div(priors).unwrap_or(0),
        };
        let location_classes = if self.attributes.share_location { 1 } else { classes };
        let variances = if self.attributes.variance_encoded_in_target { 1 } else { 2 };
        let fits = locations[1] == priors.saturating_mul(location_classes).saturating_mul(4)
            && scores[1] == priors.saturating_mul(classes)
            && proposals[2] == priors * self.prior_size()
            && proposals[1] == variances
            && (proposals[0] == 1 || proposals[0] == images)
            && scores[0] == images;
        if !fits {
            let message = format!("shapes {locations}, {scores} and {proposals} of the inputs do not fit each other");
            return Err(OpError::shape(Blame::Node, message)
                .note(format!("{priors} priors and {classes} classes follow from them and the attributes")));
        }
        let rows = self.rows(Dim::fixed(images), Dim::fixed(classes), Dim::fixed(priors)).get().unwrap_or(usize::MAX);
        Ok(Sizes { images, priors, classes, location_classes, prior_batches: proposals[0], rows })
    }

    /// What the dims that are known say of each other, where not all are.
    fn check_dims(&self, locations: &PartialShape, scores: &PartialShape, proposals: &PartialShape) -> OpResult {
        let prior_size = self.prior_size();
        let variances = if self.attributes.variance_encoded_in_target { 1 } else { 2 };
        if !proposals.dim(1).contains(variances) {
            let message = format!("shape {proposals} has {} rows; they must be {variances}", proposals.dim(1));
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let classes = (self.class_version == 1).then(|| usize::try_from(self.attributes.num_classes).unwrap_or(0));
        let location_classes = if self.attributes.share_location { Some(1) } else { classes };
        let location_size = location_classes.unwrap_or(1).saturating_mul(4);
        let parts =
            [(0, locations, 1, location_size), (1, scores, 1, classes.unwrap_or(1)), (2, proposals, 2, prior_size)];
        for (port, shape, axis, size) in parts {
            if shape.dim(axis).get().is_some_and(|dim| size > 0 && dim % size != 0) {
                let message = format!("dimension {} of shape {shape} must be divisible by {size}", shape.dim(axis));
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        let images = locations.dim(0).merge(scores.dim(0)).unwrap_or(Dim::DYNAMIC);
        if !proposals.dim(0).contains(1) && !proposals.dim(0).compatible(images) {
            let message = format!("shape {proposals} has batch {}; it must be 1 or {images}", proposals.dim(0));
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let Some(priors) = proposals.dim(2).get().map(|dim| dim / prior_size) else { return Ok(()) };
        if scores.dim(1).get().is_some_and(|dim| priors > 0 && dim % priors != 0) {
            let message = format!("shape {scores} must have a row of whole classes for each of the {priors} priors");
            return Err(OpError::shape(Blame::Input(1), message));
        }
        for (port, shape, size) in [(0, locations, location_classes.map(|n| n.saturating_mul(4))), (1, scores, classes)]
        {
            let Some(expected) = size.map(|size| priors.saturating_mul(size)) else { continue };
            if !shape.dim(1).contains(expected) {
                let message =
                    format!("shape {shape} must have {expected} elements a row for the {priors} priors of {proposals}");
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        Ok(())
    }

    fn inputs(&self, context: &EvaluateContext<'_>, sizes: &Sizes) -> OpResult<Inputs> {
        let read = |port: usize| -> OpResult<Vec<f32>> {
            Ok(widened_view(context.input(port)?)?.into_iter().map(|v| v as f32).collect())
        };
        let auxiliary = if context.input_count() > 4 { Some((read(3)?, read(4)?)) } else { None };
        let inputs = Inputs { locations: read(0)?, scores: read(1)?, priors: read(2)?, auxiliary };
        if let Some((scores, locations)) = &inputs.auxiliary {
            let fits = scores.len() == sizes.images * sizes.priors * 2 && locations.len() == inputs.locations.len();
            if !fits {
                let message = "the auxiliary predictions do not fit the number of priors";
                return Err(OpError::shape(Blame::Input(3), message));
            }
        }
        Ok(inputs)
    }

    /// The box that `logits` mean beside a prior.
    fn decode(&self, prior: Corners, variance: Corners, logits: &[f32]) -> Corners {
        let v = |i: usize| variance[i] * logits[i];
        let mut corners = match self.attributes.code_type {
            CodeType::Corner => [prior[0] + v(0), prior[1] + v(1), prior[2] + v(2), prior[3] + v(3)],
            CodeType::CenterSize => {
                let (width, height) = (prior[2] - prior[0], prior[3] - prior[1]);
                let x = v(0) * width + (prior[0] + prior[2]) / 2.0;
                let y = v(1) * height + (prior[1] + prior[3]) / 2.0;
                let (half_width, half_height) = (v(2).exp() * width / 2.0, v(3).exp() * height / 2.0);
                [x - half_width, y - half_height, x + half_width, y + half_height]
            }
        };
        if self.attributes.clip_before_nms {
            corners = corners.map(cut);
        }
        corners
    }

    /// The boxes of one image, by location class and prior.
    fn boxes(&self, sizes: &Sizes, inputs: &Inputs, image: usize) -> Vec<Corners> {
        let size = self.prior_size();
        let per_batch = sizes.priors * size * if self.attributes.variance_encoded_in_target { 1 } else { 2 };
        let batch = if sizes.prior_batches == 1 { 0 } else { image };
        let priors = &inputs.priors[batch * per_batch..][..per_batch];
        let mut boxes = Vec::with_capacity(sizes.location_classes * sizes.priors);
        for class in 0..sizes.location_classes {
            for p in 0..sizes.priors {
                let corner = |i: usize| {
                    let extent =
                        if i.is_multiple_of(2) { self.attributes.input_width } else { self.attributes.input_height };
                    let value = priors[p * size + size - 4 + i];
                    if self.attributes.normalized { value } else { value / extent as f32 }
                };
                let variance = match self.attributes.variance_encoded_in_target {
                    true => [1.0; 4],
                    false => [0, 1, 2, 3].map(|i| priors[sizes.priors * size + p * 4 + i]),
                };
                let at = ((image * sizes.priors + p) * sizes.location_classes + class) * 4;
                let mut prior = [corner(0), corner(1), corner(2), corner(3)];
                if let Some((_, locations)) = &inputs.auxiliary {
                    prior = self.decode(prior, variance, &locations[at..at + 4]);
                }
                boxes.push(self.decode(prior, variance, &inputs.locations[at..at + 4]));
            }
        }
        boxes
    }

    /// The score of a prior for a class.
    fn score(&self, sizes: &Sizes, inputs: &Inputs, image: usize, class: usize, prior: usize) -> f32 {
        let at = image * sizes.priors + prior;
        if let Some((scores, _)) = &inputs.auxiliary
            && scores[at * 2 + 1] < self.attributes.objectness_score
        {
            return f32::from(u8::from(class as i64 == self.attributes.background_label_id));
        }
        inputs.scores[at * sizes.classes + class]
    }

    /// The boxes that suppression leaves, from candidates in falling order.
    fn suppress(&self, candidates: Vec<(f32, usize, usize)>, sizes: &Sizes, boxes: &[Corners]) -> Chosen {
        let mut chosen: BTreeMap<usize, (Vec<usize>, Crowd)> = BTreeMap::new();
        let threshold = self.attributes.nms_threshold;
        for (_, class, prior) in candidates {
            let boxes = if self.attributes.share_location { boxes } else { &boxes[class * sizes.priors..] };
            let (kept, crowd) = chosen.entry(class).or_default();
            // Below zero, boxes that do not touch suppress each other.
            let sides = if threshold < 0.0 { EVERYWHERE } else { boxes[prior] };
            if !crowd.any_touching(&sides, |other| overlap(&boxes[prior], &boxes[kept[other]]) > threshold) {
                kept.push(prior);
                crowd.push(sides);
            }
        }
        chosen.into_iter().map(|(class, (kept, _))| (class, kept)).collect()
    }

    fn choose(&self, sizes: &Sizes, inputs: &Inputs, image: usize, boxes: &[Corners]) -> Chosen {
        let is_object = |class: &usize| *class as i64 != self.attributes.background_label_id;
        let score = |class: usize, prior: usize| self.score(sizes, inputs, image, class, prior);
        let limit = usize::try_from(self.attributes.top_k).unwrap_or(usize::MAX);
        let mut chosen = Chosen::new();
        if self.attributes.decrease_label_id {
            let mut candidates = Vec::new();
            for prior in 0..sizes.priors {
                let best = (1..sizes.classes).filter(is_object).map(|c| (score(c, prior), c));
                let best = best.fold((-1.0f32, 0), |a, b| if b.0 > a.0 { b } else { a });
                if best.1 > 0 && best.0 >= self.attributes.confidence_threshold {
                    candidates.push((best.0, best.1, prior));
                }
            }
            candidates.sort_by(falling);
            candidates.truncate(limit);
            chosen = self.suppress(candidates, sizes, boxes);
        } else {
            for class in (0..sizes.classes).filter(is_object) {
                let all = (0..sizes.priors).map(|prior| (score(class, prior), class, prior));
                let mut candidates: Vec<_> = all.filter(|c| c.0 > self.attributes.confidence_threshold).collect();
                candidates.sort_by(falling);
                candidates.truncate(limit);
                chosen.extend(self.suppress(candidates, sizes, boxes));
            }
        }
        let count: usize = chosen.values().map(Vec::len).sum();
        match usize::try_from(self.keep()) {
            Ok(keep) if count > keep => {
                let pairs = chosen.iter().flat_map(|(class, priors)| priors.iter().map(|p| (*class, *p)));
                let mut all: Vec<_> = pairs.map(|(class, prior)| (score(class, prior), class, prior)).collect();
                all.sort_by(falling);
                let mut kept = Chosen::new();
                for (_, class, prior) in all.into_iter().take(keep) {
                    kept.entry(class).or_default().push(prior);
                }
                kept
            }
            _ => chosen,
        }
    }
}

impl Operation for DetectionOutput {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports = [0, 1, 2, 3, 4];
        let ports = &ports[..context.input_count().min(5)];
        for port in ports {
            context.require_class(*port, ElementClass::Float)?;
            let rank = if *port == 2 { 3 } else { 2 };
            context.require_rank(*port, rank..=rank)?;
        }
        let element_type = context.require_same_type(ports)?;
        let (locations, scores, proposals) = (context.shape(0), context.shape(1), context.shape(2));
        let images = locations.dim(0).merge(scores.dim(0)).ok_or_else(|| {
            let message = format!("shape {scores} has batch {}, but input 0 has {}", scores.dim(0), locations.dim(0));
            OpError::shape(Blame::Input(1), message)
        })?;
        self.check_dims(locations, scores, proposals)?;
        let priors = proposals.dim(2).div_floor(self.prior_size() as i64);
        let classes = match (self.class_version, scores.dim(1).get(), priors.get()) {
            (1, ..) => Dim::interval(self.attributes.num_classes, self.attributes.num_classes),
            (_, Some(scores), Some(priors)) => Dim::fixed(scores.checked_div(priors).unwrap_or(0)),
            _ => Dim::DYNAMIC,
        };
        let rows = self.rows(images, classes, priors);
        let dims = [Dim::fixed(1), Dim::fixed(1), rows, Dim::fixed(7)];
        if let (Some(a), Some(b), Some(c)) = (locations.to_shape(), scores.to_shape(), proposals.to_shape()) {
            self.sizes([&a, &b, &c])?;
        }
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let sizes = self.sizes([context.input(0)?.shape(), context.input(1)?.shape(), context.input(2)?.shape()])?;
        let shape = Shape::from([1, 1, sizes.rows, 7]);
        context.output(0, &shape)?;
        // Without rows there may be any number of images, and nothing to do in them.
        if sizes.rows == 0 {
            return Ok(());
        }
        let inputs = self.inputs(context, &sizes)?;
        let mut result = filled::<f64>(shape.elements())?;
        let mut rows = result.chunks_exact_mut(7);
        for image in 0..sizes.images {
            let boxes = self.boxes(&sizes, &inputs, image);
            for (class, priors) in self.choose(&sizes, &inputs, image, &boxes) {
                let first = if self.attributes.share_location { 0 } else { class * sizes.priors };
                for prior in priors {
                    let Some(row) = rows.next() else { break };
                    let score = self.score(&sizes, &inputs, image, class, prior);
                    let label = class as f64 - f64::from(u8::from(self.attributes.decrease_label_id));
                    row[..3].copy_from_slice(&[image as f64, label, f64::from(score)]);
                    for (target, corner) in row[3..].iter_mut().zip(boxes[first + prior]) {
                        *target = f64::from(if self.attributes.clip_after_nms { cut(corner) } else { corner });
                    }
                }
            }
        }
        if let Some(row) = rows.next() {
            row[0] = -1.0;
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn cut(corner: f32) -> f32 {
    corner.clamp(0.0, 1.0)
}

/// By falling score; of equal scores the lower prior first.
fn falling(a: &(f32, usize, usize), b: &(f32, usize, usize)) -> std::cmp::Ordering {
    b.0.total_cmp(&a.0).then(a.2.cmp(&b.2))
}

/// Intersection over union.
fn overlap(a: &Corners, b: &Corners) -> f32 {
    let (width, height) = (a[2].min(b[2]) - a[0].max(b[0]), a[3].min(b[3]) - a[1].max(b[1]));
    if !(width > 0.0 && height > 0.0) {
        return 0.0;
    }
    let area = |c: &Corners| if c[2] < c[0] || c[3] < c[1] { 0.0 } else { (c[2] - c[0]) * (c[3] - c[1]) };
    let common = width * height;
    common / (area(a) + area(b) - common)
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = DetectionOutputAttributes::read(context.attributes);
    if context.class_version == 1 && !(1..=i64::from(i32::MAX)).contains(&attributes.num_classes) {
        let message = format!("`num_classes` {} must be positive", attributes.num_classes);
        context.attributes.report(OpError::attribute("num_classes", message));
    }
    if let Some(keep) = attributes.keep_top_k.iter().find(|k| **k < -1) {
        let message = format!("item {keep} of `keep_top_k` must be -1 or larger");
        context.attributes.report(OpError::attribute("keep_top_k", message));
    }
    Arc::new(DetectionOutput { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        case_that_keeps("2")
    }

    fn case_that_keeps(rows: &str) -> Case {
        Case::new("DetectionOutput", "opset8")
            .attribute("keep_top_k", rows)
            .attribute("nms_threshold", "0.5")
            .attribute("normalized", "true")
            .attribute("variance_encoded_in_target", "true")
    }

    #[test]
    fn overlapping_boxes_are_suppressed() {
        let priors = [0f32, 0.0, 0.5, 0.5, 0.0, 0.0, 0.5, 0.4, 0.5, 0.5, 1.0, 1.0];
        let inputs = [
            tensor(&[0f32; 12], [1, 12]),
            tensor(&[0.1f32, 0.9, 0.2, 0.8, 0.4, 0.6], [1, 6]),
            tensor(&priors, [1, 1, 12]),
        ];
        let expected = [0f32, 1.0, 0.9, 0.0, 0.0, 0.5, 0.5, 0.0, 1.0, 0.6, 0.5, 0.5, 1.0, 1.0];
        assert_eq!(case().run(&inputs).unwrap()[0], tensor(&expected, [1, 1, 2, 7]));
    }

    #[test]
    fn any_number_of_images_without_priors_has_no_rows() {
        let images = 1 << 40;
        let none = tensor::<f32>(&[], [images, 0]);
        let inputs = [none.clone(), none, tensor::<f32>(&[], [1, 1, 0])];
        assert_eq!(case_that_keeps("-1").run(&inputs).unwrap()[0], tensor::<f32>(&[], [1, 1, 0, 7]));
    }

    #[test]
    fn rows_follow_the_limits() {
        assert_eq!(case().infer(&["f32[3,?]", "f32[?,?]", "f32[?,1,?]"]), ["f32[1,1,6,7]"]);
        let error = case().infer_error(&["f32[1,12]", "f32[1,6]", "f32[1,2,12]"]);
        assert_eq!(error, "input 2: shape [1,2,12] has 2 rows; they must be 1");
        let error = case().infer_error(&["f32[1,13]", "f32[1,?]", "f32[1,1,?]"]);
        assert_eq!(error, "input 0: dimension 13 of shape [1,13] must be divisible by 4");
        let error = case().infer_error(&["f32[1,16]", "f32[1,?]", "f32[1,1,12]"]);
        assert_eq!(error, "input 0: shape [1,16] must have 12 elements a row for the 3 priors of [1,1,12]");
        let error = case().infer_error(&["f32[1,?]", "f32[1,7]", "f32[?,1,12]"]);
        assert_eq!(error, "input 1: shape [1,7] must have a row of whole classes for each of the 3 priors");
        let error = case().infer_error(&["f32[1,?]", "f32[1,?]", "f32[3,1,?]"]);
        assert_eq!(error, "input 2: shape [3,1,?] has batch 3; it must be 1 or 1");
    }
}
