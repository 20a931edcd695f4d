//! What scatters read and write: tensors and ndarray arrays.

use std::borrow::Cow;

use ndarray::{ArrayBase, Data, DataMut, Dimension};
use ovir_tensor::{ElementType, NativeElement, Shape, Tensor, TensorView, TensorViewMut};

/// A value that is read: a [`Tensor`], or an ndarray array or view of a native element type or of `bool`.
pub trait Operand {
    /// The elements in row-major order, copied only where they do not lie so.
    fn hold(&self) -> Held<'_>;
}

/// A value that is changed: a [`Tensor`], or an ndarray array or mutable view.
pub trait OperandMut {
    /// The element type.
    fn element_type(&self) -> ElementType;

    /// The shape.
    fn shape(&self) -> Shape;

    /// Calls `change` with the elements in row-major order; where they do not lie so, with a copy that is copied back.
    fn change<E>(&mut self, change: impl FnOnce(TensorViewMut<'_>) -> Result<(), E>) -> Result<(), E>
    where
        Self: Sized,
        E: From<ovir_tensor::TensorError>;
}

/// An operand while it is read.
pub struct Held<'a> {
    element_type: ElementType,
    shape: Shape,
    data: HeldData<'a>,
}

enum HeldData<'a> {
    Bytes(Cow<'a, [u8]>),
    Strings(&'a [String]),
}

/// A number that is cast to the element type of the tensor that it is written to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// A boolean.
    Boolean(bool),
}

impl From<i64> for Scalar {
    fn from(value: i64) -> Scalar {
        Scalar::Integer(value)
    }
}

impl From<i32> for Scalar {
    fn from(value: i32) -> Scalar {
        Scalar::Integer(i64::from(value))
    }
}

impl From<f64> for Scalar {
    fn from(value: f64) -> Scalar {
        Scalar::Float(value)
    }
}

impl From<f32> for Scalar {
    fn from(value: f32) -> Scalar {
        Scalar::Float(f64::from(value))
    }
}

impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar::Boolean(value)
    }
}

impl Held<'_> {
    /// The elements.
    pub fn view(&self) -> TensorView<'_> {
        self.view_as(&self.shape)
    }

    /// The elements under another shape of as many.
    pub(super) fn view_as<'s>(&'s self, shape: &'s Shape) -> TensorView<'s> {
        match &self.data {
            HeldData::Bytes(bytes) => TensorView::of_bytes(self.element_type, shape, bytes),
            HeldData::Strings(strings) => TensorView::of_strings(shape, strings),
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
}

impl Operand for Tensor {
    fn hold(&self) -> Held<'_> {
        let data = match self.strings() {
            Some(strings) => HeldData::Strings(strings),
            None => HeldData::Bytes(Cow::Borrowed(self.bytes())),
        };
        Held { element_type: Tensor::element_type(self), shape: Tensor::shape(self).clone(), data }
    }
}

impl<O: Operand> Operand for &O {
    fn hold(&self) -> Held<'_> {
        O::hold(self)
    }
}

/// An element of an array, as bytes.
trait ArrayElement: Copy {
    const ELEMENT_TYPE: ElementType;
    fn as_bytes(elements: &[Self]) -> &[u8];
    /// The elements as bytes to change; `None` for types that do not allow any bytes.
    fn as_bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]>;
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! array_elements {
    ($($rust:ty),*) => {
        $(impl ArrayElement for $rust {
            const ELEMENT_TYPE: ElementType = <$rust as NativeElement>::ELEMENT_TYPE;
            fn as_bytes(elements: &[Self]) -> &[u8] { bytemuck::cast_slice(elements) }
            fn as_bytes_mut(elements: &mut [Self]) -> Option<&mut [u8]> { Some(bytemuck::cast_slice_mut(elements)) }
            fn read(bytes: &[u8]) -> Vec<Self> {
                bytes.chunks_exact(size_of::<$rust>()).map(bytemuck::pod_read_unaligned).collect()
            }
        })*
    };
}
array_elements!(u8, u16, u32, u64, i8, i16, i32, i64, ovir_tensor::f16, ovir_tensor::bf16, f32, f64);

impl ArrayElement for bool {
    const ELEMENT_TYPE: ElementType = ElementType::Boolean;

    fn as_bytes(elements: &[bool]) -> &[u8] {
        bytemuck::cast_slice(elements)
    }

    fn as_bytes_mut(_elements: &mut [bool]) -> Option<&mut [u8]> {
        None
    }

    fn read(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|byte| *byte != 0).collect()
    }
}

impl<T: ArrayElement, S: Data<Elem = T>, D: Dimension> Operand for ArrayBase<S, D> {
    fn hold(&self) -> Held<'_> {
        let bytes = match self.as_slice() {
            Some(elements) => Cow::Borrowed(T::as_bytes(elements)),
            None => Cow::Owned(T::as_bytes(&self.iter().copied().collect::<Vec<T>>()).to_vec()),
        };
        Held {
            element_type: T::ELEMENT_TYPE,
            shape: Shape::from_slice(self.raw_dim().slice()),
            data: HeldData::Bytes(bytes),
        }
    }
}

impl OperandMut for Tensor {
    fn element_type(&self) -> ElementType {
        Tensor::element_type(self)
    }

    fn shape(&self) -> Shape {
        Tensor::shape(self).clone()
    }

    fn change<E>(&mut self, change: impl FnOnce(TensorViewMut<'_>) -> Result<(), E>) -> Result<(), E>
    where
        E: From<ovir_tensor::TensorError>,
    {
        change(self.view_mut()?)
    }
}

impl<T: ArrayElement, S: DataMut<Elem = T>, D: Dimension> OperandMut for ArrayBase<S, D> {
    fn element_type(&self) -> ElementType {
        T::ELEMENT_TYPE
    }

    fn shape(&self) -> Shape {
        Shape::from_slice(self.raw_dim().slice())
    }

    fn change<E>(&mut self, change: impl FnOnce(TensorViewMut<'_>) -> Result<(), E>) -> Result<(), E>
    where
        E: From<ovir_tensor::TensorError>,
    {
        let shape = Shape::from_slice(self.raw_dim().slice());
        if let Some(bytes) = self.as_slice_mut().and_then(T::as_bytes_mut) {
            return change(TensorViewMut::of_bytes(T::ELEMENT_TYPE, &shape, bytes));
        }
        let mut bytes = T::as_bytes(&self.iter().copied().collect::<Vec<T>>()).to_vec();
        change(TensorViewMut::of_bytes(T::ELEMENT_TYPE, &shape, &mut bytes))?;
        for (element, changed) in self.iter_mut().zip(T::read(&bytes)) {
            *element = changed;
        }
        Ok(())
    }
}
