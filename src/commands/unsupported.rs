//! Flags that parse and need a backend that does not exist yet.
//!
//! A flag that asks for something this build cannot do is refused; one that merely has nothing to
//! act on gets a warning. Which is which is a pure function of the flags.

use anyhow::{Result, bail};

use crate::cli::engine::EngineArgs;
use crate::cli::run::RunArgs;
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

const NO_VULKAN: &str = "the Vulkan engine, which this build does not have yet";

/// Prints warnings, and fails at the first flag that cannot be honoured.
pub(super) fn check(args: &RunArgs, printer: &Printer) -> Result<()> {
    let mut refused = None;
    for notice in engine(&args.engine) {
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

fn needs_vulkan(flag: &str) -> Notice {
    Notice::Refusal(format!("{flag} needs {NO_VULKAN}"))
}

fn only_with_vulkan(flag: &str) -> Notice {
    Notice::Refusal(format!("{flag} works only with --vulkan, and needs {NO_VULKAN}"))
}

fn engine(args: &EngineArgs) -> Vec<Notice> {
    let mut notices = Vec::new();
    if args.backend() == Backend::Vulkan {
        notices.push(Notice::Refusal(format!(
            "--vulkan needs {NO_VULKAN}\nhint: without it, or with --cpu, the processor computes"
        )));
    }
    if args.streaming.is_on() {
        notices.push(only_with_vulkan("--ssd-streaming"));
    }
    if args.mtp.mtp.is_some() {
        notices.push(only_with_vulkan("--mtp"));
    }
    if args.streaming.simulate_used_memory.is_some() {
        notices.push(needs_vulkan("--simulate-used-memory"));
    }
    for flag in args.streaming.without_effect() {
        notices.push(Notice::NoEffect(format!("{flag} has no effect without --ssd-streaming")));
    }
    let on_cpu = [(args.device.is_some(), "--device"), (args.profile.is_some(), "--profile")];
    for (_, flag) in on_cpu.iter().filter(|(is_given, _)| *is_given) {
        notices.push(Notice::NoEffect(format!("{flag} has no effect on the CPU")));
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
