//! What ends the server.

use crate::{engine, kv};

/// Why serving cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model cannot be opened.
    #[error("cannot open the model")]
    Open(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The engine has no room for the sessions, or is lost for good.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// A session could not be opened.
    #[error("cannot open session {number} of {sessions}")]
    Session {
        /// Which one, from 1.
        number: usize,
        /// How many there were to be.
        sessions: usize,
        /// Why.
        #[source]
        source: engine::Error,
    },
    /// The directory of saved sessions cannot be used.
    #[error(transparent)]
    Store(#[from] kv::Error),
    /// The trace file cannot be written.
    #[error("cannot write the trace file {}", path.display())]
    Trace {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}
