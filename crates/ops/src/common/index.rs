//! Indices of any integer type, read without copying, and the errors of those that address nothing.

use ovir_tensor::{Dim, ElementType, INFINITE, Shape, SmallVec, TensorView};

use crate::{Blame, InferContext, OpError, OpResult};

/// A tensor of indices.
#[derive(Clone, Copy)]
pub(crate) struct Indices<'a> {
    view: TensorView<'a>,
    port: usize,
}

/// The indices that address an axis of `size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexRange {
    /// `[0, size - 1]`.
    FromStart,
    /// `[-size, size - 1]`; negative ones count from the end.
    Wrapping,
}

impl<'a> Indices<'a> {
    /// The indices that input `port` holds.
    ///
    /// # Errors
    /// When the elements are no integers.
    pub(crate) fn new(view: TensorView<'a>, port: usize) -> OpResult<Indices<'a>> {
        if view.element_type().is_integer() {
            return Ok(Indices { view, port });
        }
        let message = format!("element type {} must be an integer type", view.element_type());
        Err(OpError::element_type(Blame::Input(port), message))
    }

    /// The shape.
    pub(crate) fn shape(&self) -> &'a Shape {
        self.view.shape()
    }

    /// The number of indices.
    pub(crate) fn len(&self) -> usize {
        self.view.elements()
    }

    /// The index at a row-major position, which must exist.
    pub(crate) fn get(&self, position: usize) -> i128 {
        let bytes = self.view.bytes();
        macro_rules! read {
            ($($variant:ident => $rust:ty),*) => {
                match self.view.element_type() {
                    $(ElementType::$variant => {
                        let cells = bytes.as_chunks::<{ size_of::<$rust>() }>().0;
                        i128::from(<$rust>::from_le_bytes(cells[position]))
                    })*
                    _ => 0,
                }
            };
        }
        read!(I64 => i64, I32 => i32, I16 => i16, I8 => i8, U64 => u64, U32 => u32, U16 => u16, U8 => u8)
    }

    /// The element of an axis of `size` that the index at `position` addresses.
    pub(crate) fn resolve(&self, position: usize, size: usize, range: IndexRange) -> Option<usize> {
        let (index, size) = (self.get(position), size as i128);
        let wrapped = if index < 0 && range == IndexRange::Wrapping { index + size } else { index };
        (0 <= wrapped && wrapped < size).then_some(wrapped as usize)
    }

    /// Checks that every index addresses an element; `axis` gives axis and size for a position.
    ///
    /// # Errors
    /// The first index that does not, with its position and the allowed range.
    pub(crate) fn check(&self, range: IndexRange, axis: impl Fn(usize) -> (usize, usize)) -> OpResult {
        for position in 0..self.len() {
            let (axis, size) = axis(position);
            if self.resolve(position, size, range).is_none() {
                return Err(self.out_of_range(position, axis, Dim::fixed(size), range));
            }
        }
        Ok(())
    }

    /// Checks that every index may address an element; `axis` gives axis and dimension for a position.
    ///
    /// # Errors
    /// As [`Indices::check`].
    pub(crate) fn check_possible(&self, range: IndexRange, axis: impl Fn(usize) -> (usize, Dim)) -> OpResult {
        for position in 0..self.len() {
            let (axis, dim) = axis(position);
            let (index, largest) = (self.get(position), i128::from(dim.max()));
            let lowest = if range == IndexRange::Wrapping { -largest } else { 0 };
            if index < lowest || index >= largest {
                return Err(self.out_of_range(position, axis, dim, range));
            }
        }
        Ok(())
    }

    fn out_of_range(&self, position: usize, axis: usize, dim: Dim, range: IndexRange) -> OpError {
        let coordinates = coordinates(position, self.shape());
        let index = self.get(position);
        let allowed = match (dim.max(), range) {
            (0, _) => "nothing can be addressed".to_owned(),
            (INFINITE, _) if index < 0 => "negative indices are not allowed".to_owned(),
            (INFINITE, _) => "no axis is so long".to_owned(),
            (max, IndexRange::FromStart) => format!("it must be in [0, {}]", max - 1),
            (max, IndexRange::Wrapping) => format!("it must be in [-{max}, {}]", max - 1),
        };
        let message =
            format!("index {index} at position {coordinates} is out of range of axis {axis} of size {dim}: {allowed}");
        OpError::index(Blame::Input(self.port), message)
    }
}

/// The indices of input `port` if they are known, however many.
pub(crate) fn known_indices<'a>(context: &InferContext<'a>, port: usize) -> Option<Indices<'a>> {
    Indices::new(context.constant(port)?.view(), port).ok()
}

/// A row-major position as coordinates.
pub fn coordinates(position: usize, shape: &Shape) -> Shape {
    let mut rest = position;
    let mut coordinates: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.rank());
    for (coordinate, size) in coordinates.iter_mut().zip(shape.iter()).rev() {
        let size = (*size).max(1);
        *coordinate = rest % size;
        rest /= size;
    }
    coordinates.into_iter().collect()
}
