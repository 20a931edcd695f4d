//! Chains of elementwise functions over f32, computed tile by tile so that what lies between them never leaves the
//! first-level cache.

use crate::elementwise::{BinaryOp, line_f32};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;

/// Elements of one tile.
const TILE: usize = 512;

/// Intermediate tiles that can be alive at once.
const SLOTS: usize = 8;

/// The most inputs that repeat along the innermost axis.
pub const MOST_REPEATING: usize = 4;

/// The most inputs a chain has.
pub const MOST_INPUTS: usize = 16;

/// The most axes a collapsed geometry keeps.
const MOST_AXES: usize = 8;

/// Innermost axes up to here are too short for a line; they are joined with the axis around them.
pub const SHORT_LINE: usize = 64;

/// Elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 14;

/// A value that a step reads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operand {
    /// An input of the chain, by its place.
    Input(usize),
    /// The result of an earlier step, by its place.
    Step(usize),
    /// A constant.
    Constant(f32),
}

/// One function of a chain.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ChainStep {
    /// A function of one operand.
    Unary(UnaryOp, Operand),
    /// A function of two operands.
    Binary(BinaryOp, Operand, Operand),
}

/// A sequence of steps, the last of which is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    steps: Vec<ChainStep>,
    /// The tile that each step writes; the last writes the result.
    slots: Vec<usize>,
    inputs: usize,
    picoseconds: u64,
}

impl Chain {
    /// A chain of `steps` over `inputs` inputs.
    ///
    /// # Errors
    /// There is no step, a step reads what does not exist or comes later, there are more than [`MOST_INPUTS`] inputs,
    /// or more than eight intermediate results are alive at once.
    pub fn new(inputs: usize, steps: Vec<ChainStep>) -> Result<Self, KernelError> {
        if steps.is_empty() || inputs > MOST_INPUTS {
            return Err(KernelError::invalid("steps", "no step or too many inputs"));
        }
        let operands = |step: &ChainStep| match *step {
            ChainStep::Unary(_, a) => [a, Operand::Constant(0.0)],
            ChainStep::Binary(_, a, b) => [a, b],
        };
        let mut last_use = vec![0; steps.len()];
        for (place, step) in steps.iter().enumerate() {
            for operand in operands(step) {
                match operand {
                    Operand::Input(input) if input >= inputs => {
                        return Err(KernelError::invalid("steps", "a step reads an input that does not exist"));
                    }
                    Operand::Step(from) if from >= place => {
                        return Err(KernelError::invalid("steps", "a step reads a later one"));
                    }
                    Operand::Step(from) => last_use[from] = place,
                    _ => {}
                }
            }
        }
        // A step may write the tile of an operand that it is the last to read.
        let mut busy_until = [0usize; SLOTS];
        let mut slots = Vec::with_capacity(steps.len());
        for (place, &last) in last_use.iter().enumerate() {
            let free = (0..SLOTS)
                .find(|&slot| busy_until[slot] <= place)
                .ok_or(KernelError::invalid("steps", "too many intermediate results are alive at once"))?;
            busy_until[free] = last;
            slots.push(free);
        }
        let cost = |step: &ChainStep| match step {
            ChainStep::Unary(op, _) => op.picoseconds(),
            ChainStep::Binary(BinaryOp::Power | BinaryOp::Mod | BinaryOp::FloorMod, ..) => 8000,
            ChainStep::Binary(..) => 60,
        };
        let picoseconds = 200 + steps.iter().map(cost).sum::<u64>();
        Ok(Self { steps, slots, inputs, picoseconds })
    }

    /// An estimate of the time that one element takes.
    #[must_use]
    pub fn picoseconds(&self) -> u64 {
        self.picoseconds
    }
}

/// How the inputs of a chain spread over its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainGeometry {
    /// Sizes of the collapsed axes, outermost first; there is at least one.
    sizes: [usize; MOST_AXES],
    rank: usize,
    /// Strides of each input along these axes.
    strides: [[usize; MOST_AXES]; MOST_INPUTS],
    lens: [usize; MOST_INPUTS],
    /// The elements after which an input repeats along the innermost axis; 0 for the others.
    periods: [usize; MOST_INPUTS],
    /// A multiple of all periods. Tiles and chunks begin at multiples of it.
    unit: usize,
    inputs: usize,
    len: usize,
}

impl ChainGeometry {
    /// The geometry of dense inputs that broadcast to `output` under numpy's rule: shapes align at their ends, and an
    /// axis of size 1 (or a missing one) repeats.
    ///
    /// # Errors
    /// A shape does not broadcast to `output`, sizes overflow, or more than eight axes remain after collapsing.
    pub fn new(output: &[usize], inputs: &[&[usize]]) -> Result<Self, KernelError> {
        let len = product("output", output)?;
        if inputs.len() > MOST_INPUTS {
            return Err(KernelError::invalid("inputs", "too many inputs"));
        }
        let mut lens = [0; MOST_INPUTS];
        for (shape, place) in inputs.iter().zip(&mut lens) {
            *place = product("inputs", shape)?;
            let fits = |(back, &size): (usize, &usize)| {
                size == 1 || output.len().checked_sub(back + 1).is_some_and(|axis| output[axis] == size)
            };
            if !shape.iter().rev().enumerate().all(fits) {
                return Err(KernelError::invalid("inputs", "a shape does not broadcast to the output"));
            }
        }
        let strides = [[0; MOST_AXES]; MOST_INPUTS];
        let mut geometry = Self {
            sizes: [1; MOST_AXES],
            rank: 0,
            strides,
            lens,
            periods: [0; MOST_INPUTS],
            unit: 1,
            inputs: inputs.len(),
            len,
        };
        let mut dense = [1usize; MOST_INPUTS];
        let mut here = [0usize; MOST_INPUTS];
        for back in 0..output.len() {
            let size = output[output.len() - 1 - back];
            for (input, shape) in inputs.iter().enumerate() {
                let own = shape.len().checked_sub(back + 1).map_or(1, |axis| shape[axis]);
                here[input] = if own == 1 { 0 } else { dense[input] };
                dense[input] = dense[input].saturating_mul(own);
            }
            if size != 1 {
                geometry.push_outer(size, &here)?;
            }
        }
        let rank = geometry.rank.max(1);
        geometry.sizes[..rank].reverse();
        for strides in &mut geometry.strides {
            strides[..rank].reverse();
        }
        geometry.rank = rank;
        geometry.join_short_line();
        Ok(geometry)
    }

    /// Joins a short innermost axis with the one around it where every input is dense along both, or the same at every
    /// place of the outer one: it then repeats.
    fn join_short_line(&mut self) {
        let Some(outer) = self.rank.checked_sub(2) else { return };
        let (last, size) = (outer + 1, self.sizes[outer + 1]);
        let strides = &self.strides[..self.inputs];
        let is_dense = |s: &[usize; MOST_AXES]| s[outer] == s[last].saturating_mul(size);
        let repeats = |s: &[usize; MOST_AXES]| s[last] == 1 && s[outer] == 0;
        let count = strides.iter().filter(|s| repeats(s)).count();
        if size > SHORT_LINE || count > MOST_REPEATING || !strides.iter().all(|s| is_dense(s) || repeats(s)) {
            return;
        }
        for (strides, period) in self.strides[..self.inputs].iter_mut().zip(&mut self.periods) {
            if repeats(strides) {
                *period = size;
                strides[last] = 0;
            }
            strides[outer] = strides[last];
            strides[last] = 0;
        }
        self.unit = size;
        self.sizes[outer] = self.sizes[outer].saturating_mul(size);
        self.sizes[last] = 1;
        self.rank = last;
    }

    /// The same geometry with an input that has `period` elements where its shape has one, and repeats them along the
    /// innermost axis: channels of a block, one after the other at every position.
    ///
    /// # Errors
    /// The input's shape spreads along the innermost axis, the period does not divide that axis, or more than four inputs
    /// repeat.
    pub fn repeating(mut self, input: usize, period: usize) -> Result<Self, KernelError> {
        let last = self.rank - 1;
        let fits = input < self.inputs
            && self.strides[input][last] == 0
            && matches!(period, 1 | 2 | 4 | 8 | 16 | 32)
            && self.sizes[last].is_multiple_of(period)
            && (self.unit.is_multiple_of(period) || period.is_multiple_of(self.unit))
            && self.periods.iter().filter(|period| **period > 0).count() < MOST_REPEATING;
        if !fits {
            return Err(KernelError::invalid("inputs", "the input cannot repeat along the innermost axis"));
        }
        self.lens[input] = product("inputs", &[self.lens[input], period])?;
        for stride in &mut self.strides[input] {
            *stride *= period;
        }
        self.periods[input] = period;
        self.unit = self.unit.max(period);
        Ok(self)
    }

    /// Elements of the result.
    #[must_use]
    pub fn output_len(&self) -> usize {
        self.len
    }

    fn push_outer(&mut self, size: usize, here: &[usize]) -> Result<(), KernelError> {
        if let Some(last) = self.rank.checked_sub(1) {
            let inner = self.sizes[last];
            if self.strides.iter().zip(here).all(|(strides, &stride)| stride == strides[last].saturating_mul(inner)) {
                self.sizes[last] = inner.saturating_mul(size);
                return Ok(());
            }
        }
        if self.rank == MOST_AXES {
            return Err(KernelError::invalid("output", "too many axes"));
        }
        self.sizes[self.rank] = size;
        for (strides, &stride) in self.strides.iter_mut().zip(here) {
            strides[self.rank] = stride;
        }
        self.rank += 1;
        Ok(())
    }
}

/// Computes a chain. Where `in_place` names an input, that input is what `output` holds on entry (its own slice is
/// ignored and may be empty); it must have the result's size.
///
/// # Errors
/// The chain and the geometry have different numbers of inputs, or a slice does not fit.
pub fn run_chain(
    isa: Isa,
    chain: &Chain,
    geometry: &ChainGeometry,
    inputs: &[&[f32]],
    in_place: Option<usize>,
    output: &mut [f32],
) -> Result<(), KernelError> {
    if inputs.len() != chain.inputs || geometry.inputs != chain.inputs {
        return Err(KernelError::invalid("inputs", "their number is not the chain's"));
    }
    check_exact("output", output.len(), geometry.len)?;
    let mut pointers = [output.as_ptr(); MOST_INPUTS];
    for (place, (input, &len)) in inputs.iter().zip(&geometry.lens).enumerate() {
        if in_place == Some(place) {
            check_exact("in_place", len, geometry.len)?;
        } else {
            check_len("inputs", input.len(), len)?;
            pointers[place] = input.as_ptr();
        }
    }
    if output.is_empty() {
        return Ok(());
    }
    let inner = geometry.sizes[geometry.rank - 1];
    let chunk = CHUNK / geometry.unit * geometry.unit;
    let pieces = inner.div_ceil(chunk);
    let lines = geometry.len / inner;
    let work = (geometry.len as u64).saturating_mul(chain.picoseconds) / 1000 + lines as u64 * 10;
    let shared = SharedMut::new(output);
    let job = Job { isa, chain, geometry, pointers };
    parallel_for(lines * pieces, (CHUNK / inner).max(1), work, |range| {
        let mut tiles = MaybeUninit::<[[f32; TILE]; SLOTS + MOST_REPEATING]>::uninit();
        let tiles = tiles.as_mut_ptr().cast::<f32>();
        for index in range {
            let (line, start) = (index / pieces, index % pieces * chunk);
            let end = if pieces == 1 { inner } else { inner.min(start + chunk) };
            // SAFETY: lengths were checked, and the pieces of lines are disjoint parts of the output.
            unsafe { job.line(line, start, end, shared.pointer(), tiles) };
        }
    });
    Ok(())
}

struct Job<'a> {
    isa: Isa,
    chain: &'a Chain,
    geometry: &'a ChainGeometry,
    pointers: [*const f32; MOST_INPUTS],
}

// SAFETY: inputs are only read, and one that is the output is read only where the same piece is written afterwards.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// Computes the part `start..end` of a line.
    ///
    /// # Safety
    /// The lengths were checked, nobody else touches this part of the output, and `bases` holds all tiles.
    unsafe fn line(&self, line: usize, start: usize, end: usize, output: *mut f32, bases: *mut f32) {
        let geometry = self.geometry;
        let last = geometry.rank - 1;
        let mut offsets = [0usize; MOST_INPUTS];
        let mut rest = line;
        for axis in (0..last).rev() {
            let at = rest % geometry.sizes[axis];
            rest /= geometry.sizes[axis];
            for (offset, strides) in offsets.iter_mut().zip(&geometry.strides) {
                *offset += at * strides[axis];
            }
        }
        // Inputs that repeat are spread over a tile once for the line.
        let length = TILE / geometry.unit * geometry.unit;
        let mut spread = [std::ptr::null::<f32>(); MOST_INPUTS];
        let repeating = (0..geometry.inputs).filter(|input| geometry.periods[*input] > 0);
        for (slot, input) in repeating.enumerate() {
            let tile = bases.wrapping_add((SLOTS + slot) * TILE);
            let period = geometry.periods[input];
            for place in (0..length).step_by(period) {
                // SAFETY: the period divides the length, and the input has a period of elements here.
                unsafe {
                    let from = self.pointers[input].add(offsets[input]);
                    std::ptr::copy_nonoverlapping(from, tile.add(place), period);
                }
            }
            spread[input] = tile;
        }
        // SAFETY: the line lies in the output.
        let output = unsafe { output.add(line * geometry.sizes[last]) };
        let mut position = start;
        while position < end {
            let count = length.min(end - position);
            for (place, step) in self.chain.steps.iter().enumerate() {
                let target = if place + 1 == self.chain.steps.len() {
                    output.wrapping_add(position)
                } else {
                    bases.wrapping_add(self.chain.slots[place] * TILE)
                };
                let find = |operand: &Operand| match operand {
                    // Lines and tiles begin at multiples of the period.
                    Operand::Input(input) if !spread[*input].is_null() => (spread[*input], true),
                    Operand::Input(input) => {
                        let stride = geometry.strides[*input][last];
                        (self.pointers[*input].wrapping_add(offsets[*input] + position * stride), stride == 1)
                    }
                    Operand::Step(from) => (bases.wrapping_add(self.chain.slots[*from] * TILE).cast_const(), true),
                    Operand::Constant(value) => (std::ptr::from_ref(value), false),
                };
                // SAFETY: operands cover the tile, or are single values; an operand that overlaps the target equals
                // it, because a step's tile is reused only by the last step that reads it.
                unsafe {
                    match step {
                        ChainStep::Unary(op, a) => match find(a) {
                            (a, true) => unary::apply(self.isa, *op, a, target, count),
                            (a, false) => {
                                let mut value = 0.0;
                                unary::apply(self.isa, *op, a, &raw mut value, 1);
                                std::slice::from_raw_parts_mut(target, count).fill(value);
                            }
                        },
                        ChainStep::Binary(op, a, b) => line_f32(self.isa, *op, find(a), find(b), target, count),
                    }
                }
            }
            position += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::{BroadcastGeometry, binary};
    use crate::testing::{Random, in_pool};
    use crate::unary::unary_f32;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_chain_equals_its_steps(seed: u64) {
            let mut random = Random::new(seed);
            let rank = random.between(0, 4);
            let output: Vec<usize> = (0..rank).map(|_| random.between(1, 6) * [1, 1, 13][random.between(0, 2)]).collect();
            prop_assume!(output.iter().product::<usize>() < 20_000);
            let count = random.between(1, 4);
            let shapes: Vec<Vec<usize>> = (0..count).map(|_| {
                let shape: Vec<usize> = output.iter().map(|&size| if random.between(0, 2) == 0 { 1 } else { size }).collect();
                let drop = (0..random.between(0, rank)).take_while(|&axis| shape[axis] == 1).count();
                shape[drop..].to_vec()
            }).collect();
            let inputs: Vec<Vec<f32>> = shapes.iter().map(|shape| random.values(shape.iter().product())).collect();
            let unary = [UnaryOp::Exp, UnaryOp::Relu, UnaryOp::Tanh, UnaryOp::Abs];
            let binaries = [BinaryOp::Add, BinaryOp::Mul, BinaryOp::Max, BinaryOp::Sub];
            let mut steps = Vec::new();
            for place in 0..random.between(1, 9) {
                let mut operand = || match random.between(0, 3) {
                    0 => Operand::Constant(random.value()),
                    1 if place > 0 => Operand::Step(place - 1 - random.between(0, (place - 1).min(3))),
                    2 if place > 0 => Operand::Step(place - 1),
                    _ => Operand::Input(random.between(0, count - 1)),
                };
                let (a, b) = (operand(), operand());
                steps.push(if random.between(0, 1) == 0 {
                    ChainStep::Unary(unary[random.between(0, 3)], a)
                } else {
                    ChainStep::Binary(binaries[random.between(0, 3)], a, b)
                });
            }
            let chain = Chain::new(count, steps.clone()).unwrap();
            let views: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            let geometry = ChainGeometry::new(&output, &views).unwrap();
            for isa in Isa::available() {
                // Each value with its shape, computed one function at a time.
                let mut results: Vec<(Vec<usize>, Vec<f32>)> = Vec::new();
                for step in &steps {
                    let get = |operand: &Operand| match operand {
                        Operand::Input(input) => (shapes[*input].clone(), inputs[*input].clone()),
                        Operand::Step(place) => results[*place].clone(),
                        Operand::Constant(value) => (vec![], vec![*value]),
                    };
                    let widen = |(shape, values): (Vec<usize>, Vec<f32>)| {
                        let geometry = BroadcastGeometry::new(&shape, &output).unwrap();
                        let mut wide = vec![0.0; geometry.output_len()];
                        let zeros = vec![-0.0; wide.len()];
                        binary(isa, BinaryOp::Add, &geometry, &values, &zeros, &mut wide).unwrap();
                        (output.clone(), wide)
                    };
                    results.push(match step {
                        ChainStep::Unary(op, a) => {
                            let (shape, values) = widen(get(a));
                            let mut result = vec![0.0; values.len()];
                            unary_f32(isa, *op, &values, &mut result).unwrap();
                            (shape, result)
                        }
                        ChainStep::Binary(op, a, b) => {
                            let ((shape, a), (_, b)) = (widen(get(a)), widen(get(b)));
                            let geometry = BroadcastGeometry::new(&shape, &shape).unwrap();
                            let mut result = vec![0.0; a.len()];
                            binary(isa, *op, &geometry, &a, &b, &mut result).unwrap();
                            (shape, result)
                        }
                    });
                }
                let expected = &results.last().unwrap().1;
                let slices: Vec<&[f32]> = inputs.iter().map(Vec::as_slice).collect();
                let mut result = vec![f32::NAN; geometry.output_len()];
                run_chain(isa, &chain, &geometry, &slices, None, &mut result).unwrap();
                prop_assert_eq!(&result, expected);
                for (place, input) in inputs.iter().enumerate().filter(|(_, input)| input.len() == result.len()) {
                    let mut data = input.clone();
                    let mut slices = slices.clone();
                    slices[place] = &[];
                    run_chain(isa, &chain, &geometry, &slices, Some(place), &mut data).unwrap();
                    prop_assert_eq!(&data, expected);
                }
            }
        }
    }

    #[test]
    fn inputs_that_repeat() {
        let (batch, blocks, positions) = (2, 3, 1100);
        let mut random = Random::new(5);
        let (data, scale) = (random.values(batch * blocks * positions * 16), random.values(blocks * 16));
        let gate = random.values(batch * blocks * 16);
        let steps = vec![
            ChainStep::Binary(BinaryOp::Mul, Operand::Input(0), Operand::Input(1)),
            ChainStep::Binary(BinaryOp::Add, Operand::Step(0), Operand::Input(2)),
        ];
        let chain = Chain::new(3, steps).unwrap();
        let output = [batch, blocks, positions, 16];
        let shapes: [&[usize]; 3] = [&output, &[1, blocks, 1, 1], &[batch, blocks, 1, 1]];
        let geometry = ChainGeometry::new(&output, &shapes).unwrap();
        let geometry = geometry.repeating(1, 16).unwrap().repeating(2, 16).unwrap();
        for isa in Isa::available() {
            let mut result = vec![f32::NAN; data.len()];
            run_chain(isa, &chain, &geometry, &[&data, &scale, &gate], None, &mut result).unwrap();
            for (index, value) in result.iter().enumerate() {
                let (plane, lane) = (index / (positions * 16), index % 16);
                let expected = data[index] * scale[plane % blocks * 16 + lane] + gate[plane * 16 + lane];
                assert!((value - expected).abs() < 1e-5, "{isa} {index}: {value} {expected}");
            }
        }
        assert!(geometry.repeating(0, 16).is_err());
        assert!(
            run_chain(
                Isa::portable(),
                &chain,
                &geometry,
                &[&data, &scale[1..], &gate],
                None,
                &mut vec![0.0; data.len()]
            )
            .is_err()
        );
    }

    #[test]
    fn bad_chains_are_errors_and_threads_agree() {
        let one = |operand| Chain::new(1, vec![ChainStep::Unary(UnaryOp::Exp, operand)]);
        assert!(one(Operand::Input(1)).is_err());
        assert!(one(Operand::Step(0)).is_err());
        assert!(Chain::new(1, vec![]).is_err());
        assert!(ChainGeometry::new(&[2, 3], &[&[2]]).is_err());
        let wide: Vec<ChainStep> = (0..10)
            .map(|_| ChainStep::Unary(UnaryOp::Exp, Operand::Input(0)))
            .chain((0..10).map(|step| ChainStep::Binary(BinaryOp::Add, Operand::Step(step), Operand::Step(9 - step))))
            .collect();
        assert!(Chain::new(1, wide).is_err());
        let chain = one(Operand::Input(0)).unwrap();
        let input = Random::new(1).values(300_000);
        let geometry = ChainGeometry::new(&[300_000], &[&[300_000]]).unwrap();
        let run = || {
            let mut output = vec![0.0; input.len()];
            run_chain(Isa::portable(), &chain, &geometry, &[&input], None, &mut output).unwrap();
            output
        };
        assert_eq!(run(), in_pool(2, run));
    }
}
