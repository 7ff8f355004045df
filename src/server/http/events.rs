//! A reply as a stream of events. The client's speed drives it: nothing is taken from the inbox before what was taken
//! last is on its way.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use hyper::body::Frame as Piece;
use tokio::time::{Instant, timeout_at};

use super::app::App;
use super::generate::cancelled;
use super::running::Entry;
use crate::server::api::{Encoder, Frame, Shape, Stamp};
use crate::server::{Failure, Inbox, Update, Waiting};

/// A reply that is being sent.
#[derive(Debug)]
pub(super) struct Stream {
    app: Arc<App>,
    inbox: Inbox,
    entry: Entry,
    shape: Shape,
    stamp: Stamp,
    encoder: Encoder,
    /// What the reply waits for, for keepalives.
    waiting: Option<Waiting>,
    is_over: bool,
}

impl Stream {
    /// Of a request that was taken.
    pub(super) fn new(
        app: Arc<App>,
        inbox: Inbox,
        entry: Entry,
        shape: Shape,
        stamp: Stamp,
    ) -> Self {
        let encoder = Encoder::new(shape.clone(), stamp.clone());
        Self { app, inbox, entry, shape, stamp, encoder, waiting: None, is_over: false }
    }

    /// The next bytes, and the stream behind them.
    async fn step(mut self) -> Option<(Bytes, Self)> {
        let keepalive = self.app.config.times.keepalive;
        let mut due = Instant::now() + keepalive;
        while !self.is_over {
            let bytes = self.bytes(due).await;
            if !bytes.is_empty() {
                return Some((bytes.into(), self));
            }
            if due <= Instant::now() {
                due = Instant::now() + keepalive;
            }
        }
        None
    }

    /// What the next update, or the lack of one until `due`, makes to be sent.
    async fn bytes(&mut self, due: Instant) -> Vec<u8> {
        let update = tokio::select! {
            update = timeout_at(due, self.inbox.next()) => update,
            () = self.entry.cancelled() => Ok(Some(Update::Failed(cancelled()))),
        };
        let frames = match update {
            Ok(update) => {
                let update = update.unwrap_or_else(|| Update::Failed(Failure::stopping()));
                self.note(&update);
                self.encoder.update(&update)
            }
            Err(_) => self.encoder.keepalive(self.waiting.as_ref()),
        };
        frames.iter().flat_map(Frame::to_bytes).collect()
    }

    fn note(&mut self, update: &Update) {
        match update {
            Update::Waiting(waiting) => self.waiting = Some(*waiting),
            Update::End(outcome) => {
                // Before the client can name it.
                self.app.responses.remember(&self.shape, &self.stamp, outcome);
                self.is_over = true;
            }
            Update::Failed(_) => self.is_over = true,
            Update::Begin(_)
            | Update::Reasoning(_)
            | Update::Text(_)
            | Update::Logprob(_)
            | Update::CallBegin { .. }
            | Update::CallArguments(_)
            | Update::CallEnd => self.waiting = None,
        }
    }
}

/// The answer whose body the stream is. Its head goes out at once.
pub(super) fn response(stream: Stream) -> Response {
    let mut response = Response::new(Body::new(Events { step: Some(Box::pin(stream.step())) }));
    for (name, value) in [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Proxies are not to collect it first.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A step that is being taken.
type Step = Pin<Box<dyn Future<Output = Option<(Bytes, Stream)>> + Send>>;

/// The stream as a body.
struct Events {
    step: Option<Step>,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Piece<Bytes>, Infallible>>> {
        let Some(step) = &mut self.step else { return Poll::Ready(None) };
        let next = std::task::ready!(step.as_mut().poll(cx));
        let (bytes, step) = match next {
            Some((bytes, stream)) => (Some(bytes), Some(Box::pin(stream.step()) as Step)),
            None => (None, None),
        };
        self.step = step;
        Poll::Ready(bytes.map(|bytes| Ok(Piece::data(bytes))))
    }
}
