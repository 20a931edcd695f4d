//! Gives the violations that operations report their place in the file.

use ovir_diagnostics::{Diagnostic, Span};
use ovir_ops::{Blame, OpError};

use crate::{Model, Node};

/// The violation `error` of `node` as a diagnostic with its place.
pub fn diagnose(model: &Model, node: &Node, error: &OpError) -> Diagnostic {
    let place = match error.blame() {
        Blame::Node => String::new(),
        Blame::Input(port) => format!(", input {port}"),
        Blame::Output(port) => format!(", output {port}"),
        Blame::Attribute(_) => String::new(),
    };
    let reference = node.reference();
    let message = format!("{reference}{place}: {}", error.message());
    let mut diagnostic = Diagnostic::new(error.code(), message).in_layer(reference);
    if let Some(span) = blamed_span(node, error.blame()) {
        diagnostic = diagnostic.at(span, "");
    }
    if let Blame::Input(port) = error.blame()
        && let Some(producer) = node.inputs.get(*port).map(|source| model.node(source.node))
        && let Some(location) = &producer.location
    {
        let source = node.inputs[*port];
        let span = location.outputs.get(source.port as usize).map_or(location.layer, |p| p.span);
        diagnostic = diagnostic.also(span, format!("produced by {}", producer.reference()));
    }
    for note in error.notes() {
        diagnostic = diagnostic.note(note);
    }
    match error.help_text() {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

/// The span of the blamed part of a layer; the layer's own where the part has none.
fn blamed_span(node: &Node, blame: &Blame) -> Option<Span> {
    let location = node.location.as_ref()?;
    Some(match blame {
        Blame::Node => location.layer,
        Blame::Input(port) => location.inputs.get(*port).map_or(location.layer, |p| p.span),
        Blame::Output(port) => location.outputs.get(*port).map_or(location.layer, |p| p.span),
        Blame::Attribute(name) => {
            location.attributes.iter().find(|(n, _)| n == name).map_or(location.layer, |(_, span)| *span)
        }
    })
}
