//! Findings as JUnit XML, for continuous integration.

use std::fmt::Write;

use crate::{Diagnostic, Report, Severity, Summary};

/// Renders a test suite a file and a test case a finding: errors fail, warnings and notes pass and say so in their
/// output. A file without findings has one passing test case.
pub fn render_junit(reports: &[Report<'_>]) -> String {
    let total = Summary::total(reports);
    let tests: usize = reports.iter().map(|report| report.diagnostics().len().max(1)).sum();
    let mut output = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned();
    // Writing to a string does not fail.
    let _ = writeln!(output, "<testsuites name=\"ovir\" tests=\"{tests}\" failures=\"{}\" errors=\"0\">", total.errors);
    for report in reports {
        suite(report, &mut output);
    }
    output.push_str("</testsuites>\n");
    output
}

fn suite(report: &Report<'_>, output: &mut String) {
    let file = escape(&report.file);
    let (tests, failures) = (report.diagnostics().len().max(1), report.summary().errors);
    let _ = writeln!(
        output,
        "  <testsuite name=\"{file}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"0\" skipped=\"0\">"
    );
    if report.diagnostics().is_empty() {
        let _ = writeln!(output, "    <testcase name=\"no findings\" classname=\"{file}\" />");
    }
    for diagnostic in report.diagnostics() {
        case(report, diagnostic, &file, output);
    }
    output.push_str("  </testsuite>\n");
}

fn case(report: &Report<'_>, diagnostic: &Diagnostic, file: &str, output: &mut String) {
    let code = diagnostic.code.name();
    let message = escape(&diagnostic.message);
    let place = diagnostic.primary.as_ref().and_then(|label| report.positions(label.span)).map(|(start, _)| start);
    let place_attributes =
        place.map_or(String::new(), |p| format!(" file=\"{file}\" line=\"{}\" column=\"{}\"", p.line, p.column));
    let _ = writeln!(output, "    <testcase name=\"{code} {message}\" classname=\"{file}\"{place_attributes}>");
    let mut text = place.map_or(report.file.clone(), |p| format!("{}:{}:{}", report.file, p.line, p.column));
    let _ = write!(text, ": {}[{code}]: {}", diagnostic.severity, diagnostic.message);
    if let Some(layer) = &diagnostic.layer {
        let _ = write!(text, "\nin {layer}");
    }
    for part in diagnostic.notes.iter().chain(&diagnostic.help) {
        text.push('\n');
        text.push_str(part);
    }
    let text = escape(&text);
    let _ = match diagnostic.severity {
        Severity::Error => writeln!(output, "      <failure type=\"{code}\" message=\"{message}\">{text}</failure>"),
        Severity::Warning | Severity::Note => writeln!(output, "      <system-out>{text}</system-out>"),
    };
    output.push_str("    </testcase>\n");
}

/// Escapes a text for attributes and content; characters that XML 1.0 cannot hold become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\r' => escaped.push_str("&#13;"),
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;
    use pretty_assertions::assert_eq;

    #[test]
    fn a_case_a_finding() {
        let clean = Report::new("clean.xml", None, vec![]);
        let expected = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="ovir" tests="4" failures="2" errors="0">
  <testsuite name="dir x/m.xml" tests="3" failures="2" errors="0" skipped="0">
    <testcase name="OV503 [2,3] and [4,3] do not broadcast" classname="dir x/m.xml" file="dir x/m.xml" line="2" column="2">
      <failure type="OV503" message="[2,3] and [4,3] do not broadcast">dir x/m.xml:2:2: error[OV503]: [2,3] and [4,3] do not broadcast&#10;in layer &quot;é &lt;&amp;&quot; (id 3, Add opset1)&#10;dimension 0 differs&#10;reshape an input, 100%: a,b</failure>
    </testcase>
    <testcase name="OV501 7 is declared, 8 is computed" classname="dir x/m.xml" file="dir x/m.xml" line="3" column="8">
      <system-out>dir x/m.xml:3:8: warning[OV501]: 7 is declared, 8 is computed</system-out>
    </testcase>
    <testcase name="OV403 there is no m.bin" classname="dir x/m.xml">
      <failure type="OV403" message="there is no m.bin">dir x/m.xml: error[OV403]: there is no m.bin</failure>
    </testcase>
  </testsuite>
  <testsuite name="clean.xml" tests="1" failures="0" errors="0" skipped="0">
    <testcase name="no findings" classname="clean.xml" />
  </testsuite>
</testsuites>
"#;
        assert_eq!(render_junit(&[samples::report(), clean]), expected);
    }

    #[test]
    fn every_text_is_escaped() {
        assert_eq!(escape("a\u{0}<b>&\"\n\t\r"), "a\u{fffd}&lt;b&gt;&amp;&quot;&#10;&#9;&#13;");
    }
}
