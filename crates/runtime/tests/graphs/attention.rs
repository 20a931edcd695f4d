//! Attention with what orders and repeats its operands, and with keys and values that a decoder keeps.

use ovir_runtime::Request;
use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value, compare};

const COLUMNS: usize = 8;

impl Text {
    /// `[batch, rows, heads * columns]` with the heads in front of the rows.
    fn heads(&mut self, x: Value, heads: usize) -> Value {
        let pattern = self.integers(&[0, 0, heads as i64, COLUMNS as i64]);
        let x = self.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32");
        let order = self.integers(&[0, 2, 1, 3]);
        self.layer("Transpose", "", &[x, order], "FP32")
    }

    /// `heads` heads of keys or values, each repeated for its neighbours.
    fn repeated(&mut self, x: Value, heads: usize, repeats: usize) -> Value {
        let axis = self.integers(&[2]);
        let shape = self.layer("ShapeOf", "output_type=\"i64\"", &[x], "I64");
        let (zero, first, rows) = (self.integers(&[0]), self.integers(&[0]), self.integers(&[2]));
        let batch = self.layer("Gather", "batch_dims=\"0\"", &[shape, first, zero], "I64");
        let rows = self.layer("Gather", "batch_dims=\"0\"", &[shape, rows, zero], "I64");
        let (sizes, columns) = (self.integers(&[heads as i64, repeats as i64]), self.integers(&[COLUMNS as i64]));
        let target = self.layer("Concat", "axis=\"0\"", &[batch, sizes, rows, columns], "I64");
        let x = self.layer("Unsqueeze", "", &[x, axis], "FP32");
        let x = self.layer("Broadcast", "mode=\"bidirectional\"", &[x, target], "FP32");
        let pattern = self.integers(&[0, (heads * repeats) as i64, -1, COLUMNS as i64]);
        self.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32")
    }

    fn attention(&mut self, inputs: &[Value], is_causal: bool) -> Value {
        self.layer("ScaledDotProductAttention", &format!("causal=\"{is_causal}\""), inputs, "FP32")
    }

    /// The result of an attention as `[batch, rows, heads * columns]`.
    fn joined(&mut self, x: Value) -> Value {
        let order = self.integers(&[0, 2, 1, 3]);
        let x = self.layer("Transpose", "", &[x, order], "FP32");
        let pattern = self.integers(&[0, 0, -1]);
        self.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32")
    }
}

fn values(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

#[test]
fn operands_are_read_where_they_lie() {
    for (heads, repeats, is_causal, mask_type) in
        [(4, 1, true, ""), (2, 3, false, "f32"), (1, 4, false, "boolean"), (2, 2, true, ""), (3, 1, false, "f32")]
    {
        let mut text = Text::default();
        let all = heads * repeats * COLUMNS;
        let q = text.parameter("f32", &format!("?,?,{all}"));
        let k = text.parameter("f32", &format!("?,?,{}", heads * COLUMNS));
        let v = text.parameter("f32", &format!("?,?,{}", heads * COLUMNS));
        let mask = (!mask_type.is_empty()).then(|| text.parameter(mask_type, "?,1,?,?"));
        let (q, k, v) = (text.heads(q, heads * repeats), text.heads(k, heads), text.heads(v, heads));
        let (k, v) = match repeats {
            1 => (k, v),
            _ => (text.repeated(k, heads, repeats), text.repeated(v, heads, repeats)),
        };
        let scale = mask.map(|_| text.floats(&[], |_| 0.4));
        let inputs: Vec<Value> = [q, k, v].into_iter().chain(mask).chain(scale).collect();
        let end = text.attention(&inputs, is_causal);
        let end = text.joined(end);
        text.layer("Result", "", &[end], "");
        for [batch, queries, keys] in [[1, 1, 5], [2, 3, 70], [1, 40, 300], [3, 17, 17]] {
            let mut given = vec![
                values(&[batch, queries, all], 1),
                values(&[batch, keys, heads * COLUMNS], 2),
                values(&[batch, keys, heads * COLUMNS], 3),
            ];
            match mask_type {
                "f32" => given.push(values(&[batch, 1, queries, keys], 4)),
                "boolean" => {
                    let seen: Vec<bool> = (0..batch * queries * keys).map(|i| i % 5 != 1).collect();
                    given.push(Tensor::from_booleans(&seen, [batch, 1, queries, keys]).unwrap());
                }
                _ => {}
            }
            let what = format!("{heads} heads repeated {repeats} times, {batch} {queries} {keys} {mask_type}");
            let (actual, entries) = text.run(&given, false);
            compare(&text.unoptimised(&given), &actual, &what);
            // The shapes of repeated keys and values are read, so that their Transposes stay.
            let gone = if repeats == 1 { "Transpose" } else { "Unsqueeze" };
            assert!(!entries.iter().any(|entry| entry.type_name == gone), "{entries:?}");
            assert!(entries.iter().any(|entry| entry.type_name == "Fused" && entry.is_kernel), "{what}: {entries:?}");
        }
    }
}

/// Queries and keys that FakeQuantize has made codes of, in front of what orders them or behind it.
#[test]
fn codes_of_queries_and_keys() {
    let symmetric = (-1.0, 1.0 - 2.0 / 256.0);
    for (limits, is_swapped, has_codes) in [
        ([symmetric, symmetric], true, true),
        ([symmetric, (-0.5, 0.5 - 1.0 / 256.0)], false, true),
        ([(0.0, 1.0), (-0.2, 0.82)], true, true),
        // Zero is no code of the keys.
        ([symmetric, (-0.5, 0.6)], true, false),
        ([symmetric, (0.25, 1.0)], false, false),
    ] {
        let mut text = Text::default();
        let heads = 3;
        let all = heads * COLUMNS;
        let [q, k, v] = [0, 1, 2].map(|_| text.parameter("f32", &format!("?,?,{all}")));
        let coded = |text: &mut Text, x: Value, (low, high): (f32, f32)| match is_swapped {
            true => {
                let x = text.quantize(x, low, high);
                text.heads(x, heads)
            }
            false => {
                let x = text.heads(x, heads);
                text.quantize(x, low, high)
            }
        };
        let (q, k, v) = (coded(&mut text, q, limits[0]), coded(&mut text, k, limits[1]), text.heads(v, heads));
        let end = text.attention(&[q, k, v], false);
        let end = text.joined(end);
        text.layer("Result", "", &[end], "");
        for [batch, queries, keys] in [[1, 1, 5], [2, 3, 70], [1, 40, 300], [3, 17, 17]] {
            let given = [queries, keys, keys].map(|rows| values(&[batch, rows, all], rows));
            let (actual, entries) = text.run(&given, false);
            compare(&text.unoptimised(&given), &actual, &format!("{limits:?} {batch} {queries} {keys}"));
            let count = |kind: &str| entries.iter().filter(|entry| entry.type_name == kind).count();
            assert_eq!(count("Encode"), if has_codes { 2 } else { 0 }, "{entries:?}");
            assert_eq!(count("Decode"), 0, "{entries:?}");
            assert!(entries.iter().any(|entry| entry.type_name == "Fused" && entry.is_kernel), "{entries:?}");
        }
    }
}

/// Queries, keys and values of one product, as vision transformers have them.
#[test]
fn heads_of_one_product() {
    let heads = 2;
    for (order, axis, scale, is_quantised, is_moved) in [
        ([2, 0, 3, 1, 4], 0, false, false, true),
        ([2, 0, 3, 1, 4], -5, true, false, true),
        ([2, 0, 3, 1, 4], 0, false, true, true),
        ([0, 3, 2, 1, 4], 2, true, true, true),
        // Rows and heads change their places no further.
        ([2, 0, 1, 3, 4], 0, false, false, false),
    ] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,?,{}", 3 * heads * COLUMNS));
        let pattern = text.integers(&[0, 0, 3, heads as i64, COLUMNS as i64]);
        let x = text.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32");
        let order_of = text.integers(&order);
        let x = text.layer("Transpose", "", &[x, order_of], "FP32");
        let split = text.constant("i64", &[], &i64::to_le_bytes(axis));
        let parts = text.layer_of("Split", "num_splits=\"3\"", &[x, split], "FP32", 3);
        let axes = text.integers(&[axis]);
        let mut operands = Vec::new();
        for port in 0..3 {
            let mut part = Value(parts.0, parts.1 + port);
            if is_quantised && port < 2 {
                part = text.quantize(part, -1.0, 1.0 - 2.0 / 256.0);
            }
            part = text.layer("Squeeze", "", &[part, axes], "FP32");
            if scale && port == 0 {
                let factor = text.floats(&[], |_| 0.7);
                part = text.binary("Multiply", part, factor);
            }
            operands.push(part);
        }
        let end = text.attention(&operands, false);
        let end = text.joined(end);
        text.layer("Result", "", &[end], "");
        for [batch, rows] in [[1, 1], [2, 30], [1, 65]] {
            let given = [values(&[batch, rows, 3 * heads * COLUMNS], rows)];
            let (actual, entries) = text.run(&given, false);
            compare(&text.unoptimised(&given), &actual, &format!("{order:?} {axis} {batch} {rows}"));
            let count = |kind: &str| entries.iter().filter(|entry| entry.type_name == kind).count();
            assert_eq!(count("Transpose"), usize::from(!is_moved), "{entries:?}");
        }
    }
}

/// A decoder's attention as exporters write it: `heads` heads, each repeated, picked by `beam_idx` or not.
fn decoder(heads: usize, repeats: usize, has_beams: bool) -> Text {
    let mut text = Text::default();
    let width = heads * COLUMNS;
    let q = text.parameter("f32", &format!("?,?,{}", width * repeats));
    let k = text.parameter("f32", &format!("?,?,{width}"));
    let v = text.parameter("f32", &format!("?,?,{width}"));
    let mask = text.parameter("f32", "?,1,?,?");
    let beams = has_beams.then(|| text.parameter("i32", "?"));
    let (q, k, v) = (text.heads(q, heads * repeats), text.heads(k, heads), text.heads(v, heads));
    // As many images as the queries have, and no rows.
    let shape = text.layer("ShapeOf", "output_type=\"i64\"", &[q], "I64");
    let (zero, first) = (text.integers(&[0]), text.integers(&[0]));
    let batch = text.layer("Gather", "batch_dims=\"0\"", &[shape, first, zero], "I64");
    let sizes = text.integers(&[heads as i64, 0, COLUMNS as i64]);
    let empty = text.layer("Concat", "axis=\"0\"", &[batch, sizes], "I64");
    let nothing = text.floats(&[], |_| 0.0);
    let kept = |text: &mut Text, id: &str, new: Value| {
        let initial = text.layer("Broadcast", "mode=\"numpy\"", &[nothing, empty], "FP32");
        let variable = format!("variable_id=\"{id}\" variable_type=\"f32\" variable_shape=\"?,{heads},?,{COLUMNS}\"");
        let old = text.layer("ReadValue", &variable, &[initial], "FP32");
        let axis = text.integers(&[0]);
        let old = match beams {
            Some(beams) => text.layer("Gather", "batch_dims=\"0\"", &[old, beams, axis], "FP32"),
            None => old,
        };
        let all = text.layer("Concat", "axis=\"-2\"", &[old, new], "FP32");
        text.layer("Assign", &variable, &[all], "FP32");
        (old, all)
    };
    let ((old, k), (_, v)) = (kept(&mut text, "keys", k), kept(&mut text, "values", v));
    // How many rows there were.
    let before = text.layer("ShapeOf", "output_type=\"i64\"", &[old], "I64");
    let before = text.layer("Convert", "destination_type=\"f32\"", &[before], "FP32");
    let (k, v) = match repeats {
        1 => (k, v),
        _ => (text.repeated(k, heads, repeats), text.repeated(v, heads, repeats)),
    };
    let end = text.attention(&[q, k, v, mask], false);
    let end = text.joined(end);
    text.layer("Result", "", &[end], "");
    text.layer("Result", "", &[before], "");
    text
}

struct Step {
    rows: usize,
    keys: usize,
    beams: Vec<i32>,
}

fn give(request: &mut Request, [heads, repeats]: [usize; 2], has_beams: bool, step: &Step, seed: usize) {
    let (batch, width) = (step.beams.len(), heads * COLUMNS);
    let mut inputs = vec![
        values(&[batch, step.rows, width * repeats], seed),
        values(&[batch, step.rows, width], seed + 1),
        values(&[batch, step.rows, width], seed + 2),
        values(&[batch, 1, step.rows, step.keys], seed + 3),
    ];
    if has_beams {
        inputs.push(Tensor::from_slice(&step.beams, [batch]).unwrap());
    }
    inputs.into_iter().enumerate().for_each(|(index, input)| request.set_input(index, input).unwrap());
}

#[test]
fn keys_and_values_grow_where_they_are() {
    for (heads, repeats, has_beams) in [(2, 2, true), (3, 1, true), (2, 1, false)] {
        let text = decoder(heads, repeats, has_beams);
        let (mut plain, mut fast) = (text.plain_request(), text.request(false));
        fast.set_profiling(true);
        let check = |step: &Step, seed: usize, plain: &mut Request, fast: &mut Request| {
            let what = format!("{heads} {repeats} {has_beams}, step {seed}");
            for request in [&mut *plain, &mut *fast] {
                give(request, [heads, repeats], has_beams, step, seed);
                request.infer().unwrap();
            }
            for output in 0..2 {
                compare(plain.output(output).unwrap(), fast.output(output).unwrap(), &what);
            }
            for variable in 0..2 {
                assert_eq!(plain.variable(variable).unwrap(), fast.variable(variable).unwrap(), "{what}");
            }
        };
        let two = |first: i32, second: i32| if has_beams { vec![first, second] } else { vec![0, 1] };
        for round in 0..2 {
            check(&Step { rows: 5, keys: 5, beams: vec![0, 1] }, round, &mut plain, &mut fast);
            for step in 0..8 {
                let beams = if step == 4 { two(1, 1) } else { two(0, 1) };
                check(&Step { rows: 1, keys: 6 + step, beams }, 10 + step, &mut plain, &mut fast);
            }
            // Rows of several at once, and a value that was set.
            check(&Step { rows: 3, keys: 16, beams: two(-1, 0) }, 30, &mut plain, &mut fast);
            for request in [&mut plain, &mut fast] {
                for variable in 0..2 {
                    request.set_variable(variable, values(&[2, heads, 7, COLUMNS], 40 + variable)).unwrap();
                }
            }
            check(&Step { rows: 1, keys: 8, beams: two(0, 1) }, 50, &mut plain, &mut fast);
            assert!(fast.set_variable(0, values(&[2, heads + 1, 7, COLUMNS], 0)).is_err());
            plain.reset();
            fast.reset();
        }
        let kinds: Vec<&str> = fast.profile().unwrap().entries.iter().map(|entry| entry.type_name.as_str()).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "Append").count(), 2, "{kinds:?}");
        assert!(!kinds.contains(&"Broadcast") && kinds.contains(&"Fused"), "{kinds:?}");
    }
}

/// What was put behind the rows of a variable is gone when the inference fails.
#[test]
fn a_failed_step_leaves_what_was_kept() {
    let text = decoder(2, 2, true);
    let mut request = text.request(false);
    let step = |request: &mut Request, rows: usize, keys: usize, beams: [i32; 2]| {
        give(request, [2, 2], true, &Step { rows, keys, beams: beams.to_vec() }, rows + keys);
        request.infer()
    };
    step(&mut request, 4, 4, [0, 1]).unwrap();
    step(&mut request, 1, 5, [0, 1]).unwrap();
    for beams in [[0, 1], [1, 0]] {
        let before = [0, 1].map(|variable| request.variable(variable).unwrap().unwrap());
        // The mask is for more keys than there are.
        assert!(step(&mut request, 1, 9, beams).is_err());
        assert_eq!([0, 1].map(|variable| request.variable(variable).unwrap().unwrap()), before, "{beams:?}");
    }
    // Two images of new rows, of which only one is picked.
    give(&mut request, [2, 2], true, &Step { rows: 1, keys: 6, beams: vec![0, 1] }, 3);
    request.set_input(4, Tensor::from_slice(&[0i32], [1]).unwrap()).unwrap();
    let message = request.infer().unwrap_err().to_string();
    assert!(message.contains("does not continue the 1 images that are picked of a state [2,2,5,8]"), "{message}");
    assert!(!message.contains("id -"), "{message}");
    step(&mut request, 1, 6, [0, 1]).unwrap();
    assert_eq!(request.variable(0).unwrap().unwrap().shape()[..], [2, 2, 6, COLUMNS]);
}

/// How exporters write the two products of an attention.
#[derive(Debug, Clone, Copy)]
enum Written {
    /// Keras: contractions of `[batch, rows, heads, columns]`, the queries scaled.
    Einsum,
    /// MatMul with the keys turned beforehand, the scores divided.
    Turned,
    /// MatMul that turns the keys itself, the scores multiplied.
    Turning,
}

/// An attention of queries and what keys and values are made of, both `[batch, rows, heads * columns]`, with a mask if its
/// shape is given. `batch_and_rows` declares the shapes of both.
fn written(form: Written, batch_and_rows: [&str; 2], mask: Option<&[usize]>) -> Text {
    const HEADS: usize = 3;
    let mut text = Text::default();
    let [q, memory] = batch_and_rows.map(|known| text.parameter("f32", &format!("{known},{}", HEADS * COLUMNS)));
    let (k, v) = (text.unary("Tanh", memory), text.unary("Sin", memory));
    let split = |text: &mut Text, x, order: &[i64]| {
        let pattern = text.integers(&[0, 0, HEADS as i64, COLUMNS as i64]);
        let x = text.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32");
        let order = text.integers(order);
        text.layer("Transpose", "", &[x, order], "FP32")
    };
    let rows = [0, 2, 1, 3];
    let binary = |text: &mut Text, kind: &str, a, b| text.layer(kind, "auto_broadcast=\"numpy\"", &[a, b], "FP32");
    let product = |text: &mut Text, a, b, turns: bool| {
        text.layer("MatMul", &format!("transpose_a=\"false\" transpose_b=\"{turns}\""), &[a, b], "FP32")
    };
    let einsum = |text: &mut Text, equation: &str, a, b| {
        text.layer("Einsum", &format!("equation=\"{equation}\""), &[a, b], "FP32")
    };
    let masked = |text: &mut Text, scores| match mask {
        Some(shape) => {
            let mask = text.floats(shape, |i| if i % 5 == 3 { -1e9 } else { (i % 7) as f32 / 7.0 });
            binary(text, "Add", mask, scores)
        }
        None => scores,
    };
    let end = match form {
        Written::Einsum => {
            let plain = |text: &mut Text, x| {
                let pattern = text.integers(&[0, 0, HEADS as i64, COLUMNS as i64]);
                text.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32")
            };
            let [q, k, v] = [q, k, v].map(|x| plain(&mut text, x));
            let scale = text.floats(&[], |_| 0.35);
            let q = binary(&mut text, "Multiply", q, scale);
            let scores = einsum(&mut text, "aecd,abcd->acbe", k, q);
            let scores = masked(&mut text, scores);
            let weights = text.layer("SoftMax", "axis=\"3\"", &[scores], "FP32");
            einsum(&mut text, "acbe,aecd->abcd", weights, v)
        }
        Written::Turned | Written::Turning => {
            let turns = matches!(form, Written::Turning);
            let order = if turns { rows } else { [0, 2, 3, 1] };
            let (q, k, v) = (split(&mut text, q, &rows), split(&mut text, k, &order), split(&mut text, v, &rows));
            let scores = product(&mut text, q, k, turns);
            let scale = text.floats(&[1], |_| if turns { 0.35 } else { 4.0 });
            let scores = binary(&mut text, if turns { "Multiply" } else { "Divide" }, scores, scale);
            let scores = masked(&mut text, scores);
            let weights = text.layer("SoftMax", "axis=\"3\"", &[scores], "FP32");
            let end = product(&mut text, weights, v, false);
            let order = text.integers(&rows);
            text.layer("Transpose", "", &[end, order], "FP32")
        }
    };
    text.layer("Result", "", &[end], "");
    text
}

#[test]
fn products_around_a_softmax_are_attention() {
    for form in [Written::Einsum, Written::Turned, Written::Turning] {
        let masks: [(&str, &str, Option<&[usize]>); 6] = [
            ("?,?", "?,?", None),
            ("?,?", "?,?", Some(&[1, 1, 1, 1])),
            ("?,?", "?,?", Some(&[1])),
            ("2,40", "2,300", Some(&[1, 1, 1, 300])),
            ("2,40", "2,300", Some(&[3, 40, 300])),
            ("2,40", "2,300", Some(&[2, 1, 40, 300])),
        ];
        for (of_queries, of_keys, mask) in masks {
            let text = written(form, [of_queries, of_keys], mask);
            for [batch, queries, keys] in [[1, 1, 5], [2, 40, 300]] {
                if batch == 1 && of_queries != "?,?" {
                    continue;
                }
                let shape = |rows| [batch, rows, 3 * COLUMNS];
                let given = [values(&shape(queries), 1), values(&shape(keys), 2)];
                let what = format!("{form:?} {mask:?} {batch} {queries} {keys}");
                let (actual, entries) = text.run(&given, false);
                compare(&text.unoptimised(&given), &actual, &what);
                let kinds: Vec<&str> = entries.iter().map(|entry| &*entry.type_name).collect();
                let others = ["SoftMax", "Einsum", "MatMul", "Transpose"];
                assert!(!kinds.iter().any(|kind| others.contains(kind)), "{what}: {kinds:?}");
                assert!(
                    entries.iter().all(|entry| entry.is_kernel || entry.type_name == "Reshape"),
                    "{what}: {kinds:?}"
                );
            }
        }
    }
}

/// Heads without a batch, as torch's `bmm` has them, with a computed factor of the scores.
#[test]
fn heads_without_a_batch() {
    const HEADS: usize = 3;
    let mut text = Text::default();
    let [q, memory] = [(); 2].map(|()| text.parameter("f32", &format!("?,{}", HEADS * COLUMNS)));
    let (k, v) = (text.unary("Tanh", memory), text.unary("Sin", memory));
    let [q, k, v] = [(q, [1, 0, 2]), (k, [1, 2, 0]), (v, [1, 0, 2])].map(|(x, order)| {
        let pattern = text.integers(&[0, HEADS as i64, COLUMNS as i64]);
        let x = text.layer("Reshape", "special_zero=\"true\"", &[x, pattern], "FP32");
        let order = text.integers(&order);
        text.layer("Transpose", "", &[x, order], "FP32")
    });
    let scores = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[q, k], "FP32");
    let [base, exponent] = [8.0, -0.5].map(|value| text.floats(&[1], |_| value));
    let scale = text.binary("Power", base, exponent);
    let scores = text.binary("Multiply", scores, scale);
    let weights = text.layer("SoftMax", "axis=\"2\"", &[scores], "FP32");
    let end = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[weights, v], "FP32");
    let order = text.integers(&[1, 0, 2]);
    let end = text.layer("Transpose", "", &[end, order], "FP32");
    text.layer("Result", "", &[end], "");
    for [queries, keys] in [[1, 5], [40, 300]] {
        let shape = |rows| [rows, HEADS * COLUMNS];
        let given = [values(&shape(queries), 1), values(&shape(keys), 2)];
        let (actual, entries) = text.run(&given, false);
        compare(&text.unoptimised(&given), &actual, &format!("{queries} {keys}"));
        let kinds: Vec<&str> = entries.iter().map(|entry| &*entry.type_name).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == "Fused").count(), 1, "{kinds:?}");
        assert!(!kinds.iter().any(|kind| ["SoftMax", "MatMul", "Transpose"].contains(kind)), "{kinds:?}");
        assert!(entries.iter().all(|entry| entry.is_kernel || entry.type_name == "Reshape"), "{kinds:?}");
    }
}

/// A mask that may repeat the scores leaves the layers as they are.
#[test]
fn other_products_around_a_softmax_stay() {
    let text = written(Written::Turning, ["?,?"; 2], Some(&[2, 3, 4, 5]));
    let given = [values(&[1, 4, 3 * COLUMNS], 1), values(&[1, 5, 3 * COLUMNS], 2)];
    let (actual, entries) = text.run(&given, false);
    compare(&text.unoptimised(&given), &actual, "a mask of two");
    assert!(entries.iter().any(|entry| entry.type_name == "SoftMax"));
}
