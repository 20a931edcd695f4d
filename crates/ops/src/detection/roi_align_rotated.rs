//! # ROIAlignRotated
//! Pools rotated regions of feature maps to a fixed size, sampling between elements.
//!
//! Specification: `detection/roi-align-rotated-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, C, H, W]` |
//! | in 1 | rois | that of `data` | `[regions, 5]`: centre x, centre y, width, height, angle in radians |
//! | in 2 | batch_indices | any integer type | `[regions]` |
//! | out 0 | | that of `data` | `[regions, C, pooled_h, pooled_w]` |
//!
//! The centre is shifted by half an element. A sample more than one element outside of the map is zero. Coordinates are
//! computed in f32, sums in f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, dispatch};

use crate::common::boxes::{common_dim, require_last};
use crate::common::elementwise::unsupported;
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::ranges::{check_integer, check_positive};
use crate::common::regions::{Tap, check_map, checked_samples, image_of, sample, samples_of_bin, tap};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ROIAlignRotated.
pub static ROI_ALIGN_ROTATED: OpDef = OpDef {
    type_name: "ROIAlignRotated",
    category: Category::Detection,
    versions: &[OpVersion::new(15, (15, 16), (3, 3), (1, 1))],
    attributes: ROIAlignRotatedAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ROIAlignRotated.
    pub struct ROIAlignRotatedAttributes {
        /// The height of the output.
        pooled_h: i64 = "pooled_h", required true;
        /// The width of the output.
        pooled_w: i64 = "pooled_w", required true;
        /// The samples of an output element along each axis; 0 takes as many as the region has elements.
        sampling_ratio: i64 = "sampling_ratio", required true;
        /// The factor from centres and sizes of regions to those of the map.
        spatial_scale: f32 = "spatial_scale", required true;
        /// Whether angles turn clockwise.
        clockwise_mode: bool = "clockwise_mode", default "false";
    }
}

/// A ROIAlignRotated layer.
#[derive(Debug)]
pub struct ROIAlignRotated {
    /// The attributes.
    pub attributes: ROIAlignRotatedAttributes,
}

/// Where the samples of a region lie, in its own axes.
struct Region {
    center: (f32, f32),
    bin: (f32, f32),
    size: (f32, f32),
    samples: (usize, usize),
    sine: f32,
    cosine: f32,
}

impl ROIAlignRotated {
    fn region(&self, values: &[f64]) -> OpResult<Region> {
        let a = &self.attributes;
        let number = |i: usize| values[i] as f32;
        let size = (number(2) * a.spatial_scale, number(3) * a.spatial_scale);
        let bin = (size.0 / a.pooled_w as f32, size.1 / a.pooled_h as f32);
        let samples = (samples_of_bin(bin.0, a.sampling_ratio), samples_of_bin(bin.1, a.sampling_ratio));
        checked_samples(samples.0, a.pooled_w as usize, size.0)?;
        checked_samples(samples.1, a.pooled_h as usize, size.1)?;
        // All samples of one element are held at once.
        checked_samples(samples.0, samples.1, size.0)?;
        let angle = if a.clockwise_mode { -number(4) } else { number(4) };
        let center = (number(0) * a.spatial_scale - 0.5, number(1) * a.spatial_scale - 0.5);
        Ok(Region { center, bin, size, samples, sine: libm::sinf(angle), cosine: libm::cosf(angle) })
    }
}

impl Region {
    /// The samples of one element of the output, as elements of rows and columns of the map.
    fn taps(&self, at: (usize, usize), map: (usize, usize)) -> impl Iterator<Item = (Option<Tap>, Option<Tap>)> + '_ {
        let place = |size: f32, bin: f32, i: usize, samples: usize, s: usize| {
            -size / 2.0 + i as f32 * bin + bin / samples as f32 * (s as f32 + 0.5)
        };
        (0..self.samples.0 * self.samples.1).map(move |s| {
            let x = place(self.size.0, self.bin.0, at.1, self.samples.0, s % self.samples.0);
            let y = place(self.size.1, self.bin.1, at.0, self.samples.1, s / self.samples.0);
            let row = y * self.cosine - x * self.sine + self.center.1;
            let column = y * self.sine + x * self.cosine + self.center.0;
            (tap(row, map.0), tap(column, map.1))
        })
    }
}

impl Operation for ROIAlignRotated {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_class(2, ElementClass::Integer)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 4..=4)?;
        require_last(context, 1, 1, 5)?;
        context.require_rank(2, 1..=1)?;
        let regions = common_dim(context, &[(1, 0), (2, 0)], "regions")?;
        let size = |value: i64| Dim::fixed(value.max(0) as usize);
        let dims = [regions, context.shape(0).dim(1), size(self.attributes.pooled_h), size(self.attributes.pooled_w)];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, rois) = (context.input(0)?, widened_view(context.input(1)?)?);
        let indices = context.integers(2)?;
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let (rows, columns) = (self.attributes.pooled_h as usize, self.attributes.pooled_w as usize);
        let shape = Shape::from([rois.len() / 5, channels, rows, columns]);
        context.output(0, &shape)?;
        check_map(context, 0, &shape)?;
        let mut result = filled::<f64>(shape.elements())?;
        let (plane, bins) = (height * width, rows * columns);
        for (r, values) in rois.chunks_exact(5).enumerate() {
            let image = image_of(indices[r], r, batch, 2)?;
            let region = self.region(values)?;
            let features = &mut result[r * channels * bins..][..channels * bins];
            for bin in 0..bins {
                let taps: Vec<_> = region.taps((bin / columns, bin % columns), (height, width)).collect();
                if taps.is_empty() {
                    continue;
                }
                let element_type = data.element_type();
                dispatch!(element_type, T in [float] => {
                    let planes = &data.slice::<T>()?[image * channels * plane..][..channels * plane];
                    for c in 0..channels {
                        let values = &planes[c * plane..][..plane];
                        let sum: f64 = taps.iter().map(|(y, x)| sample(values, width, *y, *x)).sum();
                        features[c * bins + bin] = sum / taps.len() as f64;
                    }
                } else { return Err(unsupported(element_type)) });
            }
            context.environment().poll()?;
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(15)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ROIAlignRotatedAttributes::read(context.attributes);
    check_integer(context.attributes, "pooled_h", attributes.pooled_h, 1..=MAX_WINDOW_NUMBER);
    check_integer(context.attributes, "pooled_w", attributes.pooled_w, 1..=MAX_WINDOW_NUMBER);
    check_integer(context.attributes, "sampling_ratio", attributes.sampling_ratio, 0..=MAX_WINDOW_NUMBER);
    check_positive(context.attributes, "spatial_scale", attributes.spatial_scale);
    Arc::new(ROIAlignRotated { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;
    use std::f32::consts::FRAC_PI_2;

    fn case(size: &str) -> Case {
        Case::new("ROIAlignRotated", "opset15")
            .attribute("pooled_h", size)
            .attribute("pooled_w", size)
            .attribute("sampling_ratio", "1")
            .attribute("spatial_scale", "1")
    }

    fn rounded(tensor: &Tensor) -> Vec<i32> {
        tensor.slice::<f32>().unwrap().iter().map(|v| (v * 1000.0).round() as i32).collect()
    }

    #[test]
    fn quarter_turns_permute_elements() {
        let data = tensor(&[0f32, 1.0, 2.0, 3.0], [1, 1, 2, 2]);
        let inputs = |angle: f32| [data.clone(), tensor(&[1f32, 1.0, 2.0, 2.0, angle], [1, 5]), tensor(&[0i8], [1])];
        assert_eq!(rounded(&case("2").run(&inputs(0.0)).unwrap()[0]), [0, 1000, 2000, 3000]);
        assert_eq!(rounded(&case("2").run(&inputs(FRAC_PI_2)).unwrap()[0]), [2000, 0, 3000, 1000]);
        let clockwise = case("2").attribute("clockwise_mode", "true");
        assert_eq!(rounded(&clockwise.run(&inputs(FRAC_PI_2)).unwrap()[0]), [1000, 3000, 0, 2000]);
    }

    #[test]
    fn the_example_of_the_specification() {
        let inputs = ["f32[7,256,200,200]", "f32[1000,5]", "i64[1000]"];
        assert_eq!(case("6").infer(&inputs), ["f32[1000,256,6,6]"]);
        case("6").assert_monotone(&inputs);
    }

    #[test]
    fn violations_are_named() {
        let data = tensor(&[0f32, 1.0, 2.0, 3.0], [1, 1, 2, 2]);
        let run = |case: Case, width: f32, image: i32| {
            let rois = tensor(&[1f32, 1.0, width, 2.0, 0.0], [1, 5]);
            case.run(&[data.clone(), rois, tensor(&[image], [1])]).unwrap_err().to_string()
        };
        assert_eq!(run(case("1"), 2.0, 1), "input 2: batch index 1 of region 0 is out of range [0, 0]");
        let many = Case::new("ROIAlignRotated", "opset15")
            .attribute("pooled_h", "1")
            .attribute("pooled_w", "1")
            .attribute("sampling_ratio", "0")
            .attribute("spatial_scale", "1");
        assert_eq!(
            run(many, 1e9, 0),
            "input 1: a region over 1000000000 elements needs 1000000000 samples along one axis"
        );
        assert_eq!(
            case("1").infer_error(&["f32[1,1,2,2]", "f32[2,4]", "i32[2]"]),
            "input 1: the last dimension of shape [2,4] must be 5"
        );
        assert_eq!(
            case("1").infer_error(&["f32[1,1,2,2]", "f32[2,5]", "i32[3]"]),
            "input 2: shape [3] has 3 regions, but shape [2,5] of input 1 has 2"
        );
    }
}
