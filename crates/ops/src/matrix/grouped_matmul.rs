//! # GroupedMatMul
//! Products of matrices by group: rows routed to the experts of a mixture, or a batch.
//!
//! Specification: `matrix/grouped-matmul-17`, with the weights `[G, N, K]` of OpenVINO 2026.4.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | mat_a | any numeric type | `[T, K]` with `offsets`, `[G, M, K]` without |
//! | in 1 | mat_b | that of `mat_a` | `[G, N, K]` |
//! | in 2 | offsets | i32, i64 | `[G]`: the row after the last of each group |
//! | out 0 | | that of `mat_a` | `[T, N]`, or `[G, M, N]` |
//!
//! Earlier texts of the specification have weights `[G, K, N]` and a third form of two matrices; the operation as it was released in
//! opset17 has neither. Rows beyond the last offset are 0, as in OpenVINO's reference.

use std::sync::Arc;

use ovir_diagnostics::Code;
use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, dispatch};

use crate::common::accumulate::Accumulate;
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of GroupedMatMul.
pub static GROUPED_MATMUL: OpDef = OpDef {
    type_name: "GroupedMatMul",
    category: Category::Matrix,
    versions: &[OpVersion::new(17, (17, 17), (2, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A GroupedMatMul layer.
#[derive(Debug)]
pub struct GroupedMatMul;

impl Operation for GroupedMatMul {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 2..=3)?;
        context.require_rank(1, 3..=3)?;
        let routed = context.input_count() > 2;
        let (a, b) = (context.shape(0), context.shape(1));
        match a.rank() {
            Some(2) if !routed => return Err(wrong_offsets(a, "2 dimensions needs")),
            Some(3) if routed => return Err(wrong_offsets(a, "3 dimensions must not have")),
            _ => {}
        }
        let dim = |shape: &PartialShape, axis| if shape.rank().is_some() { shape.dim(axis) } else { Dim::DYNAMIC };
        let (groups, columns, depth) = (dim(b, 0), dim(b, 1), dim(b, 2));
        let a_depth = a.rank().map_or(Dim::DYNAMIC, |rank| a.dim(rank - 1));
        if !a_depth.compatible(depth) {
            let message = format!(
                "shape {b} has {depth} elements in a row to multiply with the {a_depth} of shape {a} of input 0"
            );
            return Err(OpError::shape(Blame::Input(1), message));
        }
        if routed {
            check_offsets(context, groups)?;
            context.set_output(0, element_type, PartialShape::from_dims([dim(a, 0), columns]));
            return Ok(());
        }
        let groups = dim(a, 0).merge(groups).ok_or_else(|| {
            let message = format!("shape {b} has {groups} groups, shape {a} of input 0 has {}", dim(a, 0));
            OpError::shape(Blame::Input(1), message)
        })?;
        context.set_output(0, element_type, PartialShape::from_dims([groups, dim(a, 1), columns]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (a, b) = (context.input(0)?, context.input(1)?);
        let &[groups, columns, depth] = &b.shape()[..] else {
            return Err(OpError::shape(Blame::Input(1), format!("shape {} must be [G, N, K]", b.shape())));
        };
        // The rows of a batch are those of equal groups.
        let (rows, shape, ends) = match a.shape()[..] {
            [batch, rows, _] => {
                (batch * rows, Shape::from([batch, rows, columns]), (1..=groups).map(|g| g * rows).collect())
            }
            [rows, _] => (rows, Shape::from([rows, columns]), offsets(context, groups, rows)?),
            _ => return Err(OpError::shape(Blame::Input(0), format!("shape {} must have rank 2 or 3", a.shape()))),
        };
        if a.shape().last() != Some(&depth) || a.elements() != rows * depth {
            let message = format!("shape {} does not fit shape {} of input 0", b.shape(), a.shape());
            return Err(OpError::shape(Blame::Input(1), message));
        }
        let element_type = a.element_type();
        let mut output = context.output(0, &shape)?;
        dispatch!(element_type, T in [numeric] => {
            let (a, b, target) = (a.slice::<T>()?, b.slice::<T>()?, output.slice_mut::<T>()?);
            target.fill(<T as Number>::from_f64(0.0));
            let mut start = 0;
            for (group, end) in ends.into_iter().enumerate() {
                let weights = &b[group * columns * depth..][..columns * depth];
                multiply(&a[start * depth..end * depth], weights, depth, &mut target[start * columns..end * columns]);
                start = end;
            }
            Ok(())
        } else { Err(unsupported(element_type)) })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(GroupedMatMul)
}

fn check_offsets(context: &InferContext<'_>, groups: Dim) -> OpResult {
    context.require_class(2, ElementClass::Index)?;
    context.require_rank(2, 1..=1)?;
    let shape = context.shape(2);
    if shape.rank().is_some() && !shape.dim(0).compatible(groups) {
        let message = format!("shape {shape} must be [{groups}], an offset for each group of input 1");
        return Err(OpError::shape(Blame::Input(2), message));
    }
    Ok(())
}

/// The row after the last of each group.
fn offsets(context: &EvaluateContext<'_>, groups: usize, rows: usize) -> OpResult<Vec<usize>> {
    let offsets = context.integers(2)?;
    if offsets.len() != groups {
        let message = format!("{} offsets are given for {groups} groups", offsets.len());
        return Err(OpError::shape(Blame::Input(2), message));
    }
    let mut start = 0;
    for (group, offset) in offsets.iter().enumerate() {
        let end = usize::try_from(*offset).ok().filter(|end| (start..=rows).contains(end)).ok_or_else(|| {
            let message = format!("offset {offset} of group {group} must be in [{start}, {rows}]");
            OpError::index(Blame::Input(2), message)
        })?;
        start = end;
    }
    Ok(offsets.iter().map(|offset| *offset as usize).collect())
}

/// Every row of `a` with every row of `b`: sums in f64 (integers modulo their width), rounded once.
fn multiply<T: Accumulate>(a: &[T], b: &[T], depth: usize, target: &mut [T]) {
    if depth == 0 {
        return;
    }
    let columns = b.len() / depth;
    if columns == 0 {
        return;
    }
    for (row, target) in a.chunks_exact(depth).zip(target.chunks_exact_mut(columns)) {
        for (column, target) in b.chunks_exact(depth).zip(target) {
            let mut sum = T::Sum::default();
            row.iter().zip(column).for_each(|(x, y)| sum += x.widen() * y.widen());
            *target = T::narrow(sum);
        }
    }
}

fn wrong_offsets(shape: &PartialShape, rule: &str) -> OpError {
    OpError::new(Code::PortCount, Blame::Node, format!("shape {shape} of {rule} offsets"))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("GroupedMatMul", "opset17")
    }

    #[test]
    fn examples_of_the_specification() {
        assert_eq!(case().infer(&["f32[10,64]", "f32[3,128,64]", "i32[3]"]), ["f32[10,128]"]);
        assert_eq!(case().infer(&["f32[3,4,64]", "f32[3,128,64]"]), ["f32[3,4,128]"]);
        assert_eq!(case().infer(&["f32[?,64]", "f32[?,128,64]", "i64[3]"]), ["f32[?,128]"]);
    }

    #[test]
    fn rows_go_to_their_groups() {
        let a = tensor(&[1i32, 2, 3, 4, 5, 6, 7, 8], [4, 2]);
        let b = tensor(&[1i32, 0, 0, 1, 1, 1], [3, 1, 2]);
        let output = case().run(&[a.clone(), b.clone(), tensor(&[1i64, 1, 3], [3])]).unwrap();
        assert_eq!(output[0], tensor(&[1i32, 7, 11, 0], [4, 1]));
        let batch = [a.reshaped([2, 2, 2]).unwrap(), tensor(&[1i32, 0, 0, 1], [2, 1, 2])];
        assert_eq!(case().run(&batch).unwrap()[0], tensor(&[1i32, 3, 6, 8], [2, 2, 1]));
        let error = case().run(&[a.clone(), b.clone(), tensor(&[3i32, 1, 4], [3])]).unwrap_err();
        assert_eq!(error.to_string(), "input 2: offset 1 of group 1 must be in [3, 4]");
        let error = case().run(&[a, b, tensor(&[3i32, 4, 5], [3])]).unwrap_err();
        assert_eq!(error.to_string(), "input 2: offset 5 of group 2 must be in [4, 4]");
    }

    #[test]
    fn shapes_are_checked() {
        assert!(case().infer_error(&["f32[10,4]", "f32[3,5,4]"]).contains("2 dimensions needs offsets"));
        assert!(case().infer_error(&["f32[2,3,4]", "f32[2,5,4]", "i32[2]"]).contains("must not have offsets"));
        assert!(case().infer_error(&["f32[2,3,4]", "f32[3,5,4]"]).contains("has 3 groups"));
        assert!(case().infer_error(&["f32[2,3,4]", "f32[2,4,5]"]).contains("5 elements in a row"));
        assert!(case().infer_error(&["f32[10,4]", "f32[3,5,4]", "i32[2]"]).contains("an offset for each group"));
        assert!(case().infer_error(&["f32[10,4]", "f32[5,4]", "i32[2]"]).contains("rank 2"));
        assert!(case().infer_error(&["f32[10,4]", "f16[3,5,4]", "i32[3]"]).contains("differs"));
        assert!(case().infer_error(&["f32[10,4]", "f32[3,5,4]", "f32[3]"]).contains("i32 or i64"));
        case().assert_monotone(&["f32[2,3,4]", "f32[2,5,4]"]);
        case().assert_monotone(&["f32[10,4]", "f32[3,5,4]", "i32[3]"]);
    }
}
