//! Convolutions and products of quantised data with constants that are stored as signed bytes.
//!
//! The data are made into codes when the layer runs; sums are those of integers.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::nanoseconds_for_flops;
use ovir_kernels::quantized::{
    CodeLayout, MOST_TERMS, QuantizedWeights, Quantizer, Scaling, codes_len, quantize_planes, quantize_rows,
    quantized_convolution, quantized_product,
};
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::{Blame, OpError, OpResult, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::convolution::{Form, kernel_geometry, smallest_data};
use super::parts::{EpilogueParts, Parts, floats, kernel_error};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Nanoseconds that a region of blocked values gains by a quantised convolution: more than any reorder costs, since there
/// is no kernel for plain values.
pub(crate) const GAIN: f64 = 1e12;

// The pass that fuses these layers must not fuse more than the kernels sum.
const _: () = assert!(ovir_optimize::MOST_BYTE_TERMS <= MOST_TERMS);

/// Data of so few channels are taken plain.
const QUAD: usize = 4;

/// What both kernels need.
struct Quantized {
    isa: Isa,
    quantizer: Quantizer,
    zero: i32,
    scales: Vec<f32>,
    weights: Arc<QuantizedWeights>,
    epilogue: EpilogueParts,
    data_port: usize,
}

struct ConvolutionKernel {
    common: Quantized,
    form: Form,
    filter: Shape,
    layout: CodeLayout,
}

struct ProductKernel {
    common: Quantized,
    k: usize,
    n: usize,
}

/// How the data of a quantised convolution lies, if the layer is one.
pub(crate) fn convolution_data<'a>(node: &'a Node, inputs: &[&ValueFacts]) -> Option<(Parts<'a>, CodeLayout)> {
    let (_, _, parts) = Parts::of_quantized(node)?;
    Form::of(parts.root)?;
    let channels = inputs.get(*parts.inputs.first()?)?.shape.dims()?.get(1)?.get()?;
    Some((parts, if channels <= QUAD { CodeLayout::Quads } else { CodeLayout::Blocks }))
}

/// Claims convolutions on blocks.
pub(crate) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (parts, layout) = convolution_data(context.node, context.inputs)?;
    let form = Form::of(parts.root)?;
    let filter = context.inputs.get(*parts.inputs.get(1)?)?.shape.to_shape()?;
    let (&outputs, taps) = (filter.first()?, filter.get(1..)?.iter().product::<usize>());
    let geometry = kernel_geometry(&form.geometry(&smallest_data(&form, &filter)?, &filter).ok()?).ok()?;
    let pack = |codes: &[i8]| QuantizedWeights::of_convolution(&geometry, layout, codes).ok();
    let format = format!("quantised convolution {filter} {layout:?}");
    let (common, packed_inputs) = common(context, [taps, outputs], true, format, &pack)?;
    let kernel = ConvolutionKernel { common, form, filter, layout };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// Claims products.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (_, _, parts) = Parts::of_quantized(context.node)?;
    let transposed = parts.root.downcast_ref::<MatMul>()?.attributes.transpose_b;
    let shape = context.inputs.get(*parts.inputs.get(1)?)?.shape.to_shape()?;
    let [a, b] = shape[..] else { return None };
    let (k, n) = if transposed { (b, a) } else { (a, b) };
    let pack = |codes: &[i8]| {
        let code =
            |row: usize, column: usize| if transposed { codes[column * k + row] } else { codes[row * n + column] };
        QuantizedWeights::of_matrix(k, n, code).ok()
    };
    let format = format!("quantised product {k}x{n} {transposed}");
    let (common, packed_inputs) = common(context, [k, n], transposed, format, &pack)?;
    Some(Claim { kernel: Box::new(ProductKernel { common, k, n }), packed_inputs })
}

/// What both kernels need, for a constant that is a matrix of `k` rows and `n` columns, stored by columns if `transposed`.
fn common(
    context: &mut ClaimContext<'_>,
    [k, n]: [usize; 2],
    transposed: bool,
    format: String,
    pack: &dyn Fn(&[i8]) -> Option<QuantizedWeights>,
) -> Option<(Quantized, SmallVec<[usize; 2]>)> {
    let (operation, limit_ports, parts) = Parts::of_quantized(context.node)?;
    let (data_port, weights_port) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    let mut limits = [0.0f32; 4];
    for (port, limit) in limit_ports.into_iter().zip(&mut limits) {
        let tensor = (context.constant)(port)?;
        let [value] = floats(&tensor)?[..] else { return None };
        *limit = value;
    }
    let [low, high, output_low, output_high] = limits;
    let steps = operation.levels.checked_sub(1)? as f32;
    let step = (f64::from(output_high) - f64::from(output_low)) / f64::from(steps);
    let zero = (-f64::from(output_low) / step).round() as i32;
    let stored = (context.stored)(weights_port)?;
    if stored.zero.is_some() || stored.codes.element_type() != ElementType::I8 {
        return None;
    }
    let matrix = stored.matrix(k, n, transposed).filter(|matrix| matrix.group == k)?;
    let scales = matrix.scales.unwrap_or_else(|| vec![1.0; n]);
    let scales = scales.iter().map(|scale| (f64::from(*scale) * step) as f32).collect();
    let epilogue = parts.epilogue(context, n)?;
    let key = context.key(weights_port, &stored.codes);
    let weights = context.packed.get(key, format, || pack(stored.codes.aligned().ok()?.slice::<i8>().ok()?))?;
    let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&limit_ports);
    packed_inputs.push(weights_port);
    packed_inputs.extend(parts.packed_ports(&epilogue));
    let quantizer = Quantizer { low, high, steps };
    Some((Quantized { isa: isa::detect(), quantizer, zero, scales, weights, epilogue, data_port }, packed_inputs))
}

fn misfit() -> OpError {
    OpError::shape(Blame::Input(0), "the kernel does not fit the data")
}

impl Quantized {
    fn scaling(&self) -> Scaling<'_> {
        Scaling { zero: self.zero, scales: &self.scales }
    }

    fn epilogue<'e>(&'e self, io: &'e StepIo<'_, '_>) -> OpResult<ConvolutionEpilogue<'e>> {
        let residual = match self.epilogue.residual {
            Some(port) => Some(io.inputs[port].slice::<f32>()?),
            None => None,
        };
        Ok(ConvolutionEpilogue {
            bias: self.epilogue.bias.as_deref(),
            residual,
            accumulates: false,
            activation: self.epilogue.activation.view(true),
        })
    }

    fn residual_fits(&self, shapes: &StepShapes<'_>) -> bool {
        self.epilogue.residual.is_none_or(|port| shapes.inputs.get(port) == shapes.outputs.first())
    }
}

impl ConvolutionKernel {
    fn geometry(&self, shapes: &StepShapes<'_>) -> Option<ConvolutionGeometry> {
        let data = shapes.inputs.get(self.common.data_port)?;
        kernel_geometry(&self.form.geometry(data, &self.filter).ok()?).ok()
    }
}

impl Kernel for ConvolutionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let output = shapes.outputs.first().map(|output| output.elements());
        let fits = |g: ConvolutionGeometry| Some(g.output_len()) == output && codes_len(&g, self.layout).is_some();
        self.geometry(shapes).is_some_and(fits) && self.common.residual_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.geometry(shapes).and_then(|geometry| codes_len(&geometry, self.layout)).unwrap_or(0)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.geometry(shapes).map_or(0, |geometry| nanoseconds_for_flops(geometry.flops()) / 3)
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let Quantized { isa, quantizer, weights, data_port, .. } = &self.common;
        let scratch = std::mem::take(&mut io.scratch);
        let data = &io.inputs[*data_port];
        let geometry = kernel_geometry(&self.form.geometry(data.shape(), &self.filter)?).map_err(kernel_error)?;
        let bytes = codes_len(&geometry, self.layout).ok_or_else(misfit)?;
        let codes = scratch.get_mut(..bytes).ok_or_else(misfit)?;
        let zero = u8::try_from(self.common.zero).map_err(|_| misfit())?;
        quantize_planes(*isa, quantizer, &geometry, self.layout, zero, data.slice::<f32>()?, codes)
            .map_err(kernel_error)?;
        let outputs = std::mem::take(&mut io.outputs);
        let [output] = outputs else { return Ok(()) };
        let (target, epilogue) = (output.slice_mut::<f32>()?, self.common.epilogue(&io)?);
        quantized_convolution(*isa, &geometry, weights, &self.common.scaling(), codes, target, &epilogue)
            .map_err(kernel_error)
    }
}

impl Kernel for ProductKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let (Some(data), [output]) = (shapes.inputs.get(self.common.data_port), shapes.outputs) else { return false };
        data.last() == Some(&self.k)
            && output.elements() == data.elements() / self.k.max(1) * self.n
            && self.common.residual_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let data = shapes.inputs.get(self.common.data_port);
        data.map_or(0, |data| data.elements() / self.k.max(1) * self.k.next_multiple_of(QUAD))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let rows = shapes.outputs.first().map_or(0, |output| output.elements() / self.n.max(1));
        nanoseconds_for_flops(2 * (rows * self.k * self.n) as u64) / 3
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let Quantized { isa, quantizer, weights, data_port, .. } = &self.common;
        let scratch = std::mem::take(&mut io.scratch);
        let values = io.inputs[*data_port].slice::<f32>()?;
        let rows = values.len() / self.k.max(1);
        let codes = scratch.get_mut(..rows * self.k.next_multiple_of(QUAD)).ok_or_else(misfit)?;
        quantize_rows(*isa, quantizer, self.k, values, codes).map_err(kernel_error)?;
        let outputs = std::mem::take(&mut io.outputs);
        let [output] = outputs else { return Ok(()) };
        let (target, epilogue) = (output.slice_mut::<f32>()?, self.common.epilogue(&io)?);
        quantized_product(*isa, rows, weights, &self.common.scaling(), codes, target, &epilogue).map_err(kernel_error)
    }
}
