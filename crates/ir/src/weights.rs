//! The weights file: the bytes of all constants.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ovir_diagnostics::Code;
use ovir_tensor::{ElementType, ForeignBytes, Shape, Tensor, TensorError};

use crate::strings::unpack_strings;

/// The `.bin` that belongs to an IR file, or its absence. Cloning shares it.
///
/// Constants are ranges of it and keep it alive; nothing is copied but strings.
#[derive(Clone, Default)]
pub struct Weights {
    owner: Option<Arc<dyn ForeignBytes>>,
}

/// Why a constant cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// There is no weights file.
    #[error("the weights file is missing")]
    Missing,
    /// The constant lies outside the file.
    #[error("the constant takes {size} bytes from offset {offset}, but the weights file has {available} bytes")]
    Short {
        /// The offset of its first byte.
        offset: u64,
        /// Its bytes.
        size: u64,
        /// The bytes of the file.
        available: u64,
    },
    /// The size disagrees with the shape.
    #[error("a constant {element_type}{shape} takes {expected} bytes, but its size says {actual}")]
    Size {
        /// The element type.
        element_type: ElementType,
        /// The shape.
        shape: Shape,
        /// The bytes that the shape needs.
        expected: u64,
        /// The bytes that `size` says.
        actual: u64,
    },
    /// The shape has more bytes than this machine can address.
    #[error("a constant {element_type}{shape} is too large for this machine")]
    TooLarge {
        /// The element type.
        element_type: ElementType,
        /// The shape.
        shape: Shape,
    },
    /// The bytes of a string constant are no strings.
    #[error("the string constant cannot be read: {0}")]
    Strings(String),
    /// A constant has no element type.
    #[error("a constant cannot have the element type {0}")]
    ElementType(ElementType),
    /// Memory could not be had.
    #[error(transparent)]
    Tensor(#[from] TensorError),
}

impl WeightsError {
    /// The code of the finding.
    pub fn code(&self) -> Code {
        match self {
            WeightsError::Missing => Code::MissingWeights,
            WeightsError::Short { .. } => Code::ShortWeights,
            WeightsError::Size { .. } => Code::ConstantSize,
            WeightsError::TooLarge { .. } => Code::LimitExceeded,
            WeightsError::Strings(_) | WeightsError::ElementType(_) | WeightsError::Tensor(_) => Code::InvalidConstant,
        }
    }
}

impl Weights {
    /// No weights: only constants without elements can be read.
    pub fn absent() -> Weights {
        Weights::default()
    }

    /// Weights in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Weights {
        Weights::from_owner(Arc::new(bytes))
    }

    /// Weights that somebody else owns.
    pub fn from_owner(owner: Arc<dyn ForeignBytes>) -> Weights {
        Weights { owner: Some(owner) }
    }

    /// Reads a file into memory.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn read(path: &Path) -> io::Result<Weights> {
        Ok(Weights::from_bytes(std::fs::read(path)?))
    }

    /// Maps a file into memory, which takes no time and reads only what is used. No other process may shorten the file
    /// while it is mapped; use [`Weights::read`] where that could happen.
    ///
    /// # Errors
    /// What the operating system says.
    #[cfg(feature = "mmap")]
    pub fn map(path: &Path) -> io::Result<Weights> {
        Ok(Weights::from_owner(Arc::new(ovir_tensor::MappedFile::open(path)?)))
    }

    /// Whether there is no weights file.
    pub fn is_absent(&self) -> bool {
        self.owner.is_none()
    }

    /// The number of bytes; `None` if there is no weights file.
    pub fn size(&self) -> Option<u64> {
        self.owner.as_ref().map(|owner| wide(owner.bytes().len()))
    }

    /// A range of the bytes.
    ///
    /// # Errors
    /// [`WeightsError::Missing`] and [`WeightsError::Short`].
    pub fn bytes(&self, offset: u64, size: u64) -> Result<&[u8], WeightsError> {
        let all = self.owner.as_ref().ok_or(WeightsError::Missing)?.bytes();
        let range =
            usize::try_from(offset).ok().zip(offset.checked_add(size).and_then(|end| usize::try_from(end).ok()));
        range.and_then(|(start, end)| all.get(start..end)).ok_or_else(|| WeightsError::Short {
            offset,
            size,
            available: wide(all.len()),
        })
    }

    /// The constant that `<data element_type shape offset size>` describes. Sub-byte types stay packed. The `size` of a
    /// constant without elements may be anything, since OpenVINO writes 1.
    ///
    /// # Errors
    /// [`WeightsError`]
    pub fn constant(
        &self,
        element_type: ElementType,
        shape: &Shape,
        offset: u64,
        size: u64,
    ) -> Result<Tensor, WeightsError> {
        let too_large = || WeightsError::TooLarge { element_type, shape: shape.clone() };
        let elements = shape.checked_elements().ok_or_else(too_large)?;
        match element_type {
            ElementType::Dynamic => return Err(WeightsError::ElementType(element_type)),
            ElementType::String => {
                let strings = unpack_strings(self.bytes(offset, size)?, elements).map_err(WeightsError::Strings)?;
                return Ok(Tensor::from_strings(strings, shape.clone())?);
            }
            _ if elements == 0 => return Ok(Tensor::zeros(element_type, shape.clone())?),
            _ => {}
        }
        let expected = element_type.storage_bytes(elements).ok_or_else(too_large)?;
        if wide(expected) != size {
            let shape = shape.clone();
            return Err(WeightsError::Size { element_type, shape, expected: wide(expected), actual: size });
        }
        self.bytes(offset, size)?;
        let (Some(owner), Ok(offset)) = (&self.owner, usize::try_from(offset)) else {
            return Err(WeightsError::Missing);
        };
        Ok(Tensor::from_foreign(element_type, shape.clone(), owner.clone(), offset)?)
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size() {
            Some(size) => write!(f, "Weights({size} bytes)"),
            None => f.write_str("Weights(absent)"),
        }
    }
}

fn wide(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    fn weights() -> Weights {
        Weights::from_bytes((0..20).collect())
    }

    #[test]
    fn constants_share_the_owner() {
        let weights = weights();
        let constant = weights.constant(ElementType::U16, &Shape::from([3]), 5, 6).unwrap();
        assert_eq!(constant.bytes(), [5, 6, 7, 8, 9, 10]);
        assert_eq!(constant.identity().0, weights.bytes(5, 1).unwrap().as_ptr() as usize);
        drop(weights);
        assert_eq!(constant.bytes()[0], 5);
    }

    #[test]
    fn packed_types_stay_packed() {
        let constant = weights().constant(ElementType::U3, &Shape::from([9]), 1, 6).unwrap();
        assert_eq!(constant.bytes(), [1, 2, 3, 4, 5, 6]);
        let constant = weights().constant(ElementType::I4, &Shape::from([3]), 0, 2).unwrap();
        assert_eq!(constant.bytes(), [0, 1]);
    }

    #[test]
    fn constants_without_elements_need_no_bytes() {
        for weights in [Weights::absent(), weights()] {
            for size in [0, 1, 99] {
                let constant = weights.constant(ElementType::F32, &Shape::from([0, 3]), 0, size).unwrap();
                assert_eq!(constant.shape(), &Shape::from([0, 3]));
            }
        }
    }

    #[test]
    fn strings_are_unpacked() {
        let bytes = include_bytes!("../tests/fixtures/strings.bin");
        let weights = Weights::from_bytes(bytes.to_vec());
        let constant = weights.constant(ElementType::String, &Shape::from([2, 2]), 0, 38).unwrap();
        assert_eq!(constant.strings().unwrap(), ["hello", "wörld", "", "abc"]);
        let error = weights.constant(ElementType::String, &Shape::from([4]), 0, 37).unwrap_err();
        assert_eq!(error.code(), Code::InvalidConstant);
    }

    #[test]
    fn ranges_are_checked() {
        let shape = Shape::from([2]);
        let code = |weights: &Weights, shape: &Shape, offset, size| {
            weights.constant(ElementType::F32, shape, offset, size).unwrap_err().code()
        };
        assert_eq!(code(&Weights::absent(), &shape, 0, 8), Code::MissingWeights);
        assert_eq!(code(&weights(), &shape, 13, 8), Code::ShortWeights);
        assert_eq!(code(&weights(), &shape, u64::MAX, 8), Code::ShortWeights);
        assert_eq!(code(&weights(), &shape, 0, 7), Code::ConstantSize);
        assert_eq!(code(&weights(), &shape, 0, 9), Code::ConstantSize);
        assert_eq!(code(&weights(), &Shape::from([usize::MAX, 2]), 0, 8), Code::LimitExceeded);
        assert_eq!(code(&weights(), &Shape::from([usize::MAX]), 0, 8), Code::LimitExceeded);
        let message = weights().constant(ElementType::F32, &shape, 13, 8).unwrap_err().to_string();
        assert_eq!(message, "the constant takes 8 bytes from offset 13, but the weights file has 20 bytes");
    }

    #[cfg(feature = "mmap")]
    #[test]
    fn files_are_mapped_or_read() {
        let path = std::env::temp_dir().join(format!("ovir-weights-{}.bin", std::process::id()));
        std::fs::write(&path, [1, 2, 3, 4]).unwrap();
        for weights in [Weights::map(&path).unwrap(), Weights::read(&path).unwrap()] {
            let constant = weights.constant(ElementType::U8, &Shape::from([2]), 2, 2).unwrap();
            assert_eq!(constant.bytes(), [3, 4]);
        }
        std::fs::remove_file(&path).unwrap();
        assert!(Weights::map(&path).is_err());
    }
}
