//! # OneHot
//! A new axis along which one element is on and the others are off.
//!
//! Specification: `sequence/one-hot-1`, `sequence/one-hot-16`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | indices | any integer type | any |
//! | in 1 | depth | any integer type | scalar or `[1]` |
//! | in 2 | on_value | any | scalar or `[1]` |
//! | in 3 | off_value | that of `on_value` | scalar or `[1]` |
//! | out 0 | | that of `on_value` | `indices` with `depth` inserted at `axis` |
//!
//! An index beyond the depth turns nothing on, and so does a negative one. Version 16 added `negative_indices_mode`:
//! under `normalize`, indices in `[-depth, -1]` count from the end.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, Value};

use crate::common::index::{IndexRange, Indices};
use crate::common::movement::{Cell, dispatch_cell};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attribute_enum! {
    /// What negative indices mean.
    pub enum NegativeIndicesMode {
        /// They turn nothing on.
        #[default]
        IgnoreNegative = "ignore_negative",
        /// They count from the end.
        Normalize = "normalize",
    }
}

crate::attributes! {
    /// The attributes of OneHot.
    pub struct OneHotAttributes {
        /// Where the new axis is in the output; negative counts from the end.
        axis: i64 = "axis", required true;
        /// What negative indices mean.
        negative_indices_mode: NegativeIndicesMode = "negative_indices_mode", default "ignore_negative", since 16;
    }
}

/// The definition of OneHot.
pub static ONE_HOT: OpDef = OpDef {
    type_name: "OneHot",
    category: Category::Sequence,
    versions: &[OpVersion::new(1, (1, 15), (4, 4), (1, 1)), OpVersion::new(16, (16, 16), (4, 4), (1, 1))],
    attributes: OneHotAttributes::DEFINITIONS,
    build,
};

/// A OneHot layer.
#[derive(Debug)]
pub struct OneHot {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: OneHotAttributes,
}

impl Operation for OneHot {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Integer)?;
        context.require_class(1, ElementClass::Integer)?;
        for port in 1..=3 {
            context.require_one_element(port)?;
        }
        let element_type = context.require_same_type(&[2, 3])?;
        let depth = context.bounds(1).and_then(|b| b.values.first()).copied().unwrap_or(Value::UNKNOWN);
        check_depth(depth)?;
        let mut shape = context.shape(0).clone();
        if let Some(dims) = shape.dims_mut() {
            let axis = normalize_axis(self.attributes.axis, dims.len() + 1, Blame::attribute("axis"))?;
            let dim = if depth == Value::UNKNOWN { Dim::DYNAMIC } else { depth.to_dim() };
            dims.insert(axis, dim);
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let indices = Indices::new(context.input(0)?, 0)?;
        let depth = context.integer(1)?;
        check_depth(Value::known(depth))?;
        let depth = depth as usize;
        let (on, off) = (context.input(2)?, context.input(3)?);
        let axis = normalize_axis(self.attributes.axis, indices.shape().rank() + 1, Blame::attribute("axis"))?;
        let mut shape = indices.shape().clone();
        let inner: usize = shape[axis..].iter().product();
        shape.insert(axis, depth);
        let range = match self.attributes.negative_indices_mode {
            NegativeIndicesMode::IgnoreNegative => IndexRange::FromStart,
            NegativeIndicesMode::Normalize => IndexRange::Wrapping,
        };
        let mut output = context.output(0, &shape)?;
        dispatch_cell!(on.element_type(), C => {
            let (Some(on), Some(off)) = (C::source(&on).first(), C::source(&off).first()) else {
                return Err(OpError::shape(Blame::Input(2), "on_value and off_value need one element each"));
            };
            let target = C::target(&mut output);
            target.fill(off.clone());
            for position in 0..indices.len() {
                if let Some(index) = indices.resolve(position, depth, range) {
                    target[(position / inner * depth + index) * inner + position % inner].clone_from(on);
                }
            }
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = OneHotAttributes::read(context.attributes);
    Arc::new(OneHot { class_version: context.class_version, attributes })
}

fn check_depth(depth: Value) -> OpResult {
    if depth.max >= 0 {
        return Ok(());
    }
    Err(OpError::value(Blame::Input(1), format!("depth {depth:?} must not be negative")))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn turns_one_on() {
        let case = |axis: &str| Case::new("OneHot", "opset1").attribute("axis", axis);
        let rest = [tensor(&[3i64], []), tensor(&[9u8], []), tensor(&[1u8], [])];
        let run = |case: Case, indices| case.run(&[vec![indices], rest.to_vec()].concat()).unwrap().remove(0);
        let rows = run(case("-1"), tensor(&[-1i32, 5, 0], [3]));
        assert_eq!(rows, tensor(&[1u8, 1, 1, 1, 1, 1, 9, 1, 1], [3, 3]));
        let columns = run(case("0"), tensor(&[2i64, 0], [2]));
        assert_eq!(columns, tensor(&[1u8, 9, 1, 1, 9, 1], [3, 2]));
        let wrapping =
            Case::new("OneHot", "opset16").attribute("axis", "0").attribute("negative_indices_mode", "normalize");
        assert_eq!(run(wrapping, tensor(&[-1i8], [])), tensor(&[1u8, 1, 9], [3]));
    }

    #[test]
    fn shapes() {
        let case = Case::new("OneHot", "opset1").attribute("axis", "1");
        assert_eq!(case.infer(&["i64[?,4]", "i64[]=3", "f16[]", "f16[1]"]), ["f16[?,3,4]"]);
        assert_eq!(case.infer(&["i64[2]", "i64[]", "f16[]", "f16[]"]), ["f16[2,?]"]);
        assert_eq!(
            case.infer_error(&["i64[2]", "i64[]=-1", "f16[]", "f16[]"]),
            "input 1: depth -1 must not be negative"
        );
    }
}
