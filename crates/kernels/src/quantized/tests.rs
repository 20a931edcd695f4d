use super::*;
use crate::blocked::{from_plain, to_plain};
use crate::convolution::TransposedConvolutionGeometry;
use crate::epilogue::Channelwise;
use crate::testing::{Random, in_pool};
use crate::unary::UnaryOp;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

fn code(quantizer: &Quantizer, value: f32) -> u8 {
    let level = ((value - quantizer.low) / (quantizer.high - quantizer.low) * quantizer.steps).round_ties_even();
    level.clamp(0.0, quantizer.steps) as u8
}

/// Whether a code is that of a value, or the one beside near the border of two.
fn is_code(quantizer: &Quantizer, value: f32, given: u8) -> bool {
    let width = f64::from(quantizer.high) - f64::from(quantizer.low);
    let place = (f64::from(value) - f64::from(quantizer.low)) / width * f64::from(quantizer.steps);
    (place.clamp(0.0, f64::from(quantizer.steps)) - f64::from(given)).abs() < 0.5001
}

fn codes(random: &mut Random, count: usize) -> Vec<i8> {
    (0..count).map(|_| random.between(0, 255) as u8 as i8).collect()
}

/// A convolution of integers, written from its definition.
fn reference(g: &ConvolutionGeometry, input: &[u8], zero: i32, weights: &[i8], scales: &[f32]) -> Vec<f64> {
    let (view, depth) = (g.plane(), g.depth());
    let [groups, outputs, inputs, high, wide] = g.channels_and_kernel();
    let (per_group, taps) = (inputs / groups, depth.taps * high * wide);
    let (rows, columns) = (view.output[0], view.output[1]);
    let mut result = Vec::new();
    for index in 0..view.batch * outputs * depth.output * rows * columns {
        let (x, y, z) = (index % columns, index / columns % rows, index / columns / rows % depth.output);
        let plane = index / columns / rows / depth.output;
        let (image, output) = (plane / outputs, plane % outputs);
        let first = output / (outputs / groups) * per_group;
        let mut sum = 0i64;
        for (channel, tap) in (0..per_group).flat_map(|c| (0..taps).map(move |t| (c, t))) {
            let deep = (z * depth.stride + tap / (high * wide) * depth.dilation).checked_sub(depth.pad);
            let place = (view.at(0, y, tap / wide % high), view.at(1, x, tap % wide));
            let (Some(deep), (Some(row), Some(column))) = (deep.filter(|deep| *deep < depth.input), place) else {
                continue;
            };
            let plane = (image * inputs + first + channel) * depth.input + deep;
            let place = (plane * view.input[0] + row) * view.input[1] + column;
            let weight = i64::from(weights[(output * per_group + channel) * taps + tap]);
            sum += (i64::from(input[place]) - i64::from(zero)) * weight;
        }
        result.push(sum as f64 * f64::from(scales[output]));
    }
    result
}

/// A transposed convolution of integers: each input is spread over its window.
fn spread(g: &TransposedConvolutionGeometry, pad: [usize; 3], input: &[u8], zero: i32, weights: &[i8]) -> Vec<i64> {
    let ([_, outputs, inputs], plane, deep) = (g.channels(), g.plane_steps(), g.depth_steps());
    let [kernel, stride, dilation] = [0, 1, 2].map(|step| [deep[step], plane[step][0], plane[step][1]]);
    let (batch, [from, to]) = g.plane_sizes();
    let [from, to] = [[g.depths()[0], from[0], from[1]], [g.depths()[1], to[0], to[1]]];
    let mut result = vec![0i64; batch * outputs * volume(to)];
    let parts = |index: usize, [_, high, wide]: [usize; 3]| [index / wide / high, index / wide % high, index % wide];
    for (index, value) in input.iter().enumerate() {
        let (place, plane) = (parts(index % volume(from), from), index / volume(from));
        let (image, channel) = (plane / inputs, plane % inputs);
        for (output, tap) in (0..outputs).flat_map(|o| (0..volume(kernel)).map(move |t| (o, t))) {
            let at = |axis: usize| {
                let place = place[axis] * stride[axis] + parts(tap, kernel)[axis] * dilation[axis];
                place.checked_sub(pad[axis]).filter(|place| *place < to[axis])
            };
            let (Some(deep), Some(row), Some(column)) = (at(0), at(1), at(2)) else { continue };
            let weight = i64::from(weights[(channel * outputs + output) * volume(kernel) + tap]);
            result[(((image * outputs + output) * to[0] + deep) * to[1] + row) * to[2] + column] +=
                (i64::from(*value) - i64::from(zero)) * weight;
        }
    }
    result
}

fn close(result: &[f32], expected: &[f64], what: &str) {
    assert_eq!(result.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1e-6f64, |most, value| most.max(value.abs()));
    for (index, (a, b)) in result.iter().zip(expected).enumerate() {
        assert!((f64::from(*a) - b).abs() <= 1e-6 * largest, "{what}: element {index} is {a} and should be {b}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn convolutions_are_those_of_the_integers(seed: u64) {
        let mut random = Random::new(seed);
        let groups = [1, 1, 2, 3, 5][random.between(0, 4)];
        let inputs = match groups {
            1 => [1, 3, 4, 16, 20, 33][random.between(0, 5)],
            3 => groups * 16 * random.between(1, 2),
            _ => groups * [1, 2, 4, 8, 8, 24, 40, 13][random.between(0, 7)],
        };
        let outputs = match groups {
            1 => random.between(1, 50),
            3 => groups * 16 * random.between(1, 2),
            2 => groups * random.between(1, 40),
            _ => inputs,
        };
        let is_volume = random.between(0, 2) == 0;
        let mut three = |low, high, flat| {
            let deep = random.between(low, high);
            [if is_volume { deep } else { flat }, random.between(low, high), random.between(low, high)]
        };
        let (kernel, stride, dilation) = (three(1, 3, 1), three(1, 2, 1), three(1, 2, 1));
        let (pad, size) = (three(0, 2, 0), three(5, if is_volume { 9 } else { 17 }, 1));
        // Taps so far apart that some never meet the input.
        let is_far = random.between(0, 3) == 0;
        let far = |own: [usize; 3], [deep, down, across]: [usize; 3]| if is_far { [deep.min(own[0]), down, across] } else { own };
        let (apart, around) = (random.between(3, 12), random.between(0, 12));
        let (dilation, pad) = (far(dilation, [1, apart, apart]), far(pad, [0, around, 12 - around]));
        let end = far(pad, [0, 24 - around, 12 + around]);
        let size = far(size, [size[0], random.between(1, 9), random.between(1, 9)]);
        let geometry =
            ConvolutionGeometry::new(2, groups, inputs, outputs, size, kernel, stride, dilation, pad, end).unwrap();
        let view = geometry.plane();
        let (plane, positions) = (volume(size), geometry.depth().output * view.output[0] * view.output[1]);
        let quantizer = Quantizer { low: -1.0, high: 1.0, steps: 255.0 };
        let values: Vec<f32> = random.values(2 * inputs * plane);
        let zero = random.between(0, 255) as i32;
        let layout = match random.between(0, 3) {
            0 if inputs <= 4 && groups == 1 => CodeLayout::Quads,
            1 if inputs <= 4 && groups == 1 && (dilation[2] == 1 || kernel[2] == 1) => CodeLayout::Rows,
            0 => CodeLayout::Words,
            3 if groups == 1 => CodeLayout::Tiles,
            3 => CodeLayout::TileBlocks,
            _ => CodeLayout::Blocks,
        };
        let plain: Vec<u8> = values.iter().map(|value| code(&quantizer, *value)).collect();
        let weights = codes(&mut random, geometry.weights_len());
        let (mut scales, mut bias) = (random.values(outputs), random.values(outputs));
        let residual = random.values(blocked_len(2, outputs, positions));
        let coded: Vec<u8> = residual.iter().map(|value| code(&quantizer, *value)).collect();
        let dequantizer = Dequantizer { low: -0.5, high: 1.25, steps: 255.0 };
        let has_codes = random.between(0, 1) == 1;
        let values_of = |code: &u8| f32::from(*code) / 255.0 * 1.75 - 0.5;
        let added_blocks: Vec<f32> = if has_codes { coded.iter().map(values_of).collect() } else { residual.clone() };
        // Levels eight apart, between which whole numbers lie exactly.
        let levels = (
            Quantizer { low: -1000.0, high: 1000.0, steps: 250.0 },
            Dequantizer { low: -1000.0, high: 1000.0, steps: 250.0 },
        );
        let inner = Some(levels).filter(|_| random.between(0, 1) == 1);
        if inner.is_some() {
            scales.fill(1.0);
            bias.iter_mut().for_each(|value| *value = value.round());
        }
        let activation = [
            Activation::Unary(UnaryOp::Clamp { min: -2.0, max: f32::INFINITY }),
            Activation::Unary(UnaryOp::Square),
            Activation::PRelu(Channelwise::PerRow(&scales)),
        ][random.between(0, 2)];
        let mut expected = reference(&geometry, &plain, zero, &weights, &scales);
        let mut added = vec![0.0; expected.len()];
        to_plain(2, outputs, positions, &added_blocks, &mut added).unwrap();
        for (index, value) in expected.iter_mut().enumerate() {
            let channel = index / positions % outputs;
            let sum = *value + f64::from(bias[channel]);
            let level = ((sum.clamp(-1000.0, 1000.0) + 1000.0) / 8.0).round_ties_even();
            let sum = if inner.is_some() { level * 8.0 - 1000.0 } else { sum } + f64::from(added[index]);
            *value = match activation {
                Activation::Unary(UnaryOp::Square) => sum * sum,
                Activation::PRelu(_) => if sum < 0.0 { sum * f64::from(scales[channel]) } else { sum },
                _ => sum.max(-2.0),
            };
        }
        // Levels of all channels or of each.
        let count = [1, outputs][random.between(0, 1)];
        let scaled = |c: usize| Quantizer { low: quantizer.low * (c + 1) as f32, ..quantizer };
        let quantizers: Vec<Quantizer> = (0..count).map(scaled).collect();
        let limit = |limit: fn(&Quantizer) -> f32| quantizers.iter().map(limit).collect::<Vec<_>>();
        let encodings = Encodings::new(&limit(|q| q.low), &limit(|q| q.high), quantizer.steps).unwrap();
        let packed = QuantizedWeights::of_convolution(&geometry, layout, &weights).unwrap();
        let epilogue = QuantizedEpilogue {
            bias: Some(&bias),
            inner,
            residual: match has_codes {
                true => QuantizedResidual::Codes(&coded, dequantizer),
                false => QuantizedResidual::Values(&residual),
            },
            activation,
        };
        let is_known = |isa: Isa| match layout {
            CodeLayout::Words | CodeLayout::Rows => prefers_words(isa),
            CodeLayout::Tiles | CodeLayout::TileBlocks => amx::has_amx(isa, Element::Byte),
            _ => true,
        };
        for isa in Isa::available_without_vnni_too().filter(|isa| is_known(*isa)) {
            let source = match layout {
                CodeLayout::Quads | CodeLayout::Rows => values.clone(),
                _ => {
                    let mut blocked = vec![0.0; blocked_len(2, inputs, plane)];
                    from_plain(2, inputs, plane, &values, &mut blocked).unwrap();
                    blocked
                }
            };
            let Some(planes) = CodePlanes::of_convolution(&geometry, layout) else {
                // Padding far larger than a volume.
                assert!(is_far && is_volume, "{geometry:?}");
                continue;
            };
            let mut input = vec![9; planes.len()];
            planes.quantize(isa, &quantizer, zero as u8, &source, &mut input).unwrap();
            let mut codes = vec![0; source.len()];
            quantize(isa, &quantizer, &source, &mut codes).unwrap();
            let mut padded = vec![9; input.len()];
            planes.pad(zero as u8, &codes, &mut padded).unwrap();
            prop_assert_eq!(&padded, &input);
            prop_assert!(!planes.are_input() || codes == input);
            let scaling = Scaling { zero, scales: &scales };
            let run = || {
                let mut output = vec![f32::NAN; blocked_len(2, outputs, positions)];
                let target = QuantizedOutput::Values(&mut output);
                quantized_convolution(isa, &geometry, &packed, &scaling, &input, target, &epilogue).unwrap();
                let mut codes = vec![0; output.len()];
                let target = QuantizedOutput::Codes(&mut codes, &encodings);
                quantized_convolution(isa, &geometry, &packed, &scaling, &input, target, &epilogue).unwrap();
                for (place, (given, value)) in codes.iter().zip(&output).enumerate() {
                    let channel = place / BLOCK / positions % outputs.div_ceil(BLOCK) * BLOCK + place % BLOCK;
                    let levels = quantizers.get(channel).or(quantizers.first().filter(|_| quantizers.len() == 1));
                    assert!(levels.is_none_or(|levels| is_code(levels, *value, *given)), "{isa} {channel} {value} {given}");
                }
                let mut result = vec![f32::NAN; 2 * outputs * positions];
                to_plain(2, outputs, positions, &output, &mut result).unwrap();
                result
            };
            close(&run(), &expected, &format!("{isa} {geometry:?} {layout:?}"));
            prop_assert_eq!(run(), in_pool(2, run));
        }
    }

    #[test]
    fn transposed_convolutions_are_those_of_the_integers(seed: u64) {
        let mut random = Random::new(seed);
        let (inputs, outputs) = ([8, 16, 20, 33][random.between(0, 3)], random.between(1, 50));
        let is_volume = random.between(0, 1) == 0;
        let mut three = |low, high, flat| {
            let deep = random.between(low, high);
            [if is_volume { deep } else { flat }, random.between(low, high), random.between(low, high)]
        };
        let (kernel, stride, dilation) = (three(1, 4, 1), three(1, 4, 1), three(1, 2, 1));
        let (size, pad, more) = (three(1, if is_volume { 5 } else { 9 }, 1), three(0, 2, 0), three(0, 1, 0));
        let to = [0, 1, 2].map(|axis| {
            let last = (size[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1;
            (last + more[axis]).saturating_sub(2 * pad[axis]).max(1)
        });
        let geometry =
            TransposedConvolutionGeometry::new(2, 1, inputs, outputs, size, kernel, stride, dilation, pad, to);
        let Ok(geometry) = geometry else { return Ok(()) };
        let (from, positions) = (volume(size), volume(to));
        let source: Vec<u8> = (0..2 * inputs * from).map(|_| random.between(0, 255) as u8).collect();
        let zero = random.between(0, 255) as u8;
        let weights = codes(&mut random, geometry.weights_len());
        let (scales, bias) = (random.values(outputs), random.values(outputs));
        let expected: Vec<f64> = spread(&geometry, pad, &source, i32::from(zero), &weights)
            .into_iter()
            .enumerate()
            .map(|(index, sum)| {
                let channel = index / positions % outputs;
                sum as f64 * f64::from(scales[channel]) + f64::from(bias[channel])
            })
            .collect();
        let packed = QuantizedTransposed::pack(&geometry, &weights).unwrap();
        let planes = CodePlanes::of_transposed(&geometry).unwrap();
        let values: Vec<f32> = source.iter().map(|code| f32::from(*code)).collect();
        let mut blocked = vec![0.0; blocked_len(2, inputs, from)];
        from_plain(2, inputs, from, &values, &mut blocked).unwrap();
        let blocked: Vec<u8> = blocked.iter().map(|code| *code as u8).collect();
        let mut input = vec![3; planes.len()];
        planes.pad(zero, &blocked, &mut input).unwrap();
        let (epilogue, scaling) = (QuantizedEpilogue { bias: Some(&bias), ..Default::default() }, Scaling { zero: i32::from(zero), scales: &scales });
        let encodings = Encodings::new(&[-1000.0], &[1000.0], 255.0).unwrap();
        for isa in Isa::available_without_vnni_too() {
            let run = || {
                let mut output = vec![f32::NAN; blocked_len(2, outputs, positions)];
                let target = QuantizedOutput::Values(&mut output);
                quantized_transposed(isa, &geometry, &packed, &scaling, &input, target, &epilogue).unwrap();
                let mut codes = vec![0; output.len()];
                let target = QuantizedOutput::Codes(&mut codes, &encodings);
                quantized_transposed(isa, &geometry, &packed, &scaling, &input, target, &epilogue).unwrap();
                let levels = Quantizer { low: -1000.0, high: 1000.0, steps: 255.0 };
                assert!(codes.iter().zip(&output).all(|(code, value)| is_code(&levels, *value, *code)), "{isa}");
                let mut result = vec![f32::NAN; 2 * outputs * positions];
                to_plain(2, outputs, positions, &output, &mut result).unwrap();
                result
            };
            close(&run(), &expected, &format!("{isa} {geometry:?}"));
            prop_assert_eq!(run(), in_pool(2, run));
        }
    }

    #[test]
    fn products_are_those_of_the_integers(seed: u64) {
        let mut random = Random::new(seed);
        let (rows, k, n) = (random.between(1, 40), random.between(1, 70), random.between(1, 70));
        let quantizer = Quantizer { low: -0.5, high: 0.75, steps: 200.0 };
        let values = random.values(rows * k);
        let weights = codes(&mut random, k * n);
        let zero = random.between(0, 600) as i32 - 300;
        let scales = random.values(n);
        let expected: Vec<f64> = (0..rows * n)
            .map(|index| {
                let (row, column) = (index / n, index % n);
                let term = |i: usize| {
                    (i64::from(code(&quantizer, values[row * k + i])) - i64::from(zero)) * i64::from(weights[i * n + column])
                };
                ((0..k).map(term).sum::<i64>() as f64 * f64::from(scales[column])).abs()
            })
            .collect();
        let packed = QuantizedWeights::of_matrix([k, n], &weights, [n, 1]).unwrap();
        let epilogue = QuantizedEpilogue { activation: Activation::Unary(UnaryOp::Abs), ..Default::default() };
        let residual: Vec<u8> = (0..rows * n).map(|_| random.between(0, 255) as u8).collect();
        let dequantizer = Dequantizer { low: 0.0, high: 255.0, steps: 255.0 };
        for isa in Isa::available_without_vnni_too() {
            let mut input = vec![7; rows * k.next_multiple_of(4)];
            quantize_rows(isa, &quantizer, k, &values, &mut input).unwrap();
            let mut output = vec![f32::NAN; rows * n];
            let scaling = Scaling { zero, scales: &scales };
            let target = QuantizedOutput::Values(&mut output);
            quantized_product(isa, rows, &packed, &scaling, &input, target, &epilogue).unwrap();
            close(&output, &expected, &format!("{isa} {rows}x{k}x{n}"));
            let mut codes = vec![0; rows * k];
            quantize(isa, &quantizer, &values, &mut codes).unwrap();
            let mut padded = vec![7; input.len()];
            pad_rows(k, &codes, &mut padded).unwrap();
            prop_assert_eq!(&padded, &input);
            let mut codes = vec![0; rows * n];
            let both = QuantizedEpilogue { residual: QuantizedResidual::Codes(&residual, dequantizer), ..epilogue };
            quantized_product(isa, rows, &packed, &scaling, &input, QuantizedOutput::Values(&mut output), &both).unwrap();
            let encodings = Encodings::new(&[quantizer.low], &[quantizer.high], quantizer.steps).unwrap();
            let target = QuantizedOutput::Codes(&mut codes, &encodings);
            quantized_product(isa, rows, &packed, &scaling, &input, target, &both).unwrap();
            prop_assert!(codes.iter().zip(&output).all(|(given, value)| is_code(&quantizer, *value, *given)));
            let linear = QuantizedEpilogue::default();
            let (mut plain, mut sums) = (output.clone(), output.clone());
            for (epilogue, target) in [
                (linear, &mut plain),
                (QuantizedEpilogue { residual: QuantizedResidual::Codes(&residual, dequantizer), ..linear }, &mut sums),
            ] {
                let target = QuantizedOutput::Values(target);
                quantized_product(isa, rows, &packed, &scaling, &input, target, &epilogue).unwrap();
            }
            prop_assert!(plain.iter().zip(&residual).zip(&sums).all(|((a, b), sum)| a + f32::from(*b) == *sum));
        }
    }
}

#[test]
fn positions_that_points_skip_are_left_out() {
    let mut random = Random::new(5);
    let quantizer = Quantizer { low: -1.0, high: 1.0, steps: 255.0 };
    for (stride, after, groups) in [([2, 2], [0, 0], 1), ([1, 3], [0, 0], 1), ([2, 1], [0, 0], 2), ([3, 2], [3, 2], 1)]
    {
        let (one, [down, across], [end_down, end_across]) = ([1; 3], stride, after);
        let (stride, after) = ([1, down, across], [0, end_down, end_across]);
        let geometry =
            ConvolutionGeometry::new(2, groups, 32, 64, [1, 7, 10], one, stride, one, [0; 3], after).unwrap();
        let (values, weights) = (random.values(2 * 32 * 70), codes(&mut random, geometry.weights_len()));
        let scales = random.values(64);
        let plain: Vec<u8> = values.iter().map(|value| code(&quantizer, *value)).collect();
        let positions = volume(geometry.output());
        let expected = reference(&geometry, &plain, 77, &weights, &scales);
        let planes = CodePlanes::of_convolution(&geometry, CodeLayout::Words).unwrap();
        assert_eq!(planes.len(), 2 * 32 * positions * 2);
        let mut blocked = vec![0.0; blocked_len(2, 32, 70)];
        from_plain(2, 32, 70, &values, &mut blocked).unwrap();
        let packed = QuantizedWeights::of_convolution(&geometry, CodeLayout::Words, &weights).unwrap();
        for isa in Isa::available_without_vnni_too() {
            let (mut input, mut padded, mut codes) =
                (vec![9; planes.len()], vec![9; planes.len()], vec![9; blocked.len()]);
            planes.quantize(isa, &quantizer, 77, &blocked, &mut input).unwrap();
            quantize(isa, &quantizer, &blocked, &mut codes).unwrap();
            planes.pad(77, &codes, &mut padded).unwrap();
            assert_eq!(padded, input, "{isa}");
            if !prefers_words(isa) {
                continue;
            }
            let (scaling, mut output) =
                (Scaling { zero: 77, scales: &scales }, vec![f32::NAN; blocked_len(2, 64, positions)]);
            let target = QuantizedOutput::Values(&mut output);
            quantized_convolution(isa, &geometry, &packed, &scaling, &input, target, &Default::default()).unwrap();
            let mut result = vec![0.0; expected.len()];
            to_plain(2, 64, positions, &output, &mut result).unwrap();
            close(&result, &expected, &format!("{isa} {stride:?}"));
        }
    }
}

#[test]
fn words_are_for_machines_that_multiply_them_and_for_codes_that_are_multiplied_often() {
    let of = |outputs: usize, groups: usize, kernel: usize, stride: usize| {
        let (kernel, stride, pad) = ([1, kernel, kernel], [1, stride, stride], [0, kernel / 2, kernel / 2]);
        ConvolutionGeometry::new(1, groups, 32, outputs, [1, 8, 8], kernel, stride, [1; 3], pad, pad).unwrap()
    };
    for isa in Isa::available_without_vnni_too() {
        let takes = |geometry: ConvolutionGeometry| takes_words(isa, &geometry, CodeLayout::Words);
        assert_eq!(takes(of(64, 1, 1, 1)), prefers_words(isa), "{isa}");
        assert_eq!(takes(of(32, 2, 3, 1)), prefers_words(isa), "{isa}");
        assert_eq!(takes(of(32, 4, 3, 1)), prefers_words(isa), "{isa}");
        assert_eq!(takes(of(64, 1, 1, 2)), prefers_words(isa), "{isa}");
        // Too few outputs, and too many codes that are left out.
        assert!(!takes(of(48, 1, 1, 1)) && !takes(of(16, 1, 3, 2)), "{isa}");
        let stem = |channels: usize, dilation: usize| {
            let (dilation, pad) = ([1, 1, dilation], [0, 3, 3 * dilation]);
            ConvolutionGeometry::new(1, 1, channels, 16, [1, 9, 9], [1, 7, 7], [1, 2, 2], dilation, pad, pad).unwrap()
        };
        let takes_rows = |channels, dilation| takes_words(isa, &stem(channels, dilation), CodeLayout::Rows);
        assert_eq!(takes_rows(3, 1), prefers_words(isa), "{isa}");
        // Too many channels, taps that do not lie side by side.
        assert!(!takes_rows(5, 1) && !takes_rows(3, 2) && !takes_words(isa, &stem(3, 1), CodeLayout::Quads), "{isa}");
        let geometry = of(64, 1, 1, 1);
        let weights = vec![1; geometry.weights_len()];
        let packed = QuantizedWeights::of_convolution(&geometry, CodeLayout::Words, &weights).unwrap();
        let planes = CodePlanes::of_convolution(&geometry, CodeLayout::Words).unwrap();
        assert!(!planes.are_input());
        let (mut words, mut output) = (vec![0; planes.len()], vec![0.0; 64 * 64]);
        planes.pad(0, &[255; 32 * 64], &mut words).unwrap();
        let (scaling, target) = (Scaling { zero: 0, scales: &[1.0; 64] }, QuantizedOutput::Values(&mut output));
        let done = quantized_convolution(isa, &geometry, &packed, &scaling, &words, target, &Default::default());
        assert_eq!(done.is_ok(), prefers_words(isa), "{isa}");
        assert!(done.is_err() || output.iter().all(|sum| *sum == 32.0 * 255.0), "{isa}");
    }
    assert!(!prefers_words(Isa::portable()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn winograd_convolutions_are_the_direct_ones_bit_by_bit(seed: u64) {
        let mut random = Random::new(seed);
        let (inputs, outputs) = (random.between(1, 70), random.between(1, 50));
        let mut plane = |low, high| [1, random.between(low, high), random.between(low, high)];
        let size = plane(1, 30);
        let (mut before, mut after) = (plane(0, 3), plane(0, 3));
        (before[0], after[0]) = (0, 0);
        for axis in 1..3 {
            // The window lies in what there is.
            after[axis] = after[axis].max(3usize.saturating_sub(size[axis] + before[axis]));
        }
        let one = [1; 3];
        let geometry =
            ConvolutionGeometry::new(2, 1, inputs, outputs, size, [1, 3, 3], one, one, before, after).unwrap();
        let (from, positions) = (volume(size), volume(geometry.output()));
        let zero = random.between(0, 255) as i32;
        let input: Vec<u8> = codes(&mut random, blocked_len(2, inputs, from)).into_iter().map(i8::cast_unsigned).collect();
        let weights = match random.between(0, 3) {
            0 => vec![-128; geometry.weights_len()],
            _ => codes(&mut random, geometry.weights_len()),
        };
        // Sums are brought between the levels of codes.
        let scales: Vec<f32> = random.values(outputs).into_iter().map(|scale| scale / 100.0).collect();
        let bias = random.values(outputs);
        let len = blocked_len(2, outputs, positions);
        let residual = random.values(len);
        let coded: Vec<u8> = codes(&mut random, len).into_iter().map(i8::cast_unsigned).collect();
        let dequantizer = Dequantizer { low: -0.5, high: 1.25, steps: 255.0 };
        let levels = Quantizer { low: -1000.0, high: 1000.0, steps: 250.0 };
        let epilogue = QuantizedEpilogue {
            bias: Some(&bias).filter(|_| random.between(0, 1) == 1).map(Vec::as_slice),
            inner: Some((levels, Dequantizer { low: -1000.0, high: 1000.0, steps: 250.0 })).filter(|_| seed % 4 == 0),
            residual: [
                QuantizedResidual::None,
                QuantizedResidual::Values(&residual),
                QuantizedResidual::Codes(&coded, dequantizer),
            ][random.between(0, 2)],
            activation: [
                Activation::None,
                Activation::Unary(UnaryOp::Relu),
                Activation::Unary(UnaryOp::HSwish),
                Activation::PRelu(Channelwise::PerRow(&scales)),
            ][random.between(0, 3)],
        };
        let encodings = Encodings::new(&[-3000.0], &[5000.0], 255.0).unwrap();
        let scaling = Scaling { zero, scales: &scales };
        let direct = QuantizedWeights::of_convolution(&geometry, CodeLayout::Blocks, &weights).unwrap();
        let packed = WinogradWeights::of_convolution(&geometry, &weights).unwrap();
        let planes = CodePlanes::of_convolution(&geometry, CodeLayout::Blocks).unwrap();
        let mut padded = vec![9; planes.len()];
        planes.pad(zero as u8, &input, &mut padded).unwrap();
        for isa in Isa::available_without_vnni_too().filter(|isa| prefers_words(*isa)) {
            let (mut expected, mut expected_codes) = (vec![f32::NAN; len], vec![9; len]);
            let target = QuantizedOutput::Values(&mut expected);
            quantized_convolution(isa, &geometry, &direct, &scaling, &padded, target, &epilogue).unwrap();
            let target = QuantizedOutput::Codes(&mut expected_codes, &encodings);
            quantized_convolution(isa, &geometry, &direct, &scaling, &padded, target, &epilogue).unwrap();
            let run = || {
                let mut scratch = vec![0xa5; winograd_scratch_len(&geometry)];
                let (mut values, mut codes) = (vec![f32::NAN; len], vec![9; len]);
                let target = QuantizedOutput::Values(&mut values);
                winograd_convolution(
                    isa, &geometry, &packed, &scaling, &input, target, &epilogue, &mut scratch,
                ).unwrap();
                scratch.fill(0x5a);
                let target = QuantizedOutput::Codes(&mut codes, &encodings);
                winograd_convolution(
                    isa, &geometry, &packed, &scaling, &input, target, &epilogue, &mut scratch,
                ).unwrap();
                (values.into_iter().map(f32::to_bits).collect::<Vec<_>>(), codes)
            };
            let bits: Vec<u32> = expected.iter().map(|value| value.to_bits()).collect();
            let (values, codes) = in_pool(3, run);
            prop_assert_eq!(values, bits);
            prop_assert_eq!(codes, expected_codes);
        }
    }
}

#[test]
fn winograd_convolutions_are_those_of_few_taps_and_many_channels() {
    let of = |channels: [usize; 2], groups: usize, kernel: [usize; 3], stride: usize, dilation: usize| {
        let pad = kernel.map(|taps| taps / 2);
        let (stride, dilation) = ([1, stride, stride], [1, dilation, dilation]);
        let size = [kernel[0], 8, 8];
        ConvolutionGeometry::new(1, groups, channels[0], channels[1], size, kernel, stride, dilation, pad, pad).unwrap()
    };
    let taps = [1, 3, 3];
    for isa in Isa::available_without_vnni_too() {
        assert_eq!(takes_winograd(isa, &of([64, 48], 1, taps, 1, 1)), prefers_words(isa), "{isa}");
        for other in [
            of([8, 64], 1, taps, 1, 1),
            of([64, 8], 1, taps, 1, 1),
            of([512, 512], 1, taps, 1, 1),
            of([64, 64], 4, taps, 1, 1),
            of([64, 64], 1, [1, 1, 3], 1, 1),
            of([64, 64], 1, [3, 3, 3], 1, 1),
            of([64, 64], 1, taps, 2, 1),
            of([64, 64], 1, taps, 1, 2),
        ] {
            assert!(!takes_winograd(isa, &other), "{isa}");
        }
    }
    let strided = of([16, 16], 1, taps, 2, 1);
    assert!(WinogradWeights::of_convolution(&strided, &vec![1; strided.weights_len()]).is_err());
    // Sums of more channels could be too large.
    let deep = of([1828, 16], 1, taps, 1, 1);
    assert!(WinogradWeights::of_convolution(&deep, &vec![1; deep.weights_len()]).is_err());
    let geometry = of([16, 16], 1, taps, 1, 1);
    let weights = vec![1; geometry.weights_len()];
    assert!(WinogradWeights::of_convolution(&geometry, &weights[1..]).is_err());
    let packed = WinogradWeights::of_convolution(&geometry, &weights).unwrap();
    for isa in Isa::available_without_vnni_too() {
        let run = |zero: i32, input: usize, scratch: usize| {
            let (scaling, mut output) = (Scaling { zero, scales: &[1.0; 16] }, [0.0; 1024]);
            let (target, epilogue) = (QuantizedOutput::Values(&mut output), QuantizedEpilogue::default());
            let mut scratch = vec![0; scratch];
            winograd_convolution(isa, &geometry, &packed, &scaling, &vec![2; input], target, &epilogue, &mut scratch)
                .map(|()| output[9 * 16])
        };
        let needed = winograd_scratch_len(&geometry);
        assert_eq!(run(1, 1024, needed).ok(), Some(144.0).filter(|_| prefers_words(isa)), "{isa}");
        assert!(run(1, 1023, needed).is_err() && run(1, 1024, needed - 1).is_err() && run(300, 1024, needed).is_err());
    }
}

#[test]
fn codes_are_the_nearest_levels() {
    let quantizer = Quantizer { low: -1.0, high: 3.0, steps: 4.0 };
    let values = [-9.0, -1.0, -0.5, 0.4, 0.5, 1.0, 1.5, 2.6, 3.0, 1e30, f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
    let expected = [0, 0, 0, 1, 2, 2, 2, 4, 4, 4, 0, 4, 0];
    for isa in Isa::available() {
        let mut codes = [9; 13];
        quantize(isa, &quantizer, &values, &mut codes).unwrap();
        assert_eq!(codes, expected, "{isa}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let one = [1, 1, 1];
    let geometry = ConvolutionGeometry::new(1, 1, 5, 16, [1, 4, 4], one, one, one, [0; 3], [0; 3]).unwrap();
    assert!(QuantizedWeights::of_convolution(&geometry, CodeLayout::Quads, &[1; 80]).is_err());
    let packed = QuantizedWeights::of_convolution(&geometry, CodeLayout::Blocks, &[1; 80]).unwrap();
    let run = |input: usize| {
        let scaling = Scaling { zero: 300, scales: &[1.0; 16] };
        let (input, mut output) = (vec![0; input], [0.0; 256]);
        let (target, epilogue) = (QuantizedOutput::Values(&mut output), QuantizedEpilogue::default());
        quantized_convolution(Isa::portable(), &geometry, &packed, &scaling, &input, target, &epilogue)
    };
    assert!(run(256).is_ok());
    assert!(run(255).is_err());
    let pad = [0, 1 << 20, 1 << 20];
    let far = ConvolutionGeometry::new(1, 1, 5, 16, [1, 4, 4], one, one, one, pad, pad).unwrap();
    assert_eq!(CodePlanes::of_convolution(&far, CodeLayout::Blocks), None);
    assert_eq!(CodePlanes::of_convolution(&geometry, CodeLayout::Quads), None);
    assert!(QuantizedWeights::of_matrix([1 << 17, 16], &[0; 16], [0, 1]).is_err());
    assert!(Encodings::new(&[0.0, 1.0], &[1.0], 255.0).is_err());
    assert!(Encodings::new(&[], &[], 255.0).is_err());
    assert!(Encodings::new(&[1.0], &[0.0], 255.0).is_err());
    assert!(Encodings::new(&[0.0], &[1e-42], 255.0).is_err());
    assert!(Encodings::new(&[0.0], &[1.0], 256.0).is_err());
    let encodings = Encodings::new(&[0.0; 3], &[1.0; 3], 255.0).unwrap();
    assert!(encodings.check(3).is_ok() && encodings.check(4).is_err());
}

#[test]
fn codes_of_blocks_and_their_values() {
    let mut random = Random::new(3);
    let (channels, positions) = (19, 2100);
    let mut values = random.values(2 * 32 * positions);
    values[7] = f32::NAN;
    let low: Vec<f32> = (0..channels).map(|c| -0.5 - c as f32 / 9.0).collect();
    let high: Vec<f32> = low.iter().map(|low| 0.75 - low).collect();
    for isa in Isa::available() {
        for count in [1, channels] {
            let encodings = Encodings::new(&low[..count], &high[..count], 200.0).unwrap();
            let run = || {
                let mut codes = vec![9; values.len()];
                blocked_quantize(isa, &encodings, [2, channels, positions], &values, &mut codes).unwrap();
                codes
            };
            for (place, given) in run().into_iter().enumerate() {
                let channel = place / BLOCK / positions % 2 * BLOCK + place % BLOCK;
                if channel < channels {
                    let at = if count == 1 { 0 } else { channel };
                    let quantizer = Quantizer { low: low[at], high: high[at], steps: 200.0 };
                    let mut code = [9];
                    quantize(Isa::portable(), &quantizer, &values[place..=place], &mut code).unwrap();
                    assert_eq!(given, code[0], "{isa} {place}");
                }
            }
            assert_eq!(run(), in_pool(2, run));
        }
        let dequantizer = Dequantizer { low: -1.5, high: 2.25, steps: 200.0 };
        let codes: Vec<u8> = (0..40_003).map(|code| (code % 201) as u8).collect();
        let mut decoded = vec![f32::NAN; codes.len()];
        dequantize(isa, &dequantizer, &codes, &mut decoded).unwrap();
        assert!(
            codes.iter().zip(&decoded).all(|(code, value)| Decoder::new(&dequantizer).value(*code) == *value),
            "{isa}"
        );
        assert!(dequantize(isa, &dequantizer, &codes[1..], &mut decoded).is_err());
    }
    let encodings = Encodings::new(&low, &high, 200.0).unwrap();
    let mut codes = vec![9; values.len()];
    assert!(blocked_quantize(Isa::portable(), &encodings, [2, 18, positions], &values, &mut codes).is_err());
    assert!(blocked_quantize(Isa::portable(), &encodings, [2, 19, positions], &values, &mut codes[1..]).is_err());
}
