//! Bringing a session to a prompt while the user watches and may stop it.

use anyhow::Result;

use crate::commands::Context;
use crate::commands::progress::Watch;
use crate::engine::{Engine, SessionId, SyncReport, Target};
use crate::tokenizer::TokenId;
use crate::util::signal::Interrupt;

/// Syncs to exactly these tokens, with a progress line on stderr. Ctrl+C stops between layers; what was committed stays.
pub(super) fn run(
    engine: &mut dyn Engine,
    session: SessionId,
    prompt: &[TokenId],
    context: &Context,
    interrupt: &Interrupt,
) -> Result<SyncReport> {
    to(engine, session, Target::tokens(prompt), context, interrupt)
}

/// The same to a prompt with borders.
pub(super) fn to(
    engine: &mut dyn Engine,
    session: SessionId,
    target: Target<'_>,
    context: &Context,
    interrupt: &Interrupt,
) -> Result<SyncReport> {
    let mut watch = Watch::new(context, interrupt);
    let report = engine.sync_to(session, target, &mut watch);
    watch.finish();
    Ok(report?)
}
