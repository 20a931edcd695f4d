//! Findings as JSON, for programs.

use serde::Serialize;

use crate::{Label, LayerReference, Position, Report, Severity, Summary};

/// The version of the format. Fields may be added under the same number; a change of meaning raises it.
const SCHEMA: u32 = 1;

/// Renders all findings as one JSON object with `"schema": 1`.
pub fn render_json(reports: &[Report<'_>]) -> String {
    let document = Document {
        schema: SCHEMA,
        tool: Tool { name: "ovir", version: env!("CARGO_PKG_VERSION") },
        summary: Summary::total(reports),
        reports: reports.iter().map(file).collect(),
    };
    // Serialising plain data into memory does not fail.
    serde_json::to_string_pretty(&document).unwrap_or_default()
}

#[derive(Serialize)]
struct Document<'r> {
    schema: u32,
    tool: Tool,
    summary: Summary,
    reports: Vec<File<'r>>,
}

#[derive(Serialize)]
struct Tool {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
struct File<'r> {
    file: &'r str,
    summary: Summary,
    diagnostics: Vec<Finding<'r>>,
}

#[derive(Serialize)]
struct Finding<'r> {
    code: &'static str,
    severity: Severity,
    title: &'static str,
    message: &'r str,
    location: Option<Location<'r>>,
    related: Vec<Location<'r>>,
    layer: Option<&'r LayerReference>,
    notes: &'r [String],
    help: Option<&'r str>,
}

#[derive(Serialize)]
struct Location<'r> {
    /// The first character, and the one after the last. Columns count characters.
    start: Option<Position>,
    end: Option<Position>,
    /// The same in bytes from the start of the file.
    start_byte: u32,
    end_byte: u32,
    label: &'r str,
}

fn file<'r>(report: &'r Report<'_>) -> File<'r> {
    let findings = report.diagnostics().iter().map(|diagnostic| Finding {
        code: diagnostic.code.name(),
        severity: diagnostic.severity,
        title: diagnostic.code.card().title,
        message: &diagnostic.message,
        location: diagnostic.primary.as_ref().map(|label| location(report, label)),
        related: diagnostic.secondary.iter().map(|label| location(report, label)).collect(),
        layer: diagnostic.layer.as_ref(),
        notes: &diagnostic.notes,
        help: diagnostic.help.as_deref(),
    });
    File { file: &report.file, summary: report.summary(), diagnostics: findings.collect() }
}

fn location<'r>(report: &Report<'_>, label: &'r Label) -> Location<'r> {
    let (start, end) = report.positions(label.span).unzip();
    Location { start, end, start_byte: label.span.start, end_byte: label.span.end, label: &label.text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;
    use pretty_assertions::assert_eq;
    use serde_json::json;

    #[test]
    fn findings_are_complete() {
        let parsed: serde_json::Value = serde_json::from_str(&render_json(&[samples::report()])).unwrap();
        assert_eq!(parsed["schema"], 1);
        assert_eq!(parsed["summary"], json!({"errors": 2, "warnings": 1, "notes": 0}));
        let expected = json!({
            "code": "OV503",
            "severity": "error",
            "title": "shapes do not fit",
            "message": "[2,3] and [4,3] do not broadcast",
            "location": {
                "start": {"line": 2, "column": 2},
                "end": {"line": 2, "column": 39},
                "start_byte": 7,
                "end_byte": 45,
                "label": "2 is not 4"
            },
            "related": [{
                "start": {"line": 1, "column": 1},
                "end": {"line": 1, "column": 6},
                "start_byte": 0,
                "end_byte": 5,
                "label": "in this model"
            }],
            "layer": {"name": "é <&", "id": "3", "type": "Add", "version": "opset1"},
            "notes": ["dimension 0 differs"],
            "help": "reshape an input, 100%: a,b"
        });
        assert_eq!(parsed["reports"][0]["diagnostics"][0], expected);
        assert_eq!(parsed["reports"][0]["file"], "dir x/m.xml");
        assert_eq!(parsed["reports"][0]["diagnostics"][2]["location"], json!(null));
    }

    #[test]
    fn no_reports_are_an_empty_list() {
        let parsed: serde_json::Value = serde_json::from_str(&render_json(&[])).unwrap();
        assert_eq!(parsed["reports"], json!([]));
    }
}
