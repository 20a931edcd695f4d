//! # GatherTree
//! Follows the parents of a beam search backwards and writes out the whole beams.
//!
//! Specification: `movement/gather-tree-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | step_ids | any numeric type | `[steps, batch, beams]` |
//! | in 1 | parent_idx | that of `step_ids` | that of `step_ids` |
//! | in 2 | max_seq_len | that of `step_ids` | `[batch]` |
//! | in 3 | end_token | that of `step_ids` | scalar |
//! | out 0 | | that of `step_ids` | that of `step_ids` |
//!
//! What follows the first `end_token` of a beam, or the length of its sequence, is `end_token`.

use std::sync::Arc;

use ovir_tensor::{ElementClass, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of GatherTree.
pub static GATHER_TREE: OpDef = OpDef {
    type_name: "GatherTree",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (4, 4), (1, 1))],
    attributes: &[],
    build,
};

/// A GatherTree layer.
#[derive(Debug)]
pub struct GatherTree;

impl Operation for GatherTree {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        let element_type = context.require_same_type(&[0, 1, 2, 3])?;
        context.require_rank(0, 3..=3)?;
        context.require_rank(1, 3..=3)?;
        context.require_rank(2, 1..=1)?;
        context.require_one_element(3)?;
        let (steps, parents, lengths) = (context.shape(0), context.shape(1), context.shape(2));
        let mut shape = steps.merge(parents).ok_or_else(|| {
            let message = format!("shape {parents} must equal shape {steps} of input 0");
            OpError::shape(Blame::Input(1), message)
        })?;
        let batch = shape.dim(1).merge(lengths.dim(0)).ok_or_else(|| {
            let message = format!("shape {lengths} has {} lengths for a batch of {}", lengths.dim(0), shape.dim(1));
            OpError::shape(Blame::Input(2), message)
        })?;
        if let Some(dims) = shape.dims_mut() {
            dims[1] = batch;
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let steps = context.input(0)?;
        let (parents, lengths, end) = (context.input(1)?, context.input(2)?, context.input(3)?);
        let sizes = [steps.shape()[0], steps.shape()[1], steps.shape()[2]];
        let element_type = steps.element_type();
        let mut output = context.output(0, steps.shape())?;
        dispatch!(element_type, T in [numeric] => {
            let Some(end) = end.slice::<T>()?.first() else { return Ok(()) };
            let inputs = Beams { sizes, steps: steps.slice::<T>()?, parents: parents.slice::<T>()?, end: *end };
            inputs.follow(lengths.slice::<T>()?, output.slice_mut::<T>()?)
        } else { Err(unsupported(element_type)) })
    }
}

struct Beams<'a, T> {
    sizes: [usize; 3],
    steps: &'a [T],
    parents: &'a [T],
    end: T,
}

impl<T: Number> Beams<'_, T> {
    fn follow(&self, lengths: &[T], output: &mut [T]) -> OpResult {
        let [steps, batch, beams] = self.sizes;
        output.fill(self.end);
        for n in 0..batch {
            let length = usize::try_from(lengths[n].to_i128().max(0)).unwrap_or(usize::MAX).min(steps);
            for beam in 0..beams {
                let mut parent = beam;
                for t in (0..length).rev() {
                    let row = (t * batch + n) * beams;
                    output[row + beam] = self.steps[row + parent];
                    // The parents of the first step lead nowhere.
                    if t > 0 {
                        parent = self.parent(row + parent)?;
                    }
                }
                let mut is_over = false;
                for t in 0..length {
                    let target = &mut output[(t * batch + n) * beams + beam];
                    if is_over {
                        *target = self.end;
                    }
                    is_over |= *target == self.end;
                }
            }
        }
        Ok(())
    }

    fn parent(&self, position: usize) -> OpResult<usize> {
        let (parent, beams) = (self.parents[position].to_i128(), self.sizes[2]);
        usize::try_from(parent).ok().filter(|p| *p < beams).ok_or_else(|| {
            let message = format!("parent {parent} at position {position} is out of range [0, {}]", beams as i64 - 1);
            OpError::index(Blame::Input(1), message)
        })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(GatherTree)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn beams_follow_their_parents() {
        let steps = tensor(&[1i32, 2, 3, 4, 5, 6, 7, 8, 9], [3, 1, 3]);
        let parents = tensor(&[0i32, 0, 0, 0, 1, 1, 2, 1, 2], [3, 1, 3]);
        let inputs = [steps, parents, tensor(&[3i32], [1]), tensor(&[10i32], [])];
        let case = Case::new("GatherTree", "opset1");
        assert_eq!(case.run(&inputs).unwrap()[0], tensor(&[2i32, 2, 2, 6, 5, 6, 7, 8, 9], [3, 1, 3]));
        let mut wrong = inputs;
        wrong[1] = tensor(&[0i32, 0, 0, 0, 1, 1, 3, 1, 2], [3, 1, 3]);
        assert_eq!(case.run(&wrong).unwrap_err().to_string(), "input 1: parent 3 at position 6 is out of range [0, 2]");
    }

    #[test]
    fn the_batch_follows_from_any_input() {
        let case = Case::new("GatherTree", "opset1");
        assert_eq!(case.infer(&["f32[4,?,3]", "f32[?,0..5,?]", "f32[2]", "f32[]"]), ["f32[4,2,3]"]);
        case.assert_monotone(&["f32[4,2,3]", "f32[4,2,3]", "f32[2]", "f32[]"]);
    }
}
