//! # Fused
//! A chain of operations that runs as one layer. Optimisation makes it; it is never in a file.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in n | what the stages read from outside | any | any |
//! | out 0 | the output of the last stage | | |
//!
//! Its inference and its reference evaluation are those of its stages, one after the other, so that a kernel for the
//! whole can be compared with what it replaces.

use std::sync::Arc;

use ovir_tensor::{SmallVec, Tensor, TensorView};

use crate::{
    Blame, Environment, EvaluateContext, InferContext, OpError, OpResult, Operation, OutputSlot, OutputSlots,
    SymbolSource, ValueFacts,
};

/// Where an input of a stage comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StageInput {
    /// An input of the layer.
    Outside(usize),
    /// The first output of an earlier stage.
    Stage(usize),
}

/// One operation of the chain.
#[derive(Debug, Clone)]
pub struct Stage {
    /// The friendly name of the layer that it was.
    pub friendly_name: String,
    /// The type.
    pub type_name: String,
    /// The operation.
    pub operation: Arc<dyn Operation>,
    /// Its inputs.
    pub inputs: Vec<StageInput>,
}

impl Stage {
    /// The input of the layer that the stage reads at a place.
    #[must_use]
    pub fn outside(&self, place: usize) -> Option<usize> {
        match self.inputs.get(place)? {
            StageInput::Outside(port) => Some(*port),
            StageInput::Stage(_) => None,
        }
    }
}

/// A fused layer.
#[derive(Debug, Clone)]
pub struct Fused {
    /// The stages; the output of the last one is that of the layer.
    pub stages: Vec<Stage>,
}

impl Fused {
    /// Whether an Add with the input `port` adds a tensor that is computed, as far as the order of stages tells: a bias
    /// stands right behind the first stage, and only one Add can be it.
    pub fn is_residual(&self, port: usize) -> bool {
        let adds: Vec<&Stage> = self.stages.iter().filter(|stage| stage.type_name == "Add").collect();
        adds.iter().skip(1).any(|stage| stage.inputs.contains(&StageInput::Outside(port)))
    }
}

impl Operation for Fused {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        // An attention with everything that it takes has eleven stages.
        let mut results: SmallVec<[ValueFacts; 12]> = SmallVec::new();
        for stage in &self.stages {
            let mut inputs: SmallVec<[&ValueFacts; 6]> = SmallVec::new();
            for input in &stage.inputs {
                inputs.push(match input {
                    StageInput::Outside(port) => context.facts(*port)?,
                    StageInput::Stage(index) => results.get(*index).ok_or_else(broken)?,
                });
            }
            let mut outputs = [ValueFacts::default()];
            let mut problems = Vec::new();
            let mut of_stage = InferContext::new(&inputs, &mut outputs, &mut problems, context.symbols(), &[]);
            stage.operation.infer(&mut of_stage)?;
            let read = of_stage.read_values();
            for (index, input) in stage.inputs.iter().enumerate() {
                if let (StageInput::Outside(port), true) = (input, read.contains(index)) {
                    context.note_read(*port);
                }
            }
            if let Some(problem) = problems.into_iter().next() {
                return Err(problem);
            }
            drop(inputs);
            let [output] = outputs;
            results.push(output);
        }
        let last = results.pop().ok_or_else(broken)?;
        context.set_output(0, last.element_type, last.shape);
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let mut results: Vec<Tensor> = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let mut views: SmallVec<[TensorView<'_>; 4]> = SmallVec::new();
            for input in &stage.inputs {
                views.push(match input {
                    StageInput::Outside(port) => context.input(*port)?,
                    StageInput::Stage(index) => results.get(*index).ok_or_else(broken)?.view(),
                });
            }
            let output = run_stage(stage, &views, context.environment())?;
            drop(views);
            results.push(output);
        }
        context.set_output(0, results.pop().ok_or_else(broken)?)
    }

    fn takes_packed(&self) -> bool {
        true
    }
}

fn run_stage(stage: &Stage, views: &[TensorView<'_>], environment: &mut Environment) -> OpResult<Tensor> {
    let facts: SmallVec<[ValueFacts; 4]> = views
        .iter()
        .map(|view| {
            if view.elements() <= ovir_tensor::MAX_BOUNDS_ELEMENTS {
                return Ok(ValueFacts::of_constant(view.to_tensor()?));
            }
            Ok(ValueFacts::new(view.element_type(), view.shape().into()))
        })
        .collect::<OpResult<_>>()?;
    let facts: SmallVec<[&ValueFacts; 4]> = facts.iter().collect();
    let mut outputs = [ValueFacts::default()];
    let (mut problems, mut symbols) = (Vec::new(), SymbolSource::default());
    stage.operation.infer(&mut InferContext::new(&facts, &mut outputs, &mut problems, &mut symbols, &[]))?;
    let mut slots = [OutputSlot::Needed(outputs[0].element_type)];
    let mut targets = OutputSlots(&mut slots);
    EvaluateContext::new(views, &mut targets, &[], environment, false).run(&*stage.operation)?;
    match slots {
        [OutputSlot::Produced(tensor)] => Ok(tensor),
        _ => Err(broken()),
    }
}

fn broken() -> OpError {
    OpError::new(ovir_diagnostics::Code::InvalidBody, Blame::Node, "a stage of the fused layer yields nothing")
}
