//! Convolutions and products of quantised data with constants that are stored as signed bytes.
//!
//! Data that are no codes yet are made into codes when the layer runs; sums are those of integers. Results become values,
//! or the codes that their readers take.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::blocked::BLOCK;
use ovir_kernels::convolution::ConvolutionGeometry;
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::{nanoseconds_for_bytes, nanoseconds_for_flops};
use ovir_kernels::quantized::{
    CodeLayout, Decodings, Dequantizer, Encodings, MOST_TERMS, QuantizedEpilogue, QuantizedOutput, QuantizedResidual,
    QuantizedWeights, Quantizer, Scaling, blocked_quantize, codes_len, dequantize, needs_padding, pad_codes, pad_rows,
    quantize, quantize_planes, quantize_rows, quantized_convolution, quantized_product,
};
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::convolution::{convolution::Convolution, group_convolution::GroupConvolution};
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::{Blame, OpError, OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec, TensorViewMut};

use super::blocked::{Candidate, channels_of};
use super::convolution::{Form, kernel_geometry, smallest_data};
use super::parts::{EpilogueParts, QuantizedData, QuantizedParts, kernel_error};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};
use crate::layout::{Layout, sizes};

/// Nanoseconds that a region of blocked values gains by a quantised convolution: more than any reorder costs, since there
/// is no kernel for plain values.
pub(crate) const GAIN: f64 = 1e12;

// The pass that fuses these layers must not fuse more than the kernels sum.
const _: () = assert!(ovir_optimize::MOST_BYTE_TERMS <= MOST_TERMS && ovir_optimize::BLOCK == BLOCK);

/// Data of so few channels are taken plain.
const QUAD: usize = 4;

/// What both kernels need.
struct Quantized {
    isa: Isa,
    /// How the data become codes, if they are none.
    quantizer: Option<Quantizer>,
    zero: i32,
    scales: Vec<f32>,
    weights: Arc<QuantizedWeights>,
    epilogue: EpilogueParts,
    /// What makes codes and values again of the result before the residual is added.
    inner: Option<(Quantizer, Dequantizer)>,
    /// What the codes of the residual stand for, if it has any.
    residual: Option<Dequantizer>,
    /// How the result becomes codes, if it does.
    output: Option<Encodings>,
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

/// An Encode on its own.
struct EncodeKernel {
    isa: Isa,
    /// How whole tensors become codes.
    whole: Option<Quantizer>,
    encodings: Encodings,
}

/// A Decode on its own.
struct DecodeKernel {
    isa: Isa,
    dequantizer: Dequantizer,
}

/// From values of whole tensors to codes.
pub(super) fn quantizer_of(levels: &Levels) -> Option<Quantizer> {
    let [low, high] = levels.whole()?;
    Some(Quantizer { low, high, steps: f32::from(levels.last) })
}

/// From codes to values of whole tensors.
pub(super) fn dequantizer_of(levels: &Levels) -> Option<Dequantizer> {
    let [low, high] = levels.whole()?;
    Some(Dequantizer { low, high, steps: f32::from(levels.last) })
}

pub(super) fn encodings_of(levels: &Levels) -> Option<Encodings> {
    Encodings::new(&levels.low, &levels.high, f32::from(levels.last)).ok()
}

pub(super) fn decodings_of(levels: &Levels) -> Option<Decodings> {
    Decodings::new(&levels.low, &levels.high, f32::from(levels.last)).ok()
}

/// How the data of a quantised convolution lies, if the layer is one.
fn convolution_data<'a>(node: &'a Node, inputs: &[&ValueFacts]) -> Option<(QuantizedParts<'a>, CodeLayout)> {
    let found = QuantizedParts::of(node).filter(|found| !matches!(found.data, QuantizedData::Values))?;
    let filter = inputs.get(*found.parts.inputs.get(1)?)?.shape.to_shape()?;
    let are_blocks = match filter[..] {
        [_, outputs, inputs, ..] if is_grouped(found.parts.root) => {
            outputs.is_multiple_of(BLOCK) && inputs.is_multiple_of(BLOCK)
        }
        _ => found.parts.root.downcast_ref::<Convolution>().is_some(),
    };
    are_blocks.then_some(())?;
    let channels = inputs.get(*found.parts.inputs.first()?)?.shape.dims()?.get(1)?.get()?;
    Some((found, if channels <= QUAD { CodeLayout::Quads } else { CodeLayout::Blocks }))
}

fn is_grouped(root: &dyn Operation) -> bool {
    root.downcast_ref::<GroupConvolution>().is_some()
}

/// Whether a layer is one of those that run on blocks: convolutions of codes, and what they read codes of.
pub(crate) fn candidate(
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &[ValueFacts],
    is_constant: &dyn Fn(usize) -> bool,
) -> Option<Candidate> {
    let output = outputs.first()?;
    channels_of(&output.shape)?;
    if node.operation.downcast_ref::<Encode>().is_some() {
        // Whoever reads codes of images is a convolution, or a layer in front of one.
        return Some(Candidate { gain: GAIN, ..Candidate::of_first(inputs.len()) }.for_readers());
    }
    if node.operation.downcast_ref::<Decode>().is_some() {
        return Some(Candidate::of_first(inputs.len()));
    }
    let (QuantizedParts { parts, .. }, layout) = convolution_data(node, inputs)?;
    let data = *parts.inputs.first()?;
    let mut layouts: SmallVec<[Layout; 4]> = SmallVec::from_elem(Layout::Plain, inputs.len());
    if layout == CodeLayout::Blocks {
        layouts[data] = Layout::Blocked;
    }
    if let Some(port) = parts.residual.or(parts.bias.filter(|port| !is_constant(*port))) {
        // A layer that adds its own data has one port for both.
        (port != data || layouts[data] == Layout::Blocked).then_some(())?;
        layouts[port] = Layout::Blocked;
    }
    Some(Candidate { gain: GAIN, ..Candidate::carrier(layouts) })
}

/// Claims an Encode.
pub(crate) fn claim_encode(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let levels = &context.node.operation.downcast_ref::<Encode>()?.levels;
    let whole = quantizer_of(levels);
    // Channels are found in blocks.
    (context.is_blocked || whole.is_some()).then_some(())?;
    let kernel = EncodeKernel { isa: isa::detect(), whole, encodings: encodings_of(levels)? };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// Claims a Decode.
pub(crate) fn claim_decode(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let dequantizer = dequantizer_of(&context.node.operation.downcast_ref::<Decode>()?.levels)?;
    Some(Claim { kernel: Box::new(DecodeKernel { isa: isa::detect(), dequantizer }), packed_inputs: SmallVec::new() })
}

/// Claims convolutions on blocks.
pub(crate) fn claim_blocked(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (found, layout) = convolution_data(context.node, context.inputs)?;
    let parts = &found.parts;
    let form = Form::of(parts.root)?;
    let filter = context.inputs.get(*parts.inputs.get(1)?)?.shape.to_shape()?;
    let outputs = form.output_channels(&filter)?;
    let taps = filter.elements() / outputs.max(1);
    let geometry = kernel_geometry(&form.geometry(&smallest_data(&form, &filter)?, &filter).ok()?).ok()?;
    let pack = |codes: &[i8]| QuantizedWeights::of_convolution(&geometry, layout, codes).ok();
    let format = format!("quantised convolution {filter} {layout:?}");
    let (common, packed_inputs) = common(context, &found, [taps, outputs], true, format, &pack)?;
    let kernel = ConvolutionKernel { common, form, filter, layout };
    Some(Claim { kernel: Box::new(kernel), packed_inputs })
}

/// Claims products.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let found = QuantizedParts::of(context.node).filter(|found| !matches!(found.data, QuantizedData::Values))?;
    let parts = &found.parts;
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
    let (common, packed_inputs) = common(context, &found, [k, n], transposed, format, &pack)?;
    Some(Claim { kernel: Box::new(ProductKernel { common, k, n }), packed_inputs })
}

/// What both kernels need, for a constant that is a matrix of `k` rows and `n` columns, stored by columns if `transposed`.
fn common(
    context: &mut ClaimContext<'_>,
    found: &QuantizedParts<'_>,
    [k, n]: [usize; 2],
    transposed: bool,
    format: String,
    pack: &dyn Fn(&[i8]) -> Option<QuantizedWeights>,
) -> Option<(Quantized, SmallVec<[usize; 2]>)> {
    let parts = &found.parts;
    let (data_port, weights_port) = (*parts.inputs.first()?, *parts.inputs.get(1)?);
    let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::from_slice(&[weights_port]);
    let (quantizer, to) = match &found.data {
        QuantizedData::Encoded([from, to]) => (Some(quantizer_of(from)?), to),
        QuantizedData::Codes(to) => (None, to),
        QuantizedData::Values => return None,
    };
    let inner = match found.inner {
        Some([from, to]) => Some((quantizer_of(from)?, dequantizer_of(to)?)),
        None => None,
    };
    let residual = match found.residual {
        Some(levels) => Some(dequantizer_of(levels)?),
        None => None,
    };
    let output = match found.output {
        Some(levels) => Some(encodings_of(levels)?),
        None => None,
    };
    let Dequantizer { low: output_low, high: output_high, steps } = dequantizer_of(to)?;
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
    packed_inputs.extend(parts.packed_ports(&epilogue));
    let common = Quantized {
        isa: isa::detect(),
        quantizer,
        zero,
        scales,
        weights,
        epilogue,
        inner,
        residual,
        output,
        data_port,
    };
    Some((common, packed_inputs))
}

fn misfit() -> OpError {
    OpError::shape(Blame::Input(0), "the kernel does not fit the data")
}

impl Quantized {
    fn scaling(&self) -> Scaling<'_> {
        Scaling { zero: self.zero, scales: &self.scales }
    }

    fn epilogue<'e>(&'e self, io: &'e StepIo<'_, '_>) -> OpResult<QuantizedEpilogue<'e>> {
        let residual = match (self.epilogue.residual, self.residual) {
            (Some(port), Some(dequantizer)) => QuantizedResidual::Codes(io.inputs[port].slice::<u8>()?, dequantizer),
            (Some(port), None) => QuantizedResidual::Values(io.inputs[port].slice::<f32>()?),
            (None, _) => QuantizedResidual::None,
        };
        Ok(QuantizedEpilogue {
            bias: self.epilogue.bias.as_deref(),
            inner: self.inner,
            residual,
            activation: self.epilogue.activation.view(true),
        })
    }

    fn target<'t>(&'t self, output: &'t mut TensorViewMut<'_>) -> OpResult<QuantizedOutput<'t>> {
        Ok(match &self.output {
            Some(encodings) => QuantizedOutput::Codes(output.slice_mut::<u8>()?, encodings),
            None => QuantizedOutput::Values(output.slice_mut::<f32>()?),
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

    /// Whether the data are codes that are read where they lie.
    fn reads_in_place(&self, geometry: &ConvolutionGeometry) -> bool {
        self.common.quantizer.is_none() && !needs_padding(geometry)
    }
}

impl Kernel for ConvolutionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let output = shapes.outputs.first().map(|output| output.elements());
        let fits = |g: ConvolutionGeometry| Some(g.output_len()) == output && codes_len(&g, self.layout).is_some();
        self.geometry(shapes).is_some_and(fits) && self.common.residual_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let Some(geometry) = self.geometry(shapes).filter(|geometry| !self.reads_in_place(geometry)) else { return 0 };
        codes_len(&geometry, self.layout).unwrap_or(0)
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.geometry(shapes).map_or(0, |geometry| nanoseconds_for_flops(geometry.flops()) / 3)
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let Quantized { isa, quantizer, weights, data_port, .. } = &self.common;
        let scratch = std::mem::take(&mut io.scratch);
        let data = &io.inputs[*data_port];
        let geometry = kernel_geometry(&self.form.geometry(data.shape(), &self.filter)?).map_err(kernel_error)?;
        let codes = if self.reads_in_place(&geometry) {
            data.slice::<u8>()?
        } else {
            let bytes = codes_len(&geometry, self.layout).ok_or_else(misfit)?;
            let codes = scratch.get_mut(..bytes).ok_or_else(misfit)?;
            let zero = u8::try_from(self.common.zero).map_err(|_| misfit())?;
            match quantizer {
                Some(quantizer) => {
                    quantize_planes(*isa, quantizer, &geometry, self.layout, zero, data.slice::<f32>()?, codes)
                }
                None => pad_codes(&geometry, zero, data.slice::<u8>()?, codes),
            }
            .map_err(kernel_error)?;
            codes
        };
        let outputs = std::mem::take(&mut io.outputs);
        let [output] = outputs else { return Ok(()) };
        let (target, epilogue) = (self.common.target(output)?, self.common.epilogue(&io)?);
        quantized_convolution(*isa, &geometry, weights, &self.common.scaling(), codes, target, &epilogue)
            .map_err(kernel_error)
    }
}

impl ProductKernel {
    /// Whether the data are codes that are read where they lie.
    fn reads_in_place(&self) -> bool {
        self.common.quantizer.is_none() && self.k.is_multiple_of(QUAD)
    }
}

impl Kernel for EncodeKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.first().map_or(0, |output| nanoseconds_for_bytes(output.elements().saturating_mul(6)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        let (shape, values, codes) = (data.shape().clone(), data.slice::<f32>()?, output.slice_mut::<u8>()?);
        match &self.whole {
            Some(quantizer) => quantize(self.isa, quantizer, values, codes),
            None => blocked_quantize(self.isa, &self.encodings, sizes(&shape).ok_or_else(misfit)?, values, codes),
        }
        .map_err(kernel_error)
    }
}

impl Kernel for DecodeKernel {
    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.first().map_or(0, |output| nanoseconds_for_bytes(output.elements().saturating_mul(5)))
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let ([data, ..], [output]) = (io.inputs, io.outputs) else { return Ok(()) };
        dequantize(self.isa, &self.dequantizer, data.slice::<u8>()?, output.slice_mut::<f32>()?).map_err(kernel_error)
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
        let data = shapes.inputs.get(self.common.data_port).filter(|_| !self.reads_in_place());
        data.map_or(0, |data| data.elements() / self.k.max(1) * self.k.next_multiple_of(QUAD))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let rows = shapes.outputs.first().map_or(0, |output| output.elements() / self.n.max(1));
        nanoseconds_for_flops(2 * (rows * self.k * self.n) as u64) / 3
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let Quantized { isa, quantizer, weights, data_port, .. } = &self.common;
        let scratch = std::mem::take(&mut io.scratch);
        let data = &io.inputs[*data_port];
        let rows = data.shape().elements() / self.k.max(1);
        let codes = if self.reads_in_place() {
            data.slice::<u8>()?
        } else {
            let codes = scratch.get_mut(..rows * self.k.next_multiple_of(QUAD)).ok_or_else(misfit)?;
            match quantizer {
                Some(quantizer) => quantize_rows(*isa, quantizer, self.k, data.slice::<f32>()?, codes),
                None => pad_rows(self.k, data.slice::<u8>()?, codes),
            }
            .map_err(kernel_error)?;
            codes
        };
        let outputs = std::mem::take(&mut io.outputs);
        let [output] = outputs else { return Ok(()) };
        let (target, epilogue) = (self.common.target(output)?, self.common.epilogue(&io)?);
        quantized_product(*isa, rows, weights, &self.common.scaling(), codes, target, &epilogue).map_err(kernel_error)
    }
}
