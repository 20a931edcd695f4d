//! Transposed convolution (ConvolutionBackpropData and its grouped form).
//!
//! Output positions fall into as many phases per axis as the stride; within a phase the result is an ordinary
//! convolution with the taps that reach it, so no product with a stuffed zero is ever computed.

use super::patches::{Axis, Patches};
use super::{ConvolutionEpilogue, check_groups, check_positive, extent, has_depth, volume};
use crate::blocked::{AxisView, PlaneView};
use crate::epilogue::Epilogue;
use crate::error::{KernelError, check_exact, check_len, product};
use crate::gemm::{Block, Left, PackedA, Value, flops, plan_tasks};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_flops, parallel_for};

/// The sizes of one transposed convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransposedConvolutionGeometry {
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

impl TransposedConvolutionGeometry {
    /// A geometry. Input position `i` and tap `t` add to output position `i * stride + t * dilation - pad_begin`,
    /// where that lies in `output`, whose size the caller has computed from pads, output padding or an explicit
    /// output shape. Positions that nothing reaches hold the bias alone. Conventions are those of
    /// [`super::ConvolutionGeometry::new`].
    ///
    /// # Errors
    /// A size that must not be zero is, channels do not divide by the groups, or sizes overflow.
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
        output: [usize; 3],
    ) -> Result<Self, KernelError> {
        check_groups(groups, input_channels, output_channels)?;
        check_positive("kernel", &kernel)?;
        check_positive("stride", &stride)?;
        check_positive("dilation", &dilation)?;
        product("input", &[batch, input_channels, input[0], input[1], input[2]])?;
        product("output", &[batch, output_channels, output[0], output[1], output[2]])?;
        product("weights", &[output_channels, input_channels / groups, kernel[0], kernel[1], kernel[2]])?;
        for axis in 0..3 {
            let small = |value: usize| value < isize::MAX as usize / 4;
            let fits = extent(kernel[axis], dilation[axis]).is_some()
                && input[axis].checked_mul(stride[axis]).is_some_and(small)
                && small(pad_begin[axis])
                && small(stride[axis]);
            if !fits {
                return Err(KernelError::invalid("stride", "positions overflow"));
            }
        }
        Ok(Self { batch, groups, input_channels, output_channels, input, kernel, stride, dilation, pad_begin, output })
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
        self.input_channels * (self.output_channels / self.groups) * volume(self.kernel)
    }

    /// Floating-point operations, those on what lies outside of the output included.
    #[must_use]
    pub fn flops(&self) -> u64 {
        flops(self.batch, self.weights_len(), 1, volume(self.input))
    }

    /// Whether there is more than one position along the depth anywhere.
    pub(crate) fn has_depth(&self) -> bool {
        has_depth(self.input, self.kernel, self.output, self.pad_begin)
    }

    /// `[groups, output channels, input channels]`.
    pub(crate) fn channels(&self) -> [usize; 3] {
        [self.groups, self.output_channels, self.input_channels]
    }

    /// Kernel, stride and dilation of height and width.
    pub(crate) fn plane_steps(&self) -> [[usize; 2]; 3] {
        [self.kernel, self.stride, self.dilation].map(|sizes| [sizes[1], sizes[2]])
    }

    /// Images, and height and width of input and output.
    pub(crate) fn plane_sizes(&self) -> (usize, [[usize; 2]; 2]) {
        (self.batch, [self.input, self.output].map(|sizes| [sizes[1], sizes[2]]))
    }

    /// The taps that reach the phases of a class of height and width, of which there are as many as strides.
    pub(crate) fn plane_taps(&self, class: usize) -> [Taps; 2] {
        [self.taps(1, class / self.stride[2]), self.taps(2, class % self.stride[2])]
    }

    /// The phase of height and width that begins at `start`, as a convolution with the taps in reverse order.
    pub(crate) fn plane_phase(&self, start: [usize; 2]) -> PlanePhase {
        let axes = [0, 1].map(|axis| self.axis_phase(axis + 1, start[axis]));
        let size = axes.map(|axis| axis.size);
        let class = axes[0].class * self.stride[2] + axes[1].class;
        let is_reached = axes.iter().all(|axis| axis.view.taps > 0);
        let of_reached = |part: fn(&AxisPhase) -> usize| if is_reached { axes.each_ref().map(part) } else { [0; 2] };
        let (taps, first) = (of_reached(|axis| axis.view.taps), of_reached(|axis| axis.first));
        let view = PlaneView {
            batch: self.batch,
            input: axes.map(|axis| axis.view.input),
            output: [size[0] + first[0], size[1] + first[1]],
            stride: [1; 2],
            dilation: axes.map(|axis| axis.view.dilation),
            pad: of_reached(|axis| axis.view.pad),
        };
        PlanePhase { class, size, taps, first, view }
    }

    /// The phase of depths that begins at `start`, as a convolution with the taps in reverse order.
    pub(crate) fn depth_phase(&self, start: usize) -> AxisPhase {
        self.axis_phase(0, start)
    }

    /// Kernel, stride and dilation of the depth.
    pub(crate) fn depth_steps(&self) -> [usize; 3] {
        [self.kernel[0], self.stride[0], self.dilation[0]]
    }

    /// The depth of input and output.
    pub(crate) fn depths(&self) -> [usize; 2] {
        [self.input[0], self.output[0]]
    }

    /// The taps that reach the phases of a class of depths, of which there are as many as strides.
    pub(crate) fn depth_taps(&self, class: usize) -> Taps {
        self.taps(0, class)
    }

    fn axis_phase(&self, axis: usize, start: usize) -> AxisPhase {
        let (class, Axis { input, output, taps, base, increment, .. }) = self.phase(axis, start);
        let dilation = increment.unsigned_abs();
        // The last tap, which comes first, lies so far before the first position.
        let before = (taps.saturating_sub(1) * dilation) as isize - base;
        let (pad, first) = (before.max(0).unsigned_abs(), before.min(0).unsigned_abs());
        let is_reached = taps > 0 && first < input;
        let [taps, pad, first] = if is_reached { [taps, pad, first] } else { [0; 3] };
        let view = AxisView { input, output: output + first, taps, stride: 1, dilation, pad };
        AxisPhase { class, size: output, first, view }
    }

    /// The number of distinct residues of `tap * dilation` that have taps, at most the taps; others only hold bias.
    fn taps(&self, axis: usize, class: usize) -> Taps {
        let (kernel, stride, dilation) = (self.kernel[axis], self.stride[axis], self.dilation[axis]);
        let first = (0..kernel.min(stride)).find(|tap| tap * dilation % stride == class);
        let step = stride / divisor(stride, dilation);
        Taps { first: first.unwrap_or(0), step, count: first.map_or(0, |first| (kernel - first).div_ceil(step)) }
    }

    /// The phase of an output axis that begins at `start`: its size, the class of taps that reach it, and its axis.
    fn phase(&self, axis: usize, start: usize) -> (usize, Axis) {
        let (stride, dilation) = (self.stride[axis], self.dilation[axis]);
        let shifted = start + self.pad_begin[axis];
        let class = shifted % stride;
        let taps = self.taps(axis, class);
        let base = (shifted as isize - (taps.first * dilation) as isize).div_euclid(stride as isize);
        let view = Axis {
            input: self.input[axis],
            output: self.output[axis].saturating_sub(start).div_ceil(stride),
            stride: 1,
            taps: taps.count,
            base,
            increment: -((taps.step * dilation / stride) as isize),
        };
        (class, view)
    }

    fn classes(&self) -> usize {
        volume(self.stride.map(|stride| stride.min(MOST_PHASES)))
    }
}

/// The largest stride of an axis.
const MOST_PHASES: usize = 1 << 10;

/// Taps that reach one phase: an arithmetic progression.
#[derive(Clone, Copy)]
pub(crate) struct Taps {
    pub(crate) first: usize,
    pub(crate) step: usize,
    pub(crate) count: usize,
}

/// One phase of an axis as a convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AxisPhase {
    /// The class of its taps.
    pub(crate) class: usize,
    /// Its positions.
    pub(crate) size: usize,
    /// The position of the convolution that is its first one.
    pub(crate) first: usize,
    /// The convolution, which has no taps where nothing reaches the phase.
    pub(crate) view: AxisView,
}

impl Taps {
    /// The tap of the kernel that is the one of so many in reverse order.
    pub(crate) fn reversed(&self, tap: usize) -> usize {
        self.first + (self.count - 1 - tap) * self.step
    }
}

/// One phase of height and width as a convolution.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PlanePhase {
    /// The class of its taps.
    pub(crate) class: usize,
    /// Its lines and columns.
    pub(crate) size: [usize; 2],
    /// Its taps; none where nothing reaches it.
    pub(crate) taps: [usize; 2],
    /// The position of the convolution that is its first one: where the output begins inside of the windows, the
    /// convolution has positions before it.
    pub(crate) first: [usize; 2],
    /// The convolution.
    pub(crate) view: PlaneView,
}

/// Weights of a transposed convolution, packed for one tier, stride and dilation.
#[derive(Debug, Clone)]
pub struct PackedTransposedConvolution {
    isa: Isa,
    channels: [usize; 3],
    spatial: [[usize; 3]; 3],
    matrices: Vec<PackedA>,
}

impl PackedTransposedConvolution {
    /// Packs the weights `[input channels, output channels per group, depth, height, width]`
    /// (GroupConvolutionBackpropData's `[G, I, O, ...]` is the same memory). The result serves every batch, image size
    /// and padding.
    ///
    /// # Errors
    /// The number of weights is not [`TransposedConvolutionGeometry::weights_len`], or a stride exceeds 1024.
    pub fn pack<T: Value>(
        isa: Isa,
        geometry: &TransposedConvolutionGeometry,
        weights: &[T],
    ) -> Result<Self, KernelError> {
        check_exact("weights", weights.len(), geometry.weights_len())?;
        if geometry.stride.iter().any(|&stride| stride > MOST_PHASES) || geometry.classes() > MOST_PHASES {
            return Err(KernelError::invalid("stride", "too large"));
        }
        let (inputs, outputs) = (geometry.input_channels / geometry.groups, geometry.output_channels / geometry.groups);
        let [_, kernel_high, kernel_wide] = geometry.kernel;
        let spatial = volume(geometry.kernel);
        let mut matrices = Vec::with_capacity(geometry.classes() * geometry.groups);
        for class in 0..geometry.classes() {
            let [z, y, x] = unfold(class, geometry.stride);
            let taps = [geometry.taps(0, z), geometry.taps(1, y), geometry.taps(2, x)];
            let count = taps[0].count * taps[1].count * taps[2].count;
            for group in 0..geometry.groups {
                let mut values = vec![0.0f32; outputs * inputs * count];
                for (place, value) in values.iter_mut().enumerate() {
                    let (output, input, tap) = (place / count / inputs, place / count % inputs, place % count);
                    let [tz, ty, tx] = unfold(tap, taps.map(|taps| taps.count));
                    let at = |axis: usize, tap: usize| taps[axis].first + tap * taps[axis].step;
                    let tap = (at(0, tz) * kernel_high + at(1, ty)) * kernel_wide + at(2, tx);
                    *value = weights[((group * inputs + input) * outputs + output) * spatial + tap].widen();
                }
                matrices.push(PackedA::pack(isa, outputs, inputs * count, &values, inputs * count, 1)?);
            }
        }
        Ok(Self { isa, channels: geometry.channels(), spatial: spatial_key(geometry), matrices })
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.matrices.iter().map(PackedA::bytes).sum()
    }
}

/// Elements of scratch that [`transposed_convolution`] needs.
#[must_use]
pub fn transposed_convolution_scratch_len(geometry: &TransposedConvolutionGeometry) -> usize {
    if geometry.stride == [1; 3] {
        return 0;
    }
    let phase = |axis: usize| geometry.output[axis].div_ceil(geometry.stride[axis]);
    geometry.batch * geometry.output_channels * phase(0) * phase(1) * phase(2)
}

/// The transposed convolution of `input` `[N, C, D, H, W]` into `output` `[N, O, D', H', W']`.
///
/// # Errors
/// A slice has the wrong length, or the weights were packed for another tier, shape, stride or dilation.
pub fn transposed_convolution(
    isa: Isa,
    geometry: &TransposedConvolutionGeometry,
    weights: &PackedTransposedConvolution,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), geometry.input_len())?;
    check_exact("output", output.len(), geometry.output_len())?;
    epilogue.check(geometry.output_channels, output.len())?;
    check_len("scratch", scratch.len(), transposed_convolution_scratch_len(geometry))?;
    if weights.isa != isa || weights.channels != geometry.channels() || weights.spatial != spatial_key(geometry) {
        return Err(KernelError::invalid("weights", "packed for another instruction set, shape, stride or dilation"));
    }
    if output.is_empty() {
        return Ok(());
    }
    if geometry.stride == [1; 3] {
        let view = [0, 1, 2].map(|axis| geometry.phase(axis, 0).1);
        multiply(isa, geometry, &weights.matrices, view, input, output, epilogue);
        return Ok(());
    }
    let plain = ConvolutionEpilogue::default();
    for phase in 0..volume(geometry.stride) {
        let start = unfold(phase, geometry.stride);
        let views = [0, 1, 2].map(|axis| geometry.phase(axis, start[axis]));
        let view = views.map(|(_, view)| view);
        let size = volume(view.map(|axis| axis.output));
        if size == 0 {
            continue;
        }
        let class = (views[0].0 * geometry.stride[1] + views[1].0) * geometry.stride[2] + views[2].0;
        let matrices = &weights.matrices[class * geometry.groups..][..geometry.groups];
        let scratch = &mut scratch[..geometry.batch * geometry.output_channels * size];
        multiply(isa, geometry, matrices, view, input, scratch, &plain);
        spread(geometry, start, view, scratch, output);
    }
    finish(isa, geometry, output, epilogue);
    Ok(())
}

/// Convolves with the taps of one phase; `output` is dense.
fn multiply(
    isa: Isa,
    geometry: &TransposedConvolutionGeometry,
    matrices: &[PackedA],
    axes: [Axis; 3],
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) {
    let channels = geometry.input_channels / geometry.groups;
    let plane = volume(geometry.input);
    let (m, n) = (geometry.output_channels / geometry.groups, volume(axes.map(|axis| axis.output)));
    let k = channels * volume(axes.map(|axis| axis.taps));
    let tasks = plan_tasks(isa, m, k, n, epilogue.activation.picoseconds());
    let shared = SharedMut::new(output);
    let parts = geometry.batch * geometry.groups;
    parallel_for(parts * tasks.count(), 1, nanoseconds_for_flops(flops(parts, m, k, n)), |range| {
        for task in range {
            let part = task / tasks.count();
            let group = part % geometry.groups;
            let (rows, columns) = tasks.get(task % tasks.count());
            let right = Patches { input: &input[part * channels * plane..][..channels * plane], axes };
            let epilogue = epilogue.part(group * m, m, part * m * n, n);
            let left = Left::packed(isa, matrices[group].values(), m);
            // SAFETY: the part lies in the output.
            let c = unsafe { shared.pointer().add(part * m * n) };
            let block = Block { isa, k, left, right: &right, c, c_row: n, accumulate: false, epilogue: &epilogue };
            // SAFETY: lengths were checked on entry, and tasks are disjoint blocks of the output.
            unsafe { block.run(rows, columns) };
        }
    });
}

/// Writes a dense phase to its places in the output.
fn spread(
    geometry: &TransposedConvolutionGeometry,
    start: [usize; 3],
    axes: [Axis; 3],
    phase: &[f32],
    output: &mut [f32],
) {
    let [deep, high, wide] = axes.map(|axis| axis.output);
    let plane = volume(geometry.output);
    let nanoseconds = phase.len() as u64;
    crate::parallel::parallel_chunks_mut(output, plane, nanoseconds, |index, output| {
        let phase = &phase[index * deep * high * wide..][..deep * high * wide];
        for (line, values) in phase.chunks_exact(wide).enumerate() {
            let z = start[0] + line / high * geometry.stride[0];
            let y = start[1] + line % high * geometry.stride[1];
            let target = &mut output[(z * geometry.output[1] + y) * geometry.output[2] + start[2]..];
            for (value, place) in values.iter().zip(target.iter_mut().step_by(geometry.stride[2])) {
                *place = *value;
            }
        }
    });
}

/// Adds bias and residual and applies the activation, plane by plane.
fn finish(isa: Isa, geometry: &TransposedConvolutionGeometry, output: &mut [f32], epilogue: &ConvolutionEpilogue<'_>) {
    let plane = volume(geometry.output);
    let nanoseconds = output.len() as u64 / 4;
    crate::parallel::parallel_chunks_mut(output, plane, nanoseconds, |index, output| {
        let channel = index % geometry.output_channels;
        let bias = epilogue.bias.map_or(0.0, |bias| bias[channel]);
        let residual = epilogue.residual.map(|residual| &residual[index * plane..][..plane]);
        for (place, value) in output.iter_mut().enumerate() {
            *value += bias + residual.map_or(0.0, |residual| residual[place]);
        }
        let part: Epilogue<'_> = epilogue.part(channel, 1, index * plane, plane);
        // SAFETY: the plane is one row of a result with one row.
        unsafe { part.pass_always(isa, output.as_mut_ptr(), plane) };
    });
}

fn unfold(index: usize, sizes: [usize; 3]) -> [usize; 3] {
    let [_, high, wide] = sizes.map(|size| size.max(1));
    [index / (high * wide), index / wide % high, index % wide]
}

fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

fn spatial_key(geometry: &TransposedConvolutionGeometry) -> [[usize; 3]; 3] {
    [geometry.kernel, geometry.stride, geometry.dilation]
}
