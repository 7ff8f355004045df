//! Saved beginnings of prompts (server.md 14): a prompt begins with the longest of them, and leaves its own.

use anyhow::Result;

use super::prefill;
use crate::cli::kv_disk::KvDiskArgs;
use crate::commands::Context;
use crate::engine::{self, SessionId, StateIo, SyncReport, Target};
use crate::kv::{Config, Error, Extras, Limits, Moment, Prefill, Prompt, Store};
use crate::term::Class;
use crate::tokenizer::TokenId;
use crate::util::signal::Interrupt;

/// The directory that was named.
pub(super) struct Saved(Store);

impl Saved {
    /// Opens it; `None` when none was named.
    ///
    /// # Errors
    /// When it cannot be made or read.
    pub(super) fn open(
        args: &KvDiskArgs,
        engine: &dyn StateIo,
        context: &Context,
    ) -> Result<Option<Self>> {
        let Some(dir) = &args.kv_disk_dir else { return Ok(None) };
        let min_tokens = args.kv_cache_min_tokens as usize;
        let config = Config {
            limits: Limits { min_tokens, ..Limits::default() },
            budget_bytes: u64::from(args.kv_disk_space_mb) << 20,
            ..Config::new(dir.clone())
        };
        let mut saved = Self(Store::open(config, engine)?);
        saved.tell(context);
        Ok(Some(saved))
    }

    /// Brings a session to a prompt: it goes on from where it is or from a saved state, whichever is longer; the rest is
    /// evaluated, and saved where it is worth that.
    ///
    /// # Errors
    /// When the engine fails. What goes wrong with a file is a note.
    pub(super) fn prefill(
        &mut self,
        engine: &mut dyn StateIo,
        session: SessionId,
        target: Target<'_>,
        context: &Context,
        interrupt: &Interrupt,
    ) -> Result<SyncReport> {
        // A session that goes back drops the positions that saves still read.
        self.finish(engine, session)?;
        let prompt = target.tokens;
        let begun = engine.begin_sync(session, target)?;
        engine.end_sync(session);
        if begun.miss.is_some() {
            if begun.reused < self.0.last_stored(session) {
                self.0.forget(session);
            }
            self.restore(engine, (session, begun.reused), prompt, context)?;
        }
        let reused = engine.tokens(session).len();
        let last_stored = self.0.last_stored(session);
        let stops = self.0.limits().stops(&Prefill {
            tokens: prompt.len(),
            reused,
            anchor: None,
            last_stored,
        });
        let mut evaluated = 0;
        for stop in stops {
            let part = Target { tokens: &prompt[..stop.tokens], ..target };
            let report = prefill::to(engine, session, part, context, interrupt)?;
            evaluated += report.evaluated;
            if report.cancelled {
                return Ok(SyncReport { reused, evaluated, ..report });
            }
            self.0.save(engine, session, stop.moment, &Extras::default())?;
        }
        let report = prefill::to(engine, session, target, context, interrupt)?;
        self.tell(context);
        Ok(SyncReport { reused, evaluated: evaluated + report.evaluated, ..report })
    }

    /// Loads the longest file that the prompt begins with, unless the session holds as much or it was read as other
    /// tokens.
    fn restore(
        &mut self,
        engine: &mut dyn StateIo,
        (session, held): (SessionId, usize),
        prompt: &[TokenId],
        context: &Context,
    ) -> Result<()> {
        let text = engine.tokenizer().text(prompt);
        let text = Prompt { bytes: &text.bytes, markers: &text.markers, replayed: &[] };
        let hit = self.0.lookup(&text).filter(|hit| hit.tokens() > held);
        let Some(hit) = hit else { return Ok(()) };
        let path = self.0.path_of(&hit.name());
        match self.0.restore(engine, session, hit) {
            Ok(restored) if restored.prefill.is_none() => {}
            Ok(_) => return Ok(()),
            Err(Error::Engine(error)) => return Err(error.into()),
            Err(error) => {
                context.printer.warning(&format!("{error}; evaluating the prompt instead"));
                return Ok(());
            }
        }
        let held = engine.tokens(session);
        if prompt.starts_with(held) {
            let text = format!("begins with {} saved tokens of {}", held.len(), path.display());
            context.printer.note(Class::Good, &text);
        } else {
            engine.reset(session)?;
            self.0.forget(session);
        }
        Ok(())
    }

    /// Between two tokens: begins a save where one is due, and goes on with those that are under way.
    ///
    /// # Errors
    /// When the device is lost.
    pub(super) fn pump(&mut self, engine: &mut dyn StateIo, session: SessionId) -> Result<()> {
        let tokens = engine.tokens(session).len();
        if self.0.limits().is_frontier(tokens, self.0.last_stored(session)) {
            self.0.save(engine, session, Moment::Continued, &Extras::default())?;
        }
        self.0.pump(engine);
        Ok(())
    }

    /// Saves what another conversation is about to take the place of, or the last state of all.
    ///
    /// # Errors
    /// When the device is lost.
    pub(super) fn leave(
        &mut self,
        engine: &mut dyn StateIo,
        session: SessionId,
        moment: Moment,
    ) -> Result<()> {
        match self.0.save(engine, session, moment, &Extras::default()) {
            // It stands in the middle of a prompt: nothing that could be gone on from.
            Ok(_) | Err(engine::Error::NoState(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads what saves still need of a session, so that it may go back or hold something else.
    ///
    /// # Errors
    /// When the device is lost.
    pub(super) fn finish(&mut self, engine: &mut dyn StateIo, session: SessionId) -> Result<()> {
        Ok(self.0.finish(engine, session)?)
    }

    /// Forgets a session that holds something else now.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.0.forget(session);
    }

    /// Waits for saves, and says what there is to say of them.
    pub(super) fn close(&mut self, engine: &mut dyn StateIo, context: &Context) {
        self.0.close(engine);
        self.tell(context);
    }

    fn tell(&mut self, context: &Context) {
        for line in self.0.take_stored() {
            context.printer.detail(&line);
        }
        for note in self.0.take_notes() {
            context.printer.note(Class::Plain, &note);
        }
    }
}
