//! Which file a session becomes, and the start of its save.

use super::digest::Chain;
use super::encoder::Frame;
use super::evict::Candidate;
use super::header::{Extensions, Header, Reason};
use super::index::{Entry, Fit, Name};
use super::job::{Job, Pace};
use super::payload::StateHead;
use super::policy::Moment;
use super::section::{KEYS, Sections, Tag, ToolBlock};
use super::store::Store;
use super::write::{self, Room, Task};
use crate::engine::{self, Position, SessionId, StateIo};
use crate::tokenizer::TokenId;
use crate::util::fs::Durability;

/// The text that a client sees where it is not that of the tokens: reasoning left out, for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibleKey {
    /// The text.
    pub text: Vec<u8>,
    /// Byte offsets of its markers, ascending.
    pub markers: Vec<usize>,
    /// [`Extensions::RESPONSES_VISIBLE`] or [`Extensions::THINKING_VISIBLE`].
    pub kind: Extensions,
}

/// What goes into a file beside the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Extras {
    /// The text by which the file is found, where it is not that of the tokens.
    pub key: Option<VisibleKey>,
    /// Tool calls of the session; those that do not occur in the text are left out.
    pub tools: Vec<ToolBlock>,
    /// Its title.
    pub title: Option<Vec<u8>>,
    /// When the session began, Unix seconds; now when not given. A session that a user saves again keeps its file by
    /// this and its title.
    pub created: Option<u64>,
    /// Sections of the caller's own.
    pub tagged: Vec<(Tag, Vec<u8>)>,
}

/// What a call of [`Store::save`] led to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Saving {
    /// It is under way; [`Store::pump`] it.
    Started,
    /// There is such a file already.
    Known,
    /// It is too short to be worth a file, or nothing can be saved.
    Skipped,
}

/// A session's state at a position, with everything that is not read in parts.
pub(super) struct Frozen {
    pub(super) tokens: Vec<TokenId>,
    pub(super) logits: Vec<f32>,
    pub(super) frame: Frame,
    pub(super) head: StateHead,
}

impl Store {
    /// Saves a session as it stands. Returns at once: the position is pinned, and read between steps. Where no slot is
    /// free to pin it, everything is read now. What goes wrong later becomes a note.
    ///
    /// # Errors
    /// When the session has no state to save, or the device is lost.
    pub fn save(
        &mut self,
        engine: &mut dyn StateIo,
        id: SessionId,
        moment: Moment,
        extras: &Extras,
    ) -> Result<Saving, engine::Error> {
        let count = engine.tokens(id).len();
        if !self.is_writable || !self.config.limits.is_worth(moment, count) {
            return Ok(Saving::Skipped);
        }
        // At most one for each session: the older one is read to its end first.
        self.finish(engine, id)?;
        let at = Position { session: id, snapshot: None };
        let now = (self.config.clock)();
        let frozen = freeze(engine, at, (moment.reason(), now), extras)?;
        let chain = Chain::new(&frozen.frame.text);
        let name = file_name(&frozen.frame, &chain);
        if let Err(why) = self.refresh() {
            self.notes.push(format!("session not saved: {why}"));
            return Ok(Saving::Skipped);
        }
        let is_same = |e: &&Entry| e.fit == Fit::Usable && moment != Moment::AgentSession;
        let known = self.index.get(&name).filter(is_same).cloned();
        if let Some(known) = known {
            self.mark_stored(id, count);
            return Ok(self.keep(at, &known, frozen.frame, moment));
        }
        let durability = self.durability(id, moment);
        let task = self.task(name, frozen.frame.clone(), (durability, now), &chain);
        let snapshot = match engine.snapshot(id) {
            Ok(snapshot) => Some(snapshot),
            Err(engine::Error::NoSlot { .. }) => None,
            Err(error) => return Err(error),
        };
        let at = Position { session: id, snapshot };
        let state = (&frozen.head, &frozen.tokens[..], &frozen.logits[..]);
        match Job::start((at, &self.model.layout), state, task) {
            Ok(mut job) => {
                let read = match snapshot {
                    Some(_) => Ok(()),
                    None => job.advance(engine, Pace::ToTheEnd),
                };
                self.jobs.push(job);
                read?;
                self.mark_stored(id, count);
                self.newest = Some(name);
                Ok(Saving::Started)
            }
            Err(why) => {
                if let Some(snapshot) = snapshot {
                    engine.release(id, snapshot);
                }
                self.notes.push(format!("session not saved: {why}"));
                Ok(Saving::Skipped)
            }
        }
    }

    fn mark_stored(&mut self, id: SessionId, tokens: usize) {
        let track = self.tracks.entry(id).or_default();
        track.last_stored = track.last_stored.max(tokens);
    }

    /// A file with this text is there: it stays, with the tool calls that are new.
    fn keep(&mut self, at: Position, known: &Entry, mut frame: Frame, moment: Moment) -> Saving {
        let ids = frame.sections.tools.iter().map(|tool| &tool.id);
        if ids.clone().all(|id| known.tool_ids.contains(id)) {
            return Saving::Known;
        }
        let path = self.directory.path().join(&known.file_name);
        let Ok(mut file) = std::fs::File::open(&path)
            .map_err(|_| ())
            .and_then(|file| super::container::Container::open(file).map_err(|_| ()))
        else {
            return Saving::Known;
        };
        let (Ok(sum), Ok((old, _))) = (file.integrity().map(|i| i.payload), file.sections()) else {
            return Saving::Known;
        };
        merge(&mut frame.sections, old);
        frame.header =
            Header { created: known.header.created, hits: known.header.hits, ..*file.header() };
        let durability = self.durability(at.session, moment);
        let task = Task { path: path.clone(), frame, durability, room: None };
        let tokens = known.header.tokens as usize;
        match Job::detached(at, tokens, move || write::replace_sections(&path, task, sum)) {
            Ok(job) => {
                self.jobs.push(job);
                Saving::Started
            }
            Err(_) => Saving::Known,
        }
    }

    /// A file that takes the place of the long one that a session came from is on disk before that one goes.
    fn durability(&self, id: SessionId, moment: Moment) -> Durability {
        let replaces = self.tracks.get(&id).is_some_and(|track| track.consumed.is_some());
        if self.config.fsync || moment.is_final() || replaces {
            Durability::Synced
        } else {
            Durability::Cached
        }
    }

    fn task(
        &self,
        name: Name,
        frame: Frame,
        (durability, now): (Durability, u64),
        chain: &Chain<'_>,
    ) -> Task {
        let prefixes: Vec<Name> = self
            .index
            .beginnings(chain, frame.text.len())
            .into_iter()
            .filter(|e| (e.header.text_bytes as usize) < frame.text.len())
            .map(|e| e.name)
            .collect();
        let loaded: Vec<Name> = self.tracks.values().filter_map(|track| track.consumed).collect();
        let candidate = |e: &Entry| Candidate {
            name: e.name,
            bytes: e.bytes,
            tokens: e.header.tokens,
            hits: e.header.hits,
            last_used: e.header.last_used,
            reason: e.header.reason,
            is_prefix: prefixes.contains(&e.name),
            is_protected: self.serving.contains(&e.name) || loaded.contains(&e.name),
            is_newest: self.newest == Some(e.name),
        };
        // One of the same name is replaced, so it needs no room.
        let others = self.index.iter().filter(|e| e.name != name);
        Task {
            path: self.directory.file(&name),
            frame,
            durability,
            room: Some(Room {
                directory: self.directory.clone(),
                candidates: others.map(candidate).collect(),
                budget: self.config.budget_bytes,
                now,
                free_bytes: self.config.free_bytes,
            }),
        }
    }
}

/// A session that a user saved is named after its title and its time, so that saving it again keeps its name; everything
/// else after its text.
fn file_name(frame: &Frame, chain: &Chain<'_>) -> Name {
    match (&frame.sections.title, frame.header.reason) {
        (Some(title), Reason::AgentSession) => session_name(title, frame.header.created),
        _ => chain.digest(frame.text.len()),
    }
}

/// The name of a session that a user saved.
pub fn session_name(title: &[u8], created: u64) -> Name {
    use sha1::Digest as _;
    let mut hash = sha1::Sha1::new();
    hash.update(title);
    hash.update(created.to_le_bytes());
    hash.finalize().into()
}

/// Sections of the old file that the new ones do not replace.
fn merge(new: &mut Sections, old: Sections) {
    let has = |tools: &[ToolBlock], id: &[u8]| tools.iter().any(|tool| tool.id == id);
    for tool in old.tools {
        if !has(&new.tools, &tool.id) {
            new.tools.push(tool);
        }
    }
    new.title = new.title.take().or(old.title);
    for (tag, bytes) in old.tagged {
        if new.tag(tag).is_none() {
            new.tagged.push((tag, bytes));
        }
    }
}

/// Everything of a position but its parts.
pub(super) fn freeze(
    engine: &mut dyn StateIo,
    at: Position,
    (reason, now): (Reason, u64),
    extras: &Extras,
) -> Result<Frozen, engine::Error> {
    let (tokens, logits) = engine.state_head(at)?;
    let info = engine.info();
    let (ctx, chunk, quant_bits) = (info.ctx_tokens, info.chunk_tokens, info.quant_bits);
    let layout = engine.state_layout();
    let head = StateHead::new(layout, ctx, chunk, tokens.len());
    let payload_bytes = head.payload_bytes(layout);
    let (text, markers, extensions) = if let Some(key) = &extras.key {
        (key.text.clone(), key.markers.clone(), key.kind)
    } else {
        let text = engine.tokenizer().text(&tokens);
        (text.bytes, text.markers, Extensions::default())
    };
    let occurs = |tool: &&ToolBlock| contains(&text, &tool.block);
    let mut sections = Sections {
        tools: extras.tools.iter().filter(occurs).cloned().collect(),
        title: extras.title.clone(),
        tagged: extras.tagged.clone(),
    };
    sections.set_markers(&markers);
    sections.set_tag(KEYS, Chain::new(&text).key().to_vec());
    let header = Header {
        quant_bits,
        reason,
        extensions,
        tokens: head.tokens,
        hits: 0,
        ctx: head.ctx,
        fingerprint: [0; 4],
        created: extras.created.unwrap_or(now),
        last_used: now,
        payload_bytes,
        text_bytes: 0,
    };
    let frame = Frame { header, fingerprint: engine.fingerprint(), text, sections };
    Ok(Frozen { tokens, logits, frame, head })
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    part.is_empty() || text.windows(part.len()).any(|window| window == part)
}
