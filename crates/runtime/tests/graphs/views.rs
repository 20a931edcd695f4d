//! Gathers of windows (`unfold`) and the Transposes around them, which are one copy.

use ovir_tensor::Tensor;

use super::text::{Text, Value, compare};

impl Text {
    /// A Gather by `indices` of a shape.
    fn gather(&mut self, x: Value, shape: &[usize], indices: &[i64], axis: i64, precision: &str) -> Value {
        let bytes: Vec<u8> = indices.iter().flat_map(|index| index.to_le_bytes()).collect();
        let indices = self.constant("i64", shape, &bytes);
        let axis = self.integers(&[axis]);
        self.layer("Gather", "", &[x, indices, axis], precision)
    }
}

/// The places of windows: `[taps, positions]`.
fn windows(taps: usize, positions: usize, stride: usize, dilation: usize) -> ([usize; 2], Vec<i64>) {
    let index = |tap: usize, position: usize| (tap * dilation + position * stride) as i64;
    let indices = (0..taps).flat_map(|tap| (0..positions).map(move |position| index(tap, position)));
    ([taps, positions], indices.collect())
}

/// What runs for an unfolding of `[2, 3, 9, 10]`, compared with the layers one by one.
fn unfolded(declared: &str, taps: usize, stride: usize, dilation: usize) -> Vec<String> {
    let mut text = Text::default();
    let mut value = text.parameter("f32", declared);
    for (axis, size) in [(2, 9), (4, 10)] {
        let (shape, indices) = windows(taps, (size - (taps - 1) * dilation - 1) / stride + 1, stride, dilation);
        value = text.gather(value, &shape, &indices, axis, "FP32");
    }
    let order = text.integers(&[0, 1, 2, 4, 3, 5]);
    let value = text.layer("Transpose", "", &[value, order], "FP32");
    text.layer("Result", "", &[value], "");
    let values: Vec<f32> = (0..2 * 3 * 9 * 10).map(|i| i as f32).collect();
    let inputs = [Tensor::from_slice(&values, [2, 3, 9, 10]).unwrap()];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.unoptimised(&inputs), &actual, &format!("{declared} {taps} {stride} {dilation}"));
    assert!(entries.iter().all(|entry| entry.is_kernel), "{declared}");
    entries.into_iter().map(|entry| entry.type_name).collect()
}

#[test]
fn unfolding_is_one_copy() {
    for declared in ["2,3,9,10", "?,3,?,?", "?,?,?,?"] {
        for (taps, stride, dilation) in [(3, 1, 1), (3, 2, 1), (2, 1, 3), (4, 3, 2), (1, 1, 1)] {
            assert_eq!(unfolded(declared, taps, stride, dilation), ["Fused"], "{declared}");
        }
    }
}

/// Whether one Gather along the last axis of `[2, 3, 8]` of `T` is a copy of windows, its value compared bit for bit.
fn gathered<T: ovir_tensor::NativeElement + Clone>(
    types: [&str; 2],
    values: impl Fn(usize) -> T,
    shape: &[usize],
    indices: &[i64],
) -> bool {
    let mut text = Text::default();
    let x = text.parameter(types[0], "2,3,8");
    let value = text.gather(x, shape, indices, -1, types[1]);
    text.layer("Result", "", &[value], "");
    let values: Vec<T> = (0..48).map(values).collect();
    let inputs = [Tensor::from_slice(&values, [2, 3, 8]).unwrap()];
    let (actual, entries) = text.run(&inputs, false);
    assert_eq!(text.unoptimised(&inputs).view().bytes(), actual.view().bytes(), "{indices:?}");
    assert_eq!(entries.len(), 1, "{indices:?}");
    entries[0].type_name == "Fused" && entries[0].is_kernel
}

#[test]
fn windows_of_other_types() {
    let (shape, indices) = windows(3, 4, 1, 2);
    assert!(gathered(["u8", "U8"], |i| i as u8, &shape, &indices));
    assert!(gathered(["i64", "I64"], |i| i as i64, &shape, &indices));
    // Backwards along the second axis, and three axes.
    assert!(gathered(["i32", "I32"], |i| i as i32, &[2, 3], &[5, 4, 3, 7, 6, 5]));
    let cube: Vec<i64> = (0..8).map(|i| i / 4 + i / 2 % 2 * 2 + i % 2 * 3).collect();
    assert!(gathered(["i32", "I32"], |i| i as i32, &[2, 2, 2], &cube));
}

#[test]
fn other_indices_stay() {
    // They do not advance evenly, count from the end, or are a list.
    for (shape, indices) in [(&[2usize, 2][..], &[0i64, 1, 2, 4][..]), (&[2, 2], &[-1, 0, 0, 1]), (&[3], &[1, 2, 3])] {
        assert!(!gathered(["i32", "I32"], |i| i as i32, shape, indices), "{indices:?}");
    }
    // From version 8 on, what is outside is zero, which no copy gives.
    assert!(!gathered(["i32", "I32"], |i| i as i32, &[2, 2], &[6, 7, 7, 8]));
}
