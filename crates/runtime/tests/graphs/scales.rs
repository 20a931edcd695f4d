//! Scales of channels that go into filters, against the layers one by one.

use ovir_tensor::Tensor;

use super::text::{Text, Value, compare};

const PLANE: &str = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";

impl Text {
    fn filtered(&mut self, kind: &str, x: Value, filter: &[usize]) -> Value {
        let weights = self.floats(filter, |i| (i * 31 % 67) as f32 / 33.0 - 1.0);
        let more = if kind == "ConvolutionBackpropData" { " output_padding=\"0,0\"" } else { "" };
        self.layer(kind, &format!("{PLANE}{more}"), &[x, weights], "FP32")
    }

    fn normalised(&mut self, x: Value, channels: usize) -> Value {
        let gamma = self.floats(&[channels], |i| 0.5 + (i % 5) as f32 / 4.0);
        let beta = self.floats(&[channels], |i| (i % 7) as f32 / 3.0 - 1.0);
        let mean = self.floats(&[channels], |i| (i % 3) as f32 - 1.0);
        let variance = self.floats(&[channels], |i| 0.25 + (i % 4) as f32);
        self.layer("BatchNormInference", "epsilon=\"0.001\"", &[gamma, beta, x, mean, variance], "FP32")
    }

    fn times(&mut self, x: Value, shape: &[usize]) -> Value {
        let factor = self.floats(shape, |i| 0.75 + (i % 3) as f32 / 4.0);
        self.binary("Multiply", factor, x)
    }
}

/// Runs the model, and says which types its steps have.
fn check(text: &Text, shape: &[usize], what: &str) -> Vec<String> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let inputs = [Tensor::from_slice(&values, shape).unwrap()];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.unoptimised(&inputs), &actual, what);
    assert!(entries.iter().all(|entry| entry.is_kernel), "{what}");
    entries.into_iter().map(|entry| entry.type_name).filter(|name| name != "Reorder").collect()
}

#[test]
fn norms_go_into_all_kinds_of_convolutions() {
    for (kind, filter, channels) in [
        ("Convolution", &[20usize, 24, 3, 3][..], 20),
        ("GroupConvolution", &[24, 1, 1, 3, 3], 24),
        ("GroupConvolution", &[3, 10, 8, 3, 3], 30),
        ("ConvolutionBackpropData", &[24, 18, 3, 3], 18),
    ] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,24,?,?");
        let value = text.filtered(kind, x, filter);
        let value = text.normalised(value, channels);
        let end = text.unary("ReLU", value);
        text.layer("Result", "", &[end], "");
        assert_eq!(check(&text, &[2, 24, 9, 11], kind), ["Fused"], "{kind}");
    }
}

#[test]
fn factors_and_biases_go_into_convolutions() {
    for (factor, bias) in [(&[20usize, 1, 1][..], true), (&[1, 20, 1, 1], false), (&[], true), (&[1], false)] {
        let mut text = Text::default();
        let x = text.parameter("f32", "1,24,7,7");
        let mut value = text.filtered("Convolution", x, &[20, 24, 3, 3]);
        if bias {
            let bias = text.floats(&[1, 20, 1, 1], |i| i as f32 / 10.0 - 1.0);
            value = text.binary("Add", value, bias);
        }
        let end = text.times(value, factor);
        text.layer("Result", "", &[end], "");
        let expected = if bias { "Fused" } else { "Convolution" };
        assert_eq!(check(&text, &[1, 24, 7, 7], "factor"), [expected], "{factor:?}");
    }
}

/// A GroupConvolution with one weight a channel is a factor, unless it has padding or leaves windows out.
#[test]
fn weights_of_single_channels_are_factors() {
    let neutral = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"same_upper\"";
    let strided = neutral.replace("strides=\"1,1\"", "strides=\"2,1\"");
    let padded = neutral.replace("pads_end=\"0,0\" auto_pad=\"same_upper\"", "pads_end=\"0,1\" auto_pad=\"explicit\"");
    let one = |attributes: &str, after: bool| {
        let mut text = Text::default();
        let mut value = text.parameter("f32", "1,24,7,7");
        if after {
            value = text.filtered("Convolution", value, &[24, 24, 3, 3]);
        }
        let weights = text.floats(&[24, 1, 1, 1, 1], |i| i as f32 / 10.0 - 1.0);
        let end = text.layer("GroupConvolution", attributes, &[value, weights], "FP32");
        text.layer("Result", "", &[end], "");
        check(&text, &[1, 24, 7, 7], attributes)
    };
    assert_eq!(one(neutral, false), ["Multiply"]);
    assert_eq!(one(neutral, true), ["Convolution"]);
    assert_eq!(one(&strided, false), ["GroupConvolution"]);
    assert_eq!(one(&padded, false), ["GroupConvolution"]);
}

/// A bias in front of a layer that no convolution takes in is added once.
#[test]
fn sums_of_other_layers_keep_their_bias() {
    let neutral = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"explicit\"";
    for is_norm in [true, false] {
        let mut text = Text::default();
        let x = text.parameter("f32", "1,24,7,7");
        let value = text.unary("ReLU", x);
        let bias = text.floats(&[1, 24, 1, 1], |i| i as f32 / 10.0 - 1.0);
        let value = text.binary("Add", value, bias);
        let end = if is_norm {
            text.normalised(value, 24)
        } else {
            let weights = text.floats(&[24, 1, 1, 1, 1], |i| i as f32 / 10.0 - 1.0);
            text.layer("GroupConvolution", neutral, &[value, weights], "FP32")
        };
        text.layer("Result", "", &[end], "");
        check(&text, &[1, 24, 7, 7], "a bias");
    }
}

/// A norm in front of a convolution, one whose convolution has another reader, and a factor that is none of channels.
#[test]
fn others_stay_beside() {
    let mut text = Text::default();
    let x = text.parameter("f32", "1,16,8,8");
    let value = text.normalised(x, 16);
    let value = text.unary("ReLU", value);
    let shared = text.filtered("Convolution", value, &[16, 16, 3, 3]);
    let norm = text.normalised(shared, 16);
    let both = text.binary("Add", norm, shared);
    let rows = text.filtered("Convolution", both, &[16, 16, 3, 3]);
    let end = text.times(rows, &[8, 1]);
    text.layer("Result", "", &[end], "");
    check(&text, &[1, 16, 8, 8], "others");
}

#[test]
fn what_is_done_to_the_data_goes_into_the_convolution() {
    let unpadded =
        PLANE.replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"").replace("pads_end=\"1,1\"", "pads_end=\"0,0\"");
    for (attributes, has_bias, is_sum_first, count) in [
        (&unpadded[..], true, false, 2),
        (&unpadded, false, false, 2),
        (&unpadded, true, true, 2),
        // Zeros around the data would have to be shifted too: only the factor goes into the filters.
        (PLANE, true, true, 2),
        (PLANE, true, false, 2),
    ] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,24,?,?");
        let mut value = text.unary("Tanh", x);
        let shift = text.floats(&[1, 24, 1, 1], |i| (i % 7) as f32 / 3.0 - 1.0);
        if is_sum_first {
            value = text.binary("Add", value, shift);
        }
        value = text.times(value, &[24, 1, 1]);
        if !is_sum_first {
            value = text.binary("Add", shift, value);
        }
        let weights = text.floats(&[20, 24, 3, 3], |i| (i * 31 % 67) as f32 / 33.0 - 1.0);
        value = text.layer("Convolution", attributes, &[value, weights], "FP32");
        if has_bias {
            let bias = text.floats(&[1, 20, 1, 1], |i| i as f32 / 10.0 - 1.0);
            value = text.binary("Add", value, bias);
        }
        let end = text.unary("ReLU", value);
        text.layer("Result", "", &[end], "");
        let what = format!("{attributes} {has_bias} {is_sum_first}");
        assert_eq!(check(&text, &[2, 24, 9, 11], &what).len(), count, "{what}");
    }
    // A value that somebody else reads stays as it is.
    let mut text = Text::default();
    let x = text.parameter("f32", "1,24,7,7");
    let value = text.unary("Tanh", x);
    let value = text.times(value, &[24, 1, 1]);
    let weights = text.floats(&[24, 24, 3, 3], |i| (i * 31 % 67) as f32 / 33.0 - 1.0);
    let product = text.layer("Convolution", PLANE, &[value, weights], "FP32");
    let end = text.binary("Add", product, value);
    text.layer("Result", "", &[end], "");
    check(&text, &[1, 24, 7, 7], "read twice");
}
