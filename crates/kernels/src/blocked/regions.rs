//! Regions of blocked feature maps: each bin of a region is a weighted sum of the lines and columns it mixes, or their
//! maximum.

use std::marker::PhantomData;

use super::{BLOCK, blocked_len, to_plain};
use crate::error::{KernelError, check_exact, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, Simd, dispatch};

/// The most bins of a region: its results lie on the stack before they are moved to their places.
pub const MOST_BINS: usize = 256;

/// Sums that a parallel chunk computes at least.
const CHUNK: usize = 1 << 12;

/// A position along an axis and its weight.
type Tap = (u32, f32);

/// How the elements of a bin become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegionPool {
    /// The weighted sum.
    Mean,
    /// The largest, NaN if any is; weights do not count, and a bin of nothing is 0.
    Max,
    /// The largest of the samples that were added by [`RegionTable::push_sample`] and of 0, NaN if any is.
    MaxOfSamples,
}

/// What the bins of regions take from one axis of the feature maps: positions and their weights, bin after bin.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RegionTable {
    /// The end of each bin among the taps.
    ends: Vec<usize>,
    taps: Vec<Tap>,
}

impl RegionTable {
    /// Forgets all bins.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.taps.clear();
    }

    /// Adds a position to the bin that is being made. Weights of a position that comes again soon are summed up.
    ///
    /// # Errors
    /// The position does not fit into 32 bits.
    pub fn push(&mut self, position: usize, weight: f32) -> Result<(), KernelError> {
        let tap = u32::try_from(position).map_err(|_| KernelError::invalid("position", "does not fit into 32 bits"))?;
        let start = self.ends.last().copied().unwrap_or(0).max(self.taps.len().saturating_sub(2));
        match self.taps[start..].iter_mut().find(|(known, _)| *known == tap) {
            Some((_, sum)) => *sum += weight,
            None => self.taps.push((tap, weight)),
        }
        Ok(())
    }

    /// Adds a sample between two positions to the bin that is being made, which holds nothing but samples then.
    ///
    /// # Errors
    /// A position does not fit into 32 bits.
    pub fn push_sample(&mut self, positions: [usize; 2], weights: [f32; 2]) -> Result<(), KernelError> {
        for (position, weight) in positions.into_iter().zip(weights) {
            let tap = u32::try_from(position);
            let tap = tap.map_err(|_| KernelError::invalid("position", "does not fit into 32 bits"))?;
            self.taps.push((tap, weight));
        }
        Ok(())
    }

    /// Ends a bin, whose weights are multiplied by `factor`.
    pub fn end_bin(&mut self, factor: f32) {
        let start = self.ends.last().copied().unwrap_or(0);
        self.taps[start..].iter_mut().for_each(|(_, weight)| *weight *= factor);
        self.ends.push(self.taps.len());
    }

    /// The bins made so far.
    #[must_use]
    pub fn bins(&self) -> usize {
        self.ends.len()
    }

    fn of_region(&self, region: usize, bins: usize) -> Bins<'_> {
        let first = region * bins;
        let start = if first == 0 { 0 } else { self.ends[first - 1] };
        Bins { start, ends: &self.ends[first..first + bins], taps: &self.taps }
    }

    /// Whether all positions of a region lie on an axis of `size`.
    fn lies_in(&self, region: usize, bins: usize, size: usize) -> bool {
        let Bins { start, ends, taps } = self.of_region(region, bins);
        let end = ends.last().copied().unwrap_or(start);
        taps[start..end].iter().all(|(position, _)| (*position as usize) < size)
    }
}

/// A feature map of one image: blocks of channels, `[channels / 16, height, width, 16]`.
#[derive(Debug, Clone, Copy)]
pub struct RegionMap<'a> {
    /// Lines of the map.
    pub height: usize,
    /// Columns of the map.
    pub width: usize,
    /// The values.
    pub values: &'a [f32],
}

/// The bins of one region.
#[derive(Clone, Copy)]
struct Bins<'a> {
    start: usize,
    ends: &'a [usize],
    taps: &'a [Tap],
}

/// Writes the plain `[regions, channels, bins, bins]` of regions of feature maps, which have so many channels. `of_region`
/// tells the map of each region; `rows` and `columns` have `bins[0]` and `bins[1]` bins for each.
///
/// # Errors
/// A slice or a table does not fit, a region lies outside of its map, or there are more than [`MOST_BINS`] bins.
pub fn blocked_regions(
    isa: Isa,
    pool: RegionPool,
    channels: usize,
    maps: &[RegionMap<'_>],
    of_region: &[usize],
    bins: [usize; 2],
    (rows, columns): (&RegionTable, &RegionTable),
    output: &mut [f32],
) -> Result<(), KernelError> {
    let count = product("bins", &bins)?;
    if count > MOST_BINS {
        return Err(KernelError::invalid("bins", "are too many"));
    }
    if rows.bins() != product("rows", &[of_region.len(), bins[0]])?
        || columns.bins() != product("columns", &[of_region.len(), bins[1]])?
    {
        return Err(KernelError::invalid("rows", "are not those of the regions"));
    }
    for map in maps {
        check_exact("maps", map.values.len(), blocked_len(1, channels, product("maps", &[map.height, map.width])?))?;
    }
    let lies_in = |(region, map): (usize, &usize)| {
        let map = maps.get(*map)?;
        Some(rows.lies_in(region, bins[0], map.height) && columns.lies_in(region, bins[1], map.width))
    };
    if !of_region.iter().enumerate().all(|region| lies_in(region) == Some(true)) {
        return Err(KernelError::invalid("of_region", "have no such place"));
    }
    check_exact("output", output.len(), product("output", &[of_region.len(), channels, count])?)?;
    if output.is_empty() {
        return Ok(());
    }
    let blocks = channels.div_ceil(BLOCK);
    let work = output.len() as u64;
    let shared = SharedMut::new(output);
    parallel_for(of_region.len() * blocks, CHUNK.div_ceil(count * BLOCK), work, |range| {
        let mut results = [0.0; MOST_BINS * BLOCK];
        for index in range {
            let (region, block) = (index / blocks, index % blocks);
            let RegionMap { height, width, values } = maps[of_region[region]];
            let plane = height * width * BLOCK;
            let values = &values[block * plane..][..plane];
            let (rows, columns) = (rows.of_region(region, bins[0]), columns.of_region(region, bins[1]));
            macro_rules! pool {
                ($pool:ty) => {
                    dispatch(
                        isa,
                        Region::<$pool> { pool: PhantomData, values, width, rows, columns, results: &mut results },
                    )
                };
            }
            match pool {
                RegionPool::Mean => pool!(Mean),
                RegionPool::Max => pool!(Max),
                RegionPool::MaxOfSamples => pool!(MaxOfSamples),
            }
            let first = region * channels + block * BLOCK;
            let lanes = BLOCK.min(channels - block * BLOCK);
            // SAFETY: the channels of a block of a region are no other's.
            let target = unsafe { shared.slice(first * count..(first + lanes) * count) };
            let moved = to_plain(1, lanes, count, &results[..count * BLOCK], target);
            debug_assert!(moved.is_ok());
        }
    });
    Ok(())
}

/// How a bin is pooled.
trait Pool {
    /// The result in a vector of channels, the first of which `values` points to at the first place of the map.
    ///
    /// # Safety
    /// The map has all places that the taps name, in lines of `width`, and a block of channels at each.
    unsafe fn of_bin<S: Simd>(s: S, values: *const f32, width: usize, lines: &[Tap], places: &[Tap]) -> S::F;
}

/// All bins of a region in one block of channels.
struct Region<'a, P> {
    pool: PhantomData<P>,
    values: &'a [f32],
    width: usize,
    rows: Bins<'a>,
    columns: Bins<'a>,
    results: &'a mut [f32; MOST_BINS * BLOCK],
}

impl<P: Pool> Kernel for Region<'_, P> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Region { values, width, rows, columns, results, .. } = self;
        let mut target = results.as_chunks_mut::<BLOCK>().0.iter_mut();
        let mut row = rows.start;
        for row_end in rows.ends {
            let mut column = columns.start;
            for column_end in columns.ends {
                let Some(target) = target.next() else { return };
                let (lines, places) = (&rows.taps[row..*row_end], &columns.taps[column..*column_end]);
                for lane in (0..BLOCK).step_by(S::LANES) {
                    // SAFETY: the tables were checked to name places of the map, which has so many values, and the lanes of
                    // one bin lie in the array.
                    unsafe {
                        let result = P::of_bin(s, values.as_ptr().add(lane), width, lines, places);
                        s.store(target.as_mut_ptr().add(lane), result);
                    }
                }
                column = *column_end;
            }
            row = *row_end;
        }
    }
}

/// [`RegionPool::Mean`].
struct Mean;

impl Pool for Mean {
    #[inline(always)]
    unsafe fn of_bin<S: Simd>(s: S, values: *const f32, width: usize, lines: &[Tap], places: &[Tap]) -> S::F {
        let mut sum = s.splat(0.0);
        for (y, weight) in lines {
            let line = *y as usize * width;
            let mut mixed = s.splat(0.0);
            for (x, weight) in places {
                // SAFETY: the caller's promise.
                let value = unsafe { s.load(values.add((line + *x as usize) * BLOCK)) };
                mixed = s.fma(value, s.splat(*weight), mixed);
            }
            sum = s.fma(mixed, s.splat(*weight), sum);
        }
        sum
    }
}

/// [`RegionPool::Max`].
struct Max;

impl Pool for Max {
    #[inline(always)]
    unsafe fn of_bin<S: Simd>(s: S, values: *const f32, width: usize, lines: &[Tap], places: &[Tap]) -> S::F {
        let nothing = if lines.is_empty() || places.is_empty() { 0.0 } else { f32::NEG_INFINITY };
        let mut best = s.splat(nothing);
        for (y, _) in lines {
            let line = *y as usize * width;
            for (x, _) in places {
                // SAFETY: the caller's promise.
                let value = unsafe { s.load(values.add((line + *x as usize) * BLOCK)) };
                best = s.select(s.is_nan(value), value, s.max(value, best));
            }
        }
        best
    }
}

/// [`RegionPool::MaxOfSamples`].
struct MaxOfSamples;

impl Pool for MaxOfSamples {
    #[inline(always)]
    unsafe fn of_bin<S: Simd>(s: S, values: *const f32, width: usize, lines: &[Tap], places: &[Tap]) -> S::F {
        let mut best = s.splat(0.0);
        for [(top, near), (bottom, far)] in lines.as_chunks::<2>().0 {
            let (above, below) = (*top as usize * width, *bottom as usize * width);
            for [(left, here), (right, there)] in places.as_chunks::<2>().0 {
                let (left, right) = (*left as usize, *right as usize);
                // SAFETY: the caller's promise.
                let (a, b, c, d) = unsafe {
                    (
                        s.load(values.add((above + left) * BLOCK)),
                        s.load(values.add((above + right) * BLOCK)),
                        s.load(values.add((below + left) * BLOCK)),
                        s.load(values.add((below + right) * BLOCK)),
                    )
                };
                let (here, there) = (s.splat(*here), s.splat(*there));
                let (upper, lower) = (s.fma(b, there, s.mul(a, here)), s.fma(d, there, s.mul(c, here)));
                let value = s.fma(lower, s.splat(*far), s.mul(upper, s.splat(*near)));
                best = s.select(s.is_nan(value), value, s.max(value, best));
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocked::from_plain;
    use crate::testing::{Random, assert_close, in_pool};
    use pretty_assertions::assert_eq;

    fn table(bins: &[&[(usize, f32)]]) -> RegionTable {
        let mut table = RegionTable::default();
        for bin in bins {
            bin.iter().for_each(|(position, weight)| table.push(*position, *weight).unwrap());
            table.end_bin(0.5);
        }
        table
    }

    #[test]
    fn greatest_samples_are_those_of_planes() {
        let shape @ [batch, channels, height, width] = [2, 21, 6, 5];
        let mut random = Random::new(12);
        let (regions, bins) = (7, [2, 3]);
        let mut plain = random.values(shape.iter().product());
        plain[100] = f32::NAN;
        let mut blocked = vec![f32::NAN; blocked_len(batch, channels, height * width)];
        from_plain(batch, channels, height * width, &plain, &mut blocked).unwrap();
        let maps: Vec<RegionMap<'_>> =
            blocked.chunks_exact(blocked.len() / batch).map(|values| RegionMap { height, width, values }).collect();
        let images: Vec<usize> = (0..regions).map(|region| region % batch).collect();
        let mut samples = |bins: usize, size: usize| {
            let mut table = RegionTable::default();
            let lists: Vec<Vec<(usize, f32)>> = (0..regions * bins)
                .map(|_| {
                    let list = (0..random.between(0, 3))
                        .map(|_| (random.between(0, size - 2), random.value().abs().min(1.0)))
                        .collect::<Vec<_>>();
                    for (first, weight) in &list {
                        table.push_sample([*first, first + 1], [1.0 - weight, *weight]).unwrap();
                    }
                    table.end_bin(1.0);
                    list
                })
                .collect();
            (table, lists)
        };
        let ((rows, lines), (columns, places)) = (samples(bins[0], height), samples(bins[1], width));
        let mut expected = Vec::new();
        for (region, image) in images.iter().enumerate() {
            for (channel, bin) in
                (0..channels).flat_map(|channel| (0..bins[0] * bins[1]).map(move |bin| (channel, bin)))
            {
                let mut best = 0.0f64;
                for (y, down) in &lines[region * bins[0] + bin / bins[1]] {
                    for (x, across) in &places[region * bins[1] + bin % bins[1]] {
                        let value = |y: usize, x: usize| {
                            f64::from(plain[((image * channels + channel) * height + y) * width + x])
                        };
                        let (down, across) = (f64::from(*down), f64::from(*across));
                        let line = |y: usize| value(y, *x) * (1.0 - across) + value(y, x + 1) * across;
                        let value = line(*y) * (1.0 - down) + line(y + 1) * down;
                        if value > best || value.is_nan() {
                            best = value;
                        }
                    }
                }
                expected.push(best);
            }
        }
        let known = |values: &[f32]| values.iter().map(|x| if x.is_nan() { 77.0 } else { *x }).collect::<Vec<f32>>();
        let expected: Vec<f64> = expected.iter().map(|x| if x.is_nan() { 77.0 } else { *x }).collect();
        for isa in Isa::available() {
            let run = || {
                let mut output = vec![f32::NAN; expected.len()];
                let (tables, pool) = ((&rows, &columns), RegionPool::MaxOfSamples);
                blocked_regions(isa, pool, channels, &maps, &images, bins, tables, &mut output).unwrap();
                known(&output)
            };
            assert_close(&run(), &expected, 4, "samples");
            assert_eq!(run(), in_pool(2, run));
        }
    }

    #[test]
    fn means_are_those_of_planes() {
        let shape @ [batch, channels, height, width] = [2, 21, 4, 5];
        let rows: [&[(usize, f32)]; 6] =
            [&[(0, 0.5), (1, 0.5), (1, 1.0)], &[(3, 1.0)], &[], &[(2, 2.0)], &[(0, 1.0), (3, 1.0)], &[(1, 1.0)]];
        let columns: [&[(usize, f32)]; 3] = [&[(4, 1.0), (0, 0.25)], &[(2, 1.0)], &[(1, 0.5), (2, 0.5)]];
        let images = [1, 0, 1];
        let plain = Random::new(5).values(shape.iter().product());
        let mut blocked = vec![f32::NAN; blocked_len(batch, channels, height * width)];
        from_plain(batch, channels, height * width, &plain, &mut blocked).unwrap();
        let maps: Vec<RegionMap<'_>> =
            blocked.chunks_exact(blocked.len() / batch).map(|values| RegionMap { height, width, values }).collect();
        let mut expected = Vec::new();
        for (region, image) in images.iter().enumerate() {
            for (channel, bin) in (0..channels).flat_map(|channel| (0..2).map(move |bin| (channel, bin))) {
                let mut sum = 0.0;
                for (y, row) in rows[region * 2 + bin] {
                    for (x, column) in columns[region] {
                        let place = ((image * channels + channel) * height + y) * width + x;
                        sum += f64::from(plain[place]) * f64::from(row * column) * 0.25;
                    }
                }
                expected.push(sum);
            }
        }
        let (rows, columns) = (table(&rows), table(&columns));
        for isa in Isa::available() {
            let run = || {
                let mut output = vec![f32::NAN; expected.len()];
                let tables = (&rows, &columns);
                blocked_regions(isa, RegionPool::Mean, channels, &maps, &images, [2, 1], tables, &mut output).unwrap();
                output
            };
            assert_close(&run(), &expected, 4, "regions");
            assert_eq!(run(), in_pool(2, run));
        }
    }

    #[test]
    fn maxima_are_those_of_planes() {
        let (channels, height, width) = (21, 4, 5);
        let mut plain = Random::new(6).values(channels * height * width);
        plain[7] = f32::NAN;
        let mut blocked = vec![f32::NAN; blocked_len(1, channels, height * width)];
        from_plain(1, channels, height * width, &plain, &mut blocked).unwrap();
        let rows = table(&[&[(0, 1.0), (1, 1.0), (2, 1.0)], &[]]);
        let columns = table(&[&[(1, 1.0), (2, 1.0)], &[(4, 1.0)]]);
        for isa in Isa::available() {
            let mut output = vec![9.0; channels * 4];
            let map = RegionMap { height, width, values: &blocked };
            blocked_regions(isa, RegionPool::Max, channels, &[map], &[0], [2, 2], (&rows, &columns), &mut output)
                .unwrap();
            for channel in 0..channels {
                let at = |y: usize, x: usize| plain[(channel * height + y) * width + x];
                let left = (0..3)
                    .flat_map(|y| [at(y, 1), at(y, 2)])
                    .fold(f32::NEG_INFINITY, |best, value| if best.is_nan() || best >= value { best } else { value });
                let right = (0..3).map(|y| at(y, 4)).fold(f32::NEG_INFINITY, f32::max);
                let found = &output[channel * 4..][..4];
                assert!(found[0] == left || (found[0].is_nan() && left.is_nan()));
                assert_eq!(found[1..], [right, 0.0, 0.0]);
            }
        }
    }

    #[test]
    fn misfits_are_errors() {
        let (rows, columns) = (table(&[&[(1, 1.0)]]), table(&[&[(2, 1.0)]]));
        let run = |[batch, channels, height, width]: [usize; 4], images: &[usize], bins: [usize; 2]| {
            let values = vec![0.0; blocked_len(1, channels, height * width)];
            let maps = vec![RegionMap { height, width, values: &values }; batch];
            let mut output = vec![0.0; images.len() * channels * bins[0] * bins[1]];
            let tables = (&rows, &columns);
            blocked_regions(Isa::portable(), RegionPool::Mean, channels, &maps, images, bins, tables, &mut output)
        };
        assert!(run([1, 3, 2, 3], &[0], [1, 1]).is_ok());
        assert!(run([1, 3, 2, 3], &[1], [1, 1]).is_err());
        assert!(run([1, 3, 1, 3], &[0], [1, 1]).is_err());
        assert!(run([1, 3, 2, 2], &[0], [1, 1]).is_err());
        assert!(run([1, 3, 2, 3], &[0, 0], [1, 1]).is_err());
        assert!(run([1, 3, 2, 3], &[0], [1, 257]).is_err());
        let short = RegionMap { height: 2, width: 3, values: &[0.0; 95] };
        let tables = (&rows, &columns);
        assert!(
            blocked_regions(Isa::portable(), RegionPool::Mean, 3, &[short], &[0], [1, 1], tables, &mut [0.0; 3])
                .is_err()
        );
    }
}
