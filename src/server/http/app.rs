//! What every request has at hand.

use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;

use super::Config;
use super::auth::Keys;
use super::body::Room;
use super::reply::RequestId;
use super::running::Running;
use crate::server::api::ResponseStore;
use crate::server::{Desk, Failure, FailureKind, LogWriter};

/// The server as its routes see it.
#[derive(Debug)]
pub struct App {
    pub(super) desk: Arc<Desk>,
    pub(super) config: Config,
    pub(super) keys: Keys,
    pub(super) responses: ResponseStore,
    pub(super) running: Arc<Running>,
    pub(super) bodies: Room,
    pub(super) log: LogWriter,
}

/// Where a request came from, for the log.
#[derive(Debug, Clone)]
pub(super) struct Peer(pub(super) String);

impl App {
    /// Around a desk.
    pub fn new(desk: Arc<Desk>, config: Config, log: LogWriter) -> Self {
        let (keys, responses) = (Keys::new(&config.keys), ResponseStore::new(config.responses));
        let bodies = Room::new(config.body_bytes, config.times.read);
        Self { desk, config, keys, responses, running: Arc::default(), bodies, log }
    }

    /// One line for each request that is refused or that wants something done; reading is not worth one.
    pub(super) fn log_answer(&self, request: &Summary, id: &RequestId, response: &Response) {
        let status = response.status();
        if request.reads && status.is_success() {
            return;
        }
        self.log.answer(&id.0, &request.line, &request.peer, status.as_u16());
    }
}

/// What the log says of a request, taken before the request is given away.
#[derive(Debug)]
pub(super) struct Summary {
    line: String,
    peer: String,
    reads: bool,
}

impl Summary {
    /// Of a request.
    pub(super) fn of(request: &Request) -> Self {
        let peer = request.extensions().get::<Peer>().map_or("-", |peer| &peer.0);
        Self {
            // The path without its query: those may carry keys.
            line: format!("{} {}", request.method(), request.uri().path()),
            peer: peer.to_owned(),
            reads: request.method().is_safe(),
        }
    }
}

/// Runs what may take long on a thread that may wait.
///
/// # Errors
/// What `work` says, or that it came to nothing because the program ends.
pub(super) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        Err(Failure::new(FailureKind::Engine, "the request could not be worked on"))
    })
}
