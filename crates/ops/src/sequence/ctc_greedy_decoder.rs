//! # CTCGreedyDecoder
//! The best class of every step, without blanks and, if asked, without repetitions.
//!
//! Specification: `sequence/ctc-greedy-decoder-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[T, N, C]` |
//! | in 1 | sequence_mask | that of `data` | `[T, N]`: 1 inside of a sequence, 0 after it |
//! | out 0 | | that of `data` | `[N, T, 1, 1]`, filled with -1 |
//!
//! The last class is the blank. Of equal scores the first class is chosen. A sequence ends at its first mask of 0.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of CTCGreedyDecoder.
pub static CTC_GREEDY_DECODER: OpDef = OpDef {
    type_name: "CTCGreedyDecoder",
    category: Category::Sequence,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: CTCGreedyDecoderAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of CTCGreedyDecoder.
    pub struct CTCGreedyDecoderAttributes {
        /// Whether repetitions of a class are merged.
        ctc_merge_repeated: bool = "ctc_merge_repeated", default "true";
    }
}

/// A CTCGreedyDecoder layer.
#[derive(Debug)]
pub struct CTCGreedyDecoder {
    /// The attributes.
    pub attributes: CTCGreedyDecoderAttributes,
}

impl Operation for CTCGreedyDecoder {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Float)?;
        context.require_class(1, ElementClass::Float)?;
        context.require_rank(0, 3..=3)?;
        context.require_rank(1, 2..=2)?;
        let (data, mask) = (context.shape(0), context.shape(1));
        let merge = |axis: usize| {
            data.dim(axis).merge(mask.dim(axis)).ok_or_else(|| {
                let message = format!("shape {mask} must begin as shape {data} of input 0");
                OpError::shape(Blame::Input(1), message)
            })
        };
        let (steps, batch) = (merge(0)?, merge(1)?);
        let dims = [batch, steps, Dim::fixed(1), Dim::fixed(1)];
        context.set_output(0, element_type, PartialShape::from_dims(dims));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let [steps, batch, classes] = [data.shape()[0], data.shape()[1], data.shape()[2]];
        let shape = Shape::from([batch, steps, 1, 1]);
        context.output(0, &shape)?;
        let mask = widened_view(context.input(1)?)?;
        let mut result = filled::<f64>(shape.elements())?;
        result.fill(-1.0);
        let element_type = data.element_type();
        dispatch!(element_type, T in [numeric] => {
            let scores = data.slice::<T>()?;
            for n in 0..batch {
                let length = (0..steps).find(|t| mask[t * batch + n] == 0.0).unwrap_or(steps);
                let rows = (0..length).map(|t| &scores[(t * batch + n) * classes..][..classes]);
                let decoded = decode(rows, classes.checked_sub(1), self.attributes.ctc_merge_repeated);
                for (target, class) in result[n * steps..].iter_mut().zip(decoded) {
                    *target = class as f64;
                }
            }
        } else { return Err(unsupported(element_type)) });
        write_rounded(context.output(0, &shape)?, &result)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

/// The classes of a sequence of scores.
pub(crate) fn decode<'s, T: Copy + PartialOrd + 's>(
    rows: impl Iterator<Item = &'s [T]>,
    blank: Option<usize>,
    merge: bool,
) -> impl Iterator<Item = usize> {
    let mut previous = None;
    rows.filter_map(move |row| {
        let best = greatest(row);
        let is_repeated = merge && previous == Some(best);
        previous = Some(best);
        (Some(best) != blank && !is_repeated).then_some(best)
    })
}

/// Where the greatest score is: the first of equal ones, and the first one of all if it is NaN.
fn greatest<T: Copy + PartialOrd>(row: &[T]) -> usize {
    // Scores that are looked at together; most of the time none of them is greater than those before.
    const GROUP: usize = 16;
    let Some(mut best) = row.first().copied() else { return 0 };
    let mut place = 0;
    for (group, scores) in row.chunks(GROUP).enumerate() {
        if !scores.iter().fold(false, |any, score| any | (*score > best)) {
            continue;
        }
        for (at, score) in scores.iter().enumerate() {
            if *score > best {
                (best, place) = (*score, group * GROUP + at);
            }
        }
    }
    place
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = CTCGreedyDecoderAttributes::read(context.attributes);
    Arc::new(CTCGreedyDecoder { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_greatest_score_is_found() {
        let mut row: Vec<f32> = (0..50u16).map(|i| f32::from(i * 7 % 41)).collect();
        assert_eq!(super::greatest(&row), 35);
        row[20] = f32::NAN;
        row[46] = 40.0;
        row[40] = 40.0;
        assert_eq!(super::greatest(&row), 35);
        row[16] = 40.0;
        assert_eq!(super::greatest(&row), 16);
        row[0] = f32::NAN;
        assert_eq!(super::greatest(&row), 0);
        assert_eq!(super::greatest::<i32>(&[]), 0);
    }

    #[test]
    fn repetitions_and_blanks_go() {
        let data = [0.9f32, 0.0, 0.1, 0.9, 0.0, 0.1, 0.0, 0.0, 1.0, 0.9, 0.0, 0.1, 0.0, 0.9, 0.1];
        let inputs = [tensor(&data, [5, 1, 3]), tensor(&[1f32, 1.0, 1.0, 1.0, 0.0], [5, 1])];
        let merged = Case::new("CTCGreedyDecoder", "opset1").run(&inputs).unwrap();
        assert_eq!(merged[0], tensor(&[0f32, 0.0, -1.0, -1.0, -1.0], [1, 5, 1, 1]));
        let all = Case::new("CTCGreedyDecoder", "opset1").attribute("ctc_merge_repeated", "false");
        assert_eq!(all.run(&inputs).unwrap()[0], tensor(&[0f32, 0.0, 0.0, -1.0, -1.0], [1, 5, 1, 1]));
    }
}
