//! Products of one row with large constants, which are read where they lie or packed.

use ovir_runtime::PlanPlace;
use ovir_tensor::Tensor;
use pretty_assertions::assert_eq;

use super::text::{Text, compare};

const COLUMNS: usize = 700;
const OUTPUTS: usize = 515;

#[test]
fn one_row_meets_a_large_constant() {
    for (shape, is_transposed, has_residual) in [
        ("1,700", true, false),
        ("1,1,700", true, false),
        ("1,700", false, false),
        ("1,700", true, true),
        ("2,700", true, false),
        ("?,700", true, false),
    ] {
        let what = format!("[{shape}] transpose_b {is_transposed} residual {has_residual}");
        let mut text = Text::default();
        let x = text.parameter("f32", shape);
        let sizes = if is_transposed { [OUTPUTS, COLUMNS] } else { [COLUMNS, OUTPUTS] };
        let weights = text.floats(&sizes, |i| ((i * 29 % 83) as f32 / 41.0 - 1.0) / 20.0);
        let attributes = format!("transpose_a=\"false\" transpose_b=\"{is_transposed}\"");
        let product = text.layer("MatMul", &attributes, &[x, weights], "FP32");
        let bias = text.floats(&[1, OUTPUTS], |i| i as f32 / 300.0 - 0.5);
        let mut value = text.binary("Add", product, bias);
        if has_residual {
            let other = text.parameter("f32", "1,515");
            value = text.binary("Add", value, other);
        }
        let end = text.unary("ReLU", value);
        text.layer("Result", "", &[end], "");
        let input = |count: usize, shape: &[usize]| {
            let values: Vec<f32> = (0..count).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
            Tensor::from_slice(&values, shape).unwrap()
        };
        let data: Vec<usize> = shape.split(',').map(|size| size.parse().unwrap_or(1)).collect();
        let mut inputs = vec![input(data.iter().product(), &data)];
        if has_residual {
            inputs.push(input(OUTPUTS, &[1, OUTPUTS]));
        }
        let (actual, entries) = text.run(&inputs, false);
        compare(&text.unoptimised(&inputs), &actual, &what);
        assert!(entries.iter().all(|entry| entry.is_kernel), "{what}: {entries:?}");
        let plan = text.request(false).compiled().plan(&[]).unwrap();
        let mut values = plan.steps.iter().flat_map(|step| &step.inputs);
        let weights = values.find(|value| value.shape.to_shape().is_some_and(|shape| shape[..] == sizes)).unwrap();
        let is_read_in_place = is_transposed && shape.starts_with('1');
        assert_eq!(weights.place, if is_read_in_place { PlanPlace::Constant } else { PlanPlace::Packed }, "{what}");
    }
}

/// The last axis of a product with a vector is one of rows, along which a bias is added.
#[test]
fn a_bias_behind_a_product_with_a_vector() {
    for (left, is_transposed, right, bias) in [
        ("3,20,64", false, 64, Some(20)),
        ("2,3,20,64", false, 64, Some(20)),
        ("3,64,20", true, 64, Some(20)),
        ("20,64", false, 64, Some(20)),
        ("20,64", false, 64, Some(1)),
        ("5,20,64", false, 64, None),
    ] {
        let mut text = Text::default();
        let x = text.parameter("f32", left);
        let weights = text.floats(&[right], |i| (i * 29 % 83) as f32 / 41.0 - 1.0);
        let attributes = format!("transpose_a=\"{is_transposed}\" transpose_b=\"true\"");
        let mut sum = text.layer("MatMul", &attributes, &[x, weights], "FP32");
        if let Some(bias) = bias {
            let bias = text.floats(&[bias], |i| i as f32 / 3.0 - 2.5);
            sum = text.binary("Add", sum, bias);
        }
        let end = text.unary("ReLU", sum);
        text.layer("Result", "", &[end], "");
        let shape: Vec<usize> = left.split(',').map(|size| size.parse().unwrap()).collect();
        let values: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
        let inputs = [Tensor::from_slice(&values, &shape[..]).unwrap()];
        let (actual, entries) = text.run(&inputs, false);
        compare(&text.unoptimised(&inputs), &actual, left);
        assert!(entries.iter().all(|entry| entry.is_kernel), "[{left}] bias {bias:?}: {entries:?}");
    }
}
