//! # SpaceToBatch
//! Spatial axes divided into blocks whose positions become batches.
//!
//! Specification: `movement/space-to-batch-2`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | `[batch, D1, ...]`, rank at least 2 |
//! | in 1 | block_shape | any integer type | `[rank]`, positive, the first 1 |
//! | in 2 | pads_begin | any integer type | `[rank]`, not negative, the first 0 |
//! | in 3 | pads_end | any integer type | `[rank]`, not negative, the first 0 |
//! | out 0 | | that of `data` | `[batch * product of blocks, (D1 + pads) / block, ...]` |

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, Shape, SmallVec, Value};

use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell, exact_shape};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of SpaceToBatch.
pub static SPACE_TO_BATCH: OpDef = OpDef {
    type_name: "SpaceToBatch",
    category: Category::Movement,
    versions: &[OpVersion::new(2, (2, 16), (4, 4), (1, 1))],
    attributes: &[],
    build,
};

/// A SpaceToBatch layer.
#[derive(Debug)]
pub struct SpaceToBatch;

impl Operation for SpaceToBatch {
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
            target.fill(C::default());
            if target.is_empty() {
                return Ok(());
            }
            for_each_block(&block, |number, place| {
                // Along each axis the grid positions whose element lies within the data form a range.
                let mut part = Shape::from([input[0]]);
                let mut from = Strided { offset: 0, strides: SmallVec::from_slice(&source_strides[..1]) };
                let first = number * input[0] * target_strides[0] as usize;
                let mut to = Strided { offset: first, strides: target_strides.clone() };
                for axis in 1..input.rank() {
                    let shift = parameters.begin[axis].get().unwrap_or(0) - place[axis] as i64;
                    let range = grid_range(shift, block[axis] as i64, input[axis] as i64, shape[axis] as i64);
                    part.push((range.1 - range.0).max(0) as usize);
                    from.strides.push(source_strides[axis] * block[axis] as isize);
                    if range.0 < range.1 {
                        let position = (range.0 * block[axis] as i64 - shift) as usize;
                        from.offset += position * source_strides[axis] as usize;
                        to.offset += range.0 as usize * target_strides[axis] as usize;
                    }
                }
                copy_strided(&part, C::source(&data), &from, target, &to);
            });
            Ok(())
        })
    }
}

/// Block shape and pads or crops of SpaceToBatch and BatchToSpace.
pub(super) struct BlockParameters {
    pub block: SmallVec<[Value; 8]>,
    pub begin: SmallVec<[Value; 8]>,
    pub end: SmallVec<[Value; 8]>,
}

impl BlockParameters {
    /// What is known of the parameters; `None` while their number is unknown.
    pub(super) fn infer(context: &InferContext<'_>) -> OpResult<Option<BlockParameters>> {
        context.require_rank(0, 2..=usize::MAX)?;
        let mut count = context.shape(0).rank().map_or(Dim::interval(2, INFINITE), Dim::fixed);
        for port in 1..=3 {
            context.require_class(port, ElementClass::Integer)?;
            context.require_rank(port, 1..=1)?;
            let length = context.shape(port).dim(0);
            count = count.merge(length).ok_or_else(|| {
                let message = format!("{length} elements are given; {count} are needed, one an axis");
                OpError::shape(Blame::Input(port), message)
            })?;
        }
        let Some(count) = count.get().filter(|count| *count <= ovir_tensor::MAX_RANK) else { return Ok(None) };
        let values = |port: usize| match context.bounds(port) {
            Some(bounds) => bounds.values.clone(),
            None => SmallVec::from_elem(Value::UNKNOWN, count),
        };
        let parameters = BlockParameters { block: values(1), begin: values(2), end: values(3) };
        parameters.check()?;
        Ok(Some(parameters))
    }

    /// The parameters at run time.
    pub(super) fn read(context: &EvaluateContext<'_>) -> OpResult<BlockParameters> {
        let rank = context.input(0)?.shape().rank();
        let values = |port: usize| -> OpResult<SmallVec<[Value; 8]>> {
            let values = context.integers(port)?;
            if values.len() != rank || rank < 2 {
                let rank = rank.max(2);
                let message = format!("{} elements are given; {rank} are needed, one an axis", values.len());
                return Err(OpError::shape(Blame::Input(port), message));
            }
            Ok(values.into_iter().map(Value::known).collect())
        };
        let parameters = BlockParameters { block: values(1)?, begin: values(2)?, end: values(3)? };
        parameters.check()?;
        Ok(parameters)
    }

    /// The sizes of the block at run time.
    pub(super) fn block_sizes(&self) -> SmallVec<[usize; 8]> {
        self.block.iter().map(|value| value.get().map_or(1, |v| v.max(1) as usize)).collect()
    }

    fn check(&self) -> OpResult {
        for (port, values, least) in [(1, &self.block, 1), (2, &self.begin, 0), (3, &self.end, 0)] {
            for (i, value) in values.iter().enumerate() {
                let fits = value.max >= least && (i > 0 || value.min <= least);
                if !fits {
                    let wanted = if i == 0 { format!("{least}") } else { format!("at least {least}") };
                    let message = format!("element {i} is {value:?}; it must be {wanted}");
                    return Err(OpError::value(Blame::Input(port), message));
                }
            }
        }
        Ok(())
    }
}

/// A value as a dimension of at least `least`.
pub(super) fn at_least(value: Value, least: i64) -> Dim {
    Dim::interval(value.min.max(least), value.max)
}

/// Calls `visit(number, position)` for every position within a block, in row-major order.
pub(super) fn for_each_block(block: &[usize], mut visit: impl FnMut(usize, &[usize])) {
    let mut place: SmallVec<[usize; 8]> = SmallVec::from_elem(0, block.len());
    for number in 0..block.iter().product() {
        visit(number, &place);
        for (position, size) in place.iter_mut().zip(block).rev() {
            *position += 1;
            if *position < *size {
                break;
            }
            *position = 0;
        }
    }
}

/// The positions `g` of `0..count` for which `g * block - shift` lies in `0..size`, as a range.
pub(super) fn grid_range(shift: i64, block: i64, size: i64, count: i64) -> (i64, i64) {
    let round_up = |v: i64| v.div_euclid(block) + i64::from(v.rem_euclid(block) != 0);
    (round_up(shift).clamp(0, count), round_up(shift.saturating_add(size)).clamp(0, count))
}

/// The sizes that a dimension may have after division by a divisor that must divide it.
pub(super) fn divide(dim: Dim, by: Dim, error: impl Fn() -> OpError) -> OpResult<Dim> {
    if let (Some(size), Some(by)) = (dim.get(), by.get()) {
        return if by > 0 && size % by == 0 { Ok(Dim::fixed(size / by)) } else { Err(error()) };
    }
    if by.get() == Some(1) {
        return Ok(dim);
    }
    let low = if by.max() == INFINITE { i64::from(dim.min() > 0) } else { dim.div_ceil(by.max().max(1)).min() };
    let high = if dim.max() == INFINITE { INFINITE } else { dim.max() / by.min().max(1) };
    if low > high { Err(error()) } else { Ok(Dim::interval(low, high)) }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SpaceToBatch)
}

fn output_shape(dims: &[Dim], parameters: &BlockParameters) -> OpResult<PartialShape> {
    let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
    let mut batch = dims[0];
    output.push(batch);
    for axis in 1..dims.len() {
        let block = at_least(parameters.block[axis], 1);
        batch = batch * block;
        let padded = dims[axis] + at_least(parameters.begin[axis], 0) + at_least(parameters.end[axis], 0);
        output.push(divide(padded, block, || {
            let message = format!("the padded size {padded} of axis {axis} is not divisible by its block {block}");
            OpError::value(Blame::Input(1), message)
        })?);
    }
    output[0] = batch;
    Ok(PartialShape::from_dims(output))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn there_and_back() {
        let (there, back) = (Case::new("SpaceToBatch", "opset2"), Case::new("BatchToSpace", "opset2"));
        let three = |a: i64, b: i64, c: i64| tensor(&[a, b, c], [3]);
        let data = tensor(&(1..=10).collect::<Vec<i32>>(), [1, 2, 5]);
        let parameters = [three(1, 2, 3), three(0, 1, 0), three(0, 1, 1)];
        let inputs: Vec<_> = std::iter::once(data.clone()).chain(parameters.clone()).collect();
        let blocks = there.run(&inputs).unwrap().remove(0);
        let expected = [0, 0, 6, 9, 0, 0, 7, 10, 0, 0, 8, 0, 1, 4, 0, 0, 2, 5, 0, 0, 3, 0, 0, 0];
        assert_eq!(blocks, tensor(&expected, [6, 2, 2]));
        let inputs: Vec<_> = std::iter::once(blocks).chain(parameters).collect();
        assert_eq!(back.run(&inputs).unwrap()[0], data);
    }

    #[test]
    fn examples_of_the_specification() {
        let (block, pads) = ("i64[5]=1,2,4,3,1", "i64[5]=0,0,1,0,0");
        let there = Case::new("SpaceToBatch", "opset2");
        assert_eq!(there.infer(&["f32[2,6,10,3,3]", block, pads, pads]), ["f32[48,3,3,1,3]"]);
        let back = Case::new("BatchToSpace", "opset2");
        assert_eq!(back.infer(&["f32[48,3,3,1,3]", block, pads, pads]), ["f32[2,6,10,3,3]"]);
        assert_eq!(back.infer(&["f32[10,2]", "i64[2]=1,5", "i64[2]=0,2", "i64[2]=0,0"]), ["f32[2,8]"]);
        assert_eq!(there.infer(&["f32[?,6]", "i64[2]=1,3", "i64[2]", "i64[2]=0,0"]), ["f32[?,2..]"]);
        assert_eq!(
            there.infer_error(&["f32[1,5]", "i64[2]=1,2", "i64[2]=0,0", "i64[2]=0,0"]),
            "input 1: the padded size 5 of axis 1 is not divisible by its block 2"
        );
        assert_eq!(
            back.infer_error(&["f32[3,5]", "i64[2]=1,2", "i64[2]=0,0", "i64[2]=0,0"]),
            "input 0: the batch 3 is not divisible by the blocks, together 2"
        );
    }
}
