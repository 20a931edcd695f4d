//! The packs of golden cases under `tests/golden`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ovir::{CompileOptions, Core};
use zip::ZipArchive;

use super::compare::{Tolerance, compare_outputs, is_selected, root, set_inputs};

/// What `cases.json` says of a case.
#[derive(serde::Deserialize)]
pub struct Case {
    pub name: String,
    pub inferences: usize,
    pub tolerance: CaseTolerance,
}

/// How far the results of a case may be from what is expected.
#[derive(serde::Deserialize)]
pub struct CaseTolerance {
    pub rtol: f64,
    pub atol: f64,
}

#[test]
fn golden_cases() {
    let expected_failures = expected_failures();
    let (mut failures, mut surprises, mut count) = (Vec::new(), Vec::new(), 0);
    let mut seen = BTreeSet::new();
    for pack in pack_paths() {
        let operation = pack.file_stem().unwrap().to_string_lossy().into_owned();
        let mut archive = ZipArchive::new(File::open(&pack).unwrap()).unwrap();
        let cases: Vec<Case> = serde_json::from_slice(&entry(&mut archive, "cases.json").unwrap()).unwrap();
        for case in cases {
            let id = format!("{operation}/{}", case.name);
            seen.insert(id.clone());
            if !is_selected(&id) {
                continue;
            }
            count += 1;
            let outcome = ["kernels", "reference"]
                .into_iter()
                .try_for_each(|mode| run(&mut archive, &case, mode == "reference").map_err(|e| format!("{mode}: {e}")));
            match (outcome, expected_failures.contains(&id)) {
                (Ok(()), true) => surprises.push(format!("{id}: passes; take it off the list")),
                (Err(error), false) => failures.push(format!("{id}: {error}")),
                _ => {}
            }
        }
    }
    for id in expected_failures.difference(&seen) {
        surprises.push(format!("{id}: listed, but there is no such case"));
    }
    if std::env::var("OVIR_FILTER").is_ok() {
        surprises.clear();
    }
    failures.append(&mut surprises);
    assert!(failures.is_empty(), "{} of {count} golden cases:\n{}", failures.len(), failures.join("\n"));
}

/// The packs, in order of their names.
pub fn pack_paths() -> Vec<PathBuf> {
    let mut packs: Vec<_> =
        std::fs::read_dir(root().join("tests/golden")).unwrap().filter_map(|e| Some(e.ok()?.path())).collect();
    packs.retain(|p| p.extension().is_some_and(|e| e == "zip"));
    packs.sort();
    packs
}

fn run(archive: &mut ZipArchive<File>, case: &Case, reference_only: bool) -> Result<(), String> {
    let name = &case.name;
    let xml = entry(archive, &format!("{name}/model.xml")).ok_or("no model.xml")?;
    let weights = entry(archive, &format!("{name}/model.bin")).unwrap_or_default();
    let core = Core::new();
    let model = core.read_model_from_memory(&xml, weights).map_err(|e| e.to_string())?;
    let options = CompileOptions { threads: 2, reference_only, ..CompileOptions::default() };
    let compiled = core.compile_model(&model, &options).map_err(|e| e.to_string())?;
    let mut request = compiled.create_infer_request();
    for inference in 0..case.inferences {
        let suffix = if case.inferences == 1 { String::new() } else { format!("-{inference}") };
        if let Some(inputs) = entry(archive, &format!("{name}/inputs{suffix}.npz")) {
            set_inputs(&model, &mut request, &inputs)?;
        }
        request.infer().map_err(|e| e.to_string())?;
        let expected = entry(archive, &format!("{name}/expected{suffix}.npz")).ok_or("no expected.npz")?;
        let tolerance = Tolerance { rtol: case.tolerance.rtol, atol: case.tolerance.atol };
        let masks = entry(archive, &format!("{name}/mask{suffix}.npz"));
        compare_outputs(&model, &request, &expected, masks.as_deref(), tolerance)
            .map_err(|e| format!("inference {inference}: {e}"))?;
    }
    Ok(())
}

/// A file of a pack.
pub fn entry(archive: &mut ZipArchive<File>, name: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    archive.by_name(name).ok()?.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// The cases that are known to fail.
pub fn expected_failures() -> BTreeSet<String> {
    let path: &Path = &root().join("tests/expected-failures.txt");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| line.split('#').next().unwrap_or("").trim())
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect()
}
