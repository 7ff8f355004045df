//! A session in a file that a user named, outside any directory of saved sessions.

use std::fs::File;
use std::path::Path;

use super::container::Container;
use super::error::Error;
use super::header::Reason;
use super::job::{Job, Pace};
use super::refusal::Refusal;
use super::save::{Extras, freeze};
use super::section::Sections;
use super::source::Loaded;
use super::write::Task;
use crate::engine::{self, Position, SessionId, StateIo};
use crate::tokenizer::TokenId;
use crate::util::fs::{Durability, remove_stale_of};

/// Writes a session into a file that a user named, on this thread's time, and has it on disk when this returns. What
/// processes that died while they wrote the same file left beside it is removed. Returns its size.
///
/// # Errors
/// When the session has no state to save, or the file cannot be written.
pub fn save_file(
    engine: &mut dyn StateIo,
    id: SessionId,
    path: &Path,
    extras: &Extras,
    now: u64,
) -> Result<u64, Error> {
    let at = Position { session: id, snapshot: None };
    let frozen = freeze(engine, at, (Reason::AgentSession, now), extras)?;
    let layout = engine.state_layout().clone();
    let task = Task {
        path: path.to_path_buf(),
        frame: frozen.frame,
        durability: Durability::Synced,
        room: None,
    };
    let state = (&frozen.head, &frozen.tokens[..], &frozen.logits[..]);
    let mut job = Job::start((at, &layout), state, task)?;
    job.advance(engine, Pace::ToTheEnd)?;
    let written = job.join()?;
    // A folder that cannot be listed took the file all the same.
    let _ = remove_stale_of(path);
    Ok(written.bytes)
}

/// What a file held beside the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// Tokens of the session, or those that are to be evaluated.
    pub tokens: Vec<TokenId>,
    /// Whether the file held tokens alone: the session is as it was, and they are to be evaluated.
    pub is_tokens_only: bool,
    /// Title, tool calls and whatever the writer added.
    pub sections: Sections,
    /// Sections that were broken and left out, one line each.
    pub dropped: Vec<String>,
}

/// Loads such a file into a session. All of it is checked before the session gives up what it holds.
///
/// # Errors
/// When the file cannot be opened or is refused (the session is as it was), or the engine fails (it is empty).
pub fn load_file(
    engine: &mut dyn StateIo,
    id: SessionId,
    path: &Path,
) -> Result<LoadedFile, Error> {
    let opened = File::open(path);
    let file = opened.map_err(|source| Error::Open { path: path.to_path_buf(), source })?;
    let refused = |refusal| Error::Refused { path: path.to_path_buf(), refusal };
    let mut file = Container::open(file).map_err(refused)?;
    file.check_model(&engine.fingerprint()).map_err(refused)?;
    file.verify(None).map_err(refused)?;
    let (sections, dropped) = file.sections().map_err(refused)?;
    let loaded = load(engine, id, &mut file)?;
    let (tokens, is_tokens_only) = loaded.map_err(refused)?;
    Ok(LoadedFile { tokens, is_tokens_only, sections, dropped })
}

/// The state of a file into a session: its tokens, and whether they are all that the file has.
pub(super) fn load(
    engine: &mut dyn StateIo,
    id: SessionId,
    file: &mut Container<File>,
) -> Result<Result<(Vec<TokenId>, bool), Refusal>, engine::Error> {
    let layout = engine.state_layout().clone();
    let ctx = engine.info().ctx_tokens;
    match file.load(&layout, ctx) {
        Ok(Loaded::Tokens(tokens)) => Ok(Ok((tokens, true))),
        Ok(Loaded::State(mut source)) => {
            let tokens = source.tokens().to_vec();
            if engine.import_state(id, &tokens, &mut source)? {
                return Ok(Ok((tokens, false)));
            }
            Ok(Err(source.into_refusal().expect("a source says why it stops")))
        }
        Err(refusal) => Ok(Err(refusal)),
    }
}
