//! Products and convolutions of codes with constants of i32, as quantised ONNX models have them.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value};

/// Codes of a tensor, and the constant's range.
const SIGNED: [i32; 2] = [-128, 127];
const SHIFTED: [i32; 2] = [-97, 158];

fn codes(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<u8> = (0..count).map(|i| ((i * 89 + i / 7 * 31) % 256) as u8).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

fn zero(value: u8) -> Tensor {
    Tensor::from_slice(&[value], [0; 0]).unwrap()
}

impl Text {
    /// Integers that reach both ends of a range.
    fn i32s(&mut self, shape: &[usize], [low, high]: [i32; 2]) -> Value {
        let count: usize = shape.iter().product();
        let value = |i: usize| match i {
            0 => low,
            1 => high,
            _ => low + (i as i32 * 53 + i as i32 / 11) % (high - low + 1),
        };
        let bytes: Vec<u8> = (0..count).flat_map(|i| value(i).to_le_bytes()).collect();
        self.constant("i32", shape, &bytes)
    }

    fn convert(&mut self, x: Value, to: &str) -> Value {
        self.layer("Convert", &format!("destination_type=\"{to}\""), &[x], "I32")
    }

    /// What codes are without the code of zero.
    fn difference(&mut self, codes: Value, zero: Value) -> Value {
        let (codes, zero) = (self.convert(codes, "i32"), self.convert(zero, "i32"));
        self.layer("Subtract", "auto_broadcast=\"numpy\"", &[codes, zero], "I32")
    }
}

/// The kernel's result is that of the integers, bit by bit, and the layers are `kinds`.
fn check(text: &Text, inputs: &[Tensor], kinds: &[&str]) {
    let (expected, _) = text.run(inputs, true);
    let (actual, entries) = text.run(inputs, false);
    let names: Vec<&str> = entries.iter().map(|entry| &*entry.type_name).collect();
    assert_eq!(names, kinds);
    assert!(entries.iter().all(|entry| entry.is_kernel), "{entries:?}");
    let bits = |tensor: &Tensor| tensor.slice::<f32>().unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert!(bits(&expected) == bits(&actual), "{:?}", inputs[0].shape());
}

#[test]
fn products() {
    for (range, has_zero, [k, n], is_transposed) in [
        (SIGNED, true, [64, 48], true),
        (SIGNED, false, [64, 48], false),
        (SHIFTED, true, [37, 21], false),
        (SHIFTED, false, [37, 21], true),
        ([0, 255], true, [130, 5], true),
        ([-255, 0], true, [1, 1], true),
    ] {
        let mut text = Text::default();
        let x = text.parameter("u8", &format!("?,?,{k}"));
        let data = if has_zero {
            let zero = text.parameter("u8", "");
            text.difference(x, zero)
        } else {
            text.convert(x, "i32")
        };
        let weights = text.i32s(&if is_transposed { [n, k] } else { [k, n] }, range);
        let data_of = format!("transpose_a=\"false\" transpose_b=\"{is_transposed}\"");
        let sums = text.layer("MatMul", &data_of, &[data, weights], "I32");
        let end = text.convert(sums, "f32");
        text.layer("Result", "", &[end], "");
        for (rows, of_zero) in [(1, 0), (13, 128), (70, 255)] {
            let mut inputs = vec![codes(&[2, rows, k])];
            inputs.extend(has_zero.then(|| zero(of_zero)));
            check(&text, &inputs, &["Fused"]);
        }
    }
}

/// Three products of one difference, as attentions have them: each takes the codes.
#[test]
fn products_of_the_same_codes() {
    let mut text = Text::default();
    let x = text.parameter("u8", "?,32");
    let zero_code = text.parameter("u8", "1");
    let data = text.difference(x, zero_code);
    let mut ends = Vec::new();
    for _ in 0..3 {
        let weights = text.i32s(&[32, 16], SIGNED);
        let sums = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[data, weights], "I32");
        ends.push(text.convert(sums, "f32"));
    }
    let end = text.layer("Concat", "axis=\"1\"", &ends, "FP32");
    text.layer("Result", "", &[end], "");
    let inputs = [codes(&[9, 32]), Tensor::from_slice(&[77u8], [1]).unwrap()];
    check(&text, &inputs, &["Fused", "Fused", "Fused", "Concat"]);
}

/// Sums that are read as integers, and data that are no codes, are those of plain integers.
#[test]
fn sums_that_stay_integers() {
    let mut text = Text::default();
    let x = text.parameter("u8", "?,32");
    let data = text.convert(x, "i32");
    let weights = text.i32s(&[32, 16], SIGNED);
    let sums = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[data, weights], "I32");
    let doubled = text.layer("Add", "auto_broadcast=\"numpy\"", &[sums, sums], "I32");
    let end = text.convert(doubled, "f32");
    text.layer("Result", "", &[end], "");
    check(&text, &[codes(&[5, 32])], &["Convert", "MatMul", "Add", "Convert"]);
}

fn attributes(axes: usize, stride: usize, dilation: usize, pads: [usize; 2]) -> String {
    let of = |value: usize| vec![value.to_string(); axes].join(",");
    format!(
        "strides=\"{}\" dilations=\"{}\" pads_begin=\"{}\" pads_end=\"{}\" auto_pad=\"explicit\"",
        of(stride),
        of(dilation),
        of(pads[0]),
        of(pads[1])
    )
}

/// A convolution: its type, filter and data, stride and dilation, and pads.
type Case = (&'static str, &'static [usize], &'static [usize], [usize; 2], [usize; 2]);

#[test]
fn convolutions() {
    let cases: &[Case] = &[
        ("Convolution", &[48, 3, 7, 7], &[2, 3, 33, 17], [2, 1], [3, 3]),
        ("Convolution", &[5, 4, 1, 1], &[1, 4, 9, 8], [1, 1], [0, 0]),
        ("Convolution", &[32, 48, 3, 3], &[2, 48, 14, 11], [1, 1], [1, 1]),
        ("Convolution", &[20, 19, 3, 3], &[1, 19, 15, 15], [2, 1], [0, 1]),
        ("Convolution", &[64, 32, 1, 1], &[3, 32, 7, 7], [1, 1], [0, 0]),
        ("Convolution", &[16, 33, 1, 1], &[1, 33, 8, 9], [2, 1], [0, 0]),
        ("Convolution", &[24, 16, 3, 3], &[1, 16, 5, 5], [1, 4], [4, 4]),
        ("Convolution", &[17, 16, 5], &[2, 16, 40], [1, 1], [2, 2]),
        ("Convolution", &[16, 24, 64], &[1, 24, 21], [1, 1], [32, 31]),
        ("Convolution", &[16, 16, 3, 3, 3], &[1, 16, 6, 7, 8], [1, 1], [1, 1]),
        ("GroupConvolution", &[2, 16, 16, 3, 3], &[1, 32, 9, 9], [1, 1], [1, 1]),
        ("GroupConvolution", &[4, 24, 24, 3, 3], &[2, 96, 7, 8], [2, 1], [1, 1]),
        ("GroupConvolution", &[3, 48, 48, 16], &[1, 144, 25], [1, 1], [8, 8]),
        ("GroupConvolution", &[37, 1, 1, 3, 3], &[2, 37, 12, 9], [1, 1], [1, 1]),
        ("GroupConvolution", &[48, 1, 1, 5, 5], &[1, 48, 13, 13], [2, 1], [2, 2]),
        ("GroupConvolution", &[16, 1, 1, 9], &[1, 16, 30], [1, 2], [8, 8]),
    ];
    for (kind, filter, shape, [stride, dilation], pads) in cases {
        for (range, has_zero) in [(SIGNED, true), (SHIFTED, true), (SHIFTED, false), ([0, 255], true)] {
            let mut text = Text::default();
            let axes = shape.len() - 2;
            let x = text.parameter("u8", &format!("?,{}{}", shape[1], ",?".repeat(axes)));
            let data = if has_zero {
                let zero = text.parameter("u8", "");
                text.difference(x, zero)
            } else {
                text.convert(x, "i32")
            };
            let weights = text.i32s(filter, range);
            let attributes = attributes(axes, *stride, *dilation, *pads);
            let sums = text.layer(kind, &attributes, &[data, weights], "I32");
            let end = text.convert(sums, "f32");
            text.layer("Result", "", &[end], "");
            for of_zero in [0, 131] {
                let mut inputs = vec![codes(shape)];
                inputs.extend(has_zero.then(|| zero(of_zero)));
                check(&text, &inputs, &["Fused"]);
            }
        }
    }
}

/// Groups of few channels, and constants that bytes do not hold, are those of plain integers.
#[test]
fn what_bytes_do_not_hold() {
    for (kind, filter, channels, range) in [
        ("GroupConvolution", &[32, 2, 2, 3, 3][..], 64, SIGNED),
        ("Convolution", &[16, 16, 3, 3], 16, [-200, 200]),
        ("Convolution", &[16, 16, 3, 3], 16, [1000, 1100]),
    ] {
        let mut text = Text::default();
        let x = text.parameter("u8", &format!("1,{channels},8,8"));
        let data = text.convert(x, "i32");
        let weights = text.i32s(filter, range);
        let sums = text.layer(kind, &attributes(2, 1, 1, [1, 1]), &[data, weights], "I32");
        let end = text.convert(sums, "f32");
        text.layer("Result", "", &[end], "");
        let inputs = [codes(&[1, channels, 8, 8])];
        let (expected, _) = text.run(&inputs, true);
        let (actual, entries) = text.run(&inputs, false);
        assert!(entries.iter().all(|entry| entry.type_name != "Fused"), "{entries:?}");
        assert_eq!(expected.slice::<f32>().unwrap(), actual.slice::<f32>().unwrap());
    }
}

/// The whole way of a dynamically quantised model: values become codes with a scale and a zero of their own, are multiplied,
/// and become values again.
#[test]
fn values_become_codes_and_values_again() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,40");
    let zero_code = text.parameter("u8", "");
    let scale = text.parameter("f32", "");
    let of_zero = text.convert(zero_code, "f32");
    let scaled = text.binary("Divide", x, scale);
    let rounded = text.layer("Round", "mode=\"half_to_even\"", &[scaled], "FP32");
    let shifted = text.binary("Add", rounded, of_zero);
    let limited = text.layer("Clamp", "min=\"0\" max=\"255\"", &[shifted], "FP32");
    let made = text.convert(limited, "u8");
    let data = text.difference(made, zero_code);
    let weights = text.i32s(&[40, 24], SHIFTED);
    let sums = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[data, weights], "I32");
    let values = text.convert(sums, "f32");
    let end = text.binary("Multiply", values, scale);
    let bias = text.floats(&[24], |i| i as f32 / 3.0);
    let end = text.binary("Add", end, bias);
    text.layer("Result", "", &[end], "");
    let values: Vec<f32> = (0..40 * 11).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    let inputs = [
        Tensor::from_slice(&values, [11, 40]).unwrap(),
        zero(121),
        Tensor::from_slice(&[2.0f32 / 251.0], [0; 0]).unwrap(),
    ];
    check(&text, &inputs, &["Convert", "Fused", "Fused", "Fused"]);
}

/// Bytes of values without their fractions, and values of bytes, within chains.
#[test]
fn chains_between_bytes() {
    let mut text = Text::default();
    let x = text.parameter("u8", "?,3,?");
    let values = text.convert(x, "f32");
    let factor = text.floats(&[1, 3, 1], |i| 0.3 + i as f32);
    let values = text.binary("Multiply", values, factor);
    let limited = text.layer("Clamp", "min=\"1.5\" max=\"254.9\"", &[values], "FP32");
    let made = text.convert(limited, "u8");
    let again = text.convert(made, "f32");
    let half = text.floats(&[], |_| 0.5);
    let end = text.binary("Multiply", again, half);
    text.layer("Result", "", &[end], "");
    for width in [1, 19, 600] {
        check(&text, &[codes(&[2, 3, width])], &["Fused", "Fused"]);
    }
}

/// A value that no Clamp keeps within bytes is converted on its own.
#[test]
fn values_beyond_bytes() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?");
    let two = text.floats(&[], |_| 2.0);
    let doubled = text.binary("Multiply", x, two);
    let limited = text.layer("Clamp", "min=\"0\" max=\"300\"", &[doubled], "FP32");
    let made = text.convert(limited, "u8");
    let end = text.convert(made, "f32");
    text.layer("Result", "", &[end], "");
    let values: Vec<f32> = (0..100).map(|i| i as f32 * 1.7).collect();
    check(&text, &[Tensor::from_slice(&values, [100]).unwrap()], &["Fused", "Convert", "Convert"]);
}
