//! # Unsqueeze
//! Adds dimensions of size 1.
//!
//! Specification: `shape/unsqueeze-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | axes | any integer type | scalar or `[number of new dimensions]` |
//! | out 0 | | that of `data` | `data` with 1 at each of `axes` |
//!
//! The axes are positions in the output, in `[-output rank, output rank - 1]`, and differ from each other.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, SmallVec};

use crate::common::movement::{evaluate_reshaped, propagate_reshaped};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Unsqueeze.
pub static UNSQUEEZE: OpDef = OpDef {
    type_name: "Unsqueeze",
    category: Category::Shape,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: &[],
    build,
};

/// An Unsqueeze layer.
#[derive(Debug)]
pub struct Unsqueeze;

impl Operation for Unsqueeze {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        context.require_rank(1, 0..=1)?;
        let count = context.shape(1).elements().get();
        let shape = match (context.shape(0).dims(), context.integers(1), count) {
            (Some(dims), Some(axes), _) => PartialShape::from_dims(unsqueezed(dims, &axes, Dim::fixed(1))?),
            (Some(dims), None, Some(count)) => {
                let rank = dims.len().saturating_add(count);
                check_rank(rank)?;
                PartialShape::of_rank(rank)
            }
            _ => PartialShape::DYNAMIC,
        };
        let known = shape.to_shape();
        context.set_output(0, element_type, shape);
        if let Some(shape) = known {
            propagate_reshaped(context, shape);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let axes = context.integers(1)?;
        let shape = unsqueezed(context.input(0)?.shape(), &axes, 1)?.into_iter().collect();
        evaluate_reshaped(context, &shape)
    }

    fn is_reshape(&self) -> bool {
        true
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Unsqueeze)
}

fn check_rank(rank: usize) -> OpResult {
    if rank > ovir_tensor::MAX_RANK {
        let message = format!("the output would have rank {rank}, above the limit of {}", ovir_tensor::MAX_RANK);
        return Err(OpError::shape(Blame::Input(1), message));
    }
    Ok(())
}

fn unsqueezed<D: Copy>(dims: &[D], axes: &[i64], one: D) -> OpResult<SmallVec<[D; 8]>> {
    let rank = dims.len().saturating_add(axes.len());
    check_rank(rank)?;
    let mut is_new: SmallVec<[bool; 8]> = SmallVec::from_elem(false, rank);
    for axis in axes {
        let position = normalize_axis(*axis, rank, Blame::Input(1))?;
        if is_new[position] {
            let message = format!("axis {axis} names position {position}, which another axis names too");
            return Err(OpError::value(Blame::Input(1), message));
        }
        is_new[position] = true;
    }
    let mut old = dims.iter().copied();
    Ok(is_new.into_iter().map(|new| if new { one } else { old.next().unwrap_or(one) }).collect())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let case = Case::new("Unsqueeze", "opset1");
        assert_eq!(case.infer(&["f32[2,3]", "i64[2]=0,3"]), ["f32[1,2,3,1]"]);
        assert_eq!(case.infer(&["f32[]", "i64[1]=0"]), ["f32[1]"]);
    }

    #[test]
    fn axes_count_in_the_output() {
        let case = Case::new("Unsqueeze", "opset1");
        assert_eq!(case.infer(&["f32[?,3]", "i64[]=-1"]), ["f32[?,3,1]"]);
        assert_eq!(case.infer(&["i64[]=7", "i64[]=0"]), ["i64[1]=7"]);
        assert_eq!(case.infer(&["f32[2,3]", "i64[2]"]), ["f32[?,?,?,?]"]);
        assert_eq!(case.infer(&["f32[2,3]", "i64[?]"]), ["f32[...]"]);
        assert_eq!(
            case.infer_error(&["f32[2,3]", "i64[1]=3"]),
            "input 1: axis 3 is out of range [-3, 2] for a tensor of rank 3"
        );
        assert_eq!(
            case.infer_error(&["f32[2]", "i64[2]=0,-3"]),
            "input 1: axis -3 names position 0, which another axis names too"
        );
        let output = case.run(&[tensor(&[1f32, 2.0], [2]), tensor(&[1i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 2.0], [2, 1]));
    }
}
