//! # ExperimentalDetectronROIFeatureExtractor
//! Pools each region from the level of a feature pyramid that suits its size.
//!
//! Specification: `detection/experimental-detectron-roi-feature-extractor-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | rois | f16 bf16 f32 f64 | `[regions, 4]`: x1, y1, x2, y2 |
//! | in 1 and further | layers | that of `rois` | `[1, C, H, W]` each |
//! | out 0 | features | that of `rois` | `[regions, C, output_size, output_size]` |
//! | out 1 | rois | that of `rois` | `[regions, 4]` |
//!
//! A region lies on level `floor(2 + log2(sqrt(area) / 224))` of those that there are; the features of one without an area
//! are zero. Regions have at least one element, also when `aligned`. The specification speaks of reordered regions; as in
//! OpenVINO both outputs have the order of the input. Coordinates are computed in f32, sums in f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, TensorView, dispatch};

use crate::common::boxes::{common_dim, require_last};
use crate::common::elementwise::unsupported;
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::common::ranges::check_integer;
use crate::common::regions::{Samples, check_grid, check_map, sample};
use crate::common::window::{MAX_WINDOW_NUMBER, check_range};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The size of a region that lies on the canonical level.
const CANONICAL_SIZE: f32 = 224.0;

/// The level of regions of the canonical size.
const CANONICAL_LEVEL: f32 = 2.0;

/// The definition of ExperimentalDetectronROIFeatureExtractor.
pub static EXPERIMENTAL_DETECTRON_ROI_FEATURE_EXTRACTOR: OpDef = OpDef {
    type_name: "ExperimentalDetectronROIFeatureExtractor",
    category: Category::Detection,
    versions: &[OpVersion::new(6, (6, 16), (2, usize::MAX), (2, 2))],
    attributes: ExperimentalDetectronROIFeatureExtractorAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ExperimentalDetectronROIFeatureExtractor.
    pub struct ExperimentalDetectronROIFeatureExtractorAttributes {
        /// The height and width of the features.
        output_size: i64 = "output_size", required true;
        /// The samples of an output element along each axis; 0 takes as many as the region has elements.
        sampling_ratio: i64 = "sampling_ratio", required true;
        /// The size of the image divided by that of each layer; further ones are not used.
        pyramid_scales: Vec<i64> = "pyramid_scales", required true;
        /// Whether regions are shifted by half an element.
        aligned: bool = "aligned", default "false";
    }
}

/// An ExperimentalDetectronROIFeatureExtractor layer.
#[derive(Debug)]
pub struct ExperimentalDetectronROIFeatureExtractor {
    /// The attributes.
    pub attributes: ExperimentalDetectronROIFeatureExtractorAttributes,
}

impl ExperimentalDetectronROIFeatureExtractor {
    /// The height and width of the features.
    #[must_use]
    pub fn size(&self) -> usize {
        self.attributes.output_size.max(0) as usize
    }

    /// The layer that a region (x1, y1, x2, y2) comes from, by number, and its samples of the lines and the columns of that
    /// layer; layers have these heights and widths. `None` if the region has no area.
    ///
    /// # Errors
    /// When there are too many samples.
    pub fn grid(&self, corners: [f64; 4], layers: &[[usize; 2]]) -> OpResult<Option<(usize, Samples, Samples)>> {
        let Some(level) = level_of(&corners, layers.len()) else { return Ok(None) };
        let [height, width] = layers[level];
        let columns = self.samples(level, corners[0], corners[2], width)?;
        let rows = self.samples(level, corners[1], corners[3], height)?;
        check_grid(&rows, &columns)?;
        Ok(Some((level, rows, columns)))
    }

    /// The samples along an axis of a layer.
    fn samples(&self, level: usize, start: f64, end: f64, size: usize) -> OpResult<Samples> {
        let scale = 1.0 / self.attributes.pyramid_scales.get(level).copied().unwrap_or(1) as f32;
        let offset = if self.attributes.aligned { 0.5 } else { 0.0 };
        let place = |x: f64| x as f32 * scale - offset;
        let first = place(start);
        let extent = (place(end) - first).max(1.0);
        Samples::new(first, extent, self.size(), self.attributes.sampling_ratio, size)
    }

    /// The features of a region of a layer.
    fn pool(&self, layer: TensorView<'_>, (rows, columns): (&Samples, &Samples), features: &mut [f64]) -> OpResult {
        let (height, width) = (layer.shape()[2], layer.shape()[3]);
        let (size, count) = (self.size(), (rows.per_bin * columns.per_bin) as f64);
        let element_type = layer.element_type();
        dispatch!(element_type, T in [float] => {
            let planes = layer.slice::<T>()?.chunks_exact((height * width).max(1));
            for (plane, target) in planes.zip(features.chunks_exact_mut((size * size).max(1))) {
                for (i, target) in target.iter_mut().enumerate() {
                    let (down, across) = (rows.of_bin(i / size), columns.of_bin(i % size));
                    // Samples outside of the map are zero.
                    let across = || across.iter().flatten();
                    let down = down.iter().flatten();
                    let values = down.flat_map(|y| across().map(|x| sample(plane, width, Some(*y), Some(*x))));
                    *target = values.sum::<f64>() / count;
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }
}

impl Operation for ExperimentalDetectronROIFeatureExtractor {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let layers = context.input_count().saturating_sub(1);
        context.require_class(0, ElementClass::Float)?;
        let ports: Vec<usize> = (0..=layers).collect();
        let element_type = context.require_same_type(&ports)?;
        require_last(context, 0, 1, 4)?;
        if self.attributes.pyramid_scales.len() < layers {
            let scales = self.attributes.pyramid_scales.len();
            let message = format!("`pyramid_scales` has {scales} numbers for {layers} layers");
            return Err(OpError::attribute("pyramid_scales", message));
        }
        for port in 1..=layers {
            context.require_rank(port, 4..=4)?;
            let shape = context.shape(port);
            if !shape.dim(0).contains(1) {
                let message = format!("the first dimension of shape {shape} must be 1");
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        let places: Vec<(usize, usize)> = (1..=layers).map(|port| (port, 1)).collect();
        let channels = common_dim(context, &places, "channels")?;
        let (regions, size) = (context.shape(0).dim(0), Dim::fixed(self.size()));
        context.set_output(0, element_type, PartialShape::from_dims([regions, channels, size, size]));
        context.set_output(1, element_type, PartialShape::from_dims([regions, Dim::fixed(4)]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let rois = context.input(0)?;
        let levels = context.input_count() - 1;
        let channels = context.input(1)?.shape()[1];
        let shape = Shape::from([rois.shape()[0], channels, self.size(), self.size()]);
        context.output(0, &shape)?;
        let boxes = widened_view(rois)?;
        let mut features = filled::<f64>(shape.elements())?;
        let per_region = channels * self.size() * self.size();
        let layer = |port: usize| context.input(port).map(|layer| [layer.shape()[2], layer.shape()[3]]);
        let layers = (1..=levels).map(layer).collect::<OpResult<Vec<[usize; 2]>>>()?;
        for (region, target) in boxes.as_chunks::<4>().0.iter().zip(features.chunks_exact_mut(per_region.max(1))) {
            let Some((level, rows, columns)) = self.grid(*region, &layers)? else { continue };
            check_map(context, level + 1, &shape)?;
            self.pool(context.input(level + 1)?, (&rows, &columns), target)?;
            context.environment().poll()?;
        }
        write_rounded(context.output(0, &shape)?, &features)?;
        if context.output_count() > 1 {
            let mut target = context.output(1, rois.shape())?;
            target.bytes_mut().copy_from_slice(rois.bytes());
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(6)
    }
}

/// The level of a region; none if it has no area.
fn level_of(region: &[f64], levels: usize) -> Option<usize> {
    let side = |i: usize| region[i + 2] as f32 - region[i] as f32;
    let area = side(0) * side(1);
    if area.is_nan() || area <= 0.0 {
        return None;
    }
    // The summand keeps the logarithm finite, as in OpenVINO.
    let level = (libm::log2f(area.sqrt() / CANONICAL_SIZE + 1e-6) + CANONICAL_LEVEL).floor();
    Some((level.max(0.0) as usize).min(levels - 1))
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ExperimentalDetectronROIFeatureExtractorAttributes::read(context.attributes);
    check_integer(context.attributes, "output_size", attributes.output_size, 1..=MAX_WINDOW_NUMBER);
    check_integer(context.attributes, "sampling_ratio", attributes.sampling_ratio, 0..=MAX_WINDOW_NUMBER);
    check_range(context.attributes, "pyramid_scales", &attributes.pyramid_scales, 1);
    Arc::new(ExperimentalDetectronROIFeatureExtractor { attributes })
}

#[cfg(test)]
mod tests {
    use super::level_of;
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(size: &str, scales: &str) -> Case {
        Case::new("ExperimentalDetectronROIFeatureExtractor", "opset6")
            .attribute("output_size", size)
            .attribute("sampling_ratio", "2")
            .attribute("pyramid_scales", scales)
            .outputs(2)
    }

    #[test]
    fn regions_find_their_level() {
        let level = |side: f64, levels: usize| level_of(&[0.0, 0.0, side, side], levels);
        assert_eq!(
            [224.0, 111.0, 448.0, 1.0, 5000.0].map(|side| level(side, 4)),
            [Some(2), Some(0), Some(3), Some(0), Some(3)]
        );
        assert_eq!(level(0.0, 4), None);
        assert_eq!(level_of(&[0.0, 0.0, f64::NAN, 1.0], 4), None);
    }

    #[test]
    fn features_come_from_the_level() {
        let rois = [0f32, 0.0, 4.0, 4.0, 0.0, 0.0, 300.0, 300.0, 2.0, 2.0, 2.0, 4.0];
        let rois = tensor(&rois, [3, 4]);
        let fine = tensor(&[0f32, 1.0, 2.0, 3.0], [1, 1, 2, 2]);
        let coarse: Vec<f32> = vec![5.0; 9];
        let inputs = [rois.clone(), fine.clone(), fine, tensor(&coarse, [1, 1, 3, 3])];
        let outputs = case("1", "4,8,100").run(&inputs).unwrap();
        assert_eq!(outputs[0], tensor(&[1.5f32, 5.0, 0.0], [3, 1, 1, 1]));
        assert_eq!(outputs[1], rois);
    }

    #[test]
    fn the_example_of_the_specification() {
        let layers = ["f32[1,256,200,336]", "f32[1,256,100,168]", "f32[1,256,50,84]", "f32[1,256,25,42]"];
        let inputs: Vec<&str> = std::iter::once("f32[1000,4]").chain(layers).collect();
        assert_eq!(case("7", "4,8,16,32,64").infer(&inputs), ["f32[1000,256,7,7]", "f32[1000,4]"]);
        case("7", "4,8,16,32,64").assert_monotone(&inputs);
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case("7", "4").infer_error(&["f32[10,4]", "f32[1,2,8,8]", "f32[1,2,4,4]"]),
            "attribute `pyramid_scales`: `pyramid_scales` has 1 numbers for 2 layers"
        );
        assert_eq!(
            case("7", "4,8").infer_error(&["f32[10,4]", "f32[1,2,8,8]", "f32[1,3,4,4]"]),
            "input 2: shape [1,3,4,4] has 3 channels, but shape [1,2,8,8] of input 1 has 2"
        );
        assert_eq!(
            case("7", "4").infer_error(&["f32[10,4]", "f32[2,2,8,8]"]),
            "input 1: the first dimension of shape [2,2,8,8] must be 1"
        );
        assert_eq!(case("0", "0").attribute_errors(2).len(), 2);
    }
}
