//! A model in the language of Graphviz; bodies are clusters.

use std::fmt::Write as _;

use super::drawing::{Drawing, Layer};
use super::svg::heat;

/// The text of a `.dot` file.
pub fn render(drawing: &Drawing) -> String {
    let mut text = format!("digraph {} {{\n", quoted(&drawing.file));
    text.push_str("  node [shape=box, style=\"rounded,filled\", fontname=\"sans-serif\", fontsize=10];\n");
    text.push_str("  edge [fontname=\"sans-serif\", fontsize=8, color=\"#777777\"];\n");
    for (number, graph) in drawing.graphs.iter().enumerate() {
        if graph.parent.is_some() {
            let _ = writeln!(text, "  subgraph cluster_{number} {{\n  label={};", quoted(&graph.name));
        }
        for (index, layer) in graph.layers.iter().enumerate() {
            let label = format!("{}\n{}", layer.type_name, layer.lines.join("\n"));
            let _ = writeln!(text, "  l{number}_{index} [label={}, fillcolor={}];", quoted(&label), colour(layer));
        }
        for edge in &graph.edges {
            let _ =
                writeln!(text, "  l{number}_{} -> l{number}_{} [label={}];", edge.from, edge.to, quoted(&edge.value));
        }
        if let Some((parent, layer)) = graph.parent {
            text.push_str("  }\n");
            if !graph.layers.is_empty() {
                let _ = writeln!(
                    text,
                    "  l{parent}_{layer} -> l{number}_0 [style=dashed, arrowhead=none, constraint=false];"
                );
            }
        }
    }
    text.push_str("}\n");
    text
}

fn colour(layer: &Layer) -> String {
    let colour = match (layer.findings.iter().any(|finding| finding.is_error), layer.findings.is_empty()) {
        (true, _) => "#ffb3b3".to_owned(),
        (false, false) => "#ffe08a".to_owned(),
        (false, true) => heat(layer).unwrap_or_else(|| "#f2f5fa".to_owned()),
    };
    quoted(&colour)
}

/// A string of the language. In labels, a backslash begins an escape.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn strings_end_where_they_should() {
        assert_eq!(quoted("a\"b\\c\nd"), r#""a\"b\\c\nd""#);
    }
}
