//! What the topics share: where models are, and tests that cannot run here saying so.

use std::path::PathBuf;

/// A file of this repository.
pub(crate) fn repo(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The demo model.
pub(crate) fn tiny_model() -> PathBuf {
    repo("models/q36-tiny.gguf")
}

/// A file below the folder named by `Q36_FIXTURES`, or `None` with a visible line saying what is skipped.
pub(crate) fn fixture(path: &str) -> Option<PathBuf> {
    let found = std::env::var_os("Q36_FIXTURES")
        .map(|dir| PathBuf::from(dir).join(path))
        .filter(|p| p.exists());
    if found.is_none() {
        println!("skipped: needs {path} in the folder named by Q36_FIXTURES");
    }
    found
}
