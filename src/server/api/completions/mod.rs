//! `POST /v1/completions`: text goes on as it stands, without template and thought.

pub(super) mod request;
pub(super) mod response;
pub(super) mod stream;
