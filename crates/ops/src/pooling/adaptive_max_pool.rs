//! # AdaptiveMaxPool
//! The largest element of parts of the spatial axes, as many as asked for.
//!
//! Specification: `pooling/adaptive-max-pool-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | in 1 | output_shape | any integer type | one size a spatial axis |
//! | out 0 | | that of `data` | `[batch, channels, output_shape...]` |
//! | out 1 | indices | `index_element_type` | that of output 0 |
//!
//! Part `i` of `n` along an axis of size `x` is `floor(i * x / n)` to `ceil((i + 1) * x / n)`.
//! An index counts the elements of the spatial axes of its own channel. Of equal elements the first is chosen, and NaN
//! wins over numbers.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::pooling::{adaptive_geometry, for_each_part, infer_adaptive, maximum_of};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of AdaptiveMaxPool.
pub static ADAPTIVE_MAX_POOL: OpDef = OpDef {
    type_name: "AdaptiveMaxPool",
    category: Category::Pooling,
    versions: &[OpVersion::new(8, (8, 16), (2, 2), (1, 2))],
    attributes: AdaptiveMaxPoolAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of AdaptiveMaxPool.
    pub struct AdaptiveMaxPoolAttributes {
        /// The element type of the indices: i32 or i64.
        index_element_type: ElementType = "index_element_type", default "i64";
    }
}

/// An AdaptiveMaxPool layer.
#[derive(Debug)]
pub struct AdaptiveMaxPool {
    /// The attributes.
    pub attributes: AdaptiveMaxPoolAttributes,
}

impl Operation for AdaptiveMaxPool {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        let shape = infer_adaptive(context)?;
        context.set_output(0, element_type, shape.clone());
        context.set_output(1, self.attributes.index_element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let sizes = context.integers(1)?;
        let geometry = adaptive_geometry(data.shape(), &sizes)?;
        let element_type = data.element_type();
        let with_indices = context.output_count() > 1;
        let shapes = [geometry.shape.clone(), geometry.shape.clone()];
        let mut outputs = context.all_outputs(&shapes[..1 + usize::from(with_indices)])?;
        let mut outputs = outputs.iter_mut();
        let (Some(values), indices) = (outputs.next(), outputs.next()) else { return Ok(()) };
        let mut positions = vec![0usize; if with_indices { shapes[0].elements() } else { 0 }];
        dispatch!(element_type, T in [numeric] => {
            let (source, target) = (data.slice::<T>()?, values.slice_mut::<T>()?);
            for_each_part(&geometry, |index, plane, part| {
                let Some((value, position)) = maximum_of(part.map(|p| (source[plane + p], p))) else { return };
                target[index] = value;
                if let Some(target) = positions.get_mut(index) {
                    *target = position;
                }
            });
        } else { return Err(unsupported(element_type)) });
        let Some(indices) = indices else { return Ok(()) };
        dispatch!(indices.element_type(), I in [index] => {
            for (target, position) in indices.slice_mut::<I>()?.iter_mut().zip(&positions) {
                *target = *position as I;
            }
            Ok(())
        } else { Err(unsupported(self.attributes.index_element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(8)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = AdaptiveMaxPoolAttributes::read(context.attributes);
    if !attributes.index_element_type.is(ElementClass::Index) {
        let message = format!("`index_element_type` is {}; it must be i32 or i64", attributes.index_element_type);
        context.attributes.report(OpError::attribute("index_element_type", message));
    }
    Arc::new(AdaptiveMaxPool { attributes })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn parts_may_overlap() {
        let data = tensor(&[1f32, 5.0, 3.0, 2.0, 4.0], [1, 1, 5]);
        let case = Case::new("AdaptiveMaxPool", "opset8").outputs(2);
        let outputs = case.run(&[data, tensor(&[3i64], [1])]).unwrap();
        assert_eq!(outputs[0], tensor(&[5f32, 5.0, 4.0], [1, 1, 3]));
        assert_eq!(outputs[1], tensor(&[1i64, 1, 4], [1, 1, 3]));
    }

    #[test]
    fn sizes_come_from_the_second_input() {
        let case = Case::new("AdaptiveMaxPool", "opset8").outputs(2);
        assert_eq!(case.infer(&["f32[?,3,7,?]", "i64[2]=2,3..4"])[0], "f32[?,3,2,3..4]");
        assert_eq!(case.infer(&["f32[...]", "i64[2]=2,3"])[0], "f32[?,?,2,3]");
        assert_eq!(
            case.infer_error(&["f32[1,3,7]", "i64[2]"]),
            "input 1: shape [2] must be [1]: one size for each spatial axis"
        );
    }
}
