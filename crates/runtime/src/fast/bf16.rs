//! Convolutions and products with constants whose operands are rounded to bf16, where a compiled model asks for it.

use std::sync::Arc;

use ovir_kernels::convolution::ConvolutionGeometry;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_kernels::quantized::{Bf16Epilogue, Bf16Weights, bf16_convolution, bf16_product, has_bf16, round_rows};
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, Tensor, TensorView};

use super::convolution::{Form, kernel_geometry};
use super::parts::{EpilogueParts, kernel_error};
use super::{ClaimContext, Kernel, StepIo, StepShapes};
use crate::precision::InferencePrecision;

/// A convolution on blocks.
struct Bf16Convolution {
    isa: Isa,
    form: Form,
    filter: Shape,
    weights: Arc<Bf16Weights>,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// A product with a constant right operand.
struct Bf16Product {
    isa: Isa,
    weights: Arc<Bf16Weights>,
    epilogue: EpilogueParts,
    data_port: usize,
}

/// Whether layers that can are computed in bf16.
pub(super) fn is_wanted(context: &ClaimContext<'_>) -> bool {
    context.precision == InferencePrecision::Bf16 && has_bf16(isa::detect())
}

/// A convolution that the plan has put on blocks, with its filter.
pub(super) fn convolution(
    context: &mut ClaimContext<'_>,
    form: Form,
    (data_port, filter_port): (usize, usize),
    filter: &Tensor,
    geometry: &ConvolutionGeometry,
    epilogue: EpilogueParts,
) -> Option<Box<dyn Kernel>> {
    let (key, shape) = (context.key(filter_port, filter), filter.shape().clone());
    let values = filter.aligned().ok()?;
    let format = format!("bf16 convolution {shape} {:?}", geometry.dilation());
    let weights = context
        .packed
        .get(key, format, || Bf16Weights::of_convolution(isa::detect(), geometry, values.slice::<f32>().ok()?).ok())?;
    Some(Box::new(Bf16Convolution { isa: isa::detect(), form, filter: shape, weights, epilogue, data_port }))
}

/// The constant of a product in bf16, of so many rows and columns with such strides; `None` where it is compressed or bf16 is not
/// wanted.
pub(super) fn matrix_weights(
    context: &mut ClaimContext<'_>,
    port: usize,
    size: [usize; 2],
    strides: [usize; 2],
) -> Option<Arc<Bf16Weights>> {
    let is_half = |element_type: ElementType| matches!(element_type, ElementType::F16 | ElementType::Bf16);
    let is_compressed = (context.stored)(port).is_some_and(|stored| !is_half(stored.codes.element_type()));
    if is_compressed || !is_wanted(context) {
        return None;
    }
    let tensor = (context.constant)(port)?;
    let key = context.key(port, &tensor);
    context.packed.get(key, format!("bf16 matmul {size:?} {strides:?}"), || {
        Bf16Weights::of_matrix(size, tensor.aligned().ok()?.slice::<f32>().ok()?, strides).ok()
    })
}

/// A product with such a right operand.
pub(super) fn product(weights: Arc<Bf16Weights>, data_port: usize, epilogue: EpilogueParts) -> Box<dyn Kernel> {
    Box::new(Bf16Product { isa: isa::detect(), weights, epilogue, data_port })
}

fn misfit() -> OpError {
    OpError::shape(Blame::Input(0), "the kernel does not fit the data")
}

fn epilogue<'e>(parts: &'e EpilogueParts, inputs: &'e [TensorView<'_>]) -> OpResult<Bf16Epilogue<'e>> {
    let residual = match parts.residual {
        Some(port) => Some(inputs[port].slice::<f32>()?),
        None => None,
    };
    Ok(Bf16Epilogue { bias: parts.bias.as_deref(), residual, activation: parts.activation.view(true) })
}

fn residual_fits(parts: &EpilogueParts, shapes: &StepShapes<'_>) -> bool {
    parts.residual.is_none_or(|port| shapes.inputs.get(port) == shapes.outputs.first())
}

impl Bf16Convolution {
    fn geometry(&self, data: &Shape) -> Option<ConvolutionGeometry> {
        Some(kernel_geometry(&self.form.geometry(data, &self.filter).ok()?).ok()?.flattened())
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<(ConvolutionGeometry, usize)> {
        let geometry = self.geometry(shapes.inputs.get(self.data_port)?)?;
        Some((geometry, self.weights.convolution_scratch(&geometry)?))
    }
}

impl Kernel for Bf16Convolution {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let output = shapes.outputs.first().map(|output| output.elements());
        let fits = |(geometry, _): (ConvolutionGeometry, usize)| Some(geometry.output_len()) == output;
        self.of_shapes(shapes).is_some_and(fits) && residual_fits(&self.epilogue, shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.of_shapes(shapes).map_or(0, |(_, bytes)| bytes)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.of_shapes(shapes).map_or(0, |(geometry, _)| nanoseconds_for_flops(geometry.flops()) / 2)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let data = &io.inputs[self.data_port];
        let geometry = self.geometry(data.shape()).ok_or_else(misfit)?;
        let epilogue = epilogue(&self.epilogue, io.inputs)?;
        let [output] = io.outputs else { return Ok(()) };
        let (values, target) = (data.slice::<f32>()?, output.slice_mut::<f32>()?);
        bf16_convolution(self.isa, &geometry, &self.weights, values, target, &epilogue, io.scratch)
            .map_err(kernel_error)
    }
}

impl Bf16Product {
    /// Bytes of the rounded rows.
    fn halves_len(&self, data: &Shape) -> usize {
        let [k, _] = self.weights.matrix();
        (data.elements() / k.max(1)).saturating_mul(k.next_multiple_of(2) * 2)
    }
}

impl Kernel for Bf16Product {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let (Some(data), [output]) = (shapes.inputs.get(self.data_port), shapes.outputs) else { return false };
        let [k, n] = self.weights.matrix();
        let fits = data.rank() >= 2 && data.last() == Some(&k) && output.last() == Some(&n);
        fits && output.elements() == data.elements() / k * n && residual_fits(&self.epilogue, shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        shapes.inputs.get(self.data_port).map_or(0, |data| self.halves_len(data))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let [k, n] = self.weights.matrix();
        let rows = shapes.outputs.first().map_or(0, |output| output.elements() / n.max(1));
        nanoseconds_for_flops(2 * (rows * k * n) as u64) / 2
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let data = &io.inputs[self.data_port];
        let ([k, n], bytes) = (self.weights.matrix(), self.halves_len(data.shape()));
        let epilogue = epilogue(&self.epilogue, io.inputs)?;
        let halves = io.scratch.get_mut(..bytes).ok_or_else(misfit)?;
        round_rows(self.isa, k, data.slice::<f32>()?, halves).map_err(kernel_error)?;
        let [output] = io.outputs else { return Ok(()) };
        let target = output.slice_mut::<f32>()?;
        bf16_product(self.isa, target.len() / n.max(1), &self.weights, halves, target, &epilogue).map_err(kernel_error)
    }
}
