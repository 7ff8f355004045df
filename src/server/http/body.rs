//! Reading the body of a request: at most so much, never waiting long, compressed or not.

use std::future::poll_fn;
use std::io::Read as _;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody as _};
use axum::http::{HeaderMap, header};
use flate2::read::MultiGzDecoder;

use crate::server::{Failure, FailureKind};

/// Reads a body to its end.
///
/// # Errors
/// [`FailureKind::TooLarge`], before anything is read where the header tells; [`FailureKind::Timeout`] when nothing
/// comes for as long as `patience`; [`FailureKind::Invalid`] when it ends early.
pub(super) async fn read(
    mut body: Body,
    limit: usize,
    patience: Duration,
) -> Result<Vec<u8>, Failure> {
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large(limit));
    }
    let mut read = Vec::new();
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
        if read.len() + data.len() > limit {
            return Err(too_large(limit));
        }
        read.extend_from_slice(&data);
    }
}

/// Undoes `Content-Encoding`. May take long: not for an asynchronous task.
///
/// # Errors
/// [`FailureKind::Invalid`] for unknown encodings and damaged data, [`FailureKind::TooLarge`] when it unpacks to too much.
pub(super) fn decode(headers: &HeaderMap, body: Vec<u8>, limit: usize) -> Result<Vec<u8>, Failure> {
    let Some(encoding) = headers.get(header::CONTENT_ENCODING) else { return Ok(body) };
    let encoding = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
    match &*encoding {
        "" | "identity" => Ok(body),
        "gzip" | "x-gzip" => {
            let mut unpacked = Vec::new();
            let packed =
                MultiGzDecoder::new(&*body).take(limit as u64 + 1).read_to_end(&mut unpacked);
            packed.map_err(|e| {
                Failure::new(FailureKind::Invalid, format!("the body is not gzip: {e}"))
            })?;
            if unpacked.len() > limit { Err(too_large(limit)) } else { Ok(unpacked) }
        }
        other => {
            let text =
                format!("Content-Encoding {other} is not supported; send gzip or plain JSON");
            Err(Failure::new(FailureKind::Invalid, text))
        }
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
        decode(&headers, body.to_vec(), limit).map_err(|failure| failure.kind)
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

    #[tokio::test]
    async fn bodies_end_at_the_limit() {
        let patience = Duration::from_mins(1);
        assert_eq!(read(Body::from("12345"), 5, patience).await, Ok(b"12345".to_vec()));
        let failure = read(Body::from("123456"), 5, patience).await.unwrap_err();
        assert_eq!(failure.kind, FailureKind::TooLarge);
        assert_eq!(read(Body::empty(), 0, patience).await, Ok(Vec::new()));
    }
}
