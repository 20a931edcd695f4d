//! One block of memory from which many tensors are cut.

use std::marker::PhantomData;
use std::ops::Range;

use smallvec::SmallVec;

use crate::{AlignedBuffer, TensorError};

/// A block of memory in which a plan lays out its intermediate tensors.
#[derive(Debug)]
pub struct Arena {
    buffer: AlignedBuffer,
}

/// Where parts of an arena lie that are borrowed together: some to read, some to write. No part that is written overlaps
/// another.
#[derive(Debug, Clone, Default)]
pub struct ArenaLayout {
    reads: SmallVec<[Range<usize>; 4]>,
    writes: SmallVec<[Range<usize>; 2]>,
    /// The end of the last part.
    end: usize,
}

/// The parts to read, in the order of their layout.
#[derive(Debug)]
pub struct ReadParts<'a, 'l> {
    base: *const u8,
    ranges: std::slice::Iter<'l, Range<usize>>,
    arena: PhantomData<&'a [u8]>,
}

/// The parts to write, in the order of their layout.
#[derive(Debug)]
pub struct WriteParts<'a, 'l> {
    base: *mut u8,
    ranges: std::slice::Iter<'l, Range<usize>>,
    arena: PhantomData<&'a mut [u8]>,
}

/// Parts of an arena: some to read, some to write. No part that is written overlaps another.
#[derive(Debug)]
pub struct ArenaParts<'a> {
    /// The parts to read, in the order asked for.
    pub reads: SmallVec<[&'a [u8]; 8]>,
    /// The parts to write, in the order asked for.
    pub writes: SmallVec<[&'a mut [u8]; 4]>,
}

impl Default for Arena {
    fn default() -> Arena {
        Arena::new()
    }
}

impl Arena {
    /// An arena without memory.
    pub fn new() -> Arena {
        // An empty buffer is never refused.
        Arena { buffer: AlignedBuffer::empty() }
    }

    /// Makes sure that `bytes` bytes are there. What they hold is unspecified.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`].
    pub fn reserve(&mut self, bytes: usize) -> Result<(), TensorError> {
        if bytes > self.buffer.capacity() {
            // An arena that grows step by step rarely moves. The old contents are of no use, so they go before the new
            // memory comes.
            let grown = self.buffer.capacity().saturating_add(self.buffer.capacity() / 2).max(bytes);
            self.buffer = AlignedBuffer::empty();
            self.buffer = AlignedBuffer::zeroed(grown).or_else(|_| AlignedBuffer::zeroed(bytes))?;
        }
        self.buffer.resize(bytes.max(self.buffer.len()))
    }

    /// The bytes of the arena.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether the arena has no memory.
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Borrows parts of the arena at once.
    ///
    /// # Errors
    /// As of [`ArenaLayout::new`] and [`Arena::borrow`].
    pub fn parts(&mut self, reads: &[Range<usize>], writes: &[Range<usize>]) -> Result<ArenaParts<'_>, TensorError> {
        let layout = ArenaLayout::new(reads.iter().cloned(), writes.iter().cloned())?;
        let (reads, writes) = self.borrow(&layout)?;
        Ok(ArenaParts { reads: reads.collect(), writes: writes.collect() })
    }

    /// Borrows the parts of a layout at once.
    ///
    /// # Errors
    /// [`TensorError::Format`] when a part lies outside of the arena.
    pub fn borrow<'a, 'l>(
        &'a mut self,
        layout: &'l ArenaLayout,
    ) -> Result<(ReadParts<'a, 'l>, WriteParts<'a, 'l>), TensorError> {
        if layout.end > self.buffer.len() {
            return Err(TensorError::Format("a part lies outside of the arena".to_owned()));
        }
        let base = self.buffer.as_mut_ptr();
        let reads = ReadParts { base: base.cast_const(), ranges: layout.reads.iter(), arena: PhantomData };
        Ok((reads, WriteParts { base, ranges: layout.writes.iter(), arena: PhantomData }))
    }
}

impl ArenaLayout {
    /// A layout of these parts.
    ///
    /// # Errors
    /// [`TensorError::Format`] when a part ends before it begins, or one that is written overlaps another.
    pub fn new(
        reads: impl IntoIterator<Item = Range<usize>>,
        writes: impl IntoIterator<Item = Range<usize>>,
    ) -> Result<ArenaLayout, TensorError> {
        let mut layout =
            ArenaLayout { reads: reads.into_iter().collect(), writes: writes.into_iter().collect(), end: 0 };
        for range in layout.reads.iter().chain(&layout.writes) {
            if range.start > range.end {
                return Err(TensorError::Format("a part of the arena ends before it begins".to_owned()));
            }
            layout.end = layout.end.max(range.end);
        }
        for (i, write) in layout.writes.iter().enumerate() {
            if layout.reads.iter().chain(&layout.writes[..i]).any(|other| overlap(write, other)) {
                return Err(TensorError::Format("parts of the arena overlap".to_owned()));
            }
        }
        Ok(layout)
    }
}

impl<'a> Iterator for ReadParts<'a, '_> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let range = self.ranges.next()?;
        // SAFETY: the range ends inside of the arena, which is borrowed for the life of the result, and overlaps no range
        // that is written, as its layout has checked; bytes are always initialised.
        Some(unsafe { std::slice::from_raw_parts(self.base.add(range.start), range.end - range.start) })
    }
}

impl<'a> Iterator for WriteParts<'a, '_> {
    type Item = &'a mut [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a mut [u8]> {
        let range = self.ranges.next()?;
        // SAFETY: as of a range that is read; each range is given once, and overlaps no other one of the layout.
        Some(unsafe { std::slice::from_raw_parts_mut(self.base.add(range.start), range.end - range.start) })
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init)]

    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn parts_are_disjoint() {
        let mut arena = Arena::new();
        arena.reserve(128).unwrap();
        {
            let parts = arena.parts(&[0..64, 0..32], &[64..128]).unwrap();
            parts.writes.into_iter().for_each(|w| w.fill(1));
        }
        assert_eq!(arena.parts(&[60..68], &[]).unwrap().reads[0], &[0, 0, 0, 0, 1, 1, 1, 1]);
        assert!(arena.parts(&[0..64], &[63..128]).is_err());
        assert!(arena.parts(&[], &[0..8, 4..12]).is_err());
        assert!(arena.parts(&[0..129], &[]).is_err());
        assert!(arena.parts(&[], &[64..64, 64..128]).is_ok());
        let backwards = Range { start: 8, end: 4 };
        assert!(ArenaLayout::new([backwards.clone()], []).is_err());
        assert!(ArenaLayout::new([], [backwards]).is_err());
        let layout = ArenaLayout::new([0..4, 2..8], [8..12]).unwrap();
        assert!(Arena::new().borrow(&layout).is_err());
        let (reads, writes) = arena.borrow(&layout).unwrap();
        assert_eq!((reads.map(<[u8]>::len).collect::<Vec<_>>(), writes.count()), (vec![4, 6], 1));
    }
}
