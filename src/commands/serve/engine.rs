//! Opening the model, at the start and whenever it was put away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::config::Plan;
use crate::commands::run::plan;
use crate::engine::{BackendKind, ModelEngine, Options, Prepared};
use crate::server::schedule::Opened;
use crate::server::{Desk, LogWriter};
use crate::term::Class;
use crate::util::notice::{Notice, Tone};
use crate::util::signal::Interrupt;
use crate::util::units::Bytes;

/// Pause between two lines about loading.
const PROGRESS_EVERY: Duration = Duration::from_secs(5);

/// Opens the model as often as it is asked to.
pub(super) struct Opener {
    options: Options,
    interrupt: Interrupt,
    log: LogWriter,
    desk: Arc<Desk>,
}

impl Opener {
    pub(super) fn new(plan: &Plan, interrupt: Interrupt, log: LogWriter, desk: Arc<Desk>) -> Self {
        Self { options: plan.engine.clone(), interrupt, log, desk }
    }

    /// Opens it.
    ///
    /// # Errors
    /// What is wrong with file, options or device, or that Ctrl+C came meanwhile.
    pub(super) fn open(&mut self) -> Result<Opened> {
        let prepared = Prepared::new(self.options.clone())?;
        for note in prepared.notes() {
            self.log.say(Class::Plain, note);
        }
        self.log.say(Class::Plain, &plan::line(prepared.info()));
        if self.options.warm && prepared.info().backend == BackendKind::Vulkan {
            let text = "--warm-weights has no effect: the weights are copied to the device";
            self.log.say(Class::Plain, text);
        }
        let tokenizer = Arc::new(prepared.tokenizer()?);
        Ok(Opened { engine: Box::new(self.load(prepared)?), tokenizer })
    }

    fn load(&self, prepared: Prepared) -> Result<ModelEngine> {
        let began = Instant::now();
        let mut told = began;
        let prepared = prepared.with_notice(self.notice());
        let opened = prepared.open(&mut |done, total| {
            if told.elapsed() >= PROGRESS_EVERY {
                told = Instant::now();
                let text = format!("loading: {} of {}", Bytes(done), Bytes(total));
                self.log.say(Class::Timing, &text);
            }
            !self.interrupt.is_raised()
        });
        if self.interrupt.is_raised() {
            bail!("interrupted while loading");
        }
        let engine = opened?;
        let how =
            engine.load_report().map_or_else(String::new, |report| format!(", {}", report.how));
        let text = format!("loaded in {:.1} s{how}", began.elapsed().as_secs_f64());
        self.log.say(Class::Timing, &text);
        Ok(engine)
    }

    /// What the engine says while it works.
    fn notice(&self) -> Notice {
        let (log, desk) = (self.log.clone(), Arc::clone(&self.desk));
        Notice::to(move |tone, line| pass_on(&log, &desk, (tone, line)))
    }
}

/// Logs what the engine says, and has the server say that it waits for its device.
fn pass_on(log: &LogWriter, desk: &Desk, (tone, line): (Tone, &str)) {
    match tone {
        Tone::Remark | Tone::Back => log.say(Class::Plain, line),
        Tone::Warning | Tone::Away => log.say(Class::Warning, line),
    }
    match tone {
        Tone::Away => desk.set_away(true),
        Tone::Back => desk.set_away(false),
        Tone::Remark | Tone::Warning => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::server::{LogFormat, State};

    #[test]
    fn a_server_whose_device_is_opened_again_is_not_ready() {
        let (jobs, _received) = channel();
        let desk = Desk::new(jobs);
        let log = LogWriter::to(|_| {}, LogFormat::Text, || 0);
        desk.announce(State::Ready, Vec::new());
        let mut seen = Vec::new();
        for tone in [Tone::Warning, Tone::Away, Tone::Remark, Tone::Back] {
            pass_on(&log, &desk, (tone, "the device is lost"));
            seen.push(desk.status().state);
        }
        assert_eq!(seen, [State::Ready, State::Loading, State::Loading, State::Ready]);
    }
}
