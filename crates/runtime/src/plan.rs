//! Plans to look at: what is done for a model, in which order, by which kernels, and where values lie.

use std::ops::Range;

use ovir_diagnostics::Code;
use ovir_graph::{NodeId, Source};
use ovir_ops::ValueFacts;
use ovir_ops::fused::Fused;
use ovir_tensor::{ElementType, PartialShape};

use crate::RunError;
use crate::compile::{Action, Compiled, Step};
use crate::instance::{AT_THE_END, Helpers, Instance, Place};
use crate::layout::Layout;

/// A plan for certain shapes of the inputs.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The steps in their order. Constants, inputs and results are no steps.
    pub steps: Vec<PlanStep>,
    /// The bytes of the arena, in which the intermediate values of known shape lie.
    pub arena_bytes: usize,
    /// The bytes of outputs and of the next values of variables, as far as their shapes are known.
    pub tensor_bytes: usize,
    /// When threads of the pool stand by during an inference; never if there is but one thread.
    pub helpers: Helpers,
    /// The threads of an inference that runs alone, its own among them.
    pub threads: usize,
}

/// One step.
#[derive(Debug, Clone)]
pub struct PlanStep {
    /// The friendly name of the layer.
    pub friendly_name: String,
    /// The type of the layer; `Fused` if it stands for several.
    pub type_name: String,
    /// The types of the layers that were fused into it, in their order.
    pub stages: Vec<String>,
    /// Their friendly names.
    pub members: Vec<String>,
    /// What is done.
    pub action: PlanAction,
    /// Whether the shapes of all inputs and outputs are known before the inference.
    pub is_static: bool,
    /// The input whose memory the first output takes over.
    pub in_place: Option<usize>,
    /// The range of the arena that the kernel needs for itself.
    pub scratch: Range<usize>,
    /// The estimated time on one thread, in nanoseconds; 0 where nothing is estimated.
    pub work_nanoseconds: u64,
    /// The inputs.
    pub inputs: Vec<PlanValue>,
    /// The outputs.
    pub outputs: Vec<PlanValue>,
    /// The plans of the bodies, whose shapes are not known before they run.
    pub bodies: Vec<Plan>,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanAction {
    /// A kernel of this name.
    Kernel(String),
    /// The reference evaluation, as no kernel is there for the layer.
    Reference,
    /// The reference evaluation, as this kernel does not do these shapes.
    Unfit(String),
    /// Nothing: the output is the first input under another shape.
    View,
    /// Reads this variable.
    Read(String),
    /// Assigns this variable.
    Assign(String),
    /// New rows behind those of a variable.
    Append(String),
}

/// A value that a step reads or writes.
#[derive(Debug, Clone)]
pub struct PlanValue {
    /// Its tensor name, or the friendly name of its layer.
    pub name: String,
    /// The element type.
    pub element_type: ElementType,
    /// What is known of the shape.
    pub shape: PartialShape,
    /// Whether its channels lie in blocks of sixteen.
    pub is_blocked: bool,
    /// Where it lies.
    pub place: PlanPlace,
    /// The last step that reads its memory, for values in the arena.
    pub last_read: Option<usize>,
}

/// Where a value lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanPlace {
    /// It is a constant.
    Constant,
    /// It is a constant that a kernel has packed.
    Packed,
    /// The tensor of this input.
    Input(usize),
    /// These bytes of the arena.
    Arena(Range<usize>),
    /// The tensor of this output.
    Output(usize),
    /// The value of this variable.
    Variable(String),
    /// The value that this variable gets when the inference has succeeded.
    Next(String),
    /// A tensor of its own, as its shape depends on data.
    Own,
    /// Nowhere, as nobody reads it.
    Nowhere,
}

impl Compiled {
    /// The plan for inputs of these shapes; those that are not given have the shapes of the model. Variables have the
    /// shapes that the model tells.
    ///
    /// # Errors
    /// The shapes are not those of the model, or violate a rule of some layer.
    pub fn plan(&self, shapes: &[PartialShape]) -> Result<Plan, RunError> {
        let parameters = self.model().parameters.iter().zip(shapes).enumerate();
        let mut given: Vec<(NodeId, ValueFacts)> = Vec::new();
        for (index, (id, shape)) in parameters {
            let Some((element_type, declared)) = self.model().input_facts(index) else { continue };
            let Some(both) = declared.merge(shape) else {
                let name = self.model().input_name(index);
                let message = format!("input \"{name}\" has shape {declared}, which the given shape {shape} is not");
                return Err(RunError::new(Code::ShapeMismatch, message));
            };
            given.push((*id, ValueFacts::new(element_type, both)));
        }
        let mut instance = Instance::default();
        instance.prepare(self, &given)?;
        let steps = (0..self.steps.len()).map(|position| self.plan_step(&instance, position));
        Ok(Plan {
            steps: steps.collect::<Result<_, _>>()?,
            arena_bytes: instance.arena_bytes,
            tensor_bytes: instance.tensor_bytes,
            helpers: if self.threads() > 1 { instance.helpers() } else { Helpers::Never },
            threads: self.threads(),
        })
    }

    fn plan_step(&self, instance: &Instance, position: usize) -> Result<PlanStep, RunError> {
        let (step, plan) = (&self.steps[position], &instance.steps[position]);
        let node = self.model().node(step.node);
        let fused = node.operation.downcast_ref::<Fused>();
        let outputs = (0..node.outputs.len() as u32).map(|port| Source { node: step.node, port });
        Ok(PlanStep {
            friendly_name: node.friendly_name.clone(),
            type_name: node.type_name.to_string(),
            stages: fused.map_or(Vec::new(), |fused| fused.stages.iter().map(|s| s.type_name.clone()).collect()),
            members: fused.map_or(Vec::new(), |fused| fused.stages.iter().map(|s| s.friendly_name.clone()).collect()),
            action: self.plan_action(step, plan.use_kernel || !plan.is_static),
            is_static: plan.is_static,
            in_place: plan.in_place,
            scratch: plan.scratch.clone(),
            work_nanoseconds: instance.work_nanoseconds(self, position),
            inputs: node.inputs.iter().map(|source| self.plan_value(instance, *source)).collect(),
            outputs: outputs.map(|source| self.plan_value(instance, source)).collect(),
            bodies: step.bodies.iter().map(|body| body.plan(&[])).collect::<Result<_, _>>()?,
        })
    }

    fn plan_action(&self, step: &Step, uses_kernel: bool) -> PlanAction {
        let variable = |index: usize| self.variables[index].variable_id.clone();
        match &step.action {
            Action::Kernel(kernel) if uses_kernel => PlanAction::Kernel(short(kernel.name())),
            Action::Kernel(kernel) => PlanAction::Unfit(short(kernel.name())),
            Action::Reference => PlanAction::Reference,
            Action::Reshape => PlanAction::View,
            Action::Read(index) => PlanAction::Read(variable(*index)),
            Action::Assign(index) => PlanAction::Assign(variable(*index)),
            Action::Append(index) => PlanAction::Append(variable(*index)),
        }
    }

    fn plan_value(&self, instance: &Instance, source: Source) -> PlanValue {
        let value = self.value(source);
        let variable = |index: usize| self.variables[index].variable_id.clone();
        let place = match &instance.places[value] {
            Place::None if self.is_settled[source.node.index()] => PlanPlace::Packed,
            Place::None => PlanPlace::Nowhere,
            Place::Constant(_) | Place::Late(_) => PlanPlace::Constant,
            Place::Input(index) => PlanPlace::Input(*index),
            Place::Arena(range) => PlanPlace::Arena(range.clone()),
            Place::Output(index) => PlanPlace::Output(*index),
            Place::Current(index) => PlanPlace::Variable(variable(*index)),
            Place::Next(index) => PlanPlace::Next(variable(*index)),
            Place::Dynamic(_) => PlanPlace::Own,
        };
        let last_read = instance.last_read(value);
        let last_step = self.steps.len().saturating_sub(1);
        PlanValue {
            name: self.model().node(source.node).value_name(source.port as usize),
            element_type: instance.types[value],
            shape: instance.partial_shape(source),
            is_blocked: self.layout(source) == Layout::Blocked,
            last_read: matches!(place, PlanPlace::Arena(_))
                .then(|| if last_read == AT_THE_END { last_step } else { last_read as usize }),
            place,
        }
    }
}

/// The last two parts of a path: the file of a kernel, and what it is called there.
fn short(path: &str) -> String {
    let path = path.split('<').next().unwrap_or(path);
    let parts: Vec<&str> = path.rsplit("::").take(2).collect();
    let name = parts.first().map_or("", |name| name.strip_suffix("Kernel").unwrap_or(name));
    match parts.get(1) {
        Some(file) => format!("{file}::{name}"),
        None => name.to_owned(),
    }
}
