//! Chains over so few elements that what a function takes is the way to it: everything that does not depend on the data is
//! settled beforehand, and constants lie side by side.

use super::{Chain, ChainGeometry, ChainInput, ChainOutput, ChainStep, MOST_INPUTS, Operand, SLOTS, run_chain};
use crate::elementwise::{BinaryOp, CompareOp, Lines, line_select_f32, lines_f32, lines_truth_f32};
use crate::error::{KernelError, check_exact};
use crate::isa::Isa;
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;

/// The most elements of a small chain.
pub const MOST_ELEMENTS: usize = 512;

/// Values have room for a multiple of so many elements: for whole vectors of any instruction set.
const WHOLE: usize = 16;

/// The memories that values lie in; the inputs are those from the last one on.
const TILES: usize = 0;
const CONSTANTS: usize = 1;
const OUTPUT: usize = 2;
const INPUTS: usize = 3;

/// The tiles of steps, of inputs and of the result, on lines of the cache.
#[repr(align(64))]
struct Tiles(MaybeUninit<[f32; (SLOTS + MOST_INPUTS + 1) * MOST_ELEMENTS]>);

/// A chain whose values all have the same few elements.
#[derive(Debug, Clone)]
pub struct SmallChain {
    steps: Vec<SmallStep>,
    constants: Vec<f32>,
    inputs: usize,
    len: usize,
}

/// Where a value lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    memory: usize,
    at: usize,
    /// Whether it has all elements; it is a single one otherwise.
    is_whole: bool,
}

/// A step with the places of its operands and of its result.
#[derive(Debug, Clone, Copy)]
enum SmallStep {
    Unary(UnaryOp, Place, Place),
    Binary(BinaryOp, Place, Place, Place),
    Compare(CompareOp, Place, Place, Place),
    Select([Place; 3], Place),
}

impl SmallChain {
    /// The steps of `chain` over values of `len` elements, where the inputs that have values in `constants` are these.
    ///
    /// # Errors
    /// `constants` has not one place for each input of the chain or others than `len` values, `len` is 0 or above
    /// [`MOST_ELEMENTS`], or more than [`MOST_INPUTS`] inputs are no constants.
    pub fn new(chain: &Chain, len: usize, constants: &[Option<Vec<f32>>]) -> Result<Self, KernelError> {
        if constants.len() != chain.inputs {
            return Err(KernelError::invalid("constants", "their number is not that of the inputs"));
        }
        if len == 0 || len > MOST_ELEMENTS {
            return Err(KernelError::invalid("len", "no element or too many"));
        }
        let room = len.next_multiple_of(WHOLE);
        let (mut inputs, mut kept) = (0, Vec::new());
        let mut places = Vec::with_capacity(constants.len());
        for values in constants {
            let (memory, at) = match values {
                Some(values) => {
                    check_exact("constants", values.len(), len)?;
                    let at = kept.len();
                    kept.extend_from_slice(values);
                    kept.resize(at + room, 0.0);
                    (CONSTANTS, at)
                }
                None => {
                    inputs += 1;
                    (INPUTS + inputs - 1, 0)
                }
            };
            places.push(Place { memory, at, is_whole: true });
        }
        if inputs > MOST_INPUTS {
            return Err(KernelError::invalid("constants", "too many inputs are none"));
        }
        let tile = |slot: usize| Place { memory: TILES, at: slot * room, is_whole: true };
        let mut find = |operand: Operand, is_whole: bool| match operand {
            Operand::Input(input) => places[input],
            Operand::Step(from) => tile(chain.slots[from]),
            Operand::Constant(value) => {
                let at = kept.len();
                kept.resize(at + if is_whole { room } else { 1 }, value);
                Place { memory: CONSTANTS, at, is_whole }
            }
        };
        let mut steps = Vec::with_capacity(chain.steps.len());
        for (step, slot) in chain.steps.iter().zip(&chain.slots) {
            let is_last = steps.len() + 1 == chain.steps.len();
            let target = if is_last { Place { memory: OUTPUT, at: 0, is_whole: true } } else { tile(*slot) };
            steps.push(match *step {
                ChainStep::Unary(op, a) => SmallStep::Unary(op, find(a, true), target),
                ChainStep::Binary(op, a, b) => SmallStep::Binary(op, find(a, false), find(b, false), target),
                ChainStep::Compare(op, a, b) => SmallStep::Compare(op, find(a, false), find(b, false), target),
                ChainStep::Select(condition, yes, no) => {
                    SmallStep::Select([condition, yes, no].map(|operand| find(operand, false)), target)
                }
            });
        }
        Ok(Self { steps, constants: kept, inputs, len })
    }

    /// Computes the chain on the caller's thread. `inputs` are those that are no constants.
    ///
    /// # Errors
    /// The inputs are not as many as the chain has, or a slice has another length than its values.
    pub fn run(&self, isa: Isa, inputs: &[&[f32]], output: &mut [f32]) -> Result<(), KernelError> {
        if inputs.len() != self.inputs {
            return Err(KernelError::invalid("inputs", "their number is not the chain's"));
        }
        check_exact("output", output.len(), self.len)?;
        let room = self.len.next_multiple_of(WHOLE);
        let mut tiles = Tiles(MaybeUninit::uninit());
        let tiles = tiles.0.as_mut_ptr().cast::<f32>();
        let result = output.as_mut_ptr();
        let mut memories = [tiles; INPUTS + MOST_INPUTS];
        memories[CONSTANTS] = self.constants.as_ptr().cast_mut();
        memories[OUTPUT] = if room == self.len { result } else { tiles.wrapping_add((SLOTS + MOST_INPUTS) * room) };
        for (place, input) in inputs.iter().enumerate() {
            check_exact("inputs", input.len(), self.len)?;
            memories[INPUTS + place] = if room == self.len {
                input.as_ptr().cast_mut()
            } else {
                let copy = tiles.wrapping_add((SLOTS + place) * room);
                // SAFETY: there are tiles for so many inputs, which are not longer than their room.
                unsafe {
                    std::ptr::copy_nonoverlapping(input.as_ptr(), copy, self.len);
                    std::slice::from_raw_parts_mut(copy.add(self.len), room - self.len).fill(0.0);
                }
                copy
            };
        }
        let find = |place: &Place| (memories[place.memory].wrapping_add(place.at).cast_const(), place.is_whole);
        for step in &self.steps {
            // SAFETY: all memories have room for the values at their places: tiles by their number, constants because they
            // were laid there with it, inputs and the output by their lengths. What is read was written: inputs and constants
            // at once, tiles by earlier steps. Nothing is written but tiles and the output, which is not read; a tile that
            // is an operand equals the target or lies beside it.
            unsafe {
                match step {
                    SmallStep::Unary(op, a, target) => {
                        unary::apply(isa, *op, find(a).0, memories[target.memory].wrapping_add(target.at), room);
                    }
                    SmallStep::Binary(op, a, b, target) => {
                        let target = memories[target.memory].wrapping_add(target.at);
                        lines_f32(isa, *op, Lines::one([find(a), find(b)], target, room));
                    }
                    SmallStep::Compare(op, a, b, target) => {
                        let target = memories[target.memory].wrapping_add(target.at);
                        lines_truth_f32(isa, *op, Lines::one([find(a), find(b)], target, room));
                    }
                    SmallStep::Select(operands, target) => {
                        let target = memories[target.memory].wrapping_add(target.at);
                        line_select_f32(isa, operands.each_ref().map(find), target, room);
                    }
                }
            }
        }
        if room != self.len {
            // SAFETY: the last step has written the tile of the result, whose length was checked.
            unsafe { std::ptr::copy_nonoverlapping(memories[OUTPUT], result, self.len) };
        }
        Ok(())
    }
}

/// The values of a dense `shape`, repeated to the shape `output` under numpy's rule, as a constant of a [`SmallChain`] is given.
///
/// # Errors
/// As of [`ChainGeometry::new`], or `values` are fewer than the shape has.
pub fn spread(isa: Isa, values: &[f32], shape: &[usize], output: &[usize]) -> Result<Vec<f32>, KernelError> {
    let geometry = ChainGeometry::new(output, &[shape])?;
    let copy = Chain::new(1, vec![ChainStep::Unary(UnaryOp::Identity, Operand::Input(0))])?;
    let mut spread = vec![0.0; geometry.output_len()];
    run_chain(isa, &copy, &geometry, &[ChainInput::Values(values)], None, ChainOutput::Values(&mut spread))?;
    Ok(spread)
}
