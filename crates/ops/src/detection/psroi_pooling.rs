//! # PSROIPooling
//! Pools regions of position-sensitive score maps: every part of the output has channels of its own.
//!
//! Specification: `detection/psroi-pooling-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, C, H, W]` |
//! | in 1 | rois | that of `data` | `[regions, 5]`: batch index, x1, y1, x2, y2 |
//! | out 0 | | that of `data` | `[regions, output_dim, group_size, group_size]` |
//!
//! `average` needs `output_dim * group_size * group_size` channels, `bilinear`
//! `output_dim * spatial_bins_x * spatial_bins_y`. Coordinates are computed in f32.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::regions::image_of;
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of PSROIPooling.
pub static PSROI_POOLING: OpDef = OpDef {
    type_name: "PSROIPooling",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: PSROIPoolingAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How elements become one.
    pub enum PSROIPoolingMode {
        /// The mean of a part.
        #[default]
        Average = "average",
        /// The mean of samples between elements.
        Bilinear = "bilinear",
    }
}

crate::attributes! {
    /// Attributes of PSROIPooling.
    pub struct PSROIPoolingAttributes {
        /// The channels of the output.
        output_dim: i64 = "output_dim", required true;
        /// The height and width of the output.
        group_size: i64 = "group_size", default "1";
        /// The factor from coordinates of regions to those of the map.
        spatial_scale: f32 = "spatial_scale", required true;
        /// How elements become one.
        mode: PSROIPoolingMode = "mode", default "average";
        /// The samples of an element along the width, for `bilinear`.
        spatial_bins_x: i64 = "spatial_bins_x", default "1";
        /// The samples of an element along the height, for `bilinear`.
        spatial_bins_y: i64 = "spatial_bins_y", default "1";
    }
}

/// A PSROIPooling layer.
#[derive(Debug)]
pub struct PSROIPooling {
    /// The attributes.
    pub attributes: PSROIPoolingAttributes,
}

impl PSROIPooling {
    fn channels(&self) -> i64 {
        let a = &self.attributes;
        match a.mode {
            PSROIPoolingMode::Average => a.output_dim.saturating_mul(a.group_size).saturating_mul(a.group_size),
            PSROIPoolingMode::Bilinear => {
                a.output_dim.saturating_mul(a.spatial_bins_x).saturating_mul(a.spatial_bins_y)
            }
        }
    }

    /// The elements that part `i` of a region from `start` to `end` covers on an axis of `size`, for means.
    pub fn part(&self, (start, end): (f64, f64), i: usize, size: usize) -> std::ops::Range<usize> {
        let (scale, groups) = (self.attributes.spatial_scale, self.attributes.group_size as f32);
        let start = (start as f32).round() * scale;
        let step = (((end as f32).round() + 1.0) * scale - start) / groups;
        let first = ((start + i as f32 * step).floor() as usize).min(size.saturating_sub(1));
        first..((start + (i + 1) as f32 * step).ceil() as usize).min(size)
    }

    /// The mean of the elements of a part.
    fn average(&self, plane: &[f64], map: (usize, usize), region: &[f64], at: (usize, usize)) -> f64 {
        let rows = self.part((region[2], region[4]), at.0, map.0);
        let columns = self.part((region[1], region[3]), at.1, map.1);
        let count = rows.len() * columns.len();
        let sum: f64 = rows.flat_map(|y| columns.clone().map(move |x| plane[y * map.1 + x])).sum();
        if count == 0 { 0.0 } else { sum / count as f64 }
    }

    /// The coordinate of a sample along an axis.
    fn place(&self, start: f64, end: f64, bins: i64, bin: i64, i: usize, size: usize) -> f32 {
        let scale = self.attributes.spatial_scale;
        let (groups, last) = (self.attributes.group_size, size as f32 - 1.0);
        let start = start as f32 * scale;
        let step = (end as f32 * scale - start) / bins as f32;
        let first = start + bin as f32 * step;
        if groups < 2 {
            return (first + first + step) * last / 2.0;
        }
        i as f32 * (step * last / (groups as f32 - 1.0)) + first * last
    }

    /// The mean of samples, each from a channel of its own.
    fn bilinear(&self, planes: &[f64], map: (usize, usize), region: &[f64], at: (usize, usize), c: usize) -> f64 {
        let a = &self.attributes;
        let (height, width) = map;
        let mut sum = 0.0;
        for bin in 0..a.spatial_bins_y * a.spatial_bins_x {
            let (bin_y, bin_x) = (bin / a.spatial_bins_x, bin % a.spatial_bins_x);
            let x = self.place(region[1], region[3], a.spatial_bins_x, bin_x, at.1, width);
            let y = self.place(region[2], region[4], a.spatial_bins_y, bin_y, at.0, height);
            let is_inside = x < width as f32 && y < height as f32 && x >= 0.0 && y >= 0.0;
            if !is_inside {
                continue;
            }
            let channel = bin as usize * a.output_dim as usize + c;
            let plane = &planes[channel * height * width..][..height * width];
            let (left, top) = ((x.floor() as usize).min(width - 1), (y.floor() as usize).min(height - 1));
            let (right, bottom) = ((x.ceil() as usize).min(width - 1), (y.ceil() as usize).min(height - 1));
            let (across, down) = (f64::from(x - left as f32), f64::from(y - top as f32));
            let line = |row: usize| {
                let (p, q) = (plane[row * width + left], plane[row * width + right]);
                p + (q - p) * across
            };
            let (p, q) = (line(top), line(bottom));
            sum += p + (q - p) * down;
        }
        sum / (a.spatial_bins_x * a.spatial_bins_y) as f64
    }
}

impl Operation for PSROIPooling {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 4..=4)?;
        context.require_rank(1, 2..=2)?;
        let (data, rois) = (context.shape(0), context.shape(1));
        if !rois.dim(1).contains(5) {
            return Err(OpError::shape(Blame::Input(1), format!("the last dimension of shape {rois} must be 5")));
        }
        let channels = self.channels();
        if !data.dim(1).contains(channels.max(0) as usize) {
            let message = format!("shape {data} has {} channels; the attributes ask for {channels}", data.dim(1));
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let size = |value: i64| Dim::fixed(value.max(1) as usize);
        let groups = size(self.attributes.group_size);
        let dims = [rois.dim(0), size(self.attributes.output_dim), groups, groups];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, rois) = (context.input(0)?, context.input(1)?);
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let (outputs, groups) = (self.attributes.output_dim as usize, self.attributes.group_size as usize);
        let shape = Shape::from([rois.shape()[0], outputs, groups, groups]);
        context.output(0, &shape)?;
        let (values, boxes) = (widened_view(data)?, widened_view(rois)?);
        let mut result = filled::<f64>(shape.elements())?;
        let plane = height * width;
        for (i, target) in result.iter_mut().enumerate() {
            let (region, rest) = (i / (outputs * groups * groups), i % (outputs * groups * groups));
            let (c, at) = (rest / (groups * groups), (rest / groups % groups, rest % groups));
            let corners = &boxes[region * 5..][..5];
            let image = image_of(corners[0] as i64, region, batch, 1)?;
            let planes = &values[image * channels * plane..][..channels * plane];
            *target = match self.attributes.mode {
                PSROIPoolingMode::Average => {
                    self.average(&planes[rest * plane..][..plane], (height, width), corners, at)
                }
                PSROIPoolingMode::Bilinear => self.bilinear(planes, (height, width), corners, at, c),
            };
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = PSROIPoolingAttributes::read(context.attributes);
    for (name, value) in [
        ("output_dim", attributes.output_dim),
        ("group_size", attributes.group_size),
        ("spatial_bins_x", attributes.spatial_bins_x),
        ("spatial_bins_y", attributes.spatial_bins_y),
    ] {
        if !(1..=MAX_WINDOW_NUMBER).contains(&value) {
            let message = format!("`{name}` {value} is out of range [1, {MAX_WINDOW_NUMBER}]");
            context.attributes.report(OpError::attribute(name, message));
        }
    }
    Arc::new(PSROIPooling { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn each_part_has_its_channel() {
        let case = Case::new("PSROIPooling", "opset1")
            .attribute("output_dim", "1")
            .attribute("group_size", "2")
            .attribute("spatial_scale", "1");
        let data: Vec<f32> = (0..16).map(|v| (v / 4) as f32).collect();
        let rois = tensor(&[0f32, 0.0, 0.0, 1.0, 1.0], [1, 5]);
        let output = case.run(&[tensor(&data, [1, 4, 2, 2]), rois]).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 1.0, 2.0, 3.0], [1, 1, 2, 2]));
        assert_eq!(
            case.infer_error(&["f32[1,5,8,8]", "f32[?,5]"]),
            "input 0: shape [1,5,8,8] has 5 channels; the attributes ask for 4"
        );
    }
}
