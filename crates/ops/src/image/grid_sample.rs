//! # GridSample
//! Samples images at the points of a grid.
//!
//! Specification: `image/grid-sample-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[N, C, H, W]` |
//! | in 1 | grid | f16 bf16 f32 f64 | `[N, H_out, W_out, 2]`: x, y in -1 to 1 |
//! | out 0 | | that of `data` | `[N, C, H_out, W_out]` |
//!
//! Coordinates are computed in f32 (in f64 for a grid of f64), weights and sums in f64, rounded once. `nearest` rounds halves to even. `reflection`
//! mirrors the positions of elements, at their borders without `align_corners` and at their centres with it. A bicubic
//! kernel has the coefficient -0.75.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, PartialShape, Shape, SmallVec};

use crate::common::interpolation::cubic_weights;
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of GridSample.
pub static GRID_SAMPLE: OpDef = OpDef {
    type_name: "GridSample",
    category: Category::Image,
    versions: &[OpVersion::new(9, (9, 16), (2, 2), (1, 1))],
    attributes: GridSampleAttributes::DEFINITIONS,
    build,
};

crate::attribute_enum! {
    /// How values between elements are found.
    pub enum GridSampleMode {
        /// The line between neighbours.
        #[default]
        Bilinear = "bilinear",
        /// Cubic convolution over four neighbours.
        Bicubic = "bicubic",
        /// The nearest element.
        Nearest = "nearest",
    }
}

crate::attribute_enum! {
    /// What lies outside of the image.
    pub enum GridSamplePadding {
        /// Zeros.
        #[default]
        Zeros = "zeros",
        /// The outermost elements.
        Border = "border",
        /// The image mirrored.
        Reflection = "reflection",
    }
}

crate::attributes! {
    /// Attributes of GridSample.
    pub struct GridSampleAttributes {
        /// Whether -1 and 1 are the centres of the outermost elements, not their outer borders.
        align_corners: bool = "align_corners", default "false";
        /// How values between elements are found.
        mode: GridSampleMode = "mode", default "bilinear";
        /// What lies outside of the image.
        padding_mode: GridSamplePadding = "padding_mode", default "zeros";
    }
}

/// A GridSample layer.
#[derive(Debug)]
pub struct GridSample {
    /// The attributes.
    pub attributes: GridSampleAttributes,
}

/// One axis of the image.
#[derive(Clone, Copy)]
struct Axis {
    size: i64,
    align_corners: bool,
    padding: GridSamplePadding,
    /// Whether coordinates are computed in f64.
    is_double: bool,
}

/// The elements that a coordinate takes along an axis, with weights; an element outside contributes zero.
type Taps = ([Option<usize>; 4], [f64; 4]);

impl Axis {
    fn coordinate(&self, value: f64) -> f64 {
        if self.is_double {
            let size = self.size as f64;
            return if self.align_corners {
                (value + 1.0) * (size - 1.0) / 2.0
            } else {
                ((value + 1.0) * size - 1.0) / 2.0
            };
        }
        let (value, size) = (value as f32, self.size as f32);
        f64::from(if self.align_corners {
            (value + 1.0) * (size - 1.0) / 2.0
        } else {
            ((value + 1.0) * size - 1.0) / 2.0
        })
    }

    /// The element that stands at a position inside or outside of the image.
    fn element(&self, position: i64) -> Option<usize> {
        let inside = match self.padding {
            GridSamplePadding::Zeros => position,
            GridSamplePadding::Border => position.clamp(0, self.size - 1),
            GridSamplePadding::Reflection if self.align_corners => {
                let period = (2 * (self.size - 1)).max(1);
                let phase = position.rem_euclid(period);
                if phase >= self.size { period - phase } else { phase }
            }
            GridSamplePadding::Reflection => {
                let phase = position.rem_euclid(2 * self.size);
                if phase >= self.size { 2 * self.size - 1 - phase } else { phase }
            }
        };
        usize::try_from(inside).ok().filter(|i| *i < self.size as usize)
    }

    fn taps(&self, value: f64, mode: GridSampleMode) -> Taps {
        let x = self.coordinate(value);
        let first = x.floor();
        let fraction = x - first;
        let at = |i: i64| self.element((first as i64).saturating_add(i));
        match mode {
            GridSampleMode::Nearest => {
                ([self.element(x.round_ties_even() as i64), None, None, None], [1.0, 0.0, 0.0, 0.0])
            }
            GridSampleMode::Bilinear => ([at(0), at(1), None, None], [1.0 - fraction, fraction, 0.0, 0.0]),
            GridSampleMode::Bicubic => ([at(-1), at(0), at(1), at(2)], cubic_weights(fraction, -0.75)),
        }
    }
}

impl Operation for GridSample {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        context.require_class(1, ElementClass::Float)?;
        context.require_rank(0, 4..=4)?;
        context.require_rank(1, 4..=4)?;
        let (data, grid) = (context.shape(0), context.shape(1));
        if !grid.dim(3).contains(2) {
            return Err(OpError::shape(Blame::Input(1), format!("the last dimension of shape {grid} must be 2")));
        }
        let batch = data.dim(0).merge(grid.dim(0)).ok_or_else(|| {
            let message = format!("shape {grid} has batch {}, but input 0 has {}", grid.dim(0), data.dim(0));
            OpError::shape(Blame::Input(1), message)
        })?;
        for axis in [2, 3] {
            if data.dim(axis).max() == 0 {
                return Err(OpError::shape(Blame::Input(0), format!("the image of shape {data} has no elements")));
            }
        }
        let dims = [batch, data.dim(1), grid.dim(1), grid.dim(2)];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, grid) = (context.input(0)?, context.input(1)?);
        let [batch, channels, height, width] = [data.shape()[0], data.shape()[1], data.shape()[2], data.shape()[3]];
        let points = grid.shape()[1] * grid.shape()[2];
        let shape = Shape::from([batch, channels, grid.shape()[1], grid.shape()[2]]);
        context.output(0, &shape)?;
        if height * width == 0 && shape.elements() > 0 {
            return Err(OpError::shape(Blame::Input(0), "an image without elements cannot be sampled"));
        }
        let (values, places) = (widened_view(data)?, widened_view(grid)?);
        let mut result = filled::<f64>(shape.elements())?;
        let axis = |size: usize| Axis {
            size: size as i64,
            align_corners: self.attributes.align_corners,
            padding: self.attributes.padding_mode,
            is_double: grid.element_type() == ElementType::F64,
        };
        let (xs, ys) = (axis(width), axis(height));
        for n in 0..batch {
            for p in 0..points {
                let place = &places[(n * points + p) * 2..][..2];
                let (columns, across) = xs.taps(place[0], self.attributes.mode);
                let (rows, down) = ys.taps(place[1], self.attributes.mode);
                let mut taps: SmallVec<[(usize, f64); 16]> = SmallVec::new();
                for (row, weight) in rows.iter().zip(down) {
                    let line = columns.iter().zip(across).filter_map(|(x, w)| Some((row.as_ref()? * width + (*x)?, w)));
                    taps.extend(line.map(|(place, w)| (place, weight * w)));
                }
                for c in 0..channels {
                    let plane = &values[(n * channels + c) * height * width..][..height * width];
                    let sum = taps.iter().fold(0.0, |sum, (place, weight)| sum + plane[*place] * weight);
                    result[(n * channels + c) * points + p] = sum;
                }
            }
        }
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(9)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GridSampleAttributes::read(context.attributes);
    Arc::new(GridSample { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn samples_between_elements() {
        let data = tensor(&[1f32, 2.0, 3.0, 4.0], [1, 1, 2, 2]);
        let grid = tensor(&[0f32, 0.0, -1.0, -1.0, 3.0, 0.0], [1, 1, 3, 2]);
        let corners = Case::new("GridSample", "opset9").attribute("align_corners", "true");
        let output = corners.run(&[data.clone(), grid.clone()]).unwrap();
        assert_eq!(output[0], tensor(&[2.5f32, 1.0, 0.0], [1, 1, 1, 3]));
        let border = Case::new("GridSample", "opset9").attribute("padding_mode", "border");
        assert_eq!(border.run(&[data, grid]).unwrap()[0], tensor(&[2.5f32, 1.0, 3.0], [1, 1, 1, 3]));
    }

    #[test]
    fn a_grid_of_f64_keeps_its_precision() {
        let data = tensor(&[0f64, 3.0], [1, 1, 1, 2]);
        let grid = tensor(&[1e-9f64, 0.0], [1, 1, 1, 2]);
        let case = Case::new("GridSample", "opset9").attribute("align_corners", "true");
        let output = case.run(&[data, grid]).unwrap();
        let value = output[0].slice::<f64>().unwrap()[0];
        assert!((value - 1.5 * (1.0 + 1e-9)).abs() < 1e-12, "{value}");
    }

    #[test]
    fn shapes_come_from_data_and_grid() {
        let case = Case::new("GridSample", "opset9");
        assert_eq!(case.infer(&["f32[?,3,8,8]", "f32[2,4..6,7,2]"]), ["f32[2,3,4..6,7]"]);
        assert_eq!(
            case.infer_error(&["f32[1,3,8,8]", "f32[1,4,4,3]"]),
            "input 1: the last dimension of shape [1,4,4,3] must be 2"
        );
    }
}
