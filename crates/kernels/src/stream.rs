//! Copies past the caches.

use crate::parallel::nanoseconds_for_bytes;

/// Outputs from this size on are copied past the caches: they would not stay in them, and a store past the caches saves
/// the trip that fetches a line before it is overwritten. Tests need not make such large ones.
pub(crate) const STREAM_BYTES: usize = if cfg!(test) { 1 << 21 } else { 1 << 23 };

/// Bytes of a line of the caches.
pub(crate) const LINE_BYTES: usize = 64;

/// So far ahead of what is copied is asked for: a page. Processors fetch ahead by themselves within a page only, and find out anew
/// where each one is.
#[cfg(target_arch = "x86_64")]
const AHEAD_BYTES: usize = 1 << 12;

/// The bytes that one chunk of a parallel copy covers.
const CHUNK: usize = 1 << 18;

/// The estimated nanoseconds that one core takes to copy so many bytes: within the caches, it reads and writes 48 bytes
/// in a nanosecond.
pub(crate) fn copy_nanoseconds(bytes: usize) -> u64 {
    if bytes < STREAM_BYTES { bytes as u64 / 24 } else { nanoseconds_for_bytes(2 * bytes) }
}

/// Copies `source` to `target`, which has the same length, by all threads where that pays.
///
/// # Panics
/// The lengths differ.
pub(crate) fn copy(source: &[u8], target: &mut [u8]) {
    let len = target.len();
    crate::parallel::parallel_chunks_mut(target, CHUNK, copy_nanoseconds(len), |index, target| {
        let source = &source[index * CHUNK..][..target.len()];
        if len >= STREAM_BYTES { past_caches(source, target) } else { target.copy_from_slice(source) }
    });
}

/// Copies `source` to `target`, which has the same length, without leaving the target in the caches.
///
/// # Panics
/// The lengths differ.
pub(crate) fn past_caches(source: &[u8], target: &mut [u8]) {
    PastCaches::begin().copy(source, target);
}

/// Copies that do not leave their targets in the caches, until it is dropped: all later stores come after them then, such as those
/// by which another thread learns that they are done.
pub(crate) struct PastCaches(());

impl PastCaches {
    pub(crate) fn begin() -> Self {
        Self(())
    }

    /// Copies `source` to `target`, which has the same length.
    ///
    /// # Panics
    /// The lengths differ.
    pub(crate) fn copy(&self, source: &[u8], target: &mut [u8]) {
        self.copy_while(source, source.as_ptr(), target);
    }

    /// The same while what lies a page behind an address, which need not be valid, is fetched: as much as is copied.
    ///
    /// # Panics
    /// The lengths differ.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn copy_while(&self, source: &[u8], fetched: *const u8, target: &mut [u8]) {
        assert_eq!(source.len(), target.len());
        let head = target.as_ptr().align_offset(LINE_BYTES).min(target.len());
        let (first, rest) = target.split_at_mut(head);
        first.copy_from_slice(&source[..head]);
        let (lines, last) = rest.as_chunks_mut();
        let (from, source) = source[head..].as_chunks();
        for (index, (to, from)) in lines.iter_mut().zip(from).enumerate() {
            prefetch_near(fetched.wrapping_add(AHEAD_BYTES + head + index * LINE_BYTES));
            // SAFETY: the target is aligned to lines.
            unsafe { line(from, to) };
        }
        last.copy_from_slice(source);
    }

    /// The same. Processors of aarch64 see by themselves that whole lines are overwritten one after the other, and stop fetching and
    /// keeping them; others may not.
    ///
    /// # Panics
    /// The lengths differ.
    #[cfg(not(target_arch = "x86_64"))]
    pub(crate) fn copy_while(&self, source: &[u8], _fetched: *const u8, target: &mut [u8]) {
        target.copy_from_slice(source);
    }
}

impl Drop for PastCaches {
    fn drop(&mut self) {
        // SAFETY: every x86-64 has the instruction.
        #[cfg(target_arch = "x86_64")]
        unsafe {
            std::arch::x86_64::_mm_sfence();
        }
    }
}

/// Copies a line past the caches.
///
/// # Safety
/// `to` is aligned to 16 bytes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn line(from: &[u8; LINE_BYTES], to: &mut [u8; LINE_BYTES]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    let (from, to) = (from.as_ptr().cast::<__m128i>(), to.as_mut_ptr().cast::<__m128i>());
    for part in 0..LINE_BYTES / size_of::<__m128i>() {
        // SAFETY: so many parts lie in both, and the caller aligned the target to a part.
        unsafe { _mm_stream_si128(to.add(part), _mm_loadu_si128(from.add(part))) };
    }
}

/// Asks for the cache line at an address, which need not be valid, for soon.
#[inline(always)]
pub(crate) fn prefetch_near<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction, which only hints, whatever the address is.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: every aarch64 has the instruction, which only hints, whatever the address is.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address.addr(), options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// The same for later: into the second cache.
#[inline(always)]
pub(crate) fn prefetch_far<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(address.cast());
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl2keep, [{}]", in(reg) address.addr(), options(nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

/// Asks for the lines of a tile of `ROWS` rows, so that they are there when its sums are: what it stores, and the residual
/// it adds. Rows lie `row` elements apart, and `line` tells where in a row each of its `lines` is. A null pointer has none.
#[inline(always)]
pub(crate) fn prefetch_tile<T, const ROWS: usize>(
    values: *const T,
    row: usize,
    lines: usize,
    line: impl Fn(usize) -> usize,
) {
    if values.is_null() {
        return;
    }
    for index in 0..ROWS {
        for column in 0..lines {
            prefetch_near(values.wrapping_add(index * row + line(column)));
        }
    }
}

/// Asks for all lines of so many elements from one on, which need not be valid, for soon.
#[inline(always)]
pub(crate) fn prefetch_span<T>(first: *const T, len: usize) {
    for place in (0..len).step_by(LINE_BYTES / size_of::<T>()) {
        prefetch_near(first.wrapping_add(place));
    }
    // The first element may lie anywhere in its line.
    prefetch_near(first.wrapping_add(len.wrapping_sub(1)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn copies_of_any_length_and_alignment() {
        let source: Vec<u8> = (0..70_000u32).map(|i| (i * 7 % 251) as u8).collect();
        for offset in [0, 1, 15, 63, 64] {
            for len in [0, 1, 63, 64, 65, 127, 128, 500, 16_384, 16_447, 16_700, 65_699] {
                let mut target = vec![0xee; 66_000];
                past_caches(&source[3..3 + len], &mut target[offset..offset + len]);
                assert_eq!(target[offset..offset + len], source[3..3 + len]);
                assert!(target[..offset].iter().chain(&target[offset + len..]).all(|byte| *byte == 0xee));
            }
        }
    }

    #[test]
    fn large_copies_are_split() {
        let source: Vec<u8> = (0..STREAM_BYTES + 77).map(|i| (i % 253) as u8).collect();
        for len in [CHUNK + 5, source.len()] {
            let mut target = vec![0; len];
            crate::testing::in_pool(2, || copy(&source[..len], &mut target));
            assert!(target == source[..len]);
        }
    }
}
