//! # Loop
//! Runs a body until its condition is false or the trip count is reached, carrying values from iteration to iteration.
//!
//! Specification: `infrastructure/loop-5`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | trip_count; negative means no limit | i32, i64 | scalar or one element |
//! | in 1 | execution_condition before the first iteration | boolean | scalar or one element |
//! | in n | whole or sliced inputs | any | any |
//! | out n | last values or concatenated values | any | any |
//!
//! A parameter of the body may take the number of the iteration, a result may say whether another one follows.

use std::sync::Arc;

use ovir_tensor::{Dim, ElementClass, ElementType, INFINITE, Tensor};

use super::tensor_iterator::{finish, no_body};
use crate::common::iteration::{Rounds, first_facts, first_parameters, gathered_shape, infer_around, truth};
use crate::{
    Blame, BodyPorts, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation, ValueFacts,
};

/// The definition of Loop.
pub static LOOP: OpDef = OpDef {
    type_name: "Loop",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(5, (5, 16), (2, usize::MAX), (0, usize::MAX))],
    attributes: &[],
    build,
};

/// A Loop layer.
#[derive(Debug)]
pub struct Loop {
    /// The port map of its body.
    pub ports: Vec<BodyPorts>,
}

impl Operation for Loop {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports = self.ports()?;
        context.require_class(0, ElementClass::Index)?;
        context.require_one_element(0)?;
        context.require_class(1, ElementClass::Boolean)?;
        context.require_one_element(1)?;
        let body = *context.bodies().first().ok_or_else(no_body)?;
        let mut parameters = first_facts(body, ports, context)?;
        let mut count = self.limit(context);
        let mut results = infer_around(body, ports, &mut parameters, count)?;
        if !self.always_goes_on(&results) {
            count = Dim::interval(i64::from(context.integer(1) == Some(1) && count.min() > 0), count.max());
            results = infer_around(body, ports, &mut parameters, count)?;
        }
        for output in &ports.outputs {
            let Some(facts) = results.get(output.result) else { continue };
            let shape = match &output.slicing {
                Some(slicing) => gathered_shape(&facts.shape, slicing, count, Blame::Output(output.external))?,
                None => self.last_shape(facts, output.result, &parameters, count),
            };
            context.set_output(output.external, facts.element_type, shape);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let ports = self.ports()?;
        let limit = usize::try_from(context.integer(0)?).ok();
        let condition = truth(&context.input(1)?.to_tensor()?);
        let inputs: Vec<Tensor> =
            (0..context.input_count()).map(|i| Ok(context.input(i)?.to_tensor()?)).collect::<OpResult<_>>()?;
        let (bodies, environment) = context.bodies();
        let body = *bodies.first().ok_or_else(no_body)?;
        let parameters = first_parameters(body, ports, &inputs)?;
        let rounds = Rounds { body, ports, inputs: &inputs, parameters };
        let mut outputs = rounds.run(limit, condition, environment)?;
        self.fill_empty(body, &inputs, &mut outputs)?;
        finish(context, outputs)
    }

    fn bodies(&self) -> &[BodyPorts] {
        &self.ports
    }
}

impl Loop {
    fn ports(&self) -> OpResult<&BodyPorts> {
        self.ports.first().ok_or_else(no_body)
    }

    /// The number of iterations as far as trip count and first condition say it.
    fn limit(&self, context: &InferContext<'_>) -> Dim {
        if context.integer(1) == Some(0) {
            return Dim::fixed(0);
        }
        match context.integer(0) {
            Some(trips) if trips >= 0 && context.integer(1) == Some(1) => Dim::interval(trips, trips),
            Some(trips) if trips >= 0 => Dim::interval(0, trips),
            _ => Dim::interval(0, INFINITE),
        }
    }

    /// Whether the body says in every iteration that another follows.
    fn always_goes_on(&self, results: &[ValueFacts]) -> bool {
        let port = self.ports.first().and_then(|p| p.special.execution_condition);
        match port.and_then(|port| results.get(port)) {
            None => true,
            Some(facts) => facts.integers().is_some_and(|values| values.first() == Some(&1)),
        }
    }

    /// The shape of a last value; where there may be no iteration, it may also be the initial one.
    fn last_shape(
        &self,
        facts: &ValueFacts,
        result: usize,
        parameters: &[ValueFacts],
        count: Dim,
    ) -> ovir_tensor::PartialShape {
        let edge = self.ports.first().and_then(|p| p.back_edges.iter().find(|e| e.result == result));
        match edge.and_then(|e| parameters.get(e.parameter)) {
            Some(initial) if count.min() == 0 => facts.shape.union(&initial.shape),
            _ => facts.shape.clone(),
        }
    }

    /// Gives outputs that no iteration produced: collected ones are empty along their axis.
    fn fill_empty(&self, body: &dyn crate::Body, inputs: &[Tensor], outputs: &mut [Option<Tensor>]) -> OpResult {
        let ports = self.ports()?;
        if outputs.iter().all(Option::is_some) {
            return Ok(());
        }
        let facts: Vec<ValueFacts> = first_parameters(body, ports, inputs)?
            .into_iter()
            .map(|t| ValueFacts::new(t.element_type(), t.shape().into()))
            .collect();
        let results = body.infer(&facts)?;
        for map in &ports.outputs {
            let (Some(slot), Some(result)) = (outputs.get_mut(map.external), results.get(map.result)) else { continue };
            if slot.is_some() {
                continue;
            }
            let mut shape = result.shape.clone();
            if let (Some(slicing), Some(rank)) = (&map.slicing, shape.rank()) {
                let axis = crate::infer::normalize_axis(slicing.axis, rank, Blame::Output(map.external))?;
                if let Some(dims) = shape.dims_mut() {
                    dims[axis] = Dim::fixed(0);
                }
            }
            let element_type = Some(result.element_type).filter(|t| t.is_known()).unwrap_or(ElementType::F32);
            let shape = shape.to_shape().ok_or_else(|| {
                let message = format!("no iteration ran, and the shape {shape} of this output is not known without");
                OpError::value(Blame::Output(map.external), message)
            })?;
            *slot = Some(Tensor::zeros(element_type, shape)?);
        }
        Ok(())
    }
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(Loop { ports: std::mem::take(&mut context.bodies) })
}
