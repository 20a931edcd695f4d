//! # BatchToSpace
//! Batches interleaved into blocks of the spatial axes, then cropped: the reverse of SpaceToBatch.
//!
//! Specification: `movement/batch-to-space-2`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | `[batch, D1, ...]`, rank at least 2 |
//! | in 1 | block_shape | any integer type | `[rank]`, positive, the first 1 |
//! | in 2 | crops_begin | any integer type | `[rank]`, not negative, the first 0 |
//! | in 3 | crops_end | any integer type | `[rank]`, not negative, the first 0 |
//! | out 0 | | that of `data` | `[batch / product of blocks, D1 * block - crops, ...]` |

use std::sync::Arc;

use ovir_tensor::{Dim, INFINITE, PartialShape, Shape, SmallVec};

use super::space_to_batch::{BlockParameters, at_least, divide, for_each_block, grid_range};
use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell, exact_shape};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of BatchToSpace.
pub static BATCH_TO_SPACE: OpDef = OpDef {
    type_name: "BatchToSpace",
    category: Category::Movement,
    versions: &[OpVersion::new(2, (2, 16), (4, 4), (1, 1))],
    attributes: &[],
    build,
};

/// A BatchToSpace layer.
#[derive(Debug)]
pub struct BatchToSpace;

impl Operation for BatchToSpace {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        let Some(parameters) = BlockParameters::infer(context)? else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let dims: SmallVec<[Dim; 8]> = (0..parameters.block.len()).map(|i| context.shape(0).dim(i)).collect();
        context.set_output(0, element_type, output_shape(&dims, &parameters)?);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let input = data.shape();
        let parameters = BlockParameters::read(context)?;
        let dims: SmallVec<[Dim; 8]> = input.iter().map(|size| Dim::fixed(*size)).collect();
        let shape = exact_shape(&output_shape(&dims, &parameters)?)?;
        let block = parameters.block_sizes();
        let mut output = context.output(0, &shape)?;
        let (source_strides, target_strides) = (Strided::dense(input).strides, Strided::dense(&shape).strides);
        dispatch_cell!(data.element_type(), C => {
            let target = C::target(&mut output);
            if target.is_empty() {
                return Ok(());
            }
            for_each_block(&block, |number, place| {
                let mut part = Shape::from([shape[0]]);
                let first = number * shape[0] * source_strides[0] as usize;
                let mut from = Strided { offset: first, strides: source_strides.clone() };
                let mut to = Strided { offset: 0, strides: SmallVec::from_slice(&target_strides[..1]) };
                for axis in 1..input.rank() {
                    let shift = parameters.begin[axis].get().unwrap_or(0) - place[axis] as i64;
                    let range = grid_range(shift, block[axis] as i64, shape[axis] as i64, input[axis] as i64);
                    part.push((range.1 - range.0).max(0) as usize);
                    to.strides.push(target_strides[axis] * block[axis] as isize);
                    if range.0 < range.1 {
                        let position = (range.0 * block[axis] as i64 - shift) as usize;
                        to.offset += position * target_strides[axis] as usize;
                        from.offset += range.0 as usize * source_strides[axis] as usize;
                    }
                }
                copy_strided(&part, C::source(&data), &from, target, &to);
            });
            Ok(())
        })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(BatchToSpace)
}

fn output_shape(dims: &[Dim], parameters: &BlockParameters) -> OpResult<PartialShape> {
    let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(dims);
    let mut blocks = Dim::fixed(1);
    for axis in 1..dims.len() {
        let block = at_least(parameters.block[axis], 1);
        blocks = blocks * block;
        let grown = dims[axis] * block;
        let crops = at_least(parameters.begin[axis], 0) + at_least(parameters.end[axis], 0);
        if crops.min() > grown.max() {
            let message = format!("the crops of axis {axis} add up to {crops}, more than its size {grown}");
            return Err(OpError::value(Blame::Input(2), message));
        }
        output[axis] = match (crops.get(), grown.max()) {
            (Some(0), _) => grown,
            (_, INFINITE) => Dim::interval(grown.min().saturating_sub(crops.max()), INFINITE),
            (_, max) => Dim::interval(grown.min().saturating_sub(crops.max()), max - crops.min()),
        };
    }
    output[0] = divide(dims[0], blocks, || {
        let message = format!("the batch {} is not divisible by the blocks, together {blocks}", dims[0]);
        OpError::shape(Blame::Input(0), message)
    })?;
    Ok(PartialShape::from_dims(output))
}
