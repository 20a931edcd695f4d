//! Transposed convolutions with constant filters, f32.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::KernelError;
use ovir_kernels::blocked::{BlockedTransposed, NarrowTransposed, blocked_transposed, narrow_transposed};
use ovir_kernels::convolution as kernels;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_ops::common::convolution::{ConvolutionGeometry, TransposedAttributes};
use ovir_ops::convolution::{
    convolution_backprop_data::ConvolutionBackpropData, group_convolution_backprop_data::GroupConvolutionBackpropData,
};
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec};

use crate::layout::{Layout, nominal_elements};

use super::blocked::{Candidate, NARROW_SUM, NARROW_TAP, blocked_flop, constant_filter, plain_flop};
use super::parts::{EpilogueParts, Parts, kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Nanoseconds an element takes from its phase to its place in a plain output, and once more when it is finished there.
const SPREAD: f64 = 1.25;

/// A transposed convolution whose filter is packed.
struct TransposedKernel {
    isa: Isa,
    form: Form,
    filter: Shape,
    output_shape: Option<SmallVec<[i64; 8]>>,
    weights: Weights,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// Packed filters, one form for each way.
enum Weights {
    Plain(Arc<kernels::PackedTransposedConvolution>),
    Blocked(Arc<BlockedTransposed>),
    Narrow(Arc<NarrowTransposed>),
}

/// How a transposed convolution runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From plain values into plain ones.
    Plain,
    /// From blocks into blocks.
    Blocked,
    /// From blocks into few plain channels.
    Narrow,
}

/// How the geometry is found.
pub(super) enum Form {
    Plain(ConvolutionBackpropData),
    Grouped(GroupConvolutionBackpropData),
}

impl Form {
    pub fn of(operation: &dyn Operation) -> Option<Form> {
        if let Some(plain) = operation.downcast_ref::<ConvolutionBackpropData>() {
            return Some(Form::Plain(ConvolutionBackpropData { attributes: plain.attributes.clone() }));
        }
        let grouped = operation.downcast_ref::<GroupConvolutionBackpropData>()?;
        Some(Form::Grouped(GroupConvolutionBackpropData { attributes: grouped.attributes.clone() }))
    }

    pub fn geometry(&self, data: &Shape, filter: &Shape, output: Option<&[i64]>) -> OpResult<ConvolutionGeometry> {
        match self {
            Form::Plain(operation) => operation.geometry(data, filter, output),
            Form::Grouped(operation) => operation.geometry(data, filter, output),
        }
    }

    pub fn attributes(&self) -> &TransposedAttributes {
        match self {
            Form::Plain(operation) => &operation.attributes,
            Form::Grouped(operation) => &operation.attributes,
        }
    }
}

/// Claims transposed convolutions with a constant f32 filter and, where it is given, a constant output shape.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    claim_way(context, |_, _, _| Some(Way::Plain))
}

/// The same where the plan has put the layer on blocks.
pub(super) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    claim_way(context, blocked_way)
}

fn claim_way(
    context: &mut ClaimContext<'_>,
    way: impl Fn(&kernels::TransposedConvolutionGeometry, usize, bool) -> Option<Way>,
) -> Option<Claim> {
    let parts = Parts::of(context.node)?;
    let form = Form::of(parts.root)?;
    let (data_port, filter_port) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    if context.inputs.get(data_port)?.element_type != ElementType::F32 {
        return None;
    }
    let output_shape = match parts.inputs.get(2) {
        Some(port) => Some(context.inputs.get(*port)?.integers()?),
        None => None,
    };
    let filter = (context.constant)(filter_port)?;
    if filter.element_type() != ElementType::F32 {
        return None;
    }
    let filter_shape = filter.shape().clone();
    let (any, [groups, _, outputs]) = smallest_geometry(&form, &filter_shape)?;
    let epilogue = parts.epilogue(context, groups.checked_mul(outputs)?)?;
    let isa = isa::detect();
    let values = filter.aligned().ok()?;
    let way = way(&any, form.attributes().strides.len(), epilogue.residual.is_some())?;
    let attributes = form.attributes();
    let steps = (&attributes.strides, &attributes.dilations);
    let format = format!("{way:?} transposed convolution {filter_shape} {groups} {steps:?}");
    let key = context.key(filter_port, &filter);
    let weights = match way {
        Way::Plain => Weights::Plain(context.packed.get(key, format, || {
            kernels::PackedTransposedConvolution::pack(isa, &any, values.slice::<f32>().ok()?).ok()
        })?),
        Way::Blocked => Weights::Blocked(
            context.packed.get(key, format, || BlockedTransposed::pack(&any, values.slice::<f32>().ok()?).ok())?,
        ),
        Way::Narrow => Weights::Narrow(
            context.packed.get(key, format, || NarrowTransposed::pack(&any, values.slice::<f32>().ok()?).ok())?,
        ),
    };
    let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[filter_port]);
    packed_inputs.extend(parts.packed_ports(&epilogue));
    let kernel = TransposedKernel { isa, form, filter: filter_shape, output_shape, weights, epilogue, data_port };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// Packing depends on channels, filter and steps only, so a geometry of one position will do; and groups, and the input and
/// output channels of one.
pub(super) fn smallest_geometry(
    form: &Form,
    filter: &Shape,
) -> Option<(kernels::TransposedConvolutionGeometry, [usize; 3])> {
    let (groups, inputs, outputs, kernel) = match (form, &filter[..]) {
        (Form::Plain(_), [inputs, outputs, kernel @ ..]) => (1, *inputs, *outputs, kernel),
        (Form::Grouped(_), [groups, inputs, outputs, kernel @ ..]) => (*groups, *inputs, *outputs, kernel),
        _ => return None,
    };
    if filter.contains(&0) {
        return None;
    }
    let (stride, dilation) = (spatial(&form.attributes().strides)?, spatial(&form.attributes().dilations)?);
    let mut taps = [1; 3];
    for (at, size) in kernel.iter().enumerate() {
        *taps.get_mut((3usize.checked_sub(kernel.len())?) + at)? = *size;
    }
    let geometry = kernels::TransposedConvolutionGeometry::new(
        1,
        groups,
        groups.checked_mul(inputs)?,
        groups.checked_mul(outputs)?,
        [1; 3],
        taps,
        stride,
        dilation,
        [0; 3],
        [1; 3],
    );
    Some((geometry.ok()?, [groups, inputs, outputs]))
}

/// How a transposed convolution of so many spatial axes runs on blocks, if it can.
fn blocked_way(geometry: &kernels::TransposedConvolutionGeometry, axes: usize, has_residual: bool) -> Option<Way> {
    // Whether the data are deep is not told by a kernel that is not.
    if !has_residual && axes < 3 && NarrowTransposed::check(geometry).is_ok() {
        return Some(Way::Narrow);
    }
    BlockedTransposed::check(geometry).is_ok().then_some(Way::Blocked)
}

/// A transposed convolution of lines, images or volumes that can run on blocks.
pub(super) fn candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<Candidate> {
    let parts = Parts::of(node)?;
    let form = Form::of(parts.root)?;
    let (data, filter_shape) = constant_filter(&parts, inputs, is_constant)?;
    let has_shape = match parts.inputs.get(2) {
        Some(port) => inputs.get(*port)?.integers().is_some(),
        None => true,
    };
    let (geometry, [groups, of_group, outputs_of_group]) = smallest_geometry(&form, &filter_shape)?;
    let facts = inputs.get(data)?;
    let dims = facts.shape.dims()?;
    let channels = groups * of_group;
    let fits = has_shape
        && facts.element_type == ElementType::F32
        && matches!(dims.len(), 3..=5)
        && dims[1].contains(channels)
        && super::blocked::channels(outputs.first()?) == Some(groups * outputs_of_group);
    let added = parts.residual.or(parts.bias.filter(|port| !is_constant(*port)));
    let way = blocked_way(&geometry, dims.len().saturating_sub(2), added.is_some()).filter(|_| fits)?;
    let mut layouts: SmallVec<[Layout; 4]> = SmallVec::from_elem(Layout::Plain, inputs.len());
    layouts[data] = Layout::Blocked;
    if let Some(port) = added {
        (!is_constant(port) && super::blocked::channels(inputs.get(port)?).is_some()).then_some(())?;
        layouts[port] = Layout::Blocked;
    }
    // The products that one output takes, in the mean of all phases.
    let strides: i64 = form.attributes().strides.iter().product();
    let taps = geometry.weights_len() as f64 / (groups * outputs_of_group) as f64 / strides.max(1) as f64;
    let elements = nominal_elements(&outputs.first()?.shape);
    let plain = 2.0 * taps * plain_flop(taps, outputs_of_group as f64) + if strides > 1 { SPREAD } else { 0.0 };
    let (own, output) = match way {
        Way::Narrow => (taps * NARROW_TAP + NARROW_SUM, Layout::Plain),
        _ => (2.0 * taps * blocked_flop(taps, groups * outputs_of_group), Layout::Blocked),
    };
    let gain = elements * (plain - own);
    Some(Candidate { output, gain, channels: Some(channels), ..Candidate::carrier(layouts) })
}

/// A list of numbers, one a spatial axis, as the kernels take it.
fn spatial(items: &[i64]) -> Option<[usize; 3]> {
    let mut sizes = [1; 3];
    for (at, item) in items.iter().enumerate() {
        *sizes.get_mut(3usize.checked_sub(items.len())? + at)? = usize::try_from(*item).ok()?;
    }
    Some(sizes)
}

impl TransposedKernel {
    fn geometry(&self, data: &Shape) -> OpResult<kernels::TransposedConvolutionGeometry> {
        let geometry = self.form.geometry(data, &self.filter, self.output_shape.as_deref())?;
        kernel_geometry(&geometry).map_err(kernel_error)
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<kernels::TransposedConvolutionGeometry> {
        let kernel = self.geometry(shapes.inputs.get(self.data_port)?).ok()?;
        let output = shapes.outputs.first()?;
        let same_residual =
            self.epilogue.residual.is_none_or(|port| shapes.inputs.get(port).is_some_and(|s| s == output));
        (output.elements() == kernel.output_len() && same_residual).then_some(kernel)
    }
}

/// The geometry as the kernels take it: three spatial axes.
pub(super) fn kernel_geometry(
    geometry: &ConvolutionGeometry,
) -> Result<kernels::TransposedConvolutionGeometry, KernelError> {
    let lead = 3 - geometry.axes.len().min(3);
    let mut arrays = [[1usize; 3]; 5];
    let mut pad_begin = [0usize; 3];
    for (i, axis) in geometry.axes.iter().enumerate() {
        let at = lead + i;
        // Of a transposed convolution the windows lie over the output.
        let sizes = [axis.output, axis.kernel, axis.stride, axis.dilation, axis.input];
        for (array, size) in arrays.iter_mut().zip(sizes) {
            array[at] = size;
        }
        pad_begin[at] = usize::try_from(axis.pad_begin).unwrap_or(usize::MAX);
    }
    let [input, kernel, stride, dilation, output] = arrays;
    kernels::TransposedConvolutionGeometry::new(
        geometry.batch,
        geometry.groups,
        geometry.groups * geometry.input_channels,
        geometry.groups * geometry.output_channels,
        input,
        kernel,
        stride,
        dilation,
        pad_begin,
        output,
    )
}

impl Kernel for TransposedKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.of_shapes(shapes).is_some()
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        match self.weights {
            Weights::Plain(_) => {
                self.of_shapes(shapes).map_or(0, |g| 4 * kernels::transposed_convolution_scratch_len(&g))
            }
            // Phases are written to where they belong.
            Weights::Blocked(_) | Weights::Narrow(_) => 0,
        }
    }

    fn in_place_inputs(&self, _shapes: &StepShapes<'_>) -> SmallVec<[usize; 2]> {
        match self.weights {
            Weights::Blocked(_) => self.epilogue.residual.into_iter().filter(|port| *port != self.data_port).collect(),
            Weights::Plain(_) | Weights::Narrow(_) => SmallVec::new(),
        }
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let positions = shapes.inputs.get(self.data_port).and_then(|s| s.get(2..)).map_or(0, |s| s.iter().product());
        let images = shapes.inputs.get(self.data_port).and_then(|s| s.first().copied()).unwrap_or(0);
        let taps = self.filter.elements() as u64;
        let positions: usize = positions;
        nanoseconds_for_flops(taps.saturating_mul(2).saturating_mul(positions as u64).saturating_mul(images as u64))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = io.inputs.get(self.data_port).ok_or_else(|| OpError::shape(Blame::Node, "the data are missing"))?;
        let geometry = self.geometry(data.shape())?;
        let residual = match self.epilogue.residual.filter(|port| io.in_place != Some(*port)) {
            Some(port) => Some(io.inputs[port].slice::<f32>()?),
            None => None,
        };
        let epilogue = kernels::ConvolutionEpilogue {
            bias: self.epilogue.bias.as_deref(),
            residual,
            accumulates: io.in_place.is_some(),
            activation: self.epilogue.activation.view(true),
        };
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        match &self.weights {
            Weights::Plain(weights) => {
                let scratch = scratch_f32(io.scratch);
                kernels::transposed_convolution(self.isa, &geometry, weights, values, target, &epilogue, scratch)
            }
            Weights::Blocked(weights) => blocked_transposed(self.isa, &geometry, weights, values, target, &epilogue),
            Weights::Narrow(weights) => narrow_transposed(self.isa, &geometry, weights, values, target, &epilogue),
        }
        .map_err(kernel_error)
    }
}
