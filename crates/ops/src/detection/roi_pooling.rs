//! # ROIPooling
//! Pools regions of feature maps to a fixed size.
//!
//! Specification: `detection/roi-pooling-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, C, H, W]` |
//! | in 1 | rois | that of `data` | `[regions, 5]`: batch index, x1, y1, x2, y2 |
//! | out 0 | | that of `data` | `[regions, C, pooled_h, pooled_w]` |
//!
//! The IR of OpenVINO writes the size as `output_size` or `output_roi` too; all spellings that are present must agree.
//! `max` rounds the corners of a region to elements; `bilinear` takes them as fractions of the map. An empty part is zero.
//! A batch index of -1 ends the list of regions: it and what follows is zero, as in OpenVINO's CPU plugin. Coordinates are
//! computed in f32.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape};

use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::regions::image_of;
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ROIPooling.
pub static ROI_POOLING: OpDef = OpDef {
    type_name: "ROIPooling",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (2, 16), (2, 2), (1, 1))],
    attributes: ROIPoolingAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How elements become one.
    pub enum ROIPoolingMethod {
        /// The largest.
        #[default]
        Max = "max",
        /// One sample between elements.
        Bilinear = "bilinear",
    }
}

crate::attributes! {
    /// Attributes of ROIPooling.
    pub struct ROIPoolingAttributes {
        /// The height and width of the output.
        output_size: Vec<i64> = "output_size", default "";
        /// The height and width of the output.
        output_roi: Vec<i64> = "output_roi", default "";
        /// The height of the output.
        pooled_h: Option<i64> = "pooled_h";
        /// The width of the output.
        pooled_w: Option<i64> = "pooled_w";
        /// The factor from coordinates of regions to those of the map, for `max`.
        spatial_scale: f32 = "spatial_scale", required true;
        /// How elements become one.
        method: ROIPoolingMethod = "method", default "max";
    }
}

/// A ROIPooling layer.
#[derive(Debug)]
pub struct ROIPooling {
    /// The attributes.
    pub attributes: ROIPoolingAttributes,
}

impl ROIPoolingAttributes {
    /// The height and width of the output.
    pub fn size(&self) -> (usize, usize) {
        let at = |i: usize, named: Option<i64>| {
            let listed = self.output_size.get(i).or(self.output_roi.get(i)).copied();
            usize::try_from(named.or(listed).unwrap_or(1)).unwrap_or(1)
        };
        (at(0, self.pooled_h), at(1, self.pooled_w))
    }
}

/// The rounded extent of a region along one axis.
fn part(start: f64, end: f64, scale: f32, bins: usize, bin: usize, size: usize) -> std::ops::Range<usize> {
    let round = |x: f64| (x as f32 * scale).round() as i64;
    let (first, last) = (round(start), round(end));
    let extent = last.saturating_sub(first).saturating_add(1).max(1) as f32;
    let step = extent / bins as f32;
    let clip = |x: f32| (x as i64).saturating_add(first).clamp(0, size as i64) as usize;
    clip((bin as f32 * step).floor())..clip(((bin + 1) as f32 * step).ceil())
}

/// The coordinate of a sample of a region given as fractions of the map.
fn sample(start: f64, end: f64, bins: usize, bin: usize, size: usize) -> f32 {
    let (start, end, last) = (start as f32, end as f32, size as f32 - 1.0);
    if bins < 2 {
        return 0.5 * (start + end) * last;
    }
    if bin + 1 == bins { last * end } else { bin as f32 * ((end - start) * last / (bins as f32 - 1.0)) + start * last }
}

fn bilinear(plane: &[f64], height: usize, width: usize, y: f32, x: f32) -> f64 {
    let inside = |v: f32, size: usize| v >= 0.0 && v <= size as f32 - 1.0;
    if !inside(y, height) || !inside(x, width) {
        return 0.0;
    }
    let (top, left) = (y.floor() as usize, x.floor() as usize);
    let (bottom, right) = ((y.ceil() as usize).min(height - 1), (x.ceil() as usize).min(width - 1));
    let (down, across) = (f64::from(y - top as f32), f64::from(x - left as f32));
    let line = |row: usize| {
        let (a, b) = (plane[row * width + left], plane[row * width + right]);
        a + (b - a) * across
    };
    let (a, b) = (line(top), line(bottom));
    a + (b - a) * down
}

impl ROIPooling {
    /// Calls `take(position, weight)` for what bin `bin` of `bins` takes along an axis of `size` elements from a region
    /// that extends from `start` to `end`. A maximum takes whole elements; a sample mixes two.
    pub fn for_each_tap(
        &self,
        (start, end): (f64, f64),
        (bins, bin): (usize, usize),
        size: usize,
        mut take: impl FnMut(usize, f32),
    ) {
        if self.attributes.method == ROIPoolingMethod::Max {
            part(start, end, self.attributes.spatial_scale, bins, bin, size).for_each(|place| take(place, 1.0));
            return;
        }
        let place = sample(start, end, bins, bin, size);
        if place >= 0.0 && place <= size as f32 - 1.0 {
            let (low, high) = (place.floor() as usize, (place.ceil() as usize).min(size - 1));
            let weight = place - low as f32;
            take(low, 1.0 - weight);
            if high > low {
                take(high, weight);
            }
        }
    }

    fn pool(
        &self,
        plane: &[f64],
        map: (usize, usize),
        region: &[f64],
        bins: (usize, usize),
        at: (usize, usize),
    ) -> f64 {
        let scale = self.attributes.spatial_scale;
        if self.attributes.method == ROIPoolingMethod::Bilinear {
            let y = sample(region[2], region[4], bins.0, at.0, map.0);
            let x = sample(region[1], region[3], bins.1, at.1, map.1);
            return bilinear(plane, map.0, map.1, y, x);
        }
        let rows = part(region[2], region[4], scale, bins.0, at.0, map.0);
        let columns = part(region[1], region[3], scale, bins.1, at.1, map.1);
        let mut best: Option<f64> = None;
        for y in rows {
            for value in columns.clone().map(|x| plane[y * map.1 + x]) {
                best = Some(best.map_or(value, |b| if value > b || value.is_nan() { value } else { b }));
            }
        }
        best.unwrap_or(0.0)
    }
}

impl Operation for ROIPooling {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 4..=4)?;
        context.require_rank(1, 2..=2)?;
        let rois = context.shape(1);
        if !rois.dim(1).contains(5) {
            return Err(OpError::shape(Blame::Input(1), format!("the last dimension of shape {rois} must be 5")));
        }
        let (height, width) = self.attributes.size();
        let dims = [rois.dim(0), context.shape(0).dim(1), Dim::fixed(height), Dim::fixed(width)];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, rois) = (context.input(0)?, context.input(1)?);
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let (bins_y, bins_x) = self.attributes.size();
        let regions = rois.shape()[0];
        let shape = Shape::from([regions, channels, bins_y, bins_x]);
        context.output(0, &shape)?;
        let (values, boxes) = (widened_view(data)?, widened_view(rois)?);
        let mut result = filled::<f64>(shape.elements())?;
        for region in 0..regions {
            let corners = &boxes[region * 5..][..5];
            if corners[0] == -1.0 {
                break;
            }
            let image = image_of(corners[0] as i64, region, batch, 1)?;
            for c in 0..channels {
                let plane = &values[(image * channels + c) * height * width..][..height * width];
                let target = &mut result[(region * channels + c) * bins_y * bins_x..][..bins_y * bins_x];
                for (i, target) in target.iter_mut().enumerate() {
                    let at = (i / bins_x, i % bins_x);
                    *target = self.pool(plane, (height, width), corners, (bins_y, bins_x), at);
                }
            }
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ROIPoolingAttributes::read(context.attributes);
    let lists = [&attributes.output_size, &attributes.output_roi];
    let sizes = lists.into_iter().flatten().copied().chain(attributes.pooled_h).chain(attributes.pooled_w);
    if let Some(size) = sizes.into_iter().find(|size| !(1..=MAX_WINDOW_NUMBER).contains(size)) {
        let message = format!("size {size} of the output is out of range [1, {MAX_WINDOW_NUMBER}]");
        context.attributes.report(OpError::attribute("pooled_h", message));
    }
    let is_said = attributes.pooled_h.is_some() && attributes.pooled_w.is_some();
    if !is_said && lists.iter().all(|list| list.len() != 2) {
        let message = "the size of the output is missing: `pooled_h` and `pooled_w`, `output_size` or `output_roi`";
        context.attributes.report(OpError::new(ovir_diagnostics::Code::MissingAttribute, Blame::Node, message));
    }
    Arc::new(ROIPooling { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_largest_of_each_part() {
        let case = Case::new("ROIPooling", "opset2")
            .attribute("pooled_h", "1")
            .attribute("pooled_w", "2")
            .attribute("spatial_scale", "1");
        let data = tensor(&[0f32, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0], [1, 1, 2, 4]);
        let rois = tensor(&[0f32, 0.0, 0.0, 3.0, 0.0, -1.0, 0.0, 0.0, 0.0, 0.0], [2, 5]);
        assert_eq!(case.run(&[data, rois]).unwrap()[0], tensor(&[1f32, 3.0, 0.0, 0.0], [2, 1, 1, 2]));
        assert_eq!(case.infer(&["f32[1,8,?,?]", "f32[?,5]"]), ["f32[?,8,1,2]"]);
    }
}
