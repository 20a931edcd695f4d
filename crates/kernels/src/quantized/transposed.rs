//! Transposed convolutions of codes: each phase is a convolution, whose positions are stored as far apart as the strides.

use crate::blocked::{BLOCK, PlaneView, blocked_len};
use crate::convolution::{PlanePhase, TransposedConvolutionGeometry};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::parallel::nanoseconds_for_flops;

use super::{
    CodeLayout, CodePlanes, Job, QuantizedEpilogue, QuantizedOutput, QuantizedWeights, Reads, Scaling, check_stored,
};

/// The most phases.
const MOST_PHASES: usize = 1 << 10;

/// Signed codes of a transposed convolution's filter, packed once for every tier, image size and padding.
#[derive(Debug, Clone)]
pub struct QuantizedTransposed {
    /// Output and input channels.
    channels: [usize; 2],
    /// Kernel, stride and dilation of height and width.
    steps: [[usize; 2]; 3],
    /// The same of the depth.
    deep: [usize; 3],
    /// The weights of each class of taps.
    classes: Vec<QuantizedWeights>,
}

impl QuantizedTransposed {
    /// Packs the codes `[input channels, output channels, depth, height, width]`.
    ///
    /// # Errors
    /// The number of codes is wrong, the geometry has groups or too many phases, there are no channels, or sums could exceed
    /// i32.
    pub fn pack(geometry: &TransposedConvolutionGeometry, codes: &[i8]) -> Result<Self, KernelError> {
        check_exact("codes", codes.len(), geometry.weights_len())?;
        let ([groups, outputs, inputs], steps) = (geometry.channels(), geometry.plane_steps());
        let ([[high, wide], stride, _], deep) = (steps, geometry.depth_steps());
        let of_plane = stride[0].saturating_mul(stride[1]);
        let classes = of_plane.saturating_mul(deep[1]);
        if groups > 1 || classes > MOST_PHASES {
            return Err(KernelError::invalid("geometry", "has groups or too many phases"));
        }
        let pack = |class: usize| {
            let (in_depth, [down, right]) =
                (geometry.depth_taps(class / of_plane), geometry.plane_taps(class % of_plane));
            let [deep, _, _] = deep;
            let counts = [in_depth.count, down.count, right.count];
            // Phases take their taps in reverse order.
            let places = (0..counts[0] * counts[1] * counts[2]).map(|tap| {
                let [z, y, x] = [tap / counts[2] / counts[1], tap / counts[2] % counts[1], tap % counts[2]];
                (in_depth.reversed(z) * high + down.reversed(y)) * wide + right.reversed(x)
            });
            let shape = [outputs, counts[0], counts[1], counts[2], inputs];
            let of_output = deep * high * wide;
            QuantizedWeights::pack(
                shape,
                CodeLayout::Blocks,
                [BLOCK, 1],
                codes,
                &places.collect::<Vec<usize>>(),
                [of_output, outputs * of_output],
            )
        };
        let classes = (0..classes).map(pack).collect::<Result<_, _>>()?;
        Ok(Self { channels: [outputs, inputs], steps, deep, classes })
    }
}

/// The transposed convolution of the codes of [`CodePlanes`] into the blocked layout. A residual of the epilogue is blocked
/// too; bias and slopes are indexed by channel.
///
/// # Errors
/// A slice has the wrong length, or the weights were packed for another shape, stride or dilation.
pub fn quantized_transposed(
    isa: Isa,
    geometry: &TransposedConvolutionGeometry,
    weights: &QuantizedTransposed,
    scaling: &Scaling<'_>,
    input: &[u8],
    mut output: QuantizedOutput<'_>,
    epilogue: &QuantizedEpilogue<'_>,
) -> Result<(), KernelError> {
    let ([groups, outputs, inputs], (batch, [_, to])) = (geometry.channels(), geometry.plane_sizes());
    let is_same = weights.channels == [outputs, inputs] && weights.steps == geometry.plane_steps();
    if !is_same || groups > 1 || weights.deep != geometry.depth_steps() {
        return Err(KernelError::invalid("weights", "packed for another shape, stride or dilation"));
    }
    let far = || KernelError::invalid("geometry", "has padding far larger than its input");
    let planes = CodePlanes::of_transposed(geometry).ok_or_else(far)?;
    let [_, to_deep] = geometry.depths();
    let (plane, positions) = (to[0] * to[1], to_deep * to[0] * to[1]);
    check_exact("input", input.len(), planes.len())?;
    check_stored(&output, scaling, epilogue, outputs, blocked_len(batch, outputs, positions))?;
    let ([_, before @ ..], [deep, high, wide]) = (planes.before(), planes.size());
    let ([_, stride, _], [_, deep_stride, _]) = (weights.steps, weights.deep);
    let of_plane = stride[0] * stride[1];
    let phases = of_plane * deep_stride;
    let empty = QuantizedWeights::pack([outputs, 1, 0, 0, inputs], CodeLayout::Blocks, [BLOCK, 1], &[], &[], [0, 0])?;
    for index in 0..phases {
        let start = [index / of_plane, index % of_plane / stride[1], index % stride[1]];
        let depth = geometry.depth_phase(start[0]);
        let PlanePhase { class, size, taps, first, view } = geometry.plane_phase([start[1], start[2]]);
        if size.contains(&0) || depth.size == 0 {
            continue;
        }
        // Nothing but the bias reaches a phase that has no taps inside of the input, whatever its class.
        let is_reached = depth.view.taps > 0 && !taps.contains(&0);
        let weights = if is_reached { &weights.classes[depth.class * of_plane + class] } else { &empty };
        // The input's place of the first window, which lies inside of the planes.
        let place = |axis: usize| before[axis] + first[axis] - view.pad[axis];
        let begin = if is_reached { ((depth.first * high + place(0)) * wide + place(1)) * BLOCK } else { 0 };
        let row = PlaneView { input: [high, wide], output: [1, size[1]], pad: [0, 0], ..view };
        let job = Job {
            isa,
            weights,
            scaling,
            epilogue,
            input: input.get(begin..).unwrap_or_default(),
            image_bytes: inputs.next_multiple_of(BLOCK) * deep * high * wide,
            reads: Reads::ALL,
            part_bytes: [high * wide * BLOCK, wide * BLOCK],
            deeper: depth.view.dilation * high * wide * BLOCK,
            before: depth.view.pad * high * wide * BLOCK,
            windows: [is_reached.then_some(depth.view), None],
            taps: [0..weights.shape[2], 0..weights.shape[3]],
            first_window: depth.first,
            volume: deep * high * wide,
            view: row,
            parts: [depth.size, size[0]],
            positions: size[1],
            position_stride: stride[1] * BLOCK,
            part_stride: [deep_stride * plane * BLOCK, stride[0] * to[1] * BLOCK],
            block_stride: positions * BLOCK,
            image_stride: outputs.next_multiple_of(BLOCK) * positions,
            first: (start[0] * plane + start[1] * to[1] + start[2]) * BLOCK,
            channels: outputs.next_multiple_of(BLOCK),
            output: output.shared(),
        };
        job.run(nanoseconds_for_flops(geometry.flops()) / 3 / phases as u64);
    }
    Ok(())
}
