//! The way from the engine's thread to a connection, which neither end ever waits on.
//!
//! The engine's thread only asks whether the client keeps up ([`Outbox::is_full`]) and leaves a slot out of the next
//! steps until it does. Dropping either end tells the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::{Call, Update};

/// Bytes of updates that may wait for a client before its slot pauses.
pub const OUTBOX_BYTES: usize = 1 << 20;

/// The engine's end.
#[derive(Debug)]
pub struct Outbox {
    sender: mpsc::UnboundedSender<(usize, Update)>,
    waiting: Arc<AtomicUsize>,
    limit: usize,
}

/// The connection's end. Dropping it cancels the request.
#[derive(Debug)]
pub struct Inbox {
    receiver: mpsc::UnboundedReceiver<(usize, Update)>,
    waiting: Arc<AtomicUsize>,
}

/// Both ends; `limit` is in bytes, usually [`OUTBOX_BYTES`].
pub fn outbox(limit: usize) -> (Outbox, Inbox) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Outbox { sender, waiting: Arc::clone(&waiting), limit }, Inbox { receiver, waiting })
}

impl Outbox {
    /// Hands over an update. False when nobody is there any more.
    pub fn send(&self, update: Update) -> bool {
        let bytes = weight(&update);
        self.waiting.fetch_add(bytes, Ordering::Relaxed);
        self.sender.send((bytes, update)).is_ok()
    }

    /// Whether the client should catch up first.
    pub fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= self.limit
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_abandoned(&self) -> bool {
        self.sender.is_closed()
    }
}

impl Inbox {
    /// The next update; `None` after the last, and when the engine's thread is gone.
    pub async fn next(&mut self) -> Option<Update> {
        let (bytes, update) = self.receiver.recv().await?;
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        Some(update)
    }

    /// As [`Inbox::next`], for threads that may wait.
    ///
    /// # Panics
    /// Inside of an asynchronous task.
    pub fn next_blocking(&mut self) -> Option<Update> {
        let (bytes, update) = self.receiver.blocking_recv()?;
        self.waiting.fetch_sub(bytes, Ordering::Relaxed);
        Some(update)
    }
}

/// About how many bytes an update takes.
fn weight(update: &Update) -> usize {
    let text = match update {
        Update::Reasoning(text) | Update::Text(text) | Update::CallArguments(text) => text.len(),
        Update::CallBegin { id, name } => id.len() + name.len(),
        Update::End(outcome) => {
            let call = |call: &Call| call.json.len() * 2;
            outcome.reasoning.len()
                + outcome.text.len()
                + outcome.calls.iter().map(call).sum::<usize>()
        }
        Update::Logprob(logprob) => 64 * (1 + logprob.top.len()),
        Update::Waiting(_) | Update::Begin(_) | Update::CallEnd | Update::Failed(_) => 0,
    };
    size_of::<Update>() + text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_does_not_read_fills_its_outbox_and_one_that_reads_empties_it() {
        let (outbox, mut inbox) = outbox(1000);
        assert!(!outbox.is_full());
        assert!(outbox.send(Update::Text("x".repeat(1000))));
        assert!(outbox.is_full());
        assert_eq!(inbox.next_blocking(), Some(Update::Text("x".repeat(1000))));
        assert!(!outbox.is_full());
        drop(outbox);
        assert_eq!(inbox.next_blocking(), None);
    }

    #[test]
    fn an_outbox_knows_that_its_client_left() {
        let (outbox, inbox) = outbox(OUTBOX_BYTES);
        assert!(!outbox.is_abandoned());
        drop(inbox);
        assert!(outbox.is_abandoned());
        assert!(!outbox.send(Update::CallEnd));
    }
}
