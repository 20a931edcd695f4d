//! Findings for people: the line of the file with carets below, notes and help.

use std::fmt::Write;
use std::ops::Range;

use annotate_snippets::renderer::DEFAULT_TERM_WIDTH;
use annotate_snippets::{Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet};

use crate::{Diagnostic, Label, Position, Report, Severity, SourceText};

/// Characters of a line that are shown; longer lines are cut around the place.
const LONGEST_LINE: usize = 160;

/// Characters that stay before the place where a line is cut.
const CONTEXT: usize = 60;

/// Characters of a message, label or note that are shown. Names in a file may be arbitrarily long.
const LONGEST_TEXT: usize = 2000;

/// Labels on lines at most this far apart share one excerpt.
const NEAR: usize = 3;

/// Stands for a path until the text is laid out, because the renderer would count columns in the cut line.
const PLACE: char = '\u{f8ff}';

/// Renders all findings, each followed by an empty line; empty if there are none. `is_coloured` adds ANSI styles.
pub fn render_human(reports: &[Report<'_>], is_coloured: bool) -> String {
    let renderer = if is_coloured { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(DEFAULT_TERM_WIDTH.max(LONGEST_LINE + CONTEXT));
    let mut output = String::new();
    for report in reports {
        for diagnostic in report.diagnostics() {
            output.push_str(&render_one(&renderer, report, diagnostic));
            output.push_str("\n\n");
        }
    }
    output
}

/// An excerpt of the text: some neighbouring lines and the labels on them.
struct Excerpt<'r> {
    lines: Range<usize>,
    labels: Vec<(&'r Label, AnnotationKind)>,
}

fn render_one(renderer: &Renderer, report: &Report<'_>, diagnostic: &Diagnostic) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut group =
        level.primary_title(clip(&diagnostic.message)).id(diagnostic.code.name()).elements(None::<Origin<'_>>);
    let mut places = Vec::new();
    match &report.source {
        Some(source) if diagnostic.primary.is_some() => {
            for excerpt in excerpts(source, diagnostic) {
                group = group.element(snippet(source, &excerpt, &mut places));
            }
        }
        _ => group = group.element(Origin::path(report.file.as_str())),
    }
    group = with_notes(group, diagnostic);
    fill_places(&renderer.render(&[group]), &report.file, &places)
}

fn with_notes<'r>(mut group: Group<'r>, diagnostic: &'r Diagnostic) -> Group<'r> {
    // Most messages begin with the layer.
    if let Some(layer) = diagnostic.layer.as_ref().filter(|layer| !diagnostic.message.contains(&layer.to_string())) {
        group = group.element(Level::NOTE.message(clip(&format!("in {layer}"))));
    }
    for note in &diagnostic.notes {
        group = group.element(Level::NOTE.message(clip(note)));
    }
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(clip(help)));
    }
    group
}

/// The excerpts of a finding: the one with the primary label first, the others in the order of the file.
fn excerpts<'r>(source: &SourceText<'_>, diagnostic: &'r Diagnostic) -> Vec<Excerpt<'r>> {
    let primary = diagnostic.primary.iter().map(|label| (label, AnnotationKind::Primary));
    let mut secondary: Vec<_> = diagnostic.secondary.iter().map(|label| (label, AnnotationKind::Context)).collect();
    secondary.sort_by_key(|(label, _)| label.span);
    let mut excerpts: Vec<Excerpt<'r>> = Vec::new();
    for (label, kind) in primary.chain(secondary) {
        let line = source.line_index(source.boundary(label.span.range().start));
        let near = excerpts.iter_mut().find(|e| line + NEAR >= e.lines.start && line <= e.lines.end + NEAR);
        match near {
            Some(excerpt) => {
                excerpt.lines = excerpt.lines.start.min(line)..excerpt.lines.end.max(line + 1);
                excerpt.labels.push((label, kind));
            }
            None => excerpts.push(Excerpt { lines: line..line + 1, labels: vec![(label, kind)] }),
        }
    }
    excerpts
}

fn snippet<'r>(
    source: &SourceText<'_>,
    excerpt: &Excerpt<'r>,
    places: &mut Vec<Position>,
) -> Snippet<'r, Annotation<'r>> {
    let mut text = String::new();
    let mut annotations = Vec::new();
    for line in excerpt.lines.clone() {
        let range = source.line_range(line);
        let length = source.text()[range.clone()].trim_end_matches(['\n', '\r']).len();
        let range = range.start..range.start + length;
        let on_line = |label: &Label| source.line_index(source.boundary(label.span.range().start)) == line;
        let labels: Vec<_> = excerpt.labels.iter().filter(|(label, _)| on_line(label)).collect();
        let first = labels.iter().map(|(label, _)| label.span.range().start).min();
        let window = window(source, &range, first.unwrap_or(range.start));
        if window.start > range.start {
            text.push_str("...");
        }
        let shift = |offset: usize| text.len() + source.boundary(offset.clamp(window.start, window.end)) - window.start;
        for (label, kind) in labels {
            let start = shift(label.span.range().start);
            let span = start..shift(label.span.range().end).max(start);
            let words = (!label.text.is_empty()).then(|| clip(&label.text));
            annotations.push(kind.span(span).label(words));
        }
        text.push_str(&source.text()[window.clone()]);
        if window.end < range.end {
            text.push_str("...");
        }
        text.push('\n');
    }
    if let Some((label, _)) = excerpt.labels.first() {
        places.push(source.position(label.span.range().start));
    }
    Snippet::source(text).line_start(excerpt.lines.start + 1).path(PLACE.to_string()).annotations(annotations)
}

/// The part of a line that is shown, given the first offset that must be seen.
fn window(source: &SourceText<'_>, line: &Range<usize>, offset: usize) -> Range<usize> {
    // Bytes serve as a measure of width here: cutting a little early in text with many accents does no harm.
    if line.len() <= LONGEST_LINE {
        return line.clone();
    }
    let start = source.boundary(offset.saturating_sub(CONTEXT).clamp(line.start, line.end));
    let start = if start < line.start + CONTEXT / 4 { line.start } else { start };
    start..source.boundary((start + LONGEST_LINE).min(line.end))
}

/// Puts the true places where the renderer printed its own: `PLACE:line:column`.
fn fill_places(rendered: &str, file: &str, places: &[Position]) -> String {
    let mut output = String::with_capacity(rendered.len());
    let mut places = places.iter();
    let mut parts = rendered.split(PLACE);
    output.push_str(parts.next().unwrap_or(""));
    for part in parts {
        let Some(place) = places.next() else {
            output.push_str(part);
            continue;
        };
        // Writing to a string does not fail.
        let _ = write!(output, "{file}:{}:{}", place.line, place.column);
        output.push_str(part.trim_start_matches(|c: char| c == ':' || c.is_ascii_digit()));
    }
    output
}

fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().filter(|c| *c != PLACE).take(LONGEST_TEXT).collect();
    if clipped.len() < text.len() && text.chars().nth(LONGEST_TEXT).is_some() {
        clipped.push_str("...");
    }
    clipped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::samples;
    use crate::{Code, Span};
    use pretty_assertions::assert_eq;

    #[test]
    fn shows_lines_notes_and_help() {
        let expected = "\
error[OV503]: [2,3] and [4,3] do not broadcast
 --> dir x/m.xml:2:2
  |
1 | <net>
  | ----- in this model
2 |     <layer id=\"3\" name=\"é <&\" type=\"Add\">
  |     ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ 2 is not 4
  |
  = note: in layer \"é <&\" (id 3, Add opset1)
  = note: dimension 0 differs
  = help: reshape an input, 100%: a,b

warning[OV501]: 7 is declared, 8 is computed
 --> dir x/m.xml:3:8
  |
3 |         <dim>7</dim>
  |              ^

error[OV403]: there is no m.bin
--> dir x/m.xml

";
        assert_eq!(render_human(&[samples::report()], false), expected);
        assert!(render_human(&[samples::report()], true).contains("\u{1b}["));
    }

    #[test]
    fn distant_labels_have_their_own_excerpts() {
        let xml = "a\n".repeat(1000);
        let diagnostic =
            Diagnostic::new(Code::DuplicateLayerId, "two").at(Span::new(1000, 1001), "b").also(Span::new(2, 3), "c");
        let report = Report::new("m.xml", Some(SourceText::new(&xml)), vec![diagnostic]);
        let expected = "\
error[OV201]: two
   --> m.xml:501:1
    |
501 | a
    | ^ b
    |
   ::: m.xml:2:1
    |
  2 | a
    | - c

";
        assert_eq!(render_human(&[report], false), expected);
    }

    #[test]
    fn long_lines_are_cut_around_the_place() {
        let xml = format!("<net>{}<bad/>{}", "é".repeat(5000), "x".repeat(5000));
        let start = xml.find("<bad/>").unwrap();
        let diagnostic =
            Diagnostic::new(Code::UnknownElement, "bad".repeat(2000)).at(Span::new(start, start + 6), "here");
        let rendered = render_human(&[Report::new("m.xml", Some(SourceText::new(&xml)), vec![diagnostic])], false);
        assert!(rendered.contains("--> m.xml:1:5006\n"), "{rendered}");
        assert!(rendered.contains("^^^^^^ here"), "{rendered}");
        assert!(rendered.len() < 4000, "{}", rendered.len());
    }

    #[test]
    fn no_label_makes_the_renderer_panic() {
        let xml = "<a>\u{1b}[31m\t日本\u{301}\r\n\n\u{200b}<b x=\"𝄞\"/>\u{f8ff}:1\r</a>";
        let length = xml.len() as u32 + 2;
        for start in 0..length {
            for end in start..length {
                let diagnostic = Diagnostic::new(Code::XmlSyntax, "m\nn").at(Span { start, end }, "l\nm");
                let diagnostic = diagnostic.also(Span { start: end, end: length }, "é").note("").help("a\n\nb");
                let report = Report::new("m.xml", Some(SourceText::new(xml)), vec![diagnostic]);
                assert!(render_human(&[report], false).contains("OV101"));
            }
        }
    }

    #[test]
    fn odd_spans_never_panic() {
        for (start, end) in [(0, 0), (0, 999), (999, 999), (7, 3), (22, 24), (5, 60)] {
            let diagnostic = Diagnostic::new(Code::XmlSyntax, "m")
                .at(Span { start, end }, "l")
                .also(Span { start: end, end: start }, "");
            let report = Report::new("m.xml", Some(SourceText::new(samples::XML)), vec![diagnostic]);
            assert!(render_human(&[report], false).contains("OV101"));
        }
        let empty = Report::new(
            "m.xml",
            Some(SourceText::new("")),
            vec![Diagnostic::new(Code::NotIr, "m").at(Span::new(0, 0), "x")],
        );
        assert!(render_human(&[empty], false).contains("m.xml:1:1"));
    }
}
