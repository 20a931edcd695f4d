//! # Tile
//! A tensor repeated along its axes.
//!
//! Specification: `movement/tile-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | repeats | any integer type | `[n]`, no element negative |
//! | out 0 | | that of `data` | `data`, filled up with leading ones to rank `n`, times `repeats` |
//!
//! `repeats` is filled up with leading ones to the rank of the data.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec, TensorView, Value};

use crate::common::movement::{Strided, View, evaluate_view, propagate_view};
use crate::infer::integers_at;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Tile.
pub static TILE: OpDef = OpDef {
    type_name: "Tile",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: &[],
    build,
};

/// A Tile layer.
#[derive(Debug)]
pub struct Tile;

impl Operation for Tile {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        context.require_rank(1, 1..=1)?;
        let count = context.shape(1).dim(0).get().filter(|count| *count <= ovir_tensor::MAX_RANK);
        let (Some(dims), Some(count)) = (context.shape(0).dims(), count) else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let rank = dims.len().max(count);
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for axis in 0..rank {
            let dim = (axis + dims.len()).checked_sub(rank).map_or(Dim::fixed(1), |i| dims[i]);
            let repeats = match ((axis + count).checked_sub(rank), context.bounds(1)) {
                (None, _) => Value::known(1),
                (Some(i), Some(bounds)) => bounds.values[i],
                (Some(_), None) => Value::UNKNOWN,
            };
            if repeats.max < 0 {
                let message = format!("{repeats:?} repeats of axis {axis} must not be negative");
                return Err(OpError::value(Blame::Input(1), message));
            }
            output.push(dim * repeats.to_dim());
        }
        context.set_output(0, element_type, PartialShape::from_dims(output));
        if let (Some(input), Some(repeats)) = (context.shape(0).to_shape(), context.integers(1)) {
            propagate_view(context, 0, &view(&input, &repeats)?);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let view = view(context.input(0)?.shape(), &context.integers(1)?)?;
        evaluate_view(context, 0, &view)
    }
}

impl Tile {
    /// The output as its elements lie in data of shape `input`. `parameters` are the repeats.
    ///
    /// # Errors
    /// Repeats that are no integers, or negative.
    pub fn view(&self, input: &Shape, parameters: &[TensorView<'_>]) -> OpResult<View> {
        view(input, &integers_at(parameters, 0)?)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Tile)
}

fn view(input: &Shape, repeats: &[i64]) -> OpResult<View> {
    let rank = input.rank().max(repeats.len());
    let dense = Strided::dense(input);
    let mut view = View { shape: Shape::default(), walk: SmallVec::new(), from: Strided::default() };
    for axis in 0..rank {
        let old = (axis + input.rank()).checked_sub(rank);
        let (size, stride) = old.map_or((1, 0), |i| (input[i], dense.strides[i]));
        let count = (axis + repeats.len()).checked_sub(rank).map_or(1, |i| repeats[i]);
        let count = usize::try_from(count).map_err(|_| {
            OpError::value(Blame::Input(1), format!("{count} repeats of axis {axis} must not be negative"))
        })?;
        view.shape.push(size.saturating_mul(count));
        view.walk.extend([count, size]);
        view.from.strides.extend([0, stride]);
    }
    Ok(view)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let case = Case::new("Tile", "opset1");
        assert_eq!(case.infer(&["f32[2,3,4]", "i64[3]=1,2,3"]), ["f32[2,6,12]"]);
        assert_eq!(case.infer(&["f32[3,1]", "i64[3]=2,1,3"]), ["f32[2,3,3]"]);
        assert_eq!(case.infer(&["f32[5,2,1,2]", "i64[2]=1,2"]), ["f32[5,2,1,4]"]);
    }

    #[test]
    fn repeats() {
        let case = Case::new("Tile", "opset1");
        let output = case.run(&[tensor(&[1u8, 2, 3, 4], [2, 2]), tensor(&[2i64, 2], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[1u8, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4], [4, 4]));
        let output = case.run(&[tensor(&[1u8, 2], [2]), tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0].shape().to_vec(), [0]);
        assert_eq!(case.infer(&["i64[1]=3..5", "i64[1]=2"]), ["i64[2]=3..5,3..5"]);
        assert_eq!(case.infer(&["f32[?,3]", "i64[2]=1,2..3"]), ["f32[?,6..9]"]);
        assert_eq!(case.infer_error(&["f32[3]", "i64[1]=-1"]), "input 1: -1 repeats of axis 0 must not be negative");
    }
}
