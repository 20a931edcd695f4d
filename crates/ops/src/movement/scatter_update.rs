//! # ScatterUpdate
//! A copy of the data in which whole slices along one axis are replaced.
//!
//! Specification: `movement/scatter-update-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | indices | any integer type | any, a scalar too |
//! | in 2 | updates | that of `data` | `data[:axis] + indices + data[axis + 1:]` |
//! | in 3 | axis | any integer type | scalar or `[1]` |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Indices lie in `[0, size - 1]`; negative ones are an error. Where an index repeats, the last update in row-major
//! order stays. All indices are checked before anything is written. OpenVINO's CPU plugin narrows i64 indices to i32
//! and leaves those of small 1-D tensors unchecked; ovir does neither.

use std::ops::Range;
use std::sync::Arc;

use ovir_tensor::{ElementClass, PartialShape, TensorView};

use crate::common::index::{IndexRange, Indices, known_indices};
use crate::common::movement::{known_axis, require_axis};
use crate::common::scatter::{Places, Reduction, evaluate_scatter, propagate_scatter, single_integer, wrong_ports};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of ScatterUpdate.
pub static SCATTER_UPDATE: OpDef = OpDef {
    type_name: "ScatterUpdate",
    category: Category::Movement,
    versions: &[OpVersion::new(3, (3, 16), (4, 4), (1, 1))],
    attributes: &[],
    build,
};

/// A ScatterUpdate layer.
#[derive(Debug)]
pub struct ScatterUpdate;

impl Operation for ScatterUpdate {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_same_type(&[0, 2])?;
        context.require_class(1, ElementClass::Integer)?;
        require_axis(context, 3)?;
        let (data, indices, updates) = (context.shape(0), context.shape(1), context.shape(2));
        let axis = match data.rank() {
            Some(rank) => known_axis(context, 3, rank)?,
            None => None,
        };
        check_shapes(data, indices, updates, axis)?;
        context.set_output(0, element_type, data.clone());
        let (Some(axis), Some(known)) = (axis, known_indices(context, 1)) else { return Ok(()) };
        known.check_possible(IndexRange::FromStart, |_| (axis, data.dim(axis)))?;
        if let Some(shape) = data.to_shape() {
            propagate_scatter(context, &places(known, &shape, axis), Reduction::NONE);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let places = locate(&[context.input(0)?, context.input(1)?, context.input(2)?, context.input(3)?])?;
        evaluate_scatter(context, &places, Reduction::NONE)
    }

    fn overwritten(&self, inputs: &[TensorView<'_>], ranges: &mut Vec<Range<usize>>) -> OpResult<bool> {
        Ok(locate(inputs)?.overwritten(inputs, ranges))
    }

    fn in_place_input(&self) -> Option<usize> {
        Some(0)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ScatterUpdate)
}

/// Where the updates go, after every check.
fn locate<'a>(inputs: &[TensorView<'a>]) -> OpResult<Places<'a>> {
    let [data, indices, updates, axis] = *inputs else { return Err(wrong_ports(inputs.len(), 4)) };
    let data = data.shape();
    let indices = Indices::new(indices, 1)?;
    let axis = normalize_axis(single_integer(axis, 3)?, data.rank(), Blame::Input(3))?;
    let updates = PartialShape::from(updates.shape());
    check_shapes(&PartialShape::from(data), &PartialShape::from(indices.shape()), &updates, Some(axis))?;
    indices.check(IndexRange::FromStart, |_| (axis, data[axis]))?;
    Ok(places(indices, data, axis))
}

fn places<'a>(indices: Indices<'a>, data: &[usize], axis: usize) -> Places<'a> {
    let (outer, inner) = (data[..axis].iter().product(), data[axis + 1..].iter().product());
    Places::Slices { indices, outer, size: data[axis], inner }
}

fn check_shapes(data: &PartialShape, indices: &PartialShape, updates: &PartialShape, axis: Option<usize>) -> OpResult {
    if data.rank() == Some(0) {
        return Err(OpError::shape(Blame::Input(0), "shape [] has rank 0; a scalar has no axis to scatter along"));
    }
    let (Some(data_dims), Some(index_dims), Some(update_dims)) = (data.dims(), indices.dims(), updates.dims()) else {
        return Ok(());
    };
    let rank = data_dims.len() + index_dims.len() - 1;
    if update_dims.len() != rank {
        let message = format!(
            "shape {updates} has rank {}; with data {data} and indices {indices} it must be {rank}",
            update_dims.len()
        );
        return Err(OpError::shape(Blame::Input(2), message));
    }
    let Some(axis) = axis else { return Ok(()) };
    let expected = || data_dims[..axis].iter().chain(index_dims).chain(&data_dims[axis + 1..]);
    match expected().zip(update_dims).position(|(a, b)| !a.compatible(*b)) {
        None => Ok(()),
        Some(i) => {
            let expected: PartialShape = PartialShape::from_dims(expected().copied());
            let message = format!(
                "shape {updates} must be {expected} (data {data}, indices {indices}, axis {axis}): {} meets {} at axis {i}",
                updates.dim(i),
                expected.dim(i)
            );
            Err(OpError::shape(Blame::Input(2), message))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use crate::{Environment, EvaluateContext, OutputSlot, OutputSlots};
    use ovir_tensor::{Shape, Tensor, TensorView};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("ScatterUpdate", "opset3")
    }

    #[test]
    fn example_1_of_the_specification() {
        let shapes = case().infer(&["f32[1000,256,10,15]", "i32[125,20]", "f32[1000,125,20,10,15]", "i64[1]=1"]);
        assert_eq!(shapes, ["f32[1000,256,10,15]"]);
    }

    #[test]
    fn example_2_of_the_specification() {
        let data = [-1f32, 1.0, -1.0, 3.0, 4.0, -1.0, 6.0, -1.0, 8.0, 9.0, -1.0, 11.0, 1.0, 13.0, 14.0];
        let updates = tensor(&[1f32, 1.0, 1.0, 1.0, 1.0, 2.0], [3, 2]);
        let inputs = [tensor(&data, [3, 5]), tensor(&[0i32, 2], [2]), updates, tensor(&[1i64], [1])];
        let expected = [1f32, 1.0, 1.0, 3.0, 4.0, 1.0, 6.0, 1.0, 8.0, 9.0, 1.0, 11.0, 2.0, 13.0, 14.0];
        assert_eq!(case().run(&inputs).unwrap()[0], tensor(&expected, [3, 5]));
    }

    #[test]
    fn indices_of_any_rank_and_the_last_duplicate() {
        let data = tensor(&[0i64; 6], [3, 2]);
        let scalar = [data.clone(), tensor(&[2u8], []), tensor(&[1i64, 2], [2]), tensor(&[0i32], [])];
        assert_eq!(case().run(&scalar).unwrap()[0], tensor(&[0i64, 0, 0, 0, 1, 2], [3, 2]));
        let updates = tensor(&[1i64, 2, 3, 4, 5, 6, 7, 8], [2, 2, 2]);
        let inputs = [data.clone(), tensor(&[0i16, 1, 1, 0], [2, 2]), updates, tensor(&[-2i32], [])];
        assert_eq!(case().run(&inputs).unwrap()[0], tensor(&[7i64, 8, 5, 6, 0, 0], [3, 2]));
        let one = [tensor(&[1u8, 2], [2]), tensor(&[1i64], []), tensor(&[9u8], []), tensor(&[0i64], [])];
        assert_eq!(case().run(&one).unwrap()[0], tensor(&[1u8, 9], [2]));
        let none = [data.clone(), tensor::<i64>(&[], [0]), tensor::<i64>(&[], [0, 2]), tensor(&[0i64], [])];
        assert_eq!(case().run(&none).unwrap()[0], data);
    }

    #[test]
    fn strings_move_too() {
        let words =
            |list: &[&str]| Tensor::from_strings(list.iter().map(ToString::to_string).collect(), [list.len()]).unwrap();
        let inputs = [words(&["a", "b"]), tensor(&[0i64], [1]), words(&["c"]), tensor(&[0i64], [])];
        assert_eq!(case().run(&inputs).unwrap()[0].strings().unwrap(), ["c", "b"]);
    }

    #[test]
    fn indices_out_of_range() {
        let run = |index: i64| {
            let inputs =
                [tensor(&[1f32; 5], [5]), tensor(&[0, index], [2]), tensor(&[2f32; 2], [2]), tensor(&[0i64], [])];
            case().run(&inputs).unwrap_err().to_string()
        };
        assert_eq!(
            run(5),
            "input 1: index 5 at position [1] is out of range of axis 0 of size 5: it must be in [0, 4]"
        );
        assert_eq!(
            run(-1),
            "input 1: index -1 at position [1] is out of range of axis 0 of size 5: it must be in [0, 4]"
        );
        assert!(run((1 << 32) + 1).contains("index 4294967297"));
        assert_eq!(
            case().infer_error(&["f32[..3]", "i64[1]=3", "f32[1]", "i64[]=0"]),
            "input 1: index 3 at position [0] is out of range of axis 0 of size ..3: it must be in [0, 2]"
        );
    }

    #[test]
    fn shapes_must_fit() {
        assert_eq!(
            case().infer_error(&["f32[5,3]", "i64[2]", "f32[2,4]", "i64[]=0"]),
            "input 2: shape [2,4] must be [2,3] (data [5,3], indices [2], axis 0): 4 meets 3 at axis 1"
        );
        assert_eq!(
            case().infer_error(&["f32[5,3]", "i64[2]", "f32[2]", "i64[]"]),
            "input 2: shape [2] has rank 1; with data [5,3] and indices [2] it must be 2"
        );
        assert_eq!(
            case().infer_error(&["f32[5,3]", "i64[2]", "f32[2,3]", "i64[2]"]),
            "input 3: shape [2] must be a scalar or a tensor of one element"
        );
        assert_eq!(
            case().infer_error(&["f32[5,3]", "i64[2]", "f32[2,3]", "i64[]=2"]),
            "input 3: axis 2 is out of range [-2, 1] for a tensor of rank 2"
        );
        assert_eq!(
            case().infer_error(&["f32[]", "i64[2]", "f32[2]", "i64[]=0"]),
            "input 3: axis 0 is out of range: a scalar has no axes"
        );
        assert_eq!(
            case().infer_error(&["f32[5]", "boolean[2]", "f32[2]", "i64[]=0"]),
            "input 1: element type boolean must be an integer type"
        );
        assert_eq!(
            case().infer_error(&["f32[5]", "i64[2]", "f16[2]", "i64[]=0"]),
            "input 2: element type f16 differs from f32 of input 0; they must be equal"
        );
        assert_eq!(case().infer(&["f32[...]", "i64[2]", "f32[?]", "i64[]=99"]), ["f32[...]"]);
        assert_eq!(case().infer(&["f32[?,1..3]", "i64[?]", "f32[2,?]", "i64[]=0"]), ["f32[?,1..3]"]);
    }

    #[test]
    fn values_pass_through_shape_subgraphs() {
        assert_eq!(case().infer(&["i64[3]=5..7,4,2..9", "i64[1]=1", "i64[1]=10", "i64[]=0"]), ["i64[3]=5..7,10,2..9"]);
        assert_eq!(case().infer(&["i64[3]=1,0,3", "i64[1]=1", "i64[1]=2..9", "i64[]=0"]), ["i64[3]=1,2..9,3"]);
        assert_eq!(case().infer(&["i64[3]=1,0,3", "i64[1]", "i64[1]=2", "i64[]=0"]), ["i64[3]"]);
    }

    #[test]
    fn works_in_place_and_leaves_the_output_alone_on_error() {
        let operation = case().build(4).unwrap();
        let shape = Shape::from([3]);
        let mut state = tensor(&[1f32, 2.0, 3.0], [3]);
        let (axis, updates) = (tensor(&[0i64], []), tensor(&[8f32, 9.0], [2]));
        let mut run = |indices: [i64; 2]| {
            let indices = tensor(&indices, [2]);
            let data = TensorView::of_bytes(ovir_tensor::ElementType::F32, &shape, &[]);
            let inputs = [data, indices.view(), updates.view(), axis.view()];
            let mut slots = [OutputSlot::Given(state.view_mut().unwrap())];
            let mut environment = Environment::unlimited();
            let mut outputs = OutputSlots(&mut slots);
            let mut context = EvaluateContext::new(&inputs, &mut outputs, &[], &mut environment, true);
            let result = operation.evaluate(&mut context);
            (result.is_ok(), state.slice::<f32>().unwrap().to_vec())
        };
        assert_eq!(run([0, 3]), (false, vec![1.0, 2.0, 3.0]));
        assert_eq!(run([2, 0]), (true, vec![9.0, 2.0, 8.0]));
    }
}
