//! # LRN
//! Local response normalisation: every element divided by a power of the sum of squares around it.
//!
//! Specification: `normalization/lrn-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any floating-point type | any |
//! | in 1 | axes | any integer type | 1D; in [-rank, rank - 1] |
//! | out 0 | | that of `data` | that of `data` |
//!
//! The divisor is `(bias + alpha / size^axes * sum)^beta`. The region reaches `size / 2` elements to both sides along
//! each axis; OpenVINO takes `(size - 1) / 2`, which differs for even sizes. Without axes it is the element alone.

use std::sync::Arc;

use ovir_tensor::{ElementClass, dispatch};

use crate::common::axes::{infer_axes, read_axes};
use crate::common::elementwise::{infer_unary, unsupported};
use crate::common::memory::{filled, widened};
use crate::common::number::Number;
use crate::{BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation};

/// The definition of LRN.
pub static LRN: OpDef = OpDef {
    type_name: "LRN",
    category: Category::Normalization,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: LrnAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of LRN.
    pub struct LrnAttributes {
        /// The scale of the sum.
        alpha: f64 = "alpha", required true;
        /// The exponent.
        beta: f64 = "beta", required true;
        /// What is added to the scaled sum.
        bias: f64 = "bias", required true;
        /// The side length of the region.
        size: u64 = "size", required true;
    }
}

/// An LRN layer.
#[derive(Debug)]
pub struct Lrn {
    /// The attributes.
    pub attributes: LrnAttributes,
}

impl Operation for Lrn {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        infer_unary(context, ElementClass::Float)?;
        infer_axes(context, 1)?;
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let axes = read_axes(context, 1)?;
        let input = context.input(0)?;
        let shape = input.shape();
        let LrnAttributes { alpha, beta, bias, size } = self.attributes;
        let scale = alpha / (size as f64).powi(axes.len() as i32);
        let reach = usize::try_from(size / 2).unwrap_or(usize::MAX);
        let element_type = input.element_type();
        let mut output = context.output(0, shape)?;
        dispatch!(element_type, T in [float] => {
            let (source, target) = (input.slice::<T>()?, output.slice_mut::<T>()?);
            let mut squares = widened(source)?;
            squares.iter_mut().for_each(|x| *x *= *x);
            let mut sums = filled(squares.len())?;
            for axis in axes {
                // The sum over a box is that along one axis after the other.
                let inner = shape[axis + 1..].iter().product();
                add_neighbours(&squares, [shape[axis], inner], reach, &mut sums);
                std::mem::swap(&mut squares, &mut sums);
            }
            for ((target, source), squares) in target.iter_mut().zip(source).zip(squares) {
                let base = bias + scale * squares;
                // The exponent that networks have is a product of roots.
                let divisor = if beta == 0.75 { base.sqrt() * base.sqrt().sqrt() } else { base.powf(beta) };
                *target = T::from_f64(Number::to_f64(*source) / divisor);
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    let attributes = LrnAttributes::read(context.attributes);
    if attributes.size == 0 && context.attributes.text("size").is_some() {
        context.attributes.report(OpError::attribute("size", "`size` is 0, which must be at least 1"));
    }
    Arc::new(Lrn { attributes })
}

/// Adds to each element of `[outer, size, inner]` those that lie at most `reach` from it along the middle axis.
fn add_neighbours(values: &[f64], [size, inner]: [usize; 2], reach: usize, sums: &mut [f64]) {
    let lines = (size * inner).max(1);
    for (values, sums) in values.chunks_exact(lines).zip(sums.chunks_exact_mut(lines)) {
        for (at, sums) in sums.chunks_exact_mut(inner).enumerate() {
            let around = at.saturating_sub(reach)..at.saturating_add(reach).saturating_add(1).min(size);
            if let [sum] = sums {
                *sum = values[around].iter().sum();
                continue;
            }
            sums.fill(0.0);
            for line in values.chunks_exact(inner).take(around.end).skip(around.start) {
                sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(size: &str) -> Case {
        let case = Case::new("LRN", "opset1").attribute("alpha", size).attribute("beta", "1");
        case.attribute("bias", "0").attribute("size", size)
    }

    #[test]
    fn example_of_the_specification() {
        assert_eq!(case("5").infer(&["f32[6,12,10,24]", "i64[1]=1"]), ["f32[6,12,10,24]"]);
        assert!(case("5").infer_error(&["f32[6,12]", "i64[1]=2"]).contains("axis 2 is out of range"));
    }

    #[test]
    fn the_region_is_cut_at_the_borders() {
        let inputs = [tensor(&[1f32, 2.0, 3.0], [1, 3]), tensor(&[1i64], [1])];
        let output = case("3").run(&inputs).unwrap();
        assert_eq!(output[0], tensor(&[0.2f32, 2.0 / 14.0, 3.0 / 13.0], [1, 3]));
    }

    #[test]
    fn two_axes_and_none() {
        let data = tensor(&[1f32, 2.0, 3.0, 4.0], [2, 2]);
        let output = case("3").run(&[data.clone(), tensor(&[0i64, 1], [2])]).unwrap();
        assert_eq!(output[0], tensor(&[0.1f32, 0.2, 0.3, 0.4], [2, 2]));
        let case = Case::new("LRN", "opset1").attribute("alpha", "1").attribute("beta", "0.5");
        let case = case.attribute("bias", "0").attribute("size", "3");
        assert_eq!(case.run(&[data, tensor::<i64>(&[], [0])]).unwrap()[0], tensor(&[1f32; 4], [2, 2]));
    }

    #[test]
    fn boxes_of_a_volume() {
        let shape = [2usize, 3, 4, 5];
        let data: Vec<f32> = (0..120).map(|i| ((i * 37) % 23) as f32 - 11.0).collect();
        for (axes, beta) in [(vec![1i64], "0.75"), (vec![3, 1], "0.75"), (vec![1, 2, 3], "0.6"), (vec![0, 3], "2")] {
            let case = Case::new("LRN", "opset1").attribute("alpha", "0.5").attribute("beta", beta);
            let case = case.attribute("bias", "1.5").attribute("size", "3");
            let inputs = [tensor(&data, shape), tensor(&axes, [axes.len()])];
            let output = case.run(&inputs).unwrap();
            let place = |index: usize| [index / 60, index / 20 % 3, index / 5 % 4, index % 5];
            for (index, value) in output[0].slice::<f32>().unwrap().iter().enumerate() {
                let is_near = |other: &usize| {
                    (0..4).all(|axis| {
                        let distance = place(index)[axis].abs_diff(place(*other)[axis]);
                        distance <= usize::from(axes.contains(&(axis as i64)))
                    })
                };
                let squares: f64 = (0..120).filter(is_near).map(|other| f64::from(data[other]).powi(2)).sum();
                let scale = 0.5 / 3f64.powi(axes.len() as i32);
                let expected = f64::from(data[index]) / (1.5 + scale * squares).powf(beta.parse().unwrap());
                assert!((f64::from(*value) - expected).abs() <= 1e-7 * expected.abs(), "{axes:?} {index}");
            }
        }
        let empty = [tensor::<f32>(&[], [2, 0, 3]), tensor(&[1i64], [1])];
        assert_eq!(case("3").run(&empty).unwrap()[0], empty[0]);
    }

    #[test]
    fn the_size_is_positive() {
        assert_eq!(case("0").attribute_errors(2), ["attribute `size`: `size` is 0, which must be at least 1"]);
    }
}
