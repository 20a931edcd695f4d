//! Convolutions and products of quantised data with constants that are stored as signed bytes.
//!
//! Data that are no codes yet are made into codes when the layer runs; sums are those of integers. Results become values,
//! or the codes that their readers take.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::blocked::BLOCK;
use ovir_kernels::convolution::{ConvolutionGeometry, TransposedConvolutionGeometry};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::{nanoseconds_for_bytes, nanoseconds_for_flops};
use ovir_kernels::quantized::{
    CodeLayout, CodePlanes, Decodings, Dequantizer, Encodings, MOST_TERMS, QuantizedEpilogue, QuantizedOutput,
    QuantizedResidual, QuantizedTransposed, QuantizedWeights, Quantizer, Scaling, WinogradWeights, blocked_quantize,
    dequantize, pad_rows, quantize, quantize_rows, quantized_convolution, quantized_product, quantized_transposed,
    takes_winograd, takes_words, tile_layout, winograd_convolution, winograd_scratch_len,
};
use ovir_ops::codes::{Decode, Encode, Levels};
use ovir_ops::convolution::{
    convolution::Convolution, convolution_backprop_data::ConvolutionBackpropData, group_convolution::GroupConvolution,
};
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::{OpResult, Operation, ValueFacts};
use ovir_tensor::{ElementType, Shape, SmallVec, TensorView, TensorViewMut};

use super::blocked::{Candidate, channels_of, misfit};
use super::convolution::{Form, kernel_geometry, smallest_data};
use super::parts::{EpilogueParts, QuantizedData, QuantizedParts, kernel_error};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes, transposed};
use crate::layout::{Layout, sizes};

/// Nanoseconds that a region of blocked values gains by a quantised convolution: more than any reorder costs, since there
/// is no kernel for plain values.
pub(crate) const GAIN: f64 = 1e12;

// The pass that fuses these layers must not fuse more than the kernels sum.
const _: () = assert!(ovir_optimize::MOST_BYTE_TERMS <= MOST_TERMS && ovir_optimize::BLOCK == BLOCK);

/// Convolutions of images of unknown sizes run in tiles up to this dilation.
const MOST_TILE_DILATION: usize = 16;

/// Data of so few channels are taken plain.
pub(super) const QUAD: usize = 4;

/// What all kernels need.
struct Quantized {
    isa: Isa,
    /// How the data become codes, if they are none.
    quantizer: Option<Quantizer>,
    zero: i32,
    scales: Vec<f32>,
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
    weights: ConvolutionWeights,
    form: Form,
    filter: Shape,
}

/// How a convolution is computed.
enum ConvolutionWeights {
    Direct(Arc<QuantizedWeights>, CodeLayout),
    Winograd(Arc<WinogradWeights>),
}

struct TransposedKernel {
    common: Quantized,
    weights: Arc<QuantizedTransposed>,
    form: transposed::Form,
    filter: Shape,
    output_shape: Option<SmallVec<[i64; 8]>>,
}

struct ProductKernel {
    common: Quantized,
    weights: Arc<QuantizedWeights>,
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
        [_, outputs, inputs, ..] if is_grouped(found.parts.root) => ovir_optimize::is_byte_group(outputs, inputs),
        _ => found.parts.root.downcast_ref::<Convolution>().is_some(),
    };
    let is_transposed = found.parts.root.downcast_ref::<ConvolutionBackpropData>().is_some();
    (are_blocks || is_transposed).then_some(())?;
    let channels = inputs.get(*found.parts.inputs.first()?)?.shape.dims()?.get(1)?.get()?;
    Some((found, if channels <= QUAD && !is_transposed { CodeLayout::Quads } else { CodeLayout::Blocks }))
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
    if let Some(encode) = node.operation.downcast_ref::<Encode>() {
        // Levels of channels have a kernel on blocks alone; others go where their readers are.
        let gain = if encode.levels.whole().is_some() { 0.0 } else { GAIN };
        return Some(Candidate { gain, ..Candidate::of_first(inputs.len()) }.for_readers());
    }
    if node.operation.downcast_ref::<Decode>().is_some() {
        // Codes are reordered faster than values.
        return Some(Candidate::of_first(inputs.len()).for_readers());
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
    let (found, mut layout) = convolution_data(context.node, context.inputs)?;
    let parts = &found.parts;
    if parts.root.downcast_ref::<ConvolutionBackpropData>().is_some() {
        return claim_transposed(context, &found);
    }
    let form = Form::of(parts.root)?;
    let filter = context.inputs.get(*parts.inputs.get(1)?)?.shape.to_shape()?;
    let outputs = form.output_channels(&filter)?;
    let taps = filter.elements() / outputs.max(1);
    let geometry = kernel_geometry(&form.geometry(&smallest_data(&form, &filter)?, &filter).ok()?).ok()?;
    let matrix = Matrix { k: taps, n: outputs, columns: outputs, is_transposed: true };
    if layout == CodeLayout::Blocks && takes_winograd(isa::detect(), &geometry) {
        let pack = |codes: &[i8]| WinogradWeights::of_convolution(&geometry, codes).ok();
        let format = format!("quantised convolution {filter} Winograd");
        let (common, weights, packed_inputs) = common(context, &found, matrix, format, &pack)?;
        let weights = ConvolutionWeights::Winograd(weights);
        return Some(Claim { kernel: Box::new(ConvolutionKernel { common, weights, form, filter }), packed_inputs });
    }
    let data = parts.inputs.first().and_then(|port| context.inputs.get(*port)?.shape.to_shape());
    layout = fastest_layout(layout, &form, (data.as_ref(), &filter), &geometry);
    let pack = |codes: &[i8]| QuantizedWeights::of_convolution(&geometry, layout, codes).ok();
    // Where taps across lie apart, weights for tiles follow each other in another order.
    let format = format!("quantised convolution {filter} {layout:?} {:?}", geometry.dilation());
    let (common, weights, packed_inputs) = common(context, &found, matrix, format, &pack)?;
    let weights = ConvolutionWeights::Direct(weights, layout);
    Some(Claim { kernel: Box::new(ConvolutionKernel { common, weights, form, filter }), packed_inputs })
}

/// The layout from which a convolution of these codes, which lie as [`CodeLayout::Quads`] or [`CodeLayout::Blocks`], runs
/// fastest. Of the data and the filter, whose smallest `geometry` is given, the shape of the data may be unknown.
pub(super) fn fastest_layout(
    layout: CodeLayout,
    form: &Form,
    (data, filter): (Option<&Shape>, &Shape),
    geometry: &ConvolutionGeometry,
) -> CodeLayout {
    let words = if layout == CodeLayout::Quads { CodeLayout::Rows } else { CodeLayout::Words };
    if takes_words(isa::detect(), geometry, words) {
        return words;
    }
    let Some(tiles) = tile_layout(isa::detect(), geometry).filter(|_| layout != CodeLayout::Quads) else {
        return layout;
    };
    // Taps far beyond the input are left out of blocks alone.
    let of_data = |data: &Shape| kernel_geometry(&form.geometry(data, filter).ok()?).ok();
    let are_near = match data {
        Some(data) => of_data(data).is_some_and(|of_data| CodePlanes::of_convolution(&of_data, tiles).is_some()),
        None => geometry.dilation().iter().all(|apart| *apart <= MOST_TILE_DILATION),
    };
    if are_near { tiles } else { layout }
}

/// Claims transposed convolutions on blocks.
fn claim_transposed(context: &mut ClaimContext<'_>, found: &QuantizedParts<'_>) -> Option<Claim> {
    let parts = &found.parts;
    let form = transposed::Form::of(parts.root)?;
    let output_shape = match parts.inputs.get(2) {
        Some(port) => Some(context.inputs.get(*port)?.integers()?),
        None => None,
    };
    let filter = context.inputs.get(*parts.inputs.get(1)?)?.shape.to_shape()?;
    let (geometry, [_, inputs, outputs]) = transposed::smallest_geometry(&form, &filter)?;
    let pack = |codes: &[i8]| QuantizedTransposed::pack(&geometry, codes).ok();
    let steps = (&form.attributes().strides, &form.attributes().dilations);
    let format = format!("quantised transposed convolution {filter} {steps:?}");
    let n = filter.elements() / inputs.max(1);
    let matrix = Matrix { k: inputs, n, columns: outputs, is_transposed: false };
    let (common, weights, packed_inputs) = common(context, found, matrix, format, &pack)?;
    let kernel = TransposedKernel { common, weights, form, filter, output_shape };
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
    let strides = if transposed { [1, k] } else { [n, 1] };
    let pack = |codes: &[i8]| QuantizedWeights::of_matrix([k, n], codes, strides).ok();
    let format = format!("quantised product {k}x{n} {transposed}");
    let matrix = Matrix { k, n, columns: n, is_transposed: transposed };
    let (common, weights, packed_inputs) = common(context, &found, matrix, format, &pack)?;
    Some(Claim { kernel: Box::new(ProductKernel { common, weights, k, n }), packed_inputs })
}

/// A constant as a matrix of `k` rows and `n` columns.
#[derive(Clone, Copy)]
struct Matrix {
    k: usize,
    n: usize,
    /// The outputs, each of which has as many columns side by side.
    columns: usize,
    /// Whether it is stored by columns.
    is_transposed: bool,
}

/// What all kernels need, and the constant as `pack` makes it of its codes.
fn common<T: Send + Sync + 'static>(
    context: &mut ClaimContext<'_>,
    found: &QuantizedParts<'_>,
    Matrix { k, n, columns, is_transposed }: Matrix,
    format: String,
    pack: &dyn Fn(&[i8]) -> Option<T>,
) -> Option<(Quantized, Arc<T>, SmallVec<[usize; 2]>)> {
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
    let [step, zero] = to.step_and_zero()?;
    let zero = zero.round() as i32;
    let stored = (context.stored)(weights_port)?;
    if stored.zero.is_some() || stored.codes.element_type() != ElementType::I8 {
        return None;
    }
    let matrix = stored.matrix(k, n, is_transposed).filter(|matrix| matrix.group == k)?;
    let scales = matrix.scales.unwrap_or_else(|| vec![1.0; n]);
    let of_outputs = scales.iter().step_by(n.checked_div(columns)?.max(1));
    let scales = of_outputs.map(|scale| (f64::from(*scale) * step) as f32).collect();
    let epilogue = parts.epilogue(context, columns)?;
    let key = context.key(weights_port, &stored.codes);
    let weights = context.packed.get(key, format, || pack(stored.codes.aligned().ok()?.slice::<i8>().ok()?))?;
    packed_inputs.extend(parts.packed_ports(&epilogue));
    let common =
        Quantized { isa: isa::detect(), quantizer, zero, scales, epilogue, inner, residual, output, data_port };
    Some((common, weights, packed_inputs))
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

impl Quantized {
    /// Bytes of the codes that must be made of the data.
    fn scratch_bytes(&self, planes: &CodePlanes) -> usize {
        if self.reads_in_place(planes) { 0 } else { planes.len() }
    }

    /// Whether the data are codes that are read where they lie.
    fn reads_in_place(&self, planes: &CodePlanes) -> bool {
        self.quantizer.is_none() && planes.are_input()
    }

    /// The codes of the data.
    fn planes<'c>(&self, planes: &CodePlanes, data: &TensorView<'c>, scratch: &'c mut [u8]) -> OpResult<&'c [u8]> {
        if self.reads_in_place(planes) {
            return Ok(data.slice::<u8>()?);
        }
        let codes = scratch.get_mut(..planes.len()).ok_or_else(misfit)?;
        let zero = u8::try_from(self.zero).map_err(|_| misfit())?;
        match &self.quantizer {
            Some(quantizer) => planes.quantize(self.isa, quantizer, zero, data.slice::<f32>()?, codes),
            None => planes.pad(zero, data.slice::<u8>()?, codes),
        }
        .map_err(kernel_error)?;
        Ok(codes)
    }
}

impl ConvolutionKernel {
    fn geometry(&self, data: &Shape) -> Option<(ConvolutionGeometry, CodePlanes)> {
        let geometry = kernel_geometry(&self.form.geometry(data, &self.filter).ok()?).ok()?;
        let planes = match &self.weights {
            ConvolutionWeights::Direct(_, layout) => CodePlanes::of_convolution(&geometry, *layout)?,
            ConvolutionWeights::Winograd(_) => CodePlanes::of_input(&geometry)?,
        };
        Some((geometry, planes))
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<(ConvolutionGeometry, CodePlanes)> {
        self.geometry(shapes.inputs.get(self.common.data_port)?)
    }

    /// Bytes of scratch beside the codes.
    fn transformed_bytes(&self, geometry: &ConvolutionGeometry) -> usize {
        match self.weights {
            ConvolutionWeights::Direct(..) => 0,
            ConvolutionWeights::Winograd(_) => winograd_scratch_len(geometry),
        }
    }
}

impl Kernel for ConvolutionKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let output = shapes.outputs.first().map(|output| output.elements());
        let fits = |(geometry, _): (ConvolutionGeometry, CodePlanes)| Some(geometry.output_len()) == output;
        self.of_shapes(shapes).is_some_and(fits) && self.common.residual_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.of_shapes(shapes).map_or(0, |(geometry, planes)| {
            self.transformed_bytes(&geometry).saturating_add(self.common.scratch_bytes(&planes))
        })
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let of_f32 = match self.weights {
            ConvolutionWeights::Direct(..) => 3,
            ConvolutionWeights::Winograd(_) => 6,
        };
        self.of_shapes(shapes).map_or(0, |(geometry, _)| nanoseconds_for_flops(geometry.flops()) / of_f32)
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let data = &io.inputs[self.common.data_port];
        let (geometry, planes) = self.geometry(data.shape()).ok_or_else(misfit)?;
        let scratch = std::mem::take(&mut io.scratch);
        let bytes = self.transformed_bytes(&geometry);
        let (transformed, rest) = scratch.split_at_mut_checked(bytes).ok_or_else(misfit)?;
        let codes = self.common.planes(&planes, data, rest)?;
        let outputs = std::mem::take(&mut io.outputs);
        let [output] = outputs else { return Ok(()) };
        let (target, epilogue) = (self.common.target(output)?, self.common.epilogue(&io)?);
        let (isa, scaling) = (self.common.isa, self.common.scaling());
        match &self.weights {
            ConvolutionWeights::Direct(weights, _) => {
                quantized_convolution(isa, &geometry, weights, &scaling, codes, target, &epilogue)
            }
            ConvolutionWeights::Winograd(weights) => {
                winograd_convolution(isa, &geometry, weights, &scaling, codes, target, &epilogue, transformed)
            }
        }
        .map_err(kernel_error)
    }
}

impl TransposedKernel {
    fn geometry(&self, data: &Shape) -> Option<(TransposedConvolutionGeometry, CodePlanes)> {
        let geometry = self.form.geometry(data, &self.filter, self.output_shape.as_deref()).ok()?;
        let geometry = transposed::kernel_geometry(&geometry).ok()?;
        Some((geometry, CodePlanes::of_transposed(&geometry)?))
    }

    fn of_shapes(&self, shapes: &StepShapes<'_>) -> Option<(TransposedConvolutionGeometry, CodePlanes)> {
        self.geometry(shapes.inputs.get(self.common.data_port)?)
    }
}

impl Kernel for TransposedKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let output = shapes.outputs.first().map(|output| output.elements());
        let fits = |(geometry, _): (TransposedConvolutionGeometry, CodePlanes)| Some(geometry.output_len()) == output;
        self.of_shapes(shapes).is_some_and(fits) && self.common.residual_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        self.of_shapes(shapes).map_or(0, |(_, planes)| self.common.scratch_bytes(&planes))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.of_shapes(shapes).map_or(0, |(geometry, _)| nanoseconds_for_flops(geometry.flops()) / 3)
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let data = &io.inputs[self.common.data_port];
        let (geometry, planes) = self.geometry(data.shape()).ok_or_else(misfit)?;
        let codes = self.common.planes(&planes, data, std::mem::take(&mut io.scratch))?;
        let outputs = std::mem::take(&mut io.outputs);
        let [output] = outputs else { return Ok(()) };
        let (target, epilogue) = (self.common.target(output)?, self.common.epilogue(&io)?);
        let (isa, scaling) = (self.common.isa, self.common.scaling());
        quantized_transposed(isa, &geometry, &self.weights, &scaling, codes, target, &epilogue).map_err(kernel_error)
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
        let Quantized { isa, quantizer, data_port, .. } = &self.common;
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
        quantized_product(*isa, rows, &self.weights, &self.common.scaling(), codes, target, &epilogue)
            .map_err(kernel_error)
    }
}
