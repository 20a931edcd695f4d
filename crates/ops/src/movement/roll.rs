//! # Roll
//! A tensor whose elements are shifted along axes; what leaves at one end enters at the other.
//!
//! Specification: `movement/roll-7`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | data | any | any |
//! | in 1 | shift | i32, i64 | scalar or that of `axes` |
//! | in 2 | axes | i32, i64 | scalar or `[n]` |
//! | out 0 | | that of `data` | that of `data` |
//!
//! The shifts of an axis that is named more than once add up. One shift serves all axes.

use std::sync::Arc;

use ovir_tensor::{ElementClass, Shape, SmallVec};

use crate::common::movement::{AxisMap, Cell, dispatch_cell};
use crate::infer::normalize_axis;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Roll.
pub static ROLL: OpDef = OpDef {
    type_name: "Roll",
    category: Category::Movement,
    versions: &[OpVersion::new(7, (7, 16), (3, 3), (1, 1))],
    attributes: &[],
    build,
};

/// A Roll layer.
#[derive(Debug)]
pub struct Roll;

impl Roll {
    /// How far the elements of each axis are shifted altogether: less than its size, or 0 where that is 0.
    ///
    /// # Errors
    /// There are neither one shift nor as many as axes, or an axis does not exist.
    pub fn shifts(shape: &Shape, shifts: &[i64], axes: &[i64]) -> OpResult<SmallVec<[usize; 8]>> {
        if shifts.len() != 1 && shifts.len() != axes.len() {
            return Err(other_count(&shifts.len().to_string(), &axes.len().to_string()));
        }
        let mut totals: SmallVec<[i128; 8]> = SmallVec::from_elem(0, shape.rank());
        for (i, axis) in axes.iter().enumerate() {
            let shift = if shifts.len() == 1 { shifts[0] } else { shifts[i] };
            totals[normalize_axis(*axis, shape.rank(), Blame::Input(2))?] += i128::from(shift);
        }
        let shift = |(total, size): (&i128, &usize)| total.rem_euclid((*size).max(1) as i128) as usize;
        Ok(totals.iter().zip(shape.iter()).map(shift).collect())
    }
}

impl Operation for Roll {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let (element_type, shape) = (context.element_type(0), context.shape(0).clone());
        for port in 1..=2 {
            context.require_class(port, ElementClass::Index)?;
            context.require_rank(port, 0..=1)?;
        }
        let (shifts, axes) = (context.shape(1).elements(), context.shape(2).elements());
        if !shifts.contains(1) && !shifts.compatible(axes) {
            return Err(other_count(&shifts.to_string(), &axes.to_string()));
        }
        if let (Some(rank), Some(axes)) = (shape.rank(), context.integers(2)) {
            for axis in axes {
                normalize_axis(axis, rank, Blame::Input(2))?;
            }
        }
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let data = context.input(0)?;
        let shape = data.shape();
        let shifts = Roll::shifts(shape, &context.integers(1)?, &context.integers(2)?)?;
        let mut output = context.output(0, shape)?;
        let source = |axis: usize, position: usize| Some((position + shape[axis] - shifts[axis]) % shape[axis]);
        let map = AxisMap { shape, strides: &shape.strides(), source: &source };
        dispatch_cell!(data.element_type(), C => {
            map.copy(C::source(&data), C::target(&mut output), &C::default());
            Ok(())
        })
    }
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Roll)
}

fn other_count(shifts: &str, axes: &str) -> OpError {
    OpError::shape(Blame::Input(1), format!("{shifts} shifts are given for {axes} axes; there must be one or as many"))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    #[test]
    fn examples_of_the_specification() {
        let data = tensor(&(1..=12).collect::<Vec<i32>>(), [4, 3]);
        let run = |shift, axes| Case::new("Roll", "opset7").run(&[data.clone(), shift, axes]).unwrap().remove(0);
        let one = run(tensor(&[1i64], []), tensor(&[0i64], []));
        assert_eq!(one, tensor(&[10, 11, 12, 1, 2, 3, 4, 5, 6, 7, 8, 9], [4, 3]));
        let two = run(tensor(&[-1i32, 2], [2]), tensor(&[0i32, 1], [2]));
        assert_eq!(two, tensor(&[5, 6, 4, 8, 9, 7, 11, 12, 10, 2, 3, 1], [4, 3]));
        let three = run(tensor(&[1i64, 2, 1], [3]), tensor(&[0i64, -1, 0], [3]));
        assert_eq!(three, tensor(&[8, 9, 7, 11, 12, 10, 2, 3, 1, 5, 6, 4], [4, 3]));
    }

    #[test]
    fn violations() {
        let case = Case::new("Roll", "opset7");
        assert_eq!(
            case.infer_error(&["f32[3]", "i64[2]", "i64[3]"]),
            "input 1: 2 shifts are given for 3 axes; there must be one or as many"
        );
        assert_eq!(case.infer(&["f32[?]", "i64[?]", "i64[3]"]), ["f32[?]"]);
    }
}
