//! Convolutions of few channels, in which neighbouring lanes are neighbouring columns of a plane.
//!
//! The input lines that some rows of the output read lie padded in a ring, so that every tap of every column is inside. Lines are
//! split by the stride's phases, so that neighbouring columns read neighbouring values.

use super::patches::Axis;
use super::{ConvolutionEpilogue, ConvolutionGeometry, volume};
use crate::epilogue::{Channelwise, Epilogue};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{APART, Kernel, MOST_LANES, Simd, dispatch};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Elements of the output that a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// Products of a band of rows that is computed at once where there are few planes.
const BAND: usize = 1 << 20;

/// Values that the ring of padded lines holds.
const RING: usize = 1 << 14;

/// The most output channels of a group.
const MOST_OUTPUTS: usize = 12;

/// The fewest columns of the output, so that lanes are not left empty.
const LEAST_COLUMNS: usize = 5;

/// Whether groups of several channels are computed fastest so, for some sizes of planes.
pub(super) fn can_suit(geometry: &ConvolutionGeometry) -> bool {
    geometry.output_channels / geometry.groups.max(1) <= MOST_OUTPUTS && volume(geometry.kernel) > 1
}

/// Whether groups of several channels are computed fastest so.
pub(super) fn suits(geometry: &ConvolutionGeometry) -> bool {
    can_suit(geometry) && geometry.output[2] >= LEAST_COLUMNS && fits(geometry)
}

/// Whether the ring holds the lines that a row reads.
pub(super) fn fits(geometry: &ConvolutionGeometry) -> bool {
    let axes = geometry.axes();
    let inputs = geometry.input_channels / geometry.groups.max(1);
    let is_of_lines = axes[1].increment >= 1 && !geometry.output.contains(&0);
    is_of_lines && Layout::of(&axes, inputs, [1, 4], MOST_LANES).is_some()
}

/// Convolves each group; lengths were checked, and the ring holds the lines.
pub(super) fn run(
    isa: Isa,
    geometry: &ConvolutionGeometry,
    weights: &[f32],
    input: &[f32],
    output: &mut [f32],
    epilogue: &ConvolutionEpilogue<'_>,
) {
    let groups = geometry.groups;
    let (inputs, outputs) = (geometry.input_channels / groups, geometry.output_channels / groups);
    let (from, to) = (volume(geometry.input), volume(geometry.output));
    let taps = inputs * volume(geometry.kernel);
    let [deep, high, wide] = geometry.output;
    let products_of_row = wide * outputs * taps;
    // Few large planes are cut into bands of rows.
    let rows = (BAND / products_of_row.max(1)).max(4).next_multiple_of(4).min(high);
    let bands = high.div_ceil(rows);
    let axes = geometry.axes();
    let shared = SharedMut::new(output);
    let grain = CHUNK.div_ceil(rows * wide * outputs * inputs);
    parallel_for(geometry.batch * groups * deep * bands, grain, geometry.plain_nanoseconds(), |range| {
        let band = |index: usize| {
            let (part, z, band) = (index / (deep * bands), index / bands % deep, index % bands);
            let group = part % groups;
            let offset = part * outputs * to;
            let epilogue = epilogue.part(group * outputs, outputs, offset, to);
            let rows = band * rows..high.min((band + 1) * rows);
            let band = Band {
                axes,
                inputs,
                outputs,
                weights: &weights[group * outputs * taps..][..outputs * taps],
                input: &input[part * inputs * from..][..inputs * from],
                // SAFETY: the group lies in the output.
                output: unsafe { shared.pointer().add(offset) },
                z,
                rows,
                bias: match epilogue.bias {
                    Channelwise::PerRow(bias) => Some(bias),
                    _ => None,
                },
                residual: epilogue.residual.map(|residual| &residual.values[..outputs * to]),
                limits: epilogue.limits(),
            };
            (band, epilogue)
        };
        let finish = |band: &Band<'_>, epilogue: &Epilogue<'_>| {
            let (first, columns) = ((band.z * high + band.rows.start) * wide, band.rows.len() * wide);
            // SAFETY: the rows of the band lie in the output, and no other task has them.
            unsafe { epilogue.pass(isa, band.output.add(first), to, 0, first, outputs, columns) };
        };
        dispatch(isa, Bands { range, band, finish });
    });
}

/// Bands of rows, one after the other in the same ring.
struct Bands<B, F> {
    range: Range<usize>,
    /// Makes a band and what is done to its result.
    band: B,
    /// Does what the band itself does not.
    finish: F,
}

impl<'a, B: Fn(usize) -> (Band<'a>, Epilogue<'a>), F: Fn(&Band<'a>, &Epilogue<'a>)> Kernel for Bands<B, F> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let mut ring = MaybeUninit::<[f32; RING]>::uninit();
        let mut memory = Memory { values: ring.as_mut_ptr().cast::<f32>(), cleared: None };
        for index in self.range {
            let (band, epilogue) = (self.band)(index);
            band.run(s, &mut memory);
            if epilogue.needs_pass() {
                (self.finish)(&band, &epilogue);
            }
        }
    }
}

/// The memory of a ring.
struct Memory {
    values: *mut f32,
    /// The layout for which what no line fills is zero.
    cleared: Option<Layout>,
}

/// Some rows of the output channels of a group.
struct Band<'a> {
    axes: [Axis; 3],
    /// Channels of the group in the input and in the output.
    inputs: usize,
    outputs: usize,
    weights: &'a [f32],
    input: &'a [f32],
    /// The group's first plane.
    output: *mut f32,
    /// The position along the depth.
    z: usize,
    rows: Range<usize>,
    bias: Option<&'a [f32]>,
    residual: Option<&'a [f32]>,
    limits: (f32, f32),
}

/// How the lines that some rows read lie in the ring.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Layout {
    /// Lines of each plane.
    lines: usize,
    /// Values of a line, and of each phase of the stride in it.
    line: usize,
    phase: usize,
    /// Values of a line that columns read, those between taps included.
    reach: usize,
}

impl Layout {
    /// The layout for so many rows and vectors of so many lanes at a time, if the ring has room for it.
    fn of(axes: &[Axis; 3], inputs: usize, [rows, vectors]: [usize; 2], lanes: usize) -> Option<Layout> {
        let [deep, high, wide] = axes;
        let span = (high.taps - 1).saturating_mul(usize::try_from(high.increment).ok()?).saturating_add(1);
        let step = usize::try_from(wide.increment).ok()?;
        let reach = (wide.taps - 1).saturating_mul(step).saturating_add((wide.output - 1) * wide.stride + 1);
        // The last vectors of a row reach beyond its last column.
        let phase = reach.div_ceil(wide.stride).saturating_add(vectors * lanes).checked_next_multiple_of(lanes)?;
        let line = phase.saturating_mul(wide.stride);
        let lines = (rows - 1).saturating_mul(high.stride).saturating_add(span);
        let values = inputs.saturating_mul(deep.taps).saturating_mul(lines).saturating_mul(line);
        (values <= RING).then_some(Layout { lines, line, phase, reach })
    }
}

impl Band<'_> {
    #[inline(always)]
    fn run<S: Simd>(&self, s: S, memory: &mut Memory) {
        let layout = |rows: usize, vectors: usize| {
            let layout = Layout::of(&self.axes, self.inputs, [rows, vectors], S::LANES);
            layout.filter(|_| self.rows.len() >= rows)
        };
        // Sums of several vectors hide the time that each addition takes: those of neighbouring columns, or where there are
        // few of these, those of several rows.
        let vectors = self.axes[2].output.div_ceil(S::LANES);
        if let Some(shared) = self.shared_lines()
            && let Some(layout) = layout(shared.rows(), if vectors == 1 { 1 } else { 2 })
        {
            match vectors == 1 {
                true => self.all_rows::<S, SHARING, 1>(s, memory, &layout, Some(shared)),
                false => self.all_rows::<S, SHARING, 2>(s, memory, &layout, Some(shared)),
            }
        } else if vectors == 1
            && let Some(layout) = layout(4, 1)
        {
            self.all_rows::<S, 4, 1>(s, memory, &layout, None);
        } else if vectors <= 2
            && let Some(layout) = layout(2, 2)
        {
            self.all_rows::<S, 2, 2>(s, memory, &layout, None);
        } else if let Some(layout) = layout(1, 4) {
            self.all_rows::<S, 1, 4>(s, memory, &layout, None);
        }
    }
}

impl Band<'_> {
    /// How rows of one output channel share the lines that they read, if they do.
    #[inline(always)]
    fn shared_lines(&self) -> Option<Shared> {
        let high = &self.axes[1];
        let is_one = self.outputs == 1 && high.taps > 1;
        match (high.stride, high.increment) {
            // Rows so far apart read the same lines at neighbouring taps.
            (1, increment) => is_one.then_some(Shared { space: increment as usize, apart: 1 }),
            (stride, 1) => (is_one && stride < high.taps).then_some(Shared { space: 1, apart: stride }),
            _ => None,
        }
    }

    /// Computes all rows, so many at a time and of so many vectors.
    #[inline(always)]
    fn all_rows<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        s: S,
        memory: &mut Memory,
        layout: &Layout,
        shared: Option<Shared>,
    ) {
        let [deep, high, wide] = self.axes;
        let planes = self.inputs * deep.taps;
        let ring = Ring { values: memory.values, layout: *layout };
        // The sums of so many channels fit into registers beside what they are made of.
        let most = if S::LANES == MOST_LANES { 4 } else { 2 };
        let together = self.outputs.div_ceil(self.outputs.div_ceil(most));
        let clear = |first: usize, count: usize| {
            for place in (first * layout.line..(first + count) * layout.line).step_by(S::LANES) {
                // SAFETY: the ring has room for the lines of all planes, which are whole vectors.
                unsafe { s.store(ring.values.add(place), s.splat(0.0)) };
            }
        };
        // What lies beside the columns of the input is zero in every line, and stays so.
        if memory.cleared != Some(*layout) {
            clear(0, planes * layout.lines);
            memory.cleared = Some(*layout);
        }
        let mut filled = isize::MIN;
        let together_rows = shared.map_or(ROWS, Shared::rows);
        for y in self.rows.clone().step_by(together_rows) {
            // The last rows are computed again where they are no whole number of these.
            let y = y.min(self.rows.end - together_rows);
            let top = (y * high.stride) as isize + high.base;
            let end = top + layout.lines as isize;
            for plane in 0..planes {
                let Some(source) = self.plane(plane) else {
                    // There may be lines of an earlier band.
                    if filled == isize::MIN {
                        clear(plane * layout.lines, layout.lines);
                    }
                    continue;
                };
                let mut place = ring.place(filled.max(top));
                for row in filled.max(top)..end {
                    // SAFETY: the ring has this line.
                    unsafe {
                        let line = ring.values.add((plane * layout.lines + place) * layout.line);
                        self.fill_line(s, source, row, layout, line);
                    }
                    place = if place + 1 == layout.lines { 0 } else { place + 1 };
                }
            }
            filled = end;
            if let Some(shared) = shared {
                for first in 0..shared.space {
                    let place = ring.place(top + (first * high.stride) as isize);
                    // SAFETY: the ring holds the lines, which reach `VECTORS` vectors beyond the last column.
                    unsafe {
                        match wide.stride {
                            1 => self.row_of_shared::<S, ROWS, VECTORS, 1>(s, y + first, place, shared, &ring),
                            _ => self.row_of_shared::<S, ROWS, VECTORS, 0>(s, y + first, place, shared, &ring),
                        }
                    }
                }
                continue;
            }
            let places = std::array::from_fn(|row| ring.place(top + (row * high.stride) as isize));
            for first in (0..self.outputs).step_by(together) {
                let count = together.min(self.outputs - first);
                let mut x = 0;
                while x < wide.output {
                    let columns = Columns { first, y, x, places: &places, ring: &ring };
                    // SAFETY: the ring holds the lines, which reach `VECTORS` vectors beyond the last column.
                    unsafe {
                        if VECTORS == 4 && x + 2 * S::LANES < wide.output && x + 3 * S::LANES >= wide.output {
                            self.channels::<S, ROWS, 3>(s, count, columns);
                            x += 3 * S::LANES;
                        } else if x + VECTORS / 2 * S::LANES < wide.output {
                            self.channels::<S, ROWS, VECTORS>(s, count, columns);
                            x += VECTORS * S::LANES;
                        } else {
                            self.channels::<S, ROWS, 1>(s, count, columns);
                            x += S::LANES;
                        }
                    }
                }
            }
        }
    }

    /// A plane of the input, which are those of each channel that the taps along the depth read, and what lies behind it; none
    /// where it is outside.
    #[inline(always)]
    fn plane(&self, plane: usize) -> Option<&[f32]> {
        let [deep, high, wide] = self.axes;
        let (channel, tap) = if deep.taps == 1 { (plane, 0) } else { (plane / deep.taps, plane % deep.taps) };
        let place = (self.z * deep.stride) as isize + deep.base + tap as isize * deep.increment;
        let place = usize::try_from(place).ok().filter(|&place| place < deep.input)?;
        self.input.get((channel * deep.input + place) * high.input * wide.input..)
    }

    /// Writes a line of a plane into a line of the ring, around whose columns there are zeros.
    ///
    /// # Safety
    /// A line of the ring is writable.
    #[inline(always)]
    unsafe fn fill_line<S: Simd>(&self, s: S, plane: &[f32], row: isize, layout: &Layout, line: *mut f32) {
        let [_, high, wide] = self.axes;
        let Some(row) = usize::try_from(row).ok().filter(|&row| row < high.input) else {
            for place in (0..layout.line).step_by(S::LANES) {
                // SAFETY: lines are whole vectors.
                unsafe { s.store(line.add(place), s.splat(0.0)) };
            }
            return;
        };
        // Values behind the row may be read as well.
        let readable = &plane[row * wide.input..];
        let source = &readable[..wide.input];
        let skip = wide.base.unsigned_abs();
        let source = &source[..wide.input.min(layout.reach.saturating_sub(skip))];
        for part in 0..wide.stride.min(source.len()) {
            let (position, source) = (skip + part, &source[part..]);
            let target = position % wide.stride * layout.phase + position / wide.stride;
            let count = source.len().div_ceil(wide.stride);
            let mut done = 0;
            // SAFETY: the values that a phase has of the source lie in the phase, which is as long as what columns read.
            unsafe {
                let target = line.add(target);
                while wide.stride == 1 && done < count {
                    let values = s.load_first(source.as_ptr().add(done), count - done);
                    s.store_first(target.add(done), values, count - done);
                    done += S::LANES;
                }
                while wide.stride == 2 && done < count && part + 2 * (done + S::LANES) <= readable.len() {
                    let values = s.load_even(readable.as_ptr().add(part + 2 * done));
                    s.store_first(target.add(done), values, count - done);
                    done += S::LANES;
                }
                let span = s.span_apart(wide.stride);
                while APART.contains(&wide.stride) && done < count && part + wide.stride * done + span <= readable.len()
                {
                    let values = s.load_apart(readable.as_ptr().add(part + wide.stride * done), wide.stride);
                    s.store_first(target.add(done), values, count - done);
                    done += S::LANES;
                }
                for done in done..count {
                    *target.add(done) = source[done * wide.stride];
                }
            }
        }
    }

    /// Computes neighbouring columns of some rows of up to four channels.
    ///
    /// # Safety
    /// As of [`Band::columns`].
    #[inline(always)]
    unsafe fn channels<S: Simd, const ROWS: usize, const VECTORS: usize>(
        &self,
        s: S,
        count: usize,
        columns: Columns<'_, ROWS>,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            match (count, S::LANES == MOST_LANES) {
                (1, _) => self.columns::<S, 1, ROWS, VECTORS>(s, columns),
                (2, _) => self.columns::<S, 2, ROWS, VECTORS>(s, columns),
                (3, true) => self.columns::<S, 3, ROWS, VECTORS>(s, columns),
                (4, true) => self.columns::<S, 4, ROWS, VECTORS>(s, columns),
                _ => {}
            }
        }
    }

    /// Computes neighbouring columns of some rows of some channels.
    ///
    /// # Safety
    /// The ring holds the lines that the rows read, each reaching `VECTORS` vectors beyond the last column, and there are so many
    /// channels from the first one on.
    #[inline(always)]
    unsafe fn columns<S: Simd, const OUTPUTS: usize, const ROWS: usize, const VECTORS: usize>(
        &self,
        s: S,
        Columns { first, y, x, places, ring }: Columns<'_, ROWS>,
    ) {
        let [deep, high, wide] = self.axes;
        let step = [wide.increment as usize % wide.stride, wide.increment as usize / wide.stride];
        let layout = ring.layout;
        let planes = self.inputs * deep.taps;
        let taps = planes * high.taps * wide.taps;
        let mut sums = [[[s.splat(0.0); VECTORS]; ROWS]; OUTPUTS];
        if let Some(bias) = self.bias {
            for output in 0..OUTPUTS {
                sums[output] = [[s.splat(bias[first + output]); VECTORS]; ROWS];
            }
        }
        let mut weights = self.weights[first * taps..].as_ptr();
        for plane in 0..planes {
            for ky in 0..high.taps {
                let mut lines = [ring.values.cast_const(); ROWS];
                for (line, place) in lines.iter_mut().zip(places) {
                    let place = place + ky * high.increment as usize;
                    let place = if place >= layout.lines { place - layout.lines } else { place };
                    *line = line.wrapping_add((plane * layout.lines + place) * layout.line + x);
                }
                // The phase of the stride that a tap is in, and its place there.
                let (mut phase, mut place) = (0, 0);
                for _ in 0..wide.taps {
                    let offset = phase * layout.phase + place;
                    (phase, place) = (phase + step[0], place + step[1]);
                    if phase >= wide.stride {
                        (phase, place) = (phase - wide.stride, place + 1);
                    }
                    // SAFETY: the caller's promise; each channel has so many weights.
                    unsafe {
                        let weight: [S::F; OUTPUTS] =
                            std::array::from_fn(|output| s.splat(*weights.add(output * taps)));
                        weights = weights.add(1);
                        for row in 0..ROWS {
                            for index in 0..VECTORS {
                                let values = s.load(lines[row].add(offset + index * S::LANES));
                                for output in 0..OUTPUTS {
                                    let sum = &mut sums[output][row][index];
                                    *sum = s.fma(values, weight[output], *sum);
                                }
                            }
                        }
                    }
                }
            }
        }
        // Loops that are not unrolled read them from here, which would keep the sums themselves in memory.
        let mut held = MaybeUninit::<[[[[f32; MOST_LANES]; VECTORS]; ROWS]; OUTPUTS]>::uninit();
        let held = held.as_mut_ptr().cast::<f32>();
        for output in 0..OUTPUTS {
            for row in 0..ROWS {
                for index in 0..VECTORS {
                    let place = (output * ROWS + row) * VECTORS + index;
                    // SAFETY: there is room for the widest vector of each sum.
                    unsafe { s.store(held.add(place * MOST_LANES), sums[output][row][index]) };
                }
            }
        }
        for part in 0..OUTPUTS * ROWS {
            // SAFETY: the row is one of the output, and its sums were written above.
            unsafe {
                let sums = held.add(part * VECTORS * MOST_LANES);
                self.store(s, sums, VECTORS, first + part / ROWS, y + part % ROWS, x);
            }
        }
    }

    /// Computes all columns of rows that share lines, from `y` on.
    ///
    /// # Safety
    /// As of [`Band::columns_of_shared`].
    #[inline(always)]
    unsafe fn row_of_shared<S: Simd, const ROWS: usize, const VECTORS: usize, const STRIDE: usize>(
        &self,
        s: S,
        y: usize,
        place: usize,
        shared: Shared,
        ring: &Ring,
    ) {
        let wide = self.axes[2].output;
        let mut x = 0;
        while x < wide {
            // SAFETY: the caller's promise.
            unsafe {
                if x + VECTORS / 2 * S::LANES < wide {
                    self.columns_of_shared::<S, ROWS, VECTORS, STRIDE>(s, [y, x], place, shared, ring);
                    x += VECTORS * S::LANES;
                } else {
                    self.columns_of_shared::<S, ROWS, 1, STRIDE>(s, [y, x], place, shared, ring);
                    x += S::LANES;
                }
            }
        }
    }

    /// Computes neighbouring columns of some rows of one channel, each value of the lines once for all rows that read it.
    /// `STRIDE` is the step between columns where it is known, else 0.
    ///
    /// # Safety
    /// As of [`Band::columns`]; the line of the first tap of the first row has this place in the ring.
    #[inline(always)]
    unsafe fn columns_of_shared<S: Simd, const ROWS: usize, const VECTORS: usize, const STRIDE: usize>(
        &self,
        s: S,
        [y, x]: [usize; 2],
        place: usize,
        shared: Shared,
        ring: &Ring,
    ) {
        let [deep, high, wide] = self.axes;
        let step = match STRIDE {
            1 => [0, wide.increment as usize],
            _ => [wide.increment as usize % wide.stride, wide.increment as usize / wide.stride],
        };
        let layout = ring.layout;
        let bias = self.bias.map_or(0.0, |bias| bias[0]);
        let mut sums = [[s.splat(bias); VECTORS]; ROWS];
        for plane in 0..self.inputs * deep.taps {
            let weights = self.weights[plane * high.taps * wide.taps..][..high.taps * wide.taps].as_ptr();
            let mut place = place;
            for line in 0..high.taps + (ROWS - 1) * shared.apart {
                let values = ring.values.wrapping_add((plane * layout.lines + place) * layout.line + x);
                place += high.increment as usize;
                place = if place >= layout.lines { place - layout.lines } else { place };
                // The taps that the line has in each row; those beyond the last are in none.
                let taps: [usize; ROWS] = std::array::from_fn(|row| line.wrapping_sub(row * shared.apart));
                let (mut phase, mut column) = (0, 0);
                for kx in 0..wide.taps {
                    let offset = if STRIDE == 1 { column } else { phase * layout.phase + column };
                    (phase, column) = (phase + step[0], column + step[1]);
                    if STRIDE != 1 && phase >= wide.stride {
                        (phase, column) = (phase - wide.stride, column + 1);
                    }
                    // SAFETY: the caller's promise; the weights have these taps.
                    unsafe {
                        let values: [S::F; VECTORS] =
                            std::array::from_fn(|index| s.load(values.add(offset + index * S::LANES)));
                        for row in 0..ROWS {
                            if taps[row] < high.taps {
                                let weight = s.splat(*weights.add(taps[row] * wide.taps + kx));
                                for index in 0..VECTORS {
                                    sums[row][index] = s.fma(values[index], weight, sums[row][index]);
                                }
                            }
                        }
                    }
                }
            }
        }
        // As in `columns`.
        let mut held = MaybeUninit::<[[[f32; MOST_LANES]; VECTORS]; ROWS]>::uninit();
        let held = held.as_mut_ptr().cast::<f32>();
        for row in 0..ROWS {
            for index in 0..VECTORS {
                // SAFETY: there is room for the widest vector of each sum.
                unsafe { s.store(held.add((row * VECTORS + index) * MOST_LANES), sums[row][index]) };
            }
        }
        for row in 0..ROWS {
            // SAFETY: the row is one of the output, and its sums were written above.
            unsafe {
                let sums = held.add(row * VECTORS * MOST_LANES);
                self.store(s, sums, VECTORS, 0, y + row * shared.space, x);
            }
        }
    }

    /// Writes the columns of an output row from one on, as many as there are of so many vectors.
    ///
    /// # Safety
    /// The channel and the row are of the output, and the sums are readable, each where the widest vector before it ends.
    #[inline(always)]
    unsafe fn store<S: Simd>(&self, s: S, sums: *const f32, vectors: usize, channel: usize, row: usize, x: usize) {
        let [deep, high, wide] = self.axes;
        let (low, limit) = (s.splat(self.limits.0), s.splat(self.limits.1));
        let line = ((channel * deep.output + self.z) * high.output + row) * wide.output;
        for index in 0..vectors {
            let column = x + index * S::LANES;
            if column >= wide.output {
                break;
            }
            let (count, offset) = ((wide.output - column).min(S::LANES), line + column);
            // SAFETY: `count` columns from this one on lie in the line of the output and of the residual.
            unsafe {
                let mut sum = s.load(sums.add(index * MOST_LANES));
                if let Some(residual) = self.residual {
                    sum = s.add(sum, s.load_partial(residual.as_ptr().add(offset), count));
                }
                let sum = s.min(limit, s.max(low, sum));
                s.store_partial(self.output.add(offset), sum, count);
            }
        }
    }
}

/// The rows that share lines.
const SHARING: usize = 4;

/// How rows share the lines that they read.
#[derive(Clone, Copy)]
struct Shared {
    /// Rows of the output from one of them to the next.
    space: usize,
    /// Taps by which one reads the same line later than the next.
    apart: usize,
}

impl Shared {
    /// The rows from the first to the last one, those between included, that are computed at once.
    fn rows(self) -> usize {
        SHARING.saturating_mul(self.space)
    }
}

/// Where neighbouring columns of some rows are, and where their lines begin in the ring.
#[derive(Clone, Copy)]
struct Columns<'a, const ROWS: usize> {
    /// The first channel.
    first: usize,
    y: usize,
    x: usize,
    places: &'a [usize; ROWS],
    ring: &'a Ring,
}

/// Padded lines of the input, each in the place of the one that was so many lines before.
struct Ring {
    values: *mut f32,
    layout: Layout,
}

impl Ring {
    /// The place of a line of the input among those of its plane.
    #[inline(always)]
    fn place(&self, row: isize) -> usize {
        row.rem_euclid(self.layout.lines as isize) as usize
    }
}
