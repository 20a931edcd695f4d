//! # Reshape
//! The same elements under another shape.
//!
//! Specification: `shape/reshape-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | shape | any integer type | `[output rank]` |
//! | out 0 | | that of `data` | as `shape` says |
//!
//! One element of `shape` may be -1: that dimension follows from the number of elements. With `special_zero`, 0 copies
//! the dimension of `data` at the same position.
//!
//! Beyond the specification, as in OpenVINO: a scalar `shape`, which must be 1, makes a scalar. Where -1 meets
//! dimensions of size 0, dimensions that are equal in both shapes are struck out first, and if nothing determines the
//! dimension then, it is 0.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, SmallVec, Value};

use crate::common::movement::{evaluate_reshaped, propagate_reshaped};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

crate::attributes! {
    /// The attributes of Reshape.
    pub struct ReshapeAttributes {
        /// Whether 0 copies the dimension of the input at the same position.
        special_zero: bool = "special_zero", required true;
    }
}

/// The definition of Reshape.
pub static RESHAPE: OpDef = OpDef {
    type_name: "Reshape",
    category: Category::Shape,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: ReshapeAttributes::DEFINITIONS,
    build,
};

/// A Reshape layer.
#[derive(Debug)]
pub struct Reshape {
    /// The attributes.
    pub attributes: ReshapeAttributes,
}

impl Operation for Reshape {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        context.require_class(1, ElementClass::Integer)?;
        let shape = self.output_shape(context)?;
        let known = shape.to_shape();
        context.set_output(0, element_type, shape);
        if let Some(shape) = known {
            propagate_reshaped(context, shape);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = PartialShape::from(context.input(0)?.shape());
        let pattern: SmallVec<[Value; 8]> = context.integers(1)?.into_iter().map(Value::known).collect();
        let shape = match context.input(1)?.shape().rank() {
            0 => scalar(&input, &pattern)?,
            _ => resolve(&input, &pattern, self.attributes.special_zero)?,
        };
        let shape = shape.to_shape().ok_or_else(|| mismatch(&input, &shape))?;
        evaluate_reshaped(context, &shape)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }

    fn is_reshape(&self) -> bool {
        true
    }
}

impl Reshape {
    fn output_shape(&self, context: &InferContext<'_>) -> OpResult<PartialShape> {
        let (input, pattern) = (context.shape(0), context.shape(1));
        match context.require_rank(1, 0..=1)? {
            None => return Ok(PartialShape::DYNAMIC),
            Some(0) => {
                let known = context.bounds(1).map_or(&[Value::UNKNOWN][..], |b| &b.values);
                return scalar(input, known);
            }
            Some(_) => {}
        }
        if let Some(bounds) = context.bounds(1) {
            return resolve(input, &bounds.values, self.attributes.special_zero);
        }
        let Some(rank) = pattern.dim(0).get() else { return Ok(PartialShape::DYNAMIC) };
        check_rank(rank)?;
        let unknown: SmallVec<[Value; 8]> = SmallVec::from_elem(Value::UNKNOWN, rank);
        resolve(input, &unknown, self.attributes.special_zero)
    }
}

/// How one element of `shape` determines its dimension.
#[derive(Clone, Copy, PartialEq)]
enum Slot {
    /// It is the dimension.
    Given(Dim),
    /// It copies the dimension of the input at the same position.
    Copied(Dim),
    /// It follows from the number of elements.
    Inferred,
    /// It may be -1.
    Unknown,
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Reshape { attributes: ReshapeAttributes::read(context.attributes) })
}

fn scalar(input: &PartialShape, pattern: &[Value]) -> OpResult<PartialShape> {
    let value = pattern.first().copied().unwrap_or(Value::UNKNOWN);
    if value.min > 1 || value.max < 1 {
        let message = format!("the scalar {value:?} must be 1: a scalar shape makes a scalar");
        return Err(OpError::value(Blame::Input(1), message));
    }
    if !input.elements().contains(1) {
        return Err(mismatch(input, &PartialShape::scalar()));
    }
    Ok(PartialShape::scalar())
}

fn check_rank(rank: usize) -> OpResult {
    if rank > ovir_tensor::MAX_RANK {
        let message = format!("{rank} dimensions are more than the limit of {}", ovir_tensor::MAX_RANK);
        return Err(OpError::shape(Blame::Input(1), message));
    }
    Ok(())
}

/// The output shape that the values of `shape` describe.
fn resolve(input: &PartialShape, pattern: &[Value], special_zero: bool) -> OpResult<PartialShape> {
    check_rank(pattern.len())?;
    let mut slots: SmallVec<[Slot; 8]> = SmallVec::with_capacity(pattern.len());
    for (i, value) in pattern.iter().enumerate() {
        slots.push(slot(input, i, *value, special_zero)?);
    }
    let count = |which: Slot| slots.iter().filter(|s| **s == which).count();
    let (inferred, unknown) = (count(Slot::Inferred), count(Slot::Unknown));
    if inferred > 1 {
        return Err(OpError::value(Blame::Input(1), format!("{pattern:?} holds -1 more than once")));
    }
    let dims = slots.iter().map(|s| match s {
        Slot::Given(dim) | Slot::Copied(dim) => *dim,
        Slot::Inferred | Slot::Unknown => Dim::DYNAMIC,
    });
    let mut output: SmallVec<[Dim; 8]> = dims.collect();
    let Some(input_dims) = input.dims() else { return Ok(PartialShape::from_dims(output)) };
    if inferred == 1 {
        let Some(position) = slots.iter().position(|s| *s == Slot::Inferred) else {
            return Ok(PartialShape::from_dims(output));
        };
        output[position] = quotient(input_dims, &slots, position).ok_or_else(|| indivisible(input, pattern))?;
        return Ok(PartialShape::from_dims(output));
    }
    let given = PartialShape::from_dims(output.iter().copied());
    if unknown == 0 {
        let possible = quotient(input_dims, &slots, usize::MAX).is_some_and(|rest| rest.contains(1));
        let both_empty = input.elements().contains(0) && given.elements().contains(0);
        if !possible && !both_empty {
            return Err(mismatch(input, &given));
        }
    }
    // The number of elements narrows a dimension where no other dimension can be 0.
    for position in 0..output.len() {
        let mut others = given.dims().unwrap_or(&[]).iter().enumerate().filter(|(i, _)| *i != position);
        let may_be_empty = others.any(|(_, dim)| dim.min() == 0);
        if may_be_empty || output[position].is_static() || matches!(slots[position], Slot::Copied(_)) {
            continue;
        }
        let narrowed = quotient(input_dims, &slots, position).and_then(|dim| output[position].merge(dim));
        output[position] = narrowed.ok_or_else(|| mismatch(input, &given))?;
    }
    Ok(PartialShape::from_dims(output))
}

fn slot(input: &PartialShape, position: usize, value: Value, special_zero: bool) -> OpResult<Slot> {
    if value.max < -1 {
        let message = format!("element {position} is {value:?}; a dimension must be -1, 0 or positive");
        return Err(OpError::value(Blame::Input(1), message));
    }
    if value.max == -1 {
        return Ok(if value.min == -1 { Slot::Inferred } else { Slot::Unknown });
    }
    if value.min < 0 {
        return Ok(Slot::Unknown);
    }
    let dim = value.to_dim();
    if value.min > 0 || !special_zero {
        return Ok(Slot::Given(dim));
    }
    let beyond = input.rank().is_some_and(|rank| position >= rank);
    let copied = input.dim(position);
    if dim.is_same(copied) || (value.max == 0 && !beyond) {
        return Ok(Slot::Copied(copied));
    }
    if value.max == 0 {
        let message = format!("element {position} is 0 and copies a dimension that shape {input} of input 0 lacks");
        return Err(OpError::value(Blame::Input(1), message).note("special_zero is true"));
    }
    if beyond {
        return Ok(Slot::Given(dim));
    }
    // A value that may be 0 may also copy. The symbol stays: a value of 0 is the size of an empty tensor, and only
    // there the copy could differ from it.
    Ok(Slot::Given(dim.union(copied).with_symbol(dim.symbol())))
}

/// The dimension at `open` from the numbers of elements of both shapes, after striking out dimensions that are the
/// same in both. `None` if no dimension makes the numbers equal.
fn quotient(input: &[Dim], slots: &[Slot], open: usize) -> Option<Dim> {
    let is_copied = |i: usize| matches!(slots.get(i), Some(Slot::Copied(_)));
    let kept = input.iter().enumerate().filter(|(i, _)| !is_copied(*i));
    let mut left: SmallVec<[Dim; 8]> = kept.map(|(_, dim)| *dim).collect();
    let mut right: SmallVec<[Dim; 8]> = SmallVec::new();
    for (i, slot) in slots.iter().enumerate() {
        let dim = match slot {
            _ if i == open => continue,
            Slot::Given(dim) => *dim,
            Slot::Inferred | Slot::Unknown => Dim::DYNAMIC,
            Slot::Copied(_) => continue,
        };
        match left.iter().position(|other| other.is_same(dim)) {
            Some(i) => drop(left.remove(i)),
            None => right.push(dim),
        }
    }
    divide(&left, &right)
}

fn divide(left: &[Dim], right: &[Dim]) -> Option<Dim> {
    let (a, unknown_left) = split(left);
    let (b, unknown_right) = split(right);
    if unknown_left.is_empty() && unknown_right.is_empty() {
        return match (a, b) {
            (0, 0) => Some(Dim::fixed(0)),
            (_, 0) => None,
            _ => (a % b == 0).then(|| fixed(a / b)),
        };
    }
    if a > 0 && b > 0 && a % b == 0 && unknown_right.is_empty() {
        // Unknown dimensions times a whole number; one that is alone keeps its symbol.
        return Some(unknown_left.iter().fold(fixed(a / b), |product, dim| product * *dim));
    }
    let ((low, high), (least, most)) = (product(left), product(right));
    if least == 0 {
        // A divisor that may be 0 says nothing of the smallest quotient.
        return Some(Dim::interval(0, high));
    }
    let max = if high == INFINITE { INFINITE } else { high / least };
    let min = if most == INFINITE { i64::from(low > 0) } else { low / most + i64::from(low % most != 0) };
    (min <= max).then(|| Dim::interval(min, max))
}

/// The product of the known dimensions, and the unknown ones.
fn split(dims: &[Dim]) -> (u128, SmallVec<[Dim; 8]>) {
    let known = dims.iter().filter_map(|d| d.get()).fold(1u128, |product, size| product.saturating_mul(size as u128));
    (known, dims.iter().copied().filter(|d| !d.is_static()).collect())
}

fn product(dims: &[Dim]) -> (i64, i64) {
    let dim = dims.iter().fold(Dim::fixed(1), |product, d| product * *d);
    (dim.min(), dim.max())
}

fn fixed(size: u128) -> Dim {
    Dim::fixed(usize::try_from(size).unwrap_or(usize::MAX))
}

fn indivisible(input: &PartialShape, pattern: &[Value]) -> OpError {
    let message =
        format!("no dimension in place of -1 in {pattern:?} gives as many elements as shape {input} of input 0 has");
    OpError::value(Blame::Input(1), message).note(format!("shape {input} has {} elements", input.elements()))
}

fn mismatch(input: &PartialShape, output: &PartialShape) -> OpError {
    let message = format!("shape {output} does not hold as many elements as shape {input} of input 0");
    OpError::shape(Blame::Input(1), message).note(format!("{} and {} elements", output.elements(), input.elements()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, tensor};
    use ovir_tensor::Symbol;
    use pretty_assertions::assert_eq;
    use std::num::NonZeroU32;

    fn case(special_zero: &str) -> Case {
        Case::new("Reshape", "opset1").attribute("special_zero", special_zero)
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case("false").infer(&["f32[2,5,5,0]", "i64[2]=0,4"]), ["f32[0,4]"]);
        assert_eq!(case("false").infer(&["f32[2,5,5]", "i64[2]=-1,5"]), ["f32[10,5]"]);
        assert_eq!(case("true").infer(&["f32[2,5,5,24]", "i64[3]=0,-1,4"]), ["f32[2,150,4]"]);
        assert_eq!(case("true").infer(&["f32[2,2,3]", "i64[4]=0,0,1,-1"]), ["f32[2,2,1,3]"]);
        assert_eq!(case("true").infer(&["f32[3,1,1]", "i64[2]=0,-1"]), ["f32[3,1]"]);
    }

    #[test]
    fn unknown_dims_cancel() {
        assert_eq!(case("true").infer(&["f32[?,6,4]", "i64[3]=0,-1,8"]), ["f32[?,3,8]"]);
        assert_eq!(case("true").infer(&["f32[?,6,4]", "i64[2]=-1,24"]), ["f32[?,24]"]);
        assert_eq!(case("true").infer(&["f32[?,6,4]", "i64[2]=-1,48"]), ["f32[?,48]"]);
        assert_eq!(case("true").infer(&["f32[2..4,6]", "i64[2]=-1,4"]), ["f32[3..6,4]"]);
        assert_eq!(case("false").infer(&["f32[...]", "i64[2]=-1,4"]), ["f32[?,4]"]);
        assert_eq!(case("false").infer(&["f32[2,3]", "i64[3]"]), ["f32[?,?,?]"]);
        assert_eq!(case("false").infer(&["f32[2,3]", "i64[?]"]), ["f32[...]"]);
        assert_eq!(case("false").infer(&["f32[2,3]", "i64[2]=..,3"]), ["f32[2,3]"]);
    }

    #[test]
    fn symbols_cancel() {
        let symbol = |n| NonZeroU32::new(n).map(Symbol);
        let (batch, length) = (Dim::DYNAMIC.with_symbol(symbol(1)), Dim::DYNAMIC.with_symbol(symbol(2)));
        let input = PartialShape::from_dims([batch, length, Dim::fixed(64)]);
        let pattern = [Value::from(length), Value::known(-1), Value::known(64)];
        let output = resolve(&input, &pattern, false).unwrap();
        assert_eq!(output.dims().unwrap(), [length, batch, Dim::fixed(64)]);
        let pattern = [Value::from(batch), Value::from(length), Value::known(8), Value::known(-1)];
        assert_eq!(resolve(&input, &pattern, true).unwrap().dims().unwrap()[3], Dim::fixed(8));
    }

    #[test]
    fn zero_sizes() {
        assert_eq!(case("true").infer(&["f32[0,6]", "i64[2]=0,-1"]), ["f32[0,6]"]);
        assert_eq!(case("true").infer(&["f32[0,6]", "i64[3]=0,0,-1"]), ["f32[0,6,1]"]);
        assert_eq!(case("true").infer(&["f32[0,6]", "i64[2]=6,-1"]), ["f32[6,0]"]);
        assert_eq!(
            case("false").infer_error(&["f32[2,6]", "i64[2]=0,-1"]),
            "input 1: no dimension in place of -1 in [0, -1] gives as many elements as shape [2,6] of input 0 has"
        );
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert_eq!(
            case("false").infer_error(&["f32[2,3]", "i64[2]=4,2"]),
            "input 1: shape [4,2] does not hold as many elements as shape [2,3] of input 0"
        );
        assert_eq!(
            case("false").infer_error(&["f32[2,3]", "i64[2]=-2,2"]),
            "input 1: element 0 is -2; a dimension must be -1, 0 or positive"
        );
        assert_eq!(
            case("false").infer_error(&["f32[2,3]", "i64[2]=-1,-1"]),
            "input 1: [-1, -1] holds -1 more than once"
        );
        assert_eq!(
            case("true").infer_error(&["f32[2,3]", "i64[3]=2,3,0"]),
            "input 1: element 2 is 0 and copies a dimension that shape [2,3] of input 0 lacks"
        );
        assert_eq!(case("false").infer(&["f32[?,3]", "i64[2]=4,3"]), ["f32[4,3]"]);
    }

    #[test]
    fn elements_stay() {
        let output = case("false").run(&[tensor(&[1f32, 2.0, 3.0, 4.0], [2, 2]), tensor(&[-1i32], [1])]).unwrap();
        assert_eq!(output[0], tensor(&[1f32, 2.0, 3.0, 4.0], [4]));
        let scalar = case("false").run(&[tensor(&[5f32], [1, 1]), tensor::<i64>(&[], [0])]).unwrap();
        assert_eq!(scalar[0], tensor(&[5f32], []));
        assert_eq!(case("false").infer(&["i64[3]=1,2..4,5", "i64[2]=1,3"]), ["i64[1,3]=1,2..4,5"]);
    }
}
