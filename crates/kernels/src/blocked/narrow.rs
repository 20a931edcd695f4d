//! Convolution of blocked values into few plain channels: the last layers of networks that make images or masks.
//!
//! In blocks most lanes of so few channels would be idle. Here the lanes are the input channels instead, and each sum is
//! added up over its lanes at the end.

use super::direct::{PlaneView, shape};
use super::{BLOCK, blocked_len};
use crate::convolution::{ConvolutionEpilogue, ConvolutionGeometry};
use crate::epilogue::{Activation, Channelwise};
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_flops, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::unary;
use std::ops::Range;

/// The most output channels.
pub const MOST_NARROW: usize = 4;

/// Weights of a convolution into few plain channels, packed once for every tier.
#[derive(Debug, Clone)]
pub struct NarrowConvolution {
    shape: [usize; 6],
    /// `[tap, block of input channels, output, 16 input channels]`.
    values: Packed<f32>,
}

impl NarrowConvolution {
    /// Packs the weights `[output channels, input channels, depth, height, width]`.
    ///
    /// # Errors
    /// The number of weights is wrong, or the geometry has groups or more than [`MOST_NARROW`] output channels.
    pub fn pack(geometry: &ConvolutionGeometry, weights: &[f32]) -> Result<Self, KernelError> {
        check_exact("weights", weights.len(), geometry.weights_len())?;
        let shape = shape(geometry);
        let [groups, outputs, inputs, deep, high, wide] = shape;
        if groups != 1 || outputs > MOST_NARROW {
            return Err(KernelError::invalid("geometry", "has groups or too many output channels"));
        }
        let (taps, blocks) = (deep * high * wide, inputs.div_ceil(BLOCK));
        let mut values = Packed::zeroed(taps * blocks * outputs * BLOCK);
        for (output, channel) in (0..outputs).flat_map(|output| (0..inputs).map(move |channel| (output, channel))) {
            for tap in 0..taps {
                let place = (tap * blocks + channel / BLOCK) * outputs + output;
                values[place * BLOCK + channel % BLOCK] = weights[(output * inputs + channel) * taps + tap];
            }
        }
        Ok(Self { shape, values })
    }
}

/// Convolves blocked `input` into plain `output` `[N, O, D', H', W']`. Bias and slopes are indexed by channel; there is no
/// residual.
///
/// # Errors
/// A slice has the wrong length, the weights were packed for another shape, or there is a residual.
pub fn narrow_convolution(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &NarrowConvolution,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let (view, depth) = (geometry.plane(), geometry.depth());
    let [_, outputs, inputs, _, high, wide] = weights.shape;
    if weights.shape != shape(geometry) || epilogue.residual.is_some() {
        return Err(KernelError::invalid("weights", "packed for another shape, or a residual"));
    }
    let plane = view.input[0] * view.input[1];
    let (volume, positions) = (depth.input * plane, depth.output * view.output[0] * view.output[1]);
    check_exact("input", input.len(), blocked_len(view.batch, inputs, volume))?;
    check_exact("output", output.len(), product("output", &[view.batch, outputs, positions])?)?;
    epilogue.check(outputs, output.len())?;
    if output.is_empty() {
        return Ok(());
    }
    let lines = depth.output * view.output[0];
    let blocks = inputs.div_ceil(BLOCK);
    let (image_len, level_weights) = (blocks * BLOCK * volume, high * wide * blocks * outputs * BLOCK);
    let shared = SharedMut::new(output);
    let part = epilogue.part(0, 0, 0, 0);
    parallel_for(view.batch * lines, 1, nanoseconds_for_flops(geometry.flops()) * 2, |range| {
        for index in range {
            let (image, of_image) = (index / lines, index % lines);
            let (level, y) = (of_image / view.output[0], of_image % view.output[0]);
            let first = image * outputs * positions + of_image * view.output[1];
            let inside = depth.inside(level);
            // Where no tap of the depth lies inside, nothing is read.
            let [start, skipped] = match inside.is_empty() {
                true => [0; 2],
                false => [depth.place(level, inside.start) * plane * BLOCK, inside.start * level_weights],
            };
            let line = Line {
                view,
                levels: inside.len(),
                level_step: if inside.len() > 1 { depth.dilation * plane * BLOCK } else { 0 },
                block_step: volume * BLOCK,
                taps: [high, wide],
                y,
                columns: 0..view.output[1],
                inputs,
                outputs,
                weights: &weights.values[skipped..],
                input: &input[image * image_len + start..(image + 1) * image_len],
                bias: epilogue.bias,
                slopes: match epilogue.activation {
                    Activation::PRelu(Channelwise::PerRow(slopes)) => Some(slopes),
                    _ => None,
                },
                limits: part.limits(),
                output: shared.pointer().wrapping_add(first),
                step: 1,
                stride: positions,
            };
            // SAFETY: lengths were checked, and lines of an image are disjoint.
            dispatch(isa, line);
            if let Some(op) = epilogue.activation.function() {
                for output in 0..outputs {
                    let line = shared.pointer().wrapping_add(first + output * positions);
                    // SAFETY: the line lies in the output.
                    unsafe { unary::apply(isa, op, line, line, view.output[1]) };
                }
            }
        }
    });
    Ok(())
}

/// One line of all output channels, or a part of it.
pub(super) struct Line<'a> {
    pub(super) view: PlaneView,
    /// Taps of the depth, all of which lie inside the input.
    pub(super) levels: usize,
    /// Elements from what one tap of the depth reads to what the next one does.
    pub(super) level_step: usize,
    /// Elements from one block of input channels to the next.
    pub(super) block_step: usize,
    /// Taps of height and width; with none, the sums are zero.
    pub(super) taps: [usize; 2],
    pub(super) y: usize,
    /// The positions of the line that are computed.
    pub(super) columns: Range<usize>,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    /// From the first tap of the depth on.
    pub(super) weights: &'a [f32],
    /// From what the first tap of the depth reads on.
    pub(super) input: &'a [f32],
    pub(super) bias: Option<&'a [f32]>,
    pub(super) slopes: Option<&'a [f32]>,
    pub(super) limits: (f32, f32),
    /// Where the first position goes.
    pub(super) output: *mut f32,
    /// Elements from one position to the next.
    pub(super) step: usize,
    /// Elements from one output channel to the next.
    pub(super) stride: usize,
}

impl Kernel for Line<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        // As many positions as there are registers for sums.
        match self.outputs {
            1 => self.tiles::<S, 1, 8>(s),
            2 => self.tiles::<S, 2, 8>(s),
            3 => self.tiles::<S, 3, 4>(s),
            _ => self.tiles::<S, 4, 4>(s),
        }
    }
}

impl Line<'_> {
    /// Computes the line in tiles of neighbouring positions.
    #[inline(always)]
    fn tiles<S: Simd, const OUTPUTS: usize, const POSITIONS: usize>(&self, s: S) {
        let view = &self.view;
        let reach = self.taps[1].saturating_sub(1) * view.dilation[1] + (POSITIONS - 1) * view.stride[1];
        for x in self.columns.clone().step_by(POSITIONS) {
            let count = POSITIONS.min(self.columns.end - x);
            let first = x * view.stride[1];
            let is_inside = count == POSITIONS && first >= view.pad[1] && first + reach < view.input[1] + view.pad[1];
            // SAFETY: the positions lie in the line and, where `is_inside`, all their taps in the width.
            unsafe {
                match is_inside {
                    true => self.tile::<S, OUTPUTS, POSITIONS, false>(s, x, count),
                    false => self.tile::<S, OUTPUTS, POSITIONS, true>(s, x, count),
                }
            }
        }
    }

    /// Computes `count` positions from `x` on; taps may lie outside of the width at an `EDGE`.
    ///
    /// # Safety
    /// The positions lie in the line, and `OUTPUTS` is the number of output channels. Without `EDGE` there are
    /// `POSITIONS`, and all their taps lie in the width of the input.
    #[inline(always)]
    unsafe fn tile<S: Simd, const OUTPUTS: usize, const POSITIONS: usize, const EDGE: bool>(
        &self,
        s: S,
        x: usize,
        count: usize,
    ) {
        let view = &self.view;
        let blocks = self.inputs.div_ceil(BLOCK);
        let first = x - self.columns.start;
        let mut sums = [[s.splat(0.0); POSITIONS]; OUTPUTS];
        for line in 0..self.levels * self.taps[0] {
            let (level, ky) = (line / self.taps[0], line % self.taps[0]);
            let Some(row) = view.at(0, self.y, ky) else { continue };
            let start = level * self.level_step + row * view.input[1] * BLOCK;
            for index in 0..self.taps[1] * blocks {
                let (kx, block) = (index / blocks, index % blocks);
                let tap = line * self.taps[1] + kx;
                let left = if EDGE { 0 } else { x * view.stride[1] + kx * view.dilation[1] - view.pad[1] };
                let channels = BLOCK.min(self.inputs - block * BLOCK);
                for lane in (0..channels).step_by(S::LANES) {
                    let lanes = S::LANES.min(channels - lane);
                    let line = start + block * self.block_step + lane;
                    // Plain loops: what a closure does is compiled without the instructions of the tier.
                    let mut weights = [s.splat(0.0); OUTPUTS];
                    for (output, weight) in weights.iter_mut().enumerate() {
                        let place = ((tap * blocks + block) * OUTPUTS + output) * BLOCK + lane;
                        // SAFETY: there are weights for every tap and block, padded to whole blocks.
                        *weight = unsafe { s.load(self.weights.as_ptr().add(place)) };
                    }
                    for position in 0..POSITIONS {
                        let column = match EDGE {
                            true => view.at(1, x + position, kx),
                            false => Some(left + position * view.stride[1]),
                        };
                        let Some(column) = column else { continue };
                        // SAFETY: the tap lies inside the input, and lanes beyond the last channel are not read.
                        let value = unsafe { s.load_first(self.input.as_ptr().add(line + column * BLOCK), lanes) };
                        for output in 0..OUTPUTS {
                            sums[output][position] = s.fma(value, weights[output], sums[output][position]);
                        }
                    }
                }
            }
        }
        for output in 0..OUTPUTS {
            let bias = self.bias.map_or(0.0, |bias| bias[output]);
            let mut results = [0.0f32; POSITIONS];
            for position in 0..POSITIONS {
                results[position] = s.reduce_add(sums[output][position]) + bias;
            }
            for result in &mut results {
                if let Some(slopes) = self.slopes.filter(|_| *result < 0.0) {
                    *result *= slopes[output];
                }
                // The order of a comparison with NaN is that of the vectors: it stays.
                *result = if *result < self.limits.0 { self.limits.0 } else { *result };
                *result = if *result > self.limits.1 { self.limits.1 } else { *result };
            }
            for (position, result) in results.iter().enumerate().take(count) {
                // SAFETY: the position lies in the line of the output channel.
                unsafe { *self.output.add(output * self.stride + (first + position) * self.step) = *result };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::from_plain;
    use crate::convolution::{PackedConvolution, convolution};
    use crate::testing::{Random, assert_close, in_pool};
    use crate::unary::UnaryOp;
    use pretty_assertions::assert_eq;

    #[test]
    fn few_channels_as_on_plain_values() {
        let mut random = Random::new(11);
        for round in 0..80 {
            let (outputs, inputs) = (1 + round % 4, [5, 16, 24, 33][round / 4 % 4]);
            let is_deep = round % 2 == 1;
            let mut sizes = |of_depth: usize, least, most| {
                [
                    if is_deep { random.between(least, most) } else { of_depth },
                    random.between(least, most),
                    random.between(least, most),
                ]
            };
            let (kernel, stride, pad) = (sizes(1, 1, 3), sizes(1, 1, 2), sizes(0, 0, 2));
            let (dilation, size) = (sizes(1, 1, 2), sizes(1, 5, 14));
            let geometry =
                ConvolutionGeometry::new(2, 1, inputs, outputs, size, kernel, stride, dilation, pad, pad).unwrap();
            let (plane, values) = (size.iter().product::<usize>(), random.values(geometry.input_len()));
            let mut blocked = vec![0.0; blocked_len(2, inputs, plane)];
            from_plain(2, inputs, plane, &values, &mut blocked).unwrap();
            // Lanes beyond the last channel hold anything.
            if inputs % BLOCK != 0 {
                for image in 0..2 {
                    let image = &mut blocked[image * inputs.next_multiple_of(BLOCK) * plane..];
                    for place in 0..plane {
                        image[(inputs / BLOCK * plane + place) * BLOCK + BLOCK - 1] = f32::NAN;
                    }
                }
            }
            let (weights, bias) = (random.values(geometry.weights_len()), random.values(outputs));
            let slopes = random.values(outputs);
            let activation = match round % 3 {
                0 => Activation::Unary(UnaryOp::Relu),
                1 => Activation::Unary(UnaryOp::Sigmoid),
                _ => Activation::PRelu(Channelwise::PerRow(&slopes)),
            };
            let epilogue = ConvolutionEpilogue { bias: Some(&bias), residual: None, accumulates: false, activation };
            let packed = NarrowConvolution::pack(&geometry, &weights).unwrap();
            for isa in Isa::available() {
                let plain = PackedConvolution::pack(isa, &geometry, &weights).unwrap();
                let mut expected = vec![f32::NAN; geometry.output_len()];
                convolution(isa, &geometry, &plain, &values, &mut expected, &epilogue).unwrap();
                let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
                let run = || {
                    let mut output = vec![f32::NAN; geometry.output_len()];
                    narrow_convolution(isa, &geometry, &packed, &blocked, &mut output, &epilogue).unwrap();
                    output
                };
                assert_close(&run(), &expected, 200, &format!("{isa} {geometry:?}"));
                assert_eq!(run(), in_pool(2, run));
            }
        }
        let wide = ConvolutionGeometry::new(1, 1, 4, 5, [1, 2, 2], [1; 3], [1; 3], [1; 3], [0; 3], [0; 3]).unwrap();
        assert!(NarrowConvolution::pack(&wide, &[0.0; 20]).is_err());
    }
}
