//! `POST /v1/responses` (server.md 9).

pub(super) mod custom;
pub(super) mod item;
pub(super) mod kinds;
pub(super) mod merge;
pub(super) mod request;
pub(super) mod response;
pub(super) mod store;
pub(super) mod stream;
