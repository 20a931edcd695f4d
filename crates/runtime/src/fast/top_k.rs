//! TopK of elements that have an order in 32 bits.

use ovir_kernels::isa::{self, Isa};
use ovir_kernels::top_k::{Index, Ranked, TopKRule, top_k, top_k_nanoseconds, top_k_scratch_len};
use ovir_ops::sort::top_k::{TopK, TopKMode, TopKSort};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, NativeElement, Shape, SmallVec};

use super::layout::{around, axis_of};
use super::parts::kernel_error;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

struct TopKKernel {
    isa: Isa,
    axis: i64,
    is_largest: bool,
    keeps_order: bool,
    element_type: ElementType,
    index_type: ElementType,
}

/// Claims TopK.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    use ElementType::{F32, I8, I32, U8};
    let attributes = &context.node.operation.downcast_ref::<TopK>()?.attributes;
    let element_type = context.inputs.first()?.element_type;
    if !matches!(element_type, F32 | I8 | U8 | I32) || context.node.outputs.len() != 2 {
        return None;
    }
    let kernel = TopKKernel {
        isa: isa::detect(),
        axis: attributes.axis,
        is_largest: attributes.mode == TopKMode::Max,
        keeps_order: attributes.sort == TopKSort::Index,
        element_type,
        index_type: attributes.index_element_type,
    };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

impl TopKKernel {
    /// `[outer, axis, inner]` of the data, and how many are picked.
    fn sizes(&self, data: &Shape, output: &Shape) -> Option<([usize; 3], usize)> {
        let axis = axis_of(self.axis, data.rank())?;
        let (sizes, picked) = (around(data, axis)?, around(output, axis)?);
        let k = picked[1];
        let fits = picked == [sizes[0], k, sizes[2]] && k <= sizes[1] && i32::try_from(sizes[1]).is_ok();
        fits.then_some((sizes, k))
    }

    fn apply<T: Ranked + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.index_type {
            ElementType::I64 => self.pick::<T, i64>(io),
            _ => self.pick::<T, i32>(io),
        }
    }

    fn pick<T: Ranked + NativeElement, I: Index + NativeElement>(&self, io: StepIo<'_, '_>) -> OpResult {
        let misfit = || OpError::shape(Blame::Node, "the kernel does not fit the layer");
        let data = io.inputs.first().ok_or_else(misfit)?;
        let [values, indices] = io.outputs else { return Err(misfit()) };
        let (sizes, k) = self.sizes(data.shape(), values.shape()).ok_or_else(misfit)?;
        let rule = TopKRule { k, is_largest: self.is_largest, keeps_order: self.keeps_order };
        let scratch = ovir_tensor::cast_mut(io.scratch);
        let (values, indices) = (values.slice_mut::<T>()?, indices.slice_mut::<I>()?);
        top_k(self.isa, sizes, rule, data.slice::<T>()?, values, indices, scratch).map_err(kernel_error)
    }
}

impl Kernel for TopKKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, ..], [values, indices])
            if values == indices && self.sizes(data, values).is_some())
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let ([data, ..], [values, ..]) = (shapes.inputs, shapes.outputs) else { return 0 };
        self.sizes(data, values).map_or(0, |(sizes, k)| top_k_scratch_len(sizes, k).saturating_mul(8))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let ([data, ..], [values, ..]) = (shapes.inputs, shapes.outputs) else { return 0 };
        self.sizes(data, values).map_or(0, |(_, k)| top_k_nanoseconds(data.elements(), k))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.element_type {
            ElementType::I8 => self.apply::<i8>(io),
            ElementType::U8 => self.apply::<u8>(io),
            ElementType::I32 => self.apply::<i32>(io),
            _ => self.apply::<f32>(io),
        }
    }
}
