//! Moving elements of any width: transposition, slices, concatenation, splitting, tiling, broadcasting, padding and
//! gathering. Data are bytes; an element is `width` of them.

use crate::error::{KernelError, check_exact, check_len, product};
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, TABLE, dispatch};
use crate::tile::{BYTE_SIDE, SIDE, columns, columns_of_pairs, transpose};
use std::ops::Range;

mod pad;

pub use pad::{PadMode, pad};

/// The most axes a copy keeps after collapsing.
const MOST_AXES: usize = 10;

/// Bytes a parallel chunk covers at least.
const CHUNK: usize = 1 << 16;

/// The most bytes of a line that is copied without a call.
const SHORT: usize = 128;

/// Tiles of so few rows or columns are moved directly.
const NARROW: usize = 7;

/// The length of the strips that planes with a narrow side are moved in.
const STRIP: usize = 1024;

/// Indices up to here are resolved once where many blocks are gathered by them.
const MOST_RESOLVED: usize = 128;

/// So many elements of a short axis, or more, are looked up in vectors.
const FEWEST_LOOKED_UP: usize = 8;

/// The most and the fewest elements of blocks that are found by a table.
const MOST_TABLED: usize = 256;
const FEWEST_TABLED: usize = 16;

/// So many blocks repay what their table takes.
const FEWEST_BLOCKS: usize = 4;

/// Bytes of data that stay in the second cache, and bytes of a line of it.
const NEAR_BYTES: usize = 1 << 18;
const LINE_BYTES: usize = 64;

/// Where tables have so many bytes of each line read soon, reading it again for the others takes less time than finding lines does.
const FEWEST_BYTES: usize = LINE_BYTES / 8;

/// Lines of so few elements take longer to find than their elements do where so few follow each other, or fewer of those that are
/// moved in vectors; and shorter lines always do that are not.
const SHORT_LINE: usize = 12;
const FEW_ROWS: usize = 16;
const FEWEST_ROWS: usize = 4;
const SHORTEST_LINE: usize = 8;

/// Bytes of lines that are moved together, one from each of some groups of a few lines.
const FIRST_BYTES: usize = 1 << 14;

/// Repeats of so few elements in all are found by a table.
const FEW_REPEATED: usize = 48;

/// Sets of the first cache, the lines that one of them keeps, and those that elements found by a table may lie in: with more, each
/// is read again and again.
const SETS: usize = 64;
const WAYS: usize = 8;
const MOST_OF_A_SET: usize = 16;

/// Picoseconds that an element takes which is found by a table.
const PICOSECONDS_BY_TABLE: usize = 420;

/// The side of the square tiles that a transposition works in.
const TILE: usize = 16;

/// A copy between two strided views: element `i` of the axes goes from `input_offset + sum(i * input stride)` to
/// `output_offset + sum(i * output stride)`, all counted in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StridedCopy {
    axes: [Axis; MOST_AXES],
    rank: usize,
    input_offset: usize,
    output_offset: usize,
    input_len: usize,
    output_len: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Axis {
    pub(crate) size: usize,
    pub(crate) input: isize,
    pub(crate) output: isize,
}

impl StridedCopy {
    /// A copy over axes of `(size, input stride, output stride)`, outermost first; an input stride may be zero or
    /// negative. `input_len` and `output_len` are the lengths of the two slices in elements.
    ///
    /// # Errors
    /// An element would lie outside its slice, two elements would go to one place, sizes overflow, or more than ten
    /// axes remain after collapsing.
    pub fn new(
        axes: &[(usize, isize, isize)],
        input_offset: usize,
        output_offset: usize,
        input_len: usize,
        output_len: usize,
    ) -> Result<Self, KernelError> {
        let mut copy =
            Self { axes: [Axis::default(); MOST_AXES], rank: 0, input_offset, output_offset, input_len, output_len };
        if axes.iter().any(|&(size, ..)| size == 0) {
            copy.axes[0] = Axis { size: 0, input: 0, output: 0 };
            copy.rank = 1;
            return Ok(copy);
        }
        check_inside("input", axes.iter().map(|axis| (axis.0, axis.1)), input_offset, input_len)?;
        check_inside("output", axes.iter().map(|axis| (axis.0, axis.2)), output_offset, output_len)?;
        for &(size, input, output) in axes.iter().filter(|axis| axis.0 != 1) {
            let outer = copy.rank.checked_sub(1).map(|last| copy.axes[last]);
            let merges = |outer: &Axis| {
                outer.input == input.wrapping_mul(size as isize) && outer.output == output.wrapping_mul(size as isize)
            };
            if let Some(outer) = outer.filter(merges) {
                copy.axes[copy.rank - 1] = Axis { size: outer.size * size, input, output };
                continue;
            }
            if copy.rank == MOST_AXES {
                return Err(KernelError::invalid("axes", "too many axes"));
            }
            copy.axes[copy.rank] = Axis { size, input, output };
            copy.rank += 1;
        }
        if copy.rank == 0 {
            copy.axes[0] = Axis { size: 1, input: 1, output: 1 };
            copy.rank = 1;
        }
        copy.check_disjoint()?;
        // Outputs are written in the order of their addresses, innermost smallest.
        copy.axes[..copy.rank].sort_by_key(|axis| std::cmp::Reverse(axis.output.unsigned_abs()));
        Ok(copy)
    }

    /// A transposition of a dense `shape`: axis `i` of the result is axis `order[i]` of the input.
    ///
    /// # Errors
    /// `order` is not a permutation, or as of [`StridedCopy::new`].
    pub fn transpose(shape: &[usize], order: &[usize]) -> Result<Self, KernelError> {
        let rank = shape.len();
        let permutes = order.len() == rank && (0..rank).all(|axis| order.contains(&axis));
        if !permutes || rank > 32 {
            return Err(KernelError::invalid("order", "is not a permutation"));
        }
        let len = product("shape", shape)?;
        let mut axes = [(1, 0, 0); 32];
        let mut stride = 1isize;
        for place in (0..rank).rev() {
            axes[place] = (shape[order[place]], 0, stride);
            stride = stride.saturating_mul(shape[order[place]] as isize);
        }
        let mut stride = 1isize;
        for axis in (0..rank).rev() {
            for place in 0..rank {
                if order[place] == axis {
                    axes[place].1 = stride;
                }
            }
            stride = stride.saturating_mul(shape[axis] as isize);
        }
        Self::new(&axes[..rank], 0, 0, len, len)
    }

    /// A dense result of `sizes` read from a dense input with an offset and a stride (in elements) per axis: slices
    /// (strides times steps), broadcasts and tiles (stride 0).
    ///
    /// # Errors
    /// As of [`StridedCopy::new`], or more than 32 axes.
    pub fn gather_strided(
        sizes: &[usize],
        input_strides: &[isize],
        input_offset: usize,
        input_len: usize,
    ) -> Result<Self, KernelError> {
        if sizes.len() > 32 || sizes.len() != input_strides.len() {
            return Err(KernelError::invalid("sizes", "too many axes or strides do not match"));
        }
        let len = product("sizes", sizes)?;
        let mut axes = [(1, 0, 0); 32];
        let mut stride = 1isize;
        for axis in (0..sizes.len()).rev() {
            axes[axis] = (sizes[axis], input_strides[axis], stride);
            stride = stride.saturating_mul(sizes[axis] as isize);
        }
        Self::new(&axes[..sizes.len()], input_offset, 0, input_len, len)
    }

    /// Elements that move.
    #[must_use]
    pub fn count(&self) -> usize {
        self.axes[..self.rank].iter().map(|axis| axis.size).product()
    }

    /// Moves the elements; `width` is the size of one in bytes.
    ///
    /// # Errors
    /// A slice is shorter than the geometry's length.
    pub fn run(&self, width: usize, input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
        if self.count() == 0 || width == 0 {
            return Ok(());
        }
        check_len("input", input.len(), product("input", &[self.input_len, width])?)?;
        check_len("output", output.len(), product("output", &[self.output_len, width])?)?;
        match width {
            1 => self.typed::<[u8; 1]>(input, output),
            2 => self.typed::<[u8; 2]>(input, output),
            4 => self.typed::<u32>(input, output),
            8 => self.typed::<u64>(input, output),
            16 => self.typed::<u128>(input, output),
            _ => self.wide(width, input, output),
        }
        Ok(())
    }

    /// Rewrites elements of an unusual width as runs of bytes.
    fn wide(&self, width: usize, input: &[u8], output: &mut [u8]) {
        let mut bytes = *self;
        for axis in &mut bytes.axes[..self.rank] {
            axis.input *= width as isize;
            axis.output *= width as isize;
        }
        if bytes.rank < MOST_AXES {
            bytes.axes[bytes.rank] = Axis { size: width, input: 1, output: 1 };
            bytes.rank += 1;
            bytes.input_offset *= width;
            bytes.output_offset *= width;
            bytes.typed::<[u8; 1]>(input, output);
            return;
        }
        for byte in 0..width {
            let mut part = bytes;
            part.input_offset = self.input_offset * width + byte;
            part.output_offset = self.output_offset * width + byte;
            part.typed::<[u8; 1]>(input, output);
        }
    }

    fn typed<T: Copy>(&self, input: &[u8], output: &mut [u8]) {
        let axes = &self.axes[..self.rank];
        // The axis along which the input is contiguous, if it is not the innermost of the output.
        let inner = axes[self.rank - 1];
        let across = axes[..self.rank - 1].iter().rposition(|axis| axis.input == 1);
        let work = nanoseconds_for_bytes(self.count().saturating_mul(2 * size_of::<T>()));
        let shared = SharedMut::new(output);
        // SAFETY: `new` checked that both offsets lie inside the slices, whose lengths `run` checked.
        let (from, to) = unsafe {
            (input.as_ptr().cast::<T>().add(self.input_offset), shared.pointer().cast::<T>().add(self.output_offset))
        };
        let pointers = Pointers { from, to };
        let across = across.filter(|_| inner.output == 1 && inner.input != 1 && inner.input != 0);
        let repeated = if across.is_none() { self.repeated::<T>() } else { None };
        // Beginning each group of a few repeats takes longer than finding its elements.
        let is_group_of_few = |place: usize| axes[place].output.unsigned_abs() * axes[place].size <= FEW_REPEATED;
        let table = match across {
            Some(across) => self.table::<T>(across),
            None if repeated.is_none_or(is_group_of_few) && has_short_lines::<T>(axes) => block_table(axes, 1),
            None => None,
        };
        if let Some(table) = table {
            let grain = CHUNK.div_ceil(table.len * size_of::<T>());
            // SAFETY: the geometry was checked to stay inside both slices, and its outputs to be distinct.
            let copy = |blocks| unsafe { table.copy(blocks, &pointers) };
            return parallel_for(table.count(), grain, work, copy);
        }
        if let Some(across) = across {
            return self.tiles(across, work, &pointers);
        }
        if let Some(place) = repeated {
            return self.repeats(place, work, &pointers);
        }
        // Long inner axes are cut, so that a plain copy also runs in parallel.
        let piece = (4 * CHUNK / size_of::<T>()).min(inner.size);
        let pieces = inner.size.div_ceil(piece);
        // Beginning each group of a few lines takes longer than moving them: first the first ones of some groups are moved, then
        // the second ones and so on.
        let lines = &axes[..self.rank - 1];
        let (outer, few) = match lines {
            [groups @ .., few]
                if pieces == 1
                    && few.size <= FEWEST_ROWS
                    && groups.last().is_some_and(|groups| groups.size > few.size) =>
            {
                (groups, *few)
            }
            _ => (lines, Axis { size: 1, input: 0, output: 0 }),
        };
        let at_once = if few.size > 1 { (FIRST_BYTES / (piece * size_of::<T>()).max(1)).max(1) } else { usize::MAX };
        let count = outer.iter().map(|axis| axis.size).product::<usize>();
        let grain = CHUNK.div_ceil(few.size * piece * size_of::<T>());
        parallel_for(count * pieces, grain, work, |range| {
            let mut cursor = Cursor::new(outer, range.start / pieces);
            if let (1, [.., rows]) = (pieces, outer) {
                let mut rest = range.len();
                while rest > 0 {
                    let count = rest.min(rows.size - cursor.at[outer.len() - 1]).min(at_once);
                    for line in 0..few.size as isize {
                        let (input, output) = (cursor.input + line * few.input, cursor.output + line * few.output);
                        // SAFETY: the geometry was checked to stay inside both slices, and its outputs to be distinct.
                        unsafe { pointers.lines(input, output, *rows, inner, count) };
                    }
                    cursor.skip(count);
                    rest -= count;
                }
                return;
            }
            for index in range {
                let first = index % pieces * piece;
                let count = piece.min(inner.size - first);
                let input = cursor.input + first as isize * inner.input;
                let output = cursor.output + first as isize * inner.output;
                // SAFETY: the geometry was checked to stay inside both slices, and its outputs to be distinct.
                unsafe { pointers.line(input, output, inner, count) };
                if first + count == inner.size {
                    cursor.skip(1);
                }
            }
        });
    }

    /// The axis that repeats a short dense block of short lines most often, if it does so often enough.
    fn repeated<T>(&self) -> Option<usize> {
        let axes = &self.axes[..self.rank];
        let line = axes[self.rank - 1];
        if line.output != 1 || line.size * size_of::<T>() > SHORT {
            return None;
        }
        let mut block = line.size;
        let mut found: Option<usize> = None;
        for (place, axis) in axes[..self.rank - 1].iter().enumerate().rev() {
            if axis.output != block as isize || block * size_of::<T>() > CHUNK {
                break;
            }
            let is_often = axis.size >= 4 || axis.size > 1 && block * size_of::<T>() >= 16 * SIDE;
            if axis.input == 0 && is_often && found.is_none_or(|found| axes[found].size < axis.size) {
                found = Some(place);
            }
            block *= axis.size;
        }
        found
    }

    /// Writes each block that the axis repeats once, and copies it from there.
    fn repeats<T: Copy>(&self, place: usize, work: u64, pointers: &Pointers<T>) {
        let (axes, inner) = (&self.axes[..self.rank - 1], self.axes[self.rank - 1]);
        let (repeated, block) = (axes[place], axes[place].output as usize);
        let lines = &axes[place + 1..];
        let count = lines.iter().map(|axis| axis.size).product::<usize>();
        let of_block = &self.axes[place + 1..self.rank];
        // Many repeats are cut, so that they also run in parallel.
        let piece = (4 * CHUNK / size_of::<T>()).div_ceil(block).min(repeated.size);
        let pieces = repeated.size.div_ceil(piece);
        let outer: usize = axes[..place].iter().map(|axis| axis.size).product();
        let table = if has_short_lines::<T>(of_block) { block_table(of_block, outer * pieces) } else { None };
        parallel_for(outer * pieces, CHUNK.div_ceil(piece * block * size_of::<T>()), work, |range| {
            let mut cursor = Cursor::new(&axes[..place], range.start / pieces);
            for index in range {
                let first = index % pieces * piece;
                let repeats = piece.min(repeated.size - first);
                let output = cursor.output + (first * block) as isize;
                // SAFETY: the geometry was checked to stay inside both slices, and its outputs to be distinct; the block and its
                // repeats lie behind one another.
                unsafe {
                    if let Some(table) = &table {
                        let (from, to) = (pointers.from.offset(cursor.input), pointers.to.offset(output));
                        table.copy(0..table.count(), &Pointers { from, to });
                    } else {
                        let mut line = Cursor::new(lines, 0);
                        let rows = lines.last().copied().unwrap_or_default();
                        let height = rows.size.max(1);
                        for _ in 0..count / height {
                            pointers.lines(cursor.input + line.input, output + line.output, rows, inner, height);
                            line.skip(height);
                        }
                    }
                    let (to, total) = (pointers.to.offset(output), repeats * block);
                    let mut done = block;
                    while done < total {
                        let bytes = done.min(total - done) * size_of::<T>();
                        std::ptr::copy_nonoverlapping(to.cast::<u8>(), to.add(done).cast::<u8>(), bytes);
                        done *= 2;
                    }
                }
                if first + repeats == repeated.size {
                    cursor.skip(1);
                }
            }
        });
    }

    /// Where the elements of a block of the output lie in the input, if planes of the innermost axis and `across` are so small, or fill
    /// so little of their tiles, that finding each of them takes longer than their elements do.
    fn table<T>(&self, across: usize) -> Option<BlockTable> {
        let axes = &self.axes[..self.rank];
        let sides = [axes[across].size, axes[self.rank - 1].size];
        let are_small = match sides.iter().any(|side| *side <= NARROW) {
            true => sides.iter().all(|side| *side <= TILE),
            false => {
                let tiled = picoseconds_of_tiles::<T>(sides);
                let by_table = sides.iter().fold(PICOSECONDS_BY_TABLE, |time, side| time.saturating_mul(*side));
                let inner = axes[self.rank - 1];
                by_table < tiled && lines_of_a_set::<T>(inner.input, inner.size) <= MOST_OF_A_SET
            }
        };
        if !are_small {
            return None;
        }
        let is_near =
            self.count().saturating_mul(size_of::<T>()) <= NEAR_BYTES || bytes_read_soon::<T>(axes) >= FEWEST_BYTES;
        let table = block_table(axes, 1)?;
        (is_near || across >= table.rank).then_some(table)
    }

    /// Moves square tiles of the plane of the innermost axis and `across`, along which the input is contiguous.
    fn tiles<T: Copy>(&self, across: usize, work: u64, pointers: &Pointers<T>) {
        let inner = self.axes[self.rank - 1];
        let across_axis = self.axes[across];
        let mut others = [Axis::default(); MOST_AXES];
        let mut count = 0;
        for (index, axis) in self.axes[..self.rank - 1].iter().enumerate() {
            if index != across {
                others[count] = *axis;
                count += 1;
            }
        }
        let others = &mut others[..count];
        // Planes with a narrow side, such as images of three channels, go by long strips of the other one.
        let is_narrow = across_axis.size <= NARROW || inner.size <= NARROW;
        if is_narrow && let Some(place) = neighbour::<T>(others, across_axis, inner) {
            others[place..].rotate_left(1);
            return turns(others, [across_axis, inner], work, pointers);
        }
        let outer: usize = others.iter().map(|axis| axis.size).product();
        let side = if is_narrow { STRIP } else { TILE };
        let bands = across_axis.size.div_ceil(side);
        let grain = CHUNK.div_ceil(side.min(across_axis.size) * inner.size * size_of::<T>());
        parallel_for(outer * bands, grain, work, |range| {
            for index in range {
                let cursor = Cursor::new(others, index / bands);
                let first = index % bands * side;
                let high = side.min(across_axis.size - first);
                let input = cursor.input + first as isize;
                let output = cursor.output + first as isize * across_axis.output;
                for start in (0..inner.size).step_by(side) {
                    let wide = side.min(inner.size - start);
                    let input = input + start as isize * inner.input;
                    let output = output + start as isize;
                    // SAFETY: the geometry was checked to stay inside both slices, and its outputs to be distinct.
                    unsafe { pointers.tile([high, wide], input, inner.input, output, across_axis.output) };
                }
            }
        });
    }

    fn check_disjoint(&self) -> Result<(), KernelError> {
        let mut axes = self.axes;
        let axes = &mut axes[..self.rank];
        axes.sort_by_key(|axis| axis.output.unsigned_abs());
        let mut end = 1usize;
        for axis in axes.iter().filter(|axis| axis.size > 1) {
            if axis.output.unsigned_abs() < end {
                return Err(KernelError::invalid("axes", "two elements go to one place"));
            }
            end = axis.output.unsigned_abs().saturating_mul(axis.size - 1).saturating_add(end);
        }
        Ok(())
    }
}

/// Where the elements of a block lie that is in one piece in the output.
struct BlockTable {
    /// The axes in front of the block, and how many there are; the last of them counts the blocks that its axis is cut into.
    outer: [Axis; MOST_AXES],
    rank: usize,
    len: usize,
    /// The elements of the last block of those that an axis is cut into.
    last: usize,
    /// How far behind the first element each lies in the input.
    places: [i32; MOST_TABLED],
}

/// Whether finding lines takes longer than moving their elements.
fn has_short_lines<T>(axes: &[Axis]) -> bool {
    let [.., rows, line] = axes else { return false };
    // What `Pointers::lines` moves in vectors.
    let is_equal = line.input == 1 && (line.size * size_of::<T>()).is_power_of_two();
    let is_repeated = line.input == 0 && rows.input == 1 && line.size <= 4;
    match is_equal || is_repeated {
        true => line.size <= SHORT_LINE && rows.size <= FEWEST_ROWS,
        false => line.size <= SHORTEST_LINE || line.size <= SHORT_LINE && rows.size <= FEW_ROWS,
    }
}

/// Where the elements of a block of the output lie in the input, which has all of the last axes and perhaps a part of the one in front
/// of them; none if it is too small or there are too few of them, so many times.
fn block_table(axes: &[Axis], times: usize) -> Option<BlockTable> {
    let (mut first, mut len) = (axes.len(), 1);
    while first > 0 && axes[first - 1].output == len as isize && len * axes[first - 1].size <= MOST_TABLED {
        first -= 1;
        len *= axes[first].size;
    }
    let (mut outer, mut block) = ([Axis::default(); MOST_AXES], [Axis::default(); MOST_AXES]);
    outer[..first].copy_from_slice(&axes[..first]);
    let mut last = len;
    let mut count = axes.len() - first;
    if first > 0 && axes[first - 1].output == len as isize && 2 * len <= MOST_TABLED {
        let Axis { size, input, output } = axes[first - 1];
        let piece = size.div_ceil(size.div_ceil(MOST_TABLED / len));
        let pieces = size.div_ceil(piece);
        let [input_step, output_step] = [input, output].map(|step| step.saturating_mul(piece as isize));
        outer[first - 1] = Axis { size: pieces, input: input_step, output: output_step };
        last = len * (size - (pieces - 1) * piece);
        block[0] = Axis { size: piece, input, output };
        block[1..=count].copy_from_slice(&axes[first..]);
        (len, count) = (len * piece, count + 1);
    } else {
        block[..count].copy_from_slice(&axes[first..]);
    }
    let (outer, block) = (outer, &block[..count]);
    let reach = block.iter().map(|axis| axis.input.unsigned_abs().saturating_mul(axis.size)).max();
    let fits = reach.is_some_and(|reach| reach < i32::MAX as usize / MOST_AXES);
    let blocks = outer[..first].iter().fold(times, |blocks, axis| blocks.saturating_mul(axis.size));
    if !fits || len < FEWEST_TABLED || blocks < FEWEST_BLOCKS {
        return None;
    }
    let mut places = [0; MOST_TABLED];
    let mut cursor = Cursor::new(block, 0);
    for place in &mut places[..len] {
        *place = cursor.input as i32;
        cursor.skip(1);
    }
    Some(BlockTable { outer, rank: first, len, last, places })
}

impl BlockTable {
    /// The blocks.
    fn count(&self) -> usize {
        self.outer[..self.rank].iter().map(|axis| axis.size).product()
    }

    /// Moves some of the blocks.
    ///
    /// # Safety
    /// They lie inside both slices, which do not overlap.
    #[inline(always)]
    unsafe fn copy<T: Copy>(&self, blocks: Range<usize>, pointers: &Pointers<T>) {
        let mut cursor = Cursor::new(&self.outer[..self.rank], blocks.start);
        for _ in blocks {
            let len = if cursor.is_last() { self.last } else { self.len };
            // SAFETY: the caller's promise; a block lies in one piece in the output.
            unsafe {
                let (from, to) = (pointers.from.offset(cursor.input), pointers.to.offset(cursor.output));
                for (index, place) in self.places[..len].iter().enumerate() {
                    to.add(index).write_unaligned(from.offset(*place as isize).read_unaligned());
                }
            }
            cursor.skip(1);
        }
    }
}

/// Where the copy reads and writes.
struct Pointers<T> {
    from: *const T,
    to: *mut T,
}

// SAFETY: chunks write disjoint places and only read the input.
unsafe impl<T> Sync for Pointers<T> {}

/// Lines whose values come to lie side by side.
struct Together<'a, T, const LINES: usize> {
    from: [&'a [T]; LINES],
    to: &'a mut [[T; LINES]],
}

/// Values that lie side by side, each of which goes to a line of its own.
struct Apart<'a, T, const LINES: usize> {
    from: &'a [[T; LINES]],
    to: [&'a mut [T]; LINES],
}

/// Both ways for a number of lines: loops that the compiler turns into vectors.
macro_rules! side_by_side {
    ($lines:literal: $first:ident $($line:ident)*) => {
        impl<T: Copy> Kernel for Together<'_, T, $lines> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, _: S) {
                let [$first, $($line),*] = self.from;
                let values = self.to.iter_mut().zip($first)$(.zip($line))*;
                for side_by_side!(@nested (to, $first) $($line)*) in values {
                    *to = [*$first, $(*$line),*];
                }
            }
        }

        impl<T: Copy> Kernel for Apart<'_, T, $lines> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, _: S) {
                let [$first, $($line),*] = self.to;
                let values = self.from.iter().zip($first)$(.zip($line))*;
                for side_by_side!(@nested (from, $first) $($line)*) in values {
                    [*$first, $(*$line),*] = *from;
                }
            }
        }
    };
    (@nested ($($inner:tt)*) $line:ident $($rest:ident)*) => { side_by_side!(@nested (($($inner)*), $line) $($rest)*) };
    (@nested ($($inner:tt)*)) => { ($($inner)*) };
}
side_by_side!(2: first second);
side_by_side!(3: first second third);
side_by_side!(4: first second third fourth);

impl<T: Copy> Pointers<T> {
    /// Moves a tile of `high` rows and `wide` columns, at most [`TILE`] each or one of them at most [`NARROW`]: rows are
    /// contiguous in the output and columns in the input. Parts of [`SIDE`] by [`SIDE`] elements visit as few lines of memory as
    /// one set of the first cache keeps.
    ///
    /// # Safety
    /// The tile lies inside both slices, which do not overlap.
    #[inline(always)]
    unsafe fn tile(
        &self,
        [high, wide]: [usize; 2],
        input: isize,
        input_step: isize,
        output: isize,
        output_step: isize,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (self.from.offset(input), self.to.offset(output));
            if high == TILE && wide == TILE && size_of::<T>() == 4 && input_step > 0 && output_step > 0 {
                let isa = crate::isa::detect();
                for (row, column) in [(0, 0), (0, SIDE), (SIDE, 0), (SIDE, SIDE)] {
                    let from = from.offset(column as isize * input_step).add(row).cast::<f32>();
                    let to = to.offset(row as isize * output_step).add(column).cast::<f32>();
                    transpose(isa, from, input_step as usize, to, output_step as usize);
                }
                return;
            }
            if high == TILE && wide == TILE && size_of::<T>() == 1 {
                let rows = std::array::from_fn(|column| {
                    from.offset(column as isize * input_step).cast::<[u8; BYTE_SIDE]>().read_unaligned()
                });
                for (row, line) in columns(&rows).into_iter().enumerate() {
                    to.offset(row as isize * output_step).cast::<[u8; BYTE_SIDE]>().write_unaligned(line);
                }
                return;
            }
            if high == TILE && wide == TILE && size_of::<T>() == 2 {
                for (row, column) in [(0, 0), (0, SIDE), (SIDE, 0), (SIDE, SIDE)] {
                    let rows = std::array::from_fn(|index| {
                        let from = from.offset((column + index) as isize * input_step).add(row);
                        from.cast::<[u16; SIDE]>().read_unaligned()
                    });
                    for (index, line) in columns_of_pairs(&rows).into_iter().enumerate() {
                        let to = to.offset((row + index) as isize * output_step).add(column);
                        to.cast::<[u16; SIDE]>().write_unaligned(line);
                    }
                }
                return;
            }
            // Elements of eight and sixteen bytes are rare, and every width is code of its own for each tier.
            let are_vectors = size_of::<T>() <= 4 && from.is_aligned() && to.is_aligned();
            macro_rules! together {
                ($lines:literal) => {{
                    let line = |column: isize| std::slice::from_raw_parts(from.offset(column * input_step), high);
                    let from: [&[T]; $lines] = std::array::from_fn(|column| line(column as isize));
                    let to = std::slice::from_raw_parts_mut(to.cast::<[T; $lines]>(), high);
                    return dispatch(crate::isa::detect(), Together { from, to });
                }};
            }
            macro_rules! apart {
                ($lines:literal) => {{
                    let line = |row: isize| std::slice::from_raw_parts_mut(to.offset(row * output_step), wide);
                    let to: [&mut [T]; $lines] = std::array::from_fn(|row| line(row as isize));
                    let from = std::slice::from_raw_parts(from.cast::<[T; $lines]>(), wide);
                    return dispatch(crate::isa::detect(), Apart { from, to });
                }};
            }
            if are_vectors && output_step == wide as isize {
                match wide {
                    2 => together!(2),
                    3 => together!(3),
                    4 => together!(4),
                    _ => {}
                }
            }
            if are_vectors && input_step == high as isize && output_step >= wide as isize {
                match high {
                    2 => apart!(2),
                    3 => apart!(3),
                    4 => apart!(4),
                    _ => {}
                }
            }
            if wide <= NARROW && wide < high {
                for column in 0..wide {
                    let (line, target) = (from.offset(column as isize * input_step), to.add(column));
                    for row in 0..high {
                        target.offset(row as isize * output_step).write_unaligned(line.add(row).read_unaligned());
                    }
                }
                return;
            }
            if high <= NARROW || wide <= NARROW {
                for row in 0..high {
                    let (line, target) = (from.add(row), to.offset(row as isize * output_step));
                    for column in 0..wide {
                        target.add(column).write_unaligned(line.offset(column as isize * input_step).read_unaligned());
                    }
                }
                return;
            }
            let is_small = size_of::<T>() <= size_of::<u32>() && input_step > 0 && output_step > 0;
            for (row, column) in [(0, 0), (0, SIDE), (SIDE, 0), (SIDE, SIDE)] {
                let (high, wide) = (high.saturating_sub(row).min(SIDE), wide.saturating_sub(column).min(SIDE));
                if high == 0 || wide == 0 {
                    continue;
                }
                let from = from.offset(column as isize * input_step).add(row);
                let to = to.offset(row as isize * output_step).add(column);
                if is_small {
                    small_tile(from, to, [high, wide], [input_step as usize, output_step as usize]);
                } else if size_of::<T>() == 8 && high == SIDE && wide == SIDE {
                    let columns: [[u64; SIDE]; SIDE] = std::array::from_fn(|column| {
                        from.offset(column as isize * input_step).cast::<[u64; SIDE]>().read_unaligned()
                    });
                    for row in 0..SIDE {
                        let line: [u64; SIDE] = std::array::from_fn(|column| columns[column][row]);
                        to.offset(row as isize * output_step).cast::<[u64; SIDE]>().write_unaligned(line);
                    }
                } else {
                    for column in 0..wide {
                        let line = from.offset(column as isize * input_step);
                        for row in 0..high {
                            let to = to.offset(row as isize * output_step).add(column);
                            to.write_unaligned(line.add(row).read_unaligned());
                        }
                    }
                }
            }
        }
    }

    /// Moves `count` lines, whose beginnings lie as far apart as `rows` says.
    ///
    /// # Safety
    /// The lines lie inside both slices, which do not overlap.
    unsafe fn lines(&self, input: isize, output: isize, rows: Axis, inner: Axis, count: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (self.from.offset(input), self.to.offset(output));
            if (inner.input, inner.output) == (1, 1) {
                match inner.size * size_of::<T>() {
                    4 => return copy_equal::<T, 4>(from, to, rows, count),
                    8 => return copy_equal::<T, 8>(from, to, rows, count),
                    12 => return copy_equal::<T, 12>(from, to, rows, count),
                    16 => return copy_equal::<T, 16>(from, to, rows, count),
                    32 => return copy_equal::<T, 32>(from, to, rows, count),
                    64 => return copy_equal::<T, 64>(from, to, rows, count),
                    128 => return copy_equal::<T, 128>(from, to, rows, count),
                    _ => {}
                }
            }
            let are_vectors = size_of::<T>() <= 4 && from.is_aligned() && to.is_aligned();
            // Each of neighbouring values comes to lie side by side with itself.
            if are_vectors
                && (inner.input, inner.output) == (0, 1)
                && (rows.input, rows.output) == (1, inner.size as isize)
            {
                macro_rules! together {
                    ($lines:literal) => {{
                        let from = [std::slice::from_raw_parts(from, count); $lines];
                        let to = std::slice::from_raw_parts_mut(to.cast::<[T; $lines]>(), count);
                        return dispatch(crate::isa::detect(), Together { from, to });
                    }};
                }
                match inner.size {
                    2 => together!(2),
                    3 => together!(3),
                    4 => together!(4),
                    _ => {}
                }
            }
            for row in 0..count as isize {
                self.line(input + row * rows.input, output + row * rows.output, inner, inner.size);
            }
        }
    }

    /// Moves a line.
    ///
    /// # Safety
    /// The line lies inside both slices, which do not overlap.
    unsafe fn line(&self, input: isize, output: isize, axis: Axis, count: usize) {
        // SAFETY: the caller's promise.
        unsafe {
            let (from, to) = (self.from.offset(input), self.to.offset(output));
            match (axis.input, axis.output) {
                (1, 1) => copy_bytes(from.cast(), to.cast(), count * size_of::<T>()),
                (0, 1) => {
                    let value = from.read_unaligned();
                    for index in 0..count {
                        to.add(index).write_unaligned(value);
                    }
                }
                _ => {
                    for index in 0..count as isize {
                        to.offset(index * axis.output)
                            .write_unaligned(from.offset(index * axis.input).read_unaligned());
                    }
                }
            }
        }
    }
}

/// The bytes of a line of the cache that are read before what is read between them has filled the second cache.
fn bytes_read_soon<T>(axes: &[Axis]) -> usize {
    let (mut between, mut bytes) = (1usize, size_of::<T>());
    for axis in axes.iter().rev() {
        if between.saturating_mul(LINE_BYTES) > NEAR_BYTES {
            break;
        }
        let step = axis.input.unsigned_abs().saturating_mul(size_of::<T>());
        if (1..LINE_BYTES).contains(&step) {
            bytes = bytes.saturating_mul(axis.size.min(LINE_BYTES / step));
        }
        between = between.saturating_mul(axis.size);
    }
    bytes.min(LINE_BYTES)
}

/// Where among the other axes the one lies that goes on in the cache lines of a plane's elements, if a side of the plane is so narrow
/// that its lines, of the input or of the output, have room for it, and so many lie in each set of the first cache that they would
/// be fetched again for each of its elements.
fn neighbour<T>(others: &[Axis], across: Axis, inner: Axis) -> Option<usize> {
    let is_short = |step: isize| (1..LINE_BYTES).contains(&step.unsigned_abs().saturating_mul(size_of::<T>()));
    if inner.size <= NARROW && lines_of_a_set::<T>(across.output, across.size) > WAYS {
        others.iter().rposition(|axis| is_short(axis.output))
    } else if across.size <= NARROW && lines_of_a_set::<T>(inner.input, inner.size) > WAYS {
        others.iter().rposition(|axis| is_short(axis.input))
    } else {
        None
    }
}

/// Moves planes with a narrow side a few elements of the other side at a time: the first ones of each plane along the last of the
/// other axes, then the second ones and so on.
fn turns<T: Copy>(others: &[Axis], [across, inner]: [Axis; 2], work: u64, pointers: &Pointers<T>) {
    let [outer @ .., neighbour] = others else { return };
    let count: usize = outer.iter().map(|axis| axis.size).product();
    let plane = across.size * inner.size;
    let piece = (NEAR_BYTES / (plane * size_of::<T>())).clamp(1, neighbour.size);
    let pieces = neighbour.size.div_ceil(piece);
    parallel_for(count * pieces, CHUNK.div_ceil(piece * plane * size_of::<T>()), work, |range| {
        for index in range {
            let cursor = Cursor::new(outer, index / pieces);
            let first = index % pieces * piece;
            let rows = (0..across.size).step_by(SIDE);
            for (row, column) in rows.flat_map(|row| (0..inner.size).step_by(SIDE).map(move |column| (row, column))) {
                let high = SIDE.min(across.size - row);
                let wide = SIDE.min(inner.size - column);
                let input = cursor.input + row as isize + column as isize * inner.input;
                let output = cursor.output + row as isize * across.output + column as isize;
                for index in first..neighbour.size.min(first + piece) {
                    let input = input + index as isize * neighbour.input;
                    let output = output + index as isize * neighbour.output;
                    // SAFETY: the geometry was checked to stay inside both slices, and its outputs to be distinct.
                    unsafe { pointers.tile([high, wide], input, inner.input, output, across.output) };
                }
            }
        }
    });
}

/// How many lines of one set of the first cache elements lie in at most, so many a step apart.
fn lines_of_a_set<T>(step: isize, count: usize) -> usize {
    let bytes = step.unsigned_abs().saturating_mul(size_of::<T>());
    // An odd number of lines apart, they lie in all sets; an even one, in fewer by its powers of two.
    let shared = (bytes / LINE_BYTES).trailing_zeros().min(SETS.trailing_zeros());
    if bytes.is_multiple_of(LINE_BYTES) { count.div_ceil(SETS >> shared) } else { count.div_ceil(SETS) }
}

/// Picoseconds that a plane takes whose sides are longer than [`NARROW`] if it goes tile by tile: whole tiles are moved in vectors,
/// and the small ones beside them take the same time whatever they hold.
fn picoseconds_of_tiles<T>(sides: [usize; 2]) -> usize {
    let area = |side: usize| sides.iter().fold(1usize, |count, size| count.saturating_mul(size.div_ceil(side)));
    let whole = sides.iter().fold(1usize, |count, size| count.saturating_mul(size / TILE));
    let (of_element, of_tile) = match size_of::<T>() {
        4 => (150, 30_000),
        1 | 2 => (100, 50_000),
        _ => return usize::MAX,
    };
    let small = area(SIDE).saturating_sub(whole.saturating_mul((TILE / SIDE).pow(2)));
    whole.saturating_mul(TILE * TILE * of_element).saturating_add(small.saturating_mul(of_tile))
}

/// Moves a tile of `high` rows and `wide` columns, at most [`SIDE`] each, of values of up to four bytes: rows are contiguous
/// in the output and columns in the input.
///
/// # Safety
/// The tile lies at both places, `steps` from column to column of the input and from row to row of the output, which are not
/// smaller than the columns and rows are long.
#[inline(always)]
unsafe fn small_tile<T: Copy>(from: *const T, to: *mut T, [high, wide]: [usize; 2], steps: [usize; 2]) {
    let [step, to_step] = steps;
    let (mut columns, mut rows) = ([0f32; SIDE * SIDE], [0f32; SIDE * SIDE]);
    // SAFETY: what is read of a column beyond its end lies in the column behind it, and what is written of a row beyond its
    // end lies in the row behind it, if that is as far away as it is long, and is overwritten by it; the rest is exact.
    unsafe {
        let last = (wide - 1) * step + high;
        for (column, line) in columns.as_chunks_mut::<SIDE>().0.iter_mut().enumerate().take(wide) {
            let from = from.add(column * step);
            if column * step + SIDE <= last {
                *line = widened(from.cast::<[T; SIDE]>().read_unaligned());
            } else {
                let mut values = [from.read_unaligned(); SIDE];
                copy_few(from, values.as_mut_ptr(), high);
                *line = widened(values);
            }
        }
        transpose(crate::isa::detect(), columns.as_ptr(), SIDE, rows.as_mut_ptr(), SIDE);
        let last = (high - 1) * to_step + wide;
        for (row, line) in rows.as_chunks::<SIDE>().0.iter().enumerate().take(high) {
            let (to, values) = (to.add(row * to_step), narrowed::<T>(line));
            if wide == SIDE || to_step == wide && row * to_step + SIDE <= last {
                to.cast::<[T; SIDE]>().write_unaligned(values);
            } else {
                copy_few(values.as_ptr(), to, wide);
            }
        }
    }
}

/// The bits of values of up to four bytes as those of f32.
#[inline(always)]
fn widened<T: Copy>(values: [T; SIDE]) -> [f32; SIDE] {
    let pointer = values.as_ptr();
    // SAFETY: the array has as many values of this size.
    unsafe {
        match size_of::<T>() {
            4 => pointer.cast::<[f32; SIDE]>().read_unaligned(),
            2 => pointer.cast::<[u16; SIDE]>().read_unaligned().map(|bits| f32::from_bits(u32::from(bits))),
            _ => pointer.cast::<[u8; SIDE]>().read_unaligned().map(|bits| f32::from_bits(u32::from(bits))),
        }
    }
}

/// The values whose bits these are, as [`widened`] made them.
#[inline(always)]
fn narrowed<T: Copy>(values: &[f32; SIDE]) -> [T; SIDE] {
    // SAFETY: the arrays that are read have as many values of this size.
    unsafe {
        match size_of::<T>() {
            4 => values.as_ptr().cast::<[T; SIDE]>().read_unaligned(),
            2 => {
                let halves = values.map(|value| value.to_bits() as u16);
                halves.as_ptr().cast::<[T; SIDE]>().read_unaligned()
            }
            _ => {
                let bytes = values.map(|value| value.to_bits() as u8);
                bytes.as_ptr().cast::<[T; SIDE]>().read_unaligned()
            }
        }
    }
}

/// Copies up to eight values without a call.
///
/// # Safety
/// So many values lie at both places, which do not overlap.
#[inline(always)]
unsafe fn copy_few<T: Copy>(from: *const T, to: *mut T, count: usize) {
    // SAFETY: the caller's promise; of the values of two groups, those in the middle may be the same.
    unsafe {
        match count {
            4.. => {
                let (first, last) = (from.cast::<[T; 4]>().read_unaligned(), from.add(count - 4).cast::<[T; 4]>());
                let last = last.read_unaligned();
                to.cast::<[T; 4]>().write_unaligned(first);
                to.add(count - 4).cast::<[T; 4]>().write_unaligned(last);
            }
            _ => {
                for index in 0..count {
                    to.add(index).write_unaligned(from.add(index).read_unaligned());
                }
            }
        }
    }
}

/// Copies `count` lines of so many bytes.
///
/// # Safety
/// The lines lie at both places, as far apart as `rows` says, and do not overlap.
unsafe fn copy_equal<T, const BYTES: usize>(from: *const T, to: *mut T, rows: Axis, count: usize) {
    for row in 0..count as isize {
        // SAFETY: the caller's promise.
        unsafe {
            let line = from.offset(row * rows.input).cast::<[u8; BYTES]>().read_unaligned();
            to.offset(row * rows.output).cast::<[u8; BYTES]>().write_unaligned(line);
        }
    }
}

/// Copies a line, without a call if it is short.
///
/// # Safety
/// So many bytes lie at both places, which do not overlap.
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            16..=SHORT => copy_short(from, to, bytes),
            8..16 => copy_ends::<u64>(from, to, bytes),
            4..8 => copy_ends::<u32>(from, to, bytes),
            2..4 => copy_ends::<u16>(from, to, bytes),
            _ => std::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}

/// Copies a slice into one of the same length, without a call if it is short.
///
/// # Panics
/// As [`slice::copy_from_slice`].
#[inline(always)]
fn copy_slice(from: &[u8], to: &mut [u8]) {
    if from.len() != to.len() || from.len() > SHORT {
        return to.copy_from_slice(from);
    }
    // SAFETY: both slices have so many bytes.
    unsafe { copy_bytes(from.as_ptr(), to.as_mut_ptr(), from.len()) };
}

/// Copies a few bytes without a call: as many of the first ones as of the last ones, some of them twice. Loops would become calls.
///
/// # Safety
/// There are 16 to [`SHORT`] bytes at both places, which do not overlap.
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, bytes: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        match bytes {
            0..=32 => copy_ends::<[u128; 1]>(from, to, bytes),
            33..=64 => copy_ends::<[u128; 2]>(from, to, bytes),
            _ => copy_ends::<[u128; 4]>(from, to, bytes),
        }
    }
}

/// Copies the bytes of one to two words without a call: the first ones and the last ones.
///
/// # Safety
/// So many bytes lie at both places, which do not overlap.
#[inline(always)]
unsafe fn copy_ends<W: Copy>(from: *const u8, to: *mut u8, bytes: usize) {
    let last = bytes - size_of::<W>();
    // SAFETY: the caller's promise.
    unsafe {
        let ends = [from.cast::<W>().read_unaligned(), from.add(last).cast::<W>().read_unaligned()];
        to.cast::<W>().write_unaligned(ends[0]);
        to.add(last).cast::<W>().write_unaligned(ends[1]);
    }
}

/// A position within axes.
pub(crate) struct Cursor<'a> {
    axes: &'a [Axis],
    at: [usize; MOST_AXES],
    pub(crate) input: isize,
    pub(crate) output: isize,
}

impl<'a> Cursor<'a> {
    /// At this position, counted with the last axis innermost.
    pub(crate) fn new(axes: &'a [Axis], index: usize) -> Self {
        let mut cursor = Self { axes, at: [0; MOST_AXES], input: 0, output: 0 };
        let mut rest = index;
        for (place, axis) in axes.iter().enumerate().rev() {
            cursor.at[place] = rest % axis.size;
            rest /= axis.size;
            cursor.input += cursor.at[place] as isize * axis.input;
            cursor.output += cursor.at[place] as isize * axis.output;
        }
        cursor
    }

    /// Whether this is the last position of the innermost axis.
    fn is_last(&self) -> bool {
        self.axes.last().is_some_and(|axis| self.at[self.axes.len() - 1] + 1 == axis.size)
    }

    /// Goes on by so many positions of the innermost axis, not beyond its end.
    pub(crate) fn skip(&mut self, mut count: usize) {
        for (place, axis) in self.axes.iter().enumerate().rev() {
            self.at[place] += count;
            self.input += count as isize * axis.input;
            self.output += count as isize * axis.output;
            if self.at[place] < axis.size {
                return;
            }
            count = 1;
            self.at[place] = 0;
            self.input -= axis.size as isize * axis.input;
            self.output -= axis.size as isize * axis.output;
        }
    }
}

/// Copies bytes, in parallel where that pays.
///
/// # Errors
/// The slices differ in length.
pub fn copy(input: &[u8], output: &mut [u8]) -> Result<(), KernelError> {
    check_exact("output", output.len(), input.len())?;
    crate::stream::copy(input, output);
    Ok(())
}

/// Writes one input of a concatenation: `input` is `[outer, input_axis]` blocks of `inner` bytes, which go to
/// `output` `[outer, output_axis]` from position `start` of the axis on.
///
/// # Errors
/// A slice does not fit, or the part lies outside the axis.
pub fn concat_part(
    outer: usize,
    inner: usize,
    input_axis: usize,
    output_axis: usize,
    start: usize,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[outer, input_axis, inner])?)?;
    check_exact("output", output.len(), product("output", &[outer, output_axis, inner])?)?;
    let [from, to] = [input_axis, output_axis].map(|axis| axis * inner);
    let start = start.saturating_mul(inner);
    if is_few(outer, input.len()) && from > 0 && start <= to && from <= to - start {
        for (row, place) in input.chunks_exact(from).zip(output.chunks_exact_mut(to)) {
            place[start..start + from].copy_from_slice(row);
        }
        return Ok(());
    }
    let unit = unit_of(inner);
    let [from, to] = [from, to].map(|bytes| (bytes / unit) as isize);
    let axes = [(outer, from, to), (from as usize, 1, 1)];
    let start = start / unit;
    StridedCopy::new(&axes, 0, start, input.len() / unit, output.len() / unit)?.run(unit, input, output)
}

/// Reads one output of a split: the positions from `start` on of the axis of `input` `[outer, input_axis]` blocks of
/// `inner` bytes go to `output` `[outer, output_axis]`.
///
/// # Errors
/// A slice does not fit, or the part lies outside the axis.
pub fn split_part(
    outer: usize,
    inner: usize,
    input_axis: usize,
    output_axis: usize,
    start: usize,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[outer, input_axis, inner])?)?;
    check_exact("output", output.len(), product("output", &[outer, output_axis, inner])?)?;
    let [from, to] = [input_axis, output_axis].map(|axis| axis * inner);
    let start = start.saturating_mul(inner);
    if is_few(outer, output.len()) && to > 0 && start <= from && to <= from - start {
        for (row, place) in input.chunks_exact(from).zip(output.chunks_exact_mut(to)) {
            place.copy_from_slice(&row[start..start + to]);
        }
        return Ok(());
    }
    let unit = unit_of(inner);
    let [from, to] = [from, to].map(|bytes| (bytes / unit) as isize);
    let axes = [(outer, from, to), (to as usize, 1, 1)];
    let start = start / unit;
    StridedCopy::new(&axes, start, 0, input.len() / unit, output.len() / unit)?.run(unit, input, output)
}

/// Whether so many rows of so many bytes together are moved one by one: for a row of a few elements, finding out how it would be
/// moved best takes longer. The borders are not measured.
fn is_few(rows: usize, bytes: usize) -> bool {
    rows <= 8 && bytes <= CHUNK
}

/// The widest element, in bytes, that blocks of so many bytes are made of.
fn unit_of(bytes: usize) -> usize {
    [8, 4, 2].into_iter().find(|unit| bytes.is_multiple_of(*unit)).unwrap_or(1)
}

/// Indices that are checked together.
const CHECKED: usize = 256;

/// An index into an axis.
pub trait Index: Copy + Sync {
    /// The position that the index names in an axis of `size`, negative indices counting from its end; `None` outside.
    fn position(self, size: usize) -> Option<usize>;
    /// Whether it names no position in an axis of `size`.
    fn is_outside(self, size: usize) -> bool;
}

macro_rules! indices {
    ($($type:ty)*) => {
        $(impl Index for $type {
            #[inline]
            #[allow(unused_comparisons)]
            fn position(self, size: usize) -> Option<usize> {
                let position = if self < 0 { (size as i64).checked_add(self as i64)? } else { self as i64 };
                usize::try_from(position).ok().filter(|&position| position < size)
            }
            #[inline]
            fn is_outside(self, size: usize) -> bool {
                let (index, size) = (self as i64, i64::try_from(size).unwrap_or(i64::MAX));
                (index >= size) | (index < -size)
            }
        })*
    };
}

indices!(i32 i64 u8);

/// The place of the first index that lies outside of an axis of `size`.
pub fn first_outside<I: Index>(indices: &[I], size: usize) -> Option<usize> {
    // Almost always all lie inside, which is found out without a branch for each.
    let is_any = |indices: &[I]| indices.iter().fold(false, |any, index| any | index.is_outside(size));
    let (piece, indices) = indices.chunks(CHECKED).enumerate().find(|(_, indices)| is_any(indices))?;
    Some(piece * CHECKED + indices.iter().position(|index| index.is_outside(size))?)
}

/// Gathers blocks of `inner` bytes: `output[b, o, i] = data[b, o, indices[b, i]]` with `data`
/// `[batch, outer, axis]`, `indices` `[batch, count]` and `output` `[batch, outer, count]`. Negative indices count from
/// the end.
///
/// # Errors
/// A slice does not fit, or an index lies outside the axis; nothing is written then.
pub fn gather<I: Index>(
    [batch, outer, axis, count]: [usize; 4],
    inner: usize,
    data: &[u8],
    indices: &[I],
    output: &mut [u8],
) -> Result<(), KernelError> {
    check_exact("data", data.len(), product("data", &[batch, outer, axis, inner])?)?;
    check_exact("indices", indices.len(), product("indices", &[batch, count])?)?;
    check_exact("output", output.len(), product("output", &[batch, outer, count, inner])?)?;
    if let Some(bad) = first_outside(indices, axis) {
        return Err(KernelError {
            argument: "indices",
            reason: "an index lies outside the axis",
            required: axis,
            given: bad,
        });
    }
    if output.is_empty() {
        return Ok(());
    }
    let work = nanoseconds_for_bytes(output.len().saturating_mul(2)).saturating_add(indices.len() as u64);
    match inner {
        1 => return gather_elements([outer, axis, count], data.as_chunks::<1>().0, indices, output, work),
        2 => return gather_elements([outer, axis, count], data.as_chunks::<2>().0, indices, output, work),
        4 => return gather_elements([outer, axis, count], data.as_chunks::<4>().0, indices, output, work),
        8 => return gather_elements([outer, axis, count], data.as_chunks::<8>().0, indices, output, work),
        _ => {}
    }
    let shared = SharedMut::new(output);
    parallel_for(batch * outer * count, CHUNK.div_ceil(inner), work, |range| {
        for place in range {
            let (block, index) = (place / count, place % count);
            // Every index was checked; the fallback is never taken.
            let position = indices[block / outer * count + index].position(axis).unwrap_or(0);
            let from = &data[(block * axis + position) * inner..][..inner];
            // SAFETY: places are disjoint.
            let to = unsafe { shared.slice(place * inner..(place + 1) * inner) };
            to.copy_from_slice(from);
        }
    });
    Ok(())
}

/// [`gather`] of blocks that are one element. The indices were checked.
fn gather_elements<I: Index, const WIDTH: usize>(
    [outer, axis, count]: [usize; 3],
    data: &[[u8; WIDTH]],
    indices: &[I],
    output: &mut [u8],
    work: u64,
) -> Result<(), KernelError> {
    // Whole rows of indices where they are short, such as the three channels of an image, else pieces of a row.
    let rows = CHUNK.div_ceil(count * WIDTH);
    let piece = if rows > 1 { rows * count } else { CHUNK / WIDTH };
    // Indices that serve many blocks are resolved once.
    let mut resolved = [0u32; MOST_RESOLVED];
    let is_resolved = indices.len() == count && count <= MOST_RESOLVED && u32::try_from(axis).is_ok();
    if is_resolved {
        for (target, index) in resolved.iter_mut().zip(indices) {
            *target = index.position(axis).unwrap_or(0) as u32;
        }
    }
    crate::parallel::parallel_chunks_mut(output, piece * WIDTH, work, |chunk, output| {
        let (mut block, mut place) = (chunk * piece / count, chunk * piece % count);
        let mut rest = output.as_chunks_mut::<WIDTH>().0;
        if let (true, 3, 3) = (is_resolved, count, axis) {
            let [red, green, blue] = [resolved[0], resolved[1], resolved[2]].map(|place| place as usize % 3);
            let rows = data[block * axis..].as_chunks::<3>().0;
            for (line, row) in rest.as_chunks_mut::<3>().0.iter_mut().zip(rows) {
                *line = [row[red], row[green], row[blue]];
            }
            return;
        }
        if is_resolved && place == 0 {
            let rows = &data[block * axis..];
            if WIDTH == 4 && axis <= TABLE && count >= FEWEST_LOOKED_UP {
                let (rows, output) = (rows.as_flattened().as_chunks().0, rest.as_flattened_mut().as_chunks_mut().0);
                return dispatch(crate::isa::detect(), LookUp { rows, axis, positions: &resolved, count, output });
            }
            for (line, row) in rest.chunks_exact_mut(count).zip(rows.chunks_exact(axis)) {
                if let [value] = row {
                    line.fill(*value);
                    continue;
                }
                for (target, position) in line.iter_mut().zip(&resolved) {
                    *target = row[*position as usize];
                }
            }
            return;
        }
        while !rest.is_empty() {
            let (line, after) = rest.split_at_mut((count - place).min(rest.len()));
            let row = &data[block * axis..][..axis];
            let indices = &indices[block / outer * count + place..][..line.len()];
            for (target, index) in line.iter_mut().zip(indices) {
                *target = row[index.position(axis).unwrap_or(0)];
            }
            (block, place, rest) = (block + 1, 0, after);
        }
    });
    Ok(())
}

/// Gathers elements of four bytes from rows that are no longer than the table of [`Simd::lookup`].
struct LookUp<'a> {
    /// Rows of `axis` elements, from each of which `count` are picked.
    rows: &'a [[u8; 4]],
    axis: usize,
    /// Where in a row they are, and anything behind them.
    positions: &'a [u32; MOST_RESOLVED],
    count: usize,
    output: &'a mut [[u8; 4]],
}

impl Kernel for LookUp<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        const { assert!(MOST_RESOLVED.is_multiple_of(MOST_LANES)) };
        let Self { rows, axis, positions, count, output } = self;
        let mut table = [0.0f32; TABLE];
        for (line, row) in output.chunks_exact_mut(count).zip(rows.chunks_exact(axis)) {
            // Vectors move bits, whatever they stand for.
            let (row, line) = (row.as_ptr().cast::<f32>(), line.as_mut_ptr().cast::<f32>());
            for first in (0..axis).step_by(S::LANES) {
                // SAFETY: the row has so many elements, and the table has whole vectors for them.
                unsafe { s.store(table[first..].as_mut_ptr(), s.load_first(row.add(first), axis - first)) };
            }
            for first in (0..count).step_by(S::LANES) {
                // SAFETY: there are whole vectors of positions, and the line has so many elements.
                unsafe {
                    let place = s.bits(s.load(positions[first..].as_ptr().cast()));
                    s.store_first(line.add(first), s.lookup(&table, place), count - first);
                }
            }
        }
    }
}

fn check_inside(
    argument: &'static str,
    axes: impl Iterator<Item = (usize, isize)>,
    offset: usize,
    len: usize,
) -> Result<(), KernelError> {
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (size, stride) in axes {
        let reach = (size as i128 - 1).saturating_mul(stride as i128);
        if reach < 0 {
            low = low.saturating_add(reach);
        } else {
            high = high.saturating_add(reach);
        }
    }
    if low < 0 || high >= len as i128 {
        return Err(KernelError::invalid(argument, "an element lies outside the slice"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use pretty_assertions::assert_eq;
    use proptest::prelude::*;

    #[test]
    fn single_elements_gather_as_blocks_do() {
        for (width, axis, count, outer) in
            [(1, 3, 3, 5000), (2, 4, 3, 40), (4, 7, 40, 3), (8, 3, 2, 700), (1, 9, 20_000, 2)]
        {
            let data = bytes(2 * outer * axis, width);
            for batch in [1, 2] {
                let indices: Vec<i64> = (0..batch * count).map(|i| (i * 5 % (2 * axis)) as i64 - axis as i64).collect();
                let outer = 2 * outer / batch;
                let expected: Vec<u8> = (0..batch * outer * count)
                    .flat_map(|place| {
                        let (block, index) = (place / count, indices[place / count / outer * count + place % count]);
                        let at = block * axis + index.rem_euclid(axis as i64) as usize;
                        data[at * width..(at + 1) * width].to_vec()
                    })
                    .collect();
                let mut output = vec![0; expected.len()];
                gather([batch, outer, axis, count], width, &data, &indices, &mut output).unwrap();
                assert!(output == expected, "{width} {axis} {count} {batch}");
            }
        }
    }

    /// Lines of any short length, and those around the limit.
    #[test]
    fn short_lines_are_copied_whole() {
        for run in (1..44).chain([63, 64, 65, 127, 128, 129]) {
            for width in [1, 4] {
                let shape = [3, 5, 4, run];
                let input = bytes(shape.iter().product(), width);
                let mut output = vec![0xee; input.len()];
                StridedCopy::transpose(&shape, &[1, 2, 0, 3]).unwrap().run(width, &input, &mut output).unwrap();
                let line = run * width;
                for (index, found) in output.chunks_exact(line).enumerate() {
                    let place = (index % 3 * 5 + index / 12) * 4 + index / 3 % 4;
                    assert_eq!(found, &input[place * line..][..line], "{run} {width}");
                }
            }
        }
    }

    /// Chunks begin and end within the innermost axis of rows, whatever the length of a line.
    #[test]
    fn short_lines_of_several_chunks_are_copied_whole() {
        for line in [4, 16, 32, 64, 100, 128] {
            let [outer, high, wide] = [3, 7, 200_000 / 21 / line];
            let input = bytes(outer * high * wide, line);
            let mut output = vec![0xee; input.len()];
            let copy = StridedCopy::transpose(&[outer, high, wide, line], &[2, 1, 0, 3]).unwrap();
            copy.run(1, &input, &mut output).unwrap();
            for (index, found) in output.chunks_exact(line).enumerate() {
                let place = (index % outer * high + index / outer % high) * wide + index / outer / high;
                assert_eq!(found, &input[place * line..][..line], "{line} {index}");
            }
        }
    }

    /// Channels that lie side by side go into planes, wherever the slices begin.
    #[test]
    fn few_channels_are_taken_apart() {
        for (batch, places, channels) in
            [(1, 1, 3), (2, 5, 3), (3, 97, 3), (1, 7001, 3), (1, 7001, 2), (2, 700, 4), (40, 16, 3)]
        {
            for (width, shift) in [(4, 0), (4, 1), (4, 2), (8, 4), (2, 0), (1, 0)] {
                let count = batch * places * channels;
                let mut input = vec![9; shift];
                input.extend(bytes(count, width));
                let mut output = vec![0xee; shift + count * width];
                let copy = StridedCopy::transpose(&[batch, places, channels], &[0, 2, 1]).unwrap();
                copy.run(width, &input[shift..], &mut output[shift..]).unwrap();
                for (index, found) in output[shift..].chunks_exact(width).enumerate() {
                    let (image, channel, place) =
                        (index / places / channels, index / places % channels, index % places);
                    let from = shift + ((image * places + place) * channels + channel) * width;
                    assert_eq!(found, &input[from..][..width], "{batch} {places} {channels} {width} {shift}");
                }
            }
        }
    }

    #[test]
    fn indices_outside_are_found() {
        let indices: Vec<i64> = (0..600).map(|index| index % 7 - 3).collect();
        assert_eq!(first_outside(&indices, 4), None);
        assert_eq!(first_outside(&indices, 3), Some(6));
        assert_eq!(first_outside(&indices[..300], 2), Some(0));
        for size in [1 << 63, usize::MAX] {
            assert_eq!(first_outside(&[i64::MIN + 1, i64::MAX - 1, 0], size), None);
        }
        assert_eq!(first_outside(&[0u8, 255], 255), Some(1));
        assert_eq!(first_outside::<i32>(&[], 0), None);
    }

    fn bytes(count: usize, width: usize) -> Vec<u8> {
        (0..count)
            .flat_map(|index| (0..width).map(move |byte| (index >> (8 * (byte % 3))) as u8 ^ byte as u8))
            .collect()
    }

    fn transposes(shape: &[usize], order: &[usize], width: usize) {
        let input = bytes(shape.iter().product(), width);
        let mut output = vec![0xee; input.len()];
        StridedCopy::transpose(shape, order).unwrap().run(width, &input, &mut output).unwrap();
        let out: Vec<usize> = order.iter().map(|&axis| shape[axis]).collect();
        let (from, to) = (strides(shape), strides(&out));
        for (index, element) in output.chunks_exact(width).enumerate() {
            let place: usize = (0..shape.len()).map(|axis| index / to[axis] % out[axis] * from[order[axis]]).sum();
            assert_eq!(element, &input[place * width..][..width], "{shape:?} {order:?} {width} at {index}");
        }
    }

    /// Writes out axes of some sizes, of which those that are repeated have no part in the input.
    fn repeats(sizes: &[usize], repeated: &[bool], width: usize) {
        let rank = sizes.len();
        let shape: Vec<usize> = (0..rank).map(|axis| if repeated[axis] { 1 } else { sizes[axis] }).collect();
        let (from, to) = (strides(&shape), strides(sizes));
        let steps: Vec<isize> = (0..rank).map(|axis| if repeated[axis] { 0 } else { from[axis] as isize }).collect();
        let input = bytes(shape.iter().product(), width);
        let mut output = vec![0xee; sizes.iter().product::<usize>() * width];
        let copy = StridedCopy::gather_strided(sizes, &steps, 0, input.len() / width).unwrap();
        copy.run(width, &input, &mut output).unwrap();
        for (index, element) in output.chunks_exact(width).enumerate() {
            let place: usize = (0..rank).map(|axis| index / to[axis] % sizes[axis] * steps[axis] as usize).sum();
            assert_eq!(element, &input[place * width..][..width], "{sizes:?} {repeated:?} {width} at {index}");
        }
    }

    #[test]
    fn repeats_of_short_rows() {
        for width in [1, 2, 4, 8] {
            repeats(&[2, 3, 2, 32, 2, 48, 3, 2], &[true, false, true, false, true, false, true, false], width);
            repeats(&[2, 30, 2, 7, 2, 4], &[true, false, true, false, true, false], width);
            repeats(&[50, 4, 3], &[false, true, false], width);
            repeats(&[5, 12, 40], &[false, true, false], width);
            repeats(&[3, 90, 2, 20], &[false, false, true, false], width);
            repeats(&[150, 3, 25], &[false, true, false], width);
            repeats(&[70, 2, 30], &[false, false, false], width);
            repeats(&[700, 2, 3, 5], &[false, true, false, true], width);
        }
    }

    /// Tiles of all widths, planes that fill them badly, lines that are short, and blocks that have a part of an axis.
    #[test]
    fn transpositions_by_tiles_and_by_tables() {
        for width in [1, 2, 4, 8, 16] {
            for (high, wide) in [(16, 16), (32, 48), (33, 47), (28, 28), (24, 24), (9, 100), (10, 28), (17, 8)] {
                transposes(&[5, high, wide], &[0, 2, 1], width);
            }
            transposes(&[1, 113, 5, 6, 3], &[2, 4, 1, 3, 0], width);
            transposes(&[7, 4, 37, 3, 5], &[0, 2, 3, 1, 4], width);
            transposes(&[300, 3, 2], &[1, 0, 2], width);
            transposes(&[2, 11, 26, 11], &[2, 0, 1, 3], width);
        }
    }

    /// Planes with a narrow side whose lines lie in few sets of the first cache.
    #[test]
    fn transpositions_a_few_elements_at_a_time() {
        for width in [1, 2, 4, 8, 16] {
            transposes(&[4, 1024, 19], &[2, 1, 0], width);
            transposes(&[19, 1024, 4], &[2, 1, 0], width);
            transposes(&[2, 3, 1024, 12], &[0, 3, 2, 1], width);
            transposes(&[2, 512, 12, 5], &[2, 3, 1, 0], width);
        }
    }

    fn strides(shape: &[usize]) -> Vec<usize> {
        (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
    }

    proptest! {
        #[test]
        fn any_transposition(rank in 0usize..6, seed: u64) {
            let mut random = Random::new(seed);
            let width = [1, 2, 3, 4, 8, 12, 16][random.between(0, 6)];
            let shape: Vec<usize> = (0..rank).map(|_| random.between(0, 9).max(random.between(0, 1)) * [1, 1, 1, 5][random.between(0, 3)]).collect();
            prop_assume!(shape.iter().product::<usize>() < 40_000);
            let mut order: Vec<usize> = (0..rank).collect();
            for place in (1..rank).rev() {
                order.swap(place, random.between(0, place));
            }
            transposes(&shape, &order, width);
        }

        #[test]
        fn any_repeats(rank in 1usize..6, seed: u64) {
            let mut random = Random::new(seed);
            let width = [1, 2, 3, 4, 8, 12, 16][random.between(0, 6)];
            let sizes: Vec<usize> =
                (0..rank).map(|_| random.between(1, 7) * [1, 1, 1, 1, 40, 3000][random.between(0, 5)]).collect();
            prop_assume!(sizes.iter().fold(1, |count: usize, &size| count.saturating_mul(size)) < 200_000);
            let repeated: Vec<bool> = (0..rank).map(|_| random.between(0, 1) == 0).collect();
            repeats(&sizes, &repeated, width);
        }

        #[test]
        fn any_pad(rank in 0usize..4, seed: u64) {
            let mut random = Random::new(seed);
            let width = [1, 2, 4, 8, 3][random.between(0, 4)];
            let shape: Vec<usize> = (0..rank).map(|_| random.between(1, 6)).collect();
            let mode = [PadMode::Constant, PadMode::Edge, PadMode::Reflect, PadMode::Symmetric][random.between(0, 3)];
            let pads: Vec<Vec<isize>> = (0..2).map(|_| shape.iter().map(|&size| {
                random.between(0, size - usize::from(mode == PadMode::Reflect)) as isize
                    - random.between(0, 1) as isize * (size as isize / 3)
            }).collect()).collect();
            let input = bytes(shape.iter().product(), width);
            let out: Vec<usize> = (0..rank).map(|a| (shape[a] as isize + pads[0][a] + pads[1][a]) as usize).collect();
            let value = vec![0x77; width];
            let mut output = vec![0xee; out.iter().product::<usize>() * width];
            pad(mode, width, &shape, &pads[0], &pads[1], &value, &input, &mut output).unwrap();
            let (from, to) = (strides(&shape), strides(&out));
            for index in 0..out.iter().product() {
                let mut place = Some(0);
                for axis in 0..rank {
                    let at = (index / to[axis] % out[axis]) as isize - pads[0][axis];
                    let size = shape[axis] as isize;
                    let at = match mode {
                        _ if at >= 0 && at < size => at,
                        PadMode::Constant => { place = None; 0 }
                        PadMode::Edge => at.clamp(0, size - 1),
                        PadMode::Reflect => if at < 0 { -at } else { 2 * (size - 1) - at },
                        PadMode::Symmetric => if at < 0 { -1 - at } else { 2 * size - 1 - at },
                    };
                    place = place.map(|place| place + at as usize * from[axis]);
                }
                let expected = place.map_or(&value[..], |place| &input[place * width..][..width]);
                prop_assert_eq!(&output[index * width..][..width], expected);
            }
        }
    }

    #[test]
    fn slices_tiles_and_broadcasts() {
        let input: Vec<u8> = (0..12).collect();
        let run = |sizes: &[usize], strides: &[isize], offset: usize| {
            let mut output = vec![0; sizes.iter().product()];
            StridedCopy::gather_strided(sizes, strides, offset, 12).unwrap().run(1, &input, &mut output).unwrap();
            output
        };
        assert_eq!(run(&[2, 2], &[-4, 2], 9), [9, 11, 5, 7]);
        assert_eq!(run(&[2, 3], &[0, 1], 1), [1, 2, 3, 1, 2, 3]);
        assert_eq!(run(&[3, 2], &[4, 0], 0), [0, 0, 4, 4, 8, 8]);
        assert_eq!(run(&[], &[], 5), [5]);
        assert!(StridedCopy::gather_strided(&[2, 4], &[8, 2], 0, 12).is_err());
        assert!(StridedCopy::gather_strided(&[4], &[-1], 2, 12).is_err());
        assert!(StridedCopy::new(&[(2, 1, 0)], 0, 0, 2, 2).is_err());
        assert!(StridedCopy::new(&[(2, 1, 1), (2, 1, 1)], 0, 0, 3, 3).is_err());
        assert!(StridedCopy::transpose(&[2, 2], &[0, 0]).is_err());
    }

    #[test]
    fn parts_of_concatenation_and_split() {
        let mut output = [0; 10];
        concat_part(2, 1, 2, 5, 0, &[1, 2, 6, 7], &mut output).unwrap();
        concat_part(2, 1, 3, 5, 2, &[3, 4, 5, 8, 9, 10], &mut output).unwrap();
        assert_eq!(output, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        let mut part = [0; 6];
        split_part(2, 1, 5, 3, 2, &output, &mut part).unwrap();
        assert_eq!(part, [3, 4, 5, 8, 9, 10]);
        assert!(split_part(2, 1, 5, 3, 3, &output, &mut part).is_err());
        let big = bytes(1_000_000, 1);
        let mut out = vec![0; big.len()];
        crate::testing::in_pool(2, || copy(&big, &mut out)).unwrap();
        assert_eq!(out, big);
    }

    #[test]
    fn gathering() {
        let data: Vec<u8> = (0..24).collect();
        let mut output = [0; 24];
        gather([1, 2, 3, 3], 4, &data, &[2i64, -3, 1], &mut output).unwrap();
        assert_eq!(output[..8], [8, 9, 10, 11, 0, 1, 2, 3]);
        assert_eq!(output[12..16], [20, 21, 22, 23]);
        let mut output = [0; 4];
        gather([2, 1, 12, 2], 1, &data, &[0i32, 11, 3, -1], &mut output).unwrap();
        assert_eq!(output, [0, 11, 15, 23]);
        for (rows, axis, count, width) in
            [(3, 10, 100, 4), (70, 1, 9, 4), (2, 16, 128, 4), (900, 1, 33, 1), (5, 7, 8, 2)]
        {
            let data = bytes(rows * axis, width);
            let indices: Vec<i64> = (0..count).map(|index| (index * 7 % (2 * axis)) as i64 - axis as i64).collect();
            let mut output = vec![0xee; rows * count * width];
            gather([1, rows, axis, count], width, &data, &indices, &mut output).unwrap();
            let position =
                |place: usize| place / count * axis + indices[place % count].rem_euclid(axis as i64) as usize;
            let expected: Vec<u8> =
                (0..rows * count).flat_map(|place| data[position(place) * width..][..width].to_vec()).collect();
            assert_eq!(output, expected);
        }
        assert!(gather([1, 1, 24, 1], 1, &data, &[24i32], &mut [0]).is_err());
        assert!(gather([1, 1, 24, 1], 1, &data, &[i64::MIN], &mut [0]).is_err());
    }
}
