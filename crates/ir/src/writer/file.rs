//! Files that appear whole or not at all.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that is written beside its place and moved there when it is complete. Dropped before that, it leaves nothing
/// behind.
#[derive(Debug)]
pub struct AtomicFile {
    target: PathBuf,
    temporary: PathBuf,
    output: Option<BufWriter<File>>,
}

impl AtomicFile {
    /// Starts a file that will be at `target`. What is there now stays until [`AtomicFile::commit`].
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(target: &Path) -> io::Result<AtomicFile> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        let name = target.file_name().ok_or_else(|| io::Error::other("the path names no file"))?;
        let mut temporary_name = std::ffi::OsString::from(".");
        temporary_name.push(name);
        let unique = COUNTER.fetch_add(1, Ordering::Relaxed);
        temporary_name.push(format!(".{}-{unique}.tmp", std::process::id()));
        let temporary = target.with_file_name(temporary_name);
        let output = File::options().write(true).create_new(true).open(&temporary)?;
        Ok(AtomicFile { target: target.to_owned(), temporary, output: Some(BufWriter::new(output)) })
    }

    /// Moves the complete file to its place.
    ///
    /// # Errors
    /// What the operating system says; the target is then unchanged.
    pub fn commit(mut self) -> io::Result<()> {
        if let Some(mut output) = self.output.take() {
            let result = output.flush().and_then(|()| std::fs::rename(&self.temporary, &self.target));
            if result.is_err() {
                drop(output);
                // The first error is the one to tell.
                let _ = std::fs::remove_file(&self.temporary);
            }
            return result;
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.as_mut().map_or_else(|| Err(io::Error::other("the file is closed")), |output| output.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if self.output.take().is_some() {
            // Nobody can be told here.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn appears_whole_or_not_at_all() {
        let directory = std::env::temp_dir().join(format!("ovir-atomic-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("model.bin");
        let entries = || std::fs::read_dir(&directory).unwrap().count();
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"one").unwrap();
        assert!(!path.exists());
        file.commit().unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), entries()), (b"one".to_vec(), 1));
        let mut file = AtomicFile::create(&path).unwrap();
        file.write_all(b"two").unwrap();
        drop(file);
        assert_eq!((std::fs::read(&path).unwrap(), entries()), (b"one".to_vec(), 1));
        assert!(AtomicFile::create(&directory.join("no/where")).is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
