//! NumPy's `.npz` files: zip archives of `.npy` files.

use std::io::{Read, Seek, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::npy::{read_npy, write_npy};
use crate::{ElementType, Tensor, TensorError};

/// Arrays of an archive.
const MAX_ENTRIES: usize = 1 << 20;

/// How many times larger than its compressed bytes an array may be. Deflate reaches 1032 at most.
const MAX_EXPANSION: u64 = 1100;

/// An `.npz` archive that is read array by array.
pub struct NpzReader<R> {
    archive: ZipArchive<R>,
    names: Vec<String>,
}

impl<R: Read + Seek> NpzReader<R> {
    /// Opens an archive.
    ///
    /// # Errors
    /// [`TensorError::Format`] if it is no zip archive.
    pub fn new(reader: R) -> Result<NpzReader<R>, TensorError> {
        let mut archive = ZipArchive::new(reader).map_err(|error| archive_error(&error))?;
        if archive.len() > MAX_ENTRIES {
            return Err(TensorError::Format(format!("the archive has more than {MAX_ENTRIES} arrays")));
        }
        let mut names = Vec::with_capacity(archive.len());
        for index in 0..archive.len() {
            let entry = archive.by_index(index).map_err(|error| archive_error(&error))?;
            let name = entry.name().map_err(|error| archive_error(&error))?;
            names.push(name.strip_suffix(".npy").unwrap_or(&name).to_owned());
        }
        Ok(NpzReader { archive, names })
    }

    /// The names of the arrays in the order of the archive, without `.npy`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Reads the array at a position in [`NpzReader::names`]. For `hint` see [`read_npy`].
    ///
    /// # Errors
    /// [`TensorError::Format`] and [`TensorError::OutOfMemory`].
    pub fn read(&mut self, index: usize, hint: Option<ElementType>) -> Result<Tensor, TensorError> {
        let mut entry = self.archive.by_index(index).map_err(|error| archive_error(&error))?;
        let size = entry.size();
        if size > entry.compressed_size().saturating_add(1).saturating_mul(MAX_EXPANSION) {
            return Err(TensorError::Format("the archive lies about the size of an array".to_owned()));
        }
        let out_of_memory = |_| TensorError::OutOfMemory { bytes: usize::try_from(size).unwrap_or(usize::MAX) };
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(usize::try_from(size).unwrap_or(usize::MAX)).map_err(out_of_memory)?;
        // One byte more than promised is enough to see that the promise was wrong.
        let read = Read::by_ref(&mut entry).take(size.saturating_add(1)).read_to_end(&mut bytes);
        read.map_err(|error| TensorError::Format(format!("the archive cannot be read: {error}")))?;
        if bytes.len() as u64 != size {
            return Err(TensorError::Format("the archive lies about the size of an array".to_owned()));
        }
        read_npy(&bytes, hint)
    }
}

/// Reads all arrays of an archive, with the hint that `hint` gives for each name (see [`read_npy`]).
///
/// # Errors
/// [`TensorError::Format`], which names the array, and [`TensorError::OutOfMemory`].
pub fn read_npz(
    reader: impl Read + Seek,
    hint: impl Fn(&str) -> Option<ElementType>,
) -> Result<Vec<(String, Tensor)>, TensorError> {
    let mut archive = NpzReader::new(reader)?;
    let mut arrays = Vec::with_capacity(archive.names.len());
    for index in 0..archive.names.len() {
        let name = archive.names[index].clone();
        let tensor = archive.read(index, hint(&name)).map_err(|error| match error {
            TensorError::Format(message) => TensorError::Format(format!("array `{name}`: {message}")),
            other => other,
        })?;
        arrays.push((name, tensor));
    }
    Ok(arrays)
}

/// An `.npz` archive that is written array by array.
pub struct NpzWriter<W: Write + Seek> {
    archive: ZipWriter<W>,
    method: CompressionMethod,
}

impl<W: Write + Seek> NpzWriter<W> {
    /// Starts an archive whose arrays are stored as they are.
    pub fn new(writer: W) -> NpzWriter<W> {
        NpzWriter { archive: ZipWriter::new(writer), method: CompressionMethod::Stored }
    }

    /// Starts an archive whose arrays are compressed.
    pub fn compressed(writer: W) -> NpzWriter<W> {
        NpzWriter { archive: ZipWriter::new(writer), method: CompressionMethod::Deflated }
    }

    /// Adds an array. The same arrays give the same bytes on every run.
    ///
    /// # Errors
    /// [`TensorError::Format`] if it cannot be written, or if the name is there already.
    pub fn add(&mut self, name: &str, tensor: &Tensor) -> Result<(), TensorError> {
        // From 4 GiB on the archive needs larger fields. The bytes of strings are known only after writing.
        let bytes = tensor.bytes().len().max(tensor.elements());
        let is_large = bytes >= 1 << 31 || tensor.strings().is_some();
        let options = SimpleFileOptions::default()
            .compression_method(self.method)
            .last_modified_time(zip::DateTime::default())
            .large_file(is_large);
        self.archive.start_file(format!("{name}.npy"), options).map_err(|error| archive_error(&error))?;
        write_npy(tensor, &mut self.archive)
    }

    /// Writes the directory of the archive and returns the writer.
    ///
    /// # Errors
    /// [`TensorError::Format`] if it cannot be written.
    pub fn finish(self) -> Result<W, TensorError> {
        self.archive.finish().map_err(|error| archive_error(&error))
    }
}

fn archive_error(error: &zip::result::ZipError) -> TensorError {
    TensorError::Format(format!("the .npz archive: {error}"))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use pretty_assertions::assert_eq;

    /// Two arrays by numpy.savez (`a`, f32 [2,2]) and numpy.savez_compressed (`b/c`, strings).
    const STORED: &[u8] = include_bytes!("../tests/fixtures/stored.npz");
    const COMPRESSED: &[u8] = include_bytes!("../tests/fixtures/compressed.npz");

    #[test]
    fn reads_what_numpy_wrote() {
        let arrays = read_npz(Cursor::new(STORED), |_| None).unwrap();
        assert_eq!(arrays[0].0, "a");
        assert_eq!(arrays[0].1.slice::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0]);
        let arrays = read_npz(Cursor::new(COMPRESSED), |_| None).unwrap();
        assert_eq!(arrays[0].0, "b/c");
        assert_eq!(arrays[0].1.strings().unwrap(), ["x", "yé"]);
        assert_eq!(arrays[1].1.elements(), 1000);
    }

    #[test]
    fn archives_read_back() {
        let a = Tensor::from_slice(&[1i64, -2], [2]).unwrap();
        let b = Tensor::zeros(ElementType::F32, [1000]).unwrap();
        let build = |mut writer: NpzWriter<Cursor<Vec<u8>>>| {
            writer.add("x/../y", &a).unwrap();
            writer.add("b:0", &b).unwrap();
            assert!(writer.add("b:0", &b).is_err());
            writer.finish().unwrap().into_inner()
        };
        let stored = build(NpzWriter::new(Cursor::default()));
        let compressed = build(NpzWriter::compressed(Cursor::default()));
        assert!(compressed.len() < 1000 && stored.len() > 4000);
        for bytes in [&stored, &compressed] {
            let arrays = read_npz(Cursor::new(bytes), |_| None).unwrap();
            assert_eq!(arrays, [("x/../y".to_owned(), a.clone()), ("b:0".to_owned(), b.clone())]);
        }
        assert_eq!(stored, build(NpzWriter::new(Cursor::default())));
    }

    #[test]
    fn damage_never_panics() {
        assert!(NpzReader::new(Cursor::new(b"PK")).is_err());
        for original in [STORED, COMPRESSED] {
            for position in 0..original.len() {
                let mut bytes = original.to_vec();
                bytes[position] ^= 0x5a;
                let _ = read_npz(Cursor::new(&bytes), |_| None);
                let _ = read_npz(Cursor::new(&original[..position]), |_| None);
            }
        }
    }
}
