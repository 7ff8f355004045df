//! Sockets, routes and the page: everything of the server that speaks HTTP, and nothing that knows what a request means.
//!
//! A connection parses and encodes with [`super::api`], hands requests to [`super::Desk`] and reads updates from an
//! [`super::Inbox`]. Dropping that inbox cancels the request: so a connection that ends, for whatever reason, needs no
//! further care. What may take long (parsing a large body, tokenizing) runs on threads that may wait.
//!
//! What fails below the routes, such as a line that is no HTTP, is answered by the HTTP library: the right status, no
//! JSON.

mod app;
mod auth;
mod body;
mod config;
mod connection;
mod cors;
mod events;
mod generate;
mod guard;
mod listen;
mod page;
mod reply;
mod routes;
mod running;
mod serve;
mod small;
mod stored;

#[cfg(test)]
mod tests;

pub use app::App;
pub use config::{Config, Defaults, Times};
pub use listen::{Address, Listener};
pub use routes::router;
pub use serve::serve;
