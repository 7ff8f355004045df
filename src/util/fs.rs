//! Files that are either there, whole, or not there: the one atomic write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file that appears under its name only when [`AtomicFile::commit`] succeeds. Dropped before
/// that, it leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    file: Option<File>,
    tmp: PathBuf,
    path: PathBuf,
}

impl AtomicFile {
    /// Opens a temporary file beside `path`.
    pub fn create(path: &Path) -> io::Result<Self> {
        static SERIAL: AtomicU64 = AtomicU64::new(0);
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        name.push(format!(".tmp.{}.{serial}", std::process::id()));
        let tmp = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).open(&tmp)?;
        Ok(Self { file: Some(file), tmp, path: path.to_path_buf() })
    }

    /// Flushes to disk and renames over `path`.
    pub fn commit(mut self) -> io::Result<()> {
        let file = self.file.take().expect("file is open until commit or drop");
        file.sync_all()?;
        drop(file);
        fs::rename(&self.tmp, &self.path)?;
        let dir = self.path.parent().filter(|d| !d.as_os_str().is_empty());
        // The rename itself survives a power cut only once the directory is on disk. Some file
        // systems refuse to sync a directory; the file is complete either way.
        if let Ok(dir) = File::open(dir.unwrap_or(Path::new("."))) {
            let _ = dir.sync_all();
        }
        Ok(())
    }
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.as_mut().expect("file is open until commit").write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().expect("file is open until commit").flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After a successful commit the temporary name is gone and this fails, as it should.
        let _ = fs::remove_file(&self.tmp);
    }
}

/// Replaces `path` by a file of these bytes, or leaves it as it was.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)?;
    file.commit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appears_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_atomic(&path, b"one").unwrap();
        let mut half = AtomicFile::create(&path).unwrap();
        half.write_all(b"tw").unwrap();
        drop(half);
        assert_eq!(fs::read(&path).unwrap(), b"one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }
}
