//! A directory of saved sessions, as whoever drives an engine uses it.
//!
//! ```text
//! lookup(prompt) ── a file whose text the prompt begins with ──► restore(session) ── only the rest is evaluated
//! save(session, moment) ── pinned position ──► pump between steps ──► a writer's thread ──► a file
//! ```
//!
//! Saving is a convenience: whatever goes wrong with it becomes a note, and generation goes on. Several processes may
//! share the directory: files appear whole, deleting is done under a lock, and a file that vanished is a miss.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

use super::container::Container;
use super::digest::Chain;
use super::directory::{Directory, Listed, Stamp, count_hit, name_of};
use super::error::Error;
use super::header::Reason;
use super::index::{Entry, Index, Name};
use super::job::{Job, Pace};
use super::policy::Limits;
use super::prompt::Prompt;
use super::refusal::{Class, Refusal};
use super::scan::{self, ModelKey};
use super::single;
use super::write::Written;
use crate::engine::{self, SessionId, StateIo};
use crate::tokenizer::TokenId;
use crate::util::clock::unix_seconds;
use crate::util::hex;
use crate::util::units::Bytes;

/// How a store is set up.
#[derive(Debug, Clone)]
pub struct Config {
    /// The directory.
    pub dir: PathBuf,
    /// Which sessions are worth a file.
    pub limits: Limits,
    /// Bytes of all files together.
    pub budget_bytes: u64,
    /// Whether every file is on disk before it counts; those of explicit and last saves always are.
    pub fsync: bool,
    /// Tells the time, in Unix seconds.
    pub clock: fn() -> u64,
    /// Tells how many bytes the disk can take.
    pub free_bytes: fn(&Directory) -> io::Result<u64>,
}

impl Config {
    /// Defaults for a directory: 4,096 MiB.
    pub fn new(dir: PathBuf) -> Self {
        Self {
            dir,
            limits: Limits::default(),
            budget_bytes: 4096 << 20,
            fsync: false,
            clock: unix_seconds,
            free_bytes: Directory::free_bytes,
        }
    }
}

/// What the store knows of a session.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Track {
    /// Tokens of its last saved state.
    pub(super) last_stored: usize,
    /// The long file that it was loaded from: deleted once a longer one is written.
    pub(super) consumed: Option<Name>,
}

/// A directory of saved sessions.
pub struct Store {
    pub(super) config: Config,
    pub(super) directory: Directory,
    pub(super) model: ModelKey,
    pub(super) index: Index,
    stamp: Option<Stamp>,
    /// Whether files can be written at all.
    pub(super) is_writable: bool,
    pub(super) jobs: Vec<Job>,
    pub(super) tracks: BTreeMap<SessionId, Track>,
    /// Files that the present request begins with: no save may delete them.
    pub(super) serving: BTreeSet<Name>,
    /// The file that was written last.
    pub(super) newest: Option<Name>,
    pub(super) notes: Vec<String>,
    stored: Vec<String>,
}

/// A file that a prompt begins with. It stays readable whatever becomes of it meanwhile.
#[derive(Debug)]
pub struct Hit {
    name: Name,
    inode: u64,
    file: Container<File>,
    path: PathBuf,
}

/// A session that was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// Bytes of the prompt that the session stands for now: only what follows is to be tokenized and appended.
    pub text_bytes: usize,
    /// Tokens it holds, or would hold once `prefill` was evaluated.
    pub tokens: usize,
    /// A file of tokens alone: the session is as it was, and these are to be evaluated.
    pub prefill: Option<Vec<TokenId>>,
}

impl Hit {
    /// What the file is called.
    pub fn name(&self) -> Name {
        self.name
    }

    /// Bytes of its text.
    pub fn text_bytes(&self) -> usize {
        self.file.header().text_bytes as usize
    }

    /// Tokens of its state.
    pub fn tokens(&self) -> usize {
        self.file.header().tokens as usize
    }

    /// Why it was written.
    pub fn reason(&self) -> Reason {
        self.file.header().reason
    }
}

impl Store {
    /// Opens a directory for the model of an engine, making it where it is missing, and reads what is in it. A
    /// directory that cannot be written to is used for reading, which a note says.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub fn open(config: Config, engine: &dyn StateIo) -> Result<Self, Error> {
        Self::for_model(config, ModelKey::of(engine))
    }

    /// As [`Store::open`], for a model that is not open.
    ///
    /// # Errors
    /// As that.
    pub fn for_model(config: Config, model: ModelKey) -> Result<Self, Error> {
        let path = config.dir.clone();
        let failed = |source| Error::Directory { path: path.clone(), source };
        let directory = Directory::create(&config.dir).map_err(failed)?;
        let mut store = Self {
            config,
            directory,
            model,
            index: Index::default(),
            stamp: None,
            is_writable: true,
            jobs: Vec::new(),
            tracks: BTreeMap::new(),
            serving: BTreeSet::new(),
            newest: None,
            notes: Vec::new(),
            stored: Vec::new(),
        };
        if let Err(why) = store.directory.tidy() {
            store.is_writable = false;
            let dir = store.directory.path().display();
            store.notes.push(format!("sessions are not saved: cannot write to {dir}: {why}"));
        }
        store.refresh().map_err(failed)?;
        Ok(store)
    }

    /// Lines for the user since the last call: what was not saved and why, what was deleted.
    pub fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    /// Lines about the files that were written since the last call.
    pub fn take_stored(&mut self) -> Vec<String> {
        std::mem::take(&mut self.stored)
    }

    /// Which sessions are worth a file.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// What is in the directory, as far as it was last read.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Length of a session's last saved state, 0 for none.
    pub fn last_stored(&self, id: SessionId) -> usize {
        self.tracks.get(&id).map_or(0, |track| track.last_stored)
    }

    /// Forgets what is known of a session that was closed or emptied.
    pub fn forget(&mut self, id: SessionId) {
        self.tracks.remove(&id);
    }

    /// Reads the directory again if it has changed since it was last read.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        if self.stamp.is_some_and(|stamp| self.directory.is_as(stamp)) {
            return Ok(());
        }
        let (listed, stamp) = self.directory.list()?;
        let there: BTreeSet<Name> = listed.iter().map(|file| file.name).collect();
        let gone: Vec<Name> =
            self.index.iter().map(|e| e.name).filter(|name| !there.contains(name)).collect();
        for name in gone {
            self.index.remove(&name);
        }
        let is_new = |file: &Listed| {
            self.index.get(&file.name).is_none_or(|known| known.inode != file.inode)
        };
        let new: Vec<Listed> = listed.into_iter().filter(is_new).collect();
        for entry in scan::read_all(self.directory.path(), &new, &self.model) {
            self.index.insert(entry);
        }
        self.stamp = Some(stamp);
        Ok(())
    }

    /// The file with the longest text that the prompt begins with, markers included. Files that turn out to be
    /// damaged are deleted on the way, with a note.
    pub fn lookup(&mut self, prompt: &Prompt<'_>) -> Option<Hit> {
        self.serving.clear();
        if let Err(why) = self.refresh() {
            let dir = self.directory.path().display();
            self.notes.push(format!("saved sessions are not searched: cannot read {dir}: {why}"));
            return None;
        }
        let chain = Chain::new(prompt.bytes);
        let sizes = self.config.limits.min_tokens..self.model.ctx;
        let names: Vec<Name> = self
            .index
            .beginnings(&chain, prompt.bytes.len())
            .into_iter()
            .filter(|entry| sizes.contains(&(entry.header.tokens as usize)))
            .map(|entry| entry.name)
            .collect();
        self.serving = names.iter().copied().collect();
        names.into_iter().find_map(|name| match self.open_hit(name, prompt) {
            Ok(hit) => hit,
            Err(refusal) => {
                self.refuse(&name, &refusal);
                None
            }
        })
    }

    /// Of the loadable files that know a tool call, the one with the most tokens.
    pub fn with_tool(&mut self, id: &[u8]) -> Option<&Entry> {
        self.refresh().ok()?;
        self.index.with_tool(id)
    }

    /// Opens a candidate and compares every byte. `None` where it is no match after all.
    fn open_hit(&self, name: Name, prompt: &Prompt<'_>) -> Result<Option<Hit>, Refusal> {
        let Some(entry) = self.index.get(&name) else { return Ok(None) };
        let path = self.directory.path().join(&entry.file_name);
        let opened = File::open(&path).and_then(|file| Ok((file.metadata()?.ino(), file)));
        // It may just have been deleted by another process.
        let Ok((inode, file)) = opened else { return Ok(None) };
        let mut file = Container::open(file)?;
        file.check_model(&self.model.fingerprint)?;
        if !file.text_begins(prompt.bytes)? {
            return Ok(None);
        }
        let text_bytes = file.header().text_bytes;
        let (sections, _) = file.sections()?;
        let same = sections
            .markers(text_bytes)
            .is_some_and(|markers| prompt.has_markers(&markers, text_bytes as usize));
        Ok(same.then_some(Hit { name, inode, file, path }))
    }

    /// Loads a file into a session, whose own state is given up; saves of it that are under way are read first.
    ///
    /// # Errors
    /// When the file turns out not to be loadable (the session is empty or as it was; a damaged file is deleted) or
    /// the engine fails.
    pub fn restore(
        &mut self,
        engine: &mut dyn StateIo,
        id: SessionId,
        mut hit: Hit,
    ) -> Result<Restored, Error> {
        self.finish(engine, id)?;
        let (text_bytes, tokens) = (hit.text_bytes(), hit.tokens());
        let restored = Restored { text_bytes, tokens, prefill: None };
        self.tracks.remove(&id);
        match single::load(engine, id, &mut hit.file)? {
            Ok((loaded, is_tokens_only)) => {
                self.count_hit(&hit);
                let is_long = tokens > self.config.limits.cold_max_tokens;
                let is_spent = is_long && hit.reason() != Reason::AgentSession;
                let consumed = is_spent.then_some(hit.name);
                self.tracks.insert(id, Track { last_stored: tokens, consumed });
                Ok(Restored { prefill: is_tokens_only.then_some(loaded), ..restored })
            }
            Err(refusal) => {
                self.refuse(&hit.name, &refusal);
                Err(Error::Refused { path: hit.path, refusal })
            }
        }
    }

    fn count_hit(&mut self, hit: &Hit) {
        let now = (self.config.clock)();
        if self.is_writable
            && let Err(why) = count_hit(&hit.path, hit.inode, now)
        {
            self.notes.push(format!("cannot count a hit in {}: {why}", hit.path.display()));
        }
        if let Some(header) = self.index.header_mut(&hit.name) {
            header.hits = header.hits.saturating_add(1);
            header.last_used = now;
        }
    }

    /// Deletes a file whose state could not be continued: it would fail the same way again.
    pub fn discard(&mut self, name: &Name) {
        if let Some(entry) = self.index.remove(name) {
            let path = self.directory.path().join(&entry.file_name);
            if std::fs::remove_file(&path).is_ok() {
                self.notes.push(format!("deleted {}: it could not be continued", path.display()));
            }
        }
    }

    /// What becomes of a file that was refused: ours and broken, it is deleted; anything else is left alone.
    fn refuse(&mut self, name: &Name, refusal: &Refusal) {
        let Some(entry) = self.index.get(name) else { return };
        let path = self.directory.path().join(&entry.file_name);
        let ours = entry.header.fingerprint == self.model.fingerprint[..4];
        if refusal.class() == Class::Damaged && ours && self.is_writable {
            self.index.remove(name);
            let gone = std::fs::remove_file(&path);
            let what = if gone.is_ok() { "deleted" } else { "ignored" };
            self.notes.push(format!("{what} {}: {refusal}", path.display()));
        }
    }

    /// Goes on with every save that is under way, a little. To be called between steps; takes well below a
    /// millisecond.
    pub fn pump(&mut self, engine: &mut dyn StateIo) {
        for job in &mut self.jobs {
            // The note comes with the job's end.
            let _ = job.advance(engine, Pace::BetweenSteps);
        }
        self.settle(engine);
    }

    /// Reads what the saves of a session still need of it, so that it may change. The writing goes on behind it. A save
    /// whose position has gone already ends with a note.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn finish(&mut self, engine: &mut dyn StateIo, id: SessionId) -> Result<(), engine::Error> {
        for job in self.jobs.iter_mut().filter(|job| job.at.session == id) {
            match job.advance(engine, Pace::ToTheEnd) {
                Ok(()) | Err(engine::Error::NoSnapshot { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.settle(engine);
        Ok(())
    }

    /// Waits until every save has ended.
    pub fn close(&mut self, engine: &mut dyn StateIo) {
        for job in &mut self.jobs {
            let _ = job.advance(engine, Pace::ToTheEnd);
        }
        for job in std::mem::take(&mut self.jobs) {
            self.end(engine, job);
        }
    }

    /// Whether a save is under way.
    pub fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Takes note of saves that have ended, and gives up their hold on a session as soon as they need it no more.
    fn settle(&mut self, engine: &mut dyn StateIo) {
        let mut at = 0;
        while at < self.jobs.len() {
            let job = &mut self.jobs[at];
            if job.is_read()
                && let Some(snapshot) = job.at.snapshot.take()
            {
                engine.release(job.at.session, snapshot);
            }
            if job.is_finished() {
                let job = self.jobs.swap_remove(at);
                self.end(engine, job);
            } else {
                at += 1;
            }
        }
    }

    fn end(&mut self, engine: &mut dyn StateIo, job: Job) {
        let (session, tokens, took) = (job.at.session, job.tokens, job.started.elapsed());
        if let Some(snapshot) = job.at.snapshot {
            engine.release(session, snapshot);
        }
        match job.join() {
            Ok(written) => {
                for name in &written.evicted {
                    self.index.remove(name);
                }
                self.adopt(&written.path);
                self.tell_stored(&written, took);
                self.drop_consumed(session, tokens);
            }
            Err(why) => {
                let mut text = format!("session not saved: {why}");
                let mut cause = std::error::Error::source(&why);
                while let Some(source) = cause {
                    text = format!("{text}: {source}");
                    cause = source.source();
                }
                self.notes.push(text);
                if let Some(track) = self.tracks.get_mut(&session) {
                    track.last_stored = track.last_stored.min(tokens.saturating_sub(1));
                }
            }
        }
    }

    /// Puts a new file into the index.
    fn adopt(&mut self, path: &std::path::Path) {
        let Some(file_name) = path.file_name() else { return };
        let Some(name) = name_of(file_name) else { return };
        let file_name = file_name.to_string_lossy().into_owned();
        let listed = Listed { name, file_name, inode: 0 };
        if let Some(entry) = scan::read(path, listed, &self.model) {
            self.index.insert(entry);
        }
    }

    fn tell_stored(&mut self, written: &Written, took: Duration) {
        let name = written.path.file_name().and_then(name_of);
        let Some(entry) = name.and_then(|name| self.index.get(&name)) else { return };
        let header = &entry.header;
        let key = if header.extensions.is_visible_key() { "visible text" } else { "own text" };
        let deleted = written.evicted.len();
        self.stored.push(format!(
            "stored {} tokens, {}, by their {key}, {} in {} ms, {deleted} files deleted for it: {}",
            header.tokens,
            header.reason.name(),
            Bytes(written.bytes),
            took.as_millis(),
            entry.file_name,
        ));
    }

    /// Deletes the long file that a session came from, now that a longer one holds all of it.
    fn drop_consumed(&mut self, session: SessionId, tokens: usize) {
        let Some(track) = self.tracks.get_mut(&session) else { return };
        let Some(name) = track.consumed else { return };
        let longer = self.index.get(&name).is_some_and(|e| tokens > e.header.tokens as usize);
        if longer && self.is_writable {
            track.consumed = None;
            if let Some(entry) = self.index.remove(&name) {
                let _ = std::fs::remove_file(self.directory.path().join(entry.file_name));
            }
        }
    }

    /// Where files of texts with this digest are, for messages.
    pub fn path_of(&self, name: &Name) -> PathBuf {
        self.directory.path().join(format!("{}.kv", hex::encode(name)))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // What was read completely is still written; the rest leaves no file.
        for job in std::mem::take(&mut self.jobs) {
            let _ = job.join();
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish_non_exhaustive()
    }
}
