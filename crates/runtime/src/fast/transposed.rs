//! Transposed convolutions with constant filters, f32.

use std::sync::Arc;

use ovir_kernels::KernelError;
use ovir_kernels::convolution as kernels;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_ops::common::convolution::{ConvolutionGeometry, TransposedAttributes};
use ovir_ops::convolution::{
    convolution_backprop_data::ConvolutionBackpropData, group_convolution_backprop_data::GroupConvolutionBackpropData,
};
use ovir_ops::{Blame, OpError, OpResult, Operation};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::parts::{EpilogueParts, Parts, kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// A transposed convolution whose filter is packed.
struct TransposedKernel {
    isa: Isa,
    form: Form,
    filter: Shape,
    output_shape: Option<SmallVec<[i64; 8]>>,
    weights: Arc<kernels::PackedTransposedConvolution>,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// How the geometry is found.
enum Form {
    Plain(ConvolutionBackpropData),
    Grouped(GroupConvolutionBackpropData),
}

impl Form {
    fn of(operation: &dyn Operation) -> Option<Form> {
        if let Some(plain) = operation.downcast_ref::<ConvolutionBackpropData>() {
            return Some(Form::Plain(ConvolutionBackpropData { attributes: plain.attributes.clone() }));
        }
        let grouped = operation.downcast_ref::<GroupConvolutionBackpropData>()?;
        Some(Form::Grouped(GroupConvolutionBackpropData { attributes: grouped.attributes.clone() }))
    }

    fn geometry(&self, data: &Shape, filter: &Shape, output: Option<&[i64]>) -> OpResult<ConvolutionGeometry> {
        match self {
            Form::Plain(operation) => operation.geometry(data, filter, output),
            Form::Grouped(operation) => operation.geometry(data, filter, output),
        }
    }

    fn attributes(&self) -> &TransposedAttributes {
        match self {
            Form::Plain(operation) => &operation.attributes,
            Form::Grouped(operation) => &operation.attributes,
        }
    }
}

/// Claims transposed convolutions with a constant f32 filter and, where it is given, a constant output shape.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
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
    if filter.element_type() != ElementType::F32 || filter.shape().contains(&0) {
        return None;
    }
    let filter_shape = filter.shape().clone();
    let (groups, inputs, outputs, kernel) = match (&form, &filter_shape[..]) {
        (Form::Plain(_), [inputs, outputs, kernel @ ..]) => (1, *inputs, *outputs, kernel),
        (Form::Grouped(_), [groups, inputs, outputs, kernel @ ..]) => (*groups, *inputs, *outputs, kernel),
        _ => return None,
    };
    let (channels_in, channels_out) = (groups.checked_mul(inputs)?, groups.checked_mul(outputs)?);
    let epilogue = parts.epilogue(context, channels_out)?;
    let (stride, dilation) = (spatial(&form.attributes().strides)?, spatial(&form.attributes().dilations)?);
    let mut taps = [1; 3];
    for (at, size) in kernel.iter().enumerate() {
        *taps.get_mut((3usize.checked_sub(kernel.len())?) + at)? = *size;
    }
    let any = kernels::TransposedConvolutionGeometry::new(
        1,
        groups,
        channels_in,
        channels_out,
        [1; 3],
        taps,
        stride,
        dilation,
        [0; 3],
        [1; 3],
    )
    .ok()?;
    let isa = isa::detect();
    let values = filter.aligned().ok()?;
    let format = format!("transposed convolution {filter_shape} {groups} {stride:?} {dilation:?}");
    let key = context.key(filter_port, &filter);
    let weights = context
        .packed
        .get(key, format, || kernels::PackedTransposedConvolution::pack(isa, &any, values.slice::<f32>().ok()?).ok())?;
    let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[filter_port]);
    packed_inputs.extend(parts.packed_ports(&epilogue));
    let kernel = TransposedKernel { isa, form, filter: filter_shape, output_shape, weights, epilogue, data_port };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
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
fn kernel_geometry(geometry: &ConvolutionGeometry) -> Result<kernels::TransposedConvolutionGeometry, KernelError> {
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
        self.of_shapes(shapes).map_or(0, |g| 4 * kernels::transposed_convolution_scratch_len(&g))
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
        let residual = match self.epilogue.residual {
            Some(port) => Some(io.inputs[port].slice::<f32>()?),
            None => None,
        };
        let epilogue = kernels::ConvolutionEpilogue {
            bias: self.epilogue.bias.as_deref(),
            residual,
            accumulates: false,
            activation: self.epilogue.activation.view(true),
        };
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        let scratch = scratch_f32(io.scratch);
        kernels::transposed_convolution(self.isa, &geometry, &self.weights, values, target, &epilogue, scratch)
            .map_err(kernel_error)
    }
}
