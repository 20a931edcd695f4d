//! Products and convolutions of codes with a constant of i32, as quantised ONNX models have them: bytes are multiplied, and
//! the sums, those of integers, are written as f32.
//!
//! What the code of zero adds to a sum is known of the constant. A constant beyond signed bytes is one of signed bytes and an
//! integer that is the same for all; what that adds is a multiple of the sum of the data, which is written behind the others.

use std::sync::Arc;

use ovir_graph::Node;
use ovir_kernels::blocked::{
    BlockedDepthwise, DepthwiseInput, blocked_depthwise, blocked_len, codes_from_plain, to_plain,
};
use ovir_kernels::convolution::{self as kernels, ConvolutionEpilogue, ConvolutionGeometry, PackedConvolution};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::{nanoseconds_for_bytes, nanoseconds_for_flops, parallel_chunks_mut};
use ovir_kernels::quantized::{
    CodeLayout, CodePlanes, Decodings, QuantizedEpilogue, QuantizedOutput, QuantizedWeights, Scaling, pad_rows,
    quantized_convolution, quantized_product,
};
use ovir_ops::fused::Fused;
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::{OpResult, Operation};
use ovir_tensor::{ElementType, Shape, SmallVec, Tensor};

use super::blocked::misfit;
use super::convolution::{Form, kernel_geometry, smallest_data};
use super::parts::{kernel_error, scratch_f32};
use super::quantized::{QUAD, fastest_layout};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Bytes at which parts of the scratch begin.
const ALIGNMENT: usize = 64;

/// A constant as bytes.
struct Packed<W> {
    weights: W,
    /// What was taken from each element.
    shift: i32,
}

/// What both kernels need.
struct Codes {
    isa: Isa,
    /// The input that holds the code of zero.
    zero: Option<usize>,
    /// One for each output channel.
    scales: Vec<f32>,
}

/// `[rows, k] * [k, n]`.
struct Product {
    codes: Codes,
    k: usize,
    n: usize,
    packed: Arc<Packed<QuantizedWeights>>,
}

/// A convolution.
struct Convolution {
    codes: Codes,
    form: Form,
    filter: Shape,
    weights: Weights,
}

/// The constant of a convolution.
enum Weights {
    /// Bytes.
    Bytes(CodeLayout, Arc<Packed<QuantizedWeights>>, Option<Ones>),
    /// That of a depthwise one, whose sums are small enough for f32.
    Depthwise(Arc<BlockedDepthwise>),
}

/// A filter of ones, which sums the data of a group, and what sums are multiplied with.
struct Ones {
    filter: Arc<PackedConvolution>,
    shift: f32,
}

/// The root of a layer of codes, and the inputs of the code of zero and of the constant.
fn parts(node: &Node) -> Option<(&dyn Operation, Option<usize>, usize)> {
    let stages = &node.operation.downcast_ref::<Fused>()?.stages;
    let types: SmallVec<[&str; 5]> = stages.iter().map(|stage| &*stage.type_name).collect();
    let at = match types[..] {
        ["Convert", _, "Convert"] => 1,
        ["Convert", "Convert", "Subtract", _, "Convert"] => 3,
        _ => return None,
    };
    let root = &stages[at];
    Some((&*root.operation, (at == 3).then_some(1), root.outside(1)?))
}

/// Claims products and convolutions of codes with a constant of i32.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let (root, zero, constant) = parts(context.node)?;
    let is = |port: usize, wanted| context.inputs.get(port).is_some_and(|facts| facts.element_type == wanted);
    let are_codes = is(0, ElementType::U8) && zero.is_none_or(|port| is(port, ElementType::U8));
    let is_result = context.outputs.first()?.element_type == ElementType::F32;
    (are_codes && is_result && is(constant, ElementType::I32)).then_some(())?;
    let transposed = root.downcast_ref::<MatMul>().map(|product| product.attributes.transpose_b);
    let form = Form::of(root);
    let tensor = (context.constant)(constant)?;
    let codes = |outputs: usize| Codes { isa: isa::detect(), zero, scales: vec![1.0; outputs] };
    let kernel: Box<dyn Kernel> = match (transposed, form) {
        (Some(is_transposed), _) => Box::new(product(context, (constant, &tensor), is_transposed, codes)?),
        (None, Some(form)) => Box::new(convolution(context, (constant, &tensor), form, codes)?),
        (None, None) => return None,
    };
    Some(Claim { kernel, packed_inputs: SmallVec::from_slice(&[constant]) })
}

fn product(
    context: &mut ClaimContext<'_>,
    (port, tensor): (usize, &Tensor),
    is_transposed: bool,
    codes: impl Fn(usize) -> Codes,
) -> Option<Product> {
    let (batch, matrix) = tensor.shape().split_at(tensor.shape().rank().checked_sub(2)?);
    batch.iter().all(|size| *size == 1).then_some(())?;
    let (k, n) = if is_transposed { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
    let strides = if is_transposed { [1, k] } else { [n, 1] };
    let pack = |codes: &[i8]| QuantizedWeights::of_matrix([k, n], codes, strides).ok();
    let packed = packed(context, (port, tensor), format!("product of codes {k}x{n} {strides:?}"), &pack)?;
    Some(Product { codes: codes(n), k, n, packed })
}

fn convolution(
    context: &mut ClaimContext<'_>,
    (port, tensor): (usize, &Tensor),
    form: Form,
    codes: impl Fn(usize) -> Codes,
) -> Option<Convolution> {
    let (filter, isa) = (tensor.shape().clone(), isa::detect());
    let geometry = kernel_geometry(&form.geometry(&smallest_data(&form, &filter)?, &filter).ok()?).ok()?;
    let [groups, outputs, channels] = sizes(&form, &filter)?;
    let is_depthwise = groups == outputs && groups == channels && !geometry.has_depth();
    if matches!(form, Form::Grouped(_)) && is_depthwise {
        let key = context.key(port, tensor);
        let weights = context.packed.get(key, format!("depthwise of codes {filter}"), || {
            let aligned = tensor.aligned().ok()?;
            let values: Vec<f32> = aligned.slice::<i32>().ok()?.iter().map(|value| *value as f32).collect();
            BlockedDepthwise::pack(&geometry, &values).ok()
        })?;
        return Some(Convolution { codes: codes(outputs), form, filter, weights: Weights::Depthwise(weights) });
    }
    let is_plain = groups == 1 && channels <= QUAD;
    let data = context.inputs.first().and_then(|facts| facts.shape.to_shape());
    let layout = if is_plain { CodeLayout::Quads } else { CodeLayout::Blocks };
    let layout = fastest_layout(layout, &form, (data.as_ref(), &filter), &geometry);
    let pack = |codes: &[i8]| QuantizedWeights::of_convolution(&geometry, layout, codes).ok();
    let format = format!("convolution of codes {filter} {layout:?} {:?}", geometry.dilation());
    let packed = packed(context, (port, tensor), format, &pack)?;
    let ones = if packed.shift == 0 {
        None
    } else {
        let key = context.key(port, tensor);
        let filter = context.packed.get(key, format!("sums of codes {filter}"), || {
            let of_sums = sums_geometry(form.geometry(&smallest_data(&form, &filter)?, &filter).ok()?)?;
            PackedConvolution::pack(isa, &of_sums, &vec![1.0; of_sums.weights_len()]).ok()
        })?;
        Some(Ones { filter, shift: packed.shift as f32 })
    };
    Some(Convolution { codes: codes(outputs), form, filter, weights: Weights::Bytes(layout, packed, ones) })
}

/// Groups, and the output and input channels of all.
fn sizes(form: &Form, filter: &Shape) -> Option<[usize; 3]> {
    let groups = match form {
        Form::Plain(_) => return Some([1, *filter.first()?, *filter.get(1)?]),
        Form::Grouped(_) => *filter.first()?,
    };
    Some([groups, groups.checked_mul(*filter.get(1)?)?, groups.checked_mul(*filter.get(2)?)?])
}

/// The geometry of the sums of the data of each group: groups are images of one channel.
fn sums_geometry(mut geometry: ovir_ops::common::convolution::ConvolutionGeometry) -> Option<ConvolutionGeometry> {
    geometry.batch = geometry.batch.checked_mul(geometry.groups)?;
    (geometry.groups, geometry.input_channels, geometry.output_channels) = (1, 1, 1);
    kernel_geometry(&geometry).ok()
}

/// The bytes of a constant as `pack` packs them, and what was taken from each element.
fn packed<W: Send + Sync + 'static>(
    context: &mut ClaimContext<'_>,
    (port, tensor): (usize, &Tensor),
    format: String,
    pack: &dyn Fn(&[i8]) -> Option<W>,
) -> Option<Arc<Packed<W>>> {
    let key = context.key(port, tensor);
    context.packed.get(key, format, || {
        let aligned = tensor.aligned().ok()?;
        let values = aligned.slice::<i32>().ok()?;
        let (low, high) = values.iter().fold((i32::MAX, i32::MIN), |(low, high), v| (low.min(*v), high.max(*v)));
        let [least, most] = [i32::from(i8::MIN), i32::from(i8::MAX)];
        let shift = if low >= least && high <= most { 0 } else { high.checked_sub(most)? };
        let codes: Option<Vec<i8>> = values.iter().map(|v| i8::try_from(v.checked_sub(shift)?).ok()).collect();
        Some(Packed { weights: pack(&codes?)?, shift })
    })
}

impl Codes {
    /// The code of zero.
    fn zero(&self, io: &StepIo<'_, '_>) -> OpResult<u8> {
        match self.zero {
            Some(port) => io.inputs[port].slice::<u8>()?.first().copied().ok_or_else(misfit),
            None => Ok(0),
        }
    }

    fn scaling(&self, zero: u8) -> Scaling<'_> {
        Scaling { zero: i32::from(zero), scales: &self.scales }
    }

    fn zero_fits(&self, shapes: &StepShapes<'_>) -> bool {
        self.zero.is_none_or(|port| shapes.inputs.get(port).is_some_and(|shape| shape.elements() == 1))
    }
}

impl Product {
    fn rows(&self, data: &Shape) -> usize {
        data.elements() / self.k.max(1)
    }
}

impl Kernel for Product {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let (data, output) = (shapes.inputs[0], shapes.outputs[0]);
        let is_whole = data.rank() >= 2 && data.last() == Some(&self.k);
        is_whole && output.elements() == self.rows(data) * self.n && self.codes.zero_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let filled = self.k.next_multiple_of(QUAD);
        if filled == self.k { 0 } else { self.rows(shapes.inputs[0]) * filled }
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        nanoseconds_for_flops(2 * (self.rows(shapes.inputs[0]) * self.k * self.n) as u64) / 3
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let (zero, scratch) = (self.codes.zero(&io)?, std::mem::take(&mut io.scratch));
        let [output] = io.outputs else { return Ok(()) };
        let (data, result) = (io.inputs[0].slice::<u8>()?, output.slice_mut::<f32>()?);
        let (rows, filled) = (data.len() / self.k.max(1), self.k.next_multiple_of(QUAD));
        let codes = if filled == self.k {
            data
        } else {
            let codes = scratch.get_mut(..rows * filled).ok_or_else(misfit)?;
            pad_rows(self.k, data, codes).map_err(kernel_error)?;
            codes
        };
        let (weights, scaling, epilogue) =
            (&self.packed.weights, self.codes.scaling(zero), QuantizedEpilogue::default());
        let target = QuantizedOutput::Values(&mut *result);
        quantized_product(self.codes.isa, rows, weights, &scaling, codes, target, &epilogue).map_err(kernel_error)?;
        let shift = self.packed.shift;
        if shift != 0 {
            let zeros = self.k as i32 * i32::from(zero);
            parallel_chunks_mut(result, self.n.max(1), nanoseconds_for_bytes(8 * rows * self.n), |row, values| {
                let sum: i32 = data[row * self.k..][..self.k].iter().map(|code| i32::from(*code)).sum();
                let more = (sum - zeros).wrapping_mul(shift) as f32;
                values.iter_mut().for_each(|value| *value += more);
            });
        }
        Ok(())
    }
}

/// How a convolution runs on some data.
struct Placed {
    geometry: ConvolutionGeometry,
    /// What bytes are multiplied of, and the geometry of the sums of the data of each group, whose groups are images.
    of_bytes: Option<(CodePlanes, ConvolutionGeometry)>,
    images: usize,
    /// Channels and positions of the data and of the result.
    channels: [usize; 2],
    positions: [usize; 2],
}

impl Convolution {
    fn place(&self, data: &Shape) -> Option<Placed> {
        let geometry = self.form.geometry(data, &self.filter).ok()?;
        let of_sums = sums_geometry(geometry.clone())?;
        let geometry = kernel_geometry(&geometry).ok()?;
        let of_bytes = match &self.weights {
            Weights::Bytes(layout, ..) => Some((CodePlanes::of_convolution(&geometry, *layout)?, of_sums)),
            Weights::Depthwise(_) => None,
        };
        let ([_, outputs, channels], images) = (sizes(&self.form, &self.filter)?, *data.first()?);
        let positions_of = |len: usize, channels: usize| len.checked_div(images.checked_mul(channels)?);
        let positions = [positions_of(geometry.input_len(), channels)?, positions_of(geometry.output_len(), outputs)?];
        Some(Placed { geometry, of_bytes, images, channels: [channels, outputs], positions })
    }

    /// Whether codes are read as they are, of few channels.
    fn is_plain(&self) -> bool {
        matches!(self.weights, Weights::Bytes(CodeLayout::Quads | CodeLayout::Rows, ..))
    }

    /// Bytes of the parts of the scratch: blocked codes, planes of codes, blocked sums, and the sums of data and of windows.
    fn scratch(&self, placed: &Placed) -> [usize; 5] {
        let ([channels, outputs], [positions, of_result]) = (placed.channels, placed.positions);
        let (of_planes, of_sums) = match (&placed.of_bytes, &self.weights) {
            (Some((planes, sums)), Weights::Bytes(_, _, ones)) => {
                let of_sums = if ones.is_some() { [sums.input_len(), sums.output_len()] } else { [0; 2] };
                (if planes.are_input() { 0 } else { planes.len() }, of_sums)
            }
            _ => (0, [0; 2]),
        };
        [
            if self.is_plain() { 0 } else { blocked_len(placed.images, channels, positions) },
            of_planes,
            blocked_len(placed.images, outputs, of_result).saturating_mul(4),
            of_sums[0].saturating_mul(4),
            of_sums[1].saturating_mul(4),
        ]
        .map(|bytes| bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX))
    }
}

impl Ones {
    /// Adds to the result what the integer that was taken from the constant adds.
    fn add(
        &self,
        isa: Isa,
        (placed, of_sums): (&Placed, &ConvolutionGeometry),
        (zero, data): (u8, &[u8]),
        [of_data, of_windows]: [&mut [f32]; 2],
        result: &mut [f32],
    ) -> OpResult {
        let ([channels, outputs], [positions, of_result]) = (placed.channels, placed.positions);
        let groups = (of_sums.input_len() / (placed.images * positions).max(1)).max(1);
        let (channels, outputs) = (channels / groups, outputs / groups);
        let of_data = of_data.get_mut(..of_sums.input_len()).ok_or_else(misfit)?;
        let of_windows = of_windows.get_mut(..of_sums.output_len()).ok_or_else(misfit)?;
        let zeros = channels as f32 * f32::from(zero);
        parallel_chunks_mut(of_data, positions.max(1), nanoseconds_for_bytes(data.len()), |group, sums| {
            sums.fill(-zeros);
            for line in data[group * channels * positions..][..channels * positions].chunks_exact(positions.max(1)) {
                sums.iter_mut().zip(line).for_each(|(sum, code)| *sum += f32::from(*code));
            }
        });
        let epilogue = ConvolutionEpilogue::default();
        kernels::convolution(isa, of_sums, &self.filter, of_data, of_windows, &epilogue).map_err(kernel_error)?;
        let work = nanoseconds_for_bytes(result.len().saturating_mul(8));
        parallel_chunks_mut(result, of_result.max(1), work, |channel, values| {
            let sums = &of_windows[channel / outputs * of_result..][..of_result];
            values.iter_mut().zip(sums).for_each(|(value, sum)| *value += self.shift * sum);
        });
        Ok(())
    }
}

impl Kernel for Convolution {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let len = self.place(shapes.inputs[0]).map(|placed| placed.geometry.output_len());
        len == Some(shapes.outputs[0].elements()) && len > Some(0) && self.codes.zero_fits(shapes)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let placed = self.place(shapes.inputs[0]);
        placed.map_or(0, |placed| self.scratch(&placed).into_iter().fold(0, usize::saturating_add))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        self.place(shapes.inputs[0]).map_or(0, |placed| nanoseconds_for_flops(placed.geometry.flops()) / 3)
    }

    fn run(&self, mut io: StepIo<'_, '_>) -> OpResult {
        let (isa, zero, mut rest) = (self.codes.isa, self.codes.zero(&io)?, std::mem::take(&mut io.scratch));
        let [output] = io.outputs else { return Ok(()) };
        let (data, result) = (io.inputs[0].slice::<u8>()?, output.slice_mut::<f32>()?);
        let placed = self.place(io.inputs[0].shape()).ok_or_else(misfit)?;
        let mut parts: [&mut [u8]; 5] = Default::default();
        for (part, bytes) in parts.iter_mut().zip(self.scratch(&placed)) {
            (*part, rest) = rest.split_at_mut_checked(bytes).ok_or_else(misfit)?;
        }
        let [blocked, codes, sums, of_data, of_windows] = parts;
        let ([channels, outputs], [positions, of_result]) = (placed.channels, placed.positions);
        let input = if self.is_plain() {
            data
        } else {
            let blocked = &mut blocked[..blocked_len(placed.images, channels, positions)];
            codes_from_plain(placed.images, channels, positions, data, blocked).map_err(kernel_error)?;
            blocked
        };
        let sums = &mut scratch_f32(sums)[..blocked_len(placed.images, outputs, of_result)];
        let target = QuantizedOutput::Values(&mut *sums);
        match (&self.weights, &placed.of_bytes) {
            (Weights::Bytes(_, packed, _), Some((planes, _))) => {
                let input = if planes.are_input() {
                    input
                } else {
                    let codes = &mut codes[..planes.len()];
                    planes.pad(zero, input, codes).map_err(kernel_error)?;
                    codes
                };
                let (scaling, epilogue) = (self.codes.scaling(zero), QuantizedEpilogue::default());
                quantized_convolution(isa, &placed.geometry, &packed.weights, &scaling, input, target, &epilogue)
            }
            (Weights::Depthwise(weights), _) => {
                let zero = f32::from(zero);
                let values = Decodings::new(&[-zero], &[255.0 - zero], 255.0).map_err(kernel_error)?;
                let (input, epilogue) = (DepthwiseInput::Codes(input, &values), ConvolutionEpilogue::default());
                blocked_depthwise(isa, &placed.geometry, weights.weights(), input, target, &epilogue)
            }
            (Weights::Bytes(..), None) => return Err(misfit()),
        }
        .map_err(kernel_error)?;
        to_plain(placed.images, outputs, of_result, sums, result).map_err(kernel_error)?;
        match (&self.weights, &placed.of_bytes) {
            (Weights::Bytes(_, _, Some(ones)), Some((_, of_sums))) => {
                let scratch = [scratch_f32(of_data), scratch_f32(of_windows)];
                ones.add(isa, (&placed, of_sums), (zero, data), scratch, result)
            }
            _ => Ok(()),
        }
    }
}
