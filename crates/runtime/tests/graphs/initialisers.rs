//! Initialisers of variables that compute as much as a model.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value, compare};

/// A product of the second input, computed once after a reset, to which every inference adds the first one.
fn stateful() -> Text {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,8");
    let context = text.parameter("f32", "?,24");
    let weights = text.floats(&[24, 8], |i| ((i * 29 % 83) as f32 / 41.0 - 1.0) / 5.0);
    let product = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[context, weights], "FP32");
    let bias = text.floats(&[8], |i| i as f32 / 8.0);
    let product = text.binary("Add", product, bias);
    let first = text.unary("ReLU", product);
    let variable = |id: &str| format!("variable_id=\"{id}\" variable_type=\"f32\" variable_shape=\"?,8\"");
    let plain = text.floats(&[1, 8], |i| i as f32);
    let sum = |text: &mut Text, id: &str, initial: Value| {
        let read = text.layer("ReadValue", &variable(id), &[initial], "FP32");
        let sum = text.binary("Add", read, x);
        text.layer("Assign", &variable(id), &[sum], "FP32");
        sum
    };
    let (a, b) = (sum(&mut text, "a", first), sum(&mut text, "b", plain));
    let end = text.layer("Concat", "axis=\"1\"", &[a, b], "FP32");
    text.layer("Result", "", &[end], "");
    text
}

fn values_of(shape: [usize; 2], step: usize) -> Tensor {
    let values: Vec<f32> = (0..shape[0] * shape[1]).map(|i| ((i * 37 + step) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

#[test]
fn products_are_planned_and_run_after_a_reset_only() {
    let text = stateful();
    let (mut plain, mut fast) = (text.request(true), text.request(false));
    for round in 0..3 {
        for step in 0..3 {
            let inputs = [values_of([round + 1, 8], step), values_of([round + 1, 24], 7 * round + step)];
            for request in [&mut plain, &mut fast] {
                inputs.iter().enumerate().for_each(|(index, input)| request.set_input(index, input.clone()).unwrap());
                request.infer().unwrap();
            }
            let what = format!("round {round}, step {step}");
            compare(plain.output(0).unwrap(), fast.output(0).unwrap(), &what);
            assert_eq!(
                plain.variable(1).unwrap().unwrap().shape(),
                fast.variable(1).unwrap().unwrap().shape(),
                "{what}"
            );
        }
        plain.reset();
        fast.reset();
    }
    // A value that is set takes the place of the initial one.
    for request in [&mut plain, &mut fast] {
        request.set_variable(0, values_of([3, 8], 5)).unwrap();
        request.infer().unwrap();
    }
    compare(plain.output(0).unwrap(), fast.output(0).unwrap(), "with a value given");
}

/// Decoders keep what the encoder gave, and compute keys from what they keep.
#[test]
fn initialisers_read_other_variables() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,8");
    let context = text.parameter("f32", "?,24");
    let read = |text: &mut Text, id: &str, width: usize, initial: Value| {
        let variable = format!("variable_id=\"{id}\" variable_type=\"f32\" variable_shape=\"?,{width}\"");
        let read = text.layer("ReadValue", &variable, &[initial], "FP32");
        text.layer("Assign", &variable, &[read], "FP32");
        read
    };
    let kept = read(&mut text, "kept", 24, context);
    let weights = text.floats(&[24, 8], |i| ((i * 29 % 83) as f32 / 41.0 - 1.0) / 5.0);
    let product = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[kept, weights], "FP32");
    let keys = read(&mut text, "keys", 8, product);
    let turned = text.unary("Tanh", keys);
    let values = read(&mut text, "values", 8, turned);
    let sum = text.binary("Add", x, keys);
    let end = text.binary("Add", sum, values);
    text.layer("Result", "", &[end], "");
    let (mut plain, mut fast) = (text.request(true), text.request(false));
    for round in 0..3 {
        for step in 0..2 {
            let inputs = [values_of([round + 1, 8], step), values_of([round + 1, 24], 7 * round + step)];
            for request in [&mut plain, &mut fast] {
                inputs.iter().enumerate().for_each(|(index, input)| request.set_input(index, input.clone()).unwrap());
                request.infer().unwrap();
            }
            compare(plain.output(0).unwrap(), fast.output(0).unwrap(), &format!("round {round}, step {step}"));
        }
        for request in [&mut plain, &mut fast] {
            request.reset();
            // The keys are computed from what the variable holds by then.
            if round == 1 {
                request.set_variable(0, values_of([3, 24], 5)).unwrap();
            }
        }
    }
    let inputs = [values_of([1, 8], 0), values_of([1, 24], 0)];
    inputs.iter().enumerate().for_each(|(index, input)| fast.set_input(index, input.clone()).unwrap());
    fast.infer().unwrap();
    assert_eq!(fast.variable(0).unwrap().unwrap(), inputs[1]);
}
