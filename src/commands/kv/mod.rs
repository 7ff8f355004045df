//! `q36 kv`: what is saved, whether it is whole, and getting rid of it.

mod age;
mod list;
mod places;
mod prune;
mod show;
mod summary;
mod verify;

use anyhow::Result;

use super::{Context, Exit};
use crate::cli::UsageError;
use crate::cli::kv::{KvAction, KvArgs};

/// Runs the subcommand.
pub(super) fn run(args: &KvArgs, context: &Context) -> Result<Exit> {
    check(args)?;
    let found = places::find(&args.what, &context.environment)?;
    match args.action {
        KvAction::List => list::run(args, &found, context),
        KvAction::Show => show::run(args, &found, context),
        KvAction::Verify => verify::run(args, &found, context),
        KvAction::Prune => prune::run(args, &found, context),
    }
}

/// Flags of one action with another are mistakes.
fn check(args: &KvArgs) -> Result<(), UsageError> {
    let pruning = [
        (args.older_than.is_some(), "--older-than"),
        (args.max_mb.is_some(), "--max-mb"),
        (args.damaged, "--damaged"),
        (args.dry_run, "--dry-run"),
    ];
    let wrong = |given: bool, flag: &str, owner: KvAction| {
        if given && args.action != owner {
            let text = format!("{flag} belongs to {}, not to {}", owner.name(), args.action.name());
            return Err(UsageError::new("kv", &text).hint("see q36 kv --help"));
        }
        Ok(())
    };
    for (given, flag) in pruning {
        wrong(given, flag, KvAction::Prune)?;
    }
    wrong(args.text, "--text", KvAction::Show)
}
