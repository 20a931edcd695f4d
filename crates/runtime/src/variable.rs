//! Variables: values that live from inference to inference.

use std::ops::Range;

use ovir_ops::OpResult;
use ovir_ops::rows::{from_rows, to_rows};
use ovir_tensor::{ElementType, PartialShape, Shape, Tensor};

/// What a model says of a variable.
#[derive(Debug, Clone, PartialEq)]
pub struct VariableInfo {
    /// The `variable_id`.
    pub variable_id: String,
    /// The element type.
    pub element_type: ElementType,
    /// The shape, which may change from inference to inference.
    pub shape: PartialShape,
    /// Whether the value has its rows first in memory.
    pub(crate) is_rows_first: bool,
}

impl VariableInfo {
    /// A value as it lies in memory.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(crate) fn stored(&self, value: Tensor) -> OpResult<Tensor> {
        if self.is_rows_first { to_rows(&value) } else { Ok(value) }
    }

    /// The value of what lies in memory.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub(crate) fn value(&self, stored: &Tensor) -> OpResult<Tensor> {
        if self.is_rows_first { from_rows(stored) } else { Ok(stored.clone()) }
    }
}

/// The value of a variable in a request.
#[derive(Debug, Default)]
pub(crate) struct Variable {
    /// The value; `None` after a reset, until the initialiser has run.
    pub current: Option<Tensor>,
    /// The memory of the value that the running inference computes.
    pub next: Option<Tensor>,
    /// The shape that the value had, if the running inference has put new rows behind it: then `next` has its memory.
    pub grown_from: Option<Shape>,
}

impl Variable {
    /// Takes new rows back.
    pub fn shrink(&mut self) {
        if let (Some(shape), Some(mut tensor)) = (self.grown_from.take(), self.next.take()) {
            // Nobody else has the tensor, and less memory can always be had.
            let is_changed = tensor.resize(&shape).is_ok_and(|is_changed| is_changed);
            self.current = Some(tensor).filter(|_| is_changed);
        }
    }
}

/// Bytes that were overwritten in the values of variables: what a failed inference puts back.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    bytes: Vec<u8>,
    /// Variable, offset and length of each piece, in the order of writing.
    entries: Vec<(usize, usize, usize)>,
    ranges: Vec<Range<usize>>,
}

impl Journal {
    /// Remembers the bytes of `tensor`, the value of `variable`, that are about to be overwritten: the ranges that
    /// `overwritten` gives, or everything where it cannot tell.
    pub fn record(
        &mut self,
        variable: usize,
        tensor: &Tensor,
        overwritten: impl FnOnce(&mut Vec<Range<usize>>) -> OpResult<bool>,
    ) -> OpResult {
        self.ranges.clear();
        if !overwritten(&mut self.ranges)? {
            self.ranges.clear();
            self.ranges.push(0..tensor.bytes().len());
        }
        for range in &self.ranges {
            if let Some(bytes) = tensor.bytes().get(range.clone()) {
                self.bytes.extend_from_slice(bytes);
                self.entries.push((variable, range.start, range.len()));
            }
        }
        Ok(())
    }

    /// The changes hold.
    pub fn commit(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Takes the changes back, the latest first.
    pub fn roll_back(&mut self, variables: &mut [Variable]) {
        let mut end = self.bytes.len();
        for (variable, offset, length) in self.entries.iter().rev() {
            let start = end - length;
            let bytes = variables.get_mut(*variable).and_then(|v| v.current.as_mut()?.bytes_mut().ok());
            if let Some(target) = bytes.and_then(|b| b.get_mut(*offset..*offset + *length)) {
                target.copy_from_slice(&self.bytes[start..end]);
            }
            end = start;
        }
        self.commit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_failed_inference_leaves_the_value_as_it_was() {
        let current = Some(Tensor::from_slice(&[1u8, 2, 3, 4], [4]).unwrap());
        let mut variables = [Variable { current, ..Variable::default() }];
        let mut journal = Journal::default();
        for (range, byte) in [(1..3, 9), (1..2, 8)] {
            let record = |ranges: &mut Vec<Range<usize>>| {
                ranges.push(range.clone());
                Ok(true)
            };
            journal.record(0, variables[0].current.as_ref().unwrap(), record).unwrap();
            variables[0].current.as_mut().unwrap().slice_mut::<u8>().unwrap()[1] = byte;
        }
        journal.roll_back(&mut variables);
        assert_eq!(variables[0].current.as_ref().unwrap().slice::<u8>().unwrap(), [1, 2, 3, 4]);
    }
}
