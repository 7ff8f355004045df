//! Who may use the server.

use axum::http::{HeaderMap, HeaderValue, Method};
use sha2::{Digest as _, Sha256};

/// Accepted keys, as digests: comparing those takes the same time whatever a client guessed.
#[derive(Debug)]
pub(super) struct Keys(Vec<[u8; 32]>);

impl Keys {
    pub(super) fn new(keys: &[String]) -> Self {
        Self(keys.iter().map(|key| Sha256::digest(key).into()).collect())
    }

    /// Whether a request may pass: there are no keys, it has one, or it asks for nothing that is secret. The page is
    /// free because a browser cannot send a key with an address; what it shows needs one.
    pub(super) fn admit(&self, method: &Method, path: &str, headers: &HeaderMap) -> bool {
        let is_free = matches!(path, "/" | "/health" | "/v1/health") || method == Method::OPTIONS;
        self.0.is_empty() || is_free || presented(headers).is_some_and(|key| self.has(key))
    }

    /// Looks at all keys, and at all of each.
    fn has(&self, key: &[u8]) -> bool {
        let given: [u8; 32] = Sha256::digest(key).into();
        let differs = |known: &[u8; 32]| known.iter().zip(given).fold(0, |d, (a, b)| d | (a ^ b));
        self.0.iter().fold(false, |found, known| found | (differs(known) == 0))
    }
}

/// The key in `Authorization: Bearer` or `x-api-key`.
fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get("authorization").and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| key.trim_ascii())
    });
    bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admits(keys: &[&str], path: &str, header: Option<(&'static str, &str)>) -> bool {
        let keys = Keys::new(&keys.iter().map(ToString::to_string).collect::<Vec<_>>());
        let mut headers = HeaderMap::new();
        if let Some((name, value)) = header {
            headers.insert(name, value.parse().unwrap());
        }
        keys.admit(&Method::GET, path, &headers)
    }

    #[test]
    fn any_of_the_keys_opens_in_either_header() {
        let keys = ["one", "two"];
        for good in [
            ("authorization", "Bearer one"),
            ("authorization", "bearer  two "),
            ("x-api-key", "two"),
        ] {
            assert!(admits(&keys, "/v1/models", Some(good)), "{good:?}");
        }
        for bad in [
            ("authorization", "one"),
            ("authorization", "Bearer one2"),
            ("authorization", "Basic one"),
            ("authorization", "Bearer"),
            ("x-api-key", ""),
            ("cookie", "one"),
        ] {
            assert!(!admits(&keys, "/v1/models", Some(bad)), "{bad:?}");
        }
        assert!(!admits(&keys, "/v1/models", None));
        assert!(admits(&[], "/v1/models", None));
    }

    #[test]
    fn health_and_the_page_need_no_key() {
        for (path, expected) in [
            ("/health", true),
            ("/v1/health", true),
            ("/", true),
            ("/slots", false),
            ("/metrics", false),
        ] {
            assert_eq!(admits(&["k"], path, None), expected, "{path}");
        }
    }
}
