//! Memory of packed constants.
//!
//! A model holds a hundred constants, each read from end to end in every inference. Where the system has large pages, they
//! share blocks of them: looking up pages of 4 kB takes a few hundredths of the time of convolutions, and being given
//! them one by one a good part of the start.

use std::ops::{Deref, DerefMut};

/// Numbers whose zero has no bit set.
pub(crate) trait Zeroed: Copy + Default + Send + Sync + 'static {}

impl Zeroed for f32 {}
impl Zeroed for i8 {}

/// A slice of numbers, zero at first.
pub(crate) struct Packed<T: Zeroed> {
    memory: Memory<T>,
}

enum Memory<T> {
    Own(Vec<T>),
    #[cfg(target_os = "linux")]
    Shared(blocks::Part<T>),
}

impl<T: Zeroed> Packed<T> {
    /// So many zeros.
    pub(crate) fn zeroed(count: usize) -> Self {
        #[cfg(target_os = "linux")]
        if let Some(part) = blocks::Part::zeroed(count) {
            return Self { memory: Memory::Shared(part) };
        }
        Self { memory: Memory::Own(vec![T::default(); count]) }
    }
}

impl<T: Zeroed> Deref for Packed<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        match &self.memory {
            Memory::Own(values) => values,
            #[cfg(target_os = "linux")]
            Memory::Shared(part) => part.values(),
        }
    }
}

impl<T: Zeroed> DerefMut for Packed<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Own(values) => values,
            #[cfg(target_os = "linux")]
            Memory::Shared(part) => part.values_mut(),
        }
    }
}

impl<T: Zeroed> From<Vec<T>> for Packed<T> {
    fn from(values: Vec<T>) -> Self {
        Self { memory: Memory::Own(values) }
    }
}

impl<T: Zeroed> Clone for Packed<T> {
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.len());
        copy.copy_from_slice(self);
        copy
    }
}

impl<T: Zeroed> std::fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed({} values)", self.len())
    }
}

#[cfg(target_os = "linux")]
mod blocks {
    use std::marker::PhantomData;
    use std::ptr::NonNull;
    use std::sync::{Arc, Mutex, PoisonError, Weak};

    use super::Zeroed;

    /// Bytes of addresses that a block takes; memory it takes as it is used.
    const BLOCK: usize = 32 << 20;

    /// The most bytes of a part of a block that is shared.
    const MOST: usize = 8 << 20;

    /// The fewest bytes of a part: small models are not to take large pages.
    const FEWEST: usize = 1 << 16;

    /// Parts begin at multiples of a cache line.
    const ALIGNMENT: usize = 64;

    /// A mapping of zeros that nobody else knows.
    struct Block {
        pointer: NonNull<u8>,
        length: usize,
    }

    // SAFETY: the block is memory without thread affinity; its parts are disjoint.
    unsafe impl Send for Block {}
    // SAFETY: as above.
    unsafe impl Sync for Block {}

    impl Block {
        fn new(length: usize) -> Option<Self> {
            // SAFETY: a private mapping at an address of the system's choice touches nothing that exists, and the advice
            // changes nothing but time.
            let pointer = unsafe {
                let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
                let pointer = libc::mmap(std::ptr::null_mut(), length, access, kind, -1, 0);
                if pointer == libc::MAP_FAILED {
                    return None;
                }
                libc::madvise(pointer, length, libc::MADV_HUGEPAGE);
                pointer
            };
            Some(Self { pointer: NonNull::new(pointer.cast())?, length })
        }
    }

    impl Drop for Block {
        fn drop(&mut self) {
            // SAFETY: the mapping was made with this length, and no part of it is left.
            unsafe { libc::munmap(self.pointer.as_ptr().cast(), self.length) };
        }
    }

    /// The block that is being filled. It lives as long as one of its parts.
    struct Open {
        block: Weak<Block>,
        used: usize,
    }

    static OPEN: Mutex<Open> = Mutex::new(Open { block: Weak::new(), used: 0 });

    /// A part of a block, which nobody else has.
    pub(super) struct Part<T> {
        block: Arc<Block>,
        start: usize,
        count: usize,
        marker: PhantomData<T>,
    }

    impl<T: Zeroed> Part<T> {
        /// `None` if there are too few or the system refuses.
        pub(super) fn zeroed(count: usize) -> Option<Self> {
            let bytes = count.checked_mul(size_of::<T>())?.checked_next_multiple_of(ALIGNMENT)?;
            if bytes < FEWEST {
                return None;
            }
            if bytes > MOST {
                return Some(Self { block: Arc::new(Block::new(bytes)?), start: 0, count, marker: PhantomData });
            }
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            let block = match open.block.upgrade().filter(|block| open.used + bytes <= block.length) {
                Some(block) => block,
                None => {
                    let block = Arc::new(Block::new(BLOCK)?);
                    *open = Open { block: Arc::downgrade(&block), used: 0 };
                    block
                }
            };
            let start = open.used;
            open.used += bytes;
            Some(Self { block, start, count, marker: PhantomData })
        }

        pub(super) fn values(&self) -> &[T] {
            // SAFETY: the part lies in the block, begins at a multiple of 64, holds zeros or what was written as `T`, and
            // is no other part's.
            unsafe { std::slice::from_raw_parts(self.block.pointer.as_ptr().add(self.start).cast(), self.count) }
        }

        pub(super) fn values_mut(&mut self) -> &mut [T] {
            // SAFETY: as above; the borrow is exclusive.
            unsafe { std::slice::from_raw_parts_mut(self.block.pointer.as_ptr().add(self.start).cast(), self.count) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn parts_are_apart_and_zero_at_first() {
        let counts = [0, 1, 16_383, 16_384, 16_385, 100_000, 2 << 20, (2 << 20) + 1, 3 << 20, 1 << 20, 1 << 20];
        let mut parts: Vec<Packed<f32>> = Vec::new();
        for (number, count) in counts.into_iter().enumerate() {
            let mut part = Packed::<f32>::zeroed(count);
            assert_eq!(part.len(), count);
            assert!(part.iter().all(|value| *value == 0.0));
            part.fill(number as f32 + 1.0);
            parts.push(part);
        }
        let copies = parts.clone();
        parts.iter_mut().step_by(2).for_each(|part| part.fill(-1.0));
        for (number, copy) in copies.iter().enumerate() {
            assert!(copy.iter().all(|value| *value == number as f32 + 1.0));
            let kept = if number % 2 == 0 { -1.0 } else { number as f32 + 1.0 };
            assert!(parts[number].iter().all(|value| *value == kept));
        }
    }

    #[test]
    fn blocks_outlive_the_threads_that_filled_them() {
        let parts: Vec<Packed<i8>> = std::thread::scope(|scope| {
            let fill = |value: i8| {
                move || {
                    let mut part = Packed::<i8>::zeroed(1 << 20);
                    part.fill(value);
                    part
                }
            };
            let threads: Vec<_> = (0..8).map(|value| scope.spawn(fill(value))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        for (value, part) in parts.iter().enumerate() {
            assert!(part.iter().all(|found| *found == value as i8));
        }
    }
}
