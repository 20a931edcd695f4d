use super::*;
use crate::epilogue::{Activation, Residual};
use crate::testing::{Random, assert_close, in_pool};
use crate::unary::UnaryOp;
use half::{bf16, f16};
use pretty_assertions::assert_eq;
use proptest::prelude::*;

fn reference(
    m: usize,
    k: usize,
    n: usize,
    a: impl Fn(usize, usize) -> f32,
    b: impl Fn(usize, usize) -> f32,
) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for row in 0..m {
        for column in 0..n {
            c[row * n + column] = (0..k).map(|step| f64::from(a(row, step)) * f64::from(b(step, column))).sum();
        }
    }
    c
}

fn packed_case(isa: Isa, m: usize, k: usize, n: usize, extra: usize, transposed: bool, seed: u64) {
    let mut random = Random::new(seed);
    let a_row = k + extra;
    let a = random.values(if m == 0 { 0 } else { (m - 1) * a_row + k });
    let b = random.values(k * n);
    let strides = if transposed { (1, k) } else { (n, 1) };
    let packed = PackedB::pack(isa, k, n, &b, strides.0, strides.1).unwrap();
    let mut c = vec![f32::NAN; m * n];
    let mut scratch = vec![f32::NAN; gemm_packed_b_scratch_len(isa, m, k, a_row)];
    gemm_packed_b(isa, m, &a, a_row, &packed, &mut c, n, &Epilogue::default(), &mut scratch).unwrap();
    let expected = reference(m, k, n, |r, s| a[r * a_row + s], |s, c| b[s * strides.0 + c * strides.1]);
    assert_close(&c, &expected, k, &format!("{isa} {m}x{k}x{n}"));
}

#[test]
fn one_row_and_few_columns() {
    let mut random = Random::new(3);
    for isa in Isa::available() {
        for n in 1..=2 * panel_width(isa) {
            for k in [0, 1, 2, 3, 4, 5, 7, 8, 16, 19] {
                packed_case(isa, 1, k, n, 0, true, 5);
                let (a, b, bias) = (random.values(k), random.values(k * n), random.values(n));
                let packed = PackedB::pack(isa, k, n, &b, n, 1).unwrap();
                let activation = Activation::Unary(UnaryOp::Clamp { min: -0.25, max: 0.5 });
                let epilogue = Epilogue { bias: Channelwise::PerColumn(&bias), residual: None, activation };
                let mut c = vec![f32::NAN; n + 1];
                gemm_packed_b(isa, 1, &a, k, &packed, &mut c, n, &epilogue, &mut []).unwrap();
                assert!(c[n].is_nan(), "what lies behind the row is left alone");
                let mut expected = reference(1, k, n, |_, s| a[s], |s, c| b[s * n + c]);
                for (value, bias) in expected.iter_mut().zip(&bias) {
                    *value = (*value + f64::from(*bias)).clamp(-0.25, 0.5);
                }
                assert_close(&c[..n], &expected, k, &format!("{isa} {k}x{n}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn packed_right_operand(m in 0usize..40, k in 0usize..70, n in 0usize..80, extra in 0usize..3, transposed: bool, seed: u64) {
        for isa in Isa::available() {
            packed_case(isa, m, k, n, extra, transposed, seed);
        }
    }

    #[test]
    fn strided_batches(
        batch in 1usize..4, m in prop_oneof![1usize..5, 0usize..30], k in 0usize..40,
        n in prop_oneof![Just(1usize), 0usize..50], transpose_a: bool, transpose_b: bool, a_repeats: bool,
        b_repeats: bool, seed: u64,
    ) {
        let geometry = MatMulGeometry::dense(batch, m, k, n, transpose_a, transpose_b, a_repeats, b_repeats);
        batches_of(&geometry, seed);
    }
}

/// Products of dense operands give those of the reference, for any number of threads.
fn batches_of(geometry: &MatMulGeometry, seed: u64) {
    let MatMulGeometry { m, k, n, .. } = *geometry;
    let batch: usize = geometry.batch.iter().product();
    let mut random = Random::new(seed);
    let mut values = |size: usize, strides: [usize; 4]| {
        let repeated = strides.iter().zip(geometry.batch).filter(|(stride, _)| **stride > 0);
        random.values(repeated.fold(size, |size, (_, batch)| size * batch))
    };
    let (a, b) = (values(m * k, geometry.a_batch), values(k * n, geometry.b_batch));
    for isa in Isa::available() {
        let run = || {
            let mut c = vec![f32::NAN; batch * m * n];
            let mut scratch = vec![f32::NAN; matmul_scratch_len(isa, geometry)];
            matmul(isa, geometry, &a, &b, &mut c, &Epilogue::default(), &mut scratch).unwrap();
            c
        };
        let c = run();
        for index in 0..batch {
            let [a_place, b_place] = [geometry.a_batch, geometry.b_batch].map(|batch| geometry.offset(&batch, index));
            let (a, b) = (&a[a_place..], &b[b_place..]);
            let expected = reference(
                m,
                k,
                n,
                |r, s| a[r * geometry.a_row + s * geometry.a_column],
                |s, c| b[s * geometry.b_row + c * geometry.b_column],
            );
            assert_close(&c[index * m * n..][..m * n], &expected, k, "batch");
        }
        assert!(run() == c && in_pool(2, run) == c, "{geometry:?}");
    }
}

#[test]
fn few_columns_along_the_shared_axis() {
    for (seed, (m, k, n)) in
        [(10, 196, 5), (5, 48, 12), (128, 50, 2), (129, 50, 3), (140, 160, 3), (9, 47, 6), (8, 1030, 7), (6, 64, 13)]
            .into_iter()
            .enumerate()
    {
        for (repeats, transpose_b) in [(false, true), (true, true), (false, false), (true, false)] {
            batches_of(&MatMulGeometry::dense(3, m, k, n, false, transpose_b, repeats, true), seed as u64);
            batches_of(&MatMulGeometry::dense(3, m, k, n, false, transpose_b, true, repeats), seed as u64);
        }
        // Operands that are broadcast along other axes of the batch.
        let (a, b, c) = (m * k, k * n, m * n);
        let crossed = MatMulGeometry {
            batch: [1, 2, 3, 2],
            a_batch: [0, 2 * a, 0, a],
            b_batch: [0, 0, 2 * b, b],
            c_batch: [0, 6 * c, 2 * c, c],
            ..MatMulGeometry::dense(1, m, k, n, false, false, false, false)
        };
        batches_of(&crossed, seed as u64);
    }
}

#[test]
fn turned_left_operands_and_few_columns() {
    for (seed, (m, k, n)) in
        [(32, 2, 2), (33, 7, 7), (140, 49, 7), (128, 8, 8), (300, 33, 20), (64, 1100, 32), (257, 40, 31), (66, 40, 33)]
            .into_iter()
            .enumerate()
    {
        for (transpose_b, repeats) in [(false, true), (true, true), (false, false)] {
            batches_of(&MatMulGeometry::dense(3, m, k, n, true, transpose_b, repeats, !repeats), seed as u64);
        }
    }
}

#[test]
fn deep_and_aliased_operands() {
    for isa in Isa::available() {
        packed_case(isa, 31, 2777, 70, 0, false, 1);
        packed_case(isa, 20, 1024, 33, 0, true, 2);
        packed_case(isa, 3, 2048, 65, 0, true, 3);
    }
}

#[test]
fn every_part_of_the_epilogue() {
    for m in [1, 3, 17] {
        every_part_of_the_epilogue_of(m, 1100, 45);
    }
}

fn every_part_of_the_epilogue_of(m: usize, k: usize, n: usize) {
    let mut random = Random::new(7);
    let (a, b, extra) = (random.values(m * k), random.values(k * n), random.values(m * n));
    let (rows, columns) = (random.values(m), random.values(n));
    let turned: Vec<f32> = (0..n * k).map(|place| b[place % k * n + place / k]).collect();
    let plain = reference(m, k, n, |r, s| a[r * k + s], |s, c| b[s * n + c]);
    let activations = [
        Activation::None,
        Activation::Unary(UnaryOp::Relu),
        Activation::Unary(UnaryOp::Clamp { min: -0.5, max: 2.0 }),
        Activation::Unary(UnaryOp::Tanh),
        Activation::PRelu(Channelwise::PerRow(&rows)),
        Activation::PRelu(Channelwise::PerColumn(&columns)),
    ];
    for isa in Isa::available() {
        let packed = PackedB::pack(isa, k, n, &b, n, 1).unwrap();
        for bias in [Channelwise::None, Channelwise::PerRow(&rows), Channelwise::PerColumn(&columns)] {
            for residual in [None, Some(Residual { values: &extra, row_stride: n })] {
                for activation in activations {
                    let epilogue = Epilogue { bias, residual, activation };
                    let mut c = vec![f32::NAN; m * n];
                    gemm_packed_b(isa, m, &a, k, &packed, &mut c, n, &epilogue, &mut []).unwrap();
                    let unpacked = [(false, &b), (true, &turned)].map(|(transposed, b)| {
                        let mut c = vec![f32::NAN; m * n];
                        let geometry = MatMulGeometry::dense(1, m, k, n, false, transposed, true, true);
                        matmul(isa, &geometry, &a, b, &mut c, &epilogue, &mut []).unwrap();
                        c
                    });
                    if m > MOST_ROWS {
                        assert_eq!(unpacked, [c.clone(), c.clone()]);
                    }
                    let expected: Vec<f64> = plain
                        .iter()
                        .enumerate()
                        .map(|(index, &sum)| {
                            let (row, column) = (index / n, index % n);
                            let sum =
                                sum + match bias {
                                    Channelwise::None => 0.0,
                                    Channelwise::PerRow(values) => f64::from(values[row]),
                                    Channelwise::PerColumn(values) => f64::from(values[column]),
                                } + residual.map_or(0.0, |residual| f64::from(residual.values[index]));
                            match activation {
                                Activation::Unary(UnaryOp::Relu) => sum.max(0.0),
                                Activation::Unary(UnaryOp::Clamp { .. }) => sum.clamp(-0.5, 2.0),
                                Activation::Unary(_) => sum.tanh(),
                                Activation::PRelu(Channelwise::PerRow(values)) if sum < 0.0 => {
                                    sum * f64::from(values[row])
                                }
                                Activation::PRelu(Channelwise::PerColumn(values)) if sum < 0.0 => {
                                    sum * f64::from(values[column])
                                }
                                _ => sum,
                            }
                        })
                        .collect();
                    for c in unpacked.iter().chain([&c]) {
                        assert_close(c, &expected, k, "epilogue");
                    }
                }
            }
        }
    }
}

#[test]
fn panels_that_are_read_where_they_lie_give_the_bits_of_packed_ones() {
    let mut random = Random::new(8);
    for (m, k, n) in
        [(5, 1100, 100), (5, 300, 64), (14, 1, 37), (23, 700, 100), (29, 1100, 96), (33, 2100, 70), (240, 40, 64)]
    {
        let (a, b) = (random.values(m * k), random.values(k * n));
        let turned: Vec<f32> = (0..n * k).map(|place| b[place % k * n + place / k]).collect();
        for (isa, transpose_a) in Isa::available().flat_map(|isa| [(isa, false), (isa, true)]) {
            let [plain, packed] = [(false, &b), (true, &turned)].map(|(transpose_b, b)| {
                let geometry = MatMulGeometry::dense(1, m, k, n, transpose_a, transpose_b, true, true);
                let mut c = vec![f32::NAN; m * n];
                let mut scratch = vec![f32::NAN; matmul_scratch_len(isa, &geometry)];
                matmul(isa, &geometry, &a, b, &mut c, &Epilogue::default(), &mut scratch).unwrap();
                c
            });
            assert!(plain == packed && !plain[0].is_nan(), "{isa:?} {m} {k} {n} {transpose_a}");
        }
    }
}

#[test]
fn narrow_sources_widen_exactly() {
    let values: Vec<f32> = (0..12).map(|i| i as f32 * 0.25 - 1.0).collect();
    let halves: Vec<f16> = values.iter().map(|&v| f16::from_f32(v)).collect();
    let brains: Vec<bf16> = values.iter().map(|&v| bf16::from_f32(v)).collect();
    let a = [1.0, -2.0, 0.5];
    for isa in Isa::available() {
        let run = |packed: PackedB| {
            let mut c = [0.0; 4];
            gemm_packed_b(isa, 1, &a, 3, &packed, &mut c, 4, &Epilogue::default(), &mut []).unwrap();
            c
        };
        let expected = run(PackedB::pack(isa, 3, 4, &values, 4, 1).unwrap());
        assert_eq!(run(PackedB::pack(isa, 3, 4, &halves, 4, 1).unwrap()), expected);
        assert_eq!(run(PackedB::pack(isa, 3, 4, &brains, 4, 1).unwrap()), expected);
    }
}

#[test]
fn not_a_number_and_infinity_pass_through() {
    for isa in Isa::available() {
        let packed = PackedB::pack(isa, 2, 1, &[1.0f32, 1.0], 1, 1).unwrap();
        let epilogue = Epilogue { activation: Activation::Unary(UnaryOp::Relu), ..Epilogue::default() };
        let mut c = [0.0; 3];
        let a = [f32::NAN, 1.0, f32::INFINITY, 1.0, f32::NEG_INFINITY, 1.0];
        gemm_packed_b(isa, 3, &a, 2, &packed, &mut c, 1, &epilogue, &mut []).unwrap();
        assert!(c[0].is_nan() && c[1] == f32::INFINITY && c[2] == 0.0);
    }
}

#[test]
fn the_same_bits_for_any_number_of_threads() {
    let (m, k, n) = (150, 520, 300);
    let mut random = Random::new(3);
    let (a, b) = (random.values(m * k), random.values(k * n));
    for isa in Isa::available() {
        let packed = PackedB::pack(isa, k, n, &b, n, 1).unwrap();
        let run = || {
            let mut c = vec![0.0; m * n];
            gemm_packed_b(isa, m, &a, k, &packed, &mut c, n, &Epilogue::default(), &mut []).unwrap();
            c
        };
        assert_eq!(run(), in_pool(3, run));
    }
}

#[test]
fn wrong_lengths_are_errors() {
    let isa = detect();
    let packed = PackedB::pack(isa, 3, 4, &[0.0f32; 12], 4, 1).unwrap();
    let epilogue = Epilogue::default();
    assert!(PackedB::pack(isa, 3, 4, &[0.0f32; 11], 4, 1).is_err());
    assert!(PackedB::pack(isa, usize::MAX, 4, &[0.0f32; 11], 4, 1).is_err());
    assert!(gemm_packed_b(isa, 2, &[0.0; 5], 3, &packed, &mut [0.0; 8], 4, &epilogue, &mut []).is_err());
    assert!(gemm_packed_b(isa, 2, &[0.0; 6], 3, &packed, &mut [0.0; 7], 4, &epilogue, &mut []).is_err());
    assert!(gemm_packed_b(isa, 2, &[0.0; 6], 3, &packed, &mut [0.0; 8], 3, &epilogue, &mut []).is_err());
    let bias = Epilogue { bias: Channelwise::PerColumn(&[0.0; 3]), ..epilogue };
    assert!(gemm_packed_b(isa, 2, &[0.0; 6], 3, &packed, &mut [0.0; 8], 4, &bias, &mut []).is_err());
    let overlapping = MatMulGeometry { c_batch: [0; 4], ..MatMulGeometry::dense(2, 2, 2, 2, false, false, true, true) };
    assert!(matmul(isa, &overlapping, &[0.0; 8], &[0.0; 8], &mut [0.0; 8], &epilogue, &mut []).is_err());
}

#[test]
fn double_precision() {
    let (a, b) = ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]);
    let mut c = [0.0; 4];
    gemm_f64(2, 2, 2, &a, (2, 1), &b, (2, 1), &mut c).unwrap();
    assert_eq!(c, [19.0, 22.0, 43.0, 50.0]);
}

fn detect() -> Isa {
    crate::isa::detect()
}

/// A stored matrix of random codes, and the values it stands for.
fn compressed_case(
    isa: Isa,
    m: usize,
    groups: usize,
    group: usize,
    n: usize,
    kind: usize,
    transposed: bool,
    seed: u64,
) {
    let k = groups * group;
    let mut random = Random::new(seed);
    let mut codes: Vec<u8> = random.values(2 * k * n + 2).iter().map(|value| (value * 1e4) as i32 as u8).collect();
    let table: [f32; 16] = std::array::from_fn(|index| index as f32 * 0.37 - 2.0);
    let scales: Vec<f32> = random.values(groups * n).iter().map(|value| value.abs() + 0.25).collect();
    let zeros: Vec<f32> = random.values(groups * n).iter().map(|value| (value * 9.0).round()).collect();
    if kind >= 5 {
        let values = random.values(k * n);
        for (place, value) in codes.chunks_exact_mut(2).zip(values) {
            let bits = if kind == 5 { f16::from_f32(value).to_bits() } else { bf16::from_f32(value).to_bits() };
            place.copy_from_slice(&bits.to_le_bytes());
        }
    }
    let nibble = |index: usize| (codes[index / 2] >> (index % 2 * 4)) & 15;
    let pair = |index: usize| u16::from_le_bytes([codes[2 * index], codes[2 * index + 1]]);
    let plain = |index: usize| match kind {
        0 => f32::from(nibble(index)),
        1 => f32::from((nibble(index) ^ 8) as i8 - 8),
        2 => table[nibble(index) as usize],
        3 => f32::from(codes[index]),
        4 => f32::from(codes[index] as i8),
        5 => f16::from_bits(pair(index)).to_f32(),
        _ => bf16::from_bits(pair(index)).to_f32(),
    };
    let stored = match kind {
        0 => Codes::U4(&codes),
        1 => Codes::I4(&codes),
        2 => Codes::Table(&codes, &table),
        3 => Codes::U8(&codes),
        4 => Codes::I8(&codes),
        5 => Codes::F16(&codes),
        _ => Codes::Bf16(&codes),
    };
    let (row_stride, column_stride) = if transposed { (1, k) } else { (n, 1) };
    let (has_scales, has_zeros) = (kind < 5 || seed.is_multiple_of(2), kind < 5 && seed.is_multiple_of(3));
    let matrix = CompressedMatrix {
        k,
        n,
        codes: stored,
        row_stride,
        column_stride,
        group,
        scales: has_scales.then_some(&scales),
        zeros: has_zeros.then_some(&zeros),
    };
    let packed = CompressedB::pack(isa, &matrix).unwrap();
    let value = |step: usize, column: usize| {
        let parameter = step / group * n + column;
        let zero = if has_zeros { zeros[parameter] } else { 0.0 };
        let scale = if has_scales { scales[parameter] } else { 1.0 };
        (plain(step * row_stride + column * column_stride) - zero) * scale
    };
    let a = random.values(m * k);
    let (bias, residual) = (random.values(n), random.values(m * n));
    let epilogue = Epilogue {
        bias: Channelwise::PerColumn(&bias),
        residual: Some(Residual { values: &residual, row_stride: n }),
        activation: Activation::Unary(if seed.is_multiple_of(5) { UnaryOp::Sigmoid } else { UnaryOp::Relu }),
    };
    let mut c = vec![f32::NAN; m * n];
    let mut scratch = vec![f32::NAN; gemm_packed_b_scratch_len(isa, m, k, k)];
    gemm_compressed_b(isa, m, &a, k, &packed, &mut c, n, &epilogue, &mut scratch).unwrap();
    let mut expected = reference(m, k, n, |r, s| a[r * k + s], value);
    for (index, sum) in expected.iter_mut().enumerate() {
        let total = *sum + f64::from(bias[index % n]) + f64::from(residual[index]);
        *sum = if seed.is_multiple_of(5) { 1.0 / (1.0 + (-total).exp()) } else { total.max(0.0) };
    }
    let largest = c.iter().fold(1.0f32, |most, value| most.max(value.abs()));
    for (index, (found, wanted)) in c.iter().zip(&expected).enumerate() {
        let difference = (f64::from(*found) - wanted).abs();
        assert!(difference <= 1e-4 * f64::from(largest), "{isa} kind {kind} {m}x{k}x{n} at {index}: {found} {wanted}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn compressed_right_operand(
        m in 0usize..12, groups in 1usize..5, group in 1usize..20, n in 1usize..80, kind in 0usize..7, transposed: bool, seed: u64,
    ) {
        for isa in Isa::available() {
            compressed_case(isa, m, groups, group, n, kind, transposed, seed);
        }
    }
}

#[test]
fn deep_compressed_operands() {
    for isa in Isa::available() {
        for kind in 0..7 {
            compressed_case(isa, 20, 9, 128, 40, kind, kind % 2 == 0, 6);
        }
    }
}

#[test]
fn a_compressed_operand_has_the_same_bits_for_any_number_of_threads() {
    let (m, k, n) = (3, 512, 2000);
    let mut random = Random::new(7);
    let codes: Vec<u8> = random.values(k * n / 2).iter().map(|value| (value * 1e4) as i32 as u8).collect();
    let scales = random.values(4 * n);
    let matrix = CompressedMatrix {
        k,
        n,
        codes: Codes::I4(&codes),
        row_stride: 1,
        column_stride: k,
        group: 128,
        scales: Some(&scales),
        zeros: None,
    };
    let a = random.values(m * k);
    for isa in Isa::available() {
        let packed = CompressedB::pack(isa, &matrix).unwrap();
        let run = |threads| {
            let mut c = vec![0.0; m * n];
            in_pool(threads, || gemm_compressed_b(isa, m, &a, k, &packed, &mut c, n, &Epilogue::default(), &mut []))
                .unwrap();
            c
        };
        assert_eq!(run(1), run(2));
        assert_eq!(run(1), run(4));
    }
}

#[test]
fn a_stored_matrix_that_is_too_short_is_refused() {
    let matrix = CompressedMatrix {
        k: 4,
        n: 4,
        codes: Codes::U8(&[0; 15]),
        row_stride: 1,
        column_stride: 4,
        group: 4,
        scales: None,
        zeros: None,
    };
    assert!(CompressedB::pack(Isa::portable(), &matrix).is_err());
    let matrix = CompressedMatrix { codes: Codes::U8(&[0; 16]), group: 3, ..matrix };
    assert!(CompressedB::pack(Isa::portable(), &matrix).is_err());
    let matrix = CompressedMatrix { group: 2, scales: Some(&[1.0; 7]), ..matrix };
    assert!(CompressedB::pack(Isa::portable(), &matrix).is_err());
}
