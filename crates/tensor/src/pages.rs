//! Large vectors on large pages.
//!
//! A system that hands out memory in pages of 4 kB takes longer to do so than a reader of an IR file takes to fill them.
//! Where it can be asked for larger pages, that time nearly goes away.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Bytes of a large page, on the processors that there are.
const LARGE_PAGE: usize = 2 << 20;

/// What allocators put before a block of their own.
const HEADER: usize = 64;

/// The fewest bytes of a vector for which large pages are asked for.
pub(crate) const FEWEST: usize = 2 * LARGE_PAGE;

/// An empty vector with room for at least `count` elements, on large pages if that is much memory and the system has
/// them.
pub fn with_room<T>(count: usize) -> Vec<T> {
    let wanted = count.saturating_mul(size_of::<T>());
    if wanted < FEWEST {
        return Vec::with_capacity(count);
    }
    let vector: Vec<T> = Vec::with_capacity(whole_pages(wanted) / size_of::<T>());
    advise(vector.as_ptr().cast(), vector.capacity() * size_of::<T>());
    vector
}

/// Reads a whole file, as [`std::fs::read`] does.
///
/// # Errors
/// What the operating system says when the file cannot be read.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = usize::try_from(file.metadata()?.len()).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    if length >= FEWEST {
        // A file may claim to be larger than memory is.
        bytes.try_reserve_exact(whole_pages(length.saturating_add(1)))?;
        advise(bytes.as_ptr(), bytes.capacity());
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Lets the heap of this process grow by `bytes` at once, on large pages, if that is much memory. It is meant for programs
/// that know that they are going to need it for many small things; the memory counts as used only when it is.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn grow_heap(bytes: usize) {
    /// Above what is left of the heap, as it grows by itself, and below what becomes a mapping of its own.
    const PROBE: usize = 1 << 20;
    let Ok(room) = libc::c_int::try_from(bytes) else { return };
    if bytes < FEWEST {
        return;
    }
    // SAFETY: these options and the position of the heap's end are for any program to set and to read; the probe is
    // freed before anybody sees it. The allocator itself gives this advice where an environment variable asks for it.
    unsafe {
        // What was grown is not to be given back at once.
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE_PAGE as libc::c_int);
        libc::mallopt(libc::M_TOP_PAD, room);
        let before = libc::sbrk(0);
        // Without the box of the compiler's ignorance the pair would be left out.
        libc::free(std::hint::black_box(libc::malloc(PROBE)));
        let grown = libc::sbrk(0).addr().saturating_sub(before.addr());
        let skipped = before.addr().next_multiple_of(LARGE_PAGE) - before.addr();
        if grown > skipped {
            libc::madvise(before.wrapping_byte_add(skipped), grown - skipped, libc::MADV_HUGEPAGE);
        }
        libc::mallopt(libc::M_TOP_PAD, PROBE as libc::c_int);
    }
}

/// Only the allocator of glibc is known to grow so.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn grow_heap(_bytes: usize) {}

/// The bytes of a block that lies in whole large pages and has room for `wanted`. Systems let such a block begin at a page.
fn whole_pages(wanted: usize) -> usize {
    wanted.saturating_add(HEADER).div_ceil(LARGE_PAGE).saturating_mul(LARGE_PAGE) - HEADER
}

/// Asks the system for large pages under a block of memory, used or not yet used, that the caller owns. Whether it does so
/// changes nothing but time.
#[cfg(target_os = "linux")]
pub(crate) fn advise(block: *const u8, bytes: usize) {
    const PAGE: usize = 4096;
    let start = block.addr().next_multiple_of(PAGE);
    let end = (block.addr() + bytes) / PAGE * PAGE;
    if start < end {
        let pointer = block.wrapping_add(start - block.addr());
        // SAFETY: this advice changes neither what memory holds nor who may use it, and a refusal leaves everything as it
        // was.
        unsafe { libc::madvise(pointer.cast_mut().cast(), end - start, libc::MADV_HUGEPAGE) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn advise(_block: *const u8, _bytes: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn large_vectors_hold_what_small_ones_hold() {
        for count in [0usize, 3, FEWEST / 8 - 1, FEWEST / 8, FEWEST / 8 + 1, FEWEST] {
            let mut vector = with_room::<u64>(count);
            assert!(vector.capacity() >= count);
            let before = vector.as_ptr();
            vector.extend((0..count).map(|index| index as u64));
            assert_eq!(vector.as_ptr(), before);
            assert!(vector.iter().enumerate().all(|(index, value)| index as u64 == *value));
        }
    }

    #[test]
    fn files_are_read_whole() {
        let path = std::env::temp_dir().join(format!("ovir-pages-{}", std::process::id()));
        for length in [0, 1, FEWEST - 1, FEWEST, FEWEST + 1] {
            let bytes: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
            std::fs::write(&path, &bytes).unwrap();
            assert!(read_file(&path).unwrap() == bytes, "{length}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read_file(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
