//! A socket that gives up on a client which takes nothing.
//!
//! While a client's outbox is full its session pauses, so a client that has stopped reading must not stay for ever. Time
//! counts from the first byte that cannot be written, and anew after each that can.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// The socket, and the time that is left for the bytes that wait.
#[derive(Debug)]
pub(super) struct Guard<S> {
    socket: S,
    patience: Duration,
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<S> Guard<S> {
    pub(super) fn new(socket: S, patience: Duration) -> Self {
        Self { socket, patience, waiting: None }
    }

    /// Passes on what became of a write, unless it has waited for too long.
    fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        write: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if write.is_ready() {
            self.waiting = None;
            return write;
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waiting
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the client takes nothing")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write(cx, buf);
        self.watch(cx, write)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flush = Pin::new(&mut self.socket).poll_flush(cx);
        self.watch(cx, flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shutdown = Pin::new(&mut self.socket).poll_shutdown(cx);
        self.watch(cx, shutdown)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let write = Pin::new(&mut self.socket).poll_write_vectored(cx, bufs);
        self.watch(cx, write)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test]
    async fn a_reader_that_has_stopped_ends_the_writer() {
        let (near, mut far) = duplex(16);
        let mut guard = Guard::new(near, Duration::from_millis(20));
        guard.write_all(&[1; 16]).await.unwrap();
        let error = guard.write_all(&[2; 16]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut taken = [0; 16];
        far.read_exact(&mut taken).await.unwrap();
        assert_eq!(taken, [1; 16]);
    }

    #[tokio::test]
    async fn patience_begins_anew_with_every_byte_that_is_taken() {
        let (near, _far) = duplex(16);
        let mut guard = Guard::new(near, Duration::from_mins(1));
        let mut write = |outcome: Poll<io::Result<usize>>| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let _ = guard.watch(&mut cx, outcome);
            guard.waiting.as_ref().map(|waiting| waiting.deadline())
        };
        let first = write(Poll::Pending).unwrap();
        assert_eq!(write(Poll::Pending), Some(first), "waiting goes on");
        assert_eq!(write(Poll::Ready(Ok(1))), None, "and is over");
    }

    #[tokio::test]
    async fn what_is_taken_in_pieces_arrives_whole() {
        let (near, mut far) = duplex(16);
        let mut guard = Guard::new(near, Duration::from_mins(1));
        let reader = tokio::spawn(async move {
            let mut all = Vec::new();
            far.read_to_end(&mut all).await.map(|n| (n, all))
        });
        guard.write_all(&[7; 1000]).await.unwrap();
        guard.shutdown().await.unwrap();
        assert_eq!(reader.await.unwrap().unwrap(), (1000, vec![7; 1000]));
    }
}
