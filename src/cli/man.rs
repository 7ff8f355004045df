//! Flags of `q36 man`, and the pages themselves.

use super::error::UsageError;

const EXAMPLES: &str = "\
Examples:
  q36 man | man -l -
  q36 man run > ~/.local/share/man/man1/q36-run.1";

/// Print a manual page.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct ManArgs {
    /// The command to describe. Default: the program.
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// The manual page of the program or of one command, in roff, from the flag definitions.
pub fn page(name: Option<&str>) -> Result<Vec<u8>, UsageError> {
    let mut root = super::command();
    root.build();
    let command = match name {
        None => &root,
        Some(name) => root
            .find_subcommand(name)
            .ok_or_else(|| super::error::unknown_command("man", name, &root))?,
    };
    let mut out = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut out).expect("memory takes every write");
    Ok(out)
}
