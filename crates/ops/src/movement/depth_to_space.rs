//! # DepthToSpace
//! Channels rearranged into blocks of the spatial axes.
//!
//! Specification: `movement/depth-to-space-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | `[N, C, D1, ..., DK]`, `C` divisible by `block_size^K` |
//! | out 0 | | that of `data` | `[N, C / block_size^K, D1 * block_size, ..., DK * block_size]` |

use std::sync::Arc;

use ovir_tensor::{Dim, INFINITE, PartialShape, Shape, SmallVec};

use crate::common::movement::{View, evaluate_view, exact_shape};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// Where the block is found among the channels.
    pub enum DepthMode {
        /// The position within the block changes slowest.
        #[default]
        BlocksFirst = "blocks_first",
        /// The position within the block changes fastest.
        DepthFirst = "depth_first",
    }
}

crate::attributes! {
    /// The attributes of DepthToSpace and SpaceToDepth.
    pub struct DepthSpaceAttributes {
        /// The size of the block along each spatial axis.
        block_size: i64 = "block_size", default "1";
        /// Where the block is found among the channels.
        mode: DepthMode = "mode", required true;
    }
}

/// The definition of DepthToSpace.
pub static DEPTH_TO_SPACE: OpDef = OpDef {
    type_name: "DepthToSpace",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (1, 1), (1, 1))],
    attributes: DepthSpaceAttributes::DEFINITIONS,
    build,
};

/// A DepthToSpace layer.
#[derive(Debug)]
pub struct DepthToSpace {
    /// The attributes.
    pub attributes: DepthSpaceAttributes,
}

impl Operation for DepthToSpace {
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

impl DepthSpaceAttributes {
    /// Reads the attributes and checks their range.
    pub(super) fn read_checked(context: &mut BuildContext<'_, '_>) -> DepthSpaceAttributes {
        let mut attributes = DepthSpaceAttributes::read(context.attributes);
        if attributes.block_size <= 0 {
            let message = format!("{} must be positive", attributes.block_size);
            context.attributes.report(OpError::attribute("block_size", message));
            attributes.block_size = 1;
        }
        attributes
    }

    /// The number of elements of a block in a tensor of `rank`.
    pub(super) fn block_elements(&self, rank: usize) -> i64 {
        (2..rank).fold(1i64, |product, _| product.saturating_mul(self.block_size))
    }
}

impl DepthToSpace {
    fn output_shape(&self, input: &PartialShape) -> OpResult<PartialShape> {
        let Some(dims) = input.dims() else { return Ok(PartialShape::DYNAMIC) };
        let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(dims);
        let block = self.attributes.block_elements(dims.len());
        output[1] = divided(dims[1], block, 1, input)?;
        for dim in &mut output[2..] {
            *dim = *dim * Dim::interval(self.attributes.block_size, self.attributes.block_size);
        }
        Ok(PartialShape::from_dims(output))
    }

    /// The output as its elements lie in the data, for shapes that fit.
    pub fn view(&self, input: &Shape, output: Shape) -> View {
        let (spatial, block) = (input.rank() - 2, self.attributes.block_size as usize);
        let blocks = std::iter::repeat_n(block, spatial);
        let mut split: SmallVec<[usize; 16]> = SmallVec::from_slice(&input[..1]);
        let is_blocks_first = self.attributes.mode == DepthMode::BlocksFirst;
        // The channels are split into the block and what remains, in the order of the mode.
        if is_blocks_first {
            split.extend(blocks);
            split.push(output[1]);
        } else {
            split.push(output[1]);
            split.extend(blocks);
        }
        split.extend_from_slice(&input[2..]);
        let (channels, first_block) = if is_blocks_first { (spatial + 1, 1) } else { (1, 2) };
        let mut order: SmallVec<[usize; 16]> = SmallVec::from_slice(&[0, channels]);
        for i in 0..spatial {
            order.extend([spatial + 2 + i, first_block + i]);
        }
        View::permuted(output, &split, &order)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(DepthToSpace { attributes: DepthSpaceAttributes::read_checked(context) })
}

/// A dimension divided by a number that must divide it.
pub(super) fn divided(dim: Dim, by: i64, axis: usize, shape: &PartialShape) -> OpResult<Dim> {
    let high = if dim.max() == INFINITE { INFINITE } else { dim.max() / by };
    let low = dim.div_ceil(by).min();
    if low > high {
        let message = format!("the size {dim} of axis {axis} of shape {shape} is not divisible by {by} (block_size)");
        return Err(OpError::shape(Blame::Input(0), message));
    }
    Ok(if by == 1 { dim } else { Dim::interval(low, high) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(type_name: &str, mode: &str) -> Case {
        Case::new(type_name, "opset1").attribute("block_size", "2").attribute("mode", mode)
    }

    #[test]
    fn rearranges_both_ways() {
        let data = tensor(&(0..8).collect::<Vec<i32>>(), [1, 8, 1, 1]);
        let blocks = case("DepthToSpace", "blocks_first").run(std::slice::from_ref(&data)).unwrap().remove(0);
        assert_eq!(blocks, tensor(&[0, 2, 4, 6, 1, 3, 5, 7], [1, 2, 2, 2]));
        let depth = case("DepthToSpace", "depth_first").run(std::slice::from_ref(&data)).unwrap().remove(0);
        assert_eq!(depth, tensor(&[0, 1, 2, 3, 4, 5, 6, 7], [1, 2, 2, 2]));
        let data = tensor(&(0..96).collect::<Vec<i32>>(), [2, 8, 2, 3]);
        for mode in ["blocks_first", "depth_first"] {
            let there = case("DepthToSpace", mode).run(std::slice::from_ref(&data)).unwrap();
            assert_eq!(case("SpaceToDepth", mode).run(&there).unwrap()[0], data);
        }
    }

    #[test]
    fn shapes() {
        assert_eq!(case("DepthToSpace", "depth_first").infer(&["f32[5,28,2,3]"]), ["f32[5,7,4,6]"]);
        assert_eq!(case("DepthToSpace", "depth_first").infer(&["f32[?,8..30,?,3,1]"]), ["f32[?,1..3,?,6,2]"]);
        assert_eq!(case("SpaceToDepth", "depth_first").infer(&["f32[5,7,4,6]"]), ["f32[5,28,2,3]"]);
        assert_eq!(
            case("DepthToSpace", "depth_first").infer_error(&["f32[5,6,2,3]"]),
            "input 0: the size 6 of axis 1 of shape [5,6,2,3] is not divisible by 4 (block_size)"
        );
        assert_eq!(
            case("SpaceToDepth", "depth_first").infer_error(&["f32[5,6,3]"]),
            "input 0: the size 3 of axis 2 of shape [5,6,3] is not divisible by 2 (block_size)"
        );
    }
}
