//! The registry against the table of operations extracted from OpenVINO 2026.4.1 (`tests/operations.json`).
//!
//! A row holds a type and the `version` that OpenVINO writes for it, the opsets that list it, the attributes that it writes,
//! and the smallest and largest numbers of inputs and outputs of the IRs that the table was extracted from.

use std::collections::BTreeSet;

use ovir_ops::{OpDef, OpVersion, Registry, Resolution};
use pretty_assertions::assert_eq;
use serde::Deserialize;

use super::compare::root;

/// Types whose opsets rightly differ from those that list them, each with its reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("Const", "is in no list of opsets; IR of every opset has it"),
    ("MVN", "is listed from opset2 on; OpenVINO reads it in opset1 too"),
];

#[derive(Deserialize)]
struct Row {
    #[serde(rename = "type")]
    type_name: String,
    version: String,
    opsets: Vec<u8>,
    attributes: Vec<String>,
    inputs: (usize, usize),
    outputs: (usize, usize),
}

#[test]
fn operations_are_those_of_openvino() {
    let built_in = Registry::default().built_in();
    let ours: BTreeSet<(&str, u8)> =
        built_in.iter().flat_map(|d| d.versions.iter().map(|v| (d.type_name, v.class_version))).collect();
    let found: Vec<_> = rows().iter().map(find).collect();
    let theirs: BTreeSet<(&str, u8)> = found.iter().map(|(d, v)| (d.type_name, v.class_version)).collect();
    assert_eq!(theirs.symmetric_difference(&ours).collect::<Vec<_>>(), Vec::<&(&str, u8)>::new());
    assert_eq!(theirs.len(), found.len(), "each row of the table is a version of its own");
    assert!(rows().iter().any(|row| row.opsets.last() == Some(&17)), "the table reaches opset17");
}

#[test]
fn operations_have_the_opsets_attributes_and_ports_of_openvino() {
    let mut wrong = Vec::new();
    for row in rows() {
        let (definition, version) = find(&row);
        let name = format!("{}-{}", row.type_name, row.version);
        let is_exempt = EXCEPTIONS.iter().any(|(name, _)| *name == row.type_name);
        if row.opsets != [version.first_opset, version.last_opset] && !is_exempt {
            wrong.push(format!("{name}: opsets {:?}", row.opsets));
        }
        let is_known = |name: &String| {
            let holds = |v: u8, since: u8, until: u8| (since..=until).contains(&v);
            definition.attributes.iter().any(|a| a.name == name && holds(version.class_version, a.since, a.until))
        };
        wrong.extend(row.attributes.iter().filter(|a| !is_known(a)).map(|a| format!("{name}: attribute {a}")));
        let holds = |(low, high): (usize, usize), seen: (usize, usize)| low <= seen.0 && seen.1 <= high;
        if !holds(version.inputs, row.inputs) || !holds(version.outputs, row.outputs) {
            wrong.push(format!("{name}: {:?} inputs, {:?} outputs", row.inputs, row.outputs));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(root().join("tests/operations.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn find(row: &Row) -> (&'static OpDef, OpVersion) {
    match Registry::default().resolve(&row.type_name, &row.version) {
        Resolution::BuiltIn(definition, version) => (definition, version),
        other => panic!("{} of {}: {other:?}", row.type_name, row.version),
    }
}
