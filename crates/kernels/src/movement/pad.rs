//! Padding, row by row.

use super::{CHUNK, SHORT, copy, copy_slice};
use crate::error::{KernelError, check_exact, product};
use crate::parallel::nanoseconds_for_bytes;
use std::ops::Range;

/// What lies outside a padded tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadMode {
    /// A constant.
    Constant,
    /// The nearest edge element.
    Edge,
    /// The mirror image without the edge element itself.
    Reflect,
    /// The mirror image with the edge element.
    Symmetric,
}

/// Pads a dense tensor of `shape` with elements of `width` bytes. `begin` elements come before each axis and `end`
/// after; both may be negative, which crops. `value` is one element, used by [`PadMode::Constant`].
///
/// # Errors
/// Ranks differ or exceed eight, a slice does not fit, an axis would become negative, or pads exceed what can be
/// mirrored.
pub fn pad(
    mode: PadMode,
    width: usize,
    shape: &[usize],
    begin: &[isize],
    end: &[isize],
    value: &[u8],
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    let rank = shape.len();
    if rank > 8 || begin.len() != rank || end.len() != rank {
        return Err(KernelError::invalid("shape", "ranks differ or exceed eight"));
    }
    let mut padded = [1usize; 8];
    for axis in 0..rank {
        let size = (shape[axis] as isize).checked_add(begin[axis]).and_then(|size| size.checked_add(end[axis]));
        padded[axis] = size
            .and_then(|size| usize::try_from(size).ok())
            .ok_or(KernelError::invalid("end", "crops more than there is"))?;
        let room = match mode {
            PadMode::Constant => isize::MAX,
            PadMode::Edge => {
                if shape[axis] == 0 {
                    0
                } else {
                    isize::MAX
                }
            }
            PadMode::Reflect => shape[axis] as isize - 1,
            PadMode::Symmetric => shape[axis] as isize,
        };
        if begin[axis].max(end[axis]) > room.max(0) {
            return Err(KernelError::invalid("begin", "exceeds what can be mirrored"));
        }
    }
    let padded = &padded[..rank];
    check_exact("input", input.len(), product("input", shape)?.saturating_mul(width))?;
    check_exact("output", output.len(), product("output", padded)?.saturating_mul(width))?;
    if mode == PadMode::Constant {
        check_exact("value", value.len(), width)?;
    }
    let Some(last) = (0..rank).rev().find(|axis| begin[*axis] != 0 || end[*axis] != 0) else {
        return copy(input, output);
    };
    if output.is_empty() {
        return Ok(());
    }
    // What lies behind the last padded axis moves as one.
    let width = width * padded[last + 1..].iter().product::<usize>();
    let (shape, padded) = (&shape[..=last], &padded[..=last]);
    let bytes = padded[last] * width;
    let work = nanoseconds_for_bytes(output.len().saturating_mul(2));
    let grain = CHUNK.div_ceil(bytes) * bytes;
    let line = PaddedLine::new(mode, width, [shape[last], padded[last]], begin[last], value);
    crate::parallel::parallel_chunks_mut(output, grain, work, |chunk, output| {
        let mut rows = Rows::new(mode, shape, &padded[..last], begin, chunk * (grain / bytes));
        let mut output = output.chunks_exact_mut(bytes);
        while output.len() > 0 {
            let run = rows.run(output.len());
            for (at, output) in run.clone().zip(&mut output) {
                match rows.source(at) {
                    Some(row) => line.pad(&input[row * line.size * width..][..line.size * width], output),
                    None => line.fill(output),
                }
            }
            rows.skip(run.len());
        }
    });
    Ok(())
}

/// Rows of a padded tensor one after the other: counted on, since divisions take longer than short rows.
struct Rows<'a> {
    mode: PadMode,
    shape: &'a [usize],
    padded: &'a [usize],
    begin: &'a [isize],
    at: [usize; 8],
    /// The rows of the input in front of those of the last axis; `None` outside a constant frame.
    outer: Option<usize>,
}

impl<'a> Rows<'a> {
    /// The rows of these axes from one of them on.
    fn new(mode: PadMode, shape: &'a [usize], padded: &'a [usize], begin: &'a [isize], row: usize) -> Self {
        let (mut at, mut rest) = ([0; 8], row);
        for (at, size) in at.iter_mut().zip(padded).rev() {
            (*at, rest) = (rest % size, rest / size);
        }
        let mut rows = Self { mode, shape, padded, begin, at, outer: None };
        rows.outer = rows.outer();
        rows
    }

    /// The rows from this one on that differ in their last axis alone, at most so many: where they are along it.
    fn run(&self, most: usize) -> Range<usize> {
        let Some(last) = self.padded.len().checked_sub(1) else { return 0..1 };
        self.at[last]..self.padded[last].min(self.at[last] + most)
    }

    /// Goes on by so many rows of a run.
    fn skip(&mut self, mut count: usize) {
        for (axis, size) in self.padded.iter().enumerate().rev() {
            self.at[axis] += count;
            if self.at[axis] < *size {
                break;
            }
            (self.at[axis], count) = (0, 1);
        }
        self.outer = self.outer();
    }

    fn outer(&self) -> Option<usize> {
        let place = |axis: usize| reflect(self.mode, self.at[axis] as isize - self.begin[axis], self.shape[axis]);
        let mut axes = 0..self.padded.len().saturating_sub(1);
        axes.try_fold(0, |outer, axis| Some(outer * self.shape[axis] + place(axis)?))
    }

    /// The row of the input that the row of a run comes from; `None` outside a constant frame.
    #[inline(always)]
    fn source(&self, at: usize) -> Option<usize> {
        let Some(last) = self.padded.len().checked_sub(1) else { return Some(0) };
        Some(self.outer? * self.shape[last] + reflect(self.mode, at as isize - self.begin[last], self.shape[last])?)
    }
}

/// Where a position of a padded axis comes from.
fn reflect(mode: PadMode, position: isize, size: usize) -> Option<usize> {
    let size = size as isize;
    if (0..size).contains(&position) {
        return usize::try_from(position).ok();
    }
    let inside = match mode {
        PadMode::Constant => return None,
        PadMode::Edge => position.clamp(0, size - 1),
        PadMode::Reflect => {
            if position < 0 {
                -position
            } else {
                2 * size - 2 - position
            }
        }
        PadMode::Symmetric => {
            if position < 0 {
                -position - 1
            } else {
                2 * size - 1 - position
            }
        }
    };
    usize::try_from(inside).ok()
}

/// How lines are padded.
struct PaddedLine<'a> {
    mode: PadMode,
    /// Bytes of an element.
    width: usize,
    /// Elements of a line of the input.
    size: usize,
    begin: isize,
    /// The elements of the padded line that are those of the line.
    inside: Range<usize>,
    value: &'a [u8],
    /// The value again and again, as often as it goes into it.
    values: [u8; SHORT],
    filled: usize,
}

impl<'a> PaddedLine<'a> {
    fn new(mode: PadMode, width: usize, [size, padded]: [usize; 2], begin: isize, value: &'a [u8]) -> Self {
        let first = begin.clamp(0, padded as isize);
        let end = (size as isize + begin).clamp(first, padded as isize);
        let (value, mut values) = (if mode == PadMode::Constant { value } else { &[] }, [0; SHORT]);
        let filled = SHORT.checked_div(value.len()).unwrap_or(0) * value.len();
        fill(value, &mut values[..filled]);
        Self { mode, width, size, begin, inside: first as usize..end as usize, value, values, filled }
    }

    /// Writes a line of the padded tensor that has one of the input.
    #[inline(always)]
    fn pad(&self, source: &[u8], output: &mut [u8]) {
        let (width, Range { start, end }) = (self.width, self.inside.clone());
        if start < end {
            let from = (start as isize - self.begin) as usize * width;
            copy_slice(&source[from..from + (end - start) * width], &mut output[start * width..end * width]);
        }
        if self.mode == PadMode::Constant {
            self.fill(&mut output[..start * width]);
            self.fill(&mut output[end * width..]);
            return;
        }
        for place in (0..start).chain(end..output.len() / width) {
            let target = &mut output[place * width..][..width];
            match reflect(self.mode, place as isize - self.begin, self.size) {
                Some(at) => copy_slice(&source[at * width..][..width], target),
                None => self.fill(target),
            }
        }
    }

    /// Fills whole elements with the value.
    #[inline(always)]
    fn fill(&self, output: &mut [u8]) {
        match output.len() <= self.filled {
            true => copy_slice(&self.values[..output.len()], output),
            false => fill(self.value, output),
        }
    }
}

/// Repeats a value.
fn fill(value: &[u8], output: &mut [u8]) {
    if value.iter().all(|byte| *byte == 0) {
        output.fill(0);
        return;
    }
    // What is filled doubles with each copy.
    let (mut filled, len) = (value.len().min(output.len()), output.len());
    output[..filled].copy_from_slice(&value[..filled]);
    while filled > 0 && filled < len {
        let count = filled.min(len - filled);
        output.copy_within(..count, filled);
        filled += count;
    }
}
