//! # EmbeddingBagPackedSum
//! Sums of rows of a table, gathered into bags.
//!
//! Specification: `sparse/embedding-bag-packed-sum-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | emb_table | any numeric type | `[rows, ...]` |
//! | in 1 | indices | any integer type | `[bags, indices of a bag]` |
//! | in 2 | per_sample_weights (optional) | that of `emb_table` | that of `indices` |
//! | out 0 | | that of `emb_table` | `[bags, ...]` |
//!
//! Sums of floating-point types are f64, rounded once.

use std::sync::Arc;

use crate::common::embedding::{Bags, Reduction, evaluate_bags, infer_bags};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of EmbeddingBagPackedSum.
pub static EMBEDDING_BAG_PACKED_SUM: OpDef = OpDef {
    type_name: "EmbeddingBagPackedSum",
    category: Category::Sparse,
    versions: &[OpVersion::new(3, (3, 16), (2, 3), (1, 1))],
    attributes: &[],
    build,
};

/// An EmbeddingBagPackedSum layer.
#[derive(Debug)]
pub struct EmbeddingBagPackedSum;

impl Operation for EmbeddingBagPackedSum {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_rank(1, 2..=2)?;
        let bags = context.shape(1).dim(0);
        infer_bags(context, bags, Some(2))
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(1)?.shape();
        let (bags, width) = (shape[0], shape[1]);
        let ranges = (0..bags).map(|bag| bag * width..(bag + 1) * width).collect();
        let bags = Bags { ranges, default_port: None, weights_port: Some(2), reduction: Reduction::Sum };
        evaluate_bags(context, &bags)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(EmbeddingBagPackedSum)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn bags_are_rows() {
        let case = Case::new("EmbeddingBagPackedSum", "opset3");
        let table = tensor(&[1i32, 2, 3, 4, 5, 6], [3, 2]);
        let output = case.run(&[table, tensor(&[0i32, 2, 1, 1], [2, 2])]).unwrap();
        assert_eq!(output[0], tensor(&[6i32, 8, 6, 8], [2, 2]));
        assert_eq!(case.infer(&["f32[5,2]", "i64[?,4]"]), ["f32[?,2]"]);
    }
}
