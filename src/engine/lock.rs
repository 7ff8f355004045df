//! One resident model for each user and machine: two of them on a 16 GB board freeze it.
//!
//! The lock is an advisory `flock` on a file that holds the owner's process id. It goes away with
//! the process, however that ends; the file stays and means nothing by itself.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags};

/// Memory plans below this take no lock: the demo model runs beside a server.
pub const SMALLEST_LOCKED_BYTES: u64 = 1 << 30;

/// Why the lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process has it.
    #[error("another q36 has a model loaded{}", owner(*.pid))]
    Held {
        /// The process, if the file told.
        pid: Option<u32>,
    },
    /// The file cannot be used.
    #[error("cannot lock {}", path.display())]
    Io {
        /// The lock file.
        path: PathBuf,
        /// What went wrong.
        #[source]
        source: io::Error,
    },
}

fn owner(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}

/// Where the lock file is: `explicit`, else in the user's runtime directory, else in `/tmp` under a
/// name with the user's number.
pub fn path(explicit: Option<&Path>, runtime_dir: Option<&Path>) -> PathBuf {
    explicit
        .map(Path::to_path_buf)
        .or_else(|| runtime_dir.map(|dir| dir.join("q36.lock")))
        .unwrap_or_else(|| {
            PathBuf::from(format!("/tmp/q36-{}.lock", rustix::process::getuid().as_raw()))
        })
}

/// The lock, held until it is dropped.
#[derive(Debug)]
pub struct InstanceLock {
    _file: File,
}

impl InstanceLock {
    /// Takes the lock at once or says who has it.
    pub fn acquire(path: &Path) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::Io { path: path.to_path_buf(), source };
        // No symbolic link is followed: /tmp is everybody's, and the file is written to.
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(opened.map_err(|err| failed(err.into()))?);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(Error::Held { pid: read_pid(&mut file) });
            }
            Err(err) => return Err(failed(err.into())),
        }
        file.set_len(0).map_err(failed)?;
        file.rewind().map_err(failed)?;
        writeln!(file, "{}", std::process::id()).map_err(failed)?;
        Ok(Self { _file: file })
    }
}

/// Takes the lock for a memory plan of `plan_bytes`, or none where the plan is too small to matter.
pub fn acquire_for(path: &Path, plan_bytes: u64) -> Result<Option<InstanceLock>, Error> {
    if plan_bytes < SMALLEST_LOCKED_BYTES {
        return Ok(None);
    }
    InstanceLock::acquire(path).map(Some)
}

/// A process id is a few digits; whatever else the file holds is not read.
fn read_pid(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// What a look at the lock finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Nobody has it.
    Free,
    /// A process has it.
    Held {
        /// Which, if that can be seen.
        pid: Option<u32>,
    },
}

/// Looks without taking the lock, not even for a moment: a model that starts just then must not
/// find it taken. `locks` is the kernel's list, the text of `/proc/locks`.
pub fn look(path: &Path, locks: &str) -> io::Result<LockState> {
    use std::os::unix::fs::MetadataExt as _;
    let inode = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.ino(),
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(LockState::Free),
        Err(err) => return Err(err),
    };
    // `1: FLOCK  ADVISORY  WRITE 4711 fd:01:131586 0 EOF`. The device's two numbers are left out of
    // the comparison: on some file systems they differ from those that stat reports.
    let holds = |line: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK").skip(3);
        let pid = words.next()?;
        let found = words.next()?.rsplit(':').next()?;
        (found.parse() == Ok(inode)).then(|| pid.parse().ok())
    };
    Ok(locks.lines().find_map(holds).map_or(LockState::Free, |pid| LockState::Held { pid }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_owner_learns_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q36.lock");
        std::fs::write(&path, "an older and longer text\n").unwrap();
        let first = InstanceLock::acquire(&path).unwrap();
        let me = std::process::id();
        let err = InstanceLock::acquire(&path).unwrap_err();
        assert!(matches!(err, Error::Held { pid: Some(pid) } if pid == me));
        assert_eq!(err.to_string(), format!("another q36 has a model loaded (process {me})"));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{me}\n"));
        drop(first);
        InstanceLock::acquire(&path).unwrap();
    }

    #[test]
    fn small_plans_take_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q36.lock");
        let _first = acquire_for(&path, 11 << 30).unwrap().unwrap();
        assert!(acquire_for(&path, SMALLEST_LOCKED_BYTES - 1).unwrap().is_none());
        assert!(acquire_for(&path, SMALLEST_LOCKED_BYTES).is_err());
    }

    #[test]
    fn links_are_not_followed_and_the_file_is_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("target"), &link).unwrap();
        assert!(matches!(InstanceLock::acquire(&link), Err(Error::Io { .. })));
        let path = dir.path().join("new");
        let _lock = InstanceLock::acquire(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_look_reads_the_kernels_list() {
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q36.lock");
        assert_eq!(look(&path, "").unwrap(), LockState::Free);
        std::fs::write(&path, "").unwrap();
        let inode = std::fs::metadata(&path).unwrap().ino();
        let list = |inode| {
            format!(
                "1: POSIX  ADVISORY  READ 12 00:1c:{inode} 0 EOF\n\
                 2: FLOCK  ADVISORY  WRITE 4711 fd:01:{inode} 0 EOF\n"
            )
        };
        assert_eq!(look(&path, &list(inode)).unwrap(), LockState::Held { pid: Some(4711) });
        assert_eq!(look(&path, &list(inode + 1)).unwrap(), LockState::Free);
    }

    #[test]
    fn the_lock_is_in_the_runtime_directory_unless_named() {
        let at = |explicit: Option<&str>, dir: Option<&str>| {
            path(explicit.map(Path::new), dir.map(Path::new))
        };
        assert_eq!(at(Some("/a"), Some("/run/1")), Path::new("/a"));
        assert_eq!(at(None, Some("/run/1")), Path::new("/run/1/q36.lock"));
        assert!(at(None, None).to_string_lossy().starts_with("/tmp/q36-"));
    }
}
