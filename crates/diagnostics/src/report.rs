//! The findings of one file, ready to be rendered.

use serde::Serialize;

use crate::{Diagnostic, Position, Severity, SourceText, Span};

/// The findings of one file.
#[derive(Debug, Clone)]
pub struct Report<'a> {
    /// The path as the user wrote it.
    pub file: String,
    /// The XML, if it could be read.
    pub source: Option<SourceText<'a>>,
    /// The findings in the order of their places; those without a place come last.
    diagnostics: Vec<Diagnostic>,
}

/// How many findings there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// Findings of severity *error*.
    pub errors: usize,
    /// Findings of severity *warning*.
    pub warnings: usize,
    /// Findings of severity *note*.
    pub notes: usize,
}

impl<'a> Report<'a> {
    /// Sorts the findings by place, then code, then message; equal ones stay in the order given.
    pub fn new(
        file: impl Into<String>,
        source: Option<SourceText<'a>>,
        mut diagnostics: Vec<Diagnostic>,
    ) -> Report<'a> {
        let place = |d: &Diagnostic| d.primary.as_ref().map_or(Span { start: u32::MAX, end: u32::MAX }, |l| l.span);
        diagnostics.sort_by(|a, b| (place(a), a.code, &a.message).cmp(&(place(b), b.code, &b.message)));
        Report { file: file.into(), source, diagnostics }
    }

    /// The findings in order.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// How many findings there are.
    pub fn summary(&self) -> Summary {
        Summary::of(&self.diagnostics)
    }

    /// The first and last place of a span, if the text is known.
    pub(crate) fn positions(&self, span: Span) -> Option<(Position, Position)> {
        self.source.as_ref().map(|source| source.positions(span))
    }
}

impl Summary {
    /// Counts findings.
    pub fn of(diagnostics: &[Diagnostic]) -> Summary {
        let count = |severity| diagnostics.iter().filter(|d| d.severity == severity).count();
        Summary { errors: count(Severity::Error), warnings: count(Severity::Warning), notes: count(Severity::Note) }
    }

    /// The sum over several reports.
    pub fn total<'r>(reports: impl IntoIterator<Item = &'r Report<'r>>) -> Summary {
        let mut total = Summary::default();
        for summary in reports.into_iter().map(Report::summary) {
            total.errors += summary.errors;
            total.warnings += summary.warnings;
            total.notes += summary.notes;
        }
        total
    }
}

impl std::fmt::Display for Summary {
    /// `2 errors, 1 warning`; notes only if there are any.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (errors, warnings) = (self.errors, self.warnings);
        write!(f, "{errors} error{}, {warnings} warning{}", plural(errors), plural(warnings))?;
        if self.notes > 0 {
            write!(f, ", {} note{}", self.notes, plural(self.notes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod samples {
    use super::*;
    use crate::{Code, LayerReference};

    pub(crate) const XML: &str = "<net>\n\t<layer id=\"3\" name=\"é <&\" type=\"Add\">\n\t\t<dim>7</dim>\n</net>\n";

    fn span_of(part: &str) -> Span {
        let start = XML.find(part).unwrap();
        Span::new(start, start + part.len())
    }

    /// An error with everything, a warning, and an error without a place.
    pub(crate) fn report() -> Report<'static> {
        let layer = LayerReference {
            name: "é <&".to_owned(),
            id: "3".to_owned(),
            type_name: "Add".to_owned(),
            version: "opset1".to_owned(),
        };
        let mismatch = Diagnostic::new(Code::ShapeMismatch, "[2,3] and [4,3] do not broadcast")
            .at(span_of("<layer id=\"3\" name=\"é <&\" type=\"Add\">"), "2 is not 4")
            .also(span_of("<net>"), "in this model")
            .in_layer(layer)
            .note("dimension 0 differs")
            .help("reshape an input, 100%: a,b");
        let stale = Diagnostic::new(Code::StaleShape, "7 is declared, 8 is computed").at(span_of("7"), "");
        let missing = Diagnostic::new(Code::MissingWeights, "there is no m.bin");
        Report::new("dir x/m.xml", Some(SourceText::new(XML)), vec![missing, stale, mismatch])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn findings_are_ordered_and_counted() {
        let report = samples::report();
        let codes: Vec<&str> = report.diagnostics().iter().map(|d| d.code.name()).collect();
        assert_eq!(codes, ["OV503", "OV501", "OV403"]);
        assert_eq!(report.summary().to_string(), "2 errors, 1 warning");
        assert_eq!(Summary::total([&report, &report]).errors, 4);
        assert_eq!(Summary { errors: 1, warnings: 0, notes: 1 }.to_string(), "1 error, 0 warnings, 1 note");
    }
}
