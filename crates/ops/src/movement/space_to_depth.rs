//! # SpaceToDepth
//! Blocks of the spatial axes rearranged into channels.
//!
//! Specification: `movement/space-to-depth-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | `[N, C, D1, ..., DK]`, each `D` divisible by `block_size` |
//! | out 0 | | that of `data` | `[N, C * block_size^K, D1 / block_size, ..., DK / block_size]` |

use std::sync::Arc;

use ovir_tensor::{Dim, PartialShape, Shape, SmallVec};

use super::depth_to_space::{DepthMode, DepthSpaceAttributes, divided};
use crate::common::movement::{View, evaluate_view, exact_shape};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of SpaceToDepth.
pub static SPACE_TO_DEPTH: OpDef = OpDef {
    type_name: "SpaceToDepth",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: DepthSpaceAttributes::DEFINITIONS,
    build,
};

/// A SpaceToDepth layer.
#[derive(Debug)]
pub struct SpaceToDepth {
    /// The attributes.
    pub attributes: DepthSpaceAttributes,
}

impl Operation for SpaceToDepth {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_rank(0, 3..=usize::MAX)?;
        let shape = self.output_shape(context.shape(0))?;
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?.shape();
        let output = exact_shape(&self.output_shape(&PartialShape::from(input))?)?;
        evaluate_view(context, 0, &self.view(input, output))
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

impl SpaceToDepth {
    fn output_shape(&self, input: &PartialShape) -> OpResult<PartialShape> {
        let Some(dims) = input.dims() else { return Ok(PartialShape::DYNAMIC) };
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(dims);
        let block = self.attributes.block_elements(dims.len());
        output[1] = dims[1] * Dim::interval(block, block);
        for axis in 2..dims.len() {
            output[axis] = divided(dims[axis], self.attributes.block_size, axis, input)?;
        }
        Ok(PartialShape::from_dims(output))
    }

    /// The output as its elements lie in the data, for shapes that fit.
    pub fn view(&self, input: &Shape, output: Shape) -> View {
        let (spatial, block) = (input.rank() - 2, self.attributes.block_size as usize);
        let mut split: SmallVec<[usize; 16]> = SmallVec::from_slice(&input[..2]);
        for size in &output[2..] {
            split.extend([*size, block]);
        }
        let blocks = (0..spatial).map(|i| 3 + 2 * i);
        let mut order: SmallVec<[usize; 16]> = SmallVec::from_slice(&[0]);
        if self.attributes.mode == DepthMode::BlocksFirst {
            order.extend(blocks);
            order.push(1);
        } else {
            order.push(1);
            order.extend(blocks);
        }
        order.extend((0..spatial).map(|i| 2 + 2 * i));
        View::permuted(output, &split, &order)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SpaceToDepth { attributes: DepthSpaceAttributes::read_checked(context) })
}
