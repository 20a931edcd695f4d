//! Models with real inputs: our own, hand-built ones, and genuine files of version 10.

use std::io::Cursor;
use std::path::Path;

use ovir::tensor::npz::read_npz;
use ovir::{CompileOptions, Core, Tensor};

use super::compare::{Tolerance, compare_outputs, is_selected, root, set_inputs};

#[test]
fn models_give_the_oracles_answers() {
    let mut failures = Vec::new();
    let mut count = 0;
    for folder in ["models", "tests/models", "tests/models-v10"] {
        let Ok(entries) = std::fs::read_dir(root().join(folder)) else { continue };
        let mut paths: Vec<_> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            for xml in models_in(&path) {
                let name = format!("{folder}/{}", xml.strip_prefix(root().join(folder)).unwrap().display());
                if !is_selected(&name) {
                    continue;
                }
                count += 1;
                for reference_only in [false, true] {
                    if let Err(error) = run(&xml, reference_only) {
                        failures.push(format!("{name}: {error} (reference only: {reference_only})"));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} of {count} models:\n{}", failures.len(), failures.join("\n"));
}

fn models_in(path: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![path.to_owned()];
    while let Some(folder) = pending.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.filter_map(|e| Some(e.ok()?.path())) {
            if entry.is_dir() {
                pending.push(entry);
            } else if entry.extension().is_some_and(|e| e == "xml") {
                found.push(entry);
            }
        }
    }
    found.sort();
    found
}

/// Runs all consecutive inferences that a folder has inputs for, on one request.
fn run(xml: &Path, reference_only: bool) -> Result<(), String> {
    let core = Core::new();
    let model = core.read_model(xml).map_err(|e| e.to_string())?;
    let options = CompileOptions { threads: 2, reference_only, ..CompileOptions::default() };
    let compiled = core.compile_model(&model, &options).map_err(|e| e.to_string())?;
    let mut request = compiled.create_infer_request();
    let folder = xml.parent().ok_or("no folder")?;
    let mut ran = 0;
    for suffix in std::iter::once(String::new()).chain((0..100).map(|k| format!("-{k}"))) {
        let Ok(expected) = std::fs::read(folder.join(format!("expected{suffix}.npz"))) else { continue };
        if folder.ends_with("chardecoder") && suffix.is_empty() {
            // The whole text; the consecutive inferences stand in files of their own.
            continue;
        }
        if let Ok(inputs) = std::fs::read(folder.join(format!("inputs{suffix}.npz"))) {
            set_inputs(&model, &mut request, &inputs)?;
        }
        request.infer().map_err(|e| format!("inputs{suffix}: {e}"))?;
        let tolerance = Tolerance { rtol: 1e-3, atol: 1e-4 };
        compare_outputs(&model, &request, &expected, None, tolerance).map_err(|e| format!("inputs{suffix}: {e}"))?;
        ran += 1;
    }
    if ran == 0 { Err("no expected.npz".to_owned()) } else { Ok(()) }
}

/// The character decoder, fed its own likeliest characters, writes the text that OpenVINO writes.
#[test]
fn the_decoder_writes_the_oracles_text() {
    let folder = root().join("models/chardecoder");
    let core = Core::new();
    let model = core.read_model(folder.join("model.xml")).unwrap();
    let mut request = core.compile_model(&model, &CompileOptions::default()).unwrap().create_infer_request();
    let expected = std::fs::read(folder.join("expected.npz")).unwrap();
    let expected = read_npz(Cursor::new(expected), |_| None).unwrap();
    let tokens = |name: &str| -> Vec<i64> {
        let (_, tensor) = expected.iter().find(|(n, _)| n == name).unwrap();
        tensor.slice::<i64>().unwrap().to_vec()
    };
    let (prompt, greedy) = (tokens("prompt_tokens"), tokens("greedy_tokens"));
    let mut written = Vec::new();
    let mut token = prompt[0];
    for position in 0..prompt.len() + greedy.len() - 1 {
        request.set_tensor("token", Tensor::from_slice(&[token], [1, 1]).unwrap()).unwrap();
        request.set_tensor("position", Tensor::from_slice(&[position as i64], [1]).unwrap()).unwrap();
        request.infer().unwrap();
        let logits = request.output_tensor(0).unwrap();
        let logits = logits.slice::<f32>().unwrap();
        let likeliest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap() as i64;
        token = match prompt.get(position + 1) {
            Some(next) => *next,
            None => {
                written.push(likeliest);
                likeliest
            }
        };
    }
    assert_eq!(written, greedy);
}
