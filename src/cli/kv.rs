//! Flags of `q36 kv`.

use std::path::PathBuf;

use super::{heading, values};

const EXAMPLES: &str = "\
Examples:
  q36 kv list
  q36 kv show 3f9a
  q36 kv verify /var/cache/q36
  q36 kv prune --older-than 30d --dry-run";

/// What to do with saved sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KvAction {
    /// One line for each file, the one used last first.
    List,
    /// Everything about a file, its text included.
    Show,
    /// Read files whole and check their sums.
    Verify,
    /// Delete files.
    Prune,
}

impl KvAction {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Show => "show",
            Self::Verify => "verify",
            Self::Prune => "prune",
        }
    }
}

/// Arguments of `q36 kv`.
#[derive(Debug, Clone, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[command(next_help_heading = heading::KV, after_help = EXAMPLES)]
pub struct KvArgs {
    /// list, show, verify or prune.
    #[arg(value_name = "ACTION", value_enum, hide_possible_values = true)]
    pub action: KvAction,

    /// A directory (default: the agent's, `~/.q36/kvcache`), a file, or the beginning of a file's name.
    #[arg(value_name = "WHAT")]
    pub what: Vec<PathBuf>,

    /// prune: files that were not used for so long: a number of s, m, h, d or w.
    #[arg(long, value_name = "AGE", value_parser = values::age)]
    pub older_than: Option<u64>,

    /// prune: the least valuable files, until all together take at most so many MiB. Sessions saved by hand stay.
    #[arg(long, value_name = "MB", value_parser = values::non_negative)]
    pub max_mb: Option<u32>,

    /// prune: files that are broken.
    #[arg(long)]
    pub damaged: bool,

    /// prune: only say what would be deleted.
    #[arg(long)]
    pub dry_run: bool,

    /// show: only the text, all of it, as it is.
    #[arg(long)]
    pub text: bool,

    /// Print one JSON object.
    #[arg(long, conflicts_with = "text")]
    pub json: bool,
}
