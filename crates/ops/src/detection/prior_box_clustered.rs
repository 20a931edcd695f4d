//! # PriorBoxClustered
//! Default boxes of given widths and heights in every cell of a feature map, and their variances.
//!
//! Specification: `detection/prior-box-clustered-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | output_size | any integer type | `[2]`: height and width of the map |
//! | in 1 | image_size | any integer type | `[2]`: height and width of the image |
//! | out 0 | | f32 | `[2, 4 * height * width * boxes of a cell]` |
//!
//! Everything is computed in f32.

use std::sync::Arc;

use ovir_tensor::Shape;

use crate::common::memory::{filled, write_rounded};
use crate::common::priors::{height_and_width, infer_priors, variance};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of PriorBoxClustered.
pub static PRIOR_BOX_CLUSTERED: OpDef = OpDef {
    type_name: "PriorBoxClustered",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: PriorBoxClusteredAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of PriorBoxClustered.
    pub struct PriorBoxClusteredAttributes {
        /// The distance between cells where `step_w` or `step_h` is 0.
        step: f32 = "step", default "0";
        /// The distance between cells along the width; 0 divides the image if the height says nothing too.
        step_w: f32 = "step_w", default "0";
        /// The distance between cells along the height.
        step_h: f32 = "step_h", default "0";
        /// The widths of boxes, in pixels.
        width: Vec<f32> = "width", required true;
        /// The heights of boxes, in pixels.
        height: Vec<f32> = "height", required true;
        /// Whether boxes are cut to the image.
        clip: bool = "clip", default "false";
        /// Where in a cell its boxes are centred.
        offset: f32 = "offset", required true;
        /// The variances: none, one or four.
        variance: Vec<f32> = "variance", default "";
    }
}

/// A PriorBoxClustered layer.
#[derive(Debug)]
pub struct PriorBoxClustered {
    /// The attributes.
    pub attributes: PriorBoxClusteredAttributes,
}

impl PriorBoxClustered {
    /// The number of boxes of a cell.
    pub fn boxes_of_cell(&self) -> usize {
        self.attributes.width.len()
    }
}

impl Operation for PriorBoxClustered {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_priors(context, self.boxes_of_cell())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (height, width) = height_and_width(context, 0)?;
        let (image_height, image_width) = height_and_width(context, 1)?;
        let a = &self.attributes;
        let count = self.boxes_of_cell().saturating_mul(4).saturating_mul(height).saturating_mul(width);
        let shape = Shape::from([2, count]);
        context.output(0, &shape)?;
        let mut across = if a.step_w == 0.0 { a.step } else { a.step_w };
        let mut down = if a.step_h == 0.0 { a.step } else { a.step_h };
        if across == 0.0 && down == 0.0 {
            (across, down) = (image_width as f32 / width as f32, image_height as f32 / height as f32);
        }
        // Without boxes there may be any number of cells, and nothing to do in them.
        if count == 0 {
            return Ok(());
        }
        let mut values = filled::<f64>(count.saturating_mul(2))?;
        values.clear();
        for i in 0..height * width {
            let x = ((i % width) as f32 + a.offset) * across;
            let y = ((i / width) as f32 + a.offset) * down;
            for (box_width, box_height) in a.width.iter().zip(&a.height) {
                let corners = [
                    (x - box_width / 2.0) / image_width as f32,
                    (y - box_height / 2.0) / image_height as f32,
                    (x + box_width / 2.0) / image_width as f32,
                    (y + box_height / 2.0) / image_height as f32,
                ];
                values.extend(corners.map(|c| f64::from(if a.clip { c.clamp(0.0, 1.0) } else { c })));
            }
        }
        values.extend((0..count).map(|i| variance(&self.attributes.variance, i)));
        write_rounded(context.output(0, &shape)?, &values)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = PriorBoxClusteredAttributes::read(context.attributes);
    if !matches!(attributes.variance.len(), 0 | 1 | 4) {
        let message = format!("`variance` has {} items; it must have 0, 1 or 4", attributes.variance.len());
        context.attributes.report(OpError::attribute("variance", message));
    }
    if attributes.width.len() != attributes.height.len() {
        let message = format!("{} heights are given for {} widths", attributes.height.len(), attributes.width.len());
        context.attributes.report(OpError::attribute("height", message));
    }
    Arc::new(PriorBoxClustered { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn boxes_are_centred_in_cells() {
        let case = Case::new("PriorBoxClustered", "opset1")
            .attribute("width", "4,8")
            .attribute("height", "4,16")
            .attribute("offset", "0.5")
            .attribute("clip", "true");
        assert_eq!(case.infer(&["i64[2]=10,19", "i64[2]=180,320"]), ["f32[2,1520]"]);
        let output = case.run(&[tensor(&[1i32, 1], [2]), tensor(&[8i32, 8], [2])]).unwrap();
        let expected = [0.25f32, 0.25, 0.75, 0.75, 0.0, 0.0, 1.0, 1.0];
        assert_eq!(output[0].slice::<f32>().unwrap()[..8], expected);
    }
}
