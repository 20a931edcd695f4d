//! # IRDFT
//! The inverse of the discrete Fourier transform of real numbers along some axes.
//!
//! Specification: `signals/irdft-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[..., 2]`: real and imaginary parts last |
//! | in 1 | axes | i32, i64 | one item an axis; negative ones count from the last axis before the parts |
//! | in 2 | signal_size (optional) | i32, i64 | one size an axis; -1 keeps that of the data, `2 * (size - 1)` for the last of `axes` |
//! | out 0 | | that of `data` | that of `data` with the signal sizes, without the parts |
//!
//! The last of `axes` holds the first half of a spectrum whose rest is its mirror image.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, Shape, SmallVec};

use crate::common::fourier::{
    Complex, SignalSize, complex_of, infer_axes, resolve_axes, signal_size, signal_sizes, transform_axis,
};
use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of IRDFT.
pub static IRDFT: OpDef = OpDef {
    type_name: "IRDFT",
    category: Category::Signals,
    versions: &[OpVersion::new(9, (9, 16), (2, 3), (1, 1))],
    attributes: &[],
    build,
};

/// An IRDFT layer.
#[derive(Debug)]
pub struct Irdft;

impl Operation for Irdft {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Float)?;
        context.require_rank(0, 2..=usize::MAX)?;
        let data = context.shape(0);
        let Some(dims) = data.dims() else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let rank = dims.len() - 1;
        if !dims[rank].contains(2) {
            let message = format!("the last dimension of shape {data} must be 2: real and imaginary part");
            return Err(OpError::shape(Blame::Input(0), message));
        }
        let mut sizes: SmallVec<[Dim; 8]> = SmallVec::from_slice(&dims[..rank]);
        match infer_axes(context, rank)? {
            None => sizes.fill(Dim::DYNAMIC),
            Some(axes) => {
                for (item, axis) in axes.iter().enumerate() {
                    match signal_size(context, item)? {
                        SignalSize::Given(size) => sizes[*axis] = size,
                        SignalSize::Own if item + 1 == axes.len() => sizes[*axis] = doubled(sizes[*axis]),
                        SignalSize::Own => {}
                    }
                }
            }
        }
        context.set_output(0, element_type, PartialShape::from_dims(sizes));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let rank = data.shape().rank() - 1;
        let axes = resolve_axes(&context.integers(1)?, rank)?;
        let sizes = signal_sizes(context, axes.len())?;
        let mut shape: SmallVec<[usize; 8]> = SmallVec::from_slice(&data.shape()[..rank]);
        let mut values = complex_of(&widened_view(data)?)?;
        for (item, axis) in axes.iter().copied().enumerate() {
            let mut size = sizes[item].unwrap_or(shape[axis]);
            if item + 1 == axes.len() {
                size = sizes[item].unwrap_or(2 * shape[axis].saturating_sub(1));
                values = mirror(&values, &mut shape, axis, size)?;
            }
            values = transform_axis(&values, &mut shape, axis, size, true)?;
        }
        let shape: Shape = shape.iter().copied().collect();
        let real: Vec<f64> = values.iter().map(|v| v.0).collect();
        write_rounded(context.output(0, &shape)?, &real)
    }
}

fn doubled(size: Dim) -> Dim {
    let double = |n: i64| if n == INFINITE { INFINITE } else { n.saturating_sub(1).max(0).saturating_mul(2) };
    Dim::interval(double(size.min()), double(size.max()))
}

/// The whole spectrum of `size` from its first half along `axis`.
fn mirror(values: &[Complex], shape: &mut [usize], axis: usize, size: usize) -> OpResult<Vec<Complex>> {
    let inner: usize = shape[axis + 1..].iter().product();
    let outer: usize = shape[..axis].iter().product();
    let before = shape[axis];
    shape[axis] = size;
    let mut result = filled::<Complex>(outer.saturating_mul(size).saturating_mul(inner))?;
    for o in 0..outer {
        for k in 0..size {
            let is_mirrored = k > size / 2;
            let from = if is_mirrored { size - k } else { k };
            for i in (0..inner).take_while(|_| from < before) {
                let (real, imaginary) = values[(o * before + from) * inner + i];
                result[(o * size + k) * inner + i] = (real, if is_mirrored { -imaginary } else { imaginary });
            }
        }
    }
    Ok(result)
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Irdft)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn undoes_rdft() {
        let case = Case::new("IRDFT", "opset9");
        assert_eq!(case.infer(&["f32[1,161,161,2]", "i64[2]=1,2"]), ["f32[1,161,320]"]);
        assert_eq!(case.infer(&["f32[1,161,161,2]", "i64[2]=1,2", "i64[2]=-1,100"]), ["f32[1,161,100]"]);
        let spectrum = tensor(&[10f32, 0.0, -2.0, 2.0, -2.0, 0.0], [3, 2]);
        let output = case.run(&[spectrum, tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 2.0, 3.0, 4.0], [4]));
    }
}
