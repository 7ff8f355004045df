//! One connection, from its first byte to its last.

use std::future::{Future as _, poll_fn};
use std::pin::Pin;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::Times;
use super::app::Peer;
use super::guard::Guard;

/// Largest head of a request.
const HEAD_BYTES: usize = 64 << 10;
/// Bytes that the HTTP library may hold of what is read and written.
const BUFFER_BYTES: usize = 128 << 10;
/// How long, and for how much of a request that was not read, a connection stays for its answer to be read.
const LINGER: Duration = Duration::from_secs(1);
const LINGER_BYTES: usize = 8 << 20;

/// A request that took too long to arrive. The library only closes then.
const LATE: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// Serves a connection until either side ends it, or `stop` says so and the answer under way is finished.
///
/// A client that closes its side while it waits is gone, also when it only closes the way towards the server: the
/// answer under way is dropped.
pub(super) async fn run<S>(
    socket: S,
    peer: Peer,
    router: Router,
    times: Times,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(router);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(peer.clone());
        Box::pin(routes.call(request))
    });
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(times.read)
        .max_header_size(HEAD_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(Guard::new(socket, times.stall)), service);
    let mut stopping = Box::pin(async move { stop.wait_for(|stop| *stop).await.map(drop) });
    let mut has_stopped = false;
    let ended = poll_fn(|cx| {
        if !has_stopped && stopping.as_mut().poll(cx).is_ready() {
            has_stopped = true;
            Pin::new(&mut connection).graceful_shutdown();
        }
        connection.poll_without_shutdown(cx)
    })
    .await;
    let parts = connection.into_parts();
    let mut socket = parts.io.into_inner();
    // Between two requests silence is no failure.
    if ended.is_err_and(|e| e.is_timeout()) && !parts.read_buf.is_empty() {
        let _ = socket.write_all(LATE).await;
    }
    linger(&mut socket).await;
}

/// Closes the way to the client, and reads what it still sends: a socket closed with unread bytes takes the answer
/// away from the client.
async fn linger<S: AsyncRead + AsyncWrite + Unpin>(socket: &mut S) {
    if socket.shutdown().await.is_err() {
        return;
    }
    let mut rest = socket.take(LINGER_BYTES as u64);
    let mut sink = tokio::io::sink();
    let _ = timeout(LINGER, tokio::io::copy(&mut rest, &mut sink)).await;
}
