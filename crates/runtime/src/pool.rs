//! The threads of a compiled model.

#[cfg(feature = "threads")]
use std::sync::Arc;

#[cfg(feature = "threads")]
use ovir_kernels::team::{Crew, Team};

/// The threads that this process may use: what affinity and the control group allow.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The threads that the inferences of a compiled model share.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    #[cfg(feature = "threads")]
    crew: Arc<Crew>,
}

impl Pool {
    /// A pool of `threads` threads, those that infer among them; 0 means all that are available.
    #[cfg(feature = "threads")]
    pub fn new(threads: usize) -> Pool {
        Pool { crew: Crew::new(if threads == 0 { available_threads() } else { threads }) }
    }

    /// A pool of the caller's thread alone.
    #[cfg(not(feature = "threads"))]
    pub fn new(_threads: usize) -> Pool {
        Pool {}
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        #[cfg(feature = "threads")]
        return self.crew.threads();
        #[cfg(not(feature = "threads"))]
        1
    }

    /// What one request needs to run with the threads of the pool.
    pub fn team(&self) -> PoolTeam {
        PoolTeam {
            #[cfg(feature = "threads")]
            team: Team::new(self.crew.clone()),
        }
    }
}

/// A request's thread and its helpers from the pool.
#[derive(Debug)]
pub(crate) struct PoolTeam {
    #[cfg(feature = "threads")]
    team: Arc<Team>,
}

impl PoolTeam {
    /// Runs `work` on the caller's thread, with the helpers standing by.
    pub fn lead<R>(&self, work: impl FnOnce() -> R) -> R {
        #[cfg(feature = "threads")]
        return self.team.lead(work);
        #[cfg(not(feature = "threads"))]
        work()
    }

    /// As [`lead`](Self::lead), but the helpers are called only if the last such work ended a moment ago.
    pub fn lead_when_repeated<R>(&self, work: impl FnOnce() -> R) -> R {
        #[cfg(feature = "threads")]
        return self.team.lead_when_repeated(work);
        #[cfg(not(feature = "threads"))]
        work()
    }
}
