//! # StridedSlice
//! A region of a tensor, with steps, new axes, removed axes and an ellipsis, as in NumPy's indexing.
//!
//! Specification: `movement/strided-slice-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | begin | any integer type | `[n]` |
//! | in 2 | end | any integer type | `[n]` |
//! | in 3 | stride (optional) | any integer type | `[n]`, no element 0; all 1 without it |
//! | out 0 | | that of `data` | as the slices say |
//!
//! Masks may be shorter or longer than `n`. Of an ellipsis, a new axis and a removed axis at one position, the first
//! of these counts. A removed axis takes the element at `begin`, which must exist; a masked `begin` is the first.
//!
//! As in OpenVINO and TensorFlow, against the letter of the specification: `begin == end` selects nothing, and a
//! masked `end` with a negative stride reaches the first element.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec, TensorView, Value};

use crate::common::movement::{Strided, View, evaluate_view, propagate_view};
use crate::common::slicing::{select, slice_dim};
use crate::infer::integers_at;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of StridedSlice.
    pub struct StridedSliceAttributes {
        /// Where 1 stands, `begin` is ignored and the slice starts with the axis.
        begin_mask: Vec<i64> = "begin_mask", required true;
        /// Where 1 stands, `end` is ignored and the slice ends with the axis.
        end_mask: Vec<i64> = "end_mask", required true;
        /// Where 1 stands, an axis of size 1 is added.
        new_axis_mask: Vec<i64> = "new_axis_mask", default "";
        /// Where 1 stands, the axis is removed.
        shrink_axis_mask: Vec<i64> = "shrink_axis_mask", default "";
        /// Where 1 stands, as many whole axes are taken as are left.
        ellipsis_mask: Vec<i64> = "ellipsis_mask", default "";
    }
}

/// The definition of StridedSlice.
pub static STRIDED_SLICE: OpDef = OpDef {
    type_name: "StridedSlice",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (3, 4), (1, 1))],
    attributes: StridedSliceAttributes::DEFINITIONS,
    build,
};

/// A StridedSlice layer.
#[derive(Debug)]
pub struct StridedSlice {
    /// The attributes.
    pub attributes: StridedSliceAttributes,
}

impl Operation for StridedSlice {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        let shape = self.output_shape(context)?;
        let is_static = shape.is_static();
        context.set_output(0, element_type, shape);
        let (true, Some(input)) = (is_static, context.shape(0).to_shape()) else { return Ok(()) };
        let count = context.shape(1).dim(0).get().unwrap_or(0);
        let steps = self.steps(&Parameters::of(context, count), input.rank())?;
        if let Some(view) = view(&steps, &input)? {
            propagate_view(context, 0, &view);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let view = self.view_of(context.input(0)?.shape(), Parameters::read(context)?)?;
        evaluate_view(context, 0, &view)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

/// What happens to one axis.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step {
    /// An axis of size 1 appears.
    New,
    /// The axis goes; the element at this index stays.
    Take { axis: usize, index: Value },
    /// A slice of the axis.
    Range { axis: usize, start: Value, stop: Value, step: Value },
}

/// Begin, end and stride, as far as they are known.
struct Parameters {
    begin: SmallVec<[Value; 8]>,
    end: SmallVec<[Value; 8]>,
    stride: SmallVec<[Value; 8]>,
}

impl Parameters {
    fn of(context: &InferContext<'_>, count: usize) -> Parameters {
        let values = |port: usize| match context.bounds(port) {
            Some(bounds) if bounds.values.len() == count => bounds.values.clone(),
            _ => SmallVec::from_elem(Value::UNKNOWN, count),
        };
        let stride = match context.input_count() > 3 {
            true => values(3),
            false => SmallVec::from_elem(Value::known(1), count),
        };
        Parameters { begin: values(1), end: values(2), stride }
    }

    fn read(context: &EvaluateContext<'_>) -> OpResult<Parameters> {
        let stride = if context.input_count() > 3 { Some(context.integers(3)?) } else { None };
        Self::of_integers(context.integers(1)?, context.integers(2)?, stride)
    }

    fn of_integers(
        begin: SmallVec<[i64; 8]>,
        end: SmallVec<[i64; 8]>,
        stride: Option<SmallVec<[i64; 8]>>,
    ) -> OpResult<Parameters> {
        let stride = stride.unwrap_or_else(|| SmallVec::from_elem(1, begin.len()));
        for (port, length) in [(2, end.len()), (3, stride.len())] {
            if length != begin.len() {
                let message = format!("{length} elements are here and {} in begin; they must be equal", begin.len());
                return Err(OpError::shape(Blame::Input(port), message));
            }
        }
        let known = |values: SmallVec<[i64; 8]>| values.into_iter().map(Value::known).collect();
        Ok(Parameters { begin: known(begin), end: known(end), stride: known(stride) })
    }
}

impl StridedSlice {
    /// The output as its elements lie in data of shape `input`. `parameters` are begin, end and, perhaps, strides.
    ///
    /// # Errors
    /// Parameters that are no integers, or that do not fit each other or the data.
    pub fn view(&self, input: &Shape, parameters: &[TensorView<'_>]) -> OpResult<View> {
        let stride = if parameters.len() > 2 { Some(integers_at(parameters, 2)?) } else { None };
        self.view_of(input, Parameters::of_integers(integers_at(parameters, 0)?, integers_at(parameters, 1)?, stride)?)
    }

    fn view_of(&self, input: &Shape, parameters: Parameters) -> OpResult<View> {
        let view = view(&self.steps(&parameters, input.rank())?, input)?;
        view.ok_or_else(|| OpError::value(Blame::Node, "the slices are not known"))
    }

    fn output_shape(&self, context: &InferContext<'_>) -> OpResult<PartialShape> {
        let mut count = Dim::DYNAMIC;
        for port in 1..context.input_count() {
            context.require_class(port, ElementClass::Integer)?;
            context.require_rank(port, 1..=1)?;
            let length = context.shape(port).dim(0);
            count = count.merge(length).ok_or_else(|| {
                let message =
                    format!("{length} elements are here and {count} in the inputs before; they must be equal");
                OpError::shape(Blame::Input(port), message)
            })?;
        }
        let Some(dims) = context.shape(0).dims() else { return Ok(PartialShape::DYNAMIC) };
        let Some(count) = count.get() else { return Ok(self.shape_of_unknown_count(dims)) };
        let steps = self.steps(&Parameters::of(context, count), dims.len())?;
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for step in steps {
            match step {
                Step::New => output.push(Dim::fixed(1)),
                Step::Take { axis, index } => check_index(index, dims[axis], axis)?,
                Step::Range { axis, start, stop, step } => output.push(slice_dim(dims[axis], start, stop, step)),
            }
        }
        Ok(PartialShape::from_dims(output))
    }

    fn shape_of_unknown_count(&self, dims: &[Dim]) -> PartialShape {
        let attributes = &self.attributes;
        let masks = [&attributes.new_axis_mask, &attributes.shrink_axis_mask];
        if masks.into_iter().flatten().any(|bit| *bit != 0) {
            return PartialShape::DYNAMIC;
        }
        PartialShape::from_dims(dims.iter().map(|dim| Dim::interval(0, dim.max())))
    }

    /// What happens to each axis of a tensor of `rank`.
    fn steps(&self, parameters: &Parameters, rank: usize) -> OpResult<SmallVec<[Step; 8]>> {
        let attributes = &self.attributes;
        let count = parameters.begin.len();
        let is_set = |mask: &[i64], i: usize| mask.get(i).is_some_and(|bit| *bit != 0);
        let ellipsis = (0..count).find(|i| is_set(&attributes.ellipsis_mask, *i));
        let is_new = |i: usize| ellipsis != Some(i) && is_set(&attributes.new_axis_mask, i);
        let named = (0..count).filter(|i| ellipsis != Some(*i) && !is_new(*i)).count();
        let Some(left) = rank.checked_sub(named) else {
            let message = format!("{named} axes are sliced; input 0 has rank {rank}");
            return Err(OpError::shape(Blame::Input(1), message));
        };
        let whole = |axis: usize| Step::Range {
            axis,
            start: Value::known(0),
            stop: Value::known(i64::MAX),
            step: Value::known(1),
        };
        let (mut steps, mut axis) = (SmallVec::new(), 0);
        for i in 0..count {
            if ellipsis == Some(i) {
                steps.extend((axis..axis + left).map(whole));
                axis += left;
                continue;
            }
            if is_new(i) {
                steps.push(Step::New);
                continue;
            }
            let (begin_masked, end_masked) = (is_set(&attributes.begin_mask, i), is_set(&attributes.end_mask, i));
            let begin = parameters.begin[i];
            if is_set(&attributes.shrink_axis_mask, i) {
                steps.push(Step::Take { axis, index: if begin_masked { Value::known(0) } else { begin } });
            } else {
                let step = parameters.stride[i];
                if step.get() == Some(0) {
                    let message = format!("the stride at position {i} is 0; it must not be");
                    return Err(OpError::value(Blame::Input(3), message));
                }
                let start = if begin_masked { masked(step, 0, i64::MAX) } else { begin };
                let stop = if end_masked { masked(step, i64::MAX, i64::MIN) } else { parameters.end[i] };
                steps.push(Step::Range { axis, start, stop, step });
            }
            axis += 1;
        }
        steps.extend((axis..rank).map(whole));
        Ok(steps)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = StridedSliceAttributes::read(context.attributes);
    let masks = [
        ("begin_mask", &attributes.begin_mask),
        ("end_mask", &attributes.end_mask),
        ("new_axis_mask", &attributes.new_axis_mask),
        ("shrink_axis_mask", &attributes.shrink_axis_mask),
        ("ellipsis_mask", &attributes.ellipsis_mask),
    ];
    for (name, mask) in masks {
        if let Some(bit) = mask.iter().find(|bit| !matches!(bit, 0 | 1)) {
            context.attributes.report(OpError::attribute(name, format!("{mask:?} holds {bit}; it may hold 0 and 1")));
        }
    }
    if attributes.ellipsis_mask.iter().filter(|bit| **bit != 0).count() > 1 {
        let message = format!("{:?} has more than one ellipsis", attributes.ellipsis_mask);
        context.attributes.report(OpError::attribute("ellipsis_mask", message));
    }
    Arc::new(StridedSlice { attributes })
}

/// The value that stands for a masked bound, by the direction of the step.
fn masked(step: Value, forward: i64, backward: i64) -> Value {
    if step.min > 0 {
        return Value::known(forward);
    }
    if step.max < 0 {
        return Value::known(backward);
    }
    Value::UNKNOWN
}

fn check_index(index: Value, dim: Dim, axis: usize) -> OpResult {
    let (above, below) = (index.min >= dim.max(), index.max < dim.max().saturating_neg());
    if !above && !below {
        return Ok(());
    }
    let message = format!("begin {index:?} takes no element of axis {axis} of size {dim} (shrink_axis_mask)");
    Err(OpError::index(Blame::Input(1), message))
}

/// The selected part of a dense tensor; `None` while something is unknown.
fn view(steps: &[Step], input: &Shape) -> OpResult<Option<View>> {
    let dense = Strided::dense(input);
    let mut walk: SmallVec<[usize; 8]> = SmallVec::new();
    let mut from = Strided::default();
    for step in steps {
        let (axis, first) = match *step {
            Step::New => {
                walk.push(1);
                from.strides.push(0);
                continue;
            }
            Step::Take { axis, index } => {
                check_index(index, Dim::fixed(input[axis]), axis)?;
                let Some(index) = index.get() else { return Ok(None) };
                let position = if index < 0 { index + input[axis] as i64 } else { index };
                (axis, position as usize)
            }
            Step::Range { axis, start, stop, step } => {
                let (Some(start), Some(stop), Some(step)) = (start.get(), stop.get(), step.get()) else {
                    return Ok(None);
                };
                let selection = select(input[axis], start, stop, step);
                walk.push(selection.count);
                from.strides.push(dense.strides[axis].saturating_mul(selection.step));
                (axis, selection.first)
            }
        };
        from.offset = from.offset.saturating_add(first.saturating_mul(dense.strides[axis] as usize));
    }
    Ok(Some(View { shape: Shape::from_slice(&walk), walk, from }))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(begin: &str, end: &str) -> Case {
        Case::new("StridedSlice", "opset1").attribute("begin_mask", begin).attribute("end_mask", end)
    }

    #[test]
    fn examples_of_the_specification() {
        let six = case("0", "0").infer(&[
            "f32[4,4,4,4,4,4]",
            "i64[6]=0,1,0,1,3,3",
            "i64[6]=4,4,4,4,0,0",
            "i64[6]=1,1,2,2,-1,-2",
        ]);
        assert_eq!(six, ["f32[4,3,2,2,3,2]"]);
        assert_eq!(
            case("0", "0").infer(&["f32[2,3,4]", "i64[3]=0,0,0", "i64[3]=2,2,-1", "i64[3]=1,1,1"]),
            ["f32[2,2,3]"]
        );
        assert_eq!(
            case("0,0,0,0", "0,0,0,0").attribute("new_axis_mask", "1,0,1,0").infer(&[
                "f32[2,4]",
                "i64[4]=0,0,0,0",
                "i64[4]=0,2,0,4",
                "i64[4]=0,1,0,1"
            ]),
            ["f32[1,2,1,4]"]
        );
        let whole = "0,0,0";
        let ellipsis = case(whole, whole).attribute("ellipsis_mask", "0,1,0");
        assert_eq!(
            ellipsis.infer(&["f32[10,9,8,7,6]", "i64[3]=0,0,0", "i64[3]=1,0,1", "i64[3]=1,1,1"]),
            ["f32[1,9,8,7,1]"]
        );
    }

    #[test]
    fn selects_elements() {
        let data = tensor(&(0..24).collect::<Vec<i32>>(), [2, 3, 4]);
        let three = |a: i64, b: i64, c: i64| tensor(&[a, b, c], [3]);
        let shrink = case("0,1,1", "0,1,1").attribute("shrink_axis_mask", "1");
        let output = shrink.run(&[data.clone(), three(-1, 0, 0), three(0, 0, 0), three(1, 2, -1)]).unwrap();
        assert_eq!(output[0], tensor(&[15, 14, 13, 12, 23, 22, 21, 20], [2, 4]));
        let output = case("0", "0").run(&[data, tensor(&[1i32], [1]), tensor(&[1i32], [1])]).unwrap();
        assert_eq!(output[0].shape().to_vec(), [0, 3, 4]);
    }

    #[test]
    fn unknown_parts_stay_unknown() {
        let shrink = case("0", "0").attribute("shrink_axis_mask", "1");
        assert_eq!(shrink.infer(&["i64[3]=1,2..5,7", "i64[1]=1", "i64[1]=2", "i64[1]=1"]), ["i64[]=2..5"]);
        assert_eq!(shrink.infer(&["f32[?,3]", "i64[1]", "i64[1]", "i64[1]"]), ["f32[3]"]);
        assert_eq!(case("0", "1").infer(&["f32[?,3]", "i64[1]=1", "i64[1]", "i64[1]=1"]), ["f32[?,3]"]);
        assert_eq!(case("0", "0").infer(&["f32[4,3]", "i64[?]", "i64[?]"]), ["f32[..4,..3]"]);
        assert_eq!(shrink.infer(&["f32[4,3]", "i64[?]", "i64[?]"]), ["f32[...]"]);
    }

    #[test]
    fn violations() {
        let shrink = case("0", "0").attribute("shrink_axis_mask", "1");
        assert_eq!(
            shrink.infer_error(&["f32[3]", "i64[1]=3", "i64[1]=4", "i64[1]=1"]),
            "input 1: begin 3 takes no element of axis 0 of size 3 (shrink_axis_mask)"
        );
        assert_eq!(
            case("0", "0").infer_error(&["f32[3]", "i64[2]", "i64[2]", "i64[2]"]),
            "input 1: 2 axes are sliced; input 0 has rank 1"
        );
        assert_eq!(
            case("0", "0").infer_error(&["f32[3]", "i64[1]", "i64[1]", "i64[1]=0"]),
            "input 3: the stride at position 0 is 0; it must not be"
        );
        assert_eq!(
            case("0,2", "0").attribute_errors(4),
            ["attribute `begin_mask`: [0, 2] holds 2; it may hold 0 and 1"]
        );
    }
}
