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
    /// The precision of products and convolutions of f32; with `reference_only`, everything is f32.
    pub inference_precision: InferencePrecision,
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

impl CompileOptions {
    pub(crate) fn passes(&self) -> ovir_optimize::Options {
        ovir_optimize::Options { enabled: !self.reference_only && !self.keep_layers }
    }

    pub(crate) fn runtime(&self) -> ovir_runtime::CompileOptions {
        ovir_runtime::CompileOptions {
            threads: self.threads,
            reference_only: self.reference_only,
            memory_limit: self.memory_limit,
            inference_precision: self.inference_precision,
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
