//! One block of memory from which many tensors are cut.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{AlignedBuffer, TensorError};

/// A block of memory in which a plan lays out its intermediate tensors.
#[derive(Debug)]
pub struct Arena {
    buffer: AlignedBuffer,
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
    /// [`TensorError::Format`] when a part lies outside of the arena, or one that is written overlaps another.
    pub fn parts(&mut self, reads: &[Range<usize>], writes: &[Range<usize>]) -> Result<ArenaParts<'_>, TensorError> {
        let length = self.buffer.len();
        let is_inside = |r: &Range<usize>| r.start <= r.end && r.end <= length;
        if !reads.iter().chain(writes).all(is_inside) {
            return Err(TensorError::Format("a part lies outside of the arena".to_owned()));
        }
        for (i, write) in writes.iter().enumerate() {
            if reads.iter().chain(&writes[..i]).any(|other| overlap(write, other)) {
                return Err(TensorError::Format("parts of the arena overlap".to_owned()));
            }
        }
        let base = self.buffer.as_mut_ptr();
        let reads = reads
            .iter()
            // SAFETY: the range is inside the buffer, which is borrowed for the life of the result, and overlaps no
            // range that is written; bytes are always initialised.
            .map(|r| unsafe { std::slice::from_raw_parts(base.add(r.start).cast_const(), r.end - r.start) })
            .collect();
        let writes = writes
            .iter()
            // SAFETY: as above, and no other range, read or written, overlaps this one.
            .map(|r| unsafe { std::slice::from_raw_parts_mut(base.add(r.start), r.end - r.start) })
            .collect();
        Ok(ArenaParts { reads, writes })
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
    }
}
