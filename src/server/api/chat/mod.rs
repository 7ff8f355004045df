//! `POST /v1/chat/completions` (server.md 7).

mod legacy;

pub(super) mod request;
pub(super) mod response;
pub(super) mod stream;
