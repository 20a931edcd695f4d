//! # MaxPool
//! The largest element of every window of the spatial axes, and where it is.
//!
//! Specification: `pooling/max-pool-1`, `pooling/max-pool-8`, `pooling/max-pool-14`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | `[batch, channels, spatial...]`, rank 3 to 5 |
//! | out 0 | | that of `data` | `[batch, channels, windows...]` |
//! | out 1 | indices (since 8) | `index_element_type` | that of output 0 |
//!
//! Version 8 adds the indices, `dilations`, `index_element_type` and `axis`; version 14 the rounding type `ceil_torch`.
//! Padding never wins. Of equal elements the first is chosen, and NaN wins over numbers. A window without elements
//! holds the lowest number of its type, and the index of the first element of its channel. Indices beyond an i32 wrap.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, Shape, SmallVec, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::common::pooling::{for_each_window, infer_pooling, is_nan, pooling_geometry};
use crate::common::window::{AutoPad, RoundingType, WindowAxis, WindowLists, check_range};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of MaxPool.
pub static MAX_POOL: OpDef = OpDef {
    type_name: "MaxPool",
    category: Category::Pooling,
    versions: &[
        OpVersion::new(1, (1, 7), (1, 1), (1, 1)),
        OpVersion::new(8, (8, 13), (1, 1), (1, 2)),
        OpVersion::new(14, (14, 16), (1, 1), (1, 2)),
    ],
    attributes: MaxPoolAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of MaxPool.
    pub struct MaxPoolAttributes {
        /// The distance between windows, one item a spatial axis.
        strides: Vec<i64> = "strides", required true;
        /// The distance between the elements of a window, one item a spatial axis.
        dilations: Vec<i64> = "dilations", default "", since 8;
        /// The elements added before the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_begin: Vec<i64> = "pads_begin", required true;
        /// The elements added after the data, one item a spatial axis; used with `auto_pad="explicit"`.
        pads_end: Vec<i64> = "pads_end", required true;
        /// The size of a window, one item a spatial axis.
        kernel: Vec<i64> = "kernel", required true;
        /// How the number of windows is rounded.
        rounding_type: RoundingType = "rounding_type", default "floor";
        /// How pads are found.
        auto_pad: AutoPad = "auto_pad", default "explicit";
        /// The element type of the indices: i32 or i64.
        index_element_type: ElementType = "index_element_type", default "i64", since 8;
        /// The first axis that the indices count.
        axis: i64 = "axis", default "0", since 8;
    }
}

/// A MaxPool layer.
#[derive(Debug)]
pub struct MaxPool {
    /// Window, strides, pads and rounding.
    pub attributes: MaxPoolAttributes,
    class_version: u8,
}

impl MaxPoolAttributes {
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

impl MaxPool {
    /// The layer of version 1 that takes every so many-th element along each spatial axis, from the first one on.
    #[must_use]
    pub fn every(strides: Vec<i64>) -> MaxPool {
        let axes = strides.len();
        let attributes = MaxPoolAttributes {
            strides,
            dilations: Vec::new(),
            pads_begin: vec![0; axes],
            pads_end: vec![0; axes],
            kernel: vec![1; axes],
            rounding_type: RoundingType::Floor,
            auto_pad: AutoPad::Explicit,
            index_element_type: ElementType::I64,
            axis: 0,
        };
        MaxPool { attributes, class_version: 1 }
    }

    /// The geometry of the spatial axes and the shape of the output, for a known shape of the data.
    ///
    /// # Errors
    /// A shape mismatch when the kernel does not fit the data.
    pub fn geometry(&self, data: &Shape) -> OpResult<(SmallVec<[WindowAxis; 3]>, Shape)> {
        pooling_geometry(data, &self.attributes.lists(), &self.attributes.kernel)
    }

    /// The number that indices are taken modulo: the elements from `axis` on.
    fn index_period(&self, data: &Shape) -> OpResult<usize> {
        let axis = normalize_axis(self.attributes.axis, data.rank(), Blame::attribute("axis"))?;
        Ok(data[axis..].iter().product::<usize>().max(1))
    }
}

impl Operation for MaxPool {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Numeric)?;
        let shape = infer_pooling(context, &self.attributes.lists(), &self.attributes.kernel)?;
        if let Some(rank) = shape.rank() {
            normalize_axis(self.attributes.axis, rank, Blame::attribute("axis"))?;
        }
        context.set_output(0, element_type, shape.clone());
        context.set_output(1, self.attributes.index_element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let (axes, shape) = self.geometry(data.shape())?;
        let period = self.index_period(data.shape())?;
        let with_indices = context.output_count() > 1;
        let shapes = [shape.clone(), shape];
        let mut outputs = context.all_outputs(&shapes[..1 + usize::from(with_indices)])?;
        let mut outputs = outputs.iter_mut();
        let (Some(values), indices) = (outputs.next(), outputs.next()) else { return Ok(()) };
        let planes = data.shape()[0] * data.shape()[1];
        let element_type = data.element_type();
        let mut positions = vec![0usize; if with_indices { shapes[0].elements() } else { 0 }];
        dispatch!(element_type, T in [numeric] => {
            maximum(planes, &axes, data.slice::<T>()?, values.slice_mut::<T>()?, &mut positions);
        } else { return Err(unsupported(element_type)) });
        let Some(indices) = indices else { return Ok(()) };
        dispatch!(indices.element_type(), I in [index] => {
            for (target, position) in indices.slice_mut::<I>()?.iter_mut().zip(&positions) {
                *target = (position % period) as I;
            }
            Ok(())
        } else { Err(unsupported(self.attributes.index_element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(self.class_version)
    }
}

/// Writes the largest elements, and where they are if `positions` is not empty.
fn maximum<T: Number + PartialOrd>(
    planes: usize,
    axes: &[WindowAxis],
    data: &[T],
    values: &mut [T],
    positions: &mut [usize],
) {
    for_each_window(planes, axes, |index, offset, window| {
        let mut best: Option<(T, usize)> = None;
        window.for_each(|position| {
            let value = data[offset + position];
            let wins = best.is_none_or(|(b, _)| value > b || (is_nan(value) && !is_nan(b)));
            if wins {
                best = Some((value, offset + position));
            }
        });
        let (value, position) = best.unwrap_or((lowest(), offset));
        values[index] = value;
        if let Some(target) = positions.get_mut(index) {
            *target = position;
        }
    });
}

/// The lowest number of a type: the largest negative finite one for floating-point types.
fn lowest<T: Number>() -> T {
    if !T::IS_FLOAT {
        // Conversion from f64 saturates at the lowest integer of the type.
        return T::from_f64(f64::MIN);
    }
    T::from_f64(match T::ELEMENT_TYPE {
        ElementType::F16 => -65504.0,
        ElementType::Bf16 => ovir_tensor::bf16::MIN.to_f64(),
        ElementType::F32 => f64::from(f32::MIN),
        _ => f64::MIN,
    })
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = MaxPoolAttributes::read(context.attributes);
    check_range(context.attributes, "kernel", &attributes.kernel, 1);
    attributes.lists().check(context.attributes);
    if attributes.rounding_type == RoundingType::CeilTorch && context.class_version < 14 {
        let message = "`ceil_torch` is not known before version 14 of the operation (opset14)";
        context.attributes.report(OpError::attribute("rounding_type", message));
    }
    if !attributes.index_element_type.is(ElementClass::Index) {
        let message = format!("`index_element_type` is {}; it must be i32 or i64", attributes.index_element_type);
        context.attributes.report(OpError::attribute("index_element_type", message));
    }
    Arc::new(MaxPool { attributes, class_version: context.class_version })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(kernel: &str, strides: &str, pads: &str) -> Case {
        Case::new("MaxPool", "opset14")
            .attribute("kernel", kernel)
            .attribute("strides", strides)
            .attribute("pads_begin", pads)
            .attribute("pads_end", pads)
            .outputs(2)
    }

    #[test]
    fn the_examples_of_the_specification() {
        let explicit = case("2,2", "2,2", "1,1");
        assert_eq!(explicit.infer(&["f32[1,3,32,32]"]), ["f32[1,3,17,17]", "i64[1,3,17,17]"]);
        let valid = case("2,2", "2,2", "1,1").attribute("auto_pad", "valid");
        assert_eq!(valid.infer(&["f32[1,3,32,32]"]), ["f32[1,3,16,16]", "i64[1,3,16,16]"]);
        let old = Case::new("MaxPool", "opset1").attribute("kernel", "5,5").attribute("strides", "3,3");
        let old = old.attribute("pads_begin", "1,1").attribute("pads_end", "1,1");
        assert_eq!(old.infer(&["f32[1,3,32,32]"]), ["f32[1,3,10,10]"]);
    }

    #[test]
    fn indices_count_from_the_axis() {
        let data = tensor(&[5f32, 1.0, 7.0, 2.0, 3.0, 9.0], [1, 2, 3]);
        let all = case("2", "1", "0").run(std::slice::from_ref(&data)).unwrap();
        assert_eq!(all[0], tensor(&[5f32, 7.0, 3.0, 9.0], [1, 2, 2]));
        assert_eq!(all[1], tensor(&[0i64, 2, 4, 5], [1, 2, 2]));
        let last = case("2", "1", "0").attribute("axis", "2").attribute("index_element_type", "i32");
        assert_eq!(last.run(&[data]).unwrap()[1], tensor(&[0i32, 2, 1, 2], [1, 2, 2]));
    }

    #[test]
    fn nan_and_empty_windows() {
        let data = tensor(&[1f32, f32::NAN, 3.0], [1, 1, 3]);
        assert!(case("3", "1", "0").run(&[data]).unwrap()[0].slice::<f32>().unwrap()[0].is_nan());
        let outside = case("1", "2", "2").run(&[tensor(&[-3i8], [1, 1, 1])]).unwrap();
        assert_eq!(outside[0], tensor(&[-128i8, -3, -128], [1, 1, 3]));
    }

    #[test]
    fn unknown_sizes_stay_intervals() {
        assert_eq!(case("2", "2", "0").infer(&["f32[?,3,4..9]"])[0], "f32[?,3,2..4]");
        assert_eq!(case("2", "2", "0").infer(&["f32[...]"])[0], "f32[?,?,1..]");
        assert_eq!(
            case("2", "2", "0").attribute("axis", "3").infer_error(&["f32[1,1,4]"]),
            "attribute `axis`: axis 3 is out of range [-3, 2] for a tensor of rank 3"
        );
    }
}
