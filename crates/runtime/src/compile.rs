//! Compilation: everything that is done once for a model, whatever shapes its inputs will have.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ovir_graph::{Inference, Model, Node, NodeId, Source, Validated, body_facts, infer_model, topological};
use ovir_ops::infrastructure::read_value::ReadValue;
use ovir_ops::rows::{Append, rows_inside};
use ovir_ops::{Effects, Environment, Limits, SymbolSource, ValueFacts};
use ovir_tensor::{ElementType, PartialShape, SmallVec, Tensor};

use crate::decompression;
use crate::eager::{ByKernels, Known, compute};
use crate::fast::{Claim, ClaimContext, Kernel, PackStore, StepShapes, claim};
use crate::initialisers::{initial_order, initialisers};
use crate::layout::{Layout, Lowered, lower};
use crate::pool::Pool;
use crate::precision::InferencePrecision;
use crate::{RunError, VariableInfo};

/// Constants of so many bytes are packed by all threads.
const POOL_BYTES: usize = 1 << 20;

/// The most layers behind a packed value that are looked at for stored constants.
const MOST_RELEASED: usize = 16;

/// How a model is compiled.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// The number of threads of an inference, 64 at the most; 0 means all that are available.
    pub threads: usize,
    /// Runs every layer by its reference evaluation, for comparison.
    pub reference_only: bool,
    /// The most bytes that evaluated constant expressions may take together; 0 means no limit.
    pub memory_limit: usize,
    /// The precision of products, convolutions and attention of f32.
    pub inference_precision: InferencePrecision,
    /// The most neighbouring values of a row that are quantised together in products with constants of four or eight bits;
    /// 0 computes them in f32.
    pub dynamic_quantization_group_size: usize,
}

/// A model that is ready to run. Requests share it.
pub struct Compiled {
    pub(crate) model: Model,
    pub(crate) steps: Vec<Step>,
    /// The number of the first value of each layer.
    pub(crate) first_value: Vec<u32>,
    pub(crate) value_count: usize,
    /// The layout of each value.
    pub(crate) layouts: Vec<Layout>,
    /// Tensors of values that depend on constants only and that some step reads, by value.
    pub(crate) constants: Vec<(Source, Tensor)>,
    pub(crate) variables: Vec<VariableInfo>,
    /// The values that are assigned to variables, and the variables.
    pub(crate) assigned: Vec<(Source, usize)>,
    /// For each variable, the ReadValue layers that read it.
    pub(crate) readers: Vec<Vec<NodeId>>,
    /// The plan of initialisers with work of their own.
    pub(crate) initialisers: Option<Box<InitialiserPlan>>,
    /// The variables in the order in which they get their initial values.
    pub(crate) initial_order: Vec<usize>,
    pub(crate) pool: Pool,
    /// Whether layers may run in kernels.
    pub(crate) uses_kernels: bool,
    /// Whether a layer depends on constants only.
    is_static: Vec<bool>,
    /// Whether nothing about a layer changes from inference to inference: it depends on constants only, or serves
    /// initialisers only.
    pub(crate) is_settled: Vec<bool>,
    /// What is known of the values for all shapes that the model may get.
    pub(crate) inference: Inference,
}

/// The plan of initialisers of variables.
pub(crate) struct InitialiserPlan {
    /// A model with all inputs of the whole one.
    pub compiled: Compiled,
    /// The variables that its results are for.
    pub variables: Vec<usize>,
    /// The variables that initialisers read, which the plan takes to have none but their initial values.
    pub read: Vec<usize>,
}

/// One step of the plan.
pub(crate) struct Step {
    /// The layer.
    pub node: NodeId,
    /// What is done.
    pub action: Action,
    /// Plans of the bodies.
    pub bodies: Vec<Compiled>,
}

impl Step {
    /// Whether there are no elements to compute for these shapes, and nothing to check.
    pub fn is_nothing(&self, shapes: &StepShapes<'_>) -> bool {
        let is_unchecked = matches!(&self.action, Action::Kernel(kernel) if !kernel.checks_values(shapes));
        is_unchecked && shapes.outputs.iter().all(|shape| shape.contains(&0))
    }
}

/// What a step does.
pub(crate) enum Action {
    /// A fast kernel, with the reference evaluation behind it for shapes that the kernel does not do.
    Kernel(Box<dyn Kernel>),
    /// The reference evaluation.
    Reference,
    /// The first output is the first input under another shape.
    Reshape,
    /// The value of a variable.
    Read(usize),
    /// The new value of a variable.
    Assign(usize),
    /// New rows behind those of a variable.
    Append(usize),
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Compiled({}, {} steps)", self.model.name, self.steps.len())
    }
}

impl Compiled {
    /// Compiles a validated model.
    ///
    /// # Errors
    /// A constant expression that cannot be evaluated, or an operation that is not implemented.
    pub fn new(validated: Validated, options: &CompileOptions) -> Result<Compiled, RunError> {
        let pool = Pool::new(options.threads);
        let constants = validated.model().nodes.iter().filter_map(|node| node.tensor());
        let constant_bytes: usize = constants.map(|tensor| tensor.bytes().len()).sum();
        let (model, inner) = (validated.into_model(), pool.clone());
        let environment = Environment::new(Arc::new(Limits::of_memory(options.memory_limit, 0)));
        let work = move || compile(model, options, inner, &mut PackStore::default(), &environment, None);
        // Packing large constants is worth waking the threads, which the first inference needs anyway.
        if constant_bytes >= POOL_BYTES { pool.team().lead(work) } else { work() }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The variables.
    pub fn variables(&self) -> &[VariableInfo] {
        &self.variables
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// The tensor of a value that depends on constants only, made anew if it was packed: for a step whose kernel does
    /// not do the shapes at hand.
    pub(crate) fn constant(&self, source: Source) -> Option<Tensor> {
        if let Ok(index) = self.constants.binary_search_by_key(&source, |(source, _)| *source) {
            return Some(self.constants[index].1.clone());
        }
        if !self.is_static[source.node.index()] {
            return None;
        }
        let (known, environment) = (&mut Known::new(), &Environment::unlimited());
        static_value(&self.model, source, known, environment, self.uses_kernels).ok()?.aligned().ok()
    }

    /// The bytes of the constant expressions that were evaluated.
    pub(crate) fn constant_bytes(&self) -> usize {
        let is_made = |source: Source| self.model.node(source.node).tensor().is_none();
        let own = self.constants.iter().filter(|(source, _)| is_made(*source)).map(|(_, tensor)| tensor.bytes().len());
        let bodies = self.steps.iter().flat_map(|step| &step.bodies).map(Compiled::constant_bytes);
        own.chain(bodies).fold(0, usize::saturating_add)
    }

    /// The layout of a value.
    pub(crate) fn layout(&self, source: Source) -> Layout {
        self.layouts.get(self.value(source)).copied().unwrap_or_default()
    }

    /// The channels of a blocked value.
    pub(crate) fn channels(&self, source: Source) -> usize {
        let dims = self.inference.get(source).shape.dims().unwrap_or_default();
        dims.get(1).and_then(|dim| dim.get()).unwrap_or(0)
    }

    /// The number of a value.
    pub(crate) fn value(&self, source: Source) -> usize {
        self.first_value[source.node.index()] as usize + source.port as usize
    }
}

fn compile(
    model: Model,
    options: &CompileOptions,
    pool: Pool,
    packed: &mut PackStore,
    environment: &Environment,
    parameters: Option<Vec<ValueFacts>>,
) -> Result<Compiled, RunError> {
    let initialisers = compile_initialisers(&model, options, &pool, packed, environment)?;
    let (Lowered { model, layouts }, mut inference) = lowered(model, options, parameters.as_deref());
    let mut first_value = Vec::with_capacity(model.nodes.len());
    let mut value_count = 0u32;
    for node in &model.nodes {
        first_value.push(value_count);
        value_count += node.outputs.len() as u32;
    }
    let is_static = model.constant_layers();
    let (variables, readers) = variables(&model, &inference);
    let initial_order = initial_order(&model, variables.len());
    let only_initialisers = initialiser_layers(&model, &is_static);
    let order = order(&model);
    let computed: Vec<bool> = model.nodes.iter().map(|node| !node.is("Const")).collect();
    let graph = packed.new_graph();
    let mut builder = Builder {
        graph,
        computed: &computed,
        first_value: &first_value,
        layouts: &layouts,
        model: &model,
        inference: &inference,
        is_static: &is_static,
        variables: &variables,
        options,
        packed,
        environment,
        known: Known::new(),
        constants: HashMap::new(),
        pool: &pool,
    };
    let mut steps = Vec::new();
    for id in order {
        if is_static[id.index()] || only_initialisers[id.index()] {
            continue;
        }
        let inputs: SmallVec<[&ValueFacts; 8]> =
            model.node(id).inputs.iter().map(|source| inference.get(*source)).collect();
        if let Some(step) = builder.step(id, &inputs, inference.outputs(id))? {
            steps.push(step);
        }
    }
    let mut constants: Vec<(Source, Tensor)> = builder.constants.into_iter().collect();
    constants.sort_unstable_by_key(|(source, _)| *source);
    let value_count = value_count as usize;
    let assigned = steps.iter().filter_map(|step: &Step| match step.action {
        Action::Assign(variable) => Some((*model.node(step.node).inputs.first()?, variable)),
        _ => None,
    });
    let assigned = assigned.collect();
    let is_settled: Vec<bool> = is_static.iter().zip(&only_initialisers).map(|(a, b)| *a || *b).collect();
    inference.forget_symbols(&is_settled);
    Ok(Compiled {
        steps,
        first_value,
        value_count,
        layouts,
        constants,
        variables,
        assigned,
        readers,
        initialisers,
        initial_order,
        pool,
        uses_kernels: !options.reference_only,
        is_static,
        is_settled,
        inference,
        model,
    })
}

fn compile_initialisers(
    model: &Model,
    options: &CompileOptions,
    pool: &Pool,
    packed: &mut PackStore,
    environment: &Environment,
) -> Result<Option<Box<InitialiserPlan>>, RunError> {
    if options.reference_only || !model.nodes.iter().any(|node| node.is("ReadValue") && !node.inputs.is_empty()) {
        return Ok(None);
    }
    let Some(found) = initialisers(model) else { return Ok(None) };
    let compiled = compile(found.model, options, pool.clone(), packed, environment, None)?;
    Ok(Some(Box::new(InitialiserPlan { compiled, variables: found.variables, read: found.read })))
}

/// The model with layouts chosen and reorders inserted, and what is known of its values. The Parameters of a body get what
/// `parameters` says.
fn lowered(model: Model, options: &CompileOptions, parameters: Option<&[ValueFacts]>) -> (Lowered, Inference) {
    let infer = |model: &Model| {
        let facts = parameters.unwrap_or_default().iter().cloned();
        let given: Vec<_> = model.parameters.iter().copied().zip(facts).collect();
        infer_model(model, &given, &mut SymbolSource::default(), &mut Vec::new())
    };
    let inference = infer(&model);
    if !options.reference_only
        && let Some(lowered) = lower(&model, &inference, &model.constant_layers())
    {
        let inference = infer(&lowered.model);
        return (lowered, inference);
    }
    let count = model.nodes.iter().map(|node| node.outputs.len()).sum();
    (Lowered { model, layouts: vec![Layout::Plain; count] }, inference)
}

/// Any shapes, for a body of which nothing is known: what its Parameters declare may be narrower than what arrives.
fn anything(model: &Model) -> Vec<ValueFacts> {
    let open = |index: usize| {
        let element_type = model.input_facts(index).map_or(ElementType::Dynamic, |(t, _)| t);
        ValueFacts::new(element_type, PartialShape::DYNAMIC)
    };
    (0..model.parameters.len()).map(open).collect()
}

struct Builder<'b> {
    model: &'b Model,
    inference: &'b Inference,
    first_value: &'b [u32],
    layouts: &'b [Layout],
    is_static: &'b [bool],
    variables: &'b [VariableInfo],
    options: &'b CompileOptions,
    packed: &'b mut PackStore,
    environment: &'b Environment,
    /// Constant expressions that were evaluated for packing, as long as they may be needed again.
    known: Known,
    constants: HashMap<Source, Tensor>,
    pool: &'b Pool,
    /// The number of the graph, and whether each of its layers computes its value.
    graph: usize,
    computed: &'b [bool],
}

/// Says that the stored constants that a packed value is made of will not be read soon.
fn release(model: &Model, packed: Source) {
    let mut open: SmallVec<[NodeId; 8]> = SmallVec::new();
    open.push(packed.node);
    for _ in 0..MOST_RELEASED {
        let Some(id) = open.pop() else { return };
        let node = model.node(id);
        match node.tensor() {
            Some(tensor) => tensor.release(),
            None => open.extend(node.inputs.iter().map(|source| source.node)),
        }
    }
}

impl Builder<'_> {
    fn step(&mut self, id: NodeId, inputs: &[&ValueFacts], outputs: &[ValueFacts]) -> Result<Option<Step>, RunError> {
        let node = self.model.node(id);
        let mut packed_inputs: SmallVec<[usize; 2]> = SmallVec::new();
        let action = match node.operation.effects() {
            Effects::Interface if node.is("Result") => {
                self.keep_constants(id, &packed_inputs)?;
                return Ok(None);
            }
            Effects::Interface => return Ok(None),
            Effects::State => self.state_action(id)?,
            _ if node.operation.is_reshape() => Action::Reshape,
            _ if let Some(variable) = self.grows(id) => Action::Append(variable),
            _ => match self.claim(id, inputs, outputs) {
                Some(claim) => {
                    packed_inputs = claim.packed_inputs;
                    Action::Kernel(claim.kernel)
                }
                None => Action::Reference,
            },
        };
        if !matches!(action, Action::Read(_)) {
            self.keep_constants(id, &packed_inputs)?;
        }
        let mut bodies = Vec::with_capacity(node.bodies.len());
        let facts = if node.bodies.is_empty() { Vec::new() } else { body_facts(self.model, self.inference, id) };
        for (body, facts) in node.bodies.iter().zip(facts) {
            let facts = Some(facts.unwrap_or_else(|| anything(body)));
            bodies.push(compile(body.clone(), self.options, self.pool.clone(), self.packed, self.environment, facts)?);
        }
        Ok(Some(Step { node: id, action, bodies }))
    }

    fn state_action(&self, id: NodeId) -> Result<Action, RunError> {
        let node = self.model.node(id);
        let name = node.operation.variable_id().unwrap_or_default();
        let index = self.variables.iter().position(|v| v.variable_id == name);
        let index = index.ok_or_else(|| {
            let message = format!("{}: the variable \"{name}\" does not exist", node.reference());
            RunError::new(ovir_diagnostics::Code::InvalidVariable, message)
        })?;
        Ok(if node.is("Assign") { Action::Assign(index) } else { Action::Read(index) })
    }

    /// The variable that an Append reads and that is assigned what it gives.
    fn grows(&self, id: NodeId) -> Option<usize> {
        let node = self.model.node(id);
        node.operation.downcast_ref::<Append>()?;
        let read = self.model.node(node.inputs.first()?.node);
        let name = read.operation.variable_id().filter(|_| read.is("ReadValue"))?;
        let is_assigned = self.model.nodes.iter().any(|assign| {
            assign.is("Assign")
                && assign.operation.variable_id() == Some(name)
                && assign.inputs.first() == Some(&Source { node: id, port: 0 })
        });
        self.variables.iter().position(|variable| is_assigned && variable.variable_id == name)
    }

    fn claim(&mut self, id: NodeId, inputs: &[&ValueFacts], outputs: &[ValueFacts]) -> Option<Claim> {
        if self.options.reference_only {
            return None;
        }
        let node = self.model.node(id);
        let (model, is_static, inference) = (self.model, self.is_static, self.inference);
        let is_blocked = !node.is("Reorder") && self.touches_blocks(id);
        let first = self.first_value[id.index()] as usize;
        let output_layout = self.layouts.get(first).copied().unwrap_or_default();
        let environment = self.environment;
        let known = std::cell::RefCell::new(&mut self.known);
        let source = |port: usize| node.inputs.get(port).copied().filter(|source| is_static[source.node.index()]);
        let mut constant =
            |port: usize| static_value(model, source(port)?, *known.borrow_mut(), environment, true).ok();
        let mut stored = |port: usize| {
            let mut evaluate = |source| static_value(model, source, *known.borrow_mut(), environment, true);
            decompression::stored(model, inference, source(port)?, &mut evaluate)
        };
        let claim = claim(&mut ClaimContext {
            node,
            inputs,
            outputs,
            constant: &mut constant,
            stored: &mut stored,
            is_blocked,
            output_layout,
            packed: self.packed,
            graph: self.graph,
            computed: self.computed,
            precision: self.options.inference_precision,
            dynamic_group: self.options.dynamic_quantization_group_size,
        });
        // What was evaluated for packing is not kept: large weights would otherwise be in memory twice.
        self.known.clear();
        let claim = claim?;
        for port in &claim.packed_inputs {
            if let Some(source) = node.inputs.get(*port) {
                release(model, *source);
            }
        }
        Some(claim)
    }

    /// Whether a layer reads or writes blocked values: where the plan has put it on blocks, as only reorders do otherwise.
    fn touches_blocks(&self, id: NodeId) -> bool {
        let is_blocked = |node: NodeId, port: u32| {
            self.layouts.get((self.first_value[node.index()] + port) as usize) == Some(&Layout::Blocked)
        };
        is_blocked(id, 0) || self.model.node(id).inputs.iter().any(|source| is_blocked(source.node, source.port))
    }

    /// Counts a constant expression that stays in memory; constants of the file are there anyway.
    fn hold(&self, source: Source, tensor: &Tensor) -> Result<(), RunError> {
        let node = self.model.node(source.node);
        let Some(limits) = self.environment.limits().filter(|_| node.tensor().is_none()) else { return Ok(()) };
        limits.hold(tensor.bytes().len()).map_err(|error| RunError::in_node(self.model, node, &error))
    }

    /// Evaluates the constant expressions that a step reads when it runs.
    fn keep_constants(&mut self, id: NodeId, packed: &[usize]) -> Result<(), RunError> {
        for (port, source) in self.model.node(id).inputs.iter().enumerate() {
            let is_needed = self.is_static[source.node.index()] && !packed.contains(&port);
            if is_needed && !self.constants.contains_key(source) {
                let uses_kernels = !self.options.reference_only;
                let tensor =
                    static_value(self.model, *source, &mut self.known, self.environment, uses_kernels)?.aligned()?;
                self.hold(*source, &tensor)?;
                self.known.clear();
                self.constants.insert(*source, tensor);
            }
        }
        Ok(())
    }
}

fn static_value(
    model: &Model,
    source: Source,
    known: &mut Known,
    environment: &Environment,
    uses_kernels: bool,
) -> Result<Tensor, RunError> {
    if let Some(tensor) = model.node(source.node).tensor() {
        return Ok(tensor.clone());
    }
    // What is computed of constants is the same on every processor.
    let by_kernels = if uses_kernels { ByKernels::Exact } else { ByKernels::Nothing };
    let result = compute(model, source, known, &mut environment.clone(), &|_| Vec::new(), by_kernels);
    // What was made on the way is gone, and who keeps the result counts it.
    if let Some(limits) = environment.limits() {
        limits.used.store(0, Ordering::Relaxed);
    }
    result
}

fn variables(model: &Model, inference: &Inference) -> (Vec<VariableInfo>, Vec<Vec<NodeId>>) {
    let (mut variables, mut readers): (Vec<VariableInfo>, Vec<Vec<NodeId>>) = (Vec::new(), Vec::new());
    for (id, node) in model.iter().filter(|(_, n)| n.is("ReadValue") || n.is("Assign")) {
        let name = node.operation.variable_id().unwrap_or_default();
        let index = match variables.iter().position(|v| v.variable_id == name) {
            Some(index) => index,
            None => {
                let facts = inference.outputs(id).first().cloned().unwrap_or_default();
                let read = node.operation.downcast_ref::<ReadValue>();
                let is_rows_first = read.is_some_and(|read| read.is_rows_first);
                let shape = match read {
                    // A variable of version 3 has the shape of whatever is assigned.
                    Some(read) if read.declared().is_none() => PartialShape::DYNAMIC,
                    _ if is_rows_first => rows_inside(&facts.shape),
                    _ => facts.shape,
                };
                let (variable_id, element_type) = (name.to_owned(), facts.element_type);
                variables.push(VariableInfo { variable_id, element_type, shape, is_rows_first });
                readers.push(Vec::new());
                variables.len() - 1
            }
        };
        if node.is("ReadValue") {
            readers[index].push(id);
        }
    }
    (variables, readers)
}

/// The layers that only initialisers of variables need: they run after a reset, outside of the plan.
fn initialiser_layers(model: &Model, is_static: &[bool]) -> Vec<bool> {
    let mut needed = vec![false; model.nodes.len()];
    for (index, node) in model.nodes.iter().enumerate().rev() {
        if node.is("Result") || node.is("Assign") {
            needed[index] = true;
        }
        if needed[index] && !node.is("ReadValue") {
            for source in &node.inputs {
                needed[source.node.index()] = true;
            }
        }
    }
    needed.iter().zip(is_static).map(|(needed, is_static)| !needed && !is_static).collect()
}

/// The input whose memory a layer may change.
fn changed_input(node: &Node) -> Option<usize> {
    let grows = node.operation.downcast_ref::<Append>().map(|_| 0);
    node.operation.in_place_input().or(grows)
}

/// The order of the steps: topological, and a layer that may write a variable in place stands behind all other readers
/// of the old value.
fn order(model: &Model) -> Vec<NodeId> {
    let mut producers: Vec<Vec<usize>> =
        model.nodes.iter().map(|n| n.inputs.iter().map(|s| s.node.index()).collect()).collect();
    let plain: Vec<NodeId> = (0..model.nodes.len()).map(|i| NodeId(i as u32)).collect();
    let mut has_writers = false;
    for (id, node) in model.iter() {
        let Some(port) = changed_input(node) else { continue };
        let Some(source) = node.inputs.get(port) else { continue };
        if !model.node(source.node).is("ReadValue") {
            continue;
        }
        for (other, reader) in model.iter() {
            if other != id && reader.inputs.contains(source) && changed_input(reader).is_none() {
                producers[id.index()].push(other.index());
                has_writers = true;
            }
        }
    }
    if !has_writers {
        return plain;
    }
    match topological(&producers) {
        Ok(order) => order.into_iter().map(|i| NodeId(i as u32)).collect(),
        // The other reader needs what the writer computes, so the write cannot be in place; nothing is lost.
        Err(_) => plain,
    }
}
