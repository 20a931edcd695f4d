//! Transposed convolutions of codes: each phase is a convolution, whose positions are stored as far apart as the strides.

use crate::blocked::{BLOCK, PlaneView, blocked_len};
use crate::convolution::{PlanePhase, Taps, TransposedConvolutionGeometry};
use crate::error::{KernelError, check_exact, check_len};
use crate::isa::Isa;
use crate::parallel::nanoseconds_for_flops;

use super::{CodePlanes, Job, QuantizedEpilogue, QuantizedOutput, QuantizedWeights, Scaling};

/// The most phases.
const MOST_PHASES: usize = 1 << 10;

/// Signed codes of a transposed convolution's filter, packed once for every tier, image size and padding.
#[derive(Debug, Clone)]
pub struct QuantizedTransposed {
    /// Output and input channels.
    channels: [usize; 2],
    /// Kernel, stride and dilation.
    steps: [[usize; 2]; 3],
    /// The weights of each class of taps.
    classes: Vec<QuantizedWeights>,
}

impl QuantizedTransposed {
    /// Packs the codes `[input channels, output channels, height, width]`.
    ///
    /// # Errors
    /// The number of codes is wrong, the geometry has a depth, groups or too many phases, there are no channels, or sums could
    /// exceed i32.
    pub fn pack(geometry: &TransposedConvolutionGeometry, codes: &[i8]) -> Result<Self, KernelError> {
        check_exact("codes", codes.len(), geometry.weights_len())?;
        let ([groups, outputs, inputs], steps) = (geometry.channels(), geometry.plane_steps());
        let [[high, wide], stride, _] = steps;
        let classes = stride[0].saturating_mul(stride[1]);
        if groups > 1 || geometry.has_depth() || classes > MOST_PHASES {
            return Err(KernelError::invalid("geometry", "has a depth, groups or too many phases"));
        }
        let pack = |class: usize| {
            let [down, right] = geometry.plane_taps(class);
            // Phases take their taps in reverse order.
            let reversed = |taps: Taps, tap: usize| taps.first + (taps.count - 1 - tap) * taps.step;
            let places = (0..down.count * right.count)
                .map(|tap| reversed(down, tap / right.count) * wide + reversed(right, tap % right.count));
            let (shape, strides) =
                ([outputs, 1, down.count, right.count, inputs], [high * wide, outputs * high * wide]);
            QuantizedWeights::pack(shape, BLOCK, codes, &places.collect::<Vec<usize>>(), strides)
        };
        let classes = (0..classes).map(pack).collect::<Result<_, _>>()?;
        Ok(Self { channels: [outputs, inputs], steps, classes })
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
    if !is_same || groups > 1 || geometry.has_depth() {
        return Err(KernelError::invalid("weights", "packed for another shape, stride or dilation"));
    }
    let far = || KernelError::invalid("geometry", "has padding far larger than its input");
    let planes = CodePlanes::of_transposed(geometry).ok_or_else(far)?;
    let positions = to[0] * to[1];
    check_exact("input", input.len(), planes.len())?;
    output.check(outputs, blocked_len(batch, outputs, positions))?;
    epilogue.check(outputs, output.len())?;
    check_len("scales", scaling.scales.len(), outputs)?;
    let ([_, before @ ..], [_, high, wide]) = (planes.before(), planes.size());
    let [_, stride, _] = weights.steps;
    let phases = stride[0] * stride[1];
    for index in 0..phases {
        let start = [index / stride[1], index % stride[1]];
        let PlanePhase { class, size, taps, first, view } = geometry.plane_phase(start);
        if size.contains(&0) {
            continue;
        }
        // Nothing but the bias reaches a phase that has no taps inside of the input, whatever its class.
        let empty = QuantizedWeights::pack([outputs, 1, 0, 0, inputs], BLOCK, &[], &[], [0, 0]);
        let weights = if taps.contains(&0) { &empty? } else { &weights.classes[class] };
        // The input's place of the first window, which lies inside of the planes.
        let place = |axis: usize| before[axis] + first[axis] - view.pad[axis];
        let begin = if taps.contains(&0) { 0 } else { (place(0) * wide + place(1)) * BLOCK };
        let row = PlaneView { input: [high, wide], output: [1, size[1]], pad: [0, 0], ..view };
        let job = Job {
            isa,
            weights,
            scaling,
            epilogue,
            input: input.get(begin..).unwrap_or_default(),
            image_bytes: inputs.next_multiple_of(BLOCK) * high * wide,
            group_bytes: 0,
            group_blocks: usize::MAX,
            part_bytes: if taps.contains(&0) { 0 } else { wide * BLOCK },
            deeper: 0,
            before: 0,
            windows: None,
            volume: high * wide,
            view: row,
            parts: size[0],
            positions: size[1],
            position_stride: stride[1] * BLOCK,
            part_stride: stride[0] * to[1] * BLOCK,
            block_stride: positions * BLOCK,
            image_stride: outputs.next_multiple_of(BLOCK) * positions,
            first: (start[0] * to[1] + start[1]) * BLOCK,
            channels: outputs.next_multiple_of(BLOCK),
            output: output.shared(),
        };
        job.run(nanoseconds_for_flops(geometry.flops()) / 3 / phases as u64);
    }
    Ok(())
}
