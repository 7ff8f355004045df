//! `POST /v1/messages` and its counting twin (server.md 10).

pub(super) mod request;
pub(super) mod response;
pub(super) mod stream;
