//! # RDFT
//! The discrete Fourier transform of real numbers along some axes.
//!
//! Specification: `signals/rdft-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | any, rank at least 1 |
//! | in 1 | axes | i32, i64 | one item an axis |
//! | in 2 | signal_size (optional) | i32, i64 | one size an axis; -1 keeps that of the data |
//! | out 0 | | that of `data` | that of `data` with the signal sizes, half of the last of `axes` plus one, and real and imaginary parts last |
//!
//! The data are cut, or filled with zeros at the end, to the signal size first. Along the last of `axes` only the first
//! half of the spectrum is kept; the rest is its mirror image. (OpenVINO's CPU plugin cannot grow an axis.)

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, SmallVec};

use crate::common::fourier::{
    Complex, SignalSize, infer_axes, resolve_axes, signal_size, signal_sizes, transform_axis,
};
use crate::common::memory::{filled, widened_view};
use crate::signals::dft::write_complex;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of RDFT.
pub static RDFT: OpDef = OpDef {
    type_name: "RDFT",
    category: Category::Signals,
    versions: &[OpVersion::new(9, (9, 16), (2, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A RDFT layer.
#[derive(Debug)]
pub struct Rdft;

impl Operation for Rdft {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Float)?;
        context.require_rank(0, 1..=usize::MAX)?;
        let Some(dims) = context.shape(0).dims() else {
            context.set_output(0, element_type, PartialShape::DYNAMIC);
            return Ok(());
        };
        let mut sizes: SmallVec<[Dim; 8]> = SmallVec::from_slice(dims);
        match infer_axes(context, dims.len())? {
            None => sizes.fill(Dim::DYNAMIC),
            Some(axes) => {
                for (item, axis) in axes.iter().enumerate() {
                    if let SignalSize::Given(size) = signal_size(context, item)? {
                        sizes[*axis] = size;
                    }
                }
                if let Some(last) = axes.last() {
                    sizes[*last] = half(sizes[*last]);
                }
            }
        }
        sizes.push(Dim::fixed(2));
        context.set_output(0, element_type, PartialShape::from_dims(sizes));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let axes = resolve_axes(&context.integers(1)?, data.shape().rank())?;
        let sizes = signal_sizes(context, axes.len())?;
        let mut shape: SmallVec<[usize; 8]> = SmallVec::from_slice(data.shape());
        let real = widened_view(data)?;
        let mut values = filled::<Complex>(real.len())?;
        values.iter_mut().zip(&real).for_each(|(v, r)| v.0 = *r);
        // The halved axis goes first, so that the others work on half of the data.
        for (item, axis) in axes.iter().copied().enumerate().rev() {
            let size = sizes[item].unwrap_or(shape[axis]);
            values = transform_axis(&values, &mut shape, axis, size, false)?;
            if item + 1 == axes.len() {
                values = keep_half(&values, &mut shape, axis);
            }
        }
        let mut output_shape: ovir_tensor::Shape = shape.iter().copied().collect();
        output_shape.push(2);
        write_complex(context, &output_shape, &values)
    }
}

fn half(size: Dim) -> Dim {
    let max = if size.max() == INFINITE { INFINITE } else { size.max() / 2 + 1 };
    Dim::interval(size.min() / 2 + 1, max)
}

fn keep_half(values: &[Complex], shape: &mut [usize], axis: usize) -> Vec<Complex> {
    let inner: usize = shape[axis + 1..].iter().product();
    let size = shape[axis];
    shape[axis] = size / 2 + 1;
    if size == 0 || inner == 0 {
        return Vec::new();
    }
    values.chunks_exact(size * inner).flat_map(|line| &line[..(size / 2 + 1) * inner]).copied().collect()
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Rdft)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn the_last_axis_is_halved() {
        let case = Case::new("RDFT", "opset9");
        assert_eq!(case.infer(&["f32[1,320,320]", "i64[2]=1,2"]), ["f32[1,320,161,2]"]);
        assert_eq!(case.infer(&["f32[1,320,320]", "i64[2]=2,0", "i64[2]=512,-1"]), ["f32[1,320,512,2]"]);
        assert_eq!(case.infer(&["f32[?,320]", "i64[1]"]), ["f32[?,?,2]"]);
        let output = case.run(&[tensor(&[1f32, 2.0, 3.0, 4.0], [4]), tensor(&[0i64], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[10f32, 0.0, -2.0, 2.0, -2.0, 0.0], [3, 2]));
    }
}
