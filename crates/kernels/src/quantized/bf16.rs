//! Convolutions and products of values that are rounded to bf16, summed in f32.
//!
//! A pair of bf16 takes the place of four codes: the tiles are those of codes, with another instruction. It takes numbers that
//! are no normal ones for zeros. There are kernels only where [`has_bf16`] holds.

use half::bf16;

use crate::convolution::ConvolutionGeometry;
use crate::epilogue::Activation;
use crate::error::{KernelError, check_exact, product};
use crate::gemm::Value;
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};

use super::amx::has_amx;
pub use super::dots::has_bf16;
use super::{
    BLOCK, CodeLayout, CodePlanes, Element, Order, QuantizedEpilogue, QuantizedOutput, QuantizedResidual,
    QuantizedWeights, Scaling, pack_quads, parts_of, quantized_convolution, quantized_product, taps_in_order,
};

/// bf16 of a pair.
pub(super) const PAIR: usize = 2;

/// Values that a parallel chunk rounds at least.
const CHUNK: usize = 1 << 14;

/// The constant operand of a convolution or a product, rounded to bf16 and packed once.
#[derive(Debug, Clone)]
pub struct Bf16Weights {
    weights: QuantizedWeights,
    /// What sums are multiplied with.
    ones: Vec<f32>,
}

/// What is done to the sums: `activation(sum + bias + residual)`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bf16Epilogue<'a> {
    /// Added to every position of an output channel.
    pub bias: Option<&'a [f32]>,
    /// Added elementwise; laid out as the output.
    pub residual: Option<&'a [f32]>,
    /// Applied last; the slopes of a PReLU are [`PerRow`](crate::epilogue::Channelwise::PerRow), one per output channel.
    pub activation: Activation<'a>,
}

impl Bf16Weights {
    /// Packs the values `[output channels, input channels of a group, depth, height, width]` of a convolution.
    ///
    /// # Errors
    /// The number of values is wrong, the geometry has groups that are no whole blocks of both channels, or there are no
    /// channels.
    pub fn of_convolution<T: Value>(
        isa: Isa,
        geometry: &ConvolutionGeometry,
        values: &[T],
    ) -> Result<Self, KernelError> {
        check_exact("values", values.len(), geometry.weights_len())?;
        let ([groups, outputs, inputs, high, wide], deep) = (geometry.channels_and_kernel(), geometry.depth().taps);
        let are_blocks = |channels: usize| (channels / groups).is_multiple_of(BLOCK);
        if groups > 1 && !(are_blocks(inputs) && are_blocks(outputs)) {
            return Err(KernelError::invalid("geometry", "has groups of parts of blocks"));
        }
        let is_for_tiles = groups == 1 && has_amx(isa, Element::Bf16);
        let layout = if is_for_tiles { CodeLayout::TileHalves } else { CodeLayout::Halves };
        let (taps, inputs) = (deep * high * wide, inputs / groups);
        let run = [layout.lanes(inputs), geometry.dilation()[2]];
        let shape = [outputs, deep, high, wide, inputs];
        Self::pack(shape, layout, run, values, &taps_in_order(taps), [inputs * taps, taps])
    }

    /// Packs a matrix of `k` rows and `n` columns, whose values lie so far apart along both.
    ///
    /// # Errors
    /// There are no rows, or the values do not lie in the slice.
    pub fn of_matrix<T: Value>(
        [k, n]: [usize; 2],
        values: &[T],
        [row_stride, column_stride]: [usize; 2],
    ) -> Result<Self, KernelError> {
        let len = crate::error::span("values", &[(k, row_stride), (n, column_stride)])?;
        crate::error::check_len("values", values.len(), len)?;
        let (layout, run) = (CodeLayout::Halves, [k.next_multiple_of(PAIR), 1]);
        Self::pack([n, 1, 1, 1, k], layout, run, values, &[0], [column_stride, row_stride])
    }

    /// Rows and columns of a matrix.
    #[must_use]
    pub fn matrix(&self) -> [usize; 2] {
        [self.weights.shape[4], self.weights.shape[0]]
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.weights.values.len()
    }

    fn pack<T: Value>(
        shape: [usize; 5],
        layout: CodeLayout,
        [channels, across]: [usize; 2],
        values: &[T],
        taps: &[usize],
        strides: [usize; 2],
    ) -> Result<Self, KernelError> {
        if shape.contains(&0) {
            return Err(KernelError::invalid("values", "there is nothing to sum"));
        }
        let halves = |value: T| bf16::from_f32(value.widen()).to_le_bytes().map(u8::cast_signed);
        let order = Order::new(layout, [shape[3], across], shape[4], channels)?;
        let values = pack_quads(shape, order, values, taps, strides, halves)?;
        let parts = parts_of(layout, shape[3]);
        let sums = vec![0; product("values", &[shape[0].next_multiple_of(BLOCK), shape[1], shape[2], parts])?];
        let lanes = channels * PAIR;
        let weights = QuantizedWeights { shape, layout, lanes, apart: lanes, order, values, sums };
        Ok(Self { weights, ones: vec![1.0; shape[0]] })
    }

    fn scaling(&self) -> Scaling<'_> {
        Scaling { zero: 0, scales: &self.ones }
    }
}

impl<'a> Bf16Epilogue<'a> {
    fn of_codes(&self) -> QuantizedEpilogue<'a> {
        let residual = self.residual.map_or(QuantizedResidual::None, QuantizedResidual::Values);
        QuantizedEpilogue { bias: self.bias, inner: None, residual, activation: self.activation }
    }
}

impl Bf16Weights {
    /// Bytes of scratch that a convolution needs; `None` where its windows cover far more than the input.
    #[must_use]
    pub fn convolution_scratch(&self, geometry: &ConvolutionGeometry) -> Option<usize> {
        CodePlanes::of_convolution(geometry, self.weights.layout).map(|planes| planes.len())
    }
}

/// Convolves blocked `input`, rounded to bf16, into blocked `output`; a residual of the epilogue is blocked. Bias and slopes are
/// indexed by channel. `scratch` has as many bytes as [`Bf16Weights::convolution_scratch`] tells.
///
/// # Errors
/// A slice has the wrong length, the weights were packed for another shape, or the machine has no instruction.
pub fn bf16_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &Bf16Weights,
    input: &[f32],
    output: &mut [f32],
    epilogue: &Bf16Epilogue<'_>,
    scratch: &mut [u8],
) -> Result<(), KernelError> {
    check_machine(isa)?;
    let far = || KernelError::invalid("geometry", "has padding far larger than its input");
    let planes = CodePlanes::of_convolution(geometry, weights.weights.layout).ok_or_else(far)?;
    let halves = take(scratch, planes.len())?;
    planes.round(input, halves, |from, to| round(isa, from, to))?;
    let (target, epilogue) = (QuantizedOutput::Values(output), epilogue.of_codes());
    quantized_convolution(isa, geometry, &weights.weights, &weights.scaling(), halves, target, &epilogue)
}

/// Multiplies `[rows, k]`, rounded to bf16 by [`round_rows`], with a packed matrix into `[rows, n]`. A residual of the epilogue
/// is `[rows, n]` too; bias and slopes are indexed by column.
///
/// # Errors
/// A slice has the wrong length, the weights are those of a convolution, or the machine has no instruction.
pub fn bf16_product(
    isa: Isa,
    rows: usize,
    weights: &Bf16Weights,
    input: &[u8],
    output: &mut [f32],
    epilogue: &Bf16Epilogue<'_>,
) -> Result<(), KernelError> {
    check_machine(isa)?;
    let (target, epilogue) = (QuantizedOutput::Values(output), epilogue.of_codes());
    quantized_product(isa, rows, &weights.weights, &weights.scaling(), input, target, &epilogue)
}

/// Rounds a matrix of so many columns to bf16, with rows filled up to whole pairs with zeros.
///
/// # Errors
/// A slice has the wrong length, or the machine has no instruction.
pub fn round_rows(isa: Isa, columns: usize, input: &[f32], output: &mut [u8]) -> Result<(), KernelError> {
    check_machine(isa)?;
    let (rows, bytes) = (input.len() / columns.max(1), columns.next_multiple_of(PAIR) * 2);
    check_exact("input", input.len(), product("input", &[rows, columns])?)?;
    check_exact("output", output.len(), product("output", &[rows, bytes])?)?;
    let shared = SharedMut::new(output);
    let work = nanoseconds_for_bytes(input.len().saturating_mul(6));
    parallel_for(rows, CHUNK.div_ceil(columns.max(1)), work, |range| {
        for row in range {
            // SAFETY: rows are disjoint.
            let line = unsafe { shared.slice(row * bytes..(row + 1) * bytes) };
            round(isa, &input[row * columns..(row + 1) * columns], line);
            line[columns * 2..].fill(0);
        }
    });
    Ok(())
}

fn check_machine(isa: Isa) -> Result<(), KernelError> {
    if has_bf16(isa) { Ok(()) } else { Err(KernelError::invalid("isa", "has no products of bf16")) }
}

fn take(scratch: &mut [u8], bytes: usize) -> Result<&mut [u8], KernelError> {
    let given = scratch.len();
    let reason = "slice is too short";
    scratch.get_mut(..bytes).ok_or(KernelError { argument: "scratch", reason, required: bytes, given })
}

/// Rounds values. The machine has bf16.
pub(super) fn round(isa: Isa, from: &[f32], to: &mut [u8]) {
    debug_assert!(has_bf16(isa));
    #[cfg(target_arch = "x86_64")]
    if has_bf16(isa) {
        // SAFETY: the machine has the instructions.
        unsafe { super::dots::x86::round(from, to) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{blocked_len, from_plain, to_plain};
    use crate::testing::{Random, in_pool};
    use crate::unary::UnaryOp;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    fn rounded(value: f32) -> f64 {
        f64::from(bf16::from_f32(value).to_f32())
    }

    fn machine() -> Option<Isa> {
        Isa::available().find(|isa| has_bf16(*isa))
    }

    fn close(result: &[f32], expected: &[f64], terms: usize) -> Result<(), TestCaseError> {
        for (a, b) in result.iter().zip(expected) {
            prop_assert!((f64::from(*a) - b).abs() <= 1e-6 * (terms as f64 + 1.0), "{a} should be {b}");
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn products_are_those_of_rounded_values(seed: u64) {
            let Some(isa) = machine() else { return Ok(()) };
            let mut random = Random::new(seed);
            let (rows, k, n) = (random.between(1, 40), random.between(1, 90), random.between(1, 70));
            let (data, values) = (random.values(rows * k), random.values(k * n));
            let (bias, residual) = (random.values(n), random.values(rows * n));
            let is_transposed = random.between(0, 1) == 1;
            let strides = if is_transposed { [1, k] } else { [n, 1] };
            let weights = Bf16Weights::of_matrix([k, n], &values, strides).unwrap();
            prop_assert_eq!(weights.matrix(), [k, n]);
            let mut halves = vec![7; rows * k.next_multiple_of(2) * 2];
            round_rows(isa, k, &data, &mut halves).unwrap();
            let activation = Activation::Unary(UnaryOp::Relu);
            let epilogue = Bf16Epilogue { bias: Some(&bias), residual: Some(&residual), activation };
            let expected: Vec<f64> = (0..rows * n).map(|index| {
                let (row, column) = (index / n, index % n);
                let term = |i: usize| rounded(data[row * k + i]) * rounded(values[i * strides[0] + column * strides[1]]);
                let sum = (0..k).map(term).sum::<f64>();
                (sum + f64::from(bias[column]) + f64::from(residual[index])).max(0.0)
            }).collect();
            let run = || {
                let mut output = vec![f32::NAN; rows * n];
                bf16_product(isa, rows, &weights, &halves, &mut output, &epilogue).unwrap();
                output
            };
            close(&run(), &expected, k)?;
            prop_assert_eq!(run(), in_pool(2, run));
        }

        #[test]
        fn convolutions_are_those_of_rounded_values(seed: u64) {
            let Some(isa) = machine() else { return Ok(()) };
            let mut random = Random::new(seed);
            let groups = [1, 1, 2][random.between(0, 2)];
            let inputs = if groups > 1 { 32 } else { random.between(1, 40) };
            let outputs = if groups > 1 { 64 } else { random.between(1, 50) };
            let is_volume = random.between(0, 2) == 0;
            let mut three = |low, high, flat| {
                let deep = random.between(low, high);
                [if is_volume { deep } else { flat }, random.between(low, high), random.between(low, high)]
            };
            let (kernel, stride, dilation) = (three(1, 3, 1), three(1, 2, 1), three(1, 2, 1));
            let (pad, size) = (three(0, 2, 0), three(5, 9, 1));
            let geometry =
                ConvolutionGeometry::new(2, groups, inputs, outputs, size, kernel, stride, dilation, pad, pad).unwrap();
            let (plane, to) = (size.iter().product::<usize>(), geometry.output_len() / 2 / outputs);
            let (data, values) = (random.values(2 * inputs * plane), random.values(geometry.weights_len()));
            let bias = random.values(outputs);
            // The same convolution by the plain kernel, of values that are bf16.
            let plain = |values: &[f32]| values.iter().map(|value| rounded(*value) as f32).collect::<Vec<f32>>();
            let packed = crate::convolution::PackedConvolution::pack(isa, &geometry, &plain(&values)).unwrap();
            let mut expected = vec![0.0; geometry.output_len()];
            let epilogue = crate::convolution::ConvolutionEpilogue { bias: Some(&bias), ..Default::default() };
            let rounded = plain(&data);
            crate::convolution::convolution(isa, &geometry, &packed, &rounded, &mut expected, &epilogue).unwrap();
            let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
            let weights = Bf16Weights::of_convolution(isa, &geometry, &values).unwrap();
            let mut blocked = vec![0.0; blocked_len(2, inputs, plane)];
            from_plain(2, inputs, plane, &data, &mut blocked).unwrap();
            let mut scratch = vec![9; weights.convolution_scratch(&geometry).unwrap()];
            let mut output = vec![f32::NAN; blocked_len(2, outputs, to)];
            let epilogue = Bf16Epilogue { bias: Some(&bias), ..Default::default() };
            bf16_convolution(isa, &geometry, &weights, &blocked, &mut output, &epilogue, &mut scratch).unwrap();
            let mut result = vec![0.0; geometry.output_len()];
            to_plain(2, outputs, to, &output, &mut result).unwrap();
            close(&result, &expected, geometry.weights_len() / outputs)?;
            let short = scratch.len() - 1;
            let refused =
                bf16_convolution(isa, &geometry, &weights, &blocked, &mut output, &epilogue, &mut scratch[..short]);
            prop_assert!(refused.is_err());
        }
    }

    #[test]
    fn values_are_rounded_to_even_and_stay_what_they_are() {
        let Some(isa) = machine() else { return };
        let values = [1.0, -2.5, 1.003_906_3, 1.011_718_8, f32::INFINITY, f32::NEG_INFINITY, 3.4e38, 0.0, -0.0, 1e-20];
        let mut halves = vec![0; values.len() * 2];
        round_rows(isa, values.len(), &values, &mut halves).unwrap();
        for (value, half) in values.iter().zip(halves.chunks(2)) {
            assert_eq!(bf16::from_le_bytes([half[0], half[1]]), bf16::from_f32(*value), "{value}");
        }
        let mut halves = [0; 4];
        round_rows(isa, 2, &[f32::NAN, 1e-40], &mut halves).unwrap();
        assert!(bf16::from_le_bytes([halves[0], halves[1]]).is_nan());
        assert_eq!(halves[2..], [0, 0]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(Bf16Weights::of_matrix([0, 4], &[0.0; 4], [4, 1]).is_err());
        assert!(Bf16Weights::of_matrix([2, 4], &[0.0; 7], [4, 1]).is_err());
        let weights = Bf16Weights::of_matrix([2, 4], &[0.0; 8], [4, 1]).unwrap();
        let run = |isa, input: usize, output: usize| {
            bf16_product(isa, 1, &weights, &vec![0; input], &mut vec![0.0; output], &Bf16Epilogue::default())
        };
        assert!(run(Isa::portable(), 4, 4).is_err());
        if let Some(isa) = machine() {
            assert!(run(isa, 4, 4).is_ok());
            assert!(run(isa, 3, 4).is_err());
            assert!(run(isa, 4, 5).is_err());
        }
    }
}
