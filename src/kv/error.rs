//! What can go wrong with sessions on disk.

use std::io;
use std::path::PathBuf;

use super::refusal::Refusal;
use super::write::SaveError;
use crate::engine;

/// An error of the store or of a single file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The directory cannot be used.
    #[error("cannot use {} for saved sessions", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file cannot be opened.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file is not used.
    #[error("cannot load {}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        refusal: Refusal,
    },
    /// A session was not saved.
    #[error("session not saved")]
    Save(#[from] SaveError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] engine::Error),
}
