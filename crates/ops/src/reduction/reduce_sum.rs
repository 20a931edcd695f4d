//! # ReduceSum
//! The sum along axes.
//!
//! Specification: `reduction/reduce-sum-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | in 1 | axes | any integer type | scalar or 1D; in [-rank, rank - 1] |
//! | out 0 | | that of `data` | `data` without the axes, or with 1 in their place (`keep_dims`) |
//!
//! No axes leave the tensor as it is. An axis that is listed twice counts once. Integers wrap.

use std::sync::Arc;

use ovir_tensor::{ElementClass, Value};

use crate::common::reduction::{
    Reduction, ReductionAttributes, evaluate_reduction, infer_reduction, propagate_reduction,
};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of ReduceSum.
pub static REDUCE_SUM: OpDef = OpDef {
    type_name: "ReduceSum",
    category: Category::Reduction,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ReductionAttributes::DEFINITIONS,
    build,
};

/// A ReduceSum layer.
#[derive(Debug)]
pub struct ReduceSum {
    /// The attributes.
    pub attributes: ReductionAttributes,
}

impl Operation for ReduceSum {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_reduction(context, &self.attributes, ElementClass::Numeric)?;
        propagate_reduction(context, &self.attributes, Value::known(0), |a, b| a + b);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let reduction = Reduction {
            initial: 0.0,
            float: |s, x| s + x,
            integer: |s, x| s.wrapping_add(x),
            finish_float: |x, _| x,
            finish_integer: |x, _| x,
        };
        evaluate_reduction(context, &self.attributes, reduction)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ReduceSum { attributes: ReductionAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let keep = Case::new("ReduceSum", "opset1").attribute("keep_dims", "true");
        assert_eq!(keep.infer(&["f32[6,12,10,24]", "i64[2]=2,3"]), ["f32[6,12,1,1]"]);
        let drop = Case::new("ReduceSum", "opset1").attribute("keep_dims", "false");
        assert_eq!(drop.infer(&["f32[6,12,10,24]", "i64[2]=2,3"]), ["f32[6,12]"]);
        assert_eq!(drop.infer(&["f32[6,12,10,24]", "i64[1]=1"]), ["f32[6,10,24]"]);
        assert_eq!(drop.infer(&["f32[6,12,10,24]", "i64[1]=-2"]), ["f32[6,12,24]"]);
    }

    #[test]
    fn unknown_axes_widen_the_shape() {
        let keep = Case::new("ReduceSum", "opset1").attribute("keep_dims", "true");
        assert_eq!(keep.infer(&["f32[6,?,1]", "i64[2]"]), ["f32[1..6,?,1]"]);
        let drop = Case::new("ReduceSum", "opset1");
        assert_eq!(drop.infer(&["f32[6,4,1]", "i64[]"]), ["f32[4..6,1..4]"]);
        assert_eq!(drop.infer(&["f32[6,4,1]", "i64[2]"]), ["f32[...]"]);
        assert_eq!(drop.infer(&["f32[...]", "i64[0]"]), ["f32[...]"]);
        assert_eq!(
            drop.infer_error(&["f32[6,4]", "i32[1]=2"]),
            "input 1: axis 2 is out of range [-2, 1] for a tensor of rank 2"
        );
    }

    #[test]
    fn axes_are_reduced() {
        let case = Case::new("ReduceSum", "opset1");
        let data = tensor(&[1f32, -2.0, 3.0, 4.0, 5.0, -6.0], [2, 3]);
        for (axes, expected) in [
            (vec![0i64, -1], tensor(&[5.0f32], [])),
            (vec![1], tensor(&[2.0f32, 3.0], [2])),
            (vec![0, 0], tensor(&[5.0f32, 3.0, -3.0], [3])),
            (vec![], tensor(&[1.0f32, -2.0, 3.0, 4.0, 5.0, -6.0], [2, 3])),
        ] {
            let output = case.run(&[data.clone(), tensor(&axes, [axes.len()])]).unwrap();
            assert_eq!(output[0], expected, "axes {axes:?}");
        }
    }

    #[test]
    fn reducing_nothing_gives_the_initial_value() {
        let case = Case::new("ReduceSum", "opset1");
        let output = case.run(&[tensor::<f32>(&[], [2, 0]), tensor(&[1i32], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 0.0], [2]));
    }

    #[test]
    fn integers_stay_integers() {
        let output =
            Case::new("ReduceSum", "opset1").run(&[tensor(&[200u8, 100, 1, 1], [4]), tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[46u8], []));
    }

    #[test]
    fn bounds_follow() {
        let case = Case::new("ReduceSum", "opset1");
        assert_eq!(case.infer(&["i64[3]=2,3..5,4", "i64[1]=0"]), ["i64[]=9..11"]);
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("ReduceSum", "opset1").assert_monotone(&["f32[6,12,10]", "i64[2]=0,-1"]);
        Case::new("ReduceSum", "opset1").attribute("keep_dims", "true").assert_monotone(&["f32[6,12,10]", "i64[1]=1"]);
        Case::new("ReduceSum", "opset1").assert_monotone(&["i64[3]=1,2,3", "i64[]=0"]);
        Case::new("ReduceSum", "opset1").assert_monotone(&["f32[6,12,10]", "i64[0]"]);
    }
}
