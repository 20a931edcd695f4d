//! Transposes that undo each other around an Interpolate.

use ovir_tensor::Tensor;

use super::text::{Text, Value, compare};

const HALF_PIXEL: &str = "shape_calculation_mode=\"sizes\" coordinate_transformation_mode=\"half_pixel\" \
    nearest_mode=\"floor\" antialias=\"false\" cube_coeff=\"-0.75\"";

/// A convolution, and its value resized between two Transposes.
fn resized(text: &mut Text, mode: &str, pads: &str, orders: [&[i64]; 2], axes: &[i64]) -> Value {
    let x = text.parameter("f32", "?,6,?,?");
    let weights = text.floats(&[20, 6, 1, 1], |i| (i * 31 % 67) as f32 / 33.0 - 1.0);
    let plane = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"explicit\"";
    let value = text.layer("Convolution", plane, &[x, weights], "FP32");
    let order = text.integers(orders[0]);
    let value = text.layer("Transpose", "", &[value, order], "FP32");
    let (sizes, scales, axes) = (text.integers(&[9, 7]), text.floats(&[2], |_| 1.0), text.integers(axes));
    let attributes = format!("mode=\"{mode}\" pads_begin=\"{pads}\" pads_end=\"0\" {HALF_PIXEL}");
    let value = text.layer("Interpolate", &attributes, &[value, sizes, scales, axes], "FP32");
    let order = text.integers(orders[1]);
    let value = text.layer("Transpose", "", &[value, order], "FP32");
    text.layer("Result", "", &[value], "")
}

/// Runs the model, and tells how many Transposes are left.
fn transposes(mode: &str, pads: &str, orders: [&[i64]; 2], axes: &[i64]) -> usize {
    let mut text = Text::default();
    resized(&mut text, mode, pads, orders, axes);
    let values: Vec<f32> = (0..2 * 6 * 4 * 5).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let inputs = [Tensor::from_slice(&values, [2, 6, 4, 5]).unwrap()];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.unoptimised(&inputs), &actual, mode);
    entries.iter().filter(|entry| entry.type_name == "Transpose").count()
}

#[test]
fn transposes_that_undo_each_other_go() {
    for mode in ["linear_onnx", "nearest", "cubic"] {
        for axes in [[1, 2], [2, 1]] {
            assert_eq!(transposes(mode, "0", [&[0, 2, 3, 1], &[0, 3, 1, 2]], &axes), 0, "{mode} {axes:?}");
        }
    }
}

#[test]
fn other_transposes_stay() {
    assert_eq!(transposes("nearest", "0", [&[0, 2, 3, 1], &[0, 2, 3, 1]], &[1, 2]), 2);
    assert_eq!(transposes("nearest", "0,1,0,0", [&[0, 2, 3, 1], &[0, 3, 1, 2]], &[1, 2]), 2);
}

#[test]
fn the_last_transpose_of_a_pair_is_not_the_first_of_another() {
    let mut text = Text::default();
    let mut value = text.parameter("f32", "1,3,4,5");
    let (channels_last, channels_first) = (text.integers(&[0, 2, 3, 1]), text.integers(&[0, 3, 1, 2]));
    let attributes = format!("mode=\"nearest\" pads_begin=\"0\" pads_end=\"0\" {HALF_PIXEL}");
    for (order, axes, sizes) in [(channels_last, [1, 2], [9, 7]), (channels_first, [2, 3], [6, 8])] {
        value = text.layer("Transpose", "", &[value, order], "FP32");
        let (sizes, scales, axes) = (text.integers(&sizes), text.floats(&[2], |_| 1.0), text.integers(&axes));
        value = text.layer("Interpolate", &attributes, &[value, sizes, scales, axes], "FP32");
    }
    value = text.layer("Transpose", "", &[value, channels_last], "FP32");
    text.layer("Result", "", &[value], "");
    let values: Vec<f32> = (0..3 * 4 * 5).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let inputs = [Tensor::from_slice(&values, [1, 3, 4, 5]).unwrap()];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.unoptimised(&inputs), &actual, "chain");
    assert_eq!(entries.iter().filter(|entry| entry.type_name == "Transpose").count(), 1);
}

/// The Transposes that are left of several in a row, of which the first `read` is read by others too.
fn left_of_row(orders: &[&[i64]], read: Option<usize>, ends_in_result: bool) -> usize {
    let mut text = Text::default();
    let mut value = text.parameter("f32", "?,3,4,?");
    let mut others = Vec::new();
    for (index, order) in orders.iter().enumerate() {
        let order = text.integers(order);
        value = text.layer("Transpose", "", &[value, order], "FP32");
        if read == Some(index) {
            others.push(value);
        }
    }
    if !ends_in_result {
        value = text.unary("Sigmoid", value);
    }
    for other in others {
        let axes = text.integers(&[0, 1, 2, 3]);
        let sum = text.layer("ReduceSum", "keep_dims=\"true\"", &[other, axes], "FP32");
        value = text.layer("Add", "auto_broadcast=\"numpy\"", &[value, sum], "FP32");
    }
    text.layer("Result", "", &[value], "");
    let values: Vec<f32> = (0..2 * 3 * 4 * 5).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let inputs = [Tensor::from_slice(&values, [2, 3, 4, 5]).unwrap()];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.unoptimised(&inputs), &actual, &format!("{orders:?}"));
    entries.iter().filter(|entry| entry.type_name == "Transpose").count()
}

#[test]
fn transposes_that_follow_each_other_go() {
    let (last, first): (&[i64], &[i64]) = (&[0, 2, 3, 1], &[0, 3, 1, 2]);
    assert_eq!(left_of_row(&[last, first], None, false), 0);
    assert_eq!(left_of_row(&[last, first, last, first], None, false), 0);
    assert_eq!(left_of_row(&[last, first, last], None, false), 1);
    assert_eq!(left_of_row(&[last, first], Some(0), false), 1);
    // The second one does not undo the first, or is what the model is asked for: one is left of both.
    assert_eq!(left_of_row(&[last, last], None, false), 1);
    assert_eq!(left_of_row(&[last, first], None, true), 1);
    assert_eq!(left_of_row(&[last, last], Some(0), false), 2);
}
