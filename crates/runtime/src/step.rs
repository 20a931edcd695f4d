//! One step: its inputs and outputs brought together, and run.

use std::ops::Range;

use ovir_graph::{Node, NodeId, Source, infer_layer};
use ovir_ops::rows::{Append, add_rows, continue_images};
use ovir_ops::{
    Body, Environment, EvaluateContext, OpError, OutputSlot, OutputSlots, RandomStream, ReadValues, ValueFacts,
    integers_of_view,
};
use ovir_tensor::{Arena, ElementType, MAX_BOUNDS_ELEMENTS, Shape, SmallVec, Tensor, TensorView, TensorViewMut};

use crate::RunError;
use crate::body::BodyPlan;
use crate::compile::{Action, Compiled, Step};
use crate::eager::view_facts;
use crate::fast::{Kernel, StepIo, StepShapes};
use crate::instance::{Instance, MOST_INPUTS, MOST_OUTPUTS, Place, StepPlan};
use crate::layout::{Layout, block, physical_shape, plain_tensor};
use crate::request::State;
use crate::spare::Spare;
use crate::variable::{Journal, Variable};

/// The memory of a request in which values lie.
pub(crate) struct Memory {
    pub arena: Arena,
    pub inputs: Vec<Option<Tensor>>,
    pub outputs: Vec<Option<Tensor>>,
    pub variables: Vec<Variable>,
    /// Tensors of values whose shapes are known only when they are computed, by value.
    pub dynamic: Vec<Option<Tensor>>,
    /// For each of these, the bytes that were claimed for it from the memory limit.
    pub claimed: Vec<usize>,
    /// For each whose shape its layer alone knows, the bytes of memory that it had last; 0 where that is not worth finding again.
    pub made: Vec<usize>,
    /// The memory of those that are dead.
    pub spare: Spare,
    /// What was overwritten in variables.
    pub journal: Journal,
    /// For each layer what it promised last, if its shapes are known only when it runs.
    pub promises: Vec<Option<Box<Promise>>>,
}

type Inputs<'a> = SmallVec<[TensorView<'a>; 8]>;

/// What an input of a step has for its bytes.
enum Held {
    /// A tensor.
    Tensor(Tensor),
    /// A range of the arena.
    Arena,
    /// Nothing: a constant that was packed.
    Nothing,
}

type HeldInputs = SmallVec<[Held; 8]>;

/// For each output the tensor to write, if its shape is known.
pub(crate) type GivenTensors = SmallVec<[Option<Tensor>; 2]>;

/// For each output whose shape its layer alone knows a tensor whose memory may suffice.
type Reserves = SmallVec<[Option<Tensor>; 2]>;

impl Memory {
    /// Takes back the memory of outputs that are to be tensors of their own and that nobody outside has kept.
    pub fn begin_inference(&mut self, instance: &Instance) {
        for (output, (value, _)) in self.outputs.iter_mut().zip(&instance.outputs) {
            if matches!(instance.places[*value], Place::Dynamic(_))
                && let Some(tensor) = output.take()
            {
                self.spare.give(tensor);
            }
        }
    }

    /// Values in tensors of their own are dead.
    pub fn free(&mut self, dead: &[u32], environment: &Environment) {
        for value in dead {
            self.free_one(*value as usize, environment);
        }
    }

    /// All values in tensors of their own are dead.
    pub fn end_inference(&mut self, instance: &Instance, environment: &Environment) {
        if instance.has_own_tensors {
            for value in 0..self.dynamic.len() {
                self.free_one(value, environment);
            }
        }
        self.spare.end_inference();
    }

    fn free_one(&mut self, value: usize, environment: &Environment) {
        if self.claimed[value] == 0 && self.dynamic[value].is_none() {
            return;
        }
        let claimed = std::mem::take(&mut self.claimed[value]);
        let limits = environment.limits();
        if let Some(limits) = limits {
            limits.release(claimed);
        }
        // What lies in reserve would not count against a limit.
        let is_limited = limits.is_some_and(|limits| limits.memory != 0);
        if let Some(tensor) = self.dynamic[value].take().filter(|_| !is_limited) {
            self.spare.give(tensor);
        }
    }

    /// The tensor that holds the value at `place`, if it is not in the arena.
    fn tensor<'a>(&'a self, compiled: &'a Compiled, instance: &'a Instance, place: &Place) -> Option<&'a Tensor> {
        match place {
            Place::None | Place::Arena(_) => None,
            Place::Constant(index) => Some(&compiled.constants.get(*index)?.1),
            Place::Late(index) => instance.late.get(*index),
            Place::Input(index) => self.inputs.get(*index)?.as_ref(),
            Place::Output(index) => self.outputs.get(*index)?.as_ref(),
            Place::Current(index) => self.variables.get(*index)?.current.as_ref(),
            Place::Next(index) => self.variables.get(*index)?.next.as_ref(),
            Place::Dynamic(value) => self.dynamic.get(*value)?.as_ref(),
        }
    }

    /// The slot of a place that is a tensor to write.
    fn slot(&mut self, place: &Place) -> Option<&mut Option<Tensor>> {
        match place {
            Place::Output(index) => self.outputs.get_mut(*index),
            Place::Current(index) => Some(&mut self.variables.get_mut(*index)?.current),
            Place::Next(index) => Some(&mut self.variables.get_mut(*index)?.next),
            Place::Dynamic(value) => self.dynamic.get_mut(*value),
            _ => None,
        }
    }

    /// Gives a value as output `index`, in the memory that the output has already where the value lies in the arena.
    ///
    /// # Errors
    /// When memory cannot be had.
    pub fn give(
        &mut self,
        compiled: &Compiled,
        instance: &Instance,
        source: Source,
        index: usize,
    ) -> Result<(), RunError> {
        let value = compiled.value(source);
        let (Place::Arena(range), Some(shape)) = (&instance.places[value], instance.shape(value)) else {
            let tensor = self.read(compiled, instance, source)?;
            self.outputs[index] = Some(tensor);
            return Ok(());
        };
        Tensor::prepare(&mut self.outputs[index], instance.types[value], shape)?;
        let parts = self.arena.parts(std::slice::from_ref(range), &[])?;
        if let Some(output) = &mut self.outputs[index] {
            output.bytes_mut()?.copy_from_slice(parts.reads[0]);
        }
        Ok(())
    }

    /// Where some values are, and the ranges of those in the arena, in their order.
    fn held(
        &self,
        compiled: &Compiled,
        instance: &Instance,
        sources: &[Source],
    ) -> (HeldInputs, SmallVec<[Range<usize>; 4]>) {
        let mut held = HeldInputs::new();
        let mut ranges: SmallVec<[Range<usize>; 4]> = SmallVec::new();
        for source in sources {
            let place = &instance.places[compiled.value(*source)];
            held.push(match (place, self.tensor(compiled, instance, place)) {
                (Place::Arena(range), _) => {
                    ranges.push(range.clone());
                    Held::Arena
                }
                (_, Some(tensor)) => Held::Tensor(tensor.clone()),
                (_, None) => Held::Nothing,
            });
        }
        (held, ranges)
    }

    /// A copy of a value (without copying where it is a plain tensor of its own).
    pub fn read(&mut self, compiled: &Compiled, instance: &Instance, source: Source) -> Result<Tensor, RunError> {
        let tensor = self.read_as_it_lies(compiled, instance, source)?;
        if compiled.layout(source) == Layout::Plain {
            return Ok(tensor);
        }
        let shape = logical_shape(compiled, source, tensor.shape());
        let node = compiled.model.node(source.node);
        plain_tensor(&tensor.view(), &shape).map_err(|error| RunError::in_node(&compiled.model, node, &error))
    }

    /// A copy of a value as it lies in memory; a blocked one has the shape of its memory.
    fn read_as_it_lies(
        &mut self,
        compiled: &Compiled,
        instance: &Instance,
        source: Source,
    ) -> Result<Tensor, RunError> {
        let value = compiled.value(source);
        let place = &instance.places[value];
        let shape = instance.shape(value).map(|shape| physical_shape(compiled.layouts[value], shape));
        if let Place::Arena(range) = place {
            let shape = shape.unwrap_or_default();
            let parts = self.arena.parts(std::slice::from_ref(range), &[])?;
            return Ok(Tensor::from_bytes(instance.types[value], shape, parts.reads[0])?);
        }
        let tensor =
            self.tensor(compiled, instance, place).cloned().ok_or_else(|| nothing(compiled.model.node(source.node)))?;
        match shape {
            Some(shape) if *tensor.shape() != shape => Ok(tensor.reshaped(shape)?),
            _ => Ok(tensor),
        }
    }
}

/// The shape of a value whose memory has the shape `physical`.
fn logical_shape(compiled: &Compiled, source: Source, physical: &Shape) -> Shape {
    if compiled.layout(source) == Layout::Plain {
        return physical.clone();
    }
    let mut shape: Shape = physical.iter().take(physical.rank().saturating_sub(1)).copied().collect();
    if let Some(channels) = shape.get_mut(1) {
        *channels = compiled.channels(source);
    }
    shape
}

/// Runs step `position`.
///
/// # Errors
/// What the layer says, with its place.
pub(crate) fn run_step(
    compiled: &Compiled,
    instance: &Instance,
    position: usize,
    memory: &mut Memory,
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), RunError> {
    let (step, plan) = (&compiled.steps[position], &instance.steps[position]);
    match &step.action {
        Action::Kernel(kernel) if plan.is_plain => {
            run_plain(compiled, instance, plan, &**kernel, memory, &mut environment.random)
                .map_err(|error| in_layer(compiled, step, &error))
        }
        _ => run_any(compiled, instance, position, memory, bodies, environment),
    }
}

#[cold]
fn in_layer(compiled: &Compiled, step: &Step, error: &OpError) -> RunError {
    RunError::in_node(&compiled.model, compiled.model.node(step.node), error)
}

/// A plain step. Everything else is a function of its own, so that this one is short.
fn run_plain(
    compiled: &Compiled,
    instance: &Instance,
    plan: &StepPlan,
    kernel: &dyn Kernel,
    memory: &mut Memory,
    random: &mut RandomStream,
) -> Result<(), OpError> {
    let missing = || OpError::unsupported("a value is missing");
    let Memory { arena, inputs, outputs, variables, dynamic, .. } = memory;
    let (mut arena_reads, mut arena_writes) = arena.borrow(&plan.arena)?;
    let rest = TensorSlots { compiled, instance, inputs, outputs, variables, dynamic };
    let no_shape = Shape::default();
    let mut views = [TensorView::of_bytes(ElementType::U8, &no_shape, &[]); MOST_INPUTS];
    for ((port, value), view) in plan.inputs.iter().enumerate().zip(&mut views) {
        let value = *value as usize;
        let bytes = match &instance.places[value] {
            _ if plan.in_place == Some(port) => &[],
            Place::Arena(_) => arena_reads.next().unwrap_or(&[]),
            // A packed constant is not needed any more.
            place => rest.tensor(place).map_or(&[][..], Tensor::bytes),
        };
        let shape = instance.shape(value).ok_or_else(missing)?;
        *view = TensorView::of_bytes(instance.types[value], shape, bytes);
    }
    let mut targets: [TensorViewMut<'_>; MOST_OUTPUTS] =
        std::array::from_fn(|_| TensorViewMut::of_bytes(ElementType::U8, &no_shape, &mut []));
    for (value, target) in plan.outputs.clone().zip(&mut targets) {
        let value = value as usize;
        let shape = instance.shape(value).ok_or_else(missing)?;
        *target = TensorViewMut::of_bytes(instance.types[value], shape, arena_writes.next().unwrap_or(&mut []));
    }
    let scratch = arena_writes.next().unwrap_or(&mut []);
    let (inputs, outputs) = (&views[..plan.inputs.len()], &mut targets[..plan.outputs.len()]);
    kernel.run(StepIo { inputs, outputs, scratch, in_place: plan.in_place, random })
}

/// A step that is not plain.
#[inline(never)]
fn run_any(
    compiled: &Compiled,
    instance: &Instance,
    position: usize,
    memory: &mut Memory,
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), RunError> {
    let (step, plan) = (&compiled.steps[position], &instance.steps[position]);
    let node = compiled.model.node(step.node);
    match &step.action {
        Action::Read(_) => return Ok(()),
        Action::Assign(variable) => return assign(compiled, instance, node, *variable, memory),
        Action::Reshape if plan.is_static => return Ok(()),
        Action::Reshape => return reshape(compiled, instance, step, memory),
        Action::Append(variable) if plan.is_static => {
            let is_in_place = plan.in_place.is_some();
            return append(compiled, instance, node, *variable, is_in_place, memory)
                .map_err(|error| RunError::in_node(&compiled.model, node, &error));
        }
        Action::Append(_) | Action::Kernel(_) | Action::Reference => {}
    }
    if plan.is_static {
        return run_static(compiled, instance, step, plan, memory, bodies, environment);
    }
    run_dynamic(compiled, instance, step, memory, bodies, environment)
}

fn assign(
    compiled: &Compiled,
    instance: &Instance,
    node: &Node,
    variable: usize,
    memory: &mut Memory,
) -> Result<(), RunError> {
    let source = *node.inputs.first().ok_or_else(|| nothing(node))?;
    match &instance.places[compiled.value(source)] {
        Place::Next(index) if *index == variable => Ok(()),
        Place::Current(index) if *index == variable => Ok(()),
        _ => {
            let tensor = memory.read(compiled, instance, source)?;
            memory.variables[variable].next = Some(tensor);
            Ok(())
        }
    }
}

/// Puts new rows behind those of a variable: in their memory, if nobody reads it any more and the images are those that they
/// were, else in that of the next value.
fn append(
    compiled: &Compiled,
    instance: &Instance,
    node: &Node,
    variable: usize,
    is_in_place: bool,
    memory: &mut Memory,
) -> Result<(), OpError> {
    let missing = || OpError::unsupported("a value is missing");
    let operation = node.operation.downcast_ref::<Append>().ok_or_else(missing)?;
    // The state is not held, because who holds it shares its memory.
    let sources = node.inputs.get(1..).unwrap_or_default();
    let (held, ranges) = memory.held(compiled, instance, sources);
    let Memory { arena, variables, .. } = memory;
    let mut arena_reads = arena.parts(&ranges, &[])?.reads.into_iter();
    let mut views: Inputs<'_> = SmallVec::new();
    for (source, held) in sources.iter().zip(&held) {
        let value = compiled.value(*source);
        let bytes = match held {
            Held::Tensor(tensor) => tensor.bytes(),
            Held::Arena => arena_reads.next().unwrap_or(&[]),
            Held::Nothing => &[],
        };
        views.push(TensorView::of_bytes(instance.types[value], instance.shape(value).ok_or_else(missing)?, bytes));
    }
    let (Some(new), images) = (views.first(), views.get(1)) else { return Err(missing()) };
    let images = images.map(|images| integers_of_view(*images).ok_or_else(missing)).transpose()?;
    let Variable { current, next, grown_from } = variables.get_mut(variable).ok_or_else(missing)?;
    let state = current.as_ref().ok_or_else(missing)?;
    let (element_type, old_shape) = (state.element_type(), state.shape().clone());
    let sizes = operation.sizes(element_type, &old_shape, new.shape(), images.as_deref())?;
    let shape = sizes.shape(new.shape());
    if is_in_place
        && sizes.keeps_state()
        && let Some(mut tensor) = current.take()
    {
        let is_changed = tensor.resize(&shape);
        if matches!(is_changed, Ok(true)) {
            *grown_from = Some(old_shape);
            add_rows(new.bytes(), sizes.new, sizes.parts(next.insert(tensor).bytes_mut()?).1);
            return Ok(());
        }
        *current = Some(tensor);
        is_changed?;
    }
    Tensor::prepare(next, element_type, &shape)?;
    let (Some(state), Some(tensor)) = (current, next) else { return Err(missing()) };
    let (old, added) = sizes.parts(tensor.bytes_mut()?);
    continue_images(state.bytes(), &sizes.images, [sizes.state[0], sizes.state[1], sizes.image_bytes()], old);
    add_rows(new.bytes(), sizes.new, added);
    Ok(())
}

/// A reshaped value whose shape is known only now.
fn reshape(compiled: &Compiled, instance: &Instance, step: &Step, memory: &mut Memory) -> Result<(), RunError> {
    let node = compiled.model.node(step.node);
    let output = Source { node: step.node, port: 0 };
    let mut tensors: SmallVec<[Tensor; 2]> = SmallVec::new();
    for source in &node.inputs {
        tensors.push(memory.read_as_it_lies(compiled, instance, *source)?);
    }
    let first = node.inputs.first().ok_or_else(|| nothing(node))?;
    let logical = logical_shape(compiled, *first, tensors[0].shape());
    let mut views: Inputs<'_> = tensors.iter().map(Tensor::view).collect();
    if compiled.layout(*first) == Layout::Blocked {
        views[0] = TensorView::of_bytes(tensors[0].element_type(), &logical, tensors[0].bytes());
    }
    let is_known: SmallVec<[bool; 2]> = SmallVec::from_elem(true, views.len());
    let promise = Promise::of(compiled, step, &views, &is_known, &mut memory.promises[step.node.index()])?;
    let Some((_, Some(shape))) = promise.outputs.first() else { return Err(nothing(node)) };
    let reshaped = tensors[0].reshaped(physical_shape(compiled.layout(output), shape))?;
    promise.keep(&mut memory.promises[step.node.index()]);
    let value = compiled.value(output);
    memory.dynamic[value] = Some(reshaped);
    // The memory is now that of the reshaped value, which may live longer.
    if let Some(Place::Dynamic(from)) = node.inputs.first().map(|source| &instance.places[compiled.value(*source)]) {
        memory.claimed[value] = std::mem::take(&mut memory.claimed[*from]);
    }
    Ok(())
}

type Promised = SmallVec<[(ElementType, Option<Shape>); 2]>;

/// What a layer of shapes that are known only when it runs says of its outputs, and how they are computed. The same holds for
/// all inputs of the same types and shapes whose values are the same where its rule has looked at them.
pub(crate) struct Promise {
    inputs: SmallVec<[(ElementType, Shape); 4]>,
    /// What the rule has looked at, and the bytes of that.
    read: ReadValues,
    values: SmallVec<[u8; 32]>,
    outputs: Promised,
    /// The bytes of scratch of the kernel that computes the outputs; `None` if it does not do these shapes.
    kernel: Option<usize>,
    /// Whether there is nothing to compute.
    is_nothing: bool,
    /// Whether the outputs are those of a branch, which infers their shapes itself.
    is_branch: bool,
    /// Whether it may be kept.
    is_lasting: bool,
}

impl Promise {
    /// The last promise if it holds again, or a new one.
    fn of(
        compiled: &Compiled,
        step: &Step,
        views: &[TensorView<'_>],
        is_known: &[bool],
        last: &mut Option<Box<Promise>>,
    ) -> Result<Box<Promise>, RunError> {
        match last.take().filter(|last| last.holds_for(views)) {
            Some(last) => {
                debug_assert!(
                    Promise::new(compiled, step, views, is_known).is_ok_and(|new| new.outputs == last.outputs),
                    "the rule has looked at something else"
                );
                Ok(last)
            }
            None => Ok(Box::new(Promise::new(compiled, step, views, is_known)?)),
        }
    }

    fn new(compiled: &Compiled, step: &Step, views: &[TensorView<'_>], is_known: &[bool]) -> Result<Promise, RunError> {
        let of_branches = of_branches(compiled, step.node);
        let is_branch = of_branches.is_some();
        let (outputs, read) = match of_branches {
            Some(promised) => (promised, ReadValues::default()),
            None => infer_now_packed(compiled, step.node, views, is_known)?,
        };
        let (mut kernel, mut is_nothing) = (None, false);
        let inputs: SmallVec<[&Shape; 4]> = views.iter().map(TensorView::shape).collect();
        let known: Option<SmallVec<[&Shape; 2]>> = outputs.iter().map(|(_, shape)| shape.as_ref()).collect();
        if let Some(outputs) = &known {
            let shapes = StepShapes { inputs: &inputs, outputs };
            is_nothing = step.is_nothing(&shapes);
            if let Action::Kernel(claimed) = &step.action
                && views.iter().all(|view| view.element_type() != ElementType::String)
                && claimed.accepts(&shapes)
            {
                kernel = Some(claimed.scratch_bytes(&shapes));
            }
        }
        drop(known);
        let has_strings = views.iter().any(|view| view.element_type() == ElementType::String);
        let is_lasting = !has_strings && compiled.model.node(step.node).bodies.is_empty();
        let values = looked_at(views, read).flatten().copied().collect();
        let inputs = views.iter().map(|view| (view.element_type(), view.shape().clone())).collect();
        Ok(Promise { inputs, read, values, outputs, kernel, is_nothing, is_branch, is_lasting })
    }

    fn holds_for(&self, views: &[TensorView<'_>]) -> bool {
        let is_same = |((element_type, shape), view): (&(ElementType, Shape), &TensorView<'_>)| {
            *element_type == view.element_type() && shape == view.shape()
        };
        let mut values = &self.values[..];
        self.inputs.len() == views.len()
            && self.inputs.iter().zip(views).all(is_same)
            && looked_at(views, self.read).all(|bytes| match values.split_at_checked(bytes.len()) {
                Some((first, rest)) => {
                    values = rest;
                    first == bytes
                }
                None => false,
            })
    }

    /// Keeps it for the next inference.
    fn keep(self: Box<Promise>, last: &mut Option<Box<Promise>>) {
        if self.is_lasting {
            *last = Some(self);
        }
    }
}

/// The bytes of the inputs that a rule has looked at; it does not see the values of large ones.
fn looked_at<'a>(views: &[TensorView<'a>], read: ReadValues) -> impl Iterator<Item = &'a [u8]> {
    let is_seen =
        move |(port, view): &(usize, &TensorView<'a>)| read.contains(*port) && view.elements() <= MAX_BOUNDS_ELEMENTS;
    views.iter().enumerate().filter(is_seen).map(|(_, view)| view.bytes())
}

/// Types and shapes of the outputs of a layer whose inputs are there, and what its rule has looked at.
fn infer_now(compiled: &Compiled, node: &Node, inputs: &[TensorView<'_>]) -> Result<(Promised, ReadValues), RunError> {
    let facts: SmallVec<[ValueFacts; 4]> = inputs.iter().map(view_facts).collect::<Result<_, _>>()?;
    infer_facts(compiled, node, &facts)
}

fn infer_facts(compiled: &Compiled, node: &Node, facts: &[ValueFacts]) -> Result<(Promised, ReadValues), RunError> {
    let facts: SmallVec<[&ValueFacts; 4]> = facts.iter().collect();
    let mut outputs: SmallVec<[ValueFacts; 2]> = SmallVec::new();
    outputs.resize_with(node.outputs.len(), ValueFacts::default);
    let read = infer_layer(&compiled.model, node, &facts, &mut outputs).map_err(|d| RunError::from(*d))?;
    Ok((outputs.iter().map(|o| (o.element_type, o.shape.to_shape())).collect(), read))
}

fn run_static(
    compiled: &Compiled,
    instance: &Instance,
    step: &Step,
    plan: &StepPlan,
    memory: &mut Memory,
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), RunError> {
    let node = compiled.model.node(step.node);
    let first = compiled.value(Source { node: step.node, port: 0 });
    // Tensors to write are taken out of their slots for the time of the step, so that others can be read.
    let mut taken: SmallVec<[(usize, Tensor); 2]> = SmallVec::new();
    for port in 0..node.outputs.len() {
        let place = &instance.places[first + port];
        if let Place::Arena(_) = place {
            continue;
        }
        let Some(shape) = instance.shape(first + port) else { return Err(nothing(node)) };
        let slot = memory.slot(place).ok_or_else(|| nothing(node))?;
        if plan.in_place.is_none() || port > 0 {
            Tensor::prepare(slot, instance.types[first + port], shape)?;
        }
        taken.push((port, slot.take().ok_or_else(|| nothing(node))?));
    }
    let result = run_taken(compiled, instance, step, plan, memory, &mut taken, bodies, environment);
    for (port, tensor) in taken {
        if let Some(slot) = memory.slot(&instance.places[first + port]) {
            *slot = Some(tensor);
        }
    }
    result
}

fn run_taken(
    compiled: &Compiled,
    instance: &Instance,
    step: &Step,
    plan: &StepPlan,
    memory: &mut Memory,
    taken: &mut [(usize, Tensor)],
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), RunError> {
    let node = compiled.model.node(step.node);
    let first = compiled.value(Source { node: step.node, port: 0 });
    let Memory { arena, inputs, outputs, variables, dynamic, journal, .. } = memory;
    let (mut arena_reads, mut arena_writes) = arena.borrow(&plan.arena)?;
    let rest = TensorSlots { compiled, instance, inputs, outputs, variables, dynamic };
    let read = match &step.action {
        Action::Kernel(kernel) if plan.use_kernel => kernel.inputs_read(),
        _ => usize::MAX,
    };
    let mut views: Inputs<'_> = SmallVec::new();
    for (port, source) in node.inputs.iter().enumerate().take(read) {
        let value = compiled.value(*source);
        let shape = instance.shape(value).ok_or_else(|| nothing(node))?;
        let place = &instance.places[value];
        let bytes: &[u8] = match place {
            _ if plan.in_place == Some(port) => &[],
            Place::Arena(_) => arena_reads.next().unwrap_or(&[]),
            _ => match rest.tensor(place) {
                Some(tensor) => tensor.bytes(),
                // A packed constant is not needed any more.
                None => &[],
            },
        };
        views.push(TensorView::of_bytes(instance.types[value], shape, bytes));
    }
    if let (Some(_), Place::Current(variable), Some((_, tensor))) =
        (plan.in_place, &instance.places[first], taken.first())
    {
        let operation = &*node.operation;
        journal
            .record(*variable, tensor, |ranges| operation.overwritten(&views, ranges))
            .map_err(|error| RunError::in_node(&compiled.model, node, &error))?;
    }
    let mut targets: SmallVec<[TensorViewMut<'_>; 4]> = SmallVec::new();
    let mut taken = taken.iter_mut();
    for port in 0..node.outputs.len() {
        let shape = instance.shape(first + port).ok_or_else(|| nothing(node))?;
        let element_type = instance.types[first + port];
        let bytes: &mut [u8] = match &instance.places[first + port] {
            Place::Arena(_) => arena_writes.next().unwrap_or(&mut []),
            _ => match taken.next() {
                Some((_, tensor)) => tensor.bytes_mut()?,
                None => &mut [],
            },
        };
        targets.push(TensorViewMut::of_bytes(element_type, shape, bytes));
    }
    let scratch = arena_writes.next().unwrap_or(&mut []);
    let result = match &step.action {
        Action::Kernel(kernel) if plan.use_kernel => {
            let random = &mut environment.random;
            kernel.run(StepIo { inputs: &views, outputs: &mut targets, scratch, in_place: plan.in_place, random })
        }
        _ if plan.is_nothing => Ok(()),
        _ if is_blocked(compiled, step.node) => {
            evaluate_blocked(compiled, step, &views, &mut targets, bodies, environment)
        }
        _ => {
            let mut slots: SmallVec<[OutputSlot<'_>; 4]> = targets.into_iter().map(OutputSlot::Given).collect();
            evaluate(compiled, step, &views, &mut slots, bodies, environment, plan.in_place.is_some())
        }
    };
    result.map_err(|error| RunError::in_node(&compiled.model, node, &error))
}

/// Whether a layer reads or writes blocked values.
fn is_blocked(compiled: &Compiled, node: NodeId) -> bool {
    let mut inputs = compiled.model.node(node).inputs.iter();
    compiled.layout(Source { node, port: 0 }) == Layout::Blocked
        || inputs.any(|source| compiled.layout(*source) == Layout::Blocked)
}

/// The reference evaluation of a layer among blocked values whose kernel does not do the shapes at hand.
fn evaluate_blocked(
    compiled: &Compiled,
    step: &Step,
    views: &[TensorView<'_>],
    targets: &mut [TensorViewMut<'_>],
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), OpError> {
    let node = compiled.model.node(step.node);
    let mut plain: SmallVec<[Tensor; 4]> = SmallVec::new();
    for (source, view) in node.inputs.iter().zip(views) {
        plain.push(match compiled.layout(*source) {
            Layout::Blocked => plain_tensor(view, view.shape())?,
            Layout::Plain => view.to_tensor()?,
        });
    }
    let views: Inputs<'_> = plain.iter().map(Tensor::view).collect();
    let mut slots: SmallVec<[OutputSlot<'_>; 4]> =
        targets.iter().map(|target| OutputSlot::Needed(target.element_type())).collect();
    evaluate(compiled, step, &views, &mut slots, bodies, environment, false)?;
    for (port, (slot, target)) in slots.into_iter().zip(targets).enumerate() {
        let OutputSlot::Produced(tensor) = slot else { continue };
        match compiled.layout(Source { node: step.node, port: port as u32 }) {
            Layout::Blocked => block(&tensor, target)?,
            Layout::Plain => target.bytes_mut().copy_from_slice(tensor.bytes()),
        }
    }
    Ok(())
}

/// The places of a request that are tensors, borrowed apart from the arena.
struct TensorSlots<'a> {
    compiled: &'a Compiled,
    instance: &'a Instance,
    inputs: &'a [Option<Tensor>],
    outputs: &'a [Option<Tensor>],
    variables: &'a [Variable],
    dynamic: &'a [Option<Tensor>],
}

impl<'a> TensorSlots<'a> {
    fn tensor(&self, place: &Place) -> Option<&'a Tensor> {
        match place {
            Place::None | Place::Arena(_) => None,
            Place::Constant(index) => Some(&self.compiled.constants.get(*index)?.1),
            Place::Late(index) => self.instance.late.get(*index),
            Place::Input(index) => self.inputs.get(*index)?.as_ref(),
            Place::Output(index) => self.outputs.get(*index)?.as_ref(),
            Place::Current(index) => self.variables.get(*index)?.current.as_ref(),
            Place::Next(index) => self.variables.get(*index)?.next.as_ref(),
            Place::Dynamic(value) => self.dynamic.get(*value)?.as_ref(),
        }
    }
}

fn evaluate(
    compiled: &Compiled,
    step: &Step,
    views: &[TensorView<'_>],
    slots: &mut [OutputSlot<'_>],
    bodies: &mut [State],
    environment: &mut Environment,
    in_place: bool,
) -> Result<(), OpError> {
    let plans: SmallVec<[BodyPlan<'_>; 2]> =
        step.bodies.iter().zip(bodies).map(|(compiled, state)| BodyPlan::new(compiled, state)).collect();
    let plans: SmallVec<[&dyn Body; 2]> = plans.iter().map(|p| p as &dyn Body).collect();
    let mut outputs = OutputSlots(slots);
    let mut context = EvaluateContext::new(views, &mut outputs, &plans, environment, in_place);
    context.run(&*compiled.model.node(step.node).operation)
}

/// A step that works on shapes known only now. Its outputs become tensors of their own.
fn run_dynamic(
    compiled: &Compiled,
    instance: &Instance,
    step: &Step,
    memory: &mut Memory,
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), RunError> {
    let node = compiled.model.node(step.node);
    let first = compiled.value(Source { node: step.node, port: 0 });
    let (tensors, ranges) = memory.held(compiled, instance, &node.inputs);
    let Memory { arena, spare, promises, made, .. } = memory;
    let reads = arena.parts(&ranges, &[])?.reads;
    let mut arena_reads = reads.iter().copied();
    let mut shapes: SmallVec<[Shape; 4]> = SmallVec::new();
    let mut bytes: SmallVec<[&[u8]; 4]> = SmallVec::new();
    // A packed constant has no tensor; its shape stands in the plan.
    let mut is_known: SmallVec<[bool; 8]> = SmallVec::new();
    for (source, tensor) in node.inputs.iter().zip(&tensors) {
        let value = compiled.value(*source);
        let planned = instance.shape(value);
        is_known.push(!matches!(tensor, Held::Nothing));
        bytes.push(match tensor {
            Held::Tensor(tensor) => tensor.bytes(),
            Held::Arena => arena_reads.next().unwrap_or(&[]),
            Held::Nothing => &[],
        });
        shapes.push(match (planned, tensor) {
            (Some(shape), _) => shape.clone(),
            (None, Held::Tensor(tensor)) => logical_shape(compiled, *source, tensor.shape()),
            (None, _) => Shape::default(),
        });
    }
    let mut views: Inputs<'_> = SmallVec::new();
    for (((source, tensor), shape), bytes) in node.inputs.iter().zip(&tensors).zip(&shapes).zip(&bytes) {
        views.push(match tensor {
            Held::Tensor(tensor) => match tensor.strings() {
                Some(strings) => TensorView::of_strings(shape, strings),
                None => TensorView::of_bytes(tensor.element_type(), shape, bytes),
            },
            Held::Arena | Held::Nothing => TensorView::of_bytes(instance.types[compiled.value(*source)], shape, bytes),
        });
    }
    let promise = Promise::of(compiled, step, &views, &is_known, &mut promises[step.node.index()])?;
    let Promise { outputs: ref promised, kernel: scratch, is_nothing, is_branch, .. } = *promise;
    let outputs: Option<SmallVec<[&Shape; 2]>> = promised.iter().map(|(_, shape)| shape.as_ref()).collect();
    let kernel = match &step.action {
        Action::Kernel(kernel) => scratch.map(|scratch| (kernel, scratch)),
        _ => None,
    };
    if kernel.is_none() && is_known.contains(&false) && !is_nothing {
        drop((views, bytes, reads));
        return run_unpacked(compiled, instance, step, memory, bodies, environment);
    }
    let (given, claimed) = make_outputs(compiled, step, promised, spare, environment)?;
    let mut reserves: Reserves = SmallVec::new();
    let is_limited = environment.limits().is_some_and(|limits| limits.memory != 0);
    if !is_limited && outputs.is_none() && !is_branch {
        let needs =
            promised.iter().zip(&made[first..]).map(|((_, shape), bytes)| (shape.is_none() && *bytes > 0, bytes));
        reserves.extend(needs.map(|(is_needed, bytes)| if is_needed { spare.reserve(*bytes) } else { None }));
    }
    let produced: Vec<Tensor> = match (kernel, &outputs) {
        (None, Some(_)) if is_nothing => Ok(given.into_iter().flatten().collect()),
        (Some((kernel, scratch)), Some(outputs)) => {
            run_kernel(&**kernel, &views, given, outputs, scratch, spare, &mut environment.random)
        }
        (_, Some(outputs)) if is_blocked(compiled, step.node) => {
            run_blocked_reference(compiled, step, &views, given, outputs, bodies, environment)
        }
        _ => run_reference(compiled, step, &views, given, reserves, promised, bodies, environment),
    }
    .map_err(|error| RunError::in_node(&compiled.model, node, &error))?;
    let is_made = outputs.is_none();
    drop(outputs);
    promise.keep(&mut promises[step.node.index()]);
    for (port, (tensor, claimed)) in produced.into_iter().zip(claimed).enumerate() {
        // What a branch made was its own so far.
        let claimed = match is_branch {
            true => claim(environment, tensor.element_type(), tensor.shape())?,
            false => claimed,
        };
        memory.made[first + port] = if is_made { Spare::capacity_to_reserve(&tensor) } else { 0 };
        memory.dynamic[first + port] = Some(tensor);
        memory.claimed[first + port] = claimed;
    }
    Ok(())
}

/// The types of what an If yields. Its shapes are those of the branch that is taken, which infers them itself.
fn of_branches(compiled: &Compiled, id: NodeId) -> Option<Promised> {
    compiled.model.node(id).is("If").then_some(())?;
    let outputs = compiled.inference.outputs(id).iter();
    outputs.map(|facts| facts.element_type.is_known().then_some((facts.element_type, None))).collect()
}

/// Tensors for the outputs whose shapes are known, and the bytes that were claimed for each.
fn make_outputs(
    compiled: &Compiled,
    step: &Step,
    promised: &Promised,
    spare: &mut Spare,
    environment: &Environment,
) -> Result<(GivenTensors, SmallVec<[usize; 2]>), RunError> {
    let mut given: GivenTensors = SmallVec::new();
    let mut claimed: SmallVec<[usize; 2]> = SmallVec::new();
    for (port, (element_type, shape)) in promised.iter().enumerate() {
        let layout = compiled.layout(Source { node: step.node, port: port as u32 });
        let shape = shape.as_ref().map(|shape| physical_shape(layout, shape));
        claimed.push(shape.as_ref().map_or(Ok(0), |shape| claim(environment, *element_type, shape))?);
        given.push(shape.map(|shape| spare.tensor(*element_type, &shape)).transpose()?);
    }
    Ok((given, claimed))
}

/// Counts a tensor against the memory limit, and says how many bytes were counted.
fn claim(environment: &Environment, element_type: ElementType, shape: &Shape) -> Result<usize, OpError> {
    let Some(limits) = environment.limits().filter(|_| element_type != ElementType::String) else { return Ok(0) };
    let bytes = shape.checked_elements().and_then(|elements| element_type.storage_bytes(elements));
    let bytes = bytes.unwrap_or(usize::MAX);
    limits.claim(bytes)?;
    Ok(bytes)
}

/// A step of unknown shapes whose kernel does not do the shapes that have come, after its constants were packed.
fn run_unpacked(
    compiled: &Compiled,
    instance: &Instance,
    step: &Step,
    memory: &mut Memory,
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<(), RunError> {
    let node = compiled.model.node(step.node);
    let in_node = |error: OpError| RunError::in_node(&compiled.model, node, &error);
    let mut tensors: SmallVec<[Tensor; 4]> = SmallVec::new();
    for source in &node.inputs {
        let tensor = memory.read(compiled, instance, *source).ok().or_else(|| compiled.constant(*source));
        tensors.push(tensor.ok_or_else(|| nothing(node))?);
    }
    let views: Inputs<'_> = tensors.iter().map(Tensor::view).collect();
    let (promised, _) = infer_now(compiled, node, &views)?;
    let given = promised.iter().map(|_| None).collect();
    let nothing = Reserves::new();
    let produced =
        run_reference(compiled, step, &views, given, nothing, &promised, bodies, environment).map_err(in_node)?;
    let first = compiled.value(Source { node: step.node, port: 0 });
    for (port, mut tensor) in produced.into_iter().enumerate() {
        let layout = compiled.layouts[first + port];
        if layout == Layout::Blocked {
            let mut blocked = environment.allocate(tensor.element_type(), &physical_shape(layout, tensor.shape()))?;
            block(&tensor, &mut blocked.view_mut()?).map_err(in_node)?;
            tensor = blocked;
        }
        memory.dynamic[first + port] = Some(tensor);
    }
    Ok(())
}

/// As [`infer_now`], but a packed constant or a blocked value is known by its shape only.
fn infer_now_packed(
    compiled: &Compiled,
    id: NodeId,
    views: &[TensorView<'_>],
    is_known: &[bool],
) -> Result<(Promised, ReadValues), RunError> {
    let node = compiled.model.node(id);
    if !is_known.contains(&false) && !is_blocked(compiled, id) {
        return infer_now(compiled, node, views);
    }
    let facts: SmallVec<[ValueFacts; 4]> = views
        .iter()
        .zip(is_known)
        .zip(&node.inputs)
        .map(|((view, is_known), source)| match is_known {
            true if compiled.layout(*source) == Layout::Plain => view_facts(view),
            _ => Ok(ValueFacts::new(view.element_type(), view.shape().into())),
        })
        .collect::<Result<_, _>>()?;
    infer_facts(compiled, node, &facts)
}

/// Runs a kernel on tensors of their own: `given` are written under the shapes of their values.
///
/// # Errors
/// What the kernel says, or when memory cannot be had.
pub(crate) fn run_kernel(
    kernel: &dyn Kernel,
    views: &[TensorView<'_>],
    given: GivenTensors,
    shapes: &[&Shape],
    scratch: usize,
    spare: &mut Spare,
    random: &mut RandomStream,
) -> Result<Vec<Tensor>, OpError> {
    let mut tensors: Vec<Tensor> = given.into_iter().flatten().collect();
    let mut scratch = spare.tensor(ElementType::U8, &Shape::from([scratch]))?;
    let mut outputs = writable(&mut tensors, shapes)?;
    let scratch_bytes = scratch.bytes_mut()?;
    kernel.run(StepIo { inputs: views, outputs: &mut outputs, scratch: scratch_bytes, in_place: None, random })?;
    drop(outputs);
    spare.give(scratch);
    Ok(tensors)
}

/// Views of tensors that are to be written, under the shapes of their values.
fn writable<'a>(tensors: &'a mut [Tensor], shapes: &[&'a Shape]) -> Result<SmallVec<[TensorViewMut<'a>; 2]>, OpError> {
    let views = tensors
        .iter_mut()
        .zip(shapes)
        .map(|(tensor, shape)| Ok(TensorViewMut::of_bytes(tensor.element_type(), shape, tensor.bytes_mut()?)));
    views.collect()
}

fn run_blocked_reference(
    compiled: &Compiled,
    step: &Step,
    views: &[TensorView<'_>],
    given: GivenTensors,
    shapes: &[&Shape],
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<Vec<Tensor>, OpError> {
    let mut tensors: Vec<Tensor> = given.into_iter().flatten().collect();
    let mut targets = writable(&mut tensors, shapes)?;
    evaluate_blocked(compiled, step, views, &mut targets, bodies, environment)?;
    drop(targets);
    Ok(tensors)
}

fn run_reference(
    compiled: &Compiled,
    step: &Step,
    views: &[TensorView<'_>],
    given: GivenTensors,
    reserves: Reserves,
    promised: &Promised,
    bodies: &mut [State],
    environment: &mut Environment,
) -> Result<Vec<Tensor>, OpError> {
    let mut slots: SmallVec<[OutputSlot<'_>; 2]> = given
        .into_iter()
        .zip(reserves.into_iter().chain(std::iter::repeat(None)))
        .zip(promised)
        .map(|((tensor, reserve), (element_type, _))| match (tensor, reserve) {
            (Some(tensor), _) => OutputSlot::Produced(tensor),
            (None, Some(reserve)) => OutputSlot::Reserve(*element_type, reserve),
            (None, None) => OutputSlot::Needed(*element_type),
        })
        .collect();
    evaluate(compiled, step, views, &mut slots, bodies, environment, false)?;
    let missing = || OpError::unsupported("an output was not produced");
    slots
        .into_iter()
        .map(|slot| match slot {
            OutputSlot::Produced(tensor) => Ok(tensor),
            _ => Err(missing()),
        })
        .collect()
}

fn nothing(node: &Node) -> RunError {
    let message = format!("{}: a value is missing", node.reference());
    RunError { layer: Some(Box::new(node.reference())), ..RunError::new(ovir_diagnostics::Code::InvalidValue, message) }
}
