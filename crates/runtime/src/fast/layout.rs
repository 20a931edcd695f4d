//! Shapes seen as the few sizes that kernels take.

use ovir_tensor::{Shape, SmallVec};

/// An axis counted from the front.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let rank = i64::try_from(rank).ok()?;
    let axis = if axis < 0 { axis.checked_add(rank)? } else { axis };
    usize::try_from(axis).ok().filter(|axis| (*axis as i64) < rank)
}

/// A shape as `[outer, axis, inner]` around one axis.
pub(crate) fn around(shape: &Shape, axis: usize) -> Option<[usize; 3]> {
    let product = |sizes: &[usize]| sizes.iter().product::<usize>();
    Some([product(shape.get(..axis)?), *shape.get(axis)?, product(shape.get(axis + 1..)?)])
}

/// For each axis of a rank whether it is one of those given, which count from either end.
pub(crate) fn chosen(rank: usize, axes: &[i64]) -> Option<SmallVec<[bool; 8]>> {
    let mut chosen = SmallVec::from_elem(false, rank);
    for axis in axes {
        chosen[axis_of(*axis, rank)?] = true;
    }
    Some(chosen)
}

/// A shape as `[outer, axes, inner]` around several axes, if they lie side by side but for axes of size 1. Axes that
/// are named twice count once.
pub(crate) fn around_all(shape: &Shape, axes: &[i64]) -> Option<[usize; 3]> {
    match around_each(shape, axes)?[..] {
        [sizes] => Some(sizes),
        _ => None,
    }
}

/// The steps in which several axes of a shape are reduced, those that lie side by side (but for axes of size 1) together and
/// the innermost ones first: each as the `[outer, axes, inner]` of what the steps before it leave. There is at least one. Axes
/// that are named twice count once.
pub(crate) fn around_each(shape: &Shape, axes: &[i64]) -> Option<SmallVec<[[usize; 3]; 4]>> {
    let chosen = chosen(shape.rank(), axes)?;
    // The sizes of the parts that are kept and reduced, in turns; the first and the last one are kept.
    let mut parts: SmallVec<[usize; 8]> = SmallVec::from_slice(&[1]);
    for (size, chosen) in shape.iter().zip(&chosen).filter(|(size, _)| **size != 1) {
        if parts.len().is_multiple_of(2) != *chosen {
            parts.push(1);
        }
        let part = parts.last_mut()?;
        *part = part.checked_mul(*size)?;
    }
    if parts.len() == 1 {
        return Some(SmallVec::from_slice(&[[parts[0], 1, 1]]));
    }
    if parts.len().is_multiple_of(2) {
        parts.push(1);
    }
    let mut steps = SmallVec::new();
    let mut inner = 1usize;
    for end in (2..parts.len()).rev().step_by(2) {
        inner = inner.checked_mul(parts[end])?;
        let outer = parts[..end - 1].iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        steps.push([outer, parts[end - 1], inner]);
    }
    Some(steps)
}
