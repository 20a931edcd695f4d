use super::*;
use crate::testing::{Random, assert_close, in_pool};
use crate::unary::UnaryOp;
use pretty_assertions::assert_eq;
use proptest::prelude::*;

/// The plain definition in f64.
fn reference(geometry: &ConvolutionGeometry, weights: &[f32], input: &[f32]) -> Vec<f64> {
    let g = geometry;
    let (ic, oc) = (g.input_channels / g.groups, g.output_channels / g.groups);
    let mut output = Vec::new();
    for n in 0..g.batch {
        for o in 0..g.output_channels {
            for place in 0..volume(g.output) {
                let at = [place / (g.output[1] * g.output[2]), place / g.output[2] % g.output[1], place % g.output[2]];
                let mut sum = 0.0;
                for c in 0..ic {
                    for tap in 0..volume(g.kernel) {
                        let taps =
                            [tap / (g.kernel[1] * g.kernel[2]), tap / g.kernel[2] % g.kernel[1], tap % g.kernel[2]];
                        let mut index = Some(n * g.input_channels + o / oc * ic + c);
                        for axis in 0..3 {
                            let x = (at[axis] * g.stride[axis] + taps[axis] * g.dilation[axis])
                                .checked_sub(g.pad_begin[axis])
                                .filter(|&x| x < g.input[axis]);
                            index = index.zip(x).map(|(index, x)| index * g.input[axis] + x);
                        }
                        if let Some(index) = index {
                            let weight = weights[(o * ic + c) * volume(g.kernel) + tap];
                            sum += f64::from(input[index]) * f64::from(weight);
                        }
                    }
                }
                output.push(sum);
            }
        }
    }
    output
}

fn triple(random: &mut Random, rank: usize, low: usize, high: usize, neutral: usize) -> [usize; 3] {
    [0, 1, 2].map(|axis| if axis + rank < 3 { neutral } else { random.between(low, high) })
}

fn random_geometry(random: &mut Random) -> ConvolutionGeometry {
    loop {
        let rank = random.between(1, 3);
        let side = [40, 18, 7][rank - 1];
        let groups = random.between(1, 3);
        let depthwise = random.between(0, 2) == 0;
        let (ic, oc) =
            if depthwise { (1, random.between(1, 3)) } else { (random.between(1, 9), random.between(1, 20)) };
        let groups = if depthwise { groups + 1 } else { groups };
        let geometry = ConvolutionGeometry::new(
            random.between(1, 2),
            groups,
            ic * groups,
            oc * groups,
            triple(random, rank, 1, side, 1),
            triple(random, rank, 1, 4, 1),
            triple(random, rank, 1, 3, 1),
            triple(random, rank, 1, 2, 1),
            triple(random, rank, 0, 3, 0),
            triple(random, rank, 0, 3, 0),
        );
        if let Ok(geometry) = geometry {
            return geometry;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]
    #[test]
    fn any_geometry(seed: u64) {
        let mut random = Random::new(seed);
        let geometry = random_geometry(&mut random);
        let weights = random.values(geometry.weights_len());
        let input = random.values(geometry.input_len());
        let bias = random.values(geometry.output_channels);
        let residual = random.values(geometry.output_len());
        let plane = volume(geometry.output);
        let plain = reference(&geometry, &weights, &input);
        let finish = |index: usize, sum: f64| {
            sum + f64::from(bias[index / plane % geometry.output_channels]) + f64::from(residual[index])
        };
        for isa in Isa::available() {
            let packed = PackedConvolution::pack(isa, &geometry, &weights).unwrap();
            let run = |activation| {
                let epilogue = ConvolutionEpilogue { bias: Some(&bias), residual: Some(&residual), accumulates: false, activation };
                let mut output = vec![f32::NAN; geometry.output_len()];
                convolution(isa, &geometry, &packed, &input, &mut output, &epilogue).unwrap();
                let mut again = vec![f32::NAN; geometry.output_len()];
                unpacked_convolution(isa, &geometry, &weights, &input, &mut again, &epilogue).unwrap();
                assert_close(&again, &output.iter().map(|value| f64::from(*value)).collect::<Vec<_>>(), 30, "unpacked");
                output
            };
            let what = format!("{isa} {geometry:?}");
            let expected: Vec<f64> = plain.iter().enumerate().map(|(i, &sum)| finish(i, sum).max(0.0)).collect();
            assert_close(&run(Activation::Unary(UnaryOp::Relu)), &expected, 30, &what);
            let expected: Vec<f64> = plain.iter().enumerate().map(|(i, &sum)| {
                let (sum, slope) = (finish(i, sum), f64::from(bias[i / plane % geometry.output_channels]));
                if sum < 0.0 { sum * slope } else { sum }
            }).collect();
            assert_close(&run(Activation::PRelu(Channelwise::PerRow(&bias))), &expected, 30, &what);
        }
    }

    #[test]
    fn any_transposed_geometry(seed: u64) {
        let mut random = Random::new(seed);
        let rank = random.between(1, 3);
        let side = [20, 9, 4][rank - 1];
        let groups = random.between(1, 3);
        let (ic, oc) = (random.between(1, 5), random.between(1, 6));
        let (input, kernel) = (triple(&mut random, rank, 1, side, 1), triple(&mut random, rank, 1, 4, 1));
        let (stride, dilation) = (triple(&mut random, rank, 1, 3, 1), triple(&mut random, rank, 1, 3, 1));
        let pad = triple(&mut random, rank, 0, 3, 0);
        let output = triple(&mut random, rank, 1, side * 2 + 5, 1);
        let geometry = TransposedConvolutionGeometry::new(
            random.between(1, 2), groups, ic * groups, oc * groups, input, kernel, stride, dilation, pad, output,
        ).unwrap();
        let weights = random.values(geometry.weights_len());
        let values = random.values(geometry.input_len());
        let bias = random.values(oc * groups);
        let batch = geometry.input_len() / (ic * groups * volume(input));
        let mut expected = vec![0.0f64; geometry.output_len()];
        for (index, value) in expected.iter_mut().enumerate() {
            *value = f64::from(bias[index / volume(output) % (oc * groups)]);
        }
        let unfold = |i: usize, s: [usize; 3]| [i / (s[1] * s[2]), i / s[2] % s[1], i % s[2]];
        for n in 0..batch {
            for (c, from) in (0..ic * groups).flat_map(|c| (0..volume(input)).map(move |i| (c, i))) {
                for (o, tap) in (0..oc).flat_map(|o| (0..volume(kernel)).map(move |t| (o, t))) {
                    let (at, taps) = (unfold(from, input), unfold(tap, kernel));
                    let mut index = Some(n * oc * groups + c / ic * oc + o);
                    for axis in 0..3 {
                        let x = (at[axis] * stride[axis] + taps[axis] * dilation[axis])
                            .checked_sub(pad[axis]).filter(|&x| x < output[axis]);
                        index = index.zip(x).map(|(index, x)| index * output[axis] + x);
                    }
                    if let Some(index) = index {
                        expected[index] += f64::from(values[(n * ic * groups + c) * volume(input) + from])
                            * f64::from(weights[(c * oc + o) * volume(kernel) + tap]);
                    }
                }
            }
        }
        let expected: Vec<f64> = expected.iter().map(|&sum| sum.clamp(-1.0, 1.0)).collect();
        for isa in Isa::available() {
            let packed = PackedTransposedConvolution::pack(isa, &geometry, &weights).unwrap();
            let mut result = vec![f32::NAN; geometry.output_len()];
            let mut scratch = vec![f32::NAN; transposed_convolution_scratch_len(&geometry)];
            let epilogue = ConvolutionEpilogue {
                bias: Some(&bias),
                residual: None,
                accumulates: false,
                activation: Activation::Unary(UnaryOp::Clamp { min: -1.0, max: 1.0 }),
            };
            transposed_convolution(isa, &geometry, &packed, &values, &mut result, &epilogue, &mut scratch).unwrap();
            assert_close(&result, &expected, 30, &format!("{isa} {geometry:?}"));
        }
    }
}

/// Few channels are computed from positions that are read where they lie.
#[test]
fn pointwise_into_few_channels() {
    let mut random = Random::new(12);
    for (batch, groups, inputs, outputs, size) in [
        (1, 1, 9, 5, [1, 13, 10]),
        (1, 1, 0, 3, [1, 30, 50]),
        (2, 1, 130, 8, [1, 40, 30]),
        (1, 3, 5, 3, [2, 9, 9]),
        (1, 1, 70, 7, [1, 1, 2500]),
    ] {
        let (one, none) = ([1; 3], [0; 3]);
        let (inputs, outputs) = (groups * inputs, groups * outputs);
        let geometry =
            ConvolutionGeometry::new(batch, groups, inputs, outputs, size, one, one, one, none, none).unwrap();
        let (weights, input) = (random.values(geometry.weights_len()), random.values(geometry.input_len()));
        let (bias, residual) = (random.values(outputs), random.values(geometry.output_len()));
        let plane = volume(size);
        let of_channel = |index: usize| f64::from(bias[index / plane % outputs]);
        let sums = reference(&geometry, &weights, &input);
        let sums: Vec<f64> =
            sums.iter().enumerate().map(|(i, sum)| sum + of_channel(i) + f64::from(residual[i])).collect();
        for isa in Isa::available() {
            let packed = PackedConvolution::pack(isa, &geometry, &weights).unwrap();
            let run = |activation| {
                let epilogue = ConvolutionEpilogue {
                    bias: Some(&bias),
                    residual: Some(&residual),
                    accumulates: false,
                    activation,
                };
                let mut output = vec![f32::NAN; geometry.output_len()];
                convolution(isa, &geometry, &packed, &input, &mut output, &epilogue).unwrap();
                let mut again = vec![f32::NAN; geometry.output_len()];
                in_pool(3, || unpacked_convolution(isa, &geometry, &weights, &input, &mut again, &epilogue)).unwrap();
                assert_eq!(output, again);
                output
            };
            let expected: Vec<f64> = sums.iter().map(|sum| sum.max(0.0)).collect();
            assert_close(&run(Activation::Unary(UnaryOp::Relu)), &expected, 200, &format!("{isa} {geometry:?}"));
            let slope = |(i, sum): (usize, &f64)| if *sum < 0.0 { sum * of_channel(i) } else { *sum };
            let expected: Vec<f64> = sums.iter().enumerate().map(slope).collect();
            let slopes = Activation::PRelu(Channelwise::PerRow(&bias));
            assert_close(&run(slopes), &expected, 200, &format!("{isa} {geometry:?}"));
        }
    }
}

#[test]
fn threads_do_not_change_bits() {
    let geometry =
        ConvolutionGeometry::new(1, 1, 16, 70, [1, 40, 40], [1, 3, 3], [1; 3], [1; 3], [0, 1, 1], [0, 1, 1]).unwrap();
    let mut random = Random::new(5);
    let (weights, input) = (random.values(geometry.weights_len()), random.values(geometry.input_len()));
    for isa in Isa::available() {
        let packed = PackedConvolution::pack(isa, &geometry, &weights).unwrap();
        let run = || {
            let mut output = vec![0.0; geometry.output_len()];
            convolution(isa, &geometry, &packed, &input, &mut output, &ConvolutionEpilogue::default()).unwrap();
            output
        };
        assert_eq!(run(), in_pool(3, run));
    }
}

#[test]
fn impossible_geometries_are_errors() {
    let ones = [1; 3];
    let new = |groups, ic, input, kernel| {
        ConvolutionGeometry::new(1, groups, ic, 4, input, kernel, ones, ones, [0; 3], [0; 3])
    };
    assert!(new(0, 4, ones, ones).is_err());
    assert!(new(2, 3, ones, ones).is_err());
    assert!(new(1, 4, ones, [1, 1, 2]).is_err());
    assert!(new(1, 4, ones, [1, 1, 0]).is_err());
    assert!(new(1, usize::MAX, [1, 1, 2], ones).is_err());
    let geometry = new(1, 4, ones, ones).unwrap();
    assert!(PackedConvolution::pack(Isa::portable(), &geometry, &[0.0f32; 15]).is_err());
    let packed = PackedConvolution::pack(Isa::portable(), &geometry, &[0.0f32; 16]).unwrap();
    let epilogue = ConvolutionEpilogue::default();
    assert!(convolution(Isa::portable(), &geometry, &packed, &[0.0; 3], &mut [0.0; 4], &epilogue).is_err());
    assert!(convolution(Isa::portable(), &geometry, &packed, &[0.0; 4], &mut [0.0; 5], &epilogue).is_err());
}
