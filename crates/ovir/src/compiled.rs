//! A model that is ready to run.

use std::sync::Arc;

use ovir_graph::{Unresolved, Validated, diagnose};
use ovir_ops::OpError;
use ovir_optimize::PassReport;
use ovir_runtime::{Compiled, InferencePrecision, Plan, RunError};
use ovir_tensor::PartialShape;

use crate::model::Source;
use crate::{Core, Error, InferRequest, Model};

/// How a model is compiled.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// The number of threads of an inference, 64 at the most; 0 means all that are available.
    pub threads: usize,
    /// Runs every layer by its plain reference evaluation, without passes and kernels.
    pub reference_only: bool,
    /// Leaves out the passes that fuse, fold and remove layers, so that every value of the model can be observed.
    pub keep_layers: bool,
    /// The most bytes that constant expressions of the model may take together when they are evaluated; 0 means no limit.
    /// [`InferRequest::set_memory_limit`] counts them too.
    pub memory_limit: usize,
    /// The precision of products, convolutions and attention of f32; with `reference_only`, everything is f32.
    pub inference_precision: InferencePrecision,
    /// The most neighbouring values of a row that are quantised to eight bits together, as they come, in products with
    /// constants of four or eight bits: OpenVINO's `DYNAMIC_QUANTIZATION_GROUP_SIZE`. 0 leaves them in f32, whose results are
    /// closer to the model's; groups are smaller where the constants' own groups ask for it.
    pub dynamic_quantization_group_size: usize,
}

/// A compiled model: steps and packed constants that any number of requests share.
#[derive(Debug, Clone)]
pub struct CompiledModel {
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) source: Arc<Source>,
}

impl Core {
    /// Makes a model ready to run.
    ///
    /// # Errors
    /// Models that were read without weights, and operations that cannot be run.
    pub fn compile_model(&self, model: &Model, options: &CompileOptions) -> Result<CompiledModel, Error> {
        refuse_unresolved(model.graph()).map_err(|error| model.locate(error))?;
        compile(model, ovir_optimize::optimize(model.validated.as_ref().clone(), &options.passes()), options)
    }

    /// As [`Core::compile_model`], with what each pass did, in their order.
    ///
    /// # Errors
    /// As [`Core::compile_model`].
    pub fn compile_model_traced(
        &self,
        model: &Model,
        options: &CompileOptions,
    ) -> Result<(CompiledModel, Vec<PassReport>), Error> {
        refuse_unresolved(model.graph()).map_err(|error| model.locate(error))?;
        let (validated, reports) = ovir_optimize::optimize_traced(model.validated.as_ref().clone(), &options.passes());
        Ok((compile(model, validated, options)?, reports))
    }
}

fn compile(model: &Model, validated: Validated, options: &CompileOptions) -> Result<CompiledModel, Error> {
    let compiled = Compiled::new(validated, &options.runtime()).map_err(|error| model.locate(error))?;
    Ok(CompiledModel { compiled: Arc::new(compiled), source: model.source.clone() })
}

/// What [`CompileOptions::set_property`] knows.
const PROPERTIES: [&str; 3] = ["INFERENCE_PRECISION_HINT", "DYNAMIC_QUANTIZATION_GROUP_SIZE", "INFERENCE_NUM_THREADS"];

impl CompileOptions {
    /// Sets an option by the name and the value that OpenVINO's CPU plugin has for it: `INFERENCE_PRECISION_HINT`,
    /// `DYNAMIC_QUANTIZATION_GROUP_SIZE`, `INFERENCE_NUM_THREADS`.
    ///
    /// # Errors
    /// There is no such property here, or it does not take the value.
    pub fn set_property(&mut self, name: &str, value: &str) -> Result<(), Error> {
        let refused = |reason: String| Error::Usage(format!("{name}: {reason}"));
        let count = || value.parse().map_err(|_| refused(format!("`{value}` is no number, which has to be 0 or more")));
        match name {
            "INFERENCE_PRECISION_HINT" => self.inference_precision = value.parse().map_err(refused)?,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE" => self.dynamic_quantization_group_size = count()?,
            "INFERENCE_NUM_THREADS" => self.threads = count()?,
            _ => {
                let known = PROPERTIES.map(str::to_owned).to_vec();
                return Err(Error::UnknownName { kind: "property", name: name.to_owned(), known });
            }
        }
        Ok(())
    }

    pub(crate) fn passes(&self) -> ovir_optimize::Options {
        ovir_optimize::Options { enabled: !self.reference_only && !self.keep_layers }
    }

    pub(crate) fn runtime(&self) -> ovir_runtime::CompileOptions {
        ovir_runtime::CompileOptions {
            threads: self.threads,
            reference_only: self.reference_only,
            memory_limit: self.memory_limit,
            inference_precision: self.inference_precision,
            dynamic_quantization_group_size: self.dynamic_quantization_group_size,
        }
    }
}

impl CompiledModel {
    /// A request with memory of its own.
    pub fn create_infer_request(&self) -> InferRequest {
        InferRequest::new(self)
    }

    /// The keys under which the outputs are written to files, in order: their names, with `#k` appended where `k`
    /// earlier outputs have the same name.
    pub fn output_keys(&self) -> Vec<String> {
        crate::keys::output_keys(self.graph())
    }

    /// The number of threads that an inference uses.
    pub fn threads(&self) -> usize {
        self.compiled.threads()
    }

    /// The plan for inputs of these shapes; those that are not given have the shapes of the model.
    ///
    /// # Errors
    /// The shapes violate a rule of some layer.
    pub fn plan(&self, shapes: &[PartialShape]) -> Result<Plan, Error> {
        self.compiled.plan(shapes).map_err(|error| self.source.locate(error))
    }

    /// The graph as it runs, after all passes.
    pub fn graph(&self) -> &ovir_graph::Model {
        self.compiled.model()
    }
}

impl Model {
    /// The error with the line of its layer.
    pub(crate) fn locate(&self, error: RunError) -> Error {
        self.source.locate(error)
    }
}

impl Source {
    /// The error with the line of its layer.
    pub(crate) fn locate(&self, error: RunError) -> Error {
        let line = error
            .span
            .and_then(|span| self.xml.as_bytes().get(..span.start as usize))
            .map(|before| 1 + before.iter().filter(|byte| **byte == b'\n').count());
        Error::Run { error: Box::new(error), line }
    }
}

/// A model may hold operations that are specified but not implemented, which validation notes.
fn refuse_unresolved(model: &ovir_graph::Model) -> Result<(), RunError> {
    for node in &model.nodes {
        if node.operation.downcast_ref::<Unresolved>().is_some() {
            let error = OpError::unsupported("this version of ovir does not implement the operation");
            return Err(RunError::from(diagnose(model, node, &error)));
        }
        for body in &node.bodies {
            refuse_unresolved(body)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pretty_assertions::assert_eq;

    #[test]
    fn properties_have_the_names_of_openvino() {
        let mut options = CompileOptions::default();
        for (name, value) in PROPERTIES.into_iter().zip(["bf16", "32", "2"]) {
            options.set_property(name, value).unwrap();
        }
        assert_eq!(options.inference_precision, InferencePrecision::Bf16);
        assert_eq!((options.dynamic_quantization_group_size, options.threads), (32, 2));
        let refused =
            |name: &str, value: &str| CompileOptions::default().set_property(name, value).unwrap_err().to_string();
        assert_eq!(
            refused("INFERENCE_PRECISION_HINT", "f16"),
            "INFERENCE_PRECISION_HINT: f16 is no precision of arithmetic; there are f32 and bf16"
        );
        assert_eq!(
            refused("DYNAMIC_QUANTIZATION_GROUP_SIZE", "-1"),
            "DYNAMIC_QUANTIZATION_GROUP_SIZE: `-1` is no number, which has to be 0 or more"
        );
        assert_eq!(
            refused("NUM_STREAMS", "1"),
            "there is no property \"NUM_STREAMS\"; there is INFERENCE_PRECISION_HINT, DYNAMIC_QUANTIZATION_GROUP_SIZE, \
             INFERENCE_NUM_THREADS"
        );
    }
}
