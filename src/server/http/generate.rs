//! The four endpoints that generate: a body goes in, a stream or one object comes out.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;

use super::app::{App, aside};
use super::body;
use super::events::{self, Stream};
use super::reply::{RequestId, ok, refuse};
use super::running::Entry;
use crate::server::api::{self, Context, Shape, Stamp};
use crate::server::{Api, Failure, FailureKind, Inbox, Outcome, State as Serving, Update};

/// A request that was taken.
struct Admitted {
    inbox: Inbox,
    shape: Shape,
    stamp: Stamp,
    streams: bool,
}

/// Answers a request to generate.
pub(super) async fn answer(
    api: Api,
    State(app): State<Arc<App>>,
    Extension(id): Extension<RequestId>,
    request: Request,
) -> Response {
    let admitted = match admit(api, &app, &id, request).await {
        Ok(admitted) => admitted,
        Err(failure) => return refuse(Some(api), &failure, &id),
    };
    let Admitted { mut inbox, shape, stamp, streams } = admitted;
    let entry = app.running.enter(&stamp.id);
    if streams {
        return events::response(Stream::new(app, inbox, entry, shape, stamp));
    }
    match outcome(&mut inbox, &entry).await {
        Ok(outcome) => {
            // Before the client can name it.
            app.responses.remember(&shape, &stamp, &outcome);
            ok(&api::answer(&shape, &stamp, &outcome))
        }
        Err(failure) => refuse(Some(api), &failure, &id),
    }
}

/// Reads, parses and hands in a request.
async fn admit(
    api: Api,
    app: &Arc<App>,
    id: &RequestId,
    request: Request,
) -> Result<Admitted, Failure> {
    let vocab = serving(app)?;
    let (parts, content) = request.into_parts();
    let held = body::read(content, &app.bodies).await?;
    let (app, id) = (Arc::clone(app), id.0.clone());
    aside(move || {
        let held = body::decode(&parts.headers, held, &app.bodies)?;
        let mut parsed = api::parse(api, &held.bytes, &context(&app, vocab))?;
        app.config.defaults.fill(&mut parsed.request);
        app.log.warnings(&id, &parsed.warnings);
        let stamp = Stamp::fresh(api);
        let streams = parsed.request.stream;
        let inbox = app.desk.submit(id, parsed.request, &held.bytes)?;
        Ok(Admitted { inbox, shape: parsed.shape, stamp, streams })
    })
    .await
}

/// What parsing needs to know.
pub(super) fn context(app: &App, vocab: usize) -> Context<'_> {
    Context { strict_media: app.config.strict_media, responses: &app.responses, vocab }
}

/// The size of the vocabulary, which is known from the moment that requests can be served.
///
/// # Errors
/// Before that moment, and when the server stops.
pub(super) fn serving(app: &App) -> Result<usize, Failure> {
    if app.desk.status().state == Serving::Stopping {
        return Err(Failure::stopping());
    }
    app.desk.facts().map(|facts| facts.vocab).ok_or_else(Failure::loading)
}

/// Waits for the end of a reply.
async fn outcome(inbox: &mut Inbox, entry: &Entry) -> Result<Outcome, Failure> {
    loop {
        let update = tokio::select! {
            update = inbox.next() => update,
            () = entry.cancelled() => Some(Update::Failed(cancelled())),
        };
        match update {
            Some(Update::End(outcome)) => return Ok(*outcome),
            Some(Update::Failed(failure)) => return Err(failure),
            Some(_) => {}
            // The engine's thread has left without a word.
            None => return Err(Failure::stopping()),
        }
    }
}

/// Somebody else asked for the end.
pub(super) fn cancelled() -> Failure {
    Failure::new(FailureKind::Invalid, "the response was cancelled")
}
