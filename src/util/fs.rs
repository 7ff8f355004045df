//! Files that are either there, whole, or not there: the one atomic write.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

/// How much of a write must survive a power cut. A killed process loses nothing either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// File and name are on disk when the write returns.
    Synced,
    /// The system writes them in its own time; until then a power cut may leave a file that is not whole.
    Cached,
}

/// A file that appears under its name only when [`AtomicFile::commit`] succeeds. Dropped before
/// that, it leaves nothing behind.
#[derive(Debug)]
pub struct AtomicFile {
    file: Option<File>,
    tmp: PathBuf,
    path: PathBuf,
}

/// What stands between the name of a file and the process that writes it.
const TEMPORARY: &str = ".tmp.";
/// After so long a temporary file that nobody has locked belongs to nobody, whatever process ids say.
const STALE: std::time::Duration = std::time::Duration::from_hours(1);

/// Removes what processes that died left of [`AtomicFile::create_private`] in a folder. Returns how many files.
pub fn remove_stale(dir: &Path) -> io::Result<usize> {
    remove_left_behind(dir, |_| true)
}

/// As [`remove_stale`], but only of what was to become this file. Returns how many files.
pub fn remove_stale_of(path: &Path) -> io::Result<usize> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
    let name = path.file_name().unwrap_or_default();
    remove_left_behind(dir.unwrap_or(Path::new(".")), |target| OsStr::new(target) == name)
}

fn remove_left_behind(dir: &Path, is_meant: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let parts = name.to_str().and_then(|name| name.rsplit_once(TEMPORARY));
        let owner = parts.filter(|(target, _)| is_meant(target)).map(|(_, owner)| owner);
        let pid = owner.and_then(|owner| owner.split_once('.')?.0.parse::<i32>().ok());
        if let Some(pid) = pid
            && is_stale(&entry.path(), pid)
            && fs::remove_file(entry.path()).is_ok()
        {
            removed += 1;
        }
    }
    Ok(removed)
}

fn is_stale(path: &Path, pid: i32) -> bool {
    let Ok(file) = File::open(path) else { return false };
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return false;
    }
    let pid = rustix::process::Pid::from_raw(pid);
    let gone = pid
        .is_none_or(|pid| rustix::process::test_kill_process(pid) == Err(rustix::io::Errno::SRCH));
    let age = file.metadata().and_then(|m| m.modified()).map(|written| written.elapsed());
    gone || matches!(age, Ok(Ok(age)) if age > STALE)
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

    /// Opens a temporary file that only its owner may read, under a name that nobody can guess, and locks it: what
    /// [`remove_stale`] finds unlocked has been left behind.
    pub fn create_private(path: &Path) -> io::Result<Self> {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        let random = RandomState::new().hash_one(std::process::id());
        name.push(format!("{TEMPORARY}{}.{random:016x}", std::process::id()));
        let tmp = path.with_file_name(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&tmp)?;
        // Some file systems have no locks; then age alone tells what was left behind.
        let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
        Ok(Self { file: Some(file), tmp, path: path.to_path_buf() })
    }

    /// The file, to copy into it without a buffer between.
    ///
    /// # Panics
    /// Never: it is open until it is committed.
    pub fn file(&mut self) -> &mut File {
        self.file.as_mut().expect("file is open until commit")
    }

    /// Flushes to disk and renames over `path`.
    pub fn commit(self) -> io::Result<()> {
        self.commit_as(Durability::Synced)
    }

    /// Renames over `path`, on disk or not.
    pub fn commit_as(mut self, durability: Durability) -> io::Result<()> {
        let file = self.file.take().expect("file is open until commit or drop");
        if durability == Durability::Cached {
            return fs::rename(&self.tmp, &self.path);
        }
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
    fn only_what_dead_processes_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let alive = AtomicFile::create_private(&at("a.kv")).unwrap();
        // No process has the largest id.
        for name in ["b.kv.tmp.2147483647.ab", "c.kv", "d.kv.tmp.x", "e.tmp.1"] {
            fs::write(at(name), "").unwrap();
        }
        assert_eq!(remove_stale_of(&at("c.kv")).unwrap(), 0, "of another file");
        assert_eq!(remove_stale_of(&at("b.kv")).unwrap(), 1);
        fs::write(at("b.kv.tmp.2147483647.ab"), "").unwrap();
        assert_eq!(remove_stale(dir.path()).unwrap(), 1);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 4);
        alive.commit_as(Durability::Cached).unwrap();
        assert!(at("a.kv").exists());
    }

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
