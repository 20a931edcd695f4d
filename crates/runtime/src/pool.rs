//! The threads of a compiled model.

#[cfg(feature = "threads")]
use std::sync::{Arc, OnceLock};

/// The threads that this process may use: what affinity and the control group allow.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// A pool of a fixed number of threads, made when it is first needed.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pool {
    threads: usize,
    #[cfg(feature = "threads")]
    pool: Arc<OnceLock<Option<rayon::ThreadPool>>>,
}

impl Pool {
    /// A pool of `threads` threads; 0 means all that are available.
    pub fn new(threads: usize) -> Pool {
        let threads = if threads == 0 { available_threads() } else { threads };
        Pool { threads, ..Pool::default() }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads.max(1)
    }

    /// Runs `work` inside the pool, or on the caller's thread where the pool has one thread only.
    #[cfg(feature = "threads")]
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        if self.threads() == 1 || rayon::current_thread_index().is_some() {
            return work();
        }
        let build = || {
            let name = |index| format!("ovir-{index}");
            rayon::ThreadPoolBuilder::new().num_threads(self.threads).thread_name(name).build().ok()
        };
        match self.pool.get_or_init(build) {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Runs `work` on the caller's thread.
    #[cfg(not(feature = "threads"))]
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        work()
    }
}
