//! Transposed convolution on blocks.
//!
//! The outputs whose places agree modulo the strides are a phase: an ordinary convolution of stride 1 with the taps that
//! reach them, in reverse order. Tiles are computed as those of a convolution, and their positions, which are whole lines
//! of the cache, stored as far apart as the strides. So no product with a stuffed zero is computed, and nothing is written
//! twice. The planes of a volume are those of the taps along the depth that reach them, one added to the other.

use super::direct::{
    ANY_POSITIONS, APART, Call, IN_LINE, LONGEST_TASK, MOST_SUMS, Parts, SHORTEST_TASK, SIDE_BY_SIDE, TASKS, lanes_of,
    narrowest, run_tiles,
};
use super::narrow::{Line, MOST_NARROW};
use super::{BLOCK, blocked_len};
use crate::convolution::{ConvolutionEpilogue, PlanePhase, TransposedConvolutionGeometry};
use crate::epilogue::{Activation, Channelwise};
use crate::error::{KernelError, check_exact, product};
use crate::gemm::Value;
use crate::isa::Isa;
use crate::packed::Packed;
use crate::parallel::{SharedMut, nanoseconds_for_flops, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::stream::prefetch_near;
use crate::unary;
use std::ops::Range;

/// The most phases.
const MOST_PHASES: usize = 1 << 10;

/// How far apart the first and the last tap may be.
const FARTHEST_TAP: usize = 1 << 24;

/// The positions of a phase in one task of a convolution into few plain channels.
const NARROW_TASK: usize = 256;

/// The weights of all phases, packed once for every tier, and what they are for.
#[derive(Debug, Clone)]
struct Phases {
    /// `[groups, output channels, input channels]`.
    channels: [usize; 3],
    /// Kernel, stride and dilation.
    steps: [[usize; 2]; 3],
    /// Taps along the depth.
    deep: usize,
    /// Where the weights of each tap along the depth and class of taps begin.
    starts: Vec<usize>,
    values: Packed<f32>,
}

impl Phases {
    /// Packs the weights of each class. So many weights have a tap, and `place` tells where the weight of a tap of so many
    /// lies that goes from an input to an output channel; input channels are counted in their group.
    fn pack<T: Value>(
        geometry: &TransposedConvolutionGeometry,
        weights: &[T],
        of_tap: usize,
        place: impl Fn([usize; 2], usize, usize) -> usize,
    ) -> Result<Self, KernelError> {
        check_exact("weights", weights.len(), geometry.weights_len())?;
        Self::check_steps(geometry)?;
        let (channels, steps) = (geometry.channels(), geometry.plane_steps());
        let ([groups, outputs, inputs], [[high, wide], stride, _]) = (channels, steps);
        let (inputs, outputs, [deep, ..]) = (inputs / groups, outputs / groups, geometry.depth_steps());
        let classes = stride[0] * stride[1];
        let mut starts = Vec::new();
        let mut len = 0;
        for index in 0..product("classes", &[deep, classes])? {
            starts.push(len);
            let [down, right] = geometry.plane_taps(index % classes);
            len += down.count * right.count * of_tap;
        }
        let mut values = Packed::zeroed(len);
        for (index, start) in starts.iter().enumerate() {
            let [down, right] = geometry.plane_taps(index % classes);
            let taps = [down.count, right.count];
            for tap in 0..taps[0] * taps[1] {
                let from =
                    (index / classes * high + down.reversed(tap / taps[1])) * wide + right.reversed(tap % taps[1]);
                for channel in 0..groups * inputs {
                    for output in 0..outputs {
                        let weight = &weights[(channel * outputs + output) * deep * high * wide + from];
                        let output = channel / inputs * outputs + output;
                        values[start + place([tap, taps[0] * taps[1]], channel % inputs, output)] = weight.widen();
                    }
                }
            }
        }
        Ok(Self { channels, steps, deep, starts, values })
    }

    /// Checks that there are phases of planes, and not too many.
    fn check_steps(geometry: &TransposedConvolutionGeometry) -> Result<(), KernelError> {
        let [kernel, stride, dilation] = geometry.plane_steps();
        if stride[0].checked_mul(stride[1]).is_none_or(|phases| phases > MOST_PHASES) {
            return Err(KernelError::invalid("stride", "is too large"));
        }
        let is_near = |axis: usize| {
            (kernel[axis] - 1).checked_mul(dilation[axis]).is_some_and(|farthest| farthest < FARTHEST_TAP)
        };
        if !is_near(0) || !is_near(1) {
            return Err(KernelError::invalid("dilation", "is too large"));
        }
        Ok(())
    }

    /// Checks that the weights are those of the geometry, and that the blocked input and the output, which has so many
    /// channels for each position, are as long as it says. Returns the positions of their planes.
    fn check(
        &self,
        geometry: &TransposedConvolutionGeometry,
        input: &[f32],
        output: &[f32],
        output_channels: usize,
    ) -> Result<[usize; 2], KernelError> {
        let ([deep, ..], [from_deep, to_deep]) = (geometry.depth_steps(), geometry.depths());
        let is_same = self.channels == geometry.channels() && self.steps == geometry.plane_steps();
        if !is_same || self.deep != deep {
            return Err(KernelError::invalid("weights", "packed for another shape, stride or dilation"));
        }
        let (batch, [from, to]) = geometry.plane_sizes();
        let (plane, positions) = (product("input", &from)?, product("output", &to)?);
        let volumes = [product("input", &[plane, from_deep])?, product("output", &[positions, to_deep])?];
        check_exact("input", input.len(), blocked_len(batch, self.channels[2], volumes[0]))?;
        check_exact("output", output.len(), product("output", &[batch, output_channels, volumes[1]])?)?;
        Ok([plane, positions])
    }

    /// The phase of a number in `0..stride * stride`, and where it begins.
    fn phase(&self, geometry: &TransposedConvolutionGeometry, index: usize) -> (PlanePhase, [usize; 2]) {
        let start = [index / self.steps[1][1], index % self.steps[1][1]];
        (geometry.plane_phase(start), start)
    }
}

/// Weights of a transposed convolution on blocks, packed once for every tier, image size and padding.
#[derive(Debug, Clone)]
pub struct BlockedTransposed {
    /// Of each phase `[output block, tap, input channel, 16 output channels]`, input channels those of one group.
    phases: Phases,
}

impl BlockedTransposed {
    /// Whether weights can be packed for a geometry. Its batch, image size and padding do not matter.
    ///
    /// # Errors
    /// It has a stride or dilation that is too large, or groups whose channels are no whole blocks.
    pub fn check(geometry: &TransposedConvolutionGeometry) -> Result<(), KernelError> {
        let [groups, outputs, inputs] = geometry.channels();
        if groups > 1 && !(outputs.is_multiple_of(groups * BLOCK) && inputs.is_multiple_of(groups * BLOCK)) {
            return Err(KernelError::invalid("groups", "are no whole blocks"));
        }
        Phases::check_steps(geometry)
    }

    /// Packs the weights `[input channels, output channels per group, depth, height, width]`
    /// (GroupConvolutionBackpropData's `[G, I, O, ...]` is the same memory).
    ///
    /// # Errors
    /// The number of weights is wrong, or [`BlockedTransposed::check`] fails.
    pub fn pack<T: Value>(geometry: &TransposedConvolutionGeometry, weights: &[T]) -> Result<Self, KernelError> {
        Self::check(geometry)?;
        let [groups, outputs, inputs] = geometry.channels();
        let (blocks, inputs) = (outputs.div_ceil(BLOCK), inputs / groups);
        let phases = Phases::pack(geometry, weights, blocks * inputs * BLOCK, |[tap, taps], channel, output| {
            ((output / BLOCK * taps + tap) * inputs + channel) * BLOCK + output % BLOCK
        })?;
        Ok(Self { phases })
    }

    /// Bytes the packed form holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.phases.values)
    }
}

/// The transposed convolution of blocked `input` into blocked `output`; a residual of the epilogue is blocked. Bias and
/// slopes are indexed by channel.
///
/// # Errors
/// A slice has the wrong length, or the weights were packed for another shape, stride or dilation.
pub fn blocked_transposed(
    isa: Isa,
    geometry: &TransposedConvolutionGeometry,
    weights: &BlockedTransposed,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let phases = &weights.phases;
    let ([groups, outputs, inputs], (batch, [_, to])) = (geometry.channels(), geometry.plane_sizes());
    let [plane, _] = phases.check(geometry, input, output, outputs.next_multiple_of(BLOCK))?;
    epilogue.check_accumulating(outputs, output.len())?;
    if output.is_empty() {
        return Ok(());
    }
    let per_group = (outputs / groups).div_ceil(BLOCK);
    let deep @ [_, to_deep] = geometry.depths();
    let job = Job {
        isa,
        geometry,
        weights: phases,
        epilogue,
        input,
        plane,
        deep,
        to,
        input_blocks: inputs.div_ceil(BLOCK),
        inputs: inputs / groups,
        blocks: outputs.div_ceil(BLOCK),
        per_group,
        parts: Parts::new(isa, per_group),
        task_flops: (geometry.flops() / TASKS).clamp(SHORTEST_TASK, LONGEST_TASK) as usize,
        output: SharedMut::new(output),
    };
    // Every phase is given as many tasks as the one with the most, so that a number tells the task.
    let count = phases.steps[1][0] * phases.steps[1][1];
    let runs = (0..count).map(|index| job.cut(&phases.phase(geometry, index).0).runs()).max().unwrap_or(0);
    let tasks = batch * groups * to_deep * count * job.parts.count * runs;
    parallel_for(tasks, 1, nanoseconds_for_flops(geometry.flops()), |range| {
        for task in range {
            let (rest, run) = (task / runs, task % runs);
            let (rest, part) = (rest / job.parts.count, rest % job.parts.count);
            let (rest, index) = (rest / count, rest % count);
            let (rest, z) = (rest / to_deep, rest % to_deep);
            // SAFETY: lengths were checked, and tasks write disjoint positions and blocks of the output.
            unsafe { job.run([rest / groups, rest % groups, z], index, part, run) };
        }
    });
    Ok(())
}

/// How a phase is cut into tasks and tiles.
#[derive(Clone, Copy)]
struct Cut {
    /// Whether tiles end with lines; else the phase is one line of all its positions.
    ends_with_lines: bool,
    /// Whether all positions read side by side, one value each.
    is_pointwise: bool,
    lines: usize,
    columns: usize,
    /// The lines and columns of a task.
    run: [usize; 2],
}

impl Cut {
    fn runs(&self) -> usize {
        self.lines.div_ceil(self.run[0]) * self.columns.div_ceil(self.run[1])
    }

    /// The lines and columns of a task.
    fn of(&self, run: usize) -> [Range<usize>; 2] {
        let across = self.columns.div_ceil(self.run[1]).max(1);
        let range = |index: usize, len: usize, end: usize| (index * len).min(end)..(index * len + len).min(end);
        [range(run / across, self.run[0], self.lines), range(run % across, self.run[1], self.columns)]
    }
}

struct Job<'a> {
    isa: Isa,
    geometry: &'a TransposedConvolutionGeometry,
    weights: &'a Phases,
    epilogue: &'a ConvolutionEpilogue<'a>,
    input: &'a [f32],
    /// Positions of a plane of the input.
    plane: usize,
    /// Planes of the input and of the output.
    deep: [usize; 2],
    /// Lines and columns of the output.
    to: [usize; 2],
    /// Input blocks of one image.
    input_blocks: usize,
    /// Input channels of one group.
    inputs: usize,
    /// Output blocks of one image.
    blocks: usize,
    /// Output blocks of one group.
    per_group: usize,
    parts: Parts,
    task_flops: usize,
    output: SharedMut<'a, f32>,
}

/// Sums of a tile on their way to places that lie apart.
#[repr(align(64))]
struct Sums([f32; MOST_SUMS * BLOCK]);

impl Job<'_> {
    fn cut(&self, phase: &PlanePhase) -> Cut {
        let (size, view) = (phase.size, &phase.view);
        let is_pointwise = phase.taps == [1, 1] && view.pad == [0, 0] && phase.first == [0, 0] && view.input == size;
        let is_long = size[1] >= narrowest(self.isa.tier()) || phase.first[1] > 0;
        let ends_with_lines = phase.taps != [0, 0] && !is_pointwise && is_long;
        let [lines, columns] = if ends_with_lines { size } else { [1, size[0] * size[1]] };
        if lines * columns == 0 {
            return Cut { ends_with_lines, is_pointwise, lines: 0, columns: 0, run: [1, 1] };
        }
        let blocks = self.parts.of(0).len();
        let tile = self.parts.tile(columns, blocks);
        let tile_flops = 2 * tile * blocks * BLOCK * self.inputs * (phase.taps[0] * phase.taps[1]).max(1);
        // Enough tasks to share evenly, each far longer than what it takes to hand it out.
        let (tiles, of_line) = ((self.task_flops / tile_flops.max(1)).max(1), columns.div_ceil(tile));
        let even = |count: usize, most: usize| count.div_ceil(count.div_ceil(most));
        let run = match tiles / of_line {
            0 => [1, even(of_line, tiles) * tile],
            most => [even(lines, most), columns],
        };
        Cut { ends_with_lines, is_pointwise, lines, columns, run }
    }

    /// Where the weights of a block and phase begin for a tap along the depth.
    fn weights_of(&self, tap: usize, phase: &PlanePhase, block: usize) -> usize {
        let [_, stride, _] = self.weights.steps;
        let class = tap * stride[0] * stride[1] + phase.class;
        let start = self.weights.starts.get(class).copied().unwrap_or_default();
        start + block * phase.taps[0] * phase.taps[1] * self.inputs * BLOCK
    }

    /// Computes one task of a plane of a part of the blocks of a group.
    ///
    /// # Safety
    /// The lengths were checked, and nobody else touches these positions and blocks of the output.
    unsafe fn run(&self, [image, group, z]: [usize; 3], index: usize, part: usize, run: usize) {
        let (phase, start) = self.weights.phase(self.geometry, index);
        let cut = self.cut(&phase);
        if run >= cut.runs() {
            return;
        }
        let [_, stride, _] = self.geometry.depth_steps();
        let depth = self.geometry.depth_phase(z % stride);
        let taps = self.geometry.depth_taps(depth.class);
        let position = z / stride + depth.first;
        let inside = if phase.taps == [0, 0] { 0..0 } else { depth.view.inside(position) };
        let pass = Pass { image, group, z, start, part, run, tap: None, starts: true, ends: true };
        if inside.is_empty() {
            // SAFETY: the caller's promise.
            unsafe { self.pass(&phase, &cut, &pass) };
        }
        for tap in inside.clone() {
            let (starts, ends) = (tap == inside.start, tap + 1 == inside.end);
            let tap = Some([taps.reversed(tap), depth.view.place(position, tap)]);
            // SAFETY: the caller's promise.
            unsafe { self.pass(&phase, &cut, &Pass { tap, starts, ends, ..pass }) };
        }
    }

    /// Adds one tap along the depth.
    ///
    /// # Safety
    /// As of [`Job::run`].
    unsafe fn pass(&self, phase: &PlanePhase, cut: &Cut, pass: &Pass) {
        let &Pass { image, group, part, run, tap, starts, ends, .. } = pass;
        let part_blocks = self.parts.of(part);
        let (block, blocks) = (group * self.per_group + part_blocks.start, part_blocks.len());
        let (mut bias, slopes) = lanes_of(self.epilogue, block * BLOCK);
        if !starts {
            bias.fill(0.0);
        }
        let [from_deep, _] = self.deep;
        let [tap, plane] = tap.unwrap_or_default();
        let source = (image * self.input_blocks + group * self.inputs.div_ceil(BLOCK)) * from_deep + plane;
        let source = source * self.plane * BLOCK;
        let is_reached = pass.tap.is_some();
        let steps = phase.taps[0] * phase.taps[1] * self.inputs;
        let weights = self.weights_of(tap, phase, block);
        // The tiles of a part together ask for all weights of the next one.
        let tile = self.parts.tile(cut.columns, blocks);
        let tiles = cut.lines * cut.columns.div_ceil(tile);
        let next_step = (blocks * BLOCK).div_ceil(tiles);
        let next = self.weights.values.as_ptr().wrapping_add(weights + blocks * steps * BLOCK);
        let part_epilogue = self.epilogue.part(0, 0, 0, 0);
        let call = Call {
            input: self.input[source.min(self.input.len())..].as_ptr(),
            view: phase.view,
            // What nothing reaches is the sum of no channels.
            taps: if is_reached { phase.taps } else { [1, 1] },
            lanes: BLOCK,
            channels: if is_reached { self.inputs } else { 0 },
            first_lane: 0,
            second: 0,
            second_lane: 0,
            channel_step: from_deep * self.plane * BLOCK,
            planes: 1,
            plane_step: 0,
            weights: self.weights.values[weights..].as_ptr(),
            weights_block: steps * BLOCK,
            is_half: false,
            bias: bias.as_ptr(),
            slopes: slopes.as_ref().filter(|_| ends).map_or(std::ptr::null(), |slopes| slopes.as_ptr()),
            residual: std::ptr::null(),
            output: std::ptr::null_mut(),
            block_stride: 0,
            group_lanes: std::ptr::null(),
            group_outputs: self.weights.channels[1] / self.weights.channels[0],
            mixture: std::ptr::null(),
            position: 0,
            limits: if ends { part_epilogue.limits() } else { (f32::NEG_INFINITY, f32::INFINITY) },
            next,
            next_step,
            next_tile: 0,
            tiles: 1,
        };
        let unary = self.epilogue.activation.function().filter(|_| ends);
        let mut sums = Sums([0.0; MOST_SUMS * BLOCK]);
        let [lines, columns] = cut.of(run);
        for line in lines {
            let mut column = columns.start;
            while column < columns.end {
                let mut count = tile.min(columns.end - column);
                if count > ANY_POSITIONS && count % 2 == 1 {
                    count = count.div_ceil(2);
                }
                let place = if cut.ends_with_lines { line * phase.size[1] + column } else { column };
                let of_phase = Tile { phase, pass, cut: *cut, place, count, block, blocks };
                let next = next.wrapping_add(place / tile * steps * next_step);
                // SAFETY: the caller's promise; the place lies in the phase, and the count does not exceed a tile.
                unsafe { self.tile(&of_phase, Call { next, ..call }, unary, &mut sums) };
                column += count;
            }
        }
    }

    /// Computes one tile; the call lacks its position and where the output is.
    ///
    /// # Safety
    /// As of [`Job::run`]; the tile lies in the phase.
    unsafe fn tile(&self, tile: &Tile<'_>, call: Call, unary: Option<unary::UnaryOp>, sums: &mut Sums) {
        let &Tile { phase, pass, cut, place, count, block, blocks } = tile;
        let ([down, across], [_, to_deep]) = (self.weights.steps[1], self.deep);
        let plane_len = self.to[0] * self.to[1] * BLOCK;
        let block_len = to_deep * plane_len;
        let first = (pass.image * self.blocks + block) * block_len + pass.z * plane_len;
        let target = self.output.pointer().wrapping_add(first);
        let residual = match self.epilogue.residual {
            _ if !pass.starts => target.cast_const(),
            Some(values) => values[first..].as_ptr(),
            None if self.epilogue.accumulates => target.cast_const(),
            None => std::ptr::null(),
        };
        let at = [place / phase.size[1], place % phase.size[1]];
        let position = (at[0] + phase.first[0]) * phase.view.output[1] + at[1] + phase.first[1];
        // Positions of one line lie side by side if all columns are of one phase, and those of several ones if all are.
        let is_dense = across == 1 && (cut.ends_with_lines || down == 1);
        let (output, block_stride, added) = if is_dense {
            let place = self.place(tile, at) * BLOCK;
            let residual = if residual.is_null() { residual } else { residual.wrapping_add(place) };
            (target.wrapping_add(place), block_len, residual)
        } else {
            let stride = count * BLOCK;
            for (offset, number, place) in self.lines(tile) {
                for block in 0..blocks {
                    let place = block * block_len + place * BLOCK;
                    // SAFETY: the positions of the tile lie in the output and in the residual, and those of so many
                    // blocks in the sums.
                    unsafe {
                        if residual.is_null() {
                            (0..number).for_each(|at| prefetch_near(target.wrapping_add(place + at * across * BLOCK)));
                        } else {
                            let to = sums.0.as_mut_ptr().add(block * stride + offset * BLOCK);
                            move_blocks(self.isa, residual.add(place), across, to, 1, number);
                        }
                    }
                }
            }
            let own = sums.0.as_mut_ptr();
            (own, stride, if residual.is_null() { residual } else { own.cast_const() })
        };
        let call = Call { position, output, block_stride, residual: added, ..call };
        // SAFETY: the tile lies inside the output or the sums, and everything it reads inside the slices that were checked.
        unsafe {
            match () {
                () if call.channels == 0 => run_tiles::<APART>(self.isa, count, blocks, call),
                () if cut.is_pointwise || tile.is_inside(at) => {
                    run_tiles::<SIDE_BY_SIDE>(self.isa, count, blocks, call);
                }
                () if cut.ends_with_lines => run_tiles::<IN_LINE>(self.isa, count, blocks, call),
                () => run_tiles::<APART>(self.isa, count, blocks, call),
            }
        }
        if let Some(op) = unary {
            for block in 0..blocks {
                let line = output.wrapping_add(block * block_stride);
                // SAFETY: the line of the tile lies in the output or the sums.
                unsafe { unary::apply(self.isa, op, line, line, count * BLOCK) };
            }
        }
        if !is_dense {
            for (offset, number, place) in self.lines(tile) {
                for block in 0..blocks {
                    // SAFETY: the positions of the tile lie in the output, and nobody else writes them.
                    unsafe {
                        let from = sums.0.as_ptr().add(block * count * BLOCK + offset * BLOCK);
                        move_blocks(self.isa, from, 1, target.add(block * block_len + place * BLOCK), across, number);
                    }
                }
            }
        }
    }

    /// The place of a position of a phase in the plane of the output.
    fn place(&self, tile: &Tile<'_>, at: [usize; 2]) -> usize {
        let stride = self.weights.steps[1];
        (tile.pass.start[0] + at[0] * stride[0]) * self.to[1] + tile.pass.start[1] + at[1] * stride[1]
    }

    /// The positions of a tile line by line: which is the first one, how many there are, and where the first one is in the
    /// plane of the output.
    fn lines(&self, tile: &Tile<'_>) -> impl Iterator<Item = (usize, usize, usize)> {
        let mut offset = 0;
        std::iter::from_fn(move || {
            let place = tile.place + offset;
            let at = [place / tile.phase.size[1], place % tile.phase.size[1]];
            let number = (tile.count - offset).min(tile.phase.size[1] - at[1]);
            let found = (number > 0).then(|| (offset, number, self.place(tile, at)));
            offset += number;
            found
        })
    }
}

/// One tap along the depth that is added to one plane.
#[derive(Clone, Copy)]
struct Pass {
    image: usize,
    group: usize,
    /// The plane of the output.
    z: usize,
    /// Where the phase begins in the plane.
    start: [usize; 2],
    part: usize,
    run: usize,
    /// The tap and the plane of the input that it reads; `None` where nothing reaches the phase.
    tap: Option<[usize; 2]>,
    /// Whether it is the first one of the plane, and the last one.
    starts: bool,
    ends: bool,
}

/// Neighbouring positions of a phase, of some output blocks of a plane.
struct Tile<'a> {
    phase: &'a PlanePhase,
    pass: &'a Pass,
    cut: Cut,
    /// The first position.
    place: usize,
    count: usize,
    block: usize,
    blocks: usize,
}

impl Tile<'_> {
    /// Whether the tile, which begins at a place of the phase, lies in one line, with every tap inside.
    fn is_inside(&self, at: [usize; 2]) -> bool {
        let (phase, view) = (self.phase, &self.phase.view);
        let is_inside = |axis: usize, count: usize| {
            let (first, reach) = (at[axis] + phase.first[axis], (phase.taps[axis] - 1) * view.dilation[axis]);
            first >= view.pad[axis] && first - view.pad[axis] + count + reach <= view.input[axis]
        };
        at[1] + self.count <= phase.size[1] && is_inside(0, 1) && is_inside(1, self.count)
    }
}

/// Moves blocks that lie `from_step` blocks apart to places that are `to_step` apart.
///
/// # Safety
/// So many blocks lie at both.
unsafe fn move_blocks(isa: Isa, from: *const f32, from_step: usize, to: *mut f32, to_step: usize, count: usize) {
    dispatch(isa, Move { from, from_step: from_step * BLOCK, to, to_step: to_step * BLOCK, count });
}

struct Move {
    from: *const f32,
    from_step: usize,
    to: *mut f32,
    to_step: usize,
    count: usize,
}

impl Kernel for Move {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for index in 0..self.count {
            for lane in 0..BLOCK / S::LANES {
                let lane = lane * S::LANES;
                // SAFETY: `move_blocks` was promised that so many blocks lie at both.
                unsafe {
                    let value = s.load(self.from.add(index * self.from_step + lane));
                    s.store(self.to.add(index * self.to_step + lane), value);
                }
            }
        }
    }
}

/// Weights of a transposed convolution into few plain channels, packed once for every tier, image size and padding.
#[derive(Debug, Clone)]
pub struct NarrowTransposed {
    /// Of each phase `[tap, block of input channels, output, 16 input channels]`.
    phases: Phases,
}

impl NarrowTransposed {
    /// Whether weights can be packed for a geometry. Its batch, image size and padding do not matter.
    ///
    /// # Errors
    /// It has groups, a depth, a stride or dilation that is too large, or more than [`MOST_NARROW`] output channels.
    pub fn check(geometry: &TransposedConvolutionGeometry) -> Result<(), KernelError> {
        let [groups, outputs, _] = geometry.channels();
        if groups != 1 || outputs > MOST_NARROW || geometry.has_depth() {
            return Err(KernelError::invalid("geometry", "has groups, a depth or too many output channels"));
        }
        Phases::check_steps(geometry)
    }

    /// Packs the weights `[input channels, output channels, height, width]`.
    ///
    /// # Errors
    /// The number of weights is wrong, or [`NarrowTransposed::check`] fails.
    pub fn pack<T: Value>(geometry: &TransposedConvolutionGeometry, weights: &[T]) -> Result<Self, KernelError> {
        Self::check(geometry)?;
        let [_, outputs, inputs] = geometry.channels();
        let blocks = inputs.div_ceil(BLOCK);
        let phases = Phases::pack(geometry, weights, blocks * outputs * BLOCK, |[tap, _], channel, output| {
            ((tap * blocks + channel / BLOCK) * outputs + output) * BLOCK + channel % BLOCK
        })?;
        Ok(Self { phases })
    }
}

/// The transposed convolution of blocked `input` into plain `output` `[N, O, H', W']`. Bias and slopes are indexed by
/// channel; there is no residual.
///
/// # Errors
/// A slice has the wrong length, the weights were packed for another shape, stride or dilation, or there is a residual.
pub fn narrow_transposed(
    isa: Isa,
    geometry: &TransposedConvolutionGeometry,
    weights: &NarrowTransposed,
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) -> Result<(), KernelError> {
    let phases = &weights.phases;
    let ([_, outputs, inputs], (batch, [_, to])) = (geometry.channels(), geometry.plane_sizes());
    NarrowTransposed::check(geometry)?;
    let [plane, positions] = phases.check(geometry, input, output, outputs)?;
    if epilogue.residual.is_some() {
        return Err(KernelError::invalid("residual", "cannot be added"));
    }
    epilogue.check(outputs, output.len())?;
    if output.is_empty() {
        return Ok(());
    }
    let [down, across] = phases.steps[1];
    let runs = to[1].div_ceil(across).div_ceil(NARROW_TASK);
    let image_len = blocked_len(1, inputs, plane);
    let shared = SharedMut::new(output);
    let part = epilogue.part(0, 0, 0, 0);
    parallel_for(batch * to[0] * runs, 1, nanoseconds_for_flops(geometry.flops()) * 2, |range| {
        for index in range {
            let (rest, run) = (index / runs, index % runs);
            let (image, y) = (rest / to[0], rest % to[0]);
            // The first output of the line.
            let first = image * outputs * positions + y * to[1];
            for column in 0..across {
                let phase = geometry.plane_phase([y % down, column]);
                let columns = run * NARROW_TASK..phase.size[1].min((run + 1) * NARROW_TASK);
                if columns.is_empty() {
                    continue;
                }
                let start = phases.starts.get(phase.class).copied().unwrap_or_default();
                let line = Line {
                    view: phase.view,
                    levels: 1,
                    level_step: 0,
                    block_step: plane * BLOCK,
                    taps: phase.taps,
                    y: y / down + phase.first[0],
                    columns: columns.start + phase.first[1]..columns.end + phase.first[1],
                    inputs,
                    outputs,
                    weights: &phases.values[start..],
                    input: &input[image * image_len..][..image_len],
                    bias: epilogue.bias,
                    slopes: match epilogue.activation {
                        Activation::PRelu(Channelwise::PerRow(slopes)) => Some(slopes),
                        _ => None,
                    },
                    limits: part.limits(),
                    output: shared.pointer().wrapping_add(first + columns.start * across + column),
                    step: across,
                    stride: positions,
                };
                // SAFETY: lengths were checked, and the positions of tasks and phases are disjoint.
                dispatch(isa, line);
            }
            if let Some(op) = epilogue.activation.function() {
                let columns = run * NARROW_TASK * across..to[1].min((run + 1) * NARROW_TASK * across);
                for output in 0..outputs {
                    let line = shared.pointer().wrapping_add(first + output * positions + columns.start);
                    // SAFETY: the part of the line lies in the output.
                    unsafe { unary::apply(isa, op, line, line, columns.len()) };
                }
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::{from_plain, to_plain};
    use crate::convolution::{PackedTransposedConvolution, transposed_convolution, transposed_convolution_scratch_len};
    use crate::testing::{Random, assert_close, in_pool};
    use crate::unary::UnaryOp;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    /// The blocked form, with spare lanes that hold no numbers.
    fn block(batch: usize, channels: usize, positions: usize, values: &[f32]) -> Vec<f32> {
        let mut blocked = vec![f32::NAN; blocked_len(batch, channels, positions)];
        from_plain(batch, channels, positions, values, &mut blocked).unwrap();
        for (index, value) in blocked.iter_mut().enumerate() {
            if index / (positions * BLOCK) % channels.div_ceil(BLOCK) * BLOCK + index % BLOCK >= channels {
                *value = f32::NAN;
            }
        }
        blocked
    }

    /// Sizes, kernel, stride, dilation and pads of a geometry, and how much larger its output is than it need be.
    #[derive(Debug, Clone, Copy)]
    struct Sizes {
        channels: [usize; 3],
        batch: usize,
        input: [usize; 3],
        kernel: [usize; 3],
        stride: [usize; 3],
        dilation: [usize; 3],
        pads: [[usize; 3]; 2],
        more: [usize; 3],
    }

    impl Sizes {
        /// The geometry, if there is an output.
        fn geometry(&self) -> Option<TransposedConvolutionGeometry> {
            let [groups, outputs, inputs] = self.channels;
            let mut output = [1; 3];
            for axis in 0..3 {
                let reach = (self.input[axis] - 1) * self.stride[axis] + (self.kernel[axis] - 1) * self.dilation[axis];
                let pads = self.pads[0][axis] + self.pads[1][axis];
                output[axis] = (reach + 1 + self.more[axis]).checked_sub(pads).filter(|size| *size > 0)?;
            }
            let geometry = TransposedConvolutionGeometry::new(
                self.batch,
                groups,
                inputs,
                outputs,
                self.input,
                self.kernel,
                self.stride,
                self.dilation,
                self.pads[0],
                output,
            );
            Some(geometry.unwrap())
        }

        fn random(random: &mut Random, channels: [usize; 3], side: usize) -> Self {
            let mut three = |low: usize, high: usize| [0; 3].map(|_| random.between(low, high));
            let (mut input, kernel, stride) = (three(1, side), three(1, 5), three(1, 3));
            input[0] = input[0].div_ceil(4);
            let (pads, more) = ([three(0, 2), three(0, 2)], three(0, 2));
            let dilation = if three(0, 2)[0] == 0 { three(1, 3) } else { [1; 3] };
            let mut sizes = Self { channels, batch: 1, input, kernel, stride, dilation, pads, more };
            sizes.batch = random.between(1, 2);
            let kind = random.between(0, 9);
            if kind % 5 == 1 {
                // Windows that do not overlap.
                (sizes.kernel, sizes.pads) = (sizes.stride, [[0; 3]; 2]);
            }
            // Lines, planes and volumes.
            for axis in 0..[2, 1, 1, 1, 1, 0, 0, 0, 0, 0][kind] {
                (sizes.input[axis], sizes.kernel[axis], sizes.stride[axis], sizes.more[axis]) = (1, 1, 1, 0);
                (sizes.pads[0][axis], sizes.pads[1][axis]) = (0, 0);
            }
            sizes
        }
    }

    /// Compares with the transposed convolution of plain values, which has a reference of its own.
    fn check(random: &mut Random, sizes: Sizes) {
        let Some(geometry) = sizes.geometry() else { return };
        let [_, outputs, inputs] = sizes.channels;
        let (batch, [from, to]) = geometry.plane_sizes();
        let [from_deep, to_deep] = geometry.depths();
        let (plane, positions) = (from_deep * from[0] * from[1], to_deep * to[0] * to[1]);
        let (weights, input) = (random.values(geometry.weights_len()), random.values(geometry.input_len()));
        let (bias, slopes) = (random.values(outputs), random.values(outputs));
        let residual = random.values(geometry.output_len());
        let blocked_input = block(batch, inputs, plane, &input);
        let blocked_residual = block(batch, outputs, positions, &residual);
        let activation = match random.between(0, 3) {
            0 => Activation::None,
            1 => Activation::Unary(UnaryOp::Relu),
            2 => Activation::Unary(UnaryOp::Tanh),
            _ => Activation::PRelu(Channelwise::PerRow(&slopes)),
        };
        let bias = Some(&bias[..]).filter(|_| random.between(0, 3) > 0);
        let packed = BlockedTransposed::pack(&geometry, &weights).unwrap();
        for isa in Isa::available() {
            let what = format!("{isa} {sizes:?} {activation:?}");
            let plain = PackedTransposedConvolution::pack(isa, &geometry, &weights).unwrap();
            let expected = |residual| {
                let epilogue = ConvolutionEpilogue { bias, residual, accumulates: false, activation };
                let mut expected = vec![f32::NAN; geometry.output_len()];
                let mut scratch = vec![f32::NAN; transposed_convolution_scratch_len(&geometry)];
                transposed_convolution(isa, &geometry, &plain, &input, &mut expected, &epilogue, &mut scratch).unwrap();
                expected.into_iter().map(f64::from).collect::<Vec<f64>>()
            };
            let run = |residual, accumulates, mut output: Vec<f32>| {
                let epilogue = ConvolutionEpilogue { bias, residual, accumulates, activation };
                blocked_transposed(isa, &geometry, &packed, &blocked_input, &mut output, &epilogue).unwrap();
                let mut result = vec![f32::NAN; geometry.output_len()];
                to_plain(batch, outputs, positions, &output, &mut result).unwrap();
                result
            };
            let empty = vec![f32::NAN; blocked_residual.len()];
            assert_close(&run(None, false, empty.clone()), &expected(None), 200, &what);
            let added = run(Some(&blocked_residual), false, empty);
            assert_close(&added, &expected(Some(&residual)), 200, &format!("{what} with a residual"));
            assert_eq!(added, run(None, true, blocked_residual.clone()), "{what} adds to its output");
            if NarrowTransposed::check(&geometry).is_ok() {
                let packed = NarrowTransposed::pack(&geometry, &weights).unwrap();
                let epilogue = ConvolutionEpilogue { bias, residual: None, accumulates: false, activation };
                let run = || {
                    let mut output = vec![f32::NAN; geometry.output_len()];
                    narrow_transposed(isa, &geometry, &packed, &blocked_input, &mut output, &epilogue).unwrap();
                    output
                };
                assert_close(&run(), &expected(None), 200, &format!("{what} into plain channels"));
                assert_eq!(run(), in_pool(2, run));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]
        #[test]
        fn any_transposed_convolution(seed: u64) {
            let mut random = Random::new(seed);
            let channels = [1, random.between(1, 70), random.between(1, 40)];
            let sizes = Sizes::random(&mut random, channels, 18);
            check(&mut random, sizes);
            let channels = [1, random.between(1, 4), random.between(1, 40)];
            let sizes = Sizes::random(&mut random, channels, 18);
            check(&mut random, sizes);
            let sizes = Sizes::random(&mut random, [3, 96, 48], 9);
            check(&mut random, sizes);
        }
    }

    /// Long lines, which tasks share, and tiles of every size.
    #[test]
    fn lines_of_every_length() {
        let mut random = Random::new(5);
        for wide in [1, 2, 11, 12, 13, 28, 29, 57, 700] {
            for (kernel, stride, pad) in [(4, 2, 1), (3, 2, 1), (2, 2, 0), (16, 8, 4), (3, 1, 1), (1, 1, 0), (2, 3, 0)]
            {
                for channels in [[1, 16, 20], [1, 40, 16], [1, 3, 33]] {
                    let (input, kernel, stride) = ([1, 1, wide], [1, 1, kernel], [1, 1, stride]);
                    let pads = [[0, 0, pad]; 2];
                    let sizes = Sizes {
                        channels,
                        batch: 1,
                        input,
                        kernel,
                        stride,
                        dilation: [1; 3],
                        pads,
                        more: [0, 0, wide % 2],
                    };
                    check(&mut random, sizes);
                }
            }
        }
    }

    /// Outputs that begin behind everything that is reached, pads larger than the kernel, and no input at all.
    #[test]
    fn outputs_that_little_reaches() {
        let new = |input, pad, output, kernel| {
            let (input, kernel, output) = ([1, 3, input], [1, 2, kernel], [1, 4, output]);
            TransposedConvolutionGeometry::new(1, 1, 5, 18, input, kernel, [1, 1, 2], [1; 3], [0, 0, pad], output)
        };
        let bias: Vec<f32> = (0..18).map(|channel| channel as f32 - 3.5).collect();
        let epilogue = ConvolutionEpilogue {
            bias: Some(&bias),
            activation: Activation::Unary(UnaryOp::Relu),
            ..ConvolutionEpilogue::default()
        };
        for (input, pad, output, kernel) in
            [(0, 0, 5, 2), (4, 40, 6, 3), (4, 6, 8, 2), (4, 9, 30, 1), (2, 1 << 40, 3, 3)]
        {
            let geometry = new(input, pad, output, kernel).unwrap();
            let mut random = Random::new(1);
            let (weights, values) = (random.values(geometry.weights_len()), random.values(geometry.input_len()));
            let blocked = if input == 0 { Vec::new() } else { block(1, 5, 3 * input, &values) };
            let packed = BlockedTransposed::pack(&geometry, &weights).unwrap();
            for isa in Isa::available() {
                let plain = PackedTransposedConvolution::pack(isa, &geometry, &weights).unwrap();
                let mut expected = vec![f32::NAN; geometry.output_len()];
                let mut scratch = vec![f32::NAN; transposed_convolution_scratch_len(&geometry)];
                transposed_convolution(isa, &geometry, &plain, &values, &mut expected, &epilogue, &mut scratch)
                    .unwrap();
                let mut result = vec![f32::NAN; blocked_len(1, 18, 4 * output)];
                blocked_transposed(isa, &geometry, &packed, &blocked, &mut result, &epilogue).unwrap();
                let mut given = vec![f32::NAN; geometry.output_len()];
                to_plain(1, 18, 4 * output, &result, &mut given).unwrap();
                let expected: Vec<f64> = expected.into_iter().map(f64::from).collect();
                assert_close(&given, &expected, 30, &format!("{isa} {geometry:?}"));
            }
        }
    }

    #[test]
    fn threads_do_not_change_bits() {
        let sizes = Sizes {
            channels: [1, 40, 64],
            batch: 1,
            input: [3, 31, 33],
            kernel: [3, 4, 3],
            stride: [2, 2, 2],
            dilation: [1; 3],
            pads: [[1, 1, 1], [1, 1, 0]],
            more: [0, 0, 1],
        };
        let (geometry, mut random) = (sizes.geometry().unwrap(), Random::new(8));
        let packed = BlockedTransposed::pack(&geometry, &random.values(geometry.weights_len())).unwrap();
        let input = random.values(64 * 3 * 31 * 33);
        for isa in Isa::available() {
            let run = || {
                let (_, [_, to]) = geometry.plane_sizes();
                let mut output = vec![0.0; blocked_len(1, 40, geometry.depths()[1] * to[0] * to[1])];
                let epilogue = ConvolutionEpilogue::default();
                blocked_transposed(isa, &geometry, &packed, &input, &mut output, &epilogue).unwrap();
                output
            };
            assert_eq!(run(), in_pool(3, run));
        }
    }

    #[test]
    fn misfits_are_errors() {
        let new = |groups, channels, dilation, stride| {
            let (ones, kernel) = ([1; 3], [1, 1, 2]);
            let (stride, dilation) = ([1, 1, stride], [1, 1, dilation]);
            TransposedConvolutionGeometry::new(
                1, groups, channels, channels, ones, kernel, stride, dilation, [0; 3], ones,
            )
        };
        assert!(BlockedTransposed::pack(&new(2, 16, 1, 1).unwrap(), &[0.0f32; 256]).is_err());
        assert!(BlockedTransposed::pack(&new(1, 2, 1, 1).unwrap(), &[0.0f32; 7]).is_err());
        assert!(BlockedTransposed::pack(&new(1, 2, 1 << 24, 1).unwrap(), &[0.0f32; 8]).is_err());
        assert!(BlockedTransposed::pack(&new(1, 2, 1, 1025).unwrap(), &[0.0f32; 8]).is_err());
        assert!(NarrowTransposed::pack(&new(1, 5, 1, 1).unwrap(), &[0.0f32; 50]).is_err());
        assert!(NarrowTransposed::pack(&new(2, 2, 1, 1).unwrap(), &[0.0f32; 4]).is_err());
        let (geometry, isa) = (new(1, 2, 1, 1).unwrap(), Isa::portable());
        let epilogue = ConvolutionEpilogue::default();
        let (packed, narrow) = (
            BlockedTransposed::pack(&geometry, &[0.0f32; 8]).unwrap(),
            NarrowTransposed::pack(&geometry, &[0.0f32; 8]).unwrap(),
        );
        let run = |geometry: &_, input: usize, output: usize, epilogue: &_| {
            blocked_transposed(isa, geometry, &packed, &vec![0.0; input], &mut vec![0.0; output], epilogue)
        };
        let run_narrow = |geometry: &_, input: usize, output: usize, epilogue: &_| {
            narrow_transposed(isa, geometry, &narrow, &vec![0.0; input], &mut vec![0.0; output], epilogue)
        };
        assert!(run(&geometry, 16, 16, &epilogue).is_ok());
        assert!(run(&geometry, 15, 16, &epilogue).is_err());
        assert!(run(&geometry, 16, 17, &epilogue).is_err());
        assert!(run(&new(1, 2, 2, 1).unwrap(), 16, 16, &epilogue).is_err());
        assert!(run(&new(1, 2, 1, 2).unwrap(), 16, 16, &epilogue).is_err());
        assert!(run_narrow(&geometry, 16, 2, &epilogue).is_ok());
        assert!(run_narrow(&geometry, 16, 3, &epilogue).is_err());
        let short = ConvolutionEpilogue { bias: Some(&[0.0]), ..epilogue };
        assert!(run(&geometry, 16, 16, &short).is_err() && run_narrow(&geometry, 16, 2, &short).is_err());
        let added = ConvolutionEpilogue { residual: Some(&[0.0; 2]), ..epilogue };
        assert!(run(&geometry, 16, 16, &added).is_err() && run_narrow(&geometry, 16, 2, &added).is_err());
    }
}
