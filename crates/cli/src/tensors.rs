//! Reading tensors from `.npy`, `.npz` and raw files.

use std::io::Cursor;
use std::path::Path;

use ovir::tensor::npz::{NpzReader, read_npz};
use ovir::tensor::{npy, packed};
use ovir::{ElementType, PartialShape, Shape, Tensor, TensorError, bf16};

use crate::failure::Failure;
use crate::load::read_file;

/// What a file holds, by its first bytes or its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One array.
    Npy,
    /// Several arrays.
    Npz,
    /// A picture.
    Image,
    /// The bytes of the elements.
    Raw,
}

/// What a file holds.
///
/// # Errors
/// When neither name nor contents tell.
pub fn kind(path: &Path, bytes: &[u8]) -> Result<Kind, Failure> {
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("").to_ascii_lowercase();
    match extension.as_str() {
        "npy" => return Ok(Kind::Npy),
        "npz" => return Ok(Kind::Npz),
        "bin" | "raw" => return Ok(Kind::Raw),
        "png" | "jpg" | "jpeg" | "bmp" => return Ok(Kind::Image),
        _ => {}
    }
    if bytes.starts_with(b"\x93NUMPY") {
        return Ok(Kind::Npy);
    }
    if bytes.starts_with(b"PK") {
        return Ok(Kind::Npz);
    }
    let images: [&[u8]; 3] = [b"\x89PNG", b"\xff\xd8\xff", b"BM"];
    if images.iter().any(|magic| bytes.starts_with(magic)) {
        return Ok(Kind::Image);
    }
    Err(Failure::usage(format!(
        "{}: what kind of file is this? Known are .npy, .npz, .bin (raw), .png, .jpg and .bmp",
        path.display()
    )))
}

/// All arrays of an `.npz` file, with the element type that each is expected to have.
///
/// # Errors
/// When it cannot be read.
pub fn read_all(path: &Path, expected: impl Fn(&str) -> Option<ElementType>) -> Result<Vec<(String, Tensor)>, Failure> {
    let bytes = read_file(path)?;
    read_npz(Cursor::new(&bytes), expected).map_err(|error| Failure::from(error).within(path.display()))
}

/// The tensor for one input from an `.npy`, `.npz` or raw file. An `.npz` must hold one array, or one of `names`.
///
/// # Errors
/// When the file cannot be read, or does not fit.
pub fn read_one(
    path: &Path,
    bytes: &[u8],
    kind: Kind,
    names: &[String],
    element_type: ElementType,
    shape: &PartialShape,
) -> Result<Tensor, Failure> {
    let hint = Some(element_type).filter(|t| t.is_known());
    let tensor = match kind {
        Kind::Npy => npy::read_npy(bytes, hint),
        Kind::Npz => return read_named(path, bytes, names, element_type),
        Kind::Raw | Kind::Image => return read_raw(path, bytes, element_type, shape),
    };
    let tensor = tensor.map_err(|error| Failure::from(error).within(path.display()))?;
    Ok(convert(tensor, element_type)?)
}

fn read_named(path: &Path, bytes: &[u8], names: &[String], element_type: ElementType) -> Result<Tensor, Failure> {
    let place = |error: TensorError| Failure::from(error).within(path.display());
    let mut archive = NpzReader::new(Cursor::new(bytes)).map_err(place)?;
    let by_name = archive.names().iter().position(|key| names.contains(key));
    let index = match (by_name, archive.names().len()) {
        (Some(index), _) => index,
        (None, 1) => 0,
        _ => {
            let keys = list(archive.names());
            let message = format!("{}: no array is called {}; there is {keys}", path.display(), list(names));
            return Err(Failure::usage(message));
        }
    };
    let hint = Some(element_type).filter(|t| t.is_known());
    Ok(convert(archive.read(index, hint).map_err(place)?, element_type)?)
}

/// Raw bytes get the shape of the input; one unknown dimension follows from their number.
fn read_raw(path: &Path, bytes: &[u8], element_type: ElementType, shape: &PartialShape) -> Result<Tensor, Failure> {
    let wrong = |reason: String| Failure::usage(format!("{}: {reason}", path.display()));
    let elements = |shape: &Shape| shape.checked_elements().and_then(|count| element_type.storage_bytes(count));
    let unknown = || {
        wrong(format!(
            "raw bytes have no shape, and the input is {element_type}{shape}; give an .npy file, or a shape with --shape"
        ))
    };
    if element_type.bits() == 0 {
        return Err(wrong(format!("an input of {element_type} cannot be read from raw bytes; give an .npy file")));
    }
    let dims = shape.dims().ok_or_else(unknown)?;
    let mut sizes: Vec<usize> = dims.iter().map(|dim| dim.get().unwrap_or(1)).collect();
    let open: Vec<usize> = (0..dims.len()).filter(|index| !dims[*index].is_static()).collect();
    match open.as_slice() {
        [] => {}
        [index] => {
            let step = elements(&Shape::from_slice(&sizes)).filter(|step| *step > 0).ok_or_else(unknown)?;
            if !bytes.len().is_multiple_of(step) {
                let message = format!("the file has {} bytes, no multiple of {step}", bytes.len());
                return Err(wrong(format!("{message} as the input {element_type}{shape} takes")));
            }
            sizes[*index] = bytes.len() / step;
        }
        _ => return Err(unknown()),
    }
    let sizes = Shape::from_slice(&sizes);
    let expected = elements(&sizes).ok_or_else(unknown)?;
    if expected != bytes.len() {
        let message = format!("the file has {} bytes, the input {element_type}{shape} takes {expected}", bytes.len());
        return Err(wrong(message));
    }
    Ok(Tensor::from_bytes(element_type, sizes, bytes)?)
}

/// Arrays of f32 are accepted for the types that NumPy does not have; every other tensor stays what it is.
///
/// # Errors
/// [`TensorError::OutOfMemory`].
pub fn convert(tensor: Tensor, element_type: ElementType) -> Result<Tensor, TensorError> {
    if tensor.element_type() != ElementType::F32 || tensor.element_type() == element_type {
        return Ok(tensor);
    }
    match element_type {
        ElementType::Bf16 => {
            let values: Vec<bf16> = tensor.slice::<f32>()?.iter().map(|v| bf16::from_f32(*v)).collect();
            Tensor::from_slice(&values, tensor.shape().clone())
        }
        ElementType::F8e4m3 | ElementType::F8e5m2 | ElementType::F8e8m0 | ElementType::F4e2m1 | ElementType::Nf4 => {
            packed::pack(&tensor, element_type)
        }
        _ => Ok(tensor),
    }
}

/// Names in quotes, separated by commas.
pub fn list(names: &[String]) -> String {
    if names.is_empty() {
        return "nothing".to_owned();
    }
    names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn raw(bytes: &[u8], shape: &str) -> Result<Tensor, Failure> {
        read_raw(Path::new("x.bin"), bytes, ElementType::I16, &shape.parse().unwrap())
    }

    #[test]
    fn raw_bytes_take_the_shape_of_the_input() {
        assert_eq!(raw(&[1, 0, 2, 0, 3, 0], "3,1").unwrap(), Tensor::from_slice(&[1i16, 2, 3], [3, 1]).unwrap());
        assert_eq!(raw(&[0; 12], "?,3").unwrap().shape(), &Shape::from([2, 3]));
        for (bytes, shape) in [(5, "3"), (13, "?,3"), (12, "?,?"), (12, "..."), (12, "?,0")] {
            assert!(raw(&vec![0; bytes], shape).is_err(), "{bytes} {shape}");
        }
    }

    #[test]
    fn f32_becomes_what_numpy_lacks() {
        let tensor = Tensor::from_slice(&[1f32, -2.5], [2]).unwrap();
        let converted = convert(tensor.clone(), ElementType::Bf16).unwrap();
        assert_eq!(converted.numbers().unwrap(), [1.0, -2.5]);
        assert_eq!(convert(tensor.clone(), ElementType::F64).unwrap(), tensor);
    }
}
