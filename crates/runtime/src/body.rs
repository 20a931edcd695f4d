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
    /// The results of the last iterations, the latest at the end: whose memory nobody shares any more serves those that
    /// follow. A loop has let go of a result one iteration after the next one is there.
    lent: RefCell<[Vec<Option<Tensor>>; 2]>,
}

impl<'a> BodyPlan<'a> {
    /// A body with the memory of the request for it.
    pub fn new(compiled: &'a Compiled, state: &'a mut State) -> BodyPlan<'a> {
        BodyPlan { compiled, state: RefCell::new(state), lent: RefCell::default() }
    }

    /// Gives the outputs the memory of results that nobody has any more.
    fn reuse(&self, state: &mut State) {
        let [oldest, _] = &mut *self.lent.borrow_mut();
        for (index, tensor) in oldest.drain(..).enumerate() {
            if let Some(tensor) = tensor.filter(|tensor| tensor.own_capacity().is_some()) {
                state.set_output(index, tensor);
            }
        }
    }

    /// Keeps in mind which results have memory of their own.
    fn lend(&self, results: &[Tensor]) {
        let mut lent = self.lent.borrow_mut();
        let kept = |tensor: &Tensor| tensor.own_capacity().map(|_| tensor.clone());
        lent.swap(0, 1);
        let [_, latest] = &mut *lent;
        latest.clear();
        latest.extend(results.iter().map(kept));
    }
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
        self.reuse(&mut state);
        let result = state.infer(self.compiled, environment, None, None);
        // The outputs are the caller's from here on, who counts what it keeps.
        if let (Ok(()), Some(limits)) = (&result, environment.limits()) {
            limits.release(state.tensor_bytes());
        }
        result.map_err(|e| in_body(&e))?;
        let results = state.take_outputs().ok_or_else(|| in_body(&busy()))?;
        // What lies in reserve would not count against a limit.
        if environment.limits().is_none_or(|limits| limits.memory == 0) {
            self.lend(&results);
        }
        Ok(results)
    }
}

fn busy() -> RunError {
    RunError::new(Code::InvalidBody, "the body is already running")
}

fn in_body(error: &RunError) -> OpError {
    OpError::new(error.code, Blame::Node, format!("in the body: {}", error.message))
}
