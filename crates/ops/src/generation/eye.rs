//! # Eye
//! Matrices with ones on a diagonal and zeros elsewhere.
//!
//! Specification: `generation/eye-9`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | num_rows | i32, i64 | one element, not negative |
//! | in 1 | num_columns | i32, i64 | one element, not negative |
//! | in 2 | diagonal_index | i32, i64 | one element; above 0 to the right, below 0 to the left |
//! | in 3 | batch_shape (optional, []) | i32, i64 | 1D, not negative |
//! | out 0 | | `output_type` | batch_shape + [num_rows, num_columns] |

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape, SmallVec, Value, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Eye.
pub static EYE: OpDef = OpDef {
    type_name: "Eye",
    category: Category::Generation,
    versions: &[OpVersion::new(9, (9, 16), (3, 4), (1, 1))],
    attributes: EyeAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Eye.
    pub struct EyeAttributes {
        /// The element type of the output.
        output_type: ElementType = "output_type", required true;
    }
}

/// An Eye layer.
#[derive(Debug)]
pub struct Eye {
    /// The attributes.
    pub attributes: EyeAttributes,
}

impl Operation for Eye {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        for port in 0..context.input_count() {
            context.require_class(port, ElementClass::Index)?;
        }
        for port in 0..3 {
            context.require_one_element(port)?;
        }
        let matrix = [size(context, 0)?, size(context, 1)?];
        let batch = if context.input_count() > 3 { batch_dims(context)? } else { Some(SmallVec::new()) };
        let shape = match batch {
            Some(dims) => PartialShape::from_dims(dims.into_iter().chain(matrix)),
            None => PartialShape::DYNAMIC,
        };
        context.set_output(0, self.attributes.output_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let mut sizes: SmallVec<[i64; 8]> = SmallVec::new();
        if context.input_count() > 3 {
            sizes = context.integers(3)?;
        }
        let batch_rank = sizes.len();
        sizes.extend([context.integer(0)?, context.integer(1)?]);
        let shape: Option<Shape> = sizes.iter().map(|s| usize::try_from(*s).ok()).collect();
        let shape = shape.ok_or_else(|| {
            let message = format!("the output would have the shape {sizes:?}, which has a negative dimension");
            OpError::value(Blame::Node, message)
        })?;
        let (rows, columns) = (shape[batch_rank], shape[batch_rank + 1]);
        let diagonal = context.integer(2)?;
        let element_type = self.attributes.output_type;
        let mut output = context.output(0, &shape)?;
        if shape.elements() == 0 {
            return Ok(());
        }
        dispatch!(element_type, T in [numeric] => {
            let target = output.slice_mut::<T>()?;
            target.fill(T::from_i128(0));
            for matrix in target.chunks_mut(rows * columns) {
                for (row, cells) in matrix.chunks_mut(columns).enumerate() {
                    let column = usize::try_from(i128::from(diagonal) + row as i128).ok();
                    if let Some(cell) = column.and_then(|column| cells.get_mut(column)) {
                        *cell = T::from_i128(1);
                    }
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(9)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = EyeAttributes::read(context.attributes);
    let given = context.attributes.text("output_type").is_some();
    if given && !(attributes.output_type.is_integer() || attributes.output_type.is_float()) {
        let message = format!("`output_type` is {}, which must be a numeric type", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(Eye { attributes })
}

/// The size that the input says, as a dimension.
fn size(context: &InferContext<'_>, port: usize) -> OpResult<Dim> {
    let value = context.bounds(port).and_then(|b| b.values.first().copied()).unwrap_or(Value::UNKNOWN);
    as_size(value, port)
}

fn as_size(value: Value, port: usize) -> OpResult<Dim> {
    if value.max < 0 {
        return Err(OpError::value(Blame::Input(port), format!("the size is {value:?}, which must not be negative")));
    }
    Ok(value.to_dim())
}

fn batch_dims(context: &InferContext<'_>) -> OpResult<Option<SmallVec<[Dim; 8]>>> {
    context.require_rank(3, 1..=1)?;
    if let Some(bounds) = context.bounds(3) {
        return bounds.values.iter().map(|v| as_size(*v, 3)).collect::<OpResult<_>>().map(Some);
    }
    let rank = context.shape(3).elements().get().filter(|rank| *rank <= ovir_tensor::MAX_RANK);
    Ok(rank.map(|rank| SmallVec::from_elem(Dim::DYNAMIC, rank)))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::f16;
    use pretty_assertions::assert_eq;

    fn case(output_type: &str) -> Case {
        Case::new("Eye", "opset9").attribute("output_type", output_type)
    }

    #[test]
    fn examples_1_to_3_of_the_specification() {
        let run =
            |diagonal: i32| case("i32").run(&[tensor(&[3i32], []), tensor(&[4i32], []), tensor(&[diagonal], [1])]);
        assert_eq!(run(2).unwrap()[0], tensor(&[0i32, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0], [3, 4]));
        assert_eq!(run(-1).unwrap()[0], tensor(&[0i32, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0], [3, 4]));
        let inputs = [tensor(&[2i64], []), tensor(&[2i64], []), tensor(&[5i64], []), tensor(&[1i64, 2], [2])];
        assert_eq!(case("f16").run(&inputs).unwrap()[0], tensor(&[f16::ZERO; 8], [1, 2, 2, 2]));
    }

    #[test]
    fn sizes_may_be_bounds() {
        assert_eq!(case("i8").infer(&["i32[]=5", "i32[1]=2..7", "i32[]"]), ["i8[5,2..7]"]);
        assert_eq!(case("f32").infer(&["i32[]", "i32[]", "i32[]", "i32[2]=2,3"]), ["f32[2,3,?,?]"]);
        assert_eq!(case("f32").infer(&["i32[]", "i32[]", "i32[]", "i32[?]"]), ["f32[...]"]);
        assert_eq!(
            case("i8").infer_error(&["i32[]=-5", "i32[]", "i32[]"]),
            "input 0: the size is -5, which must not be negative"
        );
        let inputs = [tensor(&[-1i64], []), tensor(&[2i64], []), tensor(&[0i64], [])];
        assert!(case("i8").run(&inputs).is_err());
    }

    #[test]
    fn inference_is_monotone() {
        case("f32").assert_monotone(&["i32[]=3", "i32[1]=4", "i32[]=0", "i32[2]=2,3"]);
    }
}
