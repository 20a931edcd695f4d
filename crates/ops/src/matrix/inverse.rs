//! # Inverse
//! The inverse of square matrices, or its transpose.
//!
//! Specification: `matrix/inverse-14`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | input | any floating-point type | `[..., N, N]` |
//! | out 0 | | that of `input` | that of `input` |
//!
//! LU decomposition with partial pivoting, in f64, rounded once. A matrix without an inverse gives infinities or NaN, as in OpenVINO.

use std::sync::Arc;

use ovir_tensor::{ElementClass, ElementType};

use crate::common::memory::{filled, widened_view, write_rounded};
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The definition of Inverse.
pub static INVERSE: OpDef = OpDef {
    type_name: "Inverse",
    category: Category::Matrix,
    versions: &[OpVersion::new(14, (14, 16), (1, 1), (1, 1))],
    attributes: InverseAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of Inverse.
    pub struct InverseAttributes {
        /// Whether the output is the transpose of the inverse.
        adjoint: bool = "adjoint", default "false";
    }
}

/// An Inverse layer.
#[derive(Debug)]
pub struct Inverse {
    /// The attributes.
    pub attributes: InverseAttributes,
}

impl Operation for Inverse {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Float)?;
        context.require_rank(0, 2..=usize::MAX)?;
        let mut shape = context.shape(0).clone();
        if let Some([.., rows, columns]) = shape.dims_mut().map(|dims| dims.as_mut_slice()) {
            let Some(size) = rows.merge(*columns) else {
                let message = format!(
                    "the matrices of shape {} have {rows} rows and {columns} columns; they must be square",
                    context.shape(0)
                );
                return Err(OpError::shape(Blame::Input(0), message));
            };
            (*rows, *columns) = (size, size);
        }
        let element_type: ElementType = context.element_type(0);
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let input = context.input(0)?;
        let size = input.shape().last().copied().unwrap_or(0);
        let mut values = widened_view(input)?;
        let (mut matrix, mut inverse) = (filled::<f64>(size * size)?, filled::<f64>(size * size)?);
        for values in values.chunks_exact_mut((size * size).max(1)) {
            matrix.copy_from_slice(values);
            invert(&mut matrix, &mut inverse, size);
            for (position, value) in values.iter_mut().enumerate() {
                let (row, column) = (position / size, position % size);
                *value = inverse[if self.attributes.adjoint { column * size + row } else { position }];
            }
        }
        write_rounded(context.output(0, input.shape())?, &values)
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(14)
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Inverse { attributes: InverseAttributes::read(context.attributes) })
}

/// Eliminates with the rows of `matrix`, whose place the decomposition takes, doing the same to the unit matrix.
fn invert(matrix: &mut [f64], inverse: &mut [f64], size: usize) {
    for (position, value) in inverse.iter_mut().enumerate() {
        *value = f64::from(u8::from(position / size == position % size));
    }
    for column in 0..size {
        let pivot = pivot_row(matrix, size, column);
        swap_rows(matrix, size, column, pivot);
        swap_rows(inverse, size, column, pivot);
        for row in column + 1..size {
            let factor = matrix[row * size + column] / matrix[column * size + column];
            subtract_row(matrix, size, row, column, factor);
            subtract_row(inverse, size, row, column, factor);
        }
    }
    for column in (0..size).rev() {
        let divisor = matrix[column * size + column];
        inverse[column * size..][..size].iter_mut().for_each(|value| *value /= divisor);
        for row in 0..column {
            subtract_row(inverse, size, row, column, matrix[row * size + column]);
        }
    }
}

/// The row from `column` on that has the element of the largest magnitude in `column`.
fn pivot_row(matrix: &[f64], size: usize, column: usize) -> usize {
    let magnitude = |row: usize| matrix[row * size + column].abs();
    (column + 1..size).fold(column, |best, row| if magnitude(row) > magnitude(best) { row } else { best })
}

fn swap_rows(matrix: &mut [f64], size: usize, a: usize, b: usize) {
    if a != b {
        let (upper, lower) = matrix.split_at_mut(b * size);
        upper[a * size..][..size].swap_with_slice(&mut lower[..size]);
    }
}

/// Subtracts `factor` times the row `other` from `row`.
fn subtract_row(matrix: &mut [f64], size: usize, row: usize, other: usize, factor: f64) {
    for k in 0..size {
        matrix[row * size + k] -= factor * matrix[other * size + k];
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use ovir_tensor::f16;
    use pretty_assertions::assert_eq;

    fn case(adjoint: &str) -> Case {
        Case::new("Inverse", "opset14").attribute("adjoint", adjoint)
    }

    #[test]
    fn matrices_are_inverted_and_transposed() {
        let data = [tensor(&[0f32, 2.0, 4.0, 0.0, 1.0, 2.0, 3.0, 4.0], [2, 2, 2])];
        let output = case("false").run(&data).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 0.25, 0.5, 0.0, -2.0, 1.0, 1.5, -0.5], [2, 2, 2]));
        let output = case("true").run(&data).unwrap();
        assert_eq!(output[0], tensor(&[0f32, 0.5, 0.25, 0.0, -2.0, 1.5, 1.0, -0.5], [2, 2, 2]));
        let halves = [2.0, 1.0, 1.0, 1.0].map(f16::from_f32);
        let output = case("false").run(&[tensor(&halves, [2, 2])]).unwrap();
        assert_eq!(output[0], tensor(&[1.0, -1.0, -1.0, 2.0].map(f16::from_f32), [2, 2]));
    }

    #[test]
    fn a_singular_matrix_has_no_finite_inverse() {
        let output = case("false").run(&[tensor(&[1f32, 2.0, 2.0, 4.0], [2, 2])]).unwrap();
        assert!(output[0].slice::<f32>().unwrap().iter().all(|v| !v.is_finite()));
    }

    #[test]
    fn a_matrix_times_its_inverse_is_the_unit_matrix() {
        const SIZE: usize = 9;
        let entry = |i: usize| ((i * i * 31 + 7 * i) % 101) as f64 / 50.0 - 1.0;
        let unit = |i: usize| f64::from(u8::from(i / SIZE == i % SIZE));
        let matrix: Vec<f64> = (0..SIZE * SIZE).map(|i| entry(i) + 5.0 * unit(i)).collect();
        let output = case("false").run(&[tensor(&matrix, [SIZE, SIZE])]).unwrap();
        let inverse = output[0].slice::<f64>().unwrap();
        for row in 0..SIZE {
            for column in 0..SIZE {
                let sum: f64 = (0..SIZE).map(|k| matrix[row * SIZE + k] * inverse[k * SIZE + column]).sum();
                assert!((sum - f64::from(u8::from(row == column))).abs() < 1e-12, "{row} {column} {sum}");
            }
        }
    }

    #[test]
    fn shapes_are_checked() {
        assert_eq!(case("false").infer(&["f32[?,3,1..4]"]), ["f32[?,3,3]"]);
        assert_eq!(case("false").infer(&["bf16[0,2,2]"]), ["bf16[0,2,2]"]);
        assert!(case("false").infer_error(&["f32[2,3]"]).contains("2 rows and 3 columns; they must be square"));
        assert!(case("false").infer_error(&["f32[3]"]).contains("rank 1"));
        assert!(case("false").infer_error(&["i32[3,3]"]).contains("floating-point"));
        assert_eq!(case("false").run(&[tensor::<f32>(&[], [2, 0, 0])]).unwrap()[0].elements(), 0);
        case("true").assert_monotone(&["f32[2,3,3]"]);
    }
}
