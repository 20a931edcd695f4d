//! Findings as workflow commands of GitHub Actions, which show them beside the lines of a pull request.

use std::fmt::Write;

use crate::{Report, Severity};

/// Renders one line a finding: `::error file=m.xml,line=2,col=3,endLine=2,endColumn=9,title=OV503::message`.
pub fn render_github(reports: &[Report<'_>]) -> String {
    let mut output = String::new();
    for report in reports {
        for diagnostic in report.diagnostics() {
            let command = match diagnostic.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
                Severity::Note => "notice",
            };
            // Writing to a string does not fail.
            let _ = write!(output, "::{command} file={}", property(&report.file));
            let span = diagnostic.primary.as_ref().map(|label| label.span);
            if let Some((start, end)) = span.and_then(|span| report.positions(span)) {
                let _ = write!(output, ",line={},col={}", start.line, start.column);
                let _ = write!(output, ",endLine={},endColumn={}", end.line, end.column);
            }
            let mut message = diagnostic.message.clone();
            if let Some(layer) = &diagnostic.layer {
                let _ = write!(message, "\nin {layer}");
            }
            for part in diagnostic.notes.iter().chain(&diagnostic.help) {
                message.push('\n');
                message.push_str(part);
            }
            let _ = writeln!(output, ",title={}::{}", diagnostic.code, data(&message));
        }
    }
    output
}

/// Escapes the message of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;
    use crate::{Code, Diagnostic};
    use pretty_assertions::assert_eq;

    #[test]
    fn a_line_a_finding() {
        let expected = "\
::error file=dir x/m.xml,line=2,col=2,endLine=2,endColumn=39,title=OV503::[2,3] and [4,3] do not broadcast\
%0Ain layer \"é <&\" (id 3, Add opset1)%0Adimension 0 differs%0Areshape an input, 100%25: a,b
::warning file=dir x/m.xml,line=3,col=8,endLine=3,endColumn=9,title=OV501::7 is declared, 8 is computed
::error file=dir x/m.xml,title=OV403::there is no m.bin
";
        assert_eq!(render_github(&[samples::report()]), expected);
    }

    #[test]
    fn names_cannot_smuggle_commands() {
        let report = Report::new("a,b:c\n.xml", None, vec![Diagnostic::new(Code::NotIr, "x\r\n::error::y")]);
        let rendered = render_github(&[report]);
        assert_eq!(rendered, "::error file=a%2Cb%3Ac%0A.xml,title=OV102::x%0D%0A::error::y\n");
    }
}
