//! Flags that parse and need what does not exist yet.
//!
//! A flag that asks for something this build cannot do is refused; one that merely has nothing to
//! act on gets a warning. Which is which is a pure function of the flags.

use anyhow::{Result, bail};

use crate::cli::engine::EngineArgs;
use crate::cli::values::Backend;
use crate::term::Printer;

/// What to say about a flag.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Notice {
    /// The run cannot do what was asked for.
    Refusal(String),
    /// The flag changes nothing.
    NoEffect(String),
}

/// Prints warnings, and fails at the first flag that cannot be honoured.
pub(super) fn check(args: &EngineArgs, printer: &Printer) -> Result<()> {
    let mut refused = None;
    for notice in notices(args) {
        match notice {
            Notice::NoEffect(text) => printer.warning(&text),
            Notice::Refusal(text) => refused = refused.or(Some(text)),
        }
    }
    match refused {
        Some(text) => bail!("{text}"),
        None => Ok(()),
    }
}

fn not_yet(flag: &str) -> Notice {
    Notice::Refusal(format!("{flag} does not work in this version yet"))
}

fn notices(args: &EngineArgs) -> Vec<Notice> {
    let mut notices = Vec::new();
    if args.streaming.is_on() {
        notices.push(not_yet("--ssd-streaming"));
    }
    if args.mtp.mtp.is_some() {
        notices.push(not_yet("--mtp"));
    }
    if args.streaming.simulate_used_memory.is_some() {
        notices.push(not_yet("--simulate-used-memory"));
    }
    for flag in args.streaming.without_effect() {
        notices.push(Notice::NoEffect(format!("{flag} has no effect without --ssd-streaming")));
    }
    let of_gpu = [(args.device.is_some(), "--device"), (args.profile.is_some(), "--profile")];
    let on_cpu = args.backend() == Backend::Cpu;
    for (_, flag) in of_gpu.iter().filter(|(is_given, _)| *is_given && on_cpu) {
        notices.push(Notice::NoEffect(format!("{flag} has no effect with --cpu")));
    }
    let of_mtp = [
        (args.mtp.mtp_draft.is_some(), "--mtp-draft"),
        (args.mtp.mtp_margin.is_some(), "--mtp-margin"),
    ];
    for (_, flag) in of_mtp.iter().filter(|(is_given, _)| *is_given && args.mtp.mtp.is_none()) {
        notices.push(Notice::NoEffect(format!("{flag} has no effect without --mtp")));
    }
    notices
}
