//! # Reverse
//! A tensor with the order along some axes reversed.
//!
//! Specification: `movement/reverse-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | reversed_axes | any integer type (mode `index`), boolean (mode `mask`) | `[n]`, or `[rank]` |
//! | out 0 | | that of `data` | that of `data` |

use std::sync::Arc;

use ovir_tensor::{ElementClass, Shape, SmallVec};

use crate::common::movement::{Strided, View, evaluate_view, propagate_view};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// How `reversed_axes` names axes.
    pub enum ReverseMode {
        /// By their indices.
        #[default]
        Index = "index",
        /// By true at their position.
        Mask = "mask",
    }
}

crate::attributes! {
    /// The attributes of Reverse.
    pub struct ReverseAttributes {
        /// How `reversed_axes` names axes.
        mode: ReverseMode = "mode", required true;
    }
}

/// The definition of Reverse.
pub static REVERSE: OpDef = OpDef {
    type_name: "Reverse",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 1), (2, 2), (1, 1))],
    attributes: ReverseAttributes::DEFINITIONS,
    build,
};

/// A Reverse layer.
#[derive(Debug)]
pub struct Reverse {
    /// The attributes.
    pub attributes: ReverseAttributes,
}

impl Operation for Reverse {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (element_type, shape) = (context.element_type(0), context.shape(0).clone());
        context.require_class(
            1,
            match self.attributes.mode {
                ReverseMode::Index => ElementClass::Integer,
                ReverseMode::Mask => ElementClass::Boolean,
            },
        )?;
        context.require_rank(1, 1..=1)?;
        let axes = context.integers(1);
        let reversed = match (shape.rank(), &axes) {
            (Some(rank), Some(axes)) => Some(self.reversed(axes, rank)?),
            _ => None,
        };
        let known = shape.to_shape();
        context.set_output(0, element_type, shape);
        if let (Some(shape), Some(reversed)) = (known, reversed) {
            propagate_view(context, 0, &view(&shape, &reversed));
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        let reversed = self.reversed(&context.integers(1)?, shape.rank())?;
        evaluate_view(context, 0, &view(shape, &reversed))
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

impl Reverse {
    fn reversed(&self, axes: &[i64], rank: usize) -> OpResult<SmallVec<[bool; 8]>> {
        if self.attributes.mode == ReverseMode::Mask {
            if axes.len() != rank {
                let message = format!("the mask has {} elements for a tensor of rank {rank}", axes.len());
                return Err(OpError::shape(Blame::Input(1), message));
            }
            return Ok(axes.iter().map(|bit| *bit != 0).collect());
        }
        let mut reversed = SmallVec::from_elem(false, rank);
        for axis in axes {
            reversed[normalize_axis(*axis, rank, Blame::Input(1))?] = true;
        }
        Ok(reversed)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Reverse { attributes: ReverseAttributes::read(context.attributes) })
}

fn view(shape: &Shape, reversed: &[bool]) -> View {
    let mut from = Strided::dense(shape);
    for (axis, reversed) in reversed.iter().enumerate() {
        if *reversed {
            // Sizes that a file claims may overflow; no tensor of them has elements to be read.
            let last = shape[axis].saturating_sub(1).saturating_mul(from.strides[axis] as usize);
            from.offset = from.offset.saturating_add(last);
            from.strides[axis] = -from.strides[axis];
        }
    }
    View { shape: shape.clone(), walk: SmallVec::from_slice(shape), from }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn reverses() {
        let data = tensor(&[1u8, 2, 3, 4, 5, 6], [2, 3]);
        let case = |mode: &str| Case::new("Reverse", "opset1").attribute("mode", mode);
        let output = case("index").run(&[data.clone(), tensor(&[1i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[3u8, 2, 1, 6, 5, 4], [2, 3]));
        let output = case("mask").run(&[data, booleans(&[true, false], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[4u8, 5, 6, 1, 2, 3], [2, 3]));
        assert_eq!(case("index").infer(&["f32[?,3]", "i64[?]"]), ["f32[?,3]"]);
        assert_eq!(
            case("index").infer_error(&["f32[3]", "i64[1]=1"]),
            "input 1: axis 1 is out of range [-1, 0] for a tensor of rank 1"
        );
    }
}
