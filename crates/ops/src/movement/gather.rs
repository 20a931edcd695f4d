//! # Gather
//! Slices of a tensor along one axis, picked by indices.
//!
//! Specification: `movement/gather-1`, `movement/gather-7`, `movement/gather-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | indices | any integer type | any |
//! | in 2 | axis | any integer type | scalar or `[1]` |
//! | out 0 | | that of `data` | `data[:axis] + indices[batch_dims:] + data[axis + 1:]` |
//!
//! Version 7 added `batch_dims`, version 8 zeros for indices that are out of range. Negative indices count from the end in
//! all versions: the specification has them from version 8 on, but OpenVINO's converters write them in version 7 too, and
//! `Model.evaluate` counts so (the CPU plugin gives zeros). Before version 8 an index outside of `[-size, size - 1]` is an
//! error, which the specification forbids.

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, ElementClass, MAX_BOUNDS_ELEMENTS, PartialShape, Shape, SmallVec, Value};

use crate::common::movement::{Cell, dispatch_cell, known_axis, require_axis};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of Gather.
    pub struct GatherAttributes {
        /// How many leading axes of data and indices are batches; negative counts from the rank of the indices.
        batch_dims: i64 = "batch_dims", default "0", since 7;
    }
}

/// The definition of Gather.
pub static GATHER: OpDef = OpDef {
    type_name: "Gather",
    category: Category::Movement,
    versions: &[
        OpVersion::new(1, (1, 6), (3, 3), (1, 1)),
        OpVersion::new(7, (7, 7), (3, 3), (1, 1)),
        OpVersion::new(8, (8, 16), (3, 3), (1, 1)),
    ],
    attributes: GatherAttributes::DEFINITIONS,
    build,
};

/// A Gather layer.
#[derive(Debug)]
pub struct Gather {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: GatherAttributes,
}

/// The loops of a Gather over static shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatherGeometry {
    /// The shape of the output.
    pub shape: Shape,
    /// How many batches there are.
    pub batches: usize,
    /// How many blocks each batch of the data has before the axis.
    pub outer: usize,
    /// The size of the axis.
    pub size: usize,
    /// How many indices each batch has.
    pub indices: usize,
    /// How many elements lie behind the axis.
    pub inner: usize,
}

impl Operation for Gather {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        require_axis(context, 2)?;
        let shape = self.output_shape(context)?;
        context.set_output(0, element_type, shape);
        self.check_constant_indices(context)?;
        self.propagate(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, indices) = (context.input(0)?, context.input(1)?);
        let geometry = self.geometry(data.shape(), indices.shape(), context.integer(2)?)?;
        let positions = context.integers(1)?;
        if self.class_version < 8 {
            check_indices(&positions, geometry.size)?;
        }
        let mut output = context.output(0, &geometry.shape)?;
        dispatch_cell!(data.element_type(), C => {
            gather(C::source(&data), &positions, C::target(&mut output), &geometry, &C::default());
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl Gather {
    /// The loops for the given shapes.
    ///
    /// # Errors
    /// When axis, batch_dims and shapes do not fit.
    pub fn geometry(&self, data: &Shape, indices: &Shape, axis: i64) -> OpResult<GatherGeometry> {
        let axis = normalize_axis(axis, data.rank(), Blame::Input(2))?;
        let batch = self.batch_dims(Some(data.rank()), indices.rank())?;
        check_batch_before_axis(batch, axis)?;
        if data[..batch] != indices[..batch] {
            let message = format!("shape {indices} must start with the first {batch} dimensions of {data} of input 0");
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        let shape = data[..axis].iter().chain(&indices[batch..]).chain(&data[axis + 1..]).copied().collect();
        Ok(GatherGeometry {
            shape,
            batches: product(&data[..batch]),
            outer: product(&data[batch..axis]),
            size: data[axis],
            indices: product(&indices[batch..]),
            inner: product(&data[axis + 1..]),
        })
    }

    fn output_shape(&self, context: &InferContext<'_>) -> OpResult<PartialShape> {
        let (data, indices) = (context.shape(0), context.shape(1));
        let axis = match data.rank() {
            Some(rank) => known_axis(context, 2, rank)?,
            None => None,
        };
        let Some(index_dims) = indices.dims() else { return Ok(PartialShape::DYNAMIC) };
        let batch = self.batch_dims(data.rank(), index_dims.len())?;
        let Some(dims) = data.dims() else { return Ok(PartialShape::DYNAMIC) };
        if dims.is_empty() {
            let message = "shape [] has rank 0; a scalar has no axis to gather along";
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let Some(axis) = axis else {
            return Ok(PartialShape::of_rank(dims.len() - 1 + index_dims.len() - batch));
        };
        check_batch_before_axis(batch, axis)?;
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for i in 0..batch {
            output.push(dims[i].merge(index_dims[i]).ok_or_else(|| {
                let message = format!(
                    "shape {indices} must start with the first {batch} dimensions of {data} of input 0 (batch_dims)"
                );
                OpError::shape(Blame::Input(1), message)
            })?);
        }
        output.extend(dims[batch..axis].iter().chain(&index_dims[batch..]).chain(&dims[axis + 1..]).copied());
        Ok(PartialShape::from_dims(output))
    }

    fn batch_dims(&self, data_rank: Option<usize>, indices_rank: usize) -> OpResult<usize> {
        let given = self.attributes.batch_dims;
        let batch = if given < 0 { given.saturating_add(indices_rank as i64) } else { given };
        let largest = data_rank.map_or(indices_rank, |rank| rank.min(indices_rank));
        usize::try_from(batch).ok().filter(|batch| *batch <= largest).ok_or_else(|| {
            let message = format!(
                "{given} is out of range: data of rank {} and indices of rank {indices_rank} have {largest} common axes",
                data_rank.map_or_else(|| "?".to_owned(), |rank| rank.to_string())
            );
            OpError::attribute("batch_dims", message)
        })
    }

    fn check_constant_indices(&self, context: &InferContext<'_>) -> OpResult {
        let (Some(rank), true) = (context.shape(0).rank(), self.class_version < 8) else { return Ok(()) };
        let (Some(axis), Some(positions)) = (known_axis(context, 2, rank)?, context.integers(1)) else {
            return Ok(());
        };
        match context.shape(0).dim(axis).get() {
            Some(size) => check_indices(&positions, size),
            None => Ok(()),
        }
    }

    fn propagate(&self, context: &mut InferContext<'_>) -> OpResult {
        let (Some(data), Some(positions), Some(axis)) = (context.bounds(0), context.integers(1), context.integer(2))
        else {
            return Ok(());
        };
        let Some(indices) = context.shape(1).to_shape() else { return Ok(()) };
        let geometry = self.geometry(&data.shape, &indices, axis)?;
        if geometry.shape.elements() > MAX_BOUNDS_ELEMENTS {
            return Ok(());
        }
        let mut values: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, geometry.shape.elements());
        gather(&data.values, &positions, &mut values, &geometry, &Value::known(0));
        context.set_bounds(0, Bounds { shape: geometry.shape, values });
        Ok(())
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = GatherAttributes::read(context.attributes);
    Arc::new(Gather { class_version: context.class_version, attributes })
}

fn check_batch_before_axis(batch: usize, axis: usize) -> OpResult {
    if batch <= axis {
        return Ok(());
    }
    Err(OpError::attribute("batch_dims", format!("{batch} batch axes reach beyond axis {axis}")))
}

fn check_indices(indices: &[i64], size: usize) -> OpResult {
    let size = size as i64;
    match indices.iter().position(|index| !(-size..size).contains(index)) {
        None => Ok(()),
        Some(position) => Err(out_of_range(indices[position], position, size)),
    }
}

/// The error of an index out of range, which versions before 8 have no value for. `size` is that of the axis.
#[must_use]
pub fn out_of_range(index: i64, position: usize, size: i64) -> OpError {
    let message = format!("index {index} at position {position} is out of range [{}, {}]", -size, size - 1);
    OpError::index(Blame::Input(1), message)
}

/// Copies the picked slices; an index out of `[-size, size - 1]` gives `zero`.
fn gather<T: Clone>(data: &[T], indices: &[i64], target: &mut [T], geometry: &GatherGeometry, zero: &T) {
    let GatherGeometry { batches, outer, size, indices: count, inner, .. } = *geometry;
    if target.is_empty() {
        return;
    }
    let mut slots = target.chunks_exact_mut(inner);
    for batch in 0..batches {
        let picked = &indices[batch * count..(batch + 1) * count];
        for block in 0..outer {
            let base = (batch * outer + block) * size * inner;
            for (index, slot) in picked.iter().zip(&mut slots) {
                let wrapped = if *index < 0 { index.saturating_add(size as i64) } else { *index };
                match usize::try_from(wrapped) {
                    Ok(position) if position < size => {
                        let start = base + position * inner;
                        slot.clone_from_slice(&data[start..start + inner]);
                    }
                    _ => slot.fill(zero.clone()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn one_to(n: i32) -> Vec<i32> {
        (1..=n).collect()
    }

    #[test]
    fn examples_of_the_specification() {
        let case = |batch: &str| Case::new("Gather", "opset8").attribute("batch_dims", batch);
        let five = tensor(&[1, 2, 3, 4, 5], [5]);
        let run = |batch: &str, data, indices, axis: i64| {
            case(batch).run(&[data, indices, tensor(&[axis], [])]).unwrap().remove(0)
        };
        assert_eq!(run("0", five.clone(), tensor(&[0i64, 0, 4], [3]), 0), tensor(&[1, 1, 5], [3]));
        let pairs = tensor(&[0i64, 0, 4, 4, 0, 0], [2, 3]);
        let two = tensor(&one_to(10), [2, 5]);
        let expected = tensor(&[1, 1, 5, 10, 6, 6], [2, 3]);
        assert_eq!(run("1", two.clone(), pairs.clone(), 1), expected);
        assert_eq!(run("-1", two, pairs, 1), expected);
        let three =
            run("2", tensor(&one_to(20), [2, 2, 5]), tensor(&[0i32, 0, 4, 4, 0, 0, 1, 2, 4, 4, 3, 2], [2, 2, 3]), 2);
        assert_eq!(three, tensor(&[1, 1, 5, 10, 6, 6, 12, 13, 15, 20, 19, 18], [2, 2, 3]));
        let four = run("1", tensor(&one_to(40), [2, 1, 5, 4]), tensor(&[1u8, 2, 4, 4, 3, 2], [2, 3]), 2);
        let rows = [5, 9, 17, 37, 33, 29];
        let expected: Vec<i32> = rows.iter().flat_map(|r| *r..r + 4).collect();
        assert_eq!(four, tensor(&expected, [2, 1, 3, 4]));
        assert_eq!(run("0", five.clone(), tensor(&[0i64, -2, -1], [3]), 0), tensor(&[1, 4, 5], [3]));
        assert_eq!(run("0", five, tensor(&[3i64, 10, -20], [3]), 0), tensor(&[4, 0, 0], [3]));
    }

    #[test]
    fn shapes_and_values() {
        let case = Case::new("Gather", "opset8");
        assert_eq!(case.infer(&["f32[2,64,128]", "i32[?,21]", "i64[]=1"]), ["f32[2,?,21,128]"]);
        assert_eq!(case.infer(&["f32[2,3]", "i32[4]", "i64[]"]), ["f32[?,?]"]);
        assert_eq!(case.infer(&["f32[...]", "i32[4]", "i64[]=0"]), ["f32[...]"]);
        assert_eq!(case.infer(&["i64[3]=1,2..5,7", "i64[]=1", "i64[]=0"]), ["i64[]=2..5"]);
        assert_eq!(case.infer(&["i64[3]=1,2..5,7", "i64[2]=-1,1", "i64[1]=0"]), ["i64[2]=7,2..5"]);
        let batched = Case::new("Gather", "opset7").attribute("batch_dims", "1");
        assert_eq!(batched.infer(&["f32[?,64,128]", "i32[2,32,21]", "i64[]=1"]), ["f32[2,32,21,128]"]);
        assert_eq!(
            batched.infer_error(&["f32[3,64,128]", "i32[2,32,21]", "i64[]=1"]),
            "input 1: shape [2,32,21] must start with the first 1 dimensions of [3,64,128] of input 0 (batch_dims)"
        );
        assert_eq!(
            batched.infer_error(&["f32[2,64]", "i32[2,3]", "i64[]=0"]),
            "attribute `batch_dims`: 1 batch axes reach beyond axis 0"
        );
        assert_eq!(
            case.infer_error(&["f32[2]", "f32[2]", "i64[]=0"]),
            "input 1: element type f32 must be an integer type"
        );
    }

    #[test]
    fn old_versions_refuse_what_is_out_of_range() {
        let case = Case::new("Gather", "opset1");
        for index in [-4, 3] {
            assert_eq!(
                case.infer_error(&["f32[3]", &format!("i64[2]=0,{index}"), "i64[]=0"]),
                format!("input 1: index {index} at position 1 is out of range [-3, 2]")
            );
        }
        // OpenVINO's converters write Gather-7 with indices that count from the end.
        let data = || tensor(&[1f32, 2.0, 3.0], [3]);
        let picked = case.run(&[data(), tensor(&[-1i64, 0, -3], [3]), tensor(&[0i64], [])]).unwrap();
        assert_eq!(picked[0], tensor(&[3f32, 1.0, 1.0], [3]));
        assert!(case.run(&[data(), tensor(&[-4i64], [1]), tensor(&[0i64], [])]).is_err());
    }

    #[test]
    fn nothing_to_pick() {
        let case = Case::new("Gather", "opset8");
        let data = tensor(&[1f32, 2.0], [2]);
        let output = case.run(&[data, tensor::<i64>(&[], [0]), tensor(&[0i64], [])]).unwrap();
        assert_eq!(output[0].shape().to_vec(), [0]);
        let output = case.run(&[tensor::<f32>(&[], [0, 3]), tensor(&[0i64], [1]), tensor(&[0i64], [])]).unwrap();
        assert_eq!(output[0], tensor(&[0f32; 3], [1, 3]));
    }
}
