//! # MatMul
//! Matrix products of the last two dimensions, over batches that are broadcast.
//!
//! Specification: `matrix/matmul-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | A | any numeric type | [..., M, K], or [..., K, M] with `transpose_a`; `[K]` |
//! | in 1 | B | that of `A` | [..., K, N], or [..., N, K] with `transpose_b`; `[K]` |
//! | out 0 | | that of `A` | [..., M, N]; without M or N where an input is one-dimensional |
//!
//! Transposition does not concern one-dimensional inputs. Integers wrap.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, PartialShape, Shape, SmallVec, dispatch};

use crate::common::broadcast::{broadcast_shapes, broadcast_strides, for_each_offset};
use crate::common::elementwise::unsupported;
use crate::common::number::Number;
use crate::{
    Blame, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion, Operation,
};

/// The number of columns whose sums are kept at once.
const COLUMNS: usize = 64;

/// The definition of MatMul.
pub static MATMUL: OpDef = OpDef {
    type_name: "MatMul",
    category: Category::Matrix,
    versions: &[OpVersion::new(1, (1, 16), (2, 2), (1, 1))],
    attributes: MatMulAttributes::DEFINITIONS,
    build,
};

crate::attributes! {
    /// Attributes of MatMul.
    pub struct MatMulAttributes {
        /// Whether the last two dimensions of the first input are swapped.
        transpose_a: bool = "transpose_a", default "false";
        /// Whether the last two dimensions of the second input are swapped.
        transpose_b: bool = "transpose_b", default "false";
    }
}

/// A MatMul layer.
#[derive(Debug)]
pub struct MatMul {
    /// The attributes.
    pub attributes: MatMulAttributes,
}

impl Operation for MatMul {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Numeric)?;
        let element_type = context.require_same_type(&[0, 1])?;
        context.require_rank(0, 1..=usize::MAX)?;
        context.require_rank(1, 1..=usize::MAX)?;
        let (a, b) = (context.shape(0), context.shape(1));
        let shape = match (a.dims(), b.dims()) {
            (Some(x), Some(y)) => self.infer_shape(x, y)?,
            _ => PartialShape::DYNAMIC,
        };
        context.set_output(0, element_type, shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let (a, b) = (context.input(0)?, context.input(1)?);
        let geometry = self.geometry(a.shape(), b.shape())?;
        let element_type = a.element_type();
        let mut output = context.output(0, &geometry.shape)?;
        dispatch!(element_type, T in [numeric] => {
            multiply(&geometry, a.slice::<T>()?, b.slice::<T>()?, output.slice_mut::<T>()?);
            Ok(())
        } else { Err(unsupported(element_type)) })
    }

    fn attributes(&self) -> Vec<(&'static str, String)> {
        self.attributes.print(1)
    }
}

/// The products to compute.
#[derive(Debug)]
struct Geometry {
    /// The shape of the output.
    shape: Shape,
    /// The batch dimensions, and the strides between the matrices of both inputs.
    batch: Shape,
    batch_strides: [SmallVec<[usize; 8]>; 2],
    rows: usize,
    columns: usize,
    depth: usize,
    /// The strides of A along its rows and its depth, and of B along its depth and its columns.
    a_strides: (usize, usize),
    b_strides: (usize, usize),
}

impl MatMul {
    fn infer_shape(&self, a: &[Dim], b: &[Dim]) -> OpResult<PartialShape> {
        let (a_batch, rows, a_depth) = split(a, self.attributes.transpose_a);
        let (b_batch, columns, b_depth) = split(b, !self.attributes.transpose_b);
        if !a_depth.compatible(b_depth) {
            let message = format!(
                "shape {} has {b_depth} rows to multiply with the {a_depth} columns of shape {} of input 0",
                PartialShape::from_dims(b.iter().copied()),
                PartialShape::from_dims(a.iter().copied())
            );
            return Err(OpError::shape(Blame::Input(1), message).help(self.describe()));
        }
        let (a_batch, b_batch) =
            (PartialShape::from_dims(a_batch.iter().copied()), PartialShape::from_dims(b_batch.iter().copied()));
        let mut shape = a_batch.broadcast(&b_batch).map_err(|_| {
            let message = format!("batch dimensions {b_batch} cannot be broadcast with {a_batch} of input 0");
            OpError::shape(Blame::Input(1), message)
        })?;
        if let Some(dims) = shape.dims_mut() {
            dims.extend(rows);
            dims.extend(columns);
        }
        Ok(shape)
    }

    fn geometry(&self, a: &Shape, b: &Shape) -> OpResult<Geometry> {
        let fixed = |shape: &Shape| shape.iter().map(|s| Dim::fixed(*s)).collect::<SmallVec<[Dim; 8]>>();
        let (x, y) = (fixed(a), fixed(b));
        if x.is_empty() || y.is_empty() {
            return Err(OpError::shape(Blame::Node, "a scalar is no matrix"));
        }
        let shape = self.infer_shape(&x, &y)?.to_shape().unwrap_or_default();
        let (a_matrix, b_matrix) = (a.rank().min(2), b.rank().min(2));
        let (a_batch, b_batch) = (&a[..a.rank() - a_matrix], &b[..b.rank() - b_matrix]);
        let batch = broadcast_shapes(a_batch, b_batch).unwrap_or_default();
        let scaled = |shape: &[usize], matrix: &[usize]| {
            let size: usize = matrix.iter().product();
            broadcast_strides(shape, &batch).iter().map(|s| s * size).collect::<SmallVec<[usize; 8]>>()
        };
        let batch_strides = [scaled(a_batch, &a[a_batch.len()..]), scaled(b_batch, &b[b_batch.len()..])];
        let (rows, depth, a_strides) = match (&a[a_batch.len()..], self.attributes.transpose_a) {
            ([rows, depth], false) => (*rows, *depth, (*depth, 1)),
            ([depth, rows], true) => (*rows, *depth, (1, *rows)),
            (vector, _) => (1, vector[0], (0, 1)),
        };
        let (columns, b_strides) = match (&b[b_batch.len()..], self.attributes.transpose_b) {
            ([_, columns], false) => (*columns, (*columns, 1)),
            ([columns, depth], true) => (*columns, (1, *depth)),
            _ => (1, (1, 0)),
        };
        Ok(Geometry { shape, batch, batch_strides, rows, columns, depth, a_strides, b_strides })
    }

    fn describe(&self) -> String {
        let MatMulAttributes { transpose_a, transpose_b } = self.attributes;
        format!("`transpose_a` is {transpose_a} and `transpose_b` is {transpose_b}")
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(MatMul { attributes: MatMulAttributes::read(context.attributes) })
}

/// The batch dimensions, the dimension that remains (none for a vector), and the one that is summed over.
/// `depth_first` says that the depth is the first dimension of the matrix.
fn split(dims: &[Dim], depth_first: bool) -> (&[Dim], Option<Dim>, Dim) {
    match dims {
        [batch @ .., first, second] if depth_first => (batch, Some(*second), *first),
        [batch @ .., first, second] => (batch, Some(*first), *second),
        [only] => (&[], None, *only),
        [] => (&[], None, Dim::DYNAMIC),
    }
}

/// Sums in f64 (integers modulo 2^64), rounded once.
fn multiply<T: Number>(geometry: &Geometry, a: &[T], b: &[T], target: &mut [T]) {
    let Geometry { rows, columns, depth, a_strides, b_strides, .. } = *geometry;
    let mut matrices = 0;
    for_each_offset(&geometry.batch, [&geometry.batch_strides[0], &geometry.batch_strides[1]], |[a_start, b_start]| {
        for row in 0..rows {
            for first in (0..columns).step_by(COLUMNS) {
                let count = COLUMNS.min(columns - first);
                let start = (matrices * rows + row) * columns + first;
                let out = &mut target[start..start + count];
                let a_row = a_start + row * a_strides.0;
                let b_column = b_start + first * b_strides.1;
                if T::IS_FLOAT {
                    let mut sums = [0f64; COLUMNS];
                    for k in 0..depth {
                        let x = a[a_row + k * a_strides.1].to_f64();
                        let b_row = b_column + k * b_strides.0;
                        if b_strides.1 == 1 {
                            sums.iter_mut().zip(&b[b_row..b_row + count]).for_each(|(s, y)| *s += x * y.to_f64());
                            continue;
                        }
                        for (j, sum) in sums[..count].iter_mut().enumerate() {
                            *sum += x * b[b_row + j * b_strides.1].to_f64();
                        }
                    }
                    out.iter_mut().zip(sums).for_each(|(t, s)| *t = T::from_f64(s));
                } else {
                    let mut sums = [0i64; COLUMNS];
                    for k in 0..depth {
                        let x = a[a_row + k * a_strides.1].to_i128() as i64;
                        let b_row = b_column + k * b_strides.0;
                        let add = |sum: &mut i64, y: T| *sum = sum.wrapping_add(x.wrapping_mul(y.to_i128() as i64));
                        if b_strides.1 == 1 {
                            sums.iter_mut().zip(&b[b_row..b_row + count]).for_each(|(sum, y)| add(sum, *y));
                            continue;
                        }
                        for (j, sum) in sums[..count].iter_mut().enumerate() {
                            add(sum, b[b_row + j * b_strides.1]);
                        }
                    }
                    out.iter_mut().zip(sums).for_each(|(t, s)| *t = T::from_i128(s.into()));
                }
            }
        }
        matrices += 1;
    });
}

#[cfg(test)]
mod tests {
    use crate::testing::{Case, tensor};
    use pretty_assertions::assert_eq;

    fn case(a: &str, b: &str) -> Case {
        Case::new("MatMul", "opset1").attribute("transpose_a", a).attribute("transpose_b", b)
    }

    #[test]
    fn examples_of_the_specification() {
        let plain = case("false", "false");
        assert_eq!(plain.infer(&["f32[1024]", "f32[1024,1000]"]), ["f32[1000]"]);
        assert_eq!(plain.infer(&["f32[1000,1024]", "f32[1024]"]), ["f32[1000]"]);
        assert_eq!(plain.infer(&["f32[1,1024]", "f32[1024,1000]"]), ["f32[1,1000]"]);
        assert_eq!(case("false", "true").infer(&["f32[1024]", "f32[1000,1024]"]), ["f32[1000]"]);
        assert_eq!(plain.infer(&["f32[10,1024]", "f32[1024,1000]"]), ["f32[10,1000]"]);
        assert_eq!(plain.infer(&["f32[5,10,1024]", "f32[1024,1000]"]), ["f32[5,10,1000]"]);
        assert_eq!(plain.infer(&["f32[7]", "f32[7]"]), ["f32[]"]);
    }

    #[test]
    fn shapes_may_be_unknown() {
        let plain = case("false", "false");
        assert_eq!(plain.infer(&["f32[?,10,?]", "f32[1..4,5,1000]"]), ["f32[?,10,1000]"]);
        assert_eq!(plain.infer(&["f32[...]", "f32[5,1000]"]), ["f32[...]"]);
        assert_eq!(
            plain.infer_error(&["f32[2,3]", "f32[4,5]"]),
            "input 1: shape [4,5] has 4 rows to multiply with the 3 columns of shape [2,3] of input 0"
        );
        assert!(plain.infer_error(&["f32[2,4,3]", "f32[3,3,5]"]).contains("batch dimensions [3] cannot be broadcast"));
        assert!(plain.infer_error(&["f32[]", "f32[3]"]).contains("rank 0"));
    }

    #[test]
    fn all_transpositions_agree() {
        let a = tensor(&[1f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]);
        let a_transposed = tensor(&[1f32, 4.0, 2.0, 5.0, 3.0, 6.0], [3, 2]);
        let b = tensor(&[1f32, 0.0, 2.0, 1.0, 0.0, 3.0], [3, 2]);
        let b_transposed = tensor(&[1f32, 2.0, 0.0, 0.0, 1.0, 3.0], [2, 3]);
        let expected = tensor(&[5f32, 11.0, 14.0, 23.0], [2, 2]);
        assert_eq!(case("false", "false").run(&[a.clone(), b.clone()]).unwrap()[0], expected);
        assert_eq!(case("true", "false").run(&[a_transposed.clone(), b]).unwrap()[0], expected);
        assert_eq!(case("false", "true").run(&[a, b_transposed.clone()]).unwrap()[0], expected);
        assert_eq!(case("true", "true").run(&[a_transposed, b_transposed]).unwrap()[0], expected);
    }

    #[test]
    fn vectors_and_batches() {
        let vector = tensor(&[1i64, 2], [2]);
        let matrices = tensor(&[1i64, 0, 0, 1, 2, 0, 0, 2], [2, 2, 2]);
        assert_eq!(case("true", "true").run(&[vector.clone(), vector.clone()]).unwrap()[0], tensor(&[5i64], []));
        let output = case("true", "false").run(&[vector.clone(), matrices.clone()]).unwrap();
        assert_eq!(output[0], tensor(&[1i64, 2, 2, 4], [2, 2]));
        let output = case("false", "true").run(&[matrices.clone(), vector]).unwrap();
        assert_eq!(output[0], tensor(&[1i64, 2, 2, 4], [2, 2]));
        let output = case("false", "false").run(&[matrices, tensor(&[1i64, 1, 1, 1], [1, 2, 2])]).unwrap();
        assert_eq!(output[0], tensor(&[1i64, 1, 1, 1, 2, 2, 2, 2], [2, 2, 2]));
    }

    #[test]
    fn an_empty_depth_sums_to_zero() {
        let output = case("false", "false").run(&[tensor::<f32>(&[], [2, 0]), tensor::<f32>(&[], [0, 3])]).unwrap();
        assert_eq!(output[0], tensor(&[0f32; 6], [2, 3]));
    }

    #[test]
    fn inference_is_monotone() {
        case("false", "false").assert_monotone(&["f32[5,10,4]", "f32[4,7]"]);
        case("true", "true").assert_monotone(&["f32[2,1,4,3]", "f32[5,7,4]"]);
        case("false", "true").assert_monotone(&["f32[4]", "f32[7,4]"]);
        case("false", "false").assert_monotone(&["f32[2,1,4]", "f32[4]"]);
    }
}
