//! Accepting connections until the server stops.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::app::{App, Peer};
use super::listen::Bound;
use super::routes::router;
use super::{Listener, Times, connection};

/// Connections at once; more wait to be accepted.
const CONNECTIONS: usize = 1024;
/// Bytes that the system may hold for a client. It says that there is room again only when a third of them is taken:
/// of the megabytes that it would hold otherwise that takes a slow client longer than one may wait that has stopped.
const SEND_BYTES: usize = 64 << 10;
/// Pause after the system refused to accept, usually for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` becomes true; then accepts no more, and returns when the answers under way are finished.
///
/// # Errors
/// When the socket cannot be used at all.
pub async fn serve(
    listener: Listener,
    app: Arc<App>,
    mut stop: watch::Receiver<bool>,
) -> io::Result<()> {
    let times = app.config.times;
    let shared = Shared { router: router(app), times, stop: stop.clone() };
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    let mut open = JoinSet::new();
    let (socket, _file) = Acceptor::new(listener)?;
    loop {
        while open.try_join_next().is_some() {}
        let stopped = stop.wait_for(|stop| *stop);
        tokio::select! {
            _ = stopped => break,
            () = socket.accept(&room, &shared, &mut open) => {}
        }
    }
    drop(socket);
    while open.join_next().await.is_some() {}
    Ok(())
}

/// What every connection gets.
struct Shared {
    router: Router,
    times: Times,
    stop: watch::Receiver<bool>,
}

/// The listening socket in its asynchronous form.
enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// With the guard of the socket's file, where it has one.
    fn new(listener: Listener) -> io::Result<(Self, Option<super::listen::SocketFile>)> {
        Ok(match listener.socket {
            Bound::Tcp(socket) => (Self::Tcp(TcpListener::from_std(socket)?), None),
            Bound::Unix(socket, file) => (Self::Unix(UnixListener::from_std(socket)?), Some(file)),
        })
    }

    /// Accepts one connection and serves it in a task of its own.
    async fn accept(&self, room: &Arc<Semaphore>, shared: &Shared, open: &mut JoinSet<()>) {
        let permit = Arc::clone(room).acquire_owned().await.expect("nobody closes the semaphore");
        let accepted = match self {
            Self::Tcp(socket) => socket.accept().await.map(|(stream, peer)| {
                open.spawn(tcp(stream, Peer(peer.to_string()), shared, permit));
            }),
            Self::Unix(socket) => socket.accept().await.map(|(stream, _)| {
                open.spawn(held(permit, connect(stream, Peer("unix".into()), shared)));
            }),
        };
        if accepted.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A TCP connection whose events leave at once.
fn tcp(
    stream: TcpStream,
    peer: Peer,
    shared: &Shared,
    permit: OwnedSemaphorePermit,
) -> impl Future<Output = ()> + Send + use<> {
    // Without it answers are only later.
    let _ = stream.set_nodelay(true);
    // Without it slow clients are only given up too early.
    let _ = rustix::net::sockopt::set_socket_send_buffer_size(&stream, SEND_BYTES);
    held(permit, connect(stream, peer, shared))
}

fn connect<S>(stream: S, peer: Peer, shared: &Shared) -> impl Future<Output = ()> + Send + use<S>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    connection::run(stream, peer, shared.router.clone(), shared.times, shared.stop.clone())
}

/// Keeps the permit as long as the connection lasts.
async fn held(permit: OwnedSemaphorePermit, connection: impl Future<Output = ()> + Send) {
    connection.await;
    drop(permit);
}
