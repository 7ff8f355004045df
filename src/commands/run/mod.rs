//! `q36 run`.

use anyhow::Result;

use super::{Context, Exit};
use crate::cli::run::RunArgs;

/// Answers one prompt, chats, or runs a diagnostic.
pub(super) fn run(args: &RunArgs, context: &Context) -> Result<Exit> {
    let _ = (args.prompt.source()?, context);
    anyhow::bail!("not wired yet")
}
