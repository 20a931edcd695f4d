//! `index_put_`: places named by one index for each dimension, by masks, or by nothing.

use ovir_ops::movement::scatter_nd_update::ScatterNdReduction;
use ovir_tensor::{ElementType, Shape, Tensor};

use super::super::openvino::blocks;
use super::super::operand::Held;
use super::super::{Function, Operand, OperandMut, ScatterError, integers, without_bytes};
use super::{broadcast_to, check_range, index_type, native, same_type, signed};

/// What addresses one dimension: an index, broadcast together with the others, or nothing, which takes all of it.
type Along = Option<Tensor>;

/// Writes `values` to the places that `indices` name, or adds them with `accumulate`.
///
/// There is one entry for each leading dimension of `target`. `None` takes the whole dimension, as do dimensions without
/// an entry. A tensor of booleans (or u8) is a mask of as many dimensions as it has itself, and stands for the indices of
/// its true elements. All indices are broadcast together to a shape; it takes the place of the dimensions that they
/// address where these are neighbours, and comes first where not. `values` is broadcast to the shape of what is addressed.
/// Negative indices count from the end.
///
/// ```
/// use ndarray::{Array2, arr0, array};
/// use ovir::scatter::torch::index_put_;
///
/// let mut target = Array2::<f32>::zeros([3, 2]);
/// index_put_(&mut target, &[Some(&array![0i64, -1]), Some(&array![[0i64], [1]])], &arr0(1.0f32), false)?;
/// assert_eq!(target, array![[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]);
/// index_put_(&mut target, &[Some(&array![1i64, 1])], &array![1.0f32, 2.0], true)?;
/// assert_eq!(target, array![[1.0, 1.0], [2.0, 4.0], [1.0, 1.0]]);
/// index_put_(&mut target, &[None, Some(&array![1i64])], &arr0(7.0f32), false)?;
/// assert_eq!(target, array![[1.0, 7.0], [2.0, 7.0], [1.0, 7.0]]);
/// index_put_(&mut target, &[Some(&array![true, false, true])], &arr0(0.0f32), false)?;
/// assert_eq!(target, array![[0.0, 0.0], [2.0, 7.0], [0.0, 0.0]]);
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Arguments that violate the rules above, a mask whose shape differs from that of its dimensions, or an index outside of
/// `[-size, size - 1]`.
pub fn index_put_<T: OperandMut>(
    target: &mut T,
    indices: &[Option<&dyn Operand>],
    values: &impl Operand,
    accumulate: bool,
) -> Result<(), ScatterError> {
    const FUNCTION: Function = Function { name: "index_put_", arguments: &["self", "indices", "values"] };
    let (element_type, shape) = (native(&FUNCTION, target)?, target.shape());
    let along = expanded(&FUNCTION, indices, &shape)?;
    let tuples = tuples(&FUNCTION, &along, &shape)?;
    let place = tuples.shape().split_last().map_or(&[][..], |(_, place)| place);
    let expected: Shape = place.iter().chain(&shape[along.len()..]).copied().collect();
    let values = values.hold();
    same_type(&FUNCTION, element_type, &values)?;
    let values = broadcast_to(&FUNCTION, &values, &expected)?;
    let reduction = if accumulate { ScatterNdReduction::Sum } else { ScatterNdReduction::None };
    target.change(|view| {
        let inputs = [without_bytes(element_type, &shape), tuples.view(), values.view()];
        FUNCTION.in_place(&blocks(reduction), view, &shape, &inputs, 0)
    })
}

/// One entry for each dimension up to the last that is addressed.
fn expanded(function: &Function, indices: &[Option<&dyn Operand>], target: &Shape) -> Result<Vec<Along>, ScatterError> {
    let mut along: Vec<Along> = Vec::new();
    for index in indices {
        let Some(index) = index else {
            along.push(None);
            continue;
        };
        let index = index.hold();
        if matches!(index.element_type(), ElementType::Boolean | ElementType::U8) {
            along.extend(of_mask(function, &index, target, along.len())?.into_iter().map(Some));
            continue;
        }
        index_type(function, "indices", &index)?;
        let values: Vec<i64> = signed(index.view())?.collect();
        along.push(Some(integers(&values, index.shape().clone())?));
    }
    if along.len() > target.rank() {
        let message = format!("they address {} dimensions; {target} has {}", along.len(), target.rank());
        return Err(function.error("indices", message));
    }
    let Some(last) = along.iter().rposition(Option::is_some) else {
        return Err(function.error("indices", "none addresses a dimension"));
    };
    along.truncate(last + 1);
    for (dim, index) in along.iter().enumerate() {
        let Some(index) = index else { continue };
        check_range(function, "indices", index.view(), |_| (dim, target[dim]), true)?;
    }
    Ok(along)
}

/// The indices of the true elements of a mask, one vector for each of its dimensions. The first one is that of
/// dimension `first` of the target.
fn of_mask(function: &Function, mask: &Held<'_>, target: &Shape, first: usize) -> Result<Vec<Tensor>, ScatterError> {
    let shape = mask.shape();
    let addressed = target.get(first..first + shape.rank());
    if shape.rank() == 0 || addressed != Some(&shape[..]) {
        let message = format!("mask {shape} must have the sizes of {target} from dimension {first} on");
        return Err(function.error("indices", message));
    }
    let mut found = vec![Vec::new(); shape.rank()];
    let view = mask.view();
    for (position, _) in view.bytes().iter().enumerate().filter(|(_, byte)| **byte != 0) {
        let mut rest = position;
        for (size, found) in shape.iter().zip(&mut found).rev() {
            found.push((rest % size) as i64);
            rest /= size;
        }
    }
    found.iter().map(|found| integers(found, Shape::from([found.len()]))).collect()
}

/// One tuple of coordinates for each place that is addressed: shape `[places..., dimensions]`.
fn tuples(function: &Function, along: &[Along], target: &Shape) -> Result<Tensor, ScatterError> {
    let common = broadcast(function, along)?;
    // What the indices address stays where it is if they are neighbours, else it comes first.
    let first = along.iter().position(Option::is_some).unwrap_or(0);
    let before = if along[first..].iter().all(Option::is_some) { first } else { 0 };
    let whole: Vec<usize> = (0..along.len()).filter(|dim| along[*dim].is_none()).collect();
    let (ahead, behind) = whole.split_at(before.min(whole.len()));
    let size = |dim: &usize| target[*dim];
    let place: Shape = ahead.iter().map(size).chain(common.iter().copied()).chain(behind.iter().map(size)).collect();
    let depth = along.len();
    let count = place.iter().chain([&depth]).try_fold(1usize, |count, size| count.checked_mul(*size));
    let Some(count) = count.filter(|count| *count <= isize::MAX as usize / 8) else {
        return Err(function.error("indices", format!("they address too many places, {place}")));
    };
    let mut tuples = vec![0i64; count];
    for (dim, index) in along.iter().enumerate() {
        // The dimensions of `place` that name this coordinate are those from `begin` on.
        let (begin, sizes, index) = match index {
            Some(index) => (ahead.len(), common.clone(), index.clone()),
            None => {
                let at = whole.iter().position(|other| *other == dim).unwrap_or(0);
                let begin = if at < ahead.len() { at } else { at + common.rank() };
                let every: Vec<i64> = (0..target[dim] as i64).collect();
                (begin, Shape::from([target[dim]]), integers(&every, Shape::from([target[dim]]))?)
            }
        };
        let index = broadcast_to(function, &index.hold(), &sizes)?;
        let index: Vec<i64> = signed(index.view())?.collect();
        let inner: usize = place[begin + sizes.rank()..].iter().product();
        for (position, tuple) in tuples.chunks_exact_mut(depth).enumerate() {
            tuple[dim] = index[position / inner.max(1) % index.len().max(1)];
        }
    }
    integers(&tuples, place.iter().copied().chain([depth]).collect())
}

/// The shape to which all indices are broadcast.
fn broadcast(function: &Function, along: &[Along]) -> Result<Shape, ScatterError> {
    let rank = along.iter().flatten().map(|index| index.shape().rank()).max().unwrap_or(0);
    let mut sizes = vec![1; rank];
    for index in along.iter().flatten() {
        for (i, size) in index.shape().iter().rev().enumerate() {
            let place = &mut sizes[rank - 1 - i];
            if *place == 1 {
                *place = *size;
            } else if *size != 1 && *size != *place {
                return Err(function.error("indices", "the shapes cannot be broadcast together"));
            }
        }
    }
    Ok(sizes.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, Array2, Array3, arr0, array};
    use pretty_assertions::assert_eq;

    #[test]
    fn leading_indices() {
        let mut target = Array2::<f32>::zeros([3, 2]);
        index_put_(&mut target, &[Some(&array![0i32, 0])], &arr0(1.0f32), true).unwrap();
        assert_eq!(target, array![[2.0, 2.0], [0.0, 0.0], [0.0, 0.0]]);
        let error = index_put_(&mut target, &[Some(&array![0i64, 3])], &arr0(1.0f32), false).unwrap_err();
        assert!(error.to_string().contains("index 3 at position [1] is out of bounds for dimension 0 with size 3"));
        assert!(index_put_(&mut target, &[Some(&array![0i64, 1])], &array![1.0f32, 2.0, 3.0], false).is_err());
    }

    /// The expected values are those of torch 2.
    #[test]
    fn dimensions_that_are_taken_whole() {
        let values = |shape: [usize; 3]| Array::from_iter(1..=shape.iter().product::<usize>() as i64);
        let mut target = Array3::<i64>::zeros([2, 3, 4]);
        let source = values([2, 2, 4]).into_shape_with_order([2, 2, 4]).unwrap();
        index_put_(&mut target, &[None, Some(&array![2i64, 0])], &source, false).unwrap();
        assert_eq!(target.slice(ndarray::s![1, .., ..]), array![[13, 14, 15, 16], [0, 0, 0, 0], [9, 10, 11, 12]]);
        // Between two indices, the whole dimension comes after what they address.
        let mut target = Array3::<i64>::zeros([2, 3, 4]);
        let source = values([1, 2, 3]).into_shape_with_order([2, 3]).unwrap();
        index_put_(&mut target, &[Some(&array![1i64, 0]), None, Some(&array![3i64, -4])], &source, false).unwrap();
        assert_eq!(target.slice(ndarray::s![1, .., 3]), array![1, 2, 3]);
        assert_eq!(target.slice(ndarray::s![0, .., 0]), array![4, 5, 6]);
        assert_eq!(target.sum(), 21);
    }

    #[test]
    fn masks() {
        let mut target = Array2::<i32>::zeros([2, 3]);
        let mask = array![[true, false, true], [false, false, true]];
        index_put_(&mut target, &[Some(&mask)], &array![1i32, 2, 3], false).unwrap();
        assert_eq!(target, array![[1, 0, 2], [0, 0, 3]]);
        index_put_(&mut target, &[None, Some(&array![0u8, 1, 0])], &array![[7i32], [8]], false).unwrap();
        assert_eq!(target, array![[1, 7, 2], [0, 8, 3]]);
        index_put_(&mut target, &[Some(&array![false, true]), Some(&array![0i64, 2])], &arr0(5i32), true).unwrap();
        assert_eq!(target, array![[1, 7, 2], [5, 8, 8]]);
        index_put_(&mut target, &[Some(&array![false, false])], &arr0(5i32), true).unwrap();
        assert_eq!(target, array![[1, 7, 2], [5, 8, 8]]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut target = Array2::<i32>::zeros([2, 3]);
        let one = arr0(1i32);
        let cases: [&[Option<&dyn Operand>]; 7] = [
            &[],
            &[None, None],
            &[Some(&array![true])],
            &[Some(&array![[true, false]])],
            &[Some(&arr0(true))],
            &[None, Some(&array![[true, false, true], [true, true, true]])],
            &[None, None, Some(&array![0i64])],
        ];
        for indices in cases {
            assert!(index_put_(&mut target, indices, &one, false).is_err());
        }
        assert!(index_put_(&mut target, &[Some(&array![0.0f32])], &one, false).is_err());
        assert!(index_put_(&mut target, &[Some(&array![0i64, 1]), Some(&array![0i64, 1, 2])], &one, false).is_err());
        assert_eq!(target, Array2::<i32>::zeros([2, 3]));
    }
}
