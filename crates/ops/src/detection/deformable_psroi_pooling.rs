//! # DeformablePSROIPooling
//! Pools regions of position-sensitive score maps whose parts are shifted by offsets.
//!
//! Specification: `detection/deformable-psroi-pooling-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, output_dim * group_size * group_size, H, W]` |
//! | in 1 | rois | that of `data` | `[regions, 5]`: batch index, x1, y1, x2, y2 |
//! | in 2 | offsets (optional) | that of `data` | `[regions, 2 * classes, part_size, part_size]`: x, y |
//! | out 0 | | that of `data` | `[regions, output_dim, group_size, group_size]` |
//!
//! Samples that lie more than half an element outside of the map do not count. Coordinates are computed in f32, sums in
//! f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, dispatch};

use crate::common::boxes::{common_dim, require_last};
use crate::common::elementwise::unsupported;
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::number::Number;
use crate::common::ranges::{check_integer, check_number, check_positive};
use crate::common::regions::{Tap, check_map, checked_samples, image_of, sample};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The smallest width and height of a region, in elements.
const LEAST_EXTENT: f32 = 0.1;

/// The definition of DeformablePSROIPooling.
pub static DEFORMABLE_PSROI_POOLING: OpDef = OpDef {
    type_name: "DeformablePSROIPooling",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 16), (2, 3), (1, 1))],
    attributes: DeformablePSROIPoolingAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How elements become one.
    pub enum DeformablePSROIPoolingMode {
        /// The mean of samples between elements.
        #[default]
        BilinearDeformable = "bilinear_deformable",
    }
}

crate::attributes! {
    /// Attributes of DeformablePSROIPooling.
    pub struct DeformablePSROIPoolingAttributes {
        /// The channels of the output.
        output_dim: i64 = "output_dim", required true;
        /// The factor from coordinates of regions to those of the map.
        spatial_scale: f32 = "spatial_scale", required true;
        /// The height and width of the output.
        group_size: i64 = "group_size", default "1";
        /// How elements become one.
        mode: DeformablePSROIPoolingMode = "mode", default "bilinear_deformable";
        /// The samples of an element along the width.
        spatial_bins_x: i64 = "spatial_bins_x", default "1";
        /// The samples of an element along the height.
        spatial_bins_y: i64 = "spatial_bins_y", default "1";
        /// What all offsets are multiplied with.
        trans_std: f32 = "trans_std", default "1";
        /// The height and width of the offsets.
        part_size: i64 = "part_size", default "1";
    }
}

/// A DeformablePSROIPooling layer.
#[derive(Debug)]
pub struct DeformablePSROIPooling {
    /// The attributes.
    pub attributes: DeformablePSROIPoolingAttributes,
}

/// An axis of a region: where it starts and how far it extends, in elements of the map.
#[derive(Debug, Clone, Copy)]
struct Extent {
    start: f32,
    length: f32,
}

impl DeformablePSROIPooling {
    fn channels(&self) -> i64 {
        let a = &self.attributes;
        a.output_dim.saturating_mul(a.group_size).saturating_mul(a.group_size)
    }

    fn check_offsets(&self, context: &InferContext<'_>) -> OpResult {
        context.require_rank(2, 4..=4)?;
        common_dim(context, &[(1, 0), (2, 0)], "regions")?;
        let shape = context.shape(2);
        for axis in [2, 3] {
            if !shape.dim(axis).contains(self.attributes.part_size.max(0) as usize) {
                let size = self.attributes.part_size;
                let message = format!("axis {axis} of shape {shape} must have the size {size} of `part_size`");
                return Err(OpError::shape(Blame::Input(2), message));
            }
        }
        let Some(channels) = shape.dim(1).get() else { return Ok(()) };
        let classes = channels / 2;
        let outputs = self.attributes.output_dim.max(0) as usize;
        if channels % 2 == 0 && classes > 0 && outputs.is_multiple_of(classes) {
            return Ok(());
        }
        let message =
            format!("shape {shape} must have 2 channels for each class, which {outputs} outputs share evenly");
        Err(OpError::shape(Blame::Input(2), message))
    }

    fn extent(&self, start: f64, end: f64) -> Extent {
        let scale = self.attributes.spatial_scale;
        let first = (start as f32).round() * scale - 0.5;
        let last = ((end as f32).round() + 1.0) * scale - 0.5;
        Extent { start: first, length: (last - first).max(LEAST_EXTENT) }
    }

    /// The samples of a part along one axis.
    fn taps(&self, extent: Extent, part: usize, offset: f32, samples: i64, size: usize) -> Vec<Tap> {
        let bin = extent.length / self.attributes.group_size as f32;
        let first = extent.start + part as f32 * bin + offset * extent.length;
        let step = bin / samples as f32;
        (0..samples).filter_map(|i| tap_within(first + i as f32 * step, size)).collect()
    }

    /// The offset of a part, as a fraction of the region.
    fn offset(&self, offsets: &[f64], classes: usize, channel: usize, at: (usize, usize), axis: usize) -> f32 {
        let (parts, groups) = (self.attributes.part_size as usize, self.attributes.group_size as usize);
        let class = channel / (self.attributes.output_dim as usize / classes.max(1)).max(1);
        let (row, column) = (at.0 * parts / groups, at.1 * parts / groups);
        let position = ((class * 2 + axis) * parts + row) * parts + column;
        offsets.get(position).map_or(0.0, |v| *v as f32 * self.attributes.trans_std)
    }

    /// The features of one region. `offsets` are those of the region, for `classes` classes.
    fn pool<T: Number>(
        &self,
        planes: &[T],
        map: (usize, usize),
        region: &[f64],
        offsets: (&[f64], usize),
        features: &mut [f64],
    ) {
        let a = &self.attributes;
        let (rows, columns) = (self.extent(region[2], region[4]), self.extent(region[1], region[3]));
        let groups = a.group_size as usize;
        for (i, target) in features.iter_mut().enumerate() {
            let (channel, at) = (i / (groups * groups), (i / groups % groups, i % groups));
            let shift = |axis: usize| self.offset(offsets.0, offsets.1, channel, at, axis);
            let across = self.taps(columns, at.1, shift(0), a.spatial_bins_x, map.1);
            let down = self.taps(rows, at.0, shift(1), a.spatial_bins_y, map.0);
            let plane = &planes[i * map.0 * map.1..][..map.0 * map.1];
            let values = down.iter().flat_map(|y| across.iter().map(|x| sample(plane, map.1, Some(*y), Some(*x))));
            let count = down.len() * across.len();
            *target = if count == 0 { 0.0 } else { values.sum::<f64>() / count as f64 };
        }
    }
}

impl Operation for DeformablePSROIPooling {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let ports: &[usize] = if context.input_count() > 2 { &[0, 1, 2] } else { &[0, 1] };
        let element_type = context.require_same_type(ports)?;
        context.require_rank(0, 4..=4)?;
        require_last(context, 1, 1, 5)?;
        let (data, channels) = (context.shape(0), self.channels());
        if !data.dim(1).contains(channels.max(0) as usize) {
            let message = format!("shape {data} has {} channels; the attributes ask for {channels}", data.dim(1));
            return Err(OpError::shape(Blame::Input(0), message));
        }
        if context.input_count() > 2 {
            self.check_offsets(context)?;
        }
        let size = |value: i64| Dim::fixed(value.max(1) as usize);
        let groups = size(self.attributes.group_size);
        let dims = [context.shape(1).dim(0), size(self.attributes.output_dim), groups, groups];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, rois) = (context.input(0)?, widened_view(context.input(1)?)?);
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let groups = self.attributes.group_size as usize;
        let shape = Shape::from([rois.len() / 5, self.attributes.output_dim as usize, groups, groups]);
        context.output(0, &shape)?;
        check_map(context, 0, &shape)?;
        // The samples of a part are held at once, and their number is in no shape.
        let bins = [self.attributes.spatial_bins_x, self.attributes.spatial_bins_y];
        let [bins_x, bins_y] = bins.map(|bins| usize::try_from(bins).unwrap_or(usize::MAX));
        checked_samples(bins_x, bins_y, height.max(width) as f32)?;
        let (offsets, classes) = match context.input_count() {
            0..=2 => (Vec::new(), 0),
            _ => (widened_view(context.input(2)?)?, context.input(2)?.shape()[1] / 2),
        };
        let per_region = classes * 2 * (self.attributes.part_size * self.attributes.part_size) as usize;
        let mut result = filled::<f64>(shape.elements())?;
        for (r, region) in rois.chunks_exact(5).enumerate() {
            let image = image_of(region[0] as i64, r, batch, 1)?;
            let offsets = (&offsets[r * per_region..][..per_region], classes);
            let features = &mut result[r * channels..][..channels];
            let (plane, element_type) = (height * width, data.element_type());
            dispatch!(element_type, T in [float] => {
                let planes = &data.slice::<T>()?[image * channels * plane..][..channels * plane];
                self.pool(planes, (height, width), region, offsets, features);
            } else { return Err(unsupported(element_type)) });
            context.environment().poll()?;
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

/// The elements around a place; none if it lies more than half an element outside.
fn tap_within(place: f32, size: usize) -> Option<Tap> {
    // NaN lies nowhere.
    if !(place >= -0.5 && place <= size as f32 - 0.5) {
        return None;
    }
    let place = place.clamp(0.0, size as f32 - 1.0);
    let low = place as usize;
    Some((low, (low + 1).min(size - 1), f64::from(place - low as f32)))
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = DeformablePSROIPoolingAttributes::read(context.attributes);
    for (name, value) in [
        ("output_dim", attributes.output_dim),
        ("group_size", attributes.group_size),
        ("spatial_bins_x", attributes.spatial_bins_x),
        ("spatial_bins_y", attributes.spatial_bins_y),
        ("part_size", attributes.part_size),
    ] {
        check_integer(context.attributes, name, value, 1..=MAX_WINDOW_NUMBER);
    }
    check_positive(context.attributes, "spatial_scale", attributes.spatial_scale);
    check_number(context.attributes, "trans_std", attributes.trans_std, f32::NEG_INFINITY..=f32::INFINITY);
    Arc::new(DeformablePSROIPooling { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(outputs: &str, groups: &str) -> Case {
        Case::new("DeformablePSROIPooling", "opset1")
            .attribute("output_dim", outputs)
            .attribute("group_size", groups)
            .attribute("part_size", groups)
            .attribute("spatial_scale", "1")
    }

    #[test]
    fn each_part_has_its_channel() {
        let data: Vec<f32> = (0..16).map(|v| (v / 4) as f32).collect();
        let rois = tensor(&[0f32, 0.0, 0.0, 1.0, 1.0], [1, 5]);
        let output = case("1", "2").run(&[tensor(&data, [1, 4, 2, 2]), rois]).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 1.0, 2.0, 3.0], [1, 1, 2, 2]));
    }

    #[test]
    fn offsets_shift_parts() {
        let data: Vec<f32> = (0..8).map(|v| v as f32).collect();
        let data = tensor(&data, [1, 1, 2, 4]);
        let rois = tensor(&[0f32, 0.0, 0.0, 1.0, 1.0], [1, 5]);
        // The region starts at -0.5 and extends over 2 elements.
        let at = |x: f32, y: f32| {
            let offsets = tensor(&[x, y], [1, 2, 1, 1]);
            case("1", "1").run(&[data.clone(), rois.clone(), offsets]).unwrap()[0].slice::<f32>().unwrap()[0]
        };
        assert_eq!(
            [at(0.0, 0.0), at(0.5, 0.25), at(1.0, 0.75), at(2.0, 0.0), at(-0.25, 0.0)],
            [0.0, 0.5, 5.5, 3.0, 0.0]
        );
    }

    #[test]
    fn too_many_samples_are_an_error() {
        let rois = tensor(&[0f32, 0.0, 0.0, 1.0, 1.0], [1, 5]);
        let case = case("1", "1").attribute("spatial_bins_x", "2147483647").attribute("spatial_bins_y", "2");
        let error = case.run(&[tensor(&[0f32; 4], [1, 1, 2, 2]), rois]).unwrap_err().to_string();
        assert!(error.contains("needs 4294967294 samples"), "{error}");
    }

    #[test]
    fn the_examples_of_the_specification() {
        let case = |outputs: &str, groups: &str| case(outputs, groups).attribute("spatial_bins_x", "4");
        assert_eq!(case("882", "3").infer(&["f32[1,7938,63,38]", "f32[300,5]"]), ["f32[300,882,3,3]"]);
        let inputs = ["f32[1,392,38,63]", "f32[300,5]", "f32[300,2,7,7]"];
        assert_eq!(case("8", "7").infer(&inputs), ["f32[300,8,7,7]"]);
        case("8", "7").assert_monotone(&inputs);
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case("8", "7").infer_error(&["f32[1,391,38,63]", "f32[300,5]"]),
            "input 0: shape [1,391,38,63] has 391 channels; the attributes ask for 392"
        );
        let error = |offsets: &str| case("8", "7").infer_error(&["f32[1,392,38,63]", "f32[300,5]", offsets]);
        assert_eq!(error("f32[300,2,6,7]"), "input 2: axis 2 of shape [300,2,6,7] must have the size 7 of `part_size`");
        assert_eq!(
            error("f32[300,6,7,7]"),
            "input 2: shape [300,6,7,7] must have 2 channels for each class, which 8 outputs share evenly"
        );
        assert_eq!(
            error("f32[299,2,7,7]"),
            "input 2: shape [299,2,7,7] has 299 regions, but shape [300,5] of input 1 has 300"
        );
        let (data, rois) = (tensor(&[0f32], [1, 1, 1, 1]), tensor(&[1f32, 0.0, 0.0, 1.0, 1.0], [1, 5]));
        assert_eq!(
            case("1", "1").run(&[data, rois]).unwrap_err().to_string(),
            "input 1: batch index 1 of region 0 is out of range [0, 0]"
        );
    }
}
