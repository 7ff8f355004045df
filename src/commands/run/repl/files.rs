//! Files that people name: messages, and conversations with their state.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::act::excerpt;
use super::dialogue::{Desk, Dialogue};
use super::stats::exchanges;
use super::transcript::Transcript;
use crate::chat::ThinkMode;
use crate::commands::run::prefill;
use crate::engine::SyncControl;
use crate::kv::{self, Extras, Moment};
use crate::term::Class;
use crate::util::clock::unix_seconds;
use crate::util::signal::Interrupt;
use crate::util::units::Bytes;

/// The largest file that is read as a message: far more than any context holds.
const MAX_MESSAGE_BYTES: u64 = 16 << 20;

/// Fewer tokens than these are evaluated without a word.
const WORTH_WATCHING: usize = 32;

/// What every file with a session begins with.
const MAGIC: &[u8] = b"KVC";

impl Dialogue<'_> {
    /// Sends a file as a message.
    pub(super) fn read_file(&mut self, desk: &mut Desk<'_>, path: &Path) -> Result<()> {
        let text = read_text(path).with_context(|| format!("cannot read {}", path.display()))?;
        if text.trim().is_empty() {
            bail!("{} has no text", path.display());
        }
        self.ask(desk, text.trim())
    }

    /// Keeps the conversation in a file: evaluates what little is missing, so that the state is that of all its tokens.
    pub(super) fn save(&mut self, desk: &mut Desk<'_>, path: &Path) -> Result<()> {
        let Some(first) = self.transcript.turns().first() else {
            self.say("there is nothing to save yet");
            return Ok(());
        };
        refuse_other_files(path)?;
        let title = excerpt(&first.text).into_bytes();
        if !self.settle(desk)? {
            self.say("stopped; nothing was saved");
            return Ok(());
        }
        let created = *self.created.get_or_insert_with(unix_seconds);
        let extras = Extras { title: Some(title), created: Some(created), ..Extras::default() };
        let bytes = kv::save_file(desk.engine, desk.session, path, &extras, unix_seconds())?;
        let tokens = desk.engine.tokens(desk.session).len();
        let text = format!("saved {tokens} tokens in {}, {}", path.display(), Bytes(bytes));
        self.context.printer.message(Class::Good, &text);
        Ok(())
    }

    /// Goes on with the conversation of a file. A file that is refused changes nothing.
    pub(super) fn load(&mut self, desk: &mut Desk<'_>, path: &Path) -> Result<()> {
        self.keep_for_later(desk, Moment::Evict)?;
        // The file takes the place of what is being saved.
        if let Some(saved) = &mut desk.saved {
            saved.finish(desk.engine, desk.session)?;
        }
        let loaded = kv::load_file(desk.engine, desk.session, path);
        if let Some(saved) = &mut desk.saved {
            saved.forget(desk.session);
        }
        let loaded = loaded?;
        let tokenizer = desk.engine.tokenizer();
        let Some(parsed) = Transcript::parse(tokenizer, &loaded.tokens)? else {
            // The session holds it now, and leaves it again with the next prompt.
            bail!("{} holds no conversation", path.display());
        };
        for line in &loaded.dropped {
            self.context.printer.warning(line);
        }
        self.transcript = parsed.transcript;
        self.created = kv::Described::read(path, 0).ok().and_then(|d| Some(d.header?.created));
        if self.transcript.is_max() != (self.mode == ThinkMode::Max) {
            self.mode = if self.transcript.is_max() { ThinkMode::Max } else { ThinkMode::On };
        }
        let turns = self.transcript.turns();
        let last = turns.last().map_or_else(String::new, |turn| excerpt(&turn.text));
        let text = format!(
            "loaded {} tokens of {}; {}, the last one: {last}",
            loaded.tokens.len(),
            path.display(),
            exchanges(turns.len())
        );
        self.context.printer.message(Class::Good, &text);
        if parsed.left_out > 0 {
            let text = "it ends inside a message, which is left out";
            self.context.printer.note(Class::Plain, text);
        }
        Ok(())
    }

    /// Brings the session to the end of the last answer. False when that was interrupted.
    fn settle(&mut self, desk: &mut Desk<'_>) -> Result<bool> {
        let tokens = self.transcript.tokens();
        let (engine, session) = (&mut *desk.engine, desk.session);
        // What was taken back goes with the positions behind it.
        if let Some(saved) = &mut desk.saved {
            saved.finish(engine, session)?;
        }
        let held = engine.tokens(session);
        let report = if tokens.starts_with(held) && tokens.len() - held.len() < WORTH_WATCHING {
            engine.sync(session, &tokens, &mut Unwatched(&self.interrupt))?
        } else {
            prefill::run(engine, session, &tokens, self.context, &self.interrupt)?
        };
        Ok(!report.cancelled)
    }

    /// Saves the conversation in the directory of saved states, if there is one and it is worth that.
    pub(super) fn keep_for_later(&mut self, desk: &mut Desk<'_>, moment: Moment) -> Result<()> {
        if desk.saved.is_none() || self.transcript.turns().is_empty() {
            return Ok(());
        }
        if self.settle(desk)?
            && let Some(saved) = &mut desk.saved
        {
            saved.leave(desk.engine, desk.session, moment)?;
        }
        Ok(())
    }
}

/// Says nothing, and can be stopped.
struct Unwatched<'a>(&'a Interrupt);

impl SyncControl for Unwatched<'_> {
    fn progress(&mut self, _done: usize, _total: usize) {}

    fn cancelled(&self) -> bool {
        self.0.is_raised()
    }
}

fn read_text(path: &Path) -> Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_MESSAGE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_MESSAGE_BYTES {
        bail!("it has more than {}", Bytes(MAX_MESSAGE_BYTES));
    }
    String::from_utf8(bytes).map_err(|error| anyhow::anyhow!("not UTF-8: {}", error.utf8_error()))
}

/// A conversation takes the place of another, and of nothing else.
fn refuse_other_files(path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!("{} is a folder", path.display());
    }
    let Ok(mut file) = fs::File::open(path) else { return Ok(()) };
    let mut start = [0; MAGIC.len()];
    if file.read_exact(&mut start).is_err() || start != MAGIC {
        bail!("{} exists and is no saved session\nhint: choose another name", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_saved_sessions_are_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("notes.txt"), "my notes").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("old.kv"), b"KVC\x01").unwrap();
        assert!(refuse_other_files(&at("new.kv")).is_ok());
        assert!(refuse_other_files(&at("old.kv")).is_ok());
        for name in ["notes.txt", "empty", ""] {
            assert!(refuse_other_files(&at(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn messages_are_text() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a");
        fs::write(&path, "é").unwrap();
        assert_eq!(read_text(&path).unwrap(), "é");
        fs::write(&path, b"a\xff").unwrap();
        assert!(read_text(&path).unwrap_err().to_string().contains("UTF-8"));
        assert!(read_text(dir.path()).is_err());
    }
}
