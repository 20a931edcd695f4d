//! # Transpose
//! The axes of a tensor in another order.
//!
//! Specification: `movement/transpose-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | arg | any | any |
//! | in 1 | input_order | any integer type | `[rank]` or `[0]` |
//! | out 0 | | that of `arg` | `arg` with axis `i` from axis `input_order[i]` |
//!
//! An empty order reverses the axes.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use crate::common::movement::{View, evaluate_view, propagate_view};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Transpose.
pub static TRANSPOSE: OpDef = OpDef {
    type_name: "Transpose",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: &[],
    build,
};

/// A Transpose layer.
#[derive(Debug)]
pub struct Transpose;

impl Operation for Transpose {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        context.require_rank(1, 1..=1)?;
        let (input, count) = (context.shape(0), context.shape(1).dim(0).get());
        let order = context.integers(1);
        let Some(dims) = input.dims() else {
            let shape = match count {
                Some(rank) if rank > 0 && rank <= ovir_tensor::MAX_RANK => PartialShape::of_rank(rank),
                _ => PartialShape::DYNAMIC,
            };
            context.set_output(0, element_type, shape);
            return Ok(());
        };
        let Some(order) = order else {
            check_count(dims.len(), count)?;
            let any = dims.iter().copied().reduce(Dim::union).unwrap_or(Dim::DYNAMIC).with_symbol(None);
            context.set_output(0, element_type, PartialShape::from_dims(dims.iter().map(|_| any)));
            return Ok(());
        };
        let order = permutation(&order, dims.len())?;
        context.set_output(0, element_type, PartialShape::from_dims(order.iter().map(|axis| dims[*axis])));
        if let Some(shape) = input.to_shape() {
            propagate_view(context, 0, &view(&shape, &order));
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        let order = permutation(&context.integers(1)?, shape.rank())?;
        evaluate_view(context, 0, &view(shape, &order))
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Transpose)
}

fn view(input: &Shape, order: &[usize]) -> View {
    View::permuted(order.iter().map(|axis| input[*axis]).collect(), input, order)
}

fn check_count(rank: usize, count: Option<usize>) -> OpResult {
    match count {
        Some(count) if count != 0 && count != rank => {
            let message = format!("{count} axes are named; input 0 has rank {rank}");
            Err(OpError::shape(Blame::Input(1), message))
        }
        _ => Ok(()),
    }
}

/// The order as axes; it must name each axis once.
fn permutation(order: &[i64], rank: usize) -> OpResult<SmallVec<[usize; 8]>> {
    if order.is_empty() {
        return Ok((0..rank).rev().collect());
    }
    check_count(rank, Some(order.len()))?;
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
    let mut axes = SmallVec::new();
    for axis in order {
        let position = usize::try_from(*axis).ok().filter(|axis| *axis < rank && !seen[*axis]);
        let Some(position) = position else {
            let message = format!("order {order:?} is not a permutation of the axes 0 to {}", rank.saturating_sub(1));
            return Err(OpError::value(Blame::Input(1), message).note(format!("see axis {axis}")));
        };
        seen[position] = true;
        axes.push(position);
    }
    Ok(axes)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::Tensor;
    use pretty_assertions::assert_eq;

    #[test]
    fn permutes_every_width() {
        let case = Case::new("Transpose", "opset1");
        let order = tensor(&[1i32, 0], [2]);
        let output = case.run(&[tensor(&[1u8, 2, 3, 4, 5, 6], [2, 3]), order.clone()]).unwrap();
        assert_eq!(output[0], tensor(&[1u8, 4, 2, 5, 3, 6], [3, 2]));
        let output = case.run(&[tensor(&[1f64, 2.0, 3.0, 4.0], [2, 2]), order.clone()]).unwrap();
        assert_eq!(output[0], tensor(&[1f64, 3.0, 2.0, 4.0], [2, 2]));
        let words = |list: [&str; 4]| Tensor::from_strings(list.map(String::from).to_vec(), [2, 2]).unwrap();
        let output = case.run(&[words(["a", "b", "c", "d"]), order]).unwrap();
        assert_eq!(output[0].strings().unwrap(), words(["a", "c", "b", "d"]).strings().unwrap());
    }

    #[test]
    fn an_empty_order_reverses() {
        let case = Case::new("Transpose", "opset1");
        assert_eq!(case.infer(&["f32[2,?,4]", "i64[0]="]), ["f32[4,?,2]"]);
        let output = case.run(&[tensor(&[1i16, 2, 3, 4], [1, 2, 2]), tensor::<i64>(&[], [0])]).unwrap();
        assert_eq!(output[0], tensor(&[1i16, 3, 2, 4], [2, 2, 1]));
    }

    #[test]
    fn shapes() {
        let case = Case::new("Transpose", "opset1");
        assert_eq!(case.infer(&["f32[2,?,4..5]", "i64[3]=2,0,1"]), ["f32[4..5,2,?]"]);
        assert_eq!(case.infer(&["f32[2,4]", "i64[2]"]), ["f32[2..4,2..4]"]);
        assert_eq!(case.infer(&["f32[...]", "i64[2]"]), ["f32[?,?]"]);
        assert_eq!(
            case.infer_error(&["f32[2,4]", "i64[2]=0,0"]),
            "input 1: order [0, 0] is not a permutation of the axes 0 to 1"
        );
        assert_eq!(case.infer_error(&["f32[2,4]", "i64[3]"]), "input 1: 3 axes are named; input 0 has rank 2");
    }
}
