//! The largest or smallest elements along an axis.
//!
//! An element becomes a key of 64 bits: its rank, and below it the complement of its place, so that keys are distinct and of equal
//! elements the first has the greatest key. Keys are collected as long as they are greater than the least of the best so far.
//! Of neighbouring lines of f32, a few elements of each stay in registers with their places instead.

use crate::error::{KernelError, check_exact, check_len, product};
use crate::isa::Isa;
use crate::parallel::{SharedMut, parallel_for};
use crate::simd::{Kernel, MOST_LANES, Simd, dispatch, unrolled};

/// Elements that are looked at together.
const BLOCK: usize = 64;

/// Neighbouring lines whose best elements are collected together.
const LANES: usize = 16;

/// The most elements of each line that are collected with those of its neighbours.
const FEW: usize = 16;

/// The most elements of each line that are held in registers with those of its neighbours.
const MOST_HELD: usize = 8;

/// The longest axis that is sorted as a whole where more elements are picked of each of some neighbouring lines, and the longest
/// one where it is sorted even if those that are picked are few enough to be collected.
const MOST_SORTED: usize = 128;
const SHORT: usize = 64;

/// The pairs that sorting so many rows compares.
const MOST_PAIRS: usize = 1471;

/// The longest axis whose places are exact in f32.
const LONGEST: usize = 1 << 24;

/// Elements of the axis that a parallel chunk covers at least.
const CHUNK: usize = 1 << 13;

/// An element type whose numbers have an order in 32 bits.
pub trait Ranked: Copy + Send + Sync + 'static {
    /// Greater numbers have greater ranks; both zeros have one rank, NaN has the greatest.
    fn rank(self) -> u32;

    /// The numbers themselves if they are f32.
    #[inline(always)]
    fn floats(_line: &[Self]) -> Option<&[f32]> {
        None
    }

    /// The places of the numbers if they are f32.
    #[inline(always)]
    fn floats_mut(_line: &mut [Self]) -> Option<&mut [f32]> {
        None
    }
}

impl Ranked for f32 {
    #[inline(always)]
    fn rank(self) -> u32 {
        let bits = (self + 0.0).to_bits();
        let ordered = bits ^ ((bits as i32 >> 31) as u32 | 1 << 31);
        if self.is_nan() { u32::MAX } else { ordered }
    }

    #[inline(always)]
    fn floats(line: &[f32]) -> Option<&[f32]> {
        Some(line)
    }

    #[inline(always)]
    fn floats_mut(line: &mut [f32]) -> Option<&mut [f32]> {
        Some(line)
    }
}

macro_rules! ranked {
    ($($type:ty),*) => {
        $(impl Ranked for $type {
            #[inline(always)]
            fn rank(self) -> u32 { (i64::from(self) - <$type>::MIN as i64) as u32 }
        })*
    };
}

ranked!(i8, u8, i32);

/// An element type of indices.
pub trait Index: Copy + Send + 'static {
    /// The index as this type; it fits.
    fn of(place: usize) -> Self;
}

impl Index for i32 {
    #[inline(always)]
    fn of(place: usize) -> i32 {
        place as i32
    }
}

impl Index for i64 {
    #[inline(always)]
    fn of(place: usize) -> i64 {
        place as i64
    }
}

/// What is picked and how it is ordered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopKRule {
    /// Elements of each line that are picked, at most all.
    pub k: usize,
    /// Whether the largest are picked, not the smallest.
    pub is_largest: bool,
    /// Whether what is picked keeps the order of the line; otherwise the best comes first.
    pub keeps_order: bool,
}

/// The keys of scratch that [`top_k`] needs for `[outer, axis, inner]`.
#[must_use]
pub fn top_k_scratch_len([outer, axis, inner]: [usize; 3], k: usize) -> usize {
    let lines = outer.saturating_mul(inner);
    if k == 1 || is_by_lanes(axis, inner, k) { 0 } else { lines.div_ceil(grain(axis)).saturating_mul(room(axis, k)) }
}

/// The estimated time on one thread to pick `k` of every line of so many elements in all, in nanoseconds.
#[must_use]
pub fn top_k_nanoseconds(elements: usize, k: usize) -> u64 {
    (elements as u64).saturating_mul(1 + k.min(16) as u64 / 2)
}

/// Picks elements of every line along the middle axis of `input` `[outer, axis, inner]` into `values` and their places
/// into `indices`, both `[outer, k, inner]`. Of equal elements the first is better.
///
/// # Errors
/// A slice does not fit, or the axis is shorter than `k` or longer than i32 holds.
pub fn top_k<T: Ranked, I: Index>(
    isa: Isa,
    [outer, axis, inner]: [usize; 3],
    rule: TopKRule,
    input: &[T],
    values: &mut [T],
    indices: &mut [I],
    scratch: &mut [u64],
) -> Result<(), KernelError> {
    check_exact("input", input.len(), product("input", &[outer, axis, inner])?)?;
    let picked = product("values", &[outer, rule.k, inner])?;
    check_exact("values", values.len(), picked)?;
    check_exact("indices", indices.len(), picked)?;
    check_len("scratch", scratch.len(), top_k_scratch_len([outer, axis, inner], rule.k))?;
    if rule.k > axis || i32::try_from(axis).is_err() {
        return Err(KernelError::invalid("k", "the axis is too short or too long"));
    }
    if picked == 0 {
        return Ok(());
    }
    let work = top_k_nanoseconds(input.len(), rule.k);
    let (values, indices, scratch) = (SharedMut::new(values), SharedMut::new(indices), SharedMut::new(scratch));
    if rule.k == 1 && inner > 1 {
        let blocks = inner.div_ceil(BLOCK);
        parallel_for(outer * blocks, CHUNK.div_ceil(axis * BLOCK.min(inner)), work, |range| {
            for index in range {
                let (outer, first) = (index / blocks, index % blocks * BLOCK);
                let lanes = first..inner.min(first + BLOCK);
                let places = outer * inner + lanes.start..outer * inner + lanes.end;
                // SAFETY: each lane of each line has a place of its own.
                let (values, indices) = unsafe { (values.slice(places.clone()), indices.slice(places)) };
                let lines = &input[outer * axis * inner..][..axis * inner];
                dispatch(isa, BestOfLanes { rule, lines, inner, lanes, values, indices });
            }
        });
        return Ok(());
    }
    if is_by_lanes(axis, inner, rule.k) {
        let blocks = inner.div_ceil(LANES);
        let most_picked = if T::floats(&[]).is_some() { MOST_HELD } else { FEW };
        let fewest = if axis <= SHORT { most_picked } else { FEW };
        let is_sorted = axis <= MOST_SORTED && rule.k > fewest;
        let picked = if rule.keeps_order { rule.k } else { 0 };
        let networks = is_sorted.then(|| [Network::new(axis), Network::new(picked)]);
        parallel_for(outer * blocks, CHUNK.div_ceil(axis * LANES), work, |range| {
            let (values, indices) = (&values, &indices);
            let lanes = FewOfLanes { rule, input, axis, inner, blocks: range, values, indices };
            match &networks {
                Some(networks) => dispatch(isa, SortedLanes { lanes, networks }),
                None => dispatch(isa, lanes),
            }
        });
        return Ok(());
    }
    let (grain, room) = (grain(axis), if rule.k == 1 { 0 } else { room(axis, rule.k) });
    parallel_for(outer * inner, grain, work, |range| {
        let chunk = range.start / grain;
        // SAFETY: each chunk has a part of the scratch of its own.
        let keys = unsafe { scratch.slice(chunk * room..(chunk + 1) * room) };
        for line in range {
            let (outer, lane) = (line / inner, line % inner);
            let line = &input[outer * axis * inner + lane..][..(axis - 1) * inner + 1];
            let put = |place: usize, index: usize| {
                let place = (outer * rule.k + place) * inner + lane;
                // SAFETY: each place of each line is written by its chunk only.
                unsafe {
                    (values.slice(place..place + 1)[0], indices.slice(place..place + 1)[0]) =
                        (line[index * inner], I::of(index));
                };
            };
            if rule.k == 1 {
                put(0, dispatch(isa, BestOfLine { is_largest: rule.is_largest, line }));
                continue;
            }
            let best = dispatch(isa, Collect { rule, line, inner, axis, keys: &mut *keys });
            for (place, key) in best.iter().enumerate() {
                put(place, place_of(*key));
            }
        }
    });
    Ok(())
}

/// Whether few elements are picked of lines that lie side by side, or those are short.
fn is_by_lanes(axis: usize, inner: usize, k: usize) -> bool {
    inner >= LANES / 2 && k > 1 && (k <= FEW || axis <= MOST_SORTED)
}

/// Lines that a parallel chunk covers.
fn grain(axis: usize) -> usize {
    CHUNK.div_ceil(axis.max(1))
}

/// The keys that are collected before the worst of them are dropped.
fn room(axis: usize, k: usize) -> usize {
    axis.min(k.saturating_mul(2).max(k + BLOCK))
}

#[inline(always)]
fn rank_of<T: Ranked>(value: T, is_largest: bool) -> u32 {
    if is_largest { value.rank() } else { !value.rank() }
}

#[inline(always)]
fn key_of(rank: u32, place: usize) -> u64 {
    u64::from(rank) << 32 | u64::from(!(place as u32))
}

fn place_of(key: u64) -> usize {
    !(key as u32) as usize
}

/// The best element of each of some neighbouring lines.
struct BestOfLanes<'a, T, I> {
    rule: TopKRule,
    lines: &'a [T],
    inner: usize,
    lanes: std::ops::Range<usize>,
    values: &'a mut [T],
    indices: &'a mut [I],
}

impl<T: Ranked, I: Index> Kernel for BestOfLanes<'_, T, I> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        let (mut ranks, mut places) = ([0u32; BLOCK], [0u32; BLOCK]);
        let count = self.lanes.len();
        for (step, line) in self.lines.chunks_exact(self.inner).enumerate() {
            let line = &line[self.lanes.clone()];
            for ((rank, place), value) in ranks.iter_mut().zip(&mut places).zip(line) {
                let found = rank_of(*value, self.rule.is_largest);
                let is_better = found > *rank || step == 0;
                *rank = if is_better { found } else { *rank };
                *place = if is_better { step as u32 } else { *place };
            }
        }
        for lane in 0..count {
            let place = places[lane] as usize;
            self.values[lane] = self.lines[place * self.inner + self.lanes.start + lane];
            self.indices[lane] = I::of(place);
        }
    }
}

/// The best elements of each of some blocks of up to [`LANES`] neighbouring lines, which no one else writes.
struct FewOfLanes<'a, T, I> {
    rule: TopKRule,
    input: &'a [T],
    axis: usize,
    inner: usize,
    blocks: std::ops::Range<usize>,
    values: &'a SharedMut<'a, T>,
    indices: &'a SharedMut<'a, I>,
}

impl<T: Ranked, I: Index> Kernel for FewOfLanes<'_, T, I> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let (k, inner) = (self.rule.k, self.inner);
        let blocks_of_lines = inner.div_ceil(LANES);
        let mut best = [[0u64; LANES]; FEW];
        let mut lows = [[0u32; LANES]; FEW];
        let (best, lows) = (&mut best[..k], &mut lows[..k]);
        for block in self.blocks.clone() {
            let (outer, first) = (block / blocks_of_lines, block % blocks_of_lines * LANES);
            let lines = &self.input[outer * self.axis * inner..][..self.axis * inner];
            let lanes = first..inner.min(first + LANES);
            if self.hold(simd, outer, first) {
                continue;
            }
            self.collect(lines, lanes.clone(), best);
            for (low, best) in lows.iter_mut().zip(&*best) {
                *low = best.map(|key| key as u32);
            }
            if self.rule.keeps_order {
                // Neighbours change places, as often as the farthest may have to: the greatest come first, which are the
                // first places of the line.
                for pass in 0..k {
                    for pair in (pass % 2..k - 1).step_by(2) {
                        let [one, other] = [lows[pair], lows[pair + 1]];
                        for lane in 0..LANES {
                            lows[pair][lane] = one[lane].max(other[lane]);
                            lows[pair + 1][lane] = one[lane].min(other[lane]);
                        }
                    }
                }
            }
            self.put(block, lows);
        }
    }
}

/// The same of lines that are sorted as a whole, of at most [`MOST_SORTED`] elements.
struct SortedLanes<'a, T, I> {
    lanes: FewOfLanes<'a, T, I>,
    /// How the lines are sorted, and what is picked of them where it keeps its order.
    networks: &'a [Network; 2],
}

impl<T: Ranked, I: Index> Kernel for SortedLanes<'_, T, I> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let FewOfLanes { rule, input, axis, inner, ref blocks, .. } = self.lanes;
        let blocks_of_lines = inner.div_ceil(LANES);
        let (mut keys, mut lows) = ([[0u64; LANES]; MOST_SORTED], [[0u32; LANES]; MOST_SORTED]);
        let (keys, lows) = (&mut keys[..axis], &mut lows[..rule.k]);
        let (mut values, mut places) = ([[0f32; MOST_LANES]; MOST_SORTED], [[0f32; MOST_LANES]; MOST_SORTED]);
        let mut held = Held { values: &mut values[..axis], places: &mut places[..axis] };
        for block in blocks.clone() {
            let (outer, first) = (block / blocks_of_lines, block % blocks_of_lines * LANES);
            if self.sort_floats(simd, outer, first, &mut held) {
                continue;
            }
            let lines = input[outer * axis * inner..][..axis * inner].chunks_exact(inner);
            for (step, (keys, line)) in keys.iter_mut().zip(lines).enumerate() {
                for (key, value) in keys.iter_mut().zip(&line[first..inner.min(first + LANES)]) {
                    *key = key_of(rank_of(*value, rule.is_largest), step);
                }
            }
            self.networks[0].sort(keys);
            for (low, keys) in lows.iter_mut().zip(&*keys) {
                *low = keys.map(|key| key as u32);
            }
            if rule.keeps_order {
                // The greatest are the first places of the line.
                self.networks[1].sort(lows);
            }
            self.lanes.put(block, lows);
        }
    }
}

/// Elements of neighbouring lines and their places in them, vector by vector.
struct Held<'a> {
    values: &'a mut [[f32; MOST_LANES]],
    places: &'a mut [[f32; MOST_LANES]],
}

impl Held<'_> {
    /// Brings all pairs of a network into the order of their places, or so that greater values come first and of equal ones the
    /// first.
    #[inline(always)]
    fn sort<S: Simd>(&mut self, s: S, network: &Network, is_by_place: bool) {
        for pair in &network.pairs[..network.count] {
            let [one, other] = pair.map(usize::from);
            // SAFETY: rows have the widest vector.
            unsafe {
                let [a, b] = [one, other].map(|row| s.load(self.values[row].as_ptr()));
                let [place, other_place] = [one, other].map(|row| s.load(self.places[row].as_ptr()));
                let change = match is_by_place {
                    true => s.lt(other_place, place),
                    false => {
                        let are_equal = s.eq(a, b);
                        s.lt(s.select(are_equal, other_place, a), s.select(are_equal, place, b))
                    }
                };
                s.store(self.values[one].as_mut_ptr(), s.select(change, b, a));
                s.store(self.values[other].as_mut_ptr(), s.select(change, a, b));
                s.store(self.places[one].as_mut_ptr(), s.select(change, other_place, place));
                s.store(self.places[other].as_mut_ptr(), s.select(change, place, other_place));
            }
        }
    }
}

impl<T: Ranked, I: Index> SortedLanes<'_, T, I> {
    /// Sorts up to [`LANES`] lines from the first on in vectors; tells whether it could, which it cannot for other types than f32
    /// and lines with NaN.
    #[inline(always)]
    fn sort_floats<S: Simd>(&self, s: S, outer: usize, first: usize, held: &mut Held<'_>) -> bool {
        let FewOfLanes { rule, input, axis, inner, values, indices, .. } = self.lanes;
        let Some(floats) = T::floats(&input[outer * axis * inner..][..axis * inner]) else { return false };
        let sign = s.splat(if rule.is_largest { 1.0 } else { -1.0 });
        for first in (first..inner.min(first + LANES)).step_by(S::LANES) {
            let count = S::LANES.min(inner - first);
            let mut unordered = s.splat(0.0);
            for (step, line) in floats.chunks_exact(inner).enumerate() {
                // SAFETY: the line has so many values from there on, and rows have the widest vector.
                unsafe {
                    let values = s.mul(s.load_first(line[first..].as_ptr(), count), sign);
                    unordered = s.select(s.is_nan(values), values, unordered);
                    s.store(held.values[step].as_mut_ptr(), values);
                    s.store(held.places[step].as_mut_ptr(), s.splat(step as f32));
                }
            }
            if s.any(s.is_nan(unordered)) {
                return false;
            }
            held.sort(s, &self.networks[0], false);
            if rule.keeps_order {
                held.sort(s, &self.networks[1], true);
            }
            for (at, (row, places)) in held.values.iter().zip(&*held.places).enumerate().take(rule.k) {
                let target = (outer * rule.k + at) * inner + first;
                let target = target..target + count;
                // SAFETY: each lane of each line has places of its own.
                let (values, indices) = unsafe { (values.slice(target.clone()), indices.slice(target)) };
                let Some(values) = T::floats_mut(values) else { return false };
                let mut found = [0f32; MOST_LANES];
                // SAFETY: the slice has so many values, and rows and the array as many as the widest vector.
                unsafe {
                    s.store_first(values.as_mut_ptr(), s.mul(s.load(row.as_ptr()), sign), count);
                    s.store(found.as_mut_ptr(), s.from_bits(s.to_i(s.load(places.as_ptr()))));
                }
                for (index, found) in indices.iter_mut().zip(&found) {
                    *index = I::of(found.to_bits() as usize);
                }
            }
        }
        true
    }
}

/// The pairs of rows that Batcher's odd-even merges compare.
struct Network {
    pairs: [[u8; 2]; MOST_PAIRS],
    count: usize,
}

impl Network {
    /// Of at most [`MOST_SORTED`] rows.
    fn new(len: usize) -> Self {
        let mut network = Self { pairs: [[0; 2]; MOST_PAIRS], count: 0 };
        let mut sorted = 1;
        while sorted < len {
            let mut apart = sorted;
            while apart > 0 {
                for start in (apart % sorted..len.saturating_sub(apart)).step_by(2 * apart) {
                    for at in start..(start + apart).min(len - apart) {
                        if at / (2 * sorted) == (at + apart) / (2 * sorted) {
                            network.pairs[network.count] = [at as u8, (at + apart) as u8];
                            network.count += 1;
                        }
                    }
                }
                apart /= 2;
            }
            sorted *= 2;
        }
        network
    }

    /// Sorts every lane of the rows, the greatest first.
    #[inline(always)]
    fn sort<K: Copy + Ord>(&self, rows: &mut [[K; LANES]]) {
        for pair in &self.pairs[..self.count] {
            let [at, after] = pair.map(usize::from);
            let [one, other] = [rows[at], rows[after]];
            for lane in 0..LANES {
                rows[at][lane] = one[lane].max(other[lane]);
                rows[after][lane] = one[lane].min(other[lane]);
            }
        }
    }
}

impl<T: Ranked, I: Index> FewOfLanes<'_, T, I> {
    /// Picks the elements of up to [`LANES`] lines from the first on in registers; tells whether it could, which it cannot for
    /// more than eight elements, long axes, other types than f32 and lines with NaN.
    #[inline(always)]
    fn hold<S: Simd>(&self, s: S, outer: usize, first: usize) -> bool {
        match self.rule.k {
            2 => self.hold_some::<S, 2>(s, outer, first),
            3 => self.hold_some::<S, 3>(s, outer, first),
            4 => self.hold_some::<S, 4>(s, outer, first),
            5 => self.hold_some::<S, 5>(s, outer, first),
            6 => self.hold_some::<S, 6>(s, outer, first),
            7 => self.hold_some::<S, 7>(s, outer, first),
            8 => self.hold_some::<S, 8>(s, outer, first),
            _ => false,
        }
    }

    #[inline(always)]
    fn hold_some<S: Simd, const K: usize>(&self, s: S, outer: usize, first: usize) -> bool {
        let (axis, inner) = (self.axis, self.inner);
        let Some(floats) = T::floats(&self.input[outer * axis * inner..][..axis * inner]) else { return false };
        if axis > LONGEST {
            return false;
        }
        let sign = s.splat(if self.rule.is_largest { 1.0 } else { -1.0 });
        for first in (first..inner.min(first + LANES)).step_by(S::LANES) {
            let count = S::LANES.min(inner - first);
            // Whatever is compared with NaN is not less, so that the first elements take its places.
            let mut best = [s.splat(f32::NAN); K];
            let mut places = [s.splat(0.0); K];
            let mut unordered = s.splat(0.0);
            for (step, line) in floats.chunks_exact(inner).enumerate() {
                // SAFETY: the line has so many values from there on.
                let values = s.mul(unsafe { s.load_first(line[first..].as_ptr(), count) }, sign);
                unordered = s.select(s.is_nan(values), values, unordered);
                if K > 4 && step >= K && !s.any(s.lt(best[K - 1], values)) {
                    continue;
                }
                let place = s.from_bits(s.splat_i(step as i32));
                unrolled!(back < K => {
                    let at = K - 1 - back;
                    let (mut value, mut its_place) = (values, place);
                    if at > 0 {
                        let is_lower = s.le(values, best[at - 1]);
                        value = s.select(is_lower, values, best[at - 1]);
                        its_place = s.select(is_lower, place, places[at - 1]);
                    }
                    let stays = s.le(values, best[at]);
                    best[at] = s.select(stays, best[at], value);
                    places[at] = s.select(stays, places[at], its_place);
                });
            }
            if s.any(s.is_nan(unordered)) {
                return false;
            }
            if self.rule.keeps_order {
                // Neighbours change places, as often as the farthest may have to.
                unrolled!(pass < K => {
                    unrolled!(pair < K => {
                        if pair % 2 == pass % 2 && pair + 1 < K {
                            let [one, other] = [pair, pair + 1].map(|at| s.from_i(s.bits(places[at])));
                            let is_ordered = s.lt(one, other);
                            (best[pair], best[pair + 1]) = (
                                s.select(is_ordered, best[pair], best[pair + 1]),
                                s.select(is_ordered, best[pair + 1], best[pair]),
                            );
                            (places[pair], places[pair + 1]) = (
                                s.select(is_ordered, places[pair], places[pair + 1]),
                                s.select(is_ordered, places[pair + 1], places[pair]),
                            );
                        }
                    });
                });
            }
            unrolled!(at < K => {
                let target = (outer * K + at) * inner + first;
                // SAFETY: each lane of each line has places of its own.
                let (values, indices) =
                    unsafe { (self.values.slice(target..target + count), self.indices.slice(target..target + count)) };
                let Some(values) = T::floats_mut(values) else { return false };
                let mut found = [0f32; MOST_LANES];
                // SAFETY: the slice has so many values, the array as many as the widest vector.
                unsafe {
                    s.store_first(values.as_mut_ptr(), s.mul(best[at], sign), count);
                    s.store(found.as_mut_ptr(), places[at]);
                }
                for (index, found) in indices.iter_mut().zip(&found) {
                    *index = I::of(found.to_bits() as usize);
                }
            });
        }
        true
    }

    /// Writes the elements of a block of lines whose complements of places are given.
    #[inline(always)]
    fn put(&self, block: usize, lows: &[[u32; LANES]]) {
        let (k, inner) = (self.rule.k, self.inner);
        let blocks_of_lines = inner.div_ceil(LANES);
        let (outer, first) = (block / blocks_of_lines, block % blocks_of_lines * LANES);
        let lines = &self.input[outer * self.axis * inner..][..self.axis * inner];
        let count = LANES.min(inner - first);
        for (place, lows) in lows.iter().enumerate() {
            let target = (outer * k + place) * inner + first;
            let target = target..target + count;
            // SAFETY: each lane of each line has places of its own.
            let (values, indices) = unsafe { (self.values.slice(target.clone()), self.indices.slice(target)) };
            for (lane, (value, index)) in values.iter_mut().zip(indices).enumerate() {
                let found = place_of(u64::from(lows[lane]));
                (*value, *index) = (lines[found * inner + first + lane], I::of(found));
            }
        }
    }

    /// The keys of the best elements of the lanes, the best first.
    #[inline(always)]
    fn collect(&self, lines: &[T], lanes: std::ops::Range<usize>, best: &mut [[u64; LANES]]) {
        let is_largest = self.rule.is_largest;
        best.fill([0; LANES]);
        // The ranks of the worst of the best.
        let mut floor = [0u32; LANES];
        let mut ranks = [0u32; LANES];
        for (step, line) in lines.chunks_exact(self.inner).enumerate() {
            let line = &line[lanes.clone()];
            match <&[T; LANES]>::try_from(line) {
                // Lengths that are known make vectors.
                Ok(line) => (0..LANES).for_each(|lane| ranks[lane] = rank_of(line[lane], is_largest)),
                Err(_) => (0..line.len()).for_each(|lane| ranks[lane] = rank_of(line[lane], is_largest)),
            }
            let is_any = ranks.iter().zip(&floor).fold(false, |any, (rank, floor)| any | (rank > floor));
            if !is_any && step >= best.len() {
                continue;
            }
            let mut keys = ranks.map(|rank| key_of(rank, step));
            for best in &mut *best {
                for (key, best) in keys.iter_mut().zip(best) {
                    (*best, *key) = ((*best).max(*key), (*best).min(*key));
                }
            }
            if let Some(worst) = best.last() {
                floor = worst.map(|key| (key >> 32) as u32);
            }
        }
    }
}

/// The place of the best element of a contiguous line, or of a line of one lane.
struct BestOfLine<'a, T> {
    is_largest: bool,
    line: &'a [T],
}

impl<T: Ranked> Kernel for BestOfLine<'_, T> {
    type Output = usize;
    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> usize {
        let floats = T::floats(self.line);
        if let Some(place) = floats.and_then(|line| best_place(simd, self.is_largest, line)) {
            return place;
        }
        let best_of = |block: &[T]| block.iter().fold(0, |best, value| rank_of(*value, self.is_largest).max(best));
        let (mut best, mut found) = (0, 0);
        for (index, block) in self.line.chunks(BLOCK).enumerate() {
            let rank = best_of(block);
            if rank > best {
                (best, found) = (rank, index * BLOCK);
            }
        }
        let is_best = |value: &T| rank_of(*value, self.is_largest) == best;
        found + self.line[found..].iter().position(is_best).unwrap_or(0)
    }
}

/// The first place of the greatest or least number of a line that has no NaN; `None` where it has one.
#[inline(always)]
fn best_place<S: Simd>(s: S, is_largest: bool, line: &[f32]) -> Option<usize> {
    let sign = s.splat(if is_largest { 1.0 } else { -1.0 });
    let first = line.len().min(S::LANES);
    // SAFETY: the line has so many values.
    let short = s.mul(unsafe { s.load_partial(line.as_ptr(), first) }, sign);
    let short = s.add(short, s.lowest_behind(first));
    // Places where whole vectors begin; the last one may hold values that the one before it holds too.
    let last = line.len() - first;
    let places = || (first..last).step_by(S::LANES).chain((last > 0).then_some(last));
    // SAFETY: each of the places lies a vector before the end of the line, or farther.
    let vector = |place: usize| unsafe { s.mul(s.load(line.as_ptr().add(place)), sign) };
    let (mut best, mut unordered) = (short, short);
    for place in places() {
        let values = vector(place);
        best = s.max(values, best);
        unordered = s.select(s.is_nan(values), values, unordered);
    }
    if s.any(s.is_nan(unordered)) {
        return None;
    }
    let greatest = s.reduce_max(best);
    let best = s.splat(greatest);
    let is_best = |values: S::F| s.any(s.eq(values, best));
    let found = if is_best(short) { 0 } else { places().find(|place| is_best(vector(*place)))? };
    // Of the two zeros, either is as great.
    let target = if is_largest { greatest } else { -greatest };
    line[found..].iter().position(|value| *value == target).map(|place| found + place)
}

/// The keys of the best elements of a line, in the order that the rule asks for.
struct Collect<'a, 'k, T> {
    rule: TopKRule,
    line: &'a [T],
    inner: usize,
    axis: usize,
    keys: &'k mut [u64],
}

impl<'k, T: Ranked> Kernel for Collect<'_, 'k, T> {
    type Output = &'k [u64];
    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) -> &'k [u64] {
        let Collect { rule, line, inner, axis, keys } = self;
        let k = rule.k;
        let (mut count, mut least) = (0, 0);
        let mut take = |place: usize, rank: u32| {
            let key = key_of(rank, place);
            if key > least {
                keys[count] = key;
                count += 1;
                if count == keys.len() && count < axis {
                    least = *keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1;
                    count = k;
                }
            }
            (least >> 32) as u32
        };
        let mut floor = 0;
        if inner == 1 {
            for (index, block) in line.chunks(BLOCK).enumerate() {
                // Whatever comes later must have a greater rank than the least of the best.
                let is_any = |found: bool, value: &T| found | (rank_of(*value, rule.is_largest) > floor);
                if floor > 0 && !block.iter().fold(false, is_any) {
                    continue;
                }
                for (at, value) in block.iter().enumerate() {
                    floor = take(index * BLOCK + at, rank_of(*value, rule.is_largest));
                }
            }
        } else {
            for (place, value) in line.iter().step_by(inner).enumerate() {
                take(place, rank_of(*value, rule.is_largest));
            }
        }
        let keys = &mut keys[..count];
        if count > k {
            keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a));
        }
        let keys = &mut keys[..k];
        match rule.keeps_order {
            true => keys.sort_unstable_by_key(|key| !(*key as u32)),
            false => keys.sort_unstable_by(|a, b| b.cmp(a)),
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, in_pool};
    use pretty_assertions::assert_eq;

    fn expected<T: Ranked>([outer, axis, inner]: [usize; 3], rule: TopKRule, input: &[T]) -> Vec<i64> {
        let mut places = vec![0; outer * rule.k * inner];
        for (line, lane) in (0..outer).flat_map(|line| (0..inner).map(move |lane| (line, lane))) {
            let rank = |i: &usize| i64::from(input[(line * axis + i) * inner + lane].rank());
            let mut order: Vec<usize> = (0..axis).collect();
            order.sort_by_key(|i| if rule.is_largest { -rank(i) } else { rank(i) });
            order.truncate(rule.k);
            if rule.keeps_order {
                order.sort_unstable();
            }
            for (place, index) in order.iter().enumerate() {
                places[(line * rule.k + place) * inner + lane] = *index as i64;
            }
        }
        places
    }

    fn check<T: Ranked + PartialEq + std::fmt::Debug>(sizes: [usize; 3], rule: TopKRule, input: &[T]) {
        let [outer, axis, inner] = sizes;
        let places = expected(sizes, rule, input);
        for isa in Isa::available() {
            let run = || {
                let mut values = vec![input[0]; places.len()];
                let mut indices = vec![-1i64; places.len()];
                let mut scratch = vec![7; top_k_scratch_len(sizes, rule.k)];
                top_k(isa, sizes, rule, input, &mut values, &mut indices, &mut scratch).unwrap();
                (format!("{values:?}"), indices)
            };
            let (values, indices) = run();
            assert_eq!(indices, places, "{sizes:?} {rule:?}");
            let from = |(place, index): (usize, &i64)| {
                let (line, lane) = (place / (rule.k * inner), place % inner);
                input[(line * axis + *index as usize) * inner + lane]
            };
            let picked: Vec<T> = places.iter().enumerate().map(from).collect();
            assert_eq!(values, format!("{picked:?}"));
            assert_eq!(run(), in_pool(2, run));
            assert_eq!(outer * rule.k * inner, places.len());
        }
    }

    #[test]
    fn random_lines() {
        let mut random = Random::new(11);
        for round in 0..48 {
            let long = [5, 90, 700, 9000][round % 4];
            let axis = random.between(1, long);
            let sizes = [random.between(1, 3), axis, if round % 3 == 0 { random.between(2, 80) } else { 1 }];
            let most = axis.min([1, 3, 17, 40, axis][random.between(0, 4)]);
            let rule = TopKRule { k: random.between(1, most), is_largest: round % 2 == 0, keeps_order: round % 5 == 0 };
            let count = sizes.iter().product();
            match round % 6 {
                0 => check(sizes, rule, &(0..count).map(|_| (random.next() % 30) as u8).collect::<Vec<_>>()),
                1 => check(sizes, rule, &(0..count).map(|_| random.next() as i32).collect::<Vec<_>>()),
                _ => {
                    let mut values = random.values(count);
                    let special = [f32::NAN, -f32::NAN, 0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY];
                    for _ in 0..count / 9 {
                        values[random.between(0, count - 1)] = special[random.between(0, 5)];
                    }
                    check(sizes, rule, &values);
                }
            }
        }
    }

    #[test]
    fn few_of_neighbouring_lines() {
        let mut random = Random::new(5);
        for k in 2..=9 {
            for (index, inner) in [8, 15, 16, 21, 40].into_iter().enumerate() {
                let axis = [k, k + 1, 23, 70][random.between(0, 3)];
                let levels = [3, 12, 1000][index % 3];
                let mut values: Vec<f32> =
                    (0..2 * axis * inner).map(|_| random.between(0, levels) as f32 - levels as f32 / 2.0).collect();
                for (is_largest, keeps_order) in [(true, true), (true, false), (false, true), (false, false)] {
                    check([2, axis, inner], TopKRule { k, is_largest, keeps_order }, &values);
                }
                for special in [f32::NEG_INFINITY, -0.0, f32::INFINITY, f32::NAN] {
                    for _ in 0..k {
                        values[random.between(0, axis * inner - 1)] = special;
                    }
                    let (is_largest, keeps_order) = (random.between(0, 1) == 0, random.between(0, 1) == 0);
                    check([2, axis, inner], TopKRule { k, is_largest, keeps_order }, &values);
                }
            }
        }
    }

    #[test]
    fn many_of_short_neighbouring_lines() {
        let mut random = Random::new(6);
        for axis in [10, 17, 18, 30, 31, 32, 33, 49, 63, 64, 65, 100, 127, 128] {
            for (inner, k) in [(8, axis.min(17)), (21, axis), (32, random.between(axis.min(17), axis))] {
                let count = 2 * axis * inner;
                let mut values: Vec<f32> = (0..count).map(|_| random.between(0, 40) as f32 - 20.0).collect();
                for specials in [[-0.0, f32::NEG_INFINITY, f32::INFINITY], [f32::NAN, -0.0, f32::INFINITY]] {
                    for _ in 0..axis {
                        values[random.between(0, count - 1)] = specials[random.between(0, 2)];
                    }
                    for (is_largest, keeps_order) in [(true, true), (true, false), (false, true), (false, false)] {
                        check([2, axis, inner], TopKRule { k, is_largest, keeps_order }, &values);
                    }
                }
                let bytes: Vec<u8> = (0..count).map(|_| random.between(0, 9) as u8).collect();
                check([2, axis, inner], TopKRule { k, is_largest: true, keeps_order: false }, &bytes);
            }
        }
    }

    #[test]
    fn rising_and_falling_lines() {
        let rising: Vec<f32> = (0..900).map(|i| i as f32).collect();
        let falling: Vec<f32> = rising.iter().map(|x| -x).collect();
        for is_largest in [true, false] {
            for k in [1, 2, 70, 899, 900] {
                let rule = TopKRule { k, is_largest, keeps_order: false };
                check([1, 900, 1], rule, &rising);
                check([1, 900, 1], rule, &falling);
            }
        }
        assert!(f32::NEG_INFINITY.rank() > 0);
    }

    #[test]
    fn what_does_not_fit() {
        let rule = TopKRule { k: 3, is_largest: true, keeps_order: false };
        let run = |sizes: [usize; 3], values: &mut [f32], indices: &mut [i32], scratch: &mut [u64]| {
            top_k(Isa::portable(), sizes, rule, &[1.0; 2], values, indices, scratch).is_err()
        };
        assert!(run([1, 2, 1], &mut [0.0; 3], &mut [0; 3], &mut [0; 2]));
        assert!(run([1, 2, 1], &mut [0.0; 2], &mut [0; 3], &mut [0; 2]));
    }
}
