//! Gathers of windows and Transposes that are one strided copy: fused layers.

use ovir_kernels::movement::StridedCopy;
use ovir_ops::OpResult;
use ovir_ops::common::movement::{EvenIndices, View};
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::integers_of_view;
use ovir_tensor::{Shape, SmallVec};

use super::layout::axis_of;
use super::movement::{misfit, output_nanoseconds};
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// What one stage makes of a view.
enum Way {
    /// Axes in another order.
    Order(SmallVec<[usize; 8]>),
    /// Elements along an axis by indices of a shape.
    Windows { axis: usize, sizes: SmallVec<[usize; 4]>, indices: EvenIndices },
}

struct ViewsKernel {
    data: usize,
    ways: Vec<Way>,
    width: usize,
}

/// Claims chains of such layers.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let operation = context.node.operation.clone();
    let stages = &operation.downcast_ref::<Fused>()?.stages;
    stages.iter().all(|stage| matches!(&*stage.type_name, "Gather" | "Transpose")).then_some(())?;
    let data = stages.first()?.outside(0)?;
    let mut rank = context.inputs.get(data)?.shape.rank()?;
    let width = context.inputs.get(data)?.element_type.byte_width()?;
    let mut ways = Vec::with_capacity(stages.len());
    for (index, stage) in stages.iter().enumerate() {
        let is_next = index == 0 || stage.inputs.first() == Some(&StageInput::Stage(index - 1));
        is_next.then_some(())?;
        let way = way(context, stage, rank)?;
        if let Way::Windows { sizes, .. } = &way {
            rank = rank + sizes.len() - 1;
        }
        ways.push(way);
    }
    let kernel = Box::new(ViewsKernel { data, ways, width });
    Some(Claim { kernel, packed_inputs: SmallVec::new() })
}

fn way(context: &mut ClaimContext<'_>, stage: &Stage, rank: usize) -> Option<Way> {
    let mut constant = |place: usize| (context.constant)(stage.outside(place)?);
    if stage.type_name == "Transpose" {
        let order = integers_of_view(constant(1)?.view())?;
        return Some(Way::Order(order.iter().map(|axis| usize::try_from(*axis).ok()).collect::<Option<_>>()?));
    }
    let axis = axis_of(*integers_of_view(constant(2)?.view())?.first()?, rank)?;
    let indices = constant(1)?;
    let values = integers_of_view(indices.view())?;
    let sizes = indices.shape().iter().copied().collect();
    Some(Way::Windows { axis, indices: EvenIndices::of(indices.shape(), &values)?, sizes })
}

impl ViewsKernel {
    fn copy(&self, data: &Shape, output: &Shape) -> Option<StridedCopy> {
        let view = self.ways.iter().try_fold(View::dense(data), |view, way| match way {
            Way::Order(order) => view.transposed(order),
            Way::Windows { axis, sizes, indices } => view.gathered(*axis, sizes, indices),
        })?;
        (view.shape == *output).then_some(())?;
        StridedCopy::gather_strided(&view.walk, &view.from.strides, view.from.offset, data.elements()).ok()
    }
}

impl Kernel for ViewsKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let [output] = shapes.outputs else { return false };
        shapes.inputs.get(self.data).is_some_and(|data| self.copy(data, output).is_some())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        2 * output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Err(misfit()) };
        let data = &io.inputs[self.data];
        let copy = self.copy(data.shape(), output.shape()).ok_or_else(misfit)?;
        copy.run(self.width, data.bytes(), output.bytes_mut()).map_err(kernel_error)
    }
}
