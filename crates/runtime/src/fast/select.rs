//! Select of elements that have bytes of their own.

use std::sync::atomic::{AtomicBool, Ordering};

use ovir_kernels::elementwise::{ElementBytes, select_line};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};
use ovir_ops::common::broadcast::BroadcastAttributes;
use ovir_ops::condition::select::Select;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Elements that a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

struct SelectKernel {
    isa: Isa,
    attributes: BroadcastAttributes,
    width: usize,
}

/// An axis: its size, and the steps of condition, first and second choice.
type Axis = (usize, [usize; 3]);

/// Claims Select.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let select = context.node.operation.downcast_ref::<Select>()?;
    let [condition, yes, no] = context.inputs else { return None };
    if condition.element_type != ElementType::Boolean || yes.element_type != no.element_type {
        return None;
    }
    let width = yes.element_type.byte_width().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
    let kernel = SelectKernel { isa: isa::detect(), attributes: select.attributes.clone(), width };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl SelectKernel {
    /// The axes of the output, innermost first, neighbours joined where that is possible; `None` if a shape does not
    /// broadcast to the output.
    fn axes(&self, inputs: [&Shape; 3], output: &Shape) -> Option<SmallVec<[Axis; 8]>> {
        let [condition, yes, no] = inputs;
        let aligned =
            [self.attributes.aligned_second(yes, condition), yes.clone(), self.attributes.aligned_second(yes, no)];
        let mut steps = [1usize; 3];
        let mut axes: SmallVec<[Axis; 8]> = SmallVec::new();
        for back in 0..output.rank() {
            let size = output[output.rank() - 1 - back];
            let mut strides = [0; 3];
            for (at, shape) in aligned.iter().enumerate() {
                let own = shape.rank().checked_sub(back + 1).map_or(1, |axis| shape[axis]);
                if own != size && own != 1 {
                    return None;
                }
                strides[at] = if own == 1 { 0 } else { steps[at] };
                steps[at] = steps[at].checked_mul(own)?;
            }
            if size == 1 {
                continue;
            }
            match axes.last_mut() {
                Some((inner, before)) if (0..3).all(|at| strides[at] == before[at] * *inner) => *inner *= size,
                _ => axes.push((size, strides)),
            }
        }
        aligned.iter().all(|shape| shape.rank() <= output.rank()).then_some(axes)
    }

    fn apply<const WIDTH: usize>(&self, io: StepIo<'_, '_>) -> OpResult
    where
        [u8; WIDTH]: ElementBytes,
    {
        let [output] = io.outputs else { return Ok(()) };
        let shapes = [io.inputs[0].shape(), io.inputs[1].shape(), io.inputs[2].shape()];
        let axes = self.axes(shapes, output.shape());
        let axes = axes.ok_or_else(|| OpError::shape(Blame::Node, "the inputs cannot be broadcast together"))?;
        let condition = io.inputs[0].slice::<u8>()?;
        let (yes, _) = io.inputs[1].bytes().as_chunks::<WIDTH>();
        let (no, _) = io.inputs[2].bytes().as_chunks::<WIDTH>();
        let (target, _) = output.bytes_mut().as_chunks_mut::<WIDTH>();
        let (inner, strides) = axes.first().copied().unwrap_or((1, [0; 3]));
        let outer = axes.get(1..).unwrap_or(&[]);
        let rows = (CHUNK / inner.max(1)).max(1);
        let work = nanoseconds_for_bytes(target.len().saturating_mul(4 * WIDTH));
        let is_short = AtomicBool::new(false);
        parallel_chunks_mut(target, rows * inner.max(1), work, |index, target| {
            for (row, target) in target.chunks_mut(inner.max(1)).enumerate() {
                let [c, y, n] = offsets(outer, index * rows + row);
                let line = (&condition[c..], &yes[y..], &no[n..]);
                if select_line(self.isa, line, strides.map(|stride| stride == 0), target).is_err() {
                    is_short.store(true, Ordering::Relaxed);
                }
            }
        });
        if is_short.into_inner() {
            return Err(OpError::shape(Blame::Node, "an input is shorter than its shape"));
        }
        Ok(())
    }
}

/// Where a row begins in each input.
fn offsets(outer: &[Axis], row: usize) -> [usize; 3] {
    let mut rest = row;
    let mut offsets = [0; 3];
    for (size, strides) in outer {
        let at = rest % size;
        rest /= size;
        for (offset, stride) in offsets.iter_mut().zip(strides) {
            *offset += at * stride;
        }
    }
    offsets
}

impl Kernel for SelectKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([condition, yes, no], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        self.axes([condition, yes, no], output).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.width {
            1 => self.apply::<1>(io),
            2 => self.apply::<2>(io),
            4 => self.apply::<4>(io),
            _ => self.apply::<8>(io),
        }
    }
}
