//! # VariadicSplit
//! A tensor cut into parts of given sizes along one axis.
//!
//! Specification: `movement/variadic-split-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | axis | any integer type | scalar or `[1]` |
//! | in 2 | split_lengths | any integer type | `[number of outputs]` |
//! | out 0.. | | that of `data` | `data` with the size along `axis` from `split_lengths` |
//!
//! One of the lengths may be -1: it is what the others leave.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, INFINITE, PartialShape, SmallVec, Value};

use super::split::{evaluate_parts, propagate_parts, with_dim};
use crate::common::movement::{known_axis, require_axis};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of VariadicSplit.
pub static VARIADIC_SPLIT: OpDef = OpDef {
    type_name: "VariadicSplit",
    category: Category::Movement,
    versions: &[OpVersion::new(1, (1, 16), (3, 3), (1, usize::MAX))],
    attributes: &[],
    build,
};

/// A VariadicSplit layer.
#[derive(Debug)]
pub struct VariadicSplit;

impl Operation for VariadicSplit {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let element_type = context.element_type(0);
        require_axis(context, 1)?;
        context.require_class(2, ElementClass::Integer)?;
        context.require_rank(2, 1..=1)?;
        let outputs = context.output_count();
        let count = context.shape(2).dim(0);
        if count.max() < outputs as i64 {
            let message = format!("{count} lengths are too few for {outputs} outputs");
            return Err(OpError::shape(Blame::Input(2), message));
        }
        let input = context.shape(0);
        let axis = match input.rank() {
            Some(rank) => known_axis(context, 1, rank)?,
            None => None,
        };
        let Some(axis) = axis else {
            let dims = input.dims().map(|dims| dims.iter().map(|_| Dim::DYNAMIC));
            let shape = dims.map_or(PartialShape::DYNAMIC, PartialShape::from_dims);
            for port in 0..outputs {
                context.set_output(port, element_type, shape.clone());
            }
            return Ok(());
        };
        let lengths = match context.bounds(2) {
            Some(bounds) => part_dims(input.dim(axis), &bounds.values)?,
            None => SmallVec::from_elem(Dim::interval(0, input.dim(axis).max()), outputs),
        };
        for (port, length) in lengths.iter().enumerate().take(outputs) {
            context.set_output(port, element_type, with_dim(input, axis, *length));
        }
        let known: Option<SmallVec<[usize; 8]>> = lengths.iter().map(|length| length.get()).collect();
        if let Some(known) = known {
            propagate_parts(context, axis, known.into_iter());
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let shape = context.input(0)?.shape();
        let axis = normalize_axis(context.integer(1)?, shape.rank(), Blame::Input(1))?;
        let lengths: SmallVec<[Value; 8]> = context.integers(2)?.into_iter().map(Value::known).collect();
        let parts = part_dims(Dim::fixed(shape[axis]), &lengths)?;
        evaluate_parts(context, axis, parts.into_iter().map(|part| part.get().unwrap_or(0)))
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(VariadicSplit)
}

/// The sizes of the parts of a dimension.
fn part_dims(dim: Dim, lengths: &[Value]) -> OpResult<SmallVec<[Dim; 8]>> {
    let mut rest = None;
    let mut others = Dim::fixed(0);
    for (i, length) in lengths.iter().enumerate() {
        if length.max < -1 {
            let message = format!("length {length:?} at position {i} must be -1 or at least 0");
            return Err(OpError::value(Blame::Input(2), message));
        }
        if length.get() == Some(-1) && rest.replace(i).is_some() {
            let message = format!("{lengths:?} holds -1 more than once");
            return Err(OpError::value(Blame::Input(2), message));
        }
        if length.get() != Some(-1) {
            others = others + known_length(*length, dim);
        }
    }
    let may_have_rest = lengths.iter().any(|length| length.min < 0);
    let fits = if may_have_rest { others.min() <= dim.max() } else { others.compatible(dim) };
    if !fits {
        let message = format!("the lengths {lengths:?} add up to {others}; the size along the axis is {dim}");
        return Err(OpError::value(Blame::Input(2), message));
    }
    let left = if lengths.len() == 1 { dim } else { difference(dim, others) };
    let part = |(i, length): (usize, &Value)| if rest == Some(i) { left } else { known_length(*length, dim) };
    Ok(lengths.iter().enumerate().map(part).collect())
}

/// The size of a part whose length may be known; one that may be -1 can be anything up to the whole.
fn known_length(length: Value, dim: Dim) -> Dim {
    if length.min < 0 {
        return Dim::interval(0, dim.max());
    }
    let limit = dim.max().max(length.min);
    Dim::interval(length.min, length.max.min(limit)).with_symbol(length.symbol)
}

fn difference(dim: Dim, others: Dim) -> Dim {
    if others.get() == Some(0) {
        return dim;
    }
    let max = if dim.max() == INFINITE { INFINITE } else { dim.max().saturating_sub(others.min()) };
    let min = if others.max() == INFINITE { 0 } else { dim.min().saturating_sub(others.max()) };
    Dim::interval(min, max)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(outputs: usize) -> Case {
        Case::new("VariadicSplit", "opset1").outputs(outputs)
    }

    #[test]
    fn cuts_as_told() {
        let data = tensor(&[1i8, 2, 3, 4, 5, 6], [2, 3]);
        let output = case(2).run(&[data, tensor(&[1i64], []), tensor(&[1i64, -1], [2])]).unwrap();
        assert_eq!(output, [tensor(&[1i8, 4], [2, 1]), tensor(&[2i8, 3, 5, 6], [2, 2])]);
    }

    #[test]
    fn shapes_and_values() {
        let shapes = case(3).infer(&["f32[6,12,10,24]", "i64[]=0", "i64[3]=1,2,3"]);
        assert_eq!(shapes, ["f32[1,12,10,24]", "f32[2,12,10,24]", "f32[3,12,10,24]"]);
        assert_eq!(case(2).infer(&["f32[?]", "i64[]=0", "i64[2]=-1,2"]), ["f32[?]", "f32[2]"]);
        assert_eq!(case(2).infer(&["f32[4..9]", "i64[]=0", "i64[2]=-1,2"]), ["f32[2..7]", "f32[2]"]);
        assert_eq!(case(2).infer(&["f32[4]", "i64[]=0", "i64[2]"]), ["f32[..4]"; 2]);
        assert_eq!(case(2).infer(&["i64[3]=1,2..4,5", "i64[]=0", "i64[2]=2,1"]), ["i64[2]=1,2..4", "i64[1]=5"]);
        assert_eq!(
            case(2).infer_error(&["f32[4]", "i64[]=0", "i64[2]=2,1"]),
            "input 2: the lengths [2, 1] add up to 3; the size along the axis is 4"
        );
        assert_eq!(
            case(2).infer_error(&["f32[4]", "i64[]=0", "i64[2]=-1,-1"]),
            "input 2: [-1, -1] holds -1 more than once"
        );
    }
}
