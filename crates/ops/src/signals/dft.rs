//! # DFT
//! The discrete Fourier transform of complex numbers along some axes.
//!
//! Specification: `signals/dft-7`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | f16 bf16 f32 f64 | `[..., 2]`: real and imaginary parts last |
//! | in 1 | axes | i32, i64 | one item an axis; negative ones count from the last axis before the parts |
//! | in 2 | signal_size (optional) | i32, i64 | one size an axis; -1 keeps that of the data |
//! | out 0 | | that of `data` | that of `data` with the signal sizes |
//!
//! The data are cut, or filled with zeros at the end, to the signal size first.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec};

use crate::common::fourier::{
    SignalSize, complex_of, infer_axes, resolve_axes, signal_size, signal_sizes, transform_axis,
};
use crate::common::memory::{widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of DFT.
pub static DFT: OpDef = OpDef {
    type_name: "DFT",
    category: Category::Signals,
    versions: &[OpVersion::new(7, (7, 16), (2, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A DFT layer.
#[derive(Debug)]
pub struct Dft;

impl Operation for Dft {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_complex(context)
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        evaluate_complex(context, false)
    }
}

/// Infers DFT and IDFT.
pub(crate) fn infer_complex(context: &mut InferContext<'_>) -> OpResult {
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
    let axes = infer_axes(context, rank)?;
    let mut sizes: SmallVec<[Dim; 8]> = SmallVec::from_slice(&dims[..rank]);
    match axes {
        None if context.input_count() > 2 => sizes.fill(Dim::DYNAMIC),
        None => {}
        Some(axes) => {
            for (item, axis) in axes.iter().enumerate() {
                if let SignalSize::Given(size) = signal_size(context, item)? {
                    sizes[*axis] = size;
                }
            }
        }
    }
    sizes.push(Dim::fixed(2));
    context.set_output(0, element_type, PartialShape::from_dims(sizes));
    Ok(())
}

/// Evaluates DFT and IDFT.
pub(crate) fn evaluate_complex(context: &mut EvaluateContext<'_>, inverse: bool) -> OpResult {
    let data = context.input(0)?;
    let rank = data.shape().rank() - 1;
    let axes = resolve_axes(&context.integers(1)?, rank)?;
    let sizes = signal_sizes(context, axes.len())?;
    let mut shape: SmallVec<[usize; 8]> = SmallVec::from_slice(&data.shape()[..rank]);
    let mut output_shape = data.shape().clone();
    for (axis, size) in axes.iter().zip(&sizes) {
        output_shape[*axis] = size.unwrap_or(shape[*axis]);
    }
    context.output(0, &output_shape)?;
    let mut values = complex_of(&widened_view(data)?)?;
    for axis in &axes {
        values = transform_axis(&values, &mut shape, *axis, output_shape[*axis], inverse)?;
    }
    write_complex(context, &output_shape, &values)
}

/// Writes real and imaginary parts.
pub(crate) fn write_complex(context: &mut EvaluateContext<'_>, shape: &Shape, values: &[(f64, f64)]) -> OpResult {
    let parts: Vec<f64> = values.iter().flat_map(|v| [v.0, v.1]).collect();
    write_rounded(context.output(0, shape)?, &parts)
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Dft)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn shapes_follow_the_signal_sizes() {
        let case = Case::new("DFT", "opset7");
        assert_eq!(case.infer(&["f32[1,320,320,2]", "i64[2]=1,2"]), ["f32[1,320,320,2]"]);
        assert_eq!(case.infer(&["f32[1,320,320,2]", "i64[2]=2,1", "i64[2]=512,-1"]), ["f32[1,320,512,2]"]);
        assert_eq!(case.infer(&["f32[1,320,320,2]", "i64[2]", "i64[2]"]), ["f32[?,?,?,2]"]);
        assert_eq!(
            case.infer_error(&["f32[4,2]", "i64[1]=1"]),
            "input 1: axis 1 is out of range [-1, 0] for a tensor of rank 1"
        );
    }

    #[test]
    fn cuts_and_fills() {
        let case = Case::new("DFT", "opset7");
        let data = tensor(&[1f32, 0.0, 2.0, 0.0, 3.0, 0.0], [3, 2]);
        let run = |size: i64| case.run(&[data.clone(), tensor(&[0i64], [1]), tensor(&[size], [1])]).unwrap().remove(0);
        let scale = |n: f32| n / n;
        assert_eq!(run(2).slice::<f32>().unwrap(), [3.0 * scale(2.0), 0.0, -scale(2.0), 0.0]);
        let filled = run(4).slice::<f32>().unwrap().to_vec();
        assert_eq!(filled[..2], [6.0 * scale(4.0), 0.0]);
        assert_eq!(filled[4..6], [2.0 * scale(4.0), 0.0]);
    }
}
