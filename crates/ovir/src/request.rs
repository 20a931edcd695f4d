//! Inference requests.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

use ovir_runtime::{Observer, Profile, Request, RunError};
use ovir_tensor::Tensor;

use crate::model::Source;
use crate::{CompiledModel, Error};

/// One inference at a time on a compiled model: tensors in, `infer`, tensors out. Variables of the model live here.
///
/// Tensors are shared, not copied, in both directions.
pub struct InferRequest {
    request: Arc<Mutex<Request>>,
    running: Option<JoinHandle<Result<(), RunError>>>,
    source: Arc<Source>,
    limits: CancelHandle,
}

/// Cancels the running inference of a request from another thread.
#[derive(Debug, Clone)]
pub struct CancelHandle {
    limits: Arc<ovir_ops::Limits>,
}

/// A variable of the model in a request.
#[derive(Debug, Clone)]
pub struct VariableState {
    /// The `variable_id`.
    pub name: String,
    /// A snapshot of the value; `None` after a reset, until the next inference.
    pub value: Option<Tensor>,
}

impl CancelHandle {
    /// Stops the running inference at its next step.
    pub fn cancel(&self) {
        self.limits.cancelled.store(true, Ordering::Relaxed);
    }
}

impl InferRequest {
    pub(crate) fn new(compiled: &CompiledModel) -> InferRequest {
        let request = Request::new(compiled.compiled.clone());
        let limits = CancelHandle { limits: request.limits() };
        InferRequest { request: Arc::new(Mutex::new(request)), running: None, source: compiled.source.clone(), limits }
    }

    /// Sets input `index`.
    ///
    /// # Errors
    /// When there is no such input, or type or shape do not fit.
    pub fn set_input_tensor(&mut self, index: usize, tensor: Tensor) -> Result<(), Error> {
        Ok(self.lock()?.set_input(index, tensor)?)
    }

    /// Sets the input that `name` means: a tensor name, a friendly name or an index.
    ///
    /// # Errors
    /// When there is no such input, or type or shape do not fit.
    pub fn set_tensor(&mut self, name: &str, tensor: Tensor) -> Result<(), Error> {
        let mut request = self.lock()?;
        let index = {
            let model = request.compiled().model();
            let names = |index: usize| model.input_names(index).into_iter().map(str::to_owned).collect();
            lookup("input", name, model.parameters.len(), &names, &|index| model.input_name(index))?
        };
        Ok(request.set_input(index, tensor)?)
    }

    /// Output `index` of the last inference.
    ///
    /// # Errors
    /// When there is no such output, or nothing was inferred yet.
    pub fn output_tensor(&self, index: usize) -> Result<Tensor, Error> {
        let missing = || Error::Usage(format!("output {index} has no value; run an inference first"));
        self.lock()?.output(index).cloned().ok_or_else(missing)
    }

    /// The output that `name` means, of the last inference.
    ///
    /// # Errors
    /// When there is no such output, or nothing was inferred yet.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let index = {
            let request = self.lock()?;
            let model = request.compiled().model();
            lookup("output", name, model.results.len(), &|i| model.output_names(i), &|i| model.output_name(i))?
        };
        self.output_tensor(index)
    }

    /// Gives a tensor whose memory the next inference may use for output `index`.
    ///
    /// # Errors
    /// When the request is running.
    pub fn set_output_tensor(&mut self, index: usize, tensor: Tensor) -> Result<(), Error> {
        self.lock()?.set_output(index, tensor);
        Ok(())
    }

    /// Runs one inference on this thread and the threads of the compiled model.
    ///
    /// # Errors
    /// A missing input, a violation that depends on shapes or data, or a limit. Variables are then as they were.
    pub fn infer(&mut self) -> Result<(), Error> {
        let result = self.lock()?.infer();
        result.map_err(|error| self.source.locate(error))
    }

    /// Runs one inference and shows every value that it computes, in order.
    ///
    /// # Errors
    /// As [`InferRequest::infer`].
    pub fn infer_observed(&mut self, observer: Observer<'_>) -> Result<(), Error> {
        let result = self.lock()?.infer_observed(observer);
        result.map_err(|error| self.source.locate(error))
    }

    /// Starts an inference on a thread of its own; [`InferRequest::wait`] ends it.
    ///
    /// # Errors
    /// When the request is running already.
    pub fn start_async(&mut self) -> Result<(), Error> {
        if self.running.is_some() {
            return Err(Error::Usage("the request is running already".to_owned()));
        }
        let request = self.request.clone();
        self.running = Some(std::thread::spawn(move || match request.lock() {
            Ok(mut request) => request.infer(),
            Err(poisoned) => poisoned.into_inner().infer(),
        }));
        Ok(())
    }

    /// Waits until the inference that was started has ended.
    ///
    /// # Errors
    /// As [`InferRequest::infer`].
    pub fn wait(&mut self) -> Result<(), Error> {
        let Some(running) = self.running.take() else { return Ok(()) };
        match running.join() {
            Ok(result) => result.map_err(|error| self.source.locate(error)),
            Err(_) => Err(Error::Usage("the inference ended abnormally".to_owned())),
        }
    }

    /// What another thread needs to cancel a running inference.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.limits.clone()
    }

    /// Stops the running inference at its next step. Later inferences run again after
    /// [`InferRequest::clear_cancellation`].
    pub fn cancel(&self) {
        self.limits.cancel();
    }

    /// Allows inferences again after a cancellation.
    pub fn clear_cancellation(&self) {
        self.limits.limits.cancelled.store(false, Ordering::Relaxed);
    }

    /// Sets all variables and random streams back to the beginning.
    ///
    /// # Errors
    /// When the request is running.
    pub fn reset_state(&mut self) -> Result<(), Error> {
        self.lock()?.reset();
        Ok(())
    }

    /// The variables.
    ///
    /// # Errors
    /// When the request is running, or memory for a snapshot cannot be had.
    pub fn query_state(&self) -> Result<Vec<VariableState>, Error> {
        let request = self.lock()?;
        let variables = request.compiled().variables().iter().enumerate();
        variables
            .map(|(index, info)| {
                let value = request.variable(index)?;
                Ok(VariableState { name: info.variable_id.clone(), value })
            })
            .collect()
    }

    /// Sets the value of a variable.
    ///
    /// # Errors
    /// When there is no such variable, or type or shape do not fit.
    pub fn set_state(&mut self, name: &str, value: Tensor) -> Result<(), Error> {
        let mut request = self.lock()?;
        let names: Vec<String> = request.compiled().variables().iter().map(|v| v.variable_id.clone()).collect();
        let Some(index) = names.iter().position(|n| n == name) else {
            return Err(Error::UnknownName { kind: "variable", name: name.to_owned(), known: names });
        };
        Ok(request.set_variable(index, value)?)
    }

    /// Limits the time of an inference.
    ///
    /// # Errors
    /// When the request is running.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) -> Result<(), Error> {
        self.lock()?.set_time_limit(limit);
        Ok(())
    }

    /// Limits the memory that values may take together in one inference: evaluated constant expressions, intermediate
    /// values, outputs, variables. Weights and inputs are not counted. 0 means no limit.
    ///
    /// # Errors
    /// When the request is running.
    pub fn set_memory_limit(&mut self, bytes: usize) -> Result<(), Error> {
        let limits = {
            let mut request = self.lock()?;
            request.set_memory_limit(bytes);
            request.limits()
        };
        self.limits = CancelHandle { limits };
        Ok(())
    }

    /// Sets the seed of random layers whose own seeds are all 0, which is 0 otherwise, and begins their streams anew.
    ///
    /// # Errors
    /// When the request is running.
    pub fn set_seed(&mut self, seed: u64) -> Result<(), Error> {
        self.lock()?.set_seed(seed);
        Ok(())
    }

    /// Begins to measure the time of every step, or ends it.
    ///
    /// # Errors
    /// When the request is running.
    pub fn set_profiling(&mut self, on: bool) -> Result<(), Error> {
        self.lock()?.set_profiling(on);
        Ok(())
    }

    /// The times measured so far.
    ///
    /// # Errors
    /// When the request is running.
    pub fn profile(&self) -> Result<Option<Profile>, Error> {
        Ok(self.lock()?.profile().cloned())
    }

    /// The bytes of intermediate memory that the request holds.
    ///
    /// # Errors
    /// When the request is running.
    pub fn arena_bytes(&self) -> Result<usize, Error> {
        Ok(self.lock()?.arena_bytes())
    }

    fn lock(&self) -> Result<MutexGuard<'_, Request>, Error> {
        match self.request.try_lock() {
            Ok(request) => Ok(request),
            Err(TryLockError::WouldBlock) => Err(Error::Usage("the request is running; wait for it first".to_owned())),
            // An inference that panicked in a user's operation has left no value half written that is still read.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
        }
    }
}

fn lookup(
    kind: &'static str,
    name: &str,
    count: usize,
    names: &dyn Fn(usize) -> Vec<String>,
    shown: &dyn Fn(usize) -> String,
) -> Result<usize, Error> {
    if let Some(index) = (0..count).find(|index| names(*index).iter().any(|n| n == name)) {
        return Ok(index);
    }
    if let Some(index) = name.parse::<usize>().ok().filter(|index| *index < count) {
        return Ok(index);
    }
    let known = (0..count).map(|index| format!("\"{}\"", shown(index))).collect();
    Err(Error::UnknownName { kind, name: name.to_owned(), known })
}
