use super::*;
use crate::convolution::{ConvolutionEpilogue, ConvolutionGeometry, PackedConvolution, convolution};
use crate::epilogue::{Activation, Channelwise};
use crate::isa::{self, Isa};
use crate::pooling::{PoolingGeometry, max_codes};
use crate::quantized::{Decodings, Encodings, QuantizedOutput, blocked_max_codes};
use crate::testing::{Random, assert_close, in_pool};
use crate::unary::UnaryOp;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

fn block(batch: usize, channels: usize, positions: usize, values: &[f32]) -> Vec<f32> {
    let mut blocked = vec![f32::NAN; blocked_len(batch, channels, positions)];
    from_plain(batch, channels, positions, values, &mut blocked).unwrap();
    // Whatever lies in the spare lanes must not matter.
    let blocks = channels.div_ceil(BLOCK);
    for (index, value) in blocked.iter_mut().enumerate() {
        if index / (positions * BLOCK) % blocks * BLOCK + index % BLOCK >= channels {
            *value = f32::NAN;
        }
    }
    blocked
}

fn plain(batch: usize, channels: usize, positions: usize, values: &[f32]) -> Vec<f32> {
    let mut result = vec![f32::NAN; batch * channels * positions];
    to_plain(batch, channels, positions, values, &mut result).unwrap();
    result
}

fn random_geometry(random: &mut Random, groups: usize, inputs: usize, outputs: usize) -> ConvolutionGeometry {
    loop {
        let pair = |random: &mut Random, low: usize, high: usize, first: usize| {
            [first, random.between(low, high), random.between(low, high)]
        };
        let geometry = ConvolutionGeometry::new(
            random.between(1, 2),
            groups,
            inputs,
            outputs,
            pair(random, 1, 18, 1),
            pair(random, 1, 4, 1),
            pair(random, 1, 3, 1),
            pair(random, 1, 2, 1),
            pair(random, 0, 3, 0),
            pair(random, 0, 3, 0),
        );
        if let Ok(geometry) = geometry {
            return geometry;
        }
    }
}

fn random_volume(random: &mut Random, groups: usize, inputs: usize, outputs: usize) -> ConvolutionGeometry {
    loop {
        let three = |random: &mut Random, low: usize, high: usize, [first, last]: [usize; 2]| {
            [random.between(first, last), random.between(low, high), random.between(low, high)]
        };
        let geometry = ConvolutionGeometry::new(
            random.between(1, 2),
            groups,
            inputs,
            outputs,
            three(random, 1, 15, [1, 6]),
            three(random, 1, 3, [1, 3]),
            three(random, 1, 2, [1, 3]),
            three(random, 1, 2, [1, 2]),
            // Windows may miss the input altogether.
            three(random, 0, 2, [0, 4]),
            three(random, 0, 2, [0, 4]),
        );
        if let Ok(geometry) = geometry {
            return geometry;
        }
    }
}

/// Compares with the plain convolution, which has a reference of its own.
fn check(random: &mut Random, geometry: &ConvolutionGeometry, input_layout: Option<BlockedInput>) {
    let (inputs, outputs) = (geometry.channels_and_kernel()[2], geometry.channels_and_kernel()[1]);
    let (view, depth) = (geometry.plane(), geometry.depth());
    let plane = depth.input * view.input[0] * view.input[1];
    let positions = depth.output * view.output[0] * view.output[1];
    let weights = random.values(geometry.weights_len());
    let input = random.values(geometry.input_len());
    let (bias, slopes) = (random.values(outputs), random.values(outputs));
    let residual = random.values(geometry.output_len());
    let blocked_input = match input_layout {
        Some(BlockedInput::Plain) => input.clone(),
        _ => block(view.batch, inputs, plane, &input),
    };
    let blocked_residual = block(view.batch, outputs, positions, &residual);
    let activations = [
        Activation::None,
        Activation::Unary(UnaryOp::Relu),
        Activation::Unary(UnaryOp::Sigmoid),
        Activation::PRelu(Channelwise::PerRow(&slopes)),
    ];
    for isa in Isa::available() {
        let activation = activations[random.between(0, 3)];
        let packed = PackedConvolution::pack(isa, geometry, &weights).unwrap();
        let mut expected = vec![f32::NAN; geometry.output_len()];
        let epilogue =
            ConvolutionEpilogue { bias: Some(&bias), residual: Some(&residual), accumulates: false, activation };
        convolution(isa, geometry, &packed, &input, &mut expected, &epilogue).unwrap();
        let run = |epilogue: &ConvolutionEpilogue<'_>, output: &mut [f32]| match input_layout {
            Some(layout) => {
                let packed = BlockedConvolution::pack(geometry, layout, &weights).unwrap();
                let mut scratch = vec![f32::NAN; blocked_convolution_scratch_len(geometry, layout)];
                blocked_convolution(isa, geometry, &packed, &blocked_input, output, epilogue, &mut scratch).unwrap();
            }
            None => {
                let packed = BlockedDepthwise::pack(geometry, &weights).unwrap();
                let (input, output) = (DepthwiseInput::Values(&blocked_input), QuantizedOutput::Values(output));
                blocked_depthwise(isa, geometry, packed.weights(), input, output, epilogue).unwrap();
            }
        };
        let (mut output, mut accumulated) = (vec![f32::NAN; blocked_residual.len()], blocked_residual.clone());
        let epilogue = ConvolutionEpilogue { residual: Some(&blocked_residual), ..epilogue };
        run(&epilogue, &mut output);
        run(&ConvolutionEpilogue { residual: None, accumulates: true, ..epilogue }, &mut accumulated);
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits();
        let outputs_of = |values: &[f32]| plain(view.batch, outputs, positions, values);
        let (given, added) = (outputs_of(&output), outputs_of(&accumulated));
        assert!(given.iter().zip(&added).all(same), "{isa} {geometry:?} {activation:?} adds to its output");
        let expected: Vec<f64> = expected.iter().map(|&value| f64::from(value)).collect();
        let result = plain(view.batch, outputs, positions, &output);
        assert_close(&result, &expected, 200, &format!("{isa} {geometry:?} {activation:?}"));
    }
}

/// Weights that are too many for a tile to read all taps along the depth at once, and inputs of which parts read bands.
#[test]
fn large_volumes() {
    let mut random = Random::new(12);
    for (inputs, outputs, size, kernel, stride, pad) in [
        (136, 40, [3, 3, 4], [3, 3, 3], [1, 1, 1], [1, 1, 1]),
        (160, 96, [5, 9, 13], [3, 1, 1], [1, 1, 1], [1, 0, 0]),
        (128, 160, [7, 8, 9], [5, 1, 1], [2, 1, 1], [2, 0, 0]),
        (96, 192, [4, 7, 17], [3, 3, 3], [1, 1, 2], [1, 1, 1]),
    ] {
        let geometry = ConvolutionGeometry::new(1, 1, inputs, outputs, size, kernel, stride, [1; 3], pad, pad).unwrap();
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_convolution(seed: u64) {
        let mut random = Random::new(seed);
        let (inputs, outputs) = (random.between(1, 40), random.between(1, 70));
        let geometry = random_geometry(&mut random, 1, inputs, outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        check(&mut random, &geometry, Some(BlockedInput::Plain));
        // Windows that do not overlap.
        let (kernel, more) = (random.between(3, 6), random.between(0, 1));
        let size = [1, random.between(kernel, 20), random.between(kernel, 20)];
        let (kernel, stride) = ([1, kernel, kernel], [1, kernel, kernel + more]);
        let pad = [0, random.between(0, 2), random.between(0, 2)];
        let geometry = ConvolutionGeometry::new(2, 1, inputs, outputs, size, kernel, stride, [1; 3], pad, pad).unwrap();
        check(&mut random, &geometry, Some(BlockedInput::Plain));
        // Windows that overlap at every stride.
        let (kernel, apart) = (random.between(5, 7), random.between(1, 4));
        let (kernel, stride) = ([1, kernel, kernel], [1, random.between(1, 4), apart]);
        let geometry = ConvolutionGeometry::new(1, 1, inputs, outputs, [1, 9, 31], kernel, stride, [1; 3], pad, pad);
        check(&mut random, &geometry.unwrap(), Some(BlockedInput::Plain));
    }

    #[test]
    fn any_convolution_with_a_depth(seed: u64) {
        let mut random = Random::new(seed);
        let (inputs, outputs) = (random.between(1, 40), random.between(1, 70));
        let geometry = random_volume(&mut random, 1, inputs, outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let geometry = random_volume(&mut random, 3, 48, 96);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let (groups, inputs, outputs) = (random.between(2, 11), [1, 2, 4][random.between(0, 2)], [4, 8][random.between(0, 1)]);
        let geometry = random_volume(&mut random, groups, groups * inputs, groups * outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let (groups, inputs, outputs) = (random.between(2, 5), random.between(1, 20), random.between(3, 20));
        let geometry = random_volume(&mut random, groups, groups * inputs, groups * outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        for inputs in [1, 3, 7] {
            let geometry = random_volume(&mut random, 1, inputs, outputs);
            if BlockedConvolution::can_be(&geometry, BlockedInput::Plain) {
                check(&mut random, &geometry, Some(BlockedInput::Plain));
            }
        }
        // Windows that do not overlap.
        let kernel = [random.between(1, 3), random.between(3, 5), random.between(3, 5)];
        let stride = kernel.map(|taps| taps + random.between(0, 1));
        let size = kernel.map(|taps| random.between(taps, 3 * taps + 1));
        let pad = [random.between(0, 2), random.between(0, 2), 0];
        let inputs = random.between(1, 5);
        let geometry = ConvolutionGeometry::new(2, 1, inputs, outputs, size, kernel, stride, [1; 3], pad, pad).unwrap();
        check(&mut random, &geometry, Some(BlockedInput::Plain));
    }

    #[test]
    fn depthwise_convolutions_in_tiles(seed: u64) {
        let mut random = Random::new(seed);
        let (channels, kernel) = (random.between(2, 40), [3, 5, 7, 9, 11][random.between(0, 4)]);
        let (stride, step) = (random.between(1, 2), [1, 1, 2, 3, 7][random.between(0, 4)]);
        let pad = |random: &mut Random| [0, random.between(0, 3), random.between(0, kernel / 2 * step)];
        let size = [1, random.between(9, 16), random.between((kernel - 1) * step + 1, (kernel - 1) * step + 30)];
        let (before, after) = (pad(&mut random), pad(&mut random));
        let (kernel, stride) = ([1, random.between(1, 5), kernel], [1, random.between(1, 2), stride]);
        let dilation = [1, random.between(1, 2), step];
        let geometry =
            ConvolutionGeometry::new(1, channels, channels, channels, size, kernel, stride, dilation, before, after);
        check(&mut random, &geometry.unwrap(), None);
    }

    #[test]
    fn depthwise_convolutions_of_codes(seed: u64) {
        let mut random = Random::new(seed);
        let channels = random.between(2, 40);
        let (kernel, stride) = (random.between(1, 12), random.between(1, 2));
        let step = [1, 1, 1, 2, 3][random.between(0, 4)];
        let reach = (kernel - 1) * step + 1;
        let wide = [random.between(reach, 40), random.between(250, 600)][usize::from(random.between(0, 9) == 0)];
        let high = if random.between(0, 4) == 0 { random.between(6, 16) } else { random.between(1, 5) };
        let pad = [0, random.between(0, 3), random.between(0, 3.max(kernel / 2))];
        let size = [1, random.between(5.max(high), 9.max(high)), wide];
        let (kernel, stride) = ([1, high, kernel], [1, random.between(1, 2), stride]);
        let dilation = [1, 1, step];
        let geometry =
            ConvolutionGeometry::new(2, channels, channels, channels, size, kernel, stride, dilation, pad, pad).unwrap();
        let (view, count) = (geometry.plane(), [1, channels][random.between(0, 1)]);
        let positions = view.output[0] * view.output[1];
        let below = random.between(0, 1) as f32;
        // Weights that are codes are multiplied as bytes where zero is a code.
        let (are_codes, is_code) = (random.between(0, 3) > 0, random.between(0, 3) > 0);
        let limits = |c: usize| match is_code {
            true => {
                let (step, zero) = ((1 + c % 3) as f32 / 128.0, below * ((c * 7 + 3) % 256) as f32);
                (-zero * step, (255.0 - zero) * step)
            }
            false => (below * (-0.5 - c as f32 / 7.0), 1.25 + c as f32 / 3.0),
        };
        let (low, high): (Vec<f32>, Vec<f32>) = (0..count).map(limits).unzip();
        let (decodings, encodings) = (Decodings::new(&low, &high, 255.0).unwrap(), Encodings::new(&low, &high, 255.0).unwrap());
        let codes: Vec<u8> = (0..blocked_len(2, channels, view.input[0] * view.input[1]))
            .map(|_| random.between(0, 255) as u8)
            .collect();
        let levels = |place: usize, positions: usize| {
            let channel = place / BLOCK / positions % channels.div_ceil(BLOCK) * BLOCK + place % BLOCK;
            let at = if count == 1 { 0 } else { channel.min(count - 1) };
            (low[at], (high[at] - low[at]) / 255.0)
        };
        let values: Vec<f32> = codes
            .iter()
            .enumerate()
            .map(|(place, code)| {
                let (low, step) = levels(place, view.input[0] * view.input[1]);
                low + f32::from(*code) * step
            })
            .collect();
        let packed = if are_codes {
            let codes: Vec<i8> = (0..geometry.weights_len()).map(|_| random.between(0, 255) as u8 as i8).collect();
            let scales: Vec<f32> = random.values(channels).iter().map(|scale| scale / 100.0).collect();
            BlockedDepthwise::of_codes(&geometry, &codes, &scales).unwrap()
        } else {
            BlockedDepthwise::pack(&geometry, &random.values(geometry.weights_len())).unwrap()
        };
        let (bias, slopes) = (random.values(channels), random.values(channels));
        let residual = random.values(blocked_len(2, channels, positions));
        let activation = [
            Activation::Unary(UnaryOp::Clamp { min: -0.25, max: 3.0 }),
            Activation::Unary(UnaryOp::Square),
            Activation::PRelu(Channelwise::PerRow(&slopes)),
        ][random.between(0, 2)];
        let residual = Some(&residual[..]).filter(|_| random.between(0, 1) == 1);
        let epilogue = ConvolutionEpilogue { bias: Some(&bias), residual, accumulates: false, activation };
        for isa in Isa::available() {
            let values_of = |input: DepthwiseInput<'_>| {
                let mut output = vec![f32::NAN; blocked_len(2, channels, positions)];
                let target = QuantizedOutput::Values(&mut output);
                blocked_depthwise(isa, &geometry, packed.weights(), input, target, &epilogue).unwrap();
                output
            };
            let codes_of = || {
                let mut output = vec![0; blocked_len(2, channels, positions)];
                let (input, target) = (DepthwiseInput::Codes(&codes, &decodings), QuantizedOutput::Codes(&mut output, &encodings));
                blocked_depthwise(isa, &geometry, packed.weights(), input, target, &epilogue).unwrap();
                output
            };
            let given = values_of(DepthwiseInput::Codes(&codes, &decodings));
            let expected: Vec<f64> = plain(2, channels, positions, &values_of(DepthwiseInput::Values(&values)))
                .into_iter()
                .map(f64::from)
                .collect();
            assert_close(&plain(2, channels, positions, &given), &expected, 400, &format!("{isa} {geometry:?}"));
            for (place, (code, value)) in codes_of().into_iter().zip(&given).enumerate() {
                let channel = place / BLOCK / positions % channels.div_ceil(BLOCK) * BLOCK + place % BLOCK;
                let (low, step) = levels(place, positions);
                let level = ((f64::from(*value) - f64::from(low)) / f64::from(step)).clamp(0.0, 255.0);
                prop_assert!(channel >= channels || (level - f64::from(code)).abs() < 0.501, "{isa} {value} {code}");
            }
            prop_assert_eq!(codes_of(), in_pool(2, codes_of));
        }
        let mut output = vec![0; blocked_len(2, channels, positions)];
        let short = Encodings::new(&vec![0.0; channels + 1], &vec![1.0; channels + 1], 255.0).unwrap();
        for (input, encodings) in [(&codes[1..], &encodings), (&codes[..], &short)] {
            let (input, target) = (DepthwiseInput::Codes(input, &decodings), QuantizedOutput::Codes(&mut output, encodings));
            prop_assert!(blocked_depthwise(Isa::portable(), &geometry, packed.weights(), input, target, &epilogue).is_err());
        }
    }

    #[test]
    fn any_grouped_or_depthwise_convolution(seed: u64) {
        let mut random = Random::new(seed);
        let geometry = random_geometry(&mut random, 3, 48, 96);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let channels = random.between(2, 40);
        let geometry = random_geometry(&mut random, channels, channels, channels);
        check(&mut random, &geometry, None);
        let (groups, size) = (random.between(2, 11), [2, 4, 8][random.between(0, 2)]);
        let geometry = random_geometry(&mut random, groups, groups * size, groups * size);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let (inputs, outputs) = ([1, 2, 4][random.between(0, 2)], [4, 8, 16][random.between(0, 2)]);
        let geometry = random_geometry(&mut random, groups, groups * inputs, groups * outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let geometry = random_geometry(&mut random, 5, 10, 10);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let (groups, inputs, outputs) = (random.between(2, 4), random.between(1, 40), [24, 40][random.between(0, 1)]);
        let geometry = random_geometry(&mut random, groups, groups * inputs, groups * outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
        let (inputs, outputs) = (random.between(1, 40), random.between(3, 40));
        let geometry = random_geometry(&mut random, groups, groups * inputs, groups * outputs);
        check(&mut random, &geometry, Some(BlockedInput::Blocked));
    }

    #[test]
    fn any_pooling(seed: u64) {
        let mut random = Random::new(seed);
        let depth = random.between(1, 4);
        let mut three = |low: usize, high| [random.between(low, low.max(depth)), random.between(low, high), random.between(low, high)];
        let (mut input, kernel, stride, dilation) = (three(1, 12), three(1, 4), three(1, 3), three(1, 2));
        let (pad_begin, pad_end, mut output) = (three(0, 2), three(0, 2), three(1, 7));
        if random.between(0, 1) == 0 {
            (input[2], output[2]) = (random.between(1, 60), random.between(1, 40));
        }
        let pooling = PoolingGeometry { planes: 2 * 19, input, output, kernel, stride, dilation, pad_begin, pad_end };
        let (volume, positions) = (input.iter().product::<usize>(), output.iter().product::<usize>());
        let values = random.values(2 * 19 * volume);
        let blocked = block(2, 19, volume, &values);
        // The order of values from 0 to 1 is that of their codes.
        let code = |value: &f32| (value.max(0.0) * 255.0) as u8;
        let codes: Vec<u8> = blocked.iter().map(code).collect();
        for kind in [PoolingKind::Max, PoolingKind::Average, PoolingKind::AverageWithPadding] {
            let mut expected = Vec::new();
            for index in 0..2 * 19 * positions {
                let (plane, at) = (index / positions, index % positions);
                let at = [at / output[2] / output[1], at / output[2] % output[1], at % output[2]];
                let (mut max, mut sum, mut inside, mut padded) = (f64::NEG_INFINITY, 0.0, 0, 0);
                for tap in 0..kernel.iter().product() {
                    let taps = [tap / kernel[2] / kernel[1], tap / kernel[2] % kernel[1], tap % kernel[2]];
                    let from = [0, 1, 2].map(|a| at[a] * stride[a] + taps[a] * dilation[a]);
                    let place = [0, 1, 2].map(|a| from[a].checked_sub(pad_begin[a]).filter(|&x| x < input[a]));
                    padded += usize::from((0..3).all(|a| from[a] < pad_begin[a] + input[a] + pad_end[a]));
                    if let [Some(z), Some(y), Some(x)] = place {
                        let value = f64::from(values[((plane * input[0] + z) * input[1] + y) * input[2] + x]);
                        (max, sum, inside) = (max.max(value), sum + value, inside + 1);
                    }
                }
                expected.push(match kind {
                    PoolingKind::Max if inside == 0 => f64::from(f32::MIN),
                    PoolingKind::Max => max,
                    _ if inside == 0 => 0.0,
                    PoolingKind::Average => sum / f64::from(inside),
                    PoolingKind::AverageWithPadding => sum / padded as f64,
                });
            }
            for isa in Isa::available() {
                let mut result = vec![0.0; blocked_len(2, 19, positions)];
                blocked_pooling(isa, kind, 19, &pooling, &blocked, &mut result).unwrap();
                if kind == PoolingKind::Max {
                    let mut greatest = vec![9; result.len()];
                    blocked_max_codes(isa, 19, &pooling, &codes, &mut greatest).unwrap();
                    let expected: Vec<u8> = result.iter().map(code).collect();
                    let (mut greatest_plain, mut expected_plain) = (vec![0; 2 * 19 * positions], vec![0; 2 * 19 * positions]);
                    codes_to_plain(2, 19, positions, &greatest, &mut greatest_plain).unwrap();
                    codes_to_plain(2, 19, positions, &expected, &mut expected_plain).unwrap();
                    prop_assert_eq!(&greatest_plain, &expected_plain);
                    let (mut plain_codes, mut given) = (vec![0; 2 * 19 * volume], vec![9; 2 * 19 * positions]);
                    codes_to_plain(2, 19, volume, &codes, &mut plain_codes).unwrap();
                    max_codes(isa, &pooling, &plain_codes, &mut given).unwrap();
                    prop_assert_eq!(&given, &expected_plain);
                    prop_assert!(max_codes(isa, &pooling, &plain_codes[1..], &mut given).is_err());
                    let mut again = vec![7; greatest.len()];
                    codes_from_plain(2, 19, positions, &greatest_plain, &mut again).unwrap();
                    let mut plain_again = vec![0; greatest_plain.len()];
                    codes_to_plain(2, 19, positions, &again, &mut plain_again).unwrap();
                    prop_assert_eq!(&plain_again, &greatest_plain);
                }
                assert!(blocked_pooling(isa, kind, 17, &pooling, &blocked, &mut result).is_err());
                let result = plain(2, 19, positions, &result);
                assert_close(&result, &expected, 9, &format!("{kind:?} {pooling:?}"));
            }
        }
    }
}

/// An infinity in one group is nothing to the channels of another that lie in the same block.
#[test]
fn groups_do_not_see_each_other() {
    let mut random = Random::new(3);
    let geometry =
        ConvolutionGeometry::new(1, 2, 24, 24, [1, 5, 5], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1], [0, 1, 1]).unwrap();
    let packed =
        BlockedConvolution::pack(&geometry, BlockedInput::Blocked, &random.values(geometry.weights_len())).unwrap();
    let mut input = random.values(geometry.input_len());
    input[13 * 25..].fill(f32::INFINITY);
    let blocked = block(1, 24, 25, &input);
    for isa in Isa::available() {
        let mut output = vec![0.0; blocked_len(1, 24, 25)];
        let epilogue = ConvolutionEpilogue::default();
        blocked_convolution(isa, &geometry, &packed, &blocked, &mut output, &epilogue, &mut []).unwrap();
        let result = plain(1, 24, 25, &output);
        assert!(result[..12 * 25].iter().all(|value| value.is_finite()), "{isa}");
        assert!(result[12 * 25..].iter().all(|value| !value.is_finite()), "{isa}");
    }
}

#[test]
fn misfitting_volumes_are_errors() {
    let geometry = |size: usize, dilation: usize, pad: usize, groups: usize| {
        let (input, kernel) = ([size, 4, 4], [3, 3, 3]);
        let (dilation, pad) = ([dilation, 1, 1], [pad, 1, 1]);
        ConvolutionGeometry::new(1, groups, 2, 2, input, kernel, [1; 3], dilation, pad, pad).unwrap()
    };
    let usual = geometry(8, 1, 1, 1);
    let weights = vec![0.5; usual.weights_len()];
    for (wrong, weights) in [
        (geometry(8, 2, 2, 1), &weights[..]),
        (geometry(8, 1, 4000, 1), &weights),
        (geometry(8, 1, 1, 2), &weights[..54]),
    ] {
        assert!(!BlockedConvolution::can_be(&wrong, BlockedInput::Plain));
        assert!(BlockedConvolution::can_be(&wrong, BlockedInput::Blocked));
        assert!(BlockedConvolution::pack(&wrong, BlockedInput::Plain, weights).is_err());
        assert!(BlockedConvolution::pack(&wrong, BlockedInput::Blocked, weights).is_ok());
    }
    let flat =
        ConvolutionGeometry::new(1, 1, 2, 2, [8, 4, 4], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1], [0, 1, 1]).unwrap();
    for input in [BlockedInput::Plain, BlockedInput::Blocked] {
        let packed = BlockedConvolution::pack(&usual, input, &weights).unwrap();
        let run = |geometry: &ConvolutionGeometry, values: usize, scratch: usize, output: usize| {
            let (values, mut scratch, mut output) = (vec![1.0; values], vec![0.0; scratch], vec![0.0; output]);
            let epilogue = ConvolutionEpilogue::default();
            blocked_convolution(isa::detect(), geometry, &packed, &values, &mut output, &epilogue, &mut scratch)
        };
        let values = if input == BlockedInput::Plain { 256 } else { 2048 };
        let scratch = blocked_convolution_scratch_len(&usual, input);
        run(&usual, values, scratch, 2048).unwrap();
        assert!(run(&usual, values - 1, scratch, 2048).is_err());
        assert!(run(&usual, values, scratch, 2047).is_err());
        assert!(scratch == 0 || run(&usual, values, scratch - 1, 2048).is_err());
        assert!(run(&flat, values, scratch, 2048).is_err());
    }
    // What cannot be copied is not computed either, even though its weights are the same.
    let packed = BlockedConvolution::pack(&usual, BlockedInput::Plain, &weights).unwrap();
    let far = geometry(8, 1, 4000, 1);
    let mut output = vec![0.0; blocked_len(1, 2, far.output().iter().product())];
    let epilogue = ConvolutionEpilogue::default();
    let values = vec![1.0; 256];
    assert!(blocked_convolution(isa::detect(), &far, &packed, &values, &mut output, &epilogue, &mut []).is_err());
}

#[test]
fn layouts_and_threads() {
    let mut random = Random::new(8);
    for (batch, channels, positions) in [(1, 1, 1), (2, 16, 70), (3, 37, 130), (0, 4, 4)] {
        let values = random.values(batch * channels * positions);
        let blocked = block(batch, channels, positions, &values);
        assert_eq!(plain(batch, channels, positions, &blocked), values);
    }
    let geometry =
        ConvolutionGeometry::new(1, 1, 64, 96, [1, 30, 30], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1], [0, 1, 1]).unwrap();
    let packed =
        BlockedConvolution::pack(&geometry, BlockedInput::Blocked, &random.values(geometry.weights_len())).unwrap();
    let (size, pad) = ([9, 10, 10], [1, 1, 1]);
    let volume = ConvolutionGeometry::new(1, 1, 64, 96, size, [3; 3], [1; 3], [1; 3], pad, pad).unwrap();
    let packed_volume =
        BlockedConvolution::pack(&volume, BlockedInput::Blocked, &random.values(volume.weights_len())).unwrap();
    let input = random.values(64 * 900);
    for isa in Isa::available() {
        for (geometry, packed) in [(&geometry, &packed), (&volume, &packed_volume)] {
            let run = || {
                let mut output = vec![0.0; 96 * 900];
                let epilogue = ConvolutionEpilogue::default();
                blocked_convolution(isa, geometry, packed, &input, &mut output, &epilogue, &mut []).unwrap();
                output
            };
            assert_eq!(run(), in_pool(3, run));
        }
    }
}

proptest! {
    #[test]
    fn rows_and_planes_make_the_same_blocks(
        batch in 1usize..3, channels in 1usize..70, positions in 1usize..200, seed: u64,
    ) {
        let rows = Random::new(seed).values(batch * channels * positions);
        let mut planes = vec![0.0; rows.len()];
        for (index, value) in rows.iter().enumerate() {
            let (image, position, channel) =
                (index / channels / positions, index / channels % positions, index % channels);
            planes[(image * channels + channel) * positions + position] = *value;
        }
        let (mut of_rows, mut of_planes) = (vec![f32::NAN; blocked_len(batch, channels, positions)], Vec::new());
        of_planes.resize(of_rows.len(), f32::NAN);
        from_rows(batch, channels, positions, &rows, &mut of_rows).unwrap();
        from_plain(batch, channels, positions, &planes, &mut of_planes).unwrap();
        prop_assert_eq!(&of_rows, &of_planes);
        let mut back = vec![f32::NAN; rows.len()];
        to_rows(batch, channels, positions, &block(batch, channels, positions, &planes), &mut back).unwrap();
        prop_assert_eq!(&back, &rows);
        // Codes lie as values do.
        let bytes = |values: &[f32]| values.iter().map(|value| value.to_bits() as u8).collect::<Vec<u8>>();
        let (codes, mut blocks, mut back) = (bytes(&rows), vec![7; of_rows.len()], vec![7; rows.len()]);
        from_rows(batch, channels, positions, &codes, &mut blocks).unwrap();
        prop_assert_eq!(&blocks, &bytes(&of_rows));
        to_rows(batch, channels, positions, &blocks, &mut back).unwrap();
        prop_assert_eq!(back, codes);
        let mut back = vec![f32::NAN; planes.len()];
        to_plain(batch, channels, positions, &of_planes, &mut back).unwrap();
        prop_assert_eq!(&back, &planes);
        let (mut blocks, mut back) = (vec![7; of_planes.len()], vec![7; planes.len()]);
        codes_from_plain(batch, channels, positions, &bytes(&planes), &mut blocks).unwrap();
        prop_assert_eq!(&blocks, &bytes(&of_planes));
        codes_to_plain(batch, channels, positions, &blocks, &mut back).unwrap();
        prop_assert_eq!(back, bytes(&planes));
    }
}

#[test]
fn misfitting_rows_are_errors() {
    let values = vec![0.0; 16];
    assert!(from_rows(1, 3, 4, &values, &mut [0.0; 64]).is_err());
    assert!(from_rows(1, 4, 4, &values, &mut [0.0; 63]).is_err());
    assert!(to_rows(1, 4, 4, &[0.0; 63], &mut values.clone()).is_err());
    assert!(to_rows(usize::MAX, 4, 4, &[0.0; 64], &mut values.clone()).is_err());
    assert!(to_rows::<f32>(0, 4, 4, &[], &mut []).is_ok());
}

/// Inputs that are cut into bands, whose last one is shorter, with weights that are small beside them.
#[test]
fn bands_of_large_inputs() {
    let mut random = Random::new(31);
    for (groups, inputs, outputs, size, kernel, stride) in [
        (1, 64, 96, 31, 1, 1),
        (1, 48, 80, 37, 3, 1),
        (1, 48, 96, 45, 3, 2),
        (2, 64, 256, 39, 1, 1),
        (6, 60, 96, 90, 1, 1),
    ] {
        let (kernel, stride, pad) = ([1, kernel, kernel], [1, stride, stride], [0, kernel / 2, kernel / 2]);
        let size = [1, size, size + 2];
        let geometry = ConvolutionGeometry::new(1, groups, inputs, outputs, size, kernel, stride, [1; 3], pad, pad);
        check(&mut random, &geometry.unwrap(), Some(BlockedInput::Blocked));
    }
}

/// A kernel of one tap reads padding too, where that lies behind the planes only.
#[test]
fn points_padded_behind() {
    let mut random = Random::new(5);
    for (size, pad_end) in [([5, 9], [0, 2]), ([4, 20], [3, 1]), ([1, 1], [2, 30])] {
        let ([high, wide], [below, right]) = (size, pad_end);
        for outputs in [7, 40] {
            let (size, pad) = ([1, high, wide], [0, below, right]);
            let geometry =
                ConvolutionGeometry::new(2, 1, 20, outputs, size, [1; 3], [1; 3], [1; 3], [0; 3], pad).unwrap();
            check(&mut random, &geometry, Some(BlockedInput::Blocked));
            check(&mut random, &geometry, Some(BlockedInput::Plain));
        }
    }
}

/// Tiles in a line, at its ends and both at once, whose positions lie side by side or read every second one.
#[test]
fn tiles_in_lines() {
    let mut random = Random::new(3);
    let widths = [1, 2, 5, 7, 12, 13, 26, 28, 30, 57].into_iter().map(|wide| (1, wide));
    for (apart, wide) in widths.chain([23, 24, 27, 55, 56, 57].map(|wide| (2, wide))) {
        // The last kernel is one tap wide, and padded by one at both ends.
        for ([high, across], pad, dilation) in [
            ([1, 1], 1, 1),
            ([2, 2], 1, 1),
            ([3, 3], 1, 1),
            ([3, 3], 0, 1),
            ([3, 3], 1, 2),
            ([3, 3], 2, 2),
            ([5, 5], 2, 1),
            ([7, 7], 3, 1),
            ([3, 1], 1, 1),
        ] {
            let covered = |size: usize, taps: usize| size + 2 * pad > (taps - 1) * dilation;
            if !covered(5, high) || !covered(wide, across) {
                continue;
            }
            let groups = [(1, 20, 16), (1, 20, 40), (3, 72, 72), (2, 24, 48), (2, 30, 80), (9, 36, 36), (5, 10, 40)];
            for (groups, inputs, outputs) in groups {
                let (size, stride) = ([1, 5, wide], [1, 1, apart]);
                let (dilation, pad) = ([1, 1, dilation], [0, pad, pad]);
                let kernel = [1, high, across];
                let geometry =
                    ConvolutionGeometry::new(1, groups, inputs, outputs, size, kernel, stride, dilation, pad, pad);
                check(&mut random, &geometry.unwrap(), Some(BlockedInput::Blocked));
            }
        }
    }
}
