//! Moving elements without looking at them: strided views, dispatched on the width of an element.

use ovir_tensor::{
    Bounds, ElementClass, ElementType, MAX_BOUNDS_ELEMENTS, PartialShape, Shape, SmallVec, TensorView, TensorViewMut,
    Value,
};

use crate::infer::normalize_axis;
use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// One element as it lies in memory, whatever it means: some bytes, or a string.
pub(crate) trait Cell: Clone + Default + 'static {
    /// The elements of a tensor.
    fn source<'a>(view: &TensorView<'a>) -> &'a [Self];

    /// The elements of a tensor to write.
    fn target<'a>(view: &'a mut TensorViewMut<'_>) -> &'a mut [Self];
}

macro_rules! byte_cell {
    ($($width:literal),*) => {
        $(impl Cell for [u8; $width] {
            fn source<'a>(view: &TensorView<'a>) -> &'a [Self] {
                view.bytes().as_chunks::<$width>().0
            }

            fn target<'a>(view: &'a mut TensorViewMut<'_>) -> &'a mut [Self] {
                view.bytes_mut().as_chunks_mut::<$width>().0
            }
        })*
    };
}
byte_cell!(1, 2, 4, 8);

impl Cell for String {
    fn source<'a>(view: &TensorView<'a>) -> &'a [Self] {
        view.strings().unwrap_or(&[])
    }

    fn target<'a>(view: &'a mut TensorViewMut<'_>) -> &'a mut [Self] {
        view.strings_mut().unwrap_or(&mut [])
    }
}

/// Runs a block, which yields an [`OpResult`], with `$cell` bound to the [`Cell`] of an element type. Types whose
/// elements share bytes are an error.
macro_rules! dispatch_cell {
    ($element_type:expr, $cell:ident => $body:block) => {
        match ($element_type.byte_width(), $element_type) {
            (Some(1), _) => {
                type $cell = [u8; 1];
                $body
            }
            (Some(2), _) => {
                type $cell = [u8; 2];
                $body
            }
            (Some(4), _) => {
                type $cell = [u8; 4];
                $body
            }
            (Some(8), _) => {
                type $cell = [u8; 8];
                $body
            }
            (None, ovir_tensor::ElementType::String) => {
                type $cell = String;
                $body
            }
            _ => Err($crate::common::movement::unmovable($element_type)),
        }
    };
}
pub(crate) use dispatch_cell;

/// The error of element types whose elements share bytes.
pub(crate) fn unmovable(element_type: ElementType) -> OpError {
    OpError::unsupported(format!(
        "elements of type {element_type} share bytes; moving them one by one is not supported, convert them first"
    ))
}

/// Where the elements of a tensor are found while walking another shape: an offset and one step an axis, in elements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strided {
    /// The position of the first element.
    pub offset: usize,
    /// How far apart neighbours along each axis lie; 0 repeats an element, a negative step goes backwards.
    pub strides: SmallVec<[isize; 8]>,
}

impl Strided {
    /// The strides of a dense row-major tensor.
    pub(crate) fn dense(shape: &[usize]) -> Strided {
        let mut strides: SmallVec<[isize; 8]> = SmallVec::from_elem(1, shape.len());
        for i in (1..shape.len()).rev() {
            strides[i - 1] = strides[i].saturating_mul(shape[i] as isize);
        }
        Strided { offset: 0, strides }
    }
}

/// Indices that advance evenly: the index at `i` is `first` and the sum of `steps[axis] * i[axis]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvenIndices {
    /// The first index.
    pub first: usize,
    /// The greatest index.
    pub greatest: usize,
    /// How far apart indices are that are neighbours along each axis; 0 along axes of one index.
    pub steps: SmallVec<[isize; 4]>,
}

impl EvenIndices {
    /// Indices of the shape `sizes` in row-major order, if they advance evenly, and none counts from the end.
    #[must_use]
    pub fn of(sizes: &[usize], indices: &[i64]) -> Option<EvenIndices> {
        let (first, greatest) = (*indices.first()?, *indices.iter().max()?);
        (indices.iter().all(|index| *index >= 0) && sizes.iter().product::<usize>() == indices.len()).then_some(())?;
        let dense = Strided::dense(sizes);
        let step = |(size, stride): (&usize, &isize)| match size {
            1 => Some(0),
            _ => Some(indices.get(stride.unsigned_abs())? - first),
        };
        let steps: SmallVec<[i64; 4]> = sizes.iter().zip(&dense.strides).map(step).collect::<Option<_>>()?;
        let expected = |position: usize| {
            sizes.iter().zip(&dense.strides).zip(&steps).try_fold(first, |sum, ((size, stride), step)| {
                let at = position / stride.unsigned_abs() % size;
                step.checked_mul(at as i64).and_then(|by| sum.checked_add(by))
            })
        };
        indices.iter().enumerate().all(|(position, index)| expected(position) == Some(*index)).then_some(())?;
        Some(EvenIndices {
            first: usize::try_from(first).ok()?,
            greatest: usize::try_from(greatest).ok()?,
            steps: steps.into_iter().map(|step| isize::try_from(step).ok()).collect::<Option<_>>()?,
        })
    }
}

/// A tensor seen as another one: its elements in another order, repeated or left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// The shape that the result has.
    pub shape: Shape,
    /// The shape that is walked; it has as many elements as `shape`, perhaps in more axes.
    pub walk: SmallVec<[usize; 8]>,
    /// Where the elements are.
    pub from: Strided,
}

impl View {
    /// A dense tensor as it is.
    #[must_use]
    pub fn dense(shape: &Shape) -> View {
        View { shape: shape.clone(), walk: shape.iter().copied().collect(), from: Strided::dense(shape) }
    }

    /// What a Transpose with this order gives of the view, whose walk is its shape: axis `i` is axis `order[i]`; `None` if the
    /// order is not a permutation of the axes.
    #[must_use]
    pub fn transposed(&self, order: &[usize]) -> Option<View> {
        let rank = self.walk.len();
        let is_permutation = order.len() == rank && (0..rank).all(|axis| order.contains(&axis));
        is_permutation.then(|| {
            View::reordered(order.iter().map(|axis| self.walk[*axis]).collect(), &self.walk, &self.from, order)
        })
    }

    /// What a Gather along `axis` by indices of the shape `sizes` gives of the view, whose walk is its shape; `None` if an index
    /// is outside of the axis.
    #[must_use]
    pub fn gathered(&self, axis: usize, sizes: &[usize], indices: &EvenIndices) -> Option<View> {
        let stride = *self.from.strides.get(axis).filter(|_| indices.greatest < self.walk[axis])?;
        let steps: SmallVec<[isize; 4]> =
            indices.steps.iter().map(|step| step.checked_mul(stride)).collect::<Option<_>>()?;
        let mut view = self.clone();
        view.from.offset =
            stride.checked_mul(indices.first as isize).and_then(|by| self.from.offset.checked_add_signed(by))?;
        view.from.strides.remove(axis);
        view.from.strides.insert_many(axis, steps);
        view.walk.remove(axis);
        view.walk.insert_many(axis, sizes.iter().copied());
        view.shape = view.walk.iter().copied().collect();
        Some(view)
    }

    /// The axes of a dense tensor of shape `source` in another order: axis `i` of the walk is axis `order[i]`.
    pub(crate) fn permuted(shape: Shape, source: &[usize], order: &[usize]) -> View {
        View::reordered(shape, source, &Strided::dense(source), order)
    }

    fn reordered(shape: Shape, walk: &[usize], from: &Strided, order: &[usize]) -> View {
        View {
            shape,
            walk: order.iter().map(|axis| walk[*axis]).collect(),
            from: Strided { offset: from.offset, strides: order.iter().map(|axis| from.strides[*axis]).collect() },
        }
    }
}

/// Copies elements from one set of strides to another while walking `shape` in row-major order. Every position must
/// lie within its slice. Axes that lie contiguously in both are walked as one.
pub(crate) fn copy_strided<T: Clone>(shape: &[usize], source: &[T], from: &Strided, target: &mut [T], to: &Strided) {
    if shape.contains(&0) {
        return;
    }
    let mut axes = joined_axes(shape, from, to);
    let run = axes.pop().unwrap_or(Axis { size: 1, from: 1, to: 1 });
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, axes.len());
    let (mut s, mut t) = (from.offset as isize, to.offset as isize);
    loop {
        copy_run(source, s, target, t, run);
        let mut level = axes.len();
        loop {
            if level == 0 {
                return;
            }
            level -= 1;
            let axis = axes[level];
            index[level] += 1;
            s += axis.from;
            t += axis.to;
            if index[level] < axis.size {
                break;
            }
            s -= axis.from * axis.size as isize;
            t -= axis.to * axis.size as isize;
            index[level] = 0;
        }
    }
}

/// Writes output `port` as a view of input 0.
pub(crate) fn evaluate_view(context: &mut EvaluateContext<'_>, port: usize, view: &View) -> OpResult {
    let input = context.input(0)?;
    let mut output = context.output(port, &view.shape)?;
    dispatch_cell!(input.element_type(), C => {
        let to = Strided::dense(&view.walk);
        copy_strided(&view.walk, C::source(&input), &view.from, C::target(&mut output), &to);
        Ok(())
    })
}

/// Follows small integer values through a view of input 0 to output `port`.
pub(crate) fn propagate_view(context: &mut InferContext<'_>, port: usize, view: &View) {
    let Some(bounds) = context.bounds(0) else { return };
    let elements = view.shape.elements();
    if elements > MAX_BOUNDS_ELEMENTS {
        return;
    }
    let mut values: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, elements);
    copy_strided(&view.walk, &bounds.values, &view.from, &mut values, &Strided::dense(&view.walk));
    context.set_bounds(port, Bounds { shape: view.shape.clone(), values });
}

/// Writes output 0 as input 0 under another shape, whatever the element type.
pub(crate) fn evaluate_reshaped(context: &mut EvaluateContext<'_>, shape: &Shape) -> OpResult {
    let input = context.input(0)?;
    let mut output = context.output(0, shape)?;
    copy_all(&input, &mut output)
}

/// Copies all elements of a tensor into another one of as many elements.
pub(crate) fn copy_all(source: &TensorView<'_>, target: &mut TensorViewMut<'_>) -> OpResult {
    if let (Some(strings), Some(target)) = (source.strings(), target.strings_mut()) {
        if strings.len() != target.len() {
            return Err(other_size(strings.len(), target.len()));
        }
        target.clone_from_slice(strings);
        return Ok(());
    }
    let (bytes, target) = (source.bytes(), target.bytes_mut());
    if bytes.len() != target.len() {
        return Err(other_size(bytes.len(), target.len()));
    }
    target.copy_from_slice(bytes);
    Ok(())
}

/// Follows small integer values of input 0 to output 0 of another shape.
pub(crate) fn propagate_reshaped(context: &mut InferContext<'_>, shape: Shape) {
    let Some(bounds) = context.bounds(0) else { return };
    let values = bounds.values.clone();
    context.set_bounds(0, Bounds { shape, values });
}

/// The axis that the single element of input `port` names in a tensor of `rank`, if it is known.
///
/// # Errors
/// When the input is not one integer, or the axis is out of range.
pub(crate) fn known_axis(context: &InferContext<'_>, port: usize, rank: usize) -> OpResult<Option<usize>> {
    context.integer(port).map(|axis| normalize_axis(axis, rank, Blame::Input(port))).transpose()
}

/// Checks that input `port` holds one integer.
///
/// # Errors
/// A type or shape mismatch.
pub(crate) fn require_axis(context: &InferContext<'_>, port: usize) -> OpResult {
    context.require_class(port, ElementClass::Integer)?;
    context.require_one_element(port)
}

/// The exact shape of an output at run time.
///
/// # Errors
/// When a size is beyond what can be counted.
pub(crate) fn exact_shape(shape: &PartialShape) -> OpResult<Shape> {
    shape.to_shape().ok_or_else(|| OpError::shape(Blame::Output(0), format!("shape {shape} is too large")))
}

/// Where the elements along each axis of an output come from.
pub(crate) struct AxisMap<'f> {
    /// The shape of the output.
    pub shape: &'f [usize],
    /// The strides of the data.
    pub strides: &'f [usize],
    /// The position in the data for an axis and a position in the output; `None` is a new element.
    pub source: &'f dyn Fn(usize, usize) -> Option<usize>,
}

impl AxisMap<'_> {
    /// Writes the output; new elements are `fill`.
    pub(crate) fn copy<T: Clone>(&self, data: &[T], target: &mut [T], fill: &T) {
        if !self.shape.contains(&0) {
            let last = self.shape.len().saturating_sub(1);
            let line: Vec<Option<usize>> = match self.shape.get(last) {
                Some(size) => (0..*size).map(|position| (self.source)(last, position)).collect(),
                None => Vec::new(),
            };
            self.copy_block(0, data, target, Some(0), &line, fill);
        }
    }

    /// Writes a block of the output from `axis` on, from the data at `base`.
    fn copy_block<T: Clone>(
        &self,
        axis: usize,
        data: &[T],
        target: &mut [T],
        base: Option<usize>,
        line: &[Option<usize>],
        fill: &T,
    ) {
        let Some(base) = base else {
            target.fill(fill.clone());
            return;
        };
        if axis == self.shape.len() {
            target[0].clone_from(&data[base]);
            return;
        }
        if axis + 1 == self.shape.len() && self.strides[axis] == 1 {
            copy_line(&data[base..], target, line, fill);
            return;
        }
        let inner = target.len() / self.shape[axis];
        for (position, block) in target.chunks_exact_mut(inner).enumerate() {
            let place = (self.source)(axis, position).map(|source| base + source * self.strides[axis]);
            self.copy_block(axis + 1, data, block, place, line, fill);
        }
    }
}

/// Writes a line from the places that `line` names, neighbours at once.
fn copy_line<T: Clone>(data: &[T], target: &mut [T], line: &[Option<usize>], fill: &T) {
    let mut at = 0;
    while at < target.len() {
        let first = line[at];
        let is_next = |(offset, place): (usize, &Option<usize>)| *place == first.map(|first| first + offset);
        let count = line[at..].iter().enumerate().take_while(|(offset, place)| is_next((*offset, *place))).count();
        let run = &mut target[at..at + count];
        match first {
            Some(first) => run.clone_from_slice(&data[first..first + count]),
            None => run.fill(fill.clone()),
        }
        at += count;
    }
}

/// One axis of a walk over two tensors.
#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    from: isize,
    to: isize,
}

fn joined_axes(shape: &[usize], from: &Strided, to: &Strided) -> SmallVec<[Axis; 8]> {
    let mut axes: SmallVec<[Axis; 8]> = SmallVec::new();
    for ((size, from), to) in shape.iter().zip(&from.strides).zip(&to.strides) {
        let axis = Axis { size: *size, from: *from, to: *to };
        if axis.size == 1 {
            continue;
        }
        let span = axis.size as isize;
        match axes.last_mut() {
            Some(outer) if outer.from == axis.from * span && outer.to == axis.to * span => {
                *outer = Axis { size: outer.size * axis.size, ..axis };
            }
            _ => axes.push(axis),
        }
    }
    axes
}

fn copy_run<T: Clone>(source: &[T], s: isize, target: &mut [T], t: isize, run: Axis) {
    let (start, end) = (s as usize, t as usize);
    match (run.from, run.to) {
        (1, 1) => target[end..end + run.size].clone_from_slice(&source[start..start + run.size]),
        (0, 1) => target[end..end + run.size].fill(source[start].clone()),
        (from, 1) => {
            let mut position = s;
            for cell in &mut target[end..end + run.size] {
                cell.clone_from(&source[position as usize]);
                position += from;
            }
        }
        (from, to) => {
            let (mut s, mut t) = (s, t);
            for _ in 0..run.size {
                target[t as usize].clone_from(&source[s as usize]);
                s += from;
                t += to;
            }
        }
    }
}

fn other_size(actual: usize, expected: usize) -> OpError {
    OpError::shape(Blame::Input(0), format!("{actual} stored units are here where {expected} are needed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn indices_that_advance_evenly() {
        let of = |sizes: &[usize], indices: &[i64]| {
            let found = EvenIndices::of(sizes, indices)?;
            Some((found.first, found.greatest, found.steps.to_vec()))
        };
        assert_eq!(of(&[2, 3], &[1, 3, 5, 2, 4, 6]), Some((1, 6, vec![1, 2])));
        assert_eq!(of(&[2, 2], &[7, 5, 4, 2]), Some((7, 7, vec![-3, -2])));
        assert_eq!(of(&[1, 3, 1], &[0, 0, 0]), Some((0, 0, vec![0, 0, 0])));
        assert_eq!(of(&[], &[4]), Some((4, 4, vec![])));
        assert_eq!(of(&[4], &[0, 1, 2, 4]), None);
        assert_eq!(of(&[2, 2], &[0, 1, 2, 4]), None);
        assert_eq!(of(&[2], &[0, -1]), None);
        assert_eq!(of(&[3], &[0, i64::MAX, 0]), None);
        assert_eq!(of(&[0], &[]), None);
        assert_eq!(of(&[3], &[0, 1]), None);
    }

    #[test]
    fn views_of_views() {
        let windows = EvenIndices::of(&[2, 3], &[0, 1, 2, 1, 2, 3]).unwrap();
        let view = View::dense(&Shape::from([2, 4])).gathered(1, &[2, 3], &windows).unwrap();
        let view = view.transposed(&[1, 0, 2]).unwrap();
        assert_eq!(view.shape, Shape::from([2, 2, 3]));
        let (source, mut target) = ([0, 1, 2, 3, 4, 5, 6, 7], [0; 12]);
        copy_strided(&view.walk, &source, &view.from, &mut target, &Strided::dense(&view.walk));
        assert_eq!(target, [0, 1, 2, 4, 5, 6, 1, 2, 3, 5, 6, 7]);
        assert!(view.transposed(&[0, 0, 1]).is_none());
        assert!(View::dense(&Shape::from([2, 3])).gathered(1, &[2, 3], &windows).is_none());
        assert!(view.gathered(3, &[2, 3], &windows).is_none());
    }

    #[test]
    fn views_reorder_repeat_and_reverse() {
        let source = [1, 2, 3, 4, 5, 6];
        let mut target = [0; 6];
        let view = View::permuted(Shape::from([3, 2]), &[2, 3], &[1, 0]);
        copy_strided(&view.walk, &source, &view.from, &mut target, &Strided::dense(&view.walk));
        assert_eq!(target, [1, 4, 2, 5, 3, 6]);

        let from = Strided { offset: 5, strides: SmallVec::from_slice(&[0, -2]) };
        copy_strided(&[2, 3], &source, &from, &mut target, &Strided::dense(&[2, 3]));
        assert_eq!(target, [6, 4, 2, 6, 4, 2]);
    }

    #[test]
    fn a_scalar_and_an_empty_walk() {
        let mut target = [0];
        copy_strided(&[], &[7], &Strided::dense(&[]), &mut target, &Strided::dense(&[]));
        assert_eq!(target, [7]);
        copy_strided::<i32>(&[0, 3], &[], &Strided::dense(&[0, 3]), &mut [], &Strided::dense(&[0, 3]));
    }
}
