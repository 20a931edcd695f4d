//! Layers of quantised models: computed in bytes where data and constant allow it.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value, compare};

const PLANE: &str = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
const POINT: &str = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"explicit\"";
const STEP: &str = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"3,3\" pads_end=\"3,3\" auto_pad=\"explicit\"";

impl Text {
    pub fn quantize(&mut self, x: Value, low: f32, high: f32) -> Value {
        // Exporters share constants between the limits of input and output.
        let (low, high) = (self.floats(&[], |_| low), self.floats(&[], |_| high));
        let data = "levels=\"256\" auto_broadcast=\"numpy\"";
        self.layer("FakeQuantize", data, &[x, low, high, low, high], "FP32")
    }

    fn stored(&mut self, shape: &[usize], scales: &[usize]) -> Value {
        let count: usize = shape.iter().product();
        let codes: Vec<u8> = (0..count).map(|i| (i * 29 % 251) as u8).collect();
        let codes = self.constant("i8", shape, &codes);
        let values = self.layer("Convert", "destination_type=\"f32\"", &[codes], "FP32");
        let scales = self.floats(scales, |i| (1.0 + i as f32 / 7.0) / 2000.0);
        self.binary("Multiply", values, scales)
    }

    /// Weights of a type, and a FakeQuantize behind them.
    fn rounded(&mut self, element_type: &str, shape: &[usize], levels: usize, is_whole: bool) -> Value {
        let count: usize = shape.iter().product();
        let value = |i: usize| ((i * 29 % 251) as f32 - 125.0) / if element_type == "i8" { 1.0 } else { 1000.0 };
        let weights = match element_type {
            "f32" => self.floats(shape, value),
            "f16" => {
                let bytes: Vec<u8> = (0..count).flat_map(|i| half::f16::from_f32(value(i)).to_le_bytes()).collect();
                let stored = self.constant("f16", shape, &bytes);
                self.layer("Convert", "destination_type=\"f32\"", &[stored], "FP32")
            }
            _ => {
                let bytes: Vec<u8> = (0..count).map(|i| value(i) as i8 as u8).collect();
                let stored = self.constant("i8", shape, &bytes);
                self.layer("Convert", "destination_type=\"f32\"", &[stored], "FP32")
            }
        };
        let mut sizes = vec![1; shape.len()];
        let kept = if is_whole { 0 } else { shape.len() - 3 };
        sizes[..kept].copy_from_slice(&shape[..kept]);
        let unit = if element_type == "i8" { 1.0 } else { 0.001 };
        let low_code = -((levels / 2) as f32);
        let high_code = low_code + (levels - 1) as f32;
        let width = |i: usize| 0.8 + i as f32 / 100.0;
        let input = [low_code, high_code].map(|code| self.floats(&sizes, |i| code * unit * width(i)));
        let output = [low_code, high_code].map(|code| self.floats(&sizes, |i| code * 0.001 * width(i)));
        let data = format!("levels=\"{levels}\" auto_broadcast=\"numpy\"");
        self.layer("FakeQuantize", &data, &[weights, input[0], input[1], output[0], output[1]], "FP32")
    }

    fn quantized_convolution(&mut self, x: Value, filter: [usize; 4], data: &str) -> Value {
        let weights = self.stored(&filter, &[filter[0], 1, 1, 1]);
        let product = self.layer("Convolution", data, &[x, weights], "FP32");
        let bias = self.floats(&[1, filter[0], 1, 1], |i| i as f32 / 50.0 - 0.3);
        self.binary("Add", product, bias)
    }
}

fn image(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

/// Compares two results of f32.
fn near(expected: &Tensor, actual: &Tensor, tolerance: f32) {
    let (e, a) = (expected.slice::<f32>().unwrap(), actual.slice::<f32>().unwrap());
    let largest = e.iter().fold(0f32, |most, value| most.max(value.abs()));
    for (index, (e, a)) in e.iter().zip(a).enumerate() {
        assert!((e - a).abs() <= tolerance * largest, "element {index} is {a}, the reference has {e}");
    }
}

/// A code may fall to either side where sums differ in their last bit, which is a step of the next quantisation.
fn check(text: &Text, input: &Tensor, tolerance: f32) -> Vec<String> {
    let (expected, _) = text.run(std::slice::from_ref(input), true);
    let (actual, entries) = text.run(std::slice::from_ref(input), false);
    assert!(entries.iter().all(|entry| entry.is_kernel || entry.type_name == "Reshape"), "{entries:?}");
    near(&expected, &actual, tolerance);
    entries.into_iter().map(|entry| entry.type_name).collect()
}

#[test]
fn a_convolution_of_images() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,3,?,?");
    let quantized = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    let end = text.quantized_convolution(quantized, [48, 3, 7, 7], STEP);
    let end = text.unary("ReLU", end);
    text.layer("Result", "", &[end], "");
    for shape in [[1, 3, 64, 64], [2, 3, 33, 17]] {
        // The limits are such that zero is a code.
        assert_eq!(check(&text, &image(&shape), 1e-5), ["Fused", "Reorder"]);
    }
}

/// Averages of windows and of planes sum codes, and give codes where their reader takes them.
#[test]
fn averages_of_codes() {
    for (shape, channels, excludes) in [("?,40,?,?", 40, "true"), ("1,20,?,?", 20, "false")] {
        let mut text = Text::default();
        let x = text.parameter("f32", shape);
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let stem = text.quantized_convolution(x, [channels, channels, 3, 3], PLANE);
        let stem = text.unary("ReLU", stem);
        let stem = text.quantize(stem, 0.0, 6.0);
        let pads = "strides=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" kernel=\"3,3\" rounding_type=\"floor\"";
        let pads = format!("{pads} exclude-pad=\"{excludes}\"");
        let left = text.layer("AvgPool", &pads, &[stem], "FP32");
        let left = text.quantize(left, 0.0, 5.0);
        let left = text.quantized_convolution(left, [48, channels, 1, 1], POINT);
        let axes = text.integers(&[2, -1]);
        let gate = text.layer("ReduceMean", "keep_dims=\"true\"", &[stem, axes], "FP32");
        let gate = text.quantize(gate, 0.0, 3.0);
        let gate = text.quantized_convolution(gate, [48, channels, 1, 1], POINT);
        let gate = text.unary("Sigmoid", gate);
        let left = text.binary("Multiply", left, gate);
        let halves = "strides=\"2,2\" pads_begin=\"0,0\" pads_end=\"0,0\" kernel=\"2,2\" rounding_type=\"ceil\"";
        let small = text.layer("AvgPool", &format!("{halves} exclude-pad=\"true\""), &[stem], "FP32");
        let small = text.unary("Tanh", small);
        text.layer("Result", "", &[left], "");
        text.layer("Result", "", &[small], "");
        for (high, wide) in [(24, 24), (9, 83), (3, 2)] {
            let kinds = check(&text, &image(&[1, channels, high, wide]), 0.02);
            let others = ["AvgPool", "ReduceMean", "Decode", "FakeQuantize"];
            assert!(!kinds.iter().any(|kind| others.contains(&kind.as_str())), "{kinds:?}");
        }
    }
}

/// Sums of the values of codes, of which one may be scaled and shifted before.
#[test]
fn sums_of_codes() {
    for (is_scaled, is_swapped, activation) in [(false, false, "ReLU"), (true, true, ""), (true, false, "ReLU")] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,40,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let stem = text.quantized_convolution(x, [40, 40, 3, 3], PLANE);
        let stem = text.quantize(stem, -3.0, 6.0 - 9.0 / 256.0);
        let pool = "strides=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" kernel=\"3,3\" rounding_type=\"floor\"";
        let greatest = text.layer_of("MaxPool", &format!("{pool} index_element_type=\"i64\""), &[stem], "FP32", 2);
        let average = text.layer("AvgPool", &format!("{pool} exclude-pad=\"true\""), &[stem], "FP32");
        let mut average = text.quantize(average, -2.0, 5.0);
        if is_scaled {
            let scales = text.floats(&[1, 40, 1, 1], |i| 0.5 + i as f32 / 40.0);
            let shifts = text.floats(&[1, 40, 1, 1], |i| i as f32 / 30.0 - 0.7);
            average = text.binary("Multiply", average, scales);
            average = text.binary("Add", average, shifts);
        }
        let (a, b) = if is_swapped { (greatest, average) } else { (average, greatest) };
        let mut sum = text.binary("Add", a, b);
        if !activation.is_empty() {
            sum = text.unary(activation, sum);
        }
        let sum = text.quantize(sum, -4.0, 12.0 - 16.0 / 256.0);
        let end = text.quantized_convolution(sum, [24, 40, 1, 1], POINT);
        text.layer("Result", "", &[end], "");
        for shape in [[1, 40, 12, 12], [2, 40, 7, 9]] {
            let kinds = check(&text, &image(&shape), 0.02);
            let others = ["AvgPool", "Decode", "FakeQuantize", "Add", "Multiply"];
            assert!(!kinds.iter().any(|kind| others.contains(&kind.as_str())), "{kinds:?}");
        }
    }
}

/// So few products a sum that the constant is not read as it is stored: the layers stay apart.
#[test]
fn a_convolution_of_few_channels() {
    let mut text = Text::default();
    let x = text.parameter("f32", "1,4,8,8");
    let quantized = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    let point = PLANE.replace("\"1,1\" auto", "\"0,0\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"");
    let end = text.quantized_convolution(quantized, [1024, 4, 1, 1], &point);
    text.layer("Result", "", &[end], "");
    let kinds = check(&text, &image(&[1, 4, 8, 8]), 1e-5);
    assert_eq!(kinds.iter().filter(|kind| *kind == "FakeQuantize").count(), 1, "{kinds:?}");
}

#[test]
fn a_residual_network() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,32,?,?");
    let stem = text.quantize(x, 0.0, 1.0);
    let pool = "strides=\"2,2\" pads_begin=\"1,1\" pads_end=\"1,1\" kernel=\"3,3\" rounding_type=\"floor\"";
    let pooled = text.layer_of("MaxPool", &format!("{pool} index_element_type=\"i64\""), &[stem], "FP32", 2);
    let deep = text.quantized_convolution(pooled, [32, 32, 3, 3], PLANE);
    let deep = text.unary("ReLU", deep);
    let deep = text.quantize(deep, 0.0, 6.0);
    let deep = text.quantized_convolution(deep, [32, 32, 3, 3], PLANE);
    let summed = text.binary("Add", deep, pooled);
    let summed = text.unary("ReLU", summed);
    let quantized = text.quantize(summed, 0.0, 20.0);
    let left = text.quantized_convolution(quantized, [40, 32, 3, 3], PLANE);
    let right = text.quantized_convolution(quantized, [40, 32, 3, 3], PLANE);
    let end = text.binary("Multiply", left, right);
    let axes = text.integers(&[2, 3]);
    let end = text.layer("ReduceMean", "keep_dims=\"true\"", &[end, axes], "FP32");
    let end = text.quantize(end, -100.0, 155.0);
    let flat = text.integers(&[0, -1]);
    let end = text.layer("Reshape", "special_zero=\"true\"", &[end, flat], "FP32");
    let weights = text.stored(&[103, 40], &[103, 1]);
    let end = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[end, weights], "FP32");
    text.layer("Result", "", &[end], "");
    for shape in [[1, 32, 24, 24], [3, 32, 9, 13]] {
        let kinds = check(&text, &image(&shape), 0.02);
        // The shortcut is read as codes, and so is what the Reshape moves.
        assert_eq!(kinds.iter().filter(|kind| *kind == "FakeQuantize").count(), 0, "{kinds:?}");
        assert_eq!(kinds.iter().filter(|kind| *kind == "Encode").count(), 2, "{kinds:?}");
    }
}

/// Volumes: windows that leave the input in depth, also with a stride, and the way back up.
#[test]
fn volumes() {
    let data = |stride: usize, pad: usize| {
        format!(
            "strides=\"{stride},{stride},{stride}\" dilations=\"1,1,1\" pads_begin=\"{pad},{pad},{pad}\" pads_end=\"{pad},{pad},{pad}\" auto_pad=\"explicit\""
        )
    };
    let mut text = Text::default();
    let x = text.parameter("f32", "?,16,?,?,?");
    let mut end = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    for (kind, filter, data) in [
        ("Convolution", [24, 16, 3, 3, 3], data(1, 1)),
        ("Convolution", [32, 24, 3, 3, 3], data(2, 1)),
        ("ConvolutionBackpropData", [32, 16, 2, 2, 2], data(2, 0)),
        ("ConvolutionBackpropData", [16, 20, 4, 4, 4], data(2, 1)),
    ] {
        let is_transposed = kind != "Convolution";
        let (outputs, scales) = match is_transposed {
            true => (filter[1], [1, filter[1], 1, 1, 1]),
            false => (filter[0], [filter[0], 1, 1, 1, 1]),
        };
        let weights = text.stored(&filter, &scales);
        end = text.layer(kind, &data, &[end, weights], "FP32");
        let bias = text.floats(&[1, outputs, 1, 1, 1], |i| i as f32 / 50.0 - 0.3);
        end = text.binary("Add", end, bias);
        end = text.unary("ReLU", end);
        if outputs != 20 {
            end = text.quantize(end, 0.0, 2.0);
        }
    }
    text.layer("Result", "", &[end], "");
    for shape in [[1, 16, 8, 12, 10], [2, 16, 2, 7, 5]] {
        assert_eq!(check(&text, &image(&shape), 0.02), ["Reorder", "Fused", "Fused", "Fused", "Fused", "Reorder"]);
    }
}

/// Blocks as in residual networks: all values between the convolutions are codes, for every activation.
#[test]
fn codes_between_convolutions() {
    let point = PLANE.replace("\"1,1\" auto", "\"0,0\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"");
    let pool = "strides=\"2,2\" pads_begin=\"1,1\" pads_end=\"1,1\" kernel=\"3,3\" rounding_type=\"floor\"";
    for activation in ["ReLU", "Sigmoid", "HSwish", "Clamp", ""] {
        let mut text = Text::default();
        let activate = |text: &mut Text, value: Value| match activation {
            "" => value,
            "Clamp" => text.layer("Clamp", "min=\"-0.25\" max=\"2\"", &[value], "FP32"),
            name => text.unary(name, value),
        };
        let x = text.parameter("f32", "?,3,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let stem = text.quantized_convolution(x, [64, 3, 5, 5], PLANE);
        let stem = activate(&mut text, stem);
        let stem = text.quantize(stem, -0.5, 2.05);
        let stem = text.layer_of("MaxPool", &format!("{pool} index_element_type=\"i64\""), &[stem], "FP32", 2);
        let deep = text.quantized_convolution(stem, [128, 64, 1, 1], &point);
        let deep = activate(&mut text, deep);
        let deep = text.quantize(deep, -1.0, 1.0 - 2.0 / 256.0);
        let deep = text.quantized_convolution(deep, [64, 128, 3, 3], PLANE);
        let deep = text.quantize(deep, -2.0, 2.0);
        let sum = text.binary("Add", deep, stem);
        let sum = activate(&mut text, sum);
        let sum = text.quantize(sum, -1.0, 4.1);
        let left = text.quantized_convolution(sum, [40, 64, 3, 3], PLANE);
        let left = text.quantize(left, -3.0, 3.0 - 6.0 / 256.0);
        let right = text.quantized_convolution(sum, [80, 64, 1, 1], &point);
        let right = text.quantize(right, -3.0, 3.0 - 6.0 / 256.0);
        let end = text.quantized_convolution(left, [24, 40, 3, 3], PLANE);
        text.layer("Result", "", &[end], "");
        let other = text.quantized_convolution(right, [24, 80, 3, 3], PLANE);
        text.layer("Result", "", &[other], "");
        for shape in [[1, 3, 24, 24], [2, 3, 9, 13]] {
            let kinds = check(&text, &image(&shape), 0.03);
            assert!(!kinds.iter().any(|kind| kind == "FakeQuantize" || kind == "Encode"), "{activation} {kinds:?}");
        }
    }
}

/// What reads codes of three values for all its products, and what makes codes for the next.
#[test]
fn codes_between_products() {
    for k in [32, 35] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,?,40");
        let product = |text: &mut Text, x: Value, k: usize, n: usize| {
            let weights = text.stored(&[n, k], &[n, 1]);
            let end = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32");
            let bias = text.floats(&[n], |i| i as f32 / 90.0);
            text.binary("Add", end, bias)
        };
        let x = text.unary("Negative", x);
        let x = text.quantize(x, -0.5, 1.0);
        let (a, b) = (product(&mut text, x, 40, 200), product(&mut text, x, 40, 200));
        let a = text.unary("Swish", a);
        let a = text.quantize(a, -0.2, 1.3);
        let b = text.unary("ReLU", b);
        let b = text.quantize(b, 0.0, 1.0);
        let (a, b) = (product(&mut text, a, 200, k), product(&mut text, b, 200, k));
        let (a, b) = (text.quantize(a, -3.0, 3.0), text.quantize(b, -3.0, 3.0));
        let a = text.binary("Add", a, b);
        let a = text.quantize(a, -6.0, 6.0 - 12.0 / 256.0);
        let end = product(&mut text, a, k, 203);
        text.layer("Result", "", &[end], "");
        let kinds = check(&text, &image(&[2, 7, 40]), 0.02);
        // The function in front makes the codes.
        assert!(!kinds.iter().any(|kind| kind == "FakeQuantize" || kind == "Encode"), "{kinds:?}");
    }
}

#[test]
fn products() {
    for (transposed, data) in [("true", [24, 200]), ("false", [200, 24])] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,?,200");
        let quantized = text.quantize(x, -0.5, 1.0);
        let scales = if transposed == "true" { [24, 1] } else { [1, 24] };
        let weights = text.stored(&data, &scales);
        let attributes = format!("transpose_a=\"false\" transpose_b=\"{transposed}\"");
        let end = text.layer("MatMul", &attributes, &[quantized, weights], "FP32");
        let bias = text.floats(&[24], |i| i as f32);
        let end = text.binary("Add", end, bias);
        let end = text.unary("Sigmoid", end);
        text.layer("Result", "", &[end], "");
        assert_eq!(check(&text, &image(&[2, 7, 200]), 1e-5), ["Fused"]);
        let (expected, _) = text.run(&[image(&[0, 3, 200])], true);
        let (actual, _) = text.run(&[image(&[0, 3, 200])], false);
        compare(&expected, &actual, "nothing");
    }
}

/// Scales and biases that lie behind an odd number of bytes.
#[test]
fn constants_anywhere_in_the_file() {
    let mut text = Text::shifted(1);
    let x = text.parameter("f32", "?,16,?,?");
    let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    let x = text.quantized_convolution(x, [320, 16, 3, 3], PLANE);
    let x = text.unary("ReLU", x);
    let x = text.quantize(x, 0.0, 3.0);
    let weights = text.stored(&[320, 1, 1, 3, 3], &[320, 1, 1, 1, 1]);
    let x = text.layer("GroupConvolution", PLANE, &[x, weights], "FP32");
    let x = text.quantize(x, -1.0, 1.0);
    let end = text.quantized_convolution(x, [300, 320, 1, 1], POINT);
    text.layer("Result", "", &[end], "");
    check(&text, &image(&[1, 16, 9, 7]), 0.01);
    let mut text = Text::shifted(1);
    let x = text.parameter("f32", "?,200");
    let quantized = text.quantize(x, -0.5, 1.0);
    let weights = text.stored(&[300, 200], &[300, 1]);
    let end = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[quantized, weights], "FP32");
    text.layer("Result", "", &[end], "");
    check(&text, &image(&[3, 200]), 1e-5);
}

/// Kernels are not asked about shapes that nobody knows yet.
#[test]
fn a_plan_without_shapes() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,32,?,?");
    let x = text.quantize(x, 0.0, 4.0);
    let x = text.quantized_convolution(x, [16, 32, 3, 3], PLANE);
    let x = text.quantize(x, -1.0, 1.0);
    let end = text.unary("ReLU", x);
    text.layer("Result", "", &[end], "");
    let request = text.request(false);
    let plan = request.compiled().plan(&[]).unwrap();
    assert!(plan.steps.iter().all(|step| !step.is_static && step.work_nanoseconds == 0), "{plan:?}");
}

/// Quantised values that are summed are quantised as they are summed; limits that differ stay apart.
#[test]
fn sums_of_quantised_values() {
    let limits = "levels=\"256\" auto_broadcast=\"numpy\"";
    for (shape, of_limits, is_fused) in
        [("?,?,9", &[][..], true), ("?,24,9", &[1, 24, 1], false), ("?,9", &[1, 1], true)]
    {
        let mut text = Text::default();
        let x = text.parameter("f32", shape);
        let y = text.unary("Negative", x);
        let low = text.floats(of_limits, |i| -0.5 - i as f32 / 50.0);
        let high = text.floats(of_limits, |i| 0.7 + i as f32 / 50.0);
        let x = text.layer("FakeQuantize", limits, &[x, low, high, low, high], "FP32");
        let y = text.quantize(y, -1.0, 1.0);
        let end = text.binary("Add", x, y);
        let end = text.unary("ReLU", end);
        text.layer("Result", "", &[end], "");
        let input = if shape.matches(',').count() == 2 { image(&[2, 24, 9]) } else { image(&[2, 9]) };
        let kinds = check(&text, &input, 1e-6);
        assert_eq!(kinds.iter().any(|kind| kind == "FakeQuantize"), !is_fused, "{shape} {of_limits:?} {kinds:?}");
    }
}

/// A FakeQuantize whose limits are the other way round is no code of one byte in front of a sum.
#[test]
fn limits_the_other_way_round() {
    let mut text = Text::default();
    let x = text.parameter("f32", "1,32,8,8");
    let other = text.unary("Negative", x);
    let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    let deep = text.quantized_convolution(x, [32, 32, 3, 3], PLANE);
    let deep = text.quantize(deep, 2.0, -2.0);
    let end = text.binary("Add", deep, other);
    text.layer("Result", "", &[end], "");
    let kinds = check(&text, &image(&[1, 32, 8, 8]), 0.02);
    // The sum and its FakeQuantize are a layer of their own.
    assert_eq!(kinds.iter().filter(|kind| *kind == "Fused").count(), 2, "{kinds:?}");
}

/// As in mobile networks: depthwise convolutions read codes of each channel's levels and write codes.
#[test]
fn depthwise_convolutions_between_products() {
    let point = PLANE.replace("\"1,1\" auto", "\"0,0\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"");
    for (activation, channels) in [("HSwish", 40), ("ReLU", 32), ("", 64)] {
        let mut text = Text::default();
        let activate = |text: &mut Text, value: Value| match activation {
            "" => value,
            name => text.unary(name, value),
        };
        let x = text.parameter("f32", "?,3,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let stem = text.quantized_convolution(x, [channels, 3, 3, 3], PLANE);
        let stem = activate(&mut text, stem);
        // The levels of one network are those of channels; where zero is a code, products can be those of bytes.
        let (stem, filter) = if channels == 40 {
            let high = text.floats(&[1, channels, 1, 1], |i| 0.5 + i as f32 / 20.0);
            let low = text.floats(&[1, channels, 1, 1], |i| -0.2 - i as f32 / 90.0);
            let data = "levels=\"256\" auto_broadcast=\"numpy\"";
            let stem = text.layer("FakeQuantize", data, &[stem, low, high, low, high], "FP32");
            (stem, text.floats(&[channels, 1, 1, 3, 3], |i| (i % 17) as f32 / 20.0 - 0.35))
        } else {
            let low = if activation.is_empty() { -100.0 / 256.0 } else { 0.0 };
            let stem = text.quantize(stem, low, low + 255.0 / 256.0);
            (stem, text.stored(&[channels, 1, 1, 3, 3], &[channels, 1, 1, 1, 1]))
        };
        let deep = text.layer("GroupConvolution", PLANE, &[stem, filter], "FP32");
        let bias = text.floats(&[1, channels, 1, 1], |i| i as f32 / 70.0 - 0.2);
        let deep = text.binary("Add", deep, bias);
        let deep = activate(&mut text, deep);
        let deep = text.quantize(deep, -1.0, 3.0 - 1.0 / 64.0);
        // A gate over all positions, and a shortcut.
        let axes = text.integers(&[2, 3]);
        let gate = text.layer("ReduceMean", "keep_dims=\"true\"", &[deep, axes], "FP32");
        let gate = text.unary("Sigmoid", gate);
        let gated = text.binary("Multiply", deep, gate);
        let gated = text.quantize(gated, -1.0, 3.0 - 1.0 / 64.0);
        let end = text.quantized_convolution(gated, [channels, channels, 1, 1], &point);
        let end = text.quantize(end, -3.0, 3.0 - 6.0 / 256.0);
        let sum = text.binary("Add", end, deep);
        let sum = text.quantize(sum, -4.0, 4.0 - 8.0 / 256.0);
        let end = text.quantized_convolution(sum, [24, channels, 1, 1], &point);
        text.layer("Result", "", &[end], "");
        for shape in [[1, 3, 24, 24], [2, 3, 9, 13]] {
            let kinds = check(&text, &image(&shape), 0.06);
            assert!(!kinds.iter().any(|kind| kind == "FakeQuantize" || kind == "Encode"), "{activation} {kinds:?}");
        }
    }
}

/// Codes whose levels are those of channels are divided with their levels.
#[test]
fn levels_of_channels_are_divided() {
    for (channels, parts) in [(48, [16, 32]), (42, [20, 22])] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,16,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let stem = text.quantized_convolution(x, [channels, 16, 1, 1], POINT);
        let stem = text.unary("Swish", stem);
        // Zero is a code of each channel.
        let step = |i: usize| (1.0 + i as f32 / 9.0) / 256.0;
        let low = text.floats(&[1, channels, 1, 1], |i| -64.0 * step(i));
        let high = text.floats(&[1, channels, 1, 1], |i| 191.0 * step(i));
        let data = "levels=\"256\" auto_broadcast=\"numpy\"";
        let stem = text.layer("FakeQuantize", data, &[stem, low, high, low, high], "FP32");
        let axis = text.constant("i64", &[], &1i64.to_le_bytes());
        let lengths = text.integers(&parts.map(|part| part as i64));
        let split = text.layer_of("VariadicSplit", "", &[stem, axis, lengths], "FP32", 2);
        let ends = [0, 1].map(|port| {
            let (side, part) = (3 + 2 * port, parts[port]);
            let filter = text.stored(&[part, 1, 1, side, side], &[part, 1, 1, 1, 1]);
            let pads = PLANE.replace(
                "_begin=\"1,1\" pads_end=\"1,1\"",
                &format!("_begin=\"{0},{0}\" pads_end=\"{0},{0}\"", side / 2),
            );
            text.layer("GroupConvolution", &pads, &[Value(split.0, split.1 + port), filter], "FP32")
        });
        let end = text.layer("Concat", "axis=\"1\"", &ends, "FP32");
        text.layer("Result", "", &[end], "");
        let input = image(&[2, 16, 9, 13]);
        let kinds = check(&text, &input, 0.02);
        assert!(!kinds.iter().any(|kind| kind == "FakeQuantize"), "{channels} {kinds:?}");
        let (expected, (actual, _)) = (text.unoptimised(std::slice::from_ref(&input)), text.run(&[input], false));
        let (expected, actual) = (expected.slice::<f32>().unwrap(), actual.slice::<f32>().unwrap());
        let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
        assert!(expected.iter().zip(actual).all(|(e, a)| (e - a).abs() <= 0.02 * largest), "{channels}");
    }
}

/// Codes are joined, divided and turned as values are, and what else reads them gets values.
#[test]
fn codes_are_moved() {
    let point = PLANE.replace("\"1,1\" auto", "\"0,0\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"");
    for channels in [32, 24] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,16,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let branch = |text: &mut Text, x: Value, inputs: usize| {
            let y = text.quantized_convolution(x, [channels, inputs, 1, 1], &point);
            let y = text.unary("ReLU", y);
            text.quantize(y, 0.0, 1.5)
        };
        let (a, b) = (branch(&mut text, x, 16), branch(&mut text, x, 16));
        let joined = text.layer("Concat", "axis=\"1\"", &[a, b], "FP32");
        // Channels are shuffled.
        let split = text.integers(&[0, 2, channels as i64, -1]);
        let y = text.layer("Reshape", "special_zero=\"true\"", &[joined, split], "FP32");
        let order = text.integers(&[0, 2, 1, 3]);
        let y = text.layer("Transpose", "", &[y, order], "FP32");
        let flat = text.integers(&[0, 2 * channels as i64, 9, 13]);
        let y = text.layer("Reshape", "special_zero=\"true\"", &[y, flat], "FP32");
        let c = branch(&mut text, y, 2 * channels);
        let again = text.layer("Concat", "axis=\"1\"", &[c, b, a], "FP32");
        let scale = text.floats(&[1, 3 * channels, 1, 1], |i| 0.5 + i as f32 / 99.0);
        let y = text.binary("Multiply", again, scale);
        // A function, or what makes codes of codes by one multiplication.
        let y = if channels == 32 {
            text.unary("Sigmoid", y)
        } else {
            let shift = text.floats(&[1, 3 * channels, 1, 1], |i| i as f32 / 200.0 - 0.3);
            let y = text.binary("Add", y, shift);
            text.unary("ReLU", y)
        };
        let y = text.quantize(y, 0.0, 1.0);
        let end = text.quantized_convolution(y, [24, 3 * channels, 3, 3], PLANE);
        text.layer("Result", "", &[end], "");
        text.layer("Result", "", &[again], "");
        let kinds = check(&text, &image(&[1, 16, 9, 13]), 0.02);
        assert!(!kinds.iter().any(|kind| kind == "FakeQuantize"), "{channels} {kinds:?}");
        // The codes of what is given, which two layers read.
        assert_eq!(kinds.iter().filter(|kind| *kind == "Encode").count(), 1, "{channels} {kinds:?}");
    }
}

/// Codes of blocks become rows of channels, and rows blocks, without a plane between them.
#[test]
fn codes_between_blocks_and_rows() {
    for channels in [40, 32] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,16,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let y = text.quantized_convolution(x, [channels, 16, 1, 1], POINT);
        let mut y = text.quantize(y, -1.0, 1.0 - 2.0 / 256.0);
        for (place, order) in [[0, 2, 3, 1], [0, 2, 1, 3], [0, 3, 1, 2]].into_iter().enumerate() {
            // What stands between two Transposes keeps them apart.
            if place > 0 {
                let same = text.integers(&[0; 4]);
                y = text.layer("Reshape", "special_zero=\"true\"", &[y, same], "FP32");
            }
            let order = text.integers(&order);
            y = text.layer("Transpose", "", &[y, order], "FP32");
        }
        let end = text.quantized_convolution(y, [24, channels, 3, 3], PLANE);
        text.layer("Result", "", &[end], "");
        let kinds = check(&text, &image(&[2, 16, 9, 13]), 0.02);
        let moved = kinds.iter().filter(|kind| matches!(kind.as_str(), "Reorder" | "Transpose"));
        let expected = ["Reorder", "Transpose", "Transpose", "Transpose", "Reorder"];
        assert_eq!(moved.collect::<Vec<_>>(), expected, "{channels} {kinds:?}");
    }
}

/// Windows so wide that most of their taps lie beyond a small image, whatever its size.
#[test]
fn taps_that_never_meet_the_image() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,16,?,?");
    let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    let wide = "strides=\"1,1\" dilations=\"36,24\" pads_begin=\"36,24\" pads_end=\"36,24\" auto_pad=\"explicit\"";
    let end = text.quantized_convolution(x, [40, 16, 3, 3], wide);
    text.layer("Result", "", &[end], "");
    for shape in [[1, 16, 14, 14], [2, 16, 9, 40], [1, 16, 45, 30]] {
        check(&text, &image(&shape), 1e-5);
    }
}

/// Groups of whole blocks, and those that share blocks with few others, are computed in bytes, others with values.
#[test]
fn groups_of_channels() {
    for (groups, outputs, inputs) in
        [(3, 16, 16), (2, 32, 16), (3, 24, 24), (4, 8, 16), (5, 40, 24), (2, 24, 12), (7, 8, 8), (9, 4, 4), (8, 2, 2)]
    {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,{},?,?", groups * inputs));
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let filter = text.stored(&[groups, outputs, inputs, 3, 3], &[groups, outputs, 1, 1, 1]);
        let y = text.layer("GroupConvolution", PLANE, &[x, filter], "FP32");
        let bias = text.floats(&[1, groups * outputs, 1, 1], |i| i as f32 / 70.0 - 0.2);
        let y = text.binary("Add", y, bias);
        let y = text.unary("ReLU", y);
        let y = text.quantize(y, 0.0, 3.0);
        let end = text.quantized_convolution(y, [24, groups * outputs, 3, 3], PLANE);
        text.layer("Result", "", &[end], "");
        let are_bytes = inputs > 2;
        for shape in [[1, groups * inputs, 9, 13], [2, groups * inputs, 6, 5]] {
            let kinds = check(&text, &image(&shape), 0.01);
            assert_eq!(kinds.iter().any(|kind| kind == "FakeQuantize"), !are_bytes, "{groups} {outputs} {kinds:?}");
        }
    }
}

/// Codes of an image that several layers read, with and without padding.
#[test]
fn images_with_several_readers() {
    for channels in [1, 3, 4] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,{channels},?,?"));
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let padded = PLANE.replace("\"1,1\" auto", "\"2,2\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"2,2\"");
        let wide = text.quantized_convolution(x, [24, channels, 8, 8], &padded);
        let inside = PLANE.replace("\"1,1\" auto", "\"0,0\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"");
        let narrow = text.quantized_convolution(x, [24, channels, 4, 4], &inside);
        let end = text.binary("Add", wide, narrow);
        text.layer("Result", "", &[end], "");
        for shape in [[1, channels, 9, 13], [2, channels, 16, 8]] {
            let kinds = check(&text, &image(&shape), 0.01);
            assert_eq!(kinds.iter().filter(|kind| *kind == "Encode").count(), 1, "{channels} {kinds:?}");
        }
    }
}

/// As in dense networks: what is joined has levels of its own, and elementwise layers read it.
#[test]
fn joined_levels_of_several_values() {
    let point = PLANE.replace("\"1,1\" auto", "\"0,0\" auto").replace("pads_begin=\"1,1\"", "pads_begin=\"0,0\"");
    for channels in [[32, 16, 32], [32, 20, 12]] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,16,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let branch = |text: &mut Text, channels: usize, high: f32| {
            let y = text.quantized_convolution(x, [channels, 16, 1, 1], &point);
            text.quantize(y, -0.5, high)
        };
        let parts = [branch(&mut text, channels[0], 1.0), branch(&mut text, channels[1], 2.0)];
        let last = branch(&mut text, channels[2], 1.5);
        let all = channels.iter().sum::<usize>();
        let joined = text.layer("Concat", "axis=\"1\"", &[parts[0], parts[1], last], "FP32");
        let scale = text.floats(&[1, all, 1, 1], |i| 0.5 + i as f32 / 99.0);
        let y = text.binary("Multiply", joined, scale);
        let y = text.unary("ReLU", y);
        let y = text.quantize(y, 0.0, 2.0);
        let end = text.quantized_convolution(y, [24, all, 3, 3], PLANE);
        text.layer("Result", "", &[end], "");
        for shape in [[1, 16, 9, 13], [2, 16, 6, 5]] {
            let kinds = check(&text, &image(&shape), 0.02);
            assert!(!kinds.iter().any(|kind| kind == "FakeQuantize"), "{channels:?} {kinds:?}");
        }
        // Read by a reduction too, the values are joined.
        let axes = text.integers(&[2, 3]);
        let mean = text.layer("ReduceMean", "keep_dims=\"true\"", &[joined, axes], "FP32");
        text.layer("Result", "", &[mean], "");
        let kinds = check(&text, &image(&[1, 16, 9, 13]), 0.02);
        assert!(kinds.iter().any(|kind| kind == "FakeQuantize"), "{channels:?} {kinds:?}");
    }
}

/// What is pooled and then multiplied with a matrix has codes all the way.
#[test]
fn pooled_features() {
    let pool = "strides=\"2,2\" pads_begin=\"0,0\" pads_end=\"0,0\" kernel=\"2,2\" rounding_type=\"floor\"";
    for channels in [32, 20] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,16,8,8");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let y = text.quantized_convolution(x, [channels, 16, 3, 3], PLANE);
        let y = text.unary("ReLU", y);
        let y = text.quantize(y, 0.0, 2.0);
        let y = text.layer_of("MaxPool", &format!("{pool} index_element_type=\"i64\""), &[y], "FP32", 2);
        let flat = text.integers(&[0, -1]);
        let y = text.layer("Reshape", "special_zero=\"true\"", &[y, flat], "FP32");
        let weights = text.stored(&[10, channels * 16], &[10, 1]);
        let end = text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[y, weights], "FP32");
        text.layer("Result", "", &[end], "");
        for batch in [1, 3] {
            let kinds = check(&text, &image(&[batch, 16, 8, 8]), 0.01);
            let are_codes = |kind: &String| !["FakeQuantize", "Encode", "Decode"].contains(&kind.as_str());
            assert!(kinds.iter().all(are_codes), "{kinds:?}");
        }
    }
}

/// Numbers that scale and shift an activation are limits of the codes that it becomes, so that the convolution writes these.
#[test]
fn affine_layers_in_front_of_codes() {
    for (scale, has_other_reader, folded) in [(0.8, false, 2), (0.8, true, 0), (-0.8, false, 0)] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,32,?,?");
        let stem = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let deep = text.quantized_convolution(stem, [40, 32, 3, 3], PLANE);
        let deep = text.unary("HSwish", deep);
        let (scale, shift) = (text.floats(&[1], |_| scale), text.floats(&[], |_| -0.125));
        let scaled = text.binary("Multiply", scale, deep);
        let shifted = text.binary("Add", scaled, shift);
        let ends = [(-2.0, 3.0), (-1.0, 4.1)].map(|(low, high)| {
            let codes = text.quantize(shifted, low, high);
            text.quantized_convolution(codes, [16, 40, 1, 1], POINT)
        });
        let mut end = text.binary("Subtract", ends[0], ends[1]);
        if has_other_reader {
            let other = text.quantized_convolution(shifted, [16, 40, 1, 1], POINT);
            end = text.binary("Add", end, other);
        }
        text.layer("Result", "", &[end], "");
        let kinds = check(&text, &image(&[2, 32, 9, 13]), 0.02);
        let reports = text.reports();
        let report = reports.iter().find(|report| report.name == "fold_levels").unwrap();
        let applied = report.notes.iter().filter(|note| note.is_applied).count();
        assert_eq!(applied, folded, "{kinds:?}");
    }
}

/// What takes nearest elements moves codes, on blocks where its size is not known either.
#[test]
fn nearest_elements_of_codes() {
    let mode = "mode=\"nearest\" shape_calculation_mode=\"scales\" coordinate_transformation_mode=\"asymmetric\" nearest_mode=\"floor\" antialias=\"false\" pads_begin=\"0\" pads_end=\"0\" cube_coeff=\"-0.75\"";
    for has_axes in [false, true] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,32,?,?");
        let stem = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let deep = text.quantized_convolution(stem, [40, 32, 3, 3], PLANE);
        let deep = text.quantize(deep, -3.0, 5.0);
        let sizes = text.integers(&vec![0; if has_axes { 2 } else { 4 }]);
        let large = if has_axes {
            let (scales, axes) = (text.floats(&[2], |i| 2.0 + i as f32), text.integers(&[2, 3]));
            text.layer("Interpolate", mode, &[deep, sizes, scales, axes], "FP32")
        } else {
            let scales = text.floats(&[4], |i| [1.0, 1.0, 2.0, 3.0][i]);
            text.layer("Interpolate", mode, &[deep, sizes, scales], "FP32")
        };
        let large = text.quantize(large, -2.0, 4.0);
        let end = text.quantized_convolution(large, [24, 40, 1, 1], POINT);
        text.layer("Result", "", &[end], "");
        for shape in [[1, 32, 9, 13], [2, 32, 16, 5]] {
            let kinds = check(&text, &image(&shape), 0.02);
            assert_eq!(kinds, ["Reorder", "Fused", "Fused", "Interpolate", "Fused", "Reorder"]);
        }
    }
}

/// Normalisations of groups of channels read the codes of a convolution and give codes to another, with an activation in
/// between or without, on blocks and, between products, on plain data.
#[test]
fn normalised_codes() {
    for (activation, channels, is_image) in
        [("ReLU", 40, true), ("Swish", 8, true), ("", 40, true), ("Swish", 40, false)]
    {
        let mut text = Text::default();
        let shape: &[usize] = if is_image { &[2, 24, 9, 11] } else { &[2, 4, 70, 64] };
        let declared: Vec<String> = shape.iter().map(ToString::to_string).collect();
        let x = text.parameter("f32", &declared.join(","));
        let mut x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let count = if is_image { channels } else { 4 };
        x = if is_image {
            text.quantized_convolution(x, [channels, 24, 3, 3], PLANE)
        } else {
            let weights = text.stored(&[64, 64], &[64, 1]);
            text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32")
        };
        x = text.quantize(x, -2.0, 2.0 - 4.0 / 256.0);
        let (scale, bias) =
            (text.floats(&[count], |i| 0.6 + i as f32 / 60.0), text.floats(&[count], |i| i as f32 / 90.0));
        x = text.layer("GroupNormalization", "num_groups=\"4\" epsilon=\"1e-3\"", &[x, scale, bias], "FP32");
        if !activation.is_empty() {
            x = text.unary(activation, x);
        }
        x = text.quantize(x, 0.0, 3.0);
        let end = if is_image {
            text.quantized_convolution(x, [16, channels, 1, 1], POINT)
        } else {
            let weights = text.stored(&[64, 64], &[64, 1]);
            text.layer("MatMul", "transpose_a=\"false\" transpose_b=\"true\"", &[x, weights], "FP32")
        };
        text.layer("Result", "", &[end], "");
        let kinds = check(&text, &image(shape), 0.02);
        let apart = ["GroupNormalization", "ReLU", "Swish", "FakeQuantize", "Decode"];
        assert!(!kinds.iter().any(|kind| apart.contains(&kind.as_str())), "{activation} {is_image}: {kinds:?}");
    }
}

/// Weights that are rounded by a FakeQuantize are stored as the codes that it makes, however they are written and used.
#[test]
fn weights_that_are_rounded_when_they_are_read() {
    // The kind of constant, the levels, and whether all channels have one pair of limits.
    let kinds = [("f32", 255, false), ("f32", 256, true), ("f16", 255, false), ("i8", 255, false)];
    for (constant, levels, is_whole) in kinds {
        let mut text = Text::default();
        let x = text.parameter("f32", "1,24,?,?");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let filter = text.rounded(constant, &[40, 24, 3, 3], levels, is_whole);
        let x = text.layer("Convolution", PLANE, &[x, filter], "FP32");
        let x = text.unary("ReLU", x);
        let x = text.quantize(x, 0.0, 6.0);
        // Grouped filters are reshaped behind their FakeQuantize.
        let filter = text.rounded(constant, &[40, 1, 3, 3], levels, is_whole);
        let shape = text.integers(&[40, 1, 1, 3, 3]);
        let filter = text.layer("Reshape", "special_zero=\"false\"", &[filter, shape], "FP32");
        let x = text.layer("GroupConvolution", PLANE, &[x, filter], "FP32");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        let filter = text.rounded(constant, &[48, 40, 1, 1], levels, is_whole);
        let x = text.layer("Convolution", POINT, &[x, filter], "FP32");
        let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
        // Those of groups have limits of groups and of outputs.
        let filter = text.rounded(constant, &[3, 16, 16, 3, 3], levels, is_whole);
        let end = text.layer("GroupConvolution", PLANE, &[x, filter], "FP32");
        text.layer("Result", "", &[end], "");
        let image = image(&[1, 24, 13, 11]);
        let types = check(&text, &image, 5e-3);
        // The FakeQuantize of the data is a part of what is in front of it or behind it: no values go through memory.
        assert!(types.iter().all(|name| name != "FakeQuantize"), "{constant} {types:?}");
        let reports = text.reports();
        let notes = reports.iter().filter(|report| report.name == "store_levels").flat_map(|report| &report.notes);
        assert_eq!(notes.filter(|note| note.is_applied).count(), 4, "{constant}");
        let inputs = [image];
        let (expected, actual) = (text.unoptimised(&inputs), text.run(&inputs, false).0);
        near(&expected, &actual, 5e-3);
    }
}

/// What is no number has no code: such weights stay as they are.
#[test]
fn weights_that_are_no_numbers() {
    let mut text = Text::default();
    let x = text.parameter("f32", "1,8,5,5");
    let x = text.quantize(x, -1.0, 1.0 - 2.0 / 256.0);
    let filter = text.floats(&[16, 8, 3, 3], |i| if i == 300 { f32::NAN } else { i as f32 / 2000.0 });
    let filter = text.quantize(filter, -0.5, 0.5 - 1.0 / 256.0);
    let end = text.layer("Convolution", PLANE, &[x, filter], "FP32");
    text.layer("Result", "", &[end], "");
    let (output, _) = text.run(&[image(&[1, 8, 5, 5])], false);
    let values = output.slice::<f32>().unwrap();
    // The filter of one channel has it, at a tap that reads the padding in the first column.
    let reads = |i: usize| i / 25 == 300 / 72 && !i.is_multiple_of(5);
    assert!(values.iter().enumerate().all(|(i, value)| value.is_nan() == reads(i)), "{values:?}");
}
