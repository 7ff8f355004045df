//! Flags of `q36 man`, and the pages themselves.

use std::fmt::Write as _;

use super::error::UsageError;

const EXAMPLES: &str = "\
Examples:
  q36 man | man -l -
  q36 man run > ~/.local/share/man/man1/q36-run.1";

/// Arguments of `q36 man`.
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
            .ok_or_else(|| super::error::unknown_command(Some("man"), name, &root))?,
    };
    Ok(render(command, name.is_none()))
}

/// Options and commands are laid out by `clap_mangen`; its title line cannot go without a date, its
/// synopsis repeats every flag, and examples need their line breaks.
fn render(command: &clap::Command, is_program: bool) -> Vec<u8> {
    let man = clap_mangen::Man::new(command.clone());
    let mut out = Vec::new();
    let sections = |out: &mut Vec<u8>| -> std::io::Result<()> {
        out.extend(title(command).bytes());
        man.render_name_section(out)?;
        out.extend(synopsis(command).bytes());
        man.render_description_section(out)?;
        man.render_options_section(out)?;
        if is_program {
            man.render_subcommands_section(out)?;
            out.extend(environment().bytes());
            out.extend(EXIT_STATUS.bytes());
        }
        out.extend(examples(command).bytes());
        Ok(())
    };
    sections(&mut out).expect("memory takes every write");
    out
}

const EXIT_STATUS: &str = "\
.SH \"EXIT STATUS\"
.TP
0
success, also when the reader of standard output has gone
.TP
1
failure
.TP
2
wrong command line, unreadable prompt file, or another model is loaded
.TP
130
interrupted
";

fn title(command: &clap::Command) -> String {
    let name = command.get_display_name().unwrap_or("q36").to_uppercase();
    let date = option_env!("Q36_BUILD_DATE").filter(|date| *date != "unknown").unwrap_or_default();
    format!(".TH \"{}\" 1 \"{date}\" \"q36 {}\"\n", escape(&name), env!("CARGO_PKG_VERSION"))
}

/// The examples of the help page, line by line.
fn examples(command: &clap::Command) -> String {
    let Some(text) = command.get_after_help().map(ToString::to_string) else {
        return String::new();
    };
    let lines = text.lines().filter_map(|line| line.strip_prefix("  "));
    let lines = lines.map(|line| escape(line) + "\n").collect::<String>();
    format!(".SH EXAMPLES\n.nf\n{lines}.fi\n")
}

fn synopsis(command: &clap::Command) -> String {
    let usage = super::help::usage(command);
    let name = command.get_bin_name().unwrap_or("q36");
    let rest = usage.strip_prefix(name).unwrap_or_default();
    format!(".SH SYNOPSIS\n\\fB{}\\fR{}\n", escape(name), escape(rest))
}

fn environment() -> String {
    let mut out = String::from(".SH ENVIRONMENT\n");
    for variable in super::environment::VARIABLES {
        let (name, effect) = (escape(variable.name), escape(variable.effect));
        let _ = writeln!(out, ".TP\n\\fB{name}\\fR\n{effect}");
    }
    out
}

/// Backslashes, hyphens and quotes mean something in roff, and so does a dot that begins a line.
fn escape(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq");
    if text.starts_with('.') { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_exist_for_the_program_and_every_command() {
        for sub in super::super::command().get_subcommands() {
            let page = String::from_utf8(page(Some(sub.get_name())).unwrap()).unwrap();
            assert!(page.contains(&format!("\\fBq36 {}\\fR", sub.get_name())), "{page}");
        }
        let page = String::from_utf8(page(None).unwrap()).unwrap();
        assert!(page.contains("Q36_MODEL") && page.contains("EXIT STATUS"));
        let err = super::page(Some("rum")).unwrap_err();
        assert_eq!(err.to_string(), "q36 man: unknown command: rum");
        assert_eq!(err.next_step(), Some("did you mean run? see q36 --help"));
    }
}
