//! Owned memory aligned for vector instructions.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::TensorError;
use crate::pages::{FEWEST, advise};

const ALIGNMENT: usize = 64;

/// A block of bytes, zeroed at first, whose address is a multiple of 64.
pub struct AlignedBuffer {
    pointer: NonNull<u8>,
    length: usize,
    capacity: usize,
}

// SAFETY: the buffer owns its memory exclusively, and bytes have no thread affinity.
unsafe impl Send for AlignedBuffer {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// A buffer without memory.
    pub const fn empty() -> AlignedBuffer {
        AlignedBuffer { pointer: NonNull::<Line>::dangling().cast(), length: 0, capacity: 0 }
    }

    /// A zeroed buffer of `length` bytes.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the allocator refuses.
    pub fn zeroed(length: usize) -> Result<AlignedBuffer, TensorError> {
        if length == 0 {
            return Ok(AlignedBuffer::empty());
        }
        let layout =
            Layout::from_size_align(length, ALIGNMENT).map_err(|_| TensorError::OutOfMemory { bytes: length })?;
        // SAFETY: the layout has a size above zero.
        let pointer = unsafe { if length < FEWEST { alloc_zeroed(layout) } else { alloc(layout) } };
        let pointer = NonNull::new(pointer).ok_or(TensorError::OutOfMemory { bytes: length })?;
        if length >= FEWEST {
            advise(pointer.as_ptr(), length);
            // SAFETY: so many bytes were allocated.
            unsafe { pointer.write_bytes(0, length) };
        }
        Ok(AlignedBuffer { pointer, length, capacity: length })
    }

    /// A buffer that holds a copy of `bytes`.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the allocator refuses.
    pub fn copy_of(bytes: &[u8]) -> Result<AlignedBuffer, TensorError> {
        let mut buffer = AlignedBuffer::zeroed(bytes.len())?;
        buffer.copy_from_slice(bytes);
        Ok(buffer)
    }

    /// Makes the buffer `length` bytes long. It reallocates only when `length` is above the capacity; the first bytes
    /// are kept, and what the bytes beyond hold is unspecified (never uninitialised).
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the allocator refuses; the buffer is then unchanged.
    pub fn resize(&mut self, length: usize) -> Result<(), TensorError> {
        if length > self.capacity {
            let mut grown = AlignedBuffer::zeroed(length)?;
            grown[..self.length].copy_from_slice(self);
            *self = grown;
            return Ok(());
        }
        self.length = length;
        Ok(())
    }

    /// The bytes that fit without reallocating.
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

/// Bytes as elements: the longest slice of whole elements from the first aligned byte on.
pub fn cast_mut<T: bytemuck::Pod>(bytes: &mut [u8]) -> &mut [T] {
    let skipped = bytes.as_ptr().align_offset(align_of::<T>()).min(bytes.len());
    let usable = (bytes.len() - skipped) / size_of::<T>() * size_of::<T>();
    bytemuck::try_cast_slice_mut(&mut bytes[skipped..skipped + usable]).unwrap_or(&mut [])
}

/// A type of the buffer's alignment, for an aligned dangling pointer.
#[repr(align(64))]
struct Line(#[allow(dead_code)] [u8; 64]);

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if let Ok(layout) = Layout::from_size_align(self.capacity, ALIGNMENT) {
            // SAFETY: the memory was allocated in `zeroed` with the same size and alignment, and is freed once.
            unsafe { dealloc(self.pointer.as_ptr(), layout) }
        }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `length` bytes from `pointer` are allocated (or the length is 0) and initialised.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.length) }
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AlignedBuffer({} bytes)", self.length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn grows_and_keeps_its_bytes() {
        let mut buffer = AlignedBuffer::copy_of(&[1, 2, 3]).unwrap();
        assert_eq!(buffer.as_ptr() as usize % 64, 0);
        buffer.resize(200).unwrap();
        assert_eq!(&buffer[..3], &[1, 2, 3]);
        buffer.resize(2).unwrap();
        assert_eq!(&buffer[..], &[1, 2]);
        assert_eq!(buffer.capacity(), 200);
        assert_eq!(AlignedBuffer::zeroed(0).unwrap().len(), 0);
        assert!(AlignedBuffer::zeroed(usize::MAX).is_err());
    }
}
