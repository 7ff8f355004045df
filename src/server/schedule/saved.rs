//! Sessions on disk, as the engine's thread uses them (server.md 14). Whatever goes wrong with a file becomes a note; only
//! a lost engine is an error.

use super::slot::Slot;
use crate::engine::{self, SessionId, StateIo};
use crate::kv::{Error, Extras, Hit, Moment, Name, Prefill, Prompt, Saving, Stop, Store};

/// The directory, if there is one.
#[derive(Debug)]
pub(super) struct Saved(Option<Store>);

/// What loading a file came to.
#[derive(Debug)]
pub(super) enum Loaded {
    /// The session holds so much of the prompt.
    State { name: Name, text_bytes: usize },
    /// Nothing: the session may be empty now.
    Nothing,
}

impl Saved {
    pub(super) fn new(store: Option<Store>) -> Self {
        Self(store)
    }

    /// Whether sessions of so many tokens are worth a file.
    pub(super) fn is_worth(&self, tokens: usize) -> bool {
        self.0.as_ref().is_some_and(|store| store.limits().is_worth(Moment::Evict, tokens))
    }

    /// Where the evaluation of a prompt stops to save.
    pub(super) fn stops(
        &self,
        id: SessionId,
        (tokens, reused): (usize, usize),
        anchor: Option<usize>,
    ) -> Vec<Stop> {
        let Some(store) = &self.0 else { return Vec::new() };
        let last_stored = store.last_stored(id);
        store.limits().stops(&Prefill { tokens, reused, anchor, last_stored })
    }

    /// Whether a session that has come to `tokens` in a reply, and was to be saved at `tried`, has passed a frontier
    /// since.
    pub(super) fn is_due(&self, id: SessionId, (tokens, tried): (usize, usize)) -> bool {
        let last = self.0.as_ref().map_or(0, |store| store.last_stored(id).max(tried));
        self.is_overdue((tokens, last))
    }

    /// Whether there is a frontier between two positions.
    pub(super) fn is_overdue(&self, (tokens, since): (usize, usize)) -> bool {
        self.0.as_ref().is_some_and(|store| store.limits().is_overdue(tokens, since))
    }

    /// The longest file that a prompt begins with, if it has more than `tokens` tokens.
    pub(super) fn lookup(&mut self, prompt: &Prompt<'_>, tokens: usize) -> Option<Hit> {
        let hit = self.0.as_mut()?.lookup(prompt)?;
        (hit.tokens() > tokens).then_some(hit)
    }

    /// Loads a file into a session.
    ///
    /// # Errors
    /// When the engine fails.
    pub(super) fn restore(
        &mut self,
        engine: &mut dyn StateIo,
        id: SessionId,
        hit: Hit,
    ) -> Result<Loaded, engine::Error> {
        let Some(store) = &mut self.0 else { return Ok(Loaded::Nothing) };
        let (name, text_bytes) = (hit.name(), hit.text_bytes());
        match store.restore(engine, id, hit) {
            // A file of tokens alone saves nothing here: the prompt's own tokens do as well.
            Ok(restored) if restored.prefill.is_some() => Ok(Loaded::Nothing),
            Ok(_) => Ok(Loaded::State { name, text_bytes }),
            Err(Error::Engine(error)) => Err(error),
            Err(_) => {
                // The store has noted why.
                Ok(Loaded::Nothing)
            }
        }
    }

    /// Saves a session as it stands; whether a file is being written now.
    ///
    /// # Errors
    /// When the engine fails.
    pub(super) fn save(
        &mut self,
        engine: &mut dyn StateIo,
        slot: &Slot,
        moment: Moment,
        tools: Vec<crate::kv::ToolBlock>,
    ) -> Result<bool, engine::Error> {
        let Some(store) = &mut self.0 else { return Ok(false) };
        let id = slot.session;
        if !store.limits().is_worth(moment, engine.tokens(id).len()) || engine.logits(id)?.is_none()
        {
            return Ok(false);
        }
        let key = slot.visible_key(engine.tokenizer(), engine.tokens(id));
        let extras = Extras { key, tools, ..Extras::default() };
        Ok(store.save(engine, id, moment, &extras)? == Saving::Started)
    }

    /// Goes on with saves, between steps.
    pub(super) fn pump(&mut self, engine: &mut dyn StateIo) {
        if let Some(store) = &mut self.0 {
            store.pump(engine);
        }
    }

    /// Reads what saves still need of a session, so that it may change.
    ///
    /// # Errors
    /// When the engine fails.
    pub(super) fn finish(
        &mut self,
        engine: &mut dyn StateIo,
        id: SessionId,
    ) -> Result<(), engine::Error> {
        self.0.as_mut().map_or(Ok(()), |store| store.finish(engine, id))
    }

    /// Forgets what is known of a session.
    pub(super) fn forget(&mut self, id: SessionId) {
        if let Some(store) = &mut self.0 {
            store.forget(id);
        }
    }

    /// Deletes a file that could not be continued.
    pub(super) fn discard(&mut self, name: &Name) {
        if let Some(store) = &mut self.0 {
            store.discard(name);
        }
    }

    pub(super) fn is_busy(&self) -> bool {
        self.0.as_ref().is_some_and(Store::is_busy)
    }

    /// Lines since the last call.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        let lines = |store: &mut Store| [store.take_stored(), store.take_notes()].concat();
        self.0.as_mut().map(lines).unwrap_or_default()
    }

    /// Files and bytes.
    pub(super) fn sizes(&self) -> Option<(usize, u64)> {
        let index = self.0.as_ref()?.index();
        Some((index.len(), index.iter().map(|entry| entry.bytes).sum()))
    }
}
