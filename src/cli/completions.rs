//! Flags of `q36 completions`, and the scripts themselves.

use clap::ValueEnum;

const EXAMPLES: &str = "\
Examples:
  q36 completions bash > ~/.local/share/bash-completion/completions/q36
  q36 completions fish > ~/.config/fish/completions/q36.fish";

/// Arguments of `q36 completions`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsArgs {
    /// bash, zsh or fish.
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: Shell,
}

/// A shell that completions exist for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// GNU Bash.
    Bash,
    /// Z shell.
    Zsh,
    /// Fish.
    Fish,
}

/// The completion script of `shell`, from the flag definitions.
pub fn script(shell: Shell) -> Vec<u8> {
    let mut command = super::command();
    let mut out = Vec::new();
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, "q36", &mut out);
    out
}
