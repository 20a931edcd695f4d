//! Writing tensors: files that appear whole or not at all, descriptions, digests.

use std::fmt::Write as _;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use ovir::Tensor;
use ovir::ir::AtomicFile;
use ovir::tensor::npy::write_npy;
use ovir::tensor::npz::NpzWriter;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::failure::Failure;
use crate::summary::{SHOWN_VALUES, Statistics};
use crate::terminal::Terminal;

/// The longest name of a file, without its ending. File systems allow 255 bytes.
const MAX_FILE_NAME: usize = 200;

/// Files that are written beside their places and moved there together.
#[derive(Debug, Default)]
pub struct Staged {
    files: Vec<(PathBuf, AtomicFile)>,
    /// What goes to standard output.
    output: Option<Vec<u8>>,
}

impl Staged {
    /// Adds an `.npz` file, `-` being standard output.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add_npz(&mut self, path: &Path, tensors: &[(String, Tensor)]) -> Result<(), Failure> {
        let mut archive = NpzWriter::new(Cursor::new(Vec::new()));
        for (name, tensor) in tensors {
            archive.add(name, tensor).map_err(|error| Failure::from(error).within(path.display()))?;
        }
        let bytes = archive.finish().map_err(|error| Failure::from(error).within(path.display()))?.into_inner();
        if path != Path::new("-") {
            return self.add(path, |file| file.write_all(&bytes));
        }
        if self.output.replace(bytes).is_some() {
            return Err(Failure::usage("standard output can take one file only"));
        }
        Ok(())
    }

    /// Adds an `.npy` file for each tensor in a folder, which is made if it is not there.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn add_folder(&mut self, folder: &Path, tensors: &[(String, Tensor)]) -> Result<(), Failure> {
        std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
        for (name, tensor) in tensors {
            let path = folder.join(format!("{}.npy", file_name(name)));
            let mut bytes = Vec::new();
            write_npy(tensor, &mut bytes).map_err(|error| Failure::from(error).within(path.display()))?;
            self.add(&path, |file| file.write_all(&bytes))?;
        }
        Ok(())
    }

    /// Moves all files to their places.
    ///
    /// # Errors
    /// When one cannot be moved.
    pub fn commit(self, terminal: &Terminal) -> Result<(), Failure> {
        for (path, file) in self.files {
            file.commit().map_err(|error| Failure::file(&path, &error))?;
        }
        self.output.map_or(Ok(()), |bytes| terminal.print_bytes(&bytes))
    }

    fn add(&mut self, path: &Path, write: impl FnOnce(&mut AtomicFile) -> std::io::Result<()>) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::file(path, &error);
        if self.files.iter().any(|(other, _)| other == path) {
            return Err(Failure::usage(format!("{} is to be written twice", path.display())));
        }
        let mut file = AtomicFile::create(path).map_err(failed)?;
        write(&mut file).and_then(|()| file.flush()).map_err(failed)?;
        self.files.push((path.to_owned(), file));
        Ok(())
    }
}

/// A tensor name as the name of a file, never a path: `/`, `\`, `%`, `..` and control characters are percent-encoded,
/// and very long names are cut and told apart by their digest.
pub fn file_name(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    let bytes = name.as_bytes();
    for (position, letter) in name.char_indices() {
        let is_double = letter == '.'
            && (bytes.get(position + 1) == Some(&b'.')
                || position.checked_sub(1).is_some_and(|before| bytes[before] == b'.'));
        let is_special = cfg!(windows) && matches!(letter, '<' | '>' | ':' | '"' | '|' | '?' | '*');
        if is_double || is_special || matches!(letter, '/' | '\\' | '%') || letter.is_control() {
            for byte in letter.encode_utf8(&mut [0; 4]).bytes() {
                // Writing to a string cannot fail.
                let _ = write!(encoded, "%{byte:02X}");
            }
        } else {
            encoded.push(letter);
        }
    }
    if encoded.is_empty() {
        return "%".to_owned();
    }
    if encoded.len() <= MAX_FILE_NAME {
        return encoded;
    }
    let mut end = MAX_FILE_NAME - 17;
    while !encoded.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{}", &encoded[..end], &hexadecimal(&Sha256::digest(name.as_bytes()))[..16])
}

/// What a tensor is and holds, for programs.
pub fn describe_json(name: &str, tensor: &Tensor, digest: Option<String>) -> Value {
    let mut object = json!({
        "name": name,
        "element_type": tensor.element_type().name(),
        "shape": tensor.shape().to_vec(),
    });
    let values = tensor.numbers();
    if let Some(values) = &values {
        let statistics = Statistics::of(values);
        object["min"] = number(statistics.min);
        object["max"] = number(statistics.max);
        object["mean"] = number(statistics.mean);
        object["nan"] = json!(statistics.nan);
        object["infinite"] = json!(statistics.infinite);
        object["first_values"] = values.iter().take(SHOWN_VALUES).map(|v| number(Some(*v))).collect();
    }
    if let Some(strings) = tensor.strings() {
        object["first_values"] = strings.iter().take(SHOWN_VALUES).map(|s| json!(s)).collect();
    }
    if let Some(digest) = digest {
        object["sha256"] = json!(digest);
    }
    object
}

/// A number as JSON; numbers that JSON does not have are texts, absent ones null.
pub fn number(value: Option<f64>) -> Value {
    match value {
        None => Value::Null,
        Some(value) if value.is_finite() => json!(value),
        Some(value) if value.is_nan() => json!("nan"),
        Some(value) => json!(if value > 0.0 { "inf" } else { "-inf" }),
    }
}

/// The sha256 of a tensor's elements: their bytes in row-major order, little-endian, as they are stored; of strings the
/// length of each as 8 bytes, then its UTF-8.
pub fn digest(tensor: &Tensor) -> String {
    let mut hasher = Sha256::new();
    match tensor.strings() {
        Some(strings) => {
            for string in strings {
                hasher.update((string.len() as u64).to_le_bytes());
                hasher.update(string.as_bytes());
            }
        }
        None => hasher.update(tensor.bytes()),
    }
    hexadecimal(&hasher.finalize())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn names_never_become_paths() {
        assert_eq!(file_name("conv1/out:0"), "conv1%2Fout:0");
        assert_eq!(file_name("../../etc/passwd"), "%2E%2E%2F%2E%2E%2Fetc%2Fpasswd");
        assert_eq!(file_name("..."), "%2E%2E%2E");
        assert_eq!(file_name("a.b.1"), "a.b.1");
        assert_eq!(file_name("100%\n\\"), "100%25%0A%5C");
        assert_eq!(file_name("é"), "é");
        assert_eq!(file_name(""), "%");
        let long = file_name(&"é".repeat(300));
        assert!(long.len() <= MAX_FILE_NAME, "{}", long.len());
        assert!(long != file_name(&"é".repeat(301)));
    }

    #[test]
    fn digests_are_of_the_bytes() {
        let tensor = Tensor::from_slice(b"abc", [3]).unwrap();
        assert_eq!(digest(&tensor), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        let strings = |texts: &[&str]| {
            Tensor::from_strings(texts.iter().map(|t| (*t).to_owned()).collect(), [texts.len()]).unwrap()
        };
        assert!(digest(&strings(&["ab", "c"])) != digest(&strings(&["a", "bc"])));
    }
}
