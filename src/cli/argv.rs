//! What is changed in the argument list before clap reads it.
//!
//! The walk knows which flags take a value, so that text which only looks like a flag is left
//! alone: in `-p -sys` the second word is a prompt. It rewrites the spellings that clap cannot
//! express, puts in the command that was left out, cuts the list at a request for help, and answers
//! the flags that have moved.

use std::ffi::{OsStr, OsString};

use super::error::UsageError;

/// Several letters behind one dash, as users of the C program type them.
const LONG_FOR: [(&str, &str); 3] =
    [("-sys", "--system"), ("-ctk", "--cache-type-k"), ("-ctv", "--cache-type-v")];

/// Flags of the C programs that have another name now, and what to say about them.
const MOVED: [(&str, &str); 1] = [("--server", "the server is a command of its own: q36 serve")];

/// An argument list that clap can read.
pub(super) struct Rewritten {
    /// The arguments, the program's name first. After a request for help nothing follows.
    pub(super) args: Vec<OsString>,
    /// The command, written or understood.
    pub(super) command: Option<String>,
    /// The topic named behind `--help`.
    pub(super) topic: Option<String>,
}

/// Walks the list once. `command` must be built, so that global flags stand in every subcommand.
pub(super) fn rewrite(
    command: &clap::Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Rewritten, UsageError> {
    let mut args = args.into_iter();
    let mut walk = Walk {
        root: command,
        current: command,
        out: vec![args.next().unwrap_or_else(|| "q36".into())],
        name: None,
    };
    let mut rest = args.collect::<Vec<_>>().into_iter();
    while let Some(arg) = rest.next() {
        let text = arg.to_str().unwrap_or_default();
        if text == "--" {
            walk.out.push(arg);
            walk.out.extend(rest);
            break;
        }
        if !text.starts_with('-') || text == "-" {
            walk.word(arg);
            continue;
        }
        if text == "-h" || text == "--help" {
            let topic = rest.next().filter(|next| !starts_with_dash(next));
            walk.out.push("--help".into());
            let topic = topic.map(|t| t.to_string_lossy().into_owned());
            return Ok(Rewritten { args: walk.out, command: walk.name, topic });
        }
        let takes_next = walk.flag(text, rest.as_slice())?;
        if takes_next && let Some(value) = rest.next() {
            walk.out.push(value);
        }
    }
    Ok(Rewritten { args: walk.out, command: walk.name, topic: None })
}

fn starts_with_dash(arg: &OsStr) -> bool {
    arg.as_encoded_bytes().starts_with(b"-")
}

struct Walk<'a> {
    root: &'a clap::Command,
    current: &'a clap::Command,
    out: Vec<OsString>,
    name: Option<String>,
}

impl Walk<'_> {
    /// The first word is a command, later ones are its arguments.
    fn word(&mut self, arg: OsString) {
        if self.name.is_none() {
            let name = arg.to_string_lossy().into_owned();
            if let Some(found) = self.root.find_subcommand(&name) {
                self.current = found;
                self.name = Some(name);
            }
        }
        self.out.push(arg);
    }

    /// Handles one flag; returns whether the next argument is its value.
    fn flag(&mut self, text: &str, rest: &[OsString]) -> Result<bool, UsageError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        if self.name.is_none() && !self.belongs_to_root(name, rest) {
            self.word("run".into());
        }
        if let Some((_, answer)) = MOVED.iter().find(|(flag, _)| *flag == name) {
            return Err(UsageError::at(self.name.as_deref(), format!("{name}: {answer}")));
        }
        if let Some((_, long)) = LONG_FOR.iter().find(|(short, _)| *short == name) {
            self.out.push(value.map_or((*long).into(), |v| format!("{long}={v}").into()));
            return Ok(value.is_none());
        }
        self.out.push(text.into());
        Ok(match name.strip_prefix("--") {
            Some(long) => value.is_none() && self.long_takes_value(long),
            None => self.cluster_takes_next(&text[1..]),
        })
    }

    /// Flags in front of any command: the program's own, else `run` was left out. `--json` is the
    /// program's only beside `--version`.
    fn belongs_to_root(&self, name: &str, rest: &[OsString]) -> bool {
        let is_version = |arg: &OsStr| arg == "--version" || arg == "-V";
        match name.strip_prefix("--") {
            Some("json") => {
                let seen = self.out.iter().any(|arg| is_version(arg));
                seen || rest.iter().any(|arg| is_version(arg))
            }
            Some(long) => self.root.get_arguments().any(|a| a.get_long() == Some(long)),
            None => name[1..]
                .chars()
                .all(|c| self.root.get_arguments().any(|a| a.get_short() == Some(c))),
        }
    }

    fn long_takes_value(&self, long: &str) -> bool {
        let is_named = |arg: &&clap::Arg| {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        };
        self.current.get_arguments().find(is_named).is_some_and(takes_next)
    }

    /// `-vc 4096` and `-vc4096`: the first letter that takes a value takes what follows it.
    fn cluster_takes_next(&self, letters: &str) -> bool {
        for (at, letter) in letters.char_indices() {
            let mut known = self.current.get_arguments();
            if known.find(|a| a.get_short() == Some(letter)).is_some_and(takes_next) {
                return at + letter.len_utf8() == letters.len();
            }
        }
        false
    }
}

fn takes_next(arg: &clap::Arg) -> bool {
    arg.get_action().takes_values() && !arg.is_require_equals_set()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) -> Rewritten {
        let mut command = super::super::command();
        command.build();
        let args = std::iter::once("q36").chain(line.split_whitespace()).map(OsString::from);
        let got = rewrite(&command, args).unwrap();
        let words = got.args.iter().skip(1).map(|a| a.to_string_lossy()).collect::<Vec<_>>();
        assert_eq!(words.join(" "), expected, "{line}");
        got
    }

    #[test]
    fn several_letters_behind_one_dash() {
        check("run -sys X -ctk f16", "run --system X --cache-type-k f16");
        check("run -ctv=f16 -c 4096", "run --cache-type-v=f16 -c 4096");
        check("run -sys=a=b", "run --system=a=b");
    }

    #[test]
    fn values_are_left_alone() {
        check("run -p -sys", "run -p -sys");
        check("run --temp -ctk -ctv f16", "run --temp -ctk --cache-type-v f16");
        check("run -p --help --json", "run -p --help --json");
        check("run -vp -sys -q", "run -vp -sys -q");
        check("run -pX -sys Y", "run -pX --system Y");
        check("run -- -sys", "run -- -sys");
        check("bench --tokens -sys -sys Y", "bench --tokens -sys --system Y");
        check("--color -p run", "--color -p run");
    }

    #[test]
    fn an_optional_value_takes_no_word() {
        check("run --profile -sys X", "run --profile --system X");
    }

    #[test]
    fn run_is_understood_where_a_flag_of_its_own_comes_first() {
        check("-p X", "run -p X");
        check("--json -p X", "run --json -p X");
        check("-sys X -p Y", "run --system X -p Y");
        check("--color never -p X", "--color never run -p X");
        check("-q inspect f", "-q inspect f");
        check("--version --json", "--version --json");
        check("--json -V", "--json -V");
        check("inspect -p X", "inspect -p X");
    }

    #[test]
    fn nothing_follows_a_request_for_help() {
        let got = check("run -c 5 --help sampling --bogus", "run -c 5 --help");
        assert_eq!((got.command.as_deref(), got.topic.as_deref()), (Some("run"), Some("sampling")));
        let got = check("--help -v", "--help");
        assert_eq!((got.command, got.topic), (None, None));
    }

    #[test]
    fn moved_flags_are_answered() {
        let mut command = super::super::command();
        command.build();
        let answer = |flag: &str| {
            let args = ["q36", flag].map(OsString::from);
            rewrite(&command, args).err().map(|err| err.to_string())
        };
        assert_eq!(
            answer("--server").as_deref(),
            Some("q36 run: --server: the server is a command of its own: q36 serve")
        );
        assert_eq!(answer("--temp"), None);
    }
}
