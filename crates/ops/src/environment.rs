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
    /// The bytes that run-time allocations have taken so far.
    pub used: AtomicUsize,
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

    /// Counts `bytes` against the memory limit.
    ///
    /// # Errors
    /// When the limit is exceeded.
    pub fn claim(&self, bytes: usize) -> OpResult {
        if self.memory == 0 {
            return Ok(());
        }
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.memory {
            let message = format!(
                "the memory limit of {} bytes was reached: {bytes} more bytes were needed beside {before}",
                self.memory
            );
            return Err(OpError::new(Code::LimitExceeded, Blame::Node, message));
        }
        Ok(())
    }
}
