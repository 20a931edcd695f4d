//! Working memory of the reference.

use std::borrow::Cow;

use ovir_diagnostics::Code;

use super::number::Number;
use crate::{Blame, OpError, OpResult};

/// A vector of `count` neutral elements.
///
/// # Errors
/// When the memory cannot be had.
pub(crate) fn filled<T: Clone + Default>(count: usize) -> OpResult<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(count).map_err(|_| {
        let message = format!("working memory of {count} elements of {} bytes cannot be had", size_of::<T>());
        OpError::new(Code::LimitExceeded, Blame::Node, message)
    })?;
    values.resize(count, T::default());
    Ok(values)
}

/// The elements as f64: exact for floating-point types and for integers up to 53 bits.
///
/// # Errors
/// When the memory cannot be had.
pub(crate) fn widened<T: Number>(values: &[T]) -> OpResult<Vec<f64>> {
    let mut wide = filled::<f64>(values.len())?;
    for (target, value) in wide.iter_mut().zip(values) {
        *target = value.to_f64();
    }
    Ok(wide)
}

/// The elements of a view of a numeric type as f64.
///
/// # Errors
/// When the memory cannot be had, or the element type is not numeric.
pub(crate) fn widened_view(view: ovir_tensor::TensorView<'_>) -> OpResult<Vec<f64>> {
    let element_type = view.element_type();
    ovir_tensor::dispatch!(element_type, T in [numeric] => { widened(view.slice::<T>()?) } else {
        Err(super::elementwise::unsupported(element_type))
    })
}

/// The elements of a view of a numeric type as f32, each rounded once; those of f32 are where they lie.
///
/// # Errors
/// When the memory cannot be had, or the element type is not numeric.
pub(crate) fn narrowed_view(view: ovir_tensor::TensorView<'_>) -> OpResult<Cow<'_, [f32]>> {
    if view.element_type() == ovir_tensor::ElementType::F32 {
        return Ok(Cow::Borrowed(view.slice::<f32>()?));
    }
    Ok(Cow::Owned(widened_view(view)?.into_iter().map(|value| value as f32).collect()))
}

/// Writes f64 values, each rounded once; integers are rounded to the nearest, halves away from zero.
///
/// # Errors
/// When the element type is not numeric.
pub(crate) fn write_rounded(mut target: ovir_tensor::TensorViewMut<'_>, values: &[f64]) -> OpResult {
    let element_type = target.element_type();
    ovir_tensor::dispatch!(element_type, T in [numeric] => {
        for (target, value) in target.slice_mut::<T>()?.iter_mut().zip(values) {
            *target = T::from_f64(if <T as Number>::IS_FLOAT { *value } else { value.round() });
        }
        Ok(())
    } else { Err(super::elementwise::unsupported(element_type)) })
}

/// As [`write_rounded`], with zeros behind the values where the target has more elements.
///
/// # Errors
/// When the element type is not numeric.
pub(crate) fn write_padded(mut target: ovir_tensor::TensorViewMut<'_>, values: &[f64]) -> OpResult {
    let used = values.len().min(target.elements());
    let width = target.element_type().byte_width().unwrap_or(1);
    target.bytes_mut()[used * width..].fill(0);
    write_rounded(target, values)
}
