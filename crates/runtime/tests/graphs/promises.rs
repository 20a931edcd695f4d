//! Shapes that are known only when a layer runs, over several inferences of one request.

use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, Value};

/// The places of what is not zero, whose number is known late.
fn places(text: &mut Text, x: Value) -> Value {
    text.layer("NonZero", "output_type=\"i64\"", &[x], "I64")
}

fn infer(request: &mut ovir_runtime::Request, inputs: &[Tensor]) -> Result<Tensor, String> {
    for (index, input) in inputs.iter().enumerate() {
        request.set_input(index, input.clone()).map_err(|error| error.to_string())?;
    }
    request.infer().map_err(|error| error.to_string())?;
    Ok(request.output(0).unwrap().clone())
}

#[test]
fn shapes_follow_values_that_change() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?");
    let target = text.parameter("i64", "2");
    let found = places(&mut text, x);
    let doubled = text.layer("Add", "auto_broadcast=\"numpy\"", &[found, found], "I64");
    let end = text.layer("Reshape", "special_zero=\"false\"", &[doubled, target], "I64");
    text.layer("Result", "", &[end], "");
    let data = |values: &[f32]| Tensor::from_slice(values, [values.len()]).unwrap();
    let target = |values: [i64; 2]| Tensor::from_slice(&values, [2]).unwrap();
    let mut request = text.request(false);
    let four = data(&[1.0, 0.0, 2.0, 3.0, 4.0]);
    let expected = |shape: [usize; 2]| Tensor::from_slice(&[0i64, 4, 6, 8], shape).unwrap();
    for shape in [[2, 2], [2, 2], [4, 1], [1, 4], [4, 1]] {
        let inputs = [four.clone(), target(shape.map(|size| size as i64))];
        assert_eq!(infer(&mut request, &inputs).unwrap(), expected(shape));
    }
    // What does not fit is said, and forgotten.
    assert!(infer(&mut request, &[four.clone(), target([3, 2])]).unwrap_err().contains("Reshape"));
    assert_eq!(infer(&mut request, &[four.clone(), target([2, 2])]).unwrap(), expected([2, 2]));
    // The same target for another number of elements.
    assert!(infer(&mut request, &[data(&[1.0, 1.0]), target([2, 2])]).is_err());
    assert_eq!(infer(&mut request, &[data(&[0.0, 1.0]), target([1, 1])]).unwrap().shape()[..], [1, 1]);
}

/// Positions that are resized to the size of the image, which is known though the number of images is not: what is left of
/// it when the model runs is the sum.
#[test]
fn what_follows_from_known_sizes_is_computed_once() {
    for declared in ["2,3,6,10", "?,3,6,10"] {
        let mut text = Text::default();
        let x = text.parameter("f32", declared);
        let table = text.floats(&[1, 3, 4, 4], |i| (i * 7 % 11) as f32 - 5.0);
        let shape = text.layer("ShapeOf", "output_type=\"i64\"", &[x], "I64");
        let (places, axis) = (text.integers(&[2, 3]), text.constant("i64", &[], &0i64.to_le_bytes()));
        let sizes = text.layer("Gather", "batch_dims=\"0\"", &[shape, places, axis], "I64");
        let two = text.integers(&[2]);
        let halves = text.layer("Divide", "auto_broadcast=\"numpy\"", &[sizes, two], "I64");
        let sizes = text.layer("Multiply", "auto_broadcast=\"numpy\"", &[halves, two], "I64");
        let (scales, axes) = (text.floats(&[2], |_| 1.0), text.integers(&[2, 3]));
        let mode = "mode=\"cubic\" shape_calculation_mode=\"sizes\" nearest_mode=\"floor\" cube_coeff=\"-0.75\"";
        let resized = text.layer("Interpolate", mode, &[table, sizes, scales, axes], "FP32");
        let end = text.layer("Add", "auto_broadcast=\"numpy\"", &[x, resized], "FP32");
        text.layer("Result", "", &[end], "");
        let data: Vec<f32> = (0..360).map(|i| i as f32 / 100.0).collect();
        let inputs = [Tensor::from_slice(&data, [2, 3, 6, 10]).unwrap()];
        let expected = text.unoptimised(&inputs);
        let (actual, entries) = text.run(&inputs, false);
        super::text::compare(&expected, &actual, declared);
        let kinds: Vec<&str> = entries.iter().map(|entry| &*entry.type_name).collect();
        assert_eq!(kinds, ["Add"], "{declared}");
    }
}

#[test]
fn lengths_follow_values_that_change() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?");
    let stop = text.parameter("f32", "");
    let found = places(&mut text, x);
    let numbers = text.layer("Convert", "destination_type=\"f32\"", &[found], "FP32");
    let (first, axis) = (text.integers(&[0]), text.constant("i64", &[], &0i64.to_le_bytes()));
    let flat = text.integers(&[-1]);
    let numbers = text.layer("Reshape", "special_zero=\"false\"", &[numbers, flat], "FP32");
    let start = text.layer("Gather", "batch_dims=\"0\"", &[numbers, first, axis], "FP32");
    let scalar = text.constant("i64", &[1], &0i64.to_le_bytes());
    let start = text.layer("Squeeze", "", &[start, scalar], "FP32");
    let step = text.floats(&[], |_| 1.0);
    let end = text.layer("Range", "output_type=\"f32\"", &[start, stop, step], "FP32");
    text.layer("Result", "", &[end], "");
    let mut request = text.request(false);
    for (values, stop, expected) in [
        ([1.0f32, 1.0], 3.0f32, vec![0.0f32, 1.0, 2.0]),
        ([1.0, 1.0], 3.0, vec![0.0, 1.0, 2.0]),
        ([0.0, 1.0], 3.0, vec![1.0, 2.0]),
        ([0.0, 1.0], 4.0, vec![1.0, 2.0, 3.0]),
        ([1.0, 0.0], 1.0, vec![0.0]),
    ] {
        let inputs = [Tensor::from_slice(&values, [2]).unwrap(), Tensor::from_slice(&[stop], []).unwrap()];
        let result = infer(&mut request, &inputs).unwrap();
        assert_eq!(result.slice::<f32>().unwrap(), expected);
    }
}

#[test]
fn pads_follow_values_that_change() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?,?,3");
    let (begin, end) = (text.parameter("i64", "3"), text.parameter("i64", "3"));
    let value = text.floats(&[], |_| 7.5);
    let end = text.layer("Pad", "pad_mode=\"constant\"", &[x, begin, end, value], "FP32");
    text.layer("Result", "", &[end], "");
    let data: Vec<f32> = (0..24).map(|i| i as f32).collect();
    let data = Tensor::from_slice(&data, [2, 4, 3]).unwrap();
    let pads = |pads: [i64; 3]| Tensor::from_slice(&pads, [3]).unwrap();
    for (begin, end) in [([0, 1, 2], [0, 0, 1]), ([1, 0, 0], [0, 2, 0]), ([0, 0, 0], [0, 0, 0]), ([1, 0, 2], [3, 0, 2])]
    {
        text.check(&[data.clone(), pads(begin), pads(end)], &format!("pads {begin:?} {end:?}"));
    }
    assert!(text.failure(&[data, pads([0, -1, 0]), pads([0, 2, 0])]).contains("cropping needs version 12"));
}

/// What a layer alone knows the size of lies in the memory of the inference before, unless somebody kept that.
#[test]
fn sizes_that_change_find_their_memory_again() {
    let mut text = Text::default();
    let x = text.parameter("f32", "?");
    let found = places(&mut text, x);
    text.layer("Result", "", &[found], "");
    let mut request = text.request(false);
    let mut addresses = Vec::new();
    let mut kept = None;
    for (round, count) in [2000usize, 2000, 1990, 1, 2000, 5000, 0, 3000].into_iter().enumerate() {
        let data: Vec<f32> = (0..6000).map(|i| if i % 2 == 0 && i < 2 * count { 1.0 } else { 0.0 }).collect();
        request.set_input(0, Tensor::from_slice(&data, [data.len()]).unwrap()).unwrap();
        request.infer().unwrap();
        let output = request.output(0).unwrap();
        let expected: Vec<i64> = (0..count.min(3000) as i64).map(|place| 2 * place).collect();
        assert_eq!(output.slice::<i64>().unwrap(), expected);
        addresses.push(output.identity().0);
        if round == 1 {
            kept = Some(output.clone());
        }
    }
    assert_eq!(addresses[0], addresses[1], "the memory is found again");
    assert!(addresses[2] != addresses[1], "somebody has kept it");
    let expected: Vec<i64> = (0..2000).map(|place| 2 * place).collect();
    assert_eq!(kept.unwrap().slice::<i64>().unwrap(), expected);
}
