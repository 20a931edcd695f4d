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
use crate::common::memory::filled;
use crate::common::number::{Key, Number};
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// Elements whose buckets are found together.
const BLOCK: usize = 64;

/// Up to so many sorted boundaries, all are compared with a block of elements.
const FEW: usize = 64;

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
        use ElementType::{F64, I64, U32, U64};
        let types = [context.input(0)?.element_type(), context.input(1)?.element_type()];
        let are = |fits: fn(ElementType) -> bool| types.into_iter().all(fits);
        if !are(ElementType::is_integer) {
            // What f32 holds exactly is ordered as its bits are.
            let is_narrow = are(|element_type| element_type.is_float() && element_type != F64);
            return if is_narrow { self.fill::<i32, true>(context) } else { self.fill::<i64, true>(context) };
        }
        if are(|element_type| !matches!(element_type, I64 | U32 | U64)) {
            return self.fill::<i32, false>(context);
        }
        if are(|element_type| element_type != U64) {
            return self.fill::<i64, false>(context);
        }
        self.fill::<i128, false>(context)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(3)
    }
}

/// Writes the keys of elements from `first` on, as many as there are places.
fn write_keys<K: Key, const FLOAT: bool>(view: &TensorView<'_>, first: usize, keys: &mut [K]) -> OpResult {
    dispatch!(view.element_type(), T in [numeric] => {
        let values = view.slice::<T>()?.get(first..).unwrap_or_default();
        for (key, value) in keys.iter_mut().zip(values) {
            *key = if FLOAT { K::of_float(Number::to_f64(*value)) } else { K::of_integer(value.to_i128()) };
        }
        Ok(())
    } else { Err(unsupported(view.element_type())) })
}

impl Bucketize {
    /// `FLOAT` tells that numbers are compared as floating-point numbers.
    fn fill<K: Key, const FLOAT: bool>(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (data, buckets) = (context.input(0)?, context.input(1)?);
        let mut boundaries = filled::<K>(buckets.elements())?;
        write_keys::<K, FLOAT>(&buckets, 0, &mut boundaries)?;
        let is_sorted = boundaries.is_sorted();
        let mut output = context.output(0, data.shape())?;
        let element_type = self.attributes.output_type;
        dispatch!(element_type, T in [index] => {
            let mut keys = [K::default(); BLOCK];
            for (block, target) in output.slice_mut::<T>()?.chunks_mut(BLOCK).enumerate() {
                write_keys::<K, FLOAT>(&data, block * BLOCK, &mut keys[..target.len()])?;
                let counts = match self.attributes.with_right_bound {
                    true => count(&keys, &boundaries, is_sorted, |boundary, key| boundary < key),
                    false => count(&keys, &boundaries, is_sorted, |boundary, key| boundary <= key),
                };
                for (target, count) in target.iter_mut().zip(counts) {
                    *target = T::from_i128(count.into());
                }
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }
}

/// The numbers of boundaries before each key.
fn count<K: Key>(
    keys: &[K; BLOCK],
    boundaries: &[K],
    is_sorted: bool,
    is_before: impl Fn(K, K) -> bool,
) -> [u32; BLOCK] {
    let mut counts = [0u32; BLOCK];
    if is_sorted && boundaries.len() <= FEW {
        for boundary in boundaries {
            for (count, key) in counts.iter_mut().zip(keys) {
                *count += u32::from(is_before(*boundary, *key));
            }
        }
        return counts;
    }
    for (count, key) in counts.iter_mut().zip(keys) {
        let before = |boundary: &K| is_before(*boundary, *key);
        *count = if is_sorted { boundaries.partition_point(before) } else { halved(boundaries, before) } as u32;
    }
    counts
}

/// The number of boundaries before, by halving: what boundaries that are not sorted give is up to it.
fn halved<K>(boundaries: &[K], is_before: impl Fn(&K) -> bool) -> usize {
    let (mut low, mut high) = (0, boundaries.len());
    while low < high {
        let middle = low + (high - low) / 2;
        (low, high) = if is_before(&boundaries[middle]) { (middle + 1, high) } else { (low, middle) };
    }
    low
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = BucketizeAttributes::read(context.attributes);
    if !matches!(attributes.output_type, ElementType::I32 | ElementType::I64) {
        let message = format!("`output_type` is {}, which must be i32 or i64", attributes.output_type);
        context.attributes.report(OpError::attribute("output_type", message));
    }
    Arc::new(Bucketize { attributes })
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

    /// What the comparisons of the documentation say, one element after the other.
    fn bucket(value: f64, boundaries: &[f64], right: bool) -> i64 {
        let less = |a: f64, b: f64| a < b || (b.is_nan() && !a.is_nan());
        let (mut low, mut high) = (0, boundaries.len());
        while low < high {
            let middle = low + (high - low) / 2;
            let is_before = if right { less(boundaries[middle], value) } else { !less(value, boundaries[middle]) };
            (low, high) = if is_before { (middle + 1, high) } else { (low, middle) };
        }
        low as i64
    }

    #[test]
    fn all_ways_of_counting() {
        let special = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.5, f32::MIN_POSITIVE, -1e-45];
        let values: Vec<f32> =
            (0..300).map(|i| if i % 7 == 0 { special[i / 7 % 8] } else { (i * i % 331) as f32 - 165.5 }).collect();
        for count in [1, 5, 64, 65, 200] {
            let mut boundaries: Vec<f32> = (0..count).map(|i| ((i * 37) % 300) as f32 - 150.5).collect();
            for sorted in [false, true] {
                if sorted {
                    boundaries.sort_by(f32::total_cmp);
                    if count > 5 {
                        (boundaries[1], boundaries[count - 1]) = (f32::NEG_INFINITY, f32::NAN);
                        boundaries[0] = f32::NEG_INFINITY;
                    }
                }
                let wide: Vec<f64> = boundaries.iter().map(|b| f64::from(*b)).collect();
                for right in [true, false] {
                    let case = || {
                        Case::new("Bucketize", "opset3").attribute("with_right_bound", if right { "1" } else { "0" })
                    };
                    let data = || tensor(&values, [300]);
                    let expected = |of: &dyn Fn(&f32) -> f64, boundaries: &[f64]| {
                        let buckets: Vec<i64> = values.iter().map(|v| bucket(of(v), boundaries, right)).collect();
                        tensor(&buckets, [300])
                    };
                    let output = case().run(&[data(), tensor(&boundaries, [count])]).unwrap();
                    assert_eq!(output[0], expected(&|v| f64::from(*v), &wide));
                    let output = case().run(&[data(), tensor(&wide, [count])]).unwrap();
                    assert_eq!(output[0], expected(&|v| f64::from(*v), &wide));
                    let whole: Vec<i64> = boundaries.iter().map(|b| *b as i64).collect();
                    let cut: Vec<f64> = whole.iter().map(|b| *b as f64).collect();
                    let output = case().run(&[data(), tensor(&whole, [count])]).unwrap();
                    assert_eq!(output[0], expected(&|v| f64::from(*v), &cut));
                    // Numbers up to 2^53 are exact in f64, so that one function tells what integers give.
                    let narrow: Vec<i32> = values.iter().map(|v| *v as i32 / 2).collect();
                    let halves = expected(&|v| f64::from(*v as i32 / 2), &cut);
                    let output = case().run(&[tensor(&narrow, [300]), tensor(&whole, [count])]).unwrap();
                    assert_eq!(output[0], halves);
                    let short: Vec<i16> = whole.iter().map(|b| (*b).clamp(-9999, 9999) as i16).collect();
                    let cut: Vec<f64> = short.iter().map(|b| f64::from(*b)).collect();
                    let output = case().run(&[tensor(&narrow, [300]), tensor(&short, [count])]).unwrap();
                    assert_eq!(output[0], expected(&|v| f64::from(*v as i32 / 2), &cut));
                }
            }
        }
    }

    #[test]
    fn the_output_type_is_an_index_type() {
        assert_eq!(
            Case::new("Bucketize", "opset3").attribute("output_type", "f32").attribute_errors(2),
            ["attribute `output_type`: `output_type` is f32, which must be i32 or i64"]
        );
    }
}
