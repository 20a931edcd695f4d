//! Regions of blocked layouts: convolutions and everything that carries the layout along, against plain references.

use ovir_tensor::Tensor;

use super::text::{Text, Value, compare};

const PLANE: &str = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
const POINT: &str = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"explicit\"";
const HALF: &str = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"explicit\"";
const STEP: &str = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";

impl Text {
    fn convolution(&mut self, x: Value, filter: &[usize], data: &str) -> Value {
        let fan: usize = filter[1..].iter().product();
        let weights = self.floats(filter, |i| ((i * 29 % 83) as f32 / 41.0 - 1.0) / (fan as f32).sqrt());
        let kind = if filter.len() == 5 { "GroupConvolution" } else { "Convolution" };
        self.layer(kind, data, &[x, weights], "FP32")
    }

    pub fn binary(&mut self, kind: &str, a: Value, b: Value) -> Value {
        self.layer(kind, "auto_broadcast=\"numpy\"", &[a, b], "FP32")
    }

    pub fn unary(&mut self, kind: &str, a: Value) -> Value {
        self.layer(kind, "", &[a], "FP32")
    }

    fn mean(&mut self, x: Value, keep: bool) -> Value {
        let axes = self.integers(&[2, 3]);
        self.layer("ReduceMean", &format!("keep_dims=\"{keep}\""), &[x, axes], "FP32")
    }

    /// A convolution of volumes with strides and pads that are the same along all axes.
    fn volumes(&mut self, x: Value, filter: &[usize], stride: usize, pad: usize) -> Value {
        let fan: usize = filter[1..].iter().product();
        let weights = self.floats(filter, |i| ((i * 29 % 83) as f32 / 41.0 - 1.0) / (fan as f32).sqrt());
        let kind = if filter.len() == 6 { "GroupConvolution" } else { "Convolution" };
        let three = |value: usize| format!("\"{value},{value},{value}\"");
        let (strides, pads) = (three(stride), three(pad));
        let data =
            format!("strides={strides} dilations=\"1,1,1\" pads_begin={pads} pads_end={pads} auto_pad=\"explicit\"");
        self.layer(kind, &data, &[x, weights], "FP32")
    }

    /// A residual block of a video network behind its stem, a pooling, branches that meet, a normalisation, groups, points
    /// into few channels and a mean.
    fn network_of_volumes(&mut self, x: Value, channels: usize) -> Value {
        let stem = self.volumes(x, &[32, channels, 3, 3, 3], 1, 1);
        let [gamma, beta, mean] = [0.5, 0.25, -0.5].map(|by| self.floats(&[32], |i| 0.5 + (i % 5) as f32 * by));
        let variance = self.floats(&[32], |i| 0.25 + (i % 4) as f32);
        let stem = self.layer("BatchNormInference", "epsilon=\"0.001\"", &[gamma, beta, stem, mean, variance], "FP32");
        let stem = self.unary("ReLU", stem);
        let value = self.volumes(stem, &[32, 32, 3, 3, 3], 1, 1);
        let sum = self.binary("Add", value, stem);
        let sum = self.unary("ReLU", sum);
        let pool = "strides=\"2,2,2\" pads_begin=\"0,0,0\" pads_end=\"0,0,0\" kernel=\"2,2,2\" rounding_type=\"floor\" index_element_type=\"i64\"";
        let pooled = self.layer_of("MaxPool", pool, &[sum], "FP32", 2);
        let average = "strides=\"1,1,1\" pads_begin=\"1,1,1\" pads_end=\"1,1,1\" kernel=\"3,3,3\" rounding_type=\"floor\" exclude-pad=\"true\"";
        let smooth = self.layer("AvgPool", average, &[pooled], "FP32");
        let joined = self.layer("Concat", "axis=\"1\"", &[pooled, smooth], "FP32");
        let axes = self.integers(&[2, 3, 4]);
        let data = "eps=\"0.001\" eps_mode=\"inside_sqrt\" normalize_variance=\"true\"";
        let joined = self.layer("MVN", data, &[joined, axes], "FP32");
        let slope = self.floats(&[1], |_| 0.25);
        let joined = self.layer("PReLU", "", &[joined, slope], "FP32");
        let deep = self.volumes(joined, &[40, 64, 3, 3, 3], 2, 1);
        let factor = self.floats(&[1, 40, 1, 1, 1], |i| 1.0 + i as f32 / 40.0);
        let deep = self.binary("Multiply", deep, factor);
        let grouped = self.volumes(deep, &[4, 10, 10, 3, 3, 3], 1, 1);
        let grouped = self.unary("Sigmoid", grouped);
        let few = self.volumes(grouped, &[3, 40, 1, 1, 1], 1, 0);
        let axes = self.integers(&[2, 3, 4]);
        let ends = [deep, few].map(|end| self.layer("ReduceMean", "keep_dims=\"false\"", &[end, axes], "FP32"));
        self.layer("Concat", "axis=\"1\"", &ends, "FP32")
    }

    /// Residual blocks, the second of which halves the planes on both ways.
    fn residual_blocks(&mut self, x: Value) -> Value {
        let mut at = self.convolution(x, &[32, 3, 3, 3], STEP);
        for (channels, first, skipped) in [(32, PLANE, None), (48, STEP, Some(HALF))] {
            let inputs = if skipped.is_some() { 32 } else { channels };
            let value = self.convolution(at, &[channels, inputs, 3, 3], first);
            let value = self.unary("ReLU", value);
            let value = self.convolution(value, &[channels, channels, 3, 3], PLANE);
            if let Some(data) = skipped {
                at = self.convolution(at, &[channels, inputs, 1, 1], data);
            }
            let sum = self.binary("Add", value, at);
            at = self.unary("ReLU", sum);
        }
        at
    }

    /// A stem, a squeeze-and-excitation block with a residual sum, branches that meet, a map of one channel over all, a
    /// resize, groups and a split.
    fn network(&mut self, x: Value) -> Value {
        let stem = self.convolution(x, &[24, 3, 3, 3], STEP);
        let bias = self.floats(&[1, 24, 1, 1], |i| i as f32 / 24.0 - 0.5);
        let stem = self.binary("Add", stem, bias);
        let stem = self.unary("ReLU", stem);
        let pool = "strides=\"2,2\" pads_begin=\"1,1\" pads_end=\"1,1\" kernel=\"3,3\" rounding_type=\"floor\"";
        let pooled = self.layer_of("MaxPool", &format!("{pool} index_element_type=\"i64\""), &[stem], "FP32", 2);
        let wide = self.convolution(pooled, &[40, 24, 1, 1], POINT);
        let deep = self.convolution(wide, &[40, 1, 1, 3, 3], PLANE);
        let deep = self.unary("HSwish", deep);
        let squeezed = self.mean(deep, true);
        let squeezed = self.convolution(squeezed, &[16, 40, 1, 1], POINT);
        let squeezed = self.unary("ReLU", squeezed);
        let excited = self.convolution(squeezed, &[40, 16, 1, 1], POINT);
        let excited = self.unary("Sigmoid", excited);
        let scaled = self.binary("Multiply", deep, excited);
        let summed = self.binary("Add", wide, scaled);
        let left = self.convolution(summed, &[32, 40, 3, 3], PLANE);
        let right = self.convolution(summed, &[19, 40, 1, 1], POINT);
        let joined = self.layer("Concat", "axis=\"1\"", &[left, right], "FP32");
        let average = "strides=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" kernel=\"3,3\" rounding_type=\"floor\" exclude-pad=\"true\"";
        let joined = self.layer("AvgPool", average, &[joined], "FP32");
        let attention = self.convolution(joined, &[1, 51, 1, 1], POINT);
        let attention = self.unary("Sigmoid", attention);
        let marked = self.binary("Multiply", joined, attention);
        let factor = self.floats(&[51, 1, 1], |i| 1.0 + i as f32 / 51.0);
        let marked = self.binary("Divide", marked, factor);
        let half = self.floats(&[], |_| 0.5);
        let marked = self.binary("Subtract", half, marked);
        let gate = self.unary("Sigmoid", marked);
        let marked = self.binary("Multiply", marked, gate);
        let narrow = self.convolution(marked, &[48, 51, 1, 1], POINT);
        let axis = self.integers(&[1]);
        let lengths = self.integers(&[16, 32]);
        let first = self.layer_of("VariadicSplit", "", &[narrow, axis, lengths], "FP32", 2);
        let second = Value(first.0, first.1 + 1);
        let turned = self.layer("Concat", "axis=\"-3\"", &[second, first], "FP32");
        let grouped = self.convolution(turned, &[3, 16, 16, 3, 3], PLANE);
        let odd_groups = self.convolution(grouped, &[2, 10, 24, 1, 1], POINT);
        let scales = self.floats(&[2], |_| 2.0);
        let sizes = self.integers(&[0, 0]);
        let axes = self.integers(&[2, 3]);
        let mode = "mode=\"linear_onnx\" shape_calculation_mode=\"scales\" coordinate_transformation_mode=\"half_pixel\" nearest_mode=\"round_prefer_floor\" antialias=\"false\" pads_begin=\"0\" pads_end=\"0\" cube_coeff=\"-0.75\"";
        let large = self.layer("Interpolate", mode, &[grouped, sizes, scales, axes], "FP32");
        let ends = [self.mean(odd_groups, false), self.mean(large, false), self.mean(marked, false)];
        self.layer("Concat", "axis=\"1\"", &ends, "FP32")
    }
}

fn image(shape: &[usize]) -> Tensor {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
    Tensor::from_slice(&values, shape).unwrap()
}

#[test]
fn regions_of_images() {
    let sizes: [&[usize]; 3] = [&[1, 3, 128, 128], &[2, 3, 45, 70], &[1, 3, 9, 8]];
    for (declared, sizes) in [("1,3,128,128", &sizes[..1]), ("?,3,?,?", &sizes[..]), ("?,3,8..128,8..128", &sizes[..])]
    {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let end = text.network(x);
        text.layer("Result", "", &[end], "");
        for shape in sizes {
            let what = format!("{declared} {shape:?}");
            let (expected, _) = text.run(&[image(shape)], true);
            let (actual, entries) = text.run(&[image(shape)], false);
            compare(&expected, &actual, &what);
            let reorders = entries.iter().filter(|entry| entry.type_name == "Reorder").count();
            assert!((1..=6).contains(&reorders), "{what}: {reorders} reorders");
            let slow = entries.iter().find(|entry| !entry.is_kernel);
            assert!(slow.is_none(), "{what}: {} ran by its reference", slow.unwrap().type_name);
        }
    }
}

#[test]
fn regions_of_volumes() {
    let sizes = [[1, 16, 24, 24], [2, 9, 13, 20], [1, 2, 2, 3]];
    for channels in [1, 3, 6] {
        for (declared, sizes) in [("1,C,16,24,24", &sizes[..1]), ("?,C,16,24,24", &sizes[..1]), ("?,C,?,?,?", &sizes)] {
            let mut text = Text::default();
            let x = text.parameter("f32", &declared.replace('C', &channels.to_string()));
            let end = text.network_of_volumes(x, channels);
            text.layer("Result", "", &[end], "");
            for &[batch, deep, high, wide] in sizes {
                let what = format!("{declared} {channels}: {batch} {deep} {high} {wide}");
                let inputs = [image(&[batch, channels, deep, high, wide])];
                let (expected, _) = text.run(&inputs, true);
                let (actual, entries) = text.run(&inputs, false);
                compare(&expected, &actual, &what);
                let slow = entries.iter().find(|entry| !entry.is_kernel);
                assert!(slow.is_none(), "{what}: {} ran by its reference", slow.unwrap().type_name);
                // The mean of many channels, and more channels than a first layer reads plain.
                let reorders = entries.iter().filter(|entry| entry.type_name == "Reorder").count();
                assert_eq!(reorders, 1 + usize::from(channels > 4), "{what}");
            }
        }
    }
}

/// What there is no kernel on blocks for has one for plain values: one filter a channel, and pads behind the last tap.
#[test]
fn volumes_that_stay_plain() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,24,?,?,?");
    let near = text.volumes(x, &[32, 24, 3, 3, 3], 1, 1);
    let each = text.volumes(near, &[32, 1, 1, 3, 3, 3], 1, 1);
    let sum = text.binary("Add", each, near);
    let far = text.volumes(sum, &[32, 32, 2, 2, 2], 1, 3);
    let (begin, end, value) =
        (text.integers(&[0, 0, 1, 0, 2]), text.integers(&[0, 8, 0, 1, 0]), text.floats(&[], |_| 0.5));
    let padded = text.layer("Pad", "pad_mode=\"constant\"", &[far, begin, end, value], "FP32");
    let end = text.volumes(padded, &[16, 40, 3, 3, 3], 2, 1);
    text.layer("Result", "", &[end], "");
    for shape in [[1, 24, 7, 9, 10], [2, 24, 1, 5, 3]] {
        text.check(&[image(&shape)], &format!("{shape:?}"));
    }
}

/// The number of images is known only when the layers before the first convolution have run.
#[test]
fn shapes_that_depend_on_data() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,3,?,?");
    let mask = text.parameter("i64", "?");
    let found = text.layer("NonZero", "output_type=\"i64\"", &[mask], "I64");
    let axis = text.integers(&[0]);
    let rows = text.layer("Squeeze", "", &[found, axis], "I64");
    let zero = text.integers(&[0]);
    let picked = text.layer("Gather", "batch_dims=\"0\"", &[x, rows, zero], "FP32");
    let end = text.network(picked);
    text.layer("Result", "", &[end], "");
    for mask in [[1i64, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0]] {
        let inputs = [image(&[3, 3, 40, 33]), Tensor::from_slice(&mask, [3]).unwrap()];
        let (expected, _) = text.run(&inputs, true);
        let (actual, entries) = text.run(&inputs, false);
        compare(&expected, &actual, &format!("{mask:?}"));
        assert!(entries.iter().any(|entry| entry.type_name == "Reorder"));
    }
}

/// A convolution of few channels reads plain values and adds blocked ones: it cannot be on blocks where both are the same.
#[test]
fn a_convolution_that_adds_its_own_data() {
    for channels in [1, 3, 4, 5] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,{channels},?,?"));
        let near = text.convolution(x, &[channels, channels, 3, 3], PLANE);
        let bias = text.floats(&[1, channels, 1, 1], |i| i as f32 - 0.5);
        let near = text.binary("Add", near, bias);
        let summed = text.binary("Add", near, x);
        let wide = text.convolution(summed, &[64, channels, 3, 3], PLANE);
        let wide = text.unary("ReLU", wide);
        let end = text.convolution(wide, &[64, 64, 3, 3], PLANE);
        text.layer("Result", "", &[end], "");
        for shape in [[1, channels, 33, 40], [2, channels, 7, 7]] {
            let (expected, _) = text.run(&[image(&shape)], true);
            let (actual, entries) = text.run(&[image(&shape)], false);
            compare(&expected, &actual, &format!("{shape:?}"));
            assert!(entries.iter().all(|entry| entry.is_kernel), "{shape:?}");
        }
    }
}

#[test]
fn regions_of_lines() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,40,?");
    let data = "strides=\"1\" dilations=\"2\" pads_begin=\"2\" pads_end=\"2\" auto_pad=\"explicit\"";
    let a = text.convolution(x, &[64, 40, 3], data);
    let a = text.unary("Tanh", a);
    let b = text.convolution(a, &[64, 64, 3], data);
    let c = text.binary("Add", b, a);
    let c = text.unary("Sigmoid", c);
    let end = text.convolution(c, &[33, 64, 3], data);
    text.layer("Result", "", &[end], "");
    for shape in [[1, 40, 100], [3, 40, 7]] {
        let (expected, _) = text.run(&[image(&shape)], true);
        let (actual, entries) = text.run(&[image(&shape)], false);
        compare(&expected, &actual, &format!("{shape:?}"));
        assert_eq!(entries.iter().filter(|entry| entry.type_name == "Reorder").count(), 2);
    }
}

/// Each channel of a search image is correlated with that of a template, as trackers do it: the filter is computed.
#[test]
fn correlations_with_a_computed_filter() {
    for (channels, size, declared) in [(40, 7, "1,40,?,?"), (64, 5, "1,64,30,30"), (32, 9, "?,32,?,?")] {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let template = text.parameter("f32", &format!("1,{channels},{size},{size}"));
        let search = text.convolution(x, &[channels, channels, 3, 3], PLANE);
        let filter = text.convolution(template, &[channels, channels, 1, 1], POINT);
        let shape = text.integers(&[channels as i64, 1, 1, size as i64, size as i64]);
        let filter = text.layer("Reshape", "special_zero=\"false\"", &[filter, shape], "FP32");
        let correlated = text.layer("GroupConvolution", POINT, &[search, filter], "FP32");
        let bias = text.floats(&[1, channels, 1, 1], |i| i as f32 - 0.5);
        let correlated = text.binary("Add", correlated, bias);
        let correlated = text.unary("ReLU", correlated);
        let end = text.convolution(correlated, &[48, channels, 1, 1], POINT);
        text.layer("Result", "", &[end], "");
        let sizes = if declared.contains('?') { &[30, 12][..] } else { &[30] };
        for high in sizes {
            let inputs = [image(&[1, channels, *high, 30]), image(&[1, channels, size, size])];
            let (expected, _) = text.run(&inputs, true);
            let (actual, entries) = text.run(&inputs, false);
            compare(&expected, &actual, &format!("{declared} {high}"));
            assert!(entries.iter().all(|entry| entry.is_kernel || entry.type_name == "Reshape"), "{declared}");
            // Both images, the filter and the result.
            assert_eq!(entries.iter().filter(|entry| entry.type_name == "Reorder").count(), 4, "{declared}");
        }
    }
}

/// A lone convolution of few channels is not worth its reorders.
#[test]
fn a_region_that_loses_stays_plain() {
    let mut text = Text::default();
    let x = text.parameter("f32", "1,16,64,64");
    let end = text.convolution(x, &[3, 16, 1, 1], POINT);
    text.layer("Result", "", &[end], "");
    let (expected, _) = text.run(&[image(&[1, 16, 64, 64])], true);
    let (actual, entries) = text.run(&[image(&[1, 16, 64, 64])], false);
    compare(&expected, &actual, "a convolution");
    assert_eq!(entries.len(), 1);
}

/// Shifted copies of one map that are multiplied with another one, as correlations of two images do it: the map is
/// reordered once, rather than each of the copies and each of the products.
#[test]
fn many_readers_beside_plain_values() {
    let mut text = Text::default();
    let x = text.parameter("f32", "1,3,32,32");
    let other = text.parameter("f32", "1,32,40,40");
    let stem = text.convolution(x, &[32, 3, 3, 3], PLANE);
    let map = text.convolution(stem, &[32, 32, 3, 3], PLANE);
    let map = text.unary("ReLU", map);
    let mut products = Vec::new();
    for shift in 0..9i64 {
        let parts = [[0, shift, shift / 2], [1, shift + 32, shift / 2 + 32], [1, 1, 1], [0, 2, 3]];
        let parts = parts.map(|part| text.integers(&part));
        let shifted = text.layer("Slice", "", &[other, parts[0], parts[1], parts[2], parts[3]], "FP32");
        let product = text.binary("Multiply", map, shifted);
        let axes = text.integers(&[1]);
        products.push(text.layer("ReduceMean", "keep_dims=\"true\"", &[product, axes], "FP32"));
    }
    let end = text.layer("Concat", "axis=\"1\"", &products, "FP32");
    text.layer("Result", "", &[end], "");
    let inputs = [image(&[1, 3, 32, 32]), image(&[1, 32, 40, 40])];
    let (expected, _) = text.run(&inputs, true);
    let (actual, entries) = text.run(&inputs, false);
    compare(&expected, &actual, "a correlation");
    assert_eq!(entries.iter().filter(|entry| entry.type_name == "Reorder").count(), 1);
    assert!(entries.iter().all(|entry| entry.is_kernel));
}

/// Single channels of an output of few channels, as networks of flows take them apart: the output is reordered once, rather
/// than each of its parts, whose blocks have fifteen lanes that nobody reads.
#[test]
fn parts_of_few_channels() {
    for declared in ["1,3,32,32", "?,3,?,?"] {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let stem = text.convolution(x, &[32, 3, 3, 3], PLANE);
        let flows = text.convolution(stem, &[5, 32, 3, 3], PLANE);
        let mut part = |from: i64, to: i64| {
            let parts = [[from], [to], [1], [1]].map(|part| text.integers(&part));
            let value = text.layer("Slice", "", &[flows, parts[0], parts[1], parts[2], parts[3]], "FP32");
            text.unary("Sigmoid", value)
        };
        let (pair, mask) = (part(0, 2), part(4, 5));
        // Planes meet a plane.
        let end = text.binary("Multiply", pair, mask);
        text.layer("Result", "", &[end], "");
        let inputs = [image(&[1, 3, 32, 32])];
        let (expected, _) = text.run(&inputs, true);
        let (actual, entries) = text.run(&inputs, false);
        compare(&expected, &actual, declared);
        let reorders = entries.iter().filter(|entry| entry.type_name == "Reorder").count();
        assert!(reorders <= 1, "{declared} {entries:?}");
        assert!(entries.iter().all(|entry| entry.is_kernel));
    }
}

/// The blocks of networks for faces and hands: few channels, slopes behind sums, channels added to a shortcut, and planes
/// padded on one side only.
#[test]
fn narrow_networks() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,3,?,?");
    let pad = |text: &mut Text, x: Value, begin: &[i64], end: &[i64]| {
        let (begin, end, value) = (text.integers(begin), text.integers(end), text.floats(&[], |_| 0.0));
        text.layer("Pad", "pad_mode=\"constant\"", &[x, begin, end, value], "FP32")
    };
    let step = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"valid\"";
    let padded = pad(&mut text, x, &[0, 0, 0, 0], &[0, 0, 1, 2]);
    let stem = text.convolution(padded, &[8, 3, 3, 3], step);
    let slope = text.floats(&[1, 8, 1, 1], |i| i as f32 / 8.0);
    let stem = text.layer("PReLU", "", &[stem, slope], "FP32");
    let deep = text.convolution(stem, &[8, 1, 1, 3, 3], PLANE);
    let deep = text.convolution(deep, &[24, 8, 1, 1], POINT);
    let wide = pad(&mut text, stem, &[0, 0, 0, 0], &[0, 16, 0, 0]);
    let summed = text.binary("Add", deep, wide);
    let slope = text.floats(&[24], |i| 0.5 - i as f32 / 24.0);
    let summed = text.layer("PReLU", "", &[summed, slope], "FP32");
    let around = pad(&mut text, summed, &[0, 0, 1, 0], &[0, 8, 0, 2]);
    let square = text.binary("Multiply", around, around);
    let left = text.convolution(square, &[16, 32, 2, 2], step);
    let framed = pad(&mut text, summed, &[0, 0, 1, 1], &[0, 0, 1, 1]);
    let right = text.convolution(framed, &[16, 24, 3, 3], step);
    let ends = [text.mean(left, false), text.mean(right, false)];
    let end = text.layer("Concat", "axis=\"1\"", &ends, "FP32");
    text.layer("Result", "", &[end], "");
    for shape in [[1, 3, 64, 64], [2, 3, 33, 17]] {
        let (expected, _) = text.run(&[image(&shape)], true);
        let (actual, entries) = text.run(&[image(&shape)], false);
        compare(&expected, &actual, &format!("{shape:?}"));
        let slow = entries.iter().find(|entry| !entry.is_kernel);
        assert!(slow.is_none(), "{shape:?}: {} ran by its reference", slow.unwrap().type_name);
        // Those before convolutions are gone.
        assert_eq!(entries.iter().filter(|entry| entry.type_name == "Pad").count(), 2);
        // Only the means, which drop the axes of the planes, read plain values.
        assert_eq!(entries.iter().filter(|entry| entry.type_name == "Reorder").count(), 2);
    }
}

/// Concatenations, splits and slices whose channels straddle blocks, concatenations along other axes, and layers that give
/// what they read, between convolutions: nothing of it leaves the blocks.
#[test]
fn channels_that_straddle_blocks() {
    for declared in ["2,3,12,9", "?,3,?,?"] {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let stem = text.convolution(x, &[24, 3, 3, 3], PLANE);
        let cheap = text.convolution(stem, &[24, 1, 1, 3, 3], PLANE);
        let joined = text.layer("Concat", "axis=\"1\"", &[stem, cheap, stem], "FP32");
        let slice = |text: &mut Text, x: Value, start: i64, stop: i64, axis: i64| {
            let [start, stop, step, axis] = [start, stop, 1, axis].map(|value| text.integers(&[value]));
            text.layer("Slice", "", &[x, start, stop, step, axis], "FP32")
        };
        let part = slice(&mut text, joined, 5, -7, 1);
        let whole = slice(&mut text, part, 0, i64::MAX, -1);
        let axis = text.integers(&[1]);
        let halves = text.layer_of("Split", "num_splits=\"2\"", &[whole, axis], "FP32", 2);
        let sum = text.binary("Add", halves, Value(halves.0, halves.1 + 1));
        let sum = text.unary("ReLU", sum);
        let wide = text.layer("Concat", "axis=\"3\"", &[sum, sum], "FP32");
        let wide = text.layer("Concat", "axis=\"0\"", &[wide, wide, wide], "FP32");
        let last = text.convolution(wide, &[20, 30, 1, 1], POINT);
        text.layer("Result", "", &[last], "");
        let shapes: &[[usize; 4]] =
            if declared.contains('?') { &[[1, 3, 7, 5], [2, 3, 1, 1]] } else { &[[2, 3, 12, 9]] };
        for shape in shapes {
            let (expected, _) = text.run(&[image(shape)], true);
            let (actual, entries) = text.run(&[image(shape)], false);
            compare(&expected, &actual, &format!("{declared} {shape:?}"));
            let reorders = entries.iter().filter(|entry| entry.type_name == "Reorder").count();
            assert_eq!(reorders, 1, "{declared} {shape:?}");
            // The one of whole lines is gone where the shape is known.
            let slices = entries.iter().filter(|entry| entry.type_name == "Slice").count();
            assert_eq!(slices, if declared.contains('?') { 2 } else { 1 });
            let slow = entries.iter().find(|entry| !entry.is_kernel);
            assert!(slow.is_none(), "{declared} {shape:?}: {} ran by its reference", slow.unwrap().type_name);
        }
    }
}

/// Means of regions, as many as the data says, and greatest samples, behind a convolution and of a plain value.
#[test]
fn regions_of_maps() {
    for (channels, is_plain) in [(24, false), (35, false), (16, true), (2, false), (3, true)] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,{},?,?", if is_plain { channels } else { 3 }));
        let boxes = text.parameter("f32", "?,4");
        let images = text.parameter("i32", "?");
        let map = if is_plain { x } else { text.convolution(x, &[channels, 3, 3, 3], PLANE) };
        let data = "pooled_h=\"3\" pooled_w=\"5\" sampling_ratio=\"RATIO\" spatial_scale=\"0.5\" mode=\"avg\" aligned_mode=\"half_pixel\"";
        let fixed = text.layer("ROIAlign", &data.replace("RATIO", "2"), &[map, boxes, images], "FP32");
        let adaptive = text.layer("ROIAlign", &data.replace("RATIO", "0"), &[map, boxes, images], "FP32");
        let greatest = data.replace("RATIO", "2").replace("avg", "max");
        let greatest = text.layer("ROIAlign", &greatest, &[map, boxes, images], "FP32");
        let end = text.layer("Concat", "axis=\"3\"", &[fixed, adaptive, greatest], "FP32");
        text.layer("Result", "", &[end], "");
        for regions in [1, 70, 0] {
            let corners = (0..regions * 4).map(|i| (i * 13 % 29) as f32 - 4.0 + if i % 4 < 2 { 0.0 } else { 9.5 });
            let boxes = Tensor::from_slice(&corners.collect::<Vec<_>>(), [regions, 4]).unwrap();
            let images: Vec<i32> = (0..regions as i32).map(|i| i % 2).collect();
            let data = image(&[2, if is_plain { channels } else { 3 }, 14, 11]);
            let inputs = [data, boxes, Tensor::from_slice(&images, [regions]).unwrap()];
            text.check(&inputs, &format!("{regions} regions of {channels} channels"));
        }
    }
}

/// Regions that each come from one of several maps, on blocks and of plain values.
#[test]
fn regions_of_levels() {
    const HALVED: &str = "strides=\"2,2\" pads_begin=\"1,1\" pads_end=\"1,1\" dilations=\"1,1\" auto_pad=\"explicit\"";
    for (channels, is_plain) in [(24, false), (35, false), (16, true), (2, false), (3, true)] {
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("1,{},?,?", if is_plain { channels } else { 3 }));
        let regions = text.parameter("f32", "?,4");
        let first = if is_plain { x } else { text.convolution(x, &[channels, 3, 3, 3], PLANE) };
        let second = text.convolution(first, &[channels, channels, 3, 3], HALVED);
        let third = text.convolution(second, &[channels, channels, 3, 3], HALVED);
        let mut ends = Vec::new();
        for (ratio, is_aligned) in [(2, false), (0, true)] {
            let data = format!(
                "output_size=\"3\" sampling_ratio=\"{ratio}\" pyramid_scales=\"4,8,16\" aligned=\"{is_aligned}\""
            );
            let inputs = [regions, first, second, third];
            let features = text.layer_of("ExperimentalDetectronROIFeatureExtractor", &data, &inputs, "FP32", 2);
            let rows = text.integers(&[-1, channels as i64 * 9]);
            ends.push(text.layer("Reshape", "special_zero=\"false\"", &[features, rows], "FP32"));
            ends.push(Value(features.0, features.1 + 1));
        }
        let end = text.layer("Concat", "axis=\"1\"", &ends, "FP32");
        text.layer("Result", "", &[end], "");
        for count in [1, 70, 0] {
            // Some lie outside, some have no area, and some are larger than the image.
            let corner = |i: usize| {
                let (region, corner) = (i / 4, i % 4);
                let start = (region * 37 % 200) as f32 - 30.0;
                if corner < 2 {
                    start
                } else {
                    start + (region * region * 7 % 450) as f32 - if region % 9 == 4 { 60.0 } else { 0.0 }
                }
            };
            let regions = Tensor::from_slice(&(0..count * 4).map(corner).collect::<Vec<_>>(), [count, 4]).unwrap();
            let data = image(&[1, if is_plain { channels } else { 3 }, 50, 61]);
            let (expected, _) = text.run(&[data.clone(), regions.clone()], true);
            let (actual, entries) = text.run(&[data, regions], false);
            let slow = entries.iter().find(|entry| !entry.is_kernel && entry.type_name != "Reshape");
            assert!(slow.is_none(), "{} ran by its reference", slow.unwrap().type_name);
            compare(&expected, &actual, &format!("{count} regions of {channels} channels"));
        }
    }
}

/// Grids over maps, behind a convolution and of a plain value.
#[test]
fn grids_over_maps() {
    for (channels, is_plain) in [(24, false), (35, false), (16, true), (2, false), (3, true)] {
        let given = if is_plain { channels } else { 3 };
        let mut text = Text::default();
        let x = text.parameter("f32", &format!("?,{given},?,?"));
        let grid = text.parameter("f32", "?,?,4,2");
        let map = if is_plain { x } else { text.convolution(x, &[channels, 3, 3, 3], PLANE) };
        let mut samples = Vec::new();
        for mode in ["bilinear", "nearest", "bicubic"] {
            for padding in ["zeros", "border", "reflection"] {
                let data = format!("align_corners=\"false\" mode=\"{mode}\" padding_mode=\"{padding}\"");
                samples.push(text.layer("GridSample", &data, &[map, grid], "FP32"));
            }
        }
        let end = text.layer("Concat", "axis=\"1\"", &samples, "FP32");
        text.layer("Result", "", &[end], "");
        for lines in [1, 33, 0] {
            let points = (0..2 * lines * 4 * 2).map(|i| (i * 29 % 61) as f32 / 23.0 - 1.3);
            let grid = Tensor::from_slice(&points.collect::<Vec<_>>(), [2, lines, 4, 2]).unwrap();
            text.check(&[image(&[2, given, 9, 11]), grid], &format!("{lines} lines of {channels} channels"));
        }
    }
}

/// Channels that no shape tells, but the filter of the convolution that reads them.
#[test]
fn channels_that_only_the_filter_knows() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,?,?,?");
    let end = text.convolution(x, &[48, 40, 1, 1], POINT);
    let end = text.unary("ReLU", end);
    text.layer("Result", "", &[end], "");
    text.check(&[image(&[2, 40, 17, 13])], "forty channels");
    let (_, entries) = text.run(&[image(&[1, 40, 5, 5])], false);
    assert!(entries.iter().any(|entry| entry.type_name == "Reorder"), "the convolution runs on plain values");
    let error = text.failure(&[image(&[1, 39, 5, 5])]);
    assert!(error.contains("does not have the 40 channels") && error.contains("ReLU"), "{error}");
}

/// Sizes that are not known but equal let convolutions take residual sums all the same.
#[test]
fn residual_sums_of_unknown_sizes_are_fused() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,3,?,?");
    let end = text.residual_blocks(x);
    text.layer("Result", "", &[end], "");
    for (high, wide) in [(19, 24), (32, 7)] {
        let values: Vec<f32> = (0..2 * 3 * high * wide).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let inputs = [Tensor::from_slice(&values, [2, 3, high, wide]).unwrap()];
        let (actual, entries) = text.run(&inputs, false);
        compare(&text.unoptimised(&inputs), &actual, "blocks");
        let alone = |kind: &str| entries.iter().filter(|entry| entry.type_name == kind).count();
        assert_eq!([alone("Add"), alone("ReLU")], [0, 0], "{high}x{wide}");
    }
}

impl Text {
    fn transposed(&mut self, x: Value, filter: &[usize], data: &str) -> Value {
        let fan: usize = filter.iter().product::<usize>() / filter[filter.len() - if filter.len() > 4 { 3 } else { 1 }];
        let weights = self.floats(filter, |i| ((i * 31 % 89) as f32 / 44.0 - 1.0) / (fan as f32).sqrt());
        let grouped = filter.len() == 5;
        let kind = if grouped { "GroupConvolutionBackpropData" } else { "ConvolutionBackpropData" };
        self.layer(kind, data, &[x, weights], "FP32")
    }
}

/// The decoders of networks for images: bias and activation behind, a shortcut added, channels joined, an output shape given,
/// groups, and few channels at the end.
#[test]
fn transposed_convolutions_on_blocks() {
    let data = |stride: &str, begin: &str, end: &str, more: &str| {
        format!(
            "strides=\"{stride}\" dilations=\"1,1\" pads_begin=\"{begin}\" pads_end=\"{end}\" output_padding=\"{more}\" auto_pad=\"explicit\""
        )
    };
    for declared in ["1,3,20,24", "?,3,?,?"] {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let first = text.convolution(x, &[40, 3, 3, 3], STEP);
        let deep = text.convolution(first, &[64, 40, 3, 3], STEP);
        let up = text.transposed(deep, &[64, 40, 4, 4], &data("2,2", "1,1", "1,1", "0,0"));
        let bias = text.floats(&[1, 40, 1, 1], |i| i as f32 / 20.0 - 1.0);
        let up = text.binary("Add", up, bias);
        let slope = text.floats(&[40], |i| i as f32 / 40.0);
        let up = text.layer("PReLU", "", &[up, slope], "FP32");
        let wide = text.transposed(up, &[40, 48, 3, 2], &data("2,1", "1,0", "0,1", "1,0"));
        let wide = text.unary("Sigmoid", wide);
        let grouped = text.transposed(wide, &[3, 16, 32, 2, 3], &data("1,2", "0,1", "1,1", "0,1"));
        let near = text.transposed(grouped, &[96, 19, 3, 3], &data("1,1", "1,1", "1,1", "0,0"));
        let near = text.unary("Tanh", near);
        let few = text.transposed(near, &[19, 3, 4, 4], &data("2,2", "1,1", "1,1", "0,0"));
        let end = text.unary("Tanh", few);
        text.layer("Result", "", &[end], "");
        for shape in [[1, 3, 20, 24], [2, 3, 9, 50], [1, 3, 4, 4]] {
            if declared.starts_with('1') && shape != [1, 3, 20, 24] {
                continue;
            }
            let what = format!("{declared} {shape:?}");
            let (expected, _) = text.run(&[image(&shape)], true);
            let (actual, entries) = text.run(&[image(&shape)], false);
            compare(&expected, &actual, &what);
            assert!(entries.iter().all(|entry| entry.is_kernel), "{what}");
            // The image goes into blocks as it is, and comes out of them as it is.
            assert!(entries.iter().all(|entry| entry.type_name != "Reorder"), "{what}: there are reorders");
        }
    }
}

/// A sum behind a transposed convolution, and an output shape of its own.
#[test]
fn transposed_convolutions_that_add() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,3,?,30");
    let first = text.convolution(x, &[32, 3, 3, 3], PLANE);
    let deep = text.convolution(first, &[64, 32, 2, 2], HALF);
    let halves = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"explicit\"";
    let up = text.transposed(deep, &[64, 32, 2, 2], halves);
    let summed = text.binary("Add", up, first);
    let summed = text.unary("ReLU", summed);
    let sizes = text.integers(&[21, 61]);
    let weights = text.floats(&[32, 24, 3, 3], |i| (i * 31 % 89) as f32 / 440.0 - 0.1);
    let same = "strides=\"2,2\" dilations=\"1,1\" pads_begin=\"0,0\" pads_end=\"0,0\" auto_pad=\"same_upper\"";
    let shaped = text.layer("ConvolutionBackpropData", same, &[summed, weights, sizes], "FP32");
    let end = text.convolution(shaped, &[24, 24, 1, 1], POINT);
    text.layer("Result", "", &[end], "");
    for shape in [[1, 3, 10, 30], [3, 3, 10, 30]] {
        text.check(&[image(&shape)], &format!("{shape:?}"));
    }
}

/// Volumes: windows that overlap along the depth and such as do not, a shortcut added, and few channels at the end.
#[test]
fn transposed_convolutions_of_volumes() {
    let data = |stride: &str, pads: &str, more: &str| {
        format!(
            "strides=\"{stride}\" dilations=\"1,1,1\" pads_begin=\"{pads}\" pads_end=\"{pads}\" output_padding=\"{more}\" auto_pad=\"explicit\""
        )
    };
    let mut text = Text::default();
    let x = text.parameter("f32", "?,8,?,?,?");
    let volume = |text: &mut Text, kind: &str, x: Value, filter: &[usize], data: &str| {
        let weights = text.floats(filter, |i| (i as f32 * 0.7).sin() / 10.0);
        text.layer(kind, data, &[x, weights], "FP32")
    };
    let same = data("1,1,1", "1,1,1", "0,0,0").replace("output_padding=\"0,0,0\" ", "");
    let first = volume(&mut text, "Convolution", x, &[32, 8, 3, 3, 3], &same);
    let up = data("2,2,2", "0,0,0", "0,0,0");
    let high = volume(&mut text, "ConvolutionBackpropData", first, &[32, 48, 2, 2, 2], &up);
    let bias = text.floats(&[1, 48, 1, 1, 1], |i| i as f32 / 48.0 - 0.4);
    let high = text.binary("Add", high, bias);
    let high = text.unary("Sigmoid", high);
    let near =
        volume(&mut text, "ConvolutionBackpropData", first, &[32, 48, 3, 3, 3], &data("2,2,2", "1,1,1", "1,1,1"));
    let slope = text.floats(&[48], |i| i as f32 / 48.0);
    let near = text.layer("PReLU", "", &[near, slope], "FP32");
    let far = volume(&mut text, "ConvolutionBackpropData", near, &[48, 48, 4, 1, 1], &data("1,1,1", "1,0,0", "0,0,0"));
    let back = volume(&mut text, "ConvolutionBackpropData", far, &[48, 48, 2, 1, 1], &data("1,1,1", "1,0,0", "0,0,0"));
    let summed = text.binary("Add", back, high);
    let summed = text.unary("ReLU", summed);
    let end = volume(&mut text, "ConvolutionBackpropData", summed, &[48, 2, 1, 2, 2], &data("1,2,2", "0,0,0", "0,0,0"));
    text.layer("Result", "", &[end], "");
    for shape in [[1, 8, 6, 10, 9], [2, 8, 1, 3, 14]] {
        let (expected, _) = text.run(&[image(&shape)], true);
        let (actual, entries) = text.run(&[image(&shape)], false);
        compare(&expected, &actual, &format!("{shape:?}"));
        assert!(entries.iter().all(|entry| entry.is_kernel));
        assert_eq!(entries.iter().filter(|entry| entry.type_name == "Reorder").count(), 2, "{entries:?}");
    }
}

/// Lines, with a stride of eight.
#[test]
fn transposed_convolutions_of_lines() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,40,?");
    let near = "strides=\"1\" dilations=\"1\" pads_begin=\"1\" pads_end=\"1\" auto_pad=\"explicit\"";
    let far = "strides=\"8\" dilations=\"1\" pads_begin=\"4\" pads_end=\"4\" auto_pad=\"explicit\"";
    let a = text.convolution(x, &[64, 40, 3], near);
    let a = text.transposed(a, &[64, 32, 16], far);
    let slope = text.floats(&[1], |_| 0.1);
    let a = text.layer("PReLU", "", &[a, slope], "FP32");
    let end = text.convolution(a, &[32, 32, 3], near);
    text.layer("Result", "", &[end], "");
    for shape in [[1, 40, 100], [3, 40, 7]] {
        let (expected, _) = text.run(&[image(&shape)], true);
        let (actual, entries) = text.run(&[image(&shape)], false);
        compare(&expected, &actual, &format!("{shape:?}"));
        assert_eq!(entries.iter().filter(|entry| entry.type_name == "Reorder").count(), 2);
    }
}

/// Groups of channels are normalised where convolutions have left them: groups within blocks, across them and of all channels.
#[test]
fn groups_between_convolutions() {
    for (channels, groups) in [(32, 4), (40, 8), (48, 1), (60, 3)] {
        let mut text = Text::default();
        let x = text.parameter("f32", "?,16,?,?");
        let filter = text.floats(&[channels, 16, 3, 3], |i| ((i * 31) % 17) as f32 / 90.0 - 0.08);
        let plane = "strides=\"1,1\" dilations=\"1,1\" pads_begin=\"1,1\" pads_end=\"1,1\" auto_pad=\"explicit\"";
        let deep = text.layer("Convolution", plane, &[x, filter], "FP32");
        let scale = text.floats(&[channels], |i| 0.5 + i as f32 / 40.0);
        let bias = text.floats(&[channels], |i| i as f32 / 30.0 - 1.0);
        let data = format!("num_groups=\"{groups}\" epsilon=\"0.001\"");
        let normal = text.layer("GroupNormalization", &data, &[deep, scale, bias], "FP32");
        let filter = text.floats(&[24, channels, 3, 3], |i| ((i * 29) % 19) as f32 / 200.0 - 0.04);
        let end = text.layer("Convolution", plane, &[normal, filter], "FP32");
        text.layer("Result", "", &[end], "");
        for shape in [[1, 16, 9, 13], [2, 16, 32, 20]] {
            let input = image(&shape);
            text.check(std::slice::from_ref(&input), &format!("{channels} channels in {groups} groups"));
            let (_, entries) = text.run(&[input], false);
            let reorders = entries.iter().filter(|entry| entry.type_name == "Reorder").count();
            assert_eq!(reorders, 2, "{entries:?}");
        }
    }
}
