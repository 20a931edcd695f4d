//! # Slice
//! A region of a tensor, with steps, by Python's rules.
//!
//! Specification: `movement/slice-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | start | any integer type | `[n]` |
//! | in 2 | stop | any integer type | `[n]` |
//! | in 3 | step | any integer type | `[n]`, no element 0 |
//! | in 4 | axes (optional) | any integer type | `[n]`; `0, 1, ..., n - 1` without it |
//! | out 0 | | that of `data` | `data`, shorter along `axes` |

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec, TensorView, Value};

use crate::common::movement::{Strided, View, evaluate_view, propagate_view};
use crate::common::slicing::{Selection, select, slice_dim};
use crate::infer::{integers_of_view, normalize_axis};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Slice.
pub static SLICE: OpDef = OpDef {
    type_name: "Slice",
    category: Category::Movement,
    versions: &[OpVersion::new(8, (8, 16), (4, 5), (1, 1))],
    attributes: &[],
    build,
};

/// A Slice layer.
#[derive(Debug)]
pub struct Slice;

impl Operation for Slice {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        let shape = sliced_shape(context, 1)?;
        let known = shape.is_static();
        context.set_output(0, element_type, shape);
        if let (true, Some(input)) = (known, context.shape(0).to_shape())
            && let Some(parameters) = Parameters::known(context, 1)
        {
            propagate_view(context, 0, &parameters.view(&input, 1)?);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let view = Parameters::read(context, 1)?.view(context.input(0)?.shape(), 1)?;
        evaluate_view(context, 0, &view)
    }
}

impl Slice {
    /// The output as its elements lie in data of shape `input`. `parameters` are start, stop, step and, perhaps, axes.
    ///
    /// # Errors
    /// Parameters that are no integers, or that do not fit each other or the data.
    pub fn view(&self, input: &Shape, parameters: &[TensorView<'_>]) -> OpResult<View> {
        let parameters = Parameters::of_views(parameters)
            .ok_or_else(|| OpError::value(Blame::Node, "start, stop, step and axes must be integers of i64"))?;
        parameters.view(input, 1)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Slice)
}

/// Start, stop, step and axes of Slice and SliceScatter.
pub(super) struct Parameters {
    start: SmallVec<[i64; 8]>,
    stop: SmallVec<[i64; 8]>,
    step: SmallVec<[i64; 8]>,
    axes: SmallVec<[i64; 8]>,
}

impl Parameters {
    /// The parameters, if all are known; `port` is that of start.
    pub(super) fn known(context: &InferContext<'_>, port: usize) -> Option<Parameters> {
        let start = context.integers(port)?;
        let axes = match context.input_count() > port + 3 {
            true => context.integers(port + 3)?,
            false => (0..start.len() as i64).collect(),
        };
        Some(Parameters { stop: context.integers(port + 1)?, step: context.integers(port + 2)?, start, axes })
    }

    /// The parameters at run time; `port` is that of start.
    pub(super) fn read(context: &EvaluateContext<'_>, port: usize) -> OpResult<Parameters> {
        let start = context.integers(port)?;
        let axes = match context.input_count() > port + 3 {
            true => context.integers(port + 3)?,
            false => (0..start.len() as i64).collect(),
        };
        Ok(Parameters { stop: context.integers(port + 1)?, step: context.integers(port + 2)?, start, axes })
    }

    /// The parameters that are held by the views of start, stop, step and, perhaps, axes.
    pub(super) fn of_views(views: &[TensorView<'_>]) -> Option<Parameters> {
        let integers = |i: usize| views.get(i).copied().and_then(integers_of_view);
        let start = integers(0)?;
        let axes = if views.len() > 3 { integers(3)? } else { (0..start.len() as i64).collect() };
        Some(Parameters { stop: integers(1)?, step: integers(2)?, start, axes })
    }

    /// The part of a dense tensor of shape `input` that is selected.
    pub(super) fn view(&self, input: &Shape, port: usize) -> OpResult<View> {
        let count = self.start.len();
        for (i, length) in [self.stop.len(), self.step.len(), self.axes.len()].into_iter().enumerate() {
            if length != count {
                let message = format!("{length} elements are here and {count} in start; they must be equal");
                return Err(OpError::shape(Blame::Input(port + 1 + i), message));
            }
        }
        let mut view = View { shape: input.clone(), walk: SmallVec::new(), from: Strided::dense(input) };
        for (i, axis) in unique_axes(&self.axes, input.rank(), port + 3)?.into_iter().enumerate() {
            check_step(Value::known(self.step[i]), i, port + 2)?;
            let Selection { first, step, count } = select(input[axis], self.start[i], self.stop[i], self.step[i]);
            let stride = view.from.strides[axis];
            view.from.offset = view.from.offset.saturating_add(first.saturating_mul(stride as usize));
            view.from.strides[axis] = stride.saturating_mul(step);
            view.shape[axis] = count;
        }
        view.walk = SmallVec::from_slice(&view.shape);
        Ok(view)
    }
}

/// The shape of the part of input 0 that the inputs from `port` on (start, stop, step, axes) select.
pub(super) fn sliced_shape(context: &InferContext<'_>, port: usize) -> OpResult<PartialShape> {
    context.require_rank(0, 1..=usize::MAX)?;
    let ports = port..(port + 4).min(context.input_count());
    let mut count = Dim::DYNAMIC;
    for p in ports.clone() {
        context.require_class(p, ElementClass::Integer)?;
        context.require_rank(p, 1..=1)?;
        let length = context.shape(p).dim(0);
        count = count.merge(length).ok_or_else(|| {
            let message = format!("{length} elements are here and {count} in the inputs before; they must be equal");
            OpError::shape(Blame::Input(p), message)
        })?;
    }
    if let Some(bounds) = context.bounds(port + 2) {
        for (i, step) in bounds.values.iter().enumerate() {
            check_step(*step, i, port + 2)?;
        }
    }
    let Some(dims) = context.shape(0).dims() else { return Ok(PartialShape::DYNAMIC) };
    let mut output: SmallVec<[Dim; 8]> = SmallVec::from_slice(dims);
    let has_axes = ports.end > port + 3;
    let axes = match (has_axes, count.get()) {
        (true, _) => context.integers(port + 3),
        (false, Some(count)) if count > dims.len() => {
            let message = format!("{count} axes are sliced; input 0 has rank {}", dims.len());
            return Err(OpError::shape(Blame::Input(port), message));
        }
        (false, Some(count)) => Some((0..count as i64).collect()),
        (false, None) => None,
    };
    let Some(axes) = axes else {
        return Ok(PartialShape::from_dims(output.iter().map(|dim| Dim::interval(0, dim.max()))));
    };
    let value = |p: usize, i: usize| context.bounds(p).and_then(|b| b.values.get(i)).copied().unwrap_or(Value::UNKNOWN);
    for (i, axis) in unique_axes(&axes, dims.len(), port + 3)?.into_iter().enumerate() {
        output[axis] = slice_dim(dims[axis], value(port, i), value(port + 1, i), value(port + 2, i));
    }
    Ok(PartialShape::from_dims(output))
}

fn unique_axes(axes: &[i64], rank: usize, port: usize) -> OpResult<SmallVec<[usize; 8]>> {
    let mut positions: SmallVec<[usize; 8]> = SmallVec::new();
    for axis in axes {
        let position = normalize_axis(*axis, rank, Blame::Input(port))?;
        if positions.contains(&position) {
            let message = format!("axis {axis} names axis {position}, which is sliced already; axes must be unique");
            return Err(OpError::value(Blame::Input(port), message));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn check_step(step: Value, position: usize, port: usize) -> OpResult {
    if step.get() != Some(0) {
        return Ok(());
    }
    Err(OpError::value(Blame::Input(port), format!("the step at position {position} is 0; it must not be")))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn run(start: i64, stop: i64, step: i64) -> Vec<i32> {
        let data: Vec<i32> = (0..10).collect();
        let one = |v: i64| tensor(&[v], [1]);
        let inputs = [tensor(&data, [10]), one(start), one(stop), one(step), one(0)];
        Case::new("Slice", "opset8").run(&inputs).unwrap()[0].slice::<i32>().unwrap().to_vec()
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(run(1, 8, 1), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(run(1, 8, 2), [1, 3, 5, 7]);
        assert_eq!(run(-100, 100, 1), (0..10).collect::<Vec<_>>());
        assert_eq!(run(9, -11, -1), (0..10).rev().collect::<Vec<_>>());
        assert_eq!(run(9, 0, -1), (1..10).rev().collect::<Vec<_>>());
        assert_eq!(run(9, -10, -1), (1..10).rev().collect::<Vec<_>>());
        assert_eq!(run(9, -11, -2), [9, 7, 5, 3, 1]);
        assert_eq!(run(100, -100, -1), (0..10).rev().collect::<Vec<_>>());
        let two = |a: i64, b: i64| tensor(&[a, b], [2]);
        let data: Vec<i32> = (0..10).collect();
        let inputs = [tensor(&data, [2, 5]), two(0, 1), two(2, 4), two(1, 2), two(0, 1)];
        assert_eq!(Case::new("Slice", "opset8").run(&inputs).unwrap()[0], tensor(&[1, 3, 6, 8], [2, 2]));
        let case = Case::new("Slice", "opset8");
        assert_eq!(case.infer(&["f32[20,10,5]", "i64[2]=0,0", "i64[2]=4,10", "i64[2]=1,1"]), ["f32[4,10,5]"]);
    }

    #[test]
    fn shapes_and_values() {
        let case = Case::new("Slice", "opset8");
        assert_eq!(case.infer(&["f32[?,10]", "i64[1]=1", "i64[1]=2147483647", "i64[1]=1", "i64[1]=0"]), ["f32[?,10]"]);
        assert_eq!(case.infer(&["f32[?,10]", "i64[1]", "i64[1]", "i64[1]=1", "i64[1]=-1"]), ["f32[?,..10]"]);
        assert_eq!(case.infer(&["f32[3,10]", "i64[1]", "i64[1]", "i64[1]", "i64[1]"]), ["f32[..3,..10]"]);
        assert_eq!(case.infer(&["i64[3]=1,2..5,7", "i64[1]=1", "i64[1]=3", "i64[1]=1"]), ["i64[2]=2..5,7"]);
        assert_eq!(
            case.infer_error(&["f32[3]", "i64[1]=0", "i64[1]=3", "i64[1]=0"]),
            "input 3: the step at position 0 is 0; it must not be"
        );
        assert_eq!(
            case.infer_error(&["f32[3]", "i64[1]", "i64[2]", "i64[1]"]),
            "input 2: 2 elements are here and 1 in the inputs before; they must be equal"
        );
        assert_eq!(
            case.infer_error(&["f32[3,4]", "i64[2]", "i64[2]", "i64[2]", "i64[2]=1,-1"]),
            "input 4: axis -1 names axis 1, which is sliced already; axes must be unique"
        );
        assert_eq!(
            case.infer_error(&["f32[]", "i64[1]", "i64[1]", "i64[1]"]),
            "input 0: shape [] has rank 0; it must be at least 1"
        );
    }
}
