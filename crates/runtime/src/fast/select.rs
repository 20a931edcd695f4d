//! Select of elements that have bytes of their own.

use std::sync::atomic::{AtomicBool, Ordering};

use ovir_kernels::elementwise::{ElementBytes, select_line};
use ovir_kernels::isa::{self, Isa};
use ovir_kernels::parallel::{nanoseconds_for_bytes, parallel_chunks_mut};
use ovir_ops::common::broadcast::BroadcastAttributes;
use ovir_ops::condition::select::Select;
use ovir_ops::{Blame, OpError, OpResult};
use ovir_tensor::{ElementType, Shape, SmallVec};

use super::settled::Settled;
use super::{Claim, ClaimContext, Kernel, StepIo, StepShapes};

/// Elements that a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

struct SelectKernel {
    isa: Isa,
    attributes: BroadcastAttributes,
    width: usize,
    settled: Settled<Block>,
}

/// An axis: its size, and the steps of condition, first and second choice.
type Axis = (usize, [usize; 3]);

/// Claims Select.
pub(crate) fn claim(context: &mut ClaimContext<'_>) -> Option<Claim> {
    let select = context.node.operation.downcast_ref::<Select>()?;
    let [condition, yes, no] = context.inputs else { return None };
    if condition.element_type != ElementType::Boolean || yes.element_type != no.element_type {
        return None;
    }
    let width = yes.element_type.byte_width().filter(|width| matches!(width, 1 | 2 | 4 | 8))?;
    let attributes = select.attributes.clone();
    let settled = Settled::new(context, 3, |shapes| {
        let ([condition, yes, no], [output]) = (shapes.inputs, shapes.outputs) else { return None };
        Some(Block::new(axes(&attributes, [condition, yes, no], output)?))
    });
    let kernel = SelectKernel { isa: isa::detect(), attributes, width, settled };
    Some(Claim { kernel: Box::new(kernel), packed_inputs: SmallVec::new() })
}

/// The axes of the output, innermost first, neighbours joined where that is possible; `None` if a shape does not
/// broadcast to the output.
fn axes(attributes: &BroadcastAttributes, inputs: [&Shape; 3], output: &Shape) -> Option<SmallVec<[Axis; 8]>> {
    let [condition, yes, no] = inputs;
    let aligned = [attributes.aligned_second(yes, condition), yes.clone(), attributes.aligned_second(yes, no)];
    let mut steps = [1usize; 3];
    let mut axes: SmallVec<[Axis; 8]> = SmallVec::new();
    for back in 0..output.rank() {
        let size = output[output.rank() - 1 - back];
        let mut strides = [0; 3];
        for (at, shape) in aligned.iter().enumerate() {
            let own = shape.rank().checked_sub(back + 1).map_or(1, |axis| shape[axis]);
            if own != size && own != 1 {
                return None;
            }
            strides[at] = if own == 1 { 0 } else { steps[at] };
            steps[at] = steps[at].checked_mul(own)?;
        }
        if size == 1 {
            continue;
        }
        match axes.last_mut() {
            Some((inner, before)) if (0..3).all(|at| strides[at] == before[at] * *inner) => *inner *= size,
            _ => axes.push((size, strides)),
        }
    }
    aligned.iter().all(|shape| shape.rank() <= output.rank()).then_some(axes)
}

impl SelectKernel {
    fn apply<const WIDTH: usize>(&self, io: StepIo<'_, '_>) -> OpResult
    where
        [u8; WIDTH]: ElementBytes,
    {
        let [output] = io.outputs else { return Ok(()) };
        let found;
        let block = match self.settled.get(io.inputs) {
            Some(block) => block,
            None => {
                let shapes = [io.inputs[0].shape(), io.inputs[1].shape(), io.inputs[2].shape()];
                let axes = axes(&self.attributes, shapes, output.shape());
                let misfit = || OpError::shape(Blame::Node, "the inputs cannot be broadcast together");
                found = Block::new(axes.ok_or_else(misfit)?);
                &found
            }
        };
        let condition = io.inputs[0].slice::<u8>()?;
        let (yes, _) = io.inputs[1].bytes().as_chunks::<WIDTH>();
        let (no, _) = io.inputs[2].bytes().as_chunks::<WIDTH>();
        let (target, _) = output.bytes_mut().as_chunks_mut::<WIDTH>();
        let (size, strides) = block.outer.first().copied().unwrap_or((1, [0; 3]));
        let (line, outer) = (block.unit * size.max(1), block.outer.get(1..).unwrap_or(&[]));
        let repeats = [0, 1, 2].map(|input| block.spreads[input].kind == Kind::Single);
        let has_tables = block.spreads.iter().any(|spread| spread.kind == Kind::Table);
        let chunk = (CHUNK / block.unit.max(1)).max(1) * block.unit;
        let work = nanoseconds_for_bytes(target.len().saturating_mul(4 * WIDTH));
        let is_short = AtomicBool::new(false);
        parallel_chunks_mut(target, chunk, work, |index, mut target| {
            let mut all;
            let (tile_c, tile_y, tile_n): (&mut [u8], &mut [[u8; WIDTH]], &mut [[u8; WIDTH]]) = if has_tables {
                all = ([0; TILE], [[0; WIDTH]; TILE], [[0; WIDTH]; TILE]);
                (&mut all.0, &mut all.1, &mut all.2)
            } else {
                (&mut [], &mut [], &mut [])
            };
            let (mut tiled, mut first) = ([None; 3], index * chunk);
            while !target.is_empty() {
                let (row, place) = (first / line, first % line);
                let len = block.len.min(line - place).min(target.len());
                let (now, later) = target.split_at_mut(len);
                let (begin, at) = (offsets(outer, row), place / block.unit);
                let [c, y, n] = [0, 1, 2].map(|input| [begin[input] + at * strides[input], len]);
                let [spread_c, spread_y, spread_n] = &block.spreads;
                let operands = (
                    spread_c.read(condition, c, tile_c, &mut tiled[0]),
                    spread_y.read(yes, y, tile_y, &mut tiled[1]),
                    spread_n.read(no, n, tile_n, &mut tiled[2]),
                );
                let is_done = match operands {
                    (Some(c), Some(y), Some(n)) => select_line(self.isa, (c, y, n), repeats, now).is_ok(),
                    _ => false,
                };
                if !is_done {
                    return is_short.store(true, Ordering::Relaxed);
                }
                (target, first) = (later, first + len);
            }
        });
        if is_short.into_inner() {
            return Err(OpError::shape(Blame::Node, "an input is shorter than its shape"));
        }
        Ok(())
    }
}

/// The most elements of a block, and the longest innermost axis that is joined with others to one: finding longer lines takes
/// little of their time.
const BLOCK: usize = 512;
const SHORT: usize = 64;

/// The elements that are written at once to a tile, which has room for as many behind the block.
const LANES: usize = 8;
const TILE: usize = BLOCK + LANES;

/// Elements of the output that are computed together.
struct Block {
    /// The elements of whole axes.
    unit: usize,
    /// The elements of a block: some units.
    len: usize,
    /// The axes around the units.
    outer: SmallVec<[Axis; 8]>,
    /// How each input spreads over a block.
    spreads: [Spread; 3],
}

/// How an input spreads over a block.
struct Spread {
    kind: Kind,
    /// Of a table: the elements of a run, and the distance between their places, which is 0 or 1.
    run: [usize; 2],
    /// Of a table: where the first element of each run lies.
    places: SmallVec<[u32; BLOCK / 2]>,
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// It has one element for all.
    Single,
    /// It has an element for each, side by side.
    Dense,
    /// It has runs of elements, which are equal or side by side.
    Table,
}

impl Block {
    /// The block for axes of the output, innermost first: all of the innermost one, or more of them if it is short.
    fn new(mut axes: SmallVec<[Axis; 8]>) -> Self {
        let (mut unit, mut count) = axes.first().map_or((1, 0), |(size, _)| (*size, 1));
        if unit > SHORT || axes.len() < 2 {
            let spreads = [0, 1, 2].map(|input| Spread::of_line(axes.first().map_or(0, |(_, strides)| strides[input])));
            axes.drain(..count);
            return Self { unit, len: unit, outer: axes, spreads };
        }
        while count < axes.len() && unit * axes[count].0 <= BLOCK {
            unit *= axes[count].0;
            count += 1;
        }
        let cut = axes.get(count).map(|(size, strides)| ((BLOCK / unit.max(1)).clamp(1, (*size).max(1)), *strides));
        let units = cut.map_or(1, |(units, _)| units);
        let joined = || axes[..count].iter().copied().chain(cut);
        let spreads = [0, 1, 2].map(|input| Spread::new(joined().map(|(size, strides)| (size, strides[input]))));
        axes.drain(..count);
        Self { unit, len: unit * units, outer: axes, spreads }
    }
}

impl Spread {
    /// How an input spreads over a block of axes, innermost first, of these sizes and steps.
    fn new(axes: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut axes = axes.filter(|(size, _)| *size > 1).peekable();
        let (mut run, step) = axes.peek().map_or((1, 1), |(_, stride)| (1, *stride));
        while let Some((size, _)) = axes.next_if(|(_, stride)| *stride == run * step) {
            run *= size;
        }
        if axes.peek().is_none() {
            return Self::of_line(step);
        }
        // A run has two elements at least, so that places are never allocated.
        let mut places: SmallVec<[u32; BLOCK / 2]> = SmallVec::new();
        places.push(0);
        for (size, stride) in axes {
            let runs = places.len();
            for index in runs..size * runs {
                places.push(places[index - runs] + stride as u32);
            }
        }
        Self { kind: Kind::Table, run: [run, step], places }
    }

    /// The same for a line of these steps.
    fn of_line(stride: usize) -> Self {
        Self { kind: if stride == 0 { Kind::Single } else { Kind::Dense }, run: [1, stride], places: SmallVec::new() }
    }

    /// The first `len` elements of a block whose first one the input has at `first`: where they lie, or in the tile, which holds
    /// as many of the block as `tiled` says. `None` if the input is too short.
    fn read<'a, T: Copy>(
        &self,
        input: &'a [T],
        [first, len]: [usize; 2],
        tile: &'a mut [T],
        tiled: &mut Option<[usize; 2]>,
    ) -> Option<&'a [T]> {
        let input = input.get(first..)?;
        if self.kind != Kind::Table {
            return Some(input);
        }
        if tiled.is_none_or(|[from, elements]| from != first || elements < len) {
            self.fill(input, tile, len)?;
            *tiled = Some([first, len]);
        }
        Some(tile)
    }

    /// Writes the runs that hold the first `len` elements to the tile, a few elements too many after each run but before the
    /// next one. `None` if the input is too short.
    fn fill<T: Copy>(&self, input: &[T], tile: &mut [T], len: usize) -> Option<()> {
        let [run, step] = self.run;
        for (index, place) in self.places.iter().take(len.div_ceil(run)).enumerate() {
            let (from, to) = (input.get(*place as usize..)?, tile.get_mut(index * run..)?);
            if step == 0 {
                let value = [*from.first()?; LANES];
                for lanes in (0..run).step_by(LANES) {
                    *to.get_mut(lanes..)?.first_chunk_mut()? = value;
                }
            } else if let Some(from) = from.get(..run.next_multiple_of(LANES)) {
                for (lanes, from) in from.as_chunks::<LANES>().0.iter().enumerate() {
                    *to.get_mut(lanes * LANES..)?.first_chunk_mut()? = *from;
                }
            } else {
                to.get_mut(..run)?.copy_from_slice(from.get(..run)?);
            }
        }
        Some(())
    }
}

/// Where a row begins in each input.
fn offsets(outer: &[Axis], row: usize) -> [usize; 3] {
    let mut rest = row;
    let mut offsets = [0; 3];
    for (size, strides) in outer {
        let at = rest % size;
        rest /= size;
        for (offset, stride) in offsets.iter_mut().zip(strides) {
            *offset += at * stride;
        }
    }
    offsets
}

impl Kernel for SelectKernel {
    fn accepts(&self, shapes: &StepShapes<'_>) -> bool {
        let ([condition, yes, no], [output]) = (shapes.inputs, shapes.outputs) else { return false };
        axes(&self.attributes, [condition, yes, no], output).is_some()
    }

    fn work_nanoseconds(&self, shapes: &StepShapes<'_>) -> u64 {
        shapes.outputs.iter().map(|s| s.elements() as u64).sum()
    }

    fn run(&self, io: StepIo<'_, '_>) -> OpResult {
        match self.width {
            1 => self.apply::<1>(io),
            2 => self.apply::<2>(io),
            4 => self.apply::<4>(io),
            _ => self.apply::<8>(io),
        }
    }
}
