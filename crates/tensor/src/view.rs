//! Borrowed tensors: what operations read and write.

use ndarray::{ArrayViewD, ArrayViewMutD};

use crate::{ElementType, NativeElement, Shape, Tensor, TensorError};

/// A tensor borrowed for reading.
#[derive(Clone, Copy)]
pub struct TensorView<'a> {
    element_type: ElementType,
    shape: &'a Shape,
    data: ViewData<'a>,
}

/// The elements of a [`TensorView`].
#[derive(Clone, Copy)]
pub enum ViewData<'a> {
    /// Packed little-endian bytes.
    Bytes(&'a [u8]),
    /// Strings.
    Strings(&'a [String]),
}

/// A tensor borrowed for writing.
pub struct TensorViewMut<'a> {
    element_type: ElementType,
    shape: &'a Shape,
    data: ViewDataMut<'a>,
}

/// The elements of a [`TensorViewMut`].
pub enum ViewDataMut<'a> {
    /// Packed little-endian bytes.
    Bytes(&'a mut [u8]),
    /// Strings.
    Strings(&'a mut [String]),
}

impl<'a> TensorView<'a> {
    /// A view of packed bytes. The caller vouches that the length fits the shape.
    pub fn of_bytes(element_type: ElementType, shape: &'a Shape, bytes: &'a [u8]) -> TensorView<'a> {
        TensorView { element_type, shape, data: ViewData::Bytes(bytes) }
    }

    /// A view of strings.
    pub fn of_strings(shape: &'a Shape, strings: &'a [String]) -> TensorView<'a> {
        TensorView { element_type: ElementType::String, shape, data: ViewData::Strings(strings) }
    }

    /// The element type.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The shape.
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The packed bytes; empty for strings.
    pub fn bytes(&self) -> &'a [u8] {
        match self.data {
            ViewData::Bytes(bytes) => bytes,
            ViewData::Strings(_) => &[],
        }
    }

    /// The strings of a `string` tensor.
    pub fn strings(&self) -> Option<&'a [String]> {
        match self.data {
            ViewData::Strings(strings) => Some(strings),
            ViewData::Bytes(_) => None,
        }
    }

    /// The elements.
    pub fn data(&self) -> ViewData<'a> {
        self.data
    }

    /// The elements as a slice.
    ///
    /// # Errors
    /// [`TensorError::WrongElementType`] and [`TensorError::Unaligned`].
    pub fn slice<T: NativeElement>(&self) -> Result<&'a [T], TensorError> {
        if !T::stores(self.element_type) {
            return Err(TensorError::WrongElementType { expected: T::ELEMENT_TYPE, actual: self.element_type });
        }
        bytemuck::try_cast_slice(self.bytes()).map_err(|_| TensorError::Unaligned { element_type: self.element_type })
    }

    /// The elements as an ndarray view.
    ///
    /// # Errors
    /// As [`TensorView::slice`].
    pub fn array<T: NativeElement>(&self) -> Result<ArrayViewD<'a, T>, TensorError> {
        let values = self.slice::<T>()?;
        ArrayViewD::from_shape(&self.shape[..], values).map_err(|e| TensorError::Format(e.to_string()))
    }

    /// An owned copy.
    ///
    /// # Errors
    /// [`TensorError::OutOfMemory`].
    pub fn to_tensor(&self) -> Result<Tensor, TensorError> {
        match self.data {
            ViewData::Bytes(bytes) => Tensor::from_bytes(self.element_type, self.shape.clone(), bytes),
            ViewData::Strings(strings) => Tensor::from_strings(strings.to_vec(), self.shape.clone()),
        }
    }
}

impl<'a> TensorViewMut<'a> {
    /// A view of packed bytes. The caller vouches that the length fits the shape.
    pub fn of_bytes(element_type: ElementType, shape: &'a Shape, bytes: &'a mut [u8]) -> TensorViewMut<'a> {
        TensorViewMut { element_type, shape, data: ViewDataMut::Bytes(bytes) }
    }

    /// A view of strings.
    pub fn of_strings(shape: &'a Shape, strings: &'a mut [String]) -> TensorViewMut<'a> {
        TensorViewMut { element_type: ElementType::String, shape, data: ViewDataMut::Strings(strings) }
    }

    /// The element type.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The shape.
    pub fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// The same view for a shorter time.
    pub fn reborrow(&mut self) -> TensorViewMut<'_> {
        let data = match &mut self.data {
            ViewDataMut::Bytes(bytes) => ViewDataMut::Bytes(bytes),
            ViewDataMut::Strings(strings) => ViewDataMut::Strings(strings),
        };
        TensorViewMut { element_type: self.element_type, shape: self.shape, data }
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// The packed bytes; empty for strings.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.data {
            ViewDataMut::Bytes(bytes) => bytes,
            ViewDataMut::Strings(_) => &mut [],
        }
    }

    /// The packed bytes for the whole life of the borrow; empty for strings.
    pub fn into_bytes(self) -> &'a mut [u8] {
        match self.data {
            ViewDataMut::Bytes(bytes) => bytes,
            ViewDataMut::Strings(_) => &mut [],
        }
    }

    /// The strings of a `string` tensor.
    pub fn strings_mut(&mut self) -> Option<&mut [String]> {
        match &mut self.data {
            ViewDataMut::Strings(strings) => Some(strings),
            ViewDataMut::Bytes(_) => None,
        }
    }

    /// The elements.
    pub fn data_mut(&mut self) -> &mut ViewDataMut<'a> {
        &mut self.data
    }

    /// The elements as a slice to write.
    ///
    /// # Errors
    /// [`TensorError::WrongElementType`] and [`TensorError::Unaligned`].
    pub fn slice_mut<T: NativeElement>(&mut self) -> Result<&mut [T], TensorError> {
        let element_type = self.element_type;
        if !T::stores(element_type) {
            return Err(TensorError::WrongElementType { expected: T::ELEMENT_TYPE, actual: element_type });
        }
        bytemuck::try_cast_slice_mut(self.bytes_mut()).map_err(|_| TensorError::Unaligned { element_type })
    }

    /// The elements as a slice to write, for the whole life of the borrow.
    ///
    /// # Errors
    /// As [`TensorViewMut::slice_mut`].
    pub fn into_slice<T: NativeElement>(self) -> Result<&'a mut [T], TensorError> {
        let element_type = self.element_type;
        if !T::stores(element_type) {
            return Err(TensorError::WrongElementType { expected: T::ELEMENT_TYPE, actual: element_type });
        }
        bytemuck::try_cast_slice_mut(self.into_bytes()).map_err(|_| TensorError::Unaligned { element_type })
    }

    /// The elements as an ndarray view to write.
    ///
    /// # Errors
    /// As [`TensorViewMut::slice_mut`].
    pub fn array_mut<T: NativeElement>(&mut self) -> Result<ArrayViewMutD<'_, T>, TensorError> {
        let shape = self.shape;
        let values = self.slice_mut::<T>()?;
        ArrayViewMutD::from_shape(&shape[..], values).map_err(|e| TensorError::Format(e.to_string()))
    }
}
