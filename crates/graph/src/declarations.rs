//! What the file declares against what the operations yield.
//!
//! One stale declaration has many consequences: everything downstream disagrees with what it declares, or fails. A port
//! or a layer is a consequence if the layer does what it declares as soon as its inputs are what they are declared to
//! be; then only the origin is reported, with the first layer that fails.

use ovir_diagnostics::{Code, Diagnostic, Span};
use ovir_ir::DeclaredDim;
use ovir_ops::{ValueFacts, infrastructure::parameter::Parameter};
use ovir_tensor::{Dim, ElementType, SmallVec};

use crate::inference::infer_layer;
use crate::{DeclaredPort, Inference, Model, Node, NodeId, PortLocation, Source};

/// A stale declaration from which others follow.
struct Origin {
    /// The position of its finding.
    finding: usize,
    /// Layers that fail because of it.
    failures: usize,
    /// Ports that are stale because of it.
    stale: usize,
}

struct Settler<'a> {
    model: &'a Model,
    inference: &'a Inference,
    /// For each value, the origin by which it is not what it is declared to be.
    origin_of: Vec<Option<usize>>,
    origins: Vec<Origin>,
    diagnostics: Vec<Diagnostic>,
}

/// The violations that inference found and the stale declarations, without those that follow from others. `found` is in
/// the order of the layers.
pub(crate) fn settle(model: &Model, inference: &Inference, found: Vec<(NodeId, Diagnostic)>) -> Vec<Diagnostic> {
    let mut settler = Settler {
        model,
        inference,
        origin_of: vec![None; inference.value_count()],
        origins: Vec::new(),
        diagnostics: Vec::new(),
    };
    let mut found = found.into_iter().peekable();
    for (id, node) in model.iter() {
        let mut violations: SmallVec<[Diagnostic; 1]> = SmallVec::new();
        while let Some((_, diagnostic)) = found.next_if(|(at, _)| *at == id) {
            violations.push(diagnostic);
        }
        settler.layer(id, node, violations);
    }
    settler.finish()
}

impl Settler<'_> {
    fn layer(&mut self, id: NodeId, node: &Node, violations: SmallVec<[Diagnostic; 1]>) {
        let Some(location) = &node.location else {
            self.diagnostics.extend(violations);
            return;
        };
        let stale: SmallVec<[(usize, Mismatch); 2]> = location
            .inputs
            .iter()
            .enumerate()
            .filter_map(|(port, p)| Some((port, self.input(node, port, p)?)))
            .collect();
        let of_inputs = node.inputs.iter().find_map(|source| self.origin(*source));
        let mut origin = of_inputs;
        // What the layer would yield if its inputs were what they are declared to be.
        let meant = match of_inputs.is_some() || !stale.is_empty() {
            true => self.outputs_as_meant(node, &stale),
            false => None,
        };
        if !stale.is_empty() {
            origin = Some(self.stale_inputs(node, &stale));
        }
        if !violations.is_empty() {
            self.violations(violations, origin.filter(|_| meant.is_some()));
        }
        // A Result has no output ports in the file.
        for (port, declared) in location.outputs.iter().enumerate().filter(|_| !node.is("Result")) {
            let Some(facts) = self.inference.outputs(id).get(port) else { continue };
            let Some(mismatch) = mismatch(node, &declared.declared, facts) else {
                // What is declared may leave room for more than what is meant.
                let as_meant = meant.as_ref().and_then(|outputs| outputs.get(port));
                let is_meant = |as_meant: &ValueFacts| {
                    as_meant.shape.includes(&facts.shape) && facts.shape.includes(&as_meant.shape)
                };
                if !as_meant.is_none_or(is_meant) {
                    let value = self.inference.value_index(Source { node: id, port: port as u32 });
                    self.origin_of[value] = origin;
                }
                continue;
            };
            let is_consequence = meant
                .as_ref()
                .and_then(|outputs| outputs.get(port))
                .is_some_and(|facts| fits(&declared.declared, facts));
            let value = self.inference.value_index(Source { node: id, port: port as u32 });
            self.origin_of[value] = match origin.filter(|_| is_consequence) {
                Some(origin) => {
                    self.origins[origin].stale += 1;
                    Some(origin)
                }
                // What the attribute was to say is declared here.
                None if location.is_misspelt => Some(self.silent_origin()),
                None if is_openvinos_own(node, port, &declared.declared, facts) => Some(self.silent_origin()),
                None => Some(self.stale_output(node, port, declared, facts, mismatch)),
            };
        }
    }

    fn violations(&mut self, violations: SmallVec<[Diagnostic; 1]>, origin: Option<usize>) {
        let Some(origin) = origin else {
            self.diagnostics.extend(violations);
            return;
        };
        self.origins[origin].failures += 1;
        if self.origins[origin].failures > 1 {
            return;
        }
        let place = self.diagnostics.get(self.origins[origin].finding).and_then(|d| d.primary.clone());
        for mut diagnostic in violations.into_iter().take(1) {
            if let Some(label) = place.as_ref().filter(|l| diagnostic.primary.as_ref().is_none_or(|p| p.span != l.span))
            {
                diagnostic = diagnostic.also(label.span, "the layer accepts what is declared here");
            }
            self.diagnostics.push(diagnostic);
        }
    }

    /// What a layer yields if its stale inputs are what they are declared to be; `None` if it fails even then.
    fn outputs_as_meant(&self, node: &Node, stale: &[(usize, Mismatch)]) -> Option<Vec<ValueFacts>> {
        let location = node.location.as_ref()?;
        let meant: Vec<ValueFacts> = node
            .inputs
            .iter()
            .enumerate()
            .map(|(port, source)| {
                let own = location.inputs.get(port).filter(|_| stale.iter().any(|(at, _)| *at == port));
                let declared = self.declared(*source).filter(|_| self.origin(*source).is_some());
                match own.map(|p| &p.declared).or(declared) {
                    Some(declared) => ValueFacts::new(declared.element_type(), declared.shape()),
                    None => self.inference.get(*source).clone(),
                }
            })
            .collect();
        let inputs: SmallVec<[&ValueFacts; 8]> = meant.iter().collect();
        let mut outputs = vec![ValueFacts::default(); node.outputs.len()];
        infer_layer(self.model, node, &inputs, &mut outputs).ok()?;
        Some(outputs)
    }

    fn origin(&self, source: Source) -> Option<usize> {
        // A layer may be read at a port that its operation does not have, which is a defect of its own.
        let exists = (source.port as usize) < self.inference.outputs(source.node).len();
        if exists { self.origin_of[self.inference.value_index(source)] } else { None }
    }

    fn declared(&self, source: Source) -> Option<&DeclaredPort> {
        let location = self.model.node(source.node).location.as_ref()?;
        Some(&location.outputs.get(source.port as usize)?.declared)
    }

    /// An input port must declare what its producer yields. Where the producer's own declaration is stale, the two need
    /// only agree.
    fn input(&self, node: &Node, port: usize, declared: &PortLocation) -> Option<Mismatch> {
        let source = *node.inputs.get(port)?;
        let mismatch = mismatch(node, &declared.declared, self.inference.get(source))?;
        let is_excused = self.origin(source).is_some()
            && self.declared(source).is_some_and(|output| agree(&declared.declared, output));
        (!is_excused).then_some(mismatch)
    }

    /// Reports the input ports of a layer that do not declare what arrives: all in one finding, since a wrong edge often
    /// makes several so.
    fn stale_inputs(&mut self, node: &Node, stale: &[(usize, Mismatch)]) -> usize {
        self.origins.push(Origin { finding: self.diagnostics.len(), failures: 0, stale: 0 });
        let mut merged: Option<Diagnostic> = None;
        for (port, mismatch) in stale {
            let Some(declared) = node.location.as_ref().and_then(|l| l.inputs.get(*port)) else { continue };
            let Some(source) = node.inputs.get(*port) else { continue };
            let one = finding(node, "input", *port, declared, self.inference.get(*source), mismatch);
            merged = Some(match (merged, one.primary) {
                (Some(first), Some(label)) => first.also(label.span, label.text),
                (Some(first), None) => first,
                (None, primary) => self.with_producer(Diagnostic { primary, ..one }, *source, declared),
            });
        }
        if let [(first, _), (second, _)] = stale
            && self.are_exchanged(node, *first, *second)
        {
            merged = merged.map(|m| m.help(format!("inputs {first} and {second} seem to be exchanged")));
        }
        self.diagnostics.extend(merged);
        self.origins.len() - 1
    }

    fn with_producer(&self, diagnostic: Diagnostic, source: Source, port: &PortLocation) -> Diagnostic {
        let producer = self.model.node(source.node);
        let Some(location) = &producer.location else { return diagnostic };
        let span = location.outputs.get(source.port as usize).map_or(location.layer, |p| p.span);
        let diagnostic = diagnostic.also(span, format!("produced by {}", producer.reference()));
        match port.edge {
            Some(edge) => diagnostic.also(edge, "by this edge"),
            None => diagnostic,
        }
    }

    fn are_exchanged(&self, node: &Node, first: usize, second: usize) -> bool {
        let Some(location) = &node.location else { return false };
        let port_fits = |port: usize, other: usize| match (location.inputs.get(port), node.inputs.get(other)) {
            (Some(port), Some(source)) => fits(&port.declared, self.inference.get(*source)),
            _ => false,
        };
        port_fits(first, second) && port_fits(second, first)
    }

    fn stale_output(
        &mut self,
        node: &Node,
        port: usize,
        declared: &PortLocation,
        facts: &ValueFacts,
        mismatch: Mismatch,
    ) -> usize {
        self.origins.push(Origin { finding: self.diagnostics.len(), failures: 0, stale: 0 });
        self.diagnostics.push(finding(node, "output", port, declared, facts, &mismatch));
        self.origins.len() - 1
    }

    /// The origin of declarations that are not as they should be, of which nothing is said.
    fn silent_origin(&mut self) -> usize {
        self.origins.push(Origin { finding: usize::MAX, failures: 0, stale: 0 });
        self.origins.len() - 1
    }

    fn finish(mut self) -> Vec<Diagnostic> {
        for origin in self.origins {
            let Some(diagnostic) = self.diagnostics.get_mut(origin.finding) else { continue };
            let plural = |count: usize| if count == 1 { "" } else { "s" };
            if origin.stale > 0 {
                let text =
                    format!("{} port{} downstream are stale by the same cause", origin.stale, plural(origin.stale));
                diagnostic.notes.push(text);
            }
            if origin.failures > 1 {
                let text = format!("{} layers fail by the same cause; the first one is reported", origin.failures);
                diagnostic.notes.push(text);
            }
        }
        self.diagnostics
    }
}

/// What of a declaration is not so.
enum Mismatch {
    ElementType(ElementType, Span),
    Shape(Span),
}

fn mismatch(node: &Node, declared: &DeclaredPort, facts: &ValueFacts) -> Option<Mismatch> {
    if let Some((element_type, span)) = declared.element_type
        && facts.element_type != ElementType::Dynamic
        && element_type != facts.element_type
    {
        return Some(Mismatch::ElementType(element_type, span));
    }
    let inferred = facts.shape.dims()?;
    let Some(dims) = &declared.dims else {
        // A port without <dim> is a scalar or of unknown rank.
        return (!inferred.is_empty() && node.is("Const")).then_some(Mismatch::Shape(Span::default()));
    };
    if dims.len() != inferred.len() {
        return Some(Mismatch::Shape(Span::default()));
    }
    // Unknown dims are declared as -1, which fits everything.
    let is_wrong =
        |(declared, dim): &(&DeclaredDim, &Dim)| usize::try_from(declared.value).is_ok_and(|size| !dim.contains(size));
    let (wrong, _) = dims.iter().zip(inferred).find(is_wrong)?;
    Some(Mismatch::Shape(wrong.span))
}

/// Whether OpenVINO declares this in every file that it saves, although the specification has it otherwise. Nobody can
/// mend that in a file.
fn is_openvinos_own(node: &Node, port: usize, declared: &DeclaredPort, facts: &ValueFacts) -> bool {
    match &*node.type_name {
        // Selected scores have the type of the thresholds.
        "NonMaxSuppression" | "NMSRotated" => port == 1 && declared.element_type() == ElementType::F32,
        // A Loop of no iterations hands its initial values on, but is declared to yield nothing.
        "Loop" => {
            let (dims, inferred) =
                (declared.dims.as_deref().unwrap_or_default(), facts.shape.dims().unwrap_or_default());
            let rest_fits = || {
                let rest = dims.iter().zip(inferred).skip(1);
                rest.into_iter()
                    .all(|(declared, dim)| usize::try_from(declared.value).is_ok_and(|size| dim.contains(size)))
            };
            dims.len() == inferred.len() && dims.first().is_some_and(|dim| dim.value == 0) && rest_fits()
        }
        _ => false,
    }
}

fn fits(declared: &DeclaredPort, facts: &ValueFacts) -> bool {
    let type_fits = declared.element_type().merge(facts.element_type).is_some();
    type_fits && declared.shape().compatible(&facts.shape)
}

fn agree(input: &DeclaredPort, output: &DeclaredPort) -> bool {
    input.element_type().merge(output.element_type()).is_some() && input.shape().compatible(&output.shape())
}

fn finding(
    node: &Node,
    kind: &str,
    port: usize,
    declared: &PortLocation,
    facts: &ValueFacts,
    mismatch: &Mismatch,
) -> Diagnostic {
    let reference = node.reference();
    let is_given = kind == "output" && is_given(node, facts);
    let yields = match kind {
        "input" => "its producer yields",
        _ if is_given => "the port map gives",
        _ => "the operation yields",
    };
    let (code, message, span, label) = match *mismatch {
        Mismatch::ElementType(element_type, span) => {
            let (declared, actual) = (element_type.precision_name(), facts.element_type.precision_name());
            let message = format!("{reference}, {kind} {port}: precision {declared} is declared, {yields} {actual}");
            (Code::StalePrecision, message, span, format!("should be {actual}"))
        }
        Mismatch::Shape(span) => {
            let shown = match &declared.declared.dims {
                Some(_) => declared.declared.shape().to_string(),
                None => "no dimensions".to_owned(),
            };
            let message = format!("{reference}, {kind} {port}: shape {shown} is declared, {yields} {}", facts.shape);
            let span = if span == Span::default() { declared.span } else { span };
            (Code::StaleShape, message, span, format!("should be {}", right_part(declared, facts, span)))
        }
    };
    let help = match is_given {
        true => "if the port map is right, write what it gives",
        false => "OpenVINO and ovir ignore what ports declare, other readers may not; write what the operation yields",
    };
    Diagnostic::new(code, message).in_layer(reference).at(span, label).help(help)
}

/// Whether the value of a Parameter is not what its own attributes say: it comes from the layer around its body.
fn is_given(node: &Node, facts: &ValueFacts) -> bool {
    let parameter = node.operation.downcast_ref::<Parameter>();
    parameter.is_some_and(|own| own.element_type != facts.element_type || !own.shape.includes(&facts.shape))
}

/// The dimension that should stand at `span`, or the whole shape where the rank differs.
fn right_part(declared: &PortLocation, facts: &ValueFacts, span: Span) -> String {
    let position = declared.declared.dims.iter().flatten().position(|dim| dim.span == span);
    match (position, facts.shape.dims()) {
        (Some(position), Some(dims)) if position < dims.len() => dims[position].to_string(),
        _ => facts.shape.to_string(),
    }
}
