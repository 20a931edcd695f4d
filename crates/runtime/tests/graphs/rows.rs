//! Convolutions between layers that see their channels as rows: Transposes into blocks and back, and activations behind
//! them.

use ovir_tensor::Tensor;

use super::text::{Text, Value, compare};

const PLANE: &str = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";

fn values(shape: &[usize]) -> Tensor {
    let values: Vec<f32> = (0..shape.iter().product()).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

impl Text {
    fn transpose(&mut self, x: Value, order: &[i64]) -> Value {
        let order = self.integers(order);
        self.layer("Transpose", "", &[x, order], "FP32")
    }

    fn reshape(&mut self, x: Value, shape: &[i64]) -> Value {
        let shape = self.integers(shape);
        self.layer("Reshape", "special_zero=\"true\"", &[x, shape], "FP32")
    }

    fn product(&mut self, x: Value, inputs: usize, outputs: usize) -> Value {
        let weights = self.floats(&[inputs, outputs], |i| ((i * 29 % 83) as f32 / 41.0 - 1.0) / inputs as f32);
        self.layer("MatMul", "transpose_a=\"false\" transpose_b=\"false\"", &[x, weights], "FP32")
    }

    fn depthwise(&mut self, x: Value, channels: usize) -> Value {
        let weights = self.floats(&[channels, 1, 1, 3, 3], |i| (i * 29 % 83) as f32 / 41.0 - 1.0);
        let bias = self.floats(&[1, channels, 1, 1], |i| i as f32 / channels as f32 - 0.5);
        let value = self.layer("GroupConvolution", PLANE, &[x, weights], "FP32");
        self.binary("Add", value, bias)
    }

    /// The types of the steps that run, the result compared with that of the layers one by one.
    fn steps(&self, inputs: &[Tensor], what: &str) -> Vec<String> {
        let (actual, entries) = self.run(inputs, false);
        compare(&self.unoptimised(inputs), &actual, what);
        assert!(entries.iter().all(|entry| entry.is_kernel || entry.type_name == "Reshape"), "{what}");
        entries.into_iter().map(|entry| entry.type_name).collect()
    }
}

/// The feed-forward layer of a hybrid network, with its activation behind the Transpose.
fn mixed(shape: &str, channels: usize, batch: i64) -> Text {
    let mut text = Text::default();
    let x = text.parameter("f32", shape);
    let wide = text.product(x, 24, channels);
    let turned = text.transpose(wide, &[0, 2, 1]);
    let image = text.reshape(turned, &[batch, channels as i64, -1, 5]);
    let image = text.depthwise(image, channels);
    let lines = text.reshape(image, &[0, 0, -1]);
    let rows = text.transpose(lines, &[0, 2, 1]);
    let active = text.unary("Sigmoid", rows);
    let end = text.product(active, channels, 16);
    text.layer("Result", "", &[end], "");
    text
}

#[test]
fn rows_go_into_blocks_and_back() {
    for (shape, batch, channels) in [("1,35,24", 1, 40), ("2,35,24", 2, 64), ("1,?,24", 1, 40), ("1,?,24", 1, 33)] {
        let text = mixed(shape, channels, batch);
        for lines in [7, 4] {
            let lines = if shape.contains('?') { lines } else { 7 };
            let steps = text.steps(&[values(&[batch as usize, lines * 5, 24])], shape);
            let count = |kind: &str| steps.iter().filter(|step| step.contains(kind)).count();
            assert_eq!([count("Reorder"), count("Transpose"), count("Sigmoid")], [0, 2, 0], "{shape} {steps:?}");
        }
    }
}

/// A batch of unknown size that a Reshape copies is known to stay, one that it computes is not.
#[test]
fn unknown_batches() {
    for (rows, sizes, is_kept) in [("?,35,24", 0, true), ("1..4,35,24", 3, false)] {
        let text = mixed(rows, 40, sizes);
        for batch in [3, 1].into_iter().filter(|batch| is_kept || *batch == 3) {
            let steps = text.steps(&[values(&[batch, 35, 24])], rows);
            assert_eq!(!steps.iter().any(|step| step == "Reorder"), is_kept, "{steps:?}");
        }
    }
}

#[test]
fn images_of_rows_go_into_blocks_and_back() {
    let mut text = Text::default();
    let x = text.parameter("f32", "2,?,9,24");
    let active = text.unary("Tanh", x);
    let image = text.transpose(active, &[0, 3, 1, 2]);
    let image = text.depthwise(image, 24);
    let rows = text.transpose(image, &[0, 2, 3, 1]);
    let sum = text.binary("Add", rows, active);
    text.layer("Result", "", &[sum], "");
    let steps = text.steps(&[values(&[2, 6, 9, 24])], "images");
    assert!(!steps.iter().any(|step| step.contains("Reorder")), "{steps:?}");
}

/// Reshapes that mix channels or images with others, and values that are read in both layouts.
#[test]
fn other_reshapes_see_plain_values() {
    for (channels, shape) in [(24, [1, 48, 72]), (24, [2, 48, 36]), (24, [2, 24, 72]), (40, [4, 20, 72])] {
        let mut text = Text::default();
        let x = text.parameter("f32", "2,8,9,24");
        let wide = text.product(x, 24, channels);
        let turned = text.transpose(wide, &[0, 3, 1, 2]);
        let image = text.depthwise(turned, channels);
        let both = text.binary("Add", image, turned);
        let lines = text.reshape(both, &shape);
        let rows = text.transpose(lines, &[0, 2, 1]);
        let other = text.reshape(turned, &[shape[0], shape[2], shape[1]]);
        let end = text.binary("Multiply", rows, other);
        text.layer("Result", "", &[end], "");
        text.steps(&[values(&[2, 8, 9, 24])], &format!("{shape:?}"));
    }
}

/// An activation stays where something else reads the value in front of it, or where its parameter has several values.
#[test]
fn activations_of_several_readers_stay() {
    for (is_read, slopes) in [(true, 1), (false, 1), (false, 40)] {
        let mut text = Text::default();
        let x = text.parameter("f32", "1,35,24");
        let wide = text.product(x, 24, 40);
        let rows = text.transpose(wide, &[0, 2, 1]);
        let slope = text.floats(&[slopes], |i| i as f32 / 8.0 - 1.0);
        let mut end = text.layer("PReLU", "", &[rows, slope], "FP32");
        if is_read {
            end = text.binary("Add", end, rows);
        }
        text.layer("Result", "", &[end], "");
        let steps = text.steps(&[values(&[1, 35, 24])], "PReLU");
        let is_moved = !steps.iter().any(|step| step == "PReLU" || step == "MatMul");
        assert_eq!(is_moved, !is_read && slopes == 1, "{steps:?}");
    }
}
