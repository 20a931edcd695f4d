//! Bodies of control flow as sub-plans.

use std::cell::RefCell;

use ovir_diagnostics::Code;
use ovir_graph::infer_model;
use ovir_ops::{Blame, Body, Environment, OpError, OpResult, SymbolSource, ValueFacts};
use ovir_tensor::Tensor;

use crate::RunError;
use crate::compile::Compiled;
use crate::request::State;

/// A body that runs: its plan and the memory of the request for it.
pub(crate) struct BodyPlan<'a> {
    pub compiled: &'a Compiled,
    pub state: RefCell<&'a mut State>,
}

impl Body for BodyPlan<'_> {
    fn parameter(&self, index: usize) -> ValueFacts {
        match self.compiled.model.input_facts(index) {
            Some((element_type, shape)) => ValueFacts::new(element_type, shape.clone()),
            None => ValueFacts::default(),
        }
    }

    fn result_count(&self) -> usize {
        self.compiled.model.results.len()
    }

    fn infer(&self, parameters: &[ValueFacts]) -> OpResult<Vec<ValueFacts>> {
        let model = &self.compiled.model;
        let given: Vec<_> = model.parameters.iter().copied().zip(parameters.iter().cloned()).collect();
        let mut diagnostics = Vec::new();
        let inference = infer_model(model, &given, &mut SymbolSource::default(), &mut diagnostics);
        if let Some(error) = diagnostics.iter().find(|d| d.is_error()) {
            return Err(OpError::new(error.code, Blame::Node, format!("in the body: {}", error.message)));
        }
        Ok(model.results.iter().map(|id| inference.outputs(*id).first().cloned().unwrap_or_default()).collect())
    }

    fn run(&self, parameters: &[Tensor], environment: &mut Environment) -> OpResult<Vec<Tensor>> {
        let model = &self.compiled.model;
        for (id, tensor) in model.parameters.iter().zip(parameters) {
            let expected = self.compiled.inference.outputs(*id).first().map(|facts| &facts.shape);
            if let Some(expected) = expected.filter(|expected| !expected.contains(tensor.shape())) {
                let (reference, shape) = (model.node(*id).reference(), tensor.shape());
                return Err(OpError::unsupported(format!(
                    "{reference}: an iteration gives {shape} where inference of shapes expects {expected}"
                )));
            }
        }
        let mut state = self.state.try_borrow_mut().map_err(|_| in_body(&busy()))?;
        for (index, tensor) in parameters.iter().enumerate() {
            state.set_input(index, tensor.clone());
        }
        let result = state.infer(self.compiled, environment, None, None);
        // The outputs are the caller's from here on, and the next iteration makes new ones.
        if let (Ok(()), Some(limits)) = (&result, environment.limits()) {
            limits.release(state.tensor_bytes());
        }
        result.map_err(|e| in_body(&e))?;
        state.take_outputs().ok_or_else(|| in_body(&busy()))
    }
}

fn busy() -> RunError {
    RunError::new(Code::InvalidBody, "the body is already running")
}

fn in_body(error: &RunError) -> OpError {
    OpError::new(error.code, Blame::Node, format!("in the body: {}", error.message))
}
