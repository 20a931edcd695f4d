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

use ovir_tensor::{ElementClass, Shape, SmallVec, dispatch};

use crate::common::axes::{infer_axes, read_axes};
use crate::common::broadcast::for_each_offset;
use crate::common::elementwise::{infer_unary, unsupported};
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
            for_each_index(shape, |position, index| {
                let mut squares = 0.0;
                for_each_neighbour(shape, index, &axes, reach, |offset| {
                    let x = Number::to_f64(source[offset]);
                    squares += x * x;
                });
                let divisor = (bias + scale * squares).powf(beta);
                target[position] = T::from_f64(Number::to_f64(source[position]) / divisor);
            });
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

/// Visits all positions of a dense tensor in row-major order with their indices.
fn for_each_index(shape: &Shape, mut visit: impl FnMut(usize, &[usize])) {
    let mut index: SmallVec<[usize; 8]> = SmallVec::from_elem(0, shape.rank());
    for position in 0..shape.elements() {
        visit(position, &index);
        for axis in (0..shape.rank()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
}

/// Visits the offsets of the elements that lie at most `reach` from `index` along each of the axes.
fn for_each_neighbour(shape: &Shape, index: &[usize], axes: &[usize], reach: usize, mut visit: impl FnMut(usize)) {
    let strides = shape.strides();
    let (mut sizes, mut steps) = (Shape::default(), SmallVec::<[usize; 8]>::new());
    let mut start = 0;
    for axis in 0..shape.rank() {
        let low = if axes.contains(&axis) { index[axis].saturating_sub(reach) } else { index[axis] };
        start += low * strides[axis];
        if axes.contains(&axis) {
            sizes.push(index[axis].saturating_add(reach).saturating_add(1).min(shape[axis]) - low);
            steps.push(strides[axis]);
        }
    }
    for_each_offset(&sizes, [&steps], |[offset]| visit(start + offset));
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
    fn the_size_is_positive() {
        assert_eq!(case("0").attribute_errors(2), ["attribute `size`: `size` is 0, which must be at least 1"]);
    }
}
