//! Scatter as PyTorch defines it. Functions change their first argument.
//!
//! Rules of all of them, as in PyTorch: an index is int64 or int32; negative indices are refused, except by
//! [`index_put_`]; the element types of both tensors are equal; a tensor of no dimensions counts as one of one dimension; a
//! negative `dim` counts from the end.

mod put;

use std::sync::Arc;

use ovir_ops::Operation;
use ovir_ops::fused::{Fused, Stage, StageInput};
use ovir_ops::movement::broadcast::{Broadcast, BroadcastOpAttributes};
use ovir_ops::movement::scatter_elements_update::ScatterElementsReduction;
use ovir_tensor::{ElementType, Shape, Tensor, TensorError, TensorView, bf16, dispatch, f16};

pub use self::put::index_put_;

use super::openvino::elements;
use super::operand::Held;
use super::{Function, Operand, OperandMut, Scalar, ScatterError, integer, integers, without_bytes};

/// Writes the elements of `src` to the places along `dim` that `index` names.
///
/// `index` is not larger than `src` in any dimension, nor than `target` in any but `dim`; elements of `src` beyond it are
/// left out. `reduce` is `add` or `multiply`. An empty `index` changes nothing, whatever its rank.
///
/// ```
/// use ndarray::{Array2, array};
/// use ovir::scatter::torch::scatter_;
///
/// // The examples of PyTorch's documentation.
/// let src = array![[1i64, 2, 3, 4, 5], [6, 7, 8, 9, 10]];
/// let mut target = Array2::<i64>::zeros([3, 5]);
/// scatter_(&mut target, 0, &array![[0i64, 1, 2, 0]], &src, None)?;
/// assert_eq!(target, array![[1, 0, 0, 4, 0], [0, 2, 0, 0, 0], [0, 0, 3, 0, 0]]);
///
/// let mut target = Array2::<i64>::zeros([3, 5]);
/// scatter_(&mut target, 1, &array![[0i64, 1, 2], [0, 1, 4]], &src, None)?;
/// assert_eq!(target, array![[1, 2, 3, 0, 0], [6, 7, 0, 0, 8], [0, 0, 0, 0, 0]]);
///
/// let negative = scatter_(&mut target, 0, &array![[-1i64]], &src, None).unwrap_err();
/// assert!(negative.to_string().contains("index -1 at position [0,0] is out of bounds for dimension 0 with size 3"));
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Arguments that violate the rules above, or an index outside of `[0, size - 1]`.
pub fn scatter_<T: OperandMut>(
    target: &mut T,
    dim: i64,
    index: &impl Operand,
    src: &impl Operand,
    reduce: Option<&str>,
) -> Result<(), ScatterError> {
    const FUNCTION: Function = Function { name: "scatter_", arguments: &["self", "index", "src", "dim", "reduce"] };
    let reduction = old_reduction(&FUNCTION, reduce)?;
    scatter_source(&FUNCTION, target, dim, &index.hold(), &src.hold(), reduction, true)
}

/// Writes `value` to the places along `dim` that `index` names; otherwise as [`scatter_`].
///
/// ```
/// use ndarray::{Array2, array};
/// use ovir::scatter::torch::scatter_value_;
///
/// // The examples of PyTorch's documentation.
/// let mut target = Array2::from_elem([2, 4], 2.0f32);
/// scatter_value_(&mut target, 1, &array![[2i64], [3]], 1.23, Some("multiply"))?;
/// assert_eq!(target, array![[2.0, 2.0, 2.46, 2.0], [2.0, 2.0, 2.0, 2.46]]);
/// let mut target = Array2::from_elem([2, 4], 2.0f32);
/// scatter_value_(&mut target, 1, &array![[2i64], [3]], 1.23, Some("add"))?;
/// assert_eq!(target, array![[2.0, 2.0, 3.23, 2.0], [2.0, 2.0, 2.0, 3.23]]);
/// let mut target = Array2::<f32>::zeros([3, 5]);
/// scatter_value_(&mut target, 0, &array![[0i64, 1]], 2, None)?;
/// assert_eq!(target.sum(), 4.0);
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// As [`scatter_`], or a value that the element type cannot hold.
pub fn scatter_value_<T: OperandMut>(
    target: &mut T,
    dim: i64,
    index: &impl Operand,
    value: impl Into<Scalar>,
    reduce: Option<&str>,
) -> Result<(), ScatterError> {
    const FUNCTION: Function = Function { name: "scatter_", arguments: &["self", "index", "value", "dim", "reduce"] };
    let reduction = old_reduction(&FUNCTION, reduce)?;
    let index = index.hold();
    let src = filled(&FUNCTION, target.element_type(), index.shape(), value.into())?;
    scatter_source(&FUNCTION, target, dim, &index, &src.hold(), reduction, true)
}

/// Adds the elements of `src` at the places along `dim` that `index` names; shapes as for [`scatter_`].
///
/// ```
/// use ndarray::{Array2, array};
/// use ovir::scatter::torch::scatter_add_;
///
/// let mut target = Array2::<f32>::zeros([3, 5]);
/// let index = array![[0i64, 1, 2, 0, 0], [0, 1, 2, 2, 2]];
/// scatter_add_(&mut target, 0, &index, &Array2::<f32>::ones([2, 5]))?;
/// assert_eq!(target, array![[2.0, 0.0, 0.0, 1.0, 1.0], [0.0, 2.0, 0.0, 0.0, 0.0], [0.0, 0.0, 2.0, 1.0, 1.0]]);
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// As [`scatter_`].
pub fn scatter_add_<T: OperandMut>(
    target: &mut T,
    dim: i64,
    index: &impl Operand,
    src: &impl Operand,
) -> Result<(), ScatterError> {
    const FUNCTION: Function = Function { name: "scatter_add_", arguments: &["self", "index", "src", "dim"] };
    scatter_source(&FUNCTION, target, dim, &index.hold(), &src.hold(), ScatterElementsReduction::Sum, true)
}

/// Reduces the elements of `src` into the places along `dim` that `index` names; shapes as for [`scatter_`]. `reduce` is
/// `sum`, `prod`, `mean`, `amax` or `amin`.
///
/// ```
/// use ndarray::array;
/// use ovir::scatter::torch::scatter_reduce_;
///
/// let (index, src) = (array![0i64, 1, 0, 1, 2, 1], array![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// let mut target = array![1.0f32, 2.0, 3.0, 4.0];
/// scatter_reduce_(&mut target, 0, &index, &src, "sum", true)?;
/// assert_eq!(target, array![5.0, 14.0, 8.0, 4.0]);
/// let mut target = array![5.0f32, 4.0, 3.0, 2.0];
/// scatter_reduce_(&mut target, 0, &index, &src, "amax", false)?;
/// assert_eq!(target, array![3.0, 6.0, 5.0, 2.0]);
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// As [`scatter_`], or a mean of booleans.
pub fn scatter_reduce_<T: OperandMut>(
    target: &mut T,
    dim: i64,
    index: &impl Operand,
    src: &impl Operand,
    reduce: &str,
    include_self: bool,
) -> Result<(), ScatterError> {
    const FUNCTION: Function =
        Function { name: "scatter_reduce_", arguments: &["self", "index", "src", "dim", "reduce"] };
    let reduction = match reduce {
        "sum" => ScatterElementsReduction::Sum,
        "prod" => ScatterElementsReduction::Prod,
        "mean" => ScatterElementsReduction::Mean,
        "amax" => ScatterElementsReduction::Max,
        "amin" => ScatterElementsReduction::Min,
        _ => {
            let message = format!("\"{reduce}\" must be sum, prod, mean, amax or amin");
            return Err(FUNCTION.error("reduce", message));
        }
    };
    if reduction == ScatterElementsReduction::Mean && target.element_type() == ElementType::Boolean {
        return Err(FUNCTION.error("reduce", "mean is not defined for booleans"));
    }
    scatter_source(&FUNCTION, target, dim, &index.hold(), &src.hold(), reduction, include_self)
}

/// Adds the slices of `source`, times `alpha`, to those that the vector `index` names along `dim`.
///
/// `source` has the shape of `target` but for `dim`, where it has as many slices as there are indices.
///
/// ```
/// use ndarray::{Array2, array};
/// use ovir::scatter::torch::index_add_;
///
/// // The example of PyTorch's documentation.
/// let source = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]];
/// let mut target = Array2::<f32>::ones([5, 3]);
/// index_add_(&mut target, 0, &array![0i64, 4, 2], &source, 1)?;
/// assert_eq!(
///     target,
///     array![[2.0, 3.0, 4.0], [1.0, 1.0, 1.0], [8.0, 9.0, 10.0], [1.0, 1.0, 1.0], [5.0, 6.0, 7.0]]
/// );
/// index_add_(&mut target, 0, &array![0i64, 4, 2], &source, -1)?;
/// assert_eq!(target, Array2::<f32>::ones([5, 3]));
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Arguments that violate the rules above, an index outside of `[0, size - 1]`, or a fraction as `alpha` for integers.
pub fn index_add_<T: OperandMut>(
    target: &mut T,
    dim: i64,
    index: &impl Operand,
    source: &impl Operand,
    alpha: impl Into<Scalar>,
) -> Result<(), ScatterError> {
    const FUNCTION: Function = Function { name: "index_add_", arguments: &["self", "index", "source", "dim", "alpha"] };
    let source = source.hold();
    match scaled(&FUNCTION, &source, alpha.into())? {
        Some(scaled) => {
            index_slices(&FUNCTION, target, dim, &index.hold(), &scaled.hold(), ScatterElementsReduction::Sum)
        }
        None => index_slices(&FUNCTION, target, dim, &index.hold(), &source, ScatterElementsReduction::Sum),
    }
}

/// Copies the slices of `source` to those that the vector `index` names along `dim`; shapes as for [`index_add_`].
///
/// ```
/// use ndarray::{Array2, array};
/// use ovir::scatter::torch::index_copy_;
///
/// let mut target = Array2::<f32>::zeros([5, 3]);
/// let source = array![[1.0f32, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]];
/// index_copy_(&mut target, 0, &array![0i64, 4, 2], &source)?;
/// assert_eq!(
///     target,
///     array![[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [7.0, 8.0, 9.0], [0.0, 0.0, 0.0], [4.0, 5.0, 6.0]]
/// );
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Arguments that violate the rules above, or an index outside of `[0, size - 1]`.
pub fn index_copy_<T: OperandMut>(
    target: &mut T,
    dim: i64,
    index: &impl Operand,
    source: &impl Operand,
) -> Result<(), ScatterError> {
    const FUNCTION: Function = Function { name: "index_copy_", arguments: &["self", "index", "source", "dim"] };
    index_slices(&FUNCTION, target, dim, &index.hold(), &source.hold(), ScatterElementsReduction::None)
}

impl From<TensorError> for ScatterError {
    fn from(error: TensorError) -> ScatterError {
        ScatterError { function: "scatter", argument: "arguments", message: error.to_string() }
    }
}

/// The reductions of `scatter_`.
fn old_reduction(function: &Function, reduce: Option<&str>) -> Result<ScatterElementsReduction, ScatterError> {
    match reduce {
        None => Ok(ScatterElementsReduction::None),
        Some("add") => Ok(ScatterElementsReduction::Sum),
        Some("multiply") => Ok(ScatterElementsReduction::Prod),
        Some(other) => Err(function.error("reduce", format!("\"{other}\" must be add or multiply"))),
    }
}

/// Scatters elements, after all checks.
fn scatter_source<T: OperandMut>(
    function: &Function,
    target: &mut T,
    dim: i64,
    index: &Held<'_>,
    src: &Held<'_>,
    reduction: ScatterElementsReduction,
    include_self: bool,
) -> Result<(), ScatterError> {
    let element_type = native(function, target)?;
    let shape = at_least_1d(&target.shape());
    let axis = dimension(function, dim, shape.rank())?;
    index_type(function, "index", index)?;
    same_type(function, element_type, src)?;
    if index.shape().elements() == 0 {
        return Ok(());
    }
    let (picked, source) = (at_least_1d(index.shape()), at_least_1d(src.shape()));
    for (argument, other) in [("index", &picked), (function.arguments[2], &source)] {
        if other.rank() != shape.rank() {
            let message = format!("shape {other} must have as many dimensions as {shape} of self");
            return Err(function.error(argument, message));
        }
    }
    for i in 0..shape.rank() {
        if picked[i] > source[i] || (i != axis && picked[i] > shape[i]) {
            let message = format!(
                "shape {picked} must not be larger than {shape} of self apart from dimension {axis}, nor than {source} of {}",
                function.arguments[2]
            );
            return Err(function.error("index", message));
        }
    }
    let index = index.view_as(&picked);
    check_range(function, "index", index, |_| (axis, shape[axis]), false)?;
    let axis = integer(dim)?;
    let operation = elements(reduction, include_self);
    let cropped = if picked == source { None } else { Some(cropped(function, src, &source, &picked)?) };
    let updates = match &cropped {
        Some(cropped) => cropped.view(),
        None => src.view_as(&picked),
    };
    target.change(|view| {
        let inputs = [without_bytes(element_type, &shape), index, updates, axis.view()];
        function.in_place(&operation, view, &shape, &inputs, 0)
    })
}

/// Updates slices along a dimension, after all checks.
fn index_slices<T: OperandMut>(
    function: &Function,
    target: &mut T,
    dim: i64,
    index: &Held<'_>,
    source: &Held<'_>,
    reduction: ScatterElementsReduction,
) -> Result<(), ScatterError> {
    let element_type = native(function, target)?;
    let shape = at_least_1d(&target.shape());
    let axis = dimension(function, dim, shape.rank())?;
    index_type(function, "index", index)?;
    same_type(function, element_type, source)?;
    if index.shape().rank() > 1 {
        return Err(function.error("index", format!("shape {} must be a vector", index.shape())));
    }
    let count = index.shape().elements();
    let expected: Shape = (0..shape.rank()).map(|i| if i == axis { count } else { shape[i] }).collect();
    if at_least_1d(source.shape()) != expected {
        let message = format!("shape {} must be {expected} for self {shape} and {count} indices", source.shape());
        return Err(function.error("source", message));
    }
    check_range(function, "index", index.view(), |_| (axis, shape[axis]), false)?;
    let along: Shape = (0..shape.rank()).map(|i| if i == axis { count } else { 1 }).collect();
    let sizes: Vec<i64> = expected.iter().map(|size| *size as i64).collect();
    let (sizes, axis) = (integers(&sizes, Shape::from([sizes.len()]))?, integer(axis as i64)?);
    let operation: Arc<dyn Operation> = Arc::new(rows(reduction));
    let (index, updates) = (index.view_as(&along), source.view_as(&expected));
    target.change(|view| {
        let inputs = [index, sizes.view(), without_bytes(element_type, &shape), updates, axis.view()];
        function.in_place(&operation, view, &shape, &inputs, 2)
    })
}

/// ScatterElementsUpdate whose indices are broadcast: what the front ends of OpenVINO make of `index_add`. Its inputs are
/// indices, their shape when broadcast, data, updates and axis.
fn rows(reduction: ScatterElementsReduction) -> Fused {
    let broadcast = Broadcast { class_version: 3, attributes: BroadcastOpAttributes::default() };
    let inputs = |ports: [StageInput; 4]| ports.to_vec();
    Fused {
        stages: vec![
            Stage {
                friendly_name: "broadcast".into(),
                type_name: "Broadcast".into(),
                operation: Arc::new(broadcast),
                inputs: vec![StageInput::Outside(0), StageInput::Outside(1)],
            },
            Stage {
                friendly_name: "scatter".into(),
                type_name: "ScatterElementsUpdate".into(),
                operation: elements(reduction, true),
                inputs: inputs([
                    StageInput::Outside(2),
                    StageInput::Stage(0),
                    StageInput::Outside(3),
                    StageInput::Outside(4),
                ]),
            },
        ],
    }
}

fn at_least_1d(shape: &Shape) -> Shape {
    if shape.rank() == 0 { Shape::from([1]) } else { shape.clone() }
}

fn native<T: OperandMut>(function: &Function, target: &T) -> Result<ElementType, ScatterError> {
    let element_type = target.element_type();
    if element_type.is_native() {
        return Ok(element_type);
    }
    Err(function.error("self", format!("element type {element_type} is not one of PyTorch's that are supported")))
}

fn dimension(function: &Function, dim: i64, rank: usize) -> Result<usize, ScatterError> {
    let wrapped = if dim < 0 { dim.saturating_add(rank as i64) } else { dim };
    usize::try_from(wrapped)
        .ok()
        .filter(|axis| *axis < rank)
        .ok_or_else(|| function.error("dim", format!("{dim} is out of range: it must be in [-{rank}, {}]", rank - 1)))
}

fn index_type(function: &Function, argument: &'static str, index: &Held<'_>) -> Result<(), ScatterError> {
    if matches!(index.element_type(), ElementType::I32 | ElementType::I64) {
        return Ok(());
    }
    Err(function.error(argument, format!("element type {} must be i64 or i32", index.element_type())))
}

fn same_type(function: &Function, element_type: ElementType, other: &Held<'_>) -> Result<(), ScatterError> {
    if other.element_type() == element_type {
        return Ok(());
    }
    let message = format!("element type {} must be {element_type} like that of self", other.element_type());
    Err(function.error(function.arguments[2], message))
}

/// Checks indices of type i32 or i64; `axis` gives axis and size for a position.
fn check_range(
    function: &Function,
    argument: &'static str,
    index: TensorView<'_>,
    axis: impl Fn(usize) -> (usize, usize),
    wraps: bool,
) -> Result<(), ScatterError> {
    for (position, value) in signed(index)?.enumerate() {
        let (axis, size) = axis(position);
        let lowest = if wraps { -(size as i64) } else { 0 };
        if value >= lowest && value < size as i64 {
            continue;
        }
        let place = ovir_ops::common::index::coordinates(position, index.shape());
        let message =
            format!("index {value} at position {place} is out of bounds for dimension {axis} with size {size}");
        return Err(function.error(argument, message));
    }
    Ok(())
}

/// The values of a tensor of i32 or i64.
fn signed<'a>(view: TensorView<'a>) -> Result<Box<dyn Iterator<Item = i64> + 'a>, TensorError> {
    Ok(match view.element_type() {
        ElementType::I32 => Box::new(view.slice::<i32>()?.iter().map(|value| i64::from(*value))),
        _ => Box::new(view.slice::<i64>()?.iter().copied()),
    })
}

/// The part of `src` that an index of shape `picked` reads.
fn cropped(function: &Function, src: &Held<'_>, source: &Shape, picked: &Shape) -> Result<Tensor, ScatterError> {
    let strides: Vec<usize> = source.strides().to_vec();
    strided(function, src, picked, &strides)
}

/// `values` under NumPy's rule of broadcasting.
fn broadcast_to(function: &Function, values: &Held<'_>, shape: &Shape) -> Result<Tensor, ScatterError> {
    let given = values.shape();
    let misfit = || function.error("values", format!("shape {given} cannot be broadcast to {shape}"));
    let missing = shape.rank().checked_sub(given.rank()).ok_or_else(misfit)?;
    let own = given.strides();
    let mut strides = vec![0; shape.rank()];
    for (i, size) in given.iter().enumerate() {
        match (*size, shape[missing + i]) {
            (a, b) if a == b => strides[missing + i] = own[i],
            (1, _) => {}
            _ => return Err(misfit()),
        }
    }
    strided(function, values, shape, &strides)
}

/// A copy of elements that lie `strides` apart.
fn strided(function: &Function, from: &Held<'_>, shape: &Shape, strides: &[usize]) -> Result<Tensor, ScatterError> {
    let width = from.element_type().byte_width().ok_or_else(|| function.error("arguments", "elements share bytes"))?;
    let mut tensor = Tensor::zeros(from.element_type(), shape.clone())?;
    let view = from.view();
    let source = view.bytes();
    for (position, target) in tensor.bytes_mut()?.chunks_exact_mut(width).enumerate() {
        let place = ovir_ops::common::index::coordinates(position, shape);
        let at: usize = place.iter().zip(strides).map(|(coordinate, stride)| coordinate * stride).sum();
        target.copy_from_slice(&source[at * width..(at + 1) * width]);
    }
    Ok(tensor)
}

/// A tensor full of a number.
fn filled(
    function: &Function,
    element_type: ElementType,
    shape: &Shape,
    value: Scalar,
) -> Result<Tensor, ScatterError> {
    let mut tensor = Tensor::zeros(element_type, shape.clone())?;
    let float = match value {
        Scalar::Integer(value) => value as f64,
        Scalar::Float(value) => value,
        Scalar::Boolean(value) => f64::from(u8::from(value)),
    };
    match element_type {
        ElementType::Boolean => tensor.bytes_mut()?.fill(u8::from(float != 0.0)),
        ElementType::F16 => tensor.slice_mut::<f16>()?.fill(f16::from_f64(float)),
        ElementType::Bf16 => tensor.slice_mut::<bf16>()?.fill(bf16::from_f64(float)),
        ElementType::F32 => tensor.slice_mut::<f32>()?.fill(float as f32),
        ElementType::F64 => tensor.slice_mut::<f64>()?.fill(float),
        other => {
            let message = || function.error("value", format!("{value:?} does not fit element type {other}"));
            let whole = match value {
                Scalar::Integer(value) => i128::from(value),
                // As PyTorch does it, the fraction is cut off.
                _ if float.is_finite() => float.trunc() as i128,
                _ => return Err(message()),
            };
            dispatch!(other, T in [integer] => {
                let value = T::try_from(whole).map_err(|_| message())?;
                tensor.slice_mut::<T>()?.fill(value);
            } else { return Err(message()) });
        }
    }
    Ok(tensor)
}

/// `source` times `alpha`; `None` if that is `source` itself.
fn scaled(function: &Function, source: &Held<'_>, alpha: Scalar) -> Result<Option<Tensor>, ScatterError> {
    let (whole, float) = match alpha {
        Scalar::Integer(value) => (Some(value), value as f64),
        Scalar::Float(value) => (None, value),
        Scalar::Boolean(value) => (Some(i64::from(value)), f64::from(u8::from(value))),
    };
    if float == 1.0 {
        return Ok(None);
    }
    let mut tensor = source.view().to_tensor()?;
    match source.element_type() {
        ElementType::Boolean if whole.is_some() => {
            tensor.bytes_mut()?.iter_mut().for_each(|v| *v &= u8::from(float != 0.0));
        }
        ElementType::F16 => {
            tensor.slice_mut::<f16>()?.iter_mut().for_each(|v| *v = f16::from_f32(v.to_f32() * float as f32));
        }
        ElementType::Bf16 => {
            tensor.slice_mut::<bf16>()?.iter_mut().for_each(|v| *v = bf16::from_f32(v.to_f32() * float as f32));
        }
        ElementType::F32 => tensor.slice_mut::<f32>()?.iter_mut().for_each(|v| *v *= float as f32),
        ElementType::F64 => tensor.slice_mut::<f64>()?.iter_mut().for_each(|v| *v *= float),
        other => {
            let whole =
                whole.ok_or_else(|| function.error("alpha", format!("{float} must be an integer for {other}")))?;
            dispatch!(other, T in [integer] => {
                tensor.slice_mut::<T>()?.iter_mut().for_each(|v| *v = v.wrapping_mul(whole as T));
            } else { return Err(function.error("alpha", format!("{other} cannot be multiplied"))) });
        }
    }
    Ok(Some(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array2, arr0, array};
    use pretty_assertions::assert_eq;

    #[test]
    fn rules_of_pytorch() {
        let mut target = Array2::<f32>::zeros([3, 2]);
        let mut error = |index: ndarray::ArrayD<i64>, src: ndarray::ArrayD<f32>| {
            scatter_(&mut target, 0, &index, &src, None).unwrap_err().to_string()
        };
        assert_eq!(
            error(array![0].into_dyn(), array![1.0].into_dyn()),
            "scatter_: index: shape [1] must have as many dimensions as [3,2] of self"
        );
        assert!(error(array![[0, 0, 0]].into_dyn(), array![[1.0, 1.0, 1.0]].into_dyn()).contains("must not be larger"));
        assert!(error(array![[0, 0]].into_dyn(), array![[1.0]].into_dyn()).contains("nor than [1,1] of src"));
        assert!(error(array![[3]].into_dyn(), array![[1.0]].into_dyn()).contains("index 3 at position [0,0]"));
        assert!(error(array![[i64::MIN]].into_dyn(), array![[1.0]].into_dyn()).contains("out of bounds"));
        let empty = ndarray::Array1::<i64>::zeros([0]);
        scatter_(&mut target, 0, &empty, &array![[[1.0f32]]], None).unwrap();
        assert!(scatter_(&mut target, 0, &array![[0i16]], &array![[1.0f32]], None).is_err());
        assert!(scatter_(&mut target, 2, &array![[0i64]], &array![[1.0f32]], None).is_err());
        assert!(scatter_(&mut target, 0, &array![[0i64]], &array![[1.0f64]], None).is_err());
        assert!(scatter_(&mut target, 0, &array![[0i64]], &array![[1.0f32]], Some("sum")).is_err());
        assert_eq!(target, Array2::<f32>::zeros([3, 2]));
    }

    #[test]
    fn scalars_and_numbers() {
        let mut target = arr0(1.0f32);
        scatter_(&mut target, -1, &arr0(0i32), &arr0(5.0f32), None).unwrap();
        assert_eq!(target, arr0(5.0));
        index_add_(&mut target, 0, &array![0i64], &arr0(2.0f32), 2).unwrap();
        assert_eq!(target, arr0(9.0));
        let mut integers = array![0i64, 0];
        scatter_value_(&mut integers, 0, &array![0i64], 1.7, None).unwrap();
        assert_eq!(integers, array![1, 0]);
        let mut bytes = array![0i8];
        assert!(scatter_value_(&mut bytes, 0, &array![0i64], 300, None).is_err());
        let mut truths = array![false, false];
        scatter_value_(&mut truths, 0, &array![1i64], 2.0, None).unwrap();
        scatter_add_(&mut truths, 0, &array![0i64], &array![true]).unwrap();
        assert_eq!(truths, array![true, true]);
        assert!(scatter_reduce_(&mut truths, 0, &array![0i64], &array![true], "mean", true).is_err());
    }

    #[test]
    fn slices_along_inner_dimensions_and_strided_arrays() {
        let mut target = Array2::<i32>::zeros([2, 3]);
        index_add_(&mut target, 1, &array![2i64, 0, 2], &array![[1, 2, 3], [4, 5, 6]], 1).unwrap();
        assert_eq!(target, array![[2, 0, 4], [5, 0, 10]]);
        index_copy_(&mut target.view_mut().reversed_axes(), 0, &array![1i32], &array![[7, 8]]).unwrap();
        assert_eq!(target, array![[2, 7, 4], [5, 8, 10]]);
        assert!(index_add_(&mut target, 0, &array![0i64, -1], &array![[1, 1, 1], [1, 1, 1]], 1).is_err());
        assert!(index_add_(&mut target, 0, &array![[0i64]], &array![[1, 1, 1]], 1).is_err());
        assert!(index_add_(&mut target, 0, &array![0i64], &array![[1, 1]], 1).is_err());
        assert!(index_add_(&mut target, 0, &array![0i64], &array![[1, 1, 1]], 1.5).is_err());
        assert_eq!(target, array![[2, 7, 4], [5, 8, 10]]);
    }
}
