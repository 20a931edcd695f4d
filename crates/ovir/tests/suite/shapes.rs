//! Shape inference over the golden cases: what is inferred of exact input shapes holds the shapes that came out, and what is
//! inferred of wider input shapes includes it.

use std::fs::File;
use std::io::Cursor;

use ovir::tensor::npz::read_npz;
use ovir::tensor::{Dim, PartialShape};
use ovir::{Core, Model};
use zip::ZipArchive;

use super::compare::is_selected;
use super::golden::{Case, entry, expected_failures, pack_paths};

/// Cases that depart on purpose: Squeeze counts a named dimension that may be 1 as 1, as its file says.
const DEPARTURES: [&str; 1] = ["Squeeze-opset1/axis_not_one"];

/// The shapes that an input of a shape may be declared with.
const WIDENINGS: [fn(&PartialShape) -> PartialShape; 5] = [
    |shape| of_dims(shape, |_| Dim::DYNAMIC),
    |shape| of_dims(shape, |dim| Dim::interval(dim.min() - 1, dim.max() + 2)),
    |shape| of_dims(shape, |dim| Dim::interval(dim.min(), dim.max() + 1)),
    |shape| of_dims(shape, |dim| Dim::interval(dim.min(), i64::MAX)),
    |_| PartialShape::DYNAMIC,
];

#[test]
fn inference_of_wider_shapes_includes_that_of_exact_ones() {
    let listed = expected_failures();
    let (mut failures, mut count) = (Vec::new(), 0);
    for pack in pack_paths() {
        let operation = pack.file_stem().unwrap().to_string_lossy().into_owned();
        let mut archive = ZipArchive::new(File::open(&pack).unwrap()).unwrap();
        let cases: Vec<Case> = serde_json::from_slice(&entry(&mut archive, "cases.json").unwrap()).unwrap();
        for case in cases {
            let id = format!("{operation}/{}", case.name);
            if is_selected(&id) && !listed.contains(&id) && !DEPARTURES.contains(&id.as_str()) {
                count += 1;
                if let Err(error) = check(&mut archive, &case) {
                    failures.push(format!("{id}: {error}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} golden cases:\n{}", failures.len(), failures.join("\n"));
}

fn check(archive: &mut ZipArchive<File>, case: &Case) -> Result<(), String> {
    let name = &case.name;
    let xml = entry(archive, &format!("{name}/model.xml")).ok_or("no model.xml")?;
    let weights = entry(archive, &format!("{name}/model.bin")).unwrap_or_default();
    let model = Core::new().read_model_from_memory(&xml, weights).map_err(|e| e.to_string())?;
    let suffix = if case.inferences == 1 { "" } else { "-0" };
    let given = shapes(entry(archive, &format!("{name}/inputs{suffix}.npz")))?;
    let exact = reshaped(&model, &given).map_err(|e| format!("{given:?}: {e}"))?;
    for (output, shape) in shapes(entry(archive, &format!("{name}/expected{suffix}.npz")))? {
        let index = model.output_index(&output).map_err(|e| e.to_string())?;
        if !exact[index].includes(&shape) {
            return Err(format!("output {output} is {shape}, inferred is {}", exact[index]));
        }
    }
    let everything = (1usize << given.len()) - 1;
    let subsets = (0..given.len()).map(|i| 1usize << i).chain([everything]);
    for (subset, widen) in subsets.flat_map(|subset| WIDENINGS.iter().map(move |widen| (subset, widen))) {
        let wider: Vec<_> = given
            .iter()
            .enumerate()
            .map(|(i, (name, shape))| (name.clone(), if subset >> i & 1 == 1 { widen(shape) } else { shape.clone() }))
            .collect();
        let inferred = reshaped(&model, &wider).map_err(|e| format!("{wider:?}: {e}"))?;
        if let Some((wide, narrow)) = inferred.iter().zip(&exact).find(|(wide, narrow)| !wide.includes(narrow)) {
            return Err(format!("{wider:?}: {wide} does not include {narrow}"));
        }
    }
    Ok(())
}

/// The shapes of the arrays of an archive, by name.
fn shapes(archive: Option<Vec<u8>>) -> Result<Vec<(String, PartialShape)>, String> {
    let Some(bytes) = archive else { return Ok(Vec::new()) };
    let arrays = read_npz(Cursor::new(bytes), |_| None).map_err(|e| e.to_string())?;
    let shape = |sizes: &[usize]| PartialShape::from_dims(sizes.iter().map(|size| Dim::fixed(*size)));
    Ok(arrays.into_iter().map(|(name, tensor)| (name, shape(tensor.shape()))).collect())
}

/// The inferred shapes of the outputs where the inputs have these shapes.
fn reshaped(model: &Model, shapes: &[(String, PartialShape)]) -> Result<Vec<PartialShape>, String> {
    let shapes: Vec<_> = shapes.iter().map(|(name, shape)| (name.as_str(), shape.clone())).collect();
    let model = model.reshape(&shapes).map_err(|e| e.to_string())?;
    Ok(model.outputs().into_iter().map(|port| port.shape).collect())
}

fn of_dims(shape: &PartialShape, widen: fn(Dim) -> Dim) -> PartialShape {
    match shape.dims() {
        Some(dims) => PartialShape::from_dims(dims.iter().map(|dim| widen(*dim))),
        None => PartialShape::DYNAMIC,
    }
}
