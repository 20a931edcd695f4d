//! # NonZero
//! The coordinates of all elements that are not zero.
//!
//! Specification: `condition/nonzero-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type, boolean | any |
//! | out 0 | | i32, i64 | `[rank of data, number of such elements]` |
//!
//! Column `j` holds the coordinates of the `j`-th of them in row-major order. NaN is not zero.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, NativeElement, PartialShape, Shape, SmallVec, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

crate::attributes! {
    /// The attributes of NonZero.
    pub struct NonZeroAttributes {
        /// The element type of the output: i32 or i64.
        output_type: ElementType = "output_type", default "i64";
    }
}

/// The definition of NonZero.
pub static NON_ZERO: OpDef = OpDef {
    type_name: "NonZero",
    category: Category::Condition,
    versions: &[OpVersion::new(3, (3, 16), (1, 1), (1, 1))],
    attributes: NonZeroAttributes::DEFINITIONS,
    build,
};

/// A NonZero layer.
#[derive(Debug)]
pub struct NonZero {
    /// The attributes.
    pub attributes: NonZeroAttributes,
}

impl Operation for NonZero {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Native)?;
        let shape = context.shape(0);
        let count = context.new_dim(0, shape.elements().max());
        let rank = shape.rank().map_or(Dim::DYNAMIC, Dim::fixed);
        context.set_output(0, self.attributes.output_type, PartialShape::from_dims([rank, count]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        dispatch!(data.element_type(), T in [native] => {
            let values = data.slice::<T>()?;
            let is_set = |value: &T| if <T as Number>::IS_FLOAT { value.to_f64() != 0.0 } else { value.to_i128() != 0 };
            let count = values.iter().filter(|value| is_set(value)).count();
            let shape = Shape::from([data.shape().rank(), count]);
            match self.attributes.output_type {
                ElementType::I32 => {
                    let target = context.output_slice::<i32>(0, &shape)?;
                    write_coordinates(values, is_set, data.shape(), target, |v| i32::try_from(v).unwrap_or(i32::MAX));
                }
                _ => {
                    let target = context.output_slice::<i64>(0, &shape)?;
                    write_coordinates(values, is_set, data.shape(), target, |v| v as i64);
                }
            }
            Ok(())
        } else { Err(unsupported(data.element_type())) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = NonZeroAttributes::read(context.attributes);
    check_index_type("output_type", &mut attributes.output_type, context);
    Arc::new(NonZero { attributes })
}

/// Reports an element type of indices that is neither i32 nor i64, and replaces it.
pub(crate) fn check_index_type(name: &'static str, element_type: &mut ElementType, context: &mut BuildContext<'_, '_>) {
    if !matches!(element_type, ElementType::I32 | ElementType::I64) {
        let message = format!("{element_type} is not allowed: it must be i32 or i64");
        context.attributes.report(OpError::attribute(name, message));
        *element_type = ElementType::I64;
    }
}

/// Writes the coordinates of the values that are set, one axis behind the other. All places of a row of the data share those along
/// the outer axes.
fn write_coordinates<T, I: NativeElement>(
    values: &[T],
    is_set: impl Fn(&T) -> bool,
    shape: &Shape,
    target: &mut [I],
    convert: impl Fn(usize) -> I,
) {
    let Some((&row, outer)) = shape.split_last() else { return };
    let count = target.len() / shape.rank();
    let (shared, own) = target.split_at_mut(count * outer.len());
    let mut at: SmallVec<[usize; 8]> = SmallVec::from_elem(0, outer.len());
    let mut column = 0;
    for values in values.chunks(row.max(1)) {
        let first = column;
        for (place, value) in values.iter().enumerate() {
            // Each place is written and kept only if its value is set, since which ones are is as good as random.
            let Some(coordinate) = own.get_mut(column) else { break };
            *coordinate = convert(place);
            column += usize::from(is_set(value));
        }
        for (coordinates, place) in shared.chunks_exact_mut(count.max(1)).zip(&at) {
            coordinates[first..column].fill(convert(*place));
        }
        for (place, size) in at.iter_mut().zip(outer).rev() {
            *place += 1;
            if *place < *size {
                break;
            }
            *place = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn finds_what_is_not_zero() {
        let case = Case::new("NonZero", "opset3").attribute("output_type", "i32");
        let data = tensor(&[0f32, -1.0, f32::NAN, 0.0, -0.0, 3.0], [2, 3]);
        assert_eq!(case.run(&[data]).unwrap()[0], tensor(&[0, 0, 1, 1, 2, 2], [2, 3]));
        assert_eq!(case.run(&[booleans(&[false; 3], [3])]).unwrap()[0], tensor::<i32>(&[], [1, 0]));
        assert_eq!(case.run(&[tensor(&[5u8], [])]).unwrap()[0], tensor::<i32>(&[], [0, 1]));
        let sparse = tensor(&[0i8, 0, 3, 0, 0, 0, 0, -1, 2, 1, 0, 0], [2, 3, 2]);
        let coordinates = [0, 1, 1, 1, 1, 0, 1, 1, 0, 1, 0, 1];
        assert_eq!(case.run(&[sparse]).unwrap()[0], tensor(&coordinates, [3, 4]));
        assert_eq!(case.run(&[tensor::<f32>(&[], [2, 0])]).unwrap()[0], tensor::<i32>(&[], [2, 0]));
        assert_eq!(case.infer(&["f32[2,?]"]), ["i32[2,?]"]);
        assert_eq!(case.infer(&["f32[2,3]"]), ["i32[2,..6]"]);
        assert_eq!(case.infer(&["f32[...]"]), ["i32[?,?]"]);
    }
}
