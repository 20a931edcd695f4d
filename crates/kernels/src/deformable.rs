//! Convolution whose windows are bent by offsets: samples become a matrix, which the filter multiplies.
//!
//! Data and filter are turned first, so that the channels of a position lie side by side: a sample is then the sum of four
//! runs of memory.

use crate::epilogue::Epilogue;
use crate::error::{KernelError, check_exact, check_len, product};
use crate::gemm::{MatMulGeometry, matmul, matmul_scratch_len};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};
use crate::tile::{SIDE, transpose};

/// Elements of the matrix that are made at a time.
const MATRIX: usize = 1 << 19;

/// Samples that a parallel chunk takes at least.
const CHUNK: usize = 1 << 12;

/// The sizes of a deformable convolution. Pairs are height and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeformableGeometry {
    /// Images.
    pub batch: usize,
    /// Channels of the data.
    pub channels: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// Groups of channels, each of which the filter takes by itself.
    pub groups: usize,
    /// Groups of channels that share offsets.
    pub bent: usize,
    /// The size of the data.
    pub input: [usize; 2],
    /// The number of windows.
    pub output: [usize; 2],
    /// The size of a window.
    pub kernel: [usize; 2],
    /// The distance between windows.
    pub stride: [usize; 2],
    /// The distance between the elements of a window.
    pub dilation: [usize; 2],
    /// The elements before the data.
    pub pad_begin: [i64; 2],
    /// Whether samples up to one element outside of the data fade to zero; otherwise they are zero where they begin
    /// before it, and repeat its last element behind it.
    pub fades: bool,
}

impl DeformableGeometry {
    fn taps(&self) -> usize {
        self.kernel[0].saturating_mul(self.kernel[1])
    }

    fn windows(&self) -> usize {
        self.output[0].saturating_mul(self.output[1])
    }

    /// The windows whose samples are taken at a time.
    fn tile(&self) -> usize {
        let column = self.channels.saturating_mul(self.taps()).max(1);
        (MATRIX / column).max(64).min(self.windows())
    }

    fn product(&self, tile: usize) -> MatMulGeometry {
        let (rows, inner) = (self.outputs / self.groups, self.channels / self.groups * self.taps());
        let mut geometry = MatMulGeometry::dense(self.groups, rows, inner, tile, false, true, true, true);
        // A window has the samples of all groups one after the other.
        geometry.b_column = self.groups.saturating_mul(inner);
        geometry.b_batch[3] = inner;
        geometry.c_row = self.windows();
        geometry.c_batch[3] = rows.saturating_mul(self.windows());
        geometry
    }

    /// The elements of turned data and of the turned filter.
    fn turned(&self) -> [usize; 2] {
        let plane = self.input[0].saturating_mul(self.input[1]);
        let inner = (self.channels / self.groups).saturating_mul(self.taps());
        [self.channels.saturating_mul(plane), self.outputs.saturating_mul(inner)]
    }

    fn check(&self) -> Result<(), KernelError> {
        let divides = |groups: usize| groups > 0 && self.channels.is_multiple_of(groups);
        if !divides(self.groups) || !divides(self.bent) || !self.outputs.is_multiple_of(self.groups) {
            return Err(KernelError::invalid("groups", "do not divide the channels"));
        }
        let plane = product("input", &self.input)?;
        u32::try_from(plane).map_err(|_| KernelError::invalid("input", "is too large"))?;
        Ok(())
    }
}

/// The elements of places and of scratch that [`deformable_convolution`] needs.
#[must_use]
pub fn deformable_scratch_len(isa: Isa, geometry: &DeformableGeometry) -> (usize, usize) {
    let tile = geometry.tile();
    let table = geometry.bent.saturating_mul(geometry.taps()).saturating_mul(tile).saturating_mul(4);
    let matrix = geometry.channels.saturating_mul(geometry.taps()).saturating_mul(tile);
    let left = matmul_scratch_len(isa, &geometry.product(tile));
    let [data, filter] = geometry.turned();
    (table, [matrix, left, data, filter].into_iter().fold(table, usize::saturating_add))
}

/// Writes `[batch, outputs, windows]` of `data` `[batch, channels, input]`, `offsets` `[batch, bent, taps, 2, windows]`
/// (height, then width), `mask` `[batch, bent, taps, windows]` and `filter` `[outputs, channels / groups, taps]`.
///
/// # Errors
/// A slice does not fit the geometry.
pub fn deformable_convolution(
    isa: Isa,
    geometry: &DeformableGeometry,
    [data, offsets, filter]: [&[f32]; 3],
    mask: Option<&[f32]>,
    output: &mut [f32],
    places: &mut [u32],
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    geometry.check()?;
    let g = geometry;
    let (taps, windows, plane) = (g.taps(), g.windows(), g.input[0] * g.input[1]);
    let bends = product("offsets", &[g.bent, taps, windows])?;
    check_exact("data", data.len(), product("data", &[g.batch, g.channels, plane])?)?;
    check_exact("offsets", offsets.len(), product("offsets", &[g.batch, bends, 2])?)?;
    check_exact("filter", filter.len(), product("filter", &[g.outputs, g.channels / g.groups, taps])?)?;
    check_exact("output", output.len(), product("output", &[g.batch, g.outputs, windows])?)?;
    if let Some(mask) = mask {
        check_exact("mask", mask.len(), product("mask", &[g.batch, bends])?)?;
    }
    let (needed_places, needed) = deformable_scratch_len(isa, g);
    check_len("places", places.len(), needed_places)?;
    check_len("scratch", scratch.len(), needed)?;
    if output.is_empty() || plane == 0 {
        output.fill(0.0);
        return Ok(());
    }
    let (weights, rest) = scratch.split_at_mut(needed_places);
    let [turned_data, turned_filter] = g.turned();
    let (turned, rest) = rest.split_at_mut(turned_data);
    let (turned_filter, rest) = rest.split_at_mut(turned_filter);
    turn(isa, [g.outputs, g.channels / g.groups, taps], filter, turned_filter);
    for image in 0..g.batch {
        turn(isa, [1, g.channels, plane], &data[image * g.channels * plane..][..g.channels * plane], turned);
        let bend = Bend {
            geometry,
            offsets: &offsets[image * bends * 2..][..bends * 2],
            mask: mask.map(|mask| &mask[image * bends..][..bends]),
        };
        for first in (0..windows).step_by(g.tile()) {
            let tile = g.tile().min(windows - first);
            let table = g.bent * taps * tile * 4;
            let (places, weights) = (&mut places[..table], &mut weights[..table]);
            bend.fill(isa, first, tile, places, weights);
            let (matrix, left) = rest.split_at_mut(g.channels * taps * tile);
            rows(isa, g, tile, turned, (places, weights), matrix);
            let target = &mut output[image * g.outputs * windows + first..];
            matmul(isa, &g.product(tile), turned_filter, matrix, target, &Epilogue::default(), left)?;
        }
    }
    Ok(())
}

/// Exchanges the last two axes of `[count, rows, columns]`.
fn turn(isa: Isa, [count, rows, columns]: [usize; 3], from: &[f32], to: &mut [f32]) {
    let (size, strips) = (rows * columns, columns.div_ceil(SIDE));
    let work = to.len() as u64 / 4;
    let shared = SharedMut::new(to);
    parallel_for(count * strips, CHUNK.div_ceil(SIDE * rows.max(1)), work, |range| {
        for index in range {
            let (matrix, column) = (index / strips, index % strips * SIDE);
            let wide = SIDE.min(columns - column);
            // SAFETY: the columns of a strip are rows that lie one behind the other, and strips are disjoint.
            let to = unsafe { shared.slice(matrix * size + column * rows..matrix * size + (column + wide) * rows) };
            let from = &from[matrix * size..][..size];
            let whole = if wide == SIDE { rows - rows % SIDE } else { 0 };
            for row in (0..whole).step_by(SIDE) {
                // SAFETY: eight rows from this one on have eight values from the column on, and as many rows of the strip
                // eight places from the row on.
                unsafe {
                    let from = from.as_ptr().add(row * columns + column);
                    transpose(isa, from, columns, to.as_mut_ptr().add(row), rows);
                }
            }
            for row in whole..rows {
                for (at, value) in from[row * columns + column..][..wide].iter().enumerate() {
                    to[at * rows + row] = *value;
                }
            }
        }
    });
}

/// What bends the windows of an image.
struct Bend<'a> {
    geometry: &'a DeformableGeometry,
    offsets: &'a [f32],
    mask: Option<&'a [f32]>,
}

impl Bend<'_> {
    /// The four elements around each sample of some windows, and their weights: `[bent, taps, tile, 4]`.
    fn fill(&self, isa: Isa, first: usize, tile: usize, places: &mut [u32], weights: &mut [f32]) {
        let g = self.geometry;
        let work = places.len() as u64;
        let (places, weights) = (SharedMut::new(places), SharedMut::new(weights));
        parallel_for(g.bent * g.taps(), CHUNK.div_ceil(tile), work, |range| {
            for bend in range {
                let part = bend * tile * 4..(bend + 1) * tile * 4;
                // SAFETY: each tap has a part of its own.
                let (places, weights) = unsafe { (places.slice(part.clone()), weights.slice(part)) };
                dispatch(isa, Neighbours { of: self, bend, first, places, weights });
            }
        });
    }
}

/// The neighbours of one tap in some windows.
struct Neighbours<'a> {
    of: &'a Bend<'a>,
    bend: usize,
    first: usize,
    places: &'a mut [u32],
    weights: &'a mut [f32],
}

impl Kernel for Neighbours<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Neighbours { of: Bend { geometry: g, offsets, mask }, bend, first, places, weights } = self;
        let (windows, tap) = (g.windows(), bend % g.taps());
        let (mut row, mut column) = (first / g.output[1], first % g.output[1]);
        let (places, weights) = (places.as_chunks_mut::<4>().0, weights.as_chunks_mut::<4>().0);
        let [down, across] = [0, 1].map(|axis| &offsets[(bend * 2 + axis) * windows + first..][..places.len()]);
        for (at, (places, weights)) in places.iter_mut().zip(weights).enumerate() {
            let start = |axis: usize, window: usize, k: usize| {
                ((window * g.stride[axis] + k * g.dilation[axis]) as i64 - g.pad_begin[axis]) as f32
            };
            let y = start(0, row, tap / g.kernel[1]) + down[at];
            let x = start(1, column, tap % g.kernel[1]) + across[at];
            let factor = mask.map_or(1.0, |mask| mask[bend * windows + first + at]);
            let (rows, columns) = (neighbours(y, g.input[0], g.fades), neighbours(x, g.input[1], g.fades));
            for corner in 0..4 {
                let ((row, down), (column, across)) = (rows[corner / 2], columns[corner % 2]);
                places[corner] = (row * g.input[1] + column) as u32;
                weights[corner] = down * across * factor;
            }
            column += 1;
            if column == g.output[1] {
                (row, column) = (row + 1, 0);
            }
        }
    }
}

/// The elements of an axis on both sides of a place, and their weights; those outside weigh nothing.
#[inline(always)]
fn neighbours(place: f32, size: usize, fades: bool) -> [(usize, f32); 2] {
    let begins = if fades { place > -1.0 } else { place >= 0.0 };
    if !(begins && place < size as f32) {
        return [(0, 0.0); 2];
    }
    let low = place.floor();
    let weight = place - low;
    let (low, last) = (low as i64, size as i64 - 1);
    let high = if fades { low + 1 } else { (low + 1).min(last) };
    let at = |position: i64, weight: f32| match usize::try_from(position) {
        Ok(position) if position < size => (position, weight),
        _ => (0, 0.0),
    };
    [at(low, 1.0 - weight), at(high, weight)]
}

/// Samples all channels into the matrix `[tile, groups, taps, channels / groups]`.
fn rows(
    isa: Isa,
    g: &DeformableGeometry,
    tile: usize,
    turned: &[f32],
    (places, weights): (&[u32], &[f32]),
    matrix: &mut [f32],
) {
    let row = g.channels * g.taps();
    let work = matrix.len() as u64 / 4;
    let shared = SharedMut::new(matrix);
    parallel_for(tile, CHUNK.div_ceil(row.max(1)), work, |range| {
        // SAFETY: windows have rows of their own.
        let matrix = unsafe { shared.slice(range.start * row..range.end * row) };
        dispatch(isa, Samples { geometry: g, tile, first: range.start, turned, places, weights, matrix });
    });
}

/// The samples of windows that follow each other.
struct Samples<'a> {
    geometry: &'a DeformableGeometry,
    tile: usize,
    first: usize,
    /// The data, the channels of a position side by side.
    turned: &'a [f32],
    places: &'a [u32],
    weights: &'a [f32],
    matrix: &'a mut [f32],
}

impl Kernel for Samples<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Samples { geometry: g, tile, first, turned, places, weights, matrix } = self;
        let (taps, inner, sharing) = (g.taps(), g.channels / g.groups, g.channels / g.bent);
        let (places, weights) = (places.as_chunks::<4>().0, weights.as_chunks::<4>().0);
        for (number, row) in matrix.chunks_exact_mut((g.channels * taps).max(1)).enumerate() {
            for tap in 0..taps {
                let mut channel = 0;
                while channel < g.channels {
                    let (group, bent) = (channel / inner, channel / sharing);
                    let end = ((group + 1) * inner).min((bent + 1) * sharing);
                    let entry = (bent * taps + tap) * tile + first + number;
                    let target = &mut row[(group * taps + tap) * inner + channel % inner..][..end - channel];
                    let mut corners: [(&[f32], f32); 4] = [(&[], 0.0); 4];
                    for corner in 0..4 {
                        let start = places[entry][corner] as usize * g.channels + channel;
                        corners[corner] = (&turned[start..][..target.len()], weights[entry][corner]);
                    }
                    sample(s, corners, target);
                    channel = end;
                }
            }
        }
    }
}

/// Some values of a run by its weight. What weighs nothing may lie outside: it must not make NaN of infinity.
#[inline(always)]
fn weighed<S: Simd>(s: S, (run, weight): (&[f32], f32), at: usize, count: usize) -> S::F {
    if weight == 0.0 {
        return s.splat(0.0);
    }
    let run = &run[at..at + count];
    // SAFETY: the run has `count` values.
    s.mul(unsafe { s.load_first(run.as_ptr(), count) }, s.splat(weight))
}

/// The sum of four runs, each by its weight.
#[inline(always)]
fn sample<S: Simd>(s: S, corners: [(&[f32], f32); 4], target: &mut [f32]) {
    for at in (0..target.len()).step_by(S::LANES) {
        let count = S::LANES.min(target.len() - at);
        // Calls of functions that do not take on the instruction set, such as `map` of arrays, would cost more than sums.
        let (a, b) = (weighed(s, corners[0], at, count), weighed(s, corners[1], at, count));
        let (c, d) = (weighed(s, corners[2], at, count), weighed(s, corners[3], at, count));
        // SAFETY: the target has `count` places from here on.
        unsafe { s.store_first(target.as_mut_ptr().add(at), s.add(s.add(a, b), s.add(c, d)), count) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    fn expected(
        g: &DeformableGeometry,
        data: &[f32],
        offsets: &[f32],
        filter: &[f32],
        mask: Option<&[f32]>,
    ) -> Vec<f64> {
        let (taps, windows, plane) = (g.taps(), g.windows(), g.input[0] * g.input[1]);
        let inner = g.channels / g.groups;
        let mut result = vec![0.0; g.batch * g.outputs * windows];
        for (place, target) in result.iter_mut().enumerate() {
            let (image, output, window) = (place / (g.outputs * windows), place / windows % g.outputs, place % windows);
            for (c, tap) in (0..inner).flat_map(|c| (0..taps).map(move |tap| (c, tap))) {
                let channel = output / (g.outputs / g.groups) * inner + c;
                let bend = (image * g.bent + channel / (g.channels / g.bent)) * taps + tap;
                let position = |axis: usize, window: usize, k: usize| {
                    (window * g.stride[axis] + k * g.dilation[axis]) as f32 - g.pad_begin[axis] as f32
                        + offsets[(bend * 2 + axis) * windows + place % windows]
                };
                let rows = neighbours(position(0, window / g.output[1], tap / g.kernel[1]), g.input[0], g.fades);
                let columns = neighbours(position(1, window % g.output[1], tap % g.kernel[1]), g.input[1], g.fades);
                let mut sample = 0.0;
                for ((row, down), (column, across)) in rows.iter().flat_map(|r| columns.iter().map(move |c| (r, c))) {
                    let value = data[(image * g.channels + channel) * plane + row * g.input[1] + column];
                    sample += f64::from(value) * f64::from(*down) * f64::from(*across);
                }
                let factor = mask.map_or(1.0, |mask| mask[bend * windows + window]);
                *target += sample * f64::from(factor) * f64::from(filter[(output * inner + c) * taps + tap]);
            }
        }
        result
    }

    #[test]
    fn any_geometry() {
        let mut random = Random::new(31);
        for round in 0..16 {
            let (groups, bent) = (random.between(1, 2), random.between(1, 2));
            let channels = 2 * random.between(1, 4);
            let output = [random.between(1, 12), random.between(1, 12)];
            let g = DeformableGeometry {
                batch: random.between(1, 2),
                channels,
                outputs: groups * random.between(1, 5),
                groups,
                bent,
                input: [random.between(1, 12), random.between(1, 12)],
                output,
                kernel: [random.between(1, 3), random.between(1, 3)],
                stride: [random.between(1, 2), 1],
                dilation: [1, random.between(1, 2)],
                pad_begin: [random.between(0, 1) as i64, -(random.between(0, 1) as i64)],
                fades: round % 2 == 0,
            };
            let bends = g.batch * g.bent * g.taps() * g.windows();
            let data = random.values(g.batch * channels * g.input[0] * g.input[1]);
            let offsets: Vec<f32> = random.values(bends * 2).iter().map(|x| x * 3.0).collect();
            let filter = random.values(g.outputs * (channels / groups) * g.taps());
            let mask = random.values(bends);
            let mask = if round % 3 == 0 { None } else { Some(&mask[..]) };
            let expected = expected(&g, &data, &offsets, &filter, mask);
            for isa in Isa::available() {
                let run = || {
                    let mut result = vec![f32::NAN; expected.len()];
                    let (places, scratch) = deformable_scratch_len(isa, &g);
                    let (mut places, mut scratch) = (vec![7; places], vec![f32::NAN; scratch]);
                    let inputs = [&data[..], &offsets, &filter];
                    deformable_convolution(isa, &g, inputs, mask, &mut result, &mut places, &mut scratch).unwrap();
                    result
                };
                assert_close(&run(), &expected, g.taps() * channels, "deformable");
                assert_eq!(run(), in_pool(2, run));
            }
        }
    }

    #[test]
    fn places_at_the_borders() {
        assert_eq!(neighbours(-0.5, 4, true), [(0, 0.0), (0, 0.5)]);
        assert_eq!(neighbours(-0.5, 4, false), [(0, 0.0); 2]);
        assert_eq!(neighbours(3.25, 4, true), [(3, 0.75), (0, 0.0)]);
        assert_eq!(neighbours(3.25, 4, false), [(3, 0.75), (3, 0.25)]);
        assert_eq!(neighbours(4.0, 4, true), [(0, 0.0); 2]);
        assert_eq!(neighbours(f32::NAN, 4, true), [(0, 0.0); 2]);
    }
}
