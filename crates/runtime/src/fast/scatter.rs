//! ScatterUpdate, ScatterElementsUpdate (of a broadcast index too) and ScatterNDUpdate, into a copy or in place.

use std::sync::Arc;

use ovir_kernels::scatter::{Combine, Element, IndexType, Places, Reduction, Scatter};
use ovir_ops::fused::{Fused, StageInput};
use ovir_ops::movement::broadcast::Broadcast;
use ovir_ops::movement::scatter_elements_update::{ScatterElementsReduction, ScatterElementsUpdate};
use ovir_ops::movement::scatter_nd_update::{ScatterNdReduction, ScatterNdUpdate};
use ovir_ops::movement::scatter_update::ScatterUpdate;
use ovir_ops::{OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec, TensorView};

use super::layout::axis_of;
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// How a scatter reads its indices.
enum Form {
    /// ScatterUpdate along a constant axis.
    Slices(i64),
    /// ScatterElementsUpdate along a constant axis.
    Elements(i64),
    /// ScatterElementsUpdate along a constant axis, whose indices are broadcast. With an explicit mapping they are
    /// a vector along the axis.
    Broadcast { axis: i64, is_explicit: bool },
    /// ScatterNDUpdate.
    Tuples,
}

/// A scatter into a copy of the data or in place.
pub(crate) struct ScatterKernel {
    form: Form,
    /// The scatter, which says what is wrong with indices.
    operation: Arc<dyn Operation>,
    /// Where the layer has the scatter's data, indices, updates and axis. The indices of [`Form::Broadcast`] are those
    /// before they are broadcast.
    ports: SmallVec<[usize; 4]>,
    reduction: Reduction,
    element: Element,
    element_type: ElementType,
    index_type: IndexType,
}

/// Claims scatters with indices of type i32 or i64.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let kernel = scatter_kernel(&context.node.operation, context.inputs)?;
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The kernel of an operation whose inputs are of this kind.
pub(crate) fn scatter_kernel(operation: &Arc<dyn Operation>, inputs: &[&ValueFacts]) -> Option<ScatterKernel> {
    match operation.downcast_ref::<Fused>() {
        Some(fused) => of_fused(fused, inputs),
        None => of_operation(operation.clone(), inputs, (0..inputs.len()).collect(), None),
    }
}

/// Broadcast, then ScatterElementsUpdate.
fn of_fused(fused: &Fused, inputs: &[&ValueFacts]) -> Option<ScatterKernel> {
    let [first, second] = &fused.stages[..] else { return None };
    let broadcast = first.operation.downcast_ref::<Broadcast>()?;
    let StageInput::Outside(index) = *first.inputs.first()? else { return None };
    let ports = second.inputs.iter().map(|input| match input {
        StageInput::Outside(port) => *port,
        StageInput::Stage(_) => index,
    });
    of_operation(second.operation.clone(), inputs, ports.collect(), Some(broadcast))
}

fn of_operation(
    operation: Arc<dyn Operation>,
    inputs: &[&ValueFacts],
    ports: SmallVec<[usize; 4]>,
    broadcast: Option<&Broadcast>,
) -> Option<ScatterKernel> {
    let facts = |i: usize| ports.get(i).and_then(|port| inputs.get(*port));
    let axis = || facts(3)?.integers()?.first().copied();
    let (form, reduction) = if operation.downcast_ref::<ScatterUpdate>().is_some() {
        (Form::Slices(axis()?), Reduction { combine: Combine::Replace, use_init: true })
    } else if let Some(scatter) = operation.downcast_ref::<ScatterElementsUpdate>() {
        let reduction = elements_reduction(scatter);
        match broadcast {
            None => (Form::Elements(axis()?), reduction),
            Some(broadcast) => (Form::Broadcast { axis: axis()?, is_explicit: broadcast.is_explicit() }, reduction),
        }
    } else {
        let scatter = operation.downcast_ref::<ScatterNdUpdate>()?;
        (Form::Tuples, Reduction { combine: nd_combine(scatter.attributes.reduction), use_init: true })
    };
    let element_type = facts(0)?.element_type;
    let element = element(element_type, reduction.combine == Combine::Replace)?;
    let index_type = match facts(1)?.element_type {
        ElementType::I32 => IndexType::I32,
        ElementType::I64 => IndexType::I64,
        _ => return None,
    };
    Some(ScatterKernel { form, operation, ports, reduction, element, element_type, index_type })
}

/// The kernel's name of an element type; by its width alone where updates replace values.
fn element(element_type: ElementType, replaces: bool) -> Option<Element> {
    let by_width = || match element_type.byte_width()? {
        1 => Some(Element::U8),
        2 => Some(Element::U16),
        4 => Some(Element::U32),
        8 => Some(Element::U64),
        _ => None,
    };
    match element_type {
        _ if replaces => by_width(),
        ElementType::Boolean => Some(Element::Boolean),
        ElementType::U8 => Some(Element::U8),
        ElementType::U16 => Some(Element::U16),
        ElementType::U32 => Some(Element::U32),
        ElementType::U64 => Some(Element::U64),
        ElementType::I8 => Some(Element::I8),
        ElementType::I16 => Some(Element::I16),
        ElementType::I32 => Some(Element::I32),
        ElementType::I64 => Some(Element::I64),
        ElementType::F16 => Some(Element::F16),
        ElementType::Bf16 => Some(Element::Bf16),
        ElementType::F32 => Some(Element::F32),
        ElementType::F64 => Some(Element::F64),
        _ => None,
    }
}

fn elements_reduction(scatter: &ScatterElementsUpdate) -> Reduction {
    let combine = match scatter.attributes.reduction {
        ScatterElementsReduction::None => return Reduction { combine: Combine::Replace, use_init: true },
        ScatterElementsReduction::Sum => Combine::Sum,
        ScatterElementsReduction::Prod => Combine::Prod,
        ScatterElementsReduction::Min => Combine::Min,
        ScatterElementsReduction::Max => Combine::Max,
        ScatterElementsReduction::Mean => Combine::Mean,
    };
    Reduction { combine, use_init: scatter.attributes.use_init_val }
}

fn nd_combine(reduction: ScatterNdReduction) -> Combine {
    match reduction {
        ScatterNdReduction::None => Combine::Replace,
        ScatterNdReduction::Sum => Combine::Sum,
        ScatterNdReduction::Sub => Combine::Sub,
        ScatterNdReduction::Prod => Combine::Prod,
        ScatterNdReduction::Min => Combine::Min,
        ScatterNdReduction::Max => Combine::Max,
    }
}

impl ScatterKernel {
    fn scatter(&self, shapes: &[&Shape]) -> Option<Scatter> {
        let shape = |i: usize| shapes.get(*self.ports.get(i)?).copied();
        let places = places(&self.form, shape(0)?, shape(1)?, shape(2)?)?;
        Some(Scatter { places, reduction: self.reduction, element: self.element, index_type: self.index_type })
    }

    /// What is wrong with the indices, in the words of the operation.
    fn complain(&self, io: &StepIo<'_, '_>) -> OpResult {
        let rank = self.ports.first().map_or(0, |port| io.inputs[*port].shape().rank());
        let shape: Shape;
        let mut views: SmallVec<[TensorView<'_>; 4]> = self.ports.iter().map(|port| io.inputs[*port]).collect();
        if let (Form::Broadcast { axis, .. }, [_, indices, updates, _]) = (&self.form, &mut views[..]) {
            // One index for each row says as much as all of them.
            let axis = axis_of(*axis, rank).unwrap_or(0);
            let count = indices.elements();
            shape = (0..rank).map(|i| if i == axis { count } else { 1 }).collect();
            *updates = TensorView::of_bytes(self.element_type, &shape, &[]);
            *indices = TensorView::of_bytes(indices.element_type(), &shape, indices.bytes());
        }
        self.operation.overwritten(&views, &mut Vec::new()).map(|_| ())
    }
}

fn places(form: &Form, data: &Shape, indices: &Shape, updates: &Shape) -> Option<Places> {
    let around = |axis: usize| {
        let product = |sizes: &[usize]| sizes.iter().product::<usize>();
        (product(&data[..axis]), data[axis], product(&data[axis + 1..]))
    };
    match form {
        Form::Slices(axis) => {
            let (outer, size, inner) = around(axis_of(*axis, data.rank())?);
            Places::slices(outer, size, inner, indices.elements(), false).ok()
        }
        Form::Elements(axis) => Places::elements(data, indices, axis_of(*axis, data.rank())?).ok(),
        Form::Tuples => {
            let (depth, rows) = indices.split_last()?;
            let (sizes, inner) = (data.get(..*depth)?, data.get(*depth..)?);
            Places::tuples(sizes, inner.iter().product(), rows.iter().product()).ok()
        }
        Form::Broadcast { axis, is_explicit, .. } => {
            let axis = axis_of(*axis, data.rank())?;
            let count = *updates.get(axis)?;
            let same_off_axis =
                data.rank() == updates.rank() && (0..data.rank()).all(|i| i == axis || data[i] == updates[i]);
            // Seen from the end, the index has sizes other than 1 along the axis only.
            let behind = data.rank() - axis;
            let is_vector = match is_explicit {
                true => indices.rank() == 1,
                false => {
                    indices.rank() >= behind
                        && indices.rank() <= data.rank()
                        && indices.iter().rev().enumerate().all(|(i, size)| i + 1 == behind || *size == 1)
                }
            };
            (same_off_axis && is_vector && indices.elements() == count).then_some(())?;
            let (outer, size, inner) = around(axis);
            Places::broadcast(outer, size, inner, count).ok()
        }
    }
}

impl Kernel for ScatterKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let data = self.ports.first().and_then(|port| shapes.inputs.get(*port));
        data == shapes.outputs.first() && self.scatter(shapes.inputs).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.scatter(shapes.inputs).map_or(0, |scatter| scatter.scratch_len())
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        self.ports.first().copied().into_iter().collect()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.scatter(shapes.inputs).map_or(0, |scatter| scatter.work_nanoseconds(false))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let shapes: SmallVec<[&Shape; 8]> = io.inputs.iter().map(TensorView::shape).collect();
        let Some(scatter) = self.scatter(&shapes) else { return self.complain(&io) };
        let input = |i: usize| io.inputs[self.ports[i]].bytes();
        let data = (io.in_place != Some(self.ports[0])).then(|| input(0));
        let [output] = &mut *io.outputs else { return Ok(()) };
        let result = scatter.run(data, input(1), input(2), output.bytes_mut(), io.scratch);
        let Err(error) = result else { return Ok(()) };
        self.complain(&io)?;
        Err(kernel_error(error))
    }
}
