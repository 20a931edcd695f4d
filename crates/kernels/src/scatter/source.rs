//! Where updates go: rows of the output, read from indices of any kind.

use super::IndexType;
use super::number::Number32;

/// The most axes that a geometry keeps after collapsing.
const MOST_AXES: usize = 10;

/// The places of updates, in row-major order of the updates.
pub(super) trait Source: Sync {
    /// Writes the rows of the output to which the updates from `start` on go, and tells whether all their indices
    /// address an element; those that do not yield row 0.
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool;
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

/// Every index names a row: row `(block * size + index)` for update `block * count + k`.
pub(super) struct Rows<'a, const M: usize> {
    /// The indices; that of update `u` is at `u * step`.
    pub indices: &'a [[u8; M]],
    /// The distance between two indices.
    pub step: usize,
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
        let mut fit = true;
        let (mut block, mut k) = (start / self.count.max(1), start % self.count.max(1));
        for (offset, place) in places.iter_mut().enumerate() {
            let (row, fits) = resolve(Signed::value(self.indices[(start + offset) * self.step]), self.size, self.wraps);
            fit &= fits;
            *place = (block as u32 * self.size + row).to_ne_bytes();
            k += 1;
            if k == self.count {
                (block, k) = (block + 1, 0);
            }
        }
        fit
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
        let mut fit = true;
        if depth == 0 {
            places.fill(0u32.to_ne_bytes());
            return true;
        }
        let tuples = self.indices[start * depth..].chunks_exact(depth);
        for (place, tuple) in places.iter_mut().zip(tuples) {
            let mut row = 0;
            for (word, size) in tuple.iter().zip(self.sizes) {
                let (index, fits) = resolve(Signed::value(*word), *size, true);
                fit &= fits;
                row = row * size + index;
            }
            *place = row.to_ne_bytes();
        }
        fit
    }
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
    fn base(&self, line: usize) -> usize {
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
        let Some(last) = axes.rank.checked_sub(1) else { return true };
        let length = axes.axes[last].0.max(1);
        let stride = axes.axes[axes.axis].1 as u32;
        let column_stride = if axes.axis == last { 0 } else { axes.axes[last].1 as u32 };
        let (mut line, mut column) = (start / length, start % length);
        let (mut at, mut done, mut fit) = (start, 0, true);
        while done < places.len() {
            let run = (length - column).min(places.len() - done);
            let mut base = axes.base(line) as u32 + column as u32 * column_stride;
            for (place, word) in places[done..done + run].iter_mut().zip(&self.indices[at..at + run]) {
                let (index, fits) = resolve(Signed::value(*word), axes.size, true);
                fit &= fits;
                *place = (base + index * stride).to_ne_bytes();
                base += column_stride;
            }
            (at, done, line, column) = (at + run, done + run, line + 1, 0);
        }
        fit
    }
}

/// Places that were found before.
pub(super) struct Resolved<'a>(pub &'a [Number32]);

impl Source for Resolved<'_> {
    fn fill(&self, start: usize, places: &mut [Number32]) -> bool {
        places.copy_from_slice(&self.0[start..start + places.len()]);
        true
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
