//! The built-in page: one file, which may load nothing and run nothing but itself.

use std::sync::LazyLock;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

const PAGE: &str = include_str!("page.html");

/// Names the page's own script and style by their hashes; everything else is forbidden.
static POLICY: LazyLock<HeaderValue> = LazyLock::new(|| {
    let (script, style) = (hash("<script>", "</script>"), hash("<style>", "</style>"));
    let policy = format!(
        "default-src 'none'; script-src {script}; style-src {style}; connect-src 'self'; img-src data:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    HeaderValue::from_str(&policy).expect("hashes are plain text")
});

/// The page.
pub(super) async fn page() -> Response {
    let mut response = Response::new(Body::from(PAGE));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY.clone());
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// The hash of the only element with these tags, as a policy names it.
fn hash(open: &str, close: &str) -> String {
    let inner = PAGE.split_once(open).and_then(|(_, rest)| rest.split_once(close));
    let (inner, _) = inner.expect("the page has a script and a style");
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(inner)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_one_script_one_style_and_nothing_from_elsewhere() {
        for tag in ["<script", "<style"] {
            assert_eq!(PAGE.matches(tag).count(), 1, "{tag}");
            assert!(PAGE.contains(&format!("{tag}>")), "{tag} has attributes");
        }
        for foreign in
            ["http://", "https://", "@import", " src=", "style=\"", " onclick", "innerHTML = "]
        {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
        let policy = POLICY.to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
