//! Movements of elements: Transpose, Slice, StridedSlice, Broadcast, Tile, Concat, Split, VariadicSplit, Gather, Pad,
//! Roll, DepthToSpace, SpaceToDepth, ShuffleChannels, ReorgYolo and Einsum that transposes, for every type whose elements have
//! bytes of their own.

use std::sync::Arc;

use ovir_kernels::movement::{self as kernels, Index, StridedCopy, concat_part, first_outside, gather, split_part};
use ovir_kernels::parallel::nanoseconds_for_bytes;
use ovir_ops::common::movement::View;
use ovir_ops::detection::reorg_yolo::ReorgYolo;
use ovir_ops::matrix::einsum::Einsum;
use ovir_ops::movement::{
    broadcast::Broadcast,
    concat::Concat,
    depth_to_space::DepthToSpace,
    gather::{Gather, GatherGeometry, out_of_range},
    pad::{Pad, PadMode},
    roll::Roll,
    shuffle_channels::ShuffleChannels,
    slice::Slice,
    space_to_depth::SpaceToDepth,
    split::Split,
    strided_slice::StridedSlice,
    tile::Tile,
    transpose::Transpose,
    variadic_split::VariadicSplit,
};
use ovir_ops::{Blame, OpError, OpResult, Operation, integers_of_view};
use ovir_tensor::{ElementType, Shape, SmallVec, TensorView};

use super::layout::{around, axis_of};
use super::parts::kernel_error;
use super::settled::Settled;
use super::tabled::table;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Transpose with a constant order.
struct TransposeKernel {
    order: SmallVec<[i64; 8]>,
    width: usize,
    /// The way of the elements.
    settled: Settled<StridedCopy>,
}

/// DepthToSpace, SpaceToDepth, ReorgYolo and ShuffleChannels.
struct ViewKernel {
    operation: Arc<dyn Operation>,
    width: usize,
}

/// Slice, StridedSlice, Broadcast and Tile, whose bounds, shapes and repeats are read when they run.
struct GivenViewKernel {
    operation: Arc<dyn Operation>,
    width: usize,
}

struct ConcatKernel {
    axis: i64,
    width: usize,
}

/// Split and VariadicSplit along a constant axis.
struct SplitKernel {
    axis: i64,
    width: usize,
}

/// Gather along a constant axis.
struct GatherKernel {
    operation: Gather,
    axis: i64,
    index_type: ElementType,
    width: usize,
    settled: Settled<GatherGeometry>,
}

/// Pad.
struct PadKernel {
    mode: kernels::PadMode,
    /// What comes before and after each axis; `None` if the inputs tell when it runs.
    pads: Option<[Pads; 2]>,
    width: usize,
}

/// Roll, whose shifts and axes are read when it runs.
struct RollKernel {
    width: usize,
}

type Pads = SmallVec<[isize; 8]>;

/// Claims movements.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let width = context.inputs.first()?.element_type.byte_width()?;
    let kernel = kernel(context, width)?;
    let table = if moves_one_input(&*context.node.operation) {
        table(context, width, |context| self::kernel(context, size_of::<u32>()))
    } else {
        None
    };
    Some(Claim { kernel: table.unwrap_or(kernel), packed_inputs: SmallVec::new() })
}

/// Whether all elements of the outputs are those of the first input: parts are joined to others, and what comes in between the
/// elements of data that are padded has no place among them.
fn moves_one_input(operation: &dyn Operation) -> bool {
    let is_filled = |pad: &Pad| pad.attributes.pad_mode == PadMode::Constant;
    operation.downcast_ref::<Concat>().is_none() && !operation.downcast_ref::<Pad>().is_some_and(is_filled)
}

/// A kernel that moves elements of `width` bytes.
fn kernel(context: &mut ClaimContext<'_>, width: usize) -> Option<Box<dyn Kernel>> {
    let operation = &*context.node.operation;
    let element_type = context.inputs.first()?.element_type;
    let integers = |port: usize| context.inputs.get(port)?.integers();
    Some(if operation.downcast_ref::<Transpose>().is_some() {
        Box::new(TransposeKernel::of(integers(1)?, width, context))
    } else if let Some(order) = permutation(operation) {
        Box::new(TransposeKernel::of(order, width, context))
    } else if is_view(operation) {
        Box::new(ViewKernel { operation: Arc::clone(&context.node.operation), width })
    } else if takes_view(operation) {
        Box::new(GivenViewKernel { operation: Arc::clone(&context.node.operation), width })
    } else if let Some(concat) = operation.downcast_ref::<Concat>() {
        let same = context.inputs.iter().all(|facts| facts.element_type == element_type);
        same.then_some(())?;
        Box::new(ConcatKernel { axis: concat.attributes.axis, width })
    } else if operation.downcast_ref::<Split>().is_some() || operation.downcast_ref::<VariadicSplit>().is_some() {
        Box::new(SplitKernel { axis: *integers(1)?.first()?, width })
    } else if let Some(pad) = operation.downcast_ref::<Pad>() {
        Box::new(PadKernel::of(pad, integers(1).as_deref(), integers(2).as_deref(), width)?)
    } else if operation.downcast_ref::<Roll>().is_some() {
        Box::new(RollKernel { width })
    } else {
        let gather = operation.downcast_ref::<Gather>()?;
        let index_type = context.inputs.get(1)?.element_type;
        matches!(index_type, ElementType::I32 | ElementType::I64).then_some(())?;
        let operation = Gather { class_version: gather.class_version, attributes: gather.attributes.clone() };
        let axis = *integers(2)?.first()?;
        let settled = Settled::new(context, 2, |shapes| gather_geometry(&operation, axis, shapes));
        Box::new(GatherKernel { operation, axis, index_type, width, settled })
    })
}

/// The geometry of a Gather, if it leads to the output.
fn gather_geometry(operation: &Gather, axis: i64, shapes: &StepShapes<'_>) -> Option<GatherGeometry> {
    let ([data, indices, ..], [output]) = (shapes.inputs, shapes.outputs) else { return None };
    operation.geometry(data, indices, axis).ok().filter(|geometry| geometry.shape == **output)
}

/// The order of axes of an Einsum that only transposes.
fn permutation(operation: &dyn Operation) -> Option<SmallVec<[i64; 8]>> {
    let equation = &operation.downcast_ref::<Einsum>()?.attributes.equation;
    let text: String = equation.chars().filter(|letter| !letter.is_whitespace()).collect();
    let (input, output) = text.split_once("->")?;
    let is_plain = |labels: &str| {
        let distinct = labels.char_indices().all(|(at, label)| labels.find(label) == Some(at));
        distinct && labels.chars().all(|label| label.is_ascii_alphabetic())
    };
    let fits = is_plain(input) && is_plain(output) && input.len() == output.len();
    fits.then(|| output.chars().map(|label| input.find(label).map(|at| at as i64)).collect())?
}

fn is_view(operation: &dyn Operation) -> bool {
    operation.downcast_ref::<DepthToSpace>().is_some()
        || operation.downcast_ref::<SpaceToDepth>().is_some()
        || operation.downcast_ref::<ReorgYolo>().is_some()
        || operation.downcast_ref::<ShuffleChannels>().is_some()
}

fn takes_view(operation: &dyn Operation) -> bool {
    operation.downcast_ref::<Slice>().is_some()
        || operation.downcast_ref::<StridedSlice>().is_some()
        || operation.downcast_ref::<Broadcast>().is_some()
        || operation.downcast_ref::<Tile>().is_some()
}

/// The output of a layer that [`takes_view`], as its elements lie in the data.
fn given_view(operation: &dyn Operation, data: &Shape, parameters: &[TensorView<'_>]) -> OpResult<View> {
    if let Some(found) = operation.downcast_ref::<Slice>() {
        found.view(data, parameters)
    } else if let Some(found) = operation.downcast_ref::<StridedSlice>() {
        found.view(data, parameters)
    } else if let Some(found) = operation.downcast_ref::<Broadcast>() {
        found.view_of(data, parameters)
    } else {
        operation.downcast_ref::<Tile>().ok_or_else(misfit)?.view(data, parameters)
    }
}

pub(super) fn output_nanoseconds(shapes: &StepShapes<'_>, width: usize) -> u64 {
    let elements: usize = shapes.outputs.iter().map(|s| s.elements()).sum();
    nanoseconds_for_bytes(elements.saturating_mul(2 * width))
}

pub(super) fn misfit() -> OpError {
    OpError::shape(Blame::Input(0), "the kernel does not fit the data")
}

impl ViewKernel {
    fn copy(&self, data: &Shape, output: &Shape) -> Option<StridedCopy> {
        let operation = &self.operation;
        let rank = data.rank();
        if rank < 3 || data.elements() != output.elements() || output.elements() == 0 || output.rank() != rank {
            return None;
        }
        let view = if let Some(found) = operation.downcast_ref::<DepthToSpace>() {
            found.view(data, output.clone())
        } else if let Some(found) = operation.downcast_ref::<SpaceToDepth>() {
            found.view(data, output.clone())
        } else if let Some(found) = operation.downcast_ref::<ReorgYolo>() {
            found.view(data, output.clone())?
        } else {
            let found = operation.downcast_ref::<ShuffleChannels>()?;
            let axis = axis_of(found.attributes.axis, rank)?;
            let group = usize::try_from(found.attributes.group).ok()?;
            data[axis].is_multiple_of(group).then(|| found.view(data, axis))?
        };
        StridedCopy::gather_strided(&view.walk, &view.from.strides, view.from.offset, data.elements()).ok()
    }
}

impl Kernel for ViewKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data], [output]) if self.copy(data, output).is_some())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        2 * output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data], [output]) = (io.inputs, io.outputs) else { return Err(misfit()) };
        let copy = self.copy(data.shape(), output.shape()).ok_or_else(misfit)?;
        copy.run(self.width, data.bytes(), output.bytes_mut()).map_err(kernel_error)
    }
}

impl Kernel for GivenViewKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.len() > 1 && shapes.outputs.len() == 1
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, parameters @ ..], [output]) = (io.inputs, &mut *io.outputs) else { return Err(misfit()) };
        let view = given_view(&*self.operation, data.shape(), parameters)?;
        if view.shape != *output.shape() {
            return Err(misfit());
        }
        match StridedCopy::gather_strided(&view.walk, &view.from.strides, view.from.offset, data.shape().elements()) {
            Ok(copy) => copy.run(self.width, data.bytes(), output.bytes_mut()).map_err(kernel_error),
            // More axes than the copy has, such as those of a Tile of eight axes.
            Err(_) => io.evaluate(&*self.operation),
        }
    }
}

/// The most axes that are shifted by whole parts, two of each.
const MOST_ROLLED: usize = 4;

impl RollKernel {
    /// The copies of the parts that the shifts cut the data into; `None` for more axes than a copy has.
    fn parts(shape: &Shape, shifts: &[usize]) -> Option<SmallVec<[StridedCopy; 4]>> {
        let (strides, elements) = (shape.strides(), shape.elements());
        let rolled: SmallVec<[usize; 8]> = (0..shape.rank()).filter(|axis| shifts[*axis] > 0).collect();
        (rolled.len() <= MOST_ROLLED).then_some(())?;
        let part = |number: usize| {
            let mut axes: SmallVec<[(usize, isize, isize); 8]> = shape
                .iter()
                .zip(strides.iter())
                .map(|(size, stride)| (*size, *stride as isize, *stride as isize))
                .collect();
            let (mut from, mut to) = (0, 0);
            for (bit, axis) in rolled.iter().enumerate() {
                let (shift, rest) = (shifts[*axis], shape[*axis] - shifts[*axis]);
                if number >> bit & 1 == 0 {
                    axes[*axis].0 = rest;
                    to += shift * strides[*axis];
                } else {
                    axes[*axis].0 = shift;
                    from += rest * strides[*axis];
                }
            }
            StridedCopy::new(&axes, from, to, elements, elements).ok()
        };
        (0..1 << rolled.len()).map(part).collect()
    }
}

impl Kernel for RollKernel {
    fn checks_values(&self, _shapes: &StepShapes<'_>) -> bool {
        true
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        matches!((shapes.inputs, shapes.outputs), ([data, _, _], [output]) if data == output)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, shifts, axes], [output]) = (io.inputs, &mut *io.outputs) else { return Err(misfit()) };
        let integers = |view| integers_of_view(view).ok_or_else(misfit);
        let shifts = Roll::shifts(data.shape(), &integers(*shifts)?, &integers(*axes)?)?;
        let Some(parts) = RollKernel::parts(data.shape(), &shifts) else { return io.evaluate(&Roll) };
        for part in parts {
            part.run(self.width, data.bytes(), output.bytes_mut()).map_err(kernel_error)?;
        }
        Ok(())
    }
}

impl TransposeKernel {
    fn of(order: SmallVec<[i64; 8]>, width: usize, context: &ClaimContext<'_>) -> TransposeKernel {
        let settled = Settled::new(context, 1, |shapes| transposition(&order, shapes.inputs.first()?));
        TransposeKernel { order, width, settled }
    }
}

/// The way of the elements of a Transpose.
fn transposition(order: &[i64], shape: &Shape) -> Option<StridedCopy> {
    let rank = shape.rank();
    let mut axes: SmallVec<[usize; 8]> = order.iter().filter_map(|axis| axis_of(*axis, rank)).collect();
    if order.is_empty() {
        // No order at all reverses the axes.
        axes = (0..rank).rev().collect();
    }
    (axes.len() == rank).then(|| StridedCopy::transpose(shape, &axes).ok())?
}

impl Kernel for TransposeKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.first().is_some_and(|shape| transposition(&self.order, shape).is_some())
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        2 * output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[0];
        let copy = match self.settled.get(io.inputs) {
            Some(copy) => copy,
            None => &transposition(&self.order, data.shape()).ok_or_else(misfit)?,
        };
        copy.run(self.width, data.bytes(), output.bytes_mut()).map_err(kernel_error)
    }
}

impl Kernel for ConcatKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let [output] = shapes.outputs else { return false };
        let Some(axis) = axis_of(self.axis, output.rank()) else { return false };
        let same_rank = shapes.inputs.iter().all(|input| input.rank() == output.rank());
        same_rank && shapes.inputs.iter().map(|input| input[axis]).sum::<usize>() == output[axis]
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let axis = axis_of(self.axis, output.shape().rank()).ok_or_else(misfit)?;
        let [outer, whole, inner] = around(output.shape(), axis).ok_or_else(misfit)?;
        let target = output.bytes_mut();
        let mut start = 0;
        for input in io.inputs {
            let part = input.shape()[axis];
            concat_part(outer, inner * self.width, part, whole, start, input.bytes(), target).map_err(kernel_error)?;
            start += part;
        }
        Ok(())
    }
}

impl Kernel for SplitKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let Some(data) = shapes.inputs.first() else { return false };
        let Some(axis) = axis_of(self.axis, data.rank()) else { return false };
        let same_rank = shapes.outputs.iter().all(|output| output.rank() == data.rank());
        same_rank && shapes.outputs.iter().map(|output| output[axis]).sum::<usize>() <= data[axis]
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let data = &io.inputs[0];
        let axis = axis_of(self.axis, data.shape().rank()).ok_or_else(misfit)?;
        let [outer, whole, inner] = around(data.shape(), axis).ok_or_else(misfit)?;
        let mut start = 0;
        for output in io.outputs {
            let part = output.shape()[axis];
            let target = output.bytes_mut();
            split_part(outer, inner * self.width, whole, part, start, data.bytes(), target).map_err(kernel_error)?;
            start += part;
        }
        Ok(())
    }
}

impl PadKernel {
    fn of(pad: &Pad, begin: Option<&[i64]>, end: Option<&[i64]>, width: usize) -> Option<PadKernel> {
        let mode = match pad.attributes.pad_mode {
            PadMode::Constant => kernels::PadMode::Constant,
            PadMode::Edge => kernels::PadMode::Edge,
            PadMode::Reflect => kernels::PadMode::Reflect,
            PadMode::Symmetric => kernels::PadMode::Symmetric,
        };
        let (Some(begin), Some(end)) = (begin, end) else {
            let is_constant = pad.attributes.pad_mode == PadMode::Constant;
            return is_constant.then_some(PadKernel { mode, pads: None, width });
        };
        // Cropping one end while the other one is mirrored has rules of its own, which the reference knows.
        let is_plain = begin.iter().chain(end).all(|pad| *pad >= 0);
        is_plain.then_some(PadKernel { mode, pads: Some([sizes(begin)?, sizes(end)?]), width })
    }
}

fn sizes(pads: &[i64]) -> Option<Pads> {
    pads.iter().map(|pad| isize::try_from(*pad).ok()).collect()
}

/// Whether data with these pads have the shape of the output.
fn is_padded([begin, end]: &[Pads; 2], data: &Shape, output: &Shape) -> bool {
    let padded = |axis: usize| data[axis].checked_add_signed(begin[axis])?.checked_add_signed(end[axis]);
    let rank = data.rank();
    let has_rank = begin.len() == rank && end.len() == rank && output.rank() == rank;
    has_rank && (0..rank).all(|axis| padded(axis) == Some(output[axis]))
}

impl Kernel for PadKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([data, ..], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        let fits = |pads: &[Pads; 2]| is_padded(pads, data, output);
        let is_sized = (1..=8).contains(&data.rank()) && output.rank() == data.rank() && data.elements() > 0;
        is_sized && self.pads.as_ref().is_none_or(fits)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let read = |port: usize| sizes(&integers_of_view(*io.inputs.get(port)?)?);
        let told = match &self.pads {
            Some(_) => None,
            None => Some([read(1).ok_or_else(misfit)?, read(2).ok_or_else(misfit)?]),
        };
        let pads = self.pads.as_ref().or(told.as_ref()).ok_or_else(misfit)?;
        if !is_padded(pads, io.inputs[0].shape(), output.shape()) {
            return Err(misfit());
        }
        let (data, zero) = (&io.inputs[0], [0u8; 8]);
        let value = match io.inputs.get(3) {
            Some(value) => value.bytes(),
            None => zero.get(..self.width).unwrap_or_default(),
        };
        let [begin, end] = pads;
        kernels::pad(self.mode, self.width, data.shape(), begin, end, value, data.bytes(), output.bytes_mut())
            .map_err(kernel_error)
    }
}

impl GatherKernel {
    fn gather<I: Index>(
        &self,
        data: &TensorView<'_>,
        indices: &[I],
        value: fn(I) -> i64,
        output: &mut [u8],
        geometry: &GatherGeometry,
    ) -> OpResult {
        let inner = geometry.inner * self.width;
        let sizes = [geometry.batches, geometry.outer, geometry.size, geometry.indices];
        let Err(error) = gather(sizes, inner, data.bytes(), indices, output) else { return Ok(()) };
        let Some(position) = first_outside(indices, geometry.size) else { return Err(kernel_error(error)) };
        if self.operation.class_version < 8 {
            return Err(out_of_range(value(indices[position]), position, geometry.size as i64));
        }
        self.gather_with_zeros(data.bytes(), indices, output, geometry);
        Ok(())
    }

    /// From version 8 on an index out of range picks zeros.
    fn gather_with_zeros<I: Index>(&self, data: &[u8], indices: &[I], output: &mut [u8], geometry: &GatherGeometry) {
        let inner = geometry.inner * self.width;
        if inner == 0 || geometry.indices == 0 {
            return;
        }
        for (row, target) in output.chunks_mut(inner).enumerate() {
            let (block, place) = (row / geometry.indices, row % geometry.indices);
            let batch = block.checked_div(geometry.outer).unwrap_or(0);
            match indices[batch * geometry.indices + place].position(geometry.size) {
                Some(at) => target.copy_from_slice(&data[(block * geometry.size + at) * inner..][..inner]),
                None => target.fill(0),
            }
        }
    }
}

impl Kernel for GatherKernel {
    fn checks_values(&self, shapes: &StepShapes<'_>) -> bool {
        shapes.inputs.get(1).is_none_or(|indices| indices.elements() > 0)
    }

    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        gather_geometry(&self.operation, self.axis, shapes).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        output_nanoseconds(shapes, self.width)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let (data, indices) = (&io.inputs[0], &io.inputs[1]);
        let geometry = match self.settled.get(io.inputs) {
            Some(geometry) => geometry,
            None => &self.operation.geometry(data.shape(), indices.shape(), self.axis)?,
        };
        let target = output.bytes_mut();
        match self.index_type {
            ElementType::I32 => self.gather(data, indices.slice::<i32>()?, i64::from, target, geometry),
            _ => self.gather(data, indices.slice::<i64>()?, |index| index, target, geometry),
        }
    }
}
