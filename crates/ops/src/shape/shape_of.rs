//! # ShapeOf
//! The sizes of all dimensions of a tensor.
//!
//! Specification: `shape/shape-of-1`, `shape/shape-of-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | out 0 | | i32 or i64 | `[rank]`; a scalar gives no elements |
//!
//! Version 3 added `output_type`; version 1 gives i64.

use std::sync::Arc;

use ovir_tensor::{Bounds, Dim, ElementType, PartialShape, Shape, Value};

use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

crate::attributes! {
    /// The attributes of ShapeOf.
    pub struct ShapeOfAttributes {
        /// The element type of the output: i32 or i64.
        output_type: ElementType = "output_type", default "i64", since 3;
    }
}

/// The definition of ShapeOf.
pub static SHAPE_OF: OpDef = OpDef {
    type_name: "ShapeOf",
    category: Category::Shape,
    versions: &[OpVersion::new(1, (1, 2), (1, 1), (1, 1)), OpVersion::new(3, (3, 17), (1, 1), (1, 1))],
    attributes: ShapeOfAttributes::DEFINITIONS,
    build,
};

/// A ShapeOf layer.
#[derive(Debug)]
pub struct ShapeOf {
    /// The class version.
    pub class_version: u8,
    /// The attributes.
    pub attributes: ShapeOfAttributes,
}

/// Writes sizes to output 0.
///
/// # Errors
/// When a size does not fit the type.
pub(crate) fn write_sizes(context: &mut EvaluateContext<'_>, sizes: &[usize], output_type: ElementType) -> OpResult {
    let shape = Shape::from([sizes.len()]);
    if output_type == ElementType::I32 {
        for (target, size) in context.output_slice::<i32>(0, &shape)?.iter_mut().zip(sizes) {
            *target = i32::try_from(*size)
                .map_err(|_| OpError::unsupported(format!("the dimension {size} does not fit the output type i32")))?;
        }
        return Ok(());
    }
    for (target, size) in context.output_slice::<i64>(0, &shape)?.iter_mut().zip(sizes) {
        *target = *size as i64;
    }
    Ok(())
}

impl Operation for ShapeOf {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let output_type = self.attributes.output_type;
        let Some(dims) = context.shape(0).dims() else {
            context.set_output(0, output_type, PartialShape::of_rank(1));
            return Ok(());
        };
        context.set_output(0, output_type, PartialShape::from_dims([Dim::fixed(dims.len())]));
        context.set_bounds(0, Bounds::vector(dims.iter().map(|dim| Value::from(*dim))));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        write_sizes(context, shape, self.attributes.output_type)
    }

    fn takes_packed(&self) -> bool {
        true
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let mut attributes = ShapeOfAttributes::read(context.attributes);
    if !matches!(attributes.output_type, ElementType::I32 | ElementType::I64) {
        let message = format!("{} is not allowed: it must be i32 or i64", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
        attributes.output_type = ElementType::I64;
    }
    Arc::new(ShapeOf { class_version: context.class_version, attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn dims_become_values() {
        let case = Case::new("ShapeOf", "opset3").attribute("output_type", "i32");
        assert_eq!(case.infer(&["f32[2,?,1..5]"]), ["i32[3]=2,0..,1..5"]);
        assert_eq!(case.infer(&["f32[...]"]), ["i32[?]"]);
        assert_eq!(case.infer(&["f32[]"]), ["i32[0]="]);
        assert_eq!(Case::new("ShapeOf", "opset1").infer(&["string[2]"]), ["i64[1]=2"]);
    }

    #[test]
    fn gives_the_sizes() {
        let case = Case::new("ShapeOf", "opset3").attribute("output_type", "i64");
        assert_eq!(case.run(&[tensor(&[0u8; 6], [2, 3])]).unwrap()[0], tensor(&[2i64, 3], [2]));
        assert_eq!(case.run(&[tensor(&[0u8], [])]).unwrap()[0], tensor::<i64>(&[], [0]));
    }

    #[test]
    fn only_index_types_are_allowed() {
        let case = Case::new("ShapeOf", "opset3").attribute("output_type", "f32");
        assert_eq!(case.attribute_errors(1), ["attribute `output_type`: f32 is not allowed: it must be i32 or i64"]);
    }
}
