//! # AdaptiveAvgPool
//! The mean of parts of the spatial axes, as many as asked for.
//!
//! Specification: `pooling/adaptive-avg-pool-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | in 1 | output_shape | any integer type | one size a spatial axis |
//! | out 0 | | that of `data` | `[batch, channels, output_shape...]` |
//!
//! Part `i` of `n` along an axis of size `x` is `floor(i * x / n)` to `ceil((i + 1) * x / n)`.
//! Beyond the page, integers are taken too; their mean is rounded to the nearest, halves to even.

use std::sync::Arc;

use ovir_tensor::{ElementClass, dispatch};

use crate::common::accumulate::divide_to_even;
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::common::pooling::{adaptive_geometry, for_each_part, infer_adaptive};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of AdaptiveAvgPool.
pub static ADAPTIVE_AVG_POOL: OpDef = OpDef {
    type_name: "AdaptiveAvgPool",
    category: Category::Pooling,
    versions: &[OpVersion::new(8, (8, 16), (2, 2), (1, 1))],
    attributes: &[],
    build,
};

/// An AdaptiveAvgPool layer.
#[derive(Debug)]
pub struct AdaptiveAvgPool;

impl Operation for AdaptiveAvgPool {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        let shape = infer_adaptive(context)?;
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let sizes = context.integers(1)?;
        let geometry = adaptive_geometry(data.shape(), &sizes)?;
        let element_type = data.element_type();
        let mut output = context.output(0, &geometry.shape)?;
        dispatch!(element_type, T in [numeric] => {
            let (source, target) = (data.slice::<T>()?, output.slice_mut::<T>()?);
            for_each_part(&geometry, |index, plane, part| {
                let (mut float, mut integer, mut count) = (0.0, 0i128, 0i128);
                for position in part {
                    let value = source[plane + position];
                    float += Number::to_f64(value);
                    integer += if <T as Number>::IS_FLOAT { 0 } else { value.to_i128() };
                    count += 1;
                }
                target[index] = match <T as Number>::IS_FLOAT {
                    true => T::from_f64(float / count as f64),
                    false => T::from_i128(divide_to_even(integer, count.max(1))),
                };
            });
            Ok(())
        } else { Err(unsupported(element_type)) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(AdaptiveAvgPool)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn parts_may_overlap() {
        let data = tensor(&[1f32, 5.0, 3.0, 2.0, 4.0], [1, 1, 5]);
        let case = Case::new("AdaptiveAvgPool", "opset8");
        let outputs = case.run(&[data, tensor(&[3i64], [1])]).unwrap();
        assert_eq!(outputs[0], tensor(&[3f32, 10.0 / 3.0, 3.0], [1, 1, 3]));
    }

    #[test]
    fn sizes_come_from_the_second_input() {
        let case = Case::new("AdaptiveAvgPool", "opset8");
        assert_eq!(case.infer(&["f32[?,3,7,?]", "i64[2]=2,3..4"])[0], "f32[?,3,2,3..4]");
        assert_eq!(case.infer(&["f32[...]", "i64[2]=2,3"])[0], "f32[?,?,2,3]");
        assert_eq!(
            case.infer_error(&["f32[1,3,7]", "i64[2]"]),
            "input 1: shape [2] must be [1]: one size for each spatial axis"
        );
        assert_eq!(
            case.infer_error(&["f32[...]", "i64[9223372036854775806]"]),
            "input 1: shape [9223372036854775806] must be [1] to [3]: one size for each spatial axis"
        );
    }
}
