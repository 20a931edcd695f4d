//! Random layers.

use ovir_runtime::Request;

use super::text::Text;

/// Two layers without seeds of their own.
fn graph() -> Text {
    let mut text = Text::default();
    let (shape, low, high) = (text.integers(&[8]), text.floats(&[], |_| 0.0), text.floats(&[], |_| 1.0));
    for _ in 0..2 {
        let data = "output_type=\"f32\" global_seed=\"0\" op_seed=\"0\"";
        let numbers = text.layer("RandomUniform", data, &[shape, low, high], "FP32");
        text.layer("Result", "", &[numbers], "");
    }
    text
}

fn outputs(request: &mut Request) -> [Vec<f32>; 2] {
    request.infer().unwrap();
    [0, 1].map(|index| request.output(index).unwrap().slice::<f32>().unwrap().to_vec())
}

#[test]
fn layers_without_seeds_are_the_same_in_every_run() {
    let (mut request, mut again) = (graph().request(false), graph().request(false));
    let [first, second] = outputs(&mut request);
    assert_eq!(outputs(&mut again), [first.clone(), second.clone()]);
    assert_ne!(first, second);
    // The stream goes on, until it is set back.
    assert_ne!(outputs(&mut request)[0], first);
    request.set_seed(1);
    assert_ne!(outputs(&mut request)[0], first);
    request.set_seed(0);
    assert_eq!(outputs(&mut request), [first.clone(), second]);
    request.reset();
    assert_eq!(outputs(&mut request)[0], first);
}

/// One layer of random numbers.
fn numbers_of(kind: &str, shape: &[i64], limits: [i64; 2], seeds: [u64; 2]) -> Text {
    let mut text = Text::default();
    let limit = |text: &mut Text, value: i64| match kind {
        "f32" => text.floats(&[], |_| value as f32),
        "i32" => text.constant(kind, &[], &(value as i32).to_le_bytes()),
        _ => text.constant(kind, &[], &value.to_le_bytes()),
    };
    let [low, high] = limits.map(|value| limit(&mut text, value));
    let shape = text.integers(shape);
    let [global, op] = seeds;
    let data = format!("output_type=\"{kind}\" global_seed=\"{global}\" op_seed=\"{op}\"");
    let numbers = text.layer("RandomUniform", &data, &[shape, low, high], "FP32");
    text.layer("Result", "", &[numbers], "");
    text
}

#[test]
fn kernels_draw_the_numbers_of_the_reference() {
    for kind in ["f32", "i32", "i64"] {
        for shape in [&[3i64, 5][..], &[1], &[7, 11, 13], &[100_003], &[0, 4], &[]] {
            for (limits, seeds) in [([0, 1], [0, 0]), ([-7, 93], [150, 10]), ([-5, i64::from(i32::MAX)], [0, 3])] {
                let text = numbers_of(kind, shape, limits, seeds);
                let mut requests = [text.request(false), text.request(true)];
                requests.iter_mut().for_each(|request| request.set_profiling(true));
                // The stream goes on in the same way.
                for _ in 0..3 {
                    let [kernel, reference] = requests.each_mut().map(|request| {
                        request.infer().unwrap();
                        request.output(0).unwrap().bytes().to_vec()
                    });
                    assert!(kernel == reference, "{kind} {shape:?} {limits:?} {seeds:?}");
                }
                let is_kernel = requests
                    .each_ref()
                    .map(|request| request.profile().unwrap().entries.iter().any(|entry| entry.is_kernel));
                assert_eq!(is_kernel, [true, false], "{kind} {shape:?}");
            }
        }
    }
}

#[test]
fn limits_are_checked() {
    let failure = numbers_of("i32", &[3], [4, 4], [1, 1]).failure(&[]);
    assert!(failure.contains("the upper limit 4 must be above the lower limit 4"), "{failure}");
}
