//! The commands of a dialogue: one table for reading them, for help and for completion.

use std::path::{Path, PathBuf};

use crate::chat::ThinkMode;
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

/// What stands behind a command's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Argument {
    Nothing,
    File,
    Number,
    /// Text, or nothing.
    Text,
}

impl Argument {
    fn shown(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::File => " FILE",
            Self::Number => " N",
            Self::Text => " TEXT",
        }
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    argument: Argument,
    about: &'static str,
    /// From what stands behind the name; `None` is a mistake.
    read: fn(&str, Option<&Path>) -> Option<Command>,
}

const TABLE: [Row; 17] = [
    Row {
        name: "/help",
        argument: Argument::Nothing,
        about: "this list",
        read: |_, _| Some(Command::Help),
    },
    Row {
        name: "/think",
        argument: Argument::Nothing,
        about: "reason before answering",
        read: |_, _| Some(Command::Think(ThinkMode::On)),
    },
    Row {
        name: "/think-max",
        argument: Argument::Nothing,
        about: "reason exhaustively; needs a context of 98304 tokens",
        read: |_, _| Some(Command::Think(ThinkMode::Max)),
    },
    Row {
        name: "/nothink",
        argument: Argument::Nothing,
        about: "answer at once",
        read: |_, _| Some(Command::Think(ThinkMode::Off)),
    },
    Row {
        name: "/system",
        argument: Argument::Text,
        about: "replace the system text (\"\" for none), or show it",
        read: |text, _| {
            let text = if text == "\"\"" { Some("") } else { (!text.is_empty()).then_some(text) };
            Some(Command::System(text.map(str::to_owned)))
        },
    },
    Row {
        name: "/read",
        argument: Argument::File,
        about: "send a whole file as a message",
        read: |path, home| file(path, home).map(Command::Read),
    },
    Row {
        name: "/retry",
        argument: Argument::Nothing,
        about: "another answer to the last message",
        read: |_, _| Some(Command::Retry),
    },
    Row {
        name: "/undo",
        argument: Argument::Nothing,
        about: "take the last message and its answer back",
        read: |_, _| Some(Command::Undo),
    },
    Row {
        name: "/clear",
        argument: Argument::Nothing,
        about: "begin anew with the same system text",
        read: |_, _| Some(Command::Clear),
    },
    Row {
        name: "/save",
        argument: Argument::File,
        about: "keep the conversation and its state in a file",
        read: |path, home| file(path, home).map(Command::Save),
    },
    Row {
        name: "/load",
        argument: Argument::File,
        about: "go on with a conversation that was kept",
        read: |path, home| file(path, home).map(Command::Load),
    },
    Row {
        name: "/ctx",
        argument: Argument::Number,
        about: "a context of N tokens; the conversation stays",
        read: |n, _| number(n, 1..=i32::MAX as usize).map(Command::Context),
    },
    Row {
        name: "/power",
        argument: Argument::Number,
        about: "keep the machine busy for N percent of the time, 1 to 100",
        read: |n, _| Some(Command::Power(u8::try_from(number(n, 1..=100)?).ok()?)),
    },
    Row {
        name: "/tokens",
        argument: Argument::Nothing,
        about: "how much of the context is used",
        read: |_, _| Some(Command::Tokens),
    },
    Row {
        name: "/stats",
        argument: Argument::Nothing,
        about: "tokens and times of the last answer and of all",
        read: |_, _| Some(Command::Stats),
    },
    Row {
        name: "/quit",
        argument: Argument::Nothing,
        about: "leave; so does Ctrl+D",
        read: |_, _| Some(Command::Quit),
    },
    Row {
        name: "/exit",
        argument: Argument::Nothing,
        about: "the same",
        read: |_, _| Some(Command::Quit),
    },
];

/// Columns of the short list.
const SHORT_COLUMNS: usize = 78;

/// Behind the list of commands.
const KEYS: &str = "\"\"\" begins a message of several lines and \"\"\" ends it; a paste of several lines is one message.\n\
                    Alt+Enter breaks a line. Ctrl+C stops an answer, twice within a second leaves.";

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
    let Some(row) = TABLE.iter().find(|row| row.name == name) else {
        let hint =
            "/help lists the commands; a message that begins with a slash goes between \"\"\"";
        return Entry::Mistake(format!("unknown command: {name}\nhint: {hint}"));
    };
    let is_superfluous = row.argument == Argument::Nothing && !argument.is_empty();
    match (row.read)(argument, home).filter(|_| !is_superfluous) {
        Some(command) => Entry::Command(command),
        None => Entry::Mistake(format!("usage: {} - {}", row.usage(), row.about)),
    }
}

impl Row {
    /// Name and argument.
    fn usage(&self) -> String {
        format!("{}{}", self.name, self.argument.shown())
    }
}

/// The names of all commands: what is shown at the start.
pub(super) fn short_help() -> String {
    let mut lines = vec!["commands:".to_owned()];
    for usage in TABLE.iter().map(Row::usage) {
        let line = lines.last_mut().expect("there is always one");
        if line.len() + 2 + usage.len() > SHORT_COLUMNS {
            lines.push(format!("          {usage}"));
        } else {
            *line = format!("{line} {usage}");
        }
    }
    lines.extend(KEYS.lines().map(str::to_owned));
    lines.join("\n")
}

/// The list of commands, with what they do.
pub(super) fn help() -> String {
    let line = |row: &Row| format!("  {:<16}{}", row.usage(), row.about);
    let mut lines: Vec<String> = TABLE.iter().map(line).collect();
    lines.extend(KEYS.lines().map(|line| format!("  {line}")));
    lines.join("\n")
}

/// What a beginning can become: a command's name, or a file behind one that takes a file.
pub(super) fn completions(typed: &str, home: Option<&Path>) -> Completions {
    if !typed.starts_with('/') || typed.contains('\n') {
        return Completions::default();
    }
    let Some((name, argument)) = typed.split_once(' ') else {
        let rows = TABLE.iter().filter(|row| row.name.starts_with(typed));
        let candidate = |row: &Row| {
            let space = if row.argument == Argument::Nothing { "" } else { " " };
            Candidate { shown: row.name.to_owned(), text: format!("{}{space}", row.name) }
        };
        return Completions { start: 0, candidates: rows.map(candidate).collect() };
    };
    let takes_file = TABLE.iter().any(|row| row.name == name && row.argument == Argument::File);
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
        let help = help();
        for row in &TABLE {
            assert!(help.contains(&format!("  {} ", row.usage())));
            assert!(short_help().contains(&row.usage()));
            let found = completions(&row.name[..row.name.len() - 1], None);
            let texts: Vec<&str> = found.candidates.iter().map(|c| c.text.trim_end()).collect();
            assert!(found.start == 0 && texts.contains(&row.name), "{texts:?}");
        }
        for text in [help, short_help()] {
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
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
