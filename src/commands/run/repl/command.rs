//! What was typed: a message, or one of the commands that the command line's help lists.

use std::path::{Path, PathBuf};

use crate::chat::ThinkMode;
use crate::cli::dialogue::{Argument, SLASH_COMMANDS, SlashCommand};
use crate::term::complete::{self, Candidate, Completions};
use crate::term::input;

/// What a person wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Entry {
    /// Nothing.
    Blank,
    /// An answer to this.
    Message(String),
    /// Something of the program.
    Command(Command),
    /// A command that makes no sense; the text says why.
    Mistake(String),
}

/// Something of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Command {
    Help,
    Think(ThinkMode),
    /// Show the system text, or replace it.
    System(Option<String>),
    Read(PathBuf),
    Retry,
    Undo,
    Clear,
    Save(PathBuf),
    Load(PathBuf),
    Context(usize),
    Power(u8),
    Tokens,
    Stats,
    Quit,
}

/// Columns of the short list.
const SHORT_COLUMNS: usize = 78;

fn file(path: &str, home: Option<&Path>) -> Option<PathBuf> {
    (!path.is_empty()).then(|| complete::expand(path, home))
}

fn number(text: &str, range: std::ops::RangeInclusive<usize>) -> Option<usize> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| is_plain && range.contains(n))
}

/// Reads what was typed. A command is one line that begins with a slash; `home` is what `~/` stands for.
pub(super) fn read(typed: &str, home: Option<&Path>) -> Entry {
    let text = typed.trim();
    let message = |text: &str| match text.trim() {
        "" => Entry::Blank,
        text => Entry::Message(text.to_owned()),
    };
    if let Some(inside) = input::fenced(text) {
        return message(inside);
    }
    if !text.starts_with('/') || text.contains('\n') {
        return message(text);
    }
    let (name, argument) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let argument = argument.trim();
    let Some(known) = SLASH_COMMANDS.iter().find(|known| known.name == name) else {
        let hint =
            "/help lists the commands; a message that begins with a slash goes between \"\"\"";
        return Entry::Mistake(format!("unknown command: {name}\nhint: {hint}"));
    };
    let is_superfluous = known.argument == Argument::Nothing && !argument.is_empty();
    match meaning(name, argument, home).filter(|_| !is_superfluous) {
        Some(command) => Entry::Command(command),
        None => Entry::Mistake(format!("usage: {} - {}", known.usage(), known.about)),
    }
}

/// What a command of the list asks for; `None` where its argument makes no sense.
fn meaning(name: &str, argument: &str, home: Option<&Path>) -> Option<Command> {
    Some(match name {
        "/help" => Command::Help,
        "/think" => Command::Think(ThinkMode::On),
        "/think-max" => Command::Think(ThinkMode::Max),
        "/nothink" => Command::Think(ThinkMode::Off),
        "/system" => Command::System(match argument {
            "" => None,
            "\"\"" => Some(String::new()),
            text => Some(text.to_owned()),
        }),
        "/read" => Command::Read(file(argument, home)?),
        "/retry" => Command::Retry,
        "/undo" => Command::Undo,
        "/clear" => Command::Clear,
        "/save" => Command::Save(file(argument, home)?),
        "/load" => Command::Load(file(argument, home)?),
        "/ctx" => Command::Context(number(argument, 1..=i32::MAX as usize)?),
        "/power" => Command::Power(u8::try_from(number(argument, 1..=100)?).ok()?),
        "/tokens" => Command::Tokens,
        "/stats" => Command::Stats,
        "/quit" | "/exit" => Command::Quit,
        _ => return None,
    })
}

/// The names of all commands and what keys do: what is shown at the start.
pub(super) fn short_help() -> String {
    let mut lines = vec!["commands:".to_owned()];
    for usage in SLASH_COMMANDS.iter().map(SlashCommand::usage) {
        let line = lines.last_mut().expect("there is always one");
        if line.len() + 2 + usage.len() > SHORT_COLUMNS {
            lines.push(format!("          {usage}"));
        } else {
            *line = format!("{line} {usage}");
        }
    }
    lines.push("/help says what they do, and which keys there are".to_owned());
    lines.join("\n")
}

/// What a beginning can become: a command's name, or a file behind one that takes a file.
pub(super) fn completions(typed: &str, home: Option<&Path>) -> Completions {
    if !typed.starts_with('/') || typed.contains('\n') {
        return Completions::default();
    }
    let Some((name, argument)) = typed.split_once(' ') else {
        let known = SLASH_COMMANDS.iter().filter(|known| known.name.starts_with(typed));
        let candidate = |known: &SlashCommand| {
            let space = if known.argument == Argument::Nothing { "" } else { " " };
            Candidate { shown: known.name.to_owned(), text: format!("{}{space}", known.name) }
        };
        return Completions { start: 0, candidates: known.map(candidate).collect() };
    };
    let takes_file =
        SLASH_COMMANDS.iter().any(|known| known.name == name && known.argument == Argument::File);
    if !takes_file {
        return Completions::default();
    }
    let argument = argument.trim_start();
    Completions { start: typed.len() - argument.len(), candidates: complete::files(argument, home) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(typed: &str, expected: impl Into<Option<Entry>>) {
        let found = read(typed, Some(Path::new("/home/me")));
        assert_eq!(Some(found), expected.into(), "{typed}");
    }

    fn message(text: &str) -> Entry {
        Entry::Message(text.to_owned())
    }

    #[test]
    fn a_slash_on_one_line_is_a_command_and_the_rest_are_messages() {
        check(" \t ", Entry::Blank);
        check("  hello /help ", message("hello /help"));
        check("/help", Entry::Command(Command::Help));
        check(" /quit ", Entry::Command(Command::Quit));
        check("/usr/bin/env\nis a path", message("/usr/bin/env\nis a path"));
        check("\"\"\"\n/help\n\"\"\"", message("/help"));
        check("\"\"\"  \"\"\"", Entry::Blank);
    }

    #[test]
    fn arguments_are_all_that_follows() {
        check("/read a b.txt", Entry::Command(Command::Read("a b.txt".into())));
        check("/save  ~/x.kv ", Entry::Command(Command::Save("/home/me/x.kv".into())));
        check("/system You are  terse.", {
            Entry::Command(Command::System(Some("You are  terse.".to_owned())))
        });
        check("/system \"\"", Entry::Command(Command::System(Some(String::new()))));
        check("/system", Entry::Command(Command::System(None)));
        check("/ctx 4096", Entry::Command(Command::Context(4096)));
        check("/power 50", Entry::Command(Command::Power(50)));
    }

    #[test]
    fn mistakes_name_the_way() {
        for (typed, expected) in [
            ("/hlep", "unknown command: /hlep\nhint: /help lists"),
            ("/ctx", "usage: /ctx N - a context of N tokens"),
            ("/ctx many", "usage: /ctx N"),
            ("/ctx 0", "usage: /ctx N"),
            ("/ctx +1", "usage: /ctx N"),
            ("/ctx 99999999999999999999", "usage: /ctx N"),
            ("/power 101", "usage: /power N"),
            ("/read", "usage: /read FILE"),
            ("/undo 2", "usage: /undo - take"),
        ] {
            let found = read(typed, None);
            let Entry::Mistake(text) = found else { panic!("{typed}: {found:?}") };
            assert!(text.starts_with(expected), "{text}");
        }
    }

    #[test]
    fn every_command_is_in_the_list_and_can_be_completed() {
        let argument = |row: &SlashCommand| match row.argument {
            Argument::Nothing | Argument::Text => "",
            Argument::File => "a",
            Argument::Number => "64",
        };
        for row in &SLASH_COMMANDS {
            assert!(meaning(row.name, argument(row), None).is_some(), "{}", row.name);
            assert!(short_help().contains(&row.usage()));
            let found = completions(&row.name[..row.name.len() - 1], None);
            let texts: Vec<&str> = found.candidates.iter().map(|c| c.text.trim_end()).collect();
            assert!(found.start == 0 && texts.contains(&row.name), "{texts:?}");
        }
        assert!(short_help().lines().all(|line| line.len() <= SHORT_COLUMNS));
        assert_eq!(completions("/t", None).candidates.len(), 3);
    }

    #[test]
    fn files_are_completed_behind_commands_that_take_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a b.txt"), "").unwrap();
        let found = completions("/read  ~/a", Some(dir.path()));
        assert_eq!((found.start, found.candidates.len()), (7, 1));
        assert_eq!(found.candidates[0].text, "~/a b.txt");
        assert_eq!(completions("/ctx ~/a", Some(dir.path())), Completions::default());
        assert_eq!(completions("read ~/a", Some(dir.path())), Completions::default());
    }
}
