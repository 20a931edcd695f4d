//! Compressed constants: products and gathers that read codes against the reference, which widens them first.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::fmt::Write as _;
use std::sync::Arc;

use ovir_graph::{BuildOptions, build, validate};
use ovir_ir::{Weights, read_document};
use ovir_ops::Registry;
use ovir_runtime::{CompileOptions, Compiled, Request};
use ovir_tensor::Tensor;

/// A model as text, built layer by layer.
#[derive(Default)]
struct Text {
    layers: String,
    edges: String,
    bin: Vec<u8>,
    count: usize,
}

/// A layer and its output port.
#[derive(Clone, Copy)]
struct Value(usize, usize);

impl Text {
    fn layer(&mut self, kind: &str, data: &str, inputs: &[Value], precision: &str) -> Value {
        let id = self.count;
        self.count += 1;
        let ports: String = (0..inputs.len()).map(|port| format!("<port id=\"{port}\"/>")).collect();
        let output = inputs.len();
        let outputs = match kind {
            "Result" => String::new(),
            _ => format!("<output><port id=\"{output}\" precision=\"{precision}\"/></output>"),
        };
        let opset = if kind == "Gather" { "opset8" } else { "opset1" };
        write!(self.layers, "<layer id=\"{id}\" name=\"{kind}{id}\" type=\"{kind}\" version=\"{opset}\"><data {data}/><input>{ports}</input>{outputs}</layer>").unwrap();
        for (port, Value(from, from_port)) in inputs.iter().enumerate() {
            write!(
                self.edges,
                "<edge from-layer=\"{from}\" from-port=\"{from_port}\" to-layer=\"{id}\" to-port=\"{port}\"/>"
            )
            .unwrap();
        }
        Value(id, output)
    }

    fn constant(&mut self, element_type: &str, shape: &[usize], bytes: &[u8]) -> Value {
        self.bin.resize(self.bin.len().next_multiple_of(64), 0);
        let (offset, size) = (self.bin.len(), bytes.len());
        self.bin.extend_from_slice(bytes);
        let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let data = format!(
            "element_type=\"{element_type}\" shape=\"{}\" offset=\"{offset}\" size=\"{size}\"",
            shape.join(",")
        );
        self.layer("Const", &data, &[], "FP32")
    }

    fn floats(&mut self, shape: &[usize], values: impl Fn(usize) -> f32) -> Value {
        let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|i| values(i).to_le_bytes()).collect();
        self.constant("f32", shape, &bytes)
    }

    fn integers(&mut self, values: &[i64]) -> Value {
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        self.constant("i64", &[values.len()], &bytes)
    }

    fn parameter(&mut self, element_type: &str, shape: &str) -> Value {
        self.layer("Parameter", &format!("element_type=\"{element_type}\" shape=\"{shape}\""), &[], "FP32")
    }

    fn run(&self, inputs: &[Tensor], reference_only: bool) -> (Tensor, bool) {
        let xml = format!(
            "<?xml version=\"1.0\"?><net name=\"case\" version=\"11\"><layers>{}</layers><edges>{}</edges></net>",
            self.layers, self.edges
        );
        let (document, diagnostics) = read_document(xml.as_bytes());
        let weights = Weights::from_bytes(self.bin.clone());
        let built = build(&document.unwrap(), Some(&weights), &Registry::default(), BuildOptions::default());
        let earlier = diagnostics.into_iter().chain(built.diagnostics).collect();
        let validated = validate(built.model, earlier).into_validated().unwrap();
        let compiled = Compiled::new(validated, &CompileOptions { threads: 2, reference_only }).unwrap();
        let mut request = Request::new(Arc::new(compiled));
        request.set_profiling(true);
        for (index, input) in inputs.iter().enumerate() {
            request.set_input(index, input.clone()).unwrap();
        }
        request.infer().unwrap();
        let kernel = request.profile().unwrap().entries.iter().all(|entry| entry.is_kernel);
        (request.output(0).unwrap().clone(), kernel)
    }

    fn check(&self, inputs: &[Tensor], what: &str) {
        let (expected, _) = self.run(inputs, true);
        let (actual, is_kernel) = self.run(inputs, false);
        assert!(is_kernel, "{what} ran by its reference");
        assert_eq!(expected.shape(), actual.shape(), "{what}");
        let (expected, actual) = (expected.slice::<f32>().unwrap(), actual.slice::<f32>().unwrap());
        let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
        for (index, (e, a)) in expected.iter().zip(actual).enumerate() {
            assert!((e - a).abs() <= 1e-5 * largest, "{what}: element {index} is {a}, the reference has {e}");
        }
    }
}

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
