//! The directory that files are in: names, its lock, room on its disk, and the two counters that are changed in
//! place.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, DirEntryExt as _, FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, Mode, OFlags};

use super::header::{HITS_AT, LAST_USED_AT};
use super::index::Name;
use crate::util::{fs as files, hex};

/// Held while files are deleted to make room, by whoever does it. Readers do not ask: an open file stays readable.
const LOCK: &str = ".q36-kv.lock";
/// A directory that was changed so shortly before it was read may be changed again without its time showing it.
const CLOCK_STEP: Duration = Duration::from_millis(100);

/// A directory of KVC files.
#[derive(Debug, Clone)]
pub struct Directory {
    path: PathBuf,
}

/// What a directory was like when it was listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    changed: SystemTime,
    /// Whether a later change is sure to show.
    is_settled: bool,
}

/// A file as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: Name,
    pub(super) file_name: String,
    pub(super) inode: u64,
}

/// Held until dropped.
#[derive(Debug)]
pub(super) struct DirLock(#[expect(dead_code, reason = "held, not used")] File);

impl Directory {
    /// Makes it where it is missing, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made, or is none.
    pub fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Self::open(path)
    }

    /// One that is there.
    ///
    /// # Errors
    /// When it is not, or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::read_dir(path)?;
        Ok(Self { path: path.to_path_buf() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the file of a text with this digest is.
    pub fn file(&self, name: &Name) -> PathBuf {
        self.path.join(format!("{}.kv", hex::encode(name)))
    }

    /// The files that have names of digests, and the state of the directory at that time.
    pub(super) fn list(&self) -> io::Result<(Vec<Listed>, Stamp)> {
        let stamp = self.stamp()?;
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Some(name) = name_of(&entry.file_name()) {
                let file_name = entry.file_name().to_string_lossy().into_owned();
                found.push(Listed { name, file_name, inode: entry.ino() });
            }
        }
        Ok((found, stamp))
    }

    /// Whether the directory is as it was when it was listed.
    pub(super) fn is_as(&self, stamp: Stamp) -> bool {
        stamp.is_settled && self.stamp().is_ok_and(|now| now.changed == stamp.changed)
    }

    fn stamp(&self) -> io::Result<Stamp> {
        let changed = fs::metadata(&self.path)?.modified()?;
        let age = SystemTime::now().duration_since(changed);
        Ok(Stamp { changed, is_settled: age.is_ok_and(|age| age > CLOCK_STEP) })
    }

    /// Removes what dead processes left. Fails where nothing can be written.
    pub(super) fn tidy(&self) -> io::Result<usize> {
        self.open_lock()?;
        files::remove_stale(&self.path)
    }

    /// Waits until nobody else deletes files.
    pub(super) fn lock(&self) -> io::Result<DirLock> {
        let file = self.open_lock()?;
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(DirLock(file))
    }

    fn open_lock(&self) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(self.path.join(LOCK), flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    }

    /// Bytes that may still be written to its disk.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let disk = rustix::fs::statvfs(&self.path)?;
        Ok(disk.f_bavail.saturating_mul(disk.f_frsize))
    }
}

/// The digest in a file name: 40 hex digits of either case and `.kv`, nothing else.
pub(super) fn name_of(file_name: &OsStr) -> Option<Name> {
    let digits = file_name.to_str()?.strip_suffix(".kv").filter(|digits| digits.len() == 40)?;
    let mut name = [0; 20];
    for (byte, pair) in name.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        *byte = digit(pair[0])? * 16 + digit(pair[1])?;
    }
    Some(name)
}

/// Adds a hit to a file, in place. A file that replaced the one that was loaded is left as it is.
pub(super) fn count_hit(path: &Path, inode: u64, now: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.ino() != inode {
        return Ok(());
    }
    let mut hits = [0; 4];
    file.read_exact_at(&mut hits, HITS_AT as u64)?;
    let hits = u32::from_le_bytes(hits).saturating_add(1);
    file.write_all_at(&hits.to_le_bytes(), HITS_AT as u64)?;
    file.write_all_at(&now.to_le_bytes(), LAST_USED_AT as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digests_are_names() {
        let digits = "0123456789abcdefABCDEF0123456789abcdef01";
        let name = name_of(format!("{digits}.kv").as_ref()).unwrap();
        assert_eq!(name[..3], [0x01, 0x23, 0x45]);
        for bad in [format!("{digits}0.kv"), format!("{digits}.kv.tmp.1.a"), "sysprompt.kv".into()]
        {
            assert_eq!(name_of(bad.as_ref()), None, "{bad}");
        }
        assert_eq!(name_of(format!("{}g.kv", &digits[..39]).as_ref()), None);
    }

    #[test]
    fn a_hit_changes_two_fields_of_the_file_that_was_loaded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, [7; 60]).unwrap();
        let inode = fs::metadata(&path).unwrap().ino();
        count_hit(&path, inode, 0x0102).unwrap();
        let bytes = fs::read(&path).unwrap();
        let mut expected = [7; 60];
        expected[12..16].copy_from_slice(&0x0707_0708_u32.to_le_bytes());
        expected[32..40].copy_from_slice(&0x0102_u64.to_le_bytes());
        assert_eq!(bytes, expected);
        count_hit(&path, inode + 1, 9).unwrap();
        assert_eq!(fs::read(&path).unwrap(), expected);
    }

    #[test]
    fn a_listing_is_current_until_something_changes() {
        let dir = tempfile::tempdir().unwrap();
        let it = Directory::create(&dir.path().join("a/b")).unwrap();
        let (empty, stamp) = it.list().unwrap();
        assert!(empty.is_empty() && !it.is_as(stamp), "changed a moment ago");
        let settled = Stamp { is_settled: true, ..stamp };
        assert!(it.is_as(settled));
        let old = SystemTime::now() - Duration::from_secs(9);
        File::open(it.path()).unwrap().set_modified(old).unwrap();
        let (_, stamp) = it.list().unwrap();
        assert!(it.is_as(stamp));
        fs::write(it.file(&[1; 20]), "").unwrap();
        fs::write(it.path().join("other"), "").unwrap();
        assert!(!it.is_as(stamp));
        let (one, _) = it.list().unwrap();
        assert_eq!((one.len(), one[0].name), (1, [1; 20]));
        let lock = it.lock().unwrap();
        assert!(it.free_bytes().unwrap() > 0 && it.tidy().unwrap() == 0);
        drop(lock);
    }
}
