//! Opening the model, at the start and whenever it was put away.

use std::sync::Arc;

use anyhow::{Result, bail};

use super::config::Plan;
use crate::commands::run::plan;
use crate::commands::{Context, progress};
use crate::engine::{Anchors, Options, Prepared};
use crate::server::LogWriter;
use crate::server::schedule::Opened;
use crate::term::Class;
use crate::util::signal::Interrupt;
use crate::util::units::Bytes;

/// Opens the model as often as it is asked to.
pub(super) struct Opener {
    options: Options,
    anchors: usize,
    context: Context,
    interrupt: Interrupt,
    log: LogWriter,
}

impl Opener {
    pub(super) fn new(
        plan: &Plan,
        context: &Context,
        interrupt: Interrupt,
        log: LogWriter,
    ) -> Self {
        let (options, context) = (plan.engine.clone(), context.clone());
        Self { options, anchors: plan.anchors, context, interrupt, log }
    }

    /// Opens it.
    ///
    /// # Errors
    /// What is wrong with file, options or device, or that Ctrl+C came meanwhile.
    pub(super) fn open(&mut self) -> Result<Opened> {
        let prepared = self.prepare()?;
        for note in prepared.notes() {
            self.log.say(Class::Plain, note);
        }
        self.log.say(Class::Plain, &plan::line(prepared.info()));
        let tokenizer = Arc::new(prepared.tokenizer()?);
        let warm = self.options.warm;
        let opened = progress::open(prepared, warm, &self.context, &self.interrupt)?;
        let Some(engine) = opened else { bail!("interrupted while loading") };
        Ok(Opened { engine: Box::new(engine), tokenizer })
    }

    /// The size of an anchor is in the file, so their room can only be asked for at the second reading.
    fn prepare(&self) -> Result<Prepared> {
        let prepared = Prepared::new(self.options.clone())?;
        let Some(model) = prepared.model().filter(|_| self.anchors > 0) else {
            return Ok(prepared);
        };
        let slots = self.anchors.saturating_mul(self.options.sessions);
        let bytes = model.shape.state_slot_bytes().saturating_mul(slots);
        let anchors = Anchors::within(Bytes(bytes as u64));
        drop(prepared);
        Ok(Prepared::new(Options { anchors, ..self.options.clone() })?)
    }
}
