//! A model as SVG: the model, and its bodies below it.

use std::fmt::Write as _;

use super::drawing::{Drawing, Graph, LINE, Layer, PADDING};
use super::layout::Point;

/// The space around graphs.
const MARGIN: f32 = 24.0;

const STYLE: &str = "\
text{font:11px sans-serif;fill:#222}.t{font-weight:bold}.h{font-size:15px}.e{fill:none;stroke:#8a93a3;stroke-width:1.2}\
rect{fill:#f2f5fa;stroke:#5b6a86}.warning{fill:#fff0c2;stroke:#b98900}.error{fill:#ffd9d9;stroke:#c62828}";

/// The text of an `.svg` file.
pub fn render(drawing: &Drawing) -> String {
    let width = drawing.graphs.iter().map(|graph| graph.layout.width).fold(0.0, f32::max) + 2.0 * MARGIN;
    let mut body = String::new();
    let mut top = MARGIN;
    for graph in &drawing.graphs {
        let _ = writeln!(body, "<text class=\"h\" x=\"{MARGIN}\" y=\"{}\">{}</text>", top + LINE, escape(&graph.name));
        top += 2.0 * LINE;
        let _ = writeln!(body, "<g transform=\"translate({MARGIN} {top})\">");
        draw(graph, &mut body);
        body.push_str("</g>\n");
        top += graph.layout.height + 2.0 * MARGIN;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{top}\" viewBox=\"0 0 {width} {top}\">\n\
         <title>{}</title>\n<style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" style=\"fill:#fff;stroke:none\"/>\n\
         <defs><marker id=\"a\" viewBox=\"0 0 8 8\" refX=\"8\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" orient=\"auto\">\
         <path d=\"M0 0 8 4 0 8z\" fill=\"#8a93a3\"/></marker></defs>\n{body}</svg>\n",
        escape(&drawing.file)
    )
}

fn draw(graph: &Graph, text: &mut String) {
    for (edge, route) in graph.edges.iter().zip(&graph.layout.routes) {
        let _ = writeln!(
            text,
            "<path class=\"e\" marker-end=\"url(#a)\" d=\"{}\"><title>{}</title></path>",
            curve(route),
            escape(&edge.value)
        );
    }
    for ((layer, corner), size) in graph.layers.iter().zip(&graph.layout.corners).zip(&graph.sizes) {
        let _ = write!(
            text,
            "<g><title>{}</title><rect class=\"{}\"{} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"5\"/>",
            escape(&tooltip(layer)),
            class(layer),
            heat(layer).map_or(String::new(), |colour| format!(" style=\"fill:{colour}\"")),
            corner.x,
            corner.y,
            size.width,
            size.height
        );
        let x = corner.x + PADDING;
        let mut y = corner.y + PADDING + LINE - 3.0;
        let _ = write!(text, "<text class=\"t\" x=\"{x}\" y=\"{y}\">{}</text>", escape(&layer.type_name));
        for line in &layer.lines {
            y += LINE;
            let _ = write!(text, "<text x=\"{x}\" y=\"{y}\">{}</text>", escape(line));
        }
        text.push_str("</g>\n");
    }
}

/// The route as curves that leave and reach boxes upright.
fn curve(route: &[Point]) -> String {
    let mut text = String::new();
    for (index, point) in route.iter().enumerate() {
        let Some(last) = index.checked_sub(1).and_then(|index| route.get(index)) else {
            let _ = write!(text, "M{:.1} {:.1}", point.x, point.y);
            continue;
        };
        let middle = (last.y + point.y) / 2.0;
        let _ = write!(text, "C{:.1} {middle:.1} {:.1} {middle:.1} {:.1} {:.1}", last.x, point.x, point.x, point.y);
    }
    text
}

fn class(layer: &Layer) -> &'static str {
    match (layer.findings.iter().any(|finding| finding.is_error), layer.findings.is_empty()) {
        (true, _) => "error",
        (false, false) => "warning",
        (false, true) => "layer",
    }
}

/// The colour of a layer by its part of the time, where that is known and nothing is wrong with it.
pub fn heat(layer: &Layer) -> Option<String> {
    let time = layer.time.as_ref().filter(|_| layer.findings.is_empty())?;
    // A tenth of the whole is as hot as it gets.
    let cold = 255.0 - 165.0 * (time.share() * 10.0).min(1.0).sqrt();
    Some(format!("#ff{:02x}{:02x}", cold as u8, (cold * 0.9) as u8))
}

fn tooltip(layer: &Layer) -> String {
    let mut text = format!("{} ({} {}, id {})", layer.name, layer.type_name, layer.opset, layer.id);
    for (name, value) in &layer.attributes {
        let _ = write!(text, "\n{name} = {value}");
    }
    for finding in &layer.findings {
        let _ = write!(text, "\n{} {}: {}", finding.severity, finding.code, finding.message);
    }
    text
}

/// A text between tags or in an attribute. Characters that XML does not know are left out.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(letter),
            letter if letter.is_control() || matches!(letter, '\u{fffe}' | '\u{ffff}') => {}
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn names_cannot_leave_their_element() {
        assert_eq!(escape("</text><script a='b\"\u{1}&"), "&lt;/text&gt;&lt;script a=&#39;b&quot;&amp;");
    }
}
