//! A plan for one signature of shapes: the shape and the place of every value.

use std::ops::Range;

use ovir_diagnostics::Diagnostic;
use ovir_graph::{Inference, NodeId, Source, infer_model_into};
use ovir_kernels::parallel::{FORK_NANOSECONDS, WAKE_NANOSECONDS};
use ovir_ops::{SymbolSource, ValueFacts};
use ovir_tensor::{ArenaLayout, ElementType, PartialShape, Shape, SmallVec, Tensor};

use crate::RunError;
use crate::compile::{Action, Compiled, Step};
use crate::fast::StepShapes;

/// Tensors in the arena begin at multiples of this many bytes.
const ALIGNMENT: usize = 64;

/// The work, in nanoseconds, that the steps worth a fork must have together for the threads to be worth waking.
const TEAM_THRESHOLD: u64 = 2 * WAKE_NANOSECONDS;

/// The same work where inferences follow each other so closely that the threads are still awake.
const REPEATED_THRESHOLD: u64 = 2 * FORK_NANOSECONDS;

/// When the helpers are called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Helpers {
    /// There is too little work to share.
    #[default]
    Never,
    /// For inferences that follow each other at once.
    WhenRepeated,
    /// For every inference.
    Always,
}

/// Where a value lies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Place {
    /// Nobody needs it.
    #[default]
    None,
    /// A constant of the compiled model.
    Constant(usize),
    /// A constant that was packed for a kernel which does not do the shapes at hand: a number among those of the plan.
    Late(usize),
    /// An input of the request.
    Input(usize),
    /// A range of the arena.
    Arena(Range<usize>),
    /// The tensor of an output.
    Output(usize),
    /// The value of a variable.
    Current(usize),
    /// The value that a variable gets when the inference has succeeded.
    Next(usize),
    /// A tensor of its own, because its shape is known only when it is computed. The number is that of the value.
    Dynamic(usize),
}

/// Shapes and places for one signature.
#[derive(Debug, Default)]
pub(crate) struct Instance {
    /// The shapes of inputs and variables that this instance is for.
    pub signature: Vec<Shape>,
    /// Element types and static shapes by value; values of unknown shape have `None`.
    pub shapes: Vec<Option<Shape>>,
    /// Element types by value.
    pub types: Vec<ElementType>,
    /// Places by value.
    pub places: Vec<Place>,
    /// Whether a value becomes a tensor of its own.
    pub has_own_tensors: bool,
    /// For each step: what it needs besides the places of its values.
    pub steps: Vec<StepPlan>,
    /// For each output, the value it has and whether a step writes it directly.
    pub outputs: Vec<(usize, Source)>,
    /// The bytes of the arena.
    pub arena_bytes: usize,
    /// The bytes of outputs and new values of variables.
    pub tensor_bytes: usize,
    /// The value that takes most of these bytes, and how many.
    pub largest: Option<(Source, usize)>,
    /// The work of steps that are worth a fork, in nanoseconds.
    shared_nanoseconds: u64,
    /// Constants that were packed for kernels which do not do the shapes at hand.
    pub late: Vec<Tensor>,
    inference: Inference,
    diagnostics: Vec<Diagnostic>,
    last_read: Vec<u32>,
    root: Vec<u32>,
    free: Vec<Range<usize>>,
}

/// What a step needs besides the places of its values.
#[derive(Debug, Default, Clone)]
pub(crate) struct StepPlan {
    /// The input whose memory the first output takes over.
    pub in_place: Option<usize>,
    /// The scratch of the kernel, in the arena.
    pub scratch: Range<usize>,
    /// The inputs in the arena but for the one that is taken over, the outputs in the arena, and the scratch.
    pub arena: ArenaLayout,
    /// Whether the kernel does these shapes.
    pub use_kernel: bool,
    /// Whether there are no elements to compute.
    pub is_nothing: bool,
    /// Whether all shapes are known.
    pub is_static: bool,
    /// Whether a kernel does it whose outputs all lie in the arena, with no more inputs and outputs than [`MOST_INPUTS`] and
    /// [`MOST_OUTPUTS`], so that nothing else needs to be looked at in it.
    pub is_plain: bool,
    /// The inputs that the kernel of a plain step reads, by value.
    pub inputs: SmallVec<[u32; MOST_INPUTS]>,
    /// The outputs, by value.
    pub outputs: Range<u32>,
    /// The values in tensors of their own that nobody reads after the step.
    pub dead: SmallVec<[u32; 2]>,
}

/// Inputs of a step that is plain.
pub(crate) const MOST_INPUTS: usize = 8;

/// Outputs of a step that is plain.
pub(crate) const MOST_OUTPUTS: usize = 2;

/// How a step is done for the shapes at hand.
enum Way {
    Kernel(Fit),
    /// There are no elements to compute.
    Nothing,
    Reference,
}

/// What a kernel says of the shapes of one step.
struct Fit {
    in_place_inputs: SmallVec<[usize; 2]>,
    scratch_bytes: usize,
    work_nanoseconds: u64,
}

/// A step after which a value is read: results and variables are read behind the last step.
pub(crate) const AT_THE_END: u32 = u32::MAX;

impl Instance {
    /// Plans for exact facts of inputs and variables, in memory that an earlier plan has left.
    ///
    /// # Errors
    /// The shapes violate a rule of some layer.
    pub fn prepare(&mut self, compiled: &Compiled, given: &[(NodeId, ValueFacts)]) -> Result<(), RunError> {
        self.diagnostics.clear();
        let mut symbols = SymbolSource::default();
        let reuse = Some((&compiled.is_settled[..], &compiled.inference));
        infer_model_into(&compiled.model, given, reuse, &mut symbols, &mut self.diagnostics, &mut self.inference);
        if let Some(error) = self.diagnostics.iter().find(|d| d.is_error()) {
            return Err(RunError::from(error.clone()));
        }
        self.take_shapes(compiled);
        self.find_lifetimes(compiled);
        self.place(compiled)?;
        self.measure(compiled);
        Ok(())
    }

    /// Finds what the plan takes, and which value takes most.
    fn measure(&mut self, compiled: &Compiled) {
        (self.tensor_bytes, self.largest) = (0, None);
        for (id, node) in compiled.model.iter() {
            for port in 0..node.outputs.len() as u32 {
                let source = Source { node: id, port };
                let value = compiled.value(source);
                let bytes = match &self.places[value] {
                    Place::Arena(range) => range.len(),
                    Place::Output(_) | Place::Next(_) => {
                        let elements = self.shapes[value].as_ref().and_then(Shape::checked_elements).unwrap_or(0);
                        let bytes = self.types[value].storage_bytes(elements).unwrap_or(usize::MAX);
                        self.tensor_bytes = self.tensor_bytes.saturating_add(bytes);
                        bytes
                    }
                    _ => continue,
                };
                if self.largest.is_none_or(|(_, most)| bytes > most) {
                    self.largest = Some((source, bytes));
                }
            }
        }
    }

    /// The static shape of a value.
    pub fn shape(&self, value: usize) -> Option<&Shape> {
        self.shapes.get(value)?.as_ref()
    }

    /// What is known of the shape of a value.
    pub fn partial_shape(&self, source: Source) -> PartialShape {
        self.inference.get(source).shape.clone()
    }

    /// The last step that reads the memory of a value.
    pub fn last_read(&self, value: usize) -> u32 {
        self.last_read[self.root[value] as usize]
    }

    /// When there is enough work for several threads.
    pub fn helpers(&self) -> Helpers {
        match self.shared_nanoseconds {
            TEAM_THRESHOLD.. => Helpers::Always,
            REPEATED_THRESHOLD.. => Helpers::WhenRepeated,
            _ => Helpers::Never,
        }
    }

    /// The estimated time of a step on one thread; 0 where nothing is estimated.
    pub fn work_nanoseconds(&self, compiled: &Compiled, position: usize) -> u64 {
        let is_static = self.steps[position].is_static;
        // A kernel is asked only where all shapes are known.
        match is_static.then(|| self.way(compiled, &compiled.steps[position])) {
            Some(Way::Kernel(fit)) => fit.work_nanoseconds,
            _ => 0,
        }
    }

    fn take_shapes(&mut self, compiled: &Compiled) {
        self.shapes.clear();
        self.types.clear();
        for (id, node) in compiled.model.iter() {
            for port in 0..node.outputs.len() {
                let facts = self.inference.get(Source { node: id, port: port as u32 });
                let is_fixed = facts.element_type.is_known() && facts.element_type != ElementType::String;
                self.shapes.push(facts.shape.to_shape().filter(|s| is_fixed && s.checked_elements().is_some()));
                self.types.push(facts.element_type);
            }
        }
    }

    /// For each value, the value whose memory it shares (a reshaped value shares that of its source), and the last step
    /// that reads that memory.
    fn find_lifetimes(&mut self, compiled: &Compiled) {
        self.root.clear();
        self.root.extend(0..compiled.value_count as u32);
        self.last_read.clear();
        self.last_read.resize(compiled.value_count, 0);
        for (position, step) in compiled.steps.iter().enumerate() {
            let node = compiled.model.node(step.node);
            if matches!(step.action, Action::Reshape) {
                let output = compiled.value(Source { node: step.node, port: 0 });
                let is_known = self.shapes[output].is_some();
                if let (Some(source), true) = (node.inputs.first(), is_known) {
                    self.root[output] = self.root[compiled.value(*source)];
                }
            }
            if matches!(step.action, Action::Read(_)) {
                continue;
            }
            for source in &node.inputs {
                let root = self.root[compiled.value(*source)] as usize;
                let end = if matches!(step.action, Action::Assign(_)) { AT_THE_END } else { position as u32 };
                self.last_read[root] = self.last_read[root].max(end);
            }
        }
        self.outputs.clear();
        for id in &compiled.model.results {
            let Some(source) = compiled.model.node(*id).inputs.first() else { continue };
            let value = compiled.value(*source);
            self.last_read[self.root[value] as usize] = AT_THE_END;
            self.outputs.push((value, *source));
        }
    }

    fn place(&mut self, compiled: &Compiled) -> Result<(), RunError> {
        self.places.clear();
        self.places.resize(compiled.value_count, Place::None);
        self.steps.clear();
        self.free.clear();
        self.late.clear();
        self.arena_bytes = 0;
        self.shared_nanoseconds = 0;
        for (index, (source, _)) in compiled.constants.iter().enumerate() {
            self.places[compiled.value(*source)] = Place::Constant(index);
        }
        for (index, id) in compiled.model.parameters.iter().enumerate() {
            let value = compiled.value(Source { node: *id, port: 0 });
            self.places[value] = Place::Input(index);
        }
        for position in 0..compiled.steps.len() {
            self.place_step(compiled, position)?;
        }
        self.has_own_tensors = self.places.iter().any(|place| matches!(place, Place::Dynamic(_)));
        Ok(())
    }

    fn place_step(&mut self, compiled: &Compiled, position: usize) -> Result<(), RunError> {
        let step = &compiled.steps[position];
        let node = compiled.model.node(step.node);
        let first = compiled.value(Source { node: step.node, port: 0 });
        let outputs = first..first + node.outputs.len();
        let mut plan = StepPlan { outputs: outputs.start as u32..outputs.end as u32, ..StepPlan::default() };
        match &step.action {
            Action::Read(variable) => {
                plan.is_static = true;
                self.places[first] = Place::Current(*variable);
            }
            Action::Assign(_) => plan.is_static = true,
            Action::Reshape if self.shapes[first].is_some() => {
                plan.is_static = true;
                if let Some(source) = node.inputs.first() {
                    self.places[first] = self.places[compiled.value(*source)].clone();
                }
            }
            Action::Reshape => self.places[first] = Place::Dynamic(first),
            Action::Append(variable) if self.are_known(compiled, position) => {
                (plan.is_static, plan.use_kernel) = (true, true);
                self.places[first] = Place::Next(*variable);
                // The memory of the old value is that of the new one unless somebody still reads it.
                let state = node.inputs.first().map(|source| compiled.value(*source));
                plan.in_place = state.filter(|state| self.last_read(*state) == position as u32).map(|_| 0);
            }
            Action::Append(_) | Action::Kernel(_) | Action::Reference => {
                plan.is_static = self.are_known(compiled, position);
                if plan.is_static {
                    self.place_outputs(compiled, position, &mut plan);
                } else {
                    for value in outputs.clone() {
                        self.places[value] = Place::Dynamic(value);
                    }
                }
            }
        }
        if plan.is_static {
            let in_arena = |value: usize| match &self.places[value] {
                Place::Arena(range) => Some(range.clone()),
                _ => None,
            };
            let read =
                |(port, source)| if plan.in_place == Some(port) { None } else { in_arena(compiled.value(source)) };
            let reads = node.inputs.iter().copied().enumerate().filter_map(read);
            let writes = outputs.clone().filter_map(in_arena).chain([plan.scratch.clone()]);
            if matches!(step.action, Action::Kernel(_) | Action::Reference) {
                plan.arena = ArenaLayout::new(reads, writes)?;
            }
        }
        if let (true, Action::Kernel(kernel)) = (plan.use_kernel, &step.action) {
            let read = node.inputs.len().min(kernel.inputs_read());
            let is_few = read <= MOST_INPUTS && outputs.len() <= MOST_OUTPUTS;
            plan.is_plain = is_few && outputs.clone().all(|value| matches!(self.places[value], Place::Arena(_)));
            if plan.is_plain {
                plan.inputs = node.inputs[..read].iter().map(|source| compiled.value(*source) as u32).collect();
            }
        }
        let scratch = plan.scratch.clone();
        self.release(scratch);
        self.release_dead(compiled, position, plan.in_place);
        plan.dead = self.dead_tensors(compiled, position, outputs.clone());
        // An output that nobody reads is free again as soon as it is written.
        for value in outputs {
            if let (Place::Arena(range), 0) = (&self.places[value], self.last_read[value]) {
                let range = range.clone();
                if self.root[value] as usize == value && plan.in_place.is_none() {
                    self.release(range);
                }
            }
        }
        self.steps.push(plan);
        Ok(())
    }

    /// Whether all shapes of a step are known.
    fn are_known(&self, compiled: &Compiled, position: usize) -> bool {
        let step = &compiled.steps[position];
        let node = compiled.model.node(step.node);
        let first = compiled.value(Source { node: step.node, port: 0 });
        (first..first + node.outputs.len()).all(|value| self.shapes[value].is_some())
            && node.inputs.iter().all(|source| self.shapes[compiled.value(*source)].is_some())
    }

    /// The values in tensors of their own whose last reader is a step, or which nobody reads.
    fn dead_tensors(&self, compiled: &Compiled, position: usize, outputs: Range<usize>) -> SmallVec<[u32; 2]> {
        let step = &compiled.steps[position];
        let mut dead: SmallVec<[u32; 2]> = SmallVec::new();
        if matches!(step.action, Action::Read(_)) {
            return dead;
        }
        let inputs = compiled.model.node(step.node).inputs.iter().map(|source| compiled.value(*source));
        for value in inputs.chain(outputs) {
            let root = self.root[value];
            let is_own = self.places[root as usize] == Place::Dynamic(root as usize);
            if is_own && self.last_read[root as usize] <= position as u32 && !dead.contains(&root) {
                dead.push(root);
            }
        }
        dead
    }

    fn place_outputs(&mut self, compiled: &Compiled, position: usize, plan: &mut StepPlan) {
        let step = &compiled.steps[position];
        let node = compiled.model.node(step.node);
        let first = compiled.value(Source { node: step.node, port: 0 });
        let mut candidates: SmallVec<[usize; 2]> = SmallVec::new();
        match self.way(compiled, step) {
            Way::Kernel(fit) => {
                plan.use_kernel = true;
                candidates = fit.in_place_inputs;
                if fit.work_nanoseconds >= FORK_NANOSECONDS {
                    self.shared_nanoseconds = self.shared_nanoseconds.saturating_add(fit.work_nanoseconds);
                }
                plan.scratch = self.take(fit.scratch_bytes);
            }
            Way::Nothing => plan.is_nothing = true,
            Way::Reference => {
                self.unpack(compiled, node);
                candidates.extend(node.operation.in_place_input());
            }
        }
        // A value that goes outside is written there at once; taking over memory of the arena would cost a copy.
        let goes_outside = self.outputs.iter().any(|(value, _)| *value == first)
            || (self.assigned_to(compiled, first).is_some() && !self.reads_variable(compiled, node));
        if !goes_outside {
            plan.in_place = candidates.into_iter().find(|port| self.can_take_over(compiled, position, *port));
        }
        for port in 0..node.outputs.len() {
            let value = first + port;
            self.places[value] = match plan.in_place {
                Some(input) if port == 0 => self.places[compiled.value(node.inputs[input])].clone(),
                _ => self.new_place(compiled, value),
            };
        }
    }

    /// Whether a layer reads the value of a variable directly.
    fn reads_variable(&self, compiled: &Compiled, node: &ovir_graph::Node) -> bool {
        node.inputs.iter().any(|source| matches!(self.places[compiled.value(*source)], Place::Current(_)))
    }

    /// Gives the packed constants that a layer reads a place again.
    fn unpack(&mut self, compiled: &Compiled, node: &ovir_graph::Node) {
        for source in &node.inputs {
            let value = compiled.value(*source);
            if self.places[value] == Place::None
                && let Some(tensor) = compiled.constant(*source)
            {
                self.places[value] = Place::Late(self.late.len());
                self.late.push(tensor);
            }
        }
    }

    /// How a step is done, and what its kernel says of the shapes.
    fn way(&self, compiled: &Compiled, step: &Step) -> Way {
        let Action::Kernel(kernel) = &step.action else { return Way::Reference };
        let node = compiled.model.node(step.node);
        let first = compiled.value(Source { node: step.node, port: 0 });
        let inputs: SmallVec<[&Shape; 8]> = node.inputs.iter().filter_map(|s| self.shape(compiled.value(*s))).collect();
        let outputs: SmallVec<[&Shape; 4]> =
            (first..first + node.outputs.len()).filter_map(|v| self.shape(v)).collect();
        let shapes = StepShapes { inputs: &inputs, outputs: &outputs };
        if kernel.accepts(&shapes) {
            return Way::Kernel(Fit {
                in_place_inputs: kernel.in_place_inputs(&shapes),
                scratch_bytes: kernel.scratch_bytes(&shapes),
                work_nanoseconds: kernel.work_nanoseconds(&shapes),
            });
        }
        if step.is_nothing(&shapes) { Way::Nothing } else { Way::Reference }
    }

    /// Whether the first output of a step may take over the memory of input `port`: this is the last reader, nobody
    /// else owns the memory, and the sizes agree.
    fn can_take_over(&self, compiled: &Compiled, position: usize, port: usize) -> bool {
        let step = &compiled.steps[position];
        let node = compiled.model.node(step.node);
        let Some(source) = node.inputs.get(port) else { return false };
        let (input, output) = (compiled.value(*source), compiled.value(Source { node: step.node, port: 0 }));
        let is_same_size = self.shapes[input] == self.shapes[output]
            && self.types[input] == self.types[output]
            && compiled.layouts[input] == compiled.layouts[output];
        let read_once = node.inputs.iter().filter(|s| self.root[compiled.value(**s)] == self.root[input]).count() == 1;
        let is_last = self.last_read[self.root[input] as usize] == position as u32;
        if !(is_same_size && read_once && is_last) {
            return false;
        }
        match &self.places[input] {
            Place::Arena(_) => true,
            // The value of a variable is changed in place only on its way to the Assign of the same variable.
            Place::Current(variable) => {
                self.assigned_to(compiled, output) == Some(*variable) && node.operation.in_place_input() == Some(port)
            }
            _ => false,
        }
    }

    /// The variable that takes exactly this value.
    fn assigned_to(&self, compiled: &Compiled, value: usize) -> Option<usize> {
        let is_root = |source: &Source| self.root[compiled.value(*source)] as usize == value;
        compiled.assigned.iter().find(|(source, _)| is_root(source)).map(|(_, variable)| *variable)
    }

    /// A place for a value that a step computes: an output tensor or the next value of a variable where the value goes
    /// there, else the arena.
    fn new_place(&mut self, compiled: &Compiled, value: usize) -> Place {
        let is_taken = |places: &[Place], place: &Place| places.contains(place);
        if let Some(index) = self.outputs.iter().position(|(v, _)| *v == value) {
            let place = Place::Output(index);
            if !is_taken(&self.places, &place) {
                return place;
            }
        }
        if let Some(variable) = self.assigned_to(compiled, value) {
            let place = Place::Next(variable);
            let source_is_value =
                compiled.assigned.iter().any(|(source, v)| *v == variable && compiled.value(*source) == value);
            if source_is_value && !is_taken(&self.places, &place) {
                return place;
            }
        }
        let elements = self.shapes[value].as_ref().map_or(0, |shape| compiled.layouts[value].elements(shape));
        // What cannot be counted cannot be had.
        let bytes = self.types[value].storage_bytes(elements).unwrap_or(usize::MAX);
        Place::Arena(self.take_exactly(bytes))
    }

    fn release_dead(&mut self, compiled: &Compiled, position: usize, in_place: Option<usize>) {
        let step = &compiled.steps[position];
        if matches!(step.action, Action::Reshape | Action::Read(_)) {
            return;
        }
        let node = compiled.model.node(step.node);
        for (port, source) in node.inputs.iter().enumerate() {
            let root = self.root[compiled.value(*source)] as usize;
            let is_first_mention = node.inputs[..port].iter().all(|s| self.root[compiled.value(*s)] as usize != root);
            if Some(port) == in_place || self.last_read[root] != position as u32 || !is_first_mention {
                continue;
            }
            if let Place::Arena(range) = &self.places[root] {
                let range = range.clone();
                self.release(range);
            }
        }
    }

    /// A range of exactly `bytes` bytes that begins on a boundary.
    fn take_exactly(&mut self, bytes: usize) -> Range<usize> {
        let range = self.take(bytes);
        range.start..range.end.min(range.start.saturating_add(bytes))
    }

    /// The smallest free range that holds `bytes` bytes, or new memory at the end.
    fn take(&mut self, bytes: usize) -> Range<usize> {
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        if bytes == 0 {
            return 0..0;
        }
        let best = (0..self.free.len()).filter(|i| self.free[*i].len() >= bytes).min_by_key(|i| self.free[*i].len());
        if let Some(index) = best {
            let start = self.free[index].start;
            self.free[index].start += bytes;
            if self.free[index].is_empty() {
                self.free.remove(index);
            }
            return start..start + bytes;
        }
        // A free range at the end is stretched.
        let at_end = self.free.iter().position(|r| r.end == self.arena_bytes);
        let start = at_end.map_or(self.arena_bytes, |index| self.free.swap_remove(index).start);
        self.arena_bytes = start.saturating_add(bytes);
        start..self.arena_bytes
    }

    fn release(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        let end = range.end.checked_next_multiple_of(ALIGNMENT).unwrap_or(usize::MAX);
        let mut range = range.start..end;
        let mut index = 0;
        while index < self.free.len() {
            if self.free[index].end == range.start || self.free[index].start == range.end {
                let other = self.free.swap_remove(index);
                range = range.start.min(other.start)..range.end.max(other.end);
                index = 0;
            } else {
                index += 1;
            }
        }
        self.free.push(range);
    }
}
