//! # If
//! Runs one of two bodies.
//!
//! Specification: `condition/if-8`.
//!
//! | port | name | types | shape |
//! |---|---|---|---|
//! | in 0 | condition | boolean | scalar or one element |
//! | in n | inputs of the bodies | any | any |
//! | out n | results of the body that ran | any | any |

use std::sync::Arc;

use ovir_tensor::{ElementClass, Tensor};

use crate::common::iteration::truth;
use crate::{
    Blame, BodyPorts, BuildContext, Category, EvaluateContext, InferContext, OpDef, OpError, OpResult, OpVersion,
    Operation, ValueFacts,
};

/// The definition of If.
pub static IF: OpDef = OpDef {
    type_name: "If",
    category: Category::Condition,
    versions: &[OpVersion::new(8, (8, 16), (1, usize::MAX), (0, usize::MAX))],
    attributes: &[],
    build,
};

/// An If layer.
#[derive(Debug)]
pub struct If {
    /// The port maps of `then_body` and `else_body`.
    pub ports: Vec<BodyPorts>,
}

impl Operation for If {
    fn infer(&self, context: &mut InferContext<'_>) -> OpResult {
        context.require_class(0, ElementClass::Boolean)?;
        context.require_one_element(0)?;
        let mut outputs: Vec<Option<ValueFacts>> = vec![None; context.output_count()];
        for (index, ports) in self.ports.iter().enumerate() {
            let body = *context.bodies().get(index).ok_or_else(no_bodies)?;
            let runs = context.integer(0).is_none_or(|condition| (condition != 0) == (index == 0));
            let results = body.infer(&parameter_facts(body, ports, context))?;
            if !runs {
                continue;
            }
            for output in &ports.outputs {
                let (Some(slot), Some(facts)) = (outputs.get_mut(output.external), results.get(output.result)) else {
                    continue;
                };
                *slot = Some(match slot.take() {
                    None => facts.clone(),
                    Some(other) => join(&other, facts, output.external)?,
                });
            }
        }
        for (port, facts) in outputs.into_iter().enumerate() {
            if let Some(facts) = facts {
                context.set_output(port, facts.element_type, facts.shape);
            }
        }
        Ok(())
    }

    fn evaluate(&self, context: &mut EvaluateContext<'_>) -> OpResult {
        let index = usize::from(!truth(&context.input(0)?.to_tensor()?));
        let ports = self.ports.get(index).ok_or_else(no_bodies)?;
        let mut parameters = Vec::with_capacity(ports.parameter_count);
        for parameter in 0..ports.parameter_count {
            let input = ports.inputs.iter().find(|input| input.parameter == parameter);
            let input = input.ok_or_else(|| {
                OpError::new(
                    ovir_diagnostics::Code::InvalidBody,
                    Blame::Node,
                    format!("parameter {parameter} of the body has no input"),
                )
            })?;
            parameters.push(context.input(input.external)?.to_tensor()?);
        }
        let (bodies, environment) = context.bodies();
        let body = *bodies.get(index).ok_or_else(no_bodies)?;
        let results = body.run(&parameters, environment)?;
        for output in &ports.outputs {
            let tensor: Option<&Tensor> = results.get(output.result);
            if let Some(tensor) = tensor {
                context.set_output(output.external, tensor.clone())?;
            }
        }
        Ok(())
    }

    fn bodies(&self) -> &[BodyPorts] {
        &self.ports
    }
}

fn parameter_facts(body: &dyn crate::Body, ports: &BodyPorts, context: &InferContext<'_>) -> Vec<ValueFacts> {
    let mut facts: Vec<ValueFacts> = (0..ports.parameter_count).map(|i| body.parameter(i)).collect();
    for input in &ports.inputs {
        if let (Ok(given), Some(slot)) = (context.input(input.external), facts.get_mut(input.parameter)) {
            *slot = given.clone();
        }
    }
    facts
}

/// What an output is that comes from either body.
fn join(a: &ValueFacts, b: &ValueFacts, port: usize) -> OpResult<ValueFacts> {
    let element_type = a.element_type.merge(b.element_type).ok_or_else(|| {
        let message = format!("then_body yields {}, else_body yields {}", a.element_type, b.element_type);
        OpError::element_type(Blame::Output(port), message)
    })?;
    Ok(ValueFacts::new(element_type, a.shape.union(&b.shape)))
}

fn no_bodies() -> OpError {
    OpError::new(ovir_diagnostics::Code::InvalidBody, Blame::Node, "the layer needs a then_body and an else_body")
}

fn build(context: &mut BuildContext<'_, '_>) -> Arc<dyn Operation> {
    Arc::new(If { ports: std::mem::take(&mut context.bodies) })
}
