//! Where updates go: rows of the output, read from indices of any kind.

use std::ops::RangeInclusive;

use super::IndexType;
use super::number::Number32;
use crate::isa::detect;
use crate::simd::{Kernel, Simd, dispatch};

/// The most axes that a geometry keeps after collapsing.
const MOST_AXES: usize = 10;

/// The places of updates, in row-major order of the updates.
pub(super) trait Source: Sync {
    /// Writes the rows of the output to which the updates from `start` on go, and tells whether all their indices
    /// address an element; those that do not yield row 0.
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool;

    /// Where the indices of an update lie, which need not be there, and how many bytes they have; none if they do not lie in the
    /// order of the updates.
    fn words(&self, _update: usize) -> (*const u8, usize) {
        (std::ptr::null(), 0)
    }
}

/// The address of a word, which need not be there, and the bytes of so many.
fn words_at<const M: usize>(words: &[[u8; M]], first: usize, count: usize) -> (*const u8, usize) {
    (words.as_ptr().wrapping_add(first).cast(), count * M)
}

/// One index as it lies in memory.
pub(super) trait IndexWord<const M: usize>: Sync {
    /// Its value.
    fn value(word: [u8; M]) -> i64;
}

/// i32 or i64.
pub(super) struct Signed;

impl IndexWord<4> for Signed {
    #[inline(always)]
    fn value(word: [u8; 4]) -> i64 {
        i64::from(i32::from_le_bytes(word))
    }
}

impl IndexWord<8> for Signed {
    #[inline(always)]
    fn value(word: [u8; 8]) -> i64 {
        i64::from_le_bytes(word)
    }
}

/// The place of an index on an axis and whether it addresses an element; place 0 if not.
#[inline(always)]
fn resolve(index: i64, size: u32, wraps: bool) -> (u32, bool) {
    let size = i64::from(size);
    // A mask instead of a branch, so that loops over indices can be vectorised.
    let wrapped = if wraps { index.wrapping_add((index >> 63) & size) } else { index };
    let fits = (wrapped as u64) < size as u64;
    (if fits { wrapped as u32 } else { 0 }, fits)
}

/// Resolves indices that lie one after the other on an axis of this size, and tells whether all address an element.
struct Resolve<'a, const M: usize> {
    words: &'a [[u8; M]],
    size: u32,
    wraps: bool,
    places: &'a mut [Number32],
}

impl<const M: usize> Kernel for Resolve<'_, M>
where
    Signed: IndexWord<M>,
{
    type Output = bool;

    #[inline(always)]
    fn run<V: Simd>(self, _: V) -> bool {
        let mut fit = true;
        for (place, word) in self.places.iter_mut().zip(self.words) {
            let (index, fits) = resolve(Signed::value(*word), self.size, self.wraps);
            fit &= fits;
            *place = index.to_ne_bytes();
        }
        fit
    }
}

/// Whether all indices of each row of `inner` are equal; if so, `firsts` gets that of each row.
pub(super) struct AreRows<'a, const M: usize> {
    /// The indices.
    pub indices: &'a [[u8; M]],
    /// The indices of a row, of which there is one at least.
    pub inner: usize,
    /// One index for each row.
    pub firsts: &'a mut [[u8; M]],
}

impl<const M: usize> Kernel for AreRows<'_, M>
where
    Signed: IndexWord<M>,
{
    type Output = bool;

    #[inline(always)]
    fn run<V: Simd>(self, _: V) -> bool {
        self.indices.chunks_exact(self.inner).zip(self.firsts).all(|(row, first)| {
            *first = row[0];
            let value = Signed::value(*first);
            // Without an end before the end of the row, so that the loop can be vectorised.
            row.iter().fold(0, |differences, word| differences | (Signed::value(*word) ^ value)) == 0
        })
    }
}

/// Every index names a row: row `(block * size + index)` for update `block * count + k`.
pub(super) struct Rows<'a, const M: usize> {
    /// One index for each update.
    pub indices: &'a [[u8; M]],
    /// The updates of one block of `size` rows.
    pub count: usize,
    /// The rows of a block.
    pub size: u32,
    /// Whether negative indices count from the end.
    pub wraps: bool,
}

impl<const M: usize> Source for Rows<'_, M>
where
    Signed: IndexWord<M>,
{
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        let Rows { indices, count, size, wraps } = *self;
        let words = &indices[start..start + places.len()];
        let fit = dispatch(detect(), Resolve { words, size, wraps, places: &mut *places });
        for_each_line(start, count, places, |block, _, places| add(places, block as u32 * size));
        fit
    }

    fn words(&self, update: usize) -> (*const u8, usize) {
        words_at(self.indices, update, 1)
    }
}

/// Calls `body(line, column, places)` for the part of each line of `length` updates that lies in `places`, whose first
/// is update `start`.
#[inline(always)]
pub(super) fn for_each_line(
    start: usize,
    length: usize,
    places: &mut [Number32],
    mut body: impl FnMut(usize, usize, &mut [Number32]),
) {
    let length = length.max(1);
    let (mut line, mut column, mut done) = (start / length, start % length, 0);
    while done < places.len() {
        let run = (length - column).min(places.len() - done);
        body(line, column, &mut places[done..done + run]);
        (done, line, column) = (done + run, line + 1, 0);
    }
}

/// Adds to all places.
#[inline(always)]
pub(super) fn add(places: &mut [Number32], base: u32) {
    if base != 0 {
        for place in places {
            *place = (u32::from_ne_bytes(*place) + base).to_ne_bytes();
        }
    }
}

/// Every tuple of coordinates names a row.
pub(super) struct Tuples<'a, const M: usize> {
    /// The coordinates of all updates.
    pub indices: &'a [[u8; M]],
    /// The sizes of the axes that they address.
    pub sizes: &'a [u32],
}

impl<const M: usize> Source for Tuples<'_, M>
where
    Signed: IndexWord<M>,
{
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        let depth = self.sizes.len();
        let words = &self.indices[start * depth..(start + places.len()) * depth];
        match *self.sizes {
            [] => {
                places.fill(0u32.to_ne_bytes());
                true
            }
            [size] => dispatch(detect(), Resolve { words, size, wraps: true, places }),
            [first, second] => dispatch(detect(), ResolveTuples { words, sizes: [first, second], places }),
            [first, second, third] => {
                dispatch(detect(), ResolveTuples { words, sizes: [first, second, third], places })
            }
            _ => resolve_tuples(words.chunks_exact(depth), self.sizes, places),
        }
    }

    fn words(&self, update: usize) -> (*const u8, usize) {
        let depth = self.sizes.len();
        words_at(self.indices, update * depth, depth)
    }
}

/// Resolves tuples of a number of coordinates that is known.
struct ResolveTuples<'a, const M: usize, const DEPTH: usize> {
    words: &'a [[u8; M]],
    sizes: [u32; DEPTH],
    places: &'a mut [Number32],
}

impl<const M: usize, const DEPTH: usize> Kernel for ResolveTuples<'_, M, DEPTH>
where
    Signed: IndexWord<M>,
{
    type Output = bool;

    #[inline(always)]
    fn run<V: Simd>(self, _: V) -> bool {
        let tuples = self.words.as_chunks::<DEPTH>().0;
        resolve_tuples(tuples.iter().map(|tuple| &tuple[..]), &self.sizes, self.places)
    }
}

#[inline(always)]
fn resolve_tuples<'a, const M: usize>(
    tuples: impl Iterator<Item = &'a [[u8; M]]>,
    sizes: &[u32],
    places: &mut [Number32],
) -> bool
where
    Signed: IndexWord<M>,
{
    let mut fit = true;
    for (place, tuple) in places.iter_mut().zip(tuples) {
        let mut row = 0;
        for (word, size) in tuple.iter().zip(sizes) {
            let (index, fits) = resolve(Signed::value(*word), *size, true);
            fit &= fits;
            row = row * size + index;
        }
        *place = row.to_ne_bytes();
    }
    fit
}

/// The axes of a scatter of elements: the shape of the indices, walked with the strides of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Axes {
    /// Size in the indices and stride in the data of each axis, the scattered axis among them.
    axes: [(usize, usize); MOST_AXES],
    rank: usize,
    /// The position of the scattered axis.
    axis: usize,
    /// The size of the scattered axis in the data.
    pub size: u32,
    /// The elements of data in one block: from the scattered axis inward.
    pub block: usize,
    /// The updates in one block.
    pub updates: usize,
    /// Whether block `b` of the updates goes to block `b` of the data.
    pub is_blockwise: bool,
    /// The updates that follow one another behind the scattered axis, where these lie contiguously in the data too.
    pub inner: Option<usize>,
}

impl Axes {
    /// Collapses axes. `None` where too many remain.
    pub fn new(data: &[usize], indices: &[usize], axis: usize) -> Option<Axes> {
        let mut found = Axes {
            axes: [(1, 0); MOST_AXES],
            rank: 0,
            axis: 0,
            size: 0,
            block: 1,
            updates: 1,
            is_blockwise: true,
            inner: None,
        };
        found.size = u32::try_from(data[axis]).ok()?;
        found.block = data[axis..].iter().product();
        found.updates = indices[axis..].iter().product();
        found.is_blockwise = data[..axis] == indices[..axis];
        if data[axis + 1..] == indices[axis + 1..] {
            found.inner = Some(data[axis + 1..].iter().product());
        }
        let stride = |i: usize| data[i + 1..].iter().product::<usize>();
        let mut joins = false;
        for i in 0..data.len() {
            if i == axis {
                found.axis = found.rank;
                found.push(indices[i], stride(i))?;
                joins = false;
                continue;
            }
            if indices[i] == 1 {
                joins &= data[i] == 1;
                continue;
            }
            // An axis joins the one outside of it where the data has no gap between the two.
            if joins && indices[i] == data[i] {
                let outer = &mut found.axes[found.rank - 1];
                *outer = (outer.0 * indices[i], stride(i));
            } else {
                found.push(indices[i], stride(i))?;
            }
            joins = true;
        }
        Some(found)
    }

    fn push(&mut self, size: usize, stride: usize) -> Option<()> {
        *self.axes.get_mut(self.rank)? = (size, stride);
        self.rank += 1;
        Some(())
    }

    /// The number of updates.
    pub fn count(&self) -> usize {
        self.axes[..self.rank].iter().map(|(size, _)| size).product()
    }

    /// Where line `line` of the last axis begins in the data, without the scattered axis.
    #[inline]
    fn base(&self, line: usize) -> usize {
        // Nothing lies behind the scattered axis, and before it all axes are whole.
        if self.is_blockwise && self.axis + 1 == self.rank {
            return line * self.block;
        }
        let (mut rest, mut base) = (line, 0);
        for i in (0..self.rank - 1).rev() {
            let (size, stride) = self.axes[i];
            if i == 0 {
                return base + if self.axis == 0 { 0 } else { rest * stride };
            }
            if i != self.axis {
                base += rest % size * stride;
            }
            rest /= size;
        }
        base
    }
}

/// Every index names a position along one axis; off the axis, updates go where they stand.
pub(super) struct Elements<'a, const M: usize> {
    /// One index for each update.
    pub indices: &'a [[u8; M]],
    /// The geometry.
    pub axes: Axes,
}

impl<const M: usize> Source for Elements<'_, M>
where
    Signed: IndexWord<M>,
{
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        let axes = &self.axes;
        let words = &self.indices[start..start + places.len()];
        let fit = dispatch(detect(), Resolve { words, size: axes.size, wraps: true, places: &mut *places });
        let Some(last) = axes.rank.checked_sub(1) else { return fit };
        let stride = axes.axes[axes.axis].1 as u32;
        let length = axes.axes[last].0;
        if axes.axis == last && stride == 1 && axes.is_blockwise && SHORT_LINES.contains(&length) {
            let lines = ShortLines { length: length as u32, block: axes.block as u32, start, places };
            dispatch(detect(), lines);
            return fit;
        }
        if axes.axis == last && stride == 1 {
            for_each_line(start, length, places, |line, _, places| add(places, axes.base(line) as u32));
            return fit;
        }
        let step = if axes.axis == last { 0 } else { axes.axes[last].1 as u32 };
        for_each_line(start, length, places, |line, column, places| {
            let base = axes.base(line) as u32 + column as u32 * step;
            for (place, offset) in places.iter_mut().zip(0..) {
                *place = (base + offset * step + u32::from_ne_bytes(*place) * stride).to_ne_bytes();
            }
        });
        fit
    }

    fn words(&self, update: usize) -> (*const u8, usize) {
        words_at(self.indices, update, 1)
    }
}

/// Lines so short that places are better counted through them than line by line.
const SHORT_LINES: RangeInclusive<usize> = 2..=32;

/// The most places of short lines that are counted through at once.
const COUNTED: usize = 1 << 12;

/// Adds its block's beginning to each place in lines of updates, one of which goes to each block of the data.
struct ShortLines<'a> {
    length: u32,
    block: u32,
    /// The update of the first place.
    start: usize,
    places: &'a mut [Number32],
}

impl Kernel for ShortLines<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Simd>(self, _: V) {
        // A product instead of a division. The reciprocal is too large by less than `length >> BITS` of itself, which so few
        // places do not add up to the next line.
        const BITS: u32 = 20;
        const { assert!((COUNTED + *SHORT_LINES.end()) * *SHORT_LINES.end() < 1 << BITS) };
        let reciprocal = (1u32 << BITS).div_ceil(self.length);
        for (index, places) in self.places.chunks_mut(COUNTED).enumerate() {
            let start = self.start + index * COUNTED;
            let (line, column) = (start / self.length as usize, start % self.length as usize);
            let base = line as u32 * self.block;
            for (place, count) in places.iter_mut().zip(column as u32..) {
                let line = (count * reciprocal) >> BITS;
                *place = (u32::from_ne_bytes(*place) + base + line * self.block).to_ne_bytes();
            }
        }
    }
}

/// Places that were found before.
pub(super) struct Resolved<'a>(pub &'a [Number32]);

impl Source for Resolved<'_> {
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        places.copy_from_slice(&self.0[start..start + places.len()]);
        true
    }

    fn words(&self, update: usize) -> (*const u8, usize) {
        words_at(self.0, update, 1)
    }
}

/// The bytes of one index.
pub(super) fn index_width(index_type: IndexType) -> usize {
    match index_type {
        IndexType::I32 => 4,
        IndexType::I64 => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn places(data: &[usize], shape: &[usize], axis: usize, indices: &[i32]) -> (Vec<u32>, bool) {
        let words: Vec<[u8; 4]> = indices.iter().map(|i| i.to_le_bytes()).collect();
        let source = Elements { indices: &words, axes: Axes::new(data, shape, axis).unwrap() };
        assert_eq!(source.axes.count(), indices.len());
        let mut places = vec![[0; 4]; indices.len()];
        let fit = source.fill(0, &mut places);
        // Any part gives what the whole gives.
        for start in 0..indices.len() {
            let mut part = vec![[0; 4]; indices.len() - start];
            source.fill(start, &mut part);
            assert_eq!(part, places[start..]);
        }
        (places.into_iter().map(u32::from_ne_bytes).collect(), fit)
    }

    #[test]
    fn short_lines_are_counted_through() {
        for length in SHORT_LINES {
            for start in [0, 1, 31, 5000] {
                let mut places: Vec<Number32> = (0..2 * COUNTED + 77).map(|at| (at as u32 % 5).to_ne_bytes()).collect();
                let expected: Vec<Number32> = (0..places.len())
                    .map(|at| (at as u32 % 5 + ((start + at) / length) as u32 * 7).to_ne_bytes())
                    .collect();
                dispatch(detect(), ShortLines { length: length as u32, block: 7, start, places: &mut places });
                assert!(places == expected, "{length} from {start}");
            }
        }
    }

    #[test]
    fn elements_along_any_axis() {
        assert_eq!(places(&[2, 3], &[2, 2], 1, &[0, 2, -1, 1]), (vec![0, 2, 5, 4], true));
        assert_eq!(places(&[3, 2], &[2, 2], 0, &[2, 0, -3, 1]), (vec![4, 1, 0, 3], true));
        assert_eq!(places(&[3, 4], &[2, 2], 0, &[2, 0, 0, 1]), (vec![8, 1, 0, 5], true));
        assert_eq!(places(&[2, 2, 3, 2], &[2, 1, 2, 1], 2, &[2, 0, 1, 1]), (vec![4, 0, 14, 14], true));
        assert_eq!(places(&[4], &[3], 0, &[0, 4, -5]), (vec![0, 0, 0], false));
    }

    #[test]
    fn axes_without_gaps_are_one() {
        let axes = Axes::new(&[2, 3, 4, 5, 6], &[2, 3, 7, 5, 6], 2).unwrap();
        assert_eq!((axes.rank, axes.axis, axes.inner, axes.is_blockwise), (3, 1, Some(30), true));
        let axes = Axes::new(&[2, 3, 4, 5, 6], &[2, 2, 7, 5, 1], 2).unwrap();
        assert_eq!((axes.rank, axes.axis, axes.inner, axes.is_blockwise), (4, 2, None, false));
    }

    #[test]
    fn extreme_indices_do_not_overflow() {
        for index in [i64::MIN, i64::MAX, -1 << 32, (1 << 32) + 1] {
            assert_eq!(resolve(index, u32::MAX, true), (0, false));
        }
        assert_eq!(resolve(-1, 5, true), (4, true));
        assert_eq!(resolve(-1, 5, false), (0, false));
    }
}
