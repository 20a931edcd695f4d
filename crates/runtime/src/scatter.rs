//! One scatter outside of a model.

use std::sync::Arc;

use ovir_ops::{
    Blame, Environment, EvaluateContext, InferContext, OpError, OpResult, Operation, OutputSlot, OutputSlots,
    RandomStream, SymbolSource, ValueFacts,
};
use ovir_tensor::{AlignedBuffer, ElementType, Shape, SmallVec, Tensor, TensorView, TensorViewMut};

use crate::eager::view_facts;
use crate::fast::scatter::scatter_kernel;
use crate::fast::{Kernel, StepIo, StepShapes};

/// Checks the inputs of a scatter as validation does, and runs it: in the kernel where there is one for it, else by its
/// reference evaluation. Input `in_place` has type and shape, and `output` holds its data already; without it the data are
/// copied to `output`. A call forks only where it runs inside a rayon pool.
///
/// # Errors
/// Inputs that violate a rule of the operation, an index out of range among them; `output` is as it was then.
pub fn run_scatter(
    operation: &Arc<dyn Operation>,
    inputs: &[TensorView<'_>],
    output: &mut TensorViewMut<'_>,
    in_place: Option<usize>,
) -> OpResult {
    let facts: SmallVec<[ValueFacts; 4]> = inputs
        .iter()
        .enumerate()
        .map(|(port, view)| facts_of(view, in_place == Some(port)))
        .collect::<OpResult<_>>()?;
    let facts: SmallVec<[&ValueFacts; 4]> = facts.iter().collect();
    check(operation, &facts)?;
    let shapes: SmallVec<[&Shape; 4]> = inputs.iter().map(TensorView::shape).collect();
    let shape = output.shape().clone();
    let shapes = StepShapes { inputs: &shapes, outputs: &[&shape] };
    let kernel = scatter_kernel(operation, &facts).filter(|kernel| kernel.accepts(&shapes));
    let is_string = inputs.iter().any(|view| view.element_type() == ElementType::String);
    let (Some(kernel), false) = (kernel, is_string) else {
        return evaluate(operation, inputs, output, in_place);
    };
    let mut scratch = AlignedBuffer::zeroed(kernel.scratch_bytes(&shapes))?;
    let bytes = TensorViewMut::of_bytes(output.element_type(), &shape, output.bytes_mut());
    let random = &mut RandomStream::default();
    kernel.run(StepIo { inputs, outputs: &mut [bytes], scratch: &mut scratch, in_place, random })
}

fn facts_of(view: &TensorView<'_>, is_in_place: bool) -> OpResult<ValueFacts> {
    if is_in_place {
        return Ok(ValueFacts::new(view.element_type(), view.shape().into()));
    }
    view_facts(view).map_err(|error| OpError::value(Blame::Node, error.to_string()))
}

fn check(operation: &Arc<dyn Operation>, facts: &[&ValueFacts]) -> OpResult {
    let mut outputs = [ValueFacts::default()];
    let (mut problems, mut symbols) = (Vec::new(), SymbolSource::default());
    operation.infer(&mut InferContext::new(facts, &mut outputs, &mut problems, &mut symbols, &[]))?;
    match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(()),
    }
}

fn evaluate(
    operation: &Arc<dyn Operation>,
    inputs: &[TensorView<'_>],
    output: &mut TensorViewMut<'_>,
    in_place: Option<usize>,
) -> OpResult {
    let shape = output.shape().clone();
    let mut copy = None;
    if let Some(port) = in_place.filter(|port| operation.in_place_input() != Some(*port)) {
        // A composition reads its data again; it gets a copy of them.
        let element_type = output.element_type();
        copy = Some((port, Tensor::from_bytes(element_type, shape, output.bytes_mut())?));
    }
    let mut inputs: SmallVec<[TensorView<'_>; 4]> = SmallVec::from_slice(inputs);
    let is_in_place = in_place.is_some() && copy.is_none();
    if let Some((port, data)) = &copy {
        inputs[*port] = data.view();
    }
    let mut slots = [OutputSlot::Given(output.reborrow())];
    let (mut outputs, mut environment) = (OutputSlots(&mut slots), Environment::unlimited());
    EvaluateContext::new(&inputs, &mut outputs, &[], &mut environment, is_in_place).run(&**operation)
}
