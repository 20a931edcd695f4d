//! Splitting work over the threads of the surrounding rayon pool.
//!
//! Chunks depend on sizes only, never on the number of threads, so that results have the same bits everywhere. A call
//! forks only when it already runs on a worker of a pool with more than one thread and its estimated work exceeds
//! [`FORK_NANOSECONDS`]; otherwise, and always without the feature `threads`, it runs its chunks in order on the
//! caller's thread. Nothing here ever enters a pool.

use std::marker::PhantomData;
use std::ops::Range;

/// Work below this estimate, in nanoseconds of one core, is not worth a fork: waking a sleeping worker takes about
/// 20 microseconds.
pub const FORK_NANOSECONDS: u64 = 50_000;

/// Whether a call with this estimated work (nanoseconds of one core) would fork here.
#[must_use]
pub fn would_fork(work_nanoseconds: u64) -> bool {
    work_nanoseconds >= FORK_NANOSECONDS && threads() > 1
}

/// The number of threads of the pool the caller runs in, or 1 outside a pool.
#[must_use]
pub fn threads() -> usize {
    #[cfg(feature = "threads")]
    if rayon::current_thread_index().is_some() {
        return rayon::current_num_threads();
    }
    1
}

/// The estimated nanoseconds to stream this many bytes (read plus written) through one core, at 16 bytes a nanosecond
/// while they fit the caches and 10 beyond.
#[must_use]
pub const fn nanoseconds_for_bytes(bytes: usize) -> u64 {
    if bytes < 1 << 20 { bytes as u64 / 16 } else { bytes as u64 / 10 }
}

/// The estimated nanoseconds for this many floating-point operations in dense multiply-add loops.
#[must_use]
pub const fn nanoseconds_for_flops(flops: u64) -> u64 {
    flops / 100
}

/// Calls `body` once for each chunk `[i * grain, min((i + 1) * grain, count))`, in parallel where that pays.
///
/// `grain` is taken as at least 1. `work_nanoseconds` estimates the whole call. The chunks are the same whether or not
/// the call forks.
pub fn parallel_for(count: usize, grain: usize, work_nanoseconds: u64, body: impl Fn(Range<usize>) + Sync) {
    let grain = grain.max(1);
    let chunks = count.div_ceil(grain);
    let run = |chunk: usize| {
        let start = chunk * grain;
        body(start..count.min(start.saturating_add(grain)));
    };
    #[cfg(feature = "threads")]
    if chunks > 1 && would_fork(work_nanoseconds) {
        split(0..chunks, &run);
        return;
    }
    let _ = work_nanoseconds;
    for chunk in 0..chunks {
        run(chunk);
    }
}

/// Calls `body(index, chunk)` for each `chunk_len`-long piece of `data` (the last may be shorter), in parallel where
/// that pays. `chunk_len` is taken as at least 1.
pub fn parallel_chunks_mut<T: Send>(
    data: &mut [T],
    chunk_len: usize,
    work_nanoseconds: u64,
    body: impl Fn(usize, &mut [T]) + Sync,
) {
    let chunk_len = chunk_len.max(1);
    let shared = SharedMut::new(data);
    parallel_for(shared.len(), chunk_len, work_nanoseconds, |range| {
        let index = range.start / chunk_len;
        // SAFETY: parallel_for hands out disjoint ranges within the length.
        body(index, unsafe { shared.slice(range) });
    });
}

/// Runs both closures, in parallel where that pays.
pub fn join<A: Send, B: Send>(
    work_nanoseconds: u64,
    left: impl FnOnce() -> A + Send,
    right: impl FnOnce() -> B + Send,
) -> (A, B) {
    #[cfg(feature = "threads")]
    if would_fork(work_nanoseconds) {
        return rayon::join(left, right);
    }
    let _ = work_nanoseconds;
    (left(), right())
}

/// A mutable slice whose disjoint parts several chunks of one call write.
pub(crate) struct SharedMut<'a, T> {
    pointer: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is through unsafe methods whose callers promise disjointness; T itself may be sent.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares a slice for the length of its borrow.
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { pointer: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// The length of the whole slice.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The first element's address.
    pub(crate) fn pointer(&self) -> *mut T {
        self.pointer
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// The range lies within the slice, and no other live reference overlaps it.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, range: Range<usize>) -> &mut [T] {
        debug_assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: the caller keeps the range inside and disjoint; the borrow of the whole slice outlives self.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.add(range.start), range.end - range.start) }
    }
}

/// Halves the chunk range until single chunks remain; idle workers steal the right halves.
#[cfg(feature = "threads")]
fn split(chunks: Range<usize>, run: &(impl Fn(usize) + Sync)) {
    if chunks.len() <= 1 {
        chunks.for_each(run);
        return;
    }
    let middle = chunks.start + chunks.len() / 2;
    rayon::join(|| split(chunks.start..middle, run), || split(middle..chunks.end, run));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn chunks_cover_everything_once() {
        for (count, grain) in [(0, 3), (1, 3), (10, 3), (9, 3), (5, 0), (7, usize::MAX)] {
            let mut seen = vec![0u8; count];
            let shared = SharedMut::new(&mut seen);
            parallel_for(count, grain, u64::MAX, |range| {
                // SAFETY: parallel_for's ranges are disjoint and inside.
                for cell in unsafe { shared.slice(range) } {
                    *cell += 1;
                }
            });
            assert_eq!(seen, vec![1; count]);
        }
    }

    #[cfg(feature = "threads")]
    #[test]
    fn forks_only_inside_a_pool_and_above_the_threshold() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        assert!(!would_fork(u64::MAX));
        assert!(pool.install(|| would_fork(FORK_NANOSECONDS)));
        assert!(!pool.install(|| would_fork(FORK_NANOSECONDS - 1)));
        let mut data = vec![0usize; 1000];
        pool.install(|| parallel_chunks_mut(&mut data, 7, u64::MAX, |index, chunk| chunk.fill(index)));
        assert_eq!(data, (0..1000).map(|i| i / 7).collect::<Vec<_>>());
        assert_eq!(pool.install(|| join(u64::MAX, || 1, || 2)), (1, 2));
    }
}
