//! Convolution and transposed convolution in f32 over plain `[N, C, D, H, W]` data.
//!
//! Up to three spatial axes; with fewer, the leading ones have size 1. A group's convolution is a matrix product of
//! its weights `[output channels, input channels * taps]`, packed once, with the patches of the input, which are laid
//! out panel by panel while they are used and never as a whole. Those of few channels, depthwise ones among them, run
//! directly, line by line.

mod depthwise;
mod lines;
mod patches;
mod transposed;

pub(crate) use transposed::PlanePhase;
pub use transposed::{
    PackedTransposedConvolution, TransposedConvolutionGeometry, transposed_convolution,
    transposed_convolution_scratch_len,
};

use crate::blocked::{AxisView, PlaneView};
use crate::epilogue::{Activation, Channelwise, Epilogue, Residual};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::gemm::{Block, Left, MOST_ROWS, PackedA, Small, Value, flops, plan_tasks};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use patches::{Axis, Patches};
use std::ops::Range;

/// The most output channels of pointwise convolutions that read positions where they lie.
const MOST_READ_IN_PLACE: usize = 2 * MOST_ROWS;

/// The least positions of planes that are read so.
const LONG_PLANE: usize = 128;

/// The most positions that are read at a time.
const LONGEST_PIECE: usize = 1024;

/// The values that are read at a time where they are read twice.
const PIECE_VALUES: usize = 1 << 16;

/// Positions that windows may cover besides four times those of the input.
pub(crate) const MOST_PADDING: usize = 1 << 12;

/// The sizes of one convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvolutionGeometry {
    batch: usize,
    groups: usize,
    input_channels: usize,
    output_channels: usize,
    input: [usize; 3],
    kernel: [usize; 3],
    stride: [usize; 3],
    dilation: [usize; 3],
    pad_begin: [usize; 3],
    output: [usize; 3],
}

impl ConvolutionGeometry {
    /// A geometry. Channels count all groups; spatial arrays are `[depth, height, width]` with leading ones (and zero
    /// pads) where the data has fewer axes. `output` follows from the rest:
    /// `(input + pad_begin + pad_end - ((kernel - 1) * dilation + 1)) / stride + 1`. Pads are zeros.
    ///
    /// # Errors
    /// A size that must not be zero is, channels do not divide by the groups, the kernel exceeds the padded input, or
    /// sizes overflow.
    pub fn new(
        batch: usize,
        groups: usize,
        input_channels: usize,
        output_channels: usize,
        input: [usize; 3],
        kernel: [usize; 3],
        stride: [usize; 3],
        dilation: [usize; 3],
        pad_begin: [usize; 3],
        pad_end: [usize; 3],
    ) -> Result<Self, KernelError> {
        check_groups(groups, input_channels, output_channels)?;
        check_positive("kernel", &kernel)?;
        check_positive("stride", &stride)?;
        check_positive("dilation", &dilation)?;
        let mut output = [0; 3];
        for axis in 0..3 {
            let extent = extent(kernel[axis], dilation[axis]);
            let padded = input[axis].checked_add(pad_begin[axis]).and_then(|sum| sum.checked_add(pad_end[axis]));
            let (Some(extent), Some(padded)) = (extent, padded) else {
                return Err(KernelError::invalid("kernel", "the extent overflows"));
            };
            if padded > isize::MAX as usize / 4 || padded < extent {
                return Err(KernelError {
                    argument: "kernel",
                    reason: "exceeds the padded input",
                    required: extent,
                    given: padded,
                });
            }
            output[axis] = (padded - extent) / stride[axis] + 1;
        }
        let geometry =
            Self { batch, groups, input_channels, output_channels, input, kernel, stride, dilation, pad_begin, output };
        product("input", &[batch, input_channels, input[0], input[1], input[2]])?;
        product("output", &[batch, output_channels, output[0], output[1], output[2]])?;
        product("weights", &[output_channels, input_channels / groups, kernel[0], kernel[1], kernel[2]])?;
        Ok(geometry)
    }

    /// The spatial size of the result, `[depth, height, width]`.
    #[must_use]
    pub fn output(&self) -> [usize; 3] {
        self.output
    }

    /// Positions from one tap to the next: deep, down and across.
    #[must_use]
    pub fn dilation(&self) -> [usize; 3] {
        self.dilation
    }

    /// Elements of the input.
    #[must_use]
    pub fn input_len(&self) -> usize {
        self.batch * self.input_channels * volume(self.input)
    }

    /// Elements of the result.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.batch * self.output_channels * volume(self.output)
    }

    /// Elements of the weights, all groups included.
    #[must_use]
    pub fn weights_len(&self) -> usize {
        self.output_channels * (self.input_channels / self.groups) * volume(self.kernel)
    }

    /// Floating-point operations, those on padding included.
    #[must_use]
    pub fn flops(&self) -> u64 {
        let patch = self.input_channels / self.groups * volume(self.kernel);
        flops(self.batch, self.output_channels, patch, volume(self.output))
    }

    /// The estimated time on one thread of a convolution of plain data, in nanoseconds: taps are gathered from their lines,
    /// and channels are computed a few at a time.
    #[must_use]
    pub fn plain_nanoseconds(&self) -> u64 {
        /// The least output channels of a group that a tile has.
        const FEW_CHANNELS: u64 = 6;
        match (self.output_channels / self.groups) as u64 {
            0 => 0,
            1 => self.flops() / 32,
            channels => {
                let computed = (self.flops() / channels).saturating_mul(channels.max(FEW_CHANNELS)) / 50;
                computed.max(nanoseconds_for_bytes(self.input_len().saturating_mul(size_of::<f32>())))
            }
        }
    }

    /// The same where output channels are computed in blocks of so many, and there are no groups.
    pub(crate) fn flops_of_blocks(&self, block: usize) -> u64 {
        let channels =
            if self.groups == 1 { self.output_channels.next_multiple_of(block) } else { self.output_channels };
        Self { output_channels: channels, ..*self }.flops()
    }

    /// Whether there is more than one position along the depth anywhere.
    #[must_use]
    pub fn has_depth(&self) -> bool {
        has_depth(self.input, self.kernel, self.output, self.pad_begin)
    }

    /// The same convolution with the depth as part of the height, where every output position has products of the input
    /// position at its place only; otherwise this one.
    #[must_use]
    pub fn flattened(self) -> Self {
        let is_of_points = self.kernel == [1; 3] && self.stride == [1; 3] && self.pad_begin == [0; 3];
        if !is_of_points || self.input != self.output {
            return self;
        }
        let [deep, high, wide] = self.input;
        let plane = [1, deep * high, wide];
        Self { input: plane, output: plane, ..self }
    }

    /// `[groups, output channels, input channels, kernel height, kernel width]`.
    pub(crate) fn channels_and_kernel(&self) -> [usize; 5] {
        [self.groups, self.output_channels, self.input_channels, self.kernel[1], self.kernel[2]]
    }

    /// Height and width without the depth.
    pub(crate) fn plane(&self) -> PlaneView {
        let last = |sizes: [usize; 3]| [sizes[1], sizes[2]];
        PlaneView {
            batch: self.batch,
            input: last(self.input),
            output: last(self.output),
            stride: last(self.stride),
            dilation: last(self.dilation),
            pad: last(self.pad_begin),
        }
    }

    /// The depth alone.
    pub(crate) fn depth(&self) -> AxisView {
        AxisView {
            input: self.input[0],
            output: self.output[0],
            taps: self.kernel[0],
            stride: self.stride[0],
            dilation: self.dilation[0],
            pad: self.pad_begin[0],
        }
    }

    /// The depth, height and width that all windows together cover; `None` if that is far more than the input, as hostile
    /// pads make it.
    pub(crate) fn covered(&self) -> Option<[usize; 3]> {
        let covered = [0, 1, 2].map(|axis| {
            let last = self.output[axis].saturating_sub(1) * self.stride[axis];
            last + (self.kernel[axis] - 1) * self.dilation[axis] + 1
        });
        let positions = covered.iter().fold(1, |total: usize, size| total.saturating_mul(*size));
        (positions <= volume(self.input).saturating_mul(4).saturating_add(MOST_PADDING)).then_some(covered)
    }

    /// The same with those taps down and across alone that meet the input at some position, and which these are. Taps in front
    /// of which the input would have to be cut stay.
    pub(crate) fn reached(&self) -> (Self, [Range<usize>; 2]) {
        let mut reached = *self;
        let taps = [1, 2].map(|axis| {
            let [input, output, stride] = [self.input[axis], self.output[axis], self.stride[axis]];
            let [kernel, dilation, pad] = [self.kernel[axis], self.dilation[axis], self.pad_begin[axis]];
            let meets = |tap: &usize| {
                let place = tap * dilation;
                let position = pad.saturating_sub(place).div_ceil(stride);
                position < output && (position * stride + place).checked_sub(pad).is_some_and(|at| at < input)
            };
            let Some(first) = (0..kernel).find(meets) else { return 0..kernel };
            let last = (first..kernel).rfind(meets).unwrap_or(first);
            let first = first.min(pad / dilation);
            (reached.kernel[axis], reached.pad_begin[axis]) = (last + 1 - first, pad - first * dilation);
            first..last + 1
        });
        (reached, taps)
    }

    /// Whether a plain convolution of these sizes computes neighbouring columns side by side, without products of matrices.
    #[must_use]
    pub fn has_few_channels(&self) -> bool {
        lines::suits(self)
    }

    /// Whether a plain convolution with a filter for each channel computes neighbouring columns side by side: where there are so few
    /// of them that sums are of neighbouring products, it does not.
    #[must_use]
    pub fn has_lines(&self) -> bool {
        lines::fits(self) && !depthwise::suits(self)
    }

    /// Whether each output channel reads one input channel: as many as there are groups.
    fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.groups == self.input_channels
    }

    /// Whether each position is computed from that of the same place alone.
    fn is_pointwise(&self) -> bool {
        self.kernel == [1; 3] && self.stride == [1; 3] && self.input == self.output && self.pad_begin == [0; 3]
    }

    /// The axes of the patches; a pointwise convolution over whole planes is one long axis.
    fn axes(&self) -> [Axis; 3] {
        if self.is_pointwise() {
            let point = Axis { input: 1, output: 1, stride: 1, taps: 1, base: 0, increment: 0 };
            return [point, point, Axis { input: volume(self.input), output: volume(self.output), ..point }];
        }
        [0, 1, 2].map(|axis| Axis {
            input: self.input[axis],
            output: self.output[axis],
            stride: self.stride[axis],
            taps: self.kernel[axis],
            base: -(self.pad_begin[axis] as isize),
            increment: self.dilation[axis] as isize,
        })
    }
}

/// Weights of a convolution, packed for one tier.
#[derive(Debug, Clone)]
pub struct PackedConvolution {
    isa: Isa,
    weights: [usize; 6],
    form: Form,
}

#[derive(Debug, Clone)]
enum Form {
    /// One matrix per group, and the weights as they are where there are few channels.
    Groups(Vec<PackedA>, Vec<f32>),
    /// The weights as they are.
    Depthwise(Vec<f32>),
}

impl PackedConvolution {
    /// Packs the weights `[groups * output channels per group, input channels per group, depth, height, width]`
    /// (GroupConvolution's `[G, O, I, ...]` is the same memory). Only the channels, groups and kernel of the geometry
    /// matter: the result serves every batch, image size, stride, dilation and padding.
    ///
    /// # Errors
    /// The number of weights is not [`ConvolutionGeometry::weights_len`].
    pub fn pack<T: Value>(isa: Isa, geometry: &ConvolutionGeometry, weights: &[T]) -> Result<Self, KernelError> {
        check_exact("weights", weights.len(), geometry.weights_len())?;
        let shape = weights_shape(geometry);
        if geometry.is_depthwise() {
            let values = weights.iter().map(|value| value.widen()).collect();
            return Ok(Self { isa, weights: shape, form: Form::Depthwise(values) });
        }
        let rows = geometry.output_channels / geometry.groups;
        let columns = geometry.input_channels / geometry.groups * volume(geometry.kernel);
        let mut groups = Vec::with_capacity(geometry.groups);
        for group in 0..geometry.groups {
            let part = &weights[group * rows * columns..][..rows * columns];
            groups.push(PackedA::pack(isa, rows, columns, part, columns, 1)?);
        }
        let plain =
            if lines::can_suit(geometry) { weights.iter().map(|value| value.widen()).collect() } else { Vec::new() };
        Ok(Self { isa, weights: shape, form: Form::Groups(groups, plain) })
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Groups(groups, plain) => {
                groups.iter().map(PackedA::bytes).sum::<usize>() + size_of_val(plain.as_slice())
            }
            Form::Depthwise(values) => size_of_val(values.as_slice()),
        }
    }
}

/// What a convolution does to its result before the store. Slices are indexed by output channel.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ConvolutionEpilogue<'a> {
    /// Added to every position of an output channel.
    pub bias: Option<&'a [f32]>,
    /// Added elementwise; laid out as the output.
    pub residual: Option<&'a [f32]>,
    /// Whether the output holds the residual already. Blocked convolutions alone can do that, without another residual.
    pub accumulates: bool,
    /// Applied last; the slopes of a PReLU are [`Channelwise::PerRow`], one per output channel.
    pub activation: Activation<'a>,
}

impl<'a> ConvolutionEpilogue<'a> {
    pub(crate) fn check(&self, channels: usize, output: usize) -> Result<(), KernelError> {
        match self.accumulates {
            true => Err(KernelError::invalid("epilogue", "cannot add to the output")),
            false => self.check_accumulating(channels, output),
        }
    }

    /// As [`ConvolutionEpilogue::check`], for kernels that can add to the output.
    pub(crate) fn check_accumulating(&self, channels: usize, output: usize) -> Result<(), KernelError> {
        if self.accumulates && self.residual.is_some() {
            return Err(KernelError::invalid("residual", "is in the output already"));
        }
        if let Some(bias) = self.bias {
            check_len("bias", bias.len(), channels)?;
        }
        if let Some(residual) = self.residual {
            check_exact("residual", residual.len(), output)?;
        }
        self.activation.check_rows(channels)
    }

    /// The epilogue of the channels `first..first + count`, whose outputs begin at `offset` with rows of `columns`.
    pub(crate) fn part(&self, first: usize, count: usize, offset: usize, columns: usize) -> Epilogue<'a> {
        if count == 0 {
            return Epilogue { activation: self.activation, ..Epilogue::default() };
        }
        let bias = self.bias.map_or(Channelwise::None, |bias| Channelwise::PerRow(&bias[first..first + count]));
        let residual = self.residual.map(|values| Residual { values: &values[offset..], row_stride: columns });
        let activation = match self.activation {
            Activation::PRelu(Channelwise::PerRow(slopes)) => {
                Activation::PRelu(Channelwise::PerRow(&slopes[first..first + count]))
            }
            other => other,
        };
        Epilogue { bias, residual, activation }
    }
}

/// Convolves `input` `[N, C, D, H, W]` into `output` `[N, O, D', H', W']`. No scratch is needed.
///
/// # Errors
/// A slice has the wrong length, or the weights were packed for another tier or shape.
pub fn convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &PackedConvolution,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    if weights.isa != isa || weights.weights != weights_shape(geometry) {
        return Err(KernelError::invalid("weights", "packed for another instruction set or shape"));
    }
    check(geometry, input, output, epilogue)?;
    if output.is_empty() {
        return Ok(());
    }
    let rows = geometry.output_channels / geometry.groups;
    match &weights.form {
        Form::Depthwise(values) if geometry.has_lines() => {
            lines::run(isa, geometry, values, input, output, epilogue);
        }
        Form::Depthwise(values) => depthwise::run(isa, geometry, values, input, output, epilogue),
        Form::Groups(_, plain) if lines::suits(geometry) && !plain.is_empty() => {
            lines::run(isa, geometry, plain, input, output, epilogue);
        }
        Form::Groups(groups, _) => {
            let left = |group: usize| Left::packed(isa, groups[group].values(), rows);
            run_groups(isa, geometry, left, input, output, epilogue);
        }
    }
    Ok(())
}

/// As [`convolution`], with weights `[groups * output channels per group, input channels per group, depth, height, width]`
/// that are read where they lie: those that are known only when the layer runs.
///
/// # Errors
/// A slice has the wrong length.
pub fn unpacked_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &[f32],
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    check_exact("weights", weights.len(), geometry.weights_len())?;
    check(geometry, input, output, epilogue)?;
    if output.is_empty() {
        return Ok(());
    }
    if lines::suits(geometry) || geometry.is_depthwise() && geometry.has_lines() {
        lines::run(isa, geometry, weights, input, output, epilogue);
        return Ok(());
    }
    if geometry.is_depthwise() {
        depthwise::run(isa, geometry, weights, input, output, epilogue);
        return Ok(());
    }
    let rows = geometry.output_channels / geometry.groups;
    let columns = geometry.input_channels / geometry.groups * volume(geometry.kernel);
    let left = |group: usize| Left::in_place(isa, &weights[group * rows * columns..][..rows * columns], rows, columns);
    run_groups(isa, geometry, left, input, output, epilogue);
    Ok(())
}

fn check(
    geometry: &ConvolutionGeometry,
    input: &[f32],
    output: &[f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    check_exact("input", input.len(), geometry.input_len())?;
    check_exact("output", output.len(), geometry.output_len())?;
    epilogue.check(geometry.output_channels, output.len())
}

fn run_groups<'a>(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    left: impl Fn(usize) -> Left<'a> + Sync,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) {
    let channels = geometry.input_channels / geometry.groups;
    let plane = volume(geometry.input);
    let (m, n) = (geometry.output_channels / geometry.groups, volume(geometry.output));
    let k = channels * volume(geometry.kernel);
    if m <= MOST_READ_IN_PLACE && n >= LONG_PLANE && k > 0 && geometry.is_pointwise() {
        run_in_place(isa, geometry, left, input, output, epilogue);
        return;
    }
    let tasks = plan_tasks(isa, m, k, n, epilogue.activation.picoseconds());
    let axes = geometry.axes();
    let shared = SharedMut::new(output);
    let count = geometry.batch * geometry.groups * tasks.count();
    parallel_for(count, 1, geometry.plain_nanoseconds(), |range| {
        for task in range {
            let part = task / tasks.count();
            let group = part % geometry.groups;
            let (rows, columns) = tasks.get(task % tasks.count());
            let right = Patches { input: &input[part * channels * plane..][..channels * plane], axes };
            let offset = part * m * n;
            let epilogue = epilogue.part(group * m, m, offset, n);
            let left = left(group);
            // SAFETY: the part lies in the output.
            let c = unsafe { shared.pointer().add(offset) };
            let block = Block { isa, k, left, right: &right, c, c_row: n, accumulate: false, epilogue: &epilogue };
            // SAFETY: lengths were checked on entry, and tasks are disjoint blocks of the output.
            unsafe { block.run(rows, columns) };
        }
    });
}

/// Pointwise convolutions into few channels, which the speed of reading the input bounds: positions are read where they lie, and
/// enough of each channel at a time that memory is read in pieces of some length.
fn run_in_place<'a>(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    left: impl Fn(usize) -> Left<'a> + Sync,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) {
    let (k, n) = (geometry.input_channels / geometry.groups, volume(geometry.output));
    let m = geometry.output_channels / geometry.groups;
    // What several passes read stays in the second cache.
    let piece = if m <= MOST_ROWS { LONGEST_PIECE } else { (PIECE_VALUES / k.max(1)).clamp(LONG_PLANE, LONGEST_PIECE) };
    let pieces = n.div_ceil(piece);
    let shared = SharedMut::new(output);
    parallel_for(geometry.batch * geometry.groups * pieces, 1, geometry.plain_nanoseconds(), |range| {
        for task in range {
            let (part, first) = (task / pieces, task % pieces * piece);
            let (group, columns) = (part % geometry.groups, piece.min(n - first));
            let left = left(group);
            let epilogue = epilogue.part(group * m, m, part * m * n, n);
            let mut row = 0;
            while row < m {
                let (a, [a_row, a_column], rows) = left.row(k, row);
                let rows = rows.min(MOST_ROWS);
                let start = (part * m + row) * n + first;
                for index in 0..rows {
                    // SAFETY: the columns of the row lie in the output, and tasks have columns of their own.
                    unsafe { shared.slice(start + index * n..start + index * n + columns).fill(0.0) };
                }
                let b = input[part * k * n + first..].as_ptr();
                let c = shared.pointer().wrapping_add(start);
                let small = Small { m: rows, k, n: columns, a, a_row, a_column, b, b_row: n, b_column: 1, c, c_row: n };
                // SAFETY: the operands and the rows of the output were checked on entry.
                unsafe { small.run(isa) };
                row += rows;
            }
            for row in 0..m {
                let start = (part * m + row) * n + first;
                // SAFETY: as above.
                let line = unsafe { shared.slice(start..start + columns) };
                if let Channelwise::PerRow(bias) = epilogue.bias {
                    line.iter_mut().for_each(|sum| *sum += bias[row]);
                }
                if let Some(residual) = epilogue.residual {
                    let values = &residual.values[row * residual.row_stride + first..];
                    line.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
                }
            }
            // SAFETY: as above.
            unsafe { epilogue.pass(isa, shared.pointer().wrapping_add(part * m * n + first), n, 0, first, m, columns) };
        }
    });
}

/// Whether there is more than one position along the depth anywhere.
fn has_depth(input: [usize; 3], kernel: [usize; 3], output: [usize; 3], pad_begin: [usize; 3]) -> bool {
    input[0] != 1 || kernel[0] != 1 || output[0] != 1 || pad_begin[0] != 0
}

/// `[groups, output channels, input channels, ...]` : what packing depends on.
fn weights_shape(geometry: &ConvolutionGeometry) -> [usize; 6] {
    let [d, h, w] = geometry.kernel;
    [geometry.groups, geometry.output_channels, geometry.input_channels, d, h, w]
}

pub(crate) fn volume(sizes: [usize; 3]) -> usize {
    sizes[0] * sizes[1] * sizes[2]
}

/// Positions that a dilated kernel spans.
fn extent(kernel: usize, dilation: usize) -> Option<usize> {
    (kernel - 1).checked_mul(dilation)?.checked_add(1).filter(|&value| value < isize::MAX as usize / 4)
}

fn check_positive(argument: &'static str, sizes: &[usize; 3]) -> Result<(), KernelError> {
    if sizes.contains(&0) {
        return Err(KernelError::invalid(argument, "must not be zero"));
    }
    Ok(())
}

fn check_groups(groups: usize, input_channels: usize, output_channels: usize) -> Result<(), KernelError> {
    if groups == 0 || !input_channels.is_multiple_of(groups) || !output_channels.is_multiple_of(groups) {
        return Err(KernelError::invalid("groups", "channels do not divide by the groups"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
