//! Detections of many classes: what MatrixNms and MulticlassNms share.

use ovir_tensor::{Dim, ElementType, PartialShape, Shape};

use super::boxes::descending;
use super::memory::write_rounded;
use super::window::MAX_WINDOW_NUMBER;
use crate::common::ranges::check_integer;
use crate::{AttributeReader, EvaluateContext, InferContext, OpError, OpResult};

crate::attribute_enum! {
    /// The order of detections.
    pub enum SortResultType {
        /// By class.
        ClassId = "classid",
        /// By score, greatest first.
        Score = "score",
        /// None is promised.
        #[default]
        None = "none",
    }
}

/// A box that was chosen for a class.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Detection {
    /// The image.
    pub batch: usize,
    /// The class.
    pub class: usize,
    /// The box, counted in its image.
    pub index: usize,
    /// The box, counted over all images.
    pub flat_index: usize,
    /// The score, decayed.
    pub score: f32,
    /// x1, y1, x2, y2.
    pub corners: [f64; 4],
}

/// How many detections there may be and in which order they stand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Order {
    /// By what detections are sorted.
    pub by: SortResultType,
    /// Whether those of all images are sorted together.
    pub across_batch: bool,
    /// The most detections of an image; -1 for all.
    pub keep_top_k: i64,
}

/// The number of boxes of a class that are looked at; a negative limit means all.
pub(crate) fn limited(count: usize, limit: i64) -> usize {
    usize::try_from(limit).map_or(count, |limit| count.min(limit))
}

/// Says the outputs for so many boxes, classes and images.
pub(crate) fn set_outputs(
    context: &mut InferContext<'_>,
    output_type: ElementType,
    [boxes, classes, images]: [Dim; 3],
    limits: (i64, i64),
) {
    let limited = |dim: Dim, limit: i64| if limit < 0 { dim.max() } else { dim.max().min(limit) };
    let of_class = Dim::interval(0, limited(boxes, limits.0));
    let of_image = Dim::interval(0, limited(of_class * classes, limits.1));
    let rows = context.new_dim(0, (of_image * images).max());
    let element_type = context.element_type(0).merge(context.element_type(1)).unwrap_or(context.element_type(0));
    context.set_output(0, element_type, PartialShape::from_dims([rows, Dim::fixed(6)]));
    context.set_output(1, output_type, PartialShape::from_dims([rows, Dim::fixed(1)]));
    context.set_output(2, output_type, PartialShape::from_dims([images]));
}

impl Order {
    /// Keeps the best detections of one image and sorts them. Of equal scores the lower class and box come first.
    pub(crate) fn of_image(&self, mut detections: Vec<Detection>) -> Vec<Detection> {
        detections.sort_by(|a, b| descending(a.score, b.score).then(a.class.cmp(&b.class)).then(a.index.cmp(&b.index)));
        detections.truncate(limited(detections.len(), self.keep_top_k));
        if self.by == SortResultType::ClassId && !self.across_batch {
            // The sort is stable: scores keep their order.
            detections.sort_by_key(|d| d.class);
        }
        detections
    }

    /// Writes the detections of all images, which stand image by image.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(crate) fn write(
        &self,
        context: &mut EvaluateContext<'_>,
        mut detections: Vec<Detection>,
        images: usize,
    ) -> OpResult {
        let mut counts = vec![0.0; images];
        for detection in &detections {
            counts[detection.batch] += 1.0;
        }
        // Both sorts are stable: where they are equal, images come in order, then classes and boxes.
        match self.by {
            SortResultType::Score if self.across_batch => {
                detections.sort_by(|a, b| {
                    descending(a.score, b.score).then((a.batch, a.class, a.index).cmp(&(b.batch, b.class, b.index)))
                });
            }
            SortResultType::ClassId if self.across_batch => {
                detections.sort_by(|a, b| {
                    let by_score = descending(a.score, b.score).then(a.index.cmp(&b.index));
                    (a.class, a.batch).cmp(&(b.class, b.batch)).then(by_score)
                });
            }
            _ => {}
        }
        let rows = detections.len();
        let values: Vec<f64> = detections
            .iter()
            .flat_map(|d| {
                let [x1, y1, x2, y2] = d.corners;
                [d.class as f64, f64::from(d.score), x1, y1, x2, y2]
            })
            .collect();
        write_rounded(context.output(0, &Shape::from([rows, 6]))?, &values)?;
        if context.output_count() > 1 {
            let indices: Vec<f64> = detections.iter().map(|d| d.flat_index as f64).collect();
            write_rounded(context.output(1, &Shape::from([rows, 1]))?, &indices)?;
        }
        if context.output_count() > 2 {
            write_rounded(context.output(2, &Shape::from([images]))?, &counts)?;
        }
        Ok(())
    }
}

/// Reports limits and types that are out of range.
pub(crate) fn check_attributes(
    reader: &mut AttributeReader<'_>,
    limits: [(&'static str, i64); 3],
    output: ElementType,
) {
    for (name, value) in limits {
        check_integer(reader, name, value, -1..=MAX_WINDOW_NUMBER);
    }
    if !output.is(ovir_tensor::ElementClass::Index) {
        let message = format!("`output_type` is {output}; it must be i32 or i64");
        reader.report(OpError::attribute("output_type", message));
    }
}
