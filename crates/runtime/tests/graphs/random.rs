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
