//! Dense row-major tensors.

use std::fmt;
use std::sync::Arc;

use ndarray::{ArrayViewD, ArrayViewMutD};

use crate::dispatch::FromElement;
use crate::{
    AlignedBuffer, ElementType, NativeElement, Shape, TensorError, TensorView, TensorViewMut, dispatch, packed,
};

/// Bytes that somebody else owns and several tensors share: a mapped file, an arena, a buffer of the caller.
pub trait ForeignBytes: Send + Sync {
    /// All bytes.
    fn bytes(&self) -> &[u8];

    /// Says that the given range will not be read soon. Reading it later is still correct.
    fn release(&self, _range: std::ops::Range<usize>) {}
}

impl ForeignBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

#[cfg(feature = "mmap")]
impl ForeignBytes for crate::MappedFile {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn release(&self, range: std::ops::Range<usize>) {
        crate::MappedFile::release(self, range);
    }
}

/// A tensor: element type, static shape and its elements, dense and row-major.
///
/// Cloning is cheap: the elements are shared, and copied only when a shared tensor is changed. Sub-byte types are
/// packed as in IR; strings are held as Rust strings.
#[derive(Clone)]
pub struct Tensor {
    element_type: ElementType,
    shape: Shape,
    storage: Storage,
}

#[derive(Clone)]
enum Storage {
    Owned(Arc<AlignedBuffer>),
    Foreign { owner: Arc<dyn ForeignBytes>, offset: usize, length: usize },
    Strings(Arc<Vec<String>>),
}

impl Tensor {
    /// A tensor of zeros (empty strings for `string`).
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] or [`TensorError::OutOfMemory`] when the memory cannot be had.
    pub fn zeros(element_type: ElementType, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        if element_type == ElementType::String {
            let elements = shape.checked_elements().filter(|n| *n <= isize::MAX as usize / 64);
            let elements = elements.ok_or_else(|| TensorError::TooLarge { element_type, shape: shape.clone() })?;
            return Tensor::from_strings(vec![String::new(); elements], shape);
        }
        let bytes = storage_bytes(element_type, &shape)?;
        Ok(Tensor { element_type, shape, storage: Storage::Owned(Arc::new(AlignedBuffer::zeroed(bytes)?)) })
    }

    /// A tensor that copies `values`.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`] when the shape has another number of elements.
    pub fn from_slice<T: NativeElement>(values: &[T], shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        Tensor::from_bytes(T::ELEMENT_TYPE, shape, bytemuck::cast_slice(values))
    }

    /// A boolean tensor.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`] when the shape has another number of elements.
    pub fn from_booleans(values: &[bool], shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let bytes: Vec<u8> = values.iter().map(|b| u8::from(*b)).collect();
        Tensor::from_bytes(ElementType::Boolean, shape, &bytes)
    }

    /// A scalar tensor.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`].
    pub fn scalar<T: NativeElement>(value: T) -> Result<Tensor, TensorError> {
        Tensor::from_slice(&[value], Shape::default())
    }

    /// A tensor that copies its packed little-endian bytes.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`] when the shape needs another number of bytes.
    pub fn from_bytes(element_type: ElementType, shape: impl Into<Shape>, bytes: &[u8]) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        check_size(element_type, &shape, bytes.len())?;
        Ok(Tensor { element_type, shape, storage: Storage::Owned(Arc::new(AlignedBuffer::copy_of(bytes)?)) })
    }

    /// A tensor that takes over a buffer.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`] when the shape needs another number of bytes.
    pub fn from_buffer(
        element_type: ElementType,
        shape: impl Into<Shape>,
        buffer: AlignedBuffer,
    ) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        check_size(element_type, &shape, buffer.len())?;
        Ok(Tensor { element_type, shape, storage: Storage::Owned(Arc::new(buffer)) })
    }

    /// A tensor over a range of bytes that `owner` keeps alive; nothing is copied, and no alignment is assumed.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`] when the range does not hold the shape's bytes.
    pub fn from_foreign(
        element_type: ElementType,
        shape: impl Into<Shape>,
        owner: Arc<dyn ForeignBytes>,
        offset: usize,
    ) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        let length = storage_bytes(element_type, &shape)?;
        let available = owner.bytes().len().saturating_sub(offset);
        if available < length {
            return Err(TensorError::SizeMismatch { element_type, shape, expected: length, actual: available });
        }
        Ok(Tensor { element_type, shape, storage: Storage::Foreign { owner, offset, length } })
    }

    /// A tensor of strings.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`] when the shape has another number of elements.
    pub fn from_strings(values: Vec<String>, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        if shape.checked_elements() != Some(values.len()) {
            let expected = shape.elements();
            return Err(TensorError::SizeMismatch {
                element_type: ElementType::String,
                shape,
                expected,
                actual: values.len(),
            });
        }
        Ok(Tensor { element_type: ElementType::String, shape, storage: Storage::Strings(Arc::new(values)) })
    }

    /// Makes `slot` a tensor of the given type and shape whose bytes nobody shares, in the memory that it has already
    /// where that suffices. What the bytes hold is unspecified. Memory that must grow grows by half at least, so that
    /// a tensor that grows step by step rarely moves.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] or [`TensorError::OutOfMemory`] when the memory cannot be had.
    pub fn prepare(slot: &mut Option<Tensor>, element_type: ElementType, shape: &Shape) -> Result<(), TensorError> {
        if element_type == ElementType::String {
            *slot = Some(Tensor::zeros(element_type, shape.clone())?);
            return Ok(());
        }
        let bytes = storage_bytes(element_type, shape)?;
        if let Some(tensor) = slot
            && let Storage::Owned(buffer) = &mut tensor.storage
            && let Some(buffer) = Arc::get_mut(buffer)
        {
            if bytes > buffer.capacity() && buffer.capacity() > 0 {
                let grown = buffer.capacity().saturating_add(buffer.capacity() / 2).max(bytes);
                *buffer = AlignedBuffer::zeroed(grown).or_else(|_| AlignedBuffer::zeroed(bytes))?;
            }
            buffer.resize(bytes)?;
            tensor.element_type = element_type;
            tensor.shape.clone_from(shape);
            return Ok(());
        }
        *slot = Some(Tensor::zeros(element_type, shape.clone())?);
        Ok(())
    }

    /// Gives the tensor another shape, in the memory that it has already where that suffices. Bytes that both shapes have stay;
    /// what others hold is unspecified. Memory that must grow grows by half at least. A tensor whose bytes others share, or that
    /// does not own them, stays as it is; returns whether it was changed.
    ///
    /// # Errors
    /// [`TensorError::TooLarge`] or [`TensorError::OutOfMemory`] when the memory cannot be had; the tensor is then unchanged.
    pub fn resize(&mut self, shape: &Shape) -> Result<bool, TensorError> {
        let bytes = storage_bytes(self.element_type, shape)?;
        let Storage::Owned(buffer) = &mut self.storage else { return Ok(false) };
        let Some(buffer) = Arc::get_mut(buffer) else { return Ok(false) };
        if bytes > buffer.capacity() {
            let roomy = buffer.capacity().saturating_add(buffer.capacity() / 2).max(bytes);
            let mut grown = AlignedBuffer::zeroed(roomy).or_else(|_| AlignedBuffer::zeroed(bytes))?;
            grown[..buffer.len()].copy_from_slice(buffer);
            *buffer = grown;
        }
        buffer.resize(bytes)?;
        self.shape.clone_from(shape);
        Ok(true)
    }

    /// The bytes that the tensor could have without other memory, if it owns them and nobody shares them.
    pub fn own_capacity(&self) -> Option<usize> {
        match &self.storage {
            Storage::Owned(buffer) if Arc::strong_count(buffer) == 1 && Arc::weak_count(buffer) == 0 => {
                Some(buffer.capacity())
            }
            _ => None,
        }
    }

    /// The element type.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The packed bytes; empty for strings.
    pub fn bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Owned(buffer) => buffer,
            Storage::Foreign { owner, offset, length } => &owner.bytes()[*offset..*offset + *length],
            Storage::Strings(_) => &[],
        }
    }

    /// The packed bytes to change; a shared or foreign tensor is copied first. Empty for strings.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the copy cannot be had.
    pub fn bytes_mut(&mut self) -> Result<&mut [u8], TensorError> {
        let shared = match &mut self.storage {
            Storage::Owned(buffer) => Arc::get_mut(buffer).is_none(),
            Storage::Foreign { .. } => true,
            Storage::Strings(_) => false,
        };
        if shared {
            let copy = AlignedBuffer::copy_of(self.bytes())?;
            self.storage = Storage::Owned(Arc::new(copy));
        }
        match &mut self.storage {
            Storage::Owned(buffer) => Ok(Arc::get_mut(buffer).map_or(&mut [], |b| &mut b[..])),
            _ => Ok(&mut []),
        }
    }

    /// The elements as a slice.
    ///
    /// # Errors
    /// [`TensorError::WrongElementType`], or [`TensorError::Unaligned`] for a constant of a file whose bytes do not lie
    /// on an element boundary (see [`Tensor::aligned`]).
    pub fn slice<T: NativeElement>(&self) -> Result<&[T], TensorError> {
        if !T::stores(self.element_type) {
            return Err(TensorError::WrongElementType { expected: T::ELEMENT_TYPE, actual: self.element_type });
        }
        bytemuck::try_cast_slice(self.bytes()).map_err(|_| TensorError::Unaligned { element_type: self.element_type })
    }

    /// The elements as a slice to change; a shared tensor is copied first.
    ///
    /// # Errors
    /// [`TensorError::WrongElementType`] and [`TensorError::OutOfMemory`].
    pub fn slice_mut<T: NativeElement>(&mut self) -> Result<&mut [T], TensorError> {
        let element_type = self.element_type;
        if !T::stores(element_type) {
            return Err(TensorError::WrongElementType { expected: T::ELEMENT_TYPE, actual: element_type });
        }
        bytemuck::try_cast_slice_mut(self.bytes_mut()?).map_err(|_| TensorError::Unaligned { element_type })
    }

    /// The elements as an ndarray view.
    ///
    /// # Errors
    /// As [`Tensor::slice`].
    pub fn array<T: NativeElement>(&self) -> Result<ArrayViewD<'_, T>, TensorError> {
        let values = self.slice::<T>()?;
        ArrayViewD::from_shape(&self.shape[..], values).map_err(|e| TensorError::Format(e.to_string()))
    }

    /// The elements as an ndarray view to change.
    ///
    /// # Errors
    /// As [`Tensor::slice_mut`].
    pub fn array_mut<T: NativeElement>(&mut self) -> Result<ArrayViewMutD<'_, T>, TensorError> {
        let shape = self.shape.clone();
        let values = self.slice_mut::<T>()?;
        ArrayViewMutD::from_shape(&shape[..], values).map_err(|e| TensorError::Format(e.to_string()))
    }

    /// The strings of a `string` tensor.
    pub fn strings(&self) -> Option<&[String]> {
        match &self.storage {
            Storage::Strings(values) => Some(values),
            _ => None,
        }
    }

    /// The strings of a `string` tensor to change; shared strings are copied first.
    pub fn strings_mut(&mut self) -> Option<&mut Vec<String>> {
        match &mut self.storage {
            Storage::Strings(values) => Some(Arc::make_mut(values)),
            _ => None,
        }
    }

    /// The same elements under another shape of as many elements.
    ///
    /// # Errors
    /// [`TensorError::SizeMismatch`].
    pub fn reshaped(&self, shape: impl Into<Shape>) -> Result<Tensor, TensorError> {
        let shape = shape.into();
        if shape.checked_elements() != Some(self.elements()) {
            let expected = shape.elements();
            let element_type = self.element_type;
            return Err(TensorError::SizeMismatch { element_type, shape, expected, actual: self.elements() });
        }
        Ok(Tensor { element_type: self.element_type, shape, storage: self.storage.clone() })
    }

    /// The same tensor with bytes on a 64-byte boundary: itself if they are on an element boundary already, else a copy.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the copy cannot be had.
    pub fn aligned(&self) -> Result<Tensor, TensorError> {
        let width = self.element_type.byte_width().unwrap_or(1);
        let is_aligned = (self.bytes().as_ptr() as usize).is_multiple_of(width);
        match &self.storage {
            Storage::Foreign { .. } if !is_aligned => {
                Tensor::from_bytes(self.element_type, self.shape.clone(), self.bytes())
            }
            _ => Ok(self.clone()),
        }
    }

    /// The elements as numbers; `None` for strings and where memory cannot be had. 64-bit integers are rounded to f64.
    pub fn numbers(&self) -> Option<Vec<f64>> {
        let plain = match self.element_type.is_native() {
            true => self.aligned().ok()?,
            false => packed::unpack(self).ok()?,
        };
        dispatch!(plain.element_type, T in [native] => {
            Some(plain.slice::<T>().ok()?.iter().map(|value| f64::from_element(*value)).collect())
        } else { None })
    }

    /// Says that the bytes of a foreign owner will not be read soon (their pages may be given back).
    pub fn release(&self) {
        if let Storage::Foreign { owner, offset, length } = &self.storage {
            owner.release(*offset..*offset + *length);
        }
    }

    /// The address and length of the bytes, which identify a shared constant.
    pub fn identity(&self) -> (usize, usize) {
        let bytes = self.bytes();
        (bytes.as_ptr() as usize, bytes.len())
    }

    /// A borrowed view.
    pub fn view(&self) -> TensorView<'_> {
        match &self.storage {
            Storage::Strings(values) => TensorView::of_strings(&self.shape, values),
            _ => TensorView::of_bytes(self.element_type, &self.shape, self.bytes()),
        }
    }

    /// A borrowed view to change; a shared tensor is copied first.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the copy cannot be had.
    pub fn view_mut(&mut self) -> Result<TensorViewMut<'_>, TensorError> {
        let element_type = self.element_type;
        self.bytes_mut()?;
        let Tensor { shape, storage, .. } = self;
        Ok(match storage {
            Storage::Strings(values) => TensorViewMut::of_strings(shape, &mut Arc::make_mut(values)[..]),
            Storage::Owned(buffer) => {
                TensorViewMut::of_bytes(element_type, shape, Arc::get_mut(buffer).map_or(&mut [], |b| &mut b[..]))
            }
            Storage::Foreign { .. } => TensorViewMut::of_bytes(element_type, shape, &mut []),
        })
    }

    /// The buffer of a tensor that owns its bytes alone; otherwise a copy.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`] when the copy cannot be had.
    pub fn into_buffer(self) -> Result<AlignedBuffer, TensorError> {
        match self.storage {
            Storage::Owned(buffer) => match Arc::try_unwrap(buffer) {
                Ok(buffer) => Ok(buffer),
                Err(shared) => AlignedBuffer::copy_of(&shared),
            },
            Storage::Foreign { owner, offset, length } => {
                AlignedBuffer::copy_of(&owner.bytes()[offset..offset + length])
            }
            Storage::Strings(_) => AlignedBuffer::zeroed(0),
        }
    }
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({}{})", self.element_type, self.shape)
    }
}

impl PartialEq for Tensor {
    /// Equal element type, shape and bits: NaNs of the same bits are equal, and 0.0 differs from -0.0.
    fn eq(&self, other: &Tensor) -> bool {
        self.element_type == other.element_type
            && self.shape == other.shape
            && self.bytes() == other.bytes()
            && self.strings() == other.strings()
    }
}

fn storage_bytes(element_type: ElementType, shape: &Shape) -> Result<usize, TensorError> {
    shape
        .checked_elements()
        .and_then(|elements| element_type.storage_bytes(elements))
        .filter(|bytes| *bytes <= isize::MAX as usize)
        .ok_or_else(|| TensorError::TooLarge { element_type, shape: shape.clone() })
}

fn check_size(element_type: ElementType, shape: &Shape, actual: usize) -> Result<(), TensorError> {
    let expected = storage_bytes(element_type, shape)?;
    if expected == actual {
        return Ok(());
    }
    Err(TensorError::SizeMismatch { element_type, shape: shape.clone(), expected, actual })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn copies_only_when_shared() {
        let a = Tensor::from_slice(&[1f32, 2.0, 3.0], [3]).unwrap();
        let mut b = a.clone();
        b.slice_mut::<f32>().unwrap()[0] = 9.0;
        assert_eq!(a.slice::<f32>().unwrap(), &[1.0, 2.0, 3.0]);
        assert_eq!(b.slice::<f32>().unwrap(), &[9.0, 2.0, 3.0]);
        let before = b.bytes().as_ptr();
        b.slice_mut::<f32>().unwrap()[1] = 8.0;
        assert_eq!(before, b.bytes().as_ptr());
    }

    #[test]
    fn foreign_ranges_are_checked() {
        let owner: Arc<dyn ForeignBytes> = Arc::new(vec![0u8, 1, 0, 2, 0]);
        let tensor = Tensor::from_foreign(ElementType::U16, [2], owner.clone(), 1).unwrap();
        assert_eq!(tensor.bytes(), &[1, 0, 2, 0]);
        assert_eq!(tensor.aligned().unwrap().slice::<u16>().unwrap(), &[1, 2]);
        assert!(Tensor::from_foreign(ElementType::U16, [2], owner.clone(), 2).is_err());
        assert!(Tensor::from_foreign(ElementType::U16, [usize::MAX], owner, 0).is_err());
    }

    #[test]
    fn wrong_reads_are_errors() {
        let tensor = Tensor::from_slice(&[1i32, 2], [2]).unwrap();
        assert!(tensor.slice::<f32>().is_err());
        assert!(tensor.reshaped([3]).is_err());
        assert!(Tensor::from_slice(&[1i32, 2], [3]).is_err());
    }
}
