//! Invariants of the source tree, written as absences.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut found, mut pending) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = pending.pop() {
        for path in std::fs::read_dir(&folder).unwrap().filter_map(|e| Some(e.ok()?.path())) {
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

#[test]
fn dependencies_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("diagnostics", &[][..]),
        ("tensor", &[]),
        ("ir", &["diagnostics", "tensor"]),
        ("ops", &["diagnostics", "tensor"]),
        ("graph", &["diagnostics", "tensor", "ir", "ops"]),
        ("optimize", &["tensor", "ops", "graph"]),
        ("kernels", &[]),
        ("runtime", &["diagnostics", "tensor", "ops", "graph", "optimize", "kernels"]),
        ("ovir", &["diagnostics", "tensor", "ir", "ops", "graph", "optimize", "runtime"]),
        ("capi", &["ovir"]),
        ("cli", &["ovir"]),
        ("wasm", &["ovir"]),
    ]);
    let mut wrong = Vec::new();
    for (name, allowed) in &allowed {
        let manifest = std::fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let dependencies = dependencies.split("[dependencies]").nth(1).unwrap_or_default();
        for line in dependencies.lines() {
            let Some(dependency) = line.split(['.', ' ', '=']).next() else { continue };
            let Some(short) = dependency.strip_prefix("ovir-").or((dependency == "ovir").then_some("ovir")) else {
                continue;
            };
            if !allowed.contains(&short) {
                wrong.push(format!("{name} depends on {short}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_do_not_know_what_is_not_theirs() {
    let absences: &[(&str, &[&str])] = &[
        ("diagnostics", &["ovir_tensor", "ovir_ops"]),
        ("ops", &["quick_xml", "rayon::", "std::fs", "std::thread"]),
        ("ir", &["ovir_ops", "rayon"]),
        ("graph", &["ovir_kernels", "rayon", "std::thread"]),
        ("optimize", &["quick_xml", "ovir_ir", "rayon", "std::thread"]),
        ("kernels", &["ovir_tensor", "ovir_ops", "ovir_graph"]),
        ("runtime", &["quick_xml", "ovir_ir"]),
    ];
    let mut wrong = Vec::new();
    for (name, words) in absences {
        for file in rust_files(&root().join("crates").join(name).join("src")) {
            let code = code_of(&file);
            for word in words.iter().filter(|word| code.contains(**word)) {
                wrong.push(format!("{} mentions {word}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn unsafe_code_lives_in_three_crates() {
    let mut wrong = Vec::new();
    for name in ["diagnostics", "ir", "ops", "graph", "optimize", "runtime", "ovir", "cli", "wasm"] {
        for file in rust_files(&root().join("crates").join(name).join("src")) {
            let code = code_of(&file);
            if [" unsafe {", " unsafe fn", "\nunsafe impl", " unsafe extern"].iter().any(|word| code.contains(word)) {
                wrong.push(file.display().to_string());
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Every file of an operation says what it is, and stands in the index of its category.
#[test]
fn every_operation_file_has_its_header_and_its_entry() {
    let source = root().join("crates/ops/src");
    let mut wrong = Vec::new();
    for folder in std::fs::read_dir(&source).unwrap().filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_dir()) {
        let category = folder.file_name().unwrap().to_string_lossy().into_owned();
        if category == "common" {
            continue;
        }
        let index = std::fs::read_to_string(source.join(format!("{category}.rs"))).unwrap();
        for file in rust_files(&folder).into_iter().filter(|f| f.parent() == Some(&folder)) {
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            if !text.contains("pub static ") || !text.contains(": OpDef = OpDef {") {
                // Mathematics of one category that several operations share.
                continue;
            }
            let has_entry = index.contains(&format!("&{name}::")) || index.contains(&format!("&r#{name}::"));
            let is_documented =
                text.starts_with("//! # ") && text.contains("//! Specification:") && text.contains("//! |---");
            if !has_entry || !is_documented {
                wrong.push(format!("{}: entry {has_entry}, header {is_documented}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
