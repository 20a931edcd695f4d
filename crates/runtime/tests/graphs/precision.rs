//! Models at another precision of inference.

use ovir_kernels::isa;
use ovir_kernels::quantized::has_bf16;
use ovir_optimize::Options;
use ovir_runtime::{CompileOptions, InferencePrecision};
use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value};

fn values(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

fn run(text: &Text, inputs: &[Tensor], inference_precision: InferencePrecision, threads: usize) -> Tensor {
    let options = CompileOptions { threads, inference_precision, ..CompileOptions::default() };
    let mut request = text.request_of(&Options::default(), &options);
    for (index, input) in inputs.iter().enumerate() {
        request.set_input(index, input.clone()).unwrap();
    }
    request.infer().unwrap();
    request.output(0).unwrap().clone()
}

/// Results at bf16 are near those at f32, but not the same where the machine has the instructions; threads make no difference.
fn check(mut text: Text, end: Value, inputs: &[Tensor], what: &str) {
    text.layer("Result", "", &[end], "");
    let exact = run(&text, inputs, InferencePrecision::F32, 2);
    let rounded = run(&text, inputs, InferencePrecision::Bf16, 2);
    let (a, b) = (exact.slice::<f32>().unwrap(), rounded.slice::<f32>().unwrap());
    let largest = a.iter().fold(0f32, |most, value| most.max(value.abs()));
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() <= 0.02 * largest), "{what}");
    assert_eq!(a != b, has_bf16(isa::detect()), "{what}");
    assert_eq!(rounded.bytes(), run(&text, inputs, InferencePrecision::Bf16, 1).bytes(), "{what}");
}

#[test]
fn products_and_convolutions_round_their_operands() {
    for is_transposed in [false, true] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,?,33");
        let weights =
            text.floats(if is_transposed { &[50, 33] } else { &[33, 50] }, |i| ((i * 7) % 19) as f32 / 11.0 - 0.7);
        let bias = text.floats(&[1, 1, 50], |i| i as f32 / 10.0);
        let end = text.layer(
            "MatMul",
            &format!("transpose_a=\"false\" transpose_b=\"{is_transposed}\""),
            &[x, weights],
            "FP32",
        );
        let end = text.layer("Add", "", &[end, bias], "FP32");
        let end = text.layer("ReLU", "", &[end], "FP32");
        check(text, end, &[values(&[2, 7, 33], 1)], "a product");
    }
    let mut text = Text::default();
    let x = text.parameter("f32", "?,20,?,?");
    let convolution = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\"";
    let first = text.floats(&[40, 20, 3, 3], |i| ((i * 7) % 19) as f32 / 40.0 - 0.2);
    let second = text.floats(&[40, 40, 3, 3], |i| ((i * 5) % 17) as f32 / 40.0 - 0.2);
    let a = text.layer("Convolution", convolution, &[x, first], "FP32");
    let a = text.layer("ReLU", "", &[a], "FP32");
    let b = text.layer("Convolution", convolution, &[a, second], "FP32");
    let end = text.layer("Add", "", &[b, a], "FP32");
    check(text, end, &[values(&[2, 20, 9, 11], 3)], "convolutions");
}

#[test]
fn attention_rounds_its_operands() {
    for is_causal in [false, true] {
        let mut text = Text::default();
        let operands = [(); 3].map(|()| text.parameter("f32", "?,3,?,24"));
        let attention = format!("causal=\"{is_causal}\"");
        let end = text.layer("ScaledDotProductAttention", &attention, &operands, "FP32");
        let inputs = [values(&[2, 3, 40, 24], 1), values(&[2, 3, 51, 24], 2), values(&[2, 3, 51, 24], 3)];
        check(text, end, &inputs, "attention");
    }
}

/// Halves that are moved alone stay halves; those that something computes with are widened once.
#[test]
fn halves_that_are_only_moved_stay() {
    let halves: Vec<half::f16> = (0..60).map(|i| half::f16::from_f32(i as f32 / 7.0)).collect();
    let given = [Tensor::from_slice(&halves, [3, 4, 5]).unwrap()];
    for computes in [false, true] {
        let mut text = Text::default();
        let x = text.parameter("f16", "3,4,5");
        let order = text.integers(&[2, 0, 1]);
        let turned = text.layer("Transpose", "", &[x, order], "FP16");
        let mut end = text.layer("Concat", "axis=\"1\"", &[turned, turned], "FP16");
        if computes {
            end = text.layer("ReLU", "", &[end], "FP16");
        }
        text.layer("Result", "", &[end], "");
        let (actual, entries) = text.run(&given, false);
        assert_eq!(actual.bytes(), text.unoptimised(&given).bytes());
        let converts = entries.iter().filter(|entry| entry.type_name == "Convert").count();
        assert_eq!(converts > 0, computes, "{:?}", entries.iter().map(|entry| &*entry.type_name).collect::<Vec<_>>());
    }
}
