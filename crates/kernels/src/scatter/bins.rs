//! Sorting updates by the piece of the output that they go to.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::number::Number32;
use super::source::{Resolved, Source};
use super::{BIN_BYTES, FEW_BYTES, TILE, out_of_range};
use crate::error::KernelError;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, parallel_for, threads};

/// The most bins; sorting into more of them would miss the caches.
const MOST_BINS: usize = 1024;

/// The most chunks of updates that are sorted into bins on their own.
const MOST_CHUNKS: usize = 64;

/// Tensors up to this size stay in the last-level cache.
const CACHE_BYTES: usize = 1 << 23;

/// The units that move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Units {
    /// The rows of the data.
    pub rows: usize,
    /// The elements of a row.
    pub inner: usize,
    /// The rows of the updates.
    pub count: usize,
}

/// The sizes of a scatter by bins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bins {
    units: Units,
    width: usize,
    sorted: bool,
    /// A bin covers `1 << shift` rows.
    shift: u32,
    bins: usize,
    /// The updates of a chunk.
    chunk: usize,
    chunks: usize,
}

impl Bins {
    /// The sizes for elements of `width` bytes; `sorted` tells that the updates of a bin must be sorted by place.
    pub fn new(units: &Units, width: usize, sorted: bool) -> Bins {
        let row = (units.inner * width).max(1);
        let mut shift = (BIN_BYTES / row).max(1).ilog2();
        while units.rows.div_ceil(1 << shift) > MOST_BINS {
            shift += 1;
        }
        let bins = units.rows.div_ceil(1 << shift).max(1);
        let chunk = units.count.div_ceil(MOST_CHUNKS).max(8 * TILE).max(bins).next_multiple_of(TILE);
        Bins { units: *units, width, sorted, shift, bins, chunk, chunks: units.count.div_ceil(chunk).max(1) }
    }

    /// Whether sorting the updates into bins may pay, or is needed.
    pub fn pays(&self) -> bool {
        self.sorted || (self.bins > 1 && self.units.count * self.units.inner * self.width >= FEW_BYTES)
    }

    /// Whether it pays on the threads at hand: one thread alone finds random places fast enough in a tensor that a
    /// last-level cache holds. The result is the same either way.
    pub fn pays_here(&self) -> bool {
        let bytes = self.units.rows * self.units.inner * self.width;
        self.sorted || (self.pays() && (threads() > 1 || bytes > CACHE_BYTES))
    }

    /// The bytes of scratch for [`by_bins`].
    pub fn scratch_len(&self) -> usize {
        if !self.pays() || self.units.count == 0 {
            return 0;
        }
        // An update is sorted as the element itself, or as the number of its row.
        let value = if self.units.inner == 1 { self.width } else { 4 };
        let copies = if self.sorted { 2 } else { 1 };
        4 * (self.chunks * self.bins + self.bins + 1 + self.units.count) + copies * self.units.count * (4 + value)
    }

    fn rows_of(&self, bin: usize) -> Range<usize> {
        bin << self.shift..self.units.rows.min((bin + 1) << self.shift)
    }

    fn bin_of(&self, place: Number32) -> usize {
        (u32::from_ne_bytes(place) >> self.shift) as usize
    }

    fn work_nanoseconds(&self, copies: bool) -> u64 {
        let copied = if copies { self.units.rows } else { 0 };
        nanoseconds_for_bytes((2 * copied + 3 * self.units.count) * self.units.inner * self.width)
            + 4 * self.units.count as u64
    }
}

/// What is done with the updates of a piece of the output.
pub(super) trait Piece<const N: usize, const V: usize>: Sync {
    /// What is sorted for an update.
    fn value(&self, update: usize) -> [u8; V];
    /// Applies sorted updates to the piece that begins at row `base`.
    fn apply(&self, target: &mut [[u8; N]], base: u32, places: &[Number32], values: &[[u8; V]]);
    /// Applies updates that did not need sorting.
    fn apply_range(&self, target: &mut [[u8; N]], base: u32, source: &Resolved<'_>, updates: Range<usize>);
}

/// Sorts the updates into bins, then copies `data` to `output` and applies the updates bin after bin.
///
/// # Errors
/// An index addresses nothing; nothing is written then.
pub(super) fn by_bins<const N: usize, const V: usize>(
    bins: &Bins,
    source: &dyn Source,
    data: Option<&[[u8; N]]>,
    output: &mut [[u8; N]],
    scratch: &mut [u8],
    piece: &impl Piece<N, V>,
) -> Result<(), KernelError> {
    let count = bins.units.count;
    let (starts, scratch) = scratch.split_at_mut(4 * (bins.bins + 1));
    let (counters, scratch) = scratch.split_at_mut(4 * bins.chunks * bins.bins);
    let (resolved, scratch) = scratch.split_at_mut(4 * count);
    let (places, scratch) = scratch.split_at_mut(4 * count);
    let (values, spare) = scratch.split_at_mut(V * count);
    let (starts, counters) = (starts.as_chunks_mut().0, counters.as_chunks_mut().0);
    let (places, values) = (places.as_chunks_mut().0, values.as_chunks_mut().0);
    let resolved = resolved.as_chunks_mut().0;
    let in_order = count_bins(bins, source, counters, resolved)? && !bins.sorted;
    add_up(bins, counters, starts);
    let resolved = Resolved(resolved);
    if !in_order {
        sort_into_bins(bins, &resolved, &|update| piece.value(update), counters, places, values);
    }
    let (output, places, values, spare) =
        (SharedMut::new(output), SharedMut::new(places), SharedMut::new(values), SharedMut::new(spare));
    let (inner, starts) = (bins.units.inner, &*starts);
    parallel_for(bins.bins, 1, bins.work_nanoseconds(data.is_some()), |range| {
        for bin in range {
            let rows = bins.rows_of(bin);
            let elements = rows.start * inner..rows.end * inner;
            let updates = u32::from_ne_bytes(starts[bin]) as usize..u32::from_ne_bytes(starts[bin + 1]) as usize;
            // SAFETY: bins have disjoint rows of the output, and all rows lie in it.
            let target = unsafe { output.slice(elements.clone()) };
            if let Some(data) = data {
                target.copy_from_slice(&data[elements]);
            }
            if in_order {
                piece.apply_range(target, rows.start as u32, &resolved, updates);
                continue;
            }
            // SAFETY: bins have disjoint ranges of the sorted updates, which end at their number.
            let (places, values) = unsafe { (places.slice(updates.clone()), values.slice(updates.clone())) };
            if bins.sorted && updates.len() > 1 {
                // SAFETY: as above; scratch_len counts a second copy of all updates where they are sorted.
                let spare = unsafe { spare.slice(updates.start * (4 + V)..updates.end * (4 + V)) };
                sort_by_place(rows.start as u32, bins.shift, places, values, spare);
            }
            piece.apply(target, rows.start as u32, places, values);
        }
    });
    Ok(())
}

/// Finds the places of all updates, counts how many updates of each chunk go to each bin, and tells whether the updates
/// go to the bins in their order.
fn count_bins(
    bins: &Bins,
    source: &dyn Source,
    counters: &mut [Number32],
    resolved: &mut [Number32],
) -> Result<bool, KernelError> {
    let (misfit, unordered) = (AtomicBool::new(false), AtomicBool::new(false));
    let (counters, shared) = (SharedMut::new(counters), SharedMut::new(resolved));
    parallel_for(bins.units.count, bins.chunk, 2 * bins.units.count as u64, |range| {
        let chunk = range.start / bins.chunk;
        // SAFETY: each chunk has counters and places of its own, and there are such for all chunks.
        let (counters, places) =
            unsafe { (counters.slice(chunk * bins.bins..(chunk + 1) * bins.bins), shared.slice(range.clone())) };
        counters.fill([0; 4]);
        let (mut before, mut descends) = (0, false);
        for (start, places) in range.step_by(TILE).zip(places.chunks_mut(TILE)) {
            if !source.fill(start, places) {
                misfit.store(true, Ordering::Relaxed);
            }
            for place in places {
                let bin = bins.bin_of(*place);
                increment(&mut counters[bin]);
                descends |= bin < before;
                before = bin;
            }
        }
        if descends {
            unordered.store(true, Ordering::Relaxed);
        }
    });
    if misfit.into_inner() {
        return Err(out_of_range());
    }
    let starts = (bins.chunk..bins.units.count).step_by(bins.chunk);
    let ascends =
        starts.map(|start| (resolved[start - 1], resolved[start])).all(|(a, b)| bins.bin_of(a) <= bins.bin_of(b));
    Ok(ascends && !unordered.into_inner())
}

/// Adds one and returns the value before.
fn increment(counter: &mut Number32) -> u32 {
    let before = u32::from_ne_bytes(*counter);
    *counter = (before + 1).to_ne_bytes();
    before
}

/// Turns the counters into the positions at which the updates of each chunk begin in each bin, and gives the start of
/// each bin.
fn add_up(bins: &Bins, counters: &mut [Number32], starts: &mut [Number32]) {
    let mut position = 0u32;
    for (bin, start) in starts.iter_mut().enumerate() {
        *start = position.to_ne_bytes();
        if bin == bins.bins {
            break;
        }
        for chunk in 0..bins.chunks {
            let counter = &mut counters[chunk * bins.bins + bin];
            let length = u32::from_ne_bytes(*counter);
            *counter = position.to_ne_bytes();
            position += length;
        }
    }
}

fn sort_into_bins<const V: usize>(
    bins: &Bins,
    source: &dyn Source,
    value: &(impl Fn(usize) -> [u8; V] + Sync),
    positions: &mut [Number32],
    places: &mut [Number32],
    values: &mut [[u8; V]],
) {
    let positions = SharedMut::new(positions);
    let (sorted_places, sorted_values) = (SharedMut::new(places), SharedMut::new(values));
    parallel_for(bins.units.count, bins.chunk, 6 * bins.units.count as u64, |range| {
        let chunk = range.start / bins.chunk;
        // SAFETY: each chunk has positions of its own.
        let positions = unsafe { positions.slice(chunk * bins.bins..(chunk + 1) * bins.bins) };
        let mut places = [[0; 4]; TILE];
        for start in range.clone().step_by(TILE) {
            let places = &mut places[..TILE.min(range.end - start)];
            source.fill(start, places);
            for (offset, place) in places.iter().enumerate() {
                let at = increment(&mut positions[bins.bin_of(*place)]) as usize;
                assert!(at < bins.units.count);
                // SAFETY: the counters gave every update a position of its own, and the indices, which are borrowed,
                // are the same as when they were counted.
                unsafe {
                    sorted_places.slice(at..at + 1)[0] = *place;
                    sorted_values.slice(at..at + 1)[0] = value(start + offset);
                }
            }
        }
    });
}

/// Sorts the updates of a bin by place, those of one place in the order that they have. `spare` holds as many
/// updates. A bin covers `1 << bits` rows from `base` on.
fn sort_by_place<const V: usize>(
    base: u32,
    bits: u32,
    places: &mut [Number32],
    values: &mut [[u8; V]],
    spare: &mut [u8],
) {
    const DIGIT: u32 = 8;
    let is_sorted = places.is_sorted_by_key(|place| u32::from_ne_bytes(*place));
    if is_sorted {
        return;
    }
    let (spare_places, spare_values) = spare.split_at_mut(4 * places.len());
    let (spare_places, spare_values) = (spare_places.as_chunks_mut().0, spare_values.as_chunks_mut().0);
    // An even number of passes leaves the result where it was.
    let passes = bits.div_ceil(DIGIT).next_multiple_of(2);
    for pass in 0..passes {
        let digit = |place: Number32| ((u32::from_ne_bytes(place) - base) >> (pass * DIGIT)) as usize & 0xff;
        match pass % 2 {
            0 => distribute(digit, (places, values), (spare_places, spare_values)),
            _ => distribute(digit, (spare_places, spare_values), (places, values)),
        }
    }
}

fn distribute<const V: usize>(
    digit: impl Fn(Number32) -> usize,
    from: (&[Number32], &[[u8; V]]),
    to: (&mut [Number32], &mut [[u8; V]]),
) {
    let mut positions = [0u32; 256];
    for place in from.0 {
        positions[digit(*place)] += 1;
    }
    let mut total = 0;
    for position in &mut positions {
        total += std::mem::replace(position, total);
    }
    for (place, value) in from.0.iter().zip(from.1) {
        let position = &mut positions[digit(*place)];
        to.0[*position as usize] = *place;
        to.1[*position as usize] = *value;
        *position += 1;
    }
}
