//! Shape inference over a whole graph.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use ovir_diagnostics::{Code, Diagnostic};
use ovir_ops::{
    Blame, Body, Effects, Environment, EvaluateContext, InferContext, OpError, OpResult, OutputSlot, OutputSlots,
    ReadValues, SymbolSource, ValueFacts, infrastructure::parameter::Parameter,
};
use ovir_tensor::{
    Bounds, Dim, ElementType, MAX_BOUNDS_ELEMENTS, PartialShape, SmallVec, Tensor, TensorView, with_room,
};

use crate::declarations::settle;
use crate::{Model, Node, NodeId, Source, diagnose};

/// The most inputs that a finding lists.
const MAX_SHOWN_INPUTS: usize = 8;

/// The most elements that all inputs of a layer may have together for the layer to be evaluated during inference.
const MAX_FOLDED_INPUT_ELEMENTS: usize = 4 * MAX_BOUNDS_ELEMENTS;

/// What is known of every value of a model.
#[derive(Debug, Clone, Default)]
pub struct Inference {
    facts: Vec<ValueFacts>,
    first: Vec<u32>,
}

/// What is known of the values of the layers before the one at hand.
#[derive(Clone, Copy)]
struct Known<'a> {
    facts: &'a [ValueFacts],
    first: &'a [u32],
}

/// Facts that need not be inferred anew: those of the layers marked, in another inference of the same model whose symbols
/// of them were forgotten.
pub type Reuse<'a> = Option<(&'a [bool], &'a Inference)>;

impl Inference {
    /// What is known of the output `source`.
    pub fn get(&self, source: Source) -> &ValueFacts {
        Known { facts: &self.facts, first: &self.first }.get(source)
    }

    /// What is known of the outputs of a layer.
    pub fn outputs(&self, node: NodeId) -> &[ValueFacts] {
        &self.facts[self.range(node)]
    }

    /// The number of the first output of a layer, counted over all layers.
    pub fn value_index(&self, source: Source) -> usize {
        self.first[source.node.index()] as usize + source.port as usize
    }

    /// The number of values.
    pub fn value_count(&self) -> usize {
        self.facts.len()
    }

    /// Forgets the symbols of the layers marked, so that another inference that takes their facts does not mistake them for
    /// those that it gives out itself.
    pub fn forget_symbols(&mut self, marked: &[bool]) {
        for (index, _) in marked.iter().enumerate().filter(|(_, is_marked)| **is_marked) {
            let range = self.range(NodeId(index as u32));
            self.facts[range].iter_mut().for_each(drop_symbols);
        }
    }

    /// Adds the next layer. Returns what is known of those before it, and the places of its outputs.
    fn append(&mut self, outputs: usize) -> (Known<'_>, &mut [ValueFacts]) {
        let count = self.facts.len();
        self.facts.resize_with(count + outputs, ValueFacts::default);
        let (before, outputs) = self.facts.split_at_mut(count);
        self.first.push(count as u32);
        (Known { facts: before, first: &self.first }, outputs)
    }

    fn range(&self, node: NodeId) -> Range<usize> {
        Known { facts: &self.facts, first: &self.first }.range(node)
    }
}

impl<'a> Known<'a> {
    fn get(self, source: Source) -> &'a ValueFacts {
        static NOTHING: ValueFacts = ValueFacts {
            element_type: ElementType::Dynamic,
            shape: PartialShape::DYNAMIC,
            bounds: None,
            constant: None,
        };
        let range = self.range(source.node);
        let index = range.start + source.port as usize;
        self.facts.get(index).filter(|_| index < range.end).unwrap_or(&NOTHING)
    }

    fn range(self, node: NodeId) -> Range<usize> {
        let start = self.first[node.index()] as usize;
        let end = self.first.get(node.index() + 1).map_or(self.facts.len(), |next| *next as usize);
        start..end
    }
}

/// Facts that replace what a layer would say of its first output: exact input shapes, the shapes of states.
pub type Given<'a> = &'a [(NodeId, ValueFacts)];

/// What is checked beyond the rules of operations: what the file declares is compared with what was inferred, and values
/// are compared with what a machine can hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checks {
    /// The most elements of a value whose shape is known.
    pub(crate) elements: usize,
}

/// Violations, each with the layer at which it was found, in the order of the layers.
pub(crate) struct Findings {
    list: Vec<(NodeId, Diagnostic)>,
    /// What validation wants to know beyond violations, in bodies too.
    checks: Option<Checks>,
    /// Violations by the constant that is blamed and the words that say why: the position of the first, and how many
    /// layers more are concerned.
    by_constant: HashMap<(Source, String), (usize, usize)>,
}

impl Findings {
    pub(crate) fn new(checks: Option<Checks>) -> Findings {
        Findings { list: Vec::new(), checks, by_constant: HashMap::new() }
    }

    /// Adds a violation. A constant that many layers read is blamed once.
    fn add(&mut self, model: &Model, id: NodeId, problem: &OpError, inputs: &[&ValueFacts]) {
        let node = model.node(id);
        if let Blame::Input(port) = problem.blame()
            && let Some(source) = node.inputs.get(*port).filter(|source| model.node(source.node).is("Const"))
        {
            let position = self.list.len();
            let known = self.by_constant.entry((*source, problem.message().to_owned()));
            let count = known.and_modify(|(_, count)| *count += 1).or_insert((position, 0)).1;
            if count > 0 {
                return;
            }
        }
        self.list.push((id, explained(model, node, problem, inputs)));
    }

    /// What was found, in the order of the layers.
    pub(crate) fn finish(mut self) -> Vec<(NodeId, Diagnostic)> {
        for (position, count) in self.by_constant.into_values().filter(|(_, count)| *count > 0) {
            let layers = if count == 1 { "layer reads" } else { "layers read" };
            if let Some((_, diagnostic)) = self.list.get_mut(position) {
                diagnostic.notes.push(format!("{count} more {layers} this constant with the same result"));
            }
        }
        self.list
    }
}

/// Infers all values of a model. Where a layer's rules are violated, the violation goes to `diagnostics` and the
/// declared shapes are trusted.
pub fn infer_model(
    model: &Model,
    given: Given<'_>,
    symbols: &mut SymbolSource,
    diagnostics: &mut Vec<Diagnostic>,
) -> Inference {
    let mut inference = Inference::default();
    infer_model_into(model, given, None, symbols, diagnostics, &mut inference);
    inference
}

/// As [`infer_model`], into memory that an earlier inference has left.
pub fn infer_model_into(
    model: &Model,
    given: Given<'_>,
    reuse: Reuse<'_>,
    symbols: &mut SymbolSource,
    diagnostics: &mut Vec<Diagnostic>,
    inference: &mut Inference,
) {
    let mut findings = Findings::new(None);
    infer_all(model, given, reuse, symbols, &mut findings, inference);
    diagnostics.extend(findings.finish().into_iter().map(|(_, diagnostic)| diagnostic));
}

/// As [`infer_model_into`]; the violations stay with the layers at which they were found.
pub(crate) fn infer_all(
    model: &Model,
    given: Given<'_>,
    reuse: Reuse<'_>,
    symbols: &mut SymbolSource,
    findings: &mut Findings,
    inference: &mut Inference,
) {
    inference.facts.clear();
    inference.first.clear();
    inference.first.reserve(model.nodes.len());
    if inference.facts.capacity() < model.nodes.len() {
        inference.facts = with_room(model.nodes.len());
    }
    let mut problems = Vec::new();
    for (id, node) in model.iter() {
        if let Some((marked, known)) = reuse
            && marked.get(id.index()).copied().unwrap_or(false)
        {
            inference.first.push(inference.facts.len() as u32);
            inference.facts.extend_from_slice(known.outputs(id));
            continue;
        }
        let (known, outputs) = inference.append(node.outputs.len());
        let given = given.iter().find(|(node, _)| *node == id).map(|(_, facts)| facts);
        match (given, outputs.first_mut()) {
            (Some(given), Some(first)) => *first = with_declared_type(node, given),
            _ => infer_node(model, known, id, outputs, &mut problems, symbols, findings),
        }
        name_dims(outputs, symbols);
    }
}

/// Infers one layer from the facts of its inputs, and says of which it has looked at the values.
///
/// # Errors
/// The first violation, as a diagnostic with its place.
pub fn infer_layer(
    model: &Model,
    node: &Node,
    inputs: &[&ValueFacts],
    outputs: &mut [ValueFacts],
) -> Result<ReadValues, Box<Diagnostic>> {
    let bodies: SmallVec<[GraphBody<'_>; 2]> = node.bodies.iter().map(|body| GraphBody::new(body, None)).collect();
    let nested = &bodies;
    let bodies: SmallVec<[&dyn Body; 2]> = bodies.iter().map(|b| b as &dyn Body).collect();
    let (mut problems, mut symbols) = (Vec::new(), SymbolSource::default());
    let mut context = InferContext::new(inputs, outputs, &mut problems, &mut symbols, &bodies);
    let result = node.operation.infer(&mut context);
    let read = context.read_values();
    problems.extend(result.err());
    match problems.first() {
        Some(problem) => Err(Box::new(diagnose(model, node, problem))),
        None => match nested.iter().flat_map(|body| body.diagnostics.take()).find(Diagnostic::is_error) {
            Some(diagnostic) => Err(Box::new(diagnostic)),
            None => Ok(read),
        },
    }
}

/// What the Parameters of the bodies of a layer may get in any iteration, body by body; `None` for a body that inference does
/// not enter.
pub fn body_facts(model: &Model, inference: &Inference, id: NodeId) -> Vec<Option<Vec<ValueFacts>>> {
    let node = model.node(id);
    let watched = |body| GraphBody { seen: Some(RefCell::default()), ..GraphBody::new(body, None) };
    let nested: Vec<GraphBody<'_>> = node.bodies.iter().map(watched).collect();
    let bodies: SmallVec<[&dyn Body; 2]> = nested.iter().map(|body| body as &dyn Body).collect();
    let inputs: SmallVec<[&ValueFacts; 8]> = node.inputs.iter().map(|source| inference.get(*source)).collect();
    let mut outputs = vec![ValueFacts::default(); node.outputs.len()];
    let (mut problems, mut symbols) = (Vec::new(), SymbolSource::default());
    let mut context = InferContext::new(&inputs, &mut outputs, &mut problems, &mut symbols, &bodies);
    // What is inferred in spite of an error may not be all.
    let is_sound = node.operation.infer(&mut context).is_ok() && problems.is_empty();
    let seen = |body: &GraphBody<'_>| body.seen.as_ref()?.take().filter(|_| is_sound);
    nested.iter().map(seen).collect()
}

fn infer_node(
    model: &Model,
    known: Known<'_>,
    id: NodeId,
    outputs: &mut [ValueFacts],
    problems: &mut Vec<OpError>,
    symbols: &mut SymbolSource,
    findings: &mut Findings,
) {
    let node = model.node(id);
    let inputs: SmallVec<[&ValueFacts; 8]> = node.inputs.iter().map(|source| known.get(*source)).collect();
    let nested: SmallVec<[GraphBody<'_>; 2]> =
        node.bodies.iter().map(|body| GraphBody::new(body, findings.checks)).collect();
    let bodies: SmallVec<[&dyn Body; 2]> = nested.iter().map(|b| b as &dyn Body).collect();
    problems.clear();
    let result = node.operation.infer(&mut InferContext::new(&inputs, outputs, problems, symbols, &bodies));
    if let Err(error) = result {
        problems.push(error);
    }
    let in_bodies = nested.iter().flat_map(|body| body.diagnostics.take());
    findings.list.extend(in_bodies.map(|diagnostic| (id, diagnostic)));
    if problems.is_empty() {
        if let Some(checks) = findings.checks {
            findings.list.extend(too_large(checks, node, &inputs, outputs).map(|diagnostic| (id, diagnostic)));
        }
        if can_fold(node, &inputs, outputs) {
            fold(node, &inputs, outputs);
        }
        return;
    }
    problems.iter().for_each(|problem| findings.add(model, id, problem, &inputs));
    trust_declarations(node, outputs);
}

/// A violation of shapes, types or values, with what the inputs are.
fn explained(model: &Model, node: &Node, problem: &OpError, inputs: &[&ValueFacts]) -> Diagnostic {
    let mut diagnostic = diagnose(model, node, problem);
    let is_about_inputs =
        matches!(problem.code(), Code::ShapeMismatch | Code::TypeMismatch | Code::InvalidValue | Code::IndexOutOfRange);
    if !is_about_inputs || inputs.is_empty() {
        return diagnostic;
    }
    let shown = |facts: &ValueFacts| format!("{}{}", facts.element_type, facts.shape);
    if let (Blame::Input(port), Some(label)) = (problem.blame(), &mut diagnostic.primary)
        && let Some(facts) = inputs.get(*port)
    {
        label.text = format!("this is {}", shown(facts));
    }
    let mut list: Vec<String> = inputs.iter().take(MAX_SHOWN_INPUTS).map(|facts| shown(facts)).collect();
    if inputs.len() > MAX_SHOWN_INPUTS {
        list.push(format!("and {} more", inputs.len() - MAX_SHOWN_INPUTS));
    }
    let is_one = inputs.len() == 1;
    diagnostic.note(format!("the input{} {}", if is_one { " is" } else { "s are" }, list.join(", ")))
}

/// A value that no machine holds, unless an input is one already.
fn too_large(checks: Checks, node: &Node, inputs: &[&ValueFacts], outputs: &[ValueFacts]) -> Option<Diagnostic> {
    let is_too_large = |facts: &ValueFacts| {
        let dims = facts.shape.dims().unwrap_or_default();
        let sizes = dims.iter().map(|dim| dim.get().unwrap_or(0));
        sizes.clone().all(|size| size > 0) && sizes.fold(1usize, usize::saturating_mul) > checks.elements
    };
    let port = outputs.iter().position(is_too_large)?;
    if inputs.iter().any(|facts| is_too_large(facts)) {
        return None;
    }
    let facts = &outputs[port];
    let reference = node.reference();
    let what = format!("{reference}: output {port}, {}{}, has", facts.element_type, facts.shape);
    let message = ovir_ir::beyond(&what, checks.elements, "elements", "elements");
    let diagnostic = Diagnostic::new(Code::LimitExceeded, message).in_layer(reference);
    Some(match &node.location {
        Some(location) => {
            diagnostic.at(location.outputs.get(port).map_or(location.layer, |port| port.span), "beyond the limit")
        }
        None => diagnostic,
    })
}

/// After a violation the declared types and shapes are the best guess of what was meant.
fn trust_declarations(node: &Node, outputs: &mut [ValueFacts]) {
    for (port, output) in outputs.iter_mut().enumerate() {
        let declared = node.location.as_ref().and_then(|l| l.outputs.get(port));
        *output = declared
            .map_or_else(ValueFacts::default, |p| ValueFacts::new(p.declared.element_type(), p.declared.shape()));
    }
}

fn with_declared_type(node: &Node, given: &ValueFacts) -> ValueFacts {
    let mut facts = given.clone();
    if let (ElementType::Dynamic, Some(declared)) = (facts.element_type, node.operation.downcast_ref::<Parameter>()) {
        facts.element_type = declared.element_type;
    }
    facts
}

/// Every unknown dimension gets a symbol if it has none, so that equal dimensions can be recognised downstream.
fn name_dims(outputs: &mut [ValueFacts], symbols: &mut SymbolSource) {
    for dims in outputs.iter_mut().filter_map(|o| o.shape.dims_mut()) {
        for dim in dims.iter_mut().filter(|d| !d.is_static() && d.symbol().is_none()) {
            *dim = Dim::interval(dim.min(), dim.max()).with_symbol(symbols.fresh());
        }
    }
}

fn can_fold(node: &Node, inputs: &[&ValueFacts], outputs: &[ValueFacts]) -> bool {
    let is_small = |f: &&ValueFacts| f.shape.elements().max() <= MAX_FOLDED_INPUT_ELEMENTS as i64;
    let is_known = |f: &&ValueFacts| f.constant.is_some() || f.bounds.as_ref().is_some_and(|b| b.known().is_some());
    !inputs.is_empty()
        && node.operation.effects() == Effects::None
        && node.bodies.is_empty()
        && outputs.iter().any(|o| o.constant.is_none() && o.bounds.as_ref().is_none_or(|b| b.known().is_none()))
        && outputs.iter().all(|o| o.shape.is_static() && o.shape.elements().max() <= MAX_BOUNDS_ELEMENTS as i64)
        && inputs.iter().all(|f| is_small(f) && is_known(f))
}

/// Evaluates a layer whose inputs are all known small tensors. A failure is left to the run, which reports it.
fn fold(node: &Node, inputs: &[&ValueFacts], outputs: &mut [ValueFacts]) {
    let tensors: Option<SmallVec<[Tensor; 4]>> = inputs.iter().map(|f| known_tensor(f)).collect();
    let Some(tensors) = tensors else { return };
    if let Some(empty) = empty_tensors(outputs) {
        outputs.iter_mut().zip(empty).for_each(|(output, tensor)| *output = ValueFacts::of_constant(tensor));
        return;
    }
    let views: SmallVec<[TensorView<'_>; 4]> = tensors.iter().map(Tensor::view).collect();
    let mut slots: SmallVec<[OutputSlot<'_>; 2]> = outputs.iter().map(|o| OutputSlot::Needed(o.element_type)).collect();
    let mut environment = Environment::unlimited();
    let mut outputs_of = OutputSlots(&mut slots);
    let mut context = EvaluateContext::new(&views, &mut outputs_of, &[], &mut environment, false);
    if context.run(&*node.operation).is_err() {
        return;
    }
    for (output, slot) in outputs.iter_mut().zip(slots) {
        if let OutputSlot::Produced(tensor) = slot
            && tensor.element_type() == output.element_type
            && output.shape.contains(tensor.shape())
        {
            *output = ValueFacts::of_constant(tensor);
        }
    }
}

/// The outputs if none of them has elements. An operation may go through any number of places to find that out, since
/// attributes and values count them.
fn empty_tensors(outputs: &[ValueFacts]) -> Option<SmallVec<[Tensor; 2]>> {
    let empty = |facts: &ValueFacts| {
        let shape = facts.shape.to_shape().filter(|shape| shape.checked_elements() == Some(0))?;
        Tensor::zeros(facts.element_type, shape).ok()
    };
    outputs.iter().map(empty).collect()
}

/// The tensor of a known value, made from its bounds if need be.
pub fn known_tensor(facts: &ValueFacts) -> Option<Tensor> {
    match (&facts.constant, &facts.bounds) {
        (Some(tensor), _) => tensor.aligned().ok(),
        (None, Some(bounds)) => tensor_of_bounds(facts.element_type, bounds),
        _ => None,
    }
}

fn tensor_of_bounds(element_type: ElementType, bounds: &Bounds) -> Option<Tensor> {
    let width = element_type.byte_width()?;
    let mut bytes: SmallVec<[u8; 64]> = SmallVec::new();
    for value in bounds.known()? {
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }
    Tensor::from_bytes(element_type, bounds.shape.clone(), &bytes).ok()
}

/// A nested graph as the operations see it during inference.
struct GraphBody<'a> {
    model: &'a Model,
    diagnostics: RefCell<Vec<Diagnostic>>,
    checks: Option<Checks>,
    /// What all iterations together give to the parameters, if somebody wants to know.
    seen: Option<RefCell<Option<Vec<ValueFacts>>>>,
}

impl<'a> GraphBody<'a> {
    /// A body may be inferred several times with ever wider parameters. What the first iteration violates is violated, even
    /// if the wider shapes of later ones hide it; of everything else the last time counts.
    fn keep(&self, found: Vec<Diagnostic>) {
        let place = |diagnostic: &Diagnostic| diagnostic.primary.as_ref().map(|label| label.span);
        let is_same = |a: &Diagnostic, b: &Diagnostic| a.code == b.code && place(a) == place(b) && a.layer == b.layer;
        let mut kept = self.diagnostics.borrow_mut();
        kept.retain(|earlier| earlier.is_error() && !found.iter().any(|later| is_same(earlier, later)));
        kept.extend(found);
    }

    fn new(model: &'a Model, checks: Option<Checks>) -> GraphBody<'a> {
        GraphBody { model, diagnostics: RefCell::default(), checks, seen: None }
    }

    /// Adds what an iteration gives to the parameters.
    fn see(&self, parameters: &[ValueFacts]) {
        let Some(seen) = &self.seen else { return };
        let mut seen = seen.borrow_mut();
        *seen = Some(match seen.take() {
            Some(earlier) => earlier.iter().zip(parameters).map(|(a, b)| either(a, b)).collect(),
            None => parameters.iter().map(|facts| either(facts, facts)).collect(),
        });
    }
}

impl Body for GraphBody<'_> {
    fn parameter(&self, index: usize) -> ValueFacts {
        match self.model.input_facts(index) {
            Some((element_type, shape)) => ValueFacts::new(element_type, shape.clone()),
            None => ValueFacts::default(),
        }
    }

    fn result_count(&self) -> usize {
        self.model.results.len()
    }

    fn infer(&self, parameters: &[ValueFacts]) -> OpResult<Vec<ValueFacts>> {
        self.see(parameters);
        let mut findings = Findings::new(self.checks);
        // Symbols of the outer graph must not be mistaken for those given out inside.
        let given: Vec<(NodeId, ValueFacts)> =
            self.model.parameters.iter().copied().zip(parameters.iter().cloned().map(without_symbols)).collect();
        let mut symbols = SymbolSource::default();
        let mut inference = Inference::default();
        infer_all(self.model, &given, None, &mut symbols, &mut findings, &mut inference);
        let found: Vec<Diagnostic> = match self.checks {
            Some(_) => settle(self.model, &inference, findings.finish()),
            None => findings.finish().into_iter().map(|(_, diagnostic)| diagnostic).collect(),
        };
        self.keep(found);
        let results = self.model.results.iter().map(|id| {
            let facts = inference.outputs(*id).first().cloned().unwrap_or_default();
            without_symbols(facts)
        });
        Ok(results.collect())
    }

    fn run(&self, _parameters: &[Tensor], _environment: &mut Environment) -> OpResult<Vec<Tensor>> {
        Err(OpError::unsupported("a body cannot be run during inference"))
    }
}

/// What holds for the type and the shape of either of two values.
fn either(a: &ValueFacts, b: &ValueFacts) -> ValueFacts {
    let element_type = if a.element_type == b.element_type { a.element_type } else { ElementType::Dynamic };
    without_symbols(ValueFacts::new(element_type, a.shape.union(&b.shape)))
}

fn without_symbols(mut facts: ValueFacts) -> ValueFacts {
    drop_symbols(&mut facts);
    facts
}

fn drop_symbols(facts: &mut ValueFacts) {
    if let Some(dims) = facts.shape.dims_mut() {
        for dim in dims.iter_mut() {
            *dim = Dim::interval(dim.min(), dim.max());
        }
    }
    if let Some(bounds) = facts.bounds.as_mut().filter(|b| b.values.iter().any(|value| value.symbol.is_some())) {
        for value in &mut Arc::make_mut(bounds).values {
            value.symbol = None;
        }
    }
}
