//! # SearchSorted
//! Where values belong in sorted sequences.
//!
//! Specification: `sort/search-sorted-15`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | sorted | any numeric type | `[..., n]`, ascending along the last axis, or `[n]` |
//! | in 1 | values | that of `sorted` | `[..., m]`, the leading dimensions those of `sorted` |
//! | out 0 | | i32, i64 | that of `values` |
//!
//! A sequence of rank 1 serves values of any shape. NaN counts as the largest number.

use std::cmp::Ordering;
use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, SmallVec, dispatch};

use crate::common::elementwise::unsupported;
use crate::condition::non_zero::check_index_type;
use crate::sort::top_k::total_order;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of SearchSorted.
    pub struct SearchSortedAttributes {
        /// Whether a value goes behind the elements that equal it.
        right_mode: bool = "right_mode", default "false";
        /// The element type of the output: i32 or i64.
        output_type: ElementType = "output_type", default "i64";
    }
}

/// The definition of SearchSorted.
pub static SEARCH_SORTED: OpDef = OpDef {
    type_name: "SearchSorted",
    category: Category::Sort,
    versions: &[OpVersion::new(15, (15, 16), (2, 2), (1, 1))],
    attributes: SearchSortedAttributes::DEFINITIONS,
    build,
};

/// A SearchSorted layer.
#[derive(Debug)]
pub struct SearchSorted {
    /// The attributes.
    pub attributes: SearchSortedAttributes,
}

impl Operation for SearchSorted {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        context.require_same_type(&[0, 1])?;
        context.require_rank(0, 1..=usize::MAX)?;
        let shape = output_shape(context.shape(0), context.shape(1))?;
        context.set_output(0, self.attributes.output_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (sorted, values) = (context.input(0)?, context.input(1)?);
        output_shape(&PartialShape::from(sorted.shape()), &PartialShape::from(values.shape()))?;
        let length = sorted.shape().last().copied().unwrap_or(1);
        let lane = match sorted.shape().rank() {
            1 => usize::MAX,
            _ => values.shape().last().copied().unwrap_or(1),
        };
        let mut output = context.output(0, values.shape())?;
        dispatch!(sorted.element_type(), T in [numeric] => {
            let (sequence, wanted) = (sorted.slice::<T>()?, values.slice::<T>()?);
            let find = |position: usize| {
                let start = position / lane * length;
                let value = wanted[position];
                sequence[start..start + length].partition_point(|element| match total_order(*element, value) {
                    Ordering::Less => true,
                    Ordering::Equal => self.attributes.right_mode,
                    Ordering::Greater => false,
                })
            };
            match self.attributes.output_type {
                ElementType::I32 => {
                    for (i, target) in output.slice_mut::<i32>()?.iter_mut().enumerate() {
                        *target = find(i) as i32;
                    }
                }
                _ => {
                    for (i, target) in output.slice_mut::<i64>()?.iter_mut().enumerate() {
                        *target = find(i) as i64;
                    }
                }
            }
            Ok(())
        } else { Err(unsupported(sorted.element_type())) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(15)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = SearchSortedAttributes::read(context.attributes);
    check_index_type("output_type", &mut attributes.output_type, context);
    Arc::new(SearchSorted { attributes })
}

fn output_shape(sorted: &PartialShape, values: &PartialShape) -> OpResult<PartialShape> {
    let Some(a) = sorted.dims().filter(|dims| dims.len() > 1) else { return Ok(values.clone()) };
    let Some(b) = values.dims() else {
        return Ok(PartialShape::from_dims(a[..a.len() - 1].iter().copied().chain([Dim::DYNAMIC])));
    };
    let mismatch = || {
        let message = format!("shape {values} must equal {sorted} of input 0 except in the last dimension");
        OpError::shape(Blame::Input(1), message)
    };
    if a.len() != b.len() {
        return Err(mismatch());
    }
    let last = a.len() - 1;
    let merge = |(i, (a, b)): (usize, (&Dim, &Dim))| if i == last { Some(*b) } else { b.merge(*a) };
    let dims: Option<SmallVec<[Dim; 8]>> = a.iter().zip(b).enumerate().map(merge).collect();
    dims.map(PartialShape::from_dims).ok_or_else(mismatch)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn finds_the_place() {
        let case = |right: &str| Case::new("SearchSorted", "opset15").attribute("right_mode", right);
        let sorted = tensor(&[1f32, 3.0, 3.0, 7.0, 0.0, 1.0, 2.0, 3.0], [2, 4]);
        let values = tensor(&[3f32, 9.0, f32::NAN, 0.5, -1.0, 3.0], [2, 3]);
        let left = case("false").run(&[sorted.clone(), values.clone()]).unwrap();
        assert_eq!(left[0], tensor(&[1i64, 4, 4, 1, 0, 3], [2, 3]));
        let right = case("true").run(&[sorted, values]).unwrap();
        assert_eq!(right[0], tensor(&[3i64, 4, 4, 1, 0, 4], [2, 3]));
        let one = case("false").attribute("output_type", "i32").run(&[tensor(&[1u8, 4], [2]), tensor(&[4u8], [])]);
        assert_eq!(one.unwrap()[0], tensor(&[1i32], []));
        assert_eq!(case("false").infer(&["f32[?,4]", "f32[2,?]"]), ["i64[2,?]"]);
        assert_eq!(case("false").infer(&["f32[5,2..3,4]", "f32[...]"]), ["i64[5,2..3,?]"]);
        assert_eq!(case("false").infer(&["f32[4]", "f32[...]"]), ["i64[...]"]);
        case("false").assert_monotone(&["f32[5,3,4]", "f32[5,3,2]"]);
        assert_eq!(
            case("false").infer_error(&["f32[3,4]", "f32[2,4]"]),
            "input 1: shape [2,4] must equal [3,4] of input 0 except in the last dimension"
        );
    }
}
