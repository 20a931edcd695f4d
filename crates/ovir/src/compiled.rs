//! A model that is ready to run.

use std::sync::Arc;

use ovir_runtime::Compiled;

use crate::InferRequest;
use crate::model::Source;

/// How a model is compiled.
#[derive(Debug, Clone, Default)]
pub struct CompileOptions {
    /// The number of threads; 0 means all that are available.
    pub threads: usize,
    /// Runs every layer by its plain reference evaluation, without passes and kernels.
    pub reference_only: bool,
    /// Leaves out the passes that fuse, fold and remove layers, so that every value of the model can be observed.
    pub keep_layers: bool,
}

/// A compiled model: steps and packed constants that any number of requests share.
#[derive(Debug, Clone)]
pub struct CompiledModel {
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) source: Arc<Source>,
}

impl CompileOptions {
    pub(crate) fn passes(&self) -> ovir_optimize::Options {
        ovir_optimize::Options { enabled: !self.reference_only && !self.keep_layers }
    }

    pub(crate) fn runtime(&self) -> ovir_runtime::CompileOptions {
        ovir_runtime::CompileOptions { threads: self.threads, reference_only: self.reference_only }
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

    /// The graph as it runs, after all passes.
    pub fn graph(&self) -> &ovir_graph::Model {
        self.compiled.model()
    }
}
