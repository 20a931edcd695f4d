//! Lists of axes, and tensors split into the slices that lie along some of their axes.

use ovir_tensor::{ElementClass, Shape, SmallVec};

use super::broadcast::for_each_offset;
use crate::infer::normalize_axis;
use crate::{Blame, EvaluateContext, InferContext, OpResult};

/// Axes counted from the front, in ascending order, each once.
pub(crate) type Axes = SmallVec<[usize; 8]>;

/// Normalises a list of axes of a tensor of `rank`.
///
/// # Errors
/// A value error blaming `blame` that names an axis and its range.
pub(crate) fn normalize_axes(axes: &[i64], rank: usize, blame: Blame) -> OpResult<Axes> {
    let mut normalized: Axes =
        axes.iter().map(|axis| normalize_axis(*axis, rank, blame.clone())).collect::<OpResult<_>>()?;
    normalized.sort_unstable();
    normalized.dedup();
    Ok(normalized)
}

/// Checks the input that lists axes: an integer type, a scalar or one-dimensional. Returns the axes if they and the
/// rank of the tensor at input 0 are known.
///
/// # Errors
/// A type, shape or value error blaming the input.
pub(crate) fn infer_axes(context: &InferContext<'_>, port: usize) -> OpResult<Option<Axes>> {
    context.require_class(port, ElementClass::Integer)?;
    context.require_rank(port, 0..=1)?;
    let (Some(rank), Some(axes)) = (context.shape(0).rank(), context.integers(port)) else {
        return Ok(None);
    };
    normalize_axes(&axes, rank, Blame::Input(port)).map(Some)
}

/// The axes that input `port` lists for the tensor at input 0.
///
/// # Errors
/// When they are out of range.
pub(crate) fn read_axes(context: &EvaluateContext<'_>, port: usize) -> OpResult<Axes> {
    normalize_axes(&context.integers(port)?, context.input(0)?.shape().rank(), Blame::Input(port))
}

/// A dense tensor seen as slices: a slice holds the elements that differ only along the chosen axes.
#[derive(Debug)]
pub(crate) struct Slices {
    /// The sizes of the other axes.
    outer: Shape,
    outer_strides: SmallVec<[usize; 8]>,
    /// The sizes of the chosen axes.
    inner: Shape,
    inner_strides: SmallVec<[usize; 8]>,
}

impl Slices {
    /// Slices of a tensor of `shape` along `axes`.
    pub(crate) fn new(shape: &Shape, axes: &[usize]) -> Slices {
        let strides = shape.strides();
        let mut slices = Slices {
            outer: Shape::default(),
            outer_strides: SmallVec::new(),
            inner: Shape::default(),
            inner_strides: SmallVec::new(),
        };
        for (axis, (size, stride)) in shape.iter().zip(&strides).enumerate() {
            if axes.contains(&axis) {
                slices.inner.push(*size);
                slices.inner_strides.push(*stride);
            } else {
                slices.outer.push(*size);
                slices.outer_strides.push(*stride);
            }
        }
        slices
    }

    /// The number of elements of a slice.
    pub(crate) fn length(&self) -> usize {
        self.inner.elements()
    }

    /// Visits all slices in row-major order: gives the offset of the first element of each.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(usize)) {
        for_each_offset(&self.outer, [&self.outer_strides], |[offset]| visit(offset));
    }

    /// Visits the elements of the slice that starts at `start`, in row-major order.
    pub(crate) fn for_each_element(&self, start: usize, mut visit: impl FnMut(usize)) {
        if let ([size], [stride]) = (&self.inner[..], &self.inner_strides[..]) {
            for i in 0..*size {
                visit(start + i * stride);
            }
            return;
        }
        for_each_offset(&self.inner, [&self.inner_strides], |[offset]| visit(start + offset));
    }
}

/// The shape that remains when `axes` become 1, or vanish.
pub(crate) fn reduced_shape(shape: &Shape, axes: &[usize], keep_dims: bool) -> Shape {
    shape
        .iter()
        .enumerate()
        .filter_map(|(axis, size)| match (axes.contains(&axis), keep_dims) {
            (false, _) => Some(*size),
            (true, true) => Some(1),
            (true, false) => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn slices_cover_every_element_once() {
        let slices = Slices::new(&Shape::from([2, 3, 2]), &[0, 2]);
        let mut seen = Vec::new();
        slices.for_each(|start| slices.for_each_element(start, |offset| seen.push(offset)));
        assert_eq!(seen, [0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11]);
        assert_eq!(slices.length(), 4);
        assert_eq!(reduced_shape(&Shape::from([2, 3, 2]), &[0, 2], false), Shape::from([3]));
        assert_eq!(reduced_shape(&Shape::from([2, 3, 2]), &[0, 2], true), Shape::from([1, 3, 1]));
    }
}
