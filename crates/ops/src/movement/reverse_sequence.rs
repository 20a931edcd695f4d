//! # ReverseSequence
//! Sequences of a batch, each reversed up to its length.
//!
//! Specification: `movement/reverse-sequence-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 2 |
//! | in 1 | seq_lengths | any integer type | `[batch]` |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Lengths lie in `[0, size of seq_axis]`; elements behind the length stay.

use std::sync::Arc;

use ovir_tensor::{ElementClass, Shape};

use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of ReverseSequence.
    pub struct ReverseSequenceAttributes {
        /// The axis of the batch; negative counts from the end.
        batch_axis: i64 = "batch_axis", default "0";
        /// The axis of the sequence; negative counts from the end.
        seq_axis: i64 = "seq_axis", default "1";
    }
}

/// The definition of ReverseSequence.
pub static REVERSE_SEQUENCE: OpDef = OpDef {
    type_name: "ReverseSequence",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ReverseSequenceAttributes::DEFINITIONS,
    build,
};

/// A ReverseSequence layer.
#[derive(Debug)]
pub struct ReverseSequence {
    /// The attributes.
    pub attributes: ReverseSequenceAttributes,
}

impl Operation for ReverseSequence {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        context.require_rank(0, 2..=usize::MAX)?;
        context.require_rank(1, 1..=1)?;
        let mut shape = context.shape(0).clone();
        if let Some(dims) = shape.dims_mut() {
            let (batch, sequence) = self.axes(dims.len())?;
            let lengths = context.shape(1).dim(0);
            dims[batch] = dims[batch].merge(lengths).ok_or_else(|| {
                let message = format!("{lengths} lengths are given for a batch of {}", dims[batch]);
                OpError::shape(Blame::Input(1), message)
            })?;
            for (i, length) in context.integers(1).unwrap_or_default().iter().enumerate() {
                check_length(*length, i, dims[sequence].max())?;
            }
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let shape = data.shape();
        let lengths = context.integers(1)?;
        let (batch, sequence) = self.axes(shape.rank())?;
        if lengths.len() != shape[batch] {
            let message = format!("{} lengths are given for a batch of {}", lengths.len(), shape[batch]);
            return Err(OpError::shape(Blame::Input(1), message));
        }
        for (i, length) in lengths.iter().enumerate() {
            check_length(*length, i, shape[sequence] as i64)?;
        }
        let mut output = context.output(0, shape)?;
        let dense = Strided::dense(shape);
        dispatch_cell!(data.element_type(), C => {
            let (source, target) = (C::source(&data), C::target(&mut output));
            target.clone_from_slice(source);
            let mut part: Shape = shape.clone();
            part[batch] = 1;
            for (i, length) in lengths.iter().enumerate().filter(|(_, length)| **length > 1) {
                part[sequence] = *length as usize;
                let to = Strided { offset: i * dense.strides[batch] as usize, strides: dense.strides.clone() };
                let mut from = to.clone();
                from.offset += (*length as usize - 1) * dense.strides[sequence] as usize;
                from.strides[sequence] = -dense.strides[sequence];
                copy_strided(&part, source, &from, target, &to);
            }
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

impl ReverseSequence {
    fn axes(&self, rank: usize) -> OpResult<(usize, usize)> {
        let batch = normalize_axis(self.attributes.batch_axis, rank, Blame::attribute("batch_axis"))?;
        let sequence = normalize_axis(self.attributes.seq_axis, rank, Blame::attribute("seq_axis"))?;
        if batch == sequence {
            let message = format!("axis {sequence} is the batch axis too; they must differ");
            return Err(OpError::attribute("seq_axis", message));
        }
        Ok((batch, sequence))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(ReverseSequence { attributes: ReverseSequenceAttributes::read(context.attributes) })
}

fn check_length(length: i64, position: usize, size: i64) -> OpResult {
    if (0..=size).contains(&length) {
        return Ok(());
    }
    let message = format!("length {length} at position {position} must be in [0, {size}]");
    Err(OpError::value(Blame::Input(1), message))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn reverses_each_up_to_its_length() {
        let data = tensor(&(0..12).collect::<Vec<i32>>(), [3, 4]);
        let case = Case::new("ReverseSequence", "opset1");
        let output = case.run(&[data.clone(), tensor(&[1i32, 4, 3], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[0, 1, 2, 3, 7, 6, 5, 4, 10, 9, 8, 11], [3, 4]));
        let turned = Case::new("ReverseSequence", "opset1").attribute("batch_axis", "-1").attribute("seq_axis", "0");
        let output = turned.run(&[data, tensor(&[2i64, 0, 3, 1], [4])]).unwrap();
        assert_eq!(output[0], tensor(&[4, 1, 10, 3, 0, 5, 6, 7, 8, 9, 2, 11], [3, 4]));
        assert_eq!(case.infer_error(&["f32[1,4]", "i64[1]=5"]), "input 1: length 5 at position 0 must be in [0, 4]");
        assert_eq!(case.infer(&["f32[?,4]", "i64[3]"]), ["f32[3,4]"]);
    }
}
