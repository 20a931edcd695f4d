//! # EmbeddingBagOffsets
//! Sums or means of rows of a table, gathered into bags.
//!
//! Specification: `sparse/embedding-bag-offsets-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | emb_table | any numeric type | `[rows, ...]` |
//! | in 1 | indices | any integer type | `[indices]` |
//! | in 2 | offsets | that of `indices` | `[bags]` |
//! | in 3 | default_index (optional) | that of `indices` | one element |
//! | in 4 | per_sample_weights (optional) | that of `emb_table` | that of `indices` |
//! | out 0 | | that of `emb_table` | `[bags, ...]` |
//!
//! An empty bag takes the row of `default_index`; without one, or with -1, it is zero.
//! Weights go with the sum alone. The mean of integers is rounded to the nearest, halves to even.
//! Sums of floating-point types are f64, rounded once.

use std::sync::Arc;

use ovir_tensor::ElementClass;

use crate::common::embedding::{Bags, Reduction, check_default, evaluate_bags, infer_bags};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of EmbeddingBagOffsets.
pub static EMBEDDING_BAG_OFFSETS: OpDef = OpDef {
    type_name: "EmbeddingBagOffsets",
    category: Category::Sparse,
    versions: &[OpVersion::new(15, (15, 16), (3, 5), (1, 1))],
    attributes: EmbeddingBagOffsetsAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of EmbeddingBagOffsets.
    pub struct EmbeddingBagOffsetsAttributes {
        /// How the rows of a bag become one.
        reduction: Reduction = "reduction", default "sum";
    }
}

/// An EmbeddingBagOffsets layer.
#[derive(Debug)]
pub struct EmbeddingBagOffsets {
    /// The attributes.
    pub attributes: EmbeddingBagOffsetsAttributes,
}

impl Operation for EmbeddingBagOffsets {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        if self.attributes.reduction == Reduction::Mean && context.input_count() > 4 {
            let message = "weights can be given with the reduction `sum` only";
            return Err(OpError::attribute("reduction", message));
        }
        context.require_rank(1, 1..=1)?;
        context.require_rank(2, 1..=1)?;
        context.require_class(2, ElementClass::Integer)?;
        check_default(context, 3)?;
        let bags = context.shape(2).dim(0);
        infer_bags(context, bags, Some(4))
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (count, offsets) = (context.input(1)?.elements(), context.integers(2)?);
        let mut ranges = Vec::with_capacity(offsets.len());
        for (bag, start) in offsets.iter().enumerate() {
            let end = offsets.get(bag + 1).copied().unwrap_or(count as i64);
            if *start < 0 || end < *start || end > count as i64 {
                let message = format!("offset {start} of bag {bag} must lie between 0 and the next offset or {count}");
                return Err(OpError::value(Blame::Input(2), message));
            }
            ranges.push(*start as usize..end as usize);
        }
        let bags = Bags { ranges, default_port: Some(3), weights_port: Some(4), reduction: self.attributes.reduction };
        evaluate_bags(context, &bags)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(15)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = EmbeddingBagOffsetsAttributes::read(context.attributes);
    Arc::new(EmbeddingBagOffsets { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn bags_begin_at_offsets() {
        let case = Case::new("EmbeddingBagOffsets", "opset15");
        let table = tensor(&[-1f32, -2.0, -3.0, -4.0, -5.0, -6.0, 7.0, 8.0, 9.0, 10.0], [5, 2]);
        let inputs = [
            table.clone(),
            tensor(&[0i64, 2, 3, 4], [4]),
            tensor(&[0i64, 2, 2], [3]),
            tensor(&[0i64], []),
            tensor(&[0.5f32, 0.5, 0.5, 0.5], [4]),
        ];
        let output = case.run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[-3f32, -4.0, -1.0, -2.0, 8.0, 9.0], [3, 2]));
        let mut none = inputs[..3].to_vec();
        assert_eq!(case.run(&none).unwrap()[0].slice::<f32>().unwrap()[2..4], [0.0, 0.0]);
        none[1] = tensor(&[0i64, 2, 5, 4], [4]);
        assert_eq!(case.run(&none).unwrap_err().to_string(), "input 1: index 5 at position 2 is out of range [0, 4]");
        assert_eq!(case.infer(&["f32[5,2]", "i64[4]", "i64[?]"]), ["f32[?,2]"]);
    }

    #[test]
    fn wide_rows() {
        let (width, rows) = (37, 5);
        let table: Vec<f32> = (0..rows * width).map(|i| ((i * 29) % 101) as f32 / 8.0 - 6.0).collect();
        let (indices, offsets) = ([4i64, 0, 2, 2, 1, 3], [0i64, 3, 4]);
        let weights = [0.5f32, -1.0, 2.0, 0.25, 1.5, 3.0];
        let ends = [3usize, 4, 6];
        let mut expected = Vec::new();
        for (start, end) in offsets.iter().zip(ends) {
            for column in 0..width {
                let value = |position: usize| table[indices[position] as usize * width + column] * weights[position];
                expected.push((*start as usize..end).map(value).sum::<f32>());
            }
        }
        let inputs = [
            tensor(&table, [rows, width]),
            tensor(&indices, [6]),
            tensor(&offsets, [3]),
            tensor(&[0i64], []),
            tensor(&weights, [6]),
        ];
        let output = Case::new("EmbeddingBagOffsets", "opset15").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&expected, [3, width]));
    }

    #[test]
    fn means_divide() {
        let case = Case::new("EmbeddingBagOffsets", "opset15").attribute("reduction", "mean");
        let table = tensor(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [3, 2]);
        let inputs = [table, tensor(&[0i32, 2], [2]), tensor(&[0i32], [1])];
        assert_eq!(case.run(&inputs).unwrap()[0], tensor(&[3f32, 4.0], [1, 2]));
    }
}
