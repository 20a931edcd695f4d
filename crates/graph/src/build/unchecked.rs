//! Layers of operations that are specified but not implemented: how they are written is checked, their declared shapes
//! are trusted.

use ovir_diagnostics::{Code, Diagnostic, LayerReference, Span, nearest};
use ovir_ir::Layer;
use ovir_ops::{OUTLINES, Outline, SPECIFIED, Specified};

/// The most layers that the note shows.
const MAX_PLACES: usize = 4;

/// The sets of operations beside the numbered opsets that OpenVINO reads, and the opset that took them over.
const EARLY_NAMES: (&str, u8) = ("experimental", 6);

/// A layer that was not checked.
pub(super) struct Unchecked {
    reference: LayerReference,
    kind: String,
    span: Span,
}

/// The versions of a type that the specification knows, implemented or not.
pub(super) fn opsets_of(type_name: &str) -> Vec<&'static Specified> {
    SPECIFIED.iter().filter(|s| s.type_name.eq_ignore_ascii_case(type_name)).collect()
}

/// Checks a layer against what is known of its operation; `None` if nothing is.
pub(super) fn find(layer: &Layer<'_>, diagnostics: &mut Vec<Diagnostic>) -> Option<Unchecked> {
    let version = layer.version.as_str();
    let number: u8 = match version == EARLY_NAMES.0 {
        true => EARLY_NAMES.1,
        false => version.strip_prefix("opset")?.parse().ok()?,
    };
    let row = opsets_of(&layer.type_name.value)
        .into_iter()
        .rev()
        .find(|row| (row.first_opset..=row.last_opset).contains(&number))?;
    let outline = OUTLINES.iter().find(|o| o.type_name == row.type_name && o.class_version == row.class_version)?;
    check_attributes(layer, outline, diagnostics);
    check_ports(layer, outline, diagnostics);
    let kind = format!("{}-{}", outline.type_name, outline.class_version);
    Some(Unchecked { reference: layer.reference(), kind, span: layer.type_name.span })
}

/// Says once what was not checked.
pub(super) fn report(unchecked: &[Unchecked], diagnostics: &mut Vec<Diagnostic>) {
    let Some(first) = unchecked.first() else { return };
    let mut kinds: Vec<&str> = unchecked.iter().map(|u| u.kind.as_str()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    let layers = match unchecked.len() {
        1 => "1 layer is".to_owned(),
        count => format!("{count} layers are"),
    };
    let message = format!("{layers} not checked, since ovir does not implement {}", kinds.join(", "));
    let mut diagnostic = Diagnostic::new(Code::NotImplemented, message).in_layer(first.reference.clone());
    diagnostic.severity = ovir_diagnostics::Severity::Note;
    diagnostic = diagnostic.at(first.span, "its declared shapes are trusted");
    for other in unchecked.iter().skip(1).take(MAX_PLACES) {
        diagnostic = diagnostic.also(other.span, "");
    }
    diagnostics.push(diagnostic.note("the model cannot be run by this version of ovir"));
}

fn check_attributes(layer: &Layer<'_>, outline: &Outline, diagnostics: &mut Vec<Diagnostic>) {
    for attribute in &layer.attributes {
        let name = attribute.name.as_str();
        if outline.attributes.contains(&name) {
            continue;
        }
        let message = format!("{}: unknown attribute `{name}`", layer.reference());
        let mut diagnostic = Diagnostic::new(Code::UnknownAttribute, message)
            .in_layer(layer.reference())
            .at(attribute.span(), "ignored");
        if let Some(near) = nearest(name, outline.attributes.iter().copied()) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        } else if !outline.attributes.is_empty() {
            diagnostic = diagnostic.help(format!("the attributes are: {}", outline.attributes.join(", ")));
        }
        diagnostics.push(diagnostic);
    }
}

fn check_ports(layer: &Layer<'_>, outline: &Outline, diagnostics: &mut Vec<Diagnostic>) {
    for (kind, count, (low, high)) in
        [("input", layer.inputs.len(), outline.inputs), ("output", layer.outputs.len(), outline.outputs)]
    {
        if (low..=high).contains(&count) {
            continue;
        }
        let expected = if low == high { low.to_string() } else { format!("{low} to {high}") };
        let message = format!(
            "{} has {count} {kind} ports; {}-{} has {expected}",
            layer.reference(),
            outline.type_name,
            outline.class_version
        );
        diagnostics.push(Diagnostic::new(Code::PortCount, message).in_layer(layer.reference()).at(layer.span, ""));
    }
}
