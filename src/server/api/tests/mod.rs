//! The protocols from outside: bodies in, frames and answers out.

mod support;

mod bodies;
mod chat;
mod completions;
mod field;
mod messages;
mod replies;
mod responses;
mod streams;
