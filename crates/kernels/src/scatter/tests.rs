//! Every way against the plain loop of the definition.

use super::*;
use crate::testing::{Random, in_pool};
use half::f16;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

const COMBINES: [Combine; 7] =
    [Combine::Replace, Combine::Sum, Combine::Sub, Combine::Prod, Combine::Min, Combine::Max, Combine::Mean];

/// A scatter, and for each update element the element of the data that it goes to.
struct Case {
    places: Places,
    indices: Vec<i64>,
    to: Vec<usize>,
}

fn coordinates(mut position: usize, shape: &[usize]) -> Vec<usize> {
    let mut found = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        found[axis] = position % shape[axis];
        position /= shape[axis];
    }
    found
}

fn offset(coordinates: &[usize], shape: &[usize]) -> usize {
    coordinates.iter().zip(shape).fold(0, |offset, (c, size)| offset * size + c)
}

fn index(random: &mut Random, size: usize) -> (i64, usize) {
    let at = random.between(0, size - 1);
    (if random.between(0, 2) == 0 { at as i64 - size as i64 } else { at as i64 }, at)
}

fn elements(random: &mut Random, most: usize) -> Case {
    let rank = random.between(1, 4);
    let shape: Vec<usize> = (0..rank).map(|_| random.between(1, most)).collect();
    let axis = random.between(0, rank - 1);
    let full = random.between(0, 1) == 0;
    let picked: Vec<usize> = (0..rank)
        .map(|i| {
            if i == axis {
                random.between(1, 2 * most)
            } else if full {
                shape[i]
            } else {
                random.between(1, shape[i])
            }
        })
        .collect();
    let rows = full && random.between(0, 1) == 0;
    let inner: usize = picked[axis + 1..].iter().product();
    let mut case = Case { places: Places::elements(&shape, &picked, axis).unwrap(), indices: vec![], to: vec![] };
    let (mut written, mut at) = index(random, shape[axis]);
    for update in 0..picked.iter().product() {
        if !rows || update % inner == 0 {
            (written, at) = index(random, shape[axis]);
        }
        let mut place = coordinates(update, &picked);
        place[axis] = at;
        case.indices.push(written);
        case.to.push(offset(&place, &shape));
    }
    case
}

fn tuples(random: &mut Random, most: usize) -> Case {
    let depth = random.between(0, 3);
    let sizes: Vec<usize> = (0..depth).map(|_| random.between(1, most)).collect();
    let (inner, count) = (random.between(1, 5), random.between(0, 3 * most));
    let mut case = Case { places: Places::tuples(&sizes, inner, count).unwrap(), indices: vec![], to: vec![] };
    for _ in 0..count {
        let tuple: Vec<(i64, usize)> = sizes.iter().map(|size| index(random, *size)).collect();
        case.indices.extend(tuple.iter().map(|(written, _)| written));
        let row = offset(&tuple.iter().map(|(_, at)| *at).collect::<Vec<_>>(), &sizes);
        case.to.extend((0..inner).map(|i| row * inner + i));
    }
    case
}

fn rows(random: &mut Random, most: usize, broadcast: bool) -> Case {
    let [outer, size, inner, count] =
        [random.between(1, 4), random.between(1, most), random.between(1, most), random.between(0, 2 * most)];
    let picked: Vec<(i64, usize)> = (0..count)
        .map(|_| {
            if broadcast {
                index(random, size)
            } else {
                let at = random.between(0, size - 1);
                (at as i64, at)
            }
        })
        .collect();
    let places = match broadcast {
        true => Places::broadcast(outer, size, inner, count),
        false => Places::slices(outer, size, inner, count, false),
    };
    let mut case = Case { places: places.unwrap(), indices: picked.iter().map(|p| p.0).collect(), to: vec![] };
    for block in 0..outer {
        for (_, at) in &picked {
            case.to.extend((0..inner).map(|i| (block * size + at) * inner + i));
        }
    }
    case
}

/// The definition, on f64: exact for the small integers that the tests use.
fn expected(case: &Case, reduction: Reduction, data: &[f64], updates: &[f64], floor: bool) -> Vec<f64> {
    let (mut output, mut counts) = (data.to_vec(), vec![0u32; data.len()]);
    for (update, to) in updates.iter().zip(&case.to) {
        let value = output[*to];
        output[*to] = match reduction.combine {
            _ if counts[*to] == 0 && !reduction.use_init => *update,
            Combine::Replace => *update,
            Combine::Sum | Combine::Mean => value + update,
            Combine::Sub => value - update,
            Combine::Prod => value * update,
            Combine::Min => value.min(*update),
            Combine::Max => value.max(*update),
        };
        counts[*to] += 1;
    }
    if reduction.combine == Combine::Mean {
        for (value, count) in output.iter_mut().zip(&counts).filter(|(_, count)| **count > 0) {
            *value /= f64::from(count + u32::from(reduction.use_init));
            *value = if floor { value.floor() } else { *value };
        }
    }
    output
}

/// Runs a case with elements made from f64, in place and not, alone and in a pool.
fn run<const N: usize>(scatter: Scatter, case: &Case, data: &[[u8; N]], updates: &[[u8; N]]) -> Vec<[u8; N]> {
    let bytes = |values: &[[u8; N]]| values.concat();
    let indices = match scatter.index_type {
        IndexType::I64 => case.indices.iter().flat_map(|i| i.to_le_bytes()).collect::<Vec<u8>>(),
        IndexType::I32 => case.indices.iter().flat_map(|i| (*i as i32).to_le_bytes()).collect(),
    };
    let mut scratch = vec![0xa5; scatter.scratch_len()];
    let mut output = vec![0xee; data.len() * N];
    scatter.run(Some(&bytes(data)), &indices, &bytes(updates), &mut output, &mut scratch).unwrap();
    let mut again = bytes(data);
    in_pool(3, || scatter.run(None, &indices, &bytes(updates), &mut again, &mut scratch)).unwrap();
    assert_eq!(output, again);
    output.as_chunks().0.to_vec()
}

fn check(case: &Case, reduction: Reduction, random: &mut Random) {
    let places = case.places;
    let index_type = if random.between(0, 1) == 0 { IndexType::I32 } else { IndexType::I64 };
    let small = |random: &mut Random| random.between(0, 6) as f64 - 3.0;
    let data: Vec<f64> = (0..places.data_elements()).map(|_| small(random)).collect();
    let updates: Vec<f64> = (0..places.update_elements()).map(|_| small(random)).collect();
    let scatter = |element| Scatter { places, reduction, element, index_type };
    macro_rules! element {
        ($element:ident, $rust:ty, $floor:expr, $to:expr) => {{
            let bytes = |values: &[f64]| values.iter().map(|v| $to(*v).to_le_bytes()).collect::<Vec<_>>();
            let output = run(scatter(Element::$element), case, &bytes(&data), &bytes(&updates));
            let expected: Vec<_> =
                expected(case, reduction, &data, &updates, $floor).iter().map(|v| $to(*v).to_le_bytes()).collect();
            if !expected.iter().zip(&output).all(|(a, b)| {
                let (a, b) = (<$rust>::from_le_bytes(*a), <$rust>::from_le_bytes(*b));
                a == b || a != a && b != b
            }) {
                assert_eq!(output, expected, "{:?} {reduction:?} {places:?}", Element::$element);
            }
        }};
    }
    element!(F64, f64, false, |v: f64| v);
    element!(F32, f32, false, |v: f64| v as f32);
    // Products soon leave what the others can hold.
    if reduction.combine != Combine::Prod {
        element!(I64, i64, true, |v: f64| v as i64);
        element!(I32, i32, true, |v: f64| v as i32);
        element!(I16, i16, true, |v: f64| v as i16);
        element!(F16, f16, false, f16::from_f64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_scatter(seed: u64) {
        let mut random = Random::new(seed);
        let most = [3, 9, 40][random.between(0, 2)];
        let case = match random.between(0, 3) {
            0 | 1 => elements(&mut random, most.min(14)),
            2 => tuples(&mut random, most),
            _ => { let broadcast = random.between(0, 1) == 0; rows(&mut random, most, broadcast) }
        };
        for combine in COMBINES {
            for use_init in [true, false] {
                let replaces = combine == Combine::Replace;
                check(&case, Reduction { combine, use_init: use_init || replaces }, &mut random);
            }
        }
    }
}

#[test]
fn large_scatters_go_through_bins_and_blocks() {
    let mut random = Random::new(7);
    let (shape, count) = ([1200, 500], 90_000);
    let mut made: Vec<Case> = Vec::new();
    let tuple: Vec<(i64, i64)> =
        (0..count).map(|_| (random.between(0, 1199) as i64, random.between(0, 499) as i64)).collect();
    made.push(Case {
        places: Places::tuples(&shape, 1, count).unwrap(),
        indices: tuple.iter().flat_map(|(a, b)| [*a, *b]).collect(),
        to: tuple.iter().map(|(a, b)| (a * 500 + b) as usize).collect(),
    });
    let picked: Vec<usize> = (0..400 * 500).map(|_| random.between(0, 1199)).collect();
    made.push(Case {
        places: Places::elements(&shape, &[400, 500], 0).unwrap(),
        indices: picked.iter().map(|i| *i as i64).collect(),
        to: picked.iter().enumerate().map(|(u, i)| i * 500 + u % 500).collect(),
    });
    made.push(Case {
        places: Places::elements(&shape, &[400, 500], 0).unwrap(),
        indices: (0..400 * 500).map(|u| picked[u / 500] as i64).collect(),
        to: (0..400 * 500).map(|u| picked[u / 500] * 500 + u % 500).collect(),
    });
    made.push(Case {
        places: Places::broadcast(1, 1200, 500, 100).unwrap(),
        indices: picked[..100].iter().map(|i| *i as i64).collect(),
        to: (0..100 * 500).map(|u| picked[u / 500] * 500 + u % 500).collect(),
    });
    made.push(Case {
        places: Places::slices(3, 400, 500, 20, false).unwrap(),
        indices: picked[..20].iter().map(|i| (i % 400) as i64).collect(),
        to: (0..3 * 20 * 500).map(|u| (u / 10_000 * 400 + picked[u / 500 % 20] % 400) * 500 + u % 500).collect(),
    });
    made.push(Case {
        places: Places::elements(&shape, &[1200, 70], 1).unwrap(),
        indices: (0..1200 * 70).map(|u| picked[u] as i64 % 500).collect(),
        to: (0..1200 * 70).map(|u| u / 70 * 500 + picked[u] % 500).collect(),
    });
    // Neighbouring updates that meet at one place.
    made.push(Case {
        places: Places::elements(&shape, &[1200, 70], 1).unwrap(),
        indices: (0..1200 * 70).map(|u| picked[u / 9] as i64 % 500).collect(),
        to: (0..1200 * 70).map(|u| u / 70 * 500 + picked[u / 9] % 500).collect(),
    });
    for case in &made {
        for combine in [Combine::Replace, Combine::Sum, Combine::Mean, Combine::Max] {
            check(case, Reduction { combine, use_init: true }, &mut random);
        }
        check(case, Reduction { combine: Combine::Sum, use_init: false }, &mut random);
    }
}

#[test]
fn many_sums_at_few_places_go_through_tables() {
    let mut random = Random::new(13);
    for (size, count, expected) in [
        (1, 2 * TABLE_UPDATES + 1, Some(3)),
        (50, 5 * TABLE_UPDATES, Some(5)),
        (600, 3 * TABLE_UPDATES - 7, Some(3)),
        (9000, 3 * TABLE_UPDATES, None),
    ] {
        let to: Vec<usize> = (0..count).map(|_| random.between(0, size - 1)).collect();
        let places = Places::elements(&[size], &[count], 0).unwrap();
        let indices = to.iter().map(|at| *at as i64 - if at % 3 == 0 { size as i64 } else { 0 }).collect();
        let case = Case { places, indices, to };
        let units = Units { rows: size, inner: 1, count };
        assert_eq!(Tables::new(&units, 4).map(|tables| tables.count), expected);
        for (combine, use_init) in
            [(Combine::Sum, true), (Combine::Sum, false), (Combine::Sub, true), (Combine::Max, true)]
        {
            check(&case, Reduction { combine, use_init }, &mut random);
        }
    }
    // Nothing is written where the last index addresses nothing, and the sign of zeros is that of their sum.
    let places = Places::elements(&[2], &[2 * TABLE_UPDATES], 0).unwrap();
    let reduction = Reduction { combine: Combine::Sum, use_init: true };
    let scatter = Scatter { places, reduction, element: Element::F32, index_type: IndexType::I32 };
    let updates = (-0.0f32).to_le_bytes().repeat(2 * TABLE_UPDATES);
    let (mut indices, mut scratch) = (vec![0; 8 * TABLE_UPDATES], vec![0; scatter.scratch_len()]);
    let mut output = (-0.0f32).to_le_bytes().repeat(2);
    scatter.run(None, &indices, &updates, &mut output, &mut scratch).unwrap();
    assert_eq!(output, (-0.0f32).to_le_bytes().repeat(2));
    let last = indices.len() - 4;
    indices[last] = 2;
    output.fill(7);
    assert!(scatter.run(None, &indices, &updates, &mut output, &mut scratch).is_err());
    assert_eq!(output, [7; 8]);
}

#[test]
fn elements_of_a_large_output_are_updated_in_parts() {
    let mut random = Random::new(11);
    let (rows, columns, count) = (1500, 1500, 40_000);
    let any: Vec<usize> = (0..count).map(|u| random.between(0, rows * columns - 1) / (1 + u % 2 * 500)).collect();
    let mut ascending = any.clone();
    ascending.sort_unstable();
    let mut begins_ascending = ascending.clone();
    begins_ascending.swap(count - 1, count / 2);
    let bytes = |values: &[f32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let data: Vec<f32> = (0..rows * columns).map(|at| at as f32 / 7.0).collect();
    let updates: Vec<f32> = (0..count).map(|update| update as f32 / 3.0).collect();
    let orders = [any, ascending, begins_ascending];
    for (combine, to) in [Combine::Replace, Combine::Sum].into_iter().flat_map(|c| orders.iter().map(move |to| (c, to)))
    {
        let mut expected = data.clone();
        for (to, update) in to.iter().zip(&updates) {
            expected[*to] = if combine == Combine::Sum { expected[*to] + update } else { *update };
        }
        let places = Places::tuples(&[rows, columns], 1, count).unwrap();
        assert!(rows * columns * 4 > NEAR_BYTES && count * 4 > FEW_BYTES);
        let reduction = Reduction { combine, use_init: true };
        let scatter = Scatter { places, reduction, element: Element::F32, index_type: IndexType::I32 };
        let mut indices: Vec<u8> =
            to.iter().flat_map(|to| [to / columns, to % columns]).flat_map(|at| (at as i32).to_le_bytes()).collect();
        let mut scratch = vec![0xa5; scatter.scratch_len()];
        for (threads, in_place) in [(1, false), (1, true), (2, false), (3, true), (3, false)] {
            let mut output = if in_place { bytes(&data) } else { vec![0xee; data.len() * 4] };
            let source = bytes(&data);
            let source = (!in_place).then_some(&source[..]);
            let mut run = || scatter.run(source, &indices, &bytes(&updates), &mut output, &mut scratch);
            if threads == 1 { run() } else { in_pool(threads, run) }.unwrap();
            assert!(output == bytes(&expected), "{combine:?} {threads} {in_place}");
        }
        let last = indices.len() - 4;
        indices[last..].copy_from_slice(&(columns as i32).to_le_bytes());
        let mut output = bytes(&data);
        let run = || scatter.run(None, &indices, &bytes(&updates), &mut output, &mut scratch);
        assert_eq!(in_pool(3, run).unwrap_err().argument, "indices");
        assert!(output == bytes(&data));
    }
}

#[test]
fn nothing_is_written_where_an_index_addresses_nothing() {
    for (bad, wraps) in [(5, true), (-6, true), (-1, false), (i64::MIN, true), ((1 << 32) + 1, true), (i64::MAX, false)]
    {
        let indices: Vec<u8> = [0, bad].iter().flat_map(|i: &i64| i.to_le_bytes()).collect();
        let tuples: Vec<u8> = [0, 0, 1, bad].iter().flat_map(|i: &i64| i.to_le_bytes()).collect();
        let all = [
            (Places::slices(1, 5, 2, 2, wraps).unwrap(), &indices),
            (Places::slices(3, 5, 2, 2, wraps).unwrap(), &indices),
            (Places::broadcast(3, 5, 2, 2).unwrap(), &indices),
            (Places::tuples(&[2, 5], 1, 2).unwrap(), &tuples),
            (Places::elements(&[5], &[2], 0).unwrap(), &indices),
            (Places::elements(&[5, 2], &[1, 2], 0).unwrap(), &indices),
            (Places::slices(1, 0, 2, 2, wraps).unwrap(), &indices),
            (Places::broadcast(1, 0, 2, 2).unwrap(), &indices),
            (Places::tuples(&[0, 5], 1, 2).unwrap(), &tuples),
            (Places::elements(&[0], &[2], 0).unwrap(), &indices),
        ];
        for (places, indices) in all {
            if matches!(places.0, Kind::Slices { .. }) || bad != -1 {
                for combine in [Combine::Replace, Combine::Mean] {
                    let reduction = Reduction { combine, use_init: true };
                    let scatter = Scatter { places, reduction, element: Element::I16, index_type: IndexType::I64 };
                    let mut output = vec![7; places.data_elements() * 2];
                    let updates = vec![1; places.update_elements() * 2];
                    let mut scratch = vec![0; scatter.scratch_len()];
                    let error = scatter.run(None, indices, &updates, &mut output, &mut scratch).unwrap_err();
                    assert_eq!(error.argument, "indices");
                    assert!(output.iter().all(|byte| *byte == 7));
                    let data = output.clone();
                    assert!(scatter.run(Some(&data), indices, &updates, &mut output, &mut scratch).is_err());
                }
            }
        }
    }
}

#[test]
fn minima_and_maxima_propagate_nan_and_keep_the_first_zero() {
    let run = |combine, use_init, data: f32, update: f32| {
        let reduction = Reduction { combine, use_init };
        let places = Places::elements(&[1], &[1], 0).unwrap();
        let scatter = Scatter { places, reduction, element: Element::F32, index_type: IndexType::I32 };
        let (mut output, mut scratch) = (data.to_le_bytes(), vec![0; scatter.scratch_len()]);
        scatter.run(None, &[0; 4], &update.to_le_bytes(), &mut output, &mut scratch).unwrap();
        f32::from_le_bytes(output)
    };
    assert!(run(Combine::Max, true, f32::NAN, 1.0).is_nan());
    assert!(run(Combine::Min, true, 1.0, f32::NAN).is_nan());
    assert_eq!(run(Combine::Max, false, 1.0, f32::NEG_INFINITY), f32::NEG_INFINITY);
    assert!(run(Combine::Max, true, -0.0, 0.0).is_sign_negative());
}

#[test]
fn halves_round_once_and_booleans_have_logic() {
    let places = Places::elements(&[1], &[4], 0).unwrap();
    let sum = Reduction { combine: Combine::Sum, use_init: true };
    let scatter = Scatter { places, reduction: sum, element: Element::F16, index_type: IndexType::I32 };
    let mut output = f16::from_f32(2048.0).to_le_bytes();
    let mut scratch = vec![0; scatter.scratch_len()];
    scatter.run(None, &[0; 16], &f16::ONE.to_le_bytes().repeat(4), &mut output, &mut scratch).unwrap();
    assert_eq!(f16::from_le_bytes(output), f16::from_f32(2052.0));
    let logic = |combine, data: u8, updates: [u8; 4]| {
        let reduction = Reduction { combine, use_init: true };
        let scatter = Scatter { places, reduction, element: Element::Boolean, index_type: IndexType::I32 };
        let mut output = [data];
        scatter.run(None, &[0; 16], &updates, &mut output, &mut []).map(|()| output[0])
    };
    assert_eq!(logic(Combine::Sub, 0, [1, 1, 1, 0]), Ok(1));
    assert_eq!(logic(Combine::Sum, 0, [0, 0, 2, 0]), Ok(1));
    assert_eq!(logic(Combine::Prod, 1, [1, 1, 0, 1]), Ok(0));
    assert!(logic(Combine::Mean, 1, [1; 4]).is_err());
}
