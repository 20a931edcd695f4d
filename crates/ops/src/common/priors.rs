//! What PriorBox and PriorBoxClustered share.

use ovir_tensor::{Dim, ElementClass, ElementType, INFINITE, PartialShape};

use crate::{Blame, EvaluateContext, InferContext, OpError, OpResult};

/// The shape `[2, 4 * height * width * boxes of a cell]`, in f32, from the sizes of the map and the image.
///
/// # Errors
/// When an input is no height and width.
pub(crate) fn infer_priors(context: &mut InferContext<'_>, boxes_of_cell: usize) -> OpResult {
    for port in [0, 1] {
        context.require_class(port, ElementClass::Integer)?;
        context.require_rank(port, 1..=1)?;
        if !context.shape(port).dim(0).contains(2) {
            let message = format!("shape {} must be [2]: height and width", context.shape(port));
            return Err(OpError::shape(Blame::Input(port), message));
        }
    }
    let per_cell = Dim::fixed(boxes_of_cell.saturating_mul(4));
    let size = match context.bounds(0).map(|b| &b.values[..]) {
        Some([height, width]) if height.max < 0 || width.max < 0 => {
            return Err(OpError::value(Blame::Input(0), "height and width cannot be negative"));
        }
        Some([height, width]) => height.to_dim() * width.to_dim() * per_cell,
        _ => context.new_dim(0, INFINITE),
    };
    context.set_output(0, ElementType::F32, PartialShape::from_dims([Dim::fixed(2), size]));
    Ok(())
}

/// The height and the width that an input holds.
///
/// # Errors
/// When it holds anything else.
pub(crate) fn height_and_width(context: &EvaluateContext<'_>, port: usize) -> OpResult<(usize, usize)> {
    let values = context.integers(port)?;
    let size = |i: usize| values.get(i).and_then(|v| usize::try_from(*v).ok());
    size(0)
        .zip(size(1))
        .ok_or_else(|| OpError::value(Blame::Input(port), format!("{values:?} must be a height and a width")))
}

/// The variance of coordinate `i` of the list of all boxes: 0.1 where the attribute is absent, its number where it is one.
pub(crate) fn variance(attribute: &[f32], i: usize) -> f64 {
    match attribute {
        [] => f64::from(0.1f32),
        [one] => f64::from(*one),
        list => f64::from(list[i % 4]),
    }
}
