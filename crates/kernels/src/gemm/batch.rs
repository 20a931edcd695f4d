//! Batches of products whose right operands were packed before.

use super::{MatMulGeometry, PackedB, flops, from, gemm_packed_b, gemm_packed_b_scratch_len, product_nanoseconds};
use crate::epilogue::{Epilogue, Residual};
use crate::error::{KernelError, check_len, span};
use crate::isa::Isa;
use crate::parallel::{SharedMut, nanoseconds_for_bytes, nanoseconds_for_flops, try_parallel_for};

/// What computing one product takes, in nanoseconds of one core, from which on threads share each of them instead of taking
/// one each.
const SHARED_NANOSECONDS: u64 = 200_000;

/// What computing one product takes, without its epilogue.
fn computing_nanoseconds(geometry: &MatMulGeometry) -> u64 {
    nanoseconds_for_flops(flops(1, geometry.m, geometry.k, geometry.n))
}

fn is_shared(geometry: &MatMulGeometry) -> bool {
    computing_nanoseconds(geometry) >= SHARED_NANOSECONDS
}

/// Elements of scratch that [`matmul_packed_b`] needs.
#[must_use]
pub fn matmul_packed_b_scratch_len(isa: Isa, geometry: &MatMulGeometry) -> usize {
    let one = gemm_packed_b_scratch_len(isa, geometry.m, geometry.k, geometry.a_row);
    let products = geometry.batch.iter().fold(1usize, |total, &size| total.saturating_mul(size));
    if is_shared(geometry) { one } else { one.saturating_mul(products) }
}

/// A batch of products with packed right operands, `C[i] = epilogue(A[i] * B[j])`: strides of the right operand along the batch
/// axes count matrices of `b`. The columns of A are contiguous, and so are the rows of C. The epilogue's bias applies to every
/// product; a residual is laid out as `c`.
///
/// # Errors
/// A slice is shorter than the geometry needs, parts of the result overlap, rows or columns do not lie so, or a right operand
/// has other sizes or was packed for another tier.
pub fn matmul_packed_b(
    isa: Isa,
    geometry: &MatMulGeometry,
    a: &[f32],
    b: &[PackedB],
    c: &mut [f32],
    epilogue: &Epilogue<'_>,
    scratch: &mut [f32],
) -> Result<(), KernelError> {
    let MatMulGeometry { batch, m, n, k, .. } = *geometry;
    let products = geometry.check(a.len(), usize::MAX, c.len())?;
    let along: [(usize, usize); 4] = std::array::from_fn(|axis| (batch[axis], geometry.b_batch[axis]));
    check_len("b", b.len(), span("b", &along)?)?;
    if b.iter().any(|b| (b.k(), b.n()) != (k, n)) {
        return Err(KernelError::invalid("b", "has other sizes than the geometry"));
    }
    if geometry.a_column != 1 || geometry.c_row != n {
        return Err(KernelError::invalid("geometry", "columns of A or rows of C are not contiguous"));
    }
    Epilogue { residual: None, ..*epilogue }.check(m, n)?;
    if let Some(residual) = epilogue.residual {
        check_len("residual", residual.values.len(), c.len())?;
    }
    check_len("scratch", scratch.len(), matmul_packed_b_scratch_len(isa, geometry))?;
    if products == 0 || m == 0 || n == 0 {
        return Ok(());
    }
    let (c, scratch_len) = (SharedMut::new(c), gemm_packed_b_scratch_len(isa, m, k, geometry.a_row));
    let run = |index: usize, scratch: &mut [f32]| {
        let at = geometry.offset(&geometry.c_batch, index);
        let values = epilogue.residual.map(|residual| &residual.values[at..at + m * n]);
        let epilogue = Epilogue { residual: values.map(|values| Residual { values, row_stride: n }), ..*epilogue };
        // SAFETY: `check` found that products lie in the result and do not overlap; rows of each are contiguous.
        let target = unsafe { c.slice(at..at + m * n) };
        let left = from(a, geometry.offset(&geometry.a_batch, index));
        let right = &b[geometry.offset(&geometry.b_batch, index)];
        gemm_packed_b(isa, m, left, geometry.a_row, right, target, n, &epilogue, scratch)
    };
    if is_shared(geometry) {
        return (0..products).try_for_each(|index| run(index, scratch));
    }
    let scratch = SharedMut::new(scratch);
    // With few rows, reading the right operands takes longer than computing.
    let read = nanoseconds_for_bytes(k.saturating_mul(n).saturating_mul(4));
    let work = product_nanoseconds(1, [m, k, n], epilogue).max(read).saturating_mul(products as u64);
    try_parallel_for(products, 1, work, |mut range| {
        range.try_for_each(|index| {
            // SAFETY: each product has a part of its own, all of which lie in the scratch memory, as was checked.
            run(index, unsafe { scratch.slice(index * scratch_len..(index + 1) * scratch_len) })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epilogue::{Activation, Channelwise};
    use crate::gemm::MatMulGeometry;
    use crate::testing::{Random, assert_close, in_pool};
    use crate::unary::UnaryOp;

    /// Products `[batch, m, k]` with `experts` matrices in turns.
    fn check(batch: usize, experts: usize, m: usize, k: usize, n: usize) {
        let mut random = Random::new((batch * 31 + m * 7 + k) as u64);
        let (a, b) = (random.values(batch * m * k), random.values(experts * k * n));
        let (bias, residual) = (random.values(n), random.values(batch * m * n));
        let mut expected = vec![0.0f64; batch * m * n];
        for (place, value) in expected.iter_mut().enumerate() {
            let (product, row, column) = (place / (m * n), place / n % m, place % n);
            let matrix = &b[product % experts * k * n..][..k * n];
            let dot = |i: usize| f64::from(a[(product * m + row) * k + i]) * f64::from(matrix[i * n + column]);
            let sum: f64 = (0..k).map(dot).sum();
            *value = (sum + f64::from(bias[column]) + f64::from(residual[place])).max(0.0);
        }
        let geometry = MatMulGeometry {
            batch: [1, 1, batch / experts, experts],
            a_batch: [0, 0, experts * m * k, m * k],
            b_batch: [0, 0, 0, 1],
            c_batch: [0, 0, experts * m * n, m * n],
            ..MatMulGeometry::dense(1, m, k, n, false, false, true, true)
        };
        for isa in Isa::available() {
            let packed: Vec<PackedB> =
                b.chunks_exact(k * n).map(|b| PackedB::pack(isa, k, n, b, n, 1).unwrap()).collect();
            let epilogue = Epilogue {
                bias: Channelwise::PerColumn(&bias),
                residual: Some(Residual { values: &residual, row_stride: n }),
                activation: Activation::Unary(UnaryOp::Relu),
            };
            let run = || {
                let mut c = vec![f32::NAN; batch * m * n];
                let mut scratch = vec![f32::NAN; matmul_packed_b_scratch_len(isa, &geometry)];
                matmul_packed_b(isa, &geometry, &a, &packed, &mut c, &epilogue, &mut scratch).unwrap();
                c
            };
            let result = run();
            assert_close(&result, &expected, 4 * k, "c");
            let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            assert_eq!(bits(&in_pool(3, run)), bits(&result), "bits of three threads");
        }
    }

    #[test]
    fn products_with_matrices_in_turns() {
        check(6, 3, 1, 20, 33);
        check(4, 4, 3, 64, 48);
        check(8, 2, 17, 40, 70);
        check(4, 2, 130, 300, 300);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let isa = Isa::portable();
        let packed = [PackedB::pack(isa, 2, 3, &[0.0; 6], 3, 1).unwrap()];
        let good = MatMulGeometry { b_batch: [0; 4], ..MatMulGeometry::dense(2, 1, 2, 3, false, false, true, true) };
        let run = |geometry: &MatMulGeometry, a: usize, c: usize| {
            let mut scratch = vec![0.0; matmul_packed_b_scratch_len(isa, geometry)];
            let (a, mut c) = (vec![0.0; a], vec![0.0; c]);
            matmul_packed_b(isa, geometry, &a, &packed, &mut c, &Epilogue::default(), &mut scratch)
                .map_err(|error| error.argument)
        };
        assert_eq!(run(&good, 4, 6), Ok(()));
        assert_eq!(run(&good, 3, 6), Err("a"));
        assert_eq!(run(&good, 4, 5), Err("c"));
        assert_eq!(run(&MatMulGeometry { b_batch: [0, 0, 0, 1], ..good }, 4, 6), Err("b"));
        assert_eq!(run(&MatMulGeometry { n: 2, c_row: 2, c_batch: [0, 0, 0, 2], ..good }, 4, 6), Err("b"));
        assert_eq!(run(&MatMulGeometry { a_column: 2, ..good }, 8, 6), Err("geometry"));
    }
}
