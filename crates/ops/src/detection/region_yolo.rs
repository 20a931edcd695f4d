//! # RegionYolo
//! Turns the last feature map of a YOLO network into coordinates, objectness and class scores.
//!
//! Specification: `detection/region-yolo-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, C, H, W]` |
//! | out 0 | | that of `data` | that of `data` with the axes `axis` to `end_axis` joined under `do_softmax`, else `[N, (classes + coords + 1) * mask items, H, W]` |
//!
//! Each region has `coords` coordinates, one objectness and `classes` scores. The first two coordinates and the objectness
//! go through the sigmoid; the scores through the sigmoid too, or through softmax with `do_softmax`. `anchors` are not used.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use crate::common::memory::{widened_view, write_rounded};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of RegionYolo.
pub static REGION_YOLO: OpDef = OpDef {
    type_name: "RegionYolo",
    category: Category::Detection,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: RegionYoloAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of RegionYolo.
    pub struct RegionYoloAttributes {
        /// The sizes of the anchors; not used.
        anchors: Vec<f32> = "anchors", default "";
        /// The first axis that is joined.
        axis: i64 = "axis", required true;
        /// The coordinates of a region.
        coords: i64 = "coords", required true;
        /// The classes.
        classes: i64 = "classes", required true;
        /// The last axis that is joined.
        end_axis: i64 = "end_axis", required true;
        /// The regions under `do_softmax`.
        num: i64 = "num", required true;
        /// Whether class scores go through softmax.
        do_softmax: bool = "do_softmax", default "true";
        /// The anchors that the layer serves; their number is that of the regions without `do_softmax`.
        mask: Vec<i64> = "mask", default "";
    }
}

/// A RegionYolo layer.
#[derive(Debug)]
pub struct RegionYolo {
    /// The attributes.
    pub attributes: RegionYoloAttributes,
}

impl RegionYolo {
    /// The regions of an image.
    #[must_use]
    pub fn regions(&self) -> usize {
        if self.attributes.do_softmax { self.attributes.num.max(0) as usize } else { self.attributes.mask.len() }
    }

    /// The coordinates, the objectness and the classes of a region.
    #[must_use]
    pub fn entries(&self) -> usize {
        (self.attributes.coords.max(0) as usize)
            .saturating_add(self.attributes.classes.max(0) as usize)
            .saturating_add(1)
    }

    fn joined(&self, dims: &[Dim]) -> OpResult<PartialShape> {
        let rank = dims.len();
        let first = normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
        let last = normalize_axis(self.attributes.end_axis, rank, Blame::attribute("end_axis"))?;
        if last < first {
            let message = format!("`end_axis` {last} lies before `axis` {first}");
            return Err(OpError::attribute("end_axis", message));
        }
        let product = dims[first..=last].iter().fold(Dim::fixed(1), |p, d| p * *d);
        let mut joined: SmallVec<[Dim; 8]> = SmallVec::from_slice(&dims[..first]);
        joined.push(product);
        joined.extend_from_slice(&dims[last + 1..]);
        Ok(PartialShape::from_dims(joined))
    }

    fn activate(&self, plane: usize, entries: &mut [f64]) {
        let (coords, do_softmax) = (self.attributes.coords.max(0) as usize, self.attributes.do_softmax);
        for (entry, values) in entries.chunks_exact_mut(plane).enumerate() {
            if entry < coords.min(2) || entry == coords || (entry > coords && !do_softmax) {
                values.iter_mut().for_each(|v| *v = 1.0 / (1.0 + (-*v).exp()));
            }
        }
        if !do_softmax {
            return;
        }
        let scores = &mut entries[(coords + 1) * plane..];
        for i in 0..plane {
            let largest = scores[i..].iter().step_by(plane).copied().fold(f64::NEG_INFINITY, f64::max);
            let mut sum = 0.0;
            for score in scores[i..].iter_mut().step_by(plane) {
                *score = (*score - largest).exp();
                sum += *score;
            }
            scores[i..].iter_mut().step_by(plane).for_each(|score| *score /= sum);
        }
    }
}

impl Operation for RegionYolo {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Float)?;
        context.require_rank(0, 4..=4)?;
        let data = context.shape(0);
        let wanted = self.entries().saturating_mul(self.regions());
        let channels = data.dim(1);
        let fits = if self.attributes.do_softmax { channels.contains(wanted) } else { channels.max() >= wanted as i64 };
        if !fits {
            let message = format!("shape {data} has {channels} channels; the attributes ask for {wanted}");
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let dims = [data.dim(0), channels, data.dim(2), data.dim(3)];
        let shape = match self.attributes.do_softmax {
            true if data.rank().is_none() => PartialShape::DYNAMIC,
            true => self.joined(&dims)?,
            false => PartialShape::from_dims([dims[0], Dim::fixed(wanted), dims[2], dims[3]]),
        };
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let dims: SmallVec<[Dim; 8]> = data.shape().iter().map(|d| Dim::fixed(*d)).collect();
        let [batch, channels, plane] = [data.shape()[0], data.shape()[1], data.shape()[2] * data.shape()[3]];
        let wanted = self.entries().saturating_mul(self.regions());
        let shape = match self.attributes.do_softmax {
            true => self.joined(&dims)?.to_shape().unwrap_or_default(),
            false => Shape::from([batch, wanted, data.shape()[2], data.shape()[3]]),
        };
        context.output(0, &shape)?;
        let source = widened_view(data)?;
        let mut values = Vec::with_capacity(shape.elements().min(source.len()));
        for image in source.chunks_exact((channels * plane).max(1)) {
            values.extend_from_slice(&image[..(wanted * plane).min(image.len())]);
        }
        let region = self.entries() * plane;
        if region > 0 {
            values.chunks_exact_mut(region).for_each(|entries| self.activate(plane, entries));
        }
        write_rounded(context.output(0, &shape)?, &values)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = RegionYoloAttributes::read(context.attributes);
    for (name, value) in [("coords", attributes.coords), ("classes", attributes.classes), ("num", attributes.num)] {
        if !(0..=MAX_WINDOW_NUMBER).contains(&value) {
            let message = format!("`{name}` {value} is out of range [0, {MAX_WINDOW_NUMBER}]");
            context.attributes.report(OpError::attribute(name, message));
        }
    }
    Arc::new(RegionYolo { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(do_softmax: &str) -> Case {
        Case::new("RegionYolo", "opset1")
            .attribute("axis", "1")
            .attribute("end_axis", "3")
            .attribute("coords", "4")
            .attribute("classes", "2")
            .attribute("num", "1")
            .attribute("mask", "0")
            .attribute("do_softmax", do_softmax)
    }

    #[test]
    fn shapes_join_under_softmax() {
        assert_eq!(case("true").infer(&["f32[1,7,13,?]"]), ["f32[1,?]"]);
        assert_eq!(case("false").infer(&["f32[1,9,13,?]"]), ["f32[1,7,13,?]"]);
        assert_eq!(
            case("true").infer_error(&["f32[1,8,13,13]"]),
            "input 0: shape [1,8,13,13] has 8 channels; the attributes ask for 7"
        );
    }

    #[test]
    fn scores_are_normalised() {
        let data = tensor(&[0f32, 0.0, 5.0, 6.0, 0.0, 1.0, 1.0], [1, 7, 1, 1]);
        let output = case("true").run(&[data]).unwrap();
        assert_eq!(output[0], tensor(&[0.5f32, 0.5, 5.0, 6.0, 0.5, 0.5, 0.5], [1, 7]));
    }
}
