//! Slices behind convolutions, which go into their padding.

use ovir_tensor::Tensor;

use super::text::{Text, compare};

/// Whether a Slice ran behind a convolution with a bias and an activation, compared with the layers one by one.
fn slices(
    data: &[usize],
    declared: &str,
    [strides, dilations, begin, end]: [&str; 4],
    [start, stop, step]: [i64; 3],
    axis: i64,
) -> bool {
    let mut text = Text::default();
    let rank = data.len();
    let x = text.parameter("f32", declared);
    let kernel: Vec<usize> = [5, data[1]].into_iter().chain(std::iter::repeat_n(3, rank - 2)).collect();
    let weights = text.floats(&kernel, |i| ((i * 29) % 13) as f32 / 13.0 - 0.4);
    let attributes =
        format!("strides=\"{strides}\" dilations=\"{dilations}\" pads_begin=\"{begin}\" pads_end=\"{end}\"");
    let product = text.layer("Convolution", &attributes, &[x, weights], "FP32");
    let channels: Vec<usize> = (0..rank).map(|axis| if axis == 1 { 5 } else { 1 }).collect();
    let bias = text.floats(&channels, |i| i as f32 / 3.0 - 0.5);
    let biased = text.layer("Add", "", &[product, bias], "FP32");
    let parameters = [&[start], &[stop], &[step], &[axis]].map(|values| text.integers(values));
    let cut = text.layer("Slice", "", &[&[biased][..], &parameters].concat(), "FP32");
    let end = text.layer("ReLU", "", &[cut], "FP32");
    text.layer("Result", "", &[end], "");
    let values: Vec<f32> = (0..data.iter().product()).map(|i| ((i * 37) % 41) as f32 / 20.0 - 1.0).collect();
    let given = [Tensor::from_slice(&values, data).unwrap()];
    let (actual, entries) = text.run(&given, false);
    compare(&text.unoptimised(&given), &actual, &format!("{attributes} {start} {stop} {step}"));
    entries.iter().any(|entry| entry.type_name == "Slice" || entry.type_name == "StridedSlice")
}

#[test]
fn surplus_padding_is_not_computed() {
    let causal = ["1", "4", "8", "8"];
    for declared in ["1,4,30", "?,4,?"] {
        assert!(!slices(&[1, 4, 30], declared, causal, [0, -8, 1], 2), "{declared}");
        assert!(!slices(&[1, 4, 30], declared, causal, [8, i64::MAX, 1], -1), "{declared}");
    }
    assert!(!slices(&[1, 4, 30], "1,4,30", causal, [-33, 34, 1], 2));
    assert!(!slices(&[2, 3, 9, 11], "2,3,9,11", ["2,1", "1,1", "3,1", "4,1"], [1, -1, 1], 2));
}

#[test]
fn other_slices_stay() {
    let causal = ["1", "4", "8", "8"];
    for (declared, given, axis) in [
        // More than the padding.
        ("1,4,30", [0, -9, 1], 2),
        ("1,4,30", [9, i64::MAX, 1], 2),
        // Not every element.
        ("1,4,30", [0, -8, 2], 2),
        // Channels.
        ("1,4,30", [0, -1, 1], 1),
        // From the end of an axis of unknown size.
        ("1,4,?", [-20, i64::MAX, 1], 2),
        // What stays may be too short for the taps.
        ("1,4,?", [7, -7, 1], 2),
    ] {
        assert!(slices(&[1, 4, 30], declared, causal, given, axis), "{declared} {given:?} {axis}");
    }
    assert!(!slices(&[1, 4, 30], "1,4,30", causal, [7, -7, 1], 2));
    // Everything is cut away; what is compared is that nothing is left.
    slices(&[1, 4, 30], "1,4,30", causal, [0, i64::MIN, 1], 2);
}
