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

/// A shape as `[outer, axes, inner]` around several axes, if they lie side by side but for axes of size 1. Axes that
/// are named twice count once.
pub(crate) fn around_all(shape: &Shape, axes: &[i64]) -> Option<[usize; 3]> {
    let mut chosen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, shape.rank());
    for axis in axes {
        chosen[axis_of(*axis, shape.rank())?] = true;
    }
    let mut sizes = [1usize; 3];
    let mut part = 0;
    for (size, chosen) in shape.iter().zip(&chosen) {
        if *size == 1 {
            continue;
        }
        match (part, *chosen) {
            (0, true) => part = 1,
            (1, false) => part = 2,
            (2, true) => return None,
            _ => {}
        }
        sizes[part] = sizes[part].checked_mul(*size)?;
    }
    Some(sizes)
}
