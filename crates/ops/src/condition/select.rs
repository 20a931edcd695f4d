//! # Select
//! The elements of `then` where `cond` is true, and those of `else` where it is not, with broadcasting.
//!
//! Specification: `condition/select-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | cond | boolean | broadcastable with the others |
//! | in 1 | then | any type | any |
//! | in 2 | else | that of `then` | broadcastable with `then` |
//! | out 0 | | that of `then` | broadcast of all three |
//!
//! Beyond the specification, as in OpenVINO: under NumPy's rule `cond` may be larger than the others, which are then
//! repeated. Under `pdpd` both `cond` and `else` are laid into `then`.

use std::sync::Arc;

use ovir_tensor::{Bounds, ElementClass, ElementType, MAX_BOUNDS_ELEMENTS, PartialShape, Shape, SmallVec};

use crate::common::broadcast::{
    AutoBroadcast, BroadcastAttributes, broadcast_shapes, broadcast_strides, for_each_offset, numpy_mismatch,
};
use crate::common::elementwise::unsupported;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Select.
pub static SELECT: OpDef = OpDef {
    type_name: "Select",
    category: Category::Condition,
    versions: &[OpVersion::new(1, (1, 16), (3, 3), (1, 1))],
    attributes: BroadcastAttributes::DEFINITIONS,
    build,
};

/// A Select layer.
#[derive(Debug)]
pub struct Select {
    /// How the shapes are brought together.
    pub attributes: BroadcastAttributes,
}

impl Operation for Select {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Boolean)?;
        let element_type = context.require_same_type(&[1, 2])?;
        let shape = self.infer_shape(context)?;
        context.set_output(0, element_type, shape);
        self.propagate(context);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (cond, yes, no) = (context.input(0)?, context.input(1)?, context.input(2)?);
        let element_type = yes.element_type();
        let (shape, strides) = self.layout(cond.shape(), yes.shape(), no.shape())?;
        let mask = cond.slice::<u8>()?;
        let mut output = context.output(0, &shape)?;
        let mut position = 0;
        let strides = [&strides[0][..], &strides[1], &strides[2]];
        if let (Some(target), Some(yes), Some(no)) = (output.strings_mut(), yes.strings(), no.strings()) {
            for_each_offset(&shape, strides, |[c, y, n]| {
                target[position].clone_from(if mask[c] != 0 { &yes[y] } else { &no[n] });
                position += 1;
            });
            return Ok(());
        }
        let Some(width) = element_type.byte_width() else { return Err(unsupported(element_type)) };
        let (yes, no) = (yes.bytes(), no.bytes());
        let target = output.bytes_mut();
        for_each_offset(&shape, strides, |[c, y, n]| {
            let source = if mask[c] != 0 { &yes[y * width..][..width] } else { &no[n * width..][..width] };
            target[position..][..width].copy_from_slice(source);
            position += width;
        });
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.printed(1)
    }
}

impl Select {
    fn infer_shape(&self, context: &InferContext<'_>) -> OpResult<PartialShape> {
        let merged = self.attributes.infer(context, (1, 2))?;
        let cond = context.shape(0);
        match self.attributes.auto_broadcast {
            AutoBroadcast::Numpy => {
                merged.broadcast(cond).map_err(|(i, j)| misblamed(numpy_mismatch(&merged, cond, i, j, (1, 0))))
            }
            AutoBroadcast::None => merged.merge(cond).ok_or_else(|| {
                let message = format!("shape {cond} must equal shape {merged} of input 1 (auto_broadcast is none)");
                OpError::shape(Blame::Input(0), message)
            }),
            AutoBroadcast::Pdpd => {
                self.attributes.infer(context, (1, 0))?;
                Ok(merged)
            }
        }
    }

    /// The shape of the output, and the strides with which the inputs are read.
    fn layout(&self, cond: &Shape, yes: &Shape, no: &Shape) -> OpResult<(Shape, [SmallVec<[usize; 8]>; 3])> {
        let (cond, no) = (self.attributes.aligned_second(yes, cond), self.attributes.aligned_second(yes, no));
        let shape = broadcast_shapes(yes, &no).and_then(|merged| broadcast_shapes(&merged, &cond));
        let shape = shape.ok_or_else(|| {
            let message = format!("shapes {cond}, {yes} and {no} cannot be broadcast together");
            OpError::shape(Blame::Node, message)
        })?;
        let strides =
            [broadcast_strides(&cond, &shape), broadcast_strides(yes, &shape), broadcast_strides(&no, &shape)];
        Ok((shape, strides))
    }

    /// Follows small integer values: where the condition is not known, a value may be either.
    fn propagate(&self, context: &mut InferContext<'_>) {
        let (Some(cond), Some(yes), Some(no)) = (context.bounds(0), context.bounds(1), context.bounds(2)) else {
            return;
        };
        if context.element_type(1) == ElementType::Dynamic {
            return;
        }
        let Ok((shape, strides)) = self.layout(&cond.shape, &yes.shape, &no.shape) else { return };
        if shape.elements() > MAX_BOUNDS_ELEMENTS {
            return;
        }
        let mut values = SmallVec::new();
        for_each_offset(&shape, [&strides[0][..], &strides[1], &strides[2]], |[c, y, n]| {
            values.push(match cond.values[c].get() {
                Some(0) => no.values[n],
                Some(_) => yes.values[y],
                None => yes.values[y].union(no.values[n]),
            });
        });
        context.set_bounds(0, Bounds { shape, values });
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Select { attributes: BroadcastAttributes::read(context.attributes) })
}

/// The same error, blaming the condition.
fn misblamed(error: OpError) -> OpError {
    OpError::shape(Blame::Input(0), error.message())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        let output = Case::new("Select", "opset1")
            .run(&[
                booleans(&[false, false, true, false, true, true], [3, 2]),
                tensor(&[-1i32, 0, 1, 2, 3, 4], [3, 2]),
                tensor(&[11i32, 10, 9, 8, 7, 6], [3, 2]),
            ])
            .unwrap();
        assert_eq!(output[0], tensor(&[11i32, 10, 1, 8, 3, 4], [3, 2]));
    }

    #[test]
    fn all_three_are_broadcast() {
        let inputs = [booleans(&[true, false], [2, 1]), tensor(&[1f32, 2.0], [2]), tensor(&[0f32], [])];
        let output = Case::new("Select", "opset1").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 2.0, 0.0, 0.0], [2, 2]));
    }

    #[test]
    fn paddles_rule_lays_everything_into_then() {
        let case = Case::new("Select", "opset1")
            .attribute("auto_broadcast", "pdpd")
            .attribute("auto_broadcast.auto_broadcast_axis", "0");
        let inputs = [booleans(&[true, false], [2]), tensor(&[1u8, 2, 3, 4], [2, 2]), tensor(&[8u8, 9], [2])];
        assert_eq!(case.run(&inputs).unwrap()[0], tensor(&[1u8, 2, 9, 9], [2, 2]));
    }

    #[test]
    fn types_and_shapes_must_fit() {
        let case = Case::new("Select", "opset1");
        assert_eq!(case.infer_error(&["i32[2]", "f32[2]", "f32[2]"]), "input 0: element type i32 must be boolean");
        assert!(case.infer_error(&["boolean[2]", "f32[2]", "f16[2]"]).starts_with("input 2: element type f16 differs"));
        assert!(case.infer_error(&["boolean[3]", "f32[2]", "f32[2]"]).starts_with("input 0: shape [3] cannot be"));
        assert_eq!(case.infer(&["boolean[?,1]", "f32[2]", "f32[...]"]), ["f32[...]"]);
    }

    #[test]
    fn bounds_follow() {
        let case = Case::new("Select", "opset1");
        assert_eq!(case.infer(&["boolean[3]=1,0,0..1", "i64[3]=1,2,3", "i64[3]=4,5..6,7"]), ["i64[3]=1,5..6,3..7"]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("Select", "opset1").assert_monotone(&["boolean[3,1]", "f32[1]", "f32[2]"]);
        Case::new("Select", "opset1").assert_monotone(&["boolean[3]=1,0,1", "i64[3]=1,2,3", "i64[1]=4"]);
        Case::new("Select", "opset1").attribute("auto_broadcast", "none").assert_monotone(&[
            "boolean[3,1]",
            "f32[3,1]",
            "f32[3,1]",
        ]);
        Case::new("Select", "opset1").attribute("auto_broadcast", "pdpd").assert_monotone(&[
            "boolean[3]",
            "f32[2,3]",
            "f32[3]",
        ]);
    }
}
