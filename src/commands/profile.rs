//! `--profile`: what the device spent its time on, at the end of a command.

use anyhow::{Context as _, Result};

use super::Context;
use crate::bench::profile;
use crate::cli::engine::EngineArgs;
use crate::cli::values::Backend;
use crate::engine::Engine;
use crate::term::Class;
use crate::util::fs::write_atomic;

/// Prints the table on stderr, or writes JSON to the file that was named. Nothing without the flag.
pub(super) fn report(engine: &mut dyn Engine, args: &EngineArgs, context: &Context) -> Result<()> {
    let Some(target) = &args.profile else { return Ok(()) };
    let printer = &context.printer;
    let Some(found) = engine.profile() else {
        // With --cpu this was said at the start.
        if args.backend() != Backend::Cpu {
            let backend = engine.info().backend.name();
            printer.warning(&format!("--profile: nothing was timed, the backend is {backend}"));
        }
        return Ok(());
    };
    if let Some(path) = target {
        let json = serde_json::to_vec(&found)?;
        write_atomic(path, &json).with_context(|| format!("cannot write {}", path.display()))?;
        printer.note(Class::Good, &format!("wrote {}", path.display()));
        return Ok(());
    }
    for line in profile::table(&found) {
        printer.message(Class::Timing, &line);
    }
    Ok(())
}
