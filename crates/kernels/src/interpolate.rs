//! Resizing of f32 planes by tables of positions and weights computed once per size.

use crate::blocked::BLOCK;
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, TABLE, dispatch};

/// Output elements a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Output positions that follow each other and whose reach is known.
const REACH: usize = 8;

/// The most lines whose columns are looked up together, and the most values of them.
const MOST_LINES: usize = 16;
const MOST_VALUES: usize = 1 << 11;

/// The most tables in which a vector of positions is looked up.
const MOST_TABLES: usize = 4;

/// For each output position of one axis, the two input positions it mixes and the weight of the second:
/// `output = (1 - weight) * input[first] + weight * input[second]`. Nearest neighbours have weight zero.
#[derive(Debug, Clone, PartialEq)]
pub struct InterpolationTable {
    input: usize,
    first: Vec<u32>,
    second: Vec<u32>,
    weight: Vec<f32>,
    /// The lowest and the highest input position that each [`REACH`] output positions mix.
    reaches: Vec<[u32; 2]>,
    nearest: bool,
    /// Whether the positions of each pair are neighbours, or one.
    adjacent: bool,
}

impl InterpolationTable {
    /// A table over an input axis of `input` positions from each output position's pair and weight.
    ///
    /// # Errors
    /// A position lies outside the axis, or the axis is longer than u32 holds.
    pub fn new(input: usize, entries: &[(usize, usize, f32)]) -> Result<Self, KernelError> {
        if u32::try_from(input).is_err() || entries.iter().any(|&(a, b, _)| a >= input || b >= input) {
            return Err(KernelError::invalid("entries", "a position lies outside the axis"));
        }
        Ok(Self {
            input,
            first: entries.iter().map(|entry| entry.0 as u32).collect(),
            second: entries.iter().map(|entry| entry.1 as u32).collect(),
            weight: entries.iter().map(|entry| entry.2).collect(),
            reaches: entries.chunks(REACH).map(reach).collect(),
            nearest: entries.iter().all(|entry| entry.2 == 0.0),
            adjacent: entries.iter().all(|entry| entry.0.abs_diff(entry.1) <= 1),
        })
    }

    /// A table of nearest neighbours.
    ///
    /// # Errors
    /// As of [`InterpolationTable::new`].
    pub fn nearest(input: usize, positions: &[usize]) -> Result<Self, KernelError> {
        let entries: Vec<_> = positions.iter().map(|&position| (position, position, 0.0)).collect();
        Self::new(input, &entries)
    }

    /// A table of linear interpolation at real coordinates of the input, clamped to its edges.
    ///
    /// # Errors
    /// The axis is empty while there are coordinates, or as of [`InterpolationTable::new`].
    pub fn linear(input: usize, coordinates: &[f32]) -> Result<Self, KernelError> {
        let last = input.saturating_sub(1);
        let entries: Vec<_> = coordinates
            .iter()
            .map(|&coordinate| {
                let inside = coordinate.clamp(0.0, last as f32);
                let first = (inside as usize).min(last);
                (first, (first + 1).min(last), inside - first as f32)
            })
            .collect();
        Self::new(input, &entries)
    }

    /// Output positions.
    #[must_use]
    pub fn output(&self) -> usize {
        self.first.len()
    }
}

/// The lowest and the highest position of some.
fn reach(entries: &[(usize, usize, f32)]) -> [u32; 2] {
    let positions = || entries.iter().flat_map(|entry| [entry.0 as u32, entry.1 as u32]);
    [positions().min().unwrap_or(0), positions().max().unwrap_or(0)]
}

/// Elements of scratch that [`interpolate`] needs: some for each chunk of the result.
#[must_use]
pub fn interpolate_scratch_len(planes: usize, rows: &InterpolationTable, columns: &InterpolationTable) -> usize {
    let lines = planes.saturating_mul(rows.output());
    lines.div_ceil(grain(columns)).saturating_mul(scratch_of_chunk(rows, columns))
}

/// The scratch of a chunk: lines of the input that are mixed, or lines whose columns are resized.
fn scratch_of_chunk(rows: &InterpolationTable, columns: &InterpolationTable) -> usize {
    match () {
        () if rows.nearest => 0,
        () if resizes_columns_first(rows, columns) => held_lines(columns) * columns.output(),
        () => lines_together(columns.input) * columns.input,
    }
}

/// Whether the columns of each line of the input are resized, once, before lines are mixed: where so many more lines are made
/// of them that mixing longer ones takes less time than it saves.
fn resizes_columns_first(rows: &InterpolationTable, columns: &InterpolationTable) -> bool {
    !rows.nearest && rows.adjacent && rows.output() / 3 >= rows.input.div_ceil(2) && columns.output() > 0
}

/// The lines of so many values that are resized together.
fn lines_together(values: usize) -> usize {
    (MOST_VALUES / values.max(1)).clamp(1, MOST_LINES)
}

/// The lines of the input whose columns are resized, at most: the two that are mixed, at least.
fn held_lines(columns: &InterpolationTable) -> usize {
    lines_together(columns.output()).max(2)
}

/// Resizes `planes` planes: `input` is `[planes, rows.input, columns.input]` and `output`
/// `[planes, rows.output, columns.output]`. Where there are many more lines than before, columns are resized first, and
/// otherwise lines are mixed first.
///
/// # Errors
/// A slice has the wrong length.
pub fn interpolate(
    isa: Isa,
    planes: usize,
    rows: &InterpolationTable,
    columns: &InterpolationTable,
    input: &[f32],
    output: &mut [f32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[planes, rows.input, columns.input])?)?;
    check_exact("output", output.len(), product("output", &[planes, rows.output(), columns.output()])?)?;
    let needed = interpolate_scratch_len(planes, rows, columns);
    crate::error::check_len("scratch", scratch.len(), needed)?;
    if output.is_empty() {
        return Ok(());
    }
    let (lines, line) = (rows.output(), columns.output());
    let grain = grain(columns);
    let work = output.len() as u64;
    let (shared, spare) = (SharedMut::new(output), SharedMut::new(scratch));
    parallel_for(planes * lines, grain, work, |range| {
        let (chunk, room) = (range.start / grain, scratch_of_chunk(rows, columns));
        let part = chunk * room..(chunk + 1) * room;
        // SAFETY: lines are disjoint, and so are the chunks' parts of the scratch.
        let (output, scratch) = unsafe { (shared.slice(range.start * line..range.end * line), spare.slice(part)) };
        dispatch(isa, PlaneLines { rows, columns, input, first: range.start, output, scratch });
    });
    Ok(())
}

/// Resizes `planes` planes of `lanes` channels that lie side by side; otherwise as [`interpolate`]. No scratch is
/// needed.
///
/// # Errors
/// A slice has the wrong length.
pub fn interpolate_lanes(
    isa: Isa,
    planes: usize,
    lanes: usize,
    rows: &InterpolationTable,
    columns: &InterpolationTable,
    input: &[f32],
    output: &mut [f32],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[planes, rows.input, columns.input, lanes])?)?;
    check_exact("output", output.len(), product("output", &[planes, rows.output(), columns.output(), lanes])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let (lines, line) = (rows.output(), columns.output() * lanes);
    let work = output.len() as u64 / 4;
    let shared = SharedMut::new(output);
    parallel_for(planes * lines, CHUNK.div_ceil(line), work, |range| {
        for index in range {
            let (plane, y) = (index / lines, index % lines);
            let source = |row: u32| {
                &input[(plane * rows.input + row as usize) * columns.input * lanes..][..columns.input * lanes]
            };
            // SAFETY: lines are disjoint.
            let target = unsafe { shared.slice(index * line..(index + 1) * line) };
            let (first, second) = (source(rows.first[y]), source(rows.second[y]));
            dispatch(isa, LanesLine { columns, lanes, first, second, weight: rows.weight[y], output: target });
        }
    });
    Ok(())
}

/// Takes the nearest elements, of any type: `input` is `[planes, rows.input, columns.input, lanes]` and `output`
/// `[planes, rows.output, columns.output, lanes]`.
///
/// # Errors
/// A slice has the wrong length, or a table mixes elements.
pub fn interpolate_nearest<T: Copy + Send + Sync>(
    planes: usize,
    lanes: usize,
    rows: &InterpolationTable,
    columns: &InterpolationTable,
    input: &[T],
    output: &mut [T],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[planes, rows.input, columns.input, lanes])?)?;
    check_exact("output", output.len(), product("output", &[planes, rows.output(), columns.output(), lanes])?)?;
    if !(rows.nearest && columns.nearest) {
        return Err(KernelError::invalid("rows", "and columns must take single elements"));
    }
    if output.is_empty() {
        return Ok(());
    }
    let (lines, line) = (rows.output(), columns.output() * lanes);
    let work = output.len() as u64;
    let shared = SharedMut::new(output);
    parallel_for(planes * lines, CHUNK.div_ceil(line), work, |range| {
        for index in range {
            let (plane, y) = (index / lines, index % lines);
            let first = (plane * rows.input + rows.first[y] as usize) * columns.input * lanes;
            let from = &input[first..][..columns.input * lanes];
            // SAFETY: lines are disjoint.
            let target = unsafe { shared.slice(index * line..(index + 1) * line) };
            if lanes == 1 {
                for (place, position) in target.iter_mut().zip(&columns.first) {
                    *place = from[*position as usize];
                }
                continue;
            }
            if lanes == BLOCK {
                // Blocks of a known size are moved as vectors.
                let (blocks, _) = from.as_chunks::<BLOCK>();
                for (places, position) in target.as_chunks_mut::<BLOCK>().0.iter_mut().zip(&columns.first) {
                    *places = blocks[*position as usize];
                }
                continue;
            }
            for (places, position) in target.chunks_exact_mut(lanes).zip(&columns.first) {
                places.copy_from_slice(&from[*position as usize * lanes..][..lanes]);
            }
        }
    });
    Ok(())
}

/// One line of the result, some channels a position.
struct LanesLine<'a> {
    columns: &'a InterpolationTable,
    lanes: usize,
    first: &'a [f32],
    second: &'a [f32],
    weight: f32,
    output: &'a mut [f32],
}

impl Kernel for LanesLine<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let LanesLine { columns, lanes, first, second, weight, output } = self;
        let (near, far) = (s.splat(1.0 - weight), s.splat(weight));
        for (x, target) in output.chunks_exact_mut(lanes).enumerate() {
            let (left, right) = (columns.first[x] as usize * lanes, columns.second[x] as usize * lanes);
            let (here, beyond) = (s.splat(1.0 - columns.weight[x]), s.splat(columns.weight[x]));
            for lane in (0..lanes).step_by(S::LANES) {
                let count = S::LANES.min(lanes - lane);
                // SAFETY: the table was checked to name positions inside the lines, which have `lanes` values each.
                unsafe {
                    let load = |line: &[f32], at: usize| s.load_first(line.as_ptr().add(at + lane), count);
                    let column = |at: usize| {
                        let value = load(first, at);
                        if weight == 0.0 {
                            return value;
                        }
                        s.add(s.mul(value, near), s.mul(load(second, at), far))
                    };
                    let mut value = column(left);
                    if columns.weight[x] != 0.0 {
                        value = s.add(s.mul(value, here), s.mul(column(right), beyond));
                    }
                    s.store_first(target.as_mut_ptr().add(lane), value, count);
                }
            }
        }
    }
}

fn grain(columns: &InterpolationTable) -> usize {
    CHUNK.div_ceil(columns.output().max(1))
}

/// Lines of the result, which follow each other.
struct PlaneLines<'a> {
    rows: &'a InterpolationTable,
    columns: &'a InterpolationTable,
    input: &'a [f32],
    /// The number of the first line.
    first: usize,
    output: &'a mut [f32],
    /// See [`scratch_of_chunk`].
    scratch: &'a mut [f32],
}

impl Kernel for PlaneLines<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if resizes_columns_first(self.rows, self.columns) { self.columns_first(s) } else { self.rows_first(s) }
    }
}

impl PlaneLines<'_> {
    /// Mixes some lines, then resizes their columns.
    #[inline(always)]
    fn rows_first<S: Simd>(self, s: S) {
        let Self { rows, columns, input, first, output, scratch } = self;
        let (width, together) = (columns.output(), lines_together(columns.input));
        let mut place = Place::of(rows, first);
        for output in output.chunks_mut(together * width) {
            let mut lines = [(0, 0); MOST_LINES];
            let lines = &mut lines[..output.len() / width];
            for (number, line) in lines.iter_mut().enumerate() {
                let (near, far, weight) = place.next(rows);
                let read = |line: usize| &input[line * columns.input..][..columns.input];
                *line = (number * columns.input, number * width);
                if rows.nearest {
                    line.0 = near * columns.input;
                    continue;
                }
                Mix { first: read(near), second: read(far), weight, output: &mut scratch[line.0..][..columns.input] }
                    .run(s);
            }
            let from = if rows.nearest { input } else { &*scratch };
            Spread { table: columns, from, lines, output }.run(s);
        }
    }

    /// Resizes the columns of some lines of the input, then mixes them.
    #[inline(always)]
    fn columns_first<S: Simd>(self, s: S) {
        let Self { rows, columns, input, first, output, scratch } = self;
        let (width, most) = (columns.output(), held_lines(columns));
        let (mut place, mut held) = (Place::of(rows, first), 0..0);
        let count = output.len() / width;
        for (number, target) in output.chunks_exact_mut(width).enumerate() {
            let last = (place.y + count - number).min(rows.output()) - 1;
            let end = place.plane * rows.input + rows.first[last].max(rows.second[last]) as usize + 1;
            let (near, far, weight) = place.next(rows);
            let needed = near.min(far)..near.max(far) + 1;
            if needed.start < held.start || needed.end > held.end {
                // As many as there is room for, but none behind the last that a line of this plane and chunk needs.
                let end = (needed.start + most).min(end).max(needed.end);
                let (mut lines, mut new) = ([(0, 0); MOST_LINES], 0);
                for line in (needed.start..end).filter(|line| !held.contains(line)) {
                    lines[new] = (line * columns.input, line % most * width);
                    new += 1;
                }
                Spread { table: columns, from: input, lines: &lines[..new], output: &mut *scratch }.run(s);
                held = needed.start..end;
            }
            let line = |line: usize| &scratch[line % most * width..][..width];
            Mix { first: line(near), second: line(far), weight, output: target }.run(s);
        }
    }
}

/// Where a line of the result is.
struct Place {
    plane: usize,
    y: usize,
}

impl Place {
    #[inline(always)]
    fn of(rows: &InterpolationTable, line: usize) -> Self {
        Self { plane: line / rows.output(), y: line % rows.output() }
    }

    /// The lines of the input that the line mixes, and the weight of the second; then goes on to the next one.
    #[inline(always)]
    fn next(&mut self, rows: &InterpolationTable) -> (usize, usize, f32) {
        let line = |row: u32| self.plane * rows.input + row as usize;
        let mixed = (line(rows.first[self.y]), line(rows.second[self.y]), rows.weight[self.y]);
        self.y += 1;
        if self.y == rows.output() {
            (self.plane, self.y) = (self.plane + 1, 0);
        }
        mixed
    }
}

/// Reads lines at the positions of the table, some at a time by looking them up in vectors of the lines.
struct Spread<'a> {
    table: &'a InterpolationTable,
    from: &'a [f32],
    /// Where each line begins, and where its result does in the output.
    lines: &'a [(usize, usize)],
    output: &'a mut [f32],
}

impl Kernel for Spread<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Spread { table, from, lines, output } = self;
        let mut longer = [0.0; TABLE];
        let from = match longer.get_mut(..from.len()) {
            Some(place) => {
                place.copy_from_slice(from);
                &longer
            }
            None => from,
        };
        let one = s.splat(1.0);
        for x in (0..table.output()).step_by(S::LANES) {
            let count = S::LANES.min(table.output() - x);
            let (mut low, mut high) = (u32::MAX, 0);
            for reach in &table.reaches[x / REACH..(x + count).div_ceil(REACH)] {
                (low, high) = (low.min(reach[0]), high.max(reach[1]));
            }
            let read = (high.saturating_sub(low) as usize / TABLE + 1) * TABLE;
            if read > MOST_TABLES * TABLE || read > from.len() {
                for (start, to) in lines {
                    table.mix(&from[*start..], x, &mut output[to + x..][..count]);
                }
                continue;
            }
            // SAFETY: so many positions and weights follow.
            let (first, second, weight) = unsafe {
                let [first, second] = [&table.first, &table.second].map(|places| places.as_ptr().add(x).cast());
                let weight = s.load_first(table.weight.as_ptr().add(x), count);
                (s.bits(s.load_first(first, count)), s.bits(s.load_first(second, count)), weight)
            };
            let near = s.sub(one, weight);
            for (start, to) in lines {
                // The tables of the last lines begin before what is looked up in them.
                let begin = (start + low as usize).min(from.len() - read);
                let tables = from[begin..begin + read].as_chunks().0;
                let offset = s.splat_i(begin.wrapping_sub(*start) as i32);
                let mut values = s.lookup_in(tables, s.sub_i(first, offset));
                if !table.nearest {
                    let second = s.lookup_in(tables, s.sub_i(second, offset));
                    values = s.add(s.mul(values, near), s.mul(second, weight));
                }
                // SAFETY: the slice has so many places.
                unsafe { s.store_first(output[to + x..][..count].as_mut_ptr(), values, count) };
            }
        }
    }
}

impl InterpolationTable {
    /// Reads a line at the positions from `x` on.
    fn mix(&self, from: &[f32], x: usize, target: &mut [f32]) {
        let pairs = self.first[x..].iter().zip(&self.second[x..]).zip(&self.weight[x..]);
        for (place, ((&first, &second), &weight)) in target.iter_mut().zip(pairs) {
            let (a, b) = (from[first as usize], from[second as usize]);
            *place = if self.nearest { a } else { a * (1.0 - weight) + b * weight };
        }
    }
}

/// A weighted mean of two lines; the first where the weight is zero.
struct Mix<'a> {
    first: &'a [f32],
    second: &'a [f32],
    weight: f32,
    output: &'a mut [f32],
}

impl Kernel for Mix<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.weight == 0.0 {
            return self.output.copy_from_slice(self.first);
        }
        let (near, far) = (s.splat(1.0 - self.weight), s.splat(self.weight));
        let len = self.output.len().min(self.first.len()).min(self.second.len());
        let mut index = 0;
        while index < len {
            let count = (len - index).min(S::LANES);
            // SAFETY: `count` values from the index on lie in all three slices.
            unsafe {
                let a = s.mul(s.load_partial(self.first.as_ptr().add(index), count), near);
                let b = s.mul(s.load_partial(self.second.as_ptr().add(index), count), far);
                s.store_partial(self.output.as_mut_ptr().add(index), s.add(a, b), count);
            }
            index += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    /// Resizes planes, alone and in a pool.
    fn resized(
        isa: Isa,
        planes: usize,
        rows: &InterpolationTable,
        columns: &InterpolationTable,
        input: &[f32],
    ) -> Vec<f32> {
        let run = || {
            let mut output = vec![f32::NAN; planes * rows.output() * columns.output()];
            let mut scratch = vec![f32::NAN; interpolate_scratch_len(planes, rows, columns)];
            interpolate(isa, planes, rows, columns, input, &mut output, &mut scratch).unwrap();
            output
        };
        let output = run();
        assert_eq!(output, in_pool(2, run));
        output
    }

    #[test]
    fn lanes_are_interpolated_as_planes_are() {
        let (planes, high, wide) = (2, 4, 5);
        let rows = InterpolationTable::linear(high, &[0.0, 0.25, 1.5, 2.75, 3.0]).unwrap();
        let columns = InterpolationTable::linear(wide, &[0.5, 4.0, 3.125]).unwrap();
        for lanes in [2, 3, 16, 21] {
            let input = Random::new(3).values(planes * high * wide * lanes);
            for isa in Isa::available() {
                let mut output = vec![f32::NAN; planes * 5 * 3 * lanes];
                interpolate_lanes(isa, planes, lanes, &rows, &columns, &input, &mut output).unwrap();
                for lane in 0..lanes {
                    let plane: Vec<f32> = input.iter().skip(lane).step_by(lanes).copied().collect();
                    let expected = resized(isa, planes, &rows, &columns, &plane);
                    let result: Vec<f64> = output.iter().skip(lane).step_by(lanes).map(|v| f64::from(*v)).collect();
                    assert_close(&expected, &result, 4, "lanes");
                }
            }
        }
    }

    #[test]
    fn lines_are_read_at_any_positions() {
        let mut random = Random::new(5);
        for (input, output) in
            [(1, 5), (2, 40), (15, 16), (16, 33), (17, 9), (40, 80), (63, 21), (64, 16), (90, 17), (200, 20)]
        {
            let nearest: Vec<usize> = (0..output).map(|_| random.between(0, input - 1)).collect();
            let shrinking: Vec<f32> = (0..output).map(|x| (x as f32 + 0.3) * input as f32 / output as f32).collect();
            let line = random.values(input);
            for table in [InterpolationTable::nearest(input, &nearest), InterpolationTable::linear(input, &shrinking)] {
                let table = table.unwrap();
                let mut expected = vec![f32::NAN; output];
                table.mix(&line, 0, &mut expected);
                for isa in Isa::available() {
                    let mut result = vec![f32::NAN; output];
                    dispatch(isa, Spread { table: &table, from: &line, lines: &[(0, 0)], output: &mut result });
                    assert_eq!(result, expected, "{isa:?} {input} {output}");
                }
            }
        }
    }

    #[test]
    fn planes_of_any_sizes() {
        let mut random = Random::new(9);
        for round in 0..60 {
            let wide = [12, 40, 300, 3000][round % 4];
            let (planes, high, wide) = (random.between(1, 5), random.between(1, 12), random.between(1, wide));
            let (to_high, to_wide) = (random.between(1, 4 * high), random.between(1, 3 * wide));
            let mut table = |from: usize, to: usize| {
                let shift = random.value();
                let coordinates: Vec<f32> = (0..to).map(|x| (x as f32 + shift) * from as f32 / to as f32).collect();
                InterpolationTable::linear(from, &coordinates).unwrap()
            };
            let (rows, columns) = (table(high, to_high), table(wide, to_wide));
            let input = random.values(planes * high * wide);
            let mut expected = Vec::new();
            for (plane, y) in (0..planes).flat_map(|plane| (0..to_high).map(move |y| (plane, y))) {
                let value = |row: u32, x: u32| f64::from(input[(plane * high + row as usize) * wide + x as usize]);
                let mix = |a: f64, b: f64, weight: f32| a * (1.0 - f64::from(weight)) + b * f64::from(weight);
                for x in 0..to_wide {
                    let column = |x: u32| mix(value(rows.first[y], x), value(rows.second[y], x), rows.weight[y]);
                    expected.push(mix(column(columns.first[x]), column(columns.second[x]), columns.weight[x]));
                }
            }
            for isa in Isa::available() {
                let found = resized(isa, planes, &rows, &columns, &input);
                assert_close(&found, &expected, 4, &format!("{planes} {high}x{wide} to {to_high}x{to_wide}"));
            }
        }
    }

    #[test]
    fn linear_and_nearest() {
        let (planes, high, wide, to_high, to_wide) = (3, 5, 7, 60, 90);
        let input = Random::new(1).values(planes * high * wide);
        let coordinates = |from: usize, to: usize| -> Vec<f32> {
            (0..to).map(|x| (x as f32 + 0.5) * from as f32 / to as f32 - 0.5).collect()
        };
        let (ys, xs) = (coordinates(high, to_high), coordinates(wide, to_wide));
        let rows = InterpolationTable::linear(high, &ys).unwrap();
        let columns = InterpolationTable::linear(wide, &xs).unwrap();
        let value = |plane: usize, y: usize, x: usize| f64::from(input[(plane * high + y) * wide + x]);
        let mut expected = Vec::new();
        for (plane, y, x) in
            (0..planes).flat_map(|p| (0..to_high).flat_map(move |y| (0..to_wide).map(move |x| (p, y, x))))
        {
            let (y, x) = (f64::from(ys[y]).clamp(0.0, 4.0), f64::from(xs[x]).clamp(0.0, 6.0));
            let (y0, x0) = (y.floor() as usize, x.floor() as usize);
            let (y1, x1) = ((y0 + 1).min(4), (x0 + 1).min(6));
            let (v, u) = (y - y.floor(), x - x.floor());
            expected.push(
                (value(plane, y0, x0) * (1.0 - u) + value(plane, y0, x1) * u) * (1.0 - v)
                    + (value(plane, y1, x0) * (1.0 - u) + value(plane, y1, x1) * u) * v,
            );
        }
        for isa in Isa::available() {
            assert_close(&resized(isa, planes, &rows, &columns, &input), &expected, 4, "linear");
        }
        let rows = InterpolationTable::nearest(2, &[0, 0, 1]).unwrap();
        let columns = InterpolationTable::nearest(2, &[1, 0]).unwrap();
        let mut output = [0.0; 6];
        interpolate(Isa::portable(), 1, &rows, &columns, &[1.0, 2.0, 3.0, 4.0], &mut output, &mut []).unwrap();
        assert_eq!(output, [2.0, 1.0, 2.0, 1.0, 4.0, 3.0]);
        let mut bytes = [0u8; 6];
        interpolate_nearest(1, 1, &rows, &columns, &[1, 2, 3, 4], &mut bytes).unwrap();
        assert_eq!(bytes, [2, 1, 2, 1, 4, 3]);
        let mut pairs = [0u8; 12];
        interpolate_nearest(1, 2, &rows, &columns, &[1, 2, 3, 4, 5, 6, 7, 8], &mut pairs).unwrap();
        assert_eq!(pairs, [3, 4, 1, 2, 3, 4, 1, 2, 7, 8, 5, 6]);
        assert!(InterpolationTable::nearest(2, &[2]).is_err());
        assert!(InterpolationTable::linear(0, &[0.0]).is_err());
    }
}
