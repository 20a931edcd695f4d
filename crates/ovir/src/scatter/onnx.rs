//! Scatter as ONNX defines it: ScatterElements and ScatterND of the operator sets 11, 13, 16 and 18.
//!
//! An operator-set version between two of these means the lower one, a later one means 18. Version 13 added bfloat16,
//! version 16 `reduction` with `add` and `mul`, version 18 `max` and `min`.

use ovir_ops::movement::scatter_elements_update::ScatterElementsReduction;
use ovir_ops::movement::scatter_nd_update::ScatterNdReduction;
use ovir_tensor::{ElementType, Shape, Tensor};

use super::openvino::{blocks, elements};
use super::operand::Held;
use super::{Function, Operand, ScatterError, integer};

const ELEMENTS: Function =
    Function { name: "ScatterElements", arguments: &["data", "indices", "updates", "axis", "reduction"] };
const ND: Function = Function { name: "ScatterND", arguments: &["data", "indices", "updates", "reduction"] };

/// The reductions and the version that has them.
const REDUCTIONS: [(&str, ScatterElementsReduction, ScatterNdReduction, u32); 5] = [
    ("none", ScatterElementsReduction::None, ScatterNdReduction::None, 16),
    ("add", ScatterElementsReduction::Sum, ScatterNdReduction::Sum, 16),
    ("mul", ScatterElementsReduction::Prod, ScatterNdReduction::Prod, 16),
    ("max", ScatterElementsReduction::Max, ScatterNdReduction::Max, 18),
    ("min", ScatterElementsReduction::Min, ScatterNdReduction::Min, 18),
];

/// ScatterElements: a copy of `data` in which the elements that `indices` name along `axis` are updated.
///
/// `reduction` is the attribute, `None` where it is absent; ONNX's default for `axis` is 0. Indices are int32 or int64 in
/// `[-size, size - 1]`; `indices` and `updates` have one shape, which is not larger than `data` off the axis.
///
/// ```
/// use ndarray::{Array2, array};
/// use ovir::scatter::onnx::scatter_elements;
///
/// // Examples 1 and 2 of the specification.
/// let (indices, updates) = (array![[1i64, 0, 2], [0, 2, 1]], array![[1.0f32, 1.1, 1.2], [2.0, 2.1, 2.2]]);
/// let output = scatter_elements(18, &Array2::<f32>::zeros([3, 3]), &indices, &updates, 0, None)?;
/// assert_eq!(output.slice::<f32>().unwrap(), [2.0, 1.1, 0.0, 1.0, 0.0, 2.2, 0.0, 2.1, 1.2]);
/// let data = array![[1.0f32, 2.0, 3.0, 4.0, 5.0]];
/// let output = scatter_elements(11, &data, &array![[1i64, 3]], &array![[1.1f32, 2.1]], 1, None)?;
/// assert_eq!(output.slice::<f32>().unwrap(), [1.0, 1.1, 3.0, 2.1, 5.0]);
///
/// let wrong = scatter_elements(13, &data, &array![[1i64]], &array![[1.1f32]], 1, Some("add")).unwrap_err();
/// assert_eq!(wrong.to_string(), "ScatterElements: reduction: the attribute does not exist before version 16");
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Types, shapes, an axis or a reduction that this version does not allow, or an index out of range.
pub fn scatter_elements(
    opset: u32,
    data: &impl Operand,
    indices: &impl Operand,
    updates: &impl Operand,
    axis: i64,
    reduction: Option<&str>,
) -> Result<Tensor, ScatterError> {
    let (data, indices, updates) = (data.hold(), indices.hold(), updates.hold());
    let (reduction, _) = reduction_of(&ELEMENTS, opset, reduction)?;
    check_types(&ELEMENTS, opset, &data, &indices, &[ElementType::I32, ElementType::I64])?;
    let axis = integer(axis)?;
    ELEMENTS.copied(&elements(reduction, true), &[data.view(), indices.view(), updates.view(), axis.view()])
}

/// ScatterND: a copy of `data` in which the blocks that rows of coordinates address are updated.
///
/// `reduction` is the attribute, `None` where it is absent. `indices` is `[..., k]` of type int64 and `updates` has the
/// shape `indices[:-1] + data[k:]`. Coordinates lie in `[-size, size - 1]` of their axis.
///
/// ```
/// use ndarray::{Array, array};
/// use ovir::scatter::onnx::scatter_nd;
///
/// // Example 1 of the specification.
/// let data = Array::from_iter(1..=8);
/// let output = scatter_nd(18, &data, &array![[4i64], [3], [1], [7]], &array![9, 10, 11, 12], None)?;
/// assert_eq!(output.slice::<i32>().unwrap(), [1, 11, 3, 10, 9, 6, 7, 12]);
///
/// // Example 2, with a reduction.
/// let data = Array::<i32, _>::ones([4, 4, 4]);
/// let output = scatter_nd(16, &data, &array![[0i64], [2]], &Array::from_elem([2, 4, 4], 5), Some("mul"))?;
/// assert_eq!(output.array::<i32>().unwrap().sum(), 2 * 16 * 5 + 2 * 16);
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Types, shapes or a reduction that this version does not allow, or a coordinate out of range.
pub fn scatter_nd(
    opset: u32,
    data: &impl Operand,
    indices: &impl Operand,
    updates: &impl Operand,
    reduction: Option<&str>,
) -> Result<Tensor, ScatterError> {
    let (data, indices, updates) = (data.hold(), indices.hold(), updates.hold());
    let (_, reduction) = reduction_of(&ND, opset, reduction)?;
    check_types(&ND, opset, &data, &indices, &[ElementType::I64])?;
    check_slot(data.shape(), indices.shape(), updates.shape())?;
    ND.copied(&blocks(reduction), &[data.view(), indices.view(), updates.view()])
}

fn reduction_of(
    function: &Function,
    opset: u32,
    reduction: Option<&str>,
) -> Result<(ScatterElementsReduction, ScatterNdReduction), ScatterError> {
    if opset < 11 {
        return Err(function.error("opset", format!("version {opset} does not have it; the first is 11")));
    }
    let Some(name) = reduction else { return Ok((ScatterElementsReduction::None, ScatterNdReduction::None)) };
    if opset < 16 {
        return Err(function.error("reduction", "the attribute does not exist before version 16"));
    }
    let known: Vec<&str> = REDUCTIONS.iter().filter(|r| r.3 <= opset).map(|r| r.0).collect();
    match REDUCTIONS.iter().find(|r| r.0 == name && r.3 <= opset) {
        Some((_, elements, nd, _)) => Ok((*elements, *nd)),
        None => {
            let message = format!("\"{name}\" is not a reduction of version {opset}; it has {}", known.join(", "));
            Err(function.error("reduction", message))
        }
    }
}

fn check_types(
    function: &Function,
    opset: u32,
    data: &Held<'_>,
    indices: &Held<'_>,
    allowed: &[ElementType],
) -> Result<(), ScatterError> {
    let element_type = data.element_type();
    let is_known = element_type.is_native() || element_type == ElementType::String;
    if !is_known || (element_type == ElementType::Bf16 && opset < 13) {
        return Err(function.error("data", format!("element type {element_type} is not one of version {opset}")));
    }
    if !allowed.contains(&indices.element_type()) {
        let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
        let message = format!("element type {} must be {}", indices.element_type(), allowed.join(" or "));
        return Err(function.error("indices", message));
    }
    Ok(())
}

/// A single place takes a scalar; OpenVINO takes any tensor of one element.
fn check_slot(data: &Shape, indices: &Shape, updates: &Shape) -> Result<(), ScatterError> {
    if indices.rank() == 1 && indices.last() == Some(&data.rank()) && updates.rank() != 0 {
        return Err(ND.error("updates", format!("shape {updates} must be [] for data {data} and indices {indices}")));
    }
    Ok(())
}
