//! # SparseFillEmptyRows
//! A sparse matrix with an entry in every row.
//!
//! Specification: `sparse/sparse-fill-empty-rows-16`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | values | any numeric type | `[M]` |
//! | in 1 | dense_shape | i32, i64 | `[2]`: rows and columns |
//! | in 2 | indices | that of `dense_shape` | `[M, 2]`: row and column of each value |
//! | in 3 | default_value | that of `values` | one element |
//! | out 0 | output_indices | that of `dense_shape` | `[M', 2]` |
//! | out 1 | output_values | that of `values` | `[M']` |
//! | out 2 | empty_row_indicator | boolean | `[rows]` |
//!
//! A row without entry gets the default value in column 0. The entries come out row by row, those of a row by column; entries of one place
//! keep their order.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, PartialShape, Shape, Value};

use crate::common::index::Indices;
use crate::common::memory::filled;
use crate::common::movement::{Cell, dispatch_cell};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of SparseFillEmptyRows.
pub static SPARSE_FILL_EMPTY_ROWS: OpDef = OpDef {
    type_name: "SparseFillEmptyRows",
    category: Category::Sparse,
    versions: &[OpVersion::new(16, (16, 16), (4, 4), (3, 3))],
    attributes: &[],
    build,
};

/// A SparseFillEmptyRows layer.
#[derive(Debug)]
pub struct SparseFillEmptyRows;

impl Operation for SparseFillEmptyRows {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        context.require_class(1, ElementClass::Index)?;
        let values_type = context.require_same_type(&[0, 3])?;
        let index_type = context.require_same_type(&[1, 2])?;
        context.require_rank(0, 1..=1)?;
        context.require_rank(1, 1..=1)?;
        context.require_rank(2, 2..=2)?;
        context.require_one_element(3)?;
        let count = check_shapes(context)?;
        let rows = match context.bounds(1).and_then(|bounds| bounds.values.first().copied()) {
            Some(rows) if rows.max < 0 => return Err(negative(rows)),
            Some(rows) => rows.to_dim(),
            None => Dim::DYNAMIC,
        };
        let entries = known_entries(context)?.unwrap_or_else(|| {
            let most = if rows.max() == i64::MAX { i64::MAX } else { count.max().saturating_add(rows.max()) };
            context.new_dim(count.min().max(rows.min()), most)
        });
        context.set_output(0, index_type, PartialShape::from_dims([entries, Dim::fixed(2)]));
        context.set_output(1, values_type, PartialShape::from_dims([entries]));
        context.set_output(2, ElementType::Boolean, PartialShape::from_dims([rows]));
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (values, places) = (context.input(0)?, context.input(2)?);
        let rows = dense_rows(&context.integers(1)?)?;
        let order = entries_in_order(&Indices::new(places, 2)?, rows)?;
        let entries = order.len() + empty_rows(&order, rows.0);
        let shapes = [Shape::from([entries, 2]), Shape::from([entries]), Shape::from([rows.0])];
        let default = context.input(3)?;
        let mut outputs = context.all_outputs(&shapes)?;
        let mut outputs = outputs.iter_mut();
        let (Some(indices), Some(filled), Some(empty)) = (outputs.next(), outputs.next(), outputs.next()) else {
            return Ok(());
        };
        match places.element_type() {
            ElementType::I32 => write_places(&order, rows.0, indices.slice_mut::<i32>()?, |v| v as i32),
            _ => write_places(&order, rows.0, indices.slice_mut::<i64>()?, |v| v as i64),
        }
        empty.slice_mut::<u8>()?.fill(1);
        for entry in &order {
            empty.slice_mut::<u8>()?[entry.row] = 0;
        }
        dispatch_cell!(values.element_type(), C => {
            let (source, default, target) = (C::source(&values), C::source(&default), C::target(filled));
            let mut position = 0;
            walk(&order, rows.0, |_, entry| {
                target[position].clone_from(entry.map_or(&default[0], |entry| &source[entry.position]));
                position += 1;
            });
            Ok(())
        })
    }
}

/// An entry of the sparse matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
struct Entry {
    row: usize,
    column: usize,
    /// Which of the input's entries it is.
    position: usize,
}

fn build(_context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(SparseFillEmptyRows)
}

/// Checks that values, indices and the dense shape fit together, and gives the number of entries.
fn check_shapes(context: &InferContext<'_>) -> OpResult<Dim> {
    let dim = |port: usize, axis: usize| {
        if context.shape(port).rank().is_some() { context.shape(port).dim(axis) } else { Dim::DYNAMIC }
    };
    if !dim(1, 0).contains(2) {
        let message = format!("shape {} must be [2]: rows and columns", context.shape(1));
        return Err(OpError::shape(Blame::Input(1), message));
    }
    if !dim(2, 1).contains(2) {
        let message = format!("shape {} must be [M, 2]: a row and a column for each value", context.shape(2));
        return Err(OpError::shape(Blame::Input(2), message));
    }
    dim(0, 0).merge(dim(2, 0)).ok_or_else(|| {
        let message = format!("{} places are given for the {} values of input 0", dim(2, 0), dim(0, 0));
        OpError::shape(Blame::Input(2), message)
    })
}

/// The number of entries of the output, where indices and dense shape are known.
fn known_entries(context: &InferContext<'_>) -> OpResult<Option<Dim>> {
    let (Some(places), Some(dense)) = (context.constant(2), context.integers(1)) else { return Ok(None) };
    let rows = dense_rows(&dense)?;
    let order = entries_in_order(&Indices::new(places.view(), 2)?, rows)?;
    Ok(order.len().checked_add(empty_rows(&order, rows.0)).map(Dim::fixed))
}

/// Rows and columns of the dense matrix.
fn dense_rows(dense: &[i64]) -> OpResult<(usize, usize)> {
    let [rows, columns] = dense else {
        return Err(OpError::shape(Blame::Input(1), format!("{} sizes are given; there must be 2", dense.len())));
    };
    let size = |size: i64| usize::try_from(size).map_err(|_| negative(Value::known(size)));
    Ok((size(*rows)?, size(*columns)?))
}

/// The entries by row, column and position.
fn entries_in_order(places: &Indices<'_>, (rows, columns): (usize, usize)) -> OpResult<Vec<Entry>> {
    let mut entries = filled::<Entry>(places.len() / 2)?;
    for (position, entry) in entries.iter_mut().enumerate() {
        let coordinate = |axis: usize, size: usize| {
            let index = places.get(2 * position + axis);
            usize::try_from(index).ok().filter(|index| *index < size).ok_or_else(|| {
                let name = ["row", "column"][axis];
                let message = format!("{name} {index} of entry {position} is out of range of {size} {name}s");
                OpError::index(Blame::Input(2), message)
            })
        };
        *entry = Entry { row: coordinate(0, rows)?, column: coordinate(1, columns)?, position };
    }
    entries.sort_unstable();
    Ok(entries)
}

fn empty_rows(order: &[Entry], rows: usize) -> usize {
    let occupied = order.iter().enumerate().filter(|(i, entry)| *i == 0 || order[i - 1].row != entry.row).count();
    rows - occupied
}

/// Visits row by row the entries, or `None` for a row without any.
fn walk(order: &[Entry], rows: usize, mut visit: impl FnMut(usize, Option<Entry>)) {
    let mut rest = order.iter().peekable();
    for row in 0..rows {
        let before = rest.len();
        while let Some(entry) = rest.next_if(|entry| entry.row == row) {
            visit(row, Some(*entry));
        }
        if rest.len() == before {
            visit(row, None);
        }
    }
}

fn write_places<T>(order: &[Entry], rows: usize, target: &mut [T], convert: fn(usize) -> T) {
    let mut pairs = target.chunks_exact_mut(2);
    walk(order, rows, |row, entry| {
        if let Some(pair) = pairs.next() {
            (pair[0], pair[1]) = (convert(row), convert(entry.map_or(0, |entry| entry.column)));
        }
    });
}

fn negative(size: Value) -> OpError {
    OpError::value(Blame::Input(1), format!("the size {} must not be negative", size.max))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, booleans, tensor};
    use pretty_assertions::assert_eq;

    fn case() -> Case {
        Case::new("SparseFillEmptyRows", "opset16").outputs(3)
    }

    #[test]
    fn example_1_of_the_specification() {
        let inputs = [
            tensor(&[1f32, 2.0, 3.0, 4.0], [4]),
            tensor(&[5i64, 6], [2]),
            tensor(&[0i64, 1, 0, 3, 2, 0, 3, 1], [4, 2]),
            tensor(&[-1f32], []),
        ];
        let outputs = case().run(&inputs).unwrap();
        assert_eq!(outputs[0], tensor(&[0i64, 1, 0, 3, 1, 0, 2, 0, 3, 1, 4, 0], [6, 2]));
        assert_eq!(outputs[1], tensor(&[1f32, 2.0, -1.0, 3.0, 4.0, -1.0], [6]));
        assert_eq!(outputs[2], booleans(&[false, true, false, false, true], [5]));
    }

    #[test]
    fn entries_are_put_in_order() {
        let inputs = [
            tensor(&[1u8, 2, 3, 4], [4]),
            tensor(&[3i32, 5], [2]),
            tensor(&[2i32, 1, 0, 3, 0, 1, 2, 1], [4, 2]),
            tensor(&[9u8], [1]),
        ];
        let outputs = case().run(&inputs).unwrap();
        assert_eq!(outputs[0], tensor(&[0i32, 1, 0, 3, 1, 0, 2, 1, 2, 1], [5, 2]));
        assert_eq!(outputs[1], tensor(&[3u8, 2, 9, 1, 4], [5]));
        let none = [tensor::<f32>(&[], [0]), tensor(&[2i64, 3], [2]), tensor::<i64>(&[], [0, 2]), tensor(&[7f32], [])];
        let outputs = case().run(&none).unwrap();
        assert_eq!(outputs[0], tensor(&[0i64, 0, 1, 0], [2, 2]));
        assert_eq!(outputs[1], tensor(&[7f32, 7.0], [2]));
    }

    #[test]
    fn shapes_and_places_are_checked() {
        let outputs = case().infer(&["f32[?]", "i64[2]", "i64[3..9,2]", "f32[]"]);
        assert_eq!(outputs, ["i64[3..,2]", "f32[3..]", "boolean[?]"]);
        let outputs = case().infer(&["f32[4]", "i64[2]=5,6", "i64[4,2]", "f32[]"]);
        assert_eq!(outputs, ["i64[5..9,2]", "f32[5..9]", "boolean[5]"]);
        let fails = |inputs: [&str; 4], text: &str| {
            let error = case().infer_error(&inputs);
            assert!(error.contains(text), "{error}");
        };
        fails(["f32[4]", "i64[3]", "i64[4,2]", "f32[]"], "must be [2]");
        fails(["f32[4]", "i64[2]", "i64[4,3]", "f32[]"], "must be [M, 2]");
        fails(["f32[4]", "i64[2]", "i64[3,2]", "f32[]"], "3 places are given for the 4 values");
        fails(["f32[4]", "i64[2]", "i32[4,2]", "f32[]"], "differs");
        fails(["f32[4]", "i64[2]", "i64[4,2]", "f16[]"], "differs");
        fails(["f32[1]", "i64[2]=2,2", "i64[1,2]=2,0", "f32[]"], "row 2 of entry 0 is out of range of 2 rows");
        fails(["f32[1]", "i64[2]=2,2", "i64[1,2]=1,-1", "f32[]"], "column -1 of entry 0 is out of range");
        fails(["f32[1]", "i64[2]=-2,2", "i64[1,2]", "f32[]"], "the size -2 must not be negative");
        case().assert_monotone(&["f32[2]", "i64[2]=3,3", "i64[2,2]=1,0,2,1", "f32[]"]);
    }
}
