//! # Bucketize
//! The number of the bucket, between sorted boundaries, that every element falls into.
//!
//! Specification: `condition/bucketize-3`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any numeric type | any |
//! | in 1 | buckets | any numeric type | 1D, sorted |
//! | out 0 | | `output_type` | that of `data` |
//!
//! Floating-point numbers and integers are compared as f64, integers among themselves exactly. NaN falls into the last
//! bucket, as in NumPy.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType, TensorView, dispatch};

use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of Bucketize.
pub static BUCKETIZE: OpDef = OpDef {
    type_name: "Bucketize",
    category: Category::Condition,
    versions: &[OpVersion::new(3, (3, 16), (2, 2), (1, 1))],
    attributes: BucketizeAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Bucketize.
    pub struct BucketizeAttributes {
        /// The element type of the output: i32 or i64.
        output_type: ElementType = "output_type", default "i64";
        /// Whether a bucket includes its right edge rather than its left one.
        with_right_bound: bool = "with_right_bound", default "true";
    }
}

/// A Bucketize layer.
#[derive(Debug)]
pub struct Bucketize {
    /// The attributes.
    pub attributes: BucketizeAttributes,
}

/// A number of any type.
#[derive(Debug, Clone, Copy)]
enum Scalar {
    Integer(i128),
    Float(f64),
}

impl Operation for Bucketize {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        context.require_class(1, ElementClass::Numeric)?;
        context.require_rank(1, 1..=1)?;
        let shape = context.shape(0).clone();
        context.set_output(0, self.attributes.output_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, buckets) = (context.input(0)?, context.input(1)?);
        let count = buckets.elements();
        let mut output = context.output(0, data.shape())?;
        let element_type = self.attributes.output_type;
        dispatch!(element_type, T in [index] => {
            for (position, target) in output.slice_mut::<T>()?.iter_mut().enumerate() {
                *target = T::from_i128(self.bucket(scalar(&data, position)?, &buckets, count)? as i128);
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }
}

impl Bucketize {
    /// The number of boundaries before `value`, by halving.
    fn bucket(&self, value: Scalar, buckets: &TensorView<'_>, count: usize) -> OpResult<usize> {
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = low + (high - low) / 2;
            let boundary = scalar(buckets, middle)?;
            let is_before =
                if self.attributes.with_right_bound { less(boundary, value) } else { !less(value, boundary) };
            (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
        }
        Ok(low)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = BucketizeAttributes::read(context.attributes);
    if !matches!(attributes.output_type, ElementType::I32 | ElementType::I64) {
        let message = format!("`output_type` is {}, which must be i32 or i64", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(Bucketize { attributes })
}

fn scalar(view: &TensorView<'_>, position: usize) -> OpResult<Scalar> {
    dispatch!(view.element_type(), T in [numeric] => {
        let value = view.slice::<T>()?[position];
        Ok(if <T as Number>::IS_FLOAT { Scalar::Float(Number::to_f64(value)) } else { Scalar::Integer(value.to_i128()) })
    } else { Err(unsupported(view.element_type())) })
}

/// Whether `a < b`; NaN is above everything.
fn less(a: Scalar, b: Scalar) -> bool {
    let (x, y) = match (a, b) {
        (Scalar::Integer(x), Scalar::Integer(y)) => return x < y,
        (Scalar::Integer(x), Scalar::Float(y)) => (x as f64, y),
        (Scalar::Float(x), Scalar::Integer(y)) => (x, y as f64),
        (Scalar::Float(x), Scalar::Float(y)) => (x, y),
    };
    x < y || (y.is_nan() && !x.is_nan())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn example_of_the_specification() {
        let inputs = [tensor(&[3i32, 50, 10, -1], [2, 2]), tensor(&[0i32, 5, 10], [3])];
        let right = Case::new("Bucketize", "opset3").run(&inputs).unwrap();
        assert_eq!(right[0], tensor(&[1i64, 3, 2, 0], [2, 2]));
        let left = Case::new("Bucketize", "opset3").attribute("with_right_bound", "false");
        let left = left.attribute("output_type", "i32").run(&inputs).unwrap();
        assert_eq!(left[0], tensor(&[1i32, 3, 3, 0], [2, 2]));
        assert_eq!(Case::new("Bucketize", "opset3").infer(&["f32[49,11]", "i8[5]"]), ["i64[49,11]"]);
    }

    #[test]
    fn mixed_types_and_no_boundaries() {
        let data = tensor(&[0.5f32, f32::NAN], [2]);
        let output = Case::new("Bucketize", "opset3").run(&[data.clone(), tensor(&[0i64, 1], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[1i64, 2], [2]));
        let output = Case::new("Bucketize", "opset3").run(&[data, tensor::<i64>(&[], [0])]).unwrap();
        assert_eq!(output[0], tensor(&[0i64, 0], [2]));
    }

    #[test]
    fn the_output_type_is_an_index_type() {
        assert_eq!(
            Case::new("Bucketize", "opset3").attribute("output_type", "f32").attribute_errors(2),
            ["attribute `output_type`: `output_type` is f32, which must be i32 or i64"]
        );
    }
}
