//! Inference requests: the memory of one inference at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ovir_diagnostics::Code;
use ovir_graph::{Node, NodeId, Source};
use ovir_ops::{
    Blame, Body, Environment, Limits, OpError, RandomStream, ValueFacts, infrastructure::read_value::ReadValue,
};
use ovir_tensor::{Arena, Shape, Tensor, TensorView};

use crate::RunError;
use crate::compile::{Action, Compiled, InitialiserPlan};
use crate::eager::{ByKernels, Known, compute};
use crate::instance::{Helpers, Instance};
use crate::pool::PoolTeam;
use crate::spare::Spare;
use crate::step::{Memory, run_step};
use crate::variable::{Journal, Variable};

/// The plans that a request keeps for signatures of shapes that it has seen; the one used longest ago goes first, and its
/// memory is used for the new one.
const MAX_INSTANCES: usize = 8;

/// Sees every value that a step computes: layer, output port, value.
pub type Observer<'o> = &'o mut dyn FnMut(&Node, usize, &TensorView<'_>);

/// Time spent in layers.
#[derive(Debug, Clone, Default)]
pub struct Profile {
    /// One entry a step, in the order of the plan.
    pub entries: Vec<ProfileEntry>,
}

/// Time spent in one layer.
#[derive(Debug, Clone)]
pub struct ProfileEntry {
    /// The friendly name.
    pub friendly_name: String,
    /// The type.
    pub type_name: String,
    /// Whether a fast kernel did it.
    pub is_kernel: bool,
    /// The time of all inferences together.
    pub time: Duration,
    /// The number of inferences.
    pub runs: u64,
}

/// An inference request: inputs, outputs, variables, and the memory between them.
pub struct Request {
    compiled: Arc<Compiled>,
    state: State,
    limits: Arc<Limits>,
    time_limit: Option<Duration>,
    profile: Option<Profile>,
}

/// The memory of a request, without the model that it is for.
pub(crate) struct State {
    memory: Memory,
    instances: Vec<Instance>,
    /// For each step, the memory of its bodies.
    bodies: Vec<Vec<State>>,
    /// For each step, the position of its random stream.
    streams: Vec<RandomStream>,
    given: Vec<(NodeId, ValueFacts)>,
    signature: Vec<Shape>,
    team: PoolTeam,
}

impl Request {
    /// A request for a compiled model.
    pub fn new(compiled: Arc<Compiled>) -> Request {
        let mut state = State::new(&compiled);
        state.set_seed(&compiled, 0);
        Request { compiled, state, limits: Arc::new(Limits::default()), time_limit: None, profile: None }
    }

    /// The compiled model.
    pub fn compiled(&self) -> &Arc<Compiled> {
        &self.compiled
    }

    /// Sets input `index`. The tensor is shared, not copied.
    ///
    /// # Errors
    /// When there is no such input, or element type or shape are not those of the model.
    pub fn set_input(&mut self, index: usize, tensor: Tensor) -> Result<(), RunError> {
        let model = self.compiled.model();
        let Some((element_type, shape)) = model.input_facts(index) else {
            let count = model.parameters.len();
            let message = format!("the model has no input {index}; it has {count} inputs");
            return Err(RunError::new(Code::PortCount, message));
        };
        let name = model.input_name(index);
        if element_type.is_known() && tensor.element_type() != element_type {
            let message = format!(
                "input \"{name}\" has element type {element_type}, the given tensor has {}",
                tensor.element_type()
            );
            return Err(RunError::new(Code::TypeMismatch, message));
        }
        if !shape.contains(tensor.shape()) {
            let message = format!("input \"{name}\" has shape {shape}, the given tensor has {}", tensor.shape());
            return Err(RunError::new(Code::ShapeMismatch, message));
        }
        self.state.set_input(index, tensor.aligned()?);
        Ok(())
    }

    /// Input `index`, if it was set.
    pub fn input(&self, index: usize) -> Option<&Tensor> {
        self.state.memory.inputs.get(index)?.as_ref()
    }

    /// Output `index` of the last inference. It is shared, not copied; the next inference does not change it.
    pub fn output(&self, index: usize) -> Option<&Tensor> {
        self.state.memory.outputs.get(index)?.as_ref()
    }

    /// Gives a tensor whose memory the next inference may use for output `index`.
    pub fn set_output(&mut self, index: usize, tensor: Tensor) {
        if let Some(slot) = self.state.memory.outputs.get_mut(index) {
            *slot = Some(tensor);
        }
    }

    /// Runs one inference.
    ///
    /// # Errors
    /// A missing input, a violation that depends on shapes or data, or a limit. Variables are then as they were.
    pub fn infer(&mut self) -> Result<(), RunError> {
        self.run(None)
    }

    /// Runs one inference and shows every value that it computes.
    ///
    /// # Errors
    /// As [`Request::infer`].
    pub fn infer_observed(&mut self, mut observer: Observer<'_>) -> Result<(), RunError> {
        self.run(Some(&mut observer))
    }

    fn run(&mut self, observer: Option<&mut Observer<'_>>) -> Result<(), RunError> {
        self.limits.used.store(0, std::sync::atomic::Ordering::Relaxed);
        let mut environment = match self.time_limit {
            // The deadline is part of the limits, which are shared with whoever may cancel.
            Some(limit) => Environment::new(self.limits.clone()).with_deadline(Instant::now() + limit),
            None => Environment::new(self.limits.clone()),
        };
        self.state.infer(&self.compiled, &mut environment, observer, self.profile.as_mut())
    }

    /// Limits the memory that values may take together in one inference, those included that stay from inference to
    /// inference: evaluated constant expressions, intermediate values, outputs, variables. 0 means no limit.
    pub fn set_memory_limit(&mut self, bytes: usize) {
        let held = self.compiled.constant_bytes().saturating_add(self.state.held_bytes());
        self.limits = Arc::new(Limits::of_memory(bytes, held));
    }

    /// Limits the time of one inference.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.time_limit = limit;
    }

    /// What another thread needs to cancel a running inference: set `cancelled`.
    pub fn limits(&self) -> Arc<Limits> {
        self.limits.clone()
    }

    /// Allows inferences again after a cancellation.
    pub fn clear_cancellation(&self) {
        self.limits.cancelled.store(false, std::sync::atomic::Ordering::Relaxed);
    }

    /// Sets all variables and random streams back to the beginning.
    pub fn reset(&mut self) {
        self.state.reset();
    }

    /// The value of variable `index`; `None` before the first inference and after a reset. It is a snapshot.
    ///
    /// # Errors
    /// When memory for a snapshot cannot be had.
    pub fn variable(&self, index: usize) -> Result<Option<Tensor>, RunError> {
        let stored = self.state.memory.variables.get(index).and_then(|variable| variable.current.as_ref());
        let (Some(stored), Some(info)) = (stored, self.compiled.variables.get(index)) else { return Ok(None) };
        Ok(Some(info.value(stored)?))
    }

    /// Sets the value of variable `index`.
    ///
    /// # Errors
    /// When there is no such variable, or element type or shape do not fit.
    pub fn set_variable(&mut self, index: usize, tensor: Tensor) -> Result<(), RunError> {
        let Some(info) = self.compiled.variables().get(index) else {
            return Err(RunError::new(Code::InvalidVariable, format!("the model has no variable {index}")));
        };
        if info.element_type.merge(tensor.element_type()).is_none() || !info.shape.contains(tensor.shape()) {
            let message = format!(
                "variable \"{}\" is {}{}, the given tensor is {}{}",
                info.variable_id,
                info.element_type,
                info.shape,
                tensor.element_type(),
                tensor.shape()
            );
            return Err(RunError::new(Code::InvalidVariable, message));
        }
        self.state.memory.variables[index].current = Some(info.stored(tensor.aligned()?)?);
        Ok(())
    }

    /// Begins to measure the time of every step, or ends it.
    pub fn set_profiling(&mut self, on: bool) {
        self.profile = on.then(Profile::default);
    }

    /// Sets the seed of random layers whose own seeds are all 0, which is 0 otherwise, and begins their streams anew.
    pub fn set_seed(&mut self, seed: u64) {
        self.state.set_seed(&self.compiled, seed);
    }

    /// The times measured so far.
    pub fn profile(&self) -> Option<&Profile> {
        self.profile.as_ref()
    }

    /// The bytes of the arena that the last inference used.
    pub fn arena_bytes(&self) -> usize {
        self.state.memory.arena.len()
    }
}

impl State {
    /// The memory for requests of a compiled model.
    pub fn new(compiled: &Compiled) -> State {
        let some = |count: usize| (0..count).map(|_| None).collect();
        State {
            memory: Memory {
                arena: Arena::new(),
                inputs: some(compiled.model.parameters.len()),
                outputs: some(compiled.model.results.len()),
                variables: compiled.variables.iter().map(|_| Variable::default()).collect(),
                dynamic: some(compiled.value_count),
                claimed: vec![0; compiled.value_count],
                made: vec![0; compiled.value_count],
                spare: Spare::default(),
                journal: Journal::default(),
                promises: (0..compiled.model.nodes.len()).map(|_| None).collect(),
            },
            instances: Vec::new(),
            bodies: compiled.steps.iter().map(|step| step.bodies.iter().map(State::new).collect()).collect(),
            streams: vec![RandomStream::default(); compiled.steps.len()],
            given: Vec::new(),
            signature: Vec::new(),
            team: compiled.pool.team(),
        }
    }

    /// Begins all random streams anew, with seeds that differ from layer to layer.
    fn set_seed(&mut self, compiled: &Compiled, seed: u64) {
        for (step, (stream, bodies)) in compiled.steps.iter().zip(self.streams.iter_mut().zip(&mut self.bodies)) {
            let name = compiled.model.node(step.node).friendly_name.as_bytes();
            // FNV-1a, which is the same everywhere.
            let hash = name.iter().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash: u64, byte| {
                (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            });
            *stream = RandomStream { seed: hash, ..RandomStream::default() };
            for (body, state) in step.bodies.iter().zip(bodies) {
                state.set_seed(body, seed);
            }
        }
    }

    /// Sets an input without checking it.
    pub fn set_input(&mut self, index: usize, tensor: Tensor) {
        if let Some(slot) = self.memory.inputs.get_mut(index) {
            *slot = Some(tensor);
        }
    }

    /// Gives an output memory of which it may take possession.
    pub fn set_output(&mut self, index: usize, tensor: Tensor) {
        if let Some(slot) = self.memory.outputs.get_mut(index) {
            *slot = Some(tensor);
        }
    }

    /// The bytes of the arenas.
    fn held_bytes(&self) -> usize {
        let bodies = self.bodies.iter().flatten().map(State::held_bytes);
        bodies.fold(self.memory.arena.len(), usize::saturating_add)
    }

    /// The bytes that the last inference claimed for outputs and variables.
    pub fn tensor_bytes(&self) -> usize {
        self.instances.last().map_or(0, |instance| instance.tensor_bytes)
    }

    /// Takes all outputs out.
    pub fn take_outputs(&mut self) -> Option<Vec<Tensor>> {
        self.memory.outputs.iter_mut().map(Option::take).collect()
    }

    fn reset(&mut self) {
        for variable in &mut self.memory.variables {
            variable.current = None;
        }
        for stream in &mut self.streams {
            stream.state = RandomStream::default().state;
        }
        for state in self.bodies.iter_mut().flatten() {
            state.reset();
        }
    }

    /// Runs one inference.
    ///
    /// # Errors
    /// A missing input, a violation that depends on shapes or data, or a limit.
    pub fn infer(
        &mut self,
        compiled: &Compiled,
        environment: &mut Environment,
        observer: Option<&mut Observer<'_>>,
        profile: Option<&mut Profile>,
    ) -> Result<(), RunError> {
        self.check_inputs(compiled)?;
        self.initialise_variables(compiled, environment)?;
        let position = self.instance(compiled)?;
        let State { memory, instances, bodies, streams, team, .. } = self;
        let instance = &instances[position];
        memory.begin_inference(instance);
        reserve(compiled, instance, memory, environment)?;
        let mut execution = Execution { compiled, instance, memory, bodies, streams, environment, profile };
        let run = || match observer {
            Some(observer) => execution.run(&mut |execution, position| execution.show(position, observer)),
            None => execution.run(&mut |_, _| Ok(())),
        };
        let result = match instance.helpers() {
            Helpers::Always => team.lead(run),
            Helpers::WhenRepeated => team.lead_when_repeated(run),
            Helpers::Never => run(),
        };
        if let Err(error) = result.and_then(|()| self.give_outputs(compiled, position)) {
            self.memory.variables.iter_mut().for_each(Variable::shrink);
            self.memory.journal.roll_back(&mut self.memory.variables);
            self.memory.end_inference(&self.instances[position], environment);
            return Err(error);
        }
        self.commit(compiled, position, environment);
        Ok(())
    }

    fn check_inputs(&self, compiled: &Compiled) -> Result<(), RunError> {
        match self.memory.inputs.iter().position(Option::is_none) {
            None => Ok(()),
            Some(index) => {
                let message = format!("input \"{}\" was not given", compiled.model.input_name(index));
                Err(RunError::new(Code::PortCount, message))
            }
        }
    }

    /// Gives variables without a value their initial one.
    fn initialise_variables(&mut self, compiled: &Compiled, environment: &mut Environment) -> Result<(), RunError> {
        let have_values = |variables: &[Variable]| variables.iter().all(|variable| variable.current.is_some());
        if have_values(&self.memory.variables) {
            return Ok(());
        }
        self.run_initialisers(compiled, environment)?;
        if have_values(&self.memory.variables) {
            return Ok(());
        }
        let mut known = Known::new();
        for (index, id) in compiled.model.parameters.iter().enumerate() {
            if let Some(tensor) = &self.memory.inputs[index] {
                known.insert(Source { node: *id, port: 0 }, tensor.clone());
            }
        }
        for (source, tensor) in &compiled.constants {
            known.insert(*source, tensor.clone());
        }
        for index in &compiled.initial_order {
            let value = match &self.memory.variables[*index].current {
                Some(value) => value.clone(),
                None => initial_value(compiled, *index, &mut known, environment)?,
            };
            // An initialiser may read other variables.
            for reader in &compiled.readers[*index] {
                known.insert(Source { node: *reader, port: 0 }, value.clone());
            }
            self.memory.variables[*index].current = Some(value);
        }
        Ok(())
    }

    /// Runs the plan of initialisers. Its memory is given back, because it runs once in a while.
    fn run_initialisers(&mut self, compiled: &Compiled, environment: &mut Environment) -> Result<(), RunError> {
        let Some(InitialiserPlan { compiled: plan, variables, read }) = compiled.initialisers.as_deref() else {
            return Ok(());
        };
        let has_value = |index: &usize| self.memory.variables[*index].current.is_some();
        if variables.iter().all(has_value) || read.iter().any(has_value) {
            return Ok(());
        }
        let mut state = State::new(plan);
        state.memory.inputs.clone_from(&self.memory.inputs);
        let result = state.infer(plan, environment, None, None);
        if let Some(limits) = environment.limits() {
            limits.let_go(state.held_bytes());
        }
        result?;
        for (index, value) in variables.iter().zip(state.take_outputs().unwrap_or_default()) {
            let variable = &mut self.memory.variables[*index].current;
            if variable.is_none() {
                *variable = Some(compiled.variables[*index].stored(value)?);
            }
        }
        Ok(())
    }

    /// The plan for the shapes of inputs and variables, as a position among the instances.
    fn instance(&mut self, compiled: &Compiled) -> Result<usize, RunError> {
        self.signature.clear();
        let tensors = self.memory.inputs.iter().chain(self.memory.variables.iter().map(|v| &v.current));
        self.signature.extend(tensors.map(|t| t.as_ref().map(|t| t.shape().clone()).unwrap_or_default()));
        if let Some(found) = self.instances.iter().position(|i| i.signature == self.signature) {
            let last = self.instances.len() - 1;
            // The end of the list is the plan used last; plans at the front make room first.
            self.instances[found..].rotate_left(1);
            return Ok(last);
        }
        self.given.clear();
        for (index, id) in compiled.model.parameters.iter().enumerate() {
            if let Some(tensor) = &self.memory.inputs[index] {
                self.given.push((*id, exact_facts(tensor)));
            }
        }
        for (readers, variable) in compiled.readers.iter().zip(&self.memory.variables) {
            if let Some(tensor) = &variable.current {
                self.given.extend(readers.iter().map(|id| (*id, exact_facts(tensor))));
            }
        }
        let mut instance =
            if self.instances.len() < MAX_INSTANCES { Instance::default() } else { self.instances.remove(0) };
        instance.signature.clear();
        instance.prepare(compiled, &self.given)?;
        instance.signature.extend(self.signature.iter().cloned());
        self.instances.push(instance);
        Ok(self.instances.len() - 1)
    }

    /// Gives the outputs that no step has written where they belong.
    fn give_outputs(&mut self, compiled: &Compiled, position: usize) -> Result<(), RunError> {
        let instance = &self.instances[position];
        for (index, (value, source)) in instance.outputs.iter().enumerate() {
            if instance.places[*value] != crate::instance::Place::Output(index) {
                self.memory.give(compiled, instance, *source, index)?;
            }
        }
        Ok(())
    }

    /// Gives variables their new values.
    fn commit(&mut self, compiled: &Compiled, position: usize, environment: &Environment) {
        let instance = &self.instances[position];
        self.memory.end_inference(instance, environment);
        self.memory.journal.commit();
        for &(source, variable) in &compiled.assigned {
            let place = &instance.places[compiled.value(source)];
            if *place == crate::instance::Place::Current(variable) {
                continue;
            }
            let variable = &mut self.memory.variables[variable];
            variable.grown_from = None;
            if variable.next.is_some() {
                std::mem::swap(&mut variable.current, &mut variable.next);
            }
        }
    }
}

/// Makes sure that the memory of a plan is there and within the limits. What is missing is blamed on the layer that takes
/// most.
fn reserve(
    compiled: &Compiled,
    instance: &Instance,
    memory: &mut Memory,
    environment: &Environment,
) -> Result<(), RunError> {
    let growth = instance.arena_bytes.saturating_sub(memory.arena.len());
    let is_allowed = match environment.limits() {
        Some(limits) => limits.claim(instance.tensor_bytes).and_then(|()| limits.hold(growth)),
        None => Ok(()),
    };
    is_allowed.and_then(|()| Ok(memory.arena.reserve(instance.arena_bytes)?)).map_err(|error| {
        let Some((source, bytes)) = instance.largest else { return RunError::from(error) };
        let value = compiled.value(source);
        let shape = instance.shape(value).map_or(String::new(), ToString::to_string);
        let message =
            format!("{}; the largest value is {}{shape} of {bytes} bytes here", error.message(), instance.types[value]);
        let error = OpError::new(error.code(), Blame::Output(source.port as usize), message);
        RunError::in_node(&compiled.model, compiled.model.node(source.node), &error)
    })
}

/// One run through the steps of a plan.
struct Execution<'e> {
    compiled: &'e Compiled,
    instance: &'e Instance,
    memory: &'e mut Memory,
    bodies: &'e mut [Vec<State>],
    streams: &'e mut [RandomStream],
    environment: &'e mut Environment,
    profile: Option<&'e mut Profile>,
}

impl Execution<'_> {
    fn run(&mut self, after: &mut dyn FnMut(&mut Self, usize) -> Result<(), RunError>) -> Result<(), RunError> {
        for position in 0..self.compiled.steps.len() {
            self.environment.poll()?;
            let started = self.profile.is_some().then(Instant::now);
            self.environment.random = self.streams[position];
            run_step(
                self.compiled,
                self.instance,
                position,
                self.memory,
                &mut self.bodies[position],
                self.environment,
            )?;
            self.streams[position] = self.environment.random;
            if let Some(started) = started {
                self.measure(position, started.elapsed());
            }
            after(self, position)?;
            self.memory.free(&self.instance.steps[position].dead, self.environment);
        }
        Ok(())
    }

    fn measure(&mut self, position: usize, time: Duration) {
        let Some(profile) = &mut self.profile else { return };
        if profile.entries.is_empty() {
            profile.entries.extend((0..self.compiled.steps.len()).map(|position| {
                let (step, plan) = (&self.compiled.steps[position], &self.instance.steps[position]);
                let node = self.compiled.model.node(step.node);
                // Of a step whose shapes are not known the kernel is asked each time.
                let is_kernel = plan.use_kernel || !plan.is_static && matches!(step.action, Action::Kernel(_));
                ProfileEntry {
                    friendly_name: node.friendly_name.clone(),
                    type_name: node.type_name.to_string(),
                    is_kernel,
                    time: Duration::ZERO,
                    runs: 0,
                }
            }));
        }
        if let Some(entry) = profile.entries.get_mut(position) {
            entry.time += time;
            entry.runs += 1;
        }
    }

    fn show(&mut self, position: usize, observer: &mut Observer<'_>) -> Result<(), RunError> {
        let id = self.compiled.steps[position].node;
        let node = self.compiled.model.node(id);
        if matches!(&*node.type_name, "Assign" | "Reorder") {
            return Ok(());
        }
        for port in 0..node.outputs.len() {
            let tensor = self.memory.read(self.compiled, self.instance, Source { node: id, port: port as u32 })?;
            observer(node, port, &tensor.view());
        }
        Ok(())
    }
}

/// What is known of a tensor that an inference gets: type and shape, not the values, which change from run to run.
fn exact_facts(tensor: &Tensor) -> ValueFacts {
    ValueFacts::new(tensor.element_type(), tensor.shape().into())
}

/// The value that a variable has after a reset: what its initialiser computes, or zeros.
fn initial_value(
    compiled: &Compiled,
    index: usize,
    known: &mut Known,
    environment: &mut Environment,
) -> Result<Tensor, RunError> {
    let model = &compiled.model;
    let info = &compiled.variables[index];
    let initialiser = compiled.readers[index].iter().find_map(|id| model.node(*id).inputs.first());
    if let Some(source) = initialiser {
        let bodies = |_| Vec::<Box<dyn Body>>::new();
        let by_kernels = if compiled.uses_kernels { ByKernels::All } else { ByKernels::Nothing };
        let value = compute(model, *source, known, environment, &bodies, by_kernels)?;
        return Ok(info.stored(value)?);
    }
    let declared = compiled.readers[index].iter().find_map(|id| {
        let read = model.node(*id).operation.downcast_ref::<ReadValue>()?;
        read.declared().map(|(element_type, shape)| (element_type, shape.clone()))
    });
    let (element_type, shape) = declared.unwrap_or((info.element_type, info.shape.clone()));
    let shape: Shape = shape
        .dims()
        .unwrap_or_default()
        .iter()
        .map(|dim| dim.get().unwrap_or_else(|| usize::try_from(dim.min()).unwrap_or(0)))
        .collect();
    Ok(environment.allocate(element_type, &shape)?)
}
