//! # CumSum
//! Sums of all elements up to each one, along an axis.
//!
//! Specification: `arithmetic/cumsum-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type; boolean, which exporters write | a rank of at least 1 |
//! | in 1 | axis (optional, 0) | i32, i64 | scalar |
//! | out 0 | | that of `data` | that of `data` |
//!
//! Integers wrap; floating-point sums are kept in f64 and each is rounded once. A sum of truth values is whether one of them
//! is true; where it is read as a number, a pass of the optimisation makes it count, as OpenVINO's CPU plugin does.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, dispatch};

use crate::common::axes::Slices;
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::infer::normalize_axis;
use crate::{Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpResult, OpVersion, Operation};

/// The definition of CumSum.
pub static CUM_SUM: OpDef = OpDef {
    type_name: "CumSum",
    category: Category::Arithmetic,
    versions: &[OpVersion::new(3, (3, 16), (1, 2), (1, 1))],
    attributes: CumSumAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of CumSum.
    pub struct CumSumAttributes {
        /// Whether an element is left out of its own sum.
        exclusive: bool = "exclusive", default "false";
        /// Whether the sums start at the end.
        reverse: bool = "reverse", default "false";
    }
}

/// A CumSum layer.
#[derive(Debug)]
pub struct CumSum {
    /// The attributes.
    pub attributes: CumSumAttributes,
}

impl Operation for CumSum {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.require_class(0, ElementClass::Native)?;
        let rank = context.require_rank(0, 1..=usize::MAX)?;
        if context.input_count() > 1 {
            context.require_class(1, ElementClass::Index)?;
            context.require_one_element(1)?;
            if let (Some(rank), Some(axis)) = (rank, context.integer(1)) {
                normalize_axis(axis, rank, Blame::Input(1))?;
            }
        }
        let shape = context.shape(0).clone();
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let axis = if context.input_count() > 1 { context.integer(1)? } else { 0 };
        let input = context.input(0)?;
        let axis = normalize_axis(axis, input.shape().rank(), Blame::Input(1))?;
        let slices = Slices::new(input.shape(), &[axis]);
        let (length, stride) = (slices.length(), input.shape().strides()[axis]);
        let CumSumAttributes { exclusive, reverse } = self.attributes;
        let element_type = input.element_type();
        let mut output = context.output(0, input.shape())?;
        if element_type == ElementType::Boolean {
            let (source, target) = (input.bytes(), output.bytes_mut());
            slices.for_each(|start| {
                let mut any = false;
                for step in 0..length {
                    let i = start + stride * if reverse { length - 1 - step } else { step };
                    let before = any;
                    any |= source[i] != 0;
                    target[i] = u8::from(if exclusive { before } else { any });
                }
            });
            return Ok(());
        }
        dispatch!(element_type, T in [numeric] => {
            let (source, target) = (input.slice::<T>()?, output.slice_mut::<T>()?);
            slices.for_each(|start| {
                let (mut float, mut integer) = (0f64, 0i128);
                for step in 0..length {
                    let i = start + stride * if reverse { length - 1 - step } else { step };
                    let before = if <T as Number>::IS_FLOAT { T::from_f64(float) } else { T::from_i128(integer) };
                    float += Number::to_f64(source[i]);
                    integer = integer.wrapping_add(source[i].to_i128());
                    let after = if <T as Number>::IS_FLOAT { T::from_f64(float) } else { T::from_i128(integer) };
                    target[i] = if exclusive { before } else { after };
                }
            });
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(CumSum { attributes: CumSumAttributes::read(context.attributes) })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_1_to_4_of_the_specification() {
        for (exclusive, reverse, expected) in [
            ("0", "0", [1f32, 3.0, 6.0, 10.0, 15.0]),
            ("1", "0", [0.0, 1.0, 3.0, 6.0, 10.0]),
            ("0", "1", [15.0, 14.0, 12.0, 9.0, 5.0]),
            ("1", "1", [14.0, 12.0, 9.0, 5.0, 0.0]),
        ] {
            let case = Case::new("CumSum", "opset3").attribute("exclusive", exclusive).attribute("reverse", reverse);
            let output = case.run(&[tensor(&[1f32, 2.0, 3.0, 4.0, 5.0], [5]), tensor(&[0i64], [])]).unwrap();
            assert_eq!(output[0], tensor(&expected, [5]));
        }
    }

    #[test]
    fn the_axis_counts_from_either_end() {
        let data = tensor(&[1u8, 2, 3, 254, 5, 6], [2, 3]);
        let case = Case::new("CumSum", "opset3");
        let along = case.run(&[data.clone(), tensor(&[-1i32], [])]).unwrap();
        assert_eq!(along[0], tensor(&[1u8, 3, 6, 254, 3, 9], [2, 3]));
        assert_eq!(case.run(&[data]).unwrap()[0], tensor(&[1u8, 2, 3, 255, 7, 9], [2, 3]));
        assert!(case.infer_error(&["f32[2]", "i32[]=1"]).contains("axis 1 is out of range"));
        assert!(case.infer_error(&["f32[]", "i32[]"]).contains("rank 0; it must be at least 1"));
    }

    #[test]
    fn all_lines_and_directions() {
        let values: Vec<i64> = (0..3 * 7 * 5).map(|i| i64::from(i * i % 23 - 11) << 59).collect();
        let floats: Vec<f32> = values.iter().map(|value| (*value >> 50) as f32 * 0.1).collect();
        for (axis, exclusive, reverse) in (0..12).map(|i| (i / 4, i & 1 == 1, i & 2 == 2)) {
            let stride = [35, 5, 1][axis];
            let length = [3, 7, 5][axis];
            let parts = |i: usize| {
                let at = i / stride % length;
                let first = i - at * stride;
                let others = if reverse { at..length } else { 0..at + 1 };
                let mut places: Vec<usize> = others.map(|step| first + step * stride).collect();
                if reverse {
                    places.reverse();
                }
                places.into_iter().filter(move |place| !exclusive || *place != i).collect::<Vec<_>>()
            };
            let sum = |i: usize| parts(i).into_iter().fold(0i64, |sum, place| sum.wrapping_add(values[place]));
            let float = |i: usize| parts(i).into_iter().fold(0f64, |sum, place| sum + f64::from(floats[place])) as f32;
            let case = Case::new("CumSum", "opset3")
                .attribute("exclusive", if exclusive { "1" } else { "0" })
                .attribute("reverse", if reverse { "1" } else { "0" });
            let output = case.run(&[tensor(&values, [3, 7, 5]), tensor(&[axis as i64], [])]).unwrap();
            assert_eq!(output[0], tensor(&(0..105).map(sum).collect::<Vec<_>>(), [3, 7, 5]));
            let output = case.run(&[tensor(&floats, [3, 7, 5]), tensor(&[axis as i64], [])]).unwrap();
            assert_eq!(output[0], tensor(&(0..105).map(float).collect::<Vec<_>>(), [3, 7, 5]));
        }
    }

    #[test]
    fn truth_values() {
        let case = Case::new("CumSum", "opset3").attribute("exclusive", "true").attribute("reverse", "true");
        let data = booleans(&[false, true, false, true, false], [5]);
        assert_eq!(case.run(std::slice::from_ref(&data)).unwrap()[0], booleans(&[true, true, true, false, false], [5]));
        let case = Case::new("CumSum", "opset3");
        assert_eq!(case.run(&[data]).unwrap()[0], booleans(&[false, true, true, true, true], [5]));
    }

    #[test]
    fn inference_is_monotone() {
        Case::new("CumSum", "opset3").assert_monotone(&["f32[2,3]", "i64[]=-2"]);
    }
}
