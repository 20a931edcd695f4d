//! # ReduceLogicalAnd
//! Whether all elements along axes are true.
//!
//! Specification: `reduction/reduce-logical-and-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | boolean | any |
//! | in 1 | axes | any integer type | scalar or 1D; in [-rank, rank - 1] |
//! | out 0 | | that of `data` | `data` without the axes, or with 1 in their place (`keep_dims`) |
//!
//! No axes leave the tensor as it is. An axis that is listed twice counts once.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::reduction::{ReductionAttributes, evaluate_logical_reduction, infer_reduction};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ReduceLogicalAnd.
pub static REDUCE_LOGICAL_AND: OpDef = OpDef {
    type_name: "ReduceLogicalAnd",
    category: Category::Reduction,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ReductionAttributes::DEFINITIONS,
    build,
};

/// A ReduceLogicalAnd layer.
#[derive(Debug)]
pub struct ReduceLogicalAnd {
    /// The attributes.
    pub attributes: ReductionAttributes,
}

impl Operation for ReduceLogicalAnd {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_reduction(context, &self.attributes, ElementClass::Boolean)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_logical_reduction(context, &self.attributes, true, |a, b| a & b)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ReduceLogicalAnd { attributes: ReductionAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let keep = Case::new("ReduceLogicalAnd", "opset1").attribute("keep_dims", "true");
        assert_eq!(keep.infer(&["boolean[6,12,10,24]", "i64[2]=2,3"]), ["boolean[6,12,1,1]"]);
        let drop = Case::new("ReduceLogicalAnd", "opset1").attribute("keep_dims", "false");
        assert_eq!(drop.infer(&["boolean[6,12,10,24]", "i64[2]=2,3"]), ["boolean[6,12]"]);
        assert_eq!(drop.infer(&["boolean[6,12,10,24]", "i64[1]=1"]), ["boolean[6,10,24]"]);
        assert_eq!(drop.infer(&["boolean[6,12,10,24]", "i64[1]=-2"]), ["boolean[6,12,24]"]);
    }

    #[test]
    fn unknown_axes_widen_the_shape() {
        let keep = Case::new("ReduceLogicalAnd", "opset1").attribute("keep_dims", "true");
        assert_eq!(keep.infer(&["boolean[6,?,1]", "i64[2]"]), ["boolean[1..6,?,1]"]);
        let drop = Case::new("ReduceLogicalAnd", "opset1");
        assert_eq!(drop.infer(&["boolean[6,4,1]", "i64[]"]), ["boolean[4..6,1..4]"]);
        assert_eq!(drop.infer(&["boolean[6,4,1]", "i64[2]"]), ["boolean[...]"]);
        assert_eq!(drop.infer(&["boolean[...]", "i64[0]"]), ["boolean[...]"]);
        assert_eq!(
            drop.infer_error(&["boolean[6,4]", "i32[1]=2"]),
            "input 1: axis 2 is out of range [-2, 1] for a tensor of rank 2"
        );
    }

    #[test]
    fn axes_are_reduced() {
        let case = Case::new("ReduceLogicalAnd", "opset1");
        let data = booleans(&[true, false, true, true, true, true], [2, 3]);
        for (axes, expected) in [
            (vec![0i64, -1], booleans(&[false], [])),
            (vec![1], booleans(&[false, true], [2])),
            (vec![0, 0], booleans(&[true, false, true], [3])),
            (vec![], booleans(&[true, false, true, true, true, true], [2, 3])),
        ] {
            let output = case.run(&[data.clone(), tensor(&axes, [axes.len()])]).unwrap();
            assert_eq!(output[0], expected, "axes {axes:?}");
        }
    }

    #[test]
    fn reducing_nothing_gives_the_initial_value() {
        let case = Case::new("ReduceLogicalAnd", "opset1");
        let output = case.run(&[booleans(&[], [2, 0]), tensor(&[1i32], [1])]).unwrap();
        assert_eq!(output[0], booleans(&[true, true], [2]));
    }
}
