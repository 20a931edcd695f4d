//! Scatter as the specification of OpenVINO IR defines it: ScatterUpdate-3, ScatterElementsUpdate-12 and
//! ScatterNDUpdate-15.

use std::sync::Arc;

use ovir_ops::Operation;
use ovir_ops::movement::scatter_elements_update::{ScatterElementsUpdate, ScatterElementsUpdateAttributes};
use ovir_ops::movement::scatter_nd_update::{ScatterNdUpdate, ScatterNdUpdateAttributes};
use ovir_ops::movement::scatter_update::ScatterUpdate;
use ovir_tensor::Tensor;

use super::{Function, Operand, ScatterError, integer};

pub use ovir_ops::movement::scatter_elements_update::ScatterElementsReduction;
pub use ovir_ops::movement::scatter_nd_update::ScatterNdReduction;

/// A copy of `data` in which the slices that `indices` name along `axis` are those of `updates`: ScatterUpdate-3.
///
/// `updates` has the shape `data[:axis] + indices + data[axis + 1:]`; `indices` may be a scalar. Indices lie in
/// `[0, size - 1]` along the axis, `axis` in `[-rank, rank - 1]`.
///
/// ```
/// use ndarray::array;
/// use ovir::scatter::openvino::scatter_update;
///
/// // Example 2 of the specification.
/// let data = array![
///     [-1.0f32, 1.0, -1.0, 3.0, 4.0],
///     [-1.0, 6.0, -1.0, 8.0, 9.0],
///     [-1.0, 11.0, 1.0, 13.0, 14.0]
/// ];
/// let updates = array![[1.0f32, 1.0], [1.0, 1.0], [1.0, 2.0]];
/// let output = scatter_update(&data, &array![0i64, 2], &updates, 1)?;
/// let expected = array![[1.0f32, 1.0, 1.0, 3.0, 4.0], [1.0, 6.0, 1.0, 8.0, 9.0], [1.0, 11.0, 2.0, 13.0, 14.0]];
/// assert_eq!(output.array::<f32>().unwrap(), expected.into_dyn());
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Types, shapes or an axis that do not fit, or an index out of range, a negative one too.
pub fn scatter_update(
    data: &impl Operand,
    indices: &impl Operand,
    updates: &impl Operand,
    axis: i64,
) -> Result<Tensor, ScatterError> {
    const FUNCTION: Function = Function { name: "scatter_update", arguments: &["data", "indices", "updates", "axis"] };
    let operation: Arc<dyn Operation> = Arc::new(ScatterUpdate);
    let (data, indices, updates, axis) = (data.hold(), indices.hold(), updates.hold(), integer(axis)?);
    FUNCTION.copied(&operation, &[data.view(), indices.view(), updates.view(), axis.view()])
}

/// A copy of `data` in which the elements that `indices` name along `axis` are updated: ScatterElementsUpdate-12.
///
/// `indices` and `updates` have one shape, which is not larger than `data` off the axis. Indices lie in
/// `[-size, size - 1]`. Without `use_init_val` the data take no part in the reduction; it has no effect without one.
///
/// ```
/// use ndarray::array;
/// use ovir::scatter::openvino::{ScatterElementsReduction, scatter_elements_update};
///
/// // Examples 1, 2 and 4 of the specification.
/// let (data, updates) = (array![2, 3, 4, 6], array![10, 20, 30, 40, 70, 60]);
/// let sum = ScatterElementsReduction::Sum;
/// let output = scatter_elements_update(&data, &array![1, 0, 0, -2, -1, 2], &updates, 0, sum, true)?;
/// assert_eq!(output.slice::<i32>().unwrap(), [52, 13, 104, 76]);
/// let output = scatter_elements_update(&data, &array![1, 0, 0, 2, 3, 2], &updates, 0, sum, false)?;
/// assert_eq!(output.slice::<i32>().unwrap(), [50, 10, 100, 70]);
/// let (ones, indices) = (ndarray::Array2::<i32>::ones([3, 4]), array![[1, 1], [0, 3]]);
/// let output = scatter_elements_update(&ones, &indices, &array![[11, 12], [13, 14]], 1, sum, true)?;
/// assert_eq!(output.slice::<i32>().unwrap(), [1, 24, 1, 1, 14, 1, 1, 15, 1, 1, 1, 1]);
///
/// let wrong = scatter_elements_update(&data, &array![4], &array![1], 0, sum, true).unwrap_err();
/// assert_eq!(wrong.to_string(), "scatter_elements_update: indices: index 4 at position [0] is out of range of axis 0 of \
///     size 4: it must be in [-4, 3]");
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Types, shapes, an axis or a reduction that do not fit, or an index out of range.
pub fn scatter_elements_update(
    data: &impl Operand,
    indices: &impl Operand,
    updates: &impl Operand,
    axis: i64,
    reduction: ScatterElementsReduction,
    use_init_val: bool,
) -> Result<Tensor, ScatterError> {
    const FUNCTION: Function =
        Function { name: "scatter_elements_update", arguments: &["data", "indices", "updates", "axis", "reduction"] };
    let operation = elements(reduction, use_init_val);
    let (data, indices, updates, axis) = (data.hold(), indices.hold(), updates.hold(), integer(axis)?);
    FUNCTION.copied(&operation, &[data.view(), indices.view(), updates.view(), axis.view()])
}

/// A copy of `data` in which the blocks that rows of coordinates address are updated: ScatterNDUpdate-15.
///
/// `indices` is `[..., k]` of type i32 or i64, and `updates` has the shape `indices[:-1] + data[k:]`. Coordinates lie in
/// `[-size, size - 1]` of their axis.
///
/// ```
/// use ndarray::array;
/// use ovir::scatter::openvino::{ScatterNdReduction, scatter_nd_update};
///
/// let data = array![1.0f32, 2.0, 3.0, 4.0];
/// let (indices, updates) = (array![[0i64], [2], [-3], [-3], [0]], array![10.0f32, 20.0, 30.0, 40.0, 50.0]);
/// let output = scatter_nd_update(&data, &indices, &updates, ScatterNdReduction::Sub)?;
/// assert_eq!(output.slice::<f32>().unwrap(), [-59.0, -68.0, -17.0, 4.0]);
/// # Ok::<(), ovir::scatter::ScatterError>(())
/// ```
///
/// # Errors
/// Types, shapes or a reduction that do not fit, or a coordinate out of range.
pub fn scatter_nd_update(
    data: &impl Operand,
    indices: &impl Operand,
    updates: &impl Operand,
    reduction: ScatterNdReduction,
) -> Result<Tensor, ScatterError> {
    const FUNCTION: Function =
        Function { name: "scatter_nd_update", arguments: &["data", "indices", "updates", "reduction"] };
    let (data, indices, updates) = (data.hold(), indices.hold(), updates.hold());
    FUNCTION.copied(&blocks(reduction), &[data.view(), indices.view(), updates.view()])
}

/// ScatterElementsUpdate-12.
pub(super) fn elements(reduction: ScatterElementsReduction, use_init_val: bool) -> Arc<dyn Operation> {
    let attributes = ScatterElementsUpdateAttributes { reduction, use_init_val };
    Arc::new(ScatterElementsUpdate { class_version: 12, attributes })
}

/// ScatterNDUpdate-15.
pub(super) fn blocks(reduction: ScatterNdReduction) -> Arc<dyn Operation> {
    Arc::new(ScatterNdUpdate { class_version: 15, attributes: ScatterNdUpdateAttributes { reduction } })
}
