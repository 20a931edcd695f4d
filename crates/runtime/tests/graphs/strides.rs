//! Strides of pointwise convolutions, which go to the convolutions that compute what they read.

use ovir_tensor::Tensor;

use super::text::{Text, Value, compare};

/// What stands between the sums of a block, whose data has this shape, and their readers.
type Between = fn(&mut Text, Value, &[usize]) -> Value;

/// What is done to the sums of a block of a residual network, and who reads them.
struct Case<'a> {
    /// The shape of the data, as declared and as given.
    declared: &'a str,
    data: &'a [usize],
    /// Attributes of the convolutions of three elements, and of those that read the block: one item a spatial axis.
    ends: [&'a str; 2],
    readers: [&'a str; 2],
    /// What stands between the sums and their readers.
    between: Between,
    /// Whether the sums are a result, too.
    is_result: bool,
}

const PLAIN: Case<'static> = Case {
    declared: "2,8,11,14",
    data: &[2, 8, 11, 14],
    ends: ["1,1", "auto_pad=\"explicit\" pads_begin=\"1,1\" pads_end=\"1,1\""],
    readers: ["2,2", "2,2"],
    between: |text, value, _| text.layer("ReLU", "", &[value], "FP32"),
    is_result: false,
};

fn convolution(
    text: &mut Text,
    x: Value,
    [from, to, taps]: [usize; 3],
    axes: usize,
    strides: &str,
    pads: &str,
) -> Value {
    let shape: Vec<usize> = [to, from].into_iter().chain(std::iter::repeat_n(taps, axes)).collect();
    let weights = text.floats(&shape, |i| ((i * 29) % 23) as f32 / 23.0 - 0.45);
    let (zeros, ones) = (vec!["0"; axes].join(","), vec!["1"; axes].join(","));
    let pads = if pads.is_empty() { format!("pads_begin=\"{zeros}\" pads_end=\"{zeros}\"") } else { pads.to_owned() };
    let attributes = format!("strides=\"{strides}\" dilations=\"{ones}\" {pads}");
    text.layer("Convolution", &attributes, &[x, weights], "FP32")
}

/// The notes of the pass, and the strided layers that were added, for a block that is compared with its layers one by one.
fn lifted(case: &Case<'_>) -> (usize, usize) {
    let mut text = Text::default();
    let axes = case.data.len() - 2;
    let [ones, pads] = case.ends;
    let x = text.parameter("f32", case.declared);
    let first = convolution(&mut text, x, [8, 20, 3], axes, ones, pads);
    let first = text.layer("ReLU", "", &[first], "FP32");
    let inner = convolution(&mut text, first, [20, 6, 1], axes, ones, "");
    let inner = text.layer("ReLU", "", &[inner], "FP32");
    let inner = convolution(&mut text, inner, [6, 18, 3], axes, ones, pads);
    let inner = text.layer("HSwish", "", &[inner], "FP32");
    let inner = convolution(&mut text, inner, [18, 20, 1], axes, ones, "");
    let sum = text.layer("Add", "", &[first, inner], "FP32");
    let sum = (case.between)(&mut text, sum, case.data);
    let left = convolution(&mut text, sum, [20, 7, 1], axes, case.readers[0], "");
    let right = convolution(&mut text, sum, [20, 7, 1], axes, case.readers[1], "");
    let end = match case.readers[0] == case.readers[1] {
        true => text.layer("Subtract", "", &[left, right], "FP32"),
        false => left,
    };
    text.layer("Result", "", &[end], "");
    if case.readers[0] != case.readers[1] {
        text.layer("Result", "", &[right], "");
    }
    if case.is_result {
        text.layer("Result", "", &[sum], "");
    }
    let values: Vec<f32> = (0..case.data.iter().product()).map(|i| ((i * 37) % 41) as f32 / 20.0 - 1.0).collect();
    let given = [Tensor::from_slice(&values, case.data).unwrap()];
    let (actual, entries) = text.run(&given, false);
    compare(&text.unoptimised(&given), &actual, &format!("{} {:?} {:?}", case.declared, case.ends, case.readers));
    let reports = text.reports();
    let report = reports.iter().find(|report| report.name == "lift_strides").unwrap();
    let applied = report.notes.iter().filter(|note| note.is_applied).count();
    (applied, entries.iter().filter(|entry| entry.type_name == "MaxPool").count())
}

#[test]
fn residual_blocks_compute_what_is_read() {
    assert_eq!(lifted(&PLAIN), (4, 1));
    for (strides, data) in
        [("2,2", [1, 8, 14, 13]), ("3,2", [1, 8, 10, 9]), ("1,4", [3, 8, 5, 18]), ("5,5", [1, 8, 4, 4])]
    {
        for declared in [&data.map(|size| size.to_string()).join(","), "?,8,?,?"] {
            assert_eq!(lifted(&Case { readers: [strides; 2], data: &data, declared, ..PLAIN }), (4, 1), "{declared}");
        }
    }
    for auto_pad in ["same_upper", "same_lower"] {
        let pads = &format!("auto_pad=\"{auto_pad}\" pads_begin=\"0,0\" pads_end=\"0,0\"");
        assert_eq!(lifted(&Case { ends: ["1,1", pads], ..PLAIN }), (4, 1));
    }
    let line = Case {
        declared: "1,8,15",
        data: &[1, 8, 15],
        ends: ["1", "pads_begin=\"2\" pads_end=\"0\""],
        readers: ["2", "2"],
        ..PLAIN
    };
    assert_eq!(lifted(&line), (4, 1));
    let volume = Case {
        declared: "1,8,5,6,7",
        data: &[1, 8, 5, 6, 7],
        ends: ["1,1,1", "pads_begin=\"1,1,1\" pads_end=\"1,1,1\""],
        readers: ["2,2,2", "2,2,2"],
        ..PLAIN
    };
    assert_eq!(lifted(&volume), (4, 1));
}

#[test]
fn layers_that_work_element_by_element_stand_between() {
    let layers: [Between; 5] = [
        |text, value, _| {
            let slopes = text.floats(&[20], |i| 0.1 * i as f32 - 0.7);
            text.layer("PReLU", "", &[value, slopes], "FP32")
        },
        |text, value, _| {
            let factors = text.floats(&[1, 20, 1, 1], |i| 0.1 * i as f32 - 0.7);
            let scaled = text.layer("Multiply", "", &[factors, value], "FP32");
            text.layer("Clamp", "min=\"-1\" max=\"2\"", &[scaled], "FP32")
        },
        |text, value, _| {
            let [low, high] = [-4.0, 4.0].map(|limit| text.floats(&[], |_| limit));
            text.layer("FakeQuantize", "levels=\"256\"", &[value, low, high, low, high], "FP32")
        },
        |text, value, _| {
            // What is the same everywhere may be computed.
            let one = text.floats(&[1, 20, 1, 1], |i| 0.1 * i as f32 - 0.7);
            let computed = text.layer("Sigmoid", "", &[one], "FP32");
            text.layer("Multiply", "", &[value, computed], "FP32")
        },
        |text, value, _| {
            let other = text.layer("Sigmoid", "", &[value], "FP32");
            text.layer("Multiply", "", &[value, other], "FP32")
        },
    ];
    for (index, between) in layers.into_iter().enumerate() {
        assert_eq!(lifted(&Case { between, ..PLAIN }), (4, 1), "{index}");
    }
}

#[test]
fn others_keep_their_strides() {
    assert_eq!(lifted(&Case { is_result: true, ..PLAIN }), (0, 0));
    assert_eq!(lifted(&Case { readers: ["2,2", "1,1"], ..PLAIN }), (0, 0));
    assert_eq!(lifted(&Case { readers: ["2,2", "2,1"], ..PLAIN }), (0, 0));
    // A constant that is another one at each place.
    let between = |text: &mut Text, value: Value, data: &[usize]| {
        let map = text.floats(&[1, 1, data[2], data[3]], |i| i as f32 / 100.0);
        text.layer("Add", "", &[value, map], "FP32")
    };
    assert_eq!(lifted(&Case { between, ..PLAIN }), (0, 0));
    // A layer that looks at its neighbours.
    let between = |text: &mut Text, value: Value, _: &[usize]| text.layer("SoftMax", "axis=\"3\"", &[value], "FP32");
    assert_eq!(lifted(&Case { between, ..PLAIN }), (0, 0));
}
