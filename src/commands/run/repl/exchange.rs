//! One message and its answer, at the terminal.

use std::time::Instant;

use anyhow::{Context as _, Result};

use super::dialogue::{Desk, Dialogue};
use super::reply::Reply;
use super::stats::Usage;
use crate::chat::Budget;
use crate::commands::run::show::{Display, Format};
use crate::commands::run::timing::Clock;
use crate::commands::run::{config, prefill};
use crate::engine::generate::{Finish, Next};
use crate::engine::sample::Sampler;
use crate::engine::{self, SyncReport, Target};
use crate::term::Class;
use crate::term::input::Source;

impl Dialogue<'_> {
    /// Sends a message.
    pub(super) fn ask(&mut self, desk: &mut Desk<'_>, text: &str) -> Result<()> {
        self.transcript.ask(desk.engine.tokenizer(), text, self.mode)?;
        self.exchange(desk)
    }

    /// Answers the turn that is open. Where that fails the message is taken back.
    pub(super) fn exchange(&mut self, desk: &mut Desk<'_>) -> Result<()> {
        let modes = self.modes.clone();
        let _hidden = modes.hide_typing();
        let answered = self.answer(desk);
        if answered.is_err() {
            self.transcript.withdraw();
        } else if matches!(self.source, Source::Person(_)) {
            self.context.printer.note(Class::Plain, "");
        }
        answered
    }

    fn answer(&mut self, desk: &mut Desk<'_>) -> Result<()> {
        let printer = &self.context.printer;
        let started = Instant::now();
        let sync = self.prefill(desk)?;
        let clock =
            Clock { prefill: started.elapsed(), evaluated: sync.evaluated, ..Clock::default() };
        if sync.cancelled {
            self.transcript.withdraw();
            printer.note(Class::Plain, "stopped; the message was taken back");
            return Ok(());
        }
        let thinking = self.args.prompt.show_thinking;
        let mut display = Display::new(Format::Text, thinking, None, printer)?;
        let budget = self.args.sampling.think_budget.map(|n| Budget::thought(n as usize));
        let sampler = Sampler::new(config::sampler_params(self.args), self.seeds.next_u64().max(1));
        let limit = self.args.prompt.tokens as usize;
        let mut reply = Reply::begin(desk.engine, desk.session, sampler, budget, limit);
        let mut usage = Usage { clock, reused: sync.reused, thought: 0 };
        let generated = self.generate(desk, &mut reply, &mut display, &mut usage.clock);
        // Colours end and the line is closed, whatever happened.
        let shown = display.finish();
        let finish = generated?;
        shown?;
        usage.thought = reply.think().thought_tokens();
        reply.keep(desk.engine.tokenizer(), &mut self.transcript);
        self.stats.add(usage);
        self.report(&usage.clock, finish);
        Ok(())
    }

    /// Brings the session to the open turn.
    fn prefill(&mut self, desk: &mut Desk<'_>) -> Result<SyncReport> {
        let tokens = self.transcript.tokens();
        let borders = self.transcript.borders(desk.engine.tokenizer());
        let target = Target { tokens: &tokens, borders: &borders, by_text: false };
        let Desk { engine, session, saved } = desk;
        let report = match saved {
            Some(saved) => saved.prefill(*engine, *session, target, self.context, &self.interrupt),
            None => prefill::to(*engine, *session, target, self.context, &self.interrupt),
        };
        report.map_err(|error| match error.downcast_ref() {
            Some(engine::Error::ContextFull { needed, ctx }) => anyhow::anyhow!(
                "the conversation would take {needed} tokens of a context of {ctx}\n\
                 hint: /undo or /clear makes room, /ctx N makes the context larger"
            ),
            _ => error,
        })
    }

    /// Streams the reply; `None` when it was interrupted.
    fn generate(
        &self,
        desk: &mut Desk<'_>,
        reply: &mut Reply,
        display: &mut Display,
        clock: &mut Clock,
    ) -> Result<Option<Finish>> {
        let started = Instant::now();
        let finish = loop {
            if self.interrupt.is_raised() {
                break None;
            }
            match reply.next(desk.engine).context("the answer cannot be gone on with")? {
                Next::End(finish) => break Some(finish),
                Next::Token(fed) => {
                    if clock.generated == 0 {
                        clock.first_token = clock.prefill + started.elapsed();
                    }
                    clock.generated += 1;
                    display.token(fed.show, desk.engine.tokenizer().visible_bytes(fed.id))?;
                    if let Some(saved) = &mut desk.saved {
                        saved.pump(desk.engine, desk.session)?;
                    }
                }
            }
        };
        clock.decode = started.elapsed();
        Ok(finish)
    }

    fn report(&self, clock: &Clock, finish: Option<Finish>) {
        let printer = &self.context.printer;
        if finish.is_none() && clock.generated == 0 {
            return printer.note(Class::Plain, "stopped; the message was taken back");
        }
        printer.note(Class::Timing, &clock.timings().line());
        match finish {
            Some(Finish::Stop) => {}
            Some(finish) => printer.note(Class::Plain, &format!("ended by: {}", finish.name())),
            None => printer.note(Class::Plain, "ended by: interrupted"),
        }
    }
}
