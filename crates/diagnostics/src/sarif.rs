//! Findings as SARIF 2.1.0, for code scanning services and editors.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{Code, Diagnostic, Label, Report, Severity};

/// Renders all findings as one SARIF log with one run. Columns count Unicode code points.
pub fn render_sarif(reports: &[Report<'_>]) -> String {
    let codes: BTreeSet<Code> = reports.iter().flat_map(Report::diagnostics).map(|d| d.code).collect();
    let codes: Vec<Code> = codes.into_iter().collect();
    let results: Vec<Value> =
        reports.iter().flat_map(|report| report.diagnostics().iter().map(|d| result(report, d, &codes))).collect();
    let log = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "ovir",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": codes.iter().map(|code| rule(*code)).collect::<Vec<_>>(),
            }},
            "columnKind": "unicodeCodePoints",
            "artifacts": reports.iter().map(|r| json!({"location": {"uri": uri(&r.file)}})).collect::<Vec<_>>(),
            "results": results,
        }],
    });
    // Serialising plain data into memory does not fail.
    serde_json::to_string_pretty(&log).unwrap_or_default()
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    }
}

fn rule(code: Code) -> Value {
    let card = code.card();
    json!({
        "id": card.name,
        "name": format!("{code:?}"),
        "shortDescription": {"text": card.title},
        "fullDescription": {"text": card.explanation},
        "help": {"text": format!("{}\nExample: {}", card.explanation, card.example)},
        "defaultConfiguration": {"level": level(card.severity)},
    })
}

fn result(report: &Report<'_>, diagnostic: &Diagnostic, codes: &[Code]) -> Value {
    let mut place = json!({"physicalLocation": physical(report, diagnostic.primary.as_ref())});
    if let Some(layer) = &diagnostic.layer {
        place["logicalLocations"] = json!([{
            "name": layer.name,
            "fullyQualifiedName": format!("{} {} {}", layer.id, layer.type_name, layer.version),
            "kind": "object",
        }]);
    }
    let mut text = diagnostic.message.clone();
    for part in diagnostic.notes.iter().chain(&diagnostic.help) {
        text.push('\n');
        text.push_str(part);
    }
    let mut result = json!({
        "ruleId": diagnostic.code.name(),
        "level": level(diagnostic.severity),
        "message": {"text": text},
        "locations": [place],
    });
    if let Ok(index) = codes.binary_search(&diagnostic.code) {
        result["ruleIndex"] = json!(index);
    }
    if !diagnostic.secondary.is_empty() {
        let related = diagnostic.secondary.iter().enumerate().map(|(id, label)| {
            json!({
                "id": id,
                "physicalLocation": physical(report, Some(label)),
                "message": {"text": label.text},
            })
        });
        result["relatedLocations"] = related.collect();
    }
    result
}

fn physical(report: &Report<'_>, label: Option<&Label>) -> Value {
    let mut place = json!({"artifactLocation": {"uri": uri(&report.file)}});
    let positions = label.and_then(|label| Some((label.span, report.positions(label.span)?)));
    if let Some((span, (start, end))) = positions {
        place["region"] = json!({
            "startLine": start.line,
            "startColumn": start.column,
            "endLine": end.line,
            "endColumn": end.column,
            "byteOffset": span.start,
            "byteLength": span.end.saturating_sub(span.start),
        });
    }
    place
}

/// A path as a relative or `file` reference: bytes that are not plain in a URI are percent-encoded.
fn uri(path: &str) -> String {
    let slashes = if cfg!(windows) { path.replace('\\', "/") } else { path.to_owned() };
    let mut uri = if slashes.starts_with('/') { "file://".to_owned() } else { String::new() };
    for byte in slashes.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(char::from(byte)),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;
    use pretty_assertions::assert_eq;

    #[test]
    fn findings_are_complete() {
        let log: Value = serde_json::from_str(&render_sarif(&[samples::report()])).unwrap();
        let run = &log["runs"][0];
        assert_eq!(log["version"], "2.1.0");
        let rules: Vec<&str> =
            run["tool"]["driver"]["rules"].as_array().unwrap().iter().map(|r| r["id"].as_str().unwrap()).collect();
        assert_eq!(rules, ["OV403", "OV501", "OV503"]);
        let expected = json!({
            "ruleId": "OV503",
            "ruleIndex": 2,
            "level": "error",
            "message": {
                "text": "[2,3] and [4,3] do not broadcast\ndimension 0 differs\nreshape an input, 100%: a,b"
            },
            "locations": [{
                "physicalLocation": {
                    "artifactLocation": {"uri": "dir%20x/m.xml"},
                    "region": {
                        "startLine": 2, "startColumn": 2, "endLine": 2, "endColumn": 39,
                        "byteOffset": 7, "byteLength": 38
                    }
                },
                "logicalLocations": [{"name": "é <&", "fullyQualifiedName": "3 Add opset1", "kind": "object"}]
            }],
            "relatedLocations": [{
                "id": 0,
                "physicalLocation": {
                    "artifactLocation": {"uri": "dir%20x/m.xml"},
                    "region": {
                        "startLine": 1, "startColumn": 1, "endLine": 1, "endColumn": 6,
                        "byteOffset": 0, "byteLength": 5
                    }
                },
                "message": {"text": "in this model"}
            }]
        });
        assert_eq!(run["results"][0], expected);
        assert_eq!(run["results"][1]["level"], "warning");
        assert_eq!(
            run["results"][2]["locations"],
            json!([{"physicalLocation": {"artifactLocation": {"uri": "dir%20x/m.xml"}}}])
        );
    }

    #[test]
    fn paths_become_references() {
        assert_eq!(uri("a/b c.xml"), "a/b%20c.xml");
        assert_eq!(uri("/a/é#.xml"), "file:///a/%C3%A9%23.xml");
    }
}
