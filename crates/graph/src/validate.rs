//! Validation: the only way to a model that can be planned.

use std::collections::{HashMap, HashSet};

use ovir_diagnostics::{Code, Diagnostic, Severity};
use ovir_ops::{SymbolSource, ValueFacts};
use ovir_tensor::ElementType;

use crate::inference::infer_model;
use crate::{Inference, Model, Node, NodeId, PortLocation};

/// A model whose every layer was inferred without a violation.
#[derive(Debug, Clone)]
pub struct Validated {
    model: Model,
    inference: Inference,
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
        Ok(Validated { model: self.model, inference: self.inference })
    }
}

/// Infers every layer of a model and compares what the file declares with what the operations yield. `earlier` are the
/// defects that reading and building found.
pub fn validate(model: Model, earlier: Vec<Diagnostic>) -> Validation {
    let mut diagnostics = earlier;
    let was_sound = !diagnostics.iter().any(Diagnostic::is_error);
    let mut symbols = SymbolSource::default();
    let inference = infer_model(&model, &[], &mut symbols, &mut diagnostics);
    check_declarations(&model, &inference, &mut diagnostics);
    check_variables(&model, &inference, &mut diagnostics);
    if model.results.is_empty() && was_sound {
        diagnostics.push(Diagnostic::new(Code::NoResults, "the model has no Result layers").help("add a Result"));
    }
    if was_sound {
        check_reachability(&model, &mut diagnostics);
    }
    sort(&mut diagnostics);
    Validation { model, inference, diagnostics }
}

/// Diagnostics in the order of the file, errors before warnings at the same place.
fn sort(diagnostics: &mut Vec<Diagnostic>) {
    let place = |d: &Diagnostic| d.primary.as_ref().map_or(0, |p| p.span.start);
    diagnostics.sort_by_key(|d| (place(d), std::cmp::Reverse(d.severity), d.code));
    diagnostics.dedup();
}

fn check_declarations(model: &Model, inference: &Inference, diagnostics: &mut Vec<Diagnostic>) {
    for (id, node) in model.iter() {
        let Some(location) = &node.location else { continue };
        if node.is("Result") {
            continue;
        }
        for (port, declared) in location.outputs.iter().enumerate() {
            if let Some(facts) = inference.outputs(id).get(port) {
                check_port(node, "output", port, declared, facts, diagnostics);
            }
        }
    }
}

fn check_port(
    node: &Node,
    kind: &str,
    port: usize,
    declared: &PortLocation,
    facts: &ValueFacts,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let reference = node.reference();
    if let Some((element_type, span)) = declared.declared.element_type
        && facts.element_type != ElementType::Dynamic
        && element_type != facts.element_type
    {
        let message = format!(
            "{reference}, {kind} {port}: precision {} is declared, the operation yields {}",
            element_type.precision_name(),
            facts.element_type.precision_name()
        );
        diagnostics.push(
            Diagnostic::new(Code::StalePrecision, message)
                .in_layer(reference.clone())
                .at(span, format!("should be {}", facts.element_type.precision_name())),
        );
    }
    let Some(dims) = &declared.declared.dims else {
        // A port without <dim> is a scalar or of unknown rank.
        if facts.shape.rank().is_some_and(|rank| rank > 0) && node.is("Const") {
            stale_shape(node, kind, port, declared, facts, declared.span, diagnostics);
        }
        return;
    };
    let Some(inferred) = facts.shape.dims() else { return };
    if dims.len() != inferred.len() {
        stale_shape(node, kind, port, declared, facts, declared.span, diagnostics);
        return;
    }
    for ((size, span), dim) in dims.iter().zip(inferred) {
        let fits = match usize::try_from(*size) {
            Ok(size) => dim.contains(size),
            Err(_) => true,
        };
        if !fits {
            stale_shape(node, kind, port, declared, facts, *span, diagnostics);
            return;
        }
    }
}

fn stale_shape(
    node: &Node,
    kind: &str,
    port: usize,
    declared: &PortLocation,
    facts: &ValueFacts,
    span: ovir_diagnostics::Span,
    diagnostics: &mut Vec<Diagnostic>,
) {
    let reference = node.reference();
    let shown = match &declared.declared.dims {
        Some(_) => declared.declared.shape().to_string(),
        None => "no dimensions".to_owned(),
    };
    let message =
        format!("{reference}, {kind} {port}: shape {shown} is declared, the operation yields {}", facts.shape);
    diagnostics.push(
        Diagnostic::new(Code::StaleShape, message)
            .in_layer(reference)
            .at(span, "")
            .help("OpenVINO and ovir ignore declared dims; write what the operation yields"),
    );
}

/// Every variable needs both ends, and they must agree.
fn check_variables(model: &Model, inference: &Inference, diagnostics: &mut Vec<Diagnostic>) {
    let mut readers: HashMap<&str, NodeId> = HashMap::new();
    for (id, node) in model.iter().filter(|(_, n)| n.is("ReadValue")) {
        if let Some(variable) = node.operation.variable_id() {
            readers.entry(variable).or_insert(id);
        }
    }
    for (id, node) in model.iter().filter(|(_, n)| n.is("Assign")) {
        let Some(variable) = node.operation.variable_id() else { continue };
        let reference = node.reference();
        let span = node.location.as_ref().map(|l| l.layer).unwrap_or_default();
        let Some(reader) = readers.get(variable) else {
            let message = format!("{reference}: no ReadValue has the variable_id \"{variable}\"");
            diagnostics.push(Diagnostic::new(Code::InvalidVariable, message).in_layer(reference).at(span, ""));
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

/// Layers from which no path leads to a Result or Assign are never computed. Parameters may be unused.
fn check_reachability(model: &Model, diagnostics: &mut Vec<Diagnostic>) {
    let mut reached = vec![false; model.nodes.len()];
    for (id, node) in model.iter().collect::<Vec<_>>().into_iter().rev() {
        let is_end = node.is("Result") || node.is("Assign") || node.is("Parameter");
        if is_end || reached[id.index()] {
            reached[id.index()] = true;
            for source in &node.inputs {
                reached[source.node.index()] = true;
            }
        }
    }
    let read: HashSet<NodeId> = model.nodes.iter().flat_map(|n| n.inputs.iter().map(|s| s.node)).collect();
    for (id, node) in model.iter().filter(|(id, _)| !reached[id.index()]) {
        // Only the end of a chain is reported; the layers before it would be consequences.
        if read.contains(&id) || node.location.is_none() {
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
