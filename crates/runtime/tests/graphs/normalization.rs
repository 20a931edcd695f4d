//! Normalisations of rows with what they are made of, and rotary position embeddings.

use ovir_runtime::ProfileEntry;
use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value, compare};

const COLUMNS: usize = 24;

const NUMPY: &str = "auto_broadcast=\"numpy\"";

/// How the root of the mean square is divided by.
#[derive(Debug, Clone, Copy)]
enum Form {
    Inverse,
    Quotient,
    Power,
}

impl Text {
    fn of_two(&mut self, kind: &str, a: Value, b: Value) -> Value {
        self.layer(kind, NUMPY, &[a, b], "FP32")
    }

    fn number(&mut self, value: f32) -> Value {
        self.floats(&[], |_| value)
    }

    /// A row that is multiplied or added.
    fn row(&mut self, shape: &[usize], seed: usize) -> Value {
        self.floats(shape, |i| ((i * 29 + seed) % 31) as f32 / 16.0 - 0.4)
    }

    /// Rows by their root mean square.
    fn root_mean_square(&mut self, x: Value, form: Form, exponent: f32) -> Value {
        let square = match form {
            Form::Quotient => self.of_two("Multiply", x, x),
            _ => {
                let exponent = self.number(exponent);
                self.of_two("Power", x, exponent)
            }
        };
        let axes = self.integers(&[-1]);
        let mean = self.layer("ReduceMean", "keep_dims=\"true\"", &[square, axes], "FP32");
        let epsilon = self.floats(&[1, 1, 1], |_| 1e-3);
        let sum = self.of_two("Add", epsilon, mean);
        match form {
            Form::Inverse => {
                let (root, one) = (self.layer("Sqrt", "", &[sum], "FP32"), self.number(1.0));
                let inverse = self.of_two("Divide", one, root);
                self.of_two("Multiply", x, inverse)
            }
            Form::Quotient => {
                let root = self.layer("Sqrt", "", &[sum], "FP32");
                self.of_two("Divide", x, root)
            }
            Form::Power => {
                let exponent = self.number(-0.5);
                let inverse = self.of_two("Power", sum, exponent);
                self.of_two("Multiply", inverse, x)
            }
        }
    }

    fn mean_variance(&mut self, x: Value, axes: &[i64]) -> Value {
        let axes = self.integers(axes);
        let data = "normalize_variance=\"true\" eps=\"1e-5\" eps_mode=\"INSIDE_SQRT\"";
        self.layer("MVN", data, &[x, axes], "FP32")
    }
}

fn values(shape: &[usize], seed: usize) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37 + seed * 11) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

/// The layers that ran, without constants.
fn ran(entries: &[ProfileEntry]) -> Vec<(&str, bool)> {
    entries.iter().map(|entry| (&*entry.type_name, entry.is_kernel)).collect()
}

/// Ends the text with a value, and compares both runs for some shapes.
fn check(mut text: Text, end: Value, what: &str, shapes: &[&[usize]]) -> Vec<Vec<(String, bool)>> {
    text.layer("Result", "", &[end], "");
    let run = |(seed, shape): (usize, &&[usize])| {
        let given = [values(shape, seed)];
        let (actual, entries) = text.run(&given, false);
        compare(&text.unoptimised(&given), &actual, &format!("{what}, {shape:?}"));
        ran(&entries).into_iter().map(|(kind, is_kernel)| (kind.to_owned(), is_kernel)).collect()
    };
    shapes.iter().enumerate().map(run).collect()
}

#[test]
fn root_mean_squares_are_one_layer() {
    for form in [Form::Inverse, Form::Quotient, Form::Power] {
        for (has_scale, has_bias) in [(true, false), (true, true), (false, true), (false, false)] {
            let mut text = Text::default();
            let x = text.parameter("f32", &format!("?,?,{COLUMNS}"));
            let mut end = text.root_mean_square(x, form, 2.0);
            if has_scale {
                let scale = text.row(&[1, 1, COLUMNS], 3);
                end = text.of_two("Multiply", scale, end);
            }
            if has_bias {
                let bias = text.row(&[COLUMNS], 5);
                end = text.of_two("Add", end, bias);
            }
            let what = format!("{form:?} {has_scale} {has_bias}");
            for ran in check(text, end, &what, &[&[1, 1, COLUMNS], &[2, 700, COLUMNS]]) {
                assert_eq!(ran, [("Fused".to_owned(), true)], "{what}");
            }
        }
    }
}

#[test]
fn other_forms_stay_layers() {
    // A fourth power, a scale of another axis, and rows that are read before they are scaled.
    let mut text = Text::default();
    let x = text.parameter("f32", &format!("?,4,{COLUMNS}"));
    let fourth = text.root_mean_square(x, Form::Power, 4.0);
    let squares = text.root_mean_square(x, Form::Inverse, 2.0);
    let scale = text.row(&[4, 1], 7);
    let scaled = text.of_two("Multiply", squares, scale);
    let read = text.mean_variance(x, &[2]);
    let row = text.row(&[COLUMNS], 1);
    let product = text.of_two("Multiply", read, row);
    let sums = [text.of_two("Add", product, read), text.of_two("Add", fourth, scaled)];
    let end = text.of_two("Add", sums[0], sums[1]);
    let kinds = check(text, end, "other forms", &[&[2, 4, COLUMNS]]).remove(0);
    let count = |kind: &str| kinds.iter().filter(|(ran, _)| ran == kind).count();
    assert_eq!([count("ReduceMean"), count("MVN")], [1, 1], "{kinds:?}");
}

#[test]
fn layer_normalisations_take_scale_and_bias() {
    for (axes, row) in [(&[2][..], &[COLUMNS][..]), (&[-1], &[1, 1, COLUMNS]), (&[1, -1], &[4, COLUMNS])] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,4,{COLUMNS}"));
        let normalised = text.mean_variance(x, axes);
        let (scale, bias) = (text.row(row, 3), text.row(row, 8));
        let end = text.of_two("Multiply", normalised, scale);
        let end = text.of_two("Add", end, bias);
        for ran in check(text, end, &format!("{axes:?}"), &[&[1, 4, COLUMNS], &[300, 4, COLUMNS]]) {
            assert_eq!(ran, [("Fused".to_owned(), true)], "{axes:?}");
        }
    }
}

#[test]
fn normalisations_of_channels_take_scale_and_bias() {
    for (row, is_taken) in [(&[4, 1, 1][..], true), (&[1, 4, 1, 1], true), (&[4], false), (&[4, 1, 4], false)] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,4,?,4");
        let normalised = text.mean_variance(x, &[1]);
        let (scale, bias) = (text.row(row, 3), text.row(row, 8));
        let end = text.of_two("Multiply", normalised, scale);
        let end = text.of_two("Add", end, bias);
        for ran in check(text, end, &format!("{row:?}"), &[&[1, 4, 1, 4], &[2, 4, 300, 4]]) {
            let kinds: Vec<&str> = ran.iter().map(|(kind, _)| kind.as_str()).collect();
            let expected: &[&str] = if is_taken { &["Fused"] } else { &["MVN", "Fused"] };
            assert_eq!(kinds, expected, "{row:?}");
            assert!(ran.iter().all(|(_, is_kernel)| *is_kernel), "{row:?}");
        }
    }
}

/// How exporters write a normalisation out.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Written {
    /// `x * f + (bias - mean * f)`, the mean with its sign turned.
    Negated,
    /// The same with a difference.
    Subtracted,
    /// `(x - mean) * f + bias`.
    Distance,
    /// The same, where the variance is the mean of squares less the square of the mean, and no less than zero.
    Squares,
}

impl Text {
    fn written(&mut self, x: Value, axes: &[i64], form: Written, affine: [Option<Value>; 2]) -> Value {
        let axes = self.integers(axes);
        let mean = |text: &mut Text, x| text.layer("ReduceMean", "keep_dims=\"true\"", &[x, axes], "FP32");
        let of_x = mean(self, x);
        let variance = if form == Written::Squares {
            let (squares, two) = (self.of_two("Multiply", x, x), self.number(2.0));
            let (of_squares, square) = (mean(self, squares), self.of_two("Power", of_x, two));
            let (difference, zero) = (self.of_two("Subtract", of_squares, square), self.number(0.0));
            self.of_two("Maximum", difference, zero)
        } else {
            let squares = self.of_two("SquaredDifference", x, of_x);
            mean(self, squares)
        };
        let epsilon = self.number(1e-3);
        let sum = self.of_two("Add", variance, epsilon);
        let mut factor = if form == Written::Distance {
            let (root, one) = (self.layer("Sqrt", "", &[sum], "FP32"), self.number(1.0));
            self.of_two("Divide", one, root)
        } else {
            let exponent = self.number(-0.5);
            self.of_two("Power", sum, exponent)
        };
        let [scale, bias] = affine;
        if let Some(scale) = scale {
            factor = self.of_two("Multiply", scale, factor);
        }
        if matches!(form, Written::Distance | Written::Squares) {
            let distance = self.of_two("Subtract", x, of_x);
            let end = self.of_two("Multiply", distance, factor);
            return bias.map_or(end, |bias| self.of_two("Add", end, bias));
        }
        let product = self.of_two("Multiply", x, factor);
        if form == Written::Subtracted {
            let of_mean = self.of_two("Multiply", of_x, factor);
            return match bias {
                Some(bias) => {
                    let rest = self.of_two("Subtract", bias, of_mean);
                    self.of_two("Add", product, rest)
                }
                None => self.of_two("Subtract", product, of_mean),
            };
        }
        let minus = self.number(-1.0);
        let negative = self.of_two("Multiply", of_x, minus);
        let of_mean = self.of_two("Multiply", negative, factor);
        let rest = bias.map_or(of_mean, |bias| self.of_two("Add", of_mean, bias));
        self.of_two("Add", rest, product)
    }
}

#[test]
fn normalisations_that_are_written_out_are_one_layer() {
    for form in [Written::Negated, Written::Subtracted, Written::Distance, Written::Squares] {
        for (axes, row) in [(&[-1][..], &[COLUMNS][..]), (&[1], &[1, 4, 1, 1]), (&[1, -1, 2], &[4, 3, COLUMNS])] {
            for has in [[true, true], [true, false], [false, true], [false, false]] {
                let mut text = Text::default();
                let x = text.parameter("f32", &format!("?,4,3,{COLUMNS}"));
                let rows = [text.row(row, 3), text.row(row, 8)];
                let affine = [0, 1].map(|which| has[which].then_some(rows[which]));
                let end = text.written(x, axes, form, affine);
                let what = format!("{form:?} {axes:?} {has:?}");
                for ran in check(text, end, &what, &[&[1, 4, 3, COLUMNS], &[70, 4, 3, COLUMNS]]) {
                    let expected = if has == [false; 2] { "MVN" } else { "Fused" };
                    assert_eq!(ran, [(expected.to_owned(), true)], "{what}");
                }
            }
        }
    }
}

#[test]
fn other_roots_of_variances_stay_layers() {
    // Another mean is subtracted, the scale is larger than the data, and the factor is read elsewhere too.
    for way in 0..3 {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("1,4,{COLUMNS}"));
        let (axes, other) = (text.integers(&[-1]), text.integers(&[1]));
        let mean = text.layer("ReduceMean", "keep_dims=\"true\"", &[x, axes], "FP32");
        let squares = text.of_two("SquaredDifference", x, mean);
        let variance = text.layer("ReduceMean", "keep_dims=\"true\"", &[squares, axes], "FP32");
        let (epsilon, exponent) = (text.number(1e-3), text.number(-0.5));
        let sum = text.of_two("Add", variance, epsilon);
        let mut factor = text.of_two("Power", sum, exponent);
        if way == 1 {
            let scale = text.row(&[2, 4, COLUMNS], 3);
            factor = text.of_two("Multiply", factor, scale);
        }
        let subtracted = match way {
            0 => text.layer("ReduceMean", "keep_dims=\"true\"", &[x, other], "FP32"),
            _ => mean,
        };
        let distance = text.of_two("Subtract", x, subtracted);
        let mut end = text.of_two("Multiply", distance, factor);
        if way == 2 {
            end = text.of_two("Add", end, factor);
        }
        let kinds = check(text, end, &format!("way {way}"), &[&[1, 4, COLUMNS]]).remove(0);
        // The mean and the variance, and the other mean.
        let means = kinds.iter().filter(|(kind, _)| kind == "ReduceMean").count();
        assert_eq!(means, if way == 0 { 3 } else { 2 }, "{way} {kinds:?}");
    }
}

/// The channels of positions are normalised where they lie, in blocks.
#[test]
fn channels_in_blocks_are_normalised_there() {
    for (channels, axes, has_affine) in [(32, &[1][..], true), (40, &[-3], false), (20, &[1], true)] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,{channels},?,9"));
        let filter = |text: &mut Text, seed| {
            text.floats(&[channels, channels, 3, 3], |i| ((i * 13 + seed) % 29) as f32 / 40.0 - 0.3)
        };
        let pads = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
        let filters = [filter(&mut text, 1), filter(&mut text, 5)];
        let mut end = text.layer("Convolution", pads, &[x, filters[0]], "FP32");
        end = text.mean_variance(end, axes);
        if has_affine {
            let (scale, bias) = (text.row(&[channels, 1, 1], 3), text.row(&[1, channels, 1, 1], 8));
            end = text.of_two("Multiply", end, scale);
            end = text.of_two("Add", end, bias);
        }
        let end = text.layer("Convolution", pads, &[end, filters[1]], "FP32");
        for ran in check(text, end, &format!("{channels}"), &[&[1, channels, 70, 9], &[2, channels, 5, 9]]) {
            let kinds: Vec<&str> = ran.iter().map(|(kind, _)| kind.as_str()).collect();
            let normalised = if has_affine { "Fused" } else { "MVN" };
            assert_eq!(kinds, ["Reorder", "Convolution", normalised, "Convolution", "Reorder"], "{channels}");
            assert!(ran.iter().all(|(_, is_kernel)| *is_kernel), "{channels}");
        }
    }
}

/// Each of two normalised rows looks like the scale of the other.
#[test]
fn a_product_of_rows_has_one_owner() {
    let mut text = Text::default();
    let x = text.parameter("f32", &format!("1,1,{COLUMNS}"));
    let a = text.root_mean_square(x, Form::Inverse, 2.0);
    let b = text.mean_variance(x, &[2]);
    let end = text.of_two("Multiply", a, b);
    let kinds = check(text, end, "a product", &[&[1, 1, COLUMNS]]).remove(0);
    assert!(kinds.iter().all(|(_, is_kernel)| *is_kernel), "{kinds:?}");
    assert_eq!(kinds.len(), 2, "{kinds:?}");
}

/// `[batch, rows, heads, columns]` or `[batch, heads, rows, columns]` turned as exporters write it. The signs and the ends of
/// halves are written in several ways.
fn rotary(is_swapped: bool, way: usize, repeats: &str) -> Text {
    let mut text = Text::default();
    let x = text.parameter("f32", &format!("?,?,?,{COLUMNS}"));
    let cosines = text.parameter("f32", &format!("{repeats},{COLUMNS}"));
    let sines = text.parameter("f32", &format!("{repeats},{COLUMNS}"));
    let order = text.integers(&[0, 2, 1, 3]);
    let x = if is_swapped { text.layer("Transpose", "", &[x, order], "FP32") } else { x };
    let half = (COLUMNS / 2) as i64;
    let (negative_half, ends) = (-half, [i64::MAX, COLUMNS as i64, i64::MAX]);
    let middle = if way == 1 { negative_half } else { half };
    let slice = |text: &mut Text, from: i64, to: i64| {
        let axis = if way == 0 { 3 } else { -1 };
        let inputs = [x, text.integers(&[from]), text.integers(&[to]), text.integers(&[1]), text.integers(&[axis])];
        text.layer("Slice", "", &inputs, "FP32")
    };
    let second = slice(&mut text, middle, ends[way]);
    let turned = if way == 2 {
        text.layer("Negative", "", &[second], "FP32")
    } else {
        let one = text.constant("i32", &[], &(-1i32).to_le_bytes());
        let one = text.layer("Convert", "destination_type=\"f32\"", &[one], "FP32");
        text.of_two("Multiply", second, one)
    };
    let first = slice(&mut text, 0, middle);
    let turned = text.layer("Concat", &format!("axis=\"{}\"", if way == 0 { -1 } else { 3 }), &[turned, first], "FP32");
    let with_sines = text.of_two("Multiply", turned, sines);
    let with_cosines = match way {
        1 => text.of_two("Multiply", cosines, x),
        _ => text.of_two("Multiply", x, cosines),
    };
    let end = text.of_two("Add", with_cosines, with_sines);
    text.layer("Result", "", &[end], "");
    text
}

#[test]
fn rotary_embeddings_are_one_layer() {
    for is_swapped in [false, true] {
        for (way, repeats, angles) in [(0, "?,1,?", &[2, 1, 5][..]), (1, "?", &[5]), (2, "?,?,?", &[1, 3, 5])] {
            let text = rotary(is_swapped, way, repeats);
            let shape = if is_swapped { [2, 5, 3, COLUMNS] } else { [2, 3, 5, COLUMNS] };
            let angles: Vec<usize> = angles.iter().copied().chain([COLUMNS]).collect();
            let given = [values(&shape, 1), values(&angles, 2), values(&angles, 3)];
            let what = format!("{is_swapped} {way} {repeats}");
            let (actual, entries) = text.run(&given, false);
            assert_eq!(ran(&entries), [("Fused", true)], "{what}");
            assert_eq!(text.unoptimised(&given).bytes(), actual.bytes(), "{what}");
        }
    }
}

/// Cosines and sines of more images than the data have repeat the data.
#[test]
fn angles_may_repeat_the_data() {
    let text = rotary(true, 0, "?,1,?");
    let given = [values(&[1, 5, 3, COLUMNS], 1), values(&[2, 1, 5, COLUMNS], 2), values(&[2, 1, 5, COLUMNS], 3)];
    let (actual, entries) = text.run(&given, false);
    compare(&text.unoptimised(&given), &actual, "repeated data");
    assert_eq!(ran(&entries), [("Fused", false)]);
}

/// GroupNormalization takes the activation behind it, on plain data and between convolutions.
#[test]
fn activated_groups() {
    for (activation, is_between) in ["ReLU", "Swish", "Sigmoid", "HSwish"]
        .into_iter()
        .flat_map(|activation| [(activation, false), (activation, true)])
    {
        let mut text = Text::default();
        let mut x = text.parameter("f32", "2,24,?,7");
        let convolve = |text: &mut Text, x| {
            let filter = text.floats(&[24, 24, 3, 3], |i| (i % 7) as f32 / 50.0 - 0.06);
            let attributes = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\"";
            text.layer("Convolution", attributes, &[x, filter], "FP32")
        };
        if is_between {
            x = convolve(&mut text, x);
        }
        let (scale, bias) = (text.floats(&[24], |i| 0.6 + i as f32 / 60.0), text.floats(&[24], |i| i as f32 / 90.0));
        x = text.layer("GroupNormalization", "num_groups=\"4\" epsilon=\"1e-3\"", &[x, scale, bias], "FP32");
        x = text.unary(activation, x);
        if is_between {
            x = convolve(&mut text, x);
        }
        text.layer("Result", "", &[x], "");
        let values: Vec<f32> = (0..2 * 24 * 63).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let input = Tensor::from_slice(&values, [2, 24, 9, 7]).unwrap();
        let (actual, entries) = text.run(std::slice::from_ref(&input), false);
        compare(&text.unoptimised(std::slice::from_ref(&input)), &actual, activation);
        assert!(entries.iter().all(|entry| entry.is_kernel && entry.type_name != activation), "{entries:?}");
    }
}
