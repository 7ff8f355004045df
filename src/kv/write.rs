//! Writing one file: makes room for it, takes the payload as it comes, and lets it appear when it is whole. Runs on a
//! thread of its own.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;

use super::directory::Directory;
use super::encoder::{Encoder, Frame};
use super::evict::{self, Candidate, NoRoom};
use super::header::{HEADER_BYTES, Header};
use super::index::Name;
use crate::engine::RawPart;
use crate::util::fs::{AtomicFile, Durability};
use crate::util::units::Bytes;

/// The next bytes of a payload.
pub(super) enum Piece {
    /// As they are.
    Bytes(Vec<u8>),
    /// As a backend has them.
    Part(RawPart),
}

/// Where a file goes and what it is.
pub(super) struct Task {
    pub(super) path: PathBuf,
    pub(super) frame: Frame,
    pub(super) durability: Durability,
    /// Room in the directory; a file that goes elsewhere needs none.
    pub(super) room: Option<Room>,
}

/// What may be deleted to make room.
pub(super) struct Room {
    pub(super) directory: Directory,
    pub(super) candidates: Vec<Candidate<Name>>,
    pub(super) budget: u64,
    pub(super) now: u64,
    /// Asks how much the disk can take.
    pub(super) free_bytes: fn(&Directory) -> io::Result<u64>,
}

/// A file that was written.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Files that were deleted for it.
    pub(super) evicted: Vec<Name>,
}

/// Why a session was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The system refused.
    #[error("cannot write {}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it says.
        #[source]
        source: io::Error,
    },
    /// The disk has not enough room.
    #[error("{free} are free on the disk of {}, {needed} are needed", path.display())]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What is left.
        free: Bytes,
        /// What it takes.
        needed: Bytes,
    },
    /// The budget has not enough room.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The session was cut, closed or lost before all of it was read.
    #[error("the session changed before it was saved")]
    Abandoned,
}

/// Writes a file whose payload arrives in pieces. When the other end goes away early, no file appears.
pub(super) fn write(task: Task, pieces: &Receiver<Piece>) -> Result<Written, SaveError> {
    let bytes = task.frame.file_bytes();
    let evicted = match &task.room {
        Some(room) => make_room(room, &task.path, bytes)?,
        None => Vec::new(),
    };
    let path = task.path.clone();
    let failed = |source| SaveError::Io { path: path.clone(), source };
    let file = AtomicFile::create_private(&task.path).map_err(failed)?;
    let out = BufWriter::with_capacity(1 << 20, file);
    let mut encoder = Encoder::begin(out, &task.frame).map_err(failed)?;
    let mut left = task.frame.header.payload_bytes;
    let mut converted = Vec::new();
    while left > 0 {
        let piece = pieces.recv().map_err(|_| SaveError::Abandoned)?;
        let bytes = match &piece {
            Piece::Bytes(bytes) => bytes,
            Piece::Part(part) => {
                converted.clear();
                part.write_to(&mut converted);
                &converted
            }
        };
        encoder.payload(bytes).map_err(failed)?;
        left -= bytes.len() as u64;
    }
    let out = encoder.finish().map_err(failed)?;
    let file = out.into_inner().map_err(|e| failed(e.into_error()))?;
    file.commit_as(task.durability).map_err(failed)?;
    Ok(Written { path: task.path, bytes, evicted })
}

/// Replaces the trailer of a file that has the right payload already: text and payload are copied into a new file with
/// the new sections, which takes the place of the old one. A kill on the way costs nothing.
pub(super) fn replace_sections(old: &Path, task: Task, sum: u32) -> Result<Written, SaveError> {
    let path = task.path.clone();
    let failed = |source| SaveError::Io { path: path.clone(), source };
    let bytes = task.frame.file_bytes();
    let evicted = match &task.room {
        Some(room) => make_room(room, &task.path, bytes)?,
        None => Vec::new(),
    };
    let mut source = File::open(old).map_err(failed)?;
    let header = task.frame.header();
    let file = AtomicFile::create_private(&task.path).map_err(failed)?;
    let mut encoder = Encoder::begin(file, &task.frame).map_err(failed)?;
    let copied = encoder.copy_payload(sum, |out| {
        source.seek(SeekFrom::Start(header.payload_at()))?;
        io::copy(&mut (&source).take(header.payload_bytes), out.file())
    });
    copied.map_err(failed)?;
    let file = encoder.finish().map_err(failed)?;
    file.commit_as(task.durability).map_err(failed)?;
    Ok(Written { path: task.path, bytes, evicted })
}

/// Deletes what is worth least until the new file fits. One process at a time does so.
fn make_room(room: &Room, path: &Path, bytes: u64) -> Result<Vec<Name>, SaveError> {
    let failed = |source| SaveError::Io { path: path.to_path_buf(), source };
    let used: u64 = room.candidates.iter().map(|c| c.bytes).sum();
    let mut gone = Vec::new();
    if !evict::fits(bytes, room.budget) || used + bytes > room.budget {
        let _lock = room.directory.lock().map_err(failed)?;
        // Others may have used or deleted files since they were listed.
        let fresh = |c: &Candidate<Name>| refresh(&room.directory, c);
        let candidates: Vec<_> = room.candidates.iter().filter_map(fresh).collect();
        gone = evict::victims(&candidates, bytes, room.budget, room.now)?;
        for name in &gone {
            // Whoever is loading it has it open.
            let _ = std::fs::remove_file(room.directory.file(name));
        }
    }
    let needed = bytes + bytes / 100;
    match (room.free_bytes)(&room.directory) {
        Ok(free) if free < needed => Err(SaveError::DiskFull {
            path: path.to_path_buf(),
            free: Bytes(free),
            needed: Bytes(needed),
        }),
        // A file system that does not say may still have room.
        Ok(_) | Err(_) => Ok(gone),
    }
}

/// A candidate as its file is now; `None` when it has gone.
fn refresh(directory: &Directory, candidate: &Candidate<Name>) -> Option<Candidate<Name>> {
    let mut file = File::open(directory.file(&candidate.name)).ok()?;
    let mut raw = [0; HEADER_BYTES];
    file.read_exact(&mut raw).ok()?;
    let bytes = file.metadata().ok()?.len();
    // One that is cut short takes room all the same.
    let header = Header::parse(&raw, u64::MAX).ok()?;
    let (hits, last_used) = (header.hits, header.last_used);
    Some(Candidate { bytes, hits, last_used, ..candidate.clone() })
}
