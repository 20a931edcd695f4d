//! # Split
//! A tensor cut into equal parts along one axis.
//!
//! Specification: `movement/split-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any; the size along `axis` is divisible by `num_splits` |
//! | in 1 | axis | any integer type | scalar or `[1]` |
//! | out 0.. | | that of `data` | `data` with the size along `axis` divided |

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, INFINITE, PartialShape, Shape, SmallVec, Value};

use crate::common::movement::{Cell, Strided, copy_strided, dispatch_cell, known_axis, require_axis};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of Split.
    pub struct SplitAttributes {
        /// The number of parts.
        num_splits: i64 = "num_splits", required true;
    }
}

/// The definition of Split.
pub static SPLIT: OpDef = OpDef {
    type_name: "Split",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, usize::MAX))],
    attributes: SplitAttributes::DEFINITIONS,
    build,
};

/// A Split layer.
#[derive(Debug)]
pub struct Split {
    /// The attributes.
    pub attributes: SplitAttributes,
}

impl Operation for Split {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        require_axis(context, 1)?;
        let parts = self.attributes.num_splits;
        let input = context.shape(0);
        let axis = match input.rank() {
            Some(rank) => known_axis(context, 1, rank)?,
            None => None,
        };
        let mut shape = input.clone();
        match (shape.dims_mut(), axis) {
            (Some(dims), Some(axis)) => dims[axis] = part_dim(dims[axis], parts)?,
            (Some(dims), None) => {
                for dim in dims {
                    *dim = Dim::interval(dim.min() / parts, dim.max());
                }
            }
            (None, _) => {}
        }
        for port in 0..context.output_count() {
            context.set_output(port, element_type, shape.clone());
        }
        if let (Some(part), Some(axis)) = (shape.to_shape(), axis) {
            propagate_parts(context, axis, (0..parts).map(|_| part[axis]));
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        let axis = normalize_axis(context.integer(1)?, shape.rank(), Blame::Input(1))?;
        let part = part_dim(Dim::fixed(shape[axis]), self.attributes.num_splits)?.get().unwrap_or(0);
        let count = context.output_count();
        evaluate_parts(context, axis, (0..count).map(|_| part))
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = SplitAttributes::read(context.attributes);
    let parts = attributes.num_splits;
    if parts <= 0 && context.attributes.text("num_splits").is_some() {
        context.attributes.report(OpError::attribute("num_splits", format!("{parts} must be positive")));
    } else if parts > 0 && context.output_count as i64 > parts {
        let message = format!("{parts} parts are too few for {} outputs", context.output_count);
        context.attributes.report(OpError::attribute("num_splits", message));
    }
    attributes.num_splits = parts.max(1);
    Arc::new(Split { attributes })
}

/// Writes the outputs as parts of input 0 of the given sizes along `axis`, one after the other.
pub(super) fn evaluate_parts(
    context: &mut EvaluateContext<'_>,
    axis: usize,
    sizes: impl Iterator<Item = usize>,
) -> OpResult {
    let input = context.input(0)?;
    let shapes: SmallVec<[Shape; 4]> = sizes.map(|size| with_size(input.shape(), axis, size)).collect();
    let mut outputs = context.all_outputs(&shapes)?;
    dispatch_cell!(input.element_type(), C => {
        let mut from = Strided::dense(input.shape());
        for (output, shape) in outputs.iter_mut().zip(&shapes) {
            copy_strided(shape, C::source(&input), &from, C::target(output), &Strided::dense(shape));
            from.offset += shape[axis] * from.strides[axis] as usize;
        }
        Ok(())
    })
}

/// Follows small integer values to parts of the given sizes along `axis`.
pub(super) fn propagate_parts(context: &mut InferContext<'_>, axis: usize, sizes: impl Iterator<Item = usize>) {
    let Some(bounds) = context.bounds(0) else { return };
    let mut from = Strided::dense(&bounds.shape);
    for (port, size) in sizes.take(context.output_count()).enumerate() {
        let shape = with_size(&bounds.shape, axis, size);
        let mut values: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, shape.elements());
        copy_strided(&shape, &bounds.values, &from, &mut values, &Strided::dense(&shape));
        from.offset += size * from.strides[axis] as usize;
        context.set_bounds(port, Bounds { shape, values });
    }
}

fn with_size(shape: &Shape, axis: usize, size: usize) -> Shape {
    let mut shape = shape.clone();
    shape[axis] = size;
    shape
}

fn part_dim(dim: Dim, parts: i64) -> OpResult<Dim> {
    let high = if dim.max() == INFINITE { INFINITE } else { dim.max() / parts };
    let low = dim.div_ceil(parts).min();
    if low > high {
        let message = format!("the size {dim} along the axis is not divisible by {parts} (num_splits)");
        return Err(OpError::shape(Blame::Input(0), message));
    }
    Ok(if parts == 1 { dim } else { Dim::interval(low, high) })
}

/// The shape of a part of which only the axis is known.
pub(super) fn with_dim(shape: &PartialShape, axis: usize, dim: Dim) -> PartialShape {
    let mut shape = shape.clone();
    if let Some(dims) = shape.dims_mut() {
        dims[axis] = dim;
    }
    shape
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(parts: usize) -> Case {
        Case::new("Split", "opset1").attribute("num_splits", &parts.to_string()).outputs(parts)
    }

    #[test]
    fn cuts_into_equal_parts() {
        let data = tensor(&[1u16, 2, 3, 4, 5, 6, 7, 8], [2, 4]);
        let output = case(2).run(&[data, tensor(&[-1i64], [])]).unwrap();
        assert_eq!(output, [tensor(&[1u16, 2, 5, 6], [2, 2]), tensor(&[3u16, 4, 7, 8], [2, 2])]);
    }

    #[test]
    fn shapes_and_values() {
        assert_eq!(case(3).infer(&["f32[6,12,10]", "i64[]=1"]), ["f32[6,4,10]"; 3]);
        assert_eq!(case(2).infer(&["f32[?,3..9]", "i64[]=1"]), ["f32[?,2..4]"; 2]);
        assert_eq!(case(2).infer(&["f32[4,6]", "i64[]"]), ["f32[2..4,3..6]"; 2]);
        assert_eq!(case(2).infer(&["i64[2]=3..5,9", "i64[]=0"]), ["i64[1]=3..5", "i64[1]=9"]);
        assert_eq!(
            case(2).infer_error(&["f32[3]", "i64[]=0"]),
            "input 0: the size 3 along the axis is not divisible by 2 (num_splits)"
        );
        assert_eq!(
            Case::new("Split", "opset1").attribute("num_splits", "0").attribute_errors(2),
            ["attribute `num_splits`: 0 must be positive"]
        );
    }
}
