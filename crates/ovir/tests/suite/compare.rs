//! Comparison of tensors with what an oracle gave.

use std::io::Cursor;
use std::path::{Path, PathBuf};

use ovir::tensor::npz::read_npz;
use ovir::{ElementType, InferRequest, Model, Tensor};

/// How far a value may be from the oracle's.
#[derive(Debug, Clone, Copy)]
pub struct Tolerance {
    pub rtol: f64,
    pub atol: f64,
}

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Whether a case is asked for.
pub fn is_selected(name: &str) -> bool {
    std::env::var("OVIR_FILTER").map_or(true, |filter| name.contains(&filter))
}

/// Sets the inputs that an archive gives by name.
pub fn set_inputs(model: &Model, request: &mut InferRequest, archive: &[u8]) -> Result<(), String> {
    let ports = model.inputs();
    let hint = |name: &str| model.input_index(name).ok().map(|index| ports[index].element_type);
    for (name, tensor) in read_npz(Cursor::new(archive), hint).map_err(|e| e.to_string())? {
        request.set_tensor(&name, tensor).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Compares all outputs with an archive.
pub fn compare_outputs(
    model: &Model,
    request: &InferRequest,
    archive: &[u8],
    masks: Option<&[u8]>,
    tolerance: Tolerance,
) -> Result<(), String> {
    let ports = model.outputs();
    let hint = |name: &str| model.output_index(name).ok().map(|index| ports[index].element_type);
    let expected = read_npz(Cursor::new(archive), hint).map_err(|e| e.to_string())?;
    let masks = match masks {
        Some(archive) => read_npz(Cursor::new(archive), |_| None).map_err(|e| e.to_string())?,
        None => Vec::new(),
    };
    for (name, tensor) in &expected {
        let mask = masks.iter().find(|(n, _)| n == name).map(|(_, mask)| mask);
        let actual = request.tensor(name).map_err(|e| e.to_string())?;
        compare(tensor, &actual, mask, tolerance).map_err(|e| format!("output {name}: {e}"))?;
    }
    Ok(())
}

/// Compares one tensor. Integers, booleans and strings must be equal.
pub fn compare(expected: &Tensor, actual: &Tensor, mask: Option<&Tensor>, tolerance: Tolerance) -> Result<(), String> {
    if expected.shape() != actual.shape() {
        return Err(format!("shape {} where {} is expected", actual.shape(), expected.shape()));
    }
    if expected.element_type() == ElementType::String || actual.element_type() == ElementType::String {
        return match expected.strings() == actual.strings() {
            true => Ok(()),
            false => Err(format!("{:?} where {:?} is expected", actual.strings(), expected.strings())),
        };
    }
    let is_float = actual.element_type().is_float();
    let (e, a) = (numbers(expected)?, numbers(actual)?);
    let bound = |i: usize| mask.is_none_or(|m| m.bytes().get(i).is_none_or(|b| *b != 0));
    let mut worst: Option<(usize, f64)> = None;
    for i in (0..e.len()).filter(|i| bound(*i)) {
        let same = e[i] == a[i] || (e[i].is_nan() && a[i].is_nan());
        let close = is_float && (e[i] - a[i]).abs() <= tolerance.atol + tolerance.rtol * e[i].abs();
        if same || close {
            continue;
        }
        let difference = (e[i] - a[i]).abs();
        if worst.is_none_or(|(_, w)| difference > w || w.is_nan()) {
            worst = Some((i, difference));
        }
    }
    match worst {
        None => Ok(()),
        Some((i, _)) => Err(format!(
            "element {i} of {} is {} where {} is expected ({})",
            e.len(),
            a[i],
            e[i],
            actual.element_type()
        )),
    }
}

/// The elements as numbers; 64-bit integers beyond 2^53 are compared by their bits elsewhere.
fn numbers(tensor: &Tensor) -> Result<Vec<f64>, String> {
    let tensor = match tensor.element_type() {
        t if t.is_native() => tensor.aligned().map_err(|e| e.to_string())?,
        _ => ovir::tensor::packed::unpack(tensor).map_err(|e| e.to_string())?,
    };
    use ovir::tensor::dispatch::FromElement;
    ovir::tensor::dispatch!(tensor.element_type(), T in [native] => {
        let values = tensor.slice::<T>().map_err(|e| e.to_string())?;
        Ok(values.iter().map(|v| f64::from_element(*v)).collect())
    } else { Err(format!("{} cannot be compared", tensor.element_type())) })
}
