//! The packs under `tests/scatter`: the scatter family in every form, valid and not, as IR and through the entry points.

use std::fs::File;
use std::io::{Cursor, Read};

use ovir::scatter::{ScatterError, onnx, openvino};
use ovir::tensor::npz::read_npz;
use ovir::{CompileOptions, Core, ElementType, Tensor};
use zip::ZipArchive;

use super::compare::{Tolerance, compare, compare_outputs, is_selected, root, set_inputs};

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    /// `value`, `invalid` or `error`.
    outcome: String,
    /// What the error says.
    message: Vec<String>,
    function: Option<Function>,
}

/// Arguments of an entry point beside the tensors.
#[derive(serde::Deserialize)]
struct Function {
    name: String,
    #[serde(default)]
    axis: i64,
    reduction: Option<String>,
    use_init_val: Option<bool>,
    opset: Option<u32>,
    #[serde(default)]
    inputs: Vec<String>,
}

const TOLERANCE: Tolerance = Tolerance { rtol: 1e-5, atol: 1e-6 };

#[test]
fn grid() {
    assert!(run_pack("grid") >= 400 || std::env::var("OVIR_FILTER").is_ok());
}

#[test]
fn onnx_node_tests() {
    run_pack("onnx");
}

#[test]
fn front_ends() {
    run_pack("frontends");
}

/// Runs all cases of a pack and returns how many there are.
fn run_pack(pack: &str) -> usize {
    let path = root().join(format!("tests/scatter/{pack}.zip"));
    let mut archive = ZipArchive::new(File::open(&path).unwrap()).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&entry(&mut archive, "cases.json").unwrap()).unwrap();
    let mut failures = Vec::new();
    for case in cases.iter().filter(|case| is_selected(&format!("scatter/{pack}/{}", case.name))) {
        if let Err(error) = run(&mut archive, case) {
            failures.push(format!("{pack}/{}: {error}", case.name));
        }
    }
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n"));
    cases.len()
}

fn run(archive: &mut ZipArchive<File>, case: &Case) -> Result<(), String> {
    for reference_only in [false, true] {
        match (case.outcome.as_str(), infer(archive, case, reference_only)) {
            ("value", outcome) => outcome.map_err(|(_, error)| error)?,
            ("invalid", Err((Stage::Read, error))) | ("error", Err((Stage::Infer, error))) => {
                if let Some(part) = case.message.iter().find(|part| !error.contains(*part)) {
                    return Err(format!("{part:?} is missing from: {error}"));
                }
            }
            (outcome, Ok(())) => return Err(format!("it runs; {outcome} is expected")),
            (outcome, Err((_, error))) => return Err(format!("{outcome} is expected at another time: {error}")),
        }
    }
    let Some(function) = &case.function else { return Ok(()) };
    let inputs = entry(archive, &format!("{}/inputs.npz", case.name)).ok_or("no inputs.npz")?;
    match (call(&case_types(archive, case)?, function, &inputs), case.outcome.as_str()) {
        (None, _) => Ok(()),
        (Some(Ok(actual)), "value") => {
            let expected = entry(archive, &format!("{}/expected.npz", case.name)).ok_or("no expected.npz")?;
            let (_, expected) = read_npz(Cursor::new(expected), |_| Some(actual.element_type()))
                .map_err(|e| e.to_string())?
                .swap_remove(0);
            compare(&expected, &actual, None, TOLERANCE).map_err(|e| format!("entry point: {e}"))
        }
        (Some(Ok(_)), _) => Err("the entry point runs; an error is expected".to_owned()),
        (Some(Err(error)), "value") => Err(format!("entry point: {error}")),
        (Some(Err(_)), _) => Ok(()),
    }
}

enum Stage {
    Read,
    Infer,
    Compare,
}

fn infer(archive: &mut ZipArchive<File>, case: &Case, reference_only: bool) -> Result<(), (Stage, String)> {
    let read = |error: String| (Stage::Read, error);
    let name = &case.name;
    let xml = entry(archive, &format!("{name}/model.xml")).ok_or_else(|| read("no model.xml".to_owned()))?;
    let weights = entry(archive, &format!("{name}/model.bin")).unwrap_or_default();
    let core = Core::new();
    let model = core.read_model_from_memory(&xml, weights).map_err(|e| read(e.to_string()))?;
    let options = CompileOptions { threads: 2, reference_only, ..CompileOptions::default() };
    let compiled = core.compile_model(&model, &options).map_err(|e| read(e.to_string()))?;
    let mut request = compiled.create_infer_request();
    let inputs = entry(archive, &format!("{name}/inputs.npz")).unwrap_or_default();
    set_inputs(&model, &mut request, &inputs).map_err(|e| (Stage::Compare, e))?;
    request.infer().map_err(|e| (Stage::Infer, e.to_string()))?;
    let Some(expected) = entry(archive, &format!("{name}/expected.npz")) else { return Ok(()) };
    compare_outputs(&model, &request, &expected, None, TOLERANCE).map_err(|e| (Stage::Compare, e))
}

/// The element types of the model's inputs, by name: npy does not tell bf16.
fn case_types(archive: &mut ZipArchive<File>, case: &Case) -> Result<Vec<(String, ElementType)>, String> {
    let xml = entry(archive, &format!("{}/model.xml", case.name)).ok_or("no model.xml")?;
    let weights = entry(archive, &format!("{}/model.bin", case.name)).unwrap_or_default();
    match Core::new().read_model_from_memory(&xml, weights) {
        Ok(model) => Ok(model.inputs().iter().map(|port| (port.name.clone(), port.element_type)).collect()),
        Err(_) => Ok(Vec::new()),
    }
}

/// The result of the entry point; `None` where an input is a constant of the model.
fn call(types: &[(String, ElementType)], function: &Function, inputs: &[u8]) -> Option<Result<Tensor, ScatterError>> {
    let hint = |name: &str| types.iter().find(|(n, _)| n == name).map(|(_, t)| *t);
    let tensors = read_npz(Cursor::new(inputs), hint).ok()?;
    let names: Vec<String> = match function.inputs.is_empty() {
        true => (0..3).map(|i| format!("x{i}")).collect(),
        false => function.inputs.clone(),
    };
    let tensor = |i: usize| tensors.iter().find(|(name, _)| *name == names[i]).map(|(_, tensor)| tensor);
    let (data, indices, updates) = (tensor(0)?, tensor(1)?, tensor(2)?);
    let reduction = function.reduction.as_deref();
    Some(match function.name.as_str() {
        "scatter_update" => openvino::scatter_update(data, indices, updates, function.axis),
        "scatter_elements_update" => {
            let (reduction, init) = (elements(reduction), function.use_init_val.unwrap_or(true));
            openvino::scatter_elements_update(data, indices, updates, function.axis, reduction, init)
        }
        "scatter_nd_update" => openvino::scatter_nd_update(data, indices, updates, blocks(reduction)),
        "ScatterElements" | "Scatter" => {
            let opset = function.opset.unwrap_or(18).max(11);
            onnx::scatter_elements(opset, data, indices, updates, function.axis, reduction)
        }
        _ => onnx::scatter_nd(function.opset.unwrap_or(18), data, indices, updates, reduction),
    })
}

fn elements(reduction: Option<&str>) -> openvino::ScatterElementsReduction {
    use openvino::ScatterElementsReduction as Reduction;
    match reduction.unwrap_or("none") {
        "sum" => Reduction::Sum,
        "prod" => Reduction::Prod,
        "min" => Reduction::Min,
        "max" => Reduction::Max,
        "mean" => Reduction::Mean,
        _ => Reduction::None,
    }
}

fn blocks(reduction: Option<&str>) -> openvino::ScatterNdReduction {
    use openvino::ScatterNdReduction as Reduction;
    match reduction.unwrap_or("none") {
        "sum" => Reduction::Sum,
        "sub" => Reduction::Sub,
        "prod" => Reduction::Prod,
        "min" => Reduction::Min,
        "max" => Reduction::Max,
        _ => Reduction::None,
    }
}

fn entry(archive: &mut ZipArchive<File>, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    archive.by_name(name).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}
