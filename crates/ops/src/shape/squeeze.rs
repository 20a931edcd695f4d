//! # Squeeze
//! Removes dimensions of size 1.
//!
//! Specification: `shape/squeeze-1`, `shape/squeeze-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | axes (optional) | any integer type | scalar or `[number of axes]` |
//! | out 0 | | that of `data` | `data` without the dimensions |
//!
//! Without `axes`, or with no element in it, all dimensions of size 1 go. A dimension that `axes` names and that is
//! not 1 stays, in both versions.
//!
//! A named dimension that may be 1 counts as 1 in inference, as in OpenVINO, although a larger size would stay at run
//! time: real models squeeze dimensions that nobody declared, and an unknown rank would hide everything behind them.
//! `allow_axis_skip` (version 15) makes the rank unknown there instead.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use crate::common::movement::{evaluate_reshaped, propagate_reshaped};
use crate::infer::normalize_axis;
use crate::{Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

crate::attributes! {
    /// The attributes of Squeeze.
    pub struct SqueezeAttributes {
        /// Whether a named dimension that may or may not be 1 makes the rank of the output unknown.
        allow_axis_skip: bool = "allow_axis_skip", default "false", since 15;
    }
}

/// The definition of Squeeze.
pub static SQUEEZE: OpDef = OpDef {
    type_name: "Squeeze",
    category: Category::Shape,
    versions: &[OpVersion::new(1, (1, 14), (1, 2), (1, 1)), OpVersion::new(15, (15, 16), (1, 2), (1, 1))],
    attributes: SqueezeAttributes::DEFINITIONS,
    build,
};

/// A Squeeze layer.
#[derive(Debug)]
pub struct Squeeze {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: SqueezeAttributes,
}

impl Operation for Squeeze {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        let shape = self.output_shape(context)?;
        let known = shape.to_shape().filter(|_| context.shape(0).is_static());
        context.set_output(0, element_type, shape);
        if let Some(shape) = known {
            propagate_reshaped(context, shape);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let axes = if context.input_count() > 1 { context.integers(1)? } else { SmallVec::new() };
        let input = context.input(0)?.shape();
        let named = named_axes(&axes, input.rank())?;
        let kept = input.iter().zip(&named).filter(|(size, named)| **size != 1 || !**named);
        let shape: Shape = kept.map(|(size, _)| *size).collect();
        evaluate_reshaped(context, &shape)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }

    fn is_reshape(&self) -> bool {
        true
    }
}

impl Squeeze {
    fn output_shape(&self, context: &InferContext<'_>) -> OpResult<PartialShape> {
        let mut axes = Some(SmallVec::new());
        if context.input_count() > 1 {
            context.require_class(1, ElementClass::Integer)?;
            context.require_rank(1, 0..=1)?;
            axes = context.integers(1);
        }
        let (Some(dims), Some(axes)) = (context.shape(0).dims(), axes) else {
            return Ok(PartialShape::DYNAMIC);
        };
        let named = named_axes(&axes, dims.len())?;
        let doubtful = |dim: &Dim| dim.contains(1) && !dim.is_static();
        let may_skip = axes.is_empty() || self.attributes.allow_axis_skip;
        if may_skip && dims.iter().zip(&named).any(|(dim, named)| *named && doubtful(dim)) {
            return Ok(PartialShape::DYNAMIC);
        }
        let kept = dims.iter().zip(&named).filter(|(dim, named)| !**named || !dim.contains(1));
        Ok(PartialShape::from_dims(kept.map(|(dim, _)| *dim)))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = SqueezeAttributes::read(context.attributes);
    Arc::new(Squeeze { class_version: context.class_version, attributes })
}

/// For each dimension whether `axes` names it; no axes name all dimensions.
fn named_axes(axes: &[i64], rank: usize) -> OpResult<SmallVec<[bool; 8]>> {
    let mut named = SmallVec::from_elem(axes.is_empty(), rank);
    for axis in axes {
        named[normalize_axis(*axis, rank, Blame::Input(1))?] = true;
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        for opset in ["opset1", "opset15"] {
            let case = Case::new("Squeeze", opset);
            assert_eq!(case.infer(&["f32[1,3,1,2]", "i64[2]=0,2"]), ["f32[3,2]"]);
            assert_eq!(case.infer(&["f32[1]", "i64[1]=0"]), ["f32[]"]);
        }
    }

    #[test]
    fn all_or_named_axes() {
        let case = Case::new("Squeeze", "opset1");
        assert_eq!(case.infer(&["f32[1,3,1]"]), ["f32[3]"]);
        assert_eq!(case.infer(&["f32[1,3,1]", "i64[0]="]), ["f32[3]"]);
        assert_eq!(case.infer(&["f32[1,3,1]", "i64[]=-1"]), ["f32[1,3]"]);
        assert_eq!(case.infer(&["f32[5,?,3]", "i64[1]=0"]), ["f32[5,?,3]"]);
        assert_eq!(case.infer(&["f32[?,3]", "i64[1]=0"]), ["f32[3]"]);
        assert_eq!(case.infer(&["f32[?,3]"]), ["f32[...]"]);
        assert_eq!(case.infer(&["i64[1]=4..6", "i64[1]=0"]), ["i64[]=4..6"]);
        assert_eq!(
            case.infer_error(&["f32[1,3]", "i64[1]=2"]),
            "input 1: axis 2 is out of range [-2, 1] for a tensor of rank 2"
        );
    }

    #[test]
    fn skipping_is_a_matter_of_version_15() {
        let case = Case::new("Squeeze", "opset15").attribute("allow_axis_skip", "true");
        assert_eq!(case.infer(&["f32[?,3]", "i64[1]=0"]), ["f32[...]"]);
        assert_eq!(case.infer(&["f32[2..5,1]", "i64[1]=0"]), ["f32[2..5,1]"]);
    }

    #[test]
    fn elements_stay() {
        let case = Case::new("Squeeze", "opset1");
        let output = case.run(&[tensor(&[1u8, 2], [1, 2, 1]), tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1u8, 2], [2, 1]));
    }
}
