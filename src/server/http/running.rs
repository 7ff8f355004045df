//! Replies that are being written, by the id that the client knows: so that they can be cancelled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<HashMap<String, Arc<Notify>>>);

/// One of them; it leaves the list when this is dropped.
#[derive(Debug)]
pub(super) struct Entry {
    all: Arc<Running>,
    id: String,
    cancelled: Arc<Notify>,
}

impl Running {
    /// Enters a reply.
    pub(super) fn enter(self: &Arc<Self>, id: &str) -> Entry {
        let cancelled = Arc::new(Notify::new());
        self.lock().insert(id.to_owned(), Arc::clone(&cancelled));
        Entry { all: Arc::clone(self), id: id.to_owned(), cancelled }
    }

    /// Cancels a reply; false when it is not running.
    pub(super) fn cancel(&self, id: &str) -> bool {
        let found = self.lock().get(id).cloned();
        if let Some(cancelled) = &found {
            cancelled.notify_one();
        }
        found.is_some()
    }

    /// How many there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    /// Ends when somebody cancels the reply.
    pub(super) async fn cancelled(&self) {
        self.cancelled.notified().await;
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_what_runs_can_be_cancelled() {
        let running = Arc::new(Running::default());
        let entry = running.enter("resp_1");
        assert!(!running.cancel("resp_2"));
        assert!(running.cancel("resp_1"));
        entry.cancelled().await;
        drop(entry);
        assert!(!running.cancel("resp_1"));
    }
}
