//! One prompt, one answer on stdout (cli.md 4.2).

use std::time::Instant;

use anyhow::Result;
use serde::Serialize;

use super::prefill;
use super::saved::Saved;
use super::show::{Display, Format};
use super::timing::{Clock, Timings};
use crate::chat::ThinkOptions;
use crate::commands::{Context, Exit};
use crate::engine::generate::{Generation, Next};
use crate::engine::sample::Sampler;
use crate::engine::{SessionId, StateIo, Target};
use crate::term::Class;
use crate::tokenizer::TokenId;
use crate::util::signal::Interrupt;

/// What to generate.
pub(super) struct Request<'a> {
    pub(super) prompt: &'a [TokenId],
    pub(super) sampler: Sampler,
    pub(super) seed: u64,
    pub(super) think: ThinkOptions,
    pub(super) limit: usize,
    pub(super) format: Format,
    /// Where states of prompts are kept.
    pub(super) saved: Option<&'a mut Saved>,
}

/// The closing object of the JSON formats.
#[derive(Serialize)]
struct Report<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    r#type: Option<&'static str>,
    model: String,
    text: &'a str,
    reasoning: &'a str,
    finish: &'static str,
    seed: u64,
    usage: Usage,
    timings: Timings,
}

#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "the names that clients of chat APIs know")]
struct Usage {
    prompt_tokens: usize,
    cached_tokens: usize,
    completion_tokens: usize,
    reasoning_tokens: usize,
}

/// Prefills, generates, prints, reports the time it took.
pub(super) fn run(
    engine: &mut dyn StateIo,
    session: SessionId,
    request: Request<'_>,
    display: &mut Display,
    context: &Context,
    interrupt: &Interrupt,
) -> Result<Exit> {
    let Request { prompt, sampler, seed, think, limit, format, mut saved } = request;
    let started = Instant::now();
    let sync = match &mut saved {
        Some(saved) => {
            saved.prefill(engine, session, Target::tokens(prompt), context, interrupt)?
        }
        None => prefill::run(engine, session, prompt, context, interrupt)?,
    };
    let mut clock =
        Clock { prefill: started.elapsed(), evaluated: sync.evaluated, ..Clock::default() };
    let mut reply = Generation::new(engine, session, sampler, think, limit);
    let finish = if sync.cancelled {
        None
    } else {
        generate((engine, saved.as_deref_mut()), &mut reply, display, &mut clock, interrupt)?
    };
    display.finish()?;
    if let Some(saved) = saved {
        saved.close(engine, context);
    }
    let timings = clock.timings();
    let interrupted = finish.is_none();
    let finish = finish.unwrap_or("interrupted");
    if format == Format::Text {
        context.printer.note(Class::Timing, &timings.line());
        if finish != "stop" {
            context.printer.note(Class::Plain, &format!("ended by: {finish}"));
        }
    } else {
        let (text, reasoning) = (display.answer().to_owned(), display.thought().to_owned());
        let report = Report {
            r#type: (format == Format::StreamJson).then_some("done"),
            model: engine.info().model.display().to_string(),
            text: &text,
            reasoning: &reasoning,
            finish,
            seed,
            usage: Usage {
                prompt_tokens: prompt.len(),
                cached_tokens: sync.reused,
                completion_tokens: clock.generated,
                reasoning_tokens: reply.think().thought_tokens(),
            },
            timings,
        };
        display.json(&report)?;
    }
    Ok(if interrupted { Exit::Interrupted } else { Exit::Success })
}

/// Streams the reply; `None` when it was interrupted.
fn generate(
    (engine, mut saved): (&mut dyn StateIo, Option<&mut Saved>),
    reply: &mut Generation,
    display: &mut Display,
    clock: &mut Clock,
    interrupt: &Interrupt,
) -> Result<Option<&'static str>> {
    let started = Instant::now();
    let finish = loop {
        if interrupt.is_raised() {
            break None;
        }
        match reply.next(engine)? {
            Next::End(finish) => break Some(finish.name()),
            Next::Token(fed) => {
                if clock.generated == 0 {
                    clock.first_token = clock.prefill + started.elapsed();
                }
                clock.generated += 1;
                display.token(fed.show, engine.tokenizer().visible_bytes(fed.id))?;
                if let Some(saved) = &mut saved {
                    saved.pump(engine, reply.session())?;
                }
            }
        }
    };
    clock.decode = started.elapsed();
    Ok(finish)
}
