//! A file mapped read-only into memory.

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;

/// A read-only map of a file.
///
/// The bytes are those of the file for as long as nobody truncates it; use [`std::fs::read`] where other processes may
/// rewrite model files in place.
#[derive(Debug)]
pub struct MappedFile {
    map: Option<memmap2::Mmap>,
}

impl MappedFile {
    /// Maps the file at `path`.
    ///
    /// # Errors
    /// What the operating system says when the file cannot be opened or mapped.
    pub fn open(path: &Path) -> io::Result<MappedFile> {
        let file = File::open(path)?;
        if file.metadata()?.len() == 0 {
            return Ok(MappedFile { map: None });
        }
        // SAFETY: the map is read-only and private to this process. Another process that truncates the file while it
        // is mapped makes reads fail with a signal; that is documented on the type and avoidable by reading instead.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(MappedFile { map: Some(map) })
    }

    /// Tells the system that the pages of `range` are not needed soon, so that they no longer count as used memory.
    /// Reading them again is correct and merely slower.
    pub fn release(&self, range: std::ops::Range<usize>) {
        #[cfg(unix)]
        if let Some(map) = &self.map {
            const PAGE: usize = 4096;
            let start = range.start.next_multiple_of(PAGE);
            let end = range.end.min(map.len()) / PAGE * PAGE;
            if start < end {
                // SAFETY: dropping clean pages of a read-only file map loses nothing: a later read maps them again.
                let _ = unsafe { map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

impl Deref for MappedFile {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.map.as_deref().unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn maps_and_releases() {
        let path = std::env::temp_dir().join(format!("ovir-mapped-{}", std::process::id()));
        std::fs::write(&path, vec![7u8; 3 * 4096]).unwrap();
        let map = MappedFile::open(&path).unwrap();
        map.release(1..3 * 4096);
        assert_eq!(map.len(), 3 * 4096);
        assert!(map.iter().all(|b| *b == 7));
        std::fs::remove_file(&path).unwrap();
        assert!(MappedFile::open(&path).is_err());
    }
}
