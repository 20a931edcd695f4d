//! Products and convolutions of i32 with a constant operand, as quantised ONNX models have them.
//!
//! The values of such models fit into nine bits, so their products are summed in f32, where integers up to 2^24 are
//! exact: the constant is cut along the summed axis into pieces whose sums stay below that, and data that does not fit
//! is taken apart into bytes. The result is the integer's, wrapping included, at any size of the data.
//!
//! Products of two computed operands, or with constants too large for that, are those of integers.

use std::sync::Arc;

use ovir_kernels::convolution::{self as kernels, PackedConvolution};
use ovir_kernels::epilogue::{Activation, Epilogue};
use ovir_kernels::gemm::{MatMulGeometry, PackedB, gemm_packed_b, gemm_packed_b_scratch_len, matmul_i32};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::{nanoseconds_for_flops, parallel_chunks_mut};
use ovir_ops::matrix::matmul::MatMul;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::convolution::{Form, kernel_geometry, smallest_data};
use super::parts::{kernel_error, scratch_f32};
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// The largest magnitude of a piece of data.
const LARGEST_DATA: u64 = 255;

/// Integers up to here are exact in f32, and so are sums of them that stay below it.
const LARGEST_EXACT: u64 = 1 << 24;

/// Elements that are converted or added as one piece of work.
const GRAIN: usize = 16 * 1024;

/// A part of the constant along the summed axis.
struct Piece<W> {
    start: usize,
    length: usize,
    weights: W,
}

/// `[rows, k] * [k, n]`.
struct Product {
    isa: Isa,
    k: usize,
    n: usize,
    pieces: Arc<Vec<Piece<PackedB>>>,
}

/// A convolution. Several groups have one piece.
struct Convolution {
    isa: Isa,
    form: Form,
    filter: Shape,
    pieces: Arc<Vec<Piece<PackedConvolution>>>,
}

/// A product of any two operands.
struct AnyProduct {
    isa: Isa,
    transposes: [bool; 2],
}

/// Claims products of i32, and convolutions of i32 with a constant filter.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let is_i32 = |port: usize| context.inputs.get(port).is_some_and(|facts| facts.element_type == ElementType::I32);
    if context.node.inputs.len() != 2 || !is_i32(0) || !is_i32(1) {
        return None;
    }
    let kernel: Box<dyn Kernel> = match Form::of(&*context.node.operation) {
        Some(form) => Box::new(convolution(context, form)?),
        None => match product(context) {
            Some(product) => Box::new(product),
            None => {
                let attributes = &context.node.operation.downcast_ref::<MatMul>()?.attributes;
                let transposes = [attributes.transpose_a, attributes.transpose_b];
                let kernel = Box::new(AnyProduct { isa: isa::detect(), transposes });
                return Some(Claim { kernel, packed_inputs: SmallVec::new() });
            }
        },
    };
    Some(Claim { kernel, packed_inputs: SmallVec::from_slice(&[1]) })
}

fn product(context: &mut ClaimContext<'_>) -> Option<Product> {
    let attributes = context.node.operation.downcast_ref::<MatMul>()?.attributes.clone();
    if attributes.transpose_a || context.inputs[0].shape.rank()? < 2 {
        return None;
    }
    let tensor = (context.constant)(1)?;
    let (batch, matrix) = tensor.shape().split_at(tensor.shape().rank().checked_sub(2)?);
    if batch.iter().any(|size| *size != 1) || matrix.contains(&0) {
        return None;
    }
    let (k, n) = if attributes.transpose_b { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
    let strides = if attributes.transpose_b { (1, k) } else { (n, 1) };
    let isa = isa::detect();
    let key = context.key(1, &tensor);
    let pieces = context.packed.get(key, format!("integer matmul {k}x{n} {strides:?}"), || {
        let aligned = tensor.aligned().ok()?;
        let values = aligned.slice::<i32>().ok()?;
        let weight = |row: usize, column: usize| values[row * strides.0 + column * strides.1].unsigned_abs().into();
        let pack = |start: usize, length: usize| {
            let wide: Vec<f32> = values[start * strides.0..].iter().map(|v| *v as f32).collect();
            PackedB::pack(isa, length, n, &wide, strides.0, strides.1).ok()
        };
        pieces(k, n, weight, pack)
    })?;
    Some(Product { isa, k, n, pieces })
}

fn convolution(context: &mut ClaimContext<'_>, form: Form) -> Option<Convolution> {
    let filter = (context.constant)(1)?;
    let shape = filter.shape().clone();
    if shape.elements() == 0 {
        return None;
    }
    // [channels out of all groups, channels into one group, kernel].
    let (outputs, inputs, kernel) = match &form {
        Form::Plain(_) => (shape[0], shape[1], shape[2..].iter().product::<usize>()),
        Form::Grouped(_) => (shape[0] * shape[1], shape[2], shape[3..].iter().product()),
    };
    let isa = isa::detect();
    let geometry = form.geometry(&smallest_data(&form, &shape)?, &shape).ok()?;
    let grouped = geometry.groups > 1;
    let key = context.key(1, &filter);
    let pieces = context.packed.get(key, format!("integer convolution {shape}"), || {
        let aligned = filter.aligned().ok()?;
        let values = aligned.slice::<i32>().ok()?;
        let taps = |channel: usize, output: usize| &values[(output * inputs + channel) * kernel..][..kernel];
        let weight = |channel: usize, output: usize| {
            taps(channel, output).iter().map(|v| u64::from(v.unsigned_abs())).fold(0, u64::saturating_add)
        };
        let pack = |start: usize, length: usize| {
            if grouped && length < inputs {
                return None;
            }
            let channels = (0..outputs).flat_map(|output| (start..start + length).map(move |c| (c, output)));
            let part: Vec<f32> = channels.flat_map(|(c, output)| taps(c, output)).map(|v| *v as f32).collect();
            let mut geometry = geometry.clone();
            geometry.input_channels = length;
            PackedConvolution::pack(isa, &kernel_geometry(&geometry).ok()?, &part).ok()
        };
        pieces(inputs, outputs, weight, pack)
    })?;
    Some(Convolution { isa, form, filter: shape, pieces })
}

/// Cuts the summed axis into pieces whose sums are exact, whatever the data is. `weight` gives the magnitude of a
/// place for an output; `None` if it is too large alone.
fn pieces<W>(
    length: usize,
    outputs: usize,
    weight: impl Fn(usize, usize) -> u64,
    pack: impl Fn(usize, usize) -> Option<W>,
) -> Option<Vec<Piece<W>>> {
    let most = LARGEST_EXACT / LARGEST_DATA;
    let (mut found, mut start) = (Vec::new(), 0);
    let mut sums = vec![0u64; outputs];
    for place in 0..length {
        let weights = |output: usize| weight(place, output);
        if (0..outputs).any(|output| weights(output) > most) {
            return None;
        }
        if (0..outputs).any(|output| sums[output] + weights(output) > most) {
            found.push(Piece { start, length: place - start, weights: pack(start, place - start)? });
            start = place;
            sums.fill(0);
        }
        sums.iter_mut().enumerate().for_each(|(output, sum)| *sum += weights(output));
    }
    found.push(Piece { start, length: length - start, weights: pack(start, length - start)? });
    Some(found)
}

/// The shifts by which the data is taken apart: none where it fits, else one for each byte.
fn shifts(data: &[i32]) -> &'static [Option<u32>] {
    let largest = data.iter().map(|v| v.unsigned_abs()).max().unwrap_or(0);
    if u64::from(largest) <= LARGEST_DATA { &[None] } else { &[Some(0), Some(8), Some(16), Some(24)] }
}

fn part_of(value: i32, shift: Option<u32>) -> f32 {
    shift.map_or(value as f32, |shift| ((value as u32 >> shift) & 0xff) as f32)
}

/// Adds the sums of one piece and one part of the data to the result, which begins with the first of them.
fn add(result: &mut [i32], sums: &[f32], shift: Option<u32>, is_first: bool) {
    let shift = shift.unwrap_or(0);
    parallel_chunks_mut(result, GRAIN, sums.len() as u64 / 4, |index, chunk| {
        let sums = &sums[index * GRAIN..][..chunk.len()];
        for (target, sum) in chunk.iter_mut().zip(sums) {
            let before = if is_first { 0 } else { *target };
            *target = before.wrapping_add((*sum as i32).wrapping_shl(shift));
        }
    });
}

fn largest_piece<W>(pieces: &[Piece<W>]) -> usize {
    pieces.iter().map(|piece| piece.length).max().unwrap_or(0)
}

/// Three parts of the scratch, of the first two lengths and the rest.
fn split(scratch: &mut [f32], first: usize, second: usize) -> OpResult<[&mut [f32]; 3]> {
    let missing = || OpError::shape(Blame::Node, "the scratch is too short");
    let (a, rest) = scratch.split_at_mut_checked(first).ok_or_else(missing)?;
    let (b, rest) = rest.split_at_mut_checked(second).ok_or_else(missing)?;
    Ok([a, b, rest])
}

impl Product {
    fn rows(&self, shapes: &StepShapes<'_>) -> usize {
        shapes.inputs[0].elements() / self.k
    }
}

impl Kernel for Product {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let (data, output) = (shapes.inputs[0], shapes.outputs[0]);
        data.rank() >= 2 && data.last() == Some(&self.k) && output.elements() == self.rows(shapes) * self.n
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let (rows, piece) = (self.rows(shapes), largest_piece(&self.pieces));
        4 * (rows * piece + rows * self.n + gemm_packed_b_scratch_len(self.isa, rows, piece, piece))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        nanoseconds_for_flops(2 * (self.rows(shapes) * self.k * self.n) as u64)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let (data, result) = (io.inputs[0].slice::<i32>()?, output.slice_mut::<i32>()?);
        let rows = data.len() / self.k;
        let [left, sums, rest] = split(scratch_f32(io.scratch), rows * largest_piece(&self.pieces), rows * self.n)?;
        let epilogue = Epilogue { activation: Activation::None, ..Epilogue::default() };
        for (first, shift) in shifts(data).iter().enumerate() {
            for (number, piece) in self.pieces.iter().enumerate() {
                let left = &mut left[..rows * piece.length];
                for (target, row) in left.chunks_exact_mut(piece.length).zip(data.chunks_exact(self.k)) {
                    let row = &row[piece.start..][..piece.length];
                    target.iter_mut().zip(row).for_each(|(t, v)| *t = part_of(*v, *shift));
                }
                let (weights, k) = (&piece.weights, piece.length);
                gemm_packed_b(self.isa, rows, left, k, weights, sums, self.n, &epilogue, rest).map_err(kernel_error)?;
                add(result, sums, *shift, first == 0 && number == 0);
            }
        }
        Ok(())
    }
}

impl AnyProduct {
    fn geometry(&self, [a, b, c]: [&Shape; 3]) -> Option<MatMulGeometry> {
        super::matmul::geometry(self.transposes, a, b, c)
    }
}

impl Kernel for AnyProduct {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        self.geometry([shapes.inputs[0], shapes.inputs[1], shapes.outputs[0]]).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let depth = self.geometry([shapes.inputs[0], shapes.inputs[1], shapes.outputs[0]]).map_or(0, |g| g.k);
        nanoseconds_for_flops(4 * shapes.outputs[0].elements() as u64 * depth as u64)
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let geometry = self.geometry([io.inputs[0].shape(), io.inputs[1].shape(), output.shape()]);
        let geometry = geometry.ok_or_else(|| OpError::shape(Blame::Node, "the product has too many batch axes"))?;
        let [a, b] = [io.inputs[0].slice::<i32>()?, io.inputs[1].slice::<i32>()?];
        matmul_i32(self.isa, &geometry, a, b, output.slice_mut::<i32>()?).map_err(kernel_error)
    }
}

impl Convolution {
    /// The geometry of a piece, and the elements of a channel.
    fn piece_geometry(&self, data: &Shape, length: usize) -> OpResult<kernels::ConvolutionGeometry> {
        let mut geometry = self.form.geometry(data, &self.filter)?;
        geometry.input_channels = length;
        kernel_geometry(&geometry).map_err(kernel_error)
    }
}

impl Kernel for Convolution {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let geometry = self.piece_geometry(shapes.inputs[0], largest_piece(&self.pieces));
        geometry.is_ok_and(|g| g.output_len() == shapes.outputs[0].elements() && g.output_len() > 0)
    }

    fn scratch_bytes(&self, shapes: &StepShapes<'_>) -> usize {
        let geometry = self.piece_geometry(shapes.inputs[0], largest_piece(&self.pieces));
        geometry.map_or(0, |g| 4 * (g.input_len() + g.output_len()))
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        let flops = |piece: &Piece<_>| self.piece_geometry(shapes.inputs[0], piece.length).map_or(0, |g| g.flops());
        nanoseconds_for_flops(self.pieces.iter().map(flops).sum())
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        let [output] = io.outputs else { return Ok(()) };
        let (data, shape) = (io.inputs[0].slice::<i32>()?, io.inputs[0].shape());
        let result = output.slice_mut::<i32>()?;
        let whole = self.piece_geometry(shape, largest_piece(&self.pieces))?;
        let [planes, sums, _] = split(scratch_f32(io.scratch), whole.input_len(), whole.output_len())?;
        let (images, channels) = (shape[0], shape[1]);
        let plane = data.len() / (images * channels).max(1);
        let epilogue = kernels::ConvolutionEpilogue::default();
        for (first, shift) in shifts(data).iter().enumerate() {
            for (number, piece) in self.pieces.iter().enumerate() {
                let geometry = self.piece_geometry(shape, piece.length)?;
                let planes = &mut planes[..geometry.input_len()];
                let begin = piece.start * plane;
                for (image, target) in planes.chunks_exact_mut(geometry.input_len() / images).enumerate() {
                    let source = &data[image * channels * plane + begin..][..target.len()];
                    parallel_chunks_mut(target, GRAIN, source.len() as u64 / 4, |index, chunk| {
                        let source = &source[index * GRAIN..][..chunk.len()];
                        chunk.iter_mut().zip(source).for_each(|(t, v)| *t = part_of(*v, *shift));
                    });
                }
                kernels::convolution(self.isa, &geometry, &piece.weights, planes, sums, &epilogue)
                    .map_err(kernel_error)?;
                add(result, sums, *shift, first == 0 && number == 0);
            }
        }
        Ok(())
    }
}
