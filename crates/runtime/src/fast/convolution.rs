//! Convolutions of plain f32 data.

use std::sync::Arc;

use ovir_kernels::convolution as kernels;
use ovir_kernels::isa::{self, Isa};
use ovir_ops::common::convolution::ConvolutionGeometry;
use ovir_ops::convolution::{convolution::Convolution, group_convolution::GroupConvolution};
use ovir_ops::{OpResult, Operation};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::parts::{EpilogueParts, Parts, kernel_error};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// A convolution of plain data.
struct ConvolutionKernel {
    isa: Isa,
    form: Form,
    filter: Filter,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// The filter of a convolution.
enum Filter {
    /// A constant, packed, and its shape.
    Packed(Shape, Arc<kernels::PackedConvolution>),
    /// The value of a port.
    Port(usize),
}

/// How the geometry is found.
pub(crate) enum Form {
    /// Convolution.
    Plain(Convolution),
    /// GroupConvolution.
    Grouped(GroupConvolution),
}

impl Form {
    /// The form of a convolution.
    pub fn of(operation: &dyn Operation) -> Option<Form> {
        if let Some(plain) = operation.downcast_ref::<Convolution>() {
            return Some(Form::Plain(Convolution { attributes: plain.attributes.clone() }));
        }
        let grouped = operation.downcast_ref::<GroupConvolution>()?;
        Some(Form::Grouped(GroupConvolution { attributes: grouped.attributes.clone() }))
    }

    /// The channels that a filter gives.
    pub fn output_channels(&self, filter: &Shape) -> Option<usize> {
        match self {
            Form::Plain(_) => filter.first().copied(),
            Form::Grouped(_) => filter.first()?.checked_mul(*filter.get(1)?),
        }
    }

    /// The steps from one window to the next.
    pub fn strides(&self) -> &[i64] {
        match self {
            Form::Plain(operation) => &operation.attributes.strides,
            Form::Grouped(operation) => &operation.attributes.strides,
        }
    }

    /// The geometry for the shapes at hand.
    pub fn geometry(&self, data: &Shape, filter: &Shape) -> OpResult<ConvolutionGeometry> {
        match self {
            Form::Plain(operation) => operation.geometry(data, filter),
            Form::Grouped(operation) => operation.geometry(data, filter),
        }
    }
}

/// Claims convolutions with an f32 filter.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let parts = Parts::of(context.node)?;
    let form = Form::of(parts.root)?;
    let (data_port, filter_port) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    if context.inputs.get(data_port)?.element_type != ElementType::F32 {
        return None;
    }
    let isa = isa::detect();
    let Some(filter) = (context.constant)(filter_port) else {
        let facts = context.inputs.get(filter_port)?;
        let channels = form.output_channels(&facts.shape.to_shape()?)?;
        (facts.element_type == ElementType::F32).then_some(())?;
        let epilogue = parts.epilogue(context, channels)?;
        let packed_inputs = parts.packed_ports(&epilogue).into_iter().collect();
        let kernel = ConvolutionKernel { isa, form, filter: Filter::Port(filter_port), epilogue, data_port };
        return Some(Claim { kernel: Box::new(kernel), packed_inputs });
    };
    if filter.element_type() != ElementType::F32 {
        return None;
    }
    let filter_shape = filter.shape().clone();
    let epilogue = parts.epilogue(context, form.output_channels(&filter_shape)?)?;
    let any_size = smallest_data(&form, &filter_shape)?;
    let geometry = kernel_geometry(&form.geometry(&any_size, &filter_shape).ok()?).ok()?;
    let values = filter.aligned().ok()?;
    let key = context.key(filter_port, &filter);
    let weights = context.packed.get(key, format!("convolution {filter_shape}"), || {
        kernels::PackedConvolution::pack(isa, &geometry, values.slice::<f32>().ok()?).ok()
    })?;
    let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[filter_port]);
    packed_inputs.extend(parts.packed_ports(&epilogue));
    let kernel = ConvolutionKernel { isa, form, filter: Filter::Packed(filter_shape, weights), epilogue, data_port };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// Packing depends on channels and filter only, so any data that the filter fits will do.
pub(crate) fn smallest_data(form: &Form, filter: &Shape) -> Option<Shape> {
    let (channels, spatial) = match form {
        Form::Plain(_) => (*filter.get(1)?, filter.get(2..)?),
        Form::Grouped(_) => (filter.first()? * filter.get(2)?, filter.get(3..)?),
    };
    let mut shape = Shape::from_slice(&[1, channels]);
    for size in spatial {
        // Large enough for every dilation in use.
        shape.push(size.checked_mul(64)?.max(64));
    }
    Some(shape)
}

/// The geometry as the kernels take it: three spatial axes.
pub(crate) fn kernel_geometry(
    geometry: &ConvolutionGeometry,
) -> Result<kernels::ConvolutionGeometry, ovir_kernels::KernelError> {
    let lead = 3 - geometry.axes.len().min(3);
    let mut arrays = [[1usize; 3]; 4];
    let mut pads = [[0usize; 3]; 2];
    for (i, axis) in geometry.axes.iter().enumerate() {
        let at = lead + i;
        arrays[0][at] = axis.input;
        arrays[1][at] = axis.kernel;
        arrays[2][at] = axis.stride;
        arrays[3][at] = axis.dilation;
        pads[0][at] = usize::try_from(axis.pad_begin).unwrap_or(usize::MAX);
        pads[1][at] = usize::try_from(axis.pad_end).unwrap_or(usize::MAX);
    }
    let [input, kernel, stride, dilation] = arrays;
    kernels::ConvolutionGeometry::new(
        geometry.batch,
        geometry.groups,
        geometry.groups * geometry.input_channels,
        geometry.groups * geometry.output_channels,
        input,
        kernel,
        stride,
        dilation,
        pads[0],
        pads[1],
    )
}

impl ConvolutionKernel {
    fn geometry(&self, shapes: &StepShapes<'_>) -> Option<kernels::ConvolutionGeometry> {
        let data = shapes.inputs.get(self.data_port)?;
        let filter = match &self.filter {
            Filter::Packed(shape, _) => shape,
            Filter::Port(port) => shapes.inputs.get(*port)?,
        };
        let geometry = self.form.geometry(data, filter).ok()?;
        let kernel = kernel_geometry(&geometry).ok()?;
        let same_output = shapes.outputs.first()?.elements() == kernel.output_len();
        let same_residual = self
            .epilogue
            .residual
            .is_none_or(|port| shapes.inputs.get(port).is_some_and(|s| Some(*s) == shapes.outputs.first().copied()));
        (same_output && same_residual).then_some(kernel)
    }
}

impl Kernel for ConvolutionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.geometry(shapes).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.geometry(shapes).map_or(0, |g| g.plain_nanoseconds())
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let data = &io.inputs[self.data_port];
        let filter = match &self.filter {
            Filter::Packed(shape, _) => shape,
            Filter::Port(port) => io.inputs[*port].shape(),
        };
        let geometry = kernel_geometry(&self.form.geometry(data.shape(), filter)?).map_err(kernel_error)?;
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
        let (isa, values, target) = (self.isa, data.slice::<f32>()?, output.slice_mut::<f32>()?);
        match &self.filter {
            Filter::Packed(_, weights) => kernels::convolution(isa, &geometry, weights, values, target, &epilogue),
            Filter::Port(port) => {
                let weights = io.inputs[*port].slice::<f32>()?;
                kernels::unpacked_convolution(isa, &geometry, weights, values, target, &epilogue)
            }
        }
        .map_err(kernel_error)
    }
}
