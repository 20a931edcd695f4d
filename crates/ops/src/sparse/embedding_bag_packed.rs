//! # EmbeddingBagPacked
//! Sums or means of rows of a table, gathered into bags.
//!
//! Specification: `sparse/embedding-bag-packed-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | emb_table | any numeric type | `[rows, ...]` |
//! | in 1 | indices | any integer type | `[bags, indices of a bag]` |
//! | in 2 | per_sample_weights (optional) | that of `emb_table` | that of `indices` |
//! | out 0 | | that of `emb_table` | `[bags, ...]` |
//!
//! Weights go with the sum alone. The mean of integers is rounded to the nearest, halves to even.
//! Sums of floating-point types are f64, rounded once.

use std::sync::Arc;

use crate::common::embedding::{Bags, Reduction, evaluate_bags, infer_bags};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of EmbeddingBagPacked.
pub static EMBEDDING_BAG_PACKED: OpDef = OpDef {
    type_name: "EmbeddingBagPacked",
    category: Category::Sparse,
    versions: &[OpVersion::new(15, (15, 16), (2, 3), (1, 1))],
    attributes: EmbeddingBagPackedAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of EmbeddingBagPacked.
    pub struct EmbeddingBagPackedAttributes {
        /// How the rows of a bag become one.
        reduction: Reduction = "reduction", default "sum";
    }
}

/// An EmbeddingBagPacked layer.
#[derive(Debug)]
pub struct EmbeddingBagPacked {
    /// The attributes.
    pub attributes: EmbeddingBagPackedAttributes,
}

impl Operation for EmbeddingBagPacked {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        if self.attributes.reduction == Reduction::Mean && context.input_count() > 2 {
            let message = "weights can be given with the reduction `sum` only";
            return Err(OpError::attribute("reduction", message));
        }
        context.require_rank(1, 2..=2)?;
        let bags = context.shape(1).dim(0);
        infer_bags(context, bags, Some(2))
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(1)?.shape();
        let (bags, width) = (shape[0], shape[1]);
        let ranges = (0..bags).map(|bag| bag * width..(bag + 1) * width).collect();
        let bags = Bags { ranges, default_port: None, weights_port: Some(2), reduction: self.attributes.reduction };
        evaluate_bags(context, &bags)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(15)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = EmbeddingBagPackedAttributes::read(context.attributes);
    Arc::new(EmbeddingBagPacked { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn bags_are_rows() {
        let case = Case::new("EmbeddingBagPacked", "opset15");
        let table = tensor(&[1i32, 2, 3, 4, 5, 6], [3, 2]);
        let output = case.run(&[table, tensor(&[0i32, 2, 1, 1], [2, 2])]).unwrap();
        assert_eq!(output[0], tensor(&[6i32, 8, 6, 8], [2, 2]));
        assert_eq!(case.infer(&["f32[5,2]", "i64[?,4]"]), ["f32[?,2]"]);
    }

    #[test]
    fn means_divide() {
        let case = Case::new("EmbeddingBagPacked", "opset15").attribute("reduction", "mean");
        let table = tensor(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
        let inputs = [table, tensor(&[0i32, 2], [1, 2])];
        assert_eq!(case.run(&inputs).unwrap()[0], tensor(&[3f32, 4.0], [1, 2]));
    }
}
