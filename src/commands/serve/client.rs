//! x
use crate::cli::serve::ServeArgs;
use crate::cli::values::Client;
use crate::commands::{Context, Exit};
use anyhow::Result;
pub(super) fn print(_args: &ServeArgs, _client: Client, _context: &Context) -> Result<Exit> {
    Ok(Exit::Success)
}
