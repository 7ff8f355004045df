//! The worker threads and the memory each of them keeps.

use super::Error;
use std::sync::{Mutex, PoisonError};

/// A fixed number of threads. Which thread does what never shows in a result.
#[derive(Debug)]
pub(super) struct Pool {
    pool: rayon::ThreadPool,
}

impl Pool {
    pub(super) fn new(threads: usize) -> Result<Self, Error> {
        if threads == 0 {
            let expected = "at least 1".to_owned();
            return Err(Error::Option { name: "threads", expected, found: threads });
        }
        let builder = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = builder
            .thread_name(|i| format!("q36-cpu-{i}"))
            .build()
            .map_err(|source| Error::Threads { threads, source })?;
        Ok(Self { pool })
    }

    /// Runs `work` on the pool: parallel iterators in it use these threads and no others.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.pool.install(work)
    }
}

/// Memory that each thread of the pool has for itself.
#[derive(Debug)]
pub(super) struct PerThread<T>(Vec<Mutex<T>>);

impl<T> PerThread<T> {
    pub(super) fn new(threads: usize, make: impl Fn() -> T) -> Self {
        Self((0..threads).map(|_| Mutex::new(make())).collect())
    }

    /// Gives `work` this thread's memory. `work` must not start parallel work: a stolen task on the same thread
    /// would wait here for itself.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let index = rayon::current_thread_index().expect("called on a thread of the pool");
        // The contents are scratch, so what a panicking task left behind does no harm.
        work(&mut self.0[index].lock().unwrap_or_else(PoisonError::into_inner))
    }
}
