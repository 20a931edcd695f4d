//! # ROIAlign
//! Pools regions of feature maps to a fixed size, sampling between elements.
//!
//! Specification: `detection/roi-align-3`, `detection/roi-align-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, C, H, W]` |
//! | in 1 | rois | that of `data` | `[regions, 4]`: x1, y1, x2, y2 |
//! | in 2 | batch_indices | any integer type | `[regions]` |
//! | out 0 | | that of `data` | `[regions, C, pooled_h, pooled_w]` |
//!
//! Version 9 adds `aligned_mode`; version 3 is `asymmetric`. A sample more than one element outside of the map is zero. As
//! in OpenVINO, `max` starts from zero. Coordinates are computed in f32, sums in f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::regions::{Samples, Tap, check_grid, check_map, image_of, sample};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ROIAlign.
pub static ROI_ALIGN: OpDef = OpDef {
    type_name: "ROIAlign",
    category: Category::Detection,
    versions: &[OpVersion::new(3, (3, 8), (3, 3), (1, 1)), OpVersion::new(9, (9, 16), (3, 3), (1, 1))],
    attributes: ROIAlignAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How samples become one element.
    pub enum ROIAlignMode {
        /// The mean.
        #[default]
        Avg = "avg",
        /// The largest.
        Max = "max",
    }
}

crate::attribute_enum! {
    /// Where the coordinates of regions stand.
    pub enum AlignedMode {
        /// `x * scale`; regions have at least one element.
        #[default]
        Asymmetric = "asymmetric",
        /// `x * scale - 0.5`.
        HalfPixelForNn = "half_pixel_for_nn",
        /// `(x + 0.5) * scale - 0.5`.
        HalfPixel = "half_pixel",
    }
}

crate::attributes! {
    /// Attributes of ROIAlign.
    pub struct ROIAlignAttributes {
        /// The height of the output.
        pooled_h: i64 = "pooled_h", required true;
        /// The width of the output.
        pooled_w: i64 = "pooled_w", required true;
        /// The samples of an output element along each axis; 0 takes as many as the region has elements.
        sampling_ratio: i64 = "sampling_ratio", required true;
        /// The factor from coordinates of regions to those of the map.
        spatial_scale: f32 = "spatial_scale", required true;
        /// How samples become one element.
        mode: ROIAlignMode = "mode", required true;
        /// Where the coordinates of regions stand.
        aligned_mode: AlignedMode = "aligned_mode", default "asymmetric", since 9;
    }
}

/// A ROIAlign layer.
#[derive(Debug)]
pub struct ROIAlign {
    /// The attributes.
    pub attributes: ROIAlignAttributes,
    /// The class version.
    pub class_version: u8,
}

impl ROIAlign {
    /// The samples of the lines and of the columns of a region (x1, y1, x2, y2) of a map of `[height, width]`.
    ///
    /// # Errors
    /// When there are too many.
    pub fn grid(&self, corners: [f64; 4], map: [usize; 2]) -> OpResult<(Samples, Samples)> {
        let (bins_y, bins_x) = (self.attributes.pooled_h as usize, self.attributes.pooled_w as usize);
        let columns = self.samples(corners[0], corners[2], bins_x, map[1])?;
        let rows = self.samples(corners[1], corners[3], bins_y, map[0])?;
        check_grid(&rows, &columns)?;
        Ok((rows, columns))
    }

    fn samples(&self, start: f64, end: f64, bins: usize, size: usize) -> OpResult<Samples> {
        let scale = self.attributes.spatial_scale;
        let (before, after) = match self.attributes.aligned_mode {
            AlignedMode::Asymmetric => (0.0, 0.0),
            AlignedMode::HalfPixelForNn => (0.0, -0.5),
            AlignedMode::HalfPixel => (0.5, -0.5),
        };
        let place = |x: f64| (x as f32 + before) * scale + after;
        let first = place(start);
        let mut extent = place(end) - first;
        if self.attributes.aligned_mode == AlignedMode::Asymmetric {
            extent = extent.max(1.0);
        }
        Samples::new(first, extent, bins, self.attributes.sampling_ratio, size)
    }

    /// One element of the output. Samples outside of the map are zero: they change no sum, and no maximum, which is at
    /// least zero. A region far larger than the map costs no more than one as large as the map.
    fn pool(&self, plane: &[f64], width: usize, rows: &[Option<Tap>], columns: &[Option<Tap>]) -> f64 {
        let mut pooled = 0.0f64;
        for row in rows.iter().flatten() {
            for column in columns.iter().flatten() {
                let value = sample(plane, width, Some(*row), Some(*column));
                match self.attributes.mode {
                    ROIAlignMode::Max if value > pooled || value.is_nan() => pooled = value,
                    ROIAlignMode::Max => {}
                    ROIAlignMode::Avg => pooled += value,
                }
            }
        }
        let count = rows.len() * columns.len();
        if self.attributes.mode == ROIAlignMode::Avg && count > 0 { pooled / count as f64 } else { pooled }
    }
}

impl Operation for ROIAlign {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_class(2, ElementClass::Integer)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 4..=4)?;
        context.require_rank(1, 2..=2)?;
        context.require_rank(2, 1..=1)?;
        let (rois, indices) = (context.shape(1), context.shape(2));
        if !rois.dim(1).contains(4) {
            return Err(OpError::shape(Blame::Input(1), format!("the last dimension of shape {rois} must be 4")));
        }
        let regions = rois.dim(0).merge(indices.dim(0)).ok_or_else(|| {
            let message = format!("shape {indices} has {} indices for {} regions", indices.dim(0), rois.dim(0));
            OpError::shape(Blame::Input(2), message)
        })?;
        let size = |value: i64| Dim::fixed(value.max(0) as usize);
        let dims = [regions, context.shape(0).dim(1), size(self.attributes.pooled_h), size(self.attributes.pooled_w)];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, rois) = (context.input(0)?, context.input(1)?);
        let indices = context.integers(2)?;
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let (bins_y, bins_x) = (self.attributes.pooled_h as usize, self.attributes.pooled_w as usize);
        let regions = rois.shape()[0];
        let shape = Shape::from([regions, channels, bins_y, bins_x]);
        context.output(0, &shape)?;
        check_map(context, 0, &shape)?;
        let (values, boxes) = (widened_view(data)?, widened_view(rois)?);
        let mut result = filled::<f64>(shape.elements())?;
        let mut target = result.iter_mut();
        for region in 0..regions {
            let image = image_of(indices[region], region, batch, 2)?;
            let [x1, y1, x2, y2] = [0, 1, 2, 3].map(|corner| boxes[region * 4 + corner]);
            let (rows, columns) = self.grid([x1, y1, x2, y2], [height, width])?;
            for c in 0..channels {
                let plane = &values[(image * channels + c) * height * width..][..height * width];
                for y in 0..bins_y {
                    for x in 0..bins_x {
                        if let Some(target) = target.next() {
                            *target = self.pool(plane, width, rows.of_bin(y), columns.of_bin(x));
                        }
                    }
                }
                context.environment().poll()?;
            }
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ROIAlignAttributes::read(context.attributes);
    for (name, value, min) in [
        ("pooled_h", attributes.pooled_h, 1),
        ("pooled_w", attributes.pooled_w, 1),
        ("sampling_ratio", attributes.sampling_ratio, 0),
    ] {
        if !(min..=MAX_WINDOW_NUMBER).contains(&value) {
            let mut message = format!("`{name}` {value} is out of range [{min}, {MAX_WINDOW_NUMBER}]");
            if name == "sampling_ratio" && value < 0 {
                message.push_str(
                    "; 0 takes as many samples as a region has elements, as a negative number does in torchvision",
                );
            }
            context.attributes.report(OpError::attribute(name, message));
        }
    }
    Arc::new(ROIAlign { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        case_of_ratio("1")
    }

    fn case_of_ratio(ratio: &str) -> Case {
        Case::new("ROIAlign", "opset9")
            .attribute("pooled_h", "1")
            .attribute("pooled_w", "2")
            .attribute("sampling_ratio", ratio)
            .attribute("spatial_scale", "1")
            .attribute("mode", "avg")
    }

    #[test]
    fn negative_ratios_are_told_what_to_be() {
        let errors = case_of_ratio("-1").attribute_errors(3);
        assert_eq!(
            errors,
            [
                "attribute `sampling_ratio`: `sampling_ratio` -1 is out of range [0, 2147483647]; 0 takes as many samples as a region has elements, as a negative number does in torchvision"
            ]
        );
    }

    #[test]
    fn samples_the_middle_of_bins() {
        let data = tensor(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1, 1, 2, 4]);
        let rois = tensor(&[0f32, 0.0, 2.0, 1.0], [1, 4]);
        let output = case().run(&[data.clone(), rois.clone(), tensor(&[0i32], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[2.5f32, 3.5], [1, 1, 1, 2]));
        assert_eq!(
            case().run(&[data, rois, tensor(&[1i32], [1])]).unwrap_err().to_string(),
            "input 2: batch index 1 of region 0 is out of range [0, 0]"
        );
    }

    #[test]
    fn a_region_far_larger_than_the_map_takes_no_longer() {
        let data = tensor(&[1f32; 4], [1, 1, 2, 2]);
        let rois = tensor(&[-2e6f32, -2e6, 2e6, 2e6], [1, 4]);
        let run = |mode: &str| {
            let case = Case::new("ROIAlign", "opset9").attribute("pooled_h", "1").attribute("pooled_w", "2");
            let case = case.attribute("sampling_ratio", "0").attribute("spatial_scale", "1").attribute("mode", mode);
            case.run(&[data.clone(), rois.clone(), tensor(&[0i32], [1])]).unwrap().remove(0)
        };
        assert_eq!(run("max"), tensor(&[1f32, 1.0], [1, 1, 1, 2]));
        assert!(run("avg").slice::<f32>().unwrap().iter().all(|mean| (0.0..1e-9).contains(mean)));
    }

    #[test]
    fn shapes_come_from_regions_and_channels() {
        assert_eq!(case().infer(&["f32[?,256,200,200]", "f32[?,4]", "i64[1000]"]), ["f32[1000,256,1,2]"]);
    }
}
