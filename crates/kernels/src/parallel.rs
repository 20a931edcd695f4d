//! Splitting work over the threads of the inference.
//!
//! Chunks depend on sizes only, never on the number of threads, so that results have the same bits everywhere. A call
//! forks only on a thread that leads a [`Team`](crate::team::Team) or works in a rayon pool of more than one thread,
//! and only if its estimated work pays for the fork; otherwise, and always without the feature `threads`, it runs its
//! chunks in order on the caller's thread. Nothing here ever enters a pool.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

#[cfg(feature = "threads")]
use crate::team::{Place, place};

/// Work below this estimate, in nanoseconds of one core, is not worth waking a thread, which takes 20 microseconds and
/// more.
pub const WAKE_NANOSECONDS: u64 = 50_000;

/// Work below this estimate, in nanoseconds of one core, is not worth a fork among threads that stand by.
pub const FORK_NANOSECONDS: u64 = 10_000;

/// Whether the current thread has others to share work with.
#[must_use]
pub(crate) fn may_fork() -> bool {
    sharers() > 1
}

/// The threads that share work with the current one, itself included. Only what gives the same bits either way may ask.
#[must_use]
pub(crate) fn sharers() -> usize {
    #[cfg(feature = "threads")]
    return match place() {
        // SAFETY: the team is borrowed until `Team::lead`, inside which this runs, returns.
        Place::Leads(team) => 1 + unsafe { &*team }.helpers(),
        Place::Alone => pool_threads(),
        Place::Within => 1,
    };
    #[cfg(not(feature = "threads"))]
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
    if count <= grain {
        // One chunk, as of most small kernels, needs no division.
        if count > 0 {
            body(0..count);
        }
        return;
    }
    run_chunks(count, grain, work_nanoseconds, &body);
}

/// Several chunks; this and what it calls is not compiled for each body.
fn run_chunks(count: usize, grain: usize, work_nanoseconds: u64, body: &(dyn Fn(Range<usize>) + Sync)) {
    let chunks = count.div_ceil(grain);
    let run = |chunk: usize| {
        let start = chunk * grain;
        body(start..count.min(start.saturating_add(grain)));
    };
    #[cfg(feature = "threads")]
    if work_nanoseconds >= FORK_NANOSECONDS && fork(chunks, work_nanoseconds, &run) {
        return;
    }
    let _ = work_nanoseconds;
    for chunk in 0..chunks {
        run(chunk);
    }
}

/// As [`parallel_for`], for a body that may fail: all chunks run, and one of the failures is told.
///
/// # Errors
/// What `body` failed with, if it did.
pub(crate) fn try_parallel_for<E: Send + Sync>(
    count: usize,
    grain: usize,
    work_nanoseconds: u64,
    body: impl Fn(Range<usize>) -> Result<(), E> + Sync,
) -> Result<(), E> {
    let failed = OnceLock::new();
    parallel_for(count, grain, work_nanoseconds, |range| {
        if let Err(error) = body(range) {
            // Another one was told already.
            let _ = failed.set(error);
        }
    });
    failed.into_inner().map_or(Ok(()), Err)
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

/// Folds a long row by halves, so that the result does not depend on how many threads share it.
///
/// `sweep` folds a piece of at most `piece` values, `join` two results that lie side by side, the left one first.
pub(crate) fn fold_halves<V: Sync, T: Copy + Send + Sync>(
    values: &[V],
    piece: usize,
    neutral: T,
    work_nanoseconds: u64,
    sweep: impl Fn(&[V]) -> T + Sync,
    join: impl Fn(T, T) -> T + Sync,
) -> T {
    let halves = Halves { piece: piece.max(1), sweep, join };
    let mut results = [neutral; 1 << LEVELS];
    parallel_chunks_mut(&mut results, 1, work_nanoseconds, |index, result| {
        if let Some(part) = halves.part(values, index) {
            result[0] = halves.fold(part);
        }
    });
    halves.combine(values.len(), &results)
}

/// The levels of halving whose results are kept: their parts are what threads share.
const LEVELS: u32 = 5;

struct Halves<S, J> {
    piece: usize,
    sweep: S,
    join: J,
}

impl<S, J> Halves<S, J> {
    /// Where a row is halved; `None` for a single piece.
    fn middle(&self, len: usize) -> Option<usize> {
        (len > self.piece).then(|| (len / 2).next_multiple_of(self.piece))
    }

    /// The part of the row that is number `index` after [`LEVELS`] halvings; a piece that is not halved so often is
    /// the first of the parts it would have been halved into, and the others do not exist.
    fn part<'a, V>(&self, mut values: &'a [V], index: usize) -> Option<&'a [V]> {
        for level in (0..LEVELS).rev() {
            let is_right = index >> level & 1 == 1;
            match self.middle(values.len()) {
                Some(middle) => values = if is_right { &values[middle..] } else { &values[..middle] },
                None if is_right => return None,
                None => {}
            }
        }
        Some(values)
    }

    fn fold<V, T>(&self, values: &[V]) -> T
    where
        S: Fn(&[V]) -> T,
        J: Fn(T, T) -> T,
    {
        match self.middle(values.len()) {
            Some(middle) => (self.join)(self.fold(&values[..middle]), self.fold(&values[middle..])),
            None => (self.sweep)(values),
        }
    }

    /// Joins the results of the parts of a row of this length.
    fn combine<T: Copy>(&self, len: usize, results: &[T]) -> T
    where
        J: Fn(T, T) -> T,
    {
        let (left, right) = results.split_at(results.len() / 2);
        match self.middle(len) {
            Some(middle) if !left.is_empty() => {
                (self.join)(self.combine(middle, left), self.combine(len - middle, right))
            }
            _ => results[0],
        }
    }
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

/// Runs the chunks on several threads, or tells that there are none to share them with.
#[cfg(feature = "threads")]
fn fork(chunks: usize, work_nanoseconds: u64, run: &(impl Fn(usize) + Sync)) -> bool {
    match place() {
        Place::Leads(team) => {
            let Ok(chunks) = u32::try_from(chunks) else { return false };
            // SAFETY: the team is borrowed until `Team::lead`, inside which this runs, returns.
            let team = unsafe { &*team };
            team.share(chunks, work_nanoseconds >= WAKE_NANOSECONDS, run)
        }
        Place::Alone if work_nanoseconds >= WAKE_NANOSECONDS && pool_threads() > 1 => {
            split(0..chunks, run);
            true
        }
        Place::Alone | Place::Within => false,
    }
}

/// The number of threads of the rayon pool that the caller runs in, or 1 outside of a pool.
#[cfg(feature = "threads")]
fn pool_threads() -> usize {
    if rayon::current_thread_index().is_some() { rayon::current_num_threads() } else { 1 }
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

    #[test]
    fn failures_are_told() {
        let run = |fails: usize| {
            try_parallel_for(20, 3, u64::MAX, |range| if range.contains(&fails) { Err(range.start) } else { Ok(()) })
        };
        assert_eq!([run(7), run(20)], [Err(6), Ok(())]);
    }

    #[cfg(feature = "threads")]
    #[test]
    fn rayon_pools_share_what_is_worth_waking_a_thread() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let workers = |work| {
            let seen = std::sync::Mutex::new(std::collections::HashSet::new());
            parallel_for(64, 1, work, |_| {
                seen.lock().unwrap().insert(std::thread::current().id());
                std::thread::sleep(std::time::Duration::from_millis(1));
            });
            seen.into_inner().unwrap().len()
        };
        assert_eq!(workers(u64::MAX), 1);
        assert!(pool.install(|| workers(WAKE_NANOSECONDS)) > 1);
        assert_eq!(pool.install(|| workers(WAKE_NANOSECONDS - 1)), 1);
        let mut data = vec![0usize; 1000];
        pool.install(|| parallel_chunks_mut(&mut data, 7, u64::MAX, |index, chunk| chunk.fill(index)));
        assert_eq!(data, (0..1000).map(|i| i / 7).collect::<Vec<_>>());
    }

    #[test]
    fn halves_are_the_same_however_they_are_shared() {
        fn halve(values: &[f32], piece: usize) -> f32 {
            if values.len() <= piece {
                return values.iter().fold(0.0, |sum, value| sum * 0.9 + value);
            }
            let (left, right) = values.split_at((values.len() / 2).next_multiple_of(piece));
            halve(left, piece) - 0.5 * halve(right, piece)
        }
        for len in [0, 1, 3, 4, 5, 8, 9, 127, 128, 129, 400, 1000] {
            let values: Vec<f32> = (0..len).map(|i| (i * i % 17) as f32).collect();
            let sweep = |values: &[f32]| values.iter().fold(0.0, |sum, value| sum * 0.9 + value);
            let fold = || fold_halves(&values, 4, 0.0, u64::MAX, sweep, |left, right| left - 0.5 * right);
            assert_eq!(fold().to_bits(), halve(&values, 4).to_bits(), "{len}");
            assert_eq!(crate::testing::in_pool(3, fold).to_bits(), halve(&values, 4).to_bits(), "{len}");
        }
    }
}
