//! Sorting updates by the piece of the output that they go to.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use super::number::Number32;
use super::source::{Resolved, Source};
use super::{BIN_BYTES, FEW_BYTES, TILE, out_of_range};
use crate::error::KernelError;
use crate::parallel::{SharedMut, may_fork, nanoseconds_for_bytes, parallel_for};

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

    /// Whether sorting the updates into bins may pay, or is needed. Single elements are found faster than sorted if they are
    /// fetched ahead.
    pub fn pays(&self) -> bool {
        let are_many = self.units.count * self.units.inner * self.width >= FEW_BYTES;
        self.sorted || (self.units.inner > 1 && self.bins > 1 && are_many)
    }

    /// Whether it pays on the threads at hand: in a tensor that a last-level cache holds, one thread alone finds random
    /// rows fast enough. The result is the same either way.
    pub fn pays_here(&self) -> bool {
        let bytes = self.units.rows * self.units.inner * self.width;
        self.sorted || (self.pays() && (may_fork() || bytes > CACHE_BYTES))
    }

    /// The bytes of scratch for [`by_bins`].
    pub fn scratch_len(&self) -> usize {
        if !self.pays() || self.units.count == 0 {
            return 0;
        }
        // An update is sorted as its place and the element itself, or the number of its row.
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
    let (items, spare) = scratch.split_at_mut((4 + V) * count);
    let (starts, counters) = (starts.as_chunks_mut().0, counters.as_chunks_mut().0);
    let resolved = resolved.as_chunks_mut().0;
    let in_order = count_bins(bins, source, counters, resolved)? && !bins.sorted;
    add_up(bins, counters, starts);
    let resolved = Resolved(resolved);
    if !in_order {
        sort_into_bins(bins, &resolved, &|update| piece.value(update), counters, items);
    }
    let (output, items, spare) = (SharedMut::new(output), SharedMut::new(items), SharedMut::new(spare));
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
            let bytes = updates.start * (4 + V)..updates.end * (4 + V);
            // SAFETY: bins have disjoint ranges of the sorted updates, which end at their number.
            let items = unsafe { items.slice(bytes.clone()) };
            if bins.sorted {
                // SAFETY: as above; scratch_len counts a second copy of all updates where they are sorted.
                let spare = unsafe { spare.slice(bytes) };
                sort_by_place::<V>(rows.start as u32, bins.shift, items, spare);
                let (places, values) = spare.split_at_mut(4 * updates.len());
                let (places, values) = (places.as_chunks_mut().0, values.as_chunks_mut().0);
                take_apart(items, places, values);
                piece.apply(target, rows.start as u32, places, values);
                continue;
            }
            let (mut places, mut values) = ([[0; 4]; TILE], [[0; V]; TILE]);
            for items in items.chunks(TILE * (4 + V)) {
                let count = items.len() / (4 + V);
                take_apart(items, &mut places[..count], &mut values[..count]);
                piece.apply(target, rows.start as u32, &places[..count], &values[..count]);
            }
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

/// Sorts updates stably by bin. An item is a place and then a value, so that it is written at once.
fn sort_into_bins<const V: usize>(
    bins: &Bins,
    source: &dyn Source,
    value: &(impl Fn(usize) -> [u8; V] + Sync),
    positions: &mut [Number32],
    items: &mut [u8],
) {
    let (positions, items) = (SharedMut::new(positions), SharedMut::new(items));
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
                let item = unsafe { items.slice(at * (4 + V)..(at + 1) * (4 + V)) };
                item[..4].copy_from_slice(place);
                item[4..].copy_from_slice(&value(start + offset));
            }
        }
    });
}

/// Splits items into places and values.
fn take_apart<const V: usize>(items: &[u8], places: &mut [Number32], values: &mut [[u8; V]]) {
    for ((place, value), item) in places.iter_mut().zip(values).zip(items.chunks_exact(4 + V)) {
        place.copy_from_slice(&item[..4]);
        value.copy_from_slice(&item[4..]);
    }
}

/// The place of an item.
#[inline(always)]
fn place_of(item: &[u8]) -> u32 {
    item.first_chunk().map_or(0, |place| u32::from_ne_bytes(*place))
}

/// Sorts the items of a bin by place, those of one place in the order that they have. `spare` holds as many items. A bin
/// covers `1 << bits` rows from `base` on.
fn sort_by_place<const V: usize>(base: u32, bits: u32, items: &mut [u8], spare: &mut [u8]) {
    const DIGIT: u32 = 8;
    if items.chunks_exact(4 + V).is_sorted_by_key(place_of) {
        return;
    }
    // An even number of passes leaves the result where it was.
    let passes = bits.div_ceil(DIGIT).next_multiple_of(2);
    for pass in 0..passes {
        let digit = |item: &[u8]| ((place_of(item) - base) >> (pass * DIGIT)) as usize & 0xff;
        match pass % 2 {
            0 => distribute::<V>(digit, items, spare),
            _ => distribute::<V>(digit, spare, items),
        }
    }
}

fn distribute<const V: usize>(digit: impl Fn(&[u8]) -> usize, from: &[u8], to: &mut [u8]) {
    let mut positions = [0u32; 256];
    for item in from.chunks_exact(4 + V) {
        positions[digit(item)] += 1;
    }
    let mut total = 0;
    for position in &mut positions {
        total += std::mem::replace(position, total);
    }
    for item in from.chunks_exact(4 + V) {
        let position = &mut positions[digit(item)];
        to[*position as usize * (4 + V)..][..4 + V].copy_from_slice(item);
        *position += 1;
    }
}
