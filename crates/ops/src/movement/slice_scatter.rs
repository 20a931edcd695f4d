//! # SliceScatter
//! A copy of the data in which a slice is replaced.
//!
//! Specification: `movement/slice-scatter-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | updates | that of `data` | that of the slice |
//! | in 2 | start | any integer type | `[n]` |
//! | in 3 | stop | any integer type | `[n]` |
//! | in 4 | step | any integer type | `[n]`, no element 0 |
//! | in 5 | axes (optional) | any integer type | `[n]`; `0, 1, ..., n - 1` without it |
//! | out 0 | | that of `data` | that of `data` |
//!
//! The slice is that of Slice-8; updates are not broadcast.

use std::ops::Range;
use std::sync::Arc;

use ovir_tensor::{Bounds, PartialShape, Shape, SmallVec, TensorView, Value};

use super::slice::{Parameters, sliced_shape};
use crate::common::movement::{Cell, Strided, View, copy_all, copy_strided, dispatch_cell};
use crate::common::scatter::overwritten_runs;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of SliceScatter.
pub static SLICE_SCATTER: OpDef = OpDef {
    type_name: "SliceScatter",
    category: Category::Movement,
    versions: &[OpVersion::new(15, (15, 16), (5, 6), (1, 1))],
    attributes: &[],
    build,
};

/// A SliceScatter layer.
#[derive(Debug)]
pub struct SliceScatter;

impl Operation for SliceScatter {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_same_type(&[0, 1])?;
        let slice = sliced_shape(context, 2)?;
        let (data, updates) = (context.shape(0), context.shape(1));
        if !slice.compatible(updates) {
            let message = format!("shape {updates} must be {slice}, the shape of the slice of {data} of input 0");
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let shape = match (data.rank(), updates.rank()) {
            (None, Some(rank)) => PartialShape::of_rank(rank),
            _ => data.clone(),
        };
        context.set_output(0, element_type, shape);
        self.propagate(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, updates) = (context.input(0)?, context.input(1)?);
        let view = sliced(&Parameters::read(context, 2)?, data.shape(), updates.shape())?;
        let in_place = context.is_in_place();
        let mut output = context.output(0, data.shape())?;
        dispatch_cell!(data.element_type(), C => {
            if !in_place {
                copy_all(&data, &mut output)?;
            }
            let from = Strided::dense(&view.walk);
            copy_strided(&view.walk, C::source(&updates), &from, C::target(&mut output), &view.from);
            Ok(())
        })
    }

    fn in_place_input(&self) -> Option<usize> {
        Some(0)
    }

    fn overwritten(&self, inputs: &[TensorView<'_>], ranges: &mut Vec<Range<usize>>) -> OpResult<bool> {
        let [data, updates, parameters @ ..] = inputs else { return Ok(false) };
        let (Some(parameters), Some(width)) = (Parameters::of_views(parameters), data.element_type().byte_width())
        else {
            return Ok(false);
        };
        let view = sliced(&parameters, data.shape(), updates.shape())?;
        Ok(overwritten_runs(&view, width, ranges))
    }
}

/// The part of the data that is replaced, which must have the shape of the updates.
fn sliced(parameters: &Parameters, data: &Shape, updates: &Shape) -> OpResult<View> {
    let view = parameters.view(data, 2)?;
    if *updates == view.shape {
        return Ok(view);
    }
    let message = format!("shape {updates} must be {}, the shape of the slice", view.shape);
    Err(OpError::shape(Blame::Input(1), message))
}

/// Where the updates go in the data, counted in elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePlaces {
    /// Size, stride in the dense updates and stride in the data of each axis that is walked, outermost first.
    pub axes: SmallVec<[(usize, isize, isize); 8]>,
    /// The place of the first update in the data.
    pub offset: usize,
}

impl SliceScatter {
    /// The places of the updates; `None` where the inputs are not those of the operation.
    ///
    /// # Errors
    /// The rule that start, stop, step or axes violate, or updates that have not the shape of the slice.
    pub fn places(&self, inputs: &[TensorView<'_>]) -> OpResult<Option<SlicePlaces>> {
        let [data, updates, parameters @ ..] = inputs else { return Ok(None) };
        let Some(parameters) = Parameters::of_views(parameters) else { return Ok(None) };
        let view = sliced(&parameters, data.shape(), updates.shape())?;
        let dense = Strided::dense(&view.walk);
        let axes = view.walk.iter().zip(dense.strides.iter().zip(&view.from.strides));
        let axes = axes.map(|(size, (update, place))| (*size, *update, *place)).collect();
        Ok(Some(SlicePlaces { axes, offset: view.from.offset }))
    }

    fn propagate(&self, context: &mut InferContext<'_>) -> OpResult {
        let (Some(data), Some(parameters)) = (context.bounds(0), Parameters::known(context, 2)) else {
            return Ok(());
        };
        let view = parameters.view(&data.shape, 2)?;
        let updates = match context.bounds(1) {
            Some(bounds) if bounds.shape == view.shape => bounds.values.clone(),
            Some(_) => return Ok(()),
            None => SmallVec::from_elem(Value::UNKNOWN, view.shape.elements()),
        };
        let mut values = data.values.clone();
        copy_strided(&view.walk, &updates, &Strided::dense(&view.walk), &mut values, &view.from);
        context.set_bounds(0, Bounds { shape: data.shape.clone(), values });
        Ok(())
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SliceScatter)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let case = Case::new("SliceScatter", "opset15");
        let count = |n: i32| (0..n).collect::<Vec<i32>>();
        let one = |v: i32| tensor(&[v], [1]);
        let data = tensor(&count(10), [2, 5]);
        let updates = tensor(&[10, 20, 30, 40, 50], [1, 5]);
        let output = case.run(&[data.clone(), updates, one(0), one(1), one(1), one(0)]).unwrap();
        assert_eq!(output[0], tensor(&[10, 20, 30, 40, 50, 5, 6, 7, 8, 9], [2, 5]));
        let updates = tensor(&[10, 20, 30, 40, 50, 60], [2, 3]);
        let output = case.run(&[data, updates, one(-25), one(25), one(2), one(1)]).unwrap();
        assert_eq!(output[0], tensor(&[10, 1, 20, 3, 30, 40, 6, 50, 8, 60], [2, 5]));
        let two = |a: i32, b: i32| tensor(&[a, b], [2]);
        let updates = tensor(&[50, 60, 70, 80], [2, 2]);
        let output = case.run(&[tensor(&count(15), [3, 5]), updates, two(0, 1), two(3, 5), two(2, 2)]).unwrap();
        assert_eq!(output[0], tensor(&[0, 50, 2, 60, 4, 5, 6, 7, 8, 9, 10, 70, 12, 80, 14], [3, 5]));
    }

    #[test]
    fn what_is_overwritten() {
        let operation = Case::new("SliceScatter", "opset15").build(6).unwrap();
        let overwritten = |updates: [usize; 2], start: i64, stop: i64, step: i64, axis: i64| {
            let one = |v: i64| tensor(&[v], [1]);
            let (data, updates) = (tensor(&[0i16; 20], [4, 5]), tensor(&vec![0i16; updates[0] * updates[1]], updates));
            let inputs = [data, updates, one(start), one(stop), one(step), one(axis)];
            let views: Vec<_> = inputs.iter().map(|t| t.view()).collect();
            let mut ranges = Vec::new();
            operation.overwritten(&views, &mut ranges).map(|complete| (complete, ranges))
        };
        assert_eq!(overwritten([2, 5], 1, 3, 1, 0).unwrap(), (true, std::iter::once(10..30).collect()));
        assert_eq!(overwritten([4, 2], 3, 5, 1, 1).unwrap(), (true, vec![6..10, 16..20, 26..30, 36..40]));
        assert_eq!(overwritten([2, 5], 3, -5, -2, 0).unwrap(), (true, vec![30..40, 10..20]));
        assert_eq!(overwritten([0, 5], 2, 2, 1, 0).unwrap(), (true, vec![]));
        assert!(overwritten([1, 5], 1, 3, 1, 0).is_err());
    }

    #[test]
    fn shapes_and_values() {
        let case = Case::new("SliceScatter", "opset15");
        assert_eq!(
            case.infer_error(&["f32[5]", "f32[3]", "i64[1]=0", "i64[1]=2", "i64[1]=1"]),
            "input 1: shape [3] must be [2], the shape of the slice of [5] of input 0"
        );
        assert_eq!(case.infer(&["f32[?]", "f32[3]", "i64[1]", "i64[1]", "i64[1]=1"]), ["f32[?]"]);
        assert_eq!(case.infer(&["f32[...]", "f32[3,2]", "i64[1]", "i64[1]", "i64[1]=1"]), ["f32[?,?]"]);
        assert_eq!(
            case.infer(&["i64[3]=1,2..4,5", "i64[1]=7..9", "i64[1]=-1", "i64[1]=2147483647", "i64[1]=1"]),
            ["i64[3]=1,2..4,7..9"]
        );
    }
}
