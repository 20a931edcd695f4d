//! # ConvertLike
//! Every element in the element type of another tensor.
//!
//! Specification: `type/convert-like-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any type but string | any |
//! | in 1 | like | any type but string | any |
//! | out 0 | | that of `like` | that of `data` |
//!
//! Conversion follows Convert.

use std::sync::Arc;

use super::convert::infer_conversion;
use crate::common::conversion::convert;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ConvertLike.
pub static CONVERT_LIKE: OpDef = OpDef {
    type_name: "ConvertLike",
    category: Category::Type,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: &[],
    build,
};

/// A ConvertLike layer.
#[derive(Debug)]
pub struct ConvertLike;

impl Operation for ConvertLike {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let destination = context.element_type(1);
        infer_conversion(context, 0, 0, destination)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let mut output = context.output(0, input.shape())?;
        convert(input, &mut output)
    }

    fn takes_packed(&self) -> bool {
        true
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ConvertLike)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        let case = Case::new("ConvertLike", "opset1");
        assert_eq!(case.infer(&["i32[256,56]", "f32[3]"]), ["f32[256,56]"]);
        let output = case.run(&[tensor(&[1.9f32, -1.9], [2]), tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1i64, -1], [2]));
    }
}
