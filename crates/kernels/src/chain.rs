//! Chains of elementwise functions over f32, computed tile by tile so that what lies between them never leaves the
//! first-level cache.

mod small;

pub use small::{MOST_ELEMENTS, SmallChain, spread};

use crate::elementwise::{BinaryOp, CompareOp, Found, Lines, joined, line_select_f32, lines_f32, lines_truth_f32};
use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::quantized::{Decoder, Dequantizer, Encoding, Quantizer, dequantize_line, quantize_line};
use crate::unary::{self, UnaryOp};
use std::mem::MaybeUninit;

/// The most elements of one tile.
const TILE: usize = 1024;

/// Elements from one tile to the next: not a power of two, so that the same places of tiles differ in the bits of addresses by
/// which processors tell whether a value that is read has just been written.
const APART: usize = TILE + 16;

/// Elements that the tiles of a chain have together, so that they stay in the first cache.
const NEAR: usize = 1 << 12;

/// The least elements that a tile is filled with where there are many.
const LEAST: usize = 512;

/// Intermediate tiles that can be alive at once.
const SLOTS: usize = 8;

/// The most inputs that are spread over tiles.
const MOST_SPREAD: usize = 8;

/// The most inputs that a chain can be run with; those of a [`SmallChain`] that are constants do not count.
pub const MOST_INPUTS: usize = 16;

/// All tiles: those of steps, of inputs that are brought into tiles, and of results that become codes.
const TILES: usize = SLOTS + MOST_INPUTS + 1;

/// The most axes a collapsed geometry keeps.
const MOST_AXES: usize = 8;

/// Innermost axes up to here are too short for a line; they are joined with the axes around them: shorter ones always, as lines of
/// their own take longer than what spreads over them does, and others where too few of them lie around to be computed together.
pub const SHORT_LINE: usize = 64;
const SHORTER_LINE: usize = 20;
const FEW_LINES: usize = 8;

/// Elements that a repeated value is written to at once.
const FILL: usize = 16;

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
    /// Whether a comparison of two operands holds, as 0 or 1.
    Compare(CompareOp, Operand, Operand),
    /// The second operand where the first is not zero, and the third elsewhere.
    Select(Operand, Operand, Operand),
}

impl ChainStep {
    /// What the step reads.
    #[must_use]
    pub fn operands(&self) -> Vec<Operand> {
        match *self {
            ChainStep::Unary(_, a) => vec![a],
            ChainStep::Binary(_, a, b) | ChainStep::Compare(_, a, b) => vec![a, b],
            ChainStep::Select(condition, yes, no) => vec![condition, yes, no],
        }
    }

    /// What the step reads, to be changed.
    pub fn operands_mut(&mut self) -> Vec<&mut Operand> {
        match self {
            ChainStep::Unary(_, a) => vec![a],
            ChainStep::Binary(_, a, b) | ChainStep::Compare(_, a, b) => vec![a, b],
            ChainStep::Select(condition, yes, no) => vec![condition, yes, no],
        }
    }
}

/// A sequence of steps, the last of which is the result.
#[derive(Debug, Clone, PartialEq)]
pub struct Chain {
    steps: Vec<ChainStep>,
    /// The tile that each step writes; the last writes the result.
    slots: Vec<usize>,
    /// The tiles that all steps but the last write.
    inner_tiles: usize,
    inputs: usize,
    picoseconds: u64,
}

impl Chain {
    /// A chain of `steps` over `inputs` inputs.
    ///
    /// # Errors
    /// There is no step, a step reads what does not exist or comes later, or more than eight intermediate results are
    /// alive at once.
    pub fn new(inputs: usize, steps: Vec<ChainStep>) -> Result<Self, KernelError> {
        if steps.is_empty() {
            return Err(KernelError::invalid("steps", "there is none"));
        }
        let mut last_use = vec![0; steps.len()];
        for (place, step) in steps.iter().enumerate() {
            for operand in step.operands() {
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
            ChainStep::Binary(BinaryOp::Power, ..) => 8000,
            ChainStep::Binary(BinaryOp::Mod | BinaryOp::FloorMod, ..) => 400,
            ChainStep::Binary(..) | ChainStep::Compare(..) => 60,
            ChainStep::Select(..) => 80,
        };
        let picoseconds = 200 + steps.iter().map(cost).sum::<u64>();
        let inner_tiles = slots[..slots.len() - 1].iter().max().map_or(0, |slot| slot + 1);
        Ok(Self { steps, slots, inner_tiles, inputs, picoseconds })
    }

    /// An estimate of the time that one element takes.
    #[must_use]
    pub fn picoseconds(&self) -> u64 {
        self.picoseconds
    }
}

/// An input of a chain.
#[derive(Debug, Clone, Copy)]
pub enum ChainInput<'a> {
    /// Values.
    Values(&'a [f32]),
    /// Values by their codes.
    Codes(&'a [u8], Dequantizer),
}

impl ChainInput<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            ChainInput::Values(values) => values.len(),
            ChainInput::Codes(codes, _) => codes.len(),
        }
    }
}

/// Where the result of a chain goes.
#[derive(Debug)]
pub enum ChainOutput<'a> {
    /// It is stored as it is.
    Values(&'a mut [f32]),
    /// Its codes are stored. A code may be the one beside where a value lies within a few units in the last place of the
    /// border of two.
    Codes(&'a mut [u8], Quantizer),
}

/// How the inputs of a chain spread over its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChainGeometry {
    /// Sizes of the collapsed axes, outermost first; there is at least one. The last of the first `rank` is a line,
    /// together with those that were joined with it, which follow.
    sizes: [usize; MOST_AXES],
    rank: usize,
    joined: usize,
    /// Strides of each input along these axes.
    strides: [[usize; MOST_AXES]; MOST_INPUTS],
    lens: [usize; MOST_INPUTS],
    /// Whether an input is neither dense along a line nor the same everywhere.
    is_spread: [bool; MOST_INPUTS],
    /// The elements of the joined axes. Tiles and chunks begin at multiples of it.
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
            joined: 0,
            strides,
            lens,
            is_spread: [false; MOST_INPUTS],
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
        geometry.join_short_lines();
        Ok(geometry)
    }

    /// Joins short innermost axes with those around them. Inputs that are not dense along the line that they make are
    /// spread over tiles.
    fn join_short_lines(&mut self) {
        let end = self.rank;
        let line = |first: usize| self.sizes[first..end].iter().fold(1usize, |len, size| len.saturating_mul(*size));
        let mut first = end - 1;
        while first > 0 && line(first) <= if self.sizes[first - 1] < FEW_LINES { SHORT_LINE } else { SHORTER_LINE } {
            first -= 1;
        }
        let mut is_spread = [false; MOST_INPUTS];
        for (input, strides) in self.strides[..self.inputs].iter().enumerate() {
            let is_single = strides[first..end].iter().all(|stride| *stride == 0);
            let is_dense = (first..end).all(|axis| strides[axis] == line(axis + 1));
            is_spread[input] = !is_single && !is_dense && first + 1 < end;
        }
        if is_spread.iter().filter(|is_spread| **is_spread).count() > MOST_SPREAD {
            return;
        }
        (self.unit, self.joined, self.rank) = (line(first + 1), end - first - 1, first + 1);
        self.is_spread = is_spread;
    }

    /// The elements of a line.
    fn line(&self) -> usize {
        self.sizes[self.rank - 1].saturating_mul(self.unit)
    }

    /// Where an input has the elements of the joined axes.
    fn places(&self, input: usize) -> [u32; SHORT_LINE] {
        let mut places = [0; SHORT_LINE];
        for (index, place) in places.iter_mut().enumerate().take(self.unit) {
            let (mut rest, mut at) = (index, 0);
            for axis in (self.rank..self.rank + self.joined).rev() {
                at += rest % self.sizes[axis] * self.strides[input][axis];
                rest /= self.sizes[axis];
            }
            *place = at as u32;
        }
        places
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

/// Computes a chain. Where `in_place` names an input, that input is what `output`, which has values then, holds on entry
/// (its own slice is ignored and may be empty); it must have the result's size.
///
/// # Errors
/// The chain and the geometry have different numbers of inputs, a slice does not fit, or codes are to be computed in place.
pub fn run_chain(
    isa: Isa,
    chain: &Chain,
    geometry: &ChainGeometry,
    inputs: &[ChainInput<'_>],
    in_place: Option<usize>,
    output: ChainOutput<'_>,
) -> Result<(), KernelError> {
    if inputs.len() != chain.inputs || geometry.inputs != chain.inputs {
        return Err(KernelError::invalid("inputs", "their number is not the chain's"));
    }
    let target = Target::new(output);
    check_exact("output", target.len(), geometry.len)?;
    let mut sources = [Source::Values(std::ptr::null()); MOST_INPUTS];
    for (place, (input, &len)) in inputs.iter().zip(&geometry.lens).enumerate() {
        sources[place] = match (&target, input) {
            (Target::Values(values), ChainInput::Values(_)) if in_place == Some(place) => {
                check_exact("in_place", len, geometry.len)?;
                Source::Values(values.pointer())
            }
            _ if in_place == Some(place) => return Err(KernelError::invalid("in_place", "has codes")),
            (_, ChainInput::Values(values)) => Source::Values(values.as_ptr()),
            (_, ChainInput::Codes(codes, dequantizer)) => Source::Codes(codes.as_ptr(), Decoder::new(dequantizer)),
        };
        if in_place != Some(place) {
            check_len("inputs", input.len(), len)?;
        }
    }
    if geometry.len == 0 {
        return Ok(());
    }
    let inner = geometry.line();
    let chunk = CHUNK / geometry.unit * geometry.unit;
    let pieces = inner.div_ceil(chunk);
    let lines = geometry.len / inner;
    let work = (geometry.len as u64).saturating_mul(chain.picoseconds) / 1000 + lines as u64 * 10;
    let mut spread: Spreads = [None; MOST_SPREAD];
    let found = (0..geometry.inputs).filter(|input| geometry.is_spread[*input]);
    for (slot, input) in spread.iter_mut().zip(found) {
        *slot = Some(Spread { input, places: geometry.places(input) });
    }
    let coded = inputs.iter().filter(|input| matches!(input, ChainInput::Codes(..))).count();
    let used = chain.inner_tiles + coded + spread.iter().flatten().count() + 1;
    let length = (NEAR / used).clamp(LEAST, TILE) / geometry.unit * geometry.unit;
    let has_spread = spread.iter().flatten().next().is_some();
    let is_plain = coded == 0 && !has_spread;
    let job = Job { isa, chain, geometry, sources, spread, target, length, is_plain };
    // Beginning each step of a line takes longer than some dozens of its elements do.
    let most_together = if !has_spread && pieces == 1 { (length / inner).max(1) } else { 1 };
    parallel_for(lines * pieces, (CHUNK / inner).max(1), work, |range| {
        let mut tiles = Tiles(MaybeUninit::uninit());
        let tiles = tiles.0.as_mut_ptr().cast::<f32>();
        let mut line = Line::of(geometry, range.start / pieces);
        let mut piece = range.start % pieces;
        let mut left = range.len();
        while left > 0 {
            let together = most_together.min(line.of_axis(geometry)).min(left);
            left -= together;
            if together > 1 {
                // SAFETY: lengths were checked, and the lines are disjoint parts of the output.
                unsafe { job.lines(&line, together, tiles) };
                line.go_on(geometry, together);
                continue;
            }
            let start = piece * chunk;
            // SAFETY: lengths were checked, and the pieces of lines are disjoint parts of the output.
            unsafe { job.line(&line, start, inner.min(start + chunk), tiles) };
            piece += 1;
            if piece == pieces {
                piece = 0;
                line.go_on(geometry, 1);
            }
        }
    });
    Ok(())
}

/// All tiles, on lines of the cache: vectors that lie in two of them take twice their time.
#[repr(align(64))]
struct Tiles(MaybeUninit<[[f32; APART]; TILES]>);

struct Job<'a> {
    isa: Isa,
    chain: &'a Chain,
    geometry: &'a ChainGeometry,
    sources: [Source; MOST_INPUTS],
    spread: Spreads,
    target: Target<'a>,
    /// The elements that a tile is filled with, whole units.
    length: usize,
    /// Whether all inputs are read where they are.
    is_plain: bool,
}

/// Where a line of the result is, and where each input has its first element. It is counted on, since divisions would take
/// longer than short lines do.
struct Line {
    at: [usize; MOST_AXES],
    offsets: [usize; MOST_INPUTS],
    /// The number of the line.
    number: usize,
}

impl Line {
    fn of(geometry: &ChainGeometry, number: usize) -> Self {
        let mut line = Self { at: [0; MOST_AXES], offsets: [0; MOST_INPUTS], number };
        let mut rest = number;
        for axis in (0..geometry.rank - 1).rev() {
            line.at[axis] = rest % geometry.sizes[axis];
            rest /= geometry.sizes[axis];
            for (offset, strides) in line.offsets.iter_mut().zip(&geometry.strides[..geometry.inputs]) {
                *offset += line.at[axis] * strides[axis];
            }
        }
        line
    }

    /// The lines of the innermost axis around them from this one on.
    fn of_axis(&self, geometry: &ChainGeometry) -> usize {
        geometry.rank.checked_sub(2).map_or(1, |axis| geometry.sizes[axis] - self.at[axis])
    }

    /// On by so many lines, not beyond the end of the innermost axis around them.
    fn go_on(&mut self, geometry: &ChainGeometry, mut count: usize) {
        self.number += count;
        for axis in (0..geometry.rank - 1).rev() {
            let strides = self.offsets.iter_mut().zip(&geometry.strides[..geometry.inputs]);
            let passed = self.at[axis];
            self.at[axis] += count;
            if self.at[axis] < geometry.sizes[axis] {
                strides.for_each(|(offset, strides)| *offset += count * strides[axis]);
                return;
            }
            strides.for_each(|(offset, strides)| *offset -= passed * strides[axis]);
            self.at[axis] = 0;
            count = 1;
        }
    }
}

/// Where an input is.
#[derive(Clone, Copy)]
enum Source {
    Values(*const f32),
    Codes(*const u8, Decoder),
}

/// An output that tasks share.
pub(crate) enum Target<'a> {
    /// Values are stored.
    Values(SharedMut<'a, f32>),
    /// Their codes are.
    Codes(SharedMut<'a, u8>, Encoding),
}

impl<'a> Target<'a> {
    pub(crate) fn new(output: ChainOutput<'a>) -> Self {
        match output {
            ChainOutput::Values(values) => Target::Values(SharedMut::new(values)),
            ChainOutput::Codes(codes, quantizer) => Target::Codes(SharedMut::new(codes), Encoding::new(&quantizer)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Target::Values(values) => values.len(),
            Target::Codes(codes, _) => codes.len(),
        }
    }
}

type Spreads = [Option<Spread>; MOST_SPREAD];

/// An input that is brought into tiles before it is read.
#[derive(Clone, Copy)]
struct Spread {
    input: usize,
    /// Where it has the elements of the joined axes.
    places: [u32; SHORT_LINE],
}

// SAFETY: inputs are only read, and one that is the output is read only where the same piece is written afterwards.
unsafe impl Sync for Job<'_> {}

impl Job<'_> {
    /// Computes some lines of the innermost axis around them. No input is spread.
    ///
    /// # Safety
    /// The lengths were checked, nobody else touches this part of the output, and `bases` holds all tiles, which have room for the
    /// lines.
    unsafe fn lines(&self, line: &Line, count: usize, bases: *mut f32) {
        let (geometry, last) = (self.geometry, self.geometry.rank - 1);
        let len = geometry.line();
        let mut found: [Found<f32>; MOST_INPUTS] = [(std::ptr::null(), false, 0); MOST_INPUTS];
        for (place, found) in found[..geometry.inputs].iter_mut().enumerate() {
            let (offset, strides) = (line.offsets[place], &geometry.strides[place]);
            let (is_dense, step) = (strides[last] > 0, strides[last - 1]);
            *found = match self.sources[place] {
                Source::Values(values) => (values.wrapping_add(offset), is_dense, step),
                Source::Codes(codes, decoder) => {
                    let tile = bases.wrapping_add((SLOTS + place) * APART);
                    let own = if is_dense { len } else { 1 };
                    let (own, count, step) = if step == own { (own * count, 1, 0) } else { (own, count, step) };
                    for index in 0..count {
                        let codes = codes.wrapping_add(offset + index * step);
                        // SAFETY: the input has elements there, and the tile room for them.
                        unsafe { dequantize_line(self.isa, decoder, codes, tile.add(index * own), own) };
                    }
                    (tile.cast_const(), is_dense, if is_dense { len } else { 1 })
                }
            };
        }
        let input = |input: usize| found[input];
        let result = self.result(bases, line.number * len);
        // SAFETY: the caller's promise.
        unsafe {
            self.steps(bases, input, result, [len, count]);
            self.store(result, line.number * len, len * count);
        }
    }

    /// Computes the part `start..end` of a line.
    ///
    /// # Safety
    /// The lengths were checked, nobody else touches this part of the output, and `bases` holds all tiles.
    unsafe fn line(&self, line: &Line, start: usize, end: usize, bases: *mut f32) {
        let geometry = self.geometry;
        let last = geometry.rank - 1;
        let (offsets, length) = (&line.offsets, self.length);
        let tile_of = |input: usize| bases.wrapping_add((SLOTS + input) * APART);
        let mut tiles = [std::ptr::null::<f32>(); MOST_INPUTS];
        let spreads = || self.spread.iter().filter(|_| !self.is_plain).flatten();
        let unspread = || (0..geometry.inputs).filter(|input| !self.is_plain && !geometry.is_spread[*input]);
        for spread in spreads() {
            tiles[spread.input] = tile_of(spread.input);
            if geometry.strides[spread.input][last] == 0 {
                // All tiles of the line are the same.
                // SAFETY: the tile has the length, and the input the places.
                unsafe {
                    self.spread(spread, offsets[spread.input], 0, length.min(end - start), tile_of(spread.input));
                };
            }
        }
        for input in unspread() {
            let Source::Codes(codes, decoder) = self.sources[input] else { continue };
            tiles[input] = tile_of(input);
            if geometry.strides[input][last] == 0 {
                // SAFETY: the input has an element there, and the tile room for it.
                unsafe { dequantize_line(self.isa, decoder, codes.add(offsets[input]), tile_of(input), 1) };
            }
        }
        let mut position = start;
        while position < end {
            let count = length.min(end - position);
            for spread in spreads() {
                let stride = geometry.strides[spread.input][last];
                if stride > 0 {
                    let offset = offsets[spread.input] + position / geometry.unit * stride;
                    // SAFETY: the tile has the count, and the input the places.
                    unsafe { self.spread(spread, offset, stride, count, tile_of(spread.input)) };
                }
            }
            for input in unspread() {
                if let (Source::Codes(codes, decoder), true) = (self.sources[input], geometry.strides[input][last] > 0)
                {
                    let codes = codes.wrapping_add(offsets[input] + position);
                    // SAFETY: the input is dense along the line, and the tile has the count.
                    unsafe { dequantize_line(self.isa, decoder, codes, tile_of(input), count) };
                }
            }
            let place = line.number * geometry.line() + position;
            let result = self.result(bases, place);
            let input = |input: usize| {
                let is_dense = geometry.strides[input][last] > 0;
                match self.sources[input] {
                    Source::Values(values) if tiles[input].is_null() => {
                        (values.wrapping_add(offsets[input] + if is_dense { position } else { 0 }), is_dense, 0)
                    }
                    _ => (tiles[input], geometry.is_spread[input] || is_dense, 0),
                }
            };
            // SAFETY: inputs cover the tile, or are single values, and so does the result, which lies in the output.
            unsafe {
                self.steps(bases, input, result, [count, 1]);
                self.store(result, place, count);
            }
            position += count;
        }
    }

    /// Where the last step writes the elements of the output from `place` on.
    fn result(&self, bases: *mut f32, place: usize) -> *mut f32 {
        match &self.target {
            Target::Values(values) => values.pointer().wrapping_add(place),
            Target::Codes(..) => bases.wrapping_add((SLOTS + MOST_INPUTS) * APART),
        }
    }

    /// Stores the codes of `count` results, if the output has codes.
    ///
    /// # Safety
    /// There are so many, and the output has room for them at the place.
    unsafe fn store(&self, result: *const f32, place: usize, count: usize) {
        if let Target::Codes(codes, encoding) = &self.target {
            // SAFETY: the caller's promise.
            unsafe { quantize_line(self.isa, *encoding, result, codes.pointer().add(place), count) };
        }
    }

    /// Computes all steps of lines; `sizes` are the elements of each and their number.
    ///
    /// # Safety
    /// What is found for the inputs is readable, the result has room for the lines, and so have the tiles.
    unsafe fn steps(&self, bases: *mut f32, input: impl Fn(usize) -> Found<f32>, result: *mut f32, sizes: [usize; 2]) {
        let (isa, steps, [len, _]) = (self.isa, &self.chain.steps, sizes);
        let tile = |step: usize| bases.wrapping_add(self.chain.slots[step] * APART);
        let find = |operand: &Operand| match operand {
            Operand::Input(place) => input(*place),
            Operand::Step(from) => (tile(*from).cast_const(), true, len),
            Operand::Constant(value) => (std::ptr::from_ref(value), false, 0),
        };
        for (place, step) in steps.iter().enumerate() {
            let target = if place + 1 == steps.len() { result } else { tile(place) };
            // SAFETY: operands cover the lines, or are single values; an operand that overlaps the target equals it, because a
            // step's tile is reused only by the last step that reads it.
            unsafe {
                match step {
                    ChainStep::Unary(op, a) => {
                        let found = find(a);
                        let [len, count] = joined(&[found], sizes);
                        for line in 0..count {
                            let (a, target) = (found.0.add(line * found.2), target.add(line * len));
                            if found.1 {
                                unary::apply(isa, *op, a, target, len);
                            } else {
                                let mut value = 0.0;
                                unary::apply(isa, *op, a, &raw mut value, 1);
                                std::slice::from_raw_parts_mut(target, len).fill(value);
                            }
                        }
                    }
                    ChainStep::Binary(op, a, b) => {
                        lines_f32(isa, *op, Lines::some([find(a), find(b)], target, sizes));
                    }
                    ChainStep::Compare(op, a, b) => {
                        lines_truth_f32(isa, *op, Lines::some([find(a), find(b)], target, sizes));
                    }
                    ChainStep::Select(condition, yes, no) => {
                        let found = [condition, yes, no].map(find);
                        let [len, count] = joined(&found, sizes);
                        for line in 0..count {
                            let operands = found.map(|(first, is_dense, step)| (first.add(line * step), is_dense));
                            line_select_f32(isa, operands, target.add(line * len), len);
                        }
                    }
                }
            }
        }
    }

    /// Brings `count` elements of an input into a tile: those of the joined axes from `offset` on, `stride` further for each
    /// place of the axis around them.
    ///
    /// # Safety
    /// The tile has so many elements, whole units, and the input has their places.
    unsafe fn spread(&self, spread: &Spread, offset: usize, stride: usize, count: usize, tile: *mut f32) {
        let unit = self.geometry.unit;
        let places = &spread.places[..unit];
        // SAFETY: the caller's promise.
        unsafe {
            match &self.sources[spread.input] {
                Source::Values(values) => spread_over(places, values.add(offset), stride, count, tile, |value| value),
                Source::Codes(codes, decoder) => {
                    spread_over(places, codes.add(offset), stride, count, tile, |code| decoder.value(code));
                }
            }
        }
    }
}

/// Brings `count` elements into a tile: those at the places, `stride` further for each unit of them.
///
/// # Safety
/// The tile has so many elements, whole units, and there are elements at the places.
unsafe fn spread_over<T: Copy>(
    places: &[u32],
    from: *const T,
    stride: usize,
    count: usize,
    tile: *mut f32,
    value: impl Fn(T) -> f32,
) {
    let unit = places.len();
    if stride == 0 {
        // One unit, and then copies of what is there.
        let mut done = unit.min(count);
        for (index, place) in places[..done].iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *tile.add(index) = value(*from.add(*place as usize)) };
        }
        while done < count {
            let more = done.min(count - done);
            // SAFETY: the caller's promise, and the two parts follow each other.
            unsafe { std::ptr::copy_nonoverlapping(tile.cast_const(), tile.add(done), more) };
            done += more;
        }
        return;
    }
    if places.iter().all(|place| *place == 0) {
        // One value for each unit, written in whole vectors: what is beyond the unit belongs to the next one.
        let wide = unit.next_multiple_of(FILL);
        for block in 0..count / unit {
            let first = block * unit;
            // SAFETY: the caller's promise.
            unsafe {
                let value = value(*from.add(block * stride));
                if first + wide <= count {
                    for part in (0..wide).step_by(FILL) {
                        tile.add(first + part).cast::<[f32; FILL]>().write_unaligned([value; FILL]);
                    }
                } else {
                    std::slice::from_raw_parts_mut(tile.add(first), unit).fill(value);
                }
            }
        }
        return;
    }
    for block in 0..count / unit {
        for (index, place) in places.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { *tile.add(block * unit + index) = value(*from.add(block * stride + *place as usize)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::{BroadcastGeometry, binary, compare};
    use crate::quantized::quantize;
    use crate::testing::{Random, in_pool};
    use crate::unary::unary_f32;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_chain_equals_its_steps(seed: u64) {
            let mut random = Random::new(seed);
            let rank = random.between(0, 6);
            let output: Vec<usize> = (0..rank).map(|_| random.between(1, 6) * [1, 1, 1, 13][random.between(0, 3)]).collect();
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
            let comparisons = [
                CompareOp::Equal, CompareOp::NotEqual, CompareOp::Less, CompareOp::LessEqual, CompareOp::Greater,
                CompareOp::GreaterEqual, CompareOp::And, CompareOp::Or, CompareOp::Xor,
            ];
            let mut steps = Vec::new();
            for place in 0..random.between(1, 9) {
                let mut operand = || match random.between(0, 3) {
                    0 => Operand::Constant(random.value()),
                    1 if place > 0 => Operand::Step(place - 1 - random.between(0, (place - 1).min(3))),
                    2 if place > 0 => Operand::Step(place - 1),
                    _ => Operand::Input(random.between(0, count - 1)),
                };
                let (a, b, c) = (operand(), operand(), operand());
                steps.push(match random.between(0, 5) {
                    0 | 1 => ChainStep::Unary(unary[random.between(0, 3)], a),
                    2 | 3 => ChainStep::Binary(binaries[random.between(0, 3)], a, b),
                    4 => ChainStep::Compare(comparisons[random.between(0, 8)], a, b),
                    _ => ChainStep::Select(a, b, c),
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
                        ChainStep::Compare(op, a, b) => {
                            let ((shape, a), (_, b)) = (widen(get(a)), widen(get(b)));
                            let geometry = BroadcastGeometry::new(&shape, &shape).unwrap();
                            let mut result = vec![0; a.len()];
                            compare(isa, *op, &geometry, &a, &b, &mut result).unwrap();
                            (shape, result.into_iter().map(f32::from).collect())
                        }
                        ChainStep::Select(condition, yes, no) => {
                            let [(shape, condition), (_, yes), (_, no)] = [condition, yes, no].map(|a| widen(get(a)));
                            let choices = condition.iter().zip(yes.into_iter().zip(no));
                            (shape, choices.map(|(condition, (yes, no))| if *condition == 0.0 { no } else { yes }).collect())
                        }
                    });
                }
                let expected = &results.last().unwrap().1;
                let slices: Vec<ChainInput<'_>> = inputs.iter().map(|input| ChainInput::Values(input)).collect();
                let mut result = vec![f32::NAN; geometry.output_len()];
                run_chain(isa, &chain, &geometry, &slices, None, ChainOutput::Values(&mut result)).unwrap();
                prop_assert_eq!(&result, expected);
                // Codes of the result are those of its values.
                let quantizer = Quantizer { low: -1.0, high: 2.0, steps: 255.0 };
                let mut codes = vec![7; result.len()];
                run_chain(isa, &chain, &geometry, &slices, None, ChainOutput::Codes(&mut codes, quantizer)).unwrap();
                for (code, value) in codes.iter().zip(&result) {
                    let level = if value.is_nan() { 0.0 } else { (f64::from(*value).clamp(-1.0, 2.0) + 1.0) * 85.0 };
                    prop_assert!((f64::from(*code) - level).abs() < 0.501, "{value} {code}");
                }
                // Inputs of codes are their values.
                let dequantizer = Dequantizer { low: -1.0, high: 2.0, steps: 255.0 };
                let coded: Vec<Vec<u8>> = inputs.iter().map(|input| {
                    let mut codes = vec![0; input.len()];
                    quantize(isa, &quantizer, input, &mut codes).unwrap();
                    codes
                }).collect();
                let decoded: Vec<Vec<f32>> =
                    coded.iter().map(|codes| codes.iter().map(|code| Decoder::new(&dequantizer).value(*code)).collect()).collect();
                let given: Vec<ChainInput<'_>> = coded.iter().map(|codes| ChainInput::Codes(codes, dequantizer)).collect();
                let slices_of_decoded: Vec<ChainInput<'_>> = decoded.iter().map(|values| ChainInput::Values(values)).collect();
                let (mut of_codes, mut of_values) = (result.clone(), result.clone());
                run_chain(isa, &chain, &geometry, &given, None, ChainOutput::Values(&mut of_codes)).unwrap();
                run_chain(isa, &chain, &geometry, &slices_of_decoded, None, ChainOutput::Values(&mut of_values)).unwrap();
                prop_assert_eq!(&of_codes, &of_values);
                prop_assert!(
                    geometry.inputs == 0
                        || run_chain(isa, &chain, &geometry, &given, Some(0), ChainOutput::Values(&mut of_codes)).is_err()
                );
                // Few elements are computed in another way, and constants may be of those.
                if (1..=MOST_ELEMENTS).contains(&result.len()) {
                    let whole = |(shape, values): (&Vec<usize>, &Vec<f32>)| spread(isa, values, shape, &output).unwrap();
                    let wide: Vec<Vec<f32>> = shapes.iter().zip(&inputs).map(whole).collect();
                    let constants: Vec<Option<Vec<f32>>> =
                        wide.iter().enumerate().map(|(place, values)| (seed >> place & 1 == 1).then(|| values.clone())).collect();
                    let given: Vec<&[f32]> =
                        wide.iter().zip(&constants).filter(|(_, constant)| constant.is_none()).map(|(values, _)| &values[..]).collect();
                    let small = SmallChain::new(&chain, result.len(), &constants).unwrap();
                    let mut of_few = vec![f32::NAN; result.len()];
                    small.run(isa, &given, &mut of_few).unwrap();
                    prop_assert_eq!(&of_few, expected);
                    prop_assert!(small.run(isa, &given, &mut of_few[1..]).is_err());
                }
                for (place, input) in inputs.iter().enumerate().filter(|(_, input)| input.len() == result.len()) {
                    let mut data = input.clone();
                    let mut slices = slices.clone();
                    slices[place] = ChainInput::Values(&[]);
                    run_chain(isa, &chain, &geometry, &slices, Some(place), ChainOutput::Values(&mut data)).unwrap();
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
        let shapes: [&[usize]; 3] = [&output, &[1, blocks, 1, 16], &[batch, blocks, 1, 16]];
        let geometry = ChainGeometry::new(&output, &shapes).unwrap();
        for isa in Isa::available() {
            let mut result = vec![f32::NAN; data.len()];
            let inputs = [&data, &scale, &gate].map(|values| ChainInput::Values(values));
            run_chain(isa, &chain, &geometry, &inputs, None, ChainOutput::Values(&mut result)).unwrap();
            for (index, value) in result.iter().enumerate() {
                let (plane, lane) = (index / (positions * 16), index % 16);
                let expected = data[index] * scale[plane % blocks * 16 + lane] + gate[plane * 16 + lane];
                assert!((value - expected).abs() < 1e-5, "{isa} {index}: {value} {expected}");
            }
        }
        let (short, mut output) = ([&data, &scale[1..], &gate].map(ChainInput::Values), vec![0.0; data.len()]);
        let target = ChainOutput::Values(&mut output);
        assert!(run_chain(Isa::portable(), &chain, &geometry, &short, None, target).is_err());
    }

    /// Lines that are computed together: of inputs that are whole, one value a line, one line, and codes of each kind.
    #[test]
    fn lines_together() {
        let mut random = Random::new(8);
        let output = [3, 30, 45];
        let shapes: [&[usize]; 6] = [&output, &[30, 1], &[45], &output, &[3, 30, 1], &[3, 1, 45]];
        let lens = shapes.map(|shape| shape.iter().product::<usize>());
        let values: Vec<Vec<f32>> = lens.iter().map(|len| random.values(*len)).collect();
        let codes: Vec<Vec<u8>> = lens.iter().map(|len| (0..*len).map(|_| random.next() as u8).collect()).collect();
        let dequantizer = Dequantizer { low: -1.0, high: 2.0, steps: 255.0 };
        let inputs: Vec<ChainInput<'_>> = (0..6)
            .map(|place| match place {
                0..3 => ChainInput::Values(&values[place]),
                _ => ChainInput::Codes(&codes[place], dequantizer),
            })
            .collect();
        let chain = Chain::new(
            6,
            vec![
                ChainStep::Binary(BinaryOp::Mul, Operand::Input(0), Operand::Input(1)),
                ChainStep::Unary(UnaryOp::Abs, Operand::Input(4)),
                ChainStep::Binary(BinaryOp::Add, Operand::Step(0), Operand::Input(2)),
                ChainStep::Compare(CompareOp::Less, Operand::Step(2), Operand::Input(3)),
                ChainStep::Select(Operand::Step(3), Operand::Step(1), Operand::Input(5)),
                ChainStep::Binary(BinaryOp::Max, Operand::Step(4), Operand::Step(2)),
            ],
        )
        .unwrap();
        let geometry = ChainGeometry::new(&output, &shapes).unwrap();
        let decoder = Decoder::new(&dequantizer);
        for isa in Isa::available() {
            let mut result = vec![f32::NAN; lens[0]];
            run_chain(isa, &chain, &geometry, &inputs, None, ChainOutput::Values(&mut result)).unwrap();
            for (index, found) in result.into_iter().enumerate() {
                let (outer, line, column) = (index / 45 / 30, index / 45 % 30, index % 45);
                let decoded = |input: usize, at: usize| decoder.value(codes[input][at]);
                let sum = values[0][index] * values[1][line] + values[2][column];
                let chosen = match sum < decoded(3, index) {
                    true => decoded(4, index / 45).abs(),
                    false => decoded(5, outer * 45 + column),
                };
                assert_eq!(found, chosen.max(sum), "{isa} {index}");
            }
        }
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
            let (inputs, target) = ([ChainInput::Values(&input)], ChainOutput::Values(&mut output));
            run_chain(Isa::portable(), &chain, &geometry, &inputs, None, target).unwrap();
            output
        };
        assert_eq!(run(), in_pool(2, run));
    }
}
