//! What surrounds an evaluation: limits, cancellation and random streams.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use ovir_diagnostics::Code;
use ovir_tensor::{ElementType, Shape, Tensor};

use crate::{Blame, OpError, OpResult};

/// What an inference may use, shared by all its steps.
#[derive(Debug, Default)]
pub struct Limits {
    /// Set from outside to stop the inference at the next occasion.
    pub cancelled: AtomicBool,
    /// The most bytes that run-time allocations of one inference may take together; 0 means no limit.
    pub memory: usize,
    /// The bytes that run-time allocations of this inference have taken so far.
    pub used: AtomicUsize,
    /// The bytes that stay from inference to inference: evaluated constants and the memory of plans.
    pub held: AtomicUsize,
}

/// The position of a random stream; it advances from inference to inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RandomStream {
    /// The seed of a layer that has none of its own. It differs from layer to layer, but not from run to run.
    pub seed: u64,
    /// Two numbers whose meaning is the generator's.
    pub state: [u64; 2],
}

/// The surroundings of an evaluation.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    limits: Option<Arc<Limits>>,
    deadline: Option<Instant>,
    /// The random stream of the layer that is evaluated: it is set before and taken back after the evaluation.
    pub random: RandomStream,
}

impl Environment {
    /// Surroundings without limits.
    pub fn unlimited() -> Environment {
        Environment::default()
    }

    /// Surroundings with limits.
    pub fn new(limits: Arc<Limits>) -> Environment {
        Environment { limits: Some(limits), ..Environment::default() }
    }

    /// The same surroundings with a time at which the inference must have ended.
    pub fn with_deadline(self, deadline: Instant) -> Environment {
        Environment { deadline: Some(deadline), ..self }
    }

    /// The limits.
    pub fn limits(&self) -> Option<&Limits> {
        self.limits.as_deref()
    }

    /// Stops work that can go on without bound: to be called once an iteration.
    ///
    /// # Errors
    /// When the inference is cancelled or out of time.
    pub fn poll(&self) -> OpResult {
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(OpError::new(Code::LimitExceeded, Blame::Node, "the time limit was reached"));
        }
        self.limits.as_ref().map_or(Ok(()), |limits| limits.poll())
    }

    /// A zeroed tensor whose bytes count against the memory limit.
    ///
    /// # Errors
    /// When the limit is exceeded or memory cannot be had.
    pub fn allocate(&self, element_type: ElementType, shape: &Shape) -> OpResult<Tensor> {
        if let Some(limits) = &self.limits {
            let bytes = shape.checked_elements().and_then(|n| element_type.storage_bytes(n)).unwrap_or(usize::MAX);
            limits.claim(if element_type == ElementType::String { 0 } else { bytes })?;
        }
        Ok(Tensor::zeros(element_type, shape.clone())?)
    }
}

impl Limits {
    /// Stops work that can go on without bound.
    ///
    /// # Errors
    /// When the inference is cancelled.
    pub fn poll(&self) -> OpResult {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(OpError::new(Code::LimitExceeded, Blame::Node, "the inference was cancelled"));
        }
        Ok(())
    }

    /// Limits for a number of bytes, 0 being none, of which some are taken already and stay.
    pub fn of_memory(memory: usize, held: usize) -> Limits {
        Limits { memory, held: AtomicUsize::new(held), ..Limits::default() }
    }

    /// Counts `bytes` of this inference against the memory limit.
    ///
    /// # Errors
    /// When the limit is exceeded.
    pub fn claim(&self, bytes: usize) -> OpResult {
        self.count(&self.used, &self.held, bytes)
    }

    /// Counts `bytes` that stay after this inference against the memory limit.
    ///
    /// # Errors
    /// When the limit is exceeded.
    pub fn hold(&self, bytes: usize) -> OpResult {
        self.count(&self.held, &self.used, bytes)
    }

    /// Gives back `bytes` that were claimed.
    pub fn release(&self, bytes: usize) {
        if self.memory != 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    fn count(&self, counter: &AtomicUsize, other: &AtomicUsize, bytes: usize) -> OpResult {
        if self.memory == 0 {
            return Ok(());
        }
        let before = counter.load(Ordering::Relaxed).saturating_add(other.load(Ordering::Relaxed));
        if before.saturating_add(bytes) > self.memory {
            let message = format!(
                "the memory limit of {} bytes was reached: {bytes} more bytes were needed beside {before}",
                self.memory
            );
            return Err(OpError::new(Code::LimitExceeded, Blame::Node, message));
        }
        counter.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }
}
