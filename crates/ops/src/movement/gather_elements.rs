//! # GatherElements
//! Single elements picked along one axis.
//!
//! Specification: `movement/gather-elements-6`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | rank at least 1 |
//! | in 1 | indices | i32, i64 | that of `data` except along `axis` |
//! | out 0 | | that of `data` | that of `indices` |
//!
//! Beyond the specification, as in OpenVINO: negative indices count from the end. Any other index out of range is an
//! error.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, SmallVec};

use crate::common::index::{IndexRange, Indices, known_indices};
use crate::common::movement::{Cell, Strided, dispatch_cell};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of GatherElements.
    pub struct GatherElementsAttributes {
        /// The axis along which elements are picked; negative counts from the end.
        axis: i64 = "axis", required true;
    }
}

/// The definition of GatherElements.
pub static GATHER_ELEMENTS: OpDef = OpDef {
    type_name: "GatherElements",
    category: Category::Movement,
    versions: &[OpVersion::new(6, (6, 16), (2, 2), (1, 1))],
    attributes: GatherElementsAttributes::DEFINITIONS,
    build,
};

/// A GatherElements layer.
#[derive(Debug)]
pub struct GatherElements {
    /// The attributes.
    pub attributes: GatherElementsAttributes,
}

impl Operation for GatherElements {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Index)?;
        context.require_rank(0, 1..=usize::MAX)?;
        let (data, indices) = (context.shape(0), context.shape(1));
        let shape = self.output_shape(data, indices)?;
        if let (Some(rank), Some(known)) = (data.rank(), known_indices(context, 1)) {
            let axis = normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
            known.check_possible(IndexRange::Wrapping, |_| (axis, data.dim(axis)))?;
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let indices = Indices::new(context.input(1)?, 1)?;
        let (shape, picked) = (data.shape(), indices.shape());
        self.output_shape(&PartialShape::from(shape), &PartialShape::from(picked))?;
        let axis = normalize_axis(self.attributes.axis, shape.rank(), Blame::attribute("axis"))?;
        indices.check(IndexRange::Wrapping, |_| (axis, shape[axis]))?;
        let inner: usize = picked[axis + 1..].iter().product();
        let block = picked[axis] * inner;
        let strides = Strided::dense(shape).strides;
        let outer_step = shape[axis] * strides[axis] as usize;
        let mut output = context.output(0, picked)?;
        dispatch_cell!(data.element_type(), C => {
            let source = C::source(&data);
            for (position, cell) in C::target(&mut output).iter_mut().enumerate() {
                let index = indices.resolve(position, shape[axis], IndexRange::Wrapping).unwrap_or(0);
                let place = position / block * outer_step + index * inner + position % inner;
                cell.clone_from(&source[place]);
            }
            Ok(())
        })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

impl GatherElements {
    fn output_shape(&self, data: &PartialShape, indices: &PartialShape) -> OpResult<PartialShape> {
        let Some(rank) = data.rank().or(indices.rank()) else { return Ok(PartialShape::DYNAMIC) };
        let axis = normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
        let (Some(from), Some(to)) = (data.dims(), indices.dims()) else {
            let mut shape = if data.rank().is_some() { data.clone() } else { indices.clone() };
            if let (Some(dims), None) = (shape.dims_mut(), indices.rank()) {
                dims[axis] = Dim::DYNAMIC;
            }
            return Ok(shape);
        };
        if from.len() != to.len() {
            let message =
                format!("shape {indices} has rank {}; it must be {} like {data} of input 0", to.len(), from.len());
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let mut output: SmallVec<[Dim; 8]> = SmallVec::new();
        for (i, (a, b)) in from.iter().zip(to).enumerate() {
            let merged = if i == axis { Some(*b) } else { b.merge(*a) };
            output.push(merged.ok_or_else(|| {
                let message = format!(
                    "shape {indices} must equal {data} of input 0 except along axis {axis}: {b} meets {a} at axis {i}"
                );
                OpError::shape(Blame::Input(1), message)
            })?);
        }
        Ok(PartialShape::from_dims(output))
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(GatherElements { attributes: GatherElementsAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(axis: &str) -> Case {
        Case::new("GatherElements", "opset6").attribute("axis", axis)
    }

    #[test]
    fn examples_of_the_specification() {
        let output = case("0").run(&[tensor(&[1, 2, 3, 4], [2, 2]), tensor(&[0i32, 1, 0, 0], [2, 2])]).unwrap();
        assert_eq!(output[0], tensor(&[1, 4, 1, 2], [2, 2]));
        let output = case("1").run(&[tensor(&[1, 7, 4, 3], [2, 2]), tensor(&[1i64, 1, 0, 1, 0, 1], [2, 3])]).unwrap();
        assert_eq!(output[0], tensor(&[7, 7, 1, 3, 4, 3], [2, 3]));
        let data = tensor(&(1..=9).collect::<Vec<i32>>(), [3, 3]);
        let output = case("-2").run(&[data, tensor(&[1i64, 0, 1, 1, 2, 0], [2, 3])]).unwrap();
        assert_eq!(output[0], tensor(&[4, 2, 6, 4, 8, 3], [2, 3]));
        assert_eq!(case("1").infer(&["f32[3,7,5]", "i32[3,10,5]"]), ["f32[3,10,5]"]);
    }

    #[test]
    fn violations() {
        assert_eq!(case("1").infer(&["f32[3,?,5]", "i32[...]"]), ["f32[3,?,5]"]);
        assert_eq!(
            case("1").infer_error(&["f32[3,7]", "i32[2,7]"]),
            "input 1: shape [2,7] must equal [3,7] of input 0 except along axis 1: 2 meets 3 at axis 0"
        );
        let error = case("0").run(&[tensor(&[1, 2], [2]), tensor(&[2i64], [1])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "input 1: index 2 at position [0] is out of range of axis 0 of size 2: it must be in [-2, 1]"
        );
    }
}
