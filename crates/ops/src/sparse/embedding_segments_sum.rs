//! # EmbeddingSegmentsSum
//! Sums of rows of a table, gathered into bags.
//!
//! Specification: `sparse/embedding-segments-sum-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | emb_table | any numeric type | `[rows, ...]` |
//! | in 1 | indices | any integer type | `[indices]` |
//! | in 2 | segment_ids | that of `indices` | `[indices]`, not falling |
//! | in 3 | num_segments | that of `indices` | one element |
//! | in 4 | default_index (optional) | that of `indices` | one element |
//! | in 5 | per_sample_weights (optional) | that of `emb_table` | that of `indices` |
//! | out 0 | | that of `emb_table` | `[num_segments, ...]` |
//!
//! An empty bag takes the row of `default_index`; without one, or with -1, it is zero.
//! Sums of floating-point types are f64, rounded once.

use std::sync::Arc;

use ovir_tensor::{ElementClass, INFINITE, Shape};

use crate::common::embedding::{Bags, Reduction, check_default, evaluate_bags, infer_bags};
use crate::common::memory::filled;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of EmbeddingSegmentsSum.
pub static EMBEDDING_SEGMENTS_SUM: OpDef = OpDef {
    type_name: "EmbeddingSegmentsSum",
    category: Category::Sparse,
    versions: &[OpVersion::new(3, (3, 16), (4, 6), (1, 1))],
    attributes: &[],
    build,
};

/// An EmbeddingSegmentsSum layer.
#[derive(Debug)]
pub struct EmbeddingSegmentsSum;

impl Operation for EmbeddingSegmentsSum {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_rank(1, 1..=1)?;
        context.require_rank(2, 1..=1)?;
        context.require_class(2, ElementClass::Integer)?;
        context.require_class(3, ElementClass::Integer)?;
        context.require_one_element(3)?;
        check_default(context, 4)?;
        let (indices, segments) = (context.shape(1), context.shape(2));
        if indices.merge(segments).is_none() {
            let message = format!("shape {segments} must equal shape {indices} of input 1: one segment an index");
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let bags = match context.bounds(3).and_then(|b| b.values.first().copied()) {
            Some(value) if value.max < 0 => {
                return Err(OpError::value(
                    Blame::Input(3),
                    format!("the number of segments {} is negative", value.max),
                ));
            }
            Some(value) => value.to_dim(),
            None => context.new_dim(0, INFINITE),
        };
        infer_bags(context, bags, Some(5))
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (segments, count) = (context.integers(2)?, context.integer(3)?);
        let count = usize::try_from(count)
            .map_err(|_| OpError::value(Blame::Input(3), format!("the number of segments {count} is negative")))?;
        // The output is made first, because its size is the file's word.
        let table = context.input(0)?.shape();
        let shape: Shape = [count].into_iter().chain(table[1..].iter().copied()).collect();
        context.output(0, &shape)?;
        let mut ranges = filled::<std::ops::Range<usize>>(count)?;
        let mut previous = 0;
        for (position, segment) in segments.iter().enumerate() {
            let fits = usize::try_from(*segment).ok().filter(|s| *s < count && *segment >= previous);
            let segment = fits.ok_or_else(|| {
                let message = format!(
                    "segment {segment} at position {position} must lie in [{previous}, {}]: ids do not fall",
                    count as i64 - 1
                );
                OpError::value(Blame::Input(2), message)
            })?;
            if ranges[segment].is_empty() {
                ranges[segment].start = position;
            }
            ranges[segment].end = position + 1;
            previous = segment as i64;
        }
        let bags = Bags { ranges, default_port: Some(4), weights_port: Some(5), reduction: Reduction::Sum };
        evaluate_bags(context, &bags)
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(EmbeddingSegmentsSum)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn segments_are_bags() {
        let case = Case::new("EmbeddingSegmentsSum", "opset3");
        let table = tensor(&[1i32, 2, 3, 4, 5, 6], [3, 2]);
        let inputs = [table, tensor(&[0i64, 2, 1], [3]), tensor(&[0i64, 0, 2], [3]), tensor(&[4i64], [])];
        assert_eq!(case.run(&inputs).unwrap()[0], tensor(&[6i32, 8, 0, 0, 3, 4, 0, 0], [4, 2]));
        let mut wrong = inputs;
        wrong[2] = tensor(&[0i64, 2, 1], [3]);
        assert_eq!(
            case.run(&wrong).unwrap_err().to_string(),
            "input 2: segment 1 at position 2 must lie in [2, 3]: ids do not fall"
        );
    }
}
