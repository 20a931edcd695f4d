//! # GatherND
//! Blocks of a tensor that rows of coordinates address.
//!
//! Specification: `movement/gather-nd-5`, `movement/gather-nd-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | indices | any integer type | `[..., k]` with `k` at most the rank of `data` less `batch_dims` |
//! | out 0 | | that of `data` | `batch + indices[batch_dims:-1] + data[batch_dims + k:]` |
//!
//! The batch dimensions of both inputs are broadcast. Version 5 joins the batch dimensions of the output into one,
//! version 8 keeps them. Indices lie in `[-size, size - 1]`, in version 5 too.

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, ElementClass, MAX_BOUNDS_ELEMENTS, PartialShape, Shape, SmallVec, Value};

use crate::common::broadcast::{broadcast_shapes, broadcast_strides, for_each_offset};
use crate::common::index::{IndexRange, Indices, known_indices};
use crate::common::movement::{Cell, dispatch_cell, exact_shape};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of GatherND.
    pub struct GatherNdAttributes {
        /// How many leading axes of data and indices are batches.
        batch_dims: i64 = "batch_dims", default "0";
    }
}

/// The definition of GatherND.
pub static GATHER_ND: OpDef = OpDef {
    type_name: "GatherND",
    category: Category::Movement,
    versions: &[OpVersion::new(5, (5, 7), (2, 2), (1, 1)), OpVersion::new(8, (8, 16), (2, 2), (1, 1))],
    attributes: GatherNdAttributes::DEFINITIONS,
    build,
};

/// A GatherND layer.
#[derive(Debug)]
pub struct GatherNd {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: GatherNdAttributes,
}

impl Operation for GatherNd {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        context.require_rank(0, 1..=usize::MAX)?;
        context.require_rank(1, 1..=usize::MAX)?;
        let (data, indices) = (context.shape(0), context.shape(1));
        let shape = self.output_shape(data, indices)?;
        context.set_output(0, element_type, shape);
        let (Some(_), Some(known)) = (data.rank(), known_indices(context, 1)) else { return Ok(()) };
        let (batch, depth) = (self.batch(), known.shape().last().copied().unwrap_or(0));
        known.check_possible(IndexRange::Wrapping, |position| {
            let axis = batch + position % depth.max(1);
            (axis, data.dim(axis))
        })?;
        self.propagate(context, &known)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let indices = Indices::new(context.input(1)?, 1)?;
        let shape = self.output_shape(&PartialShape::from(data.shape()), &PartialShape::from(indices.shape()))?;
        let shape = exact_shape(&shape)?;
        let (batch, depth) = (self.batch(), indices.shape().last().copied().unwrap_or(0));
        indices.check(IndexRange::Wrapping, |position| {
            let axis = batch + position % depth.max(1);
            (axis, data.shape()[axis])
        })?;
        let mut output = context.output(0, &shape)?;
        dispatch_cell!(data.element_type(), C => {
            self.gather(C::source(&data), data.shape(), &indices, C::target(&mut output));
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl GatherNd {
    fn batch(&self) -> usize {
        usize::try_from(self.attributes.batch_dims).unwrap_or(0)
    }

    fn output_shape(&self, data: &PartialShape, indices: &PartialShape) -> OpResult<PartialShape> {
        let batch = self.batch();
        for shape in [data, indices] {
            if let Some(rank) = shape.rank()
                && rank <= batch
            {
                let message = format!("{batch} must be below the ranks of data {data} and indices {indices}");
                return Err(OpError::attribute("batch_dims", message));
            }
        }
        let (Some(data_dims), Some(index_dims)) = (data.dims(), indices.dims()) else {
            return Ok(PartialShape::DYNAMIC);
        };
        let Some((depth, rows)) = index_dims.split_last() else { return Ok(PartialShape::DYNAMIC) };
        if depth.min() > (data_dims.len() - batch) as i64 {
            let message = format!(
                "shape {indices} has {depth} coordinates a row; data {data} has only {} axes behind the batches",
                data_dims.len() - batch
            );
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for i in 0..batch {
            output.push(data_dims[i].broadcast(rows[i]).ok_or_else(|| {
                let message = format!(
                    "the first {batch} dimensions of {indices} cannot be broadcast with those of {data} of input 0"
                );
                OpError::shape(Blame::Input(1), message)
            })?);
        }
        if self.class_version < 8 && batch > 1 {
            let joined = output.drain(..).fold(Dim::fixed(1), |product, dim| product * dim);
            output.push(joined);
        }
        output.extend(rows[batch..].iter().copied());
        let Some(depth) = depth.get() else { return Ok(PartialShape::DYNAMIC) };
        output.extend(data_dims[batch + depth..].iter().copied());
        Ok(PartialShape::from_dims(output))
    }

    fn gather<T: Clone>(&self, source: &[T], data: &Shape, indices: &Indices<'_>, target: &mut [T]) {
        let (batch, shape) = (self.batch(), indices.shape());
        let Some((depth, rows)) = shape.split_last() else { return };
        if target.is_empty() {
            return;
        }
        let strides = data.strides();
        let inner: usize = data[batch + depth..].iter().product();
        let row_count: usize = rows[batch..].iter().product();
        let batch_size: usize = data[batch..].iter().product();
        let Some(batches) = broadcast_shapes(&data[..batch], &rows[..batch]) else { return };
        let from = broadcast_strides(&data[..batch], &batches);
        let of_rows = broadcast_strides(&rows[..batch], &batches);
        let mut blocks = target.chunks_exact_mut(inner);
        for_each_offset(&batches, [&from, &of_rows], |[data_batch, row_batch]| {
            for (row, block) in (0..row_count).zip(&mut blocks) {
                let first = (row_batch * row_count + row) * depth;
                let mut place = data_batch * batch_size;
                for j in 0..*depth {
                    let index = indices.resolve(first + j, data[batch + j], IndexRange::Wrapping).unwrap_or(0);
                    place += index * strides[batch + j];
                }
                block.clone_from_slice(&source[place..place + inner]);
            }
        });
    }

    fn propagate(&self, context: &mut InferContext<'_>, indices: &Indices<'_>) -> OpResult {
        let Some(data) = context.bounds(0) else { return Ok(()) };
        let shape = self.output_shape(context.shape(0), context.shape(1))?;
        let Some(shape) = shape.to_shape().filter(|shape| shape.elements() <= MAX_BOUNDS_ELEMENTS) else {
            return Ok(());
        };
        let mut values: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, shape.elements());
        self.gather(&data.values, &data.shape, indices, &mut values);
        context.set_bounds(0, Bounds { shape, values });
        Ok(())
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GatherNdAttributes::read(context.attributes);
    if attributes.batch_dims < 0 {
        let message = format!("{} must not be negative", attributes.batch_dims);
        context.attributes.report(OpError::attribute("batch_dims", message));
    }
    Arc::new(GatherNd { class_version: context.class_version, attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    fn run(batch: &str, data: Tensor, indices: Tensor) -> Tensor {
        Case::new("GatherND", "opset8").attribute("batch_dims", batch).run(&[data, indices]).unwrap().remove(0)
    }

    fn one_to(n: i32) -> Vec<i32> {
        (1..=n).collect()
    }

    #[test]
    fn examples_of_the_specification() {
        let square = tensor(&[1, 2, 3, 4], [2, 2]);
        assert_eq!(run("0", square.clone(), tensor(&[0i64, 0, 1, 0], [2, 2])), tensor(&[1, 3], [2]));
        let rows = tensor(&[3, 4, 1, 2], [2, 2]);
        assert_eq!(run("0", square.clone(), tensor(&[1i64, 0], [2, 1])), rows);
        assert_eq!(run("0", square.clone(), tensor(&[1i64, 0], [2, 1, 1])), rows.reshaped([2, 1, 2]).unwrap());
        assert_eq!(run("1", square, tensor(&[1i64, 0], [2, 1])), tensor(&[2, 3], [2]));
        let data = tensor(&one_to(24), [2, 3, 4]);
        let expected = tensor(&[5, 6, 7, 8, 13, 14, 15, 16], [2, 4]);
        assert_eq!(run("1", data.clone(), tensor(&[1i64, 0], [2, 1])), expected);
        let six = tensor(&[1i32, 0, 2, 0, 2, 2], [2, 3, 1, 1]);
        assert_eq!(run("2", data, six), tensor(&[2, 5, 11, 13, 19, 23], [2, 3, 1]));
        let four = run("3", tensor(&one_to(16), [1, 2, 2, 4]), tensor(&[1u8, 0, 3, 2], [1, 2, 2, 1]));
        assert_eq!(four, tensor(&[2, 5, 12, 15], [1, 2, 2]));
    }

    #[test]
    fn version_5_joins_batches() {
        let case = |opset: &str| Case::new("GatherND", opset).attribute("batch_dims", "2");
        assert_eq!(case("opset5").infer(&["f32[30,2,100,35]", "i64[30,2,3,1]"]), ["f32[60,3,35]"]);
        assert_eq!(case("opset8").infer(&["f32[30,2,100,35]", "i64[30,2,3,1]"]), ["f32[30,2,3,35]"]);
        assert_eq!(case("opset8").infer(&["f32[30,1,100,35]", "i64[1,2,3,1]"]), ["f32[30,2,3,35]"]);
    }

    #[test]
    fn violations() {
        let case = Case::new("GatherND", "opset8");
        assert_eq!(
            case.infer_error(&["f32[2,2]", "i64[1,2]=0,2"]),
            "input 1: index 2 at position [0,1] is out of range of axis 1 of size 2: it must be in [-2, 1]"
        );
        assert_eq!(
            case.infer_error(&["f32[2,2]", "i64[1,3]"]),
            "input 1: shape [1,3] has 3 coordinates a row; data [2,2] has only 2 axes behind the batches"
        );
        assert_eq!(case.infer(&["f32[2,2]", "i64[4,?]"]), ["f32[...]"]);
        assert_eq!(case.infer(&["i64[3]=1,2..5,7", "i64[1]=1"]), ["i64[]=2..5"]);
        assert_eq!(
            case.attribute("batch_dims", "1").infer_error(&["f32[2,2]", "i64[2]"]),
            "attribute `batch_dims`: 1 must be below the ranks of data [2,2] and indices [2]"
        );
    }
}
