//! Groups of elementwise layers that run as one.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value, compare};

fn values(shape: &[usize], step: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * step) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

/// A graph with constants of all forms, values that are read twice, and one that leaves in the middle.
fn graph(declared: [&str; 2]) -> Text {
    let mut text = Text::default();
    let x = text.parameter("f32", declared[0]);
    let y = text.parameter("f32", declared[1]);
    let two = text.floats(&[], |_| 2.0);
    let small = text.floats(&[1], |_| 1e-3);
    let row = text.floats(&[6], |i| i as f32 - 2.5);
    let squared = text.binary("Power", x, two);
    let shifted = text.binary("Add", squared, small);
    let root = text.unary("Sqrt", shifted);
    let ratio = text.binary("Divide", x, root);
    let wide = text.binary("Multiply", ratio, y);
    let scaled = text.binary("Multiply", row, wide);
    let gate = text.unary("Sigmoid", scaled);
    let gated = text.binary("Multiply", scaled, gate);
    let axis = text.integers(&[-1]);
    let total = text.layer("ReduceSum", "keep_dims=\"true\"", &[gated, axis], "FP32");
    let centred = text.binary("Subtract", gated, total);
    let bent = text.unary("Tanh", centred);
    let end = text.binary("Maximum", bent, gated);
    text.layer("Result", "", &[end], "");
    text
}

#[test]
fn groups_equal_their_layers() {
    let cases: [([&str; 2], [&[usize]; 2]); 5] = [
        (["4,5,6", "4,5,6"], [&[4, 5, 6], &[4, 5, 6]]),
        (["4,5,6", "5,1"], [&[4, 5, 6], &[5, 1]]),
        (["?,5,6", "?,5,6"], [&[40, 5, 6], &[40, 5, 6]]),
        (["?,?,6", "?,?,6"], [&[4, 5, 6], &[1, 5, 6]]),
        (["1,6", "300,1"], [&[1, 6], &[300, 1]]),
    ];
    for (declared, shapes) in cases {
        let text = graph(declared);
        let inputs = [values(shapes[0], 37), values(shapes[1], 53)];
        let (expected, _) = text.run(&inputs, true);
        let (actual, entries) = text.run(&inputs, false);
        compare(&expected, &actual, &format!("{declared:?}"));
        assert!(entries.iter().all(|entry| entry.is_kernel));
        // Unknown sizes may broadcast, which divides the groups.
        let most = if declared[0].contains('?') { 9 } else { 6 };
        assert!(entries.len() <= most, "{declared:?}: {} steps", entries.len());
    }
}

/// A layer for each number below `count`, over a value of this shape and constants that it is computed with.
fn chain(text: &mut Text, first: Value, shape: &[usize], count: usize) -> Value {
    let row = [shape[shape.len() - 1]];
    let column: Vec<usize> = shape[..shape.len() - 1].iter().copied().chain([1]).collect();
    (0..count).fold(first, |value, place| {
        let constant: &[usize] = [shape, &row, &column, &[], shape][place % 5];
        let constant = text.floats(constant, |i| ((i + place) % 7) as f32 / 5.0 - 0.5);
        match place % 8 {
            0 | 3 => text.binary("Add", value, constant),
            1 | 5 => text.binary("Multiply", value, constant),
            2 => text.unary("Tanh", value),
            4 => text.binary("Maximum", constant, value),
            6 => text.binary("Subtract", constant, first),
            _ => text.binary("Subtract", value, first),
        }
    })
}

/// Over few elements constants do not divide a group, however many there are, unless the sizes are not known.
#[test]
fn long_groups_over_few_elements() {
    let cases: [(&str, &[usize], usize); 5] = [
        ("2,7", &[2, 7], 2),
        ("1,16", &[1, 16], 2),
        ("2,4,64", &[2, 4, 64], 2),
        ("2,4,65", &[2, 4, 65], 14),
        ("?,7", &[2, 7], 14),
    ];
    for (declared, shape, most) in cases {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let end = chain(&mut text, x, shape, 100);
        text.layer("Result", "", &[end], "");
        let inputs = [values(shape, 37)];
        let (actual, entries) = text.run(&inputs, false);
        compare(&text.run(&inputs, true).0, &actual, declared);
        assert!(entries.iter().all(|entry| entry.is_kernel));
        assert!(entries.len() <= most, "{declared}: {} steps", entries.len());
    }
}

/// Between convolutions, whose values are on blocks, too.
#[test]
fn long_groups_over_few_elements_among_blocks() {
    let shape = [1, 32, 2, 3];
    let mut text = Text::default();
    let mut x = text.parameter("f32", "1,32,2,3");
    for place in 0..2 {
        let filter = text.floats(&[32, 32, 3, 3], |i| (i % 7) as f32 / 80.0 - 0.04);
        let attributes = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
        x = text.layer("Convolution", attributes, &[x, filter], "FP32");
        if place == 0 {
            x = chain(&mut text, x, &shape, 70);
        }
    }
    text.layer("Result", "", &[x], "");
    let inputs = [values(&shape, 37)];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.run(&inputs, true).0, &actual, "among blocks");
    assert!(entries.iter().all(|entry| entry.is_kernel), "{entries:?}");
}

/// A slope that would widen the data is an error, in a group as in a layer alone.
#[test]
fn slopes_do_not_widen_groups() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,6,5,6");
    let slope = text.floats(&[2, 6, 1, 1], |i| i as f32 * 0.3 - 0.8);
    let bent = text.layer("PReLU", "", &[x, slope], "FP32");
    let end = text.unary("Tanh", bent);
    text.layer("Result", "", &[end], "");
    let message = text.failure(&[values(&[1, 6, 5, 6], 37)]);
    assert!(message.contains("[2,6,1,1]") && message.contains("PReLU"), "{message}");
}

/// A PReLU between other functions, of plain values and behind a convolution, whose output is read besides.
#[test]
fn slopes_that_broadcast_join_groups() {
    let slopes: [(&[usize], bool); 5] =
        [(&[1, 6, 1, 1], true), (&[6, 1, 1], true), (&[1], true), (&[6], false), (&[1, 1, 1, 6], true)];
    for ((shape, joins), behind_convolution) in slopes.into_iter().flat_map(|slope| [(slope, false), (slope, true)]) {
        let mut text = Text::default();
        let mut x = text.parameter("f32", "2,6,5,6");
        if behind_convolution {
            let filter = text.floats(&[6, 6, 3, 3], |i| (i % 7) as f32 / 8.0 - 0.4);
            let attributes =
                "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
            x = text.layer("Convolution", attributes, &[x, filter], "FP32");
        }
        let slope = text.floats(shape, |i| i as f32 * 0.3 - 0.8);
        let factor = text.floats(&[1, 6, 1, 1], |i| i as f32 - 2.5);
        let shift = text.floats(&[1, 6, 1, 1], |i| 0.5 - i as f32);
        let bent = text.layer("PReLU", "", &[x, slope], "FP32");
        let scaled = text.binary("Multiply", bent, factor);
        let shifted = text.binary("Add", scaled, shift);
        text.layer("Result", "", &[shifted], "");
        text.layer("Result", "", &[x], "");
        let inputs = [values(&[2, 6, 5, 6], 37)];
        let (expected, _) = text.run(&inputs, true);
        let (actual, entries) = text.run(&inputs, false);
        compare(&expected, &actual, &format!("{shape:?} {behind_convolution}"));
        let is_apart = entries.iter().any(|entry| entry.type_name == "PReLU");
        assert_eq!(is_apart, !joins, "{shape:?} {behind_convolution}");
    }
}

/// Gelu as TensorFlow and others write it, with factors in any order.
#[test]
fn gelu_that_is_written_out_is_one_layer() {
    for way in 0..6 {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,7,33");
        let number = |text: &mut Text, value: f32| text.floats(&[], |_| value);
        let (half, one) = (number(&mut text, 0.5), number(&mut text, 1.0));
        let root = std::f32::consts::FRAC_1_SQRT_2;
        let is_negative = way % 2 == 1;
        let scaled = if way == 4 {
            let root = number(&mut text, std::f32::consts::SQRT_2);
            text.binary("Divide", x, root)
        } else {
            let root = number(&mut text, if is_negative { -root } else { root });
            text.binary("Multiply", root, x)
        };
        let erf = text.unary("Erf", scaled);
        let sum = if is_negative { text.binary("Subtract", one, erf) } else { text.binary("Add", erf, one) };
        let end = match way / 2 {
            0 => {
                let halved = text.binary("Multiply", half, x);
                text.binary("Multiply", halved, sum)
            }
            1 => {
                let product = text.binary("Multiply", x, sum);
                text.binary("Multiply", product, half)
            }
            _ => {
                let halved = text.binary("Multiply", sum, half);
                text.binary("Multiply", halved, x)
            }
        };
        text.layer("Result", "", &[end], "");
        let inputs = [values(&[3, 7, 33], 37)];
        let (actual, entries) = text.run(&inputs, false);
        compare(&text.unoptimised(&inputs), &actual, &format!("way {way}"));
        let kinds: Vec<&str> = entries.iter().map(|entry| &*entry.type_name).collect();
        assert_eq!(kinds, ["Gelu"], "way {way}");
    }
    // Another factor is another function.
    let mut text = Text::default();
    let x = text.parameter("f32", "4,7,33");
    let [half, one, root] = [0.5, 1.0, 0.7].map(|value| text.floats(&[], |_| value));
    let scaled = text.binary("Multiply", x, root);
    let erf = text.unary("Erf", scaled);
    let sum = text.binary("Add", erf, one);
    let halved = text.binary("Multiply", sum, half);
    let end = text.binary("Multiply", halved, x);
    text.layer("Result", "", &[end], "");
    let inputs = [values(&[4, 7, 33], 37)];
    let (actual, entries) = text.run(&inputs, false);
    compare(&text.unoptimised(&inputs), &actual, "another factor");
    assert_eq!(entries.iter().filter(|entry| entry.type_name == "Fused").count(), 1);
}

/// What comparisons and truth values from outside choose, with constants of one element and values that are repeated. The
/// last layer gives truth values, or numbers of them, or chosen values.
fn choices(declared: [&str; 3], end: usize) -> Text {
    let mut text = Text::default();
    let x = text.parameter("f32", declared[0]);
    let y = text.parameter("f32", declared[1]);
    let mask = text.parameter("boolean", declared[2]);
    let zero = text.floats(&[], |_| 0.0);
    let few = text.floats(&[1], |_| 0.3);
    let compare = |text: &mut Text, kind: &str, a, b| text.layer(kind, "", &[a, b], "BOOL");
    let doubled = text.binary("Add", x, y);
    let positive = compare(&mut text, "GreaterEqual", doubled, zero);
    let is_near = compare(&mut text, "Less", x, few);
    let both = compare(&mut text, "LogicalAnd", positive, is_near);
    let either = compare(&mut text, "LogicalXor", both, mask);
    let opposite = text.layer("LogicalNot", "", &[either], "BOOL");
    let rest = text.binary("FloorMod", doubled, few);
    let chosen = text.layer("Select", "", &[opposite, rest, y], "FP32");
    let masked = text.layer("Select", "", &[mask, chosen, few], "FP32");
    let last = match end {
        0 => masked,
        1 => {
            let equal = compare(&mut text, "NotEqual", masked, few);
            let truth = text.layer("Convert", "destination_type=\"f32\"", &[equal], "FP32");
            text.binary("Subtract", zero, truth)
        }
        2 => compare(&mut text, "LessEqual", masked, x),
        _ => {
            let truth = text.layer("Convert", "destination_type=\"f32\"", &[mask], "FP32");
            let one = text.floats(&[1, 1], |_| 1.0);
            let other = text.binary("Subtract", one, truth);
            text.binary("Multiply", masked, other)
        }
    };
    text.layer("Result", "", &[last], "");
    text
}

#[test]
fn choices_are_groups() {
    let cases: [([&str; 3], [&[usize]; 3]); 5] = [
        (["4,5,60", "4,5,60", "4,5,60"], [&[4, 5, 60]; 3]),
        (["4,5,60", "5,1", "60"], [&[4, 5, 60], &[5, 1], &[60]]),
        (["3,50,3", "3,50,3", "50,1"], [&[3, 50, 3], &[3, 50, 3], &[50, 1]]),
        (["4,5,6", "4,5,6", "1,1,1"], [&[4, 5, 6], &[4, 5, 6], &[1, 1, 1]]),
        (["?,5,60", "?,5,60", "?,5,60"], [&[4, 5, 60]; 3]),
    ];
    for ((declared, shapes), end) in cases.iter().flat_map(|case| (0..4).map(move |end| (case, end))) {
        let text = choices(*declared, end);
        let truths: Vec<bool> = (0..shapes[2].iter().product()).map(|i| i % 3 == 0 || i % 7 == 0).collect();
        let mask = Tensor::from_booleans(&truths, shapes[2]).unwrap();
        let inputs = [values(shapes[0], 37), values(shapes[1], 53), mask];
        let (expected, (actual, entries)) = (text.unoptimised(&inputs), text.run(&inputs, false));
        let what = format!("{declared:?}, {end}");
        assert_eq!(expected.shape(), actual.shape(), "{what}");
        assert_eq!(expected.element_type(), actual.element_type(), "{what}");
        assert_eq!(expected.bytes(), actual.bytes(), "{what}");
        assert!(entries.iter().all(|entry| entry.is_kernel), "{what}: {entries:?}");
        // A value that is read twice and where sizes may differ divides the groups.
        let most = if declared[0].contains('?') { 12 } else { 3 };
        assert!(entries.len() <= most, "{what}: {} steps", entries.len());
    }
}

/// Choices between values of convolutions run on blocks, with their truth inside or outside.
#[test]
fn choices_among_blocks() {
    for is_inside in [true, false] {
        let mut text = Text::default();
        let mut x = text.parameter("f32", "2,20,7,9");
        let zero = text.floats(&[], |_| 0.0);
        let slope = text.floats(&[], |_| 0.2);
        for _ in 0..2 {
            let filter = text.floats(&[20, 20, 3, 3], |i| (i % 7) as f32 / 40.0 - 0.07);
            let attributes =
                "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
            x = text.layer("Convolution", attributes, &[x, filter], "FP32");
            let is_positive = text.layer("Greater", "", &[x, zero], "BOOL");
            let bent = text.binary("Multiply", x, slope);
            let chosen = text.layer("Select", "", &[is_positive, x, bent], "FP32");
            x = if is_inside { chosen } else { text.layer("Select", "", &[is_positive, chosen, zero], "FP32") };
        }
        text.layer("Result", "", &[x], "");
        let inputs = [values(&[2, 20, 7, 9], 37)];
        let (actual, entries) = text.run(&inputs, false);
        compare(&text.unoptimised(&inputs), &actual, "among blocks");
        assert!(entries.iter().all(|entry| entry.is_kernel), "{entries:?}");
        // Those of the input and of the result alone.
        let reorders = entries.iter().filter(|entry| entry.type_name == "Reorder").count();
        assert!(!is_inside || reorders <= 2, "{entries:?}");
    }
}
