//! Reading the body of a request: at most so much, never waiting long, compressed or not.

use std::future::poll_fn;
use std::io::Read as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, header};
use flate2::read::MultiGzDecoder;

use crate::server::{Failure, FailureKind};

/// Bodies of the largest size that may be held at once; of smaller ones there may be more.
const LARGEST_AT_ONCE: usize = 4;

/// What is unpacked at once.
const PIECE_BYTES: usize = 64 << 10;

/// The memory that all bodies share, packed or not: a thousand clients that send slowly, or all at once, cannot have it all.
#[derive(Debug)]
pub(super) struct Room {
    left: Arc<AtomicUsize>,
    /// Of one body.
    limit: usize,
    patience: Duration,
}

/// A body that was read. Its room is free again when it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) bytes: Vec<u8>,
    left: Arc<AtomicUsize>,
}

impl Room {
    /// For bodies of at most `limit` bytes, whose pieces may be `patience` apart.
    pub(super) fn new(limit: usize, patience: Duration) -> Self {
        let left = Arc::new(AtomicUsize::new(limit.saturating_mul(LARGEST_AT_ONCE)));
        Self { left, limit, patience }
    }

    fn empty(&self) -> Held {
        Held { bytes: Vec::new(), left: Arc::clone(&self.left) }
    }
}

impl Held {
    /// Adds a piece, if that makes no more than `limit` bytes and there is room for it.
    fn push(&mut self, piece: &[u8], limit: usize) -> Result<(), Failure> {
        if self.bytes.len() + piece.len() > limit {
            return Err(too_large(limit));
        }
        let take = |left: usize| left.checked_sub(piece.len());
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).map_err(|_| {
            let text = "the server holds as many bodies of requests as it may; try again later";
            Failure::new(FailureKind::QueueFull, text)
        })?;
        self.bytes.extend_from_slice(piece);
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.left.fetch_add(self.bytes.len(), Ordering::Relaxed);
    }
}

/// Reads a body to its end.
///
/// # Errors
/// [`FailureKind::TooLarge`], before anything is read where the header tells; [`FailureKind::Timeout`] when nothing
/// comes for as long as it may take; [`FailureKind::QueueFull`] when other bodies leave no room for it;
/// [`FailureKind::Invalid`] when it ends early.
pub(super) async fn read(mut body: Body, room: &Room) -> Result<Held, Failure> {
    let Room { limit, patience, .. } = *room;
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut read = room.empty();
    loop {
        let next = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
        let frame = tokio::time::timeout(patience, next).await.map_err(|_| {
            let text = format!("nothing of the body came for {} s", patience.as_secs_f32());
            Failure::new(FailureKind::Timeout, text)
        })?;
        let Some(frame) = frame else { return Ok(read) };
        let early = |e| {
            Failure::new(FailureKind::Invalid, format!("the body is broken off or malformed: {e}"))
        };
        let data = frame.map_err(early)?.into_data().unwrap_or_else(|_trailers| Bytes::new());
        read.push(&data, limit)?;
    }
}

/// Undoes `Content-Encoding`. May take long: not for an asynchronous task.
///
/// # Errors
/// [`FailureKind::Invalid`] for unknown encodings and damaged data, [`FailureKind::TooLarge`] when it unpacks to too much,
/// [`FailureKind::QueueFull`] when other bodies leave no room for that.
pub(super) fn decode(headers: &HeaderMap, body: Held, room: &Room) -> Result<Held, Failure> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(body) };
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
    match &*encoding {
        "" | "identity" => Ok(body),
        "gzip" | "x-gzip" => unpacked(&body.bytes, room),
        other => {
            let text =
                format!("Content-Encoding {other} is not supported; send gzip or plain JSON");
            Err(Failure::new(FailureKind::Invalid, text))
        }
    }
}

fn unpacked(packed: &[u8], room: &Room) -> Result<Held, Failure> {
    let mut reader = MultiGzDecoder::new(packed);
    let mut unpacked = room.empty();
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let n = reader.read(&mut piece).map_err(|e| {
            Failure::new(FailureKind::Invalid, format!("the body is not gzip: {e}"))
        })?;
        if n == 0 {
            return Ok(unpacked);
        }
        unpacked.push(&piece[..n], room.limit)?;
    }
}

fn too_large(limit: usize) -> Failure {
    let text = format!("the body is larger than {limit} bytes; --max-body-mb sets the limit");
    Failure::new(FailureKind::TooLarge, text)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn encoded(encoding: &str, body: &[u8], limit: usize) -> Result<Vec<u8>, FailureKind> {
        let headers = HeaderMap::from_iter([(header::CONTENT_ENCODING, encoding.parse().unwrap())]);
        let room = Room::new(limit, Duration::from_mins(1));
        let held = Held { bytes: body.to_vec(), left: Arc::default() };
        decode(&headers, held, &room).map(|held| held.bytes.clone()).map_err(|failure| failure.kind)
    }

    #[test]
    fn gzip_is_unpacked_up_to_the_limit() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![b' '; 100_000]).unwrap();
        let packed = gzip.finish().unwrap();
        assert!(packed.len() < 1000);
        assert_eq!(encoded("gzip", &packed, 100_000).map(|body| body.len()), Ok(100_000));
        assert_eq!(encoded("GZip", &packed, 99_999), Err(FailureKind::TooLarge));
        assert_eq!(encoded("gzip", &packed[..50], 100_000), Err(FailureKind::Invalid));
        assert_eq!(encoded("br", &packed, 100_000), Err(FailureKind::Invalid));
        assert_eq!(encoded("identity", b"{}", 10), Ok(b"{}".to_vec()));
    }

    #[test]
    fn what_unpacks_to_much_takes_the_room_of_that() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(&vec![b' '; 100_000]).unwrap();
        let packed = gzip.finish().unwrap();
        let room = Room::new(100_000, Duration::from_mins(1));
        let held: Vec<_> =
            (0..LARGEST_AT_ONCE).map(|_| unpacked(&packed, &room).unwrap()).collect();
        assert_eq!(unpacked(&packed, &room).unwrap_err().kind, FailureKind::QueueFull);
        drop(held);
        assert_eq!(unpacked(&packed, &room).unwrap().bytes.len(), 100_000);
    }

    #[tokio::test]
    async fn bodies_end_at_the_limit() {
        let room = |limit| Room::new(limit, Duration::from_mins(1));
        assert_eq!(read(Body::from("12345"), &room(5)).await.unwrap().bytes, b"12345");
        let failure = read(Body::from("123456"), &room(5)).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLarge);
        assert_eq!(read(Body::empty(), &room(0)).await.unwrap().bytes, b"");
    }

    #[tokio::test]
    async fn bodies_share_their_room_and_give_it_back() {
        let room = Room::new(5, Duration::from_mins(1));
        let mut held = Vec::new();
        for _ in 0..LARGEST_AT_ONCE {
            held.push(read(Body::from("12345"), &room).await.unwrap());
        }
        let failure = read(Body::from("1"), &room).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::QueueFull);
        assert_eq!(read(Body::empty(), &room).await.unwrap().bytes, b"", "it needs none");
        held.pop();
        let failure = read(Body::from("123456"), &room).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLarge);
        assert!(read(Body::from("12345"), &room).await.is_ok(), "what was refused takes no room");
        drop(held);
        assert_eq!(room.left.load(Ordering::Relaxed), 5 * LARGEST_AT_ONCE);
    }
}
