//! # ExperimentalDetectronPriorGridGenerator
//! Repeats prior boxes in every cell of a grid.
//!
//! Specification: `detection/experimental-detectron-prior-grid-generator-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | priors | f16 bf16 f32 f64 | `[priors, 4]`: x1, y1, x2, y2 |
//! | in 1 | feature_map | that of `priors` | `[1, C, H, W]`; only its sizes matter |
//! | in 2 | image | that of `priors` | `[1, C', height, width]`; only its sizes matter |
//! | out 0 | | that of `priors` | `[H * W * priors, 4]`, or `[H, W, priors, 4]` without `flatten` |
//!
//! The cells are those of the feature map, or `h * w` where the attributes say so. In the latter case there may be fewer
//! boxes than rows: the boxes stand at the beginning, without gaps, and zeros behind them (the specification leaves open
//! what stands there). The specification wants equal numbers of channels and has an example where they differ; as in
//! OpenVINO they may.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, dispatch};

use crate::common::boxes::{common_dim, require_last};
use crate::common::elementwise::unsupported;
use crate::common::memory::widened_view;
use crate::common::number::Number;
use crate::common::ranges::{check_integer, check_number};
use crate::common::window::MAX_WINDOW_NUMBER;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ExperimentalDetectronPriorGridGenerator.
pub static EXPERIMENTAL_DETECTRON_PRIOR_GRID_GENERATOR: OpDef = OpDef {
    type_name: "ExperimentalDetectronPriorGridGenerator",
    category: Category::Detection,
    versions: &[OpVersion::new(6, (6, 16), (3, 3), (1, 1))],
    attributes: ExperimentalDetectronPriorGridGeneratorAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of ExperimentalDetectronPriorGridGenerator.
    pub struct ExperimentalDetectronPriorGridGeneratorAttributes {
        /// Whether all boxes stand in one list.
        flatten: bool = "flatten", default "true";
        /// The cells of the grid along the height; 0 takes those of the feature map.
        h: i64 = "h", default "0";
        /// The cells of the grid along the width; 0 takes those of the feature map.
        w: i64 = "w", default "0";
        /// The distance between cells along the width, in pixels; 0 divides the image by the cells.
        stride_x: f32 = "stride_x", default "0";
        /// The distance between cells along the height, in pixels; 0 divides the image by the cells.
        stride_y: f32 = "stride_y", default "0";
    }
}

/// An ExperimentalDetectronPriorGridGenerator layer.
#[derive(Debug)]
pub struct ExperimentalDetectronPriorGridGenerator {
    /// The attributes.
    pub attributes: ExperimentalDetectronPriorGridGeneratorAttributes,
}

impl ExperimentalDetectronPriorGridGenerator {
    /// The cells along an axis of the feature map.
    fn cells(given: i64, size: usize) -> usize {
        if given > 0 { (given as usize).min(size) } else { size }
    }

    fn output_shape(&self, rows: usize, columns: usize, priors: usize) -> Shape {
        match self.attributes.flatten {
            true => Shape::from([rows.saturating_mul(columns).saturating_mul(priors), 4]),
            false => Shape::from([rows, columns, priors, 4]),
        }
    }
}

impl Operation for ExperimentalDetectronPriorGridGenerator {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        let element_type = context.require_same_type(&[0, 1, 2])?;
        require_last(context, 0, 1, 4)?;
        context.require_rank(1, 4..=4)?;
        context.require_rank(2, 4..=4)?;
        common_dim(context, &[(1, 0), (2, 0)], "images")?;
        let map = context.shape(1);
        for (name, given, axis) in [("h", self.attributes.h, 2), ("w", self.attributes.w, 3)] {
            if given > map.dim(axis).max() {
                let message = format!("`{name}` is {given}, more than the cells of the feature map of shape {map}");
                return Err(OpError::shape(Blame::attribute(name), message));
            }
        }
        let (rows, columns, priors) = (map.dim(2), map.dim(3), context.shape(0).dim(0));
        let four = Dim::fixed(4);
        let shape = match self.attributes.flatten {
            true => PartialShape::from_dims([rows * columns * priors, four]),
            false => PartialShape::from_dims([rows, columns, priors, four]),
        };
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (map, image) = (context.input(1)?.shape(), context.input(2)?.shape());
        let priors = widened_view(context.input(0)?)?;
        let shape = self.output_shape(map[2], map[3], priors.len() / 4);
        context.output(0, &shape)?;
        let rows = ExperimentalDetectronPriorGridGenerator::cells(self.attributes.h, map[2]);
        let columns = ExperimentalDetectronPriorGridGenerator::cells(self.attributes.w, map[3]);
        let step = |stride: f32, size: usize, cells: usize| match stride {
            0.0 => size as f32 / cells as f32,
            _ => stride,
        };
        let step_y = step(self.attributes.stride_y, image[2], rows);
        let step_x = step(self.attributes.stride_x, image[3], columns);
        let mut output = context.output(0, &shape)?;
        let element_type = output.element_type();
        dispatch!(element_type, T in [numeric] => {
            let line = columns * priors.len();
            let target = output.slice_mut::<T>()?;
            let (boxes, rest) = target.split_at_mut(rows.saturating_mul(line).min(target.len()));
            for (row, boxes) in boxes.chunks_exact_mut(line.max(1)).enumerate() {
                let y = f64::from(step_y * (row as f32 + 0.5));
                for (column, boxes) in boxes.chunks_exact_mut(priors.len()).enumerate() {
                    let x = f64::from(step_x * (column as f32 + 0.5));
                    for (target, prior) in boxes.as_chunks_mut::<4>().0.iter_mut().zip(priors.as_chunks::<4>().0) {
                        target[0] = <T as Number>::from_f64(prior[0] + x);
                        target[1] = <T as Number>::from_f64(prior[1] + y);
                        target[2] = <T as Number>::from_f64(prior[2] + x);
                        target[3] = <T as Number>::from_f64(prior[3] + y);
                    }
                }
            }
            // Cells of the feature map that the grid does not have.
            rest.fill(<T as Number>::from_f64(0.0));
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(6)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = ExperimentalDetectronPriorGridGeneratorAttributes::read(context.attributes);
    check_integer(context.attributes, "h", attributes.h, 0..=MAX_WINDOW_NUMBER);
    check_integer(context.attributes, "w", attributes.w, 0..=MAX_WINDOW_NUMBER);
    check_number(context.attributes, "stride_x", attributes.stride_x, 0.0..=f32::INFINITY);
    check_number(context.attributes, "stride_y", attributes.stride_y, 0.0..=f32::INFINITY);
    Arc::new(ExperimentalDetectronPriorGridGenerator { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("ExperimentalDetectronPriorGridGenerator", "opset6")
    }

    fn inputs() -> Vec<Tensor> {
        let priors = tensor(&[-1f32, -2.0, 1.0, 2.0], [1, 4]);
        vec![priors, tensor(&[0f32; 4], [1, 1, 2, 2]), tensor(&[0f32; 32], [1, 1, 8, 4])]
    }

    #[test]
    fn priors_in_every_cell() {
        let expected = [0f32, 0.0, 2.0, 4.0, 2.0, 0.0, 4.0, 4.0, 0.0, 4.0, 2.0, 8.0, 2.0, 4.0, 4.0, 8.0];
        assert_eq!(case().run(&inputs()).unwrap()[0], tensor(&expected, [4, 4]));
        let grid = case().attribute("flatten", "false").run(&inputs()).unwrap();
        assert_eq!(grid[0], tensor(&expected, [2, 2, 1, 4]));
    }

    #[test]
    fn fewer_cells_than_the_map_has() {
        let case = case().attribute("w", "1").attribute("stride_x", "2").attribute("stride_y", "4");
        let expected = [0f32, 0.0, 2.0, 4.0, 0.0, 4.0, 2.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(case.run(&inputs()).unwrap()[0], tensor(&expected, [4, 4]));
    }

    #[test]
    fn the_example_of_the_specification() {
        let inputs = ["f32[3,4]", "f32[1,256,25,42]", "f32[1,3,800,1344]"];
        assert_eq!(case().infer(&inputs), ["f32[3150,4]"]);
        case().assert_monotone(&inputs);
        assert_eq!(case().attribute("flatten", "false").infer(&["f32[?,4]", inputs[1], inputs[2]]), ["f32[25,42,?,4]"]);
    }

    #[test]
    fn violations_are_named() {
        assert_eq!(
            case().attribute("h", "26").infer_error(&["f32[3,4]", "f32[1,256,25,42]", "f32[1,3,800,1344]"]),
            "attribute `h`: `h` is 26, more than the cells of the feature map of shape [1,256,25,42]"
        );
        assert_eq!(
            case().infer_error(&["f32[3,5]", "f32[1,256,25,42]", "f32[1,3,800,1344]"]),
            "input 0: the last dimension of shape [3,5] must be 4"
        );
        assert_eq!(
            case().infer_error(&["f32[3,4]", "f32[1,256,25,42]", "f32[2,3,800,1344]"]),
            "input 2: shape [2,3,800,1344] has 2 images, but shape [1,256,25,42] of input 1 has 1"
        );
        assert_eq!(
            case().attribute("stride_x", "-1").attribute_errors(3),
            ["attribute `stride_x`: `stride_x` -1 must be a number of at least 0"]
        );
    }
}
