//! Bodies of control flow, which the passes and kernels work on for what inference says of their Parameters.

use ovir_optimize::PassReport;
use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value, compare};

const COLUMNS: usize = 8;

fn values(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

impl Text {
    fn weights(&mut self, shape: &[usize], seed: usize) -> Value {
        self.floats(shape, |i| ((i * 31 + seed * 7) % 23) as f32 / 40.0 - 0.25)
    }

    /// A recurrent layer over the rows of `[batch, rows, columns]`, forwards or backwards, as a TensorIterator: its states of
    /// all rows and the last one. `element_type` is that of the body's border.
    fn recurrent(&mut self, x: Value, state: Value, is_reverse: bool, element_type: &str) -> [Value; 2] {
        let precision = if element_type == "f16" { "FP16" } else { "FP32" };
        let ports = self.nested(|body| {
            let row = body.parameter(element_type, &format!("?,1,{COLUMNS}"));
            let old = body.parameter(element_type, &format!("?,{COLUMNS}"));
            let convert = |body: &mut Text, value: Value, to: &str| match element_type {
                "f16" => body.layer("Convert", &format!("destination_type=\"{to}\""), &[value], "FP32"),
                _ => value,
            };
            let (data, old_state) = (convert(body, row, "f32"), convert(body, old, "f32"));
            let (axis, after) = (body.integers(&[1]), body.integers(&[1]));
            let data = body.layer("Squeeze", "", &[data, axis], "FP32");
            let (of_data, of_state) = (body.weights(&[COLUMNS, COLUMNS], 1), body.weights(&[COLUMNS, COLUMNS], 2));
            let bias = body.weights(&[1, COLUMNS], 3);
            let product = |body: &mut Text, a: Value, b: Value| {
                body.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[a, b], "FP32")
            };
            let (a, b) = (product(body, data, of_data), product(body, old_state, of_state));
            let sum = body.layer("Add", "", &[a, bias], "FP32");
            let sum = body.layer("Add", "", &[sum, b], "FP32");
            let new = body.layer("Tanh", "", &[sum], "FP32");
            let new = convert(body, new, "f16");
            let rows = body.layer("Unsqueeze", "", &[new, after], precision);
            let all = body.layer("Result", "", &[rows], "");
            let last = body.layer("Result", "", &[new], "");
            [row, old, all, last].map(|value| value.0)
        });
        let [row, old, all, last] = ports;
        let (start, end, stride) = if is_reverse { (-1, 0, -1) } else { (0, -1, 1) };
        let slicing = format!("axis=\"1\" start=\"{start}\" end=\"{end}\" stride=\"{stride}\" part_size=\"1\"");
        let map = format!(
            "<port_map><input external_port_id=\"0\" internal_layer_id=\"{row}\" {slicing}/>\
             <input external_port_id=\"1\" internal_layer_id=\"{old}\"/>\
             <output external_port_id=\"2\" internal_layer_id=\"{all}\" {slicing}/>\
             <output external_port_id=\"3\" internal_layer_id=\"{last}\"/></port_map>\
             <back_edges><edge from-layer=\"{last}\" to-layer=\"{old}\"/></back_edges>"
        );
        self.with_body("TensorIterator", &map, &[x, state], precision)
    }
}

/// What a pass did in bodies.
fn inside<'r>(reports: &'r [PassReport], name: &str) -> Vec<&'r str> {
    let report = reports.iter().find(|report| report.name == name).unwrap();
    let notes = report.notes.iter().filter(|note| note.is_applied && note.friendly_name.contains('/'));
    notes.map(|note| &*note.type_name).collect()
}

#[test]
fn passes_work_on_bodies() {
    for is_reverse in [false, true] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,?,{COLUMNS}"));
        let state = text.parameter("f32", &format!("?,{COLUMNS}"));
        let [all, last] = text.recurrent(x, state, is_reverse, "f32");
        let axis = text.integers(&[1]);
        let last = text.layer("Unsqueeze", "", &[last, axis], "FP32");
        let end = text.layer("Concat", "axis=\"1\"", &[all, last], "FP32");
        text.layer("Result", "", &[end], "");
        assert_eq!(inside(&text.reports(), "fuse_epilogue"), ["MatMul"]);
        for [batch, rows] in [[1, 1], [2, 9], [3, 40]] {
            let given = [values(&[batch, rows, COLUMNS], 1), values(&[batch, COLUMNS], 2)];
            let (actual, _) = text.run(&given, false);
            compare(&text.unoptimised(&given), &actual, &format!("{is_reverse} {batch} {rows}"));
        }
    }
}

/// A body of halves computes in f32, and gives halves.
#[test]
fn borders_of_bodies_keep_their_types() {
    let mut text = Text::default();
    let x = text.parameter("f16", &format!("?,?,{COLUMNS}"));
    let state = text.parameter("f16", &format!("?,{COLUMNS}"));
    let [all, _] = text.recurrent(x, state, false, "f16");
    let end = text.layer("Convert", "destination_type=\"f32\"", &[all], "FP32");
    text.layer("Result", "", &[end], "");
    let halves = |shape: &[usize], seed: usize| {
        let values = values(shape, seed);
        let halves: Vec<half::f16> = values.slice::<f32>().unwrap().iter().map(|v| half::f16::from_f32(*v)).collect();
        Tensor::from_slice(&halves, shape).unwrap()
    };
    let given = [halves(&[2, 6, COLUMNS], 1), halves(&[2, COLUMNS], 2)];
    let (expected, actual) = (text.unoptimised(&given), text.run(&given, false).0);
    for (a, b) in expected.slice::<f32>().unwrap().iter().zip(actual.slice::<f32>().unwrap()) {
        assert!((a - b).abs() < 2e-3, "{a} {b}");
    }
}

/// The rows of the state grow with each iteration, so that nothing is known of them but their columns.
#[test]
fn shapes_may_change_from_iteration_to_iteration() {
    let mut text = Text::default();
    let x = text.parameter("f32", &format!("?,?,{COLUMNS}"));
    let state = text.parameter("f32", &format!("?,0,{COLUMNS}"));
    let [row, old, last] = text.nested(|body| {
        let row = body.parameter("f32", &format!("?,1,{COLUMNS}"));
        let old = body.parameter("f32", &format!("?,?,{COLUMNS}"));
        let all = body.layer("Concat", "axis=\"1\"", &[old, row], "FP32");
        let (scale, shift) = (body.weights(&[1, 1, COLUMNS], 4), body.weights(&[1, 1, COLUMNS], 5));
        let product = body.layer("Multiply", "", &[all, scale], "FP32");
        let new = body.layer("Add", "", &[product, shift], "FP32");
        let last = body.layer("Result", "", &[new], "");
        [row, old, last].map(|value| value.0)
    });
    let map = format!(
        "<port_map><input external_port_id=\"0\" internal_layer_id=\"{row}\" axis=\"1\" start=\"0\" end=\"-1\" \
         stride=\"1\" part_size=\"1\"/><input external_port_id=\"1\" internal_layer_id=\"{old}\"/>\
         <output external_port_id=\"2\" internal_layer_id=\"{last}\"/></port_map>\
         <back_edges><edge from-layer=\"{last}\" to-layer=\"{old}\"/></back_edges>"
    );
    let [end] = text.with_body("TensorIterator", &map, &[x, state], "FP32");
    text.layer("Result", "", &[end], "");
    assert_eq!(inside(&text.reports(), "fuse_elementwise"), ["Add"]);
    for rows in [1, 7, 30] {
        let given =
            [values(&[2, rows, COLUMNS], 1), Tensor::zeros(ovir_tensor::ElementType::F32, [2, 0, COLUMNS]).unwrap()];
        let (actual, _) = text.run(&given, false);
        assert_eq!(actual.shape()[..], [2, rows, COLUMNS]);
        compare(&text.unoptimised(&given), &actual, &format!("{rows} rows"));
    }
}
