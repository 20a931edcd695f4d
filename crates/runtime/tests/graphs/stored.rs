//! Compressed constants: products and gathers that read codes against the reference, which widens them first.

use ovir_optimize::Options;
use ovir_runtime::CompileOptions;
use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value};

/// Codes of a type; any bytes will do, but not-a-numbers would hide everything.
fn codes(element_type: &str, count: usize) -> Vec<u8> {
    let noise = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) as u8;
    match element_type {
        "f16" => (0..count).flat_map(|i| half::f16::from_f32(f32::from(noise(i)) / 64.0 - 2.0).to_le_bytes()).collect(),
        "bf16" => {
            (0..count).flat_map(|i| half::bf16::from_f32(f32::from(noise(i)) / 64.0 - 2.0).to_le_bytes()).collect()
        }
        "u8" | "i8" => (0..count).map(noise).collect(),
        "f8e4m3" | "f8e5m2" => (0..count).map(|i| noise(i) & 0xbb).collect(),
        "u2" => (0..count.div_ceil(4)).map(noise).collect(),
        _ => (0..count.div_ceil(2)).map(noise).collect(),
    }
}

const TYPES: &[&str] = &["u8", "i8", "u4", "i4", "nf4", "f4e2m1", "f16", "bf16", "f8e4m3", "f8e5m2", "u2"];

/// The value of codes `[rows, columns]` with parameters for each row and `groups` groups of columns.
fn value(
    text: &mut Text,
    element_type: &str,
    rows: usize,
    columns: usize,
    groups: usize,
    has_zero: bool,
    through: &str,
) -> Value {
    let shape = if groups == 1 { vec![rows, columns] } else { vec![rows, groups, columns / groups] };
    let mut parameters = shape.clone();
    *parameters.last_mut().unwrap() = 1;
    let stored = text.constant(element_type, &shape, &codes(element_type, rows * columns));
    let convert = format!("destination_type=\"{through}\"");
    let mut at = text.layer("Convert", &convert, &[stored], "FP32");
    if has_zero {
        let zero = text.floats(&parameters, |i| (i % 7) as f32);
        let zero = text.layer("Convert", &convert, &[zero], "FP32");
        at = text.layer("Subtract", "auto_broadcast=\"numpy\"", &[at, zero], "FP32");
    }
    if groups > 1 || has_zero {
        let scale = text.floats(&parameters, |i| 0.25 + (i % 5) as f32 / 8.0);
        let scale = text.layer("Convert", &convert, &[scale], "FP32");
        at = text.layer("Multiply", "auto_broadcast=\"numpy\"", &[at, scale], "FP32");
    }
    if groups > 1 {
        let target = text.integers(&[rows as i64, columns as i64]);
        at = text.layer("Reshape", "special_zero=\"false\"", &[at, target], "FP32");
    }
    if through == "f16" {
        at = text.layer("Convert", "destination_type=\"f32\"", &[at], "FP32");
    }
    at
}

fn input(rows: usize, columns: usize) -> Tensor {
    let values: Vec<f32> = (0..rows * columns).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, [rows, columns]).unwrap()
}

#[test]
fn products_with_rows_of_weights() {
    for (element_type, through) in TYPES.iter().flat_map(|t| [(*t, "f16"), (*t, "f32")]) {
        for (groups, has_zero) in [(1, false), (1, true), (4, false), (4, true)] {
            for rows in [1, 3, 9] {
                let mut text = Text::default();
                let (n, k) = (70, 64);
                let x = text.parameter("f32", &format!("?,{k}"));
                let weights = value(&mut text, element_type, n, k, groups, has_zero, through);
                let product = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32");
                text.layer("Result", "", &[product], "");
                let what = format!("{element_type} through {through}, {groups} groups, zero {has_zero}, {rows} rows");
                text.check(&[input(rows, k)], &what);
            }
        }
    }
}

/// Products whose codes and parameters begin at odd places give what the reference gives.
#[test]
fn constants_anywhere_in_the_file() {
    for (element_type, groups, has_zero) in [("i8", 4, false), ("u8", 4, true), ("i4", 2, true), ("f16", 1, false)] {
        let mut text = Text::shifted(1);
        // So many scales that they are not copied when the model is read.
        let (n, k) = (300, 64);
        let x = text.parameter("f32", &format!("?,{k}"));
        let weights = value(&mut text, element_type, n, k, groups, has_zero, "f32");
        let product = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32");
        text.layer("Result", "", &[product], "");
        text.check(&[input(3, k)], &format!("{element_type}, {groups} groups, zero {has_zero}"));
    }
}

#[test]
fn products_with_columns_of_weights() {
    for element_type in ["u8", "i4", "f16"] {
        for groups in [1, 4] {
            let mut text = Text::default();
            let (k, n) = (64, 70);
            let x = text.parameter("f32", &format!("?,{k}"));
            let shape = if groups == 1 { vec![k, n] } else { vec![groups, k / groups, n] };
            let parameters = if groups == 1 { vec![1, n] } else { vec![groups, 1, n] };
            let stored = text.constant(element_type, &shape, &codes(element_type, k * n));
            let wide = text.layer("Convert", "destination_type=\"f32\"", &[stored], "FP32");
            let scale = text.floats(&parameters, |i| 0.25 + (i % 5) as f32 / 8.0);
            let mut weights = text.layer("Multiply", "auto_broadcast=\"numpy\"", &[wide, scale], "FP32");
            if groups > 1 {
                let target = text.integers(&[k as i64, n as i64]);
                weights = text.layer("Reshape", "special_zero=\"false\"", &[weights, target], "FP32");
            }
            let product = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[x, weights], "FP32");
            text.layer("Result", "", &[product], "");
            text.check(&[input(5, k)], &format!("{element_type}, {groups} groups"));
        }
    }
}

#[test]
fn gathers_of_rows() {
    for element_type in TYPES {
        for (groups, has_zero) in [(1, false), (1, true), (4, true)] {
            let mut text = Text::default();
            let indices = text.parameter("i64", "?,?");
            let table = value(&mut text, element_type, 80, 64, groups, has_zero, "f16");
            let axis = text.integers(&[0]);
            let rows = text.layer("Gather", "batch_dims=\"0\"", &[table, indices, axis], "FP32");
            text.layer("Result", "", &[rows], "");
            // The last two lie outside and yield zeros.
            let picked = Tensor::from_slice(&[3i64, 0, 79, -1, 80, -81], [2, 3]).unwrap();
            text.check(&[picked], &format!("{element_type}, {groups} groups, zero {has_zero}"));
        }
    }
}

/// One constant with two scales is two values.
#[test]
fn shared_codes_with_other_scales() {
    let mut text = Text::default();
    let (n, k) = (70, 64);
    let x = text.parameter("f32", &format!("?,{k}"));
    let stored = text.constant("i8", &[n, k], &codes("i8", n * k));
    let mut products = Vec::new();
    for factor in [1.0, 3.0] {
        let wide = text.layer("Convert", "destination_type=\"f32\"", &[stored], "FP32");
        let scale = text.floats(&[n, 1], |i| factor * (i % 5 + 1) as f32);
        let weights = text.layer("Multiply", "auto_broadcast=\"numpy\"", &[wide, scale], "FP32");
        products.push(text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32"));
    }
    let difference = text.layer("Subtract", "auto_broadcast=\"numpy\"", &products, "FP32");
    text.layer("Result", "", &[difference], "");
    text.check(&[input(2, k)], "two scales");
}

/// The product of an input with stored weights and what follows it, dynamically quantised in groups of so many values.
fn dynamic(text: &Text, input: &Tensor, dynamic_quantization_group_size: usize, threads: usize) -> Vec<f32> {
    let options = CompileOptions { threads, dynamic_quantization_group_size, ..CompileOptions::default() };
    let mut request = text.request_of(&Options::default(), &options);
    request.set_input(0, input.clone()).unwrap();
    request.infer().unwrap();
    request.output(0).unwrap().slice::<f32>().unwrap().to_vec()
}

#[test]
fn dynamically_quantised_products_are_near_the_others() {
    for (element_type, is_quantised) in [("u8", true), ("i8", true), ("u4", true), ("i4", true), ("nf4", false)] {
        for (groups, has_zero) in [(1, false), (1, true), (4, false), (4, true)] {
            for rows in [0, 1, 9] {
                let mut text = Text::default();
                let (n, k) = (70, 256);
                let x = text.parameter("f32", &format!("?,{k}"));
                let weights = value(&mut text, element_type, n, k, groups, has_zero, "f16");
                let product = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32");
                let bias = text.floats(&[1, n], |i| i as f32 / 10.0);
                let sum = text.layer("Add", "auto_broadcast=\"numpy\"", &[product, bias], "FP32");
                let end = text.layer("ReLU", "", &[sum], "FP32");
                text.layer("Result", "", &[end], "");
                let what = format!("{element_type}, {groups} groups, zero {has_zero}, {rows} rows");
                let input = input(rows, k);
                let (exact, rounded) = (dynamic(&text, &input, 0, 2), dynamic(&text, &input, 32, 2));
                let largest = exact.iter().fold(1f32, |most, value| most.max(value.abs()));
                assert!(exact.iter().zip(&rounded).all(|(a, b)| (a - b).abs() <= 0.02 * largest), "{what}");
                assert_eq!(exact != rounded, is_quantised && rows > 0, "{what}");
                assert_eq!(rounded, dynamic(&text, &input, 32, 1), "{what}");
                // Groups of ten values are not computed.
                assert_eq!(exact, dynamic(&text, &input, 10, 2), "{what}");
            }
        }
    }
}
