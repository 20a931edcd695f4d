//! Sums of truth values, which count where they are read as numbers.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value};

/// A CumSum of truth values along the last axis, reshaped on its way to its readers.
fn sum(text: &mut Text, values: Value) -> Value {
    let axis = text.constant("i64", &[], &1i64.to_le_bytes());
    let sum = text.layer("CumSum", "", &[values, axis], "BOOL");
    let shape = text.integers(&[3, -1]);
    text.layer("Reshape", "special_zero=\"false\"", &[sum, shape], "BOOL")
}

fn run(end: impl Fn(&mut Text, Value) -> Value) -> Tensor {
    let mut text = Text::default();
    let values = text.parameter("boolean", "?,6");
    let sum = sum(&mut text, values);
    let end = end(&mut text, sum);
    text.layer("Result", "", &[end], "");
    text.run(&[Tensor::from_booleans(&[true, false, true, true, false, true], [1, 6]).unwrap()], false).0
}

#[test]
fn truth_values_are_counted() {
    let counts = |text: &mut Text, sum: Value| text.layer("Convert", "destination_type=\"i64\"", &[sum], "I64");
    assert_eq!(run(counts), Tensor::from_slice(&[1i64, 1, 2, 3, 3, 4], [3, 2]).unwrap());
    let of_one = |text: &mut Text, sum: Value| {
        let one = text.constant("boolean", &[], &[1]);
        text.layer("Equal", "auto_broadcast=\"numpy\"", &[sum, one], "BOOL")
    };
    let expected = [true, true, false, false, false, false];
    assert_eq!(run(of_one), Tensor::from_booleans(&expected, [3, 2]).unwrap());
}

#[test]
fn other_readers_see_truth_values() {
    let all = Tensor::from_booleans(&[true; 6], [3, 2]).unwrap();
    assert_eq!(run(|_, sum| sum), all);
    let none = run(|text, sum| text.layer("LogicalNot", "", &[sum], "BOOL"));
    assert_eq!(none, Tensor::from_booleans(&[false; 6], [3, 2]).unwrap());
}
