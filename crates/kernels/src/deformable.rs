//! Convolution whose windows are bent by offsets: samples become a matrix, which the filter multiplies.

use crate::epilogue::Epilogue;
use crate::error::{KernelError, check_exact, check_len, product};
use crate::gemm::{MatMulGeometry, matmul, matmul_scratch_len};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

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
        let mut geometry = MatMulGeometry::dense(self.groups, rows, inner, tile, false, false, true, true);
        geometry.c_row = self.windows();
        geometry.c_batch[3] = rows.saturating_mul(self.windows());
        geometry
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
    (table, table.saturating_add(matrix).saturating_add(left))
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
    for image in 0..g.batch {
        let data = &data[image * g.channels * plane..][..g.channels * plane];
        let bend = Bend {
            geometry,
            offsets: &offsets[image * bends * 2..][..bends * 2],
            mask: mask.map(|mask| &mask[image * bends..][..bends]),
        };
        for first in (0..windows).step_by(g.tile()) {
            let tile = g.tile().min(windows - first);
            let table = g.bent * taps * tile * 4;
            let (places, weights) = (&mut places[..table], &mut weights[..table]);
            bend.fill(first, tile, places, weights);
            let (matrix, left) = rest.split_at_mut(g.channels * taps * tile);
            columns(isa, g, tile, data, (places, weights), matrix);
            let target = &mut output[image * g.outputs * windows + first..];
            matmul(isa, &g.product(tile), filter, matrix, target, &Epilogue::default(), left)?;
        }
    }
    Ok(())
}

/// What bends the windows of an image.
struct Bend<'a> {
    geometry: &'a DeformableGeometry,
    offsets: &'a [f32],
    mask: Option<&'a [f32]>,
}

impl Bend<'_> {
    /// The four elements around each sample of some windows, and their weights; four lines for each tap.
    fn fill(&self, first: usize, tile: usize, places: &mut [u32], weights: &mut [f32]) {
        let g = self.geometry;
        let (taps, windows) = (g.taps(), g.windows());
        let work = places.len() as u64 * 2;
        let (places, weights) = (SharedMut::new(places), SharedMut::new(weights));
        parallel_for(g.bent * taps, CHUNK.div_ceil(tile), work, |range| {
            for bend in range {
                let part = bend * tile * 4..(bend + 1) * tile * 4;
                // SAFETY: each tap has a part of its own.
                let (places, weights) = unsafe { (places.slice(part.clone()), weights.slice(part)) };
                let tap = bend % taps;
                for at in 0..tile {
                    let window = first + at;
                    let position = |axis: usize, window: usize, k: usize| {
                        let start = (window * g.stride[axis] + k * g.dilation[axis]) as i64 - g.pad_begin[axis];
                        start as f32 + self.offsets[(bend * 2 + axis) * windows + first + at]
                    };
                    let y = position(0, window / g.output[1], tap / g.kernel[1]);
                    let x = position(1, window % g.output[1], tap % g.kernel[1]);
                    let factor = self.mask.map_or(1.0, |mask| mask[bend * windows + window]);
                    let (rows, columns) = (neighbours(y, g.input[0], g.fades), neighbours(x, g.input[1], g.fades));
                    for corner in 0..4 {
                        let ((row, down), (column, across)) = (rows[corner / 2], columns[corner % 2]);
                        places[corner * tile + at] = (row * g.input[1] + column) as u32;
                        weights[corner * tile + at] = down * across * factor;
                    }
                }
            }
        });
    }
}

/// The elements of an axis on both sides of a place, and their weights; those outside weigh nothing.
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

/// Samples all channels into the matrix `[channels, taps, tile]`.
fn columns(
    isa: Isa,
    g: &DeformableGeometry,
    tile: usize,
    data: &[f32],
    (places, weights): (&[u32], &[f32]),
    matrix: &mut [f32],
) {
    let (taps, plane) = (g.taps(), g.input[0] * g.input[1]);
    let work = matrix.len() as u64 * 2;
    let shared = SharedMut::new(matrix);
    parallel_for(g.channels * taps, CHUNK.div_ceil(tile), work, |range| {
        for index in range {
            let (channel, tap) = (index / taps, index % taps);
            let bend = (channel / (g.channels / g.bent) * taps + tap) * tile * 4;
            let values = &data[channel * plane..][..plane];
            let (places, weights) = (&places[bend..][..tile * 4], &weights[bend..][..tile * 4]);
            // SAFETY: each tap of each channel has a line of its own.
            let line = unsafe { shared.slice(index * tile..(index + 1) * tile) };
            dispatch(isa, Samples { values, places, weights, line });
        }
    });
}

/// One tap of one channel in all windows of a tile.
struct Samples<'a> {
    values: &'a [f32],
    places: &'a [u32],
    weights: &'a [f32],
    line: &'a mut [f32],
}

impl Kernel for Samples<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let Samples { values, places, weights, line } = self;
        let tile = line.len();
        let corner = |corner: usize, at: usize| {
            let weight = weights[corner * tile + at];
            // SAFETY: `Bend::fill` has written places of the plane, for each of the four corners.
            let value = unsafe { *values.get_unchecked(places[corner * tile + at] as usize) };
            // What weighs nothing may lie outside: it must not make NaN of infinity.
            if weight == 0.0 { 0.0 } else { value * weight }
        };
        for (at, target) in line.iter_mut().enumerate() {
            *target = (corner(0, at) + corner(1, at)) + (corner(2, at) + corner(3, at));
        }
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
