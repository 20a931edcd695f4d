//! # TensorIterator
//! Runs a body once for each slice of its inputs, carrying values from iteration to iteration.
//!
//! Specification: `infrastructure/tensor-iterator-1`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in n | whole or sliced inputs | any | any |
//! | out n | last values or concatenated slices | any | any |
//!
//! `start` and `end` are boundaries between positions; negative ones count from behind the last position, so that
//! `start=0, end=-1` is the whole axis. A negative stride goes backwards and puts outputs together backwards too.

use std::sync::Arc;

use ovir_tensor::{Dim, Tensor};

use crate::common::iteration::{Rounds, first_facts, first_parameters, gathered_shape, infer_around};
use crate::infer::normalize_axis;
use crate::{
    Blame, BodyPorts, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation,
};

/// The definition of TensorIterator.
pub static TENSOR_ITERATOR: OpDef = OpDef {
    type_name: "TensorIterator",
    category: Category::Infrastructure,
    versions: &[OpVersion::new(1, (1, 16), (0, usize::MAX), (0, usize::MAX))],
    attributes: &[],
    build,
};

/// A TensorIterator layer.
#[derive(Debug)]
pub struct TensorIterator {
    /// The port map of its body.
    pub ports: Vec<BodyPorts>,
}

impl Operation for TensorIterator {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        let ports = self.ports()?;
        let body = *context.bodies().first().ok_or_else(no_body)?;
        let mut count = Dim::DYNAMIC;
        for input in &ports.inputs {
            let Some(slicing) = &input.slicing else { continue };
            let blame = Blame::Input(input.external);
            let shape = context.shape(input.external);
            let Some(rank) = shape.rank() else { continue };
            let axis = normalize_axis(slicing.axis, rank, blame.clone())?;
            let iterations = slicing.iterations_of(shape.dim(axis), blame.clone())?;
            count = count.merge(iterations).ok_or_else(|| {
                let message = format!("this input gives {iterations} iterations, another gives {count}");
                OpError::shape(blame, message)
            })?;
        }
        let mut parameters = first_facts(body, ports, context)?;
        let results = infer_around(body, ports, &mut parameters, count)?;
        for output in &ports.outputs {
            let Some(facts) = results.get(output.result) else { continue };
            let shape = match &output.slicing {
                Some(slicing) => gathered_shape(&facts.shape, slicing, count, Blame::Output(output.external))?,
                None => facts.shape.clone(),
            };
            context.set_output(output.external, facts.element_type, shape);
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let ports = self.ports()?;
        let inputs: Vec<Tensor> =
            (0..context.input_count()).map(|i| Ok(context.input(i)?.to_tensor()?)).collect::<OpResult<_>>()?;
        let mut count = None;
        for input in &ports.inputs {
            let (Some(slicing), Some(tensor)) = (&input.slicing, inputs.get(input.external)) else { continue };
            let blame = Blame::Input(input.external);
            let axis = normalize_axis(slicing.axis, tensor.shape().rank(), blame.clone())?;
            let iterations = slicing.iterations(tensor.shape()[axis], blame.clone())?;
            if count.is_some_and(|count| count != iterations) {
                let message = format!("this input gives {iterations} iterations, another gives {}", count.unwrap_or(0));
                return Err(OpError::shape(blame, message));
            }
            count = Some(iterations);
        }
        let count = count.ok_or_else(|| {
            OpError::value(Blame::Node, "no input is cut into slices, so the number of iterations is unknown")
        })?;
        let (bodies, environment) = context.bodies();
        let body = *bodies.first().ok_or_else(no_body)?;
        let parameters = first_parameters(body, ports, &inputs)?;
        let rounds = Rounds { body, ports, inputs: &inputs, parameters };
        let outputs = rounds.run(Some(count), true, environment)?;
        finish(context, outputs)
    }

    fn bodies(&self) -> &[BodyPorts] {
        &self.ports
    }
}

impl TensorIterator {
    fn ports(&self) -> OpResult<&BodyPorts> {
        self.ports.first().ok_or_else(no_body)
    }
}

/// Gives the outputs of a loop; one that no iteration produced is empty where its shape is known to be.
pub(crate) fn finish(context: &mut EvaluateContext<'_>, outputs: Vec<Option<Tensor>>) -> OpResult {
    for (port, output) in outputs.into_iter().enumerate() {
        match output {
            Some(tensor) => context.set_output(port, tensor)?,
            None => {
                let message = "no iteration ran, so this output has no value";
                return Err(OpError::value(Blame::Output(port), message));
            }
        }
    }
    Ok(())
}

pub(crate) fn no_body() -> OpError {
    OpError::new(ovir_diagnostics::Code::InvalidBody, Blame::Node, "the layer has no body")
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(TensorIterator { ports: std::mem::take(&mut context.bodies) })
}
