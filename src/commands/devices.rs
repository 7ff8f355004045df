//! `q36 devices`.

use anyhow::Result;

use super::{Context, Exit};
use crate::cli::devices::DevicesArgs;

/// Lists what there is to compute on.
pub(super) fn run(args: &DevicesArgs, context: &Context) -> Result<Exit> {
    if args.json {
        context.printer.line("{\"vulkan\":false,\"devices\":[]}")?;
    } else {
        context
            .printer
            .line("this build has no Vulkan support; the CPU backend is the only one")?;
    }
    Ok(Exit::Success)
}
