//! Files of the repository, of the optional fixture folder, and throw-away folders.

use std::path::PathBuf;

use super::skip;

/// A file of this repository.
pub(crate) fn repo(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// The demo model.
pub(crate) fn tiny_model() -> PathBuf {
    repo("models/q36-tiny.gguf")
}

/// A file below the folder named by `Q36_FIXTURES`. `None` when it is not there; the skip is
/// then already on record, and the caller returns.
pub(crate) fn fixture(path: &str) -> Option<PathBuf> {
    let found = std::env::var_os("Q36_FIXTURES")
        .map(|dir| PathBuf::from(dir).join(path))
        .filter(|p| p.exists());
    if found.is_none() {
        skip(&format!("needs {path} in the folder named by Q36_FIXTURES"));
    }
    found
}

/// An empty folder that disappears with the returned value.
pub(crate) fn temp_dir() -> tempfile::TempDir {
    tempfile::Builder::new()
        .prefix("q36-test-")
        .tempdir()
        .expect("the temporary folder is writable")
}

#[test]
fn the_demo_model_is_in_the_repository() {
    assert!(tiny_model().is_file(), "{} is missing", tiny_model().display());
}

#[test]
fn a_temporary_folder_is_empty_and_goes_away() {
    let dir = temp_dir();
    let path = dir.path().to_path_buf();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    drop(dir);
    assert!(!path.exists());
}
