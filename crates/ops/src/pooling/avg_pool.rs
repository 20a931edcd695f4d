//! # AvgPool
//! The mean of every window of the spatial axes.
//!
//! Specification: `pooling/avg-pool-1`, `pooling/avg-pool-14`, `pooling/avg-pool-16`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | out 0 | | that of `data` | `[batch, channels, windows...]` |
//!
//! Version 14 adds the rounding type `ceil_torch`, version 16 adds `dilations`.
//! With `exclude-pad="true"` the sum is divided by the number of elements inside of the data, otherwise by the number
//! inside of the data and its pads: what a window cut by `ceil` has beyond the pads never counts. A window without
//! elements is 0. Integers are divided rounding to the nearest, halves to even.

use std::sync::Arc;

use ovir_tensor::{ElementClass, Shape, SmallVec, dispatch};

use crate::common::accumulate::{Wrapping, divide_to_even};
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::common::pooling::{for_each_window, infer_pooling, pooling_geometry};
use crate::common::window::{AutoPad, RoundingType, WindowAxis, WindowLists, check_range};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of AvgPool.
pub static AVG_POOL: OpDef = OpDef {
    type_name: "AvgPool",
    category: Category::Pooling,
    versions: &[
        OpVersion::new(1, (1, 13), (1, 1), (1, 1)),
        OpVersion::new(14, (14, 15), (1, 1), (1, 1)),
        OpVersion::new(16, (16, 16), (1, 1), (1, 1)),
    ],
    attributes: AvgPoolAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of AvgPool.
    pub struct AvgPoolAttributes {
        /// The size of a window, one item a spatial axis.
        kernel: Vec<i64> = "kernel", required true;
        /// The distance between windows, one item a spatial axis.
        strides: Vec<i64> = "strides", required true;
        /// The elements added before the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_begin: Vec<i64> = "pads_begin", required true;
        /// The elements added after the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_end: Vec<i64> = "pads_end", required true;
        /// Whether padding is left out of the mean.
        exclude_pad: bool = "exclude-pad", required true;
        /// How pads are found.
        auto_pad: AutoPad = "auto_pad", default "explicit";
        /// How the number of windows is rounded.
        rounding_type: RoundingType = "rounding_type", default "floor";
        /// The distance between the elements of a window, one item a spatial axis.
        dilations: Vec<i64> = "dilations", default "", since 16;
    }
}

/// An AvgPool layer.
#[derive(Debug)]
pub struct AvgPool {
    /// Window, strides, pads and rounding.
    pub attributes: AvgPoolAttributes,
    class_version: u8,
}

impl AvgPoolAttributes {
    fn lists(&self) -> WindowLists<'_> {
        WindowLists {
            strides: &self.strides,
            dilations: &self.dilations,
            pads_begin: &self.pads_begin,
            pads_end: &self.pads_end,
            auto_pad: self.auto_pad,
            rounding: self.rounding_type,
        }
    }
}

impl AvgPool {
    /// The geometry of the spatial axes and the shape of the output, for a known shape of the data.
    ///
    /// # Errors
    /// A shape mismatch when the kernel does not fit the data.
    pub fn geometry(&self, data: &Shape) -> OpResult<(SmallVec<[WindowAxis; 3]>, Shape)> {
        pooling_geometry(data, &self.attributes.lists(), &self.attributes.kernel)
    }
}

impl Operation for AvgPool {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        let shape = infer_pooling(context, &self.attributes.lists(), &self.attributes.kernel)?;
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let (axes, shape) = self.geometry(data.shape())?;
        let mut output = context.output(0, &shape)?;
        let element_type = data.element_type();
        dispatch!(element_type, T in [numeric] => {
            let planes = data.shape()[0] * data.shape()[1];
            self.average::<T>(planes, &axes, data.slice::<T>()?, output.slice_mut::<T>()?);
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

impl AvgPool {
    fn average<T: Number>(&self, planes: usize, axes: &[WindowAxis], data: &[T], output: &mut [T]) {
        for_each_window(planes, axes, |index, offset, window| {
            let (mut float, mut integer, mut inside) = (0.0, Wrapping(0), 0usize);
            window.for_each(|position| {
                let value = data[offset + position];
                if T::IS_FLOAT {
                    float += value.to_f64();
                } else {
                    integer += Wrapping(value.to_i128() as i64);
                }
                inside += 1;
            });
            let count = if self.attributes.exclude_pad { inside } else { window.padded_elements() };
            output[index] = match (inside, T::IS_FLOAT) {
                (0, _) => T::from_i128(0),
                (_, true) => T::from_f64(float / count as f64),
                (_, false) => T::from_i128(divide_to_even(i128::from(integer.0), count as i128)),
            };
        });
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = AvgPoolAttributes::read(context.attributes);
    check_range(context.attributes, "kernel", &attributes.kernel, 1);
    attributes.lists().check(context.attributes);
    if attributes.rounding_type == RoundingType::CeilTorch && context.class_version < 14 {
        let message = "`ceil_torch` is not known before version 14 of the operation (opset14)";
        context.attributes.report(OpError::attribute("rounding_type", message));
    }
    Arc::new(AvgPool { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(kernel: &str, strides: &str, pads: &str, exclude: &str) -> Case {
        Case::new("AvgPool", "opset16")
            .attribute("kernel", kernel)
            .attribute("strides", strides)
            .attribute("pads_begin", pads)
            .attribute("pads_end", pads)
            .attribute("exclude-pad", exclude)
    }

    #[test]
    fn the_examples_of_the_specification() {
        let explicit = case("5,5", "3,3", "1,1", "true");
        assert_eq!(explicit.infer(&["f32[1,3,32,32]"]), ["f32[1,3,10,10]"]);
        let include = case("5,5", "2,2", "1,1", "false");
        assert_eq!(include.infer(&["f32[1,3,32,32]"]), ["f32[1,3,15,15]"]);
        let valid = case("5,5", "2,2", "1,1", "true").attribute("auto_pad", "valid");
        assert_eq!(valid.infer(&["f32[1,3,32,32]"]), ["f32[1,3,14,14]"]);
        let dilated = case("5,5", "2,2", "1,1", "false").attribute("dilations", "2,2");
        assert_eq!(dilated.infer(&["f32[1,3,32,32]"]), ["f32[1,3,13,13]"]);
    }

    #[test]
    fn padding_counts_only_when_included() {
        let data = tensor(&[2f32, 4.0, 6.0], [1, 1, 3]);
        let exclude = case("2", "2", "1", "true").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(exclude[0], tensor(&[2f32, 5.0], [1, 1, 2]));
        let include = case("2", "2", "1", "false").run(&[data]).unwrap();
        assert_eq!(include[0], tensor(&[1f32, 5.0], [1, 1, 2]));
    }

    #[test]
    fn integers_round_to_even() {
        let halves = case("2", "2", "0", "true").run(&[tensor(&[0i8, 1, 1, 2, -1, 0], [1, 1, 6])]).unwrap();
        assert_eq!(halves[0], tensor(&[0i8, 2, 0], [1, 1, 3]));
    }

    #[test]
    fn ceil_torch_needs_version_14() {
        let old = Case::new("AvgPool", "opset1").attribute("kernel", "2").attribute("strides", "1");
        let old = old.attribute("pads_begin", "0").attribute("pads_end", "0").attribute("exclude-pad", "true");
        assert_eq!(
            old.attribute("rounding_type", "ceil_torch").attribute_errors(1),
            ["attribute `rounding_type`: `ceil_torch` is not known before version 14 of the operation (opset14)"]
        );
    }
}
