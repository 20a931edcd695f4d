//! Validation: the only way to a model that can be planned.

use std::collections::HashMap;

use ovir_diagnostics::{Code, Diagnostic, Severity, nearest};
use ovir_ir::{Limits, beyond};
use ovir_ops::{SymbolSource, ValueFacts};

use crate::declarations::settle;
use crate::inference::{Checks, Findings, infer_all, infer_model};
use crate::{Inference, Model, NodeId};

/// A model whose every layer was inferred without a violation.
#[derive(Debug, Clone)]
pub struct Validated {
    model: Model,
    inference: Inference,
    /// What the Parameters may get, if the model is a body.
    parameters: Option<Vec<ValueFacts>>,
}

/// What validation found.
#[derive(Debug)]
pub struct Validation {
    /// The model.
    pub model: Model,
    /// What is known of its values.
    pub inference: Inference,
    /// All defects, in the order of the file.
    pub diagnostics: Vec<Diagnostic>,
}

impl Validated {
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What is known of its values.
    pub fn inference(&self) -> &Inference {
        &self.inference
    }

    /// A body whose Parameters may get what `parameters` says, whatever it declares itself.
    ///
    /// # Errors
    /// The violations of layers.
    pub fn body(model: Model, parameters: Vec<ValueFacts>) -> Result<Validated, Vec<Diagnostic>> {
        let given: Vec<_> = model.parameters.iter().copied().zip(parameters.iter().cloned()).collect();
        let mut diagnostics = Vec::new();
        let inference = infer_model(&model, &given, &mut SymbolSource::default(), &mut diagnostics);
        if diagnostics.iter().any(Diagnostic::is_error) {
            return Err(diagnostics);
        }
        Ok(Validated { model, inference, parameters: Some(parameters) })
    }

    /// A changed model in the place of this one, with the same Parameters.
    ///
    /// # Errors
    /// All diagnostics, if at least one is an error.
    pub fn changed(&self, model: Model) -> Result<Validated, Vec<Diagnostic>> {
        match &self.parameters {
            Some(parameters) => Validated::body(model, parameters.clone()),
            None => validate(model, Vec::new()).into_validated(),
        }
    }

    /// Whether the model is a body.
    pub fn is_body(&self) -> bool {
        self.parameters.is_some()
    }

    /// The model without the proof.
    pub fn into_model(self) -> Model {
        self.model
    }
}

impl Validation {
    /// The proof, if there is no error.
    ///
    /// # Errors
    /// All diagnostics, if at least one is an error.
    pub fn into_validated(self) -> Result<Validated, Vec<Diagnostic>> {
        if self.diagnostics.iter().any(Diagnostic::is_error) {
            return Err(self.diagnostics);
        }
        Ok(Validated { model: self.model, inference: self.inference, parameters: None })
    }
}

/// Infers every layer of a model and compares what the file declares with what the operations yield. `earlier` are the
/// defects that reading and building found.
pub fn validate(model: Model, earlier: Vec<Diagnostic>) -> Validation {
    validate_within(model, earlier, &Limits::default())
}

/// As [`validate`], with limits of one's own: values of known shape may have as many elements as these say.
pub fn validate_within(model: Model, earlier: Vec<Diagnostic>, limits: &Limits) -> Validation {
    let mut diagnostics = earlier;
    let was_sound = !diagnostics.iter().any(Diagnostic::is_error);
    let checks = Some(Checks { elements: limits.elements });
    let mut findings = Findings::new(checks);
    let mut inference = Inference::default();
    infer_all(&model, &[], None, &mut SymbolSource::default(), &mut findings, &mut inference);
    diagnostics.extend(settle(&model, &inference, findings.finish()));
    check_variables(&model, &inference, &mut diagnostics);
    check_layouts(&model, &mut diagnostics);
    if model.results.is_empty() && was_sound {
        diagnostics.push(Diagnostic::new(Code::NoResults, "the model has no Result layers").help("add a Result"));
    }
    if was_sound && !model.results.is_empty() {
        check_reachability(&model, &mut diagnostics);
    }
    sort(&mut diagnostics);
    cut(&mut diagnostics, limits.findings);
    Validation { model, inference, diagnostics }
}

/// Diagnostics in the order of the file, errors before warnings at the same place.
fn sort(diagnostics: &mut Vec<Diagnostic>) {
    let place = |d: &Diagnostic| d.primary.as_ref().map_or(0, |p| p.span.start);
    diagnostics.sort_by_key(|d| (place(d), std::cmp::Reverse(d.severity), d.code));
    diagnostics.dedup();
}

/// Leaves out what nobody reads: a model with so many findings is not mended one by one. Notes go first.
fn cut(diagnostics: &mut Vec<Diagnostic>, most: usize) {
    if diagnostics.len() > most {
        diagnostics.retain(|diagnostic| diagnostic.severity != Severity::Note);
    }
    if diagnostics.len() > most {
        diagnostics.truncate(most);
        let excess = Diagnostic::new(Code::LimitExceeded, beyond("there are", most, "findings", "findings"));
        // Reading may have said so already.
        if !diagnostics.contains(&excess) {
            diagnostics.push(excess);
        }
    }
}

/// Every variable needs both ends, and they must agree.
fn check_variables(model: &Model, inference: &Inference, diagnostics: &mut Vec<Diagnostic>) {
    let mut readers: HashMap<&str, NodeId> = HashMap::new();
    for (id, node) in model.iter().filter(|(_, n)| n.is("ReadValue")) {
        if let Some(variable) = node.operation.variable_id() {
            readers.entry(variable).or_insert(id);
        }
    }
    // A reader whose own variable_id is missing may be the one that is looked for.
    let is_unknown = |(_, n): (NodeId, &crate::Node)| n.is("ReadValue") && n.operation.variable_id().is_none();
    let has_unknown = model.iter().any(is_unknown);
    let mut writers: HashMap<&str, NodeId> = HashMap::new();
    for (id, node) in model.iter().filter(|(_, n)| n.is("Assign")) {
        let Some(variable) = node.operation.variable_id() else { continue };
        let reference = node.reference();
        let span = node.location.as_ref().map(|l| l.layer).unwrap_or_default();
        if let Some(first) = writers.insert(variable, id) {
            diagnostics.push(second_assign(node, model.node(first), variable));
        }
        let Some(reader) = readers.get(variable) else {
            if !has_unknown {
                diagnostics.push(lone_assign(node, variable, readers.keys().copied()));
            }
            continue;
        };
        let (Some(read), Some(written)) = (inference.outputs(*reader).first(), inference.outputs(id).first()) else {
            continue;
        };
        let types = read.element_type.merge(written.element_type).is_some();
        if types && read.shape.compatible(&written.shape) {
            continue;
        }
        let message = format!(
            "{reference}: {}{} is written to variable \"{variable}\", which is read as {}{}",
            written.element_type, written.shape, read.element_type, read.shape
        );
        let mut diagnostic = Diagnostic::new(Code::InvalidVariable, message).in_layer(reference).at(span, "");
        if let Some(location) = &model.node(*reader).location {
            diagnostic = diagnostic.also(location.layer, "read here");
        }
        diagnostics.push(diagnostic);
    }
}

/// The layout of a Parameter names as many axes as its shape has. OpenVINO refuses to compile other models.
fn check_layouts(model: &Model, diagnostics: &mut Vec<Diagnostic>) {
    for (index, id) in model.parameters.iter().enumerate() {
        let node = model.node(*id);
        let Some(rank) = model.input_facts(index).and_then(|(_, shape)| shape.rank()) else { continue };
        let attributes = node.rt_info.iter().chain(node.outputs.iter().flat_map(|output| &output.rt_info));
        let mut layouts = attributes.filter(|entry| entry.name.value == "layout");
        let Some(layout) = layouts.find_map(|entry| entry.attribute("layout")) else { continue };
        let text = layout.value.as_str();
        let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else { continue };
        let names = inner.split(',').filter(|name| !name.trim().is_empty());
        let (open, named): (Vec<&str>, Vec<&str>) = names.partition(|name| name.trim() == "...");
        let fits = if open.is_empty() { named.len() == rank } else { named.len() <= rank };
        if fits {
            continue;
        }
        let reference = node.reference();
        let message = format!("{reference}: the layout {text} does not fit a shape of rank {rank}");
        diagnostics
            .push(Diagnostic::new(Code::InvalidAttribute, message).in_layer(reference).at(layout.value.span, ""));
    }
}

/// Which of two values stays is nowhere said, and OpenVINO's processor plugin fails at the first inference.
fn second_assign(node: &crate::Node, first: &crate::Node, variable: &str) -> Diagnostic {
    let place = |node: &crate::Node| node.location.as_ref().map(|l| l.layer).unwrap_or_default();
    let message = format!("{}: variable \"{variable}\" is written by another Assign already", node.reference());
    let diagnostic = Diagnostic::new(Code::InvalidVariable, message).in_layer(node.reference());
    let diagnostic = diagnostic.at(place(node), "the second").also(place(first), "the first");
    diagnostic.help("keep one of them, or give each a variable of its own")
}

fn lone_assign<'r>(node: &crate::Node, variable: &str, readers: impl Iterator<Item = &'r str>) -> Diagnostic {
    let reference = node.reference();
    let message = format!("{reference}: no ReadValue has the variable_id \"{variable}\"");
    let location = node.location.as_ref();
    let attribute = location.and_then(|l| l.attributes.iter().find(|(name, _)| name == "variable_id"));
    let span = attribute.map(|(_, span)| *span).or(location.map(|l| l.layer)).unwrap_or_default();
    let diagnostic = Diagnostic::new(Code::InvalidVariable, message).in_layer(reference).at(span, "nobody reads it");
    let mut names: Vec<&str> = readers.collect();
    names.sort_unstable();
    match nearest(variable, names.iter().copied()) {
        Some(near) => diagnostic.help(format!("did you mean \"{near}\"?")),
        None if names.is_empty() => diagnostic.note("the model has no ReadValue"),
        None => diagnostic,
    }
}

/// Layers from which no path leads to a Result or Assign are never computed. Parameters may be unused.
fn check_reachability(model: &Model, diagnostics: &mut Vec<Diagnostic>) {
    let mut reached = vec![false; model.nodes.len()];
    for index in (0..model.nodes.len()).rev() {
        let node = &model.nodes[index];
        let is_end = node.is("Result") || node.is("Assign") || node.is("Parameter");
        if is_end || reached[index] {
            reached[index] = true;
            for source in &node.inputs {
                reached[source.node.index()] = true;
            }
        }
    }
    let mut is_read = vec![false; model.nodes.len()];
    for source in model.nodes.iter().flat_map(|node| &node.inputs) {
        is_read[source.node.index()] = true;
    }
    for body in model.nodes.iter().flat_map(|node| &node.bodies) {
        check_reachability(body, diagnostics);
    }
    for (id, node) in model.iter().filter(|(id, _)| !reached[id.index()]) {
        // Only the end of a chain is reported; the layers before it would be consequences.
        // Writers leave constants behind that nobody reads.
        if is_read[id.index()] || node.location.is_none() || node.is("Const") {
            continue;
        }
        let reference = node.reference();
        let span = node.location.as_ref().map(|l| l.layer).unwrap_or_default();
        let message = format!("{reference}: no Result depends on this layer");
        diagnostics.push(Diagnostic {
            severity: Severity::Warning,
            ..Diagnostic::new(Code::Unreachable, message).in_layer(reference).at(span, "")
        });
    }
}
