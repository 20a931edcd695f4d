//! # CTCGreedyDecoderSeqLen
//! The best class of every step, without blanks and, if asked, without repetitions.
//!
//! Specification: `sequence/ctc-greedy-decoder-seq-len-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[N, T, C]` |
//! | in 1 | sequence_length | i32, i64 | `[N]` |
//! | in 2 | blank_index (optional, `C - 1`) | that of `sequence_length` | one element |
//! | out 0 | | `classes_index_type` | `[N, T]`, filled with -1 |
//! | out 1 | | `sequence_length_type` | `[N]`: the classes of each sequence |
//!
//! Of equal scores the first class is chosen.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, PartialShape, Shape, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::memory::{filled, write_rounded};
use crate::sequence::ctc_greedy_decoder::decode;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of CTCGreedyDecoderSeqLen.
pub static CTC_GREEDY_DECODER_SEQ_LEN: OpDef = OpDef {
    type_name: "CTCGreedyDecoderSeqLen",
    category: Category::Sequence,
    versions: &[OpVersion::new(6, (6, 16), (2, 3), (2, 2))],
    attributes: CTCGreedyDecoderSeqLenAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of CTCGreedyDecoderSeqLen.
    pub struct CTCGreedyDecoderSeqLenAttributes {
        /// Whether repetitions of a class are merged.
        merge_repeated: bool = "merge_repeated", default "true";
        /// The element type of the classes: i32 or i64.
        classes_index_type: ElementType = "classes_index_type", default "i32";
        /// The element type of the lengths: i32 or i64.
        sequence_length_type: ElementType = "sequence_length_type", default "i32";
    }
}

/// A CTCGreedyDecoderSeqLen layer.
#[derive(Debug)]
pub struct CTCGreedyDecoderSeqLen {
    /// The attributes.
    pub attributes: CTCGreedyDecoderSeqLenAttributes,
}

impl Operation for CTCGreedyDecoderSeqLen {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_class(1, ElementClass::Index)?;
        context.require_rank(0, 3..=3)?;
        context.require_rank(1, 1..=1)?;
        if context.input_count() > 2 {
            context.require_class(2, ElementClass::Index)?;
            context.require_one_element(2)?;
        }
        let (data, lengths) = (context.shape(0), context.shape(1));
        let batch = data.dim(0).merge(lengths.dim(0)).ok_or_else(|| {
            let message = format!("shape {lengths} has {} lengths for a batch of {}", lengths.dim(0), data.dim(0));
            OpError::shape(Blame::Input(1), message)
        })?;
        let (classes, counts) = (self.attributes.classes_index_type, self.attributes.sequence_length_type);
        context.set_output(0, classes, PartialShape::from_dims([batch, data.dim(1)]));
        context.set_output(1, counts, PartialShape::from_dims([batch]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let [batch, steps, classes] = [data.shape()[0], data.shape()[1], data.shape()[2]];
        let lengths = context.integers(1)?;
        let blank = if context.input_count() > 2 { context.integer(2)? } else { classes as i64 - 1 };
        let shape = Shape::from([batch, steps]);
        context.output(0, &shape)?;
        let (mut result, mut counts) = (filled::<f64>(shape.elements())?, filled::<f64>(batch)?);
        result.fill(-1.0);
        let element_type = data.element_type();
        dispatch!(element_type, T in [numeric] => {
            let scores = data.slice::<T>()?;
            for n in 0..batch {
                let length = usize::try_from(lengths[n]).ok().filter(|l| *l <= steps).ok_or_else(|| {
                    let message =
                        format!("sequence length {} at position {n} is out of range [0, {steps}]", lengths[n]);
                    OpError::value(Blame::Input(1), message)
                })?;
                let rows = (0..length).map(|t| &scores[(n * steps + t) * classes..][..classes]);
                let decoded = decode(rows, usize::try_from(blank).ok(), self.attributes.merge_repeated);
                for (target, class) in result[n * steps..].iter_mut().zip(decoded) {
                    *target = class as f64;
                    counts[n] += 1.0;
                }
            }
        } else { return Err(unsupported(element_type)) });
        write_rounded(context.output(0, &shape)?, &result)?;
        if context.output_count() > 1 {
            write_rounded(context.output(1, &Shape::from([batch]))?, &counts)?;
        }
        Ok(())
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(6)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = CTCGreedyDecoderSeqLenAttributes::read(context.attributes);
    for (name, element_type) in [
        ("classes_index_type", attributes.classes_index_type),
        ("sequence_length_type", attributes.sequence_length_type),
    ] {
        if !element_type.is(ElementClass::Index) {
            let message = format!("`{name}` is {element_type}; it must be i32 or i64");
            context.attributes.report(OpError::attribute(name, message));
        }
    }
    Arc::new(CTCGreedyDecoderSeqLen { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn lengths_end_sequences() {
        let case = Case::new("CTCGreedyDecoderSeqLen", "opset6").outputs(2);
        let data = tensor(&[0.9f32, 0.1, 0.2, 0.8, 0.9, 0.1], [1, 3, 2]);
        let inputs = [data.clone(), tensor(&[3i32], [1]), tensor(&[1i32], [1])];
        let outputs = case.run(&inputs).unwrap();
        assert_eq!(outputs[0], tensor(&[0i32, 0, -1], [1, 3]));
        assert_eq!(outputs[1], tensor(&[2i32], [1]));
        assert_eq!(
            case.run(&[data, tensor(&[4i32], [1])]).unwrap_err().to_string(),
            "input 1: sequence length 4 at position 0 is out of range [0, 3]"
        );
    }
}
